"""JSON Lines from a file or a pipe, one at a time, within limits of size and depth."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

from .errors import CutLine, TraceError

MAX_LINE_BYTES = 4 << 20
"""A longer line is refused: a trace holds digests, never rows."""
MAX_DEPTH = 64
HALF_DEPTH = MAX_DEPTH // 2


def _no_constant(name: str) -> None:
    raise ValueError(f'{name} is not JSON; write it as the string "{name}"')


SCAN: Callable[[str, int], tuple[Any, int]] = vars(json.JSONDecoder(parse_constant=_no_constant))["scan_once"]


def lines(stream: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Number and bytes of each line that is not blank, as soon as it is there; raises :class:`TraceError`."""
    read, number = stream.readline, 0
    while raw := read(MAX_LINE_BYTES + 1):
        number += 1
        if len(raw) > MAX_LINE_BYTES:
            raise TraceError(number, "", f"longer than {MAX_LINE_BYTES >> 20} MiB")
        if not raw.isspace():
            yield number, raw


def parse(number: int, raw: bytes) -> dict[str, Any]:
    """The object on a line; raises :class:`TraceError`, or :class:`CutLine` for half a line at the end."""
    value = parse_any(number, raw)
    if not isinstance(value, dict):
        raise TraceError(number, "", "not a JSON object")
    return value


def parse_any(number: int, raw: bytes) -> Any:
    """The value on a line."""
    try:
        text = raw.decode("utf-8")
        if text[0] in " \t\r":
            text = text.lstrip()
        value, end = SCAN(text, 0)
        if text[end:] != "\n" and text[end:].strip():
            raise ValueError(f"more follows at column {end + 1}")
        if "\\ud" in text or "\\uD" in text:
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except (ValueError, StopIteration, RecursionError) as problem:
        if not raw.endswith(b"\n"):
            raise CutLine(number) from None
        raise TraceError(number, "", _reason(problem)) from None
    if raw.count(b"{") > HALF_DEPTH or raw.count(b"[") > HALF_DEPTH:
        _demand_shallow(value, number)
    return value


def _reason(problem: Exception) -> str:
    if isinstance(problem, json.JSONDecodeError):
        return f"not JSON: {problem.msg} at column {problem.colno}"
    if isinstance(problem, StopIteration):
        return f"not JSON: a value is missing at column {int(problem.value) + 1}"
    if isinstance(problem, UnicodeDecodeError):
        return "not UTF-8 text"
    if isinstance(problem, UnicodeEncodeError):
        return "text with half of a surrogate pair"
    if "integer string conversion" in str(problem):
        return f"not JSON: an integer of more than {sys.get_int_max_str_digits()} digits"
    return "nested too deeply" if isinstance(problem, RecursionError) else f"not JSON: {problem}"


def _demand_shallow(value: Any, number: int) -> None:
    level, at = [("", value)], ""
    for _ in range(MAX_DEPTH):
        level = [
            (f"{path}/{str(name).replace('~', '~0').replace('/', '~1')}", item)
            for path, node in level
            for name, item in (node.items() if isinstance(node, dict) else enumerate(node))
            if isinstance(item, dict | list)
        ]
        if not level:
            return
        at = level[0][0]
    raise TraceError(number, at[:200], f"nested deeper than {MAX_DEPTH}")
