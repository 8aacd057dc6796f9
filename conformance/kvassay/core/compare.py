"""Comparison of values: exact JSON, and numbers within a bound.

Only :class:`NotComparable` leaves this module, whatever an engine returned.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from .model import Json
from .tensors import NON_FINITE, UNIT_ROUNDOFF, Array, TensorError, dtype_name


class NotComparable(ValueError):
    """The reply has another form than the expectation; the message says how."""


@dataclass(frozen=True)
class Numbers:
    """Values of a reply in float64, and the dtypes that they came in."""

    array: Array
    dtypes: frozenset[str]


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


def numbers(value: Json) -> Numbers:
    """A tensor, a number or nested lists of numbers; a plain number counts as float64.

    Non-finite values may be spelled as strings. Raises :class:`NotComparable` for truth values, null, text and ragged
    lists.
    """
    if isinstance(value, np.ndarray):
        if value.dtype == bool:
            raise NotComparable("truth values are not numbers")
        try:
            return Numbers(np.asarray(value, np.float64), frozenset({dtype_name(value)}))
        except TensorError as problem:
            raise NotComparable(str(problem)) from None
    plain = _plain(value)
    try:
        return Numbers(np.array(plain, np.float64), frozenset({"float64"}))
    except (ValueError, OverflowError):
        raise NotComparable("a list of numbers is ragged or out of range") from None


def _plain(value: Json) -> Json:
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, str) and value in NON_FINITE:
        return NON_FINITE[value]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise NotComparable(f"{type(value).__name__} where a number belongs")
    return value


def coarsest(names: Iterable[str]) -> str:
    """The dtype with the largest unit roundoff."""
    return max(names, key=lambda name: UNIT_ROUNDOFF.get(name, 0.0), default="float64")


def tolerance(bound: Mapping[str, Json], names: Iterable[str]) -> Mapping[str, Json]:
    """The row of a bound for a reply of these dtypes; raises :class:`NotComparable` for an illegal one."""
    names = set(names) or {"float64"}
    illegal = sorted(name for name in names if name not in bound)
    if illegal:
        legal = ", ".join(sorted(bound))
        raise NotComparable(f"dtype {', '.join(illegal)} may not be returned here; legal are {legal}")
    row: Mapping[str, Json] = bound[coarsest(names)]
    return row


def close(got: Array, want: Array, limits: Mapping[str, Json], label: str = "") -> Difference:
    """The worst element of two float64 arrays: |got - want| <= atol + rtol |want|, after their classes agree."""
    prefix = f"{label} " if label else ""
    if got.shape != want.shape:
        return Difference(math.inf, f"{prefix}has shape {list(got.shape)}, expected {list(want.shape)}")
    if got.size == 0:
        return Difference(0.0, "")
    finite = np.isfinite(got) & np.isfinite(want)
    same_class = finite | (np.isnan(got) & np.isnan(want)) | (got == want)
    if not same_class.all():
        summary = f"{int((~same_class).sum())} of {got.size} differ in class"
        return _worst(got, want, ~same_class, math.inf, prefix, summary)
    error = np.abs(np.where(finite, got - np.where(finite, want, 0.0), 0.0))
    limit = limits["atol"] + limits["rtol"] * np.abs(np.where(finite, want, 0.0))
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.where(error == 0, 0.0, error / limit)
    ratio = float(ratios.max())
    if ratio <= 1.0:
        return Difference(ratio, "")
    summary = f"{int((ratios > 1).sum())} of {got.size} beyond the bound, worst {ratio:.3g} times it"
    return _worst(got, want, ratios == ratio, ratio, prefix, summary)


def _worst(got: Array, want: Array, where: Array, ratio: float, prefix: str, summary: str) -> Difference:
    index = tuple(int(i) for i in np.argwhere(where)[0])
    spot = f"[{', '.join(map(str, index))}]" if index else ""
    return Difference(ratio, f"{prefix}{spot} is {float(got[index])!r}, expected {float(want[index])!r}: {summary}")


def same(a: Json, b: Json) -> bool:
    """Exact equality of JSON values: numbers and booleans are apart, tensors agree in dtype, shape and every byte."""
    if type(a) is type(b) and isinstance(a, str | int | float):
        return bool(a == b)
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        if not (isinstance(a, np.ndarray) and isinstance(b, np.ndarray)) or a.shape != b.shape:
            return False
        try:
            alike = dtype_name(a) == dtype_name(b)
        except TensorError:
            return False
        return alike and a.astype(a.dtype.newbyteorder("=")).tobytes() == b.astype(b.dtype.newbyteorder("=")).tobytes()
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    return bool(a == b)
