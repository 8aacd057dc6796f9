"""EM-LLM: boundaries from surprise, refinement on a graph of keys, events, and their two kinds of retrieval."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from array_api_compat import array_namespace, device

from .rows import Array, Span, check_axes, check_heads, check_history, indices, listed, ranked, require, wide


class Marked(NamedTuple):
    """Thresholds, and where surprise exceeds them."""

    thresholds: list[float | None]
    boundaries: list[int]


def trailing(surprise: Array, window: int) -> tuple[Array, Array]:
    """[T, window] values before each row, and which of them there are."""
    xp = array_namespace(surprise)
    rows = xp.arange(surprise.shape[0], dtype=xp.int64, device=device(surprise))
    back = xp.arange(1, window + 1, dtype=xp.int64, device=device(surprise))
    places = rows[:, None] - back[None, :]
    there = places >= 0
    values = xp.take(surprise, xp.reshape(xp.where(there, places, 0), (-1,)), axis=0)
    return xp.where(there, xp.reshape(values, places.shape), 0.0), there


def everything(surprise: Array, window: int) -> tuple[Array, Array]:
    """[T, T]: for every row all values, as the published code takes a chunk."""
    xp = array_namespace(surprise)
    shape = (surprise.shape[0], surprise.shape[0])
    return xp.broadcast_to(surprise[None, :], shape), xp.ones(shape, dtype=xp.bool, device=device(surprise))


def mark(
    surprise: Array,
    window: int,
    gamma: float,
    ddof: int,
    past: Callable[[Array, int], tuple[Array, Array]] = trailing,
) -> Marked:
    """Rows whose surprise is above mean plus gamma deviations of the values before them.

    A row with no more than ``ddof`` values before it has no threshold and is no boundary.
    """
    xp = array_namespace(surprise)
    require(window >= 1 + ddof, "WINDOW_INVALID", f"{window} values have no deviation")
    require(bool(xp.all(xp.isfinite(surprise))), "SURPRISE_NOT_FINITE")
    values = xp.astype(surprise, xp.float64)
    if values.shape[0] == 0:
        return Marked([], [])
    before, there = past(values, window)
    count = xp.sum(xp.astype(there, xp.float64), axis=1)
    defined = count > ddof
    mean = xp.sum(xp.where(there, before, 0.0), axis=1) / xp.where(count > 0, count, 1.0)
    off = xp.where(there, before - mean[:, None], 0.0)
    spread = xp.sqrt(xp.sum(off * off, axis=1) / xp.where(defined, count - ddof, 1.0))
    limits = mean + gamma * spread
    found = xp.nonzero(defined & (values > limits))[0]
    shown = [x if known else None for x, known in zip(listed(limits), listed(defined), strict=True)]
    return Marked(shown, listed(found))


def similarity(k: Array, *, clipped: bool = True) -> Array:
    """[T, T]: products of keys, negative ones as zero, summed over heads."""
    xp = array_namespace(k)
    by_head = xp.permute_dims(wide(k), (1, 0, 2))
    products = xp.matmul(by_head, xp.matrix_transpose(by_head))
    return xp.sum(xp.where(products > 0, products, 0.0) if clipped else products, axis=0)


class Sides(NamedTuple):
    """Sums of a graph on both sides of every cut 1 .. n-1."""

    left: Array
    """Weight inside the rows before the cut."""
    right: Array
    left_out: Array
    """Sum of the rows' own degrees."""
    left_in: Array
    forth: Array
    """Weight from the rows before the cut to those behind it."""
    back: Array
    total: Array
    rows: Array
    """Rows before the cut."""
    size: int
    """All rows."""


def sides(a: Array) -> Sides:
    """All cuts of a graph at once, from running sums over both axes."""
    xp = array_namespace(a)
    n = a.shape[0]
    a = xp.astype(a, xp.float64)
    table = xp.cumulative_sum(xp.cumulative_sum(a, axis=0), axis=1)
    before = xp.arange(n - 1, dtype=xp.int64, device=device(a))
    left = xp.linalg.diagonal(table)[: n - 1]
    out, into = table[: n - 1, n - 1], table[n - 1, : n - 1]
    total = table[n - 1, n - 1]
    return Sides(left, total - out - into + left, out, into, out - left, into - left, total, before + 1, n)


def modularity(found: Sides) -> Array:
    """Standard modularity of both sides; NaN over a graph without weight."""
    right_out, right_in = found.total - found.left_out, found.total - found.left_in
    expected = (found.left_out * found.left_in + right_out * right_in) / found.total
    return (found.left + found.right - expected) / found.total


def conductance(found: Sides) -> Array:
    """Weight of the cut over the smaller volume; a volume is the sum of degrees."""
    xp = array_namespace(found.total)
    volume = xp.minimum(found.left_out, found.total - found.left_out)
    return xp.where(volume != 0, found.forth / xp.where(volume != 0, volume, 1.0), math.nan)


def ratio(found: Sides) -> Array:
    """Mean over the sides of mean inner over mean outer similarity."""
    xp = array_namespace(found.total)
    kind = found.total.dtype
    rows, rest = xp.astype(found.rows, kind), xp.astype(found.size - found.rows, kind)
    out, into = found.forth / (rows * rest), found.back / (rows * rest)
    zero = (out == 0) | (into == 0)
    one = found.left / (rows * rows) / xp.where(zero, 1.0, out)
    other = found.right / (rest * rest) / xp.where(zero, 1.0, into)
    return xp.where(zero, math.nan, (one + other) / 2)


def half_modularity(found: Sides) -> Array:
    """The published code's: half of the standard value."""
    return modularity(found) / 2


def inner_conductance(found: Sides) -> Array:
    """The published code's: inner weight as volume, and the smaller of both sides."""
    xp = array_namespace(found.total)

    def one(inner: Array, crossing: Array) -> Array:
        volume = xp.minimum(inner, found.total - inner)
        return crossing / xp.where(volume != 0, volume, 1e-15)

    return xp.minimum(one(found.left, found.forth), one(found.right, found.back))


Metric = Callable[[Sides], Array]
METRICS: Mapping[str, Metric] = {"modularity": modularity, "conductance": conductance, "ratio": ratio}
CODE: Mapping[str, Metric] = {"modularity": half_modularity, "conductance": inner_conductance, "ratio": ratio}
DOWNWARD = frozenset({"conductance"})
"""Metrics of which the least is the best."""


def quality(a: Array, cut: int, metric: Metric) -> float | None:
    """The metric at one cut, or nothing where it is not defined."""
    require(a.ndim == 2 and a.shape[0] == a.shape[1], "SHAPE_MISMATCH", "a graph is square")
    require(0 < cut < a.shape[0], "CUT_OUT_OF_RANGE", str(cut))
    found = sides(a)
    if bool(found.total == 0) and metric in (modularity, half_modularity):
        return None
    value = float(metric(found)[cut - 1])
    return None if math.isnan(value) else value


def check_cuts(cuts: Sequence[int], first: int, end: int) -> None:
    """Refuse cuts that do not ascend strictly between the ends."""
    require(all(a < b for a, b in pairwise(cuts)), "BOUNDARIES_NOT_ASCENDING", str(list(cuts)))
    require(all(first < cut < end for cut in cuts), "CUT_OUT_OF_RANGE", str(list(cuts)))


class Refined(NamedTuple):
    """Cuts, what each was compared with, and where it was looked for."""

    boundaries: list[int]
    scores: list[list[float | None]]
    searched: list[list[int]]


def window_of(before: int, candidate: int, after: int, least: int, radius: int) -> range:
    """Cuts that a candidate may move to: near it, and with enough rows on both sides."""
    return range(max(candidate - radius, before + least), min(candidate + radius, after - least) + 1)


def pick(cuts: range, values: Sequence[float | None], candidate: int, sign: float) -> int:
    """The best cut; of equals the candidate, then the nearer, then the lower one."""
    known = [
        (sign * value, -abs(cut - candidate), -cut)
        for cut, value in zip(cuts, values, strict=True)
        if value is not None
    ]
    return -max(known)[2] if known else candidate


def cut_values(a: Array, cuts: range, start: int, metric: Metric) -> list[float | None]:
    """The metric at each of these cuts of a graph whose first row stands at ``start``."""
    xp = array_namespace(a)
    if not cuts:
        return []
    found = sides(a)
    if bool(found.total == 0) and metric in (modularity, half_modularity):
        return [None] * len(cuts)
    values = listed(xp.take(metric(found), indices((cut - start - 1 for cut in cuts), a), axis=0))
    return [None if math.isnan(value) else value for value in values]


def refine(
    a: Array,
    candidates: Sequence[int],
    name: str,
    *,
    least: int,
    radius: int,
    metrics: Mapping[str, Metric] = METRICS,
    window: Callable[[int, int, int, int, int], range] = window_of,
    choose: Callable[[range, Sequence[float | None], int, float], int] = pick,
) -> Refined:
    """Each candidate moved to the best cut of its window; as many cuts leave as came.

    A cut is judged on the rows from the cut before it, which is settled, to the next candidate, which is not.
    """
    check_cuts(candidates, 0, a.shape[0])
    sign = -1.0 if name in DOWNWARD else 1.0
    refined = Refined([], [], [])
    before = 0
    for candidate, after in pairwise([*candidates, a.shape[0]]):
        cuts = window(before, candidate, after, least, radius)
        values = cut_values(a[before:after, before:after], cuts, before, metrics[name])
        before = choose(cuts, values, candidate, sign)
        refined.boundaries.append(before)
        refined.scores.append(values)
        refined.searched.append([cuts.start, max(cuts.start, cuts.stop)])
    return refined


def refine_as_published(a: Array, candidates: Sequence[int], name: str, *, least: int) -> Refined:
    """The published search: from the cut before to just before the candidate, on a window half an event wider."""
    check_cuts(candidates, 0, a.shape[0])
    sign = -1.0 if name in DOWNWARD else 1.0
    events = [*candidates[:1], *(b for a_, b in pairwise(candidates) if b - a_ >= least)]
    refined = Refined([], [], [])
    before = 0
    for event in events:
        if min(event - before, event) <= least:
            cuts, values, chosen = range(event, event), [], event
        else:
            half = (event - before) // 2
            start, end = max(0, before - half), min(a.shape[0], event + half)
            cuts = range(before + least, event)
            values = cut_values(a[start:end, start:end], cuts, start, CODE[name])
            chosen = cuts[max(range(len(cuts)), key=lambda i: (sign * (values[i] or 0.0), -i))]
        refined.boundaries.append(chosen)
        refined.scores.append(values)
        refined.searched.append([cuts.start, cuts.stop])
        before = chosen
    return refined


class Sealed(NamedTuple):
    """Events, and what is still open behind them."""

    events: list[Span]
    open: Span


def check_sizes(least: int, most: int) -> None:
    """Refuse sizes that no event can have."""
    require(1 <= least <= most, "EVENT_SIZES_IMPOSSIBLE", f"{least} to {most} rows")


def seal(cuts: Sequence[int], rows: Span, *, least: int, most: int, closed: bool) -> Sealed:
    """Events between cuts: what is too short waits for the next, what is too long is cut at the largest size."""
    check_sizes(least, most)
    first, end = rows
    require(first <= end, "CUT_OUT_OF_RANGE", f"{first} to {end}")
    check_cuts(cuts, first, end)
    events: list[Span] = []
    start = first
    for stop in [*cuts, end]:
        whole = max(0, stop - start) // most
        events += [(start + i * most, start + (i + 1) * most) for i in range(whole)]
        start += whole * most
        if stop < end and stop - start >= least:
            events.append((start, stop))
            start = stop
    if closed and start < end:
        return Sealed([*events, (start, end)], (end, end))
    return Sealed(events, (start, end))


def check_events(events: Sequence[Span], total: int | None = None) -> None:
    """Refuse events with gaps, overlaps, without rows, or beyond the history."""
    tight = all(a < b for a, b in events) and all(left[1] == right[0] for left, right in pairwise(events))
    require(tight, "EVENTS_NOT_CONTIGUOUS", str(list(events)))
    require(total is None or not events or events[-1][1] <= total, "SUPPORT_BEYOND_COMMIT", str(list(events)))


def representatives(influence: Array, event: Span, count: int) -> Array:
    """[H_kv, r]: positions of an event's most influential rows, ascending; as many as it has rows at most."""
    xp = array_namespace(influence)
    inside = xp.permute_dims(influence[event[0] : event[1], :], (1, 0))
    return xp.sort(ranked(inside)[:, :count], axis=-1) + event[0]


def summary(k: Array, positions: Array) -> Array:
    """[H_kv, d]: mean of each head's keys at its own positions [H_kv, r]."""
    xp = array_namespace(k)
    heads = [xp.mean(xp.take(k[:, head, :], positions[head, :], axis=0), axis=0) for head in range(k.shape[1])]
    return xp.stack(heads)


def summarise(
    k: Array,
    events: Sequence[Span],
    influence: Array,
    count: int,
    *,
    whole: bool,
    represent: Callable[[Array, Span, int], Array] = representatives,
    sum_up: Callable[[Array, Array], Array] = summary,
) -> tuple[list[Array], Array]:
    """Representatives of each event, and [events, H_kv, d] the mean of them or of all of its rows."""
    xp = array_namespace(k)
    check_history(k)
    check_events(events, k.shape[0])
    require(tuple(influence.shape) == tuple(k.shape[:2]), "SHAPE_MISMATCH", "influence is [T, H_kv]")
    keys = wide(k)
    chosen = [represent(influence, event, count) for event in events]
    if not events:
        return [], xp.zeros((0, k.shape[1], k.shape[2]), dtype=keys.dtype, device=device(k))
    if whole:
        parts = [xp.mean(keys[first:end, ...], axis=0) for first, end in events]
    else:
        parts = [sum_up(keys, positions) for positions in chosen]
    return chosen, xp.stack(parts)


class Retrieved(NamedTuple):
    """What a query recalls."""

    scores: list[float]
    order: list[int]
    similarity: list[int]
    contiguity: list[int]
    events: list[int]
    rows: list[int]


def fill(order: Sequence[int], sizes: Sequence[int], budget: int, crossing: str) -> list[int]:
    """Events by rank until the budget; the one that crosses it ends the list.

    ``closest`` keeps the crossing event when that brings the sum strictly closer to the budget; ``within`` never does.
    """
    taken: list[int] = []
    used = 0
    for event in order:
        missing = budget - used
        if missing <= 0:
            break
        if sizes[event] > missing and (crossing == "within" or sizes[event] - missing >= missing):
            break
        taken.append(event)
        used += sizes[event]
    return taken


def neighbours(similar: Sequence[int], sizes: Sequence[int], budget: int, radius: int, side: str) -> list[int]:
    """Events beside the similar ones, nearer before farther, on the named side first; what does not fit is skipped."""
    directions = (1, -1) if side == "after" else (-1, 1)
    wanted = [event + way * step for event in similar for step in range(1, radius + 1) for way in directions]
    taken: list[int] = []
    left = budget
    for event in dict.fromkeys(wanted):
        if 0 <= event < len(sizes) and event not in similar and sizes[event] <= left:
            taken.append(event)
            left -= sizes[event]
    return taken


def scores_of(q: Array, summaries: Array, kv_head_of: Sequence[int]) -> Array:
    """[events]: mean query of the chunk against each summary, summed over query heads."""
    xp = array_namespace(q, summaries)
    asked = xp.mean(wide(q), axis=0)
    mine = xp.take(wide(summaries), indices(kv_head_of, summaries), axis=1)
    return xp.sum(mine * asked[None, ...], axis=(1, 2))


def retrieve(
    q: Array,
    summaries: Array,
    kv_head_of: Sequence[int],
    events: Sequence[Span],
    *,
    similarity_tokens: int,
    contiguity_tokens: int,
    radius: int,
    side: str,
    crossing: str,
    score: Callable[[Array, Array, Sequence[int]], Array] = scores_of,
    take: Callable[[Sequence[int], Sequence[int], int, str], list[int]] = fill,
    extend: Callable[[Sequence[int], Sequence[int], int, int, str], list[int]] = neighbours,
) -> Retrieved:
    """Similar events by rank, their neighbours under a budget of their own, and the rows of the union."""
    require(summaries.ndim == 3, "SHAPE_MISMATCH", "summaries are [events, H_kv, d]")
    check_axes(q, 3, summaries, "q")
    check_heads(kv_head_of, q.shape[1], summaries.shape[1])
    check_events(events)
    require(len(events) == summaries.shape[0], "SHAPE_MISMATCH", "one summary for each event")
    scores = score(q, summaries, kv_head_of)
    sizes = [end - first for first, end in events]
    order = listed(ranked(scores))
    similar = take(order, sizes, similarity_tokens, crossing)
    near = extend(similar, sizes, contiguity_tokens, radius, side)
    union = sorted([*similar, *near])
    rows = [position for event in union for position in range(*events[event])]
    return Retrieved(listed(scores), order, similar, near, union, rows)


def read_events(spans: Sequence[Sequence[int]]) -> list[Span]:
    """Events from their JSON form."""
    return [(first, end) for first, end in spans]
