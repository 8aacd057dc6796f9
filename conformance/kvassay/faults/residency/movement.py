"""Faults of movement: visible too early, torn, from the wrong source, into the wrong place, out of order, overtaken."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kvassay_reference.residency import (
    Entry,
    Grant,
    Key,
    Life,
    Replica,
    Residency,
    Transaction,
    digest,
)

from ..base import Fault
from .base import Request, Result, UnjoinedFault, cases


class EarlyVisible(Residency):
    """Rows under way are served from their slot."""

    def shows(self, grant: Grant) -> bool:
        """Whether a copy is taken for a replica."""
        raise NotImplementedError

    def early(self, key: Key) -> Replica | None:
        """The replica that is not one yet."""
        stores = (grant for _, grant in self.grants("store") if grant.key == key and self.shows(grant))
        return next((grant.target for grant in stores), None)

    def get(self, key: Key) -> tuple[str, bytes | None, str | None]:
        found = self.early(key)
        return super().get(key) if found is None else ("hit", bytes(found.memory), "host")

    def lookup(self, key: Key) -> tuple[str, str | None]:
        return super().lookup(key) if self.early(key) is None else ("ready", "host")


class VisibleWhenReserved(Fault):
    """A reserved block is in the block table at once."""

    requirement = "RES-013"
    killed_by = cases("visible/not-when-reserved", "visible/not-in-a-batch", "visible/in-a-used-slot")

    class Store(EarlyVisible):
        def shows(self, grant: Grant) -> bool:
            return True

    store_class = Store


class VisibleWhenBegun(Fault):
    """A block is in the block table from its first byte on."""

    requirement = "RES-013"
    killed_by = cases("visible/not-when-half-copied", "visible/not-before-completion")

    class Store(EarlyVisible):
        def shows(self, grant: Grant) -> bool:
            return grant.copied > 0

    store_class = Store


class VisibleWhenCopied(Fault):
    """A copy that has every byte is published by itself, before anybody has validated it."""

    requirement = "RES-013"
    killed_by = cases("visible/not-before-completion", "visible/not-in-a-batch", "cancel/without-completion")

    class Store(Residency):
        def lookup(self, key: Key) -> tuple[str, str | None]:
            there = [grant for _, grant in self.grants("store") if grant.key == key]
            if any(grant.copied == self.slot_bytes for grant in there):
                return "ready", "host"
            return super().lookup(key)

        def cancel(self, name: str) -> str:
            for grant in self.transactions[name].moving if name in self.transactions else ():
                if grant.copied == self.slot_bytes and grant.rows:
                    self.renew(self.entry(grant.key))
                    self.install(self.entry(grant.key), self.staged(grant), digest(grant.rows))
            return super().cancel(name)

        def staged(self, grant: Grant) -> Replica:
            """A replica made of a copy that was not validated."""
            replica = Replica("secondary", bytearray(grant.rows))
            replica.on("spill")
            return replica

    store_class = Store


class LoadedFromReservation(Fault):
    """A load is granted from a slot that is still being written."""

    requirement = "RES-013"
    killed_by = cases("visible/not-loaded-early", "join/store-under-way")

    def residency_reserve(self, request: Request) -> Result:
        told = super().residency_reserve(request)
        for grant in told["grants"]:
            if request["mode"] == "load" and grant["outcome"] == "pending":
                grant["outcome"] = "granted"
        return told


class CompletedInNameOnly(Fault):
    """A completion says done, and the rows are given up."""

    requirement = "RES-014"
    killed_by = cases("move/store", "receipt/right", "visible/not-before-completion")

    class Store(Residency):
        def publish(self, transaction: Transaction, grant: Grant) -> None:
            if transaction.mode == "load":
                super().publish(transaction, grant)

    store_class = Store


class LoadedNothing(Fault):
    """A load counts its bytes and leaves its destination empty."""

    requirement = "RES-014"
    killed_by = cases("move/load", "move/there-and-back-twice", "batch/not-sorted")

    def residency_copy(self, request: Request) -> Result:
        told = super().residency_copy(request)
        rows = [one if one is None else one * 0 for one in told.get("data", ())]
        return {**told, "data": rows} if rows else told


class LoadedNothingThatWasPut(UnjoinedFault):
    """Only what a transaction stored can be loaded."""

    requirement = "RES-014"
    killed_by = cases("move/load-what-was-put")

    def residency_copy(self, request: Request) -> Result:
        told = super().residency_copy(request)
        if told.get("data") and self.residency.begun == 1:
            return {**told, "data": [one * 0 for one in told["data"]]}
        return told


class EachPieceFromTheStart(Fault):
    """The second descriptor of a copy begins at the first byte again."""

    requirement = "RES-014"
    killed_by = cases("move/store-in-pieces", "move/odd-pieces", "move/load-in-pieces", "batch/in-pieces")

    class Store(Residency):
        def move(self, transaction: Transaction, grant: Grant, count: int | None) -> int:
            before = grant.copied
            moved = super().move(transaction, grant, count)
            if before and moved:
                assert grant.target is not None
                source = grant.rows if grant.source is None else bytes(grant.source.memory)
                grant.target.memory[before : before + moved] = source[:moved]
            return moved

    store_class = Store


class ShortTailLost(Fault):
    """A last piece below 1 KiB is counted and not copied."""

    requirement = "RES-014"
    killed_by = cases("move/store-in-pieces")

    class Store(Residency):
        def move(self, transaction: Transaction, grant: Grant, count: int | None) -> int:
            assert grant.target is not None
            before, memory = grant.copied, bytes(grant.target.memory)
            moved = super().move(transaction, grant, count)
            if 0 < moved < 1024 and before:
                grant.target.memory[before : before + moved] = memory[before : before + moved]
            return moved

    store_class = Store


class StoredTwiceIsLost(Fault):
    """A store of what is there takes it away."""

    requirement = "RES-014"
    killed_by = cases("move/stored-twice", "batch/partly-resident")

    class Store(Residency):
        def grant_store(self, key: Key, rows: bytes) -> Grant:
            grant = super().grant_store(key, rows)
            if grant.outcome == "resident":
                self.renew(self.entry(key))
            return grant

    store_class = Store


class BytesAsAsked(Fault):
    """A copy tells what was asked for, not what moved."""

    requirement = "RES-008"
    killed_by = cases("move/store-in-pieces")

    def residency_copy(self, request: Request) -> Result:
        told = super().residency_copy(request)
        return {**told, "bytes": request.get("bytes", told["bytes"])}


class AllBytesAtOnce(Fault):
    """A copy tells of the whole slot, however little moved."""

    requirement = "RES-008"
    killed_by = cases("move/store-in-pieces", "move/nothing-moves", "move/load-in-pieces", "move/odd-pieces")

    def residency_copy(self, request: Request) -> Result:
        return {**super().residency_copy(request), "bytes": self.residency.slot_bytes}


class BytesOfOneKey(Fault):
    """A batch tells the bytes of its first key."""

    requirement = "RES-008"
    killed_by = cases("move/batch-of-two", "batch/in-pieces")

    def residency_copy(self, request: Request) -> Result:
        told = super().residency_copy(request)
        found = self.residency.transactions.get(request["txn"])
        return {**told, "bytes": told["bytes"] // max(1, len(found.moving) if found else 1)}


class HiddenWhileLoaded(Fault):
    """A key that is being promoted is in neither tier."""

    requirement = "RES-015"
    killed_by = cases("readable/while-loaded", "pending/load")

    class Store(Residency):
        def valid(self, entry: Entry) -> list[Replica]:
            busy = [grant.source for _, grant in self.grants("load")]
            return [one for one in super().valid(entry) if one not in busy]

    store_class = Store


class ReleasedWhenReserved(Fault):
    """A demotion releases the device's rows as soon as there is room on the host."""

    requirement = "RES-015"
    killed_by = cases("readable/while-demoted", "readable/while-replaced", "cancel/replacement")

    class Store(Residency):
        def grant_store(self, key: Key, rows: bytes) -> Grant:
            grant = super().grant_store(key, rows)
            if grant.outcome == "granted":
                for one in self.valid(self.entry(key)):
                    self.drop(self.entry(key), one)
            return grant

    store_class = Store


class FailureTakesTheOldRows(Fault):
    """A failed store takes away what the key had before."""

    requirement = "RES-015"
    killed_by = cases("readable/after-failed-replacement", "failed/load")

    class Store(Residency):
        def complete(
            self, name: str, failed: Sequence[str] = (), receipts: Mapping[str, Mapping[str, Any]] | None = None
        ) -> str:
            grants = self.find(name).moving
            outcome = super().complete(name, failed, receipts)
            for grant in grants:
                if grant.key[1] in failed:
                    self.renew(self.entry(grant.key))
            return outcome

    store_class = Store


class SharedSource(Fault):
    """All stores copy from one buffer, which the next reservation overwrites (vllm#52360, vllm#45704)."""

    requirement = "RES-016"
    killed_by = cases("source/two-stores", "source/one-owner", "writer/two-keys")

    class Store(Residency):
        def owner_of(self, transaction: Transaction) -> str:
            """Who shares a buffer."""
            return ""

        def move(self, transaction: Transaction, grant: Grant, count: int | None) -> int:
            own, index = grant.rows, transaction.grants.index(grant)
            if transaction.mode == "store":
                same = [one for one in self.transactions.values() if one.mode == "store"]
                last = [one for one in same if self.owner_of(one) == self.owner_of(transaction)][-1]
                grant.rows = last.grants[min(index, len(last.grants) - 1)].rows or own
            moved = super().move(transaction, grant, count)
            grant.rows = own
            return moved

    store_class = Store


class SourceOfTheOwner(Fault):
    """Each request has one buffer for all of its stores."""

    requirement = "RES-016"
    killed_by = cases("source/one-owner")

    class Store(SharedSource.Store):
        def owner_of(self, transaction: Transaction) -> str:
            return transaction.owner

    store_class = Store


class PutThroughTheSameBuffer(Fault):
    """A put goes through the buffer from which a store has yet to be copied."""

    requirement = "RES-016"
    killed_by = cases("source/copied-late")

    class Store(Residency):
        def put(self, key: Key, rows: bytes) -> str:
            for transaction in self.live():
                for grant in transaction.moving:
                    grant.rows = grant.rows and rows
            return super().put(key, rows)

        def objection(self, transaction: Transaction, grant: Grant, receipt: Mapping[str, Any]) -> str:
            reason = super().objection(transaction, grant, receipt)
            return "" if reason == "STALE_CACHE_GENERATION" else reason

    store_class = Store


class CancelledSourceReused(Fault):
    """A cancelled store's buffer goes to the next store, and the old copy refills it."""

    requirement = "RES-016"
    killed_by = cases("source/after-cancel", "aba/between-halves")

    class Store(Residency):
        def move(self, transaction: Transaction, grant: Grant, count: int | None) -> int:
            if transaction.life is Life.DEAD:
                for other in self.live():
                    for one in other.moving:
                        one.rows = one.rows and grant.rows
            return super().move(transaction, grant, count)

    store_class = Store


class SharedDestination(Fault):
    """All loads arrive in one buffer (vllm#47282)."""

    requirement = "RES-017"
    killed_by = cases("destination/two-loads", "destination/one-owner")

    class Store(Residency):
        def seen(self, grant: Grant) -> bytes | None:
            loads = [one.target for _, one in self.grants("load") if one.target is not None and one.copied]
            return super().seen(grant) if grant.target is None or not loads else bytes(loads[-1].memory)

    store_class = Store


class CancelledDestinationReused(Fault):
    """A cancelled load's block goes to the next load while its copy still runs (vllm#47282, vllm-ascend#14055)."""

    requirement = "RES-017"
    killed_by = cases("destination/cancelled-load")

    class Store(Residency):
        def grant_load(self, key: Key) -> Grant:
            grant = super().grant_load(key)
            for other in self.transactions.values():
                for one in other.moving if other.life is Life.DEAD and other.mode == "load" else ():
                    if grant.target is not None and one.target is not None:
                        grant.target.memory = one.target.memory
            return grant

        def demand_live(self, transaction: Transaction) -> None:
            return

    store_class = Store


class LatestDestination(Fault):
    """What a load shows is what arrived last, complete or not."""

    requirement = "RES-017"
    killed_by = cases("destination/after-completion", "move/there-and-back-twice")

    class Store(Residency):
        first: Replica | None = None

        def seen(self, grant: Grant) -> bytes | None:
            if grant.target is None:
                return super().seen(grant)
            self.first = self.first or grant.target
            return bytes(self.first.memory)

    store_class = Store


class RowsOfSortedKeys(Fault):
    """Rows come in the order of the request, keys in that of the index."""

    requirement = "RES-018"
    killed_by = cases("batch/not-sorted", "failed/last-of-three")

    def residency_reserve(self, request: Request) -> Result:
        if request["mode"] == "store":
            request = {**request, "keys": sorted(request["keys"])}
        return super().residency_reserve(request)


class RowsByNameReversed(Fault):
    """The rows of a batch are taken from its end."""

    requirement = "RES-018"
    killed_by = cases("batch/own-rows", "batch/loaded-and-removed", "move/batch-of-two", "room/reserved")

    def residency_reserve(self, request: Request) -> Result:
        if request["mode"] == "store":
            request = {**request, "data": request["data"][::-1]}
        return super().residency_reserve(request)


class MissShiftsRows(Fault):
    """Rows of a load are listed without gaps."""

    requirement = "RES-018"
    killed_by = cases("batch/load-with-a-gap", "batch/load-with-a-gap-first")

    def residency_copy(self, request: Request) -> Result:
        told = super().residency_copy(request)
        if "data" not in told:
            return told
        rows = [one for one in told["data"] if one is not None]
        return {**told, "data": rows + [None] * (len(told["data"]) - len(rows))}


class ResidentShiftsRows(Fault):
    """Keys that are there are skipped, and the rows after them are not."""

    requirement = "RES-018"
    killed_by = cases("batch/partly-resident")

    class Store(Residency):
        def reserve(self, mode: str, keys: Sequence[Key], owner: str, rows: Sequence[bytes] = ()) -> Transaction:
            transaction = super().reserve(mode, keys, owner, rows)
            for index, grant in enumerate(transaction.moving):
                grant.rows = grant.rows and rows[index]
            return transaction

    store_class = Store


class FailureByPosition(Fault):
    """A failure is told by its place among sorted keys, and hits the key at that place of the batch."""

    requirement = "RES-018"
    killed_by = cases("failed/last-of-three")

    def residency_complete(self, request: Request) -> Result:
        found = self.residency.transactions.get(request["txn"])
        if found is not None and "failed" in request:
            order = [grant.key[1] for grant in found.grants]
            failed = [order[sorted(order).index(name)] for name in request["failed"] if name in order]
            request = {**request, "failed": failed}
        return super().residency_complete(request)


class NothingIsATransaction(Fault):
    """A batch of misses gets a handle, as if there were something to wait for."""

    requirement = "RES-018"
    killed_by = cases("batch/nothing-to-load")

    def residency_reserve(self, request: Request) -> Result:
        told = super().residency_reserve(request)
        return {**told, "txn": told["txn"] or f"t{self.residency.begun}"}


class BatchBeyondRoom(Fault):
    """The keys of a batch that find no room get the slot of the first."""

    requirement = "RES-018"
    killed_by = cases("batch/more-than-fit")

    class Store(Residency):
        def reserve(self, mode: str, keys: Sequence[Key], owner: str, rows: Sequence[bytes] = ()) -> Transaction:
            transaction = super().reserve(mode, keys, owner, rows)
            for grant in transaction.grants:
                if grant.outcome == "refused" and transaction.moving:
                    first = transaction.moving[0]
                    assert first.target is not None
                    assert first.target.slot is not None
                    grant.outcome, grant.target = "granted", Replica("host", first.target.memory, first.target.slot)
                    first.target.slot.holders += 1
                    grant.target.on("reserve-store")
                    grant.generation, grant.slot_generation = first.generation, first.slot_generation
                    grant.rows = rows[transaction.grants.index(grant)]
            return transaction

        def intact(self, rows: bytes, replica: Replica) -> bool:
            return True

    store_class = Store


class TwoWriters(Fault):
    """A key under way is granted to everybody who asks."""

    requirement = "RES-019"
    killed_by = cases("writer/one-at-a-time", "writer/same-rows", "writer/in-a-batch")

    class Store(Residency):
        def grant_store(self, key: Key, rows: bytes) -> Grant:
            slot = self.allocate() if self.writers(key) else None
            if slot is None:
                return super().grant_store(key, rows)
            target = self.occupy(slot, "host")
            target.on("reserve-store")
            return Grant(key, "granted", "host", self.entry(key).generation, rows, None, target, slot.generation)

    store_class = Store


class FailedWriterLocks(Fault):
    """The lock of a writer that failed is never released."""

    requirement = "RES-019"
    killed_by = cases("writer/after-failure", "failed/then-stored")

    class Store(Residency):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            self.locked: set[Key] = set()

        def complete(
            self, name: str, failed: Sequence[str] = (), receipts: Mapping[str, Mapping[str, Any]] | None = None
        ) -> str:
            grants = self.find(name).moving
            self.locked |= {grant.key for grant in grants if grant.key[1] in failed and grant.rows}
            return super().complete(name, failed, receipts)

        def grant_store(self, key: Key, rows: bytes) -> Grant:
            return Grant(key, "refused") if key in self.locked else super().grant_store(key, rows)

    store_class = Store


class CopyFollowsTheKey(Fault):
    """A load copies from whatever its key stands for by then."""

    requirement = "RES-020"
    killed_by = cases(
        "generation/replaced-while-loaded", "generation/replaced-before-copy", "generation/replaced-by-store"
    )

    class Store(Residency):
        def move(self, transaction: Transaction, grant: Grant, count: int | None) -> int:
            own, there = grant.source, self.valid(self.entry(grant.key))
            if own is not None and there:
                grant.source = there[0]
            moved = super().move(transaction, grant, count)
            grant.source = own
            return moved

    store_class = Store


class SlotFreedUnderLoad(Fault):
    """A replica that is replaced or removed gives its slot away while a load reads it (vllm-ascend#14055)."""

    requirement = "RES-030"
    killed_by = cases("lease/by-force", "quarantine/load")

    class Store(Residency):
        def read_from(self, source: Replica) -> None:
            return

        def read_no_more(self, source: Replica) -> None:
            return

        def victim(self) -> tuple[Entry, Replica] | None:
            found = super().victim()
            return None if found is not None and self.readers(found[1]) else found

        def demand_live(self, transaction: Transaction) -> None:
            return

    store_class = Store


class RemovedUnderLoad(Fault):
    """Removal asks no lease, and the slot is free at once."""

    requirement = "RES-020"
    killed_by = cases("generation/removed-while-loaded", "lease/removal")

    class Store(SlotFreedUnderLoad.Store):
        def protected(self, users: Sequence[Transaction]) -> bool:
            return False

    store_class = Store


class OvertakenPublishes(Fault):
    """A completion compares no cache generation: what was reserved first comes last and wins."""

    requirement = "RES-021"
    killed_by = cases("overtaken/by-put", "overtaken/before-copy", "overtaken/twice", "epoch/removed-and-stored")

    class Store(Residency):
        def objection(self, transaction: Transaction, grant: Grant, receipt: Mapping[str, Any]) -> str:
            reason = super().objection(transaction, grant, receipt)
            stale = reason == "STALE_CACHE_GENERATION" and transaction.mode == "store"
            return "" if stale and grant.copied == self.slot_bytes else reason

    store_class = Store


class GenerationOddOrEven(Fault):
    """The cache generation is one bit."""

    requirement = "RES-021"
    killed_by = cases("overtaken/twice", "epoch/removed-and-stored")

    class Store(Residency):
        def renew(self, entry: Entry) -> None:
            super().renew(entry)
            entry.generation %= 2

    store_class = Store


class RemovalForgotten(Fault):
    """A store under way does not notice that its key was removed."""

    requirement = "RES-021"
    killed_by = cases("overtaken/by-removal", "aba/removed-in-between")

    class Store(Residency):
        def remove_one(self, key: Key, tier: str | None, force: bool) -> str:
            entry = self.entry(key)
            generation, going = entry.generation, bool(self.valid(entry) or self.writers(key))
            self.renew(entry)
            entry.generation = generation
            return "removed" if going else "absent"

        def cancel(self, name: str) -> str:
            return "dead" if name in self.transactions else "unknown"

    store_class = Store


FAULTS = (
    VisibleWhenReserved,
    VisibleWhenBegun,
    VisibleWhenCopied,
    LoadedFromReservation,
    CompletedInNameOnly,
    LoadedNothing,
    LoadedNothingThatWasPut,
    EachPieceFromTheStart,
    ShortTailLost,
    StoredTwiceIsLost,
    BytesAsAsked,
    AllBytesAtOnce,
    BytesOfOneKey,
    HiddenWhileLoaded,
    ReleasedWhenReserved,
    FailureTakesTheOldRows,
    SharedSource,
    SourceOfTheOwner,
    PutThroughTheSameBuffer,
    CancelledSourceReused,
    SharedDestination,
    CancelledDestinationReused,
    LatestDestination,
    RowsOfSortedKeys,
    RowsByNameReversed,
    MissShiftsRows,
    ResidentShiftsRows,
    FailureByPosition,
    NothingIsATransaction,
    BatchBeyondRoom,
    TwoWriters,
    FailedWriterLocks,
    CopyFollowsTheKey,
    SlotFreedUnderLoad,
    RemovedUnderLoad,
    OvertakenPublishes,
    GenerationOddOrEven,
    RemovalForgotten,
)
