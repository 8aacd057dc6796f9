"""PQCache on a device: tables of products with centroids, and the sums that codes look up in them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from . import grids, sources
from .arrays import check_map, element, group_size, heads_table, need_contiguous, same, tiles
from .runtime import Array, KernelError, runtime_of

THREADS = 256
MOST_TABLE_BYTES = 96 << 10
"""Of the tables that a block holds: two blocks of a multiprocessor of the smallest card fit below."""
MOST_QUERIES = 4


def tables(q: Array, centroids: Array, kv_head_of: Sequence[int]) -> Array:
    """Products of each query's parts with the centroids of its K/V head, float32 [H_q, m, C].

    ``q`` [H_q, d], ``centroids`` [H_kv, m, C, d / m].
    """
    runtime, dtype = runtime_of(q, centroids), element(q, centroids)
    same(q.ndim == 2 and centroids.ndim == 4, q=q, centroids=centroids)
    heads_kv, parts, count, size = (int(one) for one in centroids.shape)
    same(parts * size == int(q.shape[1]), q=q, centroids=centroids)
    heads = check_map(kv_head_of, int(q.shape[0]), heads_kv)
    need_contiguous(runtime, q=q, centroids=centroids)
    found = runtime.empty((len(heads), parts, count), np.float32)
    if found.size:
        arguments = [q, centroids, heads_table(runtime, heads), found, *map(np.int32, (parts, count, size))]
        grid = (grids.chunks(parts * count, THREADS), len(heads))
        runtime.launch(sources.pq(dtype, 8, 1, 1), "pq_tables", grid, THREADS, arguments)
    return found


def row_bytes(parts: int, bits: int) -> int:
    """Bytes of one row's packed codes."""
    return -(-parts * bits // 8)


def scores(table: Array, codes: Array, kv_head_of: Sequence[int], *, bits: int = 8) -> Array:
    """Sums of look-ups, float32 [H_q, n], from tables [H_q, m, C] and packed codes, uint8 [H_kv, n, bytes of a row].

    Codes of 8 bits are a byte each; of 4 bits two to a byte, the earlier part in the lower half. Codes are below C,
    which the kernel cannot check: an engine that takes codes from elsewhere checks them once, when it stores them.
    """
    runtime = runtime_of(table, codes)
    if bits not in (4, 8):
        raise KernelError(f"codes of 4 or 8 bits, not {bits}")
    if str(table.dtype) != "float32" or str(codes.dtype) != "uint8":
        raise KernelError(f"float32 tables and uint8 codes, not {table.dtype} and {codes.dtype}")
    same(table.ndim == 3 and codes.ndim == 3, table=table, codes=codes)
    heads = check_map(kv_head_of, int(table.shape[0]), int(codes.shape[0]))
    need_contiguous(runtime, table=table, codes=codes)
    parts, count, rows = int(table.shape[1]), int(table.shape[2]), int(codes.shape[1])
    same(int(codes.shape[2]) == row_bytes(parts, bits) and count <= 1 << bits, table=table, codes=codes)
    found = runtime.empty((len(heads), rows), np.float32)
    if not rows or not heads:
        return found
    queries = group_size(heads, MOST_QUERIES)
    while queries > 1 and 4 * parts * count * queries > MOST_TABLE_BYTES:
        queries //= 2
    shared = 4 * parts * count * queries
    if shared > MOST_TABLE_BYTES:
        raise KernelError(f"a table of {shared} bytes, {MOST_TABLE_BYTES} at most")
    width = row_bytes(parts, bits)
    access = next(one for one in (16, 4, 1) if width % one == 0 and runtime.address(codes) % one == 0)
    places = tiles(runtime, heads, queries)
    per_block = grids.rows_per_block(rows, int(places.shape[0]), runtime.multiprocessors, least=4 * THREADS)
    sizes = [np.int32(one) for one in (rows, parts, count, width, per_block)]
    arguments = [table, codes, places, found, *sizes, np.int64(rows * width)]
    grid = (grids.chunks(rows, per_block), int(places.shape[0]))
    runtime.launch(sources.pq("float32", bits, queries, access), "pq_scores", grid, THREADS, arguments, shared)
    return found
