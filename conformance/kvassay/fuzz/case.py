"""A finding as a case file: the fixture format, so that every program that reads cases can replay it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..core.model import Json, Requirement
from ..core.template import bound_names
from ..corpus import Corpus
from ..corpus.digest import digest
from ..monitors.requirements import requirements
from .contract import Contract, Step
from .trial import Trial, Wrong

MOST_SLUG = 60
REJECTED = "rejected for "


def document(case: Mapping[str, Json], contract: Contract) -> dict[str, Any]:
    """A fixture file of one case."""
    source = Path(__file__).parents[1].joinpath(*contract.account.split(".")[1:]).with_suffix(".py")
    return {
        "format": "kvassay-fixture-v1",
        "provenance": {
            "author": "kvassay fuzz",
            "oracle": contract.account,
            "oracle_sha256": hashlib.sha256(source.read_bytes()).hexdigest(),
        },
        "cases": [dict(case)],
        "digest": digest([dict(case)]),
    }


def case(trial: Trial, steps: Sequence[Step], wrong: Wrong, corpus: Corpus) -> dict[str, Any]:
    """A sequence that fails, with what the account expects of each step."""
    contract, description = trial.contract, trial.engine.description
    trial.explain = True
    try:
        trial.run(steps)
    finally:
        trial.explain = False
    expected = trial.expected if len(trial.expected) == len(steps) else [{"accepts": True}] * len(steps)
    told = str(wrong.finding.expected)
    if told.startswith(REJECTED):
        expected = [*expected[:-1], {"rejects": told.removeprefix(REJECTED)}]
    used = {name for step in steps for name in bound_names(step.request)}
    written = [_step(contract, step, expect, used) for step, expect in zip(steps, expected, strict=True)]
    written[-1]["note"] = wrong.reason
    requirement = requirement_of(corpus, contract.name, wrong, wrong.reason.partition(" in ")[0])
    needs = {name: [description.capabilities[name]] for name in sorted(trial.needs)}
    slug = re.sub(r"[^a-z0-9]+", "-", wrong.reason.lower()).strip("-")[:MOST_SLUG].strip("-")
    return {
        "id": f"{contract.name}/fuzz/{slug}-{digest(written)[:8]}",
        "requirements": [requirement.id],
        "level": "must",
        "profile": contract.profile(frozenset(step.op for step in steps), description),
        "kind": "scenario",
        "status": "stable",
        **({"needs": needs} if needs else {}),
        "title": wrong.reason,
        "given": f"A sequence that fuzzing found and shrank: {', '.join(step.op for step in steps)}.",
        "why": requirement.why or requirement.text,
        "steps": written,
    }


def _step(contract: Contract, step: Step, expect: Mapping[str, Json], used: set[str]) -> dict[str, Any]:
    bound = {name: pointer for name, pointer in step.bind.items() if name in used}
    bind = {"bind": bound} if bound else {}
    return {"op": step.op, "request": dict(contract.written(step)), "expect": dict(expect), **bind}


def requirement_of(corpus: Corpus, contract: str, wrong: Wrong, rule: str) -> Requirement:
    """The requirement that the finding is most likely about; where none can be told, one that the op's cases test."""
    for name in requirements(contract, wrong.op, rule, wrong.finding):
        return corpus.requirements[name]
    own = [case for case in corpus.cases if case.contract == contract]
    near = next((case for case in own if wrong.op in case.ops), own[0] if own else corpus.cases[0])
    return corpus.requirements[near.requirements[0]]
