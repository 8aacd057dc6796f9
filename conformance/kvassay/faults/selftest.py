"""The suite judged by faults: which case kills which, and whether a correct engine is ever blamed.

A fault counts as killed only by the cases that it names, each with ``fail`` or ``wrong-reason``; a crash kills nothing.
"""

from __future__ import annotations

import importlib
import pkgutil
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import Any

from ..adapters.base import EngineAdapter
from ..adapters.local import InProcess
from ..core.model import Case, Verdict
from ..core.tensors import largest
from ..corpus import CorpusError, load
from ..runner import Session, run

LARGE = 1 << 23
"""Elements of a tensor from which on a case is not run for each fault."""
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


def modules() -> dict[str, Any]:
    """Contract to its module of faults."""
    package = importlib.import_module(__package__)
    names = [info.name for info in pkgutil.iter_modules(package.__path__) if info.name != "selftest"]
    found = {name: importlib.import_module(f"{__package__}.{name}") for name in names}
    return {name: module for name, module in found.items() if hasattr(module, "FAULTS")}


def faults(contract: str) -> tuple[type[EngineAdapter], ...]:
    """The seeded faults of one contract."""
    known = modules()
    if contract not in known:
        raise CorpusError(f"no faults are seeded for {contract!r}; there are for {', '.join(known)}")
    seeded: tuple[type[EngineAdapter], ...] = known[contract].FAULTS
    return seeded


def run_selftest(
    contracts: Iterable[str] = (), *, on_result: Callable[[Row], None] = lambda row: None, jobs: int = 2
) -> Matrix:
    """Run every fault and every correct engine of these contracts, or of all, on the contract's cases."""
    started = time.perf_counter()
    corpus = load()
    chosen = tuple(contracts) or corpus.contracts
    seeded = modules()
    if contracts:
        for contract in chosen:
            faults(contract)
    work = [
        (contract, kind, index)
        for contract in chosen
        if contract in seeded
        for kind in ("CORRECT", "FAULTS")
        for index in range(len(getattr(seeded[contract], kind)))
    ]
    rows: list[Row] = []
    with ProcessPoolExecutor(jobs) as pool:
        for row in pool.map(_one, work) if jobs > 1 else map(_one, work):
            rows.append(row)
            on_result(row)
    requirements = [one.id for one in corpus.requirements.values() if one.contract in chosen]
    broken = {row.requirement for row in rows if row.is_fault and row.killed}
    seen = {case for row in rows if row.is_fault for case in row.changed}
    return Matrix(
        rows=tuple(rows),
        without_fault=tuple(one for one in requirements if one not in broken),
        vacuous=tuple(case.id for case in corpus.cases if case.contract in chosen and case.id not in seen),
        seconds=time.perf_counter() - started,
        edition=corpus.edition,
        corpus_digest=corpus.digest,
    )


def small(case: Case) -> bool:
    """Whether a case is cheap; one that is not runs on correct engines, and on the faults that name it."""
    return all(largest(step.request) < LARGE for step in case.steps)


def _one(job: tuple[str, str, int]) -> Row:
    contract, kind, index = job
    adapter = getattr(modules()[contract], kind)[index]
    corpus = load()
    meant: tuple[str, ...] = getattr(adapter, "killed_by", ())
    cases = [
        case for case in corpus.select(contract=[contract]) if kind == "CORRECT" or case.id in meant or small(case)
    ]
    engine = InProcess(adapter)
    started = time.perf_counter()
    try:
        report = run(Session(engine, corpus), cases)
    finally:
        engine.close()
    results = {result.case.id: result for result in report.results}
    unknown = [case for case in meant if case not in results]
    if unknown:
        raise CorpusError(f"the fault {adapter.__name__} names the unknown case {unknown[0]!r}")
    requirement = getattr(adapter, "requirement", "")
    ratios = [results[case].finding.ratio for case in meant if results[case].finding]  # type: ignore[union-attr]
    return Row(
        contract=contract,
        name=adapter.__name__,
        summary=(adapter.__doc__ or "").strip().partition("\n")[0],
        requirement=requirement,
        killed_by={case: results[case].verdict.value for case in meant},
        also=tuple(name for name, result in results.items() if result.verdict in BLAME and name not in meant),
        on_target=any(requirement in results[case].case.requirements for case in meant),
        changed=tuple(name for name, result in results.items() if result.verdict in KILLS),
        passed=sum(result.verdict is Verdict.PASS for result in results.values()),
        not_applicable=sum(result.verdict is Verdict.NOT_APPLICABLE for result in results.values()),
        ratio=min((ratio for ratio in ratios if ratio is not None), default=None),
        equivalent=getattr(adapter, "equivalent", ""),
        seconds=time.perf_counter() - started,
    )
