"""Judges a pool document: twelve rows, or any other number, and what three memories say that they made of them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from ..errors import Refusal
from . import clusters, events, units
from .rows import Array, ranked

Json = Mapping[str, Any]
Rule = tuple[bool, str]
"""Whether a rule holds, and the reason where it does not."""
SLACK = 1e-6
METHODS = ("infllm", "emllm", "clusterkv")
BINDING = {
    "tenant": "INDEX_TENANT_MISMATCH",
    "checkpoint": "INDEX_OF_OTHER_SOURCE",
    "layer": "INDEX_OF_OTHER_SOURCE",
    "kv_head": "WRONG_KV_HEAD",
    "position_rule": "POSITION_RULE_MISMATCH",
    "cache_generation": "STALE_CACHE_GENERATION",
    "payload_sha256": "INDEX_OF_OTHER_ROWS",
}
"""What an index shares with the rows that it leads to, and the reason where it does not."""
ONE_HEAD = (0,)


INDEX = (
    "tenant checkpoint layer kv_head position_rule cache_generation payload_sha256 index_generation"
    " map_generation frontier"
)
UNIT_MEMBERS = "settings units representatives scores selected_units recalled source_positions distance support"
EVENT_MEMBERS = "settings candidates boundaries events lengths scores similarity contiguity tokens recalled support"
MEMBERS = {
    "": "format identity pool infllm emllm clusterkv claims",
    "identity": "tenant checkpoint layer kv_head position_rule cache_generation committed payload_sha256",
    "pool": "k v query surprise",
    "infllm": f"index lookup_generation {UNIT_MEMBERS}",
    "infllm index": INDEX,
    "infllm settings": "initial_rows local_rows unit_rows representatives top_units",
    "emllm": f"index lookup_generation {EVENT_MEMBERS}",
    "emllm index": INDEX,
    "emllm settings": "window gamma ddof metric radius minimum_rows maximum_rows local_rows similarity_tokens"
    " contiguity_tokens side crossing",
    "clusterkv": "index lookup_generation settings centroids sizes prefix_sums members order recalled support next",
    "clusterkv index": INDEX,
    "clusterkv settings": "sink_rows initial iterations budget window window_initial",
    "clusterkv next": "centroids sizes prefix_sums members generations authority_end",
    "clusterkv next generations": "centroids sizes prefix_sums members authority map",
    "claims": "retention source attention exactness",
}
"""Path of each object of a pool to the names of its members."""


def whole(document: Any, members: Mapping[str, str]) -> bool:
    """Whether each object has exactly its members; a path ending in ``*`` means every item of a list."""
    for path, names in members.items():
        found = [document]
        for part in path.split():
            found = [item for one in found for item in (one if part == "*" else [one[part]])]
        if any(not isinstance(one, Mapping) or set(one) != set(names.split()) for one in found):
            return False
    return True


def accept(rules: Iterable[Rule]) -> None:
    """Refuse for the first rule that does not hold."""
    for holds, reason in rules:
        if not holds:
            raise Refusal(reason)


def payload_sha256(pool: Json) -> str:
    """Digest of keys and values, each number as eight little-endian bytes."""
    raw = b"".join(np.asarray(pool[name], dtype="<f8").tobytes() for name in ("k", "v"))
    return hashlib.sha256(raw).hexdigest()


def near(a: Any, b: Any) -> bool:
    """Whether nested decimals agree within a millionth."""
    left, right = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    return left.shape == right.shape and bool(np.all(np.abs(left - right) <= SLACK))


def one_head(rows: Sequence[Sequence[float]]) -> Array:
    """Rows as [T, 1, d]."""
    return np.asarray(rows, dtype=float)[:, None, :]


def rules(document: Json) -> Iterator[Rule]:
    """Every rule in the order of the chapter."""
    yield whole(document, MEMBERS), "SCHEMA_VIOLATION"
    identity, pool = document["identity"], document["pool"]
    yield all(len(pool[name]) == identity["committed"] for name in ("k", "v", "surprise")), "FRONTIER_BEYOND_COMMIT"
    same = len({len(row) for row in (*pool["k"], pool["query"])}) == 1 == len({len(row) for row in pool["v"]})
    yield same, "SHAPE_MISMATCH"
    yield identity["payload_sha256"] == payload_sha256(pool), "PAYLOAD_DIGEST_MISMATCH"
    for method in METHODS:
        yield from binding(identity, document[method])
    yield from unit_rules(document)
    yield from event_rules(document)
    yield from cluster_rules(document)
    yield from claim_rules(document["claims"])


def binding(identity: Json, method: Json) -> Iterator[Rule]:
    """An index is of these rows, and one generation is read."""
    index = method["index"]
    for name, reason in BINDING.items():
        yield index[name] == identity[name], reason
    yield index["frontier"] <= identity["committed"], "INDEX_BEYOND_COMMIT"
    yield index["map_generation"] == index["index_generation"], "MAP_OF_OTHER_GENERATION"
    yield method["lookup_generation"] == index["index_generation"], "STALE_INDEX_GENERATION"


def claim_rules(claims: Json) -> Iterator[Rule]:
    """What recall may be called."""
    yield claims["retention"] == "recallable", "RETENTION_MISMATCH"
    yield claims["source"] == "internal-rows", "DOCUMENT_RECALL_CLAIMED"
    yield claims["attention"] == "full-rows", "IDS_POSE_AS_ROWS"
    yield claims["exactness"] == "selected-support", "EXACTNESS_OVERCLAIMED"


def unit_rules(document: Json) -> Iterator[Rule]:
    """InfLLM: every later row is taken to ask the document's query."""
    stated, ask = document["infllm"], document["infllm"]["settings"]
    committed, count = document["identity"]["committed"], ask["representatives"]
    yield 1 <= count <= ask["unit_rows"], "REPRESENTATIVES_IMPOSSIBLE"
    found = units.regions(committed, ask["initial_rows"], ask["local_rows"], ask["unit_rows"])
    spans = [list(span) for span in found.units]
    yield stated["units"] == spans, "UNITS_MISMATCH"
    yield stated["index"]["frontier"] == found.remainder[0], "INDEX_COVERAGE_MISMATCH"
    named = stated["representatives"]
    inside = len(named) == len(spans) and all(
        first <= p < end for (first, end), row in zip(spans, named, strict=True) for p in row
    )
    yield inside, "REPRESENTATIVE_OUTSIDE_UNIT"
    keys, query = np.asarray(document["pool"]["k"], dtype=float), np.asarray(document["pool"]["query"], dtype=float)
    strength = keys @ query
    table = (
        strength[found.units[0][0] : found.units[-1][1]].reshape(len(spans), 1, -1) if spans else np.zeros((0, 1, 1))
    )
    picked = units.representatives(table, [first for first, _ in found.units], count)[:, 0, :]
    yield named == picked.tolist(), "REPRESENTATIVES_MISMATCH"
    scores = units.lookup_scores(query[None, None, :], keys[picked][:, :, None, :], ONE_HEAD)
    yield near(stated["scores"], scores[0]), "SCORES_MISMATCH"
    chosen = units.choose_units(scores, ask["top_units"])[0]
    yield stated["selected_units"] == chosen, "SELECTION_MISMATCH"
    recalled = [p for unit in chosen for p in range(*found.units[unit])]
    yield stated["recalled"] == recalled, "RECALLED_ROWS_MISMATCH"
    yield stated["source_positions"] == recalled, "POSITIONS_COMPACTED"
    yield stated["distance"] == ask["local_rows"] - 1, "DISTANCE_MISMATCH"
    yield stated["support"] == units.support_of(found, chosen), "RECALLED_SUPPORT_MISMATCH"


def event_rules(document: Json) -> Iterator[Rule]:
    """EM-LLM: events reach from the first row to the local window, which closes the last one."""
    stated, ask, pool = document["emllm"], document["emllm"]["settings"], document["pool"]
    committed = document["identity"]["committed"]
    end = committed - ask["local_rows"]
    yield ask["window"] >= 1 + ask["ddof"], "WINDOW_INVALID"
    yield 1 <= ask["minimum_rows"] <= ask["maximum_rows"], "EVENT_SIZES_IMPOSSIBLE"
    marks = events.mark(np.asarray(pool["surprise"], dtype=float), ask["window"], ask["gamma"], ask["ddof"])
    candidates = [cut for cut in marks.boundaries if cut < end]
    yield stated["candidates"] == candidates, "SURPRISE_CANDIDATES_MISMATCH"
    yield all(a < b for a, b in pairwise(stated["boundaries"])), "BOUNDARIES_NOT_ASCENDING"
    keys = one_head(pool["k"][:end])
    refined = events.refine(
        events.similarity(keys), candidates, ask["metric"], least=ask["minimum_rows"], radius=ask["radius"]
    )
    yield stated["boundaries"] == refined.boundaries, "BOUNDARIES_MISMATCH"
    sealed = events.seal(
        refined.boundaries, (0, end), least=ask["minimum_rows"], most=ask["maximum_rows"], closed=True
    ).events
    spans = [list(event) for event in sealed]
    yield stated["events"] == spans, "EVENTS_MISMATCH"
    yield stated["lengths"] == [b - a for a, b in sealed], "EVENTS_MISMATCH"
    yield stated["index"]["frontier"] == end, "INDEX_COVERAGE_MISMATCH"
    query = np.asarray(pool["query"], dtype=float)
    _, summaries = events.summarise(keys, sealed, (keys @ query), 1, whole=True)
    found = events.retrieve(
        query[None, None, :],
        summaries,
        ONE_HEAD,
        sealed,
        similarity_tokens=ask["similarity_tokens"],
        contiguity_tokens=ask["contiguity_tokens"],
        radius=1,
        side=ask["side"],
        crossing=ask["crossing"],
    )
    yield near(stated["scores"], found.scores), "SCORES_MISMATCH"
    yield stated["similarity"] == found.similarity, "SELECTION_MISMATCH"
    yield not set(stated["similarity"]) & set(stated["contiguity"]), "EVENT_TWICE"
    yield stated["contiguity"] == found.contiguity, "CONTIGUITY_MISMATCH"
    yield stated["recalled"] == found.rows, "RECALLED_ROWS_MISMATCH"
    yield stated["tokens"] == len(found.rows), "TOKENS_MISMATCH"
    yield stated["support"] == [*found.rows, *range(end, committed)], "RECALLED_SUPPORT_MISMATCH"


def span_index(
    keys: Sequence[Sequence[float]], span: Sequence[int], initial: Sequence[int], rounds: int
) -> clusters.Index:
    """Clusters of some rows of the pool, by their positions."""
    first, end = span
    found = clusters.build(one_head(keys[first:end]), [p - first for p in initial], rounds)
    return clusters.index_of(found, first)


def index_rules(stated: Json, index: clusters.Index) -> Iterator[Rule]:
    """Stated centroids, sizes, sums and members are those of an index of one head."""
    yield near(stated["centroids"], index.centroids[0]), "CENTROIDS_MISMATCH"
    yield stated["sizes"] == index.sizes[0].tolist(), "SIZES_MISMATCH"
    yield stated["prefix_sums"] == index.prefix_sums[0].tolist(), "PREFIX_SUMS_MISMATCH"


def cluster_rules(document: Json) -> Iterator[Rule]:
    """ClusterKV: the generation that is read, and the next one with the window."""
    stated, ask, pool = document["clusterkv"], document["clusterkv"]["settings"], document["pool"]
    committed, sink, (first, end) = document["identity"]["committed"], ask["sink_rows"], ask["window"]
    yield sink < first < end <= committed, "WINDOW_NOT_NEXT"
    yield all(sink <= p < first for p in ask["initial"]), "INITIAL_ROW_UNKNOWN"
    yield all(first <= p < end for p in ask["window_initial"]), "INITIAL_ROW_UNKNOWN"
    yield all(p >= sink for p in stated["members"]), "SINK_IN_CLUSTER"
    index = span_index(pool["k"], (sink, first), ask["initial"], ask["iterations"])
    yield from index_rules(stated, index)
    members = index.members[0].tolist()
    yield sorted(stated["members"]) == sorted(members), "MEMBERS_MISMATCH"
    yield stated["members"] == members, "MEMBERS_NOT_ASCENDING"
    yield stated["index"]["frontier"] == first, "INDEX_COVERAGE_MISMATCH"
    query = np.asarray(pool["query"], dtype=float)[None, :]
    found = clusters.select(query, index, ONE_HEAD, ask["budget"])
    yield stated["order"] == found.order[0].tolist(), "SELECTION_MISMATCH"
    yield len(stated["recalled"]) <= ask["budget"], "BUDGET_EXCEEDED"
    yield stated["recalled"] == found.rows[0], "RECALLED_ROWS_MISMATCH"
    yield stated["support"] == [*range(sink), *found.rows[0], *range(first, committed)], "RECALLED_SUPPORT_MISMATCH"
    later = stated["next"]
    generation = stated["index"]["index_generation"] + 1
    yield set(later["generations"].values()) == {generation}, "PARTIAL_PUBLICATION"
    yield later["authority_end"] >= end, "AUTHORITY_BEHIND"
    whole = clusters.appended(index, span_index(pool["k"], (first, end), ask["window_initial"], ask["iterations"]))
    yield from index_rules(later, whole)
    yield later["members"] == whole.members[0].tolist(), "MEMBERS_MISMATCH"


def strongest(weights: Array, span: Sequence[int], count: int) -> list[list[int]]:
    """By head: positions of the largest weights [T, H_kv] of a span, ascending."""
    first, end = span
    inside = ranked(weights[first:end, :].T)[:, :count] + first
    return np.sort(inside, axis=-1).tolist()  # type: ignore[no-any-return]
