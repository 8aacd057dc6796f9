"""Faults that only a second input shows: ties, decimals, nodes, names, receipts, and the order of the reasons."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from kvassay_reference import runtime_admission, runtime_documents
from kvassay_reference.errors import Refusal
from kvassay_reference.runtime import Job, Read, Runtime, Tombstone, Unit
from kvassay_reference.runtime_admission import Ask, Batch, Buckets, Credits, Decision, Estimate, Exact, Path, Terms

from ..base import Fault, title
from .base import FIELDS, Request, Result, Seeds, case, fault, without

seeds = Seeds(__name__)

# --- batches, policies, estimates ---


class Keyed(Fault):
    """Batches whose key is spoiled."""

    def key(self, row: Request, buckets: Buckets) -> dict[str, Any]:
        """The key of a request."""
        return runtime_admission.batch_key(row, buckets)

    def run_batches(
        self, rows: Sequence[Request], buckets: Buckets, cap_bytes: int, staging_bytes: int
    ) -> tuple[list[Batch], list[tuple[str, str]]]:
        marked = [
            {**row, "identity": repr(sorted(self.key(row, buckets).items())), "candidates": 0, "slack_ms": 0}
            for row in rows
        ]
        plain = replace(buckets, fetch_bytes=1 << 60, slack_ms=())
        made, deferred = super().run_batches(marked, plain, cap_bytes, staging_bytes)
        keys = {row["request"]: self.key(row, buckets) for row in rows}
        for batch in made:
            batch.key = keys[batch.requests[0]]
        return made, deferred


@seeds.add
class WholeMilliseconds(Keyed):
    """Slack is cut to whole milliseconds before it is compared."""

    requirement = "RUN-002"
    killed_by = case("batches/fractions-of-a-millisecond")

    def key(self, row: Request, buckets: Buckets) -> dict[str, Any]:
        return super().key({**row, "slack_ms": int(row["slack_ms"])}, buckets)


@seeds.add
class BucketByLogarithm(Keyed):
    """The bucket is a logarithm in floating point."""

    requirement = "RUN-002"
    killed_by = case("batches/large-counts")

    def key(self, row: Request, buckets: Buckets) -> dict[str, Any]:
        size = row["fetch_bytes"] / buckets.fetch_bytes
        bucket = 0 if not size else max(1, 1 + math.ceil(math.log2(size)))
        return {**super().key(row, buckets), "fetch_bucket": bucket}


Order = Callable[[str, Ask], Any]


def tied(name: str, text: str, requirement: str, names: Iterable[str], key: Order) -> type[Fault]:
    """A policy that sorts by something else."""

    def run_order(self: Fault, policy: str, asks: Sequence[Ask]) -> list[Ask]:
        return sorted(asks, key=lambda ask: key(policy, ask))

    return fault(__name__, name, text, requirement, names, run_order=run_order)


def by_policy(policy: str, ask: Ask, last: Any, deadline: Exact | int) -> tuple[Any, ...]:
    """The order of a policy, with another deadline and another tie."""
    if policy == "fifo":
        return (ask.arrival,)
    return (policy == "exact_deadline_coalescing" and ask.terms.contract != "exact", deadline, last)


TIES = "policies/ties-by-arrival-alone"
for _made in (
    tied("TiesByName", "Equal deadlines are taken by name.", "RUN-018", [TIES],
         lambda policy, ask: by_policy(policy, ask, ask.name, ask.terms.deadline_ms)),
    tied("TiesByPlace", "Equal deadlines are taken as the list has them.", "RUN-019", [TIES],
         lambda policy, ask: by_policy(policy, ask, 0, ask.terms.deadline_ms)),
    tied("ArrivalAsText", "Arrivals are sorted as text.", "RUN-017", [TIES],
         lambda policy, ask: (str(ask.arrival),) if policy == "fifo"
         else by_policy(policy, ask, ask.arrival, ask.terms.deadline_ms)),
    tied("DeadlinesInMilliseconds", "Deadlines are compared in whole milliseconds.", "RUN-018",
         ["policies/deadlines-apart-by-a-fraction"],
         lambda policy, ask: by_policy(policy, ask, ask.arrival, int(ask.terms.deadline_ms))),
):  # fmt: skip
    seeds.add(_made)


@seeds.add
class RoundedEnds(Fault):
    """Ends of transfers are told to a microsecond."""

    requirement = "RUN-013"
    killed_by = case("policies/finishes-to-the-last-digit")

    def run_told(self, made: Decision, free: Credits, asks: Sequence[Ask]) -> Result:
        told = super().run_told(made, free, asks)
        return {**told, "finish_ms": [round(end, 3) for end in told["finish_ms"]]}


@seeds.add
class CrossingByDistance(Fault):
    """The cost of crossing is paid for each node between."""

    requirement = "RUN-013"
    killed_by = case("estimates/between-far-nodes")

    def run_estimated(self, path: Path, size: int, worker_numa: int, crossing_ms: Exact) -> Estimate:
        made = super().run_estimated(path, size, worker_numa, crossing_ms)
        return replace(made, numa_ms=crossing_ms * abs(path.numa - worker_numa))


@seeds.add
class EndInBinary(Fault):
    """The end is added up in floating point before it is compared."""

    requirement = "RUN-020"
    killed_by = case("estimates/decimals-of-the-end")

    def runtime_estimate(self, request: Request) -> Result:
        made = super().runtime_estimate(request)
        return {**made, "in_time": request["now_ms"] + made["total_ms"] <= request["deadline_ms"]}


@seeds.choice("RUN-021", "policies/fallbacks-in-decimals", "jobs/recomputation-in-decimals")
def recomputes_in_binary(terms: Terms, why: Any, now_ms: Exact) -> Any:
    """The end of a recomputation is added up in floating point."""
    took = terms.recompute_ms
    if took is not None and float(now_ms) + float(took) > float(terms.deadline_ms):
        terms = replace(terms, fallbacks=tuple(one for one in terms.fallbacks if one != "recompute"))
    return terms.fallback(why, now_ms)


@seeds.choice("RUN-021", "policies/degraded-after-the-deadline", "jobs/degraded-after-the-deadline")
def degrades_in_time_alone(terms: Terms, why: Any, now_ms: Exact) -> Any:
    """After the deadline nothing is degraded any more."""
    if now_ms >= terms.deadline_ms:
        terms = replace(terms, fallbacks=tuple(one for one in terms.fallbacks if one != "degrade"))
    return terms.fallback(why, now_ms)


@seeds.machine("RUN-021", "jobs/first-choice-postpone-recompute", "jobs/first-choice-degrade-recompute")
class RecomputesWherePossible(Runtime):
    """Jobs recompute where they may, whatever else they would rather do."""

    def action(self, terms: Terms, reason: Any, now_ms: Exact) -> Any:
        return replace(terms, fallbacks=tuple(sorted(terms.fallbacks, key="recompute".__ne__))).fallback(reason, now_ms)


@seeds.machine("RUN-021", "jobs/first-choice-postpone-degrade", "jobs/first-choice-recompute-postpone")
class LastOfTheList(Runtime):
    """Jobs read the list of their fallbacks from its end."""

    def action(self, terms: Terms, reason: Any, now_ms: Exact) -> Any:
        return replace(terms, fallbacks=terms.fallbacks[::-1]).fallback(reason, now_ms)


@seeds.machine("RUN-021", "jobs/first-choice-degrade-postpone")
class WaitsRatherThanDegrade(Runtime):
    """Jobs postpone before they degrade, as though the list had no order."""

    def action(self, terms: Terms, reason: Any, now_ms: Exact) -> Any:
        return replace(terms, fallbacks=tuple(sorted(terms.fallbacks, key="degrade".__eq__))).fallback(reason, now_ms)


# --- jobs and epochs ---


@seeds.machine("RUN-024", "jobs/starter-gone-before-the-second-submits")
class StartsAgain(Runtime):
    """A transfer counts as started while a job that was submitted waits for it."""

    def submit(self, request: str) -> tuple[str, Read]:
        job = self.job(request)
        if job.read.started and not any(one.submitted for one in job.read.jobs):
            job.submitted = True
            self.started += 1
            return "submitted", job.read
        return super().submit(request)


@seeds.machine("RUN-033", "jobs/name-free-while-its-transfer-drains")
class NameOfTheTransfer(Runtime):
    """A request's name is taken as long as its transfer drains."""

    def __init__(self, *amounts: Any) -> None:
        super().__init__(*amounts)
        self.gone: dict[str, Read] = {}

    def leave(self, job: Job) -> None:
        super().leave(job)
        self.gone[job.request] = job.read

    def reserve(self, request: str, *terms: Any) -> Any:
        read = self.gone.get(request)
        if read is not None and read.started and not read.over:
            raise Refusal("REQUEST_TWICE", request)
        return super().reserve(request, *terms)


@seeds.machine("RUN-029", "jobs/failed-worker-reports-again")
class FailureIsNoReport(Runtime):
    """A worker that failed may report again."""

    def reported(self, read: Read, worker: int) -> bool:
        return super().reported(read, worker) and read.reports[worker][0]


@seeds.machine("RUN-031", "jobs/store-of-two-workers")
class FirstWorkerPublishes(Runtime):
    """Rows of a store are there when its first worker has succeeded."""

    def complete(self, name: str, epoch: int, worker: int, ok: bool, moved: int, now_ms: Exact) -> Any:
        made = super().complete(name, epoch, worker, ok, moved, now_ms)
        read = self.reads.get(name)
        if read is not None and read.direction == "store" and ok and not read.dead:
            self.committed.add(read.unit)
        return made


@seeds.machine("RUN-031", "jobs/store-of-two-workers")
class OnlyStartedStoresArePending(Runtime):
    """A store that was not started holds up no other."""

    def standing(self, direction: str, unit: Unit) -> str | None:
        found = super().standing(direction, unit)
        started = any(job.direction == "store" and job.unit == unit and job.read.started for job in self.jobs.values())
        return None if found == "pending" and not started else found


@seeds.machine("RUN-026", "epochs/reports-before-and-after-a-reset")
class ResetForgetsReports(Runtime):
    """Reports that came before a reset are waited for again."""

    def reset(self) -> Credits:
        returned = super().reset()
        for read in self.draining.values():
            read.reports.clear()
        return returned


@seeds.machine("RUN-028", "epochs/one-name-in-three-epochs")
class DrainsByName(Runtime):
    """A late report ends the oldest transfer of its name."""

    def drain(self, epoch: int, name: str, worker: int) -> None:
        oldest = min((one for one, other in self.draining if other == name), default=epoch)
        super().drain(oldest, name, worker)


@seeds.machine("RUN-029", "epochs/unknown-worker-first")
class EpochBeforeWorker(Runtime):
    """The epoch of a report is looked at before its worker."""

    def complete(self, name: str, epoch: int, worker: int, ok: bool, moved: int, now_ms: Exact) -> Any:
        if self.is_stale(epoch) and not 0 <= worker < self.workers:
            raise Refusal("STALE_EPOCH", name)
        return super().complete(name, epoch, worker, ok, moved, now_ms)


@seeds.machine("RUN-020", "jobs/nothing-to-move-before-the-deadline")
class DeadlineFirst(Runtime):
    """A deadline is asked before it is known whether anything is to be moved."""

    def standing(self, direction: str, unit: Unit) -> str | None:
        found = super().standing(direction, unit)
        return None if found is not None and self.hurried else found

    def reserve(
        self, request: str, direction: str, unit: Unit, staging_bytes: int, terms: Terms, now_ms: Exact, end: Exact
    ) -> Any:
        self.hurried = self.late(end, terms)
        return super().reserve(request, direction, unit, staging_bytes, terms, now_ms, end)


@seeds.add
class NameFirst(Fault):
    """A second reservation is refused before its terms are read."""

    requirement = "RUN-033"
    killed_by = case("jobs/terms-before-the-name")

    def runtime_reserve(self, request: Request) -> Result:
        name = request["request"]
        if name in self.run_machine.jobs:
            request = {**request, "fallbacks": []}
        return super().runtime_reserve(request)


# --- index and deletion ---


@seeds.machine(
    "RUN-034",
    "index/deleted-before-uncommitted-uncommitted-first",
    "index/deleted-before-uncommitted-uncommitted-last",
)
class RowByRow(Runtime):
    """Entries are checked one after another, in the order of their positions."""

    def check_rows(self, units: Iterable[Unit]) -> None:
        for unit in sorted(units):
            super().check_rows([unit])


@seeds.machine("RUN-039", "deletion/receipt-of-an-earlier-deletion")
class ReceiptForGood(Runtime):
    """A receipt of some rows counts for all their deletions to come."""

    def __init__(self, *amounts: Any) -> None:
        super().__init__(*amounts)
        self.confirmed: set[Unit] = set()

    def confirm_deletion(self, unit: Unit, durable: bool) -> None:
        super().confirm_deletion(unit, durable)
        if durable:
            self.confirmed.add(unit)

    def tombstone(self, unit: Unit) -> tuple[str, int]:
        made = super().tombstone(unit)
        if unit in self.confirmed and unit in self.tombstones:
            self.tombstones[unit].durable = True
        return made


@seeds.machine("RUN-039", "deletion/receipt-of-one-of-two")
class ReceiptOfTheLot(Runtime):
    """One receipt confirms all deletions."""

    def confirm_deletion(self, unit: Unit, durable: bool) -> None:
        super().confirm_deletion(unit, durable)
        for other in self.tombstones.values():
            other.durable |= durable


@seeds.machine("RUN-036", "deletion/deleted-again-after-the-receipt")
class DeletionAnew(Runtime):
    """A deletion that is repeated waits for another receipt."""

    def tombstone(self, unit: Unit) -> tuple[str, int]:
        made = super().tombstone(unit)
        if unit in self.tombstones:
            self.tombstones[unit] = Tombstone(self.tombstones[unit].generation)
        return made


@seeds.machine("RUN-037", "deletion/under-a-store")
class StoresLeaseNothing(Runtime):
    """Only loads hold the rows that they are about."""

    def leased(self, unit: Unit) -> bool:
        stores = {name: job for name, job in self.jobs.items() if job.direction == "store"}
        if not stores:
            return super().leased(unit)
        waiting = any(job.unit == unit for name, job in self.jobs.items() if name not in stores)
        return waiting or any(
            one.unit == unit and one.direction == "load" for one in self.reads.values() if one.started
        )


def deletes_without(field: str) -> type[Runtime]:
    """A machine whose deletions compare all fields but one."""

    class Deleting(Runtime):
        def tombstone(self, unit: Unit) -> tuple[str, int]:
            made = super().tombstone(unit)
            if made[0] == "tombstoned":
                self.visible = frozenset(one for one in self.visible if without(one, field) != without(unit, field))
            return made

    return Deleting


def leases_without(field: str) -> type[Runtime]:
    """A machine whose leases compare all fields but one."""

    class Leasing(Runtime):
        def leased(self, unit: Unit) -> bool:
            mine = without(unit, field)
            return super().leased(unit) or any(without(job.unit, field) == mine for job in self.jobs.values())

    return Leasing


for _field in FIELDS:
    _word = _field.replace("_", "-")
    _name = title(_field)
    seeds.add(
        fault(
            __name__,
            f"DeletesWithout{_name}",
            f"A deletion takes entries with it that differ in {_field} alone.",
            "RUN-036",
            [f"deletion/not-of-another-{_word}"],
            run_class=deletes_without(_field),
        )
    )
    seeds.add(
        fault(
            __name__,
            f"LeasesWithout{_name}",
            f"A job holds up the collection of rows that differ from its own in {_field} alone.",
            "RUN-037",
            [f"deletion/not-of-another-{_word}"],
            run_class=leases_without(_field),
        )
    )


@seeds.machine("RUN-040", "identity/unverified-rows-are-others")
class IntegrityIsNoField(Runtime):
    """A look-up finds rows whatever is known of their integrity."""

    def finds(self, unit: Unit) -> bool:
        return without(unit, "integrity") in {without(one, "integrity") for one in self.visible}


# --- the order of the reasons ---


def swapped(name: str, requirement: str, names: Iterable[str], member: str, first: str, second: str) -> type[Fault]:
    """Two neighbouring rules in the wrong order."""
    rules: list[Any] = list(getattr(runtime_documents, member.upper()))
    at = next(at for at in range(len(rules) - 1) if (rules[at][0], rules[at + 1][0]) == (first, second))
    rules[at], rules[at + 1] = rules[at + 1], rules[at]
    return fault(__name__, name, f"{second} is found before {first}.", requirement, names, **{member: tuple(rules)})


_SWAPPED = (
    ("PathsBeforeCredits", "RUN-010", "step/first-reason-of-credits", "admission_rules",
     "FREE_NOT_DERIVED", "UNKNOWN_NUMA_NODE"),
    ("MeasurementBeforeLink", "RUN-014", "step/first-reason-of-credits", "admission_rules",
     "RATE_ABOVE_LINK", "RATE_NOT_MEASURED"),
    ("IntegrityBeforeAuthority", "RUN-016", "step/first-reason-of-units", "admission_rules",
     "AUTHORITY_NOT_VALID", "UNIT_NOT_VALID"),
    ("ModelBeforeTenant", "RUN-015", "step/first-reason-of-expected-fields", "admission_rules",
     "TENANT_MISMATCH", "MODEL_MISMATCH"),
    ("GenerationBeforeCodec", "RUN-015", "step/first-reason-of-expected-fields", "admission_rules",
     "CODEC_MISMATCH", "STALE_CACHE_GENERATION"),
    ("IndexBeforePool", "RUN-001", "step/first-reason-of-plans", "admission_rules",
     "STALE_POOL_GENERATION", "STALE_INDEX_GENERATION"),
    ("PinBeforeClass", "RUN-006", "report/first-reason-of-claims", "report_rules",
     "EVIDENCE_CLASS_MISMATCH", "EVIDENCE_NOT_PINNED"),
    ("BytesBeforeSeries", "RUN-041", "report/first-reason-of-metrics", "report_rules",
     "TOO_MANY_SERIES", "BYTES_COUNTED_EARLY"),
    ("ObservedBeforeReclaimed", "RUN-005", "report/first-reason-of-promises", "report_rules",
     "RECLAIMED_READABLE", "TENANT_OBSERVABLE"),
)  # fmt: skip
for _name, _requirement, _case, _member, _first, _second in _SWAPPED:
    seeds.add(swapped(_name, _requirement, [_case], _member, _first, _second))

FAULTS = tuple(seeds.faults)
"""In the order of the cases."""
