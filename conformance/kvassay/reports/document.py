"""The report as one JSON document: what ``schemas/report.json`` describes and every other form is drawn from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..core.engine import Broken, NotSupported, Refused, Returned
from ..core.model import Case, EngineDescription, Finding, Requirement, Result, Verdict
from ..core.report import fails
from .changes import changes
from .differences import EXACT, Difference, comparable, differences, meant
from .shorten import number, shorten, text, trace
from .written import as_written, resealed

if TYPE_CHECKING:
    from ..core.report import Report
    from ..corpus import Corpus

Document = dict[str, Any]

FORMAT = "kvassay-report-v1"
QUIET = frozenset({Verdict.PASS, Verdict.NOT_APPLICABLE})
"""Verdicts that need no exchange to be believed."""
SENTENCE = 2000
EXCHANGES = 16


def report(
    outcome: Report, corpus: Corpus, command: str, adapter: str, selection: Mapping[str, Sequence[str]]
) -> Document:
    """The whole run. ``command`` is the command line that repeats a case when ``--case ID`` is put after it.

    ``selection`` holds the values of the options that chose the cases, by option.
    """
    results = [result(item, corpus, command, strict=outcome.strict) for item in outcome.results]
    named = sorted({name for item in outcome.results for name in item.case.requirements})
    return {
        "format": FORMAT,
        "engine": engine(outcome.engine),
        "adapter": text(adapter),
        "selection": {name: list(values) for name, values in selection.items() if values},
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
        "requirements": requirements(corpus, named),
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


def requirements(corpus: Corpus, names: Iterable[str]) -> dict[str, Document]:
    """Requirements by id, as reports quote them."""
    return {name: _requirement(corpus.requirements[name]) for name in names if name in corpus.requirements}


def _requirement(item: Requirement) -> Document:
    return {
        "contract": item.contract,
        "level": item.level.value,
        "title": item.title,
        "text": item.text,
        "why": item.why,
        "chapter": item.chapter,
    }


def head(case: Case) -> Document:
    """What a case tests and where it belongs: what a row about it says behind its id, in reports as in lists."""
    return {
        "contract": case.contract,
        "requirements": list(case.requirements),
        "level": case.level.value,
        "kind": case.kind.value,
        "profile": case.profile,
        "status": case.status.value,
        "variant": case.variant,
    }


def result(item: Result, corpus: Corpus, command: str, *, strict: bool = False) -> Document:
    """One verdict with its evidence."""
    case = item.case
    loud = item.verdict not in QUIET
    return {
        "case": case.id,
        **head(case),
        "title": case.title,
        **({} if item.verdict is Verdict.NOT_APPLICABLE else {"given": case.given, "why": case.why}),
        "verdict": item.verdict.value,
        "fails": fails(item, strict=strict),
        "waived": None if item.waived is None else item.waived.value,
        "seconds": round(item.seconds, 6),
        "ratio": None if item.ratio is None else number(item.ratio),
        "finding": None if item.finding is None else finding(item.finding, item),
        "exchanges": exchanges(item, corpus.raw(case.id)) if loud else [],
        "repeat": f"{command} --case {case.id}",
    }


def exchanges(item: Result, written: Mapping[str, Any]) -> list[Document]:
    """The last calls: requests as the case writes them, tensors shortened, replies as they came."""
    steps, derived = written.get("steps", ()), resealed(written)
    first = max(0, len(item.exchanges) - EXCHANGES)
    kept = item.exchanges[first:]
    told = changes([one.request for one in kept])
    return [
        {
            "op": one.op,
            "request": as_written(steps[index]["request"] if index < len(steps) else None, one.request, derived),
            **({} if change is None else {"changes": change}),
            "reply": reply(one.reply),
            "seconds": round(one.seconds, 6),
        }
        for index, (one, change) in enumerate(zip(kept, told, strict=True), first)
    ]


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


def finding(item: Finding, whole: Result) -> Document:
    """The first thing that went wrong, with the elements that differ; the message alone where nothing ran."""
    if not whole.exchanges:
        return {"message": text(trace(item.message), SENTENCE)}
    expected, returned = comparable(item.expected, item.returned)
    if item.step is None and isinstance(returned, Mapping):
        returned = {name: meant(operand) for name, operand in returned.items()}
    shown, count = _differences(item, expected, returned)
    op = whole.exchanges[item.step].op if item.step is not None and item.step < len(whole.exchanges) else None
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


def _differences(item: Finding, expected: Any, returned: Any) -> tuple[tuple[Difference, ...], int]:
    """What differs between the two values that the finding is about; nothing if it is not about two values."""
    if item.step is not None:
        if isinstance(expected, str) or expected is None or returned is None:
            return (), 0
        return differences(expected, returned, item.limits or EXACT)
    if not isinstance(returned, Mapping) or not item.at.startswith(("close", "equal")):
        return (), 0
    first, *others = returned.values()
    for other in others:
        found = differences(first, other, item.limits or EXACT)
        if found[1]:
            return found
    return (), 0
