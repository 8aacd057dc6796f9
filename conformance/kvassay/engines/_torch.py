"""NumPy arrays to Torch tensors and back, without a copy and without a change of dtype."""

from __future__ import annotations

import warnings
from typing import Any

import ml_dtypes
import numpy as np
import torch

from ..adapters.base import EngineInfo
from ..core.tensors import Array
from ._decode import Request, gathered_heads

warnings.filterwarnings("ignore", message="The given NumPy array is not writable")


def info(call: str, notes: str) -> EngineInfo:
    """One attention call of the installed Torch."""
    return EngineInfo(f"torch {call}", str(torch.__version__), "https://pytorch.org", "C++", notes)


def tensor(array: Array) -> Any:
    """A tensor over the memory of an array."""
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def array(value: Any) -> Array:
    """An array over the memory of a tensor."""
    if value.dtype == torch.bfloat16:
        return np.asarray(value.contiguous().view(torch.int16).numpy()).view(ml_dtypes.bfloat16)
    return np.asarray(value.numpy())


def query_keys_values(request: Request) -> tuple[Any, Any, Any]:
    """Torch's layout of a decode row: q [1, H_q, 1, d], k [1, H_kv, T, d], v [1, H_kv, T, d_v]."""
    heads = gathered_heads(request)
    q, k, v = (tensor(request[name]) for name in ("q", "k", "v"))
    if heads is not None:
        index = torch.tensor(heads)
        k, v = k.index_select(1, index), v.index_select(1, index)
    return q[None, :, None, :], k.transpose(0, 1)[None], v.transpose(0, 1)[None]
