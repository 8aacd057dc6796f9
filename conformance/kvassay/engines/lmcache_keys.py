"""LMCache's keys: the object keys of its server, and the engine keys of LMCache inside an inference engine.

Both adapters keep rows as files in a directory that several engines share, as a deployment on a shared file system
does. The way from a request of vLLM to LMCache's arguments is LMCache's own (``lmcache.integration.vllm``); the parts
of it that need no vLLM are called here.

- :class:`Adapter`: the multiprocess server. ``TokenHasher``, ``ipc_key_to_object_keys`` and the ``fs`` L2 adapter.
- :class:`EngineKeys`: LMCache within the engine. ``ChunkedTokenDatabase``, ``CacheEngineKey`` and the ``fs`` connector.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from typing import Any, ClassVar, TypeVar

os.environ.setdefault("LMCACHE_TRACK_USAGE", "false")
os.environ.setdefault("LMCACHE_LOG_LEVEL", "ERROR")

import numpy as np
import torch
from lmcache.integration.vllm.utils import apply_mm_hashes_to_token_ids
from lmcache.utils import CacheEngineKey
from lmcache.v1.config import LMCacheEngineConfig
from lmcache.v1.distributed.api import MemoryLayoutDesc, ObjectKey, ipc_key_to_object_keys
from lmcache.v1.distributed.l2_adapters.fs_l2_adapter import FSL2Adapter, FSL2AdapterConfig, _object_key_to_filename
from lmcache.v1.memory_management import MemoryFormat, MemoryObj, MemoryObjMetadata, TensorMemoryObj
from lmcache.v1.metadata import LMCacheMetadata
from lmcache.v1.multiprocess.custom_types import IPCCacheServerKey
from lmcache.v1.multiprocess.token_hasher import TokenHasher
from lmcache.v1.storage_backend.connector.fs_connector import FSConnector
from lmcache.v1.storage_backend.local_cpu_backend import LocalCPUBackend
from lmcache.v1.token_database import ChunkedTokenDatabase

from ..adapters.base import EngineAdapter, EngineInfo, Rejected, Unsupported
from ..core.tensors import Array
from .dispositions import dispositions

ADAPTERS = {"lmcache-server": "Adapter", "lmcache-engine": "EngineKeys"}
"""Names of the adapters here, and their classes; read without an import."""

Record = Mapping[str, Any]
T = TypeVar("T")

CHUNK = 4
"""Tokens a chunk; 256 by default, and the keys do not depend on it."""
NAME_MAX = 255
"""Longest file name of common file systems."""
HOMEPAGE = "https://github.com/LMCache/LMCache"
MISS = {"outcome": "miss", "rows": 0}
REFUSED = {"outcome": "refused", "rows": 0}
DTYPES = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float8_e4m3": torch.float8_e4m3fn,
    "float8_e5m2": torch.float8_e5m2,
    "int8": torch.int8,
}


class _Directory(EngineAdapter):
    """A directory of one's own per case."""

    def open(self) -> None:
        """An empty directory."""
        self.teardown()
        self._width = 1
        self._root = tempfile.mkdtemp(prefix="kvassay-lmcache-")

    def teardown(self) -> None:
        """Remove the directory."""
        shutil.rmtree(getattr(self, "_root", ""), ignore_errors=True)


class _Span:
    """A placeholder range as vLLM's ``PlaceholderRange`` has it."""

    def __init__(self, offset: int, length: int) -> None:
        self.offset = offset
        self.length = length


def _tokens(record: Record) -> list[int]:
    """The token ids that LMCache's vLLM integration hashes.

    Prompt embeddings have no token ids: ``Request.all_token_ids`` of vLLM, which the integration reads, holds zeros
    then. Multimodal placeholders are overwritten by values derived from the content's digest.
    """
    tokens = [0] * len(record["tokens"]) if "prompt_embeds_sha256" in record else list(record["tokens"])
    items = record.get("multimodal", ())
    if not items:
        return tokens
    ids = torch.tensor(tokens)
    apply_mm_hashes_to_token_ids(
        ids, [item["sha256"] for item in items], [_Span(item["position"], item["length"]) for item in items]
    )
    return list(ids.tolist())


def _memory(size: int) -> TensorMemoryObj:
    shape = torch.Size([1, 1, 1, size])
    meta = MemoryObjMetadata(
        shape, torch.uint8, 0, size, 1, fmt=MemoryFormat.KV_2LTD, shapes=[shape], dtypes=[torch.uint8]
    )
    return TensorMemoryObj(torch.zeros(size, dtype=torch.uint8), meta, None)


def _wait(ask: Callable[[], T | None]) -> T:
    """Ask until there is an answer; the judge's deadline ends a wait that is too long."""
    while (answer := ask()) is None:
        time.sleep(0.0005)
    return answer


class Adapter(_Directory):
    """LMCache's server: object keys over its file-system L2 adapter."""

    engine = EngineInfo(
        name="LMCache server",
        version=version("lmcache"),
        homepage=HOMEPAGE,
        notes="TokenHasher (blake3), ipc_key_to_object_keys and FSL2Adapter in component mode over a shared directory.",
    )
    capabilities: ClassVar[Mapping[str, Any]] = dispositions(
        key="model checkpoint_generation rope_config dtype shard_rank shard_count adapter_name adapter_id "
        "adapter_version cache_salt tokens prompt_embeds_sha256 multimodal",
        constant="cache_abi visibility_policy position_contract codec layout layer kv_head first_position",
        absent="tenant namespace_generation cache_generation publication_generation",
    )

    def setup(self) -> None:
        """The server's hasher."""
        self._hasher = TokenHasher(chunk_size=CHUNK)

    def open(self) -> None:
        """An empty directory under a fresh L2 adapter."""
        super().open()
        self._store = FSL2Adapter(FSL2AdapterConfig(base_path=self._root))

    def teardown(self) -> None:
        """Stop the L2 adapter's thread and remove its files."""
        if hasattr(self, "_store"):
            self._store.close()
            del self._store
        super().teardown()

    def identity_key(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """The file name of the last chunk."""
        try:
            keys = self._keys(request["record"])
        except Rejected as refusal:
            raise Unsupported(refusal.detail) from refusal
        if not keys:
            raise Unsupported(f"no whole chunk of {CHUNK} tokens, so LMCache makes no key")
        return {"key": _object_key_to_filename(keys[-1])}

    def identity_put(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Store the whole chunks."""
        keys, data = self._keys(request["record"]), request["data"]
        self._width = data.shape[1]
        objects = [_memory(CHUNK * self._width) for _ in keys]
        for chunk, memory in enumerate(objects):
            memory.raw_data[:] = torch.from_numpy(np.array(data[chunk * CHUNK : (chunk + 1) * CHUNK]).reshape(-1))
        task = self._store.submit_store_task(keys, objects)
        stored = _wait(lambda: self._store.pop_completed_store_tasks().get(task))
        if stored < 0 and len(_object_key_to_filename(keys[0]).encode()) > NAME_MAX:
            raise Unsupported("LMCache's file name is longer than the file system allows")
        return {"outcome": "stored", "rows": len(keys) * CHUNK} if keys and stored >= 0 else dict(REFUSED)

    def identity_get(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Look up the prefix of chunks, and load it."""
        keys = self._keys(request["record"])
        layout = MemoryLayoutDesc(shapes=[torch.Size([CHUNK * self._width])], dtypes=[torch.uint8])
        lookup = self._store.submit_lookup_and_lock_task(keys, {0: layout})
        found = _wait(lambda: self._store.query_lookup_and_lock_result(lookup))
        keys = list(itertools.takewhile(lambda key: found.test(keys.index(key)), keys))
        if not keys:
            return dict(MISS)
        objects = [_memory(CHUNK * self._width) for _ in keys]
        load = self._store.submit_load_task(keys, objects)
        loaded = _wait(lambda: self._store.query_load_result(load))
        if not all(loaded.test(chunk) for chunk in range(len(keys))):
            raise Rejected(None, "the load failed")
        return _hit([memory.raw_data.numpy() for memory in objects], self._width)

    def _keys(self, record: Record) -> list[ObjectKey]:
        tokens = _tokens(record)
        try:
            ipc_key = IPCCacheServerKey(
                model_name=record["model"],
                world_size=record["shard_count"],
                worker_id=record["shard_rank"],
                token_ids=tuple(tokens),
                start=0,
                end=len(tokens),
                request_id="0",
                cache_salt=record.get("cache_salt", ""),
            )
            (keys,) = ipc_key_to_object_keys(ipc_key, self._hasher.compute_chunk_hashes(tokens), [0])
        except ValueError as refusal:
            raise Rejected(None, str(refusal)) from refusal
        return list(keys)


def _hit(chunks: Sequence[Array], width: int) -> Mapping[str, Any]:
    data = np.concatenate(chunks).reshape(-1, width)
    return {"outcome": "hit", "rows": len(data), "data": data}


class EngineKeys(_Directory):
    """LMCache within the engine: cache engine keys over its file-system connector."""

    engine = EngineInfo(
        name="LMCache in the engine",
        version=version("lmcache"),
        homepage=HOMEPAGE,
        notes="ChunkedTokenDatabase (default hash), CacheEngineKey and FSConnector in component mode over a shared "
        "directory.",
    )
    capabilities: ClassVar[Mapping[str, Any]] = dispositions(
        key="model checkpoint_generation rope_config dtype shard_rank shard_count adapter_name adapter_id "
        "adapter_version cache_salt tokens multimodal",
        constant="cache_abi visibility_policy position_contract codec layout layer kv_head first_position",
        absent="tenant namespace_generation cache_generation publication_generation prompt_embeds_sha256",
    )

    def setup(self) -> None:
        """One event loop for the connectors."""
        self._loop = asyncio.new_event_loop()

    def open(self) -> None:
        """An empty directory and no process."""
        super().open()
        self._processes: dict[tuple[str, str, int, int], tuple[FSConnector, ChunkedTokenDatabase]] = {}

    def identity_key(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """The file name of the last chunk; LMCache keeps a last chunk that is not full too."""
        connector, keys = self._process(request["record"])
        return {"key": connector._get_file_name(keys[-1][2])}

    def identity_put(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Store every chunk, the unfull one too."""
        data = request["data"]
        self._width = data.shape[1]
        connector, keys = self._process(request["record"])
        for start, end, key in keys:
            memory = _memory((end - start) * self._width)
            memory.raw_data[:] = torch.from_numpy(np.array(data[start:end]).reshape(-1))
            try:
                self._loop.run_until_complete(connector.put(key, memory))
            except OSError as error:
                if error.errno == errno.ENAMETOOLONG:
                    raise Unsupported("LMCache's file name is longer than the file system allows") from error
                raise
        return {"outcome": "stored", "rows": keys[-1][1]}

    def identity_get(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Read the prefix of chunks that exist."""
        connector, keys = self._process(request["record"])
        chunks: list[Array] = []
        for _, _, key in keys:
            memory: MemoryObj | None = self._loop.run_until_complete(connector.get(key))
            if memory is None:
                break
            chunks.append(np.frombuffer(memory.byte_array, dtype=np.uint8).copy())
            memory.ref_count_down()
        return _hit(chunks, self._width) if chunks else dict(MISS)

    def _process(self, record: Record) -> tuple[FSConnector, list[tuple[int, int, CacheEngineKey]]]:
        """The connector of the record's process, and the keys of its request."""
        if "prompt_embeds_sha256" in record:
            raise Rejected(None, "LMCache's integration takes the length of the prompt's token ids, and there are none")
        process = (record["model"], record["dtype"], record["shard_rank"], record["shard_count"])
        if process not in self._processes:
            self._processes[process] = self._start(*process)
        connector, database = self._processes[process]
        return connector, list(database.process_tokens(tokens=_tokens(record)))

    def _start(self, model: str, dtype: str, rank: int, ranks: int) -> tuple[FSConnector, ChunkedTokenDatabase]:
        """One process of the deployment: what it knows of itself, and its connector to the shared directory."""
        metadata = LMCacheMetadata(
            model_name=model,
            world_size=ranks,
            local_world_size=ranks,
            worker_id=rank,
            local_worker_id=rank,
            kv_dtype=DTYPES[dtype],
            kv_shape=(1, 2, CHUNK, 1, 8),
            chunk_size=CHUNK,
        )
        config = LMCacheEngineConfig.from_defaults(chunk_size=CHUNK, max_local_cpu_size=0.01)
        connector = FSConnector(self._loop, LocalCPUBackend(config, metadata), config, base_paths_str=self._root)
        return connector, ChunkedTokenDatabase(config, metadata)
