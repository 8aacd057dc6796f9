"""The repository's data as the documentation needs them: cases, faults, schemas, registries, engine reports.

Everything is read from the clone at build time; nothing that is generated here is committed.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvassay.corpus.requirements import extract_all

REPOSITORY = Path(__file__).resolve().parents[3]
Data = dict[str, Any]


@dataclass(frozen=True)
class Fault:
    """One seeded defect, as its class describes it."""

    id: str
    """``contract/ClassName``."""
    name: str
    contract: str
    text: str
    requirement: str
    killed_by: tuple[str, ...]
    equivalent: str
    """The proof that no input can show the fault; empty for all others."""


def load(path: Path) -> Any:
    """One JSON file."""
    return json.loads(path.read_text(encoding="utf-8"))


def contracts(root: Path) -> list[str]:
    """Contracts that have cases, in alphabetical order."""
    return sorted(folder.name for folder in (root / "fixtures").glob("*/") if groups(root, folder.name))


@functools.cache
def groups(root: Path, contract: str) -> dict[str, list[Data]]:
    """The frozen cases of a contract by group, in the order in which they were written."""
    files = sorted((root / "fixtures" / contract / "cases").glob("*.json"))
    return {path.stem: load(path)["cases"] for path in files}


def cases(root: Path, contract: str) -> list[Data]:
    """All cases of a contract."""
    return [case for group in groups(root, contract).values() for case in group]


def case(root: Path, case_id: str) -> Data:
    """One case; raises :class:`KeyError` for an unknown id."""
    for candidate in cases(root, case_id.partition("/")[0]):
        if candidate["id"] == case_id:
            return candidate
    raise KeyError(f"no case {case_id}")


def faults(contract: str) -> list[Fault]:
    """The seeded faults of a contract; none where the contract has no such module."""
    name = f"kvassay.faults.{contract}"
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        return []
    return [
        Fault(
            id=f"{contract}/{fault.__name__}",
            name=fault.__name__,
            contract=contract,
            text=inspect.cleandoc(fault.__doc__ or ""),
            requirement=fault.requirement,
            killed_by=tuple(getattr(fault, "killed_by", ())),
            equivalent=getattr(fault, "equivalent", ""),
        )
        for fault in module.FAULTS
    ]


def base(root: Path, document: str, pointer: str) -> Any:
    """What stands at a JSON pointer of a base document such as ``identity/base``."""
    node = load(root / "fixtures" / f"{document}.json")
    for part in pointer.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        try:
            node = node[int(key)] if isinstance(node, list) else node[key]
        except (KeyError, IndexError, ValueError, TypeError):
            raise KeyError(f"{document}.json has nothing at {pointer}") from None
    return node


def schema_files(root: Path) -> list[Path]:
    """Every file below ``schemas/`` that is a JSON Schema; the registries of data are not."""
    return [path for path in sorted((root / "schemas").rglob("*.json")) if "$schema" in load(path)]


def registry(root: Path, name: str) -> list[Data]:
    """The rows of ``schemas/<contract>/reasons.json`` and its like, each with its contract."""
    return [
        {**row, "contract": path.parent.name}
        for path in sorted((root / "schemas").glob(f"*/{name}.json"))
        for row in load(path)[name]
    ]


def reports(root: Path) -> dict[str, Data]:
    """The committed engine reports by name."""
    return {path.stem: load(path) for path in sorted((root / "docs" / "engines").glob("*.json"))}


def requirements(root: Path) -> list[Data]:
    """Every requirement of the chapters, as the suite itself reads them."""
    return [row for rows in extract_all(root).values() for row in rows]
