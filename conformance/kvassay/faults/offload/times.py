"""Faults of *Time*: links, the layer schedule, what is hidden (OFF-012 to OFF-018)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

from kvassay_reference.offload import Plan, Times, Totals

from ..base import Fault, found
from .base import Request, case, with_layers


class DecimalGiga(Fault):
    """A GiB is 10^9 bytes."""

    requirement = "OFF-012"
    killed_by = case("schedule/base", "regime/base", "stage/equal-chunks")

    def bytes_per_s(self, bandwidth: Request) -> float:
        return float(bandwidth["value"] * 1e9)

    def read_plan(self, plan: Request) -> Plan:
        made, link = super().read_plan(plan), plan["link"]
        return replace(
            made, h2d_bytes_per_s=self.bytes_per_s(link["h2d"]), d2h_bytes_per_s=self.bytes_per_s(link["d2h"])
        )


class BinaryGiga(DecimalGiga):
    """A GB is 2^30 bytes."""

    killed_by = case("schedule/decimal-bandwidth", "regime/decimal-bandwidth")

    def bytes_per_s(self, bandwidth: Request) -> float:
        return float(bandwidth["value"] * 2**30)


class PayloadOverBandwidth(Fault):
    """A promotion takes its bytes over the bandwidth, and nothing else."""

    requirement = "OFF-013"
    killed_by = case("schedule/base", "schedule/every-fixed-term", "schedule/higher-fixed-cost")

    def read_plan(self, plan: Request) -> Plan:
        return with_layers(super().read_plan(plan), fixed_ms=0.0)


class FixedAlone(Fault):
    """A promotion takes its fixed terms: copies are asynchronous, after all."""

    requirement = "OFF-013"
    killed_by = case("schedule/base", "schedule/wire-bytes")

    def read_plan(self, plan: Request) -> Plan:
        return replace(super().read_plan(plan), h2d_bytes_per_s=1e30)


class RegistrationForgotten(Fault):
    """Registering memory is taken to be free."""

    requirement = "OFF-013"
    killed_by = case("schedule/every-fixed-term")

    def read_plan(self, plan: Request) -> Plan:
        made = super().read_plan(plan)
        free = [layer["fixed"]["register_ms"] for layer in plan["layers"]]
        layers = (replace(one, fixed_ms=one.fixed_ms - ms) for one, ms in zip(made.layers, free, strict=True))
        return replace(made, layers=tuple(layers))


class WaitForNothing(Fault):
    """A layer without cold rows pays its fixed terms all the same."""

    requirement = "OFF-013"
    killed_by = case("schedule/all-resident")

    def schedule(self, plan: Plan) -> list[Times]:
        rows = zip(plan.layers, super().schedule(plan), strict=True)
        return [replace(one, service_ms=one.service_ms or layer.fixed_ms) for layer, one in rows]


class Duplex(Fault):
    """Both directions run at once on every platform."""

    requirement = "OFF-014"
    killed_by = case("schedule/shared-link", "schedule/base")

    def read_plan(self, plan: Request) -> Plan:
        return replace(super().read_plan(plan), independent=True)


class NeverDuplex(Fault):
    """Directions always exclude each other."""

    requirement = "OFF-014"
    killed_by = case("schedule/independent-directions")

    def read_plan(self, plan: Request) -> Plan:
        return replace(super().read_plan(plan), independent=False)


class Recurrence(Fault):
    """The recurrence with one of its maxima spoiled."""

    def opens(self, plan: Plan, done: Sequence[Times], index: int) -> float:
        """When the copy of a layer may start."""
        free = done[-1].copy_free_ms if done else 0.0
        slot = done[index - plan.slots].compute_end_ms if index >= plan.slots else 0.0
        return max(free, slot)

    def resident_free(self, done: Sequence[Times]) -> float:
        """When the copy engine is free after a layer without cold rows."""
        return done[-1].copy_free_ms if done else 0.0

    def starts(self, before: float, ready: float) -> float:
        """When a layer starts."""
        return max(before, ready)

    def schedule(self, plan: Plan) -> list[Times]:
        done: list[Times] = []
        for index, (layer, one) in enumerate(zip(plan.layers, super().schedule(plan), strict=True)):
            ready, free = 0.0, self.resident_free(done)
            if layer.cold:
                ready = free = self.opens(plan, done, index) + one.service_ms
            before = done[-1].compute_end_ms if done else 0.0
            start = self.starts(before, ready)
            end = start + layer.compute_ms
            done.append(Times(one.service_ms, free, ready, start, end, start - before))
        return done


class EngineForgotten(Recurrence):
    """A resident layer is ready at 0, and so is the copy engine."""

    requirement = "OFF-015"
    killed_by = case(
        "schedule/resident-between-copies", "schedule/two-residents-between-copies", "run/resident-between"
    )

    def resident_free(self, done: Sequence[Times]) -> float:
        return 0.0


class EngineRememberedOnce(Recurrence):
    """The copy engine's time is carried past one resident layer and not past two."""

    requirement = "OFF-015"
    killed_by = case("schedule/two-residents-between-copies")

    def resident_free(self, done: Sequence[Times]) -> float:
        return done[-1].data_ready_ms if done else 0.0


class CopiesAtOnce(Recurrence):
    """Copies start as soon as their slot is free; the driver will see to it."""

    requirement = "OFF-015"
    killed_by = case("schedule/base", "schedule/constant-times", "run/transfer-bound", "run/base")

    def opens(self, plan: Plan, done: Sequence[Times], index: int) -> float:
        return done[index - plan.slots].compute_end_ms if index >= plan.slots else 0.0


class SlotsWithoutWait(Recurrence):
    """A copy starts when the one before has ended, whoever reads the slot."""

    requirement = "OFF-016"
    killed_by = case("schedule/slot-wait", "schedule/three-slots", "run/compute-bound", "schedule/one-slot")

    def opens(self, plan: Plan, done: Sequence[Times], index: int) -> float:
        return done[-1].copy_free_ms if done else 0.0


class TwoSlotsAlways(Recurrence):
    """Double buffering is written into the schedule."""

    requirement = "OFF-016"
    killed_by = case(
        "schedule/three-slots", "schedule/one-slot", "schedule/more-slots-than-layers", "schedule/more-slots"
    )

    def opens(self, plan: Plan, done: Sequence[Times], index: int) -> float:
        return super().opens(replace(plan, slots=2), done, index)


class SlotAfterSubmission(Recurrence):
    """A slot counts as free when its reader was started."""

    requirement = "OFF-016"
    killed_by = case("schedule/slot-wait", "run/compute-bound")

    def opens(self, plan: Plan, done: Sequence[Times], index: int) -> float:
        free = done[-1].copy_free_ms if done else 0.0
        return max(free, done[index - plan.slots].compute_start_ms if index >= plan.slots else 0.0)


class ComputeBeforeData(Recurrence):
    """The layer is launched after the copy was submitted, not after it arrived."""

    requirement = "OFF-017"
    killed_by = case("schedule/base", "schedule/one-layer", "run/base", "run/transfer-bound")

    def starts(self, before: float, ready: float) -> float:
        return before


class ComputeAtOnce(Recurrence):
    """A layer starts when its rows are there, whether or not the layer before has ended."""

    requirement = "OFF-017"
    killed_by = case("schedule/constant-times-compute-bound", "schedule/unequal-layers", "run/compute-bound")

    def starts(self, before: float, ready: float) -> float:
        return ready


class Sums(Fault):
    """Totals that are taken from other terms."""

    changes: ClassVar[Any]

    def totals(self, plan: Plan, times: Sequence[Times]) -> Totals:
        found = super().totals(plan, times)
        return replace(found, **type(self).changes(plan, times, found))


class QueueLeftOut(Sums):
    """What the request waits for is taken to be the pipeline."""

    requirement = "OFF-018"
    killed_by = case("schedule/base", "schedule/queue", "schedule/zero-layers")

    @staticmethod
    def changes(plan: Plan, times: Sequence[Times], found: Totals) -> dict[str, float]:
        """The visible time without the queue."""
        return {"visible_ms": found.pipeline_ms}


class AllTransferHidden(Sums):
    """The shorter of transfer and compute is taken to be hidden."""

    requirement = "OFF-018"
    killed_by = case("schedule/base", "schedule/one-slot", "schedule/one-layer")

    @staticmethod
    def changes(plan: Plan, times: Sequence[Times], found: Totals) -> dict[str, float]:
        """The hidden time by the ideal."""
        fetch = sum(one.service_ms for one in times)
        return {"hidden_ms": min(fetch, found.no_overlap_ms - fetch)}


class FirstStallOnly(Sums):
    """Stall is measured before the first layer and taken for all."""

    requirement = "OFF-018"
    killed_by = case("schedule/one-slot", "schedule/constant-times")

    @staticmethod
    def changes(plan: Plan, times: Sequence[Times], found: Totals) -> dict[str, float]:
        """The stall of the first layer."""
        return {"stall_ms": times[0].stalls_ms if times else 0.0}


FAULTS = found(globals())
