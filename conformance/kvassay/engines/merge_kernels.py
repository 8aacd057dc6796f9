"""Merge kernels of FlashInfer, SGLang and vLLM: the engines' own text, Triton's interpreter in place of a GPU.

``requirements/merge.steps`` installs what this module needs. The engines are imported when an adapter starts, so each
can be judged without the others. An interpreted kernel does the arithmetic of the kernel in the kernel's order; what a
compiler may change (fused operations, approximate exponentials) is not judged here.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import torch

from ..adapters.base import EngineAdapter, EngineInfo, Rejected, Unsupported
from ._decode import Request
from ._torch import array, tensor

ADAPTERS = {
    "merge-flashinfer": "FlashInfer",
    "merge-flashinfer-pairs": "FlashInferPairs",
    "merge-flashinfer-reference": "FlashInferReference",
    "merge-sglang": "Sglang",
    "merge-vllm": "Vllm",
    "merge-vllm-cpu": "VllmCpu",
}
"""Names of the adapters here, and their classes; read without an import."""

Pair = tuple[Any, Any]
"""Outputs and LSE of one state or of several: [..., H_q, d_v] and [..., H_q]."""


def info(package: str, what: str, homepage: str, interpreted: bool = True) -> EngineInfo:
    """One merge of an installed engine."""
    how = f"kernel interpreted by Triton {_installed('triton')}" if interpreted else f"Torch {torch.__version__}"
    return EngineInfo(what, _installed(package), homepage, "Python", how)


def _installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _stack(request: Request, base: str | int) -> Pair:
    """All states as one pair of tensors with a leading axis."""
    states = request["states"]
    if not all(state.get("base") == base and "o" in state and "lse" in state for state in states):
        raise Unsupported(f"the call takes outputs with an LSE in base {base}, and has no name for anything else")
    try:
        outs, lses = (torch.stack([tensor(state[part]) for state in states]) for part in ("o", "lse"))
    except RuntimeError as error:
        raise Rejected(None, str(error)) from error
    return outs, lses


def _state(merged: Pair, base: str | int) -> Mapping[str, Any]:
    out, lse = merged
    return {"state": {"schema": "o-lse-v1", "base": base, "o": array(out), "lse": array(lse)}}


def _fold(request: Request, base: str | int, merge: Callable[[Pair, Pair], Pair]) -> Mapping[str, Any]:
    """A merge of two, applied from left to right."""
    outs, lses = _stack(request, base)
    if len(outs) == 1:
        raise Unsupported("the call merges two states; one alone never reaches it")
    merged = (outs[0], lses[0])
    for out, lse in zip(outs[1:], lses[1:], strict=True):
        merged = merge(merged, (out, lse))
    return _state(merged, base)


class FlashInferReference(EngineAdapter):
    """The Torch reference that FlashInfer ships beside ``merge_states``."""

    engine = info("flashinfer-python", "FlashInfer merge_states (its reference)", "https://flashinfer.ai", False)
    states = ("o-lse-v1/2",)

    def setup(self) -> None:
        """Import the reference."""
        self._merge = importlib.import_module("flashinfer.trace.templates.cascade").merge_states_trace.reference

    def attention_merge(self, request: Request) -> Mapping[str, Any]:
        """All states at once."""
        outs, lses = _stack(request, 2)
        out, lse = self._merge(outs[None], lses[None])
        return _state((out[0], lse[0]), 2)


class FlashInfer(EngineAdapter):
    """FlashInfer's Triton kernel of ``merge_states``. Its launcher insists on a GPU, so the kernel is launched here."""

    engine = info("flashinfer-python", "FlashInfer merge_states (Triton)", "https://flashinfer.ai")
    states = ("o-lse-v1/2",)

    def setup(self) -> None:
        """Import the kernel."""
        self._kernel = importlib.import_module("flashinfer.triton.kernels.cascade").merge_states_kernel

    def attention_merge(self, request: Request) -> Mapping[str, Any]:
        """All states at once."""
        outs, lses = _stack(request, 2)
        count, heads, width = outs.shape
        out, lse = torch.empty_like(outs[0]), torch.empty(heads)
        self._kernel[(1,)](outs, lses.float(), out, lse, count, heads, width, bdx=width, bdy=heads)
        return _state((out, lse), 2)


class FlashInferPairs(EngineAdapter):
    """FlashInfer's Triton kernel of ``merge_state``, which merges two; launched here for the same reason."""

    engine = info("flashinfer-python", "FlashInfer merge_state (Triton)", "https://flashinfer.ai")
    states = ("o-lse-v1/2",)

    def setup(self) -> None:
        """Import the kernel."""
        self._kernel = importlib.import_module("flashinfer.triton.kernels.cascade").merge_state_kernel

    def attention_merge(self, request: Request) -> Mapping[str, Any]:
        """From left to right."""
        return _fold(request, 2, self._pair)

    def _pair(self, a: Pair, b: Pair) -> Pair:
        heads, width = a[0].shape
        out, lse = torch.empty_like(a[0]), torch.empty(heads)
        self._kernel[(1,)](a[0], a[1].float(), b[0], b[1].float(), out, lse, heads, width, bdx=width, bdy=heads)
        return out, lse


class Sglang(EngineAdapter):
    """SGLang's ``merge_state_triton``, loaded from its file: importing the package needs the whole server."""

    engine = info("sglang", "SGLang merge_state_triton", "https://docs.sglang.ai")
    states = ("o-lse-v1/e",)

    def setup(self) -> None:
        """Load the module that holds the kernel and its launcher."""
        self._merge = _load_file("sglang", "kernels/ops/attention/merge_state.py").merge_state_triton

    def attention_merge(self, request: Request) -> Mapping[str, Any]:
        """From left to right."""
        return _fold(request, "e", self._pair)

    def _pair(self, a: Pair, b: Pair) -> Pair:
        out, lse = self._merge(a[0][None], a[1][None], b[0][None], b[1][None])
        return out[0], lse[0]


class Vllm(EngineAdapter):
    """vLLM's Triton ``merge_attn_states``, which it runs where its CUDA kernel cannot."""

    engine = info("vllm", "vLLM merge_attn_states (Triton)", "https://docs.vllm.ai")
    states = ("o-lse-v1/e",)
    _name = "vllm.v1.attention.ops.triton_merge_attn_states", "merge_attn_states"

    def setup(self) -> None:
        """Import the function."""
        module, function = self._name
        self._merge = getattr(importlib.import_module(module), function)

    def attention_merge(self, request: Request) -> Mapping[str, Any]:
        """From left to right."""
        return _fold(request, "e", self._pair)

    def _pair(self, a: Pair, b: Pair) -> Pair:
        out, lse = torch.empty_like(a[0])[None], torch.empty(len(a[1]), 1)
        self._merge(out, a[0][None], a[1][:, None], b[0][None], b[1][:, None], lse)
        return out[0], lse[:, 0]


class VllmCpu(Vllm):
    """The Torch function that stands for the same kernel on vLLM's CPU platform."""

    engine = info("vllm", "vLLM merge_attn_states (CPU)", "https://docs.vllm.ai", False)
    _name = "vllm.v1.attention.ops.merge_attn_states", "_merge_attn_states_torch"


def _load_file(package: str, path: str) -> ModuleType:
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise ModuleNotFoundError(f"No module named {package!r}", name=package)
    file = Path(found.submodule_search_locations[0], path)
    spec = importlib.util.spec_from_file_location(f"{package}.{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
