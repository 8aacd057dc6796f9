"""Traces: the examples and what each must show, limits on what is read, memory, processes, and what a run records."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kvassay import cli
from kvassay.adapters.local import InProcess
from kvassay.core.engine import Refused, Returned
from kvassay.corpus import load
from kvassay.corpus.data import fixture_module, root
from kvassay.engines.reference import Reference
from kvassay.faults.seeded import faults
from kvassay.faults.selftest import small
from kvassay.monitors import identity as identity_rules
from kvassay.monitors import residency
from kvassay.monitors.identity import IdentityMonitor
from kvassay.traces import form
from kvassay.traces.check import Checker, Offence
from kvassay.traces.errors import TraceError
from kvassay.traces.lines import MAX_LINE_BYTES, lines
from kvassay.traces.past import Past
from kvassay.traces.record import Recording, Writer, recording
from kvassay.traces.selftest import recorded, run_selftest

from bench.trace import events as long_story

ROOT = Path(__file__).resolve().parents[1]
TRACES = root() / "fixtures" / "traces"
INDEX: dict[str, Any] = json.loads((TRACES / "index.json").read_text(encoding="utf-8"))
HEADER = {"trace": "kvassay-trace-v1", "engine": {"name": "x", "version": "1"}}
OPEN = {
    "event": "residency.open",
    "request": {"slots": 2, "slot_bytes": 4},
    "result": {"slots": 2, "slot_bytes": 4},
}
MISS = {"event": "residency.get", "request": {"key": "a"}, "result": {"outcome": "miss"}}
DIGEST = {"dtype": "uint8", "shape": [4], "sha256": "5" * 64}

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def kvassay(capsys: pytest.CaptureFixture[str]) -> Command:
    def command(*arguments: str | Path) -> tuple[int, str, str]:
        code = cli.status([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return command


def text(*values: Any) -> bytes:
    """Lines of JSON; bytes stand as they are."""
    return b"".join(value if isinstance(value, bytes) else json.dumps(value).encode() + b"\n" for value in values)


def check(*values: Any, **options: Any) -> tuple[Checker, list[Offence]]:
    checker = Checker(**options)
    return checker, list(checker.offences(lines(io.BytesIO(text(*values)))))


def whole(*events: Any) -> tuple[Any, ...]:
    """Events with a header and an end."""
    return (HEADER, *events, {"event": "trace.end", "events": len(events)})


# --- the examples ----------------------------------------------------------------------------------------------------


def test_the_examples_are_what_their_script_writes() -> None:
    files = fixture_module("traces.make").files()
    found = {path.name: path.read_text(encoding="utf-8") for path in TRACES.glob("*.json*")}
    assert found == files
    assert len(INDEX) >= 18


@pytest.mark.parametrize("name", sorted(INDEX))
def test_an_example_shows_what_its_story_says(name: str, kvassay: Command, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    code, out, err = kvassay("trace", "check", TRACES / f"{name}.jsonl", "--json-report", report)
    offence = INDEX[name]["offence"]
    assert code == (offence["exit"] if offence else 0), out + err
    if offence is None:
        assert "no offence" in out
    elif offence["exit"] == 2:
        assert f"{name}.jsonl:{offence['line']}: " in err
        assert "Traceback" not in err
    else:
        (told,) = json.loads(report.read_text())["offences"]
        assert (told["rule"], told["line"]) == (offence["rule"], offence["line"])
        assert told["sentence"]
        assert offence["rule"] in out


def test_a_finding_names_the_requirement_and_what_led_to_it(kvassay: Command) -> None:
    _, out, _ = kvassay("trace", "check", TRACES / "stale-completion.jsonl")
    assert "line 10  residency.lookup" in out
    assert "PUBLISHED_UNVALIDATED  RES-013" in out
    quoted = [line.split()[1:3] for line in out.splitlines() if line.startswith("    line ")]
    assert quoted == [
        ["6", "residency.reserve"],
        ["7", "residency.copy"],
        ["8", "residency.cancel"],
        ["9", "residency.complete"],
    ]
    _, out, _ = kvassay("trace", "check", TRACES / "other-salt.jsonl")
    assert "IDN-035" in out
    assert '"cache_salt":"salt-a"' in out
    _, out, _ = kvassay("trace", "check", TRACES / "applied-twice.jsonl")
    assert "LIF-" in out
    assert "expected noop, not reserved" in out


def led_to(fault_name: str, case_id: str) -> tuple[Offence, list[tuple[str, str]]]:
    """The first offence of a runtime in its trace alone, and the events that led to it with their requests."""
    fault = next(fault for fault in faults("runtime") if fault.__name__ == fault_name)
    told = [
        json.loads(line) for line in recorded(fault, [one for one in load().cases if one.id == case_id]).splitlines()
    ]
    rows = [{name: item for name, item in row.items() if name != "case"} for row in told]
    offence = next(one for one in check(*rows)[1] if one.rule != "TRUNCATED")
    events = [rows[line - 1] for line, _ in offence.led_to_it]
    assert all(brief.startswith(row["event"]) for row, (_, brief) in zip(events, offence.led_to_it, strict=True))
    return offence, [
        (row["event"].partition(".")[2], str(row["request"].get("request", row["request"].get("read", ""))))
        for row in events
    ]


@pytest.mark.parametrize(
    ("fault", "case", "rule", "led"),
    [
        (
            "LateEndsTheNew",
            "reset-in-flight",
            "STALE_APPLIED",
            [
                ("open", ""),
                ("reserve", "r1"),
                ("submit", "r1"),
                ("reset", ""),
                ("reserve", "r2"),
                ("submit", "r2"),
            ],
        ),
        (
            "LateStoreIsThere",
            "late-store",
            "ROWS_NOT_THERE",
            [("open", ""), ("reserve", "s1"), ("submit", "s1"), ("reset", ""), ("complete", "read-1")],
        ),
        (
            "SeatOfTheCancelledTwice",
            "cancelled-twice-before-its-start-seats",
            "OVERCOMMITTED",
            [
                ("open", ""),
                ("commit", ""),
                ("reserve", "r1"),
                ("cancel", "r1"),
                ("cancel", "r1"),
                ("reserve", "r2"),
                ("reserve", "r3"),
            ],
        ),
    ],
)
def test_a_finding_of_a_runtime_names_what_led_to_it(
    fault: str, case: str, rule: str, led: list[tuple[str, str]]
) -> None:
    offence, events = led_to(fault, f"runtime/engines/{case}")
    assert (offence.rule, events) == (rule, led)
    granted = [brief for _, brief in offence.led_to_it if brief.startswith("runtime.reserve")]
    assert granted
    assert all("-> outcome=granted" in brief for brief in granted)


def test_every_rule_names_requirements_of_its_contract() -> None:
    known = load().requirements
    for module, contract in ((residency, "residency"), (identity_rules, "identity")):
        assert set(module.REQUIREMENTS) == set(module.Rule)
        for names in module.REQUIREMENTS.values():
            assert names
            assert {known[name].contract for name in names} == {contract}


# --- what is read ----------------------------------------------------------------------------------------------------

DEEP = b'{"event":"residency.get","request":{"key":"a"},"result":' + b'{"x":' * 80 + b"1" + b"}" * 80 + b"}\n"
MALFORMED = {
    "no JSON": (b"{]\n", "", "not JSON"),
    "two values": (b'{"event":"x.y"} {}\n', "", "not JSON"),
    "not an object": (b"[1]\n", "", "not a JSON object"),
    "NaN": (b'{"event":"x.y","n":NaN}\n', "", "NaN is not JSON"),
    "half of a surrogate pair": (b'{"event":"\\ud800"}\n', "", "half of a surrogate pair"),
    "not UTF-8": (b'{"event":"\xff"}\n', "", "not UTF-8"),
    "too deep": (DEEP, "/result/x", "nested deeper than"),
    "far too deep": (b"[" * 200_000 + b"\n", "", "nested too deeply"),
    "a huge number": (b'{"event":"x.y","seq":' + b"9" * 5000 + b"}\n", "", "an integer of more than"),
    "too long": (b'{"event":"' + b"x" * MAX_LINE_BYTES + b'"}\n', "", "longer than"),
    "no event": ({"request": {}}, "", "trace"),
    "an event of another type": ({"event": 3}, "/event", "string"),
    "a frame of its own": ({"event": "trace.begin"}, "/event", "trace"),
    "a missing key": ({"event": "residency.get", "request": {}, "result": {"outcome": "miss"}}, "/request", "key"),
    "two outcomes": ({**MISS, "rejected": {"reason": None}}, "", "oneOf"),
    "no outcome": ({"event": "residency.get", "request": {"key": "a"}}, "", "oneOf"),
    "rows instead of a digest": (
        {
            "event": "residency.put",
            "request": {"key": "a", "data": {"dtype": "uint8", "shape": [1], "data": [1]}},
            "result": {"outcome": "stored"},
        },
        "/request/data",
        "",
    ),
    "a member that nobody knows": ({**MISS, "extra": 1}, "", "extra"),
    "a sequence number that is none": ({**MISS, "seq": "one"}, "/seq", "integer"),
    "a process without a name": ({**MISS, "process": ""}, "/process", "shorter"),
    "two keys with the rows of one": (
        {
            "event": "residency.reserve",
            "request": {"mode": "store", "keys": ["a", "b"], "owner": "o", "data": [DIGEST]},
            "result": {"txn": "t", "grants": [{"outcome": "granted"}, {"outcome": "granted"}]},
        },
        "",
        "do not belong together",
    ),
    "a store without rows": (
        {
            "event": "residency.reserve",
            "request": {"mode": "store", "keys": ["a"], "owner": "o"},
            "result": {"txn": "t", "grants": [{"outcome": "granted"}]},
        },
        "",
        "do not belong together",
    ),
    "a time beyond numbers": (b'{"event":"x.y","time_ms":1e999}\n', "", ""),
    "a number beyond numbers": (b'{"event":"x.y","seq":1e999}\n', "", ""),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_line_has_number_and_place(name: str, kvassay: Command, tmp_path: Path) -> None:
    line, pointer, reason = MALFORMED[name]
    path = tmp_path / "bad.jsonl"
    path.write_bytes(text(HEADER, OPEN, line, MISS))
    code, out, err = kvassay("trace", "check", path)
    assert code == 2, out
    assert len(err.splitlines()) == 1
    assert f"bad.jsonl:3: {pointer}" in err
    assert reason in err


def test_the_first_line_is_a_header(kvassay: Command, tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_bytes(text(OPEN))
    code, _, err = kvassay("trace", "check", path)
    assert code == 2
    assert "bad.jsonl:1: no header" in err
    with pytest.raises(TraceError, match="/engine"):
        check({**HEADER, "engine": {"name": "x"}})
    with pytest.raises(TraceError, match="after the end"):
        check(*whole(OPEN), MISS)


def test_a_missing_file_and_a_folder_are_one_line(kvassay: Command, tmp_path: Path) -> None:
    for path in (tmp_path / "none.jsonl", tmp_path):
        code, _, err = kvassay("trace", "check", path)
        assert code == 2
        assert len(err.splitlines()) == 1


@pytest.mark.parametrize("content", [b"", b"\n\n  \n"])
def test_an_empty_trace_is_a_failure(content: bytes, kvassay: Command, tmp_path: Path) -> None:
    path = tmp_path / "empty.jsonl"
    path.write_bytes(content)
    code, out, _ = kvassay("trace", "check", path)
    assert code == 1
    assert "EMPTY" in out


def test_wherever_a_trace_is_cut_it_is_a_failure() -> None:
    good = (TRACES / "good.jsonl").read_bytes()
    for at in range(0, len(good) - 1, 97):
        checker = Checker()
        found = list(checker.offences(lines(io.BytesIO(good[:at]))))
        assert [offence.rule for offence in found] in (["TRUNCATED"], ["EMPTY"]), at
    assert check(good)[1] == []
    assert check(good.rstrip(b"\n"))[1] == []


def test_blank_lines_and_spaces_are_nothing() -> None:
    assert check(b"\n", HEADER, b"  \n", b"  " + text(OPEN), b'{"event":"trace.end","events":1}  \r\n')[1] == []


def test_unknown_events_are_counted_and_their_names_bounded() -> None:
    strange = [{"event": f"mine.{number}", "anything": [number]} for number in range(300)]
    checker, found = check(*whole(OPEN, *strange, *strange[:3]))
    assert found == []
    assert sum(checker.counts.unknown.values()) == 303
    assert len(checker.counts.unknown) == 101
    assert checker.counts.unknown["mine.1"] == 2


def test_a_result_that_breaks_its_schema_is_an_offence_of_the_engine() -> None:
    _, (offence,) = check(*whole(OPEN, {**MISS, "result": {"outcome": "maybe"}}))
    assert (offence.rule, offence.at, offence.line) == ("RESULT_SCHEMA", "/result/outcome", 3)


def test_an_answer_that_is_none_contradicts_nothing() -> None:
    crash = {"event": "residency.get", "request": {"key": "a"}, "error": {"kind": "crash", "detail": "gone"}}
    unable = {"event": "residency.get", "request": {"key": "a"}, "unsupported": "too long"}
    assert check(*whole(OPEN, crash, unable))[1] == []


# --- numbers, ends, processes ----------------------------------------------------------------------------------------


def test_gaps_and_repeats_of_numbers_are_told() -> None:
    for seqs, word in (((5, 6, 8), "lost"), ((5, 6, 6), "twice"), ((5, 4), "out of order")):
        _, found = check(*whole(OPEN, *({**MISS, "seq": seq} for seq in seqs)))
        assert [offence.rule for offence in found] == ["SEQUENCE"], seqs
        assert word in found[0].sentence
    assert check(*whole(OPEN, *({**MISS, "seq": seq} for seq in (5, 6, 7))))[1] == []


def test_each_process_has_its_own_header_numbers_and_end() -> None:
    first, second = {"process": "a"}, {"process": "b"}
    rows = [
        {**HEADER, **first, "capabilities": {"residency.async": True}},
        {**HEADER, **second},
        {**OPEN, **first, "seq": 0},
        {**OPEN, **second, "seq": 0},
    ]
    pending = {"event": "residency.lookup", "request": {"keys": ["k"]}, "result": {"states": ["pending"]}}
    ends = [{"event": "trace.end", "events": 2, **who} for who in (first, second)]
    told = [{**pending, **first, "seq": 1}, {**pending, **second, "seq": 1}]
    _, (offence,) = check(*rows, *told, *ends)
    assert (offence.rule, offence.process) == ("NEVER_READY", "b"), "an asynchronous engine may say so, the other not"
    _, (cut,) = check(*rows, *told[:1], {**MISS, **second}, ends[0])
    assert cut.rule == "TRUNCATED"
    assert "b" in cut.sentence
    assert check(*rows, *told, *ends, only="a")[1] == []
    _, (none,) = check(*rows, *told, *ends, only="c")
    assert none.rule == "EMPTY"
    assert "a, b" in none.sentence


def test_one_process_of_a_trace_can_be_judged_alone(kvassay: Command) -> None:
    path = TRACES / "one-of-two-processes.jsonl"
    assert kvassay("trace", "check", path, "--process", "rank-0")[0] == 0
    assert kvassay("trace", "check", path, "--process", "rank-1")[0] == 1


def test_interleaving_changes_no_verdict() -> None:
    def told(process: str, *, wrong: bool) -> list[dict[str, Any]]:
        rows = (TRACES / ("old-generation.jsonl" if wrong else "two-engines.jsonl")).read_text().splitlines()
        events = [json.loads(row) for row in rows][1:-1]
        return [{**event, "process": process} for event in events]

    right, wrong = told("a", wrong=False), told("b", wrong=True)
    mixed = (
        [row for pair in zip(right, wrong, strict=False) for row in pair] + right[len(wrong) :] + wrong[len(right) :]
    )
    header = json.loads((TRACES / "old-generation.jsonl").read_text().splitlines()[0])
    _, (offence,) = check(header, *mixed, {"event": "trace.end", "events": len(mixed)})
    assert (offence.rule, offence.process) == ("WRONG_BYTES", "b")


def test_a_store_that_is_opened_anew_has_forgotten_everything() -> None:
    """A service that is opened twice without a line that says so serves nothing of before."""
    key = {"event": "residency.put", "request": {"key": "a", "data": DIGEST}, "result": {"outcome": "stored"}}
    hit = {"event": "residency.get", "request": {"key": "a"}, "result": {"outcome": "hit", "data": DIGEST}}
    assert check(*whole(OPEN, key, hit))[1] == []
    _, (offence,) = check(*whole(OPEN, key, OPEN, hit))
    assert offence.rule == "PUBLISHED_UNVALIDATED"


def test_a_header_again_without_events_between_is_no_crash() -> None:
    own = {**HEADER, "process": "a"}
    assert [offence.rule for offence in check(own, own, {**OPEN, "process": "a"})[1]] == ["TRUNCATED", "TRUNCATED"]


def test_two_traces_in_one_file_are_judged_in_turn() -> None:
    good = (TRACES / "good.jsonl").read_bytes()
    bad = (TRACES / "stale-completion.jsonl").read_bytes()
    _, found = check(good, bad)
    assert [offence.rule for offence in found][:1] == ["PUBLISHED_UNVALIDATED"]
    cut = b"".join(good.splitlines(keepends=True)[:-1])
    assert [offence.rule for offence in check(cut, good)[1]] == ["TRUNCATED"]


def test_going_on_finds_more_and_stops_in_time(kvassay: Command, tmp_path: Path) -> None:
    hits = [{**MISS, "result": {"outcome": "hit"}} for _ in range(30)]
    path = tmp_path / "many.jsonl"
    path.write_bytes(text(*whole(OPEN, *hits)))
    assert kvassay("trace", "check", path)[1].count("PUBLISHED_UNVALIDATED") == 1
    assert kvassay("trace", "check", path, "--keep-going")[1].count("PUBLISHED_UNVALIDATED") == 20
    assert kvassay("trace", "check", path, "--keep-going", "--max-findings", "7")[1].count("PUBLISHED") == 7


# --- pipes and memory ------------------------------------------------------------------------------------------------


def test_a_pipe_that_never_ends_is_told_of_at_once() -> None:
    path = os.pathsep.join(str(ROOT / part) for part in ("conformance", "reference", "kernels"))
    process = subprocess.Popen(
        [sys.executable, "-m", "kvassay", "trace", "check", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert process.stdin is not None
    guard = threading.Timer(60, process.kill)
    guard.start()
    try:
        process.stdin.write(text(HEADER, OPEN, MISS, {**MISS, "result": {"outcome": "hit"}}))
        process.stdin.flush()
        assert process.wait() == 1, "it ends while the pipe is open"
        assert process.stdout is not None
        assert b"line 4" in process.stdout.read()
    finally:
        guard.cancel()
        process.stdin.close()


def test_memory_follows_what_is_live_and_not_the_length(monkeypatch: pytest.MonkeyPatch) -> None:
    def peak(count: int) -> int:
        def numbered() -> Iterator[tuple[int, bytes]]:
            yield 1, text(HEADER)
            for number, event in enumerate(long_story(count), 2):
                yield number, text(event)
            yield count + 2, text({"event": "trace.end", "events": count})

        checker = Checker()
        checker.past = Past(1 << 18)
        tracemalloc.start()
        try:
            assert list(checker.offences(numbered())) == []
            assert checker.held["keys"] <= 512
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    monkeypatch.setattr(residency, "FORMER_KEYS", 256)
    peak(1_000)
    short, long = peak(8_000), peak(16_000)
    assert long < 1.1 * short


def test_the_past_is_bounded_in_bytes() -> None:
    past = Past(1000)
    for number in range(100):
        past.add(number, b"x" * 90)
    assert len(past.kept) == 11
    assert past.kept[-1][0] == 99


# --- the form of events ----------------------------------------------------------------------------------------------


def test_every_op_has_a_compiled_form() -> None:
    for name in form.known_events():
        kind = form.kind(name)
        assert kind.problem({"event": name}) is not None
        assert kind.problem({"event": name, "request": {}, "unsupported": "no"}) is None or kind.contract


def test_a_lease_matters_only_where_it_is_declared() -> None:
    rows = (TRACES / "lease-broken.jsonl").read_bytes().splitlines(keepends=True)
    header = json.loads(rows[0])
    assert check(*rows)[1] != []
    assert check({**header, "capabilities": {}}, *rows[1:])[1] == []


# --- identity --------------------------------------------------------------------------------------------------------


def identity(**capabilities: str) -> IdentityMonitor:
    description = InProcess(Reference).description
    own = {f"identity.field.{name}": value for name, value in capabilities.items()}
    return IdentityMonitor(type(description)(**{**vars(description), "capabilities": own}))


def rows(seed: int, count: int = 4) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).integers(0, 256, (count, 8), dtype=np.uint8)


def put(monitor: IdentityMonitor, data: Any, **record: Any) -> None:
    request = {"record": {"tokens": [1, 2, 3, 4], **record}, "data": data}
    assert monitor.observe("identity.put", request, Returned({"outcome": "stored", "rows": 4})).holds


def hit(monitor: IdentityMonitor, data: Any, **record: Any) -> str:
    request = {"record": {"tokens": [1, 2, 3, 4], **record}}
    result = {"outcome": "hit", "rows": len(data), "data": data}
    outcome = monitor.observe("identity.get", request, Returned(result))
    return outcome.finding.message.partition(":")[0] if outcome.finding else ""


def test_rows_are_served_under_their_own_identity_alone() -> None:
    monitor, data = identity(), rows(1)
    assert hit(monitor, data) == "FOREIGN_ROWS"
    put(monitor, data, cache_salt="a", multimodal=[{"sha256": "f" * 64, "position": 1, "length": 2}])
    same = {"cache_salt": "a", "multimodal": [{"sha256": "f" * 64, "position": 1, "length": 2}]}
    assert hit(monitor, data, **same) == ""
    assert hit(monitor, data, **{**same, "cache_salt": ""}) == "FOREIGN_ROWS"
    assert hit(monitor, data, multimodal=same["multimodal"]) == "FOREIGN_ROWS"
    assert hit(monitor, data[:1], cache_salt="a") == "", "the image begins at the second token"
    assert hit(monitor, data[:2], cache_salt="a") == "BEYOND_PREFIX"
    assert hit(monitor, data[:3], **same, tokens=[1, 2, 9, 4]) == "BEYOND_PREFIX"
    assert hit(monitor, data[:2], **same, tokens=[1, 2, 9, 4]) == ""
    assert hit(monitor, data, **same, tokens=[1, 2]) == "BEYOND_PREFIX"
    assert hit(monitor, data[::-1], **same) == "WRONG_ROWS"


def test_a_fence_leaves_nothing_to_serve_and_other_fields_nothing_to_fence() -> None:
    monitor, data = identity(checkpoint_generation="fenced", model="constant"), rows(1)
    put(monitor, data, checkpoint_generation="7", model="m")
    assert hit(monitor, data, checkpoint_generation="7", model="m") == ""
    monitor.observe("identity.change", {"field": "cache_salt", "value": "b"}, Returned({}))
    assert hit(monitor, data, checkpoint_generation="7", model="m") == ""
    monitor.observe("identity.change", {"field": "checkpoint_generation", "value": "8"}, Refused("BUSY"))
    assert hit(monitor, data, checkpoint_generation="7", model="m") == ""
    monitor.observe("identity.change", {"field": "checkpoint_generation", "value": "8"}, Returned({}))
    assert hit(monitor, data, checkpoint_generation="7", model="m") == "FOREIGN_ROWS"


def test_rows_without_row_digests_are_compared_where_they_can_be() -> None:
    monitor = identity()
    told = [{"dtype": "uint8", "shape": [4, 8], "sha256": character * 64} for character in "ab"]
    put(monitor, told[0])
    request = {"record": {"tokens": [1, 2, 3, 4]}}
    for data, count, holds in ((told[0], 4, True), (told[1], 4, False), (told[1], 2, True)):
        result = {"outcome": "hit", "rows": count, "data": data}
        assert monitor.observe("identity.get", request, Returned(result)).holds is holds


# --- recording -------------------------------------------------------------------------------------------------------


def test_a_run_is_recorded_and_its_trace_is_clean(kvassay: Command, tmp_path: Path) -> None:
    path = tmp_path / "deep" / "run.jsonl"
    code, _, err = kvassay("run", "--adapter", "reference", "--contract", "lifecycle", "--trace", path, "-k", "crash")
    assert code == 0, err
    told = [json.loads(line) for line in path.read_text().splitlines()]
    assert told[0]["engine"]["name"]
    assert any(row.get("case", "").startswith("lifecycle/") for row in told)
    assert told[-1]["event"] == "trace.end"
    code, out, _ = kvassay("trace", "check", path)
    assert code == 0, out


def test_a_fuzzed_engine_is_recorded_too(kvassay: Command, tmp_path: Path) -> None:
    path = tmp_path / "fuzz.jsonl"
    arguments = ("--contract", "residency", "--adapter", "reference", "--in-process", "--examples", "2", "--steps", "8")
    assert kvassay("fuzz", *arguments, "--trace", path)[0] == 0
    code, out, _ = kvassay("trace", "check", path)
    assert code == 0, out
    assert "residency." in out


def test_a_trace_that_cannot_be_written_is_one_line(kvassay: Command, tmp_path: Path) -> None:
    code, _, err = kvassay("run", "--adapter", "reference", "--contract", "lifecycle", "--trace", tmp_path)
    assert code == 2
    assert len([line for line in err.splitlines() if line.startswith("kvassay: ")]) == 1


def test_a_trace_replaces_no_file(kvassay: Command, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    arguments = ("run", "--adapter", "reference", "--contract", "lifecycle", "-k", "crash", "--trace", path)
    path.write_text("precious", encoding="utf-8")
    code, _, err = kvassay(*arguments)
    assert code == 2
    assert "run.jsonl: it is there already, and a trace replaces no file" in err
    assert path.read_text(encoding="utf-8") == "precious"
    path.write_text("", encoding="utf-8")
    assert kvassay(*arguments)[0] == 0
    assert path.read_text(encoding="utf-8").startswith('{"trace":')


def test_a_recording_is_the_engine_and_keeps_no_rows(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    engine = recording(InProcess(Reference), path, process="p")
    assert engine.description == engine.engine.description
    data = np.arange(64, dtype=np.uint8)
    assert engine.open() is None
    for op, request in (
        ("residency.open", {"slots": 2, "slot_bytes": 64}),
        ("residency.put", {"key": "a", "data": data}),
        ("residency.get", {"key": "a"}),
        ("residency.complete", {"txn": "none"}),
        ("residency.nothing", {}),
    ):
        engine.call(op, request, 1.0)
    assert engine.late() == ()
    engine.close()
    written = path.read_text()
    told = [json.loads(line) for line in written.splitlines()]
    assert [row.get("seq") for row in told[1:-1]] == list(range(6))
    assert {row["process"] for row in told} == {"p"}
    assert told[4]["result"]["data"] == told[3]["request"]["data"]
    assert set(told[3]["request"]["data"]) == {"dtype", "shape", "sha256"}
    assert "rejected" in told[5]
    assert "unsupported" in told[6]
    assert check(written.encode())[1] == []


def test_a_writer_that_was_closed_writes_nothing_more() -> None:
    stream = io.StringIO()
    engine = Recording(InProcess(Reference), Writer(stream))
    engine.open()
    engine.close()
    before = stream.getvalue()
    engine.close()
    engine.open()
    assert stream.getvalue() == before


def test_floats_beyond_numbers_are_words() -> None:
    stream = io.StringIO()
    Writer(stream).exchange("offload.run", {"x": float("nan")}, Returned({"y": [float("inf"), -float("inf")]}))
    assert json.loads(stream.getvalue())["request"] == {"x": "NaN"}


# --- faults ----------------------------------------------------------------------------------------------------------


def test_every_fault_of_movement_shows_in_its_trace_alone() -> None:
    rows = list(run_selftest(jobs=2))
    assert [f"{row.contract}/{row.name}" for row in rows if not row.ok] == []
    assert {row.contract for row in rows} == {"offload", "residency", "lifecycle"}
    seeded = [row for row in rows if row.requirement]
    assert len(seeded) > 450
    assert sum(row.by_rule for row in seeded) > 0.7 * len(seeded)


def forgotten() -> list[dict[str, Any]]:
    """The trace of a case whose fault is legal for some engine: a key is cut, and a put replaces another's rows."""
    fault = next(fault for fault in faults("residency") if fault.__name__ == "KeyCutShort")
    cases = [case for case in load().cases if case.id in fault.killed_by]
    return [json.loads(line) for line in recorded(fault, cases).splitlines()]


def test_a_recorded_case_is_judged_again_by_what_it_expects() -> None:
    told = forgotten()
    _, (offence, *_) = check(*told)
    assert offence.rule == "CASE_FAILS"
    assert offence.requirements == ("RES-002",)
    assert told[offence.line - 1]["event"] == offence.event
    assert check(*({name: item for name, item in row.items() if name != "case"} for row in told))[1] == []
    renamed = [{**row, "case": "residency/no/such-case"} if "case" in row else row for row in told]
    assert check(*renamed)[1] == []


def test_a_case_that_should_hold_is_an_offence_when_asked_for() -> None:
    fault = next(fault for fault in faults("residency") if fault.__name__ == "AllIsDead")
    cases = [case for case in load().cases if case.id in fault.killed_by]
    told = recorded(fault, cases)
    assert check(told)[1] == []
    assert {offence.rule for offence in check(told, strict=True)[1]} == {"CASE_FAILS"}


@pytest.mark.parametrize("contract", ["attention", "identity", "kvevents"])
def test_traces_of_the_reference_are_clean_whatever_they_hold(contract: str) -> None:
    cases = [case for case in load().cases if case.contract == contract and small(case)][::7]
    checker, found = check(recorded(Reference, cases), strict=True)
    assert found == []
    assert checker.counts.events > 10


def test_a_fault_recorded_without_its_cases_shows_nothing() -> None:
    assert b'"trace.end","events":0' in recorded(Reference, ())
