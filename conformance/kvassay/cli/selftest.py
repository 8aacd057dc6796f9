"""``kvassay selftest``: the suite judged by seeded faults."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import click
from rich.console import Console
from rich.text import Text

from ..faults.seeded import faults
from ..faults.selftest import Matrix, Row, run_selftest
from .console import dump, out, say, write

INDENT = " " * 12


@click.command("selftest")
@click.option("--contract", multiple=True, metavar="NAME", help="Only the faults of this contract.")
@click.option("--full", is_flag=True, help="Run every fault on every case, not only on those that it can change.")
@click.option("--jobs", type=click.IntRange(1, 64), default=2, show_default=True, help="Processes to use.")
@click.option(
    "--output", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write the kill matrix as JSON."
)
@click.option("--json", "as_json", is_flag=True, help="Print the kill matrix as JSON and nothing else.")
@click.option("-v", "--verbose", is_flag=True, help="Name the other cases that saw each fault, too.")
def command(contract: tuple[str, ...], full: bool, jobs: int, output: Path | None, as_json: bool, verbose: bool) -> int:
    """Run the suite against engines that are faulty on purpose.

    A fault is killed when the cases that are meant for it fail. Exits with 1 when a fault survives, a correct engine
    is blamed, or a requirement or a case is without a fault. A fault does not run on a case that uses nothing of what
    it replaces; there it is the correct engine, and has its verdict. Lines come as engines are done, longest first.

    \b
    Examples:
      kvassay selftest
      kvassay selftest --contract identity --output kill-matrix.json
    """
    for name in contract:
        faults(name)  # an unknown contract is refused before the first engine starts
    console = out()

    def tell(row: Row) -> None:
        if not as_json:
            for line in lines(row, verbose=verbose):
                say(console, line)

    matrix = run_selftest(contract, on_result=tell, jobs=jobs, full=full)
    if output:
        write(output, dump(matrix.to_json()))
    if as_json:
        sys.stdout.write(dump(matrix.to_json()))
    else:
        conclude(matrix, console)
    return 0 if matrix.ok else 1


def lines(row: Row, *, verbose: bool) -> list[Text]:
    """What became of one engine, and what to look at where that is wrong."""
    word, style = _state(row)
    head = Text.assemble((f"{word:<{len(INDENT)}}", style), f"{row.contract}/{row.name}  ", (row.requirement, "dim"))
    if row.ratio is not None and math.isfinite(row.ratio):
        head.append(f"  {row.ratio:.3g} times the bound", "dim")
    found = [head]
    if not row.ok:
        found.append(Text(f"{INDENT}{row.summary}", "dim"))
        found += [Text(f"{INDENT}{verdict:<15} {case}") for case, verdict in row.killed_by.items()]
    if row.also and (verbose or not row.ok):
        shown = row.also if verbose else row.also[:5]
        more = f" and {len(row.also) - len(shown)} more" if len(row.also) > len(shown) else ""
        found.append(Text(f"{INDENT}{'also' if row.is_fault else 'blamed by'}: {', '.join(shown)}{more}"))
    return found


def conclude(matrix: Matrix, console: Console) -> None:
    """What the whole matrix says."""
    for name in matrix.without_fault:
        say(console, Text.assemble(("no fault is seeded against ", "bold red"), name))
    for name in matrix.vacuous:
        say(console, Text.assemble(("no fault changes the verdict of ", "bold red"), name))
    seeded = [row for row in matrix.rows if row.is_fault and not row.equivalent]
    correct = [row for row in matrix.rows if not row.is_fault]
    line = Text(
        f"{sum(row.killed for row in seeded)} of {len(seeded)} faults killed, ",
        "bold green" if matrix.ok else "bold red",
    )
    line.append(f"{sum(row.ok for row in correct)} of {len(correct)} correct engines blamed for nothing")
    say(console, line.append(f" in {matrix.seconds:.1f} s", "dim"))


def _state(row: Row) -> tuple[str, str]:
    if not row.is_fault:
        return ("correct", "green") if row.ok else ("BLAMED", "bold red")
    if row.equivalent:
        return ("equivalent", "dim") if row.ok else ("NOT EQUAL", "bold red")
    return ("killed", "green") if row.ok else ("SURVIVES", "bold red")
