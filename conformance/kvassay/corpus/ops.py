"""Ops by name: the contract that owns each, and its schema.

An op is a file ``schemas/<contract>/ops/<family>.<name>.json``. A contract may own several families, such as one for
each method, and every family has one owner; ``control`` belongs to all and is a folder of its own.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from .data import root
from .errors import CorpusError, did_you_mean
from .schemas import PREFIX, outline, problem, schemas


@dataclass(frozen=True)
class Op:
    """One named operation."""

    name: str
    contract: str

    @property
    def family(self) -> str:
        """First part of the name."""
        return self.name.partition(".")[0]

    @property
    def method(self) -> str:
        """Name of the method of an adapter, an oracle or the reference that does the op."""
        return self.name.replace(".", "_", 1)

    @property
    def uri(self) -> str:
        """The schema document."""
        return f"{PREFIX}op:{self.name}"

    @property
    def request(self) -> str:
        """The schema of requests."""
        return f"{self.uri}#/$defs/request"

    @property
    def response(self) -> str:
        """The schema of results."""
        return f"{self.uri}#/$defs/response"

    @property
    def schema(self) -> Mapping[str, Any]:
        """The whole document: ``description`` says what the op does."""
        document: Mapping[str, Any] = schemas()[self.uri]
        return document


@functools.cache
def ops() -> Mapping[str, Op]:
    """Every op by name, in alphabetical order; raises :class:`CorpusError` for a file in the wrong place."""
    found: dict[str, Op] = {}
    owners: dict[str, str] = {}
    for path in sorted((root() / "schemas").glob("*/ops/*.json"), key=lambda path: path.name):
        one = Op(path.stem, path.parents[1].name)
        file = path.relative_to(root()).as_posix()
        if one.uri not in schemas() or not {"request", "response"} <= one.schema.get("$defs", {}).keys():
            raise CorpusError(f"the schema of an op has the $id {one.uri}, a request and a response", file=file)
        if one.name in found or owners.setdefault(one.family, one.contract) != one.contract:
            raise CorpusError(f"the family {one.family} belongs to {owners[one.family]}", file=file)
        found[one.name] = one
    return MappingProxyType(found)


def find(name: str) -> Op:
    """The op of this name; raises :class:`CorpusError` with the nearest one."""
    known = ops()
    if name not in known:
        raise CorpusError(f"no op {name!r}{did_you_mean(name, known)}")
    return known[name]


def families() -> list[str]:
    """First parts of the names of ops."""
    return sorted({one.family for one in ops().values()})


def check_result(op: str, value: Mapping[str, Any]) -> str | None:
    """What the op's response schema says against a result, as one sentence; ``None`` when it is valid."""
    found = problem(outline(value), find(op).response)
    return None if found is None else f"the result does not meet the schema of {op}: {found[0] or '/'}: {found[1]}"
