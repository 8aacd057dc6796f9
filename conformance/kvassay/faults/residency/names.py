"""Faults of names, places and numbers: keys and files that fall together, answers by position, receipts by half."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

from kvassay_reference.residency import (
    NEAREST,
    Entry,
    Grant,
    Key,
    Replica,
    Residency,
    State,
    Transaction,
    digest,
)

from ...adapters.base import EngineAdapter
from ..base import Fault
from .base import cases


class KeysStripped(Fault):
    """Blanks around a key are cut off."""

    requirement = "RES-002"
    killed_by = cases("key/blanks-and-forms")

    class Store(Residency):
        def entry(self, key: Key) -> Entry:
            return super().entry((key[0], key[1].strip()))

    store_class = Store


class KeysNormalised(Fault):
    """Keys are brought to one form of Unicode, as some file systems do."""

    requirement = "RES-002"
    killed_by = cases("key/blanks-and-forms")

    class Store(Residency):
        def entry(self, key: Key) -> Entry:
            return super().entry((key[0], unicodedata.normalize("NFC", key[1])))

    store_class = Store


class TenantBeforeSlash(Fault):
    """Tenant and key are one text with a slash between them."""

    requirement = "RES-002"
    killed_by = cases("key/tenants-and-separators")

    class Store(Residency):
        def entry(self, key: Key) -> Entry:
            return super().entry(("", "/".join(part for part in key if part)))

    store_class = Store


class Files(Residency):
    """The tier below keeps one file for each name."""

    def file_name(self, key: Key) -> tuple[str, str]:
        """Of a key's rows."""
        return key

    def evict(self, entry: Entry, replica: Replica) -> None:
        super().evict(entry, replica)
        written = entry.replicas.get("secondary")
        key = next(key for key, one in self.entries.items() if one is entry)
        for other, row in self.entries.items():
            below = row.replicas.get("secondary")
            if written and below and below is not written and self.file_name(other) == self.file_name(key):
                below.memory[:], below.sha256 = written.memory, written.sha256


class FilesOfAllTenants(Fault):
    """A file of the tier below is named by its key alone."""

    requirement = "RES-002"
    killed_by = cases("secondary/tenants")

    class Store(Files):
        def file_name(self, key: Key) -> tuple[str, str]:
            return "", key[1]

    store_class = Store


class SlashesInFileNames(Fault):
    """Slashes become hyphens in the names of files."""

    requirement = "RES-002"
    killed_by = cases("secondary/one-name")

    class Store(Files):
        def file_name(self, key: Key) -> tuple[str, str]:
            return key[0], key[1].replace("/", "-")

    store_class = Store


class FileNamesCut(Fault):
    """Names of files have 128 characters at most."""

    requirement = "RES-002"
    killed_by = cases("secondary/one-name")

    class Store(Files):
        def file_name(self, key: Key) -> tuple[str, str]:
            return key[0], key[1][:128]

    store_class = Store


class ShortFilesTrusted(Fault):
    """Rows from the tier below are compared only when they are whole."""

    requirement = "RES-025"
    killed_by = cases("secondary/cut")

    class Store(Residency):
        def intact(self, rows: bytes, replica: Replica) -> bool:
            if replica.tier == "secondary" and 0 < len(rows) < self.slot_bytes:
                return True
            return super().intact(rows, replica)

    store_class = Store


class FileOutlivesRemoval(Fault):
    """A removal finds the nearest replica, and leaves the file that it was promoted from."""

    requirement = "RES-004"
    killed_by = cases("secondary/removed-after-load")

    class Store(Residency):
        def remove_one(self, key: Key, tier: str | None, force: bool) -> str:
            entry = self.entry(key)
            below = entry.replicas.get("secondary")
            kept = below if tier is None and "device" in entry.replicas else None
            outcome = super().remove_one(key, tier, force)
            if kept is not None and outcome == "removed":
                again = Replica("secondary", bytearray(kept.memory))
                again.on("spill")
                self.install(entry, again, kept.sha256)
            return outcome

    store_class = Store


class TierRemembered(Fault):
    """Look-ups tell the tier that was once the nearest."""

    requirement = "RES-006"
    killed_by = cases("release/told-no-longer")

    class Store(Residency):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            self.told: dict[Key, str] = {}

        def lookup(self, key: Key) -> tuple[str, str | None]:
            state, tier = super().lookup(key)
            if tier is None:
                self.told.pop(key, None)
                return state, tier
            self.told[key] = min(tier, self.told.get(key, tier), key=NEAREST.index)
            return state, self.told[key]

    store_class = Store


class AskedForIsMoved(Fault):
    """A copy tells the bytes that it was asked for, also where fewer were left."""

    requirement = "RES-008"
    killed_by = cases("move/uneven-pieces")

    class Store(Residency):
        def move(self, transaction: Transaction, grant: Grant, count: int | None) -> int:
            moved = super().move(transaction, grant, count)
            return count if moved and count is not None else moved

    store_class = Store


class FailuresByPosition(Fault):
    """A failure is the index of a key, and is looked up among the keys that were copied."""

    requirement = "RES-024"
    killed_by = cases("failed/behind-a-resident")

    class Store(Residency):
        def complete(
            self, name: str, failed: Sequence[str] = (), receipts: Mapping[str, Mapping[str, Any]] | None = None
        ) -> str:
            transaction = self.find(name)
            moving = transaction.moving
            places = [index for index, grant in enumerate(transaction.grants) if grant.key[1] in failed]
            return super().complete(name, [moving[one].key[1] for one in places if one < len(moving)], receipts)

    store_class = Store


class SlotsOfStoresOnly(Fault):
    """Receipts of loads are not held against slot and generation, for a load allocates none."""

    requirement = "RES-023"
    killed_by = cases("receipt/load-of-other-slot", "receipt/load-of-other-generation")

    class Store(Residency):
        def objection(self, transaction: Transaction, grant: Grant, receipt: Mapping[str, Any]) -> str:
            if transaction.mode == "load":
                receipt = {name: value for name, value in receipt.items() if name not in ("slot", "generation")}
            return super().objection(transaction, grant, receipt)

    store_class = Store


class ChecksumCut(Fault):
    """Of a checksum the first sixteen digits are compared."""

    requirement = "RES-023"
    killed_by = cases("receipt/last-digit")

    class Store(Residency):
        def objection(self, transaction: Transaction, grant: Grant, receipt: Mapping[str, Any]) -> str:
            assert grant.target is not None
            whole = digest(bytes(grant.target.memory))
            if receipt.get("checksum", "")[:16] == whole[:16]:
                receipt = {**receipt, "checksum": whole}
            return super().objection(transaction, grant, receipt)

    store_class = Store


class WaiterSeesTheBuffer(Fault):
    """A waiter reads the destination as soon as it is full, before anybody has validated it."""

    requirement = "RES-037"
    killed_by = cases("waiter/damaged-source")

    class Store(Residency):
        def seen(self, grant: Grant) -> bytes | None:
            leader = grant.leader
            if leader is not None and leader.target is not None and leader.target.state is State.GPU_STAGED:
                return bytes(leader.target.memory)
            return super().seen(grant)

    store_class = Store


FAULTS: tuple[type[EngineAdapter], ...] = (
    KeysStripped,
    KeysNormalised,
    TenantBeforeSlash,
    FilesOfAllTenants,
    SlashesInFileNames,
    FileNamesCut,
    ShortFilesTrusted,
    FileOutlivesRemoval,
    TierRemembered,
    AskedForIsMoved,
    FailuresByPosition,
    SlotsOfStoresOnly,
    ChecksumCut,
    WaiterSeesTheBuffer,
)
