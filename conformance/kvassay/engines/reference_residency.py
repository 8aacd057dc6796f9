"""The residency ops of the built-in adapter: requests become calls of the reference's store."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from kvassay_reference import residency_documents, residency_plans
from kvassay_reference.manifest import NotAManifest, read
from kvassay_reference.residency import Grant, Residency
from kvassay_reference.residency_documents import Directory, Step
from kvassay_reference.residency_plans import Reuse, Tier
from numpy.typing import NDArray

from ..adapters.base import Rejected
from .reference_attention import refusals_named
from .reference_part import ReferencePart

Request = Mapping[str, Any]
Result = dict[str, Any]


class ResidencyReference(ReferencePart):
    """The residency ops. Faults override one of the small methods of the store."""

    own_profiles: ClassVar[frozenset[str]] = frozenset({"store", "transaction", "residency-plan", "residency-manifest"})
    own_capabilities: ClassVar[Mapping[str, Any]] = {
        "residency.mode": "component",
        "residency.txn_ids": True,
        "residency.expiry_write": True,
        "residency.expiry_read": True,
        "residency.exact_clock": True,
        "residency.leases": True,
        "residency.joins": True,
        "residency.cancel": True,
        "residency.cancel_load": True,
        "residency.job_failure": "key",
        "residency.replaces": True,
        "residency.fences": True,
        "residency.owns_source": True,
        "residency.owns_destination": True,
        "residency.secondary": True,
        "residency.authority": True,
        "residency.exact_slots": True,
        "residency.evicts": True,
        "residency.validates_length": True,
        "residency.checksums": True,
        "residency.receipts": True,
        "residency.tenants": True,
        "residency.opaque_keys": True,
    }
    store_class: ClassVar[type[Residency]] = Residency

    def residency_open(self, request: Request) -> Result:
        """An empty store."""
        limits = request.get("write_ttl_ms"), request.get("read_ttl_ms")
        self.residency = self.store_class(request["slots"], request["slot_bytes"], *limits)
        return self.told_by_store(slots=request["slots"], slot_bytes=request["slot_bytes"])

    def told_by_store(self, **members: Any) -> Result:
        """A reply: the reference is called once for each op."""
        return {**members, "engine_calls": 1}

    def residency_put(self, request: Request) -> Result:
        """Make rows resident."""
        outcome = self.residency.put(key_of(request, request["key"]), request["data"].tobytes())
        return self.told_by_store(outcome=outcome)

    def residency_get(self, request: Request) -> Result:
        """Read rows."""
        outcome, rows, tier = self.residency.get(key_of(request, request["key"]))
        if rows is None:
            return self.told_by_store(outcome=outcome)
        return self.told_by_store(outcome=outcome, data=array(rows), tier=tier)

    def residency_lookup(self, request: Request) -> Result:
        """What a reader would find."""
        found = [self.residency.lookup(key_of(request, name)) for name in request["keys"]]
        return self.told_by_store(states=[state for state, _ in found], tiers=[tier for _, tier in found])

    def residency_remove(self, request: Request) -> Result:
        """Give replicas up."""
        keys = [key_of(request, name) for name in request["keys"]]
        with refusals_named():
            outcomes = self.residency.remove(keys, request.get("tier"), request.get("force", False))
        return self.told_by_store(outcomes=outcomes)

    def residency_reset(self, request: Request) -> Result:
        """Forget everything."""
        with refusals_named():
            self.residency.reset()
        return self.told_by_store()

    def residency_reserve(self, request: Request) -> Result:
        """Begin a transaction."""
        keys = [key_of(request, name) for name in request["keys"]]
        rows = [data.tobytes() for data in request.get("data", ())]
        transaction = self.residency.reserve(request["mode"], keys, request["owner"], rows)
        grants = [self.grant_told(grant) for grant in transaction.grants]
        return self.told_by_store(txn=transaction.name or None, grants=grants)

    def grant_told(self, grant: Grant) -> Result:
        """What a key got, and where."""
        told: Result = {"outcome": grant.outcome}
        if grant.tier is not None:
            told["tier"] = grant.tier
        if grant.place is not None:
            told |= {"slot": grant.place.index, "generation": grant.slot_generation}
        return told

    def residency_copy(self, request: Request) -> Result:
        """Move bytes."""
        with refusals_named():
            moved, rows = self.residency.copy(request["txn"], request.get("bytes"))
        if rows is None:
            return self.told_by_store(bytes=moved)
        return self.told_by_store(bytes=moved, data=[None if one is None else array(one) for one in rows])

    def residency_complete(self, request: Request) -> Result:
        """Validate and publish."""
        with refusals_named():
            outcome = self.residency.complete(request["txn"], request.get("failed", ()), request.get("receipt"))
        return self.told_by_store(outcome=outcome)

    def residency_cancel(self, request: Request) -> Result:
        """The request goes away."""
        return self.told_by_store(outcome=self.residency.cancel(request["txn"]))

    def control_advance_clock(self, request: Request) -> Result:
        """Time passes."""
        return {"now_ms": self.residency.advance(request["by_ms"])}

    def control_inject(self, request: Request) -> Result:
        """A replica is damaged."""
        return {"damaged": self.residency.inject(key_of(request, request["key"]), request["fault"])}

    # plans and documents

    release_rules: ClassVar[Sequence[residency_documents.ReleaseRule]] = residency_documents.RELEASE_RULES
    step_rules: ClassVar[Sequence[residency_documents.StepRule]] = residency_documents.STEP_RULES

    def residency_release(self, request: Request) -> Result:
        """Accept a release or reject it."""
        return self.accepted(Directory, request, self.release_rules)

    def residency_step_inputs(self, request: Request) -> Result:
        """Accept the inputs of a step or reject them."""
        return self.accepted(Step, request, self.step_rules)

    def accepted(
        self,
        form: type[Directory] | type[Step],
        request: Request,
        rules: Sequence[tuple[str, Callable[..., bool]]],
    ) -> Result:
        """Nothing, for a document that breaks no rule."""
        try:
            document = read(form, request["document"])
        except NotAManifest as problem:
            raise Rejected("SCHEMA_VIOLATION", str(problem)) from None
        for reason in residency_documents.broken(document, rules):
            raise Rejected(reason)
        return {}

    def value_in_tier(self, chunk: Reuse, tier: Tier) -> float:
        """V."""
        return residency_plans.value_ms(chunk, tier)

    def chosen_tier(self, chunk: Reuse, tiers: Sequence[Tier], values: Sequence[float]) -> str | None:
        """Where it goes."""
        return residency_plans.choose(chunk, tiers, values)

    def residency_tier_value(self, request: Request) -> Result:
        """What a chunk is worth where."""
        chunk, tiers = Reuse(**request["chunk"]), [Tier(**row) for row in request["tiers"]]
        if len({tier.tier for tier in tiers}) < len(tiers):
            raise Rejected("REQUEST_TWICE", "a tier stands twice")
        values = [self.value_in_tier(chunk, tier) for tier in tiers]
        return {"values": values, "choice": self.chosen_tier(chunk, tiers, values)}

    def states_of_rows(self, request: Request) -> list[str]:
        """By position."""
        names = ("positions", "visible", "recoverable", "in_transfer", "selected")
        return residency_plans.row_states(*(request[name] for name in names))

    def residency_row_states(self, request: Request) -> Result:
        """States, support and what is missing."""
        with refusals_named():
            states = self.states_of_rows(request)
        support = [position for position, state in enumerate(states) if state == "visible"]
        missing = [position for position, state in enumerate(states) if state in ("preserved", "not-ready")]
        return {"states": states, "support": support, "missing": missing}

    def gaps_of_layers(self, request: Request) -> list[float]:
        """Largest difference of each layer."""
        return residency_plans.differences((row["baseline"], row["candidate"]) for row in request["layers"])

    def residency_compare(self, request: Request) -> Result:
        """Two runs, layer by layer."""
        for name, value in request["baseline"].items():
            if request["candidate"][name] != value:
                raise Rejected("CONDITIONS_DIFFER", name)
        with refusals_named():
            gaps = self.gaps_of_layers(request)
        first = next((layer for layer, gap in enumerate(gaps) if gap > 0), None)
        exact = "exact" if first is None else "differs"
        verdict = exact if request["mode"] == "exact" else "reported"
        return {"verdict": verdict, "first_layer": first, "largest": gaps}


def key_of(request: Request, name: str) -> tuple[str, str]:
    """Tenant and key."""
    return request.get("tenant", ""), name


def array(rows: bytes) -> NDArray[np.uint8]:
    """Rows as uint8."""
    return np.frombuffer(rows, np.uint8)
