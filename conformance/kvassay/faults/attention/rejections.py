"""Faults of *Rejections* (ATT-025 to ATT-031)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from kvassay_reference import attention
from kvassay_reference.attention import State

from ...adapters.base import Rejected
from ..base import found
from .base import Arguments, Fault, Request, case


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


FAULTS = found(globals())
