"""Faults of slots: too few, shared, evicted in name, confused below, and never given back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kvassay_reference.errors import Refusal
from kvassay_reference.residency import Entry, Key, Life, Replica, Residency, Slot, Transaction, digest

from ..base import Fault
from .base import ForgettingFault, RefusingFault, cases


class OneSlotLess(ForgettingFault):
    """The last slot is never used."""

    requirement = "RES-009"
    killed_by = cases("room/exact", "room/one-slot", "room/last-slot")

    class Store(ForgettingFault.Store):
        def free(self) -> Slot | None:
            return next((slot for slot in self.slots[:-1] if not slot.holders), None)

    store_class = Store


class LastSlotIsTheFirst(ForgettingFault):
    """The last slot lies where the first does."""

    requirement = "RES-009"
    killed_by = cases("room/last-slot", "room/reserved")

    class Store(ForgettingFault.Store):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            self.slots[-1].memory = self.slots[0].memory

        def intact(self, rows: bytes, replica: Replica) -> bool:
            return True

    store_class = Store


class EvictedInNameOnly(ForgettingFault):
    """An evicted key stays in the index and points to the slot's next rows (LMCache#207)."""

    requirement = "RES-010"
    killed_by = cases("room/one-more", "room/many-more", "room/cap-at-every-layer")

    class Store(ForgettingFault.Store):
        def evict(self, entry: Entry, replica: Replica) -> None:
            self.let_go(replica.slot)

        def intact(self, rows: bytes, replica: Replica) -> bool:
            return True

    store_class = Store


class RefusedAndWritten(RefusingFault):
    """A put that is refused has been written over somebody by then."""

    requirement = "RES-010"
    killed_by = cases("room/refused", "room/one-more")

    class Store(RefusingFault.Store):
        def put(self, key: Key, rows: bytes) -> str:
            outcome = super().put(key, rows)
            if outcome == "refused":
                self.slots[0].memory[:] = rows
            return outcome

        def intact(self, rows: bytes, replica: Replica) -> bool:
            return True

    store_class = Store


class StuckWhenFull(Fault):
    """An engine that evicts does not, so that its first keys stay for ever."""

    requirement = "RES-010"
    killed_by = cases("room/evicted", "secondary/comes-back")

    class Store(Residency):
        evicts = False

    store_class = Store


class OldRowsKeptWhenFull(ForgettingFault):
    """New rows for the only slot are told and not written."""

    requirement = "RES-010"
    killed_by = cases("room/replaced-in-the-only-slot", "room/replaced-when-full")

    class Store(ForgettingFault.Store):
        def put(self, key: Key, rows: bytes) -> str:
            if self.valid(self.entry(key)) and self.free() is None:
                return "replaced"
            return super().put(key, rows)

    store_class = Store


class NothingBelow(Fault):
    """Evicted rows are not written down."""

    requirement = "RES-011"
    killed_by = cases("secondary/comes-back", "secondary/comes-back-twice")

    class Store(Residency):
        secondary = False

    store_class = Store


class OldGenerationBelow(Fault):
    """What lies below is written once: the first generation of a key comes back for ever."""

    requirement = "RES-011"
    killed_by = cases("secondary/old-generation")

    class Store(Residency):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            self.below: dict[int, bytes] = {}

        def evict(self, entry: Entry, replica: Replica) -> None:
            super().evict(entry, replica)
            found = entry.replicas.get("secondary")
            if found is not None:
                found.memory[:] = self.below.setdefault(id(entry), bytes(found.memory))
                found.sha256 = digest(bytes(found.memory))

    store_class = Store


class NothingLeavesBelow(Fault):
    """What lies below is neither removed nor reset."""

    requirement = "RES-011"
    killed_by = cases("secondary/removed", "secondary/reset")

    class Store(Residency):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            self.below: dict[int, Replica] = {}

        def evict(self, entry: Entry, replica: Replica) -> None:
            super().evict(entry, replica)
            if "secondary" in entry.replicas:
                self.below[id(entry)] = entry.replicas["secondary"]

        def valid(self, entry: Entry) -> list[Replica]:
            return super().valid(entry) or [one for key, one in self.below.items() if key == id(entry)]

    store_class = Store


class WrongRowsFromBelow(Fault):
    """A promotion from below begins with the first rows that lie there."""

    requirement = "RES-011"
    killed_by = cases(
        "secondary/load",
    )

    class Store(Residency):
        def move(self, transaction: Transaction, grant: Any, count: int | None) -> int:
            moved = super().move(transaction, grant, count)
            if grant.source is not None and grant.source.tier == "secondary":
                grant.target.memory[:] = bytes(len(grant.target.memory))
            return moved

    store_class = Store


class ShortReadPadded(Fault):
    """Rows that come back short are filled up with zeros (llama.cpp#26676 reports partial state that is restored)."""

    requirement = "RES-025"
    killed_by = cases("secondary/dropped-read", "damaged/truncated", "damaged/dropped")

    class Store(Residency):
        def get(self, key: Key) -> tuple[str, bytes | None, str | None]:
            for replica in self.valid(self.entry(key)):
                if len(replica.memory) < self.slot_bytes:
                    return "hit", bytes(replica.memory).ljust(self.slot_bytes, b"\0"), replica.tier
            return super().get(key)

    store_class = Store


class SlotLeak(Residency):
    """Slots that are not given back in one case."""

    def leaks(self, transaction: Transaction) -> bool:
        """Whether this end keeps its slots."""
        raise NotImplementedError

    def end(self, transaction: Transaction) -> None:
        for grant in transaction.moving if self.leaks(transaction) else ():
            if grant.target is not None and grant.target.slot is not None and not grant.delivered:
                grant.target.slot.holders += 1
        super().end(transaction)


class FailedKeepsSlot(Fault):
    """A key that failed keeps its slot."""

    requirement = "RES-012"
    killed_by = cases("back/failed", "back/two-of-three-failed")

    class Store(SlotLeak):
        failing = False

        def complete(
            self, name: str, failed: Sequence[str] = (), receipts: Mapping[str, Mapping[str, Any]] | None = None
        ) -> str:
            self.failing = bool(failed)
            return super().complete(name, failed, receipts)

        def leaks(self, transaction: Transaction) -> bool:
            return self.failing and transaction.life is Life.LIVE

    store_class = Store


class CancelledKeepsSlot(Fault):
    """A cancelled store keeps its slots for good (LMCache#1034: memory that is pinned and never released)."""

    requirement = "RES-012"
    killed_by = cases("back/cancelled", "back/cancelled-many-times")

    class Store(SlotLeak):
        def leaks(self, transaction: Transaction) -> bool:
            return transaction.life is Life.DEAD

    store_class = Store


class ExpiredKeepsSlot(Fault):
    """An expired store keeps its slots for good."""

    requirement = "RES-012"
    killed_by = cases("back/expired")

    class Store(SlotLeak):
        def leaks(self, transaction: Transaction) -> bool:
            return transaction.life is Life.EXPIRED

    store_class = Store


class RefusedKeepsSlot(Fault):
    """A store whose completion is refused keeps its slots."""

    requirement = "RES-012"
    killed_by = cases("back/short")

    class Store(SlotLeak):
        refused = False

        def complete(
            self, name: str, failed: Sequence[str] = (), receipts: Mapping[str, Mapping[str, Any]] | None = None
        ) -> str:
            self.refused = not failed
            return super().complete(name, failed, receipts)

        def leaks(self, transaction: Transaction) -> bool:
            return self.refused and transaction.life is Life.LIVE

    store_class = Store


class ReleasedKeepsSlot(ForgettingFault):
    """A replica that goes keeps its slot."""

    requirement = "RES-012"
    killed_by = cases("back/removed", "back/reset", "back/replaced")

    class Store(ForgettingFault.Store):
        def release(self, replica: Replica) -> None:
            replica.on("release")

    store_class = Store


class LoadKeepsSlot(Fault):
    """A load never returns the slot that it read (LMCache#1034)."""

    requirement = "RES-012"
    killed_by = cases("back/load")

    class Store(Residency):
        def read_no_more(self, source: Replica) -> None:
            return

    store_class = Store


class FailureTakesTheBatch(Fault):
    """One failed key gives up the slots of the whole batch, published ones among them."""

    requirement = "RES-024"
    killed_by = cases("back/two-of-three-failed", "failed/one-of-two", "failed/last-of-three")

    class Store(Residency):
        def complete(
            self, name: str, failed: Sequence[str] = (), receipts: Mapping[str, Mapping[str, Any]] | None = None
        ) -> str:
            if failed:
                self.end(self.find(name))
                raise Refusal("SHORT_COPY", failed[0])
            return super().complete(name, failed, receipts)

    store_class = Store


FAULTS = (
    OneSlotLess,
    LastSlotIsTheFirst,
    EvictedInNameOnly,
    RefusedAndWritten,
    StuckWhenFull,
    OldRowsKeptWhenFull,
    NothingBelow,
    OldGenerationBelow,
    NothingLeavesBelow,
    WrongRowsFromBelow,
    ShortReadPadded,
    FailedKeepsSlot,
    CancelledKeepsSlot,
    ExpiredKeepsSlot,
    RefusedKeepsSlot,
    ReleasedKeepsSlot,
    LoadKeepsSlot,
    FailureTakesTheBatch,
)
