"""Faults of the contract runtime: the reference with one defect each, a module for each part of the chapter."""

from __future__ import annotations

from ...engines.reference import Reference, ReferenceFloat64
from ..base import Fault, named
from . import admission, batches, documents, edges, epochs, estimates, fallbacks, identity, index, jobs, lax

CORRECT = (Reference, ReferenceFloat64, lax.ReferenceNotExact)

FAULTS: tuple[type[Fault], ...] = (
    *documents.FAULTS,
    *batches.FAULTS,
    *estimates.FAULTS,
    *admission.FAULTS,
    *fallbacks.FAULTS,
    *jobs.FAULTS,
    *identity.FAULTS,
    *epochs.FAULTS,
    *index.FAULTS,
    *edges.FAULTS,
    *lax.FAULTS,
)
"""In the order of the chapter."""

__getattr__ = named(__name__, FAULTS)
