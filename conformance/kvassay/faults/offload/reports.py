"""Faults of *Reports* and *Exactness*: rules unchecked, too strict, or in another order."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from kvassay_reference import offload
from kvassay_reference.offload import Demand, Plan, Rule

from .. import base
from ..base import Fault, found, unchecked
from .base import Request, case


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


FAULTS = found(globals())
