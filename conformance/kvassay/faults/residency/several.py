"""Faults that show with a second transaction: counts that are marks, tables by key or owner, queues that stop early."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kvassay_reference.errors import Refusal
from kvassay_reference.residency import Entry, Grant, Key, Life, Replica, Residency, Slot, Transaction

from ...adapters.base import EngineAdapter
from ..base import Fault
from .base import Remembering, cases, slot_of


class LeaseIsAMark(Fault):
    """A slot is marked as read, and the first load that ends takes the mark off."""

    requirement = "RES-033"
    killed_by = cases("once/one-of-two-loads", "once/one-of-two-loads-under-pressure")

    class Store(Residency):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            self.marked: set[int] = set()

        def read_from(self, source: Replica) -> None:
            if source.slot is not None and source.slot.index not in self.marked:
                self.marked.add(source.slot.index)
                super().read_from(source)

        def read_no_more(self, source: Replica) -> None:
            if source.slot is not None and source.slot.index in self.marked:
                self.marked.discard(source.slot.index)
                super().read_no_more(source)

        def readers(self, replica: Replica) -> list[Transaction]:
            marked = replica.slot is None or replica.slot.index in self.marked
            return super().readers(replica) if marked else []

    store_class = Store


class CancelledLeaseEndsTwice(Fault):
    """A load gives its slot back when it is cancelled, and once more when its copy has ended."""

    requirement = "RES-033"
    killed_by = cases("once/one-of-two-loads-under-pressure")

    class Store(Residency):
        def kill(self, transaction: Transaction, life: Life) -> None:
            if transaction.life is Life.LIVE and life is Life.DEAD:
                for grant in transaction.moving:
                    if grant.source is not None:
                        self.read_no_more(grant.source)
            super().kill(transaction, life)

        def let_go(self, slot: Slot | None) -> None:
            if slot is not None and slot.holders:
                slot.holders -= 1

    store_class = Store


class FailedLeaseEndsAgain(Fault):
    """The second callback of a load gives a slot back that another load reads by now."""

    requirement = "RES-033"
    killed_by = cases("once/failed-and-told-again")

    class Store(Remembering):
        def complete(
            self, name: str, failed: Sequence[str] = (), receipts: Mapping[str, Mapping[str, Any]] | None = None
        ) -> str:
            if name in self.over:
                for grant in self.over[name].moving:
                    if grant.source is not None and grant.source.slot is not None and grant.source.slot.holders:
                        self.read_no_more(grant.source)
            return super().complete(name, failed, receipts)

    store_class = Store


class FailedLeaseStays(Fault):
    """A key whose load failed keeps the slot that it was read from."""

    requirement = "RES-033"
    killed_by = cases("back/load-failed")

    class Store(Residency):
        def complete(
            self, name: str, failed: Sequence[str] = (), receipts: Mapping[str, Mapping[str, Any]] | None = None
        ) -> str:
            for grant in self.find(name).moving:
                if grant.source is not None and grant.key[1] in failed:
                    self.read_from(grant.source)
            return super().complete(name, failed, receipts)

    store_class = Store


class ExpiredLeaseStays(Fault):
    """The completion of an expired load is thrown away, and with it the slot that it was read from."""

    requirement = "RES-012"
    killed_by = cases("back/load-expired")

    class Store(Residency):
        def end(self, transaction: Transaction) -> None:
            if transaction.life is Life.EXPIRED:
                for grant in transaction.moving:
                    if grant.source is not None:
                        self.read_from(grant.source)
            super().end(transaction)

    store_class = Store


class OvertakenKeepsItsSlot(Fault):
    """A store that was overtaken is refused before anybody frees its slot."""

    requirement = "RES-012"
    killed_by = cases("back/overtaken")

    class Store(Residency):
        def complete(
            self, name: str, failed: Sequence[str] = (), receipts: Mapping[str, Mapping[str, Any]] | None = None
        ) -> str:
            moving = self.find(name).moving
            try:
                return super().complete(name, failed, receipts)
            except Refusal as refusal:
                if refusal.reason == "STALE_CACHE_GENERATION":
                    for grant in moving:
                        if grant.target is not None and grant.target.slot is not None:
                            grant.target.slot.holders += 1
                raise

    store_class = Store


class OwnSlotOverwritten(Fault):
    """A full store puts new rows of a key over its old ones, read or not."""

    requirement = "RES-032"
    killed_by = cases("lease/put-over-in-one-slot")

    class Store(Residency):
        def room_for(self, entry: Entry) -> Slot | None:
            slot = super().room_for(entry)
            own = next((one for one in entry.replicas.values() if one.slot is not None), None)
            if slot is not None or own is None:
                return slot
            self.drop(entry, own)
            return own.slot

    store_class = Store


class LimitMoves(Fault):
    """Each copy begins the limit of its reservation anew."""

    requirement = "RES-035"
    killed_by = cases("expiry/copied-in-between", "expiry/load-copied-in-between")

    class Store(Residency):
        def copy(self, name: str, count: int | None = None) -> tuple[int, list[bytes | None] | None]:
            self.find(name).since_ms = self.now_ms
            return super().copy(name, count)

    store_class = Store


class OneExpiresAtATime(Fault):
    """One look at the clock ends one reservation."""

    requirement = "RES-035"
    killed_by = cases("expiry/all-at-once")

    class Store(Residency):
        def advance(self, by_ms: int) -> int:
            self.now_ms += by_ms
            due = next((one for one in self.live() if self.overdue(one)), None)
            if due is not None:
                self.kill(due, Life.EXPIRED)
            return self.now_ms

    store_class = Store


class OldestBlocksTheQueue(Fault):
    """Reservations stand in the order of their beginning, and the look ends at the first that has time left."""

    requirement = "RES-035"
    killed_by = cases("expiry/behind-a-long-one")

    class Store(Residency):
        def advance(self, by_ms: int) -> int:
            self.now_ms += by_ms
            for transaction in self.live():
                if not self.overdue(transaction):
                    break
                self.kill(transaction, Life.EXPIRED)
            return self.now_ms

    store_class = Store


class ExpiredSlotAtOnce(Fault):
    """The slot of an expired store is free, and its copy goes on into it."""

    requirement = "RES-030"
    killed_by = cases("expiry/slot-is-kept")

    class Store(Residency):
        def kill(self, transaction: Transaction, life: Life) -> None:
            if (transaction.mode, life) == ("store", Life.EXPIRED):
                for grant in transaction.moving:
                    self.let_go(slot_of(grant))
            super().kill(transaction, life)

        def end(self, transaction: Transaction) -> None:
            if (transaction.mode, transaction.life) == ("store", Life.EXPIRED):
                for grant in transaction.moving:
                    slot_of(grant).holders += 1
            super().end(transaction)

    store_class = Store


class CancelsItsOwner(Fault):
    """A cancel ends all that its owner has under way."""

    requirement = "RES-029"
    killed_by = cases("cancel/one-of-an-owner")

    class Store(Residency):
        def cancel(self, name: str) -> str:
            owner = self.transactions[name].owner if name in self.transactions else None
            outcome = super().cancel(name)
            for other in self.live():
                if outcome == "dead" and other.owner == owner:
                    self.kill(other, Life.DEAD)
            return outcome

    store_class = Store


class MarkOfAKey(Fault):
    """Keys that are being stored stand in a set, and each completion takes its key out, whoever put it in."""

    requirement = "RES-019"
    killed_by = cases("aba/two-lives-of-a-store")

    class Store(Residency):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            self.marked: set[Key] = set()

        def grant_store(self, key: Key, rows: bytes) -> Grant:
            grant = super().grant_store(key, rows)
            if grant.moves:
                self.marked.add(key)
            return grant

        def writers(self, key: Key) -> list[Transaction]:
            return super().writers(key) if key in self.marked else []

        def end(self, transaction: Transaction) -> None:
            self.marked -= {grant.key for grant in transaction.moving}
            super().end(transaction)

    store_class = Store


class AbsentIsNotStale(Fault):
    """The generation of a store is compared only if its key is there."""

    requirement = "RES-021"
    killed_by = cases("overtaken/by-force")

    class Store(Residency):
        def objection(self, transaction: Transaction, grant: Grant, receipt: Mapping[str, Any]) -> str:
            entry = self.entry(grant.key)
            if transaction.mode == "store" and not self.valid(entry):
                grant.generation = entry.generation
            return super().objection(transaction, grant, receipt)

    store_class = Store


class RingOfFour(Fault):
    """Sources of stores are pinned in four buffers, and the fifth is the first again."""

    requirement = "RES-016"
    killed_by = cases("source/six-at-once")

    class Store(Residency):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            self.ring: list[Grant] = []

        def grant_store(self, key: Key, rows: bytes) -> Grant:
            grant = super().grant_store(key, rows)
            if grant.moves:
                self.ring.append(grant)
                if len(self.ring) > 4:
                    self.ring.pop(0).rows = rows
            return grant

    store_class = Store


class JoinsRowsReplacedByAStore(Fault):
    """A load waits for one under way of the same key, whose rows a store has replaced since."""

    requirement = "RES-036"
    killed_by = cases("join/stored-in-between")

    class Store(Residency):
        def under_way(self, key: Key, entry: Entry) -> Grant | None:
            return next((grant for _, grant in self.grants("load") if grant.key == key), None)

    store_class = Store


class CancelledBufferReused(Fault):
    """The destination of a cancelled load is the next one's, also where others wait for it."""

    requirement = "RES-017"
    killed_by = cases("waiter/buffer-is-kept")

    class Store(Residency):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            self.pool: list[bytearray] = []

        def cancel(self, name: str) -> str:
            moving = self.transactions[name].moving if name in self.transactions else []
            self.pool += [grant.target.memory for grant in moving if grant.source is not None and grant.target]
            return super().cancel(name)

        def grant_load(self, key: Key) -> Grant:
            grant = super().grant_load(key)
            if grant.moves and grant.target is not None and self.pool:
                grant.target.memory = self.pool.pop()
            return grant

    store_class = Store


class ReservedCounts(Fault):
    """A copy that is being made counts as a replica that is left."""

    requirement = "RES-038"
    killed_by = cases("release/while-demoted-by-force")

    class Store(Residency):
        def survives_without(self, entry: Entry, tier: str) -> bool:
            reserved = any(self.entry(grant.key) is entry for _, grant in self.grants("store"))
            return reserved or super().survives_without(entry, tier)

    store_class = Store


class ReleasedOneByOne(Fault):
    """That a replica is the last is found when it comes to its key, after the keys before it."""

    requirement = "RES-038"
    killed_by = cases("release/all-or-none")

    class Store(Residency):
        def remove(self, keys: Sequence[Key], tier: str | None = None, force: bool = False) -> list[str]:
            return [outcome for key in keys for outcome in Residency.remove(self, [key], tier, force)]

    store_class = Store


class DamagedHostCounts(Fault):
    """A replica that a load found damaged still counts as one."""

    requirement = "RES-039"
    killed_by = cases("epoch/damaged-host")

    class Store(Residency):
        def condemn(self, grant: Grant) -> None:
            return

    store_class = Store


FAULTS: tuple[type[EngineAdapter], ...] = (
    LeaseIsAMark,
    CancelledLeaseEndsTwice,
    FailedLeaseEndsAgain,
    FailedLeaseStays,
    ExpiredLeaseStays,
    OvertakenKeepsItsSlot,
    OwnSlotOverwritten,
    LimitMoves,
    OneExpiresAtATime,
    OldestBlocksTheQueue,
    ExpiredSlotAtOnce,
    CancelsItsOwner,
    MarkOfAKey,
    AbsentIsNotStale,
    RingOfFour,
    JoinsRowsReplacedByAStore,
    CancelledBufferReused,
    ReservedCounts,
    ReleasedOneByOne,
    DamagedHostCounts,
)
