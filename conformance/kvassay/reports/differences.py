"""Where two values differ: the first elements for exact values, the worst ones for numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..core.compare import NotComparable
from ..core.states import is_state, meaning
from ..core.tensors import Array
from .shorten import number, shorten

SHOWN = 6
DEPTH = 24
ABSENT = "(absent)"
EXACT: Mapping[str, Any] = {"rtol": 0.0, "atol": 0.0}


@dataclass(frozen=True)
class Difference:
    """One element that differs: the path of member names and indices to it, and both sides."""

    path: tuple[str | int, ...]
    expected: Any
    returned: Any


def differences(
    expected: Any, returned: Any, limits: Mapping[str, Any] = EXACT, limit: int = SHOWN
) -> tuple[tuple[Difference, ...], int]:
    """The most telling differences and how many there are. States are compared by their meaning.

    ``limits`` is a tolerance as cases write it, for a state one for each part; an element within it does not differ.
    """
    expected, returned = comparable(expected, returned)
    found = list(_walk(expected, returned, (), limits, limit))
    return tuple(difference for difference, _ in found[:limit]), sum(count for _, count in found)


def comparable(expected: Any, returned: Any) -> tuple[Any, Any]:
    """Both sides in one form: a returned state as its meaning where a meaning is expected."""
    if isinstance(expected, Mapping) and "lse" in expected and "schema" not in expected:
        return expected, meant(returned)
    return expected, returned


def meant(value: Any) -> Any:
    """A state as its meaning, where it has one; any other value as it is."""
    if not is_state(value):
        return value
    try:
        return {name: part.array for name, part in meaning(value).items()}
    except NotComparable:
        return value


Path = tuple[str | int, ...]


def _walk(a: Any, b: Any, path: Path, limits: Mapping[str, Any], limit: int) -> Iterator[tuple[Difference, int]]:
    """Differences, each with the number of elements that it stands for."""
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        yield from _arrays(a, b, path, limits if "atol" in limits else EXACT, limit)
    elif isinstance(a, Mapping) and isinstance(b, Mapping) and len(path) < DEPTH:
        for key in dict.fromkeys((*a, *b)):
            inner = limits.get(key, limits)
            yield from _walk(a.get(key, ABSENT), b.get(key, ABSENT), (*path, str(key)), inner, limit)
    elif isinstance(a, list | tuple) and isinstance(b, list | tuple) and len(path) < DEPTH:
        for index in range(max(len(a), len(b))):
            left = a[index] if index < len(a) else ABSENT
            right = b[index] if index < len(b) else ABSENT
            yield from _walk(left, right, (*path, index), limits, limit)
    elif _plain(a) != _plain(b):
        yield Difference(path, shorten(a), shorten(b)), 1


def _plain(value: Any) -> Any:
    """A value whose equality is that of JSON: true is not 1, NaN equals itself."""
    return (type(value) is bool, repr(value) if value != value else value)


def _arrays(a: Any, b: Any, path: Path, limits: Mapping[str, Any], limit: int) -> Iterator[tuple[Difference, int]]:
    left, right = _numbers(a), _numbers(b)
    if left is None or right is None or left.shape != right.shape:
        yield Difference(path, _summary(a), _summary(b)), 1
        return
    with np.errstate(invalid="ignore"):
        error = np.abs(left - right)
        close = np.isfinite(left) & (error <= limits["atol"] + limits["rtol"] * np.abs(left))
    differ = (left != right) & ~(np.isnan(left) & np.isnan(right)) & ~close
    count = int(differ.sum())
    if not count:
        return
    error = np.where(differ, np.where(np.isnan(error), np.inf, error), -1.0)
    flat = error.reshape(-1)
    worst = np.argsort(-flat, kind="stable")[: min(limit, count)]
    for rank, position in enumerate(int(i) for i in worst):
        index = tuple(int(i) for i in np.unravel_index(position, left.shape)) if left.ndim else ()
        stands_for = count - len(worst) + 1 if rank == 0 else 1
        yield Difference((*path, *index), number(left[index]), number(right[index])), stands_for


def _numbers(value: Any) -> Array | None:
    try:
        array = np.asarray(value)
        return array.astype(np.float64) if array.dtype.kind in "biuf" or array.dtype.name == "bfloat16" else None
    except (TypeError, ValueError):
        return None


def _summary(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return f"{value.dtype.name}{list(value.shape)}"
    return shorten(value)
