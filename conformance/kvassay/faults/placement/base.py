"""What the faults of the contract placement share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from kvassay_reference.offload import Rule
from kvassay_reference.placement_receipts import Asked, Attempt

from ..base import Fault

Request = Mapping[str, Any]
Result = dict[str, Any]


def case(*names: str) -> tuple[str, ...]:
    """Ids of this contract's cases."""
    return tuple(f"placement/{name}" for name in names)


class Blind(Fault):
    """One rule is not checked."""

    reason: ClassVar[str]

    def seen(self, rules: Iterable[Rule]) -> Iterator[Rule]:
        """The rules without the one that is not checked."""
        return ((holds, reason) for holds, reason in rules if reason != self.reason)

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
    title = prefix + "".join(word.title() for word in reason.split("_"))
    text = f"Nothing is ever rejected for {reason}."
    members = {"__doc__": text, "reason": reason, "requirement": requirement, "killed_by": case(*names)}
    return type(title, (Blind,), {**members, "__module__": __name__})
