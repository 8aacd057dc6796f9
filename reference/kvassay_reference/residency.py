"""Residency: replicas of rows in tiers, and the transactions that make and read them.

A state belongs to a replica, and ``TRANSITIONS`` is all that may happen to one. A copy has a destination that nobody
else sees until its transaction publishes it, and a source that stays readable meanwhile. Slots are memory with an
allocation generation; a slot whose copy may still run is given to nobody, whatever became of its transaction.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar, NamedTuple

from .errors import Refusal

Key = tuple[str, str]
"""Tenant and key."""
NEAREST = ("device", "host", "secondary")
"""Tiers, the nearest first."""
R_MIN = 1
"""Valid replicas of the current authority epoch that a release must leave."""


class State(StrEnum):
    """States of one replica."""

    UNUSED = "UNUSED"
    GPU_VISIBLE = "GPU_VISIBLE"
    DEMOTE_RESERVED = "DEMOTE_RESERVED"
    COPY_OUT = "COPY_OUT"
    HOST_VALID = "HOST_VALID"
    GPU_RELEASED = "GPU_RELEASED"
    HOST_RELEASED = "HOST_RELEASED"
    PROMOTE_RESERVED = "PROMOTE_RESERVED"
    COPY_IN = "COPY_IN"
    GPU_STAGED = "GPU_STAGED"
    SECONDARY_VALID = "SECONDARY_VALID"
    SECONDARY_RELEASED = "SECONDARY_RELEASED"
    QUARANTINED = "QUARANTINED"
    """Its transaction is dead and its copy may still run."""
    ABORTED = "ABORTED"


class Transition(NamedTuple):
    """From a state by an event to a state."""

    state: State
    event: str
    target: State


TRANSITIONS: tuple[Transition, ...] = (
    Transition(State.UNUSED, "put-device", State.GPU_VISIBLE),
    Transition(State.UNUSED, "put-host", State.HOST_VALID),
    Transition(State.UNUSED, "reserve-store", State.DEMOTE_RESERVED),
    Transition(State.DEMOTE_RESERVED, "copy", State.COPY_OUT),
    Transition(State.COPY_OUT, "copy", State.COPY_OUT),
    Transition(State.COPY_OUT, "publish", State.HOST_VALID),
    Transition(State.UNUSED, "reserve-load", State.PROMOTE_RESERVED),
    Transition(State.PROMOTE_RESERVED, "copy", State.COPY_IN),
    Transition(State.COPY_IN, "copy", State.COPY_IN),
    Transition(State.COPY_IN, "arrive", State.GPU_STAGED),
    Transition(State.GPU_STAGED, "copy", State.GPU_STAGED),
    Transition(State.GPU_STAGED, "publish", State.GPU_VISIBLE),
    Transition(State.UNUSED, "spill", State.SECONDARY_VALID),
    Transition(State.GPU_VISIBLE, "release", State.GPU_RELEASED),
    Transition(State.HOST_VALID, "release", State.HOST_RELEASED),
    Transition(State.SECONDARY_VALID, "release", State.SECONDARY_RELEASED),
    *(
        Transition(state, event, target)
        for state in (
            State.DEMOTE_RESERVED,
            State.COPY_OUT,
            State.PROMOTE_RESERVED,
            State.COPY_IN,
            State.GPU_STAGED,
        )
        for event, target in (("kill", State.QUARANTINED), ("abort", State.ABORTED))
    ),
    Transition(State.QUARANTINED, "copy", State.QUARANTINED),
    Transition(State.QUARANTINED, "arrive", State.QUARANTINED),
    Transition(State.QUARANTINED, "kill", State.QUARANTINED),
    Transition(State.QUARANTINED, "abort", State.ABORTED),
)
NEXT = {(row.state, row.event): row.target for row in TRANSITIONS}
VALID = frozenset({State.GPU_VISIBLE, State.HOST_VALID, State.SECONDARY_VALID})
"""States in which a replica may be read."""


class Life(StrEnum):
    """Where a transaction stands."""

    LIVE = "live"
    EXPIRED = "expired"
    DEAD = "dead"
    """Cancelled, or cut off by a reset."""


@dataclass(eq=False)
class Slot:
    """Memory for the rows of one key."""

    index: int
    memory: bytearray
    generation: int = 0
    """Counts allocations: the same index with another generation is another place."""
    holders: int = 0
    """A replica, and the copies that may still read or write."""


@dataclass(eq=False)
class Replica:
    """One copy of one generation of a key's rows, or what is to become one."""

    tier: str
    memory: bytearray
    slot: Slot | None = None
    """``None`` for memory that is not the store's: the caller's destination, the secondary tier."""
    sha256: str = ""
    """Of the rows as they were published."""
    epoch: int = 0
    """Authority epoch under which it was validated."""
    used: int = 0
    state: State = State.UNUSED

    def on(self, event: str) -> None:
        """Move by an event; raises :class:`ValueError` for one that the table does not have."""
        if (self.state, event) not in NEXT:
            raise ValueError(f"a replica that is {self.state} cannot {event}")
        self.state = NEXT[self.state, event]


@dataclass
class Entry:
    """The directory's row of a key."""

    generation: int = 0
    """Cache generation: counts changes of what the key stands for."""
    epoch: int = 0
    """Authority epoch: counts changes of what may recover it."""
    replicas: dict[str, Replica] = field(default_factory=dict)
    """Tier to its published replica."""


@dataclass(eq=False)
class Grant:
    """What one key of a transaction got."""

    key: Key
    outcome: str
    tier: str | None = None
    generation: int = 0
    """Cache generation when it was reserved."""
    rows: bytes = b""
    """Of a store, the source."""
    source: Replica | None = None
    """Of a load."""
    target: Replica | None = None
    slot_generation: int | None = None
    leader: Grant | None = None
    """Of a joined load, the copy that it waits for."""
    waits: bool = False
    waiters: int = 0
    copied: int = 0
    delivered: bool | None = None
    """Whether the copy was published; ``None`` while it runs."""

    @property
    def moves(self) -> bool:
        """Whether the transaction copies this key."""
        return self.outcome == "granted"

    @property
    def place(self) -> Slot | None:
        """The slot of the store that is copied into or from."""
        end = self.source if self.source is not None else self.target
        return None if end is None else end.slot


@dataclass(eq=False)
class Transaction:
    """A reservation and its copies."""

    name: str
    mode: str
    owner: str
    since_ms: int
    grants: list[Grant] = field(default_factory=list)
    life: Life = Life.LIVE
    detached: bool = False
    """Its owner went away and others wait for its copy."""

    @property
    def moving(self) -> list[Grant]:
        """Grants that are copied."""
        return [grant for grant in self.grants if grant.moves]


class Residency:
    """A store of one slot size. Times are milliseconds of a clock that :meth:`advance` moves."""

    evicts: ClassVar[bool] = True
    secondary: ClassVar[bool] = True
    leases: ClassVar[bool] = True
    joins: ClassVar[bool] = True
    authority: ClassVar[bool] = True
    """Whether a put makes a device replica, and a load a second one; else all rows are on the host."""
    content_addressed: ClassVar[bool] = False

    def __init__(
        self, slots: int, slot_bytes: int, write_ttl_ms: int | None = None, read_ttl_ms: int | None = None
    ) -> None:
        self.slot_bytes = slot_bytes
        self.ttl_ms = {"store": write_ttl_ms, "load": read_ttl_ms}
        self.slots = [Slot(index, bytearray(slot_bytes)) for index in range(slots)]
        self.entries: dict[Key, Entry] = {}
        self.transactions: dict[str, Transaction] = {}
        """Those whose completion has not come."""
        self.begun = 0
        self.now_ms = 0
        self.uses = 0

    # --- single calls -------------------------------------------------------------------------------------------

    def put(self, key: Key, rows: bytes) -> str:
        """Make a device replica of a new generation: ``stored``, ``replaced``, ``resident`` or ``refused``."""
        entry = self.entry(key)
        known = bool(self.valid(entry))
        if known and self.content_addressed:
            return "resident"
        slot = self.room_for(entry)
        if slot is None:
            return "refused"
        self.renew(entry)
        replica = self.occupy(slot, "device" if self.authority else "host")
        replica.memory[:] = rows
        replica.on(f"put-{replica.tier}")
        self.install(entry, replica, digest(rows))
        return "replaced" if known else "stored"

    def get(self, key: Key) -> tuple[str, bytes | None, str | None]:
        """Outcome, rows and tier of a read; a replica that is damaged is dropped, and the next one is read."""
        entry = self.entry(key)
        for replica in self.valid(entry):
            if self.intact(bytes(replica.memory), replica):
                self.touch(replica)
                return "hit", bytes(replica.memory), replica.tier
            self.drop(entry, replica)
        return ("pending" if self.writers(key) else "miss"), None, None

    def lookup(self, key: Key) -> tuple[str, str | None]:
        """State and nearest tier of a key; nothing changes by it."""
        found = self.valid(self.entry(key))
        if found:
            return "ready", found[0].tier
        return ("pending" if self.writers(key) else "miss"), None

    def remove(self, keys: Sequence[Key], tier: str | None = None, force: bool = False) -> list[str]:
        """Give up all replicas, or those of one tier, which must not be the last; all keys or none."""
        if tier is not None:
            for key in keys:
                if tier in self.entry(key).replicas and not self.survives_without(self.entry(key), tier):
                    raise Refusal("LAST_AUTHORITY", key[1])
        return [self.remove_one(key, tier, force) for key in keys]

    def remove_one(self, key: Key, tier: str | None, force: bool) -> str:
        """``removed``, ``absent``, or ``leased`` while copies from or for it are under way."""
        entry = self.entry(key)
        going = [one for one in entry.replicas.values() if tier in (None, one.tier)]
        users = [*self.writers(key), *(user for one in going for user in self.readers(one))]
        if users and not force and self.protected(users):
            return "leased"
        for one in going:
            self.drop(entry, one)
        if tier is None:
            self.renew(entry)
        return "removed" if going or (users and tier is None) else "absent"

    def protected(self, users: Sequence[Transaction]) -> bool:
        """Whether transactions keep what they copy from being removed."""
        return self.leases or any(user.mode == "store" for user in users)

    def reset(self) -> None:
        """Forget every key; stores under way die, and a load under way forbids it."""
        if self.leases and any(self.leased(transaction) for transaction in self.live()):
            raise Refusal("BUSY", "a load is under way")
        for transaction in self.live():
            self.kill(transaction, Life.DEAD)
        for entry in self.entries.values():
            self.renew(entry)

    def advance(self, by_ms: int) -> int:
        """Time passes; reservations end when they are as old as their limit."""
        self.now_ms += by_ms
        for transaction in self.live():
            if self.overdue(transaction):
                self.kill(transaction, Life.EXPIRED)
        return self.now_ms

    def inject(self, key: Key, fault: str) -> bool:
        """Damage the replica that a read would use; whether there was one."""
        entry = self.entry(key)
        found = self.valid(entry)
        if not found:
            return False
        memory = found[0].memory
        if fault == "evict":
            self.drop(entry, found[0])
        elif fault == "corrupt":
            memory[len(memory) // 2 : len(memory) // 2 + 1] = bytes(
                0xFF ^ one for one in memory[len(memory) // 2 :][:1]
            )
        else:
            del memory[0 if fault == "drop" else len(memory) // 2 :]
        return True

    # --- transactions -------------------------------------------------------------------------------------------

    def reserve(self, mode: str, keys: Sequence[Key], owner: str, rows: Sequence[bytes] = ()) -> Transaction:
        """Begin a transaction over the keys; its name is empty when nothing is to be copied or waited for."""
        self.begun += 1
        transaction = Transaction(f"t{self.begun}", mode, owner, self.now_ms)
        for index, key in enumerate(keys):
            grant = self.grant_store(key, rows[index]) if mode == "store" else self.grant_load(key)
            transaction.grants.append(grant)
        if any(grant.outcome in ("granted", "joined") for grant in transaction.grants):
            self.transactions[transaction.name] = transaction
        else:
            transaction.name = ""
        return transaction

    def grant_store(self, key: Key, rows: bytes) -> Grant:
        """A slot for rows that are not there yet and that nobody else is writing."""
        entry = self.entry(key)
        if self.writers(key):
            return Grant(key, "pending")
        held = self.holding(entry, rows)
        if held is not None:
            return Grant(key, "resident", held.tier)
        slot = self.allocate()
        if slot is None:
            return Grant(key, "refused")
        target = self.occupy(slot, "host")
        target.on("reserve-store")
        return Grant(key, "granted", "host", entry.generation, rows, None, target, slot.generation)

    def grant_load(self, key: Key) -> Grant:
        """A lease on the nearest replica, a place in the queue of a copy under way, or nothing to copy."""
        entry = self.entry(key)
        found = self.valid(entry)
        if not found:
            return Grant(key, "pending" if self.writers(key) else "miss")
        if found[0].tier == "device":
            self.touch(found[0])
            return Grant(key, "resident", "device")
        leader = self.under_way(key, entry) if self.joins else None
        if leader is not None:
            leader.waiters += 1
            return Grant(key, "joined", leader.tier, entry.generation, leader=leader, waits=True)
        source = found[0]
        self.touch(source)
        self.read_from(source)
        target = Replica("device", bytearray(self.slot_bytes))
        target.on("reserve-load")
        number = None if source.slot is None else source.slot.generation
        return Grant(key, "granted", source.tier, entry.generation, b"", source, target, number)

    def copy(self, name: str, count: int | None = None) -> tuple[int, list[bytes | None] | None]:
        """Move bytes of every key that is copied: how many in all, and of a load what stands at its destination.

        A store that is dead still copies, into a slot that is kept from others: no engine stops at once.
        """
        transaction = self.find(name)
        if transaction.mode == "load":
            self.demand_live(transaction)
        moved = sum(self.move(transaction, grant, count) for grant in transaction.moving)
        if transaction.mode == "store":
            return moved, None
        return moved, [self.seen(grant) for grant in transaction.grants]

    def move(self, transaction: Transaction, grant: Grant, count: int | None) -> int:
        """Bytes of one key from where the last copy ended."""
        assert grant.target is not None
        source = grant.rows if grant.source is None else grant.source.memory
        end = len(source) if count is None else min(len(source), grant.copied + count)
        moved = max(0, end - grant.copied)
        if moved:
            grant.target.on("copy")
            grant.target.memory[grant.copied : end] = source[grant.copied : end]
            grant.copied = end
        if transaction.mode == "load" and grant.copied == self.slot_bytes and grant.target.state is State.COPY_IN:
            grant.target.on("arrive")
        return moved

    def seen(self, grant: Grant) -> bytes | None:
        """What stands at a load's destination; a waiter sees the rows that were published for it."""
        if grant.moves:
            assert grant.target is not None
            return bytes(grant.target.memory)
        if grant.leader is not None and grant.leader.delivered:
            assert grant.leader.target is not None
            return bytes(grant.leader.target.memory)
        return None

    def complete(
        self, name: str, failed: Sequence[str] = (), receipts: Mapping[str, Mapping[str, Any]] | None = None
    ) -> str:
        """Validate all keys that did not fail, then publish all or none: ``done``, or ``empty`` for no key."""
        transaction = self.find(name)
        if transaction.life is not Life.LIVE:
            self.end(transaction)
            raise Refusal("TRANSACTION_DEAD", f"{name} is {transaction.life}")
        arrived = [grant for grant in transaction.moving if grant.key[1] not in failed]
        for grant in arrived:
            reason = self.objection(transaction, grant, (receipts or {}).get(grant.key[1], {}))
            if reason:
                self.condemn(grant)
                self.end(transaction)
                raise Refusal(reason, grant.key[1])
        for grant in arrived:
            self.publish(transaction, grant)
        waited = [grant for grant in transaction.grants if grant.leader is not None and grant.leader.delivered]
        self.end(transaction)
        return "done" if arrived or waited else "empty"

    def objection(self, transaction: Transaction, grant: Grant, receipt: Mapping[str, Any]) -> str:
        """Why the copy of a key may not be published; empty when it may."""
        assert grant.target is not None
        place = grant.place
        slot = None if place is None else place.index
        rows = bytes(grant.target.memory)
        if self.entry(grant.key).generation != grant.generation:
            return "STALE_CACHE_GENERATION"
        if (receipt.get("slot", slot), receipt.get("generation", grant.slot_generation)) != (
            slot,
            grant.slot_generation,
        ) or (place is not None and place.generation != grant.slot_generation):
            return "RECYCLED_DESTINATION"
        if receipt.get("owner", transaction.owner) != transaction.owner:
            return "TRANSFER_OF_OTHER_OWNER"
        if grant.copied != self.slot_bytes or receipt.get("bytes", self.slot_bytes) != self.slot_bytes:
            return "SHORT_COPY"
        if receipt.get("checksum", digest(rows)) != digest(rows):
            return "PAYLOAD_DIGEST_MISMATCH"
        if grant.source is not None and not self.intact(rows, grant.source):
            return "PAYLOAD_DIGEST_MISMATCH"
        return ""

    def condemn(self, grant: Grant) -> None:
        """A source that is damaged is no replica."""
        if grant.source is not None and not self.intact(bytes(grant.source.memory), grant.source):
            self.drop(self.entry(grant.key), grant.source)

    def publish(self, transaction: Transaction, grant: Grant) -> None:
        """The copy becomes the replica of its tier; replicas of other rows go."""
        entry, target = self.entry(grant.key), grant.target
        assert target is not None
        sha256 = digest(bytes(target.memory))
        if transaction.mode == "store" and {one.sha256 for one in self.valid(entry)} != {sha256}:
            self.renew(entry)
        target.on("publish")
        if self.authority or transaction.mode == "store":
            self.install(entry, target, sha256)
        grant.delivered = True

    def cancel(self, name: str) -> str:
        """``dead``, or ``detached`` while others wait for the copy; ``unknown`` for what is over."""
        transaction = self.transactions.get(name)
        if transaction is None:
            return "unknown"
        if transaction.life is Life.LIVE and any(grant.waiters for grant in transaction.grants):
            transaction.detached = True
            return "detached"
        self.kill(transaction, Life.DEAD)
        return "dead"

    # --- what they share ----------------------------------------------------------------------------------------

    def entry(self, key: Key) -> Entry:
        """The directory's row of a key."""
        return self.entries.setdefault(key, Entry())

    def valid(self, entry: Entry) -> list[Replica]:
        """Replicas that may be read, the nearest first."""
        found = (entry.replicas.get(tier) for tier in NEAREST)
        return [one for one in found if one is not None and one.state in VALID and one.epoch == entry.epoch]

    def survives_without(self, entry: Entry, tier: str) -> bool:
        """Whether enough valid replicas of the current epoch are left."""
        return sum(one.tier != tier for one in self.valid(entry)) >= R_MIN

    def holding(self, entry: Entry, rows: bytes) -> Replica | None:
        """The replica that makes a store of these rows needless."""
        for one in self.valid(entry):
            if self.content_addressed or (one.tier == "host" and one.sha256 == digest(rows)):
                return one
        return None

    def intact(self, rows: bytes, replica: Replica) -> bool:
        """Whether rows are those that were published."""
        return len(rows) == self.slot_bytes and digest(rows) == replica.sha256

    def touch(self, replica: Replica) -> None:
        """It was used just now."""
        self.uses += 1
        replica.used = self.uses

    def install(self, entry: Entry, replica: Replica, sha256: str) -> None:
        """Make a replica the one of its tier."""
        old = entry.replicas.pop(replica.tier, None)
        if old is not None:
            self.release(old)
        replica.sha256, replica.epoch = sha256, entry.epoch
        entry.replicas[replica.tier] = replica
        self.touch(replica)

    def renew(self, entry: Entry) -> None:
        """The key stands for other rows, or none: its replicas go, and what is under way for it is stale."""
        for one in list(entry.replicas.values()):
            self.drop(entry, one)
        entry.generation += 1
        entry.epoch += 1

    def drop(self, entry: Entry, replica: Replica) -> None:
        """A replica goes from the directory, and its memory as soon as no copy reads it."""
        if entry.replicas.get(replica.tier) is replica:
            del entry.replicas[replica.tier]
            self.release(replica)

    def release(self, replica: Replica) -> None:
        """It holds its memory no longer."""
        replica.on("release")
        self.let_go(replica.slot)

    # --- slots --------------------------------------------------------------------------------------------------

    def read_from(self, source: Replica) -> None:
        """A copy will read: the slot is kept, whatever becomes of the replica."""
        if source.slot is not None:
            source.slot.holders += 1

    def read_no_more(self, source: Replica) -> None:
        """The copy is over."""
        self.let_go(source.slot)

    def let_go(self, slot: Slot | None) -> None:
        """One less."""
        if slot is not None:
            slot.holders -= 1

    def occupy(self, slot: Slot, tier: str) -> Replica:
        """A new allocation of a free slot."""
        slot.generation += 1
        slot.holders += 1
        slot.memory.extend(bytes(self.slot_bytes - len(slot.memory)))
        return Replica(tier, slot.memory, slot)

    def allocate(self) -> Slot | None:
        """A free slot; where there is none, that of the replica that can best be done without."""
        free = self.free()
        if free is None and self.evicts:
            victim = self.victim()
            if victim is not None:
                self.evict(*victim)
                free = self.free()
        return free

    def free(self) -> Slot | None:
        """The first free slot."""
        return next((slot for slot in self.slots if not slot.holders), None)

    def room_for(self, entry: Entry) -> Slot | None:
        """A slot for new rows of a key, whose old ones go."""
        own = next((one for one in entry.replicas.values() if one.slot is not None and one.slot.holders == 1), None)
        if own is None or self.free() is not None:
            return self.allocate()
        self.drop(entry, own)
        return own.slot

    def victim(self) -> tuple[Entry, Replica] | None:
        """Of the replicas that no copy holds, one whose rows are also elsewhere, else the one not used for longest."""
        found = [
            (self.survives_without(entry, one.tier), one.used, entry, one)
            for entry in self.entries.values()
            for one in entry.replicas.values()
            if one.slot is not None and one.slot.holders == 1
        ]
        best = min(found, key=lambda row: (not row[0], row[1]), default=None)
        return None if best is None else best[2:]

    def evict(self, entry: Entry, replica: Replica) -> None:
        """Free a replica's slot; the last one goes to the secondary tier first."""
        if self.secondary and not self.survives_without(entry, replica.tier):
            below = Replica("secondary", bytearray(replica.memory))
            below.on("spill")
            self.install(entry, below, replica.sha256)
        self.drop(entry, replica)

    # --- transactions under way ---------------------------------------------------------------------------------

    def live(self) -> list[Transaction]:
        """Transactions that can still publish."""
        return [one for one in self.transactions.values() if one.life is Life.LIVE]

    def grants(self, mode: str) -> Iterator[tuple[Transaction, Grant]]:
        """What live transactions copy."""
        return ((one, grant) for one in self.live() if one.mode == mode for grant in one.moving)

    def writers(self, key: Key) -> list[Transaction]:
        """The store of the key that is under way and may still publish; there is one at most."""
        current = self.entry(key).generation
        return [one for one, grant in self.grants("store") if (grant.key, grant.generation) == (key, current)]

    def under_way(self, key: Key, entry: Entry) -> Grant | None:
        """The load that another one of the same rows can wait for."""
        same = (grant for _, grant in self.grants("load") if grant.key == key)
        return next((grant for grant in same if grant.generation == entry.generation), None)

    def leased(self, transaction: Transaction) -> bool:
        """Whether it protects what it reads."""
        return transaction.mode == "load" and bool(transaction.moving)

    def readers(self, replica: Replica) -> list[Transaction]:
        """Live loads that read a replica."""
        return [one for one, grant in self.grants("load") if grant.source is replica]

    def overdue(self, transaction: Transaction) -> bool:
        """Whether its reservation has ended."""
        limit = self.ttl_ms[transaction.mode]
        return limit is not None and self.now_ms - transaction.since_ms >= limit

    def find(self, name: str) -> Transaction:
        """The transaction of a handle; raises :class:`Refusal`."""
        if name in self.transactions:
            return self.transactions[name]
        number = name.removeprefix("t")
        begun = number.isdecimal() and 1 <= int(number) <= self.begun
        raise Refusal("TRANSACTION_DEAD" if begun else "UNKNOWN_TRANSACTION", name)

    def demand_live(self, transaction: Transaction) -> None:
        """Raise :class:`Refusal` for one that is dead or expired."""
        if transaction.life is not Life.LIVE:
            raise Refusal("TRANSACTION_DEAD", f"{transaction.name} is {transaction.life}")

    def kill(self, transaction: Transaction, life: Life) -> None:
        """It can publish no more; its slots wait for its completion, and who waits for it gets nothing."""
        if transaction.life is Life.LIVE:
            transaction.life = life
        for grant in transaction.moving:
            assert grant.target is not None
            grant.target.on("kill")
        self.leave(transaction)

    def leave(self, transaction: Transaction) -> None:
        """Its waiting ends: a copy that went on for it alone dies."""
        for grant in transaction.grants:
            if grant.waits and grant.leader is not None:
                grant.waits = False
                grant.leader.waiters -= 1
        for other in self.live():
            if other.detached and not any(grant.waiters for grant in other.grants):
                self.kill(other, Life.DEAD)

    def end(self, transaction: Transaction) -> None:
        """Its completion has come: no copy of it runs, and its slots are free but for what it published."""
        self.transactions.pop(transaction.name)
        for grant in transaction.moving:
            assert grant.target is not None
            if grant.source is not None:
                self.read_no_more(grant.source)
            if not grant.delivered:
                grant.delivered = False
                grant.target.on("abort")
                self.let_go(grant.target.slot)
        self.leave(transaction)


def digest(rows: bytes) -> str:
    """SHA-256 of rows."""
    return hashlib.sha256(rows).hexdigest()
