"""What the faults of all contracts share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from ..engines.reference import Reference


class Fault(Reference):
    """The reference, to be spoiled."""

    requirement: ClassVar[str]
    killed_by: ClassVar[tuple[str, ...]]


def found(namespace: Mapping[str, Any]) -> tuple[type[Fault], ...]:
    """The faults of a module in the order of their writing: classes of its own that name the cases that see them."""
    return tuple(
        value
        for value in namespace.values()
        if isinstance(value, type)
        and issubclass(value, Fault)
        and value.__module__ == namespace["__name__"]
        and "killed_by" in vars(value)
    )
