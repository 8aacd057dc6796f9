"""What adapters of index libraries share: named indexes, and ids that follow on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from ..core.tensors import Array

Request = Mapping[str, Any]


class LibraryIndex(Protocol):
    """One index of a library; ids are those that the adapter hands to it."""

    def add(self, keys: Array, ids: Array) -> None:
        """Rows [n, d] under these ids."""

    def remove(self, ids: Sequence[int]) -> None:
        """Rows taken out."""

    def rows(self) -> int:
        """Rows that the library says it has."""

    def search(self, queries: Array, count: int, span: Sequence[int] | None) -> list[list[int]]:
        """Ids for each of ``queries`` [n, d], best first; ``span`` is a range of ids."""


class NamedIndexes:
    """The ops of the profiles index-search and index-change on a library's own index.

    The libraries take any ids; that they are given once, in order, is what every user of them does.
    """

    indexes: dict[str, LibraryIndex]
    given: dict[str, int]

    def open(self) -> None:
        """No index."""
        self.indexes, self.given = {}, {}

    def trained(self, keys: Array) -> LibraryIndex:
        """An empty index that knows the keys to come, [T, d]."""
        raise NotImplementedError

    def _add(self, name: str, keys: Array) -> list[int]:
        first = self.given[name]
        ids = np.arange(first, first + len(keys), dtype=np.int64)
        self.indexes[name].add(as_float32(keys), ids)
        self.given[name] = first + len(keys)
        return [int(one) for one in ids]

    def indexes_build(self, request: Request) -> dict[str, Any]:
        """An index of its own for each name; a sample of queries is nothing that these libraries learn from."""
        name = request["index"]
        self.indexes[name], self.given[name] = self.trained(as_float32(request["keys"])), 0
        self._add(name, request["keys"])
        return {"rows": self.indexes[name].rows()}

    def indexes_find(self, request: Request) -> dict[str, Any]:
        """The library's own search."""
        index = self.indexes[request["index"]]
        return {"ids": index.search(as_float32(request["queries"]), request["top_k"], request.get("range"))}


class ChangingIndexes(NamedIndexes):
    """Of libraries that take rows out."""

    def indexes_extend(self, request: Request) -> dict[str, Any]:
        """Rows behind those that are there."""
        ids = self._add(request["index"], request["keys"])
        return {"ids": ids, "rows": self.indexes[request["index"]].rows()}

    def indexes_drop(self, request: Request) -> dict[str, Any]:
        """Rows that are found no more."""
        index = self.indexes[request["index"]]
        index.remove(request["ids"])
        return {"rows": index.rows()}


def as_float32(rows: Array) -> Array:
    """What index libraries take: contiguous float32."""
    return np.ascontiguousarray(rows, dtype=np.float32)
