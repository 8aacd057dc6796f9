"""Faults of *Designs*: validators that know one design, or go by its name (IDN-043)."""

from __future__ import annotations

from collections.abc import Iterator

from kvassay_reference.admission import Stage, Violation
from kvassay_reference.manifest import Manifest

from ..base import Fault, found


class NearDataIsExactByName(Fault):
    """Attention near the data is exact because nothing was moved."""

    requirement = "IDN-043"
    killed_by = ("identity/designs/exact-rows-near-data",)

    def violations(self, manifest: Manifest, stage: Stage) -> Iterator[Violation]:
        near = manifest.operation.lane == "exact_near_data"
        return (v for v in super().violations(manifest, stage) if not (near and v.reason == "EXACTNESS_OVERCLAIMED"))


class OnlyTheMovingLaneIsExact(Fault):
    """Of the two exact lanes one is held to every row; the other is as exact as it promises to be."""

    requirement = "IDN-043"
    killed_by = ("identity/designs/exact-rows-near-data",)

    def violations(self, manifest: Manifest, stage: Stage) -> Iterator[Violation]:
        free = manifest.operation.lane == "exact_near_data" and manifest.operation.exactness != "exact"
        return (v for v in super().violations(manifest, stage) if not (free and v.reason == "EXACTNESS_OVERCLAIMED"))


class ExactOnlyByPromise(Fault):
    """A lane says nothing of exactness; only the promise does."""

    requirement = "IDN-043"
    killed_by = ("identity/designs/exact-rows-moved", "identity/designs/exact-rows-near-data")

    def violations(self, manifest: Manifest, stage: Stage) -> Iterator[Violation]:
        free = manifest.operation.exactness != "exact"
        return (v for v in super().violations(manifest, stage) if not (free and v.reason == "EXACTNESS_OVERCLAIMED"))


class UnknownLane(Fault):
    """A lane that this validator was not written for."""

    lane: str

    def violations(self, manifest: Manifest, stage: Stage) -> Iterator[Violation]:
        if manifest.operation.lane == self.lane:
            yield Violation("SCHEMA_VIOLATION", "/operation/lane")
        yield from super().violations(manifest, stage)


class NoRecallableMemory(UnknownLane):
    """Units that are recalled are no lane."""

    requirement = "IDN-043"
    killed_by = ("identity/designs/recall-of-some-and-of-all",)
    lane = "recallable_memory"


class NothingNearTheData(UnknownLane):
    """States that travel are no lane."""

    requirement = "IDN-043"
    killed_by = ("identity/designs/exact-rows-near-data",)
    lane = "exact_near_data"


class SelectionIsNeverExact(Fault):
    """Whoever selects may not promise exactness, all rows or not."""

    requirement = "IDN-043"
    killed_by = ("identity/designs/selection-of-some-and-of-all", "identity/designs/recall-of-some-and-of-all")

    def violations(self, manifest: Manifest, stage: Stage) -> Iterator[Violation]:
        yield from super().violations(manifest, stage)
        if manifest.operation.exactness == "exact" and manifest.operation.lane in (
            "query_selection",
            "recallable_memory",
        ):
            yield Violation("EXACTNESS_OVERCLAIMED", "/operation/exactness")


FAULTS = found(globals())
