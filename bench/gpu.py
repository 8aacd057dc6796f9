"""The kernels on a GPU: bytes, time, share of a plain copy's bandwidth, and the best call of torch or FlashInfer.

``python -m bench.gpu`` measures all, ``python -m bench.gpu attention topk`` some; ``--output FILE`` writes the figures
with card, driver and date. Every input is several times the size of the L2 cache, and copies of it take turns, so that
none is read from the cache. Times are medians of events around single calls. Goals: ``docs/kernels/index.md``.
"""

from __future__ import annotations

import datetime
import json
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
import ml_dtypes
import numpy as np
from kvassay_kernels import attention, magicpig, pq, quest, rows, sparq, squeezed
from kvassay_reference.attention import State
from kvassay_reference.indexes.magicpig import Tables
from kvassay_reference.indexes.squeezed import Level
from rich.console import Console
from rich.table import Table

HEADS, KV_HEADS, CHANNELS = 32, 8, 128
MAP = [head * KV_HEADS // HEADS for head in range(HEADS)]
GROUP = HEADS // KV_HEADS
BF16 = np.dtype(ml_dtypes.bfloat16)
TURNS_BYTES = 1 << 30
"""Copies of an input take turns until they hold so many bytes together: ten times the largest L2 and more."""
REPEAT = 30
SHRINK = 1
"""What lengths are divided by; a test without a GPU divides them by some hundreds."""
Call = Callable[[], object]


@dataclass(frozen=True)
class Work:
    """One kernel at one size."""

    what: str
    read_bytes: int
    """What has to be read and written at least once."""
    call: Callable[[int], object]
    """The kernel on the copy of this number."""
    copies: int
    goal: float | None = None
    """Share of a copy's bandwidth to be reached."""
    others: tuple[tuple[str, Callable[[int], object]], ...] = ()
    """The same work by other libraries."""


@dataclass(frozen=True)
class Figure:
    """What was measured."""

    what: str
    read_bytes: int
    microseconds: float
    copy_share: float
    goal: float | None
    other: str
    other_microseconds: float | None

    @property
    def against(self) -> float | None:
        """Time over that of the fastest other call."""
        return None if self.other_microseconds is None else self.microseconds / self.other_microseconds


def scaled(length: int) -> int:
    """A length as it is measured."""
    return length // SHRINK


def device_arrays(cupy: Any, shape: Sequence[int], dtype: Any, copies: int = 1) -> list[Any]:
    """Random numbers on the device, made there."""
    made = []
    for _ in range(copies):
        numbers = cupy.random.standard_normal(tuple(shape), dtype=np.float32)
        made.append(numbers if dtype == np.float32 else numbers.astype(dtype))
    return made


def turns(size_bytes: int) -> int:
    """Copies that take turns."""
    return max(2, -(-TURNS_BYTES // size_bytes))


def as_torch(torch: Any, array: Any) -> Any:
    """The same memory; bfloat16 crosses as its bits."""
    if array.dtype == BF16:
        return torch.from_dlpack(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_dlpack(array)


def attentions(cupy: Any, torch: Any) -> Iterator[Work]:
    """Decode of one row for each sequence: in place and through pages of 16 rows."""
    for batch, length, goal in ((64, 8192, 0.85), (1, 32_768, 0.6), (1, 131_072, None), (16, 32_768, 0.85)):
        length = scaled(length)
        size = 2 * batch * length * KV_HEADS * CHANNELS * BF16.itemsize
        copies = turns(size)
        q = device_arrays(cupy, (batch, HEADS, CHANNELS), BF16)[0]
        k, v = (device_arrays(cupy, (batch, length, KV_HEADS, CHANNELS), BF16, copies) for _ in range(2))

        def in_place(i: int, q: Any = q, k: Any = k, v: Any = v) -> object:
            return attention.decode(q, k[i], v[i], scale=CHANNELS**-0.5, kv_head_of=MAP)

        others: list[tuple[str, Callable[[int], object]]] = []
        if torch is not None:
            packed = as_torch(torch, q).reshape(batch, KV_HEADS, GROUP, CHANNELS)
            pairs = [tuple(as_torch(torch, one[i]).transpose(1, 2) for one in (k, v)) for i in range(copies)]

            def sdpa(i: int, packed: Any = packed, pairs: Any = pairs) -> object:
                return torch.nn.functional.scaled_dot_product_attention(packed, *pairs[i])

            others.append(("torch SDPA, group packed", sdpa))
        pages = (
            [one.reshape(-1, 16, KV_HEADS, CHANNELS) for one in k],
            [one.reshape(-1, 16, KV_HEADS, CHANNELS) for one in v],
        )
        order = cupy.random.permutation(batch * length // 16).astype(np.int32).reshape(batch, length // 16)

        def paged(i: int, q: Any = q, pages: Any = pages, order: Any = order) -> object:
            return attention.decode(
                q, pages[0][i], pages[1][i], scale=CHANNELS**-0.5, kv_head_of=MAP, table=order, page_rows=16
            )

        name = f"batch {batch}, {length} rows, {HEADS}/{KV_HEADS} heads, bfloat16"
        yield Work(f"attention, {name}", size, in_place, copies, goal, tuple(others))
        flash = () if torch is None else tuple(flashinfer(torch, q, pages, order))
        yield Work(f"attention in pages of 16, {name}", size, paged, copies, None, flash)


def flashinfer(torch: Any, q: Any, pages: Any, order: Any) -> Iterator[tuple[str, Callable[[int], object]]]:
    """FlashInfer's decode over the same pages, where it can be imported."""
    try:
        import flashinfer as library
    except ImportError:
        return
    batch, entries = (int(size) for size in order.shape)
    room = torch.empty(128 << 20, dtype=torch.uint8, device="cuda")
    wrapper = library.BatchDecodeWithPagedKVCacheWrapper(room, "NHD", use_tensor_cores=True)
    starts = torch.arange(0, batch * entries + 1, entries, dtype=torch.int32, device="cuda")
    last = torch.full((batch,), 16, dtype=torch.int32, device="cuda")
    ids = as_torch(torch, order).reshape(-1)
    wrapper.plan(starts, ids, last, HEADS, KV_HEADS, CHANNELS, 16, q_data_type=torch.bfloat16)
    query = as_torch(torch, q)
    pairs = [tuple(as_torch(torch, one[i]) for one in pages) for i in range(len(pages[0]))]
    yield "FlashInfer batch decode", lambda i: wrapper.run(query, pairs[i])


def merges(cupy: Any, torch: Any) -> Iterator[Work]:
    """Many states of many heads."""
    states, heads = 33, 64 * HEADS
    size = states * heads * (CHANNELS + 2) * 4
    copies = turns(size)
    parts = [
        [
            State(*(device_arrays(cupy, shape, np.float32)[0] for shape in ((heads,), (heads,), (heads, CHANNELS))))
            for _ in range(states)
        ]
        for _ in range(min(copies, 4))
    ]
    yield Work(f"merge of {states} states of {heads} heads", size, lambda i: attention.merge(parts[i]), len(parts))


def selectors(cupy: Any, torch: Any) -> Iterator[Work]:
    """Quest's metadata and bounds, SparQ's products."""
    length, pages = scaled(262_144), scaled(65_536)
    size = length * KV_HEADS * CHANNELS * 2
    k = device_arrays(cupy, (length, KV_HEADS, CHANNELS), BF16, turns(size))
    others = []
    if torch is not None:
        shaped = [as_torch(torch, one).reshape(length // 16, 16, KV_HEADS * CHANNELS) for one in k]
        others.append(("torch aminmax", lambda i: (shaped[i].amin(1), shaped[i].amax(1))))
    yield Work(
        f"extrema of pages of 16, {length} rows", size, lambda i: quest.metadata(k[i], 16), len(k), others=tuple(others)
    )
    q = device_arrays(cupy, (HEADS, CHANNELS), BF16)[0]
    size = 2 * pages * KV_HEADS * CHANNELS * 2
    low, high = (device_arrays(cupy, (pages, KV_HEADS, CHANNELS), BF16, turns(size)) for _ in range(2))
    others = []
    if torch is not None:
        up = as_torch(torch, q).clamp(min=0).reshape(KV_HEADS, GROUP, CHANNELS)
        down = as_torch(torch, q).clamp(max=0).reshape(KV_HEADS, GROUP, CHANNELS)
        lows, highs = ([as_torch(torch, one).permute(1, 2, 0) for one in side] for side in (low, high))
        others.append(("torch, two matmuls", lambda i: up @ highs[i] + down @ lows[i]))
    yield Work(
        f"bounds of {pages} pages, {HEADS}/{KV_HEADS} heads",
        size,
        lambda i: quest.bounds(q, low[i], high[i], MAP),
        len(low),
        others=tuple(others),
    )
    chosen = cupy.asarray([sorted(np.random.default_rng(h).permutation(CHANNELS)[:32]) for h in range(KV_HEADS)])
    chosen = chosen.astype(np.int32)
    warm = cupy.full(HEADS, 8, dtype=np.float32)
    size = length * KV_HEADS * 32 * 2
    turned = [device_arrays(cupy, (KV_HEADS, CHANNELS, length), BF16)[0].transpose(2, 0, 1) for _ in range(2)]
    yield Work(
        f"products over 32 of {CHANNELS} channels, {length} rows, channel by channel",
        size,
        lambda i: sparq.logits(q, turned[i], chosen, warm, MAP),
        len(turned),
    )


def indexes(cupy: Any, torch: Any) -> Iterator[Work]:
    """PQ look-ups, matches of signatures, probabilities and shares."""
    count = scaled(1 << 20)
    for bits, parts in ((8, 32), (4, 64), (8, 4)):
        table = device_arrays(cupy, (HEADS, parts, 1 << bits), np.float32)[0]
        size = KV_HEADS * count * parts * bits // 8
        codes = [
            cupy.random.randint(0, 256, (KV_HEADS, count, parts * bits // 8), dtype=np.uint8)
            for _ in range(min(8, turns(size)))
        ]

        def scores(i: int, table: Any = table, codes: Any = codes, bits: int = bits) -> object:
            return pq.scores(table, codes[i], MAP, bits=bits)

        yield Work(f"PQ sums, m={parts}, b={bits}, {count} rows, {HEADS}/{KV_HEADS} heads", size, scores, len(codes))
    tables, length = 150, scaled(131_072)
    keys = [cupy.random.randint(0, 1024, (KV_HEADS, tables, length)).astype(np.uint16) for _ in range(3)]
    queries = cupy.random.randint(0, 1024, (HEADS, tables)).astype(np.uint16)
    yield Work(
        f"matches in {tables} tables, {length} rows, {HEADS}/{KV_HEADS} heads",
        keys[0].nbytes,
        lambda i: magicpig.matches(keys[i], queries, MAP),
        len(keys),
    )
    cosines = [cupy.random.uniform(-1, 1, scaled(1 << 26)).astype(np.float32) for _ in range(4)]
    yield Work(
        "probabilities, K=10, L=150",
        3 * cosines[0].nbytes,
        lambda i: magicpig.inclusion(cosines[i], Tables(10, 150, 2)),
        4,
    )
    clusters = scaled(1 << 20)
    q = device_arrays(cupy, (GROUP, CHANNELS), BF16)[0]
    levels = [Level(one, np.ones(clusters, int)) for one in device_arrays(cupy, (clusters, CHANNELS), BF16, 4)]
    yield Work(
        f"shares of {clusters} clusters",
        levels[0].centroids.nbytes,
        lambda i: squeezed.shares(q, levels[i], CHANNELS**-0.5),
        len(levels),
    )


def moves(cupy: Any, torch: Any) -> Iterator[Work]:
    """Gathers and the best of many numbers."""
    length = scaled(524_288)
    arrays = device_arrays(cupy, (length, KV_HEADS, CHANNELS), BF16, 2)
    ids = cupy.random.permutation(length)[: length // 2].astype(np.int32)
    others = []
    if torch is not None:
        whole, index = [as_torch(torch, one) for one in arrays], as_torch(torch, ids)
        others.append(("torch index_select", lambda i: torch.index_select(whole[i], 0, index)))
    size = 2 * ids.size * KV_HEADS * CHANNELS * 2
    yield Work(
        f"gather of {ids.size} rows of 2 KiB", size, lambda i: rows.take(arrays[i], ids), 2, others=tuple(others)
    )
    for batch, width, count in ((256, 32_768, 2048), (8, 1 << 20, 1024)):
        width = scaled(width)
        scores = device_arrays(cupy, (batch, width), np.float32, turns(batch * width * 4))
        others = []
        if torch is not None:
            numbers = [as_torch(torch, one) for one in scores]
            others.append(("torch topk", lambda i, n=numbers, c=count: torch.topk(n[i], c, dim=-1, sorted=False)))
        yield Work(
            f"best {count} of {width} numbers, {batch} rows",
            batch * width * 4,
            lambda i, s=scores, c=count: rows.best(s[i], c),  # type: ignore[misc]
            len(scores),
            others=tuple(others),
        )


PARTS: dict[str, Callable[[Any, Any], Iterator[Work]]] = {
    "attention": attentions,
    "merge": merges,
    "selectors": selectors,
    "indexes": indexes,
    "moves": moves,
}


def median_s(cupy: Any, call: Callable[[int], object], copies: int) -> float:
    """Median seconds of one call on the device, the copies by turns."""
    for i in range(2 * copies if copies < 4 else copies):
        call(i % copies)
    times = []
    for i in range(REPEAT):
        start, end = cupy.cuda.Event(), cupy.cuda.Event()
        start.record()
        call(i % copies)
        end.record()
        end.synchronize()
        times.append(cupy.cuda.get_elapsed_time(start, end) / 1e3)
    return statistics.median(times)


def copy_bytes_per_s(cupy: Any) -> float:
    """Bytes that a plain copy reads and writes in a second."""
    sources = [cupy.zeros(1 << 30, dtype=np.uint8) for _ in range(2)]
    target = cupy.empty_like(sources[0])
    seconds = median_s(cupy, lambda i: cupy.copyto(target, sources[i]), 2)
    return 2 * target.nbytes / seconds


def figures(cupy: Any, torch: Any, names: Sequence[str], copy: float) -> Iterator[Figure]:
    """Measure, and let go of the memory after each part."""
    for name in names or PARTS:
        for work in PARTS[name](cupy, torch):
            seconds = median_s(cupy, work.call, work.copies)
            timed = [(median_s(cupy, call, work.copies), other) for other, call in work.others]
            best, other = min(timed, default=(None, ""))
            yield Figure(
                work.what,
                work.read_bytes,
                seconds * 1e6,
                work.read_bytes / seconds / copy,
                work.goal,
                other,
                None if best is None else best * 1e6,
            )
        cupy.get_default_memory_pool().free_all_blocks()


def machine(cupy: Any) -> dict[str, Any]:
    """Card, driver and libraries."""
    properties = cupy.cuda.runtime.getDeviceProperties(0)
    return {
        "card": properties["name"].decode(),
        "multiprocessors": properties["multiProcessorCount"],
        "l2_bytes": properties["l2CacheSize"],
        "driver": cupy.cuda.runtime.driverGetVersion(),
        "cupy": cupy.__version__,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }


@click.command(help=__doc__)
@click.argument("names", nargs=-1, type=click.Choice(sorted(PARTS)))
@click.option("--output", type=click.Path(path_type=Path), help="Write the figures as JSON.")
def main(names: tuple[str, ...], output: Path | None) -> None:
    """Measure, print, write."""
    try:
        import cupy

        cupy.cuda.runtime.getDevice()
    except Exception as error:  # CuPy has an error of its own for each thing that is missing
        print(f"not measured: no CUDA device ({type(error).__name__}: {error})", file=sys.stderr)
        raise SystemExit(3) from None
    try:
        import torch
    except ImportError:
        torch = None
    copy = copy_bytes_per_s(cupy)
    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(f"{machine(cupy)['card']}: a plain copy moves {copy / 1e9:.0f} GB/s")
    table = Table("what", "MB", "microseconds", "of a copy", "goal", "against", "ratio")
    found = []
    for one in figures(cupy, torch, names, copy):
        found.append(one)
        goal = "" if one.goal is None else f"{one.goal:.2f} {'kept' if one.copy_share >= one.goal else 'MISSED'}"
        ratio = "" if one.against is None else f"{one.against:.2f}"
        size, time = f"{one.read_bytes / 1e6:.0f}", f"{one.microseconds:.0f}"
        table.add_row(one.what, size, time, f"{one.copy_share:.2f}", goal, one.other, ratio)
    console.print(table)
    if output:
        document = {"machine": machine(cupy), "copy_bytes_per_s": copy, "figures": [asdict(one) for one in found]}
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    if any(one.goal is not None and one.copy_share < one.goal for one in found):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
