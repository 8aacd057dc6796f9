"""Every call that ``bench.gpu`` measures runs, with NumPy in the place of CuPy and lengths divided by 512."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from kvassay_emulator import Emulator, compiler
from kvassay_kernels import runtime

from bench import gpu

RNG = np.random.default_rng(0)
AS_CUPY: Any = SimpleNamespace(
    asarray=np.asarray,
    full=np.full,
    random=SimpleNamespace(
        standard_normal=RNG.standard_normal, permutation=RNG.permutation, randint=RNG.integers, uniform=RNG.uniform
    ),
)


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
@pytest.mark.parametrize("part", gpu.PARTS)
def test_what_is_measured_runs(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "SHRINK", 512)
    monkeypatch.setattr(gpu, "TURNS_BYTES", 1)
    found = 0
    with runtime.instead(Emulator()):
        for work in gpu.PARTS[part](AS_CUPY, None):
            found += 1
            assert work.read_bytes > 0
            for i in range(work.copies):
                assert work.call(i) is not None
    assert found > 0
