"""Mooncake's store over loopback: a master of its own, and one client for each owner or one for all.

A transaction is a put session or a get session of Mooncake, key by key: start, ranged copies through a registered
buffer, end or revoke. The adapter plays the worker and forwards every call, whether the session is over or not; what a
late call does is the store's own answer. Clocks are the wall's: ``control.advance_clock`` sleeps.

- :class:`Adapter`: ``put``, which leaves a key that is there as it is; every owner has a client of its own.
- :class:`Upsert`: ``upsert``, which replaces.
- :class:`OneClient`: all owners share a client, as requests in one process do.
"""

# ruff: noqa: E402 (the library below must be loaded before Mooncake)

from __future__ import annotations

import ctypes
import itertools
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar

import mooncake
import numpy as np
import nvidia.cuda_runtime

ctypes.CDLL(str(Path(nvidia.cuda_runtime.__path__[0]) / "lib" / "libcudart.so.12"), ctypes.RTLD_GLOBAL)
"""Mooncake's build without CUDA is linked against the CUDA runtime all the same, and makes no use of it here."""

from mooncake.store import MooncakeDistributedStore, ReplicateConfig

from ..adapters.base import EngineAdapter, EngineInfo, Rejected
from ..core.tensors import Array
from ._replies import told
from .wall_clock import WallClock

ADAPTERS = {"mooncake": "Adapter", "mooncake-upsert": "Upsert", "mooncake-one-client": "OneClient"}
"""Names of the adapters here, and their classes; read without an import."""

Request = Mapping[str, Any]
Result = dict[str, Any]

HOST = "127.0.0.1"
SEGMENT_BYTES = 16 << 20
CLIENTS = 3
"""Clients that owners are dealt to in turn."""
TTL_S = 1
"""``-put_start_discard_timeout_sec``, then another writer may start, and after twice that the space is given away; also
``-default_kv_lease_ttl``, for which a read protects a key. Mooncake counts the former in whole seconds."""
REASONS = {-600: "UNKNOWN_TRANSACTION", -601: "TRANSACTION_DEAD", -704: "UNKNOWN_TRANSACTION", -706: "BUSY"}
"""Mooncake's codes: invalid parameters (no such session), illegal client, no such object, leased."""
NO_SPACE, NOT_READY, THERE, LEASED = -200, -703, -705, -706


@dataclass
class Session:
    """A transaction: the keys of one reserve that a client holds a put or get session of."""

    client: int
    mode: str
    names: list[str]
    """Keys as the store knows them, in the order of the grants."""
    granted: list[bool]
    rows: list[Array]
    """Of a put, the source; of a get, the destination."""
    copied: int = 0


class Adapter(EngineAdapter):
    """``put`` and sessions; a client for each owner."""

    engine = EngineInfo(
        name="Mooncake store",
        version=version("mooncake-transfer-engine-non-cuda"),
        homepage="https://github.com/kvcache-ai/Mooncake",
        language="C++",
        notes=(
            f"Master and {CLIENTS} clients over TCP loopback; read leases of {TTL_S} s and discarding of "
            f"unfinished puts after {TTL_S} s on the wall clock. A look-up is is_exist, which extends the lease."
        ),
    )
    profiles: ClassVar[frozenset[str] | None] = frozenset({"store", "transaction"})
    capabilities: ClassVar[Mapping[str, Any]] = {
        "residency.mode": "component",
        "residency.expiry_write": True,
        "residency.expiry_read": True,
        "residency.leases": True,
        "residency.lease_lingers": True,
        "residency.cancel": True,
        "residency.cancel_load": True,
        "residency.job_failure": "key",
        "residency.evicts": True,
        "residency.opaque_keys": True,
        "residency.content_addressed": True,
    }
    clients: ClassVar[int] = CLIENTS

    def setup(self) -> None:
        """Start a master and its clients."""
        port, metrics = free_port(), free_port()
        self.log = tempfile.TemporaryFile()  # noqa: SIM115 (closed in teardown)
        options = {
            "rpc_address": HOST,
            "rpc_port": port,
            "metrics_host": HOST,
            "metrics_port": metrics,
            "enable_metric_reporting": "false",
            "default_kv_lease_ttl": 1000 * TTL_S,
            "put_start_discard_timeout_sec": TTL_S,
            "put_start_release_timeout_sec": 2 * TTL_S,
        }
        command = [str(Path(mooncake.__file__).parent / "mooncake_master")]
        command += [f"-{name}={value}" for name, value in options.items()]
        self.master = subprocess.Popen(command, stdout=self.log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        wait_for(port)
        self.stores = [connected(port, 0 if number else SEGMENT_BYTES) for number in range(self.clients)]
        self.cases = itertools.count()

    def teardown(self) -> None:
        """End the clients and the master."""
        for store in self.stores:
            store.close()
        self.master.terminate()
        self.master.wait(10)
        self.log.close()

    def open(self) -> None:
        """Keys of its own for each case; what earlier cases left is revoked and removed."""
        for session in getattr(self, "sessions", {}).values():
            store = self.stores[session.client]
            end = store.batch_put_session_revoke if session.mode == "store" else store.batch_get_session_end
            end(session.names)
        self.stores[0].remove_all(True)
        self.prefix = f"{next(self.cases)}/"
        self.sessions: dict[str, Session] = {}
        self.owners: dict[str, int] = {}
        self.numbers = itertools.count()
        self.slot_bytes = 0

    # --- store ----------------------------------------------------------------------------------------------------

    def residency_open(self, request: Request) -> Result:
        """The segments are mounted already; how many objects fit, the store does not say."""
        self.clock = WallClock(TTL_S, request)
        self.slot_bytes = request["slot_bytes"]
        self.buffers = [registered(store, self.slot_bytes) for store in self.stores]
        return {"slots": None, "slot_bytes": self.slot_bytes, "engine_calls": len(self.stores)}

    def residency_put(self, request: Request) -> Result:
        """``put`` returns 0 also when the key was there and stays: a peek before tells which."""
        name = self.name(request["key"])
        there = self.stores[0].is_exist(name) == 1
        code = self.write(name, request["data"].tobytes())
        if code == 0:
            return told(2, outcome=self.written(there))
        return told(2, outcome="refused")

    def write(self, name: str, rows: bytes) -> int:
        """The store's own write path."""
        return int(self.stores[0].put(name, rows))

    def written(self, there: bool) -> str:
        """What a write that succeeded did."""
        return "resident" if there else "stored"

    def residency_get(self, request: Request) -> Result:
        """``get`` returns no bytes for a miss."""
        rows = self.stores[0].get(self.name(request["key"]))
        return told(1, outcome="hit", data=np.frombuffer(rows, np.uint8)) if rows else told(1, outcome="miss")

    def residency_lookup(self, request: Request) -> Result:
        """``batch_is_exist``."""
        found = self.stores[0].batch_is_exist([self.name(key) for key in request["keys"]])
        return told(1, states=["ready" if one == 1 else "miss" for one in found])

    def residency_remove(self, request: Request) -> Result:
        """``remove``; a key under a read lease stays."""
        outcomes = []
        for key in request["keys"]:
            code = self.stores[0].remove(self.name(key), request.get("force", False))
            outcomes.append("removed" if code == 0 else "leased" if code == LEASED else "absent")
        return told(len(outcomes), outcomes=outcomes)

    def residency_reset(self, request: Request) -> Result:
        """``remove_all`` by force, as after a change of weights."""
        self.stores[0].remove_all(True)
        return told(1)

    # --- transactions ---------------------------------------------------------------------------------------------

    def residency_reserve(self, request: Request) -> Result:
        """A put or get session for each key."""
        client = self.owners.setdefault(request["owner"], len(self.owners) % self.clients)
        store, mode = self.stores[client], request["mode"]
        names = [self.name(key) for key in request["keys"]]
        if mode == "store":
            codes = [store.batch_put_session_start([one], [self.slot_bytes], ReplicateConfig())[0] for one in names]
        else:
            codes = [store.batch_get_session_start([one])[0] for one in names]
        there = [self.stores[0].is_exist(one) == 1 if code else False for one, code in zip(names, codes, strict=True)]
        grants = [{"outcome": outcome(mode, code, known)} for code, known in zip(codes, there, strict=True)]
        granted = [code == 0 for code in codes]
        if not any(granted):
            return told(len(names), txn=None, grants=grants)
        rows = request["data"] if mode == "store" else [np.zeros(self.slot_bytes, np.uint8) for _ in names]
        txn = f"t{next(self.numbers)}"
        self.sessions[txn] = Session(client, mode, names, granted, list(rows))
        return told(len(names), txn=txn, grants=grants)

    def residency_copy(self, request: Request) -> Result:
        """Ranged copies through the client's registered buffer."""
        session = self.session(request)
        store, buffer = self.stores[session.client], self.buffers[session.client]
        start, left = session.copied, self.slot_bytes - session.copied
        size = min(left, request.get("bytes", left))
        moved = 0
        for name, granted, rows in zip(session.names, session.granted, session.rows, strict=True):
            if not granted or not size:
                continue
            if session.mode == "store":
                buffer[:size] = rows[start : start + size]
            move = (
                store.batch_put_from_multi_buffer_ranges
                if session.mode == "store"
                else store.batch_get_into_multi_buffer_ranges
            )
            code = move([name], [[buffer.ctypes.data]], [[size]], [[start]])[0]
            if code < 0:
                raise Rejected(REASONS.get(code), f"{session.mode} of {size} bytes: {code}")
            if session.mode == "load":
                rows[start : start + size] = buffer[:size]
            moved += code
        session.copied += size
        if session.mode == "store":
            return told(len(session.names), bytes=moved)
        data = [rows if granted else None for rows, granted in zip(session.rows, session.granted, strict=True)]
        return told(max(1, len(data)), bytes=moved, data=data)

    def residency_complete(self, request: Request) -> Result:
        """End the sessions; those of failed keys are revoked."""
        session = self.session(request)
        store = self.stores[session.client]
        failed = {self.name(key) for key in request.get("failed", ())}
        codes = []
        for name, granted in zip(session.names, session.granted, strict=True):
            if granted and session.mode == "load":
                codes.append(store.batch_get_session_end([name]))
            elif granted:
                end = store.batch_put_session_revoke if name in failed else store.batch_put_session_end
                codes.append(end([name])[0])
        if any(codes):
            code = next(code for code in codes if code)
            raise Rejected(REASONS.get(code), f"end of the session: {code}")
        return told(len(codes), outcome="done")

    def residency_cancel(self, request: Request) -> Result:
        """Revoke a put; end a get."""
        session = self.session(request)
        store = self.stores[session.client]
        names = [name for name, granted in zip(session.names, session.granted, strict=True) if granted]
        if session.mode == "load":
            store.batch_get_session_end(names)
            return told(1, outcome="dead")
        codes = store.batch_put_session_revoke(names)
        return told(1, outcome="unknown" if any(codes) else "dead")

    def control_advance_clock(self, request: Request) -> Result:
        """Sleep, stretched."""
        return dict(self.clock.advance(request["by_ms"]))

    # --- the adapter's own ----------------------------------------------------------------------------------------

    def name(self, key: str) -> str:
        """The key as the store gets it, behind what keeps cases apart."""
        return self.prefix + key

    def session(self, request: Request) -> Session:
        """The sessions of a transaction, over or not; a handle that never was has none to ask the store about."""
        found = self.sessions.get(request["txn"])
        if found is None:
            raise Rejected("UNKNOWN_TRANSACTION", "Mooncake names sessions by key, and no key belongs to this handle")
        return found


class Upsert(Adapter):
    """``upsert`` in place of ``put``."""

    capabilities: ClassVar[Mapping[str, Any]] = {**Adapter.capabilities, "residency.content_addressed": False}

    def write(self, name: str, rows: bytes) -> int:
        """Replace what is there."""
        return int(self.stores[0].upsert(name, rows))

    def written(self, there: bool) -> str:
        """A new generation."""
        return "replaced" if there else "stored"


class OneClient(Adapter):
    """All owners share a client."""

    clients: ClassVar[int] = 1


def outcome(mode: str, code: int, there: bool) -> str:
    """What the start of a session comes to."""
    if code == 0:
        return "granted"
    if mode == "load":
        return "pending" if code == NOT_READY else "miss"
    if code == NO_SPACE:
        return "refused"
    return "resident" if there else "pending"


def free_port() -> int:
    """A TCP port of the loopback interface that nobody uses now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def wait_for(port: int, seconds: float = 20.0) -> None:
    """Until something listens."""
    end = time.monotonic() + seconds
    while True:
        with socket.socket() as probe:
            if probe.connect_ex((HOST, port)) == 0:
                return
        if time.monotonic() > end:
            raise TimeoutError(f"the master does not listen on port {port} after {seconds:g} s")
        time.sleep(0.05)


def connected(port: int, segment_bytes: int) -> MooncakeDistributedStore:
    """A client that lends the store a segment of so many bytes, or none."""
    store = MooncakeDistributedStore()
    code = store.setup(HOST, "P2PHANDSHAKE", segment_bytes, SEGMENT_BYTES, "tcp", "", f"{HOST}:{port}")
    if code:
        raise RuntimeError(f"the client's setup returned {code}")
    return store


BUFFERS: dict[tuple[int, int], Array] = {}
"""Client and size to its registered buffer, which lives as long as the process."""


def registered(store: MooncakeDistributedStore, size: int) -> Array:
    """Memory that the client may transfer from and to."""
    found = BUFFERS.get((id(store), size))
    if found is None:
        found = np.zeros(size, np.uint8)
        code = store.register_buffer(found.ctypes.data, size)
        if code:
            raise RuntimeError(f"register_buffer returned {code}")
        BUFFERS[id(store), size] = found
    return found
