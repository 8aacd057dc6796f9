"""Every kernel at the shapes where it is most likely to go wrong, for sanitizers; nobody looks at the numbers.

``python -m tests.kernels.boundaries thread`` runs them under ThreadSanitizer, ``address`` under AddressSanitizer and
UndefinedBehaviorSanitizer. A second argument is a pattern of names that are run, a third one names a defect of
:mod:`.defects`. The exit status is 0 where nothing was reported. The process starts itself anew with the sanitizer's
library loaded first.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
from kvassay_emulator import Emulator, compiler
from kvassay_kernels import attention, magicpig, pq, quest, rows, runtime, sparq, squeezed
from kvassay_reference.attention import Mask, Pages, State
from kvassay_reference.indexes.magicpig import Tables
from kvassay_reference.indexes.squeezed import Level

from .defects import DEFECTS

OPTIONS = {
    "thread": ("-g", "-O1", "-fsanitize=thread"),
    "address": ("-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
}
LIBRARY = {"thread": "libtsan.so", "address": "libasan.so"}
SETTINGS = {"TSAN_OPTIONS": "halt_on_error=1:exitcode=66", "ASAN_OPTIONS": "detect_leaks=0:exitcode=66"}
BF16 = ml_dtypes.bfloat16
FEW = [0, 0, 1, 1, 1]
"""A head map of five query heads."""
Call = Callable[[], object]


def numbers(*shape: int, dtype: Any = np.float32) -> Any:
    """Numbers in a block of memory of exactly their size."""
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)


def attentions() -> Iterator[tuple[str, Call]]:
    """Rows in place, paged and listed, around the edges of tiles and splits."""

    def one(dtype: Any, channels: int, count: int, kv_head_of: list[int], **more: Any) -> object:
        q, k = numbers(len(kv_head_of), channels, dtype=dtype), numbers(count, 2, channels, dtype=dtype)
        v = numbers(count, 2, more.pop("value_channels", channels), dtype=dtype)
        page_rows, pages = more.pop("page_rows", 0), None
        if page_rows:
            used = -(-count // page_rows)
            pages = Pages(page_rows, list(range(used))[::-1], count)
            k, v = (numbers(used, page_rows, *array.shape[1:], dtype=dtype) for array in (k, v))
        return attention.partial(
            q, k, v, scale=0.1, kv_head_of=kv_head_of, q_position=count, pages=pages,
            positions=range(count), mask=Mask(True, more.pop("window", None)), **more,
        )  # fmt: skip

    shapes = [(BF16, 128, FEW), (np.float32, 64, [0, 1]), (np.float16, 256, [1]), (np.float32, 5, FEW)]
    for dtype, channels, heads in shapes:
        for count in (0, 1, 3, 4, 5, 31, 32, 33, 63, 65, 129):
            yield f"attention {channels} {count}", lambda a=(dtype, channels, count, heads): one(*a)
        yield f"attention {channels} paged", lambda a=(dtype, channels, 37, heads): one(*a, page_rows=16)
        yield f"attention {channels} window", lambda a=(dtype, channels, 37, heads): one(*a, window=7)
    yield "attention in splits", lambda: one(BF16, 128, 1100, [0, 1])
    yield "attention of sixteen", lambda: one(BF16, 128, 70, [0] * 17)
    yield "attention of wide values", lambda: one(np.float32, 3, 40, FEW, value_channels=33)

    def listed(**more: Any) -> object:
        table = np.asarray([[[0, 5, 39, -1], [39, 38, 1, 0]], [[7, -1, -1, -1], [-1] * 4]], np.int32)
        k = numbers(2, 40, 2, 64, dtype=BF16)
        return attention.decode(numbers(2, 2, 64, dtype=BF16), k, k, scale=1, kv_head_of=[1, 0], table=table, **more)

    yield "listed", listed
    yield "listed, with lengths", lambda: listed(lengths=np.asarray([[3, 4], [1, 0]], np.int32))
    for count in (1, 2, 128, 129):
        states = [State(numbers(3), numbers(3), numbers(3, 130)) for _ in range(count)]
        yield f"merge of {count}", lambda states=states: attention.merge(states)


def selectors() -> Iterator[tuple[str, Call]]:
    """Pages and rows around accesses and blocks."""
    for dtype, channels in ((BF16, 64), (np.float32, 32), (np.float32, 5)):
        for count in (0, 1, 15, 16, 17, 33):
            k, q = numbers(count, 2, channels, dtype=dtype), numbers(5, channels, dtype=dtype)

            def extrema(k: Any = k, q: Any = q) -> object:
                low, high = quest.metadata(k, 16)
                quest.append(low, high, len(k), 16, k[:7].copy())
                return quest.bounds(q, low, high, FEW)

            yield f"quest {channels} {count}", extrema
            chosen = np.asarray([[0, channels - 1, 2]] * 2, np.int32)
            yield f"sparq {channels} {count}", lambda k=k, q=q, c=chosen: sparq.logits(q, k, c, numbers(5) ** 2, FEW)
            turned = np.ascontiguousarray(k.transpose(1, 2, 0)).transpose(2, 0, 1)
            yield f"sparq turned {count}", lambda k=turned, q=q, c=chosen: sparq.logits(q, k, c, numbers(5) ** 2, FEW)
    for count in (1, 16, 511, 512, 513, 1030):
        yield f"top {count}", lambda count=count: rows.top(numbers(count), min(count, 20))
        yield f"top all {count}", lambda count=count: rows.top(numbers(2, count).round(), count)
    for shape in ((1,), (7,), (8,), (2, 64)):
        for dtype in (np.uint8, np.float16, np.float32):
            array = numbers(9, *shape).astype(dtype)
            yield f"take {shape}", lambda array=array: rows.take(array, [8, 0, 9, -1, 4])
    yield "take of heads", lambda: rows.take_heads(numbers(9, 2, 24, dtype=BF16), [[0, 8], [9, -1]])


def indexes() -> Iterator[tuple[str, Call]]:
    """Codes, signatures and clusters."""
    for bits, parts in ((8, 1), (8, 4), (8, 16), (4, 3), (4, 8), (4, 32)):
        for count in (1, 255, 257):
            codes = np.full((2, count, pq.row_bytes(parts, bits)), 255, np.uint8)
            table = numbers(5, parts, 1 << bits)
            yield f"pq {bits} {parts}", lambda t=table, c=codes, b=bits: pq.scores(t, c, FEW, bits=b)
    yield "pq tables", lambda: pq.tables(numbers(5, 12), numbers(2, 3, 16, 4), FEW)
    for count in (1, 7, 8, 16, 17):
        x, planes = numbers(count, 33), numbers(9, 3, 33)
        yield f"signatures {count}", lambda x=x, planes=planes: magicpig.signatures(x, planes)
        keys, own = (np.zeros(shape, np.uint16) for shape in ((2, 9, count), (5, 9)))
        yield f"matches {count}", lambda keys=keys, own=own: magicpig.matches(keys, own, FEW)
    yield "inclusion", lambda: magicpig.inclusion(numbers(257), Tables(10, 150, 2))
    for count in (1, 255, 257):
        level = Level(numbers(count, 32), [1] * count)
        yield f"shares {count}", lambda level=level: squeezed.shares(numbers(3, 32), level, 0.1)


def every() -> Iterator[tuple[str, Call]]:
    """All, by name."""
    yield from attentions()
    yield from selectors()
    yield from indexes()


def main(sanitizer: str, only: str = "", defect: str = "") -> int:
    """Run all, or start the process that does."""
    if os.environ.get("KVASSAY_SANITIZER") != sanitizer:
        return restart(sanitizer, only, defect)
    texts = next((one.texts for one in DEFECTS if one.name == defect), {})
    with runtime.instead(Emulator(extra=OPTIONS[sanitizer], texts=texts)):
        for about, call in every():
            if re.match(only, about):
                print(about, flush=True)
                call()
    return 0


def restart(sanitizer: str, *arguments: str) -> int:
    """The same in a process with the sanitizer's library loaded first, and memory where ThreadSanitizer wants it."""
    command = [compiler() or "g++", f"-print-file-name={LIBRARY[sanitizer]}"]
    library = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    more = {"LD_PRELOAD": library, "KVASSAY_SANITIZER": sanitizer, "OPENBLAS_NUM_THREADS": "1", **SETTINGS}
    start = ["setarch", "-R"] if sanitizer == "thread" else []
    again = [*start, sys.executable, "-m", "tests.kernels.boundaries", sanitizer, *arguments]
    return subprocess.run(again, env={**os.environ, **more}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
