"""Faults of completions: short, of another receipt, failed, damaged, half published, counted twice, misnamed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from kvassay_reference.errors import Refusal
from kvassay_reference.residency import Grant, Key, Replica, Residency, State, Transaction, digest

from ...adapters.base import Rejected
from ..base import Fault
from .base import Remembering, Request, Result, cases

Receipts = Mapping[str, Mapping[str, Any]]


class Lenient(Residency):
    """A completion that lets one reason pass."""

    passes = ""

    def forgiven(self, transaction: Transaction, grant: Grant, receipt: Mapping[str, Any]) -> bool:
        """Whether the reason is let pass for this copy."""
        return True

    def objection(self, transaction: Transaction, grant: Grant, receipt: Mapping[str, Any]) -> str:
        reason = super().objection(transaction, grant, receipt)
        return "" if reason == self.passes and self.forgiven(transaction, grant, receipt) else reason

    def publish(self, transaction: Transaction, grant: Grant) -> None:
        assert grant.target is not None
        if grant.target.state in (State.DEMOTE_RESERVED, State.PROMOTE_RESERVED):
            grant.target.on("copy")
        if grant.target.state is State.COPY_IN:
            grant.target.on("arrive")
        super().publish(transaction, grant)


class LengthUnchecked(Fault):
    """A completion counts no bytes: what arrived is published (dynamo#15079, LMCache#4991)."""

    requirement = "RES-022"
    killed_by = cases(
        "short/half", "short/one-position", "short/one-byte", "short/over-itself", "authority/short-demotion"
    )

    class Store(Lenient):
        passes = "SHORT_COPY"

    store_class = Store


class LengthToThePosition(Fault):
    """A copy that lacks its last position is taken for whole (LMCache#2206: off by one at the frontier)."""

    requirement = "RES-022"
    killed_by = cases("short/one-position", "short/one-byte")

    class Store(Lenient):
        passes = "SHORT_COPY"

        def forgiven(self, transaction: Transaction, grant: Grant, receipt: Mapping[str, Any]) -> bool:
            return grant.copied >= self.slot_bytes - 256

    store_class = Store


class LengthOffByOne(Fault):
    """A copy that lacks its last byte is taken for whole."""

    requirement = "RES-022"
    killed_by = cases("short/one-byte")

    class Store(Lenient):
        passes = "SHORT_COPY"

        def forgiven(self, transaction: Transaction, grant: Grant, receipt: Mapping[str, Any]) -> bool:
            return grant.copied == self.slot_bytes - 1

    store_class = Store


class ZeroOfZeroIsDone(Fault):
    """A transfer of which nothing was asked is a transfer that is done (vllm#52170)."""

    requirement = "RES-022"
    killed_by = cases("short/nothing")

    class Store(Lenient):
        passes = "SHORT_COPY"

        def forgiven(self, transaction: Transaction, grant: Grant, receipt: Mapping[str, Any]) -> bool:
            return grant.copied == 0

    store_class = Store


class BatchLengthSummed(Fault):
    """A batch is whole when its keys together have the bytes of one."""

    requirement = "RES-022"
    killed_by = cases("short/batch")

    class Store(Lenient):
        passes = "SHORT_COPY"

        def forgiven(self, transaction: Transaction, grant: Grant, receipt: Mapping[str, Any]) -> bool:
            return sum(one.copied for one in transaction.moving) >= self.slot_bytes

    store_class = Store


class ShortLoadPublished(Fault):
    """A promotion that was cut off is visible all the same (dynamo#15079)."""

    requirement = "RES-022"
    killed_by = cases("short/load")

    class Store(Lenient):
        passes = "SHORT_COPY"

        def forgiven(self, transaction: Transaction, grant: Grant, receipt: Mapping[str, Any]) -> bool:
            return transaction.mode == "load" and grant.source is not None

    store_class = Store


class ReceiptField(Fault):
    """A completion does not look at one field of its receipt."""

    requirement = "RES-023"
    ignored: tuple[str, ...] = ()

    def residency_complete(self, request: Request) -> Result:
        receipts = request.get("receipt", {})
        rest = {
            key: {name: one for name, one in row.items() if name not in self.ignored} for key, row in receipts.items()
        }
        return super().residency_complete({**request, "receipt": rest} if receipts else request)


class SlotIgnored(ReceiptField):
    """The slot of a receipt is not compared."""

    killed_by = cases("receipt/other-slot")
    ignored = ("slot",)


class SlotWithoutGeneration(ReceiptField):
    """A slot is compared by its number alone: the ABA of slots."""

    killed_by = cases("receipt/other-generation", "receipt/zero-generation", "receipt/of-the-slots-past")
    ignored = ("generation",)


class OwnerIgnored(ReceiptField):
    """The owner of a receipt is not compared (LMCache#4385)."""

    killed_by = cases("receipt/other-owner", "receipt/first-wrong-of-two")
    ignored = ("owner",)


class BytesIgnored(ReceiptField):
    """The length of a receipt is not compared."""

    killed_by = cases("receipt/no-bytes", "receipt/one-position-missing", "receipt/too-many-bytes")
    ignored = ("bytes",)


class ChecksumIgnored(ReceiptField):
    """The checksum of a receipt is not compared."""

    killed_by = cases("receipt/other-rows", "receipt/old-rows")
    ignored = ("checksum",)


class NoughtIsUnset(Fault):
    """Fields of a receipt that are nought count as left out."""

    requirement = "RES-023"
    killed_by = cases("receipt/zero-generation", "receipt/no-bytes")

    class Store(Residency):
        def objection(self, transaction: Transaction, grant: Grant, receipt: Mapping[str, Any]) -> str:
            return super().objection(transaction, grant, {name: one for name, one in receipt.items() if one != 0})

    store_class = Store


class EnoughBytes(Fault):
    """A receipt of more bytes than there are is enough."""

    requirement = "RES-023"
    killed_by = cases("receipt/too-many-bytes")

    class Store(Residency):
        def objection(self, transaction: Transaction, grant: Grant, receipt: Mapping[str, Any]) -> str:
            told = dict(receipt)
            if told.get("bytes", 0) > self.slot_bytes:
                told["bytes"] = self.slot_bytes
            return super().objection(transaction, grant, told)

    store_class = Store


class AnyReceiptOfTheBatch(Fault):
    """A key is content with any receipt of its batch."""

    requirement = "RES-023"
    killed_by = cases("receipt/swapped")

    class Store(Residency):
        def complete(self, name: str, failed: Sequence[str] = (), receipts: Receipts | None = None) -> str:
            grants = self.find(name).moving
            rows = list((receipts or {}).values())
            fit = {
                grant.key[1]: next((row for row in rows if row["slot"] == (grant.place and grant.place.index)), {})
                for grant in grants
            }
            return super().complete(name, failed, fit if rows else receipts)

    store_class = Store


class FirstReceiptAlone(Fault):
    """Of a batch only the first receipt is looked at."""

    requirement = "RES-026"
    killed_by = cases("receipt/one-wrong-of-two")

    class Store(Residency):
        def complete(self, name: str, failed: Sequence[str] = (), receipts: Receipts | None = None) -> str:
            return super().complete(name, failed, dict(list((receipts or {}).items())[:1]))

    store_class = Store


class PublishedOneByOne(Fault):
    """Keys are published as they are validated, until one is refused."""

    requirement = "RES-026"
    killed_by = cases("receipt/one-wrong-of-two", "whole/overtaken-in-a-batch")

    class Store(Residency):
        def complete(self, name: str, failed: Sequence[str] = (), receipts: Receipts | None = None) -> str:
            transaction = self.find(name)
            for grant in transaction.moving:
                if not self.objection(transaction, grant, (receipts or {}).get(grant.key[1], {})):
                    if grant.key[1] not in failed:
                        self.publish(transaction, grant)
                    continue
                break
            return super().complete(name, [*failed, *(g.key[1] for g in transaction.moving if g.delivered)], receipts)

    store_class = Store


class RefusalPublishesTheRest(Fault):
    """A completion that is refused for one key publishes the others."""

    requirement = "RES-026"
    killed_by = cases("receipt/one-wrong-of-two", "receipt/first-wrong-of-two")

    class Store(Residency):
        def condemn(self, grant: Grant) -> None:
            super().condemn(grant)
            for transaction in self.live():
                for one in transaction.moving if grant in transaction.moving else ():
                    if one is not grant and one.copied == self.slot_bytes:
                        self.publish(transaction, one)

    store_class = Store


class FailureIgnored(Fault):
    """What the worker reports as failed is published with the rest (LMCache#4991)."""

    requirement = "RES-024"
    killed_by = cases("failed/one-of-two", "failed/all", "failed/after-every-byte", "failed/job")

    def residency_complete(self, request: Request) -> Result:
        return super().residency_complete({name: one for name, one in request.items() if name != "failed"})


class FailureOnlyWhenShort(Fault):
    """A failure is believed only where bytes are missing."""

    requirement = "RES-024"
    killed_by = cases("failed/after-every-byte", "failed/one-of-two")

    class Store(Residency):
        def complete(self, name: str, failed: Sequence[str] = (), receipts: Receipts | None = None) -> str:
            whole = {grant.key[1] for grant in self.find(name).moving if grant.copied == self.slot_bytes}
            return super().complete(name, [key for key in failed if key not in whole], receipts)

    store_class = Store


class FailedLoadTakesTheSource(Fault):
    """A load that fails condemns its source."""

    requirement = "RES-024"
    killed_by = cases("failed/load")

    class Store(Residency):
        def complete(self, name: str, failed: Sequence[str] = (), receipts: Receipts | None = None) -> str:
            for grant in self.find(name).moving:
                if grant.source is not None and grant.key[1] in failed:
                    self.drop(self.entry(grant.key), grant.source)
            return super().complete(name, failed, receipts)

    store_class = Store


class NextAttemptGoesOn(Fault):
    """A store that is tried again goes on where the failed one ended."""

    requirement = "RES-024"
    killed_by = cases("failed/then-stored")

    class Store(Remembering):
        def grant_store(self, key: Key, rows: bytes) -> Grant:
            grant = super().grant_store(key, rows)
            done = [
                one.copied for old in self.over.values() for one in old.moving if one.key == key and not one.delivered
            ]
            if grant.target is not None and done and done[-1]:
                grant.target.on("copy")
                grant.copied = done[-1]
            return grant

    store_class = Store


class FailureHitsAll(Fault):
    """One failed key takes the published ones of its batch along, and says done."""

    requirement = "RES-024"
    killed_by = cases("failed/one-of-two", "failed/last-of-three")

    class Store(Residency):
        def complete(self, name: str, failed: Sequence[str] = (), receipts: Receipts | None = None) -> str:
            everything = [grant.key[1] for grant in self.find(name).moving] if failed else []
            super().complete(name, everything, receipts)
            return "done"

    store_class = Store


class ReadUnchecked(Fault):
    """A read compares no checksum."""

    requirement = "RES-025"
    killed_by = cases("damaged/corrupt", "secondary/corrupt", "damaged/stored-again")

    class Store(Residency):
        def get(self, key: Key) -> tuple[str, bytes | None, str | None]:
            there = self.valid(self.entry(key))
            if there and len(there[0].memory) == self.slot_bytes:
                return "hit", bytes(there[0].memory), there[0].tier
            return super().get(key)

    store_class = Store


class LoadUnchecked(Fault):
    """A load compares no checksum with its source's."""

    requirement = "RES-025"
    killed_by = cases("damaged/corrupt-load")

    class Store(Lenient):
        passes = "PAYLOAD_DIGEST_MISMATCH"

        def forgiven(self, transaction: Transaction, grant: Grant, receipt: Mapping[str, Any]) -> bool:
            return transaction.mode == "load"

    store_class = Store


class TruncatedLoadPadded(Fault):
    """A load of a short source is filled up with zeros."""

    requirement = "RES-025"
    killed_by = cases("damaged/truncated-load")

    class Store(Lenient):
        passes = "SHORT_COPY"

        def forgiven(self, transaction: Transaction, grant: Grant, receipt: Mapping[str, Any]) -> bool:
            return grant.source is not None and len(grant.source.memory) < self.slot_bytes

        def condemn(self, grant: Grant) -> None:
            return

        def get(self, key: Key) -> tuple[str, bytes | None, str | None]:
            there = self.valid(self.entry(key))
            if there and there[0].tier == "device":
                return "hit", bytes(there[0].memory), "device"
            return super().get(key)

    store_class = Store


class LostBelowUntold(Fault):
    """The directory is not told of a replica that is gone, and its slot is used for others."""

    requirement = "RES-025"
    killed_by = cases("damaged/evicted")

    class Store(Residency):
        def inject(self, key: Key, fault: str) -> bool:
            there = self.valid(self.entry(key))
            if fault == "evict" and there:
                self.let_go(there[0].slot)
                return True
            return super().inject(key, fault)

        def intact(self, rows: bytes, replica: Replica) -> bool:
            return True

    store_class = Store


class DuplicatePublishes(Fault):
    """A completion that comes again publishes again (vllm#43226, vllm-ascend#16662)."""

    requirement = "RES-027"
    killed_by = cases("once/after-removal", "once/after-replacement", "once/after-reset")

    class Store(Remembering):
        def complete(self, name: str, failed: Sequence[str] = (), receipts: Receipts | None = None) -> str:
            for grant in self.over[name].moving if name in self.over else ():
                if grant.rows and grant.delivered:
                    replica = Replica("host", bytearray(grant.rows))
                    replica.on("put-host")
                    self.renew(self.entry(grant.key))
                    self.install(self.entry(grant.key), replica, digest(grant.rows))
            return super().complete(name, failed, receipts)

    store_class = Store


class DuplicateReleases(Fault):
    """A completion that comes again releases what the first one published."""

    requirement = "RES-027"
    killed_by = cases("once/twice", "once/load-twice", "cancel/done-before")

    class Store(Remembering):
        def again(self, name: str) -> None:
            """The rows of what is over go."""
            for grant in self.over[name].moving if name in self.over else ():
                self.renew(self.entry(grant.key))

        def complete(self, name: str, failed: Sequence[str] = (), receipts: Receipts | None = None) -> str:
            self.again(name)
            return super().complete(name, failed, receipts)

        def cancel(self, name: str) -> str:
            self.again(name)
            return super().cancel(name)

    store_class = Store


class LateSuccessWins(Fault):
    """A success that comes after a failure publishes what there is (vllm#43226)."""

    requirement = "RES-027"
    killed_by = cases("once/failed-then-done")

    class Store(Remembering):
        def complete(self, name: str, failed: Sequence[str] = (), receipts: Receipts | None = None) -> str:
            for grant in self.over[name].moving if name in self.over and not failed else ():
                if grant.delivered is False and grant.target is not None and grant.rows:
                    replica = Replica("host", bytearray(grant.target.memory))
                    replica.on("put-host")
                    self.install(self.entry(grant.key), replica, digest(bytes(replica.memory)))
            return super().complete(name, failed, receipts)

    store_class = Store


class CompletionBySlot(Fault):
    """A completion of what is over completes who has its slot now, for jobs are known by block (vllm-ascend#16662)."""

    requirement = "RES-027"
    killed_by = cases("once/its-slot-is-anothers")

    class Store(Remembering, Lenient):
        def complete(self, name: str, failed: Sequence[str] = (), receipts: Receipts | None = None) -> str:
            slots = [grant.place for grant in self.over[name].moving] if name in self.over else []
            for other in self.live() if slots else ():
                if any(grant.place in slots for grant in other.moving):
                    for grant in other.moving:
                        self.publish(other, grant)
                    self.end(other)
                    return "done"
            return super().complete(name, failed, receipts)

    store_class = Store


class UnknownIsTheLatest(Fault):
    """A handle that nobody knows is taken for the latest transaction."""

    requirement = "RES-027"
    killed_by = cases("once/unknown")

    class Store(Residency):
        def complete(self, name: str, failed: Sequence[str] = (), receipts: Receipts | None = None) -> str:
            live = self.live()
            return super().complete(name if name.startswith("t") or not live else live[-1].name, failed, receipts)

    store_class = Store


class Renamed(Fault):
    """Refusals have other names."""

    requirement = "RES-028"
    names: ClassVar[Mapping[str, str]] = {}

    def residency_complete(self, request: Request) -> Result:
        try:
            return super().residency_complete(request)
        except Rejected as refusal:
            raise Rejected(self.names.get(refusal.reason or "", refusal.reason), refusal.detail) from None


class AllIsDead(Renamed):
    """Whatever is wrong with a completion, its transaction is called dead."""

    killed_by = cases(
        "reason/unknown",
        "reason/short-store",
        "reason/short-load",
        "reason/truncated-load",
        "reason/corrupt-load",
        "reason/stale-store",
        "reason/stale-load",
        "reason/receipt-other-slot",
        "reason/receipt-other-generation",
        "reason/receipt-other-owner",
        "reason/receipt-other-rows",
    )
    names: ClassVar[Mapping[str, str]] = dict.fromkeys(
        (
            "UNKNOWN_TRANSACTION",
            "SHORT_COPY",
            "STALE_CACHE_GENERATION",
            "RECYCLED_DESTINATION",
            "TRANSFER_OF_OTHER_OWNER",
            "PAYLOAD_DIGEST_MISMATCH",
        ),
        "TRANSACTION_DEAD",
    )


class AllIsUnknown(Renamed):
    """What is over is forgotten, and called unknown."""

    killed_by = cases(
        "reason/cancelled",
        "reason/completed",
        "reason/expired",
        "reason/reset",
        "reason/load-cancelled",
        "reason/dead-before-short",
    )
    names: ClassVar[Mapping[str, str]] = {"TRANSACTION_DEAD": "UNKNOWN_TRANSACTION"}


class ReasonsReversed(Fault):
    """The last reason that applies is told, not the first."""

    requirement = "RES-028"
    killed_by = cases(
        "reason/receipt-slot-before-owner",
        "reason/receipt-owner-before-bytes",
        "reason/receipt-bytes-before-rows",
        "reason/receipt-everything",
        "reason/stale-before-slot",
    )

    class Store(Residency):
        def objection(self, transaction: Transaction, grant: Grant, receipt: Mapping[str, Any]) -> str:
            fields: tuple[tuple[str, ...], ...] = (("checksum",), ("bytes",), ("owner",), ("slot", "generation"))
            for names in fields:
                one = {name: value for name, value in receipt.items() if name in names}
                reason = super().objection(transaction, grant, one)
                if reason and reason != "STALE_CACHE_GENERATION":
                    return reason
            stale = self.entry(grant.key).generation != grant.generation
            if stale and any(
                name in receipt and receipt[name] != value for name, value in self.truth(transaction, grant)
            ):
                return "RECYCLED_DESTINATION"
            return super().objection(transaction, grant, receipt)

        def truth(self, transaction: Transaction, grant: Grant) -> list[tuple[str, Any]]:
            """What a receipt should say of its slot."""
            assert grant.place is not None
            return [("slot", grant.place.index), ("generation", grant.slot_generation)]

    store_class = Store


class ShortBeforeReceipt(Fault):
    """A receipt's length is compared before its slot and owner."""

    requirement = "RES-028"
    killed_by = cases("reason/receipt-owner-before-bytes", "reason/receipt-everything")

    class Store(Residency):
        def objection(self, transaction: Transaction, grant: Grant, receipt: Mapping[str, Any]) -> str:
            short = receipt.get("bytes", self.slot_bytes) != self.slot_bytes
            return "SHORT_COPY" if short else super().objection(transaction, grant, receipt)

    store_class = Store


class BytesAreAChecksum(Fault):
    """A length that is wrong is called a digest that is."""

    requirement = "RES-028"
    killed_by = cases("reason/receipt-other-bytes")

    class Store(Residency):
        def objection(self, transaction: Transaction, grant: Grant, receipt: Mapping[str, Any]) -> str:
            reason = super().objection(transaction, grant, receipt)
            return "PAYLOAD_DIGEST_MISMATCH" if reason == "SHORT_COPY" and receipt else reason

    store_class = Store


class ResetIsNeverBusy(Fault):
    """A reset under a load is refused for another reason."""

    requirement = "RES-028"
    killed_by = cases("reason/busy")

    class Store(Residency):
        def reset(self) -> None:
            try:
                super().reset()
            except Refusal:
                raise Refusal("TRANSACTION_DEAD", "a load is under way") from None

    store_class = Store


class LastIsBusy(Fault):
    """The release of a last replica is refused as busy."""

    requirement = "RES-028"
    killed_by = cases("reason/last-authority")

    class Store(Residency):
        def remove(self, keys: Sequence[Key], tier: str | None = None, force: bool = False) -> list[str]:
            try:
                return super().remove(keys, tier, force)
            except Refusal as refusal:
                raise Refusal("BUSY", refusal.detail) from None

    store_class = Store


FAULTS = (
    LengthUnchecked,
    LengthToThePosition,
    LengthOffByOne,
    ZeroOfZeroIsDone,
    BatchLengthSummed,
    ShortLoadPublished,
    SlotIgnored,
    SlotWithoutGeneration,
    OwnerIgnored,
    BytesIgnored,
    ChecksumIgnored,
    NoughtIsUnset,
    EnoughBytes,
    AnyReceiptOfTheBatch,
    FirstReceiptAlone,
    PublishedOneByOne,
    RefusalPublishesTheRest,
    FailureIgnored,
    FailureOnlyWhenShort,
    FailedLoadTakesTheSource,
    NextAttemptGoesOn,
    FailureHitsAll,
    ReadUnchecked,
    LoadUnchecked,
    TruncatedLoadPadded,
    LostBelowUntold,
    DuplicatePublishes,
    DuplicateReleases,
    LateSuccessWins,
    CompletionBySlot,
    UnknownIsTheLatest,
    AllIsDead,
    AllIsUnknown,
    ReasonsReversed,
    ShortBeforeReceipt,
    BytesAreAChecksum,
    ResetIsNeverBusy,
    LastIsBusy,
)
