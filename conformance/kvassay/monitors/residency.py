"""The rules of residency over a sequence of calls: what may be served, published, reused and removed.

Per key there are the payloads that a read may return and those that it once had; per transaction what it may publish or
read. Payloads are compared by digest, so that a trace without rows is judged as well as an engine with them.

*Expired is grey*: a completion that comes after the end of its reservation may be refused, or accepted with its own
whole rows. It may never publish what it did not copy, nor take back what came after it.

Memory grows with what is live: keys that serve something and transactions that have not ended. Of the rest a bounded
history is kept, which findings quote and nothing is judged by.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain
from typing import Any, TypeVar

import numpy as np

from ..core.engine import Refused, Reply, Returned
from ..core.expect import PASS, Outcome
from ..core.model import EngineDescription, Finding, Verdict
from ..core.words import Word

Key = tuple[str, str]
"""Tenant and key."""
Place = TypeVar("Place")
Payload = str
"""Digest of the rows."""

NONE: frozenset[str] = frozenset()
DEVICE, HOST = frozenset({"device"}), frozenset({"host"})
NEAR = DEVICE | HOST
"""Tiers whose replicas take up slots."""
FORMER_KEYS, FORMER_PAYLOADS = 4096, 64
"""How many keys that serve nothing, and how many payloads of one key, are remembered."""
COUNTED = 64
"""With how many keys it is still counted whether a call leaves room."""
GREY = 65536
"""How many expired transactions that never ended are remembered."""


class Rule(Word):
    """What a reply can contradict."""

    WRONG_BYTES = "WRONG_BYTES", "Rows of another key, of an old generation, or torn ones were served."
    PUBLISHED_UNVALIDATED = "PUBLISHED_UNVALIDATED", "Something is called ready that no completed store or put made so."
    SLOT_REUSED = "SLOT_REUSED", "A slot was given away under a copy that may still read or write it."
    WRITTEN_TWICE = "WRITTEN_TWICE", "Two transactions may publish one key."
    JOINED_NOTHING = "JOINED_NOTHING", "A load waits for a copy that nobody makes."
    LEASE_VIOLATED = "LEASE_VIOLATED", "What a load protects was removed."
    AUTHORITY_LOST = "AUTHORITY_LOST", "The last valid replica was given up."
    NEVER_READY = "NEVER_READY", "A key is pending, and no transaction is left that could end it."
    WITNESS_FALSE = "WITNESS_FALSE", "More or fewer bytes were told than can have moved."


REQUIREMENTS: Mapping[str, tuple[str, ...]] = {
    Rule.WRONG_BYTES: ("RES-001", "RES-002", "RES-003"),
    Rule.PUBLISHED_UNVALIDATED: ("RES-013", "RES-004", "RES-022"),
    Rule.SLOT_REUSED: ("RES-030", "RES-017"),
    Rule.WRITTEN_TWICE: ("RES-019",),
    Rule.JOINED_NOTHING: ("RES-036",),
    Rule.LEASE_VIOLATED: ("RES-032",),
    Rule.AUTHORITY_LOST: ("RES-038",),
    Rule.NEVER_READY: ("RES-007",),
    Rule.WITNESS_FALSE: ("RES-008",),
}
"""Rule to the requirements that it watches, the likeliest first."""


class State(StrEnum):
    """Where a transaction stands."""

    LIVE = "live"
    EXPIRED = "expired"
    QUARANTINED = "quarantined"
    """Cancelled or reset: it publishes nothing, but its copy may still touch its slots."""
    REFUSED = "refused"
    """Its completion was refused: the copy is over, and only a completion that is accepted may still publish."""


@dataclass(slots=True)
class Entry:
    """One key."""

    serves: frozenset[Payload] = NONE
    """What a read may return."""
    replicas: frozenset[str] = NONE
    """Tiers with a valid replica, as far as calls tell."""
    once: dict[Payload, None] = field(default_factory=dict)
    """What was put or reserved under the key, the latest last."""
    doubtful: bool = False
    """Damaged below the engine, which claims no means to see it."""
    damaged: bool = False
    """Damaged below the engine: what a load copies may be damaged as long as that is not called done."""
    since: int = 0
    """When its rows came, in calls that left no room."""
    below: bool = False
    """Its rows were copied anew after they may have been spilled, so that a replica may lie below the others."""
    placed: bool = False
    """Every replica came by a put or a store, so that where they lie is known as long as there is room."""

    def remember(self, payload: Payload) -> None:
        """Keep a payload in the history."""
        if payload in self.once:
            del self.once[payload]
        self.once[payload] = None
        if len(self.once) > FORMER_PAYLOADS:
            del self.once[next(iter(self.once))]


NOTHING = Entry()
"""What is known of a key that was never named; nobody writes to it."""


@dataclass(slots=True)
class Grant:
    """What a transaction does with one key."""

    key: Key
    outcome: str
    sees: frozenset[Payload]
    """Of a store, the rows at its source; of a load, what the key served when it was reserved."""
    slot: int | None = None
    generation: int | None = None
    tier: str | None = None
    """Of a load, where it reads, if that was told."""
    superseded: bool = False
    """The key got other rows or was removed since: a store may not publish over that, a load protects none of it."""
    damaged: bool = False
    """Of a load: its source was damaged below the engine, whatever the key stands for by now."""
    leader: str = ""
    """Of a load that was joined: the latest load of the key that moves bytes, for whose copy it waits."""
    spoiled: Outcome = PASS
    """Of a load: what stands at its destination is not what was granted."""


@dataclass(slots=True)
class Transaction:
    """One reservation."""

    name: str
    mode: str
    owner: str
    grants: list[Grant]
    since_ms: int
    state: State = State.LIVE
    copied: int = 0
    """Bytes of each granted key."""
    detached: bool = False
    """Its owner went away, and it lives as long as somebody waits for its copies."""
    stopped: bool = False
    """The engine told that its copy is over."""
    moving: list[Grant] = field(init=False)
    """Grants whose bytes this transaction moves."""

    def __post_init__(self) -> None:
        moving = [grant for grant in self.grants if grant.outcome == "granted"]
        self.moving = self.grants if len(moving) == len(self.grants) else moving

    @property
    def touches(self) -> bool:
        """Whether its copy may still read or write its slots."""
        return self.state in (State.LIVE, State.QUARANTINED)


class ResidencyMonitor:
    """One opening of an engine."""

    def __init__(self, description: EngineDescription) -> None:
        declared = description.capabilities
        self.capabilities = {
            name.partition(".")[2]: value for name, value in declared.items() if name.startswith("residency.")
        }
        self.reads_source = self.claims("reads_source")
        self.slot_bytes = 0
        self.slots: int | None = None
        self.ttl_ms: dict[str, int] = {}
        self.now_ms = 0
        self.entries: dict[Key, Entry] = {}
        """Keys that serve something, or that a transaction names."""
        self.former: OrderedDict[Key, Entry] = OrderedDict()
        """The latest of the other keys."""
        self.transactions: dict[str, Transaction] = {}
        self.by_key: dict[Key, list[tuple[Transaction, Grant]]] = {}
        """Key to the transactions that name it and have not ended."""
        self.ageing: dict[str, Transaction] = {}
        """Live transactions that can expire, the oldest first."""
        self.grey: dict[str, Transaction] = {}
        """Expired transactions that have not ended, the oldest first."""
        self.crowdings = 0
        """Calls that may have left no room, so that an engine with a tier below spilled something."""
        self.unaccounted = 0
        """Slots of transactions that were dropped before their copy was known to be over."""
        self.holders: dict[int, list[tuple[Transaction, Grant]]] = {}
        """Slot to the transactions that were granted it and have not ended."""

    @property
    def held(self) -> Mapping[str, int]:
        """What memory goes to."""
        return {"keys": len(self.entries), "transactions": len(self.transactions)}

    def claims(self, name: str) -> bool:
        """Whether the engine declares a capability."""
        return bool(self.capabilities.get(name))

    def observe(self, op: str, request: Mapping[str, Any], reply: Reply) -> Outcome:
        """Take note of one call; a refused call changes nothing but the end of its transaction."""
        react = REACTIONS.get(op)
        if react is None:
            return PASS
        if not isinstance(reply, Returned):
            return self._refused(op, request) if isinstance(reply, Refused) else PASS
        value = reply.value
        if value.get("events"):
            own = [one for one in value["events"] if not self._happened(one["txn"], one["event"])]
            outcome = react(self, request, value)
            for event in own:
                self._happened(event["txn"], event["event"])
        else:
            outcome = react(self, request, value)
        if outcome is PASS and not value.get("engine_calls", 1) and op not in ("residency.open", *CONTROLS):
            return Outcome(Verdict.INCONCLUSIVE, Finding(None, "/engine_calls", "the engine was not called"))
        return outcome

    # --- single calls -------------------------------------------------------------------------------------------

    def open(self, request: Mapping[str, Any], result: Mapping[str, Any]) -> Outcome:
        """A new store."""
        self.slot_bytes = request["slot_bytes"]
        self.slots = result["slots"]
        ttl = {"store": request.get("write_ttl_ms"), "load": request.get("read_ttl_ms")}
        self.ttl_ms = {mode: limit for mode, limit in ttl.items() if limit is not None}
        return PASS

    def put(self, request: Mapping[str, Any], result: Mapping[str, Any]) -> Outcome:
        """Rows become resident, or stay as they were."""
        key, payload = _key(request, request["key"]), digest(request["data"])
        self._crowd(1)
        entry = self.entry(key)
        entry.remember(payload)
        if result["outcome"] in ("stored", "replaced"):
            self._supersede(key)
            entry.serves, entry.replicas = frozenset((payload,)), DEVICE
            entry.doubtful = entry.damaged = entry.below = False
            entry.since, entry.placed = self.crowdings, True
        else:
            self._retire(key)
        return PASS

    def get(self, request: Mapping[str, Any], result: Mapping[str, Any]) -> Outcome:
        """A hit serves what the key may serve."""
        key = _key(request, request["key"])
        if result["outcome"] == "pending":
            return self._pending(key)
        if result["outcome"] == "miss":
            return PASS
        self._seen_in(key, result.get("tier"))
        serves = self.known(key).serves
        if "data" not in result:
            return PASS if serves else self._unpublished(key, "/outcome", "hit")
        return self._served(key, serves, result["data"], "/data")

    def lookup(self, request: Mapping[str, Any], result: Mapping[str, Any]) -> Outcome:
        """What is called ready can be served."""
        for index, (name, state) in enumerate(zip(request["keys"], result["states"], strict=False)):
            key = _key(request, name)
            if state == "ready" and not self.known(key).serves:
                return self._unpublished(key, f"/states/{index}", state)
            self._seen_in(key, result["tiers"][index] if "tiers" in result else None)
            outcome = self._pending(key) if state == "pending" else PASS
            if not outcome.holds:
                return outcome
        return PASS

    def remove(self, request: Mapping[str, Any], result: Mapping[str, Any]) -> Outcome:
        """Replicas go; what is leased stays, and so does the last valid replica unless all are given up."""
        tier, forced = request.get("tier"), request.get("force", False)
        for index, (name, outcome) in enumerate(zip(request["keys"], result["outcomes"], strict=False)):
            key = _key(request, name)
            entry = self.known(key)
            if outcome == "leased" or (outcome == "absent" and tier is not None):
                continue
            if outcome == "removed" and not forced and self.claims("leases") and self._leased(key, tier):
                return broken(Rule.LEASE_VIOLATED, f"/outcomes/{index}", f"{name} was removed while a load reads it")
            if entry is NOTHING:
                continue
            if tier is not None:
                entry.replicas -= {tier}
                entry.below = entry.below and tier != "secondary"
                if not entry.replicas and entry.serves and not entry.below:
                    return broken(
                        Rule.AUTHORITY_LOST, f"/outcomes/{index}", f"the last valid replica of {name} was removed"
                    )
                continue
            if outcome == "removed":
                self._supersede(key)
            entry.serves = entry.replicas = NONE
            self._retire(key)
        return PASS

    def reset(self, request: Mapping[str, Any], result: Mapping[str, Any]) -> Outcome:
        """Nothing is left to serve, and nothing under way may publish."""
        for key, entry in list(self.entries.items()):
            self._supersede(key)
            entry.serves = entry.replicas = NONE
            entry.doubtful = entry.damaged = False
            self._retire(key)
        for entry in self.former.values():
            entry.doubtful = entry.damaged = False
        self.ageing.clear()
        self.grey.clear()
        for transaction in list(self.transactions.values()):
            self._kill(transaction)
        return PASS

    def reserve(self, request: Mapping[str, Any], result: Mapping[str, Any]) -> Outcome:
        """Grants become a transaction, if none of them contradicts another."""
        mode, data, tenant = request["mode"], request.get("data", ()), request.get("tenant", "")
        grants = []
        if mode == "store":
            self._crowd(len(data))
        for index, (name, given) in enumerate(zip(request["keys"], result["grants"], strict=False)):
            key = (tenant, name)
            told = given["outcome"]
            if mode == "store":
                payload, entry = digest(data[index]), self.entry(key)
                sees, damaged = frozenset((payload,)), entry.damaged
                entry.remember(payload)
                if self.reads_source and told in ("granted", "refused"):
                    entry.serves, entry.replicas = sees, DEVICE
            else:
                known = self.known(key)
                sees, damaged = known.serves, known.damaged
                if "tier" in given and told in ("granted", "resident"):
                    self._seen_in(key, given["tier"])
            grant = Grant(key, told, sees, given.get("slot"), given.get("generation"), given.get("tier"))
            grant.damaged = damaged
            if told == "joined":
                leaders = [one.name for one, other in self.live(key, "load") if other.outcome == "granted"]
                grant.leader = leaders[-1] if leaders else ""
            grants.append(grant)
            outcome = self._granted(mode, grant, index)
            if outcome is not PASS:
                return outcome
        if result["txn"] is not None:
            transaction = Transaction(result["txn"], mode, request["owner"], grants, self.now_ms)
            self._begin(transaction)
            for grant in transaction.moving:
                if grant.slot is not None:
                    self.holders.setdefault(grant.slot, []).append((transaction, grant))
        else:
            for grant in grants:
                self._retire(grant.key)
        return PASS

    def copy(self, request: Mapping[str, Any], result: Mapping[str, Any]) -> Outcome:
        """A load that is wholly copied shows what it was granted."""
        transaction = self.transactions.get(request["txn"])
        if transaction is None:
            return PASS
        keys = len(transaction.moving)
        if keys != len(transaction.grants):
            keys += sum(grant.outcome == "joined" for grant in transaction.grants)
        asked, left = request.get("bytes"), self.slot_bytes - transaction.copied
        each = left if asked is None else min(asked, left)
        if result["bytes"] > each * keys:
            return broken(
                Rule.WITNESS_FALSE, "/bytes", f"{result['bytes']} bytes moved where {each} a key were asked for"
            )
        transaction.copied += result["bytes"] // (len(transaction.moving) or keys or 1)
        if transaction.mode != "load":
            return PASS
        for index, (grant, rows) in enumerate(zip(transaction.grants, result.get("data", ()), strict=False)):
            joined = grant.outcome == "joined" and not transaction.copied
            if rows is not None and (joined or transaction.copied >= self.slot_bytes):
                grant.spoiled = self._served(grant.key, grant.sees, rows, f"/data/{index}")
                early = joined and grant.leader in self.transactions and self.claims("checksums")
                if grant.spoiled is not PASS and (early or not grant.damaged):  # a waiter gets what was validated
                    return grant.spoiled
        return PASS

    def complete(self, request: Mapping[str, Any], result: Mapping[str, Any]) -> Outcome:
        """A live store that is whole, and whose receipt is its own, publishes its rows; everything else ends."""
        transaction = self.transactions.get(request["txn"])
        if transaction is None:
            return PASS
        lives = transaction.state is not State.QUARANTINED and result["outcome"] == "done"
        failed = request.get("failed", ())
        for grant in transaction.moving if lives else ():
            if transaction.copied < self.slot_bytes or grant.key[1] in failed:
                continue
            entry = self.entry(grant.key)
            if transaction.mode == "load":
                if grant.spoiled is not PASS:
                    return grant.spoiled
                entry.replicas |= DEVICE if entry.replicas else NONE
                entry.placed = False
                entry.below = entry.below or (self.claims("secondary") and entry.since < self.crowdings)
            elif not grant.superseded and (
                "receipt" not in request or self._receipt_fits(transaction, grant, request["receipt"])
            ):
                same = entry.serves == grant.sees
                entry.serves = grant.sees
                entry.replicas = entry.replicas | HOST if same else HOST
                if same:
                    entry.below = entry.below or (self.claims("secondary") and entry.since < self.crowdings)
                else:  # the same rows beside a replica that was damaged leave it as it is
                    entry.doubtful = entry.damaged = entry.below = False
                    entry.since, entry.placed = self.crowdings, True
                if len(self.by_key[grant.key]) > 1:
                    self._supersede(grant.key, ("store",) if same else ("store", "load"), but=grant)
        self._end(transaction)
        return PASS

    def cancel(self, request: Mapping[str, Any], result: Mapping[str, Any]) -> Outcome:
        """A dead transaction publishes nothing; its slots wait for its completion."""
        transaction = self.transactions.get(request["txn"])
        if transaction is not None and result["outcome"] == "dead":
            self._kill(transaction)
        elif transaction is not None and result["outcome"] == "detached":
            transaction.detached = True
        return PASS

    def advance(self, request: Mapping[str, Any], result: Mapping[str, Any]) -> Outcome:
        """Reservations that are too old expire."""
        self.now_ms += request["by_ms"]
        soonest = min(self.ttl_ms.values(), default=0)
        expired = []
        for transaction in self.ageing.values():
            age_ms = self.now_ms - transaction.since_ms
            if age_ms < soonest:
                break
            if age_ms >= self.ttl_ms[transaction.mode]:
                expired.append(transaction)
        for transaction in expired:
            transaction.state = State.EXPIRED
            self.grey[transaction.name] = self.ageing.pop(transaction.name)
        while len(self.grey) > GREY:
            self._end(next(iter(self.grey.values())))
        return PASS

    def inject(self, request: Mapping[str, Any], result: Mapping[str, Any]) -> Outcome:
        """Rows that were damaged may be missed; an engine with checksums may not serve them."""
        seen = self.claims("checksums") or (request["fault"] != "corrupt" and self.claims("validates_length"))
        key = _key(request, request["key"])
        if result["damaged"] and request["fault"] == "evict":
            self._supersede(key, ("load",))
            self.entry(key).placed = False
            self._retire(key)
        elif result["damaged"]:
            entry = self.entry(key)
            entry.damaged, entry.doubtful = True, entry.doubtful or not seen
            for _, grant in self.by_key.get(key, ()):
                grant.damaged = True
                if grant.spoiled is not PASS:
                    grant.tier = None  # damaged twice, its source may be as it was
            self._retire(key)
        return PASS

    # --- what engines tell on their own ---------------------------------------------------------------------------

    def _happened(self, name: str, event: str) -> bool:
        """The engine forced a step that its caller had not come to; ``False`` if there is no such transaction yet."""
        transaction = self.transactions.get(name)
        if transaction is None:
            return False
        if event == "copied":
            transaction.copied, transaction.stopped = self.slot_bytes, True
            if transaction.state is State.QUARANTINED:
                self._end(transaction)
        elif event == "completed":
            self.complete({"txn": name}, {"outcome": "done"})
        elif event == "failed":
            self._end(transaction)
        elif event == "cancelled":
            self._kill(transaction)
        elif event == "expired" and transaction.state is State.LIVE:
            transaction.state = State.EXPIRED
            self.ageing.pop(name, None)
            self.grey[name] = transaction
        return True

    # --- what they share ----------------------------------------------------------------------------------------

    def entry(self, key: Key) -> Entry:
        """The account of a key, to be written to."""
        entry = self.entries.get(key)
        if entry is None:
            entry = self.entries[key] = self.former.pop(key) if key in self.former else Entry()
        return entry

    def known(self, key: Key) -> Entry:
        """What is known of a key; of most keys that are named, nothing is."""
        return self.entries.get(key) or self.former.get(key, NOTHING)

    def live(self, key: Key, mode: str | None = None) -> list[tuple[Transaction, Grant]]:
        """Transactions that hold the key and have not ended."""
        return [
            (transaction, grant)
            for transaction, grant in self.by_key.get(key, ())
            if transaction.state is State.LIVE and mode in (None, transaction.mode)
        ]

    def _refused(self, op: str, request: Mapping[str, Any]) -> Outcome:
        """A completion that was refused published nothing, and its copy is over."""
        transaction = self.transactions.get(request.get("txn", ""))
        if op != "residency.complete" or transaction is None:
            return PASS
        if transaction.state is State.QUARANTINED:
            self._end(transaction)
            return PASS
        self._condemn(transaction)
        for grant in transaction.grants:
            for other, _ in list(self.by_key.get(grant.key, ())):
                if other.state is State.REFUSED and other is not transaction:
                    self._end(other)
        transaction.state = State.REFUSED
        self.ageing.pop(transaction.name, None)
        self.grey[transaction.name] = transaction
        self._vacate(transaction)
        return PASS

    def _condemn(self, transaction: Transaction) -> None:
        """A replica that a load of one key showed to be damaged counts for nothing, where checksums are claimed."""
        for grant in transaction.moving if len(transaction.moving) == 1 and self.claims("checksums") else ():
            if grant.spoiled is not PASS and grant.tier is not None:
                self.entry(grant.key).replicas -= {grant.tier}

    def whereabouts(self, key: Key) -> frozenset[str] | None:
        """Tiers with a replica, where it is known for certain: no eviction can have moved or dropped one."""
        entry = self.known(key)
        certain = entry.placed and entry.since == self.crowdings and not entry.damaged and not entry.below
        return entry.replicas if certain and self.claims("authority") else None

    def _begin(self, transaction: Transaction) -> None:
        name = transaction.name
        if name in self.transactions:
            self._unname(self.transactions[name])
        self.transactions[name] = transaction
        for grant in transaction.grants:
            self.by_key.setdefault(grant.key, []).append((transaction, grant))
        if transaction.mode in self.ttl_ms:
            self.ageing[name] = transaction

    def _unname(self, transaction: Transaction) -> None:
        """Forget which keys a transaction names, and those of which nothing is left to know."""
        self.ageing.pop(transaction.name, None)
        self.grey.pop(transaction.name, None)
        for grant in transaction.grants:
            _leave(self.by_key, grant.key, transaction)
            self._retire(grant.key)

    def _retire(self, key: Key) -> None:
        """A key that serves nothing and that nobody names is history."""
        entry = self.entries.get(key)
        if entry is not None and not entry.serves and key not in self.by_key:
            self.former[key] = self.entries.pop(key)
            if len(self.former) > FORMER_KEYS:
                self.former.popitem(last=False)

    def _end(self, transaction: Transaction) -> None:
        self.transactions.pop(transaction.name, None)
        self._unname(transaction)
        self._vacate(transaction)

    def _kill(self, transaction: Transaction) -> None:
        """It publishes nothing; if its copy may still run, its slots are kept."""
        if transaction.stopped or transaction.state in (State.EXPIRED, State.REFUSED):
            self.unaccounted += 0 if transaction.stopped else len(transaction.moving)
            self._end(transaction)
        transaction.state = State.QUARANTINED
        self.ageing.pop(transaction.name, None)

    def _vacate(self, transaction: Transaction) -> None:
        for grant in transaction.moving:
            if grant.slot is not None:
                _leave(self.holders, grant.slot, transaction)

    def _crowd(self, wanted: int) -> None:
        """Count a call that asks for slots and may find too few; only where account is kept of tiers."""
        if not self.claims("authority"):
            return
        if self.slots is None or len(self.entries) > COUNTED or not self.claims("exact_slots"):
            self.crowdings += 1
            return
        serving = sum(len(entry.replicas & NEAR) or 1 for entry in self.entries.values() if entry.serves)
        moving = sum(len(transaction.moving) for transaction in self.transactions.values())
        if serving + moving + self.unaccounted + wanted > self.slots:
            self.crowdings += 1

    def _seen_in(self, key: Key, tier: str | None) -> None:
        """Another tier than calls tell may hold a replica, such as one that rows were evicted to."""
        if tier is not None:
            entry = self.known(key)
            if entry.serves and tier not in entry.replicas:
                entry.replicas |= {tier}
                entry.placed = False

    def _supersede(self, key: Key, modes: Collection[str] = ("store", "load"), but: Grant | None = None) -> None:
        for transaction, grant in self.by_key.get(key, ()):
            if transaction.mode in modes and grant is not but:
                grant.superseded = True

    def _granted(self, mode: str, grant: Grant, index: int) -> Outcome:
        key, name = grant.key, grant.key[1]
        if not grant.sees and mode == "load" and grant.outcome in ("granted", "resident"):
            return self._unpublished(key, f"/grants/{index}/outcome", grant.outcome)
        if grant.outcome != "granted":
            if grant.outcome == "joined" and not self._on_its_way(mode, grant):
                message = f"a load of {name} waits for a copy that nobody makes"
                return broken(Rule.JOINED_NOTHING, f"/grants/{index}/outcome", message)
            return PASS
        if mode == "store" and key in self.by_key:
            others = (other for _, other in self.live(key, "store") if not other.superseded)
            if not self.claims("content_addressed") and any(other.outcome == "granted" for other in others):
                at = f"/grants/{index}/outcome"
                return broken(Rule.WRITTEN_TWICE, at, f"two live stores may publish {name}")
        for other, held in self.holders.get(grant.slot, ()) if grant.slot is not None else ():
            if other.touches and (other.mode == "store" or (mode == "store" and self.claims("leases"))):
                whose = f"{other.mode} {other.name} of {held.key[1]}, {other.state}"
                at = f"/grants/{index}/outcome"
                return broken(Rule.SLOT_REUSED, at, f"slot {grant.slot} was given to {name} under the {whose}")
        return PASS

    def _on_its_way(self, mode: str, waiter: Grant) -> bool:
        """Whether somebody copies what is waited for: for a load, a load of the same rows, or a store of the key."""
        live = self.live(waiter.key)
        same = (one.mode == "store" or not waiter.sees.isdisjoint(grant.sees) for one, grant in live)
        return bool(live) if mode == "store" else any(same)

    def _leased(self, key: Key, tier: str | None) -> bool:
        """Whether a load reads the replica of a tier, or any of the key."""
        loads = self.live(key, "load")
        awaited = {grant.leader for _, grant in loads if grant.outcome == "joined" and not grant.superseded}
        return any(
            grant.outcome == "granted"
            and (tier is None or grant.tier in (tier, None))
            and not grant.superseded
            and not grant.damaged
            and (not one.detached or one.name in awaited)
            for one, grant in loads
        )

    def _receipt_fits(self, transaction: Transaction, grant: Grant, receipts: Mapping[str, Any]) -> bool:
        receipt = receipts.get(grant.key[1])
        if not receipt:
            return True
        truth = {
            "bytes": self.slot_bytes,
            "slot": grant.slot,
            "generation": grant.generation,
            "owner": transaction.owner,
        }
        mine = all(receipt.get(name, value) == value for name, value in truth.items())
        return mine and receipt.get("checksum", min(grant.sees)) in grant.sees

    def _pending(self, key: Key) -> Outcome:
        under_way = (one.state is not State.REFUSED for one, _ in self.by_key.get(key, ()))
        if any(under_way) or self.claims("async"):
            return PASS
        return broken(Rule.NEVER_READY, "", f"{key[1]} is pending and nothing is under way for it")

    def _unpublished(self, key: Key, at: str, told: str) -> Outcome:
        why = (
            "nothing was ever stored"
            if not self.known(key).once
            else "what was stored is not validated, or was removed"
        )
        return broken(Rule.PUBLISHED_UNVALIDATED, at, f"{told} for {key[1]}, of which {why}")

    def _served(self, key: Key, legal: frozenset[Payload], rows: Any, at: str) -> Outcome:
        payload = digest(rows)
        entry = self.known(key)
        if payload in legal or entry.doubtful:
            return PASS
        if not legal:
            return self._unpublished(key, at, "rows")
        others: Iterable[tuple[Key, Entry]] = chain(self.entries.items(), self.former.items())
        owner = next((other for other, one in others if other != key and payload in one.once), None)
        if payload in entry.once:
            whose = "an old or unpublished generation of it"
        elif owner is not None:
            whose = f"the rows of {owner[1]}" + (f" of tenant {owner[0]}" if owner[0] != key[0] else "")
        else:
            whose = "rows that were never stored: torn or damaged ones"
        return broken(Rule.WRONG_BYTES, at, f"a read of {key[1]} returned {whose}")


def _leave(places: dict[Place, list[tuple[Transaction, Grant]]], place: Place, transaction: Transaction) -> None:
    """A transaction is found at this place no more, and a place where none is left is none."""
    left = [one for one in places.pop(place, ()) if one[0] is not transaction]
    if left:
        places[place] = left


def broken(rule: Rule, at: str, message: str) -> Outcome:
    """A reply that contradicts a rule."""
    return Outcome(Verdict.FAIL, Finding(None, at, f"{rule}: {message}"))


def digest(rows: Any) -> Payload:
    """SHA-256 of rows; a trace gives ``{"sha256": ...}`` in their place."""
    if type(rows) is dict or isinstance(rows, Mapping):
        return str(rows["sha256"])
    return hashlib.sha256(np.ascontiguousarray(rows).tobytes()).hexdigest()


def _key(request: Mapping[str, Any], name: str) -> Key:
    return (request.get("tenant", ""), name)


CONTROLS = {"control.advance_clock": ResidencyMonitor.advance, "control.inject": ResidencyMonitor.inject}
REACTIONS = {
    f"residency.{one.__name__}": one
    for one in (
        ResidencyMonitor.open,
        ResidencyMonitor.put,
        ResidencyMonitor.get,
        ResidencyMonitor.lookup,
        ResidencyMonitor.remove,
        ResidencyMonitor.reset,
        ResidencyMonitor.reserve,
        ResidencyMonitor.copy,
        ResidencyMonitor.complete,
        ResidencyMonitor.cancel,
    )
} | CONTROLS
"""Op to what the monitor makes of its result."""
