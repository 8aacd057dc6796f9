"""Faults of the reduction of receipts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from array_api_compat import array_namespace
from kvassay_reference import attention, placement_receipts
from kvassay_reference.attention import State
from kvassay_reference.offload import Rule
from kvassay_reference.placement_receipts import Asked, Attempt

from ..base import Fault
from .base import Request, Result, case


class RowsByCount(Fault):
    """A head is covered when its parts have as many rows as the cover."""

    requirement = "PLC-028"
    killed_by = case("receipt/overlap-with-a-gap")

    def plc_overlap_rules(self, asked: Asked, receipts: Sequence[Request]) -> Iterable[Rule]:
        return ()

    def plc_gap_rules(self, asked: Asked, receipts: Sequence[Request]) -> Iterator[Rule]:
        wanted = len(placement_receipts.listed(asked.cover))
        for head in range(asked.heads):
            several = placement_receipts.covered(placement_receipts.of_head(receipts, head))
            yield len(several) <= wanted, "SUPPORT_OVERLAP"
            yield len(several) >= wanted, "SUPPORT_GAP"


class FirstHeadAlone(Fault):
    """Overlaps and gaps are looked for in the first head."""

    requirement = "PLC-029"
    killed_by = case("receipt/last-receipt-missing", "receipt/gap-in-a-part", "receipt/gap-at-the-start")

    def plc_gap_rules(self, asked: Asked, receipts: Sequence[Request]) -> Iterable[Rule]:
        one = Asked({**asked.query, "kv_head_of": asked.query["kv_head_of"][:1]}, asked.cover, asked.producers)
        return super().plc_gap_rules(one, receipts)


class UnionOfHeads(Fault):
    """A position counts as covered when any head has it."""

    requirement = "PLC-029"
    killed_by = case("receipt/gap-in-a-part", "receipt/last-receipt-missing", "session/incomplete")

    def plc_gap_rules(self, asked: Asked, receipts: Sequence[Request]) -> Iterator[Rule]:
        yield not placement_receipts.without(asked.cover, placement_receipts.covered(receipts)), "SUPPORT_GAP"


class EndsAlone(Fault):
    """A cover is taken to be whole when its first and last row are there."""

    requirement = "PLC-029"
    killed_by = case("receipt/gap-in-a-part", "receipt/receipt-missing")

    def plc_gap_rules(self, asked: Asked, receipts: Sequence[Request]) -> Iterator[Rule]:
        cover = placement_receipts.listed(asked.cover)
        for head in range(asked.heads):
            several = set(placement_receipts.covered(placement_receipts.of_head(receipts, head)))
            yield {cover[0], cover[-1]} <= several if cover else True, "SUPPORT_GAP"
        yield bool(cover), "NO_LEGAL_ROWS"


class ZeroOutput(Fault):
    """Over an empty cover the output is zero."""

    requirement = "PLC-029"
    killed_by = case("reduce/empty-cover")

    def plc_output(self, asked: Asked, receipts: Sequence[Request]) -> Result:
        if asked.cover:
            return super().plc_output(asked, receipts)
        shape = (asked.heads, asked.query["value_channels"])
        return {"out": np.zeros(shape, np.float32), "lse": np.full(shape[:1], -np.inf, np.float32)}


class Merging(Fault):
    """States merged by another rule."""

    def merged(self, states: Sequence[State], xp: Any) -> State:
        """Of one head."""
        raise NotImplementedError

    def plc_merge(self, receipts: Sequence[Mapping[str, Any]]) -> State:
        states = [
            State(*(np.reshape(one[part], (1, *one[part].shape)) for part in ("m", "l", "u"))) for one in receipts
        ]
        return self.merged(states, array_namespace(states[0].u))


class MeanOfOutputs(Merging):
    """The parts' outputs are averaged."""

    requirement = "PLC-030"
    killed_by = case("reduce/base", "reduce/unequal-masses", "scan/uneven-parts")

    def merged(self, states: Sequence[State], xp: Any) -> State:
        outs = [attention.output(one) for one in states if one.l[0] > 0]
        whole = attention.merge(states)
        return State(whole.m, whole.l, sum(outs) / len(outs) * whole.l[:, None])


class MassesAsTheyAre(Merging):
    """Masses and bodies are added without rescaling."""

    requirement = "PLC-030"
    killed_by = case("reduce/base", "reduce/unequal-maxima", "scan/two-halves")

    def merged(self, states: Sequence[State], xp: Any) -> State:
        m = np.max(np.stack([one.m for one in states]), axis=0)
        return State(m, sum(one.l for one in states), sum(one.u for one in states))


class BodyNotRescaled(Merging):
    """The mass is rescaled and the body is not."""

    requirement = "PLC-030"
    killed_by = case("reduce/base", "reduce/unequal-maxima")

    def merged(self, states: Sequence[State], xp: Any) -> State:
        whole = attention.merge(states)
        return State(whole.m, whole.l, sum(one.u for one in states))


class WeightsWithoutMass(Merging):
    """Outputs are weighted by exp(m) alone, as if every part had mass one."""

    requirement = "PLC-030"
    killed_by = case("reduce/base", "reduce/unequal-masses", "scan/uneven-parts")

    def merged(self, states: Sequence[State], xp: Any) -> State:
        ones = [State(one.m, np.sign(one.l), attention.output(one)) for one in states]
        return attention.merge(ones)


class TwoPartsAlone(Merging):
    """A merge of two is applied once."""

    requirement = "PLC-030"
    killed_by = case("reduce/eight-parts", "reduce/unequal-maxima", "scan/one-row-each")

    def merged(self, states: Sequence[State], xp: Any) -> State:
        return attention.merge(states[:2])


class MaximumFromZero(Merging):
    """The common maximum starts at zero."""

    requirement = "PLC-030"
    killed_by = case("reduce/all-negative")

    def merged(self, states: Sequence[State], xp: Any) -> State:
        zero = State(np.zeros_like(states[0].m), np.zeros_like(states[0].l), np.zeros_like(states[0].u))
        return attention.merge([zero, *states])


class NoMaximum(Merging):
    """Masses are brought to the maximum zero."""

    requirement = "PLC-030"
    killed_by = case("reduce/large-maxima")

    def merged(self, states: Sequence[State], xp: Any) -> State:
        with np.errstate(all="ignore"):
            weights = [np.exp(one.m) for one in states]
            mass = sum(w * one.l for w, one in zip(weights, states, strict=True))
            body = sum(w[:, None] * one.u for w, one in zip(weights, states, strict=True))
        return State(np.zeros_like(states[0].m), mass, body)


class HalfMerge(Merging):
    """States are merged in half precision."""

    requirement = "PLC-030"
    killed_by = case("reduce/base", "reduce/unequal-maxima", "scan/two-halves")

    def merged(self, states: Sequence[State], xp: Any) -> State:
        half = [State(*(part.astype(np.float16) for part in one)) for one in states]
        return State(*(part.astype(np.float32) for part in attention.merge(half)))


class FirstMaximum(Merging):
    """Everything is rescaled to the first part's maximum."""

    requirement = "PLC-031"
    killed_by = case("reduce/large-maxima")

    def merged(self, states: Sequence[State], xp: Any) -> State:
        with np.errstate(all="ignore"):
            weights = [np.exp(one.m - states[0].m) for one in states]
            mass = sum(w * one.l for w, one in zip(weights, states, strict=True))
            body = sum(w[:, None] * one.u for w, one in zip(weights, states, strict=True))
        return State(states[0].m, mass, body)


class LastWins(Merging):
    """Later parts weigh more: a running mean is kept by the wrong count."""

    requirement = "PLC-031"
    killed_by = case("reduce/other-orders", "scan/any-partition")

    def merged(self, states: Sequence[State], xp: Any) -> State:
        state = states[0]
        for other in states[1:]:
            both = attention.merge([state, other])
            state = State(
                both.m, both.l, both.u * np.float32(0.75) + attention.output(other) * both.l[:, None] * np.float32(0.25)
            )
        return state


class EmptyMinusItself(Merging):
    """exp(-inf - -inf) is NaN."""

    requirement = "PLC-032"
    killed_by = case("session/duplicate-of-nothing", "reduce/part-without-rows")

    def merged(self, states: Sequence[State], xp: Any) -> State:
        nothing = State(np.full_like(states[0].m, -np.inf), np.zeros_like(states[0].l), np.zeros_like(states[0].u))
        state = nothing
        for other in states:
            m = np.maximum(state.m, other.m)
            with np.errstate(all="ignore"):
                fa, fb = np.exp(state.m - m), np.exp(other.m - m)
                state = State(m, fa * state.l + fb * other.l, fa[:, None] * state.u + fb[:, None] * other.u)
        return state


class EmptyCountsOne(Merging):
    """An empty part weighs like one row of value zero at the maximum."""

    requirement = "PLC-032"
    killed_by = case("reduce/part-without-rows", "session/duplicate-of-nothing", "scan/no-rows-in-one-tier")

    def merged(self, states: Sequence[State], xp: Any) -> State:
        whole = attention.merge(states)
        empty = sum(not one.l[0] for one in states)
        return State(whole.m, whole.l + np.float32(empty), whole.u)


class EmptyRejected(Fault):
    """A part without rows is taken for broken."""

    requirement = "PLC-032"
    killed_by = case("reduce/part-without-rows", "session/duplicate-of-nothing", "scan/no-rows-in-one-tier")

    def plc_receipt_rules(self, asked: Asked, one: Request) -> Iterator[Rule]:
        yield from super().plc_receipt_rules(asked, one)
        yield bool(one["support"]), "STATE_WITHOUT_MASS"


class RulesAsTheyCome(Fault):
    """All rules are checked and the last that fails is named."""

    requirement = "PLC-033"
    killed_by = case("precedence/tenant-before-layer", "precedence/identity-before-state")

    def plc_receipt_rules(self, asked: Asked, one: Request) -> Iterable[Rule]:
        return reversed(list(super().plc_receipt_rules(asked, one)))


class LastReceiptFirst(Fault):
    """Receipts are checked from the last one on."""

    requirement = "PLC-033"
    killed_by = case("precedence/first-receipt-first")

    def placement_reduce(self, request: Request) -> Result:
        document = request["document"]
        return super().placement_reduce({"document": {**document, "receipts": document["receipts"][::-1]}})


class CoverLast(Fault):
    """Receipts are looked at before what was asked."""

    requirement = "PLC-033"
    killed_by = case("precedence/cover-before-receipts")

    def placement_reduce(self, request: Request) -> Result:
        document = request["document"]
        asked = Asked.read(document)
        for one in document["receipts"]:
            self.plc_counted(Attempt(asked, "delay"), self.plc_receipt_rules(asked, one))
        return super().placement_reduce(request)


class FallbackLast(Fault):
    """That the fallback was published is seen at the end."""

    requirement = "PLC-033"
    killed_by = case("precedence/fallback-before-cover")

    def placement_reduce(self, request: Request) -> Result:
        document = request["document"]
        super().placement_reduce({"document": {**document, "fallback": {**document["fallback"], "published_ms": None}}})
        return super().placement_reduce(request)


class OverlapFirst(Fault):
    """Supports are added up before states are looked at."""

    requirement = "PLC-033"
    killed_by = case("precedence/receipts-before-overlap")

    def placement_reduce(self, request: Request) -> Result:
        document = request["document"]
        asked = Asked.read(document)
        self.plc_counted(Attempt(asked, "delay"), self.plc_gap_rules(asked, document["receipts"]))
        return super().placement_reduce(request)


class ProducerFirst(Fault):
    """Who attended is asked before what the state is."""

    requirement = "PLC-033"
    killed_by = case("precedence/state-before-producer")

    def plc_receipt_rules(self, asked: Asked, one: Request) -> Iterator[Rule]:
        yield asked.producer(one["producer"]) is not None, "UNKNOWN_PRODUCER"
        yield from super().plc_receipt_rules(asked, one)


FAULTS: tuple[type[Fault], ...] = (
    RowsByCount,
    FirstHeadAlone,
    UnionOfHeads,
    EndsAlone,
    ZeroOutput,
    MeanOfOutputs,
    MassesAsTheyAre,
    BodyNotRescaled,
    WeightsWithoutMass,
    TwoPartsAlone,
    MaximumFromZero,
    NoMaximum,
    HalfMerge,
    FirstMaximum,
    LastWins,
    EmptyMinusItself,
    EmptyCountsOne,
    EmptyRejected,
    RulesAsTheyCome,
    LastReceiptFirst,
    CoverLast,
    FallbackLast,
    OverlapFirst,
    ProducerFirst,
)
"""In the order of the chapter."""
