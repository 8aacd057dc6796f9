"""What the faults of the contract indexes share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from ...engines.reference import Reference

Request = Mapping[str, Any]
Result = dict[str, Any]


class Fault(Reference):
    """The reference, to be spoiled."""

    requirement: ClassVar[str]
    killed_by: ClassVar[tuple[str, ...]]


def case(*names: str) -> tuple[str, ...]:
    """Ids of this contract's cases."""
    return tuple(f"indexes/{name}" for name in names)


def faults_in(names: Mapping[str, Any]) -> Iterator[type[Fault]]:
    """The faults of a module: its classes that name a requirement and cases of their own."""
    for value in list(names.values()):
        own = isinstance(value, type) and issubclass(value, Fault) and value.__module__ == names["__name__"]
        if own and "killed_by" in vars(value):
            yield value
