"""Faults of the toy contract."""

from __future__ import annotations

from typing import Any

from ..engines.reference import Reference


class CountsTwice(Reference):
    """The last row is counted twice."""

    requirement = "TOY-001"
    killed_by = ("toy/sum/two-rows", "toy/sum/up-to-a-byte")

    def tally_sum(self, request: dict[str, Any]) -> dict[str, Any]:
        """One row too many."""
        return super().tally_sum({"rows": [*request["rows"], request["rows"][-1]]})


class TakesAll(Reference):
    """A negative row is taken for its size."""

    requirement = "TOY-002"
    killed_by = ("toy/sum/negative",)

    def tally_sum(self, request: dict[str, Any]) -> dict[str, Any]:
        """Signs are lost."""
        return super().tally_sum({"rows": [abs(row) for row in request["rows"]]})


CORRECT = (Reference,)
FAULTS = (CountsTwice, TakesAll)
