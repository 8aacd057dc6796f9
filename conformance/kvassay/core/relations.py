"""Relations between the responses of one case: what an engine with formats of its own can still be held to."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

import numpy as np

from .compare import MEANING, Difference, NotComparable, close, dtypes, is_state, meaning, same, tolerance, values
from .model import Finding, Json
from .pointers import resolve

DISTINCT_FACTOR = 10
"""A numeric difference counts only when it is this many times the bound."""

Operands = Sequence[Json]
Bound = Mapping[str, Json] | None


def check(relation: Mapping[str, Json], bound_values: Mapping[str, Json]) -> tuple[Finding | None, float | None]:
    """What is wrong with one relation, or ``None``, and the ratio of a numeric one."""
    operands = [operand(name, bound_values) for name in relation["of"]]
    label = f"{relation['relation']}({', '.join(relation['of'])})"
    try:
        ratio, message = RELATIONS[relation["relation"]](operands, relation.get("bound"))
    except NotComparable as problem:
        ratio, message = math.inf, str(problem)
    if not message:
        return None, ratio
    text = f"{message}; {relation['why']}" if "why" in relation else message
    seen = {name: _plain(value) for name, value in zip(relation["of"], operands, strict=True)}
    return Finding(None, label, text, expected=label, returned=seen, ratio=ratio), ratio


def operand(name: str, bound_values: Mapping[str, Json]) -> Json:
    """The value of ``name`` or ``name/part``; ``out`` and ``lse`` of a state address its meaning."""
    head, _, rest = name.partition("/")
    value = bound_values[head]
    if rest in MEANING and is_state(value):
        return _Meant(meaning(value)[rest], dtypes(value))
    return resolve(value, f"/{rest}") if rest else value


class _Meant:
    """Part of a state's meaning, with the dtypes that the state came in."""

    def __init__(self, array: Json, names: set[str]) -> None:
        self.array = array
        self.names = names


def _plain(value: Json) -> Json:
    return value.array if isinstance(value, _Meant) else value


def _numeric(value: Json) -> tuple[Json, set[str]]:
    if isinstance(value, _Meant):
        return value.array, value.names
    if is_state(value):
        return meaning(value), dtypes(value)
    return np.asarray(value, np.float64), dtypes(value) or {"float64"}


def _compare(a: Json, b: Json, bound: Bound) -> Difference:
    if bound is None:
        raise NotComparable("the relation has no bound")
    (left, left_names), (right, right_names) = _numeric(a), _numeric(b)
    return close(left, right, tolerance(bound, left_names | right_names))


def _close(operands: Operands, bound: Bound) -> tuple[float | None, str]:
    worst = max((_compare(a, operands[0], bound) for a in operands[1:]), key=lambda d: d.ratio)
    return worst.ratio, worst.message


def _distinct(operands: Operands, bound: Bound) -> tuple[float | None, str]:
    for i, a in enumerate(operands):
        for b in operands[i + 1 :]:
            if bound is None:
                if same(a, b):
                    return None, "two operands are equal that must differ"
                continue
            for value, _ in (_numeric(a), _numeric(b)):
                parts = value.values() if isinstance(value, Mapping) else (value,)
                if not all(np.isfinite(part).all() for part in parts):
                    return None, "an operand is not finite"
            difference = _compare(a, b, bound)
            if difference.ratio < DISTINCT_FACTOR:
                return (
                    difference.ratio,
                    f"two operands differ by {difference.ratio:.3g} bounds; they must by {DISTINCT_FACTOR}",
                )
    return None, ""


def _equal(operands: Operands, bound: Bound) -> tuple[float | None, str]:
    return None, "" if all(same(a, b) for a, b in pairwise(operands)) else "operands differ that must be equal"


def _le(operands: Operands, bound: Bound) -> tuple[float | None, str]:
    for a, b in pairwise(operands):
        left, right = _numeric(a)[0], _numeric(b)[0]
        if not bool(np.all(left <= right)):
            return None, "an operand is larger than the next"
    return None, ""


def _subset(operands: Operands, bound: Bound) -> tuple[float | None, str]:
    for a, b in pairwise(operands):
        extra = [item for item in values(a) if item not in values(b)]
        if extra:
            return None, f"{extra[:8]!r} is not in the next operand"
    return None, ""


def _permutation(operands: Operands, bound: Bound) -> tuple[float | None, str]:
    first = sorted(values(operands[0]), key=repr)
    ok = all(sorted(values(other), key=repr) == first for other in operands[1:])
    return None, "" if ok else "operands are not permutations of each other"


RELATIONS: dict[str, Callable[[Operands, Bound], tuple[float | None, str]]] = {
    "close": _close,
    "distinct": _distinct,
    "equal": _equal,
    "le": _le,
    "permutation": _permutation,
    "subset": _subset,
}
