"""The ops of the built-in adapter that any index has: build, extend, drop, find."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from kvassay_reference.indexes import rows
from kvassay_reference.indexes.search import RowIndex

from .reference_attention import refusals_named
from .reference_part import ReferencePart

Request = Mapping[str, Any]
Result = dict[str, Any]


class IndexSearchReference(ReferencePart):
    """Named indexes with an exact search."""

    own_profiles: ClassVar[frozenset[str]] = frozenset({"index-search", "index-change"})
    row_indexes: dict[str, RowIndex]

    def open(self) -> None:
        """Forget every index."""
        super().open()
        self.row_indexes = {}

    def row_index(self, request: Request) -> RowIndex:
        """The index that a request names."""
        rows.need(request["index"] in self.row_indexes, "UNKNOWN_POOL", request["index"])
        return self.row_indexes[request["index"]]

    def indexes_build(self, request: Request) -> Result:
        """An index of its own for each name."""
        keys = request["keys"]
        with refusals_named():
            rows.need(request["index"] not in self.row_indexes, "POOL_EXISTS", request["index"])
            rows.need("sample" not in request or request["sample"].shape[1] == keys.shape[1], "SHAPE_MISMATCH")
        self.row_indexes[request["index"]] = RowIndex(self.inward(keys))
        return {"rows": self.row_indexes[request["index"]].rows}

    def indexes_extend(self, request: Request) -> Result:
        """Rows behind those that are there."""
        with refusals_named():
            index = self.row_index(request)
            ids = index.extend(self.inward(request["keys"]))
        return {"ids": ids, "rows": index.rows}

    def indexes_drop(self, request: Request) -> Result:
        """Rows that are found no more."""
        with refusals_named():
            index = self.row_index(request)
            index.drop(request["ids"])
        return {"rows": index.rows}

    def indexes_find(self, request: Request) -> Result:
        """Candidates of each query."""
        span = tuple(request["range"]) if "range" in request else None
        with refusals_named():
            return {"ids": self.row_index(request).find(self.inward(request["queries"]), request["top_k"], span)}
