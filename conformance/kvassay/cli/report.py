"""``kvassay report``: draw a stored report again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ..corpus.data import read_json
from ..corpus.schemas import validate
from ..reports import html, junit, terminal
from .console import out, say, write

FILE = click.Path(path_type=Path, dir_okay=False)
RENDERERS = {"html": html.render, "junit": junit.render}


@click.command("report")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--html", type=FILE, metavar="FILE", help="Write a self-contained page.")
@click.option("--junit", type=FILE, metavar="FILE", help="Write JUnit XML.")
def command(file: Path, **options: Any) -> int:
    """Show a JSON report, or draw it as a page or as JUnit XML.

    Exits with the status of the run.

    \b
    Examples:
      kvassay report report.json
      kvassay report report.json --html report.html
    """
    document = read_json(file)
    validate(document, "urn:kvassay:report", file=str(file))
    for name, render in RENDERERS.items():
        if options[name]:
            write(options[name], render(document))
    console = out()
    for result in document["results"]:
        if result["verdict"] not in terminal.CALM:
            for line in terminal.case_block(result, document["requirements"]):
                say(console, line)
    terminal.summary(document, console)
    code: int = document["exit_code"]
    return code
