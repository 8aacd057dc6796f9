"""The report on a terminal, or as plain lines where there is none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from rich.console import Console
from rich.table import Table
from rich.text import Text

from .document import Document
from .evidence import LABEL, evidence, headline
from .layout import Line
from .shorten import text

VERDICTS = {
    "pass": "green",
    "fail": "bold red",
    "wrong-reason": "bold magenta",
    "error": "bold red",
    "inconclusive": "bold yellow",
    "unexpected-pass": "bold magenta",
    "waived": "cyan",
    "not-applicable": "dim",
}
"""Every verdict with its style, in the order in which they are counted."""
CALM = frozenset({"pass", "not-applicable", "waived"})
"""Verdicts that need nobody's attention."""
WARNED = frozenset({"fail", "wrong-reason", "error", "inconclusive"})
"""Verdicts that are a warning where they do not fail the run."""


def verdict_line(result: Document) -> Text:
    """One line: verdict, case, and what a reader must know of a verdict that is no pass."""
    verdict = result["verdict"]
    line = Text(no_wrap=True, overflow="ignore")
    line.append(f"{verdict:<15} ", VERDICTS[verdict])
    line.append(result["case"])
    if verdict == "waived":
        line.append(f"  ({result['waived']})", "dim")
    elif verdict == "not-applicable":
        line.append(f"  ({headline(result)})", "dim")
    elif not result["fails"] and verdict != "pass":
        line.append(f"  ({uncounted(result)})", "yellow")
    return line


def uncounted(result: Document) -> str:
    """Why a verdict that is no pass does not fail the run."""
    return "provisional: reported, not counted" if result["status"] == "provisional" else "SHOULD: a warning"


def case_block(result: Document, requirements: Mapping[str, Document]) -> list[Text]:
    """A failing case with its evidence."""
    rows = [verdict_line(result)]
    for part in evidence(result, requirements):
        for number, line in enumerate(part.lines):
            row = Text(no_wrap=True, overflow="ignore")
            row.append(f"  {part.label if number == 0 else '':<{LABEL}}", "dim")
            rows.append(_append(row, line, "bold" if part.label in ("finding", "repeat") else ""))
    return [*rows, Text()]


def summary(document: Document, console: Console) -> None:
    """Engine, corpus, profiles, verdicts by contract and requirement, what is wrong with the run, the conclusion."""
    engine, corpus = document["engine"], document["corpus"]
    _pair(console, "engine", " ".join(part for part in (engine["name"], engine["version"]) if part))
    if "adapter" in document:
        _pair(console, "adapter", document["adapter"])
    _pair(
        console,
        "corpus",
        f"edition {corpus['edition']}, specification {corpus['spec_version']}, digest {corpus['digest'][:12]}",
    )
    for label, wanted in (("claims", "claimed"), ("unclaimed", "not claimed")):
        names = [name for name, state in document["profiles"].items() if state == wanted]
        if names:
            _pair(console, label, ", ".join(names))
    console.print()
    console.print(_by_contract(document))
    _by_requirement(document, console)
    for line in document["findings"]:
        console.print(Text(f"{'the run':<{LABEL}}{line}", "bold red", no_wrap=True, overflow="ignore"))
    console.print(conclusion(document))


def conclusion(document: Document) -> Text:
    """The last line: what the exit status says. Failures and warnings are the cases that did not pass."""
    bad = Counter(result["verdict"] == "inconclusive" for result in document["results"] if result["fails"])
    told = [f"{bad[silent]} {word}" for silent, word in ((False, "failed"), (True, "inconclusive")) if bad[silent]]
    warned = sum(result["verdict"] in WARNED and not result["fails"] for result in document["results"])
    stale = len(document["findings"])
    line = Text(no_wrap=True, overflow="ignore")
    if document["exit_code"] == 2:
        line.append("nothing was judged: no selected case applies to this engine", "bold red")
    elif document["exit_code"] == 1:
        if len(told) + bool(warned) > 1:
            line.append(f"{bad.total() + warned} cases did not pass: {', '.join(told)}", "bold red")
        elif told:
            line.append(_count(bad.total(), "case", "inconclusive" if bad[True] else "failed"), "bold red")
        if stale:
            line.append(f"{', ' if told else ''}{_count(stale, 'finding', 'about the run')}", "bold red")
    else:
        line.append("all required cases pass", "bold green")
    if warned:
        line.append(f", {_count(warned, 'warning')}", "yellow")
    return line.append(f" in {document['seconds']:.1f} s", "dim")


def _count(count: int, noun: str, rest: str = "") -> str:
    return f"{count} {noun}{'s' * (count != 1)} {rest}".rstrip()


def _by_contract(document: Document) -> Table:
    results = document["results"]
    seen = [verdict for verdict in VERDICTS if verdict in document["counts"]]
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("contract")
    for verdict in seen:
        table.add_column(verdict, justify="right")
    for contract in dict.fromkeys(result["contract"] for result in results):
        counts = Counter(result["verdict"] for result in results if result["contract"] == contract)
        table.add_row(contract, *(Text(str(counts[v] or "-"), VERDICTS[v] if counts[v] else "dim") for v in seen))
    return table


def _by_requirement(document: Document, console: Console) -> None:
    """What did not pass, by requirement; nothing where a single case did not."""
    loud = [result for result in document["results"] if result["verdict"] not in CALM]
    if len(loud) < 2:
        return
    counts: dict[str, Counter[str]] = {}
    for result in loud:
        for name in result["requirements"]:
            counts.setdefault(name, Counter())[result["verdict"]] += 1
    seen = [verdict for verdict in VERDICTS if any(count[verdict] for count in counts.values())]
    first = max(map(len, ("requirement", *counts)))
    rows = [Text("  ".join((f"{'requirement':<{first}}", *seen)), "dim")]
    for name, count in sorted(counts.items()):
        row = Text(f"{name:<{first}}")
        for verdict in seen:
            style = VERDICTS[verdict] if count[verdict] else "dim"
            row.append(f"  {count[verdict] or '-':>{len(verdict)}}", style)
        title = document["requirements"].get(name, {"title": ""})["title"]
        rows.append(row.append(f"  {text(title)}", "dim") if title else row)
    console.print()
    for row in rows:
        console.print(row, no_wrap=True, overflow="ellipsis")
    if any(len(result["requirements"]) > 1 for result in loud):
        console.print(Text("a case counts at each requirement that it tests", "dim"))
    console.print()


def _pair(console: Console, label: str, value: str) -> None:
    console.print(Text.assemble((f"{label:<{LABEL}}", "dim"), text(value, 2000)), soft_wrap=True)


def _append(row: Text, line: Line, style: str) -> Text:
    for piece, mark in line:
        row.append(text(piece, 2000), "red" if mark else style)
    return row
