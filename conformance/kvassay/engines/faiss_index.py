"""FAISS on one thread: product quantisation, inverted lists, hashes and a graph as indexes; its k-means for clusters.

``requirements/ann.txt`` installs what this module needs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import faiss
import numpy as np

from ..adapters.base import EngineAdapter, EngineInfo, Rejected, Unsupported
from ..core.tensors import Array
from ._clusters import means_of_raw_keys, member_lists, unit_rows
from ._named_index import ChangingIndexes, LibraryIndex, Request, as_float32

ADAPTERS = {"faiss": "FaissPq", "faiss-ivf": "FaissIvf", "faiss-lsh": "FaissLsh", "faiss-hnsw": "FaissHnsw"}
"""Names of the adapters here, and their classes; read without an import."""
SEED = 7


def info(name: str, notes: str) -> EngineInfo:
    """One index of FAISS, with the version that is installed."""
    return EngineInfo(name, faiss.__version__, "https://faiss.ai", "C++", f"{notes}; one thread")


class _Index:
    """A FAISS index: in an ``IndexIDMap2`` where its ids are places, by itself where it keeps ids of its own."""

    def __init__(self, index: Any, parameters: Callable[..., Any] | None = None, *, keeps_ids: bool = False) -> None:
        self.map = index if keeps_ids else faiss.IndexIDMap2(index)
        self.parameters = parameters

    def add(self, keys: Array, ids: Array) -> None:
        self.map.add_with_ids(keys, ids)

    def remove(self, ids: Sequence[int]) -> None:
        try:
            self.map.remove_ids(np.asarray(ids, dtype=np.int64))
        except RuntimeError as error:
            raise Unsupported(str(error)) from error

    def rows(self) -> int:
        return int(self.map.ntotal)

    def search(self, queries: Array, count: int, span: Sequence[int] | None) -> list[list[int]]:
        """FAISS writes -1 where it found no row, so a -1 is no id."""
        more = {}
        if span is not None:
            if self.parameters is None:
                raise Unsupported("this index takes no selector of ids")
            more["params"] = self.parameters(sel=faiss.IDSelectorRange(*span))
        try:
            _, found = self.map.search(queries, count, **more)
        except AssertionError as error:
            raise Rejected("SHAPE_MISMATCH" if queries.shape[1] != self.map.d else None, str(error)) from error
        return [[int(one) for one in row if one != -1] for row in found]


class _Faiss(ChangingIndexes, EngineAdapter):
    """What the adapters of FAISS share."""

    def setup(self) -> None:
        """One thread, so that sums have one order."""
        faiss.omp_set_num_threads(1)

    def empty(self, rows: int, channels: int) -> LibraryIndex:
        """An index for so many rows of so many channels, not trained."""
        raise NotImplementedError

    def trained(self, keys: Array) -> LibraryIndex:
        """Trained on the keys that it is built from, as FAISS asks for."""
        index = self.empty(*keys.shape)
        try:
            index.map.train(keys)  # type: ignore[attr-defined]
        except RuntimeError as error:
            raise Rejected(None, str(error)) from error
        return index


class FaissPq(_Faiss):
    """``IndexPQ`` with inner products; look-up over given codes; ``Clustering`` from given rows."""

    engine = info("faiss IndexPQ", "two channels a subspace, up to 8 bits, in an IndexIDMap2")
    capabilities: ClassVar[Mapping[str, Any]] = {"selection.floor": 0.5, "index.range": "absent"}

    def empty(self, rows: int, channels: int) -> LibraryIndex:
        """As many subspaces as pairs of channels, and fewer centroids than rows."""
        bits = max(1, min(8, (rows - 1).bit_length() - 1))
        return _Index(faiss.IndexPQ(channels, max(1, channels // 2), bits, faiss.METRIC_INNER_PRODUCT))

    def pq_score(self, request: Request) -> dict[str, Any]:
        """Tables of the quantiser, and what a search over all rows says of each, by its id."""
        centroids, queries = as_float32(request["centroids"]), as_float32(request["q"])
        indexes = [_coded(centroids[h], request["codes"][h]) for h in range(len(centroids))]
        tables, scores = [], []
        for query, head in zip(queries, request["kv_head_of"], strict=True):
            index = indexes[head]
            table = np.empty(centroids.shape[1:3], np.float32)
            index.pq.compute_inner_prod_table(faiss.swig_ptr(query), faiss.swig_ptr(table))
            found, ids = index.search(query[None], max(1, index.ntotal))
            row = np.empty(index.ntotal, np.float32)
            row[ids[0]] = found[0]
            tables.append(table)
            scores.append(row)
        return {"table": np.stack(tables), "scores": np.stack(scores)}

    def clusterkv_build(self, request: Request) -> dict[str, Any]:
        """Spherical k-means of each K/V head; labels are the nearest of the centroids that come out."""
        heads, centroids = [], []
        for head in range(request["k"].shape[1]):
            keys = as_float32(request["k"][:, head])
            faiss.normalize_L2(keys)
            middle, labels = _clustered(keys, request["initial"], request["iterations"], spherical=True)
            heads.append(member_lists(labels.tolist(), len(middle), request["first_position"]))
            centroids.append(middle)
        return {"centroids": np.stack(centroids), **{name: [one[name] for one in heads] for name in heads[0]}}

    def squeezed_build(self, request: Request) -> dict[str, Any]:
        """Plain k-means on keys of unit length; the means of raw keys are the adapter's."""
        if "init_rows" not in request:
            raise Unsupported("labels are what a clustering makes")
        _, labels = _clustered(unit_rows(request["keys"]), request["init_rows"], request["iterations"], spherical=False)
        return means_of_raw_keys(request, labels)


class FaissIvf(_Faiss):
    """``IndexIVFFlat`` with inner products."""

    engine = info("faiss IndexIVFFlat", "as many lists as the root of the rows, three quarters of them probed")
    capabilities: ClassVar[Mapping[str, Any]] = {"selection.floor": 0.5}

    def empty(self, rows: int, channels: int) -> LibraryIndex:
        """Lists by inner product, as ``index_factory`` makes them."""
        lists = max(1, round(rows**0.5))
        index = faiss.index_factory(channels, f"IVF{lists},Flat", faiss.METRIC_INNER_PRODUCT)
        index.nprobe = -(-3 * lists // 4)
        probing = index.nprobe

        def parameters(**more: Any) -> Any:
            return faiss.SearchParametersIVF(nprobe=probing, **more)

        return _Index(index, parameters, keeps_ids=True)


class FaissLsh(_Faiss):
    """``IndexLSH``: signs of random projections, ranked by how many agree."""

    engine = info("faiss IndexLSH", "sixteen bits a channel, in an IndexIDMap2")
    capabilities: ClassVar[Mapping[str, Any]] = {"selection.floor": 0.5, "index.range": "absent"}

    def empty(self, rows: int, channels: int) -> LibraryIndex:
        """It knows no metric but the angle."""
        return _Index(faiss.IndexLSH(channels, 16 * channels))


class FaissHnsw(_Faiss):
    """``IndexHNSWFlat`` with inner products, from which no row can be taken."""

    engine = info("faiss IndexHNSWFlat", "M 16, efConstruction 200, efSearch 128, in an IndexIDMap2")
    profiles = frozenset({"index-search"})
    capabilities: ClassVar[Mapping[str, Any]] = {"selection.floor": 0.5}

    def empty(self, rows: int, channels: int) -> LibraryIndex:
        """A graph over keys."""
        index = faiss.IndexHNSWFlat(channels, 16, faiss.METRIC_INNER_PRODUCT)
        index.hnsw.efConstruction, index.hnsw.efSearch = 200, 128

        def parameters(**more: Any) -> Any:
            return faiss.SearchParametersHNSW(efSearch=128, **more)

        return _Index(index, parameters)


def _coded(centroids: Array, codes: Sequence[Sequence[int]]) -> Any:
    """An ``IndexPQ`` with these centroids [m, 2^b, d_m] and codes [n][m]."""
    parts, count, width = centroids.shape
    bits = count.bit_length() - 1
    index = faiss.IndexPQ(parts * width, parts, bits, faiss.METRIC_INNER_PRODUCT)
    faiss.copy_array_to_vector(np.ascontiguousarray(centroids).ravel(), index.pq.centroids)
    index.is_trained = True
    if codes:
        index.add_sa_codes(faiss.pack_bitstrings(np.asarray(codes, dtype=np.int32), bits))
    return index


def _clustered(points: Array, initial: Sequence[int], rounds: int, *, spherical: bool) -> tuple[Array, Array]:
    """Centroids and labels of ``faiss.Clustering`` that begins at these rows."""
    settings = faiss.ClusteringParameters()
    settings.niter, settings.spherical, settings.seed = rounds, spherical, SEED
    settings.min_points_per_centroid, settings.max_points_per_centroid = 1, len(points)
    made = faiss.Clustering(points.shape[1], len(initial), settings)
    faiss.copy_array_to_vector(np.ascontiguousarray(points[list(initial)]).ravel(), made.centroids)
    index = (faiss.IndexFlatIP if spherical else faiss.IndexFlatL2)(points.shape[1])
    try:
        made.train(points, index)
    except RuntimeError as error:
        raise Rejected(None, str(error)) from error
    middle = faiss.vector_to_array(made.centroids).reshape(len(initial), -1)
    return middle, index.search(points, 1)[1][:, 0]
