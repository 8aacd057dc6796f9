"""vLLM's keys: the block hashes of its prefix cache, and the file names of its file-system offload tier.

Both adapters hand vLLM real ``Request`` objects and play the model runner: the rows of a record are copied into the
blocks that vLLM allocates and read back from the blocks that vLLM says it would reuse. No model, no GPU.

- :class:`Adapter`: one process. ``KVCacheManager`` over ``BlockPool``, block hashes by ``get_request_block_hasher``.
- :class:`NewAdapterPath`: the same, where a new version of an adapter is loaded from a new path, as vLLM advises.
- :class:`FileTier`: a directory that several processes share. ``FileSystemTierManager`` and its ``FileMapper``.
"""

from __future__ import annotations

import errno
import itertools
import mmap
import shutil
import tempfile
import time
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any, ClassVar

import numpy as np
import torch
from vllm.entrypoints.generate.base.protocol import validate_cache_salt
from vllm.exceptions import VLLMValidationError
from vllm.lora.request import LoRARequest
from vllm.multimodal.inputs import MultiModalFeatureSpec, PlaceholderRange
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.kv_offload.base import LookupResult, OffloadingSpec, OffloadKey, ReqContext, make_offload_key
from vllm.v1.kv_offload.tiering.base import ScheduleEndContext, TransferJob
from vllm.v1.kv_offload.tiering.fs.manager import FileSystemTierManager
from vllm.v1.request import Request

from ..adapters.base import EngineAdapter, EngineInfo, Rejected, Unsupported
from ..core.tensors import Array
from ._vllm_config import offloading_config
from .dispositions import dispositions

ADAPTERS = {
    "vllm-prefix-cache": "Adapter",
    "vllm-prefix-cache-new-path": "NewAdapterPath",
    "vllm-file-tier": "FileTier",
}
"""Names of the adapters here, and their classes; read without an import."""

Record = Mapping[str, Any]

BLOCK = 4
"""Tokens a block. vLLM hashes any size; its GPU kernels want multiples of 16, which no key depends on."""
BLOCKS = 4096
HASH = sha256
"""``prefix_caching_hash_algo``, vLLM's default."""
HOMEPAGE = "https://github.com/vllm-project/vllm"
MISS = {"outcome": "miss", "rows": 0}
REFUSED = {"outcome": "refused", "rows": 0}


class _Requests(EngineAdapter):
    """What both adapters share: a record as the request that a client of vLLM would send."""

    def setup(self) -> None:
        """Choose the hash as the engine core does when it starts."""
        init_none_hash(HASH)
        self._hasher = get_request_block_hasher(BLOCK, HASH)
        self._numbers = itertools.count()

    def identity_key(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """The key of the record's last whole block."""
        try:
            wanted = self._request(request["record"])
        except Rejected as refusal:
            raise Unsupported(refusal.detail) from refusal
        if not wanted.block_hashes:
            raise Unsupported(f"no whole block of {BLOCK} tokens, so vLLM makes no key")
        return {"key": self._spell(request["record"], wanted)}

    def _spell(self, record: Record, request: Request) -> str:
        return str(request.block_hashes[-1].hex())

    def _request(self, record: Record) -> Request:
        try:
            validate_cache_salt(record.get("cache_salt"))
        except VLLMValidationError as refusal:
            raise Rejected(None, str(refusal)) from refusal
        embeds = record.get("prompt_embeds_sha256")
        return Request(
            request_id=str(next(self._numbers)),
            prompt_token_ids=None if embeds else list(record["tokens"]),
            prompt_embeds=_embeddings(embeds, len(record["tokens"])) if embeds else None,
            mm_features=[
                MultiModalFeatureSpec(
                    data=None,
                    modality="image",
                    identifier=item["sha256"],
                    mm_position=PlaceholderRange(offset=item["position"], length=item["length"]),
                )
                for item in record.get("multimodal", ())
            ],
            lora_request=self._lora(record),
            cache_salt=record.get("cache_salt"),
            sampling_params=SamplingParams(max_tokens=1),
            pooling_params=None,
            block_hasher=self._hasher,
        )

    def _lora(self, record: Record) -> LoRARequest | None:
        if "adapter_name" not in record:
            return None
        return LoRARequest(
            lora_name=record["adapter_name"], lora_int_id=record.get("adapter_id", 1), lora_path=self._lora_path(record)
        )

    def _lora_path(self, record: Record) -> str:
        """Where the adapter's files lie: a directory for each adapter, a new version written over the old one."""
        return f"/adapters/{record['adapter_name']}/{record.get('adapter_id', '')}"


def _embeddings(sha256_hex: str, rows: int) -> torch.Tensor:
    """Embeddings that differ whenever their digests do."""
    return torch.frombuffer(bytearray.fromhex(sha256_hex), dtype=torch.uint8).to(torch.float32).repeat(rows, 1)


class Adapter(_Requests):
    """vLLM's prefix cache within one process: component mode, no scheduler, no model."""

    engine = EngineInfo(
        name="vLLM prefix cache",
        version=version("vllm"),
        homepage=HOMEPAGE,
        notes="KVCacheManager and BlockPool in component mode; the adapter plays the model runner. "
        "An adapter's new version is loaded in place from the same path.",
    )
    capabilities: ClassVar[Mapping[str, Any]] = dispositions(
        key="adapter_name adapter_id adapter_version cache_salt tokens prompt_embeds_sha256 multimodal",
        fenced="checkpoint_generation",
        constant="model cache_abi visibility_policy position_contract rope_config dtype codec layout layer "
        "kv_head shard_rank shard_count first_position",
        absent="tenant namespace_generation cache_generation publication_generation",
    )

    def open(self) -> None:
        """A fresh process: an empty block pool and the memory that its blocks name."""
        spec = FullAttentionSpec(block_size=BLOCK, num_kv_heads=2, head_size=16, dtype=torch.float16)
        config = KVCacheConfig(num_blocks=BLOCKS, kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(["0"], spec)])
        self._cache = KVCacheManager(config, BLOCKS * BLOCK, scheduler_block_size=BLOCK, hash_block_size=BLOCK)
        self._memory: Array = np.zeros((BLOCKS, BLOCK, 0), dtype=np.uint8)

    def identity_put(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Prefill: look up, allocate, compute what is missing into the new blocks, finish."""
        wanted, data = self._request(request["record"]), request["data"]
        if self._memory.shape[2] != data.shape[1]:
            self._memory = np.zeros((BLOCKS, BLOCK, data.shape[1]), dtype=np.uint8)
        hit, reused, _ = self._cache.get_computed_blocks(wanted)
        new = self._cache.allocate_slots(wanted, wanted.num_tokens - reused, reused, hit)
        if new is None:
            return dict(REFUSED)
        (table,) = self._cache.get_block_ids(wanted.request_id)
        for row in range(reused, wanted.num_tokens):
            self._memory[table[row // BLOCK], row % BLOCK] = data[row]
        self._cache.free(wanted)
        return {"outcome": "stored", "rows": wanted.num_tokens // BLOCK * BLOCK}

    def identity_get(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """The blocks that vLLM would reuse for a longer prompt; for this very one it computes the last token again."""
        wanted = self._request(request["record"])
        hit, reused, _ = self._cache.get_computed_blocks(wanted, max_cache_hit_length=wanted.num_tokens)
        if not reused:
            return dict(MISS)
        (table,) = hit.get_block_ids()
        return {"outcome": "hit", "rows": reused, "data": self._memory[table].reshape(reused, -1)}

    def identity_change(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """New weights: the reset that vLLM offers for it. A reloaded adapter: nothing, vLLM only warns."""
        if request["field"] == "checkpoint_generation" and not self._cache.reset_prefix_cache():
            raise Rejected(None, "reset_prefix_cache refused")
        return {}


class NewAdapterPath(Adapter):
    """vLLM's prefix cache where each version of an adapter is loaded from a path of its own."""

    engine = EngineInfo(
        name="vLLM prefix cache (new adapter path)",
        version=version("vllm"),
        homepage=HOMEPAGE,
        notes="As the prefix cache, but an adapter's new version is loaded from a new path.",
    )

    def _lora_path(self, record: Record) -> str:
        return f"{super()._lora_path(record)}/{record.get('adapter_version', '')}"


class _Spec(OffloadingSpec):  # type: ignore[misc]
    """The configuration of one process; the tier asks it for nothing else."""

    def get_manager(self) -> Any:
        raise NotImplementedError

    def get_worker(self, kv_caches: Any) -> Any:
        raise NotImplementedError


class FileTier(_Requests):
    """vLLM's file-system offload tier over one directory, which every process that mounts it shares.

    A record names its process (model, dtype, shard ...) and its request. Each put and get is another process: it opens
    the tier with its own configuration, does one job and ends.
    """

    engine = EngineInfo(
        name="vLLM file-system tier",
        version=version("vllm"),
        homepage=HOMEPAGE,
        notes="FileSystemTierManager in component mode over a shared directory; the adapter plays the primary tier.",
    )
    capabilities: ClassVar[Mapping[str, Any]] = dispositions(
        key="model checkpoint_generation rope_config dtype layout shard_rank shard_count adapter_name adapter_id "
        "adapter_version cache_salt tokens prompt_embeds_sha256 multimodal",
        constant="cache_abi visibility_policy position_contract codec layer kv_head first_position",
        absent="tenant namespace_generation cache_generation publication_generation",
    )

    def open(self) -> None:
        """An empty directory."""
        self.teardown()
        self._width = 1
        self._root = tempfile.mkdtemp(prefix="kvassay-vllm-")

    def teardown(self) -> None:
        """Remove the directory."""
        shutil.rmtree(getattr(self, "_root", ""), ignore_errors=True)

    def identity_put(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Offload the whole blocks from primary memory into files."""
        wanted, data = self._request(request["record"]), request["data"]
        keys, self._width = _keys(wanted), data.shape[1]
        if not keys:
            return dict(REFUSED)
        memory = _primary_memory(len(keys), BLOCK * self._width)
        memory[:, : BLOCK * self._width] = data[: len(keys) * BLOCK].reshape(len(keys), -1)
        tier = self._tier(request["record"], memory)
        try:
            tier.submit_store(_job(keys, promotion=False))
            tier.drain_jobs()
            stored = all(job.success for job in tier.get_finished_jobs())
        finally:
            tier.shutdown()
        return {"outcome": "stored", "rows": len(keys) * BLOCK} if stored else dict(REFUSED)

    def identity_get(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Look up the prefix of blocks, and load it."""
        wanted = self._request(request["record"])
        keys, width = _keys(wanted), self._width
        memory = _primary_memory(len(keys), BLOCK * width)
        tier = self._tier(request["record"], memory)
        try:
            present = list(itertools.takewhile(lambda key: _present(tier, key), keys))
            if present:
                tier.submit_load(_job(present, promotion=True))
                tier.drain_jobs()
                if not all(job.success for job in tier.get_finished_jobs()):
                    raise Rejected(None, "the load failed")
        finally:
            tier.shutdown()
        if not present:
            return dict(MISS)
        data = memory[: len(present), : BLOCK * width].reshape(-1, width)
        return {"outcome": "hit", "rows": len(data), "data": data}

    def _spell(self, record: Record, request: Request) -> str:
        tier = self._tier(record, _primary_memory(1, BLOCK))
        try:
            return str(tier.file_mapper.get_file_name(_keys(request)[-1])).removeprefix(self._root)
        finally:
            tier.shutdown()

    def _tier(self, record: Record, memory: Array) -> FileSystemTierManager:
        """The tier as the record's process would open it."""
        config = offloading_config(
            memory.shape[1],
            block=BLOCK,
            model=record["model"],
            dtype=record["dtype"],
            rank=record["shard_rank"],
            shards=record["shard_count"],
            enable_kv_cache_events=False,
            extra_config={},
            engine_id="0",
            kv_cache_layout=record["layout"],
        )
        try:
            return FileSystemTierManager(
                _Spec(config), memory.data, "fs", root_dir=self._root, n_read_threads=1, n_write_threads=1
            )
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                raise Unsupported("vLLM's directory name is longer than the file system allows") from error
            raise


def _primary_memory(blocks: int, block_bytes: int) -> Array:
    """Page-aligned blocks, as the tier's direct I/O wants them."""
    stride = -(-block_bytes // mmap.PAGESIZE) * mmap.PAGESIZE
    region = mmap.mmap(-1, max(blocks, 1) * stride)
    return np.frombuffer(region, dtype=np.uint8).reshape(-1, stride)


def _keys(request: Request) -> list[OffloadKey]:
    return [make_offload_key(block_hash, 0) for block_hash in request.block_hashes]


def _job(keys: list[OffloadKey], *, promotion: bool) -> TransferJob:
    """All blocks in one job, block ``i`` at slot ``i`` of primary memory."""
    return TransferJob(0, keys, np.arange(len(keys)), promotion, ReqContext("0"))


def _present(tier: FileSystemTierManager, key: OffloadKey) -> bool:
    """Ask until the tier's lookup thread has answered; the judge's deadline ends a wait that is too long."""
    context = ReqContext("0")
    while (answer := tier.lookup(key, context)) is LookupResult.RETRY:
        tier.on_schedule_end(ScheduleEndContext(new_req_ids=[], preempted_req_ids=()))
        time.sleep(0.0005)
    return answer is LookupResult.HIT
