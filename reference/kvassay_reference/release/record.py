"""Records of rollouts: each transition judged on the evidence that it names, and the rest derived from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

from ..errors import Refusal
from ..manifest import Digest, Natural
from . import rollout
from .registry import Text
from .rollout import CLOSED, OFF, Candidate, Evidence, Gate, Milli, Rollback, State, Station


@dataclass(frozen=True)
class Transition:
    """One step."""

    source: State
    target: State
    fraction_milli: Milli
    evidence: Evidence | None
    failed: tuple[Gate, ...]

    @property
    def station(self) -> Station:
        """Where it leads."""
        return Station(self.target, self.fraction_milli)

    @property
    def back(self) -> bool:
        """Whether it leads back."""
        return self.target == "EXACT_BASELINE"


@dataclass(frozen=True)
class Outputs:
    """What some users got while the candidate was CANARY."""

    tenant: Text
    request_class: Text
    outputs: Annotated[int, 1]


@dataclass(frozen=True)
class Served:
    """Outputs of the candidate that users got."""

    shadow: Natural
    canary: tuple[Outputs, ...]


@dataclass(frozen=True)
class Record:
    """The whole."""

    candidate: Candidate
    manifest_sha256: Digest
    transitions: Annotated[tuple[Transition, ...], 1]
    state: State
    fraction_milli: Milli
    served: Served
    rollback: Rollback | None


@dataclass(frozen=True)
class Walk:
    """A record on the way: where it stands, what happened, and which evidence was used."""

    record: Record
    station: Station = OFF
    rollback: Rollback | None = None
    used: tuple[str, ...] = ()
    passed: tuple[str, ...] = ("OFF",)


@dataclass(frozen=True)
class StepRule:
    """A reason and what must hold of a transition where the record stands, with the gates that failed."""

    reason: str
    holds: Callable[[Walk, Transition, Sequence[str]], bool]


@dataclass(frozen=True)
class EndRule:
    """A reason and what must hold after the last transition."""

    reason: str
    holds: Callable[[Walk], bool]


def _next_state(walk: Walk, step: Transition, failed: Sequence[str]) -> bool:
    following = walk.record.candidate.after(walk.station)
    return step.back or (following is not None and following.state == step.target)


def _next_share(walk: Walk, step: Transition, failed: Sequence[str]) -> bool:
    return step.station == (CLOSED if step.back else walk.record.candidate.after(walk.station))


def _within(walk: Walk) -> bool:
    scope, rows = walk.record.candidate.canary, walk.record.served.canary
    return all(scope.covers(row.tenant, row.request_class) and "CANARY" in walk.passed for row in rows)


# fmt: off
BEFORE: tuple[StepRule, ...] = (
    StepRule("ROLLED_BACK_MANIFEST", lambda walk, step, failed: walk.rollback is None),
    StepRule("ROLLOUT_STEP_SKIPPED", lambda walk, step, failed: step.source == walk.station.state),
    StepRule("ROLLOUT_STEP_SKIPPED", _next_state),
    StepRule("RAMP_FRACTION_SKIPPED", _next_share),
    StepRule("EVIDENCE_OF_OTHER_STAGE",
             lambda walk, step, failed: walk.station != OFF or step.evidence is None),
    StepRule("EVIDENCE_MISSING", lambda walk, step, failed: walk.station == OFF or step.evidence is not None),
)
"""Before the evidence is read."""
AFTER: tuple[StepRule, ...] = (
    StepRule("FAILED_GATE_PASSED", lambda walk, step, failed: step.back or not failed),
    StepRule("ROLLBACK_WITHOUT_CAUSE", lambda walk, step, failed: not step.back or bool(failed)),
    StepRule("FAILED_GATES_MISMATCH", lambda walk, step, failed: list(step.failed) == list(failed)),
)
"""Once it is known which gates failed."""
END: tuple[EndRule, ...] = (
    EndRule("ROLLOUT_STATE_MISMATCH",
            lambda walk: Station(walk.record.state, walk.record.fraction_milli) == walk.station),
    EndRule("SHADOW_OUTPUT_SERVED", lambda walk: walk.record.served.shadow == 0),
    EndRule("SERVED_OUTSIDE_CANARY", _within),
    EndRule("ROLLBACK_TYPE_MISMATCH", lambda walk: walk.record.rollback == walk.rollback),
)
# fmt: on
Rule = rollout.Rule | StepRule | EndRule


def hold(rules: Sequence[StepRule], walk: Walk, step: Transition, failed: Sequence[str]) -> None:
    """Refuse a transition for the first rule that it breaks."""
    for rule in rules:
        if not rule.holds(walk, step, failed):
            raise Refusal(rule.reason, f"{step.source} to {step.target}")


@dataclass(frozen=True)
class Review:
    """How records are judged; faults leave rules out."""

    skipped: frozenset[str] = frozenset()

    def kept(self, rules: Sequence[StepRule]) -> list[StepRule]:
        """Rules that are not left out."""
        return [rule for rule in rules if rule.reason not in self.skipped]

    def shared(self) -> Iterator[rollout.Rule]:
        """Rules of candidates and evidence, less those left out."""
        return (rule for rule in rollout.RULES if rule.reason not in self.skipped)

    def step(self, walk: Walk, step: Transition) -> Walk:
        """One transition further."""
        hold(self.kept(BEFORE), walk, step, ())
        failed: list[str] = []
        used = walk.used
        if step.evidence is not None and walk.station != OFF:
            candidate, seen = walk.record.candidate, step.evidence
            origin = [rule for rule in self.shared() if rule.reason.startswith("EVIDENCE_OF_OTHER")]
            rollout.check_evidence(candidate, seen, walk.station, not step.back, origin)
            if seen.id in used and "COMPETING_EVIDENCE" not in self.skipped:
                raise Refusal("COMPETING_EVIDENCE", seen.id)
            rollout.check_evidence(candidate, seen, walk.station, not step.back, self.shared())
            used = (*used, seen.id)
            failed = [row.gate for row in rollout.gates(candidate, seen) if row.failed]
        hold(self.kept(AFTER), walk, step, failed)
        back = rollout.typed(walk.station.state, failed) if step.back else walk.rollback
        return Walk(walk.record, step.station, back, used, (*walk.passed, step.target))

    def admit(self, record: Record) -> None:
        """Accept a record or refuse it."""
        sealed = record.manifest_sha256 == record.candidate.manifest.sha256
        if not sealed and "RELEASE_DIGEST_MISMATCH" not in self.skipped:
            raise Refusal("RELEASE_DIGEST_MISMATCH", record.manifest_sha256)
        rollout.check_candidate(record.candidate, self.shared())
        walk = Walk(record)
        for transition in record.transitions:
            walk = self.step(walk, transition)
        for rule in END:
            if rule.reason not in self.skipped and not rule.holds(walk):
                raise Refusal(rule.reason, f"{walk.station.state} at {walk.station.fraction_milli}")
