"""Where kernels run: on the device of CuPy arrays, or on whatever else was put in its place.

:func:`runtime_of` finds the runtime of some arrays, or says in one line why there is none.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np

from .sources import Module

Array = Any
"""An array of a runtime."""
Arguments = Sequence[Any]
"""Arrays, ``None`` for a null pointer, and NumPy scalars of exactly the kernel's types."""
STATIC_SHARED_BYTES = 48 << 10
"""Dynamic shared memory beyond which a kernel has to ask for it."""


class KernelError(ValueError):
    """What the kernels cannot do: a device that is not there, a dtype, a layout."""


class Runtime(Protocol):
    """Holds arrays and launches kernels."""

    @property
    def multiprocessors(self) -> int:
        """How many blocks of a full multiprocessor run side by side."""

    def __hash__(self) -> int:
        """A runtime is the key of tables that lie on it."""

    def owns(self, array: Array) -> bool:
        """Whether an array lies here."""

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Array:
        """An array that nobody has written."""

    def upload(self, values: np.ndarray[Any, Any], *, settled: bool = False) -> Array:
        """A small table of the host; with ``settled`` it is there for every stream when the call returns."""

    def address(self, array: Array) -> int:
        """Where the first element lies."""

    def strides(self, array: Array) -> tuple[int, ...]:
        """Distances of neighbours along each axis, in elements."""

    def launch(
        self, module: Module, kernel: str, grid: Sequence[int], block: int, arguments: Arguments, shared_bytes: int = 0
    ) -> None:
        """Start a kernel; it may still run when the call returns."""


_instead: list[Runtime] = []
"""Runtimes that take arrays before CuPy is asked."""


@contextmanager
def instead(runtime: Runtime) -> Iterator[Runtime]:
    """Let a runtime take its own arrays while the context is open."""
    _instead.append(runtime)
    try:
        yield runtime
    finally:
        _instead.remove(runtime)


def runtime_of(*arrays: Array) -> Runtime:
    """The runtime of all these arrays; raises :class:`KernelError` where they have none in common."""
    first = arrays[0]
    runtime = next((one for one in reversed(_instead) if one.owns(first)), None)
    if runtime is None:
        if type(first).__module__.partition(".")[0] != "cupy":
            kinds = sorted({f"{type(array).__module__}.{type(array).__name__}" for array in arrays})
            raise KernelError(
                f"the kernels take CuPy arrays on a CUDA device, not {', '.join(kinds)}; "
                "CuPy comes with pip install 'kvassay[cuda13]' or 'kvassay[cuda12]'"
            )
        runtime = _device(int(first.device.id))
    if not all(runtime.owns(array) for array in arrays):
        raise KernelError("the arrays lie on different devices")
    return runtime


@functools.cache
def _device(number: int) -> CupyRuntime:
    return CupyRuntime(number)


class CupyRuntime:
    """A CUDA device behind CuPy. Launches and allocations go to CuPy's current stream."""

    def __init__(self, number: int) -> None:
        """The device of this number."""
        import cupy

        self.cupy = cupy
        self.number = number
        self._kernels: dict[tuple[Module, str], Any] = {}

    @functools.cached_property
    def multiprocessors(self) -> int:
        """Of the device."""
        return int(self.cupy.cuda.runtime.getDeviceProperties(self.number)["multiProcessorCount"])

    def owns(self, array: Array) -> bool:
        """Whether it is a CuPy array on the device."""
        return isinstance(array, self.cupy.ndarray) and int(array.device.id) == self.number

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Array:
        """From CuPy's pool."""
        with self.cupy.cuda.Device(self.number):
            return self.cupy.empty(shape, dtype=dtype)

    def upload(self, values: np.ndarray[Any, Any], *, settled: bool = False) -> Array:
        """A copy on the current stream, for which the call waits where other streams are to read it."""
        with self.cupy.cuda.Device(self.number):
            made = self.cupy.asarray(values)
            if settled:
                self.cupy.cuda.get_current_stream().synchronize()
            return made

    def address(self, array: Array) -> int:
        """A device pointer."""
        return int(array.data.ptr)

    def strides(self, array: Array) -> tuple[int, ...]:
        """From bytes."""
        return tuple(step // array.itemsize for step in array.strides)

    def launch(
        self, module: Module, kernel: str, grid: Sequence[int], block: int, arguments: Arguments, shared_bytes: int = 0
    ) -> None:
        """Compile where it is the first launch, and start."""
        with self.cupy.cuda.Device(self.number):
            found = self._kernels.get((module, kernel))
            if found is None:
                raw = self.cupy.RawModule(code=module.text, options=module.options)
                found = self._kernels[module, kernel] = raw.get_function(kernel)
            if shared_bytes > STATIC_SHARED_BYTES:
                found.max_dynamic_shared_size_bytes = shared_bytes
            found(
                tuple(grid),
                (block,),
                tuple(np.uint64(0) if one is None else one for one in arguments),
                shared_mem=shared_bytes,
            )
