"""Partial attention and merge on a device, as :mod:`kvassay_reference.attention` has them.

:func:`partial`, :func:`dense` and :func:`merge` take what the reference's take. :func:`decode` is the same for a batch
of sequences of different lengths, with rows in place, behind page tables, or named by lists.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from kvassay_reference import attention as reference
from kvassay_reference.attention import Mask, Pages, State
from kvassay_reference.errors import Refusal

from . import grids, sources
from .arrays import aligned, check_map, dtype_named, element, group_size, is_contiguous, need_contiguous, same, tiles
from .runtime import Array, KernelError, Runtime, runtime_of

LOWEST, HIGHEST = -(1 << 62), 1 << 62
"""Bounds of positions that exclude none."""
THREADS, ANY_THREADS, MERGE_THREADS = 128, 32, 128


class Layout(NamedTuple):
    """Where rows lie: distances in elements, of K and then of V."""

    sequence: tuple[int, int]
    page: tuple[int, int]
    row: tuple[int, int]
    head: tuple[int, int]


class Rows(NamedTuple):
    """Which rows each sequence has: see ``attention.cu``."""

    table: Array | None
    """Pages or rows, int32 [sequences, entries] or [sequences, lists, entries]."""
    page_rows: int
    """0 where the table names rows, or there is none."""
    lengths: Array | None
    """int32 [sequences] or [sequences, lists]."""
    begin: int
    end: int
    per_query: bool = False
    """Whether each query head has a list of its own."""


class Visible(NamedTuple):
    """Which positions a query may see: least and greatest, and where row 0 stands."""

    positions: Array | None
    mask: Array | None
    first: int
    least: int
    greatest: int


def partial(
    q: Array,
    k: Array,
    v: Array,
    *,
    scale: float,
    kv_head_of: Sequence[int],
    positions: Array | range,
    q_position: int,
    mask: Mask,
    pages: Pages | None = None,
    legal: Array | None = None,
) -> State:
    """State of the legal rows, empty where there are none; shapes and refusals are the reference's.

    ``positions`` is an int64 array [T], or a ``range`` of step 1, with which the kernel neither loads positions nor
    looks at rows that the mask hides at either end. ``legal`` [T], uint8 or bool, hides rows beyond what ``mask``
    hides. K and V may be views: the last axis is contiguous, the others have any strides.
    """
    runtime = runtime_of(q, k, v, *([] if isinstance(positions, range) else [positions]))
    _check(q, k, v, kv_head_of, positions, mask, pages)
    rows = pages.rows if pages else int(k.shape[0])
    if legal is not None and (legal.shape != (rows,) or legal.dtype.itemsize != 1):
        raise Refusal("SHAPE_MISMATCH", f"legal rows of shape {tuple(legal.shape)} and dtype {legal.dtype}")
    least = q_position - mask.window + 1 if mask.window is not None else LOWEST
    greatest = q_position if mask.causal else HIGHEST
    if isinstance(positions, range):
        seen = Visible(None, legal, positions.start, least, greatest)
        first, end = max(0, least - positions.start), min(rows, greatest - positions.start + 1)
    else:
        seen = Visible(positions, legal, 0, least, greatest)
        first, end = 0, rows
    (k_page, k_row, k_head), (v_page, v_row, v_head) = (_strides(runtime, one, pages is not None) for one in (k, v))
    layout = Layout((0, 0), (k_page, v_page), (k_row, v_row), (k_head, v_head))
    table = None if pages is None else runtime.upload(np.asarray(pages.table, dtype=np.int32)[None, :])
    which = Rows(table, pages.page_rows if pages else 0, None, first, max(first, end))
    state = _reduce(runtime, q[None, ...], k, v, layout, which, seen, scale, kv_head_of)
    return State(state.m[0, ...], state.l[0, ...], state.u[0, ...])


def dense(q: Array, k: Array, v: Array, **rows: Any) -> tuple[Array, Array]:
    """Output [H_q, d_v] and LSE [H_q] over the legal rows; takes what :func:`partial` takes.

    Raises :class:`Refusal` where the mask leaves no row, for which it waits for the device.
    """
    return finish(partial(q, k, v, **rows))


def decode(
    q: Array,
    k: Array,
    v: Array,
    *,
    scale: float,
    kv_head_of: Sequence[int],
    lengths: Array | None = None,
    table: Array | None = None,
    page_rows: int = 0,
    per_query: bool = False,
    output: str | None = None,
) -> tuple[Array, Array]:
    """Output [B, H_q, d_v] and LSE [B, H_q] of one query row for each of B sequences.

    ``q`` [B, H_q, d]. Without a table, K and V are [B, T, H_kv, d]. With ``page_rows``, they are [pages, page_rows,
    H_kv, d] and ``table`` int32 [B, entries] holds the pages of each sequence. With a table and no ``page_rows``, K and
    V are [B, T, H_kv, d], and ``table`` int32 [B, H_kv, entries] names the rows that each K/V head attends, or with
    ``per_query`` int32 [B, H_q, entries] each query head; entries below 0 stand for none. ``lengths`` int32 [B], or [B,
    H_kv] beside lists, holds the rows or entries that count; without it all do. ``output`` is the dtype of the output,
    by default that of q; the LSE is natural and float32. Over no rows the output is 0 and the LSE minus infinity.
    """
    runtime = runtime_of(*(one for one in (q, k, v, lengths, table) if one is not None))
    batch, paged, listed = int(q.shape[0]), bool(page_rows), table is not None and not page_rows
    if paged and table is None:
        raise KernelError("pages need a table")
    same(q.ndim == 3 and k.ndim == v.ndim == 4 and k.shape[:3] == v.shape[:3], q=q, k=k, v=v)
    same(q.shape[2] == k.shape[3], q=q, k=k)
    same(int(k.shape[1]) == page_rows if paged else int(k.shape[0]) == batch, q=q, k=k)
    check_map(kv_head_of, int(q.shape[1]), int(k.shape[2]))
    lists = int(q.shape[1]) if per_query else int(k.shape[2])
    if table is not None:
        same(tuple(table.shape[:-1]) == ((batch, lists) if listed else (batch,)), q=q, table=table)
    if lengths is not None:
        same(tuple(lengths.shape) in ({(batch,), (batch, lists)} if listed else {(batch,)}), q=q, lengths=lengths)
    for name, array in (("table", table), ("lengths", lengths)):
        if array is not None:
            need_contiguous(runtime, **{name: array})
            if str(array.dtype) != "int32":
                raise KernelError(f"{name} is int32, not {array.dtype}")
    outer_k, outer_v = (_strides(runtime, one, True) for one in (k, v))
    sequence = (0, 0) if paged else (outer_k[0], outer_v[0])
    layout = Layout(
        sequence,
        (outer_k[0], outer_v[0]) if paged else (0, 0),
        (outer_k[1], outer_v[1]),
        (outer_k[2], outer_v[2]),
    )
    end = int(table.shape[-1]) * max(1, page_rows) if table is not None else int(k.shape[1])
    seen = Visible(None, None, 0, LOWEST, HIGHEST)
    which = Rows(table, page_rows, lengths, 0, end, per_query and listed)
    state = _reduce(runtime, q, k, v, layout, which, seen, scale, kv_head_of, keep_splits=True)
    shape = (batch, int(q.shape[1]))
    dtype = output or str(q.dtype)
    out, lse = runtime.empty((*shape, int(v.shape[3])), dtype_named(dtype)), runtime.empty(shape, np.float32)
    _merge_spaced(runtime, state, out=out, lse=lse, dtype=dtype)
    return out, lse


def merge(states: Sequence[State]) -> State:
    """State of the union of disjoint sets of rows, in one launch for any number of states.

    Parts are contiguous float32 arrays. Raises :class:`Refusal` for states of different shapes.
    """
    if len({(tuple(one.u.shape), tuple(one.m.shape), tuple(one.l.shape)) for one in states}) != 1:
        raise Refusal("SHAPE_MISMATCH", "states of different shapes")
    parts = [part for state in states for part in state]
    runtime = runtime_of(*parts)
    for part in parts:
        if str(part.dtype) != "float32" or not is_contiguous(runtime, part):
            raise KernelError(f"the parts of states are contiguous float32 arrays, not {part.dtype}")
    columns = zip(*states, strict=True)
    addresses = runtime.upload(np.asarray([[runtime.address(part) for part in one] for one in columns], np.int64))
    m, l, u = (runtime.empty(tuple(part.shape), np.float32) for part in states[0])  # noqa: E741
    arguments = [addresses, m, l, u, None, None, np.int32(len(states)), np.int32(u.shape[1])]
    if int(m.shape[0]):
        runtime.launch(sources.merge(), "merge_listed", (int(m.shape[0]),), MERGE_THREADS, arguments)
    return State(m, l, u)


def finish(state: State) -> tuple[Array, Array]:
    """Output [H_q, d_v] and LSE [H_q]; raises :class:`Refusal` over no rows, for which it waits for the device."""
    if reference.is_empty(state):
        raise Refusal("NO_LEGAL_ROWS", "the mask leaves no row")
    return output(state)


def output(state: State) -> tuple[Array, Array]:
    """Output [H_q, d_v] and LSE [H_q]; 0 and minus infinity over no rows."""
    runtime = runtime_of(*state)
    out, lse = (runtime.empty(tuple(part.shape), np.float32) for part in (state.u, state.m))
    _merge_spaced(runtime, State(*(part[None, ...] for part in state)), out=out, lse=lse, dtype="float32")
    return out, lse


# --- launches ----------------------------------------------------------------------------------------------------


def _reduce(
    runtime: Runtime,
    q: Array,
    k: Array,
    v: Array,
    layout: Layout,
    rows: Rows,
    seen: Visible,
    scale: float,
    kv_head_of: Sequence[int],
    *,
    keep_splits: bool = False,
) -> State:
    """State [B, H_q] of each sequence; with ``keep_splits`` [splits, B, H_q]."""
    batch, query_heads, channels = (int(size) for size in q.shape)
    value_channels, dtype = int(v.shape[-1]), element(q, k, v)
    need_contiguous(runtime, q=q)
    fast = channels in sources.FAST_CHANNELS and value_channels == channels
    fast = fast and aligned(runtime, [k, v], [step for distances in layout for step in distances])
    group = group_size(tuple(kv_head_of)) if fast and not rows.per_query else 1
    table = tiles(runtime, tuple(kv_head_of), group, per_query=rows.per_query)
    count = int(table.shape[0])
    split, per_split = grids.splits(rows.end - rows.begin, count * batch, group, runtime.multiprocessors)
    shape = (split, batch, query_heads)
    m, l, u = (runtime.empty(one, np.float32) for one in (shape, shape, (*shape, value_channels)))  # noqa: E741
    # Entries of a table, and one of the lengths, stand at these distances for each sequence and each K/V head.
    table_strides, length_strides = _outer_strides(rows.table, 1), _outer_strides(rows.lengths, 0)
    arguments: list[Any] = [q, k, v, table, rows.table, rows.lengths, seen.positions, seen.mask, m, l, u]
    small = (query_heads,), (rows.begin, rows.end, per_split, rows.page_rows, *table_strides, *length_strides)
    arguments += [*map(np.int32, small[0]), np.float32(scale), *map(np.int32, small[1])]
    arguments += map(np.int64, (seen.first, seen.least, seen.greatest))
    for which in (0, 1):
        arguments += [np.int64(distances[which]) for distances in layout]
    grid = (split, count, batch)
    if batch and query_heads and fast:
        runtime.launch(sources.attention(dtype, channels, group), "attention_partial", grid, THREADS, arguments)
    elif batch and query_heads:
        arguments += [np.int32(channels), np.int32(value_channels)]
        room = 4 * (channels + value_channels + ANY_THREADS)
        runtime.launch(sources.attention_any(dtype), "attention_partial_any", grid, ANY_THREADS, arguments, room)
    state = State(m, l, u)
    if keep_splits:
        return state
    if split == 1:
        return State(m[0, ...], l[0, ...], u[0, ...])
    merged = State(*(runtime.empty(tuple(part.shape[1:]), np.float32) for part in state))
    _merge_spaced(runtime, state, *merged)
    return merged


def _merge_spaced(
    runtime: Runtime,
    states: State,
    m: Array | None = None,
    l: Array | None = None,  # noqa: E741
    u: Array | None = None,
    *,
    out: Array | None = None,
    lse: Array | None = None,
    dtype: str = "float32",
) -> None:
    """Merge states [S, ...] along their first axis, into a state or an output."""
    heads = int(np.prod([int(size) for size in states.m.shape[1:]]))
    arguments = [*states, m, l, u, out, lse, np.int32(states.m.shape[0]), np.int32(states.u.shape[-1])]
    if heads:
        runtime.launch(sources.merge(dtype), "merge_spaced", (heads,), MERGE_THREADS, arguments)


# --- checks and tables -------------------------------------------------------------------------------------------


class _Positions(NamedTuple):
    """What the reference's checks ask of positions that are a range."""

    shape: tuple[int]


def _check(
    q: Array, k: Array, v: Array, kv_head_of: Sequence[int], positions: Any, mask: Mask, pages: Pages | None
) -> None:
    """The reference's checks, and those of the kernels."""
    as_array = _Positions((len(positions),)) if isinstance(positions, range) else positions
    reference.check_rows(q, k, v, kv_head_of, as_array, mask, pages)
    if isinstance(positions, range) and positions.step != 1:
        raise KernelError(f"a range of positions has step 1, not {positions.step}")
    if not isinstance(positions, range) and str(positions.dtype) != "int64":
        raise KernelError(f"positions are int64, not {positions.dtype}")


def _strides(runtime: Runtime, array: Array, outer: bool) -> tuple[int, int, int]:
    """Distances of pages, rows and heads in elements; 0 for pages where there are none."""
    found = runtime.strides(array)
    if int(array.shape[-1]) > 1 and found[-1] != 1 and 0 not in array.shape:
        raise KernelError("the last axis of k and v is contiguous")
    return (found[0], found[1], found[2]) if outer else (0, found[0], found[1])


def _outer_strides(table: Array | None, inner: int) -> tuple[int, int]:
    """Distances of sequences and of K/V heads in a table whose last ``inner`` axes are one entry; 0 for no axis."""
    if table is None:
        return 0, 0
    size = int(table.shape[-1]) if inner else 1
    if table.ndim - inner == 1:
        return size, 0
    return int(table.shape[1]) * size, size
