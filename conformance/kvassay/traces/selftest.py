"""The trace checker judged by faults: whether each is caught from the recorded trace of its own cases alone.

Most are caught by the rules over sequences of calls, which hold for a service that nobody drives. A defect that is
legal for some engine, such as a row that is not found although there was room, shows only by what the case expected,
which the trace names.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from ..adapters.base import EngineAdapter
from ..adapters.local import InProcess
from ..core.judge import judge
from ..core.model import Case
from ..corpus import load
from ..faults.seeded import Seeded, engines, faults, modules, spread
from ..faults.selftest import small
from ..monitors import watch
from .check import Checker, Offence
from .lines import lines
from .record import Recording, Writer
from .rules import Rule

CONTRACTS = ("offload", "residency", "lifecycle")
"""The contracts of movement, whose faults a trace must show."""


@dataclass(frozen=True)
class Row:
    """One engine, and what its trace shows."""

    contract: str
    name: str
    requirement: str
    """Empty for a correct engine."""
    events: int
    rules: tuple[str, ...]
    """Rules that the trace contradicts, each once."""
    first: Offence | None

    @property
    def by_rule(self) -> bool:
        """Whether a rule over sequences caught it, without the expectations of a case."""
        return bool(set(self.rules) - {Rule.CASE_FAILS})

    @property
    def ok(self) -> bool:
        """A fault is seen, a correct engine is not blamed."""
        return (self.first is not None) is bool(self.requirement)


def run_selftest(contracts: Iterable[str] = (), *, jobs: int = 2) -> Iterator[Row]:
    """Every fault on the cases that are meant for it, every correct engine on all cases of its contract."""
    seeded = modules()
    chosen = tuple(contracts) or tuple(name for name in CONTRACTS if name in seeded)
    for name in contracts:
        faults(name)
    yield from spread(_one, [engine for name in chosen for engine in engines(name)], jobs)


def _one(engine: Seeded) -> Row:
    adapter = engine.adapter
    meant: tuple[str, ...] = getattr(adapter, "killed_by", ())
    cases = load().select(contract=[engine.contract])
    trace = recorded(adapter, [case for case in cases if (case.id in meant if meant else small(case))])
    checker = Checker(strict=True)
    found = list(checker.offences(lines(io.BytesIO(trace))))
    return Row(
        contract=engine.contract,
        name=adapter.__name__,
        requirement="" if getattr(adapter, "equivalent", "") else engine.requirement,
        events=checker.counts.events,
        rules=tuple(dict.fromkeys(offence.rule for offence in found)),
        first=found[0] if found else None,
    )


def recorded(adapter: type[EngineAdapter], cases: Iterable[Case]) -> bytes:
    """The trace of a run of these cases on an engine."""
    trace = io.StringIO()
    engine = Recording(InProcess(adapter), Writer(trace))
    rules = replace(load().rules(), watch=watch)
    try:
        for case in cases:
            engine.case = case.id
            judge(case, engine, rules)
    finally:
        engine.close()
    return trace.getvalue().encode()
