"""Faults of jobs: credits, waiters, workers, failures and stores."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kvassay_reference.errors import Refusal
from kvassay_reference.runtime import NOTHING, Admitted, Finished, Job, Read, Runtime, Turned, Unit
from kvassay_reference.runtime_admission import Credits, Exact, Terms

from ...adapters.base import Rejected
from ..base import Fault
from .base import Request, Result, Seeds, case

seeds = Seeds(__name__)


@seeds.machine("RUN-010", "jobs/base", "jobs/others-hold-everything")
class OthersHoldNothing(Runtime):
    """What others hold is free."""

    def __init__(self, capacity: Credits, held: Credits, workers: int) -> None:
        super().__init__(capacity, held, workers)
        self.budget = capacity


@seeds.machine("RUN-010", *(f"jobs/others-hold-too-much-{name}" for name in ("pinned", "staging", "link", "queue")))
class OpensOverdrawn(Runtime):
    """A runtime opens though more is held than there is."""

    def __init__(self, capacity: Credits, held: Credits, workers: int) -> None:
        kept = {name: min(value, getattr(capacity, name)) for name, value in held.to_json().items()}
        super().__init__(capacity, Credits(**kept), workers)


# --- admission ---


def overlooked(name: str, word: str) -> None:
    """Seed the runtime that overlooks one resource."""

    class Overlooking(Runtime):
        def affordable(self, charged: Credits) -> bool:
            return self.free.covers(charged) or (self.free + Credits(**{name: 1 << 40})).covers(charged)

    Overlooking.__name__ = f"{word.title()}Overlooked"
    Overlooking.__doc__ = f"Reservations do not look at {name.replace('_', ' ')}."
    seeds.machine("RUN-012", f"jobs/short-of-{word}")(Overlooking)


def unused(name: str, word: str) -> None:
    """Seed the runtime that leaves the last of one resource."""

    class Leaving(Runtime):
        def affordable(self, charged: Credits) -> bool:
            return self.free.covers(charged + Credits(**{name: 1}))

    Leaving.__name__ = f"{word.title()}NeverFull"
    Leaving.__doc__ = f"The last of {name.replace('_', ' ')} is never reserved."
    seeds.machine("RUN-012", f"jobs/just-enough-{word}")(Leaving)


for _name in Credits().to_json():
    overlooked(_name, _name.partition("_")[0])
    unused(_name, _name.partition("_")[0])


@seeds.machine("RUN-022", "jobs/refusal-takes-nothing", "jobs/short-of-queue")
class QueueGrowsSilently(Runtime):
    """What does not fit is admitted all the same and waits (vllm#49902)."""

    def affordable(self, charged: Credits) -> bool:
        return True


@seeds.machine("RUN-022", "jobs/refusal-takes-nothing", "jobs/short-of-staging")
class RefusalKeepsItsPlace(Runtime):
    """A request that is turned away keeps its place in the queue."""

    def reserve(self, request: str, *more: Any) -> str | Turned | Admitted:
        made = super().reserve(request, *more)
        if isinstance(made, Turned) and made.reason == "CREDIT_PRESSURE" and self.free.queue_slots:
            self._take(Credits(queue_slots=1))
        return made


@seeds.machine("RUN-022", "jobs/refused-have-no-job")
class RefusedAreRemembered(Runtime):
    """A request that was turned away can be submitted as if it had not been."""

    def reserve(self, request: str, direction: str, unit: Unit, *more: Any) -> str | Turned | Admitted:
        made = super().reserve(request, direction, unit, *more)
        if isinstance(made, Turned):
            read = self.new_read(direction, unit, int(dict(unit)["bytes"]))
            staging, terms = more[0], more[1]
            self._take(self.read_price(read.size) + self.job_price(staging))
            self._give(self.read_price(read.size) + self.job_price(staging))
            read.size = 0
            job = Job(request, direction, unit, 0, terms, read)
            self.jobs[request] = job
            read.jobs.append(job)
        return made


@seeds.machine("RUN-011", "jobs/staging-beyond-the-unit")
class StagingIsTheUnits(Runtime):
    """A destination is charged the unit's bytes, whatever was asked for."""

    def reserve(
        self,
        request: str,
        direction: str,
        unit: Unit,
        staging_bytes: int,
        terms: Terms,
        now_ms: Exact,
        finish_ms: Exact,
    ) -> str | Turned | Admitted:
        return super().reserve(request, direction, unit, int(dict(unit)["bytes"]), terms, now_ms, finish_ms)


@seeds.machine("RUN-011", "jobs/joins-need-staging", "identity/shared-by-three")
class OneStagingForAll(Runtime):
    """All who share a read share one destination in the ledger."""

    def reserve(self, request: str, direction: str, unit: Unit, staging_bytes: int, *more: Any) -> Any:
        shared = super().joinable(unit) is not None and direction == "load"
        return super().reserve(request, direction, unit, 0 if shared else staging_bytes, *more)


@seeds.machine("RUN-011", "identity/shared-by-three", "jobs/full-for-reads-not-for-joins")
class BytesForEachWaiter(Runtime):
    """Every waiter must find the unit's bytes free, though nothing is charged."""

    def affordable(self, charged: Credits) -> bool:
        return self.free.covers(replace(charged, pinned_bytes=64, link_bytes=64)) and super().affordable(charged)


@seeds.machine("RUN-020", "jobs/deadlines")
class LateOnesStart(Runtime):
    """Nobody compares the end with the deadline."""

    def late(self, finish_ms: Exact, terms: Terms) -> bool:
        return False


@seeds.machine("RUN-020", "jobs/deadlines")
class AtTheDeadlineIsLate(Runtime):
    """A transfer that is over at the deadline is turned away."""

    def late(self, finish_ms: Exact, terms: Terms) -> bool:
        return finish_ms >= terms.deadline_ms


@seeds.machine("RUN-020", "jobs/late-before-credits")
class PressureBeforeDeadline(Runtime):
    """Credits are asked for first."""

    def late(self, finish_ms: Exact, terms: Terms) -> bool:
        return super().late(finish_ms, terms) and self.free.covers(Credits(64, 64, 64, 1))


class DegradingExact(Fault):
    """An exact request that lists degrade is admitted, and degraded under pressure."""

    requirement = "RUN-004"
    killed_by = case("jobs/exact-never-degrades")

    def runtime_reserve(self, request: Request) -> Result:
        if "degrade" in request["fallbacks"]:
            return super().runtime_reserve({**request, "contract": "approximate"})
        return super().runtime_reserve(request)


class UntimedRecompute(Fault):
    """A recomputation without a time takes none."""

    requirement = "RUN-004"
    killed_by = case("jobs/exact-never-degrades")

    def runtime_reserve(self, request: Request) -> Result:
        takes = 0 if request["recompute_ms"] is None else request["recompute_ms"]
        return super().runtime_reserve({**request, "recompute_ms": takes})


# --- submission ---


@seeds.machine("RUN-024", "jobs/submitted-twice", "identity/shared-by-three")
class EachWaiterStartsIt(Runtime):
    """Every submit starts the transfer."""

    def submit(self, request: str) -> tuple[str, Read]:
        outcome, read = super().submit(request)
        if outcome == "joined":
            self.started += 1
        return "submitted", read


@seeds.machine("RUN-024", "jobs/submitted-twice")
class SubmittedAgain(Runtime):
    """A job can be submitted as often as one likes."""

    def submit(self, request: str) -> tuple[str, Read]:
        self.job(request).submitted = False
        return super().submit(request)


@seeds.machine("RUN-024", "jobs/started-by-the-second", "identity/shared-by-three")
class OnlyTheFirstStarts(Runtime):
    """The transfer starts when the one that reserved first submits."""

    def submit(self, request: str) -> tuple[str, Read]:
        job = self.job(request)
        if not job.submitted and job.read.jobs[0] is not job and not job.read.started:
            job.submitted = True
            return "joined", job.read
        return super().submit(request)


@seeds.machine("RUN-033", "jobs/one-name-one-job")
class NamesTwice(Runtime):
    """A request may have two jobs; the later one hides the earlier."""

    def reserve(self, request: str, *more: Any) -> str | Turned | Admitted:
        hidden = self.jobs.pop(request, None)
        made = super().reserve(request, *more)
        if hidden is not None and not isinstance(made, Admitted):
            self.jobs[request] = hidden
        return made


@seeds.machine("RUN-033", "jobs/one-name-one-job", "jobs/look-up-is-no-arrival")
class NamesAreUsedUp(Runtime):
    """A name that had a job gets no other."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.names: set[str] = set()

    def reserve(self, request: str, *more: Any) -> str | Turned | Admitted:
        if request in self.names:
            raise Refusal("REQUEST_TWICE", request)
        made = super().reserve(request, *more)
        if isinstance(made, Admitted):
            self.names.add(request)
        return made


class CancelsAnything(Fault):
    """A cancellation of what is over is called a success."""

    requirement = "RUN-033"
    killed_by = case("jobs/one-name-one-job", "jobs/refused-have-no-job")

    def runtime_cancel(self, request: Request) -> Result:
        try:
            return super().runtime_cancel(request)
        except Rejected:
            return self.run_free_told(outcome="dropped", returned=NOTHING.to_json())


# --- cancellation ---


@seeds.machine("RUN-025", "jobs/cancel-one-of-two", "jobs/cancel-one-before-the-start")
class OneCancelsAll(Runtime):
    """A cancellation takes the read from all who wait."""

    def cancel(self, request: str) -> tuple[str, Credits]:
        read = self.job(request).read
        outcome, returned = super().cancel(request)
        read.dead = True
        return outcome, returned

    def end_read(self, read: Read) -> Credits:
        return super().end_read(read)


@seeds.machine("RUN-025", "jobs/cancel-one-of-two", "jobs/cancel-and-come-again")
class LeaderIsTheRead(Runtime):
    """When the first waiter goes, the others go with it."""

    def cancel(self, request: str) -> tuple[str, Credits]:
        job = self.job(request)
        if job.read.jobs[0] is job:
            for other in job.read.jobs[1:]:
                super().cancel(other.request)
        return super().cancel(request)


@seeds.machine("RUN-025", "jobs/cancel-one-of-two", "jobs/credits-of-joined-return-once")
class CancelledIsServed(Runtime):
    """A cancelled request is told that its rows are there."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.gone: dict[str, list[str]] = {}

    def leave(self, job: Job) -> None:
        super().leave(job)
        self.gone.setdefault(job.read.name, []).append(job.request)

    def finish(self, read: Read, now_ms: Exact) -> Finished:
        gone = tuple(name for name in self.gone.get(read.name, ()) if name not in self.jobs)
        made = super().finish(read, now_ms)
        return replace(made, ready=(*gone, *made.ready)) if made.ready else made


@seeds.machine("RUN-025", "jobs/cancel-the-last-in-flight", "jobs/dropped-twice")
class DroppedIsDone(Runtime):
    """A transfer that nobody waits for is called done."""

    def complete(self, *report: Any) -> Finished:
        made = super().complete(*report)
        return replace(made, outcome="done") if made.outcome == "dropped" else made


@seeds.machine("RUN-026", "jobs/cancel-the-last-in-flight", "jobs/cancel-all-of-three")
class CancelFreesWhatIsWritten(Runtime):
    """The last cancellation returns pinned memory and link under the copy (vllm#47282)."""

    def read_return(self, read: Read) -> Credits:
        read.over = True
        return self._give(self.read_price(read.size))

    def end_read(self, read: Read) -> Credits:
        return super().end_read(read) if not read.over else self._give(Credits(staging_bytes=read.orphaned_bytes))


@seeds.machine("RUN-026", "jobs/cancel-one-of-two", "jobs/cancel-the-last-in-flight")
class CancelFreesItsStaging(Runtime):
    """A cancelled request's destination is given away while the copy may write it (vllm-ascend#14055)."""

    def job_return(self, job: Job) -> Credits:
        return self._give(self.job_price(job.staging_bytes))


@seeds.machine("RUN-026", "jobs/cancel-one-of-two", "jobs/cancel-all-of-three")
class PlaceIsKept(Runtime):
    """A cancelled request keeps its place in the queue until the transfer is over."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.places: dict[int, int] = {}

    def job_return(self, job: Job) -> Credits:
        if not job.read.started:
            return super().job_return(job)
        job.read.orphaned_bytes += job.staging_bytes
        self.places[id(job.read)] = self.places.get(id(job.read), 0) + 1
        return NOTHING

    def end_read(self, read: Read) -> Credits:
        more = self._give(Credits(queue_slots=self.places.pop(id(read), 0)))
        return super().end_read(read) + more


@seeds.machine("RUN-026", "jobs/cancel-one-before-the-start")
class HeldWithoutNeed(Runtime):
    """Staging of a cancelled request is held though nothing was started."""

    def job_return(self, job: Job) -> Credits:
        job.read.orphaned_bytes += job.staging_bytes
        return self._give(Credits(queue_slots=1))

    def read_return(self, read: Read) -> Credits:
        if read.started:
            return NOTHING
        read.over = True
        return self._give(self.read_price(read.size) + Credits(staging_bytes=read.orphaned_bytes))


# --- credits come back ---


@seeds.machine("RUN-027", "jobs/cancel-the-last-before-the-start")
class CancelLeaksTheRead(Runtime):
    """A read that was called off before its start keeps its bytes for ever (LMCache#1034)."""

    def read_return(self, read: Read) -> Credits:
        if not read.started:
            read.over = True
        return NOTHING


@seeds.machine("RUN-027", "jobs/cancel-one-of-two", "jobs/cancel-all-of-three", "jobs/over-and-again")
class OrphansLeak(Runtime):
    """Staging of those who went away is never returned."""

    def end_read(self, read: Read) -> Credits:
        read.orphaned_bytes = 0
        return super().end_read(read)


@seeds.machine("RUN-027", "jobs/one-worker-fails", "jobs/over-and-again")
class FailureLeaks(Runtime):
    """A transfer that failed returns its places and nothing else."""

    def finish(self, read: Read, now_ms: Exact) -> Finished:
        if not self.succeeded(read):
            size, read.size = read.size, 0
            made = super().finish(read, now_ms)
            read.size = size
            return made
        return super().finish(read, now_ms)

    def succeeded(self, read: Read) -> bool:
        whole = int(dict(read.unit)["bytes"])
        return all(ok for ok, _ in read.reports.values()) and sum(n for _, n in read.reports.values()) == whole


@seeds.machine("RUN-027", "jobs/credits-of-joined-return-once", "identity/shared-by-three")
class BytesReturnForEachWaiter(Runtime):
    """Each waiter returns the unit's bytes."""

    def end_read(self, read: Read) -> Credits:
        more = len(read.jobs) - 1
        extra = [self._give(self.read_price(read.size)) for _ in range(max(0, more))]
        return sum(extra, super().end_read(read))


@seeds.machine("RUN-027", "jobs/wide-and-narrow")
class TheFirstSizeReturns(Runtime):
    """What returns is the size of the first transfer."""

    def end_read(self, read: Read) -> Credits:
        first = next(iter(self.reads.values()))
        wrong = self.read_price(first.size) - self.read_price(read.size)
        return super().end_read(read) + self._give(wrong)


@seeds.machine("RUN-027", "jobs/base", "jobs/over-and-again")
class LinkNeverReturns(Runtime):
    """Pinned memory comes back and the link does not."""

    def _give(self, amount: Credits) -> Credits:
        return super()._give(replace(amount, link_bytes=0))


@seeds.machine("RUN-027", "jobs/base")
class ReceiptIsEmpty(Runtime):
    """Credits come back without a receipt."""

    def complete(self, *report: Any) -> Finished:
        return replace(super().complete(*report), returned=NOTHING)


@seeds.machine("RUN-027", "jobs/cancel-all-of-three", "jobs/dropped-twice")
class CancelAndCompletionReturn(Runtime):
    """A cancelled transfer's bytes return with the cancellation and again with its completion."""

    def read_return(self, read: Read) -> Credits:
        return super().read_return(read) if not read.started else self._give(self.read_price(read.size))


# --- workers and reports ---


@seeds.machine("RUN-008", "jobs/three-workers", "jobs/one-worker-fails")
class FirstWorkerEndsIt(Runtime):
    """The first report ends the transfer."""

    def whole(self, read: Read) -> bool:
        return bool(read.reports)

    def succeeded(self, read: Read) -> bool:
        return all(ok for ok, _ in read.reports.values())


@seeds.machine("RUN-008", "jobs/three-workers")
class OneWorkerIsEnoughLess(Runtime):
    """The transfer ends when one worker has yet to report."""

    def whole(self, read: Read) -> bool:
        return len(read.reports) >= max(1, self.workers - 1)

    def succeeded(self, read: Read) -> bool:
        return all(ok for ok, _ in read.reports.values())


@seeds.machine("RUN-008", "jobs/unknown-workers")
class AnyWorkerCounts(Runtime):
    """Reports are counted, whoever makes them."""

    def complete(self, name: str, epoch: int, worker: int, ok: bool, moved: int, now_ms: Exact) -> Finished:
        before, self.workers = self.workers, max(self.workers, worker + 1)
        try:
            return super().complete(name, epoch, worker, ok, moved, now_ms)
        finally:
            self.workers = before


@seeds.machine("RUN-029", "jobs/three-workers")
class OneWorkerReportsForAll(Runtime):
    """A second report of one worker is taken for that of another."""

    def reported(self, read: Read, worker: int) -> bool:
        return len(read.reports) == self.workers

    def complete(self, name: str, epoch: int, worker: int, ok: bool, moved: int, now_ms: Exact) -> Finished:
        read = self.reads.get(name)
        if read is not None and worker in read.reports and len(read.reports) < self.workers:
            worker = next(one for one in range(self.workers) if one not in read.reports)
        return super().complete(name, epoch, worker, ok, moved, now_ms)


@seeds.machine("RUN-029", "jobs/reported-twice", "jobs/dropped-twice")
class DuplicatesReturnAgain(Runtime):
    """A completion that comes twice returns its credits twice."""

    def reported(self, read: Read, worker: int) -> bool:
        return super().reported(read, worker) and not read.over


class DuplicatesAreWelcome(Fault):
    """A completion that comes twice is called done and changes nothing."""

    requirement = "RUN-029"
    killed_by = case("jobs/reported-twice", "jobs/dropped-twice")

    def runtime_complete(self, request: Request) -> Result:
        try:
            return super().runtime_complete(request)
        except Rejected as refused:
            if refused.reason != "COMPLETION_DUPLICATE":
                raise
            return self.run_finished(Finished("done", (), (), NOTHING))


@seeds.machine("RUN-029", "jobs/unknown-transfers", "jobs/cancel-the-last-before-the-start")
class NeverStartedAndDone(Runtime):
    """A transfer that was never started can be completed."""

    def complete(self, name: str, epoch: int, worker: int, ok: bool, moved: int, now_ms: Exact) -> Finished:
        read = self.reads.get(name)
        if read is not None and epoch == self.epoch:
            read.started = True
        return super().complete(name, epoch, worker, ok, moved, now_ms)


@seeds.machine("RUN-029", "jobs/unknown-transfers")
class UnknownIsTheLatest(Runtime):
    """A report of an unknown transfer is taken for that of the latest one."""

    def complete(self, name: str, epoch: int, *report: Any) -> Finished:
        known = name in self.reads or not self.reads
        return super().complete(name if known else next(reversed(self.reads)), epoch, *report)


# --- failures ---


@seeds.machine("RUN-030", "jobs/one-worker-fails", "jobs/look-up-is-no-arrival")
class FailuresAreAsserted(Runtime):
    """Every report counts as a success, as in a worker that asserts it."""

    def succeeded(self, read: Read) -> bool:
        return True


@seeds.machine("RUN-030", "jobs/one-worker-fails")
class TheLastReportCounts(Runtime):
    """The last worker's report is taken for the result (vllm#43226)."""

    def succeeded(self, read: Read) -> bool:
        return list(read.reports.values())[-1][0]


@seeds.machine("RUN-030", "jobs/the-other-worker-fails")
class TheFirstReportCounts(Runtime):
    """The first worker's report is taken for the result."""

    def succeeded(self, read: Read) -> bool:
        return next(iter(read.reports.values()))[0]


@seeds.machine("RUN-009", "jobs/bytes-too-few", "jobs/bytes-too-many", "jobs/bytes-none")
class BytesAreNotCounted(Runtime):
    """A worker's word is enough."""

    def succeeded(self, read: Read) -> bool:
        return all(ok for ok, _ in read.reports.values())


@seeds.machine("RUN-009", "jobs/bytes-too-many")
class EnoughBytesAreEnough(Runtime):
    """More bytes than the unit has are as good."""

    def succeeded(self, read: Read) -> bool:
        moved = sum(size for _, size in read.reports.values())
        return all(ok for ok, _ in read.reports.values()) and moved >= read.size


@seeds.machine("RUN-009", "jobs/bytes-none")
class ZeroOfZeroIsDone(Runtime):
    """Nothing moved counts as everything moved (LMCache#2206)."""

    def succeeded(self, read: Read) -> bool:
        moved = sum(size for _, size in read.reports.values())
        return super().succeeded(read) or (moved == 0 and all(ok for ok, _ in read.reports.values()))


@seeds.machine("RUN-030", "jobs/one-worker-fails")
class FailureTurnsTheFirst(Runtime):
    """Only the first waiter hears of a failure; the others are called ready."""

    def finish(self, read: Read, now_ms: Exact) -> Finished:
        made = super().finish(read, now_ms)
        rest = tuple(name for name, _ in made.turned[1:])
        return replace(made, turned=made.turned[:1], ready=made.ready + rest)


# --- stores ---


@seeds.machine("RUN-031", "identity/store-is-not-joined", "jobs/failed-is-not-resident")
class PublishedAtReservation(Runtime):
    """A store's rows are there from its reservation on (dynamo#15079)."""

    def reserve(self, request: str, direction: str, unit: Unit, *more: Any) -> str | Turned | Admitted:
        made = super().reserve(request, direction, unit, *more)
        if direction == "store" and isinstance(made, Admitted):
            self.committed.add(unit)
        return made


@seeds.machine("RUN-031", "jobs/failed-is-not-resident", "index/failed-store")
class FailedStoresPublish(Runtime):
    """A store publishes when it is over, however it ended (LMCache#4991)."""

    def finish(self, read: Read, now_ms: Exact) -> Finished:
        if read.direction == "store":
            self.committed.add(read.unit)
        return super().finish(read, now_ms)


@seeds.machine("RUN-031", "jobs/cancelled-store", "epochs/rows-are-gone")
class CancelledStoresPublish(Runtime):
    """The completion of a cancelled store publishes its rows."""

    def end_read(self, read: Read) -> Credits:
        if read.dead and read.started and read.direction == "store":
            self.committed.add(read.unit)
        return super().end_read(read)


@seeds.machine("RUN-031", "identity/store-is-not-joined")
class StoredTwice(Runtime):
    """Two stores of one unit are under way at once."""

    def standing(self, direction: str, unit: Unit) -> str | None:
        found = super().standing(direction, unit)
        return None if found == "pending" else found


@seeds.machine("RUN-031", "jobs/cancelled-store")
class CancelledStoresBlock(Runtime):
    """After a cancelled store the rows are pending for ever."""

    def standing(self, direction: str, unit: Unit) -> str | None:
        found = super().standing(direction, unit)
        dead = any(read.dead and read.unit == unit for read in self.reads.values() if read.direction == "store")
        return "pending" if direction == "store" and found is None and dead else found


FAULTS: tuple[type[Fault], ...] = (
    *seeds.faults,
    DegradingExact,
    UntimedRecompute,
    CancelsAnything,
    DuplicatesAreWelcome,
)
