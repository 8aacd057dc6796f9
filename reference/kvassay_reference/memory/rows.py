"""What units, events and clusters share: dtypes, head maps, stable ranks, spans."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from array_api_compat import array_namespace, device

from ..errors import Refusal

Array = Any
Span = tuple[int, int]
"""First position, and the first beyond the last."""


def require(holds: bool, reason: str, detail: str = "") -> None:
    """Raise :class:`Refusal` unless the condition holds."""
    if not holds:
        raise Refusal(reason, detail)


def wide(array: Array) -> Array:
    """The array in float32, or in float64 where it is in float64."""
    xp = array_namespace(array)
    return array if array.dtype == xp.float64 else xp.astype(array, xp.float32)


def check_history(k: Array, v: Array | None = None) -> None:
    """Refuse keys without their three axes, and values of other rows or heads."""
    fits = k.ndim == 3 and (v is None or (v.ndim == 3 and v.shape[:2] == k.shape[:2]))
    require(fits, "SHAPE_MISMATCH", "k and v are [T, H_kv, d] of the same rows")


def check_axes(array: Array, axes: int, like: Array, what: str) -> None:
    """Refuse an array with other axes, or with other channels than ``like``."""
    require(array.ndim == axes and array.shape[-1] == like.shape[-1], "SHAPE_MISMATCH", what)


def check_heads(kv_head_of: Sequence[int], query_heads: int, kv_heads: int) -> None:
    """Refuse a map that does not give each query head a K/V head."""
    legal = len(kv_head_of) == query_heads and all(0 <= head < kv_heads for head in kv_head_of)
    require(legal, "HEAD_MAP_INVALID", f"{list(kv_head_of)} for {query_heads} query and {kv_heads} K/V heads")


def indices(values: Iterable[int], like: Array) -> Array:
    """Integers as an index array beside ``like``."""
    xp = array_namespace(like)
    return xp.asarray(list(values), dtype=xp.int64, device=device(like))


def group_matrix(kv_head_of: Sequence[int], kv_heads: int, like: Array) -> Array:
    """[H_kv, H_q]: 1 where a query head reads a K/V head."""
    xp = array_namespace(like)
    owner = indices(kv_head_of, like)
    heads = xp.arange(kv_heads, dtype=xp.int64, device=device(like))
    return xp.astype(owner[None, :] == heads[:, None], like.dtype)


def ranked(scores: Array, axis: int = -1) -> Array:
    """Indices from the largest score to the smallest, the lower index first among equals."""
    return array_namespace(scores).argsort(-scores, axis=axis, stable=True)


def best(scores: Array, count: int) -> list[int]:
    """Ascending indices of the largest of one axis of scores."""
    xp = array_namespace(scores)
    return list(listed(xp.sort(ranked(scores)[:count])))


def listed(array: Array) -> Any:
    """Nested lists of an array of any library."""
    return array.tolist() if hasattr(array, "tolist") else array


def span_positions(spans: Iterable[Span]) -> list[int]:
    """Positions of several spans in their order."""
    return [position for first, end in spans for position in range(first, end)]
