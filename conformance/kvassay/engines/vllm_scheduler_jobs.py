"""vLLM's scheduler with its offloading connector, held to the jobs of the contract runtime.

Driven as under residency, without prefix caching on the device. Staging is vLLM's own block pool. A request of one
block and one token more needs two blocks, of which vLLM takes one for the load and keeps the other reserved, so that a
place for one unit is two blocks. What is called free are the places that vLLM's admission still has: free blocks less
those that it reserves for requests under way. A reservation starts its transfer; one that vLLM leaves in its queue is
withdrawn, as by a client that does not wait, and told as a fallback, or as pending where it waits for another's load.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any, ClassVar

from ..adapters.base import EngineInfo
from ._runtime_over_residency import UNIT_BYTES, Cancelling
from .vllm_scheduler import HOMEPAGE
from .vllm_scheduler import Adapter as Scheduler

ADAPTERS = {"vllm-scheduler-jobs": "Adapter"}
"""Names of the adapters here, and their classes; read without an import."""

Result = dict[str, Any]
BLOCKS_A_REQUEST = 2
HOST_PLACES = 16
"""More than the scripts store, so that the host's memory limits nothing."""


class Adapter(Cancelling):
    """Scheduler and ``OffloadingConnector``."""

    engine = EngineInfo(
        name="vLLM scheduler with offloading connector, jobs",
        version=version("vllm"),
        homepage=HOMEPAGE,
        notes="As vllm-scheduler, without prefix caching on the device. Staging is the block pool, two blocks a "
        "place; free is what admission reckons with. A request that vLLM leaves waiting is withdrawn.",
    )
    inner_class = Scheduler
    counts: ClassVar[tuple[str, ...]] = ("staging_bytes",)
    joins: ClassVar[bool] = False
    capabilities: ClassVar[Mapping[str, Any]] = {
        "runtime.returns": True,
        "runtime.cancels": True,
        "runtime.stores": True,
        "runtime.starts_at_once": True,
        "runtime.flushes": True,
    }

    def begin(self, places: int) -> Result:
        """A block pool of two blocks a unit, and vLLM's null block."""
        self.inner.device_blocks = BLOCKS_A_REQUEST * places + 1
        return super().begin(HOST_PLACES)

    def free(self) -> Result:
        """Places of which no block is taken or reserved."""
        scheduler = self.inner.run.scheduler
        blocks = scheduler.kv_cache_manager.block_pool.get_num_free_blocks()
        left = max(0, blocks - scheduler._inflight_prefill_reserved_blocks())
        return {"staging_bytes": left // BLOCKS_A_REQUEST * UNIT_BYTES}
