"""The map from the article's sections to requirements, and the check that no section is lost.

``docs/article-sections.json`` lists the sections that this edition covers. Each is named by the ``:sources:`` of at
least one requirement, or names the place of the prose that holds it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from . import data
from .markdown import line, needs, table

Data = dict[str, Any]


def listed(root: Path) -> list[Data]:
    """The sections: ``section``, ``about``, and for prose ``prose``, which maps the title of a place to its address."""
    sections: list[Data] = data.load(root / "docs" / "article-sections.json")["sections"]
    return sections


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
    known = {row["section"] for row in sections}
    for mark in sorted(found.keys() - known):
        yield f"{', '.join(found[mark])}: source {mark} is no section of docs/article-sections.json"


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


def _prose(row: Data) -> list[str]:
    return [f"[{line(title)}]({address})" for title, address in row.get("prose", {}).items()]
