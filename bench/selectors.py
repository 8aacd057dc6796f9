"""The reference's Quest bounds against a plain matrix-vector product over the same bytes, on one thread.

Both are bound by memory, so that a product of the same shape can be met and not beaten: over two arrays the bounds cost
1.04 to 1.06 of it. Held by channel the extrema let a query skip the half that its signs rule out
(:class:`kvassay_reference.selectors.quest.PackedExtrema`), which costs 0.7 of it where 64 MiB come from memory and 0.9
where the processor's shared cache holds them. A process of its own with one thread measures both, for a product of many
threads pays their start and end once and the blocks' small ones many times. Of many turns the least counts, for what
else runs on the machine only adds; it is worth a twentieth.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator

from .timing import Line

PAGES, CHANNELS = 65_536, 128
THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


def lines() -> Iterator[Line]:
    """Bounds of 65,536 pages for one query head, d=128, float32, from given extrema."""
    one_thread = {**os.environ, **dict.fromkeys(THREADS, "1")}
    command = [sys.executable, "-m", "bench.selectors"]
    done = subprocess.run(command, env=one_thread, capture_output=True, text=True, check=True)
    ours_s, theirs_s = json.loads(done.stdout)
    yield Line(
        "reference Quest bounds, 65536 pages, d=128", ours_s * 1e3, "ms", "NumPy, one product", theirs_s * 1e3, 1.0
    )


def measure() -> tuple[float, float]:
    """Least seconds of the bounds, and of one product over the very blocks that hold the extrema."""
    import numpy as np
    from kvassay.core.tensors import Recipe, expand
    from kvassay.engines.reference import Reference
    from kvassay_reference.selectors.quest import PackedExtrema

    query = expand(Recipe("float32", (CHANNELS,), 1))
    low, high = (expand(Recipe("float32", (PAGES, CHANNELS), seed)) for seed in (2, 3))
    low, high = np.minimum(low, high), np.maximum(low, high)
    packed = PackedExtrema(low, high)
    plain = packed.blocks.reshape(-1, CHANNELS)

    def ours() -> object:
        return packed.bounds(query)

    def theirs() -> object:
        return plain @ query

    direct = Reference.selector_quest.bounds(query[None], low[:, None, :], high[:, None, :], [0], "float32")
    assert np.allclose(packed.bounds(query), direct[0], atol=1e-4)
    assert np.shares_memory(plain, packed.blocks)
    least = [float("inf")] * 2
    for _ in range(41):
        for index, call in enumerate((ours, theirs)):
            started = time.perf_counter()
            call()
            least[index] = min(least[index], time.perf_counter() - started)
    return least[0], least[1]


if __name__ == "__main__":
    print(json.dumps(measure()))
