"""MagicPIG on a device: signatures of rows, in how many tables they match, and how likely that was."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from kvassay_reference.errors import Refusal
from kvassay_reference.indexes.magicpig import Tables

from . import grids, sources
from .arrays import aligned, check_map, element, group_size, need_contiguous, same, tiles
from .rows import MOST_GROUP
from .runtime import Array, KernelError, runtime_of

SIGNATURE_THREADS, SIGNATURE_ROWS, SIGNATURE_TABLES = 128, 16, 8
THREADS, KEYS = 256, 8
MOST_BITS = 16


def signatures(x: Array, projections: Array) -> Array:
    """Signature of each row [n, d] in each table, uint16 [L, n]; ``projections`` [L, K, d], K up to 16.

    Bit b is set strictly on the positive side of plane b. Raises :class:`Refusal` for planes of other channels.
    """
    runtime, dtype = runtime_of(x, projections), element(x, projections)
    same(x.ndim == 2 and projections.ndim == 3, x=x, projections=projections)
    if x.shape[1] != projections.shape[2]:
        raise Refusal("LSH_GEOMETRY_INVALID", f"{x.shape[1]} channels, planes of {projections.shape[2]}")
    rows, channels, count, bits = int(x.shape[0]), int(x.shape[1]), *map(int, projections.shape[:2])
    if bits > MOST_BITS:
        raise KernelError(f"signatures of {bits} bits, {MOST_BITS} at most")
    need_contiguous(runtime, projections=projections)
    need_contiguous(runtime, axes=1, x=x)
    found = runtime.empty((count, rows), np.uint16)
    if found.size:
        sizes = [np.int32(one) for one in (rows, channels, count, bits)]
        grid = (grids.chunks(rows, SIGNATURE_ROWS), grids.chunks(count, SIGNATURE_TABLES))
        arguments = [x, projections, found, *sizes, np.int64(runtime.strides(x)[0])]
        room = 4 * SIGNATURE_ROWS * channels
        runtime.launch(sources.lsh(dtype, 1, False), "signatures", grid, SIGNATURE_THREADS, arguments, room)
    return found


def matches(keys: Array, queries: Array, kv_head_of: Sequence[int]) -> Array:
    """How many tables match, int32 [H_q, T], from signatures uint16 [H_kv, L, T] and [H_q, L].

    A row is sampled where the count is at least two: ``matches(...) >= 2``. Tables may lie apart.
    """
    runtime = runtime_of(keys, queries)
    same(keys.ndim == 3 and queries.ndim == 2 and keys.shape[1] == queries.shape[1], keys=keys, queries=queries)
    if str(keys.dtype) != "uint16" or str(queries.dtype) != "uint16":
        raise KernelError(f"signatures are uint16, not {keys.dtype} and {queries.dtype}")
    heads = check_map(kv_head_of, int(queries.shape[0]), int(keys.shape[0]))
    need_contiguous(runtime, queries=queries)
    need_contiguous(runtime, axes=1, keys=keys)
    rows, count = int(keys.shape[2]), int(keys.shape[1])
    found = runtime.empty((len(heads), rows), np.int32)
    if not found.size:
        return found
    head_stride, table_stride, _ = runtime.strides(keys)
    wide = rows % KEYS == 0 and aligned(runtime, [keys], [head_stride, table_stride])
    group = group_size(heads, MOST_GROUP)
    places = tiles(runtime, heads, group)
    grid = (grids.chunks(rows, THREADS * (KEYS if wide else 1)), int(places.shape[0]))
    sizes = [np.int32(rows), np.int32(count), np.int64(head_stride), np.int64(table_stride)]
    module, room = sources.lsh("float32", group, wide), 4 * count * group
    runtime.launch(module, "count_matches", grid, THREADS, [keys, queries, places, found, *sizes], room)
    return found


def inclusion(cosines: Array, rule: Tables) -> tuple[Array, Array]:
    """Probability u of being sampled and log u, [n], in the dtype of the cosines, float32 or float64."""
    runtime = runtime_of(cosines)
    dtype = str(cosines.dtype)
    if dtype not in ("float32", "float64") or cosines.ndim != 1:
        raise KernelError(f"cosines are float32 or float64 [n], not {dtype} {tuple(cosines.shape)}")
    if rule.least not in (1, 2):
        raise KernelError(f"one or two tables that match, not {rule.least}")
    need_contiguous(runtime, cosines=cosines)
    u, log_u = (runtime.empty(tuple(cosines.shape), cosines.dtype) for _ in range(2))
    if cosines.size:
        sizes = [np.int32(one) for one in (int(cosines.shape[0]), rule.bits, rule.tables, rule.least)]
        grid = (grids.chunks(int(cosines.shape[0]), THREADS),)
        runtime.launch(sources.inclusion(dtype), "inclusion", grid, THREADS, [cosines, u, log_u, *sizes])
    return u, log_u
