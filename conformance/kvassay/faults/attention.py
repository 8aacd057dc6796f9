"""Faulty engines of the attention contract: the reference with one realistic defect each.

A fault changes the arguments of the reference, a state, or one formula, and names the requirement that it breaks and
the cases that are meant to see it. Links in docstrings are public reports of the same defect in an engine.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import ml_dtypes
import numpy as np
from kvassay_reference import attention
from kvassay_reference.attention import State
from kvassay_reference.errors import Refusal

from ..adapters.base import Rejected
from ..engines.reference import (
    Reference,
    ReferenceFloat64,
    ReferenceHalf,
    ReferenceOLse,
    ReferenceOLse2,
    ReferenceZero,
)
from . import base

Arguments = dict[str, Any]
Request = Mapping[str, Any]


def case(*names: str) -> tuple[str, ...]:
    """Ids of cases of this contract."""
    return tuple(f"attention/{name}" for name in names)


class Fault(base.Fault):
    """The reference with its arguments changed."""

    def arguments(self, request: Request) -> Arguments:
        """The reference's arguments, spoiled."""
        arguments = super().arguments(request)
        return arguments | self.spoil(arguments)

    def spoil(self, a: Arguments) -> Arguments:
        """Arguments that replace the right ones."""
        return {}


def kept(a: Arguments, rows: Any) -> Arguments:
    """The arguments with some rows only."""
    if a["pages"] is not None:
        a = a | unpaged(a)
    return {name: a[name][rows] for name in ("k", "v", "positions")} | {"pages": None}


def unpaged(a: Arguments) -> Arguments:
    """The arguments with pages gathered."""
    return {name: attention.gather_pages(a[name], a["pages"]) for name in ("k", "v")} | {"pages": None}


def is_sound(a: Arguments) -> bool:
    """Whether the request is one that is not to be rejected for its pages or shapes."""
    try:
        attention.check_rows(*(a[name] for name in ("q", "k", "v", "kv_head_of", "positions", "mask", "pages")))
    except Refusal:
        return False
    return True


def with_lse(state: State, lse: Any) -> State:
    """The state with the same output and another LSE."""
    return attention.from_output(attention.output(state), lse)


# ---- output ------------------------------------------------------------------------------------------------------


class SoftmaxPlusOne(Fault):
    """An attention sink is left on: the denominator has one more term, exp(0)."""

    requirement = "ATT-001"
    killed_by = case("dense/one-row", "dense/equal-scores", "partial/equal-scores")

    def reduce(self, request: Request) -> State:
        state = super().reduce(request)
        return attention.merge_two(state, State(state.m * 0, state.m * 0 + 1, state.u * 0)) if some(state) else state


def some(state: State) -> bool:
    """Whether the state holds a row."""
    return not attention.is_empty(state)


class RowByRow(Fault):
    """Small histories are reduced one row at a time, so that a fault can spoil scores or exponentials."""

    def scores(self, scores: Any) -> Any:
        """Scores [T, H_q], spoiled."""
        return scores

    def exponential(self, x: Any) -> Any:
        """exp(x) for x <= 0, spoiled."""
        return np.exp(x)

    def reduce(self, request: Request) -> State:
        a = self.arguments(request)
        if not is_sound(a) or len(a["positions"]) > 64:
            return super().reduce(request)
        a |= kept(a, a["mask"].sees(a["positions"], a["q_position"]))
        rows = [attention.partial(**a | kept(a, slice(row, row + 1))) for row in range(len(a["positions"]))]
        if not rows:
            return super().reduce(request)
        scores = self.scores(np.stack([row.m for row in rows]))
        top = scores.max(axis=0)
        weights = self.exponential(scores - top).astype(np.float32)
        return State(top, weights.sum(axis=0), sum(w[:, None] * row.u for w, row in zip(weights, rows, strict=True)))


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


# ---- mask and positions ------------------------------------------------------------------------------------------


class CausalLosesOwnRow(Fault):
    """Causal is p < q: the newest token is not seen."""

    requirement = "ATT-005"
    killed_by = case("mask/causal-edge", "range/growing-scores")

    def spoil(self, a: Arguments) -> Arguments:
        return {"q_position": a["q_position"] - 1} if a["mask"].causal and a["mask"].window is None else {}


class CausalSeesOneMore(Fault):
    """Causal is p <= q + 1: one row of the future is seen."""

    requirement = "ATT-005"
    killed_by = case("mask/causal-edge", "mask/first-position", "mask/positions-out-of-order")

    def spoil(self, a: Arguments) -> Arguments:
        return {"q_position": a["q_position"] + 1} if a["mask"].causal and a["mask"].window is None else {}


class AlwaysCausal(Fault):
    """The causal flag is ignored."""

    requirement = "ATT-005"
    killed_by = case("mask/not-causal", "mask/window-without-causal")

    def spoil(self, a: Arguments) -> Arguments:
        return {"mask": replace(a["mask"], causal=True)}


class LengthFromQuery(Fault):
    """The number of rows is taken for q_position + 1, so a query beyond the rows sees the newest of them only."""

    requirement = "ATT-005"
    killed_by = case("mask/causal-sees-all")

    def spoil(self, a: Arguments) -> Arguments:
        missing = a["q_position"] - int(a["positions"].max(initial=0))
        return kept(a, slice(missing, None)) if missing > 0 and a["mask"].window is None and is_sound(a) else {}


class WindowOneLonger(Fault):
    """The window does not count the query's own position."""

    requirement = "ATT-006"
    killed_by = case(
        "mask/window-of-one",
        "mask/window-edge",
        "mask/state-of-a-window",
        "merge/window-over-partitions",
        "pages/window-across-a-page-edge",
        "real/bfloat16-d128-t4097-window",
        "real/float32-d64-t4097-window",
    )

    def spoil(self, a: Arguments) -> Arguments:
        window = a["mask"].window
        return {"mask": replace(a["mask"], window=window + 1)} if window and window > 0 else {}


class WindowOneShorter(Fault):
    """The window excludes its last position."""

    requirement = "ATT-006"
    killed_by = case(
        "mask/window-edge",
        "mask/window-exactly-the-history",
        "mask/first-position-with-window",
        "real/bfloat16-d128-t4097-window",
        "real/float32-d64-t4097-window",
    )

    def spoil(self, a: Arguments) -> Arguments:
        window = a["mask"].window
        return {"mask": replace(a["mask"], window=window - 1)} if window and window > 1 else {}


class WindowUnsigned(Fault):
    """q_position - window is unsigned: a window longer than the history hides everything."""

    requirement = "ATT-006"
    killed_by = case("mask/window-longer-than-history", "mask/window-exactly-the-history")

    def spoil(self, a: Arguments) -> Arguments:
        window = a["mask"].window
        return kept(a, slice(0, 0)) if window and window > a["q_position"] and is_sound(a) else {}


class WindowImpliesCausal(Fault):
    """A window switches causal on."""

    requirement = "ATT-006"
    killed_by = case("mask/window-without-causal")

    def spoil(self, a: Arguments) -> Arguments:
        return {"mask": replace(a["mask"], causal=a["mask"].causal or a["mask"].window is not None)}


class FirstPositionIgnored(Fault):
    """Rows are masked by their index in the partition."""

    requirement = "ATT-007"
    killed_by = case("mask/first-position", "mask/first-position-with-window")

    def spoil(self, a: Arguments) -> Arguments:
        return {"positions": a["positions"] - (a["positions"].min() if len(a["positions"]) else 0)}


class PositionsSorted(Fault):
    """Row i is taken for the row at the i-th smallest position."""

    requirement = "ATT-007"
    killed_by = case("mask/positions-out-of-order", "invariance/row-order")

    def spoil(self, a: Arguments) -> Arguments:
        return {"positions": np.sort(a["positions"])}


class PositionsByIndex(Fault):
    """Rows are numbered in the order in which they come; a selection closes its gaps."""

    requirement = "ATT-007"
    killed_by = case("mask/positions-with-gaps")

    def spoil(self, a: Arguments) -> Arguments:
        return {"positions": np.arange(len(a["positions"])) + a["positions"][:1]}


class EmptyBlockFirst(Fault):
    """An online softmax over blocks of 32 rows takes the maximum of an empty first block from itself."""

    requirement = "ATT-007"
    killed_by = case("mask/newest-first", "mask/newest-first-state")

    def reduce(self, request: Request) -> State:
        state, a = super().reduce(request), self.arguments(request)
        first = a["mask"].sees(a["positions"][:32], a["q_position"])
        if a["pages"] is None and a["mask"].window is None and len(a["positions"]) > 32 and not first.any():
            return State(state.m, state.l * np.nan, state.u * np.nan)
        return state


class PositionsInFloat32(Fault):
    """Positions are compared in float32, which rounds 2^24 + 1 to 2^24."""

    requirement = "ATT-007"
    killed_by = case("mask/positions-beyond-24-bits", "mask/positions-beyond-31-bits", "mask/positions-beyond-32-bits")

    def spoil(self, a: Arguments) -> Arguments:
        return {"positions": a["positions"].astype(np.float32)}


class PositionsInInt32(Fault):
    """Positions are 32-bit integers and wrap."""

    requirement = "ATT-007"
    killed_by = case("mask/positions-beyond-31-bits")
    kind: ClassVar[Any] = np.int32

    def spoil(self, a: Arguments) -> Arguments:
        return {
            "positions": a["positions"].astype(self.kind).astype(np.int64),
            "q_position": int(np.int64(a["q_position"]).astype(self.kind)),
        }


class PositionsInUint32(PositionsInInt32):
    """Positions are 32-bit integers without a sign and wrap."""

    requirement = "ATT-007"
    killed_by = case("mask/positions-beyond-32-bits")
    kind = np.uint32


class LastRowOmitted(Fault):
    """The loop ends one row early."""

    requirement = "ATT-008"
    killed_by = case("real/float32-d128-t4097", "real/bfloat16-d128-t4097", "merge/six-partitions")

    def spoil(self, a: Arguments) -> Arguments:
        return kept(a, slice(0, -1)) if is_sound(a) else {}


class SplitEdgeCountedTwice(Fault):
    """Split-K ranges overlap by one row at every 1,024th."""

    requirement = "ATT-008"
    killed_by = case(
        "real/float32-d128-t4097",
        "real/float32-d64-t4097-state",
        "real/bfloat16-d128-t4097",
        "real/bfloat16-d128-t4097-state",
        "real/float16-d64-t4097",
        "real/float32-d128-t32768",
        "real/bfloat16-d128-t32768",
    )
    step: ClassVar[int] = 1024

    def spoil(self, a: Arguments) -> Arguments:
        rows = np.arange(len(a["positions"]))
        edge = (rows % self.step == 0) & (rows > 0)
        return kept(a, np.repeat(rows, 1 + edge)) if edge.any() and is_sound(a) else {}


class TailBlockDropped(Fault):
    """Only whole blocks of 64 rows are read once there is one."""

    requirement = "ATT-008"
    killed_by = case(
        "real/bfloat16-d128-split-in-three",
        "real/float32-d128-split-in-two",
        "real/float16-d64-split-in-two",
        "real/pages-of-64-float16-t4097",
    )

    def spoil(self, a: Arguments) -> Arguments:
        rows = len(a["positions"])
        return kept(a, slice(0, rows - rows % 64)) if rows > 64 and is_sound(a) else {}


class TileOfOneRowLess(Fault):
    """The last tile of 256 is taken for whole when a single row is missing, and its last row is lost."""

    requirement = "ATT-008"
    killed_by = case(
        "lengths/float32-around-256",
        "lengths/float32-around-512",
        "lengths/bfloat16-around-1024",
        "lengths/bfloat16-state-around-256",
    )

    def spoil(self, a: Arguments) -> Arguments:
        return kept(a, slice(0, -1)) if len(a["positions"]) % 256 == 255 and is_sound(a) else {}


class RepeatedPositionsMerged(Fault):
    """A row at a position that was seen before is skipped, as if it were a retry."""

    requirement = "ATT-008"
    killed_by = case("invariance/doubled-row")

    def spoil(self, a: Arguments) -> Arguments:
        first = np.sort(np.unique(a["positions"], return_index=True)[1])
        return kept(a, first) if len(first) < len(a["positions"]) and is_sound(a) else {}


class SmallWeightsSkipped(Fault):
    """Blocks of 16 rows whose largest weight is small are skipped, as if that were exact."""

    requirement = "ATT-008"
    killed_by = case("real/float32-d128-t32768", "real/float32-d128-t4097")

    def spoil(self, a: Arguments) -> Arguments:
        if len(a["positions"]) < 512 or not is_sound(a):
            return {}
        a = a | (unpaged(a) if a["pages"] else {})
        keys = a["k"].astype(np.float32)
        scores = np.abs(keys[:, 0, :] @ a["q"][0].astype(np.float32)) * a["scale"]
        blocks = len(scores) // 16 * 16
        low = scores[:blocks].reshape(-1, 16).max(axis=1)
        return kept(a, np.concatenate([np.repeat(low > np.min(low), 16), np.ones(len(scores) - blocks, bool)]))


class FinitePenalty(Fault):
    """Hidden rows get a penalty of -10,000 instead of -inf."""

    requirement = "ATT-009"
    killed_by = case("mask/hidden-rows-are-large", "empty/partial-all-rows-later", "empty/dense-all-rows-later")

    def spoil(self, a: Arguments) -> Arguments:
        legal = a["mask"].sees(a["positions"], a["q_position"])
        if legal.all() or not is_sound(a):
            return {}
        a = a | (unpaged(a) if a["pages"] else {})
        penalty = np.where(legal, 0.0, -10000.0 / a["scale"])[:, None, None] * np.ones((1, a["k"].shape[1], 1))
        q, k = a["q"].astype(np.float32), a["k"].astype(np.float32)
        return {
            "q": np.concatenate([q, np.ones_like(q[:, :1])], axis=1),
            "k": np.concatenate([k, penalty.astype(np.float32)], axis=2),
            "v": a["v"].astype(np.float32),
            "mask": attention.Mask(causal=False),
            "pages": None,
        }


class HiddenRowsWeighed(Fault):
    """Hidden rows of V are multiplied by weight zero, so their NaN comes through."""

    requirement = "ATT-010"
    killed_by = case("mask/hidden-rows-are-nan")

    def reduce(self, request: Request) -> State:
        state, a = super().reduce(request), self.arguments(request)
        hidden = ~a["mask"].sees(a["positions"], a["q_position"])
        rest = attention.gather_pages(a["v"], a["pages"]) if a["pages"] else a["v"]
        return state._replace(u=state.u + 0 * rest[hidden].astype(np.float32).sum((0, 1)))


# ---- pages -------------------------------------------------------------------------------------------------------


class PagesInPhysicalOrder(Fault):
    """The block table is ignored: logical page i is physical page i."""

    requirement = "ATT-011"
    killed_by = case(
        "pages/physical-order-differs",
        "pages/pages-of-one-row",
        "real/pages-of-16-bfloat16-t4097",
        "real/pages-of-64-float16-t4097",
        "real/pages-of-256-float32-t4097",
    )

    def spoil(self, a: Arguments) -> Arguments:
        sound = a["pages"] is not None and is_sound(a)
        return {"pages": replace(a["pages"], table=range(len(a["k"])))} if sound else {}


class TablePaddingChecked(Fault):
    """Table entries behind the last row are taken for pages."""

    requirement = "ATT-011"
    killed_by = case("pages/table-longer-than-needed")

    def attention_dense(self, request: Request) -> dict[str, Any]:
        if "pages" in request and not all(0 <= page < request["k"].shape[0] for page in request["pages"]["table"]):
            raise Rejected("PAGE_OUT_OF_RANGE", "a page of the table does not exist")
        return super().attention_dense(request)


class PageEdgeRowDropped(Fault):
    """The last row of every page but the last is skipped."""

    requirement = "ATT-011"
    killed_by = case(
        "pages/window-across-a-page-edge",
        "real/pages-of-16-bfloat16-t4097",
        "real/pages-of-64-float16-t4097",
        "real/pages-of-256-float32-t4097",
    )

    def spoil(self, a: Arguments) -> Arguments:
        if a["pages"] is None or not is_sound(a):
            return {}
        rows, length = np.arange(a["pages"].rows), a["pages"].page_rows
        return kept(a, (rows % length < length - 1) | (rows // length == rows[-1] // length))


class PageLoadedOnce(Fault):
    """A physical page that the table names again is not loaded again."""

    requirement = "ATT-011"
    killed_by = case("pages/page-named-twice")

    def spoil(self, a: Arguments) -> Arguments:
        if a["pages"] is None or not is_sound(a):
            return {}
        table = attention.used_pages(a["pages"])
        first = np.array([page not in table[:i] for i, page in enumerate(table)], bool)
        return kept(a, np.repeat(first, a["pages"].page_rows)[: a["pages"].rows])


class PageIdsIn16Bits(Fault):
    """Page ids are cut to 15 bits."""

    requirement = "ATT-011"
    killed_by = case("pages/beyond-16-bits")
    mask: ClassVar[int] = 0x7FFF

    def spoil(self, a: Arguments) -> Arguments:
        if a["pages"] is None or not is_sound(a):
            return {}
        return {"pages": replace(a["pages"], table=[page & self.mask for page in attention.used_pages(a["pages"])])}


class PageIdsInUint16(PageIdsIn16Bits):
    """Page ids are cut to 16 bits."""

    requirement = "ATT-011"
    killed_by = case("pages/beyond-16-bits")
    mask = 0xFFFF


class GatheredPagesKept(Fault):
    """Gathered rows are kept by table and shape, and answer for whatever the pages hold later."""

    requirement = "ATT-033"
    killed_by = case("pages/same-table-other-rows")

    def open(self) -> None:
        super().open()
        self.gathered: dict[Any, Arguments] = {}

    def spoil(self, a: Arguments) -> Arguments:
        if a["pages"] is None or not is_sound(a):
            return {}
        key = (tuple(a["pages"].table), a["pages"].rows, a["k"].shape, a["v"].shape, a["k"].dtype)
        return self.gathered.setdefault(key, unpaged(a))


class LastPageWhole(Fault):
    """Every slot of the last page is a row."""

    requirement = "ATT-012"
    killed_by = case("pages/rest-of-the-last-page")

    def spoil(self, a: Arguments) -> Arguments:
        if a["pages"] is None or not is_sound(a):
            return {}
        rows = -(-a["pages"].rows // a["pages"].page_rows) * a["pages"].page_rows
        return {"pages": replace(a["pages"], rows=rows), "positions": np.arange(rows) + int(a["positions"][0])}


class LastPageByModulo(Fault):
    """The last page holds rows % page_rows rows, so a full one holds none."""

    requirement = "ATT-012"
    killed_by = case("pages/last-page-full")

    def spoil(self, a: Arguments) -> Arguments:
        full = a["pages"] is not None and is_sound(a) and a["pages"].rows % a["pages"].page_rows == 0
        return kept(a, slice(0, a["pages"].rows - a["pages"].page_rows)) if full else {}


class LastPageWeighed(Fault):
    """Free slots of the last page are multiplied by weight zero, so their NaN comes through."""

    requirement = "ATT-012"
    killed_by = case("pages/rest-of-the-last-page-is-nan")

    def reduce(self, request: Request) -> State:
        state, a = super().reduce(request), self.arguments(request)
        if a["pages"] is None:
            return state
        last = a["v"][attention.used_pages(a["pages"])[-1]].astype(np.float32)
        free = last[a["pages"].rows % a["pages"].page_rows or a["pages"].page_rows :]
        return state._replace(u=state.u + 0 * free.sum((0, 1)))


# ---- range -------------------------------------------------------------------------------------------------------


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


# ---- invariance --------------------------------------------------------------------------------------------------


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


# ---- states ------------------------------------------------------------------------------------------------------


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


# ---- merge -------------------------------------------------------------------------------------------------------


class Merging(Fault):
    """A fault in the merge of two states."""

    def merge(self, states: list[State]) -> State:
        """Fold the states with the spoiled merge."""
        attention.merge(states)
        total = states[0]
        for state in states[1:]:
            with np.errstate(all="ignore"):
                total = self.pair(total, state)
        return total

    def pair(self, a: State, b: State) -> State:
        """The merge of two."""
        return attention.merge_two(a, b)


class MergeAverages(Merging):
    """Outputs are averaged."""

    requirement = "ATT-019"
    killed_by = case("merge/unequal-mass", "merge/split-at-1", "merge/even-and-odd-rows", "merge/equals-the-whole")

    def pair(self, a: State, b: State) -> State:
        right = attention.merge_two(a, b)
        if attention.is_empty(a) or attention.is_empty(b):
            return right
        out = (attention.output(a) + attention.output(b)) / 2
        return attention.from_output(out, attention.log_sum_exp(right))


class MergeWeightsSwapped(Merging):
    """Each state is rescaled by the other's factor."""

    requirement = "ATT-019"
    killed_by = case("merge/mass-outweighs-maximum", "merge/split-at-2", "merge/large-maxima")

    def pair(self, a: State, b: State) -> State:
        return (
            attention.merge_two(a._replace(m=b.m), b._replace(m=a.m))
            if some(a) and some(b)
            else attention.merge_two(a, b)
        )


class MergeByMaximum(Merging):
    """Outputs are weighed by exp(m), without l."""

    requirement = "ATT-019"
    killed_by = case("merge/mass-outweighs-maximum", "merge/unequal-mass", "merge/shifted-maximum")

    def pair(self, a: State, b: State) -> State:
        if not (some(a) and some(b)):
            return attention.merge_two(a, b)
        parts = (attention.from_output(attention.output(part), part.m) for part in (a, b))
        return with_lse(attention.merge_two(*parts), attention.log_sum_exp(attention.merge_two(a, b)))


class MergeShortExponential(Merging):
    """The factors of a merge are right to four digits."""

    requirement = "ATT-019"
    killed_by = case("merge/split-at-3", "merge/split-at-4", "merge/split-at-5")

    def pair(self, a: State, b: State) -> State:
        step = np.where(np.isfinite(a.m) & np.isfinite(b.m), 5e-5, 0).astype(np.float32)
        return attention.merge_two(a, b._replace(m=b.m + step))


class MergeFromSentinel(Fault):
    """The running maximum of a merge starts at -50000 in base 2 and the mass at 1.

    FlashInfer 0.7.4 does so in its Triton kernel of ``merge_states``.
    """

    requirement = "ATT-019"
    killed_by = case("merge/maxima-below-minus-40000", "merge/two-empty-partitions")

    def merge(self, states: list[State]) -> State:
        u = np.zeros_like(states[0].u)
        start = np.full(len(u), -5e4 * math.log(2), u.dtype)
        return super().merge([State(start, np.ones_like(start), u), *states])


class MergeWithoutMaximum(Merging):
    """Masses are added as exp(m) l."""

    requirement = "ATT-013"
    killed_by = case("merge/far-apart", "merge/large-maxima", "merge/large-negative-maxima")

    def pair(self, a: State, b: State) -> State:
        l = np.exp(a.m) * a.l + np.exp(b.m) * b.l  # noqa: E741
        u = np.exp(a.m)[:, None] * a.u + np.exp(b.m)[:, None] * b.u
        return State(np.where(l > 0, 0 * l, -np.inf).astype(l.dtype), l, u)


class EmptyMinusItself(Merging):
    """exp(-inf - -inf) is NaN."""

    requirement = "ATT-020"
    killed_by = case("merge/two-empty-partitions", "merge/three-empty-partitions", "merge/one-head-empty")

    def pair(self, a: State, b: State) -> State:
        m = np.maximum(a.m, b.m)
        fa, fb = np.exp(a.m - m), np.exp(b.m - m)
        return State(m, fa * a.l + fb * b.l, fa[:, None] * a.u + fb[:, None] * b.u)


class EmptyWins(Merging):
    """A merge with the empty state is empty."""

    requirement = "ATT-020"
    killed_by = case("merge/empty-first", "merge/empty-last", "merge/empty-among-three", "merge/split-at-0")

    def pair(self, a: State, b: State) -> State:
        return next((state for state in (a, b) if not some(state)), attention.merge_two(a, b))


class EmptyDecidedByFirstHead(Merging):
    """Whether a state is empty is decided by its first head."""

    requirement = "ATT-020"
    killed_by = case("merge/one-head-empty")

    def pair(self, a: State, b: State) -> State:
        return b if a.l[0] == 0 else a if b.l[0] == 0 else attention.merge_two(a, b)


class ThirdStateDropped(Fault):
    """Only two states are merged."""

    requirement = "ATT-021"
    killed_by = case("merge/three-partitions", "merge/six-partitions", "merge/any-order", "merge/empty-among-three")

    def merge(self, states: list[State]) -> State:
        return super().merge(states[:2])


class EightSplits(Fault):
    """The reduction has room for eight splits."""

    requirement = "ATT-021"
    killed_by = case("merge/sixteen-states")
    room: ClassVar[int] = 8

    def merge(self, states: list[State]) -> State:
        return super().merge(states[: self.room])


class ThirtyTwoSplits(EightSplits):
    """The reduction has room for 32 splits."""

    requirement = "ATT-021"
    killed_by = case("merge/of-33-states", "merge/of-65-states", "merge/of-129-states", "merge/of-257-states")
    room = 32


class TwoHundredAndFiftySixSplits(EightSplits):
    """The reduction has room for 256 splits."""

    requirement = "ATT-021"
    killed_by = case("merge/of-257-states")
    room = 256


class OrderMatters(Merging):
    """The running mass is not rescaled when a later maximum is higher."""

    requirement = "ATT-021"
    killed_by = case("merge/any-order", "merge/any-grouping")

    def pair(self, a: State, b: State) -> State:
        right = attention.merge_two(a, b)
        factor = attention.rescaling(b.m, right.m)
        higher = (b.m > a.m) & np.isfinite(a.m)
        l = np.where(higher, a.l + factor * b.l, right.l)  # noqa: E741
        return State(right.m, l, np.where(higher[:, None], a.u + factor[:, None] * b.u, right.u))


class FirstStateAlone(Fault):
    """A merge of one state is refused."""

    requirement = "ATT-021"
    killed_by = case("merge/one-partition")

    def merge(self, states: list[State]) -> State:
        if len(states) == 1:
            raise Rejected("SHAPE_MISMATCH", "a merge needs two states")
        return super().merge(states)


class EqualStatesMergedOnce(Fault):
    """States that look alike are taken for a retry and merged once."""

    requirement = "ATT-022"
    killed_by = case("merge/with-itself")

    def merge(self, states: list[State]) -> State:
        kept_states: list[State] = []
        for state in states:
            if not any(all(map(np.array_equal, state, other)) for other in kept_states):
                kept_states.append(state)
        return super().merge(kept_states)


class MassOfLargest(Merging):
    """The LSE of a merge is that of the heaviest state."""

    requirement = "ATT-022"
    killed_by = case("merge/with-itself", "merge/selected-rows-only", "merge/row-in-two-partitions")

    def pair(self, a: State, b: State) -> State:
        return with_lse(attention.merge_two(a, b), np.maximum(attention.log_sum_exp(a), attention.log_sum_exp(b)))


# ---- precision ---------------------------------------------------------------------------------------------------


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


# ---- rejections --------------------------------------------------------------------------------------------------


class DtypesCast(Fault):
    """Tensors of different dtypes are cast to float32."""

    requirement = "ATT-025"
    killed_by = case("rejected/query-dtype-differs", "rejected/value-dtype-differs")

    def spoil(self, a: Arguments) -> Arguments:
        if len({a[name].dtype for name in "qkv"}) == 1:
            return {}
        return {name: a[name].astype(np.float32) for name in "qkv"}


class ShapesCut(Fault):
    """Tensors are cut to their common extents."""

    requirement = "ATT-025"
    killed_by = case(
        "rejected/rows-differ", "rejected/channels-differ", "rejected/kv-heads-differ", "rejected/too-few-positions"
    )

    def spoil(self, a: Arguments) -> Arguments:
        if a["pages"] is not None or a["k"].ndim != 3:
            return {}
        rows = min(len(a[name]) for name in ("k", "v", "positions"))
        heads, d = min(a["k"].shape[1], a["v"].shape[1]), min(a["k"].shape[2], a["q"].shape[1])
        return {
            "q": a["q"][:, :d],
            "k": a["k"][:rows, :heads, :d],
            "v": a["v"][:rows, :heads],
            "positions": a["positions"][:rows],
        }


class PagesFlattened(Fault):
    """Leading axes of K and V are flattened, whether they are pages or not, and a page has whatever length it has."""

    requirement = "ATT-025"
    killed_by = case("rejected/pages-without-table", "rejected/page-length-differs")

    def spoil(self, a: Arguments) -> Arguments:
        if a["pages"] is None and a["k"].ndim == 4:
            flat = {name: a[name].reshape(-1, *a[name].shape[2:]) for name in ("k", "v")}
            return flat | {"positions": np.arange(len(flat["k"]))}
        if a["pages"] is not None and a["pages"].page_rows != a["k"].shape[1]:
            return {name: a[name].reshape(-1, a["pages"].page_rows, *a[name].shape[2:]) for name in ("k", "v")} | {
                "pages": replace(a["pages"], table=[0, 1])
            }
        return {}


class StatesBroadcast(Fault):
    """States of one head or one channel are broadcast over the others."""

    requirement = "ATT-025"
    killed_by = case("rejected/heads-differ", "rejected/widths-differ")

    def merge(self, states: list[State]) -> State:
        shape = max(state.u.shape for state in states)
        return super().merge(
            [
                State(np.broadcast_to(s.m, shape[:1]), np.broadcast_to(s.l, shape[:1]), np.broadcast_to(s.u, shape))
                for s in states
            ]
        )


class HeadMapClamped(Fault):
    """K/V heads out of range are clamped."""

    requirement = "ATT-026"
    killed_by = case("rejected/map-beyond-heads", "rejected/map-negative")

    def spoil(self, a: Arguments) -> Arguments:
        return {"kv_head_of": [min(max(head, 0), a["k"].shape[-2] - 1) for head in a["kv_head_of"]]}


class HeadMapPadded(Fault):
    """A head map of another length is cut, or repeated."""

    requirement = "ATT-026"
    killed_by = case("rejected/map-too-short", "rejected/map-too-long")

    def spoil(self, a: Arguments) -> Arguments:
        return {"kv_head_of": np.resize(a["kv_head_of"], len(a["q"])).tolist()}


class WindowZeroIsNone(Fault):
    """A window below 1 means no window."""

    requirement = "ATT-027"
    killed_by = case("rejected/window-zero", "rejected/window-negative")

    def spoil(self, a: Arguments) -> Arguments:
        window = a["mask"].window
        return {"mask": replace(a["mask"], window=None)} if window is not None and window < 1 else {}


class PagesClamped(Fault):
    """Pages out of range are clamped, and a table that is too short is repeated."""

    requirement = "ATT-028"
    killed_by = case("rejected/table-names-no-page", "rejected/table-entry-negative", "rejected/table-too-short")

    def spoil(self, a: Arguments) -> Arguments:
        if a["pages"] is None:
            return {}
        need = -(-a["pages"].rows // a["pages"].page_rows)
        table = np.clip(np.resize(a["pages"].table, need), 0, len(a["k"]) - 1)
        return {"pages": replace(a["pages"], table=table.tolist())}


class MassAssumed(Fault):
    """A state without mass counts as one row, and one without output as zeros."""

    requirement = "ATT-029"
    killed_by = case("rejected/output-without-mass", "rejected/normalised-output-alone", "rejected/mass-without-output")

    def attention_merge(self, request: Request) -> dict[str, Any]:
        whole = []
        for state in request["states"]:
            out = state.get("u", state.get("o", np.zeros((2, 3), np.float32)))
            one = np.ones(len(out), np.float32)
            whole.append({"schema": "fp32-m-l-u-v1", "m": state.get("m", one), "l": state.get("l", one), "u": out})
        return super().attention_merge({"states": whole})


class BaseIgnored(Fault):
    """Schema and base of a state are not looked at."""

    requirement = "ATT-030"
    killed_by = case("rejected/bases-differ", "rejected/unknown-schema")

    def check_states(self, states: Any) -> None:
        pass

    def read_state(self, state: Request) -> State:
        return (
            attention.from_output(state["o"], state["lse"])
            if "o" in state
            else State(state["m"], state["l"], state["u"])
        )


class ChecksInReverse(Fault):
    """The checks run in the opposite order."""

    requirement = "ATT-031"
    killed_by = case(
        "rejected/dtype-before-shape",
        "rejected/shape-before-head-map",
        "rejected/head-map-before-window",
        "rejected/window-before-no-rows",
        "rejected/window-before-pages",
        "rejected/incomplete-before-schema",
    )

    def reduce(self, request: Request) -> State:
        a = self.arguments(request)
        mask = a["mask"]
        if a["pages"] and max(attention.used_pages(a["pages"])) >= len(a["k"]):
            raise Rejected("PAGE_OUT_OF_RANGE")
        if (
            len(a["positions"])
            and not mask.sees(a["positions"], a["q_position"]).any()
            and a["positions"][0] > a["q_position"]
        ):
            return attention.empty_state(a["q"], a["v"].shape[-1])
        if mask.window is not None and mask.window < 1:
            raise Rejected("WINDOW_INVALID")
        if max(a["kv_head_of"]) >= a["k"].shape[-2]:
            raise Rejected("HEAD_MAP_INVALID")
        if len(a["k"]) != len(a["v"]):
            raise Rejected("SHAPE_MISMATCH")
        return super().reduce(request)

    def check_states(self, states: Any) -> None:
        if len({state["schema"] for state in states}) > 1:
            raise Rejected("STATE_SCHEMA_MISMATCH")
        super().check_states(states)


CORRECT = (Reference, ReferenceFloat64, ReferenceOLse, ReferenceOLse2, ReferenceHalf, ReferenceZero)
FAULTS = base.found(globals())
