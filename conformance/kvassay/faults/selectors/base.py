"""What the faults of the selectors stand on: the reference to be spoiled, and a correct engine by a rule of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from kvassay_reference.selectors.quest import Policy, Quest
from kvassay_reference.selectors.rows import top
from kvassay_reference.selectors.sparq import Sparq

from ...engines.reference import Reference
from ..base import ids

Array = Any
Request = Mapping[str, Any]
Result = dict[str, Any]


class Approximate(Reference):
    """Correct, by a rule of its own: ranks in half precision, keeps what must be kept, and says so."""

    own_capabilities: ClassVar[Mapping[str, Any]] = {"selection.floor": 0.9}

    class _Rows(Sparq):
        """Sums of proxies rounded to float16."""

        def rank(self, rule: str, logits: Array, proxy: Array) -> Array:
            return super().rank(rule, logits, proxy).astype(np.float16).astype(np.float32)

    class _Pages(Quest):
        """Bounds rounded to float16."""

        def ranking(self, policy: Policy, bounds: Array) -> Array:
            return bounds.astype(np.float16).astype(np.float32)

    selector_sparq: ClassVar[Sparq] = _Rows()
    selector_quest: ClassVar[Quest] = _Pages()


CORRECT = (Reference, Approximate)
case = ids("selectors")
"""Ids of this contract's cases."""


def highest(scores: Array, count: int) -> Array:
    """The best of a row, ascending, ties to the higher index."""
    return np.sort(scores.shape[0] - 1 - top(scores[::-1], count))
