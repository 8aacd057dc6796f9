"""The built-in adapter: the reference of every contract, on NumPy, on Torch, and in each state schema.

Each contract brings its ops as a part, in a module of its own; ``reference_part.py`` says what a part is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from ..adapters.base import EngineInfo
from .reference_attention import AttentionReference, StrictArrays, TorchArrays
from .reference_identity import Fenced, IdentityReference
from .reference_index_search import IndexSearchReference
from .reference_indexes import IndexesReference
from .reference_kvevents import KvEventsReference
from .reference_lifecycle import LifecycleReference
from .reference_memory import MemoryReference
from .reference_offload import OffloadReference
from .reference_placement import PlacementReference
from .reference_quality import QualityReference
from .reference_release import ReleaseReference
from .reference_residency import ResidencyReference
from .reference_rows import RowsReference
from .reference_runtime import RuntimeReference
from .reference_selectors import SelectorReference

ADAPTERS = {"reference": "Reference", "reference-fenced": "ReferenceFenced", "reference-torch": "ReferenceTorch"}
"""Names of the adapters here, and their classes; read without an import."""

VERSION = "0.1.0"


class Reference(
    AttentionReference,
    IdentityReference,
    OffloadReference,
    LifecycleReference,
    ResidencyReference,
    KvEventsReference,
    SelectorReference,
    PlacementReference,
    IndexesReference,
    IndexSearchReference,
    MemoryReference,
    QualityReference,
    RuntimeReference,
    ReleaseReference,
    RowsReference,
):
    """The reference on NumPy arrays, with float32 arithmetic and states ``m, l, u``."""

    engine = EngineInfo("reference", VERSION, notes="NumPy")


class ReferenceFloat64(Reference):
    """Float64 arithmetic."""

    engine = EngineInfo("reference", VERSION, notes="NumPy, float64")
    accumulate = "float64"


class ReferenceOLse(Reference):
    """States as normalised output and natural LSE."""

    engine = EngineInfo("reference", VERSION, notes="NumPy, states o and natural LSE")
    states = ("o-lse-v1/e",)


class ReferenceOLse2(Reference):
    """States as normalised output and LSE to base 2."""

    engine = EngineInfo("reference", VERSION, notes="NumPy, states o and base-2 LSE")
    states = ("o-lse-v1/2",)


class ReferenceZero(Reference):
    """Output 0 and LSE -inf, where the mask leaves no row."""

    engine = EngineInfo("reference", VERSION, notes="NumPy, output 0 over no rows")
    own_capabilities: ClassVar[Mapping[str, Any]] = {"attention.empty_output": "zero"}
    finish = AttentionReference.finish_with_zero


class ReferenceFenced(Fenced, Reference):
    """Row keys without model, adapter, tenant and generations, which are fenced by reset instead."""

    engine = EngineInfo("reference", VERSION, notes="NumPy, fields fenced by reset")


class ReferenceHalf(Reference):
    """Outputs in the dtype of the rows, with softmax weights rounded to it, as half-precision kernels do."""

    engine = EngineInfo("reference", VERSION, notes="NumPy, weights and outputs in the dtype of the rows")
    states = ("o-lse-v1/e",)

    def attention_dense(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Output rounded; the LSE stays in float32."""
        reply = super().attention_dense(request)
        return {**reply, "out": reply["out"].astype(request["q"].dtype)}

    def attention_partial(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The same for a state."""
        state = super().attention_partial(request)["state"]
        return {"state": {**state, "o": state["o"].astype(request["q"].dtype)}}

    def arguments(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The reference's, with weights rounded."""
        return {**super().arguments(request), "weights_dtype": request["q"].dtype}


class ReferenceTorch(TorchArrays, Reference):
    """The same source on Torch arrays."""

    engine = EngineInfo("reference-torch", VERSION, notes="Torch, CPU")


class ReferenceStrict(StrictArrays, Reference):
    """The same source on arrays that offer the array API standard and nothing else."""

    engine = EngineInfo("reference-strict", VERSION, notes="array-api-strict")
