"""Quest on a device: extrema of pages and the bounds that they give, as in :mod:`kvassay_reference.selectors.quest`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from kvassay_reference.errors import Refusal

from . import sources
from .arrays import aligned, dtype_named, element, need_contiguous, same
from .grids import chunks
from .rows import score_rows
from .runtime import Array, Runtime, runtime_of

THREADS = 256


def metadata(k: Array, page_rows: int) -> tuple[Array, Array]:
    """Least and greatest value of each channel in each page, [P, H_kv, d], of keys [T, H_kv, d].

    The rows of ``k`` may lie apart; a row itself is contiguous.
    """
    runtime = runtime_of(k)
    same(k.ndim == 3, k=k)
    shape = (-(-int(k.shape[0]) // page_rows), *(int(size) for size in k.shape[1:]))
    low, high = (runtime.empty(shape, dtype_named(element(k))) for _ in range(2))
    _extrema(runtime, low, high, 0, page_rows, k)
    return low, high


def append(minimum: Array, maximum: Array, rows: int, page_rows: int, k: Array) -> tuple[Array, Array, int]:
    """Metadata of all pages that hold rows after the keys [n, H_kv, d] are appended, as new arrays.

    An engine with room for pages to come uses :func:`append_in_place`. Raises :class:`Refusal`.
    """
    runtime = runtime_of(minimum, maximum, k)
    _check_append(minimum, maximum, rows, page_rows, k)
    total = rows + int(k.shape[0])
    pages, used = -(-total // page_rows), -(-rows // page_rows)
    found = []
    for old in (minimum, maximum):
        new = runtime.empty((pages, *(int(size) for size in old.shape[1:])), old.dtype)
        new[:used, ...] = old[:used, ...]
        found.append(new)
    _extrema(runtime, found[0], found[1], rows, page_rows, k)
    return found[0], found[1], total


def append_in_place(minimum: Array, maximum: Array, rows: int, page_rows: int, k: Array) -> int:
    """Bring metadata [P, H_kv, d] up to date that have room for ``rows`` + n rows; how many rows they are of then.

    Only the pages that the new keys [n, H_kv, d] enter are read and written. Raises :class:`Refusal`.
    """
    runtime = runtime_of(minimum, maximum, k)
    _check_append(minimum, maximum, rows, page_rows, k)
    total = rows + int(k.shape[0])
    same(int(minimum.shape[0]) * page_rows >= total, minimum=minimum, k=k)
    _extrema(runtime, minimum, maximum, rows, page_rows, k)
    return total


def bounds(q: Array, minimum: Array, maximum: Array, kv_head_of: Sequence[int], accumulate: str = "float32") -> Array:
    """Bound of each page for each query head, unscaled, float32 [H_q, P]; raises :class:`Refusal`."""
    if accumulate != "float32":
        raise Refusal("DTYPE_MISMATCH", f"the kernels add in float32, not {accumulate}")
    element(q, minimum, maximum)
    same(minimum.ndim == 3 and minimum.shape == maximum.shape, minimum=minimum, maximum=maximum)
    return score_rows(q, minimum, kv_head_of, high=maximum)


def _check_append(minimum: Array, maximum: Array, rows: int, page_rows: int, k: Array) -> None:
    element(minimum, maximum, k)
    same(minimum.shape == maximum.shape and k.ndim == 3, minimum=minimum, maximum=maximum, k=k)
    same(minimum.shape[1:] == k.shape[1:], minimum=minimum, k=k)
    if int(minimum.shape[0]) * page_rows < rows:
        raise Refusal("METADATA_BEHIND_COMMIT", f"{minimum.shape[0]} pages for {rows} rows")


def _extrema(runtime: Runtime, low: Array, high: Array, rows: int, page_rows: int, k: Array) -> None:
    """Write the extrema of the pages that the keys enter."""
    need_contiguous(runtime, minimum=low, maximum=high)
    need_contiguous(runtime, axes=2, k=k)
    width, count = int(k.shape[1]) * int(k.shape[2]), int(k.shape[0])
    if not count or not width:
        return
    row_stride = runtime.strides(k)[0]
    wide = aligned(runtime, [k, low, high], [row_stride, width])
    pages = -(-(rows + count) // page_rows) - rows // page_rows
    accesses = width // (16 // k.dtype.itemsize) if wide else width
    # A page of more rows than there are is a page of as many.
    sizes: list[Any] = [np.int32(one) for one in (rows, count, min(page_rows, rows + count), width)]
    runtime.launch(
        sources.extrema(element(k), wide),
        "page_extrema",
        (chunks(pages * accesses, THREADS),),
        THREADS,
        [k, low, high, *sizes, np.int64(row_stride)],
    )
