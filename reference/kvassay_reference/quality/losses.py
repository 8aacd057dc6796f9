"""What a support keeps of dense attention, and how far its output is from the dense one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from array_api_compat import array_namespace

from ..memory.rows import Array, indices
from ..selectors.rows import softmax
from .runs import Run


class Masses(NamedTuple):
    """Shares of the dense softmax, each the sum of its own rows."""

    retained: float
    omitted: float


class Outputs(NamedTuple):
    """Attention outputs, [d_v]; ``omitted`` is ``None`` where no row was omitted."""

    dense: Array
    retained: Array
    omitted: Array | None
    largest: float
    """Largest length of a legal row's value."""


class Errors(NamedTuple):
    """Distance from the dense output, and what bounds it."""

    vector: Array
    absolute: float
    denominator: float
    relative: float | None
    triangle: float
    bound: float


class Propagated(NamedTuple):
    """The error behind a declared linear map."""

    error: float
    operator_norm: float
    operator_bound: float
    frobenius_norm: float
    frobenius_bound: float
    bound: float


def outside(run: Run, inside: Sequence[int]) -> list[int]:
    """Places of the legal rows that are not in a support."""
    kept = set(inside)
    return [i for i in range(len(run.legal)) if i not in kept]


def length(vector: Array) -> float:
    """Euclidean length."""
    xp = array_namespace(vector)
    return float(xp.sqrt(xp.sum(vector * vector)))


def masses(run: Run, head: int, inside: Sequence[int]) -> Masses:
    """Retained and omitted mass. One is not taken from the other: a small rest would be lost in rounding."""
    weights = softmax(run.scores[head, :])
    xp = array_namespace(weights)
    kept, lost = (xp.take(weights, indices(part, weights)) for part in (inside, outside(run, inside)))
    return Masses(float(xp.sum(kept)), float(xp.sum(lost)))


def mixture(run: Run, head: int, rows: Sequence[int]) -> Array:
    """Attention over some rows, [d_v], by a softmax of their own: rows that have underflowed still have a mean."""
    xp = array_namespace(run.scores)
    assert run.values is not None
    taken = indices(rows, run.scores)
    weights = softmax(xp.take(run.scores[head, :], taken))
    values = xp.take(run.values[:, run.said["kv_head_of"][head], :], taken, axis=0)
    return xp.sum(weights[:, None] * values, axis=0)


def outputs(run: Run, head: int, inside: Sequence[int]) -> Outputs:
    """Dense, retained and omitted output of a query head."""
    rest = outside(run, inside)
    assert run.values is not None
    xp = array_namespace(run.values)
    values = run.values[:, run.said["kv_head_of"][head], :]
    return Outputs(
        mixture(run, head, range(len(run.legal))),
        mixture(run, head, inside),
        mixture(run, head, rest) if rest else None,
        float(xp.max(xp.sqrt(xp.sum(values * values, axis=-1)))),
    )


def difference(made: Outputs, mass: Masses) -> Array:
    """Retained less dense output. By the mixture identity it is a small factor times a difference of large things."""
    if made.omitted is None:
        return made.retained - made.retained
    return mass.omitted * (made.retained - made.omitted)


def relative(absolute: float, denominator: float, floor: float) -> float | None:
    """The quotient, where the denominator is above its floor."""
    return absolute / denominator if denominator > floor else None


def errors(made: Outputs, mass: Masses, floor: float) -> Errors:
    """Distances and bounds of a query head."""
    away = difference(made, mass)
    absolute, denominator = length(away), length(made.dense)
    both = 0.0 if made.omitted is None else length(made.retained) + length(made.omitted)
    return Errors(
        away,
        absolute,
        denominator,
        relative(absolute, denominator, floor),
        mass.omitted * both,
        2.0 * mass.omitted * made.largest,
    )


def propagate(matrix: Array, found: Errors) -> Propagated:
    """The error behind a map [m, d_v], and two bounds: by the operator norm, and by the larger Frobenius norm."""
    xp = array_namespace(matrix)
    behind = xp.sum(matrix * xp.astype(found.vector, matrix.dtype)[None, :], axis=-1)
    frobenius = length(matrix)
    singular: Any = xp.linalg.svdvals(matrix) if matrix.shape[0] else xp.zeros((1,), dtype=matrix.dtype)
    largest = float(xp.max(singular))
    return Propagated(
        length(behind),
        largest,
        largest * found.absolute,
        frobenius,
        frobenius * found.absolute,
        frobenius * found.bound,
    )
