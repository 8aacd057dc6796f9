"""Where the data lie: beside the code in a clone, inside the package in a wheel.

In a clone the clone's own folders win, so that an editable install never reads stale copies.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO

from .errors import CorpusError

PACKAGE = Path(__file__).resolve().parents[1]
FIXTURES_PACKAGE = "kvassay_fixtures"
MAX_BYTES = 64 << 20
MAX_DEPTH = 64
BYTE_ORDER_MARK = "\N{ZERO WIDTH NO-BREAK SPACE}"


@functools.cache
def root() -> Path:
    """The folder that holds ``schemas/``, ``fixtures/`` and ``spec/``."""
    clone = PACKAGE.parents[1]
    for folder in (clone, PACKAGE):
        if all((folder / part).is_dir() for part in ("schemas", "fixtures", "spec")):
            return folder
    raise CorpusError("the installation holds no schemas, fixtures and spec", file=str(PACKAGE))


def is_clone() -> bool:
    """Whether the data are those of a source tree, which can be written."""
    return root() != PACKAGE


def read_json(path: Path) -> Any:
    """A JSON document from disk; raises :class:`CorpusError` with file and place for anything that is not one."""
    name = str(path)
    try:
        with path.open("rb") as file:
            return read_stream(file, name)
    except OSError as problem:
        raise CorpusError(problem.strerror or str(problem), file=name) from None


def read_stream(stream: BinaryIO, name: str) -> Any:
    """A JSON document from a stream of bytes, as :func:`read_json` reads it from disk."""
    raw = stream.read(MAX_BYTES + 1)  # not the size on disk: a device has none
    if len(raw) > MAX_BYTES:
        raise CorpusError(f"larger than {MAX_BYTES >> 20} MiB", file=name)
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise CorpusError("not UTF-8 text", file=name) from None
    return parse_json(text, name)


def parse_json(text: str, name: str) -> Any:
    """JSON text as a value: no duplicate keys, no NaN literals, limited depth."""
    if not text.strip():
        raise CorpusError("not JSON: the file is empty", file=name)
    if text.startswith(BYTE_ORDER_MARK):
        raise CorpusError("begins with a byte order mark; JSON has none", file=name)
    try:
        value = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
    except json.JSONDecodeError as problem:
        raise CorpusError(
            f"not JSON: {problem.msg} at line {problem.lineno} column {problem.colno}", file=name
        ) from None
    except RecursionError:
        raise CorpusError("nested too deeply", file=name) from None
    except ValueError as problem:
        if "integer string conversion" in str(problem):
            problem = ValueError(f"an integer of more than {sys.get_int_max_str_digits()} digits")
        raise CorpusError(f"not JSON: {problem}", file=name) from None
    if _depth(value) > MAX_DEPTH:
        raise CorpusError(f"nested deeper than {MAX_DEPTH}", file=name)
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the member {twice!r} stands twice")
    return members


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON; write it as a string")


def _depth(value: Any) -> int:
    level, depth = [value], 0
    while level:
        depth += 1
        level = [
            item
            for node in level
            if isinstance(node, dict | list)
            for item in (node.values() if isinstance(node, dict) else node)
        ]
    return depth


def contracts() -> tuple[str, ...]:
    """Contracts that the corpus holds: the folders with frozen cases."""
    return tuple(sorted({path.parents[1].name for path in (root() / "fixtures").glob("*/cases/*.json")}))


def fixture_module(name: str) -> ModuleType:
    """A module of the fixtures, such as ``attention.oracle``, as ``kvassay_fixtures.attention.oracle``."""
    if FIXTURES_PACKAGE not in sys.modules:
        folder = root() / "fixtures"
        spec = importlib.util.spec_from_file_location(
            FIXTURES_PACKAGE, folder / "__init__.py", submodule_search_locations=[str(folder)]
        )
        if spec is None or spec.loader is None:
            raise CorpusError("the fixtures are not a package", file=str(folder))
        module = importlib.util.module_from_spec(spec)
        sys.modules[FIXTURES_PACKAGE] = module
        spec.loader.exec_module(module)
    return importlib.import_module(f"{FIXTURES_PACKAGE}.{name}")
