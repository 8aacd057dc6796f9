"""Small rows, what makes others of them, and terms of reservations: what the contract runtime is fuzzed with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Request = dict[str, Any]
OTHERS: Mapping[str, Any] = {
    "tenant": "tenant-b",
    "model": "other",
    "revision": "rev-2",
    "adapter": "style",
    "layout": "last",
    "layer_group": 1,
    "first_position": 1,
    "end_position": 9,
    "representation": "latent",
    "dtype": "float16",
    "codec": "int8",
    "generation": 2,
    "tokens_sha256": "9" * 64,
    "source": "file-1",
    "authority_epoch": 2,
    "bytes": 3,
}
"""Field to a value that makes another unit."""
TERMS: tuple[Request, ...] = (
    {"contract": "exact", "fallbacks": ["degrade"]},
    {"contract": "approximate", "fallbacks": ["recompute"], "recompute_ms": None},
    {"contract": "exact", "fallbacks": ["degrade", "recompute"], "recompute_ms": None},
)
"""Terms of reservations that contradict themselves."""
DECIMALS = ((0.1, 0.2, 0.3), (1.1, 2.2, 3.3), (0.7, 0.1, 0.8), (0.1, 0.7, 0.8))
"""A point in time, a duration and their sum, which is another one in floating point."""


def unit(number: int, **changes: Any) -> Request:
    """Small rows."""
    return {
        "tenant": "tenant-a",
        "model": "m",
        "revision": "rev-1",
        "adapter": "none",
        "layout": "first",
        "layer_group": 0,
        "first_position": 0,
        "end_position": 8,
        "representation": "kv",
        "dtype": "bfloat16",
        "codec": "identity",
        "generation": 1,
        "tokens_sha256": f"{number:x}" * 64,
        "source": "host-0",
        "authority_epoch": 1,
        "integrity": "valid",
        "bytes": (2, 2, 4)[number % 3],
        **changes,
    }
