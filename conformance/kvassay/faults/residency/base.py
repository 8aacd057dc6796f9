"""What the faults of residency share: the reference to be spoiled, and correct engines that can do less."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from kvassay_reference.residency import Grant, Residency, Slot, Transaction

from ...engines.reference_residency_lesser import Forgetting, Refusing, Unjoined
from ..base import ids

Request = Mapping[str, Any]
Result = dict[str, Any]


class ForgettingFault(Forgetting):
    """One tier with eviction, to be spoiled."""

    requirement: ClassVar[str]
    killed_by: ClassVar[tuple[str, ...]]


class RefusingFault(Refusing):
    """One tier without eviction, to be spoiled."""

    requirement: ClassVar[str]
    killed_by: ClassVar[tuple[str, ...]]


class UnjoinedFault(Unjoined):
    """Loads that copy each for itself, to be spoiled."""

    requirement: ClassVar[str]
    killed_by: ClassVar[tuple[str, ...]]


cases = ids("residency")
"""Ids of this contract's cases."""


def slot_of(grant: Grant) -> Slot:
    """The slot that a store writes."""
    assert grant.target is not None
    assert grant.target.slot is not None
    return grant.target.slot


class Remembering(Residency):
    """A store that remembers transactions that are over."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.over: dict[str, Transaction] = {}

    def end(self, transaction: Transaction) -> None:
        self.over[transaction.name] = transaction
        super().end(transaction)
