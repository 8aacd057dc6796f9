"""What an engine tells on its own is part of the account: copies that it forced, completions that nobody waited for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kvassay.core.engine import Returned
from kvassay.core.model import EngineDescription, Verdict
from kvassay.monitors.residency import ResidencyMonitor

ROWS = np.arange(8, dtype=np.uint8)


def watched() -> ResidencyMonitor:
    """One slot of eight bytes, and a store of ``a`` in it that has not been copied."""
    description = EngineDescription("toy", "1", ops=frozenset(), capabilities={})
    monitor = ResidencyMonitor(description)
    assert tell(monitor, "open", {"slots": 1, "slot_bytes": 8}, slots=1, slot_bytes=8) is Verdict.PASS
    request = {"mode": "store", "keys": ["a"], "owner": "r", "data": [ROWS]}
    assert tell(monitor, "reserve", request, txn="t", grants=[{"outcome": "granted", "slot": 0}]) is Verdict.PASS
    return monitor


def tell(monitor: ResidencyMonitor, op: str, request: dict[str, Any], *events: str, **result: Any) -> Verdict:
    told = [{"txn": "t", "event": event} for event in events]
    reply = Returned({**result, "engine_calls": 1, "events": told})
    return monitor.observe(f"residency.{op}", request, reply).verdict


def read(monitor: ResidencyMonitor) -> Verdict:
    return tell(monitor, "get", {"key": "a"}, outcome="hit", data=ROWS)


def test_a_copy_that_the_engine_forced_counts_as_copied() -> None:
    monitor = watched()
    assert tell(monitor, "lookup", {"keys": ["b"]}, "copied", states=["miss"]) is Verdict.PASS
    assert tell(monitor, "complete", {"txn": "t"}, outcome="done") is Verdict.PASS
    assert read(monitor) is Verdict.PASS


def test_without_the_event_nothing_was_published() -> None:
    monitor = watched()
    assert tell(monitor, "complete", {"txn": "t"}, outcome="done") is Verdict.PASS
    assert read(monitor) is Verdict.FAIL


def test_a_completion_that_the_engine_came_to_itself_publishes() -> None:
    monitor = watched()
    assert tell(monitor, "lookup", {"keys": ["b"]}, "copied", "completed", states=["miss"]) is Verdict.PASS
    assert read(monitor) is Verdict.PASS


@pytest.mark.parametrize(("events", "verdict"), [(("copied",), Verdict.PASS), ((), Verdict.FAIL)])
def test_a_slot_is_free_when_the_copy_of_what_was_reset_is_over(events: tuple[str, ...], verdict: Verdict) -> None:
    monitor = watched()
    assert tell(monitor, "reset", {}) is Verdict.PASS
    request = {"mode": "store", "keys": ["b"], "owner": "r", "data": [ROWS]}
    assert tell(monitor, "reserve", request, *events, txn="u", grants=[{"outcome": "granted", "slot": 0}]) is verdict
