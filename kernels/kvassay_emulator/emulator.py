"""A runtime of the kernels for NumPy arrays: it launches what a C++ compiler made of their text."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from kvassay_kernels.sources import Module

from .build import build

Array = np.ndarray[Any, Any]
MULTIPROCESSORS = 20
"""Of a small card, so that a few thousand rows of eight K/V heads are read in five splits."""
MOST_SHARED_BYTES = 227 << 10
"""Shared memory that a block of the smallest supported card can ask for is 163 KiB; the largest, 227 KiB."""


class LaunchFailed(RuntimeError):
    """A kernel did what the thread model forbids."""


class Emulator:
    """Launches kernels on the CPU.

    ``schedule`` is the order in which warps and lanes take turns: 0 forward, 1 backward, from 2 on by strides.
    ``extra`` are options of the compiler, ``texts`` replaces files of kernels by their names.
    """

    def __init__(self, schedule: int = 0, extra: Sequence[str] = (), texts: Mapping[str, str] | None = None) -> None:
        """Nothing is built before it is launched."""
        self.schedule = schedule
        self.extra = tuple(extra)
        self.texts = dict(texts or {})
        self.multiprocessors = MULTIPROCESSORS
        self._libraries: dict[Module, ctypes.PyDLL] = {}

    def owns(self, array: Any) -> bool:
        """Whether it is a NumPy array."""
        return isinstance(array, np.ndarray)

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Array:
        """Every bit set: floats that are not numbers, until a kernel writes them."""
        made: Array = np.empty(shape, dtype=dtype)
        if made.size:
            made.reshape(-1).view(np.uint8).fill(0xFF)
        return made

    def upload(self, values: Array, *, settled: bool = False) -> Array:
        """The same array."""
        return np.ascontiguousarray(values)

    def address(self, array: Array) -> int:
        """Where the first element lies."""
        return int(array.ctypes.data)

    def strides(self, array: Array) -> tuple[int, ...]:
        """From bytes."""
        return tuple(step // array.itemsize for step in array.strides)

    def launch(
        self,
        module: Module,
        kernel: str,
        grid: Sequence[int],
        block: int,
        arguments: Sequence[Any],
        shared_bytes: int = 0,
    ) -> None:
        """Run a kernel to its end; raises :class:`LaunchFailed`."""
        if shared_bytes > MOST_SHARED_BYTES:
            raise LaunchFailed(f"{kernel}: {shared_bytes} bytes of dynamic shared memory")
        function = getattr(self.library(module), f"{kernel}__launch")
        function.restype = ctypes.c_char_p
        held = [_argument(kernel, one) for one in arguments]
        pointers = (ctypes.c_void_p * len(held))(*map(ctypes.addressof, held))
        sizes = (ctypes.c_size_t * len(held))(*map(ctypes.sizeof, held))
        shape = (ctypes.c_uint * 6)(*(*grid, 1, 1)[:3], block, 1, 1)
        message = function(shape, ctypes.c_size_t(shared_bytes), pointers, sizes, len(held), self.schedule)
        if message is not None:
            raise LaunchFailed(f"{kernel}: {message.decode()}")

    def library(self, module: Module) -> ctypes.PyDLL:
        """The library of a module; the interpreter's lock stays held, for launches share their state."""
        if module not in self._libraries:
            path: Path = build(module, self.extra, text=self.texts.get(module.file))
            self._libraries[module] = ctypes.PyDLL(str(path))
        return self._libraries[module]


def _argument(kernel: str, value: Any) -> Any:
    """A value as the bytes that a kernel receives."""
    if value is None:
        return ctypes.c_void_p(None)
    if isinstance(value, np.ndarray):
        return ctypes.c_void_p(value.ctypes.data)
    if isinstance(value, np.generic):
        kind: Any = np.ctypeslib.as_ctypes_type(value.dtype.str)
        return kind(value.item())
    raise LaunchFailed(f"{kernel}: an argument is a {type(value).__name__}, neither an array nor a NumPy scalar")
