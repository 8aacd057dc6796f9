"""A monitor for contracts whose replies follow from the calls: the built-in reference makes every call, too.

It serves the fuzzer and the trace checker. The judge does not use it: what a case expects comes from the oracle.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..adapters.base import EngineAdapter
from ..adapters.local import InProcess
from ..core import tensors
from ..core.compare import NotComparable, close, numbers, same
from ..core.engine import Broken, NotSupported, Refused, Reply, Returned
from ..core.expect import PASS, Outcome, fail
from ..core.model import EngineDescription, Finding, Json, Verdict
from ..corpus.data import fixture_module
from ..engines.reference import Reference

REPLAYED = frozenset({"lifecycle", "offload"})
"""Contracts in which every request has one right reply, so that a monitor of their own would say nothing more."""
EXACT: Mapping[str, float] = {"rtol": 0.0, "atol": 0.0}

Tolerance = Callable[[str], Mapping[str, float]]
"""Pointer into a result to the bound of the number that stands there."""


class Replay:
    """One opening of an engine, beside one of the reference.

    Members that the reference returns must be there with the same value, and no others; numbers within the bound that
    the contract's oracle writes into cases. A refusal must be a refusal, with ``strict`` for the same reason. With
    ``partial`` the members that the reply shows are compared and the others are not missed, as in a trace.
    """

    def __init__(
        self,
        description: EngineDescription,
        *,
        strict: bool = True,
        partial: bool = False,
        reference: type[EngineAdapter] = Reference,
    ) -> None:
        own = {
            "capabilities": {**reference.capabilities, **description.capabilities},
            "variants": reference.variants & description.variants or reference.variants,
        }
        self.model = InProcess(type(reference.__name__, (reference,), own))
        self.model.open()
        self.strict = strict
        self.partial = partial

    def answer(self, op: str, request: Mapping[str, Json]) -> Reply:
        """What the reference says to the next call."""
        return self.model.call(op, request, 0.0)

    def bars(self, op: str, request: Mapping[str, Json]) -> None:
        """Nothing: an engine of these contracts withstands every call."""

    def observe(self, op: str, request: Mapping[str, Json], reply: Reply) -> Outcome:
        """Make the call on the reference and compare; a call that the engine cannot do is made on neither."""
        if isinstance(reply, NotSupported | Broken):
            return PASS
        return self.compare(op, request, self.answer(op, request), reply)

    def compare(self, op: str, request: Mapping[str, Json], want: Reply, reply: Reply) -> Outcome:
        """The engine's reply beside the reference's."""
        if isinstance(want, Refused):
            return self._refused(want, reply)
        if not isinstance(want, Returned):
            return Outcome(Verdict.INCONCLUSIVE, Finding(None, "", f"the reference cannot say: {want.detail}"))
        if isinstance(reply, Refused):
            told = reply.reason or "no mapped reason"
            return fail(f"a legal request was rejected: {told}", "a result", told)
        assert isinstance(reply, Returned)
        return self._member(want.value, reply.value, "", lambda at: tolerance(op, request, want.value, at))

    def _refused(self, want: Refused, reply: Reply) -> Outcome:
        shown = f"rejected for {want.reason}"
        if isinstance(reply, Returned):
            return fail(f"accepted what must be rejected for {want.reason}", shown, reply.value)
        assert isinstance(reply, Refused)
        if reply.reason == want.reason or not self.strict:
            return PASS
        told = reply.reason or "no mapped reason"
        return Outcome(Verdict.WRONG_REASON, Finding(None, "", f"rejected for {told}", shown, told))

    def _member(self, want: Json, got: Json, at: str, bound: Tolerance) -> Outcome:
        """The first member that differs."""
        if isinstance(want, Mapping) and isinstance(got, Mapping):
            for name, value in want.items():
                if name in got:
                    outcome = self._member(value, got[name], f"{at}/{name}", bound)
                    if outcome is not PASS:
                        return outcome
                elif not self.partial:
                    return fail(f"the result lacks {at}/{name}", value, got, at=f"{at}/{name}")
            for name in got.keys() - want.keys():
                return fail(f"{at}/{name} does not belong here", None, got[name], at=f"{at}/{name}")
            return PASS
        if isinstance(want, list) and isinstance(got, list) and len(want) == len(got):
            for index, (one, other) in enumerate(zip(want, got, strict=True)):
                outcome = self._member(one, other, f"{at}/{index}", bound)
                if outcome is not PASS:
                    return outcome
            return PASS
        return PASS if same(want, got) else _near(want, got, at, bound)


def _near(want: Json, got: Json, at: str, bound: Tolerance) -> Outcome:
    """Two values that are not the same: numbers within the bound of their place, or a failure."""
    if not (_rounded(want) or _rounded(got)):
        return fail(f"{at or 'the result'} differs", want, got, at=at)
    try:
        difference = close(numbers(got).array, numbers(want).array, bound(at), at)
    except NotComparable as problem:
        return fail(f"{at}: {problem}", want, got, at=at)
    return PASS if difference.agrees else fail(difference.message, want, got, at=at, ratio=difference.ratio)


def _rounded(value: Json) -> bool:
    """Whether a value is a number that arithmetic may have rounded."""
    return isinstance(value, float) or (isinstance(value, np.ndarray) and value.dtype.kind not in "biu")


def tolerance(op: str, request: Mapping[str, Json], result: Mapping[str, Json], at: str) -> Mapping[str, float]:
    """The bound that the contract's oracle gives to the number at a pointer; exact where it gives none."""
    find = _bounds(op.partition(".")[0])
    if find is None:
        return EXACT
    rows: Mapping[str, Mapping[str, float]] = find(op, tensors.write(request), tensors.write(result), at)
    return max(rows.values(), key=lambda row: (row["rtol"], row["atol"]))


@functools.cache
def _bounds(contract: str) -> Callable[..., Any] | None:
    try:
        oracle = fixture_module(f"{contract}.oracle").Oracle()
    except ModuleNotFoundError:
        return None
    found: Callable[..., Any] | None = getattr(oracle, "bound", None)
    return found


def replay(contract: str, description: EngineDescription, **options: Any) -> Replay | None:
    """A monitor for one opening of an engine; ``None`` for a contract of which the replies are not determined."""
    return Replay(description, **options) if contract in REPLAYED else None
