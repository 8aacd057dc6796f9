"""The CUDA kernels as an engine, without a GPU: their text, compiled by a C++ compiler and run under the emulator.

The emulator stands in the repository and in no wheel. Libraries are built at the first use and kept in a folder of the
user's cache, or in ``$KVASSAY_EMULATOR_CACHE``.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any, ClassVar

from kvassay_kernels import runtime

from ..adapters.base import EngineInfo
from .kernels import KernelParts
from .reference import VERSION

ADAPTERS = {"kernels-emulated": "KernelsEmulated"}
"""Names of the adapters here, and their classes; read without an import."""


class NumpyArrays:
    """NumPy arrays, which the emulator takes where a device would take CuPy's."""

    schedule: ClassVar[int] = 0
    """The order in which warps and lanes take turns."""
    texts: ClassVar[dict[str, str]] = {}
    """Files of kernels that are replaced."""
    _opened: ExitStack

    def setup(self) -> None:
        """Put the emulator in the place of a device; says in one line what is missing."""
        try:
            from kvassay_emulator import CompilerMissing, Emulator, compiler
        except ImportError:
            raise RuntimeError("the kernels are emulated in a clone of the repository alone") from None
        if compiler() is None:
            raise CompilerMissing("the emulated kernels need a C++ compiler: install g++, or name one in CXX")
        self._opened = ExitStack()
        self._opened.enter_context(runtime.instead(Emulator(self.schedule, texts=self.texts)))

    def teardown(self) -> None:
        """Take it away again."""
        self._opened.close()

    def inward(self, array: Any) -> Any:
        """The same."""
        return array

    def outward(self, array: Any) -> Any:
        """The same."""
        return array


class KernelsEmulated(NumpyArrays, KernelParts):
    """The kernels on NumPy arrays."""

    engine: ClassVar[EngineInfo] = EngineInfo(
        "kvassay_kernels", VERSION, language="CUDA C++", notes="emulated on the CPU"
    )
