"""What the faults of the contract attention share: spoiled arguments, and reduction row by row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from kvassay_reference import attention
from kvassay_reference.attention import State
from kvassay_reference.errors import Refusal

from .. import base
from ..base import ids

Arguments = dict[str, Any]
Request = Mapping[str, Any]
case = ids("attention")
"""Ids of this contract's cases."""


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
