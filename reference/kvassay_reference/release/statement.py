"""What a design says of itself: ten pairs or triples of things that share a word and no contract."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Movement:
    """Moving rows, and choosing among them."""

    support: Literal["all_legal", "selected"]
    stated_as: Literal["exact_movement", "approximate_retrieval"]


@dataclass(frozen=True)
class Nonresidency:
    """Rows that are not on the GPU."""

    rows: Literal["recoverable", "removed"]
    stated_as: Literal["nonresident", "evicted_for_good"]


@dataclass(frozen=True)
class HitRate:
    """A rate of hits."""

    counts: Literal["prefix_blocks", "selected_rows"]
    stated_as: Literal["prefix_hit_rate", "selector_recall"]


@dataclass(frozen=True)
class Quality:
    """A measure of a selection."""

    measures: Literal["candidates", "attention_output", "task"]
    stated_as: Literal["candidate_recall", "output_error", "task_quality"]


@dataclass(frozen=True)
class Sameness:
    """Two payloads."""

    compared: Literal["bytes", "identity_and_positions"]
    stated_as: Literal["same_bytes", "same_rows"]


@dataclass(frozen=True)
class Offload:
    """Attention on offloaded rows."""

    attends: Literal["on_the_gpu", "where_rows_lie"]
    stated_as: Literal["returns_rows", "returns_outputs"]


@dataclass(frozen=True)
class Size:
    """A number of bytes."""

    counts: Literal["index", "payload", "wire"]
    stated_as: Literal["index_bytes", "payload_bytes", "transfer_bytes"]


@dataclass(frozen=True)
class IndexEntries:
    """Rows that an index names."""

    rows: Literal["committed", "uncommitted", "cancelled"]
    stated_as: Literal["shared", "private"]


@dataclass(frozen=True)
class Benchmark:
    """A measured number."""

    taken_from: Literal["source", "own_service"]
    stated_as: Literal["evidence", "capacity"]


@dataclass(frozen=True)
class Owner:
    """Who decides."""

    decides: Literal["tiers", "workers", "kernels"]
    stated_as: Literal["tier_orchestration", "worker_placement", "kernel_implementation"]


@dataclass(frozen=True)
class Statement:
    """The whole."""

    format: Literal["kvassay-statement-v1"]
    movement: Movement
    nonresidency: Nonresidency
    hit_rate: HitRate
    quality: Quality
    sameness: Sameness
    offload: Offload
    size: Size
    index_entries: IndexEntries
    benchmark: Benchmark
    owner: Owner


CALLED: Mapping[str, Mapping[str, str]] = {
    "movement": {"all_legal": "exact_movement", "selected": "approximate_retrieval"},
    "nonresidency": {"recoverable": "nonresident", "removed": "evicted_for_good"},
    "hit_rate": {"prefix_blocks": "prefix_hit_rate", "selected_rows": "selector_recall"},
    "quality": {"candidates": "candidate_recall", "attention_output": "output_error", "task": "task_quality"},
    "sameness": {"bytes": "same_bytes", "identity_and_positions": "same_rows"},
    "offload": {"on_the_gpu": "returns_rows", "where_rows_lie": "returns_outputs"},
    "size": {"index": "index_bytes", "payload": "payload_bytes", "wire": "transfer_bytes"},
    "index_entries": {"committed": "shared", "uncommitted": "private", "cancelled": "private"},
    "benchmark": {"source": "evidence", "own_service": "capacity"},
    "owner": {"tiers": "tier_orchestration", "workers": "worker_placement", "kernels": "kernel_implementation"},
}
"""What each thing is called, by what it is."""


def collapses(statement: Statement, called: Mapping[str, Mapping[str, str]] = CALLED) -> Iterator[str]:
    """Members that call a thing by another's name."""
    for member, names in called.items():
        what, name = vars(getattr(statement, member)).values()
        if names[what] != name:
            yield member
