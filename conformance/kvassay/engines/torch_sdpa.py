"""Torch's scaled dot product attention on the CPU: the fused operator with its LSE, and the public function.

``requirements/torch.txt`` installs what this module needs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from ..adapters.base import EngineAdapter, Rejected, Unsupported
from ._decode import EMPTY_IS_ZERO, Request, legal_rows
from ._torch import array, info, query_keys_values, tensor

ADAPTERS = {"torch": "TorchFlash", "torch-sdpa": "TorchSdpa"}
"""Names of the adapters here, and their classes; read without an import."""


class TorchFlash(EngineAdapter):
    """The operator behind ``scaled_dot_product_attention`` on a CPU, which also returns the natural-log LSE.

    It takes additive masks only, of the query's dtype. Torch's checks of its arguments arrive as rejections without a
    reason of the registry; whatever else goes wrong is left to go wrong.
    """

    engine = info("_scaled_dot_product_flash_attention_for_cpu", "private operator; one K/V head size for K and V")
    states = ("o-lse-v1/e",)
    capabilities = EMPTY_IS_ZERO

    def attention_partial(self, request: Request) -> Mapping[str, Any]:
        """Output and LSE over the rows of one partition."""
        out, lse = _flash(request)
        return {"state": {"schema": "o-lse-v1", "base": "e", "o": array(out), "lse": array(lse)}}

    def attention_dense(self, request: Request) -> Mapping[str, Any]:
        """The same call: a whole history is one partition."""
        out, lse = _flash(request)
        return {"out": array(out), "lse": array(lse)}


class TorchSdpa(EngineAdapter):
    """``torch.nn.functional.scaled_dot_product_attention`` as a model calls it: boolean mask, ``enable_gqa``."""

    engine = info("scaled_dot_product_attention", "public function; CPU")
    capabilities = EMPTY_IS_ZERO

    def attention_dense(self, request: Request) -> Mapping[str, Any]:
        """Attention output; the function returns no LSE, so there are no partial states."""
        q, k, v = query_keys_values(request)
        legal = legal_rows(request)
        mask = None if legal is None else tensor(legal)[None, None, None, :]
        try:
            out = torch.nn.functional.scaled_dot_product_attention(
                q, k, v, attn_mask=mask, scale=request["scale"], enable_gqa=q.shape[1] != k.shape[1]
            )
        except RuntimeError as error:
            raise Rejected(None, str(error)) from error
        return {"out": array(out[0, :, 0])}


def _flash(request: Request) -> tuple[Any, Any]:
    q, k, v = query_keys_values(request)
    if v.shape[-1] != k.shape[-1]:
        raise Unsupported("the operator takes one head size for K and V")
    legal = legal_rows(request)
    mask = None
    if legal is not None:
        mask = torch.zeros((1, 1, 1, len(legal)), dtype=q.dtype).masked_fill(~tensor(legal), -math.inf)
    try:
        out, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            q, k, v, attn_mask=mask, scale=request["scale"]
        )
    except RuntimeError as error:
        raise Rejected(None, str(error)) from error
    return out[0, :, 0], lse[0, :, 0]
