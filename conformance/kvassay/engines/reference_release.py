"""The release ops of the built-in adapter: requests become the reference's registries, plans, rollouts and store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, ClassVar, TypeVar

import numpy as np
from array_api_compat import array_namespace
from kvassay_reference.manifest import NotAManifest, read, write
from kvassay_reference.release import costs, decisions, registry
from kvassay_reference.release.record import Record, Review
from kvassay_reference.release.registry import Interface, Registry
from kvassay_reference.release.rollout import Candidate, Evidence, Machine, Manifest, Rollout, Station
from kvassay_reference.release.statement import Statement, collapses
from kvassay_reference.release.store import Identity, Store

from ..adapters.base import Rejected
from .reference_attention import refusals_named
from .reference_part import ReferencePart

Request = Mapping[str, Any]
Result = dict[str, Any]
_T = TypeVar("_T")


def taken(kind: type[_T], value: Any) -> _T:
    """A dataclass of the reference, or a rejection of what has another form."""
    try:
        return read(kind, value)
    except NotAManifest as problem:
        raise Rejected("SCHEMA_VIOLATION", str(problem)) from None


class ReleaseReference(ReferencePart):
    """The release ops. Faults override one of the small methods, here, in the machine or in the store."""

    own_profiles: ClassVar[frozenset[str]] = frozenset(
        {"release-registry", "release-plan", "rollout", "rollout-record", "release-store"}
    )
    rel_registry_rules: ClassVar[Sequence[registry.Rule]] = registry.RULES
    rel_machine_class: ClassVar[type[Machine]] = Machine
    rel_review: ClassVar[Review] = Review()
    rel_store_class: ClassVar[type[Store]] = Store

    def open(self) -> None:
        """No rollout, and nothing stored."""
        super().open()
        self.rel_machine = self.rel_machine_class()
        self.rel_store = self.rel_store_class()

    # registries

    def rel_violations(self, document: Registry) -> Sequence[tuple[str, str]]:
        """Everything that is wrong with a registry."""
        return list(registry.violations(document, self.rel_registry_rules))

    def rel_registry(self, request: Request) -> Registry:
        """The registry of a request."""
        document = taken(Registry, request["document"])
        for reason, entry in self.rel_violations(document):
            raise Rejected(reason, entry)
        return document

    def rel_family(self, fields: registry.Fields) -> str:
        """Which product a pipeline is."""
        return registry.family(fields)

    def rel_reproducible(self, conditions: registry.Conditions) -> bool:
        """Whether a result could be reproduced."""
        return conditions.complete

    def release_registry(self, request: Request) -> Result:
        """Accept a registry and say what its entries are."""
        document = self.rel_registry(request)
        return {
            "pipelines": [
                {"name": one.name, "family": self.rel_family(one.fields), "exact": one.fields.exact}
                for one in document.pipelines
            ],
            "evaluations": [
                {"id": one.id, "reproducible": self.rel_reproducible(one.conditions)} for one in document.evaluations
            ],
        }

    def rel_same(self, left: registry.Fields, right: registry.Fields) -> list[str]:
        """Fields with one value."""
        return registry.same_fields(left, right)

    def release_compare(self, request: Request) -> Result:
        """Two pipelines, field by field."""
        known = {one.name: one.fields for one in self.rel_registry(request).pipelines}
        for name in (request["left"], request["right"]):
            if name not in known:
                raise Rejected("UNKNOWN_PIPELINE", name)
        if request["rank_by"] is not None:
            raise Rejected("SOURCE_RESULTS_RANKED", request["rank_by"])
        left, right = known[request["left"]], known[request["right"]]
        same = self.rel_same(left, right)
        differ = [name for name in registry.FIELDS if name not in same]
        return {"same": same, "differ": differ, "exact": [left.exact, right.exact]}

    def rel_interface(self, one: Interface) -> Result:
        """What an interface is."""
        return {
            "interface": one.injection,
            "serving_cache": one.object == "cached_rows",
            "metrics": list(registry.INTERFACES[one.injection].metrics),
        }

    def release_classify(self, request: Request) -> Result:
        """Which interface of retrieval a design has."""
        parts = {name: request[name] for name in ("query", "object", "injection")}
        one = Interface(name="", **parts, metrics=tuple(request["metrics"]))
        for reason in registry.of_interface(one, self.rel_registry_rules):
            raise Rejected(reason, one.object)
        return self.rel_interface(one)

    def rel_collapses(self, document: Statement) -> list[str]:
        """Members of a statement that take one thing for another."""
        return list(collapses(document))

    def release_statement(self, request: Request) -> Result:
        """Accept what a design says of itself or reject it."""
        for member in self.rel_collapses(taken(Statement, request["document"])):
            raise Rejected("FORBIDDEN_COLLAPSE", member)
        return {}

    # plans

    def rel_ledger(self, shape: costs.Geometry, setup_ms: float, at: costs.Settings) -> dict[str, Any]:
        """Ledgers of settings."""
        return costs.ledger(array_namespace(at.selected), shape, setup_ms, at)

    def rel_strangers(self, setting: Request, point: Request, control: str) -> list[str]:
        """Controls that a sweep must not change."""
        return costs.strangers(setting, point, control)

    def rel_quality(self, request: Request, point: Request) -> float | None:
        """What is known of quality at a point: what was measured under its support, and nothing else."""
        known, setting = request["quality"], request["controls"]
        alike = all(point[name] == setting[name] for name in ("context_tokens", "selected"))
        return known["retained_mass"] if known is not None and alike else None

    def rel_changed(self, base: Result, points: Sequence[Result]) -> list[str]:
        """Members of the ledger that differ from the base at some point."""
        return [name for name in costs.LEDGER if any(point[name] != base[name] for point in points)]

    def release_sensitivity(self, request: Request) -> Result:
        """The ledger of a setting and of its sweeps."""
        setting, known = request["controls"], request["quality"]
        if known is not None and known["evidence"] == "fraction":
            raise Rejected("QUALITY_INFERRED_FROM_FRACTION", "a fraction says what is read, not what is lost")
        for sweep in request["sweeps"]:
            for point in sweep["points"]:
                others = self.rel_strangers(setting, point, sweep["control"])
                if others:
                    raise Rejected("SWEEP_CHANGES_OTHER_CONTROL", ", ".join(others))
        xp = array_namespace(self.inward(np.zeros(1)))
        shape = costs.Geometry(**request["geometry"])

        def rows(points: Sequence[Request]) -> list[Result]:
            table = self.rel_ledger(shape, float(request["setup_ms"]), costs.Settings.of(xp, points))
            found = [costs.row(table, i) for i in range(len(points))]
            return [{**one, "quality": self.rel_quality(request, at)} for one, at in zip(found, points, strict=True)]

        (base,) = rows([setting])
        sweeps = []
        for sweep in request["sweeps"]:
            points = rows(sweep["points"])
            sweeps.append({"control": sweep["control"], "points": points, "changed": self.rel_changed(base, points)})
        return {"base": base, "sweeps": sweeps}

    rel_steps: ClassVar[tuple[decisions.Step, ...]] = decisions.STEPS

    def release_decide(self, request: Request) -> Result:
        """The six steps."""
        design, way = decisions.decide(request, self.rel_steps)
        path = [{"step": number, "answer": answer} for number, answer in enumerate(way.answers, 1)]
        return {"design": design, "path": path, "adds_latency": way.adds_latency}

    def rel_action(self, event: Request) -> decisions.Action:
        """What one failure leads to."""
        return decisions.failure_action(event)

    def release_failure_action(self, request: Request) -> Result:
        """What one failure leads to, and what must be seen of it."""
        return asdict(self.rel_action(request["event"]))

    # rollouts

    def rel_status(self, found: tuple[Rollout, str]) -> Result:
        """Where a rollout is."""
        one, outcome = found
        return {
            "outcome": outcome,
            "state": one.station.state,
            "fraction_milli": one.station.fraction_milli,
            "manifest_sha256": one.candidate.manifest.sha256,
            "rollback": None if one.rollback is None else write(one.rollback),
        }

    def release_propose(self, request: Request) -> Result:
        """A candidate."""
        candidate = taken(Candidate, request["candidate"])
        with refusals_named():
            return self.rel_status(self.rel_machine.propose(candidate))

    def release_advance(self, request: Request) -> Result:
        """The next state."""
        seen = None if request["evidence"] is None else taken(Evidence, request["evidence"])
        with refusals_named():
            target = Station(request["target"], request["fraction_milli"])
            return self.rel_status(self.rel_machine.advance(request["name"], target, seen))

    def release_observe(self, request: Request) -> Result:
        """A measurement."""
        seen = taken(Evidence, request["evidence"])
        with refusals_named():
            return self.rel_status(self.rel_machine.observe(request["name"], seen))

    def release_shift(self, request: Request) -> Result:
        """What runs now."""
        manifest = taken(Manifest, request["manifest"])
        with refusals_named():
            return self.rel_status(self.rel_machine.shift(request["name"], manifest))

    def release_serve(self, request: Request) -> Result:
        """Who answers."""
        names = ("name", "tenant", "request_class", "bucket", "allows_approximation")
        with refusals_named():
            served_by, shadow = self.rel_machine.serve(*(request[name] for name in names))
        return {"served_by": served_by, "shadow": shadow}

    def release_inspect(self, request: Request) -> Result:
        """Where it is."""
        with refusals_named():
            return self.rel_status((self.rel_machine.find(request["name"]), "noop"))

    def release_admit(self, request: Request) -> Result:
        """Accept a record or reject it."""
        record = taken(Record, request["document"])
        with refusals_named():
            self.rel_review.admit(record)
        return {}

    # store

    def release_reserve(self, request: Request) -> Result:
        """Open a transaction."""
        with refusals_named():
            return {"generation": self.rel_store.reserve(request["transaction"], Identity(**request["identity"]))}

    def release_write(self, request: Request) -> Result:
        """Bring rows."""
        with refusals_named():
            self.rel_store.write(request["transaction"], request["payload"])
        return {"outcome": "written"}

    def release_commit(self, request: Request) -> Result:
        """Publish."""
        with refusals_named():
            outcome, generation = self.rel_store.commit(request["transaction"], request["receipt"])
        return {"outcome": outcome, "generation": generation}

    def release_get(self, request: Request) -> Result:
        """Read."""
        with refusals_named():
            found = self.rel_store.get(Identity(**request["identity"]), request["lease"])
        if found is None:
            return {"outcome": "miss", "payload": None, "generation": None, "tier": None}
        one, tier = found
        payload = list(one.copies[tier].payload)
        return {"outcome": "hit", "payload": payload, "generation": one.generation, "tier": tier}

    def release_unlease(self, request: Request) -> Result:
        """End a lease."""
        with refusals_named():
            self.rel_store.unlease(request["lease"])
        return {"outcome": "ended"}

    def release_evict(self, request: Request) -> Result:
        """Free one copy."""
        with refusals_named():
            return {"outcome": self.rel_store.evict(Identity(**request["identity"]), request["tier"])}

    def release_erase(self, request: Request) -> Result:
        """Delete."""
        with refusals_named():
            return {"outcome": self.rel_store.erase(Identity(**request["identity"]), request["receipt"])}

    def release_tamper(self, request: Request) -> Result:
        """Change a copy."""
        swap = None if request["swap"] is None else Identity(**request["swap"])
        with refusals_named():
            self.rel_store.tamper(Identity(**request["identity"]), request["tier"], swap)
        return {"outcome": "tampered"}

    def release_restart(self, request: Request) -> Result:
        """Lose memory."""
        self.rel_store.restart()
        return self.release_census(request)

    def release_audit(self, request: Request) -> Result:
        """What was done for one tenant."""
        return {
            "records": [
                {
                    "op": one.op,
                    "receipt": one.receipt,
                    "model": one.identity.model,
                    "adapter": one.identity.adapter,
                    "representation": one.identity.representation,
                    "generation": one.generation,
                }
                for one in self.rel_store.audit(request["tenant"], request["domain"])
            ]
        }

    def release_census(self, request: Request) -> Result:
        """Count."""
        return self.rel_store.census()
