"""Reports of engines as pages, and the table of judged engines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kvassay.authoring.printer import dump

from . import data
from .markdown import code, fence, line, need, need_id, needs, table, value

Data = dict[str, Any]
QUIET = ("pass", "not-applicable")
"""Verdicts that need no evidence."""
LONGEST = 2400
"""Characters of a request up to which it is shown whole."""


def page(root: Path, name: str, report: Data) -> str:
    """The page of one report: what was judged, the verdicts by profile, and each failure with its evidence."""
    engine = report["engine"]
    blocks = [f"# Verdicts: {name}\n", f"{line(engine['name'])} {line(engine['version'])}. {line(engine['notes'])}\n"]
    if (root / "docs" / "engines" / f"{name}.md").is_file():
        blocks.append(f"[How it is driven, and what the verdicts mean](../../engines/{name}.md)\n")
    blocks += [_facts(report), "## By profile\n", _profiles(report)]
    loud = [result for result in report["results"] if result["verdict"] not in QUIET]
    blocks.append("## What did not pass\n")
    blocks += [_verdict(name, result) for result in loud] or ["Every case that applies passes.\n"]
    blocks += ["## Passed\n", _passed(report), "## Not applicable\n", _not_applicable(report)]
    return "\n".join(blocks)


def _facts(report: Data) -> str:
    engine, corpus = report["engine"], report["corpus"]
    rows = [
        ["Ops", ", ".join(code(op) for op in engine["ops"])],
        ["States", ", ".join(code(state) for state in engine["states"])],
        ["Variants", ", ".join(code(variant) for variant in engine["variants"])],
        ["Capabilities", "; ".join(f"{code(name)} {value(item)}" for name, item in engine["capabilities"].items())],
        ["Corpus", f"edition {line(corpus['edition'])}, digest {code(corpus['digest'][:16])}"],
        ["Environment", "; ".join(f"{line(name)} {line(item)}" for name, item in report["environment"].items())],
        ["Repeat", code(report["command"])],
    ]
    return table(["", ""], [row for row in rows if row[1]], widths="20 80")


def _profiles(report: Data) -> str:
    counts: dict[str, Counter[str]] = {}
    for result in report["results"]:
        counts.setdefault(result["profile"], Counter())[result["verdict"]] += 1
    rows = [
        [code(name), line(claim), _counted(counts.get(name, Counter()))] for name, claim in report["profiles"].items()
    ]
    return table(["Profile", "Claim", "Verdicts"], rows, widths="25 20 55")


def _counted(counts: Counter[str]) -> str:
    return ", ".join(f"{number} {verdict}" for verdict, number in counts.most_common())


def _verdict(name: str, result: Data) -> str:
    finding = result["finding"] or {}
    message, _, rest = finding.get("message", "").partition("\n")
    body = [line(message), ""]
    if rest.strip():
        body.append(fence("code-block", "text", rest.rstrip()))
    if finding.get("differences"):
        rows = [
            [code("/".join(map(str, one["path"]))), value(one["expected"]), value(one["returned"])]
            for one in finding["differences"][:8]
        ]
        body.append(table(["Element", "Expected", "Returned"], rows, widths="30 35 35"))
    elif finding.get("expected") is not None or finding.get("returned") is not None:
        body.append(f"Expected {value(finding.get('expected'))}, returned {value(finding.get('returned'))}.\n")
    body += [*_request(finding, result["exchanges"]), f"Repeat: {code(result['repeat'])}"]
    options = {"id": need_id(f"{name}/{result['case']}"), "judges": need_id(result["case"]), "level": result["level"]}
    return fence("verdict", f"{result['verdict']}: {result['title']}", "\n".join(body), options, ticks=4)


def _request(finding: Data, exchanges: list[Data]) -> Iterator[str]:
    """The request of the step that failed, when a page can hold it."""
    if not exchanges:
        return
    step = finding.get("step")
    sent = exchanges[step if step is not None and step < len(exchanges) else -1]
    text = dump(sent["request"]).rstrip()
    if len(text) <= LONGEST:
        yield f"Sent to {code(sent['op'])}:\n"
        yield fence("code-block", "json", text)


def _passed(report: Data) -> str:
    names = [need(result["case"]) for result in report["results"] if result["verdict"] == "pass"]
    return "\n".join(f"- {name}" for name in names) + "\n" if names else "None.\n"


def _not_applicable(report: Data) -> str:
    why = Counter(
        (result["finding"] or {}).get("message", "")
        for result in report["results"]
        if result["verdict"] == "not-applicable"
    )
    return (
        table(["Cases", "Why"], [[str(n), line(text)] for text, n in why.most_common()], widths="12 88")
        if why
        else "None.\n"
    )


def rows(root: Path) -> Iterator[tuple[str, Data, Counter[str]]]:
    """Name, report and verdict counts of every committed report."""
    for name, report in data.reports(root).items():
        yield name, report, Counter(result["verdict"] for result in report["results"])


def summary(root: Path) -> str:
    """The judged engines as a table that leads to what is said of them and to their verdicts."""
    found = []
    for name, report, count in rows(root):
        verdicts, ids = _loud(report)
        about = f"{line(report['engine']['name'])} {line(report['engine']['version'])}"
        prose = (root / "docs" / "engines" / f"{name}.md").is_file()
        found.append(
            [
                f"[{code(name)}]({name}.md)" if prose else code(name),
                about,
                ", ".join(report["corpus"]["contracts"]),
                f"[{count['pass']}](../_generated/engines/{name}.md)",
                ": ".join(part for part in (verdicts, needs(ids)) if part),
                str(count["not-applicable"]),
            ]
        )
    return table(
        ["Adapter", "Engine", "Contracts", "Pass", "Other verdicts", "Not applicable"], found, widths="18 24 12 8 26 12"
    )


def _loud(report: Data) -> tuple[str, list[str]]:
    """Counts of the verdicts that are neither a pass nor not applicable, and the requirements behind them."""
    loud = [result for result in report["results"] if result["verdict"] not in QUIET]
    ids = sorted({name for result in loud for name in result["requirements"]})
    return _counted(Counter(result["verdict"] for result in loud)) or "none", ids


def readme_table(root: Path) -> str:
    """The same as a plain Markdown table for the README."""
    lines = ["| engine | contracts | pass | other verdicts | not applicable |", "|---|---|---|---|---|"]
    for name, report, count in rows(root):
        verdicts, ids = _loud(report)
        prose = f"docs/engines/{name}.md"
        label = f"{report['engine']['name']} {report['engine']['version']} (`{name}`)"
        label = f"[{label}]({prose})" if (root / prose).is_file() else label
        contracts = ", ".join(report["corpus"]["contracts"])
        other = ": ".join(part for part in (verdicts, ", ".join(ids)) if part)
        lines.append(f"| {label} | {contracts} | {count['pass']} | {other} | {count['not-applicable']} |")
    return "\n".join(lines) + "\n"
