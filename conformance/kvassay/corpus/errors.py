"""The one error that bad input ends in."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class CorpusError(Exception):
    """A document, the corpus or a selection is at fault: one line with file, JSON pointer and reason."""

    def __init__(self, reason: str, *, file: str = "", pointer: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.file = file
        self.pointer = pointer

    def __str__(self) -> str:
        return ": ".join(part for part in (self.file, self.pointer, self.reason) if part)


def did_you_mean(value: str, names: Iterable[str], cutoff: float = 0.6) -> str:
    """The end of a message about an unknown name: the nearest one, whatever its case; empty where none is near."""
    by_case = {one.lower(): one for one in names}
    near = difflib.get_close_matches(value.lower(), by_case, n=1, cutoff=cutoff)
    return f"; did you mean {by_case[near[0]]!r}?" if near else ""
