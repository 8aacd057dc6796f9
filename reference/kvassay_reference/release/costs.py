"""Bytes and times of a design as functions of nine controls, over arrays of settings.

Geometry and byte counts of whole rows are exact integers; fractions of them, bandwidths and times are float64, one
element a setting.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

GIB = 1 << 30
CONTROLS = (
    "context_tokens",
    "concurrency",
    "output_tokens",
    "selected",
    "reuse",
    "coalesced",
    "gib_per_s",
    "queue_ms",
    "cpu_bytes",
)
"""The nine controls."""
COUNTS = ("row_bytes", "request_bytes", "resident_bytes", "whole_caches")
LEDGER = (
    "row_bytes",
    "request_bytes",
    "resident_bytes",
    "cold_bytes",
    "selected_bytes",
    "unique_bytes",
    "service_ms",
    "decode_bytes",
    "whole_caches",
)


@dataclass(frozen=True)
class Geometry:
    """Layers, K/V heads, width and bytes of a scalar."""

    layers: int
    kv_heads: int
    head_dim: int
    item_bytes: int

    @property
    def row_bytes(self) -> int:
        """K and V of one token over all layers."""
        return 2 * self.layers * self.kv_heads * self.head_dim * self.item_bytes


@dataclass(frozen=True)
class Settings:
    """Several settings of the nine controls: integers as lists, the rest as arrays [settings] of float64."""

    context_tokens: list[int]
    concurrency: list[int]
    output_tokens: Any
    selected: Any
    reuse: Any
    coalesced: Any
    gib_per_s: Any
    queue_ms: Any
    cpu_bytes: list[int]

    @classmethod
    def of(cls, xp: Any, points: Sequence[Mapping[str, Any]]) -> Settings:
        """From requests, into arrays of the library ``xp``."""
        columns: dict[str, Any] = {name: [point[name] for point in points] for name in CONTROLS}
        for name in CONTROLS:
            if name not in ("context_tokens", "concurrency", "cpu_bytes"):
                columns[name] = xp.asarray([float(value) for value in columns[name]], dtype=xp.float64)
        return cls(**columns)


def ledger(xp: Any, shape: Geometry, setup_ms: float, at: Settings) -> dict[str, Any]:
    """Every member of the ledger: lists of exact integers, and arrays [settings] of float64."""
    requests = [tokens * shape.row_bytes for tokens in at.context_tokens]
    resident = [count * size for count, size in zip(at.concurrency, requests, strict=True)]
    cold = (1.0 - at.reuse) * xp.asarray([float(size) for size in resident], dtype=xp.float64)
    selected = at.selected * cold
    unique = (1.0 - at.coalesced) * selected
    return {
        "row_bytes": [shape.row_bytes] * len(requests),
        "request_bytes": requests,
        "resident_bytes": resident,
        "cold_bytes": cold,
        "selected_bytes": selected,
        "unique_bytes": unique,
        "service_ms": setup_ms + at.queue_ms + unique / (at.gib_per_s * float(GIB)) * 1000.0,
        "decode_bytes": at.output_tokens * unique,
        "whole_caches": [room // size for room, size in zip(at.cpu_bytes, requests, strict=True)],
    }


def row(table: Mapping[str, Any], at: int) -> dict[str, int | float]:
    """The ledger of one setting as plain numbers."""
    return {name: int(column[at]) if name in COUNTS else float(column[at]) for name, column in table.items()}


def strangers(setting: Mapping[str, Any], point: Mapping[str, Any], control: str) -> list[str]:
    """Controls other than the sweep's in which a point differs from the setting."""
    return [name for name in CONTROLS if name != control and point[name] != setting[name]]
