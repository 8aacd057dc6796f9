"""The latest lines, kept as bytes within a bound, and which of them led to a finding."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

BYTES = 16 << 20
"""How much of the past is kept."""
SHOWN = 8
"""How many lines a finding quotes."""
CHARACTERS = 160
LINKS = ("txn", "request", "read")
"""What leads from one event to another: who moved the rows, and for whom."""
RESET = ("reset", "")
"""What begins an epoch, or a runtime, is about every request."""
UNSAID = frozenset({"staging_bytes", "contract", "fallbacks", "recompute_ms", "now_ms", "finish_ms", "deadline_ms"})
"""Of a reservation, what a line has no room for."""
MOVES = ("runtime.complete", "runtime.cancel", "runtime.reset")


class Past:
    """The latest lines of all processes."""

    def __init__(self, limit_bytes: int = BYTES) -> None:
        self.kept: deque[tuple[int, bytes]] = deque()
        self.held = 0
        self.limit = limit_bytes

    def add(self, number: int, raw: bytes) -> None:
        """Keep a line; the checker does the same in place, a line at a time."""
        self.kept.append((number, raw))
        self.held += len(raw)
        self.shorten()

    def shorten(self) -> None:
        """Drop the oldest lines beyond the bound."""
        while self.held > self.limit:
            self.held -= len(self.kept.popleft()[1])

    def before(self, value: Mapping[str, Any], since: int, most: int = SHOWN) -> Iterator[tuple[int, str]]:
        """The latest lines of the same process since ``since`` that are about the same things, and each in brief."""
        process = value.get("process")
        rows = [(number, json.loads(raw)) for number, raw in self.kept if number >= since]
        rows = [(number, row) for number, row in rows if row.get("process") == process]
        about = set(subjects(value))
        for _, row in rows:
            if about & set(subjects(row)):
                about |= {one for one in linked(row) if one[0] in LINKS}
        if runs(value):
            about.add(RESET)
        led = [(number, row) for number, row in rows if about & set(subjects(row))]
        if counted(value) and len(led) < most:
            numbers = {number for number, _ in led}
            others = [(number, row) for number, row in rows if moves(row) and number not in numbers]
            led = sorted([*led, *others[len(led) - most :]], key=lambda one: one[0])
        record = value.get("request", {}).get("record")
        yield from ((number, brief(row, record)) for number, row in led[-most:])


def subjects(value: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What an event is about: keys, transactions, sessions, requests, and of records where they begin."""
    if runs(value):
        yield from named(value)
        return
    request = value.get("request", {})
    tenant = request.get("tenant", "")
    for key in (*request.get("keys", ()), *([request["key"]] if "key" in request else ())):
        yield "key", f"{tenant}\0{key}"
    for name in ("txn", "session", "call_id", "field"):
        if isinstance(request.get(name), str):
            yield name, request[name]
    tokens = request.get("record", {}).get("tokens") if isinstance(request.get("record"), dict) else None
    if tokens:
        yield "tokens", str(tokens[0])
    if value.get("event") in ("residency.reset", "residency.open", "identity.change"):
        yield "all", ""
    yield from handles(value)


def linked(value: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What else a past event is about that explains the present one: its transaction, or its request and transfer."""
    yield from named(value) if runs(value) else handles(value)


def runs(value: Mapping[str, Any]) -> bool:
    """Whether the event is one of a runtime."""
    return str(value.get("event", "")).startswith("runtime.")


def counted(value: Mapping[str, Any]) -> bool:
    """Whether all requests before, of whatever name, decide what is right: credits are one account."""
    return value.get("event") == "runtime.inspect" or (
        value.get("event") == "runtime.reserve" and value.get("result", {}).get("outcome") in ("granted", "fallback")
    )


def moves(value: Mapping[str, Any]) -> bool:
    """Whether the event takes or returns credits."""
    granted = value.get("result", {}).get("outcome") == "granted"
    return value.get("event") in MOVES or (value.get("event") == "runtime.reserve" and granted)


def named(value: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Of a runtime's event: requests, transfers with their epochs, rows, look-ups and generations of the index."""
    request, result = value.get("request", {}), value.get("result", {})
    fallen = [row.get("request") for row in result.get("fallbacks", ())]
    for name in (request.get("request"), *result.get("ready", ()), *fallen):
        if isinstance(name, str):
            yield "request", name
    for told in (request, result):
        if "read" in told:
            yield "read", f"{told.get('epoch')}\0{told['read']}"
        for name in ("lookup", "generation"):
            if name in told and not isinstance(told[name], dict):
                yield name, str(told[name])
    for unit in (*([request["unit"]] if "unit" in request else ()), *request.get("units", ())):
        yield "unit", json.dumps(unit, sort_keys=True)
    if value.get("event") in ("runtime.reset", "runtime.open"):
        yield RESET


def handles(value: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The transaction that an event began, and its slots."""
    result = value.get("result", {})
    txn = result.get("txn")
    if isinstance(txn, str):
        yield "txn", txn
    for grant in result.get("grants", ()):
        if "slot" in grant:
            yield "slot", str(grant["slot"])


def brief(value: Mapping[str, Any], record: Mapping[str, Any] | None = None) -> str:
    """An event on one line: what was asked and what came of it, digests cut short.

    Of a record it shows what differs from the one that was asked for.
    """
    request = value.get("request", {})
    if record is not None and isinstance(request.get("record"), Mapping):
        own = request["record"]
        differs = {name: own.get(name) for name in (own | record) if own.get(name) != record.get(name)}
        request = {**request, "record": differs or "the same"}
    if runs(value):
        request = {name: item for name, item in request.items() if name not in UNSAID}
    asked = _members(request)
    for outcome in ("result", "rejected", "unsupported", "error"):
        if outcome in value:
            told = value[outcome]
            came = _members(told) if isinstance(told, Mapping) else str(told)
            said = came or "done" if outcome == "result" else f"{outcome} {came}"
            return f"{value['event']}  {asked} -> {said}"[:CHARACTERS]
    return f"{value['event']}  {asked}"[:CHARACTERS]


def _members(value: Mapping[str, Any]) -> str:
    shown = {name: _short(item) for name, item in value.items() if name != "engine_calls"}
    return " ".join(
        f"{name}={item if isinstance(item, str) else json.dumps(item, ensure_ascii=False, separators=(',', ':'))}"
        for name, item in shown.items()
    )


def _short(item: Any) -> Any:
    if isinstance(item, Mapping):
        if "tokens_sha256" in item and "first_position" in item:
            return f"{item['tokens_sha256'][:8]}[{item['first_position']}:{item.get('end_position')}]"
        return item["sha256"][:8] if "sha256" in item else {name: _short(one) for name, one in item.items()}
    if isinstance(item, str) and len(item) == 64 and not item.strip("0123456789abcdef"):
        return item[:8]
    if isinstance(item, list):
        return [_short(one) for one in item[:4]] + (["..."] if len(item) > 4 else [])
    return item
