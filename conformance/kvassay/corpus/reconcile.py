"""Figures of the article beside what the oracle derives from the base documents, and tables that oracles offer.

An oracle module that has more to show than figures has a function ``options()``: name of an option to its values and
to what makes the rows of a table from one of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .data import contracts, fixture_module, read_json, root
from .errors import CorpusError


@dataclass(frozen=True)
class Figure:
    """One published result and its derivation."""

    name: str
    published: Any
    derived: Any

    @property
    def agrees(self) -> bool:
        """Whether the derivation gives the published figure: integers and lists exactly, decimals as printed."""
        if isinstance(self.published, float) and isinstance(self.derived, int | float):
            digits = len(repr(self.published).partition(".")[2])
            return abs(self.derived - self.published) <= 0.5 * 10.0**-digits * (1 + 1e-9)
        return bool(self.derived == self.published)


def reconciliation(contract: str) -> list[Figure]:
    """Every golden figure of a contract with its derivation; raises :class:`CorpusError` for a figure without one."""
    if contract not in contracts():
        raise CorpusError(f"no contract {contract!r}; the corpus has {', '.join(contracts())}")
    path = root() / "fixtures" / contract / "golden-figures.json"
    golden = read_json(path)["figures"] if path.is_file() else {}
    derived = dict(getattr(fixture_module(f"{contract}.oracle"), "reconciliation", list)())
    lost = sorted(golden.keys() - derived.keys())
    if lost:
        file = path.relative_to(root()).as_posix()
        raise CorpusError(f"the oracle of {contract} derives no {', '.join(lost)}", file=file)
    return [Figure(name, golden[name], derived[name]) for name in golden]


Row = dict[str, Any]


@dataclass(frozen=True)
class Choice:
    """An option by which an oracle shows a table."""

    contract: str
    name: str
    values: tuple[str, ...]
    make: Callable[[str], list[Row]]
    """Value to rows that have the same members in the same order."""


def choices() -> list[Choice]:
    """The options of all oracles."""
    found = []
    for contract in contracts():
        declared: dict[str, Any] = getattr(fixture_module(f"{contract}.oracle"), "options", dict)()
        found += [Choice(contract, name, tuple(values), make) for name, (values, make) in declared.items()]
    return found
