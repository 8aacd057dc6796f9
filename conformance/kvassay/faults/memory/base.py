"""What the faults of the contract memory share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar

from kvassay_reference.memory.pool import Rule

from ..base import Fault

Request = Mapping[str, Any]
Result = dict[str, Any]
Array = Any


def case(*names: str) -> tuple[str, ...]:
    """Ids of this contract's cases."""
    return tuple(f"memory/{name}" for name in names)


class Blind(Fault):
    """One rule of documents is not checked."""

    reason: ClassVar[str]

    def seen(self, rules: Iterable[Rule]) -> Iterator[Rule]:
        """The rules without the one that is not checked."""
        return ((holds, reason) for holds, reason in rules if reason != self.reason)

    def mem_pool_rules(self, document: Request) -> Iterable[Rule]:
        return self.seen(super().mem_pool_rules(document))

    def mem_record_rules(self, document: Request) -> Iterable[Rule]:
        return self.seen(super().mem_record_rules(document))
