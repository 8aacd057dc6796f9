"""Each seeded defect of a kernel fails the cases that it names, and the kernels as they are pass them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from kvassay import check
from kvassay.core.model import Verdict
from kvassay.engines.kernels_emulated import KernelsEmulated
from kvassay_kernels import sources

from .defects import DEFECTS, Defect

KILLS = {Verdict.FAIL, Verdict.WRONG_REASON}
WITH_CASES = {defect.name: defect for defect in DEFECTS if defect.killed_by}


@pytest.mark.parametrize("name", WITH_CASES)
def test_a_defect_dies_of_its_cases(name: str) -> None:
    defect: Defect = WITH_CASES[name]

    class Defective(KernelsEmulated):
        schedule = defect.schedule
        texts = defect.texts

    found = check(Defective, cases=defect.killed_by).results
    assert {one.case.id: one.verdict for one in found if one.verdict not in KILLS} == {}
    assert len(found) == len(defect.killed_by)


@pytest.mark.parametrize("name", [defect.name for defect in DEFECTS if defect.seen_by])
def test_a_defect_that_no_case_sees_fails_its_test(name: str) -> None:
    file, _, test = next(defect.seen_by for defect in DEFECTS if defect.name == name).partition("::")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(Path(__file__).with_name(file))]
    done = subprocess.run(
        [*command, "-k", test],
        env={**os.environ, "KVASSAY_EMULATOR_DEFECT": name},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout[-2000:]
    assert f"FAILED tests/kernels/{file}::{test}" in done.stdout


@pytest.mark.parametrize("schedule", [0, 1, 3])
def test_the_kernels_pass_these_cases_in_any_order_of_threads(schedule: int) -> None:
    order = schedule

    class InOrder(KernelsEmulated):
        schedule = order

    assert check(InOrder, cases=sorted({case for defect in DEFECTS for case in defect.killed_by})).ok


def test_every_file_of_kernels_has_a_defect_and_every_defect_is_seen() -> None:
    assert {defect.file for defect in DEFECTS} == {path.name for path in sources.CSRC.glob("*.cu")}
    assert [defect.name for defect in DEFECTS if not (defect.killed_by or defect.reported_by or defect.seen_by)] == []
    assert len({defect.name for defect in DEFECTS}) == len(DEFECTS)
