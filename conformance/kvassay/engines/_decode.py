"""How a decode row of the suite maps to attention calls that know batches, heads and masks, but no positions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..adapters.base import Unsupported

Request = Mapping[str, Any]

EMPTY_IS_ZERO: Mapping[str, str] = {"attention.empty_output": "zero"}
"""These calls have no error for a row that sees nothing: they return output 0, or should."""


def positions(request: Request) -> NDArray[np.int64]:
    """The position of each K/V row, [T]."""
    if "pages" in request:
        raise Unsupported("the call takes no block table")
    if "k_positions" in request:
        return np.asarray(request["k_positions"], dtype=np.int64)
    first: int = request["k_first_position"]
    return first + np.arange(request["k"].shape[0], dtype=np.int64)


def legal_rows(request: Request) -> NDArray[np.bool_] | None:
    """Which rows the mask leaves, [T]; ``None`` when it leaves all, as a decode step passes no mask then."""
    row, query, mask = positions(request), request["q_position"], request["mask"]
    legal = np.ones(row.shape, dtype=np.bool_)
    if mask["causal"]:
        legal &= row <= query
    if "window" in mask:
        legal &= row > query - mask["window"]
    return None if legal.all() else legal


def gathered_heads(request: Request) -> list[int] | None:
    """The K/V head of each query head where it is not the usual grouping of neighbours; ``None`` where it is.

    The calls have no head map. The usual grouping needs none; any other is expressed by gathering K/V heads before the
    call; one that names no existing head cannot be expressed.
    """
    wanted = list(request["kv_head_of"])
    query_heads, heads = request["q"].shape[0], request["k"].shape[1]
    if len(wanted) != query_heads or not all(0 <= head < heads for head in wanted):
        raise Unsupported("the call has no head map, and this one names heads that do not exist")
    if query_heads % heads == 0 and wanted == [row // (query_heads // heads) for row in range(query_heads)]:
        return None
    return wanted
