"""Waivers: known deviations of an engine as data, each with a verdict, a link and a last day.

A waiver turns exactly the verdict that it names into ``waived``. It hides nothing: a case that passes after all becomes
``unexpected-pass``, any other verdict stands, and a waiver that has expired or matches no case fails the run.
"""

from __future__ import annotations

import datetime
import functools
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

from .core.model import Result, Verdict
from .corpus import CorpusError
from .corpus.schemas import validate
from .documents import read_toml

WILD = frozenset("*?")
DORMANT = frozenset({Verdict.NOT_APPLICABLE})
"""Verdicts of cases that did not run, so that they say nothing about a waiver."""


@dataclass(frozen=True)
class Waiver:
    """One ``[[waiver]]`` table of a file; see ``schemas/waivers.json``."""

    case: str
    category: str
    link: str
    expires: datetime.date
    verdict: Verdict
    reason: str
    origin: str
    """File and index, for messages."""

    @property
    def is_wild(self) -> bool:
        """Whether the case is a glob."""
        return not WILD.isdisjoint(self.case)

    def matches(self, case_id: str) -> bool:
        """Whether the waiver speaks of this case."""
        return self.case == case_id or (self.is_wild and _pattern(self.case).fullmatch(case_id) is not None)

    def __str__(self) -> str:
        return f"{self.origin} ({self.case})"


Waivers = tuple[Waiver, ...]


def load(path: str | Path) -> Waivers:
    """Read and check one file; raises :class:`~kvassay.corpus.CorpusError` naming the file and the waiver."""
    document = read_toml(Path(path))
    validate(document, "urn:kvassay:waivers", file=str(path))
    waivers = tuple(_waiver(row, index, str(path)) for index, row in enumerate(document["waiver"]))
    for (i, a), (j, b) in combinations(enumerate(waivers), 2):
        if a.case == b.case:
            raise CorpusError(
                f"{b.case!r} is waived already by waiver {i}", file=str(path), pointer=f"/waiver/{j}/case"
            )
        if a.is_wild and b.is_wild and _intersect(a.case, b.case):
            reason = f"{b.case!r} and {a.case!r} of waiver {i} can match one case: make them disjoint"
            raise CorpusError(reason, file=str(path), pointer=f"/waiver/{j}/case")
    return waivers


def apply(
    results: Iterable[Result],
    waivers: Sequence[Waiver],
    today: datetime.date,
    known: Collection[str] | None = None,
) -> tuple[tuple[Result, ...], tuple[str, ...]]:
    """The results after the waivers, and what is wrong with the waivers themselves.

    ``known`` are the ids of the whole corpus when only some cases were selected: a waiver for a case that was left out
    is not stale. An exact id goes before a glob.
    """
    before = tuple(results)
    after = tuple(waive(result, waivers, today) for result in before)
    ran = {result.case.id for result in before if result.verdict not in DORMANT}
    selected = {result.case.id for result in before}
    return after, problems(waivers, today, selected if known is None else known, ran, selected)


def waive(result: Result, waivers: Sequence[Waiver], today: datetime.date) -> Result:
    """One result after the waiver that speaks of it, if one does and still holds."""
    waiver = find(result.case.id, waivers)
    if waiver is None or today > waiver.expires:
        return result
    if result.verdict is waiver.verdict:
        return replace(result, verdict=Verdict.WAIVED, waived=waiver.verdict)
    if result.verdict is Verdict.PASS:
        return replace(result, verdict=Verdict.UNEXPECTED_PASS, waived=waiver.verdict)
    return result


def find(case_id: str, waivers: Sequence[Waiver]) -> Waiver | None:
    """The waiver that speaks of a case: its exact id first, else the one glob that matches."""
    matching = [waiver for waiver in waivers if waiver.matches(case_id)]
    return min(matching, key=lambda waiver: waiver.is_wild, default=None)


def problems(
    waivers: Sequence[Waiver],
    today: datetime.date,
    known: Collection[str],
    ran: Collection[str],
    selected: Collection[str],
) -> tuple[str, ...]:
    """One line for each waiver that has expired, names no case, or waives only cases that do not apply."""
    found = []
    for waiver in waivers:
        if today > waiver.expires:
            found.append(f"{waiver}: expired on {waiver.expires.isoformat()}")
            continue
        own = [case_id for case_id in known if find(case_id, waivers) is waiver]
        if not own:
            found.append(f"{waiver}: matches no case")
        elif set(own) <= set(selected) and not any(case_id in ran for case_id in own):
            found.append(f"{waiver}: matches only cases that are not applicable to this engine")
    return tuple(found)


def _waiver(row: dict[str, Any], index: int, path: str) -> Waiver:
    try:
        expires = datetime.date.fromisoformat(row["expires"])
    except ValueError as problem:
        raise CorpusError(str(problem), file=path, pointer=f"/waiver/{index}/expires") from None
    origin = f"{path}: waiver {index}"
    return Waiver(row["case"], row["category"], row["link"], expires, Verdict(row["verdict"]), row["reason"], origin)


@functools.cache
def _pattern(glob: str) -> re.Pattern[str]:
    return re.compile("".join({"*": ".*", "?": "."}.get(char, re.escape(char)) for char in glob))


def _intersect(a: str, b: str) -> bool:
    """Whether some text matches both globs."""

    @functools.cache
    def meet(i: int, j: int) -> bool:
        if i == len(a) and j == len(b):
            return True
        if i < len(a) and a[i] == "*":
            return meet(i + 1, j) or (j < len(b) and meet(i, j + 1))
        if j < len(b) and b[j] == "*":
            return meet(i, j + 1) or (i < len(a) and meet(i + 1, j))
        if i == len(a) or j == len(b):
            return False
        return (a[i] == b[j] or "?" in (a[i], b[j])) and meet(i + 1, j + 1)

    return meet(0, 0)
