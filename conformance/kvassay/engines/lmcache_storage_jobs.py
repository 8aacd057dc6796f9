"""LMCache's storage manager, held to the jobs of the contract runtime: reservations in L1, and what comes without room.

Driven as under residency. Pinned memory is LMCache's L1. A store reserves it and leaves its rows there until they are
evicted; a load brings rows into it, or finds them there, and locks them. LMCache tells which share of L1 is used, and
rows that may be evicted are part of that, so that what is free for new jobs is not told.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any, ClassVar

from ..adapters.base import EngineInfo
from ._runtime_over_residency import OverResidency
from .lmcache_l1 import HOMEPAGE
from .lmcache_storage import Adapter as Storage

ADAPTERS = {"lmcache-storage-jobs": "Adapter"}
"""Names of the adapters here, and their classes; read without an import."""


class Adapter(OverResidency):
    """Storage manager, L1 and files."""

    engine = EngineInfo(
        name="LMCache storage manager, jobs",
        version=version("lmcache"),
        homepage=HOMEPAGE,
        notes="As lmcache-storage. Pinned memory is L1; a reservation without room is repeated by nobody. "
        "A reset is clear(force=True).",
    )
    inner_class = Storage
    counts: ClassVar[tuple[str, ...]] = ("pinned_bytes",)
    capabilities: ClassVar[Mapping[str, Any]] = {
        "runtime.returns": True,
        "runtime.stores": True,
        "runtime.resets_busy": True,
    }
