"""Faults of *How an interrupted request waits* (LIF-017 to LIF-021)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kvassay_reference import pause_plans
from kvassay_reference.pause_plans import Exact, Link, Waste, exact

from ..base import Fault, found
from .base import Request, Result, cases


class OwnWasteAlone(Fault):
    """A recomputation is charged for its own rows and not for those that wait for it."""

    requirement = "LIF-017"
    killed_by = cases("policy/base")

    class Own(Waste):
        """The others' rows are forgotten."""

        @property
        def discard(self) -> Exact:
            return replace(self, other=0).discard if self.other else super().discard

    waste_class = Own


class OneWaySwap(Fault):
    """The way back is not counted."""

    requirement = "LIF-017"
    killed_by = cases("policy/base")

    class OneWay(Waste):
        """Half a swap."""

        @property
        def swap(self) -> Exact:
            return super().swap / 2

    waste_class = OneWay


class FullOccupancy(Fault):
    """A recomputation in pieces is charged for all of its rows all the time."""

    requirement = "LIF-017"
    killed_by = cases("policy/base", "policy/one-piece", "policy/alone")

    class Full(Waste):
        """Not halved."""

        @property
        def chunked_discard(self) -> Exact:
            r = self.request
            return super().chunked_discard + r.forward_ms * r.context * self.token_bytes / 2

    waste_class = Full


class OnePieceForAll(Fault):
    """The others are charged for one piece, however many there are."""

    requirement = "LIF-017"
    killed_by = cases("policy/base", "policy/no-budget")

    class Single(Waste):
        """One piece."""

        @property
        def chunked_discard(self) -> Exact:
            if self.request.chunks == 1:
                return super().chunked_discard
            return Single(replace(self.request, chunks=1), self.other, self.token_bytes).chunked_discard

    waste_class = Single


Single = OnePieceForAll.Single


class TieDiscards(Fault):
    """At the crossing, work that is done is thrown away."""

    requirement = "LIF-017"
    killed_by = cases("policy/at-the-crossing")

    class Eager(Waste):
        """Preserves only below."""

        @property
        def fallback(self) -> str:
            return "preserve" if self.preserve < self.chunked_discard else "discard"

    waste_class = Eager


class NeverDiscards(Fault):
    """What cannot be swapped is preserved, however long it takes."""

    requirement = "LIF-017"
    killed_by = cases("policy/no-budget", "policy/just-past-the-crossing")

    class Keeper(Waste):
        """Preserves."""

        @property
        def fallback(self) -> str:
            return "preserve"

    waste_class = Keeper


class SwapsForNothing(Fault):
    """A pause is swapped out although its result is there before the rows are back."""

    requirement = "LIF-020"
    killed_by = cases("policy/round-trip-only", "policy/just-issued")

    class Eager(Waste):
        """Any pause is long enough."""

        @property
        def worth_swapping(self) -> bool:
            return True

    waste_class = Eager


class SwapsPastCrossingAlone(Fault):
    """Only requests that would be discarded compete for the budget."""

    requirement = "LIF-020"
    killed_by = cases("policy/past-the-round-trip")

    class Narrow(Waste):
        """Past the crossing."""

        @property
        def worth_swapping(self) -> bool:
            return super().worth_swapping and self.fallback == "discard"

    waste_class = Narrow


class DecidedOneByOne(Fault):
    """Requests take the budget in the order in which they stand."""

    requirement = "LIF-020"
    killed_by = cases("policy/largest-waste-first", "policy/budget-spent-in-order")

    def ordered(self, wastes: Sequence[Waste]) -> list[Waste]:
        return list(wastes)


class LongestContextFirst(Fault):
    """The order is of size and not of waste."""

    requirement = "LIF-020"
    killed_by = cases("policy/longest-context-is-not-largest-waste")

    def ordered(self, wastes: Sequence[Waste]) -> list[Waste]:
        return sorted(wastes, key=lambda waste: -waste.request.context)


class TiesByName(Fault):
    """Equal wastes are taken in alphabetical order."""

    requirement = "LIF-020"
    killed_by = cases("policy/ties-in-order")

    def ordered(self, wastes: Sequence[Waste]) -> list[Waste]:
        return sorted(wastes, key=lambda waste: (-waste.potential, waste.request.id))


class BudgetForEach(Fault):
    """Every request gets the whole budget of the iteration."""

    requirement = "LIF-020"
    killed_by = cases("policy/largest-waste-first", "policy/budget-spent-in-order")

    def swaps(self, ordered: Sequence[Waste], budget: int, host_free: int) -> dict[str, int]:
        chosen: dict[str, int] = {}
        for waste in ordered:
            chosen |= pause_plans.swaps([waste], budget, host_free)
        return chosen


class HostNeverFull(Fault):
    """Rows are swapped out to where there is no room."""

    requirement = "LIF-020"
    killed_by = cases("policy/host-full", "policy/smaller-fits-behind-larger")

    def swaps(self, ordered: Sequence[Waste], budget: int, host_free: int) -> dict[str, int]:
        return super().swaps(ordered, budget, 1 << 60)


class HostNeverFilled(Fault):
    """A context must be smaller than the room on the host."""

    requirement = "LIF-020"
    killed_by = cases("policy/host-just-fits", "policy/ties-in-order")

    def swaps(self, ordered: Sequence[Waste], budget: int, host_free: int) -> dict[str, int]:
        return super().swaps(ordered, budget, host_free - 1)


class RequestTwiceTaken(Fault):
    """One request is decided twice, and its context is counted twice."""

    requirement = "LIF-020"
    killed_by = cases("policy/request-twice")

    def lifecycle_policy(self, request: Request) -> Result:
        rows = {row["id"]: row for row in request["requests"]}
        return super().lifecycle_policy({**request, "requests": list(rows.values())})


class ElapsedAlways(Fault):
    """What is known of a call's length is not used."""

    requirement = "LIF-021"
    killed_by = cases("policy/duration-known")

    def pause_ms(self, row: Request, now_ms: Exact) -> Exact:
        return now_ms - exact(row["call_ms"])


class FirstEstimateKept(Fault):
    """A pause of unknown length is reckoned as it was when the call was issued."""

    requirement = "LIF-021"
    killed_by = cases("policy/aged-4-ms", "policy/aged-9-ms")

    def pause_ms(self, row: Request, now_ms: Exact) -> Exact:
        return Exact(0) if row["duration_ms"] is None else exact(row["duration_ms"])


class UnknownIsLong(Fault):
    """A call that was just issued is taken for a long one."""

    requirement = "LIF-021"
    killed_by = cases("policy/just-issued")

    def pause_ms(self, row: Request, now_ms: Exact) -> Exact:
        return super().pause_ms(row, now_ms) or Exact(1000)


class ClockOfAnotherMachine(Fault):
    """A call from the future has a pause of the same length."""

    requirement = "LIF-021"
    killed_by = cases("policy/call-in-the-future")

    def pause_ms(self, row: Request, now_ms: Exact) -> Exact:
        return abs(super().pause_ms(row, now_ms))


class LimitRoundedUp(Fault):
    """One token more than hides."""

    requirement = "LIF-018"
    killed_by = cases("budget/base", "budget/fixed-cost")

    def swap_limit(self, link: Link, foreground_ms: Exact, token_bytes: int) -> int:
        limit = super().swap_limit(link, foreground_ms, token_bytes)
        return limit + 1 if limit else 0


class FixedCostIgnored(Fault):
    """The foreground's whole time is given to bytes."""

    requirement = "LIF-018"
    killed_by = cases("budget/fixed-cost", "budget/fixed-cost-eats-all")

    def swap_limit(self, link: Link, foreground_ms: Exact, token_bytes: int) -> int:
        return super().swap_limit(replace(link, fixed_ms=Exact(0)), foreground_ms, token_bytes)


class OverfullChunk(Fault):
    """Every iteration recomputes at least one token."""

    requirement = "LIF-018"
    killed_by = cases("budget/no-room")

    def chunk_tokens(self, saturation: int, running: int) -> int:
        return max(1, super().chunk_tokens(saturation, running))


class SaturationForOneself(Fault):
    """The running group is not counted."""

    requirement = "LIF-018"
    killed_by = cases("budget/base", "budget/no-room")

    def chunk_tokens(self, saturation: int, running: int) -> int:
        return saturation


class LastChunkLost(Fault):
    """The rest is handled after the loop, and a context that leaves no rest loses its last piece (InferCept)."""

    requirement = "LIF-019"
    killed_by = cases("budget/multiple-of-the-chunk", "budget/base")

    def pieces(self, context: int, most: int) -> list[int]:
        found = super().pieces(context, most)
        return found[:-1] if most and context % most == 0 else found


class RestFilledUp(Fault):
    """The last piece is as long as the others."""

    requirement = "LIF-019"
    killed_by = cases("budget/two-chunks-and-a-rest", "budget/smaller-than-a-chunk")

    def pieces(self, context: int, most: int) -> list[int]:
        return [most] * len(super().pieces(context, most))


class EmptyPiece(Fault):
    """A loop that runs at least once."""

    requirement = "LIF-019"
    killed_by = cases("budget/nothing-to-do")

    def pieces(self, context: int, most: int) -> list[int]:
        return super().pieces(context, most) or ([1] if most else [])


FAULTS = found(globals())
