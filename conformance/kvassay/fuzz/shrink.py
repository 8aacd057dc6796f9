"""From a long sequence that fails to a short one that fails for the same reason.

First whole acts are taken out: what a rule did, with the choices that it made, so that the acts that are left derive
their requests anew from what they find. Then single steps are taken out of what became of that, and their requests are
made simpler. Every attempt is made on a fresh engine, and every step of it must be legal: what a caller may not do is
never part of what is reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from ..core.model import Json
from ..core.template import BIND, bound_names
from .contract import Draw, Illegal, Step
from .trial import Found, Trial

T = TypeVar("T")
SHORT = 6
"""Steps of a sequence that is not worth a second way of shrinking."""
MOST_ATTEMPTS = 3000
"""Sequences that are tried before the best one so far will do."""
SLOW_ATTEMPTS = 12
"""The same, where each attempt waits for a deadline."""


@dataclass(frozen=True)
class Act:
    """What a rule did: its name, empty for the beginning, and the choices that it made, in order."""

    rule: str
    choices: tuple[int, ...]


class Recorded:
    """Choices of another source, written down."""

    def __init__(self, source: Draw) -> None:
        self._source = source
        self.choices: list[int] = []

    def pick(self, options: Sequence[T]) -> T:
        """One of several."""
        return options[self.integer(0, len(options) - 1)]

    def integer(self, low: int, high: int) -> int:
        """A whole number."""
        self.choices.append(self._source.integer(low, high) - low)
        return low + self.choices[-1]

    def chance(self, percent: int) -> bool:
        """Written down as 0 or 1."""
        self.choices.append(int(self._source.chance(percent)))
        return bool(self.choices[-1])


class Repeated(Recorded):
    """Choices that were written down, as far as they fit; the first option where there are none left."""

    def __init__(self, choices: Sequence[int]) -> None:
        super().__init__(self)
        self._left = list(reversed(choices))

    def integer(self, low: int, high: int) -> int:
        """The next one that was written down."""
        chosen = min(self._left.pop(), high - low) if self._left else 0
        self.choices.append(chosen)
        return low + chosen

    def chance(self, percent: int) -> bool:
        """As it was, as far as that can be."""
        return bool(self.integer(int(percent >= 100), int(percent > 0)))


class Shrinker:
    """One failure, getting smaller."""

    def __init__(self, trial: Trial, acts: Sequence[Act], reason: str, most_attempts: int = MOST_ATTEMPTS) -> None:
        self.trial = trial
        self.reason = reason
        self.acts = list(acts)
        self.best: list[Step] = list(trial.steps)
        self.played: tuple[int, int, int] | None = None
        """Size of the acts that are best so far."""
        self.attempts = most_attempts
        """That are left."""

    def run(self) -> list[Step] | None:
        """The smallest sequence found; ``None`` when the failure does not come again."""
        if not self._fails(self.best):
            return None
        whole = list(self.best)
        if self._plays(self.acts):
            while self._fewer_acts() or self._fewer_choices():
                pass
        played = self._shorter(self.best)
        return played if len(played) <= SHORT else min(played, self._shorter(whole), key=len)

    def _shorter(self, steps: list[Step]) -> list[Step]:
        """Steps taken out of a sequence that fails, and requests made simpler."""
        self.best = list(steps)
        self.trial.strict = True
        try:
            while self._fewer() or self._simpler():
                pass
        finally:
            self.trial.strict = False
        return self.best

    def _plays(self, acts: Sequence[Act]) -> bool:
        """Whether acts fail for the same reason and need less than those that were best so far."""
        if not self._may_try() or not acts:
            return False
        played: list[Act] = []
        try:
            self.trial.open()
            for act in acts:
                draw = Repeated(act.choices)
                try:
                    if not act.rule:
                        self.trial.scene.begin(draw)
                    elif act.rule in self.trial.scene.rules:
                        self.trial.scene.rules[act.rule][1](draw)
                except Illegal:
                    continue
                finally:
                    played.append(Act(act.rule, tuple(draw.choices)))
        except Found as found:
            size = _size(played, self.trial.steps)
            if found.wrong.reason != self.reason or (self.played is not None and size >= self.played):
                return False
            self.acts, self.best, self.played = played, list(self.trial.steps), size
            return True
        return False

    def _may_try(self) -> bool:
        self.attempts -= 1
        return self.attempts >= 0

    def _fewer_acts(self) -> bool:
        before = self.played
        cut(lambda: self.acts, self._plays, first=1)
        return self.played != before

    def _fewer_choices(self) -> bool:
        """Take choices out of an act, or take the first option, where that leads there sooner."""
        before = self.played
        for index in range(len(self.acts)):

            def fails(choices: list[int], index: int = index) -> bool:
                if index >= len(self.acts):
                    return False
                act = replace(self.acts[index], choices=tuple(choices))
                return self._plays([*self.acts[:index], act, *self.acts[index + 1 :]])

            def choices(index: int = index) -> list[int]:
                return [*(self.acts[index].choices if index < len(self.acts) else ()), 0]

            cut(choices, lambda left, fails=fails: fails(left[:-1]), first=0)  # type: ignore[misc]
            for place in range(len(choices()) - 1):
                now = choices()[:-1]
                if place < len(now) and now[place]:
                    fails([*now[:place], 0, *now[place + 1 :]])
        return self.played != before

    def _fails(self, steps: Sequence[Step]) -> bool:
        """Whether a sequence fails for the same reason; then what was made of it is the best."""
        if not self._may_try():
            return False
        try:
            wrong = self.trial.run(steps)
        except Illegal:
            return False
        if wrong is None or wrong.reason != self.reason:
            return False
        self.best = list(self.trial.steps)
        return True

    def _fewer(self) -> bool:
        """Take steps out, with the steps that use what those bind."""
        before = len(self.best)
        cut(lambda: self.best, self._fails, first=0, keep=without)
        return len(self.best) < before

    def _simpler(self) -> bool:
        """Make the request of a step simpler; whether one could be."""
        changed = False
        for index in range(len(self.best)):
            tried = self._simpler_at(index)
            while tried:
                changed, tried = True, self._simpler_at(index)
        return changed

    def _simpler_at(self, index: int) -> bool:
        if index >= len(self.best) or self.best[index].op in self.trial.contract.atomic:
            return False
        step = self.best[index]
        return any(
            self._fails([*self.best[:index], replace(step, request=request), *self.best[index + 1 :]])
            for request in simpler(step.request)
        )


def _size(acts: Sequence[Act], steps: Sequence[Step]) -> tuple[int, int, int]:
    """What makes one sequence smaller than another: its steps, then its choices, then their sum."""
    return len(steps), sum(len(act.choices) for act in acts), sum(sum(act.choices) for act in acts)


def _rest(items: Sequence[T], dropped: set[int]) -> list[T]:
    return [item for index, item in enumerate(items) if index not in dropped]


def cut(
    items: Callable[[], list[T]],
    fails: Callable[[list[T]], bool],
    *,
    first: int,
    keep: Callable[[Sequence[T], set[int]], list[T]] = _rest,
) -> None:
    """Take items out, from ``first`` on and before the last, in pieces that get smaller, as long as it still fails."""
    size = max(1, len(items()) // 2)
    while size:
        end = len(items()) - 1
        while end > first:
            start = max(first, end - size)
            fails(keep(items(), set(range(start, end))))
            end = min(start, len(items()) - 1)
        size //= 2


def without(steps: Sequence[Step], dropped: set[int]) -> list[Step]:
    """The steps that are left, without those that need what a dropped one bound."""
    gone: set[str] = set()
    left = []
    for index, step in enumerate(steps):
        if index in dropped or gone & set(bound_names(step.request)):
            gone |= step.bind.keys()
        else:
            gone -= step.bind.keys()
            left.append(step)
    return left


def simpler(value: Json) -> Iterator[Any]:
    """Variants of a JSON value, the boldest first; most of them will not meet their schema."""
    if isinstance(value, Mapping):
        if BIND not in value:
            yield from _smaller_object(value)
    elif isinstance(value, list):
        for index in range(len(value)):
            yield [*value[:index], *value[index + 1 :]]
        for index, item in enumerate(value):
            for other in simpler(item):
                yield [*value[:index], other, *value[index + 1 :]]
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield from _smaller_number(value)


def _smaller_object(value: Mapping[str, Json]) -> Iterator[dict[str, Any]]:
    for name in value:
        yield {other: item for other, item in value.items() if other != name}
    lists = [name for name, item in value.items() if isinstance(item, list)]
    longest = max((len(value[name]) for name in lists), default=0)
    for index in range(longest):  # lists that run side by side lose the same place
        yield {
            name: [*item[:index], *item[index + 1 :]] if name in lists and len(item) == longest else item
            for name, item in value.items()
        }
    for name, item in value.items():
        for other in simpler(item):
            yield {**value, name: other}


def _smaller_number(value: float) -> Iterator[float]:
    found: list[float] = [0, 1, int(value) // 2, int(value), int(value) - 1]
    seen = {value}
    for number in found:
        if number not in seen and 0 <= number <= value:
            seen.add(number)
            yield number
