"""Faults of *Clearing* (EVT-011, EVT-012, and EVT-001 and EVT-003 of clearing)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kvassay_reference.kvevents import DEVICE, Index, Place, Streams

from ..base import Fault, found
from .base import Block, Event, case


@dataclass
class DeviceCleared(Index):
    """A clearing empties the device."""

    def cleared(self) -> None:
        for place in [place for place in self.copies if place.medium == DEVICE]:
            for block in list(self.copies[place].elements()):
                self.drop(block, place)


class LowerTiersSurvive(Fault):
    """A clearing empties the device, and host memory stays in the index: old weights' rows are found."""

    requirement = "EVT-011"
    killed_by = case("clearing/everything", "clearing/parent-below")
    index_class = DeviceCleared


@dataclass
class NotCleared(Index):
    """A clearing is passed over."""

    def cleared(self) -> None:
        self.whole = True


class ClearingIgnored(Fault):
    """AllBlocksCleared is an event that nobody handles (class 4 of public reports: vllm#57727)."""

    requirement = "EVT-011"
    killed_by = case("clearing/everything", "clearing/parent", "clearing/content", "clearing/removal-on-the-device")
    index_class = NotCleared


@dataclass
class KeepsContents(Index):
    """A clearing leaves what hashes stand for."""

    def cleared(self) -> None:
        kept = self.contents
        super().cleared()
        self.contents = kept


class ContentsSurvive(Fault):
    """A clearing empties the places, and contents are still compared."""

    requirement = "EVT-011"
    killed_by = case("clearing/content")
    index_class = KeepsContents


@dataclass
class NumbersBegin(Index):
    """A clearing begins the numbers anew."""

    def cleared(self) -> None:
        super().cleared()
        self.number = None


class ClearedIsRestarted(Fault):
    """A cleared cache is taken for a new publisher."""

    requirement = "EVT-011"
    killed_by = case("clearing/numbers-go-on")
    index_class = NumbersBegin


class EveryRank(Streams):
    """A clearing is everybody's."""

    def read(self, batches: Iterable[Mapping[str, Any]]) -> None:
        for batch in batches:
            super().read([batch])
            if any(event["type"] == "AllBlocksCleared" for event in batch["events"]):
                for index in self.publishers.values():
                    index.cleared()


class ClearsEveryRank(Fault):
    """One rank's clearing empties all."""

    requirement = "EVT-003"
    killed_by = case("publishers/clear-one")
    streams_class = EveryRank


@dataclass
class NothingLate(Index):
    """What is cleared cannot go late."""

    def went_late(self, block: Block, place: Place) -> bool:
        return False


class LateRemovalRefused(Fault):
    """The removals of a tier that is cleared after the device are taken for a sign of a broken index."""

    requirement = "EVT-012"
    killed_by = case("clearing/behind", "clearing/behind-two-copies", "clearing/new-before-late")
    index_class = NothingLate


@dataclass
class AlwaysLate(Index):
    """After a clearing lower tiers may remove anything."""

    def went_late(self, block: Block, place: Place) -> bool:
        return bool(self.taken) and place.medium != DEVICE


class AnyLateRemoval(Fault):
    """After a clearing every removal below the device passes."""

    requirement = "EVT-012"
    killed_by = case("clearing/behind-and-again", "clearing/behind-what-was-not-there")
    index_class = AlwaysLate


@dataclass
class LateOnce(Index):
    """Each block that was cleared may go late once, whatever its copies."""

    def cleared(self) -> None:
        super().cleared()
        self.taken = {place: Counter(set(blocks)) for place, blocks in self.taken.items()}


class LateCopiesMerged(Fault):
    """Two copies that were cleared may be removed once."""

    requirement = "EVT-012"
    killed_by = case("clearing/behind-two-copies")
    index_class = LateOnce


@dataclass
class LateDevice(Index):
    """The device may go late, too."""

    def cleared(self) -> None:
        before = self.copies
        super().cleared()
        self.taken = before


class DeviceMayLag(Fault):
    """Removals on the device pass after a clearing."""

    requirement = "EVT-011"
    killed_by = case("clearing/removal-on-the-device")
    index_class = LateDevice


@dataclass
class LateFirst(Index):
    """A removal takes what was cleared before what is there."""

    def removed(self, event: Event) -> None:
        place = Place.of(event)
        hashes = [block for block in event["block_hashes"] if not self.went_late(block, place)]
        super().removed({**event, "block_hashes": hashes})


class OldCopyBeforeNew(Fault):
    """A removal behind a clearing is always the old copy's, so that the new one stays in the index for ever."""

    requirement = "EVT-001"
    killed_by = case("clearing/new-copy-goes-first")
    index_class = LateFirst


FAULTS = found(globals())
