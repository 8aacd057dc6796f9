"""The account of residency: each rule is broken by a short sequence of calls, and its twin beside it is legal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from kvassay.core.engine import Refused, Returned
from kvassay.core.model import EngineDescription, Verdict
from kvassay.corpus import load
from kvassay.monitors.residency import REQUIREMENTS, ResidencyMonitor, Rule

Told = tuple[str, Mapping[str, Any], Mapping[str, Any] | str]
"""Op, request, and result or the reason of a refusal."""


def rows(number: int) -> Any:
    return np.full(8, number, np.uint8)


def put(key: str, number: int, outcome: str = "stored", **more: Any) -> Told:
    return "put", {"key": key, "data": rows(number), **more}, {"outcome": outcome}


def hit(key: str, number: int, **more: Any) -> Told:
    return "get", {"key": key, **more}, {"outcome": "hit", "data": rows(number)}


def lookup(key: str, state: str) -> Told:
    return "lookup", {"keys": [key]}, {"states": [state]}


def store(txn: str, key: str, number: int, slot: int = 0, generation: int = 1) -> Told:
    grant = {"outcome": "granted", "slot": slot, "generation": generation}
    return (
        "reserve",
        {"mode": "store", "keys": [key], "owner": "r", "data": [rows(number)]},
        {"txn": txn, "grants": [grant]},
    )


def load_(txn: str | None, key: str, outcome: str = "granted", slot: int = 0) -> Told:
    grant = {"outcome": outcome, "slot": slot}
    return "reserve", {"mode": "load", "keys": [key], "owner": "r"}, {"txn": txn, "grants": [grant]}


def copy(txn: str, moved: int = 8, asked: int | None = None, data: int | None = None) -> Told:
    request = {"txn": txn, **({} if asked is None else {"bytes": asked})}
    return "copy", request, {"bytes": moved, **({} if data is None else {"data": [rows(data)]})}


def complete(txn: str, outcome: str = "done", **more: Any) -> Told:
    return "complete", {"txn": txn, **more}, {"outcome": outcome}


def refused(txn: str) -> Told:
    return "complete", {"txn": txn}, "TRANSACTION_DEAD"


def cancel(txn: str, outcome: str = "dead") -> Told:
    return "cancel", {"txn": txn}, {"outcome": outcome}


def remove(key: str, outcome: str = "removed", **more: Any) -> Told:
    return "remove", {"keys": [key], **more}, {"outcomes": [outcome]}


def passes(by_ms: int) -> Told:
    return "control.advance_clock", {"by_ms": by_ms}, {"now_ms": 0}


RESET: Told = ("reset", {}, {})
STORED = (store("s", "a", 1), copy("s"), complete("s"))
Script = Sequence[Told]


def watch(script: Script, **claims: Any) -> tuple[Verdict, str]:
    capabilities = {f"residency.{name}": value for name, value in {"leases": True, **claims}.items()}
    monitor = ResidencyMonitor(EngineDescription("engine", "1", frozenset(), capabilities=capabilities))
    opening: Told = ("open", {"slots": 2, "slot_bytes": 8, "write_ttl_ms": 100, "read_ttl_ms": 100}, {"slots": 2})
    for number, (name, request, told) in enumerate((opening, *script)):
        op = name if "." in name else f"residency.{name}"
        reply = Refused(told, "") if isinstance(told, str) else Returned({"engine_calls": 1, **told})
        outcome = monitor.observe(op, request, reply)
        if outcome.verdict is not Verdict.PASS:
            assert number == len(script), f"step {number} of {len(script)} was judged already"
            return outcome.verdict, outcome.finding.message if outcome.finding else ""
    return Verdict.PASS, ""


BROKEN: dict[str, tuple[Rule, Script]] = {
    "rows of another key": (Rule.WRONG_BYTES, [put("a", 1), put("b", 2), hit("a", 2)]),
    "rows of another tenant": (
        Rule.WRONG_BYTES,
        [put("a", 1, tenant="x"), put("a", 2, tenant="y"), hit("a", 2, tenant="x")],
    ),
    "an old generation": (Rule.WRONG_BYTES, [put("a", 1), put("a", 2, "replaced"), hit("a", 1)]),
    "a new generation that was said not to be": (Rule.WRONG_BYTES, [put("a", 1), put("a", 2, "resident"), hit("a", 2)]),
    "torn rows of a load": (Rule.WRONG_BYTES, [*STORED, load_("l", "a"), copy("l", data=9)]),
    "a hit before completion": (Rule.PUBLISHED_UNVALIDATED, [store("s", "a", 1), copy("s"), hit("a", 1)]),
    "ready before completion": (Rule.PUBLISHED_UNVALIDATED, [store("s", "a", 1), lookup("a", "ready")]),
    "a load of what is not there": (Rule.PUBLISHED_UNVALIDATED, [load_("l", "a")]),
    "a short copy": (
        Rule.PUBLISHED_UNVALIDATED,
        [store("s", "a", 1), copy("s", 4, 4), complete("s"), lookup("a", "ready")],
    ),
    "a failed key": (
        Rule.PUBLISHED_UNVALIDATED,
        [store("s", "a", 1), copy("s"), complete("s", failed=["a"]), hit("a", 1)],
    ),
    "a refused completion": (Rule.PUBLISHED_UNVALIDATED, [store("s", "a", 1), copy("s"), refused("s"), hit("a", 1)]),
    "a cancelled store": (
        Rule.PUBLISHED_UNVALIDATED,
        [store("s", "a", 1), copy("s"), cancel("s"), complete("s"), hit("a", 1)],
    ),
    "what was removed": (Rule.PUBLISHED_UNVALIDATED, [put("a", 1), remove("a"), lookup("a", "ready")]),
    "what was reset": (Rule.PUBLISHED_UNVALIDATED, [put("a", 1), RESET, hit("a", 1)]),
    "what was reset under way": (
        Rule.PUBLISHED_UNVALIDATED,
        [store("s", "a", 1), copy("s"), RESET, complete("s"), hit("a", 1)],
    ),
    "a receipt of another slot": (
        Rule.PUBLISHED_UNVALIDATED,
        [store("s", "a", 1), copy("s"), complete("s", receipt={"a": {"slot": 1}}), hit("a", 1)],
    ),
    "an overtaken store": (Rule.WRONG_BYTES, [store("s", "a", 1), copy("s"), put("a", 2), complete("s"), hit("a", 1)]),
    "an expired store over a put": (
        Rule.WRONG_BYTES,
        [store("s", "a", 1), copy("s"), passes(100), put("a", 2), complete("s"), hit("a", 1)],
    ),
    "a slot under a cancelled copy": (Rule.SLOT_REUSED, [store("s", "a", 1), cancel("s"), store("t", "b", 2)]),
    "a slot under a copy after a reset": (Rule.SLOT_REUSED, [store("s", "a", 1), RESET, store("t", "b", 2)]),
    "a slot that is read": (Rule.SLOT_REUSED, [*STORED, load_("l", "a"), store("t", "b", 2)]),
    "two writers": (Rule.WRITTEN_TWICE, [store("s", "a", 1), store("t", "a", 2, slot=1)]),
    "a wait for nothing": (Rule.JOINED_NOTHING, [*STORED, load_("l", "a", "joined")]),
    "removal under a load": (Rule.LEASE_VIOLATED, [*STORED, load_("l", "a"), remove("a")]),
    "the last replica": (Rule.AUTHORITY_LOST, [put("a", 1), remove("a", tier="device")]),
    "the last replica after a demotion": (
        Rule.AUTHORITY_LOST,
        [put("a", 1), *STORED, remove("a", tier="device"), remove("a", tier="host")],
    ),
    "pending without cause": (Rule.NEVER_READY, [put("a", 1), remove("a"), lookup("a", "pending")]),
    "pending after failure": (
        Rule.NEVER_READY,
        [store("s", "a", 1), complete("s", "empty", failed=["a"]), lookup("a", "pending")],
    ),
    "more bytes than asked for": (Rule.WITNESS_FALSE, [store("s", "a", 1), copy("s", 8, 4)]),
    "more bytes than there are": (Rule.WITNESS_FALSE, [store("s", "a", 1), copy("s", 8), copy("s", 1)]),
}

LEGAL: dict[str, Script] = {
    "rows of each tenant": [
        put("a", 1, tenant="x"),
        put("a", 2, tenant="y"),
        hit("a", 1, tenant="x"),
        hit("a", 2, tenant="y"),
    ],
    "a new generation": [put("a", 1), put("a", 2, "replaced"), hit("a", 2)],
    "rows that stay": [put("a", 1), put("a", 2, "resident"), hit("a", 1)],
    "an eviction": [put("a", 1), ("get", {"key": "a"}, {"outcome": "miss"}), hit("a", 1)],
    "a store": [*STORED, hit("a", 1), lookup("a", "ready")],
    "a store that goes on": [store("s", "a", 1), copy("s"), cancel("s", "detached"), complete("s"), hit("a", 1)],
    "a completion that is accepted after it was refused": [
        store("s", "a", 1),
        copy("s"),
        refused("s"),
        complete("s"),
        hit("a", 1),
    ],
    "a late store that is whole": [store("s", "a", 1), copy("s"), passes(100), complete("s"), hit("a", 1)],
    "a late store that is not": [store("s", "a", 1), copy("s"), passes(100), refused("s"), lookup("a", "miss")],
    "removal of what is not there during a store": [
        store("s", "a", 1),
        copy("s"),
        remove("a", "absent"),
        complete("s"),
        hit("a", 1),
    ],
    "a second store after the first was overtaken": [store("s", "a", 1), put("a", 2), store("t", "a", 3, slot=1)],
    "a slot after a late completion": [store("s", "a", 1), cancel("s"), refused("s"), store("t", "b", 2)],
    "a slot after expiry": [store("s", "a", 1), passes(100), store("t", "b", 2)],
    "old rows of a load": [*STORED, load_("l", "a", slot=0), put("a", 2, "replaced"), copy("l", data=1), hit("a", 2)],
    "removal after a load": [*STORED, load_("l", "a"), copy("l", data=1), complete("l"), remove("a")],
    "removal of new rows during a load of the old": [*STORED, load_("l", "a"), put("a", 2, "replaced"), remove("a")],
    "removal after expiry": [*STORED, load_("l", "a"), passes(100), remove("a")],
    "a release after a demotion": [put("a", 1), *STORED, remove("a", tier="device"), hit("a", 1)],
    "a release after an eviction to below": [
        put("a", 1),
        ("lookup", {"keys": ["a"]}, {"states": ["ready"], "tiers": ["secondary"]}),
        remove("a", tier="device"),
        hit("a", 1),
    ],
    "pending for cause": [store("s", "a", 1), lookup("a", "pending"), copy("s"), complete("s"), lookup("a", "ready")],
    "a damaged load that is refused": [
        *STORED,
        ("control.inject", {"key": "a", "fault": "corrupt"}, {"damaged": True}),
        load_("l", "a"),
        copy("l", data=9),
        refused("l"),
    ],
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_rule_is_named(name: str) -> None:
    rule, script = BROKEN[name]
    verdict, message = watch(script, checksums=True, receipts=True)
    assert (verdict, message.partition(":")[0]) == (Verdict.FAIL, rule.value)


@pytest.mark.parametrize("name", LEGAL)
def test_what_is_legal_is_passed(name: str) -> None:
    assert watch(LEGAL[name], checksums=True, receipts=True) == (Verdict.PASS, "")


def test_every_rule_is_broken_here() -> None:
    assert {rule for rule, _ in BROKEN.values()} == set(Rule)


def test_every_rule_belongs_to_requirements_that_exist() -> None:
    assert set(REQUIREMENTS) == set(Rule)
    known = load().requirements
    assert all(one in known for row in REQUIREMENTS.values() for one in row)


def test_a_damaged_load_that_is_done_is_not_passed() -> None:
    script = [*LEGAL["a damaged load that is refused"][:-1], complete("l")]
    assert watch(script, checksums=True)[1].partition(":")[0] == Rule.WRONG_BYTES
    assert watch(script)[0] is Verdict.PASS


def corrupt(key: str) -> Told:
    return "control.inject", {"key": key, "fault": "corrupt"}, {"damaged": True}


WAITING = (*STORED, load_("t", "a"), load_("u", "a", "joined"), copy("t"))


def test_a_waiter_gets_rows_that_were_validated() -> None:
    """Before the copy is called done damaged rows are nobody's; after it they are damaged below whoever has them."""
    early = (*STORED, load_("t", "a"), load_("u", "a", "joined"), corrupt("a"), copy("t", data=9))
    assert watch((*early, copy("u", 0, data=9)), joins=True, checksums=True)[0] is Verdict.FAIL
    assert watch((*early, copy("u", 0, data=9)), joins=True)[0] is Verdict.PASS
    assert watch((*early, copy("u", 0)), joins=True, checksums=True)[0] is Verdict.PASS
    late = (*WAITING, complete("t"), corrupt("a"), copy("u", 0, data=9))
    assert watch(late, joins=True, checksums=True)[0] is Verdict.PASS


def test_a_load_waits_for_the_same_rows() -> None:
    replaced = (*STORED, load_("t", "a"), store("v", "a", 2, 1), copy("v"), complete("v"))
    verdict, message = watch((*replaced, load_("u", "a", "joined")), joins=True)
    assert (verdict, message.partition(":")[0]) == (Verdict.FAIL, "JOINED_NOTHING")
    assert watch((*replaced, load_("u", "a"), load_("w", "a", "joined")), joins=True)[0] is Verdict.PASS
    again = (*STORED, load_("t", "a"), store("v", "a", 1, 1), copy("v"), complete("v"))
    assert watch((*again, load_("u", "a", "joined")), joins=True)[0] is Verdict.PASS
    assert watch((store("v", "a", 2), load_("u", "a", "joined")), joins=True)[0] is Verdict.PASS


def test_a_lease_protects_the_tier_that_it_reads() -> None:
    below: Told = ("reserve", {"mode": "load", "keys": ["a"], "owner": "r"}, {"txn": "t", "grants": [BELOW]})
    calls = (*STORED, lookup_in("a", "secondary"), below)
    assert watch((*calls, remove("a", tier="host")), authority=True)[0] is Verdict.PASS
    assert watch((*calls, remove("a", tier="secondary")), authority=True)[0] is Verdict.FAIL
    assert watch((*calls, remove("a")), authority=True)[0] is Verdict.FAIL


BELOW = {"outcome": "granted", "tier": "secondary"}


def lookup_in(key: str, tier: str) -> Told:
    return "lookup", {"keys": [key]}, {"states": ["ready"], "tiers": [tier]}


@pytest.mark.parametrize("crowded", [False, True])
def test_rows_that_may_lie_below_are_not_the_last(*, crowded: bool) -> None:
    """The put of another key may have spilled them; then the load brought them back beside what was spilled."""
    claims = {"authority": True, "secondary": True, "exact_slots": True}
    other = (put("b", 2), put("c", 3)) if crowded else ()
    calls = (put("a", 1), *other, load_("t", "a"), copy("t"), complete("t"), remove("a", tier="device"))
    assert watch(calls, **claims)[0] is (Verdict.PASS if crowded else Verdict.FAIL)
    renewed = (*calls[:-1], put("a", 4, "replaced"), remove("a", tier="device"))
    assert watch(renewed, **claims)[0] is Verdict.FAIL


def test_an_engine_that_was_not_called_shows_nothing() -> None:
    uncalled: Told = ("put", {"key": "a", "data": rows(1)}, {"outcome": "stored", "engine_calls": 0})
    assert watch([uncalled])[0] is Verdict.INCONCLUSIVE


def test_without_leases_removal_and_reuse_are_legal() -> None:
    script = [*STORED, load_("l", "a"), remove("a"), store("t", "b", 2)]
    assert watch(script, leases=False)[0] is Verdict.PASS


def test_pending_needs_no_transaction_where_the_engine_is_asynchronous() -> None:
    script = [put("a", 1), remove("a"), lookup("a", "pending")]
    assert watch(script, **{"async": True})[0] is Verdict.PASS
