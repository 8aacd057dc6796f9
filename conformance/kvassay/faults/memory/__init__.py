"""Faults of the contract memory: the reference with one realistic defect each, by section of the chapter."""

from __future__ import annotations

from ...engines.reference import Reference
from ..base import named
from . import clusters, documents, events, losses, units

CORRECT = (Reference,)
FAULTS = (*units.FAULTS, *events.FAULTS, *clusters.FAULTS, *losses.FAULTS, *documents.FAULTS)

__getattr__ = named(__name__, FAULTS)
