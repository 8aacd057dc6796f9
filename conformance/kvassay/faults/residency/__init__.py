"""Faults of the contract residency: the reference with one realistic defect each."""

from __future__ import annotations

from ...adapters.base import EngineAdapter
from ...engines.reference import Reference
from ...engines.reference_residency_lesser import LESSER
from ..base import named
from . import authority, cancellation, coalescing, leases, movement, names, plans, reads, rooms, several, validation

CORRECT: tuple[type[EngineAdapter], ...] = (Reference, *LESSER)

FAULTS: tuple[type[EngineAdapter], ...] = (
    *reads.FAULTS,
    *rooms.FAULTS,
    *movement.FAULTS,
    *validation.FAULTS,
    *cancellation.FAULTS,
    *leases.FAULTS,
    *coalescing.FAULTS,
    *authority.FAULTS,
    *names.FAULTS,
    *several.FAULTS,
    *plans.FAULTS,
)

__getattr__ = named(__name__, FAULTS)
