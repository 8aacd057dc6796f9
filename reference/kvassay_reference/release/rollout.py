"""Rollouts: a candidate on its way from OFF to FULL, the gates of each step, and the way back.

The way is a list of stations (state and share of traffic); a candidate stands on one of them or is closed.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Annotated, Any, Literal, NamedTuple

from ..errors import Refusal
from ..manifest import Digest, Natural, write
from .registry import Text, unique

State = Literal["OFF", "SHADOW", "CANARY", "RAMP", "FULL", "EXACT_BASELINE"]
Gate = Literal[
    "logit_error",
    "quality_drop",
    "p99_tpot_ratio",
    "exposed_stall_ms",
    "allocation_failures",
    "illegal_fallbacks",
    "tenant_isolation_failures",
    "crash_restart",
    "idempotent_replay",
]
Amount = Annotated[float, 0, math.inf]
Milli = Annotated[int, 0, 1000]


class Station(NamedTuple):
    """A state with its share of traffic in thousandths."""

    state: str
    fraction_milli: int


OFF, SHADOW, CANARY, FULL = Station("OFF", 0), Station("SHADOW", 0), Station("CANARY", 0), Station("FULL", 1000)
CLOSED = Station("EXACT_BASELINE", 0)


@dataclass(frozen=True)
class Manifest:
    """What is rolled out."""

    model_sha256: Digest
    adapter_set_sha256: Digest
    representation: Text
    topology: Text
    workload: Text

    @property
    def sha256(self) -> str:
        """SHA-256 over canonical JSON: sorted keys, no blanks."""
        text = json.dumps(write(self), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class Limits:
    """What the gates allow."""

    logit_error: Amount | None
    quality_drop: Amount | None
    p99_tpot_ratio: Amount
    exposed_stall_ms: Amount
    allocation_failures: Natural


@dataclass(frozen=True)
class Canary:
    """Blast radius."""

    tenants: Annotated[tuple[Text, ...], 1]
    classes: Annotated[tuple[Text, ...], 1]

    def __post_init__(self) -> None:
        unique(self.tenants, self.classes)

    def covers(self, tenant: str, request_class: str) -> bool:
        """Whether a request is within."""
        return tenant in self.tenants and request_class in self.classes


@dataclass(frozen=True)
class Candidate:
    """What is proposed."""

    name: Text
    mode: Literal["exact", "approximate"]
    baseline_exact: bool
    manifest: Manifest
    limits: Limits
    canary: Canary
    ramp_milli: Annotated[tuple[Annotated[int, 1, 999], ...], 1]

    @property
    def exact(self) -> bool:
        """Whether its outputs are those of exact attention."""
        return self.mode == "exact"

    @property
    def stations(self) -> tuple[Station, ...]:
        """The way, in its order."""
        return OFF, SHADOW, CANARY, *(Station("RAMP", share) for share in self.ramp_milli), FULL

    def after(self, station: Station) -> Station | None:
        """The next station; none after FULL, and none off the way."""
        return dict(pairwise(self.stations)).get(station)


@dataclass(frozen=True)
class Logit:
    """Comparison with exact execution."""

    error: Amount
    controlled: bool


@dataclass(frozen=True)
class Quality:
    """Task quality."""

    drop: Amount
    held_out: bool


@dataclass(frozen=True)
class Tests:
    """How many ran, how many failed."""

    run: Natural
    failed: Natural

    @property
    def failures(self) -> int | None:
        """``None`` where nothing ran."""
        return self.failed if self.run else None


@dataclass(frozen=True)
class Evidence:
    """One measurement of a candidate in one state."""

    id: Text
    stage: State
    fraction_milli: Milli
    manifest_sha256: Digest
    logit: Logit | None
    quality: Quality | None
    p99_tpot_ratio: Amount | None
    exposed_stall_ms: Amount | None
    allocation_failures: Natural | None
    illegal_fallbacks: Natural | None
    tenant_isolation_failures: Natural | None
    restarts: Tests | None
    replays: Tests | None

    @property
    def station(self) -> Station:
        """Where it was taken."""
        return Station(self.stage, self.fraction_milli)


@dataclass(frozen=True)
class Measured:
    """One gate: its value, ``None`` where it was not measured, and its limit."""

    gate: Gate
    value: float | None
    limit: float

    @property
    def failed(self) -> bool:
        """The limit itself is allowed."""
        return self.value is not None and self.value > self.limit


def gates(candidate: Candidate, seen: Evidence) -> list[Measured]:
    """The gates of the candidate's mode, in their order."""
    limits = candidate.limits
    if candidate.exact:
        assert limits.logit_error is not None
        first = Measured("logit_error", seen.logit.error if seen.logit else None, limits.logit_error)
    else:
        assert limits.quality_drop is not None
        first = Measured("quality_drop", seen.quality.drop if seen.quality else None, limits.quality_drop)
    return [
        first,
        Measured("p99_tpot_ratio", seen.p99_tpot_ratio, limits.p99_tpot_ratio),
        Measured("exposed_stall_ms", seen.exposed_stall_ms, limits.exposed_stall_ms),
        Measured("allocation_failures", seen.allocation_failures, limits.allocation_failures),
        Measured("illegal_fallbacks", seen.illegal_fallbacks, 0),
        Measured("tenant_isolation_failures", seen.tenant_isolation_failures, 0),
        Measured("crash_restart", seen.restarts.failures if seen.restarts else None, 0),
        Measured("idempotent_replay", seen.replays.failures if seen.replays else None, 0),
    ]


KIND: Mapping[str, str] = {
    "tenant_isolation_failures": "SECURITY",
    "crash_restart": "RECOVERY",
    "idempotent_replay": "RECOVERY",
    "logit_error": "EXACTNESS",
    "quality_drop": "QUALITY",
    "allocation_failures": "RUNTIME",
    "illegal_fallbacks": "RUNTIME",
    "p99_tpot_ratio": "LATENCY",
    "exposed_stall_ms": "LATENCY",
}
FOREMOST = ("SECURITY", "RECOVERY", "EXACTNESS", "QUALITY", "RUNTIME", "LATENCY")
DISTRUSTED = ("SECURITY", "RECOVERY", "EXACTNESS")
"""Failures after which what the candidate stored may be wrong."""


@dataclass(frozen=True)
class Rollback:
    """Why and how a candidate was taken back."""

    source: Literal["OFF", "SHADOW", "CANARY", "RAMP", "FULL"]
    gates: tuple[Gate, ...]
    kind: Literal["SECURITY", "RECOVERY", "EXACTNESS", "QUALITY", "RUNTIME", "LATENCY", "SHIFT"]
    in_flight: Literal["finish", "recompute"]
    stored: Literal["keep", "quarantine"]


def typed(source: str, failed: Sequence[str]) -> Rollback:
    """A rollback with what follows from its gates; without gates, what runs has shifted."""
    kinds = {KIND[gate] for gate in failed}
    foremost = next((kind for kind in FOREMOST if kind in kinds), "SHIFT")
    only_late = kinds == {"LATENCY"}
    wrong = any(kind in kinds for kind in DISTRUSTED)
    parts: dict[str, Any] = {"source": source, "gates": tuple(failed), "kind": foremost}
    return Rollback(**parts, in_flight="finish" if only_late else "recompute", stored="quarantine" if wrong else "keep")


# --- rules -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CandidateRule:
    """A reason and what a candidate must declare."""

    reason: str
    holds: Callable[[Candidate], bool]


@dataclass(frozen=True)
class EvidenceRule:
    """A reason and what must hold of evidence: of this candidate, at this station, measured in whole or in part."""

    reason: str
    holds: Callable[[Candidate, Evidence, Station, bool], bool]


def _limit(candidate: Candidate) -> bool:
    own = candidate.limits.logit_error if candidate.exact else candidate.limits.quality_drop
    return own is not None


def _ascending(candidate: Candidate) -> bool:
    return all(low < high for low, high in pairwise(candidate.ramp_milli))


# fmt: off
CANDIDATE_RULES: tuple[CandidateRule, ...] = (
    CandidateRule("BASELINE_NOT_EXACT", lambda c: c.baseline_exact),
    CandidateRule("GATE_LIMIT_MISSING", _limit),
    CandidateRule("RAMP_NOT_ASCENDING", _ascending),
)
EVIDENCE_RULES: tuple[EvidenceRule, ...] = (
    EvidenceRule("EVIDENCE_OF_OTHER_MANIFEST", lambda c, e, at, whole: e.manifest_sha256 == c.manifest.sha256),
    EvidenceRule("EVIDENCE_OF_OTHER_STAGE", lambda c, e, at, whole: e.station == at),
    EvidenceRule("GATE_UNMEASURED",
                 lambda c, e, at, whole: not whole or all(row.value is not None for row in gates(c, e))),
    EvidenceRule("CONDITIONS_DIFFER", lambda c, e, at, whole: not (c.exact and e.logit) or e.logit.controlled),
    EvidenceRule("QUALITY_NOT_HELD_OUT", lambda c, e, at, whole: c.exact or not e.quality or e.quality.held_out),
)
# fmt: on
Rule = CandidateRule | EvidenceRule
RULES: tuple[Rule, ...] = (*CANDIDATE_RULES, *EVIDENCE_RULES)


def check_candidate(candidate: Candidate, rules: Iterable[Rule] = RULES) -> None:
    """Refuse a candidate for the first rule that it breaks."""
    for rule in rules:
        if isinstance(rule, CandidateRule) and not rule.holds(candidate):
            raise Refusal(rule.reason, candidate.name)


def check_evidence(
    candidate: Candidate, seen: Evidence, at: Station, whole: bool, rules: Iterable[Rule] = RULES
) -> None:
    """Refuse evidence for the first rule that it breaks."""
    for rule in rules:
        if isinstance(rule, EvidenceRule) and not rule.holds(candidate, seen, at, whole):
            raise Refusal(rule.reason, seen.id)


# --- the machine -------------------------------------------------------------------------------------------------


@dataclass
class Rollout:
    """One candidate and where it stands."""

    candidate: Candidate
    station: Station = OFF
    rollback: Rollback | None = None

    @property
    def closed(self) -> bool:
        """Whether it was taken back."""
        return self.station == CLOSED


@dataclass
class Machine:
    """All rollouts of an engine. Faults override one of the small methods."""

    rules: Sequence[Rule] = RULES
    rollouts: dict[str, Rollout] = field(default_factory=dict)
    receipts: dict[str, object] = field(default_factory=dict)
    barred: set[str] = field(default_factory=set)

    def find(self, name: str) -> Rollout:
        """A rollout by its candidate's name."""
        if name not in self.rollouts:
            raise Refusal("UNKNOWN_CANDIDATE", name)
        return self.rollouts[name]

    def propose(self, candidate: Candidate) -> tuple[Rollout, str]:
        """Bring in a candidate."""
        if candidate.name in self.rollouts:
            raise Refusal("CANDIDATE_EXISTS", candidate.name)
        check_candidate(candidate, self.rules)
        self.admit_manifest(candidate)
        made = self.rollouts[candidate.name] = Rollout(candidate)
        return made, "proposed"

    def admit_manifest(self, candidate: Candidate) -> None:
        """Refuse a manifest that failed a gate before."""
        if candidate.manifest.sha256 in self.barred:
            raise Refusal("ROLLED_BACK_MANIFEST", candidate.name)

    def seen_before(self, id: str, use: object) -> bool:
        """Whether this very use of a receipt was made; another use of it is refused."""
        if id not in self.receipts:
            return False
        if self.receipts[id] != use:
            raise Refusal("COMPETING_EVIDENCE", id)
        return True

    def measured(self, rollout: Rollout, seen: Evidence) -> list[Measured]:
        """The gates of the candidate with what was measured."""
        return gates(rollout.candidate, seen)

    def failed(self, rollout: Rollout, seen: Evidence) -> list[str]:
        """Gates that failed."""
        return [row.gate for row in self.measured(rollout, seen) if row.failed]

    def take_back(self, rollout: Rollout, failed: Sequence[str]) -> str:
        """To the exact baseline. A manifest that failed a gate is barred; one that no longer runs is not."""
        rollout.rollback = typed(rollout.station.state, failed)
        rollout.station = CLOSED
        if failed:
            self.barred.add(rollout.candidate.manifest.sha256)
        return "rolled_back"

    def on_target(self, rollout: Rollout, target: Station) -> None:
        """Refuse all but the next station."""
        following = rollout.candidate.after(rollout.station)
        if following is None or following.state != target.state:
            raise Refusal("ROLLOUT_STEP_SKIPPED", f"{rollout.station.state} to {target.state}")
        if following != target:
            raise Refusal("RAMP_FRACTION_SKIPPED", f"{rollout.station.fraction_milli} to {target.fraction_milli}")

    def advance(self, name: str, target: Station, seen: Evidence | None) -> tuple[Rollout, str]:
        """The next station, or the way back."""
        rollout = self.find(name)
        use = ("advance", name, target, seen)
        if seen is not None and self.seen_before(seen.id, use):
            return rollout, "noop"
        if rollout.closed:
            raise Refusal("ROLLED_BACK_MANIFEST", name)
        self.on_target(rollout, target)
        if (seen is None) is not (rollout.station == OFF):
            raise Refusal("EVIDENCE_MISSING" if seen is None else "EVIDENCE_OF_OTHER_STAGE", name)
        if seen is not None:
            check_evidence(rollout.candidate, seen, rollout.station, True, self.rules)
            self.receipts[seen.id] = use
            failed = self.failed(rollout, seen)
            if failed:
                return rollout, self.take_back(rollout, failed)
        rollout.station = target
        return rollout, "advanced"

    def observe(self, name: str, seen: Evidence) -> tuple[Rollout, str]:
        """What is measured while it runs, in whole or in part."""
        rollout = self.find(name)
        use = ("observe", name, seen)
        if self.seen_before(seen.id, use):
            return rollout, "noop"
        if rollout.closed:
            raise Refusal("ROLLED_BACK_MANIFEST", name)
        if rollout.station == OFF:
            raise Refusal("EVIDENCE_OF_OTHER_STAGE", "nothing runs in OFF")
        check_evidence(rollout.candidate, seen, rollout.station, False, self.rules)
        self.receipts[seen.id] = use
        failed = self.failed(rollout, seen)
        return rollout, self.take_back(rollout, failed) if failed else "held"

    def shift(self, name: str, manifest: Manifest) -> tuple[Rollout, str]:
        """What runs now."""
        rollout = self.find(name)
        if rollout.closed:
            return rollout, "noop"
        if manifest == rollout.candidate.manifest:
            return rollout, "held"
        return rollout, self.take_back(rollout, ())

    def reached(self, rollout: Rollout, tenant: str, request_class: str, bucket: int) -> bool:
        """Whether the candidate answers requests of this kind by now."""
        match rollout.station.state:
            case "CANARY":
                return rollout.candidate.canary.covers(tenant, request_class)
            case "RAMP":
                return bucket < rollout.station.fraction_milli
        return rollout.station == FULL

    def may_answer(self, candidate: Candidate, allows_approximation: bool) -> bool:
        """Whether the request may have the candidate's outputs at all."""
        return candidate.exact or allows_approximation

    def serve(
        self, name: str, tenant: str, request_class: str, bucket: int, allows_approximation: bool
    ) -> tuple[str, bool]:
        """Whose output the user gets, and whether the candidate runs unseen."""
        rollout = self.find(name)
        taken = self.reached(rollout, tenant, request_class, bucket)
        taken = taken and self.may_answer(rollout.candidate, allows_approximation)
        return "candidate" if taken else "baseline", rollout.station == SHADOW
