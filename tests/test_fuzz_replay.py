"""The monitor that replays each call on the reference: what it compares, and what it lets pass."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from kvassay.adapters.local import InProcess
from kvassay.core.engine import Broken, NotSupported, Refused, Returned
from kvassay.core.judge import judge
from kvassay.core.model import EngineDescription, Verdict
from kvassay.corpus import load
from kvassay.corpus.data import read_json, root
from kvassay.engines.reference import Reference
from kvassay.faults import lifecycle
from kvassay.monitors.replay import Replay, replay

RUNNING = read_json(root() / "fixtures" / "lifecycle" / "running.json")
SAVE = read_json(root() / "fixtures" / "lifecycle" / "save-plan.json")
NOBODY = EngineDescription("nobody", "0", frozenset())
PAUSE = {"session": "s", "action": "swap", "call_id": "c"}


def right(op: str, request: dict[str, Any], *before: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    """The reference's own reply."""
    engine = InProcess(Reference)
    engine.open()
    for call in before:
        engine.call(*call, 0.0)
    reply = engine.call(op, request, 0.0)
    assert isinstance(reply, Returned)
    return dict(reply.value)


def seen(reply: Any, op: str = "lifecycle.begin", request: Any = RUNNING, **options: Any) -> Any:
    return Replay(NOBODY, **options).observe(op, request, reply)


def test_the_right_reply_passes_and_one_member_fails_with_its_place() -> None:
    answer = right("lifecycle.begin", RUNNING)
    assert seen(Returned(answer)).verdict is Verdict.PASS
    wrong = seen(Returned({**answer, "tokens": [11, 12, 13, 14, 15, 17]}))
    assert (wrong.verdict, wrong.finding.at) == (Verdict.FAIL, "/tokens/5")
    assert wrong.finding.expected == 16


@pytest.mark.parametrize("value", [1, "true", None])
def test_values_of_another_type_are_not_the_same(value: Any) -> None:
    assert seen(Returned({**right("lifecycle.begin", RUNNING), "on_gpu": value})).verdict is Verdict.FAIL


@pytest.mark.parametrize(("error", "verdict"), [(0.5e-9, Verdict.PASS), (3e-9, Verdict.FAIL)])
def test_numbers_are_held_to_the_bound_of_the_oracle(error: float, verdict: Verdict) -> None:
    answer = right("lifecycle.save_plan", SAVE)
    assert answer["save_ms"] > 1
    near = {**answer, "save_ms": answer["save_ms"] * (1 + error)}
    assert seen(Returned(near), "lifecycle.save_plan", SAVE).verdict is verdict


@pytest.mark.parametrize("value", ["NaN", "Infinity", [1.0], True])
def test_what_is_no_such_number_fails(value: Any) -> None:
    answer = {**right("lifecycle.save_plan", SAVE), "save_ms": value}
    assert seen(Returned(answer), "lifecycle.save_plan", SAVE).verdict is Verdict.FAIL


def test_a_lacking_member_fails_unless_a_part_is_shown() -> None:
    answer = right("lifecycle.begin", RUNNING)
    del answer["tokens"]
    assert seen(Returned(answer)).verdict is Verdict.FAIL
    assert seen(Returned(answer), partial=True).verdict is Verdict.PASS
    assert seen(Returned({"state": "TOKEN_ONLY"}), partial=True).verdict is Verdict.FAIL


def test_refusals_are_compared_by_reason_when_that_is_asked_for() -> None:
    unknown = {"session": "nobody"}
    assert seen(Returned({}), "lifecycle.quiesce", unknown).verdict is Verdict.FAIL
    assert seen(Refused("UNKNOWN_SESSION"), "lifecycle.quiesce", unknown).verdict is Verdict.PASS
    other = Refused("ILLEGAL_TRANSITION")
    assert seen(other, "lifecycle.quiesce", unknown).verdict is Verdict.WRONG_REASON
    assert seen(other, "lifecycle.quiesce", unknown, strict=False).verdict is Verdict.PASS
    assert seen(Refused("UNKNOWN_SESSION")).verdict is Verdict.FAIL


def test_the_state_of_earlier_calls_counts_and_calls_without_a_reply_do_not() -> None:
    monitor = Replay(NOBODY)
    assert monitor.observe("lifecycle.begin", RUNNING, Returned(right("lifecycle.begin", RUNNING))).holds
    for nothing in (NotSupported(), Broken("crash")):
        assert monitor.observe("lifecycle.pause", PAUSE, nothing).holds
    answer = right("lifecycle.pause", PAUSE, ("lifecycle.begin", RUNNING))
    assert answer["state"] == "QUIESCING"
    assert monitor.observe("lifecycle.pause", PAUSE, Returned(answer)).holds
    assert not monitor.observe("lifecycle.pause", PAUSE, Returned(answer)).holds


def test_what_the_reference_cannot_say_shows_nothing() -> None:
    outcome = seen(Returned({}), "lifecycle.begin", {"session": "s"})
    assert outcome.verdict is Verdict.INCONCLUSIVE


def test_only_contracts_whose_replies_follow_from_the_calls_are_replayed() -> None:
    assert isinstance(replay("lifecycle", NOBODY, strict=False), Replay)
    assert replay("residency", NOBODY) is None


@pytest.mark.parametrize("contract", ["lifecycle", "offload"])
def test_on_the_cases_of_a_contract_it_blames_no_reference(contract: str) -> None:
    engine = InProcess(Reference)
    rules = replace(load().rules(), watch=lambda _, description: Replay(description))
    for case in load().select(contract=[contract]):
        assert judge(case, engine, rules).verdict is Verdict.PASS, case.id


def test_it_sees_a_fault_in_a_case_that_expects_nothing_of_it() -> None:
    engine = InProcess(lifecycle.WriteSlotsIgnored)
    engine.open()
    late = {**SAVE, "window_ms": 1, "write_slots": 1}
    assert seen(engine.call("lifecycle.save_plan", late, 0.0), "lifecycle.save_plan", late).verdict is Verdict.FAIL
