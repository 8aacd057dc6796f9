"""Time of engines that read the wall's clock and count in whole seconds."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from ..adapters.base import Unsupported


class WallClock:
    """Sleeps for an engine whose reservations expire after ``ttl_s``.

    The limit that a case asks for, of some milliseconds, stands for the engine's own, and time that passes in the case
    is stretched by as much. Limits of writes and of reads are the same here, so a case with two different ones is not
    supported.
    """

    def __init__(self, ttl_s: float, limits: Mapping[str, Any]) -> None:
        asked = {limits[name] for name in ("write_ttl_ms", "read_ttl_ms") if name in limits}
        if len(asked) > 1:
            raise Unsupported("writes and reads expire after the same time here")
        self.stretch = 1000 * ttl_s / asked.pop() if asked else 1.0
        self.now_ms = 0

    def advance(self, by_ms: int) -> dict[str, int]:
        """The result of ``control.advance_clock``: the case's own time."""
        time.sleep(by_ms / 1000 * self.stretch)
        self.now_ms += by_ms
        return {"now_ms": self.now_ms}
