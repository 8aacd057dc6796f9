"""What the faults of the contract indexes share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Request = Mapping[str, Any]
Result = dict[str, Any]


def case(*names: str) -> tuple[str, ...]:
    """Ids of this contract's cases."""
    return tuple(f"indexes/{name}" for name in names)
