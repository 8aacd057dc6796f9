"""What the faults of the contract release share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kvassay_reference.release.record import Review
from kvassay_reference.release.registry import RULES as REGISTRY_RULES
from kvassay_reference.release.rollout import RULES, Machine

from ..base import Fault

Request = Mapping[str, Any]
Result = dict[str, Any]


def case(*names: str) -> tuple[str, ...]:
    """Ids of this contract's cases."""
    return tuple(f"release/{name}" for name in names)


def blind(reason: str, requirement: str, *names: str) -> type[Fault]:
    """The fault that never rejects a registry, a proposal, evidence or a record for one reason."""
    title = "Unchecked" + "".join(word.title() for word in reason.split("_"))

    def machine() -> Machine:
        return Machine(rules=[rule for rule in RULES if rule.reason != reason])

    members: dict[str, Any] = {
        "__doc__": f"Nothing is ever rejected for {reason}.",
        "__module__": __name__,
        "requirement": requirement,
        "killed_by": case(*names),
        "rel_registry_rules": [rule for rule in REGISTRY_RULES if rule.reason != reason],
        "rel_machine_class": staticmethod(machine),
        "rel_review": Review(frozenset({reason})),
    }
    return type(title, (Fault,), members)


def blinds(rows: Sequence[tuple[str, str, Sequence[str]]]) -> tuple[type[Fault], ...]:
    """Such faults from rows of reason, requirement and cases."""
    return tuple(blind(reason, requirement, *names) for reason, requirement, names in rows)
