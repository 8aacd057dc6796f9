"""The jobs of the contract runtime over an adapter of residency: each job is a transaction of one key.

Nothing is decided here: what a reservation gets, what a completion comes to and what a reset leaves is the engine's.
A unit becomes a key by its digest, and its rows follow from that. A reservation that the engine refuses for want of
room is told as a fallback without an action, since such an engine has none.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from ..adapters.base import EngineAdapter
from ..core.tensors import Array

Request = Mapping[str, Any]
Result = dict[str, Any]
UNIT_BYTES = 64
"""What the scripts' requests have, and what a place of the engine holds."""


@dataclass
class Read:
    """A transaction that moves bytes, and the requests that wait for it."""

    requests: list[str] = field(default_factory=list)
    served: bool = False


class OverResidency(EngineAdapter):
    """One engine."""

    inner_class: ClassVar[type[EngineAdapter]]
    profiles: ClassVar[frozenset[str] | None] = frozenset({"runtime-jobs"})
    counts: ClassVar[tuple[str, ...]] = ()
    """Credits that the engine itself limits."""
    joins: ClassVar[bool] = True
    """Whether a load that waits for another's copy holds its destination; if not, it is withdrawn and pending."""

    def setup(self) -> None:
        """The engine's."""
        self.inner: Any = self.inner_class()
        self.inner.setup()

    def teardown(self) -> None:
        """The engine's."""
        self.inner.teardown()

    def open(self) -> None:
        """The engine's."""
        self.inner.open()

    def places(self, capacity: Mapping[str, int]) -> int:
        """How many units the engine gets memory for."""
        return capacity[self.counts[0]] // UNIT_BYTES

    def free(self) -> Result:
        """Credits that the engine calls free, if it does."""
        return {}

    def told(self, reply: Result, **members: Any) -> Result:
        """A reply with the calls that it took, and the transfers that the engine waited for."""
        ended = [one["txn"] for one in reply.get("events", ()) if one["event"] == "copied"]
        for read in (self.reads[name] for name in ended if name in self.reads):
            for name in read.requests:
                del self.transactions[name]
            read.requests, read.served = [], True
        told = {"ended": ended} if ended else {}
        return {**members, **told, "free": self.free(), "engine_calls": reply.get("engine_calls", 1)}

    def runtime_open(self, request: Request) -> Result:
        """Memory for the units."""
        reply = self.begin(self.places(request["capacity"]))
        self.epoch, self.started = 1, 0
        self.latest: dict[str, str] = {}
        """Request to the last transaction that it had."""
        self.transactions: dict[str, str] = {}
        """Request to its transaction."""
        self.reads: dict[str, Read] = {}
        return self.told(reply, epoch=self.epoch, counts=list(self.counts))

    def begin(self, places: int) -> Result:
        """Open the engine."""
        opened: Result = self.inner.residency_open({"slots": places, "slot_bytes": UNIT_BYTES})
        return opened

    def runtime_inspect(self, request: Request) -> Result:
        """A look."""
        return {"epoch": self.epoch, "free": self.free(), "engine_calls": 0}

    def runtime_commit(self, request: Request) -> Result:
        """A put."""
        name = key(request["unit"])
        reply = self.inner.residency_put({"key": name, "data": rows(name)})
        outcomes = {"stored": "committed", "replaced": "committed"}
        return self.told(reply, outcome=outcomes.get(reply["outcome"], reply["outcome"]))

    def runtime_reserve(self, request: Request) -> Result:
        """A transaction of one key."""
        name, mode = key(request["unit"]), request["direction"]
        data = {"data": [rows(name)]} if mode == "store" else {}
        asked = {"mode": mode, "keys": [name], "owner": request["request"], **data}
        reply = self.inner.residency_reserve(asked)
        outcome = reply["grants"][0]["outcome"]
        if outcome == "refused":
            return self.told(reply, outcome="fallback", reason="CREDIT_PRESSURE")
        if outcome == "joined" and not self.joins:
            self.inner.residency_cancel({"txn": reply["txn"]})
            outcome = "pending"
        if outcome not in ("granted", "joined"):
            return self.told(reply, outcome=outcome)
        self.latest[request["request"]] = self.transactions[request["request"]] = reply["txn"]
        read = reply["txn"]
        if outcome == "joined":
            read = next((one for one, it in self.reads.items() if it.requests and not it.served), read)
        self.reads.setdefault(read, Read()).requests.append(request["request"])
        return self.told(reply, outcome="granted", read=read, epoch=self.epoch, joined=read != reply["txn"])

    def runtime_submit(self, request: Request) -> Result:
        """The bytes move."""
        reply = self.inner.residency_copy({"txn": self.transactions[request["request"]]})
        self.started += 1
        read = next(one for one, it in self.reads.items() if request["request"] in it.requests)
        return self.told(reply, outcome="submitted", read=read, epoch=self.epoch, started=self.started)

    def runtime_complete(self, request: Request) -> Result:
        """The transaction is completed, whether anybody waits for it or not."""
        read = self.reads[request["read"]]
        ready, calls, events = list[str](), 0, list[Any]()
        for txn in {request["read"]: None, **{self.transactions[name]: None for name in read.requests}}:
            reply = self.inner.residency_complete({"txn": txn})
            calls += reply.get("engine_calls", 1)
            events += [*reply.get("events", ())]
            ready += [name for name in read.requests if self.transactions[name] == txn and reply["outcome"] == "done"]
        for name in read.requests:
            del self.transactions[name]
        read.requests, read.served = [], True
        outcome = "done" if ready else "dropped"
        return self.told({"engine_calls": calls, "events": events}, outcome=outcome, ready=ready, fallbacks=[])

    def runtime_reset(self, request: Request) -> Result:
        """The engine's reset, which may be refused."""
        reply = self.inner.residency_reset({})
        self.epoch += 1
        for read in self.reads.values():
            read.requests = []
        self.transactions.clear()
        return self.told(reply, epoch=self.epoch)


def key(unit: Request) -> str:
    """A key for a unit: its digest."""
    return hashlib.sha256(json.dumps(unit, sort_keys=True).encode()).hexdigest()[:24]


def rows(name: str) -> Array:
    """The rows of a key."""
    digest = hashlib.sha256(name.encode()).digest()
    return np.frombuffer(digest * (UNIT_BYTES // len(digest)), np.uint8).copy()


class Cancelling(OverResidency):
    """An engine whose loads can be cancelled."""

    def runtime_cancel(self, request: Request) -> Result:
        """The transaction is cancelled, and cancelled once more where a client that is gone hangs up again."""
        name = request["request"]
        reply = self.inner.residency_cancel({"txn": self.latest[name]})
        self.transactions.pop(name, None)
        read = next((it for it in self.reads.values() if name in it.requests), Read())
        if name in read.requests:
            read.requests.remove(name)
        return self.told(reply, outcome="withdrawn" if read.requests else "dropped")
