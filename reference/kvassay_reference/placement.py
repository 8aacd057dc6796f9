"""Where attention runs: bytes of each schedule, head-wise staging, NEO's pipeline, and the choice of a plan.

The history can move to the GPU, the query can move to the history, or each tier can attend to its own part. The chapter
``spec/placement.md`` derives all of it from the sections 04R to 04Y of the article. Times are milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .errors import Refusal
from .offload import bytes_per_s

Json = Mapping[str, Any]

# ---- bytes -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Geometry:
    """Shape of one layer's attention for one decode row."""

    batch: int
    history: int
    query_heads: int
    kv_heads: int
    key_channels: int
    value_channels: int
    key_item_bytes: int
    value_item_bytes: int
    activation_bytes: int

    @property
    def row_bytes(self) -> int:
        """K and V of one K/V head at one position."""
        return self.key_channels * self.key_item_bytes + self.value_channels * self.value_item_bytes

    def head_bytes(self, kv_heads: int) -> int:
        """History of some K/V heads."""
        return self.batch * self.history * kv_heads * self.row_bytes


@dataclass(frozen=True)
class Traffic:
    """Bytes of the three schedules, each kind in a member of its own."""

    history_bytes: int
    append_bytes: int
    query_bytes: int
    output_bytes: int
    state_bytes: int
    """State of one producer: m, l and u of every query head."""
    producers: int

    @property
    def move_bytes(self) -> int:
        """What moves to the GPU when the history does."""
        return self.history_bytes + self.append_bytes

    @property
    def send_bytes(self) -> int:
        """What moves to the history when it stays."""
        return self.query_bytes + self.append_bytes

    @property
    def near_bytes(self) -> int:
        """Both directions of compute near the data."""
        return self.send_bytes + self.output_bytes

    @property
    def state_return_bytes(self) -> int:
        """One state from every producer."""
        return self.producers * self.state_bytes

    @property
    def partition_send_bytes(self) -> int:
        """The query to every producer, the current row to the one that owns it."""
        return self.producers * self.query_bytes + self.append_bytes

    def to_json(self) -> dict[str, int]:
        """As the op returns it."""
        names = (
            "history_bytes append_bytes move_bytes query_bytes output_bytes near_bytes "
            "state_bytes state_return_bytes partition_send_bytes"
        )
        return {name: getattr(self, name) for name in names.split()}


def traffic(shape: Geometry, producers: int, state_item_bytes: int) -> Traffic:
    """Bytes of one layer; raises :class:`Refusal` for softmax mass below float32."""
    if state_item_bytes < 4:
        raise Refusal("DTYPE_MISMATCH", "softmax mass below float32")
    activations = shape.batch * shape.query_heads * shape.activation_bytes
    return Traffic(
        history_bytes=shape.head_bytes(shape.kv_heads),
        append_bytes=shape.batch * shape.kv_heads * shape.row_bytes,
        query_bytes=activations * shape.key_channels,
        output_bytes=activations * shape.value_channels,
        state_bytes=shape.batch * shape.query_heads * (2 + shape.value_channels) * state_item_bytes,
        producers=producers,
    )


@dataclass(frozen=True)
class Way:
    """One direction of a link."""

    fixed_ms: float
    bytes_per_s: float

    @classmethod
    def read(cls, way: Json) -> Way:
        """From its JSON form."""
        return cls(way["fixed_ms"], bytes_per_s(way["bandwidth"]))

    def takes_ms(self, size: int) -> float:
        """Fixed cost and bytes over the rate."""
        return self.fixed_ms + size * 1e3 / self.bytes_per_s


# ---- head-wise staging -------------------------------------------------------------------------------------------

HEADWISE_RULES = ("headinfer/paper", "headinfer/code")


@dataclass(frozen=True)
class Group:
    """K/V heads that are staged together."""

    kv_heads: list[int]
    query_heads: list[int]
    bytes: int


def check_map(kv_head_of: Sequence[int], query_heads: int, kv_heads: int) -> None:
    """Refuse a map that does not name one existing K/V head for each query head."""
    if len(kv_head_of) != query_heads or not all(0 <= head < kv_heads for head in kv_head_of):
        raise Refusal("HEAD_MAP_INVALID", f"{list(kv_head_of)} for {query_heads} query and {kv_heads} K/V heads")


def check_group_size(rule: str, size: int, kv_heads: int) -> None:
    """Refuse a group that is larger than the layer, or than the rule allows."""
    if size > (1 if rule == "headinfer/code" else kv_heads):
        raise Refusal("GROUP_OUT_OF_RANGE", f"{size} of {kv_heads} K/V heads under {rule}")


def groups(shape: Geometry, kv_head_of: Sequence[int], size: int) -> list[Group]:
    """Groups of K/V heads in order; the last may be smaller."""
    found = []
    for first in range(0, shape.kv_heads, size):
        heads = list(range(first, min(first + size, shape.kv_heads)))
        queries = [query for query, head in enumerate(kv_head_of) if head in heads]
        found.append(Group(heads, queries, shape.head_bytes(len(heads))))
    return found


@dataclass(frozen=True)
class Staged:
    """One group of one layer on the timeline."""

    layer: int
    group: int
    buffer: int
    fetch_start_ms: float
    fetch_end_ms: float
    compute_start_ms: float
    compute_end_ms: float


def ping_pong(
    several: Sequence[Group], layers: int, buffers: int, fetch: Way, launch_ms: float, head_ms: float
) -> list[Staged]:
    """Fetches one after the other into buffers in turn; attention group by group.

    Turns go on from layer to layer: an odd number of groups would otherwise fetch into the buffer that is being read.
    """
    done: list[Staged] = []
    for layer in range(layers):
        for index, group in enumerate(several):
            turn = len(done)
            freed = done[turn - buffers].compute_end_ms if turn >= buffers else 0.0
            start = max(done[-1].fetch_end_ms if done else 0.0, freed)
            ready = start + fetch.takes_ms(group.bytes)
            begin = max(done[-1].compute_end_ms if done else 0.0, ready)
            end = begin + launch_ms + head_ms * len(group.query_heads)
            done.append(Staged(layer, index, turn % buffers, start, ready, begin, end))
    return done


def stall_ms(timeline: Sequence[Staged]) -> float:
    """Waits before groups."""
    ends = [0.0, *(one.compute_end_ms for one in timeline)]
    return sum(one.compute_start_ms - before for one, before in zip(timeline, ends, strict=False))


# ---- NEO's pipeline ----------------------------------------------------------------------------------------------

PIPELINE_RULES = ("neo/paper", "neo/code")


@dataclass(frozen=True)
class SubBatch:
    """Work of one sub-batch in one layer, and its requests."""

    linear_ms: float
    prefill_ms: float
    gpu_attention_ms: float
    cpu_attention_ms: float
    gpu_requests: tuple[str, ...]
    cpu_requests: tuple[str, ...]

    @classmethod
    def read(cls, batch: Json) -> SubBatch:
        """From its JSON form."""
        return cls(**{**batch, **{name: tuple(batch[name]) for name in ("gpu_requests", "cpu_requests")}})

    @property
    def requests(self) -> tuple[str, ...]:
        """All of them."""
        return self.gpu_requests + self.cpu_requests


@dataclass(frozen=True)
class Alone:
    """The iteration as one batch without CPU attention."""

    gpu_ms: float
    requests: int

    @classmethod
    def read(cls, batch: Json) -> Alone:
        """From its JSON form."""
        return cls(batch["linear_ms"] + batch["prefill_ms"] + batch["gpu_attention_ms"], len(batch["requests"]))


@dataclass(frozen=True)
class Stage:
    """Linear work of one sub-batch beside the attention of the other."""

    gpu_ms: float
    cpu_ms: float
    ms: float

    @property
    def slack_ms(self) -> float:
        """GPU time that is left beside the CPU work; below zero the CPU is waited for."""
        return self.gpu_ms - self.cpu_ms


def check_whole(pair: Sequence[SubBatch]) -> None:
    """Refuse a request that stands in two places: NEO places requests whole."""
    names = [name for batch in pair for name in batch.requests]
    if len(set(names)) < len(names):
        raise Refusal("REQUEST_SPLIT", "a request stands twice")


def stage(rule: str, linear: SubBatch, attending: SubBatch, launch_ms: float) -> Stage:
    """One of a layer's two stages. Attention on the GPU and prefill run behind the other batch's linear work."""
    gpu = linear.linear_ms + attending.prefill_ms + attending.gpu_attention_ms
    cpu = attending.cpu_attention_ms + (launch_ms if rule == "neo/code" else 0.0)
    return Stage(gpu, cpu, gpu if rule == "neo/code" else max(gpu, cpu))


@dataclass(frozen=True)
class Estimate:
    """A layer's stages and what they come to."""

    layers: int
    stages: tuple[Stage, Stage]
    alone: Alone
    requests: int

    @property
    def layer_ms(self) -> float:
        """One layer."""
        return self.stages[0].ms + self.stages[1].ms

    @property
    def pipelined_ms(self) -> float:
        """All layers."""
        return self.layers * self.layer_ms

    @property
    def serial_ms(self) -> float:
        """All work, nothing beside anything."""
        return self.layers * sum(one.gpu_ms + one.cpu_ms for one in self.stages)

    @property
    def gpu_only_ms(self) -> float:
        """All layers of the other mode."""
        return self.layers * self.alone.gpu_ms

    @property
    def slack_ms(self) -> list[float]:
        """Of sub-batch 0 and of sub-batch 1, whose CPU attention runs in stage 1 and in stage 0."""
        return [self.stages[1].slack_ms, self.stages[0].slack_ms]

    @property
    def feasible(self) -> bool:
        """Whether all CPU attention is covered."""
        return min(self.slack_ms) >= 0

    @property
    def faster(self) -> bool:
        """Whether it serves strictly more requests a unit of time than the other mode."""
        return self.requests * self.gpu_only_ms > self.alone.requests * self.pipelined_ms


def estimate(rule: str, layers: int, pair: Sequence[SubBatch], alone: Alone, launch_ms: float) -> Estimate:
    """Both stages of a layer: linear work of 0 beside attention of 1, and the other way round."""
    zero, one = pair
    stages = stage(rule, zero, one, launch_ms), stage(rule, one, zero, launch_ms)
    return Estimate(layers, stages, alone, len(zero.requests) + len(one.requests))


@dataclass(frozen=True)
class Work:
    """A piece of work on the timeline."""

    layer: int
    stage: int
    lane: str
    sub_batch: int
    work: str
    start_ms: float
    end_ms: float


def works(made: Estimate, pair: Sequence[SubBatch], launch_ms: float) -> Iterator[Work]:
    """What runs when; work of no length is left out."""
    begin = 0.0
    for layer in range(made.layers):
        for index, one in enumerate(made.stages):
            other = 1 - index
            linear, attending = pair[index], pair[other]
            gpu = [
                (index, "linear", linear.linear_ms),
                (other, "prefill", attending.prefill_ms),
                (other, "gpu_attention", attending.gpu_attention_ms),
            ]
            cpu = [(other, "launch", launch_ms), (other, "cpu_attention", attending.cpu_attention_ms)]
            for lane, pieces in (("gpu", gpu), ("cpu", cpu)):
                at = begin
                for batch, work, length in pieces:
                    if length > 0:
                        yield Work(layer, index, lane, batch, work, at, at + length)
                    at += length
            begin += one.ms


# ---- the choice --------------------------------------------------------------------------------------------------

PLANS = ("move_to_gpu", "headwise_gpu", "cpu_request", "support_partition", "in_storage_sparf")
FALLBACKS = ("delay", "exact_reroute", "recompute", "reject")
NEEDS = {
    "move_to_gpu": "full_history_to_gpu",
    "headwise_gpu": "head_groups",
    "cpu_request": "cpu_request",
    "support_partition": "partition_receipts",
    "in_storage_sparf": "in_storage_sparf",
}
"""Plan to the capability of the manifest that it needs."""


@dataclass(frozen=True)
class Candidate:
    """One plan, and the first reason against it."""

    plan: str
    reason: str | None
    predicted_finish_ms: float | None
    declared_cost: float | None


def finish_ms(start_ms: float, entry: Json) -> float:
    """Start and every stage: queue, send, attention, reduction, return."""
    return float(start_ms + sum(entry["stages"].values()))


def candidate(plan: str, request: Json) -> Candidate:
    """A plan under the request's contract, the manifest, the profile, the budget and the deadline, in this order."""
    entry = request["profile"].get(plan)
    if entry is None:
        made = Candidate(plan, None, None, None)
    else:
        made = Candidate(plan, None, finish_ms(request["start_ms"], entry), entry["declared_cost"])
    if plan == "in_storage_sparf" and "sparf" not in request["request"]["approximations"]:
        return replace(made, reason="not_allowed")
    if not request["manifest"][NEEDS[plan]]:
        return replace(made, reason="unsupported")
    if entry is None or made.predicted_finish_ms is None:
        return replace(made, reason="unprofiled")
    if entry["staging_bytes"] > request["staging_budget_bytes"]:
        return replace(made, reason="staging")
    if made.predicted_finish_ms > request["deadline_ms"]:
        return replace(made, reason="deadline")
    return made


def cheapest(candidates: Sequence[Candidate]) -> Candidate | None:
    """The least declared cost among plans without a reason against them; the first of equals."""
    left = [one for one in candidates if one.reason is None]
    return min(left, key=lambda one: one.declared_cost or 0.0, default=None)


def exactness(published: str) -> str:
    """What may be claimed of an output: of a delay or a rejection there is none."""
    if published == "in_storage_sparf":
        return "approximate"
    return "none" if published in ("delay", "reject") else "exact"
