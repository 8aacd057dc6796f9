"""Faults of the contract placement: the reference with one defect each, a module for each part of the chapter."""

from __future__ import annotations

from ...engines.reference import Reference, ReferenceFloat64
from ..base import Fault, named
from . import attempts, batches, choice, headwise, pages, pipelines, receipts, reductions, reports, selection, traffic

CORRECT = (Reference, ReferenceFloat64)

FAULTS: tuple[type[Fault], ...] = (
    *traffic.FAULTS,
    *headwise.FAULTS,
    *pipelines.FAULTS,
    *batches.FAULTS,
    *receipts.FAULTS,
    *reductions.FAULTS,
    *attempts.FAULTS,
    *choice.FAULTS,
    *reports.FAULTS,
    *selection.FAULTS,
    *pages.FAULTS,
)
"""In the order of the chapter."""

__getattr__ = named(__name__, FAULTS)
