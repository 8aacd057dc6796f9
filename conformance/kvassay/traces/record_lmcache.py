"""A listener for LMCache's L1 manager that writes down what it hears. It imports neither LMCache nor anything else.

The log is JSON Lines. Its first line says who was recorded, with the time limits of its locks; each further line is one
notification. The manager asks of a listener the methods alone.

    manager.register_listener(Listener(version="0.5.6", write_ttl_ms=600_000, read_ttl_ms=300_000, write=log.write))
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from typing import Any

FORMAT = "lmcache-l1-listener-v1"


class Listener:
    """What LMCache's L1 manager notifies."""

    def __init__(self, *, version: str, write_ttl_ms: int, read_ttl_ms: int, write: Callable[[str], object]) -> None:
        self._write = write
        self._began = time.monotonic()
        limits = {"write_ttl_ms": write_ttl_ms, "read_ttl_ms": read_ttl_ms}
        self._write(json.dumps({"recorder": FORMAT, "version": version, **limits}) + "\n")

    def _record(self, name: str, keys: Sequence[Any]) -> None:
        if keys:
            time_ms = round((time.monotonic() - self._began) * 1e3, 3)
            self._write(json.dumps({"event": name, "keys": [spelt(key) for key in keys], "time_ms": time_ms}) + "\n")

    def on_l1_keys_reserved_read(self, keys: Sequence[Any]) -> None:
        """Keys are locked for a reader."""
        self._record("reserved_read", keys)

    def on_l1_keys_read_finished(self, keys: Sequence[Any]) -> None:
        """A reader is done."""
        self._record("read_finished", keys)

    def on_l1_keys_reserved_write(self, keys: Sequence[Any]) -> None:
        """Memory was given to a writer."""
        self._record("reserved_write", keys)

    def on_l1_keys_write_finished(self, keys: Sequence[Any]) -> None:
        """A writer is done."""
        self._record("write_finished", keys)

    def on_l1_keys_finish_write_and_reserve_read(self, keys: Sequence[Any]) -> None:
        """A prefetch is done, and its reader begins."""
        self._record("write_finished_and_reserved_read", keys)

    def on_l1_keys_deleted_by_manager(self, keys: Sequence[Any]) -> None:
        """Keys are gone."""
        self._record("deleted", keys)

    def on_l1_keys_accessed(self, keys: Sequence[Any]) -> None:
        """Keys were used; their order of eviction changes and nothing else."""


def spelt(key: Any) -> str:
    """An object key as text: every field, so that two keys are never one."""
    if isinstance(key, str):
        return key
    fields = [key.chunk_hash.hex(), key.model_name, f"{key.kv_rank:x}", str(key.object_group_id), key.cache_salt]
    return "@".join(fields)
