"""Faults of *The output*: the mixture, the scale, the head map, the width of V (ATT-001 to ATT-004)."""

from __future__ import annotations

from typing import Any

import numpy as np
from kvassay_reference import attention
from kvassay_reference.attention import State

from ..base import found
from .base import Arguments, Fault, Request, RowByRow, case, is_sound, some


class SoftmaxPlusOne(Fault):
    """An attention sink is left on: the denominator has one more term, exp(0)."""

    requirement = "ATT-001"
    killed_by = case("dense/one-row", "dense/equal-scores", "partial/equal-scores")

    def reduce(self, request: Request) -> State:
        state = super().reduce(request)
        return attention.merge_two(state, State(state.m * 0, state.m * 0 + 1, state.u * 0)) if some(state) else state


class ShortExponential(RowByRow):
    """The exponential is a short polynomial, right to four digits."""

    requirement = "ATT-001"
    killed_by = case("dense/small-history", "dense/scale-one", "partial/small-history")

    def exponential(self, x: Any) -> Any:
        return np.exp(x) * (1 + 5e-5 * np.sin(40 * x))


class ScaleFromChannels(Fault):
    """The scale is 1 / sqrt(d), whatever the request says."""

    requirement = "ATT-002"
    killed_by = case("dense/scale-of-the-request", "dense/scale-one", "dense/scale-negative")

    def spoil(self, a: Arguments) -> Arguments:
        return {"scale": a["q"].shape[-1] ** -0.5}


class ScaleTwice(Fault):
    """Query and kernel both apply the scale."""

    requirement = "ATT-002"
    killed_by = case(
        "dense/scale-of-the-request",
        "dense/small-history",
        "dense/float16",
        "dense/bfloat16",
        "partial/one-row",
        "heads/multi-query",
    )

    def spoil(self, a: Arguments) -> Arguments:
        return {"scale": a["scale"] ** 2}


class ScaleInFloat16(Fault):
    """The scale travels as a float16 constant."""

    requirement = "ATT-002"
    killed_by = case("real/pages-of-256-float32-t4097", "real/float32-d128-split-in-two", "dense/scale-of-the-request")

    def spoil(self, a: Arguments) -> Arguments:
        return {"scale": float(np.float16(a["scale"]))}


class QueryHeadAsKvHead(Fault):
    """The query head indexes K/V directly, wrapped around (sglang#33064)."""

    requirement = "ATT-003"
    killed_by = case("heads/grouped", "heads/reversed", "heads/irregular")

    def spoil(self, a: Arguments) -> Arguments:
        return {"kv_head_of": [h % a["k"].shape[-2] for h in range(len(a["kv_head_of"]))]} if is_sound(a) else {}


class GroupSizeAssumed(Fault):
    """K/V head h // (H_q / H_kv), whatever the map says."""

    requirement = "ATT-003"
    killed_by = case("heads/interleaved", "heads/reversed", "heads/unread-head", "heads/interleaved-partial")

    def spoil(self, a: Arguments) -> Arguments:
        group = max(1, -(-len(a["kv_head_of"]) // a["k"].shape[-2]))
        return {"kv_head_of": [h // group for h in range(len(a["kv_head_of"]))]} if is_sound(a) else {}


class SortedMapIsEven(Fault):
    """A map that rises from the first K/V head to the last is taken for one of even groups."""

    requirement = "ATT-003"
    killed_by = case("heads/sorted-uneven")

    def spoil(self, a: Arguments) -> Arguments:
        heads, count = list(a["kv_head_of"]), a["k"].shape[-2]
        if not is_sound(a) or len(heads) % count or heads != sorted(heads) or set(heads) != set(range(count)):
            return {}
        return {"kv_head_of": [h // (len(heads) // count) for h in range(len(heads))]}


class HeadTileOf64(Fault):
    """Heads beyond the 64 of one tile begin again at the first."""

    requirement = "ATT-003"
    killed_by = case("heads/sixty-five")

    def spoil(self, a: Arguments) -> Arguments:
        heads = a["kv_head_of"]
        return {"kv_head_of": [heads[h % 64] for h in range(len(heads))]} if is_sound(a) else {}


class HeadsInGroupOrder(Fault):
    """Query heads are gathered by K/V head and never put back."""

    requirement = "ATT-003"
    killed_by = case("heads/interleaved", "heads/irregular", "heads/interleaved-partial")

    def reduce(self, request: Request) -> State:
        state = super().reduce(request)
        order = np.argsort(np.asarray(request["kv_head_of"]), kind="stable")
        return State(*(part[order] for part in state))


class OneKvHead(Fault):
    """Every query head reads K/V head 0, as in a multi-query kernel."""

    requirement = "ATT-003"
    killed_by = case("heads/multi-head", "heads/grouped")

    def spoil(self, a: Arguments) -> Arguments:
        return {"kv_head_of": [0] * len(a["kv_head_of"])} if is_sound(a) else {}


class ValueStrideOfKeys(Fault):
    """V is read with the width of K: d channels at a stride of d."""

    requirement = "ATT-004"
    killed_by = case(
        "dense/values-wider-than-keys", "dense/values-narrower-than-keys", "partial/values-wider-than-keys"
    )

    def spoil(self, a: Arguments) -> Arguments:
        if a["k"].shape == a["v"].shape or not is_sound(a):
            return {}
        return {"v": np.resize(a["v"], a["k"].shape)}


FAULTS = found(globals())
