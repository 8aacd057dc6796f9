"""Faults of *Partial states*: merges (ATT-019 to ATT-022, and ATT-013 of their weights)."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
from kvassay_reference import attention
from kvassay_reference.attention import State

from ...adapters.base import Rejected
from ..base import found
from .base import Fault, case, some, with_lse


class Merging(Fault):
    """A fault in the merge of two states."""

    def merge(self, states: list[State]) -> State:
        """Fold the states with the spoiled merge."""
        attention.merge(states)
        total = states[0]
        for state in states[1:]:
            with np.errstate(all="ignore"):
                total = self.pair(total, state)
        return total

    def pair(self, a: State, b: State) -> State:
        """The merge of two."""
        return attention.merge_two(a, b)


class MergeAverages(Merging):
    """Outputs are averaged."""

    requirement = "ATT-019"
    killed_by = case("merge/unequal-mass", "merge/split-at-1", "merge/even-and-odd-rows", "merge/equals-the-whole")

    def pair(self, a: State, b: State) -> State:
        right = attention.merge_two(a, b)
        if attention.is_empty(a) or attention.is_empty(b):
            return right
        out = (attention.output(a) + attention.output(b)) / 2
        return attention.from_output(out, attention.log_sum_exp(right))


class MergeWeightsSwapped(Merging):
    """Each state is rescaled by the other's factor."""

    requirement = "ATT-019"
    killed_by = case("merge/mass-outweighs-maximum", "merge/split-at-2", "merge/large-maxima")

    def pair(self, a: State, b: State) -> State:
        return (
            attention.merge_two(a._replace(m=b.m), b._replace(m=a.m))
            if some(a) and some(b)
            else attention.merge_two(a, b)
        )


class MergeByMaximum(Merging):
    """Outputs are weighed by exp(m), without l."""

    requirement = "ATT-019"
    killed_by = case("merge/mass-outweighs-maximum", "merge/unequal-mass", "merge/shifted-maximum")

    def pair(self, a: State, b: State) -> State:
        if not (some(a) and some(b)):
            return attention.merge_two(a, b)
        parts = (attention.from_output(attention.output(part), part.m) for part in (a, b))
        return with_lse(attention.merge_two(*parts), attention.log_sum_exp(attention.merge_two(a, b)))


class MergeShortExponential(Merging):
    """The factors of a merge are right to four digits."""

    requirement = "ATT-019"
    killed_by = case("merge/split-at-3", "merge/split-at-4", "merge/split-at-5")

    def pair(self, a: State, b: State) -> State:
        step = np.where(np.isfinite(a.m) & np.isfinite(b.m), 5e-5, 0).astype(np.float32)
        return attention.merge_two(a, b._replace(m=b.m + step))


class MergeFromSentinel(Fault):
    """The running maximum of a merge starts at -50000 in base 2 and the mass at 1.

    FlashInfer 0.7.4 does so in its Triton kernel of ``merge_states``.
    """

    requirement = "ATT-019"
    killed_by = case("merge/maxima-below-minus-40000", "merge/two-empty-partitions")

    def merge(self, states: list[State]) -> State:
        u = np.zeros_like(states[0].u)
        start = np.full(len(u), -5e4 * math.log(2), u.dtype)
        return super().merge([State(start, np.ones_like(start), u), *states])


class MergeWithoutMaximum(Merging):
    """Masses are added as exp(m) l."""

    requirement = "ATT-013"
    killed_by = case("merge/far-apart", "merge/large-maxima", "merge/large-negative-maxima")

    def pair(self, a: State, b: State) -> State:
        l = np.exp(a.m) * a.l + np.exp(b.m) * b.l  # noqa: E741
        u = np.exp(a.m)[:, None] * a.u + np.exp(b.m)[:, None] * b.u
        return State(np.where(l > 0, 0 * l, -np.inf).astype(l.dtype), l, u)


class EmptyMinusItself(Merging):
    """exp(-inf - -inf) is NaN."""

    requirement = "ATT-020"
    killed_by = case("merge/two-empty-partitions", "merge/three-empty-partitions", "merge/one-head-empty")

    def pair(self, a: State, b: State) -> State:
        m = np.maximum(a.m, b.m)
        fa, fb = np.exp(a.m - m), np.exp(b.m - m)
        return State(m, fa * a.l + fb * b.l, fa[:, None] * a.u + fb[:, None] * b.u)


class EmptyWins(Merging):
    """A merge with the empty state is empty."""

    requirement = "ATT-020"
    killed_by = case("merge/empty-first", "merge/empty-last", "merge/empty-among-three", "merge/split-at-0")

    def pair(self, a: State, b: State) -> State:
        return next((state for state in (a, b) if not some(state)), attention.merge_two(a, b))


class EmptyDecidedByFirstHead(Merging):
    """Whether a state is empty is decided by its first head."""

    requirement = "ATT-020"
    killed_by = case("merge/one-head-empty")

    def pair(self, a: State, b: State) -> State:
        return b if a.l[0] == 0 else a if b.l[0] == 0 else attention.merge_two(a, b)


class ThirdStateDropped(Fault):
    """Only two states are merged."""

    requirement = "ATT-021"
    killed_by = case("merge/three-partitions", "merge/six-partitions", "merge/any-order", "merge/empty-among-three")

    def merge(self, states: list[State]) -> State:
        return super().merge(states[:2])


class EightSplits(Fault):
    """The reduction has room for eight splits."""

    requirement = "ATT-021"
    killed_by = case("merge/sixteen-states")
    room: ClassVar[int] = 8

    def merge(self, states: list[State]) -> State:
        return super().merge(states[: self.room])


class ThirtyTwoSplits(EightSplits):
    """The reduction has room for 32 splits."""

    requirement = "ATT-021"
    killed_by = case("merge/of-33-states", "merge/of-65-states", "merge/of-129-states", "merge/of-257-states")
    room = 32


class TwoHundredAndFiftySixSplits(EightSplits):
    """The reduction has room for 256 splits."""

    requirement = "ATT-021"
    killed_by = case("merge/of-257-states")
    room = 256


class OrderMatters(Merging):
    """The running mass is not rescaled when a later maximum is higher."""

    requirement = "ATT-021"
    killed_by = case("merge/any-order", "merge/any-grouping")

    def pair(self, a: State, b: State) -> State:
        right = attention.merge_two(a, b)
        factor = attention.rescaling(b.m, right.m)
        higher = (b.m > a.m) & np.isfinite(a.m)
        l = np.where(higher, a.l + factor * b.l, right.l)  # noqa: E741
        return State(right.m, l, np.where(higher[:, None], a.u + factor[:, None] * b.u, right.u))


class FirstStateAlone(Fault):
    """A merge of one state is refused."""

    requirement = "ATT-021"
    killed_by = case("merge/one-partition")

    def merge(self, states: list[State]) -> State:
        if len(states) == 1:
            raise Rejected("SHAPE_MISMATCH", "a merge needs two states")
        return super().merge(states)


class EqualStatesMergedOnce(Fault):
    """States that look alike are taken for a retry and merged once."""

    requirement = "ATT-022"
    killed_by = case("merge/with-itself")

    def merge(self, states: list[State]) -> State:
        kept_states: list[State] = []
        for state in states:
            if not any(all(map(np.array_equal, state, other)) for other in kept_states):
                kept_states.append(state)
        return super().merge(kept_states)


class MassOfLargest(Merging):
    """The LSE of a merge is that of the heaviest state."""

    requirement = "ATT-022"
    killed_by = case("merge/with-itself", "merge/selected-rows-only", "merge/row-in-two-partitions")

    def pair(self, a: State, b: State) -> State:
        return with_lse(attention.merge_two(a, b), np.maximum(attention.log_sum_exp(a), attention.log_sum_exp(b)))


FAULTS = found(globals())
