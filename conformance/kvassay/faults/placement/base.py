"""What the faults of the contract placement share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kvassay_reference.offload import Rule
from kvassay_reference.placement_receipts import Asked, Attempt

from .. import base
from ..base import ids

Request = Mapping[str, Any]
Result = dict[str, Any]
case = ids("placement")
"""Ids of this contract's cases."""


class Blind(base.Blind):
    """One rule is not checked."""

    def plc_receipt_rules(self, asked: Asked, one: Request) -> Iterable[Rule]:
        return self.seen(super().plc_receipt_rules(asked, one))

    def plc_overlap_rules(self, asked: Asked, receipts: Sequence[Request]) -> Iterable[Rule]:
        return self.seen(super().plc_overlap_rules(asked, receipts))

    def plc_gap_rules(self, asked: Asked, receipts: Sequence[Request]) -> Iterable[Rule]:
        return self.seen(super().plc_gap_rules(asked, receipts))

    def plc_open_rules(self, attempt: Attempt) -> Iterable[Rule]:
        return self.seen(super().plc_open_rules(attempt))

    def plc_arrival_rules(self, attempt: Attempt, one: Request, at_ms: float) -> Iterable[Rule]:
        return self.seen(super().plc_arrival_rules(attempt, one, at_ms))

    def plc_report_rules(self, document: Request) -> Iterable[Rule]:
        return self.seen(super().plc_report_rules(document))


def blind(reason: str, requirement: str, names: Sequence[str], prefix: str = "Unchecked") -> type[Blind]:
    """The fault that never rejects for one reason."""
    return base.unchecked(Blind, __name__, reason, requirement, case(*names), prefix=prefix)
