"""``kvassay oracle``: published figures beside what the oracle derives."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from ..corpus.reconcile import Figure, reconciliation
from .console import dump, out, say, write

HEAD = ("figure", "published", "derived", "")


@click.command("oracle", short_help="Show published figures beside their derivation.")
@click.argument("contract")
@click.option(
    "--output", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write to a file instead."
)
@click.option("--json", "as_json", is_flag=True, help="Give the figures as JSON.")
def command(contract: str, output: Path | None, as_json: bool) -> int:
    """Show each published figure of a contract with its derivation.

    The oracle shares no code with the reference. Exits with 1 when a figure does not come out.

    \b
    Examples:
      kvassay oracle identity
      kvassay oracle attention --output attention.txt
    """
    figures = reconciliation(contract)
    table = lines([HEAD, *(row(figure) for figure in figures)])
    content = dump([data(figure) for figure in figures]) if as_json else "\n".join(table) + "\n"
    if output:
        write(output, content)
    elif as_json:
        sys.stdout.write(content)
    elif not figures:
        say(out(), f"no figures are published for {contract}")
    else:
        console = out()
        say(console, Text(table[0], "dim"))
        for line, figure in zip(table[1:], figures, strict=True):
            say(console, Text(line, "" if figure.agrees else "bold red"))
    return 0 if all(figure.agrees for figure in figures) else 1


def data(figure: Figure) -> dict[str, Any]:
    """One figure as a program reads it."""
    return {"figure": figure.name, "published": figure.published, "derived": figure.derived, "ok": figure.agrees}


def row(figure: Figure) -> tuple[str, ...]:
    """One figure as people read it."""
    return (figure.name, shown(figure.published), shown(figure.derived), "ok" if figure.agrees else "DIFFERS")


def shown(value: Any) -> str:
    """A value in one cell: grouped digits for counts, long lists cut."""
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    line = json.dumps(value, ensure_ascii=False)
    return line if len(line) <= 36 else f"{line[:35]}…"


def lines(rows: list[tuple[str, ...]]) -> list[str]:
    """Columns as wide as their content, the figures to the right."""
    name, published, derived = (max(len(row[i]) for row in rows) for i in range(3))
    return [f"{a:<{name}}  {b:>{published}}  {c:>{derived}}  {d}".rstrip() for a, b, c, d in rows]
