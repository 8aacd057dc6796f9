"""Faults of *Memory and admission* (OFF-020 to OFF-023)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from kvassay_reference import offload
from kvassay_reference.offload import Demand, Memory, Plan, Rule

from ..base import Fault, found
from .base import Request, case, with_layers


class Staged(Fault):
    """Staging that is counted otherwise; the peaks follow."""

    def staged(self, plan: Plan, moved: list[int], found: Memory) -> tuple[int, int]:
        """Variable and fixed staging."""
        raise NotImplementedError

    def memory(self, plan: Plan) -> Memory:
        found = super().memory(plan)
        variable, fixed = self.staged(plan, [one.h2d_bytes for one in offload.ledgers(plan)], found)
        rest = found.gpu_peak_fixed_bytes - found.staging_fixed_bytes
        return Memory(variable, fixed, variable + rest, fixed + rest)


class OneSlot(Staged):
    """The slot that is filled is counted, and the one that is read is not."""

    requirement = "OFF-020"
    killed_by = case("memory/base", "memory/three-slots")

    def staged(self, plan: Plan, moved: list[int], found: Memory) -> tuple[int, int]:
        return max(moved, default=0), max(moved, default=0)


class TwoLargest(Staged):
    """The largest layers are added, neighbours or not."""

    requirement = "OFF-020"
    killed_by = case("memory/largest-apart", "memory/more-slots-than-layers")

    def staged(self, plan: Plan, moved: list[int], found: Memory) -> tuple[int, int]:
        return sum(sorted(moved)[-2:]), found.staging_fixed_bytes


class FirstNeighbours(Staged):
    """Staging is sized by the first layers."""

    requirement = "OFF-020"
    killed_by = case("memory/largest-neighbours-late")

    def staged(self, plan: Plan, moved: list[int], found: Memory) -> tuple[int, int]:
        return sum(moved[: plan.slots]), found.staging_fixed_bytes


class SlotsAsLayers(Staged):
    """No more slots are counted than there are layers."""

    requirement = "OFF-020"
    killed_by = case("memory/more-slots-than-layers")

    def staged(self, plan: Plan, moved: list[int], found: Memory) -> tuple[int, int]:
        return found.staging_variable_bytes, min(plan.slots, len(moved)) * max(moved, default=0)


class Peak(Fault):
    """A class that is live is left out of the peaks."""

    def left_out(self, plan: Plan) -> int:
        """Bytes that are not counted."""
        raise NotImplementedError

    def memory(self, plan: Plan) -> Memory:
        found, lost = super().memory(plan), self.left_out(plan)
        return replace(
            found,
            gpu_peak_variable_bytes=found.gpu_peak_variable_bytes - lost,
            gpu_peak_fixed_bytes=found.gpu_peak_fixed_bytes - lost,
        )


class WorkspaceLeftOut(Peak):
    """The kernels' workspace is someone else's."""

    requirement = "OFF-021"
    killed_by = case("memory/base", "memory/zero-layers", "memory/nothing-cold")

    def left_out(self, plan: Plan) -> int:
        return plan.kernel_workspace_bytes


class DescriptorsLeftOut(Peak):
    """Descriptors are too small to count."""

    requirement = "OFF-021"
    killed_by = case("memory/base")

    def left_out(self, plan: Plan) -> int:
        return offload.traffic(plan, offload.ledgers(plan)).descriptor_bytes


class NeededHitsOnly(Peak):
    """Resident rows count only where the layer needs them."""

    requirement = "OFF-021"
    killed_by = case("memory/hits-beyond-required")

    def left_out(self, plan: Plan) -> int:
        unused = (offload.length(offload.difference(one.resident, one.required)) * one.row_bytes for one in plan.layers)
        return sum(unused)


class DraftsLeftOut(Peak):
    """Only accepted rows are counted."""

    requirement = "OFF-021"
    killed_by = case("memory/drafts-are-live")

    def left_out(self, plan: Plan) -> int:
        return offload.new_bytes(plan) - offload.new_bytes(replace(plan, new_positions=plan.accepted_positions))


class Demands(Fault):
    """A demand that is counted otherwise."""

    def changed(self, plan: Plan, request: Request, found: Demand) -> Demand:
        """The demand."""
        raise NotImplementedError

    def demand(self, plan: Plan, request: Request) -> Demand:
        return self.changed(plan, request, super().demand(plan, request))


class PayloadAndPinned(Demands):
    """Host memory is payload and pinned regions."""

    requirement = "OFF-022"
    killed_by = case("admit/host-counts-every-kind", "admit/to-the-last-byte")

    def changed(self, plan: Plan, request: Request, found: Demand) -> Demand:
        host = request["host"]
        return replace(found, host_bytes=host["authoritative_bytes"] + host["pinned_bytes"])


class VariableAlways(Demands):
    """A request is admitted by variable staging, and slots are fixed."""

    requirement = "OFF-022"
    killed_by = case("admit/fixed-slots-need-more")

    def changed(self, plan: Plan, request: Request, found: Demand) -> Demand:
        return replace(found, gpu_bytes=offload.memory(plan).gpu_peak_variable_bytes)


class BytesAsRate(Demands):
    """The interval is taken to be 100 milliseconds."""

    requirement = "OFF-022"
    killed_by = case("admit/shorter-interval")

    def changed(self, plan: Plan, request: Request, found: Demand) -> Demand:
        return super(Demands, self).demand(plan, {**request, "interval_ms": 100.0})


class JobsOfEveryLayer(Demands):
    """Every layer takes a job in both directions."""

    requirement = "OFF-022"
    killed_by = case("admit/jobs-by-layer-and-direction")

    def changed(self, plan: Plan, request: Request, found: Demand) -> Demand:
        return replace(found, jobs=2 * len(plan.layers))


class BudgetsNotReached(Fault):
    """A budget that is met exactly does not hold."""

    requirement = "OFF-022"
    killed_by = case("admit/to-the-last-byte")

    def within(self, taken: Demand, budgets: Request) -> Iterable[Rule]:
        return super().within(taken, {name: value - 1 for name, value in budgets.items()})


class CopiesByCount(Fault):
    """As many copies as cold rows are enough."""

    requirement = "OFF-023"
    killed_by = case("admit/a-hole-in-the-copies")

    def recoverable(self, plan: Plan, copies: Sequence[offload.Spans]) -> Iterator[Rule]:
        rows = sum(map(offload.length, copies))
        cold = sum(offload.length(layer.cold) for layer in plan.layers)
        yield rows >= cold, "SUPPORT_NOT_RECOVERABLE"


class LayersPaired(Fault):
    """Layers and copies are paired, and what is left over is not looked at."""

    requirement = "OFF-023"
    killed_by = case("admit/a-layer-without-copies")

    def recoverable(self, plan: Plan, copies: Sequence[offload.Spans]) -> Iterable[Rule]:
        return super().recoverable(replace(plan, layers=plan.layers[: len(copies)]), copies)


class CopyOfEveryRow(Fault):
    """Resident rows need a copy below the GPU, too."""

    requirement = "OFF-023"
    killed_by = case("admit/resident-rows-need-no-copy", "admit/a-row-without-a-copy")

    def recoverable(self, plan: Plan, copies: Sequence[offload.Spans]) -> Iterable[Rule]:
        return super().recoverable(with_layers(plan, resident=()), copies)


FAULTS = found(globals())
