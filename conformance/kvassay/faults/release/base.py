"""What the faults of the contract release share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kvassay_reference.release.record import Review
from kvassay_reference.release.registry import RULES as REGISTRY_RULES
from kvassay_reference.release.rollout import RULES, Machine

from ..base import Fault, ids, spoiled, title

Request = Mapping[str, Any]
Result = dict[str, Any]
case = ids("release")
"""Ids of this contract's cases."""


def blind(reason: str, requirement: str, *names: str) -> type[Fault]:
    """The fault that never rejects a registry, a proposal, evidence or a record for one reason."""

    def machine() -> Machine:
        return Machine(rules=[rule for rule in RULES if rule.reason != reason])

    members: dict[str, Any] = {
        "rel_registry_rules": [rule for rule in REGISTRY_RULES if rule.reason != reason],
        "rel_machine_class": staticmethod(machine),
        "rel_review": Review(frozenset({reason})),
    }
    text = f"Nothing is ever rejected for {reason}."
    return spoiled(Fault, __name__, "Unchecked" + title(reason), text, requirement, case(*names), **members)


def blinds(rows: Sequence[tuple[str, str, Sequence[str]]]) -> tuple[type[Fault], ...]:
    """Such faults from rows of reason, requirement and cases."""
    return tuple(blind(reason, requirement, *names) for reason, requirement, names in rows)
