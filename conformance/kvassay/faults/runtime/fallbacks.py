"""Faults of fallbacks, of steps and of jobs alike."""

from __future__ import annotations

from dataclasses import replace

from kvassay_reference.runtime_admission import Action, Exact, Reason, Terms

from ..base import Fault
from .base import Seeds

seeds = Seeds(__name__)
LISTS = "policies/fallback-"


@seeds.choice("RUN-021", LISTS + "recompute-too-late", LISTS + "only-recompute-too-late", "jobs/pressure")
def recomputed_too_late(terms: Terms, reason: Reason, now_ms: Exact) -> Action:
    """Nobody asks whether a recomputation is in time."""
    return replace(terms, recompute_ms=Exact(0)).fallback(reason, min(now_ms, terms.deadline_ms))


@seeds.choice("RUN-021", LISTS + "recompute-just-in-time", "jobs/pressure")
def recomputed_strictly_in_time(terms: Terms, reason: Reason, now_ms: Exact) -> Action:
    """A recomputation that ends at the deadline is too late."""
    if terms.recompute_ms is not None and now_ms + terms.recompute_ms == terms.deadline_ms:
        return replace(terms, recompute_ms=None).fallback(reason, now_ms)
    return terms.fallback(reason, now_ms)


@seeds.choice("RUN-021", LISTS + "postpone-first", "jobs/deadlines", "jobs/late-before-credits")
def postponed_past_the_deadline(terms: Terms, reason: Reason, now_ms: Exact) -> Action:
    """What would be late now is tried again later."""
    return terms.fallback("CREDIT_PRESSURE" if reason == "DEADLINE" else reason, now_ms)


@seeds.choice("RUN-021", "jobs/pressure", "jobs/failure-after-the-deadline")
def postponed_after_the_deadline(terms: Terms, reason: Reason, now_ms: Exact) -> Action:
    """Nobody asks whether there is a later."""
    if "postpone" in terms.fallbacks and reason != "DEADLINE" and now_ms >= terms.deadline_ms:
        return "POSTPONE_FOR_EXACT_RETRY"
    return terms.fallback(reason, now_ms)


@seeds.choice("RUN-021", LISTS + "postpone-first", LISTS + "degrade-first")
def recompute_goes_first(terms: Terms, reason: Reason, now_ms: Exact) -> Action:
    """The engine's own order stands for the request's."""
    ranks = ("recompute", "postpone", "degrade")
    return replace(terms, fallbacks=tuple(sorted(terms.fallbacks, key=ranks.index))).fallback(reason, now_ms)


@seeds.choice("RUN-021", LISTS + "recompute-too-late", LISTS + "degrade-last", "jobs/pressure")
def only_the_first_counts(terms: Terms, reason: Reason, now_ms: Exact) -> Action:
    """A first fallback that is not legal ends in rejection."""
    return replace(terms, fallbacks=terms.fallbacks[:1]).fallback(reason, now_ms)


@seeds.choice("RUN-021", LISTS + "nothing-declared")
def degraded_unasked(terms: Terms, reason: Reason, now_ms: Exact) -> Action:
    """An approximate request is degraded though it never said so."""
    return replace(terms, fallbacks=(*terms.fallbacks, "degrade")).fallback(reason, now_ms)


@seeds.choice("RUN-021", LISTS + "nothing-declared", LISTS + "postpone-first")
def recomputed_unasked(terms: Terms, reason: Reason, now_ms: Exact) -> Action:
    """Whoever can be recomputed is, though it never said so."""
    return replace(terms, fallbacks=("recompute", *terms.fallbacks)).fallback(reason, now_ms)


@seeds.choice("RUN-021", "jobs/pressure", "jobs/refusal-takes-nothing", LISTS + "only-recompute-too-late")
def postponed_unasked(terms: Terms, reason: Reason, now_ms: Exact) -> Action:
    """A queue for those who have no fallback."""
    return replace(terms, fallbacks=(*terms.fallbacks, "postpone")).fallback(reason, now_ms)


@seeds.choice("RUN-021", "jobs/deadlines", "policies/base-fifo")
def degraded_to_protect_latency(terms: Terms, reason: Reason, now_ms: Exact) -> Action:
    """An exact request is answered approximately."""
    found = terms.fallback(reason, now_ms)
    return "ACCEPT_DECLARED_DEGRADED" if found in ("REJECT_NO_LEGAL_PATH", "POSTPONE_FOR_EXACT_RETRY") else found


@seeds.choice("RUN-030", "jobs/one-worker-fails", "jobs/the-other-worker-fails")
def failures_are_rejected(terms: Terms, reason: Reason, now_ms: Exact) -> Action:
    """After a failed transfer nothing is tried any more."""
    return "REJECT_NO_LEGAL_PATH" if reason == "TRANSFER_FAILED" else terms.fallback(reason, now_ms)


FAULTS: tuple[type[Fault], ...] = tuple(seeds.faults)
