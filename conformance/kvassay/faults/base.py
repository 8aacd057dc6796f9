"""What the faults of all contracts share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, TypeVar

from ..engines.reference import Reference

Seeded = TypeVar("Seeded", bound=type)


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


def named(package: str, faults: Iterable[Seeded]) -> Callable[[str], Seeded]:
    """The ``__getattr__`` of a contract's package: each of its faults is found there, whichever module it stands in."""
    names = {fault.__name__: fault for fault in faults}

    def get(name: str) -> Seeded:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return names[name]

    return get
