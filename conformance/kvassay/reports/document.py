"""The report as one JSON document: what ``schemas/report.json`` describes and every other form is drawn from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..core.engine import Broken, NotSupported, Refused, Returned
from ..core.model import EngineDescription, Exchange, Finding, Level, Requirement, Result, Status, Verdict
from .differences import comparable, differences
from .shorten import number, shorten, text, trace

if TYPE_CHECKING:
    from ..core.report import Report

Document = dict[str, Any]

FORMAT = "kvassay-report-v1"
QUIET = frozenset({Verdict.PASS, Verdict.NOT_APPLICABLE})
"""Verdicts that need no exchange to be believed."""
FAILING = frozenset({Verdict.FAIL, Verdict.WRONG_REASON, Verdict.INCONCLUSIVE, Verdict.ERROR})
"""Verdicts that fail the run when the case counts, and are a warning otherwise."""
SENTENCE = 2000
EXCHANGES = 16


def report(outcome: Report, requirements: Mapping[str, Requirement], command: str) -> Document:
    """The whole run. ``command`` is the command line that repeats a case when ``--case ID`` is put after it."""
    results = [result(item, command, strict=outcome.strict) for item in outcome.results]
    named = sorted({name for item in outcome.results for name in item.case.requirements})
    return {
        "format": FORMAT,
        "engine": engine(outcome.engine),
        "corpus": {
            "edition": outcome.corpus_edition,
            "spec_version": outcome.spec_version,
            "digest": outcome.corpus_digest,
            "contracts": sorted({item.case.contract for item in outcome.results}),
        },
        "environment": {str(key): text(str(value)) for key, value in sorted(outcome.environment.items())},
        "command": command,
        "seed": outcome.seed,
        "started": outcome.started,
        "seconds": round(outcome.seconds, 3),
        "strict": outcome.strict,
        "exit_code": outcome.exit_code,
        "counts": {verdict.value: count for verdict, count in outcome.counts().items() if count},
        "profiles": dict(outcome.profiles),
        "findings": [text(line) for line in outcome.findings],
        "requirements": {name: requirement(requirements[name]) for name in named if name in requirements},
        "results": results,
    }


def engine(description: EngineDescription) -> Document:
    """What the engine said of itself."""
    return {
        "name": text(description.name, 120),
        "version": text(description.version, 120),
        "language": text(description.language, 60),
        "homepage": text(description.homepage, 200),
        "notes": text(description.notes, SENTENCE),
        "ops": sorted(text(op, 80) for op in description.ops),
        "states": [text(state, 80) for state in description.states],
        "variants": sorted(text(variant, 80) for variant in description.variants),
        "capabilities": shorten(dict(description.capabilities)),
    }


def requirement(item: Requirement) -> Document:
    """One requirement as reports quote it."""
    return {
        "contract": item.contract,
        "level": item.level.value,
        "title": item.title,
        "text": item.text,
        "why": item.why,
        "chapter": item.chapter,
    }


def result(item: Result, command: str, *, strict: bool = False) -> Document:
    """One verdict with its evidence."""
    case = item.case
    return {
        "case": case.id,
        "contract": case.contract,
        "requirements": list(case.requirements),
        "level": case.level.value,
        "kind": case.kind.value,
        "profile": case.profile,
        "status": case.status.value,
        "variant": case.variant,
        "title": case.title,
        "given": case.given,
        "why": case.why,
        "verdict": item.verdict.value,
        "fails": fails(item, strict=strict),
        "waived": None if item.waived is None else item.waived.value,
        "seconds": round(item.seconds, 6),
        "ratio": None if item.ratio is None else number(item.ratio),
        "finding": None if item.finding is None else finding(item.finding, item.exchanges),
        "exchanges": [] if item.verdict in QUIET else [exchange(one) for one in item.exchanges[-EXCHANGES:]],
        "repeat": f"{command} --case {case.id}",
    }


def fails(item: Result, *, strict: bool) -> bool:
    """Whether this verdict fails the run: a provisional case never does, a SHOULD only in a strict run."""
    if item.verdict is Verdict.UNEXPECTED_PASS:
        return True
    counted = item.case.status is Status.STABLE and (strict or item.case.level is Level.MUST)
    return item.verdict in FAILING and counted


def exchange(item: Exchange) -> Document:
    """One call, tensors shortened."""
    return {
        "op": item.op,
        "request": shorten(item.request),
        "reply": reply(item.reply),
        "seconds": round(item.seconds, 6),
    }


def reply(item: Any) -> Document:
    """What came back, by its kind."""
    if isinstance(item, Returned):
        return {"result": shorten(item.value)}
    if isinstance(item, Refused):
        reason = None if item.reason is None else text(item.reason, 120)
        return {"rejected": {"reason": reason, "detail": text(trace(item.detail), SENTENCE)}}
    if isinstance(item, NotSupported):
        return {"unsupported": {"detail": text(trace(item.detail), SENTENCE)}}
    if isinstance(item, Broken):
        return {"error": {"kind": item.kind, "detail": text(trace(item.detail), SENTENCE)}}
    return {"result": shorten(item)}


def finding(item: Finding, exchanges: tuple[Exchange, ...]) -> Document:
    """The first thing that went wrong, with the elements that differ."""
    expected, returned = comparable(item.expected, item.returned)
    sides = _sides(item, expected, returned)
    shown, count = differences(*sides) if sides is not None else ((), 0)
    op = exchanges[item.step].op if item.step is not None and item.step < len(exchanges) else None
    return {
        "step": item.step,
        "op": op,
        "at": text(item.at, 200),
        "message": text(trace(item.message), SENTENCE),
        "expected": shorten(expected),
        "returned": shorten(returned),
        "ratio": None if item.ratio is None else number(item.ratio),
        "differing": count,
        "differences": [
            {"path": list(one.path), "expected": one.expected, "returned": one.returned} for one in shown if one.path
        ],
    }


def _sides(item: Finding, expected: Any, returned: Any) -> tuple[Any, Any] | None:
    """The two values to compare element by element, if the finding is about two such values."""
    if item.step is None:
        operands = list(returned.values()) if isinstance(returned, Mapping) else []
        return (operands[0], operands[1]) if len(operands) > 1 and item.at.startswith(("close", "equal")) else None
    plain = isinstance(expected, str) or expected is None or returned is None
    return None if plain else (expected, returned)
