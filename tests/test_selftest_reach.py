"""What a case uses of a correct engine, and which cases a fault is run on for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import pytest
from kvassay import EngineAdapter, EngineInfo
from kvassay.faults.reach import Reach, Uses, replaced, watched


class Correct(EngineAdapter):
    """A correct engine; as if from a module of its own, for what stands beside a fault is the fault's."""

    __module__ = "correct.engine"
    engine = EngineInfo("correct", "1")
    limit: ClassVar[int] = 3
    kind: ClassVar[str] = "plain"

    def open(self) -> None:
        self.rows: list[int] = []

    def attention_merge(self, request: Any) -> Any:
        return self.total(request)

    def attention_partial(self, request: Any) -> Any:
        return [self.row(one) for one in request if one < self.limit]

    def attention_dense(self, request: Any) -> Any:
        return getattr(self, "tuned", None) or list(map(self.shape, request))

    def total(self, request: Any) -> int:
        return sum(request) + self.bias

    def row(self, one: int) -> int:
        self.rows.append(one)
        return one

    def handlers(self) -> list[Callable[[int], int]]:
        return [self.row]

    @property
    def bias(self) -> int:
        return 0

    @staticmethod
    def shape(one: int) -> int:
        return one

    @classmethod
    def named(cls) -> str:
        return cls.kind


class Below(Correct):
    """A correct engine that stands on another."""

    __module__ = "correct.engine"

    def row(self, one: int) -> int:
        return super().row(one)


CASES: dict[str, Callable[[Any], Any]] = {
    "merge": lambda engine: engine.attention_merge([1, 2]),
    "partial": lambda engine: engine.attention_partial([1, 2, 5]),
    "nothing": lambda engine: engine.attention_partial([]),
    "dense": lambda engine: engine.attention_dense([1]),
    "named": lambda engine: engine.named(),
    "handlers": lambda engine: engine.handlers(),
    "looks": lambda engine: vars(type(engine)),
}


def reach(base: type[EngineAdapter] = Correct) -> Reach:
    uses = Uses()
    kind = watched(base, uses)
    kind().describe()
    start, found = uses.taken(), {}
    for name, use in CASES.items():
        engine = kind()
        engine.open()
        assert str(use(engine)) == str(use(opened(base))) or name in ("looks", "handlers")
        found[name] = uses.taken()
    return Reach(start, found, frozenset(uses.held))


def opened(base: type[EngineAdapter]) -> EngineAdapter:
    engine = base()
    engine.open()
    return engine


def touched(fault: type[EngineAdapter], base: type[EngineAdapter] = Correct) -> set[str]:
    spoiled = replaced(fault)
    assert spoiled is not None
    assert spoiled.base is base
    found = reach(base).touched(spoiled)
    assert "looks" in found, "a case that looks at the class may see anything"
    return set(found) - {"looks"}


def fault(*bases: type, **body: Any) -> type[Any]:
    return type("Fault", bases or (Correct,), {"__module__": __name__, "requirement": "ATT-001", **body})


def spoilt(self: Any, *values: Any) -> Any:
    return -1


@pytest.mark.parametrize(
    ("body", "cases"),
    [
        ({}, set()),
        ({"own_helper": spoilt}, set()),
        ({"total": spoilt}, {"merge"}),
        ({"attention_partial": spoilt}, {"partial", "nothing"}),
        ({"row": spoilt}, {"partial"}),
        ({"row": property(spoilt)}, {"partial", "handlers"}),
        ({"row": staticmethod(spoilt)}, {"partial", "handlers"}),
        ({"limit": 2}, {"partial"}),
        ({"limit": 3}, set()),
        ({"limit": 3.0}, {"partial"}),
        ({"bias": property(spoilt)}, {"merge"}),
        ({"bias": 1}, {"merge"}),
        ({"shape": spoilt}, {"dense"}),
        ({"tuned": spoilt}, {"dense"}),
        ({"tuned": [7]}, {"dense"}),
        ({"kind": "fancy"}, {"named"}),
        ({"named": classmethod(spoilt)}, {"named"}),
        ({"rows": property(spoilt)}, set(CASES) - {"looks"}),
        ({"open": spoilt}, set(CASES) - {"looks"}),
        ({"describe": spoilt}, set(CASES) - {"looks"}),
        ({"ops": classmethod(lambda cls: Correct.ops())}, set(CASES) - {"looks"}),
        ({"capabilities": {"x": True}}, set(CASES) - {"looks"}),
        ({"capabilities": {}}, set()),
        ({"states": ("o-lse-v1/e",)}, set(CASES) - {"looks"}),
    ],
)
def test_a_fault_runs_on_the_cases_that_use_what_it_replaces(body: dict[str, Any], cases: set[str]) -> None:
    assert touched(fault(**body)) == cases


def test_what_all_classes_of_a_fault_replace_counts() -> None:
    blind = fault(row=spoilt)
    assert touched(fault(blind, total=spoilt)) == {"partial", "merge"}
    assert touched(fault(blind, row=Correct.row)) == {"partial"}, "its own super() still finds the other"


def test_a_correct_engine_above_another_is_the_one_that_is_spoilt() -> None:
    assert touched(fault(Below, row=spoilt), Below) == {"partial"}


@pytest.mark.parametrize("name", ["__init__", "__getattribute__", "__getattr__", "__setattr__", "__len__", "__call__"])
def test_special_methods_can_only_be_run(name: str) -> None:
    assert replaced(fault(**{name: spoilt})) is None


def test_another_op_can_only_be_run() -> None:
    assert replaced(fault(attention_select=spoilt)) is None


def test_a_fault_that_super_may_pass_over_can_only_be_run() -> None:
    class Part(EngineAdapter):
        __module__ = "correct.engine"

    assert replaced(fault(Part, fault(row=spoilt))) is None
    assert (
        replaced(fault(fault(row=spoilt), type("Both", (Part, Correct), {"__module__": "correct.engine"}))) is not None
    )


def test_what_a_fault_keeps_for_a_later_case_is_found() -> None:
    found = reach()
    assert found.misses({"rows", "total"}, ["partial"]), "merge reads it and did not run"
    assert not found.misses({"rows", "total"}, ["merge", "looks"])
    assert not found.misses({"rows", "memo"}, ["merge"]), "nothing correct reads it"
    assert not found.misses({"rows"}, ["merge"]), "the correct engine sets it at open"
    assert found.misses({"describe"}, CASES), "the fault was described before it kept it"


def test_a_case_can_be_put_on_every_fault() -> None:
    spoiled = replaced(fault(total=spoilt))
    assert spoiled is not None
    assert reach().with_all_in(["dense"]).touched(spoiled) == {"merge", "dense", "looks"}


def test_every_fault_of_the_suite_with_an_engine_that_can_be_watched() -> None:
    from kvassay.faults.seeded import faults, modules

    seeded = [one for contract in modules() for one in faults(contract)]
    assert sum(replaced(one) is not None for one in seeded) > 0.9 * len(seeded)
