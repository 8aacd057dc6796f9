"""Faults of authority: the last replica released, copies that do not count counted, and replicas of old rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kvassay_reference.errors import Refusal
from kvassay_reference.residency import Entry, Grant, Key, Replica, Residency, Transaction

from ..base import Fault
from .base import Remembering, cases


class ReleasedFirst(Fault):
    """A replica is released without asking for another: copying comes later, or fails."""

    requirement = "RES-038"
    killed_by = cases(
        "authority/only-device",
        "authority/only-host",
        "authority/while-reserved",
        "authority/while-copying",
        "authority/host-after-demotion",
        "authority/after-demotion",
        "authority/after-promotion",
    )

    class Store(Residency):
        def survives_without(self, entry: Entry, tier: str) -> bool:
            return True

        def protected(self, users: Sequence[Transaction]) -> bool:
            return False

        def evict(self, entry: Entry, replica: Replica) -> None:
            self.drop(entry, replica)

    store_class = Store


class Counting(Residency):
    """What is no replica counts as one."""

    def counts(self, key: Key) -> bool:
        """Whether something else keeps the key's rows, it is thought."""
        raise NotImplementedError

    def remove(self, keys: Sequence[Key], tier: str | None = None, force: bool = False) -> list[str]:
        if tier is not None and all(self.counts(key) for key in keys):
            return [self.remove_one(key, tier, True) for key in keys]
        return super().remove(keys, tier, force)


class ReservationCounts(Fault):
    """A reserved destination counts as a replica."""

    requirement = "RES-038"
    killed_by = cases("authority/while-reserved", "authority/while-copying", "authority/before-completion")

    class Store(Counting):
        def counts(self, key: Key) -> bool:
            return bool(self.writers(key))

    store_class = Store


class CopiedCounts(Fault):
    """A destination that has every byte counts as a replica before anybody has validated it."""

    requirement = "RES-038"
    killed_by = cases("authority/before-completion")

    class Store(Counting):
        def counts(self, key: Key) -> bool:
            return any(grant.key == key and grant.copied == self.slot_bytes for _, grant in self.grants("store"))

    store_class = Store


class StagedCounts(Fault):
    """A staged promotion counts as the device's replica."""

    requirement = "RES-038"
    killed_by = cases("authority/while-promoting")

    class Store(Counting):
        def counts(self, key: Key) -> bool:
            return any(grant.key == key and grant.copied == self.slot_bytes for _, grant in self.grants("load"))

    store_class = Store


class FailedCounts(Fault):
    """A demotion that ended counts, however it ended (dynamo#15079)."""

    requirement = "RES-038"
    killed_by = cases("authority/failed-demotion", "authority/short-demotion", "authority/cancelled-demotion")

    class Store(Remembering, Counting):
        def counts(self, key: Key) -> bool:
            return any(
                grant.key == key and grant.delivered is False for one in self.over.values() for grant in one.moving
            )

    store_class = Store


class BatchReleasedOneByOne(Fault):
    """A release of many keys asks after the first."""

    requirement = "RES-038"
    killed_by = cases("authority/batch")

    class Store(Residency):
        def remove(self, keys: Sequence[Key], tier: str | None = None, force: bool = False) -> list[str]:
            outcomes = super().remove(keys[:1], tier, force)
            return outcomes + [self.remove_one(key, tier, force) for key in keys[1:]]

    store_class = Store


class GivingUpIsForbidden(Fault):
    """A key cannot be given up altogether, for one replica must stay."""

    requirement = "RES-038"
    killed_by = cases("authority/all-tiers", "remove/one-of-two")

    class Store(Residency):
        def remove(self, keys: Sequence[Key], tier: str | None = None, force: bool = False) -> list[str]:
            if tier is None and any(self.valid(self.entry(key)) for key in keys):
                raise Refusal("LAST_AUTHORITY", keys[0][1])
            return super().remove(keys, tier, force)

    store_class = Store


class EpochIgnored(Fault):
    """Replicas of rows that were replaced still count, and are served (vllm#57727)."""

    requirement = "RES-039"
    killed_by = cases("epoch/older-device", "epoch/older-host")

    class Store(Residency):
        def renew(self, entry: Entry) -> None:
            entry.generation += 1

        def remove_one(self, key: Key, tier: str | None, force: bool) -> str:
            outcome = super().remove_one(key, tier, force)
            for one in list(self.entry(key).replicas.values()) if outcome == "removed" and tier is None else ():
                self.drop(self.entry(key), one)
            return outcome

    store_class = Store


class EpochOfTheTier(Fault):
    """A new generation replaces the replica of its own tier and leaves the others."""

    requirement = "RES-039"
    killed_by = cases("epoch/older-host")

    class Store(Residency):
        def put(self, key: Key, rows: bytes) -> str:
            entry = self.entry(key)
            host = entry.replicas.pop("host", None)
            outcome = super().put(key, rows)
            if host is not None:
                host.epoch = entry.epoch
                entry.replicas["host"] = host
            return outcome

    store_class = Store


class EpochStartsAgain(Fault):
    """A key that was removed begins again at epoch and generation nought."""

    requirement = "RES-039"
    killed_by = cases("epoch/removed-and-stored")

    class Store(Residency):
        def remove_one(self, key: Key, tier: str | None, force: bool) -> str:
            outcome = super().remove_one(key, tier, force)
            if tier is None:
                self.entries.pop(key, None)
            return outcome

        def renew(self, entry: Entry) -> None:
            fresh = not entry.replicas
            super().renew(entry)
            if fresh:
                entry.generation = entry.epoch = 0

    store_class = Store


class DamagedReplicaHidesTheOther(Fault):
    """A damaged replica stays in the directory, and what it counts for is served with its checksum's blessing."""

    requirement = "RES-039"
    killed_by = cases("damaged/other-replica")

    class Store(Residency):
        def get(self, key: Key) -> tuple[str, bytes | None, str | None]:
            there = self.valid(self.entry(key))
            if len(there) > 1:
                return "hit", bytes(there[0].memory), there[0].tier
            return super().get(key)

    store_class = Store


class SameRowsKeepTheirCopy(Fault):
    """After a put of the same rows the older copy is served with the bytes of its slot's next rows."""

    requirement = "RES-039"
    killed_by = cases("epoch/same-rows-again")

    class Store(Residency):
        def put(self, key: Key, rows: bytes) -> str:
            there = self.valid(self.entry(key))
            outcome = super().put(key, rows)
            if there and bytes(there[0].memory) == rows:
                new = self.valid(self.entry(key))[0]
                new.memory = bytearray(self.slot_bytes)
                new.sha256 = there[0].sha256
            return outcome

        def intact(self, rows: bytes, replica: Replica) -> bool:
            return True

    store_class = Store


class DemotionTakesTheSource(Fault):
    """A store that fails validation releases its source all the same."""

    requirement = "RES-038"
    killed_by = cases("authority/failed-demotion", "readable/after-failed-replacement")

    class Store(Residency):
        def complete(
            self, name: str, failed: Sequence[str] = (), receipts: Mapping[str, Mapping[str, Any]] | None = None
        ) -> str:
            grants: list[Grant] = self.find(name).moving if failed else []
            outcome = super().complete(name, failed, receipts)
            for grant in grants:
                self.renew(self.entry(grant.key))
            return outcome

    store_class = Store


FAULTS = (
    ReleasedFirst,
    ReservationCounts,
    CopiedCounts,
    StagedCounts,
    FailedCounts,
    BatchReleasedOneByOne,
    GivingUpIsForbidden,
    EpochIgnored,
    EpochOfTheTier,
    EpochStartsAgain,
    DamagedReplicaHidesTheOther,
    SameRowsKeepTheirCopy,
    DemotionTakesTheSource,
)
