"""Faults of cancelled work: published all the same, its slot given away, its late end taken for another's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kvassay_reference.residency import Grant, Key, Life, Replica, Residency, Transaction, digest

from ..base import Fault
from .base import Remembering, cases, slot_of
from .validation import Lenient, Receipts


class StalePromotionPublishes(Fault):
    """A completion that comes after a cancel publishes: nobody looks whether its transaction is dead (vllm#43226)."""

    requirement = "RES-029"
    killed_by = cases(
        "cancel/before-copy", "cancel/half-way", "cancel/after-copy", "cancel/batch", "cancel/delayed-completion"
    )

    class Store(Residency):
        def complete(self, name: str, failed: Sequence[str] = (), receipts: Receipts | None = None) -> str:
            transaction = self.find(name)
            if transaction.life is Life.DEAD and transaction.mode == "store":
                for grant in transaction.moving:
                    self.raise_again(grant)
            return super().complete(name, failed, receipts)

        def raise_again(self, grant: Grant) -> None:
            """The rows of a dead copy are published."""
            replica = Replica("host", bytearray(slot_of(grant).memory))
            replica.on("put-host")
            entry = self.entry(grant.key)
            self.renew(entry)
            self.install(entry, replica, digest(bytes(replica.memory)))

    store_class = Store


class CancelPublishesAtOnce(Fault):
    """A cancel flushes: what has been copied by then is published."""

    requirement = "RES-029"
    killed_by = cases("cancel/without-completion", "cancel/after-copy")

    class Store(StalePromotionPublishes.Store):
        def cancel(self, name: str) -> str:
            found = self.transactions.get(name)
            for grant in found.moving if found is not None and found.mode == "store" else ():
                if grant.copied == self.slot_bytes:
                    self.raise_again(grant)
            return super().cancel(name)

        def complete(self, name: str, failed: Sequence[str] = (), receipts: Receipts | None = None) -> str:
            return Residency.complete(self, name, failed, receipts)

    store_class = Store


class SecondCancelRevives(Fault):
    """Cancelled is a flag that the second cancel turns over."""

    requirement = "RES-029"
    killed_by = cases("cancel/twice")

    class Store(Residency):
        def cancel(self, name: str) -> str:
            found = self.transactions.get(name)
            if found is None or found.life is Life.LIVE:
                if found is not None:
                    found.life = Life.DEAD
                return "unknown" if found is None else "dead"
            found.life = Life.LIVE
            return "dead"

    store_class = Store


class FirstKeyIsCancelled(Fault):
    """Of a batch only the first key is cancelled."""

    requirement = "RES-029"
    killed_by = cases("cancel/batch")

    class Store(StalePromotionPublishes.Store):
        def complete(self, name: str, failed: Sequence[str] = (), receipts: Receipts | None = None) -> str:
            transaction = self.find(name)
            for grant in transaction.moving[1:] if transaction.life is Life.DEAD else ():
                self.raise_again(grant)
            return Residency.complete(self, name, failed, receipts)

    store_class = Store


class CancelTakesTheOldRows(Fault):
    """A cancelled store gives its key up, with the rows that were there before."""

    requirement = "RES-029"
    killed_by = cases("cancel/replacement", "cancel/load")

    class Store(Residency):
        def cancel(self, name: str) -> str:
            for grant in self.transactions[name].moving if name in self.transactions else ():
                self.renew(self.entry(grant.key))
            return super().cancel(name)

    store_class = Store


class CancelForgottenInTime(Fault):
    """That a store was cancelled is forgotten after 10 ms."""

    requirement = "RES-029"
    killed_by = cases("cancel/delayed-completion")

    class Store(StalePromotionPublishes.Store):
        def complete(self, name: str, failed: Sequence[str] = (), receipts: Receipts | None = None) -> str:
            if self.now_ms >= 10:
                return super().complete(name, failed, receipts)
            return Residency.complete(self, name, failed, receipts)

    store_class = Store


class SlotFreedOnCancel(Fault):
    """A cancel gives the slot back, while its copy still writes (vllm#47282, vllm-ascend#14055)."""

    requirement = "RES-030"
    killed_by = cases("quarantine/store", "quarantine/store-reserved", "aba/other-key", "quarantine/untouched")

    class Store(Residency):
        def frees(self, transaction: Transaction, life: Life) -> bool:
            """Whether the end gives slots back at once."""
            return life is Life.DEAD

        def kill(self, transaction: Transaction, life: Life) -> None:
            frees = transaction.life is Life.LIVE and self.frees(transaction, life)
            super().kill(transaction, life)
            for grant in transaction.moving if frees and transaction.mode == "store" else ():
                slot = slot_of(grant)
                slot.holders -= 1
                assert grant.target is not None
                grant.target.slot = None

        def intact(self, rows: bytes, replica: Replica) -> bool:
            return True

    store_class = Store


class SlotFreedBeforeTheFirstByte(Fault):
    """A cancelled store of which nothing was copied gives its slot back; its copy begins a moment later."""

    requirement = "RES-030"
    killed_by = cases("quarantine/untouched")

    class Store(SlotFreedOnCancel.Store):
        def frees(self, transaction: Transaction, life: Life) -> bool:
            return life is Life.DEAD and not any(grant.copied for grant in transaction.moving)

    store_class = Store


class SlotFreedOnReset(Fault):
    """A reset frees every slot, those of copies under way among them (vllm#57727)."""

    requirement = "RES-030"
    killed_by = cases("quarantine/reset")

    class Store(SlotFreedOnCancel.Store):
        resetting = False

        def reset(self) -> None:
            self.resetting = True
            super().reset()
            self.resetting = False

        def frees(self, transaction: Transaction, life: Life) -> bool:
            return self.resetting

    store_class = Store


class SlotFreedOnRemoval(Fault):
    """A removal by force frees the slot that a store still writes."""

    requirement = "RES-030"
    killed_by = cases("quarantine/removed")

    class Store(SlotFreedOnCancel.Store):
        def remove_one(self, key: Key, tier: str | None, force: bool) -> str:
            users = self.writers(key) if force else []
            outcome = super().remove_one(key, tier, force)
            for transaction in users:
                self.kill(transaction, Life.DEAD)
            return outcome

        def cancel(self, name: str) -> str:
            return "unknown"

    store_class = Store


class LoadSlotFreedOnCancel(Fault):
    """A cancelled load lends its source's slot while it still reads."""

    requirement = "RES-030"
    killed_by = cases("quarantine/load")

    class Store(Residency):
        def cancel(self, name: str) -> str:
            found = self.transactions.get(name)
            outcome = super().cancel(name)
            for grant in found.moving if found is not None and found.mode == "load" else ():
                if grant.source is not None:
                    self.let_go(grant.source.slot)
            return outcome

        def read_no_more(self, source: Replica) -> None:
            return

        def demand_live(self, transaction: Transaction) -> None:
            return

    store_class = Store


class GivenBackTwice(Fault):
    """A completion that comes twice gives its slot back twice."""

    requirement = "RES-030"
    killed_by = cases("quarantine/given-back-once")

    class Store(Remembering):
        def complete(self, name: str, failed: Sequence[str] = (), receipts: Receipts | None = None) -> str:
            for grant in self.over[name].moving if name in self.over else ():
                if grant.delivered is False and grant.target is not None:
                    self.let_go(grant.target.slot)
            return super().complete(name, failed, receipts)

    store_class = Store


class Confused(Lenient, Remembering):
    """What comes late for a dead transaction is taken for the live one of the same name."""

    def same(self, old: Transaction, new: Transaction) -> bool:
        """Whether two transactions look alike."""
        return bool({one.key for one in old.moving} & {one.key for one in new.moving}) and old.mode == new.mode

    def meant(self, name: str) -> str:
        """The transaction that a late word is taken for."""
        old = self.transactions.get(name) or self.over.get(name)
        if old is None or old.life is Life.LIVE:
            return name
        return next((new.name for new in self.live() if self.same(old, new)), name)

    def publish_all(self, name: str) -> str:
        """Publish whatever the transaction has."""
        transaction = self.transactions[name]
        for grant in transaction.moving:
            self.publish(transaction, grant)
        self.end(transaction)
        return "done"


class CompletionByKey(Fault):
    """A late completion is taken for the live store of its key (vllm-ascend#16662)."""

    requirement = "RES-031"
    killed_by = cases("aba/same-key", "aba/same-owner", "aba/between-halves", "aba/three-lives")

    class Store(Confused):
        def complete(self, name: str, failed: Sequence[str] = (), receipts: Receipts | None = None) -> str:
            other = self.meant(name)
            if other != name and not failed:
                return self.publish_all(other)
            return super().complete(name, failed, receipts)

    store_class = Store


class CompletionByOwner(Fault):
    """A late completion is taken for the live store of its request."""

    requirement = "RES-031"
    killed_by = cases("aba/same-owner", "aba/three-lives")

    class Store(CompletionByKey.Store):
        def same(self, old: Transaction, new: Transaction) -> bool:
            return super().same(old, new) and old.owner == new.owner

    store_class = Store


class FailureByKey(Fault):
    """A late failure is taken for the live store of its key."""

    requirement = "RES-031"
    killed_by = cases("aba/old-fails")

    class Store(Confused):
        def complete(self, name: str, failed: Sequence[str] = (), receipts: Receipts | None = None) -> str:
            return super().complete(self.meant(name) if failed else name, failed, receipts)

    store_class = Store


class CancelByKey(Fault):
    """A late cancel is taken for the live store of its key."""

    requirement = "RES-031"
    killed_by = cases("aba/cancelled-again")

    class Store(Confused):
        def cancel(self, name: str) -> str:
            return super().cancel(self.meant(name))

    store_class = Store


class LateCopyByKey(Fault):
    """Late bytes of a dead store go where the live one of its key writes."""

    requirement = "RES-031"
    killed_by = cases("aba/between-halves")

    class Store(Confused):
        def copy(self, name: str, count: int | None = None) -> tuple[int, list[bytes | None] | None]:
            other = self.meant(name)
            if other != name:
                new, old = self.transactions[other], self.transactions[name]
                for mine, theirs in zip(old.moving, new.moving, strict=False):
                    theirs.rows = mine.rows
            return super().copy(name, count)

    store_class = Store


class LateCopyIntoTheRows(Fault):
    """Late bytes of a dead store go where its key's rows are by now."""

    requirement = "RES-031"
    killed_by = cases("aba/after-success")

    class Store(Residency):
        def move(self, transaction: Transaction, grant: Grant, count: int | None) -> int:
            if transaction.life is Life.DEAD and transaction.mode == "store":
                for replica in self.valid(self.entry(grant.key)):
                    replica.memory[:] = grant.rows
            return super().move(transaction, grant, count)

        def intact(self, rows: bytes, replica: Replica) -> bool:
            return True

    store_class = Store


class OldLoadEndsTheNew(Fault):
    """A late end of a load ends the one that came after it."""

    requirement = "RES-031"
    killed_by = cases("aba/loads")

    class Store(Confused):
        def complete(self, name: str, failed: Sequence[str] = (), receipts: Receipts | None = None) -> str:
            other = self.meant(name)
            if other != name and self.transactions[other].mode == "load":
                self.end(self.transactions[other])
            return super().complete(name, failed, receipts)

    store_class = Store


class OldStoreTakesThePut(Fault):
    """A cancelled store's completion publishes over a put that came in between."""

    requirement = "RES-031"
    killed_by = cases("aba/put-in-between", "aba/removed-in-between")

    class Store(StalePromotionPublishes.Store):
        def complete(self, name: str, failed: Sequence[str] = (), receipts: Mapping[str, Any] | None = None) -> str:
            transaction = self.find(name)
            for grant in transaction.moving if transaction.life is Life.DEAD else ():
                if self.entry(grant.key).generation != grant.generation:
                    self.raise_again(grant)
            return Residency.complete(self, name, failed, receipts)

    store_class = Store


FAULTS = (
    StalePromotionPublishes,
    CancelPublishesAtOnce,
    SecondCancelRevives,
    FirstKeyIsCancelled,
    CancelTakesTheOldRows,
    CancelForgottenInTime,
    SlotFreedOnCancel,
    SlotFreedBeforeTheFirstByte,
    SlotFreedOnReset,
    SlotFreedOnRemoval,
    LoadSlotFreedOnCancel,
    GivenBackTwice,
    CompletionByKey,
    CompletionByOwner,
    FailureByKey,
    CancelByKey,
    LateCopyByKey,
    LateCopyIntoTheRows,
    OldLoadEndsTheNew,
    OldStoreTakesThePut,
)
