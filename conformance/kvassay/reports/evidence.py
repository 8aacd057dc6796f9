"""A verdict told in words: labelled lines that terminal, pytest and JUnit show alike."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .document import Document
from .layout import Line, Path, inline, is_tensor, lines, plain, scalar

LABEL = 10
DETAIL_LINES = 10
BEFORE_LINES = 5
SENT_LINES = 14
BETWEEN_LINES = 8
SIDE_LINES = 14
WIDTH = 96
SIDE = 32
"""Characters up to which a value stands in the headline."""


@dataclass(frozen=True)
class Part:
    """One label and its lines."""

    label: str
    lines: tuple[Line, ...]


def evidence(result: Document, requirements: Mapping[str, Document]) -> tuple[Part, ...]:
    """Everything that a reader needs to judge the verdict and to see it again."""
    parts = [_sentence("finding", headline(result))]
    if "given" in result:
        parts.append(_sentence("given", result["given"]))
    finding = result["finding"]
    if trace(result):
        parts.append(Part("detail", tuple([(line, False)] for line in trace(result)[:DETAIL_LINES])))
    if finding is not None and result["exchanges"]:
        marks = marked(finding)
        *before, sent = result["exchanges"]
        parts += _before(before)
        parts.append(_value("sent", {sent["op"]: sent["request"]}, limit=SENT_LINES))
        parts += _bounded("between", between(result["exchanges"]), BETWEEN_LINES)
        if finding["expected"] is not None:
            parts.append(_value("expected", finding["expected"], marks, SIDE_LINES))
        returned = came_back(finding, sent)
        if returned is not None:
            parts.append(_value("returned", returned, marks, SIDE_LINES))
        parts += _differences(finding)
    for name in result["requirements"]:
        known = requirements.get(name)
        parts.append(_sentence("requires", f"{name} ({known['level']}): {known['text']}" if known else name))
    if "why" in result:
        parts.append(_sentence("why", result["why"]))
    parts.append(Part("repeat", ([(result["repeat"], False)],)))
    return tuple(parts)


def headline(result: Document) -> str:
    """What went wrong, where, and by how much, in one line; :func:`trace` has what follows."""
    finding = result["finding"]
    if finding is None:
        stale = result["verdict"] == "unexpected-pass"
        return f"passes, although a waiver expects {result['waived']}" if stale else result["verdict"]
    ratio = finding.get("ratio")
    message = finding["message"].partition("\n")[0]
    if message == f"{finding.get('at')} differs" and _is_plain(finding):
        message = f"{finding['at']}: expected {scalar(finding['expected'])}, returned {scalar(finding['returned'])}"
    far = isinstance(ratio, int | float) and ratio > 1 and "times it" not in message
    return f"{_place(finding)}{message}{f' ({ratio:.3g} times the bound)' if far else ''}"


def _is_plain(finding: Document) -> bool:
    """Whether both sides are values that stand on one line."""
    sides = (finding["expected"], finding["returned"])
    return not any(isinstance(side, Mapping | list) or len(scalar(side)) > SIDE for side in sides)


def _place(finding: Document) -> str:
    if finding.get("op"):
        return f"step {finding['step'] + 1}, {finding['op']}: "
    return f"{finding['at']}: " if finding.get("at") else ""


def trace(result: Document) -> list[str]:
    """The lines below the headline: a traceback, or what the engine wrote as it died."""
    finding = result["finding"]
    return [] if finding is None else [line for line in finding["message"].split("\n")[1:] if line.strip()]


def came_back(finding: Document, sent: Document) -> Any:
    """What to show as returned: the part that the finding is about, else the reply; an error is told by the finding."""
    if finding["returned"] is not None:
        return finding["returned"]
    return None if "error" in sent["reply"] else sent["reply"]


def marked(finding: Document) -> frozenset[Path]:
    """Paths of the differing elements."""
    paths = [tuple(one["path"]) for one in finding["differences"]]
    if finding["step"] is None and isinstance(finding["returned"], Mapping):
        return frozenset((name, *path) for name in finding["returned"] for path in paths)
    return frozenset(paths)


def spot(path: list[str | int]) -> str:
    """A path as people write it: ``out[0, 2]``."""
    names = "/".join(str(part) for part in path if isinstance(part, str))
    indices = [str(part) for part in path if isinstance(part, int)]
    return f"{names}[{', '.join(indices)}]" if indices else names


def title(result: Document) -> str:
    """A case's title where it says more than the end of its id."""
    return own_title(result["case"], result["title"])


def own_title(case: str, given: str) -> str:
    """The title of a case, empty where it only repeats the end of the id."""
    derived = case.rpartition("/")[2].replace("-", " ")
    return "" if given.casefold() == derived.casefold() else given


def told(case: str, title: str, given: str) -> str:
    """What a case shows in a line: its title where that says more than the id, and the sentence of its author."""
    sentence = given.removeprefix("Given ").rstrip(".")
    own = own_title(case, title)
    return f"{own}: {sentence}" if own and sentence else own or sentence[:1].upper() + sentence[1:]


def as_text(parts: tuple[Part, ...], indent: str = "") -> str:
    """All parts as plain text."""
    rows = []
    for part in parts:
        for number, line in enumerate(part.lines):
            rows.append(f"{indent}{part.label if number == 0 else '':<{LABEL}}{plain(line)}".rstrip())
    return "\n".join(rows)


def _sentence(label: str, sentence: str) -> Part:
    wrapped = [
        row
        for line in sentence.split("\n")
        for row in textwrap.wrap(line, WIDTH, break_long_words=False, break_on_hyphens=False) or [""]
    ]
    return Part(label, tuple([(row, False)] for row in wrapped))


def _value(label: str, value: Any, marks: frozenset[Path] = frozenset(), limit: int = SIDE_LINES) -> Part:
    return Part(label, tuple(lines(value, marks, limit)))


def _before(exchanges: list[Document]) -> list[Part]:
    """The calls that led to the one that the finding is about."""
    rows = [
        line
        for number, one in enumerate(exchanges, 1)
        for line in lines({f"{number}. {one['op']}": one["request"]}, limit=BEFORE_LINES)
    ]
    left = len(rows) - SENT_LINES
    rows = [*rows[:SENT_LINES], [(f"… {left} more lines", False)]] if left > 0 else rows
    return [Part("before", tuple(rows))] if rows else []


def _bounded(label: str, rows: list[str], limit: int) -> list[Part]:
    left = len(rows) - limit
    rows = [*rows[:limit], f"… {left} more"] if left > 0 else rows
    return [Part(label, tuple([(row, False)] for row in rows))] if rows else []


def between(exchanges: list[Document]) -> list[str]:
    """What tells the calls apart, where they share members; calls that differ in the same way stand together."""
    groups: dict[str, tuple[Document, list[int]]] = {}
    for number, one in enumerate(exchanges, 1):
        if "changes" in one:
            groups.setdefault(json.dumps(one["changes"]), (one["changes"], []))[1].append(number)
    rows = []
    for changes, numbers in groups.values():
        calls = f"call{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers))}"
        rows += changed(changes, f"{calls} against call {{}}, ")
    return rows


def changed(changes: Document | None, head: str = "") -> list[str]:
    """One line for each member that differs from an earlier call's; ``head`` may name that call by ``{}``."""
    if changes is None:
        return []
    start = head.format(changes["from"] + 1)
    rows = [
        f"{start}/{'/'.join(map(str, one['path']))}: {_short(one['now'])}, not {_short(one['before'])}"
        for one in changes["members"]
    ]
    left = changes["count"] - len(changes["members"])
    return [*rows, *([f"{start}{left} more"] if left > 0 else [])]


def _differences(finding: Document) -> list[Part]:
    shown = finding["differences"]
    if not shown or (finding["differing"] == 1 and not is_tensor(finding["expected"]) and len(shown[0]["path"]) < 2):
        return []
    between = ("{} against {}" if finding["step"] is None else "expected {}, returned {}").format
    rows = [f"{spot(one['path'])}: {between(_short(one['expected']), _short(one['returned']))}" for one in shown]
    left = finding["differing"] - len(shown)
    rows += [f"… {left} more"] if left > 0 else []
    return [Part("differs", tuple([(row, True)] for row in rows))]


def _short(value: Any) -> str:
    return inline(value, 80)
