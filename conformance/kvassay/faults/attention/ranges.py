"""Faults of *Range*: scores that are large (ATT-013)."""

from __future__ import annotations

from typing import Any

import numpy as np
from kvassay_reference import attention
from kvassay_reference.attention import State

from ..base import found
from .base import Fault, Request, RowByRow, case, is_sound, kept, some


class MaximumNotSubtracted(Fault):
    """exp(s) without the maximum."""

    requirement = "ATT-013"
    killed_by = case("range/scores-of-plus-10000", "range/scores-of-minus-10000")

    def reduce(self, request: Request) -> State:
        state = super().reduce(request)
        with np.errstate(all="ignore"):
            factor = np.exp(state.m)
            return State(np.where(state.l > 0, 0, state.m), factor * state.l, factor[:, None] * state.u)


class MaximumStartsAtZero(Fault):
    """The running maximum starts at 0, so scores far below it underflow."""

    requirement = "ATT-013"
    killed_by = case("dense/negative-query", "range/scores-of-minus-10000")

    def reduce(self, request: Request) -> State:
        state = super().reduce(request)
        if not some(state):
            return state
        m = np.maximum(state.m, 0)
        factor = np.exp(state.m - m)
        return State(m, factor * state.l, factor[:, None] * state.u)

    def finish(self, state: State) -> tuple[Any, Any]:
        return self.finish_with_zero(state)


class MaximumOverAllHeads(Fault):
    """One maximum for all heads: the lower head divides 0 by 0."""

    requirement = "ATT-013"
    killed_by = case("range/scores-of-both-signs")

    def reduce(self, request: Request) -> State:
        state = super().reduce(request)
        if not some(state):
            return state
        factor = np.exp(state.m - state.m.max())
        return State(state.m * 0 + state.m.max(), factor * state.l, factor[:, None] * state.u)

    def finish(self, state: State) -> tuple[Any, Any]:
        return self.finish_with_zero(state)


class MaximumBeforeTheScale(Fault):
    """The maximum is the scale times the largest product, which is the smallest score when the scale is negative."""

    requirement = "ATT-013"
    killed_by = case("range/negative-scale-far-apart")

    def reduce(self, request: Request) -> State:
        state = super().reduce(request)
        if request["scale"] >= 0 or attention.is_empty(state):
            return state
        lowest = -super().reduce({**request, "scale": -request["scale"]}).m
        with np.errstate(all="ignore"):
            factor = np.exp(state.m - lowest)
            u = np.where(np.isfinite(factor)[:, None], factor[:, None] * state.u, np.nan)
            return State(lowest, factor * state.l, u)


class OutputNotRescaled(Fault):
    """When the running maximum grows, the mass is rescaled and the output is not."""

    requirement = "ATT-013"
    killed_by = case("range/growing-scores")

    def reduce(self, request: Request) -> State:
        a = self.arguments(request)
        if not is_sound(a) or len(a["positions"]) > 64:
            return super().reduce(request)
        a |= kept(a, a["mask"].sees(a["positions"], a["q_position"]))
        state = attention.partial(**a | kept(a, slice(0, 0)))
        for row in range(len(a["positions"])):
            new = attention.partial(**a | kept(a, slice(row, row + 1)))
            both = attention.merge_two(state, new)
            state = both._replace(u=state.u + attention.rescaling(new.m, both.m)[:, None] * new.u)
        return state


class ExponentialAsPower(RowByRow):
    """exp(x) is (1 + x/4)^4, as integer softmax kernels take it."""

    requirement = "ATT-013"
    killed_by = case("range/scores-of-plus-10000", "range/scores-of-minus-10000")

    def exponential(self, x: Any) -> Any:
        return np.maximum(1 + x / 4, 0) ** 4


FAULTS = found(globals())
