"""Faults of the contract kvevents: the reference with one realistic defect each, by section of the chapter."""

from __future__ import annotations

from ...engines.reference import Reference
from ..base import Fault, named
from . import clearing, contents, numbers, parents, places

CORRECT = (Reference,)
FAULTS: tuple[type[Fault], ...] = (
    *places.FAULTS,
    *numbers.FAULTS,
    *parents.FAULTS,
    *contents.FAULTS,
    *clearing.FAULTS,
    *contents.BLINDS,
)
"""In the order of the chapter; then contents that lack a member."""

__getattr__ = named(__name__, FAULTS)
