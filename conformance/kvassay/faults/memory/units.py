"""Faults of InfLLM: regions, influence, lookup, recall, positions, caches, streams."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from kvassay_reference.memory import streams, units
from kvassay_reference.memory.rows import span_positions
from kvassay_reference.memory.units import Regions, UnitCache

from ..base import Fault, found, spoiled
from .base import Array, Request, Result, case

# --- regions -------------------------------------------------------------------------------------------------------


def from_row_zero(total: int, initial: int, local: int, size: int) -> Regions:
    """Units begin at row 0, whatever is initial."""
    made = units.regions(total, 0, local, size)
    return Regions((0, min(initial, made.local[0])), made.units, made.remainder, made.local)


def from_the_window(total: int, initial: int, local: int, size: int) -> Regions:
    """Units are counted back from the window."""
    made = units.regions(total, initial, local, size)
    rest = made.remainder[1] - made.remainder[0]
    shifted = tuple((first + rest, end + rest) for first, end in made.units)
    return Regions(made.initial, shifted, (made.initial[1], made.initial[1] + rest), made.local)


def window_less_one(total: int, initial: int, local: int, size: int) -> Regions:
    """The window is one row shorter, as if the row itself came on top."""
    return units.regions(total, initial, max(1, local - 1), size)


def initial_first(total: int, initial: int, local: int, size: int) -> Regions:
    """Initial rows are taken before there is more than the window holds."""
    made = units.regions(total, initial, local, size)
    return Regions((0, min(initial, total)), made.units, made.remainder, made.local)


def _cut(name: str, how: Any, *names: str) -> type[Fault]:
    return spoiled(Fault, __name__, name, how.__doc__, "MEM-008", case(*names), mem_unit_regions=staticmethod(how))


UnitsFromRowZero = _cut("UnitsFromRowZero", from_row_zero, "build/pool", "build/two-groups", "build/one-unit")
UnitsFromTheWindow = _cut("UnitsFromTheWindow", from_the_window, "build/one-unit-and-a-row", "build/two-groups")
WindowLessOne = _cut(
    "WindowLessOne", window_less_one, "build/just-the-window", "build/wider", "build/initial-rows-full"
)
InitialFirst = _cut("InitialFirst", initial_first, "build/just-the-window", "build/shorter-than-the-window")


class LastUnitShort(Fault):
    """The remainder is made a unit, shorter than the others."""

    requirement = "MEM-008"
    killed_by = case("build/one-row-short-of-a-unit", "build/one-unit-and-a-row")

    def infllm_build(self, request: Request) -> Result:
        made = super().infllm_build(request)
        first, end = made["remainder"]
        return made if first == end else {**made, "units": [*made["units"], [first, end]], "remainder": [end, end]}


class UnitsWhenBegun(Fault):
    """A unit is taken for whole when its last row is about to come."""

    requirement = "MEM-008"
    killed_by = case("build/one-row-short-of-a-unit", "build/one-unit-and-a-row")

    def infllm_build(self, request: Request) -> Result:
        made = super().infllm_build(request)
        first, end = made["remainder"]
        whole = end - first == request["unit_rows"] - 1 > 0
        return {**made, "units": [*made["units"], [first, end + 1]]} if whole else made


# --- influence and representatives ---------------------------------------------------------------------------------


class OwnQueryCounts(Fault):
    """The span begins at the row itself."""

    requirement = "MEM-009"
    killed_by = case("build/two-groups", "build/wider", "build/queries-that-change")

    @staticmethod
    def mem_unit_influence(q: Array, k: Array, heads: Sequence[int], span: int, rows: tuple[int, int]) -> Array:
        earlier = np.concatenate([q[:1], q[:-1]])
        return units.influence(earlier, k, heads, span, rows)


class SpanOneLonger(Fault):
    """The mean is over one row more, where there is one."""

    requirement = "MEM-009"
    killed_by = case("build/two-groups", "build/queries-that-change")

    @staticmethod
    def mem_unit_influence(q: Array, k: Array, heads: Sequence[int], span: int, rows: tuple[int, int]) -> Array:
        longer = np.concatenate([q, q[-1:]])
        return units.influence(longer, k, heads, span + 1, rows)


class SumOfInfluence(Fault):
    """The products are added and not averaged over the span."""

    requirement = "MEM-009"
    killed_by = case("build/pool", "build/two-groups")

    @staticmethod
    def mem_unit_influence(q: Array, k: Array, heads: Sequence[int], span: int, rows: tuple[int, int]) -> Array:
        return units.influence(q, k, heads, span, rows) * span


class BackwardInfluence(Fault):
    """Rows are weighed by the queries before them."""

    requirement = "MEM-009"
    killed_by = case("build/two-groups", "build/queries-that-change", "build/wider")

    @staticmethod
    def mem_unit_influence(q: Array, k: Array, heads: Sequence[int], span: int, rows: tuple[int, int]) -> Array:
        before = np.concatenate([q[:1]] * (span + 1) + [q])[: q.shape[0]]
        return units.influence(before, k, heads, span, rows)


class HeadsInOrder(Fault):
    """Query heads are taken to be grouped in the order of K/V heads, whatever the map says."""

    requirement = "MEM-009"
    killed_by = case("build/two-groups")

    @staticmethod
    def mem_unit_influence(q: Array, k: Array, heads: Sequence[int], span: int, rows: tuple[int, int]) -> Array:
        ordered = [h * k.shape[1] // q.shape[1] for h in range(q.shape[1])]
        return units.influence(q, k, ordered, span, rows)


class FirstHeadSpeaks(Fault):
    """One query head of a group is asked for all."""

    requirement = "MEM-009"
    killed_by = case("build/two-groups", "build/wider")

    @staticmethod
    def mem_unit_influence(q: Array, k: Array, heads: Sequence[int], span: int, rows: tuple[int, int]) -> Array:
        firsts = [heads.index(head) if head in heads else 0 for head in range(k.shape[1])]
        return units.influence(q[:, firsts], k, list(range(k.shape[1])), span, rows)


class HalfPrecisionInfluence(Fault):
    """The running sums of queries are kept in half precision."""

    requirement = "MEM-009"
    killed_by = case("build/wider")

    @staticmethod
    def mem_unit_influence(q: Array, k: Array, heads: Sequence[int], span: int, rows: tuple[int, int]) -> Array:
        return units.influence(q.astype(np.float16).astype(np.float32), k, heads, span, rows)


class NobodyIsNaN(Fault):
    """A head that nobody reads has a mean over nothing."""

    requirement = "MEM-009"
    killed_by = case("build/head-that-nobody-reads")

    @staticmethod
    def mem_unit_influence(q: Array, k: Array, heads: Sequence[int], span: int, rows: tuple[int, int]) -> Array:
        made = units.influence(q, k, heads, span, rows)
        empty = [head for head in range(k.shape[1]) if head not in heads]
        made[:, empty] = np.nan
        return made


class LargestByMagnitude(Fault):
    """Rows that repel queries count as influential."""

    requirement = "MEM-010"
    killed_by = case("build/strongest-not-largest", "build/two-groups")

    @staticmethod
    def mem_unit_representatives(scores: Array, starts: Sequence[int], count: int) -> Array:
        return units.representatives(np.abs(scores), starts, count)


class LaterRowsFirst(Fault):
    """Of rows of equal influence the later ones are taken."""

    requirement = "MEM-010"
    killed_by = case("build/equal-rows", "build/head-that-nobody-reads")

    @staticmethod
    def mem_unit_representatives(scores: Array, starts: Sequence[int], count: int) -> Array:
        size = scores.shape[-1]
        back = units.representatives(scores[..., ::-1], [0] * len(starts), count)
        return (size - 1 - back)[..., ::-1] + np.asarray(starts)[:, None, None]


class OneSurfaceForAllHeads(Fault):
    """The first head's representatives stand for every head."""

    requirement = "MEM-010"
    killed_by = case("build/two-groups", "build/wider")

    @staticmethod
    def mem_unit_representatives(scores: Array, starts: Sequence[int], count: int) -> Array:
        return units.representatives(np.broadcast_to(scores[:, :1], scores.shape), starts, count)


class RepresentativesByRank(Fault):
    """Representatives are kept in the order of their influence."""

    requirement = "MEM-010"
    killed_by = case("build/two-groups", "build/all-rows-represent")

    @staticmethod
    def mem_unit_representatives(scores: Array, starts: Sequence[int], count: int) -> Array:
        order = np.argsort(-scores, axis=-1, kind="stable")[..., :count]
        return order + np.asarray(starts)[:, None, None]


class WholeUnitPooled(Fault):
    """Any number of representatives is taken, as many as there are."""

    requirement = "MEM-010"
    killed_by = case("build/more-representatives-than-rows", "build/no-representative")

    def infllm_build(self, request: Request) -> Result:
        count = min(max(1, request["representatives"]), request["unit_rows"])
        return super().infllm_build({**request, "representatives": count})


class RowsMayDiffer(Fault):
    """Missing queries are filled with the last one."""

    requirement = "MEM-009"
    killed_by = case("build/rows-differ")

    def infllm_build(self, request: Request) -> Result:
        missing = request["k"].shape[0] - request["q"].shape[0]
        q = np.concatenate([request["q"], *([request["q"][-1:]] * missing)])
        return super().infllm_build({**request, "q": q})


class HeadMapWrapped(Fault):
    """A K/V head beyond the last one is taken modulo their number."""

    requirement = "MEM-009"
    killed_by = case("build/head-map")

    def infllm_build(self, request: Request) -> Result:
        heads = [head % request["k"].shape[1] for head in request["kv_head_of"]]
        return super().infllm_build({**request, "kv_head_of": heads})


# --- lookup --------------------------------------------------------------------------------------------------------


class LastRowAsks(Fault):
    """The last row of a chunk is taken for the chunk."""

    requirement = "MEM-011"
    killed_by = case("lookup/layer", "lookup/query-head", "lookup/more-heads")

    def mem_unit_scores(self, request: Request) -> Array:
        return super().mem_unit_scores({**request, "q": request["q"][-1:]})


class FirstRowAsks(Fault):
    """The first row of a chunk is taken for the chunk."""

    requirement = "MEM-011"
    killed_by = case("lookup/rows-disagree", "lookup/layer")

    def mem_unit_scores(self, request: Request) -> Array:
        return super().mem_unit_scores({**request, "q": request["q"][:1]})


class BestRepresentative(Fault):
    """A unit scores as its best representative."""

    requirement = "MEM-011"
    killed_by = case("lookup/representatives-disagree", "lookup/layer")

    def mem_unit_scores(self, request: Request) -> Array:
        table = request["representatives"]
        parts = [
            super(BestRepresentative, self).mem_unit_scores({**request, "representatives": table[:, i : i + 1]})
            for i in range(table.shape[1])
        ]
        return np.max(parts, axis=0)


class MeansForSums(Fault):
    """Scores are means, as in the published code."""

    requirement = "MEM-011"
    killed_by = case("lookup/layer", "lookup/query-head", "lookup/more-heads")

    def infllm_lookup(self, request: Request) -> Result:
        return super().infllm_lookup({**request, "rule": "infllm/code"})


class RepresentativesInOrder(Fault):
    """Query heads read K/V heads in order, whatever the map says."""

    requirement = "MEM-011"
    killed_by = case("lookup/layer", "lookup/query-head")

    def mem_unit_scores(self, request: Request) -> Array:
        query_heads, kv_heads = request["q"].shape[1], request["representatives"].shape[2]
        ordered = [h * kv_heads // query_heads for h in range(query_heads)]
        return super().mem_unit_scores({**request, "kv_head_of": ordered})


class HalfPrecisionSurface(Fault):
    """Representatives are kept in half precision to save memory."""

    requirement = "MEM-011"
    killed_by = case("lookup/layer", "lookup/more-heads")

    def mem_unit_scores(self, request: Request) -> Array:
        table = request["representatives"].astype(np.float16).astype(np.float32)
        return super().mem_unit_scores({**request, "representatives": table})


class MapOfAnyLength(Fault):
    """Query heads without an owner read the first K/V head."""

    requirement = "MEM-011"
    killed_by = case("lookup/head-map")

    def mem_unit_scores(self, request: Request) -> Array:
        missing = request["q"].shape[1] - len(request["kv_head_of"])
        return super().mem_unit_scores({**request, "kv_head_of": [*request["kv_head_of"], *[0] * missing]})


class ShorterChannels(Fault):
    """Products are over the channels that both have."""

    requirement = "MEM-011"
    killed_by = case("lookup/channels-differ")

    def mem_unit_scores(self, request: Request) -> Array:
        width = min(request["q"].shape[-1], request["representatives"].shape[-1])
        table = request["representatives"][..., :width]
        return super().mem_unit_scores({**request, "q": request["q"][..., :width], "representatives": table})


class LaterUnitsFirst(Fault):
    """Of units of equal score the later ones are taken."""

    requirement = "MEM-012"
    killed_by = case("lookup/tied-units")

    def mem_unit_choice(self, scores: Array, count: int) -> list[list[int]]:
        last = scores.shape[1] - 1
        return [sorted(last - unit for unit in line) for line in super().mem_unit_choice(scores[:, ::-1], count)]


class BySize(Fault):
    """Units are ranked by the size of their score."""

    requirement = "MEM-012"
    killed_by = case("lookup/pool", "lookup/layer")

    def mem_unit_choice(self, scores: Array, count: int) -> list[list[int]]:
        return super().mem_unit_choice(np.abs(scores), count)


class InOrderOfRank(Fault):
    """Chosen units are handed on in the order of their scores."""

    requirement = "MEM-012"
    killed_by = case("lookup/rank-is-not-order")

    def mem_unit_choice(self, scores: Array, count: int) -> list[list[int]]:
        order: list[list[int]] = np.argsort(-scores, axis=1, kind="stable")[:, :count].tolist()
        return order


class NeverAll(Fault):
    """One unit is always left out."""

    requirement = "MEM-012"
    killed_by = case("lookup/all", "lookup/more-than-all")

    def mem_unit_choice(self, scores: Array, count: int) -> list[list[int]]:
        return super().mem_unit_choice(scores, min(count, scores.shape[1] - 1))


class FirstUnitByDefault(Fault):
    """Where there is no unit the first one is named."""

    requirement = "MEM-012"
    killed_by = case("lookup/no-units-yet")

    def mem_unit_choice(self, scores: Array, count: int) -> list[list[int]]:
        return [line or [0] for line in super().mem_unit_choice(scores, count)] if count else [[]] * len(scores)


class AtLeastOne(Fault):
    """A wish for no unit is taken for one."""

    requirement = "MEM-012"
    killed_by = case("lookup/none")

    def mem_unit_choice(self, scores: Array, count: int) -> list[list[int]]:
        return super().mem_unit_choice(scores, max(count, 1))


class LayerListForAll(Fault):
    """Scores are added over heads although each head has a list of its own."""

    requirement = "MEM-012"
    killed_by = case("lookup/query-head")

    def mem_unit_choice(self, scores: Array, count: int) -> list[list[int]]:
        whole = np.broadcast_to(scores.sum(axis=0)[None, :], scores.shape)
        return super().mem_unit_choice(whole, count)


def network(scores: Sequence[float], count: int) -> list[int]:
    """A sorting network in which every stage compares in one direction."""
    keyed = [(-score, i) for i, score in enumerate(scores)]
    keyed += [(np.inf, -1)] * ((1 << max(0, len(keyed) - 1).bit_length()) - len(keyed))
    size = 2
    while size <= len(keyed):
        step = size // 2
        while step:
            for i in range(len(keyed)):
                if i & step == 0 and i + step < len(keyed) and keyed[i] > keyed[i + step]:
                    keyed[i], keyed[i + step] = keyed[i + step], keyed[i]
            step //= 2
        size *= 2
    return sorted(i for _, i in keyed[:count] if i >= 0)


class BitonicWithoutTurns(Fault):
    """A bitonic network that never turns: transcribed from ClusterKV, where 16 of 24 orders of four stay unsorted."""

    requirement = "MEM-012"
    killed_by = case("lookup/more-heads", "lookup/layer")

    def mem_unit_choice(self, scores: Array, count: int) -> list[list[int]]:
        return [network(line.tolist(), count) for line in scores]


# --- recall --------------------------------------------------------------------------------------------------------


class RepresentativesAsRows(Fault):
    """One row of each chosen unit is read in the place of the unit."""

    requirement = "MEM-001"
    killed_by = case("attend/pool")

    @staticmethod
    def mem_unit_support(found: Regions, chosen: Sequence[int]) -> list[int]:
        whole = units.support_of(found, chosen)
        skipped = {p for unit in chosen for p in range(found.units[unit][0] + 1, found.units[unit][1])}
        return [p for p in whole if p not in skipped]


class UnitWithoutLastRow(Fault):
    """The last row of a recalled unit is left out."""

    requirement = "MEM-012"
    killed_by = case("attend/pool", "attend/turned", "attend/wide-heads")

    @staticmethod
    def mem_unit_support(found: Regions, chosen: Sequence[int]) -> list[int]:
        lost = {found.units[unit][1] - 1 for unit in chosen}
        return [p for p in units.support_of(found, chosen) if p not in lost]


class FirstListForAll(Fault):
    """The first query head's units are read by all."""

    requirement = "MEM-012"
    killed_by = case("attend/one-list-a-head")

    def infllm_attend(self, request: Request) -> Result:
        lists = len(request["units"])
        made = super().infllm_attend({**request, "units": request["units"][:1]})
        return {**made, "support": made["support"] * lists}


class UnknownUnitsIgnored(Fault):
    """Units that do not exist are passed by."""

    requirement = "MEM-012"
    killed_by = case("attend/unit-beyond-the-last")

    @staticmethod
    def mem_unit_support(found: Regions, chosen: Sequence[int]) -> list[int]:
        return units.support_of(found, [unit for unit in chosen if unit < len(found.units)])


class RemainderForgotten(Fault):
    """Rows that are no whole unit yet are read by nobody."""

    requirement = "MEM-013"
    killed_by = case("attend/turned", "attend/no-units", "attend/units-out-of-order")

    @staticmethod
    def mem_unit_support(found: Regions, chosen: Sequence[int]) -> list[int]:
        return [p for p in units.support_of(found, chosen) if not found.remainder[0] <= p < found.remainder[1]]


class InitialForgotten(Fault):
    """Initial rows are read only while they are in the window."""

    requirement = "MEM-013"
    killed_by = case("attend/pool", "attend/turned")

    @staticmethod
    def mem_unit_support(found: Regions, chosen: Sequence[int]) -> list[int]:
        return [p for p in units.support_of(found, chosen) if p >= found.initial[1]]


class RemainderTwice(Fault):
    """The last row before the window is read with the window once more."""

    requirement = "MEM-013"
    killed_by = case("attend/turned", "attend/no-units")

    @staticmethod
    def mem_unit_support(found: Regions, chosen: Sequence[int]) -> list[int]:
        whole = units.support_of(found, chosen)
        return whole + ([found.local[0] - 1] if found.remainder[1] > found.remainder[0] else [])


class UnitsTwice(Fault):
    """A unit that is named twice is read twice."""

    requirement = "MEM-013"
    killed_by = case("attend/unit-twice")

    @staticmethod
    def mem_unit_support(found: Regions, chosen: Sequence[int]) -> list[int]:
        extra = [p for unit in chosen[1:] if unit in chosen[:1] for p in range(*found.units[unit])]
        return units.support_of(found, sorted(set(chosen))) + extra


class SupportByRank(Fault):
    """Units are read in the order in which they were named."""

    requirement = "MEM-013"
    killed_by = case("attend/units-out-of-order")

    @staticmethod
    def mem_unit_support(found: Regions, chosen: Sequence[int]) -> list[int]:
        spans = [found.initial, *(found.units[unit] for unit in chosen), found.remainder, found.local]
        units.support_of(found, chosen)
        return span_positions(spans)


def _placed(q: Array, k: Array, distances: Array, base: float) -> Array:
    turned = units.turned(q[None, :].astype(float), units.angles(distances, q.shape[-1], base, q))
    return np.sum(turned * k, axis=-1).astype(q.dtype)


class Placed(Fault):
    """Scores under other distances."""

    @staticmethod
    def distances(near: Array, local_rows: int) -> Array:
        """The distance of each row."""
        raise NotImplementedError

    def mem_unit_position_scores(self, q: Array, k: Array, local_rows: int, near: Array, base: float | None) -> Array:
        if base is None:
            return units.position_scores(q, k, local_rows, near, base)
        return _placed(q, k, self.distances(near, local_rows), base)


class EdgeOneFarther(Placed):
    """Rows beyond the window stand one step behind its edge."""

    requirement = "MEM-014"
    killed_by = case("attend/turned", "attend/last-row-of-the-window", "attend/window-of-one")

    @staticmethod
    def distances(near: Array, local_rows: int) -> Array:
        return np.where(near < 0, local_rows, near)


class DistantAtZero(Placed):
    """Rows beyond the window stand at the query itself."""

    requirement = "MEM-014"
    killed_by = case("attend/turned", "attend/other-base")

    @staticmethod
    def distances(near: Array, local_rows: int) -> Array:
        return np.where(near < 0, 0, near)


class CompactedRanks(Placed):
    """Recalled rows stand at their rank among what is read."""

    requirement = "MEM-014"
    killed_by = case("attend/turned", "attend/all-units", "attend/wide-heads")

    @staticmethod
    def distances(near: Array, local_rows: int) -> Array:
        return near.shape[0] - 1 - np.arange(near.shape[0])


class WindowAtTheEdge(Placed):
    """Rows of the window stand at its edge, too."""

    requirement = "MEM-014"
    killed_by = case("attend/turned", "attend/window-not-full")

    @staticmethod
    def distances(near: Array, local_rows: int) -> Array:
        return np.full_like(near, local_rows - 1)


class NeighbouringPairs(Fault):
    """Channels turn in neighbouring pairs."""

    requirement = "MEM-014"
    killed_by = case("attend/turned", "attend/wide-heads")

    @staticmethod
    def mem_unit_position_scores(q: Array, k: Array, local_rows: int, near: Array, base: float | None) -> Array:
        order = [*range(0, q.shape[-1], 2), *range(1, q.shape[-1], 2)]
        return units.position_scores(q[order], k[:, order], local_rows, near, base)


class CoarseAngles(Fault):
    """Inverse frequencies are kept in bfloat16."""

    requirement = "MEM-014"
    killed_by = case("attend/turned", "attend/wide-heads")

    @staticmethod
    def mem_unit_position_scores(q: Array, k: Array, local_rows: int, near: Array, base: float | None) -> Array:
        return units.position_scores(q, k, local_rows, near, None if base is None else base * (1 + 2.0**-9))


class FixedBase(Fault):
    """Every checkpoint is taken to turn by base 10,000."""

    requirement = "MEM-014"
    killed_by = case("attend/other-base")

    def infllm_attend(self, request: Request) -> Result:
        base = None if request["rope_base"] is None else 10000.0
        return super().infllm_attend({**request, "rope_base": base})


class OddChannelStays(Fault):
    """The middle channel of an odd number is left as it is."""

    requirement = "MEM-014"
    killed_by = case("attend/odd-channels")

    def infllm_attend(self, request: Request) -> Result:
        if request["q"].shape[-1] % 2:
            return super().infllm_attend({**request, "rope_base": None})
        return super().infllm_attend(request)


# --- caches --------------------------------------------------------------------------------------------------------


class Cached(Fault):
    """Another cache of units."""

    cache_type: ClassVar[type[UnitCache]]

    def mem_unit_cache(self, request: Request) -> UnitCache:
        forget = request.get("rule") == "infllm/code"
        return self.cache_type(request["capacity"], request["policy"], request["decay"], forget=forget)


class FirstInFirstOut(Cached):
    """A hit does not refresh a unit."""

    requirement = "MEM-016"
    killed_by = case("cache/least-recently-used")

    class Spoilt(UnitCache):
        """The cache that is wrong."""

        def touch(self, wanted: Sequence[int], scores: Sequence[float]) -> None:
            before = {unit: self.values[unit] for unit in wanted if self.values[unit] > 0}
            super().touch(wanted, scores)
            if self.policy == "lru":
                self.values |= before

    cache_type = Spoilt


class SelectedMayGo(Cached):
    """The oldest unit goes although it is selected, and is loaded again."""

    requirement = "MEM-016"
    killed_by = case("cache/selected-stay")

    class Spoilt(UnitCache):
        """The cache that is wrong."""

        def victims(self, wanted: Sequence[int], count: int) -> list[int]:
            return sorted(self.values, key=lambda unit: (self.values[unit], unit))[:count]

        def touch(self, wanted: Sequence[int], scores: Sequence[float]) -> None:
            self.values |= {unit: 0.0 for unit in wanted if unit not in self.values}
            super().touch(wanted, scores)

    cache_type = Spoilt


class HighestFirst(Cached):
    """Of units of one step the highest goes first."""

    requirement = "MEM-016"
    killed_by = case("cache/same-step-ties")

    class Spoilt(UnitCache):
        """The cache that is wrong."""

        def victims(self, wanted: Sequence[int], count: int) -> list[int]:
            spare = [unit for unit in self.values if unit not in wanted]
            return sorted(spare, key=lambda unit: (self.values[unit], -unit))[:count]

    cache_type = Spoilt


class FlushWhenFull(Cached):
    """A cache that is full is emptied."""

    requirement = "MEM-016"
    killed_by = case("cache/least-recently-used", "cache/same-step-ties")

    class Spoilt(UnitCache):
        """The cache that is wrong."""

        def victims(self, wanted: Sequence[int], count: int) -> list[int]:
            return super().victims(wanted, len(self.values) if count else 0)

    cache_type = Spoilt


class IdleStepsFlush(Cached):
    """A step that selects nothing empties the cache."""

    requirement = "MEM-016"
    killed_by = case("cache/empty-selection")

    class Spoilt(UnitCache):
        """The cache that is wrong."""

        def touch(self, wanted: Sequence[int], scores: Sequence[float]) -> None:
            super().touch(wanted, scores)
            self.values = self.values if wanted else {}

    cache_type = Spoilt


class OneTooMany(Cached):
    """The cache holds one unit more than it has room for."""

    requirement = "MEM-016"
    killed_by = case("cache/least-recently-used", "cache/too-small")

    def mem_unit_cache(self, request: Request) -> UnitCache:
        return UnitCache(request["capacity"] + 1, request["policy"], request["decay"])


class TwiceIsOnce(Cached):
    """A unit that is named twice is taken once."""

    requirement = "MEM-016"
    killed_by = case("cache/unit-twice")

    def infllm_cache(self, request: Request) -> Result:
        steps = [{**one, "units": list(dict.fromkeys(one["units"]))} for one in request["steps"]]
        return Fault.infllm_cache(self, {**request, "steps": steps})

    def mem_unit_cache(self, request: Request) -> UnitCache:
        return Fault.mem_unit_cache(self, request)


class NoDecay(Cached):
    """Scores are gathered and never decay."""

    requirement = "MEM-017"
    killed_by = case("cache/old-glory", "cache/scores-decay")

    def mem_unit_cache(self, request: Request) -> UnitCache:
        return UnitCache(request["capacity"], request["policy"], 1.0, forget=request.get("rule") == "infllm/code")


class DecayAfterwards(Cached):
    """What was just added decays, too."""

    requirement = "MEM-017"
    killed_by = case("cache/scores-decay", "cache/score-not-recency")

    class Spoilt(UnitCache):
        """The cache that is wrong."""

        def touch(self, wanted: Sequence[int], scores: Sequence[float]) -> None:
            super().touch(wanted, scores)
            if self.policy == "score":
                self.values |= {unit: self.values[unit] * self.decay for unit in wanted}

    cache_type = Spoilt


class ScoresForgotten(Cached):
    """A selection starts a unit's score anew, as in the published code."""

    requirement = "MEM-017"
    killed_by = case("cache/score-gathered", "cache/scores-decay")

    def mem_unit_cache(self, request: Request) -> UnitCache:
        return UnitCache(request["capacity"], request["policy"], request["decay"], forget=True)


class AlwaysRecency(Cached):
    """The policy of scores is taken for recency."""

    requirement = "MEM-017"
    killed_by = case("cache/score-not-recency", "cache/score-gathered")

    def mem_unit_cache(self, request: Request) -> UnitCache:
        return UnitCache(request["capacity"], "lru", request["decay"])


# --- streams -------------------------------------------------------------------------------------------------------


class Streamed(Fault):
    """Another stream of units."""


class RemainderSeenByAll(Streamed):
    """Every row of a step sees all of the remainder: measured in InfLLM, where rows of the window are read twice."""

    requirement = "MEM-018"
    killed_by = case("stream/steps-of-three", "stream/longer", "stream/without-positions")

    class Spoilt(streams.UnitStream):
        """The stream that is wrong."""

        def attend(self, head: int, begin: int, end: int, near: int, close: Any, recalled: Sequence[int]) -> Any:
            kept = self.geometry
            self.geometry = streams.Geometry(
                kept.initial_rows,
                kept.local_rows,
                kept.step_rows,
                kept.chunks,
                kept.representatives,
                kept.rope_base,
                True,
            )
            made = super().attend(head, begin, end, near, close, recalled)
            self.geometry = kept
            return made

    mem_unit_stream = Spoilt


class RemainderSeenByNone(Streamed):
    """The remainder waits for its unit and is not read."""

    requirement = "MEM-018"
    killed_by = case("stream/steps-of-three", "stream/row-by-row", "stream/longer")

    class Spoilt(streams.UnitStream):
        """The stream that is wrong."""

        def attend(self, head: int, begin: int, end: int, near: int, close: Any, recalled: Sequence[int]) -> Any:
            start, self.start = self.start, end
            made = super().attend(head, begin, end, near, close, recalled)
            self.start = start
            return made

    mem_unit_stream = Spoilt


class InitialAtOnce(Streamed):
    """Initial rows are set apart before they have left the window."""

    requirement = "MEM-018"
    killed_by = case("stream/shorter-than-the-window")

    class Spoilt(streams.UnitStream):
        """The stream that is wrong."""

        def run(self) -> Any:
            self.initial = min(self.geometry.initial_rows, self.k.shape[0])
            self.start = self.initial
            return super().run()

    mem_unit_stream = Spoilt


class SealedEarly(Streamed):
    """Units are sealed while their last row is in the window."""

    requirement = "MEM-018"
    killed_by = case("stream/row-by-row", "stream/longer")

    class Spoilt(streams.UnitStream):
        """The stream that is wrong."""

        def seal(self) -> None:
            while self.initial == self.geometry.initial_rows and (
                self.done - self.start >= self.geometry.local_rows + self.unit_rows - 1 and self.done > self.start
            ):
                if self.start + self.unit_rows + self.geometry.local_rows > self.done + 1:
                    break
                self.add(self.start, self.start + self.unit_rows)

        def use(self, first: int, end: int) -> Any:
            return self.mass[:, first:end]

    mem_unit_stream = Spoilt


class OneCacheForAllHeads(Streamed):
    """Query heads with lists of their own share one cache."""

    requirement = "MEM-018"
    killed_by = case("stream/by-query-head")

    class Spoilt(streams.UnitStream):
        """The stream that is wrong."""

        def recall(self, begin: int, end: int) -> list[list[int]]:
            chosen = super().recall(begin, end)
            self.caches = [self.caches[0]] * len(self.caches)
            return chosen

    mem_unit_stream = Spoilt


class InfluenceByMass(Streamed):
    """Representatives are the rows of the largest softmax mass, as in the published code."""

    requirement = "MEM-018"
    killed_by = case("stream/steps-of-three", "stream/longer")

    class Spoilt(streams.UnitStream):
        """The stream that is wrong."""

        def use(self, first: int, end: int) -> Any:
            return self.mass[:, first:end]

    mem_unit_stream = Spoilt


class StepsOfAnySize(Streamed):
    """Steps may be longer than the window, and need not add up."""

    requirement = "MEM-018"
    killed_by = case("stream/step-longer-than-window")

    def infllm_stream(self, request: Request) -> Result:
        size = min(request["step_rows"], request["local_rows"])
        return super().infllm_stream({**request, "step_rows": size})


class MissingRowsTakenAsStep(Streamed):
    """Rows that no chunk names come as one more chunk."""

    requirement = "MEM-018"
    killed_by = case("stream/chunks-do-not-add-up")

    def infllm_stream(self, request: Request) -> Result:
        rest = request["q"].shape[0] - sum(request["chunks"])
        return super().infllm_stream({**request, "chunks": [*request["chunks"], *([rest] if rest > 0 else [])]})


FAULTS = found(globals())
