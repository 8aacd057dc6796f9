"""Which seeded faults fuzzing finds on its own, after how many examples, and how short it makes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from typing import Any

from ..adapters.local import InProcess
from ..corpus import load
from ..faults.selftest import faults, modules
from .run import Fuzzer, Options

SILENT = "fuzz_silent"
"""Attribute of a fault that says why its defect cannot show to fuzzing."""


@dataclass(frozen=True)
class Row:
    """One engine: a fault, or a correct engine."""

    contract: str
    name: str
    summary: str
    requirement: str
    """Empty for a correct engine."""
    reason: str
    """What was found first; empty when nothing was."""
    examples: int
    """Until it was found, or all that there were."""
    calls: int
    """Calls of the example up to the wrong reply."""
    steps: int
    """After shrinking."""
    silent: str
    """Why nothing can be found; empty where something must be."""

    @property
    def found(self) -> bool:
        """Whether there was a finding."""
        return bool(self.reason)

    @property
    def ok(self) -> bool:
        """Faults are found, correct engines are blamed for nothing."""
        return self.found == bool(self.requirement and not self.silent)


def detect(options: Options, *, jobs: int = 2, on_row: Callable[[Row], None] = lambda row: None) -> list[Row]:
    """Fuzz every correct engine and every fault of a contract until its first finding."""
    faults(options.contract)  # an unknown contract is refused before the first engine starts
    one = replace(options, max_findings=1)
    kinds = ("CORRECT", "FAULTS")
    work = [(one, kind, i) for kind in kinds for i in range(len(getattr(modules()[one.contract], kind)))]
    rows = []
    for row in _rows(work, jobs):
        rows.append(row)
        on_row(row)
    return rows


def _rows(work: list[tuple[Options, str, int]], jobs: int) -> Iterator[Row]:
    if jobs == 1:
        yield from map(_one, work)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(_one, work)


def _one(job: tuple[Options, str, int]) -> Row:
    options, kind, index = job
    adapter = getattr(modules()[options.contract], kind)[index]
    engine = InProcess(adapter)
    try:
        summary = Fuzzer(engine, load(), options).run()
    finally:
        engine.close()
    bug = summary.bugs[0] if summary.bugs else None
    return Row(
        contract=options.contract,
        name=adapter.__name__,
        summary=(adapter.__doc__ or "").strip().partition("\n")[0],
        requirement=getattr(adapter, "requirement", ""),
        reason=bug.reason if bug else "",
        examples=bug.example if bug else summary.examples,
        calls=bug.length if bug else 0,
        steps=len(bug.steps) if bug else 0,
        silent=getattr(adapter, SILENT, "") or getattr(adapter, "equivalent", ""),
    )


def to_json(rows: list[Row], options: Options) -> dict[str, Any]:
    """The table as data."""
    seeded = [row for row in rows if row.requirement]
    return {
        "contract": options.contract,
        "seed": options.seed,
        "examples": options.examples,
        "steps": options.steps,
        "faults": len(seeded),
        "found": sum(row.found for row in seeded),
        "rows": [{**asdict(row), "found": row.found} for row in rows],
    }
