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


def extrema(dtype: str, wide: bool) -> Module:
    """Extrema of pages."""
    return module("extrema.cu", ELEMENT=ELEMENTS[dtype], WIDE=int(wide))


def scores(dtype: str, group: int, bounds: bool) -> Module:
    """Products with rows, or bounds of pages."""
    return module("scores.cu", ELEMENT=ELEMENTS[dtype], GROUP=group, BOUNDS=int(bounds))


def sliced(dtype: str, group: int, wide: bool) -> Module:
    """Products over a few channels."""
    return module("sliced.cu", ELEMENT=ELEMENTS[dtype], GROUP=group, WIDE=int(wide))


def pq(dtype: str, bits: int, queries: int, access: int) -> Module:
    """Tables and sums of look-ups."""
    return module("pq.cu", ELEMENT=ELEMENTS[dtype], BITS=bits, QUERIES=queries, ACCESS=access)


def lsh(dtype: str, group: int, wide: bool) -> Module:
    """Signatures and matches."""
    return module("lsh.cu", ELEMENT=ELEMENTS[dtype], GROUP=group, WIDE=int(wide))


def inclusion(dtype: str) -> Module:
    """Probabilities of being sampled, float32 or float64."""
    return module("inclusion.cu", REAL={"float32": "float", "float64": "double"}[dtype])


def clusters() -> Module:
    """Shares of clusters."""
    return module("clusters.cu")


def gather(unit_bytes: int) -> Module:
    """Gathered rows, moved by units of 1, 2, 4 or 16 bytes."""
    return module("gather.cu", UNIT={1: "unsigned char", 2: "unsigned short", 4: "unsigned", 16: "uint4"}[unit_bytes])


def topk() -> Module:
    """The largest of many numbers."""
    return module("topk.cu")


def specialisations() -> Iterable[Module]:
    """The modules that the tests compile for every architecture, chosen for use and not the product of all macros."""
    common = [(64, 1), (64, 8), (128, 1), (128, 4), (128, 8), (128, 16), (256, 2), (256, 8)]
    yield from (attention("bfloat16", channels, group) for channels, group in common)
    yield from (attention("float16", channels, group) for channels, group in [(64, 4), (128, 4), (256, 4)])
    yield from (attention("float32", channels, group) for channels, group in [(64, 4), (128, 2), (128, 4), (256, 8)])
    yield from (attention_any(dtype) for dtype in ELEMENTS)
    yield from (merge(dtype) for dtype in ELEMENTS)
    yield from (extrema(dtype, wide) for dtype, wide in [("bfloat16", True), ("float16", True), ("float32", False)])
    yield from (scores(dtype, 4, True) for dtype in ELEMENTS)
    yield from [scores("bfloat16", 8, True), scores("float32", 1, False), scores("bfloat16", 4, False)]
    yield from [sliced("bfloat16", 4, True), sliced("bfloat16", 8, True), sliced("float32", 4, True)]
    yield sliced("float32", 1, False)
    yield from (pq("bfloat16", bits, queries, 16) for bits, queries in [(4, 4), (8, 1), (8, 4)])
    yield from [pq("float32", 8, 4, 4), pq("float32", 4, 1, 1)]
    yield from [lsh("bfloat16", 4, True), lsh("bfloat16", 8, True), lsh("float32", 1, False)]
    yield from (inclusion(dtype) for dtype in ("float32", "float64"))
    yield from [clusters(), topk()]
    yield from (gather(unit) for unit in (16, 2))
