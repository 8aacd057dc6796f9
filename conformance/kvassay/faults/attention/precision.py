"""Faults of *Precision*: the mass, and the bound of each dtype (ATT-023, ATT-024)."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from kvassay_reference import attention
from kvassay_reference.attention import State

from ..base import found
from .base import Arguments, Fault, Request, case, is_sound, kept


class ScoresInFloat16(Fault):
    """Products of float16 rows are kept in float16 before the scale."""

    requirement = "ATT-023"
    killed_by = case("range/float16-products")

    def spoil(self, a: Arguments) -> Arguments:
        if a["q"].dtype != np.float16 or not is_sound(a):
            return {}
        q, largest = a["q"].astype(np.float32), float(np.abs(a["k"]).max(initial=0))
        overflows = np.abs(q).sum(axis=1, keepdims=True) * largest > np.finfo(np.float16).max
        return {"q": np.where(overflows, np.inf, a["q"]).astype(np.float16)}


class ScaleFoldedIntoQuery(Fault):
    """The query is scaled first and rounded to the dtype of the rows again."""

    requirement = "ATT-023"
    killed_by = case("partial/bfloat16-scaled-query", "partial/float16-scaled-query")

    def spoil(self, a: Arguments) -> Arguments:
        if a["q"].dtype.itemsize != 2:
            return {}
        return {"q": (a["q"].astype(np.float32) * np.float32(a["scale"])).astype(a["q"].dtype), "scale": 1.0}


class MassInBfloat16(Fault):
    """The denominator is accumulated in bfloat16, which stops growing at 256 equal terms."""

    requirement = "ATT-023"
    killed_by = case("real/bfloat16-d128-t4097-state", "real/bfloat16-d128-t4097")

    def reduce(self, request: Request) -> State:
        if request["k"].dtype != ml_dtypes.bfloat16 or len(request["k"]) != 4097:
            return super().reduce(request)
        a = self.arguments(request)
        state = attention.partial(**a | kept(a, slice(0, 32)))
        for start in range(32, len(a["positions"]), 32):
            state = attention.merge_two(state, attention.partial(**a | kept(a, slice(start, start + 32))))
            state = state._replace(l=state.l.astype(ml_dtypes.bfloat16).astype(np.float32))
        return state


class LseInHalf(Fault):
    """The LSE is returned in the dtype of the rows."""

    requirement = "ATT-023"
    killed_by = case("real/bfloat16-d128-t4097-state")
    states = ("o-lse-v1/e",)

    def attention_partial(self, request: Request) -> dict[str, Any]:
        reply = super().attention_partial(request)
        state, dtype = reply["state"], request["q"].dtype
        return {"state": {**state, "o": state["o"].astype(dtype), "lse": state["lse"].astype(dtype)}}


class HalfMassAccepted(Fault):
    """States with float16 mass are merged."""

    requirement = "ATT-023"
    killed_by = case("rejected/mass-in-float16")

    def attention_merge(self, request: Request) -> dict[str, Any]:
        wide = [
            {name: part.astype(np.float32) if hasattr(part, "astype") else part for name, part in state.items()}
            for state in request["states"]
        ]
        return super().attention_merge({"states": wide})


class ReplyInFloat16(Fault):
    """Outputs of float32 requests come back in float16."""

    requirement = "ATT-024"
    killed_by = case("dense/small-history")

    def attention_dense(self, request: Request) -> dict[str, Any]:
        reply = super().attention_dense(request)
        return {name: part.astype(np.float16) for name, part in reply.items()}


class TensorFloat32(Fault):
    """Products of float32 rows are taken with ten bits of fraction, as tensor cores do when nobody forbids it."""

    requirement = "ATT-024"
    killed_by = case("real/float32-d64-t4097-state", "real/pages-of-256-float32-t4097")

    def spoil(self, a: Arguments) -> Arguments:
        return {name: tf32(a[name]) for name in ("q", "k")} if a["k"].dtype == np.float32 else {}


def tf32(array: Any) -> Any:
    """Float32 rounded to ten bits of fraction."""
    bits = np.ascontiguousarray(array).view(np.uint32)
    return ((bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)


class WeightsInBfloat16(Fault):
    """Softmax weights of float32 rows are rounded to bfloat16 before they meet V."""

    requirement = "ATT-024"
    killed_by = case("real/float32-d128-t4097", "dense/small-history")

    def spoil(self, a: Arguments) -> Arguments:
        return {"weights_dtype": ml_dtypes.bfloat16}


FAULTS = found(globals())
