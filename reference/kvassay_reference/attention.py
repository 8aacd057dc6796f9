"""Attention of one query row over any part of its history, as states that merge exactly.

One source for NumPy, Torch and CuPy arrays. Shapes: ``q`` [H_q, d], ``k`` [T, H_kv, d], ``v`` [T, H_kv, d_v]; a
state holds ``m`` and ``l`` [H_q] and ``u`` [H_q, d_v]. Scores and logarithms are natural, positions count tokens.
The chapter ``spec/attention.md`` derives everything here; its sources are sections 00D, 04W and 07A of the article.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, NamedTuple

from array_api_compat import array_namespace, device

from .errors import Refusal

Array = Any
"""An array of any library that follows the Python array API standard."""
ROWS_PER_BLOCK = 1024
"""Rows reduced at once: a block of scores stays in cache while K and V stream past it."""


class State(NamedTuple):
    """The share of the softmax that one set of rows contributes, per query head."""

    m: Array
    """Largest score, [H_q]; -inf over no rows."""
    l: Array  # noqa: E741 (the name that papers and kernels use)
    """Sum of exp(s - m), [H_q]; 0 over no rows."""
    u: Array
    """Sum of exp(s - m) v, [H_q, d_v]; 0 over no rows."""


@dataclass(frozen=True)
class Mask:
    """Which positions the query at ``q_position`` may see."""

    causal: bool
    window: int | None = None
    """Length of the sliding window, the query's own position included."""

    def sees(self, positions: Array, q_position: int) -> Array:
        """For each position whether it is legal."""
        xp = array_namespace(positions)
        legal = xp.ones(positions.shape, dtype=xp.bool, device=device(positions))
        if self.causal:
            legal &= positions <= q_position
        if self.window is not None:
            legal &= positions > q_position - self.window
        return legal


@dataclass(frozen=True)
class Pages:
    """A block table: K and V are [physical pages, page_rows, H_kv, d], read in the order of the table."""

    page_rows: int
    table: Sequence[int]
    """Physical page of each logical page; what lies beyond the last row is never read."""
    rows: int
    """Logical rows, T."""


def partial(
    q: Array,
    k: Array,
    v: Array,
    *,
    scale: float,
    kv_head_of: Sequence[int],
    positions: Array,
    q_position: int,
    mask: Mask,
    pages: Pages | None = None,
    accumulate: str = "float32",
    rows_per_block: int = ROWS_PER_BLOCK,
    weights_dtype: Any = None,
) -> State:
    """State of the legal rows, empty where there are none.

    ``positions`` [T] holds the position of each row, in any order. Arithmetic is in the dtype ``accumulate``; with a
    ``weights_dtype`` the softmax weights are rounded to it before they meet V, as half-precision kernels do.
    Raises :class:`Refusal` for what the chapter rejects.
    """
    check_rows(q, k, v, kv_head_of, positions, mask, pages)
    if pages is not None:
        k, v = gather_pages(k, pages), gather_pages(v, pages)
    xp = array_namespace(q, k, v)
    q = xp.astype(q, getattr(xp, accumulate)) * scale
    groups = query_groups(kv_head_of)
    state = empty_state(q, v.shape[2])
    for k_block, v_block in legal_blocks(k, v, mask.sees(positions, q_position), rows_per_block):
        state = merge_two(state, block_state(q, k_block, v_block, groups, weights_dtype))
    return state


def dense(q: Array, k: Array, v: Array, **rows: Any) -> tuple[Array, Array]:
    """Output [H_q, d_v] and LSE [H_q] over the legal rows; takes what :func:`partial` takes.

    Raises :class:`Refusal` where the mask leaves no row.
    """
    return finish(partial(q, k, v, **rows))


def merge(states: Sequence[State]) -> State:
    """State of the union of disjoint sets of rows.

    States carry no row ids: rows that two of them share count twice, and nothing here can notice.
    """
    if len({(state.u.shape, state.m.shape, state.l.shape) for state in states}) != 1:
        raise Refusal("SHAPE_MISMATCH", "states of different shapes")
    return reduce(merge_two, states)


def merge_two(a: State, b: State) -> State:
    """Bring both states to the common maximum and add them.

    The empty state is the identity: its factor is 0, never exp(-inf - -inf).
    """
    xp = array_namespace(a.m, b.m)
    m = xp.maximum(a.m, b.m)
    fa, fb = rescaling(a.m, m), rescaling(b.m, m)
    return State(m, fa * a.l + fb * b.l, fa[:, None] * a.u + fb[:, None] * b.u)


def rescaling(old: Array, new: Array) -> Array:
    """exp(old - new), and 0 where nothing was there to be rescaled."""
    xp = array_namespace(old, new)
    nothing = old == -math.inf
    return xp.where(nothing, 0.0, xp.exp(xp.where(nothing, 0.0, old) - xp.where(nothing, 0.0, new)))


def empty_state(q: Array, d_v: int) -> State:
    """The state over no rows, in the dtype and on the device of ``q``."""
    xp = array_namespace(q)
    kind = {"dtype": q.dtype, "device": device(q)}
    heads = q.shape[0]
    return State(xp.full((heads,), -math.inf, **kind), xp.zeros((heads,), **kind), xp.zeros((heads, d_v), **kind))


def is_empty(state: State) -> bool:
    """Whether no head holds a row."""
    return not bool(array_namespace(state.l).any(state.l > 0))


def finish(state: State) -> tuple[Array, Array]:
    """Output [H_q, d_v] and LSE [H_q] of the state over all rows; raises :class:`Refusal` where it holds none."""
    if is_empty(state):
        raise Refusal("NO_LEGAL_ROWS", "the mask leaves no row")
    return output(state), log_sum_exp(state)


def output(state: State) -> Array:
    """Normalised output u / l, [H_q, d_v]; 0 over no rows."""
    xp = array_namespace(state.l)
    return state.u / xp.where(state.l > 0, state.l, 1.0)[:, None]


def log_sum_exp(state: State) -> Array:
    """Natural logarithm of the softmax mass, m + log l, [H_q]; -inf over no rows."""
    xp = array_namespace(state.l)
    some = state.l > 0
    return xp.where(some, state.m + xp.log(xp.where(some, state.l, 1.0)), state.m)


def from_output(out: Array, lse: Array) -> State:
    """The state that a normalised output and its natural LSE stand for: one row of that score and value."""
    xp = array_namespace(out, lse)
    return State(lse, xp.astype(lse > -math.inf, lse.dtype), xp.astype(out, lse.dtype))


def block_state(q: Array, k: Array, v: Array, groups: Sequence[Sequence[int]], weights_dtype: Any = None) -> State:
    """State of a block of rows of which none is masked; ``q`` is scaled, and its dtype is that of the arithmetic.

    ``groups[h]`` names the query heads that read K/V head ``h``.
    """
    xp = array_namespace(q)
    parts = []
    for head, members in enumerate(groups):
        if members:
            queries = xp.take(q, xp.asarray(members, device=device(q)), axis=0)
            scores = (xp.astype(k[:, head, :], q.dtype, copy=False) @ queries.T).T
            m = xp.max(scores, axis=1)
            weights = xp.exp(scores - m[:, None])
            l = xp.sum(weights, axis=1)  # noqa: E741
            if weights_dtype is not None:
                weights = xp.astype(xp.astype(weights, weights_dtype), q.dtype)
            parts.append(State(m, l, weights @ xp.astype(v[:, head, :], q.dtype, copy=False)))
    grouped = [query for members in groups for query in members]
    back = xp.asarray([grouped.index(query) for query in range(len(grouped))], device=device(q))
    return State(*(xp.take(xp.concat(column), back, axis=0) for column in zip(*parts, strict=True)))


def legal_blocks(k: Array, v: Array, legal: Array, rows_per_block: int) -> Iterator[tuple[Array, Array]]:
    """K and V of the legal rows, block by block, without blocks that hold none.

    Masked rows are taken out before any arithmetic, so that what they hold cannot matter.
    """
    xp = array_namespace(k, v)
    for start in range(0, k.shape[0], rows_per_block):
        block = slice(start, min(start + rows_per_block, k.shape[0]))
        kept = xp.nonzero(legal[block])[0]
        if kept.shape[0] == legal[block].shape[0]:
            yield k[block, ...], v[block, ...]
        elif kept.shape[0]:
            yield xp.take(k[block, ...], kept, axis=0), xp.take(v[block, ...], kept, axis=0)


def query_groups(kv_head_of: Sequence[int]) -> list[list[int]]:
    """For each K/V head the query heads that read it."""
    groups: list[list[int]] = [[] for _ in range(max(kv_head_of, default=-1) + 1)]
    for query, head in enumerate(kv_head_of):
        groups[head].append(query)
    return groups


def gather_pages(physical: Array, pages: Pages) -> Array:
    """The logical rows [T, H_kv, d] behind a block table."""
    xp = array_namespace(physical)
    used = xp.asarray(used_pages(pages), dtype=xp.int64, device=device(physical))
    return xp.reshape(xp.take(physical, used, axis=0), (-1, *physical.shape[2:]))[: pages.rows, ...]


def used_pages(pages: Pages) -> list[int]:
    """The entries of the table that hold a row."""
    return list(pages.table[: -(-pages.rows // pages.page_rows)])


def check_rows(
    q: Array, k: Array, v: Array, kv_head_of: Sequence[int], positions: Array, mask: Mask, pages: Pages | None
) -> None:
    """Refuse what is not legal, in the order of the chapter: dtypes, shapes, head map, window, pages."""
    # isdtype of the standard does not know bfloat16.
    if not q.dtype == k.dtype == v.dtype or "float" not in str(q.dtype):
        raise Refusal("DTYPE_MISMATCH", f"q, k and v are {q.dtype}, {k.dtype} and {v.dtype}")
    axes = 3 if pages is None else 4
    if q.ndim != 2 or k.ndim != axes or v.ndim != axes:
        raise Refusal("SHAPE_MISMATCH", f"q, k and v have {q.ndim}, {k.ndim} and {v.ndim} axes")
    rows = k.shape[0] if pages is None else pages.rows
    paged_alike = pages is None or k.shape[1] == pages.page_rows
    if k.shape[:-1] != v.shape[:-1] or q.shape[1] != k.shape[-1] or positions.shape != (rows,) or not paged_alike:
        shapes = ", ".join(str(tuple(array.shape)) for array in (q, k, v, positions))
        raise Refusal("SHAPE_MISMATCH", f"q, k, v and positions have shapes {shapes}")
    if len(kv_head_of) != q.shape[0] or not all(0 <= head < k.shape[-2] for head in kv_head_of):
        raise Refusal("HEAD_MAP_INVALID", f"{list(kv_head_of)} for {q.shape[0]} query and {k.shape[-2]} K/V heads")
    if mask.window is not None and mask.window < 1:
        raise Refusal("WINDOW_INVALID", f"a window of {mask.window} holds no position")
    if pages is not None:
        used = used_pages(pages)
        if len(used) * pages.page_rows < rows:
            raise Refusal("PAGE_OUT_OF_RANGE", f"{len(used)} pages of {pages.page_rows} rows cannot hold {rows} rows")
        if not all(0 <= page < k.shape[0] for page in used):
            raise Refusal("PAGE_OUT_OF_RANGE", f"the table names a page outside 0 .. {k.shape[0] - 1}")
