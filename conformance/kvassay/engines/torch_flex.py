"""Torch's flex_attention on the CPU: eager with its LSE, and compiled, which has none on a CPU.

``requirements/torch.txt`` installs what this module needs; the compiled one also needs a C++ compiler.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.nn.attention.flex_attention import AuxRequest, create_block_mask, flex_attention

from ..adapters.base import EngineAdapter, Rejected
from ._decode import EMPTY_IS_ZERO, Request, positions
from ._torch import array, info, query_keys_values, tensor

ADAPTERS = {"torch-flex": "TorchFlex", "torch-flex-compiled": "TorchFlexCompiled"}
"""Names of the adapters here, and their classes; read without an import."""

warnings.filterwarnings("ignore", message="flex_attention called without torch.compile")


class TorchFlex(EngineAdapter):
    """``flex_attention`` uncompiled, with causal and window rules as its ``mask_mod``."""

    engine = info("flex_attention (eager)", "CPU; masks through mask_mod and a block mask")
    states = ("o-lse-v1/e",)
    capabilities = EMPTY_IS_ZERO

    def attention_partial(self, request: Request) -> Mapping[str, Any]:
        """Output and LSE over the rows of one partition."""
        out, lse = self._attend(request)
        return {"state": {"schema": "o-lse-v1", "base": "e", "o": out, "lse": lse}}

    def attention_dense(self, request: Request) -> Mapping[str, Any]:
        """The same call: a whole history is one partition."""
        out, lse = self._attend(request)
        return {"out": out, "lse": lse}

    def _attend(self, request: Request) -> tuple[Any, Any]:
        out, aux = _call(flex_attention, request, return_aux=AuxRequest(lse=True))
        return array(out[0, :, 0]), array(aux.lse[0, :, 0])


class TorchFlexCompiled(EngineAdapter):
    """``torch.compile(flex_attention)``: the generated C++ kernel, one compilation for each new kind of call."""

    engine = info("flex_attention (compiled)", "CPU; its kernel returns no LSE there")
    capabilities = EMPTY_IS_ZERO

    def setup(self) -> None:
        """Allow as many compilations as the corpus has kinds of calls; the default is eight."""
        torch._dynamo.config.recompile_limit = 1024
        torch._dynamo.config.accumulated_recompile_limit = 4096
        self._compiled = torch.compile(flex_attention, fullgraph=True)

    def attention_dense(self, request: Request) -> Mapping[str, Any]:
        """Attention output; compiled on a CPU the call refuses to return an LSE."""
        with torch.no_grad():
            return {"out": array(_call(self._compiled, request)[0, :, 0])}


def _call(attention: Callable[..., Any], request: Request, **options: Any) -> Any:
    q, k, v = query_keys_values(request)
    try:
        return attention(
            q,
            k,
            v,
            block_mask=_block_mask(request),
            scale=request["scale"],
            enable_gqa=q.shape[1] != k.shape[1],
            **options,
        )
    except ValueError as error:
        raise Rejected(None, str(error)) from error


def _block_mask(request: Request) -> Any:
    mask, query = request["mask"], request["q_position"]
    if not mask["causal"] and "window" not in mask:
        return None
    row = tensor(positions(request))
    above = query - mask["window"] if "window" in mask else -1
    last = query if mask["causal"] else torch.iinfo(row.dtype).max

    def visible(batch: Any, head: Any, query_row: Any, key_row: Any) -> Any:
        return (row[key_row] > above) & (row[key_row] <= last)

    return create_block_mask(visible, None, None, 1, len(row), device="cpu")
