"""Faults of *Engines with keys of their own*: changes behind a fence (IDN-039)."""

from __future__ import annotations

from typing import Any, ClassVar

from kvassay_reference import reuse

from ...engines.reference import ReferenceFenced
from ..base import Fault, found
from .base import Request, Result


class FenceFault(Fault, ReferenceFenced):
    """The reference that fences by reset, to be spoiled."""

    requirement: ClassVar[str] = "IDN-039"
    killed_by: ClassVar[tuple[str, ...]]


class ChangeIgnored(FenceFault):
    """A weight update leaves the old rows servable (vllm#57727, lmdeploy#4917)."""

    killed_by = tuple(f"identity/fence/{name.replace('_', '-')}" for name in sorted(ReferenceFenced.fields))

    def identity_change(self, request: Request) -> Result:
        return {}


class WeightsAlone(FenceFault):
    """Only an update of the weights resets; an adapter that is replaced in place does not."""

    killed_by = ("identity/fence/adapter-version", "identity/fence/adapter-name")

    def identity_change(self, request: Request) -> Result:
        return super().identity_change(request) if request["field"] in ("model", "checkpoint_generation") else {}


class FalsyFence(FenceFault):
    """``if value``: a change to zero, to an empty text or to nothing resets nothing."""

    killed_by = tuple(
        f"identity/fence/{name}"
        for name in (
            "adapter-name-to-none",
            "adapter-id-to-zero",
            "adapter-version-to-empty",
            "namespace-generation-to-zero",
        )
    )

    def identity_change(self, request: Request) -> Result:
        return super().identity_change(request) if request["value"] else {}


class HiddenNotDropped(FenceFault):
    """Old rows are hidden behind the new name and come back with the old one."""

    killed_by = ("identity/fence/there-and-back",)

    def open(self) -> None:
        super().open()
        self.stores: dict[tuple[str, Any], reuse.RowStore] = {}
        self.first = self.store

    def identity_change(self, request: Request) -> Result:
        named = (request["field"], request["value"])
        returns = named == ("checkpoint_generation", "step-1200")
        self.store = self.first if returns else self.stores.setdefault(named, reuse.RowStore())
        return {}


FAULTS = found(globals())
