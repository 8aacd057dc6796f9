"""Faults of NEO's batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kvassay_reference import placement_batch
from kvassay_reference.placement_batch import Batch, Job, Pair, Profile, Queues

from ..base import Fault
from .base import case


class Forming(Fault):
    """Sub-batches formed by another rule; a subclass replaces one step."""

    requirement = "PLC-019"

    def trim_alone(self, batch: Batch, queues: Queues) -> None:
        """Step 2."""
        placement_batch.trim(batch, queues.threshold)

    def split(self, pair: Pair, queue: Sequence[Job], budget: int) -> None:
        """Step 3."""
        placement_batch.split_decodes(pair, queue, budget)

    def trim_pair(self, pair: Pair, queues: Queues) -> None:
        """Step 5."""
        needed = lambda: min(placement_batch.slack_ms(pair)) < 0  # noqa: E731
        placement_batch.trim(pair[0], queues.threshold, needed)

    def takes_pair(self, pair: Pair, alone: Batch) -> bool:
        """Step 6."""
        return placement_batch.faster(pair, alone)

    def plc_form(self, queues: Queues, profile: Profile) -> tuple[Batch, ...]:
        pair, alone = placement_batch.first_batches(queues, profile)
        if not pair[0].count:
            return ()
        self.trim_alone(alone, queues)
        self.split(pair, queues.jobs["cpu_decode"], queues.budget)
        if not pair[1].count:
            return (alone,)
        self.trim_pair(pair, queues)
        return pair if self.takes_pair(pair, alone) else (alone,)


class Alternating(Forming):
    """CPU requests alternate between the sub-batches."""

    killed_by = case("batch/goes-where-slack-is")

    def split(self, pair: Pair, queue: Sequence[Job], budget: int) -> None:
        target = 1
        for job in queue[:budget]:
            pair[target].parts["cpu_decode"].append(job)
            if min(placement_batch.slack_ms(pair)) < 0:
                pair[target].parts["cpu_decode"].pop()
            else:
                target = 1 - target


class AllInSubBatchOne(Forming):
    """Sub-batch 1 takes every CPU request that fits."""

    killed_by = case("batch/published-pipelined", "batch/published-with-prefill")

    def split(self, pair: Pair, queue: Sequence[Job], budget: int) -> None:
        for job in queue[:budget]:
            pair[1].parts["cpu_decode"].append(job)
            if min(placement_batch.slack_ms(pair)) < 0:
                pair[1].parts["cpu_decode"].pop()


class Splitting(Forming):
    """CPU requests split with another comparison."""

    def too_long(self, tokens: int, misfit: int) -> bool:
        """Whether a request is passed over after one that did not fit."""
        return tokens >= misfit

    def next_target(self, left: Sequence[float]) -> int:
        """The sub-batch that the next request is tried in."""
        return int(left[1] > left[0])

    def split(self, pair: Pair, queue: Sequence[Job], budget: int) -> None:
        misfit, target = 1 << 40, 1
        for job in queue:
            if not budget or self.too_long(job.tokens, misfit):
                continue
            pair[target].parts["cpu_decode"].append(job)
            left = placement_batch.slack_ms(pair)
            if min(left) < 0:
                pair[target].parts["cpu_decode"].pop()
                misfit = job.tokens
                continue
            budget -= 1
            target = self.next_target(left)


class TieToSubBatchOne(Splitting):
    """At equal slacks the next CPU request goes to sub-batch 1."""

    killed_by = case("batch/equal-slacks")

    def next_target(self, left: Sequence[float]) -> int:
        return int(left[1] >= left[0])


class AsLongTriedAgain(Splitting):
    """A request as long as one that did not fit is tried again."""

    killed_by = case("batch/as-long-after-a-shorter-one")

    def too_long(self, tokens: int, misfit: int) -> bool:
        return tokens > misfit


class SlackZeroNeedsPrefill(Forming):
    """A prefill is kept where a slack would be zero without it."""

    killed_by = case("batch/prefill-dropped-to-slack-zero")

    def trim_pair(self, pair: Pair, queues: Queues) -> None:
        placement_batch.trim(pair[0], queues.threshold, lambda: min(placement_batch.slack_ms(pair)) <= 0)


class FirstMisfitEnds(Forming):
    """The first CPU request that does not fit ends the search."""

    killed_by = case("batch/budget-after-a-long-request", "batch/skips-what-is-as-long")

    def split(self, pair: Pair, queue: Sequence[Job], budget: int) -> None:
        for end in range(1, len(queue) + 1):
            trial = placement_batch.Batch(pair[0].profile), placement_batch.Batch(pair[1].profile)
            for mine, theirs in zip(trial, pair, strict=True):
                mine.parts = {part: list(jobs) for part, jobs in theirs.parts.items()}
            super().split(trial, queue[:end], budget)
            if sum(len(one.parts["cpu_decode"]) for one in trial) < min(end, budget):
                super().split(pair, queue[: end - 1], budget)
                return
        super().split(pair, queue, budget)


class EveryMisfitTried(Forming):
    """Requests as long as one that did not fit are tried again."""

    killed_by = case("batch/skips-what-is-as-long")

    def split(self, pair: Pair, queue: Sequence[Job], budget: int) -> None:
        target = 1
        for job in queue:
            pair[target].parts["cpu_decode"].append(job)
            left = placement_batch.slack_ms(pair)
            if min(left) < 0:
                pair[target].parts["cpu_decode"].pop()
                target = 1 - target
                continue
            target = int(left[1] > left[0])


class MisfitsCostBudget(Forming):
    """A request that does not fit costs one of the budget."""

    killed_by = case("batch/budget-after-a-long-request")

    def split(self, pair: Pair, queue: Sequence[Job], budget: int) -> None:
        super().split(pair, queue[:budget], budget)


class NoBudget(Forming):
    """The budget is not looked at."""

    killed_by = case("batch/no-budget", "batch/budget-of-three")

    def split(self, pair: Pair, queue: Sequence[Job], budget: int) -> None:
        super().split(pair, queue, len(queue))


class SlackMustStayPositive(Forming):
    """A slack of zero counts as exposed."""

    killed_by = case("batch/slack-of-exactly-zero")

    def split(self, pair: Pair, queue: Sequence[Job], budget: int) -> None:
        tight = replace(pair[0].profile, launch_ms=pair[0].profile.launch_ms + 1e-9)
        for one in pair:
            one.profile = tight
        super().split(pair, queue, budget)


class LaunchForgotten(Forming):
    """A launch takes no slack."""

    killed_by = case("batch/published-pipelined", "batch/published-with-prefill")

    def plc_form(self, queues: Queues, profile: Profile) -> tuple[Batch, ...]:
        return super().plc_form(queues, replace(profile, launch_ms=0.0))


class LastPrefillKept(Forming):
    """Prefills bound for the CPU stay in sub-batch 0."""

    killed_by = case("batch/published-with-prefill", "batch/several-cpu-prefills")

    def trim_pair(self, pair: Pair, queues: Queues) -> None:
        return


class EveryCpuPrefillDropped(Forming):
    """Prefills bound for the CPU are dropped although linear work could take them."""

    killed_by = case("batch/prefill-below-threshold", "batch/several-cpu-prefills")

    def trim_pair(self, pair: Pair, queues: Queues) -> None:
        placement_batch.trim(pair[0], 0, lambda: min(placement_batch.slack_ms(pair)) < 0)


class SlackNotNeeded(Forming):
    """A prefill is dropped although CPU work needs the time that it takes."""

    killed_by = case("batch/prefill-kept-for-slack")

    def trim_pair(self, pair: Pair, queues: Queues) -> None:
        placement_batch.trim(pair[0], queues.threshold)


class GpuPrefillsDropped(Forming):
    """Prefills for the GPU are dropped like any other."""

    killed_by = case("batch/gpu-prefills-are-kept", "batch/published-with-prefill")

    def trim_pair(self, pair: Pair, queues: Queues) -> None:
        while pair[0].prefills and pair[0].width >= queues.threshold:
            pair[0].drop_prefill()


class AlwaysPipelined(Forming):
    """The pipeline runs wherever it is formed."""

    killed_by = case("batch/pipeline-not-worth-it", "batch/equally-fast")

    def takes_pair(self, pair: Pair, alone: Batch) -> bool:
        return True


class TieToThePipeline(Forming):
    """At equal rates the pipeline runs."""

    killed_by = case("batch/equally-fast")

    def takes_pair(self, pair: Pair, alone: Batch) -> bool:
        together = pair[0].gpu_ms + pair[1].gpu_ms
        return alone.count * together <= (pair[0].count + pair[1].count) * alone.gpu_ms


class SecondPassTwice(Forming):
    """The pipeline's time is taken for twice sub-batch 1's."""

    killed_by = case("batch/pipeline-not-worth-it")

    def takes_pair(self, pair: Pair, alone: Batch) -> bool:
        together = 2 * pair[1].gpu_ms
        return alone.count * together < (pair[0].count + pair[1].count) * alone.gpu_ms


class NeverPipelined(Forming):
    """Total times are compared, so that one batch always wins."""

    killed_by = case("batch/published-pipelined", "batch/published-with-prefill", "batch/budget-of-three")

    def takes_pair(self, pair: Pair, alone: Batch) -> bool:
        return pair[0].gpu_ms + pair[1].gpu_ms < alone.gpu_ms


class CpuWorkAlone(Forming):
    """CPU requests run without GPU work."""

    killed_by = case("batch/no-gpu-work")

    def plc_form(self, queues: Queues, profile: Profile) -> tuple[Batch, ...]:
        made = super().plc_form(queues, profile)
        if made:
            return made
        alone = Batch(profile)
        alone.parts["cpu_decode"] += queues.jobs["cpu_decode"]
        return (alone,)


class EmptySubBatchRuns(Forming):
    """Two sub-batches run although one is empty."""

    killed_by = case("batch/no-cpu-work", "batch/no-budget")

    def plc_form(self, queues: Queues, profile: Profile) -> tuple[Batch, ...]:
        made = super().plc_form(queues, profile)
        return (*made, Batch(profile)) if len(made) == 1 else made


FAULTS: tuple[type[Fault], ...] = (
    Alternating,
    AllInSubBatchOne,
    TieToSubBatchOne,
    AsLongTriedAgain,
    SlackZeroNeedsPrefill,
    FirstMisfitEnds,
    EveryMisfitTried,
    MisfitsCostBudget,
    NoBudget,
    SlackMustStayPositive,
    LaunchForgotten,
    LastPrefillKept,
    EveryCpuPrefillDropped,
    SlackNotNeeded,
    GpuPrefillsDropped,
    AlwaysPipelined,
    TieToThePipeline,
    SecondPassTwice,
    NeverPipelined,
    CpuWorkAlone,
    EmptySubBatchRuns,
)
"""In the order of the chapter."""
