"""Devices on which the kernels run: the emulator, and a GPU where there is one.

``test_*.py`` is quick and belongs to the tests of the project. ``nox -s kernels`` runs ``check_*.py`` besides, and all
with more dtypes and in other orders of threads, which it asks for by ``KVASSAY_KERNELS_FULL`` and names in
``KVASSAY_EMULATOR_SCHEDULES``. ``KVASSAY_EMULATOR_DEFECT`` is a defect of :mod:`.defects` that is put in.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, Protocol

import ml_dtypes
import numpy as np
import pytest
from kvassay_emulator import Emulator, compiler
from kvassay_kernels import runtime

from .defects import DEFECTS


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


def inward(device: Device, *arrays: Any) -> list[Any]:
    """Several arrays."""
    return [device.inward(array) for array in arrays]


def has_gpu() -> bool:
    try:
        import cupy

        return int(cupy.cuda.runtime.getDeviceCount()) > 0
    except Exception:  # CuPy raises errors of its own for each thing that is missing
        return False


SCHEDULES = [int(one) for one in os.environ.get("KVASSAY_EMULATOR_SCHEDULES", "0").split(",")]
DEFECT = os.environ.get("KVASSAY_EMULATOR_DEFECT", "")


@pytest.fixture(scope="session", params=[*SCHEDULES, "cuda"], ids=[*(f"emulated-{one}" for one in SCHEDULES), "cuda"])
def device(request: pytest.FixtureRequest) -> Iterator[Device]:
    """Each test that takes it runs on all."""
    if request.param == "cuda":
        if not has_gpu():
            pytest.skip("no GPU")
        yield Cuda()
    else:
        if compiler() is None:
            pytest.skip("no C++ compiler")
        texts = {path: text for defect in DEFECTS if defect.name == DEFECT for path, text in defect.texts.items()}
        with runtime.instead(Emulator(request.param, texts=texts)):
            yield Emulated()
