"""Relations between the responses of one case: what an engine with formats of its own can still be held to."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

import numpy as np

from .compare import Difference, NotComparable, Numbers, close, numbers, same, tolerance
from .expect import PASS, Outcome, fail
from .model import Json, Verdict
from .pointers import Missing, resolve
from .states import MEANING, is_state, meaning

DISTINCT_FACTOR = 10
"""A numeric difference counts only when it is this many times the bound."""

Operand = Json
"""A value of a reply, or the :class:`Numbers` of a part of a state's meaning."""
Bound = Mapping[str, Json] | None


def check(relation: Mapping[str, Json], bound_values: Mapping[str, Json]) -> Outcome:
    """Judge one relation over the values that the steps bound."""
    label = f"{relation['relation']}({', '.join(relation['of'])})"
    operands: list[Operand] = []
    try:
        operands += (operand(name, bound_values) for name in relation["of"])
        outcome = RELATIONS[relation["relation"]].judge(operands, relation.get("bound"))
    except NotComparable as problem:
        outcome = Failed(str(problem), math.inf)
    if outcome is None or isinstance(outcome, float):
        return Outcome(Verdict.PASS, ratio=outcome) if outcome is not None else PASS
    message = f"{outcome.message}; {relation['why']}" if "why" in relation else outcome.message
    shown = {name: _shown(value) for name, value in zip(relation["of"], operands, strict=False)}
    return fail(message, label, shown, at=label, ratio=outcome.ratio, limits=outcome.limits)


def operand(name: str, bound_values: Mapping[str, Json]) -> Operand:
    """The value of ``name`` or ``name/part``; ``out`` and ``lse`` of a state address its meaning."""
    head, _, rest = name.partition("/")
    value = bound_values[head]
    if rest in MEANING and is_state(value):
        return meaning(value)[rest]
    try:
        return resolve(value, f"/{rest}") if rest else value
    except Missing:
        raise NotComparable(f"the result lacks {name}") from None


@dataclass(frozen=True)
class Failed:
    """Why a relation does not hold."""

    message: str
    ratio: float | None = None
    limits: Bound = None


Judged = Failed | float | None
"""A failure, or the largest error over its bound, or nothing to measure."""


@dataclass(frozen=True)
class Relation:
    """One relation: how it judges its operands, and whether it needs a bound."""

    judge: Callable[[Sequence[Operand], Bound], Judged]
    bound: str
    """``required``, ``optional`` or ``none``."""


def _shown(value: Operand) -> Json:
    return value.array if isinstance(value, Numbers) else value


def _numbers(value: Operand) -> Numbers:
    found = value if isinstance(value, Numbers) else numbers(value)
    if found.array.size == 0:
        raise NotComparable("an operand is empty, so the relation shows nothing")
    return found


def _items(value: Operand) -> list[Json]:
    plain = value.tolist() if isinstance(value, np.ndarray) else value
    if not isinstance(plain, list):
        raise NotComparable(f"{type(plain).__name__} where a list belongs")
    if not plain:
        raise NotComparable("an operand is empty, so the relation shows nothing")
    return plain


def _difference(a: Operand, b: Operand, bound: Bound) -> tuple[Difference, Mapping[str, Json]]:
    if bound is None:
        raise NotComparable("the relation has no bound")
    if is_state(a) and is_state(b):
        left, right = meaning(a), meaning(b)
        limits = tolerance(bound, left["out"].dtypes | right["out"].dtypes)
        parts = [close(left[name].array, right[name].array, limits[name], name) for name in MEANING]
        return max(parts, key=lambda part: part.ratio), limits
    x, y = _numbers(a), _numbers(b)
    limits = tolerance(bound, x.dtypes | y.dtypes)
    return close(x.array, y.array, limits), limits


def _close(operands: Sequence[Operand], bound: Bound) -> Judged:
    found = [_difference(other, operands[0], bound) for other in operands[1:]]
    worst, limits = max(found, key=lambda pair: pair[0].ratio)
    return worst.ratio if worst.agrees else Failed(worst.message, worst.ratio, limits)


def _distinct(operands: Sequence[Operand], bound: Bound) -> Judged:
    for a, b in combinations(operands, 2):
        if bound is None:
            if same(a, b):
                return Failed("two operands are equal that must differ")
            continue
        for value in (a, b):
            parts = meaning(value).values() if is_state(value) else (_numbers(value),)
            if not all(np.isfinite(part.array).all() for part in parts):
                return Failed("an operand is not finite")
        ratio = _difference(a, b, bound)[0].ratio
        if ratio < DISTINCT_FACTOR:
            return Failed(f"two operands differ by {ratio:.3g} bounds; they must by {DISTINCT_FACTOR}", ratio)
    return None


def _equal(operands: Sequence[Operand], bound: Bound) -> Judged:
    alike = all(same(_shown(a), _shown(b)) for a, b in pairwise(operands))
    return None if alike else Failed("operands differ that must be equal")


def _le(operands: Sequence[Operand], bound: Bound) -> Judged:
    for a, b in pairwise(operands):
        left, right = _numbers(a), _numbers(b)
        if left.array.shape != right.array.shape:
            return Failed(f"operands have shapes {list(left.array.shape)} and {list(right.array.shape)}")
        slack = 0.0
        if bound is not None:
            row = tolerance(bound, left.dtypes | right.dtypes)
            slack = row["atol"] + row["rtol"] * np.abs(right.array)
        if not bool(np.all(left.array <= right.array + slack)):
            return Failed("an operand is larger than the next")
    return None


def _contains(items: Sequence[Json], item: Json) -> bool:
    return any(same(item, other) for other in items)


def _subset(operands: Sequence[Operand], bound: Bound) -> Judged:
    for a, b in pairwise(operands):
        inner, outer = _items(a), _items(b)
        extra = [item for item in inner if not _contains(outer, item)]
        if extra:
            return Failed(f"{extra[:8]!r} is not in the next operand")
    return None


def _permutation(operands: Sequence[Operand], bound: Bound) -> Judged:
    first = sorted(_items(operands[0]), key=repr)
    alike = all(sorted(map(repr, _items(other))) == list(map(repr, first)) for other in operands[1:])
    return None if alike else Failed("operands are not permutations of each other")


RELATIONS: dict[str, Relation] = {
    "close": Relation(_close, "required"),
    "distinct": Relation(_distinct, "optional"),
    "equal": Relation(_equal, "none"),
    "le": Relation(_le, "optional"),
    "permutation": Relation(_permutation, "none"),
    "subset": Relation(_subset, "none"),
}
