"""The judge: one case and one engine in, one verdict out.

Applicability is decided before the first call. Steps run in order on a fresh engine; the first step that does not
hold ends the case. Relations are checked after the last step.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from . import relations
from .compare import (
    NotComparable,
    close,
    dtypes,
    from_literal,
    is_literal_state,
    is_state,
    meaning,
    same,
    state_schema,
    tolerance,
)
from .engine import Broken, Engine, NotSupported, Refused, Reply, Returned
from .model import Case, EngineDescription, Exchange, Finding, Json, Result, Step, Verdict
from .pointers import Missing, resolve

CONTROL = "control."


@dataclass(frozen=True)
class Rules:
    """What the corpus tells the judge beyond the case."""

    profiles: Mapping[str, frozenset[str]]
    """Profile to its ops."""
    defaults: Mapping[str, Json]
    """Capability to the value of an engine that declares nothing."""
    check_result: Callable[[str, Mapping[str, Json]], str | None]
    """Op and result to what its response schema says against it."""
    deadline_scale: float = 1.0


@dataclass(frozen=True)
class _Outcome:
    verdict: Verdict
    finding: Finding | None = None
    ratio: float | None = None


PASS = _Outcome(Verdict.PASS)


def claimed(description: EngineDescription, profiles: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """Profiles that the engine is held to: those it names, or each all of whose ops it has."""
    if description.profiles is not None:
        return description.profiles
    return frozenset(name for name, ops in profiles.items() if ops and ops <= description.ops)


def applicability(case: Case, description: EngineDescription, rules: Rules) -> tuple[Verdict, str] | None:
    """Why the case cannot run on this engine, with its verdict; ``None`` when it can."""
    own = claimed(description, rules.profiles)
    if case.profile not in own:
        return Verdict.NOT_APPLICABLE, f"the engine does not claim the profile {case.profile}"
    if case.variant is not None and case.variant not in description.variants:
        return Verdict.NOT_APPLICABLE, f"the engine does not implement the variant {case.variant}"
    for name, wanted in case.needs.items():
        declared = description.capabilities.get(name, rules.defaults.get(name))
        if not any(same(declared, value) for value in wanted):
            return Verdict.NOT_APPLICABLE, f"the engine declares {name} = {declared!r}"
    missing = sorted(case.ops - description.ops)
    due = frozenset().union(*(rules.profiles.get(name, frozenset()) for name in own))
    for op in missing:
        if op in due:
            return Verdict.FAIL, f"the engine claims the profile {case.profile} and lacks the op {op}"
    if missing:
        kind = "control" if missing[0].startswith(CONTROL) else "op"
        return Verdict.NOT_APPLICABLE, f"the engine has no {kind} {missing[0]}"
    return None


def judge(case: Case, engine: Engine, rules: Rules) -> Result:
    """Run one case on one engine."""
    started = time.perf_counter()
    barred = applicability(case, engine.description, rules)
    if barred is not None:
        return Result(case, barred[0], Finding(None, "", barred[1]))
    exchanges: list[Exchange] = []
    outcome = _run(case, engine, rules, exchanges)
    return Result(
        case,
        outcome.verdict,
        outcome.finding,
        tuple(exchanges),
        time.perf_counter() - started,
        outcome.ratio,
    )


def _run(case: Case, engine: Engine, rules: Rules, exchanges: list[Exchange]) -> _Outcome:
    broken = engine.open()
    if broken is not None:
        return _Outcome(Verdict.ERROR, Finding(None, "", f"the engine did not open: {broken.kind}: {broken.detail}"))
    bound_values: dict[str, Json] = {}
    bound_dtypes: set[str] = set()
    ratio: float | None = None
    for index, step in enumerate(case.steps):
        request = step.request
        if step.is_dynamic:
            request = substitute(request, bound_values, engine.description.states)
        before = time.perf_counter()
        reply = engine.call(step.op, request, step.deadline_s * rules.deadline_scale)
        exchanges.append(Exchange(step.op, request, reply, time.perf_counter() - before))
        outcome = _step(step, index, reply, engine.description, rules, bound_dtypes)
        ratio = _larger(ratio, outcome.ratio)
        if outcome.verdict is not Verdict.PASS:
            return _Outcome(outcome.verdict, outcome.finding, ratio)
        if isinstance(reply, Returned):
            for name, pointer in step.bind.items():
                try:
                    bound_values[name] = resolve(reply.value, pointer)
                except Missing:
                    return _Outcome(
                        Verdict.FAIL,
                        Finding(index, pointer, "the result lacks this member", returned=reply.value),
                        ratio,
                    )
                bound_dtypes |= dtypes(bound_values[name])
        elif step.bind:
            return _Outcome(
                Verdict.INCONCLUSIVE, Finding(index, "", "nothing was returned that later steps need"), ratio
            )
    for relation in case.relations:
        finding, seen = relations.check(relation, bound_values)
        ratio = _larger(ratio, seen if relation["relation"] == "close" else None)
        if finding is not None:
            return _Outcome(Verdict.FAIL, finding, ratio)
    return _Outcome(Verdict.PASS, ratio=ratio)


def substitute(value: Json, bound_values: Mapping[str, Json], states: tuple[str, ...]) -> Any:
    """A request with its bound values in place and its literal states in a schema that the engine speaks."""
    if isinstance(value, Mapping):
        if value.keys() == {"$bind"}:
            return bound_values[value["$bind"]]
        if is_literal_state(value) and states and state_schema(value) not in states:
            return from_literal(value, states[0])
        return {key: substitute(item, bound_values, states) for key, item in value.items()}
    if isinstance(value, list):
        return [substitute(item, bound_values, states) for item in value]
    return value


def _larger(a: float | None, b: float | None) -> float | None:
    return b if a is None else a if b is None else max(a, b)


def _step(
    step: Step, index: int, reply: Reply, description: EngineDescription, rules: Rules, bound_dtypes: set[str]
) -> _Outcome:
    if isinstance(reply, Broken):
        return _Outcome(Verdict.ERROR, Finding(index, "", f"{reply.kind}: {reply.detail}"))
    if isinstance(reply, NotSupported):
        return _Outcome(Verdict.NOT_APPLICABLE, Finding(index, "", f"unsupported: {reply.detail or step.op}"))
    if isinstance(reply, Refused):
        return _soften(step, _refused(step, index, reply))
    problem = rules.check_result(step.op, reply.value) or _states_problem(reply.value, description.states)
    if problem:
        return _Outcome(Verdict.FAIL, Finding(index, "", problem, "a result of the op's schema", reply.value))
    outcome = _soften(step, _returned(step, index, reply, bound_dtypes))
    if outcome.verdict is Verdict.PASS:
        for witness in step.witness:
            seen = _at(reply.value, witness["at"])
            if isinstance(seen, bool) or not isinstance(seen, int | float) or seen < witness["minimum"]:
                message = (
                    f"the path under test was not exercised: {witness['at']} is {seen!r}, needs {witness['minimum']}"
                )
                return _Outcome(Verdict.INCONCLUSIVE, Finding(index, witness["at"], message, returned=reply.value))
    return outcome


def _soften(step: Step, outcome: _Outcome) -> _Outcome:
    if outcome.verdict in (Verdict.FAIL, Verdict.WRONG_REASON) and step.expect.get("else") == "inconclusive":
        return replace(outcome, verdict=Verdict.INCONCLUSIVE)
    return outcome


def _refused(step: Step, index: int, reply: Refused) -> _Outcome:
    if step.expect.get("may_reject"):
        return PASS
    got = reply.reason or "no mapped reason"
    if "rejects" not in step.expect:
        message = f"a legal request was rejected: {got}"
        return _Outcome(Verdict.FAIL, Finding(index, "", _with(message, reply.detail), _expected(step), got))
    if reply.reason == step.expect["rejects"]:
        return PASS
    message = _with(f"rejected for {got}", reply.detail)
    return _Outcome(Verdict.WRONG_REASON, Finding(index, "", message, f"rejected for {step.expect['rejects']}", got))


def _with(message: str, detail: str) -> str:
    return f"{message} ({detail})" if detail else message


def _expected(step: Step) -> Json:
    return next((step.expect[key] for key in ("equals", "any_of", "close") if key in step.expect), "a result")


def _states_problem(value: Json, states: tuple[str, ...]) -> str | None:
    for member in value.values():
        if is_state(member) and state_schema(member) not in states:
            return f"the state is {state_schema(member)}, which the engine does not declare"
    return None


def _at(value: Json, pointer: str) -> Json:
    try:
        return resolve(value, pointer)
    except Missing:
        return None


def _returned(step: Step, index: int, reply: Returned, bound_dtypes: set[str]) -> _Outcome:
    expect, value = step.expect, reply.value
    if "accepts" in expect:
        return PASS
    if "rejects" in expect:
        message = f"accepted what must be rejected for {expect['rejects']}"
        return _Outcome(Verdict.FAIL, Finding(index, "", message, f"rejected for {expect['rejects']}", value))
    if "close" in expect:
        return _close(expect["close"], index, value, bound_dtypes)
    alternatives = expect.get("any_of") or [expect["equals"]]
    problems = [_exact(rows, value) for rows in alternatives]
    if None in problems:
        return PASS
    at, message, expected, returned = problems[0]  # type: ignore[misc]
    if len(alternatives) > 1:
        message, expected = f"none of {len(alternatives)} legal outcomes; for the first, {message}", alternatives
    return _Outcome(Verdict.FAIL, Finding(index, at, message, expected, returned))


def _exact(rows: list[Mapping[str, Json]], value: Json) -> tuple[str, str, Json, Json] | None:
    for row in rows:
        try:
            found = resolve(value, row["at"])
        except Missing:
            if row.get("optional"):
                continue
            return row["at"], f"the result lacks {row['at']}", row["value"], value
        if not same(found, row["value"]):
            return row["at"], f"{row['at']} differs", row["value"], found
    return None


def _close(rows: list[Mapping[str, Json]], index: int, value: Json, bound_dtypes: set[str]) -> _Outcome:
    worst: float | None = None
    for row in rows:
        try:
            found = resolve(value, row["at"])
        except Missing:
            return _Outcome(
                Verdict.FAIL, Finding(index, row["at"], f"the result lacks {row['at']}", row["value"], value)
            )
        try:
            # A state that the case bound earlier carries its own rounding into this reply.
            carried = bound_dtypes & row["bound"].keys()
            limits = tolerance(row["bound"], dtypes(found) | carried)
            difference = close(meaning(found) if is_state(found) else found, row["value"], limits)
        except NotComparable as problem:
            return _Outcome(Verdict.FAIL, Finding(index, row["at"], str(problem), row["value"], found))
        worst = _larger(worst, difference.ratio)
        if not difference.agrees:
            finding = Finding(index, row["at"], difference.message, row["value"], found, difference.ratio)
            return _Outcome(Verdict.FAIL, finding, worst)
    return _Outcome(Verdict.PASS, ratio=worst)
