"""The words of the suite as frozen data: requirements, reasons, cases, engines, verdicts, results."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .expect import Expectation

Json = Any
"""A JSON value in which a tensor may stand as a NumPy array or a :class:`~kvassay.core.tensors.Recipe`."""
SCALARS = frozenset({str, int, float, bool, type(None)})
"""Types of values that hold no others: most of a document is of these, so a walk need not look into them."""


class Verdict(enum.StrEnum):
    """What the judge says of one case."""

    PASS = "pass"
    FAIL = "fail"
    WRONG_REASON = "wrong-reason"
    NOT_APPLICABLE = "not-applicable"
    INCONCLUSIVE = "inconclusive"
    ERROR = "error"
    WAIVED = "waived"
    UNEXPECTED_PASS = "unexpected-pass"


class Level(enum.StrEnum):
    """How binding a case is; a failed SHOULD is a warning unless the run is strict."""

    MUST = "must"
    SHOULD = "should"


class Status(enum.StrEnum):
    """Whether a case counts in this edition of the corpus."""

    STABLE = "stable"
    PROVISIONAL = "provisional"


class Kind(enum.StrEnum):
    """How a case shows its requirement."""

    EXAMPLE = "example"
    """Expected values from the oracle."""
    MUTATION = "mutation"
    """Document form: the base is accepted, the base with one change is rejected for one reason."""
    SCENARIO = "scenario"
    """A sequence of calls after which no wrong row may be served; needs no validator of our documents."""
    RELATION = "relation"
    """Responses are compared with each other, never with an expected value."""


@dataclass(frozen=True)
class Requirement:
    """One numbered sentence of a chapter."""

    id: str
    contract: str
    level: Level
    title: str
    text: str
    why: str
    sources: tuple[str, ...]
    """Section marks of the article, such as ``01H``."""
    chapter: str
    """Path of the chapter below the data root, such as ``spec/identity.md``."""


@dataclass(frozen=True)
class Reason:
    """One typed rejection."""

    code: str
    contract: str
    plane: str
    meaning: str
    action: str


@dataclass(frozen=True)
class Repeat:
    """How often a step is made: ``times``, or as often as a bound value says, and ``plus``."""

    times: int | str
    """A number, or the name of a bound value."""
    plus: int = 0

    def count(self, bound: Mapping[str, Json]) -> int | None:
        """The number; ``None`` when the bound value is none, as of an engine that does not know."""
        times = bound.get(self.times) if isinstance(self.times, str) else self.times
        return times + self.plus if isinstance(times, int) and not isinstance(times, bool) else None


@dataclass(frozen=True)
class Step:
    """One call of one op and what is expected of the reply."""

    op: str
    request: Mapping[str, Json]
    expect: Expectation
    bind: Mapping[str, str] = field(default_factory=dict)
    """Name to JSON pointer into the result; later steps use ``{"$bind": name}``."""
    witness: tuple[Mapping[str, Json], ...] = ()
    """``{"at": pointer, "minimum": number}``: below it the case is inconclusive."""
    deadline_s: float = 10.0
    repeat: Repeat | None = None
    note: str = ""
    dynamic: bool = True
    """Whether the request holds bound values or literal states, which are put in place before each call."""


@dataclass(frozen=True)
class Case:
    """One judged piece of data; see ``schemas/case.json`` for what each field holds."""

    id: str
    contract: str
    requirements: tuple[str, ...]
    level: Level
    profile: str
    kind: Kind
    status: Status
    title: str
    given: str
    why: str
    steps: Sequence[Step]
    relations: tuple[Mapping[str, Json], ...] = ()
    needs: Mapping[str, tuple[Json, ...]] = field(default_factory=dict)
    """Capability name to the declared values under which the case applies."""
    variant: str | None = None
    mutation: Mapping[str, Json] | None = None
    """What was changed in the base document: base, op, path, value, resealed, rejected_by."""

    @property
    def ops(self) -> frozenset[str]:
        """Every op that the case calls, controls included."""
        return frozenset(step.op for step in self.steps)


@dataclass(frozen=True)
class EngineDescription:
    """What an engine says of itself before the first call; see ``schemas/engine.json``."""

    name: str
    version: str
    ops: frozenset[str]
    profiles: frozenset[str] | None = None
    """Profiles claimed; ``None`` means each profile all of whose ops are supported."""
    states: tuple[str, ...] = ()
    """State schemas spoken, the preferred one first: ``fp32-m-l-u-v1``, ``o-lse-v1/e``, ``o-lse-v1/2``."""
    variants: frozenset[str] = frozenset()
    capabilities: Mapping[str, Json] = field(default_factory=dict)
    homepage: str = ""
    language: str = ""
    notes: str = ""


@dataclass(frozen=True)
class Finding:
    """Why a case did not pass: the first thing that went wrong."""

    step: int | None
    """Index of the step, or ``None`` for a relation."""
    at: str
    """JSON pointer into the result, or the relation's name."""
    message: str
    expected: Json = None
    returned: Json = None
    ratio: float | None = None
    """Largest error over its bound, for numeric comparisons."""
    limits: Mapping[str, Json] | None = None
    """The tolerance that the ratio was measured by; for a state one for ``out`` and one for ``lse``."""


@dataclass(frozen=True)
class Exchange:
    """One step as it happened, for the report."""

    op: str
    request: Json
    reply: Json
    seconds: float


@dataclass(frozen=True)
class Result:
    """A verdict with its evidence."""

    case: Case
    verdict: Verdict
    finding: Finding | None = None
    exchanges: tuple[Exchange, ...] = ()
    seconds: float = 0.0
    ratio: float | None = None
    """Largest error over its bound that was seen, also on a pass."""
    waived: Verdict | None = None
    """The verdict that a waiver covers."""

    ran: bool = False
    """Whether the case was opened on the engine, or was barred before."""
    unsupported: bool = False
    """Whether the engine itself called the case unsupported, although it claims the profile."""
