"""Rows that arrive step by step, as InfLLM and EM-LLM take them: attend, seal what has left the window, go on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from array_api_compat import array_namespace

from .rows import (
    Array,
    Span,
    check_axes,
    check_heads,
    check_history,
    indices,
    listed,
    ranked,
    require,
    span_positions,
    wide,
)
from .units import UnitCache, angles, choose_units, influence, turned


@dataclass(frozen=True)
class Geometry:
    """Lengths that both methods share."""

    initial_rows: int
    local_rows: int
    step_rows: int
    chunks: Sequence[int]
    representatives: int
    rope_base: float | None
    code: bool
    """Whether to count as the published code does: rows of the remainder twice, influence by softmax mass."""

    def steps(self) -> list[int]:
        """Rows of each step: chunks are taken in pieces."""
        size = self.step_rows
        return [min(size, chunk - done) for chunk in self.chunks for done in range(0, chunk, size)]


class Sealed(NamedTuple):
    """What is known of a unit or an event."""

    rows: Span
    scores: Array
    """[H_q, rows]: how strongly each row was used."""
    representatives: list[list[int]]
    """By query head, counted from the first row, ascending."""
    vector: Array
    """[H_q, d]: mean of the representatives' keys."""


@dataclass
class Stream:
    """Common state; ``sealed`` grows behind the window."""

    q: Array
    k: Array
    v: Array
    kv_head_of: Sequence[int]
    geometry: Geometry
    initial: int = 0
    start: int = 0
    """First row that is neither initial nor sealed."""
    done: int = 0
    sealed: list[Sealed] = field(default_factory=list)
    outs: list[Array] = field(default_factory=list)
    lookups: list[dict[str, Any]] = field(default_factory=list)

    def run(self) -> Array:
        """[T, H_q, d_v]: attention of every row; refuses steps that do not add up to the rows."""
        check_history(self.k, self.v)
        check_axes(self.q, 3, self.k, "q")
        require(self.q.shape[0] == self.k.shape[0], "SHAPE_MISMATCH", "q and k have different rows")
        check_heads(self.kv_head_of, self.q.shape[1], self.k.shape[1])
        steps = self.geometry.steps()
        fits = sum(steps) == self.k.shape[0] and self.geometry.step_rows <= self.geometry.local_rows
        require(fits, "STEPS_DO_NOT_FIT", f"{sum(steps)} rows in steps, {self.k.shape[0]} rows")
        xp = array_namespace(self.k)
        owners = indices(self.kv_head_of, self.k)
        self.queries = xp.permute_dims(wide(self.q), (1, 0, 2))
        self.keys = xp.take(xp.permute_dims(wide(self.k), (1, 0, 2)), owners, axis=0)
        self.values = xp.take(xp.permute_dims(wide(self.v), (1, 0, 2)), owners, axis=0)
        self.mass = xp.zeros(self.keys.shape[:2], dtype=self.keys.dtype)
        self.edge = self.place(self.queries, [self.geometry.local_rows - 1] * self.k.shape[0])
        for rows in steps:
            self.step(rows)
        return xp.permute_dims(xp.concat(self.outs, axis=1), (1, 0, 2))

    def place(self, x: Array, positions: Sequence[int]) -> Array:
        """Rows [H_q, rows, d] turned to these positions."""
        xp = array_namespace(x)
        if self.geometry.rope_base is None:
            return x
        far = angles(indices(positions, x), x.shape[-1], self.geometry.rope_base, x)
        return xp.astype(turned(xp.astype(x, xp.float64), far[None, ...]), x.dtype)

    def step(self, rows: int) -> None:
        """Recall, attend, and seal."""
        xp = array_namespace(self.k)
        begin, end = self.done, self.done + rows
        recalled = self.recall(begin, end)
        near = max(0, begin + 1 - self.geometry.local_rows)
        close = xp.matmul(
            self.place(self.queries[:, begin:end, :], list(range(begin, end))),
            xp.matrix_transpose(self.place(self.keys[:, near:end, :], list(range(near, end)))),
        )
        row, column = indices(range(begin, end), self.k)[:, None], indices(range(near, end), self.k)[None, :]
        seen = (column <= row) & (column > row - self.geometry.local_rows)
        close = xp.where(seen[None, ...], close, -math.inf)
        lines = []
        for head in range(self.q.shape[1]):
            lines.append(self.attend(head, begin, end, near, close[head, ...], recalled[head]))
        self.outs.append(xp.stack(lines))
        self.arrive(begin, end)
        self.done = end
        beyond = self.done - self.start - self.geometry.local_rows
        fresh = max(0, min(self.geometry.initial_rows - self.initial, beyond))
        self.initial += fresh
        self.start += fresh
        self.seal()

    def attend(self, head: int, begin: int, end: int, near: int, close: Array, recalled: Sequence[int]) -> Array:
        """[rows, d_v]: one head over its window, what it recalled, the initial rows and the remainder."""
        xp = array_namespace(self.k)
        rest = range(self.start, max(self.start, end - self.geometry.local_rows))
        spans = span_positions([self.sealed[one].rows for one in recalled])
        far = [*spans, *range(self.initial), *rest]
        taken = indices(far, self.k)
        scores = close
        values = self.values[head, near:end, :]
        if far:
            keys = xp.take(self.keys[head, ...], taken, axis=0)
            distant = xp.matmul(self.edge[head, begin:end, :], xp.matrix_transpose(keys))
            row = indices(range(begin, end), self.k)[:, None]
            beyond = taken[None, :] <= row - self.geometry.local_rows
            scores = xp.concat([close, xp.where(beyond | self.geometry.code, distant, -math.inf)], axis=1)
            values = xp.concat([values, xp.take(self.values[head, ...], taken, axis=0)])
        scores = scores / math.sqrt(self.k.shape[-1])
        weights = xp.exp(scores - xp.max(scores, axis=1, keepdims=True))
        weights = weights / xp.sum(weights, axis=1, keepdims=True)
        self.mass[head, near:end] += xp.sum(weights[:, : end - near], axis=0)
        return xp.matmul(weights, values)

    def use(self, first: int, end: int) -> Array:
        """[H_q, rows]: how strongly rows were used."""
        xp = array_namespace(self.k)
        if self.geometry.code:
            return self.mass[:, first:end]
        found = influence(wide(self.q), wide(self.k), self.kv_head_of, self.geometry.local_rows, (first, end))
        return xp.take(xp.permute_dims(found, (1, 0)), indices(self.kv_head_of, self.k), axis=0)

    def add(self, first: int, end: int) -> None:
        """Seal a span."""
        xp = array_namespace(self.k)
        scores = self.use(first, end)
        places = xp.sort(ranked(scores)[:, : self.geometry.representatives], axis=-1)
        heads = range(self.q.shape[1])
        vector = [xp.mean(xp.take(self.keys[h, first:end, :], places[h, :], axis=0), axis=0) for h in heads]
        self.sealed.append(Sealed((first, end), scores, listed(places), xp.stack(vector)))
        self.start = end

    def scores(self, begin: int, end: int) -> Array:
        """[H_q, sealed]: mean query at the window's edge against each vector."""
        xp = array_namespace(self.k)
        if not self.sealed:
            return xp.zeros((self.q.shape[1], 0), dtype=self.keys.dtype)
        asked = xp.mean(self.edge[:, begin:end, :], axis=1)
        vectors = xp.stack([one.vector for one in self.sealed], axis=1)
        return xp.matmul(vectors, asked[:, :, None])[..., 0]

    def vectors(self) -> Array:
        """[sealed, H_q, d]."""
        xp = array_namespace(self.k)
        return xp.stack([one.vector for one in self.sealed]) if self.sealed else xp.zeros((0,), dtype=xp.float64)

    def recall(self, begin: int, end: int) -> list[list[int]]:
        """By query head: what is sealed and wanted."""
        raise NotImplementedError

    def arrive(self, begin: int, end: int) -> None:
        """Hear of new rows."""

    def seal(self) -> None:
        """Turn rows behind the window into units or events."""
        raise NotImplementedError


@dataclass
class UnitStream(Stream):
    """InfLLM: units of one size, the best of them by layer or by query head."""

    unit_rows: int = 1
    top_units: int = 1
    cached_units: int = 1
    shared: bool = True
    caches: list[UnitCache] = field(default_factory=list)

    def recall(self, begin: int, end: int) -> list[list[int]]:
        """The best units."""
        xp = array_namespace(self.k)
        scores = self.scores(begin, end)
        if self.shared:
            scores = xp.sum(scores, axis=0)[None, :]
        chosen = choose_units(scores, self.top_units)
        if not self.caches:
            self.caches = [UnitCache(self.cached_units, "lru") for _ in chosen]
        for cache, units in zip(self.caches, chosen, strict=True):
            cache.step(units)
        self.lookups.append({"units": len(self.sealed), "selected": chosen, "scores": listed(scores)})
        return chosen * self.q.shape[1] if self.shared else chosen

    def seal(self) -> None:
        """Whole units, once the initial rows are there."""
        while self.done - self.start >= self.geometry.local_rows + self.unit_rows:
            self.add(self.start, self.start + self.unit_rows)


@dataclass
class EventStream(Stream):
    """EM-LLM as published: one threshold a step, and a queue of neighbours that outlives the step."""

    surprise: Sequence[float] = ()
    gamma: float = 1.0
    minimum_rows: int = 1
    maximum_rows: int = 1
    memory_rows: int = 1
    contiguity: float = 0.0
    """Share of the room for recalled rows, or a number of them from 1 on."""
    marks: list[bool] = field(default_factory=list)
    queue: list[int] = field(default_factory=list)
    held: int = 0
    """First row that the code still held when the step began."""

    def room(self, begin: int, end: int) -> tuple[int, int]:
        """Tokens for similar events and for their neighbours."""
        geometry = self.geometry
        waiting = max(0, end - self.start - geometry.local_rows)
        initial = self.initial if begin > geometry.local_rows else 0
        total = geometry.initial_rows + geometry.step_rows + self.memory_rows - waiting - initial
        near = int(self.contiguity * total + 1) if self.contiguity < 1 else int(self.contiguity)
        return total - near, near

    def recall(self, begin: int, end: int) -> list[list[int]]:
        """Similar events, and the queue before them."""
        self.held = self.start
        sizes = [one.rows[1] - one.rows[0] for one in self.sealed]
        scores = array_namespace(self.k).sum(self.scores(begin, end), axis=0)
        room, near = self.room(begin, end)
        similar = list(range(len(sizes)))
        if sum(sizes) > room:
            similar = admit(listed(ranked(scores)), sizes, room)[0]
        self.line_up(similar, sizes, near)
        chosen = [*self.queue, *similar]
        found = {"sizes": sizes, "similarity": similar, "scores": listed(scores), "selected": chosen}
        self.lookups.append(found)
        return [sorted(chosen)] * self.q.shape[1]

    def line_up(self, similar: Sequence[int], sizes: Sequence[int], room: int) -> None:
        """Neighbours of this step; those of earlier steps stay where there is room."""
        beside = [event + way for event in similar for way in (1, -1)]
        legal = [event for event in dict.fromkeys(beside) if 0 <= event < len(sizes) and event not in similar]
        fresh, used, full = admit(legal, sizes, room)
        if not fresh:
            return
        older, self.queue = self.queue, fresh[::-1]
        if not older or full:
            return
        if sum(sizes[event] for event in older) + used < room:
            self.queue = [*older, *self.queue]
            return
        again = [event for event in older[::-1] if event not in fresh and event not in similar]
        kept = admit(again, sizes, room, used=used)[0]
        self.queue = [*kept[::-1], *self.queue]

    def arrive(self, begin: int, end: int) -> None:
        """Mark new rows whose surprise exceeds the threshold of the step."""
        rows, held = end - begin, end - self.held
        first, last = max(held - self.geometry.local_rows, 0), max(held - rows, self.geometry.initial_rows)
        past = list(self.surprise[self.held + first : self.held + last])
        limit = math.inf
        if len(past) > 1:
            mean = math.fsum(past) / len(past)
            spread = math.sqrt(math.fsum((x - mean) ** 2 for x in past) / (len(past) - 1))
            limit = mean + self.gamma * spread
        self.marks += [value > limit for value in self.surprise[begin:end]]

    def seal(self) -> None:
        """Events between marks, in pieces of the largest size; what follows the last mark stays."""
        beyond = self.done - self.start - self.geometry.local_rows
        if beyond < self.minimum_rows:
            return
        first = self.start
        cuts = [first + i for i in range(1, beyond) if self.marks[first + i]]
        for stop in [*cuts, first + beyond]:
            while stop - self.start >= self.maximum_rows:
                self.add(self.start, self.start + self.maximum_rows)
            if stop < first + beyond and stop - self.start >= min(self.minimum_rows, beyond) and stop > self.start:
                self.add(self.start, stop)


def admit(order: Sequence[int], sizes: Sequence[int], room: int, *, used: int = 0) -> tuple[list[int], int, bool]:
    """Events until the room is full: the one that fills it stays when that is strictly closer, and ends the list."""
    taken: list[int] = []
    for event in order:
        after = used + sizes[event]
        if after >= room:
            if abs(room - used) > abs(after - room):
                return [*taken, event], after, True
            return taken, used, True
        taken.append(event)
        used = after
    return taken, used, False
