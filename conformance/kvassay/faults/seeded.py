"""Engines that are seeded to judge the suite: where they stand, and how work on them is spread over processes."""

from __future__ import annotations

import importlib
import os
import pkgutil
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any, TypeVar

from ..adapters.base import EngineAdapter
from ..corpus import CorpusError

KINDS = ("CORRECT", "FAULTS")
OTHERS = ("base", "selftest", "reach", "seeded")
"""Modules of the package that hold no faults."""
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")

Work = TypeVar("Work")
Made = TypeVar("Made")


def modules() -> dict[str, Any]:
    """Contract to its module of faults."""
    package = importlib.import_module(__package__)
    names = [info.name for info in pkgutil.iter_modules(package.__path__) if info.name not in OTHERS]
    found = {name: importlib.import_module(f"{__package__}.{name}") for name in names}
    return {name: module for name, module in found.items() if hasattr(module, "FAULTS")}


def faults(contract: str) -> tuple[type[EngineAdapter], ...]:
    """The seeded faults of one contract."""
    known = modules()
    if contract not in known:
        raise CorpusError(f"no faults are seeded for {contract!r}; there are for {', '.join(known)}")
    seeded: tuple[type[EngineAdapter], ...] = known[contract].FAULTS
    return seeded


@dataclass(frozen=True, order=True)
class Seeded:
    """An engine of a contract's faults, by its place there: what a worker needs to find it."""

    contract: str
    kind: str
    """``CORRECT`` or ``FAULTS``, the tuples of the module."""
    index: int

    @property
    def adapter(self) -> type[EngineAdapter]:
        """Its class."""
        found: type[EngineAdapter] = getattr(modules()[self.contract], self.kind)[self.index]
        return found

    @property
    def summary(self) -> str:
        """The first line of its docstring."""
        return (self.adapter.__doc__ or "").strip().partition("\n")[0]

    @property
    def requirement(self) -> str:
        """What a fault breaks; empty for a correct engine."""
        return getattr(self.adapter, "requirement", "")


def engines(contract: str) -> list[Seeded]:
    """The correct engines of a contract, then its faults."""
    module = modules()[contract]
    return [Seeded(contract, kind, index) for kind in KINDS for index in range(len(getattr(module, kind)))]


def spread(one: Callable[[Work], Made], work: Iterable[Work], jobs: int) -> Iterator[Made]:
    """What ``one`` makes of each piece of work, in order, in this process or in several."""
    if jobs == 1:
        yield from map(one, work)
        return
    with workers(jobs) as pool:
        yield from pool.map(one, work)


@contextmanager
def workers(jobs: int, begin: Callable[[], object] | None = None) -> Iterator[ProcessPoolExecutor]:
    """Processes with one thread of linear algebra each, which call ``begin`` first.

    With more threads they would wait for one another. The libraries read these variables when they are loaded, so the
    processes are new ones and no copies of this one.
    """
    added = {name: "1" for name in THREADS if name not in os.environ}
    os.environ.update(added)
    try:
        with ProcessPoolExecutor(jobs, get_context("spawn"), initializer=begin) as pool:
            yield pool
    finally:
        for name in added:
            del os.environ[name]
