"""Ops of which each request has one right reply: the reference gives it, and the fuzzer compares."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..core.engine import Refused, Reply, Returned
from ..core.expect import Outcome
from ..core.model import EngineDescription, Json, Verdict
from ..core.tensors import write
from ..monitors.replay import Replay, tolerance


class Replayed:
    """The reference beside an engine, from its opening on."""

    def __init__(self, description: EngineDescription) -> None:
        self._reference = Replay(description)
        self._answer: Reply | None = None
        """To a call that is about to be made."""

    def expect(self, op: str, request: Mapping[str, Json]) -> dict[str, Json]:
        """The right reply to the next call as a case writes it: a reason, exact members, or bounded numbers."""
        self._answer = reply = self._reference.answer(op, request)
        if isinstance(reply, Refused):
            return {"rejects": reply.reason}
        if not isinstance(reply, Returned) or not reply.value:
            return {"accepts": True}
        close = [
            {"at": at, "value": value, "bound": {"float64": dict(tolerance(op, request, reply.value, at))}}
            for at, value in leaves(reply.value)
            if isinstance(value, float)
        ]
        exact = [{"at": f"/{name}", "value": write(value)} for name, value in reply.value.items()]
        return {"close": close} if close else {"equals": exact}

    def observe(self, op: str, request: Mapping[str, Json], reply: Reply) -> tuple[Outcome, Reply]:
        """How the engine's reply compares, and the right one."""
        right, self._answer = self._answer or self._reference.answer(op, request), None
        outcome = self._reference.compare(op, request, right, reply)
        if outcome.verdict is Verdict.INCONCLUSIVE:
            raise RuntimeError(f"the reference fails on {op}: {outcome.finding}")
        return outcome, right


def reason(outcome: Outcome) -> str:
    """What was accepted or rejected against its reason, or the member that differs."""
    finding = outcome.finding
    assert finding is not None
    if finding.at:
        return f"wrong {finding.at.split('/')[1]}"
    message = finding.message.partition(" (")[0]
    return f"{message}, {finding.expected}" if outcome.verdict is Verdict.WRONG_REASON else message


def leaves(value: Any, at: str = "") -> Iterator[tuple[str, Any]]:
    """Every number, text and truth value of a result, with its pointer."""
    items = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else None
    if items is None:
        yield at, value
        return
    for key, item in items:
        yield from leaves(item, f"{at}/{key}")
