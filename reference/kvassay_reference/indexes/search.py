"""Any index over the keys of one head: an exact search, against which approximate ones are measured.

Sources: 01H, 07C, 07E, 07G.
"""

from __future__ import annotations

from collections.abc import Sequence

from array_api_compat import array_namespace, device

from .rows import Array, need, top


class RowIndex:
    """Keys [T, d] by id. An id is given once: rows that are taken out leave a gap."""

    def __init__(self, keys: Array) -> None:
        """Row ``i`` has the id ``i``."""
        self.keys = keys
        self.found = [True] * keys.shape[0]

    @property
    def rows(self) -> int:
        """Rows that a search finds."""
        return sum(self.found)

    def extend(self, keys: Array) -> list[int]:
        """Append rows [n, d], and return their ids."""
        need(keys.shape[1] == self.keys.shape[1], "SHAPE_MISMATCH")
        first = len(self.found)
        self.keys = array_namespace(keys).concat([self.keys, keys])
        self.found += [True] * keys.shape[0]
        return list(range(first, len(self.found)))

    def drop(self, ids: Sequence[int]) -> None:
        """Take rows out, all or none."""
        total = len(self.found)
        there = len(set(ids)) == len(ids) and all(0 <= one < total and self.found[one] for one in ids)
        need(there, "CANDIDATE_NOT_INDEXED", f"{list(ids)}")
        for one in ids:
            self.found[one] = False

    def legal(self, span: tuple[int, int]) -> list[int]:
        """Ids of a range that a search finds."""
        first, end = span
        need(0 <= first <= end <= len(self.found), "CANDIDATE_OUT_OF_RANGE")
        return [i for i in range(first, end) if self.found[i]]

    def find(self, queries: Array, count: int, span: tuple[int, int] | None = None) -> list[list[int]]:
        """For each of ``queries`` [n, d] the ids with the largest inner products, best first, ties to the lower."""
        need(queries.shape[1] == self.keys.shape[1], "SHAPE_MISMATCH")
        legal = self.legal(span or (0, len(self.found)))
        if not legal:
            return [[] for _ in range(queries.shape[0])]
        xp = array_namespace(queries)
        kept = xp.take(self.keys, xp.asarray(legal, dtype=xp.int64, device=device(queries)), axis=0)
        scores = queries @ kept.T
        return [[legal[i] for i in top(scores[j, ...], count)] for j in range(queries.shape[0])]
