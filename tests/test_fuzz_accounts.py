"""What a caller may do, and what an engine must have kept: one sequence of calls for each sentence."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kvassay.core.engine import Refused, Returned
from kvassay.core.expect import Outcome
from kvassay.core.model import EngineDescription, Verdict
from kvassay.monitors.caller import illegal
from kvassay.monitors.keeping import REQUIREMENTS, Fault, Keeping
from kvassay.monitors.residency import ResidencyMonitor

A, B, C = (np.full(8, value, np.uint8) for value in (1, 2, 3))
Call = tuple[str, dict[str, Any], Any]
ALL = {
    "exact_slots": True,
    "evicts": True,
    "secondary": True,
    "leases": True,
    "joins": True,
    "txn_ids": True,
    "validates_length": True,
    "receipts": True,
    "cancel": True,
    "cancel_load": True,
    "job_failure": "key",
    "expiry_write": True,
}


def described(**claims: Any) -> EngineDescription:
    return EngineDescription(
        "x", "1", frozenset(), capabilities={f"residency.{name}": one for name, one in claims.items()}
    )


def told(calls: list[Call], **claims: Any) -> Outcome:
    """The outcome of the last call; the others must hold."""
    keeping = Keeping(described(**claims), ResidencyMonitor(described(**claims)))
    outcome = None
    for index, (op, request, result) in enumerate(calls):
        name = op if "." in op else f"residency.{op}"
        reply = result if isinstance(result, Refused) else Returned({"engine_calls": 1, **result})
        outcome = keeping.observe(name, request, reply)
        assert outcome.holds or index == len(calls) - 1, (index, outcome.finding)
    assert outcome is not None
    return outcome


def opened(slots: int | None = 2, **more: Any) -> Call:
    return ("open", {"slots": 2, "slot_bytes": 8, **more}, {"slots": slots, "slot_bytes": 8})


def put(key: str, data: Any, outcome: str = "stored") -> Call:
    return ("put", {"key": key, "data": data}, {"outcome": outcome})


def get(key: str, outcome: str = "miss") -> Call:
    return ("get", {"key": key}, {"outcome": outcome})


def reserve(txn: str, mode: str, key: str, outcome: str = "granted", *data: Any) -> Call:
    rows = {"data": list(data)} if mode == "store" else {}
    return (
        "reserve",
        {"mode": mode, "keys": [key], "owner": "r", **rows},
        {"txn": txn, "grants": [{"outcome": outcome}]},
    )


def copy(txn: str, moved: int, **more: Any) -> Call:
    return ("copy", {"txn": txn, **more}, {"bytes": moved})


def complete(txn: str, outcome: Any = "done", **more: Any) -> Call:
    return ("complete", {"txn": txn, **more}, outcome if isinstance(outcome, Refused) else {"outcome": outcome})


STORED = [reserve("t", "store", "a", "granted", A), copy("t", 8), complete("t")]


@pytest.mark.parametrize(
    ("calls", "fault"),
    [
        ([put("a", A), get("a")], Fault.ROWS_LOST),
        ([*STORED, get("a")], Fault.ROWS_LOST),
        ([*STORED, ("lookup", {"keys": ["b", "a"]}, {"states": ["miss", "miss"]})], Fault.ROWS_LOST),
        ([*STORED, reserve("u", "load", "a", "miss")], Fault.ROWS_LOST),
        ([put("a", A), put("b", B), put("c", C), get("a")], Fault.ROWS_LOST),
        ([put("a", A), ("get", {"key": "a"}, Refused("BUSY"))], Fault.CALL_REFUSED),
        ([put("a", A, "replaced")], Fault.ROOM_REFUSED),
        ([put("a", A), put("a", B, "stored")], Fault.OUTCOME_FALSE),
        ([reserve("t", "store", "a", "refused", A)], Fault.ROOM_REFUSED),
        ([reserve("t", "store", "a", "granted", A), copy("t", 4)], Fault.NOT_MOVED),
        ([reserve("t", "store", "a", "granted", A), copy("t", 8), complete("t", "empty")], Fault.NOT_PUBLISHED),
        ([reserve("t", "store", "a", "granted", A), copy("t", 8), complete("t", Refused("BUSY"))], Fault.CALL_REFUSED),
        ([reserve("t", "store", "a", "granted", A), complete("t")], Fault.PUBLISHED_ANYWAY),
        ([*STORED, complete("t")], Fault.COUNTED_AGAIN),
        ([*STORED, complete("t", Refused("UNKNOWN_TRANSACTION"))], Fault.WRONG_REASON),
        ([complete("nobody", Refused("TRANSACTION_DEAD"))], Fault.WRONG_REASON),
        ([put("a", A), ("remove", {"keys": ["a"]}, {"outcomes": ["leased"]})], Fault.LEASE_STUCK),
        ([put("a", A), ("remove", {"keys": ["b"]}, {"outcomes": ["removed"]})], Fault.OUTCOME_FALSE),
        ([put("a", A), ("reset", {}, Refused("BUSY"))], Fault.CALL_REFUSED),
        ([("control.inject", {"key": "a", "fault": "corrupt"}, {"damaged": True})], Fault.OUTCOME_FALSE),
        (
            [*STORED, reserve("u", "load", "a"), reserve("v", "load", "a", "joined"), complete("v")],
            Fault.PUBLISHED_ANYWAY,
        ),
        (
            [reserve("t", "store", "a", "granted", A), ("cancel", {"txn": "t"}, {"outcome": "unknown"})],
            Fault.OUTCOME_FALSE,
        ),
    ],
)
def test_what_an_engine_must_have_kept(calls: list[Call], fault: Fault) -> None:
    outcome = told([opened(), *calls], **ALL)
    assert outcome.finding is not None
    assert outcome.finding.message.startswith(f"{fault}: ")
    assert REQUIREMENTS[fault] in outcome.finding.message
    assert outcome.verdict is (Verdict.WRONG_REASON if fault is Fault.WRONG_REASON else Verdict.FAIL)


@pytest.mark.parametrize(
    ("calls", "claims"),
    [
        ([opened(), put("a", A), get("a")], {}),
        ([opened(None), put("a", A), get("a")], {"exact_slots": True, "evicts": True}),
        ([opened(), put("a", A), get("a")], {**ALL, "async": True}),
        ([opened(), put("a", A), put("b", B), put("c", C), get("a")], {"exact_slots": True, "evicts": True}),
        ([opened(), put("a", A), put("b", B), put("c", C, "refused")], {"exact_slots": True}),
        ([opened(), put("a", A), put("a", B, "refused")], {}),
        (
            [opened(), put("a", A), ("control.inject", {"key": "a", "fault": "drop"}, {"damaged": True}), get("a")],
            ALL,
        ),
        ([opened(), *STORED, complete("t", "unknown")], ALL),
        ([opened(), *STORED, complete("t")], {}),
        (
            [
                opened(write_ttl_ms=10),
                reserve("t", "store", "a", "granted", A),
                copy("t", 8),
                ("control.advance_clock", {"by_ms": 10}, {"now_ms": 10}),
                complete("t", Refused("TRANSACTION_DEAD")),
            ],
            ALL,
        ),
    ],
)
def test_what_it_need_not(calls: list[Call], claims: dict[str, Any]) -> None:
    assert told(calls, **claims).holds


DEAD = [reserve("t", "store", "a", "granted", A), ("cancel", {"txn": "t"}, {"outcome": "dead"})]
EXPIRED: list[Call] = [
    opened(write_ttl_ms=10),
    reserve("t", "store", "a", "granted", A),
    ("control.advance_clock", {"by_ms": 10}, {"now_ms": 10}),
]


@pytest.mark.parametrize(
    ("calls", "claims"),
    [([opened(), *DEAD], {"fences": True}), (EXPIRED, {"fences": True, "exact_clock": True})],
)
def test_a_fence_lets_a_key_be_stored_again_at_once(calls: list[Call], claims: dict[str, Any]) -> None:
    """Over a dead transaction alone, where the engine says so, and where there is room."""
    again, taken = reserve("u", "store", "a", "pending", B), reserve("u", "store", "a", "granted", B)
    outcome = told([*calls, again], **ALL, **claims)
    assert outcome.finding is not None
    assert outcome.finding.message.startswith("ROOM_REFUSED: ")
    for name in claims:
        assert told([*calls, again], **ALL, **{one: True for one in claims if one != name}).holds
    assert told([*calls, taken], **ALL, **claims).holds
    one_slot = [("open", calls[0][1], {"slots": 1, "slot_bytes": 8}), *calls[1:]]
    assert told([*one_slot, reserve("u", "store", "a", "refused", B)], **ALL, **claims).holds
    assert told([*calls, taken, reserve("v", "store", "a", "pending", C)], **ALL, **claims).holds


def test_what_nobody_holds_can_be_given_up() -> None:
    remove: Call = ("remove", {"keys": ["a"]}, Refused("LAST_AUTHORITY"))
    outcome = told([opened(), put("a", A), remove], **ALL)
    assert outcome.finding is not None
    assert outcome.finding.message.startswith("CALL_REFUSED: ")
    assert told([opened(), put("a", A), reserve("t", "store", "a", "granted", B), remove], **ALL).holds


def test_a_tier_that_rows_were_released_from_is_told_no_longer() -> None:
    release: Call = ("remove", {"keys": ["a"], "tier": "device"}, {"outcomes": ["removed"]})

    def look(tier: str) -> list[Call]:
        return [("lookup", {"keys": ["a"]}, {"states": ["ready"], "tiers": [tier]})]

    calls = [opened(slots=4), put("a", A), *STORED, *look("device"), release]
    claims = {**ALL, "authority": True}
    assert told([*calls, *look("host")], **claims).holds
    outcome = told([*calls, *look("device")], **claims)
    assert outcome.finding is not None
    assert outcome.finding.message.startswith("OUTCOME_FALSE: /tiers/0 is 'device'")
    loaded = [reserve("u", "load", "a"), copy("u", 8), complete("u")]
    assert told([*calls, *loaded, *look("device")], **claims).holds
    assert told([*calls, put("a", B, "replaced"), *look("device")], **claims).holds
    assert told([*calls, *look("device")], **ALL).holds


def test_a_waiter_is_done_with_a_copy_that_went_on_after_its_owner() -> None:
    """Also where the rows were evicted in between: nobody can say by then whether the copy had to go on."""
    waiting = [*STORED, reserve("u", "load", "a"), reserve("v", "load", "a", "joined")]
    gone = [("cancel", {"txn": "u"}, {"outcome": "detached"}), ("control.inject", EVICT, {"damaged": True})]
    assert told([opened(), *waiting, *gone, copy("u", 8), complete("u"), complete("v")], **ALL).holds


EVICT = {"key": "a", "fault": "evict"}


def test_before_its_limit_a_reservation_holds() -> None:
    calls = [
        opened(write_ttl_ms=10),
        reserve("t", "store", "a", "granted", A),
        copy("t", 8),
        ("control.advance_clock", {"by_ms": 9}, {"now_ms": 9}),
        complete("t", Refused("TRANSACTION_DEAD")),
    ]
    assert not told(calls, **ALL).holds


# --- the caller's side ----------------------------------------------------------------------------------------------


def asked(calls: list[Call], op: str, request: dict[str, Any], *, probe: bool = False, **claims: Any) -> str | None:
    monitor = ResidencyMonitor(described(**claims))
    for name, made, result in calls:
        monitor.observe(f"residency.{name}", made, Returned({"engine_calls": 1, **result}))
    return illegal(f"residency.{op}", request, monitor, described(**claims).capabilities, probe)


STORE = reserve("t", "store", "a", "granted", A)


@pytest.mark.parametrize(
    ("calls", "op", "request_", "claim"),
    [
        ([opened()], "get", {"key": "A b"}, {"opaque_keys": True}),
        ([opened()], "get", {"key": "a", "tenant": "t"}, {"tenants": True}),
        ([opened()], "remove", {"keys": ["a"], "tier": "host"}, {"authority": True}),
        ([], "open", {"slots": 1, "slot_bytes": 8, "write_ttl_ms": 1}, {"expiry_write": True}),
        ([opened(), STORE], "complete", {"txn": "t"}, {"validates_length": True}),
        ([opened(), *STORED], "complete", {"txn": "t"}, {"txn_ids": True}),
        ([opened()], "copy", {"txn": "nobody"}, {"txn_ids": True}),
        ([opened(), STORE], "cancel", {"txn": "t"}, {"cancel": True}),
        ([opened(), STORE, copy("t", 8)], "complete", {"txn": "t", "failed": ["a"]}, {"job_failure": "job"}),
        ([opened(), STORE, copy("t", 8)], "complete", {"txn": "t", "receipt": {"a": {}}}, {"receipts": True}),
    ],
)
def test_calls_that_a_claim_allows(calls: list[Call], op: str, request_: dict[str, Any], claim: dict[str, Any]) -> None:
    assert asked(calls, op, request_) is not None
    assert asked(calls, op, request_, **claim) is None


@pytest.mark.parametrize(
    ("calls", "op", "request_"),
    [
        ([], "get", {"key": "a"}),
        ([opened()], "open", {"slots": 1, "slot_bytes": 8}),
        ([opened()], "put", {"key": "a", "data": A[:4]}),
        ([opened()], "reserve", {"mode": "store", "keys": ["a"], "owner": "r"}),
        ([opened()], "reserve", {"mode": "load", "keys": ["a"], "owner": "r", "data": [A]}),
        ([opened()], "reserve", {"mode": "store", "keys": ["a", "b"], "owner": "r", "data": [A]}),
        ([opened(), STORE], "complete", {"txn": "t", "failed": ["b"]}),
    ],
)
def test_calls_that_nothing_allows(calls: list[Call], op: str, request_: dict[str, Any]) -> None:
    assert asked(calls, op, request_, probe=True, **ALL) is not None


def test_a_probing_caller_may_do_more() -> None:
    assert asked([opened(), *STORED], "complete", {"txn": "t"}, probe=True) is None
    assert asked([opened(), STORE], "complete", {"txn": "t"}, probe=True) is None


def test_one_content_for_ever() -> None:
    calls = [opened(), put("a", A)]
    assert asked(calls, "put", {"key": "a", "data": B}, content_addressed=True) is not None
    assert asked(calls, "put", {"key": "a", "data": A}, content_addressed=True) is None
    assert asked(calls, "put", {"key": "a", "data": B}) is None
