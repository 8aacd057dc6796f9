"""KV Events, the field's public stream of cache events: batches from a file or a pipe, judged publisher by publisher.

A file is a sequence of MessagePack values, or JSON Lines. Each is a batch ``[ts, events, rank]``, or a frame as a
subscriber gets it, ``[topic, number, batch]`` with the number as eight bytes and the batch packed; in JSON also an
object with the members of either. Events are maps with their ``type``, or arrays that begin with it, as older engines
send.
"""

from __future__ import annotations

import io
import math
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

from ..core.expect import Outcome
from ..monitors.kv_events import KvEventsMonitor
from ..monitors.requirements import requirements
from .check import UNKNOWN_NAMES, Counts, Offence
from .errors import CutLine, TraceError
from .lines import lines, parse_any
from .msgpack import Cut, Reader, Unreadable
from .rules import Rule

BLOCKS = ("block_hashes", "parent_block_hash", "token_ids", "block_size")
POSITIONS = {
    "BlockStored": (*BLOCKS, "lora_id", "medium", "lora_name", "extra_keys", "group_idx"),
    "BlockRemoved": ("block_hashes", "medium", "group_idx"),
    "AllBlocksCleared": (),
}
"""Order of the members where an event is an array; what follows is not read."""
REQUIRED = {"BlockStored": BLOCKS, "BlockRemoved": BLOCKS[:1], "AllBlocksCleared": ()}
INTEGERS = ("block_size", "lora_id", "group_idx", "kv_cache_spec_sliding_window")
TEXTS = ("medium", "lora_name", "kv_cache_spec_kind", "ownership", "cache_salt")
LISTS = ("extra_keys", "lookahead_token_ids")
OP = "kvevents.index"
PAST = 1 << 15
"""Events of which the hashes are remembered, for what a finding quotes."""
SHOWN = 8


@dataclass(frozen=True)
class Batch:
    """One batch as it was read."""

    at: int
    """Number of the line, or of the value, counted from 1."""
    topic: str
    rank: int
    seq: int | None
    events: list[Any]


class Misfit(ValueError):
    """A value that is no batch: pointer and reason."""

    def __init__(self, pointer: str, reason: str) -> None:
        super().__init__(pointer, reason)
        self.pointer = pointer
        self.reason = reason


def batches(stream: BinaryIO) -> Iterator[Batch]:
    """Batches as soon as they are there; raises :class:`TraceError`, or :class:`CutLine` for half a batch at last."""
    first = stream.read(1)
    rest = _Joined(first, stream)
    text = first in (b"{", b"[", b"\n", b" ", b"\r", b"\t")
    for at, value in _json(rest) if text else _packed(rest):
        try:
            yield _batch(at, value)
        except Misfit as problem:
            raise TraceError(at, problem.pointer, problem.reason) from None


def _json(stream: Any) -> Iterator[tuple[int, Any]]:
    for number, raw in lines(stream):
        yield number, parse_any(number, raw)


def _packed(stream: Any) -> Iterator[tuple[int, Any]]:
    reader, number = Reader(stream), 0
    while True:
        number += 1
        try:
            yield number, reader.value()
        except EOFError:
            return
        except Cut:
            raise CutLine(number) from None
        except Unreadable as problem:
            raise TraceError(number, "", f"not MessagePack of KV Events: {problem}") from None


class _Joined:
    """A stream of which the first byte was read already."""

    def __init__(self, first: bytes, stream: BinaryIO) -> None:
        self._first = first
        self._stream = stream

    def read(self, count: int) -> bytes:
        if not self._first:
            return self._stream.read(count)
        first, self._first = self._first, b""
        return first + self._stream.read(count - 1) if count > 1 else first

    def readline(self, limit: int) -> bytes:
        first, self._first = self._first, b""
        return first if first == b"\n" else first + self._stream.readline(limit - len(first))


def _batch(at: int, value: Any) -> Batch:
    topic: Any = ""
    seq: Any = None
    inner, where = value, ""
    if isinstance(value, Mapping):
        topic, seq = value.get("topic") or "", value.get("seq")
        inner = value.get("batch", [value.get("ts"), value.get("events"), value.get("data_parallel_rank")])
        where = "/batch" if "batch" in value else ""
    elif isinstance(value, list) and value and isinstance(value[0], str | bytes):
        if len(value) != 3:
            raise Misfit("", "a frame has a topic, a number and a batch")
        topic, seq, inner = value
        where = "/2"
    topic = topic.decode("utf-8", "replace") if isinstance(topic, bytes) else topic
    if not isinstance(topic, str):
        raise Misfit("/topic", "a topic is a text")
    seq = int.from_bytes(seq, "big", signed=True) if isinstance(seq, bytes) else seq
    _demand(seq is None or (_integer(seq) and seq >= 0), where or "/seq", "a number is none, or 0 and above")
    if isinstance(inner, bytes):
        try:
            inner = Reader(io.BytesIO(inner)).value()
        except (EOFError, Cut, Unreadable):
            raise Misfit(where, "a payload that is no MessagePack value") from None
    _demand(isinstance(inner, list) and 2 <= len(inner) <= 3, where, "a batch is [ts, events, rank]")
    members: list[Any] = [*inner, None][:3]
    time, events, rank = members
    _demand(_integer(time) or (isinstance(time, float) and math.isfinite(time)), f"{where}/0", "a time is a number")
    _demand(isinstance(events, list), f"{where}/1", "events are a list")
    _demand(rank is None or _integer(rank), f"{where}/2", "a rank is an integer")
    return Batch(at, topic, rank or 0, seq, events)


def _integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _demand(condition: bool, pointer: str, reason: str) -> None:
    if not condition:
        raise Misfit(pointer, reason)


def event(value: Any, at: str = "") -> dict[str, Any] | str:
    """An event as the suite has it, hashes as text; of a kind that is not known, its name. Raises :class:`Misfit`."""
    if isinstance(value, list):
        _demand(bool(value) and isinstance(value[0], str), at, "an event begins with its type")
        positions = POSITIONS.get(value[0])
        if positions is None:
            return str(value[0])
        value = {"type": value[0], **dict(zip(positions, value[1:], strict=False))}
    _demand(isinstance(value, Mapping) and isinstance(value.get("type"), str), at, "an event has a type")
    kind = value["type"]
    if kind not in REQUIRED:
        return str(kind)
    for name in REQUIRED[kind]:
        _demand(name in value, at, f"{kind} has the member {name}")
    found: dict[str, Any] = {"type": kind}
    if kind != "AllBlocksCleared":
        _demand(isinstance(value["block_hashes"], list), f"{at}/block_hashes", "hashes are a list")
        hashes = enumerate(value["block_hashes"])
        found["block_hashes"] = [hash_text(one, f"{at}/block_hashes/{index}") for index, one in hashes]
    if kind == "BlockStored":
        parent = value["parent_block_hash"]
        found["parent_block_hash"] = None if parent is None else hash_text(parent, f"{at}/parent_block_hash")
        tokens = value["token_ids"]
        fits = isinstance(tokens, list) and all(_integer(one) or isinstance(one, list) for one in tokens)
        _demand(fits, f"{at}/token_ids", "tokens are a list of integers, or of tuples of them")
        found["token_ids"] = tokens
        _demand(value["block_size"] is not None, f"{at}/block_size", "an integer")
    for names, test, what in (
        (INTEGERS, _integer, "an integer"),
        (TEXTS, lambda one: isinstance(one, str), "a text"),
        (LISTS, lambda one: isinstance(one, list), "a list"),
    ):
        for name in names:
            if name in value:
                _demand(value[name] is None or test(value[name]), f"{at}/{name}", what)
                found[name] = value[name]
    return found


def hash_text(value: Any, at: str) -> str:
    """A hash as text: integers in decimal, bytes in hexadecimal."""
    _demand(_integer(value) or isinstance(value, str | bytes), at, "a hash is an integer, bytes or a text")
    return value.hex() if isinstance(value, bytes) else str(value)


class KvChecker:
    """Takes the batches of a stream and says what they contradict."""

    def __init__(self, *, whole: bool = True, only: str | None = None) -> None:
        self.whole = whole
        self.only = only
        self.counts = Counts()
        self.publishers: dict[str, KvEventsMonitor] = {}
        self.past: deque[tuple[str, int, int, dict[str, Any]]] = deque(maxlen=PAST)

    def offences(self, batches: Iterable[Batch]) -> Iterator[Offence]:
        """Every offence in turn; raises :class:`TraceError` for a batch that cannot be read."""
        try:
            for batch in batches:
                yield from self.batch(batch)
        except CutLine as cut:
            yield Offence(Rule.TRUNCATED, f"batch {cut.line} ends in the middle; the stream was cut", cut.line)
            return
        if not self.counts.events:
            yield Offence(Rule.EMPTY, "the stream holds no event")

    def batch(self, batch: Batch) -> Iterator[Offence]:
        """Judge one batch."""
        name = f"{batch.topic} rank {batch.rank}".strip()
        self.counts.lines = batch.at
        self.counts.processes.add(name)
        mine = self.only in (None, name)
        monitor = self.publishers.setdefault(name, KvEventsMonitor(whole=self.whole))
        told = monitor.batch(batch.seq)
        if mine and not told.holds:
            yield self._offence(told, batch, name, "batch", "/seq", {})
        for index, value in enumerate(batch.events):
            try:
                one = event(value, f"/events/{index}")
            except Misfit as problem:
                raise TraceError(batch.at, problem.pointer, problem.reason) from None
            if not mine:
                continue
            if isinstance(one, str):
                self._unknown(one)
                continue
            self.counts.kinds[one["type"]] += 1
            outcome = monitor.event(one)
            if not outcome.holds:
                yield self._offence(outcome, batch, name, one["type"], f"/events/{index}", one)
            brief = {key: value for key, value in one.items() if key not in ("token_ids", *LISTS)}
            self.past.append((name, batch.at, index, brief))

    @property
    def held(self) -> Counter[str]:
        """What memory goes to."""
        found: Counter[str] = Counter()
        for monitor in self.publishers.values():
            found.update(monitor.held)
        return found

    def _unknown(self, name: str) -> None:
        unknown = self.counts.unknown
        name = name[:200]
        unknown[name if name in unknown or len(unknown) < UNKNOWN_NAMES else "others"] += 1

    def _offence(
        self, outcome: Outcome, batch: Batch, name: str, kind: str, at: str, one: Mapping[str, Any]
    ) -> Offence:
        finding = outcome.finding
        assert finding is not None
        rule, _, sentence = finding.message.partition(": ")
        return Offence(
            rule=rule,
            sentence=sentence,
            line=batch.at,
            process=name,
            event=kind,
            at=at,
            requirements=requirements("kvevents", OP, rule, finding),
            led_to_it=tuple(self._before(name, one)),
        )

    def _before(self, name: str, one: Mapping[str, Any]) -> Iterator[tuple[int, str]]:
        """The latest events about the same blocks."""
        about = {*one.get("block_hashes", ()), one.get("parent_block_hash")} - {None}
        led = [
            (at, index, seen)
            for whose, at, index, seen in self.past
            if whose == name and (about & set(seen.get("block_hashes", ())) or seen["type"] == "AllBlocksCleared")
        ]
        for at, index, seen in led[-SHOWN:]:
            shown = [block for block in seen.get("block_hashes", ()) if block in about][:4]
            where = f" on {seen.get('medium') or 'GPU'}" if shown else ""
            yield at, f"/events/{index}  {seen['type']} {' '.join(shown)}{where}"
