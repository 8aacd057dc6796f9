"""What the selectors share: a legal request, ranks with ties to the lower position, and attention over a support."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from array_api_compat import array_namespace, device

from .. import attention
from ..attention import Mask
from ..errors import Refusal

Array = Any
"""An array of any library that follows the Python array API standard."""


@dataclass(frozen=True)
class History:
    """One query row and the rows before it.

    Shapes: ``q`` [H_q, d], ``k`` [T, H_kv, d], ``v`` [T, H_kv, d_v] or ``None``. Row i has position i; ``hidden``
    positions are never seen. Arithmetic is in the dtype ``accumulate``.
    """

    q: Array
    k: Array
    kv_head_of: Sequence[int]
    v: Array | None = None
    hidden: Sequence[int] = ()
    accumulate: str = "float32"

    def checked(self) -> History:
        """The same; raises :class:`Refusal` for what is not legal, in the order of the chapter."""
        arrays = [self.q, self.k] if self.v is None else [self.q, self.k, self.v]
        if any(array.dtype != self.q.dtype for array in arrays) or "float" not in str(self.q.dtype):
            raise Refusal("DTYPE_MISMATCH", ", ".join(str(array.dtype) for array in arrays))
        if self.q.ndim != 2 or self.k.ndim != 3 or self.q.shape[1] != self.k.shape[2]:
            raise Refusal("SHAPE_MISMATCH", f"q {tuple(self.q.shape)} and k {tuple(self.k.shape)}")
        if self.v is not None and (self.v.ndim != 3 or self.v.shape[:2] != self.k.shape[:2]):
            raise Refusal("SHAPE_MISMATCH", f"k {tuple(self.k.shape)} and v {tuple(self.v.shape)}")
        check_map(self.kv_head_of, self.q.shape[0], self.k.shape[1])
        return self

    @property
    def rows(self) -> int:
        """Length of the history, T."""
        return int(self.k.shape[0])

    @property
    def heads(self) -> int:
        """K/V heads."""
        return int(self.k.shape[1])

    @property
    def groups(self) -> list[list[int]]:
        """For each K/V head the query heads that read it."""
        return query_groups(self.kv_head_of, self.heads)

    @property
    def legal(self) -> Array:
        """For each row whether the query may see it, [T]."""
        xp = array_namespace(self.k)
        seen = xp.ones((self.rows,), dtype=xp.bool, device=device(self.k))
        positions = xp.arange(self.rows, dtype=xp.int64, device=device(self.k))
        for position in self.hidden:
            seen = seen & (positions != position)
        return seen

    def query(self, heads: Sequence[int]) -> Array:
        """Some query heads in the dtype of the arithmetic, [n, d]."""
        return working(take_rows(self.q, heads), self.accumulate)

    def keys(self, head: int) -> Array:
        """Rows of one K/V head in the dtype of the arithmetic, [T, d]."""
        return working(self.k[:, head, :], self.accumulate)


def check_map(kv_head_of: Sequence[int], queries: int, heads: int) -> None:
    """Refuse a head map that does not name one existing K/V head for each query head."""
    if len(kv_head_of) != queries or not all(0 <= head < heads for head in kv_head_of):
        raise Refusal("HEAD_MAP_INVALID", f"{list(kv_head_of)} for {queries} query and {heads} K/V heads")


def query_groups(kv_head_of: Sequence[int], heads: int) -> list[list[int]]:
    """For each K/V head the query heads that read it, ascending."""
    groups: list[list[int]] = [[] for _ in range(heads)]
    for query, head in enumerate(kv_head_of):
        groups[head].append(query)
    return groups


def working(array: Array, dtype: str) -> Array:
    """An array in the dtype of the arithmetic, without a copy where it is there already."""
    xp = array_namespace(array)
    return xp.astype(array, getattr(xp, dtype), copy=False)


def integers(like: Array, values: Sequence[int]) -> Array:
    """Indices on the device of another array."""
    xp = array_namespace(like)
    return xp.asarray(list(values), dtype=xp.int64, device=device(like))


def take_rows(array: Array, indices: Sequence[int]) -> Array:
    """Rows of an array by a list of indices."""
    return array_namespace(array).take(array, integers(array, indices), axis=0)


def in_query_order(parts: Sequence[Array], order: Sequence[int]) -> Array:
    """Rows of several groups as one array; ``order`` names the query head of each row."""
    joined = parts[0] if len(parts) == 1 else array_namespace(*parts).concat(list(parts))
    if list(order) == list(range(len(order))):
        return joined
    return take_rows(joined, [list(order).index(query) for query in range(len(order))])


def top(scores: Array, count: int) -> Array:
    """Indices of the ``count`` largest of a row, best first; ties go to the lower index."""
    return array_namespace(scores).argsort(-scores, stable=True)[: min(max(count, 0), scores.shape[0])]


def best(scores: Array, count: int) -> Array:
    """The same, ascending."""
    return array_namespace(scores).sort(top(scores, count))


def softmax(logits: Array) -> Array:
    """Softmax along the last axis; -inf weighs 0, and over no finite logit every weight is 0."""
    xp = array_namespace(logits)
    if logits.shape[-1] == 0:
        return logits
    largest = xp.max(logits, axis=-1, keepdims=True)
    largest = xp.where(largest == -math.inf, xp.zeros_like(largest), largest)
    weights = xp.exp(logits - largest)
    whole = xp.sum(weights, axis=-1, keepdims=True)
    return weights / xp.where(whole > 0, whole, xp.ones_like(whole))


def check_ascending(found: Array, limit: int, reason: str = "CANDIDATE_OUT_OF_RANGE") -> None:
    """Refuse indices outside 0 .. limit - 1, and then those that do not ascend."""
    xp = array_namespace(found)
    if found.shape[0] and (int(xp.min(found)) < 0 or int(xp.max(found)) >= limit):
        raise Refusal(reason, f"outside 0 .. {limit - 1}")
    if found.shape[0] > 1 and bool(xp.any(found[1:] <= found[:-1])):
        raise Refusal("CANDIDATES_NOT_ASCENDING")


def attend(history: History, scale: float, supports: Sequence[tuple[Sequence[int], int, Array]]) -> tuple[Array, Array]:
    """Output [H_q, d_v] and LSE [H_q] over supports of one K/V head each.

    ``supports`` holds (query heads, K/V head, positions); each query head stands in one of them. Raises
    :class:`Refusal` for a query head without rows.
    """
    xp = array_namespace(history.q)
    assert history.v is not None
    values = history.v
    outs, masses = [], []
    order: list[int] = []
    for members, head, positions in supports:
        if not members:
            continue
        k, v = (xp.take(array[:, head : head + 1, :], positions, axis=0) for array in (history.k, values))
        state = attention.partial(
            take_rows(history.q, members),
            k,
            v,
            scale=scale,
            kv_head_of=[0] * len(members),
            positions=positions,
            q_position=0,
            mask=Mask(causal=False),
            accumulate=history.accumulate,
        )
        out, mass = attention.finish(state)
        outs.append(out)
        masses.append(mass)
        order += members
    return in_query_order(outs, order), in_query_order(masses, order)
