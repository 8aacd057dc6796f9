"""What the faults of the contract runtime share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from kvassay_reference.runtime import Runtime, Unit
from kvassay_reference.runtime_admission import Action, Ask, Credits, Decision, Exact, Reason, Terms

from ...engines.reference import Reference
from ..base import Fault, ids, spoiled, title

Request = Mapping[str, Any]
Result = dict[str, Any]
Machine = TypeVar("Machine", bound=type[Runtime])
Choice = Callable[[Terms, Reason, Exact], Action]
FIELDS = (
    "tenant",
    "model",
    "revision",
    "adapter",
    "layout",
    "layer_group",
    "first_position",
    "end_position",
    "representation",
    "dtype",
    "codec",
    "generation",
    "tokens_sha256",
    "source",
    "authority_epoch",
    "bytes",
)
"""Fields of a unit, in the order in which a request's expectations of them are checked."""
case = ids("runtime")
"""Ids of this contract's cases."""


def without(unit: Unit, field: str) -> Unit:
    """A unit less one field."""
    return tuple(pair for pair in unit if pair[0] != field)


def fault(module: str, name: str, text: str, requirement: str, names: Iterable[str], **members: Any) -> type[Fault]:
    """An engine with one defect."""
    return spoiled(Fault, module, name, text, requirement, case(*names), **members)


class Seeds:
    """The faults of one module, in the order of their writing."""

    def __init__(self, module: str) -> None:
        self.module = module
        self.faults: list[type[Fault]] = []

    def machine(self, requirement: str, *names: str, **members: Any) -> Callable[[Machine], Machine]:
        """The decorated machine stands in for the reference's; the engine has its name and its docstring."""

        def register(made: Machine) -> Machine:
            text = made.__doc__ or ""
            self.faults.append(fault(self.module, made.__name__, text, requirement, names, run_class=made, **members))
            return made

        return register

    def choice(self, requirement: str, *names: str) -> Callable[[Choice], Choice]:
        """The decorated function chooses fallbacks, of steps and of jobs."""

        def register(choose: Choice) -> Choice:
            class Choosing(Runtime):
                def action(self, terms: Terms, reason: Reason, now_ms: Exact) -> Action:
                    return choose(terms, reason, now_ms)

            def decide(engine: Fault, policy: str, asks: Sequence[Ask], free: Credits, now_ms: Exact) -> Decision:
                made = Reference.run_decide(engine, policy, asks, free, now_ms)
                turned = tuple((ask, why, choose(ask.terms, why, now_ms)) for ask, why, _ in made.turned)
                return replace(made, turned=turned)

            name = title(choose.__name__)
            members = {"run_class": Choosing, "run_decide": decide}
            self.faults.append(fault(self.module, name, choose.__doc__ or "", requirement, names, **members))
            return choose

        return register

    def add(self, seeded: type[Fault]) -> type[Fault]:
        """One that was written as a class."""
        self.faults.append(seeded)
        return seeded
