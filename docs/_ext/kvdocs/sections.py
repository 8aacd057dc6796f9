"""The map from the article's sections to requirements, and the check that no section is lost.

``docs/article/<contract>.json`` lists the sections that a contract covers, ``scope.json`` those of all. Each is named
by the ``:sources:`` of at least one requirement, or names the place of the prose that holds it. What is easily lost
within a section are its ``items``; each names the requirements that hold it, which name the section in turn, or a place
of the prose.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from . import data
from .markdown import line, needs, table

Data = dict[str, Any]


def listed(root: Path) -> list[Data]:
    """The sections: ``section``, ``about``, for prose ``prose``, which maps the title of a place to its address, and
    ``items``, each an ``item`` with requirements ``by`` which it is held, or ``prose``."""
    files = (root / "docs" / "article").glob("*.json")
    return sorted((row for path in files for row in data.load(path)["sections"]), key=lambda row: str(row["section"]))


def by_section(root: Path) -> dict[str, list[str]]:
    """Section to the requirements that name it."""
    found: dict[str, list[str]] = {}
    for requirement in data.requirements(root):
        for mark in requirement["sources"]:
            found.setdefault(mark, []).append(requirement["id"])
    return found


def problems(root: Path) -> Iterator[str]:
    """Sections without a row, and sources that name no listed section."""
    found, sections = by_section(root), listed(root)
    for row in sections:
        if row["section"] not in found and "prose" not in row:
            name = f"article section {row['section']} ({row['about']})"
            yield f"{name} has neither a requirement nor a place in the prose"
    marks = [row["section"] for row in sections]
    known = set(marks)
    for mark in sorted(known):
        if marks.count(mark) > 1:
            yield f"article section {mark} is listed {marks.count(mark)} times"
    for mark in sorted(found.keys() - known):
        yield f"{', '.join(found[mark])}: source {mark} is no section of docs/article"
    for row in sections:
        for item in row.get("items", ()):
            name = f"article section {row['section']}, {item['item']!r}"
            if not item.get("by") and not item.get("prose"):
                yield f"{name} has neither a requirement nor a place in the prose"
            for requirement in item.get("by", ()):
                if requirement not in found.get(row["section"], ()):
                    yield f"{name}: {requirement} is no requirement that names the section"


def table_of(root: Path) -> str:
    """The map as a table."""
    found = by_section(root)
    rows = [
        [
            row["section"],
            line(row["about"]),
            "; ".join([*([needs(found[row["section"]])] if row["section"] in found else []), *_prose(row)]),
        ]
        for row in listed(root)
    ]
    return table(["Section", "About", "Where it went"], rows, widths="12 44 44")


def items(root: Path) -> str:
    """What is easily lost within the sections, as a table."""
    rows = [
        [
            row["section"],
            line(item["item"]),
            "; ".join([*([needs(item["by"])] if "by" in item else []), *_prose(item)]),
        ]
        for row in listed(root)
        for item in row.get("items", ())
    ]
    return table(["Section", "Item", "Where it went"], rows, widths="12 58 30")


def _prose(row: Data) -> list[str]:
    return [f"[{line(title)}]({address})" for title, address in row.get("prose", {}).items()]
