"""A run: every selected case judged on one engine, in order, with the run going on whatever the engine does."""

from __future__ import annotations

import datetime
import platform
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from .core.engine import Engine
from .core.judge import claimed, judge
from .core.model import Case, Finding, Result, Verdict
from .core.report import Report
from .corpus import Corpus

if TYPE_CHECKING:
    from .waivers import Waiver


def run(
    cases: Sequence[Case],
    engine: Engine,
    corpus: Corpus,
    *,
    on_start: Callable[[Case], None] = lambda case: None,
    on_result: Callable[[Result], None] = lambda result: None,
    waivers: Sequence[Waiver] = (),
    strict: bool = False,
    fail_fast: bool = False,
    deadline_scale: float = 1.0,
) -> Report:
    """Judge the cases on the engine, which is not closed. ``on_result`` sees each verdict once it is final.

    A verdict is final when the next case that runs has had its first reply: until then a second answer can still
    spoil it. Cases that do not run in between wait with it, so that the order is kept.
    """
    rules = corpus.rules(deadline_scale)
    started = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    clock = time.perf_counter()
    results: list[Result] = []
    waiting: list[Result] = []

    def settle() -> None:
        if waiting and waiting[0].exchanges:
            waiting[0] = spoiled(waiting[0], engine)
        for result in waiting:
            results.append(result)
            on_result(result)
        waiting.clear()

    for case in cases:
        on_start(case)
        result = judge(case, engine, rules)
        if result.exchanges:
            settle()
        waiting.append(result)
        if not waiting[0].exchanges:
            settle()
        if fail_fast and result.verdict in (Verdict.FAIL, Verdict.WRONG_REASON, Verdict.ERROR):
            break
    if waiting:
        engine.open()  # one exchange more, so that a second answer to the last case is seen
        settle()
    final: tuple[Result, ...] = tuple(results)
    findings: tuple[str, ...] = ()
    if waivers:
        from .waivers import apply

        final, findings = apply(final, waivers, datetime.date.today(), [case.id for case in corpus.cases])
    names = {case.profile for case in cases}
    own = claimed(engine.description, rules.profiles)
    return Report(
        engine=engine.description,
        results=final,
        corpus_edition=corpus.edition,
        corpus_digest=corpus.digest,
        spec_version=corpus.spec_version,
        environment=environment(),
        profiles={name: "claimed" if name in own else "not claimed" for name in sorted(names)},
        started=started,
        seconds=time.perf_counter() - clock,
        strict=strict,
        findings=findings,
    )


def spoiled(result: Result, engine: Engine) -> Result:
    """The result, or an error where a late answer shows that the engine answered this case twice."""
    late = engine.late()
    if late is None:
        return result
    return replace(result, verdict=Verdict.ERROR, finding=Finding(None, "", f"{late.kind}: {late.detail}"))


def environment(packages: Iterable[str] = ("kvassay", "numpy", "ml_dtypes")) -> dict[str, str]:
    """Versions and machine, as they stand in a report."""
    found = {"python": platform.python_version(), "platform": platform.platform(), "machine": platform.machine()}
    for name in packages:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found
