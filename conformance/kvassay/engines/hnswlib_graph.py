"""hnswlib on one thread: the graph index over inner products.

``requirements/ann.txt`` installs what this module needs.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import hnswlib
import numpy as np

from ..adapters.base import EngineAdapter, EngineInfo, Rejected
from ..core.tensors import Array
from ._named_index import ChangingIndexes, LibraryIndex, Request, as_float32

ADAPTERS = {"hnswlib": "Hnswlib"}
"""Names of the adapters here, and their classes; read without an import."""

EDGES, BUILD_WIDTH, WIDTH, SEED = 16, 200, 128, 7


class _Graph:
    """One ``hnswlib.Index`` of the space ``ip``; it grows by ``resize_index``, and rows go by ``mark_deleted``."""

    def __init__(self, channels: int) -> None:
        self.index = hnswlib.Index(space="ip", dim=channels)
        self.index.init_index(max_elements=1, M=EDGES, ef_construction=BUILD_WIDTH, random_seed=SEED)
        self.index.set_num_threads(1)
        self.index.set_ef(WIDTH)
        self.marked = 0

    def add(self, keys: Array, ids: Array) -> None:
        self.index.resize_index(max(1, self.index.element_count + len(keys)))
        self.index.add_items(keys, ids)

    def remove(self, ids: Sequence[int]) -> None:
        for one in ids:
            try:
                self.index.mark_deleted(one)
            except RuntimeError as error:
                raise Rejected("CANDIDATE_NOT_INDEXED", str(error)) from error
            self.marked += 1

    def rows(self) -> int:
        """hnswlib counts marked rows too and says nowhere how many there are."""
        return int(self.index.element_count) - self.marked

    def search(self, queries: Array, count: int, span: Sequence[int] | None) -> list[list[int]]:
        more = {}
        if span is not None:
            first, end = span
            more["filter"] = lambda one: first <= one < end
        try:
            found, _ = self.index.knn_query(queries, k=count, **more)
        except RuntimeError as error:
            raise Rejected(None, str(error)) from error
        return [[int(one) for one in row] for row in found]


class Hnswlib(ChangingIndexes, EngineAdapter):
    """A graph over keys; the ids of rows are its labels."""

    engine = EngineInfo(
        "hnswlib",
        importlib.metadata.version("hnswlib"),
        "https://github.com/nmslib/hnswlib",
        "C++",
        f"space ip, M {EDGES}, ef_construction {BUILD_WIDTH}, ef {WIDTH}; one thread",
    )
    capabilities: ClassVar[Mapping[str, Any]] = {"selection.floor": 0.9}

    def trained(self, keys: Array) -> LibraryIndex:
        """A graph needs no training."""
        return _Graph(keys.shape[1])

    def bridge_exact(self, request: Request) -> dict[str, Any]:
        """One graph a K/V head, searched by each query head within the range."""
        keys, queries = as_float32(request["k"]), as_float32(request["q"])
        graphs = []
        for head in range(keys.shape[1]):
            graph = _Graph(keys.shape[2])
            graph.add(np.ascontiguousarray(keys[:, head]), np.arange(len(keys)))
            graphs.append(graph)
        heads = request["kv_head_of"]
        found = [graphs[h].search(queries[i : i + 1], request["top_k"], request["rows"]) for i, h in enumerate(heads)]
        return {"ids": [one[0] for one in found]}
