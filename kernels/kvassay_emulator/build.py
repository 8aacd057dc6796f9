"""Builds modules of kernels into shared libraries, once for each content.

The libraries lie in ``$KVASSAY_EMULATOR_CACHE``, or in ``kvassay-emulator`` of the user's cache folder, under the
digest of all that goes into them.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from kvassay_kernels.sources import CSRC, KERNEL, Module

INCLUDE = Path(__file__).parent / "include"
FLAGS = (
    "-O2",
    "-fPIC",
    "-shared",
    "-fvisibility=hidden",
    "-fno-gnu-unique",
    "-fno-strict-aliasing",
    "-U_FORTIFY_SOURCE",
)
"""Of every build; kernels read memory as other types, as CUDA allows them to."""


class CompilerMissing(Exception):
    """There is no C++ compiler, or it refused a kernel."""


def compiler() -> str | None:
    """The C++ compiler: ``$CXX``, or the first of g++ and c++ that there is."""
    return next(
        (found for name in (os.environ.get("CXX"), "g++", "c++") if name and (found := shutil.which(name))), None
    )


def cache() -> Path:
    """The folder of built libraries."""
    named = os.environ.get("KVASSAY_EMULATOR_CACHE")
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(named) if named else base / "kvassay-emulator"


def build(module: Module, extra: Sequence[str] = (), *, text: str | None = None) -> Path:
    """The library of a module, built now where it is not in the cache; ``text`` replaces that of its file.

    Raises :class:`CompilerMissing`.
    """
    command = compiler()
    if command is None:
        raise CompilerMissing("the emulated kernels need a C++ compiler: install g++, or name one in CXX")
    source = module.text if text is None else text
    source += "\n" + "".join(f"EMULATED_KERNEL({name})\n" for name in KERNEL.findall(source))
    options = [*FLAGS, *module.options, f"-I{INCLUDE}", "-include", "cuda_on_cpu.h", *extra]
    digest = _digest(command, source, options)
    library = cache() / f"{Path(module.file).stem}-{digest}.so"
    if library.exists():
        return library
    library.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=library.parent) as folder:
        made = Path(folder, "kernel.so")
        done = subprocess.run(
            [command, *options, "-x", "c++", "-", "-o", str(made)],
            input=source,
            text=True,
            capture_output=True,
            check=False,
        )
        if done.returncode:
            raise CompilerMissing(f"{module.name}: {done.stderr.strip()[-2000:]}")
        made.replace(library)  # in one step: another process may build the same
    return library


def _digest(command: str, source: str, options: Sequence[str]) -> str:
    """Of all that goes into a library."""
    found = hashlib.sha256("\0".join([command, source, *options]).encode())
    for path in (*sorted(INCLUDE.iterdir()), *sorted(CSRC.glob("*.cuh"))):
        found.update(path.read_bytes())
    return found.hexdigest()[:24]
