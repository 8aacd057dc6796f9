"""Requirements are written once, in the chapters; this reads them from there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from .errors import CorpusError

FENCE = re.compile(r"^```\{req\} (?P<title>[^\n]+)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
OPTION = re.compile(r"^:(?P<name>[a-z]+): (?P<value>.+)$", re.MULTILINE)


def extract(chapter: Path, base: Path) -> list[dict[str, Any]]:
    """The requirements of one chapter, in order; raises :class:`CorpusError` for one that is not whole."""
    text = chapter.read_text(encoding="utf-8")
    name = chapter.relative_to(base).as_posix()
    found = []
    for match in FENCE.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        found.append(_one(match, chapter.stem, name, f"{name}:{line}"))
    return found


def _one(match: re.Match[str], contract: str, chapter: str, place: str) -> dict[str, Any]:
    head, _, prose = match["body"].partition("\n\n")
    options = {option["name"]: option["value"].strip() for option in OPTION.finditer(head)}
    if set(options) != {"id", "level", "sources"}:
        raise CorpusError(f"a requirement has the options id, level and sources, not {sorted(options)}", file=place)
    paragraphs = [" ".join(part.split()) for part in prose.strip().split("\n\n")]
    if len(paragraphs) != 2 or not paragraphs[1].startswith("Why: "):
        raise CorpusError(f"{options['id']}: one sentence, then one paragraph that begins with 'Why: '", file=place)
    return {
        "id": options["id"],
        "contract": contract,
        "level": options["level"],
        "title": match["title"].strip(),
        "text": paragraphs[0],
        "why": paragraphs[1].removeprefix("Why: "),
        "sources": [source.strip() for source in options["sources"].split(",")],
        "chapter": chapter,
    }


def extract_all(base: Path) -> dict[str, list[dict[str, Any]]]:
    """Contract to the requirements of its chapter, for every chapter below ``base/spec`` that has any."""
    found = {chapter.stem: extract(chapter, base) for chapter in sorted((base / "spec").glob("*.md"))}
    ids = [row["id"] for rows in found.values() for row in rows]
    twice = {one for one in ids if ids.count(one) > 1}
    if twice:
        raise CorpusError(f"requirement {min(twice)} stands twice", file="spec")
    return {contract: rows for contract, rows in found.items() if rows}
