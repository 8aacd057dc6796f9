"""The rules of runtime over a sequence of calls: what may be admitted, served, returned, published and collected.

The monitor keeps jobs, transfers, rows and index generations under the handles that the engine gives, and counts what
they hold. From that follows what is *due*: the right reply to each call. An engine that declares ``runtime.exact`` is
held to it. Of any other, a reply counts only where it contradicts a rule: more was admitted than fits, credits are free
that a transfer may still touch, a request is served by a transfer that is not its own. Such an engine may turn away
what would have fitted and keep longer what it could return, but not for ever where it claims ``runtime.returns``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from ..core.engine import Refused, Reply, Returned
from ..core.expect import PASS, Outcome
from ..core.model import EngineDescription, Finding, Verdict
from ..core.words import Word

Request = Mapping[str, Any]
Rows = tuple[tuple[str, Any], ...]
"""Full identity of a unit."""
Handle = tuple[int, str]
"""Epoch and name of a transfer."""
Amounts = dict[str, int]
PLACE_BYTES = 64
"""What a unit has, and a request's staging, of an engine that is not exact: it counts in whole places."""
FORMER = 256
"""How many transfers that are over are remembered."""
KINDS = ("pinned_bytes", "staging_bytes", "link_bytes", "queue_slots")


class Rule(Word):
    """What a reply can contradict."""

    OVERCOMMITTED = "OVERCOMMITTED", "More was admitted than there are credits for."
    CREDIT_MINTED = "CREDIT_MINTED", "Credits are free that something still holds."
    CREDIT_LOST = "CREDIT_LOST", "Credits are not free that nothing holds."
    ROOM_REFUSED = "ROOM_REFUSED", "A request was turned away for credits that are free."
    RECEIPT_FALSE = "RECEIPT_FALSE", "A receipt tells of other credits than were taken or came back."
    LATE_ADMITTED = (
        "LATE_ADMITTED",
        "A transfer was admitted that would be over after its deadline, or turned away though it would not.",
    )
    FALLBACK_ILLEGAL = "FALLBACK_ILLEGAL", "A request was turned to what is not its first legal fallback."
    SHARED_WRONGLY = (
        "SHARED_WRONGLY",
        "A load joined a transfer that is not one of its rows, or joined none though there was one.",
    )
    STARTED_TWICE = "STARTED_TWICE", "A transfer was started for each that waits, or for none."
    SERVED_WRONGLY = (
        "SERVED_WRONGLY",
        "A request is told that its rows are there by a transfer that did not bring them.",
    )
    WAITER_LOST = "WAITER_LOST", "A request that waited for a transfer is not told of its end."
    STALE_APPLIED = "STALE_APPLIED", "A report of a former epoch was accepted."
    COUNTED_AGAIN = "COUNTED_AGAIN", "A report, or a name, counted that was over or never was."
    ROWS_NOT_THERE = "ROWS_NOT_THERE", "Rows are read that were never committed, or were deleted."
    ROWS_LOST = "ROWS_LOST", "Rows that nothing took away are not there."
    EPOCH_FALSE = "EPOCH_FALSE", "The epoch is another than the resets come to."
    PUBLISHED_EARLY = "PUBLISHED_EARLY", "Entries became visible that may not be, or did not though they may."
    GENERATION_FALSE = "GENERATION_FALSE", "Generations do not go forward."
    ENTRY_FALSE = "ENTRY_FALSE", "A look-up found what is not published, or missed what is."
    DELETION_FALSE = "DELETION_FALSE", "A deletion took what is not there, or left what is."
    COLLECTED_EARLY = "COLLECTED_EARLY", "Memory was taken that somebody may still read, or kept from nobody."
    CALL_REFUSED = "CALL_REFUSED", "A call was refused that nothing speaks against."
    WRONG_REASON = "WRONG_REASON", "A refusal names another reason than the first that holds."


REQUIREMENTS: Mapping[str, tuple[str, ...]] = {
    Rule.OVERCOMMITTED: ("RUN-012", "RUN-022"),
    Rule.CREDIT_MINTED: ("RUN-026", "RUN-027"),
    Rule.CREDIT_LOST: ("RUN-027", "RUN-010"),
    Rule.ROOM_REFUSED: ("RUN-012", "RUN-027"),
    Rule.RECEIPT_FALSE: ("RUN-027", "RUN-011"),
    Rule.LATE_ADMITTED: ("RUN-020",),
    Rule.FALLBACK_ILLEGAL: ("RUN-021", "RUN-004"),
    Rule.SHARED_WRONGLY: ("RUN-023",),
    Rule.STARTED_TWICE: ("RUN-024",),
    Rule.SERVED_WRONGLY: ("RUN-009", "RUN-030", "RUN-008"),
    Rule.WAITER_LOST: ("RUN-025", "RUN-030"),
    Rule.STALE_APPLIED: ("RUN-028",),
    Rule.COUNTED_AGAIN: ("RUN-029", "RUN-033"),
    Rule.ROWS_NOT_THERE: ("RUN-031", "RUN-032", "RUN-036"),
    Rule.ROWS_LOST: ("RUN-031",),
    Rule.EPOCH_FALSE: ("RUN-032",),
    Rule.PUBLISHED_EARLY: ("RUN-034",),
    Rule.GENERATION_FALSE: ("RUN-035",),
    Rule.ENTRY_FALSE: ("RUN-034", "RUN-040", "RUN-036"),
    Rule.DELETION_FALSE: ("RUN-036",),
    Rule.COLLECTED_EARLY: ("RUN-037", "RUN-038", "RUN-039"),
    Rule.CALL_REFUSED: ("RUN-029",),
    Rule.WRONG_REASON: ("RUN-029",),
}
"""Rule to the requirements that it watches, the likeliest first."""


@dataclass
class Transfer:
    """One movement, by what is known of it."""

    handle: Handle
    rows: Rows
    load: bool
    size: int
    started: bool = False
    over: bool = False
    reports: dict[int, tuple[bool, int]] = field(default_factory=dict)
    orphaned_bytes: int = 0
    """Staging of requests that went away while it may be touched."""


@dataclass
class Job:
    """One request's reservation."""

    name: str
    request: Request
    transfer: Transfer
    staging_bytes: int
    submitted: bool = False


@dataclass(frozen=True)
class Due:
    """The right reply: a reason, or members of the result with the rule that each of them is under."""

    reason: str | None = None
    members: Mapping[str, tuple[Rule, Any]] = field(default_factory=dict)
    accepted: Rule = Rule.COUNTED_AGAIN
    """What it means that a call was accepted that should not have been."""


class RuntimeMonitor:
    """One opening of an engine."""

    def __init__(self, description: EngineDescription, probe: bool = False) -> None:
        declared = description.capabilities
        self.capabilities = {
            name.partition(".")[2]: value for name, value in declared.items() if name.startswith("runtime.")
        }
        self.exact = self.claims("exact")
        self.probe = probe
        self.budget: Amounts = {}
        self.counts: tuple[str, ...] = KINDS
        self.workers = 0
        self.epoch = self.first_epoch = 0
        self.started = 0
        self.jobs: dict[str, Job] = {}
        self.ended: dict[str, bool] = {}
        """Requests of this epoch whose jobs are over or were cancelled, the latest of them, and whether they loaded."""
        self.transfers: dict[Handle, Transfer] = {}
        """Those of this epoch, and of former ones that are not over."""
        self.named: dict[str, Rows] = {}
        """Tokens to the rows that they were first named with."""
        self.committed: set[Rows] = set()
        self.tombstones: dict[Rows, tuple[int, bool]] = {}
        """Rows to the generation of their deletion, and whether it is durable."""
        self.visible: frozenset[Rows] = frozenset()
        self.published = self.generation = 0
        self.prepared: dict[int, frozenset[Rows]] = {}
        self.lookups: dict[str, frozenset[Rows]] = {}
        self.untold: Amounts = dict.fromkeys(KINDS, 0)
        """What could have come back and was in no receipt yet: an engine that is not exact may keep it longer."""

    def due(self, op: str, request: Request) -> Due | None:
        """The right reply to the next call; ``None`` where the chapter leaves it to the engine."""
        react = REACTIONS.get(op)
        return react(self, request)[0] if react is not None and (self.exact or op in INDEX) else None

    def claims(self, name: str) -> bool:
        """Whether the engine declares a capability."""
        return bool(self.capabilities.get(name))

    # --- credits ---

    @property
    def used(self) -> Amounts:
        """What jobs and transfers hold."""
        moving = [one for one in self.transfers.values() if not one.over]
        size = sum(one.size for one in moving)
        held = (job for job in self.jobs.values() if job.transfer.load or not self.claims("flushes"))
        staging = sum(job.staging_bytes for job in held) + sum(one.orphaned_bytes for one in moving)
        return dict(zip(KINDS, (size, staging, size, len(self.jobs)), strict=True))

    @property
    def free(self) -> Amounts:
        """What is left."""
        used = self.used
        return {kind: self.budget[kind] - used[kind] for kind in KINDS}

    @property
    def idle(self) -> bool:
        """Whether nothing is under way."""
        return not self.jobs and all(one.over for one in self.transfers.values())

    def waiting(self, transfer: Transfer) -> list[Job]:
        """Jobs of a transfer, in the order of their reservations."""
        return [job for job in self.jobs.values() if job.transfer is transfer]

    def joinable(self, rows: Rows) -> Transfer | None:
        """The transfer that a load of these rows joins."""
        for one in self.transfers.values():
            if one.load and not one.over and one.rows == rows and self.waiting(one):
                return one
        return None

    # --- replies ---

    def observe(self, op: str, request: Request, reply: Reply) -> Outcome:
        """Judge one call by what is due, then take note of it."""
        react = REACTIONS.get(op)
        if react is None or not isinstance(reply, Refused | Returned):
            return PASS
        due, note = react(self, request)
        before = self.free if self.budget else {}
        if isinstance(reply, Refused):
            outcome = self._refused(due, reply)
            if due.reason is not None or op == "runtime.complete":
                note({})
                self._came_back(before)
            return outcome
        value = reply.value
        outcome = self._compared(due, value) if self.exact else self._lawful(op, request, due, value)
        note(value)
        for name in value.get("ended", ()):
            self._ended(name)
        self._came_back(before)
        if outcome is PASS:
            outcome = self._receipt(value, before)
        if outcome is PASS and "free" in value:
            outcome = self._told(value["free"])
        if outcome is PASS and not value.get("engine_calls", 1) and op not in SILENT:
            return Outcome(Verdict.INCONCLUSIVE, Finding(None, "/engine_calls", "the engine was not called"))
        return outcome

    def _refused(self, due: Due, reply: Refused) -> Outcome:
        """A refusal that is not due, or for another reason than the first."""
        if not self.exact or due.reason == reply.reason:
            return PASS
        if due.reason is None:
            return broken(Rule.CALL_REFUSED, "", f"nothing speaks against the call, but {reply.reason}")
        return broken(Rule.WRONG_REASON, "", f"refused for {reply.reason} instead of {due.reason}")

    def _compared(self, due: Due, value: Request) -> Outcome:
        """A result that is not the right one."""
        if due.reason is not None:
            return broken(due.accepted, "", f"the call must be rejected for {due.reason}")
        for name, (rule, right) in due.members.items():
            if value.get(name) != right:
                return broken(rule, f"/{name}", f"{value.get(name)!r} instead of {right!r}")
        return PASS

    def _told(self, told: Request) -> Outcome:
        """Free credits that are not those that are left."""
        live, gone = self._left_by_live(), any(one.orphaned_bytes for one in self.transfers.values() if not one.over)
        for kind, left in self.free.items():
            if kind not in told or kind not in self.counts:
                continue
            # An engine that is not exact may hold less for a request that went away than was reserved, but something.
            amount = left if self.exact else max(0, live[kind] - (gone and kind == "staging_bytes"))
            if told[kind] > amount:
                held = "" if amount == live[kind] else ", for what a request left in flight is still held"
                text = f"{told[kind]} are called free, and at most {amount} can be{held}"
                return broken(Rule.CREDIT_MINTED, f"/free/{kind}", text)
            if told[kind] < amount and (self.exact or (self.idle and self.claims("returns"))):
                return broken(Rule.CREDIT_LOST, f"/free/{kind}", f"only {told[kind]} are called free, and {amount} are")
        return PASS

    def _came_back(self, before: Amounts) -> None:
        """Note what a call set free."""
        if before:
            after = self.free
            for kind in KINDS:
                self.untold[kind] += max(0, after[kind] - before[kind])

    def _receipt(self, value: Request, before: Amounts) -> Outcome:
        """Credits that are said to come back and did not, or others."""
        if "returned" not in value or not before:
            return PASS
        after = self.free
        for kind, amount in value["returned"].items():
            right = after[kind] - before[kind] if self.exact else self.untold[kind]
            if (self.exact and amount != right) or amount > right:
                return broken(Rule.RECEIPT_FALSE, f"/returned/{kind}", f"{amount} came back instead of {right}")
            self.untold[kind] -= amount
        return PASS

    # --- what contradicts a rule, whatever the engine decides ---

    def _lawful(self, op: str, request: Request, due: Due, value: Request) -> Outcome:
        """What no engine may answer."""
        if op == "runtime.reserve":
            return self._lawful_reserve(request, value)
        if op == "runtime.complete":
            return self._lawful_complete(request, value)
        if op == "runtime.submit":
            job = self.jobs.get(request["request"])
            most = self.started + (job is not None and not job.transfer.started)
            if self.claims("joins") and value["started"] > most:
                return broken(Rule.STARTED_TWICE, "/started", f"{value['started']} transfers instead of {most}")
            return PASS
        if op == "runtime.cancel":
            job = self.jobs.get(request["request"])
            if job is not None and value["outcome"] == "dropped" and len(self.waiting(job.transfer)) > 1:
                return broken(Rule.WAITER_LOST, "/outcome", "the transfer was dropped and others wait for it")
            return PASS
        if op in INDEX:
            return self._compared(due, value)
        return PASS

    def _lawful_reserve(self, request: Request, value: Request) -> Outcome:
        outcome, rows = value["outcome"], rows_of(request["unit"])
        load = request["direction"] == "load"
        there = rows in self.committed and rows not in self.tombstones
        late = number(request["finish_ms"]) > number(request["deadline_ms"])
        if outcome == "resident" and rows not in self.committed:
            return broken(Rule.ROWS_NOT_THERE, "/outcome", "rows that were never stored are called resident")
        if outcome == "fallback":
            return self._lawful_fallback(request, value, late)
        if outcome != "granted":
            return PASS
        if load and not there:
            return broken(Rule.ROWS_NOT_THERE, "/outcome", "a load of rows that are not there was granted")
        if late and self.claims("deadlines"):
            return broken(Rule.LATE_ADMITTED, "/outcome", "the transfer would be over after its deadline")
        shared = self.joinable(rows) if load else None
        if value.get("joined") and (shared is None or (self.epoch, value.get("read")) != shared.handle):
            return broken(Rule.SHARED_WRONGLY, "/joined", "it joined a transfer that is not one of its rows")
        price = self.price(request, None if not value.get("joined") else shared)
        free = self._left_by_live()
        for kind in self.counts:
            if price[kind] > free[kind]:
                message = f"{price[kind]} of {kind} were reserved and {free[kind]} are free"
                return broken(Rule.OVERCOMMITTED, "/outcome", message)
        for kind, amount in value.get("charged", {}).items():
            if kind in self.counts and amount != price[kind]:
                return broken(Rule.RECEIPT_FALSE, f"/charged/{kind}", f"{amount} instead of {price[kind]}")
        return PASS

    def _left_by_live(self) -> Amounts:
        """What jobs leave: of a request that went away an engine may hold less than was reserved for it."""
        moving = {id(job.transfer): job.transfer.size for job in self.jobs.values()}
        size, used = sum(moving.values()), self.used
        staging = used["staging_bytes"] - sum(one.orphaned_bytes for one in self.transfers.values() if not one.over)
        live = dict(zip(KINDS, (size, staging, size, len(self.jobs)), strict=True))
        return {kind: self.budget[kind] - live[kind] for kind in KINDS}

    def _lawful_fallback(self, request: Request, value: Request, late: bool) -> Outcome:
        reason, action = value.get("reason"), value.get("action")
        if reason == "DEADLINE" and not late:
            return broken(Rule.LATE_ADMITTED, "/reason", "the transfer would be over in time")
        affordable = self._affordable(self.price(request, None))
        if reason == "CREDIT_PRESSURE" and self.claims("returns") and self.idle and affordable:
            return broken(Rule.ROOM_REFUSED, "/reason", "nothing is under way and the request fits")
        wanted = {ACTIONS[name] for name in request["fallbacks"]} | {"REJECT_NO_LEGAL_PATH"}
        exact = request["contract"] == "exact"
        if action is not None and (action not in wanted or (exact and action == ACTIONS["degrade"])):
            return broken(Rule.FALLBACK_ILLEGAL, "/action", f"{action} is no fallback of the request")
        return PASS

    def _lawful_complete(self, request: Request, value: Request) -> Outcome:
        handle = (request["epoch"], request["read"])
        transfer = self.transfers.get(handle)
        served = [*value["ready"], *(row["request"] for row in value["fallbacks"])]
        mine = [job.name for job in self.waiting(transfer)] if transfer is not None else []
        if request["epoch"] != self.epoch and served:
            return broken(Rule.STALE_APPLIED, "/ready", "a report of a former epoch ended jobs of this one")
        for name in served:
            if name not in mine:
                return broken(Rule.SERVED_WRONGLY, "/ready", f"{name} does not wait for the transfer")
        if transfer is None:
            return PASS
        reports = {**transfer.reports, request["worker"]: (request["ok"], request["bytes"])}
        whole = len(reports) >= self.workers
        if value["ready"] and not (whole and succeeded(reports, transfer.size)):
            return broken(Rule.SERVED_WRONGLY, "/ready", "rows are called there that did not all arrive")
        if value["outcome"] != "pending" and whole and set(served) != set(mine):
            return broken(Rule.WAITER_LOST, "/ready", f"{sorted(set(mine) - set(served))} wait on")
        return PASS

    # --- what is due ---

    def price(self, request: Request, shared: Transfer | None) -> Amounts:
        """What a reservation takes."""
        size = 0 if shared is not None else request["unit"]["bytes"]
        flushed = request["direction"] == "store" and self.claims("flushes")
        return dict(zip(KINDS, (size, 0 if flushed else request["staging_bytes"], size, 1), strict=True))

    def _affordable(self, price: Amounts) -> bool:
        free = self.free
        return all(price[kind] <= free[kind] for kind in self.counts)

    def open(self, request: Request) -> Reaction:
        """A new runtime."""
        budget = {kind: request["capacity"][kind] - request["held"][kind] for kind in KINDS}
        if min(budget.values()) < 0:
            return Due("HELD_EXCEEDS_CAPACITY", accepted=Rule.OVERCOMMITTED), nothing

        def note(value: Request) -> None:
            self.budget, self.workers = budget, request["workers"]
            self.counts = tuple(value.get("counts", KINDS))
            self.epoch = self.first_epoch = value["epoch"]

        return Due(members={"free": (Rule.CREDIT_MINTED, budget)}), note

    def inspect(self, request: Request) -> Reaction:
        """A look."""
        return Due(members={"epoch": (Rule.EPOCH_FALSE, self.epoch)}), nothing

    def commit(self, request: Request) -> Reaction:
        """Rows are there."""
        rows = self._named(request["unit"])
        if request["unit"]["integrity"] != "valid":
            return Due("UNIT_NOT_VALID", accepted=Rule.ROWS_NOT_THERE), nothing
        if rows in self.tombstones:
            return Due("UNIT_TOMBSTONED", accepted=Rule.DELETION_FALSE), nothing

        def note(value: Request) -> None:
            if value.get("outcome") != "refused":
                self.committed.add(rows)

        outcome = "resident" if rows in self.committed else "committed"
        return Due(members={"outcome": (Rule.ROWS_LOST, outcome)}), note

    def reserve(self, request: Request) -> Reaction:
        """A job, a fallback, or neither."""
        rows, load = self._named(request["unit"]), request["direction"] == "load"
        if request["contract"] == "exact" and "degrade" in request["fallbacks"]:
            return Due("EXACT_MAY_NOT_DEGRADE", accepted=Rule.FALLBACK_ILLEGAL), nothing
        if request["recompute_ms"] is None and "recompute" in request["fallbacks"]:
            return Due("RECOMPUTE_NOT_TIMED", accepted=Rule.FALLBACK_ILLEGAL), nothing
        if request["request"] in self.jobs:
            return Due("REQUEST_TWICE", accepted=Rule.COUNTED_AGAIN), nothing
        if not load and request["unit"]["integrity"] != "valid":
            return Due("UNIT_NOT_VALID", accepted=Rule.ROWS_NOT_THERE), nothing
        if not load and rows in self.tombstones:
            return Due("UNIT_TOMBSTONED", accepted=Rule.DELETION_FALSE), nothing
        shared = self.joinable(rows) if load else None
        price = self.price(request, shared)
        note = self._reserved(request, rows, load)
        plain = self._standing(rows, load)
        if plain is not None:
            rule = Rule.ROWS_NOT_THERE if load else Rule.ROWS_LOST
            return Due(members={"outcome": (rule, plain)}), note
        late = number(request["finish_ms"]) > number(request["deadline_ms"])
        if late or not self._affordable(price):
            why = "DEADLINE" if late else "CREDIT_PRESSURE"
            rule = Rule.LATE_ADMITTED if late else Rule.OVERCOMMITTED
            turned = {"outcome": (rule, "fallback"), "reason": (rule, why)}
            return Due(
                members={**turned, "action": (Rule.FALLBACK_ILLEGAL, action(request, why, request["now_ms"]))}
            ), note
        members: dict[str, tuple[Rule, Any]]
        members = {"outcome": (Rule.ROOM_REFUSED, "granted"), "joined": (Rule.SHARED_WRONGLY, shared is not None)}
        members |= {"charged": (Rule.RECEIPT_FALSE, price), "epoch": (Rule.EPOCH_FALSE, self.epoch)}
        if shared is not None:
            members["read"] = (Rule.SHARED_WRONGLY, shared.handle[1])
        return Due(members=members), note

    def _standing(self, rows: Rows, load: bool) -> str | None:
        if load:
            return None if rows in self.committed and rows not in self.tombstones else "miss"
        if rows in self.committed:
            return "resident"
        return (
            "pending" if any(job.transfer.rows == rows for job in self.jobs.values() if not job.transfer.load) else None
        )

    def _reserved(self, request: Request, rows: Rows, load: bool) -> Note:
        def note(value: Request) -> None:
            if value.get("outcome") != "granted":
                return
            handle = (value.get("epoch", self.epoch), value.get("read", f"of {request['request']}"))
            found = self.transfers.get(handle)
            if found is None or found.over or found.rows != rows:
                found = Transfer(handle, rows, load, request["unit"]["bytes"])
                self.transfers[handle] = found
            if self.claims("starts_at_once") and not found.started:
                found.started, self.started = True, self.started + 1
            self.jobs[request["request"]] = Job(request["request"], request, found, request["staging_bytes"])
            self.ended.pop(request["request"], None)

        return note

    def submit(self, request: Request) -> Reaction:
        """A transfer starts."""
        job = self.jobs.get(request["request"])
        if job is None:
            return Due("UNKNOWN_REQUEST"), nothing
        if job.submitted:
            return Due("ALREADY_SUBMITTED", accepted=Rule.STARTED_TWICE), nothing

        def note(value: Request) -> None:
            job.submitted = True
            self.started += not job.transfer.started
            job.transfer.started = True

        started = self.started + (not job.transfer.started)
        outcome = "joined" if job.transfer.started else "submitted"
        members = {"outcome": (Rule.STARTED_TWICE, outcome), "started": (Rule.STARTED_TWICE, started)}
        return Due(members={**members, "read": (Rule.SHARED_WRONGLY, job.transfer.handle[1])}), note

    def complete(self, request: Request) -> Reaction:
        """A worker's report."""
        worker, handle = request["worker"], (request["epoch"], request["read"])
        if worker >= self.workers:
            return Due("UNKNOWN_WORKER"), nothing
        transfer = self.transfers.get(handle)
        if request["epoch"] < self.epoch:
            return Due("STALE_EPOCH", accepted=Rule.STALE_APPLIED), self._drained(transfer, worker)
        if transfer is None:
            return Due("UNKNOWN_READ"), nothing
        if not transfer.started:
            return Due("READ_NOT_STARTED"), nothing
        if worker in transfer.reports:
            return Due("COMPLETION_DUPLICATE"), nothing
        reports = {**transfer.reports, worker: (request["ok"], request["bytes"])}
        jobs = self.waiting(transfer)
        whole = len(reports) == self.workers
        good = whole and succeeded(reports, transfer.size)
        outcome = "pending" if not whole else "dropped" if not jobs else "done" if good else "failed"
        turned = [
            {
                "request": job.name,
                "reason": "TRANSFER_FAILED",
                "action": action(job.request, "TRANSFER_FAILED", request["now_ms"]),
            }
            for job in jobs
            if outcome == "failed"
        ]

        def note(value: Request) -> None:
            transfer.reports = reports
            if not whole:
                return
            transfer.over = True
            transfer.orphaned_bytes = 0
            for job in jobs:
                self._end(job)
            self._forget()
            if good and jobs and not transfer.load:
                self.committed.add(transfer.rows)

        return (
            Due(
                members={
                    "outcome": (Rule.SERVED_WRONGLY, outcome),
                    "ready": (Rule.SERVED_WRONGLY, [job.name for job in jobs] if outcome == "done" else []),
                    "fallbacks": (Rule.FALLBACK_ILLEGAL, turned),
                }
            ),
            note,
        )

    def _forget(self) -> None:
        """Of transfers that are over the latest are remembered, so that a second report of one is known."""
        over = [handle for handle, one in self.transfers.items() if one.over]
        for handle in over[: max(0, len(over) - FORMER)]:
            del self.transfers[handle]

    def _drained(self, transfer: Transfer | None, worker: int) -> Note:
        def note(value: Request) -> None:
            if transfer is None or not transfer.started:
                return
            transfer.reports.setdefault(worker, (False, 0))
            if len(transfer.reports) == self.workers:
                transfer.over, transfer.orphaned_bytes = True, 0
                self.transfers.pop(transfer.handle, None)

        return note

    def cancel(self, request: Request) -> Reaction:
        """A request goes."""
        job = self.jobs.get(request["request"])
        if job is None:
            return Due("UNKNOWN_REQUEST"), nothing
        alone = len(self.waiting(job.transfer)) == 1
        outcome = "dropped" if alone else "withdrawn"
        return Due(members={"outcome": (Rule.WAITER_LOST, outcome)}), lambda value: self._leave(job)

    def _leave(self, job: Job) -> None:
        """A request goes before its transfer is over."""
        self._end(job)
        if job.transfer.started:
            flushed = not job.transfer.load and self.claims("flushes")
            job.transfer.orphaned_bytes += 0 if flushed else job.staging_bytes
        elif not self.waiting(job.transfer):
            job.transfer.over = True

    def _ended(self, name: str) -> None:
        """The engine waited for a transfer and served who waits: a late report of it changes nothing."""
        for one in self.transfers.values():
            if one.handle[1] == name:
                one.over, one.orphaned_bytes = True, 0
                jobs = self.waiting(one)
                if jobs and not one.load:
                    self.committed.add(one.rows)
                for job in jobs:
                    self._end(job)

    def _end(self, job: Job) -> None:
        """A job is no more; that its request may still be cancelled is remembered of the latest."""
        del self.jobs[job.name]
        self.ended[job.name] = job.transfer.load
        if len(self.ended) > FORMER:
            del self.ended[next(iter(self.ended))]

    def reset(self, request: Request) -> Reaction:
        """A new epoch."""

        def note(value: Request) -> None:
            for job in list(self.jobs.values()):
                self._leave(job)
            self.ended.clear()
            self.epoch = value["epoch"]
            self.transfers = {handle: one for handle, one in self.transfers.items() if not one.over}
            self.committed.clear()
            self.tombstones.clear()
            self.prepared.clear()
            self.visible = frozenset()

        return Due(members={"epoch": (Rule.EPOCH_FALSE, self.epoch + 1)}), note

    # --- index and deletion ---

    def prepare_index(self, request: Request) -> Reaction:
        """Entries that nobody sees."""
        units = frozenset(map(rows_of, request["units"]))

        def note(value: Request) -> None:
            self.generation = value["generation"]
            self.prepared[value["generation"]] = units

        return Due(members={"generation": (Rule.GENERATION_FALSE, self.generation + 1)}), note

    def publish_index(self, request: Request) -> Reaction:
        """Entries become visible."""
        number_ = request["generation"]
        if not 0 < number_ <= self.generation:
            return Due("UNKNOWN_INDEX_GENERATION", accepted=Rule.GENERATION_FALSE), nothing
        if number_ not in self.prepared or number_ < self.published:
            return Due("STALE_INDEX_GENERATION", accepted=Rule.GENERATION_FALSE), nothing
        units = self.prepared[number_]
        if not units.isdisjoint(self.tombstones):
            return Due("UNIT_TOMBSTONED", accepted=Rule.PUBLISHED_EARLY), nothing
        if not units <= self.committed:
            return Due("ROW_NOT_COMMITTED", accepted=Rule.PUBLISHED_EARLY), nothing
        visible = self.visible | units

        def note(value: Request) -> None:
            self.visible, self.published = visible, number_
            self.prepared.pop(number_, None)

        members = {"generation": (Rule.GENERATION_FALSE, number_), "entries": (Rule.PUBLISHED_EARLY, len(visible))}
        return Due(members=members), note

    def look_up(self, request: Request) -> Reaction:
        """A look-up begins."""
        outcome = "hit" if rows_of(request["unit"]) in self.visible else "miss"

        def note(value: Request) -> None:
            self.lookups[value["lookup"]] = self.visible

        members = {"outcome": (Rule.ENTRY_FALSE, outcome), "generation": (Rule.GENERATION_FALSE, self.published)}
        return Due(members=members), note

    def end_lookup(self, request: Request) -> Reaction:
        """It ends."""
        if request["lookup"] not in self.lookups:
            return Due("UNKNOWN_LOOKUP"), nothing
        return Due(), lambda value: (self.lookups.pop(request["lookup"]), None)[1]

    def tombstone(self, request: Request) -> Reaction:
        """Rows are deleted for later readers."""
        rows = rows_of(request["unit"])
        if rows in self.tombstones:
            members = {"outcome": (Rule.DELETION_FALSE, "tombstoned")}
            return Due(members={**members, "generation": (Rule.GENERATION_FALSE, self.tombstones[rows][0])}), nothing
        if rows not in self.committed:
            members = {"outcome": (Rule.DELETION_FALSE, "absent")}
            return Due(members={**members, "generation": (Rule.GENERATION_FALSE, self.published)}), nothing

        def note(value: Request) -> None:
            self.generation = self.published = value["generation"]
            self.visible -= {rows}
            self.tombstones[rows] = (value["generation"], False)

        members = {"outcome": (Rule.DELETION_FALSE, "tombstoned")}
        return Due(members={**members, "generation": (Rule.GENERATION_FALSE, self.generation + 1)}), note

    def confirm_deletion(self, request: Request) -> Reaction:
        """The backend's receipt."""
        rows = rows_of(request["unit"])
        if rows not in self.tombstones:
            return Due("NOT_TOMBSTONED", accepted=Rule.DELETION_FALSE), nothing

        def note(value: Request) -> None:
            generation, durable = self.tombstones[rows]
            self.tombstones[rows] = (generation, durable or request["durable"])

        return Due(), note

    def collect(self, request: Request) -> Reaction:
        """Memory comes back."""
        rows = rows_of(request["unit"])
        moving = (one for one in self.transfers.values() if one.started and not one.over)
        held = any(job.transfer.rows == rows for job in self.jobs.values()) or any(one.rows == rows for one in moving)
        reasons = (
            ("NOT_TOMBSTONED", rows not in self.tombstones),
            ("UNIT_UNDER_LEASE", held),
            ("LOOKUP_IN_FLIGHT", any(rows in seen for seen in self.lookups.values())),
            ("DELETION_NOT_DURABLE", not self.tombstones.get(rows, (0, True))[1]),
        )
        for reason, holds in reasons:
            if holds:
                return Due(reason, accepted=Rule.COLLECTED_EARLY), nothing

        def note(value: Request) -> None:
            self.tombstones.pop(rows)
            self.committed.discard(rows)

        return Due(), note

    # --- the caller's side ---

    def bars(self, op: str, request: Request) -> str | None:
        """Why an engine with these capabilities need not withstand the call now."""
        if op not in REACTIONS:
            return None
        if (op == "runtime.open") is bool(self.budget):
            return "the runtime is open" if self.budget else "the runtime is not open yet"
        rule = CALLER.get(op)
        return None if rule is None or self.exact else rule(self, request)

    def _bars_open(self, request: Request) -> str | None:
        if request["workers"] > 1 and not self.claims("fan_in"):
            return "the engine has one worker"
        if any(request["capacity"][kind] % PLACE_BYTES for kind in KINDS[:3]) or not request["capacity"]["queue_slots"]:
            return "the engine counts in whole places"
        held = any(request["held"][kind] for kind in KINDS)
        return "nobody else holds credits of the engine" if held else None

    def _bars_commit(self, request: Request) -> str | None:
        return self._bars_unit(request["unit"])

    def _bars_unit(self, unit: Request) -> str | None:
        if unit["integrity"] != "valid" or unit["bytes"] != PLACE_BYTES:
            return "the caller brings valid rows of one place"
        first = self.named.get(unit["tokens_sha256"])
        if first is not None and first != rows_of(unit) and not self.claims("identity"):
            return "the engine does not tell units of the same tokens apart"
        return None

    def _bars_reserve(self, request: Request) -> str | None:
        if request["direction"] == "store" and not self.claims("stores"):
            return "the engine has no stores of its own"
        if number(request["finish_ms"]) > number(request["deadline_ms"]) and not self.claims("deadlines"):
            return "the engine knows no deadlines"
        if request["staging_bytes"] != PLACE_BYTES:
            return "the engine counts in whole places"
        if request["request"] in self.jobs:
            return "the request has a job"
        if request["contract"] == "exact" and "degrade" in request["fallbacks"]:
            return "an exact request does not degrade"
        if request["recompute_ms"] is None and "recompute" in request["fallbacks"]:
            return "a recomputation has a time"
        return self._bars_unit(request["unit"])

    def _bars_submit(self, request: Request) -> str | None:
        job = self.jobs.get(request["request"])
        if job is None or job.submitted:
            return "the job is unknown, or was submitted"
        return None

    def _bars_complete(self, request: Request) -> str | None:
        transfer = self.transfers.get((request["epoch"], request["read"]))
        if transfer is None or not transfer.started or transfer.over:
            return None if self.probe and transfer is not None and transfer.over else "nothing is to be reported"
        if request["worker"] in transfer.reports or request["worker"] >= self.workers:
            return "the worker has reported, or is none"
        short = not request["ok"] or (self.workers == 1 and request["bytes"] != transfer.size)
        return "transfers of the engine do not fail" if short and not self.claims("fails") else None

    def _bars_cancel(self, request: Request) -> str | None:
        job = self.jobs.get(request["request"])
        load = self.ended.get(request["request"]) if job is None else job.transfer.load
        if load is None:
            return "no job of the request was under way"
        if not self.claims("cancels" if load else "cancels_stores"):
            return "the engine has no cancellation of it"
        return None

    def _bars_reset(self, request: Request) -> str | None:
        busy = not self.idle and not self.claims("resets_busy")
        return "something is under way, and the engine claims no reset of that" if busy else None

    def _named(self, unit: Request) -> Rows:
        rows = rows_of(unit)
        self.named.setdefault(unit["tokens_sha256"], rows)
        return rows


Note = Callable[[Request], None]
Reaction = tuple[Due, Note]
"""The right reply, and what to do once a reply is there."""
ACTIONS = {
    "recompute": "RECOMPUTE_EXACT",
    "postpone": "POSTPONE_FOR_EXACT_RETRY",
    "degrade": "ACCEPT_DECLARED_DEGRADED",
}


def nothing(value: Request) -> None:
    """Nothing to take note of."""


def number(value: float) -> Fraction:
    """A decimal as it is written."""
    return Fraction(str(value))


def rows_of(unit: Request) -> Rows:
    """Full identity."""
    return tuple(sorted(unit.items()))


def succeeded(reports: Mapping[int, tuple[bool, int]], size: int) -> bool:
    """Whether all workers did, and moved all bytes."""
    return all(ok for ok, _ in reports.values()) and sum(moved for _, moved in reports.values()) == size


def action(request: Request, reason: str, now_ms: float) -> str:
    """The first legal fallback."""
    now, deadline = number(now_ms), number(request["deadline_ms"])
    takes = request["recompute_ms"]
    legal = {
        "recompute": takes is not None and now + number(takes) <= deadline,
        "postpone": reason != "DEADLINE" and now < deadline,
        "degrade": request["contract"] == "approximate",
    }
    wanted: Iterable[str] = request["fallbacks"]
    return next((ACTIONS[name] for name in wanted if legal[name]), "REJECT_NO_LEGAL_PATH")


def broken(rule: Rule, at: str, message: str) -> Outcome:
    """A reply that contradicts a rule."""
    return Outcome(Verdict.FAIL, Finding(None, at, f"{rule}: {message}"))


INDEX = frozenset(
    f"runtime.{name}"
    for name in (
        "prepare_index",
        "publish_index",
        "look_up",
        "end_lookup",
        "tombstone",
        "confirm_deletion",
        "collect",
    )
)
SILENT = frozenset({"runtime.open", "runtime.inspect"})
"""Ops that need not reach the engine."""
REACTIONS: Mapping[str, Callable[[RuntimeMonitor, Request], Reaction]] = {
    f"runtime.{one.__name__}": one
    for one in (
        RuntimeMonitor.open,
        RuntimeMonitor.inspect,
        RuntimeMonitor.commit,
        RuntimeMonitor.reserve,
        RuntimeMonitor.submit,
        RuntimeMonitor.complete,
        RuntimeMonitor.cancel,
        RuntimeMonitor.reset,
        RuntimeMonitor.prepare_index,
        RuntimeMonitor.publish_index,
        RuntimeMonitor.look_up,
        RuntimeMonitor.end_lookup,
        RuntimeMonitor.tombstone,
        RuntimeMonitor.confirm_deletion,
        RuntimeMonitor.collect,
    )
}
"""Op to what the monitor makes of it."""
CALLER: Mapping[str, Callable[[RuntimeMonitor, Request], str | None]] = {
    "runtime.open": RuntimeMonitor._bars_open,
    "runtime.commit": RuntimeMonitor._bars_commit,
    "runtime.reserve": RuntimeMonitor._bars_reserve,
    "runtime.submit": RuntimeMonitor._bars_submit,
    "runtime.complete": RuntimeMonitor._bars_complete,
    "runtime.cancel": RuntimeMonitor._bars_cancel,
    "runtime.reset": RuntimeMonitor._bars_reset,
}
"""Op to the caller's side of it."""
