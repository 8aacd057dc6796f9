"""What the faults of the contract quality share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kvassay_reference.offload import Rule

from .. import base
from ..base import ids

Request = Mapping[str, Any]
Result = dict[str, Any]
Array = Any
case = ids("quality")
"""Ids of this contract's cases."""


class Blind(base.Blind):
    """One rule of documents is not checked."""

    def qlt_report_rules(self, document: Request) -> Iterable[Rule]:
        return self.seen(super().qlt_report_rules(document))

    def qlt_plan_rules(self, document: Request) -> Iterable[Rule]:
        return self.seen(super().qlt_plan_rules(document))


def blind(reason: str, requirement: str, names: Sequence[str]) -> type[Blind]:
    """The fault that never rejects a document for one reason."""
    return base.unchecked(Blind, __name__, reason, requirement, case(*names), what="No document")
