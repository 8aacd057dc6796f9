"""Faults of Quest."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from kvassay_reference.selectors.quest import CODE as QUEST_CODE
from kvassay_reference.selectors.quest import HARNESS, KERNEL, Policy, Quest

from ..base import Fault
from .base import Array, Request, Result, case


class PaddedWithZeros(Fault):
    """Free slots of the last page hold zeros, which take part in its extrema."""

    requirement = "SEL-026"
    killed_by = case("quest-metadata/a-4", "quest-metadata/all-above-zero", "quest-metadata/b-5")

    class _Pages(Quest):
        def metadata(self, k: Array, page_rows: int) -> tuple[Array, Array]:
            missing = -len(k) % page_rows
            padded = np.concatenate([k, np.zeros((missing, *k.shape[1:]), k.dtype)])
            return super().metadata(padded, page_rows)

    selector_quest = _Pages()


class LastPageForgotten(Fault):
    """A page that is not full has no extrema."""

    requirement = "SEL-026"
    killed_by = case("quest-metadata/a-4", "quest-metadata/all-above-zero", "quest-metadata/b-5")

    class _Pages(Quest):
        def metadata(self, k: Array, page_rows: int) -> tuple[Array, Array]:
            whole = max(len(k) // page_rows, 1 if len(k) else 0) * page_rows
            return super().metadata(k[:whole], page_rows)

    selector_quest = _Pages()


class MetadataInFloat32(Fault):
    """Extrema are kept in float32, whatever the keys are."""

    requirement = "SEL-026"
    killed_by = case("quest-metadata/half-precision")

    class _Pages(Quest):
        def metadata(self, k: Array, page_rows: int) -> tuple[Array, Array]:
            low, high = super().metadata(k, page_rows)
            return low.astype(np.float32), high.astype(np.float32)

    selector_quest = _Pages()


class MetadataOfNothing(Fault):
    """No rows make one page of infinities."""

    requirement = "SEL-026"
    killed_by = case("quest-metadata/no-rows")

    class _Pages(Quest):
        def metadata(self, k: Array, page_rows: int) -> tuple[Array, Array]:
            if len(k):
                return super().metadata(k, page_rows)
            return np.full((1, *k.shape[1:]), np.inf, k.dtype), np.full((1, *k.shape[1:]), -np.inf, k.dtype)

    selector_quest = _Pages()


class ExtremaAcrossHeads(Fault):
    """All K/V heads share the extrema of a page."""

    requirement = "SEL-026"
    killed_by = case("quest-metadata/a-16", "quest-metadata/a-2", "quest-metadata/b-1")

    class _Pages(Quest):
        def metadata(self, k: Array, page_rows: int) -> tuple[Array, Array]:
            low, high = super().metadata(k, page_rows)
            shared = low.min(axis=1, keepdims=True), high.max(axis=1, keepdims=True)
            return np.broadcast_to(shared[0], low.shape).copy(), np.broadcast_to(shared[1], high.shape).copy()

    selector_quest = _Pages()


class FirstRowWidens(Fault):
    """The first row of a page widens what its slots held before."""

    requirement = "SEL-027"
    killed_by = case("quest-append/stale-slots-first-row-of-a-page", "quest-append/stale-slots-first-row-of-all")

    class _Pages(Quest):
        def append(
            self, minimum: Array, maximum: Array, rows: int, page_rows: int, k: Array
        ) -> tuple[Array, Array, int]:
            low, high, total = super().append(minimum, maximum, rows, page_rows, k)
            first, last = -(-rows // page_rows), min(len(low), len(minimum))
            low[first:last] = np.minimum(low[first:last], minimum[first:last])
            high[first:last] = np.maximum(high[first:last], maximum[first:last])
            return low, high, total

    selector_quest = _Pages()


class OpenPageKeepsItsExtrema(Fault):
    """Extrema are written when a page begins and not updated after."""

    requirement = "SEL-027"
    killed_by = case("quest-append/few-at-a-time", "quest-append/one-by-one", "quest-append/over-several-pages")

    class _Pages(Quest):
        def append(
            self, minimum: Array, maximum: Array, rows: int, page_rows: int, k: Array
        ) -> tuple[Array, Array, int]:
            low, high, total = super().append(minimum, maximum, rows, page_rows, k)
            used = -(-rows // page_rows)
            low[:used], high[:used] = minimum[:used], maximum[:used]
            return low, high, total

    selector_quest = _Pages()


class AppendCountsPages(Fault):
    """The rows after an append are rounded up to whole pages."""

    requirement = "SEL-027"
    killed_by = case("quest-append/nothing", "quest-append/over-several-pages", "quest-append/stale-slots-second-row")

    class _Pages(Quest):
        def append(
            self, minimum: Array, maximum: Array, rows: int, page_rows: int, k: Array
        ) -> tuple[Array, Array, int]:
            low, high, _ = super().append(minimum, maximum, rows, page_rows, k)
            return low, high, len(low) * page_rows

    selector_quest = _Pages()


class StaleSlotsReturned(Fault):
    """Pages beyond the last row stay in the metadata."""

    requirement = "SEL-027"
    killed_by = case(
        "quest-append/nothing", "quest-append/stale-slots-first-row-of-a-page", "quest-append/stale-slots-second-row"
    )

    class _Pages(Quest):
        def append(
            self, minimum: Array, maximum: Array, rows: int, page_rows: int, k: Array
        ) -> tuple[Array, Array, int]:
            low, high, total = super().append(minimum, maximum, rows, page_rows, k)
            return np.concatenate([low, minimum[len(low) :]]), np.concatenate([high, maximum[len(high) :]]), total

    selector_quest = _Pages()


class BoundsKept(Fault):
    """Bounds are kept by query and answer for all metadata."""

    requirement = "SEL-027"
    killed_by = case("quest-append/then-score")

    def open(self) -> None:
        super().open()
        self.known: dict[bytes, Result] = {}

    def quest_score(self, request: Request) -> Result:
        return self.known.setdefault(request["q"].tobytes(), super().quest_score(request))


class MaximumAlone(Fault):
    """The bound is the product with the maximum."""

    requirement = "SEL-028"
    killed_by = case("quest-bounds/a-2", "quest-bounds/b-5", "quest-bounds/large-extrema")

    class _Pages(Quest):
        def group_bounds(self, queries: Array, low: Array, high: Array) -> Array:
            return queries @ high.T

    selector_quest = _Pages()


class BoundScaled(Fault):
    """The bound is scaled like a score."""

    requirement = "SEL-028"
    killed_by = case("quest-bounds/a-2", "quest-bounds/b-1", "quest-bounds/large-extrema")

    class _Pages(Quest):
        def group_bounds(self, queries: Array, low: Array, high: Array) -> Array:
            return super().group_bounds(queries, low, high) / np.float32(math.sqrt(queries.shape[1]))

    selector_quest = _Pages()


class BoundByMagnitudes(Fault):
    """The bound takes the larger magnitude of both extrema: valid, and needlessly loose."""

    requirement = "SEL-028"
    killed_by = case("quest-bounds/a-2", "quest-bounds/b-1", "quest-bounds/b-5")

    class _Pages(Quest):
        def group_bounds(self, queries: Array, low: Array, high: Array) -> Array:
            return np.abs(queries) @ np.maximum(np.abs(low), np.abs(high)).T

    selector_quest = _Pages()


class BoundInHalfPrecision(Fault):
    """Bounds are rounded to float16."""

    requirement = "SEL-028"
    killed_by = case("quest-bounds/large-extrema", "quest-bounds/r-16", "quest-large/many-pages")

    class _Pages(Quest):
        def group_bounds(self, queries: Array, low: Array, high: Array) -> Array:
            return super().group_bounds(queries, low, high).astype(np.float16).astype(np.float32)

    selector_quest = _Pages()


class BoundOfTheCentre(Fault):
    """The bound is the product with the middle of the box."""

    requirement = "SEL-029"
    killed_by = case("quest-bounds/a-2-dominate", "quest-bounds/r-16-dominate", "quest-bounds/s-7-dominate")

    class _Pages(Quest):
        def group_bounds(self, queries: Array, low: Array, high: Array) -> Array:
            return queries @ ((low + high) / 2).T

    selector_quest = _Pages()


class BoundOfMostChannels(Fault):
    """The last channel does not count."""

    requirement = "SEL-029"
    killed_by = case("quest-bounds/a-2-dominate", "quest-bounds/a-4-dominate", "quest-bounds/b-1-dominate")

    class _Pages(Quest):
        def group_bounds(self, queries: Array, low: Array, high: Array) -> Array:
            return super().group_bounds(queries[:, :-1], low[:, :-1], high[:, :-1])

    selector_quest = _Pages()


class OnePageLess(Fault):
    """The budget is one page short."""

    requirement = "SEL-030"
    killed_by = case("quest-pages/one-short-of-all-6", "quest-pages/ranked-3", "quest-pages/ties-all-equal")

    class _Pages(Quest):
        def choose(self, bounds: Array, count: int, reserve: bool) -> Array:
            return super().choose(bounds, max(1, count - 1), reserve)

    selector_quest = _Pages()


class FirstPages(Fault):
    """The first pages are read, and not the best."""

    requirement = "SEL-030"
    killed_by = case("quest-pages/ranked-3", "quest-pages/ranked-one-1", "quest-pages/rows-permuted-page-by-page")

    class _Pages(Quest):
        def choose(self, bounds: Array, count: int, reserve: bool) -> Array:
            return super().choose(-np.arange(len(bounds), dtype=np.float32), count, reserve)

    selector_quest = _Pages()


class ZerosPadTheRanking(Fault):
    """Negative bounds rank as zero."""

    requirement = "SEL-030"
    killed_by = case("quest-pages/bounds-below-zero")

    class _Pages(Quest):
        def ranking(self, policy: Policy, bounds: Array) -> Array:
            return np.maximum(super().ranking(policy, bounds), 0)

    selector_quest = _Pages()


class AllPagesOneShort(Fault):
    """A budget of all pages reads all but the worst."""

    requirement = "SEL-030"
    killed_by = case("quest-pages/all-7", "quest-pages/more-than-all-12", "quest-pages/reserved-all-7")

    class _Pages(Quest):
        def budget(self, policy: Policy, pages: int) -> int:
            return min(super().budget(policy, pages), max(1, pages - 1))

    selector_quest = _Pages()


class ReservedOnTop(Fault):
    """The reserved page comes on top of the budget."""

    requirement = "SEL-031"
    killed_by = case("quest-floor/half-r", "quest-floor/half-s", "quest-pages/reserved-alone-1")

    class _Pages(Quest):
        def choose(self, bounds: Array, count: int, reserve: bool) -> Array:
            return super().choose(bounds, count + 1 if reserve else count, reserve)

    selector_quest = _Pages()


class ReservedIsRanked(Fault):
    """The reserved page ranks like all others."""

    requirement = "SEL-031"
    killed_by = case("quest-floor/half-r", "quest-floor/half-s", "quest-pages/reserved-alone-1")

    class _Pages(Quest):
        def reserves(self, policy: Policy) -> bool:
            return False

    selector_quest = _Pages()


class RankedIsReserved(Fault):
    """The last page is always reserved."""

    requirement = "SEL-030"
    killed_by = case("quest-pages/ranked-one-1", "quest-pages/rows-permuted-page-by-page", "quest-pages/ties-all-equal")

    class _Pages(Quest):
        def reserves(self, policy: Policy) -> bool:
            return True

    selector_quest = _Pages()


class PagesOfTheFirstHead(Fault):
    """A shared list goes by the first head of its group."""

    requirement = "SEL-032"
    killed_by = case(
        "quest-pages/shared-crossed-ranked",
        "quest-pages/shared-in-order-ranked",
        "quest-pages/shared-in-order-reserved",
    )

    class _Pages(Quest):
        def of_list(self, bounds: Array, readers: Sequence[int]) -> Array:
            return super().of_list(bounds, readers[:1])

    selector_quest = _Pages()


class PagesByTheSum(Fault):
    """A shared list goes by the sum of bounds."""

    requirement = "SEL-032"
    killed_by = case(
        "quest-pages/shared-crossed-ranked", "quest-pages/shared-crossed-reserved", "quest-pages/shared-in-order-ranked"
    )

    class _Pages(Quest):
        def of_list(self, bounds: Array, readers: Sequence[int]) -> Array:
            return np.sum(bounds[list(readers)], axis=0)

    selector_quest = _Pages()


class PagesWithoutTheirLastRow(Fault):
    """The last row of each page is not read."""

    requirement = "SEL-033"
    killed_by = case("quest-attend/all-pages", "quest-attend/own", "quest-attend/shared")

    class _Pages(Quest):
        def rows_of(self, pages: Array, page_rows: int, rows: int) -> Array:
            found = super().rows_of(pages, page_rows, rows)
            kept = found[found % page_rows != page_rows - 1]
            return kept if len(kept) else found

    selector_quest = _Pages()


class ShortPageSkipped(Fault):
    """A page that is not full is not read unless it is the only one."""

    requirement = "SEL-033"
    killed_by = case("quest-attend/all-pages", "quest-attend/own", "quest-attend/shared")

    class _Pages(Quest):
        def rows_of(self, pages: Array, page_rows: int, rows: int) -> Array:
            found = super().rows_of(pages, page_rows, rows)
            kept = found[found < rows // page_rows * page_rows]
            return kept if len(kept) else found

    selector_quest = _Pages()


class NeighbourRowRead(Fault):
    """The row after a page is read with it."""

    requirement = "SEL-033"
    killed_by = case("quest-attend/pages-of-one-row", "quest-attend/shared", "quest-pages/rows-permuted-page-by-page")

    class _Pages(Quest):
        def rows_of(self, pages: Array, page_rows: int, rows: int) -> Array:
            found = super().rows_of(pages, page_rows, rows)
            return np.unique(np.minimum(np.append(found, pages * page_rows + page_rows), rows - 1))

    selector_quest = _Pages()


class DenseLayersOneMore(Fault):
    """The layer after the dense ones is dense."""

    requirement = "SEL-034"
    killed_by = case("quest-dense/layer-2-of-2")

    class _Pages(Quest):
        def is_dense(self, policy: Policy) -> bool:
            return policy.dense_layers > 0 and policy.layer <= policy.dense_layers

    selector_quest = _Pages()


class NoDenseLayers(Fault):
    """No layer is dense."""

    requirement = "SEL-034"
    killed_by = case("quest-dense/layer-0-of-2", "quest-dense/layer-1-of-2", "quest-dense/layer-5-of-6")

    class _Pages(Quest):
        def is_dense(self, policy: Policy) -> bool:
            return False

    selector_quest = _Pages()


class AlwaysDense(Fault):
    """Every layer is dense, which no output over fewer pages shows."""

    requirement = "SEL-034"
    killed_by = case("quest-dense/layer-0-of-0", "quest-dense/layer-2-of-2")

    class _Pages(Quest):
        def is_dense(self, policy: Policy) -> bool:
            return True

    selector_quest = _Pages()


class MetadataFree(Fault):
    """Metadata cost nothing."""

    requirement = "SEL-035"
    killed_by = case(
        "quest-traffic/at-the-largest-budget", "quest-traffic/full-pages", "quest-traffic/pages-of-one-row"
    )

    class _Pages(Quest):
        def traffic(self, history_rows: int, width: int, page_rows: int, budget_pages: int) -> dict[str, Any]:
            found = super().traffic(history_rows, width, page_rows, budget_pages)
            fraction = found["selected_scalars"] / found["dense_scalars"]
            return {**found, "metadata_scalars": 0, "fraction": fraction}

    selector_quest = _Pages()


class FractionOfFullPages(Fault):
    """The share is 1/B + K/P also where pages are not full."""

    requirement = "SEL-035"
    killed_by = case(
        "quest-traffic/budget-beyond-the-history", "quest-traffic/last-page-not-full", "quest-traffic/one-page"
    )

    class _Pages(Quest):
        def traffic(self, history_rows: int, width: int, page_rows: int, budget_pages: int) -> dict[str, Any]:
            found = super().traffic(history_rows, width, page_rows, budget_pages)
            pages = -(-history_rows // page_rows)
            return {**found, "fraction": 1 / page_rows + budget_pages / pages}

    selector_quest = _Pages()


class BudgetAtBreakEven(Fault):
    """A budget that reads as much as dense attention counts as less."""

    requirement = "SEL-035"
    killed_by = case(
        "quest-traffic/at-the-largest-budget", "quest-traffic/full-pages", "quest-traffic/pages-of-one-row"
    )

    class _Pages(Quest):
        def traffic(self, history_rows: int, width: int, page_rows: int, budget_pages: int) -> dict[str, Any]:
            found = super().traffic(history_rows, width, page_rows, budget_pages)
            return {**found, "largest_budget_pages": found["largest_budget_pages"] + 1}

    selector_quest = _Pages()


class CodeRanksTheLastPage(Fault):
    """quest/code ranks the last page."""

    requirement = "SEL-036"
    killed_by = case("quest-variants/code-one", "quest-variants/code-one-short", "quest-variants/code-three")

    class _Pages(Quest):
        def reserves(self, policy: Policy) -> bool:
            return policy.rule != QUEST_CODE and super().reserves(policy)

    selector_quest = _Pages()


class KernelInFloat32(Fault):
    """quest/kernel ranks bounds as they are."""

    requirement = "SEL-037"
    killed_by = case("quest-variants/kernel-half-precision-order", "quest-variants/kernel-half-precision-tie")

    class _Pages(Quest):
        def ranking(self, policy: Policy, bounds: Array) -> Array:
            return bounds

    selector_quest = _Pages()


class KernelTakesAnything(Fault):
    """quest/kernel runs on groups and on a single page."""

    requirement = "SEL-037"
    killed_by = case("quest-variants/kernel-group", "quest-variants/kernel-single-page")

    class _Pages(Quest):
        def select(self, policy: Policy, bounds: Array, kv_head_of: Sequence[int], heads: int) -> list[Array]:
            rule = QUEST_CODE if policy.rule == KERNEL else policy.rule
            return super().select(replace(policy, rule=rule), self.ranking(policy, bounds), kv_head_of, heads)

    selector_quest = _Pages()


class KernelRanksTheLastPage(Fault):
    """quest/kernel ranks the last page."""

    requirement = "SEL-037"
    killed_by = case("quest-variants/kernel-half-precision-tie", "quest-variants/kernel-three")

    class _Pages(Quest):
        def reserves(self, policy: Policy) -> bool:
            return policy.rule != KERNEL and super().reserves(policy)

    selector_quest = _Pages()


class HarnessWithoutMinimum(Fault):
    """quest/harness reads a single page for a small budget."""

    requirement = "SEL-038"
    killed_by = case(
        "published/quest-eval-mask-t11-chunk4-budget4",
        "published/quest-eval-mask-t5-chunk4-budget4",
        "quest-variants/harness-two-pages-of-tokens",
    )

    class _Pages(Quest):
        def budget(self, policy: Policy, pages: int) -> int:
            if policy.rule == HARNESS:
                return min(max(1, policy.budget_tokens // policy.page_rows), pages)
            return super().budget(policy, pages)

    selector_quest = _Pages()


class HarnessRoundsUp(Fault):
    """quest/harness rounds its tokens up to pages."""

    requirement = "SEL-038"
    killed_by = case("quest-variants/harness-five-pages-of-tokens")

    class _Pages(Quest):
        def budget(self, policy: Policy, pages: int) -> int:
            if policy.rule == HARNESS:
                return min(max(3, -(-policy.budget_tokens // policy.page_rows)), pages)
            return super().budget(policy, pages)

    selector_quest = _Pages()


class ExtremaUncrossed(Fault):
    """Crossed extrema are swapped."""

    requirement = "SEL-039"
    killed_by = case("quest-bounds/crossed-extrema")

    class _Pages(Quest):
        def score(self, q: Array, minimum: Array, maximum: Array, kv_head_of: Sequence[int], accumulate: str) -> Array:
            if minimum.shape == maximum.shape and minimum.dtype == maximum.dtype:
                minimum, maximum = np.minimum(minimum, maximum), np.maximum(minimum, maximum)
            return super().score(q, minimum, maximum, kv_head_of, accumulate)

    selector_quest = _Pages()


class MetadataBehindTaken(Fault):
    """Rows without metadata are taken for covered."""

    requirement = "SEL-039"
    killed_by = case("quest-append/metadata-of-fewer-rows")

    class _Pages(Quest):
        def append(
            self, minimum: Array, maximum: Array, rows: int, page_rows: int, k: Array
        ) -> tuple[Array, Array, int]:
            rows = min(rows, len(minimum) * page_rows)
            return super().append(minimum, maximum, rows, page_rows, k)

    selector_quest = _Pages()
