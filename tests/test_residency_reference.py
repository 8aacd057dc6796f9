"""The reference of residency: its table of states, and random sequences of calls that the oracle follows."""

from __future__ import annotations

import base64
import random
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from kvassay.adapters.base import EngineAdapter
from kvassay.adapters.local import InProcess
from kvassay.core import tensors
from kvassay.core.engine import Refused, Reply, Returned
from kvassay.core.model import Verdict
from kvassay.corpus.data import fixture_module
from kvassay.engines.reference import Reference
from kvassay.engines.reference_residency_lesser import LESSER, PlainStore, Trusting
from kvassay.monitors.residency import ResidencyMonitor
from kvassay_reference.residency import NEXT, TRANSITIONS, VALID, Replica, Residency, State

SLOT_BYTES = 32
KEYS = ("a", "b", "c")
Call = tuple[str, dict[str, Any]]


def rows(number: int) -> Any:
    return np.random.default_rng(number).integers(0, 256, SLOT_BYTES, dtype=np.uint8)


class Calls:
    """Random legal calls; handles are numbers of reservations until they are bound."""

    def __init__(self, seed: int, count: int) -> None:
        self.random = random.Random(seed)
        self.count = count
        self.open: list[int] = []
        self.reserved = 0

    def __iter__(self) -> Iterator[Call]:
        slots = self.random.choice([1, 2, 3])
        yield "residency.open", {"slots": slots, "slot_bytes": SLOT_BYTES, "write_ttl_ms": 100, "read_ttl_ms": 80}
        names = ("put", "get", "lookup", "remove", "release", "reset", "advance", "inject")
        for number in range(self.count):
            kind = self.random.choice((*names, *("reserve", "copy", "complete") * 3, "cancel"))
            call = getattr(self, kind)(number)
            if call is not None:
                yield call

    def some(self, number: int, key: str) -> Any:
        return rows(number if self.random.random() < 0.7 else ord(key))

    def put(self, number: int) -> Call:
        key = self.random.choice(KEYS)
        return "residency.put", {"key": key, "data": self.some(number, key)}

    def get(self, number: int) -> Call:
        return "residency.get", {"key": self.random.choice(KEYS)}

    def lookup(self, number: int) -> Call:
        return "residency.lookup", {"keys": list(KEYS)}

    def remove(self, number: int) -> Call:
        force = {"force": True} if self.random.random() < 0.3 else {}
        return "residency.remove", {"keys": [self.random.choice(KEYS)], **force}

    def release(self, number: int) -> Call:
        tier = self.random.choice(["device", "host", "secondary"])
        return "residency.remove", {"keys": [self.random.choice(KEYS)], "tier": tier}

    def reset(self, number: int) -> Call | None:
        return ("residency.reset", {}) if self.random.random() < 0.2 else None

    def advance(self, number: int) -> Call:
        return "control.advance_clock", {"by_ms": self.random.choice([1, 40, 80])}

    def inject(self, number: int) -> Call | None:
        fault = self.random.choice(["corrupt", "truncate", "drop", "evict", ""])
        return ("control.inject", {"key": self.random.choice(KEYS), "fault": fault}) if fault else None

    def reserve(self, number: int) -> Call:
        self.reserved += 1
        self.open.append(self.reserved)
        keys = self.random.sample(KEYS, self.random.choice([1, 1, 2]))
        request: dict[str, Any] = {"mode": self.random.choice(["store", "load"]), "keys": keys, "owner": "r"}
        if request["mode"] == "store":
            request["data"] = [self.some(10 * number + index, key) for index, key in enumerate(keys)]
        return "residency.reserve", request

    def handle(self) -> int | None:
        return self.random.choice(self.open) if self.open else None

    def copy(self, number: int) -> Call | None:
        handle = self.handle()
        part = {"bytes": self.random.choice([0, 8, 16])} if self.random.random() < 0.4 else {}
        return None if handle is None else ("residency.copy", {"txn": handle, **part})

    def complete(self, number: int) -> Call | None:
        handle = self.handle()
        if handle is None:
            return None
        if self.random.random() < 0.8:
            self.open.remove(handle)
        failed = {"failed": [self.random.choice(KEYS)]} if self.random.random() < 0.2 else {}
        return "residency.complete", {"txn": handle, **failed}

    def cancel(self, number: int) -> Call | None:
        handle = self.handle()
        return None if handle is None else ("residency.cancel", {"txn": handle})


class Bound:
    """One engine, with its own handles in place of numbers."""

    def __init__(self) -> None:
        self.handles: dict[int, str] = {}
        self.reserved = 0

    def request(self, request: Mapping[str, Any]) -> dict[str, Any] | None:
        if "txn" not in request:
            return dict(request)
        handle = self.handles.get(request["txn"])
        return None if handle is None else {**request, "txn": handle}

    def told(self, op: str, value: Mapping[str, Any]) -> None:
        if op == "residency.reserve":
            self.reserved += 1
            if value["txn"] is not None:
                self.handles[self.reserved] = value["txn"]


def unnamed(value: Any) -> Any:
    """A result without handles, and with rows as bytes."""
    if isinstance(value, np.ndarray):
        return value.tobytes()
    if isinstance(value, Mapping):
        if tensors.is_tensor(value):
            return base64.b64decode(value["data"])
        return {name: unnamed(one) for name, one in value.items() if name != "txn"}
    return [unnamed(one) for one in value] if isinstance(value, list) else value


def told_by_oracle(oracle: Any, op: str, request: Mapping[str, Any]) -> tuple[str | None, Any]:
    rejection = fixture_module("_oracle").Rejection
    try:
        return None, getattr(oracle, op.replace(".", "_"))(tensors.write(request))
    except rejection as refusal:
        return refusal.reason, None


@pytest.mark.parametrize("seed", range(120))
def test_oracle_and_reference_answer_alike(seed: int) -> None:
    oracle = fixture_module("residency.oracle").Oracle()
    engine, ours, theirs = InProcess(Reference), Bound(), Bound()
    engine.open()
    for op, request in Calls(seed, 60):
        mine, its = ours.request(request), theirs.request(request)
        assert (mine is None) == (its is None)
        if mine is None or its is None:
            continue
        reply = engine.call(op, mine, 1)
        reason, value = told_by_oracle(oracle, op, its)
        if reason is not None:
            assert isinstance(reply, Refused), (op, request, reply)
            assert reply.reason == reason
            continue
        assert isinstance(reply, Returned), (op, request, reply)
        assert unnamed(reply.value) == unnamed(value), (op, request)
        ours.told(op, reply.value)
        theirs.told(op, value)


def watched(engine_class: type[EngineAdapter], seed: int) -> None:
    engine, bound = InProcess(engine_class), Bound()
    monitor = ResidencyMonitor(engine.description)
    engine.open()
    for op, request in Calls(seed, 60):
        mine = bound.request(request)
        if mine is None or op not in engine.description.ops:
            continue
        reply: Reply = engine.call(op, mine, 1)
        assert isinstance(reply, Returned | Refused), reply
        outcome = monitor.observe(op, mine, reply)
        assert outcome.verdict is Verdict.PASS, (op, request, reply, outcome.finding)
        if isinstance(reply, Returned):
            bound.told(op, reply.value)


@pytest.mark.parametrize("engine", [Reference, *(one for one in LESSER if one not in (PlainStore, Trusting))])
def test_no_random_sequence_blames_a_correct_engine(engine: type[EngineAdapter]) -> None:
    for seed in range(40):
        watched(engine, seed)


def test_the_table_of_states_has_one_target_for_each_event() -> None:
    assert len(NEXT) == len(TRANSITIONS)
    assert {row.target for row in TRANSITIONS} == set(State) - {State.UNUSED}


@pytest.mark.parametrize("state", list(State))
def test_an_event_that_the_table_lacks_is_refused(state: State) -> None:
    events = {row.event for row in TRANSITIONS}
    for event in events:
        replica = Replica("host", bytearray(1), state=state)
        if (state, event) in NEXT:
            replica.on(event)
            assert replica.state is NEXT[state, event]
        else:
            with pytest.raises(ValueError, match="cannot"):
                replica.on(event)


def test_valid_states_are_reached_by_publication_alone() -> None:
    into = {row.event for row in TRANSITIONS if row.target in VALID}
    assert into == {"put-device", "put-host", "publish", "spill"}
    assert all(row.event == "release" for row in TRANSITIONS if row.state in VALID)


def test_demotion_and_promotion_pass_through_their_states() -> None:
    store = Residency(2, 4)
    demotion = store.reserve("store", [("", "a")], "r", [b"abcd"])
    target = demotion.grants[0].target
    assert target is not None
    seen = [target.state]
    store.copy(demotion.name, 2)
    seen.append(target.state)
    store.complete(demotion.name, failed=["a"])
    assert [*seen, target.state] == [State.DEMOTE_RESERVED, State.COPY_OUT, State.ABORTED]
    again = store.reserve("store", [("", "a")], "r", [b"abcd"])
    store.copy(again.name)
    assert store.complete(again.name) == "done"
    promotion = store.reserve("load", [("", "a")], "r")
    target = promotion.grants[0].target
    assert target is not None
    seen = [target.state]
    for count in (2, None):
        store.copy(promotion.name, count)
        seen.append(target.state)
    store.complete(promotion.name)
    assert [*seen, target.state] == [State.PROMOTE_RESERVED, State.COPY_IN, State.GPU_STAGED, State.GPU_VISIBLE]


def test_rows_differ_at_every_place_from_key_to_key() -> None:
    book = fixture_module("residency.book")
    every = [base64.b64decode(book.rows_of(label)["data"]) for label in book.LABELS]
    assert {len(one) for one in every} == {book.SLOT_BYTES}
    assert all(len(set(column)) == len(every) for column in zip(*every, strict=True))
    position = book.POSITION_BYTES
    for one in every:
        assert len({one[start : start + position] for start in range(0, len(one), position)}) == len(one) // position
