"""Ledgers with a wrong factor, sweeps that move too much, and decisions out of order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from kvassay_reference.release import costs, decisions
from kvassay_reference.release.costs import Geometry, Settings
from kvassay_reference.release.decisions import Action

from ..base import Fault
from .base import Request, Result, case


class KeysAlone(Fault):
    """A row is its key."""

    requirement = "REL-017"
    killed_by = case("sensitivity/base", "sensitivity/odd")

    def rel_ledger(self, shape: Geometry, setup_ms: float, at: Settings) -> dict[str, Any]:
        half = replace(shape, head_dim=shape.head_dim * 2, layers=shape.layers)
        whole = super().rel_ledger(half, setup_ms, at)
        scaled = {name: [value // 4 for value in whole[name]] for name in costs.COUNTS[:3]}
        return {**super().rel_ledger(shape, setup_ms, at), **scaled}


class LayerForgotten(Fault):
    """A row of one layer stands for the row of all."""

    requirement = "REL-017"
    killed_by = case("sensitivity/base", "sensitivity/geometry")

    def rel_ledger(self, shape: Geometry, setup_ms: float, at: Settings) -> dict[str, Any]:
        return super().rel_ledger(replace(shape, layers=1), setup_ms, at)


class TwoBytesAlways(Fault):
    """Every scalar is taken to have two bytes."""

    requirement = "REL-017"
    killed_by = case("sensitivity/odd", "sensitivity/geometry")

    def rel_ledger(self, shape: Geometry, setup_ms: float, at: Settings) -> dict[str, Any]:
        return super().rel_ledger(replace(shape, item_bytes=2), setup_ms, at)


class CountsInSinglePrecision(Fault):
    """Byte counts go through float32."""

    requirement = "REL-017"
    killed_by = case("sensitivity/large")

    def rel_ledger(self, shape: Geometry, setup_ms: float, at: Settings) -> dict[str, Any]:
        found = super().rel_ledger(shape, setup_ms, at)
        return {**found, "resident_bytes": [int(np.float32(value)) for value in found["resident_bytes"]]}


class AmountsInSinglePrecision(Fault):
    """Amounts are held in float32, with a relative error of 6e-8."""

    requirement = "REL-019"
    killed_by = case("sensitivity/odd", "sensitivity/order-of-shares")

    def rel_ledger(self, shape: Geometry, setup_ms: float, at: Settings) -> dict[str, Any]:
        found = super().rel_ledger(shape, setup_ms, at)
        return {**found, "unique_bytes": found["unique_bytes"].astype("float32")}


class HundredRoundings(Fault):
    """Requested bytes are off by a hundred roundings of float64."""

    requirement = "REL-019"
    killed_by = case("sensitivity/base", "sensitivity/odd")

    def rel_ledger(self, shape: Geometry, setup_ms: float, at: Settings) -> dict[str, Any]:
        found = super().rel_ledger(shape, setup_ms, at)
        return {**found, "selected_bytes": found["selected_bytes"] * (1 + 400 * 2.0**-53)}


class SlowerTierIsAHit(Fault):
    """What lies in any tier counts as reuse."""

    requirement = "REL-018"
    killed_by = case("sensitivity/base", "sensitivity/reuse-in-a-slower-tier")

    def release_sensitivity(self, request: Request) -> Result:
        controls = request["controls"]
        reuse = min(1.0, controls["reuse"] + (1 - controls["reuse"]) * request["reuse_elsewhere"])
        sweeps = [
            {
                **sweep,
                "points": [
                    {**point, "reuse": reuse if point["reuse"] == controls["reuse"] else point["reuse"]}
                    for point in sweep["points"]
                ],
            }
            for sweep in request["sweeps"]
        ]
        return super().release_sensitivity({**request, "controls": {**controls, "reuse": reuse}, "sweeps": sweeps})


class ReuseIgnored(Fault):
    """Everything is cold."""

    requirement = "REL-018"
    killed_by = case("sensitivity/base", "sensitivity/odd", "sensitivity/order-of-shares")

    def rel_ledger(self, shape: Geometry, setup_ms: float, at: Settings) -> dict[str, Any]:
        return super().rel_ledger(shape, setup_ms, replace(at, reuse=at.reuse * 0))


class SelectedOfResident(Fault):
    """The selected share is taken of all resident bytes."""

    requirement = "REL-019"
    killed_by = case("sensitivity/base", "sensitivity/order-of-shares")

    def rel_ledger(self, shape: Geometry, setup_ms: float, at: Settings) -> dict[str, Any]:
        found = super().rel_ledger(shape, setup_ms, at)
        warm = super().rel_ledger(shape, setup_ms, replace(at, reuse=at.reuse * 0))
        return {**warm, "cold_bytes": found["cold_bytes"]}


class CoalescedShareIsRead(Fault):
    """The coalesced share is what is read, and not what is spared."""

    requirement = "REL-019"
    killed_by = case("sensitivity/base", "sensitivity/odd")

    def rel_ledger(self, shape: Geometry, setup_ms: float, at: Settings) -> dict[str, Any]:
        return super().rel_ledger(shape, setup_ms, replace(at, coalesced=1 - at.coalesced))


class GigabytesASecond(Fault):
    """The rate is read in powers of ten."""

    requirement = "REL-020"
    killed_by = case("sensitivity/base", "sensitivity/odd")

    def rel_ledger(self, shape: Geometry, setup_ms: float, at: Settings) -> dict[str, Any]:
        return super().rel_ledger(shape, setup_ms, replace(at, gib_per_s=at.gib_per_s * 1e9 / costs.GIB))


class QueueForgotten(Fault):
    """Only set-up and wire take time."""

    requirement = "REL-020"
    killed_by = case("sensitivity/base", "sensitivity/sweep-queue-ms")

    def rel_ledger(self, shape: Geometry, setup_ms: float, at: Settings) -> dict[str, Any]:
        return super().rel_ledger(shape, setup_ms, replace(at, queue_ms=at.queue_ms * 0))


class NothingTakesNoTime(Fault):
    """A transfer of no bytes is not set up."""

    requirement = "REL-020"
    killed_by = case("sensitivity/nothing-to-transfer")

    def rel_ledger(self, shape: Geometry, setup_ms: float, at: Settings) -> dict[str, Any]:
        found = super().rel_ledger(shape, setup_ms, at)
        return {**found, "service_ms": found["service_ms"] * (found["unique_bytes"] > 0)}


class StepsShareTheirRows(Fault):
    """Decode reads its rows once."""

    requirement = "REL-021"
    killed_by = case("sensitivity/base", "sensitivity/odd")

    def rel_ledger(self, shape: Geometry, setup_ms: float, at: Settings) -> dict[str, Any]:
        found = super().rel_ledger(shape, setup_ms, at)
        return {**found, "decode_bytes": found["unique_bytes"]}


class OneStepLess(Fault):
    """The first token comes from the prefill, so that it is left out."""

    requirement = "REL-021"
    killed_by = case("sensitivity/base", "sensitivity/odd")

    def rel_ledger(self, shape: Geometry, setup_ms: float, at: Settings) -> dict[str, Any]:
        return super().rel_ledger(shape, setup_ms, replace(at, output_tokens=at.output_tokens - 1))


class CachesRounded(Fault):
    """Whole caches are rounded to the nearest."""

    requirement = "REL-022"
    killed_by = case("sensitivity/whole-caches", "sensitivity/sweep-cpu-bytes")

    def rel_ledger(self, shape: Geometry, setup_ms: float, at: Settings) -> dict[str, Any]:
        found = super().rel_ledger(shape, setup_ms, at)
        sizes = zip(at.cpu_bytes, found["request_bytes"], strict=True)
        return {**found, "whole_caches": [round(room / size) for room, size in sizes]}


class CachesOfAllRequests(Fault):
    """Host memory is divided by all requests at once."""

    requirement = "REL-022"
    killed_by = case("sensitivity/base", "sensitivity/whole-caches")

    def rel_ledger(self, shape: Geometry, setup_ms: float, at: Settings) -> dict[str, Any]:
        found = super().rel_ledger(shape, setup_ms, at)
        sizes = zip(at.cpu_bytes, found["resident_bytes"], strict=True)
        return {**found, "whole_caches": [room // size for room, size in sizes]}


class OneRowMustRemain(Fault):
    """A cache is only counted when there is room beyond it."""

    requirement = "REL-022"
    killed_by = case("sensitivity/whole-caches")

    def rel_ledger(self, shape: Geometry, setup_ms: float, at: Settings) -> dict[str, Any]:
        return super().rel_ledger(shape, setup_ms, replace(at, cpu_bytes=[max(0, room - 1) for room in at.cpu_bytes]))


class AnySweep(Fault):
    """Points may change what they like."""

    requirement = "REL-023"
    killed_by = case("sensitivity/two-controls-at-once", "sensitivity/second-point-strays")

    def rel_strangers(self, setting: Request, point: Request, control: str) -> list[str]:
        return []


class FirstPointAlone(Fault):
    """Only the first point of a sweep is held against the setting."""

    requirement = "REL-023"
    killed_by = case("sensitivity/second-point-strays")

    def release_sensitivity(self, request: Request) -> Result:
        setting = request["controls"]
        sweeps = []
        for sweep in request["sweeps"]:
            name, (first, *rest) = sweep["control"], sweep["points"]
            points = [first, *({**setting, name: point[name]} for point in rest)]
            sweeps.append({"control": name, "points": points})
        return super().release_sensitivity({**request, "sweeps": sweeps})


class CostControlsMayMove(Fault):
    """Queue and host memory are not taken for controls."""

    requirement = "REL-023"
    killed_by = case("sensitivity/two-controls-at-once")

    def rel_strangers(self, setting: Request, point: Request, control: str) -> list[str]:
        found = super().rel_strangers(setting, point, control)
        return [name for name in found if name not in ("queue_ms", "cpu_bytes")]


class ChangedByControl(Fault):
    """What changed is told from a table of controls and not from the ledger."""

    requirement = "REL-023"
    killed_by = case("sensitivity/sweep-without-effect")

    def release_sensitivity(self, request: Request) -> Result:
        moved = {
            "context_tokens": costs.LEDGER[1:],
            "concurrency": costs.LEDGER[2:8],
            "output_tokens": ("decode_bytes",),
            "selected": costs.LEDGER[4:8],
            "reuse": costs.LEDGER[3:8],
            "coalesced": costs.LEDGER[5:8],
            "gib_per_s": ("service_ms",),
            "queue_ms": ("service_ms",),
            "cpu_bytes": ("whole_caches",),
        }
        found = super().release_sensitivity(request)
        sweeps = [{**sweep, "changed": list(moved[sweep["control"]])} for sweep in found["sweeps"]]
        return {**found, "sweeps": sweeps}


class LastPointAlone(Fault):
    """What changed is read off the last point."""

    requirement = "REL-023"
    killed_by = case("sensitivity/sweep-cpu-bytes", "sensitivity/nine-small-sweeps")

    def rel_changed(self, base: Result, points: Sequence[Result]) -> list[str]:
        return super().rel_changed(base, points[-1:])


class SweepsFromTheLastPoint(Fault):
    """A sweep starts where the one before ended."""

    requirement = "REL-023"
    killed_by = case("sensitivity/nine-small-sweeps")

    def release_sensitivity(self, request: Request) -> Result:
        found = super().release_sensitivity(request)
        last: dict[str, Any] = {}
        sweeps = []
        for sweep in request["sweeps"]:
            points = [{**point, **{name: last[name] for name in last if name != sweep["control"]}}
                      for point in sweep["points"]]  # fmt: skip
            one = {**request, "controls": points[0], "sweeps": [{**sweep, "points": points}]}
            sweeps += super().release_sensitivity(one)["sweeps"]
            last[sweep["control"]] = sweep["points"][-1][sweep["control"]]
        return {**found, "sweeps": sweeps}


class QualityEverywhere(Fault):
    """Quality that was measured once stands at every point."""

    requirement = "REL-024"
    killed_by = case("sensitivity/quality-stays-where-it-was-measured")

    def rel_quality(self, request: Request, point: Request) -> float | None:
        return None if request["quality"] is None else float(request["quality"]["retained_mass"])


class AllRowsAllMass(Fault):
    """Where everything is read the mass is taken to be one, and scaled in between."""

    requirement = "REL-024"
    killed_by = case("sensitivity/quality-stays-where-it-was-measured")

    def rel_quality(self, request: Request, point: Request) -> float | None:
        if request["quality"] is not None and point["selected"] == 1:
            return 1.0
        return super().rel_quality(request, point)


class QualityOfAnyContext(Fault):
    """Quality does not hang on the context."""

    requirement = "REL-024"
    killed_by = case("sensitivity/quality-stays-where-it-was-measured")

    def rel_quality(self, request: Request, point: Request) -> float | None:
        known = request["quality"]
        return known["retained_mass"] if known and point["selected"] == request["controls"]["selected"] else None


class QualityOfTheSetting(Fault):
    """Any other control voids the measurement, bandwidth included."""

    requirement = "REL-024"
    killed_by = case("sensitivity/quality-stays-where-it-was-measured")

    def rel_quality(self, request: Request, point: Request) -> float | None:
        return super().rel_quality(request, point) if point == request["controls"] else None


class ZeroQualityIsNone(Fault):
    """A measured mass of zero is read as no measurement."""

    requirement = "REL-024"
    killed_by = case("sensitivity/quality-stays-where-it-was-measured")

    def rel_quality(self, request: Request, point: Request) -> float | None:
        return super().rel_quality(request, point) or None


class FractionIsQuality(Fault):
    """Quality inferred from the fraction is taken."""

    requirement = "REL-024"
    killed_by = case("sensitivity/quality-from-the-fraction")

    def release_sensitivity(self, request: Request) -> Result:
        known = request["quality"]
        return super().release_sensitivity({**request, "quality": known and {**known, "evidence": "measured"}})


# --- decisions ----------------------------------------------------------------------------------------------------


class Decides(Fault):
    """The six steps on facts that are changed first."""

    def facts(self, request: Request) -> Result:
        """The facts as the fault sees them."""
        raise NotImplementedError

    def release_decide(self, request: Request) -> Result:
        return super().release_decide(self.facts(request))


class RetrievalFirst(Fault):
    """Sparsity is asked before exact offload."""

    requirement = "REL-025"
    killed_by = case("decide/exact-offload", "decide/earlier-steps-win")
    rel_steps = (decisions.STEPS[0], decisions.STEPS[2], decisions.STEPS[1], *decisions.STEPS[3:])


class FitsLessThan(Decides):
    """A cache that fits to the byte does not fit."""

    requirement = "REL-025"
    killed_by = case("decide/it-fits")

    def facts(self, request: Request) -> Result:
        room = request["capacity"]
        return {**request, "capacity": {**room, "gpu_bytes": room["gpu_bytes"] - 1}}


class OtherConstraintsIgnored(Decides):
    """What fits is resident."""

    requirement = "REL-025"
    killed_by = case("decide/it-fits-and-something-else-dominates")

    def facts(self, request: Request) -> Result:
        return {**request, "capacity": {**request["capacity"], "other_constraint": False}}


class ConstraintMeansNoFit(Fault):
    """Another constraint is told as a cache that does not fit."""

    requirement = "REL-025"
    killed_by = case("decide/it-fits-and-something-else-dominates")

    def release_decide(self, request: Request) -> Result:
        found = super().release_decide(request)
        if request["capacity"]["other_constraint"]:
            found["path"][0] = {"step": 1, "answer": "no"}
        return found


class TailIgnored(Decides):
    """Exact offload is judged by its mean."""

    requirement = "REL-025"
    killed_by = case("decide/exact-offload")

    def facts(self, request: Request) -> Result:
        return {**request, "offload": {**request["offload"], "p99_ms": 0}}


class LinkIgnored(Decides):
    """Exact offload is judged by its tail."""

    requirement = "REL-025"
    killed_by = case("decide/exact-offload")

    def facts(self, request: Request) -> Result:
        return {**request, "offload": {**request["offload"], "service_ms": 0}}


class PathWithoutNumbers(Fault):
    """Only the last answer is told."""

    requirement = "REL-025"
    killed_by = case("decide/worked-example")

    def release_decide(self, request: Request) -> Result:
        found = super().release_decide(request)
        return {**found, "path": found["path"][-1:]}


class SparsityAssumed(Decides):
    """What nobody measured is taken to be sparse."""

    requirement = "REL-026"
    killed_by = case("decide/sparsity-unknown")

    def facts(self, request: Request) -> Result:
        mass = request["sparsity"]
        if mass["evidence"] == "measured":
            return dict(request)
        known = {"evidence": "measured", "retained_mass": 1.0, "oracle_recall": 1.0}
        return {**request, "sparsity": {**mass, **known}}


class FractionIsSparsity(Decides):
    """Numbers from the fraction count as measured."""

    requirement = "REL-026"
    killed_by = case("decide/sparsity-unknown")

    def facts(self, request: Request) -> Result:
        mass = request["sparsity"]
        seen = "none" if mass["evidence"] == "none" else "measured"
        return {**request, "sparsity": {**mass, "evidence": seen}}


class RecallAlone(Decides):
    """Mass is not asked for."""

    requirement = "REL-026"
    killed_by = case("decide/sparsity-unknown", "decide/not-sparse-enough")

    def facts(self, request: Request) -> Result:
        return {**request, "sparsity": {**request["sparsity"], "retained_mass": 1.0}}


class MassAlone(Decides):
    """Recall is not asked for."""

    requirement = "REL-026"
    killed_by = case("decide/sparsity-unknown", "decide/not-sparse-enough")

    def facts(self, request: Request) -> Result:
        return {**request, "sparsity": {**request["sparsity"], "oracle_recall": 1.0}}


class ZeroIsUnknown(Decides):
    """A measured zero is read as no measurement."""

    requirement = "REL-026"
    killed_by = case("decide/not-sparse-enough")

    def facts(self, request: Request) -> Result:
        mass = request["sparsity"]
        both = {name: mass[name] or None for name in ("retained_mass", "oracle_recall")}
        return {**request, "sparsity": {**mass, **both}}


class TransferForgotten(Decides):
    """Candidates are in time when they are known in time."""

    requirement = "REL-027"
    killed_by = case("decide/late-candidates")

    def facts(self, request: Request) -> Result:
        return {**request, "selection": {**request["selection"], "transfer_ms": 0}}


class LateIsDeclined(Decides):
    """What adds latency is declined, deadline or not."""

    requirement = "REL-027"
    killed_by = case("decide/late-candidates", "decide/late-and-more")

    def facts(self, request: Request) -> Result:
        pick = request["selection"]
        return {**request, "selection": {**pick, "deadline_ms": pick["overlap_ms"]}}


class DeadlineIgnored(Decides):
    """However late, retrieval goes on."""

    requirement = "REL-027"
    killed_by = case("decide/late-candidates", "decide/earlier-steps-win")

    def facts(self, request: Request) -> Result:
        return {**request, "selection": {**request["selection"], "deadline_ms": 1e9}}


class HiddenIsInTime(Decides):
    """What other work hides has no deadline."""

    requirement = "REL-027"
    killed_by = case("decide/late-candidates")

    def facts(self, request: Request) -> Result:
        pick = request["selection"]
        hidden = pick["ready_ms"] + pick["transfer_ms"] <= pick["overlap_ms"]
        return {**request, "selection": {**pick, "deadline_ms": 1e9 if hidden else pick["deadline_ms"]}}


class LatencyUntold(Fault):
    """A late selection is not told as such once the later steps agree."""

    requirement = "REL-027"
    killed_by = case("decide/late-and-more", "decide/late-candidates")

    def release_decide(self, request: Request) -> Result:
        found = super().release_decide(request)
        return {**found, "adds_latency": found["adds_latency"] and found["design"] == "decline"}


class BinarySums(Fault):
    """Times are added in binary, so that what is exactly in time is late."""

    requirement = "REL-027"
    killed_by = case("decide/late-candidates")

    def release_decide(self, request: Request) -> Result:
        pick, found = request["selection"], super().release_decide(request)
        if len(found["path"]) > 3 and pick["ready_ms"] + pick["transfer_ms"] > pick["overlap_ms"]:
            found["path"][3]["answer"] = "no"
        return found


class PermissionAssumed(Decides):
    """Everybody may be answered approximately."""

    requirement = "REL-028"
    killed_by = case("decide/approximation-not-allowed")

    def facts(self, request: Request) -> Result:
        return {**request, "approximation": {**request["approximation"], "allowed": True}}


class NoWayOutNeeded(Decides):
    """Retrieval without permission goes on without an exact fallback."""

    requirement = "REL-028"
    killed_by = case("decide/approximation-not-allowed")

    def facts(self, request: Request) -> Result:
        return {**request, "approximation": {**request["approximation"], "exact_fallback": True}}


class WayOutAlwaysNeeded(Fault):
    """Permitted approximation needs an exact fallback, too."""

    requirement = "REL-028"
    killed_by = case("decide/approximation-not-allowed")

    def release_decide(self, request: Request) -> Result:
        found = super().release_decide(request)
        if len(found["path"]) > 4 and not request["approximation"]["exact_fallback"]:
            return {**found, "design": "decline", "path": found["path"][:5]}
        return found


class IndexAlone(Decides):
    """The pool's generation is not looked at."""

    requirement = "REL-029"
    killed_by = case("decide/identities-apart")

    def facts(self, request: Request) -> Result:
        ids = request["identities"]
        return {**request, "identities": {**ids, "pool_generation": ids["cache_generation"]}}


class IndexMayBeAhead(Decides):
    """An index is refused only when it is behind."""

    requirement = "REL-029"
    killed_by = case("decide/identities-apart")

    def facts(self, request: Request) -> Result:
        ids = request["identities"]
        ahead = min(ids["index_generation"], ids["cache_generation"])
        return {**request, "identities": {**ids, "index_generation": ahead}}


class GenerationsAreEnough(Decides):
    """Whether the three are published as one is not asked."""

    requirement = "REL-029"
    killed_by = case("decide/identities-apart")

    def facts(self, request: Request) -> Result:
        return {**request, "identities": {**request["identities"], "transactional": True}}


# --- failures -----------------------------------------------------------------------------------------------------


class Misjudges(Fault):
    """One failure's facts are changed first."""

    kind: str
    as_if: dict[str, Any]

    def rel_action(self, event: Request) -> Action:
        return super().rel_action({**event, **self.as_if} if event["kind"] == self.kind else event)


class DomainsIgnored(Misjudges):
    """A tenant is one in every domain."""

    requirement = "REL-043"
    killed_by = case("failure/tenant-mismatch")
    kind, as_if = "tenant_mismatch", {"reader_domain": "", "object_domain": ""}


class TenantsFolded(Fault):
    """Tenants are compared without case."""

    requirement = "REL-043"
    killed_by = case("failure/tenant-mismatch")

    def rel_action(self, event: Request) -> Action:
        names = {key: value.lower() for key, value in event.items() if key.endswith("_tenant")}
        return super().rel_action({**event, **names})


class IdentityUnbound(Misjudges):
    """A valid tag is enough."""

    requirement = "REL-043"
    killed_by = case("failure/payload-authentication")
    kind, as_if = "payload_authentication", {"identity_valid": True}


class OwnersReplicaDiscarded(Fault):
    """A replica of another identity is thrown away, and its owner misses it."""

    requirement = "REL-044"
    killed_by = case("failure/payload-authentication")

    def rel_action(self, event: Request) -> Action:
        found = super().rel_action(event)
        return replace(found, reclaimed="replica") if found.telemetry == "IDENTITY_NOT_AUTHENTIC" else found


class DeletedUnderReaders(Misjudges):
    """Leases do not hold up a deletion."""

    requirement = "REL-043"
    killed_by = case("failure/deletion-with-leases")
    kind, as_if = "deletion_with_leases", {"leases": 0}


class OneLeaseIsNone(Fault):
    """A single lease is overlooked."""

    requirement = "REL-043"
    killed_by = case("failure/deletion-with-leases")

    def rel_action(self, event: Request) -> Action:
        return super().rel_action({**event, "leases": event["leases"] // 2} if "leases" in event else event)


class NewerCompletionTaken(Fault):
    """A completion is stale only when it is older."""

    requirement = "REL-043"
    killed_by = case("failure/stale-completion")

    def rel_action(self, event: Request) -> Action:
        if event["kind"] == "stale_completion" and event["completion_generation"] > event["current_generation"]:
            return super().rel_action({**event, "completion_generation": event["current_generation"]})
        return super().rel_action(event)


class CancelIgnored(Misjudges):
    """A cancelled request's copy is published when it completes."""

    requirement = "REL-043"
    killed_by = case("failure/stale-completion")
    kind, as_if = "stale_completion", {"cancelled": False}


class ReservationKept(Fault):
    """What a failure had reserved stays reserved."""

    requirement = "REL-044"
    killed_by = case("failure/stale-completion", "failure/crash-before-publish", "failure/secondary-read-lost")

    def rel_action(self, event: Request) -> Action:
        found = super().rel_action(event)
        return replace(found, reclaimed="none") if found.reclaimed == "reservation" else found


class DivergenceServed(Fault):
    """A diverged index is withdrawn, and its last selection served."""

    requirement = "REL-044"
    killed_by = case("failure/index-payload-divergence")

    def rel_action(self, event: Request) -> Action:
        found = super().rel_action(event)
        return replace(found, served="selection") if found.action == "withdraw_index" else found


class IndexAheadIsFine(Fault):
    """Only an index that is behind diverges."""

    requirement = "REL-043"
    killed_by = case("failure/index-payload-divergence")

    def rel_action(self, event: Request) -> Action:
        if event["kind"] == "index_payload_divergence":
            return super().rel_action(
                {**event, "index_generation": min(event["index_generation"], event["row_map_generation"])}
            )
        return super().rel_action(event)


class NeverTakenBack(Fault):
    """Failures are handled, and the rollout goes on."""

    requirement = "REL-044"
    killed_by = case("failure/tenant-mismatch", "failure/payload-authentication", "failure/index-payload-divergence")

    def rel_action(self, event: Request) -> Action:
        return replace(super().rel_action(event), rollout="keep")


class AlwaysTakenBack(Fault):
    """Every failure takes the rollout back."""

    requirement = "REL-044"
    killed_by = case("failure/stale-completion", "failure/crash-before-publish", "failure/receipt-replay")

    def rel_action(self, event: Request) -> Action:
        found = super().rel_action(event)
        return replace(found, rollout="exact_baseline") if found.telemetry else found


class SilentFailures(Fault):
    """Failures that were handled are not logged."""

    requirement = "REL-044"
    killed_by = case("failure/candidate-cap-forced", "failure/secondary-read-lost", "failure/crash-after-commit")

    def rel_action(self, event: Request) -> Action:
        return replace(super().rel_action(event), telemetry=None)


class RedoneAfterCommit(Fault):
    """After a crash a committed transaction is applied again."""

    requirement = "REL-043"
    killed_by = case("failure/crash-after-commit")

    def rel_action(self, event: Request) -> Action:
        found = super().rel_action(event)
        return replace(found, action="apply") if found.action == "finish_from_receipt" else found


class CommittedIsValid(Misjudges):
    """The payload of a durable receipt is not checked."""

    requirement = "REL-043"
    killed_by = case("failure/crash-after-commit")
    kind, as_if = "crash_after_commit", {"payload_valid": True}


class UnpublishedIsServed(Fault):
    """Bytes that arrived before the crash are published after it."""

    requirement = "REL-044"
    killed_by = case("failure/crash-before-publish")

    def rel_action(self, event: Request) -> Action:
        found = super().rel_action(event)
        return replace(found, published=True, served="object") if found.action == "drop_reservation" else found


class ReplayIsCompared(Misjudges):
    """A known receipt is a repetition, whatever it says."""

    requirement = "REL-043"
    killed_by = case("failure/receipt-replay")
    kind, as_if = "receipt_replay", {"same_content": True}


class WentOnWithoutTheRead(Fault):
    """What arrived is served when a read is lost."""

    requirement = "REL-044"
    killed_by = case("failure/secondary-read-lost")

    def rel_action(self, event: Request) -> Action:
        found = super().rel_action(event)
        return replace(found, served="selection") if found.action == "recompute" else found


class RecomputeFirst(Misjudges):
    """Another replica is not looked for."""

    requirement = "REL-043"
    killed_by = case("failure/secondary-read-lost")
    kind, as_if = "secondary_read_lost", {"other_valid_replica": False}


class CapIsQuiet(Misjudges):
    """A cut that nobody declares is served."""

    requirement = "REL-043"
    killed_by = case("failure/candidate-cap-forced")
    kind, as_if = "candidate_cap_forced", {"cap_reported": True}


class CapForExactRequests(Misjudges):
    """Exact requests get the cut selection with a note."""

    requirement = "REL-043"
    killed_by = case("failure/candidate-cap-forced")
    kind, as_if = "candidate_cap_forced", {"exact_required": False}


class LastActionRepeated(Fault):
    """The action of the failure before is given when the next has no telemetry of its own."""

    requirement = "REL-043"
    killed_by = case("failure/ten-in-a-row", "failure/receipt-replay")

    def open(self) -> None:
        super().open()
        self.rel_last: Action | None = None

    def rel_action(self, event: Request) -> Action:
        found = super().rel_action(event)
        if found.telemetry is None and self.rel_last is not None:
            return self.rel_last
        self.rel_last = found
        return found


FAULTS: tuple[type[Fault], ...] = (
    KeysAlone,
    LayerForgotten,
    TwoBytesAlways,
    CountsInSinglePrecision,
    SlowerTierIsAHit,
    ReuseIgnored,
    AmountsInSinglePrecision,
    HundredRoundings,
    SelectedOfResident,
    CoalescedShareIsRead,
    GigabytesASecond,
    QueueForgotten,
    NothingTakesNoTime,
    StepsShareTheirRows,
    OneStepLess,
    CachesRounded,
    CachesOfAllRequests,
    OneRowMustRemain,
    AnySweep,
    FirstPointAlone,
    CostControlsMayMove,
    ChangedByControl,
    LastPointAlone,
    SweepsFromTheLastPoint,
    QualityEverywhere,
    AllRowsAllMass,
    QualityOfAnyContext,
    QualityOfTheSetting,
    ZeroQualityIsNone,
    FractionIsQuality,
    RetrievalFirst,
    FitsLessThan,
    OtherConstraintsIgnored,
    ConstraintMeansNoFit,
    TailIgnored,
    LinkIgnored,
    PathWithoutNumbers,
    SparsityAssumed,
    FractionIsSparsity,
    RecallAlone,
    MassAlone,
    ZeroIsUnknown,
    TransferForgotten,
    LateIsDeclined,
    DeadlineIgnored,
    HiddenIsInTime,
    LatencyUntold,
    BinarySums,
    PermissionAssumed,
    NoWayOutNeeded,
    WayOutAlwaysNeeded,
    IndexAlone,
    IndexMayBeAhead,
    GenerationsAreEnough,
    DomainsIgnored,
    TenantsFolded,
    IdentityUnbound,
    OwnersReplicaDiscarded,
    DeletedUnderReaders,
    OneLeaseIsNone,
    NewerCompletionTaken,
    CancelIgnored,
    ReservationKept,
    DivergenceServed,
    IndexAheadIsFine,
    NeverTakenBack,
    AlwaysTakenBack,
    SilentFailures,
    RedoneAfterCommit,
    CommittedIsValid,
    UnpublishedIsServed,
    ReplayIsCompared,
    WentOnWithoutTheRead,
    RecomputeFirst,
    CapIsQuiet,
    CapForExactRequests,
    LastActionRepeated,
)
