"""Faults of *The output*: mask, window and positions, rows that count and rows that are hidden (ATT-005 to ATT-010)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from kvassay_reference import attention
from kvassay_reference.attention import State

from ..base import found
from .base import Arguments, Fault, Request, case, is_sound, kept, unpaged


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


FAULTS = found(globals())
