"""Faults of EM-LLM: thresholds, graphs, refinement, sealing, summaries, retrieval, and the published stream."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
from kvassay_reference.memory import events, streams
from kvassay_reference.memory.events import Marked, Metric, Refined, Sealed, Sides

from ...adapters.base import Rejected
from ..base import Fault, found
from .base import Array, Request, Result, case

# --- boundaries ----------------------------------------------------------------------------------------------------


class OwnSurpriseCounts(Fault):
    """The row's own surprise is in the window of its threshold."""

    requirement = "MEM-019"
    killed_by = case("boundaries/row-itself-is-left-out", "boundaries/pool", "boundaries/longer")

    def mem_event_marks(self, request: Request) -> Marked:
        surprise = request["surprise"]
        made = super().mem_event_marks({**request, "surprise": np.concatenate([surprise, surprise[-1:]])})
        limits = made.thresholds[1:]
        above = [t for t, limit in enumerate(limits) if limit is not None and surprise[t] > limit]
        return Marked(limits, above)


class OtherDivisor(Fault):
    """The deviation's divisor is always the count."""

    requirement = "MEM-019"
    killed_by = case("boundaries/pool", "boundaries/longer")

    def mem_event_marks(self, request: Request) -> Marked:
        return super().mem_event_marks({**request, "ddof": 0})


class UnbiasedAlways(Fault):
    """The deviation's divisor is always the count less one, as the library's default has it."""

    requirement = "MEM-019"
    killed_by = case("boundaries/population-deviation", "boundaries/longer-insensitive")

    def mem_event_marks(self, request: Request) -> Marked:
        return super().mem_event_marks({**request, "ddof": 1})


class ThresholdOfTheChunk(Fault):
    """One threshold for all rows, as in the published code."""

    requirement = "MEM-019"
    killed_by = case("boundaries/pool", "boundaries/window-slides", "boundaries/longer")

    def mem_event_marks(self, request: Request) -> Marked:
        return super().mem_event_marks({**request, "rule": "emllm/chunk"})


class WindowOneShort(Fault):
    """The window is one row shorter."""

    requirement = "MEM-019"
    killed_by = case("boundaries/pool", "boundaries/longer")

    def mem_event_marks(self, request: Request) -> Marked:
        short = max(request["window"] - 1, 1 + request["ddof"])
        return super().mem_event_marks({**request, "window": short})


class AllThatCameBefore(Fault):
    """Every row before counts, however long ago."""

    requirement = "MEM-019"
    killed_by = case("boundaries/window-slides", "boundaries/longer")

    def mem_event_marks(self, request: Request) -> Marked:
        whole = max(request["window"], request["surprise"].shape[0])
        return super().mem_event_marks({**request, "window": whole})


class GammaAsSize(Fault):
    """Gamma is taken without its sign."""

    requirement = "MEM-019"
    killed_by = case("boundaries/negative-gamma")

    def mem_event_marks(self, request: Request) -> Marked:
        return super().mem_event_marks({**request, "gamma": abs(request["gamma"])})


class ShortWindowsWidened(Fault):
    """A window without a deviation is widened."""

    requirement = "MEM-019"
    killed_by = case("boundaries/window-too-short")

    def mem_event_marks(self, request: Request) -> Marked:
        return super().mem_event_marks({**request, "window": max(request["window"], 1 + request["ddof"])})


class ThresholdInHalf(Fault):
    """Surprises are kept in half precision."""

    requirement = "MEM-019"
    killed_by = case("boundaries/longer", "boundaries/longer-insensitive")

    def mem_event_marks(self, request: Request) -> Marked:
        return super().mem_event_marks({**request, "surprise": request["surprise"].astype(np.float16)})


class AtTheThreshold(Fault):
    """A row that equals its threshold is a boundary."""

    requirement = "MEM-020"
    killed_by = case("boundaries/equal-is-not-above")

    def mem_event_marks(self, request: Request) -> Marked:
        made = super().mem_event_marks(request)
        values = request["surprise"].tolist()
        at = [t for t, limit in enumerate(made.thresholds) if limit is not None and values[t] >= limit]
        return Marked(made.thresholds, at)


class NoDeviationIsZero(Fault):
    """A row with one predecessor has that as its threshold."""

    requirement = "MEM-020"
    killed_by = case("boundaries/no-early-threshold")

    def mem_event_marks(self, request: Request) -> Marked:
        made = super().mem_event_marks(request)
        values = request["surprise"].tolist()
        early = [1] if len(values) > 1 and made.thresholds[1] is None and values[1] > values[0] else []
        return Marked(made.thresholds, sorted({*early, *made.boundaries}))


class FirstRowBegins(Fault):
    """Row 0 is always a boundary."""

    requirement = "MEM-020"
    killed_by = case("boundaries/pool", "boundaries/nothing")

    def mem_event_marks(self, request: Request) -> Marked:
        made = super().mem_event_marks(request)
        return Marked(made.thresholds, sorted({0, *made.boundaries}))


class InfinityIsASurprise(Fault):
    """An infinite surprise is a number like any other."""

    requirement = "MEM-020"
    killed_by = case("boundaries/infinite-surprise")

    def mem_event_marks(self, request: Request) -> Marked:
        finite = np.nan_to_num(request["surprise"], posinf=1e30)
        return super().mem_event_marks({**request, "surprise": finite})


# --- graphs and metrics --------------------------------------------------------------------------------------------


class ClippedAfterTheSum(Fault):
    """Products are added over heads before they are clipped."""

    requirement = "MEM-021"
    killed_by = case("graph/heads-clipped")

    def mem_event_graph(self, request: Request) -> Array:
        raw = super().mem_event_graph({**request, "similarity": "raw"})
        return np.maximum(raw, 0) if request["similarity"] == "clipped" else raw


class NeverClipped(Fault):
    """Negative products count, as in the published code."""

    requirement = "MEM-021"
    killed_by = case("graph/clipped", "graph/heads-clipped")

    def mem_event_graph(self, request: Request) -> Array:
        return super().mem_event_graph({**request, "similarity": "raw"})


class AlwaysClipped(Fault):
    """Raw products are clipped, too."""

    requirement = "MEM-021"
    killed_by = case("graph/raw", "graph/heads-raw")

    def mem_event_graph(self, request: Request) -> Array:
        return super().mem_event_graph({**request, "similarity": "clipped"})


class FirstHeadsGraph(Fault):
    """One head's keys make the graph."""

    requirement = "MEM-021"
    killed_by = case("graph/heads-clipped", "graph/heads-raw")

    def mem_event_graph(self, request: Request) -> Array:
        k = request["k"]
        return super().mem_event_graph({**request, "k": k[:, :1] if k.ndim == 3 else k})


class CosineGraph(Fault):
    """Keys are brought to length one first."""

    requirement = "MEM-021"
    killed_by = case("graph/clipped", "graph/heads-clipped")

    def mem_event_graph(self, request: Request) -> Array:
        k = request["k"]
        length = np.linalg.norm(k, axis=-1, keepdims=True)
        return super().mem_event_graph({**request, "k": k / np.where(length > 0, length, 1)})


class HalfPrecisionGraph(Fault):
    """Keys are rounded to half precision."""

    requirement = "MEM-021"
    killed_by = case("graph/heads-clipped", "graph/heads-raw")

    def mem_event_graph(self, request: Request) -> Array:
        return super().mem_event_graph({**request, "k": request["k"].astype(np.float16).astype(np.float32)})


class Metrics(Fault):
    """Another metric under the old name."""

    spoilt: ClassVar[Mapping[str, Metric]]

    @property
    def mem_metrics(self) -> Mapping[str, Metric]:  # type: ignore[override]
        return {**events.METRICS, **self.spoilt}


def graph_cases(metric: str, *more: str) -> tuple[str, ...]:
    """The cases that show the numbers of one metric."""
    return case(f"quality/{metric}-cut-3", f"quality/{metric}-of-keys", *(f"quality/{metric}-{one}" for one in more))


class HalfModularity(Metrics):
    """Half of the standard value: measured in EM-LLM."""

    requirement = "MEM-022"
    killed_by = graph_cases("modularity", "cut-1", "cut-6", "lopsided")
    spoilt: ClassVar[Mapping[str, Metric]] = {"modularity": events.half_modularity}


class NoExpectation(Metrics):
    """Weight within the sides, without what chance would put there."""

    requirement = "MEM-022"
    killed_by = graph_cases("modularity", "lopsided")
    spoilt: ClassVar[Mapping[str, Metric]] = {"modularity": lambda found: (found.left + found.right) / found.total}


class RowsForColumns(Metrics):
    """Expectation from row sums alone."""

    requirement = "MEM-022"
    killed_by = case("quality/modularity-lopsided", "quality/modularity-of-keys")
    spoilt: ClassVar[Mapping[str, Metric]] = {
        "modularity": lambda found: events.modularity(found._replace(left_in=found.left_out))
    }


class NothingIsZero(Fault):
    """A metric that is not defined is zero."""

    requirement = "MEM-022"
    killed_by = case(*(f"quality/{one}-undefined" for one in ("modularity", "conductance", "ratio")))

    def emllm_quality(self, request: Request) -> Result:
        made = super().emllm_quality(request)
        return {"value": 0.0 if made["value"] is None else made["value"]}


class CutAnywhere(Fault):
    """A cut at an end is moved inside."""

    requirement = "MEM-022"
    killed_by = case(
        *(
            f"quality/{metric}-nothing-{side}"
            for metric in ("modularity", "conductance", "ratio")
            for side in ("before", "behind")
        )
    )

    def emllm_quality(self, request: Request) -> Result:
        cut = min(max(request["cut"], 1), request["adjacency"].shape[0] - 1)
        return super().emllm_quality({**request, "cut": cut})


class GraphOfAnyShape(Fault):
    """A graph with rows missing is read as far as it goes."""

    requirement = "MEM-022"
    killed_by = case("quality/not-square")

    def emllm_quality(self, request: Request) -> Result:
        rows = min(request["adjacency"].shape)
        return super().emllm_quality({**request, "adjacency": request["adjacency"][:rows, :rows]})


class InnerVolume(Metrics):
    """Inner weight as volume, and the smaller side's value: measured in EM-LLM."""

    requirement = "MEM-023"
    killed_by = graph_cases("conductance", "lopsided")
    spoilt: ClassVar[Mapping[str, Metric]] = {"conductance": events.inner_conductance}


class LeftVolume(Metrics):
    """The volume of the first side, whichever is smaller."""

    requirement = "MEM-023"
    killed_by = case("quality/conductance-cut-6", "quality/conductance-lopsided-late")
    spoilt: ClassVar[Mapping[str, Metric]] = {"conductance": lambda found: found.forth / found.left_out}


class BothWays(Metrics):
    """The cut is counted in both directions."""

    requirement = "MEM-023"
    killed_by = graph_cases("conductance", "lopsided")
    spoilt: ClassVar[Mapping[str, Metric]] = {
        "conductance": lambda found: events.conductance(found._replace(forth=found.forth + found.back))
    }


class LargerVolume(Metrics):
    """The larger volume divides."""

    requirement = "MEM-023"
    killed_by = graph_cases("conductance", "cut-1")
    spoilt: ClassVar[Mapping[str, Metric]] = {
        "conductance": lambda found: found.forth / np.maximum(found.left_out, found.total - found.left_out)
    }


def _sums(found: Sides) -> Array:
    return (found.left / found.forth + found.right / found.back) / 2


def _of_means(found: Sides) -> Array:
    rows, rest = found.rows.astype(float), (found.size - found.rows).astype(float)
    inner = found.left / rows**2 + found.right / rest**2
    return inner / (found.forth / (rows * rest) + found.back / (rows * rest))


def _first_side(found: Sides) -> Array:
    rows, rest = found.rows.astype(float), (found.size - found.rows).astype(float)
    return found.left / rows**2 / (found.forth / (rows * rest))


class SumsForMeans(Metrics):
    """Sums are divided by sums, whatever the sides' sizes."""

    requirement = "MEM-024"
    killed_by = graph_cases("ratio", "lopsided")
    spoilt: ClassVar[Mapping[str, Metric]] = {"ratio": _sums}


class RatioOfMeans(Metrics):
    """Mean inner over mean outer similarity, taken once."""

    requirement = "MEM-024"
    killed_by = case("quality/ratio-lopsided", "quality/ratio-lopsided-late")
    spoilt: ClassVar[Mapping[str, Metric]] = {"ratio": _of_means}


class FirstSideOnly(Metrics):
    """The first side's quotient stands for both."""

    requirement = "MEM-024"
    killed_by = graph_cases("ratio", "cut-6")
    spoilt: ClassVar[Mapping[str, Metric]] = {"ratio": _first_side}


class CodeMetrics(Fault):
    """The published code's metrics are other ones."""

    published: ClassVar[Mapping[str, Metric]]

    @property
    def mem_code_metrics(self) -> Mapping[str, Metric]:  # type: ignore[override]
        return {**events.CODE, **self.published}


def quoted(metric: str) -> tuple[str, ...]:
    """Published values of one metric."""
    adjacent = {"modularity": "modularity", "ratio": "intra-inter-sim"}.get(metric)
    cuts = [f"published/adjacent-{adjacent}-cut-{cut}" for cut in range(2, 7)] if adjacent else []
    grams = [f"published/metrics-{gram}-gram-cut3-{metric}" for gram in ("dot-product", "nonneg")]
    return case(*grams, *cuts)


class StandardModularity(CodeMetrics):
    """The published code is taken to compute the standard value."""

    requirement = "MEM-022"
    killed_by = quoted("modularity")
    published: ClassVar[Mapping[str, Metric]] = {"modularity": events.modularity}


class StandardConductance(CodeMetrics):
    """The published code is taken to use degrees as volume."""

    requirement = "MEM-023"
    killed_by = quoted("conductance")
    published: ClassVar[Mapping[str, Metric]] = {"conductance": events.conductance}


class OneSidedRatio(CodeMetrics):
    """The published code is taken to compare one side."""

    requirement = "MEM-024"
    killed_by = quoted("ratio")
    published: ClassVar[Mapping[str, Metric]] = {"ratio": _first_side}


# --- refinement ----------------------------------------------------------------------------------------------------


class EndsBeforeTheCandidate(Fault):
    """The candidate and what follows it are never compared: measured in EM-LLM, where true cuts move forward."""

    requirement = "MEM-025"
    killed_by = case("refine/candidate-is-compared", "refine/later-cut", "refine/radius-zero")

    @staticmethod
    def mem_cut_window(before: int, candidate: int, after: int, least: int, radius: int) -> range:
        cuts = events.window_of(before, candidate, after, least, radius)
        return range(cuts.start, max(cuts.start, min(cuts.stop, candidate)))


class ForwardOnly(Fault):
    """Only cuts from the candidate on are compared."""

    requirement = "MEM-025"
    killed_by = case("refine/moves-modularity", "refine/radius-one")

    @staticmethod
    def mem_cut_window(before: int, candidate: int, after: int, least: int, radius: int) -> range:
        cuts = events.window_of(before, candidate, after, least, radius)
        return range(max(cuts.start, min(candidate, cuts.stop)), cuts.stop)


class WithoutRadius(Fault):
    """A candidate may move to any cut between its neighbours."""

    requirement = "MEM-025"
    killed_by = case("refine/radius-zero", "refine/radius-one", "refine/heads-modularity")

    @staticmethod
    def mem_cut_window(before: int, candidate: int, after: int, least: int, radius: int) -> range:
        return events.window_of(before, candidate, after, least, after - before)


class RadiusExclusive(Fault):
    """The last cut of the window is left out."""

    requirement = "MEM-025"
    killed_by = case("refine/later-cut", "refine/least-rows", "refine/radius-one")

    @staticmethod
    def mem_cut_window(before: int, candidate: int, after: int, least: int, radius: int) -> range:
        cuts = events.window_of(before, candidate, after, least, radius)
        return range(cuts.start, max(cuts.start, cuts.stop - 1))


class NoLeastRows(Fault):
    """Cuts may leave a single row."""

    requirement = "MEM-025"
    killed_by = case("refine/least-rows", "refine/no-room")

    @staticmethod
    def mem_cut_window(before: int, candidate: int, after: int, least: int, radius: int) -> range:
        return events.window_of(before, candidate, after, 1, radius)


class Refining(Fault):
    """The loop over candidates is another one."""

    def settle(self, request: Request, before: int, candidate: int, proposed: int) -> int:
        """Where the next window begins."""
        return before

    def horizon(self, request: Request, after: int) -> int:
        """Where a candidate's window ends."""
        return after

    def mem_event_refinement(self, request: Request) -> Refined:
        if "rule" in request:
            return super().mem_event_refinement(request)
        graph, cuts = self.mem_event_graph(request), request["candidates"]
        made = Refined([], [], [])
        begin = 0
        for candidate, after in zip(cuts, [*cuts[1:], graph.shape[0]], strict=True):
            end = self.horizon(request, after)
            one = events.refine(
                graph[begin:end, begin:end],
                [candidate - begin],
                request["metric"],
                least=request["minimum_rows"],
                radius=request["radius"],
            )
            made.boundaries.append(one.boundaries[0] + begin)
            made.scores.append(one.scores[0])
            made.searched.append([one.searched[0][0] + begin, one.searched[0][1] + begin])
            begin = self.settle(request, made.boundaries[-1], candidate, after)
        return made


class FromTheProposedCut(Refining):
    """A window begins at the candidate before, not where that was moved."""

    requirement = "MEM-025"
    killed_by = case("refine/heads-modularity", "refine/moves-modularity")

    def settle(self, request: Request, before: int, candidate: int, proposed: int) -> int:
        return candidate


class ToTheEnd(Refining):
    """A window ends with the rows and not at the next candidate."""

    requirement = "MEM-025"
    killed_by = case("refine/heads-modularity", "refine/least-rows")

    def horizon(self, request: Request, after: int) -> int:
        return int(request["k"].shape[0])


class FromTheStart(Refining):
    """A window begins at row 0 for every candidate."""

    requirement = "MEM-025"
    killed_by = case("refine/heads-modularity", "refine/pool-modularity")

    def settle(self, request: Request, before: int, candidate: int, proposed: int) -> int:
        return 0


class CrowdedCandidatesDropped(Fault):
    """Candidates without a window are dropped."""

    requirement = "MEM-025"
    killed_by = case("refine/no-room")

    def mem_event_refinement(self, request: Request) -> Refined:
        made = super().mem_event_refinement(request)
        kept = [i for i, table in enumerate(made.scores) if table]
        return Refined(*([column[i] for i in kept] for column in made))  # type: ignore[arg-type]


class RefinedByTheChapter(Fault):
    """The published search is taken to be the chapter's."""

    requirement = "MEM-025"
    killed_by = case(*(f"published/refine-{metric}" for metric in ("modularity", "conductance", "ratio")))

    def mem_event_refinement(self, request: Request) -> Refined:
        return super().mem_event_refinement({name: value for name, value in request.items() if name != "rule"})


class SomeCutAlways(Fault):
    """Rows without a candidate are cut in the middle."""

    requirement = "MEM-025"
    killed_by = case("refine/no-candidates")

    def mem_event_refinement(self, request: Request) -> Refined:
        middle = [request["k"].shape[0] // 2]
        return super().mem_event_refinement({**request, "candidates": request["candidates"] or middle})


class CandidatesSorted(Fault):
    """Candidates in any order are sorted, and equal ones joined."""

    requirement = "MEM-025"
    killed_by = case("refine/out-of-order", "refine/twice")

    def mem_event_refinement(self, request: Request) -> Refined:
        return super().mem_event_refinement({**request, "candidates": sorted(set(request["candidates"]))})


class CandidatesClamped(Fault):
    """Candidates at an end are moved inside."""

    requirement = "MEM-025"
    killed_by = case("refine/at-the-start", "refine/at-the-end")

    def mem_event_refinement(self, request: Request) -> Refined:
        last = request["k"].shape[0] - 1
        return super().mem_event_refinement(
            {**request, "candidates": [min(max(cut, 1), last) for cut in request["candidates"]]}
        )


class LargestConductance(Fault):
    """Every metric is maximised."""

    requirement = "MEM-026"
    killed_by = case("refine/pool-conductance", "refine/moves-conductance", "refine/heads-conductance")

    @staticmethod
    def mem_cut_choice(cuts: range, values: Sequence[float | None], candidate: int, sign: float) -> int:
        return events.pick(cuts, values, candidate, 1.0)


class SmallestModularity(Fault):
    """Every metric is minimised."""

    requirement = "MEM-026"
    killed_by = case("refine/pool-modularity", "refine/moves-ratio")

    @staticmethod
    def mem_cut_choice(cuts: range, values: Sequence[float | None], candidate: int, sign: float) -> int:
        return events.pick(cuts, values, candidate, -1.0)


class FirstOfEquals(Fault):
    """Of equal cuts the first is taken."""

    requirement = "MEM-026"
    killed_by = case("refine/equal-cuts")

    @staticmethod
    def mem_cut_choice(cuts: range, values: Sequence[float | None], candidate: int, sign: float) -> int:
        known = [(sign * value, -cut) for cut, value in zip(cuts, values, strict=True) if value is not None]
        return -max(known)[1] if known else candidate


class HigherOfNeighbours(Fault):
    """Of two cuts equally near the higher is taken."""

    requirement = "MEM-026"
    killed_by = case("refine/equal-neighbours")

    @staticmethod
    def mem_cut_choice(cuts: range, values: Sequence[float | None], candidate: int, sign: float) -> int:
        known = [
            (sign * value, -abs(cut - candidate), cut)
            for cut, value in zip(cuts, values, strict=True)
            if value is not None
        ]
        return max(known)[2] if known else candidate


class UndefinedMoves(Fault):
    """Where nothing is defined the first cut is taken."""

    requirement = "MEM-026"
    killed_by = case("refine/undefined-everywhere")

    @staticmethod
    def mem_cut_choice(cuts: range, values: Sequence[float | None], candidate: int, sign: float) -> int:
        fallback = cuts[0] if len(cuts) else candidate
        return events.pick(cuts, values, candidate, sign) if any(v is not None for v in values) else fallback


# --- events --------------------------------------------------------------------------------------------------------


class Sealing(Fault):
    """Requests to seal that are changed first."""

    def change(self, request: Request) -> Request:
        """The request that is sealed instead."""
        return request

    def mem_event_seal(self, request: Request) -> Sealed:
        return super().mem_event_seal(self.change(request))


class ShortDropped(Fault):
    """A segment that is too short is thrown away."""

    requirement = "MEM-027"
    killed_by = case("seal/short-joins-next", "seal/short-twice")

    def mem_event_seal(self, request: Request) -> Sealed:
        edges = [request["rows"][0], *request["boundaries"]]
        made = super().mem_event_seal(request)
        short = {a for a, b in itertools.pairwise(edges) if b - a < request["minimum_rows"]}
        return Sealed([event for event in made.events if event[0] not in short], made.open)


class ShortStands(Sealing):
    """A segment that is too short is an event all the same."""

    requirement = "MEM-027"
    killed_by = case("seal/short-joins-next", "seal/short-twice", "seal/short-first")

    def change(self, request: Request) -> Request:
        return {**request, "minimum_rows": min(request["minimum_rows"], 1)}


class LeastIsNotEnough(Sealing):
    """A segment of the least size counts as too short."""

    requirement = "MEM-027"
    killed_by = case("seal/exactly-least", "seal/long")

    def change(self, request: Request) -> Request:
        least = request["minimum_rows"]
        return {**request, "minimum_rows": least + 1 if 1 <= least < request["maximum_rows"] else least}


class LongStands(Sealing):
    """A segment of any length is one event."""

    requirement = "MEM-027"
    killed_by = case("seal/long", "seal/long-with-a-rest", "seal/long-tail")

    def change(self, request: Request) -> Request:
        legal = 1 <= request["minimum_rows"] <= request["maximum_rows"]
        return {**request, "maximum_rows": 1000} if legal else request


class LargestIsTooLong(Sealing):
    """A segment of the largest size is cut."""

    requirement = "MEM-027"
    killed_by = case("seal/exactly-largest", "seal/tail-of-the-largest")

    def change(self, request: Request) -> Request:
        legal = 1 <= request["minimum_rows"] < request["maximum_rows"]
        return {**request, "maximum_rows": request["maximum_rows"] - 1} if legal else request


class TailAlwaysClosed(Sealing):
    """What follows the last boundary is sealed."""

    requirement = "MEM-027"
    killed_by = case("seal/open-tail", "seal/no-boundaries")

    def change(self, request: Request) -> Request:
        return {**request, "tail": "closed"}


class TailAlwaysOpen(Sealing):
    """What the window closes stays open."""

    requirement = "MEM-027"
    killed_by = case("seal/pool", "seal/closed-short-tail")

    def change(self, request: Request) -> Request:
        return {**request, "tail": "open"}


class OpenTailNeverCut(Fault):
    """An open tail grows without bound."""

    requirement = "MEM-027"
    killed_by = case("seal/long-tail", "seal/tail-of-the-largest")

    def mem_event_seal(self, request: Request) -> Sealed:
        made = super().mem_event_seal(request)
        last = max(request["boundaries"], default=request["rows"][0])
        if request["tail"] == "closed":
            return made
        kept = [event for event in made.events if event[0] < last]
        return Sealed(kept, (kept[-1][1] if kept else request["rows"][0], request["rows"][1]))


class EmptyTail(Fault):
    """A closed tail of no rows is an event."""

    requirement = "MEM-027"
    killed_by = case("seal/closed-nothing-left")

    def mem_event_seal(self, request: Request) -> Sealed:
        made = super().mem_event_seal(request)
        end = request["rows"][1]
        full = request["tail"] == "closed" and made.events and (end - made.events[-1][0]) == request["maximum_rows"]
        return Sealed([*made.events, (end, end)], made.open) if full else made


class FromRowZero(Fault):
    """Events are counted from row 0."""

    requirement = "MEM-027"
    killed_by = case("seal/not-from-zero")

    def mem_event_seal(self, request: Request) -> Sealed:
        made = super().mem_event_seal(request)
        first = request["rows"][0]
        return Sealed([(a - first, b - first) for a, b in made.events], (made.open[0] - first, made.open[1] - first))


class SealsAnything(Fault):
    """Impossible sizes and boundaries are mended."""

    requirement = "MEM-027"
    killed_by = case(
        "seal/no-least",
        "seal/least-above-largest",
        "seal/out-of-order",
        "seal/before-the-rows",
        "seal/behind-the-rows",
        "seal/span-backwards",
    )

    def mem_event_seal(self, request: Request) -> Sealed:
        first, end = sorted(request["rows"])
        least = max(1, min(request["minimum_rows"], request["maximum_rows"]))
        cuts = sorted({cut for cut in request["boundaries"] if first < cut < end})
        changed = {"rows": [first, end], "minimum_rows": least, "boundaries": cuts}
        return super().mem_event_seal({**request, **changed})


class NeighboursRepresent(Fault):
    """Representatives are looked for one row too far."""

    requirement = "MEM-028"
    killed_by = case("summarise/representatives", "summarise/heads")

    @staticmethod
    def mem_event_representatives(influence: Array, event: tuple[int, int], count: int) -> Array:
        return events.representatives(influence, (event[0], min(event[1] + 1, influence.shape[0])), count)


class OneHeadRepresents(Fault):
    """The first head's rows represent an event for every head."""

    requirement = "MEM-028"
    killed_by = case("summarise/heads")

    @staticmethod
    def mem_event_representatives(influence: Array, event: tuple[int, int], count: int) -> Array:
        return events.representatives(np.repeat(influence[:, :1], influence.shape[1], axis=1), event, count)


class LastRowsRepresent(Fault):
    """Of rows of equal influence the last are taken."""

    requirement = "MEM-028"
    killed_by = case("summarise/ties")

    @staticmethod
    def mem_event_representatives(influence: Array, event: tuple[int, int], count: int) -> Array:
        part = influence[event[0] : event[1]][::-1]
        back = events.representatives(part, (0, part.shape[0]), count)
        return np.sort(event[1] - 1 - back, axis=-1)


class CountAlways(Fault):
    """As many representatives as asked for, the first repeated where rows are missing."""

    requirement = "MEM-028"
    killed_by = case("summarise/fewer-rows")

    @staticmethod
    def mem_event_representatives(influence: Array, event: tuple[int, int], count: int) -> Array:
        made = events.representatives(influence, event, count)
        missing = count - made.shape[1]
        return np.concatenate([np.repeat(made[:, :1], missing, axis=1), made], axis=1) if missing > 0 else made


class AllRowsSummed(Fault):
    """A summary is the mean of the whole event, whatever the manifest says."""

    requirement = "MEM-028"
    killed_by = case("summarise/representatives", "summarise/heads")

    def emllm_summarise(self, request: Request) -> Result:
        return super().emllm_summarise({**request, "summary": "all-rows"})


class RepresentativesSummed(Fault):
    """A summary is the mean of representatives, whatever the manifest says."""

    requirement = "MEM-028"
    killed_by = case("summarise/all-rows", "summarise/heads-all-rows")

    def emllm_summarise(self, request: Request) -> Result:
        return super().emllm_summarise({**request, "summary": "representatives"})


class FirstHeadsRows(Fault):
    """The rows of the first head are averaged for every head."""

    requirement = "MEM-028"
    killed_by = case("summarise/heads")

    @staticmethod
    def mem_event_summary(k: Array, positions: Array) -> Array:
        return events.summary(k, np.repeat(positions[:1], positions.shape[0], axis=0))


class HalfPrecisionSummary(Fault):
    """Summaries are stored in half precision."""

    requirement = "MEM-028"
    killed_by = case("summarise/heads")

    @staticmethod
    def mem_event_summary(k: Array, positions: Array) -> Array:
        return events.summary(k, positions).astype(np.float16).astype(np.float32)


class NoEventIsOne(Fault):
    """A store without events has an empty one."""

    requirement = "MEM-028"
    killed_by = case("summarise/no-events")

    def emllm_summarise(self, request: Request) -> Result:
        made = super().emllm_summarise(request)
        empty: list[list[int]] = [[] for _ in range(request["k"].shape[1])]
        return made if request["events"] else {**made, "representatives": [empty]}


class EventsAsTheyCome(Fault):
    """Gaps, overlaps and empty events are passed over."""

    requirement = "MEM-028"
    killed_by = case("summarise/gap", "summarise/overlap", "summarise/empty-event")

    def emllm_summarise(self, request: Request) -> Result:
        spans = request["events"]
        ends = [request["events"][0][0]] if spans else []
        for _, end in spans:
            ends.append(max(end, ends[-1] + 1))
        joined = [[a, b] for a, b in itertools.pairwise(ends)]
        return super().emllm_summarise({**request, "events": joined})


class CutToTheRows(Fault):
    """An event beyond the history is cut to it."""

    requirement = "MEM-004"
    killed_by = case("summarise/beyond-the-rows")

    def emllm_summarise(self, request: Request) -> Result:
        rows = request["k"].shape[0]
        spans = [[a, min(b, rows)] for a, b in request["events"]]
        return super().emllm_summarise({**request, "events": spans})


class InfluencePadded(Fault):
    """Missing influence is zero."""

    requirement = "MEM-028"
    killed_by = case("summarise/influence-of-other-rows")

    def emllm_summarise(self, request: Request) -> Result:
        given, rows = request["influence"], request["k"].shape[0]
        padded = np.concatenate([given, np.zeros((max(0, rows - given.shape[0]), given.shape[1]), given.dtype)])
        return super().emllm_summarise({**request, "influence": padded[:rows]})


# --- retrieval -----------------------------------------------------------------------------------------------------


class NoEventIsFound(Fault):
    """A store without events answers with its first."""

    requirement = "MEM-029"
    killed_by = case("retrieve/no-events")

    def emllm_retrieve(self, request: Request) -> Result:
        made = super().emllm_retrieve(request)
        return made if request["events"] else {**made, "order": [0], "similarity": [0]}


class CountOfEvents(Fault):
    """The budget is a number of events."""

    requirement = "MEM-029"
    killed_by = case("retrieve/pool", "retrieve/budget-exact", "retrieve/many-events")

    @staticmethod
    def mem_event_fill(order: Sequence[int], sizes: Sequence[int], budget: int, crossing: str) -> list[int]:
        return list(order[:budget])


class CrossingStays(Fault):
    """The event that crosses the budget always stays."""

    requirement = "MEM-029"
    killed_by = case("retrieve/budget-one-short", "retrieve/closest-leaves", "retrieve/first-event-too-long")

    @staticmethod
    def mem_event_fill(order: Sequence[int], sizes: Sequence[int], budget: int, crossing: str) -> list[int]:
        taken: list[int] = []
        for event in order:
            if sum(sizes[one] for one in taken) >= budget:
                break
            taken.append(event)
        return taken


class CrossingNeverStays(Fault):
    """The event that crosses the budget never stays."""

    requirement = "MEM-029"
    killed_by = case("retrieve/closest-keeps", "retrieve/first-event-closest")

    @staticmethod
    def mem_event_fill(order: Sequence[int], sizes: Sequence[int], budget: int, crossing: str) -> list[int]:
        return events.fill(order, sizes, budget, "within")


class TiesStay(Fault):
    """An event as far above the budget as its absence is below it stays."""

    requirement = "MEM-029"
    killed_by = case("retrieve/closest-tie")

    @staticmethod
    def mem_event_fill(order: Sequence[int], sizes: Sequence[int], budget: int, crossing: str) -> list[int]:
        taken = events.fill(order, sizes, budget, crossing)
        used = sum(sizes[event] for event in taken)
        rest = [event for event in order if event not in taken]
        if crossing == "closest" and rest and used < budget and used + sizes[rest[0]] - budget == budget - used:
            taken.append(rest[0])
        return taken


class ShorterOnesFollow(Fault):
    """Behind an event that does not fit, shorter ones are looked for."""

    requirement = "MEM-029"
    killed_by = case("retrieve/crossing-ends", "retrieve/first-event-too-long")

    @staticmethod
    def mem_event_fill(order: Sequence[int], sizes: Sequence[int], budget: int, crossing: str) -> list[int]:
        taken: list[int] = []
        left = budget
        for event in order:
            if sizes[event] <= left:
                taken.append(event)
                left -= sizes[event]
        return taken


class FirstEventAlways(Fault):
    """The best event is taken whatever its length."""

    requirement = "MEM-029"
    killed_by = case("retrieve/first-event-too-long", "retrieve/no-tokens")

    @staticmethod
    def mem_event_fill(order: Sequence[int], sizes: Sequence[int], budget: int, crossing: str) -> list[int]:
        return events.fill(order, sizes, budget, crossing) or list(order[:1])


class LastRowOfTheChunk(Fault):
    """The last query row is taken for the chunk."""

    requirement = "MEM-029"
    killed_by = case("retrieve/chunk-of-heads", "retrieve/many-events")

    @staticmethod
    def mem_event_scores(q: Array, summaries: Array, heads: Sequence[int]) -> Array:
        return events.scores_of(q[-1:], summaries, heads)


class SumOfRows(Fault):
    """Query rows are added and not averaged."""

    requirement = "MEM-029"
    killed_by = case("retrieve/chunk-of-heads", "retrieve/many-events")

    @staticmethod
    def mem_event_scores(q: Array, summaries: Array, heads: Sequence[int]) -> Array:
        return events.scores_of(q, summaries, heads) * q.shape[0]


class SummariesInOrder(Fault):
    """Query heads read summaries in order, whatever the map says."""

    requirement = "MEM-029"
    killed_by = case("retrieve/chunk-of-heads")

    @staticmethod
    def mem_event_scores(q: Array, summaries: Array, heads: Sequence[int]) -> Array:
        ordered = [h * summaries.shape[1] // q.shape[1] for h in range(q.shape[1])]
        return events.scores_of(q, summaries, ordered)


class LaterEventsFirst(Fault):
    """Of events of equal score the later ones are taken."""

    requirement = "MEM-029"
    killed_by = case("retrieve/ties")

    @staticmethod
    def mem_event_fill(order: Sequence[int], sizes: Sequence[int], budget: int, crossing: str) -> list[int]:
        if order and list(order) == sorted(order):
            order = list(order)[::-1]
        return events.fill(order, sizes, budget, crossing)


class SummariesCut(Fault):
    """Events, summaries and heads are matched as far as they go."""

    requirement = "MEM-029"
    killed_by = case("retrieve/refused-gap", "retrieve/refused-summary-missing", "retrieve/refused-head-map")

    def emllm_retrieve(self, request: Request) -> Result:
        count = min(len(request["events"]), request["summaries"].shape[0])
        first = request["events"][0][0] if request["events"] else 0
        lengths = [b - a for a, b in request["events"][:count]]
        ends = [first + sum(lengths[: i + 1]) for i in range(count)]
        spans = [[end - length, end] for end, length in zip(ends, lengths, strict=True)]
        heads = [min(head, request["summaries"].shape[1] - 1) for head in request["kv_head_of"]]
        changed = {"events": spans, "summaries": request["summaries"][:count], "kv_head_of": heads}
        return super().emllm_retrieve({**request, **changed})


Extended = list[int]


class EarlierSideFirst(Fault):
    """The event before always joins first."""

    requirement = "MEM-030"
    killed_by = case("retrieve/both-sides")

    @staticmethod
    def mem_event_neighbours(
        similar: Sequence[int], sizes: Sequence[int], budget: int, radius: int, side: str
    ) -> Extended:
        return events.neighbours(similar, sizes, budget, radius, "before")


class LaterSideFirst(Fault):
    """The event behind always joins first."""

    requirement = "MEM-030"
    killed_by = case("retrieve/earlier-side")

    @staticmethod
    def mem_event_neighbours(
        similar: Sequence[int], sizes: Sequence[int], budget: int, radius: int, side: str
    ) -> Extended:
        return events.neighbours(similar, sizes, budget, radius, "after")


class NextOnesOnly(Fault):
    """The radius is always one."""

    requirement = "MEM-030"
    killed_by = case("retrieve/wider-radius", "retrieve/radius-zero", "retrieve/many-events")

    @staticmethod
    def mem_event_neighbours(
        similar: Sequence[int], sizes: Sequence[int], budget: int, radius: int, side: str
    ) -> Extended:
        return events.neighbours(similar, sizes, budget, 1, side)


class SideBySide(Fault):
    """All neighbours of one side come before any of the other."""

    requirement = "MEM-030"
    killed_by = case("retrieve/wider-radius")

    @staticmethod
    def mem_event_neighbours(
        similar: Sequence[int], sizes: Sequence[int], budget: int, radius: int, side: str
    ) -> Extended:
        ways = (1, -1) if side == "after" else (-1, 1)
        taken: list[int] = []
        for event in similar:
            for way in ways:
                for step in range(1, radius + 1):
                    other = event + way * step
                    used = sum(sizes[one] for one in taken)
                    new = 0 <= other < len(sizes) and other not in similar and other not in taken
                    if new and used + sizes[other] <= budget:
                        taken.append(other)
        return taken


class FirstMisfitEnds(Fault):
    """A neighbour that does not fit ends the list."""

    requirement = "MEM-030"
    killed_by = case("retrieve/skips-what-does-not-fit", "retrieve/earlier-side")

    @staticmethod
    def mem_event_neighbours(
        similar: Sequence[int], sizes: Sequence[int], budget: int, radius: int, side: str
    ) -> Extended:
        whole = events.neighbours(similar, sizes, 10**9, radius, side)
        taken: list[int] = []
        for event in whole:
            if sum(sizes[one] for one in [*taken, event]) > budget:
                break
            taken.append(event)
        return taken


class NeighboursByPosition(Fault):
    """Neighbours are taken in the order of positions and not of ranks."""

    requirement = "MEM-030"
    killed_by = case("retrieve/many-events")

    @staticmethod
    def mem_event_neighbours(
        similar: Sequence[int], sizes: Sequence[int], budget: int, radius: int, side: str
    ) -> Extended:
        return events.neighbours(sorted(similar), sizes, budget, radius, side)


class LeftoversLent(Fault):
    """Neighbours may use what similarity has left of its budget."""

    requirement = "MEM-030"
    killed_by = case("retrieve/budget-one-short", "retrieve/many-events")

    def emllm_retrieve(self, request: Request) -> Result:
        first = super().emllm_retrieve(request)
        sizes = [b - a for a, b in request["events"]]
        left = max(0, request["similarity_tokens"] - sum(sizes[event] for event in first["similarity"]))
        return super().emllm_retrieve({**request, "contiguity_tokens": request["contiguity_tokens"] + left})


class SimilarAgain(Fault):
    """A neighbour that is similar already is taken once more."""

    requirement = "MEM-031"
    killed_by = case("retrieve/neighbours-are-similar")

    @staticmethod
    def mem_event_neighbours(
        similar: Sequence[int], sizes: Sequence[int], budget: int, radius: int, side: str
    ) -> Extended:
        if not similar or radius == 0:
            return []
        others = events.neighbours(similar[:1], sizes, budget, radius, side)
        return others + events.neighbours(similar, sizes, budget - sum(sizes[one] for one in others), radius, side)


class QueueOutlivesTheCall(Fault):
    """Neighbours of an earlier query stay: measured in EM-LLM, where they may be similar events of the next."""

    requirement = "MEM-031"
    killed_by = case("retrieve/twice-in-a-row")

    def open(self) -> None:
        super().open()
        self.mem_fault_queue: list[int] = []

    def emllm_retrieve(self, request: Request) -> Result:
        made = super().emllm_retrieve(request)
        queue = [event for event in self.mem_fault_queue if event < len(request["events"])]
        self.mem_fault_queue = made["contiguity"] or queue
        union = sorted([*made["similarity"], *self.mem_fault_queue])
        rows = [p for event in union for p in range(*request["events"][event])]
        more = {"contiguity": self.mem_fault_queue, "events": union, "rows": rows, "tokens": len(rows)}
        return {**made, **more}


class RowsByRank(Fault):
    """Rows come in the order in which their events were found."""

    requirement = "MEM-031"
    killed_by = case("retrieve/everything-fits", "retrieve/chunk-of-heads")

    def emllm_retrieve(self, request: Request) -> Result:
        made = super().emllm_retrieve(request)
        union = [*made["similarity"], *made["contiguity"]]
        return {**made, "rows": [p for event in union for p in range(*request["events"][event])]}


class TokensOfSimilarEvents(Fault):
    """Neighbours are not counted."""

    requirement = "MEM-031"
    killed_by = case("retrieve/pool", "retrieve/many-events")

    def emllm_retrieve(self, request: Request) -> Result:
        made = super().emllm_retrieve(request)
        sizes = [b - a for a, b in request["events"]]
        return {**made, "tokens": sum(sizes[event] for event in made["similarity"])}


class RowsFromZero(Fault):
    """Rows are counted from the first event."""

    requirement = "MEM-031"
    killed_by = case("retrieve/not-from-zero")

    def emllm_retrieve(self, request: Request) -> Result:
        made = super().emllm_retrieve(request)
        first = request["events"][0][0] if request["events"] else 0
        return {**made, "rows": [p - first for p in made["rows"]]}


# --- the published stream ------------------------------------------------------------------------------------------


class QueueOfOneStep(Fault):
    """The queue is emptied at each step."""

    requirement = "MEM-032"
    killed_by = case("published/emllm-with-contiguity")

    class Spoilt(streams.EventStream):
        """The stream that is wrong."""

        def line_up(self, similar: Sequence[int], sizes: Sequence[int], room: int) -> None:
            self.queue = []
            super().line_up(similar, sizes, room)

    mem_event_stream = Spoilt


class QueueWithoutRepetition(Fault):
    """Events that are similar leave the queue."""

    requirement = "MEM-032"
    killed_by = case("stream/events-do-not-add-up")

    class Spoilt(streams.EventStream):
        """The stream that is wrong."""

        def line_up(self, similar: Sequence[int], sizes: Sequence[int], room: int) -> None:
            super().line_up(similar, sizes, room)
            self.queue = [event for event in self.queue if event not in similar]

    mem_event_stream = Spoilt


class MovingThreshold(Fault):
    """Each row of a step has a threshold of its own."""

    requirement = "MEM-032"
    killed_by = case("published/emllm-with-contiguity")

    class Spoilt(streams.EventStream):
        """The stream that is wrong."""

        def arrive(self, begin: int, end: int) -> None:
            for row in range(begin, end):
                past = list(self.surprise[max(0, row - self.geometry.local_rows) : row])
                mean = math.fsum(past) / len(past) if past else math.inf
                spread = math.sqrt(math.fsum((x - mean) ** 2 for x in past) / (len(past) - 1)) if len(past) > 1 else 0.0
                self.marks.append(self.surprise[row] > mean + self.gamma * spread)

    mem_event_stream = Spoilt


class AnyRuleStreamed(Fault):
    """Steps that do not add up are taken as far as they go."""

    requirement = "MEM-032"
    killed_by = case("stream/events-do-not-add-up")

    def emllm_stream(self, request: Request) -> Result:
        rows = sum(request["chunks"])
        if rows > request["q"].shape[0]:
            raise Rejected("STEPS_DO_NOT_FIT")
        cut = {name: request[name][:rows] for name in ("q", "k", "v", "surprise")}
        return super().emllm_stream({**request, **cut})


FAULTS = found(globals())
