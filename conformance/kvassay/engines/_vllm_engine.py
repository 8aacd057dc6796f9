"""vLLM's scheduler with a KV connector, stepped by hand: what the adapters of composed engines share.

No model and no GPU. The scheduler and both halves of the connector are vLLM's own; the caller plays the model runner.
"""

from __future__ import annotations

import itertools
import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
from vllm.config import CacheConfig, DeviceConfig, KVTransferConfig, ModelConfig, SchedulerConfig, VllmConfig
from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
from vllm.distributed.kv_transfer.kv_connector.v1 import KVConnectorRole
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec, KVCacheTensor
from vllm.v1.outputs import KVConnectorOutput, ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

MODEL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "vocab_size": 1 << 17,
    "max_position_embeddings": 4096,
    "torch_dtype": "float16",
}
"""A configuration that vLLM accepts; no weights belong to it."""
BLOCK = 16
"""Tokens a block."""
LAYER = "model.layers.0.self_attn.attn"
HASH = sha256
TOKEN = 1
"""What the model samples."""

Compute = Callable[[SchedulerOutput], None]


class Seat(Protocol):
    """The worker's place: what moves bytes before and after the model runs, and what it reports."""

    def load(self, metadata: Any) -> None:
        """Before the model runs."""

    def save(self, metadata: Any) -> None:
        """After it."""

    def report(self, output: SchedulerOutput) -> KVConnectorOutput:
        """At the end of the step."""


class OwnSeat:
    """The connector's own worker half."""

    def __init__(self, worker: Any) -> None:
        self.worker = worker
        self.forward: Any = None
        """The forward context of a connector that reads layers in it."""
        self.layers: dict[str, torch.Tensor] = {}
        """Layers to be saved one by one."""

    def load(self, metadata: Any) -> None:
        """In the order of vLLM's model runner."""
        self.worker.bind_connector_metadata(metadata)
        self.worker.handle_preemptions(metadata)
        self.worker.start_load_kv(self.forward)

    def save(self, metadata: Any) -> None:
        """Layer by layer, then all."""
        for name, layer in self.layers.items():
            self.worker.save_kv_layer(name, layer, self.forward.attn_metadata[name])
        self.worker.wait_for_save()

    def report(self, output: SchedulerOutput) -> KVConnectorOutput:
        """What has arrived, and what the scheduler's half is to know."""
        _, received = self.worker.get_finished(output.finished_req_ids)
        told = self.worker.build_connector_worker_meta()
        self.worker.clear_connector_metadata()
        return KVConnectorOutput(finished_recving=received or None, kv_connector_worker_meta=told)


class Engine:
    """One engine: scheduler, connector and the loop between them."""

    def __init__(
        self,
        model: ModelConfig,
        connector: str,
        extra: Mapping[str, Any],
        *,
        blocks: int,
        caching: bool,
        block: int = BLOCK,
        seat: Seat | None = None,
    ) -> None:
        transfer = KVTransferConfig(
            kv_connector=connector, kv_role="kv_both", kv_connector_extra_config=dict(extra), engine_id="kvassay"
        )
        config = VllmConfig(
            model_config=model,
            cache_config=CacheConfig(block_size=block, enable_prefix_caching=caching),
            scheduler_config=SchedulerConfig(
                max_num_seqs=64, max_num_batched_tokens=4096, max_model_len=4096, is_encoder_decoder=False
            ),
            kv_transfer_config=transfer,
            device_config=DeviceConfig("cpu"),
        )
        config.cache_config.num_gpu_blocks = blocks
        spec = attention(block)
        page = spec.page_size_bytes
        cache = KVCacheConfig(
            num_blocks=blocks,
            kv_cache_tensors=[KVCacheTensor(size=blocks * page, layers=[LAYER], layer_stride=page, block_stride=page)],
            kv_cache_groups=[KVCacheGroupSpec([LAYER], spec)],
        )
        self.scheduler = Scheduler(
            vllm_config=config,
            kv_cache_config=cache,
            structured_output_manager=StructuredOutputManager(config),
            block_size=block,
            hash_block_size=block,
        )
        if seat is None:
            self.own = OwnSeat(KVConnectorFactory.create_connector(config, KVConnectorRole.WORKER, cache))
        self.seat: Seat = self.own if seat is None else seat
        self.calls = 0

    @property
    def connector(self) -> Any:
        """The scheduler's half."""
        return self.scheduler.connector

    def add(self, request: Request) -> None:
        """A client's request."""
        self.calls += 1
        self.scheduler.add_request(request)

    def step(self, compute: Compute) -> SchedulerOutput:
        """Schedule, move, compute, report: the order of vLLM's model runner."""
        self.calls += 2
        output = self.scheduler.schedule()
        self.seat.load(output.kv_connector_metadata)
        compute(output)
        self.seat.save(output.kv_connector_metadata)
        reported = self.seat.report(output)
        names = list(output.num_scheduled_tokens)
        result = ModelRunnerOutput(
            req_ids=names,
            req_id_to_index={name: index for index, name in enumerate(names)},
            sampled_token_ids=[[TOKEN] for _ in names],
            kv_connector_output=None if reported.is_empty() else reported,
        )
        self.scheduler.update_from_output(output, result)
        return output


def attention(block: int = BLOCK) -> FullAttentionSpec:
    """The one layer's cache."""
    return FullAttentionSpec(block_size=block, num_kv_heads=2, head_size=32, dtype=torch.float16)


def model_config(folder: str) -> ModelConfig:
    """The model, whose configuration is written to a folder."""
    Path(folder, "config.json").write_text(json.dumps(MODEL), encoding="utf-8")
    return ModelConfig(model=folder, tokenizer=folder, skip_tokenizer_init=True, dtype="float16", max_model_len=4096)


def temporary_model() -> ModelConfig:
    """The same in a folder that is gone when it has been read."""
    with tempfile.TemporaryDirectory(prefix="kvassay-vllm-") as folder:
        return model_config(folder)


def hasher(block: int = BLOCK) -> Any:
    """Block hashes as the engine core makes them."""
    init_none_hash(HASH)
    return get_request_block_hasher(block, HASH)


_NUMBERS = itertools.count()


def fresh_name(owner: str = "") -> str:
    """A request id that no other request has."""
    return f"{owner}-{next(_NUMBERS)}"


def first_block(output: SchedulerOutput) -> Sequence[tuple[str, list[int], int]]:
    """Of each request that starts in a step: its name, its blocks, and how many of its tokens it need not compute."""
    return [(one.req_id, list(one.block_ids[0]), one.num_computed_tokens) for one in output.scheduled_new_reqs]
