"""RetrievalAttention: a graph over keys that the prefill queries teach, and one logical set of rows.

Sources: 07, 07B, 07G to 07G2.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from array_api_compat import array_namespace, device

from .rows import Array, need, top

Edge = tuple[int, int]


def exact_neighbours(queries: Array, keys: Array, count: int) -> list[list[int]]:
    """Rows of ``keys`` [T, d] with the largest inner products with each of ``queries`` [n, d], best first."""
    scores = queries @ keys.T
    return [top(scores[i, ...], count) for i in range(queries.shape[0])]


def project(neighbours: Sequence[Sequence[int]]) -> list[Edge]:
    """Keys joined where one query has both among its neighbours: pairs, the lower id first, ascending."""
    pairs = {(a, b) for row in neighbours for a in row for b in row if a < b}
    return sorted(pairs)


def isolated(edges: Sequence[Edge], rows: int) -> list[int]:
    """Rows that no edge reaches: no search ever finds them unless it begins there."""
    reached = {end for edge in edges for end in edge}
    return [row for row in range(rows) if row not in reached]


class Found(NamedTuple):
    """A search's candidates, best first, and how many rows it scored."""

    ids: list[int]
    visited: int


class Graph:
    """Keys [T, d] of one query head's index with their edges."""

    def __init__(self, keys: Array, edges: Sequence[Sequence[int]]) -> None:
        """Refuses edges to rows that there are not."""
        rows = keys.shape[0]
        need(all(0 <= end < rows for edge in edges for end in edge), "DANGLING_EDGE")
        self.keys = keys
        self.near: list[set[int]] = [set() for _ in range(rows)]
        for a, b in edges:
            self.near[a].add(b)
            self.near[b].add(a)

    def score(self, q: Array, ids: Sequence[int]) -> list[float]:
        """Inner products with the named rows."""
        xp = array_namespace(q, self.keys)
        rows = xp.take(self.keys, xp.asarray(list(ids), dtype=xp.int64, device=device(q)), axis=0)
        return [float(x) for x in rows @ q]

    def search(self, q: Array, entries: Sequence[int], width: int, count: int) -> Found:
        """Best-first search that keeps the ``width`` best rows seen and expands the best one that is not expanded.

        It ends when every row that it keeps is expanded. Ties go to the lower id.
        """
        need(bool(entries) and all(0 <= one < len(self.near) for one in entries), "ENTRY_OUT_OF_RANGE")
        need(count <= width, "WIDTH_BELOW_TOP_K", f"{count} candidates of a pool of {width}")
        begin = list(dict.fromkeys(entries))
        seen = set(begin)
        pool = heapq.nsmallest(width, ((-s, i) for s, i in zip(self.score(q, begin), begin, strict=True)))
        expanded: set[int] = set()
        while (best := next((i for _, i in pool if i not in expanded), None)) is not None:
            expanded.add(best)
            fresh = sorted(self.near[best] - seen)
            if fresh:
                seen.update(fresh)
                scored = [(-s, i) for s, i in zip(self.score(q, fresh), fresh, strict=True)]
                pool = heapq.nsmallest(width, [*pool, *scored])
        return Found([i for _, i in pool[:count]], len(seen))


def persistent_rows(rows: int, sink: int, recent: int) -> list[int]:
    """Sink and recent rows, ascending, each once."""
    return sorted({*range(min(sink, rows)), *range(max(0, rows - recent), rows)})


def without(retrieved: Sequence[int], kept: Sequence[int]) -> list[int]:
    """Retrieved rows that are not persistent, ascending, each once."""
    return sorted(set(retrieved).difference(kept))


class Recall(NamedTuple):
    """What held-out queries say of an index."""

    recall: float
    worst_recall: float
    mean_visited: float
    most_visited: int
    scan_ratio: float
    drift: float


def calibrate(
    exact: Sequence[Sequence[int]],
    found: Sequence[Sequence[int]],
    visited: Sequence[int],
    rows: int,
    prefill: Array,
    held_out: Array,
) -> Recall:
    """Recall, visits and drift; ``prefill`` [T_q, d] is the build sample, ``held_out`` [n, d] are decode queries."""
    need(bool(exact), "NO_HELD_OUT_QUERIES")
    same = len(exact) == len(found) == len(visited) and all(exact)
    need(same, "SHAPE_MISMATCH", "one list and one count a held-out query")
    shares = [len(set(want).intersection(got)) / len(set(want)) for want, got in zip(exact, found, strict=True)]
    mean = sum(visited) / len(visited)
    return Recall(sum(shares) / len(shares), min(shares), mean, max(visited), mean / rows, drift(prefill, held_out))


def drift(prefill: Array, held_out: Array) -> float:
    """Squared shift of the mean in variances of the prefill sample, averaged over channels, in float64."""
    xp = array_namespace(prefill, held_out)
    prefill, held_out = xp.astype(prefill, xp.float64), xp.astype(held_out, xp.float64)
    middle = xp.mean(prefill, axis=0)
    variance = xp.mean((prefill - middle) ** 2, axis=0)
    need(bool(xp.all(variance > 0)), "SAMPLE_DEGENERATE")
    return float(xp.mean((xp.mean(held_out, axis=0) - middle) ** 2 / variance))


class Budget(NamedTuple):
    """A measured width of the search."""

    width: int
    recall: float


def escalate(budgets: Sequence[Budget], floor: float, drifted: bool, exact_allowed: bool) -> tuple[str, int | None]:
    """The narrowest budget that keeps the floor; exact rows where none does, or where the queries have drifted."""
    ascending = all(a.width < b.width for a, b in pairwise(budgets))
    need(bool(budgets) and ascending, "BUDGETS_NOT_ASCENDING")
    for place, budget in enumerate(() if drifted else budgets):
        if budget.recall >= floor:
            return ("widen" if place else "search"), budget.width
    need(exact_allowed, "RECALL_FLOOR_UNMET")
    return "exact", None
