"""A finding as a case file: the fixture format, so that every program that reads cases can replay it."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..core.expect import Close
from ..core.model import Json, Requirement
from ..corpus import Corpus
from ..corpus.digest import digest
from .contract import Contract, Step
from .trial import Trial, Wrong

MOST_SLUG = 60


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
    written = [_step(contract, step, expect) for step, expect in zip(steps, expected, strict=True)]
    written[-1]["note"] = wrong.reason
    requirement = requirement_of(corpus, contract.name, wrong, expected[-1])
    needs = {name: [description.capabilities[name]] for name in sorted(trial.needs)}
    slug = re.sub(r"[^a-z0-9]+", "-", wrong.reason.lower()).strip("-")[:MOST_SLUG].strip("-")
    return {
        "id": f"{contract.name}/fuzz/{slug}-{digest(written)[:8]}",
        "requirements": [requirement.id],
        "level": "must",
        "profile": contract.profile(wrong.op, description),
        "kind": "scenario",
        "status": "stable",
        **({"needs": needs} if needs else {}),
        "title": wrong.reason,
        "given": f"A sequence that fuzzing found and shrank: {', '.join(step.op for step in steps)}.",
        "why": requirement.why or requirement.text,
        "steps": written,
    }


def _step(contract: Contract, step: Step, expect: Mapping[str, Json]) -> dict[str, Any]:
    bind = {"bind": dict(step.bind)} if step.bind else {}
    return {"op": step.op, "request": dict(contract.written(step)), "expect": dict(expect), **bind}


def requirement_of(corpus: Corpus, contract: str, wrong: Wrong, expect: Mapping[str, Json]) -> Requirement:
    """The requirement that most of the cases test which call the op and expect the same thing of it."""
    code = expect.get("rejects")
    at = wrong.finding.at.split("/")[1] if "/" in wrong.finding.at else ""
    near: Counter[str] = Counter()
    for known in corpus.cases:
        for step in known.steps if known.contract == contract else ():
            if step.op != wrong.op:
                continue
            weight = 1
            if code is not None and step.expect.reason == code:
                weight = 1000
            elif code is None and at and at in _members(step.expect):
                weight = 100
            near.update(dict.fromkeys(known.requirements, weight))
    if near:
        return corpus.requirements[near.most_common(1)[0][0]]
    return next(one for one in corpus.requirements.values() if one.contract == contract)


def _members(expect: Any) -> Iterable[str]:
    """First parts of the pointers that an expectation names."""
    if isinstance(expect, Close):
        pointers = [row.at for row in expect.rows]
    else:
        pointers = [row["at"] for rows in getattr(expect, "alternatives", ()) for row in rows]
    for pointer in pointers:
        yield pointer.split("/")[1] if "/" in pointer else pointer
