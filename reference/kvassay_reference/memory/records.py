"""Judges a pool that is written row by row: roles, units, events and clusters as each row records them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from . import clusters, events, units
from .pool import Json, Rule, near, strongest, whole
from .rows import Array, best

COLUMNS = ("unit", "surface", "membership", "update", "expansion", "budget")
COMPARISON: Mapping[str, tuple[str, ...]] = {
    "infllm": ("fixed-unit", "representative-keys", "contiguous", "unit-leaves-window", "whole-units", "units"),
    "emllm": (
        "event",
        "event-summary",
        "contiguous",
        "boundary-seals-event",
        "whole-events-and-neighbours",
        "tokens",
    ),
    "clusterkv": (
        "cluster",
        "centroid",
        "by-direction",
        "window-seals-clusters",
        "members-last-cluster-trimmed",
        "tokens",
    ),
    "squeezedattention": (
        "cluster",
        "centroid-hierarchy",
        "by-direction",
        "never-after-calibration",
        "members-above-threshold",
        "threshold",
    ),
}
"""What tells the methods apart, column by column."""
INITIAL_ROUNDS = 20


MEMBERS = {
    "": "format identity settings query rows units selected_units boundaries events open_event similarity contiguity"
    " clusters support claims comparison",
    "identity": "tenant checkpoint layer position_rule cache_generation committed kv_heads head_dim value_dim"
    " kv_head_of",
    "settings": "initial_rows local_rows unit_rows representatives top_units surprise_window ddof gamma minimum_rows"
    " maximum_rows similarity_tokens contiguity_tokens sink_rows prompt_rows prompt_initial window_rows"
    " clusters_per_window budget",
    "rows *": "position roles unit event clusters k v surprise influence",
    "units *": "rows representatives",
    "events *": "rows representatives",
    "clusters": "windows generation label_generation centroids sizes prefix_sums members open order recalled map",
    "clusters windows *": "rows initial clusters generation",
    "clusters map *": "position kv_head cluster generation",
    "support": "infllm emllm clusterkv",
    "claims": "payload exactness positions",
    "comparison *": "method unit surface membership update expansion budget",
}
"""Path of each object of a pool by rows to the names of its members."""


class Records:
    """A document with its columns as arrays, and what its settings make of them."""

    def __init__(self, document: Json) -> None:
        self.document = document
        self.identity, self.ask = document["identity"], document["settings"]
        self.rows = document["rows"]
        self.committed = self.identity["committed"]
        self.heads = self.identity["kv_heads"]

    def shapes(self) -> bool:
        """Whether every row has the declared heads and channels."""
        heads, width, deep = self.heads, self.identity["head_dim"], self.identity["value_dim"]
        rows = all(
            len(row["k"]) == len(row["v"]) == len(row["influence"]) == heads
            and {len(k) for k in row["k"]} == {width}
            and {len(v) for v in row["v"]} == {deep}
            for row in self.rows
        )
        return rows and {len(q) for q in self.document["query"]} == {width}

    def arrays(self) -> None:
        """Columns of the rows; only after their shapes were checked."""
        self.k = np.asarray([row["k"] for row in self.rows], dtype=float)
        self.weights = np.asarray([row["influence"] for row in self.rows], dtype=float)
        self.surprise = np.asarray([row["surprise"] for row in self.rows], dtype=float)
        self.query = np.asarray(self.document["query"], dtype=float)
        ask = self.ask
        self.regions = units.regions(self.committed, ask["initial_rows"], ask["local_rows"], ask["unit_rows"])

    def roles(self) -> list[str]:
        """The one role of each row."""
        found = self.regions
        names = ("initial", "distant", "remainder", "local")
        lengths = (
            found.initial[1],
            found.remainder[0] - found.initial[1],
            found.remainder[1] - found.remainder[0],
            self.committed - found.local[0],
        )
        return [name for name, length in zip(names, lengths, strict=True) for _ in range(length)]

    def unit_numbers(self) -> list[int | None]:
        """The unit of each row, and nothing for rows of no unit."""
        found = self.regions
        inside: list[int | None] = [number for number, span in enumerate(found.units) for _ in range(*span)]
        return [*[None] * found.initial[1], *inside, *[None] * (self.committed - found.remainder[0])]

    def sealed(self) -> tuple[list[int], events.Sealed]:
        """Cuts between the initial rows and the local window, and the events that they make."""
        ask = self.ask
        first, end = ask["initial_rows"], self.committed - ask["local_rows"]
        marks = events.mark(self.surprise, ask["surprise_window"], ask["gamma"], ask["ddof"])
        cuts = [cut for cut in marks.boundaries if first < cut < end]
        return cuts, events.seal(cuts, (first, end), least=ask["minimum_rows"], most=ask["maximum_rows"], closed=False)

    def retrieved(self, sealed: events.Sealed) -> events.Retrieved:
        """Similar events and neighbours for the document's query."""
        _, summaries = events.summarise(self.k, sealed.events, self.weights, self.ask["representatives"], whole=False)
        return events.retrieve(
            self.query[None, ...],
            summaries,
            self.identity["kv_head_of"],
            sealed.events,
            similarity_tokens=self.ask["similarity_tokens"],
            contiguity_tokens=self.ask["contiguity_tokens"],
            radius=1,
            side="after",
            crossing="closest",
        )

    def clusters(self) -> tuple[clusters.Index, Array]:
        """The index of prompt and sealed windows, and the labels [H_kv, rows] of the rows that it holds."""
        ask = self.ask
        spans = [((ask["sink_rows"], ask["prompt_rows"]), ask["prompt_initial"])]
        spans += [(tuple(window["rows"]), window["initial"]) for window in self.document["clusters"]["windows"]]
        index: clusters.Index | None = None
        labels: list[Array] = []
        for (first, end), initial in spans:
            found = clusters.build(self.k[first:end, ...], [p - first for p in initial], INITIAL_ROUNDS)
            fresh = clusters.index_of(found, first)
            labels.append(found.labels + (0 if index is None else index.sizes.shape[1]))
            index = fresh if index is None else clusters.appended(index, fresh)
        assert index is not None
        return index, np.concatenate(labels, axis=1)


def rules(document: Json) -> Iterator[Rule]:
    """Every rule in the order of the chapter."""
    yield whole(document, MEMBERS), "SCHEMA_VIOLATION"
    records = Records(document)
    yield records.committed == len(records.rows), "FRONTIER_BEYOND_COMMIT"
    yield [row["position"] for row in records.rows] == list(range(records.committed)), "POSITIONS_COMPACTED"
    yield records.shapes(), "SHAPE_MISMATCH"
    owners = document["identity"]["kv_head_of"]
    mapped = len(owners) == len(document["query"]) and all(0 <= owner < records.heads for owner in owners)
    yield mapped, "HEAD_MAP_INVALID"
    records.arrays()
    for row, name in zip(records.rows, records.roles(), strict=True):
        yield len(row["roles"]) <= 1, "ROLES_OVERLAP"
        yield row["roles"] == [name], "ROLE_MISMATCH"
    yield from unit_rules(records)
    yield from event_rules(records)
    yield from cluster_rules(records)
    yield from claim_rules(document)


def inside(one: Json, heads: int) -> bool:
    """Whether each head's representatives lie in the span."""
    first, end = one["rows"]
    return len(one["representatives"]) == heads and all(
        first <= p < end for line in one["representatives"] for p in line
    )


def surface_rules(records: Records, spans: list[Json], reason: str) -> Iterator[Rule]:
    """Representatives lie in their span and are its most influential rows."""
    yield all(inside(one, records.heads) for one in spans), reason
    count = records.ask["representatives"]
    wanted = [strongest(records.weights, one["rows"], count) for one in spans]
    yield [one["representatives"] for one in spans] == wanted, "REPRESENTATIVES_MISMATCH"


def unit_rules(records: Records) -> Iterator[Rule]:
    """Units as rows and lists record them."""
    document, ask, found = records.document, records.ask, records.regions
    yield 1 <= ask["representatives"] <= ask["unit_rows"], "REPRESENTATIVES_IMPOSSIBLE"
    yield [tuple(one["rows"]) for one in document["units"]] == list(found.units), "UNITS_MISMATCH"
    yield [row["unit"] for row in records.rows] == records.unit_numbers(), "UNIT_COVERAGE_MISMATCH"
    yield from surface_rules(records, document["units"], "REPRESENTATIVE_OUTSIDE_UNIT")
    picked = [strongest(records.weights, span, ask["representatives"]) for span in found.units]
    heads = np.arange(records.heads)[None, :, None]
    table = records.k[np.asarray(picked), heads].transpose(0, 2, 1, 3)
    scores = units.lookup_scores(records.query[None, ...], table, document["identity"]["kv_head_of"])
    chosen = best(scores.sum(axis=0), ask["top_units"])
    yield document["selected_units"] == chosen, "SELECTION_MISMATCH"
    yield document["support"]["infllm"] == units.support_of(found, chosen), "RECALLED_SUPPORT_MISMATCH"


def event_rules(records: Records) -> Iterator[Rule]:
    """Events as rows and lists record them."""
    document, ask = records.document, records.ask
    yield ask["surprise_window"] >= 1 + ask["ddof"], "WINDOW_INVALID"
    yield 1 <= ask["minimum_rows"] <= ask["maximum_rows"], "EVENT_SIZES_IMPOSSIBLE"
    cuts, sealed = records.sealed()
    yield document["boundaries"] == cuts, "BOUNDARIES_MISMATCH"
    yield [tuple(one["rows"]) for one in document["events"]] == sealed.events, "EVENTS_MISMATCH"
    yield tuple(document["open_event"]) == sealed.open, "EVENTS_MISMATCH"
    member = {p: number for number, event in enumerate(sealed.events) for p in range(*event)}
    yield (
        [row["event"] for row in records.rows] == [member.get(p) for p in range(records.committed)],
        ("EVENT_COVERAGE_MISMATCH"),
    )
    yield from surface_rules(records, document["events"], "REPRESENTATIVE_OUTSIDE_EVENT")
    found = records.retrieved(sealed)
    yield document["similarity"] == found.similarity, "SELECTION_MISMATCH"
    yield not set(document["similarity"]) & set(document["contiguity"]), "EVENT_TWICE"
    yield document["contiguity"] == found.contiguity, "CONTIGUITY_MISMATCH"
    support = [*range(ask["initial_rows"]), *found.rows, *range(sealed.open[0], records.committed)]
    yield document["support"]["emllm"] == support, "RECALLED_SUPPORT_MISMATCH"


def window_rules(records: Records) -> Iterator[Rule]:
    """Windows follow the prompt one after the other, each with its own clusters."""
    ask, index = records.ask, records.document["clusters"]
    yield ask["sink_rows"] < ask["prompt_rows"] <= records.committed, "INDEX_BEYOND_COMMIT"
    yield all(ask["sink_rows"] <= p < ask["prompt_rows"] for p in ask["prompt_initial"]), "INITIAL_ROW_UNKNOWN"
    end, count = ask["prompt_rows"], len(ask["prompt_initial"])
    for window in index["windows"]:
        first, stop = window["rows"]
        yield first == end, "WINDOW_NOT_NEXT"
        yield stop - first == ask["window_rows"], "WINDOW_NOT_SEALED"
        yield stop <= records.committed, "INDEX_BEYOND_COMMIT"
        named = (len(window["initial"]), window["clusters"])
        more = ask["clusters_per_window"]
        yield named == (more, [count, count + more]), "APPEND_CLUSTERS_MISMATCH"
        yield all(first <= p < stop for p in window["initial"]), "INITIAL_ROW_UNKNOWN"
        yield window["generation"] <= index["generation"], "STALE_INDEX_GENERATION"
        end, count = stop, count + more
    yield index["open"] == [end, records.committed], "OPEN_WINDOW_MISMATCH"
    yield records.committed - end < 2 * ask["window_rows"], "OPEN_WINDOW_MISMATCH"
    placed = [row["clusters"] is not None for row in records.rows]
    named_rows = {p for line in index["members"] for p in line}
    yield not any(placed[: ask["sink_rows"]]) and not named_rows & set(range(ask["sink_rows"])), "SINK_IN_CLUSTER"
    yield not any(placed[end:]) and all(p < end for p in named_rows), "OPEN_ROW_IN_CLUSTER"
    yield all(placed[ask["sink_rows"] : end]), "CLUSTER_COVERAGE_MISMATCH"


def cluster_rules(records: Records) -> Iterator[Rule]:
    """Clusters, their lists, cached labels, and what is recalled of them."""
    yield from window_rules(records)
    stated, ask = records.document["clusters"], records.ask
    index, labels = records.clusters()
    end = stated["open"][0]
    yield [row["clusters"] for row in records.rows[ask["sink_rows"] : end]] == labels.T.tolist(), "LABELS_MISMATCH"
    yield near(stated["centroids"], index.centroids), "CENTROIDS_MISMATCH"
    yield stated["sizes"] == index.sizes.tolist(), "SIZES_MISMATCH"
    yield stated["prefix_sums"] == index.prefix_sums.tolist(), "PREFIX_SUMS_MISMATCH"
    members = index.members.tolist()
    yield list(map(sorted, stated["members"])) == list(map(sorted, members)), "MEMBERS_MISMATCH"
    yield stated["members"] == members, "MEMBERS_NOT_ASCENDING"
    yield stated["label_generation"] == stated["generation"], "STALE_LABELS"
    homes = {
        (head, ask["sink_rows"] + i): label for head, line in enumerate(labels.tolist()) for i, label in enumerate(line)
    }
    for entry in stated["map"]:
        fresh = entry["generation"] == stated["generation"]
        yield fresh and homes.get((entry["kv_head"], entry["position"])) == entry["cluster"], "STALE_LABELS"
    found = clusters.select(records.query, index, records.identity["kv_head_of"], ask["budget"])
    yield stated["order"] == found.order.tolist(), "SELECTION_MISMATCH"
    yield all(len(line) <= ask["budget"] for line in stated["recalled"]), "BUDGET_EXCEEDED"
    yield stated["recalled"] == found.rows, "RECALLED_ROWS_MISMATCH"
    support = [[*range(ask["sink_rows"]), *line, *range(end, records.committed)] for line in found.rows]
    yield records.document["support"]["clusterkv"] == support, "RECALLED_SUPPORT_MISMATCH"


def claim_rules(document: Json) -> Iterator[Rule]:
    """What the document says of itself and of the methods."""
    claims = document["claims"]
    yield claims["positions"] == "original", "POSITIONS_COMPACTED"
    yield claims["payload"] == "full-rows", "IDS_POSE_AS_ROWS"
    yield claims["exactness"] == "selected-support", "EXACTNESS_OVERCLAIMED"
    yield sorted(one["method"] for one in document["comparison"]) == sorted(COMPARISON), "COMPARISON_INCOMPLETE"
    for one in document["comparison"]:
        yield all(one[name] for name in COLUMNS), "COMPARISON_INCOMPLETE"
        yield tuple(one[name] for name in COLUMNS) == COMPARISON[one["method"]], "COMPARISON_MISMATCH"
