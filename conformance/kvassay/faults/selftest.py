"""The suite judged by faults: which case kills which, and whether a correct engine is ever blamed.

A fault counts as killed only by the cases that it names, each with ``fail`` or ``wrong-reason``; a crash kills nothing.

A fault runs on the cases that use something of what it replaces; on all others it is the correct engine and has its
verdict, as :mod:`~kvassay.faults.reach` explains. ``full`` runs every fault on every case, and the rows are the same.
"""

from __future__ import annotations

import functools
import heapq
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from ..adapters.base import EngineAdapter
from ..adapters.values import RecipeCache
from ..core.model import Case, Result, Verdict
from ..core.tensors import largest
from ..corpus import CorpusError, load
from ..runner import Session, run
from .reach import Open, Reach, replaced, trace
from .seeded import Seeded, engines, faults, modules, workers

LARGE = 1 << 22
"""Elements of a tensor from which on a case is not run for each fault."""
MANY = 500
"""Steps from which on it is not."""
KILLS = (Verdict.FAIL, Verdict.WRONG_REASON)
BLAME = (*KILLS, Verdict.ERROR, Verdict.INCONCLUSIVE)


@dataclass(frozen=True)
class Row:
    """One engine of the self-test: a fault, or a correct engine."""

    contract: str
    name: str
    summary: str
    requirement: str
    """Empty for a correct engine."""
    killed_by: Mapping[str, str]
    """The cases meant for the fault, and their verdicts."""
    also: tuple[str, ...]
    """Other cases that did not pass."""
    on_target: bool
    """Whether one of the cases that are meant for the fault tests its requirement."""
    passed: int
    not_applicable: int
    ratio: float | None
    """Smallest error over bound by which a meant numeric case failed: how far the suite is from not seeing it."""
    equivalent: str
    """The proof that no input can show the fault; empty for all others."""
    seconds: float
    changed: tuple[str, ...] = ()
    """Every case that failed for a reason of its own, not by a crash."""

    @property
    def is_fault(self) -> bool:
        """Whether the engine is faulty on purpose."""
        return bool(self.requirement)

    @property
    def killed(self) -> bool:
        """Whether every case that is meant for the fault saw it."""
        dead = bool(self.killed_by) and all(verdict in KILLS for verdict in self.killed_by.values())
        return dead and self.on_target

    @property
    def ok(self) -> bool:
        """Faults are killed, equivalent faults and correct engines pass everything."""
        if self.is_fault and not self.equivalent:
            return self.killed
        return not self.also and self.passed > 0


@dataclass(frozen=True)
class Matrix:
    """The whole self-test."""

    rows: tuple[Row, ...]
    without_fault: tuple[str, ...]
    """Requirements of the tested contracts without a fault that dies."""
    vacuous: tuple[str, ...]
    """Cases whose verdict no fault changes."""
    seconds: float
    edition: str = ""
    corpus_digest: str = field(default="")

    @property
    def ok(self) -> bool:
        """Whether every fault dies, no correct engine is blamed, and no requirement or case is without a fault."""
        return all(row.ok for row in self.rows) and not self.without_fault and not self.vacuous

    def to_json(self) -> dict[str, Any]:
        """The kill matrix as data."""
        rows = [
            {
                **{name: value for name, value in asdict(row).items() if name != "changed"},
                "killed_by": dict(row.killed_by),
                "also": list(row.also),
                "killed": row.killed,
                "ok": row.ok,
            }
            for row in self.rows
        ]
        return {
            "edition": self.edition,
            "corpus_digest": self.corpus_digest,
            "ok": self.ok,
            "faults": sum(row.is_fault for row in self.rows),
            "killed": sum(row.is_fault and row.killed for row in self.rows),
            "without_fault": list(self.without_fault),
            "vacuous": list(self.vacuous),
            "seconds": self.seconds,
            "rows": rows,
        }


def run_selftest(
    contracts: Iterable[str] = (),
    *,
    on_result: Callable[[Row], None] = lambda row: None,
    jobs: int = 2,
    full: bool = False,
) -> Matrix:
    """Run the faults and the correct engines of these contracts, or of all, on their contract's cases.

    ``on_result`` sees each row when it is done; the matrix has them in the order in which the engines are listed.
    ``full`` runs every fault on every case, needed or not.
    """
    started = time.perf_counter()
    corpus = load()
    chosen = tuple(contracts) or corpus.contracts
    seeded = modules()
    if contracts:
        for contract in chosen:
            faults(contract)
    plans = {contract: _Plan(contract, full=full) for contract in chosen if contract in seeded}
    todo = [job for plan in plans.values() for job in plan.first()]
    found: dict[Seeded, Row] = {}
    for job, ran in _longest_first(todo, jobs):
        row, more = plans[job.engine.contract].take(job, ran)
        if row is not None:
            found[job.engine] = row
            on_result(row)
        for one in more:
            heapq.heappush(todo, one)
    rows = tuple(found[engine] for plan in plans.values() for engine in plan.engines)
    requirements = [one.id for one in corpus.requirements.values() if one.contract in chosen]
    broken = {row.requirement for row in rows if row.is_fault and row.killed}
    seen = {case for row in rows if row.is_fault for case in row.changed}
    return Matrix(
        rows=rows,
        without_fault=tuple(one for one in requirements if one not in broken),
        vacuous=tuple(case.id for case in corpus.cases if case.contract in chosen and case.id not in seen),
        seconds=time.perf_counter() - started,
        edition=corpus.edition,
        corpus_digest=corpus.digest,
    )


def small(case: Case) -> bool:
    """Whether a case is cheap; one that is not runs on correct engines, and on the faults that name it."""
    return len(case.steps) < MANY and all(largest(step.request) < LARGE for step in case.steps)


# --- what is to be run -------------------------------------------------------------------------------------------


@dataclass(frozen=True, order=True)
class _Job:
    """An engine, or the correct engine below a fault, and cases; jobs sort by what they are expected to cost."""

    less: float
    """Minus the seconds expected."""
    engine: Seeded
    cases: tuple[str, ...]
    watch: bool = False
    """Run the correct engine that the fault spoils, and see what each case uses of it."""


@dataclass(frozen=True)
class _Outcome:
    """What the self-test keeps of a result."""

    verdict: Verdict
    ratio: float | None
    seconds: float = field(compare=False)


@dataclass(frozen=True)
class _Ran:
    """What came of a job."""

    outcomes: Mapping[str, _Outcome]
    attributes: frozenset[str]
    """Attributes that the engine has in the end."""
    seconds: float
    reach: Reach | None = None


class _Plan:
    """The self-test of one contract: first its correct engines, then each fault on the cases that it can change."""

    def __init__(self, contract: str, *, full: bool) -> None:
        """Raises :class:`CorpusError` for a fault that names an unknown case."""
        self.cases = {case.id: case for case in load().select(contract=[contract])}
        self.engines = engines(contract)
        cheap = frozenset(name for name, case in self.cases.items() if small(case))
        self.wanted: dict[Seeded, frozenset[str]] = {}
        self.on_base: dict[type[EngineAdapter], list[Seeded]] = {}
        self.base: dict[Seeded, _Ran] = {}
        """The correct engine below each fault, once it has run."""
        for engine in self.engines:
            meant = getattr(engine.adapter, "killed_by", ())
            unknown = [name for name in meant if name not in self.cases]
            if unknown:
                raise CorpusError(f"the fault {engine.adapter.__name__} names the unknown case {unknown[0]!r}")
            self.wanted[engine] = frozenset(self.cases) if engine.kind == "CORRECT" else cheap | set(meant)
            spoiled = None if full or engine.kind == "CORRECT" else replaced(engine.adapter)
            if spoiled is not None:
                self.on_base.setdefault(spoiled.base, []).append(engine)

    def first(self) -> list[_Job]:
        """The correct engines, and the faults of which running them says nothing."""
        later = {engine for engines in self.on_base.values() for engine in engines}
        watched = [
            self._job(engines[0], frozenset().union(*(self.wanted[engine] for engine in engines)), watch=True)
            for engines in self.on_base.values()
        ]
        return watched + [self._job(engine, self.wanted[engine]) for engine in self.engines if engine not in later]

    def take(self, job: _Job, ran: _Ran) -> tuple[Row | None, list[_Job]]:
        """The row that a job has completed, and jobs that follow from it."""
        engine = job.engine
        if ran.reach is not None:
            return None, [self._fault(one, ran) for one in self._sharing(engine)]
        base = self.base.get(engine)
        outcomes = ran.outcomes
        if base is not None and base.reach is not None and len(outcomes) < len(self.wanted[engine]):
            if base.reach.misses(ran.attributes, outcomes):
                return None, [self._job(engine, self.wanted[engine])]
            outcomes = {name: ran.outcomes.get(name, base.outcomes[name]) for name in self.wanted[engine]}
        return self._row(engine, outcomes, ran.seconds), []

    def _sharing(self, engine: Seeded) -> list[Seeded]:
        return next(engines for engines in self.on_base.values() if engine in engines)

    def _fault(self, engine: Seeded, base: _Ran) -> _Job:
        """The fault on the cases that use what it replaces."""
        spoiled = replaced(engine.adapter)
        assert spoiled is not None
        assert base.reach is not None
        self.base[engine] = base
        chosen = base.reach.touched(spoiled) & self.wanted[engine]
        return self._job(engine, chosen, sum(base.outcomes[name].seconds for name in chosen))

    def _job(self, engine: Seeded, names: frozenset[str], seconds: float = math.inf, *, watch: bool = False) -> _Job:
        return _Job(-seconds, engine, tuple(name for name in self.cases if name in names), watch)

    def _row(self, engine: Seeded, unsorted: Mapping[str, _Outcome], seconds: float) -> Row:
        outcomes = {name: unsorted[name] for name in self.cases if name in unsorted}
        adapter = engine.adapter
        meant: tuple[str, ...] = getattr(adapter, "killed_by", ())
        requirement = engine.requirement
        verdicts = {name: outcome.verdict for name, outcome in outcomes.items()}
        ratios = [ratio for name in meant if (ratio := outcomes[name].ratio) is not None]
        return Row(
            contract=engine.contract,
            name=adapter.__name__,
            summary=engine.summary,
            requirement=requirement,
            killed_by={name: verdicts[name].value for name in meant},
            also=tuple(name for name, verdict in verdicts.items() if verdict in BLAME and name not in meant),
            on_target=any(requirement in self.cases[name].requirements for name in meant),
            changed=tuple(name for name, verdict in verdicts.items() if verdict in KILLS),
            passed=sum(verdict is Verdict.PASS for verdict in verdicts.values()),
            not_applicable=sum(verdict is Verdict.NOT_APPLICABLE for verdict in verdicts.values()),
            ratio=min(ratios, default=None),
            equivalent=getattr(adapter, "equivalent", ""),
            seconds=seconds,
        )


# --- running it --------------------------------------------------------------------------------------------------


def _longest_first(todo: list[_Job], jobs: int) -> Iterator[tuple[_Job, _Ran]]:
    """Run the jobs, and those that are pushed meanwhile, in this process or in several; each when it is done."""
    heapq.heapify(todo)
    if jobs == 1:
        while todo:
            job = heapq.heappop(todo)
            yield job, _run(job)
        return
    with workers(jobs, _cases) as pool:
        running: dict[Future[_Ran], _Job] = {}
        while todo or running:
            while todo and len(running) <= jobs:  # one more than there are processes, so that none waits
                job = heapq.heappop(todo)
                running[pool.submit(_run, job)] = job
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                yield running.pop(future), future.result()


@functools.cache
def _recipes() -> RecipeCache:
    """The expanded inputs of this process: hundreds of engines get the same."""
    return RecipeCache()


@functools.cache
def _cases() -> Mapping[str, Case]:
    return {case.id: case for case in load().cases}


def _run(job: _Job) -> _Ran:
    """Do a job, in any process."""
    started = time.perf_counter()
    corpus = load()
    cases = [_cases()[name] for name in job.cases]
    adapter = job.engine.adapter
    reach = None
    if job.watch:
        spoiled = replaced(adapter)
        assert spoiled is not None
        adapter = spoiled.base
        reach, results = trace(adapter, corpus, cases, _recipes())
        watched = _outcomes(results)
    engine = Open(adapter, _recipes())
    try:
        with np.errstate(all="ignore"):  # a fault divides by what it should not, and the judge is there to say so
            outcomes = _outcomes(run(Session(engine, corpus), cases).results)
    finally:
        engine.close()
    if reach is not None:
        reach = reach.with_all_in(name for name, outcome in outcomes.items() if outcome != watched[name])
    return _Ran(outcomes, engine.attributes, time.perf_counter() - started, reach)


def _outcomes(results: Sequence[Result]) -> dict[str, _Outcome]:
    return {
        one.case.id: _Outcome(one.verdict, one.finding.ratio if one.finding else None, one.seconds) for one in results
    }
