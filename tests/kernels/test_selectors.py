"""Quest's extrema and bounds, and SparQ's products, against float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kvassay_kernels import KernelError, quest, sparq
from kvassay_reference.errors import Refusal

from .conftest import Device, inward
from .expected import DTYPES, HEADS, SOME, assert_sums, drawn

SHAPES = st.sampled_from([(1, 1), (2, 5), (1, 16), (2, 64), (3, 128)])
ROWS = st.sampled_from([0, 1, 15, 16, 17, 48, 100]) | st.integers(0, 200)


def extrema(k: Any, page_rows: int) -> tuple[Any, Any]:
    pages = [k[i : i + page_rows].astype(np.float32) for i in range(0, len(k), page_rows)]
    nothing = k[:0].astype(np.float32)
    low, high = (np.stack([how(page, axis=0) for page in pages]) if pages else nothing for how in (np.min, np.max))
    return low, high


@settings(max_examples=40, deadline=None)
@given(
    dtype=st.sampled_from(SOME),
    rows=ROWS,
    shape=SHAPES,
    page_rows=st.sampled_from([1, 2, 16, 33, 1 << 40]),
    seed=st.integers(0, 1 << 30),
)
def test_extrema_are_exact(
    device: Device, dtype: str, rows: int, shape: tuple[int, int], page_rows: int, seed: int
) -> None:
    k = drawn(np.random.default_rng(seed), (rows, *shape), DTYPES[dtype])
    low, high = (device.outward(one) for one in quest.metadata(device.inward(k), page_rows))
    right = extrema(k, page_rows)
    assert low.dtype == high.dtype == k.dtype
    np.testing.assert_array_equal(low.astype(np.float32), right[0])
    np.testing.assert_array_equal(high.astype(np.float32), right[1])


def test_a_number_that_is_none_stays_in_its_page(device: Device) -> None:
    k = np.arange(40, dtype=np.float32).reshape(10, 1, 4)
    k[0, 0, 1] = k[5, 0, 2] = k[9, 0, 3] = np.nan
    for found in (device.outward(one) for one in quest.metadata(device.inward(k), 4)):
        assert [tuple(one) for one in np.argwhere(np.isnan(found[:, 0]))] == [(0, 1), (1, 2), (2, 3)]


@settings(max_examples=30, deadline=None)
@given(
    dtype=st.sampled_from(SOME),
    steps=st.lists(st.sampled_from([0, 1, 2, 3, 15, 16, 17, 40]), min_size=1, max_size=5),
    shape=SHAPES,
    page_rows=st.sampled_from([1, 2, 16]),
    seed=st.integers(0, 1 << 30),
)
def test_appended_rows_give_what_all_rows_give(
    device: Device, dtype: str, steps: list[int], shape: tuple[int, int], page_rows: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    k = drawn(rng, (sum(steps), *shape), DTYPES[dtype])
    right, pages = extrema(k, page_rows), -(-len(k) // page_rows)
    low, high = (device.inward(np.zeros((0, *shape), DTYPES[dtype])) for _ in range(2))
    room = [device.inward(np.full((pages + 1, *shape), 7, DTYPES[dtype])) for _ in range(2)]
    rows = 0
    for n in steps:
        new = device.inward(k[rows : rows + n])
        before = [device.outward(one).copy() for one in (low, high)]
        kept = low, high
        assert quest.append_in_place(*room, rows, page_rows, new) == rows + n
        low, high, rows = quest.append(low, high, rows, page_rows, new)
        assert all((device.outward(a) == b).all() for a, b in zip(kept, before, strict=True))
    for found, given_room, one in zip((low, high), room, right, strict=True):
        np.testing.assert_array_equal(device.outward(found).astype(np.float32), one)
        np.testing.assert_array_equal(device.outward(given_room)[:pages].astype(np.float32), one)
        assert (device.outward(given_room)[pages:] == 7).all()


@settings(max_examples=30, deadline=None)
@given(
    dtype=st.sampled_from(SOME),
    pages=ROWS,
    channels=st.sampled_from([1, 5, 32, 64, 128]),
    heads=st.sampled_from(HEADS),
    seed=st.integers(0, 1 << 30),
)
def test_bounds_are_sums_of_the_greater_product(
    device: Device, dtype: str, pages: int, channels: int, heads: list[int], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    q, a, b = (drawn(rng, s, DTYPES[dtype]) for s in ((len(heads), channels), *[(pages, 2, channels)] * 2))
    q[rng.random(q.shape) < 0.1] = 0
    low, high = np.minimum(a, b), np.maximum(a, b)
    found = device.outward(quest.bounds(*inward(device, q, low, high), heads))
    wide = [one.astype(np.float64) for one in (q, low, high)]
    terms = [np.maximum(wide[0][i] * wide[1][:, head], wide[0][i] * wide[2][:, head]) for i, head in enumerate(heads)]
    assert_sums(found, np.stack(terms))


@settings(max_examples=30, deadline=None)
@given(
    dtype=st.sampled_from(SOME),
    rows=ROWS | st.sampled_from([64, 256, 1032]),
    channels=st.sampled_from([4, 64, 128]),
    count=st.integers(1, 64),
    heads=st.sampled_from(HEADS),
    by_channel=st.booleans(),
    seed=st.integers(0, 1 << 30),
)
def test_products_over_chosen_channels(
    device: Device, dtype: str, rows: int, channels: int, count: int, heads: list[int], by_channel: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    q, k = (drawn(rng, shape, DTYPES[dtype]) for shape in ((len(heads), channels), (rows, 2, channels)))
    count = min(count, channels)
    chosen = np.stack([np.sort(rng.permutation(channels)[:count]) for _ in range(2)]).astype(np.int32)
    warm = rng.uniform(0.5, 2, len(heads)).astype(np.float32)
    warm[rng.random(len(heads)) < 0.2] = 0
    if by_channel:
        keys = device.inward(np.ascontiguousarray(k.transpose(1, 2, 0))).transpose(2, 0, 1)
    else:
        keys = device.inward(k)
    found = device.outward(sparq.logits(device.inward(q), keys, *inward(device, chosen, warm), heads))
    for i, head in enumerate(heads):
        terms = q[i, chosen[head]].astype(np.float64) * k[:, head][:, chosen[head]].astype(np.float64)
        assert_sums(found[i], terms / warm[i] if warm[i] else terms * 0)


def test_what_no_kernel_takes_is_refused_in_a_line(device: Device) -> None:
    q, k = inward(device, np.zeros((1, 4), np.float32), np.zeros((9, 1, 4), np.float32))
    low, high = quest.metadata(k, 4)
    for call, error, says in (
        (lambda: quest.bounds(q.astype(np.float64), low, high, [0]), Refusal, "DTYPE_MISMATCH"),
        (lambda: quest.bounds(*(one.astype(np.float64) for one in (q, low, high)), [0]), KernelError, "not float64"),
        (lambda: quest.bounds(q, low[1:], high, [0]), Refusal, "SHAPE_MISMATCH"),
        (lambda: quest.bounds(q, low, high, [1]), Refusal, "HEAD_MAP_INVALID"),
        (lambda: quest.metadata(k[:, :, ::2], 4), KernelError, "not contiguous"),
        (lambda: quest.append(low, high, 13, 4, k), Refusal, "METADATA_BEHIND_COMMIT"),
        (lambda: quest.append_in_place(low, high, 9, 4, k), Refusal, "SHAPE_MISMATCH"),
    ):
        with pytest.raises(error, match=says):
            call()
