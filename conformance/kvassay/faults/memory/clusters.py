"""Faults of ClusterKV: assignment, centroids, lists, ranking, budget, windows, and the life of a cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from kvassay_reference.memory import clusters
from kvassay_reference.memory.clusters import Clustered, Index, Planned
from kvassay_reference.memory.session import Session

from ...adapters.base import Rejected
from ..base import Fault, found
from .base import Array, Request, Result, case

# --- clustering ----------------------------------------------------------------------------------------------------


class EuclideanAssignment(Fault):
    """A row joins the cluster whose centroid is nearest to its direction, whatever the centroid's length."""

    requirement = "MEM-033"
    killed_by = case("build-clusters/raw-key-lengths")

    def mem_cluster_build(self, request: Request) -> Clustered:
        k = request["k"]
        if k.ndim != 3 or not np.linalg.norm(k, axis=-1).all() or "rule" in request:
            return super().mem_cluster_build(request)
        keys = k.astype(float).transpose(1, 0, 2)
        made = super().mem_cluster_build(request)
        centroids = keys[:, list(request["initial"])]
        distance = ((keys[:, :, None] - centroids[:, None]) ** 2).sum(axis=-1)
        return made._replace(labels=distance.argmin(axis=-1)) if request["iterations"] else made


class LengthOfCentroids(Fault):
    """Rows are assigned by product with centroids that are raw keys at first."""

    requirement = "MEM-033"
    killed_by = case("build-clusters/length-decides-nothing", "build-clusters/raw-key-lengths")

    def mem_cluster_build(self, request: Request) -> Clustered:
        if "rule" in request or request["k"].ndim != 3:
            return super().mem_cluster_build(request)
        made = super().mem_cluster_build(request)
        keys = request["k"].transpose(1, 0, 2)
        raw = keys[:, list(request["initial"])]
        labels = np.argmax(keys @ raw.transpose(0, 2, 1), axis=-1)
        return made._replace(labels=labels)


class HigherCluster(Fault):
    """Of equal clusters the higher is taken."""

    requirement = "MEM-033"
    killed_by = case("build-clusters/same-initial-row", "build-clusters/equidistant")

    @staticmethod
    def mem_cluster_assign(points: Array, centroids: Array) -> Array:
        facing, _ = clusters.directions(centroids)
        scores = points @ facing.transpose(0, 2, 1)
        return scores.shape[-1] - 1 - np.argmax(scores[..., ::-1], axis=-1)


class OneHeadsLabels(Fault):
    """The first head's labels are used for every head."""

    requirement = "MEM-033"
    killed_by = case("build-clusters/two-heads", "build-clusters/three-heads")

    @staticmethod
    def mem_cluster_assign(points: Array, centroids: Array) -> Array:
        made = clusters.nearest(points, centroids)
        return np.repeat(made[:1], made.shape[0], axis=0)


class ZeroKeyJoinsFirst(Fault):
    """A key without direction joins the first cluster."""

    requirement = "MEM-033"
    killed_by = case("build-clusters/zero-key")

    def mem_cluster_build(self, request: Request) -> Clustered:
        k = request["k"]
        zero = ~np.any(k, axis=-1, keepdims=True)
        return super().mem_cluster_build({**request, "k": np.where(zero, k + np.float32(1e-8), k)})


class MissingHeadAxis(Fault):
    """Keys without a head axis are taken for one head."""

    requirement = "MEM-033"
    killed_by = case("build-clusters/no-heads")

    def mem_cluster_build(self, request: Request) -> Clustered:
        k = request["k"]
        return super().mem_cluster_build({**request, "k": k[:, None, :] if k.ndim == 2 else k})


class Updated(Fault):
    """Centroids are updated by another rule."""

    @staticmethod
    def update(points: Array, keys: Array, labels: Array, old: Array) -> Array:
        """Centroids of the next round."""
        raise NotImplementedError

    def mem_cluster_build(self, request: Request) -> Clustered:
        if "rule" in request:
            return super().mem_cluster_build(request)
        return clusters.build(request["k"], request["initial"], request["iterations"], update=self.update)


class RawMean(Updated):
    """Centroids are means of raw keys, as in the published code."""

    requirement = "MEM-034"
    killed_by = case("build-clusters/pool", "build-clusters/long-keys", "build-clusters/two-heads")

    @staticmethod
    def update(points: Array, keys: Array, labels: Array, old: Array) -> Array:
        return clusters.mean_key(points, keys, labels, old)


class NotRenormalised(Updated):
    """The mean of directions is not brought to length one."""

    requirement = "MEM-034"
    killed_by = case("build-clusters/pool", "build-clusters/opposite-keys", "build-clusters/random-keys")

    @staticmethod
    def update(points: Array, keys: Array, labels: Array, old: Array) -> Array:
        return clusters.mean_key(points, points, labels, old)


class LengthsWeigh(Updated):
    """Long keys weigh more in the mean."""

    requirement = "MEM-034"
    killed_by = case("build-clusters/long-keys", "build-clusters/two-heads")

    @staticmethod
    def update(points: Array, keys: Array, labels: Array, old: Array) -> Array:
        made, _ = clusters.directions(clusters.mean_key(points, keys, labels, old))
        return made


class HalfPrecisionCentroids(Updated):
    """Centroids are stored in half precision."""

    requirement = "MEM-034"
    killed_by = case("build-clusters/pool", "build-clusters/three-heads")

    @staticmethod
    def update(points: Array, keys: Array, labels: Array, old: Array) -> Array:
        return clusters.mean_direction(points, keys, labels, old).astype(np.float16).astype(np.float32)


class EmptyIsZero(Updated):
    """An empty cluster has a centroid of zeros."""

    requirement = "MEM-035"
    killed_by = case("build-clusters/same-initial-row")

    @staticmethod
    def update(points: Array, keys: Array, labels: Array, old: Array) -> Array:
        made = clusters.mean_direction(points, keys, labels, old)
        count = clusters.one_hot(labels, old.shape[1], points).sum(axis=-1, keepdims=True)
        return np.where(count > 0, made, 0.0).astype(points.dtype)


class EmptyTakesTheFirstRow(Updated):
    """An empty cluster begins anew at the first row."""

    requirement = "MEM-035"
    killed_by = case("build-clusters/same-initial-row-two")

    @staticmethod
    def update(points: Array, keys: Array, labels: Array, old: Array) -> Array:
        made = clusters.mean_direction(points, keys, labels, old)
        count = clusters.one_hot(labels, old.shape[1], points).sum(axis=-1, keepdims=True)
        return np.where(count > 0, made, points[:, :1])


class CancelledIsZero(Updated):
    """A cluster whose directions cancel has a centroid of zeros."""

    requirement = "MEM-035"
    killed_by = case("build-clusters/no-mean-direction")

    @staticmethod
    def update(points: Array, keys: Array, labels: Array, old: Array) -> Array:
        made = clusters.mean_direction(points, keys, labels, old)
        members = clusters.one_hot(labels, old.shape[1], points)
        length = np.linalg.norm(members @ points, axis=-1, keepdims=True)
        held = members.sum(axis=-1, keepdims=True) > 0
        return np.where(held & (length == 0), 0.0, made).astype(points.dtype)


class AssignedOnceMore(Fault):
    """Labels are assigned again by the last centroids, as in the published code."""

    requirement = "MEM-036"
    killed_by = case("build-clusters/one-round-late", "build-clusters/random-keys")

    def mem_cluster_build(self, request: Request) -> Clustered:
        made = super().mem_cluster_build(request)
        points, _ = clusters.directions(request["k"].transpose(1, 0, 2).astype(made.centroids.dtype))
        return made._replace(labels=clusters.nearest(points, made.centroids))


class AllRounds(Fault):
    """Every round is run and counted."""

    requirement = "MEM-036"
    killed_by = case("build-clusters/settles-early", "build-clusters/pool")

    def mem_cluster_build(self, request: Request) -> Clustered:
        made = super().mem_cluster_build(request)
        return made._replace(rounds=[request["iterations"]] * len(made.rounds))


class CapIgnored(Fault):
    """Rounds go on until nothing changes, whatever the cap."""

    requirement = "MEM-036"
    killed_by = case("build-clusters/one-round-late", "build-clusters/random-keys", "build-clusters/no-rounds")

    def mem_cluster_build(self, request: Request) -> Clustered:
        return super().mem_cluster_build({**request, "iterations": 500})


class OneRoundMore(Fault):
    """The cap is exceeded by one round."""

    requirement = "MEM-036"
    killed_by = case("build-clusters/one-round-late", "build-clusters/random-keys", "build-clusters/no-rounds")

    def mem_cluster_build(self, request: Request) -> Clustered:
        return super().mem_cluster_build({**request, "iterations": request["iterations"] + 1})


class InitialRowsWrapped(Fault):
    """An initial row beyond the span is taken modulo its length."""

    requirement = "MEM-037"
    killed_by = case("build-clusters/initial-row-beyond")

    def mem_cluster_build(self, request: Request) -> Clustered:
        rows = request["k"].shape[0]
        return super().mem_cluster_build({**request, "initial": [row % rows for row in request["initial"]]})


# --- lists ---------------------------------------------------------------------------------------------------------


class MembersDescend(Fault):
    """Members are listed from the last row to the first."""

    requirement = "MEM-038"
    killed_by = case("build-clusters/pool", "build-clusters/two-heads")

    def mem_cluster_index(self, found: Clustered, first: int) -> Index:
        made = super().mem_cluster_index(found, first)
        count = found.labels.shape[1]
        back = clusters.index_of(found._replace(labels=found.labels[:, ::-1]), 0).members
        return replace(made, members=count - 1 - back + first)


class MembersFromZero(Fault):
    """Members are counted from the span's first row."""

    requirement = "MEM-038"
    killed_by = case("build-clusters/pool", "build-clusters/three-heads", "build-clusters/one-row")

    def mem_cluster_index(self, found: Clustered, first: int) -> Index:
        return super().mem_cluster_index(found, 0)


class SumsBefore(Fault):
    """Running sums leave the cluster itself out."""

    requirement = "MEM-038"
    killed_by = case("build-clusters/pool", "build-clusters/every-row-a-cluster")

    def mem_cluster_index(self, found: Clustered, first: int) -> Index:
        made = super().mem_cluster_index(found, first)
        return replace(made, prefix_sums=made.prefix_sums - made.sizes)


class ListsAsTheyCome(Fault):
    """Sums are derived from the sizes, and members are made to fit."""

    requirement = "MEM-038"
    killed_by = case(
        "select/refused-sums-of-other-sizes",
        "select/refused-exclusive-sums",
        "select/refused-member-missing",
        "select/refused-member-twice",
        "select/refused-members-out-of-order",
        "append/refused-index-spoilt",
    )

    def mem_read_index(self, data: Request) -> Index:
        sums = [[sum(line[: c + 1]) for c in range(len(line))] for line in data["sizes"]]
        members = []
        for line, sizes, ends in zip(data["members"], data["sizes"], sums, strict=False):
            rows = list(dict.fromkeys(line))
            rows += range(10_000, 10_000 + sum(sizes) - len(rows))
            ranges = zip(ends, sizes, strict=True)
            members.append([p for end, size in ranges for p in sorted(rows[end - size : end])])
        return super().mem_read_index({**data, "prefix_sums": sums, "members": members})


class FirstHeadsLists(Fault):
    """Missing lists are those of the first head."""

    requirement = "MEM-038"
    killed_by = case("select/refused-sizes-of-one-head", "select/refused-clusters-fewer-than-centroids")

    def mem_read_index(self, data: Request) -> Index:
        heads, width = data["centroids"].shape[0], len(data["sizes"][0])
        sizes = [data["sizes"][min(h, len(data["sizes"]) - 1)] for h in range(heads)]
        sums = [[sum(line[: c + 1]) for c in range(len(line))] for line in sizes]
        members = [line[: sum(size)] for line, size in zip([data["members"][0]] * heads, sizes, strict=True)]
        cut = {"centroids": data["centroids"][:, :width], "sizes": sizes, "prefix_sums": sums, "members": members}
        whole = len(data["sizes"]) == heads and width == data["centroids"].shape[1]
        return super().mem_read_index(data if whole else {**data, **cut})


# --- ranking and budget --------------------------------------------------------------------------------------------


class CosineRanking(Fault):
    """Clusters are ranked by the angle to the query."""

    requirement = "MEM-039"
    killed_by = case("select/long-centroid", "select/many-clusters")

    @staticmethod
    def mem_cluster_products(q: Array, centroids: Array) -> Array:
        facing, _ = clusters.directions(centroids)
        return clusters.products(q, facing)


class QueryNormalised(Fault):
    """The query is brought to length one."""

    requirement = "MEM-039"
    killed_by = case("select/long-query", "select/scattered")

    @staticmethod
    def mem_cluster_products(q: Array, centroids: Array) -> Array:
        asked, _ = clusters.directions(q)
        return clusters.products(asked, centroids)


class OneQueryOfTheGroup(Fault):
    """One query head of a group ranks for all."""

    requirement = "MEM-039"
    killed_by = case("select/scattered", "select/many-clusters")

    def clusterkv_select(self, request: Request) -> Result:
        heads = request["kv_head_of"]
        if request["sharing"] == "query_head" or len(heads) != request["q"].shape[0]:
            return super().clusterkv_select(request)
        q = np.where(np.asarray([heads.index(h) == i for i, h in enumerate(heads)])[:, None], request["q"], 0)
        return super().clusterkv_select({**request, "q": q.astype(request["q"].dtype)})


class ClustersInOrder(Fault):
    """Query heads read K/V heads in order, whatever the map says."""

    requirement = "MEM-039"
    killed_by = case("select/scattered", "select/query-heads")

    def clusterkv_select(self, request: Request) -> Result:
        count, kv = request["q"].shape[0], request["index"]["centroids"].shape[0]
        legal = all(head < kv for head in request["kv_head_of"])
        ordered = [h * kv // count for h in range(count)] if legal else request["kv_head_of"]
        return super().clusterkv_select({**request, "kv_head_of": ordered})


class AlwaysByGroup(Fault):
    """Groups rank together although each query head was to rank for itself."""

    requirement = "MEM-039"
    killed_by = case("select/query-heads", "select/many-by-query-head")

    def clusterkv_select(self, request: Request) -> Result:
        made = super().clusterkv_select({**request, "sharing": "kv_head"})
        if request["sharing"] == "kv_head":
            return made
        return {name: [lines[head] for head in request["kv_head_of"]] for name, lines in made.items()}


class HigherClusterFirst(Fault):
    """Of clusters of equal product the higher ranks first."""

    requirement = "MEM-039"
    killed_by = case("select/tied-clusters")

    @staticmethod
    def mem_cluster_products(q: Array, centroids: Array) -> Array:
        made = clusters.products(q, centroids)
        return made + np.arange(made.shape[1], dtype=made.dtype) * np.where(np.ptp(made) == 0, 1e-3, 0.0)


class HalfPrecisionRanking(Fault):
    """Products are taken in half precision."""

    requirement = "MEM-039"
    killed_by = case("select/scattered", "select/many-clusters")

    @staticmethod
    def mem_cluster_products(q: Array, centroids: Array) -> Array:
        return clusters.products(q, centroids.astype(np.float16).astype(np.float32))


class ChannelsCut(Fault):
    """Products are over the channels that both have."""

    requirement = "MEM-039"
    killed_by = case("select/refused-query-of-other-channels")

    def clusterkv_select(self, request: Request) -> Result:
        width = request["index"]["centroids"].shape[-1]
        missing = width - request["q"].shape[-1]
        return super().clusterkv_select({**request, "q": np.pad(request["q"], ((0, 0), (0, max(0, missing))))})


class UnknownHeadIsZero(Fault):
    """A K/V head that does not exist is the first one."""

    requirement = "MEM-039"
    killed_by = case("select/refused-head-map")

    def clusterkv_select(self, request: Request) -> Result:
        kv = request["index"]["centroids"].shape[0]
        heads = [head if head < kv else 0 for head in request["kv_head_of"]]
        return super().clusterkv_select({**request, "kv_head_of": heads})


class LastClusterDropped(Fault):
    """The cluster that crosses the budget gives nothing."""

    requirement = "MEM-040"
    killed_by = case("select/pool", "select/budget-inside-the-first", "select/many-clusters")

    @staticmethod
    def mem_cluster_quotas(sizes: Array, sums: Array, budget: int) -> Array:
        return np.where(sums <= budget, sizes, 0)


class LastClusterWhole(Fault):
    """The cluster that crosses the budget gives all of its rows."""

    requirement = "MEM-040"
    killed_by = case("select/pool", "select/scattered", "select/budget-of-one")

    @staticmethod
    def mem_cluster_quotas(sizes: Array, sums: Array, budget: int) -> Array:
        return clusters.unpadded(sizes, sums, budget)


class SmallerOnesFollow(Fault):
    """A cluster that does not fit is passed by for smaller ones."""

    requirement = "MEM-040"
    killed_by = case("select/scattered", "select/budget-inside-the-first")

    @staticmethod
    def mem_cluster_quotas(sizes: Array, sums: Array, budget: int) -> Array:
        given, left = [], budget
        for size in sizes.tolist():
            given.append(size if size <= left else 0)
            left -= given[-1]
        return np.asarray(given)


class OneRowMore(Fault):
    """The last cluster gives one row too many."""

    requirement = "MEM-040"
    killed_by = case("select/pool", "select/scattered", "select/many-clusters")

    @staticmethod
    def mem_cluster_quotas(sizes: Array, sums: Array, budget: int) -> Array:
        return clusters.quotas(sizes, sums, budget + 1 if budget else 0)


class AtLeastOneRow(Fault):
    """A budget of nothing gives a row."""

    requirement = "MEM-040"
    killed_by = case("select/no-budget")

    @staticmethod
    def mem_cluster_quotas(sizes: Array, sums: Array, budget: int) -> Array:
        return clusters.quotas(sizes, sums, max(1, budget))


class LastMembersKept(Fault):
    """Trimming keeps the last members of a cluster."""

    requirement = "MEM-040"
    killed_by = case("select/pool", "select/scattered", "select/budget-of-one")

    @staticmethod
    def mem_cluster_members(index: Index, head: int, quota: Array) -> list[int]:
        ends = index.prefix_sums[head].tolist()
        lines = [index.members[head][end - q : end].tolist() for end, q in zip(ends, quota.tolist(), strict=True)]
        return sorted(p for line in lines for p in line)


class RowsInRankOrder(Fault):
    """Rows come cluster by cluster."""

    requirement = "MEM-040"
    killed_by = case("select/scattered", "select/many-clusters")

    @staticmethod
    def mem_cluster_members(index: Index, head: int, quota: Array) -> list[int]:
        ends, sizes = index.prefix_sums[head].tolist(), index.sizes[head].tolist()
        spans = zip(ends, sizes, quota.tolist(), strict=True)
        return [int(p) for end, size, q in spans for p in index.members[head][end - size : end - size + q]]


class SinksAgainstTheBudget(Fault):
    """Sink rows count within the budget, as in the published code."""

    requirement = "MEM-040"
    killed_by = case("select/pool", "select/scattered", "select/many-clusters")

    def clusterkv_select(self, request: Request) -> Result:
        rule = request.get("rule", "clusterkv/code")
        return super().clusterkv_select({**request, "rule": rule})


class SizesUnranked(Fault):
    """Budget is filled by running sums in the order of clusters."""

    requirement = "MEM-040"
    killed_by = case("select/scattered", "select/many-clusters")

    @staticmethod
    def mem_cluster_members(index: Index, head: int, quota: Array) -> list[int]:
        budget = int(quota.sum())
        return clusters.members_within(index, head, clusters.quotas(index.sizes[head], index.prefix_sums[head], budget))


# --- plans and windows ---------------------------------------------------------------------------------------------


class Scheduled(Fault):
    """Another schedule of clusters."""


class ClustersRoundedUp(Scheduled):
    """A part of a portion makes a cluster."""

    requirement = "MEM-041"
    killed_by = case("plan/prompt-of-32k")

    @staticmethod
    def mem_cluster_plan(prompt_rows: int, decoded_rows: int, **more: Any) -> Planned:
        portion = more["rows_per_cluster"]
        made = clusters.plan(-(-prompt_rows // portion) * portion, decoded_rows, **more)
        return _with_prompt(made, prompt_rows, decoded_rows, more["window_rows"])


class SinksAlwaysCounted(Scheduled):
    """Sinks count among the prompt's rows in any case."""

    requirement = "MEM-041"
    killed_by = case("plan/without-sinks")

    @staticmethod
    def mem_cluster_plan(prompt_rows: int, decoded_rows: int, **more: Any) -> Planned:
        return clusters.plan(prompt_rows, decoded_rows, **{**more, "count_without_sink": False})


class SinksNeverCounted(Scheduled):
    """Sinks are left out of the count in any case."""

    requirement = "MEM-041"
    killed_by = case("plan/prompt-of-32000")

    @staticmethod
    def mem_cluster_plan(prompt_rows: int, decoded_rows: int, **more: Any) -> Planned:
        return clusters.plan(prompt_rows, decoded_rows, **{**more, "count_without_sink": True})


class SealedByTheNextRow(Scheduled):
    """A window is sealed when a row comes that does not fit it."""

    requirement = "MEM-042"
    killed_by = case("plan/window-sealed", "plan/eight-a-window")

    @staticmethod
    def mem_cluster_plan(prompt_rows: int, decoded_rows: int, **more: Any) -> Planned:
        made = clusters.plan(prompt_rows, max(0, decoded_rows - 1), **more)
        return replace(made, direct=(made.direct[0], prompt_rows + decoded_rows))


class FourAWindow(Scheduled):
    """Every window makes four clusters."""

    requirement = "MEM-041"
    killed_by = case("plan/other-schedule", "plan/eight-a-window")

    @staticmethod
    def mem_cluster_plan(prompt_rows: int, decoded_rows: int, **more: Any) -> Planned:
        return clusters.plan(prompt_rows, decoded_rows, **{**more, "clusters_per_window": 4})


class DecodedRowsAsPrompt(Scheduled):
    """Clusters follow the whole length, and windows add none."""

    requirement = "MEM-041"
    killed_by = case("plan/other-schedule", "plan/eight-a-window", "plan/window-open")

    @staticmethod
    def mem_cluster_plan(prompt_rows: int, decoded_rows: int, **more: Any) -> Planned:
        made = clusters.plan(prompt_rows, decoded_rows, **more)
        count = clusters.plan(prompt_rows + decoded_rows, 0, **more).clusters
        return replace(made, clusters=count)


class WindowsRoundedUp(Scheduled):
    """An open window counts as sealed."""

    requirement = "MEM-042"
    killed_by = case("plan/window-open", "plan/second-window")

    @staticmethod
    def mem_cluster_plan(prompt_rows: int, decoded_rows: int, **more: Any) -> Planned:
        window = more["window_rows"]
        made = clusters.plan(prompt_rows, -(-decoded_rows // window) * window, **more)
        return replace(made, direct=(made.direct[0], max(made.direct[0], prompt_rows + decoded_rows)))


def _with_prompt(made: Planned, prompt: int, decoded: int, window: int) -> Planned:
    return replace(made, direct=(prompt + decoded // window * window, prompt + decoded))


class AnyWindow(Fault):
    """A window of any length is clustered."""

    requirement = "MEM-042"
    killed_by = case("append/refused-window-open", "append/refused-window-too-long")

    def mem_check_window(self, index: Index, request: Request) -> None:
        super().mem_check_window(index, {**request, "window_rows": request["k"].shape[0]})


class AnyPlace(Fault):
    """A window may begin anywhere."""

    requirement = "MEM-043"
    killed_by = case("append/refused-window-leaves-a-gap", "append/refused-window-overlaps")

    def mem_check_window(self, index: Index, request: Request) -> None:
        if request["k"].shape[0] != request["window_rows"]:
            raise Rejected("WINDOW_NOT_SEALED")
        if request["k"].shape[1:] != (index.centroids.shape[0], index.centroids.shape[2]):
            raise Rejected("SHAPE_MISMATCH")


class AnyHeads(Fault):
    """Missing heads of a window are copies of the first."""

    requirement = "MEM-043"
    killed_by = case("append/refused-window-of-other-heads")

    def clusterkv_append(self, request: Request) -> Result:
        heads, k = request["index"]["centroids"].shape[0], request["k"]
        filled = np.concatenate([k, *([k[:, :1]] * (heads - k.shape[1]))], axis=1)
        return super().clusterkv_append({**request, "k": filled})


class Grown(Fault):
    """The next generation is put together otherwise."""


def _joined(index: Index, fresh: Index, **more: Any) -> Index:
    return replace(clusters.appended(index, fresh), **more)


class SumsStartAnew(Grown):
    """The sums of a window begin at zero."""

    requirement = "MEM-043"
    killed_by = case("append/pool", "append/two-heads")

    @staticmethod
    def mem_cluster_append(index: Index, fresh: Index) -> Index:
        return _joined(index, fresh, prefix_sums=np.concatenate([index.prefix_sums, fresh.prefix_sums], axis=1))


class SumsGoOnFromThePrompt(Grown):
    """The sums of a window go on from the last cluster's size."""

    requirement = "MEM-043"
    killed_by = case("append/pool", "append/two-heads")

    @staticmethod
    def mem_cluster_append(index: Index, fresh: Index) -> Index:
        later = fresh.prefix_sums + index.sizes[:, -1:]
        return _joined(index, fresh, prefix_sums=np.concatenate([index.prefix_sums, later], axis=1))


class WindowFirst(Grown):
    """New clusters are put before the old ones."""

    requirement = "MEM-043"
    killed_by = case("append/pool", "append/two-heads")

    @staticmethod
    def mem_cluster_append(index: Index, fresh: Index) -> Index:
        return replace(clusters.appended(fresh, index), generation=index.generation + 1)


class SameGeneration(Grown):
    """The generation is not counted on."""

    requirement = "MEM-043"
    killed_by = case("append/pool", "append/window-of-one-row")

    @staticmethod
    def mem_cluster_append(index: Index, fresh: Index) -> Index:
        return _joined(index, fresh, generation=index.generation)


class WindowFromZero(Grown):
    """Members of a window are counted from its first row."""

    requirement = "MEM-043"
    killed_by = case("append/pool", "append/two-heads")

    @staticmethod
    def mem_cluster_append(index: Index, fresh: Index) -> Index:
        return clusters.appended(index, replace(fresh, members=fresh.members - fresh.members.min()))


class OldCentroidsDrift(Grown):
    """Old centroids are brought to length one again."""

    requirement = "MEM-043"
    killed_by = case("append/two-heads")

    @staticmethod
    def mem_cluster_append(index: Index, fresh: Index) -> Index:
        moved, _ = clusters.directions(index.centroids)
        return clusters.appended(replace(index, centroids=moved), fresh)


class MergedIntoTheNearest(Grown):
    """Rows of a window join the nearest old cluster."""

    requirement = "MEM-043"
    killed_by = case("append/pool", "append/query-spans-both")

    @staticmethod
    def mem_cluster_append(index: Index, fresh: Index) -> Index:
        whole = clusters.appended(index, fresh)
        kept = index.sizes.shape[1]
        sizes = whole.sizes[:, :kept].copy()
        sizes[:, -1] += whole.sizes[:, kept:].sum(axis=1)
        return replace(whole, centroids=index.centroids, sizes=sizes, prefix_sums=np.cumsum(sizes, axis=1))


# --- the life of a cache -------------------------------------------------------------------------------------------

WITHOUT = tuple(
    f"session/without-{part}" for part in ("centroids", "sizes", "prefix-sums", "members", "authority", "map")
)


class SinksClustered(Fault):
    """Sink rows are clustered with the others."""

    requirement = "MEM-037"
    killed_by = case("session/prefill", "session/published")

    class Spoilt(Session):
        """The cache that is wrong."""

        def clusters(self, first: int, end: int, initial: Sequence[int]) -> Index:
            sink = self.settings.sink_rows
            if first == sink:
                return super().clusters(0, end, [row + sink for row in initial])
            return super().clusters(first, end, initial)

    mem_session_type = Spoilt


class InitialRowsClamped(Fault):
    """Initial rows that are not clustered are replaced by the nearest that is."""

    requirement = "MEM-037"
    killed_by = case("session/open-initial-sink", "session/open-initial-beyond", "session/open-window-initial-beyond")

    def clusterkv_open(self, request: Request) -> Result:
        low, high = request["sink_rows"], request["k"].shape[0] - 1
        initial = [min(max(row, low), high) for row in request["initial"]]
        window = [min(row, request["window_rows"] - 1) for row in request["window_initial"]]
        return super().clusterkv_open({**request, "initial": initial, "window_initial": window})


class FewerSinks(Fault):
    """A prompt of sinks alone gives up one of them."""

    requirement = "MEM-037"
    killed_by = case("session/open-all-sinks")

    def clusterkv_open(self, request: Request) -> Result:
        rows = request["k"].shape[0]
        sink = min(request["sink_rows"], rows - 1)
        initial = [max(row, sink) for row in request["initial"]] if sink < request["sink_rows"] else request["initial"]
        return super().clusterkv_open({**request, "sink_rows": sink, "initial": initial})


class OpenWindowUnread(Fault):
    """Decoded rows are read when they are clustered, and not before."""

    requirement = "MEM-042"
    killed_by = case("session/open-window", "session/published")

    class Spoilt(Session):
        """The cache that is wrong."""

        def direct(self) -> range:
            return range(0)

    mem_session_type = Spoilt


class SealedWindowUnread(Fault):
    """A sealed window is no longer direct although it is not published."""

    requirement = "MEM-042"
    killed_by = case("session/sealed-but-not-published", "session/two-windows")

    class Spoilt(Session):
        """The cache that is wrong."""

        def direct(self) -> range:
            return range(self.covered + self.sealed_windows * self.settings.window_rows, self.rows)

    mem_session_type = Spoilt


class NewestRowUnread(Fault):
    """The newest row becomes visible with the next one."""

    requirement = "MEM-042"
    killed_by = case("session/open-window", "session/published")

    class Spoilt(Session):
        """The cache that is wrong."""

        def direct(self) -> range:
            return range(self.covered, max(self.covered, self.rows - 1))

    mem_session_type = Spoilt


class EveryRowDirect(Fault):
    """Published windows are read directly as well."""

    requirement = "MEM-042"
    killed_by = case("session/published", "session/two-windows")

    class Spoilt(Session):
        """The cache that is wrong."""

        def publish(self, generation: int, parts: Sequence[str]) -> None:
            covered = self.covered
            super().publish(generation, parts)
            self.still = min(covered, getattr(self, "still", covered))

        def direct(self) -> range:
            return range(getattr(self, "still", self.covered), self.rows)

    mem_session_type = Spoilt


class SealedOneEarly(Fault):
    """A window is clustered when its last row is about to come."""

    requirement = "MEM-042"
    killed_by = case("session/window-not-full")

    class Spoilt(Session):
        """The cache that is wrong."""

        def stage(self) -> None:
            if self.staged is None and self.window_end == self.rows + 1:
                short = replace(self.settings, window_rows=self.settings.window_rows - 1)
                self.settings, kept = short, self.settings
                super().stage()
                self.settings = kept
                return
            super().stage()

    mem_session_type = Spoilt


class RowsOfOneHead(Fault):
    """Missing heads of decoded rows are copies of the first."""

    requirement = "MEM-042"
    killed_by = case("session/rows-of-other-heads")

    class Spoilt(Session):
        """The cache that is wrong."""

        def decode(self, k: Array, v: Array) -> None:
            heads = self.k.shape[1]
            filled = [np.repeat(x[:, :1], heads, axis=1) if x.shape[1] < heads else x for x in (k, v)]
            super().decode(*filled)

    mem_session_type = Spoilt


class NewestWindowStaged(Fault):
    """The newest sealed window is staged, and those before it are passed over."""

    requirement = "MEM-043"
    killed_by = case("session/two-windows", "session/staged-twice")

    class Spoilt(Session):
        """The cache that is wrong."""

        def stage(self) -> None:
            skipped = max(0, self.sealed_windows - 1) * self.settings.window_rows
            if self.staged is None:
                self.covered += skipped
            super().stage()

    mem_session_type = Spoilt


class AllWindowsAtOnce(Fault):
    """Every row behind the clusters is clustered with the first window."""

    requirement = "MEM-043"
    killed_by = case("session/two-windows", "session/published")

    class Spoilt(Session):
        """The cache that is wrong."""

        def clusters(self, first: int, end: int, initial: Sequence[int]) -> Index:
            return super().clusters(first, self.rows, initial)

    mem_session_type = Spoilt


class PartialAccepted(Fault):
    """A generation is published when its centroids are there."""

    requirement = "MEM-044"
    killed_by = case(*WITHOUT[1:])

    class Spoilt(Session):
        """The cache that is wrong."""

        def complete(self, parts: Sequence[str]) -> bool:
            return "centroids" in parts

    mem_session_type = Spoilt


class PartsCounted(Fault):
    """Six parts are complete, whichever they are."""

    requirement = "MEM-044"
    killed_by = case("session/part-twice")

    class Spoilt(Session):
        """The cache that is wrong."""

        def complete(self, parts: Sequence[str]) -> bool:
            return len(parts) == 6

    mem_session_type = Spoilt


class MapForgotten(Fault):
    """The cache map is no part of a publication."""

    requirement = "MEM-044"
    killed_by = case("session/without-map")

    class Spoilt(Session):
        """The cache that is wrong."""

        def complete(self, parts: Sequence[str]) -> bool:
            return super().complete([*dict.fromkeys([*parts, "map"])])

    mem_session_type = Spoilt


class AuthorityForgotten(Fault):
    """Authority is no part of a publication."""

    requirement = "MEM-044"
    killed_by = case("session/without-authority")

    class Spoilt(Session):
        """The cache that is wrong."""

        def complete(self, parts: Sequence[str]) -> bool:
            return super().complete([*dict.fromkeys([*parts, "authority"])])

    mem_session_type = Spoilt


class StagedIsRead(Fault):
    """Queries read new clusters as soon as they are built."""

    requirement = "MEM-044"
    killed_by = case("session/sealed-but-not-published", "session/authority-behind")

    class Spoilt(Session):
        """The cache that is wrong."""

        def pick(self, q: Array, budget: int) -> clusters.Selected:
            kept = self.index
            if self.staged is not None:
                self.index = self.staged
            made = super().pick(q, budget)
            self.index = kept
            return made

    mem_session_type = Spoilt


class NewListsOldCentroids(Fault):
    """New centroids are read before the lists that go with them."""

    requirement = "MEM-044"
    killed_by = case("session/sealed-but-not-published")

    class Spoilt(Session):
        """The cache that is wrong."""

        def pick(self, q: Array, budget: int) -> clusters.Selected:
            if self.staged is None:
                return super().pick(q, budget)
            kept = self.index
            fresh = self.staged.centroids[:, -kept.sizes.shape[1] :]
            self.index = replace(kept, centroids=fresh)
            made = super().pick(q, budget)
            self.index = kept
            return made

    mem_session_type = Spoilt


class RefusalForgets(Fault):
    """A publication that is refused drops what was staged."""

    requirement = "MEM-044"
    killed_by = case(*WITHOUT, "session/authority-behind", "session/publish-other-generation")

    class Spoilt(Session):
        """The cache that is wrong."""

        def publish(self, generation: int, parts: Sequence[str]) -> None:
            try:
                super().publish(generation, parts)
            finally:
                self.staged = None

    mem_session_type = Spoilt


class DiscardLeavesIt(Fault):
    """A discarded generation stays staged."""

    requirement = "MEM-044"
    killed_by = case("session/discarded")

    class Spoilt(Session):
        """The cache that is wrong."""

        def discard(self, generation: int) -> None:
            self.named(generation)

    mem_session_type = Spoilt


class StagedOver(Fault):
    """A staged generation is replaced by the next build."""

    requirement = "MEM-044"
    killed_by = case("session/staged-twice")

    class Spoilt(Session):
        """The cache that is wrong."""

        def stage(self) -> None:
            self.staged = None
            super().stage()

    mem_session_type = Spoilt


class NothingIsSomething(Fault):
    """Publishing or discarding nothing does nothing."""

    requirement = "MEM-044"
    killed_by = case("session/nothing-staged", "session/discarded", "session/publish-other-generation")

    def clusterkv_publish(self, request: Request) -> Result:
        staged = self.mem_session is not None and self.mem_session.staged is not None
        return super().clusterkv_publish(request) if staged else self.mem_status()

    def clusterkv_discard(self, request: Request) -> Result:
        staged = self.mem_session is not None and self.mem_session.staged is not None
        return super().clusterkv_discard(request) if staged else self.mem_status()


class AnyGenerationPublished(Fault):
    """Whatever is staged is published, under any number."""

    requirement = "MEM-044"
    killed_by = case("session/publish-other-generation", "session/discarded")

    class Spoilt(Session):
        """The cache that is wrong."""

        def named(self, generation: int) -> Index:
            return super().named(self.staged.generation if self.staged is not None else generation)

    mem_session_type = Spoilt


class AnyGenerationRead(Fault):
    """A query is answered whatever generation it names."""

    requirement = "MEM-003"
    killed_by = case("session/stale-query")

    class Spoilt(Session):
        """The cache that is wrong."""

        def query(self, q: Array, generation: int, budget: int) -> Any:
            return super().query(q, self.index.generation, budget)

    mem_session_type = Spoilt


class OlderIsFine(Fault):
    """A query that names an older generation is answered by the published one."""

    requirement = "MEM-045"
    killed_by = case("session/stale-query")

    class Spoilt(Session):
        """The cache that is wrong."""

        def query(self, q: Array, generation: int, budget: int) -> Any:
            return super().query(q, max(generation, self.index.generation), budget)

    mem_session_type = Spoilt


class EchoesTheGeneration(Fault):
    """An answer repeats the generation that was asked for plus what is staged."""

    requirement = "MEM-045"
    killed_by = case("session/sealed-but-not-published")

    def clusterkv_query(self, request: Request) -> Result:
        made = super().clusterkv_query(request)
        staged = self.mem_session.staged if self.mem_session else None
        return {**made, "generation": made["generation"] if staged is None else staged.generation}


class EmptyCacheAnswers(Fault):
    """A query before any prompt has an empty answer."""

    requirement = "MEM-045"
    killed_by = case("session/nothing-opened")

    def clusterkv_query(self, request: Request) -> Result:
        if self.mem_session is None:
            q = request["q"]
            empty = {"order": [], "rows": [], "support": [], "out": np.zeros_like(q), "lse": np.zeros(q.shape[:1])}
            return {"generation": request["generation"], **empty}
        return super().clusterkv_query(request)


class WindowsOfTheCaseBefore(Fault):
    """A new prompt is opened with the generation of the one before."""

    requirement = "MEM-003"
    killed_by = case("session/opened-anew")

    def clusterkv_open(self, request: Request) -> Result:
        before = self.mem_session
        super().clusterkv_open(request)
        if before is not None and self.mem_session is not None:
            self.mem_session.index = replace(self.mem_session.index, generation=before.index.generation)
        return self.mem_status()


class AuthorityAssumed(Fault):
    """Rows are published before they are offloaded."""

    requirement = "MEM-046"
    killed_by = case("session/authority-behind", "session/authority-of-other-rows")

    class Spoilt(Session):
        """The cache that is wrong."""

        def publish(self, generation: int, parts: Sequence[str]) -> None:
            kept, self.authority_end = self.authority_end, max(self.authority_end, self.rows)
            super().publish(generation, parts)
            self.authority_end = kept

    mem_session_type = Spoilt


class AuthorityOneShort(Fault):
    """The last row of a window may lack its copy."""

    requirement = "MEM-046"
    killed_by = case("session/authority-behind")

    class Spoilt(Session):
        """The cache that is wrong."""

        def publish(self, generation: int, parts: Sequence[str]) -> None:
            self.authority_end += 1
            try:
                super().publish(generation, parts)
            finally:
                self.authority_end -= 1

    mem_session_type = Spoilt


class LastReportCounts(Fault):
    """A late report of fewer rows takes validity back."""

    requirement = "MEM-046"
    killed_by = case("session/authority-does-not-fall-back")

    class Spoilt(Session):
        """The cache that is wrong."""

        def offload(self, end: int, cache_generation: int) -> None:
            super().offload(end, cache_generation)
            self.authority_end = end

    mem_session_type = Spoilt


class AnyRowsOffloaded(Fault):
    """Copies of another history count."""

    requirement = "MEM-002"
    killed_by = case("session/authority-of-other-rows")

    class Spoilt(Session):
        """The cache that is wrong."""

        def offload(self, end: int, cache_generation: int) -> None:
            super().offload(end, self.settings.cache_generation)

    mem_session_type = Spoilt


class MoreThanThereIs(Fault):
    """Rows that do not exist are reported as offloaded."""

    requirement = "MEM-004"
    killed_by = case("session/authority-beyond-commit")

    class Spoilt(Session):
        """The cache that is wrong."""

        def offload(self, end: int, cache_generation: int) -> None:
            super().offload(min(end, self.rows), cache_generation)

    mem_session_type = Spoilt


FAULTS = found(globals())
