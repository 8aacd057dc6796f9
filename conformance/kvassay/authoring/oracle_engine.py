"""An oracle behind the interface of engines, so that the judge can run the corpus against it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..core import tensors
from ..core.engine import Broken, Late, Refused, Reply, Returned
from ..core.model import EngineDescription
from ..corpus.data import fixture_module
from ..corpus.digest import digest
from ..corpus.errors import CorpusError
from ..corpus.ops import find, ops
from . import sources
from .answers import Answers

Json = dict[str, Any]
STATES = ("fp32-m-l-u-v1",)


class OracleEngine:
    """One contract's oracle. What it answered before, after the same calls, is not derived again.

    ``capabilities`` are what the case needs; an oracle whose answers hang on them has an attribute of that name.
    """

    def __init__(self, contract: str, base: Path, answers: Answers, capabilities: Json) -> None:
        self._make = fixture_module(f"{contract}.oracle").Oracle
        self._base = base
        self._allowed = frozenset(sources.read(contract, base))
        self._sources = sources.digest([*sources.own(contract, base), *sorted(self._allowed)])
        self._answers = answers
        own = (one.name for one in ops().values() if hasattr(self._make, one.method))
        self.description = EngineDescription("oracle", "1", frozenset(own), states=STATES, capabilities=capabilities)
        self.open()

    def open(self) -> Broken | None:
        """A fresh oracle."""
        self._oracle = self._make()
        if hasattr(self._oracle, "capabilities"):
            self._oracle.capabilities = self.description.capabilities
        self._past = ""
        """Digest of the calls so far."""
        self._waiting: list[tuple[str, Json]] = []
        """Calls that the oracle has not seen, because their answers were known."""
        return None

    def call(self, op: str, request: Mapping[str, Any], deadline_s: float = 0.0) -> Reply:
        """One op; the request's arrays go to the oracle as JSON."""
        reason, value = self.answer(op, tensors.write(request))
        return Refused(reason, str(value)) if reason is not None else Returned(tensors.read(value))

    def answer(self, op: str, request: Json) -> tuple[str | None, Any]:
        """Reason and detail of a rejection, or ``None`` and the JSON result."""
        stateless = getattr(self._make, "stateless", False)
        told = self.description.capabilities if hasattr(self._make, "capabilities") else {}
        question = ["answer", self._sources, "" if stateless else self._past, op, request, *([told] if told else [])]
        if not stateless:
            self._past = digest(question)
            self._waiting.append((op, request))
        reason, value = self._answers.get(question, lambda: self._ask([(op, request)] if stateless else self._waiting))
        return reason, value

    def bound(self, op: str, request: Json, result: Any, pointer: str) -> Json:
        """Tolerance of the value at a pointer of a result."""
        return self._derive("bound", op, request, result, pointer)

    def relation_bound(self, relation: Json, steps: list[tuple[str, Json, Any]]) -> Json:
        """Tolerance of a relation over the results of these steps."""
        return self._derive("relation_bound", relation, steps)

    def late(self) -> tuple[Late, ...]:
        """Never."""
        return ()

    def close(self) -> None:
        """Nothing to end."""

    def _ask(self, calls: list[tuple[str, Json]]) -> tuple[str | None, Any]:
        """The last answer of these calls, all of which the oracle sees now."""
        rejection = fixture_module("_oracle").Rejection
        reply: tuple[str | None, Any] = (None, None)
        with sources.guarded(self._base, self._allowed):
            for op, request in calls:
                try:
                    reply = None, getattr(self._oracle, find(op).method)(request)
                except rejection as refusal:
                    reply = refusal.reason, refusal.detail
        self._waiting.clear()
        return reply

    def _derive(self, what: str, *arguments: Any) -> Json:
        if not hasattr(self._oracle, what):
            raise CorpusError(f"the oracle has no {what}(), which numbers that are not exact need")

        def derive() -> Any:
            self._ask(self._waiting)
            with sources.guarded(self._base, self._allowed):
                return getattr(self._oracle, what)(*arguments)

        found: Json = self._answers.get([what, self._sources, self._past, *arguments], derive)
        return found
