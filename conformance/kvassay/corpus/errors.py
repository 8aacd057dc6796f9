"""The one error that bad input ends in."""

from __future__ import annotations


class CorpusError(Exception):
    """A document, the corpus or a selection is at fault: one line with file, JSON pointer and reason."""

    def __init__(self, reason: str, *, file: str = "", pointer: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.file = file
        self.pointer = pointer

    def __str__(self) -> str:
        return ": ".join(part for part in (self.file, self.pointer, self.reason) if part)
