"""What a reply must be: one class per kind of expectation, each of which judges, explains and describes itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from .compare import Difference, NotComparable, close, numbers, same, tolerance
from .engine import Refused
from .model import Finding, Json, Verdict
from .pointers import Missing, resolve
from .states import MEANING, is_state, meaning
from .support import Support
from .support import read as read_support
from .tensors import Array


@dataclass(frozen=True)
class Outcome:
    """What one step or relation comes to."""

    verdict: Verdict
    finding: Finding | None = None
    ratio: float | None = None

    @property
    def holds(self) -> bool:
        """Whether the case goes on."""
        return self.verdict is Verdict.PASS


PASS = Outcome(Verdict.PASS)


def fail(
    message: str,
    expected: Json = None,
    returned: Json = None,
    *,
    at: str = "",
    ratio: float | None = None,
    limits: Mapping[str, Json] | None = None,
) -> Outcome:
    """A failure of the engine; the step is filled in by the judge."""
    return Outcome(Verdict.FAIL, Finding(None, at, message, expected, returned, ratio, limits), ratio)


@dataclass(frozen=True)
class Expectation:
    """Common to all kinds: whether a rejection is as good, and what a reply that does not hold comes to."""

    may_reject: bool = False
    otherwise: Verdict = Verdict.FAIL
    """``inconclusive`` for a step that only sets the scene."""
    on_reject: Verdict | None = None
    """``inconclusive`` where an engine may refuse, such as for want of room, and the case then shows nothing."""
    kind: ClassVar[str]

    @property
    def reason(self) -> str | None:
        """The reason of a rejection that is asked for."""
        return None

    @property
    def shown(self) -> Json:
        """The expectation as a report shows it."""
        return "a result"

    def describe(self) -> str:
        """One phrase for lists of steps."""
        return self._described() + (" or is rejected" if self.may_reject else "")

    def _described(self) -> str:
        return "is accepted"

    def returned(self, value: Json, carried: frozenset[str]) -> Outcome:
        """Judge a result. ``carried`` are the dtypes of bound values, whose rounding a reply may show."""
        return self._soften(self._returned(value, carried))

    def refused(self, reply: Refused) -> Outcome:
        """Judge a rejection."""
        if self.may_reject:
            return PASS
        outcome = self._soften(self._refused(reply))
        return outcome if self.on_reject is None or outcome.holds else replace(outcome, verdict=self.on_reject)

    def _returned(self, value: Json, carried: frozenset[str]) -> Outcome:
        return PASS

    def _refused(self, reply: Refused) -> Outcome:
        got = reply.reason or "no mapped reason"
        return fail(_with(f"a legal request was rejected: {got}", reply.detail), self.shown, got)

    def _soften(self, outcome: Outcome) -> Outcome:
        if outcome.verdict in (Verdict.FAIL, Verdict.WRONG_REASON) and self.otherwise is not Verdict.FAIL:
            return replace(outcome, verdict=self.otherwise)
        return outcome


@dataclass(frozen=True)
class Accepts(Expectation):
    """Any result of the op's schema."""

    kind: ClassVar[str] = "accepts"


@dataclass(frozen=True)
class Rejects(Expectation):
    """A rejection for exactly one reason."""

    code: str = ""
    kind: ClassVar[str] = "rejects"

    @property
    def reason(self) -> str:
        """The reason."""
        return self.code

    @property
    def shown(self) -> Json:
        """In words."""
        return f"rejected for {self.code}"

    def _described(self) -> str:
        return f"is rejected for {self.code}"

    def _returned(self, value: Json, carried: frozenset[str]) -> Outcome:
        return fail(f"accepted what must be rejected for {self.code}", self.shown, value)

    def _refused(self, reply: Refused) -> Outcome:
        if reply.reason == self.code:
            return PASS
        got = reply.reason or "no mapped reason"
        finding = Finding(None, "", _with(f"rejected for {got}", reply.detail), self.shown, got)
        return Outcome(Verdict.WRONG_REASON, finding)


Rows = Sequence[Mapping[str, Json]]


@dataclass(frozen=True)
class AnyOf(Expectation):
    """One of these conjunctions of exact values holds; a single one is written ``equals``."""

    alternatives: Sequence[Rows] = field(default=())
    kind: ClassVar[str] = "any_of"

    @property
    def shown(self) -> Json:
        """Pointer to value; a list of those where there are several outcomes."""
        shown = [{row["at"] or "/": row["value"] for row in rows} for rows in self.alternatives]
        return shown[0] if len(shown) == 1 else shown

    def _described(self) -> str:
        pointers = sorted({row["at"] for rows in self.alternatives for row in rows})
        how = "exactly" if len(self.alternatives) == 1 else f"as one of {len(self.alternatives)} outcomes"
        return f"returns {', '.join(pointers)} {how}"

    def _returned(self, value: Json, carried: frozenset[str]) -> Outcome:
        outcomes = [_exact(rows, value) for rows in self.alternatives]
        if any(outcome.holds for outcome in outcomes) or len(outcomes) == 1:
            return next((outcome for outcome in outcomes if outcome.holds), outcomes[0])
        first = outcomes[0].finding
        assert first is not None
        message = f"none of {len(outcomes)} legal outcomes; for the first, {first.message}"
        return fail(message, self.shown, value, at=first.at)


def _exact(rows: Rows, value: Json) -> Outcome:
    for row in rows:
        try:
            found = resolve(value, row["at"])
        except Missing:
            if row.get("optional"):
                continue
            return fail(f"the result lacks {row['at']}", row["value"], value, at=row["at"])
        if not same(found, row["value"]):
            return fail(f"{row['at']} differs", row["value"], found, at=row["at"])
    return PASS


@dataclass(frozen=True)
class Near:
    """Expected float64 values at a pointer, with a bound per dtype: an array, or ``out`` and ``lse`` of a state."""

    at: str
    value: Array | Mapping[str, Array]
    bound: Mapping[str, Json]
    optional: bool = False
    """Judged where it stands in the reply; it need not."""
    side: str = ""
    """``at-least`` or ``at-most`` where the value bounds the returned one from one side only."""


@dataclass(frozen=True)
class Close(Expectation):
    """Numbers within their bounds; a state is compared by its meaning."""

    rows: Sequence[Near] = ()
    kind: ClassVar[str] = "close"

    @property
    def shown(self) -> Json:
        """The expected values by pointer."""
        return {row.at: row.value for row in self.rows}

    def _described(self) -> str:
        named = (f"{row.at} if any" if row.optional else row.at for row in self.rows)
        return f"returns {', '.join(named)} within the bound"

    def _returned(self, value: Json, carried: frozenset[str]) -> Outcome:
        worst = 0.0
        for row in self.rows:
            try:
                found = resolve(value, row.at)
            except Missing:
                if row.optional:
                    continue
                return fail(f"the result lacks {row.at}", row.value, value, at=row.at)
            try:
                difference, limits = near(found, row, carried)
            except NotComparable as problem:
                return fail(str(problem), row.value, found, at=row.at)
            if not difference.agrees:
                return fail(difference.message, row.value, found, at=row.at, ratio=difference.ratio, limits=limits)
            worst = max(worst, difference.ratio)
        return Outcome(Verdict.PASS, ratio=worst)


@dataclass(frozen=True)
class Selects(Close):
    """A selection that keeps what it must, whichever rule made it, and numbers beside it as :class:`Close` has them."""

    supports: Sequence[Support] = ()
    kind: ClassVar[str] = "selects"

    @property
    def shown(self) -> Json:
        """What each place must hold."""
        return {**{support.at: "a selection that keeps its floors" for support in self.supports}, **super().shown}

    def _described(self) -> str:
        named = ", ".join(support.at for support in self.supports)
        return f"selects at {named} what keeps its floors" + (f" and {super()._described()}" if self.rows else "")

    def _returned(self, value: Json, carried: frozenset[str]) -> Outcome:
        for support in self.supports:
            try:
                found = resolve(value, support.at)
            except Missing:
                return fail(f"the result lacks {support.at}", self.shown, value, at=support.at)
            told = support.problem(found)
            if told:
                return fail(f"{support.at}: {told}", self.shown, found, at=support.at)
        return super()._returned(value, carried) if self.rows else PASS


def near(found: Json, row: Near, carried: frozenset[str] = frozenset()) -> tuple[Difference, Mapping[str, Json]]:
    """The worst disagreement of a returned value with an expected one, and the tolerance that measured it.

    Raises :class:`NotComparable`.
    """
    carried = carried & row.bound.keys()
    if not isinstance(row.value, Mapping):
        got = numbers(found)
        limits = tolerance(row.bound, got.dtypes | carried)
        want = row.value
        if row.side and got.array.shape == want.shape:
            # What lies on the legal side counts as equal; NaN lies on neither.
            fine = got.array >= want if row.side == "at-least" else got.array <= want
            want = np.where(fine, got.array, want)
        return close(got.array, want, limits), limits
    if not is_state(found):
        raise NotComparable("a state belongs here")
    parts = meaning(found)
    limits = tolerance(row.bound, parts["out"].dtypes | carried)
    differences = [close(parts[name].array, row.value[name], limits[name], name) for name in MEANING]
    return max(differences, key=lambda difference: difference.ratio), limits


def _with(message: str, detail: str) -> str:
    return f"{message} ({detail})" if detail else message


def _near(row: Mapping[str, Any]) -> Near:
    return Near(row["at"], row["value"], row["bound"], row.get("optional", False), row.get("side", ""))


def _selects(value: Mapping[str, Any], terms: Mapping[str, Any]) -> Selects:
    return Selects(
        **terms,
        rows=tuple(map(_near, value.get("close", ()))),
        supports=tuple(map(read_support, value["supports"])),
    )


PARSERS: dict[str, Callable[[Any, Mapping[str, Any]], Expectation]] = {
    "accepts": lambda value, terms: Accepts(**terms),
    "rejects": lambda value, terms: Rejects(**terms, code=value),
    "equals": lambda value, terms: AnyOf(**terms, alternatives=(value,)),
    "any_of": lambda value, terms: AnyOf(**terms, alternatives=value),
    "close": lambda value, terms: Close(**terms, rows=tuple(map(_near, value))),
    "selects": _selects,
}
"""Member of a case's ``expect`` to the expectation that it stands for."""


def parse(expect: Mapping[str, Any]) -> Expectation:
    """An expectation from its JSON, tensors already read; ``schemas/case.json`` says what it may hold."""
    terms = {
        "may_reject": expect.get("may_reject", False),
        "otherwise": Verdict(expect.get("else", Verdict.FAIL)),
        "on_reject": Verdict(expect["on_reject"]) if "on_reject" in expect else None,
    }
    (kind,) = expect.keys() & PARSERS.keys()
    return PARSERS[kind](expect[kind], terms)
