"""The attention reference: against the oracle under Hypothesis, on three array libraries, and on every marked row."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kvassay import check
from kvassay.adapters.base import EngineAdapter, Rejected
from kvassay.core import tensors
from kvassay.core.compare import close, numbers, tolerance
from kvassay.core.states import meaning
from kvassay.corpus import load
from kvassay.corpus.data import fixture_module
from kvassay.engines.reference import (
    Reference,
    ReferenceFloat64,
    ReferenceHalf,
    ReferenceOLse,
    ReferenceOLse2,
    ReferenceStrict,
    ReferenceTorch,
    ReferenceZero,
)
from kvassay_reference import attention
from kvassay_reference.errors import Refusal

ENGINES = [Reference, ReferenceFloat64, ReferenceOLse, ReferenceOLse2, ReferenceHalf, ReferenceStrict]
if importlib.util.find_spec("torch"):
    ENGINES.append(ReferenceTorch)


# ---- oracle and reference ----------------------------------------------------------------------------------------


@st.composite
def requests(draw: st.DrawFn) -> dict[str, Any]:
    """Requests of any small shape, map, mask, order and dtype; some of them are not legal."""
    kv_heads, group = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    rows, d, d_v = draw(st.integers(0, 9)), draw(st.integers(1, 5)), draw(st.integers(1, 5))
    dtype = draw(st.sampled_from(["float32", "float16", "bfloat16"]))
    heads = kv_heads * group
    mask: dict[str, Any] = {"causal": draw(st.booleans())}
    if draw(st.booleans()):
        mask["window"] = draw(st.integers(0, 6))
    request: dict[str, Any] = {
        "scale": draw(st.sampled_from([1.0, 0.5, 0.3, -0.25, 30.0])),
        "kv_head_of": draw(st.lists(st.integers(0, kv_heads - 1), min_size=heads, max_size=heads)),
        "q_position": draw(st.integers(0, 12)),
        "mask": mask,
    }
    shape = [rows]
    if draw(st.booleans()):
        page_rows = draw(st.integers(1, 4))
        pool = -(-rows // page_rows) + draw(st.integers(1, 2))
        table = draw(st.permutations(range(pool)))
        request["pages"] = {"page_rows": page_rows, "table": table, "rows": rows}
        shape = [pool, page_rows]
    if draw(st.booleans()):
        request["k_positions"] = draw(st.permutations(range(3, rows + 3)))
    else:
        request["k_first_position"] = draw(st.integers(0, 4))
    seed = draw(st.integers(0, 2**32 - 1))
    for name, extents in (("q", [heads, d]), ("k", [*shape, kv_heads, d]), ("v", [*shape, kv_heads, d_v])):
        seed = (seed + 1) % 2**32
        request[name] = {"dtype": dtype, "shape": extents, "recipe": {"name": "hash32-v1", "seed": seed}}
    return request


def oracle() -> Any:
    return fixture_module("attention.oracle").Oracle()


def rejection() -> type[Exception]:
    kind: type[Exception] = fixture_module("_oracle").Rejection
    return kind


def in_memory(request: dict[str, Any]) -> dict[str, Any]:
    """A request as adapters get it."""
    read = tensors.read(request)
    return {name: tensors.expand(part) if isinstance(part, tensors.Recipe) else part for name, part in read.items()}


def expect(op: str, request: dict[str, Any], engine: EngineAdapter) -> None:
    """Oracle and engine agree: in the result, or in the reason of a rejection."""
    method = op.replace(".", "_")
    try:
        right, reason = getattr(oracle(), method)(request), None
    except rejection() as refusal:
        right, reason = {}, refusal.reason  # type: ignore[attr-defined]
    if reason is None:
        assert_close(op, request, right, getattr(engine, method)(in_memory(request)))
        return
    with pytest.raises(Rejected) as refused:
        getattr(engine, method)(in_memory(request))
    assert refused.value.reason == reason


def assert_close(op: str, request: dict[str, Any], right: dict[str, Any], reply: dict[str, Any]) -> None:
    """The reply means what the oracle's result means, within the oracle's bound."""
    if "state" in right:
        want, got = meaning(tensors.read(right["state"])), meaning(reply["state"])
    else:
        want, got = ({name: numbers(reply_part) for name, reply_part in parts.items() if name in ("out", "lse")}
                     for parts in (tensors.read(right), reply))  # fmt: skip
    for name, part in got.items():
        limits = tolerance(oracle().bound(op, request, right, f"/{name}"), part.dtypes)
        difference = close(part.array, want[name].array, limits, name)
        assert difference.agrees, difference.message


@settings(deadline=None, max_examples=150)
@given(requests())
def test_reference_and_oracle_agree(request_: dict[str, Any]) -> None:
    for op in ("attention.dense", "attention.partial"):
        expect(op, request_, Reference())


@settings(deadline=None, max_examples=60)
@given(requests(), st.data())
def test_merges_agree_with_the_oracle(request_: dict[str, Any], data: st.DataObject) -> None:
    cuts = data.draw(st.lists(st.integers(0, 12), max_size=3))
    masks = [{"causal": True, "window": 1}, {"causal": False}, *({"causal": False, "window": 1 + cut} for cut in cuts)]
    engine = data.draw(st.sampled_from([Reference, ReferenceOLse, ReferenceOLse2]))()
    own, right = [], []
    for mask in masks:
        part = {**request_, "mask": mask}
        right.append(oracle().attention_partial(part)["state"])
        own.append(engine.attention_partial(in_memory(part))["state"])
    request = {"states": right}
    assert_close("attention.merge", request, oracle().attention_merge(request), engine.attention_merge({"states": own}))


# ---- the corpus --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ENGINES)
def test_correct_engines_are_blamed_for_nothing(engine: type[EngineAdapter]) -> None:
    report = check(engine, contracts=["attention"])
    # Two rejections show nothing on arrays that have no half precision at all.
    assert report.ok or engine is ReferenceStrict, report
    assert not [result for result in report.results if result.verdict.value in ("fail", "wrong-reason", "error")]
    assert sum(result.verdict.value == "pass" for result in report.results) >= 100


def test_zero_where_declared() -> None:
    report = check(ReferenceZero, contracts=["attention"])
    assert report.ok, report


# ---- marked rows -------------------------------------------------------------------------------------------------


def marked_cases() -> list[str]:
    return [
        case.id
        for case in load().cases
        if case.id.startswith("attention/real/")
        and len(case.steps) == 1
        and case.steps[0].request["k"].dtype != "float32"
    ]


def marks_of(request: dict[str, Any]) -> list[tuple[int, int]]:
    """Head and stored row of each mark that the mask shows."""
    k, pages = request["k"], request.get("pages")
    found = [(head, row) for row, head, _, _ in k.settings if row is not None]
    if pages:
        return found
    window = request["mask"].get("window", k.shape[0])
    return [(head, row) for head, row in found if row > request["q_position"] - window]


def stored_rows(pages: attention.Pages) -> list[int]:
    """Where each logical row stands in the pool."""
    size = pages.page_rows
    return [pages.table[row // size] * size + row % size for row in range(pages.rows)]


@pytest.mark.parametrize("name", marked_cases())
def test_every_marked_row_is_detected(name: str) -> None:
    """Drop, double or replace one marked row in the arithmetic of a half-precision kernel: the bound must see it."""
    corpus = load()
    request = next(case for case in corpus.cases if case.id == name).steps[0].request
    near = tensors.read(corpus.raw(name)["steps"][0]["expect"]["close"][0])
    want = near["value"]["out"] if near["at"] == "/state" else near["value"]
    row = near["bound"][request["q"].dtype]
    limits = row.get("out", row)
    arrays = in_memory(dict(request))
    engine = ReferenceHalf()
    arguments = engine.arguments(arrays)
    pages = arguments["pages"]
    if pages:
        arguments |= {part: attention.gather_pages(arguments[part], pages) for part in ("k", "v")} | {"pages": None}
    logical = {stored: i for i, stored in enumerate(stored_rows(pages))} if pages else {}
    for head, stored in marks_of(request):
        mark = logical.get(stored, stored)
        queries = [query for query, own in enumerate(arguments["kv_head_of"]) if own == head]
        rows = np.arange(len(arguments["k"]))
        other = mark - 1 if mark else 1
        for spoil, chosen in (
            ("none", rows),
            ("drop", np.delete(rows, mark)),
            ("double", np.insert(rows, mark, mark)),
            ("replace", np.where(rows == mark, other, rows)),
        ):
            if spoil == "replace" and (head, other) in {(h, logical.get(r, r)) for h, r in marks_of(request)}:
                continue
            state = attention.partial(
                **arguments
                | {
                    "q": arguments["q"][queries],
                    "k": arguments["k"][chosen, head : head + 1],
                    "v": arguments["v"][chosen, head : head + 1],
                    "positions": arguments["positions"][chosen],
                    "kv_head_of": [0] * len(queries),
                }
            )
            out = attention.output(state).astype(arrays["q"].dtype)
            difference = close(out.astype(np.float64), np.asarray(want)[queries], limits)
            assert difference.agrees == (spoil == "none"), f"{spoil} row {mark} of head {head}: {difference.ratio}"
            assert spoil == "none" or difference.ratio > {"float16": 64, "bfloat16": 8}[request["q"].dtype]


# ---- what no case can ask ----------------------------------------------------------------------------------------


def test_float64_is_float64() -> None:
    rng = np.random.default_rng(1)
    q, k, v = rng.random((2, 4)), rng.random((50, 1, 4)), rng.random((50, 1, 3))
    rows = {"scale": 0.5, "kv_head_of": [0, 0], "positions": np.arange(50), "q_position": 49}
    state = attention.partial(q, k, v, **rows, mask=attention.Mask(causal=True), accumulate="float64", rows_per_block=7)
    assert state.u.dtype == np.float64
    scores = 0.5 * q @ k[:, 0].T
    weights = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(attention.output(state), weights @ v[:, 0], rtol=1e-14)


@pytest.mark.parametrize("rows_per_block", [1, 2, 3, 50, 1000])
def test_the_size_of_blocks_does_not_matter(rows_per_block: int) -> None:
    rng = np.random.default_rng(2)
    q, k, v = (rng.standard_normal(shape).astype(np.float32) for shape in ((4, 8), (50, 2, 8), (50, 2, 8)))
    rows = {"scale": 1.0, "kv_head_of": [0, 1, 1, 0], "positions": np.arange(50), "q_position": 40}
    mask = attention.Mask(causal=True, window=17)
    whole = attention.partial(q, k, v, **rows, mask=mask)
    split = attention.partial(q, k, v, **rows, mask=mask, rows_per_block=rows_per_block)
    np.testing.assert_allclose(attention.output(split), attention.output(whole), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(attention.log_sum_exp(split), attention.log_sum_exp(whole), rtol=1e-6)


def test_integer_rows_are_refused() -> None:
    rows = np.ones((1, 1, 1), np.int32)
    with pytest.raises(Refusal, match="DTYPE_MISMATCH"):
        attention.dense(
            np.ones((1, 1), np.int32), rows, rows, scale=1.0, kv_head_of=[0], positions=np.arange(1), q_position=0,
            mask=attention.Mask(causal=True),
        )  # fmt: skip


def test_dense_is_the_normalised_partial() -> None:
    q, rows = np.ones((1, 2), np.float32), np.ones((3, 1, 2), np.float32)
    out, lse = attention.dense(
        q, rows, rows, scale=1.0, kv_head_of=[0], positions=np.arange(3), q_position=2, mask=attention.Mask(causal=True)
    )
    np.testing.assert_allclose(out, [[1.0, 1.0]])
    np.testing.assert_allclose(lse, [2 + np.log(3)], rtol=1e-6)
