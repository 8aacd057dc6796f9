"""The rules of KV Events over the stream of one publisher: the reference's index, and what contradicts it.

An event that contradicts the stream is left out of the index. After a lost batch nothing from before can be known, so
that blocks are taken on trust from there on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..core.expect import PASS, Outcome
from ..core.model import Finding, Verdict
from ..engines.reference_kvevents import Index, Refusal


class KvEventsMonitor:
    """One publisher. With ``whole`` the stream is read from its first batch on."""

    def __init__(self, *, whole: bool = True) -> None:
        self.index = Index(whole)

    @property
    def held(self) -> Mapping[str, int]:
        """What memory goes to."""
        return {"blocks": len(self.index.total), "copies": sum(self.index.total.values())}

    def batch(self, number: int | None) -> Outcome:
        """A batch begins."""
        outcome = self._judged(lambda: self.index.numbered(number))
        if not outcome.holds:
            self.index.whole = False
        return outcome

    def event(self, event: Mapping[str, Any]) -> Outcome:
        """The next event of the batch."""
        return self._judged(lambda: self.index.apply(event))

    def _judged(self, act: Callable[[], None]) -> Outcome:
        try:
            act()
        except Refusal as refusal:
            shown = f"rejected for {refusal.reason}"
            return Outcome(Verdict.FAIL, Finding(None, "", f"{refusal.reason}: {refusal.detail}", shown))
        return PASS
