"""The whole corpus on the reference, and the self-test, against their budgets in seconds."""

from __future__ import annotations

import time
from collections.abc import Iterator

from kvassay.adapters.names import connect
from kvassay.corpus import load
from kvassay.faults.selftest import run_selftest
from kvassay.runner import Session, run

from .timing import Line


def lines() -> Iterator[Line]:
    """Seconds of each, with loading and start-up."""
    started = time.perf_counter()
    corpus = load()
    engine = connect("reference")
    try:
        report = run(Session(engine, corpus), corpus.cases)
    finally:
        engine.close()
    assert report.ok, report
    yield Line("whole corpus, reference, isolated", time.perf_counter() - started, "s", "budget of 20 s", 20.0, 1.0)
    started = time.perf_counter()
    matrix = run_selftest()
    assert matrix.ok, matrix.to_json()
    yield Line("self-test, all faults", time.perf_counter() - started, "s", "budget of 300 s", 300.0, 1.0)
