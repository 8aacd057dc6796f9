"""A mistake in an author's or an oracle's source, told in one line with its place."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..corpus.errors import CorpusError


@contextmanager
def at_fault(base: Path) -> Iterator[None]:
    """Within, an exception of the fixtures' own sources becomes a :class:`CorpusError` with file, line and case."""
    try:
        yield
    except CorpusError:
        raise
    except Exception as defect:
        notes = "".join(f"{note}: " for note in getattr(defect, "__notes__", ()))
        reason = f"{notes}{type(defect).__name__}: {defect}".splitlines()[0]
        raise CorpusError(reason, file=_place(defect, base)) from None


def _place(defect: Exception, base: Path) -> str:
    """The innermost line below ``fixtures`` that is no helper, which is where a person would look."""
    frames = [(Path(frame.filename), frame.lineno) for frame in traceback.extract_tb(defect.__traceback__)]
    if isinstance(defect, SyntaxError) and defect.filename:
        frames.append((Path(defect.filename), defect.lineno))
    own = [(path, line) for path, line in frames if path.is_relative_to(base / "fixtures")]
    written = [(path, line) for path, line in own if not path.name.startswith("_")]
    path, line = (written or own or frames or [(base, None)])[-1]
    return f"{path.relative_to(base).as_posix() if path.is_relative_to(base) else path}:{line}"
