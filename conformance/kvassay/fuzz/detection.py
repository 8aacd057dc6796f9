"""Which seeded faults fuzzing finds on its own, after how many examples, and how short it makes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from ..adapters.local import InProcess
from ..corpus import load
from ..faults.seeded import Seeded, engines, faults, spread
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
    one = partial(_one, replace(options, max_findings=1))
    rows = []
    for row in spread(one, engines(options.contract), jobs):
        rows.append(row)
        on_row(row)
    return rows


def _one(options: Options, seeded: Seeded) -> Row:
    adapter = seeded.adapter
    engine = InProcess(adapter)
    try:
        summary = Fuzzer(engine, load(), options).run()
    finally:
        engine.close()
    bug = summary.bugs[0] if summary.bugs else None
    return Row(
        contract=options.contract,
        name=adapter.__name__,
        summary=seeded.summary,
        requirement=seeded.requirement,
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
