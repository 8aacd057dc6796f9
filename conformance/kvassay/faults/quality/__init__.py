"""Faults of the contract quality: the reference with one defect each, a module for each part of the chapter."""

from __future__ import annotations

from ...engines.reference import Reference, ReferenceFloat64
from ..base import Fault, named
from . import costs, documents, edges, errors, fallbacks, selections

CORRECT = (Reference, ReferenceFloat64)

FAULTS: tuple[type[Fault], ...] = (
    *selections.FAULTS,
    *errors.FAULTS,
    *costs.FAULTS,
    *fallbacks.FAULTS,
    *documents.FAULTS,
    *edges.FAULTS,
)
"""In the order of the chapter."""

__getattr__ = named(__name__, FAULTS)
