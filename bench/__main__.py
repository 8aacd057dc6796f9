"""Print every benchmark with its ratio and budget; exit 1 when a budget is broken."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

import click
from kvassay.runner import environment
from rich.console import Console
from rich.table import Table

from . import attention, corpus, fuzz, indexes, runner, selectors, trace

BENCHES = {
    "runner": runner,
    "attention": attention,
    "selectors": selectors,
    "indexes": indexes,
    "trace": trace,
    "fuzz": fuzz,
    "corpus": corpus,
}


@click.command(help=__doc__)
@click.argument("names", nargs=-1, type=click.Choice(sorted(BENCHES)))
@click.option("--output", type=click.Path(path_type=Path), help="Write the figures as JSON.")
def main(names: tuple[str, ...], output: Path | None) -> None:
    """Run the named benchmarks, or all."""
    console = Console(width=None if sys.stdout.isatty() else 150)
    table = Table("what", "measured", "against", "its figure", "ratio", "budget", "")
    rows = []
    for name in names or BENCHES:
        with console.status(name):
            for line in BENCHES[name].lines():
                rows.append(line)
                figures = (f"{line.measured:.3g} {line.unit}", line.against, f"{line.reference:.3g} {line.unit}")
                table.add_row(
                    line.what, *figures, f"{line.ratio:.2f}", f"{line.budget:.2f}", "ok" if line.ok else "OVER"
                )
    console.print(table)
    if output:
        document = {
            "environment": environment(),
            "lines": [{**asdict(line), "ratio": line.ratio, "ok": line.ok} for line in rows],
        }
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    if not all(line.ok for line in rows):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
