"""Which attributes of a correct engine each case reaches, and so which cases a fault cannot change.

A fault is a correct engine with some attributes replaced. On a case that uses none of them it is the correct engine,
instruction by instruction, and gives its verdict. :func:`trace` runs the correct engine as a subclass that notes every
read of an attribute and every call of a method, made on the engine or on its class; :func:`replaced` says what a fault
replaces. What cannot be told apart in this way is run on every case:

- a fault whose classes do not all come before those of the correct engine, so that ``super()`` may find them;
- one that defines a special method such as ``__init__``, which Python calls without a look-up that can be noted;
- one with other ops than the correct engine, or that replaces what is used before the first case: what it declares,
  ``open``, ``setup``;
- each on a case in which the correct engine looks at its own class (``__dict__``, ``__mro__``, ``__name__``).

The trace has a new engine for each case, so that what an engine remembers hides no use. What a fault itself keeps from
one case to the next is for :meth:`Reach.misses` to find. One thing is taken on trust: ``open`` does what it promises,
and a fault changes no module from within.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import FunctionType, MethodType
from typing import Any

from ..adapters.base import EngineAdapter
from ..adapters.local import InProcess
from ..adapters.values import RecipeCache
from ..core.engine import Broken
from ..core.model import Case, Result
from ..corpus import Corpus
from ..runner import Session, run

OWN_CLASS = frozenset({"__dict__", "__mro__", "__bases__", "__base__", "__name__", "__qualname__", "__dir__", "mro"})
"""Reads that may see that the class is another, whatever it replaces."""
BOOKKEEPING = frozenset(
    {
        "__module__",
        "__doc__",
        "__qualname__",
        "__annotations__",
        "__annotate__",
        "__annotate_func__",
        "__annotations_cache__",
        "__static_attributes__",
        "__firstlineno__",
        "__abstractmethods__",
        "__parameters__",
        "__orig_bases__",
    }
)
"""What every class has, and nothing calls."""
MISSING = object()
PLAIN = (str, int, float, bool, frozenset, tuple, dict, type(None))


@dataclass(frozen=True)
class Replaced:
    """What the classes of a fault replace in a correct engine."""

    base: type[EngineAdapter]
    methods: frozenset[str]
    """Names that stand for plain functions and nothing else: a case that does not call them does not meet them."""
    others: frozenset[str]
    """Names of data, properties and so on: reading is enough."""


def replaced(fault: type[EngineAdapter]) -> Replaced | None:
    """What a fault replaces in which correct engine; ``None`` when only running it can say what it changes."""
    lineage = fault.__mro__
    count = next(index for index, one in enumerate(lineage) if not _seeded(one, fault))
    base, own = lineage[count], lineage[:count]
    if not issubclass(base, EngineAdapter) or base.__mro__ != lineage[count:] or type(fault) is not type(base):
        return None
    if fault.ops() != base.ops():
        return None
    methods: set[str] = set()
    others: set[str] = set()
    for name, value in (item for one in own for item in vars(one).items()):
        if name.startswith("__") and name.endswith("__") and name not in BOOKKEEPING:
            return None
        if not _as_before(value, inspect.getattr_static(base, name, MISSING)):
            (methods if isinstance(value, FunctionType) else others).add(name)
    return Replaced(base, frozenset(methods - others), frozenset(others))


def _seeded(one: type, fault: type) -> bool:
    """Whether a class belongs to the fault, and not to what it spoils."""
    return one.__module__ == fault.__module__ or one.__module__.startswith(f"{__package__}.")


def _as_before(value: Any, before: Any) -> bool:
    """Whether plain data say the same as those that they replace; claims are joined anew for every subclass."""
    return type(value) is type(before) and isinstance(value, PLAIN) and _written(value) == _written(before)


def _written(value: Any) -> str:
    return repr(sorted(map(repr, value)) if isinstance(value, frozenset) else value)


@dataclass
class Uses:
    """Names that were used up to now, since the last case began."""

    read: set[str] = field(default_factory=set)
    called: set[str] = field(default_factory=set)
    """Names that were called; of what is no plain method, those that were read."""
    held: set[str] = field(default_factory=set)
    """Attributes that engines had of their own, from the beginning."""

    def taken(self) -> tuple[frozenset[str], frozenset[str]]:
        """What was read and what was called; the next case begins."""
        found = frozenset(self.read), frozenset(self.called)
        self.read.clear()
        self.called.clear()
        return found


def watched(base: type[EngineAdapter], uses: Uses) -> type[EngineAdapter]:
    """The engine as a subclass that does the same and notes what is used of it."""

    class Watching(type(base)):  # type: ignore[misc]  # the class of a class, whatever it is
        def __getattribute__(cls, name: str) -> Any:
            uses.read.add(name)
            uses.called.add(name)
            return super().__getattribute__(name)

        def __dir__(cls) -> Iterable[str]:
            uses.read.add("__dir__")
            names: Iterable[str] = super().__dir__()
            return names

    def get(self: EngineAdapter, name: str) -> Any:
        uses.read.add(name)
        try:
            value = base.__getattribute__(self, name)
        except AttributeError:
            uses.called.add(name)
            raise
        if not (isinstance(value, MethodType) and value.__func__ in wrappers):
            uses.called.add(name)
        return value

    def put(self: EngineAdapter, name: str, value: Any) -> None:
        uses.read.add(name)
        uses.called.add(name)
        uses.held.add(name)
        base.__setattr__(self, name, value)

    def names(self: EngineAdapter) -> Iterable[str]:
        uses.read.add("__dir__")
        return base.__dir__(self)

    body: dict[str, Any] = {name: _noted(name, value, uses) for name, value in _methods(base).items()}
    wrappers = frozenset(body.values())
    body |= {"__getattribute__": get, "__setattr__": put, "__dir__": names}
    body |= {"__module__": base.__module__, "__doc__": base.__doc__, "__qualname__": base.__qualname__}
    body["ops"] = classmethod(lambda cls: base.ops())  # it looks at every op's method, and calls none
    found: type[EngineAdapter] = Watching(base.__name__, (base,), body)
    uses.taken()
    return found


def _methods(base: type) -> dict[str, FunctionType]:
    """The plain methods of an engine, special ones apart."""
    found = {name: inspect.getattr_static(base, name) for name in dir(base) if not name.startswith("__")}
    return {name: value for name, value in found.items() if isinstance(value, FunctionType)}


def _noted(name: str, method: FunctionType, uses: Uses) -> Any:
    @functools.wraps(method)
    def call(*values: Any, **named: Any) -> Any:
        uses.called.add(name)
        return method(*values, **named)

    return call


class Open(InProcess):
    """An engine that shows which attributes its adapter has set on itself."""

    @property
    def attributes(self) -> frozenset[str]:
        """Their names."""
        return frozenset(vars(self._adapter))


class NewForEachCase(InProcess):
    """An engine whose ``open`` begins with a new adapter."""

    def __init__(self, adapter_class: type[EngineAdapter], recipes: RecipeCache | None = None) -> None:
        super().__init__(adapter_class, recipes)
        self._class = adapter_class

    def open(self) -> Broken | None:
        """A new adapter, set up and opened."""
        self._adapter.teardown()
        self._adapter = self._class()
        self._adapter.setup()
        return super().open()


@dataclass(frozen=True)
class Reach:
    """What the cases use of a correct engine."""

    start: tuple[frozenset[str], frozenset[str]]
    """Names that are read and called before the first case."""
    cases: Mapping[str, tuple[frozenset[str], frozenset[str]]]
    """The same of each case."""
    held: frozenset[str]
    """Attributes that the engine sets on itself."""

    def touched(self, spoiled: Replaced) -> frozenset[str]:
        """Cases on which a fault can give another verdict than the correct engine."""
        if _meet(self.start, spoiled):
            return frozenset(self.cases)
        return frozenset(name for name, uses in self.cases.items() if _meet(uses, spoiled))

    def with_all_in(self, names: Iterable[str]) -> Reach:
        """The same, with these cases on every fault."""
        return replace(self, cases={**self.cases, **dict.fromkeys(names, (OWN_CLASS, OWN_CLASS))})

    def misses(self, attributes: Iterable[str], ran: Iterable[str]) -> bool:
        """Whether a fault that ran on some cases now has an attribute of its own that another case reads."""
        kept = set(attributes) - self.held
        others = (self.cases[name][0] for name in self.cases.keys() - set(ran))
        return bool(kept & self.start[0]) or any(kept & read for read in others)


def _meet(uses: tuple[frozenset[str], frozenset[str]], spoiled: Replaced) -> bool:
    read, called = uses
    return bool(called & spoiled.methods or read & spoiled.others or read & OWN_CLASS)


def trace(
    base: type[EngineAdapter], corpus: Corpus, cases: Sequence[Case], recipes: RecipeCache
) -> tuple[Reach, tuple[Result, ...]]:
    """Run a correct engine on the cases and note what each of them uses of it; its results, too."""
    uses = Uses()
    found: dict[str, tuple[frozenset[str], frozenset[str]]] = {}
    before = [""]

    def begin(case: Case) -> None:
        found[before[0]] = uses.taken()
        before[0] = case.id

    engine = NewForEachCase(watched(base, uses), recipes)
    try:
        report = run(Session(engine, corpus), cases, on_start=begin)
    finally:
        engine.close()
    found[before[0]] = uses.taken()
    start = found.pop("")
    return Reach(start, found, frozenset(uses.held)), report.results
