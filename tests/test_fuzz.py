"""Fuzzing: what it finds and what it does not, how it shrinks, what it writes, and how it ends."""

from __future__ import annotations

import itertools
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kvassay.faults
import pytest
from kvassay.adapters import local
from kvassay.adapters.base import EngineAdapter, EngineInfo, Pending, Rejected
from kvassay.adapters.local import InProcess
from kvassay.cli import status
from kvassay.core.engine import Broken, NotSupported, Returned
from kvassay.core.judge import judge
from kvassay.core.model import Verdict
from kvassay.corpus import CorpusError, load
from kvassay.corpus.data import root
from kvassay.corpus.files import with_cases
from kvassay.corpus.ops import find as op_named
from kvassay.corpus.schemas import problem
from kvassay.engines.reference import Reference
from kvassay.faults import residency as seeded
from kvassay.faults.seeded import engines, faults
from kvassay.fuzz import contract as contracts
from kvassay.fuzz.case import document
from kvassay.fuzz.contract import Step
from kvassay.fuzz.detection import detect
from kvassay.fuzz.machine import state_machine
from kvassay.fuzz.residency_names import families
from kvassay.fuzz.residency_patterns import PATTERNS, Pattern
from kvassay.fuzz.residency_words import WORD, WORDS
from kvassay.fuzz.run import Bug, Fuzzer, Options, RandomDraw, Summary
from kvassay.fuzz.shrink import Recorded, Repeated, cut, simpler, without
from kvassay.fuzz.trial import Trial
from kvassay.monitors.caller import PLAIN_KEY

Run = Callable[..., tuple[int, str, str]]


def fuzz(adapter: type[EngineAdapter], contract: str, examples: int = 60, **options: Any) -> Summary:
    return Fuzzer(InProcess(adapter), load(), Options(contract, examples=examples, **options)).run()


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: str) -> tuple[int, str, str]:
        code = status(list(arguments))
        told = capfd.readouterr()
        return code, told.out, told.err

    return call


# --- what is found ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("contract", contracts.CONTRACTS)
def test_nothing_is_found_on_the_reference(contract: str) -> None:
    summary = fuzz(Reference, contract, 40)
    assert (summary.examples, summary.bugs, summary.ended) == (40, [], "examples")
    assert summary.calls > 500


@pytest.mark.parametrize("adapter", seeded.CORRECT[1:-1], ids=lambda adapter: adapter.__name__)
def test_nothing_is_found_on_correct_engines_that_do_less(adapter: type[EngineAdapter]) -> None:
    assert fuzz(adapter, "residency", 25, seed=3).bugs == []


@pytest.mark.parametrize(
    ("name", "contract"),
    [
        ("SynchronousSave", "lifecycle"),
        ("DecodesOn", "lifecycle"),
        ("BlindPositionsShifted", "lifecycle"),
        ("ConsumedByReading", "residency"),
        ("TenantIgnored", "residency"),
        ("RemovedInNameOnly", "residency"),
        ("NothingBelow", "residency"),
        ("GivingUpIsForbidden", "residency"),
        ("LimitMoves", "residency"),
        ("TierRemembered", "residency"),
        ("WaiterSeesTheBuffer", "residency"),
        ("BytesIgnored", "residency"),
    ],
)
def test_seeded_faults_are_found_and_replay_as_cases(name: str, contract: str, tmp_path: Path) -> None:
    fault = getattr(kvassay.faults, name)
    (bug,) = fuzz(fault, contract, 400, max_findings=1).bugs
    assert bug.repeats
    assert len(bug.steps) <= 10
    path = tmp_path / "found.json"
    path.write_text(json.dumps(document(bug.case, contracts.find(contract))), encoding="utf-8")
    corpus = with_cases(load(), [path])
    (case,) = corpus.cases
    rules = watched(corpus)
    assert judge(case, InProcess(fault), rules).verdict in (Verdict.FAIL, Verdict.WRONG_REASON)
    assert judge(case, InProcess(Reference), rules).verdict is Verdict.PASS


def watched(corpus: Any) -> Any:
    from kvassay.runner import Session

    return Session(InProcess(Reference), corpus).rules


def test_a_seed_repeats_a_run_and_another_one_makes_others() -> None:
    fault = kvassay.faults.RemovedInNameOnly
    first, again, other = (fuzz(fault, "residency", 12, seed=seed, max_findings=2) for seed in (5, 5, 6))
    told = [{**one.to_json(), "seconds": 0} for one in (first, again)]
    assert told[0] == told[1]
    assert [bug.case for bug in first.bugs] == [bug.case for bug in again.bugs]
    assert other.calls != first.calls


def test_one_reason_is_told_once_and_others_are_looked_for() -> None:
    class Twice(Reference):
        def residency_get(self, request: Any) -> Any:
            return {"outcome": "miss", "engine_calls": 1}

        def residency_lookup(self, request: Any) -> Any:
            return {"states": ["ready"] * len(request["keys"]), "engine_calls": 1}

    summary = fuzz(Twice, "residency", 60)
    reasons = [bug.reason for bug in summary.bugs]
    assert len(reasons) == len(set(reasons))
    assert "ROWS_LOST in residency.get" in reasons
    assert "PUBLISHED_UNVALIDATED in residency.lookup" in reasons
    assert summary.examples == 60


def test_a_crash_is_a_finding_and_ends_nothing() -> None:
    class Crashing(Reference):
        def lifecycle_pause(self, request: Any) -> Any:
            if request["action"] == "discard":
                raise KeyError("rows")
            return super().lifecycle_pause(request)

    summary = fuzz(Crashing, "lifecycle", 60)
    (bug,) = summary.bugs
    assert (bug.reason, bug.wrong.verdict) == ("KeyError in lifecycle.pause", Verdict.ERROR)
    assert [step.op for step in bug.steps] == ["lifecycle.pause"]
    assert summary.examples == 60


def test_a_result_that_no_schema_allows_is_a_finding() -> None:
    class Malformed(Reference):
        def lifecycle_prefetch(self, request: Any) -> Any:
            return {**super().lifecycle_prefetch(request), "admitted": None}

    (bug,) = fuzz(Malformed, "lifecycle", 60).bugs
    assert bug.reason == "malformed result of lifecycle.prefetch"
    assert len(bug.steps) == 1


def test_an_engine_that_does_not_repeat_itself_is_told_as_such() -> None:
    class Moody(Reference):
        calls = 0

        def residency_get(self, request: Any) -> Any:
            Moody.calls += 1
            if Moody.calls % 7:
                return super().residency_get(request)
            return {
                "outcome": "miss" if super().residency_get(request)["outcome"] == "hit" else "hit",
                "engine_calls": 1,
            }

    summary = fuzz(Moody, "residency", 40)
    assert summary.bugs
    assert summary.examples == 40


def test_time_and_findings_end_a_run() -> None:
    started = time.monotonic()
    assert fuzz(Reference, "residency", 100_000, time_budget_s=0.5).ended == "time"
    assert time.monotonic() - started < 20
    assert fuzz(kvassay.faults.RemovedInNameOnly, "residency", 400, max_findings=1).ended == "findings"


def test_a_run_without_a_call_shows_nothing(run: Run) -> None:
    assert fuzz(Reference, "residency", 1).exit_code == 0
    words = ["fuzz", "--contract", "residency", "--adapter", "reference", "--in-process", "--time-budget", "1e-9"]
    code, out, _ = run(*words)
    assert (code, "no call was made" in out) == (2, True)


def test_an_engine_that_does_not_open_ends_the_run() -> None:
    class Shut(Reference):
        def residency_open(self, request: Any) -> Any:
            raise MemoryError("no room")

    summary = fuzz(Shut, "residency")
    assert (summary.ended, [bug.reason for bug in summary.bugs]) == ("engine", ["MemoryError in residency.open"])


# --- which calls are made -----------------------------------------------------------------------------------------


BROKEN: frozenset[str] = frozenset().union(*(contracts.find(name).atomic for name in contracts.CONTRACTS))
"""Ops that are given documents which no schema allows, on purpose."""


class Watching(InProcess):
    """Holds every request against its schema, and keeps it."""

    def __init__(self, adapter: type[EngineAdapter]) -> None:
        super().__init__(adapter)
        self.calls: list[tuple[str, Any]] = []

    def call(self, op: str, request: Any, deadline_s: float) -> Any:
        from kvassay.core.tensors import write

        if op not in BROKEN:
            assert problem(write(request), op_named(op).request) is None, (op, request)
        self.calls.append((op, request))
        return super().call(op, request, deadline_s)


@pytest.mark.parametrize("contract", contracts.CONTRACTS)
def test_every_request_meets_its_schema_and_every_op_is_called(contract: str) -> None:
    engine = Watching(Reference)
    Fuzzer(engine, load(), Options(contract, examples=120, swarm=0)).run()
    called = {op for op, _ in engine.calls}
    assert {op for op in Reference.ops() if op.startswith(f"{contract}.")} <= called
    if contract == "residency":
        assert {"control.inject", "control.advance_clock"} <= called


class Unfenced(seeded.CORRECT[6]):  # type: ignore[misc]
    """Content-addressed: claims no fencing."""


def dead_handles(*, probe: bool) -> int:
    """How often a transaction that is over was completed."""
    engine = Watching(Unfenced)
    assert not engine.description.capabilities["residency.txn_ids"]
    Fuzzer(engine, load(), Options("residency", examples=60, probe=probe)).run()
    over: set[str] = set()
    count = 0
    for op, request in engine.calls:
        if op == "residency.open":
            over.clear()
        if op == "residency.complete":
            count += request["txn"] in over
            over.add(request["txn"])
    return count


def test_handles_of_what_is_over_are_used_where_fencing_is_claimed_or_probed() -> None:
    assert dead_handles(probe=False) == 0
    assert dead_handles(probe=True) > 0


# --- patterns -----------------------------------------------------------------------------------------------------


def test_patterns_are_said_in_words_that_there_are_and_under_names_of_their_own() -> None:
    scene = contracts.find("residency").scene(InProcess(Reference).description, lambda step: NotSupported(""))
    assert {pattern.name for pattern in PATTERNS} <= scene.rules.keys()
    names = [pattern.name.replace("-", "_") for pattern in PATTERNS]
    assert not set(names) & {name for name in dir(scene) if not name.startswith("_")}
    assert len(set(names)) == len(names)
    for pattern in PATTERNS:
        assert {f"residency.{name}" for name in pattern.needs} <= Reference.capabilities.keys()
        for word in pattern.words.split():
            found = WORD.fullmatch(word)
            assert found is not None
            assert found[1] in WORDS, word


def test_every_word_is_in_a_pattern() -> None:
    said = {WORD.fullmatch(word)[1] for pattern in PATTERNS for word in pattern.words.split()}  # type: ignore[index]
    assert said == set(WORDS)


@pytest.mark.parametrize("chosen", PATTERNS, ids=lambda pattern: pattern.name)
def test_a_pattern_makes_most_of_its_calls_on_the_reference(chosen: Pattern) -> None:
    """A pattern whose calls are all illegal would stand there for nothing."""
    made = []
    for example in range(12):
        trial = Trial(InProcess(Reference), contracts.find("residency"))
        trial.open()
        draw = RandomDraw(7, example)
        trial.scene.open(draw)
        before = trial.calls
        trial.scene.rules[chosen.name][1](draw)
        made.append(trial.calls - before)
    assert sum(made) / len(made) > 0.75 * len(chosen.words.split())


@pytest.mark.parametrize(("opaque", "tenants"), [(False, False), (False, True), (True, False), (True, True)])
def test_families_of_names_keep_to_what_an_engine_claims(*, opaque: bool, tenants: bool) -> None:
    for names in families(opaque=opaque, tenants=tenants):
        assert len(set(names.keys)) == len(names.keys) == 3
        assert tenants or not names.tenants
        assert opaque or all(PLAIN_KEY.fullmatch(key) for key in names.keys)


# --- shrinking ----------------------------------------------------------------------------------------------------


def test_steps_that_need_a_dropped_one_go_with_it() -> None:
    steps = [
        Step("a.begin", {}, {"t": "/txn"}),
        Step("a.copy", {"txn": {"$bind": "t"}}, {"bytes": "/bytes"}),
        Step("a.tell", {"n": {"$bind": "bytes"}}),
        Step("a.other", {}),
    ]
    assert [step.op for step in without(steps, {0})] == ["a.other"]
    assert [step.op for step in without(steps, {2})] == ["a.begin", "a.copy", "a.other"]


def test_pieces_are_cut_out_until_none_can_be_missed() -> None:
    kept = list(range(20))

    def fails(items: list[int]) -> bool:
        if {3, 11, 19} <= set(items):
            kept[:] = items
            return True
        return False

    cut(lambda: list(kept), fails, first=0)
    assert kept == [3, 11, 19]


def test_simpler_values_are_smaller_and_bound_ones_stay() -> None:
    found = list(simpler({"keys": ["a", "b"], "data": [[1], [2]], "txn": {"$bind": "t"}, "n": 9}))
    assert {"keys": ["b"], "data": [[2]], "txn": {"$bind": "t"}, "n": 9} in found
    assert {"keys": ["a", "b"], "data": [[1], [2]], "txn": {"$bind": "t"}, "n": 0} in found
    assert all(one.get("txn", {"$bind": "t"}) == {"$bind": "t"} for one in found)
    assert not any(one.get("n", 0) > 9 for one in found)


def test_recorded_choices_repeat_and_fit_into_smaller_ranges() -> None:
    record = Recorded(Repeated([2, 5, 1]))
    assert (record.pick("abc"), record.integer(1, 9), record.chance(50)) == ("c", 6, True)
    again = Repeated(record.choices)
    assert (again.pick("ab"), again.integer(1, 3), again.chance(50), again.pick("xyz")) == ("b", 3, True, "x")
    assert again.choices == [1, 2, 1, 0]
    assert (Repeated([1]).chance(0), Repeated([0]).chance(100)) == (False, True)


def test_a_failure_is_shrunk_to_what_it_takes() -> None:
    class Loses(Reference):
        def residency_remove(self, request: Any) -> Any:
            told = super().residency_remove(request)
            if "tier" not in request and len(request["keys"]) > 1 and "removed" in told["outcomes"]:
                self.residency.begun += 0
                told["outcomes"] = ["absent"] * len(request["keys"])
            return told

    bug = next(bug for bug in fuzz(Loses, "residency", 60).bugs if bug.wrong.op == "residency.remove")
    assert len(bug.steps) <= 4
    assert len(bug.steps[-1].request["keys"]) == 2


# --- the command --------------------------------------------------------------------------------------------------


def test_the_command_writes_cases_and_a_report_and_prints_the_line_that_repeats_it(run: Run, tmp_path: Path) -> None:
    report, folder = tmp_path / "report.json", tmp_path / "found"
    fault = "kvassay.faults:RemovedInNameOnly"
    words = ["fuzz", "--contract", "residency", "--adapter", fault, "--in-process", "--examples", "60"]
    code, out, _ = run(*words, "--output", str(folder), "--json-report", str(report), "--max-findings", "2")
    assert code == 1
    told = json.loads(report.read_text(encoding="utf-8"))
    assert (told["ended"], len(told["findings"]), len(told["files"])) == ("findings", 2, 2)
    for path in told["files"]:
        assert f"kvassay run --adapter {fault} --in-process --case-file {path}" in out
    path = told["files"][0]
    assert run("run", "--adapter", fault, "--in-process", "--case-file", path)[0] == 1
    code, out, _ = run("run", "--adapter", "reference", "--in-process", "--case-file", path)
    assert (code, "all required cases pass" in out) == (0, True)


def test_the_worker_is_the_default_and_a_hang_is_a_finding(run: Run, tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "sleepy.py").write_text(
        "import time\n"
        "from kvassay.engines.reference import Reference\n\n\n"
        "class Sleepy(Reference):\n"
        "    def lifecycle_prefetch(self, request):\n"
        "        time.sleep(30)\n",
        encoding="utf-8",
    )
    monkeypatch.chdir(tmp_path)
    words = [
        "fuzz",
        "--contract",
        "lifecycle",
        "--adapter",
        "sleepy:Sleepy",
        "--examples",
        "20",
        "--timeout-scale",
        "0.05",
    ]
    code, out, _ = run(*words, "--max-findings", "1")
    assert code == 1
    assert "timeout in lifecycle.prefetch" in out


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["--contract", "residence", "--adapter", "reference"], 2, "did you mean 'residency'"),
        (["--contract", "residency"], 2, "--adapter"),
        (["--contract", "residency", "--adapter", "plain:Plain"], 2, "cannot be fuzzed on residency"),
        (["--contract", "residency", "--adapter", "no-such-engine"], 3, "unknown adapter"),
        (["--contract", "residency", "--adapter", "reference", "--examples", "0"], 2, "--examples"),
        (["--adapter", "reference"], 2, "--contract"),
        (["--contract", "residency", "--adapter", "kvassay.faults:NoSuchFault"], 3, "NoSuchFault"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_a_status(
    run: Run, words: list[str], code: int, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "plain.py").write_text(
        "from kvassay import EngineAdapter, EngineInfo\n\n\n"
        "class Plain(EngineAdapter):\n"
        "    engine = EngineInfo('plain', '1')\n\n"
        "    def attention_dense(self, request):\n"
        "        return {}\n",
        encoding="utf-8",
    )
    monkeypatch.syspath_prepend(tmp_path)
    got, out, err = run("fuzz", "--in-process", *words)
    assert got == code, err
    assert told in err
    assert "Traceback" not in out + err


def test_nothing_found_is_status_0_and_one_line(run: Run) -> None:
    words = ["fuzz", "--contract", "lifecycle", "--adapter", "reference", "--in-process", "--examples", "5"]
    code, out, _ = run(*words)
    assert code == 0
    assert out.startswith("0 found in 5 examples")
    assert len(out.splitlines()) == 1


# --- case files ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bug() -> Bug:
    (found,) = fuzz(kvassay.faults.RemovedInNameOnly, "residency", 400, max_findings=1).bugs
    return found


def spoil(made: dict[str, Any], **changes: Any) -> dict[str, Any]:
    from kvassay.corpus.digest import digest

    made["cases"][0].update(changes)
    return {**made, "digest": digest(made["cases"])}


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"profile": "no-such-profile"}, "unknown profile no-such-profile"),
        ({"requirements": ["RES-999"]}, "unknown requirement RES-999"),
        ({"level": "maybe"}, "/cases/0/level"),
        ({"steps": [{"op": "residency.fly", "request": {}, "expect": {"accepts": True}}]}, "residency.fly"),
        (
            {"steps": [{"op": "residency.copy", "request": {"txn": {"$bind": "t"}}, "expect": {"accepts": True}}]},
            "uses t before it is bound",
        ),
    ],
)
def test_a_case_file_that_cannot_be_judged_is_named(
    run: Run, tmp_path: Path, bug: Bug, changes: dict[str, Any], told: str
) -> None:
    path = tmp_path / "case.json"
    made = spoil(json.loads(json.dumps(document(bug.case, contracts.find("residency")))), **changes)
    path.write_text(json.dumps(made), encoding="utf-8")
    code, _, err = run("run", "--adapter", "reference", "--in-process", "--case-file", str(path))
    assert code == 2
    assert told in err
    assert "case.json" in err
    assert len(err.strip().splitlines()) == 1


@pytest.mark.parametrize("text", ["", "[]", "{", '{"format": "kvassay-fixture-v1"}'])
def test_what_is_no_case_file_is_refused(run: Run, tmp_path: Path, text: str) -> None:
    path = tmp_path / "case.json"
    path.write_text(text, encoding="utf-8")
    code, _, err = run("run", "--adapter", "reference", "--in-process", "--case-file", str(path))
    assert (code, "case.json" in err) == (2, True)
    assert run("run", "--adapter", "reference", "--case-file", str(tmp_path / "none.json"))[0] == 2


def test_a_case_that_was_changed_by_hand_needs_its_digest(run: Run, tmp_path: Path, bug: Bug) -> None:
    made = json.loads(json.dumps(document(bug.case, contracts.find("residency"))))
    made["cases"][0]["title"] = "something else"
    path = tmp_path / "case.json"
    path.write_text(json.dumps(made), encoding="utf-8")
    code, _, err = run("run", "--adapter", "reference", "--in-process", "--case-file", str(path))
    assert (code, "digest" in err) == (2, True)


# --- answers by ticket --------------------------------------------------------------------------------------------


class Clock:
    """Time that passes where somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pauses: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


@pytest.mark.parametrize("polls", [1, 2, 40])
def test_polls_begin_at_once_and_become_rare(polls: int, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(local, "time", clock)
    asked: list[str] = []

    def poll(ticket: str) -> Any:
        asked.append(ticket)
        return Returned({}) if len(asked) == polls else Pending(f"t{len(asked)}")

    assert local.poll_until(10.0, Pending("t0"), poll, "a.op", 10.0) == Returned({})
    assert asked == [f"t{number}" for number in range(polls)]
    assert clock.pauses[0] < 1e-4
    assert all(later in (2 * sooner, 0.05) for sooner, later in itertools.pairwise(clock.pauses))
    assert max(clock.pauses) <= 0.05


def test_a_ticket_is_not_polled_beyond_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(local, "time", clock)
    told = local.poll_until(1.0, Pending("t"), lambda ticket: Pending(ticket), "a.op", 1.0)
    assert isinstance(told, Broken)
    assert (told.kind, told.detail) == ("timeout", "a.op still pending after 1 s")
    assert 0.9 < clock.now <= 1.0


# --- faults by name, and the table --------------------------------------------------------------------------------


def test_every_seeded_fault_has_a_name_of_its_own() -> None:
    assert kvassay.faults.SynchronousSave.__module__ == "kvassay.faults.lifecycle.costs"
    assert kvassay.faults.BlindStaleReplica.requirement == "LIF-005"
    assert kvassay.faults.StalePromotionPublishes.requirement.startswith("RES-")
    with pytest.raises(AttributeError, match="no seeded fault is called 'Nobody'"):
        _ = kvassay.faults.Nobody
    with pytest.raises(AttributeError):
        _ = kvassay.faults.nobody


def test_the_table_has_a_row_for_each_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    from kvassay.faults import lifecycle

    monkeypatch.setattr(lifecycle, "FAULTS", (lifecycle.SynchronousSave, Silent))
    rows = detect(Options("lifecycle", examples=30), jobs=1)
    assert [(row.name, row.found, row.ok) for row in rows] == [
        ("Reference", False, True),
        ("SynchronousSave", True, True),
        ("Silent", False, True),
    ]
    with pytest.raises(CorpusError):
        detect(Options("nothing"), jobs=1)


TABLES = sorted((root() / "docs" / "fuzz").glob("*.json"))


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.stem)
def test_the_committed_table_is_of_the_faults_that_there_are(path: Path) -> None:
    """``nox -s fuzz-faults`` makes it anew; every fault is found in it, and no correct engine is blamed."""
    contract = path.stem
    table = json.loads(path.read_text(encoding="utf-8"))
    rows = {row["name"]: row for row in table["rows"]}
    known = [one.adapter.__name__ for one in engines(contract)]
    assert list(rows) == known
    assert {name for name, row in rows.items() if row["found"]} == {
        fault.__name__ for fault in faults(contract) if not getattr(fault, "fuzz_silent", "")
    }
    assert table["found"] == sum(row["found"] for row in rows.values())
    assert table["faults"] == len(faults(contract))


class Silent(Reference):
    """Nothing is wrong that anyone could see."""

    requirement = "LIF-001"
    fuzz_silent = "nothing is wrong"


# --- as a state machine of Hypothesis -----------------------------------------------------------------------------


def machine_run(adapter: type[EngineAdapter], contract: str) -> None:
    from hypothesis import HealthCheck, Phase, settings
    from hypothesis.stateful import run_state_machine_as_test

    options = settings(
        max_examples=60,
        stateful_step_count=25,
        database=None,
        deadline=None,
        derandomize=True,
        phases=[Phase.generate],
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(state_machine(adapter, contract), settings=options)  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("contract", contracts.CONTRACTS)
def test_hypothesis_finds_nothing_on_the_reference(contract: str) -> None:
    machine_run(Reference, contract)


def test_hypothesis_finds_a_fault_and_names_the_rule() -> None:
    with pytest.raises(AssertionError, match="in residency"):
        machine_run(kvassay.faults.RemovedInNameOnly, "residency")


def test_without_hypothesis_the_state_machine_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hypothesis", None)
    with pytest.raises(CorpusError, match=r"pip install 'kvassay\[fuzz\]'"):
        state_machine(Reference, "residency")
    assert fuzz(Reference, "residency", 2).bugs == []


def test_an_adapter_of_one_profile_is_fuzzed_on_it_alone() -> None:
    class Plans(EngineAdapter):
        engine = EngineInfo("plans", "1")

        def lifecycle_admit(self, request: Any) -> Any:
            raise Rejected("PAUSE_DIGEST_MISMATCH")

    summary = fuzz(Plans, "lifecycle", 20)
    assert {bug.wrong.op for bug in summary.bugs} == {"lifecycle.admit"}


def test_a_trial_makes_no_illegal_step() -> None:
    trial = Trial(InProcess(Reference), contracts.find("residency"))
    trial.open()
    with pytest.raises(contracts.Illegal, match="not open"):
        trial.make(Step("residency.get", {"key": "a"}))
    trial.make(Step("residency.open", {"slots": 2, "slot_bytes": 8}))
    with pytest.raises(contracts.Illegal, match="no step bound"):
        trial.make(Step("residency.copy", {"txn": {"$bind": "t"}}))
    with pytest.raises(contracts.Illegal, match="no op"):
        trial.make(Step("residency.fly", {}))
    assert trial.calls == 1
