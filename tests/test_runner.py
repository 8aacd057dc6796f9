"""Runs and reports: late answers, stopping early, and what makes a run fail."""

import dataclasses
import time
from typing import Any

import pytest
from kvassay.adapters.errors import AdapterError
from kvassay.core.engine import Broken, Late, NotSupported, Reply
from kvassay.core.model import EngineDescription, Finding, Level, Result, Status, Verdict
from kvassay.core.report import Report
from kvassay.corpus import load
from kvassay.runner import BLOCK, Session, run, run_side_by_side

CASES = [case for case in load().cases if len(case.steps) == 1][:3]


class Silent:
    """Answers each call in the same way; can claim afterwards that an earlier case was answered twice."""

    def __init__(self, late: dict[int, int] | None = None, reply: Reply | None = None) -> None:
        self.calls = 0
        self.late_after = dict(late or {})
        self.reply = reply or Broken("timeout", "asleep")
        ops = frozenset(op for case in CASES for op in case.ops)
        needs = {name: values[0] for case in CASES for name, values in case.needs.items()}
        profiles = frozenset(case.profile for case in CASES)
        self.description = EngineDescription("silent", "0", ops, profiles, ("fp32-m-l-u-v1",), capabilities=needs)

    def open(self) -> Broken | None:
        return None

    def call(self, op: str, request: Any, deadline_s: float) -> Reply:
        if op.startswith("smoke."):
            return NotSupported()
        self.calls += 1
        return self.reply

    def late(self) -> tuple[Late, ...]:
        ago = self.late_after.pop(self.calls, None)
        return () if ago is None else (Late(Broken("answered-twice", "again"), ago),)

    def close(self) -> None:
        pass


def test_every_case_gets_a_verdict_in_order_whatever_the_engine_does() -> None:
    seen: list[str] = []
    report = run(Session(Silent(), load()), CASES, on_result=lambda result: seen.append(result.case.id))
    assert [result.case.id for result in report.results] == seen == [case.id for case in CASES]
    assert {result.verdict for result in report.results} == {Verdict.ERROR}
    assert report.exit_code == 1


def test_a_second_answer_spoils_the_case_that_it_was_for() -> None:
    report = run(Session(Silent({2: 1}), load()), CASES)
    messages = [result.finding.message for result in report.results if result.finding]
    assert [message.partition(":")[0] for message in messages] == ["answered-twice", "timeout", "timeout"]
    assert report.findings == ()


def test_a_second_answer_to_a_case_that_is_over_is_a_finding_and_blames_no_other_case() -> None:
    report = run(Session(Silent({3: 2}), load()), CASES)
    messages = [result.finding.message for result in report.results if result.finding]
    assert [message.partition(":")[0] for message in messages] == ["timeout"] * 3
    assert report.findings == (f"{CASES[0].id}: answered-twice: again, after its verdict was final",)


def test_a_broken_adapter_is_not_judged() -> None:
    engine = Silent()
    engine.description = dataclasses.replace(engine.description, profiles=frozenset({"merg"}))
    with pytest.raises(AdapterError, match="did you mean merge"):
        Session(engine, load())


def test_fail_fast_stops_at_the_first_verdict_that_fails_the_run() -> None:
    assert len(run(Session(Silent(), load()), CASES, fail_fast=True).results) < len(CASES)
    optional = [dataclasses.replace(case, level=Level.SHOULD) for case in CASES]
    assert len(run(Session(Silent(), load()), optional, fail_fast=True).results) == len(CASES)


def test_a_profile_that_is_claimed_and_declined_fails_the_run() -> None:
    report = run(Session(Silent(reply=NotSupported("not today")), load()), CASES)
    assert {result.verdict for result in report.results} == {Verdict.NOT_APPLICABLE}
    assert report.exit_code == 1
    assert "cases of it unsupported" in report.findings[0]


def result(verdict: Verdict, level: Level = Level.MUST, status: Status = Status.STABLE) -> Result:
    case = dataclasses.replace(CASES[0], level=level, status=status)
    return Result(case, verdict, Finding(0, "", "message"))


def report(*results: Result, **more: Any) -> Report:
    engine = EngineDescription("e", "1", frozenset())
    return Report(engine, results, "2026.1", "d", "0.1", {}, {}, "2026-01-01T00:00:00+00:00", 1.0, **more)


@pytest.mark.parametrize(
    ("results", "more", "code"),
    [
        ([result(Verdict.PASS)], {}, 0),
        ([result(Verdict.PASS), result(Verdict.NOT_APPLICABLE)], {}, 0),
        ([result(Verdict.PASS), result(Verdict.WAIVED)], {}, 0),
        ([result(Verdict.FAIL)], {}, 1),
        ([result(Verdict.WRONG_REASON)], {}, 1),
        ([result(Verdict.ERROR)], {}, 1),
        ([result(Verdict.INCONCLUSIVE)], {}, 1),
        ([result(Verdict.UNEXPECTED_PASS)], {}, 1),
        ([result(Verdict.FAIL, Level.SHOULD)], {}, 0),
        ([result(Verdict.FAIL, Level.SHOULD)], {"strict": True}, 1),
        ([result(Verdict.FAIL, status=Status.PROVISIONAL)], {}, 0),
        ([result(Verdict.FAIL, status=Status.PROVISIONAL)], {"strict": True}, 0),
        ([result(Verdict.PASS)], {"findings": ("a waiver matched nothing",)}, 1),
        ([result(Verdict.NOT_APPLICABLE)], {}, 2),
        ([], {}, 2),
    ],
)
def test_exit_codes(results: list[Result], more: dict[str, Any], code: int) -> None:
    made = report(*results, **more)
    assert made.exit_code == code
    assert made.ok is (code == 0)


def test_the_text_of_a_report_names_the_failures() -> None:
    text = str(report(result(Verdict.PASS), result(Verdict.FAIL), findings=("a waiver matched nothing",)))
    assert "1 pass, 1 fail" in text
    assert f"{CASES[0].id}: fail: message" in text
    assert "a waiver matched nothing" in text


class TestSideBySide:
    """Several engines of one kind share the cases; what comes of it is what one engine gives."""

    MANY = [case for case in load().cases if len(case.steps) == 1 and case.ops <= Silent().description.ops][: 3 * BLOCK]

    class Slow(Silent):
        """The first call takes long, so that the other engine gets cases, too, and is done before it."""

        def call(self, op: str, request: Any, deadline_s: float) -> Reply:
            if not op.startswith("smoke.") and not self.calls:
                time.sleep(0.3)
            return super().call(op, request, deadline_s)

    def test_the_report_is_that_of_one_engine_and_told_in_order(self) -> None:
        seen: list[str] = []
        engines = [self.Slow(), Silent()]
        sessions = [Session(engine, load()) for engine in engines]
        report = run_side_by_side(sessions, self.MANY, on_result=lambda result: seen.append(result.case.id))
        alone = run(Session(Silent(), load()), self.MANY)
        assert len(self.MANY) > BLOCK
        assert all(engine.calls for engine in engines)
        assert [result.case.id for result in report.results] == seen == [case.id for case in self.MANY]
        assert [result.verdict for result in report.results] == [result.verdict for result in alone.results]

    def test_late_answers_of_every_engine_are_findings(self) -> None:
        late = [self.Slow({3: 2}), self.Slow({3: 2})]
        report = run_side_by_side([Session(engine, load()) for engine in late], self.MANY[: 2 * BLOCK])
        assert len(report.findings) == 2

    def test_fail_fast_begins_no_case_after_a_failure(self) -> None:
        sessions = [Session(Silent(), load()) for _ in range(2)]
        seen: list[str] = []
        told = run_side_by_side(sessions, self.MANY, on_result=lambda one: seen.append(one.case.id), fail_fast=True)
        assert 1 <= len(told.results) <= 4
        assert [result.case.id for result in told.results] == seen
        assert not told.ok

    def test_what_goes_wrong_in_one_engine_ends_the_run(self) -> None:
        class Bad(Silent):
            def call(self, op: str, request: Any, deadline_s: float) -> Reply:
                if not op.startswith("smoke."):
                    raise ZeroDivisionError
                return super().call(op, request, deadline_s)

        with pytest.raises(ZeroDivisionError):
            run_side_by_side([Session(self.Slow(), load()), Session(Bad(), load())], self.MANY)
