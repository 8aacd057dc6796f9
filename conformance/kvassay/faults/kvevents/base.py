"""What the faults of the contract kvevents share."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

Block = Hashable
Event = Mapping[str, Any]


def case(*names: str) -> tuple[str, ...]:
    """Ids of this contract's cases."""
    return tuple(f"kvevents/{name}" for name in names)
