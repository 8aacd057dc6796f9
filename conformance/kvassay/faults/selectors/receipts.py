"""Faults of a checker of receipts."""

from __future__ import annotations

import math
from collections.abc import Iterator

from kvassay_reference.selectors.receipts import Document, Rule

from .. import base
from ..base import Fault
from .base import case


class Blind(base.Blind):
    """One rule is not checked."""

    def selector_rules(self, method: str, document: Document) -> Iterator[Rule]:
        return self.seen(super().selector_rules(method, document))


UNCHECKED = {
    "HEAD_MAP_INVALID": (
        "SEL-058",
        "receipt/sparq-map-beyond-the-heads",
        "receipt/quest-map-beyond-the-heads",
        "receipt/infinigen-map-beyond-the-heads",
    ),
    "LAYER_OUT_OF_RANGE": (
        "SEL-058",
        "receipt/sparq-layer-beyond-the-model",
        "receipt/quest-layer-beyond-the-model",
        "receipt/infinigen-layer-beyond-the-model",
    ),
    "STALE_CHECKPOINT_GENERATION": (
        "SEL-058",
        "receipt/sparq-other-checkpoint",
        "receipt/quest-other-checkpoint",
        "receipt/infinigen-other-checkpoint",
    ),
    "STALE_CACHE_GENERATION": (
        "SEL-058",
        "receipt/sparq-other-history",
        "receipt/sparq-channel-layout-of-other-history",
        "receipt/sparq-row-layout-of-other-history",
        "receipt/sparq-mean-of-other-history",
        "receipt/quest-other-history",
        "receipt/quest-page-of-other-history",
        "receipt/infinigen-other-history",
    ),
    "STALE_SELECTOR_GENERATION": (
        "SEL-058",
        "receipt/sparq-other-selector",
        "receipt/quest-other-selector",
        "receipt/infinigen-other-selector",
    ),
    "RECEIPT_OF_OTHER_HEAD": (
        "SEL-058",
        "receipt/sparq-other-layer",
        "receipt/quest-other-layer",
        "receipt/infinigen-other-layer",
    ),
    "FRONTIER_BEHIND_COMMIT": (
        "SEL-058",
        "receipt/sparq-frontier-behind",
        "receipt/quest-frontier-behind",
        "receipt/infinigen-frontier-behind",
    ),
    "FRONTIER_BEYOND_COMMIT": (
        "SEL-058",
        "receipt/sparq-frontier-beyond",
        "receipt/quest-frontier-beyond",
        "receipt/infinigen-frontier-beyond",
    ),
    "EXACTNESS_OVERCLAIMED": (
        "SEL-009",
        "receipt/sparq-claims-exact",
        "receipt/quest-claims-exact",
        "receipt/infinigen-claims-exact",
    ),
    "CHANNELS_OUT_OF_RANGE": (
        "SEL-060",
        "receipt/sparq-no-channel",
        "receipt/sparq-five-channels-of-four",
        "receipt/sparq-channel-beyond",
        "receipt/infinigen-column-beyond",
    ),
    "LOCAL_WINDOW_EXCEEDS_BUDGET": (
        "SEL-060",
        "receipt/sparq-window-beyond-the-budget",
    ),
    "CHANNELS_COUNT_MISMATCH": (
        "SEL-060",
        "receipt/sparq-three-channels-read",
        "receipt/sparq-channels-of-one-head",
        "receipt/infinigen-one-column-less",
    ),
    "CHANNELS_NOT_ASCENDING": (
        "SEL-060",
        "receipt/sparq-channel-twice",
        "receipt/infinigen-column-twice",
    ),
    "LAYOUT_BEHIND_COMMIT": (
        "SEL-059",
        "receipt/sparq-channel-layout-behind",
        "receipt/sparq-row-layout-behind",
        "receipt/sparq-channel-layout-ahead",
    ),
    "MEAN_POPULATION_MISMATCH": (
        "SEL-059",
        "receipt/sparq-mean-without-the-current-row",
        "receipt/sparq-mean-of-the-selection",
    ),
    "CANDIDATE_OUT_OF_RANGE": (
        "SEL-060",
        "receipt/sparq-position-beyond",
        "receipt/infinigen-pool-row-beyond",
        "receipt/infinigen-row-beyond",
    ),
    "CANDIDATES_NOT_ASCENDING": (
        "SEL-060",
        "receipt/sparq-position-twice",
        "receipt/sparq-positions-out-of-order",
        "receipt/quest-page-twice",
        "receipt/infinigen-pool-row-twice",
        "receipt/infinigen-row-twice",
    ),
    "SHAPE_MISMATCH": (
        "SEL-060",
        "receipt/sparq-positions-of-one-head",
        "receipt/sparq-mass-of-heads",
        "receipt/quest-scores-of-fewer-rows",
        "receipt/quest-lists-by-query-head",
        "receipt/infinigen-one-count",
        "receipt/infinigen-rows-of-one-head",
    ),
    "SELECTION_COUNT_MISMATCH": (
        "SEL-060",
        "receipt/sparq-one-row-more",
        "receipt/sparq-one-row-less",
        "receipt/quest-one-page-more",
        "receipt/quest-one-page-less",
        "receipt/infinigen-nothing-passes",
        "receipt/infinigen-more-pass-than-are-held",
        "receipt/infinigen-other-count",
        "receipt/infinigen-one-head-fetches-more",
    ),
    "LOCAL_ROW_MISSING": (
        "SEL-060",
        "receipt/sparq-newest-row-left-out",
    ),
    "MASS_OUT_OF_RANGE": (
        "SEL-060",
        "receipt/sparq-mass-above-one",
        "receipt/sparq-mass-below-zero",
    ),
    "TRAFFIC_SCALARS_MISMATCH": (
        "SEL-060",
        "receipt/sparq-dense-without-the-append",
        "receipt/sparq-without-fixed-terms",
        "receipt/quest-no-metadata-counted",
        "receipt/quest-keys-alone-counted",
    ),
    "PAGES_NOT_CONTIGUOUS": (
        "SEL-061",
        "receipt/quest-page-missing",
        "receipt/quest-page-begins-late",
        "receipt/quest-page-of-one-row",
    ),
    "METADATA_BEHIND_COMMIT": (
        "SEL-059",
        "receipt/quest-metadata-behind",
        "receipt/quest-metadata-ahead",
    ),
    "BOUND_BELOW_SCORE": (
        "SEL-061",
        "receipt/quest-bound-below-a-row",
        "receipt/quest-bound-below-the-last-row",
    ),
    "PAGE_OUT_OF_RANGE": (
        "SEL-061",
        "receipt/quest-page-beyond",
    ),
    "DENSE_LAYER_SPARSE": (
        "SEL-061",
        "receipt/quest-dense-layer-sparse",
    ),
    "LAST_PAGE_MISSING": (
        "SEL-061",
        "receipt/quest-last-page-left-out",
    ),
    "SELECTION_NOT_BEST": (
        "SEL-061",
        "receipt/quest-not-the-best-page",
        "receipt/quest-best-of-the-first-head",
    ),
    "LAYER_NOT_ADJACENT": (
        "SEL-062",
        "receipt/infinigen-issued-two-layers-ahead",
        "receipt/infinigen-issued-in-its-own-layer",
    ),
    "SPECULATION_TOO_EARLY": (
        "SEL-062",
        "receipt/infinigen-speculates-too-early",
    ),
    "BASIS_NOT_ORTHOGONAL": (
        "SEL-062",
        "receipt/infinigen-basis-off",
    ),
    "STALE_BASIS_GENERATION": (
        "SEL-062",
        "receipt/infinigen-columns-of-another-basis",
        "receipt/infinigen-receipt-of-another-basis",
    ),
    "COLUMNS_NOT_SHARED": (
        "SEL-062",
        "receipt/infinigen-key-columns-differ",
    ),
    "STALE_COLUMNS_GENERATION": (
        "SEL-062",
        "receipt/infinigen-receipt-of-other-columns",
    ),
    "STALE_POOL_GENERATION": (
        "SEL-062",
        "receipt/infinigen-receipt-of-an-older-pool",
    ),
    "POOL_OVER_CAPACITY": (
        "SEL-062",
        "receipt/infinigen-pool-overflows",
    ),
    "COUNT_NOT_EQUALISED": (
        "SEL-062",
        "receipt/infinigen-mean-rounded-up",
    ),
    "CAP_NOT_REPORTED": (
        "SEL-062",
        "receipt/infinigen-cut-denied",
        "receipt/infinigen-cut-invented",
    ),
    "CANDIDATE_NOT_IN_POOL": (
        "SEL-062",
        "receipt/infinigen-evicted-row",
    ),
    "REDUCED_ROWS_ATTENDED": (
        "SEL-062",
        "receipt/infinigen-reduced-rows-attended",
    ),
    "READ_BEFORE_VISIBLE": (
        "SEL-062",
        "receipt/infinigen-read-before-visible",
    ),
}
"""Reason to the requirement and the cases that miss its rule."""


BLINDS = tuple(
    base.unchecked(Blind, __name__, reason, row[0], case(*row[1:]), what="No receipt")
    for reason, row in UNCHECKED.items()
)


class ClaimFirst(Fault):
    """The claim is looked at before everything else."""

    requirement = "SEL-007"
    killed_by = case("receipt/order-scalars-before-claim")

    def selector_rules(self, method: str, document: Document) -> Iterator[Rule]:
        rules = list(super().selector_rules(method, document))
        yield rules[-1]
        yield from rules[:-1]


class LastRuleIsTheReason(Fault):
    """The last broken rule is told, not the first."""

    requirement = "SEL-007"
    killed_by = case(
        "receipt/order-checkpoint-before-history",
        "receipt/order-frontier-before-settings",
        "receipt/order-range-before-order",
    )

    def selector_rules(self, method: str, document: Document) -> Iterator[Rule]:
        return reversed(list(super().selector_rules(method, document)))


class NeverExact(Fault):
    """No selector is ever taken to be exact."""

    requirement = "SEL-009"
    killed_by = case("receipt/quest-all-pages-is-exact", "receipt/sparq-all-rows-is-exact")

    def selector_rules(self, method: str, document: Document) -> Iterator[Rule]:
        yield from super().selector_rules(method, document)
        yield document["receipt"]["claim"] != "exact", "EXACTNESS_OVERCLAIMED"


class WindowAlwaysForced(Fault):
    """A receipt of SparQ must hold the newest row whatever its window."""

    requirement = "SEL-060"
    killed_by = case("receipt/sparq-no-window")

    def selector_rules(self, method: str, document: Document) -> Iterator[Rule]:
        yield from super().selector_rules(method, document)
        if method == "sparq":
            newest = document["source"]["frontier"] - 1
            yield all(newest in one for one in document["receipt"]["positions"]), "LOCAL_ROW_MISSING"


class LastPageAlwaysReserved(Fault):
    """A receipt of Quest must hold the last page whatever its policy."""

    requirement = "SEL-061"
    killed_by = case("receipt/quest-ranked-last-page")

    def selector_rules(self, method: str, document: Document) -> Iterator[Rule]:
        yield from super().selector_rules(method, document)
        if method == "quest":
            last = len(document["pages"]) - 1
            yield all(last in one for one in document["receipt"]["pages"]), "LAST_PAGE_MISSING"


class FullPagesOnly(Fault):
    """Every page of a receipt must be full."""

    requirement = "SEL-061"
    killed_by = case("receipt/quest-last-page-short")

    def selector_rules(self, method: str, document: Document) -> Iterator[Rule]:
        yield from super().selector_rules(method, document)
        if method == "quest":
            size = document["settings"]["page_rows"]
            yield all(page["rows"] == size for page in document["pages"]), "PAGES_NOT_CONTIGUOUS"


class MissingBoundsFilled(Fault):
    """Bounds that a receipt of Quest lacks are taken for infinite."""

    requirement = "SEL-061"
    killed_by = case("receipt/quest-bounds-of-fewer-pages", "receipt/quest-bounds-of-one-head-less")

    def selector_rules(self, method: str, document: Document) -> Iterator[Rule]:
        if method == "quest":
            receipt, pages = document["receipt"], len(document["pages"])
            rows = [*receipt["bounds"], *([[]] * len(document["source"]["kv_head_of"]))]
            bounds = [[*row, *([math.inf] * pages)][:pages] for row in rows[: len(document["source"]["kv_head_of"])]]
            document = {**document, "receipt": {**receipt, "bounds": bounds}}
        return iter(super().selector_rules(method, document))


class TiesUnresolved(Fault):
    """A page that ties with one left out is as good."""

    requirement = "SEL-061"
    killed_by = case("receipt/quest-tie-to-the-higher-page")

    def selector_rules(self, method: str, document: Document) -> Iterator[Rule]:
        bounds = document["receipt"].get("bounds", [[]])
        tied = method == "quest" and any(len(set(row)) < len(row) for row in bounds[:1])
        return (
            (holds or (tied and why == "SELECTION_NOT_BEST"), why)
            for holds, why in super().selector_rules(method, document)
        )


class TiesRefused(Fault):
    """A page that ties with one left out is refused."""

    requirement = "SEL-061"
    killed_by = case("receipt/quest-tie-to-the-lower-page")

    def selector_rules(self, method: str, document: Document) -> Iterator[Rule]:
        yield from super().selector_rules(method, document)
        if method == "quest":
            first = document["receipt"]["bounds"][0]
            chosen = [first[page] for page in document["receipt"]["pages"][0] if page < len(first) - 1]
            left = [bound for page, bound in enumerate(first[:-1]) if page not in document["receipt"]["pages"][0]]
            yield not set(chosen) & set(left), "SELECTION_NOT_BEST"


class EveryCutRefused(Fault):
    """A receipt that tells of a cut is refused."""

    requirement = "SEL-062"
    killed_by = case("receipt/infinigen-cut-and-told")

    def selector_rules(self, method: str, document: Document) -> Iterator[Rule]:
        yield from super().selector_rules(method, document)
        yield not document["receipt"].get("capped", False), "CAP_NOT_REPORTED"


class ExactlyTheEvent(Fault):
    """Attention must wait for the prefetch's own event and no later one."""

    requirement = "SEL-062"
    killed_by = case("receipt/infinigen-waits-for-a-later-event")

    def selector_rules(self, method: str, document: Document) -> Iterator[Rule]:
        yield from super().selector_rules(method, document)
        if method == "infinigen":
            receipt = document["receipt"]
            yield receipt["attention_waits_for"] == receipt["prefetch_event"], "READ_BEFORE_VISIBLE"
