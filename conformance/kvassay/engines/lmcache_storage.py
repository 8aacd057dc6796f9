"""LMCache's storage manager over its L1 memory and a file tier, with its controllers running.

Rows are stored into L1 and copied to files by LMCache's own store controller; a read is LMCache's prefetch, which
brings rows back from files into L1 under a read lock. Before what needs room in L1 the adapter waits until LMCache's
eviction, which runs once a second, has made some, as time between requests would.

``control.inject`` damages the file and drops the L1 object, so that the next read needs the file; a dropped read is
LMCache's own fault-injecting tier at work.
"""

from __future__ import annotations

import itertools
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar

from lmcache.v1.distributed.api import GroupedObjectKeys, ObjectKey, PrefetchTaskSpec
from lmcache.v1.distributed.config import EvictionConfig, L2AdaptersConfig, StorageManagerConfig
from lmcache.v1.distributed.l2_adapters.config import get_l2_adapter_config_class
from lmcache.v1.distributed.storage_manager import StorageManager

from ..adapters.base import EngineAdapter, EngineInfo
from ..core.tensors import Array
from .lmcache_l1 import HOMEPAGE, l1_config, layout, object_key, rows

ADAPTERS = {"lmcache-storage": "Adapter"}
"""Names of the adapters here, and their classes; read without an import."""

Request = Mapping[str, Any]
Result = dict[str, Any]

PATIENCE_S = 5.0
"""How long LMCache's controllers get for one piece of work."""


class Adapter(EngineAdapter):
    """Storage manager, L1 and files."""

    engine = EngineInfo(
        name="LMCache storage manager",
        version=version("lmcache"),
        homepage=HOMEPAGE,
        notes="StorageManager with an fs tier behind fault_inject, controllers running. A look-up is a prefetch whose "
        "locks are given back, as LMCache's own look-up is; it may bring rows into L1. A reset is clear(force=True).",
    )
    profiles: ClassVar[frozenset[str] | None] = frozenset({"store", "transaction"})
    capabilities: ClassVar[Mapping[str, Any]] = {
        "residency.mode": "composed",
        "residency.leases": True,
        "residency.secondary": True,
        "residency.tenants": True,
        "residency.content_addressed": True,
        "residency.evicts": True,
        "residency.async": True,
    }

    manager: Any = None

    def open(self) -> None:
        """A directory of its own."""
        self.teardown()
        self.root = Path(tempfile.mkdtemp(prefix="kvassay-lmcache-"))

    def teardown(self) -> None:
        """End the controllers, remove the files."""
        if self.manager is not None:
            self.manager.close()
            self.manager = None
        shutil.rmtree(getattr(self, "root", ""), ignore_errors=True)

    def residency_open(self, request: Request) -> Result:
        """Manager and controllers."""
        self.slot_bytes = request["slot_bytes"]
        self.layout = layout(self.slot_bytes)
        tier = get_l2_adapter_config_class("fault_inject").from_dict(
            {"inner": {"type": "fs", "base_path": str(self.root)}}
        )
        self.manager = StorageManager(
            StorageManagerConfig(
                l1_config(request["slots"], self.slot_bytes, 600, 300),
                EvictionConfig("LRU", trigger_watermark=0.5, eviction_ratio=0.5),
                L2AdaptersConfig([tier]),
            )
        )
        ((_, self.tier),) = self.manager.l2_adapters()
        self.transactions: dict[str, tuple[str, list[ObjectKey], list[Array], list[Array]]] = {}
        self.copied: dict[str, int] = {}
        self.places: dict[str, list[bool]] = {}
        """Per transaction, which of the keys asked for it moves."""
        self.numbers = itertools.count()
        return {"slots": None, "slot_bytes": self.slot_bytes, "engine_calls": 1}

    # --- store ----------------------------------------------------------------------------------------------------

    def residency_put(self, request: Request) -> Result:
        """Reserve, write, finish; then the file is waited for, so that a fault can be injected into it."""
        key = object_key(request, request["key"])
        self.settled(1)
        memory = self.manager.reserve_write([key], self.layout).get(key)
        if memory is None:
            return {"outcome": "resident" if self.fetched([key]) else "refused", "engine_calls": 2}
        rows(memory)[:] = request["data"]
        self.manager.finish_write([key])
        until(lambda: bool(self.files(key)))
        return {"outcome": "stored", "engine_calls": 2}

    def residency_get(self, request: Request) -> Result:
        """Prefetch and read."""
        key = object_key(request, request["key"])
        if not self.fetched([key], keep=True):
            return {"outcome": "miss", "engine_calls": 1}
        with self.manager.read_prefetched_results([key]) as found:
            data = None if found is None else rows(found[0]).copy()
        if data is None:
            return {"outcome": "miss", "engine_calls": 2}
        self.manager.finish_read_prefetched([key])
        return {"outcome": "hit", "data": data, "engine_calls": 3}

    def residency_lookup(self, request: Request) -> Result:
        """A prefetch for each key, its locks given back."""
        keys = [object_key(request, name) for name in request["keys"]]
        return {"states": ["ready" if self.fetched([key]) else "miss" for key in keys], "engine_calls": len(keys)}

    def residency_remove(self, request: Request) -> Result:
        """``delete_l1_keys``, and ``delete`` of the tier where L1 gave the key up or did not hold it."""
        outcomes = []
        for name in request["keys"]:
            key = object_key(request, name)
            there = bool(self.files(key))
            deleted, skipped = self.manager.delete_l1_keys([key], request.get("force", False))
            if not skipped:
                self.tier.delete([key])
            outcomes.append("leased" if skipped else "removed" if deleted or there else "absent")
        return {"outcomes": outcomes, "engine_calls": 2 * len(outcomes)}

    def residency_reset(self, request: Request) -> Result:
        """``clear``."""
        self.manager.clear(force=True)
        return {"engine_calls": 1}

    # --- transactions ---------------------------------------------------------------------------------------------

    def residency_reserve(self, request: Request) -> Result:
        """``reserve_write``, or a prefetch that keeps its locks."""
        mode = request["mode"]
        keys = [object_key(request, name) for name in request["keys"]]
        if mode == "store":
            self.settled(len(keys))
            memory = self.manager.reserve_write(keys, self.layout)
            grants = [{"outcome": "granted" if key in memory else self.denied(key)} for key in keys]
        else:
            held = [key for key in keys if self.fetched([key], keep=True)]
            memory = dict(zip(held, self.manager.unsafe_read(held)[1], strict=False))
            grants = [{"outcome": "granted" if key in memory else "miss"} for key in keys]
        if not memory:
            return {"txn": None, "grants": grants, "engine_calls": len(keys)}
        granted = [key for key in keys if key in memory]
        data = request.get("data", ())
        sources = [rows_ for key, rows_ in zip(keys, data, strict=False) if key in memory]
        views = [rows(memory[key]) for key in granted]
        txn = f"t{next(self.numbers)}"
        self.transactions[txn], self.copied[txn] = (mode, granted, views, sources), 0
        self.places[txn] = [key in memory for key in keys]
        return {"txn": txn, "grants": grants, "engine_calls": len(keys)}

    def residency_copy(self, request: Request) -> Result:
        """The worker's copy."""
        mode, granted, views, sources = self.transactions[request["txn"]]
        start = self.copied[request["txn"]]
        size = min(self.slot_bytes - start, request.get("bytes", self.slot_bytes))
        self.copied[request["txn"]] += size
        told: Result = {"bytes": size * len(granted), "engine_calls": 1}
        if mode == "store":
            for view, source in zip(views, sources, strict=True):
                view[start : start + size] = source[start : start + size]
            return told
        whole = iter(views)
        told["data"] = [next(whole).copy() if here else None for here in self.places[request["txn"]]]
        return told

    def residency_complete(self, request: Request) -> Result:
        """``finish_write``, which returns nothing and lets the files be written, or ``finish_read_prefetched``."""
        mode, granted, _, _ = self.transactions[request["txn"]]
        if mode == "load":
            self.manager.finish_read_prefetched(granted)
        else:
            self.manager.finish_write(granted)
            until(lambda: all(self.files(key) for key in granted))
        return {"outcome": "done", "engine_calls": 1}

    def control_inject(self, request: Request) -> Result:
        """Damage the file once it is there, and drop the L1 object."""
        key, fault = object_key(request, request["key"]), request["fault"]
        if not until(lambda: bool(self.files(key))):
            return {"damaged": False}
        (file,) = self.files(key)
        data = file.read_bytes()
        self.manager.delete_l1_keys([key], force=True)
        if fault == "corrupt":
            file.write_bytes(bytes(byte ^ 1 for byte in data[:1]) + data[1:])
        elif fault == "truncate":
            file.write_bytes(data[: len(data) // 2])
        elif fault == "drop":
            self.tier._gap_indices = frozenset({0})
        return {"damaged": True}

    # --- the adapter's own ----------------------------------------------------------------------------------------

    def settled(self, slots: int) -> None:
        """Wait for LMCache's eviction, if there is no room now."""

        def room() -> bool:
            used, total = self.manager.get_l1_usage()
            return bool(total - used >= slots * self.slot_bytes)

        until(room, 2.5)

    def fetched(self, keys: list[ObjectKey], keep: bool = False) -> bool:
        """Whether a prefetch finds all keys; one that finds files and no room is made again later."""
        if self.prefetched(keys, keep):
            return True
        if not all(self.files(key) for key in keys):
            return False
        self.settled(len(keys))
        return self.prefetched(keys, keep)

    def prefetched(self, keys: list[ObjectKey], keep: bool) -> bool:
        """One prefetch; its read locks are kept, if asked for and all keys were found, or given back."""
        task = self.manager.submit_prefetch_task(PrefetchTaskSpec([GroupedObjectKeys(keys, 0, self.layout)]))
        self.manager.wait_prefetch_status(task, PATIENCE_S)
        result = self.manager.query_prefetch_status(task)
        hits = 0 if result is None else sum(cells.popcount() for cells in result.hit_cells)
        if hits and not (keep and hits == len(keys)):
            self.manager.finish_read_prefetched(keys[:hits])
        return hits == len(keys)

    def denied(self, key: ObjectKey) -> str:
        """Why a key got no memory: it is there, is being written, or there is no room."""
        if self.fetched([key]):
            return "resident"
        writing = any(key in granted for mode, granted, _, _ in self.transactions.values() if mode == "store")
        return "pending" if writing else "refused"

    def files(self, key: ObjectKey) -> list[Path]:
        """The key's file, when it is complete."""
        found = [file for file in self.root.rglob("*.data") if f"@{key.chunk_hash.hex()}" in file.name]
        return [file for file in found if key.cache_salt in file.name or not key.cache_salt]


def until(holds: Callable[[], bool], patience_s: float = PATIENCE_S) -> bool:
    """Wait for LMCache's threads."""
    end = time.monotonic() + patience_s
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(0.002)
    return True
