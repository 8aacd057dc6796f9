"""The report as one self-contained page: no external resources, usable by keyboard, on a phone and in the dark.

Every text in it may come from the engine under test, so every text is escaped, and the page's own policy allows no
script and no style but those that stand in ``page/``.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

from .document import Document
from .evidence import between, came_back, headline, marked, spot, title, trace
from .layout import Path, inline, lines, scalar
from .terminal import CALM, VERDICTS, conclusion, uncounted

LINES = 120
CODE = re.compile("`([^`]+)`")


def render(document: Document) -> str:
    """The page."""
    style, script = part("page.css"), part("page.js")
    engine, corpus = document["engine"], document["corpus"]
    findings = "".join(f"<li>{escape(line)}</li>" for line in document["findings"])
    return Template(part("page.html")).substitute(
        title=escape(f"{_judged(document)}: kvassay report"),
        engine=f"{escape(engine['name'])} <small>{escape(engine['version'])}</small>",
        conclusion=escape(conclusion(document).plain),
        tone="good" if document["exit_code"] == 0 else "bad",
        meta=_meta(document),
        findings=f'<ul class="findings" aria-label="What is wrong with the run itself">{findings}</ul>'
        if findings
        else "",
        about=_about(document),
        overview=_overview(document),
        attention=_attention(document),
        choices=_choices(document),
        contracts="\n".join(_contract(document, contract) for contract in corpus["contracts"]),
        command=escape(whole_run(document)),
        style=style,
        script=script,
        style_sha256=_digest(style),
        script_sha256=_digest(script),
    )


@functools.cache
def part(name: str) -> str:
    """One of the page's files."""
    return files(__package__).joinpath("page", name).read_text(encoding="utf-8")


def whole_run(document: Document) -> str:
    """The command line that judges the same cases of the same engine."""
    words = []
    for name, values in document.get("selection", {}).items():
        option = "-k" if name == "keyword" else f"--{name}"
        words += [word for value in values for word in (option, value)]
    if document["strict"]:
        words.append("--strict")
    return " ".join(filter(None, (document["command"], shlex.join(words))))


def prose(sentence: str) -> str:
    """A sentence of the specification or of a case, with its code set as code."""
    return CODE.sub(r"<code>\1</code>", escape(sentence))


def _judged(document: Document) -> str:
    engine = document["engine"]
    named = " ".join(part for part in (engine["name"], engine["version"]) if part)
    return (
        f"{named} through {document['adapter']}" if document.get("adapter", engine["name"]) != engine["name"] else named
    )


def _meta(document: Document) -> str:
    corpus = document["corpus"]
    rest = f"{document['started']} · corpus edition {corpus['edition']} · specification {corpus['spec_version']}"
    adapter = document.get("adapter")
    return escape(rest) if adapter is None else f"adapter <code>{escape(adapter)}</code> · {escape(rest)}"


def anchor(case: str) -> str:
    """Id of a case's element."""
    return f"case-{escape(case)}"


def _digest(content: str) -> str:
    return base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()


def _about(document: Document) -> str:
    engine, corpus = document["engine"], document["corpus"]
    claimed = [name for name, state in document["profiles"].items() if state == "claimed"]
    unclaimed = [name for name, state in document["profiles"].items() if state != "claimed"]
    rows = {
        "homepage": engine["homepage"],
        "language": engine["language"],
        "notes": engine["notes"],
        "claims": ", ".join(claimed),
        "does not claim": ", ".join(unclaimed),
        "ops": ", ".join(engine["ops"]),
        "states": ", ".join(engine["states"]),
        "variants": ", ".join(engine["variants"]),
        "capabilities": ", ".join(f"{key}: {scalar(value)}" for key, value in engine["capabilities"].items()),
        "corpus digest": corpus["digest"],
        **document["environment"],
    }
    return f"<dl>{''.join(f'<dt>{escape(k)}</dt><dd>{escape(v)}</dd>' for k, v in rows.items() if v)}</dl>"


def _overview(document: Document) -> str:
    seen = [verdict for verdict in VERDICTS if document["counts"].get(verdict)]
    head = "".join(f'<th scope="col">{verdict}</th>' for verdict in seen)
    rows = []
    for contract in document["corpus"]["contracts"]:
        counts = Counter(row["verdict"] for row in document["results"] if row["contract"] == contract)
        cells = "".join(
            f'<td class="v v-{verdict}">{counts[verdict]}</td>' if counts[verdict] else '<td class="zero">0</td>'
            for verdict in seen
        )
        rows.append(f'<tr><th scope="row">{escape(contract)}</th>{cells}</tr>')
    return f'<table><thead><tr><th scope="col">contract</th>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table>'


def _attention(document: Document) -> str:
    rows = "".join(
        f'<li>{_badge(row)} <a href="#{anchor(row["case"])}"><code>{escape(row["case"])}</code></a>{_note(row)}'
        f'<p class="message">{escape(headline(row))}</p></li>'
        for row in sorted(document["results"], key=lambda row: not row["fails"])
        if row["verdict"] not in CALM
    )
    title = '<h2 id="attention">What did not pass</h2>'
    return f'<section aria-labelledby="attention">{title}<ul class="attention">{rows}</ul></section>' if rows else ""


def _choices(document: Document) -> str:
    return "".join(
        f'<label><input type="checkbox" value="{verdict}" checked> '
        f'<span class="v v-{verdict}">{verdict}</span> {document["counts"][verdict]}</label>'
        for verdict in VERDICTS
        if document["counts"].get(verdict)
    )


def _contract(document: Document, contract: str) -> str:
    results = [row for row in document["results"] if row["contract"] == contract]
    names = sorted({name for row in results for name in row["requirements"]})
    first = {row["case"]: row["requirements"][0] for row in results}
    body = "".join(
        _requirement(name, document["requirements"], [r for r in results if name in r["requirements"]], first)
        for name in names
    )
    return f'<div class="contract"><h3>{escape(contract)}</h3>{body}</div>'


def _requirement(name: str, known: Mapping[str, Document], results: list[Document], first: Mapping[str, str]) -> str:
    item = known.get(name, {"title": "", "text": "", "why": "", "level": ""})
    counts = Counter(row["verdict"] for row in results)
    tally = "".join(
        f'<span class="v v-{verdict}">{counts[verdict]} {verdict}</span>' for verdict in VERDICTS if counts[verdict]
    )
    attention = any(row["verdict"] not in CALM and first[row["case"]] == name for row in results)
    bad = " bad" if any(row["fails"] for row in results) else ""
    cases = "".join(_case(row, known) if first[row["case"]] == name else _also(row) for row in results)
    why = f' <span class="why">{prose(item["why"])}</span>' if item["why"] else ""
    return (
        f'<details class="requirement{bad}"{" open" if attention else ""}>'
        f'<summary><span class="name">{escape(name)}</span> <span class="title">{prose(item["title"])}</span> '
        f'<span class="level">{escape(item["level"])}</span><span class="tally">{tally}</span></summary>'
        f'<p class="text">{prose(item["text"])}{why}</p>{cases}</details>'
    )


def _attributes(row: Document) -> str:
    words = " ".join((row["case"], row["title"], *row["requirements"], row["profile"], row["kind"], headline(row)))
    return (
        f'data-case="{escape(row["case"])}" data-verdict="{escape(row["verdict"])}" data-text="{escape(words.lower())}"'
    )


def _badge(row: Document) -> str:
    verdict = escape(row["verdict"])
    return f'<span class="v v-{verdict}">{verdict}</span>'


def _also(row: Document) -> str:
    link = f'<a href="#{anchor(row["case"])}"><code>{escape(row["case"])}</code></a>'
    under = escape(row["requirements"][0])
    return f'<div class="also" {_attributes(row)}>{_badge(row)} <span>{link} (under {under})</span></div>'


def _note(row: Document) -> str:
    return "" if row["fails"] or row["verdict"] in CALM else f' <span class="level">{escape(uncounted(row))}</span>'


def _case(row: Document, known: Mapping[str, Document]) -> str:
    own = f' <span class="title">{prose(title(row))}</span>' if title(row) else ""
    return (
        f'<details class="case" id="{anchor(row["case"])}" {_attributes(row)}><summary>{_badge(row)} '
        f"<code>{escape(row['case'])}</code>{own}{_note(row)}</summary>"
        f'<div class="body">{_body(row, known)}</div></details>'
    )


def _body(row: Document, known: Mapping[str, Document]) -> str:
    pieces = [] if row["verdict"] == "pass" else [f'<p class="message">{escape(headline(row))}</p>']
    if trace(row):
        pieces.append(_region("Detail", escape("\n".join(trace(row)))))
    if "given" in row:
        pieces.append(f'<p class="prose">{prose(row["given"])}</p>')
    if row["exchanges"] and row["finding"] is not None:
        pieces += [_sides(row), _differences(row["finding"]), _between(row["exchanges"])]
    if "why" in row:
        pieces.append(f'<p class="prose"><b>Why it matters:</b> {prose(row["why"])}</p>')
    others = [name for name in row["requirements"][1:] if name in known]
    pieces += [f'<p class="prose"><b>Also {escape(n)}:</b> {prose(known[n]["text"])}</p>' for n in others]
    if row["ratio"] is not None and row["verdict"] == "pass":
        pieces.append(f'<p class="prose"><b>Largest error:</b> {escape(scalar(row["ratio"]))} of the bound</p>')
    if row["exchanges"]:
        pieces.append(_calls(row["exchanges"]))
    copy = '<button type="button" class="copy" hidden>Copy</button>'
    pieces.append(f'<p class="repeat"><code>{escape(row["repeat"])}</code>{copy}</p>')
    return "".join(pieces)


def _sides(row: Document) -> str:
    finding, sent, marks = row["finding"], row["exchanges"][-1], marked(row["finding"])
    returned = came_back(finding, sent)
    sides = [_side("Sent", f"Sent to {sent['op']}", sent["request"])]
    if finding["expected"] is not None:
        sides.append(_side("Expected", "Expected", finding["expected"], marks))
    if returned is not None:
        sides.append(_side("Returned", "Returned", returned, marks))
    return f'<div class="sides">{"".join(sides)}</div>'


def _side(label: str, title: str, value: Any, marks: frozenset[Path] = frozenset()) -> str:
    return f'<div class="side"><h4>{escape(title)}</h4>{_region(label, _pre(value, marks))}</div>'


def _region(label: str, content: str) -> str:
    return f'<pre tabindex="0" role="region" aria-label="{escape(label)}">{content}</pre>'


def _pre(value: Any, marks: frozenset[Path] = frozenset()) -> str:
    return "\n".join(
        "".join(f"<mark>{escape(text)}</mark>" if mark else escape(text) for text, mark in line)
        for line in lines(value, marks, LINES)
    )


def _differences(finding: Document) -> str:
    if not finding["differences"]:
        return ""
    relation = finding["step"] is None
    head = _cells(
        "th", ("element", "first operand" if relation else "expected", "other operand" if relation else "returned")
    )
    rows = "".join(
        f"<tr>{_cells('td', (spot(one['path']), _short(one['expected']), _short(one['returned'])))}</tr>"
        for one in finding["differences"]
    )
    left = finding["differing"] - len(finding["differences"])
    more = f'<p class="meta">{left} more differ</p>' if left > 0 else ""
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="Differences"><table class="differences">'
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>{more}"
    )


def _between(exchanges: list[Document]) -> str:
    """What tells the calls apart."""
    items = "".join(f"<li><code>{escape(row)}</code></li>" for row in between(exchanges))
    return f'<p class="prose"><b>Between the calls:</b></p><ul class="between">{items}</ul>' if items else ""


def _cells(tag: str, texts: Iterable[str]) -> str:
    return "".join(f"<{tag}>{escape(text)}</{tag}>" for text in texts)


def _short(value: Any) -> str:
    return inline(value, 120)


def _calls(exchanges: list[Document]) -> str:
    rows = "".join(
        f"<h4>{index}. {escape(one['op'])} <small>{one['seconds'] * 1000:.1f} ms</small></h4>"
        f'<div class="sides">{_side("Request", "Request", one["request"])}{_side("Reply", "Reply", one["reply"])}</div>'
        for index, one in enumerate(exchanges, 1)
    )
    count = len(exchanges)
    return f'<details class="calls"><summary>{count} call{"s" * (count != 1)} of this case</summary>{rows}</details>'
