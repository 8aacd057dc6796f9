"""KV Events: what is read, what is told of each publisher, and real streams of vLLM, whole and spoiled."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kvassay import cli
from kvassay.core.expect import Rejects
from kvassay.corpus import load
from kvassay.corpus.data import root
from kvassay.traces.check import Offence
from kvassay.traces.errors import TraceError
from kvassay.traces.kv_events import Batch, KvChecker, batches
from kvassay.traces.msgpack import MAX_BYTES, Cut, Reader, Unreadable

ENGINES = root() / "fixtures" / "traces" / "engines"
VLLM = (ENGINES / "vllm-kv-events.msgpack").read_bytes()
CASES = [case for case in load().cases if case.contract == "kvevents"]

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def kvassay(capsys: pytest.CaptureFixture[str]) -> Command:
    def command(*arguments: str | Path) -> tuple[int, str, str]:
        code = cli.status([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return command


def packed(value: Any) -> bytes:
    """A value as MessagePack, written here in the longest forms."""
    if value is None or isinstance(value, bool):
        return {None: b"\xc0", False: b"\xc2", True: b"\xc3"}[value]
    if isinstance(value, int):
        return struct.pack(">BQ", 0xCF, value) if value >= 0 else struct.pack(">Bq", 0xD3, value)
    if isinstance(value, float):
        return struct.pack(">Bd", 0xCB, value)
    if isinstance(value, bytes):
        return struct.pack(">BI", 0xC6, len(value)) + value
    if isinstance(value, str):
        return struct.pack(">BI", 0xDB, len(value.encode())) + value.encode()
    if isinstance(value, dict):
        items = (part for pair in value.items() for part in pair)
        return struct.pack(">BI", 0xDF, len(value)) + b"".join(map(packed, items))
    return struct.pack(">BI", 0xDD, len(value)) + b"".join(map(packed, value))


def told(content: bytes, **options: Any) -> list[Offence]:
    return list(KvChecker(**options).offences(batches(io.BytesIO(content))))


def read(content: bytes) -> list[Batch]:
    return list(batches(io.BytesIO(content)))


def written(rows: list[Batch]) -> bytes:
    """Batches as frames, as a subscriber gets them."""
    payloads = [(row, packed([1.0, row.events, row.rank])) for row in rows]
    return b"".join(
        packed([row.topic.encode(), (row.seq or 0).to_bytes(8, "big"), payload]) for row, payload in payloads
    )


def stored(*hashes: Any, parent: Any = None, **more: Any) -> dict[str, Any]:
    tokens = list(range(2 * len(hashes)))
    event = {"type": "BlockStored", "block_hashes": list(hashes), "parent_block_hash": parent, "token_ids": tokens}
    return {**event, "block_size": 2, "lora_id": None, "medium": "GPU", **more}


# --- the rules are those of the contract ------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id.removeprefix("kvevents/"))
def test_a_stream_is_judged_as_its_case_says(case: Any) -> None:
    (step,) = case.steps
    rows = [json.dumps(batch) + "\n" for batch in step.request["batches"]]
    if not any(batch["events"] for batch in step.request["batches"]):
        rows.append(json.dumps([1.0, [stored(1)]]) + "\n")  # a stream without events is a failure of its own
    found = told("".join(rows).encode())
    if isinstance(step.expect, Rejects):
        assert found
        assert found[0].rule == step.expect.code
        assert set(found[0].requirements) & set(case.requirements)
    else:
        assert found == []


# --- forms -----------------------------------------------------------------------------------------------------------


def test_all_forms_of_a_stream_are_one() -> None:
    rows = read(VLLM)
    assert len(rows) > 30
    assert {row.topic for row in rows} == {"kv-events"}
    assert [row.seq for row in rows] == list(range(len(rows)))
    assert read(written(rows)) == rows
    flat = b"".join(packed([1.0, row.events, row.rank]) for row in rows)
    assert [row.events for row in read(flat)] == [row.events for row in rows]

    def plain(value: Any) -> Any:
        if isinstance(value, bytes):
            return value.hex()
        if isinstance(value, dict):
            return {name: plain(item) for name, item in value.items()}
        return [plain(item) for item in value] if isinstance(value, list) else value

    lines = [{"topic": row.topic, "seq": row.seq, "batch": [1.0, plain(row.events), row.rank]} for row in rows]
    text = "".join(json.dumps(line) + "\n" for line in lines).encode()
    for content in (VLLM, flat, text, b"\n  " + text):
        assert told(content) == []


def test_events_may_be_arrays_as_older_engines_send_them() -> None:
    events = [
        ["BlockStored", [7, 8], None, [1, 2, 3, 4], 2, None, "GPU", "chat"],
        ["BlockStored", [7], None, [1, 2], 2, None, "GPU", "other"],
    ]
    (found,) = told(packed([1.0, events]))
    assert (found.rule, found.at) == ("BLOCK_HASH_REUSED", "/events/1")
    assert told(packed([1.0, [*events[:1], ["BlockRemoved", [8, 7], "GPU"], ["AllBlocksCleared"]]])) == []


def test_hashes_are_integers_of_any_size_bytes_or_text() -> None:
    for one in (2**64 - 1, -(2**63), b"\x00\xff" * 16, "00ff"):
        assert told(packed([1.0, [stored(one), {"type": "BlockRemoved", "block_hashes": [one]}]])) == []
    assert told(packed([1.0, [stored(b"\x01"), stored(1)]])) == [], "bytes and number are two names"


def test_pairs_of_tokens_are_tokens() -> None:
    pairs = stored("a", token_ids=[[1, 2], [2, 3]])
    assert told(packed([1.0, [pairs, pairs]])) == []
    assert told(packed([1.0, [pairs, {**pairs, "token_ids": [[1, 2], [2, 4]]}]]))[0].rule == "BLOCK_HASH_REUSED"


def test_unknown_kinds_and_members_are_passed_over_and_told(kvassay: Command, tmp_path: Path) -> None:
    path = tmp_path / "events.msgpack"
    event = {**stored("a"), "remaining_copy_counts": [1], "session_id": "s"}
    path.write_bytes(packed([1.0, [{"type": "BlockTouched", "block_hashes": ["z"]}, ["Odd", 1], event]]))
    code, out, _ = kvassay("trace", "check", "--format", "kv-events", path)
    assert code == 0, out
    assert "1 BlockTouched" in out
    assert "1 Odd" in out


MALFORMED = {
    "a batch of another shape": ([1.0], "", "a batch is"),
    "a time in words": ([[], []], "/0", "a time"),
    "events that are none": ([1.0, 3], "/1", "events"),
    "a rank in words": ([1.0, [], "one"], "/2", "a rank"),
    "a frame of two": ([b"topic", b"\0" * 8], "", "a frame"),
    "a frame around nothing": ([b"topic", b"\0" * 8, b"\xc1"], "/2", "payload"),
    "the end marker of a replay": ([b"", (2**64 - 1).to_bytes(8, "big"), packed([1.0, []])], "/2", "a number"),
    "an event without a type": ([1.0, [{"block_hashes": []}]], "/events/0", "a type"),
    "an event of nothing": ([1.0, [[]]], "/events/0", "begins with its type"),
    "a number for an event": ([1.0, [stored("a"), 3]], "/events/1", "a type"),
    "no hashes": ([1.0, [{"type": "BlockRemoved"}]], "/events/0", "block_hashes"),
    "a hash that is none": ([1.0, [stored("a", None)]], "/events/0/block_hashes/1", "a hash"),
    "a parent that is none": ([1.0, [stored("a", parent=[1])]], "/events/0/parent_block_hash", "a hash"),
    "tokens in words": ([1.0, [stored("a", token_ids=["x", "y"])]], "/events/0/token_ids", "tokens"),
    "a size in words": ([1.0, [stored("a", block_size="2")]], "/events/0/block_size", "an integer"),
    "a medium that is a number": ([1.0, [stored("a", medium=1)]], "/events/0/medium", "a text"),
    "keys that are none": ([1.0, [stored("a", extra_keys="salt")]], "/events/0/extra_keys", "a list"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_what_is_no_batch_has_number_and_place(name: str, kvassay: Command, tmp_path: Path) -> None:
    value, pointer, reason = MALFORMED[name]
    path = tmp_path / "events.msgpack"
    path.write_bytes(packed([1.0, [stored("z")]]) + packed(value))
    code, out, err = kvassay("trace", "check", "--format", "kv-events", path)
    assert code == 2, out
    assert len(err.splitlines()) == 1
    assert f"events.msgpack:2: {pointer}" in err
    assert reason in err


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"\xc1", "0xc1"),
        (b"\xd4\x01\x00", "0xd4"),
        (b"\x91" * 40 + b"\xc0", "nested deeper"),
        (struct.pack(">BI", 0xDD, 2**31), "items"),
        (struct.pack(">BI", 0xC6, MAX_BYTES + 1), "MiB"),
        (b"\x82\xa1a\x01\xa1a\x02", "twice"),
        (b"\x81\x90\x01", "no names"),
        (b"\xa2\xff\xff", "UTF-8"),
    ],
)
def test_hostile_bytes_are_refused(raw: bytes, reason: str) -> None:
    with pytest.raises(Unreadable, match=reason):
        Reader(io.BytesIO(raw)).value()
    with pytest.raises(TraceError):
        told(packed([1.0, [stored("a")]]) + raw)


def test_the_reader_reads_every_short_form() -> None:
    raw = b"\x9f\x05\xff\xe0\xcc\xc8\xcd\x01\x00\xce\x00\x01\x00\x00\xd0\x80\xd1\xff\x00\xd2\xff\xff\x00\x00"
    raw += b"\xca\x3f\x80\x00\x00\xc3\xa2hi\xd9\x02yo\xc4\x01z\xdc\x00\x01\x07\x81\xa1k\xc0"
    value = Reader(io.BytesIO(raw)).value()
    assert value == [5, -1, -32, 200, 256, 65536, -128, -256, -65536, 1.0, True, "hi", "yo", b"z", [7]]
    reader = Reader(io.BytesIO(b"\x81\xa1k\xc0\xde\x00\x01\xa1q\x90"))
    assert [reader.value(), reader.value()] == [{"k": None}, {"q": []}]
    with pytest.raises(EOFError):
        reader.value()
    with pytest.raises(Cut):
        Reader(io.BytesIO(b"\x92\x01")).value()


# --- real streams, whole and spoiled ----------------------------------------------------------------------------------


def test_the_stream_of_vllm_shows_salts_adapters_evictions_and_a_reset() -> None:
    kinds = [event["type"] for row in read(VLLM) for event in row.events]
    assert {"BlockStored", "BlockRemoved", "AllBlocksCleared"} == set(kinds)
    text = VLLM.decode("latin-1")
    assert "salt-a" in text
    assert "chat" in text


def test_wherever_a_stream_is_cut_within_a_batch_it_is_a_failure() -> None:
    ends = set()
    stream = io.BytesIO(VLLM)
    reader = Reader(stream)
    for _ in read(VLLM):
        reader.value()
        ends.add(stream.tell())
    for at in range(1, len(VLLM), 61):
        assert [found.rule for found in told(VLLM[:at])] == ([] if at in ends else ["TRUNCATED"]), at
    assert [found.rule for found in told(b"")] == ["EMPTY"]


@pytest.mark.parametrize("at", range(1, 30, 4))
def test_a_batch_that_was_lost_or_came_twice_is_seen(at: int) -> None:
    rows = read(VLLM)
    assert told(written([*rows[:at], *rows[at + 1 :]]))[0].rule == "EVENT_BATCH_LOST"
    assert told(written([*rows[: at + 1], *rows[at:]]))[0].rule == "EVENT_BATCH_REPEATED"
    swapped = [*rows[:at], rows[at + 1], rows[at], *rows[at + 2 :]]
    assert told(written(swapped))[0].rule == "EVENT_BATCH_LOST"


def edited(change: Callable[[dict[str, Any]], bool]) -> Iterator[list[Batch]]:
    """The stream with one event left out, at each place that the change wants."""
    rows = read(VLLM)
    for index, row in enumerate(rows):
        for at, event in enumerate(row.events):
            if change(event):
                left = [*row.events[:at], *row.events[at + 1 :]]
                yield [*rows[:index], Batch(row.at, row.topic, row.rank, row.seq, left), *rows[index + 1 :]]


def test_a_storing_that_was_not_told_shows_when_the_block_is_used_or_goes() -> None:
    rules = [told(written(rows)) for rows in edited(lambda event: event["type"] == "BlockStored")]
    seen = [found[0].rule for found in rules if found]
    assert set(seen) == {"PARENT_NOT_RESIDENT", "BLOCK_NOT_STORED"}
    assert len(seen) > 15, "what the reset or the end took shows nothing"


def test_a_removal_before_its_time_shows_when_a_child_comes() -> None:
    rows = read(VLLM)
    first = next(event for row in rows for event in row.events if event["type"] == "BlockStored")
    gone = {"type": "BlockRemoved", "block_hashes": first["block_hashes"][:1], "medium": "GPU", "group_idx": 0}
    spoiled = [*rows[:1], Batch(0, "kv-events", 0, 1, [gone, *rows[1].events]), *rows[2:]]
    assert told(written(spoiled))[0].rule in ("PARENT_NOT_RESIDENT", "BLOCK_NOT_STORED")


def test_a_salt_that_is_missing_in_the_hash_shows() -> None:
    rows = read(VLLM)
    salted = next(
        event
        for row in rows
        for event in row.events
        if event["type"] == "BlockStored" and event["parent_block_hash"] is None and (event["extra_keys"] or [None])[0]
    )
    plain = {**salted, "extra_keys": [None] * len(salted["block_hashes"])}
    (found,) = told(packed([1.0, [salted, plain]]))
    assert found.rule == "BLOCK_HASH_REUSED"
    assert "keys" in found.sentence
    assert "EVT-008" in found.requirements


def test_a_finding_quotes_what_was_told_of_its_blocks(kvassay: Command, tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    gone = {"type": "BlockRemoved", "block_hashes": ["a"], "medium": "GPU"}
    rows = [[1.0, [stored("a"), stored("x", token_ids=[8, 9])]], [2.0, [gone]], [3.0, [stored("b", parent="a")]]]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    code, out, _ = kvassay("trace", "check", "--format", "kv-events", path)
    assert code == 1
    assert "line 3  BlockStored" in out
    assert "PARENT_NOT_RESIDENT  EVT-006" in out
    quoted = [line.split() for line in out.splitlines() if line.startswith("    line ")]
    assert [line[1:4] for line in quoted] == [["1", "/events/0", "BlockStored"], ["2", "/events/0", "BlockRemoved"]]


def test_a_stream_can_be_taken_up_in_the_middle(kvassay: Command, tmp_path: Path) -> None:
    path = tmp_path / "events.msgpack"
    path.write_bytes(written(read(VLLM)[12:]))
    assert kvassay("trace", "check", "--format", "kv-events", path)[0] == 1
    code, out, _ = kvassay("trace", "check", "--format", "kv-events", "--from-the-middle", path)
    assert code == 0, out
    path.write_bytes(written([*read(VLLM)[12:20], *read(VLLM)[21:]]))
    assert kvassay("trace", "check", "--format", "kv-events", "--from-the-middle", path)[0] == 1


def test_one_publisher_can_be_judged_alone() -> None:
    bad = packed([b"east", b"\0" * 8, packed([1.0, [{"type": "BlockRemoved", "block_hashes": [1]}], 0])])
    good = packed([b"west", b"\0" * 8, packed([1.0, [stored(1)], 3])])
    assert [found.process for found in told(bad + good)] == ["east rank 0"]
    assert told(bad + good, only="west rank 3") == []
    assert told(bad + good, only="east rank 0") != []


def test_memory_follows_what_is_stored() -> None:
    checker = KvChecker()
    for number in range(3000):
        gone = {"type": "BlockRemoved", "block_hashes": [number - 5], "medium": "GPU"}
        events = [stored(number, token_ids=[number, 0]), *([gone] if number >= 5 else [])]
        assert list(checker.batch(Batch(number + 1, "", 0, number, events))) == []
    index = checker.publishers["rank 0"].index
    assert checker.held == {"blocks": 5, "copies": 5}
    assert len(index.contents) == 5
    assert sum(map(len, index.copies.values())) == 5
