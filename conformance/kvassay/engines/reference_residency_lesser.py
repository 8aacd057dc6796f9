"""Correct engines that can do less than the reference, or decide otherwise: no case of residency may blame them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from kvassay_reference.errors import Refusal
from kvassay_reference.residency import Entry, Grant, Key, Life, Replica, Residency, State, Transaction

from ..adapters.base import EngineAdapter, EngineInfo, Pending, Rejected
from .reference import VERSION, Reference
from .reference_residency import Request, Result, array


def claims(**changed: Any) -> Mapping[str, Any]:
    """Capabilities of residency that differ from the reference's."""
    return {f"residency.{name}": value for name, value in changed.items()}


class PlainStore(EngineAdapter):
    """A dictionary: put, get, look up and remove, and nothing else; full is full."""

    engine = EngineInfo("plain-store", VERSION, notes="a dictionary")
    capabilities: ClassVar[Mapping[str, Any]] = claims(exact_slots=True)

    def residency_open(self, request: Request) -> Result:
        """An empty dictionary."""
        self.rows: dict[str, bytes] = {}
        self.most = request["slots"]
        return {"slots": request["slots"], "slot_bytes": request["slot_bytes"], "engine_calls": 1}

    def residency_put(self, request: Request) -> Result:
        """Rows under a key."""
        known = request["key"] in self.rows
        if not known and len(self.rows) == self.most:
            return {"outcome": "refused", "engine_calls": 1}
        self.rows[request["key"]] = request["data"].tobytes()
        return {"outcome": "replaced" if known else "stored", "engine_calls": 1}

    def residency_get(self, request: Request) -> Result:
        """The rows of a key."""
        rows = self.rows.get(request["key"])
        if rows is None:
            return {"outcome": "miss", "engine_calls": 1}
        return {"outcome": "hit", "data": array(rows), "engine_calls": 1}

    def residency_lookup(self, request: Request) -> Result:
        """Which keys there are."""
        states = ["ready" if key in self.rows else "miss" for key in request["keys"]]
        return {"states": states, "engine_calls": 1}

    def residency_remove(self, request: Request) -> Result:
        """Keys go."""
        gone = [self.rows.pop(key, None) for key in request["keys"]]
        return {"outcomes": ["absent" if rows is None else "removed" for rows in gone], "engine_calls": 1}


class Lesser(Reference):
    """The reference, with exact reasons left out."""

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        cls.profiles = frozenset({"store", "transaction"})


class Refusing(Lesser):
    """Evicts nothing, and has one tier."""

    engine = EngineInfo("refusing", VERSION, notes="one tier without eviction")
    own_capabilities: ClassVar[Mapping[str, Any]] = claims(evicts=False, secondary=False, authority=False)

    class Store(Residency):
        """Without eviction."""

        evicts = secondary = authority = False

    store_class: ClassVar[type[Residency]] = Store


class Forgetting(Lesser):
    """Evicts for good: what is not used for longest is a miss."""

    engine = EngineInfo("forgetting", VERSION, notes="one tier with eviction")
    own_capabilities: ClassVar[Mapping[str, Any]] = claims(secondary=False, authority=False)

    class Store(Residency):
        """One tier."""

        secondary = authority = False

    store_class: ClassVar[type[Residency]] = Store


class Unjoined(Lesser):
    """Each load copies for itself."""

    engine = EngineInfo("unjoined", VERSION, notes="loads are not coalesced")
    own_capabilities: ClassVar[Mapping[str, Any]] = claims(joins=False, secondary=False, authority=False)

    class Store(Residency):
        """Without joins."""

        joins = secondary = authority = False

    store_class: ClassVar[type[Residency]] = Store


class Unleased(Lesser):
    """A load protects nothing: a copy of rows that have gone meanwhile is refused."""

    engine = EngineInfo("unleased", VERSION, notes="loads without leases")
    own_capabilities: ClassVar[Mapping[str, Any]] = claims(
        leases=False, joins=False, secondary=False, authority=False, expiry_read=False, cancel_load=False
    )

    class Store(Residency):
        """Without leases."""

        leases = joins = secondary = authority = False

        def read_from(self, source: Replica) -> None:
            """The slot is kept for nobody."""

        def read_no_more(self, source: Replica) -> None:
            """The slot was kept for nobody."""

        def move(self, transaction: Transaction, grant: Grant, count: int | None) -> int:
            """Only from a replica that is still there."""
            if grant.source is not None and grant.source.state is not State.HOST_VALID:
                raise Refusal("STALE_CACHE_GENERATION", grant.key[1])
            return super().move(transaction, grant, count)

    store_class: ClassVar[type[Residency]] = Store


class ContentAddressed(Lesser):
    """A key that is there stays as it is, whoever stores it."""

    engine = EngineInfo("content-addressed", VERSION, notes="one content per key for ever")
    own_capabilities: ClassVar[Mapping[str, Any]] = claims(
        content_addressed=True,
        replaces=False,
        txn_ids=False,
        secondary=False,
        authority=False,
        receipts=False,
        tenants=False,
    )

    class Store(Residency):
        """Keyed by content."""

        content_addressed = True
        secondary = authority = False

    store_class: ClassVar[type[Residency]] = Store

    def residency_complete(self, request: Request) -> Result:
        """A handle is not known to the engine, so that what is over is told and not refused."""
        try:
            return super().residency_complete(request)
        except Rejected as refusal:
            if refusal.reason not in ("TRANSACTION_DEAD", "UNKNOWN_TRANSACTION"):
                raise
            return self.told_by_store(outcome="unknown")


class UnknownSlots(Lesser):
    """Tells nothing of its slots."""

    engine = EngineInfo("unknown-slots", VERSION, notes="slots are its own affair")
    own_capabilities: ClassVar[Mapping[str, Any]] = claims(
        exact_slots=False, receipts=False, authority=False, opaque_keys=False, tenants=False
    )

    class Store(Residency):
        """All rows on the host."""

        authority = False

    store_class: ClassVar[type[Residency]] = Store

    def residency_open(self, request: Request) -> Result:
        """How many, it does not say."""
        return {**super().residency_open(request), "slots": None}

    def grant_told(self, grant: Grant) -> Result:
        """Which, it does not say either."""
        return {"outcome": grant.outcome}


class Quiet(Lesser):
    """Refuses nothing in words: a completion that may not publish returns, and publishes nothing.

    A request that goes away leaves its store to itself, a reset waits for what is under way, and one bad key spoils
    the job.
    """

    engine = EngineInfo("quiet", VERSION, notes="no typed refusals")
    own_capabilities: ClassVar[Mapping[str, Any]] = claims(
        job_failure="job", receipts=False, authority=False, joins=False, cancel_load=False, fences=False
    )

    class Store(Residency):
        """Busy as long as anything is under way."""

        authority = joins = False

        def reset(self) -> None:
            """Only when nothing is under way."""
            if self.transactions:
                raise Refusal("BUSY", f"{len(self.transactions)} transactions")
            super().reset()

        def cancel(self, name: str) -> str:
            """A store goes on."""
            return "detached" if name in self.transactions else "unknown"

        def complete(
            self, name: str, failed: Sequence[str] = (), receipts: Mapping[str, Mapping[str, Any]] | None = None
        ) -> str:
            """All keys or none."""
            if failed:
                self.end(self.find(name))
                return "empty"
            return super().complete(name, failed, receipts)

    store_class: ClassVar[type[Residency]] = Store

    def residency_complete(self, request: Request) -> Result:
        """What would be refused is told instead."""
        told = {"TRANSACTION_DEAD": "flushed", "UNKNOWN_TRANSACTION": "unknown"}
        try:
            return super().residency_complete(request)
        except Rejected as refusal:
            return self.told_by_store(outcome=told.get(refusal.reason or "", "empty"))

    def residency_copy(self, request: Request) -> Result:
        """Nothing moves for what is over."""
        try:
            return super().residency_copy(request)
        except Rejected:
            return self.told_by_store(bytes=0)


class Forbearing(Lesser):
    """A store that has expired is published all the same when it comes whole, unless something came after it."""

    engine = EngineInfo("forbearing", VERSION, notes="late and whole is good enough")
    own_capabilities: ClassVar[Mapping[str, Any]] = claims(authority=False, secondary=False, fences=False)

    class Store(Residency):
        """Expired stores live on."""

        authority = secondary = False

        def kill(self, transaction: Transaction, life: Life) -> None:
            """Expiry ends no store."""
            if life is not Life.EXPIRED or transaction.mode == "load":
                super().kill(transaction, life)

    store_class: ClassVar[type[Residency]] = Store


class Impatient(Lesser):
    """A store that has expired loses its slot at once; what is copied for it later goes nowhere."""

    engine = EngineInfo("impatient", VERSION, notes="an expired reservation is free at once")
    own_capabilities: ClassVar[Mapping[str, Any]] = claims(authority=False, secondary=False)

    class Store(Residency):
        """Expiry ends transactions."""

        authority = secondary = False

        def kill(self, transaction: Transaction, life: Life) -> None:
            """Nothing waits for a completion of what has expired."""
            super().kill(transaction, life)
            if life is Life.EXPIRED:
                self.end(transaction)

    store_class: ClassVar[type[Residency]] = Store


class Cautious(Lesser):
    """Puts nothing over rows that are in use."""

    engine = EngineInfo("cautious", VERSION, notes="what is in use stays")
    own_capabilities: ClassVar[Mapping[str, Any]] = claims(authority=False, secondary=False, replaces=False)

    class Store(Residency):
        """Refuses rather than keep two generations."""

        authority = secondary = False

        def put(self, key: Key, rows: bytes) -> str:
            """Not while a transaction names the key."""
            busy = any(grant.key == key for one in self.transactions.values() for grant in one.grants)
            return "refused" if busy else super().put(key, rows)

        def grant_store(self, key: Key, rows: bytes) -> Grant:
            """Not over rows that are there."""
            entry: Entry = self.entry(key)
            return Grant(key, "refused") if self.valid(entry) else super().grant_store(key, rows)

    store_class: ClassVar[type[Residency]] = Store


class Trusting(Lesser):
    """Believes its worker: validates neither length nor bytes."""

    engine = EngineInfo("trusting", VERSION, notes="no validation")
    own_capabilities: ClassVar[Mapping[str, Any]] = claims(
        validates_length=False, checksums=False, receipts=False, job_failure="none", authority=False
    )

    class Store(Residency):
        """All copies are good."""

        authority = False

        def objection(self, transaction: Transaction, grant: Grant, receipt: Mapping[str, Any]) -> str:
            """Only what has come in between counts."""
            stale = self.entry(grant.key).generation != grant.generation
            return "STALE_CACHE_GENERATION" if stale else ""

        def intact(self, rows: bytes, replica: Replica) -> bool:
            """Nobody looks."""
            return True

        def publish(self, transaction: Transaction, grant: Grant) -> None:
            """However much arrived."""
            assert grant.target is not None
            if grant.target.state in (State.DEMOTE_RESERVED, State.PROMOTE_RESERVED):
                grant.target.on("copy")
            if grant.target.state is State.COPY_IN:
                grant.target.on("arrive")
            super().publish(transaction, grant)

    store_class: ClassVar[type[Residency]] = Store

    def residency_get(self, request: Request) -> Result:
        """As many bytes as a slot has."""
        told = super().residency_get(request)
        if "data" in told:
            rows = told["data"].tobytes()
            told["data"] = array(rows + bytes(self.residency.slot_bytes - len(rows)))
        return told


class Asynchronous(Lesser):
    """Put, get and completion answer by ticket."""

    engine = EngineInfo("asynchronous", VERSION, notes="answers by ticket")
    own_capabilities: ClassVar[Mapping[str, Any]] = {**claims(authority=False), "residency.async": True}

    class Store(Residency):
        """All rows on the host."""

        authority = False

    store_class: ClassVar[type[Residency]] = Store

    def open(self) -> None:
        """No ticket."""
        super().open()
        self.waiting: dict[str, list[Any]] = {}

    def ticket(self, op: str, request: Request) -> Pending:
        """Answered at the second poll."""
        name = f"{op}-{len(self.waiting)}"
        self.waiting[name] = [op, request, 2]
        return Pending(name)

    def poll(self, ticket: str) -> Result | Pending:
        """Not yet, or the answer."""
        waiting = self.waiting[ticket]
        waiting[2] -= 1
        if waiting[2]:
            return Pending(ticket)
        answer: Result = getattr(super(), f"residency_{waiting[0]}")(waiting[1])
        return answer

    def residency_put(self, request: Request) -> Any:
        """Later."""
        return self.ticket("put", request)

    def residency_get(self, request: Request) -> Any:
        """Later."""
        return self.ticket("get", request)

    def residency_complete(self, request: Request) -> Any:
        """Later."""
        return self.ticket("complete", request)


LESSER: tuple[type[EngineAdapter], ...] = (
    PlainStore,
    Refusing,
    Forgetting,
    Unjoined,
    Unleased,
    ContentAddressed,
    UnknownSlots,
    Quiet,
    Forbearing,
    Impatient,
    Cautious,
    Trusting,
    Asynchronous,
)
