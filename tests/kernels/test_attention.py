"""Attention and merge against float64, on every device."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kvassay_kernels import attention
from kvassay_reference import attention as reference
from kvassay_reference.attention import Mask, Pages, State
from kvassay_reference.errors import Refusal

from .conftest import Device, inward
from .expected import DTYPES, SOME, assert_state, dense_state, drawn


def outward(device: Device, state: State) -> State:
    return State(*(device.outward(part) for part in state))


@st.composite
def problems(draw: st.DrawFn) -> dict[str, Any]:
    """Histories of a few hundred rows and less, with ragged tails, none at all, and every kind of mask and layout."""
    dtype = draw(st.sampled_from(SOME))
    channels, group = draw(st.sampled_from([(64, 1), (128, 4), (5, 3)]))
    kv_heads = draw(st.integers(1, 3))
    rows = draw(st.sampled_from([0, 1, 2, 15, 16, 17, 31, 33, 127, 129, 255, 300, 777]) | st.integers(0, 900))
    return {
        "dtype": DTYPES[dtype],
        "channels": channels,
        "value_channels": channels if channels != 5 else draw(st.integers(1, 40)),
        "kv_head_of": draw(st.permutations([head for head in range(kv_heads) for _ in range(group)])),
        "kv_heads": kv_heads,
        "rows": rows,
        "page_rows": draw(st.sampled_from([0, 1, 16, 7])),
        "shuffled": draw(st.booleans()),
        "mask": Mask(draw(st.booleans()), draw(st.none() | st.integers(1, 400))),
        "q_position": draw(st.integers(0, 1000)),
        "hidden": draw(st.booleans()),
        "seed": draw(st.integers(0, 1 << 30)),
    }


@settings(max_examples=40, deadline=None)
@given(problem=problems())
def test_a_partial_state_agrees_with_float64(device: Device, problem: dict[str, Any]) -> None:
    p, rng = problem, np.random.default_rng(problem["seed"])
    q = drawn(rng, (len(p["kv_head_of"]), p["channels"]), p["dtype"])
    k = drawn(rng, (p["rows"], p["kv_heads"], p["channels"]), p["dtype"])
    v = drawn(rng, (p["rows"], p["kv_heads"], p["value_channels"]), p["dtype"])
    positions = rng.permutation(p["rows"]).astype(np.int64) if p["shuffled"] else range(3, 3 + p["rows"])
    legal = rng.random(p["rows"]) < 0.7 if p["hidden"] else None
    seen = np.asarray(p["mask"].sees(np.asarray(positions, np.int64), p["q_position"]))
    expected = dense_state(q, k, v, p["kv_head_of"], seen if legal is None else seen & legal, 0.3)
    # What the mask hides is not to matter, and neither is what lies behind the last row.
    k[~seen], v[~seen] = np.nan, np.nan
    if legal is not None:
        k[~legal], v[~legal] = np.nan, np.nan
    pages = None
    if p["page_rows"]:
        k, v, pages = paged(rng, k, v, p["page_rows"])
    found = attention.partial(
        *inward(device, q, k, v),
        scale=0.3,
        kv_head_of=p["kv_head_of"],
        positions=positions if isinstance(positions, range) else device.inward(positions),
        q_position=p["q_position"],
        mask=p["mask"],
        pages=pages,
        legal=None if legal is None else device.inward(legal),
    )
    assert_state(outward(device, found), expected)


def paged(rng: np.random.Generator, k: Any, v: Any, page_rows: int) -> tuple[Any, Any, Pages]:
    """K and V in pages of a pool in no order; what no row holds is not a number."""
    rows = len(k)
    used = -(-rows // page_rows)
    table = rng.permutation(used + 2)[:used].tolist()
    pools = []
    for array in (k, v):
        pool = np.full((used + 2, page_rows, *array.shape[1:]), np.nan, array.dtype)
        for row in range(rows):
            pool[table[row // page_rows], row % page_rows] = array[row]
        pools.append(pool)
    return pools[0], pools[1], Pages(page_rows, table, rows)


@pytest.mark.parametrize("rows", [0, 1, 3, 8, 100])
def test_rows_of_a_view_are_read_in_place(device: Device, rows: int) -> None:
    rng = np.random.default_rng(rows)
    q, k, v = (drawn(rng, (n, 128), np.float16) for n in (4, rows * 6, rows * 6))
    k, v = k.reshape(rows, 6, 128), v.reshape(rows, 6, 128)
    expected = dense_state(q, k[:, 2:4], v[:, 1:3], [0, 1, 1, 0], np.ones(rows, bool), 0.1)
    keys, values = inward(device, k, v)
    found = attention.partial(
        device.inward(q),
        keys[:, 2:4],
        values[:, 1:3],
        scale=0.1,
        kv_head_of=[0, 1, 1, 0],
        positions=range(rows),
        q_position=0,
        mask=Mask(False),
    )
    assert_state(outward(device, found), expected)


@pytest.mark.parametrize(("kind", "output"), [*itertools.product(["in place", "paged", "listed"], [None, "float32"])])
def test_a_batch_of_ragged_sequences(device: Device, kind: str, output: str | None) -> None:
    rng, lengths, heads = np.random.default_rng(5), [700, 0, 1, 65], [0, 0, 0, 0, 1, 1, 1, 1]
    q, k, v = (drawn(rng, (4, n, 128), ml_dtypes.bfloat16) for n in (8, 700 * 2, 700 * 2))
    k, v = k.reshape(4, 700, 2, 128), v.reshape(4, 700, 2, 128)
    table, page_rows = None, 0
    counts: Any = np.asarray(lengths, np.int32)
    supports = [[np.arange(n)] * 2 for n in lengths]
    sent = [k, v]
    if kind == "listed":
        supports = [[rng.permutation(700)[: n // (1 + head)] for head in (0, 1)] for n in lengths]
        table = np.full((4, 2, 700), -1, np.int32)
        for sequence, head in itertools.product(range(4), range(2)):
            table[sequence, head, : len(supports[sequence][head])] = supports[sequence][head]
        counts = np.asarray([[len(one) for one in two] for two in supports], np.int32)
    elif kind == "paged":
        page_rows, table = 16, rng.permutation(4 * 44).reshape(4, 44).astype(np.int32)
        sent = []
        for array in (k, v):
            pool = np.full((4 * 44, 16, 2, 128), np.nan, array.dtype)
            for sequence, row in itertools.product(range(4), range(700)):
                pool[table[sequence, row // 16], row % 16] = array[sequence, row]
            sent.append(pool)
    out, lse = attention.decode(
        *inward(device, q, *sent),
        scale=0.2,
        kv_head_of=heads,
        lengths=device.inward(counts),
        table=None if table is None else device.inward(table),
        page_rows=page_rows,
        output=output,
    )
    out, lse = device.outward(out), device.outward(lse)
    assert str(out.dtype) == (output or "bfloat16")
    for sequence, two in enumerate(supports):
        for query, head in enumerate(heads):
            rows = two[head]
            state = dense_state(
                q[sequence, query : query + 1],
                k[sequence, rows][:, head : head + 1],
                v[sequence, rows][:, head : head + 1],
                [0],
                np.ones(len(rows), bool),
                0.2,
            )
            if not len(rows):
                assert lse[sequence, query] == -np.inf
                assert not out[sequence, query].any()
                continue
            right = state.u / state.l[:, None]
            bound = 2.0**-8 if output is None else 2e-6
            np.testing.assert_allclose(out[sequence, query].astype(np.float64), right[0], rtol=bound, atol=2e-6)
            np.testing.assert_allclose(lse[sequence, query], state.m[0] + np.log(state.l[0]), rtol=0, atol=2e-6)


@settings(max_examples=30, deadline=None)
@given(
    count=st.sampled_from([1, 2, 3, 127, 128, 129, 300]),
    shape=st.tuples(st.integers(1, 5), st.sampled_from([1, 4, 128, 130])),
    empty=st.sampled_from(["none", "some", "all"]),
    seed=st.integers(0, 1 << 30),
)
def test_any_number_of_states_merge(device: Device, count: int, shape: tuple[int, int], empty: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    states = []
    for _ in range(count):
        m = rng.normal(0, 30, shape[0]).astype(np.float32)
        l = rng.uniform(0.5, 9, shape[0]).astype(np.float32)  # noqa: E741
        u = rng.normal(0, 1, shape).astype(np.float32)
        none = {"none": np.zeros(shape[0], bool), "some": rng.random(shape[0]) < 0.5, "all": np.ones(shape[0], bool)}
        m[none[empty]], l[none[empty]], u[none[empty]] = -np.inf, 0, 0
        states.append(State(m, l, u))
    found = outward(device, attention.merge([State(*inward(device, *one)) for one in states]))
    expected = reference.merge([State(*(part.astype(np.float64) for part in one)) for one in states])
    assert_state(found, expected)


def test_a_merge_repeats_to_the_bit(device: Device) -> None:
    rng = np.random.default_rng(1)
    states = [State(*inward(device, *(rng.random(s, np.float32) for s in ((3,), (3,), (3, 7))))) for _ in range(50)]
    first, second = (outward(device, attention.merge(states)) for _ in range(2))
    assert all((a == b).all() for a, b in zip(first, second, strict=True))


def test_no_legal_row_is_refused_by_the_name_of_the_registry(device: Device) -> None:
    q, k = inward(device, np.zeros((1, 64), np.float32), np.zeros((9, 1, 64), np.float32))
    with pytest.raises(Refusal) as refusal:
        attention.dense(q, k, k, scale=1, kv_head_of=[0], positions=range(5, 14), q_position=4, mask=Mask(True))
    assert refusal.value.reason == "NO_LEGAL_ROWS"
