"""What tells the calls of one case apart: often the whole point of a case, and easily lost in long requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..core.tensors import Recipe
from .differences import differences

SHOWN = 4


def changes(requests: Sequence[Any]) -> list[dict[str, Any] | None]:
    """For each request, how it differs from the first one before it that shares a member with it.

    Each is ``{"from": index, "count": n, "members": [{"path", "before", "now"}, ...]}``; ``None`` where nothing is
    shared or nothing differs. Tensors are left out: they stand in the request itself, and differ everywhere.
    """
    return [_one(index, request, requests[:index]) for index, request in enumerate(requests)]


def _one(index: int, request: Any, earlier: Sequence[Any]) -> dict[str, Any] | None:
    for origin, other in enumerate(earlier):
        shared = _shared(request, other)
        if not shared:
            continue
        found, count = differences(
            {name: _plain(other[name]) for name in shared},
            {name: _plain(request[name]) for name in shared},
            limit=SHOWN,
        )
        if not found:
            return None
        members = [{"path": list(one.path), "before": one.expected, "now": one.returned} for one in found]
        return {"from": origin, "count": count, "members": members}
    return None


def _shared(request: Any, other: Any) -> list[str]:
    if not isinstance(request, Mapping) or not isinstance(other, Mapping):
        return []
    return [name for name in request if name in other and isinstance(request[name], Mapping | list)]


def _plain(value: Any) -> Any:
    """The value with every tensor replaced by the same mark."""
    if isinstance(value, np.ndarray | Recipe):
        return "tensor"
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
