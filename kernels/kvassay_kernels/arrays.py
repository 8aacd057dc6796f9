"""What launchers share: checks of arrays, and the tiles of a head map."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
from kvassay_reference.attention import query_groups
from kvassay_reference.errors import Refusal

from . import sources
from .runtime import Array, KernelError, Runtime

ACCESS_BYTES = 16
"""What one thread reads at once where it can."""


def dtype_named(name: str) -> Any:
    """A NumPy dtype by its name."""
    if name == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name)


def element(*arrays: Array) -> str:
    """The dtype that arrays share; raises :class:`Refusal` for several, :class:`KernelError` for one of no kernel."""
    names = [str(array.dtype) for array in arrays]
    if len(set(names)) != 1:
        raise Refusal("DTYPE_MISMATCH", ", ".join(names))
    if names[0] not in sources.ELEMENTS:
        raise KernelError(f"the kernels take {', '.join(sources.ELEMENTS)}, not {names[0]}")
    return names[0]


def same(condition: bool, **arrays: Array) -> None:
    """Refuse arrays that do not fit each other, with their shapes."""
    if not condition:
        shapes = " and ".join(f"{name} {tuple(array.shape)}" for name, array in arrays.items())
        raise Refusal("SHAPE_MISMATCH", shapes)


def is_contiguous(runtime: Runtime, array: Array, axes: int | None = None) -> bool:
    """Whether the last axes, or all, lie in C order without gaps."""
    if 0 in array.shape:
        return True
    step, count = 1, array.ndim if axes is None else axes
    pairs = list(zip(array.shape, runtime.strides(array), strict=True))[array.ndim - count :]
    for size, found in reversed(pairs):
        if int(size) > 1 and found != step:
            return False
        step *= int(size)
    return True


def need_contiguous(runtime: Runtime, axes: int | None = None, **arrays: Array) -> None:
    """Raise :class:`KernelError` for an array with gaps; nothing is copied behind the caller's back."""
    for name, array in arrays.items():
        if not is_contiguous(runtime, array, axes):
            which = "" if axes is None else f" in its last {axes} axes"
            raise KernelError(f"{name} of shape {tuple(array.shape)} is not contiguous{which}")


def aligned(runtime: Runtime, arrays: Sequence[Array], strides: Sequence[int]) -> bool:
    """Whether all addresses, at these distances in elements, are multiples of 16 bytes."""
    size = arrays[0].dtype.itemsize
    starts = all(runtime.address(array) % ACCESS_BYTES == 0 for array in arrays)
    return starts and all(step * size % ACCESS_BYTES == 0 for step in strides)


def check_map(kv_head_of: Sequence[int], queries: int, heads: int) -> tuple[int, ...]:
    """The head map; raises :class:`Refusal` where it names no K/V head for a query head."""
    if len(kv_head_of) != queries or not all(0 <= head < heads for head in kv_head_of):
        raise Refusal("HEAD_MAP_INVALID", f"{list(kv_head_of)} for {queries} query and {heads} K/V heads")
    return tuple(kv_head_of)


def group_size(kv_head_of: tuple[int, ...], most: int = sources.GROUPS[-1]) -> int:
    """Query heads of a tile: enough for the largest group, ``most`` at most."""
    largest = max((len(one) for one in query_groups(kv_head_of)), default=1)
    return next((size for size in sources.GROUPS if size >= largest or size == most), most)


@functools.lru_cache(maxsize=256)
def tiles(runtime: Runtime, kv_head_of: tuple[int, ...], group: int, *, per_query: bool = False) -> Array:
    """The tiles of a head map, int32 [tiles, 2 + group]: K/V head, list, query heads; -1 for none.

    A group with more heads than a tile has several. ``per_query`` gives each query head a tile and a list of its own.
    """
    found = []
    for head, members in enumerate(query_groups(kv_head_of)):
        for first in range(0, len(members), group):
            some = members[first : first + group]
            found.append([head, some[0] if per_query else head, *some, *[-1] * (group - len(some))])
    return runtime.upload(np.asarray(found, dtype=np.int32).reshape(len(found), 2 + group), settled=True)


@functools.lru_cache(maxsize=256)
def heads_table(runtime: Runtime, kv_head_of: tuple[int, ...]) -> Array:
    """The head map, int32 [query heads]."""
    return runtime.upload(np.asarray(kv_head_of, dtype=np.int32), settled=True)


def integers(runtime: Runtime, values: Any) -> Array:
    """Ids as a contiguous int32 array of the runtime: a list is uploaded, an int32 array taken as it is."""
    if not hasattr(values, "dtype"):
        return runtime.upload(np.asarray(values, dtype=np.int32))
    if str(values.dtype) != "int32":
        raise KernelError(f"ids on a device are int32, not {values.dtype}")
    need_contiguous(runtime, ids=values)
    return values
