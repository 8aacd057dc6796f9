"""Faults of the contract offload: the reference with one realistic defect each."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from kvassay_reference import offload
from kvassay_reference.offload import Demand, LayerLedger, Memory, Plan, Rule, Times, Totals, Traffic
from kvassay_reference.offload_cost import Cost, Model, Policy, Regime, Stage

from ..engines.reference import Reference
from . import base
from .base import Fault, ids, unchecked

Request = Mapping[str, Any]
Result = dict[str, Any]

CORRECT = (Reference,)


case = ids("offload")
"""Ids of this contract's cases."""


# --- rules that are not checked ------------------------------------------------------------------------------------


class Blind(base.Blind):
    """One rule is not checked."""

    def plan_rules(self, plan: Plan) -> Iterable[Rule]:
        return self.seen(super().plan_rules(plan))

    def rules(self, plan: Plan, document: Request) -> Iterable[Rule]:
        return self.seen(super().rules(plan, document))

    def recoverable(self, plan: Plan, copies: Sequence[offload.Spans]) -> Iterable[Rule]:
        return self.seen(super().recoverable(plan, copies))

    def within(self, taken: Demand, budgets: Request) -> Iterable[Rule]:
        return self.seen(super().within(taken, budgets))


UNCHECKED = {
    "BLOCK_NOT_MULTIPLE": ("OFF-007", "ledger/block-not-a-multiple", "ledger/block-smaller", "report/gpu-block"),
    "SPANS_NOT_ASCENDING": (
        "OFF-011",
        "ledger/spans-overlap",
        "ledger/spans-out-of-order",
        "ledger/empty-span",
        "ledger/resident-spans-overlap",
        "report/resident-twice",
    ),
    "SUPPORT_BEYOND_COMMIT": (
        "OFF-011",
        "ledger/beyond-commit",
        "ledger/resident-beyond-commit",
        "report/required-beyond-commit",
    ),
    "ACCEPTED_BEYOND_NEW": ("OFF-008", "ledger/accepted-beyond-new", "report/accepted-beyond-new"),
    "WIRE_BYTES_MISMATCH": ("OFF-009", "ledger/identity-codec-changes-bytes", "report/wire-of-identity"),
    "TRANSFER_OF_OTHER_OWNER": ("OFF-003", "report/other-owner"),
    "STALE_CACHE_GENERATION": ("OFF-003", "report/stale-generation"),
    "LOSSY_CALLED_EXACT": ("OFF-002", "report/lossy-codec", "report/lossy-and-approximate"),
    "LAYERS_MISMATCH": ("OFF-030", "report/layer-twice", "report/last-layer-missing"),
    "SUPPORT_CHANGED": (
        "OFF-001",
        "report/kernel-reads-cold-part",
        "report/kernel-reads-resident-part",
        "report/kernel-reads-a-draft",
        "report/kernel-reads-a-row-twice",
    ),
    "TRANSFER_MISSING": ("OFF-030", "report/no-receipt-of-bytes"),
    "TRANSFER_UNEXPECTED": ("OFF-030", "report/copy-of-resident-layer"),
    "BLOCKS_MISMATCH": ("OFF-030", "report/block-left-out", "report/other-block"),
    "RECEIPT_BYTES_MISMATCH": ("OFF-030", "report/short-receipt"),
    "REQUEST_BYTES_MISMATCH": ("OFF-031", "report/request-keys-only"),
    "LOGICAL_BYTES_MISMATCH": ("OFF-031", "report/logical-is-all-rows"),
    "H2D_BYTES_MISMATCH": ("OFF-031", "report/descriptors-as-payload", "report/one-block-more"),
    "D2H_BYTES_MISMATCH": ("OFF-031", "report/writeback-forgotten"),
    "METADATA_BYTES_MISMATCH": ("OFF-031", "report/descriptors-one-way"),
    "TRAFFIC_BYTES_MISMATCH": ("OFF-031", "report/traffic-one-way", "report/wire-with-metadata"),
    "ITERATION_BYTES_MISMATCH": ("OFF-031", "report/iteration-of-one"),
    "BANDWIDTH_UNIT_MISMATCH": ("OFF-012", "report/decimal-giga", "report/decimal-giga-down"),
    "TRANSFER_FASTER_THAN_LINK": ("OFF-013", "report/faster-than-service"),
    "COMPUTE_SHORTER_THAN_PLANNED": ("OFF-017", "report/shorter-compute"),
    "COPIES_OVERLAP": ("OFF-015", "report/copies-at-once"),
    "SLOT_OUT_OF_RANGE": ("OFF-016", "report/other-slot"),
    "SLOT_REUSED_EARLY": ("OFF-016", "report/slot-still-read"),
    "COMPUTE_BEFORE_DATA": ("OFF-017", "report/compute-before-data", "report/within-a-nanosecond"),
    "COMPUTE_OUT_OF_ORDER": ("OFF-017", "report/layers-at-once"),
    "STAGING_BYTES_MISMATCH": ("OFF-020", "report/one-slot-counted", "report/fixed-slots"),
    "GPU_PEAK_MISMATCH": ("OFF-021", "report/workspace-left-out"),
    "SERVICE_TIME_MISMATCH": ("OFF-031", "report/service-is-the-wire", "report/stall-denied", "report/all-hidden"),
    "QUEUE_NOT_COUNTED": ("OFF-018", "report/queue-left-out", "report/longer-wait"),
    "SUPPORT_NOT_RECOVERABLE": ("OFF-023", "admit/a-row-without-a-copy", "admit/a-layer-without-copies"),
    "GPU_BUDGET_EXCEEDED": ("OFF-022", "admit/gpu-short-by-one"),
    "HOST_BUDGET_EXCEEDED": ("OFF-022", "admit/host-short-by-one"),
    "PINNED_BUDGET_EXCEEDED": ("OFF-022", "admit/pinned-short-by-one"),
    "H2D_BUDGET_EXCEEDED": ("OFF-022", "admit/h2d-short-by-one"),
    "D2H_BUDGET_EXCEEDED": ("OFF-022", "admit/d2h-short-by-one"),
    "CREDITS_EXHAUSTED": ("OFF-022", "admit/credits-short-by-one"),
}
"""Reason to the requirement and the cases that miss its rule."""


BLINDS = tuple(unchecked(Blind, __name__, reason, row[0], case(*row[1:])) for reason, row in UNCHECKED.items())


class OwnScheduleOnly(Fault):
    """A report is legal only with the times of one's own schedule."""

    requirement = "OFF-031"
    killed_by = case("report/unhurried-schedule")

    def rules(self, plan: Plan, document: Request) -> Iterator[Rule]:
        yield from super().rules(plan, document)
        end = offload.schedule(plan)[-1].compute_end_ms
        yield math.isclose(document["events"][-1]["compute_end_ms"], end), "SERVICE_TIME_MISMATCH"


class NoSlack(Fault):
    """Times of two clocks are compared to the last bit."""

    requirement = "OFF-017"
    killed_by = case("report/within-a-nanosecond")

    def rules(self, plan: Plan, document: Request) -> Iterator[Rule]:
        yield from super().rules(plan, document)
        for event in document["events"]:
            yield event["compute_start_ms"] >= event.get("fetch_end_ms", 0.0), "COMPUTE_BEFORE_DATA"


class QueueExactly(Fault):
    """The visible time has to be queue and service, as if a request waited for nothing else."""

    requirement = "OFF-018"
    killed_by = case("report/longer-wait")

    def rules(self, plan: Plan, document: Request) -> Iterator[Rule]:
        yield from super().rules(plan, document)
        times = document["times"]
        yield times["visible_ms"] <= plan.scheduler_queue_ms + times["service_ms"] + 1e-6, "QUEUE_NOT_COUNTED"


class SupportAsWritten(Fault):
    """Supports are compared as lists of spans."""

    requirement = "OFF-001"
    killed_by = case("report/support-in-other-spans")

    def rules(self, plan: Plan, document: Request) -> Iterator[Rule]:
        pairs = zip(document["events"], plan.layers, strict=False)
        yield all(offload.spans(event["support"]) == layer.required for event, layer in pairs), "SUPPORT_CHANGED"
        yield from super().rules(plan, document)


class OnlyIdentityIsExact(Fault):
    """Whatever changes bytes on the wire counts as lossy."""

    requirement = "OFF-002"
    killed_by = case("report/lossless-and-exact")

    def parse(self, plan: Request) -> Plan:
        made = super().parse(plan)
        return replace(made, lossless=made.codec == "identity")


class LossyIsIllegal(Fault):
    """A lossy codec is rejected under any claim."""

    requirement = "OFF-002"
    killed_by = case("report/lossy-and-approximate")

    def rules(self, plan: Plan, document: Request) -> Iterator[Rule]:
        yield plan.lossless, "LOSSY_CALLED_EXACT"
        yield from super().rules(plan, document)


class LastReason(Fault):
    """Rules are checked as it comes, and the last that fails is named."""

    requirement = "OFF-032"
    killed_by = case(
        "precedence/identity-before-support",
        "precedence/support-before-bytes",
        "precedence/bytes-before-events",
        "precedence/events-before-memory",
        "precedence/memory-before-times",
        "admit/several-budgets-short",
    )

    def rules(self, plan: Plan, document: Request) -> Iterable[Rule]:
        return reversed(list(super().rules(plan, document)))

    def within(self, taken: Demand, budgets: Request) -> Iterable[Rule]:
        return reversed(list(super().within(taken, budgets)))


class PlanLast(Fault):
    """The events are looked at before the plan that they are judged by."""

    requirement = "OFF-032"
    killed_by = case("precedence/plan-first")

    def plan_rules(self, plan: Plan) -> Iterable[Rule]:
        return ()

    def rules(self, plan: Plan, document: Request) -> Iterator[Rule]:
        yield from super().rules(plan, document)
        yield from offload.rules(plan)


# --- bytes ---------------------------------------------------------------------------------------------------------


def with_layers(plan: Plan, **changes: Any) -> Plan:
    """The plan with members of every layer replaced, each by a function of the layer or by a value."""
    return replace(
        plan,
        layers=tuple(
            replace(one, **{name: value(one) if callable(value) else value for name, value in changes.items()})
            for one in plan.layers
        ),
    )


class DenseRows(Fault):
    """Every row is taken for 8 heads of 128 channels in 16 bits."""

    requirement = "OFF-004"
    killed_by = case("ledger/declared-row", "ledger/quantised-row", "ledger/widths-differ")

    def read_plan(self, plan: Request) -> Plan:
        return with_layers(super().read_plan(plan), row_bytes=4096)


class FirstLayersRows(Fault):
    """The first layer's geometry is taken for all."""

    requirement = "OFF-004"
    killed_by = case("ledger/layers-differ")

    def read_plan(self, plan: Request) -> Plan:
        made = super().read_plan(plan)
        return with_layers(made, row_bytes=made.layers[0].row_bytes) if made.layers else made


class TwiceK(Fault):
    """K and V are taken to be equally wide."""

    requirement = "OFF-004"
    killed_by = case("ledger/widths-differ")

    def read_plan(self, plan: Request) -> Plan:
        made = super().read_plan(plan)
        rows = [layer["row"] for layer in plan["layers"]]
        layers = (
            replace(one, row_bytes=2 * row["kv_heads"] * row["channels"] * row["k_item_bytes"])
            if row["form"] == "dense"
            else one
            for one, row in zip(made.layers, rows, strict=True)
        )
        return replace(made, layers=tuple(layers))


class ResidentIsAPrefix(Fault):
    """Hits are kept as a count of rows from the start."""

    requirement = "OFF-005"
    killed_by = case("ledger/resident-in-the-middle", "ledger/resident-beyond-required")

    def read_plan(self, plan: Request) -> Plan:
        return with_layers(super().read_plan(plan), resident=lambda one: ((0, offload.length(one.resident)),))


class WholeHistory(Fault):
    """Every layer is taken to need the whole history."""

    requirement = "OFF-005"
    killed_by = case("ledger/window-layer", "ledger/two-spans-in-one-block")

    def read_plan(self, plan: Request) -> Plan:
        made = super().read_plan(plan)
        return with_layers(made, required=((0, made.positions),))


class AllRowsCold(Fault):
    """Resident rows are fetched again."""

    requirement = "OFF-005"
    killed_by = case("ledger/base", "ledger/nothing-cold", "ledger/colder")

    def read_plan(self, plan: Request) -> Plan:
        return with_layers(super().read_plan(plan), resident=())


class Ledgers(Fault):
    """Another ledger of a layer."""

    def ledger(self, plan: Plan, layer: offload.Layer, one: LayerLedger) -> LayerLedger:
        """The ledger of one layer."""
        raise NotImplementedError

    def layer_ledgers(self, plan: Plan) -> list[LayerLedger]:
        rows = zip(plan.layers, super().layer_ledgers(plan), strict=True)
        return [self.ledger(plan, layer, one) for layer, one in rows]


class BlocksOfEachSpan(Ledgers):
    """A block that two spans touch is copied twice."""

    requirement = "OFF-006"
    killed_by = case("ledger/two-spans-in-one-block")

    def ledger(self, plan: Plan, layer: offload.Layer, one: LayerLedger) -> LayerLedger:
        blocks = [block for span in layer.cold for block in offload.covering((span,), plan.block_tokens)]
        return replace(one, blocks=blocks, h2d_bytes=len(blocks) * one.block_bytes)


class RowsOverBlockSize(Ledgers):
    """The number of blocks is that of the cold rows over the block size, rounded up."""

    requirement = "OFF-006"
    killed_by = case("ledger/straddling-rows")

    def ledger(self, plan: Plan, layer: offload.Layer, one: LayerLedger) -> LayerLedger:
        count = -(-one.cold_rows // plan.block_tokens)
        blocks = one.blocks[:count]
        return replace(one, blocks=blocks, h2d_bytes=count * one.block_bytes)


class RowsAlone(Ledgers):
    """Only the cold rows are counted, and whole blocks are moved."""

    requirement = "OFF-006"
    killed_by = case("ledger/one-row-of-a-block", "ledger/larger-blocks", "ledger/partial-last-block")

    def ledger(self, plan: Plan, layer: offload.Layer, one: LayerLedger) -> LayerLedger:
        return replace(one, h2d_bytes=one.logical_bytes, read_amplification=1.0)


class LastBlockCut(Ledgers):
    """The last block ends at the frontier."""

    requirement = "OFF-006"
    killed_by = case("ledger/partial-last-block")

    def ledger(self, plan: Plan, layer: offload.Layer, one: LayerLedger) -> LayerLedger:
        beyond = (plan.block_tokens - plan.positions % plan.block_tokens) % plan.block_tokens
        last = bool(one.blocks) and one.blocks[-1] == plan.positions // plan.block_tokens
        return replace(one, h2d_bytes=one.h2d_bytes - beyond * one.row_bytes * last)


class NothingOverNothing(Ledgers):
    """The read amplification of nothing is zero."""

    requirement = "OFF-006"
    killed_by = case("ledger/nothing-cold", "ledger/base")

    def ledger(self, plan: Plan, layer: offload.Layer, one: LayerLedger) -> LayerLedger:
        return one if one.cold_rows else replace(one, read_amplification=0.0)


class DivisorIsMultiple(Fault):
    """Either block may be a multiple of the other."""

    requirement = "OFF-007"
    killed_by = case("ledger/block-smaller")

    def plan_rules(self, plan: Plan) -> Iterator[Rule]:
        either = plan.gpu_block_tokens % plan.block_tokens == 0
        return ((holds or (either and reason == "BLOCK_NOT_MULTIPLE"), reason) for holds, reason in offload.rules(plan))


class DraftsWrittenBack(Fault):
    """All new rows are written back, accepted or not."""

    requirement = "OFF-008"
    killed_by = case("ledger/drafts-rejected", "ledger/nothing-accepted")

    def read_plan(self, plan: Request) -> Plan:
        made = super().read_plan(plan)
        return replace(made, accepted_positions=made.new_positions)


class WrittenByCount(Fault):
    """Written blocks are the rows over the block size, rounded up, wherever they stand."""

    requirement = "OFF-008"
    killed_by = case("ledger/writeback-across-a-boundary", "ledger/partial-last-block")

    def traffic(self, plan: Plan) -> Traffic:
        return offload.traffic(replace(plan, positions=0), self.layer_ledgers(plan))


class DescriptorsAsPayload(Fault):
    """Descriptors ride along in the payload's ledger."""

    requirement = "OFF-009"
    killed_by = case("ledger/base", "ledger/protocol-apart")

    def traffic(self, plan: Plan) -> Traffic:
        one = super().traffic(plan)
        return replace(one, h2d_bytes=one.h2d_bytes + one.descriptor_bytes, descriptor_bytes=0)


class DescriptorsOneWay(Fault):
    """Only promotions have descriptors."""

    requirement = "OFF-009"
    killed_by = case("ledger/base", "ledger/protocol-apart")

    def traffic(self, plan: Plan) -> Traffic:
        one = super().traffic(plan)
        return replace(one, descriptor_bytes=one.h2d_blocks * plan.descriptor_bytes)


class PayloadOnTheWire(Fault):
    """The codec is left out of the wire's ledger and of its time."""

    requirement = "OFF-009"
    killed_by = case("ledger/lossless-codec")

    def read_plan(self, plan: Request) -> Plan:
        made = super().read_plan(plan)
        return with_layers(made, wire_block_bytes=lambda one: one.row_bytes * made.block_tokens)


class OneRequestTimesTheirNumber(Fault):
    """An iteration is its first request, as often as there are requests."""

    requirement = "OFF-010"
    killed_by = case("ledger/unlike-requests")

    def iteration(self, several: Sequence[Traffic]) -> Traffic:
        return super().iteration([*several[:1]] * len(several))


class LargestRequest(Fault):
    """An iteration is its largest request."""

    requirement = "OFF-010"
    killed_by = case("ledger/three-requests", "ledger/unlike-requests")

    def iteration(self, several: Sequence[Traffic]) -> Traffic:
        return super().iteration(sorted(several, key=lambda one: one.h2d_bytes)[-1:])


class IdleIterationMovesABlock(Fault):
    """A ledger begins with a block that is always counted."""

    requirement = "OFF-010"
    killed_by = case("ledger/no-requests", "ledger/zero-layers")

    def iteration(self, several: Sequence[Traffic]) -> Traffic:
        return super().iteration([Traffic(0, 0, 0, 0, 0, 1, 64, 0), *several])


class FirstPlanChecked(Fault):
    """Only the first plan of an iteration is checked."""

    requirement = "OFF-011"
    killed_by = case("ledger/second-request-checked")

    def offload_ledger(self, request: Request) -> Result:
        self.checked = False
        return super().offload_ledger(request)

    def plan_rules(self, plan: Plan) -> Iterable[Rule]:
        if getattr(self, "checked", False):
            return ()
        self.checked = True
        return super().plan_rules(plan)


# --- time ----------------------------------------------------------------------------------------------------------


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


# --- staging -------------------------------------------------------------------------------------------------------


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


# --- memory and admission ------------------------------------------------------------------------------------------


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


# --- regime --------------------------------------------------------------------------------------------------------


class Regimes(Fault):
    """A regime that is derived otherwise."""

    def changed(self, request: Request, found: Regime) -> Regime:
        """The regime."""
        raise NotImplementedError

    def regime(self, request: Request) -> Regime:
        return self.changed(request, super().regime(request))


class TieIsTransfer(Fault):
    """Equal times count as bound by transfer."""

    requirement = "OFF-024"
    killed_by = case("regime/tie")

    def offload_regime(self, request: Request) -> Result:
        found = super().offload_regime(request)
        return {**found, "bound": "transfer" if found["transfer_ms"] >= found["compute_ms"] else "compute"}


class BoundByRatio(Fault):
    """More cached than new tokens are taken to be bound by transfer."""

    requirement = "OFF-024"
    killed_by = case("regime/base", "regime/tie")

    def offload_regime(self, request: Request) -> Result:
        found = super().offload_regime(request)
        return {**found, "bound": "transfer" if found["ratio"] > 1 else "compute"}


class AlwaysComputeBound(Fault):
    """Prefill is taken to be bound by compute."""

    requirement = "OFF-024"
    killed_by = case("regime/transfer-bound", "regime/decimal-bandwidth")

    def offload_regime(self, request: Request) -> Result:
        return {**super().offload_regime(request), "bound": "compute"}


class RatioOfAllTokens(Regimes):
    """The ratio is taken of cached to all tokens."""

    requirement = "OFF-024"
    killed_by = case("regime/base", "regime/cold-equivalent", "regime/cached-tokens-alone")

    def changed(self, request: Request, found: Regime) -> Regime:
        cached, new = request["cached_tokens"], request["new_tokens"]
        return replace(found, ratio=cached / (cached + new), kappa_crit=found.kappa_crit * (1 + cached))


class AtLeastOneToken(Regimes):
    """No cached tokens are taken for one, so that nothing is divided by zero."""

    requirement = "OFF-024"
    killed_by = case("regime/nothing-cached")

    def changed(self, request: Request, found: Regime) -> Regime:
        return found if request["cached_tokens"] else super(Regimes, self).regime({**request, "cached_tokens": 1})


class ShareOfTheLonger(Fault):
    """The overlap is taken of the longer time."""

    requirement = "OFF-025"
    killed_by = case("regime/overlap")

    def overlapped_ms(self, found: Regime, eta: Request) -> float:
        super().overlapped_ms(found, eta)
        longer = max(found.transfer_ms, found.compute_ms)
        return found.transfer_ms + found.compute_ms - float(eta["value"]) * longer


class OverlapClamped(Fault):
    """An overlap out of range is brought back into it."""

    requirement = "OFF-025"
    killed_by = case("regime/overlap-out-of-range")

    def overlapped_ms(self, found: Regime, eta: Request) -> float:
        return super().overlapped_ms(found, {**eta, "value": min(1.0, max(0.0, eta["value"]))})


class OverlapAssumed(Fault):
    """Any overlap will do."""

    requirement = "OFF-025"
    killed_by = case("regime/overlap-assumed")

    def overlapped_ms(self, found: Regime, eta: Request) -> float:
        return super().overlapped_ms(found, {**eta, "evidence": "measured"})


class CriticalRatioOfOneMachine(Regimes):
    """The critical ratio was worked out once and written down."""

    requirement = "OFF-026"
    killed_by = case("regime/bandwidth-alone", "regime/compute-alone")

    def changed(self, request: Request, found: Regime) -> Regime:
        return replace(found, kappa_crit=67.584)


class RowsOfOneModel(Regimes):
    """The bytes of a token are those of the first model that was measured."""

    requirement = "OFF-026"
    killed_by = case("regime/kv-bytes-alone")

    def changed(self, request: Request, found: Regime) -> Regime:
        return super(Regimes, self).regime({**request, "kv_bytes_per_token": 16384})


class LinkOfOneMachine(Fault):
    """The link's rate is that of the first machine that was measured."""

    requirement = "OFF-026"
    killed_by = case("schedule/faster-link")

    def read_plan(self, plan: Request) -> Plan:
        return replace(super().read_plan(plan), h2d_bytes_per_s=24.0 * 2**30)


class HeadsOfOneModel(Fault):
    """Wire bytes are those of eight K/V heads."""

    requirement = "OFF-026"
    killed_by = case("schedule/fewer-kv-heads")

    def read_plan(self, plan: Request) -> Plan:
        return with_layers(super().read_plan(plan), wire_block_bytes=262144)


# --- FlexGen -------------------------------------------------------------------------------------------------------


class SumsForPaper(Fault):
    """The paper's rule is taken from the code."""

    requirement = "OFF-027"
    killed_by = case("policy/fixed-paper", "policy/found-paper", "policy/disk-paper")

    def cost(self, model: Model, hardware: Request, policy: Policy, rule: str) -> Cost:
        return super().cost(model, hardware, policy, "flexgen/code")


class LongestForCode(Fault):
    """The code's rule is taken from the paper."""

    requirement = "OFF-028"
    killed_by = case("policy/fixed-code", "policy/found-code", "policy/disk-code")

    def cost(self, model: Model, hardware: Request, policy: Policy, rule: str) -> Cost:
        return super().cost(model, hardware, policy, "flexgen/paper")


class FirstTokenTwice(Fault):
    """Generation is counted for every token, though prefill yields the first."""

    requirement = "OFF-027"
    killed_by = case("policy/fixed-paper", "policy/disk-paper")

    def cost(self, model: Model, hardware: Request, policy: Policy, rule: str) -> Cost:
        found = super().cost(model, hardware, policy, rule)
        generation_s = found.generation_s * model.generated_tokens / (model.generated_tokens - 1)
        total = found.prefill_s + generation_s
        tokens = policy.block_batch * model.generated_tokens
        return replace(found, generation_s=generation_s, tokens_per_s=tokens / total)


class FastestRegardless(Fault):
    """The fastest policy is chosen, and memory is looked at later."""

    requirement = "OFF-029"
    killed_by = case("policy/search", "policy/nothing-fits-gpu", "policy/nothing-fits-host", "policy/nothing-fits-disk")

    def choose(self, costs: Sequence[Cost], budgets: Request) -> int:
        return max(range(len(costs)), key=lambda index: costs[index].tokens_per_s)


class LastOfEquals(Fault):
    """Of equal policies the last one is chosen."""

    requirement = "OFF-029"
    killed_by = case("policy/ties-go-to-the-first")

    def choose(self, costs: Sequence[Cost], budgets: Request) -> int:
        return len(costs) - 1 - super().choose(costs[::-1], budgets)


class SharesNormalised(Fault):
    """Shares that do not add up are scaled until they do."""

    requirement = "OFF-029"
    killed_by = case("policy/shares-do-not-add-up")

    def read_policy(self, policy: Request) -> Policy:
        shares = {
            kind: {tier: value / sum(policy[kind].values()) for tier, value in policy[kind].items()}
            for kind in ("weights", "cache", "hidden")
        }
        return super().read_policy({**policy, **shares})


class BatchesRounded(Fault):
    """A block that is no whole number of batches is rounded up."""

    requirement = "OFF-029"
    killed_by = case("policy/block-of-batches")

    def read_policy(self, policy: Request) -> Policy:
        batch = policy["gpu_batch"]
        return super().read_policy({**policy, "block_batch": -(-policy["block_batch"] // batch) * batch})


# --- runs ----------------------------------------------------------------------------------------------------------


class Ran(Fault):
    """A run whose copies say something else."""

    changes: ClassVar[Mapping[str, Any]]

    def offload_run(self, request: Request) -> Result:
        events = super().offload_run(request)["events"]
        return {"events": [event | {k: v for k, v in self.changes.items() if k in event} for event in events]}


class RunOfOtherGeneration(Ran):
    """Copies are reserved under the generation before."""

    requirement = "OFF-003"
    killed_by = case("run/base", "run/resident-between")
    changes: ClassVar[Mapping[str, Any]] = {"cache_generation": 22}


class ShortRun(Ran):
    """A copy is published with a byte missing."""

    requirement = "OFF-030"
    killed_by = case("run/base", "run/transfer-bound")
    changes: ClassVar[Mapping[str, Any]] = {"payload_bytes": 1}


class ResidentSubset(Fault):
    """The kernel reads what the GPU held before the copies."""

    requirement = "OFF-001"
    killed_by = case("run/base")

    def event(self, plan: Plan, index: int, layer: offload.Layer, one: LayerLedger, times: Times) -> Result:
        return {
            **super().event(plan, index, layer, one, times),
            "support": [list(span) for span in layer.resident],
        }


FAULTS = (*base.found(globals()), *BLINDS)
