"""Faults of *Time*: staging through several tiers (OFF-019)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kvassay_reference.offload_cost import Stage

from ..base import Fault, found
from .base import case


class FormulaForAll(Fault):
    """The closed form is offered for a mean chunk, whatever the chunks and resources are."""

    requirement = "OFF-019"
    killed_by = case("stage/unequal-chunks", "stage/shared-resource", "stage/everything-shared")

    def formula_ms(self, stages: Sequence[Stage], chunks: Sequence[int]) -> float | None:
        each = [stage.takes(sum(chunks) // len(chunks)) for stage in stages]
        return sum(each) + (len(chunks) - 1) * max(each)


class ResourcesNotShared(Fault):
    """Every stage is taken to have a resource of its own."""

    requirement = "OFF-019"
    killed_by = case("stage/shared-resource", "stage/everything-shared")

    def chunked_ms(self, stages: Sequence[Stage], chunks: Sequence[int]) -> float:
        return super().chunked_ms([replace(one, resource=str(i)) for i, one in enumerate(stages)], chunks)


class FixedCostOnce(Fault):
    """Fixed cost is paid by the first chunk."""

    requirement = "OFF-019"
    killed_by = case("stage/chunks-that-cost")

    def chunked_ms(self, stages: Sequence[Stage], chunks: Sequence[int]) -> float:
        free = [replace(one, fixed_ms=0.0) for one in stages]
        return super().chunked_ms(free, chunks) + sum(one.fixed_ms for one in stages)


class ChunksOneByOne(Fault):
    """A chunk enters when the one before has left."""

    requirement = "OFF-019"
    killed_by = case("stage/equal-chunks", "stage/slowest-in-the-middle", "stage/chunks-never-worse-without-fixed-cost")

    def chunked_ms(self, stages: Sequence[Stage], chunks: Sequence[int]) -> float:
        return sum(stage.takes(size) for size in chunks for stage in stages)


class LastStageSetsThePace(Fault):
    """The pipeline is taken to run at the speed of its first and last stage."""

    requirement = "OFF-019"
    killed_by = case("stage/slowest-in-the-middle")

    def formula_ms(self, stages: Sequence[Stage], chunks: Sequence[int]) -> float | None:
        if super().formula_ms(stages, chunks) is None:
            return None
        each = [stage.takes(chunks[0]) for stage in stages]
        return sum(each) + (len(chunks) - 1) * max(each[0], each[-1])


class OneMoreRound(Fault):
    """The formula counts n rounds of the slowest stage after the first chunk."""

    requirement = "OFF-019"
    killed_by = case("stage/equal-chunks", "stage/one-chunk")

    def formula_ms(self, stages: Sequence[Stage], chunks: Sequence[int]) -> float | None:
        found = super().formula_ms(stages, chunks)
        return None if found is None else found + max(stage.takes(chunks[0]) for stage in stages)


FAULTS = found(globals())
