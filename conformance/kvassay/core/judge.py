"""The judge: one case and one engine in, one verdict out.

Applicability is decided before the first call. Steps run in order on a fresh engine; the first step that does not
hold ends the case. Relations are checked after the last step. Nothing that an engine returns makes the judge raise.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from . import relations
from .compare import NotComparable, Numbers, numbers, same
from .engine import Broken, Engine, NotSupported, Refused, Reply, Returned
from .expect import PASS, Outcome, fail
from .model import Case, EngineDescription, Exchange, Finding, Json, Result, Step, Verdict
from .monitor import Watch, unwatched
from .pointers import Missing, resolve
from .states import is_state, meaning, schema_of, states_in
from .template import INDEX, substitute
from .tensors import UNIT_ROUNDOFF

CONTROL = "control."
MOST_REPETITIONS = 4096
"""Above it an engine that tells of a million slots would hold up the run."""


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
    watch: Watch = unwatched
    """Makes the monitor of a contract whose rules are wider than what single cases say."""


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
    for op in missing:
        due = sorted(name for name in own if op in rules.profiles.get(name, ()))
        if due and not op.startswith(CONTROL):
            return Verdict.FAIL, f"the engine claims the profile {due[0]} and lacks the op {op}"
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
    trial = _Trial(case, engine, rules)
    outcome = trial.run()
    return Result(
        case,
        outcome.verdict,
        outcome.finding,
        tuple(trial.exchanges),
        time.perf_counter() - started,
        outcome.ratio,
        ran=True,
        unsupported=outcome.verdict is Verdict.NOT_APPLICABLE and not trial.barred,
    )


class _Trial:
    """One case on one engine: what has been exchanged and bound so far."""

    def __init__(self, case: Case, engine: Engine, rules: Rules) -> None:
        self.case = case
        self.engine = engine
        self.rules = rules
        self.exchanges: list[Exchange] = []
        self.bound: dict[str, Json] = {}
        self.carried: frozenset[str] = frozenset()
        """Dtypes of what is bound: its rounding may show in later replies."""
        self.ratio: float | None = None
        self.monitor = rules.watch(case.contract, engine.description)
        self.barred = False
        """Whether the case came to a call that this engine need not withstand."""

    def run(self) -> Outcome:
        broken = self.engine.open()
        if broken is not None:
            return _error(None, f"the engine did not open: {broken.kind}: {broken.detail}")
        for index, step in enumerate(self.case.steps):
            outcome = self._repeated(step, index)
            if not outcome.holds:
                return replace(outcome, ratio=self.ratio)
        for relation in self.case.relations:
            outcome = relations.check(relation, self.bound)
            if relation["relation"] == "close":
                outcome = self._kept(outcome)
            if not outcome.holds:
                return replace(outcome, ratio=self.ratio)
        return Outcome(Verdict.PASS, ratio=self.ratio)

    def _kept(self, outcome: Outcome) -> Outcome:
        if outcome.ratio is not None:
            self.ratio = outcome.ratio if self.ratio is None else max(self.ratio, outcome.ratio)
        return outcome

    def _repeated(self, step: Step, index: int) -> Outcome:
        if step.repeat is None:
            return self._kept(self._step(step, index))
        count = step.repeat.count(self.bound)
        if not count or count > MOST_REPETITIONS:
            message = f"how often to repeat is {count!r}; it must be from 1 to {MOST_REPETITIONS}"
            return Outcome(Verdict.INCONCLUSIVE, Finding(index, "", message))
        for number in range(count):
            self.bound[INDEX] = number
            outcome = self._kept(self._step(step, index))
            if not outcome.holds:
                return outcome
        return PASS

    def _step(self, step: Step, index: int) -> Outcome:
        request = step.request
        if step.dynamic:
            try:
                request = substitute(request, self.bound, self.engine.description.states)
            except NotComparable as problem:
                return _at(index, fail(str(problem)))
        why = self.monitor.bars(step.op, request) if self.monitor is not None else None
        if why is not None:
            self.barred = True
            return Outcome(Verdict.NOT_APPLICABLE, Finding(index, "", f"the engine need not withstand this: {why}"))
        before = time.perf_counter()
        reply = self.engine.call(step.op, request, step.deadline_s * self.rules.deadline_scale)
        self.exchanges.append(Exchange(step.op, request, reply, time.perf_counter() - before))
        outcome = self._replied(step, index, reply)
        if self.monitor is not None and outcome.verdict in (Verdict.PASS, Verdict.INCONCLUSIVE):
            watched = self.monitor.observe(step.op, request, reply)
            outcome = outcome if watched.holds else watched
        if outcome.holds and step.bind:
            bound = self._bind(step, reply)
            outcome = outcome if bound.holds else bound
        return _at(index, outcome)

    def _replied(self, step: Step, index: int, reply: Reply) -> Outcome:
        if isinstance(reply, Broken):
            return _error(index, f"{reply.kind}: {reply.detail}")
        if isinstance(reply, NotSupported):
            return _unsupported(step, index, reply)
        if isinstance(reply, Refused):
            return step.expect.refused(reply)
        problem = self.rules.check_result(step.op, reply.value) or self._state_problem(reply.value)
        if problem:
            return fail(problem, "a result of the op's schema", reply.value)
        outcome = step.expect.returned(reply.value, self.carried)
        return outcome if not outcome.holds else _witnessed(step, reply, outcome)

    def _state_problem(self, value: Json) -> str | None:
        for state in states_in(value):
            if schema_of(state) not in self.engine.description.states:
                return f"the state is {schema_of(state)}, which the engine does not declare"
        return None

    def _bind(self, step: Step, reply: Reply) -> Outcome:
        if not isinstance(reply, Returned):
            return Outcome(Verdict.INCONCLUSIVE, Finding(None, "", "nothing was returned that later steps need"))
        for name, pointer in step.bind.items():
            try:
                self.bound[name] = resolve(reply.value, pointer)
            except Missing:
                return fail("the result lacks this member", returned=reply.value, at=pointer)
            self.carried |= _dtypes(self.bound[name])
        return PASS


def _unsupported(step: Step, index: int, reply: NotSupported) -> Outcome:
    """An engine may decline a case at its first request, or what is to be rejected; not once it has begun to serve."""
    detail = f"unsupported: {reply.detail or step.op}"
    if index == 0 or step.expect.reason:
        return Outcome(Verdict.NOT_APPLICABLE, Finding(index, "", detail))
    return Outcome(Verdict.INCONCLUSIVE, Finding(index, "", f"{detail}, after the engine took the steps before"))


def _witnessed(step: Step, reply: Returned, outcome: Outcome) -> Outcome:
    for witness in step.witness:
        try:
            seen = resolve(reply.value, witness["at"])
        except Missing:
            seen = None
        least = witness["minimum"]
        if isinstance(seen, bool) or not isinstance(seen, int | float) or not seen >= least:
            message = f"the path under test was not exercised: {witness['at']} is {seen!r}, needs {least}"
            return Outcome(Verdict.INCONCLUSIVE, Finding(None, witness["at"], message, returned=reply.value))
    return outcome


def _dtypes(value: Json) -> frozenset[str]:
    """Dtypes of a bound value that can round: those of a state, or of float numbers."""
    try:
        parts: list[Numbers] = list(meaning(value).values()) if is_state(value) else [numbers(value)]
    except NotComparable:
        return frozenset()
    return frozenset().union(*(part.dtypes for part in parts)) & UNIT_ROUNDOFF.keys()


def _at(index: int, outcome: Outcome) -> Outcome:
    """The outcome with the step written into its finding."""
    if outcome.finding is None:
        return outcome
    return replace(outcome, finding=replace(outcome.finding, step=index))


def _error(index: int | None, message: str) -> Outcome:
    return Outcome(Verdict.ERROR, Finding(index, "", message))
