"""``kvassay trace``: check the event log of a service or of a recorded run."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

import click
from rich.console import Console
from rich.text import Text

from ..core.collector import seldom_collected
from ..corpus import CorpusError
from ..reports.shorten import shorten, text
from ..traces import translate_lmcache, translate_vllm
from ..traces.check import Checker, Offence
from ..traces.errors import TraceError
from ..traces.kv_events import KvChecker, batches
from ..traces.lines import lines
from .console import dump, out, say, write

FILE = click.Path(path_type=Path, dir_okay=False)
PROGRESS_S = 5.0
"""A check that takes longer tells how far it is, this often."""
LOOK = 1 << 14
"""Lines between two looks at the clock."""


@dataclass(frozen=True)
class Reader:
    """How a format is read."""

    read: Callable[[BinaryIO], Iterator[Any]]
    batches: bool = False
    """Whether it gives batches of KV Events, or lines of a trace."""


READERS = {
    "events": Reader(lines),
    "kv-events": Reader(batches, batches=True),
    "vllm-offload": Reader(translate_vllm.trace),
    "vllm-offload-events": Reader(translate_vllm.kv_batches, batches=True),
    "lmcache-l1": Reader(translate_lmcache.trace),
}
"""Formats by name."""


@click.group("trace", short_help="Check the event log of a service.")
def command() -> None:
    """Event logs: what a service or a recorded run did, held to the rules that engines are held to."""


@command.command("check")
@click.argument("file", metavar="FILE|-", type=click.Path(path_type=Path, allow_dash=True))
@click.option(
    "--format",
    "form",
    type=click.Choice(sorted(READERS)),
    default="events",
    show_default=True,
    help="The suite's own events, batches of KV Events, or the log of an engine's recorder.",
)
@click.option("--process", metavar="NAME", help="Judge the lines of this process alone.")
@click.option("--from-the-middle", is_flag=True, help="KV Events: take what was stored before on trust.")
@click.option("--strict", is_flag=True, help="Of a recorded run, SHOULD cases that fail are offences.")
@click.option("--keep-going", is_flag=True, help="Report every offence, not the first alone.")
@click.option(
    "--max-findings", type=click.IntRange(1), default=20, show_default=True, metavar="N", help="Stop after so many."
)
@click.option("--json-report", type=FILE, metavar="FILE", help="Write the outcome as JSON.")
def check(
    file: Path,
    form: str,
    process: str | None,
    from_the_middle: bool,
    strict: bool,
    keep_going: bool,
    max_findings: int,
    json_report: Path | None,
) -> int:
    """Judge a trace line by line, from a file or from a pipe that never ends.

    Names the first line that contradicts a rule, the requirement behind the rule, and what led to it. Exits with 1
    for that and for a trace that was cut or is empty, with 2 for a line that cannot be read.

    \b
    Examples:
      kvassay trace check run.jsonl
      tail -F -n +1 service.jsonl | kvassay trace check -
      kvassay trace check --format kv-events batches.msgpack
    """
    console, found = out(), list[Offence]()
    reader = READERS[form]
    checker = (
        KvChecker(only=process, whole=not from_the_middle) if reader.batches else Checker(only=process, strict=strict)
    )
    started = time.perf_counter()
    try:
        with opened(file) as stream, seldom_collected():
            for offence in checker.offences(watched(reader.read(stream), stream, file)):
                found.append(offence)
                for row in block(offence):
                    say(console, row)
                if len(found) >= (max_findings if keep_going else 1):
                    break
    except TraceError as problem:
        raise CorpusError(problem.reason, file=f"{file}:{problem.line}", pointer=problem.pointer) from None
    seconds = time.perf_counter() - started
    conclude(checker, found, seconds, console)
    if json_report:
        write(json_report, dump(document(checker, found, seconds)))
    return 1 if found else 0


@command.command("selftest")
@click.option("--contract", multiple=True, metavar="NAME", help="Only the faults of this contract.")
@click.option("--jobs", type=click.IntRange(1, 64), default=2, show_default=True, help="Processes to use.")
@click.option("-v", "--verbose", is_flag=True, help="Name the first offence of each fault, too.")
def selftest(contract: tuple[str, ...], jobs: int, verbose: bool) -> int:
    """Record faulty engines on the cases that are meant for them, and check the traces.

    Exits with 1 when a trace does not show its fault, or a correct engine is blamed.
    """
    from ..traces.selftest import Row, run_selftest

    console, rows = out(), list[Row]()
    for row in run_selftest(contract, jobs=jobs):
        rows.append(row)
        word = ("caught" if row.ok else "MISSED") if row.requirement else ("clean" if row.ok else "BLAMED")
        style = "green" if row.ok else "bold red"
        line = Text.assemble((f"{word:<8}", style), f"{row.contract}/{row.name}  ", (row.requirement, "dim"))
        say(console, line.append(f"  {', '.join(row.rules)}", "dim"))
        if row.first is not None and (verbose or not row.ok):
            for shown in block(row.first):
                say(console, Text("        ").append(shown))
    bad = sum(not row.ok for row in rows)
    seeded = [row for row in rows if row.requirement]
    by_rule = sum(row.by_rule for row in seeded)
    told = f"{sum(row.ok for row in seeded)} of {len(seeded)} faults caught from their traces alone, {by_rule} by rules"
    say(console, Text(told, "bold red" if bad else "bold green"))
    return 1 if bad else 0


@contextmanager
def opened(file: Path) -> Iterator[BinaryIO]:
    """The bytes of a file or of stdin."""
    if str(file) == "-":
        yield sys.stdin.buffer
        return
    with file.open("rb") as stream:
        yield stream


def watched(rows: Iterator[Any], stream: BinaryIO, file: Path) -> Iterator[Any]:
    """The lines or batches of a stream; what takes long says on stderr how far it is."""
    size = file.stat().st_size if file.is_file() else 0
    told = time.monotonic()
    for number, row in enumerate(rows, 1):
        if not number % LOOK and time.monotonic() - told > PROGRESS_S:
            told = time.monotonic()
            share = f", {100 * stream.tell() // size} %" if size else ""
            print(f"kvassay: {number:,} read{share}", file=sys.stderr, flush=True)
        yield row


def block(offence: Offence) -> Iterator[Text]:
    """An offence for a reader."""
    where = f"line {offence.line}  " if offence.line else "no line  "
    whose = f"  (process {offence.process})" if offence.process else ""
    yield Text.assemble((f"{where}{text(offence.event, 100)}".rstrip(), "bold"), text(whose, 240))
    ids = f"  {', '.join(offence.requirements)}" if offence.requirements else ""
    yield Text.assemble("  ", (offence.rule, "bold red"), (ids, "bold"), f"  {text(offence.sentence, 1000)}")
    if offence.at:
        yield Text(f"  at {text(offence.at, 400)}", "dim")
    if offence.expected is not None:
        told = text(str(shorten(offence.returned)), 400)
        yield Text(f"  expected {text(str(shorten(offence.expected)), 400)}, not {told}", "dim")
    if offence.led_to_it:
        yield Text("  what led to it:")
        for number, brief in offence.led_to_it:
            yield Text(f"    line {number:<6} {text(brief, 240)}", "dim")


def conclude(checker: Checker | KvChecker, found: list[Offence], seconds: float, console: Console) -> None:
    """What the trace held, on a few lines."""
    counts = checker.counts
    kinds = ", ".join(f"{count} {text(name, 100)}" for name, count in counts.kinds.most_common())
    if kinds:
        say(console, Text(kinds, "dim"))
    if counts.unknown:
        names = ", ".join(f"{count} {text(name, 100)}" for name, count in counts.unknown.most_common(8))
        say(console, f"unknown events, not judged: {names}")
    if counts.unjudged:
        say(console, f"{counts.unjudged} events show nothing: no rule over sequences speaks of them")
    held = ", ".join(f"{count} {name}" for name, count in checker.held.items())
    named = sorted(filter(None, counts.processes))
    processes = f", {len(counts.processes)} processes" if named else ""
    verdict = f"{len(found)} offence{'s' * (len(found) != 1)}" if found else "no offence"
    line = Text(verdict, "bold red" if found else "bold green")
    line.append(f" in {counts.events} events{processes}" + (f"; live at the end: {held}" if held else ""))
    line.append(f"  ({counts.events / seconds:,.0f} events/s)" if counts.events > LOOK else "", "dim")
    say(console, line)


def document(checker: Checker | KvChecker, found: list[Offence], seconds: float) -> dict[str, Any]:
    """The outcome as data."""
    counts = checker.counts
    return {
        "ok": not found,
        "lines": counts.lines,
        "events": counts.events,
        "kinds": dict(counts.kinds),
        "unknown": dict(counts.unknown),
        "unjudged": counts.unjudged,
        "processes": sorted(counts.processes),
        "live": dict(checker.held),
        "seconds": seconds,
        "offences": [
            {
                **{
                    name: value
                    for name, value in asdict(offence).items()
                    if name not in ("led_to_it", "expected", "returned")
                },
                "expected": shorten(offence.expected),
                "returned": shorten(offence.returned),
                "led_to_it": [{"line": number, "event": brief} for number, brief in offence.led_to_it],
            }
            for offence in found
        ],
    }
