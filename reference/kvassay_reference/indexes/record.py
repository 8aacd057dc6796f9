"""Retrieval records: one query of one layer and K/V head under four indexes, and every rule in its order.

A record is JSON as ``schemas/indexes/record.json`` has it. Numbers that follow from others agree within 1e-9.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import bridge, magicpig, pq, squeezed
from .rows import squared_distances, top

Json = Mapping[str, Any]
Rule = tuple[bool, str]
Floats = NDArray[np.float64]
FRAME = (
    ("tenant", "TENANT_MISMATCH"),
    ("kv_head", "WRONG_KV_HEAD"),
    ("rope", "ROPE_MISMATCH"),
    ("mask", "MASK_MISMATCH"),
    ("scale", "SCALE_MISMATCH"),
)
ORIGIN = (
    ("tenant", "INDEX_TENANT_MISMATCH"),
    ("model", "MODEL_MISMATCH"),
    ("kv_head", "WRONG_KV_HEAD"),
    ("rope", "ROPE_MISMATCH"),
    ("cache_generation", "STALE_CACHE_GENERATION"),
    ("row_map_generation", "ROW_MAP_MISMATCH"),
)
ITEM_BYTES, ID_BYTES, RANGE_BYTES = 4, 4, 8


def array(rows: Any) -> Floats:
    """Nested lists as float64."""
    return np.asarray(rows, np.float64)


def alike(a: Any, b: Any) -> bool:
    """Numbers or nested lists that agree in shape and within 1e-9."""
    try:
        x, y = array(a), array(b)
    except ValueError:
        return False
    if x.shape != y.shape:
        return False
    with np.errstate(invalid="ignore"):
        return bool(np.all((x == y) | (np.abs(x - y) <= 1e-9 + 1e-9 * np.abs(y))))


class Method:
    """What the rules of all methods share; each method adds its geometry, its search and its proxy."""

    rule, claim = "softmax", "over-support"

    def __init__(self, document: Json, section: Json) -> None:
        """One section of a record."""
        self.pool, self.query, self.section = document["pool"], document["query"], section
        self.index, self.search, self.gather = section["index"], section["search"], section["gather"]
        self.reduce = section["reduce"]
        self.keys, self.values = array(self.pool["keys"]), array(self.pool["values"])
        self.q = array(self.query["q"])
        self.ids = list(range(*self.index["rows"]))
        self.kept = bridge.persistent_rows(self.pool["frontier"], self.pool["sink"], self.pool["recent"])

    def rules(self) -> Iterator[Rule]:
        """Every rule of the section in its order."""
        yield from self.origin()
        yield from self.geometry()
        yield from self.receipt()
        yield from self.found()
        yield from self.passed_on()
        yield from self.reduced()
        yield from self.stages()
        yield from self.ledger()

    def origin(self) -> Iterator[Rule]:
        """The index was built from this pool, is published, and misses no row that is not persistent."""
        for name, reason in ORIGIN:
            yield self.index[name] == self.pool[name], reason
        yield self.index["state"] == "published", "INDEX_NOT_PUBLISHED"
        yield self.index["rows"][1] <= self.pool["frontier"], "INDEX_BEYOND_COMMIT"
        yield set(range(self.pool["frontier"])) == {*self.ids, *self.kept}, "INDEX_BEHIND_COMMIT"

    def geometry(self) -> Iterator[Rule]:
        """What the index holds is what the rows give."""
        raise NotImplementedError

    def found(self) -> Iterator[Rule]:
        """Candidates are those that the method finds."""
        raise NotImplementedError

    def proxies(self) -> Floats:
        """Scores that the index ranks by, of its rows."""
        return array(self.keys[self.ids] @ self.q)

    def receipt(self) -> Iterator[Rule]:
        """The look-up was this query's, in this index."""
        search, index = self.search, self.index
        yield search["query_head"] == self.query["query_head"], "LOOKUP_OF_OTHER_QUERY"
        yield search["index_generation"] == index["index_generation"], "STALE_INDEX_GENERATION"
        yield search["row_map_generation"] == index["row_map_generation"], "ROW_MAP_MISMATCH"
        yield all(0 <= i < self.pool["frontier"] for i in search["candidates"]), "CANDIDATE_OUT_OF_RANGE"
        yield set(search["candidates"]) <= set(self.ids), "CANDIDATE_NOT_INDEXED"

    def passed_on(self) -> Iterator[Rule]:
        """Validation and gather keep the generations, name each row once, and fetch the pool's rows."""
        check, gather, index = self.section["validation"], self.gather, self.index
        yield check["index_generation"] == index["index_generation"], "STALE_INDEX_GENERATION"
        yield check["row_map_generation"] == index["row_map_generation"], "ROW_MAP_MISMATCH"
        ids = check["ids"]
        yield len(set(ids)) == len(ids) and not set(ids) & set(self.kept), "SUPPORT_DUPLICATED"
        yield ids == bridge.without(self.search["candidates"], self.kept), "SUPPORT_MISMATCH"
        yield gather["cache_generation"] == self.pool["cache_generation"], "STALE_CACHE_GENERATION"
        yield gather["row_map_generation"] == index["row_map_generation"], "ROW_MAP_MISMATCH"
        yield gather["source"] == "authoritative-rows", "PROXY_AS_PAYLOAD"
        yield gather["ids"] == ids, "SUPPORT_MISMATCH"
        fetched = [[*k, *v] for k, v in zip(gather["k"], gather["v"], strict=False)]
        authority = [[*self.pool["keys"][i], *self.pool["values"][i]] for i in ids]
        yield fetched == authority and len(gather["k"]) == len(gather["v"]), "ROWS_NOT_AUTHORITATIVE"

    def reduced(self) -> Iterator[Rule]:
        """Both parts in one frame, each row once, by the method's rule, and the output that follows."""
        parts = self.reduce["parts"]
        for part in parts:
            for name, reason in FRAME[2:]:
                yield part[name] == self.pool[name], reason
        ids = [i for part in parts for i in part["ids"]]
        yield len(set(ids)) == len(ids), "SUPPORT_DUPLICATED"
        yield [part["ids"] for part in parts] == [self.kept, self.gather["ids"]], "SUPPORT_MISMATCH"
        yield self.reduce["rule"] == self.rule, "ESTIMATOR_RULE_CHANGED"
        yield from self.chances()
        yield self.reduce["exactness"] == self.claim, "EXACTNESS_OVERCLAIMED"
        out, lse = self.output()
        yield alike(self.reduce["out"], out) and alike(self.reduce["lse"], lse), "OUTPUT_MISMATCH"

    def chances(self) -> Iterator[Rule]:
        """Inclusion probabilities, where the method has any."""
        return iter(())

    def support(self) -> list[int]:
        """Rows that attention reads, persistent ones first."""
        return [*self.kept, *self.gather["ids"]]

    def logits(self) -> Floats:
        """Logits of the support in the method's frame."""
        return array(self.pool["scale"] * (self.keys[self.support()] @ self.q))

    def output(self) -> tuple[Floats, float]:
        """Output and LSE over the support."""
        return reduce_rows(self.logits(), self.values[self.support()])

    def stages(self) -> Iterator[Rule]:
        """Each stage's error by itself."""
        yield (
            all(alike(self.section["errors"][name], value) for name, value in self.errors().items()),
            "ERROR_STAGE_MISMATCH",
        )

    def errors(self) -> dict[str, float]:
        """What the four stages lose."""
        scores, support = self.keys @ self.q, self.support()
        weights = np.exp(self.pool["scale"] * (scores - scores.max()))
        weights /= weights.sum()
        plain, _ = reduce_rows(self.pool["scale"] * scores[support], self.values[support])
        ids = self.gather["ids"]
        moved = [
            np.max(np.abs(array(self.gather[name]) - source[ids]), initial=0.0)
            for name, source in (("k", self.keys), ("v", self.values))
            if ids
        ]
        return {
            "representation": float(np.max(np.abs(scores[self.ids] - self.proxies()), initial=0.0)),
            "omitted_mass": float(np.delete(weights, support).sum()),
            "payload": float(max(moved, default=0.0)),
            "reduction": float(np.max(np.abs(self.output()[0] - plain))),
        }

    def ledger(self) -> Iterator[Rule]:
        """Search structure, payload and gather, none of which is part of another."""
        pool, stated = self.pool, self.section["ledger"]
        row = pool["channels"] * pool["k_item_bytes"] + pool["value_channels"] * pool["v_item_bytes"]
        yield stated["index_bytes"] == self.index_bytes(), "INDEX_BYTES_MISMATCH"
        yield stated["payload_bytes"] == pool["frontier"] * row, "PAYLOAD_BYTES_MISMATCH"
        moved = len(self.gather["ids"]) if self.gather["to"] == "device" else 0
        yield stated["gather_bytes"] == moved * row, "GATHER_BYTES_MISMATCH"

    def index_bytes(self) -> int:
        """Bytes of the search structure."""
        raise NotImplementedError


def reduce_rows(logits: Floats, values: Floats) -> tuple[Floats, float]:
    """Output and LSE over rows with these logits; zeros and -inf over none."""
    if not len(logits):
        return np.zeros(values.shape[1]), -np.inf
    m = logits.max()
    weights = np.exp(logits - m)
    return weights @ values / weights.sum(), float(m + np.log(weights.sum()))


class Quantised(Method):
    """PQCache's section."""

    def geometry(self) -> Iterator[Rule]:
        """Codes are the nearest centroids of every row."""
        index, channels = self.index, self.pool["channels"]
        parts, count = index["m"], 1 << index["bits"]
        shapes = {np.shape(c) for subspace in index["centroids"] for c in subspace}
        counts = [len(subspace) for subspace in index["centroids"]]
        right = channels % parts == 0 and counts == [count] * parts and shapes == {(channels // parts,)}
        yield right, "PQ_GEOMETRY_INVALID"
        yield len(index["codes"]) == len(self.ids), "CODES_NOT_COVERING"
        yield all(len(row) == parts for row in index["codes"]), "PQ_GEOMETRY_INVALID"
        yield all(0 <= code < count for row in index["codes"] for code in row), "CODE_OUT_OF_RANGE"
        codes, keys = np.asarray(index["codes"], np.int64), pq.split(self.keys[self.ids], parts)
        for j, centroids in enumerate(array(index["centroids"])):
            far = squared_distances(keys[:, j, :], centroids)
            own = np.take_along_axis(far, codes[:, j : j + 1], axis=1)[:, 0]
            yield bool(np.all(own <= far.min(axis=1) * (1 + 1e-12))), "CODE_NOT_NEAREST"

    def proxies(self) -> Floats:
        """Scores by look-up."""
        table = pq.tables(self.q, array(self.index["centroids"]))
        return array(pq.look_up(table, np.asarray(self.index["codes"], np.int64)))

    def found(self) -> Iterator[Rule]:
        """Candidates are the best by look-up."""
        wanted = {self.ids[i] for i in top(self.proxies(), self.search["budget"])}
        yield set(self.search["candidates"]) == wanted, "CANDIDATES_NOT_RANKED"

    def index_bytes(self) -> int:
        """Packed codes and centroids."""
        bits = len(self.ids) * self.index["m"] * self.index["bits"]
        return int(-(-bits // 8) + (1 << self.index["bits"]) * self.pool["channels"] * ITEM_BYTES)


class Bridged(Method):
    """RetrievalAttention's section."""

    def geometry(self) -> Iterator[Rule]:
        """The graph is the projection of the prefill sample's exact neighbours."""
        index, sample = self.index, self.index["sample"]
        first, end = sample["rows"]
        own = sample["query_head"] == self.query["query_head"] and sample["rope"] == index["rope"]
        right = own and end <= self.pool["frontier"] and end - first == len(sample["queries"])
        yield right, "QUERY_SAMPLE_MISMATCH"
        near = self.neighbours(sample["queries"], index["k_build"])
        yield sets(index["neighbours"]) == sets(near), "NEIGHBOURS_NOT_EXACT"
        edges = [tuple(edge) for edge in index["edges"]]
        yield {end for edge in edges for end in edge} <= set(self.ids), "DANGLING_EDGE"
        made = bridge.project(near)
        yield set(edges) <= set(made), "EDGE_WITHOUT_QUERY"
        yield sorted(edges) == made, "EDGE_LEFT_OUT"
        yield self.calibrated(), "CALIBRATION_MISMATCH"

    def neighbours(self, queries: Any, count: int) -> list[list[int]]:
        """Exact neighbours among the rows of the index."""
        return [
            [self.ids[i] for i in row] for row in bridge.exact_neighbours(array(queries), self.keys[self.ids], count)
        ]

    def calibrated(self) -> bool:
        """Whether recall and drift follow from the held-out queries."""
        held = self.index["calibration"]
        exact = self.neighbours(held["queries"], self.search["budget"])
        found = held["found"]
        whole = len(held["queries"]) == len(held["exact"]) == len(found) > 0 and all(held["exact"])
        if not whole or sets(held["exact"]) != sets(exact):
            return False
        measured = bridge.calibrate(
            exact,
            found,
            [0] * len(found),
            len(self.ids),
            array(self.index["sample"]["queries"]),
            array(held["queries"]),
        )
        return alike(held["recall"], measured.recall) and alike(held["drift"], measured.drift)

    def found(self) -> Iterator[Rule]:
        """No more candidates than asked for, or than were scored."""
        count = len(set(self.search["candidates"]))
        yield count <= self.search["budget"] and count <= self.search["visited"], "CANDIDATES_NOT_RANKED"

    def index_bytes(self) -> int:
        """Two ids an edge."""
        return 2 * ID_BYTES * len(self.index["edges"])


def sets(lists: Sequence[Sequence[int]]) -> list[list[int]]:
    """Lists without their order."""
    return [sorted(row) for row in lists]


class Squeezed(Method):
    """SqueezedAttention's section."""

    def level(self, name: str) -> squeezed.Level:
        """Fine or coarse."""
        return squeezed.Level(array(self.index[name]["centroids"]), self.index[name]["sizes"])

    def geometry(self) -> Iterator[Rule]:
        """Clusters, means, sizes, parents and thresholds are those of the fixed tokens."""
        index, fixed = self.index, self.index["fixed"]
        same = fixed["tokens_sha256"] == squeezed.tokens_digest([self.pool["tokens"][i] for i in self.ids])
        yield same and fixed["first_position"] == index["rows"][0], "FIXED_CONTEXT_CHANGED"
        labels, parents = index["labels"], index["parents"]
        clusters, groups = len(index["fine"]["sizes"]), len(index["coarse"]["sizes"])
        yield len(labels) == len(self.ids), "CLUSTERS_NOT_COVERING"
        yield all(0 <= label < clusters for label in labels), "LABEL_OUT_OF_RANGE"
        covering = len(parents) == clusters == len(index["fine"]["centroids"])
        yield covering and all(0 <= parent < groups for parent in parents), "HIERARCHY_NOT_COVERING"
        fine = squeezed.fine_level(self.keys[self.ids], labels, clusters)
        coarse = squeezed.coarse_level(fine, parents, groups)
        for name, level in (("fine", fine), ("coarse", coarse)):
            yield alike(index[name]["centroids"], level.centroids), "CENTROID_NOT_MEAN"
            yield index[name]["sizes"] == level.sizes, "CLUSTER_SIZE_MISMATCH"
        for threshold, level in zip(index["thresholds"], index["calibration"], strict=True):
            given = len(level["scores"]) > 0
            right = given and alike(threshold, squeezed.quantile(level["scores"], level["quantile"]))
            yield right, "THRESHOLD_MISMATCH"

    def proxies(self) -> Floats:
        """A row's score is its centroid's."""
        scores = array(self.index["fine"]["centroids"]) @ self.q
        return array(scores[np.asarray(self.index["labels"], np.int64)])

    def found(self) -> Iterator[Rule]:
        """Candidates are the rows of the clusters above both thresholds."""
        left = squeezed.descend(
            self.q[None, :],
            self.level("fine"),
            self.index["thresholds"],
            self.pool["scale"],
            coarse=self.level("coarse"),
            parents=self.index["parents"],
        ).fine
        wanted = {i for i, label in zip(self.ids, self.index["labels"], strict=True) if label in left}
        yield set(self.search["candidates"]) == wanted, "CLUSTER_NOT_SELECTED"

    def index_bytes(self) -> int:
        """Means and sizes of both levels, labels and parents."""
        fine, coarse = len(self.index["fine"]["sizes"]), len(self.index["coarse"]["sizes"])
        means = (fine + coarse) * (int(self.pool["channels"]) * ITEM_BYTES + ID_BYTES)
        return int(means + (len(self.ids) + fine) * ID_BYTES)


class Sampled(Method):
    """MagicPIG's section."""

    rule, claim = "importance", "estimate"

    def geometry(self) -> Iterator[Rule]:
        """Planes, mean and buckets belong together."""
        index = self.index
        shape = (index["tables"], index["bits"], self.pool["channels"])
        planes = index["projections"]
        right = len(planes) == shape[0] and all(len(table) == shape[1] for table in planes)
        yield right and all(len(plane) == shape[2] for table in planes for plane in table), "LSH_GEOMETRY_INVALID"
        keys = self.keys[self.ids]
        yield alike(index["key_mean"], keys.mean(axis=0)), "KEY_MEAN_STALE"
        yield len(index["codes"]) == len(self.ids), "CODES_NOT_COVERING"
        yield index["codes"] == magicpig.buckets(keys - keys.mean(axis=0), array(planes)), "HASH_CODE_MISMATCH"

    def found(self) -> Iterator[Rule]:
        """Candidates are the rows that match the query in enough tables."""
        yield self.search["min_tables"] == self.index["min_tables"], "COLLISION_RULE_CHANGED"
        own = magicpig.buckets(self.q[None, :], array(self.index["projections"]))[0]
        count = magicpig.matches(np.asarray(self.index["codes"], np.int64).T, np.asarray(own, np.int64))
        hits = {self.ids[i] for i in np.flatnonzero(count >= self.index["min_tables"])}
        yield set(self.search["candidates"]) <= hits, "SAMPLE_WITHOUT_COLLISION"
        yield set(self.search["candidates"]) == hits, "COLLISION_LEFT_OUT"

    def included(self) -> tuple[Floats, Floats]:
        """Probability and its logarithm of each gathered row."""
        keys = self.keys[self.gather["ids"]] - array(self.index["key_mean"])
        rule = magicpig.Tables(self.index["bits"], self.index["tables"], self.index["min_tables"])
        u, log_u = magicpig.inclusion(magicpig.cosines_of(self.q, keys), rule)
        return array(u), array(log_u)

    def chances(self) -> Iterator[Rule]:
        """Static rows have probability one, sampled rows that of the collision rule."""
        stated = self.reduce["probabilities"]
        yield all(u == 1 for u in stated["static"]), "STATIC_PROBABILITY_NOT_ONE"
        yield all(u > 0 for u in stated["sampled"]), "ZERO_PROBABILITY_SAMPLE"
        right = len(stated["static"]) == len(self.kept) and alike(stated["sampled"], self.included()[0])
        yield right, "PROBABILITY_MISMATCH"

    def logits(self) -> Floats:
        """Logits in the centred frame, less the logarithm of the probability."""
        shift = self.pool["scale"] * float(array(self.index["key_mean"]) @ self.q)
        return array(super().logits() - shift - np.concatenate([np.zeros(len(self.kept)), self.included()[1]]))

    def index_bytes(self) -> int:
        """Ranges and entries of the tables, planes, and the mean."""
        index, channels = self.index, int(self.pool["channels"])
        tables = index["tables"] * ((1 << index["bits"]) * RANGE_BYTES + len(self.ids) * ID_BYTES)
        return int(tables + (index["tables"] * index["bits"] + 1) * channels * ITEM_BYTES)


METHODS: tuple[tuple[str, type[Method]], ...] = (
    ("pq", Quantised),
    ("bridge", Bridged),
    ("squeezed", Squeezed),
    ("magicpig", Sampled),
)


def has_its_sizes(document: Json) -> bool:
    """Whether rows, queries and spans are as many and as wide as the pool says."""
    pool, graph = document["pool"], document["bridge"]["index"]
    queries = [document["query"]["q"], *graph["sample"]["queries"], *graph["calibration"]["queries"]]
    if not graph["sample"]["queries"] or {len(row) for row in [*pool["keys"], *queries]} != {pool["channels"]}:
        return False
    if {len(row) for row in pool["values"]} - {pool["value_channels"]}:
        return False
    spans = [document[name]["index"]["rows"] for name, _ in METHODS]
    right = all(len(pool[name]) == pool["frontier"] for name in ("keys", "values", "tokens"))
    return right and all(first < end for first, end in spans)


def rules(document: Json) -> Iterator[Rule]:
    """Every rule of a record in its order: whether it holds, and the reason if not."""
    yield has_its_sizes(document), "SHAPE_MISMATCH"
    for name, reason in FRAME:
        yield document["query"][name] == document["pool"][name], reason
    for name, method in METHODS:
        yield from method(document, document[name]).rules()
