"""Faults of the contract identity: the reference with one realistic defect each, by section of the chapter.

Public reports are named where a fault models one; ``#`` follows the repository.
"""

from __future__ import annotations

from ...engines.reference import Reference, ReferenceFenced, ReferenceOLse2
from ..base import Fault, named
from . import (
    designs,
    encodings,
    fences,
    fields,
    finds,
    gathers,
    indexes,
    joins,
    readers,
    rejections,
    replicas,
    retrieval,
)

CORRECT = (Reference, ReferenceFenced, ReferenceOLse2)
FAULTS: tuple[type[Fault], ...] = (
    *encodings.FAULTS,
    *readers.FAULTS,
    *replicas.FAULTS,
    *indexes.FAULTS,
    *gathers.FAULTS,
    *rejections.FAULTS,
    *retrieval.FAULTS,
    *fields.FAULTS,
    *joins.FAULTS,
    *finds.FAULTS,
    *fences.FAULTS,
    *designs.FAULTS,
)
"""In the order of the chapter."""

__getattr__ = named(__name__, FAULTS)
