"""How the benchmarks time and what a line of theirs holds."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Line:
    """One measured cost beside what it is compared with."""

    what: str
    measured: float
    unit: str
    against: str
    reference: float
    budget: float
    """Largest permitted ratio, or largest permitted figure where ``reference`` is 1 and the unit is absolute."""

    @property
    def ratio(self) -> float:
        """Measured over reference."""
        return self.measured / self.reference

    @property
    def ok(self) -> bool:
        """Whether the budget is kept."""
        return self.ratio <= self.budget


def median_s(call: Callable[[], object], *, repeat: int = 7, number: int = 1) -> float:
    """Median seconds of one call, after one call that is not counted."""
    call()
    times = []
    for _ in range(repeat):
        started = time.perf_counter()
        for _ in range(number):
            call()
        times.append((time.perf_counter() - started) / number)
    return statistics.median(times)


def interleaved_s(a: Callable[[], object], b: Callable[[], object], *, repeat: int = 9) -> tuple[float, float]:
    """Median seconds of two calls that take turns, so that a busy machine slows both."""
    a(), b()
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(repeat):
        for call, seen in zip((a, b), times, strict=True):
            started = time.perf_counter()
            call()
            seen.append(time.perf_counter() - started)
    return statistics.median(times[0]), statistics.median(times[1])
