"""What the fuzzer needs of a contract, and the contracts that it knows."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from ..core.engine import Reply
from ..core.expect import Outcome
from ..core.model import EngineDescription, Json
from ..corpus import CorpusError
from ..corpus.errors import did_you_mean

T = TypeVar("T")


class Draw(Protocol):
    """Choices; all that a rule decides comes from here, so that a seed repeats it."""

    def pick(self, options: Sequence[T]) -> T:
        """One of several."""

    def integer(self, low: int, high: int) -> int:
        """A whole number, both ends included."""

    def chance(self, percent: int) -> bool:
        """Whether something that happens so often happens now."""


@dataclass(frozen=True)
class Step:
    """One call as a case would write it: ``{"$bind": name}`` stands for what an earlier step bound."""

    op: str
    request: Mapping[str, Json]
    bind: Mapping[str, str] = field(default_factory=dict)
    """Name to JSON pointer into the result."""


class Illegal(Exception):
    """A step that the caller's contract forbids, or that uses what no step bound; it is not made."""


Make = Callable[[Step], Reply]
"""Makes a step on the engine; raises :class:`Illegal` before the call, and leaves the rule when the reply is wrong."""
Rule = Callable[[Draw], None]
"""Makes one or more steps."""


class Scene(Protocol):
    """One opening of an engine."""

    @property
    def rules(self) -> Mapping[str, tuple[int, Rule]]:
        """What can be done, by name, and how often beside the others."""

    def begin(self, draw: Draw) -> None:
        """Steps that come first in every sequence."""

    def illegal(self, op: str, request: Mapping[str, Json], *, probe: bool) -> str | None:
        """Why a caller may not make this call now; a probing one may do more."""

    def needs(self, op: str, request: Mapping[str, Json]) -> frozenset[str]:
        """Capabilities that the engine claims and without which the next call would be illegal."""

    def expect(self, op: str, request: Mapping[str, Json]) -> Mapping[str, Json]:
        """What the reply to the next call must be, as a case writes it; asked before the call."""

    def observe(self, op: str, request: Mapping[str, Json], reply: Reply) -> Outcome:
        """Judge a reply and take note of it."""


class Contract(Protocol):
    """A contract that can be fuzzed."""

    name: str
    account: str
    """Module that says which reply is right, as a case file names its oracle."""
    atomic: frozenset[str]
    """Ops whose requests are not taken apart when a failure is shrunk."""

    def unfit(self, description: EngineDescription) -> str | None:
        """Why this engine cannot be fuzzed."""

    def profile(self, ops: frozenset[str], description: EngineDescription) -> str:
        """The profile that a case with these ops belongs to."""

    def scene(self, description: EngineDescription, make: Make) -> Scene:
        """A scene for an engine that was just opened."""

    def reason(self, outcome: Outcome) -> str:
        """What is wrong, in words that are the same for the same defect."""

    def written(self, step: Step) -> Mapping[str, Json]:
        """A step's request as a case file holds it."""


CONTRACTS = ("lifecycle", "residency", "runtime")
"""Contracts with a module here that holds their ``CONTRACT``."""


def find(name: str) -> Contract:
    """The contract of this name; raises :class:`CorpusError`."""
    if name not in CONTRACTS:
        hint = did_you_mean(name, CONTRACTS)
        raise CorpusError(f"no contract {name!r} that can be fuzzed{hint} (there are {', '.join(CONTRACTS)})")
    contract: Contract = importlib.import_module(f"{__package__}.{name}").CONTRACT
    return contract
