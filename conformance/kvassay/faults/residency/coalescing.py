"""Faults of loads that join: the wrong copy, one that is over, half of one, and waiters that hang on their leader."""

from __future__ import annotations

from collections.abc import Sequence

from kvassay_reference.residency import Entry, Grant, Key, Life, Residency, Transaction

from ..base import Fault
from .base import Remembering, cases
from .validation import Receipts


class JoinsAcrossTenants(Fault):
    """Loads join by key, whoever they are for (vllm#44250)."""

    requirement = "RES-036"
    killed_by = cases("join/tenants")

    class Store(Residency):
        def under_way(self, key: Key, entry: Entry) -> Grant | None:
            return next((grant for _, grant in self.grants("load") if grant.key[1] == key[1]), None)

    store_class = Store


class JoinsAcrossKeys(Fault):
    """A load joins any copy that is under way."""

    requirement = "RES-036"
    killed_by = cases("join/keys", "join/tenants")

    class Store(Residency):
        def under_way(self, key: Key, entry: Entry) -> Grant | None:
            return next((grant for _, grant in self.grants("load")), None)

        def complete(self, name: str, failed: Sequence[str] = (), receipts: Receipts | None = None) -> str:
            return super().complete(name, failed, receipts)

        def seen(self, grant: Grant) -> bytes | None:
            if grant.leader is not None and grant.leader.target is not None:
                return bytes(grant.leader.target.memory)
            return super().seen(grant)

        def grant_load(self, key: Key) -> Grant:
            grant = super().grant_load(key)
            if grant.outcome == "joined" and grant.leader is not None and grant.leader.key != key:
                grant.outcome, grant.target, grant.source = "granted", grant.leader.target, grant.leader.source
                self.read_from(grant.leader.source)  # type: ignore[arg-type]
            return grant

    store_class = Store


class JoinsAcrossGenerations(Fault):
    """A load joins a copy of rows that its key stands for no longer."""

    requirement = "RES-036"
    killed_by = cases("join/generations")

    class Store(Residency):
        def grant_load(self, key: Key) -> Grant:
            old = next((grant for _, grant in self.grants("load") if grant.key == key), None)
            grant = super().grant_load(key)
            if old is not None and grant.outcome == "granted":
                assert old.source is not None
                self.read_no_more(grant.source)  # type: ignore[arg-type]
                self.read_from(old.source)
                grant.source = old.source
            return grant

    store_class = Store


class JoinsWhatIsOver(Fault):
    """A load that is over stays in the table of copies under way."""

    requirement = "RES-036"
    killed_by = cases("join/nothing-left", "waiter/leader-failed", "waiter/leader-short")

    class Store(Remembering):
        def grant_load(self, key: Key) -> Grant:
            loads = [one for one in self.over.values() if one.mode == "load"]
            old = next((grant for one in loads for grant in one.moving if grant.key == key), None)
            if old is None or not self.valid(self.entry(key)):
                return super().grant_load(key)
            return Grant(key, "joined", "host", self.entry(key).generation, leader=old, waits=True)

    store_class = Store


class JoinsTheFailed(Fault):
    """A load begins with what a failed copy had brought."""

    requirement = "RES-036"
    killed_by = cases("join/failed-one", "failed/load")

    class Store(Remembering):
        def grant_load(self, key: Key) -> Grant:
            grant = super().grant_load(key)
            loads = [one for one in self.over.values() if one.mode == "load"]
            old = next(
                (one for load in loads for one in load.moving if one.key == key and one.delivered is False), None
            )
            if old is not None and grant.target is not None and old.copied:
                grant.target.on("copy")
                grant.copied = old.copied
            return grant

    store_class = Store


class JoinsTheDead(Fault):
    """A load takes the place of a cancelled one, and of its progress."""

    requirement = "RES-036"
    killed_by = cases("join/cancelled-one", "join/expired-one")

    class Store(Residency):
        def grant_load(self, key: Key) -> Grant:
            dead = [one for one in self.transactions.values() if one.life is not Life.LIVE and one.mode == "load"]
            grant = super().grant_load(key)
            if grant.target is not None and any(one.key == key for load in dead for one in load.moving):
                grant.target.on("copy")
                grant.copied = self.slot_bytes // 2
            return grant

    store_class = Store


class JoinedByPut(Fault):
    """After a put a load joins a copy of the rows before it, and is served them."""

    requirement = "RES-036"
    killed_by = cases("join/put-in-between")

    class Store(Residency):
        def get(self, key: Key) -> tuple[str, bytes | None, str | None]:
            old = self.old.get(key)
            return ("hit", old, "host") if old is not None else super().get(key)

        def __init__(self, *arguments: int) -> None:
            super().__init__(*arguments)
            self.old: dict[Key, bytes] = {}

        def complete(self, name: str, failed: Sequence[str] = (), receipts: Receipts | None = None) -> str:
            transaction = self.find(name)
            for grant in transaction.moving if transaction.mode == "load" else ():
                stale = self.entry(grant.key).generation != grant.generation
                if stale and grant.target is not None and grant.copied == self.slot_bytes:
                    self.old[grant.key] = bytes(grant.target.memory)
            return super().complete(name, failed, receipts)

    store_class = Store


class WaiterSeesHalf(Fault):
    """A waiter is shown its leader's buffer as it is."""

    requirement = "RES-037"
    killed_by = cases("join/half-way", "waiter/leader-failed", "waiter/leader-short")

    class Store(Residency):
        def seen(self, grant: Grant) -> bytes | None:
            if grant.leader is not None and grant.leader.target is not None:
                return bytes(grant.leader.target.memory)
            return super().seen(grant)

    store_class = Store


class WaiterStrandedByCancel(Fault):
    """Cancelling the first load ends the copy that others wait for."""

    requirement = "RES-037"
    killed_by = cases("waiter/leader-cancelled")

    class Store(Residency):
        def cancel(self, name: str) -> str:
            found = self.transactions.get(name)
            waited = found is not None and any(grant.waiters for grant in found.grants)
            if found is not None and waited:
                self.kill(found, Life.DEAD)
                for grant in found.moving:
                    self.renew(self.entry(grant.key))
                return "dead"
            return super().cancel(name)

    store_class = Store


class DetachedIsDead(Fault):
    """A copy that goes on for its waiters is refused at its end."""

    requirement = "RES-037"
    killed_by = cases("waiter/goes-on-for-it", "waiter/one-of-two-goes")

    class Store(Residency):
        def complete(self, name: str, failed: Sequence[str] = (), receipts: Receipts | None = None) -> str:
            transaction = self.find(name)
            if transaction.detached:
                self.kill(transaction, Life.DEAD)
            return super().complete(name, failed, receipts)

    store_class = Store


class WaiterServedAFailure(Fault):
    """A waiter is done when its leader is over, however that ended."""

    requirement = "RES-037"
    killed_by = cases("waiter/leader-failed")

    class Store(Residency):
        def complete(self, name: str, failed: Sequence[str] = (), receipts: Receipts | None = None) -> str:
            joined = any(grant.leader is not None for grant in self.find(name).grants)
            outcome = super().complete(name, failed, receipts)
            return "done" if joined else outcome

    store_class = Store


class WaiterTakesTheCopy(Fault):
    """Cancelling a waiter ends the copy that it waits for."""

    requirement = "RES-037"
    killed_by = cases("waiter/goes-away")

    class Store(Residency):
        def cancel(self, name: str) -> str:
            leaders = [grant.leader for grant in self.transactions[name].grants] if name in self.transactions else []
            outcome = super().cancel(name)
            for other in self.live():
                if any(grant in leaders for grant in other.grants):
                    self.kill(other, Life.DEAD)
            return outcome

    store_class = Store


class WaitersAreAFlag(Fault):
    """The first waiter that goes is taken for the last."""

    requirement = "RES-037"
    killed_by = cases("waiter/one-of-two-goes")

    class Store(Residency):
        def leave(self, transaction: Transaction) -> None:
            for grant in transaction.grants:
                if grant.waits and grant.leader is not None:
                    grant.leader.waiters = 1
            super().leave(transaction)

    store_class = Store


class LastWaiterLeaks(Fault):
    """A copy that nobody waits for any more keeps its lease."""

    requirement = "RES-037"
    killed_by = cases("waiter/last-goes")

    class Store(Residency):
        def leave(self, transaction: Transaction) -> None:
            for grant in transaction.grants:
                if grant.waits and grant.leader is not None:
                    grant.waits = False

        def find(self, name: str) -> Transaction:
            found = super().find(name)
            if found.detached:
                found.since_ms = self.now_ms
            return found

        def end(self, transaction: Transaction) -> None:
            if transaction.detached:
                for grant in transaction.moving:
                    self.read_from(grant.source)  # type: ignore[arg-type]
                self.transactions[f"kept-{transaction.name}"] = transaction
            super().end(transaction)

    store_class = Store


class WaiterExpiryTakesTheKey(Fault):
    """When a load that others wait for expires, its source goes."""

    requirement = "RES-037"
    killed_by = cases("waiter/leader-expired", "join/expired-one")

    class Store(Residency):
        def kill(self, transaction: Transaction, life: Life) -> None:
            super().kill(transaction, life)
            for grant in transaction.moving if life is Life.EXPIRED and transaction.mode == "load" else ():
                self.renew(self.entry(grant.key))

    store_class = Store


FAULTS = (
    JoinsAcrossTenants,
    JoinsAcrossKeys,
    JoinsAcrossGenerations,
    JoinsWhatIsOver,
    JoinsTheFailed,
    JoinsTheDead,
    JoinedByPut,
    WaiterSeesHalf,
    WaiterStrandedByCancel,
    DetachedIsDead,
    WaiterServedAFailure,
    WaiterTakesTheCopy,
    WaitersAreAFlag,
    LastWaiterLeaks,
    WaiterExpiryTakesTheKey,
)
