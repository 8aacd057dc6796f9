"""MessagePack values from a stream, one at a time, within limits; all that KV Events need, without a dependency."""

from __future__ import annotations

import struct
from typing import Any, BinaryIO

MAX_BYTES = 16 << 20
"""Of one string or binary, and of one value altogether."""
MAX_ITEMS = 1 << 20
MAX_DEPTH = 32

NUMBERS = {
    0xCA: ">f",
    0xCB: ">d",
    0xCC: ">B",
    0xCD: ">H",
    0xCE: ">I",
    0xCF: ">Q",
    0xD0: ">b",
    0xD1: ">h",
    0xD2: ">i",
    0xD3: ">q",
}
CONSTANTS = {0xC0: None, 0xC2: False, 0xC3: True}
BINARY = {0xC4: ">B", 0xC5: ">H", 0xC6: ">I"}
TEXT = {0xD9: ">B", 0xDA: ">H", 0xDB: ">I"}
ARRAYS = {0xDC: ">H", 0xDD: ">I"}
MAPS = {0xDE: ">H", 0xDF: ">I"}


class Cut(Exception):
    """The stream ends in the middle of a value."""


class Unreadable(ValueError):
    """Bytes that are no value of the formats that are read here."""


class Reader:
    """Values of a stream."""

    def __init__(self, stream: BinaryIO) -> None:
        self.stream = stream
        self.left = 0
        self.items = 0

    def value(self) -> Any:
        """The next value; raises :class:`EOFError` where the stream ends before it, :class:`Cut` within it."""
        first = self.stream.read(1)
        if not first:
            raise EOFError
        self.left, self.items = MAX_BYTES, MAX_ITEMS
        return self._value(first[0], 0)

    def _take(self, count: int) -> bytes:
        self.left -= count
        if self.left < 0:
            raise Unreadable(f"a value of more than {MAX_BYTES >> 20} MiB")
        raw = self.stream.read(count)
        if len(raw) < count:
            raise Cut
        return raw

    def _number(self, form: str) -> Any:
        return struct.unpack(form, self._take(struct.calcsize(form)))[0]

    def _count(self, count: int) -> int:
        self.items -= count
        if self.items < 0:
            raise Unreadable(f"a value of more than {MAX_ITEMS} items")
        return count

    def _next(self, depth: int) -> Any:
        return self._value(self._take(1)[0], depth)

    def _value(self, kind: int, depth: int) -> Any:
        if kind < 0x80:
            return kind
        if kind >= 0xE0:
            return kind - 0x100
        if kind in CONSTANTS:
            return CONSTANTS[kind]
        if kind in NUMBERS:
            return self._number(NUMBERS[kind])
        if 0xA0 <= kind < 0xC0 or kind in TEXT:
            return self._text(kind & 0x1F if kind < 0xC0 else self._number(TEXT[kind]))
        if kind in BINARY:
            return self._take(self._number(BINARY[kind]))
        if depth >= MAX_DEPTH:
            raise Unreadable(f"nested deeper than {MAX_DEPTH}")
        if 0x90 <= kind < 0xA0 or kind in ARRAYS:
            count = self._count(kind & 0x0F if kind < 0xA0 else self._number(ARRAYS[kind]))
            return [self._next(depth + 1) for _ in range(count)]
        if 0x80 <= kind < 0x90 or kind in MAPS:
            return self._map(self._count(kind & 0x0F if kind < 0x90 else self._number(MAPS[kind])), depth)
        raise Unreadable(f"the byte 0x{kind:02x}, which begins no value of KV Events")

    def _text(self, count: int) -> str:
        try:
            return self._take(count).decode("utf-8")
        except UnicodeDecodeError:
            raise Unreadable("a text that is not UTF-8") from None

    def _map(self, count: int, depth: int) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        for _ in range(count):
            name = self._next(depth + 1)
            if not isinstance(name, str | int | bytes) or name in found:
                raise Unreadable("a map whose keys are no names, or stand twice")
            found[name] = self._next(depth + 1)
        return found
