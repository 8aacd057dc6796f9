"""What the methods share: ranks with ties to the lower position, attention over gathered rows, cluster means.

Shapes: ``q`` [H_q, d], ``k`` [T, H_kv, d], ``v`` [T, H_kv, d_v]. Arrays are of any library that follows the array API
standard; positions and ids are lists of integers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from array_api_compat import array_namespace, device

from ..attention import State, query_groups
from ..errors import Refusal

Array = Any
SAMPLE = 1 << 15
"""Scores from which a threshold is estimated before the best of many are sorted."""


def need(condition: bool, reason: str, detail: str = "") -> None:
    """Raise :class:`Refusal` unless the condition holds."""
    if not condition:
        raise Refusal(reason, detail)


def check_heads(kv_head_of: Sequence[int], queries: int, heads: int) -> None:
    """Refuse a head map that does not name a K/V head for each query head."""
    right = len(kv_head_of) == queries and all(0 <= one < heads for one in kv_head_of)
    need(right, "HEAD_MAP_INVALID", f"{list(kv_head_of)} for {queries} query and {heads} K/V heads")


def check_rows(q: Array, k: Array, v: Array, kv_head_of: Sequence[int]) -> None:
    """Refuse q, k and v that do not fit each other."""
    right = k.shape[:2] == v.shape[:2] and q.shape[1] == k.shape[2]
    need(right, "SHAPE_MISMATCH", f"{tuple(q.shape)}, {tuple(k.shape)} and {tuple(v.shape)}")
    check_heads(kv_head_of, q.shape[0], k.shape[1])


def check_ids(ids: Iterable[int], total: int) -> None:
    """Refuse ids of rows that there are not."""
    need(all(0 <= one < total for one in ids), "CANDIDATE_OUT_OF_RANGE", f"an id outside 0 .. {total - 1}")


def check_once(ids: Sequence[int]) -> None:
    """Refuse a support that holds a row twice."""
    need(len(set(ids)) == len(ids), "SUPPORT_DUPLICATED")


def groups_of(kv_head_of: Sequence[int], heads: int) -> list[list[int]]:
    """The query heads of each K/V head, an empty list for a head that nobody reads."""
    found = query_groups(kv_head_of)
    return found + [[] for _ in range(heads - len(found))]


def top(scores: Array, count: int) -> list[int]:
    """Indices of the ``count`` largest of [n], best first, ties to the lower index.

    Of many scores most are dropped by a threshold from a sample before the rest are sorted.
    """
    xp = array_namespace(scores)
    count = min(max(count, 0), scores.shape[0])
    if not count:
        return []
    if scores.shape[0] <= 2 * SAMPLE or count > SAMPLE // 8:
        return [int(i) for i in xp.argsort(-scores, stable=True)[:count]]
    floor = least_of_best(scores[:: scores.shape[0] // SAMPLE], count)
    kept = xp.nonzero(scores >= floor)[0]
    order = xp.argsort(-xp.take(scores, kept), stable=True)[:count]
    return [int(i) for i in xp.take(kept, order)]


def least_of_best(sample: Array, count: int) -> Array:
    """A number that at least ``count`` of a sample reach, and so at least ``count`` of whatever it was drawn from.

    It is the count-th largest of the maxima of disjoint groups: close to the count-th largest of the sample, without
    sorting it. Over a sample that is too small, minus infinity.
    """
    xp = array_namespace(sample)
    groups = min(8 * count, sample.shape[0])
    if groups < count:
        return xp.asarray(-math.inf, dtype=sample.dtype, device=device(sample))
    size = sample.shape[0] // groups
    maxima = xp.max(xp.reshape(sample[: groups * size], (groups, size)), axis=1)
    return xp.sort(maxima)[groups - count]


def softmax(scores: Array) -> Array:
    """Weights along the last axis."""
    xp = array_namespace(scores)
    weights = xp.exp(scores - xp.max(scores, axis=-1, keepdims=True))
    return weights / xp.sum(weights, axis=-1, keepdims=True)


def take(array: Array, ids: Sequence[int]) -> Array:
    """Rows of an array, in the order of the ids."""
    xp = array_namespace(array)
    return xp.take(array, xp.asarray(list(ids), dtype=xp.int64, device=device(array)), axis=0)


def weigh(scores: Array, values: Array) -> State:
    """State of one query head over rows with these logits: ``scores`` [n], ``values`` [n, d_v]; empty over none."""
    xp = array_namespace(scores, values)
    kind = {"dtype": scores.dtype, "device": device(scores)}
    if not scores.shape[0]:
        return State(xp.full((1,), -math.inf, **kind), xp.zeros((1,), **kind), xp.zeros((1, values.shape[1]), **kind))
    m = xp.max(scores)
    weights = xp.exp(scores - m)
    u = xp.astype(weights, scores.dtype) @ xp.astype(values, scores.dtype)
    return State(xp.reshape(m, (1,)), xp.reshape(xp.sum(weights), (1,)), xp.reshape(u, (1, -1)))


def stack(states: Sequence[State]) -> State:
    """The states of single query heads as one state of all."""
    xp = array_namespace(states[0].m)
    return State(*(xp.concat(column, axis=0) for column in zip(*states, strict=True)))


def attend(q: Array, k: Array, v: Array, ids: Sequence[int], scale: float, accumulate: str = "float32") -> State:
    """State of one query row [d] over the named rows of one K/V head: ``k`` [T, d], ``v`` [T, d_v]."""
    xp = array_namespace(q, k, v)
    dtype = getattr(xp, accumulate)
    kept = xp.astype(take(k, ids), dtype)
    scores = kept @ (xp.astype(q, dtype) * scale) if len(ids) else xp.zeros((0,), dtype=dtype, device=device(q))
    return weigh(scores, take(v, ids))


def attend_heads(
    q: Array,
    k: Array,
    v: Array,
    supports: Sequence[Sequence[int]],
    kv_head_of: Sequence[int],
    scale: float,
    accumulate: str = "float32",
) -> State:
    """State of every query head, each over rows of its own."""
    states = [
        attend(q[query, ...], k[:, one, :], v[:, one, :], supports[query], scale, accumulate)
        for query, one in enumerate(kv_head_of)
    ]
    return stack(states)


def squared_distances(points: Array, centres: Array) -> Array:
    """[n, C] from [n, d] and [C, d], by differences: nothing cancels where a point is a centre."""
    xp = array_namespace(points)
    difference = points[:, None, :] - centres[None, :, :]
    return xp.sum(difference * difference, axis=2)


def nearest(points: Array, centres: Array) -> Array:
    """Index [n] of the nearest centre, the lower of equals."""
    return array_namespace(points).argmin(squared_distances(points, centres), axis=1)


def member_means(points: Array, labels: Array, count: int, otherwise: Array) -> Array:
    """Mean [count, d] of each cluster's points; ``otherwise`` [count, d] where it has none."""
    xp = array_namespace(points)
    member = xp.astype(
        labels[None, :] == xp.arange(count, dtype=labels.dtype, device=device(labels))[:, None], points.dtype
    )
    sizes = xp.sum(member, axis=1)[:, None]
    return xp.where(sizes > 0, (member @ points) / xp.where(sizes > 0, sizes, 1.0), otherwise)


def sizes_of(labels: Sequence[int], count: int) -> list[int]:
    """Rows of each cluster."""
    found = [0] * count
    for label in labels:
        found[label] += 1
    return found
