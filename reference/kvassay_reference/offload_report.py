"""A report of an offloaded iteration, held against its plan.

Any schedule is legal that respects the link, the slots, the data and the order of the layers. Bytes and memory follow
from the plan alone; times follow from the events.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from . import offload
from .offload import LayerLedger, Plan, Rule

Json = Mapping[str, Any]

SLACK_MS = 1e-6
"""Times agree within a nanosecond."""

RECEIPT = ("slot", "owner", "cache_generation", "blocks", "payload_bytes", "fetch_start_ms", "fetch_end_ms")
"""Members of an event that a copy adds."""


def rules(plan: Plan, document: Json) -> Iterator[Rule]:
    """Every rule in its order."""
    yield from identity(plan, document)
    yield from rows(plan, document["events"])
    yield from stated_bytes(plan, document)
    yield from bandwidth(plan, document["bandwidth"])
    yield from order(plan, document["events"])
    yield from stated_memory(plan, document["memory"])
    yield from stated_times(plan, document)


def has_copy(event: Json) -> bool:
    """Whether an event says anything of a copy."""
    return any(name in event for name in RECEIPT)


def identity(plan: Plan, document: Json) -> Iterator[Rule]:
    """Copies are bound to the plan's owner and generation; a lossy codec is not exact."""
    for event in filter(has_copy, document["events"]):
        yield event.get("owner", plan.owner) == plan.owner, "TRANSFER_OF_OTHER_OWNER"
        generation = event.get("cache_generation", plan.cache_generation)
        yield generation == plan.cache_generation, "STALE_CACHE_GENERATION"
    moved = any(layer.cold for layer in plan.layers)
    yield plan.lossless or not moved or document["claim"]["exactness"] != "exact", "LOSSY_CALLED_EXACT"


def rows(plan: Plan, events: list[Json]) -> Iterator[Rule]:
    """One event a layer, the whole support, and exactly the covering blocks."""
    yield [event["layer"] for event in events] == [*range(len(plan.layers))], "LAYERS_MISMATCH"
    for event, layer in zip(events, plan.layers, strict=False):
        yield same_positions(offload.spans(event["support"]), layer.required), "SUPPORT_CHANGED"
    for event, layer in zip(events, plan.layers, strict=False):
        whole = all(name in event for name in RECEIPT)
        yield whole if layer.cold else True, "TRANSFER_MISSING"
        yield bool(layer.cold) or not has_copy(event), "TRANSFER_UNEXPECTED"
    for event, one in zip(events, offload.ledgers(plan), strict=False):
        if one.blocks:
            yield event.get("blocks") == one.blocks, "BLOCKS_MISMATCH"
            yield event.get("payload_bytes") == one.h2d_bytes, "RECEIPT_BYTES_MISMATCH"


def same_positions(a: offload.Spans, b: offload.Spans) -> bool:
    """Whether two lists of spans name the same positions in the same order."""
    return joined(a) == joined(b)


def joined(several: offload.Spans) -> list[offload.Span]:
    """Spans with neighbours that touch made one, and empty ones left out."""
    found: list[offload.Span] = []
    for first, end in several:
        if first >= end:
            continue
        if found and found[-1][1] == first:
            found[-1] = (found[-1][0], end)
        else:
            found.append((first, end))
    return found


def stated_bytes(plan: Plan, document: Json) -> Iterator[Rule]:
    """The ledger, kind by kind."""
    stated, derived = document["ledger"], offload.traffic(plan, offload.ledgers(plan)).to_json()
    yield stated["request_bytes"] == offload.request_bytes(plan), "REQUEST_BYTES_MISMATCH"
    for names, reason in (
        (("logical_bytes",), "LOGICAL_BYTES_MISMATCH"),
        (("h2d_bytes", "h2d_blocks"), "H2D_BYTES_MISMATCH"),
        (("d2h_bytes", "d2h_blocks"), "D2H_BYTES_MISMATCH"),
        (("descriptor_bytes", "protocol_bytes"), "METADATA_BYTES_MISMATCH"),
        (("wire_bytes", "traffic_bytes"), "TRAFFIC_BYTES_MISMATCH"),
    ):
        yield all(stated[name] == derived[name] for name in names), reason
    whole = stated["requests"] * derived["h2d_bytes"]
    yield stated["iteration_h2d_bytes"] == whole, "ITERATION_BYTES_MISMATCH"


def bandwidth(plan: Plan, stated: Json) -> Iterator[Rule]:
    """Rates in bytes a second, within one byte."""
    yield abs(stated["h2d_bytes_per_s"] - plan.h2d_bytes_per_s) <= 1, "BANDWIDTH_UNIT_MISMATCH"
    yield abs(stated["d2h_bytes_per_s"] - plan.d2h_bytes_per_s) <= 1, "BANDWIDTH_UNIT_MISMATCH"


def order(plan: Plan, events: list[Json]) -> Iterator[Rule]:
    """The events, layer by layer."""
    engine_free = before = 0.0
    slot_free: dict[int, float] = {}
    for event, layer, one in zip(events, plan.layers, offload.ledgers(plan), strict=False):
        start, end = event["compute_start_ms"], event["compute_end_ms"]
        yield end - start >= layer.compute_ms - SLACK_MS, "COMPUTE_SHORTER_THAN_PLANNED"
        if one.blocks:
            yield from copy_order(plan, layer, one, event, engine_free, slot_free)
            engine_free, slot_free[event["slot"]] = event["fetch_end_ms"], end
        yield start >= before - SLACK_MS, "COMPUTE_OUT_OF_ORDER"
        before = end


def copy_order(
    plan: Plan,
    layer: offload.Layer,
    one: LayerLedger,
    event: Json,
    engine_free: float,
    slot_free: Mapping[int, float],
) -> Iterator[Rule]:
    """One copy: no faster than its service, after the copy before it, into a free slot, before its reader."""
    opens, closes, slot = event["fetch_start_ms"], event["fetch_end_ms"], event["slot"]
    least = offload.service_ms(plan, layer, len(one.blocks))
    yield closes - opens >= least - SLACK_MS, "TRANSFER_FASTER_THAN_LINK"
    yield opens >= engine_free - SLACK_MS, "COPIES_OVERLAP"
    yield slot == event["layer"] % plan.slots, "SLOT_OUT_OF_RANGE"
    yield opens >= slot_free.get(slot, 0.0) - SLACK_MS, "SLOT_REUSED_EARLY"
    yield event["compute_start_ms"] >= closes - SLACK_MS, "COMPUTE_BEFORE_DATA"


def stated_memory(plan: Plan, stated: Json) -> Iterator[Rule]:
    """Staging and peak."""
    yield stated["staging_bytes"] == offload.staging_bytes(plan), "STAGING_BYTES_MISMATCH"
    yield stated["gpu_peak_bytes"] == offload.gpu_peak_bytes(plan), "GPU_PEAK_MISMATCH"


def stated_times(plan: Plan, document: Json) -> Iterator[Rule]:
    """Service, stall and hidden time follow from the events; the request waits for the queue, too."""
    stated, events = document["times"], document["events"]
    ends = [0.0, *(event["compute_end_ms"] for event in events)]
    stall = sum(event["compute_start_ms"] - end for event, end in zip(events, ends, strict=False))
    apart = offload.totals(plan, offload.schedule(plan)).no_overlap_ms
    for name, value in (("service_ms", ends[-1]), ("stall_ms", stall), ("hidden_ms", apart - ends[-1])):
        yield abs(stated[name] - value) <= SLACK_MS, "SERVICE_TIME_MISMATCH"
    least = plan.scheduler_queue_ms + stated["service_ms"]
    yield stated["visible_ms"] >= least - SLACK_MS, "QUEUE_NOT_COUNTED"
