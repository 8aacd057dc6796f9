"""What the faults of all contracts share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar, TypeVar

from ..engines.reference import Reference

Kind = TypeVar("Kind", bound="Fault")
Seeded = TypeVar("Seeded", bound=type)
Rule = tuple[bool, str]
"""Whether a document keeps a rule, and the reason for which it is rejected when it does not."""


class Fault(Reference):
    """The reference, to be spoiled."""

    requirement: ClassVar[str]
    killed_by: ClassVar[tuple[str, ...]]


class Blind(Fault):
    """The reference without one of its rules; a contract's own class says which methods give rules."""

    reason: ClassVar[str]

    def seen(self, rules: Iterable[Rule]) -> Iterator[Rule]:
        """The rules without the one that is not checked."""
        return ((holds, reason) for holds, reason in rules if reason != self.reason)


def ids(contract: str) -> Callable[..., tuple[str, ...]]:
    """What makes the ids of a contract's cases from their names."""

    def case(*names: str) -> tuple[str, ...]:
        return tuple(f"{contract}/{name}" for name in names)

    return case


def title(words: str) -> str:
    """Words between underscores as the name of a class: ``STALE_INDEX`` is ``StaleIndex``."""
    return "".join(word.title() for word in words.split("_"))


def spoiled(
    base: type[Kind], module: str, name: str, text: str, requirement: str, killed_by: tuple[str, ...], **members: Any
) -> type[Kind]:
    """A fault that stands in no class statement, as one of many that differ in a word."""
    claims = {"__doc__": text, "__module__": module, "requirement": requirement, "killed_by": killed_by}
    return type(name, (base,), {**claims, **members})


def unchecked(
    base: type[Kind],
    module: str,
    reason: str,
    requirement: str,
    killed_by: tuple[str, ...],
    *,
    prefix: str = "Unchecked",
    what: str = "Nothing",
) -> type[Kind]:
    """The fault that never rejects for one reason; ``base`` reads it from its attribute ``reason``."""
    text = f"{what} is ever rejected for {reason}."
    return spoiled(base, module, prefix + title(reason), text, requirement, killed_by, reason=reason)


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
