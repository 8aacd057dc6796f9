"""A store of rows that keeps tenants apart, trusts no copy without its tag, and survives restarts.

What a restart keeps stands in :class:`Durable`, everything else is memory. A copy is a payload with a tag over the
identity, the generation and the rows, so that neither another object's copy nor an older one passes for it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from ..errors import Refusal

Tier = Literal["gpu", "host", "durable"]
TIERS: tuple[Tier, ...] = ("gpu", "host", "durable")
VOLATILE: tuple[Tier, ...] = ("gpu", "host")


@dataclass(frozen=True)
class Identity:
    """Whose rows, of what, and where."""

    tenant: str
    domain: str
    model: str
    adapter: str
    representation: str
    first_position: int
    rows: int


@dataclass(frozen=True)
class Copy:
    """Rows in one tier."""

    payload: tuple[int, ...]
    tag: str


def tag(identity: Identity, generation: int, payload: Sequence[int]) -> str:
    """What authenticates a copy: it binds whose rows these are, not only which bytes."""
    parts = [*map(str, vars(identity).values()), str(generation), *map(str, payload)]
    framed = b"".join(len(part.encode()).to_bytes(8, "big") + part.encode() for part in parts)
    return hashlib.sha256(framed).hexdigest()


@dataclass
class Object:
    """One generation of an identity's rows."""

    identity: Identity
    generation: int
    copies: dict[Tier, Copy]
    leases: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class Transaction:
    """An object that is being written."""

    identity: Identity
    generation: int
    payload: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Receipt:
    """What a receipt was applied to."""

    op: Literal["commit", "erase"]
    subject: object
    generation: int = 0


@dataclass(frozen=True)
class Applied:
    """A record of something that was done, for its tenant."""

    op: Literal["commit", "erase"]
    receipt: str
    identity: Identity
    generation: int | None


@dataclass
class Durable:
    """What a restart keeps beside the durable copies."""

    receipts: dict[str, Receipt] = field(default_factory=dict)
    issued: dict[Identity, int] = field(default_factory=dict)
    """Last generation given to a transaction of an identity."""
    settled: dict[Identity, int] = field(default_factory=dict)
    """Generation up to which commits come too late: the committed one, or all issued when the object was deleted."""
    names: set[str] = field(default_factory=set)
    """Transactions that were committed."""
    log: list[Applied] = field(default_factory=list)
    """What was done, in its order."""


@dataclass
class Store:
    """Everything that is kept. Faults override one of the small methods."""

    durable: Durable = field(default_factory=Durable)
    visible: dict[Identity, Object] = field(default_factory=dict)
    retired: list[Object] = field(default_factory=list)
    """Objects that were replaced or deleted, and are held by leases."""
    transactions: dict[str, Transaction] = field(default_factory=dict)
    leases: dict[str, Object] = field(default_factory=dict)
    quarantined: int = 0

    # small methods

    def find(self, identity: Identity) -> Object | None:
        """What may be read under an identity."""
        return self.visible.get(identity)

    def transaction(self, name: str) -> Transaction:
        """An open transaction."""
        if name not in self.transactions:
            raise Refusal("UNKNOWN_TRANSACTION", name)
        return self.transactions[name]

    def authentic(self, one: Object, copy: Copy) -> bool:
        """Whether a copy is this object's."""
        return copy.tag == tag(one.identity, one.generation, copy.payload)

    def retire(self, one: Object) -> bool:
        """Take an object from readers; whether leases still hold it."""
        del self.visible[one.identity]
        if one.leases:
            self.retired.append(one)
        return bool(one.leases)

    def applied(self, id: str, receipt: Receipt) -> Receipt | None:
        """The receipt of this id when it was applied to the same; one that was applied to another thing is refused."""
        old = self.durable.receipts.get(id)
        if old is not None and (old.op, old.subject) != (receipt.op, receipt.subject):
            raise Refusal("COMPETING_RECEIPT", id)
        return old

    def stale(self, one: Transaction) -> bool:
        """Whether the object was replaced or deleted since the transaction began."""
        return one.generation <= self.durable.settled.get(one.identity, 0)

    def settle(self, identity: Identity, generation: int) -> None:
        """From now on older commits come too late."""
        self.durable.settled[identity] = generation

    def remains(self, one: Object, tier: Tier) -> bool:
        """Whether an authentic copy is left without the one in this tier."""
        return any(self.authentic(one, copy) for other, copy in one.copies.items() if other != tier)

    def kept(self, one: Object) -> dict[Tier, Copy]:
        """Copies that a restart leaves."""
        return {tier: copy for tier, copy in one.copies.items() if tier not in VOLATILE}

    # ops

    def reserve(self, name: str, identity: Identity) -> int:
        """Open a transaction; the generation of what it writes."""
        if name in self.transactions or name in self.durable.names:
            raise Refusal("STORE_TRANSACTION_EXISTS", name)
        generation = self.durable.issued.get(identity, 0) + 1
        self.durable.issued[identity] = generation
        self.transactions[name] = Transaction(identity, generation)
        return generation

    def write(self, name: str, payload: Sequence[int]) -> None:
        """Bring the rows."""
        one = self.transaction(name)
        if len(payload) != one.identity.rows:
            raise Refusal("PAYLOAD_BYTES_MISMATCH", f"{len(payload)} rows")
        self.transactions[name] = replace(one, payload=tuple(payload))

    def commit(self, name: str, receipt: str) -> tuple[str, int]:
        """Publish rows and receipt as one."""
        old = self.applied(receipt, Receipt("commit", name))
        if old is not None:
            return "noop", old.generation
        one = self.transaction(name)
        if one.payload is None:
            raise Refusal("SHORT_COPY", name)
        del self.transactions[name]
        if self.stale(one):
            raise Refusal("STALE_COMMIT", name)
        self.publish(name, receipt, one, one.payload)
        return "committed", one.generation

    def publish(self, name: str, receipt: str, one: Transaction, payload: tuple[int, ...]) -> None:
        """The object in every tier, with its receipt; what was there before is retired."""
        before = self.visible.get(one.identity)
        if before is not None:
            self.retire(before)
        copy = Copy(payload, tag(one.identity, one.generation, payload))
        self.visible[one.identity] = Object(one.identity, one.generation, dict.fromkeys(TIERS, copy))
        self.durable.names.add(name)
        self.durable.receipts[receipt] = Receipt("commit", name, one.generation)
        self.durable.log.append(Applied("commit", receipt, one.identity, one.generation))
        self.settle(one.identity, one.generation)

    def get(self, identity: Identity, lease: str | None) -> tuple[Object, Tier] | None:
        """The object and the tier of its first authentic copy; copies that are not are quarantined."""
        if lease is not None and lease in self.leases:
            raise Refusal("LEASE_NAME_TAKEN", lease)
        one = self.find(identity)
        if one is None:
            return None
        for tier in TIERS:
            copy = one.copies.get(tier)
            if copy is None:
                continue
            if self.authentic(one, copy):
                if lease is not None:
                    self.leases[lease] = one
                    one.leases.add(lease)
                return one, tier
            del one.copies[tier]
            self.quarantined += 1
        self.retire(one)
        return None

    def unlease(self, lease: str) -> None:
        """End a lease; what only it held is gone."""
        if lease not in self.leases:
            raise Refusal("LEASE_NOT_HELD", lease)
        one = self.leases.pop(lease)
        one.leases.discard(lease)
        if not one.leases:
            self.retired = [other for other in self.retired if other is not one]

    def evict(self, identity: Identity, tier: Tier) -> str:
        """Free one copy, as an allocator does."""
        one = self.visible.get(identity)
        if one is None or tier not in one.copies:
            return "noop"
        if one.leases:
            raise Refusal("RELEASED_UNDER_LEASE", tier)
        if not self.remains(one, tier):
            raise Refusal("LAST_AUTHORITY", tier)
        del one.copies[tier]
        return "evicted"

    def erase(self, identity: Identity, receipt: str) -> str:
        """Delete an object in all tiers, once its leases have ended; no reader finds it from now on."""
        if self.applied(receipt, Receipt("erase", identity)) is not None:
            return "noop"
        self.durable.receipts[receipt] = Receipt("erase", identity)
        self.settle(identity, self.durable.issued.get(identity, 0))
        one = self.visible.get(identity)
        self.durable.log.append(Applied("erase", receipt, identity, one.generation if one else None))
        if one is None:
            return "noop"
        return "tombstoned" if self.retire(one) else "erased"

    def tamper(self, identity: Identity, tier: Tier, swap: Identity | None) -> None:
        """Change a copy behind the store's back: its first row, or all of it for another object's."""
        one = self.visible.get(identity)
        other = one if swap is None else self.visible.get(swap)
        if one is None or other is None or tier not in one.copies or tier not in other.copies:
            raise Refusal("NO_SUCH_COPY", tier)
        copy = other.copies[tier]
        if swap is None:
            copy = replace(copy, payload=(copy.payload[0] + 1, *copy.payload[1:]))
        one.copies[tier] = copy

    def restart(self) -> None:
        """The process dies and comes back."""
        self.transactions, self.leases, self.retired = {}, {}, []
        survivors = [Object(one.identity, one.generation, self.kept(one)) for one in self.visible.values()]
        self.visible = {one.identity: one for one in survivors if one.copies}

    def audit(self, tenant: str, domain: str) -> list[Applied]:
        """What was done for one tenant."""
        return [one for one in self.durable.log if (one.identity.tenant, one.identity.domain) == (tenant, domain)]

    def census(self) -> dict[str, object]:
        """Counts."""
        objects = [*self.visible.values(), *self.retired]
        return {
            "objects": len(self.visible),
            "copies": {str(tier): sum(tier in one.copies for one in objects) for tier in TIERS},
            "reserved_rows": sum(one.identity.rows for one in self.transactions.values()),
            "leases": len(self.leases),
            "tombstones": len(self.retired),
            "quarantined": self.quarantined,
            "receipts": len(self.durable.receipts),
        }
