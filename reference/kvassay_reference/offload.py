"""Exact offload: bytes of a plan, its layer schedule, its memory and its admission.

A plan says which rows each layer needs, which of them the GPU holds, over which link the rest comes and what the layers
cost. Nothing here looks at the contents of a row; moving rows changes where they are and not what attention means.
Times are in milliseconds, spans of positions are half open.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from .errors import Refusal

Json = Mapping[str, Any]
Span = tuple[int, int]
Spans = tuple[Span, ...]
Rule = tuple[bool, str]
"""Whether a rule holds, and the reason when it does not."""

BYTES_PER_S = {"GiB/s": 1 << 30, "GB/s": 1_000_000_000}


def bytes_per_s(bandwidth: Json) -> float:
    """A rate in its own unit as bytes a second: binary and decimal units differ by 7.4 percent."""
    return float(bandwidth["value"] * BYTES_PER_S[bandwidth["unit"]])


@dataclass(frozen=True)
class Row:
    """Bytes of one row: dense from heads and channels, or declared where no head count gives it."""

    bytes: int

    @classmethod
    def read(cls, row: Json) -> Row:
        """From its JSON form."""
        if row["form"] == "declared":
            return cls(row["row_bytes"])
        return cls(row["kv_heads"] * row["channels"] * (row["k_item_bytes"] + row["v_item_bytes"]))


@dataclass(frozen=True)
class Layer:
    """What one layer needs, holds and costs."""

    row_bytes: int
    required: Spans
    resident: Spans
    wire_block_bytes: int
    fixed_ms: float
    """Sum of the nine fixed terms of a promotion."""
    compute_ms: float

    @classmethod
    def read(cls, layer: Json) -> Layer:
        """From its JSON form."""
        return cls(
            Row.read(layer["row"]).bytes,
            spans(layer["required"]),
            spans(layer["resident"]),
            layer["wire_block_bytes"],
            sum(layer["fixed"].values()),
            layer["compute_ms"],
        )

    @property
    def cold(self) -> Spans:
        """Required positions that are not resident."""
        return difference(self.required, self.resident)


@dataclass(frozen=True)
class Plan:
    """One request of one scheduler iteration."""

    owner: str
    cache_generation: int
    positions: int
    new_positions: int
    accepted_positions: int
    block_tokens: int
    gpu_block_tokens: int
    descriptor_bytes: int
    protocol_bytes: int
    codec: str
    lossless: bool
    h2d_bytes_per_s: float
    d2h_bytes_per_s: float
    independent: bool
    """Whether both directions of the link were measured to run side by side."""
    slots: int
    fixed_slots: bool
    scheduler_queue_ms: float
    kernel_workspace_bytes: int
    layers: tuple[Layer, ...]


def accept(rules: Iterable[Rule]) -> None:
    """Raise the reason of the first rule that does not hold."""
    for holds, reason in rules:
        if not holds:
            raise Refusal(reason)


def read(plan: Json) -> Plan:
    """A plan from its JSON form, unchecked."""
    same = {name: plan[name] for name in Plan.__dataclass_fields__ if name in plan and name not in ("codec", "layers")}
    return Plan(
        **same,
        codec=plan["codec"]["name"],
        lossless=plan["codec"]["exactness"] == "lossless",
        h2d_bytes_per_s=bytes_per_s(plan["link"]["h2d"]),
        d2h_bytes_per_s=bytes_per_s(plan["link"]["d2h"]),
        independent=plan["link"]["duplex"] == "independent",
        fixed_slots=plan["staging"] == "fixed",
        layers=tuple(map(Layer.read, plan["layers"])),
    )


def rules(plan: Plan) -> Iterator[Rule]:
    """The rules of a plan in their order."""
    yield plan.block_tokens % plan.gpu_block_tokens == 0, "BLOCK_NOT_MULTIPLE"
    several = [one for layer in plan.layers for one in (layer.required, layer.resident)]
    yield all(map(ascending, several)), "SPANS_NOT_ASCENDING"
    yield all(end <= plan.positions for one in several for _, end in one), "SUPPORT_BEYOND_COMMIT"
    yield plan.accepted_positions <= plan.new_positions, "ACCEPTED_BEYOND_NEW"
    whole = all(layer.wire_block_bytes == plan.block_tokens * layer.row_bytes for layer in plan.layers)
    yield whole or plan.codec != "identity", "WIRE_BYTES_MISMATCH"


# ---- spans -------------------------------------------------------------------------------------------------------


def spans(lists: Sequence[Sequence[int]]) -> Spans:
    """Spans from their JSON form."""
    return tuple((first, end) for first, end in lists)


def ascending(several: Spans) -> bool:
    """Whether spans are non-empty, ascending and disjoint."""
    apart = all(end <= first for (_, end), (first, _) in pairwise(several))
    return apart and all(first < end for first, end in several)


def difference(several: Spans, without: Spans) -> Spans:
    """The positions of ascending spans that lie in no span of another list."""
    left: list[Span] = []
    for first, end in several:
        for gap_first, gap_end in without:
            if gap_end <= first or gap_first >= end:
                continue
            if gap_first > first:
                left.append((first, gap_first))
            first = max(first, gap_end)
        if first < end:
            left.append((first, end))
    return tuple(left)


def length(several: Spans) -> int:
    """How many positions disjoint spans hold."""
    return sum(end - first for first, end in several)


def covering(several: Spans, block_tokens: int) -> list[int]:
    """The blocks that hold a position of the spans, ascending."""
    found: dict[int, None] = {}
    for first, end in several:
        found.update(dict.fromkeys(range(first // block_tokens, (end - 1) // block_tokens + 1)))
    return list(found)


# ---- bytes -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LayerLedger:
    """Bytes of one layer's promotion."""

    row_bytes: int
    block_bytes: int
    cold_rows: int
    blocks: list[int]
    logical_bytes: int
    h2d_bytes: int
    read_amplification: float


@dataclass(frozen=True)
class Traffic:
    """Bytes that have to move, each kind in a member of its own."""

    logical_bytes: int
    h2d_bytes: int
    h2d_blocks: int
    wire_bytes: int
    d2h_bytes: int
    d2h_blocks: int
    descriptor_bytes: int
    protocol_bytes: int

    @property
    def traffic_bytes(self) -> int:
        """Payload of both directions, descriptors and protocol."""
        return self.h2d_bytes + self.d2h_bytes + self.descriptor_bytes + self.protocol_bytes

    def to_json(self) -> dict[str, int]:
        """As the op returns it."""
        return {**vars(self), "traffic_bytes": self.traffic_bytes}


def layer_ledger(plan: Plan, layer: Layer) -> LayerLedger:
    """Cold rows, the blocks that cover them, and what whole blocks cost."""
    rows, blocks = length(layer.cold), covering(layer.cold, plan.block_tokens)
    block_bytes = plan.block_tokens * layer.row_bytes
    logical, moved = rows * layer.row_bytes, len(blocks) * block_bytes
    amplification = moved / logical if logical else 1.0
    return LayerLedger(layer.row_bytes, block_bytes, rows, blocks, logical, moved, amplification)


def ledgers(plan: Plan) -> list[LayerLedger]:
    """One ledger a layer."""
    return [layer_ledger(plan, layer) for layer in plan.layers]


def written_blocks(plan: Plan) -> int:
    """Blocks of one layer that the accepted rows touch, from the frontier on."""
    if not plan.accepted_positions:
        return 0
    return len(covering(((plan.positions, plan.positions + plan.accepted_positions),), plan.block_tokens))


def traffic(plan: Plan, layers: Sequence[LayerLedger]) -> Traffic:
    """The bytes of one request from those of its layers."""
    back = written_blocks(plan)
    counts = np.array([len(one.blocks) for one in layers], np.int64)
    wire = np.array([layer.wire_block_bytes for layer in plan.layers], np.int64)
    promoted, demoted = int(counts.sum()), back * len(layers)
    return Traffic(
        logical_bytes=sum(one.logical_bytes for one in layers),
        h2d_bytes=sum(one.h2d_bytes for one in layers),
        h2d_blocks=promoted,
        wire_bytes=int(counts @ wire),
        d2h_bytes=back * sum(one.block_bytes for one in layers),
        d2h_blocks=demoted,
        descriptor_bytes=(promoted + demoted) * plan.descriptor_bytes,
        protocol_bytes=(promoted + demoted) * plan.protocol_bytes,
    )


def request_bytes(plan: Plan) -> int:
    """All committed rows of all layers."""
    return plan.positions * sum(layer.row_bytes for layer in plan.layers)


def iteration(several: Sequence[Traffic]) -> Traffic:
    """The sums over the admitted requests of one iteration."""
    return Traffic(*(sum(getattr(one, name) for one in several) for name in Traffic.__dataclass_fields__))


def writeback_bytes(plan: Plan) -> int:
    """What the write-back puts on the link."""
    return written_blocks(plan) * sum(layer.wire_block_bytes for layer in plan.layers)


# ---- time --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Times:
    """One layer in the schedule."""

    service_ms: float
    copy_free_ms: float
    data_ready_ms: float
    compute_start_ms: float
    compute_end_ms: float
    stalls_ms: float


def service_ms(plan: Plan, layer: Layer, blocks: int) -> float:
    """F_l: fixed terms and bytes over the link; nothing where nothing is cold."""
    return layer.fixed_ms + blocks * layer.wire_block_bytes / plan.h2d_bytes_per_s * 1e3 if blocks else 0.0


def schedule(plan: Plan) -> list[Times]:
    """The recurrence: a serial copy engine, slots in turn, layers in order.

    The copy engine's own time is carried from layer to layer apart from the time at which a layer's rows are ready.
    """
    done: list[Times] = []
    for index, layer in enumerate(plan.layers):
        engine_free = done[-1].copy_free_ms if done else 0.0
        before = done[-1].compute_end_ms if done else 0.0
        blocks = len(covering(layer.cold, plan.block_tokens))
        takes, ready = service_ms(plan, layer, blocks), 0.0
        if blocks:
            slot_free = done[index - plan.slots].compute_end_ms if index >= plan.slots else 0.0
            ready = engine_free = max(engine_free, slot_free) + takes
        start = max(before, ready)
        done.append(Times(takes, engine_free, ready, start, start + layer.compute_ms, start - before))
    return done


@dataclass(frozen=True)
class Totals:
    """What a schedule comes to."""

    wire_ms: float
    writeback_ms: float
    link_ms: float
    no_overlap_ms: float
    pipeline_ms: float
    hidden_ms: float
    stall_ms: float
    visible_ms: float


def totals(plan: Plan, times: Sequence[Times]) -> Totals:
    """Sums, ends and differences of a schedule."""
    wire = traffic(plan, ledgers(plan)).wire_bytes / plan.h2d_bytes_per_s * 1e3
    back = writeback_bytes(plan) / plan.d2h_bytes_per_s * 1e3
    apart = sum(one.service_ms for one in times) + sum(layer.compute_ms for layer in plan.layers)
    end = times[-1].compute_end_ms if times else 0.0
    return Totals(
        wire_ms=wire,
        writeback_ms=back,
        link_ms=max(wire, back) if plan.independent else wire + back,
        no_overlap_ms=apart,
        pipeline_ms=end,
        hidden_ms=apart - end,
        stall_ms=sum(one.stalls_ms for one in times),
        visible_ms=plan.scheduler_queue_ms + end,
    )


# ---- memory ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Memory:
    """Staging and GPU peak under both kinds of allocation."""

    staging_variable_bytes: int
    staging_fixed_bytes: int
    gpu_peak_variable_bytes: int
    gpu_peak_fixed_bytes: int


def memory(plan: Plan) -> Memory:
    """Hits, staging, new rows, descriptors and workspace live at once."""
    moved = np.array([one.h2d_bytes for one in ledgers(plan)], np.int64)
    variable = max((int(moved[first : first + plan.slots].sum()) for first in range(len(moved))), default=0)
    fixed = plan.slots * int(moved.max(initial=0))
    metadata = traffic(plan, ledgers(plan)).descriptor_bytes
    rest = resident_bytes(plan) + new_bytes(plan) + metadata + plan.kernel_workspace_bytes
    return Memory(variable, fixed, variable + rest, fixed + rest)


def resident_bytes(plan: Plan) -> int:
    """Rows that the GPU holds, needed now or not."""
    return sum(length(layer.resident) * layer.row_bytes for layer in plan.layers)


def new_bytes(plan: Plan) -> int:
    """Rows that the iteration computes, accepted or not."""
    return plan.new_positions * sum(layer.row_bytes for layer in plan.layers)


def staging_bytes(plan: Plan) -> int:
    """Staging under the plan's own kind of allocation."""
    found = memory(plan)
    return found.staging_fixed_bytes if plan.fixed_slots else found.staging_variable_bytes


def gpu_peak_bytes(plan: Plan) -> int:
    """Peak under the plan's own kind of allocation."""
    found = memory(plan)
    return found.gpu_peak_fixed_bytes if plan.fixed_slots else found.gpu_peak_variable_bytes


# ---- admission ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Demand:
    """What a request takes from each budget."""

    gpu_bytes: int
    host_bytes: int
    pinned_bytes: int
    h2d_bytes_per_s: float
    d2h_bytes_per_s: float
    jobs: int


REFUSALS = {
    "gpu_bytes": "GPU_BUDGET_EXCEEDED",
    "host_bytes": "HOST_BUDGET_EXCEEDED",
    "pinned_bytes": "PINNED_BUDGET_EXCEEDED",
    "h2d_bytes_per_s": "H2D_BUDGET_EXCEEDED",
    "d2h_bytes_per_s": "D2H_BUDGET_EXCEEDED",
    "jobs": "CREDITS_EXHAUSTED",
}
"""Each member of a demand and the reason when its budget does not hold it, in the order of the check."""


def demand(plan: Plan, host: Json, interval_ms: float) -> Demand:
    """Peak memory, bytes a second over the interval, and one job for each layer and direction."""
    promotions = sum(bool(layer.cold) for layer in plan.layers)
    demotions = len(plan.layers) if plan.accepted_positions else 0
    return Demand(
        gpu_bytes=gpu_peak_bytes(plan),
        host_bytes=sum(host.values()),
        pinned_bytes=host["pinned_bytes"],
        h2d_bytes_per_s=traffic(plan, ledgers(plan)).wire_bytes * 1e3 / interval_ms,
        d2h_bytes_per_s=writeback_bytes(plan) * 1e3 / interval_ms,
        jobs=promotions + demotions,
    )


def recoverable(plan: Plan, copies: Sequence[Spans]) -> Iterator[Rule]:
    """Every cold row of every layer has a valid copy below the GPU."""
    yield all(map(ascending, copies)), "SPANS_NOT_ASCENDING"
    pairs = zip(plan.layers, copies, strict=False)
    found = not any(difference(layer.cold, one) for layer, one in pairs)
    yield found and len(copies) == len(plan.layers), "SUPPORT_NOT_RECOVERABLE"


def within(taken: Demand, budgets: Json) -> Iterator[Rule]:
    """Each budget holds what is taken from it."""
    for name, reason in REFUSALS.items():
        yield getattr(taken, name) <= budgets["credits" if name == "jobs" else name], reason
