"""Partial-attention states: two schemas, one meaning."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from .compare import NotComparable, Numbers, numbers
from .model import SCALARS, Json
from .tensors import Array

MEANING = ("out", "lse")
LN2 = math.log(2.0)
MEMBERS = {"fp32-m-l-u-v1": frozenset({"schema", "m", "l", "u"}), "o-lse-v1": frozenset({"schema", "base", "o", "lse"})}
BASES = ("e", 2)


def is_state(value: Json) -> bool:
    """Whether a value has the members of a state of some schema; its op's schema says what else it may hold."""
    if not isinstance(value, Mapping):
        return False
    schema = value.get("schema")
    return isinstance(schema, str) and schema in MEMBERS and MEMBERS[schema] <= value.keys()


def is_literal(value: Json) -> bool:
    """Whether a value is a whole state as cases write it; anything else about states is for the engine to judge."""
    return is_state(value) and value["schema"] == "fp32-m-l-u-v1"


def schema_of(state: Mapping[str, Json]) -> str:
    """Name of a state's schema as engines declare it."""
    return f"o-lse-v1/{state['base']}" if state["schema"] == "o-lse-v1" else str(state["schema"])


def states_in(value: Json) -> list[Mapping[str, Json]]:
    """Every state anywhere in a result."""
    if type(value) in SCALARS:
        return []
    if is_state(value):
        return [value]
    members = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return [state for member in members for state in states_in(member)]


def meaning(state: Mapping[str, Json]) -> dict[str, Numbers]:
    """What a state means: normalised ``out`` [H_q, d_v] and natural-log ``lse`` [H_q], in float64.

    A state without mass has output 0 and LSE -inf; NaN stays NaN. Each part carries the dtypes of the whole state.
    Raises :class:`NotComparable` for members that are no numbers or whose shapes do not belong together.
    """
    parts = {name: numbers(state[name]) for name in MEMBERS[state["schema"]] - {"schema", "base"}}
    names = frozenset().union(*(part.dtypes for part in parts.values()))
    arrays = {name: part.array for name, part in parts.items()}
    with np.errstate(all="ignore"):
        if state["schema"] == "o-lse-v1":
            if state["base"] not in BASES:
                raise NotComparable(f"{state['base']!r} is no base of a logarithm")
            out, lse = arrays["o"], arrays["lse"] * LN2 if state["base"] == 2 else arrays["lse"]
            _belong(out, lse)
        else:
            m, l, u = arrays["m"], arrays["l"], arrays["u"]  # noqa: E741
            _belong(u, l, m)
            lse = np.where(l == 0, np.where(np.isnan(m), np.nan, -np.inf), m + np.log(l))
            out = np.where((l == 0)[..., None], u, u / l[..., None])
    return {"out": Numbers(out, names), "lse": Numbers(lse, names)}


def _belong(out: Array, *masses: Array) -> None:
    for mass in masses:
        if out.shape[:-1] != mass.shape:
            raise NotComparable(f"a state of shape {list(out.shape)} has mass of shape {list(mass.shape)}")


def from_literal(state: Mapping[str, Json], schema: str) -> dict[str, Json]:
    """A literal ``fp32-m-l-u-v1`` state in another schema that the engine speaks, in the same dtypes."""
    if schema == "fp32-m-l-u-v1":
        return dict(state)
    value = meaning(state)
    base: str | int = 2 if schema.endswith("/2") else "e"
    lse = value["lse"].array / LN2 if base == 2 else value["lse"].array
    return {
        "schema": "o-lse-v1",
        "base": base,
        "o": value["out"].array.astype(state["u"].dtype),
        "lse": lse.astype(state["m"].dtype),
    }
