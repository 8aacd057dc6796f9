"""What an engine must still have, and how it must answer: the other half of residency.

The monitor says what may not be served or published. An engine that loses everything, refuses everything or tells of
things that did not happen breaks none of that. Where an engine claims enough for it to be known, this account says
which outcomes a reply may tell: rows that nothing took away are read, a whole copy is published, a slot that nobody
holds is given.

Nothing is known of what an engine may evict: rows must be there as long as all that was asked of the engine fitted into
its slots at once, or where it does not evict, or where it has a tier below. Engines whose calls take effect later are
asked for nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..core.compare import same
from ..core.engine import Refused, Reply, Returned
from ..core.expect import PASS, Outcome
from ..core.model import EngineDescription, Finding, Json, Verdict
from ..core.pointers import Missing, resolve
from ..core.words import Word
from .residency import Grant, Key, ResidencyMonitor, State, Transaction

Request = Mapping[str, Any]
Members = dict[str, tuple["Fault", tuple[Json, ...]]]


class Fault(Word):
    """What is wrong with an outcome."""

    ROWS_LOST = "ROWS_LOST", "Rows that nothing took away are not there."
    NOT_PUBLISHED = "NOT_PUBLISHED", "A whole copy of a live transaction was completed, and is not done."
    ROOM_REFUSED = (
        "ROOM_REFUSED",
        "A slot that nobody holds is not given, or a key that only a dead transaction names cannot be stored although "
        "the engine claims `residency.fences`.",
    )
    CALL_REFUSED = "CALL_REFUSED", "A call that nothing speaks against was refused."
    PUBLISHED_ANYWAY = (
        "PUBLISHED_ANYWAY",
        "A completion is called done that the engine claims to check and that does not hold.",
    )
    COUNTED_AGAIN = "COUNTED_AGAIN", "What is over, cancelled or unknown was completed once more."
    NOT_MOVED = "NOT_MOVED", "Bytes of a live transaction did not move."
    OUTCOME_FALSE = "OUTCOME_FALSE", "An outcome tells of what did not happen."
    LEASE_STUCK = "LEASE_STUCK", "A key is held for nobody."
    WRONG_REASON = "WRONG_REASON", "A refusal names another reason than the first that holds."


REQUIREMENTS: Mapping[Fault, str] = {
    Fault.ROWS_LOST: "RES-001",
    Fault.NOT_PUBLISHED: "RES-014",
    Fault.ROOM_REFUSED: "RES-009",
    Fault.CALL_REFUSED: "RES-014",
    Fault.PUBLISHED_ANYWAY: "RES-022",
    Fault.COUNTED_AGAIN: "RES-027",
    Fault.NOT_MOVED: "RES-008",
    Fault.OUTCOME_FALSE: "RES-004",
    Fault.LEASE_STUCK: "RES-033",
    Fault.WRONG_REASON: "RES-028",
}
"""Fault to the requirement that it is nearest to."""
SPOKEN = frozenset(
    {
        "UNKNOWN_TRANSACTION",
        "TRANSACTION_DEAD",
        "STALE_CACHE_GENERATION",
        "RECYCLED_DESTINATION",
        "TRANSFER_OF_OTHER_OWNER",
        "SHORT_COPY",
        "PAYLOAD_DIGEST_MISMATCH",
        "BUSY",
        "LAST_AUTHORITY",
    }
)
"""Reasons that are held against what is due; any other word for a refusal is the engine's own."""
ENDING = ("residency.cancel", "residency.reset", "control.advance_clock")
"""Ops by which a transaction can be dropped without its completion."""
OVER_AND_DONE = ("unknown", "flushed", "empty")
NEAREST = ("device", "host", "secondary", "remote")
"""Tiers, the one that a reader would use first."""
NO_DEMAND: Members = {}


@dataclass
class Demand:
    """What a reply must be: allowed values by pointer, and whether a refusal is as good, or for one reason alone."""

    members: Members = field(default_factory=dict)
    may_refuse: bool = True
    reason: str | None = None
    """The first reason that holds, where a refusal is due."""


class Keeping:
    """One opening of an engine, beside its monitor, which is asked first."""

    def __init__(self, description: EngineDescription, monitor: ResidencyMonitor, *, strict: bool = True) -> None:
        self.monitor = monitor
        self.strict = strict
        """Whether the reason of a refusal counts."""
        self.certain: set[Key] = set()
        """Keys whose rows nothing took away since they were published."""
        self.begun: set[str] = set()
        """Handles that were given out."""
        self.delivered: set[tuple[str, Key]] = set()
        """Loads and keys that were copied and completed as they should be."""
        self.published: set[Key] = set()
        """Keys that the completion at hand publishes, if it is done."""
        self.finished: Transaction | None = None
        """The transaction that it completes."""
        self.shadows: dict[str, Transaction] = {}
        """Transactions that the monitor dropped and whose completion has not come."""
        self.cancelled: set[str] = set()
        """Transactions that are dead because their owner went away."""
        self.released: set[Key] = set()
        """Keys whose device replica was given up, and that nothing brought back to the device."""
        self.asks = not monitor.claims("async")

    # --- replies ------------------------------------------------------------------------------------------------

    def observe(self, op: str, request: Request, reply: Reply) -> Outcome:
        """Judge a reply by the monitor, then by what it must be."""
        demand = self.demand(op, request) if self.asks else Demand()
        crowded = self._crowds(op, request)
        before = dict(self.monitor.transactions) if op in ENDING else {}
        outcome = self.monitor.observe(op, request, reply)
        if outcome.verdict is Verdict.PASS:
            outcome = self._judge(demand, reply)
        for name in before.keys() - self.monitor.transactions.keys():
            self.shadows[name] = before[name]
        self._note(op, request, reply, crowded=crowded)
        return outcome

    def _judge(self, demand: Demand, reply: Reply) -> Outcome:
        if isinstance(reply, Refused):
            told = reply.reason or "no mapped reason"
            if not demand.may_refuse:
                return _wrong(Fault.CALL_REFUSED, "", f"a legal request was rejected: {told}", "a result", told)
            if self.strict and demand.reason is not None and told in SPOKEN and told != demand.reason:
                message = f"rejected for {told}, and {demand.reason} holds before it"
                return _wrong(Fault.WRONG_REASON, "", message, f"rejected for {demand.reason}", told)
        elif isinstance(reply, Returned):
            for at, (fault, allowed) in demand.members.items():
                try:
                    told = resolve(reply.value, at)
                except Missing:
                    told = None
                if not any(same(told, value) for value in allowed):
                    wanted = " or ".join(map(str, allowed))
                    return _wrong(fault, at, f"{at} is {told!r}, and must be {wanted}", list(allowed), told)
        return PASS

    # --- what is known ------------------------------------------------------------------------------------------

    def there(self, key: Key) -> bool:
        """Whether the key has rows that nothing took away."""
        entry = self.monitor.known(key)
        return key in self.certain and bool(entry.serves) and not entry.damaged

    def gone(self, key: Key) -> bool:
        """Whether there is nothing to serve, and nothing that may bring it."""
        return not self.monitor.known(key).serves and not self.named(key)

    def named(self, key: Key) -> bool:
        """Whether a transaction that is not over names the key."""
        named = any(one.state is not State.REFUSED for one, _ in self.monitor.by_key.get(key, ()))
        return named or self.shadowed(key)

    def shadowed(self, key: Key) -> bool:
        """Whether a transaction that the monitor dropped names the key."""
        return any(key == grant.key for one in self.shadows.values() for grant in one.grants)

    def fenced(self, key: Key) -> bool:
        """Whether all that names the key is dead by a cancel or its limit, which bars nobody, as the engine says."""
        monitor = self.monitor
        if not monitor.claims("fences") or self.shadowed(key):
            return False
        over = (State.EXPIRED, State.REFUSED) if monitor.claims("exact_clock") else (State.REFUSED,)
        users = monitor.by_key.get(key, ())
        return all(one.state in over or one.name in self.cancelled for one, _ in users)

    def held(self, key: Key) -> bool:
        """Whether a transaction may keep the key from being removed; a store that has expired may still be whole."""
        users = self.monitor.by_key.get(key, ())
        return any(
            one.state in (State.LIVE, State.QUARANTINED) or (one.state is State.EXPIRED and one.mode == "store")
            for one, _ in users
        )

    def room(self) -> int:
        """Slots that nobody can hold; none where the engine does not say how many there are."""
        monitor = self.monitor
        if monitor.slots is None or not monitor.claims("exact_slots"):
            return 0
        used = sum(len(one.moving) for one in self.shadows.values())
        used += sum(len(entry.replicas & {"device", "host"}) or 1 for entry in monitor.entries.values() if entry.serves)
        for transaction in monitor.transactions.values():
            if transaction.state is not State.REFUSED:
                own = transaction.mode == "store"
                used += sum(own or not self._current(grant) for grant in transaction.moving)
        return max(0, monitor.slots - used)

    def _current(self, grant: Grant) -> bool:
        """Whether the key still stands for what was granted."""
        return not grant.superseded and bool(self.monitor.known(grant.key).serves)

    def made_room(self) -> int:
        """Slots that are free or can be made so: those that no transaction holds, where the engine evicts."""
        monitor = self.monitor
        free = self.room()
        if monitor.slots is None or not monitor.claims("exact_slots") or not monitor.claims("evicts"):
            return free
        held = sum(len(one.moving) for one in self.shadows.values())
        held += sum(len(one.moving) for one in monitor.transactions.values() if one.state is not State.REFUSED)
        return max(free, monitor.slots - held)

    def _crowds(self, op: str, request: Request) -> bool:
        """Whether a call asks for more slots than are certainly free."""
        wanted = 0
        if op == "residency.put":
            wanted = 1
        elif op == "residency.reserve" and request["mode"] == "store":
            wanted = len(request["keys"])
        return wanted > 0 and wanted > self.room()

    def _note(self, op: str, request: Request, reply: Reply, *, crowded: bool) -> None:
        """Which keys are certain after the call."""
        monitor = self.monitor
        keeps = monitor.claims("secondary") or (monitor.claims("exact_slots") and not monitor.claims("evicts"))
        if crowded and not keeps:
            self.certain.clear()
        if op == "residency.complete":
            self.shadows.pop(request["txn"], None)
        if not isinstance(reply, Returned):
            return
        keeps = keeps or (monitor.claims("exact_slots") and monitor.slots is not None)
        if op == "residency.put" and keeps and reply.value["outcome"] in ("stored", "replaced"):
            self.certain.add((request.get("tenant", ""), request["key"]))
        elif op == "residency.reserve" and reply.value["txn"] is not None:
            self.begun.add(reply.value["txn"])
        elif op == "control.inject":
            self.certain.discard((request.get("tenant", ""), request["key"]))
        elif op == "residency.cancel" and reply.value["outcome"] == "dead":
            self.cancelled.add(request["txn"])
        elif op == "residency.complete" and reply.value["outcome"] == "done" and self.finished is not None:
            if self.finished.mode == "load":
                self.delivered |= {(self.finished.name, key) for key in self.published}
            elif keeps:
                self.certain |= self.published
        self.certain = {key for key in self.certain if monitor.known(key).serves}
        self._note_tiers(op, request, reply)

    def _note_tiers(self, op: str, request: Request, reply: Returned) -> None:
        """What lies on the device no more: of an engine with authority, only a put and a load bring it back there."""
        if op == "residency.remove" and request.get("tier") == "device" and self.monitor.claims("authority"):
            outcomes = zip(request["keys"], reply.value["outcomes"], strict=False)
            self.released |= {(request.get("tenant", ""), name) for name, told in outcomes if told == "removed"}
        elif op == "residency.put":
            self.released.discard((request.get("tenant", ""), request["key"]))
        elif op == "residency.complete" and self.finished is not None and self.finished.mode == "load":
            self.released -= {grant.key for grant in self.finished.grants}

    def _awaited(self, transaction: Transaction) -> bool:
        """Whether a live transaction waits for its copies."""
        return any(
            grant.leader == transaction.name and not grant.superseded and self._lives(other)
            for one in transaction.moving
            for other, grant in self.monitor.live(one.key, "load")
        )

    # --- demands ------------------------------------------------------------------------------------------------

    def demand(self, op: str, request: Request) -> Demand:
        """What the reply to the next call must be."""
        self.published, self.finished = set(), None
        rule = RULES.get(op)
        return Demand() if rule is None else rule(self, request)

    def get(self, request: Request) -> Demand:
        """Rows that are there are read; of nothing there is a miss."""
        key = (request.get("tenant", ""), request["key"])
        if self.there(key):
            return Demand(
                {"/outcome": (Fault.ROWS_LOST, ("hit",)), **self.tier(key, "/tier", nearest=False)}, may_refuse=False
            )
        return Demand({"/outcome": (Fault.OUTCOME_FALSE, ("miss",))} if self.gone(key) else {})

    def tier(self, key: Key, at: str, *, nearest: bool) -> Members:
        """Where rows may be told to be, if anything is told: where they are, or not where they were released from."""
        known = self.monitor.whereabouts(key)
        if known:
            tiers = [tier for tier in NEAREST if tier in known]
            return {at: (Fault.OUTCOME_FALSE, (*(tiers[:1] if nearest else tiers), None))}
        return {at: (Fault.OUTCOME_FALSE, (*NEAREST[1:], None))} if key in self.released else {}

    def lookup(self, request: Request) -> Demand:
        """Ready, key by key."""
        members: Members = {}
        for index, name in enumerate(request["keys"]):
            key = (request.get("tenant", ""), name)
            if self.there(key):
                members |= {
                    f"/states/{index}": (Fault.ROWS_LOST, ("ready",)),
                    **self.tier(key, f"/tiers/{index}", nearest=True),
                }
            elif self.gone(key):
                members[f"/states/{index}"] = (Fault.OUTCOME_FALSE, ("miss",))
        return Demand(members, may_refuse=not members)

    def put(self, request: Request) -> Demand:
        """Stored where nothing was, replaced where something was; refused for want of room or while it is in use."""
        key = (request.get("tenant", ""), request["key"])
        free = self.made_room() > 0
        if self.gone(key):
            allowed = ("stored",) if free else ("stored", "refused")
            return Demand(
                {"/outcome": (Fault.ROOM_REFUSED if free else Fault.OUTCOME_FALSE, allowed)}, may_refuse=not free
            )
        if self.there(key):
            new = () if self.monitor.claims("content_addressed") else ("replaced",)
            allowed = (*new, "resident", *(() if free and not self.named(key) else ("refused",)))
            return Demand({"/outcome": (Fault.OUTCOME_FALSE, allowed)})
        return Demand()

    def remove(self, request: Request) -> Demand:
        """Removed what was there and is not held, absent what was not, leased what a transaction holds."""
        if "tier" in request:
            return self.release(request)
        members: Members = {}
        free = True
        for index, name in enumerate(request["keys"]):
            key, at = (request.get("tenant", ""), name), f"/outcomes/{index}"
            free = free and not self.held(key)
            if self.gone(key):
                members[at] = (Fault.OUTCOME_FALSE, ("absent",))
            elif not self.held(key):
                stuck = ("removed",) if self.there(key) else ("removed", "absent")
                members[at] = (Fault.LEASE_STUCK, stuck)
            elif self.there(key):
                members[at] = (Fault.OUTCOME_FALSE, ("removed", "leased"))
        return Demand(members, may_refuse=not free)

    def release(self, request: Request) -> Demand:
        """Removed where another replica is left, which is known of keys whose replicas nothing can have moved."""
        members: Members = {}
        free, left = True, True
        for index, name in enumerate(request["keys"]):
            key = (request.get("tenant", ""), name)
            known = self.monitor.whereabouts(key) if self.there(key) else None
            free = free and not self.held(key)
            left = left and (self.gone(key) or (known is not None and known != {request["tier"]}))
            if known and not self.held(key):
                told = "removed" if request["tier"] in known else "absent"
                members[f"/outcomes/{index}"] = (Fault.OUTCOME_FALSE, (told,))
        return Demand(members, may_refuse=not (free and left), reason="LAST_AUTHORITY" if free else None)

    def reset(self, request: Request) -> Demand:
        """Refused only while something is under way."""
        return Demand(may_refuse=bool(self.monitor.transactions), reason="BUSY")

    def reserve(self, request: Request) -> Demand:
        """A slot for rows that are new, a lease on rows that are there."""
        members: Members = {}
        fits = self.made_room() >= len(request["keys"])
        for index, name in enumerate(request["keys"]):
            key, at = (request.get("tenant", ""), name), f"/grants/{index}/outcome"
            if request["mode"] == "load":
                if self.there(key):
                    members[at] = (Fault.ROWS_LOST, ("granted", "resident", "joined"))
                elif self.gone(key):
                    members[at] = (Fault.OUTCOME_FALSE, ("miss", "refused"))
            elif self.gone(key) and fits:
                members[at] = (Fault.ROOM_REFUSED, ("granted",))
            elif self.gone(key):
                members[at] = (Fault.OUTCOME_FALSE, ("granted", "refused"))
            elif self.fenced(key):
                free = fits and not self.monitor.known(key).serves
                wanted = ("granted",) if free else ("granted", "resident", "refused")
                members[at] = (Fault.ROOM_REFUSED if free else Fault.OUTCOME_FALSE, wanted)
            else:
                members[at] = (Fault.OUTCOME_FALSE, ("granted", "resident", "pending", "refused", "joined"))
        firm = any(fault is not Fault.OUTCOME_FALSE for fault, _ in members.values())
        return Demand(members, may_refuse=not firm)

    def copy(self, request: Request) -> Demand:
        """A live transaction moves what it is told to."""
        transaction = self.monitor.transactions.get(request["txn"])
        if transaction is None or not self._lives(transaction) or not self._sound(transaction):
            return Demand()
        left = self.monitor.slot_bytes - transaction.copied
        each = left if request.get("bytes") is None else min(request["bytes"], left)
        moving, waiting = len(transaction.moving), sum(one.outcome == "joined" for one in transaction.grants)
        return Demand({"/bytes": (Fault.NOT_MOVED, (each * moving, each * (moving + waiting)))}, may_refuse=False)

    def _lives(self, transaction: Transaction) -> bool:
        """Whether it is live; one whose owner went away lives as long as somebody waits for it."""
        if transaction.state is not State.LIVE:
            return False
        return not transaction.detached or self._awaited(transaction)

    def _sound(self, transaction: Transaction) -> bool:
        """Whether nothing stands in the way of its copy: of a load, rows that are as they were granted."""
        if transaction.mode == "store":
            return True
        whole = all(self._current(grant) and not grant.damaged for grant in transaction.moving)
        return whole and self.monitor.claims("leases")

    def complete(self, request: Request) -> Demand:
        """Done what is live and whole; nothing that is over."""
        transaction = self.monitor.transactions.get(request["txn"])
        fenced = self.monitor.claims("txn_ids")
        if transaction is None:
            over: Members = {"/outcome": (Fault.COUNTED_AGAIN, OVER_AND_DONE)} if fenced else {}
            known = request["txn"] in self.begun
            return Demand(over, reason="TRANSACTION_DEAD" if known else "UNKNOWN_TRANSACTION")
        if transaction.state is State.QUARANTINED:
            return Demand({"/outcome": (Fault.COUNTED_AGAIN, OVER_AND_DONE)}, reason="TRANSACTION_DEAD")
        arrived = [grant for grant in transaction.moving if grant.key[1] not in request.get("failed", ())]
        if not self._lives(transaction):
            if transaction.mode == "load":  # if it is called done all the same, then for those who wait for it, too
                self.published, self.finished = {grant.key for grant in arrived}, transaction
            return Demand()
        reason = next(self._objections(transaction, request), None)
        self.published = {grant.key for grant in arrived if reason is None or transaction.mode == "load"}
        self.finished = transaction
        if transaction.mode == "load" and not transaction.moving:
            return self._waited(transaction)
        if transaction.mode == "load" and not self._sound(transaction):
            return Demand()
        if reason is not None or not arrived:
            checked = reason is not None and reason != "STALE_CACHE_GENERATION"
            return Demand({"/outcome": (Fault.PUBLISHED_ANYWAY, OVER_AND_DONE)} if checked else {}, reason=reason)
        return Demand({"/outcome": (Fault.NOT_PUBLISHED, ("done",))}, may_refuse=False)

    def _waited(self, transaction: Transaction) -> Demand:
        """What waits for other copies is done when one was delivered, and not before."""
        waits = [(one.leader, one.key) for one in transaction.grants]
        if not all(leader for leader, _ in waits):
            return Demand()
        if any(wait in self.delivered for wait in waits):
            return Demand({"/outcome": (Fault.NOT_PUBLISHED, ("done",))})
        return Demand({"/outcome": (Fault.PUBLISHED_ANYWAY, OVER_AND_DONE)})

    def _objections(self, transaction: Transaction, request: Request) -> Iterator[str]:
        """Reasons against a completion, in the order of the chapter."""
        for grant in transaction.moving:
            if grant.key[1] in request.get("failed", ()):
                continue
            receipt = request.get("receipt", {}).get(grant.key[1], {})
            if grant.superseded:
                yield "STALE_CACHE_GENERATION"
            place = (grant.slot, grant.generation)
            if (receipt.get("slot", grant.slot), receipt.get("generation", grant.generation)) != place:
                yield "RECYCLED_DESTINATION"
            if receipt.get("owner", transaction.owner) != transaction.owner:
                yield "TRANSFER_OF_OTHER_OWNER"
            size = self.monitor.slot_bytes
            if transaction.copied < size or receipt.get("bytes", size) != size:
                yield "SHORT_COPY"
            if receipt.get("checksum", min(grant.sees, default="")) not in {*grant.sees, ""}:
                yield "PAYLOAD_DIGEST_MISMATCH"

    def cancel(self, request: Request) -> Demand:
        """What is live can be cancelled, where the engine says so."""
        transaction = self.monitor.transactions.get(request["txn"])
        if transaction is None or not self._lives(transaction):
            return Demand()
        return Demand({"/outcome": (Fault.OUTCOME_FALSE, ("dead", "detached"))}, may_refuse=False)

    def inject(self, request: Request) -> Demand:
        """What is there can be damaged, and nothing else."""
        key = (request.get("tenant", ""), request["key"])
        if self.there(key):
            return Demand({"/damaged": (Fault.OUTCOME_FALSE, (True,))})
        return Demand({"/damaged": (Fault.OUTCOME_FALSE, (False,))} if self.gone(key) else {})


def _wrong(fault: Fault, at: str, message: str, expected: Json, told: Json) -> Outcome:
    verdict = Verdict.WRONG_REASON if fault is Fault.WRONG_REASON else Verdict.FAIL
    return Outcome(verdict, Finding(None, at, f"{fault}: {message} ({REQUIREMENTS[fault]})", expected, told))


RULES: Mapping[str, Callable[[Keeping, Request], Demand]] = {
    f"residency.{one.__name__}": one
    for one in (
        Keeping.get,
        Keeping.lookup,
        Keeping.put,
        Keeping.remove,
        Keeping.reset,
        Keeping.reserve,
        Keeping.copy,
        Keeping.complete,
        Keeping.cancel,
    )
} | {"control.inject": Keeping.inject}
"""Op to what its reply must be."""
