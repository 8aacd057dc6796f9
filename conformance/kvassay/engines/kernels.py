"""The CUDA kernels as an engine, on a GPU: the built-in adapter with its hot paths in ``kvassay_kernels``.

What the kernels do not do, the reference does, on CuPy arrays. ``pip install 'kvassay[cuda13]'`` brings CuPy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import ml_dtypes
import numpy as np
from array_api_compat import array_namespace
from kvassay_kernels import KernelError, attention, magicpig, pq, quest, rows, sparq, squeezed
from kvassay_reference.attention import State
from kvassay_reference.errors import Refusal
from kvassay_reference.indexes import magicpig as reference_magicpig
from kvassay_reference.indexes import squeezed as reference_squeezed
from kvassay_reference.indexes.search import RowIndex
from kvassay_reference.selectors.quest import Quest
from kvassay_reference.selectors.rows import History, integers
from kvassay_reference.selectors.sparq import Sparq

from ..adapters.base import EngineInfo, Unsupported
from .reference import VERSION
from .reference_attention import AttentionReference
from .reference_index_search import IndexSearchReference
from .reference_indexes import IndexesReference
from .reference_selectors import SelectorReference

ADAPTERS = {"kernels": "Kernels"}
"""Names of the adapters here, and their classes; read without an import."""
Request = Mapping[str, Any]


class KernelAttention(AttentionReference):
    """The attention ops: every row is reduced, and every state merged, by a kernel."""

    def positions(self, request: Request) -> Any:
        """Consecutive positions as a range, of which the kernels know the ends."""
        if "k_positions" in request:
            return super().positions(request)
        rows = request["pages"]["rows"] if "pages" in request else request["k"].shape[0]
        return range(request["k_first_position"], request["k_first_position"] + rows)

    def reduce(self, request: Request) -> State:
        """One or more splits, and their merge."""
        with limits_named():
            return attention.partial(**self.arguments(request))

    def finish(self, state: State) -> tuple[Any, Any]:
        """Output and LSE."""
        return attention.finish(state)

    def merge(self, states: list[State]) -> State:
        """Any number of states in one launch."""
        with limits_named():
            return attention.merge(states)


def best(scores: Any, count: int) -> Any:
    """The best of a row, ascending, as the reference's 64-bit positions."""
    return array_namespace(scores).astype(rows.best(scores, count), "int64")


def attend(
    history: History, scale: float, positions: Sequence[Any], kv_head_of: Sequence[int], *, per_query: bool = False
) -> tuple[Any, Any]:
    """Output and LSE over the rows that each K/V head, or query head, names; raises :class:`Refusal` for none."""
    assert history.v is not None
    read = range(len(kv_head_of)) if per_query else sorted(set(kv_head_of))
    if any(int(positions[one].shape[0]) == 0 for one in read):
        raise Refusal("NO_LEGAL_ROWS")
    xp = array_namespace(history.q)
    lengths = [int(one.shape[0]) for one in positions]
    table = xp.full((1, len(positions), max(lengths)), -1, dtype=xp.int32)
    for one, found in enumerate(positions):
        table[0, one, : lengths[one]] = found
    out, lse = attention.decode(
        history.q[None, ...],
        history.k[None, ...],
        history.v[None, ...],
        scale=scale,
        kv_head_of=kv_head_of,
        lengths=xp.asarray([lengths], dtype=xp.int32),
        table=table,
        per_query=per_query,
        output="float32",
    )
    return out[0, ...], lse[0, ...]


class KernelSparq(Sparq):
    """SparQ with its products, its choice of rows and its attention in kernels."""

    def logits(self, queries: Any, keys: Any, channels: Any, temperature: Any) -> Any:
        """Products of one K/V head's queries [n, d] with its keys [T, d]."""
        chosen = array_namespace(channels).astype(channels, "int32")[None, :]
        return sparq.logits(queries, keys[:, None, :], chosen, temperature, [0] * int(queries.shape[0]))

    def choose(self, scores: Any, legal: Any, forced: Any, count: int) -> Any:
        """As the reference's."""
        xp = array_namespace(scores)
        wanted = min(count, int(xp.sum(legal)))
        ranked = xp.where(legal, xp.where(forced, np.inf, scores), -np.inf)
        return best(xp.astype(ranked, scores.dtype), max(wanted, int(xp.sum(forced))))

    def gather(self, history: History, scale: float, positions: Sequence[Any]) -> tuple[Any, Any]:
        """Attention over the rows of each K/V head."""
        return attend(history, scale, positions, history.kv_head_of)


class KernelQuest(Quest):
    """Quest with its metadata, bounds, choice of pages and attention in kernels."""

    def metadata(self, k: Any, page_rows: int) -> tuple[Any, Any]:
        """Extrema of pages."""
        return quest.metadata(k, page_rows)

    def append(self, minimum: Any, maximum: Any, rows: int, page_rows: int, k: Any) -> tuple[Any, Any, int]:
        """Extrema after some keys more."""
        return quest.append(minimum, maximum, rows, page_rows, k)

    def bounds(self, q: Any, minimum: Any, maximum: Any, kv_head_of: Sequence[int], accumulate: str) -> Any:
        """Bounds of pages."""
        return quest.bounds(q, minimum, maximum, kv_head_of, accumulate)

    def choose(self, bounds: Any, count: int, reserve: bool) -> Any:
        """As the reference's."""
        last = int(bounds.shape[0]) - 1
        if not reserve:
            return best(bounds, count)
        return array_namespace(bounds).concat([best(bounds[:last], count - 1), integers(bounds, [last])])

    def gather(
        self, history: History, scale: float, page_rows: int, scope: str, pages: Sequence[Any]
    ) -> tuple[Any, Any]:
        """Attention over the rows of the pages of each list."""
        positions = [self.rows_of(found, page_rows, history.rows) for found in pages]
        return attend(history, scale, positions, history.kv_head_of, per_query=scope != "kv-head")


class KernelSelectors(SelectorReference):
    """The selectors' ops; InfiniGen's are the reference's."""

    selector_sparq: ClassVar[Sparq] = KernelSparq()
    selector_quest: ClassVar[Quest] = KernelQuest()


class KernelRowIndex(RowIndex):
    """An exact search: products with every row, and the best of them."""

    def find(self, queries: Any, count: int, span: tuple[int, int] | None = None) -> list[list[int]]:
        """As the reference's."""
        legal = self.legal(span or (0, len(self.found)))
        if queries.shape[1] != self.keys.shape[1]:
            raise Refusal("SHAPE_MISMATCH")
        if not legal:
            return [[] for _ in range(queries.shape[0])]
        kept = rows.take(self.keys, legal)
        scores = rows.score_rows(queries, kept[:, None, :], [0] * int(queries.shape[0]))
        return [[legal[int(i)] for i in one] for one in rows.top(scores, count)]


class KernelIndexes(IndexesReference, IndexSearchReference):
    """The index ops: tables, look-ups, signatures, matches, probabilities, shares, and exact searches."""

    def indexes_build(self, request: Request) -> dict[str, Any]:
        """An index that searches with kernels."""
        reply = super().indexes_build(request)
        self.row_indexes[request["index"]] = KernelRowIndex(self.inward(request["keys"]))
        return reply

    def quantised_table(self, q: Any, centroids: Any) -> Any:
        """Products of one query's parts with one head's centroids."""
        with limits_named():
            return pq.tables(q[None, :], centroids[None, ...], [0])[0, ...]

    def quantised_look_up(self, table: Any, codes: Any) -> Any:
        """Sums of look-ups."""
        narrow = array_namespace(codes).astype(codes, "uint8")
        with limits_named():
            return pq.scores(table[None, ...], narrow[None, ...], [0])[0, ...]

    def sampled_buckets(self, x: Any, projections: Any) -> list[list[int]]:
        """Signature of each row in each table."""
        with limits_named():
            found: list[list[int]] = self.outward(magicpig.signatures(x, projections)).T.tolist()
        return found

    def sampled_matches(self, keys: Any, query: Any) -> Any:
        """Tables in which each row matches."""
        xp = array_namespace(keys)
        narrow = [xp.ascontiguousarray(xp.astype(one, "uint16"))[None, ...] for one in (keys, query)]
        return magicpig.matches(narrow[0], narrow[1], [0])[0, ...]

    def sampled_inclusion(self, cosines: Any, rule: reference_magicpig.Tables) -> tuple[Any, Any]:
        """Probability and its logarithm."""
        return magicpig.inclusion(cosines, rule)

    def clustered_shares(self, q: Any, level: reference_squeezed.Level, scale: float) -> Any:
        """Share of one row of each cluster."""
        return squeezed.shares(q, with_dtype(level, q.dtype), scale)


def with_dtype(level: reference_squeezed.Level, dtype: Any) -> reference_squeezed.Level:
    """A level with its centroids in a dtype; calibration makes them in float64."""
    centroids = array_namespace(level.centroids).astype(level.centroids, dtype, copy=False)
    return reference_squeezed.Level(centroids, level.sizes)


class KernelParts(KernelAttention, KernelSelectors, KernelIndexes):
    """Every contract of which the kernels do the hot part."""


class CupyArrays:
    """CuPy arrays on the current device."""

    def setup(self) -> None:
        """Say now what is missing."""
        try:
            import cupy

            cupy.cuda.runtime.getDevice()
        except ImportError:
            raise RuntimeError("the kernels need CuPy: pip install 'kvassay[cuda13]' or 'kvassay[cuda12]'") from None
        except cupy.cuda.runtime.CUDARuntimeError as error:
            raise RuntimeError(f"the kernels need a CUDA device: {error}") from None

    def inward(self, array: Any) -> Any:
        """Copy to the device; bfloat16 crosses as its bits."""
        import cupy

        if isinstance(array, range):
            return array
        if array.dtype == ml_dtypes.bfloat16:
            return cupy.asarray(array.view(np.uint16)).view(ml_dtypes.bfloat16)
        return cupy.asarray(array)

    def outward(self, array: Any) -> Any:
        """Copy to the host, which waits for the kernels."""
        import cupy

        return cupy.asnumpy(array)


class Kernels(CupyArrays, KernelParts):
    """The kernels on CuPy arrays."""

    engine: ClassVar[EngineInfo] = EngineInfo("kvassay_kernels", VERSION, language="CUDA C++", notes="CuPy")


@contextmanager
def limits_named() -> Any:
    """What no kernel takes, such as float64, is not applicable."""
    try:
        yield
    except KernelError as error:
        raise Unsupported(str(error)) from None
