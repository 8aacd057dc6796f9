"""What the words of patterns mean."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from .contract import Draw, Step

if TYPE_CHECKING:
    from .residency import Handle, ResidencyScene

SPOKEN, DISTURBED = 92, 10
"""Percent of words that are said, and after which something else happens."""
WORD = re.compile(r"([a-z-]+)(\d*)")
Word = Callable[["Telling", str], None]


class Telling:
    """A pattern that is being acted out."""

    def __init__(self, scene: ResidencyScene, draw: Draw) -> None:
        self.scene, self.draw = scene, draw
        self.where: dict[str, Any] = scene.somewhere(draw)
        self.keys = list(scene.keys)
        self.key = draw.pick(self.keys)
        self.other = next((key for key in self.keys if key != self.key), self.key)
        self.handles: dict[str, Handle] = {}

    def tell(self, words: str) -> None:
        """Say the words, most of them."""
        for word in words.split():
            if self.draw.chance(SPOKEN):
                name, number = WORD.fullmatch(word).groups()  # type: ignore[union-attr]
                WORDS[name](self, number)
            if self.draw.chance(DISTURBED):
                self.scene.disturb(self.draw, self.where, self.key)

    def call(self, op: str, **request: Any) -> None:
        """A call, where it is legal."""
        self.scene.try_(Step(op, request))

    # --- single calls -------------------------------------------------------------------------------------------

    def put(self, key: str) -> None:
        """Rows in one call, or by a store where there is none such."""
        self.scene.bring(self.draw, self.where, key, moves=False if "residency.put" in self.scene.ops else None)

    def remove(self, keys: list[str], **more: Any) -> None:
        """Give replicas up."""
        self.call("residency.remove", keys=keys, **self.where, **more)

    def wait(self) -> None:
        """So long that two such make the shortest limit pass, and one does not."""
        limits = self.scene.account.ttl_ms.values()
        if limits:
            self.call("control.advance_clock", by_ms=-(-min(limits) // 2))

    def damage(self, *faults: str) -> None:
        """Below the engine."""
        self.call("control.inject", key=self.key, **self.where, fault=self.draw.pick(faults))

    def tiers(self) -> None:
        """Where they are said to be."""
        self.call("residency.lookup", keys=self.keys, **self.where)

    def fill(self) -> None:
        """Pressure on the slots."""
        self.scene.fill(self.draw)

    # --- transactions -------------------------------------------------------------------------------------------

    def begin(self, number: str, mode: str, keys: list[str], *, same: bool | None = None) -> None:
        """Reserve."""
        owner = self.draw.pick(("r1", "r2"))
        handle = self.scene.reserve(mode, keys, owner, self.where, self.draw, same=same)
        if handle is not None:
            self.handles[number] = handle

    def with_handle(self, number: str, act: Callable[[Handle], None]) -> None:
        """Something that is done to a transaction, if it began."""
        if number in self.handles:
            act(self.handles[number])

    def complete(self, number: str) -> None:
        """End it in one of the ways that there are."""
        self.with_handle(number, lambda one: self.scene.finish(self.draw, one))

    def end(self, number: str, op: str, **more: Any) -> None:
        """End it plainly."""
        self.with_handle(number, lambda one: self.call(f"residency.{op}", txn=self.scene.bound(one), **more))

    def fail(self, number: str, *, last: bool) -> None:
        """Complete it with a key that failed: one of those that moved, or the last."""

        def failed(handle: Handle) -> None:
            moving = [handle.request["keys"][index] for index in handle.moving]
            if moving:
                self.end(number, "complete", failed=moving[-1:] if last else [self.draw.pick(moving)])

        self.with_handle(number, failed)

    def move(self, number: str, *, half: bool) -> None:
        """Copy all that is left, or half."""
        self.with_handle(number, lambda one: self.scene.move(one, self.scene.slot_bytes // 2 if half else None))


def everyone(told: Telling) -> list[str]:
    """All keys, the one that the pattern is about first."""
    return [told.key, *(key for key in told.keys if key != told.key)]


def both(told: Telling) -> list[str]:
    """The key and the other one, where there is another."""
    return list(dict.fromkeys((told.key, told.other)))


def bring_all(told: Telling, number: str) -> None:
    """All keys by stores."""
    for key in told.keys:
        told.scene.bring(told.draw, told.where, key, moves=True)


WORDS: Mapping[str, Word] = {
    "put": lambda told, _: told.put(told.key),
    "put-other": lambda told, _: told.put(told.other),
    "bring": lambda told, _: told.scene.bring(told.draw, told.where, told.key),
    "bring-host": lambda told, _: told.scene.bring(told.draw, told.where, told.key, moves=True),
    "bring-all": bring_all,
    "store": lambda told, number: told.begin(number, "store", [told.key]),
    "store-same": lambda told, number: told.begin(number, "store", [told.key], same=True),
    "store-other": lambda told, number: told.begin(number, "store", [told.other]),
    "store-rest": lambda told, number: told.begin(number, "store", everyone(told), same=True),
    "store-all": lambda told, number: told.begin(number, "store", everyone(told)),
    "load": lambda told, number: told.begin(number, "load", [told.key]),
    "load-all": lambda told, number: told.begin(number, "load", everyone(told)),
    "copy": lambda told, number: told.move(number, half=False),
    "half": lambda told, number: told.move(number, half=True),
    "complete": lambda told, number: told.complete(number),
    "done": lambda told, number: told.end(number, "complete"),
    "cancel": lambda told, number: told.end(number, "cancel"),
    "fail": lambda told, number: told.fail(number, last=False),
    "fail-last": lambda told, number: told.fail(number, last=True),
    "wait": lambda told, _: told.wait(),
    "corrupt": lambda told, _: told.damage("corrupt"),
    "damage": lambda told, _: told.damage("corrupt", "truncate", "drop", "evict"),
    "remove": lambda told, _: told.remove([told.key]),
    "release-device": lambda told, _: told.remove([told.key], tier="device"),
    "release-host": lambda told, _: told.remove([told.key], tier="host"),
    "release-below": lambda told, _: told.remove([told.key], tier="secondary"),
    "release-any": lambda told, _: told.remove([told.key], tier=told.draw.pick(("device", "host", "secondary"))),
    "release-both": lambda told, _: told.remove(both(told), tier="device"),
    "fill": lambda told, _: told.fill(),
    "read": lambda told, _: told.call("residency.get", key=told.key, **told.where),
    "tiers": lambda told, _: told.tiers(),
    "look": lambda told, _: told.scene.look(told.draw),
}
"""Word to what is done; the second argument is its number."""
