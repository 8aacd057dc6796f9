"""SqueezedAttention: clusters of a fixed context, one or two levels of centroids, exact attention over what remains.

Sources: 07H to 07H3.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from .pq import cluster
from .rows import Array, member_means, need, sizes_of


@dataclass(frozen=True)
class Level:
    """Centroids [C, d] and how many rows each stands for."""

    centroids: Array
    sizes: Sequence[int]


def label_rows(keys: Array, first: Sequence[int], iterations: int) -> list[int]:
    """Clusters by k-means on keys of unit length; a key of zeros stays as it is."""
    xp = array_namespace(keys)
    keys = xp.astype(keys, xp.float64)
    length = xp.sqrt(xp.sum(keys * keys, axis=1))[:, None]
    unit = keys / xp.where(length > 0, length, 1.0)
    return [int(label) for label in cluster(unit, first, iterations, fill=False).labels]


def fine_level(keys: Array, labels: Sequence[int], clusters: int) -> Level:
    """Mean of the raw keys of each cluster, zeros for an empty one."""
    xp = array_namespace(keys)
    keys = xp.astype(keys, xp.float64)
    means = member_means(
        keys, xp.asarray(list(labels), dtype=xp.int64), clusters, xp.zeros((clusters, keys.shape[1]), dtype=xp.float64)
    )
    return Level(means, sizes_of(labels, clusters))


def coarse_level(fine: Level, parents: Sequence[int], groups: int) -> Level:
    """Unweighted mean of the centroids that hold rows, group by group; sizes count rows."""
    xp = array_namespace(fine.centroids)
    weights = [
        [float(parent == group and size > 0) for parent, size in zip(parents, fine.sizes, strict=True)]
        for group in range(groups)
    ]
    member = xp.asarray(weights, dtype=fine.centroids.dtype)
    count = xp.sum(member, axis=1)[:, None]
    sizes = [
        sum(s for s, parent in zip(fine.sizes, parents, strict=True) if parent == group) for group in range(groups)
    ]
    return Level((member @ fine.centroids) / xp.where(count > 0, count, 1.0), sizes)


def shares(q: Array, level: Level, scale: float, kept: Sequence[int] | None = None) -> Array:
    """Estimated attention share [C] of one row of each cluster, averaged over the query rows [n_q, d].

    A cluster of N rows stands for N logits at its centroid, so it enters the denominator N times. ``kept`` names the
    clusters of the denominator; all are without it.
    """
    xp = array_namespace(q, level.centroids)
    z = scale * (q @ xp.astype(level.centroids, q.dtype).T)
    counted = [float(size) if kept is None or i in kept else 0.0 for i, size in enumerate(level.sizes)]
    sizes = xp.asarray(counted, dtype=q.dtype)
    if not any(counted):
        return xp.zeros((len(counted),), dtype=q.dtype)
    m = xp.max(xp.where(sizes[None, :] > 0, z, -xp.inf), axis=1, keepdims=True)
    weights = xp.exp(z - m)
    denominator = xp.sum(xp.where(sizes[None, :] > 0, weights * sizes[None, :], 0.0), axis=1, keepdims=True)
    return xp.mean(weights / denominator, axis=0)


def strictly_above(scores: Array, threshold: float) -> list[int]:
    """Clusters whose share is above the threshold."""
    return [i for i in range(scores.shape[0]) if float(scores[i]) > threshold]


@dataclass(frozen=True)
class Survivors:
    """What each level left."""

    coarse: list[int] | None
    fine: list[int]


def descend(
    q: Array,
    fine: Level,
    thresholds: Sequence[float],
    scale: float,
    *,
    coarse: Level | None = None,
    parents: Sequence[int] = (),
    survivors_only: bool = False,
) -> Survivors:
    """Groups above the first threshold, and of their clusters those above the last one.

    The fine denominator runs over all clusters, as it did in calibration, or with ``survivors_only`` over the clusters
    of surviving groups.
    """
    groups = None
    open_ = list(range(len(fine.sizes)))
    if coarse is not None:
        groups = strictly_above(shares(q, coarse, scale), thresholds[0])
        open_ = [i for i in open_ if parents[i] in groups]
    scores = shares(q, fine, scale, open_ if survivors_only else None)
    above = set(strictly_above(scores, thresholds[-1]))
    return Survivors(groups, [i for i in open_ if i in above])


def window_kept(queries: int, threshold: float, rule: str) -> bool:
    """Whether the rows of the observation window are selected: always, or where their share 1/n_q is above."""
    return rule == "always" or 1.0 / queries > threshold


def quantile(values: Sequence[float], share: float) -> float:
    """Quantile with linear interpolation between neighbours, in float64."""
    return float(np.quantile(np.asarray(values, np.float64), share))


def check_levels(labels: Sequence[int], fine: Level, coarse: Level | None, parents: Sequence[int]) -> None:
    """Refuse labels, sizes and parents that do not belong together."""
    clusters = len(fine.sizes)
    need(all(0 <= label < clusters for label in labels), "LABEL_OUT_OF_RANGE")
    need(sizes_of(labels, clusters) == list(fine.sizes), "CLUSTER_SIZE_MISMATCH")
    if coarse is not None:
        groups = len(coarse.sizes)
        check_parents(parents, clusters, groups)
        total = [0] * groups
        for size, parent in zip(fine.sizes, parents, strict=True):
            total[parent] += size
        need(total == list(coarse.sizes), "CLUSTER_SIZE_MISMATCH")


def check_parents(parents: Sequence[int], clusters: int, groups: int) -> None:
    """Refuse a hierarchy in which a cluster has no group."""
    covering = len(parents) == clusters and all(0 <= parent < groups for parent in parents)
    need(covering, "HIERARCHY_NOT_COVERING")


def tokens_digest(tokens: Sequence[int]) -> str:
    """SHA-256 of the token ids as a JSON array without spaces, hexadecimal."""
    return hashlib.sha256(json.dumps(list(tokens), separators=(",", ":")).encode()).hexdigest()


def admit(fixed: Any, context: Any) -> None:
    """Refuse to serve another context than the one that an index was built for."""
    for name, reason in (("model", "MODEL_MISMATCH"), ("kv_head", "WRONG_KV_HEAD"), ("rope", "ROPE_MISMATCH")):
        need(fixed[name] == context[name], reason)
    same = fixed["tokens_sha256"] == tokens_digest(context["tokens"])
    need(same and fixed["first_position"] == context["first_position"], "FIXED_CONTEXT_CHANGED")
    need(fixed["index_generation"] == context["index_generation"], "STALE_INDEX_GENERATION")
