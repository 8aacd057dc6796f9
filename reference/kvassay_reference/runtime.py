"""A runtime that admits transfers against credits, shares reads, publishes an index and collects what was deleted.

Plain state and explicit rules. A *job* is one request's wait for rows, or the write of its rows; a *read* is the
transfer below it, which several loads of one unit share. What a transfer in flight may touch (pinned memory, link, and
the staging of those who wait for it) is held until all workers have reported; what a request holds for itself (its
place in the queue, and everything before its transfer was started) returns with the request. Article 0x08A, 0x08G to
0x08L.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from .errors import Refusal
from .runtime_admission import Action, Credits, Exact, Reason, Terms, free_credits

Unit = tuple[tuple[str, str | int], ...]
"""Full identity of rows: every field that their bytes and their meaning depend on, by name."""

NOTHING = Credits()


@dataclass
class Job:
    """One request's reservation."""

    request: str
    direction: str
    unit: Unit
    staging_bytes: int
    terms: Terms
    read: Read
    submitted: bool = False


@dataclass
class Read:
    """One transfer between backend and pinned memory, and on to or from the staging of its jobs."""

    name: str
    epoch: int
    direction: str
    unit: Unit
    size: int
    started: bool = False
    dead: bool = False
    """Nobody waits for it, or it is of a former epoch: it serves and publishes nothing."""
    jobs: list[Job] = field(default_factory=list)
    reports: dict[int, tuple[bool, int]] = field(default_factory=dict)
    """Worker to its success and its bytes."""
    orphaned_bytes: int = 0
    """Staging of jobs that went away while the transfer could touch it."""
    over: bool = False
    """It holds nothing any more."""


@dataclass
class Tombstone:
    """A deletion: the rows are gone for readers, and their memory waits."""

    generation: int
    durable: bool = False


@dataclass
class Lookup:
    """A look-up in flight, and what it can see."""

    generation: int
    visible: frozenset[Unit]


@dataclass(frozen=True)
class Admitted:
    """A reservation."""

    read: Read
    joined: bool
    charged: Credits


@dataclass(frozen=True)
class Turned:
    """A typed fallback in place of a reservation or of rows."""

    reason: Reason
    action: Action


@dataclass(frozen=True)
class Finished:
    """What a worker's report came to."""

    outcome: str
    ready: tuple[str, ...]
    turned: tuple[tuple[str, Turned], ...]
    returned: Credits


class Runtime:
    """One opening. Methods without an underscore are ops; the small ones below are each one rule."""

    def __init__(self, capacity: Credits, held: Credits, workers: int) -> None:
        self.budget = free_credits(capacity, held)
        """What jobs may take: capacity less what others hold."""
        self.taken = NOTHING
        self.workers = workers
        self.epoch = 1
        self.numbers = 0
        """Reads of this epoch."""
        self.started = 0
        """Transfers that were started, of all epochs."""
        self.jobs: dict[str, Job] = {}
        self.reads: dict[str, Read] = {}
        """By name; those of this epoch, over or not."""
        self.draining: dict[tuple[int, str], Read] = {}
        """Transfers of former epochs that may still touch memory."""
        self.committed: set[Unit] = set()
        self.generation = 0
        """The latest that was given to an index."""
        self.published = 0
        self.visible: frozenset[Unit] = frozenset()
        self.prepared: dict[int, frozenset[Unit]] = {}
        self.tombstones: dict[Unit, Tombstone] = {}
        self.lookups: dict[str, Lookup] = {}
        self.lookup_numbers = 0

    @property
    def free(self) -> Credits:
        """What is left for new jobs."""
        return self.budget - self.taken

    # --- credits ----------------------------------------------------------------------------------------------------

    def _take(self, amount: Credits) -> None:
        self.taken += amount

    def _give(self, amount: Credits) -> Credits:
        self.taken -= amount
        return amount

    def read_price(self, size: int) -> Credits:
        """Of a transfer: once, whoever waits."""
        return Credits(pinned_bytes=size, link_bytes=size)

    def job_price(self, staging_bytes: int) -> Credits:
        """Of a request: its own destination and its own place."""
        return Credits(staging_bytes=staging_bytes, queue_slots=1)

    # --- rows -------------------------------------------------------------------------------------------------------

    def commit(self, unit: Unit) -> str:
        """Rows crossed the commit boundary: they are authoritative in the backend."""
        self.check_unit(unit)
        if unit in self.tombstones:
            raise Refusal("UNIT_TOMBSTONED", "the rows were deleted")
        if unit in self.committed:
            return "resident"
        self.committed.add(unit)
        return "committed"

    def check_unit(self, unit: Unit) -> None:
        """Rows that are not known to be whole are not committed."""
        if dict(unit)["integrity"] != "valid":
            raise Refusal("UNIT_NOT_VALID", "the integrity is not established")

    # --- jobs -------------------------------------------------------------------------------------------------------

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
        """Admit a transfer, turn it to its fallback, or say why none is needed or possible."""
        if request in self.jobs:
            raise Refusal("REQUEST_TWICE", request)
        if direction == "store":
            self.check_unit(unit)
        standing = self.standing(direction, unit)
        if standing is not None:
            return standing
        if self.late(finish_ms, terms):
            return Turned("DEADLINE", self.action(terms, "DEADLINE", now_ms))
        size = int(dict(unit)["bytes"])
        read = self.joinable(unit) if direction == "load" else None
        charged = self.job_price(staging_bytes) + (self.read_price(size) if read is None else NOTHING)
        if not self.affordable(charged):
            return Turned("CREDIT_PRESSURE", self.action(terms, "CREDIT_PRESSURE", now_ms))
        self._take(charged)
        joined = read is not None
        if read is None:
            read = self.new_read(direction, unit, size)
        job = Job(request, direction, unit, staging_bytes, terms, read)
        self.jobs[request] = job
        read.jobs.append(job)
        return Admitted(read, joined, charged)

    def standing(self, direction: str, unit: Unit) -> str | None:
        """Why no transfer is to be made; ``None`` where one is."""
        if direction == "load":
            return None if unit in self.committed and unit not in self.tombstones else "miss"
        if unit in self.tombstones:
            raise Refusal("UNIT_TOMBSTONED", "the rows were deleted")
        if unit in self.committed:
            return "resident"
        writing = any(job.direction == "store" and job.unit == unit for job in self.jobs.values())
        return "pending" if writing else None

    def late(self, finish_ms: Exact, terms: Terms) -> bool:
        """Whether the transfer would be over after the deadline."""
        return finish_ms > terms.deadline_ms

    def affordable(self, charged: Credits) -> bool:
        """Whether the credits are free."""
        return self.free.covers(charged)

    def joinable(self, unit: Unit) -> Read | None:
        """A transfer of exactly these rows that somebody waits for."""
        for read in self.reads.values():
            if read.direction == "load" and read.jobs and not read.dead and self.same(read.unit, unit):
                return read
        return None

    def same(self, one: Unit, other: Unit) -> bool:
        """Full identity."""
        return one == other

    def new_read(self, direction: str, unit: Unit, size: int) -> Read:
        """Names begin anew with each epoch, as those of workers do."""
        self.numbers += 1
        read = Read(f"read-{self.numbers}", self.epoch, direction, unit, size)
        self.reads[read.name] = read
        return read

    def job(self, request: str) -> Job:
        """A job that has not ended."""
        if request not in self.jobs:
            raise Refusal("UNKNOWN_REQUEST", request)
        return self.jobs[request]

    def submit(self, request: str) -> tuple[str, Read]:
        """Start the job's transfer, unless somebody who waits for it did."""
        job = self.job(request)
        if job.submitted:
            raise Refusal("ALREADY_SUBMITTED", request)
        job.submitted = True
        if job.read.started:
            return "joined", job.read
        job.read.started = True
        self.started += 1
        return "submitted", job.read

    def cancel(self, request: str) -> tuple[str, Credits]:
        """The request goes; its transfer goes with the last one that waits for it."""
        job = self.job(request)
        read = job.read
        self.leave(job)
        returned = self.job_return(job)
        if read.jobs:
            return "withdrawn", returned
        read.dead = True
        return "dropped", returned + self.read_return(read)

    def leave(self, job: Job) -> None:
        """One waiter less."""
        del self.jobs[job.request]
        job.read.jobs.remove(job)

    def job_return(self, job: Job) -> Credits:
        """What a job gives back that goes before its transfer is over."""
        if not job.read.started:
            return self._give(self.job_price(job.staging_bytes))
        job.read.orphaned_bytes += job.staging_bytes
        return self._give(Credits(queue_slots=1))

    def read_return(self, read: Read) -> Credits:
        """What a dead transfer gives back at once: all, if it was never started."""
        if read.started:
            return NOTHING
        read.over = True
        return self._give(self.read_price(read.size))

    # --- completions ------------------------------------------------------------------------------------------------

    def complete(self, name: str, epoch: int, worker: int, ok: bool, moved: int, now_ms: Exact) -> Finished:
        """One worker's report on a transfer; the last one ends it."""
        if not 0 <= worker < self.workers:
            raise Refusal("UNKNOWN_WORKER", str(worker))
        if self.is_stale(epoch):
            self.drain(epoch, name, worker)
            raise Refusal("STALE_EPOCH", f"{name} of epoch {epoch}")
        read = self.reads.get(name)
        if read is None or epoch != self.epoch:
            raise Refusal("UNKNOWN_READ", name)
        if not read.started:
            raise Refusal("READ_NOT_STARTED", name)
        if self.reported(read, worker):
            raise Refusal("COMPLETION_DUPLICATE", f"worker {worker} of {name}")
        read.reports[worker] = (ok, moved)
        if not self.whole(read):
            return Finished("pending", (), (), NOTHING)
        if read.dead:
            return Finished("dropped", (), (), self.end_read(read))
        return self.finish(read, now_ms)

    def reported(self, read: Read, worker: int) -> bool:
        """Whether a worker has said what became of its part."""
        return worker in read.reports

    def is_stale(self, epoch: int) -> bool:
        """Whether a report is of a former epoch."""
        return epoch < self.epoch

    def drain(self, epoch: int, name: str, worker: int) -> None:
        """A transfer of a former epoch no longer touches memory once all its workers have reported."""
        read = self.draining.get((epoch, name))
        if read is None:
            return
        read.reports[worker] = (False, 0)
        if self.whole(read):
            del self.draining[(epoch, name)]
            self.end_read(read)

    def whole(self, read: Read) -> bool:
        """Whether every worker has reported."""
        return len(read.reports) == self.workers

    def succeeded(self, read: Read) -> bool:
        """Every worker succeeded, and their bytes are those of the unit."""
        return all(ok for ok, _ in read.reports.values()) and sum(n for _, n in read.reports.values()) == read.size

    def end_read(self, read: Read) -> Credits:
        """The transfer is over: what it could touch returns, and what its last jobs hold."""
        owed = self.read_price(read.size) + Credits(staging_bytes=read.orphaned_bytes)
        read.orphaned_bytes, read.over = 0, True
        for job in list(read.jobs):
            self.leave(job)
            owed += self.job_price(job.staging_bytes)
        return self._give(owed)

    def finish(self, read: Read, now_ms: Exact) -> Finished:
        """Rows for everybody who waits, or a fallback for each."""
        waiting = list(read.jobs)
        good = self.succeeded(read)
        if good and read.direction == "store":
            self.committed.add(read.unit)
        returned = self.end_read(read)
        if good:
            return Finished("done", tuple(job.request for job in waiting), (), returned)
        turned = [
            (job.request, Turned("TRANSFER_FAILED", self.action(job.terms, "TRANSFER_FAILED", now_ms)))
            for job in waiting
        ]
        return Finished("failed", (), tuple(turned), returned)

    def action(self, terms: Terms, reason: Reason, now_ms: Exact) -> Action:
        """What becomes of a request that is turned away."""
        return terms.fallback(reason, now_ms)

    # --- reset ------------------------------------------------------------------------------------------------------

    def reset(self) -> Credits:
        """A new epoch: no job, no row and no index entry of the former one is left; transfers in flight drain."""
        returned = NOTHING
        for job in list(self.jobs.values()):
            self.leave(job)
            returned += self.job_return(job)
        for read in self.reads.values():
            if read.over:
                continue
            read.dead = True
            if read.started:
                self.draining[(read.epoch, read.name)] = read
            else:
                returned += self.read_return(read)
        self.next_epoch()
        self.committed.clear()
        self.visible = frozenset()
        self.prepared.clear()
        self.tombstones.clear()
        return returned

    def next_epoch(self) -> None:
        """Names begin anew."""
        self.epoch += 1
        self.numbers = 0
        self.reads = {}

    # --- index ------------------------------------------------------------------------------------------------------

    def prepare_index(self, units: Iterable[Unit]) -> int:
        """Write entries under a generation that nobody can see."""
        self.generation += 1
        self.prepared[self.generation] = frozenset(units)
        return self.generation

    def publish_index(self, generation: int) -> int:
        """Make the entries visible, if all their rows are committed; how many are visible then."""
        if generation not in self.prepared:
            known = 0 < generation <= self.generation
            raise Refusal("STALE_INDEX_GENERATION" if known else "UNKNOWN_INDEX_GENERATION", str(generation))
        if generation < self.published:
            raise Refusal("STALE_INDEX_GENERATION", f"{generation} after {self.published}")
        self.check_rows(self.prepared[generation])
        self.visible |= self.prepared.pop(generation)
        self.published = generation
        return len(self.visible)

    def check_rows(self, units: Iterable[Unit]) -> None:
        """Only committed rows that were not deleted become searchable."""
        for unit in units:
            if unit in self.tombstones:
                raise Refusal("UNIT_TOMBSTONED", "an entry's rows were deleted")
        for unit in units:
            if unit not in self.committed:
                raise Refusal("ROW_NOT_COMMITTED", "an entry's rows are not committed")

    def look_up(self, unit: Unit) -> tuple[str, str, int]:
        """Begin a look-up: its outcome, its handle, and the generation that answers it."""
        self.lookup_numbers += 1
        name = f"lookup-{self.lookup_numbers}"
        self.lookups[name] = Lookup(self.published, self.visible)
        return ("hit" if self.finds(unit) else "miss"), name, self.published

    def finds(self, unit: Unit) -> bool:
        """Whether the published entries name the unit."""
        return unit in self.visible

    def end_lookup(self, name: str) -> None:
        """It refers to its generation no longer."""
        if self.lookups.pop(name, None) is None:
            raise Refusal("UNKNOWN_LOOKUP", name)

    # --- deletion ---------------------------------------------------------------------------------------------------

    def tombstone(self, unit: Unit) -> tuple[str, int]:
        """Delete rows for every later reader, under a new generation of the index."""
        if unit in self.tombstones:
            return "tombstoned", self.tombstones[unit].generation
        if unit not in self.committed:
            return "absent", self.published
        self.generation += 1
        self.published = self.generation
        self.visible -= {unit}
        self.tombstones[unit] = Tombstone(self.generation)
        return "tombstoned", self.generation

    def confirm_deletion(self, unit: Unit, durable: bool) -> None:
        """The backend's receipt; one that is not durable proves nothing."""
        if unit not in self.tombstones:
            raise Refusal("NOT_TOMBSTONED", "nothing was deleted")
        self.tombstones[unit].durable |= durable

    def collect(self, unit: Unit) -> None:
        """Take the memory of deleted rows back."""
        if unit not in self.tombstones:
            raise Refusal("NOT_TOMBSTONED", "the rows are not deleted")
        if self.leased(unit):
            raise Refusal("UNIT_UNDER_LEASE", "a transfer reads the rows")
        if self.looked_at(unit):
            raise Refusal("LOOKUP_IN_FLIGHT", "a look-up may still answer with the rows")
        if not self.tombstones[unit].durable:
            raise Refusal("DELETION_NOT_DURABLE", "the backend may bring the rows back")
        del self.tombstones[unit]
        self.committed.discard(unit)

    def leased(self, unit: Unit) -> bool:
        """Whether somebody waits for the rows, or a transfer may still read them."""
        waiting = any(job.unit == unit for job in self.jobs.values())
        moving = [*self.draining.values(), *(one for one in self.reads.values() if one.started and not one.over)]
        return waiting or any(read.unit == unit for read in moving)

    def looked_at(self, unit: Unit) -> bool:
        """Whether a look-up in flight sees the rows."""
        return any(unit in lookup.visible for lookup in self.lookups.values())
