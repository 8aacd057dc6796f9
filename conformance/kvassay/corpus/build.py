"""Cases in memory from the JSON of a fixture file."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, overload

import jsonpatch
import numpy as np

from ..core import tensors
from ..core.expect import parse
from ..core.model import SCALARS, Case, Kind, Level, Repeat, Status, Step
from ..core.template import is_dynamic
from .data import read_json
from .errors import CorpusError


def build(row: Mapping[str, Any], base: Path) -> Case:
    """A case from its JSON. Its steps are read when they are first looked at: see :class:`Steps`."""
    return Case(
        id=row["id"],
        contract=row["id"].partition("/")[0],
        requirements=tuple(row["requirements"]),
        level=Level(row["level"]),
        profile=row["profile"],
        kind=Kind(row["kind"]),
        status=Status(row["status"]),
        title=row["title"],
        given=row["given"],
        why=row["why"],
        steps=Steps(row["steps"], base),
        relations=tuple(row.get("relations", ())),
        needs={name: tuple(values) for name, values in row.get("needs", {}).items()},
        variant=row.get("variant"),
        mutation=row.get("mutation"),
    )


class Steps(Sequence[Step]):
    """The steps of a case, read when they are first looked at, as the corpus is large and a run may be of one case.

    Base documents are patched in, tensors read, expected values made float64 arrays.
    """

    def __init__(self, rows: Sequence[Mapping[str, Any]], base: Path) -> None:
        self._rows = rows
        self._base = base

    @functools.cached_property
    def _read(self) -> tuple[Step, ...]:
        return tuple(_step(row, self._base) for row in self._rows)

    @overload
    def __getitem__(self, index: int) -> Step: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Step, ...]: ...
    def __getitem__(self, index: int | slice) -> Step | tuple[Step, ...]:
        return self._read[index]

    def __iter__(self) -> Iterator[Step]:
        return iter(self._read)

    def __len__(self) -> int:
        return len(self._rows)


def _step(step: Mapping[str, Any], base: Path) -> Step:
    request = tensors.read(expand(step["request"], base))
    return Step(
        op=step["op"],
        request=request,
        expect=parse(_expect(step["expect"], base)),
        bind=step.get("bind", {}),
        witness=tuple(step.get("witness", ())),
        deadline_s=step.get("deadline_s", 10.0),
        repeat=Repeat(**step["repeat"]) if "repeat" in step else None,
        note=step.get("note", ""),
        dynamic=is_dynamic(request),
    )


def _expect(expect: Mapping[str, Any], base: Path) -> dict[str, Any]:
    apart = ("close", "selects")
    read = {key: value if key in apart else tensors.read(expand(value, base)) for key, value in expect.items()}
    if "close" in read:
        read["close"] = _near(read["close"])
    if "selects" in read:
        read["selects"] = {
            "supports": [
                {**row, "lists": [_listed(listed) for listed in row["lists"]]} for row in read["selects"]["supports"]
            ],
            "close": _near(read["selects"].get("close", ())),
        }
    return read


def _near(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [{**row, "value": _numbers(row["value"])} for row in rows]


def _listed(row: Mapping[str, Any]) -> dict[str, Any]:
    return {**row, "shares": [_share(share) for share in row.get("shares", ())]}


def _share(share: Mapping[str, Any]) -> dict[str, Any]:
    """A share with its weights as an array, of which ``items`` are a short form."""
    if "items" not in share:
        return {**share, "weights": _numbers(share["weights"])}
    weights = np.zeros(max(share["items"], default=-1) + 1)
    weights[share["items"]] = 1.0
    return {"of": share["of"], "weights": weights, "floor": share["floor"]}


def _numbers(value: Any) -> Any:
    if isinstance(value, dict) and "dtype" not in value:
        return {part: _numbers(item) for part, item in value.items()}
    array = tensors.from_json(value) if isinstance(value, dict) else _float64(value)
    if isinstance(array, np.ndarray):
        array.flags.writeable = False
    return array


def _float64(value: Any) -> Any:
    def spell(node: Any) -> Any:
        return [spell(item) for item in node] if isinstance(node, list) else tensors.NON_FINITE.get(node, node)

    return np.array(spell(value), dtype=np.float64)


def expand(value: Any, base: Path) -> Any:
    """A request or expectation with each ``{"$base": path, "patch": [...]}`` replaced by the patched base document."""
    if isinstance(value, dict):
        if "$base" in value:
            text = _base_document(base, value["$base"])
            return jsonpatch.apply_patch(json.loads(text), value.get("patch", ()), in_place=True)
        return {key: item if type(item) in SCALARS else expand(item, base) for key, item in value.items()}
    if isinstance(value, list):
        return [item if type(item) in SCALARS else expand(item, base) for item in value]
    return value


@functools.cache
def _base_document(base: Path, name: str) -> str:
    """A base document as text, which is copied faster than the document."""
    folder = base / "fixtures"
    path = (folder / f"{name}.json").resolve()
    if not path.is_relative_to(folder.resolve()):
        raise CorpusError(f"the base document {name!r} lies outside the fixtures")
    return json.dumps(read_json(path))
