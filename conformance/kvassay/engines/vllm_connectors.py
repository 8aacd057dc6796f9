"""What vLLM's KV connectors key rows by, asked of the scheduler that they serve.

A record is the request that a client would send. The scheduler and the connector decide what is computed, saved and
loaded; the adapter plays the model runner, and the worker where the connector's own wants CUDA. Blocks have four
tokens, as in :mod:`.vllm_keys`. No model, no GPU.

- :class:`Adapter`: ``OffloadingConnector`` with host memory.
- :class:`SimpleOffload`: ``SimpleCPUOffloadConnector``.
- :class:`Example`: ``ExampleConnector`` (once ``SharedStorageConnector``), a directory that processes share.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from importlib.metadata import version
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import torch
from vllm.sampling_params import SamplingParams
from vllm.v1.core.encoder_cache_manager import EncoderCacheManager
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.kv_offload.base import OffloadingWorker, TransferResult
from vllm.v1.outputs import KVConnectorOutput
from vllm.v1.request import Request, RequestStatus
from vllm.v1.simple_kv_offload.metadata import SimpleCPUOffloadMetadata, SimpleCPUOffloadWorkerMetadata

from ..adapters.base import EngineInfo, Rejected
from ..core.tensors import Array
from ._vllm_engine import LAYER, Engine, Seat, first_block, fresh_name, temporary_model
from .dispositions import dispositions
from .vllm_keys import BLOCK, HOMEPAGE, MISS, REFUSED, Record, _Requests

ADAPTERS = {
    "vllm-offloading-connector": "Adapter",
    "vllm-simple-cpu-offload": "SimpleOffload",
    "vllm-example-connector": "Example",
}
"""Names of the adapters here, and their classes; read without an import."""

BLOCKS = 80
"""On the device."""
HOST_BLOCKS = 4096
ENCODER_TOKENS = 4096
STEPS = 6
OTHER_TOKEN = 99_999
"""A token that no record has."""


class _Connected(_Requests):
    """A scheduler with a connector, and rows in the device's blocks."""

    connector: ClassVar[str]
    caching: ClassVar[bool] = False
    beyond: ClassVar[int] = 1
    """Tokens beyond what is matched that a prompt needs for the match."""

    def setup(self) -> None:
        """The model's configuration and the hash of blocks."""
        super().setup()
        self._model = temporary_model()

    def open(self) -> None:
        """A fresh process."""
        self._rows: dict[str, Array] = {}
        """Request to what the model computes for it."""
        self._seen: dict[str, tuple[int, list[int]]] = {}
        """Request to the tokens that it reuses, and its blocks."""
        self._allocate(1)

    def _allocate(self, width: int) -> None:
        """Memory for rows of so many bytes; rows of another width are another model's."""
        self._width = width
        self._device: Array = np.zeros((BLOCKS, BLOCK * width), np.uint8)
        self._host: Array = np.zeros((HOST_BLOCKS, BLOCK * width), np.uint8)
        seat = self._worker()
        self._engine = Engine(
            self._model, self.connector, self._extra(), blocks=BLOCKS, caching=self.caching, block=BLOCK, seat=seat
        )
        scheduler = self._engine.scheduler
        scheduler.encoder_cache_manager = EncoderCacheManager(cache_size=ENCODER_TOKENS)
        scheduler.max_num_encoder_input_tokens = ENCODER_TOKENS

    def _extra(self) -> Mapping[str, Any]:
        return {"cpu_bytes_to_use": HOST_BLOCKS * 4096}

    def _worker(self) -> Seat | None:
        """Who moves, if it is not the connector's own worker half."""
        return None

    def identity_put(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """A request is prefilled, and what the connector wants to save is saved."""
        record, data = request["record"], request["data"]
        if data.shape[1] != self._width:
            self._allocate(data.shape[1])
        wanted = self._longer(record, 1)
        name = wanted.request_id
        self._rows[name] = np.concatenate([data, np.zeros((1, self._width), np.uint8)])
        self._engine.add(wanted)
        self._steps(name)
        rows = len(data) // BLOCK * BLOCK
        return {"outcome": "stored", "rows": rows} if name in self._seen and rows else dict(REFUSED)

    def identity_get(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """What the connector would have a request load; without a match nothing is sent, for it would be computed."""
        record = request["record"]
        self._evict()
        asked = self._longer(record, self.beyond)
        connector = self._engine.connector
        connector.on_new_request(asked)
        matched, _ = connector.get_num_new_matched_tokens(asked, 0)
        asked.status = RequestStatus.FINISHED_ABORTED
        connector.request_finished(asked, [])
        if not matched:
            return dict(MISS)
        wanted = self._longer(self._cut(record, matched), self.beyond)
        self._engine.add(wanted)
        self._steps(wanted.request_id)
        reused, blocks = self._seen.get(wanted.request_id, (0, []))
        rows = min(reused, len(record["tokens"]))
        if not rows:
            return dict(MISS)
        return {"outcome": "hit", "rows": rows, "data": self._device[blocks].reshape(-1, self._width)[:rows].copy()}

    def identity_change(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """New weights: the reset that vLLM offers for it, the connector's cache with it."""
        if request["field"] == "checkpoint_generation":
            if not self._engine.scheduler.reset_prefix_cache(reset_connector=True):
                raise Rejected(None, "reset_prefix_cache refused")
            self._engine.step(self._compute)
        return {}

    def _cut(self, record: Record, rows: int) -> Record:
        """The record up to what was matched, so that the request computes nothing that would be saved."""
        if not 0 < rows < len(record["tokens"]):
            return record
        items = [item for item in record.get("multimodal", ()) if item["position"] < rows]
        return {**record, "tokens": record["tokens"][:rows], "multimodal": items}

    def _longer(self, record: Record, count: int) -> Request:
        """The record's request with some tokens more, as the last one is always computed."""
        return self._request({**record, "tokens": [*record["tokens"], *[OTHER_TOKEN] * count]})

    def _steps(self, name: str) -> None:
        """Until the request has run and its transfers are over."""
        for _ in range(STEPS):
            self._engine.step(self._compute)
        if name not in self._seen:
            self._engine.scheduler.finish_requests([name], RequestStatus.FINISHED_ABORTED)

    def _evict(self) -> None:
        """Nothing is left on the device without a prefix cache."""

    def _compute(self, output: SchedulerOutput) -> None:
        """Rows of computed tokens go into their blocks."""
        for name, blocks, reused in first_block(output):
            self._seen[name] = reused, blocks
            rows = self._rows.get(name)
            if rows is not None:
                device = self._device.reshape(BLOCKS, BLOCK, -1)
                for row in range(reused, len(rows)):
                    device[blocks[row // BLOCK], row % BLOCK] = rows[row]


IN_KEY = "adapter_name adapter_id adapter_version cache_salt tokens prompt_embeds_sha256 multimodal"
ONE_PROCESS = (
    "model cache_abi visibility_policy position_contract rope_config dtype codec layout layer kv_head shard_rank "
    "shard_count first_position"
)
NOWHERE = "tenant namespace_generation cache_generation publication_generation"


class Adapter(_Connected):
    """``OffloadingConnector``: keys are block hashes."""

    engine = EngineInfo(
        name="vLLM offloading connector",
        version=version("vllm"),
        homepage=HOMEPAGE,
        notes="Scheduler and OffloadingConnector over CPUOffloadingManager, no prefix caching on the device; the "
        "adapter plays the model runner and the mover. An adapter's new version is loaded in place from the same path.",
    )
    capabilities: ClassVar[Mapping[str, Any]] = dispositions(
        key=IN_KEY, fenced="checkpoint_generation", constant=ONE_PROCESS, absent=NOWHERE
    )
    connector: ClassVar[str] = "OffloadingConnector"

    def _allocate(self, width: int) -> None:
        super()._allocate(width)
        self._engine.own.worker.connector_worker.worker = _Prompt(self._device, self._host)


class _Prompt(OffloadingWorker):  # type: ignore[misc]
    """Moves at once."""

    def __init__(self, device: Array, host: Array) -> None:
        self._device, self._host = device, host
        self._done: list[int] = []

    def submit_store(self, job_id: int, src_spec: Any, dst_spec: Any) -> bool:
        """Device to host."""
        self._host[dst_spec.block_ids] = self._device[src_spec.block_ids]
        self._done.append(job_id)
        return True

    def submit_load(self, job_id: int, src_spec: Any, dst_spec: Any, expedited: bool = False) -> bool:
        """Host to device."""
        self._device[dst_spec.block_ids] = self._host[src_spec.block_ids]
        self._done.append(job_id)
        return True

    def get_finished(self) -> list[TransferResult]:
        """All that was submitted since."""
        done, self._done = self._done, []
        return [TransferResult(job, success=True) for job in done]

    def wait(self, job_ids: set[int]) -> None:
        """Nothing is ever in flight."""


class SimpleOffload(_Connected):
    """``SimpleCPUOffloadConnector``: keys are block hashes, in a block pool of its own."""

    engine = EngineInfo(
        name="vLLM simple CPU offload connector",
        version=version("vllm"),
        homepage=HOMEPAGE,
        notes="Scheduler and SimpleCPUOffloadConnector (eager), which needs prefix caching on the device; before each "
        "get another request takes all of the device's blocks. The adapter plays the model runner and the worker.",
    )
    capabilities: ClassVar[Mapping[str, Any]] = Adapter.capabilities
    connector: ClassVar[str] = "SimpleCPUOffloadConnector"
    caching: ClassVar[bool] = True

    def _worker(self) -> Seat:
        return _Simple(self._device, self._host)

    def _evict(self) -> None:
        """Fill the device with other tokens, block for block; what they save, the host has room for."""
        pool = self._engine.scheduler.kv_cache_manager.block_pool
        other = Request(
            request_id=fresh_name("other"),
            prompt_token_ids=[OTHER_TOKEN] * (pool.get_num_free_blocks() * BLOCK),
            sampling_params=SamplingParams(max_tokens=1),
            pooling_params=None,
            block_hasher=self._hasher,
        )
        self._engine.add(other)
        self._steps(other.request_id)


class _Simple:
    """The worker of ``SimpleCPUOffloadConnector``, whose own wants CUDA: whole blocks, at once."""

    def __init__(self, device: Array, host: Array) -> None:
        self._device, self._host = device, host
        self._received: set[str] = set()
        self._stored: dict[int, int] = {}

    def load(self, metadata: SimpleCPUOffloadMetadata) -> None:
        """Host to device."""
        self._device[metadata.load_gpu_blocks] = self._host[metadata.load_cpu_blocks]
        if metadata.load_event >= 0:
            self._received.update(metadata.load_event_to_reqs[metadata.load_event])

    def save(self, metadata: SimpleCPUOffloadMetadata) -> None:
        """Device to host."""
        self._host[metadata.store_cpu_blocks] = self._device[metadata.store_gpu_blocks]
        if metadata.store_event >= 0:
            self._stored[metadata.store_event] = 1

    def report(self, output: SchedulerOutput) -> KVConnectorOutput:
        """Events by number, loads by request."""
        received, self._received = self._received, set()
        stored, self._stored = self._stored, {}
        told = SimpleCPUOffloadWorkerMetadata(stored) if stored else None
        return KVConnectorOutput(finished_recving=received or None, kv_connector_worker_meta=told)


class Example(_Connected):
    """``ExampleConnector``: a directory named by the prompt's tokens, for all processes that share it."""

    engine = EngineInfo(
        name="vLLM example connector",
        version=version("vllm"),
        homepage=HOMEPAGE,
        notes="Scheduler and ExampleConnector (once SharedStorageConnector), both halves its own, over a shared "
        "directory. vLLM calls it a simple debug implementation. It matches whole prompts alone.",
    )
    capabilities: ClassVar[Mapping[str, Any]] = dispositions(
        key=f"model checkpoint_generation rope_config dtype layout shard_rank shard_count {IN_KEY}",
        constant="cache_abi visibility_policy position_contract codec layer kv_head first_position",
        absent=NOWHERE,
    )
    connector: ClassVar[str] = "ExampleConnector"
    beyond: ClassVar[int] = 2
    identity_change = None  # type: ignore[assignment]

    def open(self) -> None:
        """An empty directory."""
        self.teardown()
        self._root = tempfile.mkdtemp(prefix="kvassay-vllm-")
        super().open()

    def teardown(self) -> None:
        """Remove the directory."""
        shutil.rmtree(getattr(self, "_root", ""), ignore_errors=True)

    def _extra(self) -> Mapping[str, Any]:
        return {"shared_storage_path": self._root}

    def _spell(self, record: Record, request: Request) -> str:
        """The folder of the prompt's whole blocks."""
        tokens = torch.tensor(record["tokens"])[: len(record["tokens"]) // BLOCK * BLOCK]
        names = [item.identifier for item in request.mm_features]
        folder = self._engine.connector._generate_foldername_debug(tokens, names)
        return str(folder).removeprefix(self._root)

    def _allocate(self, width: int) -> None:
        super()._allocate(width)
        layer = torch.from_numpy(self._device).reshape(BLOCKS, 1, BLOCK, width)
        self._engine.own.forward = SimpleNamespace(
            attn_metadata={LAYER: None}, no_compile_layers={LAYER: SimpleNamespace(kv_cache=layer)}
        )
        self._engine.own.layers = {LAYER: layer}
