"""Cases judged again from the trace of a run: the replies stand there, the expectations in the corpus.

Rows are digests on both sides. A case whose expectations need numbers of arrays cannot be judged so, nor one that has
changed since; those are passed over.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ..core.engine import Broken, Late, NotSupported, Reply
from ..core.expect import Accepts, AnyOf, Close, Rejects
from ..core.judge import judge
from ..core.model import Case, EngineDescription, Finding, Level, Step, Verdict
from ..corpus import load
from ..corpus.ops import ops
from .record import plain

TENSOR = "urn:kvassay:tensor"
OFFENCES = (Verdict.FAIL, Verdict.WRONG_REASON)


@dataclass(frozen=True)
class Failed:
    """A case that the trace shows to fail."""

    case: Case
    line: int
    op: str
    finding: Finding


@dataclass
class Playback:
    """An engine that answers what stands in a trace. What does not follow the case is not answered."""

    description: EngineDescription
    replies: list[tuple[int, str, Reply]] = field(default_factory=list)
    made: int = 0

    def open(self) -> Broken | None:
        """The trace begins with a fresh engine."""
        return None

    def call(self, op: str, request: Mapping[str, Any], deadline_s: float) -> Reply:
        """The next reply."""
        if self.made == len(self.replies) or self.replies[self.made][1] != op:
            return NotSupported("the trace holds no reply to this call")
        self.made += 1
        return self.replies[self.made - 1][2]

    def late(self) -> tuple[Late, ...]:
        """A trace has each answer once."""
        return ()

    def close(self) -> None:
        """Nothing was started."""


@functools.cache
def find(name: str) -> Case | None:
    """A case of the corpus in the form that traces can be held to; ``None`` where there is none."""
    case = next((case for case in load().cases if case.id == name), None)
    if case is None:
        return None
    steps = [_step(step) for step in case.steps]
    whole = tuple(step for step in steps if step is not None)
    return replace(case, steps=whole) if len(whole) == len(steps) else None


def again(case: Case, playback: Playback, *, strict: bool) -> Failed | None:
    """What the judge makes of the replies: a failure of what must hold, or with ``strict`` of what should."""
    if case.level is not Level.MUST and not strict:
        return None
    rules = replace(load().rules(), check_result=lambda op, value: None)
    # It ran, so the engine claims what the case needs; a header says nothing of profiles.
    playback.description = replace(playback.description, profiles=frozenset(rules.profiles))
    result = judge(case, playback, rules)
    if result.verdict not in OFFENCES or result.finding is None or not playback.made:
        return None
    line, op, _ = playback.replies[playback.made - 1]
    return Failed(case, line, op, result.finding)


def _step(step: Step) -> Step | None:
    """A step whose exact rows are digests; ``None`` where it wants numbers of arrays."""
    expect = step.expect
    if isinstance(expect, Close):
        return None if returns_arrays(step.op) else step
    if isinstance(expect, AnyOf):
        rows = [[{**row, "value": plain(row["value"])} for row in one] for one in expect.alternatives]
        return replace(step, expect=replace(expect, alternatives=rows))
    return step if isinstance(expect, Accepts | Rejects) else None


@functools.cache
def returns_arrays(op: str) -> bool:
    """Whether results of an op hold arrays."""
    return TENSOR in json.dumps(ops()[op].schema["$defs"]["response"])
