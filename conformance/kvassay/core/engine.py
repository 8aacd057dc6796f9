"""What the judge needs of an engine: a description, a fresh start per case, and one typed reply per call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from .model import EngineDescription, Json


@dataclass(frozen=True)
class Returned:
    """The engine did the op; ``value`` is the result object, its tensors as NumPy arrays."""

    value: Mapping[str, Json]


@dataclass(frozen=True)
class Refused:
    """The engine rejected the request. ``reason`` is ``None`` when the adapter maps no reason to it."""

    reason: str | None
    detail: str = ""


@dataclass(frozen=True)
class NotSupported:
    """The engine does not do this op, or cannot take this request at all (too large, unknown dtype)."""

    detail: str = ""


@dataclass(frozen=True)
class Broken:
    """No legal reply came: crash, hang, flood, malformed or mistaken answer, or an exception."""

    kind: str
    """``exception``, ``crash``, ``timeout``, ``malformed``, ``flood``, ``wrong-id`` or ``answered-twice``."""
    detail: str = ""


@dataclass(frozen=True)
class Late:
    """An answer that came when its call was long over."""

    problem: Broken
    cases_ago: int
    """How many times :meth:`Engine.open` has begun a case since the call: 1 is the case before the current one."""


Reply = Returned | Refused | NotSupported | Broken


class Engine(Protocol):
    """An engine under test. ``call`` never raises for what the engine does wrong; it says so in the reply."""

    @property
    def description(self) -> EngineDescription:
        """What the engine declared when it started."""

    def open(self) -> Broken | None:
        """Give the next case a fresh engine."""

    def call(self, op: str, request: Mapping[str, Any], deadline_s: float) -> Reply:
        """Do one op; poll a pending ticket until the deadline."""

    def late(self) -> tuple[Late, ...]:
        """Answers to calls of earlier cases that have come since this was last asked."""

    def close(self) -> None:
        """End the engine and everything that it started."""
