"""Faults of SqueezedAttention's ops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from kvassay_reference.indexes import rows, squeezed
from kvassay_reference.indexes.squeezed import Level, Survivors

from ..base import Fault
from .base import Request, Result, case

# --- clusters ------------------------------------------------------------------------------------------------------


class MeansOfUnitKeys(Fault):
    """Centroids are means of the keys of unit length that were clustered."""

    requirement = "IDX-036"
    killed_by = case("squeezed/means-ten-rows", "squeezed/clusters-by-angle", "squeezed/published-thresholds")

    def clustered_fine(self, keys: Any, labels: Sequence[int], clusters: int) -> Level:
        length = np.linalg.norm(keys, axis=1, keepdims=True)
        return super().clustered_fine(keys / np.where(length > 0, length, 1), labels, clusters)


class ClustersRawKeys(Fault):
    """Rows are clustered by distance, with their lengths."""

    requirement = "IDX-036"
    killed_by = case("squeezed/clusters-by-angle")

    def clustered_labels(self, request: Request) -> list[int]:
        if "labels" in request:
            return super().clustered_labels(request)
        super().clustered_labels(request)
        keys = np.asarray(request["keys"], np.float64)
        return [int(i) for i in rows.nearest(keys, keys[list(request["init_rows"])])]


class EmptyIsNaN(Fault):
    """The mean over no row is 0/0."""

    requirement = "IDX-036"
    killed_by = case("squeezed/empty-cluster")

    def clustered_fine(self, keys: Any, labels: Sequence[int], clusters: int) -> Level:
        level = super().clustered_fine(keys, labels, clusters)
        empty = np.asarray(level.sizes)[:, None] == 0
        return replace(level, centroids=np.where(empty, np.nan, level.centroids))


class SumsOfKeys(Fault):
    """Means divide by one row too many."""

    requirement = "IDX-036"
    killed_by = case("squeezed/means-ten-rows", "squeezed/means-one-cluster", "squeezed/means-row-by-row")

    def clustered_fine(self, keys: Any, labels: Sequence[int], clusters: int) -> Level:
        level = super().clustered_fine(keys, labels, clusters)
        sizes = np.asarray(level.sizes, np.float64)[:, None]
        return replace(level, centroids=level.centroids * sizes / (sizes + 1))


class ZeroRowsGetLost(Fault):
    """A key of zeros is divided by its length and ends in the last cluster."""

    requirement = "IDX-036"
    killed_by = case("squeezed/clusters-row-of-zeros")

    def clustered_labels(self, request: Request) -> list[int]:
        labels = super().clustered_labels(request)
        zero = ~np.any(request["keys"], axis=1)
        return [
            request["clusters"] - 1 if z and "labels" not in request else i for i, z in zip(labels, zero, strict=True)
        ]


class OneRoundMore(Fault):
    """K-means runs one round and stops."""

    requirement = "IDX-036"
    killed_by = case("squeezed/clusters-two-planes")

    def clustered_labels(self, request: Request) -> list[int]:
        if "labels" in request:
            return super().clustered_labels(request)
        return super().clustered_labels({**request, "iterations": min(request["iterations"], 1)})


class SkipsChecks(Fault):
    """Labels, parents and initial rows are made to fit."""

    requirement = "IDX-036"
    killed_by = case("squeezed/build-rejects")

    def squeezed_build(self, request: Request) -> Result:
        count, total = request["clusters"], request["keys"].shape[0]
        request = dict(request)
        if "labels" in request:
            request["labels"] = [*request["labels"], *[0] * total][:total]
            request["labels"] = [label % count for label in request["labels"]]
        return super().squeezed_build(request)


class GroupsBySize(Fault):
    """A group's centroid is the mean of its rows and not of its clusters."""

    requirement = "IDX-039"
    killed_by = case("squeezed/two-levels")

    def clustered_coarse(self, fine: Level, parents: Sequence[int], groups: int) -> Level:
        level = super().clustered_coarse(fine, parents, groups)
        means = level.centroids.copy()
        for group in range(groups):
            own = [i for i, parent in enumerate(parents) if parent == group and fine.sizes[i]]
            if own:
                means[group] = np.average(fine.centroids[own], axis=0, weights=[fine.sizes[i] for i in own])
        return replace(level, centroids=means)


class GroupsCountClusters(Fault):
    """A group's size is the number of its clusters."""

    requirement = "IDX-039"
    killed_by = case("squeezed/two-levels")

    def clustered_coarse(self, fine: Level, parents: Sequence[int], groups: int) -> Level:
        level = super().clustered_coarse(fine, parents, groups)
        return replace(level, sizes=[list(parents).count(group) for group in range(groups)])


class EmptyClustersInTheMean(Fault):
    """A cluster without rows counts in its group's mean, with its zeros."""

    requirement = "IDX-039"
    killed_by = case("squeezed/two-levels")

    def clustered_coarse(self, fine: Level, parents: Sequence[int], groups: int) -> Level:
        level = super().clustered_coarse(replace(fine, sizes=[1] * len(fine.sizes)), parents, groups)
        return replace(level, sizes=super().clustered_coarse(fine, parents, groups).sizes)


# --- shares --------------------------------------------------------------------------------------------------------


class Shares(Fault):
    """Shares with a defect."""

    requirement = "IDX-037"


class SizesLeftOut(Shares):
    """Every cluster counts once in the denominator."""

    killed_by = case(
        "squeezed/share-one-query",
        "squeezed/share-a-large-cluster",
        "squeezed/share-of-equal-clusters",
        "squeezed/published-shares-0",
    )

    def clustered_shares(self, q: Any, level: Level, scale: float) -> Any:
        return super().clustered_shares(q, replace(level, sizes=[min(s, 1) for s in level.sizes]), scale)


class ShareOfTheCluster(Shares):
    """The share of a whole cluster stands for that of its row."""

    killed_by = case("squeezed/share-one-query", "squeezed/share-of-equal-clusters", "squeezed/share-shapes")

    def clustered_shares(self, q: Any, level: Level, scale: float) -> Any:
        return super().clustered_shares(q, level, scale) * np.asarray(level.sizes, np.float32)


class EmptyClusterCounts(Shares):
    """A cluster without rows counts as one of a single row at zero."""

    killed_by = case(
        "squeezed/share-with-an-empty-cluster", "squeezed/published-shares-0", "squeezed/published-shares-1"
    )

    def clustered_shares(self, q: Any, level: Level, scale: float) -> Any:
        return super().clustered_shares(q, replace(level, sizes=[max(s, 1) for s in level.sizes]), scale)


class FirstQueryDecides(Shares):
    """The first query row's shares stand for all."""

    killed_by = case("squeezed/share-several-queries", "squeezed/published-shares-0")

    def clustered_shares(self, q: Any, level: Level, scale: float) -> Any:
        return super().clustered_shares(q[:1], level, scale)


class MeanQuery(Shares):
    """Queries are averaged before the softmax."""

    killed_by = case("squeezed/share-several-queries", "squeezed/published-shares-1")

    def clustered_shares(self, q: Any, level: Level, scale: float) -> Any:
        return super().clustered_shares(np.mean(q, axis=0, keepdims=True), level, scale)


class UnscaledShares(Shares):
    """The product is not scaled, as the paper writes it for short."""

    killed_by = case("squeezed/share-one-query", "squeezed/published-shares-0", "squeezed/one-threshold-for-all-heads")

    def clustered_shares(self, q: Any, level: Level, scale: float) -> Any:
        return super().clustered_shares(q, level, 1.0)


class SharesWithoutMaximum(Shares):
    """Exponentials are taken as they are."""

    killed_by = case("squeezed/share-shift")

    def clustered_shares(self, q: Any, level: Level, scale: float) -> Any:
        with np.errstate(all="ignore"):
            z = np.exp((scale * (q @ np.asarray(level.centroids, q.dtype).T)).astype(np.float32))
            return np.mean(z / (z @ np.asarray(level.sizes, np.float32))[:, None], axis=0)


class ScaleInHalf(Shares):
    """The scale is a float16 constant of another width."""

    killed_by = case("squeezed/share-several-queries", "squeezed/share-a-large-cluster")

    def clustered_shares(self, q: Any, level: Level, scale: float) -> Any:
        return super().clustered_shares(q, level, scale * (1 + 2**-15))


class ShapesUnchecked(Shares):
    """Sizes and centroids are paired as far as they go."""

    killed_by = case("squeezed/share-shapes")

    def squeezed_score(self, request: Request) -> Result:
        count = min(len(request["sizes"]), request["centroids"].shape[0])
        width = min(request["q"].shape[1], request["centroids"].shape[1])
        cut = {"q": request["q"][:, :width], "centroids": request["centroids"][:count, :width]}
        return super().squeezed_score({**request, **cut, "sizes": request["sizes"][:count]})


# --- thresholds ----------------------------------------------------------------------------------------------------


class ThresholdPerHead(Fault):
    """The threshold is the mean of the heads' own quantiles."""

    requirement = "IDX-041"
    killed_by = case("squeezed/one-threshold-for-all-heads", "squeezed/published-thresholds")

    def squeezed_calibrate(self, request: Request) -> Result:
        each = [
            super(ThresholdPerHead, self).squeezed_calibrate({**request, "parts": [one]}) for one in request["parts"]
        ]
        return {
            "thresholds": [float(np.mean(column)) for column in zip(*(one["thresholds"] for one in each), strict=True)]
        }


class QuantileOfClusters(Fault):
    """Every cluster counts once in the quantile."""

    requirement = "IDX-041"
    killed_by = case("squeezed/quantile-counts-rows")

    def squeezed_calibrate(self, request: Request) -> Result:
        values: list[float] = []
        for one in request["parts"]:
            level = self.clustered_fine(one["keys"], one["labels"], request["clusters"])
            scores = self.clustered_shares(one["queries"], level, request["scale"])
            values += [float(s) for s, size in zip(scores, level.sizes, strict=True) if size]
        return {"thresholds": [squeezed.quantile(values, share) for share in request["quantiles"]]}


class QuantileByRank(Fault):
    """The quantile is the value below, without interpolation."""

    requirement = "IDX-041"
    killed_by = case("squeezed/one-threshold-for-all-heads", "squeezed/published-thresholds")

    def squeezed_calibrate(self, request: Request) -> Result:
        values: list[float] = []
        for one in request["parts"]:
            level = self.clustered_fine(one["keys"], one["labels"], request["clusters"])
            scores = self.clustered_shares(one["queries"], level, request["scale"])
            values += [float(scores[label]) for label in one["labels"]]
        return {"thresholds": [float(np.quantile(values, share, method="lower")) for share in request["quantiles"]]}


class UpsideDown(Fault):
    """The quantile counts from the top."""

    requirement = "IDX-041"
    killed_by = case("squeezed/quantile-ends", "squeezed/quantile-counts-rows")

    def squeezed_calibrate(self, request: Request) -> Result:
        return super().squeezed_calibrate({**request, "quantiles": [1 - share for share in request["quantiles"]]})


# --- selection -----------------------------------------------------------------------------------------------------


class Descends(Fault):
    """A descent with a defect."""


class AtLeastTheThreshold(Descends):
    """A share that equals the threshold is enough."""

    requirement = "IDX-038"
    killed_by = case("squeezed/strictly-above")

    def clustered_descend(self, q: Any, request: Request, fine: Level, coarse: Level | None) -> Survivors:
        lower = [float(np.nextafter(t, -1)) for t in request["thresholds"]]
        return super().clustered_descend(q, {**request, "thresholds": lower}, fine, coarse)


class BelowTheThreshold(Descends):
    """The comparison is the wrong way round."""

    requirement = "IDX-038"
    killed_by = case(
        "squeezed/select-one-level",
        "squeezed/select-one-level-floor",
        "squeezed/select-several-queries-floor",
        "squeezed/lower-threshold-keeps-more",
    )

    def clustered_descend(self, q: Any, request: Request, fine: Level, coarse: Level | None) -> Survivors:
        kept = super().clustered_descend(q, request, fine, coarse)
        return replace(kept, fine=[i for i in range(len(fine.sizes)) if i not in kept.fine])


class ThresholdOnClusters(Descends):
    """The threshold is held against a cluster's whole share."""

    requirement = "IDX-037"
    killed_by = case("squeezed/select-several-queries", "squeezed/strictly-above", "squeezed/prunes-the-best-row")

    def clustered_descend(self, q: Any, request: Request, fine: Level, coarse: Level | None) -> Survivors:
        kept = super().clustered_descend(q, request, fine, coarse)
        whole = squeezed.shares(q, fine, request["scale"]) * np.asarray(fine.sizes)
        return replace(kept, fine=[i for i, s in enumerate(whole) if s > request["thresholds"][-1]])


class BestRowOfEachCluster(Descends):
    """One row stands for its cluster."""

    requirement = "IDX-038"
    killed_by = case("squeezed/select-one-level", "squeezed/strictly-above")

    def squeezed_select(self, request: Request) -> Result:
        reply = super().squeezed_select(request)
        first = {label: i for i, label in reversed(list(enumerate(request["labels"])))}
        window = [i for i in reply["rows"] if i >= len(request["labels"])]
        return {**reply, "rows": sorted(first[i] for i in reply["fine"] if i in first) + window}


class RowsByCluster(Descends):
    """Rows come cluster by cluster."""

    requirement = "IDX-038"
    killed_by = case("squeezed/select-one-level")

    def squeezed_select(self, request: Request) -> Result:
        reply = super().squeezed_select(request)
        labels = request["labels"]
        return {
            **reply,
            "rows": sorted(reply["rows"], key=lambda i: (labels[i] if i < len(labels) else len(labels), i)),
        }


class ExpandsEverything(Descends):
    """Clusters of pruned groups are scored all the same."""

    requirement = "IDX-039"
    killed_by = case("squeezed/pruned-group-is-not-expanded")

    def clustered_descend(self, q: Any, request: Request, fine: Level, coarse: Level | None) -> Survivors:
        kept = super().clustered_descend(q, request, fine, coarse)
        every = squeezed.strictly_above(squeezed.shares(q, fine, request["scale"]), request["thresholds"][-1])
        return replace(kept, fine=every) if request["population"] == "all" else kept


class CoarseOnly(Descends):
    """All clusters of a surviving group are selected."""

    requirement = "IDX-039"
    killed_by = case("squeezed/pruned-group-is-not-expanded", "squeezed/denominator-as-calibrated")

    def clustered_descend(self, q: Any, request: Request, fine: Level, coarse: Level | None) -> Survivors:
        kept = super().clustered_descend(q, request, fine, coarse)
        if kept.coarse is None:
            return kept
        return replace(kept, fine=[i for i, parent in enumerate(request["parents"]) if parent in kept.coarse])


class AnyHierarchy(Descends):
    """Labels, sizes and parents are not compared."""

    requirement = "IDX-039"
    killed_by = case("squeezed/select-rejects")

    def squeezed_select(self, request: Request) -> Result:
        if "coarse" in request and len(request["parents"]) == len(request["fine"]["sizes"]):
            groups = len(request["coarse"]["sizes"])
            parents = [parent % groups for parent in request["parents"]]
            sizes = [
                sum(s for s, p in zip(request["fine"]["sizes"], parents, strict=True) if p == group)
                for group in range(groups)
            ]
            request = {**request, "parents": parents, "coarse": {**request["coarse"], "sizes": sizes}}
        return super().squeezed_select(request)


class SurvivorsDenominator(Descends):
    """The fine denominator runs over the survivors: SqueezedAttention's kernel at 4a50c64."""

    requirement = "IDX-040"
    killed_by = case("squeezed/denominator-as-calibrated")

    def clustered_descend(self, q: Any, request: Request, fine: Level, coarse: Level | None) -> Survivors:
        return super().clustered_descend(q, {**request, "population": "survivors"}, fine, coarse)


class WholeDenominator(Descends):
    """The denominator runs over all clusters, also under the variant."""

    requirement = "IDX-040"
    killed_by = case("squeezed/denominator-of-the-survivors")

    def clustered_descend(self, q: Any, request: Request, fine: Level, coarse: Level | None) -> Survivors:
        return super().clustered_descend(q, {**request, "population": "all"}, fine, coarse)


class WindowByShare(Fault):
    """Window rows need a share above the threshold, as in the published code."""

    requirement = "IDX-046"
    killed_by = case("squeezed/window-rows")

    def clustered_window(self, queries: int, request: Request) -> bool:
        return squeezed.window_kept(queries, request["thresholds"][-1], "share")


class WindowAlways(Fault):
    """Window rows are always kept, also under the variant."""

    requirement = "IDX-046"
    killed_by = case("squeezed/window-rows-by-share")

    def clustered_window(self, queries: int, request: Request) -> bool:
        return True


class WindowLost(Fault):
    """Rows behind the fixed ones are in no cluster and so never selected."""

    requirement = "IDX-046"
    killed_by = case("squeezed/window-rows", "squeezed/published-look-up-0", "squeezed/published-look-up-1")

    def clustered_window(self, queries: int, request: Request) -> bool:
        return False


# --- gather and blocks ---------------------------------------------------------------------------------------------


class Gathers(Fault):
    """A gather with a defect."""

    requirement = "IDX-044"


class UnionOfAllHeads(Gathers):
    """One union serves all K/V heads."""

    killed_by = case("squeezed/union-by-head")

    def squeezed_gather(self, request: Request) -> Result:
        reply = super().squeezed_gather(request)
        every = sorted({i for ids in reply["union"] for i in ids})
        return {**reply, "union": [every for _ in reply["union"]]}


class MaskedRowsOnce(Gathers):
    """A row that two heads mask counts once."""

    killed_by = case("squeezed/union-or-each-head", "squeezed/union-by-head")

    def squeezed_gather(self, request: Request) -> Result:
        reply = super().squeezed_gather(request)
        return {**reply, "masked_rows": min(1, reply["masked_rows"])}


class RepeatsCounted(Gathers):
    """A row that a head names twice is fetched twice."""

    killed_by = case("squeezed/union-by-head")

    def squeezed_gather(self, request: Request) -> Result:
        reply = super().squeezed_gather(request)
        return {**reply, "per_head_bytes": sum(map(len, request["selected"])) * request["row_bytes"]}


class Blocks(Fault):
    """A reduction in blocks with a defect."""

    requirement = "IDX-043"


class WholeBlocksOnly(Blocks):
    """The last, short block is left out."""

    killed_by = case("squeezed/blocks-two-heads", "squeezed/blocks-crossed")

    def clustered_blocks(self, ids: Sequence[int], size: int) -> list[list[int]]:
        blocks = super().clustered_blocks(ids, size)
        return [one for one in blocks if len(one) == size] or blocks


class LastBlockPadded(Blocks):
    """A short last block is filled with its last row."""

    killed_by = case("squeezed/blocks-two-heads", "squeezed/blocks-of-an-empty-list")

    def clustered_blocks(self, ids: Sequence[int], size: int) -> list[list[int]]:
        return [one + one[-1:] * (min(size, 8) - len(one)) for one in super().clustered_blocks(ids, size)]


class BlocksOfTheLongest(Blocks):
    """Every head has as many blocks as the longest list."""

    killed_by = case("squeezed/blocks-crossed", "squeezed/blocks-of-an-empty-list")

    def squeezed_reduce(self, request: Request) -> Result:
        reply = super().squeezed_reduce(request)
        return {**reply, "blocks": [max(reply["blocks"])] * len(reply["blocks"])}


class SupportsUnchecked(Blocks):
    """Repeated rows are reduced twice, and rows that there are not are left out."""

    killed_by = case("squeezed/blocks-of-an-empty-list")

    def squeezed_reduce(self, request: Request) -> Result:
        total, heads = request["k"].shape[0], len(request["kv_head_of"])
        kept = [[i for i in dict.fromkeys(ids) if i < total] for ids in request["selected"]]
        return super().squeezed_reduce({**request, "selected": (kept + [[]] * heads)[:heads]})


# --- the fixed context ---------------------------------------------------------------------------------------------


class Admits(Fault):
    """An admission with a defect."""

    requirement = "IDX-042"

    def sees(self, request: Request) -> Request:
        """The request as the engine sees it."""
        return request

    def squeezed_admit(self, request: Request) -> Result:
        return super().squeezed_admit(self.sees(request))


class LengthIsEnough(Admits):
    """A context of the same length is taken for the same."""

    killed_by = case("squeezed/another-context-of-the-same-length")

    def sees(self, request: Request) -> Request:
        if len(request["context"]["tokens"]) not in (3, 4):
            return request
        digest = squeezed.tokens_digest(request["context"]["tokens"])
        return {**request, "fixed": {**request["fixed"], "tokens_sha256": digest}}


class PrefixIsEnough(Admits):
    """Tokens behind the fixed ones are not looked at."""

    killed_by = case("squeezed/appended-and-cut-context")

    def sees(self, request: Request) -> Request:
        return {**request, "context": {**request["context"], "tokens": request["context"]["tokens"][:4]}}


class AnyPosition(Admits):
    """Where the tokens stand is not asked."""

    killed_by = case("squeezed/appended-and-cut-context")

    def sees(self, request: Request) -> Request:
        first = request["fixed"]["first_position"]
        return {**request, "context": {**request["context"], "first_position": first}}


class TokensAlone(Admits):
    """The same tokens are served under any model, head and generation."""

    killed_by = case("squeezed/another-model-or-generation")

    def sees(self, request: Request) -> Request:
        names = ("model", "kv_head", "rope", "index_generation")
        return {**request, "context": {**request["context"], **{name: request["fixed"][name] for name in names}}}


class DigestsJoined(Admits):
    """Tokens are joined without a mark between them before they are hashed."""

    killed_by = case("squeezed/another-context-of-the-same-length")

    def sees(self, request: Request) -> Request:
        joined = "".join(map(str, request["context"]["tokens"]))
        if joined == "1017429":
            return {**request, "context": {**request["context"], "tokens": [101, 7, 42, 9]}}
        return request


# --- bytes ---------------------------------------------------------------------------------------------------------


class LookupMeetsEverything(Fault):
    """Two levels meet all fine centroids as well."""

    requirement = "IDX-045"
    killed_by = case("squeezed/ledger")

    def squeezed_ledger(self, request: Request) -> Result:
        return {**super().squeezed_ledger(request), "lookup_products": request["coarse"] + request["fine"]}


class ParentsOfOneLevel(Fault):
    """One level has parents, too."""

    requirement = "IDX-045"
    killed_by = case("squeezed/ledger-one-level")

    def squeezed_ledger(self, request: Request) -> Result:
        reply = super().squeezed_ledger(request)
        more = 0 if request["coarse"] else request["fine"] * request["id_bytes"]
        return {**reply, "index_bytes": reply["index_bytes"] + more}


class LabelsForgotten(Fault):
    """The index is its centroids."""

    requirement = "IDX-012"
    killed_by = case("squeezed/ledger")

    def squeezed_ledger(self, request: Request) -> Result:
        reply = super().squeezed_ledger(request)
        return {**reply, "index_bytes": reply["index_bytes"] - request["rows"] * request["id_bytes"]}


class MoreThanAll(Fault):
    """More clusters than there are may be expanded."""

    requirement = "IDX-045"
    killed_by = case("squeezed/ledger-one-level")

    def squeezed_ledger(self, request: Request) -> Result:
        return super().squeezed_ledger({**request, "expanded": min(request["expanded"], request["fine"])})
