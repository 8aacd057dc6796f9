"""Ledgers of a service: what is held, what moves beside compute, and how often a step failed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from ..memory.rows import require
from .costs import ratio

Json = Mapping[str, Any]
Spans = list[tuple[float, float]]
GPU = ("gpu_persistent_bytes", "gpu_staging_bytes", "gpu_workspace_bytes", "gpu_duplicate_bytes", "gpu_reserved_bytes")
"""What a moment holds on the GPU."""


def held_on_gpu(moment: Json) -> int:
    """GPU bytes of one moment."""
    return sum(moment[name] for name in GPU)


def capacity(said: Json) -> dict[str, Any]:
    """Peaks over moments, and ratios over the logical bytes."""
    held = [held_on_gpu(one) for one in said["moments"]]
    metadata = sum(said[name] for name in ("index_bytes", "directory_bytes", "descriptor_bytes"))
    return {
        "gpu_peak_bytes": max(held),
        "gpu_peak_moment": held.index(max(held)),
        "cpu_peak_bytes": max(one["cpu_bytes"] for one in said["moments"]),
        "secondary_peak_bytes": max(one["secondary_bytes"] for one in said["moments"]),
        "metadata_bytes": metadata,
        "r_gpu": ratio(max(held), said["logical_bytes"]),
        "r_metadata": ratio(metadata, said["logical_bytes"]),
    }


def check_times(several: Sequence[Json], waits: Sequence[Sequence[float]]) -> None:
    """Refuse times that run backwards."""
    for one in several:
        ordered = one["gathering_ms"] <= one["submitted_ms"] <= one["started_ms"] <= one["ended_ms"]
        require(ordered, "COPY_TIMES_UNORDERED", f"{dict(one)}")
    require(all(begin <= end for begin, end in waits), "COPY_TIMES_UNORDERED", "a wait ends before it begins")


def merged(several: Sequence[tuple[float, float]]) -> Spans:
    """Disjoint spans of the same union, ascending."""
    found: Spans = []
    for begin, end in sorted(several):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((begin, end))
    return found


def measure(several: Sequence[tuple[float, float]]) -> float:
    """Time in disjoint spans."""
    return sum(end - begin for begin, end in several)


def shared(some: Spans, others: Spans) -> float:
    """Time in both of two sets of disjoint spans."""
    return sum(max(0.0, min(a[1], b[1]) - max(a[0], b[0])) for a in some for b in others)


def in_flight(several: Sequence[Json]) -> list[tuple[int, float]]:
    """Bytes under way and for how long, from the first begin to the last end, by level."""
    edges = sorted({one[name] for one in several for name in ("started_ms", "ended_ms")})
    found: dict[int, float] = {}
    for begin, end in pairwise(edges):
        level = sum(one["moved_bytes"] for one in several if one["started_ms"] <= begin and end <= one["ended_ms"])
        found[level] = found.get(level, 0.0) + (end - begin)
    return sorted(found.items())


def quantile(levels: Sequence[tuple[int, float]], share: float) -> int | None:
    """The least level that is not exceeded in this share of the time."""
    whole, spent = sum(time for _, time in levels), 0.0
    for level, time in levels:
        spent += time
        if spent >= share * whole:
            return level
    return None


def by_tier(several: Sequence[Json], hits: Sequence[Json]) -> list[dict[str, Any]]:
    """Bytes of each tier, in the order of the names."""
    names = sorted({one["tier"] for one in [*several, *hits]})
    found = []
    for name in names:
        mine = [one for one in several if one["tier"] == name]
        found.append(
            {
                "tier": name,
                "requested_bytes": sum(one["requested_bytes"] * one["waiters"] for one in mine),
                "moved_bytes": sum(one["moved_bytes"] for one in mine),
                "resident_hit_bytes": sum(one["bytes"] for one in hits if one["tier"] == name),
                "coalesced_bytes": sum(one["requested_bytes"] * (one["waiters"] - 1) for one in mine),
            }
        )
    return found


def times(said: Json) -> dict[str, Any]:
    """Sums, unions, the exposed part, and the overlap over the declared denominator."""
    several = said["transfers"]
    spans = [(one["started_ms"], one["ended_ms"]) for one in several]
    busy, waits = merged(spans), merged([(begin, end) for begin, end in said["waits"]])
    dma = sum(end - begin for begin, end in spans)
    path = measure(busy) if said["critical_path"] == "busy" else dma
    exposed = shared(busy, waits)
    return {
        "gather_ms": float(sum(one["submitted_ms"] - one["gathering_ms"] for one in several)),
        "submission_ms": float(sum(one["started_ms"] - one["submitted_ms"] for one in several)),
        "dma_ms": float(dma),
        "busy_ms": float(measure(busy)),
        "exposed_ms": float(exposed),
        "critical_path_ms": float(path),
        "r_overlap": 1.0 - exposed / path if path else None,
        "bytes_per_ms": ratio(sum(one["moved_bytes"] for one in several), measure(busy)),
    }


def transfer(said: Json) -> dict[str, Any]:
    """The ledger of one token's transfers."""
    levels = in_flight(said["transfers"])
    return {
        "tiers": by_tier(said["transfers"], said["hits"]),
        **times(said),
        "in_flight_bytes": {f"p{round(100 * share)}": quantile(levels, share) for share in (0.5, 0.95, 0.99)},
    }


def check_counts(one: Json) -> None:
    """Refuse a part that is larger than its whole."""
    possible = one["stale_entries"] <= one["distinct_candidates"] <= one["candidates"]
    possible = possible and one["index_misses"] <= one["index_lookups"] and one["pool_misses"] <= one["pool_lookups"]
    require(possible, "COUNTS_IMPOSSIBLE", f"{dict(one)}")


def summed(steps: Sequence[Json], name: str) -> int:
    """A count over all steps."""
    return sum(int(one[name]) for one in steps)


def rate(steps: Sequence[Json], part: str, whole: str) -> float | None:
    """All of one count over all of another."""
    return ratio(summed(steps, part), summed(steps, whole))


def losses(steps: Sequence[Json]) -> dict[str, Any]:
    """Mean and worst omitted mass of the steps that have a dense reference."""
    known = [(one["omitted_mass"], i) for i, one in enumerate(steps) if one["omitted_mass"] is not None]
    worst = max((mass for mass, _ in known), default=None)
    return {
        "measured_steps": len(known),
        "mean_omitted_mass": ratio(sum(mass for mass, _ in known), len(known)),
        "worst_omitted_mass": worst,
        "worst_step": next((i for mass, i in known if mass == worst), None),
    }


def rates(steps: Sequence[Json]) -> dict[str, Any]:
    """Counts and rates of many steps."""
    for one in steps:
        check_counts(one)
    return {
        "steps": len(steps),
        "candidates": summed(steps, "candidates"),
        "distinct_candidates": summed(steps, "distinct_candidates"),
        "stale_rate": rate(steps, "stale_entries", "distinct_candidates"),
        "index_miss_rate": rate(steps, "index_misses", "index_lookups"),
        "pool_miss_rate": rate(steps, "pool_misses", "pool_lookups"),
        "fallback_rate": ratio(summed(steps, "fell_back"), len(steps)),
        **losses(steps),
    }
