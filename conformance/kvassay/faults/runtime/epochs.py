"""Faults of resets and of the completions after them."""

from __future__ import annotations

from typing import Any

from kvassay_reference.errors import Refusal
from kvassay_reference.runtime import NOTHING, Finished, Job, Read, Runtime
from kvassay_reference.runtime_admission import Credits

from ..base import Fault
from .base import Seeds

seeds = Seeds(__name__)


@seeds.machine("RUN-028", "epochs/late-completion-of-a-reused-name", "epochs/three-resets")
class EpochIsNotCompared(Runtime):
    """A late completion ends the transfer that has its name now (vllm#43226)."""

    def complete(self, name: str, epoch: int, *report: Any) -> Finished:
        return super().complete(name, self.epoch if name in self.reads else epoch, *report)


@seeds.machine("RUN-028", "epochs/three-resets")
class EpochIsAFlag(Runtime):
    """Epochs are told apart as odd and even."""

    def complete(self, name: str, epoch: int, *report: Any) -> Finished:
        return super().complete(name, self.epoch if (self.epoch - epoch) % 2 == 0 else epoch, *report)


@seeds.machine("RUN-028", "epochs/late-completion-of-a-reused-name", "epochs/memory-in-flight")
class LateCompletionsAreUnknown(Runtime):
    """A late completion is rejected and forgotten, and its memory is held for ever."""

    def drain(self, epoch: int, name: str, worker: int) -> None:
        return None


@seeds.machine("RUN-028", "epochs/rows-are-gone")
class LateStoresPublish(Runtime):
    """A store from before a reset publishes its rows after it (vllm#57727)."""

    def drain(self, epoch: int, name: str, worker: int) -> None:
        read = self.draining.get((epoch, name))
        super().drain(epoch, name, worker)
        if read is not None and read.over and read.direction == "store":
            self.committed.add(read.unit)


class _Told(Runtime):
    """Late completions are called dropped instead of being rejected."""

    def complete(self, name: str, epoch: int, worker: int, *report: Any) -> Finished:
        try:
            return super().complete(name, epoch, worker, *report)
        except Refusal as refusal:
            if refusal.reason != "STALE_EPOCH":
                raise
            return Finished("dropped", (), (), NOTHING)


@seeds.machine("RUN-028", "epochs/late-completion-twice", "epochs/memory-in-flight")
class LateCompletionsAreAccepted(_Told):
    """A completion of a former epoch is accepted like any other."""


@seeds.machine("RUN-026", "epochs/memory-in-flight", "epochs/late-workers", "epochs/three-resets")
class ResetFreesWhatIsWritten(Runtime):
    """A reset returns everything, and copies in flight write into what is given away next (vllm#47282)."""

    def reset(self) -> Credits:
        before = self.free
        super().reset()
        self.draining.clear()
        self.taken = NOTHING
        return self.free - before


@seeds.machine("RUN-026", "epochs/memory-in-flight", "epochs/late-completion-of-a-reused-name")
class ResetFreesStaging(Runtime):
    """A reset returns the destinations of transfers in flight."""

    def reset(self) -> Credits:
        staging = sum(job.staging_bytes for job in self.jobs.values() if job.read.started)
        made = super().reset()
        for read in self.draining.values():
            read.orphaned_bytes = 0
        return made + self._give(Credits(staging_bytes=staging))


@seeds.machine("RUN-026", "epochs/late-workers")
class FirstLateWorkerDrains(Runtime):
    """One late report of several ends the transfer."""

    def drain(self, epoch: int, name: str, worker: int) -> None:
        read = self.draining.get((epoch, name))
        if read is not None:
            read.reports = dict.fromkeys(range(self.workers), (False, 0))
        super().drain(epoch, name, worker)


@seeds.machine("RUN-026", "epochs/three-resets")
class OnlyOneEpochDrains(Runtime):
    """A second reset forgets what the first one left in flight, and returns it."""

    def reset(self) -> Credits:
        early = list(self.draining.values())
        self.draining.clear()
        returned = sum((self.end_read(read) for read in early), NOTHING)
        return returned + super().reset()


@seeds.machine("RUN-027", "epochs/late-completion-twice")
class DrainedTwice(Runtime):
    """A late completion that comes again returns its credits again."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.drained: dict[tuple[int, str], Read] = {}

    def drain(self, epoch: int, name: str, worker: int) -> None:
        again = self.drained.get((epoch, name))
        if again is not None:
            self.end_read(again)
            return
        read = self.draining.get((epoch, name))
        super().drain(epoch, name, worker)
        if read is not None and read.over:
            self.drained[(epoch, name)] = read


@seeds.machine("RUN-027", "epochs/cancelled-then-reset")
class ResetReturnsTheCancelled(Runtime):
    """A reset returns what a cancellation before it has returned."""

    def reset(self) -> Credits:
        gone = [read for read in self.reads.values() if read.dead and not read.started]
        made = super().reset()
        return sum((self._give(self.read_price(read.size)) for read in gone), made)


@seeds.machine("RUN-026", "epochs/nothing-in-flight")
class ResetLeaksReservations(Runtime):
    """The bytes of what was reserved and not started are lost in a reset."""

    resetting = False

    def read_return(self, read: Read) -> Credits:
        if self.resetting:
            read.over = True
            return NOTHING
        return super().read_return(read)

    def reset(self) -> Credits:
        self.resetting = True
        made = super().reset()
        self.resetting = False
        return made


@seeds.machine("RUN-032", "epochs/nothing-in-flight")
class JobsSurvive(Runtime):
    """Requests keep their jobs over a reset."""

    def reset(self) -> Credits:
        jobs = dict(self.jobs)
        made = super().reset()
        self.jobs = {name: job for name, job in jobs.items() if not job.read.started}
        for job in self.jobs.values():
            job.read.jobs.append(job)
        return made

    def leave(self, job: Job) -> None:
        if job in job.read.jobs:
            job.read.jobs.remove(job)
        self.jobs.pop(job.request, None)


@seeds.machine("RUN-032", "epochs/rows-are-gone", "epochs/nothing-in-flight", "epochs/memory-in-flight")
class RowsSurvive(Runtime):
    """Rows of the former epoch are served in the next (lmdeploy#4917)."""

    def reset(self) -> Credits:
        rows = set(self.committed)
        made = super().reset()
        self.committed = rows
        return made


@seeds.machine("RUN-032", "epochs/index-is-gone")
class EntriesSurvive(Runtime):
    """Index entries of the former epoch are found in the next."""

    def reset(self) -> Credits:
        visible = self.visible
        made = super().reset()
        self.visible = visible
        return made


@seeds.machine("RUN-032", "epochs/index-is-gone")
class PreparedSurvive(Runtime):
    """Entries that were prepared before a reset can be published after it."""

    def reset(self) -> Credits:
        prepared = dict(self.prepared)
        made = super().reset()
        self.prepared = prepared
        return made


@seeds.machine("RUN-032", "epochs/index-is-gone")
class TombstonesSurvive(Runtime):
    """Deletions of the former epoch bar rows of the next."""

    def reset(self) -> Credits:
        tombstones = dict(self.tombstones)
        made = super().reset()
        self.tombstones = tombstones
        return made


@seeds.machine("RUN-032", "epochs/nothing-in-flight", "epochs/memory-in-flight")
class EpochStays(Runtime):
    """A reset begins no epoch."""

    def next_epoch(self) -> None:
        self.reads = {}


@seeds.machine("RUN-035", "epochs/index-is-gone")
class GenerationsBeginAnew(Runtime):
    """After a reset generations are numbered from the start."""

    def reset(self) -> Credits:
        made = super().reset()
        self.generation = self.published = 0
        return made


@seeds.machine("RUN-038", "epochs/look-up-across-a-reset")
class ResetEndsLookUps(Runtime):
    """A reset forgets the look-ups in flight."""

    def reset(self) -> Credits:
        for lookup in self.lookups.values():
            lookup.visible = frozenset()
        return super().reset()


@seeds.machine("RUN-037", "epochs/transfer-across-a-reset")
class OldTransfersHoldNothing(Runtime):
    """A transfer of a former epoch is no lease."""

    def leased(self, unit: Any) -> bool:
        draining, self.draining = self.draining, {}
        found = super().leased(unit)
        self.draining = draining
        return found


FAULTS: tuple[type[Fault], ...] = tuple(seeds.faults)
