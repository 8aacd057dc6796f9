"""Faults of InfiniGen and its pool."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from kvassay_reference.selectors.infinigen import ACCURACY, SPEED, Fetch, InfiniGen, Limits, Pool
from kvassay_reference.selectors.infinigen import LLAMA as INFINIGEN_LLAMA
from kvassay_reference.selectors.infinigen import PAPER as INFINIGEN_PAPER
from kvassay_reference.selectors.rows import History

from ..base import Fault
from .base import Array, Request, Result, case


class ThinBasis(Fault):
    """Directions that a short sample lacks are not completed."""

    requirement = "SEL-040"
    killed_by = case("infinigen-basis/concentrates-its-sample-b", "infinigen-basis/keeps-full-scores-short")

    class _Fetches(InfiniGen):
        def right_vectors(self, rows: Array) -> tuple[Array, Array]:
            vectors, values = super().right_vectors(rows)
            return vectors * (np.arange(len(values)) < max(1, len(rows))), values

        def check_basis(self, *request: Any) -> None:
            return None

    selector_infinigen = _Fetches()


class BasisOfTheFirstHead(Fault):
    """The group's first head gives the basis."""

    requirement = "SEL-040"
    killed_by = case(
        "infinigen-basis/concentrates-its-sample-a", "infinigen-basis/values-a", "infinigen-basis/values-b"
    )

    class _Fetches(InfiniGen):
        def right_vectors(self, rows: Array) -> tuple[Array, Array]:
            return super().right_vectors(rows[: max(1, len(rows) // 2)])

    selector_infinigen = _Fetches()


class IdentityBasis(Fault):
    """The basis is the identity, whatever the sample."""

    requirement = "SEL-040"
    killed_by = case("infinigen-basis/concentrates-its-sample-a", "infinigen-basis/concentrates-its-sample-b")

    class _Fetches(InfiniGen):
        def right_vectors(self, rows: Array) -> tuple[Array, Array]:
            vectors, values = super().right_vectors(rows)
            return np.eye(len(values), dtype=vectors.dtype), values

    selector_infinigen = _Fetches()


class ValuesSquared(Fault):
    """Singular values are energies."""

    requirement = "SEL-040"
    killed_by = case("infinigen-basis/values-a", "infinigen-basis/values-b", "infinigen-basis/values-short")

    class _Fetches(InfiniGen):
        def right_vectors(self, rows: Array) -> tuple[Array, Array]:
            vectors, values = super().right_vectors(rows)
            return vectors, values * values

    selector_infinigen = _Fetches()


class BasisInHalfPrecision(Fault):
    """The basis is stored in float16."""

    requirement = "SEL-041"
    killed_by = case(
        "infinigen-basis/keeps-full-scores-a",
        "infinigen-basis/keeps-full-scores-b",
        "published/infinigen-skew-keeps-scores",
    )

    class _Fetches(InfiniGen):
        def right_vectors(self, rows: Array) -> tuple[Array, Array]:
            vectors, values = super().right_vectors(rows)
            return vectors.astype(np.float16).astype(np.float32), values

        def check_basis(self, *request: Any) -> None:
            return None

    selector_infinigen = _Fetches()


class QueriesAloneRotated(Fault):
    """Keys stay as they were."""

    requirement = "SEL-041"
    killed_by = case(
        "infinigen-basis/keeps-full-scores-a", "infinigen-score/joint-rotation", "published/infinigen-skew-keeps-scores"
    )

    class _Fetches(InfiniGen):
        def score(self, history: History, basis: Array, tolerance: float, columns: Any) -> tuple[Array, Array]:
            heads = range(min(history.k.shape[1], len(basis)))
            back = np.stack([history.k[:, head, :] @ basis[head].T for head in heads], axis=1)
            whole = back.shape == history.k.shape and basis.dtype == history.k.dtype
            return super().score(replace(history, k=back) if whole else history, basis, tolerance, columns)

    selector_infinigen = _Fetches()


class BasisOfAnotherHead(Fault):
    """Every query is rotated by the basis of the last K/V head."""

    requirement = "SEL-041"
    killed_by = case(
        "infinigen-basis/keeps-full-scores-a", "infinigen-score/joint-rotation", "published/infinigen-skew-keeps-scores"
    )

    class _Fetches(InfiniGen):
        turn: Any = None

        def rotate(self, rows: Array, basis: Array) -> Array:
            return super().rotate(rows, self.turn if len(rows) <= 2 and self.turn is not None else basis)

        def score(self, history: History, basis: Array, tolerance: float, columns: Any) -> tuple[Array, Array]:
            self.turn = basis[-1] if basis.ndim == 3 and len(basis) else None
            try:
                return super().score(history, basis, tolerance, columns)
            finally:
                self.turn = None

    selector_infinigen = _Fetches()


class AnyBasis(Fault):
    """No basis is ever refused for not being orthogonal."""

    requirement = "SEL-042"
    killed_by = case(
        "infinigen-fold/basis-not-orthogonal",
        "infinigen-score/basis-a-lost-column",
        "infinigen-score/basis-half-precision",
    )

    class _Fetches(InfiniGen):
        def check_basis(self, basis: Array, shape: tuple[int, int, int], tolerance: float) -> None:
            super().check_basis(basis, shape, math.inf)

    selector_infinigen = _Fetches()


class NoTolerance(Fault):
    """A basis is refused unless it is orthogonal to the last bit but few."""

    requirement = "SEL-042"
    killed_by = case("infinigen-score/basis-within-its-tolerance")

    class _Fetches(InfiniGen):
        def check_basis(self, basis: Array, shape: tuple[int, int, int], tolerance: float) -> None:
            super().check_basis(basis, shape, min(tolerance, 1e-5))

    selector_infinigen = _Fetches()


class BiasNotFolded(Fault):
    """The bias stays in the old basis."""

    requirement = "SEL-043"
    killed_by = case("infinigen-fold/crossed-heads", "infinigen-fold/keys", "infinigen-fold/queries-with-scale")

    class _Fetches(InfiniGen):
        def fold(self, w: Array, b: Array | None, *rest: Any) -> tuple[Array, Array | None]:
            return super().fold(w, b, *rest)[0], b

    selector_infinigen = _Fetches()


class BiasNotScaled(Fault):
    """The scale goes into the weights alone."""

    requirement = "SEL-043"
    killed_by = case(
        "infinigen-fold/crossed-heads", "infinigen-fold/queries-with-scale", "infinigen-fold/scale-of-a-third-root"
    )

    class _Fetches(InfiniGen):
        def fold(self, w: Array, b: Array | None, basis: Array, of: Any, scale: float, *rest: Any) -> Any:
            return super().fold(w, b, basis, of, scale, *rest)[0], super().fold(w, b, basis, of, 1.0, *rest)[1]

    selector_infinigen = _Fetches()


class FoldedByPlace(Fault):
    """Head h of a projection takes basis h modulo."""

    requirement = "SEL-043"
    killed_by = case(
        "infinigen-fold/crossed-heads", "infinigen-fold/queries-with-scale", "infinigen-fold/scale-of-a-third-root"
    )

    class _Fetches(InfiniGen):
        def fold(self, w: Array, b: Array | None, basis: Array, of: Any, *rest: Any) -> Any:
            return super().fold(w, b, basis, [h % len(basis) for h in range(len(of))], *rest)

    selector_infinigen = _Fetches()


class FoldedByTheTranspose(Fault):
    """Weights are multiplied by the transposed basis."""

    requirement = "SEL-043"
    killed_by = case("infinigen-fold/keys", "infinigen-fold/no-bias", "infinigen-fold/queries-with-scale")

    class _Fetches(InfiniGen):
        def fold(self, w: Array, b: Array | None, basis: Array, *rest: Any) -> Any:
            return super().fold(w, b, np.swapaxes(basis, 1, 2), *rest)

    selector_infinigen = _Fetches()


class FoldedAcrossRope(Fault):
    """The basis is folded before a rotary embedding."""

    requirement = "SEL-044"
    killed_by = case("infinigen-fold/before-rope-keys", "infinigen-fold/before-rope-queries")

    class _Fetches(InfiniGen):
        def fold(
            self, w: Array, b: Array | None, basis: Array, of: Any, scale: float, tolerance: float, rope: str
        ) -> Any:
            return super().fold(w, b, basis, of, scale, tolerance, "none")

    selector_infinigen = _Fetches()


class ColumnsOfTheQuery(Fault):
    """The query alone chooses."""

    requirement = "SEL-045"
    killed_by = case("infinigen-columns/evidence-of-a", "infinigen-columns/key-decides", "infinigen-columns/of-a-four")

    class _Fetches(InfiniGen):
        def pick(self, rule: str, of_queries: Array, of_keys: Array, count: int) -> tuple[Array, Array]:
            return super().pick(SPEED if rule == INFINIGEN_PAPER else rule, of_queries, of_keys, count)

    selector_infinigen = _Fetches()


class ColumnsOfTheKey(Fault):
    """The key alone chooses."""

    requirement = "SEL-045"
    killed_by = case("infinigen-columns/evidence-of-a", "infinigen-columns/query-decides", "infinigen-columns/ties")

    class _Fetches(InfiniGen):
        def pick(self, rule: str, of_queries: Array, of_keys: Array, count: int) -> tuple[Array, Array]:
            return super().pick(rule, of_keys * 0 if rule == INFINIGEN_PAPER else of_queries, of_keys, count)

    selector_infinigen = _Fetches()


class EvidenceSigned(Fault):
    """Columns are summed with their signs."""

    requirement = "SEL-045"
    killed_by = case(
        "infinigen-columns/evidence-of-a", "infinigen-columns/key-decides", "infinigen-columns/query-decides"
    )

    class _Fetches(InfiniGen):
        def evidence(self, queries: Array, keys: Array) -> tuple[Array, Array]:
            return np.abs(queries.sum(axis=0)), np.abs(keys.sum(axis=0))

    selector_infinigen = _Fetches()


class EvidenceOfTheLastRow(Fault):
    """The last row of the prefill is the whole sample."""

    requirement = "SEL-045"
    killed_by = case(
        "infinigen-columns/evidence-of-a", "infinigen-columns/evidence-of-a-four", "infinigen-columns/of-a-four"
    )

    class _Fetches(InfiniGen):
        def evidence(self, queries: Array, keys: Array) -> tuple[Array, Array]:
            return super().evidence(queries[-1:], keys[-1:])

    selector_infinigen = _Fetches()


class ColumnsNotShared(Fault):
    """Keys are taken over the first columns, as many as there are."""

    requirement = "SEL-046"
    killed_by = case("infinigen-rehearse/of-a", "infinigen-rehearse/of-a-one-column", "infinigen-rehearse/without-bias")

    class _Fetches(InfiniGen):
        def partial(self, queries: Array, keys: Array, columns: Array) -> Array:
            return queries[:, columns] @ keys[:, : len(columns)].T

    selector_infinigen = _Fetches()


class ColumnsOfAnotherHead(Fault):
    """All K/V heads use the columns of the first."""

    requirement = "SEL-046"
    killed_by = case("infinigen-rehearse/of-a", "infinigen-rehearse/of-a-one-column", "infinigen-rehearse/without-bias")

    class _Fetches(InfiniGen):
        def check_columns(self, columns: Any, heads: int, width: int) -> None:
            super().check_columns(columns, heads, width)
            if isinstance(columns, list) and columns:
                columns[:] = [columns[0]] * len(columns)

    selector_infinigen = _Fetches()


class NoBias(Fault):
    """The rehearsal forgets the bias."""

    requirement = "SEL-046"
    killed_by = case("infinigen-fold/then-score", "infinigen-rehearse/of-a", "infinigen-rehearse/of-b-all-columns")

    class _Fetches(InfiniGen):
        def rehearsed_query(self, x: Array, w: Array, b: Array | None) -> Array:
            return super().rehearsed_query(x, w, None)

    selector_infinigen = _Fetches()


class BiasWhereNoneIs(Fault):
    """A projection without bias adds one."""

    requirement = "SEL-046"
    killed_by = case(
        "infinigen-rehearse/without-bias",
        "published/infinigen-speculate-alpha20-cap3",
        "published/infinigen-speculate-alpha8-cap400",
    )

    class _Fetches(InfiniGen):
        def rehearsed_query(self, x: Array, w: Array, b: Array | None) -> Array:
            return super().rehearsed_query(x, w, w[0] if b is None else b)

    selector_infinigen = _Fetches()


class RehearsalKept(Fault):
    """Scores of the first input answer for the second."""

    requirement = "SEL-046"
    killed_by = case("infinigen-rehearse/no-memory-of-another-input")

    def open(self) -> None:
        super().open()
        self.scores: Any = None

    def infinigen_rehearse(self, request: Request) -> Result:
        self.scores = super().infinigen_rehearse(request)["scores"] if self.scores is None else self.scores
        return {"scores": self.scores}


class EmptyMeansAll(Fault):
    """An empty list of columns means all of them."""

    requirement = "SEL-046"
    killed_by = case("infinigen-score/no-columns")

    class _Fetches(InfiniGen):
        def partial(self, queries: Array, keys: Array, columns: Array) -> Array:
            return super().partial(queries, keys, columns if len(columns) else np.arange(queries.shape[1]))

    selector_infinigen = _Fetches()


class BasisUnused(Fault):
    """Partial scores are over the columns before rotation."""

    requirement = "SEL-046"
    killed_by = case(
        "infinigen-score/rotation-changes-partial-scores",
        "infinigen-score/some-columns-crossed",
        "infinigen-score/some-columns-groups",
    )

    class _Fetches(InfiniGen):
        def rotate(self, rows: Array, basis: Array) -> Array:
            return rows

    selector_infinigen = _Fetches()


class RehearsalInHalfPrecision(Fault):
    """Partial scores are rounded to float16."""

    requirement = "SEL-046"
    killed_by = case(
        "infinigen-fold/then-score", "infinigen-rehearse/of-a-one-column", "infinigen-rehearse/of-b-all-columns"
    )

    class _Fetches(InfiniGen):
        def partial(self, queries: Array, keys: Array, columns: Array) -> Array:
            return super().partial(queries, keys, columns).astype(np.float16).astype(np.float32)

    selector_infinigen = _Fetches()


class RemainderOfTheQuery(Fault):
    """The bound is the norm of the query alone."""

    requirement = "SEL-047"
    killed_by = case(
        "infinigen-score/rehearsal-misses-the-best-row",
        "infinigen-score/remainder-crossed",
        "infinigen-score/remainder-groups",
    )

    class _Fetches(InfiniGen):
        def remainder(self, queries: Array, keys: Array) -> Array:
            return super().remainder(queries, keys * 0 + np.float32(max(1, keys.shape[1]) ** -0.5))

    selector_infinigen = _Fetches()


class RemainderOfTheProduct(Fault):
    """The bound is the product that was left out itself, which is no bound when signs turn."""

    requirement = "SEL-047"
    killed_by = case(
        "infinigen-score/rehearsal-misses-the-best-row",
        "infinigen-score/remainder-crossed",
        "infinigen-score/remainder-groups",
    )

    class _Fetches(InfiniGen):
        def remainder(self, queries: Array, keys: Array) -> Array:
            return np.abs(queries @ keys.T)

    selector_infinigen = _Fetches()


class NothingLeftOver(Fault):
    """The other columns count as nothing."""

    requirement = "SEL-047"
    killed_by = case(
        "infinigen-score/rehearsal-misses-the-best-row",
        "infinigen-score/remainder-crossed",
        "infinigen-score/remainder-groups",
    )

    class _Fetches(InfiniGen):
        def remainder(self, queries: Array, keys: Array) -> Array:
            return super().remainder(queries, keys) * 0

    selector_infinigen = _Fetches()


class RemainderOverAll(Fault):
    """Where nothing is left out the bound is that of the whole row."""

    requirement = "SEL-047"
    killed_by = case(
        "infinigen-score/full-crossed", "infinigen-score/full-groups", "infinigen-score/rehearsal-misses-the-best-row"
    )

    class _Fetches(InfiniGen):
        def remainder(self, queries: Array, keys: Array) -> Array:
            return super().remainder(queries, keys) + np.float32(0.25)

    selector_infinigen = _Fetches()


class StrictThreshold(Fault):
    """A row on the edge does not pass, as in the published speed code."""

    requirement = "SEL-048"
    killed_by = case(
        "infinigen-select/alpha-zero", "infinigen-variants/paper-alpha-zero", "infinigen-variants/paper-cap-covers-all"
    )

    class _Fetches(InfiniGen):
        def passing(self, limits: Limits, margins: Array, scores: Array, first: Array) -> int:
            return super().passing(replace(limits, rule=SPEED), margins, scores, first)

    selector_infinigen = _Fetches()


class ThresholdOfTheFirstHead(Fault):
    """The maximum of head 0 sets the threshold of all, as in one of the published models."""

    requirement = "SEL-048"
    killed_by = case(
        "infinigen-select/alpha-zero", "infinigen-select/just-inside", "infinigen-variants/paper-alpha-zero"
    )

    class _Fetches(InfiniGen):
        def passing(self, limits: Limits, margins: Array, scores: Array, first: Array) -> int:
            return super().passing(replace(limits, rule=INFINIGEN_LLAMA), margins, scores, first)

    selector_infinigen = _Fetches()


class MarginsOfTheFirstReader(Fault):
    """The first query head of a group decides."""

    requirement = "SEL-048"
    killed_by = case("infinigen-select/groups-crossed", "infinigen-select/groups-pairs", "infinigen-select/margins")

    class _Fetches(InfiniGen):
        def margins(self, scores: Array, tops: Array) -> Array:
            return super().margins(scores[:1], tops[:1])

    selector_infinigen = _Fetches()


class MarginsOfTheSum(Fault):
    """The scores of a group are summed."""

    requirement = "SEL-048"
    killed_by = case("infinigen-select/groups-crossed", "infinigen-select/groups-pairs", "infinigen-select/margins")

    class _Fetches(InfiniGen):
        def margins(self, scores: Array, tops: Array) -> Array:
            whole = scores.sum(axis=0)
            return whole - whole.max()

    selector_infinigen = _Fetches()


class MaximumFromZero(Fault):
    """The running maximum begins at zero."""

    requirement = "SEL-048"
    killed_by = case("infinigen-select/each-head-its-own-maximum", "infinigen-select/scores-below-zero")

    class _Fetches(InfiniGen):
        def tops(self, scores: Array) -> Array:
            return np.maximum(super().tops(scores), 0)

    selector_infinigen = _Fetches()


class CountRounded(Fault):
    """The mean count is rounded to the nearest."""

    requirement = "SEL-049"
    killed_by = case(
        "infinigen-select/fewer-pass-than-are-fetched",
        "infinigen-select/groups-pairs",
        "infinigen-select/mean-of-three-rounds-down",
    )

    class _Fetches(InfiniGen):
        def equalise(self, counts: Sequence[int]) -> int:
            return round(sum(counts) / len(counts))

    selector_infinigen = _Fetches()


class LargestCount(Fault):
    """All heads fetch as many rows as the hungriest."""

    requirement = "SEL-049"
    killed_by = case(
        "infinigen-select/just-inside", "infinigen-select/just-outside", "infinigen-select/mean-rounds-down"
    )

    class _Fetches(InfiniGen):
        def equalise(self, counts: Sequence[int]) -> int:
            return max(counts)

    selector_infinigen = _Fetches()


class SmallestCount(Fault):
    """All heads fetch as few rows as the most modest."""

    requirement = "SEL-049"
    killed_by = case(
        "infinigen-select/just-inside", "infinigen-select/just-outside", "infinigen-select/mean-rounds-down"
    )

    class _Fetches(InfiniGen):
        def equalise(self, counts: Sequence[int]) -> int:
            return min(counts)

    selector_infinigen = _Fetches()


class CountOverAllHeads(Fault):
    """The mean is over query heads and not over the K/V heads that are read."""

    requirement = "SEL-049"
    killed_by = case(
        "infinigen-select/groups-crossed", "infinigen-select/groups-one-unread", "infinigen-select/groups-pairs"
    )

    class _Fetches(InfiniGen):
        def select(self, limits: Limits, scores: Array, kv_head_of: Sequence[int], heads: int, *rest: Any) -> Fetch:
            self.readers = len(kv_head_of)
            return super().select(limits, scores, kv_head_of, heads, *rest)

        def equalise(self, counts: Sequence[int]) -> int:
            return sum(counts) // self.readers

    selector_infinigen = _Fetches()


class CapIgnored(Fault):
    """The cap is not applied."""

    requirement = "SEL-050"
    killed_by = case("infinigen-select/cap-of-one", "infinigen-select/ties-at-the-cap", "infinigen-select/ties-of-all")

    class _Fetches(InfiniGen):
        def limit(self, limits: Limits, uncapped: int, rows: int, available: int) -> int:
            return super().limit(replace(limits, cap=rows), uncapped, rows, available)

    selector_infinigen = _Fetches()


class CapSilent(Fault):
    """The cap cuts and nobody is told."""

    requirement = "SEL-050"
    killed_by = case("infinigen-select/cap-of-one", "infinigen-select/ties-at-the-cap", "infinigen-select/ties-of-all")

    class _Fetches(InfiniGen):
        def select(self, *request: Any) -> Fetch:
            return replace(super().select(*request), capped=False)

    selector_infinigen = _Fetches()


class CapToldAtItsEdge(Fault):
    """A count that just fits is told as cut."""

    requirement = "SEL-050"
    killed_by = case("infinigen-select/cap-is-the-count", "infinigen-select/everything")

    class _Fetches(InfiniGen):
        def select(self, limits: Limits, *rest: Any) -> Fetch:
            found = super().select(limits, *rest)
            return replace(found, capped=found.uncapped >= limits.cap)

    selector_infinigen = _Fetches()


class PoolIgnored(Fault):
    """Evicted rows are scored and fetched."""

    requirement = "SEL-051"
    killed_by = case(
        "infinigen-select/pool-one-row", "infinigen-select/pool-two-rows", "infinigen-select/pool-without-the-best"
    )

    class _Fetches(InfiniGen):
        def select(self, limits: Limits, scores: Array, kv_head_of: Any, heads: int, available: Any, how: str) -> Fetch:
            legal = available is None or (
                len(available) and max(available) < scores.shape[1] and bool(np.all(np.diff(available) > 0))
            )
            return super().select(limits, scores, kv_head_of, heads, None if legal else available, how)

    selector_infinigen = _Fetches()


class MaximumOfEvictedRows(Fault):
    """The threshold is of all rows, though only those of the pool are fetched."""

    requirement = "SEL-051"
    killed_by = case("infinigen-select/pool-one-row", "infinigen-select/pool-two-rows")

    class _Fetches(InfiniGen):
        def select(self, limits: Limits, scores: Array, *rest: Any) -> Fetch:
            self.all = scores.max(axis=1)
            return super().select(limits, scores, *rest)

        def tops(self, scores: Array) -> Array:
            own = super().tops(scores)
            return own if len(own) != len(self.all) and len(own) > 1 else np.maximum(own, self.all.min())

    selector_infinigen = _Fetches()


class ReducedKeysPadded(Fault):
    """Keys and queries of the rehearsal's width are padded and attended to."""

    requirement = "SEL-052"
    killed_by = case("infinigen-attend/reduced-keys", "infinigen-attend/reduced-query")

    def infinigen_attend(self, request: Request) -> Result:
        width = max(request["q"].shape[1], request["k"].shape[2])

        def padded(array: Array) -> Array:
            return np.concatenate([array, np.zeros((*array.shape[:-1], width - array.shape[-1]), array.dtype)], axis=-1)

        return super().infinigen_attend({**request, "q": padded(request["q"]), "k": padded(request["k"])})


class RehearsedQueryAttends(Fault):
    """Attention goes on with the rehearsed query."""

    requirement = "SEL-052"
    killed_by = case(
        "infinigen-decode/its-own-rows-a", "infinigen-decode/its-own-rows-generated", "infinigen-decode/of-a-capped"
    )

    def infinigen_decode(self, request: Request) -> Result:
        rehearsed = self.selector_infinigen.rehearsed_query(request["x"], request["w"], request.get("b"))
        reply = super().infinigen_decode(request)
        given = {**request, "q": rehearsed, "positions": reply["positions"]}
        return {**reply, "out": self.infinigen_attend(given)["out"]}


class OwnQueryRehearses(Fault):
    """Rows are chosen by the layer's own query, which is not there in time."""

    requirement = "SEL-046"
    killed_by = case("infinigen-decode/of-a", "infinigen-decode/of-a-capped", "infinigen-decode/of-generated")

    def selector_rehearsal(self, request: Request) -> Any:
        if "q" not in request:
            return super().selector_rehearsal(request)
        w = np.zeros((1, *request["q"].shape), request["q"].dtype)
        return super().selector_rehearsal({**request, "x": np.zeros(1, w.dtype), "w": w, "b": request["q"]})


class GhostsEvicted(Fault):
    """Rows that have gone still have the least counter and go again and again, as in the published pools."""

    requirement = "SEL-053"
    killed_by = case(
        "infinigen-pool/counter-capacity-of-one", "infinigen-pool/lru-capacity-of-one", "infinigen-pool/lru-protected"
    )

    class _Held(Pool):
        def evict(self) -> None:
            everything = sorted({*self.resident[: self.capacity - self.protect_newest], *self.evicted})
            if self.policy == "fifo":
                super().evict()
                return
            victim = min(
                everything,
                key=lambda row: (self.counters.get(row, 0) if self.policy == "counter" else self.last.get(row, 0), row),
            )
            if victim in self.resident:
                self.resident.remove(victim)
            self.evicted.append(victim)

    selector_pool = _Held


class AlwaysFifo(Fault):
    """The oldest row goes, whatever the policy."""

    requirement = "SEL-053"
    killed_by = case(
        "infinigen-pool/counter-limit-halves-all", "infinigen-pool/counter-limit-never", "infinigen-pool/lru-protected"
    )

    class _Held(Pool):
        def order(self, row: int) -> int:
            return row

    selector_pool = _Held


class NewestOfEqualsGoes(Fault):
    """Of equal rows the higher position goes."""

    requirement = "SEL-053"
    killed_by = case("infinigen-pool/counter-in-turn", "infinigen-pool/lru-many", "infinigen-pool/lru-protected")

    class _Held(Pool):
        def order(self, row: int) -> int:
            return super().order(row) * 100_000 - (row if self.policy != "fifo" else 0)

    selector_pool = _Held


class NoProtection(Fault):
    """Newest rows are not protected."""

    requirement = "SEL-053"
    killed_by = case("infinigen-pool/counter-protected", "infinigen-pool/lru-protected")

    class _Held(Pool):
        def evict(self) -> None:
            kept, self.protect_newest = self.protect_newest, 0
            super().evict()
            self.protect_newest = kept

    selector_pool = _Held


class InsertionIsNoUse(Fault):
    """A new row counts as fetched before all others."""

    requirement = "SEL-053"
    killed_by = case("infinigen-pool/lru-in-turn", "infinigen-pool/lru-many")

    class _Held(Pool):
        def insert(self) -> None:
            super().insert()
            self.last[self.following - 1] = -1

    selector_pool = _Held


class LruIsCounter(Fault):
    """LRU and counter are swapped."""

    requirement = "SEL-053"
    killed_by = case(
        "infinigen-pool/counter-limit-halves-all", "infinigen-pool/counter-limit-never", "infinigen-pool/lru-many"
    )

    class _Held(Pool):
        def order(self, row: int) -> int:
            return {"counter": self.last[row], "fifo": row, "lru": self.counters[row]}[self.policy]

    selector_pool = _Held


class EvictsTooEarly(Fault):
    """A place is kept free."""

    requirement = "SEL-053"
    killed_by = case(
        "infinigen-pool/counter-capacity-of-one", "infinigen-pool/fifo-capacity-of-one", "infinigen-pool/fifo-in-turn"
    )

    class _Held(Pool):
        def step(self, use: Sequence[int], append: int) -> None:
            super().step(use, append)
            if len(self.resident) == self.capacity and append:
                self.evict()

    selector_pool = _Held


class EvictsAtHalf(Fault):
    """A pool that is half full evicts."""

    requirement = "SEL-053"
    killed_by = case(
        "infinigen-pool/counter-room-left", "infinigen-pool/fifo-room-left", "infinigen-pool/lru-room-left"
    )

    class _Held(Pool):
        def step(self, use: Sequence[int], append: int) -> None:
            super().step(use, append)
            if len(self.resident) > self.capacity // 2 > 0 and append:
                self.evict()

    selector_pool = _Held


class NeverHalved(Fault):
    """Counters grow for ever."""

    requirement = "SEL-053"
    killed_by = case("infinigen-pool/counter-limit-rounds-down")

    class _Held(Pool):
        def halve(self) -> None:
            return None

    selector_pool = _Held


class HalvedAlways(Fault):
    """Counters are halved at every step."""

    requirement = "SEL-053"
    killed_by = case(
        "infinigen-pool/counter-in-turn",
        "infinigen-pool/counter-limit-halves-all",
        "infinigen-pool/counter-limit-never",
    )

    class _Held(Pool):
        def step(self, use: Sequence[int], append: int) -> None:
            super().step(use, append)
            if self.policy == "counter":
                self.halve()

    selector_pool = _Held


class FullCounterAloneHalved(Fault):
    """Only the counter that is full is halved."""

    requirement = "SEL-053"
    killed_by = case("infinigen-pool/counter-limit-rounds-down")

    class _Held(Pool):
        def halve(self) -> None:
            limit = self.counter_limit or 0
            self.counters = {row: n // 2 if n >= limit else n for row, n in self.counters.items()}

    selector_pool = _Held


class HalvedRoundingUp(Fault):
    """Halves are rounded up."""

    requirement = "SEL-053"
    killed_by = case("infinigen-pool/counter-limit-rounds-down")

    class _Held(Pool):
        def halve(self) -> None:
            self.counters = {row: -(-n // 2) for row, n in self.counters.items()}

    selector_pool = _Held


class FetchOfGonePasses(Fault):
    """A fetch of an evicted row is not noticed."""

    requirement = "SEL-053"
    killed_by = case("infinigen-pool/fetch-of-an-evicted-row")

    class _Held(Pool):
        def step(self, use: Sequence[int], append: int) -> None:
            super().step([row for row in use if row in self.resident], append)

    selector_pool = _Held


class ProtectionBent(Fault):
    """A pool that protects all protects one row less."""

    requirement = "SEL-053"
    killed_by = case("infinigen-pool/protects-all")

    class _Held(Pool):
        def checked(self) -> Pool:
            self.protect_newest = min(self.protect_newest, self.capacity - 1)
            return self

    selector_pool = _Held


class LastLayerIssues(Fault):
    """The last layer issues a prefetch for a layer that is not there."""

    requirement = "SEL-054"
    killed_by = case("infinigen-layers/2-from-1", "infinigen-layers/32-from-1", "infinigen-layers/4-from-1")

    class _Fetches(InfiniGen):
        def layers(self, layers: int, first_issue: int) -> dict[str, list[int]]:
            found = super().layers(layers, first_issue)
            return {**found, "issue": list(range(first_issue, layers))}

    selector_infinigen = _Fetches()


class LayerZeroAloneDense(Fault):
    """The first issuing layer consumes as well."""

    requirement = "SEL-054"
    killed_by = case("infinigen-layers/2-from-1", "infinigen-layers/32-from-1", "infinigen-layers/4-from-1")

    class _Fetches(InfiniGen):
        def layers(self, layers: int, first_issue: int) -> dict[str, list[int]]:
            found = super().layers(layers, first_issue)
            consume = list(range(first_issue, layers))
            return {**found, "consume": consume, "dense": [one for one in range(layers) if one not in consume]}

    selector_infinigen = _Fetches()


class SomebodyAlwaysIssues(Fault):
    """A model that is too small issues all the same."""

    requirement = "SEL-054"
    killed_by = case("infinigen-layers/1-from-1", "infinigen-layers/2-from-1", "infinigen-layers/5-from-7")

    class _Fetches(InfiniGen):
        def layers(self, layers: int, first_issue: int) -> dict[str, list[int]]:
            found = super().layers(layers, first_issue)
            return {**found, "issue": found["issue"] or [first_issue]}

    selector_infinigen = _Fetches()


class LastLayerDense(Fault):
    """The last layer attends densely."""

    requirement = "SEL-054"
    killed_by = case("infinigen-layers/32-from-1", "infinigen-layers/4-from-1", "infinigen-layers/6-from-0")

    class _Fetches(InfiniGen):
        def layers(self, layers: int, first_issue: int) -> dict[str, list[int]]:
            found = super().layers(layers, first_issue)
            last = layers - 1
            dense = sorted({*found["dense"], last})
            return {**found, "consume": [one for one in found["consume"] if one != last], "dense": dense}

    selector_infinigen = _Fetches()


class SpeedIncludesTheEdge(Fault):
    """infinigen/speed compares with at least."""

    requirement = "SEL-055"
    killed_by = case(
        "infinigen-variants/speed-alpha-zero",
        "infinigen-variants/speed-cap-covers-all",
        "infinigen-variants/speed-on-the-edge",
    )

    class _Fetches(InfiniGen):
        def passing(self, limits: Limits, margins: Array, scores: Array, first: Array) -> int:
            rule = INFINIGEN_PAPER if limits.rule == SPEED else limits.rule
            return super().passing(replace(limits, rule=rule), margins, scores, first)

    selector_infinigen = _Fetches()


class SpeedColumnsOfBoth(Fault):
    """infinigen/speed asks the key as well."""

    requirement = "SEL-055"
    killed_by = case("infinigen-variants/speed-columns-key-decides", "published/infinigen-partial-columns")

    class _Fetches(InfiniGen):
        def pick(self, rule: str, of_queries: Array, of_keys: Array, count: int) -> tuple[Array, Array]:
            return super().pick(INFINIGEN_PAPER if rule == SPEED else rule, of_queries, of_keys, count)

    selector_infinigen = _Fetches()


class CodesTakeGroups(Fault):
    """The codes' rules run on groups."""

    requirement = "SEL-055"
    killed_by = case("infinigen-variants/speed-groups")

    class _Fetches(InfiniGen):
        def select(self, limits: Limits, scores: Array, kv_head_of: Sequence[int], *rest: Any) -> Fetch:
            grouped = len(set(kv_head_of)) < len(kv_head_of)
            rule = INFINIGEN_PAPER if grouped else limits.rule
            return super().select(replace(limits, rule=rule), scores, kv_head_of, *rest)

    selector_infinigen = _Fetches()


class AccuracyColumnsOfTheSum(Fault):
    """infinigen/accuracy takes the best of the sum."""

    requirement = "SEL-056"
    killed_by = case("infinigen-variants/accuracy-columns-key-decides")

    class _Fetches(InfiniGen):
        def pick(self, rule: str, of_queries: Array, of_keys: Array, count: int) -> tuple[Array, Array]:
            return super().pick(INFINIGEN_PAPER if rule == ACCURACY else rule, of_queries, of_keys, count)

    selector_infinigen = _Fetches()


class AccuracyNeverDense(Fault):
    """The accuracy rules select also where the cap covers all rows."""

    requirement = "SEL-056"
    killed_by = case(
        "infinigen-variants/accuracy-cap-covers-all",
        "published/infinigen-opt-mask-a1.0-b0.25-c0.75-fifo",
        "published/infinigen-opt-mask-a1.0-b0.5-c1.0-counter",
    )

    class _Fetches(InfiniGen):
        def limit(self, limits: Limits, uncapped: int, rows: int, available: int) -> int:
            return min(uncapped, limits.cap, available)

    selector_infinigen = _Fetches()


class AccuracyStrict(Fault):
    """The accuracy rules compare strictly."""

    requirement = "SEL-056"
    killed_by = case(
        "infinigen-variants/accuracy-alpha-zero",
        "infinigen-variants/accuracy-cap-covers-all",
        "infinigen-variants/accuracy-on-the-edge",
    )

    class _Fetches(InfiniGen):
        def passing(self, limits: Limits, margins: Array, scores: Array, first: Array) -> int:
            rule = SPEED if limits.rule == ACCURACY else limits.rule
            return super().passing(replace(limits, rule=rule), margins, scores, first)

    selector_infinigen = _Fetches()


class LlamaByItsOwnMaxima(Fault):
    """infinigen/accuracy-llama has a threshold for each head."""

    requirement = "SEL-057"
    killed_by = case(
        "infinigen-variants/accuracy-llama-alpha-zero",
        "infinigen-variants/accuracy-llama-capped",
        "infinigen-variants/accuracy-llama-on-the-edge",
    )

    class _Fetches(InfiniGen):
        def passing(self, limits: Limits, margins: Array, scores: Array, first: Array) -> int:
            rule = ACCURACY if limits.rule == INFINIGEN_LLAMA else limits.rule
            return super().passing(replace(limits, rule=rule), margins, scores, first)

    selector_infinigen = _Fetches()
