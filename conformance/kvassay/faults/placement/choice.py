"""Faults of the choice of a plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kvassay_reference import placement
from kvassay_reference.placement import Candidate

from ..base import Fault, spoiled
from .base import Request, Result, case


class Candidates(Fault):
    """Another reason against a plan."""

    def spoil(self, one: Candidate, request: Request) -> Candidate:
        """One candidate, spoiled."""
        raise NotImplementedError

    def plc_candidate(self, plan: str, request: Request) -> Candidate:
        return self.spoil(super().plc_candidate(plan, request), request)


class UnsupportedTaken(Candidates):
    """What the manifest says is not looked at."""

    requirement = "PLC-039"
    killed_by = case(
        "choose/only-move-to-gpu-fits",
        "choose/only-headwise-gpu-fits",
        "choose/only-cpu-request-fits",
        "choose/only-support-partition-fits",
        "choose/only-in-storage-sparf-fits",
        "choose/nothing-supported",
    )

    def spoil(self, one: Candidate, request: Request) -> Candidate:
        return replace(one, reason=None) if one.reason == "unsupported" else one


class ManifestSwapped(Fault):
    """Head groups are asked for where the CPU's attention is needed, and the other way round."""

    requirement = "PLC-039"
    killed_by = case("choose/only-headwise-gpu-fits", "choose/only-cpu-request-fits")

    def plc_candidate(self, plan: str, request: Request) -> Candidate:
        manifest = dict(request["manifest"])
        manifest["head_groups"], manifest["cpu_request"] = manifest["cpu_request"], manifest["head_groups"]
        return super().plc_candidate(plan, {**request, "manifest": manifest})


class UnprofiledIsFree(Candidates):
    """A plan without a profile finishes at once and costs nothing."""

    requirement = "PLC-039"
    killed_by = case(
        "choose/move-to-gpu-unprofiled",
        "choose/headwise-gpu-unprofiled",
        "choose/cpu-request-unprofiled",
        "choose/support-partition-unprofiled",
        "choose/in-storage-sparf-unprofiled",
    )

    def spoil(self, one: Candidate, request: Request) -> Candidate:
        if one.reason != "unprofiled":
            return one
        return replace(one, reason=None, predicted_finish_ms=request["start_ms"], declared_cost=0.0)


class StagingUnbounded(Candidates):
    """Staging is not looked at."""

    requirement = "PLC-039"
    killed_by = case("choose/staging-budget")

    def spoil(self, one: Candidate, request: Request) -> Candidate:
        return replace(one, reason=None) if one.reason == "staging" else one


class StagingBelowTheBudget(Candidates):
    """Staging has to be less than the budget."""

    requirement = "PLC-039"
    killed_by = case("choose/staging-budget")

    def spoil(self, one: Candidate, request: Request) -> Candidate:
        entry = request["profile"].get(one.plan, {})
        full = entry.get("staging_bytes") == request["staging_budget_bytes"]
        return replace(one, reason="staging") if full and one.reason is None else one


class SilentFallThrough(Candidates):
    """Where nothing exact is in time SparF is taken, opted into or not."""

    requirement = "PLC-040"
    killed_by = case("choose/base", "choose/opted-into-another", "choose/nothing-in-time-but-sparf")

    def spoil(self, one: Candidate, request: Request) -> Candidate:
        return replace(one, reason=None) if one.reason == "not_allowed" else one


class AnyOptIn(Fault):
    """Opting into any approximation opts into all."""

    requirement = "PLC-040"
    killed_by = case("choose/opted-into-another")

    def plc_candidate(self, plan: str, request: Request) -> Candidate:
        some = ["sparf"] if request["request"]["approximations"] else []
        return super().plc_candidate(plan, {**request, "request": {**request["request"], "approximations": some}})


class FirstOptInAlone(Fault):
    """Only the first opt-in is read."""

    requirement = "PLC-040"
    killed_by = case("choose/opted-into-another")

    def plc_candidate(self, plan: str, request: Request) -> Candidate:
        first = request["request"]["approximations"][:1]
        return super().plc_candidate(plan, {**request, "request": {**request["request"], "approximations": first}})


class NeverApproximate(Candidates):
    """An opt-in is not honoured."""

    requirement = "PLC-040"
    killed_by = case("choose/opted-in", "choose/nothing-in-time-but-sparf")

    def spoil(self, one: Candidate, request: Request) -> Candidate:
        return replace(one, reason="not_allowed") if one.plan == "in_storage_sparf" else one


class ChosenIsExact(Fault):
    """Whatever plan is chosen, its output is called exact."""

    requirement = "PLC-040"
    killed_by = case("choose/opted-in", "choose/nothing-in-time-but-sparf")

    def placement_choose(self, request: Request) -> Result:
        found = super().placement_choose(request)
        return {**found, "exactness": "exact"} if found["outcome"] == "plan" else found


class StageLeftOut(Fault):
    """A stage is missing from the predicted finish."""

    requirement = "PLC-041"
    stage = "queue_ms"

    def plc_candidate(self, plan: str, request: Request) -> Candidate:
        profile = {
            name: {**entry, "stages": {**entry["stages"], self.stage: 0.0}}
            for name, entry in request["profile"].items()
        }
        return super().plc_candidate(plan, {**request, "profile": profile})


def _left_out(stage: str) -> type[StageLeftOut]:
    text, killers = f"The predicted finish lacks {stage}.", case(f"choose/late-by-{stage}", "choose/base")
    return spoiled(StageLeftOut, __name__, f"{stage.title()}LeftOut", text, "PLC-041", killers, stage=f"{stage}_ms")


STAGES_LEFT_OUT = tuple(map(_left_out, ("queue", "send", "attention", "reduction", "return")))


class DeadlineIsTooLate(Candidates):
    """A plan has to finish before the deadline."""

    requirement = "PLC-041"
    killed_by = case("choose/deadline-to-the-bit", "choose/looser-deadline")

    def spoil(self, one: Candidate, request: Request) -> Candidate:
        late = one.reason is None and one.predicted_finish_ms == request["deadline_ms"]
        return replace(one, reason="deadline") if late else one


class DeadlineWithTolerance(Candidates):
    """A deadline is missed from a nanosecond on."""

    requirement = "PLC-041"
    killed_by = case("choose/deadline-to-the-bit")

    def spoil(self, one: Candidate, request: Request) -> Candidate:
        near = (one.predicted_finish_ms or 0.0) <= request["deadline_ms"] + 1e-6
        return replace(one, reason=None) if near and one.reason == "deadline" else one


class DeadlineIsADuration(Fault):
    """The deadline counts from the start of the choice."""

    requirement = "PLC-041"
    killed_by = case("choose/later-start", "choose/base")

    def plc_candidate(self, plan: str, request: Request) -> Candidate:
        return super().plc_candidate(plan, {**request, "start_ms": 0.0})


class DeadlineIgnored(Candidates):
    """Late plans stay candidates."""

    requirement = "PLC-041"
    killed_by = case("choose/base", "choose/fallback-delay", "choose/deadline-to-the-bit")

    def spoil(self, one: Candidate, request: Request) -> Candidate:
        return replace(one, reason=None) if one.reason == "deadline" else one


class Cheapest(Fault):
    """Another plan is taken."""

    requirement = "PLC-042"


class Fastest(Cheapest):
    """The plan that ends first is taken."""

    killed_by = case("choose/base", "choose/cheapest-is-not-fastest", "choose/looser-deadline")

    def plc_cheapest(self, candidates: Sequence[Candidate]) -> Candidate | None:
        left = [one for one in candidates if one.reason is None]
        return min(left, key=lambda one: one.predicted_finish_ms or 0.0, default=None)


class FirstInTime(Cheapest):
    """The first plan in time is taken."""

    killed_by = case("choose/base", "choose/cheapest-is-not-fastest", "choose/looser-deadline")

    def plc_cheapest(self, candidates: Sequence[Candidate]) -> Candidate | None:
        return next((one for one in candidates if one.reason is None), None)


class LastOfEquals(Cheapest):
    """Of plans of equal cost the last is taken."""

    killed_by = case("choose/equal-costs")

    def plc_cheapest(self, candidates: Sequence[Candidate]) -> Candidate | None:
        return super().plc_cheapest(candidates[::-1])


class FreeIsMissing(Cheapest):
    """A cost of zero is taken for none."""

    killed_by = case("choose/free-plan")

    def plc_cheapest(self, candidates: Sequence[Candidate]) -> Candidate | None:
        return super().plc_cheapest([one for one in candidates if one.declared_cost])


class CheapestOfAll(Cheapest):
    """The cheapest plan is picked first and dropped when it cannot be taken."""

    killed_by = case("choose/base")

    def plc_cheapest(self, candidates: Sequence[Candidate]) -> Candidate | None:
        priced = [one for one in candidates if one.declared_cost is not None]
        best = min(priced, key=lambda one: one.declared_cost or 0.0, default=None)
        return best if best is not None and best.reason is None else None


class ReasonsDropped(Fault):
    """Plans that were not taken are not told."""

    requirement = "PLC-039"
    killed_by = case("choose/base", "choose/nothing-supported")

    def placement_choose(self, request: Request) -> Result:
        found = super().placement_choose(request)
        return {**found, "candidates": [one for one in found["candidates"] if one["reason"] is None]}


class OwnFallback(Fault):
    """A late request is always computed again."""

    requirement = "PLC-043"
    killed_by = case("choose/fallback-delay", "choose/fallback-exact-reroute", "choose/fallback-reject")

    def placement_choose(self, request: Request) -> Result:
        found = super().placement_choose(request)
        return found if found["outcome"] == "plan" else {**found, "fallback": "recompute"}


class AnyFallback(Fault):
    """A fallback is a string that is handed back."""

    requirement = "PLC-043"
    killed_by = case("choose/unknown-fallback")

    def plc_fallback(self, request: Request) -> str:
        return (
            "recompute" if request["request"]["fallback"] not in placement.FALLBACKS else super().plc_fallback(request)
        )


class FallbackBesideThePlan(Fault):
    """The fallback is announced although a plan was chosen."""

    requirement = "PLC-043"
    killed_by = case("choose/fallback-delay", "choose/base")

    def placement_choose(self, request: Request) -> Result:
        return {**super().placement_choose(request), "fallback": request["request"]["fallback"]}


class RejectionIsExact(Fault):
    """The absence of an output is called exact."""

    requirement = "PLC-043"
    killed_by = case("choose/fallback-reject", "choose/fallback-delay")

    def placement_choose(self, request: Request) -> Result:
        found = super().placement_choose(request)
        return {**found, "exactness": "exact"} if found["exactness"] == "none" else found


FAULTS: tuple[type[Fault], ...] = (
    UnsupportedTaken,
    ManifestSwapped,
    UnprofiledIsFree,
    StagingUnbounded,
    StagingBelowTheBudget,
    SilentFallThrough,
    AnyOptIn,
    FirstOptInAlone,
    NeverApproximate,
    ChosenIsExact,
    *STAGES_LEFT_OUT,
    DeadlineIsTooLate,
    DeadlineWithTolerance,
    DeadlineIsADuration,
    DeadlineIgnored,
    Fastest,
    FirstInTime,
    LastOfEquals,
    FreeIsMissing,
    CheapestOfAll,
    ReasonsDropped,
    OwnFallback,
    AnyFallback,
    FallbackBesideThePlan,
    RejectionIsExact,
)
"""In the order of the chapter."""
