"""The texts of the kernels and what they are compiled for.

A :class:`Module` is one ``.cu`` file with its macros. The file is compiled unchanged: by NVRTC behind CuPy, by NVRTC
alone in the tests, and by a C++ compiler under the emulator.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

CSRC = Path(__file__).parent / "csrc"
ELEMENTS = {"float32": "float", "float16": "__half", "bfloat16": "__nv_bfloat16"}
"""Names of dtypes in the kernels."""
KERNEL = re.compile(r'^extern "C" __global__ void (?:__launch_bounds__\([^)]*\)+ )?(\w+)\(', re.MULTILINE)
OPTIONS = ("-std=c++17", "-I" + str(CSRC))
"""What every compiler gets."""


@dataclass(frozen=True)
class Module:
    """One file of kernels, compiled for some macros."""

    file: str
    macros: tuple[tuple[str, str], ...] = ()

    @property
    def name(self) -> str:
        """The file and the values of the macros: ``attention.cu: float, 64, 4``."""
        return f"{self.file}: {', '.join(value for _, value in self.macros)}" if self.macros else self.file

    @property
    def text(self) -> str:
        """The text of the file."""
        return read(self.file)

    @property
    def kernels(self) -> tuple[str, ...]:
        """Names of the kernels in the file."""
        return tuple(KERNEL.findall(self.text))

    @property
    def options(self) -> tuple[str, ...]:
        """Options of a compiler. The digest of all texts is one, so that a cache sees what a header changes."""
        return (*OPTIONS, *(f"-D{name}={value}" for name, value in self.macros), f"-DTEXTS={texts_digest()}")


def module(file: str, **macros: str | int) -> Module:
    """A module; the macros are sorted, so that equal ones are equal."""
    return Module(file, tuple(sorted((name, str(value)) for name, value in macros.items())))


@functools.cache
def read(file: str) -> str:
    """The text of a file of kernels."""
    return (CSRC / file).read_text(encoding="utf-8")


@functools.cache
def texts_digest() -> str:
    """A digest of every file of kernels, sixteen hexadecimal digits."""
    found = hashlib.sha256()
    for path in sorted(CSRC.iterdir()):
        found.update(path.name.encode() + b"\0" + path.read_bytes())
    return found.hexdigest()[:16]


# --- modules -----------------------------------------------------------------------------------------------------

FAST_CHANNELS = (64, 128, 256)
"""Channels of a row that ``attention.cu`` is written for."""
GROUPS = (1, 2, 4, 8, 16)
"""Query heads of a tile."""


def attention(dtype: str, channels: int, group: int) -> Module:
    """Split-K partial attention for rows of 64, 128 or 256 channels."""
    return module("attention.cu", ELEMENT=ELEMENTS[dtype], CHANNELS=channels, GROUP=group)


def attention_any(dtype: str) -> Module:
    """Partial attention for rows of any size."""
    return module("attention_any.cu", ELEMENT=ELEMENTS[dtype])


def merge(output: str = "float32") -> Module:
    """Merge of states, to outputs of a dtype."""
    return module("merge.cu", OUTPUT=ELEMENTS[output])


def specialisations() -> Iterable[Module]:
    """The modules that the tests compile for every architecture, chosen for use and not the product of all macros."""
    common = [(64, 1), (64, 8), (128, 1), (128, 4), (128, 8), (128, 16), (256, 2), (256, 8)]
    yield from (attention("bfloat16", channels, group) for channels, group in common)
    yield from (attention("float16", channels, group) for channels, group in [(64, 4), (128, 4), (256, 4)])
    yield from (attention("float32", channels, group) for channels, group in [(64, 4), (128, 2), (128, 4), (256, 8)])
    yield from (attention_any(dtype) for dtype in ELEMENTS)
    yield from (merge(dtype) for dtype in ELEMENTS)
