"""SGLang's HiCache file storage as a store of residency: pages under keys in a directory, with its LRU evictor.

The backend has neither transactions nor a removal of single keys; ``clear`` is its reset. Files are damaged below it by
``control.inject``, as a disk would.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from ..adapters.base import EngineAdapter, EngineInfo, Rejected
from .sglang_keys import HOMEPAGE, storage

ADAPTERS = {"sglang-hicache-store": "Adapter", "sglang-hicache-store-cached": "MetadataCached"}
"""Names of the adapters here, and their classes; read without an import."""

Request = Mapping[str, Any]
Result = dict[str, Any]


class Adapter(EngineAdapter):
    """One server's storage, as large as the case asks for."""

    engine = EngineInfo(
        name="SGLang HiCache file storage",
        version=version("sglang"),
        homepage=HOMEPAGE,
        notes="HiCacheFile with max_size, in component mode; a key that is there is not written again.",
    )
    profiles: ClassVar[frozenset[str] | None] = frozenset({"store"})
    capabilities: ClassVar[Mapping[str, Any]] = {
        "residency.mode": "component",
        "residency.evicts": True,
        "residency.content_addressed": True,
    }
    options: ClassVar[Mapping[str, Any]] = {}

    def open(self) -> None:
        """An empty directory."""
        self.teardown()
        self._root = tempfile.mkdtemp(prefix="kvassay-sglang-")

    def teardown(self) -> None:
        """Remove the directory."""
        shutil.rmtree(getattr(self, "_root", ""), ignore_errors=True)

    def residency_open(self, request: Request) -> Result:
        """The backend, limited to the slots' bytes."""
        self._slot_bytes = request["slot_bytes"]
        limit = request["slots"] * self._slot_bytes
        self._storage = storage(self._root, extra_config={"max_size": limit, **self.options})
        return {"slots": request["slots"], "slot_bytes": self._slot_bytes, "engine_calls": 1}

    def residency_put(self, request: Request) -> Result:
        """``set`` returns True also when the key was there and stays: a peek at the file tells which."""
        key = request["key"]
        there = self._file(key).exists()
        kept = self._storage.set(key, torch.from_numpy(np.array(request["data"])))
        return {"outcome": ("resident" if there else "stored") if kept else "refused", "engine_calls": 1}

    def residency_get(self, request: Request) -> Result:
        """``get`` into a fresh page; an error of the read is the backend's refusal."""
        page = torch.empty(self._slot_bytes, dtype=torch.uint8)
        try:
            found = self._storage.get(request["key"], page)
        except OSError as error:
            raise Rejected("SHORT_REPLICA", str(error)) from None
        if found is None:
            return {"outcome": "miss", "engine_calls": 1}
        return {"outcome": "hit", "data": found.numpy(), "tier": "secondary", "engine_calls": 1}

    def residency_lookup(self, request: Request) -> Result:
        """``exists``, key by key."""
        states = ["ready" if self._storage.exists(key) else "miss" for key in request["keys"]]
        return {"states": states, "engine_calls": len(states)}

    def residency_reset(self, request: Request) -> Result:
        """``clear``."""
        self._storage.clear()
        return {"engine_calls": 1}

    def control_inject(self, request: Request) -> Result:
        """Damage the file."""
        file = self._file(request["key"])
        if not file.exists():
            return {"damaged": False}
        rows, fault = file.read_bytes(), request["fault"]
        if fault == "corrupt":
            file.write_bytes(bytes(byte ^ 1 for byte in rows[:1]) + rows[1:])
        elif fault == "truncate":
            file.write_bytes(rows[: len(rows) // 2])
        elif fault == "drop":
            file.write_bytes(b"")
        else:
            file.unlink()
        return {"damaged": True}

    def _file(self, key: str) -> Path:
        return Path(self._root) / f"{self._storage._get_suffixed_key(key)}.bin"


class MetadataCached(Adapter):
    """With the cache of names that exist, which is an option of the backend."""

    options: ClassVar[Mapping[str, Any]] = {"enable_metadata_cache": True}
