"""What adapters of real engines say in every reply."""

from __future__ import annotations

from typing import Any


def told(calls: int, **members: Any) -> dict[str, Any]:
    """A reply, with the number of calls that reached the engine; without any it shows nothing."""
    return {**members, "engine_calls": calls}
