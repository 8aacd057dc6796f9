"""Rows on a device: products with them, gathers of them, and the best of many, ties to the lower position."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from . import grids, sources
from .arrays import aligned, check_map, element, group_size, heads_table, integers, need_contiguous, same, tiles
from .runtime import Array, KernelError, Runtime, runtime_of

MOST_GROUP = 8
"""Query heads that one tile of the scoring kernels serves."""
SCORE_THREADS, GATHER_THREADS, GATHER_EACH, TOP_THREADS = 128, 256, 4, 512
MOST_QUERY_BYTES = 48 << 10
"""Of a tile's queries in shared memory."""


def score_rows(
    q: Array, rows: Array, kv_head_of: Sequence[int], *, scale: float = 1.0, high: Array | None = None
) -> Array:
    """Products of ``q`` [H_q, d] with ``rows`` [n, H_kv, d], float32 [H_q, n].

    With ``high`` the rows are the minima of pages and ``high`` their maxima, and the numbers are bounds. The last axis
    of the rows is contiguous.
    """
    arrays = [q, rows] if high is None else [q, rows, high]
    runtime, dtype = runtime_of(*arrays), element(*arrays)
    same(q.ndim == 2 and rows.ndim == 3 and q.shape[1] == rows.shape[2], q=q, rows=rows)
    heads = check_map(kv_head_of, int(q.shape[0]), int(rows.shape[1]))
    need_contiguous(runtime, q=q)
    need_contiguous(runtime, axes=1, rows=rows)
    count, channels = int(rows.shape[0]), int(q.shape[1])
    found = runtime.empty((len(heads), count), np.float32)
    if not count or not heads:
        return found
    row_stride, head_stride, _ = runtime.strides(rows)
    if high is not None and runtime.strides(high) != runtime.strides(rows):
        raise KernelError("minima and maxima lie at the same distances")
    strides = [np.int64(row_stride), np.int64(head_stride)]
    upper = rows if high is None else high
    per_access = 16 // q.dtype.itemsize
    group = group_size(heads, MOST_GROUP)
    shared = 4 * group * channels
    wide = channels % per_access == 0 and aligned(runtime, [rows, upper], [row_stride, head_stride])
    if wide and shared <= MOST_QUERY_BYTES:
        table = tiles(runtime, heads, group)
        per_block = grids.rows_per_block(count, int(table.shape[0]), runtime.multiprocessors)
        sizes = [np.float32(scale), np.int32(count), np.int32(channels), np.int32(per_block)]
        grid = (grids.chunks(count, per_block), int(table.shape[0]))
        arguments = [q, rows, upper, table, found, *sizes, *strides]
        module = sources.scores(dtype, group, high is not None)
        runtime.launch(module, "row_scores", grid, SCORE_THREADS, arguments, shared)
    else:
        sizes = [np.float32(scale), np.int32(count), np.int32(channels)]
        arguments = [q, rows, upper, heads_table(runtime, heads), found, *sizes, *strides]
        grid = (grids.chunks(count, SCORE_THREADS), len(heads))
        module = sources.scores(dtype, 1, high is not None)
        runtime.launch(module, "any_scores", grid, SCORE_THREADS, arguments)
    return found


def take(array: Array, ids: Any) -> Array:
    """Rows of ``array`` [T, ...] in the order of the ids, one copy each; a row is contiguous.

    ``ids`` are a list, or int32 on the device. An id outside 0 .. T - 1 gives a row of zeros: only the device could say
    so, and no call waits for it.
    """
    runtime = runtime_of(array)
    found = integers(runtime, ids)
    shape = tuple(int(size) for size in array.shape[1:])
    need_contiguous(runtime, axes=len(shape), array=array)
    to = runtime.empty((int(found.shape[0]), *shape), array.dtype)
    _gather(runtime, array, found, to, heads=1, stride=0, row=int(np.prod(shape)))
    return to


def take_heads(array: Array, ids: Any) -> Array:
    """Rows [H, n, d] of ``array`` [T, H, d], of each head its own: ``ids`` [H, n]."""
    runtime = runtime_of(array)
    found = integers(runtime, ids)
    same(array.ndim == 3 and found.ndim == 2 and int(found.shape[0]) == int(array.shape[1]), array=array, ids=found)
    need_contiguous(runtime, axes=1, array=array)
    to = runtime.empty((int(found.shape[0]), int(found.shape[1]), int(array.shape[2])), array.dtype)
    stride = runtime.strides(array)[1]
    _gather(runtime, array, found, to, heads=int(array.shape[1]), stride=stride, row=int(array.shape[2]))
    return to


def _gather(runtime: Runtime, array: Array, ids: Array, to: Array, *, heads: int, stride: int, row: int) -> None:
    """Move rows of ``row`` elements, of heads that lie ``stride`` elements apart."""
    if not to.size:
        return
    size, row_stride = array.dtype.itemsize, runtime.strides(array)[0]
    lengths = [row * size, row_stride * size, stride * size]
    places = [runtime.address(array), runtime.address(to)]
    unit = next(unit for unit in (16, 4, 2, 1) if all(one % unit == 0 for one in (*lengths, *places)))
    row_units, row_stride_units, stride_units = (one // unit for one in lengths)
    count = int(ids.shape[-1])
    grid = (grids.chunks(count * row_units, GATHER_THREADS * GATHER_EACH), heads)
    sizes = [np.int32(array.shape[0]), np.int32(count), np.int32(row_units)]
    arguments = [array, ids, to, *sizes, np.int64(row_stride_units), np.int64(stride_units)]
    runtime.launch(sources.gather(unit), "gather_rows", grid, GATHER_THREADS, arguments)


def best(scores: Array, count: int) -> Array:
    """Positions of the ``count`` largest of ``scores`` [n] or [rows, n], ascending, int32 [count] or [rows, count].

    The same to the bit every time. Of equal numbers the lower position wins; what is no number comes last.
    """
    return _select(scores, count)[0]


def top(scores: Array, count: int) -> Array:
    """The same, best first."""
    runtime = runtime_of(scores)
    ids, values = _select(scores, count)
    sorted_ids = runtime.empty(tuple(int(size) for size in ids.shape), np.int32)
    kept = int(ids.shape[-1])
    if ids.size:
        grid = (grids.chunks(kept, TOP_THREADS), int(ids.size) // kept)
        runtime.launch(sources.topk(), "by_score", grid, TOP_THREADS, [values, ids, sorted_ids, np.int32(kept)])
    return sorted_ids


def _select(scores: Array, count: int) -> tuple[Array, Array]:
    """Positions and numbers of the best, in the order of positions."""
    runtime = runtime_of(scores)
    if str(scores.dtype) != "float32" or scores.ndim not in (1, 2):
        raise KernelError(f"scores are float32 [n] or [rows, n], not {scores.dtype} {tuple(scores.shape)}")
    need_contiguous(runtime, scores=scores)
    size, rows = int(scores.shape[-1]), 1 if scores.ndim == 1 else int(scores.shape[0])
    kept = min(max(count, 0), size)
    shape = (kept,) if scores.ndim == 1 else (rows, kept)
    found, values = runtime.empty(shape, np.int32), runtime.empty(shape, np.float32)
    if not kept or not rows:
        return found, values
    parts = grids.parts(size, kept)
    ids, numbers = None, scores
    if parts > 1:
        ids, numbers = (runtime.empty((rows, parts * kept), kind) for kind in (np.int32, np.float32))
        sizes = [np.int32(size), np.int32(kept)]
        runtime.launch(sources.topk(), "top_k", (parts, rows), TOP_THREADS, [scores, None, ids, numbers, *sizes])
        size = parts * kept
    sizes = [np.int32(size), np.int32(kept)]
    runtime.launch(sources.topk(), "top_k", (1, rows), TOP_THREADS, [numbers, ids, found, values, *sizes])
    return found, values
