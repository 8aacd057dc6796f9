"""Words in capitals that requests, results and documents may hold, such as the action of a fallback.

A schema lists them as an enumeration; what each means stands in the chapter of its contract.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from .data import root
from .ops import ops
from .schemas import PREFIX, schemas

CAPITALS = re.compile(r"[A-Z][A-Z0-9_]+")


@dataclass(frozen=True)
class Place:
    """Where a word may stand."""

    contract: str
    where: str
    """Name of the op or the document, and the member, such as ``runtime.admit: response.fallbacks[].reason``."""
    description: str
    choices: tuple[str, ...]
    """All words that may stand there."""


@functools.cache
def words() -> Mapping[str, tuple[Place, ...]]:
    """Every word to its places."""
    found: dict[str, list[Place]] = {}
    for uri, schema in schemas().items():
        name = uri.removeprefix(PREFIX)
        contract = _contract(name)
        for path, description, choices in _enumerations(schema, "", "") if contract else ():
            where = f"{name.removeprefix('op:')}: {path.removeprefix('.')}"
            for word in choices:
                found.setdefault(word, []).append(Place(contract, where, description, choices))
    return MappingProxyType({word: tuple(dict.fromkeys(places)) for word, places in found.items()})


def chapter(contract: str, word: str) -> list[str]:
    """Lines of a chapter that name a word, requirements left out: those are told by themselves."""
    named = re.compile(rf"(?<!\w){re.escape(word)}(?!\w)")
    lines, fenced = [], False
    for line in (root() / "spec" / f"{contract}.md").read_text(encoding="utf-8").splitlines():
        fenced ^= line.startswith("```")
        if not fenced and named.search(line):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            lines.append(" | ".join(cell for cell in cells if cell))
    return lines


def _contract(name: str) -> str:
    """The contract that owns a schema; empty for what belongs to all."""
    if name.startswith("op:"):
        return ops()[name.removeprefix("op:")].contract
    return name.partition("/")[0] if "/" in name else ""


def _enumerations(node: Any, path: str, description: str) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Enumerations of capitals below a node, with the member that each is of and the nearest description."""
    if not isinstance(node, Mapping):
        return
    description = node.get("description", description)
    choices = tuple(one for one in node.get("enum", ()) if isinstance(one, str) and CAPITALS.fullmatch(one))
    if len(choices) > 1:
        yield path, description, choices
    for group in ("$defs", "properties"):
        for name, inner in node.get(group, {}).items():
            yield from _enumerations(inner, f"{path}.{name}", description)
    yield from _enumerations(node.get("items"), f"{path}[]", description)
    for group in ("anyOf", "oneOf", "allOf", "prefixItems"):
        for inner in node.get(group, ()):
            yield from _enumerations(inner, path, description)
