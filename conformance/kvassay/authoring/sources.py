"""What an oracle's answers hang on: its own source, the shared one, and the files that it reads.

An oracle names those files in ``READS``, as globs below the root. While it answers it can open no other data of the
repository, so the list is whole and an answer that was kept is never a stale one.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..corpus.data import fixture_module
from ..corpus.errors import CorpusError


def own(contract: str, base: Path) -> list[Path]:
    """The oracle's sources: the shared one, its own, and the modules that it imports and names in its ``READS``."""
    imported = [path for path in read(contract, base) if path.suffix == ".py"]
    return [base / "fixtures" / "_oracle.py", base / "fixtures" / contract / "oracle.py", *imported]


def read(contract: str, base: Path) -> list[Path]:
    """The files that the oracle says it reads."""
    globs = getattr(fixture_module(f"{contract}.oracle"), "READS", ())
    return sorted({path for glob in globs for path in base.glob(glob)})


def digest(paths: list[Path]) -> str:
    """SHA-256 of the files' bytes, in order."""
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in paths)).hexdigest()


_guard: tuple[Path, frozenset[Path]] | None = None
_installed = False


@contextmanager
def guarded(base: Path, allowed: frozenset[Path]) -> Iterator[None]:
    """Within, opening a file of the data that is not allowed raises :class:`CorpusError`."""
    global _guard, _installed
    if not _installed:
        sys.addaudithook(_audit)  # there is no way to take one back; outside of a guard it does nothing
        _installed = True
    before, _guard = _guard, (base, allowed)
    try:
        yield
    finally:
        _guard = before


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if _guard is None or event != "open" or not isinstance(arguments[0], str | os.PathLike):
        return
    base, allowed = _guard
    path = Path(os.path.abspath(arguments[0]))
    data = any(path.is_relative_to(base / folder) for folder in ("schemas", "fixtures", "spec"))
    if data and path.suffix == ".json" and path not in allowed:
        raise CorpusError(f"the oracle reads {path.relative_to(base).as_posix()}, which its READS does not name")
