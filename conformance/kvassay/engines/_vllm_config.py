"""vLLM's configuration of offloading for one group of one layer, which its tiers are opened with."""

from __future__ import annotations

from typing import Any

from vllm.v1.kv_offload.config import (
    OffloadingCacheConfig,
    OffloadingConfig,
    OffloadingGroupConfig,
    OffloadingModelConfig,
    OffloadingParallelConfig,
)


def offloading_config(
    block_bytes: int, *, block: int, model: str, dtype: str, rank: int = 0, shards: int = 1, **more: Any
) -> OffloadingConfig:
    """``block`` tokens a block, ``shards`` ranks of tensor parallelism; ``more`` are members that differ."""
    return OffloadingConfig(
        groups=(OffloadingGroupConfig(tokens_per_block=block, layer_names=("0",), group_id=0),),
        worker_kv_bytes_per_block=block_bytes,
        model=OffloadingModelConfig(name=model, dtype=dtype),
        cache=OffloadingCacheConfig(tokens_per_hash=block, blocks_per_chunk=1),
        parallel=OffloadingParallelConfig(
            rank=rank,
            world_size=shards,
            tp_size=shards,
            pp_size=1,
            pcp_size=1,
            dcp_size=1,
            data_parallel_index=0,
            data_parallel_size=1,
            data_parallel_rank_local=None,
            is_parallelism_agnostic=False,
        ),
        **more,
    )
