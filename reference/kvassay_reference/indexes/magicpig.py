"""MagicPIG: hash tables that sample rows, and an estimator that weighs each row by how likely it was to be sampled.

Sources: 07I, 07I1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from array_api_compat import array_namespace, device
from numpy.typing import NDArray

from ..attention import State
from .rows import Array, need, take, weigh

Floats = NDArray[np.float64]


class Tables(NamedTuple):
    """The collision rule that probabilities hold for."""

    bits: int
    """Bits that must all match for a table to match, K."""
    tables: int
    """L."""
    least: int
    """Tables that must match."""


def buckets(x: Array, projections: Array) -> list[list[int]]:
    """Bucket of each row [n, d] in each table; bit b is set strictly on the positive side of plane b. [L, K, d]."""
    xp = array_namespace(x, projections)
    tables, bits, channels = projections.shape
    need(x.shape[1] == channels, "LSH_GEOMETRY_INVALID", f"{x.shape[1]} channels, planes of {channels}")
    sides = xp.reshape(x @ xp.reshape(projections, (tables * bits, channels)).T, (x.shape[0], tables, bits))
    powers = xp.asarray([1 << b for b in range(bits)], dtype=xp.int64, device=device(x))
    codes = xp.sum(xp.astype(sides > 0, xp.int64) * powers, axis=2)
    return [[int(code) for code in codes[i, ...]] for i in range(codes.shape[0])]


def matches(keys: Array, query: Array) -> Array:
    """How many tables match, [T], from buckets [L, T] and [L]."""
    xp = array_namespace(keys, query)
    return xp.sum(xp.astype(keys == query[:, None], xp.int64), axis=0)


def collision(cosines: Array) -> Array:
    """Probability that one bit matches, acos(-c) / pi: nothing cancels near c = -1, and c beyond 1 is 1."""
    xp = array_namespace(cosines)
    return xp.acos(-xp.clip(cosines, -1.0, 1.0)) / math.pi


def inclusion(cosines: Array, rule: Tables) -> tuple[Array, Array]:
    """Probability u of being sampled and log u, [n], in the dtype of the cosines.

    With r the probability that a table matches, the second match comes at table n with probability
    (n - 1) r^2 (1 - r)^(n-2). Their sum over n has positive terms alone, where the closed form subtracts numbers that
    are almost equal from one.
    """
    xp = array_namespace(cosines)
    r = collision(cosines) ** rule.bits
    runs = rule.tables - rule.least + 1
    steps = xp.arange(max(runs, 0), dtype=cosines.dtype, device=device(cosines))
    ways = steps + 1.0 if rule.least == 2 else xp.ones_like(steps)
    total = xp.sum(ways * (1.0 - r)[:, None] ** steps, axis=1)
    u = r**rule.least * total
    some = u > 0
    log_u = rule.least * xp.log(xp.where(r > 0, r, 1.0)) + xp.log(xp.where(total > 0, total, 1.0))
    return xp.where(u < 1.0, u, 1.0), xp.where(
        some | ((r > 0) & (total > 0)), xp.where(log_u < 0, log_u, 0.0), -math.inf
    )


def cosines_of(q: Array, keys: Array) -> Array:
    """Cosine [n] of a query [d] and keys [n, d] in float64; 0 for a row without direction, whose bits are as drawn."""
    xp = array_namespace(q, keys)
    q, keys = xp.astype(q, xp.float64), xp.astype(keys, xp.float64)
    size = xp.sqrt(xp.sum(q * q)) * xp.sqrt(xp.sum(keys * keys, axis=1))
    return xp.where(size > 0, (keys @ q) / xp.where(size > 0, size, 1.0), 0.0)


def offloaded(rows: int, static: Sequence[int]) -> list[int]:
    """Rows that the tables index: all that are not static."""
    kept = set(static)
    return [row for row in range(rows) if row not in kept]


def mean_key(k: Array, ids: Sequence[int]) -> Array:
    """Mean of the named rows of [T, d] in float64; zeros over none."""
    xp = array_namespace(k)
    rows = xp.astype(take(k, ids), xp.float64)
    return xp.mean(rows, axis=0) if len(ids) else xp.zeros((k.shape[1],), dtype=xp.float64, device=device(k))


class Estimate(NamedTuple):
    """One query head's estimate."""

    state: State
    chances: list[float]


def estimate(
    q: Array,
    k: Array,
    v: Array,
    static: Sequence[int],
    sampled: Sequence[int],
    rule: Tables,
    *,
    middle: Array,
    scale: float,
    epsilon: float = 0.0,
    accumulate: str = "float32",
) -> Estimate:
    """State of one query row [d] over static and sampled rows of one K/V head, every key less the mean.

    The logit of a sampled row is less by log(u + epsilon); a static row's probability is one.
    """
    xp = array_namespace(q, k, v)
    dtype = getattr(xp, accumulate)
    fixed, drawn = (xp.astype(take(k, ids), xp.float64) - middle for ids in (static, sampled))
    u, log_u = inclusion(cosines_of(q, drawn), rule)
    if epsilon:
        log_u = xp.log(u + epsilon)
    need(bool(xp.all(log_u > -math.inf)), "ZERO_PROBABILITY_SAMPLE")
    line = xp.astype(q, dtype) * scale
    logits = xp.concat([xp.astype(fixed, dtype) @ line, xp.astype(drawn, dtype) @ line - xp.astype(log_u, dtype)])
    values = xp.concat([take(v, static), take(v, sampled)], axis=0)
    return Estimate(weigh(logits, values), [float(x) for x in u])


class Enumeration(NamedTuple):
    """Every sample over a small pool, and what the estimator comes to on average."""

    outcomes: Mapping[tuple[int, ...], float]
    nonempty: float
    expected: Floats
    dense: Floats


def enumerate_samples(q: Floats, k: Floats, v: Floats, scale: float, rule: Tables) -> Enumeration:
    """All samples over keys [n, 2] with their probabilities, table after table.

    A plane through the origin is an angle; the angles at which a row changes sides cut the circle into sectors, on each
    of which the matching rows are the same. Sets of rows are bit masks.
    """
    need(q.shape == (2,) and k.shape[1] == 2, "ENUMERATION_NEEDS_TWO_CHANNELS")
    need(bool(np.all(np.any(np.vstack([q, k]) != 0, axis=1))), "KEY_WITHOUT_DIRECTION")
    plane = sector_masks(q, k)
    table = {-1: 1.0}
    for _ in range(rule.bits):
        table = joined(table, plane, lambda a, b: a & b)
    chances: dict[tuple[int, ...], float] = {(0,) * k.shape[0]: 1.0}
    for _ in range(rule.tables):
        grown: dict[tuple[int, ...], float] = {}
        for counts, p in chances.items():
            for mask, share in table.items():
                key = tuple(min(rule.least, c + (mask >> i & 1)) for i, c in enumerate(counts))
                grown[key] = grown.get(key, 0.0) + p * share
        chances = grown
    outcomes: dict[tuple[int, ...], float] = {}
    for counts, p in chances.items():
        ids = tuple(i for i, c in enumerate(counts) if c >= rule.least)
        outcomes[ids] = outcomes.get(ids, 0.0) + p
    outcomes = dict(sorted(outcomes.items()))
    _, log_u = inclusion(cosines_of(q, k), rule)
    scores = scale * (k @ q)
    some = sum(p for ids, p in outcomes.items() if ids)
    expected = np.zeros(v.shape[1])
    for ids, p in outcomes.items():
        if ids:
            expected += p / some * softmax_output((scores - log_u)[list(ids)], v[list(ids)])
    return Enumeration(outcomes, some, expected, softmax_output(scores, v))


def sector_masks(q: Floats, k: Floats) -> dict[int, float]:
    """For one random plane: the mask of rows on the query's side, and its probability."""
    rows = np.vstack([q, k])
    turns = np.arctan2(rows[:, 1], rows[:, 0])
    cuts = np.sort(np.concatenate([turns + math.pi / 2, turns - math.pi / 2]) % (2 * math.pi))
    widths = np.diff(np.append(cuts, cuts[0] + 2 * math.pi))
    middles = cuts + widths / 2
    sides = np.stack([np.cos(middles), np.sin(middles)], axis=1) @ rows.T > 0
    found: dict[int, float] = {}
    for width, side in zip(widths, sides, strict=True):
        if width > 1e-12:
            mask = sum(1 << i for i, same in enumerate(side[1:] == side[0]) if same)
            found[mask] = found.get(mask, 0.0) + float(width) / (2 * math.pi)
    return found


def joined(a: Mapping[int, float], b: Mapping[int, float], how: Callable[[int, int], int]) -> dict[int, float]:
    """Distribution of ``how`` of two independent masks."""
    found: dict[int, float] = {}
    for x, p in a.items():
        for y, share in b.items():
            found[how(x, y)] = found.get(how(x, y), 0.0) + p * share
    return found


def softmax_output(scores: Floats, values: Floats) -> Floats:
    """Output over rows of these scores, in float64."""
    weights = np.exp(scores - scores.max())
    result: Floats = weights @ values / weights.sum()
    return result
