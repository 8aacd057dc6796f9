"""What the translators of engines' own logs share: a store of residency told event by event.

A log of an engine names keys and not rows. Where the key is the hash of the content, as in the engines here, it stands
for the rows: each translated payload is the digest of the key.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from . import FORMAT
from .errors import TraceError
from .lines import lines, parse

Event = dict[str, Any]
SLOT_BYTES = 1
"""Logs tell no bytes: a key is copied or it is not."""


class Store:
    """Events of one store. Each key of a reservation is a transaction of its own, as these engines complete by key."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = defaultdict(int)
        self.waiting: dict[tuple[str, str], deque[str]] = defaultdict(deque)
        """Mode and key to the transactions that have not ended, the oldest first."""

    def open(self, slots: int, **limits_ms: int) -> Event:
        """A fresh store."""
        request = {"slots": slots, "slot_bytes": SLOT_BYTES, **limits_ms}
        return told("residency.open", request, {"slots": slots, "slot_bytes": SLOT_BYTES})

    def reserve(self, mode: str, key: str, slot: int | None = None) -> Event:
        """A key is granted."""
        self.numbers[mode] += 1
        txn = f"{mode}-{self.numbers[mode]}"
        self.waiting[mode, key].append(txn)
        request: Event = {"mode": mode, "keys": [key], "owner": txn}
        if mode == "store":
            request["data"] = [payload(key)]
        grant = {"outcome": "granted", **({} if slot is None else {"slot": slot})}
        return told("residency.reserve", request, {"txn": txn, "grants": [grant]})

    def complete(self, mode: str, key: str, *, copied: bool = True, outcome: str = "done") -> Iterator[Event]:
        """The oldest transaction of a key ends; one that nobody reserved is unknown."""
        waiting = self.waiting[mode, key]
        txn = waiting.popleft() if waiting else f"{mode}-unreserved"
        if not waiting:
            del self.waiting[mode, key]
        if copied:
            yield told("residency.copy", {"txn": txn}, {"bytes": SLOT_BYTES})
        failed = {} if copied or outcome != "done" else {"failed": [key]}
        yield told("residency.complete", {"txn": txn, **failed}, {"outcome": outcome})

    def look_up(self, key: str, state: str) -> Event:
        """What a reader is told."""
        return told("residency.lookup", {"keys": [key]}, {"states": [state]})

    def remove(self, keys: Iterable[str]) -> Iterator[Event]:
        """Keys go."""
        gone = list(keys)
        if gone:
            yield told("residency.remove", {"keys": gone}, {"outcomes": ["removed"] * len(gone)})

    def reset(self) -> Iterator[Event]:
        """Everything goes; work under way is flushed."""
        yield told("residency.reset", {}, {})
        for mode, key in list(self.waiting):
            for _ in range(len(self.waiting[mode, key])):
                yield from self.complete(mode, key, copied=False, outcome="flushed")


def told(event: str, request: Mapping[str, Any], result: Mapping[str, Any]) -> Event:
    """One exchange."""
    return {"event": event, "request": dict(request), "result": dict(result)}


def payload(key: str) -> Event:
    """The digest that stands for a key's rows."""
    return {"dtype": "uint8", "shape": [SLOT_BYTES], "sha256": hashlib.sha256(key.encode()).hexdigest()}


def header(name: str, version: str, capabilities: Mapping[str, Any]) -> Event:
    """The first line of a translated trace."""
    return {"trace": FORMAT, "engine": {"name": name, "version": version}, "capabilities": dict(capabilities)}


def numbered(records: Iterable[tuple[int, Iterable[Event]]]) -> Iterator[tuple[int, bytes]]:
    """Events as lines of a trace, each with the number of the record that it comes from, and the end."""
    count, number = 0, 0
    for number, events in records:
        for event in events:
            count += "event" in event
            yield number, (json.dumps(event, separators=(",", ":")) + "\n").encode()
    if number:
        yield number, (json.dumps({"event": "trace.end", "events": count}) + "\n").encode()


def records(stream: Any) -> Iterator[tuple[int, Event]]:
    """JSON Lines of a log."""
    for number, raw in lines(stream):
        yield number, parse(number, raw)


def demand_recorder(record: Mapping[str, Any], form: str, number: int) -> None:
    """Refuse a log of another recorder, told by its first line; raises :class:`TraceError`."""
    if record.get("recorder") != form:
        raise TraceError(number, "/recorder", f"{form!r} was expected, so this is no log of that recorder")


def texts(record: Mapping[str, Any], name: str, number: int) -> list[str]:
    """A list of keys in a record; raises :class:`TraceError`."""
    value = record.get(name, [])
    if not isinstance(value, list) or not all(isinstance(one, str) and one for one in value):
        raise TraceError(number, f"/{name}", "must be a list of keys, as text")
    return value


def integer(record: Mapping[str, Any], name: str, number: int) -> int:
    """A number of a record; raises :class:`TraceError`."""
    value = record.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise TraceError(number, f"/{name}", "must be an integer of 0 or above")
    return value
