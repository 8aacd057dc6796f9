"""Faults of attempts: one publication, and what is kept of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kvassay_reference import placement_receipts
from kvassay_reference.offload import Rule
from kvassay_reference.placement_receipts import Asked, Attempt

from ..base import Fault
from .base import Request, Result, case


class LateAfterFallback(Fault):
    """A receipt that was complete in time counts after the fallback, too."""

    requirement = "PLC-034"
    killed_by = case("session/late-receipt-after-the-fallback")

    def plc_open_rules(self, attempt: Attempt) -> Iterator[Rule]:
        yield attempt.published != "support_partition", "ALREADY_PUBLISHED"


class PublishedAtZero(Fault):
    """A fallback that was published at zero is taken for none."""

    requirement = "PLC-034"
    killed_by = case("receipt/fallback-published-at-once")

    def placement_reduce(self, request: Request) -> Result:
        document = request["document"]
        when = document["fallback"]["published_ms"] or None
        return super().placement_reduce(
            {"document": {**document, "fallback": {**document["fallback"], "published_ms": when}}}
        )


class FallbackForgotten(Fault):
    """A reduction does not ask whether the fallback was published."""

    requirement = "PLC-034"
    killed_by = case("receipt/fallback-published", "receipt/fallback-published-at-once")

    def placement_reduce(self, request: Request) -> Result:
        document = request["document"]
        quiet = {**document["fallback"], "published_ms": None}
        return super().placement_reduce({"document": {**document, "fallback": quiet}})


class AlwaysRecompute(Fault):
    """A missed deadline always recomputes."""

    requirement = "PLC-034"
    killed_by = case("session/fallback-delay", "session/fallback-exact-reroute", "session/fallback-reject")

    def placement_begin(self, request: Request) -> Result:
        return super().placement_begin({**request, "fallback": "recompute"})


class SecondAttemptAtOnce(Fault):
    """A new attempt replaces the one under way."""

    requirement = "PLC-035"
    killed_by = case("session/begun-twice")

    def placement_begin(self, request: Request) -> Result:
        self.plc_attempt = None
        return super().placement_begin(request)


class ReceiptsKept(Fault):
    """Receipts of the attempt before are kept for the next."""

    requirement = "PLC-035"
    killed_by = case("session/next-step", "session/publications-are-counted")

    def placement_begin(self, request: Request) -> Result:
        before = self.plc_attempt
        found = super().placement_begin(request)
        if before is not None and self.plc_attempt is not None:
            self.plc_attempt.receipts = before.receipts
        return found


class RejectionsKept(Fault):
    """Rejections of the attempt before are told of the next."""

    requirement = "PLC-035"
    killed_by = case("session/next-step")

    def placement_begin(self, request: Request) -> Result:
        before = self.plc_attempt
        found = super().placement_begin(request)
        if before is not None and self.plc_attempt is not None:
            self.plc_attempt.rejected = {**before.rejected, **({"SUPPORT_GAP": 1} if before.published else {})}
        return found


class PublishAgain(Fault):
    """An output may be published again."""

    requirement = "PLC-035"
    killed_by = case("session/published-twice")

    def placement_publish(self, request: Request) -> Result:
        if self.plc_attempt is not None:
            self.plc_attempt.published = None
        return super().placement_publish(request)


class CountedPerAttempt(Fault):
    """Publications are counted anew in each attempt."""

    requirement = "PLC-035"
    killed_by = case("session/next-step", "session/publications-are-counted")

    def placement_begin(self, request: Request) -> Result:
        found = super().placement_begin(request)
        self.plc_publications = 0
        return found


class FallbackIsNoPublication(Fault):
    """A fallback does not count as a publication."""

    requirement = "PLC-035"
    killed_by = case("session/publications-are-counted", "session/next-attempt-after-the-fallback")

    def placement_publish(self, request: Request) -> Result:
        found = super().placement_publish(request)
        if found["published"] != "support_partition":
            self.plc_publications -= 1
        return found


class WithoutAttempt(Fault):
    """The record of nothing is an empty one."""

    requirement = "PLC-035"
    killed_by = case("session/nothing-begun")

    def placement_telemetry(self, request: Request) -> Result:
        if self.plc_attempt is not None:
            return super().placement_telemetry(request)
        empty: Result = {"attempted": "support_partition", "published": None, "accepted": 0, "rejected": []}
        return {**empty, "deadline_missed": False, "publication_generation": 0}


class DuplicateIsOverlap(Fault):
    """A receipt that is sent again is called an overlap."""

    requirement = "PLC-036"
    killed_by = case("session/duplicate")

    def plc_arrival_rules(self, attempt: Attempt, one: Request, at_ms: float) -> Iterator[Rule]:
        yield from self.plc_overlap_rules(attempt.asked, [*attempt.receipts, one])
        yield from super().plc_arrival_rules(attempt, one, at_ms)


class DuplicateIsFine(Fault):
    """A receipt that is sent again is taken again, and its rows count once."""

    requirement = "PLC-036"
    killed_by = case("session/duplicate", "session/duplicate-of-nothing")

    def placement_deliver(self, request: Request) -> Result:
        attempt = self.plc_current()
        if attempt.published is None and placement_receipts.is_known(attempt.receipts, request["receipt"]):
            attempt.receipts.remove(
                next(one for one in attempt.receipts if one["checksum"] == request["receipt"]["checksum"])
            )
        return super().placement_deliver(request)


class DuplicateByProducer(Fault):
    """A producer answers once, whatever the head."""

    requirement = "PLC-021"
    killed_by = case("session/in-order", "session/same-rows-of-another-head")

    def plc_arrival_rules(self, attempt: Attempt, one: Request, at_ms: float) -> Iterator[Rule]:
        yield all(other["producer"] != one["producer"] for other in attempt.receipts), "RECEIPT_DUPLICATE"
        yield from super().plc_arrival_rules(attempt, one, at_ms)


class PartialPublished(Fault):
    """What has arrived is published."""

    requirement = "PLC-037"
    killed_by = case("session/incomplete", "session/incomplete-at-the-deadline", "session/next-step")

    def plc_gap_rules(self, asked: Asked, receipts: Sequence[Request]) -> Iterator[Rule]:
        yield bool(receipts), "SUPPORT_GAP"


class GapEndsTheAttempt(Fault):
    """A publication that finds a gap takes the fallback at once."""

    requirement = "PLC-037"
    killed_by = case("session/incomplete", "session/incomplete-at-the-deadline")

    def plc_late(self, attempt: Attempt, at_ms: float) -> bool:
        gaps = any(not holds for holds, _ in self.plc_gap_rules(attempt.asked, attempt.receipts))
        return gaps or super().plc_late(attempt, at_ms)


class RejectedIsKept(Fault):
    """A receipt that overlaps is rejected after it was added."""

    requirement = "PLC-037"
    killed_by = case("session/overlap", "session/duplicate")

    def plc_arrival_rules(self, attempt: Attempt, one: Request, at_ms: float) -> Iterator[Rule]:
        rules = list(super().plc_arrival_rules(attempt, one, at_ms))
        if not all(holds for holds, _ in rules):
            attempt.receipts.append(one)
        yield from rules


class Record(Fault):
    """Another record."""

    requirement = "PLC-038"

    def spoil(self, found: Result) -> Result:
        """Members that differ."""
        raise NotImplementedError

    def placement_telemetry(self, request: Request) -> Result:
        found = super().placement_telemetry(request)
        return {**found, **self.spoil(found)}


class RejectionsForgotten(Record):
    """Rejections leave no trace."""

    killed_by = case("session/duplicate", "session/wrong-identities", "session/overlap")

    def spoil(self, found: Result) -> Result:
        return {"rejected": []}


class RejectionsByOne(Record):
    """Every reason is counted once."""

    killed_by = case("session/wrong-identities", "session/duplicate", "session/incomplete")

    def spoil(self, found: Result) -> Result:
        return {"rejected": [{**one, "count": 1} for one in found["rejected"]]}


class DeadlineNotRecorded(Record):
    """A missed deadline is not recorded."""

    killed_by = case("session/complete-and-late", "session/fallback-delay")

    def spoil(self, found: Result) -> Result:
        return {"deadline_missed": False}


class PublishedIsAttempted(Record):
    """The record names the attempted plan as what was published."""

    killed_by = case("session/fallback-delay", "session/complete-and-late", "session/next-step")

    def spoil(self, found: Result) -> Result:
        return {"published": found["attempted"]}


class AcceptedWithRejected(Record):
    """Rejected receipts are counted among the taken ones."""

    killed_by = case("session/duplicate", "session/overlap")

    def spoil(self, found: Result) -> Result:
        return {"accepted": found["accepted"] + sum(one["count"] for one in found["rejected"])}


class GapsNotCounted(Fault):
    """Publications that were not made are not counted."""

    requirement = "PLC-038"
    killed_by = case("session/incomplete", "session/incomplete-at-the-deadline")

    def placement_publish(self, request: Request) -> Result:
        before = dict(self.plc_attempt.rejected) if self.plc_attempt else {}
        try:
            return super().placement_publish(request)
        finally:
            if self.plc_attempt is not None and self.plc_attempt.published is None:
                self.plc_attempt.rejected = before


class MissingForgotten(Fault):
    """What is missing is told for the head of the receipt alone."""

    requirement = "PLC-038"
    killed_by = case("session/in-order", "session/out-of-order")

    def placement_deliver(self, request: Request) -> Result:
        found = super().placement_deliver(request)
        return {**found, "missing": [found["missing"][request["receipt"]["query_head"]]] * len(found["missing"])}


FAULTS: tuple[type[Fault], ...] = (
    LateAfterFallback,
    PublishedAtZero,
    FallbackForgotten,
    AlwaysRecompute,
    SecondAttemptAtOnce,
    ReceiptsKept,
    RejectionsKept,
    PublishAgain,
    CountedPerAttempt,
    FallbackIsNoPublication,
    WithoutAttempt,
    DuplicateIsOverlap,
    DuplicateIsFine,
    DuplicateByProducer,
    PartialPublished,
    GapEndsTheAttempt,
    RejectedIsKept,
    RejectionsForgotten,
    RejectionsByOne,
    DeadlineNotRecorded,
    PublishedIsAttempted,
    AcceptedWithRejected,
    GapsNotCounted,
    MissingForgotten,
)
"""In the order of the chapter."""
