"""Faults of *What may be removed and what may follow* (EVT-005 to EVT-007)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from kvassay_reference.errors import Refusal
from kvassay_reference.kvevents import DEVICE, Index, Place

from ..base import Fault, found
from .base import Block, Event, case


@dataclass
class Discards(Index):
    """Removing what is not there is nothing."""

    def removed(self, event: Event) -> None:
        here = self.copies.get(Place.of(event), Counter())
        left: Counter[Block] = Counter(here)
        known = []
        for block in event["block_hashes"]:
            if left[block]:
                left[block] -= 1
                known.append(block)
        super().removed({**event, "block_hashes": known})


class RemovalOfNothing(Fault):
    """``discard`` in the place of ``remove``: the first sign that index and cache are apart is passed over."""

    requirement = "EVT-005"
    killed_by = case(
        "removal/never", "removal/other-medium", "removal/again", "removal/second-of-two", "copies/twice-and-gone"
    )
    index_class = Discards


@dataclass
class Anywhere(Index):
    """A removal needs a copy on some medium."""

    def removed(self, event: Event) -> None:
        place = Place.of(event)
        known = [block for block in event["block_hashes"] if self.copies.get(place, Counter())[block]]
        for block in event["block_hashes"]:
            if block not in known and not self.resident(block) and not self.went_late(block, place):
                raise Refusal("BLOCK_NOT_STORED", str(block))
        super().removed({**event, "block_hashes": known})


class RemovalFromElsewhere(Fault):
    """A removal is held against all media at once."""

    requirement = "EVT-005"
    killed_by = case("removal/other-medium", "removal/other-group", "removal/other-tier")
    index_class = Anywhere


@dataclass
class Orphans(Index):
    """Parents are not looked up."""

    def parent_is_there(self, event: Event) -> bool:
        return True


class ParentsUnchecked(Fault):
    """A block is taken whatever it follows."""

    requirement = "EVT-006"
    killed_by = case("parents/unknown", "parents/removed", "parents/later", "parents/itself")
    index_class = Orphans


@dataclass
class EmptyFollows(Index):
    """An event without blocks is held to its parent."""

    def stored(self, event: Event) -> None:
        if not self.parent_is_there(event) and self.even(event):
            raise Refusal("PARENT_NOT_RESIDENT", str(event["parent_block_hash"]))
        super().stored(event)


class EmptyEventsFollow(Fault):
    """The parent is looked up before anybody looks for blocks."""

    requirement = "EVT-006"
    killed_by = case("parents/no-blocks")
    index_class = EmptyFollows


@dataclass
class EverSeen(Index):
    """Hashes are never forgotten."""

    def __post_init__(self) -> None:
        self.ever: set[Block] = set()

    def add(self, block: Block, place: Place) -> None:
        super().add(block, place)
        self.ever.add(block)

    def resident(self, block: Block) -> bool:
        return block in self.ever

    def cleared(self) -> None:
        super().cleared()
        self.ever.clear()


class RemovedParents(Fault):
    """A parent need only have been stored at some time."""

    requirement = "EVT-006"
    killed_by = case("parents/removed", "parents/removed-among-others", "parents/gone-from-below")
    index_class = EverSeen


@dataclass
class OnTheDevice(Index):
    """Parents are looked up on the device."""

    def resident(self, block: Block) -> bool:
        return any(blocks[block] for place, blocks in self.copies.items() if place.medium == DEVICE)


class ParentOnDeviceAlone(Fault):
    """A prefix in host memory is taken for gone."""

    requirement = "EVT-006"
    killed_by = case("parents/on-another-medium")
    index_class = OnTheDevice


@dataclass
class InTheGroup(Index):
    """Parents are looked up in the event's own place."""

    def parent_is_there(self, event: Event) -> bool:
        parent, here = event["parent_block_hash"], self.copies.get(Place.of(event), Counter())
        return parent is None or not self.attends_to_all(event) or here[parent] > 0


class ParentInPlaceAlone(Fault):
    """A parent has to be in the very place of its child."""

    requirement = "EVT-006"
    killed_by = case("parents/of-another-group", "parents/on-another-medium")
    index_class = InTheGroup


@dataclass
class FullByName(Index):
    """Only groups of the kind full_attention need their prefix."""

    def attends_to_all(self, event: Event) -> bool:
        kind = event.get("kv_cache_spec_kind")
        return kind in (None, "full_attention") and event.get("kv_cache_spec_sliding_window") is None


class LatentIsNotFull(Fault):
    """Latent attention and attention with sinks are taken for windows."""

    requirement = "EVT-006"
    killed_by = case("parents/mla", "parents/sinks")
    index_class = FullByName


@dataclass
class AllAreFull(Index):
    """Every group is held to its prefix."""

    def attends_to_all(self, event: Event) -> bool:
        return True


class WindowsNeedAll(Fault):
    """The kind of a group is not read."""

    requirement = "EVT-007"
    killed_by = case("windows/sliding-window", "windows/mamba", "windows/chunked", "windows/window-alone")
    index_class = AllAreFull


@dataclass
class KindAlone(Index):
    """A window is told by the kind alone."""

    def attends_to_all(self, event: Event) -> bool:
        return super().attends_to_all({**event, "kv_cache_spec_sliding_window": None})


class WindowWithoutKind(Fault):
    """The size of a window is not read."""

    requirement = "EVT-007"
    killed_by = case("windows/window-alone", "windows/full-with-a-window")
    index_class = KindAlone


FAULTS = found(globals())
