"""Faults of the contract selectors: the reference with one realistic defect each.

A fault puts a method of its own in the place of SparQ, Quest, InfiniGen or the pool.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType

from . import infinigen, quest, receipts, shared, sparq
from .base import CORRECT, Fault

__all__ = ["CORRECT", "FAULTS"]


def _seeded(module: ModuleType) -> Iterator[type[Fault]]:
    """The faults that a module defines, in its order."""
    for value in list(vars(module).values()):
        if (
            isinstance(value, type)
            and issubclass(value, Fault)
            and value.__module__ == module.__name__
            and value is not receipts.Blind
        ):
            yield value


FAULTS = (
    *_seeded(shared),
    *_seeded(sparq),
    *_seeded(quest),
    *_seeded(infinigen),
    *_seeded(receipts),
    *receipts.BLINDS,
)
