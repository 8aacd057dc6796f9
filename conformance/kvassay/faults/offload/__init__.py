"""Faults of the contract offload: the reference with one realistic defect each, by section of the chapter."""

from __future__ import annotations

from ...engines.reference import Reference
from ..base import Fault, named
from . import flexgen, memory, regimes, reports, runs, staging, times, traffic

CORRECT = (Reference,)
FAULTS: tuple[type[Fault], ...] = (
    *reports.FAULTS,
    *traffic.FAULTS,
    *times.FAULTS,
    *staging.FAULTS,
    *memory.FAULTS,
    *regimes.FAULTS,
    *flexgen.FAULTS,
    *runs.FAULTS,
    *reports.BLINDS,
)
"""By section; then the rules that are not checked."""

__getattr__ = named(__name__, FAULTS)
