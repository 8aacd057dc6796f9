"""The sanitizers report nothing of any kernel at its boundary shapes, and something of each defect that is theirs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from . import boundaries
from .defects import DEFECTS, Defect

ROOT = Path(__file__).resolve().parents[2]
PARTS = (
    "attention 1|attention of|attention in|listed|merge",
    "attention [2-9]",
    "quest|sparq",
    "top|take",
    "pq|sig|mat|inc|shares",
)
REACHED = {
    "attention.cu": "attention 128",
    "attention_any.cu": "attention 5",
    "merge.cu": "merge",
    "extrema.cu": "quest 5",
    "clusters.cu": "shares",
    "gather.cu": "take",
}
"""The names that reach a file with a defect."""
SAYS = {"thread": "WARNING: ThreadSanitizer: data race", "address": "ERROR: AddressSanitizer: heap-buffer-overflow"}
REPORTED = {defect.name: defect for defect in DEFECTS if defect.reported_by}


def run(sanitizer: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(str(ROOT / part) for part in ("conformance", "reference", "kernels"))
    command = [sys.executable, "-m", "tests.kernels.boundaries", sanitizer, *arguments]
    return subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("sanitizer", boundaries.OPTIONS)
def test_the_kernels_are_clean(sanitizer: str, part: str) -> None:
    done = run(sanitizer, part)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("\n") > 5
    assert "Sanitizer" not in done.stderr


def test_the_parts_are_all() -> None:
    for name, _ in boundaries.every():
        assert sum(bool(re.match(part, name)) for part in PARTS) == 1, name


@pytest.mark.parametrize("name", REPORTED)
def test_a_defect_is_reported(name: str) -> None:
    defect: Defect = REPORTED[name]
    done = run(defect.reported_by, REACHED[defect.file], name)
    assert done.returncode == 66, done.stderr[-3000:]
    assert SAYS[defect.reported_by] in done.stderr
