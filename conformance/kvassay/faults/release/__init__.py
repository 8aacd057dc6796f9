"""Faults of the contract release: the reference with one defect each, a module for each part of the chapter."""

from __future__ import annotations

from ...engines.reference import Reference, ReferenceFloat64
from ..base import Fault, named
from . import durability, edges, plans, precedence, registries, rollouts, stores

CORRECT = (Reference, ReferenceFloat64)

FAULTS: tuple[type[Fault], ...] = (
    *registries.FAULTS,
    *plans.FAULTS,
    *rollouts.FAULTS,
    *stores.FAULTS,
    *durability.FAULTS,
    *edges.FAULTS,
    *precedence.FAULTS,
)
"""In the order of the chapter."""

__getattr__ = named(__name__, FAULTS)
