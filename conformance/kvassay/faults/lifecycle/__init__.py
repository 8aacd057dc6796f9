"""Faults of the contract lifecycle: the reference with one realistic defect each, by section of the chapter."""

from __future__ import annotations

from ...engines.reference import Reference
from ..base import Fault, named
from . import costs, documents, pauses, results, resuming, saves, waiting

CORRECT = (Reference,)
FAULTS: tuple[type[Fault], ...] = (
    *costs.FAULTS,
    *waiting.FAULTS,
    *pauses.FAULTS,
    *saves.FAULTS,
    *resuming.FAULTS,
    *results.FAULTS,
    *documents.FAULTS,
)
"""In the order of the chapter."""

__getattr__ = named(__name__, FAULTS)
