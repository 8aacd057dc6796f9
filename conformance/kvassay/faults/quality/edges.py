"""Faults that only a second input shows: close scores, the order of reasons, directions of a map, old gates."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from kvassay_reference.memory.rows import require
from kvassay_reference.offload import Rule
from kvassay_reference.quality import runs
from kvassay_reference.quality.fallback import Gate
from kvassay_reference.quality.losses import Errors, Propagated
from kvassay_reference.quality.report import OWNERS
from kvassay_reference.quality.runs import Chain, Run

from ...adapters.base import Rejected
from ...engines.reference_attention import refusals_named
from ..base import Fault, found
from .base import Request, Result, case


class ScoresInHalfPrecision(Fault):
    """The reference is sorted by scores in half precision."""

    requirement = "QLT-009"
    killed_by = case("recall/close-scores")

    def qlt_top(self, run: Run, head: int, count: int) -> Sequence[int]:
        scores = np.asarray(run.scores[head, :]).astype(np.float16)
        order = np.argsort(-scores, kind="stable")
        return sorted(run.legal[int(at)] for at in order[:count])


class PersistentRowsFirst(Fault):
    """Persistent rows are checked before the units of a list."""

    requirement = "QLT-005"
    killed_by = case("order/first-reason-of-a-run-by-lists")

    def qlt_chain(self, run: Run, which: int) -> Chain:
        runs.check_rows(run, run.said["persistent"], "SUPPORT_BEYOND_COMMIT")
        return super().qlt_chain(run, which)


class ReasonByReason(Fault):
    """Ids of all lists are known before any list is judged further."""

    requirement = "QLT-005"
    killed_by = case("order/first-reason-of-a-run-by-lists")

    def qlt_chains(self, run: Run) -> list[Chain]:
        for which, chosen in enumerate(run.said["selected"]):
            runs.expand(run, which, chosen, chosen)
        return super().qlt_chains(run)


class StrangersBeforeRepeats(Fault):
    """Attended rows outside of the support are told before those that were read twice."""

    requirement = "QLT-008"
    killed_by = case("order/first-reason-of-a-run-by-lists")

    def qlt_chain(self, run: Run, which: int) -> Chain:
        said = {name: value for name, value in run.said.items() if name != "attended"}
        if "attended" in run.said:
            support = super().qlt_chain(Run(said, *list(vars(run).values())[1:]), which).support
            require(set(run.said["attended"][which]) <= set(support), "SUPPORT_MISMATCH", "a row of no unit")
        return super().qlt_chain(run, which)


class RowsBeforeForm(Fault):
    """That no row is left is found before the arrays and lists are compared."""

    requirement = "QLT-003"
    killed_by = case("order/first-reason-of-a-run-by-form")

    def qlt_run(self, said: Request) -> Run:
        first, rows = said["first_position"], runs.history_rows(said)
        hidden = set(said.get("hidden", ()))
        require(any(first + row not in hidden for row in range(rows)), "NO_LEGAL_ROWS", "every row is hidden")
        return super().qlt_run(said)


class HiddenFromTheEnd(Fault):
    """A mask is scattered by row: a position before the first row counts back from the last one."""

    requirement = "QLT-003"
    killed_by = case("scores/hidden-outside-of-the-history")

    def qlt_said(self, said: Request) -> Result:
        made = super().qlt_said(said)
        first, rows = made["first_position"], runs.history_rows(made)
        return {
            **made,
            "hidden": [first + (one - first) % rows for one in made.get("hidden", ()) if one < first + rows],
        }


class HiddenBeyondTheRowsWraps(Fault):
    """A mask is a ring of as many places as there are rows: a position beyond the last row hides one of the first."""

    requirement = "QLT-003"
    killed_by = case("scores/hidden-outside-of-the-history")

    def qlt_said(self, said: Request) -> Result:
        made = super().qlt_said(said)
        first, rows = made["first_position"], runs.history_rows(made)
        return {**made, "hidden": [first + (one - first) % rows for one in made.get("hidden", ()) if one >= first]}


class HiddenOutsideRefused(Fault):
    """A hidden position that is no row is refused as persistent ones are."""

    requirement = "QLT-003"
    killed_by = case("scores/hidden-outside-of-the-history")

    def qlt_run(self, said: Request) -> Run:
        run = super().qlt_run(said)
        inside = all(run.first <= one < run.end for one in said.get("hidden", ()))
        require(inside, "SUPPORT_BEYOND_COMMIT", "a hidden position is no row")
        return run


class HiddenCounted(Fault):
    """Whether a legal row is left is counted: rows less hidden positions."""

    requirement = "QLT-003"
    killed_by = case("scores/hidden-outside-of-the-history")

    def qlt_run(self, said: Request) -> Run:
        run = super().qlt_run(said)
        require(runs.history_rows(run.said) > len(set(said.get("hidden", ()))), "NO_LEGAL_ROWS", "every row is hidden")
        return run


class HiddenRowsAreRows(Fault):
    """The history ends with the last position that a run names, hidden ones included."""

    requirement = "QLT-003"
    killed_by = case("scores/hidden-outside-makes-no-rows")

    def qlt_run(self, said: Request) -> Run:
        run = super().qlt_run(said)
        outside = {one for one in said.get("hidden", ()) if not run.first <= one < run.end}
        told = {**run.said, "persistent": [one for one in run.said["persistent"] if one not in outside]}
        return replace(run, said=told)


class IterationFromOnes(Fault):
    """The largest singular value is sought by an iteration that starts from ones."""

    requirement = "QLT-019"
    killed_by = case("propagation/directions-that-cancel")

    def qlt_propagate(self, matrix: Any, found: Errors) -> Propagated:
        made, a = super().qlt_propagate(matrix, found), np.asarray(matrix).astype(np.float64)
        x = np.ones(a.shape[1])
        for _ in range(1000):
            y = a.T @ (a @ x)
            x = y / np.linalg.norm(y) if y.any() else x
        largest = float(np.linalg.norm(a @ x) / (np.linalg.norm(x) or 1.0))
        return made._replace(operator_norm=largest, operator_bound=largest * found.absolute)


class ResidentRowsAreChecked(Fault):
    """Resident rows of other histories are refused."""

    requirement = "QLT-025"
    killed_by = case("cost/resident-rows-of-no-concern")

    def quality_cost(self, request: Request) -> Result:
        with refusals_named():
            run = self.qlt_run(request["run"])
            for positions in request["resident"]:
                runs.check_rows(run, positions, "SUPPORT_BEYOND_COMMIT")
        return super().quality_cost(request)


class BytesInSinglePrecision(Fault):
    """Peaks went through single precision."""

    requirement = "QLT-029"
    killed_by = case("capacity/large-counts")

    def quality_capacity(self, request: Request) -> Result:
        made = super().quality_capacity(request)
        return {**made, "gpu_peak_bytes": int(np.float32(made["gpu_peak_bytes"]))}


class TimesInSinglePrecision(Fault):
    """Times went through single precision."""

    requirement = "QLT-032"
    killed_by = case("transfer/decimals")

    def quality_transfer(self, request: Request) -> Result:
        made = super().quality_transfer(request)
        return {**made, "busy_ms": float(np.float32(made["busy_ms"]))}


class FirstGateStays(Fault):
    """The gate of the first attempt is that of all."""

    requirement = "QLT-046"
    killed_by = case("attempt/gate-of-its-own")
    qlt_first_gate: Gate | None = None

    def open(self) -> None:
        super().open()
        self.qlt_first_gate = None

    def quality_begin(self, request: Request) -> Result:
        made = super().quality_begin(request)
        assert self.qlt_attempt is not None
        self.qlt_first_gate = self.qlt_first_gate or self.qlt_attempt.gate
        self.qlt_attempt.gate = self.qlt_first_gate
        return made


class GenerationBeforeTenant(Fault):
    """Of several reasons, that of the last field of an identity is told."""

    requirement = "QLT-048"
    killed_by = case("order/first-reason-of-an-identity")

    def qlt_judge(self, rules: Iterable[Rule]) -> Result:
        last = None
        for holds, reason in rules:
            if not holds and reason in OWNERS.values():
                last = reason
            elif not holds:
                raise Rejected(last or reason)
        if last:
            raise Rejected(last)
        return {}


class LastWrongNumberTold(Fault):
    """Of several wrong numbers the last one is told."""

    requirement = "QLT-055"
    killed_by = case("order/first-reason-of-measures-and-costs")

    def qlt_judge(self, rules: Iterable[Rule]) -> Result:
        broken = [reason for holds, reason in rules if not holds]
        numbers = [reason for reason in broken if reason.endswith("_MISMATCH") and reason not in OWNERS.values()]
        if broken:
            raise Rejected(numbers[-1] if broken[0] in numbers else broken[0])
        return {}


FAULTS = found(globals())
"""In the order of the chapter."""
