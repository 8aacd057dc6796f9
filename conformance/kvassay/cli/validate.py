"""``kvassay validate``: check documents against their schemas, and against what their contract asks of them."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from ..corpus import CorpusError
from ..corpus.errors import did_you_mean
from ..corpus.rules import findings
from ..corpus.schemas import known, problem, schemas
from ..documents import STDIN, fixed_format, formats, read, recognise, whole_documents
from ..reports.shorten import text
from ..waivers import load as load_waivers
from .console import out, say

PREFIX = "urn:kvassay:"
WAIVERS = f"{PREFIX}waivers"


@click.command("validate", short_help="Check documents against their schemas.")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE...")
@click.option("--schema", metavar="NAME", help="What the documents should be, such as identity/record or report.")
def command(files: tuple[Path, ...], schema: str | None) -> int:
    """Check documents: manifests, case files, waivers, reports, registries.

    What a document is shows by its members. Each file gives one line: its kind, or the JSON pointer and the reason.
    The name - stands for standard input, which is JSON.
    Registries of pipelines and records of rollouts are held to their contract's rules as well, a line for each fault.
    Exits with 2 when a file is not valid.

    \b
    Examples:
      kvassay validate manifest.json
      kvassay validate waivers.toml report.json
      kvassay validate examples/registry.json
      my_exporter | kvassay validate -
    """
    console = out()
    bad = 0
    for path in files:
        try:
            kind, faults = check(path, schema)
        except CorpusError as error:
            kind, faults = "", [error]
        bad += bool(faults)
        for fault in faults:
            print(f"kvassay: {' '.join(text(str(fault), 1000).split())}", file=sys.stderr)
        if not faults:
            say(console, f"{path}: a valid document ({kind})")
    return 2 if bad else 0


def kinds() -> str:
    """What people hand to the suite, by the names that ``--schema`` takes."""
    return f"{', '.join(map(shown, whole_documents()))}, or op:CONTRACT.OP for a request"


def shown(uri: str) -> str:
    """A schema's URI as people write it."""
    return uri.removeprefix(PREFIX).replace("#/$defs", "")


def named(schema: str) -> str:
    """The URI behind such a name."""
    name = schema.removesuffix(".json")
    if name.startswith("op:"):
        return f"{PREFIX}{name}#/$defs/request"
    return {shown(uri): uri for uri in whole_documents()}.get(name, f"{PREFIX}{name}")


def formatted(document: Any, uri: str | None, path: Path) -> None:
    """Raise :class:`CorpusError` for a ``format`` that no document has, where a format tells what it is."""
    told = document.get("format") if isinstance(document, Mapping) else None
    if not isinstance(told, str) or told in formats() or (uri and not fixed_format(schemas().get(uri, {}))):
        return
    hint = did_you_mean(told, formats())
    reason = f"no format {text(repr(told), 60)}{hint} (known: {', '.join(formats())})"
    raise CorpusError(reason, file=str(path), pointer="/format")


def check(path: Path, schema: str | None = None) -> tuple[str, list[CorpusError]]:
    """Name of the schema that a document meets, and its faults beyond; raises :class:`CorpusError` when it does not."""
    document = read(path)
    uri = named(schema) if schema else recognise(document)
    if not schema:
        formatted(document, uri, path)
    if uri is None:
        raise CorpusError(
            f"like no document of the suite; --schema NAME says which it should be: {kinds()}", file=str(path)
        )
    known(uri)
    name = shown(uri)
    found = problem(document, uri)
    if found is not None:
        raise CorpusError(f"{found[1]} (schema {name})", file=str(path), pointer=found[0] or "/")
    if uri == WAIVERS and str(path) == STDIN:
        raise CorpusError("waivers are TOML, which is read from files alone", file=str(path))
    if uri == WAIVERS:
        load_waivers(path)
    faults = findings(document, uri)
    return name, [CorpusError(f"{one.text} ({one.reason})", file=str(path), pointer=one.pointer) for one in faults]
