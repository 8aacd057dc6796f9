"""Answers of oracles, kept: derived once, asked for by the freezer, by the judge, and in the next run."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..corpus.digest import digest


class Answers:
    """JSON values by the digest of what they hang on; in memory, and on disk from run to run."""

    def __init__(self, folder: Path, *, fresh: bool = False) -> None:
        self._folder = folder
        self._fresh = fresh
        self._memory: dict[str, str] = {}

    def get(self, question: Any, derive: Callable[[], Any]) -> Any:
        """The kept answer to a question, or the derived one; a fresh book believes nothing that lies on disk."""
        key = digest(question)
        if key not in self._memory:
            path = self._folder / key[:2] / f"{key}.json"
            if path.is_file() and not self._fresh:
                self._memory[key] = path.read_text(encoding="utf-8")
            else:
                self._memory[key] = json.dumps(derive())
                _write(path, self._memory[key])
        return json.loads(self._memory[key])


def _write(path: Path, text: str) -> None:
    """Whole or not at all: two processes may derive the same answer."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(f".{os.getpid()}")
    part.write_text(text, encoding="utf-8")
    part.replace(path)
