"""The toy ops of the built-in adapter."""

from __future__ import annotations

from typing import Any, ClassVar

from kvassay_reference.errors import Refusal
from kvassay_reference.toy import total

from ..adapters.base import Rejected
from .reference_part import ReferencePart


class ToyReference(ReferencePart):
    """Sums of rows."""

    own_profiles: ClassVar[frozenset[str]] = frozenset({"tally"})
    own_variants: ClassVar[frozenset[str]] = frozenset({"tally/saturating"})

    def tally_sum(self, request: dict[str, Any]) -> dict[str, Any]:
        """The sum."""
        try:
            return {"sum": total(request["rows"])}
        except Refusal as refusal:
            raise Rejected(refusal.reason, refusal.detail) from None
