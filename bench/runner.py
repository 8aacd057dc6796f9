"""The runner's own cost a call, in process and isolated, against a plain parametrised pytest test of the same call."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from kvassay.adapters.local import InProcess
from kvassay.adapters.names import connect
from kvassay.core.judge import judge
from kvassay.core.model import Case
from kvassay.corpus import load
from kvassay.corpus.ops import find
from kvassay.corpus.schemas import problem, schemas
from kvassay.engines.reference import Reference

from .timing import Line, median_s

ROUNDS = 300
CALL = "attention/merge/"

PLAIN = """
import numpy as np
import pytest
from kvassay.adapters.local import InProcess
from kvassay.corpus import load
from kvassay.engines.reference import Reference

CASE = load().select(case=[{case!r}])[0]
ADAPTER = InProcess(Reference)


@pytest.mark.parametrize("n", range({rounds}))
def test_call(n):
    step = CASE.steps[0]
    assert ADAPTER.call(step.op, step.request, 10.0) is not None
"""


def one_call_case() -> Case:
    """A small case of one step, whose engine cost is a few array operations."""
    return next(case for case in load().cases if case.id.startswith(CALL) and len(case.steps) == 1)


def lines() -> Iterator[Line]:
    """Per call: in process, isolated, and validation of a reply."""
    corpus = load()
    rules, case = corpus.rules(), one_call_case()
    step = case.steps[0]
    local = InProcess(Reference)
    local.open()
    bare = median_s(lambda: local.call(step.op, step.request, 10.0), number=200)
    judged = median_s(lambda: judge(case, local, rules), number=200)
    plain = pytest_call_s(case) - bare
    own = judged - bare
    yield Line(
        "runner, in process, a call",
        own * 1e3,
        "ms",
        "a parametrised pytest test of the call",
        plain * 1e3,
        0.15 / 0.55,
    )
    worker = connect("reference")
    try:
        worker.open()
        isolated = median_s(lambda: worker.call(step.op, step.request, 10.0), number=200) - bare + own
        opened = median_s(worker.open, number=200)
    finally:
        worker.close()
    yield Line(
        "runner, isolated worker, a call",
        isolated * 1e3,
        "ms",
        "a parametrised pytest test of the call",
        plain * 1e3,
        0.5 / 0.55,
    )
    yield Line(
        "a fresh engine for a case, isolated",
        opened * 1e3,
        "ms",
        "a parametrised pytest test of the call",
        plain * 1e3,
        1.0,
    )
    yield reply_validation()


def pytest_call_s(case: Case) -> float:
    """Seconds that pytest takes for one parametrised test that makes the same call, start-up taken off."""

    def run(rounds: int) -> float:
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "test_plain.py").write_text(PLAIN.format(case=case.id, rounds=rounds), encoding="utf-8")
            command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_plain.py"]
            started = time.perf_counter()
            subprocess.run(command, cwd=folder, check=True, capture_output=True)
            return time.perf_counter() - started

    few, many = run(1), run(1 + 10 * ROUNDS)
    return (many - few) / (10 * ROUNDS)


def reply_validation() -> Line:
    """The fast validator against the one that writes errors."""
    import jsonschema
    import referencing
    from referencing.jsonschema import DRAFT202012

    tensor = {"dtype": "float32", "shape": [4], "data": []}
    reply = {"state": {"schema": "fp32-m-l-u-v1", "m": tensor, "l": tensor, "u": {**tensor, "shape": [4, 8]}}}
    uri = find("attention.merge").response
    resources = [(key, DRAFT202012.create_resource(value)) for key, value in schemas().items()]
    registry: referencing.Registry = referencing.Registry().with_resources(resources)
    slow = jsonschema.Draft202012Validator({"$ref": uri}, registry=registry)
    fast_s = median_s(lambda: problem(reply, uri), number=1000)
    slow_s = median_s(lambda: slow.is_valid(reply), number=50)
    return Line("validation of a reply", fast_s * 1e3, "ms", "jsonschema on the same reply", slow_s * 1e3, 0.1)
