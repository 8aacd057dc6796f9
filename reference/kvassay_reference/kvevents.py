"""KV Events: the index that follows from a publisher's stream, and where a stream contradicts itself.

One :class:`Index` per publisher. Memory follows what is stored: blocks, their copies and contents, and what the last
clearing took.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from .errors import Refusal

DEVICE = "GPU"
"""The medium of events that name none."""
WHOLE = frozenset({None, "full_attention", "mla_attention", "sink_full_attention"})
"""Kinds of groups whose blocks need all that came before them."""

Block = Hashable
Event = Mapping[str, Any]


@dataclass(frozen=True)
class Place:
    """Where a copy is: medium, group of layers, tier."""

    medium: str
    group: int
    tier: str

    @classmethod
    def of(cls, event: Event) -> Place:
        """The place that an event names."""
        return cls(event.get("medium") or DEVICE, event.get("group_idx") or 0, event.get("ownership") or "")


class Untold:
    """A member that an event leaves out."""

    def __repr__(self) -> str:
        return "untold"


UNTOLD = Untold()


def frozen(value: Any) -> Any:
    """Lists as tuples, throughout, so that values can be kept and compared."""
    return tuple(frozen(item) for item in value) if isinstance(value, list | tuple) else value


@dataclass(frozen=True, slots=True)
class Content:
    """What a hash stands for, as far as events tell."""

    parent: Block | None
    tokens: tuple[Any, ...]
    adapter: Any
    salt: Any
    keys: Any
    ahead: Any

    def clash(self, other: Content) -> str | None:
        """The first member in which two contents differ although both tell it."""
        for one in fields(self):
            mine, theirs = getattr(self, one.name), getattr(other, one.name)
            if mine is not UNTOLD and theirs is not UNTOLD and mine != theirs:
                return one.name
        return None

    def joined(self, other: Content) -> Content:
        """What either of them tells."""
        members = ((getattr(self, one.name), getattr(other, one.name)) for one in fields(self))
        return Content(*(theirs if mine is UNTOLD else mine for mine, theirs in members))


@dataclass
class Index:
    """What one publisher has stored.

    ``whole`` says that the stream is read from its first batch on; otherwise blocks from before are taken on trust.
    """

    whole: bool = True
    number: int | None = None
    copies: dict[Place, Counter[Block]] = field(default_factory=dict, init=False)
    total: Counter[Block] = field(default_factory=Counter, init=False)
    """Copies anywhere."""
    contents: dict[Block, Content] = field(default_factory=dict, init=False)
    taken: dict[Place, Counter[Block]] = field(default_factory=dict, init=False)
    """Copies below the device that the last clearing took."""

    def numbered(self, number: int | None) -> None:
        """The number of the next batch."""
        if number is None:
            return
        before, self.number = self.number, number
        if before is None and not self.whole:
            return
        due = 0 if before is None else before + 1
        if number > due:
            raise Refusal("EVENT_BATCH_LOST", f"batch {number} follows {before}; {number - due} are missing")
        if number < due:
            raise Refusal("EVENT_BATCH_REPEATED", f"batch {number} follows {before}")

    def apply(self, event: Event) -> None:
        """One event; raises :class:`Refusal` for one that contradicts the stream so far."""
        kind = event["type"]
        if kind == "BlockStored":
            self.stored(event)
        elif kind == "BlockRemoved":
            self.removed(event)
        else:
            self.cleared()

    def even(self, event: Event) -> bool:
        """Whether tokens, keys and lookahead tokens fill the blocks."""
        blocks, tokens = len(event["block_hashes"]), event["token_ids"]
        entries = (event.get("extra_keys"), event.get("lookahead_token_ids"))
        filled = not tokens or len(tokens) == blocks * event["block_size"]
        return filled and all(one is None or len(one) == blocks for one in entries)

    def attends_to_all(self, event: Event) -> bool:
        """Whether a block of the group needs its prefix."""
        return event.get("kv_cache_spec_kind") in WHOLE and event.get("kv_cache_spec_sliding_window") is None

    def resident(self, block: Block) -> bool:
        """Whether a block is stored anywhere."""
        return self.total[block] > 0

    def parent_is_there(self, event: Event) -> bool:
        """Whether the blocks follow something that is stored."""
        parent = event["parent_block_hash"]
        return parent is None or not self.attends_to_all(event) or self.resident(parent)

    def adapter(self, event: Event) -> Any:
        """The adapter by name, or by number."""
        name, number = event.get("lora_name"), event.get("lora_id")
        return name if name is not None else number

    def content(self, event: Event, index: int, parent: Block | None) -> Content:
        """What an event tells of one of its blocks."""
        size, keys, ahead = event["block_size"], event.get("extra_keys"), event.get("lookahead_token_ids")
        return Content(
            parent=parent,
            tokens=frozen(event["token_ids"][index * size : (index + 1) * size]),
            adapter=self.adapter(event),
            salt=event.get("cache_salt", UNTOLD),
            keys=UNTOLD if keys is None else frozen(keys[index]),
            ahead=UNTOLD if ahead is None else frozen(ahead[index]),
        )

    def stored(self, event: Event) -> None:
        """Blocks came to a place."""
        hashes: Sequence[Block] = event["block_hashes"]
        if not self.even(event):
            raise Refusal("EVENT_BLOCKS_UNEVEN", f"{len(event['token_ids'])} tokens for {len(hashes)} blocks")
        if hashes and not self.parent_is_there(event) and self.whole:
            raise Refusal("PARENT_NOT_RESIDENT", f"{event['parent_block_hash']} is stored nowhere")
        parent, place = event["parent_block_hash"], Place.of(event)
        for index, block in enumerate(hashes):
            if event["token_ids"]:
                self.fix(block, self.content(event, index, parent))
            self.add(block, place)
            parent = block

    def fix(self, block: Block, content: Content) -> None:
        """A hash stands for a content."""
        known = self.contents.get(block)
        clash = None if known is None else known.clash(content)
        if clash is not None:
            raise Refusal("BLOCK_HASH_REUSED", f"{block} is stored with another {clash}")
        self.contents[block] = content if known is None else known.joined(content)

    def add(self, block: Block, place: Place) -> None:
        """One more copy."""
        self.copies.setdefault(place, Counter())[block] += 1
        self.total[block] += 1

    def drop(self, block: Block, place: Place) -> None:
        """One copy less; what is stored nowhere is forgotten."""
        here = self.copies[place]
        here[block] -= 1
        self.total[block] -= 1
        if not here[block]:
            del here[block]
        if not self.total[block]:
            del self.total[block]
            self.contents.pop(block, None)

    def removed(self, event: Event) -> None:
        """Blocks left a place."""
        place = Place.of(event)
        here = self.copies.get(place, Counter())
        for block in event["block_hashes"]:
            if here[block]:
                self.drop(block, place)
            elif not self.went_late(block, place) and self.whole:
                raise Refusal("BLOCK_NOT_STORED", f"{block} is not on {place.medium}")

    def went_late(self, block: Block, place: Place) -> bool:
        """Whether a clearing took the block, and its tier tells of it now."""
        late = self.taken.get(place, Counter())
        if not late[block]:
            return False
        late[block] -= 1
        return True

    def cleared(self) -> None:
        """Everything is gone; tiers below the device may tell of theirs later."""
        self.taken = {place: blocks for place, blocks in self.copies.items() if place.medium != DEVICE}
        self.copies, self.total, self.contents = {}, Counter(), {}
        self.whole = True

    def media(self) -> dict[str, set[Block]]:
        """Medium to its blocks."""
        found: dict[str, set[Block]] = {}
        for place, blocks in self.copies.items():
            if blocks:
                found.setdefault(place.medium, set()).update(blocks)
        return found


@dataclass
class Streams:
    """All publishers of a stream."""

    whole: bool = True
    index_class: type[Index] = Index
    publishers: dict[int, Index] = field(default_factory=dict, init=False)

    def of(self, rank: int | None) -> Index:
        """The index of a publisher."""
        return self.publishers.setdefault(rank or 0, self.index_class(self.whole))

    def read(self, batches: Iterable[Mapping[str, Any]]) -> None:
        """Batches in the order of their arrival."""
        for batch in batches:
            index = self.of(batch.get("data_parallel_rank"))
            index.numbered(batch["seq"])
            for event in batch["events"]:
                index.apply(event)

    def resident(self) -> list[dict[str, Any]]:
        """Rank, medium and blocks, in ascending order."""
        return [
            {"data_parallel_rank": rank, "medium": medium, "block_hashes": sorted(map(str, blocks))}
            for rank, index in sorted(self.publishers.items())
            for medium, blocks in sorted(index.media().items())
        ]
