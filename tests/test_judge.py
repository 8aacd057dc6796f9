"""The judge on an engine of canned replies: one table a rule."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kvassay.core.engine import Broken, Late, NotSupported, Refused, Reply, Returned
from kvassay.core.expect import parse
from kvassay.core.judge import Rules, judge
from kvassay.core.model import Case, EngineDescription, Kind, Level, Status, Step, Verdict

RULES = Rules({"p": frozenset({"x.do", "x.more"}), "q": frozenset({"x.other"})}, {"cap": "no"}, lambda op, value: None)


class Canned:
    """Replies in order; remembers what it was asked."""

    def __init__(self, *replies: Reply, **description: Any) -> None:
        self.replies = list(replies)
        self.asked: list[tuple[str, Mapping[str, Any]]] = []
        self.opened = 0
        self.description = EngineDescription("canned", "0", **{"ops": frozenset({"x.do", "x.more"}), **description})

    def open(self) -> Broken | None:
        self.opened += 1
        return None

    def call(self, op: str, request: Mapping[str, Any], deadline_s: float) -> Reply:
        self.asked.append((op, request))
        return self.replies.pop(0)

    def late(self) -> tuple[Late, ...]:
        return ()

    def close(self) -> None:
        pass


def case(*steps: Step, **more: Any) -> Case:
    head = {
        "id": "x/y/z",
        "contract": "x",
        "requirements": ("XXX-001",),
        "level": Level.MUST,
        "profile": "p",
        "kind": Kind.EXAMPLE,
    }
    prose = {"status": Status.STABLE, "title": "t", "given": "g", "why": "w"}
    return Case(**{**head, **prose, "steps": steps, **more})  # type: ignore[arg-type]


def step(expect: dict[str, Any], op: str = "x.do", **more: Any) -> Step:
    return Step(op, more.pop("request", {}), parse(expect), **more)


def returned(**value: Any) -> Returned:
    return Returned(value)


EXACT = {"equals": [{"at": "/n", "value": 1}]}
CLOSE = {"close": [{"at": "/n", "value": np.array([1.0]), "bound": {"float32": {"rtol": 0, "atol": 1e-6}}}]}
BESIDE = {"close": [*CLOSE["close"], {**CLOSE["close"][0], "at": "/more", "optional": True}]}
EITHER = {
    "any_of": [
        [{"at": "/outcome", "value": "miss"}],
        [{"at": "/outcome", "value": "hit"}, {"at": "/n", "value": 1, "optional": True}],
    ]
}

SELECTS = {"selects": {"supports": [{"at": "/v", "lists": [{"legal": 2, "most": 1}]}], "close": CLOSE["close"]}}


@pytest.mark.parametrize(
    ("expect", "reply", "verdict"),
    [
        ({"accepts": True}, returned(n=1), Verdict.PASS),
        ({"accepts": True}, Refused("A"), Verdict.FAIL),
        ({"accepts": True}, Broken("crash"), Verdict.ERROR),
        ({"accepts": True}, NotSupported(), Verdict.NOT_APPLICABLE),
        ({"rejects": "A"}, Refused("A"), Verdict.PASS),
        ({"rejects": "A"}, Refused("B"), Verdict.WRONG_REASON),
        ({"rejects": "A"}, Refused(None), Verdict.WRONG_REASON),
        ({"rejects": "A"}, returned(n=1), Verdict.FAIL),
        ({"rejects": "A"}, Broken("timeout"), Verdict.ERROR),
        (EXACT, returned(n=1), Verdict.PASS),
        (EXACT, returned(n=2), Verdict.FAIL),
        (EXACT, returned(n=True), Verdict.FAIL),
        (EXACT, returned(), Verdict.FAIL),
        (BESIDE, returned(n=np.float32([1.0])), Verdict.PASS),
        (BESIDE, returned(n=np.float32([1.0]), more=np.float32([1.0])), Verdict.PASS),
        (BESIDE, returned(n=np.float32([1.0]), more=np.float32([2.0])), Verdict.FAIL),
        (BESIDE, returned(more=np.float32([1.0])), Verdict.FAIL),
        (EXACT | {"may_reject": True}, Refused(None), Verdict.PASS),
        (EXACT | {"else": "inconclusive"}, returned(n=2), Verdict.INCONCLUSIVE),
        (EXACT | {"else": "inconclusive"}, Refused("A"), Verdict.INCONCLUSIVE),
        (EXACT | {"else": "inconclusive"}, Broken("crash"), Verdict.ERROR),
        (EITHER, returned(outcome="miss"), Verdict.PASS),
        (EITHER, returned(outcome="hit"), Verdict.PASS),
        (EITHER, returned(outcome="hit", n=1), Verdict.PASS),
        (EITHER, returned(outcome="hit", n=2), Verdict.FAIL),
        (CLOSE, returned(n=np.float32([1.0])), Verdict.PASS),
        (CLOSE, returned(n=np.float32([1.001])), Verdict.FAIL),
        (CLOSE, returned(n=np.float32([np.nan])), Verdict.FAIL),
        (CLOSE, returned(n=np.float16([1.0])), Verdict.FAIL),
        (CLOSE, returned(n=np.float32([[1.0]])), Verdict.FAIL),
        (CLOSE, returned(), Verdict.FAIL),
        (SELECTS, returned(v=[[1]], n=np.float32([1.0])), Verdict.PASS),
        (SELECTS, returned(v=[[1, 0]], n=np.float32([1.0])), Verdict.FAIL),
        (SELECTS, returned(v=[[1]], n=np.float32([2.0])), Verdict.FAIL),
        (SELECTS, Refused("A"), Verdict.FAIL),
    ],
)
def test_expectations(expect: dict[str, Any], reply: Reply, verdict: Verdict) -> None:
    assert judge(case(step(expect)), Canned(reply), RULES).verdict is verdict


@pytest.mark.parametrize(
    ("description", "more", "verdict", "calls"),
    [
        ({}, {}, Verdict.PASS, 1),
        ({"profiles": frozenset()}, {}, Verdict.NOT_APPLICABLE, 0),
        ({"profiles": frozenset({"p"}), "ops": frozenset({"x.more"})}, {}, Verdict.FAIL, 0),
        ({"ops": frozenset({"x.more"})}, {}, Verdict.NOT_APPLICABLE, 0),
        ({}, {"needs": {"cap": ("yes",)}}, Verdict.NOT_APPLICABLE, 0),
        ({"capabilities": {"cap": "yes"}}, {"needs": {"cap": ("yes",)}}, Verdict.PASS, 1),
        ({}, {"needs": {"cap": ("no", "yes")}}, Verdict.PASS, 1),
        ({}, {"variant": "v"}, Verdict.NOT_APPLICABLE, 0),
        ({"variants": frozenset({"v"})}, {"variant": "v"}, Verdict.PASS, 1),
    ],
)
def test_applicability_is_decided_before_the_first_call(
    description: dict[str, Any], more: dict[str, Any], verdict: Verdict, calls: int
) -> None:
    engine = Canned(returned(n=1), **description)
    assert judge(case(step({"accepts": True}), **more), engine, RULES).verdict is verdict
    assert len(engine.asked) == engine.opened == calls


def test_a_missing_control_is_not_applicable_even_when_the_profile_is_claimed() -> None:
    engine = Canned(profiles=frozenset({"p"}))
    result = judge(case(step({"accepts": True}, op="control.hold")), engine, RULES)
    assert result.verdict is Verdict.NOT_APPLICABLE
    assert "control control.hold" in result.finding.message  # type: ignore[union-attr]


def test_an_op_of_another_profile_that_is_not_claimed_is_not_applicable() -> None:
    engine = Canned(profiles=frozenset({"p"}))
    assert judge(case(step({"accepts": True}, op="x.other")), engine, RULES).verdict is Verdict.NOT_APPLICABLE


def test_the_first_step_that_does_not_hold_ends_the_case() -> None:
    engine = Canned(returned(n=2), returned(n=1))
    result = judge(case(step(EXACT), step(EXACT)), engine, RULES)
    assert (result.verdict, result.finding.step, len(engine.asked)) == (Verdict.FAIL, 0, 1)  # type: ignore[union-attr]


def test_bound_values_reach_later_requests_untouched() -> None:
    first = step({"accepts": True}, bind={"a": "/part"})
    second = step({"accepts": True}, request={"list": [{"$bind": "a"}], "n": 1})
    part = {"k": np.float32([1.0])}
    engine = Canned(returned(part=part), returned())
    assert judge(case(first, second), engine, RULES).verdict is Verdict.PASS
    assert engine.asked[1][1]["list"][0] is part


def test_a_rejection_where_a_later_step_needs_the_result_is_inconclusive() -> None:
    first = step({"accepts": True, "may_reject": True}, bind={"a": "/part"})
    assert judge(case(first), Canned(Refused("A")), RULES).verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize(
    ("value", "verdict"),
    [(1, Verdict.PASS), (0, Verdict.INCONCLUSIVE), (None, Verdict.INCONCLUSIVE), (True, Verdict.INCONCLUSIVE)],
)
def test_a_witness_below_its_minimum_is_inconclusive(value: Any, verdict: Verdict) -> None:
    one = step({"accepts": True}, witness=({"at": "/moved", "minimum": 1},))
    assert judge(case(one), Canned(returned(moved=value)), RULES).verdict is verdict


def test_a_result_outside_its_schema_fails_whatever_was_expected() -> None:
    rules = Rules(RULES.profiles, {}, lambda op, value: "bad")
    assert judge(case(step({"accepts": True})), Canned(returned(n=1)), rules).verdict is Verdict.FAIL


def test_a_state_in_a_schema_that_was_not_declared_fails() -> None:
    state = {"schema": "o-lse-v1", "base": 2, "o": np.zeros((1, 1)), "lse": np.zeros(1)}
    one = case(step({"accepts": True}))
    assert judge(one, Canned(returned(state=state), states=("o-lse-v1/e",)), RULES).verdict is Verdict.FAIL
    assert judge(one, Canned(returned(state=state), states=("o-lse-v1/2",)), RULES).verdict is Verdict.PASS


def test_literal_states_are_written_in_the_schema_that_the_engine_speaks() -> None:
    state = {"schema": "fp32-m-l-u-v1", "m": np.float32([0]), "l": np.float32([2]), "u": np.float32([[4]])}
    one = case(step({"accepts": True}, request={"states": [state]}))
    for spoken, schema in (("fp32-m-l-u-v1", "fp32-m-l-u-v1"), ("o-lse-v1/2", "o-lse-v1")):
        engine = Canned(returned(), states=(spoken,))
        judge(one, engine, RULES)
        assert engine.asked[0][1]["states"][0]["schema"] == schema


BOUND = {"float32": {"rtol": 0, "atol": 0.1}}


@pytest.mark.parametrize(
    ("relation", "a", "b", "verdict"),
    [
        ({"relation": "equal"}, 1, 1, Verdict.PASS),
        ({"relation": "equal"}, 1, 2, Verdict.FAIL),
        ({"relation": "distinct"}, "k1", "k2", Verdict.PASS),
        ({"relation": "distinct"}, "k1", "k1", Verdict.FAIL),
        ({"relation": "distinct", "bound": BOUND}, np.float32([0]), np.float32([0.5]), Verdict.FAIL),
        ({"relation": "distinct", "bound": BOUND}, np.float32([0]), np.float32([1.5]), Verdict.PASS),
        ({"relation": "distinct", "bound": BOUND}, np.float32([0]), np.float32([np.nan]), Verdict.FAIL),
        ({"relation": "close", "bound": BOUND}, np.float32([0]), np.float32([0.05]), Verdict.PASS),
        ({"relation": "close", "bound": BOUND}, np.float32([0]), np.float32([0.5]), Verdict.FAIL),
        ({"relation": "le"}, np.float32([0, 1]), np.float32([0, 2]), Verdict.PASS),
        ({"relation": "le"}, np.float32([0, 3]), np.float32([0, 2]), Verdict.FAIL),
        ({"relation": "le"}, np.float32([np.nan]), np.float32([2]), Verdict.FAIL),
        ({"relation": "subset"}, [1, 2], [2, 1, 3], Verdict.PASS),
        ({"relation": "subset"}, [1, 4], [2, 1, 3], Verdict.FAIL),
        ({"relation": "permutation"}, [1, 2, 2], [2, 1, 2], Verdict.PASS),
        ({"relation": "permutation"}, [1, 2, 2], [2, 1, 1], Verdict.FAIL),
        ({"relation": "permutation"}, [1, "x"], 5, Verdict.FAIL),
        ({"relation": "le"}, np.float32([0]), np.float32([1, 2]), Verdict.FAIL),
        ({"relation": "le"}, np.float32([]), np.float32([]), Verdict.FAIL),
        ({"relation": "le", "bound": BOUND}, np.float32([1.05]), np.float32([1.0]), Verdict.PASS),
        ({"relation": "le", "bound": BOUND}, np.float32([1.5]), np.float32([1.0]), Verdict.FAIL),
        ({"relation": "subset"}, [], [1], Verdict.FAIL),
        ({"relation": "subset"}, [True], [1], Verdict.FAIL),
        ({"relation": "close", "bound": BOUND}, "text", np.float32([0.5]), Verdict.FAIL),
        ({"relation": "close", "bound": BOUND}, {"a": 1}, np.float32([0.5]), Verdict.FAIL),
        ({"relation": "close", "bound": BOUND}, [1, 2], [1, 2], Verdict.FAIL),
        ({"relation": "close"}, np.float32([0]), np.float32([0]), Verdict.FAIL),
    ],
)
def test_relations(relation: dict[str, Any], a: Any, b: Any, verdict: Verdict) -> None:
    steps = [step({"accepts": True}, bind={"a": "/v"}), step({"accepts": True}, bind={"b": "/v"})]
    one = case(*steps, relations=({**relation, "of": ["a", "b"]},))
    assert judge(one, Canned(returned(v=a), returned(v=b)), RULES).verdict is verdict


def test_a_relation_can_address_the_meaning_of_a_state() -> None:
    def state(lse: float) -> dict[str, Any]:
        return {"schema": "o-lse-v1", "base": "e", "o": np.float32([[1.0]]), "lse": np.float32([lse])}

    steps = [step({"accepts": True}, bind={"a": "/v"}), step({"accepts": True}, bind={"b": "/v"})]
    replies = (returned(v=state(0.0)), returned(v=state(9.0)))
    out = case(*steps, relations=({"relation": "close", "of": ["a/out", "b/out"], "bound": BOUND},))
    lse = case(*steps, relations=({"relation": "close", "of": ["a/lse", "b/lse"], "bound": BOUND},))
    assert judge(out, Canned(*replies, states=("o-lse-v1/e",)), RULES).verdict is Verdict.PASS
    assert judge(lse, Canned(*replies, states=("o-lse-v1/e",)), RULES).verdict is Verdict.FAIL


def test_an_engine_may_decline_the_first_request_and_not_a_later_one() -> None:
    steps = step({"accepts": True}), step({"accepts": True})
    assert judge(case(*steps), Canned(NotSupported()), RULES).verdict is Verdict.NOT_APPLICABLE
    assert judge(case(*steps), Canned(returned(), NotSupported()), RULES).verdict is Verdict.INCONCLUSIVE
    rejected = step({"accepts": True}), step({"rejects": "A"})
    assert judge(case(*rejected), Canned(returned(), NotSupported()), RULES).verdict is Verdict.NOT_APPLICABLE


def test_a_relation_over_a_member_that_is_missing_fails() -> None:
    steps = [step({"accepts": True}, bind={"a": "/v"}), step({"accepts": True}, bind={"b": "/v"})]
    one = case(*steps, relations=({"relation": "equal", "of": ["a/x", "b"]},))
    assert judge(one, Canned(returned(v={}), returned(v={})), RULES).verdict is Verdict.FAIL


REPLIES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4) | st.just(np.float32([1.0, 2.0])),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["n", "v", "schema", "m", "l", "u", "o", "lse", "base", "outcome"]), inner, max_size=5
        )
    ),
    max_leaves=8,
)
MEMBERS = st.dictionaries(st.sampled_from(["n", "v", "outcome"]), REPLIES, max_size=3)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    value=MEMBERS, expect=st.sampled_from([EXACT, EITHER, CLOSE, BESIDE, SELECTS, {"accepts": True}, {"rejects": "A"}])
)
def test_nothing_that_an_engine_returns_makes_the_judge_raise(value: dict[str, Any], expect: dict[str, Any]) -> None:
    for name in ("close", "distinct", "equal", "le", "subset", "permutation"):
        relations = ({"relation": name, "of": ["a", "b"], "bound": BOUND},)
        one = case(step({"accepts": True}, bind={"a": "/v"}), step(expect, bind={"b": "/v"}), relations=relations)
        assert judge(one, Canned(Returned(value), Returned(value)), RULES).verdict in set(Verdict)
