"""Engines that do not claim ``runtime.exact``: one that is correct, and faults that only the lesser rules can see."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from kvassay_reference.errors import Refusal
from kvassay_reference.runtime import NOTHING, Finished, Job, Read, Runtime
from kvassay_reference.runtime_admission import Credits

from ...engines.reference import Reference
from ..base import Fault
from .base import Machine, Result, Seeds

LAX: Mapping[str, Any] = {"runtime.exact": False}
seeds = Seeds(__name__)


def untold(engine: Reference, **members: Any) -> Result:
    """A reply without credits: what comes back shows in what is admitted, and nowhere else."""
    return {**{name: value for name, value in members.items() if name != "returned"}, "free": {}, "engine_calls": 1}


AGAIN = "of engines that are not exact, fuzzing cancels only requests that are under way"
"""Why it does not come to a second cancellation."""


def machine(requirement: str, *names: str, **members: Any) -> Callable[[Machine], Machine]:
    """A fault of an engine that is held to what no engine may do, and tells as little as it can."""
    cases = (f"engines/{name}" for name in names)
    return seeds.machine(requirement, *cases, own_capabilities=LAX, run_free_told=untold, **members)


class Ignoring(Runtime):
    """A request that has gone may go again, and nothing happens."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.gone: dict[str, Job] = {}
        """Jobs that are over or were cancelled, by request."""

    def leave(self, job: Job) -> None:
        """It is remembered."""
        super().leave(job)
        self.gone[job.request] = job

    def cancel(self, request: str) -> tuple[str, Credits]:
        """A second cancellation is accepted."""
        if request not in self.jobs and request in self.gone:
            return "dropped", self.cancelled_again(self.gone[request])
        return super().cancel(request)

    def cancelled_again(self, job: Job) -> Credits:
        """What comes back then."""
        return NOTHING


class ReferenceNotExact(Reference):
    """The reference without the claim to be exact, which ignores what ends twice and calls late completions dropped."""

    own_capabilities: ClassVar[Mapping[str, Any]] = LAX

    class Lenient(Ignoring):
        """Late completions are no error."""

        def complete(self, name: str, epoch: int, worker: int, *report: Any) -> Finished:
            """As any other, to the worker who reports."""
            try:
                return super().complete(name, epoch, worker, *report)
            except Refusal as refusal:
                if refusal.reason != "STALE_EPOCH":
                    raise
                return Finished("dropped", (), (), NOTHING)

    run_class: ClassVar[type[Runtime]] = Lenient


@machine("RUN-027", "cancelled-twice-in-flight-seats", "cancelled-twice-before-its-start-seats", fuzz_silent=AGAIN)
class SeatOfTheCancelledTwice(Ignoring):
    """Each cancellation of a request returns its place in the queue."""

    def cancelled_again(self, job: Job) -> Credits:
        return NOTHING if job.read.over and job.read.started else self._give(Credits(queue_slots=1))


@machine(
    "RUN-027", *(f"cancelled-twice-before-its-start-{one}" for one in ("pinned", "staging", "seats")), fuzz_silent=AGAIN
)
class AllOfTheCancelledTwice(Ignoring):
    """A request that was cancelled before its start gives back everything with each cancellation."""

    def cancelled_again(self, job: Job) -> Credits:
        if job.read.started:
            return NOTHING
        return self._give(self.job_price(job.staging_bytes) + self.read_price(job.read.size))


@machine("RUN-027", "cancelled-twice-in-flight-pinned", fuzz_silent=AGAIN)
class SecondCancelEndsTheTransfer(Ignoring):
    """A second cancellation takes the transfer in flight for over, and its completion returns the rest again."""

    def cancelled_again(self, job: Job) -> Credits:
        moving = job.read.started and not job.read.over
        return self._give(self.read_price(job.read.size)) if moving else NOTHING


@machine("RUN-033", "cancelled-after-its-end-staging", "cancelled-after-its-end-seats", fuzz_silent=AGAIN)
class CancelledAfterTheEnd(Ignoring):
    """A cancellation that comes after the completion returns what the completion returned."""

    def cancelled_again(self, job: Job) -> Credits:
        return self._give(self.job_price(job.staging_bytes)) if job.read.over and job.read.started else NOTHING


@machine("RUN-027", "cancelled-then-reset-staging", "cancelled-then-reset-seats")
class ResetCancelsAgain(Ignoring):
    """A reset cancels every request that the runtime remembers, also those that were cancelled before."""

    def reset(self) -> Credits:
        before = [job for job in self.gone.values() if job.read.started and not job.read.over]
        returned = super().reset()
        self.gone.clear()
        return sum((self._give(self.job_price(job.staging_bytes)) for job in before), returned)


@machine("RUN-025", "withdrawn-twice", "withdrawn-twice-of-three", fuzz_silent=AGAIN)
class WaitersAreCounted(Ignoring):
    """Each cancellation takes one waiter from the transfer, and a second one takes another's."""

    def cancelled_again(self, job: Job) -> Credits:
        if not job.read.jobs:
            return NOTHING
        other = job.read.jobs[-1]
        self.leave(other)
        return self.job_return(other)


@machine("RUN-009", "begun-again-while-in-flight", "begun-again-twice")
class ServedByName(Runtime):
    """A completion that nobody waits for any more ends the job that has the name of who did."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.departures: list[tuple[str, Read]] = []

    def leave(self, job: Job) -> None:
        super().leave(job)
        self.departures.append((job.request, job.read))

    def complete(self, name: str, epoch: int, *report: Any) -> Finished:
        made = super().complete(name, epoch, *report)
        if made.outcome != "dropped":
            return made
        left = {request for request, read in self.departures if (read.name, read.epoch) == (name, epoch)}
        served = [job for request, job in self.jobs.items() if request in left]
        for job in served:
            self.leave(job)
            self.job_return(job)
        return Finished("done", tuple(job.request for job in served), (), made.returned) if served else made


@machine("RUN-032", "stored-then-reset")
class StoredRowsSurvive(Runtime):
    """A reset forgets rows that were there, and keeps those that requests have stored."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.stored: set[Any] = set()

    def finish(self, read: Read, *more: Any) -> Finished:
        made = super().finish(read, *more)
        if made.outcome == "done" and read.direction == "store":
            self.stored.add(read.unit)
        return made

    def reset(self) -> Credits:
        returned = super().reset()
        self.committed |= self.stored
        return returned


@machine("RUN-032", "late-store", "late-stores-of-two-epochs", "late-store-of-the-same-rows")
class LateStoreIsThere(Runtime):
    """A store of a former epoch publishes its rows in the present one; its report is refused all the same."""

    def drain(self, epoch: int, name: str, worker: int) -> None:
        read = self.draining.get((epoch, name))
        super().drain(epoch, name, worker)
        if read is not None and read.over and read.direction == "store":
            self.committed.add(read.unit)


@machine("RUN-028", "late-stores-of-two-epochs", "late-store-of-the-same-rows", "reset-in-flight")
class LateEndsTheNew(Runtime):
    """A late completion ends the transfer that has its name now (vllm#43226)."""

    def complete(self, name: str, epoch: int, *report: Any) -> Finished:
        return super().complete(name, self.epoch if name in self.reads else epoch, *report)


FAULTS: tuple[type[Fault], ...] = tuple(seeds.faults)
