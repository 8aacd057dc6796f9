"""Words that findings print: each has its meaning beside it, which ``kvassay explain`` and the documentation tell."""

from __future__ import annotations

from enum import StrEnum
from typing import Self


class Word(StrEnum):
    """A word with its meaning, written as ``TRUNCATED = "TRUNCATED", "The end is missing."``."""

    meaning: str

    def __new__(cls, value: str, meaning: str) -> Self:
        """A member that is equal to its word."""
        made = str.__new__(cls, value)
        made._value_ = value
        made.meaning = meaning
        return made
