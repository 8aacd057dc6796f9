"""Comparison of replies with expected values: exact JSON, numbers within a bound, states by their meaning."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .model import Json
from .tensors import UNIT_ROUNDOFF, Array, TensorError, dtype_name

STATE_SCHEMAS = ("fp32-m-l-u-v1", "o-lse-v1/e", "o-lse-v1/2")
MEANING = ("out", "lse")
LN2 = math.log(2.0)


class NotComparable(ValueError):
    """The reply has another form than the expectation; the message says how."""


@dataclass(frozen=True)
class Difference:
    """The worst disagreement of a numeric comparison."""

    ratio: float
    """Error over bound; at most 1 is agreement, infinity a disagreement of shape or class."""
    message: str

    @property
    def agrees(self) -> bool:
        """Whether every element lies within its bound."""
        return self.ratio <= 1.0


def is_state(value: Json) -> bool:
    """Whether a value is a partial-attention state."""
    return isinstance(value, Mapping) and "schema" in value and ("u" in value or "o" in value)


def is_literal_state(value: Json) -> bool:
    """Whether a value is a whole state as cases write it; anything else about states is for the engine to judge."""
    return isinstance(value, Mapping) and value.get("schema") == "fp32-m-l-u-v1" and {"m", "l", "u"} <= value.keys()


def state_schema(state: Mapping[str, Json]) -> str:
    """Name of a state's schema as engines declare it."""
    return f"o-lse-v1/{state['base']}" if state["schema"] == "o-lse-v1" else str(state["schema"])


def meaning(state: Mapping[str, Json]) -> dict[str, Array]:
    """What a state means: normalised ``out`` [H_q, d_v] and natural-log ``lse`` [H_q], in float64.

    A state without mass has output 0 and LSE -inf. NaN stays NaN.
    """
    with np.errstate(all="ignore"):
        if state["schema"] == "o-lse-v1":
            out, lse = np.asarray(state["o"], np.float64), np.asarray(state["lse"], np.float64)
            lse = lse * LN2 if state["base"] == 2 else lse
            _expect_shapes(out, lse)
            return {"out": out, "lse": lse}
        m, l, u = (np.asarray(state[part], np.float64) for part in ("m", "l", "u"))  # noqa: E741
        _expect_shapes(u, l, m)
        lse = np.where(l == 0, np.where(np.isnan(m), np.nan, -np.inf), m + np.log(l))
        out = np.where((l == 0)[..., None], u, u / l[..., None])
        return {"out": out, "lse": lse}


def _expect_shapes(out: Array, *masses: Array) -> None:
    for mass in masses:
        if out.shape[:-1] != mass.shape:
            raise NotComparable(f"a state of shape {list(out.shape)} has mass of shape {list(mass.shape)}")


def from_literal(state: Mapping[str, Json], schema: str) -> dict[str, Json]:
    """A literal ``fp32-m-l-u-v1`` state in another schema that the engine speaks, in the same dtypes."""
    if schema == "fp32-m-l-u-v1":
        return dict(state)
    value = meaning(state)
    base: str | int = 2 if schema.endswith("/2") else "e"
    lse = value["lse"] / LN2 if base == 2 else value["lse"]
    return {
        "schema": "o-lse-v1",
        "base": base,
        "o": value["out"].astype(state["u"].dtype),
        "lse": lse.astype(state["m"].dtype),
    }


def dtypes(value: Json) -> set[str]:
    """Names of the float dtypes in a reply; a plain number counts as float64."""
    if isinstance(value, np.ndarray):
        return {dtype_name(value)}
    if isinstance(value, Mapping):
        return set().union(*(dtypes(item) for item in value.values()))
    if isinstance(value, list):
        return set().union(*(dtypes(item) for item in value))
    return {"float64"} if isinstance(value, float) else set()


def coarsest(names: Iterable[str]) -> str:
    """The dtype with the largest unit roundoff."""
    return max(names, key=lambda name: UNIT_ROUNDOFF.get(name, 0.0), default="float64")


def tolerance(bound: Mapping[str, Json], names: Iterable[str]) -> Mapping[str, Json]:
    """The row of a bound for a reply of these dtypes; raises :class:`NotComparable` for an illegal one."""
    names = set(names)
    illegal = sorted(name for name in names if name not in bound)
    if illegal:
        raise NotComparable(
            f"dtype {', '.join(illegal)} may not be returned here; legal are {', '.join(sorted(bound))}"
        )
    row: Mapping[str, Json] = bound[coarsest(names)]
    return row


def close(returned: Json, expected: Json, limits: Mapping[str, Json], label: str = "") -> Difference:
    """The worst element of ``returned`` against ``expected``, both float64 arrays or ``{out, lse}`` of those."""
    if isinstance(expected, Mapping):
        parts = [close(returned[part], expected[part], limits[part], part) for part in MEANING]
        return max(parts, key=lambda part: part.ratio)
    got, want = np.asarray(returned, np.float64), np.asarray(expected, np.float64)
    prefix = f"{label} " if label else ""
    if got.shape != want.shape:
        return Difference(math.inf, f"{prefix}has shape {list(got.shape)}, expected {list(want.shape)}")
    if got.size == 0:
        return Difference(0.0, "")
    finite = np.isfinite(got) & np.isfinite(want)
    same_class = finite | (np.isnan(got) & np.isnan(want)) | (got == want)
    if not same_class.all():
        return _worst(
            got, want, ~same_class, math.inf, prefix, f"{int((~same_class).sum())} of {got.size} differ in class"
        )
    error = np.abs(np.where(finite, got - np.where(finite, want, 0.0), 0.0))
    limit = limits["atol"] + limits["rtol"] * np.abs(np.where(finite, want, 0.0))
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.where(error == 0, 0.0, error / limit)
    ratio = float(ratios.max())
    if ratio <= 1.0:
        return Difference(ratio, "")
    wrong = int((ratios > 1).sum())
    return _worst(
        got, want, ratios == ratio, ratio, prefix, f"{wrong} of {got.size} beyond the bound, worst {ratio:.3g} times it"
    )


def _worst(got: Array, want: Array, where: Array, ratio: float, prefix: str, summary: str) -> Difference:
    index = tuple(int(i) for i in np.argwhere(where)[0])
    spot = f"[{', '.join(map(str, index))}]" if index else ""
    return Difference(ratio, f"{prefix}{spot} is {float(got[index])!r}, expected {float(want[index])!r}: {summary}")


def same(a: Json, b: Json) -> bool:
    """Exact equality of JSON values; numbers and booleans are apart, arrays compare dtype, shape and every value."""
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        if not (isinstance(a, np.ndarray) and isinstance(b, np.ndarray)) or a.shape != b.shape:
            return False
        try:
            alike = dtype_name(a) == dtype_name(b)
        except TensorError:
            return False
        return alike and bool(np.array_equal(a, b, equal_nan=a.dtype.kind == "f"))
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    return bool(a == b)


def values(value: Any) -> list[Any]:
    """A list or one-dimensional array as a list of plain values, for set-like relations."""
    if isinstance(value, np.ndarray):
        return list(value.tolist())
    if isinstance(value, list):
        return value
    raise NotComparable(f"{type(value).__name__} is not a list")
