"""The offload ops of the built-in adapter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, ClassVar

from kvassay_reference import offload, offload_cost, offload_report
from kvassay_reference.offload import Plan, Rule, Times
from kvassay_reference.offload_cost import Cost, Model, Policy, Stage, Terms

from .reference_attention import refusals_named
from .reference_part import ReferencePart

Request = Mapping[str, Any]
Result = dict[str, Any]


class OffloadReference(ReferencePart):
    """The offload ops. Faults override one of the small methods."""

    own_profiles: ClassVar[frozenset[str]] = frozenset(
        {"offload-plan", "offload-run", "offload-report", "offload-policy"}
    )
    own_variants: ClassVar[frozenset[str]] = frozenset(offload_cost.RULES)

    # plans

    def parse(self, plan: Request) -> Plan:
        """A plan from its JSON form."""
        return offload.read(plan)

    def plan_rules(self, plan: Plan) -> Iterable[Rule]:
        """The rules of a plan in their order."""
        return offload.rules(plan)

    def read_plan(self, plan: Request) -> Plan:
        """A plan, checked."""
        made = self.parse(plan)
        offload.accept(self.plan_rules(made))
        return made

    def layer_ledgers(self, plan: Plan) -> list[offload.LayerLedger]:
        """Bytes of each layer."""
        return offload.ledgers(plan)

    def traffic(self, plan: Plan) -> offload.Traffic:
        """Bytes of a request."""
        return offload.traffic(plan, self.layer_ledgers(plan))

    def iteration(self, several: Sequence[offload.Traffic]) -> offload.Traffic:
        """Bytes of an iteration."""
        return offload.iteration(several)

    def offload_ledger(self, request: Request) -> Result:
        """Bytes per layer, request and iteration."""
        with refusals_named():
            plans = [self.read_plan(plan) for plan in request["requests"]]
        sums = [self.traffic(plan) for plan in plans]
        requests = [
            {
                "request_bytes": offload.request_bytes(plan),
                "layers": [asdict(one) for one in self.layer_ledgers(plan)],
                **one.to_json(),
            }
            for plan, one in zip(plans, sums, strict=True)
        ]
        return {"requests": requests, "iteration": self.iteration(sums).to_json()}

    # schedules

    def schedule(self, plan: Plan) -> list[Times]:
        """Times of each layer."""
        return offload.schedule(plan)

    def totals(self, plan: Plan, times: Sequence[Times]) -> offload.Totals:
        """What the times come to."""
        return offload.totals(plan, times)

    def memory(self, plan: Plan) -> offload.Memory:
        """Staging and peaks."""
        return offload.memory(plan)

    def offload_schedule(self, request: Request) -> Result:
        """Times and memory of a plan."""
        with refusals_named():
            plan = self.read_plan(request["plan"])
        times = self.schedule(plan)
        columns = {name: [getattr(one, name) for one in times] for name in Times.__dataclass_fields__}
        return {**columns, **asdict(self.totals(plan, times)), **asdict(self.memory(plan))}

    def offload_run(self, request: Request) -> Result:
        """Events of a run that keeps the schedule."""
        with refusals_named():
            plan = self.read_plan(request["plan"])
        rows = zip(plan.layers, self.layer_ledgers(plan), self.schedule(plan), strict=True)
        return {"events": [self.event(plan, i, *row) for i, row in enumerate(rows)]}

    def event(self, plan: Plan, index: int, layer: offload.Layer, one: offload.LayerLedger, times: Times) -> Result:
        """One layer as it ran."""
        copied = {
            "slot": index % plan.slots,
            "owner": plan.owner,
            "cache_generation": plan.cache_generation,
            "blocks": one.blocks,
            "payload_bytes": one.h2d_bytes,
            "fetch_start_ms": max(0.0, times.data_ready_ms - times.service_ms),
            "fetch_end_ms": times.data_ready_ms,
        }
        return {
            "layer": index,
            **(copied if one.blocks else {}),
            "compute_start_ms": times.compute_start_ms,
            "compute_end_ms": times.compute_end_ms,
            "support": [list(span) for span in layer.required],
        }

    # reports and admission

    def rules(self, plan: Plan, document: Request) -> Iterable[Rule]:
        """The rules of a report in their order."""
        return offload_report.rules(plan, document)

    def offload_check(self, request: Request) -> Result:
        """Accept a report or reject it."""
        with refusals_named():
            plan = self.read_plan(request["document"]["plan"])
            offload.accept(self.rules(plan, request["document"]))
        return {}

    def recoverable(self, plan: Plan, copies: Sequence[offload.Spans]) -> Iterable[Rule]:
        """Whether every cold row has a copy."""
        return offload.recoverable(plan, copies)

    def demand(self, plan: Plan, request: Request) -> offload.Demand:
        """What a request takes."""
        return offload.demand(plan, request["host"], request["interval_ms"])

    def within(self, taken: offload.Demand, budgets: Request) -> Iterable[Rule]:
        """Whether every budget holds."""
        return offload.within(taken, budgets)

    def offload_admit(self, request: Request) -> Result:
        """Admit a request."""
        with refusals_named():
            plan = self.read_plan(request["plan"])
            offload.accept(self.recoverable(plan, [offload.spans(one) for one in request["recoverable"]]))
            taken = self.demand(plan, request)
            offload.accept(self.within(taken, request["budgets"]))
        return asdict(taken)

    # costs

    def bytes_per_s(self, bandwidth: Request) -> float:
        """A rate in bytes a second."""
        return offload.bytes_per_s(bandwidth)

    def regime(self, request: Request) -> offload_cost.Regime:
        """Ideal times and ratios."""
        return offload_cost.regime(
            request["cached_tokens"],
            request["new_tokens"],
            request["kv_bytes_per_token"],
            request["flop_per_token"],
            self.bytes_per_s(request["bandwidth"]),
            request["flop_per_s"],
        )

    def overlapped_ms(self, found: offload_cost.Regime, eta: Request) -> float:
        """Both times with their overlap."""
        return offload_cost.overlapped_ms(found, eta["value"], eta["evidence"])

    def offload_regime(self, request: Request) -> Result:
        """The regime of a restored prefix."""
        found = self.regime(request)
        with refusals_named():
            overlap = {"overlapped_ms": self.overlapped_ms(found, request["eta"])} if "eta" in request else {}
        return {**asdict(found), "bound": found.bound, **overlap}

    def chunked_ms(self, stages: Sequence[Stage], chunks: Sequence[int]) -> float:
        """Chunks by events."""
        return offload_cost.chunked_ms(stages, chunks)

    def formula_ms(self, stages: Sequence[Stage], chunks: Sequence[int]) -> float | None:
        """Chunks by the formula."""
        return offload_cost.formula_ms(stages, chunks)

    def offload_stage(self, request: Request) -> Result:
        """A payload through several stages."""
        stages = [
            Stage(one["resource"], one["fixed_ms"], self.bytes_per_s(one["bandwidth"])) for one in request["stages"]
        ]
        chunks = request["chunk_bytes"]
        formula = self.formula_ms(stages, chunks)
        return {
            "unchunked_ms": offload_cost.unchunked_ms(stages, chunks),
            "chunked_ms": self.chunked_ms(stages, chunks),
            **({} if formula is None else {"formula_ms": formula}),
        }

    def read_policy(self, policy: Request) -> Policy:
        """A policy, checked."""
        return Policy.read(policy)

    def cost(self, model: Model, hardware: Request, policy: Policy, rule: str) -> Cost:
        """The cost of one policy."""
        return offload_cost.cost(model, hardware, policy, rule)

    def choose(self, costs: Sequence[Cost], budgets: Request) -> int:
        """The best policy."""
        return offload_cost.choose(costs, budgets)

    def offload_policy(self, request: Request) -> Result:
        """FlexGen's candidates."""
        model = Model(**request["model"])
        with refusals_named():
            policies = [self.read_policy(policy) for policy in request["policies"]]
            costs = [self.cost(model, request["hardware"], policy, request["rule"]) for policy in policies]
            chosen = self.choose(costs, request["budgets"])
        return {"costs": [_cost(one, request["budgets"]) for one in costs], "chosen": chosen}


def _cost(one: Cost, budgets: Request) -> Result:
    def phase(terms: Terms, layer_s: float) -> Result:
        return {**asdict(terms), "layer_s": layer_s}

    return {
        "fits": offload_cost.fits(one.peaks, budgets),
        "prefill": phase(one.prefill, one.prefill_layer_s),
        "generation": phase(one.generation, one.generation_layer_s),
        "prefill_s": one.prefill_s,
        "generation_s": one.generation_s,
        "total_s": one.total_s,
        "tokens_per_s": one.tokens_per_s,
        **asdict(one.peaks),
    }
