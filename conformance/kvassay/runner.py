"""A run: every selected case judged on one engine, in order, with the run going on whatever the engine does.

:class:`Session` is the one place that settles verdicts; the command line, the pytest plugin and the library drive it.
"""

from __future__ import annotations

import datetime
import functools
import platform
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version

from . import __version__
from .adapters.errors import AdapterError
from .adapters.smoke import smoke
from .core.collector import seldom_collected
from .core.engine import Engine, Late
from .core.judge import claimed, judge
from .core.model import Case, Finding, Result, Verdict
from .core.report import Report, declined, fails
from .corpus import Corpus
from .monitors import watch
from .waivers import Waiver, problems, waive

BLOCK = 24
"""Most cases that an engine takes at a time beside others: neighbours have inputs in common, which a worker keeps."""
SHARES = 4
"""Times at least that each engine comes back for more, so that all end at about the same time."""


class Session:
    """One engine under judgement.

    A verdict is final when the next case that runs has had its first reply: until then a second answer can still spoil
    it. Cases that do not run in between wait with it, so that the order is kept. An answer that comes later still is a
    finding of the run, and never another case's verdict.
    """

    def __init__(
        self,
        engine: Engine,
        corpus: Corpus,
        *,
        waivers: Sequence[Waiver] = (),
        strict: bool = False,
        deadline_scale: float = 1.0,
        probe: bool = False,
    ) -> None:
        """Make the smoke check; raises :class:`AdapterError` for a broken adapter.

        With ``probe`` calls are made, too, that the engine does not claim to withstand.
        """
        found = smoke(engine, corpus)
        if found:
            raise AdapterError("the adapter is broken: " + "; ".join(found))
        self.engine = engine
        self.corpus = corpus
        self.waivers = tuple(waivers)
        self.strict = strict
        self.rules = replace(corpus.rules(deadline_scale), watch=functools.partial(watch, probe=probe))
        self.today = datetime.date.today()
        self.results: list[Result] = []
        self._waiting: list[Result] = []
        self._ran: list[str] = []
        self.late: list[str] = []
        """Second answers to cases whose verdict was final, one sentence each."""
        self._started = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        self._clock = time.perf_counter()

    def judge(self, case: Case) -> tuple[Result, ...]:
        """Run one case; the verdicts that have become final, in order."""
        result = judge(case, self.engine, self.rules)
        settled: tuple[Result, ...] = ()
        if result.ran:
            self._ran.append(case.id)
            settled = self._settle()
        self._waiting.append(result)
        return settled if self._waiting[0].ran else settled + self._settle()

    def finish(self) -> tuple[Result, ...]:
        """Settle what waits. One more ``open`` shows a second answer to the last case."""
        if self._waiting:
            self._ran.append("")
            self.engine.open()
        return self._settle()

    def _settle(self) -> tuple[Result, ...]:
        for late in self.engine.late():
            self._attribute(late)
        settled = tuple(waive(result, self.waivers, self.today) for result in self._waiting)
        self._waiting.clear()
        self.results += settled
        return settled

    def _attribute(self, late: Late) -> None:
        """Spoil the case that was answered twice, if its verdict is not final yet."""
        problem = f"{late.problem.kind}: {late.problem.detail}"
        index = len(self._ran) - 1 - late.cases_ago
        name = self._ran[index] if index >= 0 else "the smoke check"
        if self._waiting and self._waiting[0].ran and self._waiting[0].case.id == name:
            spoiled = replace(self._waiting[0], verdict=Verdict.ERROR, finding=Finding(None, "", problem))
            self._waiting[0] = spoiled
        else:
            self.late.append(f"{name}: {problem}, after its verdict was final")

    def take_over(self, others: Iterable[Session], cases: Iterable[Case]) -> None:
        """Make what others found on their engines this session's own, in the order of these cases."""
        for other in others:
            self.results += other.results
            self.late += other.late
        place = {case.id: index for index, case in enumerate(cases)}
        self.results.sort(key=lambda result: place[result.case.id])

    def findings(self) -> tuple[str, ...]:
        """What is wrong with the run itself, beyond single verdicts."""
        ran = {result.case.id for result in self.results if result.verdict is not Verdict.NOT_APPLICABLE}
        known = [case.id for case in self.corpus.cases]
        selected = {result.case.id for result in self.results}
        stale = problems(self.waivers, self.today, known, ran, selected)
        return (*self.late, *declined(self.results), *stale)

    def report(self) -> Report:
        """The run as it stands, after :meth:`finish`."""
        own = claimed(self.engine.description, self.rules.profiles)
        names = sorted({result.case.profile for result in self.results})
        return Report(
            engine=self.engine.description,
            results=tuple(self.results),
            corpus_edition=self.corpus.edition,
            corpus_digest=self.corpus.digest,
            spec_version=self.corpus.spec_version,
            environment=environment(),
            profiles={name: "claimed" if name in own else "not claimed" for name in names},
            started=self._started,
            seconds=time.perf_counter() - self._clock,
            strict=self.strict,
            findings=self.findings(),
        )


def run(
    session: Session,
    cases: Sequence[Case],
    *,
    on_start: Callable[[Case], None] = lambda case: None,
    on_result: Callable[[Result], None] = lambda result: None,
    fail_fast: bool = False,
) -> Report:
    """Judge the cases; the engine is not closed. ``on_result`` sees each verdict once it is final.

    With ``fail_fast`` each verdict is settled at once, and the run ends at the first that fails it.
    """

    def tell(settled: Iterable[Result]) -> bool:
        failed = False
        for result in settled:
            on_result(result)
            failed |= fails(result, strict=session.strict)
        return failed

    with seldom_collected():
        for case in cases:
            on_start(case)
            settled = session.judge(case)
            if tell((*settled, *session.finish()) if fail_fast else settled) and fail_fast:
                break
        tell(session.finish())
    return session.report()


def run_side_by_side(
    sessions: Sequence[Session],
    cases: Sequence[Case],
    *,
    on_start: Callable[[Case], None] = lambda case: None,
    on_result: Callable[[Result], None] = lambda result: None,
    fail_fast: bool = False,
) -> Report:
    """As :func:`run`, with several engines of one kind, each of which judges a part of the cases.

    Verdicts, and ``on_result``, keep the order of the cases. With ``fail_fast`` no case begins after a failure; those
    that are under way are judged.
    """
    first, *others = sessions
    size = max(1, min(BLOCK, len(cases) // (SHARES * len(sessions))))
    blocks = (cases[begin : begin + size] for begin in range(0, len(cases), size))
    told = _InOrder(cases, on_result)
    lock, stop = threading.Lock(), threading.Event()

    def tell(settled: Sequence[Result]) -> None:
        with lock:
            told.add(settled)
            if fail_fast and any(fails(result, strict=first.strict) for result in settled):
                stop.set()

    def work(session: Session) -> None:
        while not stop.is_set():
            with lock:
                block = next(blocks, None)
            if block is None:
                break
            for case in block:
                if stop.is_set():
                    break
                with lock:
                    on_start(case)
                settled = session.judge(case)
                tell((*settled, *session.finish()) if fail_fast else settled)
        tell(session.finish())

    with seldom_collected(), ThreadPoolExecutor(len(sessions)) as pool:
        try:
            for finished in as_completed([pool.submit(work, session) for session in sessions]):
                finished.result()
        finally:
            stop.set()
    told.rest()
    first.take_over(others, cases)
    return first.report()


class _InOrder:
    """Tells verdicts in the order of the cases, in whatever order they come."""

    def __init__(self, cases: Sequence[Case], on_result: Callable[[Result], None]) -> None:
        self._untold = [case.id for case in reversed(cases)]
        self._on_result = on_result
        self._done: dict[str, Result] = {}

    def add(self, results: Iterable[Result]) -> None:
        """Keep verdicts, and tell those that no case before them keeps back."""
        self._done |= {result.case.id: result for result in results}
        while self._untold and self._untold[-1] in self._done:
            self._on_result(self._done[self._untold.pop()])

    def rest(self) -> None:
        """Tell what is left when no more come."""
        for name in reversed(self._untold):
            if name in self._done:
                self._on_result(self._done[name])


def environment(packages: Iterable[str] = ("numpy", "ml_dtypes")) -> dict[str, str]:
    """Versions and machine, as they stand in a report."""
    found = {
        "kvassay": __version__,
        "python": platform.python_version(),
        "platform": platform.system(),
        "machine": platform.machine(),
    }
    for name in packages:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found
