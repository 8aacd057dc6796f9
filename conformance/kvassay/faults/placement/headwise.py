"""Faults of head groups and of the order of the output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from kvassay_reference import placement
from kvassay_reference.placement import Geometry, Group, Staged, Way

from ..base import Fault
from .base import Request, Result, case


class GroupsOfQueryHeads(Fault):
    """Groups follow the query heads, as in multi-head attention."""

    requirement = "PLC-007"
    killed_by = case("headwise/grouped-queries", "headwise/few-kv-heads")

    def plc_groups(self, shape: Geometry, kv_head_of: Sequence[int], size: int) -> list[Group]:
        heads = replace(shape, kv_heads=shape.query_heads)
        return super().plc_groups(heads, list(range(shape.query_heads)), size)


class LastGroupDropped(Fault):
    """The number of groups is rounded down."""

    requirement = "PLC-007"
    killed_by = case("headwise/last-group-smaller", "headwise/ten-heads-by-four", "headwise/interleaved-map")

    def plc_groups(self, shape: Geometry, kv_head_of: Sequence[int], size: int) -> list[Group]:
        return super().plc_groups(shape, kv_head_of, size)[: shape.kv_heads // size]


class LastGroupPadded(Fault):
    """The last group is staged as large as the others."""

    requirement = "PLC-007"
    killed_by = case("headwise/last-group-smaller", "headwise/ten-heads-by-four")

    def plc_groups(self, shape: Geometry, kv_head_of: Sequence[int], size: int) -> list[Group]:
        return [replace(one, bytes=shape.head_bytes(size)) for one in super().plc_groups(shape, kv_head_of, size)]


class QueriesInBlocks(Fault):
    """Query heads are taken to stand in equal blocks, whatever the map says."""

    requirement = "PLC-007"
    killed_by = case("headwise/few-kv-heads", "headwise/interleaved-map")

    def plc_groups(self, shape: Geometry, kv_head_of: Sequence[int], size: int) -> list[Group]:
        each = -(-shape.query_heads // shape.kv_heads)
        return super().plc_groups(shape, [query // each for query in range(shape.query_heads)], size)


class UnreadHeadsLeftOut(Fault):
    """K/V heads that no query head reads are not staged."""

    requirement = "PLC-007"
    killed_by = case("headwise/unread-head")

    def plc_groups(self, shape: Geometry, kv_head_of: Sequence[int], size: int) -> list[Group]:
        return [one for one in super().plc_groups(shape, kv_head_of, size) if one.query_heads]


class AnyGroupSize(Fault):
    """A group may be larger than the layer."""

    requirement = "PLC-007"
    killed_by = case("headwise/group-out-of-range")

    def plc_group_size(self, request: Request) -> int:
        size: int = request["heads_per_group"]
        return size if request["rule"] == "headinfer/paper" else super().plc_group_size(request)


class GroupsAgainstQueryHeads(Fault):
    """The limit of a group is the number of query heads."""

    requirement = "PLC-007"
    killed_by = case("headwise/group-out-of-range")

    def plc_group_size(self, request: Request) -> int:
        size: int = request["heads_per_group"]
        placement.check_group_size(request["rule"], size, request["geometry"]["query_heads"])
        return size


class Staging(Fault):
    """Other memory and totals."""

    def spoil(self, found: Result, several: Sequence[Group], request: Request) -> Result:
        """Members that differ."""
        raise NotImplementedError

    def plc_staging(self, several: Sequence[Group], shape: Geometry, request: Request) -> Result:
        found = super().plc_staging(several, shape, request)
        return {**found, **self.spoil(found, several, request)}


class StagingShrinksTraffic(Staging):
    """What is not staged at once is taken not to move at all."""

    requirement = "PLC-008"
    killed_by = case("headwise/base", "headwise/group-sizes")

    def spoil(self, found: Result, several: Sequence[Group], request: Request) -> Result:
        return {"layer_bytes": found["stage_bytes"], "total_bytes": request["layers"] * found["stage_bytes"]}


class StagingOfOneBuffer(Staging):
    """Staging is one group, although the next is fetched meanwhile."""

    requirement = "PLC-008"
    killed_by = case("headwise/base", "headwise/ten-heads-by-four")

    def spoil(self, found: Result, several: Sequence[Group], request: Request) -> Result:
        return {"staging_bytes": found["stage_bytes"]}


class AlwaysTwoBuffers(Staging):
    """Staging is two groups, however many buffers there are."""

    requirement = "PLC-008"
    killed_by = case("headwise/one-buffer", "headwise/ten-heads-by-four")

    def spoil(self, found: Result, several: Sequence[Group], request: Request) -> Result:
        return {"staging_bytes": 2 * found["stage_bytes"]}


class StageOfTheLastGroup(Staging):
    """A buffer is as large as the group that was staged last."""

    requirement = "PLC-008"
    killed_by = case("headwise/last-group-smaller", "headwise/ten-heads-by-four")

    def spoil(self, found: Result, several: Sequence[Group], request: Request) -> Result:
        return {"stage_bytes": several[-1].bytes}


class LaunchesOfOneLayer(Staging):
    """Launches and bytes of one layer are taken for all."""

    requirement = "PLC-008"
    killed_by = case("headwise/ten-heads-by-four")

    def spoil(self, found: Result, several: Sequence[Group], request: Request) -> Result:
        return {"launches": found["group_count"], "total_bytes": found["layer_bytes"]}


class TurnsOfEachLayer(Fault):
    """Buffers are chosen by the group's number in its layer, as published pseudocode has it."""

    requirement = "PLC-009"
    killed_by = case("headwise/odd-groups-over-layers", "headwise/one-group-over-layers")

    def plc_staged(self, several: Sequence[Group], request: Request) -> list[Staged]:
        return [replace(one, buffer=one.group % request["buffers"]) for one in super().plc_staged(several, request)]


class FetchIntoReadBuffer(Fault):
    """A fetch waits for the fetch before alone."""

    requirement = "PLC-009"
    killed_by = case("headwise/waits-for-buffers", "headwise/three-buffers", "headwise/single-buffer")

    def plc_staged(self, several: Sequence[Group], request: Request) -> list[Staged]:
        return super().plc_staged(several, {**request, "buffers": 1 << 20})


class TwoBuffersAlways(Fault):
    """There are two buffers, whatever the engine says."""

    requirement = "PLC-009"
    killed_by = case("headwise/three-buffers", "headwise/single-buffer")

    def plc_staged(self, several: Sequence[Group], request: Request) -> list[Staged]:
        return super().plc_staged(several, {**request, "buffers": 2})


class NoPrefetchAcrossLayers(Fault):
    """Each layer's first fetch waits until the layer before has ended."""

    requirement = "PLC-009"
    killed_by = case("headwise/one-group-over-layers")

    def plc_staged(self, several: Sequence[Group], request: Request) -> list[Staged]:
        done: list[Staged] = []
        for layer in range(request["layers"]):
            begin = done[-1].compute_end_ms if done else 0.0
            for one in super().plc_staged(several, {**request, "layers": 1}):
                times = {name: getattr(one, name) + begin for name in TIMES}
                done.append(replace(one, layer=layer, buffer=len(done) % request["buffers"], **times))
        return done


TIMES = ("fetch_start_ms", "fetch_end_ms", "compute_start_ms", "compute_end_ms")


class ComputeAtSubmission(Fault):
    """A group starts when its fetch was submitted."""

    requirement = "PLC-010"
    killed_by = case("headwise/waits-for-rows", "headwise/launch-cost")

    def plc_staged(self, several: Sequence[Group], request: Request) -> list[Staged]:
        done: list[Staged] = []
        for one in super().plc_staged(several, request):
            start = max(done[-1].compute_end_ms if done else 0.0, one.fetch_start_ms)
            end = start + one.compute_end_ms - one.compute_start_ms
            done.append(replace(one, compute_start_ms=start, compute_end_ms=end))
        return done


class LateClock(Fault):
    """The first group waits for a clock that starts at one."""

    requirement = "PLC-010"
    killed_by = case("headwise/short-fetches")

    def plc_staged(self, several: Sequence[Group], request: Request) -> list[Staged]:
        found = super().plc_staged(several, request)
        late = max(0.0, 1.0 - found[0].compute_start_ms)
        names = ("compute_start_ms", "compute_end_ms")
        return [replace(one, **{name: getattr(one, name) + late for name in names}) for one in found]


class SlowLink(Fault):
    """The rate is kept in 40 bits."""

    requirement = "PLC-010"
    killed_by = case("headwise/waits-for-rows", "headwise/launch-cost")

    def plc_way(self, way: Request) -> Way:
        made = super().plc_way(way)
        return replace(made, bytes_per_s=made.bytes_per_s * (1 + 2.0**-40))


class GroupsAtOnce(Fault):
    """Groups run as soon as their rows are there, side by side."""

    requirement = "PLC-010"
    killed_by = case("headwise/waits-for-buffers", "headwise/three-buffers")

    def plc_staged(self, several: Sequence[Group], request: Request) -> list[Staged]:
        return [
            replace(
                one,
                compute_start_ms=one.fetch_end_ms,
                compute_end_ms=one.fetch_end_ms + one.compute_end_ms - one.compute_start_ms,
            )
            for one in super().plc_staged(several, request)
        ]


class WorkOfKvHeads(Fault):
    """A group's work is that of its K/V heads."""

    requirement = "PLC-010"
    killed_by = case("headwise/unlike-groups")

    def plc_staged(self, several: Sequence[Group], request: Request) -> list[Staged]:
        return super().plc_staged([replace(one, query_heads=one.kv_heads) for one in several], request)


class LaunchOnce(Fault):
    """A launch is paid once and not for each group."""

    requirement = "PLC-010"
    killed_by = case("headwise/launch-cost", "headwise/unlike-groups")

    def plc_staged(self, several: Sequence[Group], request: Request) -> list[Staged]:
        return super().plc_staged(several, {**request, "launch_ms": request["launch_ms"] / len(several)})


class GroupOrderOutput(Fault):
    """Outputs are put together in the order in which groups finish."""

    requirement = "PLC-011"
    killed_by = case("heads/backwards", "heads/uneven-groups", "heads/any-grouping")

    def placement_heads(self, request: Request) -> Result:
        out = super().placement_heads(request)["out"]
        order = [q for group in request["groups"] for q, head in enumerate(request["kv_head_of"]) if head in group]
        return {"out": out[order]}


class HeadByTurn(Fault):
    """Within a group the K/V head is found by the query's turn and not by the map."""

    requirement = "PLC-011"
    killed_by = case("heads/all-at-once", "heads/scrambled-group", "heads/half-precision")

    def plc_group_output(self, request: Request, heads: Sequence[int], queries: Sequence[int]) -> Any:
        turned = list(request["kv_head_of"])
        for turn, query in enumerate(queries):
            turned[query] = list(heads)[turn % len(heads)]
        return super().plc_group_output({**request, "kv_head_of": turned}, heads, queries)


class SortedGroup(Fault):
    """A group's heads are staged in ascending order and read in the order of the request."""

    requirement = "PLC-011"
    killed_by = case("heads/scrambled-group")

    def plc_group_output(self, request: Request, heads: Sequence[int], queries: Sequence[int]) -> Any:
        given, real = list(heads), sorted(heads)
        swapped = [real[given.index(head)] if head in given else head for head in request["kv_head_of"]]
        return super().plc_group_output({**request, "kv_head_of": swapped}, heads, queries)


class ContiguousOutput(Fault):
    """A group's outputs go to neighbouring places from its first query head on."""

    requirement = "PLC-011"
    killed_by = case("heads/one-by-one", "heads/backwards", "heads/uneven-groups")

    def plc_place(self, out: Any, part: Any, queries: Sequence[int]) -> None:
        room = out[queries[0] : queries[0] + len(queries)]
        room[:] = part[: len(room)]


class AnyGroups(Fault):
    """Groups are taken as they come; a head that is left out stays zero."""

    requirement = "PLC-011"
    killed_by = case("heads/groups-are-no-partition")

    def plc_check_groups(self, groups: Sequence[Sequence[int]], kv_heads: int) -> None:
        return


class GroupsByCount(Fault):
    """As many heads as there are make the groups valid."""

    requirement = "PLC-011"
    killed_by = case("heads/groups-are-no-partition")

    def plc_check_groups(self, groups: Sequence[Sequence[int]], kv_heads: int) -> None:
        if len({head for group in groups for head in group}) < kv_heads:
            super().plc_check_groups(groups, kv_heads)


class ZerosOverNothing(Fault):
    """Over no rows the output is zero."""

    requirement = "PLC-011"
    killed_by = case("heads/no-rows")

    def placement_heads(self, request: Request) -> Result:
        if request["k"].shape[0]:
            return super().placement_heads(request)
        return {"out": np.zeros((request["q"].shape[0], request["v"].shape[2]), np.float32)}


class MapUnchecked(Fault):
    """Query heads whose K/V head is not there are left out, and missing ones are not missed."""

    requirement = "PLC-007"
    killed_by = case("headwise/map-of-other-heads")

    def placement_headwise(self, request: Request) -> Result:
        shape = request["geometry"]
        mapped = [min(head, shape["kv_heads"] - 1) for head in request["kv_head_of"]]
        return super().placement_headwise(
            {**request, "kv_head_of": mapped, "geometry": {**shape, "query_heads": len(mapped)}}
        )


class BlockLost(Fault):
    """The last row of each group's history is not read: a loop over whole tiles."""

    requirement = "PLC-011"
    killed_by = case("heads/one-by-one", "heads/real-shape", "heads/half-precision")

    def plc_group_output(self, request: Request, heads: Sequence[int], queries: Sequence[int]) -> Any:
        rows = max(1, request["k"].shape[0] - 1)
        return super().plc_group_output({**request, "k": request["k"][:rows], "v": request["v"][:rows]}, heads, queries)


class SlightlyOffHeads(Fault):
    """Outputs are kept in 17 bits."""

    requirement = "PLC-011"
    killed_by = case("heads/one-by-one", "heads/real-shape")

    def plc_group_output(self, request: Request, heads: Sequence[int], queries: Sequence[int]) -> Any:
        return super().plc_group_output(request, heads, queries) * np.float32(1 + 2.0**-15)


class AdaptiveCode(Fault):
    """The published code is taken to have the paper's groups."""

    requirement = "PLC-012"
    killed_by = case("headwise/code-one-head", "headwise/code-fewer-kv-heads")

    def plc_group_size(self, request: Request) -> int:
        return super().plc_group_size({**request, "rule": "headinfer/paper"})


class SingleHeadsInThePaper(Fault):
    """The paper is taken to stage single heads, as its code does."""

    requirement = "PLC-007"
    killed_by = case("headwise/paper-groups", "headwise/whole-layer", "headwise/group-sizes")

    def plc_group_size(self, request: Request) -> int:
        super().plc_group_size(request)
        return 1


FAULTS: tuple[type[Fault], ...] = (
    GroupsOfQueryHeads,
    LastGroupDropped,
    LastGroupPadded,
    QueriesInBlocks,
    UnreadHeadsLeftOut,
    AnyGroupSize,
    GroupsAgainstQueryHeads,
    MapUnchecked,
    StagingShrinksTraffic,
    StagingOfOneBuffer,
    AlwaysTwoBuffers,
    StageOfTheLastGroup,
    LaunchesOfOneLayer,
    TurnsOfEachLayer,
    FetchIntoReadBuffer,
    TwoBuffersAlways,
    NoPrefetchAcrossLayers,
    ComputeAtSubmission,
    LateClock,
    SlowLink,
    GroupsAtOnce,
    WorkOfKvHeads,
    LaunchOnce,
    GroupOrderOutput,
    HeadByTurn,
    SortedGroup,
    ContiguousOutput,
    AnyGroups,
    GroupsByCount,
    ZerosOverNothing,
    BlockLost,
    SlightlyOffHeads,
    AdaptiveCode,
    SingleHeadsInThePaper,
)
"""In the order of the chapter."""
