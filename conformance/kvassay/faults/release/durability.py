"""Stores that spoil the durable copy, or mend it: at evictions, at restarts, at reads, at writes that are refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kvassay_reference.errors import Refusal
from kvassay_reference.release.store import Copy, Identity, Object, Store, Tier, tag

from ..base import found
from .base import case
from .stores import Stored


class EvictionWritesBack(Stored):
    """What is evicted is written back to the durable copy."""

    requirement = "REL-052"
    killed_by = case("deletion/eviction-leaves-the-durable-copy")

    class Keeps(Store):
        def evict(self, identity: Identity, tier: Tier) -> str:
            one = self.visible.get(identity)
            copy = None if one is None else one.copies.get(tier)
            outcome = super().evict(identity, tier)
            if one is not None and copy is not None and "durable" in one.copies:
                one.copies["durable"] = copy
            return outcome


class EvictionReachesBelow(Stored):
    """The durable copy goes with the host's, once something else could serve."""

    requirement = "REL-052"
    killed_by = case("deletion/eviction-leaves-the-durable-copy")

    class Keeps(Store):
        def evict(self, identity: Identity, tier: Tier) -> str:
            outcome = super().evict(identity, tier)
            one = self.visible.get(identity)
            if outcome == "evicted" and tier == "host" and one is not None and "gpu" in one.copies:
                one.copies.pop("durable", None)
            return outcome


class RestartScrubs(Stored):
    """A restart throws away durable copies whose tag fails."""

    requirement = "REL-048"
    killed_by = case("crash/durable-copies-stay-as-they-are")

    class Keeps(Store):
        def kept(self, one: Object) -> dict[Tier, Copy]:
            return {tier: copy for tier, copy in super().kept(one).items() if self.authentic(one, copy)}


class RestartSealsAnew(Stored):
    """A restart rebuilds its directory and computes the tags of what it finds."""

    requirement = "REL-048"
    killed_by = case("crash/durable-copies-stay-as-they-are")

    class Keeps(Store):
        def kept(self, one: Object) -> dict[Tier, Copy]:
            return {
                tier: replace(copy, tag=tag(one.identity, one.generation, copy.payload))
                for tier, copy in super().kept(one).items()
            }


class RestartWarmsTheHost(Stored):
    """A restart loads durable copies into the host's memory."""

    requirement = "REL-048"
    killed_by = case("crash/durable-copies-stay-as-they-are", "deletion/eviction-leaves-the-durable-copy")

    class Keeps(Store):
        def kept(self, one: Object) -> dict[Tier, Copy]:
            below = super().kept(one)
            return {"host": below["durable"], **below} if "durable" in below else below


class ReadFillsTheHost(Stored):
    """What is read from the durable copy is put into the host's memory."""

    requirement = "REL-048"
    killed_by = case("crash/durable-copies-stay-as-they-are")

    class Keeps(Store):
        def get(self, identity: Identity, lease: str | None) -> tuple[Object, Tier] | None:
            made = super().get(identity, lease)
            if made is not None and made[1] == "durable":
                made[0].copies = {"host": made[0].copies["durable"], **made[0].copies}
            return made


class QuarantineForgotten(Stored):
    """What was quarantined is counted anew after a restart."""

    requirement = "REL-048"
    killed_by = case("crash/durable-copies-stay-as-they-are")

    class Keeps(Store):
        def restart(self) -> None:
            super().restart()
            self.quarantined = 0


class OlderGenerationForARestart(Stored):
    """What was replaced under a lease is found again where a restart finds nothing newer."""

    requirement = "REL-048"
    killed_by = case("crash/generations-that-were-replaced")

    class Keeps(Store):
        def restart(self) -> None:
            older = self.__dict__.setdefault("older", [])
            older += [Object(one.identity, one.generation, self.kept(one)) for one in self.retired]
            super().restart()
            for one in older:
                self.visible.setdefault(one.identity, one)


class RefusedWriteClears(Stored):
    """A write that is refused takes away what was written before."""

    requirement = "REL-047"
    killed_by = case("transactions/refused-writes-leave-what-was-written")

    class Keeps(Store):
        def write(self, name: str, payload: Sequence[int]) -> None:
            one = self.transaction(name)
            self.transactions[name] = replace(one, payload=None)
            super().write(name, payload)


class RefusedWriteKeepsWhatFits(Stored):
    """Rows are copied until there is no room, and then counted."""

    requirement = "REL-047"
    killed_by = case("transactions/refused-writes-leave-what-was-written")

    class Keeps(Store):
        def write(self, name: str, payload: Sequence[int]) -> None:
            one = self.transaction(name)
            arrived = (*payload[: one.identity.rows], *(one.payload or ())[len(payload) :])
            if len(arrived) == one.identity.rows:
                self.transactions[name] = replace(one, payload=arrived)
            super().write(name, payload)


class RefusedWriteEnds(Stored):
    """A write that is refused ends its transaction."""

    requirement = "REL-047"
    killed_by = case("transactions/refused-writes-leave-what-was-written")

    class Keeps(Store):
        def write(self, name: str, payload: Sequence[int]) -> None:
            try:
                super().write(name, payload)
            except Refusal:
                self.transactions.pop(name, None)
                raise


class WrittenInPlace(Stored):
    """Rows go to the durable copy as they come, whether there are enough of them or not."""

    requirement = "REL-047"
    killed_by = case("transactions/refused-writes-over-an-object")

    class Keeps(Store):
        def write(self, name: str, payload: Sequence[int]) -> None:
            one = self.transaction(name)
            before = self.visible.get(one.identity)
            if before is not None and "durable" in before.copies:
                old = before.copies["durable"]
                arrived = (*payload[: one.identity.rows], *old.payload[len(payload) :])
                before.copies["durable"] = Copy(arrived, tag(one.identity, one.generation, arrived))
            super().write(name, payload)


class CommittedNamesAreWritten(Stored):
    """A write under the name of a committed transaction reaches the copies of its object."""

    requirement = "REL-047"
    killed_by = case("transactions/refused-writes-over-an-object")

    class Keeps(Store):
        def write(self, name: str, payload: Sequence[int]) -> None:
            if name in self.durable.names:
                for one in self.visible.values():
                    if len(payload) == one.identity.rows and "durable" in one.copies:
                        rows = tuple(payload)
                        one.copies["durable"] = Copy(rows, tag(one.identity, one.generation, rows))
            super().write(name, payload)


class DurableCopyFirst(Stored):
    """A commit writes its durable copy before it is asked whether it comes too late."""

    requirement = "REL-050"
    killed_by = case("stale/refused-commits-leave-the-durable-copy")

    class Keeps(Store):
        def commit(self, name: str, receipt: str) -> tuple[str, int]:
            one = self.transactions.get(name)
            before = None if one is None else self.visible.get(one.identity)
            if one is not None and one.payload is not None and before is not None and "durable" in before.copies:
                before.copies["durable"] = Copy(one.payload, tag(one.identity, before.generation, one.payload))
            return super().commit(name, receipt)


FAULTS = found(globals())
"""In the order of the cases."""
