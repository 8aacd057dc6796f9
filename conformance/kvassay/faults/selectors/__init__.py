"""Faults of the contract selectors: the reference with one realistic defect each.

A fault puts a method of its own in the place of SparQ, Quest, InfiniGen or the pool.
"""

from __future__ import annotations

from ..base import found, named
from . import infinigen, quest, receipts, shared, sparq
from .base import CORRECT

__all__ = ["CORRECT", "FAULTS"]


FAULTS = (
    *found(vars(shared)),
    *found(vars(sparq)),
    *found(vars(quest)),
    *found(vars(infinigen)),
    *found(vars(receipts)),
    *receipts.BLINDS,
)

__getattr__ = named(__name__, FAULTS)
