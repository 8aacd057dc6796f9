"""What an engine wrote, cut into messages: the one place where replies are parsed.

Whatever is wrong with the bytes, the outcome is :class:`~kvassay.core.engine.Broken`, never an exception.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..core.engine import Broken, NotSupported, Refused, Reply, Returned
from ..corpus import schemas
from .base import Pending
from .values import shortened
from .wire import LINE_BYTES, WireError, excerpt, frame_lengths, parse_line, unpack

ENVELOPES = {
    "hello": "hello-reply",
    "opened": "opened",
    "result": "result",
    "rejected": "rejected",
    "unsupported": "unsupported",
    "pending": "pending",
    "error": "error",
}
"""Member that tells the kind of a message, and its definition in ``schemas/wire.json``."""


@dataclass(frozen=True)
class Incoming:
    """One legal message."""

    kind: str
    """A key of :data:`ENVELOPES`, or ``failed`` for an error that answers no call."""
    id: int | None
    reply: Reply | Pending | None
    body: dict[str, Any]


class Inbox:
    """Bytes in, messages out."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._scanned = 0
        self._head: tuple[dict[str, Any], list[int]] | None = None

    def __len__(self) -> int:
        """Bytes that no message has taken yet."""
        return len(self._buffer) + (self._head is not None)

    def feed(self, data: bytes) -> None:
        """Add what was read."""
        self._buffer += data

    def excerpt(self) -> str:
        """The start of what lies here, printable."""
        return excerpt(self._buffer)

    def take(self) -> Incoming | Broken | None:
        """The next message, ``None`` until it is whole, or what is wrong with it."""
        try:
            if self._head is None:
                line = self._line()
                if isinstance(line, Broken) or line is None:
                    return line
                body = parse_line(line)
                self._head = body, frame_lengths(body)
            body, lengths = self._head
            if len(self._buffer) < sum(lengths):
                return None
            self._head = None
            return _incoming(body, self._frames(lengths))
        except Exception as error:  # untrusted input: anything that it provokes is its own fault
            text = str(error) if isinstance(error, WireError) else f"{type(error).__name__}: {error}"
            return Broken("malformed", shortened(text))

    def _line(self) -> bytes | Broken | None:
        end = self._buffer.find(b"\n", self._scanned)
        if (len(self._buffer) if end < 0 else end) > LINE_BYTES:
            return Broken("flood", f"a line of more than {LINE_BYTES >> 20} MiB: {self.excerpt()}")
        if end < 0:
            self._scanned = len(self._buffer)
            return None
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        self._scanned = 0
        return line

    def _frames(self, lengths: list[int]) -> list[bytes]:
        frames, start = [], 0
        for length in lengths:
            frames.append(bytes(self._buffer[start : start + length]))
            start += length
        del self._buffer[:start]
        return frames


def _incoming(body: dict[str, Any], frames: list[bytes]) -> Incoming:
    kind = next((key for key in ENVELOPES if key in body), None)
    if kind is None:
        raise WireError(f"none of {', '.join(ENVELOPES)} in a message with {_members(body)}")
    name = ENVELOPES[kind]
    if kind == "error" and "id" not in body:
        kind = name = "failed"
    result = body.get("result")
    if not isinstance(result, dict):
        unpack(body, frames)
    envelope = {**body, "result": {}} if isinstance(result, dict) else body
    found = schemas.problem(envelope, f"urn:kvassay:wire#/$defs/{name}")
    if found is not None:
        raise WireError(f"not a legal {name} message: {found[0] or '/'}: {found[1]}")
    return Incoming(kind, body.get("id"), _reply(kind, body, frames), body)


def _members(body: dict[str, Any]) -> str:
    return ", ".join(ascii(key)[:40] for key in list(body)[:8]) or "no members"


def _reply(kind: str, body: dict[str, Any], frames: list[bytes]) -> Reply | Pending | None:
    match kind:
        case "result":
            return Returned(unpack(body["result"], frames))
        case "rejected":
            return Refused(body["rejected"]["reason"], shortened(body["rejected"].get("detail", "")))
        case "unsupported":
            return NotSupported(shortened(body["unsupported"].get("detail", "")))
        case "pending":
            return Pending(body["pending"]["ticket"])
        case "error" | "failed":
            return Broken("exception", shortened(body["error"]["detail"]))
    return None
