"""The reference of runtime: beside the oracle on random calls, and the monitor on engines that can do less."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from kvassay.adapters.base import EngineAdapter
from kvassay.adapters.local import InProcess
from kvassay.cli import status
from kvassay.core.engine import Refused, Returned
from kvassay.core.model import Verdict
from kvassay.corpus.data import fixture_module, read_json, root
from kvassay.corpus.reconcile import choices, reconciliation
from kvassay.engines.reference import Reference
from kvassay.faults import runtime as seeded
from kvassay.monitors.runtime import KINDS, RuntimeMonitor
from kvassay_reference.runtime import Runtime
from kvassay_reference.runtime_admission import Credits, doubling

oracle = fixture_module("runtime.oracle")
Rejection = fixture_module("_oracle").Rejection
Call = tuple[str, dict[str, Any]]
POLICIES = ("fifo", "earliest_deadline", "exact_deadline_coalescing")


def unit(number: int) -> dict[str, Any]:
    return {
        **fixture_module("runtime.oracle_base").identity(first_position=number, end_position=number + 1),
        "tokens_sha256": f"{number:064x}",
        "source": "host-0",
        "authority_epoch": 1,
        "integrity": "valid",
        "bytes": 2 + number,
    }


def calls(seed: int, count: int) -> Iterator[Call]:
    """Calls that are legal or not, with handles that are likely to exist."""
    chance = random.Random(seed)
    names, units = ("r1", "r2", "r3"), [unit(number) for number in range(3)]
    capacity = {kind: chance.choice((3, 6, 12)) for kind in KINDS}
    workers = chance.choice((1, 2))
    yield "open", {"capacity": capacity, "held": dict.fromkeys(KINDS, chance.choice((0, 1))), "workers": workers}
    for _ in range(count):
        rows = chance.choice(units)
        op = chance.choice(
            ["commit", "cancel", "reset", "look_up", "tombstone", "confirm_deletion", "collect", "prepare_index"]
            + ["publish_index", "end_lookup"]
            + ["reserve", "submit", "complete"] * 5
        )
        if op == "reserve":
            yield (
                op,
                {
                    "request": chance.choice(names),
                    "direction": chance.choice(("load", "load", "store")),
                    "unit": rows,
                    "staging_bytes": rows["bytes"],
                    "contract": "exact",
                    "fallbacks": chance.choice(([], ["postpone"], ["recompute", "postpone"])),
                    "recompute_ms": chance.choice((1, 9, 11)),
                    "now_ms": 10,
                    "finish_ms": chance.choice((12, 12, 12, 20, 21)),
                    "deadline_ms": 20,
                },
            )
        elif op == "complete":
            yield (
                op,
                {
                    "read": f"read-{chance.randint(1, 4)}",
                    "epoch": chance.randint(1, 3),
                    "worker": chance.randint(0, workers),
                    "ok": chance.random() < 0.8,
                    "bytes": chance.choice((1, 2, 3, 4)),
                    "now_ms": chance.choice((12, 19, 20)),
                },
            )
        elif op in ("submit", "cancel"):
            yield op, {"request": chance.choice(names)}
        elif op == "reset":
            if chance.random() < 0.3:
                yield op, {}
        elif op == "publish_index":
            yield op, {"generation": chance.randint(0, 6)}
        elif op == "prepare_index":
            yield op, {"units": chance.sample(units, 2)}
        elif op == "end_lookup":
            yield op, {"lookup": f"lookup-{chance.randint(1, 6)}"}
        elif op == "confirm_deletion":
            yield op, {"unit": rows, "durable": chance.random() < 0.7}
        else:
            yield op, {"unit": rows}


def judged(judge: Any, op: str, request: dict[str, Any]) -> tuple[str | None, Any]:
    """The oracle's reason, or its result."""
    try:
        return None, getattr(judge, f"runtime_{op}")(request)
    except Rejection as rejection:
        return rejection.reason, None


@pytest.mark.parametrize("seed", range(60))
def test_reference_oracle_and_monitor_agree_on_any_calls(seed: int) -> None:
    judge, engine = oracle.Oracle(), InProcess(Reference)
    engine.open()
    monitor = RuntimeMonitor(engine.description)
    for op, request in calls(seed, 80):
        reply = engine.call(f"runtime.{op}", request, 1)
        outcome = monitor.observe(f"runtime.{op}", request, reply)
        assert outcome.verdict is Verdict.PASS, (op, request, outcome)
        reason, expected = judged(judge, op, request)
        if reason is None:
            assert isinstance(reply, Returned), (op, request, reply)
            assert reply.value == expected
        else:
            assert isinstance(reply, Refused), (op, request, reason)
            assert reply.reason == reason


def free(engine: InProcess) -> Mapping[str, int]:
    reply = engine.call("runtime.inspect", {}, 1)
    assert isinstance(reply, Returned)
    found: Mapping[str, int] = reply.value["free"]
    return found


def test_every_credit_is_back_when_everything_has_ended() -> None:
    for seed in range(30):
        engine = InProcess(Reference)
        engine.open()
        opened = None
        for op, request in calls(seed, 60):
            engine.call(f"runtime.{op}", request, 1)
            opened = opened or request
        assert opened is not None
        for name in ("r1", "r2", "r3"):
            engine.call("runtime.cancel", {"request": name}, 1)
        engine.call("runtime.reset", {}, 1)
        for epoch in range(12):
            for number in range(12):
                for worker in range(opened["workers"]):
                    report = {"read": f"read-{number}", "epoch": epoch, "worker": worker}
                    engine.call("runtime.complete", {**report, "ok": True, "bytes": 1, "now_ms": 1}, 1)
        budget = {kind: opened["capacity"][kind] - opened["held"][kind] for kind in KINDS}
        assert free(engine) == budget


def script(engine: type[EngineAdapter], *steps: Call) -> Verdict:
    """The monitor's first complaint about an engine that is not exact."""
    running = InProcess(type("Lax", (engine,), {"capabilities": {**engine.capabilities, "runtime.exact": False}}))
    running.open()
    monitor = RuntimeMonitor(running.description)
    for op, request in steps:
        outcome = monitor.observe(f"runtime.{op}", request, running.call(f"runtime.{op}", request, 1))
        if outcome.verdict is not Verdict.PASS:
            return outcome.verdict
    return Verdict.PASS


def load(name: str, number: int) -> Call:
    return "reserve", {
        "request": name,
        "direction": "load",
        "unit": unit(number),
        "staging_bytes": unit(number)["bytes"],
        "contract": "exact",
        "fallbacks": ["postpone"],
        "recompute_ms": None,
        "now_ms": 10,
        "finish_ms": 12,
        "deadline_ms": 20,
    }


def done(number: int, epoch: int = 1, size: int = 2) -> Call:
    report = {"read": f"read-{number}", "epoch": epoch, "worker": 0, "ok": True, "bytes": size, "now_ms": 12}
    return "complete", report


OPEN: Call = ("open", {"capacity": dict.fromkeys(KINDS, 4), "held": dict.fromkeys(KINDS, 0), "workers": 1})
BEGUN = (
    OPEN,
    ("commit", {"unit": unit(0)}),
    ("commit", {"unit": unit(1)}),
    load("r1", 0),
    ("submit", {"request": "r1"}),
)
SCRIPTS: dict[str, tuple[Call, ...]] = {
    "QueueGrowsSilently": (*BEGUN, load("r2", 1), load("r3", 1)),
    "CancelFreesWhatIsWritten": (*BEGUN, ("cancel", {"request": "r1"})),
    "EpochIsNotCompared": (
        *BEGUN,
        ("reset", {}),
        ("commit", {"unit": unit(0)}),
        load("r2", 0),
        ("submit", {"request": "r2"}),
        done(1),
    ),
    "JoinsByTokens": (*BEGUN, load("r2", 0)),
    "OneCancelsAll": (*BEGUN, load("r2", 0), ("cancel", {"request": "r1"}), done(1)),
    "LinkNeverReturns": (*BEGUN, done(1)),
    "PublishedAtReservation": (
        OPEN,
        ("reserve", {**load("s1", 0)[1], "direction": "store"}),
        load("r1", 0),
    ),
}
SILENT = {"JoinsByTokens"}
"""Their defect does not show in the script, which holds nothing against a correct engine."""


@pytest.mark.parametrize("name", SCRIPTS)
def test_engines_that_are_not_exact_are_held_to_the_rules(name: str) -> None:
    faulty = next(one for one in seeded.FAULTS if one.__name__ == name)
    assert script(Reference, *SCRIPTS[name]) is Verdict.PASS
    assert script(faulty, *SCRIPTS[name]) is (Verdict.PASS if name in SILENT else Verdict.FAIL)


def test_an_engine_may_turn_away_what_would_fit() -> None:
    class Cautious(Runtime):
        def affordable(self, charged: Credits) -> bool:
            return not self.jobs and super().affordable(charged)

    class Engine(Reference):
        run_class = Cautious

    assert script(Engine, *BEGUN, load("r2", 1), done(1), load("r2", 1)) is Verdict.PASS


@pytest.mark.parametrize(
    ("count", "bucket"), [(0, 0), (1, 1), (4, 1), (5, 2), (8, 2), (9, 3), (16, 3), (17, 4), (1000, 9)]
)
def test_buckets_double(count: int, bucket: int) -> None:
    assert doubling(count, 4) == bucket


def test_three_policies_buy_three_sets() -> None:
    bought = {}
    for policy in POLICIES:
        rows = next(one for one in choices() if one.name == "policy").make(policy)
        bought[policy] = {row["request"] for row in rows if row["outcome"] == "admitted"}
        assert sum(row["saved_bytes"] for row in rows) == (4096 if policy == POLICIES[2] else 0)
    assert len(set(map(frozenset, bought.values()))) == 3
    assert bought[POLICIES[2]] == {"req-alpha", "req-beta"}


def test_the_golden_figures_come_out() -> None:
    figures = reconciliation("runtime")
    assert {figure.name for figure in figures} >= {"shared_unit_bytes", "delta_recompute_ms"}
    assert all(figure.agrees for figure in figures)


def test_there_are_as_many_mutations_as_promised() -> None:
    folder = root() / "fixtures" / "runtime"
    cases = [one for name in ("step", "report") for one in read_json(folder / "cases" / f"{name}.json")["cases"]]
    mutations = [one for one in cases if one["kind"] == "mutation"]
    assert len(mutations) >= read_json(folder / "golden-figures.json")["mutations_at_least"]


def test_the_command_writes_the_table_of_a_policy(tmp_path: Path) -> None:
    file = tmp_path / "policy.json"
    asked = ["oracle", "runtime", "--policy", "exact_deadline_coalescing", "--output", str(file)]
    assert status([*asked, "--json"]) == 0
    assert [row["request"] for row in json.loads(file.read_text())] == [
        "req-delta",
        "req-beta",
        "req-alpha",
        "req-gamma",
    ]
    assert status(asked) == 0
    assert file.read_text().splitlines()[0].split()[:2] == ["request", "finish_ms"]
    assert status(["oracle", "identity", "--policy", "fifo"]) == 2
    assert status(["oracle", "runtime", "--policy", "lifo"]) == 2
    assert status(["oracle", "--policy", "fifo"]) == 2
