"""What the judge needs of a monitor: the state that a contract's calls so far allow, and what contradicts it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from .engine import Reply
from .expect import Outcome
from .model import EngineDescription, Json


class Monitor(Protocol):
    """Watches the calls of one engine from its opening on, whoever makes them: a case, a fuzzer or a trace.

    It knows what the rules allow and nothing of how an engine decides, so several answers may be right.
    """

    def observe(self, op: str, request: Mapping[str, Json], reply: Reply) -> Outcome:
        """Take note of one call; ``fail`` if it contradicts the rules, ``inconclusive`` if it shows nothing."""


class Guard(Monitor, Protocol):
    """A monitor that knows the caller's side of the rules as well."""

    def bars(self, op: str, request: Mapping[str, Json]) -> str | None:
        """Why an engine that claims what this one does need not withstand the call now; ``None`` when it must."""


Watch = Callable[[str, EngineDescription], Guard | None]
"""Contract and engine to a fresh guard; ``None`` for a contract whose cases say everything."""


def unwatched(contract: str, description: EngineDescription) -> None:
    """No contract has a guard."""
