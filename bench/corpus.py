"""The whole corpus on the reference, and the self-test, against their budgets in seconds."""

from __future__ import annotations

import time
from collections.abc import Iterator

from kvassay.adapters.names import connect
from kvassay.corpus import load
from kvassay.faults.selftest import run_selftest
from kvassay.runner import Session, run_side_by_side

from .timing import Line


def lines() -> Iterator[Line]:
    """Seconds of each, with loading and start-up."""
    started = time.perf_counter()
    corpus = load()
    engines = [connect("reference") for _ in range(2)]
    try:
        report = run_side_by_side([Session(engine, corpus) for engine in engines], corpus.cases)
    finally:
        for engine in engines:
            engine.close()
    assert report.ok, report
    yield Line("whole corpus, two references", time.perf_counter() - started, "s", "budget of 20 s", 20.0, 1.0)
    started = time.perf_counter()
    matrix = run_selftest()
    assert matrix.ok, matrix.to_json()
    yield Line("self-test, all faults", time.perf_counter() - started, "s", "budget of 300 s", 300.0, 1.0)
