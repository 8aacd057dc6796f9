"""NVRTC without a GPU: compiles a module to a cubin and reads what ptxas says of each kernel.

The library and the headers are those of the wheels ``nvidia-cuda-nvrtc`` and ``nvidia-cuda-runtime``.
"""

from __future__ import annotations

import ctypes
import functools
import re
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from kvassay_kernels.sources import Module

ARCHITECTURES = ("sm_80", "sm_90", "sm_100")
SERIES = "13.0"
"""Of the wheels: ceilings hold for one compiler."""
SUPPORTED = "--ptxas-options=-v"


class Usage(NamedTuple):
    """What one kernel takes."""

    registers: int
    """Of a thread."""
    spill_bytes: int
    """Stores and loads of a thread for registers that it lacks."""
    local_bytes: int
    """Of a thread, for arrays that are no registers."""
    shared_bytes: int
    """Declared by the kernel, of a block."""


class NvrtcError(Exception):
    """NVRTC refused a text."""


def _file(package: str, end: str) -> Path | None:
    try:
        files = metadata.files(package) or []
    except metadata.PackageNotFoundError:
        return None
    return next((Path(str(one.locate())) for one in files if str(one).endswith(end)), None)


def version() -> str | None:
    """Of the installed wheel; ``None`` without one."""
    try:
        return metadata.version("nvidia-cuda-nvrtc")
    except metadata.PackageNotFoundError:
        return None


@functools.cache
def _library() -> ctypes.CDLL:
    path = _file("nvidia-cuda-nvrtc", "libnvrtc.so.13")
    if path is None:
        raise NvrtcError("no libnvrtc: pip install -r requirements/kernels.txt")
    for builtins in path.parent.glob("libnvrtc-builtins.so.*"):  # which it would look for elsewhere
        ctypes.CDLL(str(builtins), mode=ctypes.RTLD_GLOBAL)
    return ctypes.CDLL(str(path))


def headers() -> Path:
    """The folder of ``cuda_fp16.h``."""
    path = _file("nvidia-cuda-runtime", "include/cuda_fp16.h")
    if path is None:
        raise NvrtcError("no CUDA headers: pip install -r requirements/kernels.txt")
    return path.parent


def _check(code: int) -> None:
    if code:
        library = _library()
        library.nvrtcGetErrorString.restype = ctypes.c_char_p
        raise NvrtcError(library.nvrtcGetErrorString(code).decode())


def compile_module(module: Module, architecture: str) -> tuple[bytes, str]:
    """The cubin of a module and the compiler's log; raises :class:`NvrtcError` with the log."""
    library, program = _library(), ctypes.c_void_p()
    text = module.text.encode()
    _check(library.nvrtcCreateProgram(ctypes.byref(program), text, module.file.encode(), 0, None, None))
    try:
        options = [*module.options, f"-I{headers()}", f"-arch={architecture}", SUPPORTED]
        given = (ctypes.c_char_p * len(options))(*(one.encode() for one in options))
        code = library.nvrtcCompileProgram(program, len(options), given)
        log = _string(program, "nvrtcGetProgramLog").decode()
        if code:
            raise NvrtcError(f"{module.name} for {architecture}:\n{log}")
        return _string(program, "nvrtcGetCUBIN"), log
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def _string(program: ctypes.c_void_p, name: str) -> bytes:
    library, size = _library(), ctypes.c_size_t()
    _check(getattr(library, f"{name}Size")(program, ctypes.byref(size)))
    room = ctypes.create_string_buffer(size.value)
    _check(getattr(library, name)(program, room))
    return room.raw


def usage(log: str) -> dict[str, Usage]:
    """Each kernel of a log and what it takes."""
    found, name, spilled, local = {}, "", 0, 0
    for line in log.splitlines():
        if start := re.search(r"Compiling entry function '(\w+)'", line):
            name = start[1]
        if spill := re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line):
            local, spilled = int(spill[1]), int(spill[2]) + int(spill[3])
        if used := re.search(r"Used (\d+) registers", line):
            shared = re.search(r"(\d+) bytes smem", line)
            found[name] = Usage(int(used[1]), spilled, local, int(shared[1]) if shared else 0)
    return found
