"""Controls: a case holds a job, looks, and lets it go, and its verdict does not hang on who is faster."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest
from kvassay.adapters.base import EngineAdapter, EngineInfo, Pending, Rejected
from kvassay.adapters.local import InProcess
from kvassay.core.engine import Returned
from kvassay.core.expect import parse
from kvassay.core.judge import Rules, judge
from kvassay.core.model import Case, EngineDescription, Kind, Level, Result, Status, Step, Verdict
from kvassay.corpus.ops import check_result, find, ops
from kvassay.corpus.schemas import problem
from kvassay.engines.reference import Reference

Request = Mapping[str, Any]
OWN = ("toy.copy", "toy.read", "toy.wait")
CONTROLS = ("control.hold", "control.release", "control.reorder", "control.fail", "control.advance_clock")


class Copies(EngineAdapter):
    """Copies values into slots, each on a thread of its own after a moment that no one knows."""

    engine = EngineInfo("copies", "1")
    controls: ClassVar[tuple[str, ...]] = CONTROLS
    moment_s: ClassVar[float] = 0.001

    def describe(self) -> EngineDescription:
        return replace(super().describe(), ops=frozenset((*OWN, *self.controls)), profiles=frozenset({"toy"}))

    def open(self) -> None:
        self.lock = threading.Lock()
        self.slots: dict[str, int] = {}
        self.jobs: dict[str, dict[str, Any]] = {}
        self.held: list[str] = []
        self.hold_new = False
        self.now_ms = 0

    def toy_copy(self, request: Request) -> dict[str, Any]:
        with self.lock:
            job = f"copy-{len(self.jobs)}"
            self.jobs[job] = {**request, "state": "running"}
            if self.holds(job):
                self.held.append(job)
        threading.Timer(self.moment_s, self.arrive, [job]).start()
        return {"job": job}

    def holds(self, job: str) -> bool:
        return self.hold_new

    def arrive(self, job: str) -> None:
        with self.lock:
            if job not in self.held:
                self.publish(job)

    def publish(self, job: str) -> None:
        if self.jobs[job]["state"] == "running":
            self.jobs[job]["state"] = "done"
            self.slots[self.jobs[job]["slot"]] = self.jobs[job]["value"]

    def toy_read(self, request: Request) -> dict[str, Any]:
        with self.lock:
            return {"value": self.slots.get(request["slot"], 0)}

    def toy_wait(self, request: Request) -> dict[str, Any] | Pending:
        return self.poll(request["job"])

    def poll(self, ticket: str) -> dict[str, Any] | Pending:
        with self.lock:
            state = self.jobs[ticket]["state"]
        if state == "failed":
            raise Rejected("COPY_FAILED")
        return {"state": state} if state == "done" else Pending(ticket)

    def control_hold(self, request: Request) -> dict[str, Any]:
        with self.lock:
            running = [job for job in self.jobs if self.jobs[job]["state"] == "running" and job not in self.held]
            self.held += request.get("jobs", running)
            self.hold_new |= "jobs" not in request
            return {"held": list(self.held)}

    def control_release(self, request: Request) -> dict[str, Any]:
        with self.lock:
            self.hold_new &= "jobs" in request
            released = [job for job in self.held if job in request.get("jobs", self.held)]
            self.held = [job for job in self.held if job not in released]
            for job in released:
                self.publish(job)
            return {"released": released}

    def control_reorder(self, request: Request) -> dict[str, Any]:
        with self.lock:
            self.held = [*request["jobs"], *(job for job in self.held if job not in request["jobs"])]
            return {"order": list(self.held)}

    def control_fail(self, request: Request) -> dict[str, Any]:
        with self.lock:
            for job in request["jobs"]:
                self.held.remove(job)
                self.jobs[job]["state"] = "failed"
            return {"failed": list(request["jobs"])}

    def control_advance_clock(self, request: Request) -> dict[str, Any]:
        self.now_ms += request["by_ms"]
        return {"now_ms": self.now_ms}


class Deaf(Copies):
    """Says that it holds, and publishes all the same."""

    def holds(self, job: str) -> bool:
        self.publish(job)
        return True


class Uncontrolled(Copies):
    """Has no controls."""

    controls = ()


def step(op: str, request: Request, expect: Request, **more: Any) -> Step:
    return Step(op, request, parse(expect), **more)


def is_(name: str, value: Any) -> dict[str, Any]:
    return {"equals": [{"at": f"/{name}", "value": value}]}


ACCEPTS = {"accepts": True}
JOB = {"bind": {"job": "/job"}}
HOLD_AND_RELEASE = (
    step("control.hold", {}, is_("held", [])),
    step("toy.copy", {"slot": "a", "value": 7}, ACCEPTS, **JOB),
    step("toy.read", {"slot": "a"}, is_("value", 0)),
    step("control.release", {}, is_("released", ["copy-0"])),
    step("toy.wait", {"job": {"$bind": "job"}}, is_("state", "done")),
    step("toy.read", {"slot": "a"}, is_("value", 7)),
)
LATER_COPY_FIRST = (
    step("control.hold", {}, ACCEPTS),
    step("toy.copy", {"slot": "a", "value": 1}, ACCEPTS),
    step("toy.copy", {"slot": "a", "value": 2}, ACCEPTS),
    step("control.reorder", {"jobs": ["copy-1", "copy-0"]}, is_("order", ["copy-1", "copy-0"])),
    step("control.release", {}, is_("released", ["copy-1", "copy-0"])),
    step("toy.read", {"slot": "a"}, is_("value", 1)),
)
BROKEN_COPY = (
    step("control.hold", {}, ACCEPTS),
    step("toy.copy", {"slot": "a", "value": 7}, ACCEPTS, **JOB),
    step("control.fail", {"jobs": [{"$bind": "job"}]}, is_("failed", ["copy-0"])),
    step("control.release", {}, is_("released", [])),
    step("toy.wait", {"job": {"$bind": "job"}}, {"rejects": "COPY_FAILED"}),
    step("toy.read", {"slot": "a"}, is_("value", 0)),
)
TIME = (
    step("control.advance_clock", {"by_ms": 30_000}, is_("now_ms", 30_000)),
    step("control.advance_clock", {"by_ms": 1}, is_("now_ms", 30_001)),
)


def verdict(engine: type[EngineAdapter], steps: tuple[Step, ...]) -> Result:
    case = Case(
        "toy/controls/case",
        "toy",
        ("TOY-001",),
        Level.MUST,
        "toy",
        Kind.SCENARIO,
        Status.STABLE,
        title="A held job",
        given="Given a held job, when it is released, then its effect is there.",
        why="A race that is not held is judged by luck.",
        steps=steps,
    )

    def check(op: str, value: Mapping[str, Any]) -> str | None:
        return None if op in OWN else check_result(op, value)

    running = InProcess(engine)
    try:
        return judge(case, running, Rules({"toy": frozenset(OWN)}, {}, check))
    finally:
        running.close()


@pytest.mark.parametrize("steps", [HOLD_AND_RELEASE, LATER_COPY_FIRST, BROKEN_COPY, TIME])
@pytest.mark.parametrize("moment_s", [0.0, 0.004])
def test_a_controlled_case_has_one_verdict(
    steps: tuple[Step, ...], moment_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Copies, "moment_s", moment_s)
    results = [verdict(Copies, steps) for _ in range(5)]
    assert {result.verdict for result in results} == {Verdict.PASS}, results[0].finding


def test_an_engine_that_does_not_hold_fails() -> None:
    result = verdict(Deaf, HOLD_AND_RELEASE)
    assert (result.verdict, result.finding and result.finding.step) == (Verdict.FAIL, 2)


def test_a_pending_job_that_no_one_releases_is_an_error() -> None:
    waiting = replace(HOLD_AND_RELEASE[4], deadline_s=0.05)
    assert verdict(Copies, (*HOLD_AND_RELEASE[:2], waiting)).verdict is Verdict.ERROR


def test_an_engine_without_controls_is_not_judged_by_them() -> None:
    result = verdict(Uncontrolled, HOLD_AND_RELEASE)
    assert result.verdict is Verdict.NOT_APPLICABLE
    assert result.finding
    assert "control.hold" in result.finding.message


def test_the_controls_are_ops_like_others() -> None:
    assert {*CONTROLS, "control.inject"} == {op.name for op in ops().values() if op.family == "control"}
    for sent in (*HOLD_AND_RELEASE, *LATER_COPY_FIRST, *TIME):
        if sent.op in CONTROLS:
            assert problem(sent.request, find(sent.op).request) is None
    assert problem({"jobs": []}, find("control.hold").request) is not None
    assert problem({"by_ms": -1}, find("control.advance_clock").request) is not None
    assert problem({"key": "a", "fault": "corrupt"}, find("control.inject").request) is None
    assert problem({"key": "a", "fault": "burn"}, find("control.inject").request) is not None


DAMAGE = ("corrupt", "truncate", "drop", "evict")


@pytest.mark.parametrize("fault", DAMAGE)
def test_a_damaged_replica_is_served_by_nobody(fault: str) -> None:
    engine = InProcess(Reference)
    rows = np.arange(64, dtype=np.uint8)
    try:
        engine.open()
        engine.call("residency.open", {"slots": 2, "slot_bytes": 64}, 1)
        for key in ("a", "b"):
            engine.call("residency.put", {"key": key, "data": rows}, 1)
        damaged = [engine.call("control.inject", {"key": key, "fault": fault}, 1) for key in ("a", "c")]
        found = [engine.call("residency.get", {"key": key}, 1) for key in ("a", "b")]
    finally:
        engine.close()
    assert [reply.value["damaged"] for reply in damaged if isinstance(reply, Returned)] == [True, False]
    assert [reply.value["outcome"] for reply in found if isinstance(reply, Returned)] == ["miss", "hit"]
