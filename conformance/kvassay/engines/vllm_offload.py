"""vLLM's offloading managers by themselves: which keys are in host memory, in which chunk of it, and in files below.

Component mode. The adapter plays what vLLM has around a manager: the connector's scheduler side, which asks
``prepare_store`` and ``prepare_load``, and the worker, which moves bytes between a device and the host's chunks. The
chunks are real memory; a copy moves when ``residency.copy`` asks for it, not before.

A transaction is the keys of one ``prepare_store`` or ``prepare_load``, for managers know no other handle. A handle that
is over is forwarded like any other. What the connector's scheduler guarantees in front of a manager, that a completion
from before a reset never reaches it, is that scheduler's business and is judged in :mod:`.vllm_scheduler`.

- :class:`Adapter`: ``CPUOffloadingManager`` with its LRU policy. A request of vLLM (``ReqContext``) for each owner.
- :class:`Arc`: its ARC policy.
- :class:`EachRequest`: LRU, with a request of its own for each transaction.
- :class:`FileTier`: ``TieringOffloadingManager`` over host memory and files.
"""

from __future__ import annotations

import itertools
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from vllm.v1.kv_offload.base import (
    LookupResult,
    OffloadKey,
    PrepareStoreOutput,
    ReqContext,
    ScheduleEndContext,
    make_offload_key,
)
from vllm.v1.kv_offload.cpu.manager import CPUOffloadingManager
from vllm.v1.kv_offload.tiering.spec import TieringOffloadingSpec

from ..adapters.base import EngineAdapter, EngineInfo, Rejected
from ..core.tensors import Array
from ._replies import told
from ._vllm_config import offloading_config

ADAPTERS = {
    "vllm-offload-cpu": "Adapter",
    "vllm-offload-cpu-arc": "Arc",
    "vllm-offload-cpu-each": "EachRequest",
    "vllm-offload-file": "FileTier",
}
"""Names of the adapters here, and their classes; read without an import."""

Request = Mapping[str, Any]
Result = dict[str, Any]

HOMEPAGE = "https://github.com/vllm-project/vllm"
PATIENCE = 2000
"""Steps after which a look-up that is still not answered is called pending."""
STATES = {LookupResult.HIT: "ready", LookupResult.MISS: "miss"}
"""Everything else, ``HIT_PENDING`` and ``RETRY``, is pending."""


@dataclass
class Job:
    """One transfer of the worker: a store's rows at their source, or a load's at their destination."""

    mode: str
    context: ReqContext
    names: list[str]
    """Keys of the transaction, in the order of the grants."""
    chunks: dict[str, int] = field(default_factory=dict)
    """Granted key to its chunk in host memory."""
    rows: dict[str, Array] = field(default_factory=dict)
    """Granted key to its rows on the device."""
    copied: int = 0
    """Bytes moved of each key."""
    over: bool = False
    """The worker has nothing left to do for it."""


class Adapter(EngineAdapter):
    """``CPUOffloadingManager``, LRU."""

    engine = EngineInfo(
        name="vLLM CPU offloading manager",
        version=version("vllm"),
        homepage=HOMEPAGE,
        notes="CPUOffloadingManager (LRU) in component mode; the adapter plays the connector's scheduler side and the "
        "worker. put is prepare_store, a copy, complete_store; get is lookup, prepare_load, a copy, complete_load. "
        "reset is reset_cache, after which the worker ends what was in flight, as the connector has it do.",
    )
    profiles: ClassVar[frozenset[str] | None] = frozenset({"store", "transaction"})
    capabilities: ClassVar[Mapping[str, Any]] = {
        "residency.mode": "component",
        "residency.leases": True,
        "residency.job_failure": "key",
        "residency.exact_slots": True,
        "residency.evicts": True,
        "residency.opaque_keys": True,
        "residency.content_addressed": True,
    }
    policy: ClassVar[str] = "lru"
    request_for_each: ClassVar[str] = "owner"
    """What gets a ``ReqContext`` of its own: an owner or a transaction."""

    # --- the manager ------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Forget the case before."""
        self.jobs: dict[str, Job] = {}
        self.contexts: dict[str, ReqContext] = {}
        self.numbers = itertools.count()

    def residency_open(self, request: Request) -> Result:
        """As many chunks as slots are wanted."""
        self.slot_bytes = request["slot_bytes"]
        self.memory: Array = torch.zeros(request["slots"], self.slot_bytes, dtype=torch.uint8).numpy()
        self.manager: Any = CPUOffloadingManager(
            num_chunks=request["slots"], cache_policy=self.policy, enable_events=True
        )
        return told(1, slots=request["slots"], slot_bytes=self.slot_bytes)

    def residency_lookup(self, request: Request) -> Result:
        """A peek: the manager changes nothing."""
        with self.manager.lock:
            context = self.context(None)
            found = self.asked(request["keys"], context)
            self.manager.on_request_finished(context)
        states = [STATES.get(one, "pending") for one in found]
        return told(len(found), states=states, tiers=["host" if one == "ready" else None for one in states])

    def residency_put(self, request: Request) -> Result:
        """A whole store at once."""
        name = request["key"]
        job, outcomes = self.begin("store", [name], None, [request["data"]])
        if outcomes == ["granted"]:
            self.move(job, self.slot_bytes)
            self.end(job, ())
        self.finish(job)
        outcome = {"granted": "stored", "resident": "resident"}.get(outcomes[0], "refused")
        return told(3, outcome=outcome)

    def residency_get(self, request: Request) -> Result:
        """A whole load at once."""
        name = request["key"]
        job, outcomes = self.begin("load", [name], None, ())
        if outcomes == ["granted"]:
            self.move(job, self.slot_bytes)
            self.end(job, ())
        self.finish(job)
        if outcomes != ["granted"]:
            return told(2, outcome=outcomes[0])
        return told(4, outcome="hit", data=job.rows[name], tier="host")

    def residency_reset(self, request: Request) -> Result:
        """``reset_cache``; then the worker is made to end its jobs, before any chunk is given away again."""
        with self.manager.lock:
            self.manager.reset_cache()
        events = [{"txn": txn, "event": "copied"} for txn, job in self.jobs.items() if not job.over]
        for job in self.jobs.values():
            if not job.over:
                self.move(job, self.slot_bytes)
                job.over = True
        with self.manager.lock:
            self.manager.on_reset_flushed()
        return told(2, events=events)

    # --- transactions -----------------------------------------------------------------------------------------------

    def residency_reserve(self, request: Request) -> Result:
        """``prepare_store``, or ``prepare_load`` of the keys that a look-up hits."""
        job, outcomes = self.begin(request["mode"], request["keys"], request["owner"], request.get("data", ()))
        grants = [
            {"outcome": outcome, **({"slot": job.chunks[name], "tier": "host"} if name in job.chunks else {})}
            for name, outcome in zip(job.names, outcomes, strict=True)
        ]
        if not job.chunks:
            return told(len(grants), txn=None, grants=grants)
        txn = f"t{next(self.numbers)}"
        self.jobs[txn] = job
        return told(1 + len(grants), txn=txn, grants=grants)

    def residency_copy(self, request: Request) -> Result:
        """The worker moves bytes; the manager has no part in it but the chunk that it named."""
        job = self.job(request)
        moved = self.move(job, request.get("bytes", self.slot_bytes))
        if job.mode == "store":
            return told(1, bytes=moved)
        return told(1, bytes=moved, data=[job.rows.get(name) for name in job.names])

    def residency_complete(self, request: Request) -> Result:
        """``complete_store`` by its success, key by key, or ``complete_load``."""
        job = self.job(request)
        job.over = True
        calls, changed = self.end(job, request.get("failed", ()))
        return told(calls, outcome="done" if changed else "empty")

    # --- what the ops share -----------------------------------------------------------------------------------------

    def context(self, owner: str | None) -> ReqContext:
        """vLLM's request of an owner; one of its own where nobody owns it."""
        if owner is None or self.request_for_each == "transaction":
            owner = f"{owner or ''}/{next(self.numbers)}"
        if owner not in self.contexts:
            self.contexts[owner] = ReqContext(req_id=owner)
            self.manager.on_new_request(self.contexts[owner])
        return self.contexts[owner]

    def finish(self, job: Job) -> None:
        """The request of a job that nobody owns is finished."""
        with self.manager.lock:
            self.manager.on_request_finished(job.context)

    def asked(self, names: Sequence[str], context: ReqContext) -> list[LookupResult]:
        """Look-ups of one step."""
        return [self.manager.lookup(key_of(name), context) for name in names]

    def begin(self, mode: str, names: Sequence[str], owner: str | None, data: Sequence[Array]) -> tuple[Job, list[str]]:
        """Reserve chunks for a store or pin those of a load; the outcome of each key."""
        with self.manager.lock:
            job = Job(mode, self.context(owner), list(names))
            return job, self.pinned(job) if mode == "load" else self.prepared(job, data)

    def prepared(self, job: Job, data: Sequence[Array]) -> list[str]:
        """What ``prepare_store`` gives each key."""
        prepared = self.offered([key_of(name) for name in job.names], job.context)
        if prepared is None:
            return ["refused"] * len(job.names)
        chunks = dict(zip(prepared.keys_to_store, map(int, prepared.store_spec.block_ids), strict=True))
        outcomes = []
        for name, rows in zip(job.names, data, strict=True):
            if key_of(name) in chunks:
                job.chunks[name], job.rows[name] = chunks[key_of(name)], np.array(rows)
                outcomes.append("granted")
            else:
                found = self.manager.lookup(key_of(name), job.context)
                outcomes.append("resident" if found is LookupResult.HIT else "pending")
        return outcomes

    def offered(self, keys: list[OffloadKey], context: ReqContext) -> PrepareStoreOutput | None:
        """``None`` when the store is refused as a whole."""
        prepared: PrepareStoreOutput | None = self.manager.prepare_store(keys, context)
        return prepared

    def pinned(self, job: Job) -> list[str]:
        """Look-ups, and ``prepare_load`` of what they hit."""
        found = self.asked(job.names, job.context)
        ready = [name for name, one in zip(job.names, found, strict=True) if one is LookupResult.HIT]
        if ready:
            spec = self.manager.prepare_load([key_of(name) for name in ready], job.context)
            job.chunks = dict(zip(ready, map(int, spec.block_ids), strict=True))
            job.rows = {name: np.zeros(self.slot_bytes, np.uint8) for name in ready}
        states = [STATES.get(one, "pending") for one in found]
        return ["granted" if state == "ready" else state for state in states]

    def move(self, job: Job, count: int) -> int:
        """The next bytes of each key, to or from its chunk."""
        start: int = job.copied
        stop = min(start + count, int(self.slot_bytes))
        for name, chunk in job.chunks.items():
            host, device = self.memory[chunk], job.rows[name]
            if job.mode == "store":
                host[start:stop] = device[start:stop]
            else:
                device[start:stop] = host[start:stop]
        job.copied = stop
        return (stop - start) * len(job.chunks)

    def end(self, job: Job, failed: Iterable[str]) -> tuple[int, bool]:
        """Report to the manager; how many calls it took, and whether the manager changed anything."""
        bad = [key_of(name) for name in job.chunks if name in failed]
        good = [key_of(name) for name in job.chunks if name not in failed]
        with self.manager.lock:
            if job.mode == "load":
                asserted(lambda: self.manager.complete_load(good + bad, job.context))
                return 1, True
            list(self.manager.take_events())
            calls = self.stored(job, good, bad)
            return calls, bool(list(self.manager.take_events()))

    def stored(self, job: Job, good: list[OffloadKey], bad: list[OffloadKey]) -> int:
        """``complete_store`` of what arrived and of what did not; how many calls."""
        if good:
            asserted(lambda: self.manager.complete_store(good, job.context))
        if bad:
            asserted(lambda: self.manager.complete_store(bad, job.context, success=False))
        return bool(good) + bool(bad)

    def job(self, request: Request) -> Job:
        """The job of a handle, over or not; one that never was has no keys to tell the manager of."""
        found = self.jobs.get(request["txn"])
        if found is None:
            raise Rejected("UNKNOWN_TRANSACTION", "vLLM's managers know transfers by their keys, and this names none")
        return found


class Arc(Adapter):
    """``CPUOffloadingManager``, ARC."""

    engine = EngineInfo(
        name="vLLM CPU offloading manager (ARC)",
        version=version("vllm"),
        homepage=HOMEPAGE,
        notes=Adapter.engine.notes.replace("LRU", "ARC"),
    )
    policy: ClassVar[str] = "arc"


class EachRequest(Adapter):
    """LRU, and a request of vLLM for each transaction."""

    engine = EngineInfo(
        name="vLLM CPU offloading manager (a request for each transaction)",
        version=version("vllm"),
        homepage=HOMEPAGE,
        notes=f"{Adapter.engine.notes} Each transaction has a request of its own.",
    )
    request_for_each: ClassVar[str] = "transaction"


class FileTier(Adapter):
    """``TieringOffloadingManager``: host memory, and files to which each stored chunk cascades."""

    engine = EngineInfo(
        name="vLLM tiering manager with its file tier",
        version=version("vllm"),
        homepage=HOMEPAGE,
        notes="TieringOffloadingManager over SharedOffloadRegion and FileSystemTierManager, as TieringOffloadingSpec "
        "builds them; the adapter plays the connector and the worker, and steps until look-ups are answered. A look-up "
        "that hits a file promotes it into host memory, which may evict others.",
    )
    capabilities: ClassVar[Mapping[str, Any]] = {
        **Adapter.capabilities,
        "residency.secondary": True,
        "residency.async": True,
        "residency.job_failure": "job",
        "residency.opaque_keys": False,
    }

    def open(self) -> None:
        """An empty directory."""
        self.teardown()
        super().open()
        self.root = tempfile.mkdtemp(prefix="kvassay-vllm-")

    def teardown(self) -> None:
        """End the tier's threads, give the shared memory back, remove the files."""
        if getattr(self, "manager", None) is not None:
            self.memory = np.zeros((0, 0), np.uint8)
            self.manager.shutdown()
            self.manager = None
        shutil.rmtree(getattr(self, "root", ""), ignore_errors=True)

    def residency_open(self, request: Request) -> Result:
        """Chunks are whole pages, of which the rows fill the beginning."""
        self.slot_bytes = request["slot_bytes"]
        page = TieringOffloadingSpec.BLOCK_SIZE_ALIGNMENT
        chunk_bytes = -(-self.slot_bytes // page) * page
        config = offloading_config(
            chunk_bytes,
            block=16,
            model="model",
            dtype="float16",
            enable_kv_cache_events=True,
            extra_config={
                "cpu_bytes_to_use": request["slots"] * chunk_bytes,
                "secondary_tiers": [{"type": "fs", "root_dir": self.root, "n_read_threads": 1, "n_write_threads": 1}],
            },
            engine_id=f"kvassay-{Path(self.root).name}",
        )
        self.manager = TieringOffloadingSpec(config).get_manager()
        self.memory = np.asarray(self.manager.primary_tier.get_kv_memoryview()).view(np.uint8)
        return told(1, slots=len(self.memory), slot_bytes=self.slot_bytes)

    def asked(self, names: Sequence[str], context: ReqContext) -> list[LookupResult]:
        """Steps pass until the tier has answered and what it found is promoted; all hits are of the last step."""
        for _ in range(PATIENCE):
            found = super().asked(names, context)
            waits = LookupResult.HIT_PENDING in found and self.manager.has_pending_work()
            promotes = bool(self.manager._pending_load_submissions)
            if LookupResult.RETRY not in found and not waits and not promotes:
                break
            self.stepped()
            time.sleep(0.0005)
        return found

    def offered(self, keys: list[OffloadKey], context: ReqContext) -> PrepareStoreOutput | None:
        """What found no room is offered again at each step, as long as cascades hold chunks."""
        while True:
            prepared: PrepareStoreOutput | None = self.manager.prepare_store(keys, context)
            if prepared is not None or not self.stepped():
                return prepared
            time.sleep(0.0005)

    def stepped(self) -> bool:
        """The end of a scheduler's step; whether the tiers have work in flight."""
        self.manager.on_schedule_end(ScheduleEndContext(new_req_ids=(), preempted_req_ids=()))
        return bool(self.manager.has_pending_work())

    def stored(self, job: Job, good: list[OffloadKey], bad: list[OffloadKey]) -> int:
        """The tiering manager takes one completion for each store; steps pass until its cascade is in the files."""
        asserted(lambda: self.manager.complete_store(good + bad, job.context, success=not bad))
        while self.stepped():
            time.sleep(0.0005)
        return 1

    def control_inject(self, request: Request) -> Result:
        """The file of a key is damaged; a chunk in host memory, which a read would use, can only change."""
        name, fault = request["key"], request["fault"]
        with self.manager.lock:
            for tier in self.manager.secondary_tiers:
                tier.drain_jobs()
            self.stepped()
            primary, context, keys = self.manager.primary_tier, ReqContext("inject"), [key_of(name)]
            if primary.lookup(keys[0], context) is LookupResult.HIT:
                if fault != "corrupt":
                    return {"damaged": False}
                spec = primary.prepare_read(keys, context)
                self.memory[int(spec.block_ids[0]), 0] ^= 1
                primary.complete_read(keys, context)
                return {"damaged": True}
        path = Path(self.manager.secondary_tiers[0].file_mapper.get_file_name(key_of(name)))
        if not path.exists():
            return {"damaged": False}
        rows = path.read_bytes()
        if fault == "evict":
            path.unlink()
        elif fault == "corrupt":
            path.write_bytes(bytes([rows[0] ^ 1]) + rows[1:])
        else:
            path.write_bytes(b"" if fault == "drop" else rows[: len(rows) // 2])
        return {"damaged": True}


def key_of(name: str) -> OffloadKey:
    """A key of one cache group, whose block hash is the name."""
    return make_offload_key(name.encode(), 0)


def asserted(call: Callable[[], None]) -> None:
    """vLLM's managers answer an illegal call by an assertion or by nothing."""
    try:
        call()
    except AssertionError as refusal:
        raise Rejected(None, str(refusal)) from refusal
