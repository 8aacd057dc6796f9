"""The adapters of attention engines say what they were asked: heads, masks and dtypes arrive as meant.

Whether an engine conforms is for the suite to say. Here each adapter gets requests that every engine can do, and a
plain float64 computation says what a faithful mapping returns.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from kvassay.adapters.base import EngineAdapter, Unsupported

ADAPTERS = {
    "torch-flash": ("torch", "kvassay.engines.torch_sdpa", "TorchFlash"),
    "torch-sdpa": ("torch", "kvassay.engines.torch_sdpa", "TorchSdpa"),
    "torch-flex": ("torch", "kvassay.engines.torch_flex", "TorchFlex"),
    "jax": ("jax", "kvassay.engines.jax_attention", "Jax"),
}
HEADS_TO_KV = {"grouped": [0, 0, 1, 1], "interleaved": [0, 1, 0, 1], "uneven": [0, 1, 1, 1]}
MASKS = {
    "none": {"causal": False},
    "causal": {"causal": True},
    "window": {"causal": True, "window": 3},
    "window only": {"causal": False, "window": 3},
}


@pytest.fixture(params=sorted(ADAPTERS))
def adapter(request: pytest.FixtureRequest) -> EngineAdapter:
    package, module, name = ADAPTERS[request.param]
    pytest.importorskip(package)
    engine: EngineAdapter = getattr(importlib.import_module(module), name)()
    engine.setup()
    return engine


def a_request(heads: str = "grouped", mask: str = "causal", dtype: Any = np.float32, **changes: Any) -> dict[str, Any]:
    random = np.random.default_rng(7)
    q, k, v = (random.standard_normal(shape).astype(dtype) for shape in ((4, 8), (6, 2, 8), (6, 2, 8)))
    for tensor in (q, k, v):
        tensor.flags.writeable = False
    where = {} if "k_positions" in changes else {"k_first_position": 10}
    return {
        "q": q,
        "k": k,
        "v": v,
        "scale": 0.3,
        "kv_head_of": HEADS_TO_KV[heads],
        "q_position": 14,
        "mask": MASKS[mask],
        **where,
        **changes,
    }


def expected(request: dict[str, Any]) -> tuple[Any, Any]:
    q, k, v = (request[name].astype(np.float64) for name in "qkv")
    at = np.asarray(request.get("k_positions", request.get("k_first_position", 0) + np.arange(len(k))))
    mask = request["mask"]
    seen = np.ones(len(k), bool)
    if mask["causal"]:
        seen &= at <= request["q_position"]
    if "window" in mask:
        seen &= at > request["q_position"] - mask["window"]
    heads = request["kv_head_of"]
    scores = request["scale"] * np.einsum("hd,thd->ht", q, k[seen][:, heads])
    weights = np.exp(scores)
    out = np.einsum("ht,thd->hd", weights, v[seen][:, heads]) / weights.sum(-1, keepdims=True)
    return out, np.log(weights.sum(-1))


def check(adapter: EngineAdapter, request: dict[str, Any], within: float) -> None:
    out, lse = expected(request)
    dense = adapter.attention_dense(request)  # type: ignore[attr-defined]
    assert dense["out"].dtype == request["q"].dtype
    np.testing.assert_allclose(dense["out"].astype(np.float64), out, atol=within)
    if hasattr(adapter, "attention_partial"):
        state = adapter.attention_partial(request)["state"]
        assert (state["schema"], state["base"]) == ("o-lse-v1", "e")
        np.testing.assert_allclose(state["o"].astype(np.float64), out, atol=within)
        np.testing.assert_allclose(state["lse"].astype(np.float64), lse, atol=within)


@pytest.mark.parametrize("heads", HEADS_TO_KV)
@pytest.mark.parametrize("mask", MASKS)
def test_heads_and_masks(adapter: EngineAdapter, heads: str, mask: str) -> None:
    check(adapter, a_request(heads, mask), within=2e-6)


def test_positions_in_any_order(adapter: EngineAdapter) -> None:
    check(adapter, a_request(mask="window", k_positions=[14, 3, 15, 12, 11, 13]), within=2e-6)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_half_precision(adapter: EngineAdapter, dtype: Any) -> None:
    check(adapter, a_request(dtype=dtype), within=0.03)


@pytest.mark.parametrize("heads", [[0, 0, 1, 2], [0, 0, 1, -1], [0, 0, 1]])
def test_a_head_map_that_no_call_can_express(adapter: EngineAdapter, heads: list[int]) -> None:
    with pytest.raises(Unsupported):
        adapter.attention_dense(a_request(kv_head_of=heads))  # type: ignore[attr-defined]


def test_a_block_table_is_not_passed_off_as_rows(adapter: EngineAdapter) -> None:
    with pytest.raises(Unsupported):
        adapter.attention_dense(a_request(pages={"page_rows": 2, "table": [0, 1, 2], "rows": 6}))  # type: ignore[attr-defined]


MERGES = {
    "FlashInfer": "flashinfer",
    "FlashInferPairs": "flashinfer",
    "FlashInferReference": "flashinfer",
    "Sglang": "sglang",
    "Vllm": "vllm",
    "VllmCpu": "vllm",
}


@pytest.mark.parametrize("name", MERGES)
def test_merge_kernels_get_states_in_their_base(name: str) -> None:
    pytest.importorskip("triton")
    if importlib.util.find_spec(MERGES[name]) is None:
        pytest.skip(f"{MERGES[name]} is not installed")
    adapter = getattr(importlib.import_module("kvassay.engines.merge_kernels"), name)()
    adapter.setup()
    base = 2 if adapter.states[0].endswith("/2") else "e"
    unit = np.log(2.0) if base == 2 else 1.0
    random = np.random.default_rng(3)
    outs = random.standard_normal((3, 2, 5)).astype(np.float32)
    mass = np.array([[1.0, 2.0], [4.0, 0.5], [3.0, 3.0]])
    states = [
        {"schema": "o-lse-v1", "base": base, "o": out, "lse": (np.log(part) / unit).astype(np.float32)}
        for out, part in zip(outs, mass, strict=True)
    ]
    state = adapter.attention_merge({"states": states})["state"]
    assert (state["schema"], state["base"]) == ("o-lse-v1", base)
    weights = mass / mass.sum(0)
    np.testing.assert_allclose(state["o"], np.einsum("nh,nhd->hd", weights, outs), atol=1e-6)
    np.testing.assert_allclose(state["lse"] * unit, np.log(mass.sum(0)), atol=1e-6)
    with pytest.raises(Unsupported):
        adapter.attention_merge({"states": [{**state, "base": "e" if base == 2 else 2} for state in states]})
