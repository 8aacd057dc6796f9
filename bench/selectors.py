"""The reference's Quest bounds against a plain matrix-vector product over the same bytes, on one thread.

Both are bound by memory. A product of many threads pays their start and end once and two products twice, which says
nothing of the bytes; so a process of its own with one thread measures both. They read the same bytes and so cost the
same; the budget leaves a tenth for what else runs on the machine.
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
        "reference Quest bounds, 65536 pages, d=128", ours_s * 1e3, "ms", "NumPy, one product", theirs_s * 1e3, 1.1
    )


def measure() -> tuple[float, float]:
    """Least seconds of the bounds, and of one product over both extrema in one array: what others do only adds."""
    import numpy as np
    from kvassay.core.tensors import Recipe, expand
    from kvassay.engines.reference import Reference

    q = expand(Recipe("float32", (1, CHANNELS), 1))
    low, high = (expand(Recipe("float32", (PAGES, 1, CHANNELS), seed)) for seed in (2, 3))
    low, high = np.minimum(low, high), np.maximum(low, high)
    both = np.concatenate([low[:, 0, :], high[:, 0, :]])
    quest = Reference.selector_quest

    def ours() -> object:
        return quest.bounds(q, low, high, [0], "float32")

    def theirs() -> object:
        return both @ q[0]

    wanted = np.maximum(q * low[:, 0, :], q * high[:, 0, :]).sum(axis=1)
    assert np.allclose(np.asarray(ours())[0], wanted, atol=1e-4)
    least = [float("inf")] * 2
    for _ in range(41):
        for index, call in enumerate((ours, theirs)):
            started = time.perf_counter()
            call()
            least[index] = min(least[index], time.perf_counter() - started)
    return least[0], least[1]


if __name__ == "__main__":
    print(json.dumps(measure()))
