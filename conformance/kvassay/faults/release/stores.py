"""Stores that mix up tenants, trust copies, free under readers, and do things twice or not at all after a restart."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

from kvassay_reference.errors import Refusal
from kvassay_reference.release.store import TIERS, Applied, Copy, Identity, Object, Receipt, Store, Tier, Transaction

from ..base import Fault
from .base import Request, Result, case


class Stored(Fault):
    """A store with one method replaced."""

    Keeps: ClassVar[type[Store]]

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        if "Keeps" in vars(cls):
            cls.rel_store_class = cls.Keeps


class Keyed(Fault):
    """Identities that come out the same are one."""

    @staticmethod
    def key(identity: Request) -> Result:
        """The identity as the fault reads it."""
        raise NotImplementedError

    def read(self, request: Request) -> Request:
        """A request with its identities replaced."""
        names = [name for name in ("identity", "swap") if request.get(name) is not None]
        return {**request, **{name: self.key(request[name]) for name in names}}

    def release_reserve(self, request: Request) -> Result:
        return super().release_reserve(self.read(request))

    def release_get(self, request: Request) -> Result:
        return super().release_get(self.read(request))

    def release_evict(self, request: Request) -> Result:
        return super().release_evict(self.read(request))

    def release_erase(self, request: Request) -> Result:
        return super().release_erase(self.read(request))

    def release_tamper(self, request: Request) -> Result:
        return super().release_tamper(self.read(request))


class NoTenant(Keyed):
    """Tenants share what they have in common: cache salts are left out of the key."""

    requirement = "REL-045"
    killed_by = case("tenants/another-tenant-b", "tenants/two-with-the-same-prompt")

    @staticmethod
    def key(identity: Request) -> Result:
        return {**identity, "tenant": ""}


class NoDomain(Keyed):
    """A tenant is one in all domains."""

    requirement = "REL-045"
    killed_by = case("tenants/another-domain-us")

    @staticmethod
    def key(identity: Request) -> Result:
        return {**identity, "domain": ""}


class NoAdapter(Keyed):
    """Adapters share the rows of their base model."""

    requirement = "REL-045"
    killed_by = case("tenants/another-adapter-none-2")

    @staticmethod
    def key(identity: Request) -> Result:
        return {**identity, "adapter": ""}


class ShapesAreIdentity(Keyed):
    """Rows of the same model and number are the same rows."""

    requirement = "REL-045"
    killed_by = case("tenants/another-representation-full-kv-fp16", "tenants/another-first-position-4")

    @staticmethod
    def key(identity: Request) -> Result:
        return {**identity, "representation": "", "first_position": 0}


class TenantsFoldedInKeys(Keyed):
    """Tenants are compared without case and blanks."""

    requirement = "REL-045"
    killed_by = case("tenants/another-capital-tenant-a", "tenants/another-tenant-a-blank")

    @staticmethod
    def key(identity: Request) -> Result:
        return {**identity, "tenant": identity["tenant"].strip().lower()}


class KeysRunTogether(Keyed):
    """A key is its fields, one after the other."""

    requirement = "REL-045"
    killed_by = case("tenants/fields-that-run-together")

    @staticmethod
    def key(identity: Request) -> Result:
        text = ("tenant", "domain", "model", "adapter", "representation")
        joined = "".join(identity[name] for name in text)
        return {**identity, **dict.fromkeys(text, ""), "tenant": joined}


class MissHoldsALease(Stored):
    """A read that finds nothing holds its lease."""

    requirement = "REL-045"
    killed_by = case("tenants/a-miss-tells-nothing")

    class Keeps(Store):
        def get(self, identity: Identity, lease: str | None) -> tuple[Object, Tier] | None:
            found = super().get(identity, lease)
            if found is None and lease is not None:
                self.leases[lease] = Object(identity, 0, {}, {lease})
            return found


class AnotherModelsRows(Stored):
    """Where an identity is unknown, rows of another model of the tenant are served."""

    requirement = "REL-045"
    killed_by = case("tenants/another-model-m-2")

    class Keeps(Store):
        def find(self, identity: Identity) -> Object | None:
            near = (one for one in self.visible.values() if replace(one.identity, model=identity.model) == identity)
            return super().find(identity) or next(near, None)


class PrefixOfMoreRows(Stored):
    """A reader of fewer rows gets the object of more."""

    requirement = "REL-045"
    killed_by = case("tenants/another-rows-3")

    class Keeps(Store):
        def find(self, identity: Identity) -> Object | None:
            longer = (
                one
                for one in self.visible.values()
                if one.identity.rows > identity.rows and replace(one.identity, rows=identity.rows) == identity
            )
            return super().find(identity) or next(longer, None)


# --- authentication -----------------------------------------------------------------------------------------------


class TagsUnread(Stored):
    """What is stored is believed."""

    requirement = "REL-046"
    killed_by = case("payload/changed-on-the-gpu", "payload/swapped-on-gpu")

    class Keeps(Store):
        def authentic(self, one: Object, copy: Copy) -> bool:
            return True


class TagOfTheBytes(Stored):
    """A tag says that bytes are whole and not whose they are."""

    requirement = "REL-046"
    killed_by = case("payload/swapped-on-gpu", "payload/swapped-for-another-model")

    class Keeps(Store):
        def authentic(self, one: Object, copy: Copy) -> bool:
            known = {id(copy)} | {id(other) for each in self.visible.values() for other in each.copies.values()}
            return super().authentic(one, copy) or any(
                self.authentic_of(each, copy) for each in self.visible.values() if id(copy) in known
            )

        def authentic_of(self, each: Object, copy: Copy) -> bool:
            return Store.authentic(self, each, copy)


class TagOfTheTenant(Stored):
    """A tag binds the tenant, and rows of its other models pass."""

    requirement = "REL-046"
    killed_by = case("payload/swapped-for-another-model", "payload/swapped-for-another-first-position")

    class Keeps(Store):
        def authentic(self, one: Object, copy: Copy) -> bool:
            mine = (each for each in self.visible.values() if each.identity.tenant == one.identity.tenant)
            return any(Store.authentic(self, each, copy) for each in mine)


class ContentsDecide(Stored):
    """A copy of the same rows is fine, whoever it belongs to."""

    requirement = "REL-046"
    killed_by = case("payload/swapped-and-same-rows")

    class Keeps(Store):
        def authentic(self, one: Object, copy: Copy) -> bool:
            good = [each for each in one.copies.values() if Store.authentic(self, one, each)]
            return Store.authentic(self, one, copy) or any(each.payload == copy.payload for each in good)


class FirstTierAlone(Stored):
    """When the first copy is not authentic, it is a miss."""

    requirement = "REL-046"
    killed_by = case("payload/changed-on-the-gpu", "payload/changed-in-two-tiers")

    class Keeps(Store):
        def get(self, identity: Identity, lease: str | None) -> tuple[Object, Tier] | None:
            one = self.find(identity)
            if one is not None and one.copies:
                tier = next(iter(one.copies))
                if not self.authentic(one, one.copies[tier]):
                    del one.copies[tier]
                    self.quarantined += 1
                    return None
            return super().get(identity, lease)


class DurableIsTrusted(Stored):
    """Tags of durable copies are not read."""

    requirement = "REL-046"
    killed_by = case("payload/changed-only-below", "payload/changed-everywhere", "payload/swapped-on-durable")

    class Keeps(Store):
        def authentic(self, one: Object, copy: Copy) -> bool:
            return one.copies.get("durable") is copy or super().authentic(one, copy)


class WrongCopyKept(Stored):
    """A copy that is found wrong stays where it is."""

    requirement = "REL-046"
    killed_by = case("payload/changed-on-the-gpu", "payload/changed-in-two-tiers")

    class Keeps(Store):
        def get(self, identity: Identity, lease: str | None) -> tuple[Object, Tier] | None:
            one = self.find(identity)
            before = {} if one is None else dict(one.copies)
            found = super().get(identity, lease)
            if one is not None and found is not None:
                one.copies = {tier: before[tier] for tier in TIERS if tier in before}
            return found


class QuarantineRaises(Stored):
    """Rows that turn out wrong under a lease are forgotten at once."""

    requirement = "REL-046"
    killed_by = case("leases/of-rows-that-turn-out-wrong")

    class Keeps(Store):
        def retire(self, one: Object) -> bool:
            if not one.copies:
                for name in one.leases:
                    self.leases.pop(name)
                one.leases.clear()
            return super().retire(one)


# --- transactions and restarts ------------------------------------------------------------------------------------


class VisibleOnWrite(Stored):
    """Rows are visible as soon as they were written."""

    requirement = "REL-047"
    killed_by = case("crash/after-write", "transactions/rows", "crash/over-an-older-object-after-write")

    class Keeps(Store):
        def write(self, name: str, payload: Any) -> None:
            super().write(name, payload)
            one = self.transactions[name]
            self.publish(name, f"written-{name}", one, tuple(payload))
            self.durable.receipts.pop(f"written-{name}")
            self.durable.names.discard(name)
            self.durable.settled.pop(one.identity, None)


class ShortRowsTaken(Stored):
    """A payload of fewer rows is taken."""

    requirement = "REL-047"
    killed_by = case("transactions/rows")

    class Keeps(Store):
        def write(self, name: str, payload: Any) -> None:
            one = self.transaction(name)
            whole = [*payload, *[0] * (one.identity.rows - len(payload))]
            super().write(name, whole)


class EmptyCommitTaken(Stored):
    """A transaction that wrote nothing is published."""

    requirement = "REL-047"
    killed_by = case("transactions/rows")

    class Keeps(Store):
        def commit(self, name: str, receipt: str) -> tuple[str, int]:
            one = self.transactions.get(name)
            if one is not None and one.payload is None:
                self.transactions[name] = replace(one, payload=(0,) * one.identity.rows)
            return super().commit(name, receipt)


class OldObjectGivenUpEarly(Stored):
    """The old rows go when new ones are reserved."""

    requirement = "REL-047"
    killed_by = case("crash/over-an-older-object-after-reserve", "crash/over-an-older-object-after-write")

    class Keeps(Store):
        def reserve(self, name: str, identity: Identity) -> int:
            made = super().reserve(name, identity)
            if identity in self.visible:
                self.retire(self.visible[identity])
            return made


class ReservationsSurvive(Stored):
    """Open transactions are found again after a restart."""

    requirement = "REL-047"
    killed_by = case("crash/after-reserve", "crash/after-write", "crash/twice")

    class Keeps(Store):
        def restart(self) -> None:
            kept = self.transactions
            super().restart()
            self.transactions = kept


class GenerationsStartOver(Stored):
    """After a restart generations are given out again."""

    requirement = "REL-047"
    killed_by = case("crash/after-reserve", "crash/names-and-generations-are-durable")

    class Keeps(Store):
        def restart(self) -> None:
            super().restart()
            self.durable.issued = {one.identity: one.generation for one in self.visible.values()}


class NamesStartOver(Stored):
    """Names of committed transactions are free after a restart."""

    requirement = "REL-047"
    killed_by = case("crash/names-and-generations-are-durable")

    class Keeps(Store):
        def restart(self) -> None:
            super().restart()
            self.durable.names = set()


class NameOfAnOpenTransaction(Stored):
    """A second transaction takes over the name of an open one."""

    requirement = "REL-047"
    killed_by = case("transactions/names")

    class Keeps(Store):
        def reserve(self, name: str, identity: Identity) -> int:
            self.transactions.pop(name, None)
            return super().reserve(name, identity)


class NothingSurvives(Stored):
    """A restart starts from nothing."""

    requirement = "REL-048"
    killed_by = case("crash/after-commit", "crash/evicted-before")

    class Keeps(Store):
        def kept(self, one: Object) -> dict[Tier, Copy]:
            return {}


class HostSurvives(Stored):
    """Host memory is taken to survive the process."""

    requirement = "REL-048"
    killed_by = case("crash/after-commit", "crash/twice")

    class Keeps(Store):
        def kept(self, one: Object) -> dict[Tier, Copy]:
            return {tier: copy for tier, copy in one.copies.items() if tier != "gpu"}


class OldGenerationComesBack(Stored):
    """After a restart the first generation that was ever committed is found."""

    requirement = "REL-048"
    killed_by = case("crash/after-commit-of-a-replacement")

    class Keeps(Store):
        def publish(self, name: str, receipt: str, one: Transaction, payload: tuple[int, ...]) -> None:
            before = self.visible.get(one.identity)
            super().publish(name, receipt, one, payload)
            if before is not None:
                self.visible[one.identity].copies["durable"] = before.copies["durable"]


# --- receipts -----------------------------------------------------------------------------------------------------


class RepeatedCommitRefused(Stored):
    """A repeated commit finds no transaction."""

    requirement = "REL-049"
    killed_by = case("receipts/commit-again", "crash/after-commit")

    class Keeps(Store):
        def commit(self, name: str, receipt: str) -> tuple[str, int]:
            self.transaction(name)
            return super().commit(name, receipt)


class RepeatedCommitRedone(Stored):
    """A repeated commit writes its copies once more."""

    requirement = "REL-049"
    killed_by = case("crash/after-commit", "crash/after-commit-of-a-replacement")

    class Keeps(Store):
        def commit(self, name: str, receipt: str) -> tuple[str, int]:
            outcome, generation = super().commit(name, receipt)
            if outcome == "noop":
                for one in self.visible.values():
                    first = next(iter(one.copies.values()))
                    one.copies = dict.fromkeys(TIERS, first)
            return outcome, generation


class ReceiptsInMemory(Stored):
    """Receipts do not survive a restart."""

    requirement = "REL-049"
    killed_by = case("crash/after-commit", "deletion/repeated-after-a-restart", "receipts/replayed-after-deletion")

    class Keeps(Store):
        def restart(self) -> None:
            super().restart()
            self.durable.receipts = {}


class AnyUseOfAReceipt(Stored):
    """A known receipt is a repetition, whatever it is offered for."""

    requirement = "REL-049"
    killed_by = case("receipts/competing")

    class Keeps(Store):
        def applied(self, id: str, receipt: Receipt) -> Receipt | None:
            return self.durable.receipts.get(id)


class ReceiptsOfOneOp(Stored):
    """Receipts of commits and of deletions are kept apart."""

    requirement = "REL-049"
    killed_by = case("receipts/competing")

    class Keeps(Store):
        def applied(self, id: str, receipt: Receipt) -> Receipt | None:
            old = self.durable.receipts.get(id)
            return super().applied(id, receipt) if old is not None and old.op == receipt.op else None


class DeletionsAlwaysDone(Stored):
    """A deletion that is repeated deletes what is there by now."""

    requirement = "REL-049"
    killed_by = case("deletion/again-and-anew", "deletion/repeated-after-a-restart")

    class Keeps(Store):
        def erase(self, identity: Identity, receipt: str) -> str:
            self.applied(receipt, Receipt("erase", identity))
            self.durable.receipts.pop(receipt, None)
            return super().erase(identity, receipt)


class ReceiptForgottenWithItsObject(Stored):
    """A deletion takes the receipts of what it deletes along."""

    requirement = "REL-049"
    killed_by = case("receipts/replayed-after-deletion")

    class Keeps(Store):
        def erase(self, identity: Identity, receipt: str) -> str:
            generation = self.visible[identity].generation if identity in self.visible else -1
            outcome = super().erase(identity, receipt)
            self.durable.receipts = {
                id: one
                for id, one in self.durable.receipts.items()
                if one.op != "commit" or one.generation != generation
            }
            return outcome


class ReceiptOfARefusedCommit(Stored):
    """A commit that is refused uses its receipt up."""

    requirement = "REL-049"
    killed_by = case("stale/refused-commit-leaves-its-receipt-free")

    class Keeps(Store):
        def commit(self, name: str, receipt: str) -> tuple[str, int]:
            try:
                return super().commit(name, receipt)
            except Refusal:
                self.durable.receipts.setdefault(receipt, Receipt("commit", name))
                raise


# --- late commits -------------------------------------------------------------------------------------------------


class LastCommitWins(Stored):
    """Whoever commits last is published."""

    requirement = "REL-050"
    killed_by = case("stale/older-commit-after-newer", "stale/deleted-meanwhile")

    class Keeps(Store):
        def stale(self, one: Transaction) -> bool:
            return False


class DeletionIsNoGeneration(Stored):
    """A deletion does not make open transactions late."""

    requirement = "REL-050"
    killed_by = case("stale/deleted-meanwhile", "stale/deleted-and-restarted-meanwhile", "stale/of-one-object-only")

    class Keeps(Store):
        def erase(self, identity: Identity, receipt: str) -> str:
            before = self.durable.settled.get(identity, 0)
            outcome = super().erase(identity, receipt)
            self.durable.settled[identity] = before
            return outcome


class OnlyWhatExistsIsDeleted(Stored):
    """A deletion that finds nothing leaves no mark."""

    requirement = "REL-050"
    killed_by = case("stale/deleted-meanwhile", "stale/of-one-object-only")

    class Keeps(Store):
        def erase(self, identity: Identity, receipt: str) -> str:
            before = self.durable.settled.get(identity, 0)
            outcome = super().erase(identity, receipt)
            if outcome == "noop" and self.visible.get(identity) is None:
                self.durable.settled[identity] = before
            return outcome


class StoreWideGenerations(Stored):
    """A deletion makes all open transactions late."""

    requirement = "REL-050"
    killed_by = case("stale/of-one-object-only")

    class Keeps(Store):
        def settle(self, identity: Identity, generation: int) -> None:
            super().settle(identity, generation)
            if generation == self.durable.issued.get(identity) and identity not in self.visible:
                for one in self.transactions.values():
                    super().settle(one.identity, one.generation)


class EqualGenerationIsLate(Stored):
    """Company makes a commit late: only the newest transaction may commit."""

    requirement = "REL-050"
    killed_by = case("stale/in-order")

    class Keeps(Store):
        def stale(self, one: Transaction) -> bool:
            return one.generation < self.durable.issued[one.identity] or super().stale(one)


class LateReservationKept(Stored):
    """A commit that is too late keeps its reservation."""

    requirement = "REL-050"
    killed_by = case("stale/older-commit-after-newer", "stale/deleted-meanwhile")

    class Keeps(Store):
        def commit(self, name: str, receipt: str) -> tuple[str, int]:
            one = self.transactions.get(name)
            try:
                return super().commit(name, receipt)
            except Refusal as refusal:
                if refusal.reason == "STALE_COMMIT" and one is not None:
                    self.transactions[name] = one
                raise


# --- leases and deletion ------------------------------------------------------------------------------------------


class FreedUnderReaders(Stored):
    """A deleted object goes at once."""

    requirement = "REL-051"
    killed_by = case("deletion/under-a-lease", "leases/of-a-replaced-object")

    class Keeps(Store):
        def retire(self, one: Object) -> bool:
            del self.visible[one.identity]
            for name in one.leases:
                self.leases.pop(name)
            return False


class ReadUntilTheLastLease(Stored):
    """A deleted object is found as long as somebody reads it."""

    requirement = "REL-051"
    killed_by = case("deletion/under-a-lease")

    class Keeps(Store):
        def find(self, identity: Identity) -> Object | None:
            held = (one for one in self.retired if one.identity == identity)
            return super().find(identity) or next(held, None)


class FirstReaderFrees(Stored):
    """The first lease that ends frees what is deleted."""

    requirement = "REL-051"
    killed_by = case("deletion/under-two-leases")

    class Keeps(Store):
        def unlease(self, lease: str) -> None:
            one = self.leases.get(lease)
            super().unlease(lease)
            self.retired = [other for other in self.retired if other is not one]


class LeaseEndsTwice(Stored):
    """A lease that ended may end again, for somebody else."""

    requirement = "REL-051"
    killed_by = case("deletion/under-two-leases", "leases/names")

    class Keeps(Store):
        def unlease(self, lease: str) -> None:
            if lease not in self.leases and self.leases:
                lease = next(iter(self.leases))
            if lease in self.leases:
                super().unlease(lease)


class RetiredForEver(Stored):
    """What a lease held is never freed."""

    requirement = "REL-051"
    killed_by = case("deletion/under-a-lease", "leases/of-a-replaced-object")

    class Keeps(Store):
        def unlease(self, lease: str) -> None:
            kept = self.retired
            super().unlease(lease)
            self.retired = kept


class AllGenerationsTogether(Stored):
    """The end of one lease frees every retired generation of the object."""

    requirement = "REL-051"
    killed_by = case("leases/of-both-generations")

    class Keeps(Store):
        def unlease(self, lease: str) -> None:
            identity = self.leases[lease].identity if lease in self.leases else None
            super().unlease(lease)
            self.retired = [one for one in self.retired if one.identity != identity]


class LeaseNamesShared(Stored):
    """A second lease of one name replaces the first."""

    requirement = "REL-051"
    killed_by = case("leases/names")

    class Keeps(Store):
        def get(self, identity: Identity, lease: str | None) -> tuple[Object, Tier] | None:
            if lease is not None:
                self.leases.pop(lease, None)
            return super().get(identity, lease)


class EvictedUnderALease(Stored):
    """The allocator does not look at leases."""

    requirement = "REL-051"
    killed_by = case("deletion/eviction-under-a-lease")

    class Keeps(Store):
        def evict(self, identity: Identity, tier: Tier) -> str:
            one = self.visible.get(identity)
            held = set() if one is None else set(one.leases)
            if one is not None:
                one.leases = set()
            try:
                return super().evict(identity, tier)
            finally:
                if one is not None:
                    one.leases = held


class LeasesSurvive(Stored):
    """Readers of before a restart hold what was deleted for ever."""

    requirement = "REL-051"
    killed_by = case("deletion/crash-under-a-lease")

    class Keeps(Store):
        def restart(self) -> None:
            leases, retired = self.leases, self.retired
            super().restart()
            self.leases, self.retired = leases, retired


class EvictionDeletes(Stored):
    """Freeing the GPU's copy makes the rows unreadable."""

    requirement = "REL-052"
    killed_by = case("deletion/eviction-is-none", "crash/evicted-before")

    class Keeps(Store):
        def evict(self, identity: Identity, tier: Tier) -> str:
            outcome = super().evict(identity, tier)
            if outcome == "evicted" and tier == "gpu":
                self.visible.pop(identity)
            return outcome


class DurableCopyStays(Stored):
    """A deletion leaves the durable copy, which a restart finds."""

    requirement = "REL-052"
    killed_by = case("deletion/without-readers", "deletion/under-a-lease", "deletion/crash-under-a-lease")

    class Keeps(Store):
        def erase(self, identity: Identity, receipt: str) -> str:
            one = self.visible.get(identity)
            outcome = super().erase(identity, receipt)
            if one is not None and outcome != "noop":
                left = self.__dict__.setdefault("left", [])
                left.append(Object(identity, one.generation, {"durable": one.copies["durable"]}))
            return outcome

        def restart(self) -> None:
            super().restart()
            for one in self.__dict__.pop("left", []):
                self.visible.setdefault(one.identity, one)


class TombstoneInMemory(Stored):
    """A deletion that waits for a lease is forgotten by a restart."""

    requirement = "REL-052"
    killed_by = case("deletion/crash-under-a-lease")

    class Keeps(Store):
        def restart(self) -> None:
            waiting = self.retired
            super().restart()
            for one in waiting:
                self.visible.setdefault(one.identity, Object(one.identity, one.generation, self.kept(one)))


class EveryTenantsCopy(Stored):
    """A deletion takes all rows of the same model and positions."""

    requirement = "REL-052"
    killed_by = case("tenants/two-with-the-same-prompt")

    class Keeps(Store):
        def erase(self, identity: Identity, receipt: str) -> str:
            outcome = super().erase(identity, receipt)
            for other in list(self.visible):
                if replace(other, tenant=identity.tenant) == identity:
                    self.retire(self.visible[other])
            return outcome


class AnyOtherCopyIsEnough(Stored):
    """Copies that nobody authenticated count for the authority that must remain."""

    requirement = "REL-052"
    killed_by = case("deletion/last-authority", "deletion/last-authority-of-three")

    class Keeps(Store):
        def remains(self, one: Object, tier: Tier) -> bool:
            return len(one.copies) > 1


class DurableCopyIsEnough(Stored):
    """Where there is a durable copy the others may go."""

    requirement = "REL-052"
    killed_by = case("deletion/last-authority")

    class Keeps(Store):
        def remains(self, one: Object, tier: Tier) -> bool:
            return "durable" in one.copies or super().remains(one, tier)


class EveryCopyMustBeRight(Stored):
    """One changed copy keeps all others from being evicted."""

    requirement = "REL-052"
    killed_by = case("deletion/last-authority-of-three")

    class Keeps(Store):
        def remains(self, one: Object, tier: Tier) -> bool:
            return all(self.authentic(one, copy) for other, copy in one.copies.items() if other != tier)


# --- audit --------------------------------------------------------------------------------------------------------


class LogOfTheProcess(Stored):
    """Records do not survive a restart."""

    requirement = "REL-053"
    killed_by = case("audit/outlives-rows-and-process")

    class Keeps(Store):
        def restart(self) -> None:
            super().restart()
            self.durable.log = []


class RecordsOfLivingRows(Stored):
    """A deletion takes the records of what it deletes along."""

    requirement = "REL-053"
    killed_by = case("audit/outlives-rows-and-process", "audit/generations")

    class Keeps(Store):
        def erase(self, identity: Identity, receipt: str) -> str:
            outcome = super().erase(identity, receipt)
            if outcome in ("erased", "tombstoned"):
                self.durable.log = [one for one in self.durable.log if one.identity != identity or one.op == "erase"]
            return outcome


class LogOfAllTenants(Stored):
    """Whoever asks reads all records."""

    requirement = "REL-053"
    killed_by = case("audit/of-other-tenants")

    class Keeps(Store):
        def audit(self, tenant: str, domain: str) -> list[Applied]:
            return self.durable.log


class LogOfTheTenantEverywhere(Stored):
    """A tenant's records are read from any domain."""

    requirement = "REL-053"
    killed_by = case("audit/of-other-tenants")

    class Keeps(Store):
        def audit(self, tenant: str, domain: str) -> list[Applied]:
            return [one for one in self.durable.log if one.identity.tenant == tenant]


class RepetitionsRecorded(Stored):
    """Each repetition of a receipt is on record, too."""

    requirement = "REL-053"
    killed_by = case("audit/outlives-rows-and-process")

    class Keeps(Store):
        def applied(self, id: str, receipt: Receipt) -> Receipt | None:
            old = super().applied(id, receipt)
            self.durable.log += [one for one in self.durable.log if old is not None and one.receipt == id][:1]
            return old


class AdapterUnrecorded(Stored):
    """Records name the model and not the adapter."""

    requirement = "REL-053"
    killed_by = case("audit/outlives-rows-and-process")

    class Keeps(Store):
        def audit(self, tenant: str, domain: str) -> list[Applied]:
            found = super().audit(tenant, domain)
            return [replace(one, identity=replace(one.identity, adapter="none")) for one in found]


class EmptyDeletionsUnrecorded(Stored):
    """A deletion that finds nothing leaves no record."""

    requirement = "REL-053"
    killed_by = case("audit/outlives-rows-and-process", "audit/generations")

    class Keeps(Store):
        def audit(self, tenant: str, domain: str) -> list[Applied]:
            return [one for one in super().audit(tenant, domain) if one.generation is not None]


FAULTS: tuple[type[Fault], ...] = (
    NoTenant,
    NoDomain,
    NoAdapter,
    ShapesAreIdentity,
    TenantsFoldedInKeys,
    KeysRunTogether,
    MissHoldsALease,
    AnotherModelsRows,
    PrefixOfMoreRows,
    TagsUnread,
    TagOfTheBytes,
    TagOfTheTenant,
    ContentsDecide,
    FirstTierAlone,
    DurableIsTrusted,
    WrongCopyKept,
    QuarantineRaises,
    VisibleOnWrite,
    ShortRowsTaken,
    EmptyCommitTaken,
    OldObjectGivenUpEarly,
    ReservationsSurvive,
    GenerationsStartOver,
    NamesStartOver,
    NameOfAnOpenTransaction,
    NothingSurvives,
    HostSurvives,
    OldGenerationComesBack,
    RepeatedCommitRefused,
    RepeatedCommitRedone,
    ReceiptsInMemory,
    AnyUseOfAReceipt,
    ReceiptsOfOneOp,
    DeletionsAlwaysDone,
    ReceiptForgottenWithItsObject,
    ReceiptOfARefusedCommit,
    LastCommitWins,
    DeletionIsNoGeneration,
    OnlyWhatExistsIsDeleted,
    StoreWideGenerations,
    EqualGenerationIsLate,
    LateReservationKept,
    FreedUnderReaders,
    ReadUntilTheLastLease,
    FirstReaderFrees,
    LeaseEndsTwice,
    RetiredForEver,
    AllGenerationsTogether,
    LeaseNamesShared,
    EvictedUnderALease,
    LeasesSurvive,
    EvictionDeletes,
    DurableCopyStays,
    TombstoneInMemory,
    EveryTenantsCopy,
    AnyOtherCopyIsEnough,
    DurableCopyIsEnough,
    EveryCopyMustBeRight,
    LogOfTheProcess,
    RecordsOfLivingRows,
    LogOfAllTenants,
    LogOfTheTenantEverywhere,
    RepetitionsRecorded,
    AdapterUnrecorded,
    EmptyDeletionsUnrecorded,
)
