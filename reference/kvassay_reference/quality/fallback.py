"""What may be done before anything is published: a table of guards, and attempts that walk through it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ..memory.rows import require

Json = Mapping[str, Any]


BLANKS = frozenset(" \t\r\n")


def named(version: str) -> bool:
    """Whether a policy's version says something: a character that is no blank."""
    return not BLANKS.issuperset(version)


@dataclass(frozen=True)
class Gate:
    """What an estimate must meet."""

    max_omitted_mass: float
    min_confidence: float
    source: str
    generation: int

    def check(self, estimate: Json) -> None:
        """Refuse an estimate that this gate was not calibrated for."""
        require(estimate["source"] != "dense_reference", "DENSE_MASS_ONLINE", "only an offline judge knows it")
        require(estimate["source"] == self.source, "GATE_EVIDENCE_MISMATCH", f"the gate takes {self.source}")
        require(estimate["generation"] == self.generation, "STALE_GATE_EVIDENCE", f"the gate is of {self.generation}")

    def uncertain(self, estimate: Json) -> bool:
        """Whether the estimate fails; a value that equals its limit does not."""
        return bool(estimate["omitted_mass"] > self.max_omitted_mass or estimate["confidence"] < self.min_confidence)


@dataclass(frozen=True)
class State:
    """What is known of a request before it publishes."""

    exactness: str
    degraded_allowed: bool
    phase: str
    estimate: Json
    widen: Json | None
    exact_fetch: Json | None
    recompute: Json | None
    retry: Json | None
    candidate_budget: int
    staging_budget_bytes: int
    slack_ms: float

    @classmethod
    def read(cls, said: Json) -> State:
        """A state from its JSON form."""
        return cls(**{name: said[name] for name in cls.__dataclass_fields__})

    @property
    def exact(self) -> bool:
        """Whether nothing but exact output may be published."""
        return self.exactness == "exact"


Guard = Callable[[State, Gate], bool]


def is_certain(state: State, gate: Gate) -> bool:
    """An approximate request whose estimate passes."""
    return not state.exact and not gate.uncertain(state.estimate)


def can_widen(state: State, gate: Gate) -> bool:
    """A first search that was not good enough, and a wider one within the budget."""
    wider = state.widen is not None and state.widen["candidates"] <= state.candidate_budget
    return wider and state.phase == "initial" and gate.uncertain(state.estimate)


def can_fetch(state: State, gate: Gate) -> bool:
    """All rows in time and in staging."""
    way = state.exact_fetch
    return way is not None and way["ms"] <= state.slack_ms and way["bytes"] <= state.staging_budget_bytes


def can_recompute(state: State, gate: Gate) -> bool:
    """K and V anew in time."""
    return state.recompute is not None and state.recompute["ms"] <= state.slack_ms


def can_wait(state: State, gate: Gate) -> bool:
    """An exact retry that ends in time."""
    return state.retry is not None and state.retry["window_ms"] <= state.slack_ms


def may_degrade(state: State, gate: Gate) -> bool:
    """The request declared it, and was not promised exact output."""
    return state.degraded_allowed and not state.exact


def always(state: State, gate: Gate) -> bool:
    """Nothing else is left."""
    return True


class Row(NamedTuple):
    """One row of the table."""

    action: str
    guard: Guard
    publishes: str
    final: bool


TABLE = (
    Row("ACCEPT_APPROXIMATE", is_certain, "approximate", True),
    Row("WIDEN_SEARCH", can_widen, "nothing", False),
    Row("FULL_EXACT_FETCH", can_fetch, "exact", True),
    Row("RECOMPUTE_EXACT", can_recompute, "exact", True),
    Row("POSTPONE_FOR_EXACT_RETRY", can_wait, "nothing", False),
    Row("ACCEPT_DECLARED_DEGRADED", may_degrade, "degraded", True),
    Row("REJECT_NO_LEGAL_PATH", always, "nothing", True),
)
"""The first row whose guard holds is taken."""
ROWS = {row.action: row for row in TABLE}


def choose(state: State, gate: Gate, table: tuple[Row, ...] = TABLE) -> Row:
    """The first row whose guard holds."""
    return next(row for row in table if row.guard(state, gate))


def next_phase(row: Row, phase: str) -> str:
    """A search is widened once."""
    return "post_widen" if row.action == "WIDEN_SEARCH" else phase


@dataclass
class Attempt:
    """One query from its first search to one publication or none."""

    number: int
    policy: Json
    exactness: str
    degraded_allowed: bool
    gate: Gate
    staging_budget_bytes: int
    deadline_ms: float
    now_ms: float
    phase: str = "initial"
    actions: list[str] = field(default_factory=list)
    published: str | None = None
    over: bool = False

    def check_open(self, at_ms: float) -> None:
        """Refuse a step of an attempt that has ended, or one that is earlier than the one before."""
        require(self.published is None, "ALREADY_PUBLISHED", f"as {self.published}")
        require(not self.over, "ATTEMPT_REJECTED", "no legal path was left")
        require(at_ms >= self.now_ms, "CLOCK_WENT_BACK", f"{at_ms} after {self.now_ms}")

    def state(self, said: Json) -> State:
        """What is known now, with what holds for the whole attempt."""
        return State(
            self.exactness,
            self.degraded_allowed,
            self.phase,
            said["estimate"],
            said["widen"],
            said["exact_fetch"],
            said["recompute"],
            said["retry"],
            self.policy["candidate_budget"],
            self.staging_budget_bytes,
            self.deadline_ms - said["at_ms"],
        )

    def take(self, row: Row, at_ms: float) -> None:
        """Go on by one row of the table."""
        self.now_ms = at_ms
        self.phase = next_phase(row, self.phase)
        self.actions.append(row.action)
        self.over = row.final
        if row.publishes != "nothing":
            self.published = row.publishes
