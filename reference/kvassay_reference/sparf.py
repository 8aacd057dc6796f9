"""SparF, InstInfer's attention in storage: channels, rows, pages, and the mean's correction.

K is stored twice: by token, like V, and by channel, so that few channels of all rows can be read. Selection is that of
the chapter ``spec/placement.md``, section 04X of the article. Shapes: ``q`` [H_q, d], ``k_channel`` [H_kv, d, T],
``k`` [T, H_kv, d], ``v`` [T, H_kv, d_v], ``v_mean`` [H_kv, d_v]. The output is approximate, wherever it is computed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from array_api_compat import array_namespace

from . import attention
from .attention import Array, Mask
from .errors import Refusal
from .offload import Rule
from .placement import check_map

Json = Mapping[str, Any]


class Selection(NamedTuple):
    """What one query head selects."""

    channels: list[int]
    share: float
    """Share of the selected channels in the query's 1-norm; 1 for a query of zeros."""
    positions: list[int]
    alpha: float
    """Softmax mass of the selected rows, by importance."""


def top(scores: Array, count: int) -> list[int]:
    """Places of the largest scores, ascending; of equal ones the lower places. ``scores`` [N]."""
    xp = array_namespace(scores)
    order = xp.argsort(-scores, stable=True)[: min(count, scores.shape[0])]
    return sorted(int(place) for place in order)


def salient(q: Array, count: int) -> tuple[list[int], float]:
    """Step 1: the channels where one head's query is largest in magnitude, and their share of its 1-norm."""
    xp = array_namespace(q)
    size = xp.abs(q)
    channels = top(size, count)
    whole = float(xp.sum(size))
    return channels, float(xp.sum(xp.take(size, xp.asarray(channels), axis=0))) / whole if whole else 1.0


def scores(q: Array, k_channel: Array, channels: Sequence[int]) -> Array:
    """Step 3 before scale and temperature: dot products over the selected channels alone, [T]."""
    xp = array_namespace(q, k_channel)
    picked = xp.asarray(list(channels))
    rows = xp.astype(xp.take(k_channel, picked, axis=0), q.dtype)
    return xp.sum(xp.take(q, picked, axis=0)[:, None] * rows, axis=0)


def temperature(scale: float, share: float) -> float:
    """Factor of the importance: the scale over the root of the channels' share."""
    return float(scale / share**0.5)


def importance(raw: Array, factor: float) -> Array:
    """Softmax over all rows, [T]."""
    xp = array_namespace(raw)
    logits = raw * factor
    weights = xp.exp(logits - xp.max(logits))
    return weights / xp.sum(weights)


def ranked(raw: Array, scale: float, count: int) -> list[int]:
    """Step 4: rows by score and not by rounded weight, so that equal scores alone are ties."""
    return top(raw * float((scale > 0) - (scale < 0)), count)


def check_channels(q: Array, k_channel: Array, kv_head_of: Sequence[int]) -> None:
    """Refuse dtypes, shapes and head maps that do not fit, and a history of no rows."""
    if q.dtype != k_channel.dtype or "float" not in str(q.dtype):
        raise Refusal("DTYPE_MISMATCH", f"q and k_channel are {q.dtype} and {k_channel.dtype}")
    if q.ndim != 2 or k_channel.ndim != 3 or q.shape[1] != k_channel.shape[1]:
        raise Refusal("SHAPE_MISMATCH", f"q and k_channel have shapes {q.shape} and {k_channel.shape}")
    check_map(kv_head_of, q.shape[0], k_channel.shape[0])
    if k_channel.shape[2] == 0:
        raise Refusal("NO_LEGAL_ROWS", "the history holds no row")


def check_budget(channels: int, rows: int, width: int) -> None:
    """Refuse fewer than one channel or row, and more channels than there are; more rows are all rows."""
    if not 1 <= channels <= width or rows < 1:
        raise Refusal("SPARF_BUDGET_INVALID", f"r {channels}, k {rows}, d {width}")


def check_copies(request: Json, k: Array, k_channel: Array, v: Array, v_mean: Array) -> None:
    """Refuse copies whose dtypes or shapes differ, and a history of no rows."""
    if len({str(one.dtype) for one in (k, k_channel, v_mean)}) > 1:
        raise Refusal("DTYPE_MISMATCH", "the copies have different dtypes")
    layout = request["layout"]
    rows, heads, width = k.shape
    turned = k_channel.shape == (heads, width, rows) and v_mean.shape == v.shape[1:]
    if not turned or (layout["key_channels"], layout["value_channels"]) != (width, v.shape[2]):
        raise Refusal("SHAPE_MISMATCH", f"k_channel and v_mean have shapes {k_channel.shape} and {v_mean.shape}")
    if rows == 0:
        raise Refusal("NO_LEGAL_ROWS", "the history holds no row")


def check_index(index: Mapping[str, int], rows: int) -> None:
    """Refuse copies that do not hold the same rows."""
    if any(count != rows for count in index.values()):
        raise Refusal("DUAL_INDEX_DIVERGED", f"{dict(index)} for {rows} rows")


def attended(q: Array, k: Array, v: Array, head: int, positions: Sequence[int], scale: float) -> Array:
    """Step 6: exact softmax of one query head over the selected rows, all channels; ``q`` [1, d], output [d_v]."""
    xp = array_namespace(q, k, v)
    picked = xp.asarray(list(positions), dtype=xp.int64)
    keys, values = (xp.take(one[:, head : head + 1, :], picked, axis=0) for one in (k, v))
    out, _ = attention.dense(
        q, keys, values, scale=scale, kv_head_of=[0], positions=picked, q_position=0, mask=Mask(causal=False)
    )
    return out[0, :]


def corrected(out: Array, alpha: float, mean: Array) -> Array:
    """Step 7: what was omitted counts as the mean of V."""
    xp = array_namespace(out)
    return out * alpha + xp.astype(mean, out.dtype) * (1.0 - alpha)


# ---- pages -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Layout:
    """Pages of flash: rows of K or of V of one head, or channels of rows of K of one head."""

    page_bytes: int
    item_bytes: int
    key_channels: int
    value_channels: int
    page_rows: int
    page_channels: int
    channel_page_rows: int

    def rules(self) -> Iterator[Rule]:
        """What is put on a page fits it."""
        widest = self.page_rows * max(self.key_channels, self.value_channels)
        fits = max(widest, self.page_channels * self.channel_page_rows) * self.item_bytes <= self.page_bytes
        yield fits, "PAGE_LAYOUT_INVALID"


def blocks(count: int, size: int) -> int:
    """Blocks that hold so many units."""
    return -(-count // size)


@dataclass(frozen=True)
class HeadRead:
    """What one K/V head's pages give: the union over its query heads."""

    channels: list[int]
    positions: list[int]
    channel_pages: list[list[int]]
    token_pages: list[int]


def head_read(
    layout: Layout, rows: int, channels: Sequence[Sequence[int]], positions: Sequence[Sequence[int]]
) -> HeadRead:
    """Pages that hold at least one selected unit of any of these query heads, each once."""
    every = sorted({unit for several in channels for unit in several})
    which = sorted({unit for several in positions for unit in several})
    groups = sorted({channel // layout.page_channels for channel in every})
    pages = [[group, block] for group in groups for block in range(blocks(rows, layout.channel_page_rows))]
    return HeadRead(every, which, pages, sorted({row // layout.page_rows for row in which}))


@dataclass(frozen=True)
class Pages:
    """Bytes of a selection."""

    physical_bytes: int
    logical_bytes: int
    filtered_bytes: int
    dense_bytes: int
    key_token_bytes: int
    key_channel_bytes: int
    value_bytes: int


def on_pages(layout: Layout, rows: int, one: HeadRead) -> int:
    """Bytes of the units on one head's pages, selected or not."""
    found = 0
    for group, block in one.channel_pages:
        wide = min(layout.page_channels, layout.key_channels - group * layout.page_channels)
        found += wide * min(layout.channel_page_rows, rows - block * layout.channel_page_rows)
    for block in one.token_pages:
        long = min(layout.page_rows, rows - block * layout.page_rows)
        found += long * (layout.key_channels + layout.value_channels)
    return found * layout.item_bytes


def kept_bytes(layout: Layout, rows: int, one: HeadRead) -> int:
    """Bytes that pass one head's filters: selected channels of all rows, and selected rows of K and V."""
    wide = layout.key_channels + layout.value_channels
    return (len(one.channels) * rows + len(one.positions) * wide) * layout.item_bytes


def page_bytes(layout: Layout, one: HeadRead) -> int:
    """Bytes of one head's pages, whole: a page of rows is one of K and one of V."""
    return (len(one.channel_pages) + 2 * len(one.token_pages)) * layout.page_bytes


def ledger(layout: Layout, rows: int, heads: Sequence[HeadRead]) -> Pages:
    """Pages of all K/V heads, and what both layouts store."""
    kept = sum(kept_bytes(layout, rows, one) for one in heads)
    by_token = len(heads) * blocks(rows, layout.page_rows) * layout.page_bytes
    per_head = blocks(layout.key_channels, layout.page_channels) * blocks(rows, layout.channel_page_rows)
    return Pages(
        physical_bytes=sum(page_bytes(layout, one) for one in heads),
        logical_bytes=kept,
        filtered_bytes=sum(on_pages(layout, rows, one) for one in heads) - kept,
        dense_bytes=2 * by_token,
        key_token_bytes=by_token,
        key_channel_bytes=len(heads) * per_head * layout.page_bytes,
        value_bytes=by_token,
    )


def units_rules(several: Sequence[Sequence[int]], limit: int) -> Iterator[Rule]:
    """Units that exist, each once, ascending."""
    for units in several:
        yield list(units) == sorted({unit for unit in units if 0 <= unit < limit}), "UNIT_OUT_OF_RANGE"


def touched(first: int, count: int, size: int) -> int:
    """Blocks that rows from ``first`` on touch."""
    return (first + count - 1) // size - first // size + 1 if count else 0


def appended_mean(mean: Array, rows: int, new: Array) -> Array:
    """Mean of V after new rows [n, H_kv, d_v], from the mean before and nothing else."""
    xp = array_namespace(mean, new)
    wide = xp.float64 if mean.dtype == xp.float64 else xp.float32
    old, fresh = xp.astype(mean, wide), xp.astype(new, wide)
    total = rows + new.shape[0]
    return old if not new.shape[0] else old * (rows / total) + xp.sum(fresh, axis=0) / total
