"""JAX's ``jax.nn.dot_product_attention`` with its residual, the natural-log LSE.

``requirements/jax.txt`` installs what this module needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from ..adapters.base import EngineAdapter, EngineInfo, Rejected, Unsupported
from ..core.tensors import Array
from ._decode import EMPTY_IS_ZERO, Request, gathered_heads, legal_rows

ADAPTERS = {"jax": "Jax"}
"""Names of the adapters here, and their classes; read without an import."""


class Jax(EngineAdapter):
    """``dot_product_attention`` of one query row; causal and window rules as its boolean mask.

    ``is_causal`` and ``local_window_size`` count both sequences from 0, so they cannot say where a decode row stands.
    """

    engine = EngineInfo(
        "jax.nn.dot_product_attention", jax.__version__, "https://docs.jax.dev", "Python", "implementation xla; CPU"
    )
    states = ("o-lse-v1/e",)
    capabilities = EMPTY_IS_ZERO

    def attention_partial(self, request: Request) -> Mapping[str, Any]:
        """Output and residual over the rows of one partition."""
        out, lse = _attend(request)
        return {"state": {"schema": "o-lse-v1", "base": "e", "o": out, "lse": lse}}

    def attention_dense(self, request: Request) -> Mapping[str, Any]:
        """The same call: a whole history is one partition."""
        out, lse = _attend(request)
        return {"out": out, "lse": lse}


def _attend(request: Request) -> tuple[Array, Array]:
    q, k, v = (request[name] for name in ("q", "k", "v"))
    heads = gathered_heads(request)
    if heads is not None:
        k, v = k[:, heads], v[:, heads]
    if v.shape[-1] != k.shape[-1]:
        raise Unsupported("the function takes one head size for K and V")
    legal = legal_rows(request)
    try:
        out, lse = jax.nn.dot_product_attention(
            q[None],
            k,
            v,
            mask=None if legal is None else legal[None, None, :],
            scale=request["scale"],
            return_residual=True,
        )
    except (TypeError, ValueError) as error:
        raise Rejected(None, str(error)) from error
    return np.asarray(out)[0], np.asarray(lse)[0]
