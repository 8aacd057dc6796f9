"""From the text after ``--adapter`` to a running engine."""

from __future__ import annotations

import ast
import difflib
import functools
import importlib.metadata
import importlib.util
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from ..core.engine import Engine
from .base import EngineAdapter
from .client import HELLO_S, Subprocess
from .errors import AdapterError
from .local import InProcess
from .wire import EDITION
from .worker import load

GROUP = "kvassay.adapters"
ENGINES = Path(__file__).parents[1] / "engines"
"""Adapters that ship with the suite; the engines themselves are installed apart."""
OWN_PACKAGES = ("kvassay", "kvassay_reference", "kvassay_kernels")
_TABLE = re.compile(r"^ADAPTERS = (\{.*?\})$", re.MULTILINE | re.DOTALL)
_CLASS = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


@functools.cache
def built_in() -> Mapping[str, str]:
    """Name to ``module:Class`` of the adapters that ship with the suite: the tables ``ADAPTERS`` of the engines.

    The tables are read from the sources, since to import such a module is to import its engine.
    """
    found: dict[str, str] = {}
    for path in sorted(ENGINES.glob("*.py")):
        for table in _TABLE.findall(path.read_text(encoding="utf-8")):
            for name, title in ast.literal_eval(table).items():
                if name in found:
                    raise AdapterError(f"two adapters are called {name}: {found[name]} and {title} of {path.name}")
                found[name] = f"kvassay.engines.{path.stem}:{title}"
    return MappingProxyType(found)


def names() -> dict[str, str]:
    """Every adapter that has a name here: built-in ones, then entry points of group ``kvassay.adapters``."""
    found = {entry.name: entry.value for entry in importlib.metadata.entry_points(group=GROUP)}
    return found | dict(built_in())


def resolve(name: str) -> str:
    """The ``module:Class`` behind a name; raises :class:`AdapterError` with the names that exist."""
    if _CLASS.fullmatch(name):
        return name
    known = names()
    if name in known:
        return known[name]
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    known_names = ", ".join(sorted(known))
    raise AdapterError(f"unknown adapter {name!r}{hint} (known: {known_names}; or module:Class, or cmd: and a program)")


def connect(
    adapter: str | type[EngineAdapter],
    *,
    in_process: bool = False,
    python: str | None = None,
    hello_s: float = HELLO_S,
    edition: str = EDITION,
) -> Engine:
    """Start the engine that a name, ``module:Class`` or ``cmd: program --flag`` stands for.

    An adapter in Python runs in a worker process, of the interpreter ``python`` where one is given, unless
    ``in_process``; a class itself runs in process. Raises :class:`AdapterError`.
    """
    if isinstance(adapter, type):
        return InProcess(adapter)
    if adapter.startswith("cmd:"):
        if in_process or python is not None:
            raise AdapterError("a cmd: adapter is a program of its own; it has no Python and cannot run in process")
        return Subprocess(_command(adapter), label=adapter, hello_s=hello_s, edition=edition)
    target = resolve(adapter)
    if in_process:
        if python is not None:
            raise AdapterError("another interpreter cannot run in process")
        if os.getcwd() not in sys.path:
            sys.path.insert(0, os.getcwd())
        return InProcess(load(target))
    if python is None:
        return _worker(sys.executable, target, adapter, _own_path(), hello_s, edition)
    found = shutil.which(python)
    if found is None:
        raise AdapterError(f"no interpreter {python}")
    folder = tempfile.TemporaryDirectory(prefix="kvassay-")
    for package in OWN_PACKAGES:
        spec = importlib.util.find_spec(package)
        if spec is not None and spec.submodule_search_locations:
            Path(folder.name, package).symlink_to(Path(spec.submodule_search_locations[0]).resolve())
    path = [folder.name, *filter(None, [os.environ.get("PYTHONPATH")])]
    return _worker(found, target, adapter, path, hello_s, edition, folder)


def _command(adapter: str) -> list[str]:
    try:
        words = shlex.split(adapter.removeprefix("cmd:"))
    except ValueError as error:
        raise AdapterError(f"{adapter}: {error}") from None
    if not words:
        raise AdapterError("cmd: names no program; write cmd: ./engine --flag")
    return words


def _own_path() -> list[str]:
    """Where this interpreter finds modules, for a worker that must find the same ones."""
    return list(dict.fromkeys(os.path.abspath(entry) for entry in ["", *sys.path]))


def _worker(
    interpreter: str,
    target: str,
    label: str,
    path: list[str],
    hello_s: float,
    edition: str,
    folder: tempfile.TemporaryDirectory[str] | None = None,
) -> Subprocess:
    command = [interpreter, "-X", "faulthandler", "-m", "kvassay.adapters.worker", target]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
    cleanup = None if folder is None else folder.cleanup
    return Subprocess(command, label=label, env=env, hello_s=hello_s, edition=edition, cleanup=cleanup)
