"""What a run found, and what follows from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from .model import EngineDescription, Level, Result, Status, Verdict

FAILURES = frozenset({Verdict.FAIL, Verdict.WRONG_REASON, Verdict.ERROR, Verdict.INCONCLUSIVE})

EXIT_OK, EXIT_FAILED, EXIT_USAGE, EXIT_ADAPTER = 0, 1, 2, 3


@dataclass(frozen=True)
class Report:
    """The results of one run in corpus order, with everything needed to repeat it."""

    engine: EngineDescription
    results: tuple[Result, ...]
    corpus_edition: str
    corpus_digest: str
    spec_version: str
    environment: Mapping[str, str]
    profiles: Mapping[str, str]
    """Profile of the selected cases to ``claimed`` or ``not claimed``."""
    started: str
    """UTC, ISO 8601."""
    seconds: float
    strict: bool = False
    seed: int = 0
    """Seed of whatever the run drew; the fixed corpus draws nothing."""
    findings: tuple[str, ...] = field(default=())
    """What is wrong with the run itself: stale waivers, late answers, profiles claimed and declined."""

    def counts(self) -> dict[Verdict, int]:
        """Results per verdict, every verdict named."""
        seen = Counter(result.verdict for result in self.results)
        return {verdict: seen[verdict] for verdict in Verdict}

    def fails(self, result: Result) -> bool:
        """Whether this result alone makes the run fail."""
        return fails(result, strict=self.strict)

    @property
    def judged(self) -> int:
        """Results that say something of the engine."""
        return sum(result.verdict is not Verdict.NOT_APPLICABLE for result in self.results)

    @property
    def ok(self) -> bool:
        """Whether no required case failed, and something was judged."""
        return self.exit_code == EXIT_OK

    @property
    def exit_code(self) -> int:
        """0 all required pass, 1 some failed, 2 no case applies to the engine."""
        if self.findings or any(map(self.fails, self.results)):
            return EXIT_FAILED
        return EXIT_OK if self.judged else EXIT_USAGE

    def __str__(self) -> str:
        """Verdict counts and the first failures, for an assertion message."""
        counted = ", ".join(f"{count} {verdict}" for verdict, count in self.counts().items() if count)
        failed = [result for result in self.results if self.fails(result)]
        lines = [f"{result.case.id}: {result.verdict}: {_message(result)}" for result in failed[:10]]
        more = [f"... and {len(failed) - 10} more"] if len(failed) > 10 else []
        return "\n".join([f"{self.engine.name} {self.engine.version}: {counted}", *lines, *more, *self.findings])


def fails(result: Result, *, strict: bool) -> bool:
    """Whether this verdict fails a run: a provisional case never does, a SHOULD only in a strict run."""
    if result.verdict is Verdict.UNEXPECTED_PASS:
        return True
    counted = result.case.status is Status.STABLE and (strict or result.case.level is Level.MUST)
    return result.verdict in FAILURES and counted


def declined(results: Iterable[Result]) -> tuple[str, ...]:
    """Profiles that the engine claims and then calls mostly unsupported, one sentence each."""
    called: dict[str, Counter[bool]] = {}
    for result in results:
        if result.ran:
            called.setdefault(result.case.profile, Counter())[result.unsupported] += 1
    return tuple(
        f"the engine claims the profile {name} and calls {seen[True]} of {seen.total()} cases of it unsupported"
        for name, seen in sorted(called.items())
        if seen[True] > seen[False]
    )


def _message(result: Result) -> str:
    return result.finding.message if result.finding else ""
