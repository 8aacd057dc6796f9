"""Faults of leases and limits of time: lent, ended twice, never ended, counted from elsewhere, outlived."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kvassay_reference.errors import Refusal
from kvassay_reference.residency import Grant, Key, Life, Replica, Residency, Transaction

from ..base import Fault
from .base import Remembering, UnjoinedFault, cases, slot_of
from .cancellation import SlotFreedOnCancel
from .validation import Lenient, Receipts


class RemovedWhileRead(Fault):
    """A removal asks nobody who reads (Mooncake#850)."""

    requirement = "RES-032"
    killed_by = cases("lease/removal", "lease/removal-half-way", "lease/removal-in-a-batch", "release/by-another")

    class Store(Residency):
        def protected(self, users: Sequence[Transaction]) -> bool:
            return any(user.mode == "store" for user in users)

    store_class = Store


class LeasedUntilTheFirstByte(Fault):
    """A lease ends when its copy begins."""

    requirement = "RES-032"
    killed_by = cases("lease/removal-half-way", "expiry/load-in-time")

    class Store(Residency):
        def readers(self, replica: Replica) -> list[Transaction]:
            return [
                one for one in super().readers(replica) if not any(g.copied for g in one.moving if g.source is replica)
            ]

    store_class = Store


class FirstKeyAsked(Fault):
    """Of a batch that is removed only the first key is asked for leases."""

    requirement = "RES-032"
    killed_by = cases("lease/removal-in-a-batch")

    class Store(Residency):
        def remove(self, keys: Sequence[Key], tier: str | None = None, force: bool = False) -> list[str]:
            first = super().remove(keys[:1], tier, force)
            return first + [self.remove_one(key, tier, True) for key in keys[1:]]

    store_class = Store


class EvictedWhileRead(Fault):
    """Eviction asks nobody who reads (LMCache#207)."""

    requirement = "RES-032"
    killed_by = cases("lease/pressure", "lease/pressure-half-way", "lease/reserved-under-pressure")

    class Store(Residency):
        def read_from(self, source: Replica) -> None:
            return

        def read_no_more(self, source: Replica) -> None:
            return

        def intact(self, rows: bytes, replica: Replica) -> bool:
            return True

    store_class = Store


class EvictedWhileWritten(Fault):
    """Under pressure the slot of a store under way is taken (LMCache#207)."""

    requirement = "RES-032"
    killed_by = cases("lease/store-under-pressure")

    class Store(Residency):
        def allocate(self) -> Any:
            slot = self.free()
            if slot is not None:
                return slot
            for _, grant in self.grants("store"):
                if grant.copied:
                    return slot_of(grant)
            return super().allocate()

        def intact(self, rows: bytes, replica: Replica) -> bool:
            return True

    store_class = Store


class ResetWhileRead(Fault):
    """A reset under a load frees the slot that is being read."""

    requirement = "RES-032"
    killed_by = cases("lease/reset-then-reuse")

    class Store(Residency):
        leases = False

        def reset(self) -> None:
            super().reset()
            for slot in self.slots:
                slot.holders = 0

        def let_go(self, slot: Any) -> None:
            if slot is not None:
                slot.holders = max(0, slot.holders - 1)

        def demand_live(self, transaction: Transaction) -> None:
            return

    store_class = Store


class ResetZeroesWhatIsRead(Fault):
    """A reset clears the memory that a load still reads."""

    requirement = "RES-032"
    killed_by = cases("lease/reset", "lease/reset-then-reuse")

    class Store(Residency):
        leases = False

        def reset(self) -> None:
            super().reset()
            for slot in self.slots:
                slot.memory[:] = bytes(self.slot_bytes)

        def demand_live(self, transaction: Transaction) -> None:
            return

    store_class = Store


class ForceLendsTheSlot(Fault):
    """A removal by force lends the slot that a load still reads."""

    requirement = "RES-032"
    killed_by = cases("lease/by-force")

    class Store(Residency):
        def remove_one(self, key: Key, tier: str | None, force: bool) -> str:
            lent = [one.slot for one in self.valid(self.entry(key)) if force and self.readers(one)]
            outcome = super().remove_one(key, tier, force)
            for slot in lent:
                self.let_go(slot)
            return outcome

    store_class = Store


class LeaseNeverEnds(Fault):
    """A lease outlives its load (LMCache#1034)."""

    requirement = "RES-033"
    killed_by = cases("release/after-load", "release/batch", "release/failed", "release/cancelled", "release/short")

    class Store(Remembering):
        def still(self, transaction: Transaction) -> bool:
            """Whether its leases are kept."""
            return True

        def readers(self, replica: Replica) -> list[Transaction]:
            over = [one for one in self.over.values() if one.mode == "load" and self.still(one)]
            kept = [one for one in over if any(grant.key in self.names(replica) for grant in one.moving)]
            return super().readers(replica) + kept

        def names(self, replica: Replica) -> list[Key]:
            """Keys that the replica belongs to."""
            return [key for key, entry in self.entries.items() if replica in entry.replicas.values()]

    store_class = Store


class FailedLoadKeepsLease(Fault):
    """A load that was not published keeps its lease."""

    requirement = "RES-033"
    killed_by = cases("release/failed", "release/short")

    class Store(LeaseNeverEnds.Store):
        def still(self, transaction: Transaction) -> bool:
            return not any(grant.delivered for grant in transaction.moving) and transaction.life is Life.LIVE

    store_class = Store


class CancelledLoadKeepsLease(Fault):
    """A load that was cancelled keeps its lease (vllm#49902)."""

    requirement = "RES-033"
    killed_by = cases("release/cancelled", "waiter/last-goes")

    class Store(LeaseNeverEnds.Store):
        def still(self, transaction: Transaction) -> bool:
            return transaction.life is Life.DEAD

    store_class = Store


class BatchReturnsOneLease(Fault):
    """A load of two keys returns the first lease."""

    requirement = "RES-033"
    killed_by = cases("release/batch")

    class Store(LeaseNeverEnds.Store):
        def readers(self, replica: Replica) -> list[Transaction]:
            over = [one for one in self.over.values() if one.mode == "load"]
            kept = [one for one in over if any(grant.key in self.names(replica) for grant in one.moving[1:])]
            return Residency.readers(self, replica) + kept

    store_class = Store


class LeaseIsAFlag(UnjoinedFault):
    """Leased is a flag, which the first of two readers takes down."""

    requirement = "RES-033"
    killed_by = cases("release/two-readers", "release/double")

    class Store(UnjoinedFault.Store):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            self.free_keys: set[Key] = set()

        def end(self, transaction: Transaction) -> None:
            self.free_keys |= {grant.key for grant in transaction.moving if transaction.mode == "load"}
            super().end(transaction)

        def grant_load(self, key: Key) -> Grant:
            self.free_keys.discard(key)
            return super().grant_load(key)

        def readers(self, replica: Replica) -> list[Transaction]:
            found = super().readers(replica)
            return [one for one in found if not any(grant.key in self.free_keys for grant in one.moving)]

    store_class = Store


class DoubleRelease(UnjoinedFault):
    """A load that ends twice takes two from the count of readers."""

    requirement = "RES-033"
    killed_by = cases("release/double")

    class Store(UnjoinedFault.Store):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            self.minus: dict[Key, int] = {}
            self.done: dict[str, list[Key]] = {}

        def end(self, transaction: Transaction) -> None:
            self.done[transaction.name] = [grant.key for grant in transaction.moving if transaction.mode == "load"]
            super().end(transaction)

        def complete(self, name: str, failed: Sequence[str] = (), receipts: Receipts | None = None) -> str:
            for key in self.done.get(name, ()):
                self.minus[key] = self.minus.get(key, 0) + 1
            return super().complete(name, failed, receipts)

        def readers(self, replica: Replica) -> list[Transaction]:
            found = super().readers(replica)
            less = max((self.minus.get(grant.key, 0) for one in found for grant in one.moving), default=0)
            return found[less:]

    store_class = Store


class ReleasedByOwner(Fault):
    """The end of one load ends all loads of its request."""

    requirement = "RES-033"
    killed_by = cases("release/by-another")

    class Store(Residency):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            self.ended: set[str] = set()

        def end(self, transaction: Transaction) -> None:
            if transaction.mode == "load":
                self.ended.add(transaction.owner)
            super().end(transaction)

        def readers(self, replica: Replica) -> list[Transaction]:
            return [one for one in super().readers(replica) if one.owner not in self.ended]

    store_class = Store


class ExpiresEarly(Fault):
    """A limit of 100 ms is over after 99."""

    requirement = "RES-034"
    killed_by = cases("expiry/store-in-time", "expiry/store-in-steps", "expiry/load-in-time")

    class Store(Residency):
        def overdue(self, transaction: Transaction) -> bool:
            limit = self.ttl_ms[transaction.mode]
            return limit is not None and self.now_ms - transaction.since_ms >= limit - 1

    store_class = Store


class ExpiresFromTheFirst(Fault):
    """All limits are counted from the first reservation that is open (LMCache#4967: a lease ends under its holder)."""

    requirement = "RES-034"
    killed_by = cases("expiry/each-its-own")

    class Store(Residency):
        def overdue(self, transaction: Transaction) -> bool:
            limit = self.ttl_ms[transaction.mode]
            first = min(one.since_ms for one in self.live())
            return limit is not None and self.now_ms - first >= limit

        def advance(self, by_ms: int) -> int:
            self.now_ms += by_ms
            for transaction in [one for one in self.live() if self.overdue(one)]:
                self.kill(transaction, Life.EXPIRED)
            return self.now_ms

    store_class = Store


class OneLimitForBoth(Fault):
    """Loads expire by the limit of stores (Mooncake#850)."""

    requirement = "RES-034"
    killed_by = cases("expiry/modes-apart")

    class Store(Residency):
        def overdue(self, transaction: Transaction) -> bool:
            limit = self.ttl_ms["store"]
            return limit is not None and self.now_ms - transaction.since_ms >= limit

    store_class = Store


class PublishedExpires(Fault):
    """Rows expire with the reservation that brought them."""

    requirement = "RES-034"
    killed_by = cases("expiry/published-stays")

    class Store(Residency):
        def advance(self, by_ms: int) -> int:
            if by_ms >= (self.ttl_ms["store"] or by_ms + 1):
                for entry in self.entries.values():
                    self.renew(entry)
            return super().advance(by_ms)

    store_class = Store


class Unexpired(Fault):
    """Nothing ever expires."""

    requirement = "RES-035"
    killed_by = cases("expiry/lease-ends", "expiry/late-reader", "expiry/stored-again")

    class Store(Residency):
        def overdue(self, transaction: Transaction) -> bool:
            return False

    store_class = Store


class ExpiredIsNotAsked(Fault):
    """A late completion of an expired store is published without validation (LMCache#4967)."""

    requirement = "RES-035"
    killed_by = cases("expiry/after-the-limit", "expiry/overtaken", "expiry/slot-of-another")

    class Store(Lenient):
        def complete(self, name: str, failed: Sequence[str] = (), receipts: Receipts | None = None) -> str:
            transaction = self.find(name)
            if transaction.life is Life.EXPIRED and transaction.mode == "store":
                for grant in transaction.moving:
                    replica = Replica("host", bytearray(slot_of(grant).memory))
                    replica.on("put-host")
                    self.renew(self.entry(grant.key))
                    self.slots_in_use(replica)
                    self.install(self.entry(grant.key), replica, "")
            return super().complete(name, failed, receipts)

        def slots_in_use(self, replica: Replica) -> None:
            """Nobody looks whose slot it is."""

        def intact(self, rows: bytes, replica: Replica) -> bool:
            return True

    store_class = Store


class ExpiredSlotLent(Fault):
    """An expired store's slot is given away, and its late bytes land there (vllm-ascend#14055)."""

    requirement = "RES-035"
    killed_by = cases("expiry/slot-of-another")

    class Store(SlotFreedOnCancel.Store):
        def frees(self, transaction: Transaction, life: Life) -> bool:
            return life is Life.EXPIRED

    store_class = Store


class ExpiredReadsOn(Fault):
    """An expired load reads on from a slot that another key has by now (LMCache#4967)."""

    requirement = "RES-035"
    killed_by = cases("expiry/late-reader")

    class Store(Residency):
        def read_from(self, source: Replica) -> None:
            return

        def read_no_more(self, source: Replica) -> None:
            return

        def demand_live(self, transaction: Transaction) -> None:
            if transaction.life is Life.DEAD:
                raise Refusal("TRANSACTION_DEAD", transaction.name)

    store_class = Store


class ExpiredWriterLocks(Fault):
    """A key whose writer expired cannot be written again (vllm#49902)."""

    requirement = "RES-035"
    killed_by = cases("expiry/stored-again")

    class Store(Residency):
        def grant_store(self, key: Key, rows: bytes) -> Grant:
            dead = [one for one in self.transactions.values() if one.life is Life.EXPIRED]
            if any(grant.key == key for one in dead for grant in one.moving):
                return Grant(key, "refused")
            return super().grant_store(key, rows)

    store_class = Store


FAULTS = (
    RemovedWhileRead,
    LeasedUntilTheFirstByte,
    FirstKeyAsked,
    EvictedWhileRead,
    EvictedWhileWritten,
    ResetWhileRead,
    ResetZeroesWhatIsRead,
    ForceLendsTheSlot,
    LeaseNeverEnds,
    FailedLoadKeepsLease,
    CancelledLoadKeepsLease,
    BatchReturnsOneLease,
    LeaseIsAFlag,
    DoubleRelease,
    ReleasedByOwner,
    ExpiresEarly,
    ExpiresFromTheFirst,
    OneLimitForBoth,
    PublishedExpires,
    Unexpired,
    ExpiredIsNotAsked,
    ExpiredSlotLent,
    ExpiredReadsOn,
    ExpiredWriterLocks,
)
