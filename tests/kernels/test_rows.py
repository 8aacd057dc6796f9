"""Products with rows, gathered rows, and the best of many numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kvassay_kernels import grids, rows

from .conftest import Device, inward
from .expected import DTYPES, HEADS, SOME, assert_sums, drawn

ROWS = st.sampled_from([0, 1, 3, 4, 15, 16, 17, 63, 64, 65, 127, 129, 300]) | st.integers(0, 700)
MAPS = st.sampled_from([*HEADS, [2, 1, 0, 0, 1, 2]])


@settings(max_examples=30, deadline=None)
@given(
    dtype=st.sampled_from(SOME),
    count=ROWS,
    heads=MAPS,
    channels=st.sampled_from([1, 4, 7, 8, 24, 64, 100, 128, 264]),
    scale=st.sampled_from([1.0, 0.25, -3.0]),
    seed=st.integers(0, 1 << 30),
)
def test_products_with_rows(
    device: Device, dtype: str, count: int, heads: list[int], channels: int, scale: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    q, k = (drawn(rng, shape, DTYPES[dtype]) for shape in ((len(heads), channels), (count, 3, channels)))
    found = device.outward(rows.score_rows(*inward(device, q, k), heads, scale=scale))
    terms = [scale * q[i].astype(np.float64) * k[:, head].astype(np.float64) for i, head in enumerate(heads)]
    assert found.dtype == np.float32
    assert_sums(found, np.stack(terms))


@settings(max_examples=40, deadline=None)
@given(
    dtype=st.sampled_from([np.uint8, np.float16, np.float32, np.float64]),
    shape=st.sampled_from([(1,), (3,), (2, 4), (2, 64), (8, 128), (5, 33)]),
    total=st.integers(1, 60),
    count=st.integers(0, 150),
    seed=st.integers(0, 1 << 30),
)
def test_rows_are_gathered_to_the_bit(
    device: Device, dtype: Any, shape: tuple[int, ...], total: int, count: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    array = rng.integers(0, 256, (total, *shape, np.dtype(dtype).itemsize), dtype=np.uint8).view(dtype)[..., 0]
    ids = rng.integers(0, total, count)
    found = device.outward(rows.take(device.inward(array), ids.tolist()))
    assert found.dtype == array.dtype
    assert found.tobytes() == array[ids].tobytes()


def test_each_head_gathers_rows_of_its_own_from_rows_that_lie_apart(device: Device) -> None:
    rng = np.random.default_rng(2)
    array = drawn(rng, (50, 5, 24), np.float16)
    ids = rng.integers(0, 50, (3, 17)).astype(np.int32)
    found = device.outward(rows.take_heads(device.inward(array)[:, 1:4], device.inward(ids)))
    assert (found == np.stack([array[ids[head], 1 + head] for head in range(3)])).all()


def test_an_id_that_names_no_row_gives_zeros(device: Device) -> None:
    array = np.full((4, 8), 7, np.float32)
    found = device.outward(rows.take(device.inward(array), [0, 4, -1, 3, 2**31 - 1]))
    assert found.tolist() == [[7.0] * 8, [0.0] * 8, [0.0] * 8, [7.0] * 8, [0.0] * 8]


def stable(scores: Any, count: int) -> Any:
    """Best first, ties to the lower position; what is no number last."""
    none = np.isnan(scores)
    return np.lexsort((np.where(none, 0, -scores), none), axis=-1)[..., :count]


@settings(max_examples=40, deadline=None)
@given(
    size=st.sampled_from([0, 1, 2, 511, 512, 513, 1025]) | st.integers(0, 2000),
    batch=st.sampled_from([None, 1, 3]),
    count=st.integers(0, 40) | st.integers(0, 2100),
    values=st.sampled_from(["distinct", "ties", "all equal", "special"]),
    seed=st.integers(0, 1 << 30),
)
def test_the_best_are_those_of_a_stable_sort(
    device: Device, size: int, batch: int | None, count: int, values: str, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.standard_normal((*([batch] if batch else []), size)).astype(np.float32)
    if values == "ties":
        scores = scores.round(0)
    elif values == "all equal":
        scores[...] = 0.5
    elif values == "special":
        scores = rng.choice([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 3e38, -3e38], scores.shape)
        scores = scores.astype(np.float32)
    right = stable(scores, count)
    sent = device.inward(scores)
    assert (device.outward(rows.top(sent, count)) == right).all()
    assert (device.outward(rows.best(sent, count)) == np.sort(right, axis=-1)).all()


@pytest.mark.parametrize(("size", "count"), [(70_000, 300), (65_537, 1), (100_000, 20_000), (131_072, 40_000)])
def test_the_best_of_rows_in_several_parts(device: Device, size: int, count: int) -> None:
    scores = np.random.default_rng(size).standard_normal((2, size)).astype(np.float32).round(2)
    assert grids.parts(size, count) > 1 or count > size // 4
    assert (device.outward(rows.best(device.inward(scores), count)) == np.sort(stable(scores, count), axis=-1)).all()
