"""The CUDA kernels as an engine, on a GPU: the built-in adapter with its hot paths in ``kvassay_kernels``.

What the kernels do not do, the reference does, on CuPy arrays. ``pip install 'kvassay[cuda13]'`` brings CuPy.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

import ml_dtypes
import numpy as np
from kvassay_kernels import KernelError, attention
from kvassay_reference.attention import State

from ..adapters.base import EngineInfo, Unsupported
from .reference import VERSION
from .reference_attention import AttentionReference

ADAPTERS = {"kernels": "Kernels"}
"""Names of the adapters here, and their classes; read without an import."""
Request = Mapping[str, Any]


class KernelAttention(AttentionReference):
    """The attention ops: every row is reduced, and every state merged, by a kernel."""

    def positions(self, request: Request) -> Any:
        """Consecutive positions as a range, of which the kernels know the ends."""
        if "k_positions" in request:
            return super().positions(request)
        rows = request["pages"]["rows"] if "pages" in request else request["k"].shape[0]
        return range(request["k_first_position"], request["k_first_position"] + rows)

    def reduce(self, request: Request) -> State:
        """One or more splits, and their merge."""
        with limits_named():
            return attention.partial(**self.arguments(request))

    def finish(self, state: State) -> tuple[Any, Any]:
        """Output and LSE."""
        return attention.finish(state)

    def merge(self, states: list[State]) -> State:
        """Any number of states in one launch."""
        with limits_named():
            return attention.merge(states)


class KernelParts(KernelAttention):
    """Every contract of which the kernels do the hot part."""


class CupyArrays:
    """CuPy arrays on the current device."""

    def setup(self) -> None:
        """Say now what is missing."""
        import cupy

        cupy.cuda.runtime.getDevice()

    def inward(self, array: Any) -> Any:
        """Copy to the device; bfloat16 crosses as its bits."""
        import cupy

        if isinstance(array, range):
            return array
        if array.dtype == ml_dtypes.bfloat16:
            return cupy.asarray(array.view(np.uint16)).view(ml_dtypes.bfloat16)
        return cupy.asarray(array)

    def outward(self, array: Any) -> Any:
        """Copy to the host, which waits for the kernels."""
        import cupy

        return cupy.asnumpy(array)


class Kernels(CupyArrays, KernelParts):
    """The kernels on CuPy arrays."""

    engine: ClassVar[EngineInfo] = EngineInfo("kvassay_kernels", VERSION, language="CUDA C++", notes="CuPy")


@contextmanager
def limits_named() -> Any:
    """What no kernel takes, such as float64, is not applicable."""
    try:
        yield
    except KernelError as error:
        raise Unsupported(str(error)) from None
