"""The rules of residency over a sequence of calls: what may be served, published, reused and removed.

Per key there are the payloads that a read may return and those that it once had; per transaction what it may publish or
read. Payloads are compared by digest, so that a trace without rows is judged as well as an engine with them.

*Expired is grey*: a completion that comes after the end of its reservation may be refused, or accepted with its own
whole rows. It may never publish what it did not copy, nor take back what came after it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np

from ..core.engine import Refused, Reply, Returned
from ..core.expect import PASS, Outcome
from ..core.model import EngineDescription, Finding, Verdict

Key = tuple[str, str]
"""Tenant and key."""
Payload = str
"""Digest of the rows."""


class Rule(StrEnum):
    """What a reply can contradict."""

    WRONG_BYTES = "WRONG_BYTES"
    """Rows of another key, of an old generation, or torn ones were served."""
    PUBLISHED_UNVALIDATED = "PUBLISHED_UNVALIDATED"
    """Something is called ready that no completed store or put made so."""
    SLOT_REUSED = "SLOT_REUSED"
    """A slot was given away under a copy that may still read or write it."""
    WRITTEN_TWICE = "WRITTEN_TWICE"
    """Two transactions may publish one key."""
    JOINED_NOTHING = "JOINED_NOTHING"
    """A load waits for a copy that nobody makes."""
    LEASE_VIOLATED = "LEASE_VIOLATED"
    """What a load protects was removed."""
    AUTHORITY_LOST = "AUTHORITY_LOST"
    """The last valid replica was given up."""
    NEVER_READY = "NEVER_READY"
    """A key is pending, and no transaction is left that could end it."""
    WITNESS_FALSE = "WITNESS_FALSE"
    """More or fewer bytes were told than can have moved."""


class State(StrEnum):
    """Where a transaction stands."""

    LIVE = "live"
    EXPIRED = "expired"
    QUARANTINED = "quarantined"
    """Cancelled or reset: it publishes nothing, but its copy may still touch its slots."""


@dataclass
class Entry:
    """One key."""

    serves: set[Payload] = field(default_factory=set)
    """What a read may return."""
    replicas: set[str] = field(default_factory=set)
    """Tiers with a valid replica, as far as calls tell."""
    once: set[Payload] = field(default_factory=set)
    """What was put or reserved under the key, ever."""
    doubtful: bool = False
    """Damaged below the engine, which claims no means to see it."""


@dataclass
class Grant:
    """What a transaction does with one key."""

    key: Key
    outcome: str
    sees: set[Payload]
    """Of a store, the rows at its source; of a load, what the key served when it was reserved."""
    slot: int | None = None
    generation: int | None = None
    superseded: bool = False
    """Of a store: the key got other rows or was removed since, so that these may not be published over that."""


@dataclass
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

    @property
    def moving(self) -> list[Grant]:
        """Grants whose bytes this transaction moves."""
        return [grant for grant in self.grants if grant.outcome == "granted"]

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
        self.slot_bytes = 0
        self.slots: int | None = None
        self.ttl_ms: dict[str, int] = {}
        self.now_ms = 0
        self.entries: dict[Key, Entry] = {}
        self.transactions: dict[str, Transaction] = {}
        self.holders: dict[int, list[tuple[Transaction, Grant]]] = {}
        """Slot to the transactions that were granted it and have not ended."""

    def claims(self, name: str) -> bool:
        """Whether the engine declares a capability."""
        return bool(self.capabilities.get(name))

    def observe(self, op: str, request: Mapping[str, Any], reply: Reply) -> Outcome:
        """Take note of one call; a refused call changes nothing but the end of its transaction."""
        family, _, name = op.partition(".")
        react = REACTIONS.get(op)
        if react is None:
            return PASS
        if isinstance(reply, Refused):
            return self._refused(name, request)
        if not isinstance(reply, Returned):
            return PASS
        outcome = react(self, request, reply.value)
        if outcome is PASS and family == "residency" and not reply.value.get("engine_calls", 1) and name != "open":
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
        entry = self.entry(key)
        entry.once.add(payload)
        if result["outcome"] in ("stored", "replaced"):
            self._supersede(key)
            entry.serves, entry.replicas, entry.doubtful = {payload}, {"device"}, False
        return PASS

    def get(self, request: Mapping[str, Any], result: Mapping[str, Any]) -> Outcome:
        """A hit serves what the key may serve."""
        key = _key(request, request["key"])
        if result["outcome"] == "pending":
            return self._pending(key)
        if result["outcome"] == "miss":
            return PASS
        if "data" not in result:
            return PASS if self.entry(key).serves else self._unpublished(key, "/outcome", "hit")
        return self._served(key, self.entry(key).serves, result["data"], "/data")

    def lookup(self, request: Mapping[str, Any], result: Mapping[str, Any]) -> Outcome:
        """What is called ready can be served."""
        for index, (name, state) in enumerate(zip(request["keys"], result["states"], strict=False)):
            key = _key(request, name)
            if state == "ready" and not self.entry(key).serves:
                return self._unpublished(key, f"/states/{index}", state)
            outcome = self._pending(key) if state == "pending" else PASS
            if not outcome.holds:
                return outcome
        return PASS

    def remove(self, request: Mapping[str, Any], result: Mapping[str, Any]) -> Outcome:
        """Replicas go; what is leased stays, and so does the last valid replica unless all are given up."""
        tier, forced = request.get("tier"), request.get("force", False)
        for index, (name, outcome) in enumerate(zip(request["keys"], result["outcomes"], strict=False)):
            key = _key(request, name)
            entry = self.entry(key)
            if outcome == "leased" or (outcome == "absent" and tier is not None):
                continue
            if outcome == "removed" and not forced and self.claims("leases") and self._leased(key):
                return broken(Rule.LEASE_VIOLATED, f"/outcomes/{index}", f"{name} was removed while a load reads it")
            if tier is not None:
                entry.replicas.discard(tier)
                if not entry.replicas and entry.serves:
                    return broken(
                        Rule.AUTHORITY_LOST, f"/outcomes/{index}", f"the last valid replica of {name} was removed"
                    )
                continue
            self._supersede(key)
            entry.serves, entry.replicas = set(), set()
        return PASS

    def reset(self, request: Mapping[str, Any], result: Mapping[str, Any]) -> Outcome:
        """Nothing is left to serve, and nothing under way may publish."""
        for key, entry in self.entries.items():
            self._supersede(key)
            entry.serves, entry.replicas, entry.doubtful = set(), set(), False
        for transaction in self.transactions.values():
            if transaction.state in (State.LIVE, State.EXPIRED):
                transaction.state = State.QUARANTINED
        return PASS

    def reserve(self, request: Mapping[str, Any], result: Mapping[str, Any]) -> Outcome:
        """Grants become a transaction, if none of them contradicts another."""
        mode, data = request["mode"], request.get("data", ())
        grants = []
        for index, (name, given) in enumerate(zip(request["keys"], result["grants"], strict=False)):
            key = _key(request, name)
            sees = {digest(data[index])} if mode == "store" else set(self.entry(key).serves)
            grant = Grant(key, given["outcome"], sees, given.get("slot"), given.get("generation"))
            grants.append(grant)
            if mode == "store":
                self.entry(key).once |= sees
            outcome = self._granted(mode, grant, f"/grants/{index}/outcome")
            if not outcome.holds:
                return outcome
        if result["txn"] is not None:
            transaction = Transaction(result["txn"], mode, request["owner"], grants, self.now_ms)
            self.transactions[transaction.name] = transaction
            for grant in transaction.moving:
                if grant.slot is not None:
                    self.holders.setdefault(grant.slot, []).append((transaction, grant))
        return PASS

    def copy(self, request: Mapping[str, Any], result: Mapping[str, Any]) -> Outcome:
        """A load that is wholly copied shows what it was granted."""
        transaction = self.transactions.get(request["txn"])
        if transaction is None:
            return PASS
        asked, left = request.get("bytes"), self.slot_bytes - transaction.copied
        each = left if asked is None else min(asked, left)
        if result["bytes"] > each * len(transaction.moving):
            return broken(
                Rule.WITNESS_FALSE, "/bytes", f"{result['bytes']} bytes moved where {each} a key were asked for"
            )
        transaction.copied += result["bytes"] // max(1, len(transaction.moving))
        if transaction.mode != "load" or transaction.copied < self.slot_bytes:
            return PASS
        for index, (grant, rows) in enumerate(zip(transaction.grants, result.get("data", ()), strict=False)):
            if rows is not None:
                outcome = self._served(grant.key, grant.sees, rows, f"/data/{index}")
                if not outcome.holds:
                    return outcome
        return PASS

    def complete(self, request: Mapping[str, Any], result: Mapping[str, Any]) -> Outcome:
        """A live store that is whole, and whose receipt is its own, publishes its rows; everything else ends."""
        transaction = self.transactions.get(request["txn"])
        if transaction is None:
            return PASS
        lives = transaction.state in (State.LIVE, State.EXPIRED) and result["outcome"] == "done"
        for grant in transaction.moving if lives else ():
            if grant.key[1] in request.get("failed", ()) or transaction.copied < self.slot_bytes:
                continue
            entry = self.entry(grant.key)
            if transaction.mode == "load":
                entry.replicas |= {"device"} if entry.replicas else set()
            elif not grant.superseded and self._receipt_fits(transaction, grant, request.get("receipt", {})):
                same = entry.serves == grant.sees
                entry.serves = set(grant.sees)
                entry.replicas = {*entry.replicas, "host"} if same else {"host"}
                entry.doubtful = False
                self._supersede(grant.key, but=grant)
        self._end(transaction)
        return PASS

    def cancel(self, request: Mapping[str, Any], result: Mapping[str, Any]) -> Outcome:
        """A dead transaction publishes nothing; its slots wait for its completion."""
        transaction = self.transactions.get(request["txn"])
        if transaction is not None and result["outcome"] == "dead":
            transaction.state = State.QUARANTINED
        return PASS

    def advance(self, request: Mapping[str, Any], result: Mapping[str, Any]) -> Outcome:
        """Reservations that are too old expire."""
        self.now_ms += request["by_ms"]
        for transaction in self.transactions.values():
            limit = self.ttl_ms.get(transaction.mode)
            if transaction.state is State.LIVE and limit is not None and self.now_ms - transaction.since_ms >= limit:
                transaction.state = State.EXPIRED
        return PASS

    def inject(self, request: Mapping[str, Any], result: Mapping[str, Any]) -> Outcome:
        """Rows that were damaged may be missed; an engine with checksums may not serve them."""
        seen = self.claims("checksums") or (request["fault"] == "truncate" and self.claims("validates_length"))
        if result["damaged"] and request["fault"] in ("corrupt", "truncate") and not seen:
            self.entry(_key(request, request["key"])).doubtful = True
        return PASS

    # --- what they share ----------------------------------------------------------------------------------------

    def entry(self, key: Key) -> Entry:
        """The account of a key."""
        return self.entries.setdefault(key, Entry())

    def live(self, key: Key, mode: str | None = None) -> list[tuple[Transaction, Grant]]:
        """Transactions that hold the key and have not ended."""
        return [
            (transaction, grant)
            for transaction in self.transactions.values()
            if transaction.state is State.LIVE and mode in (None, transaction.mode)
            for grant in transaction.grants
            if grant.key == key
        ]

    def _refused(self, name: str, request: Mapping[str, Any]) -> Outcome:
        """A completion that was refused ends its transaction: it published nothing."""
        transaction = self.transactions.get(request.get("txn", ""))
        if name == "complete" and transaction is not None:
            self._end(transaction)
        return PASS

    def _end(self, transaction: Transaction) -> None:
        del self.transactions[transaction.name]
        for grant in transaction.moving:
            if grant.slot is not None:
                left = [one for one in self.holders.pop(grant.slot, []) if one[0] is not transaction]
                if left:
                    self.holders[grant.slot] = left

    def _supersede(self, key: Key, but: Grant | None = None) -> None:
        for transaction in self.transactions.values():
            for grant in transaction.grants if transaction.mode == "store" else ():
                if grant.key == key and grant is not but:
                    grant.superseded = True

    def _granted(self, mode: str, grant: Grant, at: str) -> Outcome:
        key, name = grant.key, grant.key[1]
        if mode == "load" and grant.outcome in ("granted", "resident") and not grant.sees:
            return self._unpublished(key, at, grant.outcome)
        if grant.outcome == "joined" and not self.live(key):
            return broken(Rule.JOINED_NOTHING, at, f"a load of {name} waits for a copy that nobody makes")
        if grant.outcome != "granted":
            return PASS
        if mode == "store" and any(other.outcome == "granted" for _, other in self.live(key, "store")):
            return broken(Rule.WRITTEN_TWICE, at, f"two live stores may publish {name}")
        for other, held in self.holders.get(grant.slot, ()) if grant.slot is not None else ():
            if other.touches and "store" in (mode, other.mode):
                whose = f"{other.mode} {other.name} of {held.key[1]}, {other.state}"
                return broken(Rule.SLOT_REUSED, at, f"slot {grant.slot} was given to {name} under the {whose}")
        return PASS

    def _leased(self, key: Key) -> bool:
        return any(grant.outcome == "granted" for _, grant in self.live(key, "load"))

    def _receipt_fits(self, transaction: Transaction, grant: Grant, receipts: Mapping[str, Any]) -> bool:
        receipt = receipts.get(grant.key[1], {})
        truth = {
            "bytes": self.slot_bytes,
            "slot": grant.slot,
            "generation": grant.generation,
            "owner": transaction.owner,
        }
        mine = all(receipt.get(name, value) == value for name, value in truth.items())
        return mine and receipt.get("checksum", min(grant.sees)) in grant.sees

    def _pending(self, key: Key) -> Outcome:
        busy = any(grant.key == key for transaction in self.transactions.values() for grant in transaction.grants)
        if busy or self.claims("async"):
            return PASS
        return broken(Rule.NEVER_READY, "", f"{key[1]} is pending and nothing is under way for it")

    def _unpublished(self, key: Key, at: str, told: str) -> Outcome:
        why = (
            "nothing was ever stored"
            if not self.entry(key).once
            else "what was stored is not validated, or was removed"
        )
        return broken(Rule.PUBLISHED_UNVALIDATED, at, f"{told} for {key[1]}, of which {why}")

    def _served(self, key: Key, legal: set[Payload], rows: Any, at: str) -> Outcome:
        payload = digest(rows)
        entry = self.entry(key)
        if payload in legal or entry.doubtful:
            return PASS
        if not legal:
            return self._unpublished(key, at, "rows")
        owner = next((other for other, one in self.entries.items() if other != key and payload in one.once), None)
        if payload in entry.once:
            whose = "an old or unpublished generation of it"
        elif owner is not None:
            whose = f"the rows of {owner[1]}" + (f" of tenant {owner[0]}" if owner[0] != key[0] else "")
        else:
            whose = "rows that were never stored: torn or damaged ones"
        return broken(Rule.WRONG_BYTES, at, f"a read of {key[1]} returned {whose}")


def broken(rule: Rule, at: str, message: str) -> Outcome:
    """A reply that contradicts a rule."""
    return Outcome(Verdict.FAIL, Finding(None, at, f"{rule}: {message}"))


def digest(rows: Any) -> Payload:
    """SHA-256 of rows; a trace gives ``{"sha256": ...}`` in their place."""
    if isinstance(rows, Mapping):
        return str(rows["sha256"])
    return hashlib.sha256(np.ascontiguousarray(rows).tobytes()).hexdigest()


def _key(request: Mapping[str, Any], name: str) -> Key:
    return (request.get("tenant", ""), name)


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
} | {"control.advance_clock": ResidencyMonitor.advance, "control.inject": ResidencyMonitor.inject}
"""Op to what the monitor makes of its result."""
