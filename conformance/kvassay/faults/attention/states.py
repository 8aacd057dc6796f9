"""Faults of *Partial states*: what a state means, and the empty one (ATT-016 to ATT-018)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from kvassay_reference import attention
from kvassay_reference.attention import State

from ...adapters.base import Rejected
from ...engines.reference import (
    Reference,
)
from ..base import found
from .base import Fault, Request, case, with_lse


class BaseTwoUnderNaturalName(Fault):
    """The LSE is a base-2 logarithm and says natural."""

    requirement = "ATT-016"
    killed_by = case("partial/one-row", "partial/equal-scores", "partial/float16", "partial/bfloat16")

    def write_state(self, state: State) -> dict[str, Any]:
        return super().write_state(with_lse(state, attention.log_sum_exp(state) / math.log(2)))


class OutputNotNormalised(Fault):
    """The state declares a normalised output and holds u."""

    requirement = "ATT-016"
    killed_by = case("partial/small-history", "dense/agrees-with-partial", "partial/values-wider-than-keys")
    states = ("o-lse-v1/e",)

    def write_state(self, state: State) -> dict[str, Any]:
        return {**super().write_state(state), "o": state.u}


class ShortConstant(Fault):
    """ln 2 is cut to 0.69314 when a base-2 LSE is made natural."""

    requirement = "ATT-016"
    killed_by = case("real/float32-d64-t4097-state", "real/float32-d128-t32768")
    states = ("o-lse-v1/e",)

    def write_state(self, state: State) -> dict[str, Any]:
        lse = attention.log_sum_exp(state) / math.log(2) * np.float32(0.69314)
        return {**super().write_state(state), "lse": lse.astype(np.float32)}


class EmptyIsNan(Fault):
    """An empty partition divides 0 by 0."""

    requirement = "ATT-017"
    killed_by = case("empty/partial-no-rows", "empty/partial-all-rows-later", "merge/empty-states-of-the-engine")
    states = ("o-lse-v1/e",)

    def write_state(self, state: State) -> dict[str, Any]:
        with np.errstate(all="ignore"):
            return {**super().write_state(state), "o": state.u / state.l[:, None]}


class EmptyHasFiniteLse(Fault):
    """An empty partition has the LSE of the mask's penalty, -1e9."""

    requirement = "ATT-017"
    killed_by = case(
        "empty/partial-no-rows", "empty/partial-all-rows-before-the-window", "merge/empty-states-of-the-engine"
    )

    def write_state(self, state: State) -> dict[str, Any]:
        none = state.l == 0
        return super().write_state(
            State(np.where(none, -1e9, state.m).astype(np.float32), state.l + none, state.u + none[:, None])
        )


class EmptyRejected(Fault):
    """A partition without legal rows is an error."""

    requirement = "ATT-017"
    killed_by = case("empty/partial-all-rows-later", "merge/split-at-6", "merge/empty-in-the-middle")

    def attention_partial(self, request: Request) -> dict[str, Any]:
        self.attention_dense(request)
        return super().attention_partial(request)


class MeanOverNothing(Fault):
    """A fully masked row has equal weights over all hidden rows."""

    requirement = "ATT-018"
    killed_by = case("empty/dense-all-rows-later", "empty/dense-all-rows-before-the-window", "empty/dense-rejected")

    def attention_dense(self, request: Request) -> dict[str, Any]:
        try:
            return super().attention_dense(request)
        except Rejected as refusal:
            if refusal.reason != "NO_LEGAL_ROWS":
                raise
            mask = {"causal": False}
            return super().attention_dense({**request, "q": request["q"] * 0, "mask": mask})


class DenseIsNan(Fault):
    """A fully masked row divides 0 by 0."""

    requirement = "ATT-018"
    killed_by = case("empty/dense-all-rows-later", "empty/dense-rejected")

    def finish(self, state: State) -> tuple[Any, Any]:
        with np.errstate(all="ignore"):
            return state.u / state.l[:, None], attention.log_sum_exp(state)


class ZeroUndeclared(Fault):
    """Zeros are returned where the engine declared that it rejects."""

    requirement = "ATT-018"
    killed_by = case("empty/dense-rejected")
    finish = Reference.finish_with_zero


class ZeroNotGiven(Fault):
    """The engine declares output 0 over no rows and rejects all the same."""

    requirement = "ATT-018"
    killed_by = case("empty/dense-zero")
    own_capabilities: ClassVar[Mapping[str, Any]] = {"attention.empty_output": "zero"}


FAULTS = found(globals())
