"""Runs the kernels of :mod:`kvassay_kernels` on a CPU, for tests; it is in no wheel.

A C++ compiler builds the unchanged text of a kernel under ``include/cuda_on_cpu.h``, which plays the CUDA thread model
with fibers. :class:`Emulator` takes NumPy arrays where the kernels otherwise take CuPy's.
"""

from . import build
from .build import CompilerMissing, compiler
from .emulator import Emulator, LaunchFailed

__all__ = ["CompilerMissing", "Emulator", "LaunchFailed", "build", "compiler"]
