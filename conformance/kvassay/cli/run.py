"""``kvassay run``: judge an engine."""

from __future__ import annotations

import functools
import shlex
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Column
from rich.text import Text

from ..adapters.errors import AdapterError
from ..adapters.names import connect
from ..core.engine import Engine
from ..core.model import Case, Result
from ..corpus import Corpus, load
from ..corpus.files import with_cases
from ..reports import document as documents
from ..reports import html, json_report, junit, terminal
from ..runner import Session, run, run_side_by_side
from ..traces.record import Recording, recording
from ..waivers import Waivers
from ..waivers import load as load_waivers
from .console import out, say, write
from .numbers import SCALE
from .selectors import select, selection, selectors

FILE = click.Path(path_type=Path, dir_okay=False)
RENDERERS = {"html": html.render, "json_report": json_report.render, "junit": junit.render}


@click.command("run")
@click.option(
    "--adapter",
    required=True,
    metavar="NAME",
    help="A built-in name, module:Class, an entry point, or cmd:PROGRAM for a program in any language.",
)
@click.option("--python", metavar="PATH", help="Interpreter of a Python adapter; it needs numpy and ml_dtypes only.")
@click.option("--in-process", is_flag=True, help="Call a Python adapter in this process: fast, open to debuggers.")
@click.option(
    "-j",
    "--jobs",
    type=click.IntRange(1, 64),
    default=1,
    metavar="N",
    help="Start the engine N times, side by side; each judges a part of the cases.",
)
@selectors
@click.option(
    "--case-file",
    type=FILE,
    multiple=True,
    metavar="FILE",
    help="Judge by the cases of this file in place of the corpus.",
)
@click.option("--probe", is_flag=True, help="Also make calls that the engine does not claim to withstand.")
@click.option("--strict", is_flag=True, help="Failed SHOULD cases fail the run.")
@click.option("--fail-fast", is_flag=True, help="Stop at the first failure.")
@click.option("--waivers", type=FILE, metavar="FILE", help="Known deviations, as TOML.")
@click.option("--timeout-scale", type=SCALE, default=1.0, metavar="X", help="Multiply each deadline.")
@click.option("--html", type=FILE, metavar="FILE", help="Write a self-contained page.")
@click.option("--json-report", type=FILE, metavar="FILE", help="Write the report as JSON.")
@click.option("--junit", type=FILE, metavar="FILE", help="Write the report as JUnit XML.")
@click.option("--trace", type=FILE, metavar="FILE", help="Record every exchange, for kvassay trace check.")
@click.option("--json", "json_only", is_flag=True, help="Print the report as JSON and nothing else.")
@click.option("-v", "--verbose", is_flag=True, help="Name the cases that pass or do not apply, too.")
def command(**options: Any) -> int:
    """Judge an engine on the corpus, or on a part of it.

    Python adapters run in a worker process, so that a crash or a hang costs one case and never the run.

    \b
    Examples:
      kvassay run --adapter reference
      kvassay run --adapter my_engine.kvassay:Adapter --profile merge --html report.html
      kvassay run --adapter cmd:"node engine.js" --contract attention -k empty
      kvassay run --adapter my_engine.kvassay:Adapter -j 4
      kvassay run --adapter my_engine.kvassay:Adapter --waivers waivers.toml --junit junit.xml
      kvassay run --adapter my_engine.kvassay:Adapter --case-file fuzz/found.json
    """
    alone = next((name for name in ("in_process", "trace") if options[name]), None)
    if options["jobs"] > 1 and alone:
        raise click.UsageError(f"--{alone.replace('_', '-')} is for one engine; leave out --jobs")
    corpus = with_cases(load(), options["case_file"]) if options["case_file"] else load()
    cases = select(corpus, options)
    waivers = load_waivers(options["waivers"]) if options["waivers"] else ()
    with ExitStack() as engines:
        sessions = started(options, corpus, waivers)
        for one in sessions:
            engines.callback(one.engine.close)
        watch = Watch(corpus, options, len(cases), sessions[0].engine)
        seen: dict[str, Any] = {"on_start": watch.start, "on_result": watch.result, "fail_fast": options["fail_fast"]}
        with watch.progress or nullcontext():
            report = run_side_by_side(sessions, cases, **seen) if sessions[1:] else run(sessions[0], cases, **seen)
    document = documents.report(report, corpus, watch.command, options["adapter"], selection(options))
    for name, render in RENDERERS.items():
        if options[name]:
            write(options[name], render(document))
    if options["json_only"]:
        sys.stdout.write(json_report.render(document))
    else:
        terminal.summary(document, watch.console)
    return report.exit_code


def started(options: dict[str, Any], corpus: Corpus, waivers: Waivers) -> list[Session]:
    """As many engines as were asked for, started at the same time; raises the first :class:`AdapterError`."""
    start = functools.partial(session, options, corpus, waivers, strict=options["strict"])
    if options["jobs"] == 1:
        return [start()]
    with ThreadPoolExecutor(options["jobs"]) as pool:
        begun = [pool.submit(start) for _ in range(options["jobs"])]
    sessions = [one.result() for one in begun if one.exception() is None]
    for problem in filter(None, (one.exception() for one in begun)):
        for one in sessions:
            one.engine.close()
        raise problem
    return sessions


def session(options: dict[str, Any], corpus: Corpus, waivers: Waivers, *, strict: bool) -> Session:
    """The engine under judgement, once it has shown that its adapter works; raises :class:`AdapterError`."""
    engine: Engine = connect(options["adapter"], python=options["python"], in_process=options["in_process"])
    try:
        if options.get("trace"):
            engine = recording(engine, options["trace"])
        return Session(
            engine,
            corpus,
            waivers=waivers,
            strict=strict,
            deadline_scale=options["timeout_scale"],
            probe=options.get("probe", False),
        )
    except AdapterError:
        engine.close()
        raise


class Watch:
    """What a user sees while the run goes on: a bar on a terminal, and each verdict that is no pass."""

    def __init__(self, corpus: Corpus, options: dict[str, Any], total: int, engine: Engine) -> None:
        self.engine = engine
        self.console = out()
        self.command = repeat_command(options)
        self.progress: Progress | None = None
        self._options = options
        self._corpus = corpus
        self._requirements = documents.requirements(corpus, corpus.requirements)
        if self.console.is_terminal and not options["json_only"]:
            self.progress = _bar(self.console)
            self._task = self.progress.add_task("", total=total)

    def start(self, case: Case) -> None:
        """A case begins."""
        if isinstance(self.engine, Recording):
            self.engine.case = case.id
        if self.progress is not None:
            self.progress.update(self._task, description=case.id)

    def result(self, result: Result) -> None:
        """A verdict is final."""
        if self.progress is not None:
            self.progress.advance(self._task)
        if self._options["json_only"]:
            return
        row = documents.result(result, self._corpus, self.command, strict=self._options["strict"])
        for line in self._told(row):
            say(self.console, line)

    def _told(self, row: documents.Document) -> list[Text]:
        if row["verdict"] in terminal.CALM:
            return [terminal.verdict_line(row)] if self._options["verbose"] else []
        return terminal.case_block(row, self._requirements)


def _bar(console: Console) -> Progress:
    name = TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis"))
    columns = (BarColumn(24), MofNCompleteColumn(), TimeElapsedColumn(), name)
    return Progress(*columns, console=console, transient=True)


def repeat_command(options: dict[str, Any]) -> str:
    """The command line that reaches the same engine in the same way."""
    words = ["kvassay", "run", "--adapter", options["adapter"]]
    if options["python"]:
        words += ["--python", options["python"]]
    if options["in_process"]:
        words.append("--in-process")
    if options.get("probe"):
        words.append("--probe")
    for file in options.get("case_file", ()):
        words += ["--case-file", str(file)]
    if options["timeout_scale"] != 1.0:
        words += ["--timeout-scale", f"{options['timeout_scale']:g}"]
    return shlex.join(words)
