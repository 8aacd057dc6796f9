"""SparQ on a device: products over the channels in which a query is large."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from . import grids, sources
from .arrays import aligned, check_map, element, group_size, integers, need_contiguous, same, tiles
from .rows import MOST_GROUP
from .runtime import Array, KernelError, runtime_of

THREADS, MOST_CHANNELS = 128, 256


def logits(q: Array, k: Array, channels: Any, temperatures: Array, kv_head_of: Sequence[int]) -> Array:
    """Products over the channels of each K/V head, divided by the query head's temperature, float32 [H_q, T].

    ``q`` [H_q, d], ``k`` [T, H_kv, d] at any strides, ``channels`` int32 [H_kv, r], ``temperatures`` float32 [H_q];
    where one is 0, so are its logits. Only the chosen channels are read where keys lie channel by channel, which is a
    view ``copy.transpose(2, 0, 1)`` of a copy [H_kv, d, T].
    """
    runtime, dtype = runtime_of(q, k, temperatures), element(q, k)
    same(q.ndim == 2 and k.ndim == 3 and q.shape[1] == k.shape[2], q=q, k=k)
    heads = check_map(kv_head_of, int(q.shape[0]), int(k.shape[1]))
    chosen = integers(runtime, channels)
    same(chosen.ndim == 2 and int(chosen.shape[0]) == int(k.shape[1]), channels=chosen, k=k)
    same(tuple(temperatures.shape) == (len(heads),), q=q, temperatures=temperatures)
    if str(temperatures.dtype) != "float32":
        raise KernelError(f"temperatures are float32, not {temperatures.dtype}")
    need_contiguous(runtime, q=q, temperatures=temperatures)
    rows, count = int(k.shape[0]), int(chosen.shape[1])
    if count > MOST_CHANNELS:
        raise KernelError(f"{count} channels, {MOST_CHANNELS} at most")
    found = runtime.empty((len(heads), rows), np.float32)
    if not rows or not heads:
        return found
    row_stride, head_stride, channel_stride = runtime.strides(k)
    per_access = 16 // k.dtype.itemsize
    # An access goes beyond the last row unless the rows end with one.
    wide = row_stride == 1 and rows % per_access == 0 and aligned(runtime, [k], [head_stride, channel_stride])
    group = group_size(heads, MOST_GROUP)
    table = tiles(runtime, heads, group)
    grid = (grids.chunks(rows, THREADS * (per_access if wide else 1)), int(table.shape[0]))
    sizes = [np.int32(one) for one in (rows, int(q.shape[1]), count)]
    strides = [np.int64(one) for one in (row_stride, head_stride, channel_stride)]
    arguments = [q, k, chosen, temperatures, table, found, *sizes, *strides]
    runtime.launch(sources.sliced(dtype, group, wide), "sliced_scores", grid, THREADS, arguments)
    return found
