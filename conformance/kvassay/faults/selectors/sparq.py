"""Faults of SparQ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from kvassay_reference.selectors.infinigen import InfiniGen
from kvassay_reference.selectors.rows import History, best
from kvassay_reference.selectors.sparq import BENCHMARK, LLAMA, PAPER, Budget, Selection, Sparq
from kvassay_reference.selectors.sparq import CODE as SPARQ_CODE

from ..base import Fault
from .base import Array, Request, Result, case


class ChannelsOfTheFirstHead(Fault):
    """The first head of a group chooses for all."""

    requirement = "SEL-010"
    killed_by = case("sparq-channels/a-2", "sparq-channels/a-5", "sparq-channels/group-outvotes-a-head")

    class _Rows(Sparq):
        def channels(self, queries: Array, count: int) -> Array:
            return super().channels(queries[:1], count)

    selector_sparq = _Rows()


class ChannelsOfTheSum(Fault):
    """Queries are summed before their magnitude is taken."""

    requirement = "SEL-010"
    killed_by = case("sparq-channels/a-2", "sparq-channels/a-5", "sparq-channels/opposite-signs-in-a-group")

    class _Rows(Sparq):
        def channels(self, queries: Array, count: int) -> Array:
            return best(np.abs(np.sum(queries, axis=0)), count)

    selector_sparq = _Rows()


class ChannelsOfTheLargestElement(Fault):
    """A channel counts by its largest element in the group."""

    requirement = "SEL-010"
    killed_by = case("sparq-channels/b-1", "sparq-channels/group-outvotes-a-head", "sparq-channels/r-16")

    class _Rows(Sparq):
        def channels(self, queries: Array, count: int) -> Array:
            return best(np.max(np.abs(queries), axis=0), count)

    selector_sparq = _Rows()


class ChannelsByValue(Fault):
    """The largest elements count and not the largest magnitudes."""

    requirement = "SEL-010"
    killed_by = case(
        "sparq-channels/magnitudes-not-values",
        "sparq-channels/opposite-signs-in-a-group",
        "sparq-channels/ties-three-equal",
    )

    class _Rows(Sparq):
        def channels(self, queries: Array, count: int) -> Array:
            return best(np.sum(queries, axis=0), count)

    selector_sparq = _Rows()


class ChannelsKept(Fault):
    """The channels of the first call serve all calls of the same width."""

    requirement = "SEL-010"
    killed_by = case("sparq-rows/no-memory-of-a", "sparq-rows/no-memory-of-b")

    class _Rows(Sparq):
        def __init__(self) -> None:
            self.kept: list[Array] = []

        def select(self, *request: Any) -> Selection:
            found = super().select(*request)
            self.kept = self.kept or found.channels
            again = [self.kept[i % len(self.kept)] for i in range(len(found.channels))]
            return replace(found, channels=again)

    def open(self) -> None:
        super().open()
        self.selector_sparq = ChannelsKept._Rows()  # type: ignore[misc]


class PositionsKept(Fault):
    """The rows of the first call serve the second."""

    requirement = "SEL-014"
    killed_by = case("sparq-rows/no-memory-of-a", "sparq-rows/no-memory-of-b")

    def open(self) -> None:
        super().open()
        self.before: list[list[int]] = []

    def sparq_select(self, request: Request) -> Result:
        reply = super().sparq_select(request)
        self.before, kept = self.before or reply["positions"], self.before
        return {**reply, "positions": kept or reply["positions"]}


class TemperatureOfTheWidth(Fault):
    """Products are divided by the root of the width."""

    requirement = "SEL-011"
    killed_by = case("sparq-proxy/a-2", "sparq-proxy/b-1", "sparq-proxy/flat-query")

    class _Rows(Sparq):
        def coverage(self, queries: Array, channels: Array) -> Array:
            return np.ones(len(queries), np.float32)

    selector_sparq = _Rows()


class TemperatureOfTheChannels(Fault):
    """Products are divided by the root of the number of channels."""

    requirement = "SEL-011"
    killed_by = case("sparq-proxy/a-2", "sparq-proxy/b-1", "sparq-proxy/whole-query-in-two-channels")

    class _Rows(Sparq):
        def coverage(self, queries: Array, channels: Array) -> Array:
            return np.full(len(queries), len(channels) / queries.shape[1], np.float32)

    selector_sparq = _Rows()


class CoverageBySquares(Fault):
    """Coverage is of the L2 norm."""

    requirement = "SEL-011"
    killed_by = case("sparq-proxy/a-2", "sparq-proxy/b-1", "sparq-proxy/r-16")

    class _Rows(Sparq):
        def coverage(self, queries: Array, channels: Array) -> Array:
            return super().coverage(queries * queries, channels)

    selector_sparq = _Rows()


class TemperatureOfTheGroup(Fault):
    """One coverage serves all heads of a group."""

    requirement = "SEL-011"
    killed_by = case("sparq-proxy/a-2", "sparq-proxy/b-1", "sparq-proxy/r-16")

    class _Rows(Sparq):
        def coverage(self, queries: Array, channels: Array) -> Array:
            return np.full(len(queries), super().coverage(queries, channels).mean(), np.float32)

    selector_sparq = _Rows()


class TemperatureInHalfPrecision(Fault):
    """Coverage is rounded to float16."""

    requirement = "SEL-011"
    killed_by = case("sparq-proxy/a-2", "sparq-proxy/b-1", "sparq-proxy/r-16")

    class _Rows(Sparq):
        def coverage(self, queries: Array, channels: Array) -> Array:
            return super().coverage(queries, channels).astype(np.float16).astype(np.float32)

    selector_sparq = _Rows()


class NothingOverNothing(Fault):
    """A query of zeros has coverage zero over zero."""

    requirement = "SEL-012"
    killed_by = case("sparq-proxy/query-of-zeros")

    class _Rows(Sparq):
        def coverage(self, queries: Array, channels: Array) -> Array:
            with np.errstate(all="ignore"):
                return np.abs(queries[:, channels]).sum(axis=1) / np.abs(queries).sum(axis=1)

    selector_sparq = _Rows()


class DividesByZero(Fault):
    """A temperature of zero divides."""

    requirement = "SEL-012"
    killed_by = case("sparq-proxy/head-outvoted-to-nothing")

    class _Rows(Sparq):
        def logits(self, queries: Array, keys: Array, channels: Array, temperature: Array) -> Array:
            with np.errstate(all="ignore"):
                return (queries[:, channels] @ keys[:, channels].T) / temperature[:, None]

    selector_sparq = _Rows()


class ProxyOverHiddenRows(Fault):
    """Hidden rows take mass in the proxy, though they are not chosen."""

    requirement = "SEL-013"
    killed_by = case("sparq-proxy/hidden-rows-weigh-nothing")

    class _Rows(Sparq):
        def hide(self, logits: Array, legal: Array) -> Array:
            return logits

    selector_sparq = _Rows()


class ProxyWithoutMaximum(Fault):
    """The softmax subtracts no maximum."""

    requirement = "SEL-013"
    killed_by = case("sparq-proxy/large-products")

    class _Rows(Sparq):
        def proxy(self, logits: Array) -> Array:
            with np.errstate(all="ignore"):
                weights = np.exp(logits)
                return weights / weights.sum(axis=1, keepdims=True)

    selector_sparq = _Rows()


class ProxyInHalfPrecision(Fault):
    """Logits are rounded to float16."""

    requirement = "SEL-013"
    killed_by = case("sparq-proxy/a-2", "sparq-proxy/b-1", "sparq-proxy/r-16")

    class _Rows(Sparq):
        def proxy(self, logits: Array) -> Array:
            return super().proxy(logits.astype(np.float16).astype(np.float32))

    selector_sparq = _Rows()


class LogitsSummed(Fault):
    """Rows are ranked by the sum of logits, as the published code does it."""

    requirement = "SEL-014"
    killed_by = case(
        "sparq-rows/a-3-3-0",
        "sparq-rows/softmax-sum-against-logit-sum",
        "sparq-rows/softmax-sum-against-logit-sum-of-three",
    )

    class _Rows(Sparq):
        def rank(self, rule: str, logits: Array, proxy: Array) -> Array:
            return super().rank(SPARQ_CODE, logits, proxy)

    selector_sparq = _Rows()


class RowsOfTheFirstHead(Fault):
    """The first head of a group chooses the rows."""

    requirement = "SEL-014"
    killed_by = case(
        "sparq-rows/a-3-3-0",
        "sparq-rows/softmax-sum-against-logit-sum",
        "sparq-rows/softmax-sum-against-logit-sum-of-three",
    )

    class _Rows(Sparq):
        def rank(self, rule: str, logits: Array, proxy: Array) -> Array:
            return super().rank(rule, logits[:1], proxy[:1])

    selector_sparq = _Rows()


class RowsByTheLargestProxy(Fault):
    """A row counts by its largest proxy in the group."""

    requirement = "SEL-014"
    killed_by = case("sparq-rows/b-1-4-0", "sparq-rows/r-16-20-4", "sparq-rows/s-8-31-5")

    class _Rows(Sparq):
        def rank(self, rule: str, logits: Array, proxy: Array) -> Array:
            return np.max(proxy, axis=0) if rule == PAPER else super().rank(rule, logits, proxy)

    selector_sparq = _Rows()


class NoWindow(Fault):
    """Local rows rank like all others."""

    requirement = "SEL-015"
    killed_by = case("sparq-floor/half-r", "sparq-floor/half-s", "sparq-rows/window-of-poor-rows")

    class _Rows(Sparq):
        def window(self, history: History, local: int) -> Array:
            return np.zeros(history.rows, bool)

    selector_sparq = _Rows()


class WindowByBonus(Fault):
    """Local rows get 1 added to the group's sum, which is too little for a group."""

    requirement = "SEL-015"
    killed_by = case("sparq-rows/window-against-a-group-of-four", "sparq-rows/window-against-a-group-of-two")

    class _Rows(Sparq):
        def choose(self, scores: Array, legal: Array, forced: Array, count: int) -> Array:
            return super().choose(scores + forced.astype(np.float32), legal, np.zeros_like(forced), count)

    selector_sparq = _Rows()


class WindowBesideTheBudget(Fault):
    """The window comes on top of the budget."""

    requirement = "SEL-015"
    killed_by = case("sparq-floor/half-r", "sparq-floor/half-s", "sparq-rows/window-of-poor-rows")

    class _Rows(Sparq):
        def choose(self, scores: Array, legal: Array, forced: Array, count: int) -> Array:
            return super().choose(scores, legal, forced, count + int(forced.sum()))

    selector_sparq = _Rows()


class WindowOneShort(Fault):
    """The window leaves out its oldest row."""

    requirement = "SEL-015"
    killed_by = case("sparq-floor/half-r", "sparq-floor/half-s", "sparq-rows/window-of-poor-rows")

    class _Rows(Sparq):
        def window(self, history: History, local: int) -> Array:
            return super().window(history, local - 1)

    selector_sparq = _Rows()


class WindowForcesHiddenRows(Fault):
    """The window is forced before legality is asked."""

    requirement = "SEL-015"
    killed_by = case("sparq-rows/window-with-a-hidden-row")

    class _Rows(Sparq):
        def window(self, history: History, local: int) -> Array:
            return np.arange(history.rows) >= history.rows - local

        def choose(self, scores: Array, legal: Array, forced: Array, count: int) -> Array:
            return super().choose(scores, legal | forced, forced, count)

    selector_sparq = _Rows()


class WindowFromTheEndOfAnArray(Fault):
    """A window that begins before the history counts from its end."""

    requirement = "SEL-015"
    killed_by = case("sparq-rows/window-longer-than-the-history")

    class _Rows(Sparq):
        def window(self, history: History, local: int) -> Array:
            forced = np.zeros(history.rows, bool)
            forced[history.rows - local :] = True
            return forced & history.legal if local else np.zeros_like(forced)

        def choose(self, scores: Array, legal: Array, forced: Array, count: int) -> Array:
            return super().choose(scores, legal, forced, min(count, len(scores) - 1) if count > len(scores) else count)

    selector_sparq = _Rows()


class SlotsFilled(Fault):
    """A fixed number of slots is filled with hidden rows."""

    requirement = "SEL-016"
    killed_by = case("sparq-rows/fewer-legal-rows-than-the-budget")

    class _Rows(Sparq):
        def choose(self, scores: Array, legal: Array, forced: Array, count: int) -> Array:
            ranked = np.where(legal, np.where(forced, np.inf, scores), -np.inf)
            return best(ranked, min(count, len(scores)))

    selector_sparq = _Rows()


class NeverAllRows(Fault):
    """One row is always left out."""

    requirement = "SEL-016"
    killed_by = case("sparq-decode/budget-of-all", "sparq-rows/budget-of-all")

    class _Rows(Sparq):
        def choose(self, scores: Array, legal: Array, forced: Array, count: int) -> Array:
            return super().choose(scores, legal, forced, max(1, min(count, len(scores) - 1)))

    selector_sparq = _Rows()


class MassOfTheFirstHead(Fault):
    """The group's first head gives the mass of all."""

    requirement = "SEL-017"
    killed_by = case("sparq-proxy/a-2", "sparq-proxy/b-1", "sparq-proxy/r-16")

    class _Rows(Sparq):
        def mass(self, proxy: Array, positions: Array) -> Array:
            return np.full(len(proxy), super().mass(proxy, positions)[0], np.float32)

    selector_sparq = _Rows()


class MassOfRows(Fault):
    """The mass is the share of rows."""

    requirement = "SEL-017"
    killed_by = case("sparq-proxy/a-2", "sparq-proxy/b-1", "sparq-proxy/r-16")

    class _Rows(Sparq):
        def mass(self, proxy: Array, positions: Array) -> Array:
            return np.full(len(proxy), len(positions) / proxy.shape[1], np.float32)

    selector_sparq = _Rows()


class MeanWithoutTheCurrentRow(Fault):
    """The mean lags by one row."""

    requirement = "SEL-018"
    killed_by = case("sparq-decode/a-2-4-1", "sparq-decode/r-16-20-4", "sparq-decode/s-8-31-5")

    class _Rows(Sparq):
        def mean_value(self, history: History) -> Array:
            return super().mean_value(replace(history, hidden=[*history.hidden, history.rows - 1]))

    selector_sparq = _Rows()


class MeanOverHiddenRows(Fault):
    """The mean is over all rows, padding included."""

    requirement = "SEL-018"
    killed_by = case("sparq-decode/mean-without-hidden-rows")

    class _Rows(Sparq):
        def mean_value(self, history: History) -> Array:
            return super().mean_value(replace(history, hidden=()))

    selector_sparq = _Rows()


class MeanOfMeans(Fault):
    """Old mean and new rows have half a share each."""

    requirement = "SEL-018"
    killed_by = case("sparq-mean/any-split", "sparq-mean/one-more", "sparq-mean/several")

    class _Rows(Sparq):
        def running_mean(self, mean: Array, rows: int, values: Array, accumulate: str = "float32") -> tuple[Array, int]:
            found, total = super().running_mean(mean, rows, values, accumulate)
            return ((mean + values.mean(axis=0)) / 2 if rows and len(values) else found), total

    selector_sparq = _Rows()


class MeanForgetsItsRows(Fault):
    """The number of rows is that of the last append."""

    requirement = "SEL-018"
    killed_by = case("sparq-mean/counts-its-rows")

    class _Rows(Sparq):
        def running_mean(self, mean: Array, rows: int, values: Array, accumulate: str = "float32") -> tuple[Array, int]:
            return super().running_mean(mean, rows, values, accumulate)[0], int(values.shape[0])

    selector_sparq = _Rows()


class MeanBeforeTheFirstRow(Fault):
    """What stood in the mean before there were rows takes part."""

    requirement = "SEL-018"
    killed_by = case("sparq-mean/any-split", "sparq-mean/first-row")

    class _Rows(Sparq):
        def running_mean(self, mean: Array, rows: int, values: Array, accumulate: str = "float32") -> tuple[Array, int]:
            if rows:
                return super().running_mean(mean, rows, values, accumulate)
            return (mean + values.sum(axis=0)) / (len(values) + 1), len(values)

    selector_sparq = _Rows()


class MeanDroppedWithoutRows(Fault):
    """An append of nothing resets the mean."""

    requirement = "SEL-018"
    killed_by = case("sparq-mean/none")

    class _Rows(Sparq):
        def running_mean(self, mean: Array, rows: int, values: Array, accumulate: str = "float32") -> tuple[Array, int]:
            found, total = super().running_mean(mean, rows, values, accumulate)
            return (found if len(values) else np.zeros_like(found)), total

    selector_sparq = _Rows()


class CorrectionWithoutMean(Fault):
    """The output is scaled by the mass and nothing is added."""

    requirement = "SEL-019"
    killed_by = case("sparq-attend/a-mixed", "sparq-attend/b-mixed", "sparq-attend/mass-above-one")

    class _Rows(Sparq):
        def mix(self, out: Array, mass: Array, mean: Array, kv_head_of: Sequence[int]) -> Array:
            return mass[:, None] * out

    selector_sparq = _Rows()


class CorrectionOfAnotherHead(Fault):
    """The mean is taken by query head modulo."""

    requirement = "SEL-019"
    killed_by = case("sparq-attend/a-mixed", "sparq-attend/b-mixed", "sparq-attend/mass-above-one")

    class _Rows(Sparq):
        def mix(self, out: Array, mass: Array, mean: Array, kv_head_of: Sequence[int]) -> Array:
            return super().mix(out, mass, mean, [query % len(mean) for query in range(len(kv_head_of))])

    selector_sparq = _Rows()


class NeverCorrected(Fault):
    """Nothing is mixed."""

    requirement = "SEL-019"
    killed_by = case("sparq-attend/a-mixed", "sparq-attend/b-mixed", "sparq-attend/mass-above-one")

    class _Rows(Sparq):
        def mix(self, out: Array, mass: Array, mean: Array, kv_head_of: Sequence[int]) -> Array:
            return out

    selector_sparq = _Rows()


class MassClipped(Fault):
    """A mass outside of 0 to 1 is clipped."""

    requirement = "SEL-019"
    killed_by = case("sparq-attend/mass-above-one", "sparq-attend/mass-below-zero")

    def sparq_attend(self, request: Request) -> Result:
        if "mass" in request:
            request = {**request, "mass": np.clip(request["mass"], 0, 1)}
        return super().sparq_attend(request)


class TrafficWithoutFixedTerms(Fault):
    """Appended rows and the mean cost nothing."""

    requirement = "SEL-020"
    killed_by = case("sparq-traffic/article", "sparq-traffic/one-channel", "sparq-traffic/ratio")

    class _Rows(Sparq):
        def traffic(self, history_rows: int, width: int, channels: int, rows: int, key_layouts: int) -> dict[str, Any]:
            found = super().traffic(history_rows, width, channels, rows, key_layouts)
            dense, sparse = found["dense_scalars"] - 2 * width, found["sparq_scalars"] - 4 * width
            return {**found, "dense_scalars": dense, "sparq_scalars": sparse, "ratio": sparse / dense}

    selector_sparq = _Rows()


class TrafficBeyondTheHistory(Fault):
    """More rows are counted than there are."""

    requirement = "SEL-020"
    killed_by = case("sparq-traffic/shorter-than-the-budget")

    class _Rows(Sparq):
        def traffic(self, history_rows: int, width: int, channels: int, rows: int, key_layouts: int) -> dict[str, Any]:
            found = super().traffic(history_rows, width, channels, rows, key_layouts)
            return {**found, "sparq_scalars": history_rows * channels + (2 * rows + 4) * width}

    selector_sparq = _Rows()


class BreakEvenOneShort(Fault):
    """The length at which both cost the same counts as paying."""

    requirement = "SEL-020"
    killed_by = case("sparq-traffic/article", "sparq-traffic/five-rows", "sparq-traffic/one-channel")

    class _Rows(Sparq):
        def break_even(self, width: int, channels: int, rows: int) -> int:
            return super().break_even(width, channels, rows) - 1

    selector_sparq = _Rows()


class OneLayoutStored(Fault):
    """The second layout of K is free."""

    requirement = "SEL-021"
    killed_by = case("sparq-traffic/article", "sparq-traffic/at-break-even", "sparq-traffic/five-rows")

    class _Rows(Sparq):
        def traffic(self, history_rows: int, width: int, channels: int, rows: int, key_layouts: int) -> dict[str, Any]:
            return super().traffic(history_rows, width, channels, rows, 1)

    selector_sparq = _Rows()


class SettingsBent(Fault):
    """Settings that cannot be met are bent until they can."""

    requirement = "SEL-022"
    killed_by = case(
        "infinigen-refused/columns-more-than-there-are",
        "infinigen-refused/columns-none",
        "sparq-refused/no-channel-select",
    )

    class _Rows(Sparq):
        def budget(self, rule: str, history: History, channels: int, rows: int, local: int) -> Budget:
            channels = min(max(channels, 1), int(history.k.shape[2]))
            return super().budget(rule, history, channels, max(rows, 1), min(local, max(rows, 1)))

        def traffic(self, history_rows: int, width: int, channels: int, rows: int, key_layouts: int) -> dict[str, Any]:
            return super().traffic(history_rows, width, min(channels, width), rows, key_layouts)

    class _Fetches(InfiniGen):
        def columns(self, rule: str, history: History, count: int, *rest: Any) -> tuple[list[Array], Array]:
            return super().columns(rule, history, min(max(count, 1), int(history.k.shape[2])), *rest)

    selector_sparq = _Rows()
    selector_infinigen = _Fetches()


class CodeByThePaper(Fault):
    """sparq/code keeps k rows, the current one among them."""

    requirement = "SEL-023"
    killed_by = case(
        "published/sparq-gqa-softmaxsum-vs-logitsum-differs",
        "published/sparq-gqa2-no-realloc",
        "published/sparq-mha-basic",
    )

    class _Rows(Sparq):
        def budget(self, rule: str, history: History, channels: int, rows: int, local: int) -> Budget:
            found = super().budget(rule, history, channels, rows, local)
            return Budget(channels, rows, local) if rule == SPARQ_CODE else found

    selector_sparq = _Rows()


class CodeSumsProxies(Fault):
    """sparq/code ranks by the sum of softmaxes."""

    requirement = "SEL-023"
    killed_by = case("published/sparq-gqa-softmaxsum-vs-logitsum-differs")

    class _Rows(Sparq):
        def rank(self, rule: str, logits: Array, proxy: Array) -> Array:
            return super().rank(PAPER, logits, proxy)

    selector_sparq = _Rows()


class BenchmarkKeepsOneMore(Fault):
    """sparq/benchmark keeps the current row beside k others."""

    requirement = "SEL-024"
    killed_by = case("published/sparq-bench-sparq-attn-t6-k1-2-k2-3")

    class _Rows(Sparq):
        def budget(self, rule: str, history: History, channels: int, rows: int, local: int) -> Budget:
            found = super().budget(rule, history, channels, rows, local)
            return replace(found, rows=rows + 1, local=1) if rule == BENCHMARK else found

    selector_sparq = _Rows()


class UngroupedRulesTakeGroups(Fault):
    """Rules of ungrouped kernels run on groups."""

    requirement = "SEL-024"
    killed_by = case("sparq-variants/benchmark-groups")

    class _Rows(Sparq):
        def budget(self, rule: str, history: History, channels: int, rows: int, local: int) -> Budget:
            if rule in (BENCHMARK, LLAMA):
                return Budget(channels, rows, local)
            return super().budget(rule, history, channels, rows, local)

    selector_sparq = _Rows()


class LlamaCorrects(Fault):
    """sparq/llama-cpp mixes with the mean."""

    requirement = "SEL-025"
    killed_by = case("published/sparq-llamacpp-t6-k1-2-k2-3")

    class _Rows(Sparq):
        def decode(self, rule: str, history: History, *settings: Any) -> tuple[Selection, Array, Array]:
            found, out, lse = super().decode(rule, history, *settings)
            if rule == LLAMA:
                out = self.mix(out, found.mass, self.mean_value(history), history.kv_head_of)
            return found, out, lse

    selector_sparq = _Rows()


class LlamaKeepsTheNewest(Fault):
    """sparq/llama-cpp has a window of one."""

    requirement = "SEL-025"
    killed_by = case("published/sparq-llamacpp-t4-k1-8-k2-8", "published/sparq-llamacpp-t6-k1-2-k2-3")

    class _Rows(Sparq):
        def budget(self, rule: str, history: History, channels: int, rows: int, local: int) -> Budget:
            found = super().budget(rule, history, channels, rows, local)
            return replace(found, rows=max(1, found.rows - 1), local=1) if rule == LLAMA else found

    selector_sparq = _Rows()


class LlamaTakesGroups(Fault):
    """sparq/llama-cpp runs on groups."""

    requirement = "SEL-025"
    killed_by = case("sparq-variants/llama-cpp-groups")

    class _Rows(Sparq):
        def budget(self, rule: str, history: History, channels: int, rows: int, local: int) -> Budget:
            if rule == LLAMA:
                return Budget(channels, rows, local)
            return super().budget(rule, history, channels, rows, local)

    selector_sparq = _Rows()
