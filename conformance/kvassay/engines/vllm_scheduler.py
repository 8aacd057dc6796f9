"""vLLM's scheduler with its offloading connector: composed mode, the adapter plays worker and model runner.

A key is a block of tokens, and each key of a transaction is a request of one block and one token more. The scheduler
decides what is computed, stored, loaded and waited for; both halves of ``OffloadingConnector`` are vLLM's own, and only
the mover of bytes below them, which wants CUDA, is the adapter's. It moves as late as it may: when ``residency.copy``
asks for it, or when vLLM waits for a job. The device is memory whose blocks the adapter writes when the scheduler says
that their tokens are computed, so that a block that is given away too early shows as wrong rows.

- :class:`Adapter`: without prefix caching on the device, so that every read comes from the host.
- :class:`PrefixCaching`: with it, as vLLM runs by default. A store's source can then be read before the store is over.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, ClassVar

import numpy as np
from vllm.sampling_params import SamplingParams
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.kv_offload.base import (
    GPULoadStoreSpec,
    LoadStoreSpec,
    LookupResult,
    OffloadingWorker,
    OffloadKey,
    ReqContext,
    TransferResult,
    make_offload_key,
)
from vllm.v1.request import Request as Prompt
from vllm.v1.request import RequestStatus

from ..adapters.base import EngineAdapter, EngineInfo, Rejected
from ..core.tensors import Array
from ._vllm_engine import BLOCK, Engine, attention, first_block, fresh_name, hasher, temporary_model

ADAPTERS = {"vllm-scheduler": "Adapter", "vllm-scheduler-prefix-caching": "PrefixCaching"}
"""Names of the adapters here, and their classes; read without an import."""

Request = Mapping[str, Any]
Result = dict[str, Any]

HOMEPAGE = "https://github.com/vllm-project/vllm"
DEVICE_BLOCKS = 9
"""One of them is vLLM's null block; a request takes two."""
PATIENCE = 8
"""Steps after which a request that nobody else's transfer holds up must have run."""
FIRST_OTHER_TOKEN = 1 << 16
"""Tokens of keys are less."""
TAIL = 0xEE
"""Rows of tokens that belong to no key."""


@dataclass
class Move:
    """A transfer job, as the mover got it."""

    mode: str
    device: int
    """Block."""
    host: int
    """Chunk."""
    copied: int = 0
    over: bool = False
    """To be reported, or reported."""
    told: bool = False
    """Reported."""
    forced: bool = False
    """vLLM waited for it."""


class Mover(OffloadingWorker):  # type: ignore[misc]
    """Moves a block when it is told to, and the rest of it when vLLM waits."""

    def __init__(self, device: Array, host: Array) -> None:
        self.device, self.host = device, host
        self.moves: dict[int, Move] = {}
        self.together: dict[int, set[int]] = {}
        """Job to the jobs of its transaction, which are waited for at once."""

    def submit_store(self, job_id: int, src_spec: GPULoadStoreSpec, dst_spec: LoadStoreSpec) -> bool:
        """A store begins."""
        (device,), (host,) = src_spec.block_ids, dst_spec.block_ids
        self.moves[job_id] = Move("store", int(device), int(host))
        return True

    def submit_load(
        self, job_id: int, src_spec: LoadStoreSpec, dst_spec: GPULoadStoreSpec, expedited: bool = False
    ) -> bool:
        """A load begins."""
        (host,), (device,) = src_spec.block_ids, dst_spec.block_ids
        self.moves[job_id] = Move("load", int(device), int(host))
        return True

    def get_finished(self) -> list[TransferResult]:
        """Jobs that are over, once."""
        done = [job for job, move in self.moves.items() if move.over and not move.told]
        for job in done:
            self.moves[job].told = True
        return [TransferResult(job, success=True) for job in done]

    def wait(self, job_ids: set[int]) -> None:
        """vLLM does not go on before these are over."""
        for job in {other for one in job_ids for other in self.together.get(one, {one})}:
            move = self.moves.get(job)
            if move is not None and not move.over:
                self.advance(move)
                move.over = move.forced = True

    def advance(self, move: Move, count: int | None = None) -> int:
        """Move bytes from where the last ones ended."""
        start, end = move.copied, int(self.host.shape[1])
        stop = end if count is None else min(start + count, end)
        device: Array = self.device[move.device]
        host: Array = self.host[move.host]
        if move.mode == "store":
            host[start:stop] = device[start:stop]
        else:
            device[start:stop] = host[start:stop]
        move.copied = stop
        return stop - start


@dataclass
class Piece:
    """One key of a transaction."""

    name: str
    prompt: Prompt
    job: int | None = None
    """Its transfer."""
    slot: int | None = None
    """The chunk of that."""
    ran: bool = False
    settled: bool = False
    """A step has passed since it ran, in which vLLM offers its block once more if there was no room."""
    rows: Array | None = None
    """What its request read at its first block when it ran."""
    reused: int = 0
    """Tokens that it need not compute."""
    known: bool = False
    """vLLM took the report of its job."""


@dataclass
class Transaction:
    """The keys of one reserve that wait for a transfer."""

    mode: str
    pieces: list[Piece | None]
    """In the order of the keys; nothing for those that wait for none."""
    told: bool = False
    """The adapter has said that vLLM forced it."""
    ended: bool = False
    """It was completed once; what comes then is reported once more."""

    @property
    def waiting(self) -> list[Piece]:
        """The others."""
        return [piece for piece in self.pieces if piece is not None]


class Adapter(EngineAdapter):
    """Scheduler and ``OffloadingConnector``; no prefix caching on the device."""

    engine = EngineInfo(
        name="vLLM scheduler with offloading connector",
        version=version("vllm"),
        homepage=HOMEPAGE,
        notes="Scheduler, OffloadingConnector (both roles) and CPUOffloadingManager in composed mode, without prefix "
        f"caching on the device, which has {DEVICE_BLOCKS - 1} blocks. A key is one block of {BLOCK} tokens; the "
        "adapter plays the model runner and the mover of bytes. Look-ups are peeks at the manager. reset is "
        "reset_prefix_cache(reset_connector=True). An aborted load is cancelled; a store goes on without its request.",
    )
    profiles: ClassVar[frozenset[str] | None] = frozenset({"store", "transaction"})
    capabilities: ClassVar[Mapping[str, Any]] = {
        "residency.mode": "composed",
        "residency.txn_ids": True,
        "residency.leases": True,
        "residency.cancel_load": True,
        "residency.owns_source": True,
        "residency.owns_destination": True,
        "residency.exact_slots": True,
        "residency.evicts": True,
        "residency.content_addressed": True,
    }
    caching: ClassVar[bool] = False
    device_blocks: int = DEVICE_BLOCKS

    # --- the engine -------------------------------------------------------------------------------------------------

    def setup(self) -> None:
        """What every engine needs: a model's configuration and the hash of blocks."""
        self.model = temporary_model()
        self.hasher = hasher()

    def open(self) -> None:
        """Forget the case before."""
        self.transactions: dict[str, Transaction] = {}
        self.pieces: dict[str, Piece] = {}
        """Request id to its piece, until its request has run and its jobs are over."""
        self.contents: dict[str, Array] = {}
        """Key to what the model computes for its tokens."""
        self.unasked: set[int] = set()
        """Jobs that vLLM began on its own, such as a second store after a reset; the mover does them at once."""

    def residency_open(self, request: Request) -> Result:
        """Slots are chunks of host memory."""
        slots, self.slot_bytes = request["slots"], request["slot_bytes"]
        extra = {"cpu_bytes_to_use": slots * -(-attention().page_size_bytes // 4096) * 4096}
        self.run = Engine(self.model, "OffloadingConnector", extra, blocks=self.device_blocks, caching=self.caching)
        self.device: Array = np.zeros((self.device_blocks, self.slot_bytes), np.uint8)
        self.offload = self.run.connector.connector_scheduler
        self.mover = Mover(self.device, np.zeros((slots, self.slot_bytes), np.uint8))
        self.run.own.worker.connector_worker.worker = self.mover
        self.run.calls += 1
        return self.told(slots=self.offload.manager._num_chunks, slot_bytes=self.slot_bytes)

    # --- single calls -----------------------------------------------------------------------------------------------

    def residency_put(self, request: Request) -> Result:
        """A request is computed, and its block is stored."""
        piece = self.asked(request["key"], "put", request["data"])
        if not self.ran(piece):
            return self.told(outcome="refused")
        return self.told(outcome="resident" if piece.reused else "stored")

    def residency_get(self, request: Request) -> Result:
        """A request whose block must not be computed."""
        state, tier = self.peek(request["key"])
        if state != "ready":
            return self.told(outcome=state)
        piece = self.asked(request["key"], "get")
        if not self.ran(piece):
            return self.told(outcome="pending")
        if not piece.reused:
            return self.told(outcome="miss")
        return self.told(outcome="hit", data=piece.rows, tier=tier)

    def residency_lookup(self, request: Request) -> Result:
        """Peeks at the block pool and at the manager."""
        found = [self.peek(key) for key in request["keys"]]
        return self.told(states=[state for state, _ in found], tiers=[tier for _, tier in found])

    def residency_reset(self, request: Request) -> Result:
        """``reset_prefix_cache`` with its connector; vLLM says whether all of it was done."""
        self.run.calls += 1
        if not self.run.scheduler.reset_prefix_cache(reset_connector=True):
            raise Rejected("BUSY", "reset_prefix_cache returned False")
        return self.told()

    # --- transactions -----------------------------------------------------------------------------------------------

    def residency_reserve(self, request: Request) -> Result:
        """A request for each key, all in one step."""
        mode, owner, names = request["mode"], request["owner"], request["keys"]
        rows = request.get("data", [None] * len(names))
        if mode == "load" and self.caching:
            self.press()
        found = [self.peek(name) if mode == "load" else ("", None) for name in names]
        pieces = [
            None if state in ("miss", "pending") else self.asked(name, owner, data)
            for name, data, (state, _) in zip(names, rows, found, strict=True)
        ]
        self.step()
        if any(piece is not None and piece.ran and piece.job is None for piece in pieces):
            self.step()
        grants: list[Result] = []
        kept: list[Piece | None] = []
        for piece, (state, _) in zip(pieces, found, strict=True):
            grant = {"outcome": state} if piece is None else self.grant(mode, piece)
            grants.append(grant)
            kept.append(piece if grant["outcome"] in ("granted", "joined") else None)
        if not any(kept):
            return self.told(txn=None, grants=grants)
        txn = fresh_name("t")
        self.transactions[txn] = Transaction(mode, kept)
        jobs = {piece.job for piece in kept if piece is not None and piece.job is not None}
        self.mover.together |= dict.fromkeys(jobs, jobs)
        return self.told(txn=txn, grants=grants)

    def grant(self, mode: str, piece: Piece) -> Result:
        """What one step made of a request."""
        if piece.job is not None:
            status = self.run.scheduler.requests.get(piece.prompt.request_id)
            loading = status is not None and status.status is RequestStatus.WAITING_FOR_REMOTE_KVS
            if loading == (mode == "load"):
                return {"outcome": "granted", "slot": piece.slot, "tier": "host"}
        if mode == "load" and not piece.ran and self.led(piece):
            return {"outcome": "joined"}
        if not self.ran(piece):
            return {"outcome": "pending" if self.key(piece.prompt) in self.loading else "refused"}
        state, tier = self.peek(piece.name)
        if state == "ready" and (mode == "load" or tier == "host" or piece.reused):
            return {"outcome": "resident", **({} if tier is None else {"tier": tier})}
        return {"outcome": "pending" if state == "pending" else "refused"}

    @property
    def loading(self) -> set[OffloadKey]:
        """Keys of which vLLM lets no second load begin."""
        return self.offload._chunks_being_loaded or set()

    def led(self, piece: Piece) -> bool:
        """Whether a load that nobody cancelled is what the request waits for; behind a dead one it comes again."""
        live = self.run.scheduler.requests
        leaders = (one for one in self.pieces.values() if one.name == piece.name and one.job is not None)
        return self.key(piece.prompt) in self.loading and any(
            one.prompt.request_id in live and not live[one.prompt.request_id].is_finished() for one in leaders
        )

    def residency_copy(self, request: Request) -> Result:
        """The mover moves; a store that vLLM has not given it yet comes with the next step."""
        transaction = self.transaction(request)
        self.step()
        moves = [self.mover.moves.get(-1 if piece.job is None else piece.job) for piece in transaction.waiting]
        moved = sum(self.mover.advance(move, request.get("bytes")) for move in moves if move is not None)
        if transaction.mode == "store":
            return self.told(bytes=moved)
        return self.told(bytes=moved, data=[self.destination(piece) for piece in transaction.pieces])

    def destination(self, piece: Piece | None) -> Array | None:
        """What stands where a load's rows go, or what its request read there."""
        if piece is None or piece.ran:
            return None if piece is None else piece.rows
        return None if piece.job is None else self.device[self.mover.moves[piece.job].device].copy()

    def residency_complete(self, request: Request) -> Result:
        """The mover reports, and two steps take the report and what follows from it."""
        transaction = self.transaction(request)
        self.step()
        before = [piece for piece in transaction.waiting if piece.known or (piece.ran and piece.job is None)]
        for piece in transaction.waiting:
            if piece.job in self.mover.moves:
                move = self.mover.moves[piece.job]
                move.over, move.told = True, move.told and not transaction.ended
        try:
            self.step()
        except KeyError as refusal:
            raise Rejected("UNKNOWN_TRANSACTION", f"the scheduler has no job {refusal}") from refusal
        self.step()
        taken = [piece for piece in transaction.waiting if piece.known or (piece.ran and piece.job is None)]
        done = len(taken) > (len(before) if transaction.ended else 0)
        transaction.ended = True
        return self.told(outcome="done" if done else "flushed")

    def residency_cancel(self, request: Request) -> Result:
        """The client hangs up."""
        transaction = self.transaction(request)
        names = [piece.prompt.request_id for piece in transaction.waiting]
        self.run.calls += 1
        ended = self.run.scheduler.finish_requests(names, RequestStatus.FINISHED_ABORTED)
        return self.told(outcome="dead" if ended else "detached")

    # --- the adapter's own ------------------------------------------------------------------------------------------

    def told(self, **members: Any) -> Result:
        """A reply, with the calls that it took and the transactions that vLLM did not wait for their caller to end."""
        events = []
        for txn, transaction in self.transactions.items():
            jobs = [self.mover.moves[piece.job] for piece in transaction.waiting if piece.job in self.mover.moves]
            if not transaction.told and any(job.forced for job in jobs):
                transaction.told = True
                events += [{"txn": txn, "event": "copied"}, {"txn": txn, "event": "completed"}]
        calls, self.run.calls = self.run.calls, 0
        return {**members, "engine_calls": calls, **({"events": events} if events else {})}

    def transaction(self, request: Request) -> Transaction:
        """The requests and jobs of a handle, over or not."""
        found = self.transactions.get(request["txn"])
        if found is None:
            raise Rejected("UNKNOWN_TRANSACTION", "vLLM numbers its jobs, and this names none")
        return found

    def prompt(self, name: str, owner: str) -> Prompt:
        """The tokens of a key, and one more that is never reused."""
        digest = hashlib.sha256(name.encode()).digest()
        tokens = [int.from_bytes(digest[2 * index : 2 * index + 2], "big") for index in range(BLOCK)]
        return Prompt(
            request_id=fresh_name(owner),
            prompt_token_ids=[*tokens, 0],
            sampling_params=SamplingParams(max_tokens=1),
            pooling_params=None,
            block_hasher=self.hasher,
        )

    def key(self, prompt: Prompt) -> OffloadKey:
        """The manager's key of the block."""
        return make_offload_key(prompt.block_hashes[0], 0)

    def asked(self, name: str, owner: str, rows: Array | None = None) -> Piece:
        """A client sends the prompt of a key."""
        if rows is not None:
            self.contents[name] = np.array(rows)
        piece = Piece(name, self.prompt(name, owner))
        self.pieces[piece.prompt.request_id] = piece
        self.run.add(piece.prompt)
        return piece

    def ran(self, piece: Piece) -> bool:
        """Steps pass, and the piece's own transfers with them, until its request has run and they are over."""
        for _ in range(PATIENCE):
            if piece.job is not None and piece.job in self.mover.moves:
                move = self.mover.moves[piece.job]
                self.mover.advance(move)
                move.over = True
            if piece.settled and (piece.job is None or self.mover.moves.get(piece.job, Move("", 0, 0)).told):
                return True
            self.step()
        if not piece.ran:
            self.run.calls += 1
            self.run.scheduler.finish_requests([piece.prompt.request_id], RequestStatus.FINISHED_ABORTED)
        return piece.ran

    def peek(self, name: str) -> tuple[str, str | None]:
        """What a request would find, and in which tier, when vLLM has nothing left to do that nobody asked for."""
        for _ in range(PATIENCE if self.unasked else 0):
            self.step()
        self.run.calls += 1
        prompt = self.prompt(name, "peek")
        if self.caching and self.run.scheduler.kv_cache_manager.get_computed_blocks(prompt)[1]:
            return "ready", "device"
        with self.offload.manager.lock:
            found = self.offload.manager.lookup(self.key(prompt), ReqContext("peek"))
        if found is LookupResult.HIT:
            return "ready", "host"
        return ("miss" if found is LookupResult.MISS else "pending"), None

    def press(self) -> None:
        """Another request takes every free block of the device and is not offloaded, so that loads come from below."""
        free = self.run.scheduler.kv_cache_manager.block_pool.get_num_free_blocks()
        if free:
            number = self.run.calls = self.run.calls + 1
            prompt = Prompt(
                request_id=fresh_name("press"),
                prompt_token_ids=[FIRST_OTHER_TOKEN + number] * (free * BLOCK),
                sampling_params=SamplingParams(
                    max_tokens=1, extra_args={"kv_transfer_params": {"max_offload_tokens": 0}}
                ),
                pooling_params=None,
                block_hasher=self.hasher,
            )
            self.run.add(prompt)
            self.step()

    def step(self) -> None:
        """One step of the engine."""
        for job in self.unasked & set(self.mover.moves):
            self.mover.advance(self.mover.moves[job])
            self.mover.moves[job].over = True
            self.unasked.remove(job)
        before, ran = set(self.offload._jobs), [piece for piece in self.pieces.values() if piece.ran]
        self.run.step(self.compute)
        for piece in ran:
            piece.settled = True
        taken = before - set(self.offload._jobs)
        for piece in self.pieces.values():
            piece.known = piece.known or piece.job in taken

    def compute(self, output: SchedulerOutput) -> None:
        """Write what is computed, read what is not."""
        metadata = output.kv_connector_metadata
        hosts = {job: one.src_spec for job, one in metadata.load_jobs.items()}
        hosts |= {job: one.dst_spec for job, one in metadata.store_jobs.items()}
        for job, transfer in (metadata.load_jobs | metadata.store_jobs).items():
            owner = self.pieces[transfer.req_id]
            if owner.job is None:
                owner.job, owner.slot = job, int(hosts[job].block_ids[0])
            else:
                self.unasked.add(job)
        for name, blocks, reused in first_block(output):
            piece = self.pieces.get(name)
            if piece is None:
                self.device[blocks] = TAIL
                continue
            piece.ran, piece.reused = True, reused
            if not reused:
                self.device[blocks[0]] = self.contents[piece.name]
            piece.rows = self.device[blocks[0]].copy()
            self.device[blocks[1:]] = TAIL


class PrefixCaching(Adapter):
    """The same with prefix caching on the device."""

    engine = EngineInfo(
        name="vLLM scheduler with offloading connector and prefix caching",
        version=version("vllm"),
        homepage=HOMEPAGE,
        notes=Adapter.engine.notes.replace("without prefix caching", "with prefix caching"),
    )
    capabilities: ClassVar[Mapping[str, Any]] = {
        **Adapter.capabilities,
        "residency.exact_slots": False,
        "residency.joins": True,
        "residency.reads_source": True,
    }
    caching: ClassVar[bool] = True
