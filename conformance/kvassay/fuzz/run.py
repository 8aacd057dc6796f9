"""A fuzzing run: examples from a seed; findings are shrunk where they come up, and the run goes on for others."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ..core.engine import Engine
from ..core.model import EngineDescription, Json
from ..core.report import EXIT_FAILED, EXIT_OK, EXIT_USAGE
from ..corpus import Corpus, CorpusError
from . import case as cases
from .contract import Contract, Draw, Illegal, Rule, Step, find
from .shrink import MOST_ATTEMPTS, SLOW_ATTEMPTS, Act, Recorded, Shrinker
from .trial import DEADLINE_S, Found, Trial, Wrong

T = TypeVar("T")


@dataclass(frozen=True)
class Options:
    """What a run is asked to do."""

    contract: str
    examples: int = 500
    steps: int = 30
    """Rules that are tried in one example; a rule may make several calls or, where none is legal, none."""
    seed: int = 0
    probe: bool = False
    """Whether calls that the engine does not claim to withstand are made, too."""
    time_budget_s: float | None = None
    max_findings: int = 20
    deadline_scale: float = 1.0
    swarm: int = 50
    """Percent of examples in which only some of the rules are used."""


@dataclass(frozen=True)
class Bug:
    """One kind of wrong reply, with the shortest sequence that shows it."""

    wrong: Wrong
    example: int
    """Number of the example in which it came up first, counted from 1."""
    length: int
    """Calls of that example up to it."""
    steps: tuple[Step, ...]
    """After shrinking; the whole sequence where it does not come again."""
    repeats: bool
    case: Mapping[str, Json] = field(repr=False)

    @property
    def reason(self) -> str:
        """What is wrong, and in which op."""
        return self.wrong.reason


@dataclass
class Summary:
    """What a run came to."""

    options: Options
    engine: EngineDescription
    examples: int = 0
    calls: int = 0
    """Calls in examples; those of shrinking are not counted."""
    seconds: float = 0.0
    ended: str = "examples"
    """``examples``, ``time``, ``findings`` or ``engine``: what ended it."""
    bugs: list[Bug] = field(default_factory=list)
    unsupported: list[str] = field(default_factory=list)
    """Ops that the engine declares and called unsupported."""

    @property
    def exit_code(self) -> int:
        """Status of a command: nothing found, something found, or not a single call made."""
        if self.bugs:
            return EXIT_FAILED
        return EXIT_OK if self.calls else EXIT_USAGE

    def to_json(self) -> dict[str, Any]:
        """The summary as data."""
        return {
            "contract": self.options.contract,
            "engine": {"name": self.engine.name, "version": self.engine.version},
            "mode": "probe" if self.options.probe else "claimed",
            "seed": self.options.seed,
            "examples": self.examples,
            "calls": self.calls,
            "seconds": round(self.seconds, 3),
            "ended": self.ended,
            "unsupported": self.unsupported,
            "findings": [
                {
                    "reason": bug.reason,
                    "verdict": bug.wrong.verdict.value,
                    "message": bug.wrong.finding.message,
                    "example": bug.example,
                    "calls": bug.length,
                    "steps": len(bug.steps),
                    "repeats": bug.repeats,
                    "case": bug.case["id"],
                }
                for bug in self.bugs
            ],
        }


class Stop(Exception):
    """Ends the run from within an example."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


class RandomDraw:
    """Choices of one example, all equally likely."""

    def __init__(self, seed: int, example: int) -> None:
        self._random = random.Random(f"{seed}/{example}").random

    def pick(self, options: Sequence[T]) -> T:
        """One of several."""
        return options[int(self._random() * len(options))]

    def integer(self, low: int, high: int) -> int:
        """A whole number."""
        return low + int(self._random() * (high - low + 1))

    def chance(self, percent: int) -> bool:
        """Never at 0, always at 100."""
        return self._random() * 100 < percent


class Fuzzer:
    """One run."""

    def __init__(
        self,
        engine: Engine,
        corpus: Corpus,
        options: Options,
        *,
        on_example: Callable[[Summary], None] = lambda summary: None,
        on_bug: Callable[[Bug], None] = lambda bug: None,
    ) -> None:
        """Raises :class:`CorpusError` for an unknown contract, and for an engine that does not have it."""
        self.contract: Contract = find(options.contract)
        unfit = self.contract.unfit(engine.description)
        if unfit is not None:
            raise CorpusError(f"{engine.description.name} cannot be fuzzed on {options.contract}: {unfit}")
        self.corpus = corpus
        self.options = options
        self.trial = Trial(engine, self.contract, probe=options.probe, deadline_s=DEADLINE_S * options.deadline_scale)
        self.summary = Summary(options, engine.description)
        self.known: set[str] = set()
        self.acts: list[Act] = []
        """What was done since the engine was opened."""
        self._on_example, self._on_bug = on_example, on_bug
        self._started = time.monotonic()

    def run(self) -> Summary:
        """Fuzz until the examples, the time or the permitted findings are used up."""
        try:
            for number in range(1, self.options.examples + 1):
                self.summary.examples = number
                self._example(RandomDraw(self.options.seed, number))
                self._on_example(self.summary)
        except Stop as stop:
            self.summary.ended = stop.why
        self.summary.seconds = time.monotonic() - self._started
        self.summary.unsupported = sorted(self.trial.refused)
        return self.summary

    def _example(self, draw: Draw) -> None:
        """One sequence of rules; what is wrong in it is dealt with on the spot, and the engine opened anew."""
        self._begin(draw)
        for _ in range(self.options.steps):
            self._in_time()
            self._step(draw)

    def _begin(self, draw: Draw) -> None:
        recorded = Recorded(draw)
        try:
            self.trial.open()
            self.trial.scene.begin(recorded)
            self.acts = [Act("", tuple(recorded.choices))]
            self.names = self._swarm(draw)
        except Found as found:
            self._found(found.wrong)
            raise Stop("engine") from None

    def _swarm(self, draw: Draw) -> list[str]:
        """Names of the rules that are used until the next opening, each as often as it weighs; often not all."""
        rules = self.trial.scene.rules
        some = draw.chance(self.options.swarm)
        chosen = [name for name in rules if not some or draw.chance(60)] or list(rules)
        return [name for name in chosen for _ in range(rules[name][0])]

    def _step(self, draw: Draw) -> None:
        name = draw.pick(self.names)
        rule: Rule = self.trial.scene.rules[name][1]
        recorded, before = Recorded(draw), self.trial.calls
        wrong: Wrong | None = None
        try:
            rule(recorded)
        except Illegal:
            pass
        except Found as found:
            wrong = found.wrong
        self.summary.calls += self.trial.calls - before
        self.acts.append(Act(name, tuple(recorded.choices)))
        if wrong is not None:
            self._found(wrong)
            self._begin(draw)

    def _found(self, wrong: Wrong) -> None:
        if wrong.reason in self.known:
            return
        self.known.add(wrong.reason)
        whole = tuple(self.trial.steps)
        attempts = SLOW_ATTEMPTS if wrong.reason.startswith("timeout") else MOST_ATTEMPTS
        shrunk = Shrinker(self.trial, self.acts, wrong.reason, attempts).run() if whole else None
        steps = whole if shrunk is None else tuple(shrunk)
        bug = Bug(
            wrong=(self.trial.run(steps) if shrunk else None) or wrong,
            example=self.summary.examples,
            length=len(whole),
            steps=steps,
            repeats=shrunk is not None,
            case=cases.case(self.trial, steps, wrong, self.corpus) if steps else {"id": ""},
        )
        self.summary.bugs.append(bug)
        self._on_bug(bug)
        if len(self.summary.bugs) >= self.options.max_findings:
            raise Stop("findings")

    def _in_time(self) -> None:
        budget = self.options.time_budget_s
        if budget is not None and time.monotonic() - self._started > budget:
            raise Stop("time")
