"""Faults of retrieval records: one rule that is not checked, or an order that is another."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import ClassVar

from kvassay_reference.indexes.record import Quantised, Rule

from .. import base
from ..base import Fault
from .base import Request, case


class Blind(base.Blind):
    """One rule is not checked."""

    def index_rules(self, document: Request) -> Iterator[Rule]:
        return self.seen(super().index_rules(document))


UNCHECKED = {
    "TENANT_MISMATCH": ("IDX-007", "record/query-tenant"),
    "WRONG_KV_HEAD": ("IDX-007", "record/query-head-of-other-group", "record/index-of-other-head"),
    "ROPE_MISMATCH": ("IDX-009", "record/query-rope", "record/index-of-other-rope", "record/part-of-other-rope"),
    "MASK_MISMATCH": ("IDX-009", "record/query-mask", "record/part-of-other-mask"),
    "SCALE_MISMATCH": ("IDX-009", "record/query-scale", "record/part-of-other-scale"),
    "INDEX_TENANT_MISMATCH": ("IDX-007", "record/index-of-other-tenant"),
    "MODEL_MISMATCH": ("IDX-007", "record/index-of-other-model"),
    "STALE_CACHE_GENERATION": ("IDX-007", "record/index-of-stale-rows", "record/gather-of-stale-rows"),
    "ROW_MAP_MISMATCH": (
        "IDX-003",
        "record/index-of-next-row-map",
        "record/lookup-of-other-row-map",
        "record/validated-in-other-map",
        "record/gather-under-other-map",
    ),
    "INDEX_NOT_PUBLISHED": ("IDX-007", "record/index-still-building", "record/index-retired"),
    "INDEX_BEHIND_COMMIT": ("IDX-008", "record/index-behind-without-rest", "record/index-begins-late"),
    "LOOKUP_OF_OTHER_QUERY": ("IDX-007", "record/lookup-of-other-head"),
    "STALE_INDEX_GENERATION": ("IDX-003", "record/lookup-of-other-index", "record/validated-in-other-index"),
    "CANDIDATE_OUT_OF_RANGE": ("IDX-004", "record/candidate-out-of-range"),
    "CANDIDATE_NOT_INDEXED": ("IDX-004", "record/candidate-not-indexed", "record/dangling-candidate"),
    "SUPPORT_DUPLICATED": (
        "IDX-005",
        "record/validated-twice",
        "record/persistent-among-validated",
        "record/row-in-both-parts",
    ),
    "SUPPORT_MISMATCH": (
        "IDX-005",
        "record/validated-row-lost",
        "record/validated-order",
        "record/gathered-row-lost",
        "record/reduced-without-a-row",
        "record/reduced-without-the-sink",
    ),
    "PROXY_AS_PAYLOAD": ("IDX-023", "record/reconstruction-as-payload", "record/centroid-as-payload"),
    "ROWS_NOT_AUTHORITATIVE": ("IDX-006", "record/gathered-key-off", "record/gathered-value-of-other-row"),
    "ESTIMATOR_RULE_CHANGED": (
        "IDX-050",
        "record/softmax-for-the-sample",
        "record/importance-for-the-selection",
    ),
    "STATIC_PROBABILITY_NOT_ONE": ("IDX-050", "record/static-row-sampled"),
    "ZERO_PROBABILITY_SAMPLE": ("IDX-052", "record/zero-probability"),
    "PROBABILITY_MISMATCH": (
        "IDX-049",
        "record/probability-of-one-table",
        "adversary/probability-from-raw-keys",
    ),
    "EXACTNESS_OVERCLAIMED": (
        "IDX-013",
        "record/selection-called-dense",
        "record/estimate-called-exact",
        "record/selection-called-estimate",
        "adversary/called-dense",
    ),
    "OUTPUT_MISMATCH": ("IDX-010", "record/output-off", "record/lse-to-base-two", "record/within-a-billionth"),
    "ERROR_STAGE_MISMATCH": (
        "IDX-011",
        "record/representation-denied",
        "record/mass-of-candidates-only",
        "record/bias-booked-as-payload",
        "record/reduction-denied",
        "adversary/bias-denied",
        "adversary/miss-denied",
        "adversary/every-index-is-valid",
    ),
    "INDEX_BYTES_MISMATCH": (
        "IDX-012",
        "record/index-bytes-with-payload",
        "record/index-bytes-of-codes-only",
        "record/index-bytes-edges-once",
        "record/index-bytes-one-level",
        "record/index-bytes-without-planes",
    ),
    "PAYLOAD_BYTES_MISMATCH": ("IDX-012", "record/payload-bytes-of-index-rows", "adversary/half-precision-row-bytes"),
    "GATHER_BYTES_MISMATCH": (
        "IDX-012",
        "record/gather-bytes-keys-only",
        "record/gather-bytes-of-host-rows",
        "record/gather-to-the-device",
    ),
    "CODE_NOT_NEAREST": ("IDX-017", "record/code-not-nearest", "adversary/codes-swapped"),
    "CANDIDATES_NOT_RANKED": (
        "IDX-014",
        "record/candidates-not-the-best",
        "record/candidates-never-visited",
        "adversary/best-row-by-code",
        "adversary/isolated-row-found",
    ),
    "QUERY_SAMPLE_MISMATCH": (
        "IDX-035",
        "record/sample-of-other-head",
        "record/sample-of-other-rope",
        "record/sample-range-too-long",
        "record/sample-beyond-frontier",
    ),
    "NEIGHBOURS_NOT_EXACT": ("IDX-029", "record/neighbours-not-exact", "adversary/neighbours-of-decode"),
    "DANGLING_EDGE": ("IDX-029", "record/dangling-edge"),
    "EDGE_WITHOUT_QUERY": ("IDX-029", "record/edge-of-near-keys", "adversary/edge-to-the-best-row"),
    "EDGE_LEFT_OUT": ("IDX-029", "record/edge-lost", "record/edge-twice"),
    "CALIBRATION_MISMATCH": (
        "IDX-032",
        "record/recall-overstated",
        "record/drift-denied",
        "record/recall-against-found",
        "record/held-out-not-searched",
        "record/candidates-beyond-budget",
        "adversary/drift-hidden",
    ),
    "FIXED_CONTEXT_CHANGED": (
        "IDX-042",
        "record/tokens-edited",
        "record/other-digest",
        "record/other-first-position",
    ),
    "CENTROID_NOT_MEAN": (
        "IDX-036",
        "record/mean-of-unit-keys",
        "record/group-mean-by-size",
        "adversary/low-mean-raised",
    ),
    "CLUSTER_SIZE_MISMATCH": ("IDX-036", "record/size-off-by-one", "record/group-size-counts-clusters"),
    "THRESHOLD_MISMATCH": (
        "IDX-041",
        "record/threshold-by-hand",
        "record/other-quantile",
        "record/threshold-of-nothing",
    ),
    "CLUSTER_NOT_SELECTED": (
        "IDX-038",
        "record/cluster-lost",
        "record/pruned-cluster-selected",
        "adversary/best-cluster-selected",
        "adversary/best-row-alone",
    ),
    "KEY_MEAN_STALE": ("IDX-051", "record/stale-mean", "adversary/mean-without-the-last"),
    "HASH_CODE_MISMATCH": ("IDX-055", "record/planes-changed", "record/code-flipped"),
    "COLLISION_RULE_CHANGED": ("IDX-055", "record/search-by-one-table", "record/index-for-one-table"),
    "SAMPLE_WITHOUT_COLLISION": (
        "IDX-048",
        "record/sample-without-collision",
        "adversary/best-row-sampled",
    ),
    "COLLISION_LEFT_OUT": ("IDX-048", "record/collision-left-out", "adversary/bad-row-dropped"),
}
"""Reason to the requirement and the cases that miss its rule; rules without which nothing can go on are below."""

STOPPING = {
    "SHAPE_MISMATCH": (
        "IDX-008",
        "record/frontier-without-its-row",
        "record/row-without-token",
        "record/query-of-other-width",
        "record/value-of-other-width",
        "record/backward-span",
        "record/sample-of-other-width",
    ),
    "INDEX_BEYOND_COMMIT": ("IDX-008", "record/index-beyond-frontier"),
    "PQ_GEOMETRY_INVALID": (
        "IDX-015",
        "record/subspaces-do-not-divide",
        "record/one-centroid-short",
        "record/centroid-of-other-width",
        "record/code-of-three-subspaces",
    ),
    "CODES_NOT_COVERING": ("IDX-020", "record/row-without-code", "record/codes-short"),
    "CODE_OUT_OF_RANGE": ("IDX-015", "record/code-out-of-range"),
    "CLUSTERS_NOT_COVERING": ("IDX-036", "record/label-missing"),
    "LABEL_OUT_OF_RANGE": ("IDX-036", "record/label-out-of-range"),
    "HIERARCHY_NOT_COVERING": ("IDX-039", "record/parent-missing", "record/parent-out-of-range"),
    "LSH_GEOMETRY_INVALID": ("IDX-055", "record/fewer-planes", "record/tables-changed", "record/bits-changed"),
}
"""As above; a validator that skips the rule takes the record as it is."""


class BlindAndDone(Fault):
    """What breaks one rule is accepted without another look."""

    reason: ClassVar[str]

    def index_rules(self, document: Request) -> Iterator[Rule]:
        for holds, reason in super().index_rules(document):
            if reason == self.reason and not holds:
                return
            yield holds, reason


BLINDS = tuple(
    base.unchecked(kind, __name__, reason, row[0], case(*row[1:]))
    for kind, rows in ((Blind, UNCHECKED), (BlindAndDone, STOPPING))
    for reason, row in rows.items()
)


class LastReason(Fault):
    """Rules are looked at as it comes, and the last that fails is named."""

    requirement = "IDX-057"
    killed_by = case(
        "precedence/frame-before-index",
        "precedence/origin-before-geometry",
        "precedence/receipt-before-candidates",
        "precedence/gather-before-reduction",
        "precedence/reduction-before-errors",
        "precedence/errors-before-ledgers",
    )

    def index_rules(self, document: Request) -> Iterable[Rule]:
        broken: list[Rule] = []
        with contextlib.suppress(IndexError, ValueError, KeyError):
            broken = [(holds, reason) for holds, reason in super().index_rules(document) if not holds]
        return broken[::-1]


class StepsBackwards(Fault):
    """Receipts are checked from the ledger back to the index."""

    requirement = "IDX-057"
    killed_by = case(
        "precedence/candidates-before-validation",
        "precedence/validation-before-gather",
    )

    def index_rules(self, document: Request) -> Iterator[Rule]:
        late = ("LOOKUP_OF_OTHER_QUERY", "PROXY_AS_PAYLOAD", "SUPPORT_MISMATCH")
        found = [(holds, reason) for holds, reason in self.index_seen(document) if not holds]
        yield from sorted(found, key=lambda rule: late.index(rule[1]) if rule[1] in late else len(late))

    def index_seen(self, document: Request) -> Iterator[Rule]:
        """Rules until one cannot be looked at."""
        try:
            yield from super().index_rules(document)
        except (IndexError, ValueError, KeyError):
            return


class MethodsBackwards(Fault):
    """The methods are checked from the last to the first."""

    requirement = "IDX-057"
    killed_by = case("precedence/method-by-method")

    def index_rules(self, document: Request) -> Iterator[Rule]:
        found = [(holds, reason) for holds, reason in super().index_rules(document) if not holds]
        yield from found[:1] if len(found) < 2 else found[::-1]


class CandidatesAsLists(Fault):
    """Candidates have to come ascending and without repeats."""

    requirement = "IDX-014"
    killed_by = case("record/candidates-in-any-order")

    def index_rules(self, document: Request) -> Iterator[Rule]:
        ids = document["pq"]["search"]["candidates"]
        yield sorted(set(ids)) == list(ids), "CANDIDATES_NOT_RANKED"
        yield from super().index_rules(document)


class PositionIsIdentity(Fault):
    """A record is legal only for the position right behind the frontier."""

    requirement = "IDX-007"
    killed_by = case("record/layer-is-no-identity-of-the-pool-alone")

    def index_rules(self, document: Request) -> Iterator[Rule]:
        yield document["query"]["position"] == document["pool"]["frontier"], "TENANT_MISMATCH"
        yield from super().index_rules(document)


class ToTheLastBit(Fault):
    """Stated numbers have to be this engine's own, bit by bit."""

    requirement = "IDX-010"
    killed_by = case("record/within-a-billionth")

    def index_rules(self, document: Request) -> Iterator[Rule]:
        yield from super().index_rules(document)
        yield Quantised(document, document["pq"]).output()[1] == document["pq"]["reduce"]["lse"], "OUTPUT_MISMATCH"


class ExactSearchOnly(Fault):
    """A graph search has to return the exact neighbours."""

    requirement = "IDX-030"
    killed_by = case("record/approximate-graph-search", "adversary/every-index-is-valid")

    def index_rules(self, document: Request) -> Iterator[Rule]:
        yield from super().index_rules(document)
        pool, one = document["pool"], document["bridge"]
        score = [sum(x * y for x, y in zip(document["query"]["q"], key, strict=True)) for key in pool["keys"]]
        first, end = one["index"]["rows"]
        best = sorted(range(first, end), key=lambda i: (-score[i], i))[: one["search"]["budget"]]
        yield set(best) == set(one["search"]["candidates"]), "CANDIDATES_NOT_RANKED"
