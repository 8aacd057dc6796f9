"""What a picture says in words, and how figures are written in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Words:
    """The text that goes with a drawing."""

    alt: str
    """What someone hears who does not see it: plain text."""
    caption: str
    """What it shows, with figures of the documents: MyST text on one line."""
    origin: str = ""
    """Where it comes from, in place of the sources' names."""


def number(value: float, digits: int = 3) -> str:
    """A figure for a reader: at most so many decimals, no trailing zeros."""
    text = f"{value:.{digits}f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text in ("-0", "") else text.replace("-", "−")


def listed(items: Sequence[object]) -> str:
    """``1, 2 and 3``."""
    words = [str(item) for item in items]
    return f"{', '.join(words[:-1])} and {words[-1]}" if words[1:] else "".join(words)


def counted(count: int, one: str, many: str = "") -> str:
    """``1 row`` or ``3 rows``."""
    return f"{count} {one if count == 1 else many or one + 's'}"


def sentence(text: str) -> str:
    """The text with its first letter large."""
    return text[:1].upper() + text[1:]


def expected(case: dict[str, Any], step: int, at: str) -> Any:
    """The value that a case expects of a step at a pointer of the reply; raises :class:`KeyError`."""
    expect = case["steps"][step]["expect"]
    for row in [*expect.get("close", ()), *expect.get("equals", ())]:
        if row["at"] == at:
            return row["value"]
    raise KeyError(f"{case['id']} expects nothing at {at} of step {step}")
