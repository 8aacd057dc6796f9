"""Faults of NEO's estimate and its timeline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kvassay_reference import placement, placement_batch
from kvassay_reference.placement import Estimate, SubBatch

from ..base import Fault
from .base import Request, Result, case


class Stages(Fault):
    """Other stages."""

    def plc_estimate(self, rule: str, pipeline: Request, pair: Sequence[SubBatch]) -> Estimate:
        made = super().plc_estimate(rule, pipeline, pair)
        zero, one = made.stages
        return replace(made, stages=(self.spoil(rule, zero), self.spoil(rule, one)))

    def spoil(self, rule: str, stage: placement.Stage) -> placement.Stage:
        """One stage, spoiled."""
        raise NotImplementedError


class SumOfStages(Stages):
    """Overlapped work is added up."""

    requirement = "PLC-013"
    killed_by = case("pipeline/base", "pipeline/twelve-layers", "pipeline/cpu-longer-in-both", "pipeline/slower-cpu")

    def spoil(self, rule: str, stage: placement.Stage) -> placement.Stage:
        return replace(stage, ms=stage.gpu_ms + stage.cpu_ms)


class RoundedStages(Stages):
    """Stages are kept in 40 bits."""

    requirement = "PLC-013"
    killed_by = case("pipeline/base", "pipeline/twelve-layers")

    def spoil(self, rule: str, stage: placement.Stage) -> placement.Stage:
        return replace(stage, ms=stage.ms * (1 + 2.0**-40))


class CpuForFree(Stages):
    """A layer takes its GPU work under the paper's rule, too."""

    requirement = "PLC-013"
    killed_by = case(
        "pipeline/cpu-longer-in-both",
        "pipeline/cpu-longer-in-the-first",
        "pipeline/cpu-longer-in-the-second",
        "pipeline/slower-cpu",
    )

    def spoil(self, rule: str, stage: placement.Stage) -> placement.Stage:
        return replace(stage, ms=stage.gpu_ms)


class OneMaximum(Fault):
    """A layer takes the longer of all GPU and all CPU work."""

    requirement = "PLC-013"
    killed_by = case("pipeline/cpu-longer-in-the-first", "pipeline/cpu-longer-in-the-second")

    def plc_estimate(self, rule: str, pipeline: Request, pair: Sequence[SubBatch]) -> Estimate:
        made = super().plc_estimate(rule, pipeline, pair)
        zero, one = made.stages
        longest = max(zero.gpu_ms + one.gpu_ms, zero.cpu_ms + one.cpu_ms)
        return made if rule == "neo/code" else replace(made, stages=(replace(zero, ms=longest - one.ms), one))


class OwnPartner(Fault):
    """CPU attention is put beside the linear work of its own sub-batch."""

    requirement = "PLC-013"
    killed_by = case("pipeline/partners-are-crossed", "pipeline/base")

    def plc_estimate(self, rule: str, pipeline: Request, pair: Sequence[SubBatch]) -> Estimate:
        zero, one = pair
        swapped = (
            replace(zero, cpu_attention_ms=one.cpu_attention_ms),
            replace(one, cpu_attention_ms=zero.cpu_attention_ms),
        )
        return super().plc_estimate(rule, pipeline, swapped)


class GpuAttentionForgotten(Fault):
    """GPU attention covers nothing."""

    requirement = "PLC-013"
    killed_by = case("pipeline/base", "pipeline/gpu-attention-counts")

    def plc_estimate(self, rule: str, pipeline: Request, pair: Sequence[SubBatch]) -> Estimate:
        return super().plc_estimate(rule, pipeline, [replace(one, gpu_attention_ms=0.0) for one in pair])


class GpuAttentionOfTheOther(Fault):
    """GPU attention and prefill run behind their own linear work."""

    requirement = "PLC-013"
    killed_by = case("pipeline/gpu-attention-counts", "pipeline/prefill-beside-cpu-attention")

    def plc_estimate(self, rule: str, pipeline: Request, pair: Sequence[SubBatch]) -> Estimate:
        zero, one = pair
        names = ("gpu_attention_ms", "prefill_ms")
        swapped = [replace(a, **{name: getattr(b, name) for name in names}) for a, b in ((zero, one), (one, zero))]
        return super().plc_estimate(rule, pipeline, swapped)


class PrefillForgotten(Fault):
    """Prefill attention takes no time."""

    requirement = "PLC-013"
    killed_by = case("pipeline/prefill-beside-cpu-attention")

    def plc_estimate(self, rule: str, pipeline: Request, pair: Sequence[SubBatch]) -> Estimate:
        return super().plc_estimate(rule, pipeline, [replace(one, prefill_ms=0.0) for one in pair])


class OneLayer(Fault):
    """One layer's time is taken for the iteration's."""

    requirement = "PLC-013"
    killed_by = case("pipeline/base", "pipeline/twelve-layers")

    def plc_estimate(self, rule: str, pipeline: Request, pair: Sequence[SubBatch]) -> Estimate:
        return replace(super().plc_estimate(rule, pipeline, pair), layers=1)


class Feasibility(Fault):
    """Another answer to whether CPU work is covered."""

    def covered(self, made: Estimate) -> bool:
        """Whether it is."""
        raise NotImplementedError

    def placement_pipeline(self, request: Request) -> Result:
        found = super().placement_pipeline(request)
        pair = self.plc_pair(request["pipeline"])
        covered = self.covered(self.plc_estimate(request["rule"], request["pipeline"], pair))
        return {**found, "feasible": covered, **({} if covered else {"mode": "gpu_only"})}


class StrictlyCovered(Feasibility):
    """Equality counts as exposed."""

    requirement = "PLC-014"
    killed_by = case("pipeline/both-slacks-zero", "pipeline/launch-is-free-in-the-paper")

    def covered(self, made: Estimate) -> bool:
        return min(made.slack_ms) > 0


class FirstInequalityAlone(Feasibility):
    """Only the first stage is looked at."""

    requirement = "PLC-014"
    killed_by = case("pipeline/cpu-longer-in-the-second", "pipeline/first-slack-just-below")

    def covered(self, made: Estimate) -> bool:
        return made.stages[0].slack_ms >= 0


class SecondInequalityAlone(Feasibility):
    """Only the second stage is looked at."""

    requirement = "PLC-014"
    killed_by = case("pipeline/cpu-longer-in-the-first", "pipeline/second-slack-just-below")

    def covered(self, made: Estimate) -> bool:
        return made.stages[1].slack_ms >= 0


class SlackInAll(Feasibility):
    """The reserve of one stage is lent to the other."""

    requirement = "PLC-014"
    killed_by = case("pipeline/cpu-longer-in-the-first")

    def covered(self, made: Estimate) -> bool:
        return sum(made.slack_ms) >= 0


class ForgivingSlack(Feasibility):
    """A microsecond of exposed work is taken for rounding."""

    requirement = "PLC-014"
    killed_by = case("pipeline/first-slack-just-below", "pipeline/second-slack-just-below")

    def covered(self, made: Estimate) -> bool:
        return min(made.slack_ms) >= -1e-3


class SlacksSwapped(Fault):
    """Each slack is told of the other sub-batch."""

    requirement = "PLC-014"
    killed_by = case("pipeline/base", "pipeline/cpu-longer-in-the-first")

    def placement_pipeline(self, request: Request) -> Result:
        found = super().placement_pipeline(request)
        return {**found, "slack_ms": found["slack_ms"][::-1]}


class SplitRequests(Fault):
    """A request may be on both devices."""

    requirement = "PLC-015"
    killed_by = case("pipeline/request-in-both-sub-batches")

    def plc_pair(self, pipeline: Request) -> tuple[SubBatch, SubBatch]:
        zero, one = map(SubBatch.read, pipeline["sub_batches"])
        return zero, one


class SplitWithinTwoLists(Fault):
    """Only sub-batches are compared with each other, not the devices within one."""

    requirement = "PLC-015"
    killed_by = case("pipeline/request-in-both-sub-batches")

    def plc_pair(self, pipeline: Request) -> tuple[SubBatch, SubBatch]:
        zero, one = map(SubBatch.read, pipeline["sub_batches"])
        return super().plc_pair(pipeline) if set(zero.requests) & set(one.requests) else (zero, one)


class ModesCompete(Fault):
    """A request in the other mode counts as a second place."""

    requirement = "PLC-015"
    killed_by = case("pipeline/request-in-both-modes", "pipeline/base")

    def plc_pair(self, pipeline: Request) -> tuple[SubBatch, SubBatch]:
        zero, one = super().plc_pair(pipeline)
        placement.check_whole(
            (zero, one, replace(zero, gpu_requests=tuple(pipeline["gpu_only"]["requests"]), cpu_requests=()))
        )
        return zero, one


class QueuesMayRepeat(Fault):
    """Queues are not compared with each other."""

    requirement = "PLC-015"
    killed_by = case("batch/request-twice")

    def placement_batch(self, request: Request) -> Result:
        seen: set[str] = set()
        unlike = {}
        for part in placement_batch.PARTS:
            unlike[part] = [job for job in request[part] if job["id"] not in seen]
            seen |= {job["id"] for job in request[part]}
        return super().placement_batch({**request, **unlike})


class AtLeastAsFast(Fault):
    """A tie goes to the pipeline."""

    requirement = "PLC-016"
    killed_by = case("pipeline/equally-fast")

    def plc_mode(self, made: Estimate) -> str:
        fast = made.requests * made.gpu_only_ms >= made.alone.requests * made.pipelined_ms
        return "pipelined" if made.feasible and fast else "gpu_only"


class LinearWorkCompared(Fault):
    """The other mode is compared by its linear work alone."""

    requirement = "PLC-016"
    killed_by = case("pipeline/other-mode-with-prefill-and-attention")

    def plc_estimate(self, rule: str, pipeline: Request, pair: Sequence[SubBatch]) -> Estimate:
        made = super().plc_estimate(rule, pipeline, pair)
        return replace(made, alone=replace(made.alone, gpu_ms=pipeline["gpu_only"]["linear_ms"]))


class ShorterIteration(Fault):
    """The shorter iteration wins."""

    requirement = "PLC-016"
    killed_by = case("pipeline/longer-and-better", "pipeline/shorter-and-worse", "pipeline/no-other-mode")

    def plc_mode(self, made: Estimate) -> str:
        return "pipelined" if made.feasible and made.pipelined_ms < made.gpu_only_ms else "gpu_only"


class MoreRequests(Fault):
    """The mode with more requests wins, however long it takes."""

    requirement = "PLC-016"
    killed_by = case("pipeline/equally-fast", "pipeline/partners-are-crossed")

    def plc_mode(self, made: Estimate) -> str:
        return "pipelined" if made.feasible and made.requests > made.alone.requests else "gpu_only"


class FasterThoughExposed(Fault):
    """A faster estimate is taken although CPU work is exposed."""

    requirement = "PLC-016"
    killed_by = case("pipeline/first-slack-just-below", "pipeline/second-slack-just-below")

    def plc_mode(self, made: Estimate) -> str:
        return "pipelined" if made.faster else "gpu_only"


class RateOfNothing(Fault):
    """A mode without requests is compared by its time."""

    requirement = "PLC-016"
    killed_by = case("pipeline/no-other-mode")

    def plc_mode(self, made: Estimate) -> str:
        return super().plc_mode(made) if made.alone.requests else "gpu_only"


class Timeline(Fault):
    """Another timeline."""

    def spoil(self, one: Result, made: Estimate) -> Result | None:
        """One piece of work, spoiled; ``None`` drops it."""
        raise NotImplementedError

    def plc_works(self, rule: str, made: Estimate, pipeline: Request, pair: Sequence[SubBatch]) -> list[Result]:
        works = super().plc_works(rule, made, pipeline, pair)
        return [kept for one in works if (kept := self.spoil(one, made)) is not None]


class StagesOverlap(Timeline):
    """The second stage begins when the GPU is done, although the CPU is not."""

    requirement = "PLC-017"
    killed_by = case("pipeline/timeline-cpu-longer")

    def spoil(self, one: Result, made: Estimate) -> Result | None:
        early = made.layer_ms - made.stages[0].gpu_ms - made.stages[1].gpu_ms
        early = early * one["layer"] + (made.stages[0].ms - made.stages[0].gpu_ms) * one["stage"]
        return {**one, "start_ms": one["start_ms"] - early, "end_ms": one["end_ms"] - early}


class LaneOfTheOwner(Timeline):
    """CPU attention is told of the sub-batch whose linear work runs beside it."""

    requirement = "PLC-017"
    killed_by = case("pipeline/timeline-base", "pipeline/timeline-cpu-longer", "pipeline/timeline-prefill")

    def spoil(self, one: Result, made: Estimate) -> Result | None:
        return {**one, "sub_batch": one["stage"]}


class FirstLayerDrawn(Timeline):
    """Only the first layer is drawn."""

    requirement = "PLC-017"
    killed_by = case("pipeline/timeline-base", "pipeline/timeline-cpu-longer")

    def spoil(self, one: Result, made: Estimate) -> Result | None:
        return one if one["layer"] == 0 else None


class AttentionBesideLinear(Timeline):
    """GPU attention is drawn beside the linear work that it runs behind."""

    requirement = "PLC-017"
    killed_by = case("pipeline/timeline-base", "pipeline/timeline-prefill")

    def spoil(self, one: Result, made: Estimate) -> Result | None:
        if one["work"] != "gpu_attention":
            return one
        start = made.layer_ms * one["layer"] + made.stages[0].ms * one["stage"]
        return {**one, "start_ms": start, "end_ms": start + one["end_ms"] - one["start_ms"]}


class EmptyBars(Fault):
    """Work of no length is drawn."""

    requirement = "PLC-017"
    killed_by = case("pipeline/timeline-leaves-out-nothing-done")

    def plc_works(self, rule: str, made: Estimate, pipeline: Request, pair: Sequence[SubBatch]) -> list[Result]:
        works = super().plc_works(rule, made, pipeline, pair)
        bar = {"layer": 0, "stage": 0, "lane": "cpu", "sub_batch": 1, "work": "cpu_attention"}
        idle = not pair[1].cpu_attention_ms
        return [*works, {**bar, "start_ms": 0.0, "end_ms": 0.0}] if idle else works


class LaunchInThePaper(Fault):
    """The paper's rule is taken to count a launch."""

    requirement = "PLC-014"
    killed_by = case("pipeline/launch-is-free-in-the-paper")

    def plc_estimate(self, rule: str, pipeline: Request, pair: Sequence[SubBatch]) -> Estimate:
        launch = pipeline["launch_ms"] if rule == "neo/paper" else 0.0
        late = [replace(one, cpu_attention_ms=one.cpu_attention_ms + launch) for one in pair]
        return super().plc_estimate(rule, pipeline, late)


class NoLaunchInTheCode(Fault):
    """The code's rule is taken not to count a launch."""

    requirement = "PLC-018"
    killed_by = case("pipeline/code-launch", "pipeline/code-launch-too-long")

    def plc_estimate(self, rule: str, pipeline: Request, pair: Sequence[SubBatch]) -> Estimate:
        return super().plc_estimate(rule, {**pipeline, "launch_ms": 0.0}, pair)


class MaximaInTheCode(Stages):
    """The code's rule is taken to have the paper's maxima."""

    requirement = "PLC-018"
    killed_by = case("pipeline/code-launch-too-long")

    def spoil(self, rule: str, stage: placement.Stage) -> placement.Stage:
        return replace(stage, ms=max(stage.gpu_ms, stage.cpu_ms))


class LaunchNotDrawn(Timeline):
    """A launch costs time and is not drawn."""

    requirement = "PLC-018"
    killed_by = case("pipeline/timeline-code")

    def spoil(self, one: Result, made: Estimate) -> Result | None:
        return None if one["work"] == "launch" else one


FAULTS: tuple[type[Fault], ...] = (
    SumOfStages,
    RoundedStages,
    CpuForFree,
    OneMaximum,
    OwnPartner,
    GpuAttentionForgotten,
    GpuAttentionOfTheOther,
    PrefillForgotten,
    OneLayer,
    StrictlyCovered,
    FirstInequalityAlone,
    SecondInequalityAlone,
    SlackInAll,
    ForgivingSlack,
    SlacksSwapped,
    SplitRequests,
    SplitWithinTwoLists,
    ModesCompete,
    QueuesMayRepeat,
    AtLeastAsFast,
    LinearWorkCompared,
    ShorterIteration,
    MoreRequests,
    FasterThoughExposed,
    RateOfNothing,
    StagesOverlap,
    LaneOfTheOwner,
    FirstLayerDrawn,
    AttentionBesideLinear,
    EmptyBars,
    LaunchInThePaper,
    NoLaunchInTheCode,
    MaximaInTheCode,
    LaunchNotDrawn,
)
"""In the order of the chapter."""
