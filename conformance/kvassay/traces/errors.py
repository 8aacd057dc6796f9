"""What is wrong with a trace as a file, as against what it tells of an engine."""

from __future__ import annotations


class TraceError(Exception):
    """A line that cannot be read: its number, the JSON pointer of the fault, the reason."""

    def __init__(self, line: int, pointer: str, reason: str) -> None:
        super().__init__(f"line {line}: {pointer + ': ' if pointer else ''}{reason}")
        self.line = line
        self.pointer = pointer
        self.reason = reason


class CutLine(Exception):
    """The last line ends in the middle: the writer was stopped, or still writes."""

    def __init__(self, line: int) -> None:
        super().__init__(f"line {line} ends in the middle")
        self.line = line
