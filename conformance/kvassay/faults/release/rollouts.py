"""Rollouts that skip, trust too much, forget to go back, or serve whom they should not; records that lie."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from kvassay_reference.errors import Refusal
from kvassay_reference.release import record, rollout
from kvassay_reference.release.record import Review, StepRule, Transition, Walk
from kvassay_reference.release.rollout import (
    CLOSED,
    OFF,
    Candidate,
    Evidence,
    Machine,
    Manifest,
    Measured,
    Rollback,
    Rollout,
    Station,
)

from ..base import Fault
from .base import Request, Result, blinds, case


class Steps(Fault):
    """A machine with one method replaced."""

    Moves: ClassVar[type[Machine]]

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        if "Moves" in vars(cls):
            cls.rel_machine_class = cls.Moves


# --- the way up ---------------------------------------------------------------------------------------------------


class AnyTarget(Steps):
    """A candidate goes where it is told to."""

    requirement = "REL-030"
    killed_by = case("way/one-step-at-a-time-from-off-0", "way/one-step-at-a-time-from-shadow-0")

    class Moves(Machine):
        def on_target(self, rollout: Rollout, target: Station) -> None:
            return


class ForwardIsEnough(Steps):
    """Any later state is taken for the next."""

    requirement = "REL-030"
    killed_by = case("way/one-step-at-a-time-from-off-0", "way/one-step-at-a-time-from-canary-0")

    class Moves(Machine):
        def on_target(self, rollout: Rollout, target: Station) -> None:
            way = rollout.candidate.stations
            if target not in way or way.index(target) <= way.index(rollout.station):
                super().on_target(rollout, target)


class AnyShare(Steps):
    """Within the ramp any share is taken."""

    requirement = "REL-030"
    killed_by = case("way/shares-that-are-not-the-ramps", "way/one-step-at-a-time-from-ramp-50")

    class Moves(Machine):
        def on_target(self, rollout: Rollout, target: Station) -> None:
            following = rollout.candidate.after(rollout.station)
            if following is None or following.state != target.state:
                super().on_target(rollout, target)

        def take_back(self, rollout: Rollout, failed: Sequence[str]) -> str:
            return super().take_back(rollout, failed)


class RampSharesSkipped(Steps):
    """A share of the ramp may be skipped."""

    requirement = "REL-030"
    killed_by = case("way/one-step-at-a-time-from-ramp-50", "way/one-step-at-a-time-from-canary-0")

    class Moves(Machine):
        def on_target(self, rollout: Rollout, target: Station) -> None:
            way = rollout.candidate.stations
            following = rollout.candidate.after(rollout.station)
            later = target in way and following is not None and way.index(target) > way.index(following)
            if not (later and following is not None and following.state == target.state == "RAMP"):
                super().on_target(rollout, target)


class FullFromAnyRamp(Steps):
    """FULL follows the first share of a ramp."""

    requirement = "REL-030"
    killed_by = case("way/one-step-at-a-time-from-ramp-50", "way/one-step-at-a-time-from-ramp-250")

    class Moves(Machine):
        def on_target(self, rollout: Rollout, target: Station) -> None:
            if not (rollout.station.state == "RAMP" and target == rollout.candidate.stations[-1]):
                super().on_target(rollout, target)


class NamesUsedAgain(Steps):
    """A proposal replaces the rollout of its name."""

    requirement = "REL-031"
    killed_by = case("propose/names-are-used-once")

    class Moves(Machine):
        def propose(self, candidate: Candidate) -> tuple[Rollout, str]:
            self.rollouts.pop(candidate.name, None)
            return super().propose(candidate)


class RefusedProposalKept(Steps):
    """A refused candidate is remembered all the same."""

    requirement = "REL-031"
    killed_by = case("propose/approximate-baseline", "propose/ramp-falls")

    class Moves(Machine):
        def propose(self, candidate: Candidate) -> tuple[Rollout, str]:
            try:
                return super().propose(candidate)
            except Refusal:
                self.rollouts.setdefault(candidate.name, Rollout(candidate))
                raise


class RampMayStand(Fault):
    """A ramp may name one share twice."""

    requirement = "REL-031"
    killed_by = case("propose/ramp-stands")

    @staticmethod
    def rel_machine_class() -> Machine:  # type: ignore[override]
        def rising(candidate: Candidate) -> bool:
            return list(candidate.ramp_milli) == sorted(candidate.ramp_milli)

        return Machine(
            rules=[
                rollout.CandidateRule(rule.reason, rising)
                if isinstance(rule, rollout.CandidateRule) and rule.reason == "RAMP_NOT_ASCENDING"
                else rule
                for rule in rollout.RULES
            ]
        )


class ZeroLimitIsNone(Steps):
    """A limit of zero is read as no limit."""

    requirement = "REL-031"
    killed_by = case("propose/approximate-mode")

    class Moves(Machine):
        def propose(self, candidate: Candidate) -> tuple[Rollout, str]:
            own = candidate.limits.logit_error if candidate.exact else candidate.limits.quality_drop
            if not own:
                raise Refusal("GATE_LIMIT_MISSING", candidate.name)
            return super().propose(candidate)


# --- evidence and gates -------------------------------------------------------------------------------------------


def with_rule(reason: str, holds: Callable[[Candidate, Evidence, Station, bool], bool]) -> list[rollout.Rule]:
    """The rules with that of one reason replaced."""
    return [rollout.EvidenceRule(reason, holds) if rule.reason == reason else rule for rule in rollout.RULES]


class StateWithoutShare(Fault):
    """Evidence is held against the state and not against its share."""

    requirement = "REL-032"
    killed_by = case("evidence/of-another-share", "evidence/of-another-stage-exact")

    @staticmethod
    def rel_machine_class() -> Machine:  # type: ignore[override]
        return Machine(rules=with_rule("EVIDENCE_OF_OTHER_STAGE", lambda c, e, at, whole: e.stage == at.state))


class LaterEvidenceCounts(Fault):
    """Evidence of a larger share stands for the present one."""

    requirement = "REL-032"
    killed_by = case("evidence/of-another-share", "evidence/of-another-stage-exact")

    @staticmethod
    def rel_machine_class() -> Machine:  # type: ignore[override]
        return Machine(
            rules=with_rule(
                "EVIDENCE_OF_OTHER_STAGE",
                lambda c, e, at, whole: e.stage == at.state and e.fraction_milli >= at.fraction_milli,
            )
        )


class EvidenceOptional(Steps):
    """A transition without evidence is made."""

    requirement = "REL-032"
    killed_by = case("evidence/of-another-stage-exact", "evidence/of-another-stage-approximate")

    class Moves(Machine):
        def advance(self, name: str, target: Station, seen: Evidence | None) -> tuple[Rollout, str]:
            one = self.find(name)
            if seen is None and one.station not in (OFF, CLOSED):
                self.on_target(one, target)
                one.station = target
                return one, "advanced"
            return super().advance(name, target, seen)


class EvidenceInOff(Steps):
    """Evidence from before the first run is taken along."""

    requirement = "REL-032"
    killed_by = case("evidence/nothing-runs-in-off")

    class Moves(Machine):
        def advance(self, name: str, target: Station, seen: Evidence | None) -> tuple[Rollout, str]:
            return super().advance(name, target, None if self.find(name).station == OFF else seen)


class UnmeasuredPasses(Fault):
    """What was not measured did not fail."""

    requirement = "REL-033"
    killed_by = case("gates/each-is-measured", "gates/each-is-measured-approximate")

    @staticmethod
    def rel_machine_class() -> Machine:  # type: ignore[override]
        return Machine(rules=[rule for rule in rollout.RULES if rule.reason != "GATE_UNMEASURED"])


class NoTestsNoFailures(Fault):
    """Restart and replay tests that never ran pass."""

    requirement = "REL-033"
    killed_by = case("gates/each-is-measured", "gates/each-is-measured-approximate")

    @staticmethod
    def rel_machine_class() -> Machine:  # type: ignore[override]
        def ran(c: Candidate, e: Evidence, at: Station, whole: bool) -> bool:
            rows = rollout.gates(c, e)[:-2]
            tests = e.restarts is not None and e.replays is not None
            return not whole or (tests and all(row.value is not None for row in rows))

        return Machine(rules=with_rule("GATE_UNMEASURED", ran))


class LimitsFail(Steps):
    """What reaches its limit has failed."""

    requirement = "REL-033"
    killed_by = case("gates/limits-are-allowed")

    class Moves(Machine):
        def measured(self, rollout: Rollout, seen: Evidence) -> list[Measured]:
            rows = super().measured(rollout, seen)
            return [replace(row, limit=row.limit * (1 - 1e-9)) for row in rows]


class MustBeFaster(Steps):
    """A candidate that is slower than the baseline fails, whatever its limit."""

    requirement = "REL-033"
    killed_by = case(
        "way/exact-candidate-reaches-its-canary",
        "way/all-the-way-exact",
        "way/all-the-way-approximate",
        "gates/limits-are-allowed",
    )

    class Moves(Machine):
        def measured(self, rollout: Rollout, seen: Evidence) -> list[Measured]:
            rows = super().measured(rollout, seen)
            return [replace(row, limit=1.0) if row.gate == "p99_tpot_ratio" else row for row in rows]


class LogitsOfEveryMode(Steps):
    """An approximate candidate is held to the logits of the exact one."""

    requirement = "REL-033"
    killed_by = case("gates/of-the-other-mode")

    class Moves(Machine):
        def failed(self, one: Rollout, seen: Evidence) -> list[str]:
            found = super().failed(one, seen)
            return ["logit_error", *found] if not one.candidate.exact and seen.logit and seen.logit.error > 1 else found


class OneFailureIsChance(Steps):
    """A single failure of a test, or a single incident, is let pass."""

    requirement = "REL-033"
    killed_by = case(
        "gates/exact-fails-its-tenant", "gates/exact-fails-its-replay", "gates/approximate-fails-its-restart"
    )

    class Moves(Machine):
        def measured(self, rollout: Rollout, seen: Evidence) -> list[Measured]:
            rows = super().measured(rollout, seen)
            return [*rows[:4], *(replace(row, limit=1) for row in rows[4:])]


class AllocationsAreFree(Steps):
    """The declared number of allocation failures is taken for zero or for any."""

    requirement = "REL-033"
    killed_by = case("gates/approximate-fails-its-allocation", "gates/exact-fails-its-allocation")

    class Moves(Machine):
        def measured(self, rollout: Rollout, seen: Evidence) -> list[Measured]:
            rows = super().measured(rollout, seen)
            return [row for row in rows if row.gate != "allocation_failures"]


class RoundedToThousandths(Steps):
    """Measured values are rounded to thousandths before they are compared."""

    requirement = "REL-033"
    killed_by = case("gates/exact-fails-its-logit-error", "gates/approximate-fails-its-quality-drop")

    class Moves(Machine):
        def measured(self, rollout: Rollout, seen: Evidence) -> list[Measured]:
            rows = super().measured(rollout, seen)
            return [replace(row, value=None if row.value is None else round(row.value, 3)) for row in rows]


class ConditionsOfBadNumbersOnly(Fault):
    """An uncontrolled comparison is refused only when its number is bad."""

    requirement = "REL-034"
    killed_by = case("gates/conditions-of-the-comparison")

    @staticmethod
    def rel_machine_class() -> Machine:  # type: ignore[override]
        return Machine(
            rules=with_rule(
                "CONDITIONS_DIFFER",
                lambda c, e, at, whole: not (c.exact and e.logit and not e.logit.controlled and e.logit.error > 0),
            )
        )


class HeldOutOfBothModes(Fault):
    """Quality has to be held out whatever the mode."""

    requirement = "REL-034"
    killed_by = case("gates/of-the-other-mode")

    @staticmethod
    def rel_machine_class() -> Machine:  # type: ignore[override]
        return Machine(
            rules=with_rule("QUALITY_NOT_HELD_OUT", lambda c, e, at, whole: not e.quality or e.quality.held_out)
        )


# --- back ---------------------------------------------------------------------------------------------------------


class KeptForItsLatency(Steps):
    """A candidate that is fast stays, whatever else failed."""

    requirement = "REL-035"
    killed_by = case("way/approximate-candidate-falls-back")

    class Moves(Machine):
        def failed(self, one: Rollout, seen: Evidence) -> list[str]:
            fast = seen.p99_tpot_ratio is not None and seen.p99_tpot_ratio < 1
            return [] if fast else super().failed(one, seen)


class FirstFailureAlone(Steps):
    """Only the first failed gate is named."""

    requirement = "REL-035"
    killed_by = case("way/approximate-candidate-falls-back", "gates/several-all")

    class Moves(Machine):
        def failed(self, one: Rollout, seen: Evidence) -> list[str]:
            return super().failed(one, seen)[:1]


class BackOneStep(Steps):
    """A failed gate takes a candidate back by one state."""

    requirement = "REL-035"
    killed_by = case("gates/back-from-ramp-250", "gates/back-from-full-1000")

    class Moves(Machine):
        def take_back(self, one: Rollout, failed: Sequence[str]) -> str:
            way = one.candidate.stations
            before = way[max(0, way.index(one.station) - 1)]
            outcome = super().take_back(one, failed)
            if before.state in ("CANARY", "RAMP"):
                one.station = before
            return outcome


class FullIsFinal(Steps):
    """FULL is no longer taken back."""

    requirement = "REL-040"
    killed_by = case("gates/back-from-full-1000", "back/shift-in-full")

    class Moves(Machine):
        def take_back(self, one: Rollout, failed: Sequence[str]) -> str:
            return "held" if one.station.state == "FULL" else super().take_back(one, failed)


class RouterNotTold(Steps):
    """After a rollback from FULL everybody is served as before."""

    requirement = "REL-035"
    killed_by = case("serve/exact-full-and-back", "serve/approximate-full-and-back")

    class Moves(Machine):
        def reached(self, one: Rollout, tenant: str, request_class: str, bucket: int) -> bool:
            if one.rollback is not None and one.rollback.source == "FULL":
                return True
            return super().reached(one, tenant, request_class, bucket)


class Typed(Steps):
    """A machine whose rollbacks are typed otherwise."""

    @staticmethod
    def types(found: Rollback) -> Rollback:
        """The rollback as the fault types it."""
        raise NotImplementedError

    def rel_status(self, found: tuple[Rollout, str]) -> Result:
        one, outcome = found
        if one.rollback is not None:
            one = replace(one, rollback=self.types(one.rollback))
        return super().rel_status((one, outcome))


class KindOfTheFirstGate(Typed):
    """The first failed gate gives the kind."""

    requirement = "REL-036"
    killed_by = case("gates/several-all", "gates/quality-and-security", "gates/several-latency-and-runtime")

    @staticmethod
    def types(found: Rollback) -> Rollback:
        kind: Any = rollout.KIND[found.gates[0]] if found.gates else "SHIFT"
        return replace(found, kind=kind)


class RecoveryBeforeSecurity(Typed):
    """Recovery weighs more than security."""

    requirement = "REL-036"
    killed_by = case("gates/several-recovery-and-security", "gates/several-all")

    @staticmethod
    def types(found: Rollback) -> Rollback:
        kinds = {rollout.KIND[gate] for gate in found.gates}
        return replace(found, kind="RECOVERY") if "RECOVERY" in kinds else found


class ConsequencesOfTheKind(Typed):
    """Rows of a candidate whose logits were wrong are kept."""

    requirement = "REL-036"
    killed_by = case("gates/several-logits-and-latency", "gates/exact-fails-its-logit-error")

    @staticmethod
    def types(found: Rollback) -> Rollback:
        return replace(found, stored="quarantine" if found.kind in ("SECURITY", "RECOVERY") else "keep",
                       in_flight="finish" if found.kind == "LATENCY" else "recompute")  # fmt: skip


class EverythingQuarantined(Typed):
    """What was stored is thrown away in any case."""

    requirement = "REL-036"
    killed_by = case("gates/several-latency-alone", "way/approximate-candidate-falls-back", "back/shifts")

    @staticmethod
    def types(found: Rollback) -> Rollback:
        return replace(found, stored="quarantine")


class RequestsFinish(Typed):
    """Running requests finish on the candidate wherever one gate of latency failed."""

    requirement = "REL-036"
    killed_by = case("gates/several-latency-and-runtime", "gates/several-logits-and-latency")

    @staticmethod
    def types(found: Rollback) -> Rollback:
        late = any(rollout.KIND[gate] == "LATENCY" for gate in found.gates)
        return replace(found, in_flight="finish") if late else found


class ShiftFinishes(Typed):
    """Running requests finish on a manifest that no longer runs."""

    requirement = "REL-040"
    killed_by = case("back/shifts", "back/shift-in-full")

    @staticmethod
    def types(found: Rollback) -> Rollback:
        return found if found.gates else replace(found, in_flight="finish")


class BackAndUpAgain(Steps):
    """A candidate that was taken back starts over from OFF."""

    requirement = "REL-037"
    killed_by = case("back/goes-no-further")

    class Moves(Machine):
        def advance(self, name: str, target: Station, seen: Evidence | None) -> tuple[Rollout, str]:
            one = self.find(name)
            if one.closed and target.state == "SHADOW" and seen is None:
                one.station = OFF
            return super().advance(name, target, seen)


class NameIsBarred(Steps):
    """Names are barred and manifests are not."""

    requirement = "REL-037"
    killed_by = case("back/same-manifest-under-another-name", "back/candidates-of-one-manifest")

    class Moves(Machine):
        def admit_manifest(self, candidate: Candidate) -> None:
            return


class ModelIsBarred(Steps):
    """All manifests of a failed model are barred."""

    requirement = "REL-037"
    killed_by = case("back/same-manifest-under-another-name")

    class Moves(Machine):
        def admit_manifest(self, candidate: Candidate) -> None:
            for one in self.rollouts.values():
                same = one.candidate.manifest.model_sha256 == candidate.manifest.model_sha256
                if same and one.candidate.manifest.sha256 in self.barred:
                    raise Refusal("ROLLED_BACK_MANIFEST", candidate.name)


class ShiftBars(Steps):
    """A shift bars the manifest that it replaced."""

    requirement = "REL-037"
    killed_by = case("back/shifts")

    class Moves(Machine):
        def shift(self, name: str, manifest: Manifest) -> tuple[Rollout, str]:
            one, outcome = super().shift(name, manifest)
            if outcome == "rolled_back":
                self.barred.add(one.candidate.manifest.sha256)
            return one, outcome


class TopologyDoesNotCount(Steps):
    """Only model, adapters and representation make a manifest another one."""

    requirement = "REL-040"
    killed_by = case("back/shifts", "back/shift-in-off", "back/shift-in-full")

    class Moves(Machine):
        def shift(self, name: str, manifest: Manifest) -> tuple[Rollout, str]:
            own = self.find(name).candidate.manifest
            return super().shift(name, replace(manifest, topology=own.topology, workload=own.workload))


class PartialObservationsRefused(Steps):
    """Only whole measurements are taken while a candidate runs."""

    requirement = "REL-040"
    killed_by = case("back/observation-in-part")

    class Moves(Machine):
        def observe(self, name: str, seen: Evidence) -> tuple[Rollout, str]:
            if any(row.value is None for row in rollout.gates(self.find(name).candidate, seen)):
                raise Refusal("GATE_UNMEASURED", seen.id)
            return super().observe(name, seen)


class ObservationsOnlyLog(Steps):
    """Measurements of a running candidate are logged."""

    requirement = "REL-040"
    killed_by = case("gates/back-from-ramp-250", "gates/back-from-shadow-0", "back/observation-in-part")

    class Moves(Machine):
        def observe(self, name: str, seen: Evidence) -> tuple[Rollout, str]:
            one = self.find(name)
            before = replace(one)
            found, outcome = super().observe(name, seen)
            if outcome == "rolled_back":
                self.rollouts[name] = before
                return before, "held"
            return found, outcome


# --- receipts -----------------------------------------------------------------------------------------------------


class RepetitionIsRefused(Steps):
    """A transition that is asked for again is out of order."""

    requirement = "REL-041"
    killed_by = case("receipts/same-transition-again", "receipts/same-failure-again")

    class Moves(Machine):
        def seen_before(self, id: str, use: object) -> bool:
            super().seen_before(id, use)
            return False


class IdsUnread(Steps):
    """One measurement buys as many transitions as it is offered for."""

    requirement = "REL-041"
    killed_by = case("receipts/another-use", "receipts/of-another-candidate")

    class Moves(Machine):
        def seen_before(self, id: str, use: object) -> bool:
            return self.receipts.get(id) == use


class IdsAreEnough(Steps):
    """A known id is a repetition, whatever comes with it."""

    requirement = "REL-041"
    killed_by = case("receipts/another-use", "receipts/observation-again")

    class Moves(Machine):
        def seen_before(self, id: str, use: object) -> bool:
            return id in self.receipts


class ReceiptsOfOneCandidate(Steps):
    """Ids are kept for each candidate."""

    requirement = "REL-041"
    killed_by = case("receipts/of-another-candidate")

    class Moves(Machine):
        def seen_before(self, id: str, use: object) -> bool:
            old: Any = self.receipts.get(id)
            new: Any = use
            return super().seen_before(id, use) if old is not None and old[1] == new[1] else False


class ReceiptBeforeTheCheck(Steps):
    """An id is used up by evidence that is refused."""

    requirement = "REL-041"
    killed_by = case("receipts/refused-evidence-leaves-its-id-free", "evidence/of-another-manifest-exact")

    class Moves(Machine):
        def advance(self, name: str, target: Station, seen: Evidence | None) -> tuple[Rollout, str]:
            try:
                return super().advance(name, target, seen)
            except Refusal:
                if seen is not None:
                    self.receipts.setdefault(seen.id, (name, target, seen))
                raise


class RepetitionOnlyWhereItStands(Steps):
    """A repetition is known while the candidate still stands where it led."""

    requirement = "REL-041"
    killed_by = case("receipts/same-transition-again", "receipts/same-failure-again")

    class Moves(Machine):
        def advance(self, name: str, target: Station, seen: Evidence | None) -> tuple[Rollout, str]:
            one = self.find(name)
            if seen is not None and one.station != target:
                self.receipts = {id: use for id, use in self.receipts.items() if id != seen.id}
            return super().advance(name, target, seen)


# --- who is served ------------------------------------------------------------------------------------------------


class Serves(Steps):
    """A machine that reaches other users."""


class ShadowIsServed(Serves):
    """The shadow's output goes out where the canary's would."""

    requirement = "REL-038"
    killed_by = case("serve/exact-off-and-shadow", "serve/approximate-off-and-shadow")

    class Moves(Machine):
        def reached(self, one: Rollout, tenant: str, request_class: str, bucket: int) -> bool:
            shadow = one.station.state == "SHADOW" and one.candidate.canary.covers(tenant, request_class)
            return shadow or super().reached(one, tenant, request_class, bucket)


class TenantOrClass(Serves):
    """A canary is served to a tenant or to a class."""

    requirement = "REL-038"
    killed_by = case("serve/exact-canary", "serve/approximate-canary")

    class Moves(Machine):
        def reached(self, one: Rollout, tenant: str, request_class: str, bucket: int) -> bool:
            scope = one.candidate.canary
            if one.station.state == "CANARY":
                return tenant in scope.tenants or request_class in scope.classes
            return super().reached(one, tenant, request_class, bucket)


class FirstTenantAlone(Serves):
    """Only the first tenant and class of a canary are served."""

    requirement = "REL-038"
    killed_by = case("serve/approximate-canary")

    class Moves(Machine):
        def reached(self, one: Rollout, tenant: str, request_class: str, bucket: int) -> bool:
            scope = one.candidate.canary
            if one.station.state == "CANARY":
                return (tenant, request_class) == (scope.tenants[0], scope.classes[0])
            return super().reached(one, tenant, request_class, bucket)


class OneBucketMore(Serves):
    """A share reaches its own bucket, too."""

    requirement = "REL-038"
    killed_by = case("serve/exact-ramp", "serve/approximate-ramp", "serve/ramp-grows")

    class Moves(Machine):
        def reached(self, one: Rollout, tenant: str, request_class: str, bucket: int) -> bool:
            return super().reached(one, tenant, request_class, max(0, bucket - 1))


class CanaryStaysServed(Serves):
    """Tenants of the canary are served in the ramp whatever their bucket."""

    requirement = "REL-038"
    killed_by = case("serve/exact-ramp", "serve/approximate-ramp")

    class Moves(Machine):
        def reached(self, one: Rollout, tenant: str, request_class: str, bucket: int) -> bool:
            kept = one.station.state == "RAMP" and one.candidate.canary.covers(tenant, request_class)
            return kept or super().reached(one, tenant, request_class, bucket)


class RampFromTheTop(Serves):
    """A growing ramp serves the buckets that it added, and loses those it had."""

    requirement = "REL-038"
    killed_by = case("serve/ramp-grows")

    class Moves(Machine):
        def reached(self, one: Rollout, tenant: str, request_class: str, bucket: int) -> bool:
            ramp = [0, *one.candidate.ramp_milli]
            if one.station.state == "RAMP":
                before = ramp[ramp.index(one.station.fraction_milli) - 1]
                return before <= bucket < one.station.fraction_milli
            return super().reached(one, tenant, request_class, bucket)


class PermissionForgotten(Serves):
    """An approximate candidate answers whoever the share gives it."""

    requirement = "REL-039"
    killed_by = case("serve/exact-requests-in-ramp", "serve/exact-requests-in-canary", "serve/exact-requests-in-full")

    class Moves(Machine):
        def may_answer(self, candidate: Candidate, allows_approximation: bool) -> bool:
            return True


class PermissionInTheCanaryAlone(Serves):
    """Once the canary is over, permission is no longer asked."""

    requirement = "REL-039"
    killed_by = case("serve/exact-requests-in-ramp", "serve/exact-requests-in-full")

    class Moves(Machine):
        def serve(self, name: str, tenant: str, request_class: str, bucket: int, allows_approximation: bool
                  ) -> tuple[str, bool]:  # fmt: skip
            asked = allows_approximation or self.find(name).station.state not in ("CANARY", "SHADOW")
            return super().serve(name, tenant, request_class, bucket, asked)


class ExactNeedsPermission(Serves):
    """Exact candidates are kept from requests that demand exact attention."""

    requirement = "REL-039"
    killed_by = case("serve/exact-candidates-serve-exact-requests")

    class Moves(Machine):
        def may_answer(self, candidate: Candidate, allows_approximation: bool) -> bool:
            return allows_approximation


# --- records ------------------------------------------------------------------------------------------------------

RULES = blinds(
    [
        ("BASELINE_NOT_EXACT", "REL-031", ["propose/approximate-baseline", "record/approximate-baseline"]),
        ("GATE_LIMIT_MISSING", "REL-031", ["propose/no-limit-of-the-logits", "propose/approximate-mode"]),
        ("RAMP_NOT_ASCENDING", "REL-031", ["propose/ramp-falls", "record/ramp-falls"]),
        ("EVIDENCE_OF_OTHER_MANIFEST", "REL-032",
         ["evidence/of-another-manifest-exact", "record/evidence-of-other-manifest"]),
        ("EVIDENCE_OF_OTHER_STAGE", "REL-032",
         ["evidence/of-another-stage-approximate", "record/evidence-of-last-share"]),
        ("GATE_UNMEASURED", "REL-033", ["record/logits-unmeasured", "record/restarts-never-run"]),
        ("CONDITIONS_DIFFER", "REL-034", ["gates/conditions-of-the-comparison", "record/uncontrolled-comparison"]),
        ("QUALITY_NOT_HELD_OUT", "REL-034", ["gates/conditions-of-the-comparison", "record/quality-tuned"]),
        ("COMPETING_EVIDENCE", "REL-041", ["record/evidence-used-twice"]),
        ("RELEASE_DIGEST_MISMATCH", "REL-042", ["record/digest-of-other-fields"]),
        ("ROLLED_BACK_MANIFEST", "REL-042", ["record/goes-on-after-the-end"]),
        ("ROLLOUT_STEP_SKIPPED", "REL-042", ["record/shadow-skipped", "record/chain-broken"]),
        ("RAMP_FRACTION_SKIPPED", "REL-042", ["record/share-skipped", "record/canary-with-a-share"]),
        ("FAILED_GATE_PASSED", "REL-042", ["record/logit-error-passed", "record/kept-for-its-latency"]),
        ("ROLLBACK_WITHOUT_CAUSE", "REL-042", ["record/taken-back-for-nothing"]),
        ("FAILED_GATES_MISMATCH", "REL-042", ["record/failure-forgotten", "record/failures-in-disorder"]),
        ("ROLLOUT_STATE_MISMATCH", "REL-042", ["record/state-ahead", "record/share-ahead"]),
        ("SHADOW_OUTPUT_SERVED", "REL-042", ["record/shadow-served"]),
        ("SERVED_OUTSIDE_CANARY", "REL-042", ["record/other-tenant-served", "record/served-without-a-canary"]),
        ("ROLLBACK_TYPE_MISMATCH", "REL-042", ["record/kind-of-the-lesser", "record/rollback-lost"]),
    ]
)  # fmt: skip


class ReadsRecords(Fault):
    """Records are judged by another review."""

    Reads: ClassVar[type[Review]]

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        if "Reads" in vars(cls):
            cls.rel_review = cls.Reads()


class ChecksumIsEnough(ReadsRecords):
    """A record whose digest is right is right."""

    requirement = "REL-042"
    killed_by = case("record/logit-error-passed", "record/other-model", "record/state-ahead")

    class Reads(Review):
        def admit(self, found: record.Record) -> None:
            if found.manifest_sha256 != found.candidate.manifest.sha256:
                raise Refusal("RELEASE_DIGEST_MISMATCH", found.manifest_sha256)


class FirstTransitionAlone(ReadsRecords):
    """Later transitions are believed."""

    requirement = "REL-042"
    killed_by = case("record/evidence-used-twice", "record/logit-error-passed", "record/replay-failed-on-the-way")

    class Reads(Review):
        def step(self, walk: Walk, step: Transition) -> Walk:
            if walk.station == OFF:
                return super().step(walk, step)
            back = rollout.typed(walk.station.state, step.failed) if step.back else walk.rollback
            return Walk(walk.record, step.station, back, walk.used, (*walk.passed, step.target))


class ListedFailuresBelieved(ReadsRecords):
    """Which gates failed is read from the list and not from the evidence."""

    requirement = "REL-042"
    killed_by = case("record/logit-error-passed", "record/quality-within-limit", "record/limit-lowered-afterwards")

    class Reads(Review):
        def kept(self, rules: Sequence[StepRule]) -> list[StepRule]:
            def listed(rule: StepRule) -> StepRule:
                return StepRule(rule.reason, lambda walk, step, failed: rule.holds(walk, step, step.failed))

            return [listed(rule) for rule in super().kept(rules)]


class FirstCanaryRowAlone(ReadsRecords):
    """Only the first row of what was served is looked at."""

    requirement = "REL-042"
    killed_by = case("record/canary-that-served-nobody-and-somebody")

    class Reads(Review):
        def admit(self, found: record.Record) -> None:
            super().admit(replace(found, served=replace(found.served, canary=found.served.canary[:1])))


class UnknownStatesRead(Fault):
    """A record with a state that nobody defined is read as the last one known."""

    requirement = "REL-042"
    killed_by = case("record/ninth-state")

    def release_admit(self, request: Request) -> Result:
        document = request["document"]
        known = document.get("state") if document.get("state") != "BETA" else document["transitions"][-1]["target"]
        return super().release_admit({**request, "document": {**document, "state": known}})


class LimitsFilledIn(Fault):
    """A candidate without limits gets generous ones."""

    requirement = "REL-031"
    killed_by = case("record/without-limits")

    def release_admit(self, request: Request) -> Result:
        document = request["document"]
        limits = {"logit_error": 1, "quality_drop": 1, "p99_tpot_ratio": 9, "exposed_stall_ms": 99,
                  "allocation_failures": 9}  # fmt: skip
        candidate = {"limits": limits, **document["candidate"]}
        return super().release_admit({**request, "document": {**document, "candidate": candidate}})


class NumbersMadeToFit(Fault):
    """Numbers out of their range are cut to it, and scopes that repeat themselves shortened."""

    requirement = "REL-042"
    killed_by = case("record/more-than-all", "record/failures-in-part", "record/negative-limit", "record/tenant-twice")

    def release_admit(self, request: Request) -> Result:
        document = copy.deepcopy(dict(request["document"]))
        document["fraction_milli"] = 0 if document["fraction_milli"] > 1000 else document["fraction_milli"]
        own = document["candidate"]
        for names in own["canary"].values():
            names[:] = dict.fromkeys(names)
        if "limits" in own and own["limits"]["p99_tpot_ratio"] < 0:
            own["limits"]["p99_tpot_ratio"] = 9
        for step in document["transitions"]:
            step["failed"] = [gate for gate in step["failed"] if gate.islower()]
            if step["evidence"] and step["evidence"]["replays"]:
                step["evidence"]["replays"]["failed"] = int(step["evidence"]["replays"]["failed"])
        return super().release_admit({**request, "document": document})


class EmptyCanaryTaken(Fault):
    """A canary without tenants is a canary of nobody, and a ramp may end at all."""

    requirement = "REL-031"
    killed_by = case("record/empty-canary", "record/whole-ramp")

    def release_admit(self, request: Request) -> Result:
        document = request["document"]
        own = document["candidate"]
        scope = {**own["canary"], "tenants": own["canary"]["tenants"] or ["tenant-a"]}
        ramp = [min(share, 999) for share in own["ramp_milli"]]
        candidate = {**own, "canary": scope, "ramp_milli": ramp}
        return super().release_admit({**request, "document": {**document, "candidate": candidate}})


FAULTS: tuple[type[Fault], ...] = (
    AnyTarget,
    ForwardIsEnough,
    AnyShare,
    RampSharesSkipped,
    FullFromAnyRamp,
    NamesUsedAgain,
    RefusedProposalKept,
    RampMayStand,
    ZeroLimitIsNone,
    StateWithoutShare,
    LaterEvidenceCounts,
    EvidenceOptional,
    EvidenceInOff,
    UnmeasuredPasses,
    NoTestsNoFailures,
    LimitsFail,
    MustBeFaster,
    LogitsOfEveryMode,
    OneFailureIsChance,
    AllocationsAreFree,
    RoundedToThousandths,
    ConditionsOfBadNumbersOnly,
    HeldOutOfBothModes,
    KeptForItsLatency,
    FirstFailureAlone,
    BackOneStep,
    RouterNotTold,
    KindOfTheFirstGate,
    RecoveryBeforeSecurity,
    ConsequencesOfTheKind,
    EverythingQuarantined,
    RequestsFinish,
    BackAndUpAgain,
    NameIsBarred,
    ModelIsBarred,
    ShiftBars,
    ShadowIsServed,
    TenantOrClass,
    FirstTenantAlone,
    OneBucketMore,
    CanaryStaysServed,
    RampFromTheTop,
    PermissionForgotten,
    PermissionInTheCanaryAlone,
    ExactNeedsPermission,
    FullIsFinal,
    ShiftFinishes,
    TopologyDoesNotCount,
    PartialObservationsRefused,
    ObservationsOnlyLog,
    RepetitionIsRefused,
    IdsUnread,
    IdsAreEnough,
    ReceiptsOfOneCandidate,
    ReceiptBeforeTheCheck,
    RepetitionOnlyWhereItStands,
    *RULES,
    ChecksumIsEnough,
    FirstTransitionAlone,
    ListedFailuresBelieved,
    FirstCanaryRowAlone,
    UnknownStatesRead,
    LimitsFilledIn,
    NumbersMadeToFit,
    EmptyCanaryTaken,
)
