"""Faults of the contract indexes: the reference with one realistic defect each, by section of the chapter."""

from __future__ import annotations

from ...engines.reference import Reference
from ..base import found, named
from . import bridge, magicpig, pq, record, search, squeezed, store

CORRECT = (Reference,)
FAULTS = (
    *(fault for module in (store, search, record, pq, bridge, squeezed, magicpig) for fault in found(vars(module))),
    *record.BLINDS,
)

__getattr__ = named(__name__, FAULTS)
