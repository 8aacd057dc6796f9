"""Faults of *The index*: places, copies, publishers (EVT-001 to EVT-003, and EVT-005 of what leaves)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kvassay_reference.kvevents import DEVICE, Index, Place, Streams

from ..base import Fault, found
from .base import Block, Event, case


@dataclass
class OnePool(Index):
    """Places are not told apart."""

    def stored(self, event: Event) -> None:
        super().stored({**event, "medium": DEVICE, "group_idx": 0, "ownership": None})

    def removed(self, event: Event) -> None:
        super().removed({**event, "medium": DEVICE, "group_idx": 0, "ownership": None})


class MediumIgnored(Fault):
    """The medium of an event is not read, as before events carried one: everything is on the device."""

    requirement = "EVT-001"
    killed_by = case("index/offloaded", "index/two-media", "walks/seed-1")
    index_class = OnePool


@dataclass
class RemovesEverywhere(Index):
    """A removal takes the block from every medium."""

    def removed(self, event: Event) -> None:
        super().removed(event)
        for block in event["block_hashes"]:
            for place in [place for place, blocks in self.copies.items() if blocks[block]]:
                self.drop(block, place)


class EvictedIsGone(Fault):
    """What the device evicts is dropped from the index altogether, so that lower tiers are never used."""

    requirement = "EVT-001"
    killed_by = case("index/offloaded", "index/two-media", "walks/seed-1", "walks/seed-2")
    index_class = RemovesEverywhere


@dataclass
class NoGroups(Index):
    """Groups of layers share one place."""

    def removed(self, event: Event) -> None:
        super().removed({**event, "group_idx": 0})

    def stored(self, event: Event) -> None:
        super().stored({**event, "group_idx": 0})


class GroupsIgnored(Fault):
    """The group of layers is not read."""

    requirement = "EVT-005"
    killed_by = case("removal/other-group")
    index_class = NoGroups


@dataclass
class NoTiers(Index):
    """Tiers of a medium share one place."""

    def removed(self, event: Event) -> None:
        super().removed({**event, "ownership": None})

    def stored(self, event: Event) -> None:
        super().stored({**event, "ownership": None})


class TiersIgnored(Fault):
    """Which tier of a medium is meant is not read."""

    requirement = "EVT-005"
    killed_by = case("removal/other-tier")
    index_class = NoTiers


@dataclass
class NamelessApart(Index):
    """An event without a medium has a place of its own."""

    def stored(self, event: Event) -> None:
        super().stored({**event, "medium": event.get("medium") or "none"})

    def removed(self, event: Event) -> None:
        super().removed({**event, "medium": event.get("medium") or "none"})


class NoMediumIsAnother(Fault):
    """An event without a medium is about another place than the device."""

    requirement = "EVT-001"
    killed_by = case("index/no-medium-is-the-device")
    index_class = NamelessApart


@dataclass
class EmptyPlaces(Index):
    """The device is always listed."""

    def media(self) -> dict[str, set[Block]]:
        return {DEVICE: set(), **super().media()}


class EmptyPlacesListed(Fault):
    """A publisher without blocks is listed, so that a router takes it for a candidate."""

    requirement = "EVT-001"
    killed_by = case("index/nothing", "clearing/everything")
    index_class = EmptyPlaces


@dataclass
class Tombstones(Index):
    """A block that was removed stays removed."""

    def __post_init__(self) -> None:
        self.buried: set[Block] = set()

    def add(self, block: Block, place: Place) -> None:
        if block not in self.buried:
            super().add(block, place)

    def removed(self, event: Event) -> None:
        super().removed(event)
        self.buried.update(block for block in event["block_hashes"] if not self.resident(block))


class RemovedForEver(Fault):
    """A removal leaves a mark that a later storing does not take away."""

    requirement = "EVT-001"
    killed_by = case("index/back-again", "contents/after-it-is-gone")
    index_class = Tombstones


@dataclass
class FirstOfMany(Index):
    """One block of each event is kept."""

    def stored(self, event: Event) -> None:
        size = event["block_size"]
        if event["block_hashes"] and self.even(event):
            event = {**event, "block_hashes": event["block_hashes"][:1], "token_ids": event["token_ids"][:size]}
            event = {**event, "extra_keys": None, "lookahead_token_ids": None}
        super().stored(event)


class FirstBlockAlone(Fault):
    """Events of several blocks came later, and only the first of them is read."""

    requirement = "EVT-001"
    killed_by = case("index/offloaded", "parents/chain-in-one-event")
    index_class = FirstOfMany


@dataclass
class ASet(Index):
    """Each place holds a set of hashes."""

    def add(self, block: Block, place: Place) -> None:
        if not self.copies.get(place, Counter())[block]:
            super().add(block, place)


class CopiesNotCounted(Fault):
    """The first eviction of a block removes it, although another copy is there (vllm#48933)."""

    requirement = "EVT-002"
    killed_by = case("copies/twice", "copies/parent-of-two", "clearing/behind-two-copies", "walks/seed-1")
    index_class = ASet


@dataclass
class AllCopiesAtOnce(Index):
    """A removal takes every copy."""

    def drop(self, block: Block, place: Place) -> None:
        for _ in range(self.copies[place][block]):
            super().drop(block, place)


class FirstRemovalTakesAll(Fault):
    """The count of copies is kept and set to zero by the first removal."""

    requirement = "EVT-002"
    killed_by = case("copies/twice", "copies/parent-of-two")
    index_class = AllCopiesAtOnce


class OneIndex(Streams):
    """All ranks share an index."""

    def of(self, rank: int | None) -> Index:
        return super().of(0)


class RanksShareAnIndex(Fault):
    """The rank of a batch is not read: every rank is taken to hold what any of them holds."""

    requirement = "EVT-003"
    killed_by = case("publishers/two", "publishers/not-mine", "publishers/parent-elsewhere", "publishers/clear-one")
    streams_class = OneIndex


class OwnBlocks(Streams):
    """Ranks have their own blocks, and one count of batches."""

    def read(self, batches: Iterable[Mapping[str, Any]]) -> None:
        for batch in batches:
            first = self.of(0)
            first.numbered(batch["seq"])
            for event in batch["events"]:
                self.of(batch.get("data_parallel_rank")).apply(event)


class RanksShareNumbers(Fault):
    """Batches are numbered over all ranks."""

    requirement = "EVT-003"
    killed_by = case("publishers/two", "publishers/own-meaning")
    streams_class = OwnBlocks


FAULTS = found(globals())
