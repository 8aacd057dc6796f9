"""Devices on which the kernels run: the emulator, and a GPU where there is one.

``test_*.py`` is quick and belongs to the tests of the project; ``nox -s kernels`` runs ``check_*.py`` besides.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import ml_dtypes
import numpy as np
import pytest
from kvassay_emulator import Emulator, compiler
from kvassay_kernels import runtime


class Device(Protocol):
    """Takes arrays there and back."""

    def inward(self, array: Any) -> Any: ...

    def outward(self, array: Any) -> Any: ...


class Emulated:
    def inward(self, array: Any) -> Any:
        return array

    def outward(self, array: Any) -> Any:
        return array


class Cuda:
    def inward(self, array: Any) -> Any:
        import cupy

        array = np.ascontiguousarray(array)
        if array.dtype == ml_dtypes.bfloat16:
            return cupy.asarray(array.view(np.uint16)).view(ml_dtypes.bfloat16)
        return cupy.asarray(array)

    def outward(self, array: Any) -> Any:
        import cupy

        return cupy.asnumpy(array)


def has_gpu() -> bool:
    try:
        import cupy

        return int(cupy.cuda.runtime.getDeviceCount()) > 0
    except Exception:  # CuPy raises errors of its own for each thing that is missing
        return False


@pytest.fixture(scope="session", params=["emulated", "cuda"])
def device(request: pytest.FixtureRequest) -> Iterator[Device]:
    """Each test that takes it runs on both."""
    if request.param == "cuda":
        if not has_gpu():
            pytest.skip("no GPU")
        yield Cuda()
    else:
        if compiler() is None:
            pytest.skip("no C++ compiler")
        with runtime.instead(Emulator()):
            yield Emulated()
