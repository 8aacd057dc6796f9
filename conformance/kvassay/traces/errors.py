"""What is wrong with a trace as a file, as against what it tells of an engine."""

from __future__ import annotations


class TraceError(Exception):
    """A line that cannot be read: its number, the JSON pointer of the fault, the reason."""

    def __init__(self, line: int, pointer: str, reason: str) -> None:
        super().__init__(line, pointer, reason)
        self.line = line
        self.pointer = pointer
        self.reason = reason

    def __str__(self) -> str:
        return f"line {self.line}: {self.pointer + ': ' if self.pointer else ''}{self.reason}"


class CutLine(Exception):
    """The last line ends in the middle: the writer was stopped, or still writes."""

    def __init__(self, line: int) -> None:
        super().__init__(line)
        self.line = line

    def __str__(self) -> str:
        return f"line {self.line} ends in the middle"
