"""``kvassay fuzz``: sequences of calls that nobody wrote."""

from __future__ import annotations

import shlex
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from ..adapters.errors import AdapterError
from ..adapters.names import connect
from ..adapters.smoke import smoke
from ..core.engine import Engine
from ..corpus import Corpus, load
from ..fuzz.case import document
from ..fuzz.contract import CONTRACTS, find
from ..fuzz.detection import Row, detect, to_json
from ..fuzz.run import Bug, Fuzzer, Options, Summary
from ..traces.record import recording
from .console import dump, out, say, write
from .numbers import SCALE, SECONDS

FILE = click.Path(path_type=Path, dir_okay=False)
FOLDER = click.Path(path_type=Path, file_okay=False)


@click.command("fuzz")
@click.option("--contract", required=True, metavar="NAME", help=f"What to fuzz: {' or '.join(CONTRACTS)}.")
@click.option("--adapter", metavar="NAME", help="As for kvassay run; needed unless --faults is given.")
@click.option("--python", metavar="PATH", help="Interpreter of a Python adapter.")
@click.option("--in-process", is_flag=True, help="Call a Python adapter in this process: several times as fast.")
@click.option("--examples", type=click.IntRange(1), default=500, show_default=True, metavar="N", help="Sequences.")
@click.option("--steps", type=click.IntRange(1, 200), default=30, show_default=True, metavar="N", help="Steps of each.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, metavar="S", help="Repeats a run.")
@click.option("--time-budget", type=SECONDS, metavar="SECONDS", help="Stop after it.")
@click.option(
    "--mode",
    type=click.Choice(["claimed", "probe"]),
    default="claimed",
    show_default=True,
    help="Make calls that the engine claims to withstand, or also handles of what is over and short copies.",
)
@click.option("--max-findings", type=click.IntRange(1), default=20, show_default=True, metavar="N")
@click.option("--timeout-scale", type=SCALE, default=1.0, metavar="X", help="Multiply each deadline.")
@click.option("--output", type=FOLDER, metavar="DIR", help="Write a case file for each finding here.")
@click.option("--trace", type=FILE, metavar="FILE", help="Record every exchange, for kvassay trace check.")
@click.option("--json-report", type=FILE, metavar="FILE", help="Write the outcome as JSON.")
@click.option("--faults", is_flag=True, help="Fuzz the seeded faults of the contract, and show what is found.")
@click.option("--jobs", type=click.IntRange(1, 64), default=2, show_default=True, help="Processes for --faults.")
def command(**options: Any) -> int:
    """Make sequences of calls that nobody wrote, and judge every reply.

    What is found is shrunk to a few steps and, with --output, written as a case file that kvassay run replays. Exits
    with 1 when something is found.

    \b
    Examples:
      kvassay fuzz --contract residency --adapter my_engine.kvassay:Adapter --output found
      kvassay fuzz --contract lifecycle --adapter reference --examples 2000 --time-budget 60
      kvassay fuzz --contract residency --adapter kvassay.faults:StalePromotionPublishes
    """
    chosen = Options(
        contract=options["contract"],
        examples=options["examples"],
        steps=options["steps"],
        seed=options["seed"],
        probe=options["mode"] == "probe",
        time_budget_s=options["time_budget"],
        max_findings=options["max_findings"],
        deadline_scale=options["timeout_scale"],
    )
    find(chosen.contract)
    if options["faults"]:
        return _faults(chosen, options)
    if options["adapter"] is None:
        raise click.UsageError("name an engine with --adapter, or give --faults")
    corpus = load()
    engine = _engine(options, corpus)
    told = Telling(options, chosen, out())
    try:
        with told.progress or nullcontext():
            summary = Fuzzer(engine, corpus, chosen, on_example=told.example, on_bug=told.bug).run()
    finally:
        engine.close()
    if options["json_report"]:
        write(options["json_report"], dump({**summary.to_json(), "files": [str(path) for path in told.files]}))
    told.conclude(summary)
    return summary.exit_code


def _engine(options: dict[str, Any], corpus: Corpus) -> Engine:
    """The engine, once it has shown that its adapter works; raises :class:`AdapterError`."""
    engine: Engine = connect(options["adapter"], python=options["python"], in_process=options["in_process"])
    if options["trace"]:
        engine = recording(engine, options["trace"])
    found = smoke(engine, corpus)
    if found:
        engine.close()
        raise AdapterError("the adapter is broken: " + "; ".join(found))
    return engine


class Telling:
    """What a user sees: a bar on a terminal, each finding when it comes up, and the end."""

    def __init__(self, options: dict[str, Any], chosen: Options, console: Console) -> None:
        self.console = console
        self.files: list[Path] = []
        self.progress: Progress | None = None
        self._options, self._chosen = options, chosen
        if console.is_terminal:
            columns = (BarColumn(24), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
            self.progress = Progress(*columns, console=console, transient=True)
            self._task = self.progress.add_task("", total=chosen.examples)

    def example(self, summary: Summary) -> None:
        """An example is over."""
        if self.progress is not None:
            told = f"{summary.calls} calls, {len(summary.bugs)} found"
            self.progress.update(self._task, completed=summary.examples, description=told)

    def bug(self, bug: Bug) -> None:
        """A finding, with the calls that show it and the line that repeats it."""
        say(self.console, Text.assemble(("found  ", "bold red"), bug.reason))
        say(self.console, Text(f"       {bug.wrong.finding.message}"))
        if bug.wrong.finding.expected is not None:
            say(self.console, Text(f"       expected: {bug.wrong.finding.expected!r}", "dim"))
        for index, step in enumerate(bug.case.get("steps", ())):
            say(self.console, Text(f"       {index}. {step['op']} {compact(step['request'])}", "dim"))
        if not bug.repeats:
            say(self.console, Text("       it does not come again: the engine answers differently each time", "yellow"))
        folder = self._options["output"]
        if folder is not None and bug.case["id"]:
            path = folder / f"{bug.case['id'].replace('/', '-')}.json"
            write(path, dump(document(bug.case, find(self._chosen.contract))))
            self.files.append(path)
            say(self.console, Text(f"       {self._repeat(path)}", "bold"))

    def _repeat(self, path: Path) -> str:
        words = ["kvassay", "run", "--adapter", self._options["adapter"]]
        if self._options["python"]:
            words += ["--python", self._options["python"]]
        if self._options["in_process"]:
            words.append("--in-process")
        if self._chosen.probe:
            words.append("--probe")
        return shlex.join([*words, "--case-file", str(path)])

    def conclude(self, summary: Summary) -> None:
        """The table of findings, and what was done."""
        if summary.bugs:
            table = Table("found", "verdict", "in example", "calls", "steps")
            for bug in summary.bugs:
                table.add_row(bug.reason, bug.wrong.verdict, str(bug.example), str(bug.length), str(len(bug.steps)))
            self.console.print(table)
        for op in summary.unsupported:
            say(self.console, Text(f"{op} was called unsupported although it is declared", "yellow"))
        rate = summary.calls / summary.seconds if summary.seconds else 0.0
        line = Text(f"{len(summary.bugs)} found", "bold red" if summary.bugs else "bold green")
        line.append(f" in {summary.examples} examples, {summary.calls} calls, {summary.seconds:.1f} s")
        line.append(f" ({rate:.0f} calls/s, seed {self._chosen.seed})", "dim")
        if summary.ended != "examples":
            ends = {"time": "the time was up", "findings": "enough was found", "engine": "the engine does not open"}
            line.append(f"; {ends[summary.ended]}")
        say(self.console, line)
        if not summary.calls and not summary.bugs:
            say(self.console, Text("no call was made, so that nothing is known of this engine", "bold red"))


def compact(request: Any) -> str:
    """A request in one line: handles as their names, rows as their size."""
    if isinstance(request, dict):
        if "$bind" in request:
            return str(request["$bind"])
        if "shape" in request and "dtype" in request:
            return f"<{request['shape'][0]} bytes>"
        return "{" + ", ".join(f"{name}: {compact(item)}" for name, item in request.items()) + "}"
    if isinstance(request, list):
        return "[" + ", ".join(map(compact, request)) + "]"
    return repr(request)


def _faults(chosen: Options, options: dict[str, Any]) -> int:
    """Fuzz all seeded faults and correct engines."""
    console = out()

    def tell(row: Row) -> None:
        word, style = ("found", "green") if row.found else ("silent", "dim") if row.silent else ("MISSED", "bold red")
        if not row.requirement:
            word, style = ("BLAMED", "bold red") if row.found else ("correct", "green")
        what = f"{row.examples} examples, {row.steps} steps: {row.reason}" if row.found else row.silent
        say(console, Text.assemble((f"{word:<8}", style), f"{row.name}  ", (what, "dim")))

    rows = detect(chosen, jobs=options["jobs"], on_row=tell)
    table = to_json(rows, chosen)
    if options["json_report"]:
        write(options["json_report"], dump(table))
    good = all(row.ok for row in rows)
    line = Text(f"{table['found']} of {table['faults']} faults found", "bold green" if good else "bold red")
    say(console, line.append(f", {sum(row.ok for row in rows if not row.requirement)} correct engines not blamed"))
    return 0 if good else 1
