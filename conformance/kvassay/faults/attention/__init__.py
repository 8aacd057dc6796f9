"""Faults of the contract attention: the reference with one realistic defect each, by section of the chapter.

A fault changes the arguments of the reference, a state, or one formula, and names the requirement that it breaks and
the cases that are meant to see it. Links in docstrings are public reports of the same defect in an engine.
"""

from __future__ import annotations

from ...engines.reference import (
    Reference,
    ReferenceFloat64,
    ReferenceHalf,
    ReferenceOLse,
    ReferenceOLse2,
    ReferenceZero,
)
from ..base import Fault, named
from . import invariance, merges, outputs, pages, positions, precision, ranges, rejections, states

CORRECT = (Reference, ReferenceFloat64, ReferenceOLse, ReferenceOLse2, ReferenceHalf, ReferenceZero)
FAULTS: tuple[type[Fault], ...] = (
    *outputs.FAULTS,
    *positions.FAULTS,
    *pages.FAULTS,
    *ranges.FAULTS,
    *invariance.FAULTS,
    *states.FAULTS,
    *merges.FAULTS,
    *precision.FAULTS,
    *rejections.FAULTS,
)
"""In the order of the chapter."""

__getattr__ = named(__name__, FAULTS)
