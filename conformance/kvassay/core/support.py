"""A selection judged by what it is and by what it loses, so that engines with rules of their own can be held to it.

A reply names, for each list that a case asks for (one a K/V head, or a query head), the positions, pages or rows that
were selected. Whatever the rule that chose them: they are legal, none stands twice, none that is forced is missing,
there are not too many, and together they keep a declared share of some weights. Softmax weights of the dense rows make
that share the retained mass; weights of 1 on the rows that an exact search finds make it the recall.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from .model import Json
from .tensors import Array

SLACK = 1e-9
"""Of the sum of all weights: what float64 sums in another order may differ by."""


@dataclass(frozen=True)
class Share:
    """What a list must keep of some weights."""

    of: str
    """What the weights are, in words: ``mass of query head 3``, ``the ten nearest keys``."""
    weights: Array
    """One weight for each position from 0, none negative; what lies beyond weighs nothing."""
    floor: float
    """Least share of their sum."""

    def kept(self, items: Collection[int]) -> float:
        """Share of the weights that these positions hold; 1 where nothing weighs anything."""
        whole = math.fsum(self.weights)
        return math.fsum(self.weights[i] for i in items if i < len(self.weights)) / whole if whole else 1.0


@dataclass(frozen=True)
class Listed:
    """What one list of a selection must be."""

    legal: int | frozenset[int]
    """Legal items: all below a number, or these."""
    forced: tuple[int, ...] = ()
    """Items that must be there."""
    most: int | None = None
    """Largest number of items."""
    least: int = 0
    """Smallest number of items."""
    shares: tuple[Share, ...] = ()

    def problem(self, items: Json) -> str | None:
        """What is wrong with a list, or ``None``."""
        items = items.tolist() if isinstance(items, np.ndarray) else items
        if not isinstance(items, list) or any(isinstance(i, bool) or not isinstance(i, int) for i in items):
            return "is no list of integers"
        return self._membership(items) or self._loss(items)

    def _membership(self, items: Sequence[int]) -> str | None:
        seen: set[int] = set()
        for item in items:
            if not self._is_legal(item):
                return f"holds {item}, which is not legal here"
            if item in seen:
                return f"holds {item} twice"
            seen.add(item)
        for item in self.forced:
            if item not in seen:
                return f"lacks {item}, which is always selected"
        if self.most is not None and len(items) > self.most:
            return f"holds {len(items)} of at most {self.most}"
        if len(items) < self.least:
            return f"holds {len(items)} of at least {self.least}"
        return None

    def _is_legal(self, item: int) -> bool:
        return 0 <= item < self.legal if isinstance(self.legal, int) else item in self.legal

    def _loss(self, items: Sequence[int]) -> str | None:
        for share in self.shares:
            kept = share.kept(items)
            if kept < share.floor - SLACK:
                return f"keeps {kept:.6g} of {share.of}, at least {share.floor:.6g} are due"
        return None


@dataclass(frozen=True)
class Support:
    """What the lists at one place of a reply must be; ``single`` where one list stands there and no list of lists."""

    at: str
    lists: tuple[Listed, ...]
    single: bool = False

    def problem(self, found: Json) -> str | None:
        """What is wrong with what stands there, or ``None``."""
        found = found.tolist() if isinstance(found, np.ndarray) else found
        rows = [found] if self.single else found
        if not isinstance(rows, list) or len(rows) != len(self.lists):
            return f"is not {len(self.lists)} lists"
        for index, (listed, items) in enumerate(zip(self.lists, rows, strict=True)):
            told = listed.problem(items)
            if told:
                return told if self.single else f"list {index} {told}"
        return None


def read(row: Mapping[str, Json]) -> Support:
    """A support of a case, its weights as arrays."""
    return Support(row["at"], tuple(map(_listed, row["lists"])), row.get("single", False))


def _listed(row: Mapping[str, Json]) -> Listed:
    legal = row["legal"]
    return Listed(
        legal if isinstance(legal, int) else frozenset(legal),
        tuple(row.get("forced", ())),
        row.get("most"),
        row.get("least", 0),
        tuple(Share(share["of"], share["weights"], share["floor"]) for share in row.get("shares", ())),
    )
