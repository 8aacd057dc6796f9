"""Tables and look-ups, signatures and matches, probabilities and shares, against float64."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kvassay_kernels import KernelError, magicpig, pq, squeezed
from kvassay_reference.errors import Refusal
from kvassay_reference.indexes.magicpig import Tables
from kvassay_reference.indexes.squeezed import Level

from .conftest import Device, inward
from .expected import DTYPES, HEADS, SOME, assert_sums, drawn

ROWS = st.sampled_from([0, 1, 7, 8, 9, 16, 255, 256, 257]) | st.integers(0, 600)
MAPS = st.sampled_from(HEADS)


@settings(max_examples=20, deadline=None)
@given(
    dtype=st.sampled_from(SOME),
    shape=st.tuples(st.integers(1, 9), st.sampled_from([1, 2, 16, 256]), st.sampled_from([1, 3, 8])),
    heads=MAPS,
    seed=st.integers(0, 1 << 30),
)
def test_tables_hold_the_products_with_centroids(
    device: Device, dtype: str, shape: tuple[int, int, int], heads: list[int], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    q = drawn(rng, (len(heads), shape[0] * shape[2]), DTYPES[dtype])
    centroids = drawn(rng, (2, *shape), DTYPES[dtype])
    found = device.outward(pq.tables(*inward(device, q, centroids), heads))
    parts = q.astype(np.float64).reshape(len(heads), shape[0], 1, shape[2])
    assert_sums(found, parts * centroids.astype(np.float64)[heads])


@settings(max_examples=40, deadline=None)
@given(
    bits=st.sampled_from([4, 8]),
    parts=st.sampled_from([1, 2, 3, 8, 16, 17, 32]),
    rows=ROWS,
    heads=MAPS,
    few=st.booleans(),
    seed=st.integers(0, 1 << 30),
)
def test_look_ups_are_summed(
    device: Device, bits: int, parts: int, rows: int, heads: list[int], few: bool, seed: int
) -> None:
    rng, count = np.random.default_rng(seed), 3 if few else 1 << bits
    table = rng.standard_normal((len(heads), parts, count)).astype(np.float32)
    codes = rng.integers(0, count, (2, rows, parts)).astype(np.uint8)
    found = device.outward(pq.scores(*inward(device, table, packed(codes, bits)), heads, bits=bits))
    for query, head in enumerate(heads):
        assert_sums(found[query], table[query, np.arange(parts), codes[head]])


def packed(codes: Any, bits: int) -> Any:
    """Codes [..., m] as bytes, the earlier part of two in the lower half."""
    if bits == 8:
        return codes
    codes = np.concatenate([codes, np.zeros((*codes.shape[:-1], codes.shape[-1] % 2), np.uint8)], axis=-1)
    return np.ascontiguousarray(codes[..., ::2] | codes[..., 1::2] << 4)


def test_a_table_that_fits_once_is_used_for_one_head_at_a_time(device: Device) -> None:
    rng = np.random.default_rng(0)
    table = rng.standard_normal((4, 64, 256)).astype(np.float32)
    codes = rng.integers(0, 256, (1, 40, 64)).astype(np.uint8)
    found = device.outward(pq.scores(*inward(device, table, codes), [0] * 4))
    assert_sums(found, table[:, np.arange(64), codes[0]])
    with pytest.raises(KernelError, match="a table of 131072 bytes"):
        pq.scores(*inward(device, np.zeros((1, 128, 256), np.float32), np.zeros((1, 1, 128), np.uint8)), [0])


@settings(max_examples=20, deadline=None)
@given(
    dtype=st.sampled_from(SOME),
    rows=st.sampled_from([0, 1, 15, 16, 17, 40]),
    tables=st.sampled_from([1, 3, 8, 9, 20]),
    bits=st.sampled_from([1, 9, 16]),
    channels=st.sampled_from([1, 31, 64, 128]),
    seed=st.integers(0, 1 << 30),
)
def test_signatures_are_the_sides_of_planes(
    device: Device, dtype: str, rows: int, tables: int, bits: int, channels: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    x, planes = (drawn(rng, shape, DTYPES[dtype]) for shape in ((rows, channels), (tables, bits, channels)))
    x[rng.random(rows) < 0.1] = 0  # on every plane, and so on the positive side of none
    found = device.outward(magicpig.signatures(*inward(device, x, planes)))
    terms = x.astype(np.float64)[None, :, None, :] * planes.astype(np.float64)[:, None]
    sides, room = terms.sum(-1), 1e-6 * np.abs(terms).sum(-1)
    assert found.shape == (tables, rows)
    for bit in range(bits):
        is_set = found.astype(np.int64) >> bit & 1
        assert ((is_set == (sides[..., bit] > 0)) | (np.abs(sides[..., bit]) < room[..., bit])).all()
    assert not (found.astype(np.int64) >> bits).any()


@settings(max_examples=30, deadline=None)
@given(rows=ROWS, tables=st.integers(1, 40), heads=MAPS, apart=st.booleans(), seed=st.integers(0, 1 << 30))
def test_matches_are_counted(device: Device, rows: int, tables: int, heads: list[int], apart: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    keys = rng.integers(0, 3, (2, tables, rows + 8 * apart)).astype(np.uint16) * 30000
    queries = rng.integers(0, 3, (len(heads), tables)).astype(np.uint16) * 30000
    sent = device.inward(keys)
    found = device.outward(magicpig.matches(sent[:, :, :rows], device.inward(queries), heads))
    assert (found == [(keys[head, :, :rows] == queries[i][:, None]).sum(0) for i, head in enumerate(heads)]).all()


def probability(cosine: float, rule: Tables) -> Fraction:
    """That enough tables match, exactly, for the probability of one bit as a float has it."""
    r = Fraction(math.acos(-max(-1.0, min(1.0, cosine))) / math.pi) ** rule.bits
    none, once = (1 - r) ** rule.tables, rule.tables * r * (1 - r) ** (rule.tables - 1)
    return 1 - none - (once if rule.least == 2 else 0)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("rule", [Tables(10, 150, 2), Tables(1, 2, 2), Tables(3, 5, 1), Tables(8, 1, 2)])
def test_probabilities_keep_their_digits_where_the_closed_form_cancels(
    device: Device, dtype: str, rule: Tables
) -> None:
    cosines = np.asarray([-1.5, -1.0, -0.99, -0.9, -0.6, -0.5, -0.1, 0.0, 0.3, 0.9, 0.999, 1.0, 1.0001], dtype)
    u, log_u = (device.outward(one) for one in magicpig.inclusion(device.inward(cosines), rule))
    relative = 4e-14 if dtype == "float64" else 8e-6
    for found, logarithm, cosine in zip(u, log_u, cosines, strict=True):
        right = probability(float(cosine), rule)
        if right == 0:
            assert found == 0
            assert logarithm == -math.inf
            continue
        assert abs(float(found) / float(right) - 1) <= relative
        assert abs(float(logarithm) - math.log(right)) <= relative


@settings(max_examples=25, deadline=None)
@given(
    clusters=st.sampled_from([1, 2, 255, 256, 257]) | st.integers(1, 400),
    queries=st.integers(1, 4),
    empty=st.sampled_from(["none", "some", "all"]),
    some=st.booleans(),
    seed=st.integers(0, 1 << 30),
)
def test_shares_weigh_a_cluster_by_its_rows(
    device: Device, clusters: int, queries: int, empty: str, some: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    q, centroids = (rng.standard_normal(shape).astype(np.float32) for shape in ((queries, 64), (clusters, 64)))
    sizes = rng.integers(1, 50, clusters)
    sizes[{"none": [], "some": rng.random(clusters) < 0.4, "all": slice(None)}[empty]] = 0
    kept = rng.permutation(clusters)[: clusters // 2].tolist() if some else None
    level = Level(device.inward(centroids), sizes.tolist())
    found = device.outward(squeezed.shares(device.inward(q), level, 0.2, kept))
    counted = sizes.astype(np.float64)
    if kept is not None:
        counted[[i for i in range(clusters) if i not in kept]] = 0
    if not counted.any():
        assert not found.any()
        return
    z = 0.2 * q.astype(np.float64) @ centroids.astype(np.float64).T
    z -= z[:, counted > 0].max(axis=1, keepdims=True)
    right = (np.exp(z) / (np.exp(z) @ counted)[:, None]).mean(0)
    np.testing.assert_allclose(found, right, rtol=2e-5, atol=0)


def test_what_no_kernel_takes_is_refused_in_a_line(device: Device) -> None:
    x, planes = inward(device, np.zeros((2, 4), np.float32), np.zeros((1, 17, 4), np.float32))
    codes, table = inward(device, np.zeros((1, 2, 4), np.uint8), np.zeros((1, 4, 16), np.float32))
    cosines = device.inward(np.zeros(3))
    for call, error, says in (
        (lambda: magicpig.signatures(x, planes), KernelError, "17 bits, 16 at most"),
        (lambda: magicpig.signatures(x[:, :2], planes), Refusal, "LSH_GEOMETRY_INVALID"),
        (lambda: magicpig.inclusion(cosines, Tables(3, 4, 3)), KernelError, "one or two tables"),
        (lambda: pq.scores(table, codes, [0], bits=5), KernelError, "4 or 8 bits"),
        (lambda: pq.scores(table, codes, [0], bits=4), Refusal, "SHAPE_MISMATCH"),
        (lambda: pq.scores(table, codes.astype(np.int32), [0]), KernelError, "uint8 codes"),
        (lambda: pq.scores(table, codes, [1]), Refusal, "HEAD_MAP_INVALID"),
    ):
        with pytest.raises(error, match=says):
            call()
