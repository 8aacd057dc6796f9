"""A recorder to put around one of vLLM's offloading managers. It imports neither vLLM nor anything else.

The log is JSON Lines. Its first line says who was recorded and how many chunks there are; each further line is one call
of the manager with its outcome, or one of the events that ``take_events`` gave.

    manager = Recorder(manager, chunks=1000, version="0.33.0", write=log.write)
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

FORMAT = "vllm-offloading-manager-v1"


class Recorder:
    """A manager whose calls are written down. Everything else is the manager's own."""

    def __init__(self, manager: Any, *, chunks: int, version: str, write: Callable[[str], object]) -> None:
        self._manager = manager
        self._write = write
        self._record({"recorder": FORMAT, "version": version, "chunks": chunks})

    def __getattr__(self, name: str) -> Any:
        return getattr(self._manager, name)

    def _record(self, value: Mapping[str, Any]) -> None:
        self._write(json.dumps(value, separators=(",", ":")) + "\n")

    def lookup(self, key: bytes, context: Any) -> Any:
        """Ask for one block."""
        found = self._manager.lookup(key, context)
        self._record({"call": "lookup", "keys": [key.hex()], "result": found.name})
        return found

    def prepare_store(self, keys: Collection[bytes], context: Any) -> Any:
        """Reserve chunks."""
        found = self._manager.prepare_store(keys, context)
        told: dict[str, Any] = {"call": "prepare_store", "keys": [key.hex() for key in keys]}
        if found is not None:
            told["stored"] = [key.hex() for key in found.keys_to_store]
            told["chunks"] = [int(chunk) for chunk in getattr(found.store_spec, "block_ids", ())]
            told["evicted"] = [key.hex() for key in found.evicted_keys]
        self._record({**told, "result": "none" if found is None else "granted"})
        return found

    def complete_store(self, keys: Collection[bytes], context: Any, success: bool = True) -> Any:
        """The copies are over."""
        found = self._manager.complete_store(keys, context, success)
        self._record({"call": "complete_store", "keys": [key.hex() for key in keys], "success": success})
        return found

    def prepare_load(self, keys: Collection[bytes], context: Any) -> Any:
        """Protect chunks from eviction."""
        found = self._manager.prepare_load(keys, context)
        chunks = [int(chunk) for chunk in getattr(found, "block_ids", ())]
        self._record({"call": "prepare_load", "keys": [key.hex() for key in keys], "chunks": chunks})
        return found

    def complete_load(self, keys: Collection[bytes], context: Any) -> Any:
        """The chunks were read."""
        found = self._manager.complete_load(keys, context)
        self._record({"call": "complete_load", "keys": [key.hex() for key in keys]})
        return found

    def reset_cache(self) -> Any:
        """Forget everything."""
        found = self._manager.reset_cache()
        self._record({"call": "reset_cache"})
        return found

    def take_events(self) -> Iterator[Any]:
        """The manager's own events."""
        for event in self._manager.take_events():
            told = {
                "keys": [key.hex() for key in event.keys],
                "medium": getattr(event.medium, "name", str(event.medium)),
                "removed": event.removed,
                "ownership": event.ownership,
                "metadata_only": event.metadata_only,
            }
            self._record({"event": told})
            yield event
