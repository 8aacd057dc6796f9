"""The attention ops of the built-in adapter: how a request becomes a call of the reference, and a state a reply."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

import ml_dtypes
import numpy as np
from kvassay_reference import attention
from kvassay_reference.attention import Mask, Pages, State
from kvassay_reference.errors import Refusal

from ..adapters.base import Rejected, Unsupported
from .reference_part import ReferencePart

MEMBERS = {"fp32-m-l-u-v1": ("m", "l", "u"), "o-lse-v1": ("base", "o", "lse")}
LN2 = math.log(2.0)
Request = Mapping[str, Any]


class AttentionReference(ReferencePart):
    """The attention ops on NumPy arrays. Faults override one of the small methods; so do other array libraries."""

    own_profiles: ClassVar[frozenset[str]] = frozenset({"dense", "partial", "merge", "diagnosis"})
    own_capabilities: ClassVar[Mapping[str, Any]] = {"attention.paged": True, "attention.empty_output": "reject"}
    states: ClassVar[tuple[str, ...]] = ("fp32-m-l-u-v1",)
    """A request may hold the schemas named here; replies are in the first."""
    accumulate: ClassVar[str] = "float32"
    rows_per_block: ClassVar[int] = attention.ROWS_PER_BLOCK

    def attention_dense(self, request: Request) -> dict[str, Any]:
        """Output and LSE in the dtype of the arithmetic."""
        with refusals_named():
            out, lse = self.finish(self.reduce(request))
            return {"out": self.outward(out), "lse": self.outward(lse)}

    def attention_partial(self, request: Request) -> dict[str, Any]:
        """State of the legal rows."""
        with refusals_named():
            return {"state": self.write_state(self.reduce(request))}

    def attention_merge(self, request: Request) -> dict[str, Any]:
        """State of the union."""
        with refusals_named():
            self.check_states(request["states"])
            return {"state": self.write_state(self.merge([self.read_state(state) for state in request["states"]]))}

    def reduce(self, request: Request) -> State:
        """The request's rows as one state of the reference."""
        return attention.partial(
            **self.arguments(request), accumulate=self.accumulate, rows_per_block=self.rows_per_block
        )

    def finish(self, state: State) -> tuple[Any, Any]:
        """Output and LSE of the state over all rows."""
        return attention.finish(state)

    def finish_with_zero(self, state: State) -> tuple[Any, Any]:
        """As :meth:`finish`, with output 0 and LSE -inf over no rows."""
        return attention.output(state), attention.log_sum_exp(state)

    def merge(self, states: list[State]) -> State:
        """The states as one."""
        return attention.merge(states)

    def arguments(self, request: Request) -> dict[str, Any]:
        """The request as arguments of :func:`kvassay_reference.attention.partial`."""
        pages = request.get("pages")
        return {
            "q": self.inward(request["q"]),
            "k": self.inward(request["k"]),
            "v": self.inward(request["v"]),
            "scale": request["scale"],
            "kv_head_of": request["kv_head_of"],
            "positions": self.inward(self.positions(request)),
            "q_position": request["q_position"],
            "mask": Mask(request["mask"]["causal"], request["mask"].get("window")),
            "pages": Pages(**pages) if pages else None,
        }

    def positions(self, request: Request) -> Any:
        """Position of each row."""
        if "k_positions" in request:
            return np.asarray(request["k_positions"], dtype=np.int64)
        rows = request["pages"]["rows"] if "pages" in request else request["k"].shape[0]
        return np.arange(rows, dtype=np.int64) + request["k_first_position"]

    def check_states(self, states: list[Request]) -> None:
        """Reject states that cannot be merged, in the order of the chapter."""
        for state in states:
            missing = [member for member in MEMBERS.get(state["schema"], ()) if member not in state]
            if missing:
                raise Rejected("STATE_INCOMPLETE", f"a state lacks {', '.join(missing)}")
        schemas = {state_schema(state) for state in states}
        if len(schemas) != 1 or not schemas <= set(self.states):
            raise Rejected("STATE_SCHEMA_MISMATCH", f"states of {', '.join(sorted(schemas))}")
        masses = [state[member] for state in states for member in ("m", "l", "lse") if member in state]
        if any(mass.dtype.itemsize < 4 for mass in masses):
            raise Rejected("DTYPE_MISMATCH", "softmax mass in less than float32")

    def read_state(self, state: Request) -> State:
        """A state of the reference from one of a request."""
        if state["schema"] == "fp32-m-l-u-v1":
            return State(*(self.inward(state[member]) for member in ("m", "l", "u")))
        lse = self.inward(state["lse"])
        return attention.from_output(self.inward(state["o"]), lse * LN2 if state["base"] == 2 else lse)

    def write_state(self, state: State) -> dict[str, Any]:
        """A state of a reply, in the preferred schema."""
        if self.states[0] == "fp32-m-l-u-v1":
            return {"schema": self.states[0], **{name: self.outward(part) for name, part in state._asdict().items()}}
        base: str | int = 2 if self.states[0].endswith("/2") else "e"
        lse = attention.log_sum_exp(state)
        return {
            "schema": "o-lse-v1",
            "base": base,
            "o": self.outward(attention.output(state)),
            "lse": self.outward(lse / LN2 if base == 2 else lse),
        }

    def outward(self, array: Any) -> Any:
        """An array of the reference's library as a NumPy array."""
        return np.asarray(array)


class TorchArrays:
    """Torch arrays instead of NumPy's, on the CPU."""

    def inward(self, array: Any) -> Any:
        """Share the memory; bfloat16 crosses as its bits."""
        import torch

        array = np.require(array, requirements="W")
        if array.dtype == ml_dtypes.bfloat16:
            return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
        return torch.from_numpy(array)

    def outward(self, array: Any) -> Any:
        """Share the memory."""
        return array.numpy()


class StrictArrays:
    """Arrays that offer the array API standard and nothing else, to prove that the reference needs nothing else."""

    def inward(self, array: Any) -> Any:
        """Copy; the standard has no half precision."""
        import array_api_strict

        if array.dtype.itemsize == 2:
            raise Unsupported(f"the array API standard has no {array.dtype}")
        return array_api_strict.asarray(array)

    def outward(self, array: Any) -> Any:
        """Copy."""
        return np.asarray(array)


def state_schema(state: Request) -> str:
    """A state's schema as engines declare it."""
    return f"{state['schema']}/{state.get('base')}" if state["schema"] == "o-lse-v1" else state["schema"]


@contextmanager
def refusals_named() -> Any:
    """The reference's refusals under the names of the registry, which are its own."""
    try:
        yield
    except Refusal as refusal:
        raise Rejected(refusal.reason, refusal.detail) from None
