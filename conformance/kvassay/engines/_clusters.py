"""How adapters of k-means libraries write clusters as the ops on clusters ask for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..adapters.base import Unsupported
from ..core.tensors import Array

Request = Mapping[str, Any]


def unit_rows(keys: Array) -> Array:
    """Keys [n, d] at length 1; a row of zeros stays as it is."""
    size = np.linalg.norm(keys, axis=1, keepdims=True)
    return np.ascontiguousarray(keys / np.where(size > 0, size, 1), dtype=np.float32)


def member_lists(labels: Sequence[int], clusters: int, first: int) -> dict[str, list[int]]:
    """Sizes, their running sums, and positions cluster by cluster, of one head."""
    sizes = np.bincount(np.asarray(labels, dtype=np.int64), minlength=clusters)
    order = np.argsort(np.asarray(labels), kind="stable")
    return {
        "labels": [int(one) for one in labels],
        "sizes": [int(one) for one in sizes],
        "prefix_sums": [int(one) for one in np.cumsum(sizes)],
        "members": [int(first + one) for one in order],
    }


def means_of_raw_keys(request: Request, labels: Array) -> dict[str, Any]:
    """What squeezed.build returns, from the labels that a library gave."""
    if "parents" in request:
        raise Unsupported("one level of clusters")
    keys, count = np.asarray(request["keys"], np.float32), request["clusters"]
    sizes = np.bincount(labels, minlength=count)
    sums = np.zeros((count, keys.shape[1]), np.float32)
    np.add.at(sums, labels, keys)
    means = sums / np.maximum(sizes, 1)[:, None].astype(np.float32)
    return {
        "labels": [int(one) for one in labels],
        "fine": {"centroids": means, "sizes": [int(one) for one in sizes]},
    }
