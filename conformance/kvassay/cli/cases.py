"""``kvassay list``: what the corpus holds."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import click
from rich.text import Text

from ..core.model import Case, Level, Status
from ..corpus import Corpus, load
from ..reports.document import head
from ..reports.evidence import told
from .console import dump, out, say
from .selectors import select, selectors


@click.command("list")
@selectors
@click.option("--json", "as_json", is_flag=True, help="Print the cases as JSON.")
def command(**options: Any) -> int:
    """List cases, the requirements that they test, and what they show.

    On a terminal a case has one line; elsewhere it is told to the end. `kvassay explain ID` tells everything of one.

    \b
    Examples:
      kvassay list --contract attention
      kvassay list --variant quest/paper
      kvassay list --contract identity --kind mutation --json
      kvassay list --requirement ATT-001
    """
    corpus = load()
    cases = select(corpus, options)
    if options["as_json"]:
        sys.stdout.write(dump([row(case) for case in cases]))
        return 0
    console = out()
    for about in meanings(corpus, options):
        say(console, about)
    width = max(len(case.id) for case in cases)
    numbers = max(len(" ".join(case.requirements[:MOST])) for case in cases)
    for case in cases:
        text = line(case, width, numbers)
        if console.is_terminal:
            text.truncate(console.width, overflow="ellipsis")
        say(console, text)
    say(console, Text(f"{len(cases)} case{'s' * (len(cases) != 1)}", "dim"))
    return 0


MOST = 3
"""Requirements of a case that are named in its line."""


def meanings(corpus: Corpus, options: dict[str, Any]) -> Iterator[Text]:
    """What was selected by: a line for each requirement, profile and variant."""
    for name in options["requirement"]:
        item = corpus.requirements[name]
        yield Text.assemble((f"{name}  ", "bold"), (f"{item.title}. {item.text}", "dim"))
    for kind, registry in (("profile", corpus.profiles), ("variant", corpus.variants)):
        for name in options[kind]:
            yield Text.assemble((f"{name}  ", "bold"), (registry[name].meaning, "dim"))


def line(case: Case, width: int, numbers: int) -> Text:
    """One case as people read it."""
    more = len(case.requirements) - MOST
    tested = " ".join(case.requirements[:MOST])
    text = Text(f"{case.id:<{width}}  ")
    text.append(f"{tested + (f' +{more}' if more > 0 else ''):<{numbers + 3}}  ", "dim")
    text.append(told(case.id, case.title, case.given))
    text.rstrip()
    notes = [*(["should"] if case.level is Level.SHOULD else []), *(["provisional"] if is_new(case) else [])]
    if notes:
        text.append(f"  ({', '.join(notes)})", "yellow")
    return text


def is_new(case: Case) -> bool:
    """Whether the case is reported and not counted in this edition."""
    return case.status is Status.PROVISIONAL


def row(case: Case) -> dict[str, Any]:
    """One case as a program reads it."""
    return {
        "id": case.id,
        **head(case),
        "ops": sorted(case.ops),
        "needs": {name: list(values) for name, values in case.needs.items()},
        "title": case.title,
        "given": case.given,
        "why": case.why,
    }
