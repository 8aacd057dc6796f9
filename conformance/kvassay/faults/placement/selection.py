"""Faults of SparF: channels, rows, attention and the mean's correction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from kvassay_reference import sparf
from kvassay_reference.sparf import Selection

from ..base import Fault
from .base import Request, Result, case


class Channels(Fault):
    """Other channels."""

    requirement = "PLC-048"


class LargestValues(Channels):
    """Channels are ranked by their value and not by their magnitude."""

    killed_by = case("select/base", "select/by-magnitude", "attend/base")

    def flash_channels(self, q: Any, count: int) -> tuple[list[int], float]:
        channels = sparf.top(q, count)
        return channels, float(np.abs(q)[channels].sum() / np.abs(q).sum()) if np.abs(q).any() else 1.0


class SmallestChannels(Channels):
    """The channels of least magnitude are taken: a sort in the wrong direction."""

    killed_by = case("select/base", "select/by-magnitude", "select/each-query-head-for-itself")

    def flash_channels(self, q: Any, count: int) -> tuple[list[int], float]:
        channels = sparf.top(-np.abs(q), count)
        return channels, float(np.abs(q)[channels].sum() / np.abs(q).sum()) if np.abs(q).any() else 1.0


class UpperOfEqualChannels(Channels):
    """Of equal channels the upper ones are taken."""

    killed_by = case("select/tied-channels", "select/query-of-zeros")

    def flash_channels(self, q: Any, count: int) -> tuple[list[int], float]:
        channels, share = super().flash_channels(q[::-1], count)
        return sorted(q.shape[0] - 1 - channel for channel in channels), share


class FirstChannels(Channels):
    """The first channels are taken, whatever the query."""

    killed_by = case("select/base", "select/by-magnitude")

    def flash_channels(self, q: Any, count: int) -> tuple[list[int], float]:
        share = float(np.abs(q)[:count].sum() / np.abs(q).sum()) if np.abs(q).any() else 1.0
        return list(range(count)), share


class ChannelsOfTheGroup(Channels):
    """Query heads that share a K/V head share their channels."""

    killed_by = case("select/each-query-head-for-itself", "attend/grouped-heads")

    def flash_selection(self, request: Request) -> list[Selection]:
        found = super().flash_selection(request)
        heads = list(request["kv_head_of"])
        return [
            one._replace(channels=found[heads.index(head)].channels) for one, head in zip(found, heads, strict=True)
        ]


class BudgetUnchecked(Channels):
    """More channels than there are count as all of them, and none as one."""

    killed_by = case("select/budgets")

    def flash_budget(self, request: Request) -> None:
        return

    def flash_channels(self, q: Any, count: int) -> tuple[list[int], float]:
        return super().flash_channels(q, max(1, count))

    def flash_rows(self, raw: Any, scale: float, count: int) -> list[int]:
        return super().flash_rows(raw, scale, max(1, count))


class AllChannelsRefused(Channels):
    """As many channels as there are count as too many."""

    killed_by = case("select/share-of-the-query", "select/query-of-zeros", "select/budgets")

    def flash_budget(self, request: Request) -> None:
        sparf.check_budget(request["channels"], request["rows"], request["q"].shape[1] - 1)


class Importance(Fault):
    """Another importance."""

    requirement = "PLC-049"


class PlainTemperature(Importance):
    """The channels' share is left out of the temperature."""

    killed_by = case("select/base", "select/share-of-the-query", "attend/base", "select/scale-of-the-request")

    def flash_factor(self, scale: float, share: float, width: int) -> float:
        return scale


class ShareWithoutRoot(Importance):
    """The scores are divided by the share and not by its root."""

    killed_by = case("select/base", "select/share-of-the-query", "attend/budgets")

    def flash_factor(self, scale: float, share: float, width: int) -> float:
        return scale / share


class TemperatureOfTheWidth(Importance):
    """The temperature is that of the width, whatever the request's scale."""

    killed_by = case("select/scale-of-the-request", "attend/grouped-heads")

    def flash_factor(self, scale: float, share: float, width: int) -> float:
        return float(width**-0.5 / share**0.5)


class ShareInTheTwoNorm(Importance):
    """The share is that of the 2-norm."""

    killed_by = case("select/base", "select/share-of-the-query")

    def flash_channels(self, q: Any, count: int) -> tuple[list[int], float]:
        channels, share = super().flash_channels(q, count)
        whole = float(np.linalg.norm(q))
        return channels, float(np.linalg.norm(q[channels])) / whole if whole else share


class ZeroShare(Importance):
    """The share of a query of zeros is zero."""

    killed_by = case("select/query-of-zeros")

    def flash_channels(self, q: Any, count: int) -> tuple[list[int], float]:
        channels, share = super().flash_channels(q, count)
        return channels, share if np.abs(q).any() else 1e-30


class ScoresOfAllChannels(Importance):
    """The importance reads every channel."""

    killed_by = case("select/base", "attend/unselected-channels-are-not-read", "attend/misses-the-best-row")

    def flash_scores(self, q: Any, k_channel: Any, channels: Sequence[int]) -> Any:
        return super().flash_scores(q, k_channel, list(range(q.shape[0])))


class MaskedChannels(Importance):
    """Unselected channels are multiplied by zero instead of not being read."""

    killed_by = case("attend/unselected-channels-are-not-read")

    def flash_scores(self, q: Any, k_channel: Any, channels: Sequence[int]) -> Any:
        kept = np.zeros_like(q)
        kept[list(channels)] = q[list(channels)]
        return super().flash_scores(kept, k_channel, list(range(q.shape[0])))


class TokenCopyScores(Importance):
    """The importance reads K by token, page after page."""

    killed_by = case("attend/copies-are-read-for-their-purpose", "attend/unselected-rows-are-not-read")

    def flash_selection(self, request: Request) -> list[Selection]:
        if "k" in request:
            request = {**request, "k_channel": np.ascontiguousarray(request["k"].transpose(1, 2, 0))}
        return super().flash_selection(request)


class HalfScores(Importance):
    """Scores are kept in half precision."""

    killed_by = case("select/each-query-head-for-itself", "attend/real-shape")

    def flash_scores(self, q: Any, k_channel: Any, channels: Sequence[int]) -> Any:
        return super().flash_scores(q, k_channel, channels).astype(np.float16).astype(np.float32) * np.float32(1.001)


class ShapesUnchecked(Importance):
    """Keys by channel of another width are cut to the query's."""

    killed_by = case("select/shapes-and-dtypes")

    def sparf_select(self, request: Request) -> Result:
        width = min(request["q"].shape[1], request["k_channel"].shape[1])
        cut = {"q": request["q"][:, :width], "k_channel": request["k_channel"][:, :width]}
        return super().sparf_select({**request, **cut, "channels": min(request["channels"], width)})


class Rows(Fault):
    """Other rows."""

    requirement = "PLC-050"


class UpperOfEqualRows(Rows):
    """Of equal rows the upper ones are taken."""

    killed_by = case("select/tied-rows", "select/query-of-zeros")

    def flash_rows(self, raw: Any, scale: float, count: int) -> list[int]:
        last = raw.shape[0] - 1
        return sorted(last - row for row in super().flash_rows(raw[::-1], scale, count))


class RankedByWeight(Rows):
    """Rows are ranked by their softmax weight, most of which is zero."""

    killed_by = case("select/ranked-by-score")

    def flash_rows(self, raw: Any, scale: float, count: int) -> list[int]:
        return super().flash_rows(sparf.importance(raw, scale), 1.0, count)


class RankedByMagnitude(Rows):
    """Rows are ranked by the magnitude of their score."""

    killed_by = case("select/each-query-head-for-itself", "attend/budgets")

    def flash_rows(self, raw: Any, scale: float, count: int) -> list[int]:
        return super().flash_rows(np.abs(raw), 1.0, count)


class ScaleWithoutSign(Rows):
    """Ranking forgets the sign of the scale."""

    killed_by = case("select/negative-scale")

    def flash_rows(self, raw: Any, scale: float, count: int) -> list[int]:
        return super().flash_rows(raw, abs(scale), count)


class ScaleOfZeroRanks(Rows):
    """Under a scale of zero rows are ranked all the same."""

    killed_by = case("select/scale-of-zero")

    def flash_rows(self, raw: Any, scale: float, count: int) -> list[int]:
        return super().flash_rows(raw, scale or 1.0, count)


class UnstableSort(Rows):
    """Ties are in order only while they are few."""

    killed_by = case("select/many-ties")

    def flash_rows(self, raw: Any, scale: float, count: int) -> list[int]:
        order = np.argsort(-raw * np.sign(scale), kind="heapsort")
        return sorted(int(row) for row in order[:count])


class MeanOfNoRows(Rows):
    """Over no rows the output is the mean."""

    killed_by = case("attend/no-rows")

    def sparf_attend(self, request: Request) -> Result:
        if request["k"].shape[0]:
            return super().sparf_attend(request)
        heads = request["kv_head_of"]
        empty: Result = {name: [[] for _ in heads] for name in ("channels", "positions")}
        out = np.stack([np.asarray(request["v_mean"], np.float32)[head] for head in heads])
        ledger = {"physical_bytes": 0, "logical_bytes": 0}
        return {"exactness": "approximate", **empty, "alpha": np.zeros(len(heads), np.float32), "out": out, **ledger}


class OneRowMore(Rows):
    """The current row rides free: one more row than asked for."""

    killed_by = case("select/base", "select/tied-rows", "attend/base")

    def flash_rows(self, raw: Any, scale: float, count: int) -> list[int]:
        return super().flash_rows(raw, scale, count + 1)


class RowsOfTheGroup(Rows):
    """Query heads that share a K/V head share their rows."""

    killed_by = case("select/each-query-head-for-itself", "attend/grouped-heads")

    def flash_selection(self, request: Request) -> list[Selection]:
        found = super().flash_selection(request)
        heads = list(request["kv_head_of"])
        return [
            one._replace(positions=found[heads.index(head)].positions) for one, head in zip(found, heads, strict=True)
        ]


class QueryHeadAsKvHead(Rows):
    """A query head reads the K/V head of its own number, modulo their count."""

    killed_by = case("select/each-query-head-for-itself", "attend/grouped-heads")

    def flash_selection(self, request: Request) -> list[Selection]:
        heads = request["k_channel"].shape[0]
        turned = [query % heads for query in range(len(request["kv_head_of"]))]
        return super().flash_selection({**request, "kv_head_of": turned})


class LastRowNeverTaken(Rows):
    """The current row is not among the candidates."""

    killed_by = case("select/more-rows-than-there-are", "attend/everything-is-dense")

    def flash_rows(self, raw: Any, scale: float, count: int) -> list[int]:
        return super().flash_rows(raw[:-1], scale, count) if raw.shape[0] > 1 else [0]


class AlphaOfTheCount(Rows):
    """Alpha is the share of the rows and not of their mass."""

    killed_by = case("select/base", "select/each-query-head-for-itself", "attend/base")

    def flash_alpha(self, weights: Any, positions: Sequence[int]) -> float:
        rows: int = weights.shape[0]
        return len(positions) / rows


class RowsInOrderOfScore(Rows):
    """Positions are returned in the order of their scores."""

    killed_by = case("select/each-query-head-for-itself", "select/more-rows-than-there-are")

    def flash_rows(self, raw: Any, scale: float, count: int) -> list[int]:
        return [int(row) for row in np.argsort(-raw * np.sign(scale or 1.0), kind="stable")[:count]]


class AlphaShrinks(Rows):
    """Alpha is that of the last selected row."""

    killed_by = case("select/more-rows-more-mass", "select/base")

    def flash_alpha(self, weights: Any, positions: Sequence[int]) -> float:
        last: float = weights[positions[-1]].item()
        return last


# --- attention -----------------------------------------------------------------------------------------------------


class Exact(Fault):
    """Another attention over the selection."""

    requirement = "PLC-051"


class WholePages(Exact):
    """Every row of a page that was read is attended to."""

    killed_by = case("attend/real-shape", "attend/unselected-rows-are-not-read")

    def flash_exact(self, request: Request, query: int, one: Selection) -> Any:
        size = min(4, request["layout"]["page_rows"])
        pages = {row // size for row in one.positions}
        rows = [row for row in range(request["k"].shape[0]) if row // size in pages]
        return super().flash_exact(request, query, one._replace(positions=rows))


class MaskedRows(Exact):
    """Unselected rows get weight zero instead of not being read."""

    killed_by = case("attend/unselected-rows-are-not-read")

    def flash_exact(self, request: Request, query: int, one: Selection) -> Any:
        out = super().flash_exact(request, query, one)
        others = np.asarray(request["v"], np.float32)[:, request["kv_head_of"][query], :]
        return out + np.float32(0.0) * others.sum(axis=0)


class ProxyAttends(Exact):
    """The selected rows are weighed by their importance."""

    killed_by = case("attend/final-scores-of-all-channels", "attend/base", "attend/budgets")

    def flash_exact(self, request: Request, query: int, one: Selection) -> Any:
        q = np.zeros_like(request["q"])
        q[query, one.channels] = request["q"][query, one.channels]
        return super().flash_exact({**request, "q": q}, query, one)


class TemperedAttention(Exact):
    """The attention over the selected rows has the importance's temperature."""

    killed_by = case("attend/final-scores-of-all-channels", "attend/base")

    def flash_exact(self, request: Request, query: int, one: Selection) -> Any:
        return super().flash_exact({**request, "scale": request["scale"] / one.share**0.5}, query, one)


class ChannelCopyAttends(Exact):
    """Attention reads K by channel, too, so that the second copy could be dropped."""

    killed_by = case("attend/copies-are-read-for-their-purpose", "attend/unselected-channels-are-not-read")

    def flash_exact(self, request: Request, query: int, one: Selection) -> Any:
        k = np.ascontiguousarray(request["k_channel"].transpose(2, 0, 1))
        return super().flash_exact({**request, "k": k}, query, one)


class DenseAttention(Exact):
    """All rows are attended to, and the result is called SparF's."""

    killed_by = case("attend/base", "attend/unselected-rows-are-not-read", "attend/misses-the-best-row")

    def flash_exact(self, request: Request, query: int, one: Selection) -> Any:
        return super().flash_exact(request, query, one._replace(positions=list(range(request["k"].shape[0]))))


class SlightlyOffOutput(Exact):
    """Outputs are kept in 17 bits."""

    killed_by = case("attend/budgets", "attend/base")

    def flash_exact(self, request: Request, query: int, one: Selection) -> Any:
        return super().flash_exact(request, query, one) * np.float32(1 + 2.0**-15)


class Correction(Fault):
    """Another correction."""

    requirement = "PLC-052"


class NoCorrection(Correction):
    """The omitted mass goes to the selected rows."""

    killed_by = case("attend/base", "attend/mean-of-other-rows", "attend/budgets", "attend/real-shape")

    def flash_corrected(self, out: Any, alpha: float, mean: Any) -> Any:
        return out


class ScaledDown(Correction):
    """The omitted mass is lost."""

    killed_by = case("attend/base", "attend/mean-of-other-rows", "attend/grouped-heads")

    def flash_corrected(self, out: Any, alpha: float, mean: Any) -> Any:
        return out * np.float32(alpha)


class AlphaSwapped(Correction):
    """Alpha weighs the mean."""

    killed_by = case("attend/base", "attend/budgets", "attend/everything-is-dense")

    def flash_corrected(self, out: Any, alpha: float, mean: Any) -> Any:
        return super().flash_corrected(out, 1.0 - alpha, mean)


class MeanAdded(Correction):
    """The mean is added on top."""

    killed_by = case("attend/base", "attend/mean-of-other-rows")

    def flash_corrected(self, out: Any, alpha: float, mean: Any) -> Any:
        return out + mean.astype(out.dtype) * np.float32(1.0 - alpha)


class MeanOfTheQueryHead(Correction):
    """The mean is taken from the K/V head of the query head's number."""

    killed_by = case("attend/grouped-heads", "attend/real-shape")

    def sparf_attend(self, request: Request) -> Result:
        found = super().sparf_attend(request)
        means, heads = np.asarray(request["v_mean"], np.float32), request["kv_head_of"]
        wrong = [means[query % len(means)] - means[head] for query, head in enumerate(heads)]
        return {**found, "out": found["out"] + (1 - found["alpha"])[:, None] * np.stack(wrong)}


class MeanOfTheSelected(Correction):
    """The mean is that of the selected rows."""

    killed_by = case("attend/base", "attend/mean-of-other-rows")

    def sparf_attend(self, request: Request) -> Result:
        found = super().sparf_attend(request)
        heads, v = request["kv_head_of"], np.asarray(request["v"], np.float32)
        means = np.asarray(request["v_mean"], np.float32)
        wrong = [v[rows, head].mean(axis=0) - means[head] for rows, head in zip(found["positions"], heads, strict=True)]
        return {**found, "out": found["out"] + (1 - found["alpha"])[:, None] * np.stack(wrong)}


class SlightlyOff(Correction):
    """Alpha is off by a few parts in a million, as a table of exponentials would be."""

    killed_by = case("attend/mean-of-other-rows", "select/base")

    def flash_alpha(self, weights: Any, positions: Sequence[int]) -> float:
        return super().flash_alpha(weights, positions) * (1 - 6e-5)


FAULTS: tuple[type[Fault], ...] = (
    LargestValues,
    SmallestChannels,
    UpperOfEqualChannels,
    FirstChannels,
    ChannelsOfTheGroup,
    BudgetUnchecked,
    AllChannelsRefused,
    PlainTemperature,
    ShareWithoutRoot,
    TemperatureOfTheWidth,
    ShareInTheTwoNorm,
    ZeroShare,
    ScoresOfAllChannels,
    MaskedChannels,
    TokenCopyScores,
    HalfScores,
    ShapesUnchecked,
    UpperOfEqualRows,
    RankedByWeight,
    RankedByMagnitude,
    ScaleWithoutSign,
    ScaleOfZeroRanks,
    UnstableSort,
    MeanOfNoRows,
    OneRowMore,
    RowsOfTheGroup,
    QueryHeadAsKvHead,
    LastRowNeverTaken,
    AlphaOfTheCount,
    RowsInOrderOfScore,
    AlphaShrinks,
    WholePages,
    MaskedRows,
    ProxyAttends,
    TemperedAttention,
    ChannelCopyAttends,
    DenseAttention,
    SlightlyOffOutput,
    NoCorrection,
    ScaledDown,
    AlphaSwapped,
    MeanAdded,
    MeanOfTheQueryHead,
    MeanOfTheSelected,
    SlightlyOff,
)
"""In the order of the chapter."""
