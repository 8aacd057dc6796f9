"""Faults of credits and policies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from kvassay_reference import runtime_admission
from kvassay_reference.runtime_admission import Ask, Bought, Credits, Decision, Exact
from kvassay_reference.runtime_documents import Admission

from ..base import Fault, spoiled
from .base import case

EDGES = ("pinned", "staging", "link", "queue")
FIFO, DEADLINE, SHARED = runtime_admission.POLICIES


class FreeIsCapacity(Fault):
    """What others hold is not subtracted."""

    requirement = "RUN-010"
    killed_by = case("policies/base", "policies/order-fifo", "policies/no-requests-fifo")

    def run_free(self, step: Admission) -> Credits:
        return step.capacity.credits()


class Greedy(Fault):
    """The policies with their decisions taken apart, to be spoiled."""

    def fits(self, left: Credits, cost: Credits) -> bool:
        """Whether there are credits."""
        return left.covers(cost)

    def run_cost(self, ask: Ask, joined: bool) -> Credits:
        """What is charged."""
        return runtime_admission.price(ask, joined)

    def joins(self, policy: str, ask: Ask, admitted: Sequence[Bought], before: Sequence[Ask]) -> bool:
        """Whether a unit is bought already."""
        return policy == SHARED and any(one.ask.unit == ask.unit for one in admitted)

    def late(self, ask: Ask) -> bool:
        """Whether it would miss its deadline."""
        return ask.finish_ms > ask.terms.deadline_ms

    def holds_back(self, policy: str) -> bool:
        """Whether one that does not fit blocks those behind it."""
        return policy == FIFO

    def late_first(self) -> bool:
        """Whether the deadline is asked before credits."""
        return True

    def run_decide(self, policy: str, asks: Sequence[Ask], free: Credits, now_ms: Exact) -> Decision:
        left, admitted, before, blocked = free, list[Bought](), list[Ask](), False
        turned: list[Any] = []
        order = self.run_order(policy, asks)
        for ask in order:
            shared = self.joins(policy, ask, admitted, before)
            before.append(ask)
            cost = self.run_cost(ask, shared)
            short = blocked or not self.fits(left, cost)
            if self.late(ask) and (self.late_first() or not short):
                turned.append((ask, "DEADLINE", ask.terms.fallback("DEADLINE", now_ms)))
            elif short:
                blocked = self.holds_back(policy)
                turned.append((ask, "CREDIT_PRESSURE", ask.terms.fallback("CREDIT_PRESSURE", now_ms)))
            else:
                left -= cost
                admitted.append(Bought(ask, shared, cost))
        return Decision(tuple(ask.name for ask in order), tuple(admitted), tuple(turned), left)


class EachReadsForItself(Greedy):
    """Nothing is ever shared."""

    requirement = "RUN-019"
    killed_by = case("policies/base", "policies/read-shared-by-three", "policies/approximate-shares-too")

    def joins(self, policy: str, ask: Ask, admitted: Sequence[Bought], before: Sequence[Ask]) -> bool:
        return False


class StagingOnceAUnit(Greedy):
    """One destination is charged for all who share a read."""

    requirement = "RUN-011"
    killed_by = case("policies/base", "policies/staging-is-each-ones-own")

    def run_cost(self, ask: Ask, joined: bool) -> Credits:
        made = super().run_cost(ask, joined)
        return replace(made, staging_bytes=0) if joined else made


class PlaceOnceAUnit(Greedy):
    """One place in the queue is charged for all who share a read."""

    requirement = "RUN-011"
    killed_by = case("policies/base", "policies/queue-counts-requests")

    def run_cost(self, ask: Ask, joined: bool) -> Credits:
        made = super().run_cost(ask, joined)
        return replace(made, queue_slots=0) if joined else made


class LinkOnceAUnitPinnedTwice(Greedy):
    """Pinned memory is charged for each who shares a read."""

    requirement = "RUN-011"
    killed_by = case("policies/base", "policies/read-shared-by-three")

    def run_cost(self, ask: Ask, joined: bool) -> Credits:
        return replace(super().run_cost(ask, joined), pinned_bytes=ask.backend_bytes)


class PinnedTwiceTheBytes(Greedy):
    """Destinations are charged to pinned memory as well."""

    requirement = "RUN-011"
    killed_by = case("policies/base", "policies/base-fifo")

    def run_cost(self, ask: Ask, joined: bool) -> Credits:
        made = super().run_cost(ask, joined)
        return replace(made, pinned_bytes=made.pinned_bytes + ask.staging_bytes)


def unchecked(name: str) -> type[Fault]:
    """The policies that overlook one resource."""

    def fits(self: Greedy, left: Credits, cost: Credits) -> bool:
        return left.covers(replace(cost, **{name: 0})) or left.covers(cost)

    word = name.partition("_")[0]
    text = f"Nobody looks at {name.replace('_', ' ')}."
    killers = case(f"policies/one-short-of-{word}")
    return spoiled(Greedy, __name__, f"{word.title()}Unchecked", text, "RUN-012", killers, fits=fits)


def strict(name: str) -> type[Fault]:
    """The policies that leave the last of one resource unused."""

    def fits(self: Greedy, left: Credits, cost: Credits) -> bool:
        return left.covers(cost) and getattr(left, name) > getattr(cost, name)

    word = name.partition("_")[0]
    text = f"The last of {name.replace('_', ' ')} is never used."
    killers = case(f"policies/just-enough-{word}")
    return spoiled(Greedy, __name__, f"Last{word.title()}Unused", text, "RUN-012", killers, fits=fits)


KINDS = tuple(Credits().to_json())
UNCHECKED = tuple(unchecked(name) for name in KINDS)
STRICT = tuple(strict(name) for name in KINDS)


class FifoOvertakes(Greedy):
    """A request that fits passes one that does not."""

    requirement = "RUN-017"
    killed_by = case("policies/does-not-fit-fifo")

    def holds_back(self, policy: str) -> bool:
        return False


class DeadlinesHoldBack(Greedy):
    """Whatever the policy, one that does not fit stops the step."""

    requirement = "RUN-018"
    killed_by = case("policies/does-not-fit-earliest-deadline", "policies/does-not-fit-exact-deadline-coalescing")

    def holds_back(self, policy: str) -> bool:
        return True


class EveryPolicyShares(Greedy):
    """Reads are shared under every policy."""

    requirement = "RUN-017"
    killed_by = case("policies/read-shared-by-three", "policies/order-fifo")

    def joins(self, policy: str, ask: Ask, admitted: Sequence[Bought], before: Sequence[Ask]) -> bool:
        return super().joins(SHARED, ask, admitted, before)


class DeadlineShares(Greedy):
    """Reads are shared under both policies of deadlines."""

    requirement = "RUN-018"
    killed_by = case("policies/read-shared-by-three", "policies/order-earliest-deadline")

    def joins(self, policy: str, ask: Ask, admitted: Sequence[Bought], before: Sequence[Ask]) -> bool:
        return policy != FIFO and super().joins(SHARED, ask, admitted, before)


class SharesWithWhoWasTurnedAway(Greedy):
    """A unit counts as bought once somebody asked for it."""

    requirement = "RUN-019"
    killed_by = case("policies/unit-not-paid-by-the-one-turned-away")

    def joins(self, policy: str, ask: Ask, admitted: Sequence[Bought], before: Sequence[Ask]) -> bool:
        return policy == SHARED and any(one.unit == ask.unit for one in before)


class SharesBySize(Greedy):
    """Units of one size are taken for one unit."""

    requirement = "RUN-019"
    killed_by = case("policies/same-size-is-not-the-same-unit")

    def joins(self, policy: str, ask: Ask, admitted: Sequence[Bought], before: Sequence[Ask]) -> bool:
        return policy == SHARED and any(one.ask.backend_bytes == ask.backend_bytes for one in admitted)


class ApproximateReadsForItself(Greedy):
    """An approximate request does not share an exact one's read."""

    requirement = "RUN-019"
    killed_by = case("policies/approximate-shares-too")

    def joins(self, policy: str, ask: Ask, admitted: Sequence[Bought], before: Sequence[Ask]) -> bool:
        return ask.terms.contract == "exact" and super().joins(policy, ask, admitted, before)


def reordered(name: str, text: str, requirement: str, names: Sequence[str], policy: str, key: Any) -> type[Fault]:
    """One policy in another order."""

    def run_order(self: Fault, asked: str, asks: Sequence[Ask]) -> list[Ask]:
        if asked != policy:
            return runtime_admission.ordered(asked, asks)
        return list(asks) if key is None else sorted(asks, key=key)

    return spoiled(Fault, __name__, name, text, requirement, case(*names), run_order=run_order)


ORDERS = (
    reordered(
        "FifoByTheList",
        "The order of the list stands for that of arrival.",
        "RUN-017",
        ["policies/order-fifo"],
        FIFO,
        None,
    ),
    reordered(
        "LastComeFirstServed",
        "The latest arrival goes first.",
        "RUN-017",
        ["policies/order-fifo", "policies/base-fifo"],
        FIFO,
        lambda ask: -ask.arrival,
    ),
    reordered(
        "DeadlinesAsText",
        "Deadlines are compared as text.",
        "RUN-018",
        ["policies/deadlines-as-numbers"],
        DEADLINE,
        lambda ask: (str(float(ask.terms.deadline_ms)), ask.arrival),
    ),
    reordered(
        "LatestDeadlineFirst",
        "Who has most time goes first.",
        "RUN-018",
        ["policies/order-earliest-deadline", "policies/base-earliest-deadline"],
        DEADLINE,
        lambda ask: (-ask.terms.deadline_ms, ask.arrival),
    ),
    reordered(
        "LeastSlackFirst",
        "Who would be over the latest before its deadline goes first.",
        "RUN-018",
        ["policies/order-earliest-deadline"],
        DEADLINE,
        lambda ask: (-ask.finish_ms, ask.arrival),
    ),
    reordered(
        "DeadlineTiesByName",
        "Equal deadlines go by name.",
        "RUN-018",
        ["policies/order-earliest-deadline"],
        DEADLINE,
        lambda ask: (ask.terms.deadline_ms, [-ord(letter) for letter in ask.name]),
    ),
    reordered(
        "DeadlineExactFirst",
        "Earliest deadline prefers exact requests, too.",
        "RUN-018",
        ["policies/order-earliest-deadline", "policies/base-earliest-deadline"],
        DEADLINE,
        lambda ask: (ask.terms.contract != "exact", ask.terms.deadline_ms, ask.arrival),
    ),
    reordered(
        "ContractIgnored",
        "Exact requests get no preference.",
        "RUN-019",
        ["policies/base", "policies/order-exact-deadline-coalescing"],
        SHARED,
        lambda ask: (ask.terms.deadline_ms, ask.arrival),
    ),
    reordered(
        "ExactByArrival",
        "Exact requests go first, in the order of arrival.",
        "RUN-019",
        ["policies/order-exact-deadline-coalescing", "policies/deadlines-as-numbers"],
        SHARED,
        lambda ask: (ask.terms.contract != "exact", ask.arrival),
    ),
    reordered(
        "SharersFirst",
        "Requests whose unit others need, too, go before all others.",
        "RUN-019",
        ["policies/order-exact-deadline-coalescing"],
        SHARED,
        lambda ask: (ask.unit, ask.terms.contract != "exact", ask.terms.deadline_ms, ask.arrival),
    ),
)


class LateIsAdmitted(Greedy):
    """Nobody compares the end with the deadline."""

    requirement = "RUN-020"
    killed_by = case("policies/base", "policies/just-in-time", "policies/late-does-not-hold-back")

    def late(self, ask: Ask) -> bool:
        return False


class JustInTimeIsLate(Greedy):
    """A transfer that is over at the deadline is turned away."""

    requirement = "RUN-020"
    killed_by = case("policies/just-in-time")

    def late(self, ask: Ask) -> bool:
        return ask.finish_ms >= ask.terms.deadline_ms


class CreditsBeforeDeadline(Greedy):
    """Credits are asked for before the deadline is looked at."""

    requirement = "RUN-020"
    killed_by = case("policies/late-before-credits")

    def late_first(self) -> bool:
        return False


class SavedOnceAUnit(Fault):
    """What the third request saves is not counted."""

    requirement = "RUN-019"
    killed_by = case("policies/read-shared-by-three")

    def runtime_admit(self, request: Any) -> dict[str, Any]:
        reply = super().runtime_admit(request)
        sizes = {one["unit"]: one["bytes"] for one in request["document"]["units"]}
        units = {one["request"]: one["unit"] for one in request["document"]["requests"]}
        saved = {units[row["request"]] for row in reply["admitted"] if row["joined"]}
        return {**reply, "saved_bytes": sum(sizes[unit] for unit in saved)}


class SumOfAllCharged(Fault):
    """The sum of charges counts joined units again."""

    requirement = "RUN-011"
    killed_by = case("policies/base", "policies/read-shared-by-three")

    def run_charged(self, made: Decision) -> Credits:
        return super().run_charged(made) + Credits(pinned_bytes=made.saved_bytes, link_bytes=made.saved_bytes)


FAULTS: tuple[type[Fault], ...] = (
    FreeIsCapacity,
    StagingOnceAUnit,
    PlaceOnceAUnit,
    LinkOnceAUnitPinnedTwice,
    PinnedTwiceTheBytes,
    SumOfAllCharged,
    *UNCHECKED,
    *STRICT,
    FifoOvertakes,
    EveryPolicyShares,
    DeadlinesHoldBack,
    DeadlineShares,
    EachReadsForItself,
    SharesWithWhoWasTurnedAway,
    SharesBySize,
    ApproximateReadsForItself,
    *ORDERS,
    SavedOnceAUnit,
    LateIsAdmitted,
    JustInTimeIsLate,
    CreditsBeforeDeadline,
)
