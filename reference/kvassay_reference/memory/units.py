"""InfLLM: contiguous units, their representatives, the lookup, recall of whole units, and a cache of units."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from array_api_compat import array_namespace, device

from ..attention import State, log_sum_exp, output
from .rows import (
    Array,
    Span,
    best,
    check_axes,
    check_heads,
    check_history,
    group_matrix,
    indices,
    ranked,
    require,
    span_positions,
    wide,
)


@dataclass(frozen=True)
class Regions:
    """How a history is cut: initial rows, units, rows that are no whole unit yet, and the local window."""

    initial: Span
    units: tuple[Span, ...]
    remainder: Span
    local: Span


def regions(total: int, initial_rows: int, local_rows: int, unit_rows: int) -> Regions:
    """Units tile what lies between the initial rows and the local window, from its beginning."""
    window = max(total - local_rows, 0)
    start = min(initial_rows, window)
    count = (window - start) // unit_rows
    units = tuple((start + i * unit_rows, start + (i + 1) * unit_rows) for i in range(count))
    return Regions((0, start), units, (start + count * unit_rows, window), (window, total))


def influence(q: Array, k: Array, kv_head_of: Sequence[int], span: int, rows: Span) -> Array:
    """[rows, H_kv]: mean product of each row's key with the queries of the next ``span`` rows that read its head.

    Sums over rows are running sums in float64, so that the cost does not grow with the span.
    """
    xp = array_namespace(q, k)
    first, end = rows
    groups = group_matrix(kv_head_of, k.shape[1], xp.astype(q, xp.float64))
    sizes = xp.sum(groups, axis=1)
    asked = xp.matmul(groups / xp.where(sizes > 0, sizes, 1.0)[:, None], xp.astype(q, xp.float64))
    sums = xp.concat([xp.zeros_like(asked[:1, ...]), xp.cumulative_sum(asked, axis=0)], axis=0)
    later = (sums[first + 1 + span : end + 1 + span, ...] - sums[first + 1 : end + 1, ...]) / span
    return xp.sum(later * xp.astype(k[first:end, ...], xp.float64), axis=-1)


class Built(NamedTuple):
    """Units with their search surface."""

    regions: Regions
    influence: Array
    """[units, H_kv, unit_rows]."""
    representatives: Array
    """[units, H_kv, r]: positions, ascending."""


def representatives(scores: Array, starts: Sequence[int], count: int) -> Array:
    """Positions of the most influential rows of each unit and head, ascending; scores are [units, H_kv, rows]."""
    xp = array_namespace(scores)
    inside = xp.sort(ranked(scores)[..., :count], axis=-1)
    return inside + indices(starts, scores)[:, None, None]


def build(
    q: Array,
    k: Array,
    kv_head_of: Sequence[int],
    *,
    initial_rows: int,
    local_rows: int,
    unit_rows: int,
    count: int,
    cut: Callable[[int, int, int, int], Regions] = regions,
    weigh: Callable[..., Array] = influence,
    pick: Callable[[Array, Sequence[int], int], Array] = representatives,
) -> Built:
    """Regions of a history and the representatives of its units; q is [T, H_q, d]."""
    check_history(k)
    check_axes(q, 3, k, "q")
    require(q.shape[0] == k.shape[0], "SHAPE_MISMATCH", "q and k have different rows")
    check_heads(kv_head_of, q.shape[1], k.shape[1])
    require(1 <= count <= unit_rows, "REPRESENTATIVES_IMPOSSIBLE", f"{count} of {unit_rows} rows")
    xp = array_namespace(k)
    found = cut(k.shape[0], initial_rows, local_rows, unit_rows)
    if not found.units:
        nothing = xp.zeros((0, k.shape[1], unit_rows), dtype=xp.float64, device=device(k))
        return Built(found, nothing, xp.astype(nothing[..., :count], xp.int64))
    covered = (found.units[0][0], found.units[-1][1])
    scores = weigh(wide(q), wide(k), kv_head_of, local_rows, covered)
    by_unit = xp.permute_dims(xp.reshape(scores, (len(found.units), unit_rows, k.shape[1])), (0, 2, 1))
    return Built(found, by_unit, pick(by_unit, [first for first, _ in found.units], count))


def lookup_scores(q: Array, table: Array, kv_head_of: Sequence[int]) -> Array:
    """[H_q, units]: products summed over query rows and representatives; table is [units, r, H_kv, d].

    Each product is a sum of its own, so that equal units tie.
    """
    xp = array_namespace(q, table)
    asked = xp.sum(wide(q), axis=0)
    stored = xp.permute_dims(xp.sum(wide(table), axis=1), (1, 0, 2))
    mine = xp.take(stored, indices(kv_head_of, stored), axis=0)
    return xp.vecdot(mine, asked[:, None, :])


def check_lookup(q: Array, table: Array, kv_head_of: Sequence[int]) -> None:
    """Refuse arrays and maps that do not fit."""
    require(table.ndim == 4, "SHAPE_MISMATCH", "representatives are [units, r, H_kv, d]")
    check_axes(q, 3, table, "q")
    check_heads(kv_head_of, q.shape[1], table.shape[2])


def turned(x: Array, angles: Array) -> Array:
    """Channel i turns with channel i + d/2 by angles[..., i]; ``angles`` is [..., d/2]."""
    xp = array_namespace(x)
    half = x.shape[-1] // 2
    low, high = x[..., :half], x[..., half:]
    cos, sin = xp.cos(angles), xp.sin(angles)
    return xp.concat([low * cos - high * sin, high * cos + low * sin], axis=-1)


def angles(distances: Array, width: int, base: float, like: Array) -> Array:
    """[distances, d/2]: how far each channel turns over each distance."""
    xp = array_namespace(like)
    exponent = xp.arange(width // 2, dtype=xp.float64, device=device(like)) * (-2.0 / width)
    return xp.astype(distances, xp.float64)[:, None] * (base**exponent)[None, :]


def position_scores(q: Array, k: Array, local_rows: int, near: Array, rope_base: float | None) -> Array:
    """[rows] products of one query with gathered keys under InfLLM's positions.

    ``near`` [rows] holds the distance of a row in the local window, and -1 for a row beyond it. Within the window keys
    and query stand where they are; beyond it keys are not turned at all and the query stands at the window's edge.
    """
    xp = array_namespace(q, k)
    if rope_base is None:
        return xp.matmul(k, q[:, None])[:, 0]
    edge = local_rows - 1
    wide_q, wide_k = xp.astype(q, xp.float64), xp.astype(k, xp.float64)
    places = xp.where(near < 0, xp.zeros_like(near), edge - near)
    keys = turned(wide_k, angles(places, k.shape[-1], rope_base, k))
    query = turned(wide_q, angles(indices([edge], k), k.shape[-1], rope_base, k)[0, :])
    return xp.astype(xp.matmul(keys, query[:, None])[:, 0], q.dtype)


def state_of(scores: Array, v: Array) -> State:
    """Partial state of one head from its scores [rows] and values [rows, d_v]."""
    xp = array_namespace(scores)
    m = xp.max(scores)
    weights = xp.exp(scores - m)
    l = xp.sum(weights)  # noqa: E741
    return State(xp.reshape(m, (1,)), xp.reshape(l, (1,)), xp.matmul(weights[None, :], v))


class Recalled(NamedTuple):
    """Attention of one row over what was recalled."""

    support: list[list[int]]
    """Positions, one list for all query heads or one for each."""
    out: Array
    lse: Array


def support_of(found: Regions, chosen: Sequence[int]) -> list[int]:
    """Initial rows, whole units, the remainder and the local window, each row once."""
    require(len(set(chosen)) == len(chosen), "DUPLICATE_UNIT", str(list(chosen)))
    require(all(0 <= one < len(found.units) for one in chosen), "UNKNOWN_UNIT", str(list(chosen)))
    spans = [found.initial, *(found.units[one] for one in sorted(chosen)), found.remainder, found.local]
    return span_positions(spans)


def attend(
    q: Array,
    k: Array,
    v: Array,
    kv_head_of: Sequence[int],
    *,
    scale: float,
    found: Regions,
    units: Sequence[Sequence[int]],
    local_rows: int,
    rope_base: float | None,
    gather: Callable[[Regions, Sequence[int]], list[int]] = support_of,
    score: Callable[..., Array] = position_scores,
) -> Recalled:
    """Attention of the last row, q [H_q, d], over initial, recalled, remaining and local rows."""
    check_history(k, v)
    check_axes(q, 2, k, "q")
    check_heads(kv_head_of, q.shape[0], k.shape[1])
    require(rope_base is None or q.shape[1] % 2 == 0, "SHAPE_MISMATCH", "an odd number of channels cannot turn")
    xp = array_namespace(q, k, v)
    supports = [gather(found, chosen) for chosen in units]
    require(len(supports) in (1, q.shape[0]), "SHAPE_MISMATCH", "one list of units, or one for each query head")
    outs, masses = [], []
    for head, owner in enumerate(kv_head_of):
        taken = indices(supports[head if len(supports) > 1 else 0], k)
        near = xp.where(taken >= found.local[0], k.shape[0] - 1 - taken, -1)
        keys = wide(xp.take(k[:, owner, :], taken, axis=0))
        scores = scale * score(wide(q[head, :]), keys, local_rows, near, rope_base)
        state = state_of(scores, wide(xp.take(v[:, owner, :], taken, axis=0)))
        outs.append(output(state))
        masses.append(log_sum_exp(state))
    return Recalled(supports, xp.concat(outs), xp.concat(masses))


@dataclass(frozen=True)
class Step:
    """What one step of a unit cache did."""

    hits: list[int]
    loaded: list[int]
    evicted: list[int]


class UnitCache:
    """A bounded cache of whole units; the smallest value is dropped first, the lower unit among equals."""

    def __init__(self, capacity: int, policy: str, decay: float = 1.0, *, forget: bool = False) -> None:
        self.capacity, self.policy, self.decay = capacity, policy, decay
        self.forget = forget
        """Whether a unit's score starts anew when it is selected, as in the published code."""
        self.values: dict[int, float] = {}
        self.steps = 0

    def victims(self, wanted: Sequence[int], count: int) -> list[int]:
        """Units to drop; none that is wanted now."""
        spare = [unit for unit in self.values if unit not in wanted]
        return sorted(spare, key=lambda unit: (self.values[unit], unit))[:count]

    def touch(self, wanted: Sequence[int], scores: Sequence[float]) -> None:
        """Bring the values up to date."""
        if self.policy == "lru":
            self.values |= {unit: float(self.steps) for unit in wanted}
            return
        if self.forget:
            self.values |= dict.fromkeys(wanted, 0.0)
        self.values = {unit: value * self.decay for unit, value in self.values.items()}
        for unit, score in zip(wanted, scores, strict=True):
            self.values[unit] += score

    def step(self, wanted: Sequence[int], scores: Sequence[float] = ()) -> Step:
        """Load what is missing; refuse more units than fit."""
        require(len(set(wanted)) == len(wanted), "DUPLICATE_UNIT", str(list(wanted)))
        require(len(wanted) <= self.capacity, "CACHE_TOO_SMALL", f"{len(wanted)} units, room for {self.capacity}")
        self.steps += 1
        missing = [unit for unit in wanted if unit not in self.values]
        hits = sorted(set(wanted) - set(missing))
        evicted = self.victims(wanted, max(0, len(self.values) + len(missing) - self.capacity))
        self.values = {unit: value for unit, value in self.values.items() if unit not in evicted}
        self.values |= dict.fromkeys(missing, 0.0)
        self.touch(wanted, scores)
        return Step(hits, sorted(missing), sorted(evicted))


def choose_units(scores: Array, count: int) -> list[list[int]]:
    """The best units of each line of scores [lists, units], ascending."""
    return [best(scores[line, :], count) for line in range(scores.shape[0])]
