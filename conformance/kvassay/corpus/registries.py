"""Registries: reasons, profiles, capabilities and variants, one file of each kind per contract.

``schemas/<contract>/<kind>.json`` holds the rows that the contract defines; what belongs to no single contract stands
in ``schemas/common/``. A name stands once, whatever the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ..core.model import Reason
from .data import read_json
from .errors import CorpusError
from .schemas import validate

KEYS = {"reasons": "code", "profiles": "name", "capabilities": "name", "variants": "name"}
"""Kind to the member that names a row."""


@dataclass(frozen=True)
class Profile:
    """A set of ops that an engine claims."""

    name: str
    contract: str
    meaning: str
    ops: frozenset[str]


@dataclass(frozen=True)
class Capability:
    """Something beyond ops that an engine declares, and what an engine that is silent has declared."""

    name: str
    meaning: str
    values: tuple[Any, ...]
    default: Any
    contract: str = ""


@dataclass(frozen=True)
class Variant:
    """A named rule of a published method, such as ``quest/paper``."""

    name: str
    contract: str
    method: str
    evidence: str
    """``documented``, ``source``, ``model`` or ``measured``."""
    meaning: str


def rows(base: Path, kind: str) -> dict[str, dict[str, Any]]:
    """Every row of one kind by its name, with its contract; raises :class:`CorpusError` for a name given twice."""
    found: dict[str, dict[str, Any]] = {}
    for path in sorted((base / "schemas").glob(f"*/{kind}.json")):
        file = path.relative_to(base).as_posix()
        document = read_json(path)
        validate(document, f"urn:kvassay:registry#/$defs/{kind}", file=file)
        for index, row in enumerate(document[kind]):
            name = row[KEYS[kind]]
            if name in found:
                reason = f"{name} stands in the registry of {found[name]['contract']} already"
                raise CorpusError(reason, file=file, pointer=f"/{kind}/{index}")
            found[name] = {**row, "contract": path.parent.name}
    return found


def reasons(base: Path) -> Mapping[str, Reason]:
    """Typed rejections by code."""
    return MappingProxyType({name: Reason(**row) for name, row in rows(base, "reasons").items()})


def profiles(base: Path) -> Mapping[str, Profile]:
    """Profiles by name."""
    found = rows(base, "profiles").items()
    return MappingProxyType({name: Profile(**{**row, "ops": frozenset(row["ops"])}) for name, row in found})


def capabilities(base: Path) -> Mapping[str, Capability]:
    """Capabilities by name."""
    found = rows(base, "capabilities").items()
    return MappingProxyType({name: Capability(**{**row, "values": tuple(row["values"])}) for name, row in found})


def variants(base: Path) -> Mapping[str, Variant]:
    """Variants by name."""
    return MappingProxyType({name: Variant(**row) for name, row in rows(base, "variants").items()})
