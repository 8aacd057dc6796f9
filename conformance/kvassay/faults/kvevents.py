"""Faults of the contract kvevents: an index of the reference with one realistic defect each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from kvassay_reference.errors import Refusal
from kvassay_reference.kvevents import DEVICE, UNTOLD, Content, Index, Place, Streams

from ..engines.reference import Reference
from .base import Fault

Block = Hashable
Event = Mapping[str, Any]

CORRECT = (Reference,)


def case(*names: str) -> tuple[str, ...]:
    """Ids of this contract's cases."""
    return tuple(f"kvevents/{name}" for name in names)


# --- the index -------------------------------------------------------------------------------------------------------


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


# --- numbers ---------------------------------------------------------------------------------------------------------


@dataclass
class Numbers(Index):
    """The check of numbers without some of its reasons, or from another beginning."""

    blind: ClassVar[tuple[str, ...]] = ()

    def numbered(self, number: int | None) -> None:
        try:
            super().numbered(number)
        except Refusal as refusal:
            if refusal.reason not in self.blind:
                raise


class GapsTolerant(Numbers):
    """Gaps pass."""

    blind = ("EVENT_BATCH_LOST",)


class RepeatsTolerant(Numbers):
    """Repeats pass."""

    blind = ("EVENT_BATCH_REPEATED",)


class GapsPass(Fault):
    """A lost batch is logged and nothing follows from it."""

    requirement = "EVT-004"
    killed_by = case("numbers/gap-of-one", "numbers/gap-of-many", "numbers/first-is-missing")
    index_class = GapsTolerant


class RepeatsPass(Fault):
    """A batch that is replayed is applied a second time."""

    requirement = "EVT-004"
    killed_by = case("numbers/again", "numbers/restart", "clearing/numbers-go-on")
    index_class = RepeatsTolerant


@dataclass
class AnyBeginning(Index):
    """The first batch may have any number."""

    def numbered(self, number: int | None) -> None:
        if self.number is None and number is not None:
            self.number = number - 1
        super().numbered(number)


class BeginningMissing(Fault):
    """Whoever subscribes late takes the first batch that comes for the beginning."""

    requirement = "EVT-004"
    killed_by = case("numbers/first-is-missing")
    index_class = AnyBeginning


class Numbered(Streams):
    """Batches without a number are dropped."""

    def read(self, batches: Iterable[Mapping[str, Any]]) -> None:
        super().read(batch for batch in batches if batch["seq"] is not None)


class NumberlessDropped(Fault):
    """A batch without a number is taken for a broken one and skipped."""

    requirement = "EVT-004"
    killed_by = case("numbers/none", "numbers/some")
    streams_class = Numbered


@dataclass
class SmallGaps(Index):
    """A single lost batch passes."""

    def numbered(self, number: int | None) -> None:
        if number is not None and self.number is not None and number == self.number + 2:
            self.number += 1
        super().numbered(number)


class OneMayBeLost(Fault):
    """The comparison of numbers is off by one."""

    requirement = "EVT-004"
    killed_by = case("numbers/gap-of-one", "numbers/out-of-order")
    index_class = SmallGaps


@dataclass
class NamelessCount(Index):
    """A batch without a number counts."""

    def numbered(self, number: int | None) -> None:
        if number is None:
            self.number = 0 if self.number is None else self.number + 1
        super().numbered(number)


class NamelessBatchesCount(Fault):
    """A batch without a number uses one up."""

    requirement = "EVT-004"
    killed_by = case("numbers/some", "numbers/gap-behind-no-number")
    index_class = NamelessCount


# --- removal and parents ---------------------------------------------------------------------------------------------


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


# --- contents --------------------------------------------------------------------------------------------------------


@dataclass
class Blind(Index):
    """One member of a content is not kept."""

    member: ClassVar[str]

    def content(self, event: Event, index: int, parent: Block | None) -> Content:
        members: dict[str, Any] = {self.member: UNTOLD}
        return replace(super().content(event, index, parent), **members)


def blind(name: str, member: str, meaning: str, *cases: str) -> type[Fault]:
    """A fault whose index does not look at one member."""
    index: type[Index] = dataclass(type(f"{name}Index", (Blind,), {"member": member, "__doc__": meaning}))
    body = {
        "__doc__": meaning,
        "__module__": __name__,
        "requirement": "EVT-008",
        "killed_by": case(*cases),
        "index_class": index,
    }
    return type(name, (Fault,), body)


BLINDS = (
    blind("TokensNotKept", "tokens", "Tokens of a block are not compared.", "contents/tokens", "contents/other-medium"),
    blind("ParentNotKept", "parent", "Parents are not compared.", "contents/parent", "contents/parent-or-none"),
    blind(
        "AdapterNotKept",
        "adapter",
        "The adapter is not part of the content (vllm#44250).",
        "contents/adapter-name",
        "contents/adapter-or-none",
        "contents/adapter-number",
    ),
    blind("SaltNotKept", "salt", "The salt beside the keys is not compared.", "contents/salt-beside"),
    blind(
        "KeysNotKept",
        "keys",
        "Extra keys are not part of the content.",
        "contents/salt-in-keys",
        "contents/image",
        "contents/told-later",
    ),
    blind("LookaheadNotKept", "ahead", "Lookahead tokens are not compared.", "contents/lookahead"),
)


@dataclass
class SortedTokens(Index):
    """Tokens are compared as a set."""

    def content(self, event: Event, index: int, parent: Block | None) -> Content:
        content = super().content(event, index, parent)
        return replace(content, tokens=tuple(sorted(content.tokens)))


class TokensAsASet(Fault):
    """Tokens are compared without their order."""

    requirement = "EVT-008"
    killed_by = case("contents/order-of-tokens")
    index_class = SortedTokens


@dataclass
class SortedKeys(Index):
    """Extra keys are compared as a set, without the places of items."""

    def content(self, event: Event, index: int, parent: Block | None) -> Content:
        content = super().content(event, index, parent)
        keys = content.keys
        if isinstance(keys, tuple):
            keys = frozenset(key[0] if isinstance(key, tuple) else key for key in keys)
        return replace(content, keys=keys)


class KeysAsASet(Fault):
    """Extra keys are compared without order and place."""

    requirement = "EVT-008"
    killed_by = case("contents/order-of-keys", "contents/place-of-image")
    index_class = SortedKeys


@dataclass
class EmptyIsNone(Index):
    """``name or number``."""

    def adapter(self, event: Event) -> Any:
        return event.get("lora_name") or event.get("lora_id") or None


class EmptyAdapterIsNone(Fault):
    """An empty name and the number 0 are taken for no adapter."""

    requirement = "EVT-008"
    killed_by = case("contents/empty-adapter", "contents/adapter-zero")
    index_class = EmptyIsNone


@dataclass
class NoneIsUntold(Index):
    """A block without extra keys is taken for one whose keys are not told."""

    def content(self, event: Event, index: int, parent: Block | None) -> Content:
        content = super().content(event, index, parent)
        keys = UNTOLD if content.keys is None else content.keys
        return replace(content, keys=keys, salt=UNTOLD if content.salt is None else content.salt)


class WithoutSaltIsAnySalt(Fault):
    """A block without a salt agrees with every salt."""

    requirement = "EVT-008"
    killed_by = case("contents/salt-or-none", "contents/salt-beside-or-none")
    index_class = NoneIsUntold


@dataclass
class UntoldIsNone(Index):
    """Members that are not told are compared as absent."""

    def content(self, event: Event, index: int, parent: Block | None) -> Content:
        content = super().content(event, index, parent)
        members: dict[str, Any] = {name: None for name in ("salt", "keys", "ahead") if getattr(content, name) is UNTOLD}
        return replace(content, **members)


class UntoldIsAbsent(Fault):
    """A tier that knows no keys is taken to contradict the device."""

    requirement = "EVT-008"
    killed_by = case("contents/untold-keys")
    index_class = UntoldIsNone


@dataclass
class FirstWins(Index):
    """The first content is kept as it was told."""

    def fix(self, block: Block, content: Content) -> None:
        known = self.contents.get(block)
        super().fix(block, content)
        if known is not None:
            self.contents[block] = known


class LaterMembersLost(Fault):
    """What a later event tells beyond the first is not kept."""

    requirement = "EVT-008"
    killed_by = case("contents/told-later")
    index_class = FirstWins


@dataclass
class NeverForgets(Index):
    """Contents stay when the block is gone."""

    def drop(self, block: Block, place: Place) -> None:
        known = self.contents.get(block)
        super().drop(block, place)
        if known is not None:
            self.contents[block] = known


class GoneIsRemembered(Fault):
    """Contents are kept for ever, and the index grows with the stream."""

    requirement = "EVT-008"
    killed_by = case("contents/after-it-is-gone")
    index_class = NeverForgets


@dataclass
class ForgetsTooSoon(Index):
    """Contents go with the first copy."""

    def drop(self, block: Block, place: Place) -> None:
        super().drop(block, place)
        self.contents.pop(block, None)


class ForgottenWithOneCopy(Fault):
    """What a hash stands for is forgotten when the device evicts it, although host memory keeps the block."""

    requirement = "EVT-008"
    killed_by = case("contents/below-after-eviction")
    index_class = ForgetsTooSoon


@dataclass
class ParentOfTheEvent(Index):
    """Every block of an event is a child of the event's parent."""

    def stored(self, event: Event) -> None:
        self.parent_told = event["parent_block_hash"]
        super().stored(event)

    def content(self, event: Event, index: int, parent: Block | None) -> Content:
        return super().content(event, index, event["parent_block_hash"])


class OneParentForAll(Fault):
    """The blocks of an event are not chained."""

    requirement = "EVT-008"
    killed_by = case("contents/second-of-an-event", "contents/twice-in-an-event")
    index_class = ParentOfTheEvent


@dataclass
class TokensOnly(Index):
    """Tokens are not counted."""

    def even(self, event: Event) -> bool:
        return super().even({**event, "token_ids": ()})


class TokensUncounted(Fault):
    """Tokens are cut into blocks without a look at whether they fill them."""

    requirement = "EVT-009"
    killed_by = case("blocks/token-missing", "blocks/token-too-many", "blocks/one-block-of-two")
    index_class = TokensOnly


@dataclass
class RoundedUp(Index):
    """The last block need not be full."""

    def even(self, event: Event) -> bool:
        size = max(1, event["block_size"])
        full = -(-len(event["token_ids"]) // size) * size
        return super().even({**event, "token_ids": [0] * full})


class LastBlockMayBeShort(Fault):
    """The number of blocks is rounded up."""

    requirement = "EVT-009"
    killed_by = case("blocks/token-missing")
    index_class = RoundedUp


@dataclass
class KeysUncounted(Index):
    """Keys are not counted; missing ones are none."""

    def even(self, event: Event) -> bool:
        return super().even({**event, "extra_keys": None, "lookahead_token_ids": None})

    def content(self, event: Event, index: int, parent: Block | None) -> Content:
        members = {
            name: [*(event.get(name) or ()), *[None] * len(event["block_hashes"])]
            for name in ("extra_keys", "lookahead_token_ids")
            if event.get(name) is not None
        }
        return super().content({**event, **members}, index, parent)


class KeysMayBeMissing(Fault):
    """Blocks beyond the list of extra keys have none."""

    requirement = "EVT-009"
    killed_by = case("blocks/keys-missing", "blocks/keys-too-many", "blocks/no-keys", "blocks/lookahead-missing")
    index_class = KeysUncounted


@dataclass
class EmptyCounts(Index):
    """An event without tokens is one of too few."""

    def even(self, event: Event) -> bool:
        return super().even(event) and len(event["token_ids"]) == len(event["block_hashes"]) * event["block_size"]


class CopyNeedsTokens(Fault):
    """A copy that is told by its hash is refused, since its tokens do not fill the block."""

    requirement = "EVT-010"
    killed_by = case("places/size-of-a-copy")
    index_class = EmptyCounts


@dataclass
class EmptyContent(Index):
    """An event without tokens tells blocks without tokens."""

    def stored(self, event: Event) -> None:
        if not event["token_ids"]:
            parent = event["parent_block_hash"]
            for block in event["block_hashes"]:
                self.fix(block, Content(parent, (), None, UNTOLD, UNTOLD, UNTOLD))
                parent = block
        super().stored(event)


class CopyIsAnEmptyBlock(Fault):
    """A copy that is told by its hash is taken for a block of no tokens, and found to contradict the device."""

    requirement = "EVT-010"
    killed_by = case("places/known-hash", "index/offloaded", "places/other-parent")
    index_class = EmptyContent


@dataclass
class KnownAlone(Index):
    """A copy needs a content."""

    def stored(self, event: Event) -> None:
        if not event["token_ids"]:
            hashes = [block for block in event["block_hashes"] if block in self.contents]
            event = {**event, "block_hashes": hashes}
        super().stored(event)


class UnknownCopiesSkipped(Fault):
    """A copy of a block that was not told with its tokens is passed over."""

    requirement = "EVT-010"
    killed_by = case("places/unknown-hash", "index/two-media")
    index_class = KnownAlone


# --- clearing --------------------------------------------------------------------------------------------------------


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


def _all() -> Iterator[type[Fault]]:
    for value in list(globals().values()):
        if isinstance(value, type) and issubclass(value, Fault) and value is not Fault:
            yield value
    yield from BLINDS


FAULTS = tuple(_all())
