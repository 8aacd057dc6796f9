"""SqueezedAttention on a device: the attention share of one row of each cluster."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from kvassay_reference.indexes.squeezed import Level

from . import grids, sources
from .arrays import same
from .rows import score_rows
from .runtime import Array, runtime_of

THREADS = 256


def shares(q: Array, level: Level, scale: float, kept: Sequence[int] | None = None) -> Array:
    """Estimated share [C] of one row of each cluster, averaged over the query rows [n_q, d], float32.

    A cluster of N rows enters the denominator N times; ``kept`` names the clusters of the denominator, all are without
    it. Zeros where it is empty. Centroids [C, d] have the dtype of ``q``.
    """
    runtime = runtime_of(q, level.centroids)
    same(q.ndim == 2 and level.centroids.ndim == 2, q=q, centroids=level.centroids)
    queries, clusters = int(q.shape[0]), int(level.centroids.shape[0])
    counted = np.asarray(level.sizes, dtype=np.float32)
    if kept is not None:
        among = np.zeros(clusters, dtype=bool)
        among[list(kept)] = True
        counted = np.where(among, counted, np.float32(0))
    found = runtime.empty((clusters,), np.float32)
    if not queries or not clusters:
        return found
    z = score_rows(q, level.centroids[:, None, :], [0] * queries, scale=scale)
    m, mass = (runtime.empty((queries,), np.float32) for _ in range(2))
    module = sources.clusters()
    sizes = runtime.upload(counted)
    runtime.launch(module, "cluster_mass", (queries,), THREADS, [z, sizes, m, mass, np.int32(clusters)])
    arguments = [z, m, mass, found, np.int32(queries), np.int32(clusters)]
    runtime.launch(module, "cluster_shares", (grids.chunks(clusters, THREADS),), THREADS, arguments)
    return found
