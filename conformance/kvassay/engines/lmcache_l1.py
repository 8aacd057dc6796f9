"""LMCache's L1 manager as an engine of residency: staging objects, resident objects, and locks that expire.

The adapter plays the worker: ``copy`` writes into the memory object that ``reserve_write`` returned, or reads the one
of ``reserve_read``, as late as a worker may. Every completion is forwarded under the writer's tag, whatever became of
the reservation.

- :class:`Adapter`: all writers share one tag, as LMCache's storage manager has it.
- :class:`Tagged`: every owner is a tag of its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, ClassVar

import numpy as np
import torch
from lmcache.v1.distributed.api import MemoryLayoutDesc, ObjectKey
from lmcache.v1.distributed.config import L1ManagerConfig, L1MemoryManagerConfig
from lmcache.v1.distributed.error import L1Error
from lmcache.v1.distributed.l1_manager import L1Manager
from lmcache.v1.memory_management import MemoryObj

from ..adapters.base import EngineAdapter, EngineInfo, Rejected
from ..core.tensors import Array
from .wall_clock import WallClock

ADAPTERS = {"lmcache-l1": "Adapter", "lmcache-l1-tagged": "Tagged"}
"""Names of the adapters here, and their classes; read without an import."""

Request = Mapping[str, Any]
Result = dict[str, Any]

HOMEPAGE = "https://github.com/LMCache/LMCache"
TTL_S = 1
"""Of write and read locks; LMCache counts in whole seconds and has 600 and 300 by default."""
ALIGN_BYTES = 4096
"""Memory objects begin at multiples of it."""
REASONS = {
    L1Error.KEY_NOT_EXIST: "UNKNOWN_TRANSACTION",
    L1Error.KEY_IN_WRONG_STATE: "TRANSACTION_DEAD",
    L1Error.KEY_NOT_READABLE: "TRANSACTION_DEAD",
    L1Error.KEY_IS_LOCKED: "BUSY",
}


@dataclass
class Transaction:
    """The keys of one reservation and the memory that LMCache gave for them; ``None`` for a key that got none.

    The memory is held as the pointers that a worker's asynchronous copy was started with.
    """

    mode: str
    tag: str
    keys: list[ObjectKey]
    memory: list[Array | None]
    sources: list[Array]
    """Rows of a store, until they are copied."""
    destinations: list[Array]
    copied: int = 0


class Adapter(EngineAdapter):
    """One tag for all writers."""

    engine = EngineInfo(
        name="LMCache L1 manager",
        version=version("lmcache"),
        homepage=HOMEPAGE,
        notes=f"L1Manager over host memory, in component mode; write and read locks of {TTL_S} s on the wall clock. "
        "No eviction controller runs, so that a full manager refuses.",
    )
    profiles: ClassVar[frozenset[str] | None] = frozenset({"store", "transaction"})
    capabilities: ClassVar[Mapping[str, Any]] = {
        "residency.mode": "component",
        "residency.expiry_write": True,
        "residency.expiry_read": True,
        "residency.leases": True,
        "residency.exact_slots": True,
        "residency.job_failure": "key",
        "residency.tenants": True,
        "residency.content_addressed": True,
    }

    def residency_open(self, request: Request) -> Result:
        """A manager of its own, with room for the slots."""
        self.close()
        self.slot_bytes = request["slot_bytes"]
        self.clock = WallClock(TTL_S, request)
        self.manager = L1Manager(l1_config(request["slots"], self.slot_bytes, TTL_S, TTL_S))
        self.layout = layout(self.slot_bytes)
        self.transactions: dict[str, Transaction] = {}
        self.numbers = itertools.count()
        return {"slots": request["slots"], "slot_bytes": self.slot_bytes, "engine_calls": 1}

    def close(self) -> None:
        """Give the memory of the case before back."""
        manager = getattr(self, "manager", None)
        if manager is not None:
            manager.close()
            self.manager = None

    def teardown(self) -> None:
        """The last manager's memory."""
        self.close()

    def tag(self, owner: str) -> str:
        """The writer's tag of an owner."""
        return "kvassay"

    # --- store ----------------------------------------------------------------------------------------------------

    def residency_put(self, request: Request) -> Result:
        """Reserve, write and finish in one go."""
        key, tag = object_key(request, request["key"]), self.tag("put")
        error, memory = self.manager.reserve_write([key], [False], self.layout, tag)[key]
        if error is L1Error.KEY_NOT_WRITABLE:
            there = self.manager.unsafe_read([key])[key][0] is not L1Error.KEY_NOT_EXIST
            return {"outcome": "resident" if there else "refused", "engine_calls": 2}
        if memory is None:
            return {"outcome": "refused", "engine_calls": 1}
        rows(memory)[:] = request["data"]
        self.manager.finish_write([key], tag)
        return {"outcome": "stored", "engine_calls": 2}

    def residency_get(self, request: Request) -> Result:
        """Reserve, read and finish in one go."""
        key = object_key(request, request["key"])
        _, memory = self.manager.reserve_read([key])[key]
        if memory is None:
            return {"outcome": "miss", "engine_calls": 1}
        data = rows(memory).copy()
        self.manager.finish_read([key])
        return {"outcome": "hit", "data": data, "tier": "host", "engine_calls": 2}

    def residency_lookup(self, request: Request) -> Result:
        """``unsafe_read`` tells a key that is not read-locked from one that is not there, and locks nothing."""
        keys = [object_key(request, name) for name in request["keys"]]
        found = self.manager.unsafe_read(keys)
        states = ["miss" if found[key][0] is L1Error.KEY_NOT_EXIST else "ready" for key in keys]
        return {"states": states, "engine_calls": 1}

    def residency_remove(self, request: Request) -> Result:
        """``delete``."""
        keys = [object_key(request, name) for name in request["keys"]]
        found = self.manager.delete(keys, request.get("force", False))
        told = {L1Error.SUCCESS: "removed", L1Error.KEY_NOT_EXIST: "absent", L1Error.KEY_IS_LOCKED: "leased"}
        return {"outcomes": [told[found[key]] for key in keys], "engine_calls": 1}

    def residency_reset(self, request: Request) -> Result:
        """``clear`` by force: LMCache warns that it may corrupt what is under way."""
        self.manager.clear(force=True)
        return {"engine_calls": 1}

    # --- transactions ---------------------------------------------------------------------------------------------

    def residency_reserve(self, request: Request) -> Result:
        """``reserve_write`` or ``reserve_read``."""
        mode, tag = request["mode"], self.tag(request["owner"])
        keys = [object_key(request, name) for name in request["keys"]]
        if mode == "store":
            found = self.manager.reserve_write(keys, [False] * len(keys), self.layout, tag)
            there = self.manager.unsafe_read(keys)
        else:
            found, there = self.manager.reserve_read(keys), {}
        grants = [{"outcome": outcome(mode, found[key], there.get(key))} for key in keys]
        memory = [None if found[key][1] is None else rows(found[key][1]) for key in keys]
        if not any(one is not None for one in memory):
            return {"txn": None, "grants": grants, "engine_calls": 1}
        txn = f"t{next(self.numbers)}"
        sources = list(request.get("data", ()))
        blank = [np.zeros(self.slot_bytes, np.uint8) for _ in keys]
        self.transactions[txn] = Transaction(mode, tag, keys, memory, sources, blank)
        return {"txn": txn, "grants": grants, "engine_calls": 1}

    def residency_copy(self, request: Request) -> Result:
        """The worker's memory copy, into or out of the objects that were handed out."""
        transaction = self.transaction(request)
        start = transaction.copied
        size = min(self.slot_bytes - start, request.get("bytes", self.slot_bytes))
        part, moved = slice(start, start + size), 0
        for index, memory in enumerate(transaction.memory):
            if memory is None:
                continue
            if transaction.mode == "store":
                memory[part] = transaction.sources[index][part]
            else:
                transaction.destinations[index][part] = memory[part]
            moved += size
        transaction.copied += size
        told: Result = {"bytes": moved, "engine_calls": 1}
        if transaction.mode == "load":
            pairs = zip(transaction.memory, transaction.destinations, strict=True)
            told["data"] = [None if memory is None else data for memory, data in pairs]
        return told

    def residency_complete(self, request: Request) -> Result:
        """``finish_write`` or ``finish_read``; keys whose copy failed are finished and deleted at once."""
        transaction = self.transaction(request)
        failed = {object_key(request, name).chunk_hash for name in request.get("failed", ())}
        granted = [key for key, one in zip(transaction.keys, transaction.memory, strict=True) if one is not None]
        if transaction.mode == "load":
            return ended(self.manager.finish_read(granted))
        whole = [key for key in granted if key.chunk_hash not in failed]
        torn = [key for key in granted if key.chunk_hash in failed]
        errors = self.manager.finish_write(whole, transaction.tag)
        return ended(errors | self.manager.finish_write_and_delete(torn, transaction.tag))

    def control_advance_clock(self, request: Request) -> Result:
        """Sleep, stretched."""
        return dict(self.clock.advance(request["by_ms"]))

    def transaction(self, request: Request) -> Transaction:
        """The reservation of a handle, over or not; LMCache knows keys and tags, and no handle that never was."""
        found = self.transactions.get(request["txn"])
        if found is None:
            raise Rejected("UNKNOWN_TRANSACTION", "no key or tag belongs to this handle")
        return found


class Tagged(Adapter):
    """A tag for each owner."""

    def tag(self, owner: str) -> str:
        """The owner."""
        return owner


def l1_config(slots: int, slot_bytes: int, write_ttl_s: int, read_ttl_s: int) -> L1ManagerConfig:
    """Host memory for so many slots."""
    room = slots * -(-slot_bytes // ALIGN_BYTES) * ALIGN_BYTES
    memory = L1MemoryManagerConfig(room, use_lazy=False, align_bytes=ALIGN_BYTES, shm_name="")
    return L1ManagerConfig(memory, write_ttl_seconds=write_ttl_s, read_ttl_seconds=read_ttl_s)


def layout(slot_bytes: int) -> MemoryLayoutDesc:
    """Memory objects of plain bytes."""
    return MemoryLayoutDesc([torch.Size([slot_bytes])], [torch.uint8])


def object_key(request: Request, name: str) -> ObjectKey:
    """A key of the case as LMCache's chunk hash, its tenant as the cache salt."""
    return ObjectKey(name.encode(), "m", 0, cache_salt=request.get("tenant", ""))


def rows(memory: MemoryObj) -> Array:
    """The bytes of a memory object, as a view."""
    view: Array = memory.tensor.view(torch.uint8).numpy().reshape(-1)
    return view


def outcome(mode: str, found: tuple[L1Error, MemoryObj | None], there: tuple[L1Error, Any] | None) -> str:
    """What a reservation comes to for one key."""
    error, memory = found
    if memory is not None:
        return "granted"
    if mode == "load":
        return "miss"
    if error is L1Error.OUT_OF_MEMORY:
        return "refused"
    return "resident" if there is not None and there[0] is not L1Error.KEY_NOT_EXIST else "pending"


def ended(errors: Mapping[ObjectKey, L1Error]) -> Result:
    """The reply to a completion; the first error is the reason of a rejection."""
    for error in errors.values():
        if error is not L1Error.SUCCESS:
            raise Rejected(REASONS.get(error), error.name)
    return {"outcome": "done" if errors else "empty", "engine_calls": 1}
