"""Faults of *Numbers*: lost, repeated and nameless batches (EVT-004)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from kvassay_reference.errors import Refusal
from kvassay_reference.kvevents import Index, Streams

from ..base import Fault, found
from .base import case


@dataclass
class Numbers(Index):
    """The check of numbers without some of its reasons, or from another beginning."""

    blind: ClassVar[tuple[str, ...]] = ()

    def numbered(self, number: int | None) -> None:
        try:
            super().numbered(number)
        except Refusal as refusal:
            if refusal.reason not in self.blind:
                raise


class GapsTolerant(Numbers):
    """Gaps pass."""

    blind = ("EVENT_BATCH_LOST",)


class RepeatsTolerant(Numbers):
    """Repeats pass."""

    blind = ("EVENT_BATCH_REPEATED",)


class GapsPass(Fault):
    """A lost batch is logged and nothing follows from it."""

    requirement = "EVT-004"
    killed_by = case("numbers/gap-of-one", "numbers/gap-of-many", "numbers/first-is-missing")
    index_class = GapsTolerant


class RepeatsPass(Fault):
    """A batch that is replayed is applied a second time."""

    requirement = "EVT-004"
    killed_by = case("numbers/again", "numbers/restart", "clearing/numbers-go-on")
    index_class = RepeatsTolerant


@dataclass
class AnyBeginning(Index):
    """The first batch may have any number."""

    def numbered(self, number: int | None) -> None:
        if self.number is None and number is not None:
            self.number = number - 1
        super().numbered(number)


class BeginningMissing(Fault):
    """Whoever subscribes late takes the first batch that comes for the beginning."""

    requirement = "EVT-004"
    killed_by = case("numbers/first-is-missing")
    index_class = AnyBeginning


class Numbered(Streams):
    """Batches without a number are dropped."""

    def read(self, batches: Iterable[Mapping[str, Any]]) -> None:
        super().read(batch for batch in batches if batch["seq"] is not None)


class NumberlessDropped(Fault):
    """A batch without a number is taken for a broken one and skipped."""

    requirement = "EVT-004"
    killed_by = case("numbers/none", "numbers/some")
    streams_class = Numbered


@dataclass
class SmallGaps(Index):
    """A single lost batch passes."""

    def numbered(self, number: int | None) -> None:
        if number is not None and self.number is not None and number == self.number + 2:
            self.number += 1
        super().numbered(number)


class OneMayBeLost(Fault):
    """The comparison of numbers is off by one."""

    requirement = "EVT-004"
    killed_by = case("numbers/gap-of-one", "numbers/out-of-order")
    index_class = SmallGaps


@dataclass
class NamelessCount(Index):
    """A batch without a number counts."""

    def numbered(self, number: int | None) -> None:
        if number is None:
            self.number = 0 if self.number is None else self.number + 1
        super().numbered(number)


class NamelessBatchesCount(Fault):
    """A batch without a number uses one up."""

    requirement = "EVT-004"
    killed_by = case("numbers/some", "numbers/gap-behind-no-number")
    index_class = NamelessCount


FAULTS = found(globals())
