"""Faults that only a second input shows: borders in keys, order of the reasons, thousandths, text, names."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import astuple, replace
from typing import ClassVar

from kvassay_reference.errors import Refusal
from kvassay_reference.release import record, registry, statement
from kvassay_reference.release.record import EndRule
from kvassay_reference.release.registry import Fields, Registry
from kvassay_reference.release.rollout import Candidate, Evidence, Machine, Rollout
from kvassay_reference.release.store import Identity, Object, Receipt, Store, Tier, Transaction

from ..base import Fault, found
from .base import Request, Result, case


class JoinedBySlashes(Fault):
    """Fields are joined with slashes to one key."""

    requirement = "REL-045"
    killed_by = case("tenants/borders-in-the-fields")

    class Keeps(Store):
        def find(self, identity: Identity) -> Object | None:
            wanted = "/".join(map(str, astuple(identity)))
            return next((one for own, one in self.visible.items() if "/".join(map(str, astuple(own))) == wanted), None)

    rel_store_class = Keeps


class RowsAreNoField(Fault):
    """A commit is late when an object of another number of rows is newer."""

    requirement = "REL-045"
    killed_by = case("transactions/another-number-of-rows")

    class Keeps(Store):
        def stale(self, one: Transaction) -> bool:
            same = [
                last
                for own, last in self.durable.settled.items()
                if replace(own, rows=one.identity.rows) == one.identity
            ]
            return one.generation <= max(same, default=0)

    rel_store_class = Keeps


class LateBeforeShort(Fault):
    """A late commit is refused as such though it has no rows."""

    requirement = "REL-050"
    killed_by = case("transactions/order-of-the-reasons")

    class Keeps(Store):
        def commit(self, name: str, receipt: str) -> tuple[str, int]:
            one = self.transactions.get(name)
            if receipt not in self.durable.receipts and one is not None and self.stale(one):
                del self.transactions[name]
                raise Refusal("STALE_COMMIT", name)
            return super().commit(name, receipt)

    rel_store_class = Keeps


class LastBeforeLeased(Fault):
    """That a copy is the last one is told before that it is leased."""

    requirement = "REL-051"
    killed_by = case("transactions/order-of-the-reasons")

    class Keeps(Store):
        def evict(self, identity: Identity, tier: Tier) -> str:
            one = self.visible.get(identity)
            if one is not None and tier in one.copies and not self.remains(one, tier):
                raise Refusal("LAST_AUTHORITY", tier)
            return super().evict(identity, tier)

    rel_store_class = Keeps


class DeletedForTheTenant(Fault):
    """The receipt of a deletion counts for every object of its tenant."""

    requirement = "REL-049"
    killed_by = case("receipts/deletion-of-another-object")

    class Keeps(Store):
        def applied(self, id: str, receipt: Receipt) -> Receipt | None:
            old = self.durable.receipts.get(id)
            if old is not None and old.op == receipt.op == "erase":
                return old
            return super().applied(id, receipt)

    rel_store_class = Keeps


class ServedByPercent(Fault):
    """Buckets and shares are cut to whole percents."""

    requirement = "REL-038"
    killed_by = case(*(f"serve/ramp-of-{share}-thousandths" for share in (3, 15, 128, 999)))

    class Runs(Machine):
        def reached(self, rollout: Rollout, tenant: str, request_class: str, bucket: int) -> bool:
            if rollout.station.state == "RAMP":
                return bucket // 10 < rollout.station.fraction_milli // 10
            return super().reached(rollout, tenant, request_class, bucket)

    rel_machine_class = Runs


class ClosedBeforeRepeated(Fault):
    """A repeated observation is refused once it took its candidate back."""

    requirement = "REL-041"
    killed_by = case("receipts/observation-that-took-it-back")

    class Runs(Machine):
        def observe(self, name: str, seen: Evidence) -> tuple[Rollout, str]:
            if self.find(name).closed:
                raise Refusal("ROLLED_BACK_MANIFEST", name)
            return super().observe(name, seen)

    rel_machine_class = Runs


class ManifestFirst(Fault):
    """A manifest that failed is told before what a proposal lacks."""

    requirement = "REL-031"
    killed_by = case("propose/order-of-the-reasons")

    class Runs(Machine):
        def propose(self, candidate: Candidate) -> tuple[Rollout, str]:
            self.admit_manifest(candidate)
            return super().propose(candidate)

    rel_machine_class = Runs


class NearlyAtTheLimit(Fault):
    """A millionth above a limit still passes."""

    requirement = "REL-033"
    killed_by = case("gates/a-little-over-logit", "gates/a-little-over-p99", "gates/a-little-over-exposed")

    class Runs(Machine):
        def failed(self, rollout: Rollout, seen: Evidence) -> list[str]:
            rows = self.measured(rollout, seen)
            return [row.gate for row in rows if row.value is not None and row.value > row.limit * (1 + 1e-6)]

    rel_machine_class = Runs


class EveryDeclaredLimit(Fault):
    """A candidate is held to the limit of the other mode, too, where it declares one."""

    requirement = "REL-033"
    killed_by = case("gates/limit-of-the-other-mode")

    class Runs(Machine):
        def failed(self, rollout: Rollout, seen: Evidence) -> list[str]:
            limits, found = rollout.candidate.limits, super().failed(rollout, seen)
            if seen.quality and limits.quality_drop is not None and seen.quality.drop > limits.quality_drop:
                return [*{"quality_drop": 0, **dict.fromkeys(found)}]
            return found

    rel_machine_class = Runs


class EscapedText(Fault):
    """Digests are of text with escapes."""

    requirement = "REL-032"
    killed_by = case("propose/text-of-a-manifest")

    def release_propose(self, request: Request) -> Result:
        text = json.dumps(request["candidate"]["manifest"], sort_keys=True, separators=(",", ":"))
        return {**super().release_propose(request), "manifest_sha256": hashlib.sha256(text.encode()).hexdigest()}


class EndsInAnotherOrder(Fault):
    """The end of a record is checked from its rollback on."""

    requirement = "REL-042"
    killed_by = case("record/first-reason")

    rel_ends: ClassVar[tuple[EndRule, ...]] = record.END[::-1]

    def release_admit(self, request: Request) -> Result:
        before = record.END
        record.END = self.rel_ends
        try:
            return super().release_admit(request)
        finally:
            record.END = before


class TrafficBeforeSite(Fault):
    """What crosses is judged before where attention runs."""

    requirement = "REL-006"
    killed_by = case("registry/first-reason-of-a-pipeline")

    rel_registry_rules = sorted(registry.RULES, key=lambda rule: rule.reason == "COMPUTE_AWAY_FROM_ROWS")


class PlansBeforeReports(Fault):
    """What a result serves for is judged before what it is called."""

    requirement = "REL-011"
    killed_by = case("registry/first-reason-of-a-result")

    rel_registry_rules = sorted(registry.RULES, key=lambda rule: rule.reason == "MEASUREMENT_WITHOUT_REPORT")


class OfflineIsOffline(Fault):
    """An index that is built offline may serve offline batches."""

    requirement = "REL-005"
    killed_by = case("registry/offline-and-other-workloads")

    rel_registry_rules: ClassVar[Sequence[registry.Rule]] = tuple(
        registry.PipelineRule(
            rule.reason,
            lambda one: (
                one.fields.update != ("offline",) or set(one.fields.workload) <= {"fixed_context", "offline_batch"}
            ),
        )
        if rule.reason == "INDEX_OUTGROWN"
        else rule
        for rule in registry.RULES
    )


class InterfacesFirst(Fault):
    """Interfaces are judged before pipelines and results."""

    requirement = "REL-014"
    killed_by = case("registry/pipelines-before-interfaces")

    def rel_violations(self, document: Registry) -> Sequence[tuple[str, str]]:
        names = ("INTERFACE_INCONSISTENT", "METRIC_OF_OTHER_INTERFACE")
        return sorted(super().rel_violations(document), key=lambda one: one[0] not in names)


class ProxyIsTheRepresentation(Fault):
    """Representations are compared by what is searched."""

    requirement = "REL-009"
    killed_by = case("compare/payload-of-another-width")

    def rel_same(self, left: Fields, right: Fields) -> list[str]:
        return super().rel_same(left, replace(right, representation=replace(
            right.representation, payload=left.representation.payload)))  # fmt: skip


class FirstNameCounts(Fault):
    """Of three names only that of the first thing is kept from the others."""

    requirement = "REL-054"
    killed_by = case("statement/every-name-of-another")

    def rel_collapses(self, document: statement.Statement) -> list[str]:
        return [one for one in super().rel_collapses(document) if one not in ("size", "owner", "quality")]


class GenerationsAhead(Fault):
    """An index and a pool that are ahead of the cache are published."""

    requirement = "REL-029"
    killed_by = case("decide/generations-ahead-or-behind")

    def release_decide(self, request: Request) -> Result:
        own = request["identities"]
        if own["index_generation"] == own["pool_generation"] >= own["cache_generation"]:
            request = {**request, "identities": {**own, "cache_generation": own["pool_generation"]}}
        return super().release_decide(request)


class LateByAMicrosecond(Fault):
    """Half a microsecond is not late."""

    requirement = "REL-027"
    killed_by = case("decide/a-microsecond-late")

    def release_decide(self, request: Request) -> Result:
        own = request["selection"]
        later = {name: own[name] + 0.001 for name in ("overlap_ms", "deadline_ms")}
        return super().release_decide({**request, "selection": {**own, **later}})


FAULTS = found(globals())
"""In the order of the cases."""
