"""The quality ops of the built-in adapter: judged selections, costs, ledgers, fallbacks, reports and plans."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, ClassVar

from kvassay_reference.memory.rows import require
from kvassay_reference.offload import Rule
from kvassay_reference.quality import costs, fallback, ledgers, losses, plans, report, runs
from kvassay_reference.quality.costs import Sizes
from kvassay_reference.quality.fallback import Attempt, Gate, Row, State
from kvassay_reference.quality.losses import Errors, Masses, Outputs, Propagated
from kvassay_reference.quality.runs import Chain, Run

from ..adapters.base import Rejected
from .reference_attention import refusals_named
from .reference_part import ReferencePart

Request = Mapping[str, Any]
Result = dict[str, Any]
TENSORS = ("logits", "q", "k", "v")


class QualityReference(ReferencePart):
    """The quality ops. Faults override one of the small methods."""

    own_profiles: ClassVar[frozenset[str]] = frozenset(
        {"quality", "quality-cost", "quality-fallback", "quality-session", "quality-report"}
    )

    qlt_attempt: Attempt | None
    qlt_attempts: int
    qlt_publications: int

    def open(self) -> None:
        """Forget the attempts of the case before."""
        super().open()
        self.qlt_attempt = None
        self.qlt_attempts = self.qlt_publications = 0

    # recorded runs

    def qlt_said(self, said: Request) -> Result:
        """A recorded run with arrays of the reference's library."""
        return {**said, **{name: self.inward(said[name]) for name in TENSORS if name in said}}

    def qlt_run(self, said: Request) -> Run:
        """A recorded run, checked."""
        return runs.read(self.qlt_said(said), getattr(self, "accumulate", "float32"))

    def qlt_chain(self, run: Run, which: int) -> Chain:
        """One list from ids to rows."""
        return runs.chain(run, which)

    def qlt_chains(self, run: Run) -> list[Chain]:
        """All lists."""
        return [self.qlt_chain(run, which) for which in range(run.lists)]

    def qlt_place(self, run: Run, head: int) -> int:
        """The list that a query head reads."""
        return run.place[head]

    def qlt_top(self, run: Run, head: int, count: int) -> Sequence[int]:
        """Dense rows of largest score."""
        return runs.dense_top(run, head, count)

    def qlt_check_candidate_recall(self, run: Run, asked: bool) -> None:
        """Refuse the recall of ids that are no rows."""
        require(not asked or run.said["unit"]["kind"] == "row", "IDS_POSE_AS_ROWS", "candidates are units")

    def qlt_candidate_recall(self, one: Chain, top: Collection[int]) -> float:
        """Share of the top rows among the candidates."""
        return runs.recall(one.returned, top)

    def qlt_support_recall(self, one: Chain, top: Collection[int]) -> float:
        """Share of the top rows in the support."""
        return runs.recall(one.support, top)

    def qlt_masses(self, run: Run, head: int, support: Sequence[int]) -> Masses:
        """Retained and omitted mass."""
        return losses.masses(run, head, run.indices_of(support))

    def qlt_counts(self, one: Chain) -> Result:
        """Sizes of one list's sets."""
        return {
            "candidates": len(one.returned),
            "distinct_candidates": len(set(one.returned)),
            "selected": len(one.chosen),
            "expanded": len(one.expanded),
            "repeated": one.repeated,
            "support": list(one.support),
        }

    def qlt_support_of(self, run: Run, head: int, lists: Sequence[Chain], request: Request) -> Result:
        """Shares of one query head."""
        which = self.qlt_place(run, head)
        top = self.qlt_top(run, head, request["top_k"])
        mass = self.qlt_masses(run, head, lists[which].support)
        asked = request["candidate_recall"]
        return {
            "list": which,
            "top": list(top),
            "candidate_recall": self.qlt_candidate_recall(lists[which], top) if asked else None,
            "support_recall": self.qlt_support_recall(lists[which], top),
            "retained_mass": mass.retained,
            "omitted_mass": mass.omitted,
        }

    def quality_support(self, request: Request) -> Result:
        """From candidate ids to rows, recalls and masses."""
        with refusals_named():
            run = self.qlt_run(request["run"])
            lists = self.qlt_chains(run)
            self.qlt_check_candidate_recall(run, request["candidate_recall"])
        return {
            "lists": [self.qlt_counts(one) for one in lists],
            "heads": [self.qlt_support_of(run, head, lists, request) for head in range(len(run.place))],
        }

    # errors

    def qlt_outputs(self, run: Run, head: int, support: Sequence[int]) -> Outputs:
        """Dense, retained and omitted output."""
        return losses.outputs(run, head, run.indices_of(support))

    def qlt_errors(self, made: Outputs, mass: Masses, floor: float) -> Errors:
        """Distances and bounds."""
        return losses.errors(made, mass, floor)

    def qlt_propagate(self, matrix: Any, found: Errors) -> Propagated:
        """The error behind a map."""
        return losses.propagate(matrix, found)

    def qlt_matrix(self, request: Request, run: Run) -> Any:
        """The declared map in the dtype of the arithmetic, or ``None``."""
        if "map" not in request:
            return None
        matrix = request["map"]["matrix"]
        require("float" in str(matrix.dtype), "DTYPE_MISMATCH", "the map")
        fits = matrix.ndim == 2 and matrix.shape[1] == request["run"]["v"].shape[2]
        require(fits, "SHAPE_MISMATCH", "the map has a column for each channel of a value")
        return self.inward(matrix.astype(str(self.outward(run.scores).dtype)))

    def qlt_error_of(self, run: Run, head: int, support: Sequence[int], floor: float, matrix: Any) -> Result:
        """Errors of one query head."""
        mass = self.qlt_masses(run, head, support)
        made = self.qlt_outputs(run, head, support)
        found = self.qlt_errors(made, mass, floor)
        behind = None if matrix is None else self.qlt_propagate(matrix, found)
        return {
            "dense": self.outward(made.dense).tolist(),
            "retained": self.outward(made.retained).tolist(),
            "omitted": None if made.omitted is None else self.outward(made.omitted).tolist(),
            "retained_mass": mass.retained,
            "omitted_mass": mass.omitted,
            "absolute_error": found.absolute,
            "denominator": found.denominator,
            "relative_error": found.relative,
            "largest_value": made.largest,
            "triangle_bound": found.triangle,
            "bound": found.bound,
            "propagated": None if behind is None else behind._asdict(),
        }

    def qlt_check_supports(self, supports: Sequence[Sequence[int]]) -> None:
        """Refuse a query head without rows."""
        require(all(supports), "EMPTY_SUPPORT", "no row to attend to")

    def quality_error(self, request: Request) -> Result:
        """Errors of the outputs over a run's supports."""
        with refusals_named():
            run = self.qlt_run(request["run"])
            lists = self.qlt_chains(run)
            matrix = self.qlt_matrix(request, run)
            supports = [lists[self.qlt_place(run, head)].support for head in range(len(run.place))]
            self.qlt_check_supports(supports)
        floor = request["denominator_floor"]
        return {
            "heads": [self.qlt_error_of(run, head, support, floor, matrix) for head, support in enumerate(supports)]
        }

    # costs and ledgers

    def qlt_sizes(self, said: Request) -> Sizes:
        """Sizes in bytes and channels."""
        return Sizes.read(said)

    def qlt_cost(self, run: Run, lists: Sequence[Chain], sizes: Sizes, resident: Any, reference: Any) -> Result:
        """All ledgers of a run."""
        return costs.cost(run, lists, sizes, resident, reference)

    def quality_cost(self, request: Request) -> Result:
        """What a selection costs."""
        with refusals_named():
            run = self.qlt_run(request["run"])
            lists = self.qlt_chains(run)
            sizes, reference = self.qlt_sizes(request["sizes"]), request.get("reference")
            costs.check_request(run, sizes, request["resident"], reference)
        return self.qlt_cost(run, lists, sizes, request["resident"], reference)

    def quality_capacity(self, request: Request) -> Result:
        """Peaks and ratios."""
        return ledgers.capacity(request)

    def qlt_check_times(self, request: Request) -> None:
        """Refuse times that run backwards."""
        ledgers.check_times(request["transfers"], request["waits"])

    def quality_transfer(self, request: Request) -> Result:
        """Bytes, times and overlap of one token."""
        with refusals_named():
            self.qlt_check_times(request)
        return ledgers.transfer(request)

    def qlt_rates(self, steps: Sequence[Request]) -> Result:
        """Counts and rates."""
        return ledgers.rates(steps)

    def quality_rates(self, request: Request) -> Result:
        """Rates of many steps."""
        with refusals_named():
            return self.qlt_rates(request["steps"])

    # fallback

    def qlt_gate(self, said: Request) -> Gate:
        """What an estimate must meet."""
        return Gate(**said)

    def qlt_check_evidence(self, gate: Gate, estimate: Request) -> None:
        """Refuse an estimate that the gate was not made for."""
        gate.check(estimate)

    def qlt_table(self) -> tuple[Row, ...]:
        """Guards and actions in their order."""
        return fallback.TABLE

    def qlt_choose(self, state: State, gate: Gate) -> Row:
        """The first row whose guard holds."""
        return fallback.choose(state, gate, self.qlt_table())

    def quality_fallback(self, request: Request) -> Result:
        """One decision."""
        state, gate = State.read(request), self.qlt_gate(request["gate"])
        with refusals_named():
            self.qlt_check_evidence(gate, state.estimate)
        row = self.qlt_choose(state, gate)
        return {
            "uncertain": gate.uncertain(state.estimate),
            "action": row.action,
            "publishes": row.publishes,
            "phase": fallback.next_phase(row, state.phase),
            "final": row.final,
        }

    def qlt_check_begin(self, request: Request) -> None:
        """Refuse a second open attempt, and one that cannot be traced."""
        require(self.qlt_attempt is None or self.qlt_attempt.over, "ATTEMPT_PENDING", "an attempt is open")
        require(fallback.named(request["policy"]["version"]), "POLICY_NOT_NAMED", "no version")

    def quality_begin(self, request: Request) -> Result:
        """A new attempt."""
        with refusals_named():
            self.qlt_check_begin(request)
        self.qlt_attempts += 1
        self.qlt_attempt = Attempt(
            self.qlt_attempts,
            request["policy"],
            request["exactness"],
            request["degraded_allowed"],
            self.qlt_gate(request["gate"]),
            request["staging_budget_bytes"],
            request["deadline_ms"],
            request["begun_ms"],
        )
        return {"attempt": self.qlt_attempts}

    def qlt_present(self) -> Attempt:
        """The attempt that was begun last."""
        require(self.qlt_attempt is not None, "NO_ATTEMPT", "nothing was begun")
        assert self.qlt_attempt is not None
        return self.qlt_attempt

    def qlt_check_open(self, attempt: Attempt, at_ms: float) -> None:
        """Refuse a step of an attempt that has ended, or that is too early."""
        attempt.check_open(at_ms)

    def qlt_take(self, attempt: Attempt, row: Row, at_ms: float) -> None:
        """Go on by one row of the table."""
        attempt.take(row, at_ms)

    def quality_advance(self, request: Request) -> Result:
        """One decision of the present attempt."""
        with refusals_named():
            attempt = self.qlt_present()
            self.qlt_check_open(attempt, request["at_ms"])
            state = attempt.state(request)
            self.qlt_check_evidence(attempt.gate, state.estimate)
        row = self.qlt_choose(state, attempt.gate)
        self.qlt_take(attempt, row, request["at_ms"])
        self.qlt_publications += row.publishes != "nothing"
        return {
            "action": row.action,
            "publishes": row.publishes,
            "phase": attempt.phase,
            "final": row.final,
            "slack_ms": state.slack_ms,
            "publications": self.qlt_publications,
        }

    def quality_record(self, request: Request) -> Result:
        """What the present attempt did."""
        with refusals_named():
            attempt = self.qlt_present()
        return {
            "attempt": attempt.number,
            "policy": dict(attempt.policy),
            "exactness": attempt.exactness,
            "actions": list(attempt.actions),
            "published": attempt.published,
            "publications": self.qlt_publications,
        }

    # documents

    def qlt_report_rules(self, document: Request) -> Iterable[Rule]:
        """Rules of a report in their order."""
        return report.rules(document)

    def qlt_plan_rules(self, document: Request) -> Iterable[Rule]:
        """Rules of a plan in their order."""
        return plans.rules(document)

    def qlt_judge(self, rules: Iterable[Rule]) -> Result:
        """Reject for the first rule that is broken."""
        for holds, reason in rules:
            if not holds:
                raise Rejected(reason)
        return {}

    def quality_check(self, request: Request) -> Result:
        """Accept or reject a report."""
        return self.qlt_judge(self.qlt_report_rules(request["document"]))

    def quality_plan(self, request: Request) -> Result:
        """Accept or reject a plan."""
        return self.qlt_judge(self.qlt_plan_rules(request["document"]))
