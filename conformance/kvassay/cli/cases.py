"""``kvassay list``: what the corpus holds."""

from __future__ import annotations

import sys
from typing import Any

import click
from rich.text import Text

from ..core.model import Case, Level, Status
from ..corpus import load
from ..reports.evidence import own_title
from .console import dump, out, say
from .selectors import select, selectors


@click.command("list")
@selectors
@click.option("--json", "as_json", is_flag=True, help="Print the cases as JSON.")
def command(**options: Any) -> int:
    """List cases with their titles.

    \b
    Examples:
      kvassay list --contract attention
      kvassay list --contract identity --kind mutation --json
      kvassay list --requirement ATT-001
    """
    cases = select(load(), options)
    if options["as_json"]:
        sys.stdout.write(dump([row(case) for case in cases]))
        return 0
    console = out()
    width = max(len(case.id) for case in cases)
    for case in cases:
        say(console, line(case, width))
    say(console, Text(f"{len(cases)} case{'s' * (len(cases) != 1)}", "dim"))
    return 0


def line(case: Case, width: int) -> Text:
    """One case as people read it."""
    text = Text(f"{case.id:<{width}}  ")
    text.append(f"{' '.join(case.requirements)}  ", "dim")
    text.append(own_title(case.id, case.title))
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
        "contract": case.contract,
        "requirements": list(case.requirements),
        "level": case.level.value,
        "kind": case.kind.value,
        "profile": case.profile,
        "status": case.status.value,
        "variant": case.variant,
        "ops": sorted(case.ops),
        "needs": {name: list(values) for name, values in case.needs.items()},
        "title": case.title,
        "given": case.given,
        "why": case.why,
    }
