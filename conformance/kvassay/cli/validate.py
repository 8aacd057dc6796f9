"""``kvassay validate``: check documents against their schemas, and against what their contract asks of them."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from ..corpus import CorpusError
from ..corpus.rules import findings
from ..corpus.schemas import known, problem
from ..documents import read, recognise, whole_documents
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
    Registries of pipelines and records of rollouts are held to their contract's rules as well, a line for each fault.
    Exits with 2 when a file is not valid.

    \b
    Examples:
      kvassay validate manifest.json
      kvassay validate waivers.toml report.json
      kvassay validate examples/registry.json
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


def check(path: Path, schema: str | None = None) -> tuple[str, list[CorpusError]]:
    """Name of the schema that a document meets, and its faults beyond; raises :class:`CorpusError` when it does not."""
    document = read(path)
    uri = named(schema) if schema else recognise(document)
    if uri is None:
        raise CorpusError(
            f"like no document of the suite; --schema NAME says which it should be: {kinds()}", file=str(path)
        )
    known(uri)
    name = shown(uri)
    found = problem(document, uri)
    if found is not None:
        raise CorpusError(f"{found[1]} (schema {name})", file=str(path), pointer=found[0] or "/")
    if uri == WAIVERS:
        load_waivers(path)
    faults = findings(document, uri)
    return name, [CorpusError(f"{one.text} ({one.reason})", file=str(path), pointer=one.pointer) for one in faults]
