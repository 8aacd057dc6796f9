"""The schemas, each on a table of instances: what is valid, and what is not, with the pointer that must be told.

``tests/instances/*.json`` holds the tables. A valid row is a name and its value, ``{"$fixture": path}`` for a file
below ``fixtures``. An invalid row is a value of its own, or a change to a valid row, and the pointer ``at`` which the
error is reported.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonpatch
import pytest
from kvassay.corpus.errors import CorpusError
from kvassay.corpus.ops import ops
from kvassay.corpus.schemas import problem, schemas, validate

ROOT = Path(__file__).resolve().parents[1]
INSTANCES = Path(__file__).parent / "instances"
TABLES: list[dict[str, Any]] = [
    table for path in sorted(INSTANCES.glob("*.json")) for table in json.loads(path.read_text(encoding="utf-8"))
]


def value_of(written: Any) -> Any:
    if isinstance(written, Mapping) and "$fixture" in written:
        return json.loads((ROOT / "fixtures" / written["$fixture"]).read_text(encoding="utf-8"))
    return written


def short(uri: str) -> str:
    return uri.removeprefix("urn:kvassay:").replace("#/$defs/", " ")


VALID = [
    pytest.param(table["schema"], value_of(value), id=f"{short(table['schema'])}: {name}")
    for table in TABLES
    for name, value in table["valid"].items()
]
INVALID = [
    pytest.param(
        table["schema"],
        jsonpatch.apply_patch(value_of(table["valid"][row["of"]]), row["patch"]) if "of" in row else row["value"],
        row["at"],
        id=f"{short(table['schema'])}: {name}",
    )
    for table in TABLES
    for name, row in table["invalid"].items()
]


@pytest.mark.parametrize(("uri", "value"), VALID)
def test_what_is_valid_is_taken(uri: str, value: Any) -> None:
    assert problem(value, uri) is None


@pytest.mark.parametrize(("uri", "value", "at"), INVALID)
def test_what_is_not_valid_is_told_at_its_place(uri: str, value: Any, at: str) -> None:
    found = problem(value, uri)
    assert found is not None
    assert found[0] == at, found[1]
    assert found[1]
    with pytest.raises(CorpusError) as told:
        validate(value, uri, file="some.json")
    assert str(told.value).startswith(f"some.json: {at or '/'}: ")


def expected() -> set[str]:
    """Every schema that needs a table: documents, parts that stand for documents, messages, and controls.

    The ops of contracts have theirs in the corpus, whose every request and reply is held to them.
    """
    wire = schemas()["urn:kvassay:wire"]["$defs"]
    messages = [row["$ref"].rpartition("/")[2] for way in ("to-engine", "from-engine") for row in wire[way]["oneOf"]]
    controls = [part for op in ops().values() if op.contract == "control" for part in (op.request, op.response)]
    documents = {uri for uri in schemas() if ":op:" not in uri} - {"urn:kvassay:registry", "urn:kvassay:wire"}
    registries = {f"urn:kvassay:registry#/$defs/{name}" for name in schemas()["urn:kvassay:registry"]["$defs"]}
    parts = {"urn:kvassay:case#/$defs/case", "urn:kvassay:tensor#/$defs/state"}
    return {*documents, *registries, *parts, *controls, *(f"urn:kvassay:wire#/$defs/{name}" for name in messages)}


def test_every_schema_has_a_table() -> None:
    assert sorted(table["schema"] for table in TABLES) == sorted(expected())
    for table in TABLES:
        assert table["valid"], table["schema"]
        assert table["invalid"], table["schema"]


def test_the_manifest_has_its_whole_base_and_ten_broken_ones() -> None:
    (table,) = (table for table in TABLES if table["schema"] == "urn:kvassay:identity/manifest")
    assert {"$fixture": "identity/base.json"} in table["valid"].values()
    assert len(table["invalid"]) >= 10


@pytest.mark.parametrize("uri", sorted(schemas()))
def test_every_member_is_described(uri: str) -> None:
    """In the schema itself, or where its reference leads."""

    def bare(node: Any, place: str) -> list[str]:
        if not isinstance(node, dict):
            return []
        found = []
        for name, member in node.get("properties", {}).items():
            if isinstance(member, dict) and not {"description", "$ref"} & member.keys():
                found.append(f"{place}/{name}")
        for key, inner in node.items():
            if key in ("properties", "$defs"):
                found += [row for name, member in inner.items() for row in bare(member, f"{place}/{name}")]
            elif key in ("items", "additionalProperties"):
                found += bare(inner, f"{place}/{key}")
            elif key == "oneOf":
                found += [row for number, member in enumerate(inner) for row in bare(member, f"{place}/{number}")]
        return found

    assert bare(schemas()[uri], "") == []
    assert re.fullmatch(r"urn:kvassay:[a-z0-9:./_-]+", uri)
