"""Faults of single calls: rows of somebody else, keys that run together, old generations, resets and look-ups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kvassay_reference.residency import Entry, Grant, Key, Life, Replica, Residency

from ...engines.reference_residency import array
from ...engines.reference_residency_lesser import ContentAddressed
from ..base import Fault
from .base import ForgettingFault, Request, Result, cases


class LatestRowsServed(Fault):
    """A hit returns what was written last, as from a staging buffer that two requests share (LMCache#4385)."""

    requirement = "RES-001"
    killed_by = cases("read/two-keys", "read/five-keys", "replace/neighbour", "move/there-and-back-twice")

    class Store(Residency):
        latest = b""

        def install(self, entry: Entry, replica: Replica, sha256: str) -> None:
            super().install(entry, replica, sha256)
            self.latest = bytes(replica.memory)

        def get(self, key: Key) -> tuple[str, bytes | None, str | None]:
            outcome, rows, tier = super().get(key)
            return outcome, self.latest if outcome == "hit" else rows, tier

    store_class = Store


class RowsShifted(Fault):
    """Rows come back one position late, the last one first (vllm#45330: a fused layout that is misread)."""

    requirement = "RES-001"
    killed_by = cases("read/round-trip", "move/store")

    def residency_get(self, request: Request) -> Result:
        told = super().residency_get(request)
        if told["outcome"] != "hit":
            return told
        rows = told["data"].tobytes()
        return {**told, "data": array(rows[-256:] + rows[:-256])}


class EmptySlotServed(Fault):
    """A miss is served as the zeros of an empty slot."""

    requirement = "RES-001"
    killed_by = cases("read/unknown", "read/empty-store", "remove/one-of-two", "reset/empties")

    def residency_get(self, request: Request) -> Result:
        told = super().residency_get(request)
        if told["outcome"] != "miss":
            return told
        return {**told, "outcome": "hit", "data": array(bytes(self.residency.slot_bytes)), "tier": "host"}


class ConsumedByReading(Fault):
    """A read takes the rows away, as a move that was meant to be a copy."""

    requirement = "RES-001"
    killed_by = cases("read/again")

    class Store(Residency):
        def get(self, key: Key) -> tuple[str, bytes | None, str | None]:
            found = super().get(key)
            self.renew(self.entry(key))
            return found

    store_class = Store


class KeyRewritten(Fault):
    """Keys are rewritten on their way in."""

    requirement = "RES-002"

    def rewritten(self, name: str) -> str:
        """What becomes of a key."""
        return name

    def named(self, request: Request) -> Request:
        """A request with its keys rewritten."""
        changed = dict(request)
        if "key" in changed:
            changed["key"] = self.rewritten(changed["key"])
        if "keys" in changed:
            changed["keys"] = [self.rewritten(name) for name in changed["keys"]]
        return changed

    def residency_put(self, request: Request) -> Result:
        return super().residency_put(self.named(request))

    def residency_get(self, request: Request) -> Result:
        return super().residency_get(self.named(request))

    def residency_lookup(self, request: Request) -> Result:
        return super().residency_lookup(self.named(request))


class KeyCutShort(KeyRewritten):
    """Only the first 128 characters of a key count."""

    killed_by = cases("key/long")

    def rewritten(self, name: str) -> str:
        return name[:128]


class KeyAsNumber(KeyRewritten):
    """A key of digits is read as a number."""

    killed_by = cases("key/leading-zeros")

    def rewritten(self, name: str) -> str:
        return str(int(name)) if name.isdecimal() else name


class KeyWithoutHyphens(KeyRewritten):
    """The separator is taken out of keys."""

    killed_by = cases("key/hyphens")

    def rewritten(self, name: str) -> str:
        return name.replace("-", "")


class KeyCaseFolded(KeyRewritten):
    """Keys are file names on a file system that folds case."""

    killed_by = cases("key/letter-case")

    def rewritten(self, name: str) -> str:
        return name.lower()


class KeyAsFileName(KeyRewritten):
    """What cannot stand in a file name becomes an underscore."""

    killed_by = cases("key/any-text")

    def rewritten(self, name: str) -> str:
        return "".join(one if one.isalnum() or one == "-" else "_" for one in name)


class LongestPrefixServed(Fault):
    """A key that is not there is served by the longest stored key that begins it."""

    requirement = "RES-002"
    killed_by = cases("key/prefixes")

    class Store(Residency):
        def get(self, key: Key) -> tuple[str, bytes | None, str | None]:
            there = [name for name, entry in self.entries.items() if self.valid(entry) and name[0] == key[0]]
            prefixes = [name for name in there if key[1].startswith(name[1])]
            return super().get(max(prefixes, key=lambda name: len(name[1]), default=key))

    store_class = Store


class TenantIgnored(Fault):
    """The identity beyond the key is left out: one adapter reads another's rows (vllm#44250)."""

    requirement = "RES-002"
    killed_by = cases("key/tenants", "key/tenant-looked-up", "key/tenant-removed")

    class Store(Residency):
        def entry(self, key: Key) -> Entry:
            return super().entry(("", key[1]))

    store_class = Store


class TenantRunsIntoKey(Fault):
    """Tenant and key are joined with a hyphen."""

    requirement = "RES-002"
    killed_by = cases("key/tenants-run-together")

    class Store(Residency):
        def entry(self, key: Key) -> Entry:
            return super().entry(("", f"{key[0]}-{key[1]}" if key[0] else key[1]))

    store_class = Store


class TenantNotLookedUp(Fault):
    """Reads know the tenant, look-ups do not."""

    requirement = "RES-002"
    killed_by = cases("key/tenant-looked-up")

    def residency_lookup(self, request: Request) -> Result:
        told = super().residency_lookup(request)
        there = {name for (_, name), entry in self.residency.entries.items() if self.residency.valid(entry)}
        return {**told, "states": ["ready" if name in there else "miss" for name in request["keys"]]}


class RemovedForAllTenants(Fault):
    """A removal takes the key from every tenant."""

    requirement = "RES-002"
    killed_by = cases("key/tenant-removed")

    def residency_remove(self, request: Request) -> Result:
        for tenant, name in list(self.residency.entries):
            if name in request["keys"] and tenant != request.get("tenant", ""):
                self.residency.renew(self.residency.entry((tenant, name)))
        return super().residency_remove(request)


class ReplacementForgotten(Fault):
    """A put of a key that is there tells of new rows and leaves the old."""

    requirement = "RES-003"
    killed_by = cases("replace/once", "replace/thrice", "overtaken/twice", "generation/replaced-before-copy")

    class Store(Residency):
        def put(self, key: Key, rows: bytes) -> str:
            return "replaced" if self.valid(self.entry(key)) else super().put(key, rows)

    store_class = Store


class ReadCacheNotInvalidated(Fault):
    """Rows that were read once are kept in front of the store and outlive their generation."""

    requirement = "RES-003"
    killed_by = cases("replace/thrice")

    class Store(Residency):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            self.read: dict[Key, bytes] = {}

        def get(self, key: Key) -> tuple[str, bytes | None, str | None]:
            outcome, rows, tier = super().get(key)
            return outcome, self.read.setdefault(key, rows) if rows is not None else None, tier

    store_class = Store


class NewRowsInAnotherSlot(Fault):
    """New rows of a key are written over its neighbour's (LMCache#4463: a block id used as an index into the pool)."""

    requirement = "RES-003"
    killed_by = cases("replace/neighbour")

    class Store(Residency):
        def put(self, key: Key, rows: bytes) -> str:
            outcome = super().put(key, rows)
            if outcome == "replaced":
                own = self.valid(self.entry(key))[0].slot
                for other in self.slots:
                    if other is not own and other.holders:
                        other.memory[:] = rows
            return outcome

        def intact(self, rows: bytes, replica: Replica) -> bool:
            return True

    store_class = Store


class SameRowsDropped(Fault):
    """A put of the same rows takes the key for moved away."""

    requirement = "RES-003"
    killed_by = cases("replace/same-rows", "epoch/same-rows-again")

    class Store(Residency):
        def put(self, key: Key, rows: bytes) -> str:
            held = self.valid(self.entry(key))
            if held and bytes(held[0].memory) == rows:
                self.renew(self.entry(key))
                return "resident"
            return super().put(key, rows)

    store_class = Store


class ContentStoredAgain(ContentAddressed):
    """An engine keyed by content tells of a new generation."""

    requirement = "RES-003"
    killed_by = cases("replace/content")

    def residency_put(self, request: Request) -> Result:
        told = super().residency_put(request)
        return {**told, "outcome": "replaced"} if told["outcome"] == "resident" else told


class AlwaysStored(Fault):
    """A put says stored, whatever was there."""

    requirement = "RES-003"
    killed_by = cases("put/told", "back/replaced")

    def residency_put(self, request: Request) -> Result:
        return {**super().residency_put(request), "outcome": "stored"}


class RemovedInNameOnly(Fault):
    """A removal is told and not carried out."""

    requirement = "RES-004"
    killed_by = cases("remove/one-of-two", "replace/after-removal", "remove/looked-up", "batch/loaded-and-removed")

    class Store(Residency):
        def remove_one(self, key: Key, tier: str | None, force: bool) -> str:
            return "removed" if self.valid(self.entry(key)) else "absent"

    store_class = Store


class AlwaysRemoved(Fault):
    """Every removal says removed."""

    requirement = "RES-004"
    killed_by = cases("remove/absent", "remove/batch", "authority/empty-tier")

    def residency_remove(self, request: Request) -> Result:
        told = super().residency_remove(request)
        return {**told, "outcomes": ["removed" if one == "absent" else one for one in told["outcomes"]]}


class OutcomesSorted(Fault):
    """A removal answers in the order of its own index."""

    requirement = "RES-004"
    killed_by = cases("remove/batch", "lease/removal-in-a-batch")

    def residency_remove(self, request: Request) -> Result:
        order = sorted(request["keys"])
        return super().residency_remove({**request, "keys": order})


class IndexOutlivesRows(Fault):
    """Look-ups ask an index that removals do not reach."""

    requirement = "RES-004"
    killed_by = cases("remove/looked-up")

    class Store(Residency):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            self.known: set[Key] = set()

        def put(self, key: Key, rows: bytes) -> str:
            self.known.add(key)
            return super().put(key, rows)

        def lookup(self, key: Key) -> tuple[str, str | None]:
            return ("ready", "host") if key in self.known else super().lookup(key)

    store_class = Store


class ResetDoesNothing(Fault):
    """A reset is told and not carried out (vllm#57727 reports prefixes served after a weight update)."""

    requirement = "RES-005"
    killed_by = cases("reset/empties", "once/after-reset")

    class Store(Residency):
        def reset(self) -> None:
            return

    store_class = Store


class ResetSparesTheLast(Fault):
    """A reset leaves the key that was used last."""

    requirement = "RES-005"
    killed_by = cases("reset/empties", "reset/then-stored", "secondary/reset")

    class Store(Residency):
        def reset(self) -> None:
            there = [(self.valid(entry)[0].used, key) for key, entry in self.entries.items() if self.valid(entry)]
            kept = max(there, default=(0, ("", "")))[1]
            for key, entry in self.entries.items():
                if key != kept:
                    self.renew(entry)

    store_class = Store


class ResetSparesTheCopy(Fault):
    """A store under way survives a reset and publishes rows of the time before."""

    requirement = "RES-005"
    killed_by = cases("overtaken/by-reset", "aba/reset-in-between")

    class Store(Residency):
        def reset(self) -> None:
            for entry in self.entries.values():
                generation = entry.generation
                self.renew(entry)
                entry.generation = generation

    store_class = Store


class LookupMakesKnown(Fault):
    """A look-up leaves a mark, so that the next put of the key is a replacement."""

    requirement = "RES-006"
    killed_by = cases("lookup/changes-nothing")

    class Store(Residency):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            self.marked: set[Key] = set()

        def lookup(self, key: Key) -> tuple[str, str | None]:
            self.marked.add(key)
            return super().lookup(key)

        def put(self, key: Key, rows: bytes) -> str:
            return "replaced" if super().put(key, rows) == "replaced" or key in self.marked else "stored"

    store_class = Store


class LookupStopsShort(Fault):
    """The last key of a look-up is left out: the frontier is off by one (LMCache#2206)."""

    requirement = "RES-006"
    killed_by = cases("lookup/all-there", "remove/looked-up")

    def residency_lookup(self, request: Request) -> Result:
        told = super().residency_lookup(request)
        states = told["states"]
        return {**told, "states": [*states[:-1], "miss"] if len(states) > 1 else states}


class LookupSorted(Fault):
    """States come in the order of sorted keys."""

    requirement = "RES-006"
    killed_by = cases("lookup/mixed")

    def residency_lookup(self, request: Request) -> Result:
        return super().residency_lookup({**request, "keys": sorted(request["keys"])})


class UnknownIsReady(Fault):
    """A key that nothing is known of is ready."""

    requirement = "RES-006"
    killed_by = cases("read/unknown", "batch/nothing-to-load", "pending/store")

    class Store(Residency):
        def lookup(self, key: Key) -> tuple[str, str | None]:
            state, tier = super().lookup(key)
            return ("ready", "host") if state == "miss" else (state, tier)

    store_class = Store


class PrefixAlone(Fault):
    """After the first miss of a look-up everything is a miss."""

    requirement = "RES-006"
    killed_by = cases("lookup/mixed", "lookup/all-there")

    def residency_lookup(self, request: Request) -> Result:
        told = super().residency_lookup(request)
        states: list[str] = told["states"]
        end = next((index for index, state in enumerate(states) if state != "ready"), len(states))
        return {**told, "states": states[:end] + ["miss"] * (len(states) - end)}


class SixteenthLost(ForgettingFault):
    """The index has room for fifteen keys, whatever the store has."""

    requirement = "RES-006"
    killed_by = cases("lookup/many")

    class Store(ForgettingFault.Store):
        def free(self) -> Any:
            busy = sum(1 for slot in self.slots if slot.holders)
            return super().free() if busy < 15 else None

    store_class = Store


class PendingAfterFailure(Fault):
    """A store that failed stays in the table of what is under way (vllm#49829: a pending hit has no deadline)."""

    requirement = "RES-007"
    killed_by = cases("pending/failed", "failed/after-every-byte")

    class Store(Residency):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            self.stuck: set[Key] = set()

        def complete(self, name: str, failed: Sequence[str] = (), receipts: Any = None) -> str:
            moving = self.find(name).moving
            self.stuck |= {grant.key for grant in moving if grant.key[1] in failed}
            return super().complete(name, failed, receipts)

        def lookup(self, key: Key) -> tuple[str, str | None]:
            state, tier = super().lookup(key)
            return ("pending", None) if state == "miss" and key in self.stuck else (state, tier)

        def grant_load(self, key: Key) -> Grant:
            return Grant(key, "pending") if key in self.stuck else super().grant_load(key)

    store_class = Store


class PendingAfterCancel(Fault):
    """A cancelled store is waited for, even when it is over."""

    requirement = "RES-007"
    killed_by = cases("cancel/nothing-pending", "pending/reset")

    class Store(Residency):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            self.stuck: set[Key] = set()

        def kill(self, transaction: Any, life: Life) -> None:
            self.stuck |= {grant.key for grant in transaction.moving}
            super().kill(transaction, life)

        def lookup(self, key: Key) -> tuple[str, str | None]:
            state, tier = super().lookup(key)
            return ("pending", None) if state == "miss" and key in self.stuck else (state, tier)

    store_class = Store


FAULTS = (
    LatestRowsServed,
    RowsShifted,
    EmptySlotServed,
    ConsumedByReading,
    KeyCutShort,
    KeyAsNumber,
    KeyWithoutHyphens,
    KeyCaseFolded,
    KeyAsFileName,
    LongestPrefixServed,
    TenantIgnored,
    TenantRunsIntoKey,
    TenantNotLookedUp,
    RemovedForAllTenants,
    ReplacementForgotten,
    ReadCacheNotInvalidated,
    NewRowsInAnotherSlot,
    SameRowsDropped,
    ContentStoredAgain,
    AlwaysStored,
    RemovedInNameOnly,
    AlwaysRemoved,
    OutcomesSorted,
    IndexOutlivesRows,
    ResetDoesNothing,
    ResetSparesTheLast,
    ResetSparesTheCopy,
    LookupMakesKnown,
    LookupStopsShort,
    LookupSorted,
    UnknownIsReady,
    PrefixAlone,
    SixteenthLost,
    PendingAfterFailure,
    PendingAfterCancel,
)
