"""The self-test itself: what counts as killed, and that the rows of a matrix say so."""

import dataclasses
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from kvassay.corpus import CorpusError, load
from kvassay.faults import selftest
from kvassay.faults.seeded import faults, modules
from kvassay.faults.selftest import Matrix, Row, run_selftest

FAULT = Row("attention", "F", "s", "ATT-001", {"a/b/c": "fail"}, (), True, 1, 0, None, "", 0.1)
CORRECT = dataclasses.replace(FAULT, requirement="", killed_by={})


@pytest.mark.parametrize(
    ("row", "ok"),
    [
        (FAULT, True),
        (dataclasses.replace(FAULT, killed_by={"a/b/c": "wrong-reason"}), True),
        (dataclasses.replace(FAULT, killed_by={"a/b/c": "pass"}), False),
        (dataclasses.replace(FAULT, killed_by={"a/b/c": "error"}), False),
        (dataclasses.replace(FAULT, killed_by={"a/b/c": "inconclusive"}), False),
        (dataclasses.replace(FAULT, killed_by={"a/b/c": "fail", "a/b/d": "pass"}), False),
        (dataclasses.replace(FAULT, killed_by={}), False),
        (dataclasses.replace(FAULT, on_target=False), False),
        (dataclasses.replace(FAULT, killed_by={}, equivalent="proof"), True),
        (dataclasses.replace(FAULT, killed_by={}, equivalent="proof", also=("a/b/c",)), False),
        (CORRECT, True),
        (dataclasses.replace(CORRECT, also=("a/b/c",)), False),
        (dataclasses.replace(CORRECT, passed=0), False),
    ],
)
def test_a_row_is_in_order_when_the_fault_dies_and_the_correct_engine_lives(row: Row, ok: bool) -> None:
    assert row.ok is ok


def test_a_matrix_fails_for_a_requirement_without_fault_and_a_case_that_no_fault_changes() -> None:
    assert Matrix((FAULT,), (), (), 1.0).ok
    assert not Matrix((FAULT,), ("ATT-002",), (), 1.0).ok
    assert not Matrix((FAULT,), (), ("a/b/d",), 1.0).ok
    assert Matrix((FAULT, CORRECT), (), (), 1.0).to_json()["killed"] == 1


@pytest.mark.parametrize("contract", sorted(modules()))
def test_faults_name_known_cases_and_requirements_and_explain_themselves(contract: str) -> None:
    corpus = load()
    ids = {case.id for case in corpus.cases}
    names = Counter(fault.__name__ for fault in faults(contract))
    assert names.total() == len(names), names.most_common(1)
    for fault in faults(contract):
        assert fault.requirement in corpus.requirements, fault  # type: ignore[attr-defined]
        assert set(fault.killed_by) <= ids, fault  # type: ignore[attr-defined]
        assert fault.__doc__, fault
        if hasattr(modules()[contract], "__path__"):
            assert getattr(modules()[contract], fault.__name__) is fault
        meant = corpus.select(case=fault.killed_by)  # type: ignore[attr-defined]
        assert any(fault.requirement in case.requirements for case in meant), fault  # type: ignore[attr-defined]


def test_the_self_test_runs_every_contract_and_kills_what_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The real thing over three faults and one correct engine; the whole matrix is a session of its own."""
    known = modules()
    for module in known.values():
        monkeypatch.setattr(module, "FAULTS", module.FAULTS[:1])
        monkeypatch.setattr(module, "CORRECT", module.CORRECT[:1])
    matrix = run_selftest(jobs=1)
    assert {row.contract for row in matrix.rows} == set(load().contracts)
    assert all(row.ok for row in matrix.rows)
    assert matrix.without_fault, "most requirements have lost their fault here"
    assert not matrix.ok


def rows(matrix: Matrix) -> list[Row]:
    return [dataclasses.replace(row, seconds=0.0) for row in matrix.rows]


def test_a_fault_on_the_cases_that_it_can_change_has_the_row_of_one_on_every_case(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A tenth of the faults of a contract whose cases are cheap."""
    module = modules()["lifecycle"]
    monkeypatch.setattr(module, "FAULTS", module.FAULTS[::10])
    ran: dict[bool, int] = {True: 0, False: 0}
    matrices = {}
    for full in (True, False):

        def count(job: Any, full: bool = full, once: Any = selftest._run) -> Any:
            ran[full] += len(job.cases)
            return once(job)

        monkeypatch.setattr(selftest, "_run", count)
        matrices[full] = run_selftest(["lifecycle"], jobs=1, full=full)
    assert rows(matrices[True]) == rows(matrices[False])
    assert matrices[True].vacuous == matrices[False].vacuous
    assert ran[False] < ran[True] / 2


def test_the_order_of_jobs_does_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    module = modules()["offload"]
    monkeypatch.setattr(module, "FAULTS", module.FAULTS[::20])
    usual = run_selftest(["offload"], jobs=1)

    def shuffled(todo: list[Any], jobs: int) -> Iterator[Any]:
        while todo:
            job = todo.pop(random.Random(len(todo)).randrange(len(todo)))
            yield job, selftest._run(job)

    monkeypatch.setattr(selftest, "_longest_first", shuffled)
    told: list[Row] = []
    found = run_selftest(["offload"], jobs=1, on_result=told.append)
    assert rows(found) == rows(usual)
    assert sorted(row.name for row in told) == sorted(row.name for row in found.rows)
    assert [row.name for row in told] != [row.name for row in found.rows]


def test_a_fault_that_names_an_unknown_case_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    module = modules()["offload"]
    wrong = type("Wrong", (module.FAULTS[0],), {"killed_by": ("offload/none/such",)})
    monkeypatch.setattr(module, "FAULTS", (wrong,))
    with pytest.raises(CorpusError, match="the fault Wrong names the unknown case 'offload/none/such'"):
        run_selftest(["offload"], jobs=1)


def test_an_unknown_contract_is_refused() -> None:
    with pytest.raises(CorpusError, match="no faults are seeded for 'nothing'"):
        run_selftest(["nothing"])
