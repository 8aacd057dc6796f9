"""Fuzzing of the contract runtime: a few requests, fewer credits, and everything that may happen to them in any order.

:mod:`kvassay.monitors.runtime` says which reply is wrong and which call may be made; of plans and documents the
reference does.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ..core.engine import Reply, Returned
from ..core.expect import Outcome
from ..core.model import EngineDescription, Json
from ..corpus.data import root
from ..corpus.registries import capabilities
from ..monitors.runtime import KINDS, PLACE_BYTES, REACTIONS, Handle, Rule, RuntimeMonitor
from .contract import Draw, Illegal, Make, Step
from .contract import Rule as Choice
from .replayed import Replayed, reason
from .runtime_documents import edged_report, edged_step
from .runtime_plans import DOCUMENTS, FALLBACKS, PLANS, step
from .runtime_units import DECIMALS, OTHERS, TERMS, Request, unit

JOBS, INDEX, ADMISSION, REPORT = "runtime-jobs", "runtime-index", "runtime-admission", "runtime-report"
"""What a sequence is about."""
STATELESS = PLANS.keys() | DOCUMENTS.keys()
JOB_OPS = frozenset(f"runtime.{name}" for name in ("open", "commit", "reserve", "submit", "complete"))
INDEX_OPS = frozenset(
    f"runtime.{name}"
    for name in ("prepare_index", "publish_index", "look_up", "end_lookup", "tombstone", "confirm_deletion", "collect")
)
NAMES = ("r1", "r2", "r3", "r4", "r5")


@dataclass
class Begun:
    """A transfer as those who report it know it."""

    handle: Handle
    bound: str
    """Name under which later steps have its handle."""
    size: int


class RuntimeScene:
    """One opening."""

    def __init__(self, description: EngineDescription, make: Make, replayed: Replayed) -> None:
        self.account = RuntimeMonitor(description)
        self.make = make
        self.ops = description.ops
        self.capabilities = {**defaults(), **description.capabilities}
        self.replayed = replayed
        self.profiles = claimed(description)
        self.theme = ""
        """What the sequence is about, once it has begun."""
        self.begun: list[Begun] = []
        self.units: list[Request] = []
        self.generations: list[tuple[str, int]] = []
        """Bound name of a prepared generation, and its number."""
        self.lookups: list[str] = []
        """Bound names of look-ups that have not ended."""
        self.serial = 0
        self.last: Step | None = None
        self._moves = self._rules()

    def claims(self, name: str) -> bool:
        """Whether the engine declares a capability."""
        return bool(self.capabilities[f"runtime.{name}"])

    @property
    def rules(self) -> Mapping[str, tuple[int, Choice]]:
        """Of what the sequence is about; all of them before it has begun."""
        others: dict[str, dict[str, tuple[int, Choice]]] = {
            ADMISSION: {"plan": (4, self.plan), "step": (3, self.step), "step-document": (4, self.step_document)},
            REPORT: {"report": (1, self.report)},
        }
        if self.theme:
            return others.get(self.theme, self._moves)
        return {**self._moves, **others[ADMISSION], **others[REPORT]}

    # --- the account ---

    def illegal(self, op: str, request: Mapping[str, Json], *, probe: bool) -> str | None:
        """What the caller's contract says; and no call of an op that the engine lacks."""
        if op not in self.ops:
            return f"the engine has no op {op}"
        self.account.probe = probe
        return None if op in STATELESS else self.account.bars(op, request)

    def needs(self, op: str, request: Mapping[str, Json]) -> frozenset[str]:
        """Capabilities without which the reply would not be judged as it is."""
        return frozenset({"runtime.exact"} if op in REACTIONS and self.claims("exact") else ())

    def observe(self, op: str, request: Mapping[str, Json], reply: Reply) -> Outcome:
        """Ask the monitor; of plans and documents, the reference."""
        if op in STATELESS:
            return self.replayed.observe(op, request, reply)[0]
        return self.account.observe(op, request, reply)

    def expect(self, op: str, request: Mapping[str, Any]) -> Mapping[str, Json]:
        """What is due."""
        if op in STATELESS:
            return self.replayed.expect(op, request)
        due = self.account.due(op, request)
        if due is None:
            return {"accepts": True}
        if due.reason is not None:
            return {"rejects": due.reason}
        members = [{"at": f"/{name}", "value": value} for name, (_, value) in due.members.items() if name != "read"]
        return {"equals": members} if members else {"accepts": True}

    # --- rules ---

    def begin(self, draw: Draw) -> None:
        """A runtime with little of something, or plans or documents without one."""
        themes = [JOBS] * 8 + [INDEX] * 5 + [ADMISSION] * 3 + [REPORT] * 2
        self.theme = draw.pick([theme for theme in themes if theme in self.profiles])
        if self.theme in (JOBS, INDEX):
            self.open(draw)

    def plan(self, draw: Draw) -> None:
        """An estimate, or batches."""
        op = draw.pick([op for op in PLANS if op in self.ops])
        self.make(Step(op, PLANS[op](draw)))

    def step(self, draw: Draw) -> None:
        """A small step of many requests."""
        self.make(Step("runtime.admit", {"document": step(draw)}))

    def step_document(self, draw: Draw) -> None:
        """A step, right or with something wrong."""
        document = edged_step(draw) if draw.chance(75) else DOCUMENTS["runtime.admit"].draw(draw)
        self.make(Step("runtime.admit", {"document": document}))

    def report(self, draw: Draw) -> None:
        """A report, right or with something wrong."""
        document = edged_report(draw) if draw.chance(75) else DOCUMENTS["runtime.report"].draw(draw)
        self.make(Step("runtime.report", {"document": document}))

    def open(self, draw: Draw) -> None:
        """Plenty of everything but for one resource, now and then."""
        base = [unit(number) for number in range(draw.pick((2, 1, 3)))]
        if self.claims("identity"):
            name = draw.pick(list(OTHERS))
            base.append({**base[0], name: OTHERS[name]})
        self.units = base
        if not self.account.exact:
            self.open_places(draw)
            return
        capacity: Request = dict.fromkeys(KINDS, 40)
        for kind in KINDS:
            if draw.chance(35):
                capacity[kind] = draw.pick((2, 4, 6, 5, 1) if kind != "queue_slots" else (1, 2, 3, 0))
        held: Request = {kind: draw.pick((0, 0, 1, 2, 3)) if draw.chance(30) else 0 for kind in KINDS}
        capacity = {kind: capacity[kind] + held[kind] for kind in KINDS}
        if draw.chance(6):
            short = draw.pick(KINDS)
            held[short] = capacity[short] + 1
        request = {"capacity": capacity, "held": held, "workers": draw.pick((1, 1, 2, 3))}
        reply = self.make(Step("runtime.open", request))
        if not isinstance(reply, Returned):  # more was held than there is
            self.make(Step("runtime.open", {**request, "held": dict.fromkeys(KINDS, 0)}))
        for one in self.units:
            if draw.chance(75):
                self.try_(Step("runtime.commit", {"unit": one}))

    def open_places(self, draw: Draw) -> None:
        """Whole places for one to three units, of an engine that counts in such."""
        self.units = [{**one, "bytes": PLACE_BYTES} for one in self.units]
        places = draw.pick((2, 2, 3, 1)) * PLACE_BYTES
        capacity = {**dict.fromkeys(KINDS, 1 << 20), "pinned_bytes": places, "staging_bytes": places, "queue_slots": 64}
        self.make(Step("runtime.open", {"capacity": capacity, "held": dict.fromkeys(KINDS, 0), "workers": 1}))
        for one in self.units:
            self.try_(Step("runtime.commit", {"unit": one}))

    def _rules(self) -> dict[str, tuple[int, Choice]]:
        """Rules whose ops the engine has."""
        have = self.ops.__contains__
        exact = self.account.exact
        found: dict[str, tuple[int, Choice, bool]] = {
            "load": (9, self.load, True),
            "store": (3, self.store, self.claims("stores")),
            "fresh-store": (4, self.fresh_store, self.claims("stores")),
            "submit": (6, self.submit, True),
            "complete": (9, self.complete, True),
            "through": (3, self.through, True),
            "share": (4, self.share, True),
            "cancel": (4, self.cancel, have("runtime.cancel")),
            "reset": (2, self.reset, have("runtime.reset")),
            "late": (3, self.late, have("runtime.reset")),
            "again": (2, self.again, exact),
            "odd": (2, self.odd, exact),
            "commit": (3, self.commit, True),
            "inspect": (1, self.inspect, have("runtime.inspect")),
        }
        if self.ops >= INDEX_OPS:
            found |= {
                "publish": (4, self.publish, True),
                "prepare": (2, self.prepare, True),
                "published-late": (2, self.published_late, True),
                "look": (4, self.look, True),
                "end-look": (2, self.end_look, True),
                "delete": (3, self.delete, True),
                "collect": (4, self.collect, True),
                "delete-through": (3, self.delete_through, True),
                "one-of-two": (4, self.one_of_two, self.claims("identity")),
            }
        return {name: (weight, rule) for name, (weight, rule, fits) in found.items() if fits}

    def load(self, draw: Draw) -> None:
        """A request for rows."""
        self.reserve(draw, "load")

    def store(self, draw: Draw) -> None:
        """A request's rows for the backend."""
        self.reserve(draw, "store")

    def fresh_store(self, draw: Draw) -> None:
        """A store of rows that nobody has, which ends well, fails or is cancelled, and a load of them after each."""
        self.serial += 1
        size = {} if self.account.exact else {"bytes": PLACE_BYTES}
        rows = unit(0, tokens_sha256=f"{self.serial:064x}", **size)
        self.units = [*self.units[-3:], rows]
        name = self.reserve(draw, "store", rows)
        if name is None:
            return
        handle = self.account.jobs[name].transfer.handle
        if draw.chance(40):
            self.reserve(draw, draw.pick(("load", "store")), rows)
        self.try_(Step("runtime.submit", {"request": name}))
        if draw.chance(35):
            self.try_(Step("runtime.cancel", {"request": name}))
        if draw.chance(10):
            self.try_(Step("runtime.reset", {}))
        self.report_all(draw, handle)
        self.reserve(draw, "load", rows)

    def reserve(self, draw: Draw, direction: str, rows: Request | None = None, name: str = "") -> str | None:
        """A reservation; the name of its job, if there is one."""
        rows = rows or draw.pick(self.units)
        contract = "approximate" if draw.chance(30) else "exact"
        wanted = [one for one in FALLBACKS if draw.chance(50) and (one != "degrade" or contract == "approximate")]
        deadline = draw.pick((20, 20, 20, 12)) if self.claims("deadlines") else 20
        free = [one for one in NAMES if one not in self.account.jobs] or list(NAMES)
        name = name or draw.pick(free if draw.chance(90) else list(NAMES))
        self.serial += 1
        bound = f"t{self.serial}"
        request = {
            "request": name,
            "direction": direction,
            "unit": rows,
            "staging_bytes": rows["bytes"] + (draw.pick((0, 0, 0, 1)) if self.account.exact else 0),
            "contract": contract,
            "fallbacks": wanted[::-1] if draw.chance(50) else wanted,
            "recompute_ms": draw.pick((1, 9, 10, 8, 12)),
            "now_ms": draw.pick((10, 10, 11)),
            "finish_ms": draw.pick((12, 12, 13, 20)) if deadline == 12 else draw.pick((12, 12, 12, 20, 20.5)),
            "deadline_ms": deadline,
        }
        if not self.claims("deadlines"):
            request["finish_ms"] = 12
        if self.claims("deadlines") and draw.chance(8):
            now, took, end = draw.pick(DECIMALS)
            request |= {"now_ms": now, "recompute_ms": took, "deadline_ms": end, "finish_ms": draw.pick((end, end, 12))}
        if self.account.exact and draw.chance(4):
            request |= draw.pick(TERMS)
            request["request"] = draw.pick((name, *self.account.jobs))
        reply = self.make(Step("runtime.reserve", request, {f"{bound}_read": "/read", f"{bound}_epoch": "/epoch"}))
        if not isinstance(reply, Returned) or reply.value["outcome"] != "granted":
            return None
        job = self.account.jobs.get(name)
        if job is None:
            return None
        if all(one.handle != job.transfer.handle for one in self.begun):
            self.begun.append(Begun(job.transfer.handle, bound, job.transfer.size))
        return name

    def through(self, draw: Draw) -> None:
        """A load or a store from its beginning to its end."""
        name = self.reserve(draw, "store" if self.claims("stores") and draw.chance(30) else "load")
        if name is not None:
            handle = self.account.jobs[name].transfer.handle
            self.try_(Step("runtime.submit", {"request": name}))
            self.report_all(draw, handle)

    def share(self, draw: Draw) -> None:
        """Several loads of the same rows, or of rows that differ in one field."""
        rows = draw.pick(self.units)
        others = [one for one in self.units if sum(one[name] != rows[name] for name in rows) <= 1]
        self.try_(Step("runtime.commit", {"unit": rows}))
        names = []
        for index in range(draw.integer(2, 3)):
            one = self.neighbour(draw, rows) if draw.chance(40) else draw.pick(others)
            self.try_(Step("runtime.commit", {"unit": one}))
            free = [name for name in NAMES if name not in self.account.jobs]
            made = self.reserve(draw, "load", rows if index == 0 else one, free[0]) if free else None
            if made is not None:
                names.append(made)
                if draw.chance(40):
                    self.try_(Step("runtime.submit", {"request": made}))
        if names and draw.chance(50):
            self.try_(Step("runtime.cancel", {"request": draw.pick(names)}))
        for name in names:
            job = self.account.jobs.get(name)
            if job is not None and draw.chance(60):
                self.try_(Step("runtime.submit", {"request": name}))
                self.report_all(draw, job.transfer.handle)

    def neighbour(self, draw: Draw, rows: Request, *fields: str) -> Request:
        """Rows that differ in one field, if the engine tells such apart."""
        if not self.claims("identity"):
            return rows
        name = draw.pick([name for name in (*OTHERS, *fields) if name != "bytes" or self.account.exact])
        other = {**OTHERS, "integrity": "unverified"}[name]
        return {**rows, name: other if rows[name] != other else unit(0)[name]}

    def submit(self, draw: Draw) -> None:
        """Mostly of a job that waits for it."""
        waiting = [job.name for job in self.account.jobs.values() if not job.submitted]
        names = waiting if waiting and draw.chance(92) else list(NAMES)
        self.make(Step("runtime.submit", {"request": draw.pick(names)}))

    def complete(self, draw: Draw) -> None:
        """A report of a transfer that was started."""
        moving = [one for one in self.begun if self.is_open(one)]
        if not moving:
            raise Illegal("nothing moves")
        self.report_one(draw, draw.pick(moving))

    def is_open(self, one: Begun) -> bool:
        """Whether a worker has yet to report."""
        transfer = self.account.transfers.get(one.handle)
        return transfer is not None and transfer.started and not transfer.over

    def report_all(self, draw: Draw, handle: Handle) -> None:
        """Reports of all workers, most of them good."""
        one = next((begun for begun in self.begun if begun.handle == handle), None)
        while one is not None and self.is_open(one):
            before = len(self.account.transfers[handle].reports)
            self.report_one(draw, one)
            transfer = self.account.transfers.get(handle)
            if transfer is None or len(transfer.reports) == before:
                return

    def report_one(self, draw: Draw, one: Begun) -> None:
        """One report."""
        transfer = self.account.transfers[one.handle]
        workers = [worker for worker in range(self.account.workers) if worker not in transfer.reports]
        left = one.size - sum(moved for _, moved in transfer.reports.values())
        moved = max(0, left) if len(workers) == 1 else draw.integer(0, max(0, left))
        good = not self.claims("fails") or draw.chance(85)
        if self.claims("fails") and draw.chance(8):
            moved = draw.pick((max(0, moved - 1), moved + 1, 0))
        worker = draw.pick(workers) if draw.chance(95) else draw.integer(0, self.account.workers)
        self.try_(self.reported(one, worker, good, moved, draw))

    def reported(self, one: Begun, worker: int, good: bool, moved: int, draw: Draw) -> Step:
        """A step of it."""
        handle = {"read": {"$bind": f"{one.bound}_read"}, "epoch": {"$bind": f"{one.bound}_epoch"}}
        now = draw.pick((12, 12, 19, 20))
        return Step("runtime.complete", {**handle, "worker": worker, "ok": good, "bytes": moved, "now_ms": now})

    def late(self, draw: Draw) -> None:
        """A reset in flight or two, a new transfer after each, and a completion from before."""
        moving = [one for one in self.begun if self.is_open(one)]
        if not moving:
            raise Illegal("nothing moves")
        for _ in range(draw.pick((1, 1, 2))):
            moving = [one for one in self.begun if self.is_open(one)] or moving
            self.try_(Step("runtime.reset", {}))
            rows = draw.pick(self.units)
            self.try_(Step("runtime.commit", {"unit": rows}))
            name = self.reserve(draw, "load", rows) if draw.chance(80) else None
            if name is not None and draw.chance(80):
                self.try_(Step("runtime.submit", {"request": name}))
        one = draw.pick(moving[::-1])
        for _ in range(draw.integer(1, 1 + self.account.workers)):
            worker = draw.integer(0, max(0, self.account.workers - 1))
            self.try_(self.reported(one, worker, True, one.size, draw))
        self.look_around()

    def again(self, draw: Draw) -> None:
        """A report once more, of what is over or of a former epoch."""
        if not self.begun:
            raise Illegal("nothing was begun")
        one, last = draw.pick(self.begun[::-1]), self.account.workers - (0 if draw.chance(15) else 1)
        self.make(self.reported(one, draw.integer(0, max(0, last)), True, one.size, draw))
        self.look_around()

    def odd(self, draw: Draw) -> None:
        """A report, or a call, of what there is not."""
        handle: Request = {"read": "read-none", "epoch": self.account.epoch}
        if self.begun and draw.chance(60):
            one = draw.pick(self.begun)
            handle = {
                "read": {"$bind": f"{one.bound}_read"},
                "epoch": draw.pick((self.account.epoch, self.account.epoch + 1)),
            }
        request = {**handle, "worker": 0, "ok": True, "bytes": 2, "now_ms": 12}
        steps = (Step("runtime.complete", request), Step("runtime.cancel", {"request": draw.pick(NAMES)}))
        self.make(draw.pick(steps))

    def look_around(self) -> None:
        """What a refusal left."""
        self.try_(Step("runtime.inspect", {}))

    def cancel(self, draw: Draw) -> None:
        """Mostly of a job that there is; now and then of all of them, one after another."""
        live = list(self.account.jobs)
        if not live:
            raise Illegal("there is no job")
        name = draw.pick(live)
        self.make(Step("runtime.cancel", {"request": name}))
        if draw.chance(25):
            for one in list(self.account.jobs):
                self.try_(Step("runtime.cancel", {"request": one}))

    def reset(self, draw: Draw) -> None:
        """A new epoch, in which some rows are there again."""
        self.make(Step("runtime.reset", {}))
        for one in self.units:
            if draw.chance(60):
                self.try_(Step("runtime.commit", {"unit": one}))

    def commit(self, draw: Draw) -> None:
        """Rows that are there, or seldom ones that may not be."""
        rows = draw.pick(self.units)
        if self.account.exact and draw.chance(6):
            rows = {**rows, "integrity": draw.pick(("unverified", "corrupt"))}
        self.make(Step("runtime.commit", {"unit": rows}))

    def inspect(self, draw: Draw) -> None:
        """A look."""
        self.make(Step("runtime.inspect", {}))

    # --- index ---

    def prepare(self, draw: Draw) -> None:
        """Entries of some rows."""
        self.written(draw)

    def written(self, draw: Draw) -> str | None:
        """The name of their generation."""
        self.serial += 1
        bound = f"g{self.serial}"
        rows = [one for one in self.units if draw.chance(60)] or [draw.pick(self.units)]
        reply = self.make(Step("runtime.prepare_index", {"units": rows}, {bound: "/generation"}))
        if not isinstance(reply, Returned):
            return None
        self.generations.append((bound, reply.value["generation"]))
        return bound

    def publish(self, draw: Draw) -> None:
        """Entries that are written and published."""
        bound = self.written(draw)
        if bound is not None:
            self.try_(Step("runtime.publish_index", {"generation": {"$bind": bound}}))
            self.sought(draw)

    def published_late(self, draw: Draw) -> None:
        """Entries that were written some time ago, or never."""
        if not self.generations or draw.chance(8):
            self.make(Step("runtime.publish_index", {"generation": draw.integer(0, 9)}))
            return
        bound, _ = draw.pick(self.generations)
        self.make(Step("runtime.publish_index", {"generation": {"$bind": bound}}))
        self.sought(draw)

    def sought(self, draw: Draw, rows: Request | None = None) -> None:
        """A look-up that has not ended; now and then of rows that differ in one field from those that there are."""
        self.serial += 1
        bound = f"l{self.serial}"
        if rows is None:
            rows = draw.pick(self.units)
            if self.account.exact and draw.chance(25):
                rows = self.neighbour(draw, rows, "integrity")
        reply = self.make(Step("runtime.look_up", {"unit": rows}, {bound: "/lookup"}))
        if isinstance(reply, Returned):
            self.lookups.append(bound)

    def look(self, draw: Draw) -> None:
        """One or two look-ups."""
        self.sought(draw)
        if draw.chance(30):
            self.end_look(draw)

    def end_look(self, draw: Draw) -> None:
        """The end of one; seldom twice."""
        if not self.lookups:
            raise Illegal("no look-up is in flight")
        bound = draw.pick(self.lookups)
        self.make(Step("runtime.end_lookup", {"lookup": {"$bind": bound}}))
        if draw.chance(90):
            self.lookups.remove(bound)

    def delete(self, draw: Draw) -> None:
        """A tombstone."""
        rows = draw.pick(self.units)
        self.make(Step("runtime.tombstone", {"unit": rows}))
        if draw.chance(50):
            self.sought(draw, rows)

    def collect(self, draw: Draw) -> None:
        """Memory of rows that are deleted, mostly."""
        rows = draw.pick(self.units)
        if draw.chance(60):
            self.try_(Step("runtime.confirm_deletion", {"unit": rows, "durable": draw.chance(75)}))
        self.make(Step("runtime.collect", {"unit": rows}))

    def delete_through(self, draw: Draw) -> None:
        """Deletion and collection with something in between."""
        rows = draw.pick(self.units)
        self.try_(Step("runtime.commit", {"unit": rows}))
        if draw.chance(60):
            self.try_publish(rows)
        held = draw.pick(("look", "other-look", "load", "nothing"))
        if held == "look":
            self.sought(draw, rows)
        elif held == "other-look":
            self.sought(draw)
        elif held == "load":
            name = self.reserve(draw, "load", rows)
            if name is not None and draw.chance(60):
                self.try_(Step("runtime.submit", {"request": name}))
                if draw.chance(40):
                    self.try_(Step("runtime.cancel", {"request": name}))
        self.try_(Step("runtime.tombstone", {"unit": rows}))
        if draw.chance(30):
            self.try_(draw.pick((Step("runtime.commit", {"unit": rows}), Step("runtime.tombstone", {"unit": rows}))))
        if draw.chance(80):
            self.try_(Step("runtime.confirm_deletion", {"unit": rows, "durable": draw.chance(80)}))
        if draw.chance(20):
            self.try_(Step("runtime.confirm_deletion", {"unit": rows, "durable": False}))
        if draw.chance(25):
            self.try_(Step("runtime.reset", {}))
            self.try_(Step("runtime.commit", {"unit": rows}))
            self.try_(Step("runtime.tombstone", {"unit": rows}))
            self.try_(Step("runtime.confirm_deletion", {"unit": rows, "durable": True}))
        self.try_(Step("runtime.collect", {"unit": rows}))
        self.sought(draw, rows)

    def one_of_two(self, draw: Draw) -> None:
        """Rows and others that differ in one field: the first are deleted, and the others looked for or read."""
        rows = draw.pick(self.units)
        other = self.neighbour(draw, rows)
        for one in (rows, other):
            self.try_(Step("runtime.commit", {"unit": one}))
        self.try_publish(rows, other)
        name = self.reserve(draw, "load", other) if draw.chance(50) else None
        if name is not None and draw.chance(50):
            self.try_(Step("runtime.submit", {"request": name}))
        self.try_(Step("runtime.tombstone", {"unit": rows}))
        if name is None:
            self.sought(draw, other)
            return
        self.try_(Step("runtime.confirm_deletion", {"unit": rows, "durable": True}))
        self.try_(Step("runtime.collect", {"unit": rows}))

    def try_publish(self, *rows: Request) -> None:
        """An entry of each of these rows."""
        self.serial += 1
        bound = f"g{self.serial}"
        self.try_(Step("runtime.prepare_index", {"units": list(rows)}, {bound: "/generation"}))
        self.try_(Step("runtime.publish_index", {"generation": {"$bind": bound}}))

    def try_(self, step: Step) -> None:
        """A step that is left out where it is not legal."""
        with suppress(Illegal):
            self.make(step)


def claimed(description: EngineDescription) -> frozenset[str]:
    """Profiles of the contract that the engine claims or has all ops of."""
    own = {
        JOBS: JOB_OPS,
        INDEX: INDEX_OPS | {"runtime.open", "runtime.commit"},
        ADMISSION: PLANS.keys() | {"runtime.admit"},
        REPORT: {"runtime.report"},
    }
    if description.profiles is not None:
        return description.profiles & own.keys()
    return frozenset(name for name, ops in own.items() if ops <= description.ops)


@functools.cache
def defaults() -> Mapping[str, Json]:
    """Capability of runtime to what an engine that declares nothing has."""
    return {name: one.default for name, one in capabilities(root()).items() if one.contract == "runtime"}


class RuntimeContract:
    """The contract, for the fuzzer."""

    name = "runtime"
    account = "kvassay.monitors.runtime"
    atomic = frozenset(DOCUMENTS)

    def __init__(self) -> None:
        self._beside: tuple[EngineDescription, Replayed] | None = None
        """The last engine, and the reference that answers plans and documents; no opening is needed for those."""

    def unfit(self, description: EngineDescription) -> str | None:
        """It needs one of the profiles."""
        if claimed(description):
            return None
        return "it claims none of the profiles runtime-jobs, runtime-index, runtime-admission and runtime-report"

    def profile(self, ops: frozenset[str], description: EngineDescription) -> str:
        """The profile that has the ops."""
        if ops <= STATELESS:
            return REPORT if ops == {"runtime.report"} else ADMISSION
        return INDEX if ops & INDEX_OPS else JOBS

    def scene(self, description: EngineDescription, make: Make) -> RuntimeScene:
        """A scene of nothing."""
        if self._beside is None or self._beside[0] is not description:
            self._beside = description, Replayed(description)
        return RuntimeScene(description, make, self._beside[1])

    def reason(self, outcome: Outcome) -> str:
        """The rule that is broken; of plans and documents, what differs."""
        assert outcome.finding is not None
        rule = outcome.finding.message.partition(":")[0]
        return rule if rule in frozenset(Rule) else reason(outcome)

    def written(self, step: Step) -> Mapping[str, Json]:
        """A document as a patch on its base."""
        if step.op in DOCUMENTS:
            return {"document": DOCUMENTS[step.op].written(step.request["document"])}
        return step.request


CONTRACT = RuntimeContract()
