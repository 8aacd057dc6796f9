"""What users give the commands: numbers that are none, and cases that cannot be sent."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from kvassay.cli import status
from kvassay.cli.console import dump
from kvassay.corpus import CorpusError, load
from kvassay.corpus.data import read_json, root
from kvassay.corpus.digest import digest
from kvassay.corpus.files import with_cases


@pytest.mark.parametrize("number", ["nan", "0", "-1", "x"])
@pytest.mark.parametrize(
    "words",
    [
        ["run", "--adapter", "reference", "--timeout-scale"],
        ["fuzz", "--contract", "residency", "--adapter", "reference", "--timeout-scale"],
        ["fuzz", "--contract", "residency", "--adapter", "reference", "--time-budget"],
    ],
)
def test_a_scale_and_a_time_are_numbers_above_0(words: list[str], number: str, capsys: Any) -> None:
    assert status([*words, number]) == 2
    assert f"Invalid value for '{words[-1]}'" in capsys.readouterr().err


def test_a_request_of_a_case_file_meets_its_schema(tmp_path: Path) -> None:
    document = copy.deepcopy(read_json(root() / "fixtures" / "residency" / "cases" / "aba.json"))
    document["cases"] = document["cases"][:1]
    document["digest"] = digest(document["cases"])
    path = tmp_path / "case.json"
    path.write_text(dump(document), encoding="utf-8")
    assert len(with_cases(load(), [path]).cases) == 1
    first = document["cases"][0]["steps"][0]
    assert first["op"] == "residency.open"
    first["request"]["slots"] = 10**30
    document["cases"][0]["id"] = "residency/mine/too-many"
    document["digest"] = digest(document["cases"])
    path.write_text(dump(document), encoding="utf-8")
    with pytest.raises(CorpusError, match="step 0: the request does not meet its schema: /slots"):
        with_cases(load(), [path])


def test_a_repetition_takes_its_number_from_an_earlier_step(tmp_path: Path) -> None:
    document = copy.deepcopy(read_json(root() / "fixtures" / "residency" / "cases" / "aba.json"))
    document["cases"] = document["cases"][:1]
    document["cases"][0]["steps"][0]["repeat"] = {"times": "slots"}
    document["cases"][0]["id"] = "residency/mine/repeated"
    document["digest"] = digest(document["cases"])
    path = tmp_path / "case.json"
    path.write_text(dump(document), encoding="utf-8")
    with pytest.raises(CorpusError, match="step 0 uses slots before it is bound"):
        with_cases(load(), [path])


def test_a_case_of_ones_own_has_an_id_of_its_own(tmp_path: Path, capsys: Any) -> None:
    document = copy.deepcopy(read_json(root() / "fixtures" / "residency" / "cases" / "aba.json"))
    document["cases"] = document["cases"][:1]
    name = document["cases"][0]["id"]
    document["cases"][0]["title"] = "Another one"
    document["digest"] = digest(document["cases"])
    path = tmp_path / "case.json"
    path.write_text(dump(document), encoding="utf-8")
    words = ["run", "--adapter", "reference", "--in-process", "--case-file", str(path)]
    assert status(words) == 2
    told = capsys.readouterr().err.strip()
    assert f"/cases/0/id: {name} is a case of the corpus that differs" in told
    assert len(told.splitlines()) == 1
    document["cases"][0]["id"] = "residency/mine/another"
    document["digest"] = digest(document["cases"])
    path.write_text(dump(document), encoding="utf-8")
    assert status(words) == 0
