"""The toy contract's reference as an engine."""

from __future__ import annotations

from typing import Any, ClassVar

from kvassay_reference.toy import total

from ..adapters.base import EngineAdapter, EngineInfo, Rejected

ADAPTERS = {"toy": "Toy"}
"""Names of the adapters here, and their classes; read without an import."""


class Toy(EngineAdapter):
    """Sums of rows."""

    engine = EngineInfo("toy", "1")
    variants: ClassVar[frozenset[str]] = frozenset({"tally/saturating"})

    def tally_sum(self, request: dict[str, Any]) -> dict[str, Any]:
        """The sum."""
        if min(request["rows"]) < 0:
            raise Rejected("NEGATIVE_ROW")
        return {"sum": total(request["rows"])}
