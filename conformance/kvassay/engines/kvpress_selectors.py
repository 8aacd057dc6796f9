"""Presses of kvpress on an attention layer of transformers, as searches for the rows that a prompt keeps.

``requirements/kvpress.txt`` installs what this module needs. Component mode: a ``LlamaAttention`` without training,
whose projections give exactly the rows of the request, with the press as its hook, as kvpress installs it.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from kvpress import KeyDiffPress, KnormPress, SnapKVPress, TOVAPress
from transformers import DynamicCache, LlamaConfig
from transformers.models.llama.modeling_llama import LlamaAttention, eager_attention_forward

from ..adapters.base import EngineAdapter, EngineInfo, Unsupported
from ..core.tensors import Array

ADAPTERS = {
    "kvpress-snapkv": "SnapKv",
    "kvpress-snapkv-unpooled": "SnapKvUnpooled",
    "kvpress-tova": "Tova",
    "kvpress-knorm": "Knorm",
    "kvpress-keydiff": "KeyDiff",
}
"""Names of the adapters here, and their classes; read without an import."""

Request = Mapping[str, Any]


def info(press: str, notes: str) -> EngineInfo:
    """One press, with the versions that are installed."""
    return EngineInfo(
        f"kvpress {press}",
        importlib.metadata.version("kvpress"),
        "https://github.com/NVIDIA/kvpress",
        "Python",
        f"{notes}; LlamaAttention of transformers {importlib.metadata.version('transformers')}, eager, CPU",
    )


class _Press(EngineAdapter):
    """One press. The window is the last row, for no query but the last row's is in a request."""

    capabilities: ClassVar[Mapping[str, Any]] = {"selection.floor": 0.5}

    def press(self, compression_ratio: float) -> Any:
        """The press that removes this share of the rows."""
        raise NotImplementedError

    def memory_search(self, request: Request) -> dict[str, Any]:
        """Rows that are left in the cache after the prompt, and attention over them."""
        if request["initial_rows"] or request["local_rows"] != 1:
            raise Unsupported("rows that are kept are the last one and those of the largest scores")
        if request["k"].shape != request["v"].shape:
            raise Unsupported("keys and values of one width")
        order = _by_kv_head(request["kv_head_of"], request["k"].shape[1])
        layer, cache = _prefilled(request, order)
        total, kept = request["k"].shape[0], min(1 + request["budget"], request["k"].shape[0])
        # Half a row more than is kept: a share of rows is a float, which kvpress multiplies and rounds down.
        press = self.press(1 - (kept + 0.5) / total if kept < total else 0.0)
        _run(layer, cache, press, total)
        keys, values = cache.layers[0].keys, cache.layers[0].values
        out = _attention(layer, request, order, keys, values)
        return {"rows": _positions(request, keys, values), "out": out}


def _by_kv_head(kv_head_of: Sequence[int], heads: int) -> list[int]:
    """Query heads in the order in which transformers groups them."""
    order = sorted(range(len(kv_head_of)), key=lambda one: kv_head_of[one])
    group = len(order) // heads
    if [kv_head_of[one] for one in order] != [one for one in range(heads) for _ in range(group)]:
        raise Unsupported("groups of one size")
    return order


def _prefilled(request: Request, order: Sequence[int]) -> tuple[Any, Any]:
    """A layer that makes these rows of the unit vectors, one for each position, and an empty cache."""
    q, k, v = (np.asarray(request[name], np.float32) for name in ("q", "k", "v"))
    total, heads, width = k.shape
    layer = LlamaAttention(
        LlamaConfig(
            hidden_size=total,
            num_attention_heads=len(q),
            num_key_value_heads=heads,
            head_dim=width,
            num_hidden_layers=1,
            attn_implementation="eager",
        ),
        layer_idx=0,
    ).eval()
    queries = np.zeros((len(q) * width, total), np.float32)
    queries[:, -1] = (q[list(order)] * np.float32(request["scale"] * width**0.5)).ravel()
    with torch.no_grad():
        layer.q_proj.weight.copy_(torch.from_numpy(queries))
        layer.k_proj.weight.copy_(torch.from_numpy(k.reshape(total, -1).T.copy()))
        layer.v_proj.weight.copy_(torch.from_numpy(v.reshape(total, -1).T.copy()))
    return layer, DynamicCache()


def _run(layer: Any, cache: Any, press: Any, total: int) -> None:
    """The prompt through the layer, at positions that turn nothing, under the press's hook."""
    hook = layer.register_forward_hook(press.forward_hook, with_kwargs=True)
    straight = torch.ones(1, total, layer.head_dim), torch.zeros(1, total, layer.head_dim)
    causal = torch.full((total, total), float("-inf")).triu(1)[None, None]
    try:
        with torch.no_grad():
            layer(
                hidden_states=torch.eye(total)[None],
                position_embeddings=straight,
                attention_mask=causal,
                past_key_values=cache,
                cache_position=torch.arange(total),
            )
    finally:
        hook.remove()


def _attention(layer: Any, request: Request, order: Sequence[int], keys: Any, values: Any) -> Array:
    """Attention of transformers over what the cache holds, in the order of the request's heads."""
    width = keys.shape[-1]
    scaled = np.asarray(request["q"], np.float32)[list(order)] * np.float32(request["scale"] * width**0.5)
    with torch.no_grad():
        found, _ = eager_attention_forward(
            layer, torch.from_numpy(scaled)[None, :, None], keys, values, None, scaling=width**-0.5
        )
    out = np.empty(found.shape[2:], np.float32)
    out[list(order)] = found[0, 0].numpy()
    return out


def _positions(request: Request, keys: Any, values: Any) -> list[list[int]]:
    """Which rows the cache holds, by their bytes: a press returns rows and no positions."""
    found = []
    for head in range(keys.shape[1]):
        at: dict[bytes, list[int]] = {}
        for position, row in enumerate(_bytes(request["k"][:, head], request["v"][:, head])):
            at.setdefault(row, []).append(position)
        found.append(sorted(at[row].pop(0) for row in _bytes(keys[0, head].numpy(), values[0, head].numpy())))
    return found


def _bytes(keys: Array, values: Array) -> list[bytes]:
    # Minus zero comes back as zero from a product with a unit vector.
    return [row.tobytes() for row in np.concatenate([keys, values], axis=1).astype(np.float32) + np.float32(0)]


class SnapKv(_Press):
    """Scores of the last query, smoothed over five neighbours, averaged over the group."""

    engine = info("SnapKVPress", "window_size 1, kernel_size 5")

    def press(self, compression_ratio: float) -> Any:
        """Its defaults but for the window."""
        return SnapKVPress(compression_ratio=compression_ratio, window_size=1)


class SnapKvUnpooled(_Press):
    """Scores of the last query, averaged over the group."""

    engine = info("SnapKVPress", "window_size 1, kernel_size 1")
    capabilities: ClassVar[Mapping[str, Any]] = {"selection.floor": 0.99}

    def press(self, compression_ratio: float) -> Any:
        """Without the smoothing."""
        return SnapKVPress(compression_ratio=compression_ratio, window_size=1, kernel_size=1)


class Tova(_Press):
    """Weights of the last query, averaged over all heads."""

    engine = info("TOVAPress", "as it comes")

    def press(self, compression_ratio: float) -> Any:
        """One list of rows for all heads."""
        return TOVAPress(compression_ratio=compression_ratio)


class Knorm(_Press):
    """Keys of small norm, whatever the query."""

    engine = info("KnormPress", "as it comes")

    def press(self, compression_ratio: float) -> Any:
        """The query is not asked."""
        return KnormPress(compression_ratio=compression_ratio)


class KeyDiff(_Press):
    """Keys that differ from the mean key, whatever the query."""

    engine = info("KeyDiffPress", "as it comes")

    def press(self, compression_ratio: float) -> Any:
        """The query is not asked."""
        return KeyDiffPress(compression_ratio=compression_ratio)
