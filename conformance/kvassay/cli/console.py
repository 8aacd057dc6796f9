"""Where the commands write: colour by terminal and NO_COLOR, plain lines in CI."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from ..corpus import CorpusError


class Plain(Console):
    """A console that obeys no markup in data and leaves a closed pipe to the command."""

    def on_broken_pipe(self) -> None:
        """The reader went away: no status of rich's own choice."""
        raise BrokenPipeError


def out() -> Console:
    """The console on stdout."""
    return Plain(file=sys.stdout, markup=False, highlight=False, emoji=False, soft_wrap=True)


def say(console: Console, line: str | Text = "") -> None:
    """One line, as long as it is."""
    console.print(line, soft_wrap=True)


def dump(value: Any) -> str:
    """A document as JSON text."""
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def write(path: Path, content: str) -> None:
    """A file, its folder made on the way; raises :class:`CorpusError` that names it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8", errors="backslashreplace")
    except OSError as problem:
        raise CorpusError(f"cannot be written: {problem.strerror or problem}", file=str(path)) from None
