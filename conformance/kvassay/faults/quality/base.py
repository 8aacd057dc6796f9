"""What the faults of the contract quality share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from kvassay_reference.offload import Rule

from ..base import Fault

Request = Mapping[str, Any]
Result = dict[str, Any]
Array = Any


def case(*names: str) -> tuple[str, ...]:
    """Ids of this contract's cases."""
    return tuple(f"quality/{name}" for name in names)


class Blind(Fault):
    """One rule of documents is not checked."""

    reason: ClassVar[str]

    def seen(self, rules: Iterable[Rule]) -> Iterator[Rule]:
        """The rules without the one that is not checked."""
        return ((holds, reason) for holds, reason in rules if reason != self.reason)

    def qlt_report_rules(self, document: Request) -> Iterable[Rule]:
        return self.seen(super().qlt_report_rules(document))

    def qlt_plan_rules(self, document: Request) -> Iterable[Rule]:
        return self.seen(super().qlt_plan_rules(document))


def blind(reason: str, requirement: str, names: Sequence[str]) -> type[Blind]:
    """The fault that never rejects a document for one reason."""
    title = "Unchecked" + "".join(word.title() for word in reason.split("_"))
    text = f"No document is ever rejected for {reason}."
    members = {"__doc__": text, "reason": reason, "requirement": requirement, "killed_by": case(*names)}
    return type(title, (Blind,), {**members, "__module__": __name__})
