"""Faults of *Range*: shifts of the scores, values of any size, the LSE beside an output (ATT-014, ATT-015, ATT-032)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from kvassay_reference.attention import State

from ..base import found
from .base import Arguments, Fault, RowByRow, case, is_sound, unpaged


class KeysCentred(Fault):
    """Keys are centred before the product and the LSE never gets the mean's score back."""

    requirement = "ATT-014"
    killed_by = case("invariance/common-key-shift", "partial/small-history")

    def spoil(self, a: Arguments) -> Arguments:
        if not is_sound(a) or not len(a["positions"]):
            return {}
        a = a | (unpaged(a) if a["pages"] else {})
        k = a["k"].astype(np.float32)
        legal = a["mask"].sees(a["positions"], a["q_position"])
        mean = k[legal].mean(axis=0) if legal.any() else 0
        return {"k": k - mean, "q": a["q"].astype(np.float32), "v": a["v"].astype(np.float32), "pages": None}


class ScoresInFewBits(RowByRow):
    """Scores keep 12 significant bits, so a common shift eats the differences."""

    requirement = "ATT-014"
    killed_by = case("invariance/dense-key-shift")

    def scores(self, scores: Any) -> Any:
        fraction, exponent = np.frexp(scores)
        return np.ldexp(np.round(fraction * 2**12) / 2**12, exponent)


class KeysSaturate(Fault):
    """Keys are clipped at 16, as in a fixed-point cache without a scale of its own."""

    requirement = "ATT-014"
    killed_by = case("invariance/dense-key-shift")

    def spoil(self, a: Arguments) -> Arguments:
        return {"k": np.clip(a["k"], -16, 16)} if a["k"].dtype == np.float32 else {}


class ValuesSaturate(Fault):
    """Values are clipped at 448, the largest of an 8-bit float."""

    requirement = "ATT-015"
    killed_by = case("dense/values-scaled-up")

    def spoil(self, a: Arguments) -> Arguments:
        return {"v": np.clip(a["v"], -448, 448)} if a["v"].dtype == np.float32 else {}


class SmallValuesFlushed(Fault):
    """Values below the normal range of float16 are flushed to zero."""

    requirement = "ATT-015"
    killed_by = case("dense/values-scaled-down")

    def spoil(self, a: Arguments) -> Arguments:
        return {"v": np.where(np.abs(a["v"]) < 2.0**-14, 0, a["v"]).astype(a["v"].dtype)}


class OutputEpsilon(Fault):
    """1e-8 is added to the output, to keep a later division safe."""

    requirement = "ATT-015"
    killed_by = case("dense/values-scaled-down")

    def finish(self, state: State) -> tuple[Any, Any]:
        out, lse = super().finish(state)
        return out + np.float32(1e-8), lse


class DenseLseInBaseTwo(Fault):
    """The LSE beside the output is a base-2 logarithm, as kernels compute it."""

    requirement = "ATT-032"
    killed_by = case("dense/small-history", "dense/equal-scores", "real/float32-d128-t4097", "heads/sixty-five")

    def finish(self, state: State) -> tuple[Any, Any]:
        out, lse = super().finish(state)
        return out, lse / np.float32(math.log(2))


class DenseLseIsMaximum(Fault):
    """The maximum is returned as the LSE."""

    requirement = "ATT-032"
    killed_by = case("dense/small-history", "dense/equal-scores", "real/float32-d128-t4097")

    def finish(self, state: State) -> tuple[Any, Any]:
        out, _ = super().finish(state)
        return out, state.m


FAULTS = found(globals())
