"""Faults of the contract indexes: the reference with one realistic defect each, by section of the chapter."""

from __future__ import annotations

from ...engines.reference import Reference
from . import bridge, magicpig, pq, record, search, squeezed, store
from .base import faults_in

CORRECT = (Reference,)
FAULTS = (
    *(fault for module in (store, search, record, pq, bridge, squeezed, magicpig) for fault in faults_in(vars(module))),
    *record.BLINDS,
)
