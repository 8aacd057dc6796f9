"""Documents that people hand to the suite: read within limits, and recognised even when they are broken."""

from __future__ import annotations

import datetime
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from .corpus import CorpusError
from .corpus.data import BYTE_ORDER_MARK, MAX_BYTES, read_json, read_stream
from .corpus.schemas import schemas

MAX_DEPTH = 64
STDIN = "-"
"""The name of standard input."""


def read(path: Path) -> Any:
    """A JSON document, or a TOML one where the name ends in ``.toml``; ``-`` is JSON from standard input.

    Raises :class:`CorpusError` for what is neither.
    """
    if str(path) == STDIN:
        return read_stream(sys.stdin.buffer, STDIN)
    return read_toml(path) if path.suffix == ".toml" else read_json(path)


def read_toml(path: Path) -> Any:
    """A TOML document, its dates as strings; raises :class:`CorpusError`."""
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as problem:
        raise CorpusError(problem.strerror or str(problem), file=str(path)) from None
    if len(raw) > MAX_BYTES:
        raise CorpusError(f"larger than {MAX_BYTES >> 20} MiB", file=str(path))
    try:
        text = raw.decode("utf-8")
        if text.startswith(BYTE_ORDER_MARK):
            raise ValueError("begins with a byte order mark; save it without one")
        return _plain(tomllib.loads(text))
    except UnicodeDecodeError:
        raise CorpusError("not UTF-8 text", file=str(path)) from None
    except RecursionError:
        raise CorpusError("nested too deeply", file=str(path)) from None
    except ValueError as problem:
        raise CorpusError(f"not TOML: {problem}", file=str(path)) from None


def recognise(document: Any) -> str | None:
    """URI of the schema that a document was written for, even when it breaks it; ``None`` when it is like none.

    A member that a schema fixes, such as ``format``, decides; otherwise the schema whose required members are most
    completely there, foreign members counting against it.
    """
    if not isinstance(document, Mapping):
        return None
    candidates = [(_likeness(document, node), uri) for uri, node in _objects()]
    score, best = max(candidates, default=(0.0, ""))
    return best if score > 0 else None


def formats() -> list[str]:
    """What the member ``format`` may say in the documents that have one."""
    return sorted(filter(None, map(fixed_format, schemas().values())))


def fixed_format(schema: Mapping[str, Any]) -> str | None:
    """What a schema fixes the member ``format`` to; ``None`` where it has none."""
    found: str | None = schema.get("properties", {}).get("format", {}).get("const")
    return found


def whole_documents() -> list[str]:
    """URIs of the schemas of documents that stand alone; the requests of ops are left out."""
    return [uri for uri, _ in _objects() if not uri.endswith("#/$defs/request")]


def _objects() -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The object schemas that stand for whole documents: top levels, registries, and requests of ops."""
    for uri, schema in schemas().items():
        own = schema.get("$defs", {})
        target = own.get(schema.get("$ref", "").removeprefix("#/$defs/"), schema)
        if "required" in target:
            yield uri, target
        if uri == "urn:kvassay:registry":
            yield from ((f"{uri}#/$defs/{name}", node) for name, node in own.items() if "required" in node)
        if "required" in own.get("request", {}):
            yield f"{uri}#/$defs/request", own["request"]


def _likeness(document: Mapping[str, Any], schema: Mapping[str, Any]) -> float:
    properties, required = schema.get("properties", {}), schema.get("required", [])
    if not required:
        return 0.0
    for name, rule in properties.items():
        if "const" in rule and document.get(name) == rule["const"]:
            return 2.0
    present = sum(name in document for name in required) / len(required)
    foreign = sum(name not in properties for name in document) / max(1, len(document))
    return present - foreign


def _plain(value: Any, depth: int = 0) -> Any:
    if depth > MAX_DEPTH:
        raise ValueError(f"nested deeper than {MAX_DEPTH}")
    if isinstance(value, dict):
        return {key: _plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item, depth + 1) for item in value]
    return value.isoformat() if isinstance(value, datetime.date | datetime.time) else value
