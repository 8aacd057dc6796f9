"""What a sequence of calls allows, contract by contract: one account for the judge, the fuzzer and the trace checker.

A monitor is told every call and its reply and says which reply contradicts the rules. Where several answers may be
right it imitates no engine: it keeps what may be served, what may be published and what is protected, and knows nothing
of eviction or scheduling. Where one is right, :mod:`~kvassay.monitors.replay` makes each call on the reference.
"""

from __future__ import annotations

from collections.abc import Callable

from ..core.model import EngineDescription
from ..core.monitor import Guard
from .caller import Residency
from .runtime import RuntimeMonitor

MONITORS: dict[str, Callable[[EngineDescription, bool], Guard]] = {
    "residency": Residency,
    "runtime": RuntimeMonitor,
}
"""Contract to its monitor. A contract without one is judged by what its cases expect."""


def watch(contract: str, description: EngineDescription, *, probe: bool = False) -> Guard | None:
    """A fresh monitor for one opening of an engine; a caller that probes is barred from less."""
    make = MONITORS.get(contract)
    return None if make is None else make(description, probe)
