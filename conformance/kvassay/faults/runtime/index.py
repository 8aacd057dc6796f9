"""Faults of the index, of deletion and of collection."""

from __future__ import annotations

from collections.abc import Iterable

from kvassay_reference.errors import Refusal
from kvassay_reference.runtime import Lookup, Runtime, Tombstone, Unit

from ..base import Fault
from .base import Seeds

seeds = Seeds(__name__)


@seeds.machine("RUN-034", "index/row-not-committed", "index/store-under-way", "index/failed-store")
class EntriesBeforeRows(Runtime):
    """An entry is published whether its row is committed or not."""

    def check_rows(self, units: Iterable[Unit]) -> None:
        super().check_rows(unit for unit in units if unit in self.tombstones)


@seeds.machine("RUN-034", "index/last-of-several-not-committed", "index/row-not-committed")
class OneRowIsEnough(Runtime):
    """Entries are published when one of their rows is committed."""

    def check_rows(self, units: Iterable[Unit]) -> None:
        there = [unit for unit in units if unit in self.committed]
        super().check_rows(there or units)


@seeds.machine("RUN-034", "index/store-under-way")
class RowsUnderWayCount(Runtime):
    """A row that is being stored counts as committed."""

    def check_rows(self, units: Iterable[Unit]) -> None:
        coming = {job.unit for job in self.jobs.values() if job.direction == "store"}
        super().check_rows([unit for unit in units if unit not in coming])


@seeds.machine("RUN-034", "index/base", "index/row-not-committed")
class PreparedIsVisible(Runtime):
    """Entries are found as soon as they are written."""

    def finds(self, unit: Unit) -> bool:
        return super().finds(unit) or any(unit in entries for entries in self.prepared.values())


@seeds.machine("RUN-034", "index/newer-after-older", "index/entries-twice")
class PublicationReplaces(Runtime):
    """A publication takes the place of all entries before it."""

    def publish_index(self, generation: int) -> int:
        before = self.visible
        super().publish_index(generation)
        self.visible -= before - self.visible
        fresh = self.visible - before
        self.visible = fresh or self.visible
        return len(self.visible)


@seeds.machine("RUN-034", "index/row-not-committed")
class RefusedIsForgotten(Runtime):
    """Entries that were refused cannot be published when their rows are there."""

    def publish_index(self, generation: int) -> int:
        try:
            return super().publish_index(generation)
        except Refusal:
            self.prepared.pop(generation, None)
            raise


@seeds.machine("RUN-034", "index/entries-twice")
class EntriesAreCountedTwice(Runtime):
    """An entry that is published again counts twice."""

    def publish_index(self, generation: int) -> int:
        again = len(self.visible & self.prepared.get(generation, frozenset()))
        return super().publish_index(generation) + again


@seeds.machine("RUN-035", "index/older-after-newer", "deletion/publication-from-before-the-tombstone")
class OlderGenerationsPublish(Runtime):
    """An older generation is published over a newer one."""

    def publish_index(self, generation: int) -> int:
        published, self.published = self.published, 0
        try:
            made = super().publish_index(generation)
        finally:
            self.published = max(published, self.published)
        return made


@seeds.machine("RUN-035", "index/published-twice")
class PublishedAgain(Runtime):
    """A generation can be published as often as one likes."""

    def publish_index(self, generation: int) -> int:
        entries = self.prepared.get(generation)
        made = super().publish_index(generation)
        if entries is not None:
            self.prepared[generation] = entries
        return made


@seeds.machine("RUN-035", "index/never-prepared")
class UnpreparedIsEmpty(Runtime):
    """A generation that nobody prepared is published without entries."""

    def publish_index(self, generation: int) -> int:
        if generation > self.generation:
            self.prepared[generation] = frozenset()
        return super().publish_index(generation)


@seeds.machine("RUN-035", "index/never-prepared")
class UnknownIsStale(Runtime):
    """A generation that was never given is called old."""

    def publish_index(self, generation: int) -> int:
        try:
            return super().publish_index(generation)
        except Refusal as refusal:
            raise Refusal("STALE_INDEX_GENERATION" if "GENERATION" in refusal.reason else refusal.reason) from None


@seeds.machine("RUN-035", "deletion/publication-from-before-the-tombstone", "deletion/deleted-twice")
class TombstonesHaveNoGeneration(Runtime):
    """A tombstone leaves the generation as it is."""

    def tombstone(self, unit: Unit) -> tuple[str, int]:
        generation, published = self.generation, self.published
        outcome, _ = super().tombstone(unit)
        self.generation, self.published = generation, published
        if unit in self.tombstones:
            self.tombstones[unit].generation = published
        return outcome, published


# --- deletion ---


@seeds.machine("RUN-036", "deletion/base", "deletion/later-look-ups")
class DeletedIsFound(Runtime):
    """A deleted unit is found until it is collected."""

    def tombstone(self, unit: Unit) -> tuple[str, int]:
        visible = self.visible
        made = super().tombstone(unit)
        self.visible = visible
        return made

    def collect(self, unit: Unit) -> None:
        super().collect(unit)
        self.visible -= {unit}


@seeds.machine("RUN-036", "deletion/base", "deletion/no-new-loads")
class DeletedIsLoaded(Runtime):
    """A deleted unit can be loaded until it is collected."""

    def standing(self, direction: str, unit: Unit) -> str | None:
        return None if direction == "load" and unit in self.committed else super().standing(direction, unit)


@seeds.machine("RUN-036", "deletion/base")
class EverythingIsDeleted(Runtime):
    """A tombstone hides every entry."""

    def tombstone(self, unit: Unit) -> tuple[str, int]:
        made = super().tombstone(unit)
        if made[0] == "tombstoned":
            self.visible = frozenset()
        return made


@seeds.machine("RUN-036", "deletion/no-return-under-a-tombstone")
class CommittedOverATombstone(Runtime):
    """A writer brings deleted rows back."""

    def commit(self, unit: Unit) -> str:
        if unit in self.tombstones:
            del self.tombstones[unit]
            return "committed"
        return super().commit(unit)


@seeds.machine("RUN-036", "deletion/no-return-under-a-tombstone")
class PublishedOverATombstone(Runtime):
    """An index brings deleted rows back."""

    def check_rows(self, units: Iterable[Unit]) -> None:
        super().check_rows(unit for unit in units if unit not in self.tombstones)


@seeds.machine("RUN-036", "deletion/no-new-loads")
class StoredOverATombstone(Runtime):
    """A store of deleted rows is called resident."""

    def standing(self, direction: str, unit: Unit) -> str | None:
        if direction == "store" and unit in self.tombstones:
            return "resident"
        return super().standing(direction, unit)


@seeds.machine("RUN-036", "deletion/deleted-of-nothing")
class NothingIsTombstoned(Runtime):
    """Rows that are not there are deleted, too, and bar those that come."""

    def tombstone(self, unit: Unit) -> tuple[str, int]:
        made = super().tombstone(unit)
        if made[0] == "absent":
            self.tombstones[unit] = Tombstone(self.published)
            return "tombstoned", self.published
        return made


@seeds.machine("RUN-036", "deletion/deleted-twice")
class DeletedAnew(Runtime):
    """A second deletion takes the place of the first, its receipt included."""

    def tombstone(self, unit: Unit) -> tuple[str, int]:
        self.tombstones.pop(unit, None)
        return super().tombstone(unit)


# --- collection ---


@seeds.machine("RUN-037", "deletion/under-a-load", "deletion/under-a-shared-load", "deletion/order-of-the-reasons")
class CollectedUnderALease(Runtime):
    """Nobody asks who waits for the rows (LMCache#207)."""

    def leased(self, unit: Unit) -> bool:
        return False


@seeds.machine("RUN-037", "deletion/under-a-load", "deletion/order-of-the-reasons", "deletion/under-a-shared-load")
class ReservationsAreNoLease(Runtime):
    """Only a transfer that was started holds the rows."""

    def leased(self, unit: Unit) -> bool:
        jobs, self.jobs = self.jobs, {}
        found = super().leased(unit)
        self.jobs = jobs
        return found


@seeds.machine("RUN-037", "deletion/under-a-cancelled-load")
class CancelledHoldsNothing(Runtime):
    """A cancelled transfer that still reads is no lease."""

    def leased(self, unit: Unit) -> bool:
        return any(job.unit == unit for job in self.jobs.values())


@seeds.machine("RUN-037", "deletion/load-of-another-unit")
class AnyLoadHoldsAll(Runtime):
    """A load holds every unit."""

    def leased(self, unit: Unit) -> bool:
        return bool(self.jobs) or super().leased(unit)


@seeds.machine("RUN-038", "deletion/under-a-look-up", "deletion/two-look-ups", "deletion/order-of-the-reasons")
class CollectedUnderALookUp(Runtime):
    """Nobody asks which look-ups are in flight."""

    def looked_at(self, unit: Unit) -> bool:
        return False


@seeds.machine("RUN-038", "deletion/under-a-look-up-of-another-unit", "deletion/under-a-look-up-that-missed")
class OnlyWhatIsSoughtIsHeld(Runtime):
    """A look-up holds the unit that it looks for and no other of its generation."""

    def look_up(self, unit: Unit) -> tuple[str, str, int]:
        outcome, name, generation = super().look_up(unit)
        self.lookups[name] = Lookup(generation, self.visible & {unit})
        return outcome, name, generation


@seeds.machine("RUN-038", "deletion/later-look-ups", "deletion/unit-that-was-never-indexed")
class AnyLookUpHoldsAll(Runtime):
    """A look-up holds every unit, seen or not."""

    def looked_at(self, unit: Unit) -> bool:
        return bool(self.lookups)


@seeds.machine("RUN-038", "deletion/two-look-ups")
class LookUpsAreAFlag(Runtime):
    """The end of one look-up is the end of all."""

    def end_lookup(self, name: str) -> None:
        super().end_lookup(name)
        for lookup in self.lookups.values():
            lookup.visible = frozenset()


@seeds.machine("RUN-038", "index/look-ups-end-once")
class EndedAgain(Runtime):
    """A look-up can end as often as one likes."""

    def end_lookup(self, name: str) -> None:
        if name in self.lookups:
            super().end_lookup(name)


@seeds.machine("RUN-039", "deletion/without-tombstone", "deletion/order-of-the-reasons")
class CollectedAlive(Runtime):
    """Rows that nobody deleted are collected."""

    def collect(self, unit: Unit) -> None:
        if unit in self.committed and unit not in self.tombstones:
            self.committed.discard(unit)
            return
        super().collect(unit)


@seeds.machine("RUN-039", "deletion/without-receipt", "deletion/volatile-receipt", "deletion/order-of-the-reasons")
class NoReceiptNeeded(Runtime):
    """Rows are collected before the backend has confirmed."""

    def tombstone(self, unit: Unit) -> tuple[str, int]:
        made = super().tombstone(unit)
        if unit in self.tombstones:
            self.tombstones[unit].durable = True
        return made


@seeds.machine("RUN-039", "deletion/volatile-receipt")
class VolatileIsDurable(Runtime):
    """Any receipt is taken for a durable one."""

    def confirm_deletion(self, unit: Unit, durable: bool) -> None:
        super().confirm_deletion(unit, True)


@seeds.machine("RUN-039", "deletion/volatile-receipt")
class TheLastReceiptCounts(Runtime):
    """A volatile receipt takes a durable one back."""

    def confirm_deletion(self, unit: Unit, durable: bool) -> None:
        super().confirm_deletion(unit, durable)
        self.tombstones[unit].durable = durable


@seeds.machine("RUN-039", "deletion/without-receipt")
class OneReceiptForAll(Runtime):
    """A receipt of one unit is taken for another's."""

    def confirm_deletion(self, unit: Unit, durable: bool) -> None:
        if unit not in self.tombstones and self.tombstones:
            unit = next(iter(self.tombstones))
        super().confirm_deletion(unit, durable)


@seeds.machine("RUN-039", "deletion/order-of-the-reasons")
class ReceiptIsAskedFirst(Runtime):
    """The receipt is asked for before leases and look-ups."""

    def collect(self, unit: Unit) -> None:
        if unit in self.tombstones and not self.tombstones[unit].durable:
            raise Refusal("DELETION_NOT_DURABLE", "")
        super().collect(unit)


@seeds.machine("RUN-016", "deletion/integrity")
class UnverifiedIsCommitted(Runtime):
    """Rows are committed whatever is known of their bytes."""

    def check_unit(self, unit: Unit) -> None:
        return None


FAULTS: tuple[type[Fault], ...] = tuple(seeds.faults)
