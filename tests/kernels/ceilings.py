"""The ceilings of registers, spills and shared memory, and the command that writes them.

``python -m tests.kernels.ceilings`` compiles every specialisation and writes what it takes to ``ceilings.json``; a
change of that file is to be read like a change of code.
"""

from __future__ import annotations

import json
from pathlib import Path

from kvassay_kernels.sources import Module, specialisations

from . import nvrtc

PATH = Path(__file__).with_suffix(".json")
Measured = dict[str, list[int]]
"""Kernel to registers, bytes of spills, of local arrays, and of declared shared memory."""


def measure(module: Module, architecture: str) -> Measured:
    """What the kernels of a module take."""
    _, log = nvrtc.compile_module(module, architecture)
    return {name: list(used) for name, used in sorted(nvrtc.usage(log).items())}


def committed() -> dict[str, dict[str, Measured]]:
    """Module and architecture to the ceilings."""
    found: dict[str, dict[str, Measured]] = json.loads(PATH.read_text(encoding="utf-8"))
    return found


def ceiling(found: Measured) -> Measured:
    """Registers rounded up to eights, in which a multiprocessor gives them out; the compiler varies by one or two."""
    return {name: [-(-registers // 8) * 8, *rest] for name, (registers, *rest) in found.items()}


def main() -> None:
    """Write the file, a line for each module and architecture."""
    lines = []
    for module in specialisations():
        rows = [f'  "{one}": {json.dumps(ceiling(measure(module, one)))}' for one in nvrtc.ARCHITECTURES]
        lines.append(f" {json.dumps(module.name)}: {{\n" + ",\n".join(rows) + "\n }")
    PATH.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
