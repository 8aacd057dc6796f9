"""Faults of gates, of the table of fallbacks, and of attempts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from kvassay_reference.memory.rows import require
from kvassay_reference.quality import fallback
from kvassay_reference.quality.fallback import ROWS, Attempt, Gate, Row, State

from ..base import Fault, found
from .base import Request, Result, case

# --- the gate -------------------------------------------------------------------------------------------------------


class LimitsExcluded(Gate):
    """Equality fails."""

    def uncertain(self, estimate: Request) -> bool:
        return bool(estimate["omitted_mass"] >= self.max_omitted_mass or estimate["confidence"] <= self.min_confidence)


class OneLimitIsEnough(Gate):
    """An estimate fails where both limits are missed."""

    def uncertain(self, estimate: Request) -> bool:
        return bool(estimate["omitted_mass"] > self.max_omitted_mass and estimate["confidence"] < self.min_confidence)


class MassAlone(Gate):
    """Confidence is not asked for."""

    def uncertain(self, estimate: Request) -> bool:
        return bool(estimate["omitted_mass"] > self.max_omitted_mass)


class ConfidenceAlone(Gate):
    """Mass is not asked for."""

    def uncertain(self, estimate: Request) -> bool:
        return bool(estimate["confidence"] < self.min_confidence)


class Rounded(Gate):
    """Both are compared in single precision of three digits."""

    def uncertain(self, estimate: Request) -> bool:
        mass, sure = round(estimate["omitted_mass"], 3), round(estimate["confidence"], 3)
        return bool(mass > self.max_omitted_mass or sure < self.min_confidence)


class OtherGate(Fault):
    """A gate that asks otherwise."""

    qlt_gate_kind: type[Gate] = Gate

    def qlt_gate(self, said: Request) -> Gate:
        return self.qlt_gate_kind(**said)


class GateExcludesItsLimits(OtherGate):
    """A value that equals its limit fails."""

    requirement = "QLT-036"
    killed_by = case("gate/at-both-limits", "action/accept-approximate")
    qlt_gate_kind = LimitsExcluded


class GateNeedsBothFailures(OtherGate):
    """An estimate fails only where mass and confidence both miss."""

    requirement = "QLT-036"
    killed_by = case("gate/mass-and-confidence-apart", "gate/just-beyond-a-limit")
    qlt_gate_kind = OneLimitIsEnough


class GateIgnoresConfidence(OtherGate):
    """A guess passes like a measurement."""

    requirement = "QLT-036"
    killed_by = case("gate/mass-and-confidence-apart", "gate/just-beyond-a-limit")
    qlt_gate_kind = MassAlone


class GateIgnoresMass(OtherGate):
    """A sure estimate of a large loss passes."""

    requirement = "QLT-036"
    killed_by = case("gate/mass-and-confidence-apart", "gate/just-beyond-a-limit")
    qlt_gate_kind = ConfidenceAlone


class GateRounds(OtherGate):
    """Estimates are rounded as a dashboard shows them."""

    requirement = "QLT-036"
    killed_by = case("gate/just-beyond-a-limit")
    qlt_gate_kind = Rounded


class DenseMassAccepted(Fault):
    """The true omitted mass is the best estimate."""

    requirement = "QLT-037"
    killed_by = case("evidence/the-true-omitted-mass", "evidence/the-true-mass-under-a-shadow-gate")

    def qlt_check_evidence(self, gate: Gate, estimate: Request) -> None:
        known = estimate["source"] == "dense_reference"
        super().qlt_check_evidence(gate, {**estimate, "source": gate.source} if known else estimate)


class ShadowIsDense(Fault):
    """A dense shadow path and the dense reference are one source."""

    requirement = "QLT-037"
    killed_by = case("evidence/the-true-mass-under-a-shadow-gate")

    def qlt_check_evidence(self, gate: Gate, estimate: Request) -> None:
        known = estimate["source"] == "dense_reference" and gate.source == "dense_shadow"
        super().qlt_check_evidence(gate, {**estimate, "source": "dense_shadow"} if known else estimate)


class AnySource(Fault):
    """An estimate is an estimate, whoever made it."""

    requirement = "QLT-037"
    killed_by = case("evidence/an-estimator-for-a-calibration")

    def qlt_check_evidence(self, gate: Gate, estimate: Request) -> None:
        online = estimate["source"] != "dense_reference"
        super().qlt_check_evidence(gate, {**estimate, "source": gate.source} if online else estimate)


class AnyGeneration(Fault):
    """A calibration is never stale."""

    requirement = "QLT-037"
    killed_by = case("evidence/an-older-calibration", "evidence/a-newer-calibration")

    def qlt_check_evidence(self, gate: Gate, estimate: Request) -> None:
        super().qlt_check_evidence(gate, {**estimate, "generation": gate.generation})


class NewerGenerationPasses(Fault):
    """Only an older calibration is stale."""

    requirement = "QLT-037"
    killed_by = case("evidence/a-newer-calibration")

    def qlt_check_evidence(self, gate: Gate, estimate: Request) -> None:
        newer = estimate["generation"] > gate.generation
        super().qlt_check_evidence(gate, {**estimate, "generation": gate.generation} if newer else estimate)


class ShadowIsRefused(Fault):
    """A dense shadow path does not count as evidence."""

    requirement = "QLT-037"
    killed_by = case("gate/each-declared-source")

    def qlt_check_evidence(self, gate: Gate, estimate: Request) -> None:
        require(estimate["source"] != "dense_shadow", "DENSE_MASS_ONLINE", "a shadow path is dense")
        super().qlt_check_evidence(gate, estimate)


class EvidenceOfExactRequestsUnchecked(Fault):
    """An exact request needs no estimate, so that its evidence is not looked at."""

    requirement = "QLT-037"
    killed_by = case("evidence/a-newer-calibration")

    def quality_fallback(self, request: Request) -> Result:
        if request["exactness"] == "exact":
            gate = request["gate"]
            told = {"source": gate["source"], "generation": gate["generation"]}
            request = {**request, "estimate": {**request["estimate"], **told}}
        return super().quality_fallback(request)


# --- the table ------------------------------------------------------------------------------------------------------


class OtherTable(Fault):
    """The table has another guard, or another order."""

    def qlt_guard(self, action: str, guard: Callable[[Any, Any], bool]) -> tuple[Row, ...]:
        """The table with one guard replaced."""
        return tuple(row._replace(guard=guard) if row.action == action else row for row in fallback.TABLE)

    def qlt_first(self, action: str, before: str) -> tuple[Row, ...]:
        """The table with one row moved before another."""
        rest = [row for row in fallback.TABLE if row.action != action]
        place = [row.action for row in rest].index(before)
        return (*rest[:place], ROWS[action], *rest[place:])


class AcceptedInTheFirstPhaseAlone(OtherTable):
    """After widening nothing is accepted any more."""

    requirement = "QLT-038"
    killed_by = case("accept/in-every-phase", "attempt/widened-then-accepted")

    def qlt_table(self) -> tuple[Row, ...]:
        return self.qlt_guard("ACCEPT_APPROXIMATE", lambda s, g: fallback.is_certain(s, g) and s.phase == "initial")


class AcceptedInTimeAlone(OtherTable):
    """A late estimate that passes is not accepted."""

    requirement = "QLT-038"
    killed_by = case("accept/in-every-phase")

    def qlt_table(self) -> tuple[Row, ...]:
        return self.qlt_guard("ACCEPT_APPROXIMATE", lambda s, g: fallback.is_certain(s, g) and s.slack_ms >= 0)


class ExactRequestsAccepted(OtherTable):
    """An exact request is content with a good estimate."""

    requirement = "QLT-038"
    killed_by = case("accept/not-an-exact-request")

    def qlt_table(self) -> tuple[Row, ...]:
        return self.qlt_guard("ACCEPT_APPROXIMATE", lambda s, g: not g.uncertain(s.estimate))


class AcceptedByPermission(OtherTable):
    """Accepting asks for the permission to degrade."""

    requirement = "QLT-038"
    killed_by = case("accept/in-every-phase", "action/accept-approximate")

    def qlt_table(self) -> tuple[Row, ...]:
        return self.qlt_guard("ACCEPT_APPROXIMATE", lambda s, g: fallback.is_certain(s, g) and s.degraded_allowed)


class WidenedAgain(OtherTable):
    """A search is widened as often as it fails."""

    requirement = "QLT-039"
    killed_by = case("widen/once", "action/full-exact-fetch", "attempt/widened-once-only")

    def qlt_table(self) -> tuple[Row, ...]:
        return self.qlt_guard("WIDEN_SEARCH", lambda s, g: fallback.can_widen(replace(s, phase="initial"), g))


class WidenedBelowTheBudget(OtherTable):
    """A search of exactly the budget is too wide."""

    requirement = "QLT-039"
    killed_by = case("widen/within-the-budget", "action/widen-search")

    def qlt_table(self) -> tuple[Row, ...]:
        return self.qlt_guard(
            "WIDEN_SEARCH", lambda s, g: fallback.can_widen(s, g) and s.widen["candidates"] < s.candidate_budget
        )


class WidenedOneBeyond(OtherTable):
    """One candidate more than the budget is allowed."""

    requirement = "QLT-039"
    killed_by = case("widen/within-the-budget")

    def qlt_table(self) -> tuple[Row, ...]:
        return self.qlt_guard(
            "WIDEN_SEARCH",
            lambda s, g: fallback.can_widen(replace(s, candidate_budget=s.candidate_budget + 1), g),
        )


class WidenedForApproximateAlone(OtherTable):
    """An exact request's search is not widened."""

    requirement = "QLT-039"
    killed_by = case("widen/also-late-and-exact")

    def qlt_table(self) -> tuple[Row, ...]:
        return self.qlt_guard("WIDEN_SEARCH", lambda s, g: fallback.can_widen(s, g) and not s.exact)


class WidenedInTimeAlone(OtherTable):
    """A search is not widened after the deadline."""

    requirement = "QLT-039"
    killed_by = case("widen/also-late-and-exact")

    def qlt_table(self) -> tuple[Row, ...]:
        return self.qlt_guard("WIDEN_SEARCH", lambda s, g: fallback.can_widen(s, g) and s.slack_ms >= 0)


class WidenedWhenCertain(OtherTable):
    """An exact request whose estimate passes widens its search all the same."""

    requirement = "QLT-039"
    killed_by = case("accept/not-an-exact-request")

    def qlt_table(self) -> tuple[Row, ...]:
        guard: Callable[[Any, Any], bool] = lambda s, g: (  # noqa: E731
            s.phase == "initial" and s.widen is not None and s.widen["candidates"] <= s.candidate_budget
        )
        return self.qlt_guard("WIDEN_SEARCH", guard)


class FetchBeforeWidening(OtherTable):
    """All rows are fetched where that is in time, before the search is widened."""

    requirement = "QLT-039"
    killed_by = case("action/widen-search", "widen/within-the-budget")

    def qlt_table(self) -> tuple[Row, ...]:
        return self.qlt_first("FULL_EXACT_FETCH", "WIDEN_SEARCH")


class FetchBeforeTheDeadline(OtherTable):
    """A fetch that takes exactly the slack is late."""

    requirement = "QLT-040"
    killed_by = case("fetch/deadline")

    def qlt_table(self) -> tuple[Row, ...]:
        return self.qlt_guard(
            "FULL_EXACT_FETCH", lambda s, g: fallback.can_fetch(s, g) and s.exact_fetch["ms"] < s.slack_ms
        )


class FetchAnyTime(OtherTable):
    """A fetch is taken whenever there is room."""

    requirement = "QLT-040"
    killed_by = case("fetch/deadline", "action/postpone-for-exact-retry")

    def qlt_table(self) -> tuple[Row, ...]:
        return self.qlt_guard("FULL_EXACT_FETCH", lambda s, g: fallback.can_fetch(replace(s, slack_ms=1e30), g))


class FetchWithoutRoom(OtherTable):
    """Staging is not asked for."""

    requirement = "QLT-040"
    killed_by = case("fetch/staging", "action/recompute-exact")

    def qlt_table(self) -> tuple[Row, ...]:
        return self.qlt_guard(
            "FULL_EXACT_FETCH", lambda s, g: fallback.can_fetch(replace(s, staging_budget_bytes=1 << 60), g)
        )


class FetchBelowTheStaging(OtherTable):
    """A fetch that fills staging does not fit."""

    requirement = "QLT-040"
    killed_by = case("fetch/staging", "action/full-exact-fetch")

    def qlt_table(self) -> tuple[Row, ...]:
        return self.qlt_guard(
            "FULL_EXACT_FETCH",
            lambda s, g: fallback.can_fetch(s, g) and s.exact_fetch["bytes"] < s.staging_budget_bytes,
        )


class RecomputeFirst(OtherTable):
    """Recomputing goes before fetching."""

    requirement = "QLT-040"
    killed_by = case("recompute/deadline")

    def qlt_table(self) -> tuple[Row, ...]:
        return self.qlt_first("RECOMPUTE_EXACT", "FULL_EXACT_FETCH")


class RecomputeBeforeTheDeadline(OtherTable):
    """Recomputing that takes exactly the slack is late."""

    requirement = "QLT-040"
    killed_by = case("recompute/deadline", "action/recompute-exact")

    def qlt_table(self) -> tuple[Row, ...]:
        return self.qlt_guard(
            "RECOMPUTE_EXACT", lambda s, g: fallback.can_recompute(s, g) and s.recompute["ms"] < s.slack_ms
        )


class RetryBeforeTheDeadline(OtherTable):
    """A retry that ends with the deadline is late."""

    requirement = "QLT-041"
    killed_by = case("retry/deadline", "action/postpone-for-exact-retry")

    def qlt_table(self) -> tuple[Row, ...]:
        return self.qlt_guard(
            "POSTPONE_FOR_EXACT_RETRY", lambda s, g: fallback.can_wait(s, g) and s.retry["window_ms"] < s.slack_ms
        )


class RetryAnyTime(OtherTable):
    """Who may wait waits, whenever the retry ends."""

    requirement = "QLT-041"
    killed_by = case("retry/deadline", "action/accept-declared-degraded")

    def qlt_table(self) -> tuple[Row, ...]:
        return self.qlt_guard("POSTPONE_FOR_EXACT_RETRY", lambda s, g: s.retry is not None)


class DegradedBeforeRetry(OtherTable):
    """A request that may be degraded does not wait."""

    requirement = "QLT-041"
    killed_by = case("retry/deadline")

    def qlt_table(self) -> tuple[Row, ...]:
        return self.qlt_first("ACCEPT_DECLARED_DEGRADED", "POSTPONE_FOR_EXACT_RETRY")


class DegradedWithoutDeclaration(OtherTable):
    """An approximate request is degraded rather than rejected."""

    requirement = "QLT-042"
    killed_by = case("degraded/by-declaration", "reject/no-path-at-all")

    def qlt_table(self) -> tuple[Row, ...]:
        return self.qlt_guard("ACCEPT_DECLARED_DEGRADED", lambda s, g: not s.exact)


class ExactRequestsDegraded(OtherTable):
    """The permission to degrade is enough, also for an exact request."""

    requirement = "QLT-042"
    killed_by = case("degraded/never-exact", "action/reject-no-legal-path", "attempt/exact-to-the-end")

    def qlt_table(self) -> tuple[Row, ...]:
        return self.qlt_guard("ACCEPT_DECLARED_DEGRADED", lambda s, g: s.degraded_allowed)


class ExactRequestsDegradedWhenCertain(OtherTable):
    """An exact request that may be degraded gets the approximate output where its estimate passes."""

    requirement = "QLT-042"
    killed_by = case("degraded/never-exact", "accept/not-an-exact-request", "attempt/exact-to-the-end")

    def qlt_table(self) -> tuple[Row, ...]:
        return self.qlt_guard(
            "ACCEPT_DECLARED_DEGRADED",
            lambda s, g: s.degraded_allowed and (not s.exact or not g.uncertain(s.estimate)),
        )


class DegradedIsApproximate(OtherTable):
    """Degraded output is published as approximate."""

    requirement = "QLT-042"
    killed_by = case("action/accept-declared-degraded", "degraded/by-declaration", "attempt/slack-is-what-is-left")

    def qlt_table(self) -> tuple[Row, ...]:
        named = ROWS["ACCEPT_DECLARED_DEGRADED"]._replace(publishes="approximate")
        return tuple(named if row.action == named.action else row for row in fallback.TABLE)


class WaitForEver(OtherTable):
    """A request without a path is postponed."""

    requirement = "QLT-043"
    killed_by = case("reject/no-path-at-all", "action/reject-no-legal-path")

    def qlt_table(self) -> tuple[Row, ...]:
        return (*fallback.TABLE[:-1], ROWS["POSTPONE_FOR_EXACT_RETRY"]._replace(guard=fallback.always))


class LateFetchAtLast(OtherTable):
    """A request without a path in time gets its exact output late."""

    requirement = "QLT-043"
    killed_by = case("reject/no-path-at-all", "degraded/never-exact")

    def qlt_table(self) -> tuple[Row, ...]:
        late = ROWS["FULL_EXACT_FETCH"]._replace(guard=lambda s, g: s.exact_fetch is not None)
        return (*fallback.TABLE[:-1], late, fallback.TABLE[-1])


# --- attempts -------------------------------------------------------------------------------------------------------


class PublishedAgain(Fault):
    """An attempt that has published goes on."""

    requirement = "QLT-044"
    killed_by = case("attempt/published-and-over")

    def qlt_check_open(self, attempt: Attempt, at_ms: float) -> None:
        if attempt.published is not None:
            return
        super().qlt_check_open(attempt, at_ms)


class RejectionIsNoEnd(Fault):
    """An attempt that was rejected goes on when a good estimate comes."""

    requirement = "QLT-044"
    killed_by = case("attempt/rejected-and-over")

    def qlt_check_open(self, attempt: Attempt, at_ms: float) -> None:
        if attempt.published is None:
            attempt.over = False
        super().qlt_check_open(attempt, at_ms)


class PostponedIsPublished(Fault):
    """A postponed attempt counts as an output."""

    requirement = "QLT-044"
    killed_by = case("attempt/postponed-and-then-exact")

    def qlt_take(self, attempt: Attempt, row: Row, at_ms: float) -> None:
        super().qlt_take(attempt, row, at_ms)
        self.qlt_publications += row.action == "POSTPONE_FOR_EXACT_RETRY"


class RejectionIsPublished(Fault):
    """A rejection counts as an output."""

    requirement = "QLT-044"
    killed_by = case("attempt/rejected-and-over", "attempt/exact-to-the-end")

    def qlt_take(self, attempt: Attempt, row: Row, at_ms: float) -> None:
        super().qlt_take(attempt, row, at_ms)
        self.qlt_publications += row.action == "REJECT_NO_LEGAL_PATH"


class RejectedStepMovesTheClock(Fault):
    """The clock is taken over before the evidence is checked."""

    requirement = "QLT-044"
    killed_by = case("attempt/rejected-steps-change-nothing")

    def qlt_check_open(self, attempt: Attempt, at_ms: float) -> None:
        super().qlt_check_open(attempt, at_ms)
        attempt.now_ms = at_ms


class PhaseForgotten(Fault):
    """Each step begins in the initial phase."""

    requirement = "QLT-045"
    killed_by = case("attempt/widened-once-only", "attempt/widened-postponed-and-not-widened-again")

    def qlt_check_open(self, attempt: Attempt, at_ms: float) -> None:
        super().qlt_check_open(attempt, at_ms)
        attempt.phase = "initial"


class RetryBeginsAnew(Fault):
    """A postponed attempt comes back in the initial phase."""

    requirement = "QLT-045"
    killed_by = case("attempt/widened-postponed-and-not-widened-again")

    def qlt_take(self, attempt: Attempt, row: Row, at_ms: float) -> None:
        super().qlt_take(attempt, row, at_ms)
        attempt.phase = "initial" if row.action == "POSTPONE_FOR_EXACT_RETRY" else attempt.phase


class RetryUsesUpTheSearch(Fault):
    """A postponed attempt is in the phase after widening."""

    requirement = "QLT-045"
    killed_by = case("attempt/postponed-and-then-widened", "attempt/postponed-and-then-exact")

    def qlt_take(self, attempt: Attempt, row: Row, at_ms: float) -> None:
        super().qlt_take(attempt, row, at_ms)
        attempt.phase = "post_widen" if row.action == "POSTPONE_FOR_EXACT_RETRY" else attempt.phase


class ClockUnchecked(Fault):
    """Time may run back."""

    requirement = "QLT-045"
    killed_by = case("attempt/clock", "attempt/rejected-steps-change-nothing")

    def qlt_check_open(self, attempt: Attempt, at_ms: float) -> None:
        super().qlt_check_open(attempt, max(at_ms, attempt.now_ms))


class ClockMustMove(Fault):
    """Two steps at one time are rejected."""

    requirement = "QLT-045"
    killed_by = case("attempt/clock", "attempt/budgets-of-the-attempt")

    def qlt_check_open(self, attempt: Attempt, at_ms: float) -> None:
        super().qlt_check_open(attempt, at_ms - 2.0**-20 if attempt.actions else at_ms)


class ClockSinceTheBeginning(Fault):
    """A step is compared with the begin of the attempt and not with the step before."""

    requirement = "QLT-045"
    killed_by = case("attempt/rejected-steps-change-nothing")

    qlt_begun = 0.0

    def quality_begin(self, request: Request) -> Result:
        made = super().quality_begin(request)
        self.qlt_begun = request["begun_ms"]
        return made

    def qlt_check_open(self, attempt: Attempt, at_ms: float) -> None:
        attempt.now_ms = self.qlt_begun
        super().qlt_check_open(attempt, at_ms)


class SlackOfTheBeginning(Fault):
    """The slack is that at the beginning."""

    requirement = "QLT-045"
    killed_by = case("attempt/slack-is-what-is-left", "attempt/postponed-and-then-exact")

    def quality_begin(self, request: Request) -> Result:
        made = super().quality_begin(request)
        self.qlt_whole = request["deadline_ms"] - request["begun_ms"]
        return made

    qlt_whole = 0.0

    def qlt_choose(self, state: State, gate: Gate) -> Row:
        inside = self.qlt_attempt is not None and not self.qlt_attempt.over
        return super().qlt_choose(replace(state, slack_ms=self.qlt_whole) if inside else state, gate)


class SlackNotNegative(Fault):
    """A slack below zero is told as zero."""

    requirement = "QLT-045"
    killed_by = case("attempt/slack-is-what-is-left")

    def quality_advance(self, request: Request) -> Result:
        made = super().quality_advance(request)
        return {**made, "slack_ms": max(0.0, made["slack_ms"])}


class SecondAttempt(Fault):
    """A new attempt takes the place of an open one."""

    requirement = "QLT-046"
    killed_by = case("attempt/one-at-a-time", "attempt/pending-before-policy")

    def qlt_check_begin(self, request: Request) -> None:
        require(bool(request["policy"]["version"]), "POLICY_NOT_NAMED", "no version")


class PostponedGivesWay(Fault):
    """A postponed attempt gives way to the next."""

    requirement = "QLT-046"
    killed_by = case("attempt/one-at-a-time")

    def qlt_check_begin(self, request: Request) -> None:
        attempt = self.qlt_attempt
        if attempt is not None and attempt.actions[-1:] == ["POSTPONE_FOR_EXACT_RETRY"]:
            attempt.over = True
        super().qlt_check_begin(request)


class PhaseKept(Fault):
    """A new attempt begins in the phase of the one before."""

    requirement = "QLT-046"
    killed_by = case("attempt/begins-afresh", "attempt/clock")

    def quality_begin(self, request: Request) -> Result:
        before = self.qlt_attempt
        made = super().quality_begin(request)
        if before is not None and self.qlt_attempt is not None and self.qlt_attempt is not before:
            self.qlt_attempt.phase = before.phase
        return made


class ActionsKept(Fault):
    """Actions of the attempt before stand in the record of the next."""

    requirement = "QLT-046"
    killed_by = case("attempt/begins-afresh", "attempt/policy", "attempt/published-and-over")

    def quality_begin(self, request: Request) -> Result:
        before = self.qlt_attempt
        made = super().quality_begin(request)
        if before is not None and self.qlt_attempt is not None:
            self.qlt_attempt.actions = list(before.actions)
        return made


class ClockKept(Fault):
    """The clock of the attempt before goes on in the next."""

    requirement = "QLT-046"
    killed_by = case("attempt/begins-afresh", "attempt/clock", "attempt/slack-is-what-is-left")

    def quality_begin(self, request: Request) -> Result:
        before = self.qlt_attempt
        made = super().quality_begin(request)
        if before is not None and self.qlt_attempt is not None:
            self.qlt_attempt.now_ms = max(before.now_ms, self.qlt_attempt.now_ms)
        return made


class OutputsCountedAnew(Fault):
    """Outputs are counted from zero in each attempt."""

    requirement = "QLT-046"
    killed_by = case("attempt/begins-afresh", "attempt/published-and-over")

    def quality_begin(self, request: Request) -> Result:
        made = super().quality_begin(request)
        self.qlt_publications = 0
        return made


class RejectedBeginCounts(Fault):
    """An attempt that was not begun is counted."""

    requirement = "QLT-046"
    killed_by = case("attempt/one-at-a-time", "attempt/policy")

    def qlt_check_begin(self, request: Request) -> None:
        self.qlt_attempts += 1
        super().qlt_check_begin(request)
        self.qlt_attempts -= 1


class PolicyUnnamed(Fault):
    """An attempt needs no policy version."""

    requirement = "QLT-047"
    killed_by = case("attempt/policy")

    def qlt_check_begin(self, request: Request) -> None:
        super().qlt_check_begin({**request, "policy": {**request["policy"], "version": "unnamed"}})


class BlankPolicyNames(Fault):
    """Only an empty version is none."""

    requirement = "QLT-047"
    killed_by = case("attempt/policy-of-blanks")

    def qlt_check_begin(self, request: Request) -> None:
        version = "unnamed" if request["policy"]["version"] else ""
        super().qlt_check_begin({**request, "policy": {**request["policy"], "version": version}})


class OnlySpacesAreBlank(Fault):
    """A version of tabs or line ends names a policy."""

    requirement = "QLT-047"
    killed_by = case("attempt/policy-of-blanks")

    def qlt_check_begin(self, request: Request) -> None:
        version = request["policy"]["version"].strip(" ") and "unnamed"
        super().qlt_check_begin({**request, "policy": {**request["policy"], "version": version}})


class PolicyTrimmed(Fault):
    """The record has the version without the blanks around it."""

    requirement = "QLT-047"
    killed_by = case("attempt/policy-of-blanks")

    def quality_record(self, request: Request) -> Result:
        made = super().quality_record(request)
        return {**made, "policy": {**made["policy"], "version": made["policy"]["version"].strip()}}


class FirstPolicyRecorded(Fault):
    """The record names the policy of the first attempt."""

    requirement = "QLT-047"
    killed_by = case("attempt/begins-afresh")
    qlt_policy: Request | None = None

    def open(self) -> None:
        super().open()
        self.qlt_policy = None

    def quality_begin(self, request: Request) -> Result:
        made = super().quality_begin(request)
        self.qlt_policy = self.qlt_policy or request["policy"]
        return made

    def quality_record(self, request: Request) -> Result:
        made = super().quality_record(request)
        return {**made, "policy": dict(self.qlt_policy or made["policy"])}


class LastActionRecorded(Fault):
    """The record names the last action alone."""

    requirement = "QLT-047"
    killed_by = case("attempt/widened-then-accepted", "attempt/begins-afresh")

    def quality_record(self, request: Request) -> Result:
        made = super().quality_record(request)
        return {**made, "actions": made["actions"][-1:]}


class ActionsSorted(Fault):
    """The record names each action once, without their order."""

    requirement = "QLT-047"
    killed_by = case("attempt/widened-then-accepted", "attempt/widened-postponed-and-not-widened-again")

    def quality_record(self, request: Request) -> Result:
        made = super().quality_record(request)
        return {**made, "actions": sorted(set(made["actions"]))}


class RejectionRecordedAsOutput(Fault):
    """The record of a rejected attempt names the promise as what was published."""

    requirement = "QLT-047"
    killed_by = case("attempt/rejected-and-over", "attempt/exact-to-the-end")

    def quality_record(self, request: Request) -> Result:
        made = super().quality_record(request)
        rejected = made["actions"][-1:] == ["REJECT_NO_LEGAL_PATH"]
        return {**made, "published": made["exactness"] if rejected else made["published"]}


FAULTS = found(globals())
