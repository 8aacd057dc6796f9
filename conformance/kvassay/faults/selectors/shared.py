"""Faults that several selectors can have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from kvassay_reference.errors import Refusal
from kvassay_reference.selectors.infinigen import PAPER as INFINIGEN_PAPER
from kvassay_reference.selectors.infinigen import Fetch, InfiniGen, Limits
from kvassay_reference.selectors.quest import Policy, Quest
from kvassay_reference.selectors.rows import History
from kvassay_reference.selectors.sparq import PAPER, Budget, Selection, Sparq

from ..base import Fault
from .base import Array, Request, Result, case, highest


class HeadsInOrder(Fault):
    """The map is taken for equal groups in order, whatever it says."""

    requirement = "SEL-001"
    killed_by = case("infinigen-attend/b-fetched-rows", "quest-attend/pages-of-one-row", "sparq-attend/b-given-rows")

    def selector_history(self, request: Request) -> History:
        history = super().selector_history(request)
        heads, queries = history.k.shape[1], len(history.kv_head_of)
        legal = queries == history.q.shape[0] and all(0 <= head < heads for head in history.kv_head_of)
        return replace(history, kv_head_of=[q * heads // queries for q in range(queries)]) if legal else history


class HeadsModulo(Fault):
    """Query head q reads K/V head q mod H_kv."""

    requirement = "SEL-001"
    killed_by = case("infinigen-attend/a-fetched-rows", "quest-attend/last-page-alone", "sparq-attend/a-given-rows")

    def selector_history(self, request: Request) -> History:
        history = super().selector_history(request)
        heads, queries = history.k.shape[1], len(history.kv_head_of)
        legal = queries == history.q.shape[0] and all(0 <= head < heads for head in history.kv_head_of)
        return replace(history, kv_head_of=[q % heads for q in range(queries)]) if legal else history


class UnreadHeadsSelect(Fault):
    """A K/V head that nobody reads gets the first rows all the same."""

    requirement = "SEL-001"
    killed_by = case(
        "infinigen-select/groups-one-unread",
        "quest-pages/shared-one-unread-ranked",
        "quest-pages/shared-one-unread-reserved",
    )

    class _Rows(Sparq):
        def select(self, rule: str, history: History, channels: int, rows: int, local: int) -> Selection:
            found = super().select(rule, history, channels, rows, local)
            filled = [
                one if group else np.arange(1) for one, group in zip(found.positions, history.groups, strict=True)
            ]
            return replace(found, positions=filled)

    class _Pages(Quest):
        def select(self, policy: Policy, bounds: Array, kv_head_of: Sequence[int], heads: int) -> list[Array]:
            return [one if len(one) else np.arange(1) for one in super().select(policy, bounds, kv_head_of, heads)]

    class _Fetches(InfiniGen):
        def select(self, *request: Any) -> Fetch:
            found = super().select(*request)
            unread = set(range(request[3])) - set(request[2])
            positions = [np.arange(1) if head in unread else one for head, one in enumerate(found.positions)]
            return replace(found, positions=positions)

    selector_sparq = _Rows()
    selector_quest = _Pages()
    selector_infinigen = _Fetches()


class TiesToTheHigher(Fault):
    """Equal scores go to the higher index, as a reversed ascending sort has it."""

    requirement = "SEL-002"
    killed_by = case("infinigen-columns/ties", "sparq-channels/ties-three-equal", "sparq-rows/equal-rows")

    class _Rows(Sparq):
        def channels(self, queries: Array, count: int) -> Array:
            return highest(np.sum(np.abs(queries), axis=0), count)

        def choose(self, scores: Array, legal: Array, forced: Array, count: int) -> Array:
            ranked = np.where(legal, np.where(forced, np.inf, scores), -np.inf)
            return highest(ranked, min(count, int(legal.sum())))

    class _Pages(Quest):
        def choose(self, bounds: Array, count: int, reserve: bool) -> Array:
            last = len(bounds) - 1
            return np.append(highest(bounds[:last], count - 1), last) if reserve else highest(bounds, count)

    class _Fetches(InfiniGen):
        def pick(self, rule: str, of_queries: Array, of_keys: Array, count: int) -> tuple[Array, Array]:
            columns, evidence = super().pick(rule, of_queries, of_keys, count)
            return (highest(evidence, count), evidence) if rule == INFINIGEN_PAPER else (columns, evidence)

        def select(self, *request: Any) -> Fetch:
            limits, scores, kv_head_of, heads, available, accumulate = request
            turned = None if available is None else np.sort(scores.shape[1] - 1 - available)
            found = super().select(limits, scores[:, ::-1], kv_head_of, heads, turned, accumulate)
            return replace(found, positions=[np.sort(scores.shape[1] - 1 - one) for one in found.positions])

    selector_sparq = _Rows()
    selector_quest = _Pages()
    selector_infinigen = _Fetches()


class SelectedInRankOrder(Fault):
    """Items come in the order of their scores."""

    requirement = "SEL-003"
    killed_by = case("sparq-rows/a-2-4-1", "sparq-rows/a-3-3-0", "sparq-rows/fewer-legal-rows-than-the-budget")

    class _Rows(Sparq):
        def choose(self, scores: Array, legal: Array, forced: Array, count: int) -> Array:
            found = super().choose(scores, legal, forced, count)
            return found[np.argsort(-scores[found], kind="stable")]

    class _Pages(Quest):
        def choose(self, bounds: Array, count: int, reserve: bool) -> Array:
            found = super().choose(bounds, count, reserve)
            return found[np.argsort(-bounds[found], kind="stable")]

    selector_sparq = _Rows()
    selector_quest = _Pages()


class HiddenRowsRank(Fault):
    """Rows are hidden from the proxy and not from the choice."""

    requirement = "SEL-003"
    killed_by = case(
        "sparq-proxy/hidden-rows-weigh-nothing",
        "sparq-rows/best-rows-hidden",
        "sparq-rows/fewer-legal-rows-than-the-budget",
    )

    class _Rows(Sparq):
        def hide(self, logits: Array, legal: Array) -> Array:
            return logits

        def choose(self, scores: Array, legal: Array, forced: Array, count: int) -> Array:
            return super().choose(scores, np.ones_like(legal), forced, count)

    selector_sparq = _Rows()


class LastItemTwice(Fault):
    """A list is padded with its last item to a fixed length."""

    requirement = "SEL-003"
    killed_by = case("infinigen-select/pool-one-row", "sparq-floor/half-r", "sparq-floor/half-s")

    def selector_lists(self, arrays: Iterable[Any]) -> list[list[int]]:
        return [one + one[-1:] for one in super().selector_lists(arrays)]


class AttendsWithTheProxysChannels(Fault):
    """Attention reads the first half of the channels only."""

    requirement = "SEL-004"
    killed_by = case("infinigen-attend/a-fetched-rows", "quest-attend/last-page-alone", "sparq-attend/a-given-rows")

    class _Rows(Sparq):
        def gather(self, history: History, scale: float, positions: Sequence[Array]) -> tuple[Array, Array]:
            half = history.q.shape[1] // 2
            return super().gather(replace(history, q=history.q[:, :half], k=history.k[:, :, :half]), scale, positions)

    class _Pages(Quest):
        def gather(self, history: History, *rest: Any) -> tuple[Array, Array]:
            half = history.q.shape[1] // 2
            return super().gather(replace(history, q=history.q[:, :half], k=history.k[:, :, :half]), *rest)

    class _Fetches(InfiniGen):
        def gather(self, history: History, scale: float, positions: Sequence[Array]) -> tuple[Array, Array]:
            half = history.q.shape[1] // 2
            return super().gather(replace(history, q=history.q[:, :half], k=history.k[:, :, :half]), scale, positions)

    selector_sparq = _Rows()
    selector_quest = _Pages()
    selector_infinigen = _Fetches()


class LseOfAllRows(Fault):
    """The softmax mass beside the output is that of the whole history."""

    requirement = "SEL-004"
    killed_by = case("sparq-attend/a-lse", "sparq-attend/b-lse")

    class _Rows(Sparq):
        def gather(self, history: History, scale: float, positions: Sequence[Array]) -> tuple[Array, Array]:
            every = [np.arange(history.rows)] * history.heads
            return super().gather(history, scale, positions)[0], super().gather(history, scale, every)[1]

    selector_sparq = _Rows()


class DecodesDropARow(Fault):
    """A decode step attends to one row less than it says."""

    requirement = "SEL-004"
    killed_by = case(
        "infinigen-decode/its-own-rows-a", "infinigen-decode/its-own-rows-generated", "quest-decode/its-own-pages-a"
    )

    class _Rows(Sparq):
        def decode(self, *request: Any) -> tuple[Selection, Array, Array]:
            found, _, lse = super().decode(*request)
            history, scale = request[1], request[2]
            fewer = [one[: max(1, len(one) - 1)] for one in found.positions]
            return found, self.gather(history, scale, fewer)[0], lse

    class _Pages(Quest):
        def decode(self, policy: Policy, history: History, scale: float) -> tuple[list[Array], Array, Array]:
            pages, _, lse = super().decode(policy, history, scale)
            fewer = [one[: max(1, len(one) - 1)] for one in pages]
            return pages, self.gather(history, scale, policy.page_rows, policy.scope, fewer)[0], lse

    selector_sparq = _Rows()
    selector_quest = _Pages()

    def infinigen_decode(self, request: Request) -> Result:
        reply = super().infinigen_decode(request)
        positions = [one[: max(1, len(one) - 1)] for one in reply["positions"]]
        return {**reply, "out": self.infinigen_attend({**request, "positions": positions})["out"]}


class WeightsInHalfPrecision(Fault):
    """Outputs pass through float16."""

    requirement = "SEL-004"
    killed_by = case("infinigen-attend/a-fetched-rows", "quest-attend/last-page-alone", "sparq-attend/a-given-rows")

    def selector_output(self, out: Any, lse: Any) -> Result:
        return super().selector_output(out.astype(np.float16).astype(np.float32), lse)


class RepairsSelections(Fault):
    """Illegal positions and pages are clipped, sorted, made unique and filled up."""

    requirement = "SEL-005"
    killed_by = case("infinigen-attend/no-rows", "infinigen-attend/row-beyond", "infinigen-attend/row-twice")

    def mended(self, lists: Sequence[Sequence[int]], count: int, limit: int, hidden: Sequence[int] = ()) -> list[Any]:
        """Lists that nobody would reject."""
        lists = [*lists, *([lists[0]] * count)][:count]
        kept = [sorted({min(max(i, 0), limit - 1) for i in one} - set(hidden)) for one in lists]
        return [one or [limit - 1] for one in kept]

    def sparq_attend(self, request: Request) -> Result:
        rows, heads = request["k"].shape[:2]
        return super().sparq_attend(
            {**request, "positions": self.mended(request["positions"], heads, rows, request.get("hidden", ()))}
        )

    def quest_attend(self, request: Request) -> Result:
        pages = -(-request["k"].shape[0] // request["page_rows"])
        count = request["k"].shape[1] if request["scope"] == "kv-head" else len(request["kv_head_of"])
        return super().quest_attend({**request, "pages": self.mended(request["pages"], count, pages)})

    def infinigen_attend(self, request: Request) -> Result:
        rows, heads = request["k"].shape[:2]
        return super().infinigen_attend({**request, "positions": self.mended(request["positions"], heads, rows)})

    def infinigen_select(self, request: Request) -> Result:
        if "available" in request:
            held = self.mended([request["available"]], 1, request["scores"].shape[1])[0]
            request = {**request, "available": held}
        return super().infinigen_select(request)


class KeepsTheWorst(Fault):
    """Declares a floor of nine tenths and keeps what is forced and the worst of the rest."""

    requirement = "SEL-006"
    killed_by = case("quest-floor/half-a", "quest-floor/nine-tenths-r", "sparq-floor/half-a")
    own_capabilities: ClassVar[Mapping[str, Any]] = {"selection.floor": 0.9}

    class _Rows(Sparq):
        def rank(self, rule: str, logits: Array, proxy: Array) -> Array:
            return -super().rank(rule, logits, proxy)

    class _Pages(Quest):
        def ranking(self, policy: Policy, bounds: Array) -> Array:
            return -bounds

    class _Fetches(InfiniGen):
        def partial(self, queries: Array, keys: Array, columns: Array) -> Array:
            return -super().partial(queries, keys, columns)

    selector_sparq = _Rows()
    selector_quest = _Pages()
    selector_infinigen = _Fetches()


class KeepsTheNewest(Fault):
    """Declares a floor of a half and keeps the newest rows, whatever the query."""

    requirement = "SEL-006"
    killed_by = case("sparq-floor/nine-tenths-a", "sparq-floor/nine-tenths-r", "sparq-floor/nine-tenths-s")
    own_capabilities: ClassVar[Mapping[str, Any]] = {"selection.floor": 0.99}

    class _Rows(Sparq):
        def rank(self, rule: str, logits: Array, proxy: Array) -> Array:
            return np.arange(logits.shape[1], dtype=np.float32)

    class _Pages(Quest):
        def ranking(self, policy: Policy, bounds: Array) -> Array:
            return np.zeros_like(bounds) + np.arange(bounds.shape[1], dtype=np.float32)

    selector_sparq = _Rows()
    selector_quest = _Pages()


class MapFirst(Fault):
    """The head map is checked before anything else."""

    requirement = "SEL-007"
    killed_by = case("sparq-refused/dtype-before-map")

    def selector_history(self, request: Request) -> History:
        history = super().selector_history(request)
        if any(not 0 <= head < history.k.shape[1] for head in history.kv_head_of):
            raise Refusal("HEAD_MAP_INVALID")
        return history


class MapLast(Fault):
    """The head map is checked after the settings."""

    requirement = "SEL-007"
    killed_by = case("infinigen-refused/map-before-basis", "sparq-refused/map-before-channels")

    def sparq_select(self, request: Request) -> Result:
        whole = {**request, "kv_head_of": [0] * request["q"].shape[0]}
        mapped = request["kv_head_of"]
        if any(head >= request["k"].shape[1] for head in mapped) and request["q"].shape[1] == request["k"].shape[2]:
            super().sparq_select(whole)
        return super().sparq_select(request)

    def infinigen_score(self, request: Request) -> Result:
        if len(request["kv_head_of"]) != request["q"].shape[0]:
            super().infinigen_score({**request, "kv_head_of": [0] * request["q"].shape[0]})
        return super().infinigen_score(request)


class WindowBeforeChannels(Fault):
    """The window is checked before the channels, and columns before the basis."""

    requirement = "SEL-007"
    killed_by = case("infinigen-refused/basis-before-columns", "sparq-refused/channels-before-window")

    class _Rows(Sparq):
        def budget(self, rule: str, history: History, channels: int, rows: int, local: int) -> Budget:
            if local > rows and rule == PAPER:
                raise Refusal("LOCAL_WINDOW_EXCEEDS_BUDGET")
            return super().budget(rule, history, channels, rows, local)

    class _Fetches(InfiniGen):
        def score(self, history: History, basis: Array, tolerance: float, columns: Any) -> tuple[Array, Array]:
            if columns is not None:
                self.check_columns(columns, history.heads, history.q.shape[1])
            return super().score(history, basis, tolerance, columns)

    selector_sparq = _Rows()
    selector_infinigen = _Fetches()


class AnyDtype(Fault):
    """Dtypes are promoted and never compared."""

    requirement = "SEL-007"
    killed_by = case(
        "infinigen-refused/keys-in-float64", "quest-refused/dtype-before-shape", "quest-refused/other-dtype"
    )

    def promoted(self, request: Request) -> Request:
        """All float arrays in float32."""
        return {
            name: value.astype(np.float32) if isinstance(value, np.ndarray) and value.dtype.kind == "f" else value
            for name, value in request.items()
        }

    def sparq_select(self, request: Request) -> Result:
        return super().sparq_select(self.promoted(request))

    def quest_score(self, request: Request) -> Result:
        return super().quest_score(self.promoted(request))

    def infinigen_score(self, request: Request) -> Result:
        return super().infinigen_score(self.promoted(request))


class ShapesCut(Fault):
    """What is too wide or too long is cut to fit."""

    requirement = "SEL-007"
    killed_by = case("quest-refused/other-width", "quest-refused/pages-differ", "quest-refused/shape-before-crossed")

    def cut(self, request: Request) -> Request:
        """Query, keys and extrema of a common width, and extrema of a common length."""
        names = [name for name in ("q", "k", "minimum", "maximum") if name in request]
        width = min(request[name].shape[-1] for name in names)
        cut = {name: request[name][..., :width] for name in names}
        pages = min((cut[name].shape[0] for name in ("minimum", "maximum") if name in cut), default=0)
        return {**request, **{n: a[:pages] if n in ("minimum", "maximum") else a for n, a in cut.items()}}

    def sparq_select(self, request: Request) -> Result:
        return super().sparq_select(self.cut(request))

    def quest_score(self, request: Request) -> Result:
        return super().quest_score(self.cut(request))


class MapWrapped(Fault):
    """Heads beyond the last, below zero or missing are taken modulo."""

    requirement = "SEL-007"
    killed_by = case("quest-refused/map-below-zero", "quest-refused/map-too-long", "sparq-refused/map-too-short")

    def wrapped(self, request: Request) -> Request:
        """A map that is always legal."""
        heads = request["k"].shape[1] if "k" in request else request["minimum"].shape[1]
        mapped = [head % heads for head in request["kv_head_of"]]
        count = request["q"].shape[0]
        return {**request, "kv_head_of": [*mapped, *([0] * count)][:count]}

    def sparq_select(self, request: Request) -> Result:
        return super().sparq_select(self.wrapped(request))

    def quest_score(self, request: Request) -> Result:
        return super().quest_score(self.wrapped(request))

    def infinigen_score(self, request: Request) -> Result:
        return super().infinigen_score(self.wrapped(request))


class ColumnsMended(Fault):
    """Columns out of range, out of order or missing are mended, and a missing basis is shared."""

    requirement = "SEL-007"
    killed_by = case(
        "infinigen-refused/columns-below-zero",
        "infinigen-refused/columns-out-of-order",
        "infinigen-refused/columns-out-of-range",
    )

    def infinigen_score(self, request: Request) -> Result:
        heads, width = request["k"].shape[1:]
        basis = request["basis"]
        if basis.shape[0] < heads:
            basis = np.concatenate([basis] * heads)[:heads]
        columns = request.get("columns")
        if columns is not None:
            lists = [*columns, *([columns[0]] * heads)][:heads]
            request = {**request, "columns": [sorted({c % width for c in one}) for one in lists]}
        return super().infinigen_score({**request, "basis": basis})


class WiderSearchMovesOn(Fault):
    """A wider search begins after what the narrower one had found."""

    requirement = "SEL-008"
    killed_by = case(
        "quest-pages/a-budget-more-keeps-the-others-a",
        "quest-pages/a-budget-more-keeps-the-others-s",
        "sparq-rows/a-budget-more-keeps-the-others",
    )

    class _Rows(Sparq):
        def choose(self, scores: Array, legal: Array, forced: Array, count: int) -> Array:
            if len(scores) // 4 < count < len(scores):
                found = int(np.argmax(np.where(legal & ~forced, scores, -np.inf)))
                scores = np.where(np.arange(len(scores)) == found, -np.inf, scores)
            return super().choose(scores, legal, forced, count)

    class _Pages(Quest):
        def choose(self, bounds: Array, count: int, reserve: bool) -> Array:
            if 1 < count < len(bounds):
                bounds = np.where(np.arange(len(bounds)) == int(np.argmax(bounds)), -np.inf, bounds)
            return super().choose(bounds, count, reserve)

    class _Fetches(InfiniGen):
        def select(self, limits: Limits, scores: Array, *rest: Any) -> Fetch:
            found = super().select(limits, scores, *rest)
            if 1 < found.count < scores.shape[1]:
                moved = [np.sort((one + 1) % scores.shape[1]) for one in found.positions]
                return replace(found, positions=moved)
            return found

    selector_sparq = _Rows()
    selector_quest = _Pages()
    selector_infinigen = _Fetches()


class FindsTheBestAnyway(Fault):
    """Reads all rows to repair the selection, and does not say so."""

    requirement = "SEL-009"
    killed_by = case(
        "infinigen-score/rehearsal-misses-the-best-row",
        "quest-pages/one-page-misses-two-find",
        "sparq-decode/misses-the-best-row",
    )

    class _Rows(Sparq):
        def channels(self, queries: Array, count: int) -> Array:
            return np.arange(queries.shape[1])

    class _Fetches(InfiniGen):
        def partial(self, queries: Array, keys: Array, columns: Array) -> Array:
            return queries @ keys.T

    selector_sparq = _Rows()
    selector_infinigen = _Fetches()

    def quest_score(self, request: Request) -> Result:
        if "k" not in request:
            return super().quest_score(request)
        history = self.selector_history(request).checked()
        size, found = request["page_rows"], []
        for query, head in enumerate(history.kv_head_of):
            products = history.keys(head) @ history.query([query])[0]
            found.append([products[first : first + size].max() for first in range(0, history.rows, size)])
        return {"bounds": np.asarray(found, np.float32)}
