"""What the faults of the contract memory share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kvassay_reference.memory.pool import Rule

from .. import base
from ..base import ids

Request = Mapping[str, Any]
Result = dict[str, Any]
Array = Any
case = ids("memory")
"""Ids of this contract's cases."""


class Blind(base.Blind):
    """One rule of documents is not checked."""

    def mem_pool_rules(self, document: Request) -> Iterable[Rule]:
        return self.seen(super().mem_pool_rules(document))

    def mem_record_rules(self, document: Request) -> Iterable[Rule]:
        return self.seen(super().mem_record_rules(document))
