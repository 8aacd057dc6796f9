"""A scene as a state machine of Hypothesis, for the tests of an engine: ``pip install 'kvassay[fuzz]'``.

::

    TestResidency = state_machine(MyAdapter, "residency").TestCase

Hypothesis then chooses, shrinks with its own means, and keeps failures in its database. The command does not use it:
its examples are similar to each other on purpose, and a defect in the order of calls takes several times as many.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from ..adapters.base import EngineAdapter
from ..adapters.local import InProcess
from ..corpus import CorpusError
from .contract import Illegal, find
from .trial import Trial

if TYPE_CHECKING:
    from hypothesis import strategies
    from hypothesis.stateful import RuleBasedStateMachine

T = TypeVar("T")
INSTALL = "Hypothesis is not installed: pip install 'kvassay[fuzz]'"


class HypothesisDraw:
    """Choices that Hypothesis makes."""

    def __init__(self, draw: Callable[[strategies.SearchStrategy[int]], int]) -> None:
        self._draw = draw

    def pick(self, options: Sequence[T]) -> T:
        """One of several; nothing is drawn where there is no choice."""
        return options[self.integer(0, len(options) - 1)]

    def integer(self, low: int, high: int) -> int:
        """A whole number."""
        return low if low == high else self._draw(_integers(low, high))

    def chance(self, percent: int) -> bool:
        """Never at 0, always at 100."""
        return self.integer(1, 100) > 100 - percent


@functools.lru_cache(maxsize=4096)
def _integers(low: int, high: int) -> strategies.SearchStrategy[int]:
    from hypothesis import strategies as st

    return st.integers(low, high)


def state_machine(adapter: type[EngineAdapter], contract: str, *, probe: bool = False) -> type[RuleBasedStateMachine]:
    """A state machine whose rules are those of a contract's scene; a wrong reply is an :class:`AssertionError`.

    Raises :class:`CorpusError` for an unknown contract, for an engine that does not have it, and where Hypothesis is
    missing.
    """
    try:
        from hypothesis import strategies as st
        from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
    except ImportError:
        raise CorpusError(INSTALL) from None
    chosen, engine = find(contract), InProcess(adapter)
    unfit = chosen.unfit(engine.description)
    if unfit is not None:
        raise CorpusError(f"{engine.description.name} cannot be fuzzed on {contract}: {unfit}")

    def opened(self: Any) -> None:
        RuleBasedStateMachine.__init__(self)
        self.trial = Trial(engine, chosen, probe=probe)
        self.trial.open()

    def begun(self: Any, data: Any) -> None:
        self.trial.scene.begin(HypothesisDraw(data.draw))

    def rule_named(name: str) -> Any:
        def step(self: Any, data: Any) -> None:
            found = self.trial.scene.rules.get(name)  # a sequence of plans has no rule of sessions
            with suppress(Illegal):
                if found is not None:
                    found[1](HypothesisDraw(data.draw))

        step.__name__ = name.replace("-", "_")
        return rule(data=st.data())(step)

    trial = Trial(engine, chosen)
    trial.open()
    rules = {name.replace("-", "_"): rule_named(name) for name in trial.scene.rules}
    members = {"__init__": opened, "begun": initialize(data=st.data())(begun), **rules}
    return type(f"{adapter.__name__}{contract.capitalize()}", (RuleBasedStateMachine,), members)
