"""What an adapter does wrong costs one verdict and never the run."""

import json
import shlex
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from kvassay.adapters.client import Subprocess
from kvassay.adapters.errors import AdapterError
from kvassay.adapters.names import connect
from kvassay.adapters.smoke import smoke
from kvassay.core.expect import parse
from kvassay.core.model import Case, Kind, Level, Status, Step
from kvassay.corpus import Capability, Corpus, Profile
from kvassay.runner import Session, run

PROGRAMS = Path(__file__).with_name("miniature_programs.py")
ROW = np.ones((1, 1), dtype=np.float32)
ROWS = np.ones((1, 1, 1), dtype=np.float32)
BIG = np.ones((1 << 18, 1, 1), dtype=np.float32)
EXACT = {"close": [{"at": "/out", "value": ROW.astype(np.float64), "bound": {"float32": {"rtol": 0, "atol": 0}}}]}


def step(scale: int, rows: np.ndarray = ROWS, deadline_s: float = 5.0) -> Step:
    request = {
        "q": ROW,
        "k": rows,
        "v": rows,
        "scale": scale,
        "kv_head_of": [0],
        "k_first_position": 0,
        "q_position": 0,
        "mask": {"causal": False},
    }
    return Step("attention.dense", request, parse(EXACT), deadline_s=deadline_s)


def case(name: str, *steps: Step) -> Case:
    words = {"title": "title", "given": "given", "why": "why"}
    return Case(
        f"attention/{name}",
        "attention",
        ("ATT-001",),
        Level.MUST,
        "dense",
        Kind.EXAMPLE,
        Status.STABLE,
        steps=steps,
        **words,
    )


def corpus(*cases: Case) -> Corpus:
    profile = Profile("dense", "attention", "", frozenset({"attention.dense"}))
    paged = Capability("attention.paged", "", (False, True), False)
    return Corpus("2026.1", "0", "", {}, {}, {"dense": profile}, {"attention.paged": paged}, cases, {})


def program(name: str, *arguments: str, **options) -> Subprocess:
    command = [sys.executable, str(PROGRAMS), name, *arguments]
    return Subprocess(command, label=name, hello_s=20, grace_s=0.2, **options)


def verdicts(engine, *cases: Case):
    """The verdicts of the cases, and what is said of the second one."""
    try:
        report = run(Session(engine, corpus(*cases)), cases)
    finally:
        engine.close()
    finding = report.results[1].finding
    return [str(result.verdict) for result in report.results], "" if finding is None else finding.message


def three(deadline_s: float = 5.0, rows: np.ndarray = ROWS) -> tuple[Case, ...]:
    return case("a/first", step(1)), case("a/bad", step(13, rows, deadline_s)), case("a/last", step(1))


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("garbage", "malformed", "not a JSON line"),
        ("bare_list", "malformed", "array where an object belongs"),
        ("nested", "malformed", "nested too deeply"),
        ("deep_result", "malformed", "nested deeper than 64"),
        ("not_utf8", "malformed", "not UTF-8"),
        ("half_surrogate", "malformed", "surrogate"),
        ("nan_literal", "malformed", "NaN is not JSON"),
        ("huge_integer", "malformed", "not a JSON line"),
        ("huge_float", "malformed", "beyond float64"),
        ("twins", "malformed", "one member twice"),
        ("no_kind", "malformed", "none of hello, opened, result"),
        ("two_kinds", "malformed", "rejected"),
        ("extra_member", "malformed", "seconds"),
        ("recipe_back", "malformed", "only requests carry recipes"),
        ("short_data", "malformed", "do not have the shape"),
        ("bad_base64", "malformed", "/out"),
        ("unknown_dtype", "malformed", "float8"),
        ("huge_shape", "malformed", "0 bytes for"),
        ("odd_bool", "malformed", "neither 0 nor 1"),
        ("negative_frame", "malformed", "length -5"),
        ("endless_frames", "malformed", "64 MiB"),
        ("long_frame", "malformed", "no message asked for"),
        ("missing_frame", "malformed", "frame 3 of 0"),
        ("idle_frame", "malformed", "0 belong to tensors"),
        ("wrong_id", "wrong-id", "never sent"),
        ("textual_id", "malformed", "/id"),
        ("opened_instead", "malformed", "opened"),
        ("twice", "answered-twice", "second answer"),
        ("twice_late", "answered-twice", "second answer"),
        ("twice_on_call", "answered-twice", "second answer"),
        ("flood", "flood", "16 MiB"),
        ("exits", "crash", "exit status 9\nout of memory"),
        ("closes_stdout", "crash", "its stdout closed"),
    ],
)
def test_a_program_that_breaks_the_protocol_costs_one_verdict(name, kind, words):
    seen, message = verdicts(program(name), *three())
    assert seen == ["pass", "error", "pass"]
    assert kind in message
    assert words in message


@pytest.mark.parametrize(("name", "words"), [("silent", "no reply in time"), ("short_frame", "no whole reply in time")])
def test_a_program_that_goes_silent_is_killed_at_the_deadline(name, words):
    started = time.monotonic()
    seen, message = verdicts(program(name), *three(deadline_s=0.3))
    assert seen == ["pass", "error", "pass"]
    assert "timeout" in message
    assert words in message
    assert time.monotonic() - started < 10


def test_a_program_that_stops_reading_cannot_block_the_run():
    deaf = case("a/bad", step(13), step(1, BIG, 0.5))
    seen, message = verdicts(program("deaf"), case("a/first", step(1)), deaf, case("a/last", step(1)))
    assert seen == ["pass", "error", "pass"]
    assert "were not read" in message


@pytest.mark.parametrize("name", ["good", "good_frame"])
def test_an_obedient_program_is_blamed_for_nothing(name):
    assert verdicts(program(name), *three())[0] == ["pass", "pass", "pass"]


@pytest.mark.parametrize("name", ["twice_late", "twice"])
def test_a_second_answer_spoils_the_last_case_of_a_run_too(name):
    cases = three()[:2]
    assert verdicts(program(name), *cases)[0] == ["pass", "error"]


def test_a_second_answer_spoils_the_case_that_ran_and_not_one_that_did_not():
    first, bad, last = three()
    idle = replace(case("a/idle", step(1)), profile="merge")
    engine = program("twice_late")
    report = run(Session(engine, corpus(first)), [first, bad, idle, idle, last])
    engine.close()
    seen = [str(result.verdict) for result in report.results]
    assert seen == ["pass", "error", "not-applicable", "not-applicable", "pass"]


def test_a_second_answer_within_a_case_is_that_cases_own_error():
    cases = case("a/first", step(1)), case("a/bad", step(13), step(1)), case("a/last", step(1))
    assert verdicts(program("twice_on_call"), *cases)[0] == ["pass", "error", "pass"]


def test_a_program_that_does_not_start_again_fails_every_case_left_and_is_given_up(tmp_path):
    cases = *three(), *(case(f"b/more-{n}", step(1)) for n in range(5))
    engine = program("dies_once_for_all", str(tmp_path / "marker"))
    report = run(Session(engine, corpus(*cases)), cases)
    engine.close()
    assert [str(result.verdict) for result in report.results] == ["pass"] + ["error"] * 7
    assert "licence expired" in report.results[2].finding.message
    assert "not started again after 3 failures" in report.results[-1].finding.message


def test_a_program_that_never_closes_is_killed():
    engine = program("never_closes")
    started = time.monotonic()
    engine.close()
    engine.close()
    assert time.monotonic() - started < 3


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("exits_at_hello", "cannot find libengine.so"),
        ("garbage_at_hello", "Engine 1.0 ready"),
        ("other_protocol", "protocol 2"),
        ("other_edition", "edition 1999.1"),
        ("nameless", "/hello/engine"),
    ],
)
def test_a_program_that_fails_at_hello_does_not_start(name, words):
    with pytest.raises(AdapterError) as caught:
        program(name)
    assert words in str(caught.value)
    assert "\n" not in caught.value.message


def test_a_program_that_is_silent_at_hello_does_not_hold_the_run():
    with pytest.raises(AdapterError, match=r"no answer to hello within 0\.3 s"):
        Subprocess([sys.executable, str(PROGRAMS), "silent_at_hello"], label="silent", hello_s=0.3)


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("Raises", "exception", "ZeroDivisionError: no such luck (miniatures.py, line"),
        ("Exits", "crash", "exit status 7\nlast words"),
        ("ExitsPolitely", "exception", "SystemExit: 2"),
        ("Segfaults", "crash", "signal SIGSEGV"),
        ("Daemon", "crash", "exit status 1"),
        ("Hangs", "timeout", "no reply in time"),
    ],
)
def test_a_worker_that_breaks_costs_one_verdict(name, kind, words):
    seen, message = verdicts(connect(f"miniatures:{name}"), *three(deadline_s=1.0))
    assert seen == ["pass", "error", "pass"]
    assert kind in message
    assert words in message


def test_the_whole_process_group_is_killed():
    _, message = verdicts(connect("miniatures:Daemon"), *three())
    pid = message.rpartition("grandchild ")[2].split()[0]
    patience = time.monotonic() + 5
    while _is_alive(pid) and time.monotonic() < patience:
        time.sleep(0.02)
    assert not _is_alive(pid)


def _is_alive(pid: str) -> bool:
    found = subprocess.run(["ps", "-o", "stat=", "-p", pid], capture_output=True, text=True, check=False)
    return bool(found.stdout.strip()) and not found.stdout.startswith("Z")


def test_a_result_is_a_copy_of_the_adapters_buffer():
    engine = connect("miniatures:Reuses", in_process=True)
    first, second = (engine.call("attention.dense", {"scale": 1}, 1).value["out"] for _ in range(2))
    assert (first.item(), second.item()) == (1, 2)
    assert not first.flags.writeable


WRONG_VALUES = [
    ("Raises", "error", "no such luck"),
    ("ExitsPolitely", "error", "SystemExit"),
    ("Unserialisable", "error", "/out: a value of type set"),
    ("NotAMapping", "error", "ndarray, not a mapping"),
    ("Complex", "error", "/out: dtype complex64"),
    ("HugeInteger", "error", "/out: an integer beyond"),
    ("Endless", "error", "nested deeper"),
    ("OddReason", "error", "whose reason is 404"),
    ("NotANumber", "fail", ""),
    ("Asynchronous", "pass", ""),
    ("NeverReady", "error", "still pending"),
    ("Ticketless", "error", "defines no poll()"),
    ("Declines", "not-applicable", "no such scale"),
    ("Chatty", "pass", ""),
    ("Vandal", "pass", ""),
]


@pytest.mark.parametrize(("name", "verdict", "words"), WRONG_VALUES)
def test_in_process_the_verdict_is_the_same(name, verdict, words):
    seen, message = verdicts(connect(f"miniatures:{name}", in_process=True), *three(deadline_s=0.3))
    assert seen == ["pass", verdict, "pass"]
    assert words in message


@pytest.mark.parametrize(("name", "verdict", "words"), [*WRONG_VALUES[2:], ("Prints", "pass", "")])
def test_in_a_worker_the_verdict_is_the_same(name, verdict, words):
    seen, message = verdicts(connect(f"miniatures:{name}"), *three(deadline_s=0.5))
    assert seen == ["pass", verdict, "pass"]
    assert words in message


@pytest.mark.parametrize("in_process", [True, False])
def test_open_comes_before_each_case(in_process):
    engine = connect("miniatures:Remembers", in_process=in_process)
    assert verdicts(engine, *three())[0] == ["pass", "pass", "pass"]


@pytest.mark.parametrize("in_process", [True, False])
def test_an_adapter_that_cannot_open_is_broken_and_not_judged(in_process):
    with pytest.raises(AdapterError, match="no fresh engine to be had"):
        verdicts(connect("miniatures:NeverOpens", in_process=in_process), *three())


def test_a_worker_that_is_slow_to_close_is_killed():
    engine = connect("miniatures:SlowToClose")
    engine._grace_s = 0.2
    started = time.monotonic()
    engine.close()
    assert time.monotonic() - started < 3


@pytest.mark.parametrize("in_process", [True, False])
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("miniatures:NoSetup", "no device"),
        ("miniatures:NotAnAdapter", "not a subclass of kvassay.EngineAdapter"),
        ("miniatures:Missing", "no such name"),
        (
            "no_such_module:Adapter",
            "cannot import no_such_module: ModuleNotFoundError: No module named 'no_such_module'",
        ),
    ],
)
def test_an_adapter_that_does_not_start_says_why_in_one_line(name, words, in_process):
    with pytest.raises(AdapterError) as caught:
        connect(name, in_process=in_process)
    assert words in caught.value.message
    assert "\n" not in caught.value.message


# ---- names -------------------------------------------------------------------------------------------------------


def test_an_unknown_name_lists_those_that_exist():
    with pytest.raises(AdapterError, match="did you mean reference") as caught:
        connect("refrence")
    assert "torch" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "words"),
    [("cmd:", "names no program"), ("cmd: 'a", "No closing quotation"), ("cmd: /no/such/program", "No such file")],
)
def test_a_command_that_is_none_says_so(name, words):
    with pytest.raises(AdapterError, match=words):
        connect(name)


def test_a_command_line_starts_a_program():
    engine = connect(f"cmd: {shlex.quote(sys.executable)} {shlex.quote(str(PROGRAMS))} good")
    assert verdicts(engine, *three())[0] == ["pass", "pass", "pass"]


def test_another_interpreter_gets_the_packages_of_this_suite_and_nothing_else(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(PROGRAMS.parent))
    engine = connect("miniatures:Where", python=sys.executable)
    notes = json.loads(engine.description.notes)
    assert verdicts(engine, *three())[0] == ["pass", "pass", "pass"]
    assert notes["names"] == ["kvassay", "kvassay_kernels", "kvassay_reference"]
    assert not Path(notes["folder"]).exists()


def test_another_interpreter_that_does_not_exist_is_named():
    with pytest.raises(AdapterError, match="no interpreter /no/such/python"):
        connect("miniatures:Good", python="/no/such/python")


# ---- smoke -------------------------------------------------------------------------------------------------------


def test_a_good_adapter_passes_the_smoke_check():
    engine = connect("miniatures:Good", in_process=True)
    assert smoke(engine, corpus()) == []


def test_what_an_adapter_may_not_declare_is_said_with_the_nearest_name():
    engine = connect("miniatures:OddOps", in_process=True)
    found = "\n".join(smoke(engine, corpus()))
    for words in (
        "the op attention.dens, which no contract has; did you mean attention.dense?",
        "the profile dence, which does not exist; did you mean dense?",
        "the capability attention.pagd, which does not exist; did you mean attention.paged?",
        "the capability attention.paged as 'perhaps', which is none of False, True",
    ):
        assert words in found


def test_an_engine_that_answers_what_it_does_not_have_is_broken():
    engine = program("answers_everything")
    found = smoke(engine, corpus())
    engine.close()
    assert len(found) == 1
    assert "should be answered unsupported; the answer was returned" in found[0]


def test_an_adapter_that_does_not_open_is_broken():
    found = smoke(connect("miniatures:NeverOpens", in_process=True), corpus())
    assert len(found) == 1
    assert "no fresh engine to be had" in found[0]
