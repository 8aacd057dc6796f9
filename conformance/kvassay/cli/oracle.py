"""``kvassay oracle``: published figures beside what the oracle derives, and the tables that oracles offer."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from ..corpus import CorpusError
from ..corpus.data import contracts
from ..corpus.reconcile import Choice, Figure, Row, choices, reconciliation
from .console import dump, out, say, write

HEAD = ("figure", "published", "derived", "")


class Options(click.Command):
    """The command with the options that oracles declare."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Those of the command, and one for each name that an oracle has an option of."""
        names: dict[str, list[Choice]] = {}
        for one in choices():
            names.setdefault(one.name, []).append(one)
        return [*super().get_params(ctx), *(declared(name, those) for name, those in names.items())]


def declared(name: str, those: Sequence[Choice]) -> click.Option:
    """An option whose values are those of the oracles that have it."""
    values = dict.fromkeys(value for one in those for value in one.values)
    text = f"Of {', '.join(one.contract for one in those)}: show a table instead of figures."
    return click.Option([f"--{name}"], type=click.Choice(list(values)), help=text)


@click.command("oracle", cls=Options, short_help="Show published figures beside their derivation.")
@click.argument("chosen", nargs=-1, metavar="[CONTRACT]...")
@click.option("--all", "everything", is_flag=True, help="Every contract.")
@click.option(
    "--output", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write to a file instead."
)
@click.option("--json", "as_json", is_flag=True, help="Give the figures as JSON.")
def command(
    chosen: tuple[str, ...], everything: bool, output: Path | None, as_json: bool, **options: str | None
) -> int:
    """Show each published figure of a contract with its derivation.

    The oracle shares no code with the reference. Exits with 1 when a figure does not come out.

    \b
    Examples:
      kvassay oracle identity
      kvassay oracle identity --output identity.txt
      kvassay oracle --all
      kvassay oracle runtime --policy fifo
    """
    if everything == bool(chosen):
        raise CorpusError(f"name contracts or say --all; the corpus has {', '.join(contracts())}")
    asked = {name: value for name, value in options.items() if value is not None}
    if asked:
        return offered(chosen, asked, output, as_json)
    tables = {name: reconciliation(name) for name in (contracts() if everything else dict.fromkeys(chosen))}
    if as_json or output:
        whole = [data(name, figure) for name, figures in tables.items() for figure in figures]
        content = dump(whole) if as_json else "".join(f"{line}\n" for line, _ in text(tables))
        write(output, content) if output else sys.stdout.write(content)
    else:
        console = out()
        for line, style in text(tables):
            say(console, Text(line, style))
    return 0 if all(figure.agrees for figures in tables.values() for figure in figures) else 1


def offered(chosen: Sequence[str], asked: Mapping[str, str], output: Path | None, as_json: bool) -> int:
    """One table of one oracle."""
    known = {(one.contract, one.name): one for one in choices()}
    ((name, value), *more) = asked.items()
    if len(chosen) != 1 or more:
        raise CorpusError(f"--{name} makes one table: name one contract and no other option")
    if (chosen[0], name) not in known or value not in known[(chosen[0], name)].values:
        raise CorpusError(f"{chosen[0]} has no --{name} {value}")
    rows = known[(chosen[0], name)].make(value)
    if as_json or output:
        content = dump(rows) if as_json else "".join(f"{line}\n" for line in table(rows))
        write(output, content) if output else sys.stdout.write(content)
    else:
        console = out()
        for number, line in enumerate(table(rows)):
            say(console, Text(line, "" if number else "dim"))
    return 0


def table(rows: Sequence[Row]) -> list[str]:
    """Columns as wide as their content, numbers to the right."""
    cells = [list(rows[0]), *([cell(value) for value in row.values()] for row in rows)] if rows else []
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    right = [not isinstance(value, str) for value in rows[0].values()] if rows else []
    return [
        "  ".join(
            one.rjust(width) if number else one.ljust(width)
            for one, width, number in zip(line, widths, right, strict=True)
        ).rstrip()
        for line in cells
    ]


def cell(value: Any) -> str:
    """Text as it is, anything else as in a table of figures."""
    return value if isinstance(value, str) else shown(value)


def text(tables: Mapping[str, Sequence[Figure]]) -> Iterator[tuple[str, str]]:
    """Lines with their styles; several contracts are set apart by their names."""
    for number, (name, figures) in enumerate(tables.items()):
        if len(tables) > 1:
            yield from [("", "")] * bool(number)
            yield name, "bold"
        if not figures:
            yield f"no figures are published for {name}", "dim"
            continue
        head, *rows = lines([HEAD, *(row(figure) for figure in figures)])
        yield head, "dim"
        for line, figure in zip(rows, figures, strict=True):
            yield line, "" if figure.agrees else "bold red"


def data(contract: str, figure: Figure) -> dict[str, Any]:
    """One figure as a program reads it."""
    return {
        "contract": contract,
        "figure": figure.name,
        "published": figure.published,
        "derived": figure.derived,
        "ok": figure.agrees,
    }


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
