"""The reference's partial attention against torch's SDPA over the same bytes, one thread count for both."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from kvassay.core.tensors import Recipe, expand
from kvassay.engines.reference import Reference

from .timing import Line, interleaved_s

ROWS, QUERY_HEADS, KV_HEADS, CHANNELS = 32_768, 32, 8, 128


def lines() -> Iterator[Line]:
    """One decode row over 32,768 rows, 32 query heads on 8 K/V heads, d=128, float32; nothing without torch."""
    try:
        import torch
    except ImportError:
        return
    group = QUERY_HEADS // KV_HEADS
    q = expand(Recipe("float32", (QUERY_HEADS, CHANNELS), 1))
    k, v = (expand(Recipe("float32", (ROWS, KV_HEADS, CHANNELS), seed)) for seed in (2, 3))
    scale = CHANNELS**-0.5
    request = {
        "q": q,
        "k": k,
        "v": v,
        "scale": scale,
        "kv_head_of": [head // group for head in range(QUERY_HEADS)],
        "k_first_position": 0,
        "q_position": ROWS - 1,
        "mask": {"causal": False},
    }
    reference = Reference()
    # The group of a K/V head is packed as query rows; enable_gqa is several times slower and no baseline.
    packed = torch.from_numpy(q.copy()).reshape(1, KV_HEADS, group, CHANNELS)
    keys, values = (torch.from_numpy(x.copy()).transpose(0, 1)[None] for x in (k, v))

    def ours() -> object:
        return reference.attention_partial(request)

    def theirs() -> object:
        return torch.nn.functional.scaled_dot_product_attention(packed, keys, values, scale=scale)

    state = reference.attention_partial(request)["state"]
    out = np.asarray(state["u"]) / np.asarray(state["l"])[:, None]
    assert np.allclose(out, theirs().reshape(QUERY_HEADS, CHANNELS).numpy(), atol=1e-5)  # type: ignore[attr-defined]
    ours_s, theirs_s = interleaved_s(ours, theirs)
    yield Line(
        "reference partial, T=32768, 32/8, d=128", ours_s * 1e3, "ms", "torch SDPA, group packed", theirs_s * 1e3, 1.5
    )
