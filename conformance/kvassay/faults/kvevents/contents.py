"""Faults of *What a hash stands for* (EVT-008 to EVT-010)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from kvassay_reference.kvevents import UNTOLD, Content, Index, Place

from ..base import Fault, found, spoiled
from .base import Block, Event, case


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
    return spoiled(Fault, __name__, name, meaning, "EVT-008", case(*cases), index_class=index)


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


FAULTS = found(globals())
