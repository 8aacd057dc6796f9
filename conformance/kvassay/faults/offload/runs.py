"""Faults of runs: what an engine tells of its copies (OFF-001, OFF-003, OFF-030)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from kvassay_reference import offload
from kvassay_reference.offload import LayerLedger, Plan, Times

from ..base import Fault, found
from .base import Request, Result, case


class Ran(Fault):
    """A run whose copies say something else."""

    changes: ClassVar[Mapping[str, Any]]

    def offload_run(self, request: Request) -> Result:
        events = super().offload_run(request)["events"]
        return {"events": [event | {k: v for k, v in self.changes.items() if k in event} for event in events]}


class RunOfOtherGeneration(Ran):
    """Copies are reserved under the generation before."""

    requirement = "OFF-003"
    killed_by = case("run/base", "run/resident-between")
    changes: ClassVar[Mapping[str, Any]] = {"cache_generation": 22}


class ShortRun(Ran):
    """A copy is published with a byte missing."""

    requirement = "OFF-030"
    killed_by = case("run/base", "run/transfer-bound")
    changes: ClassVar[Mapping[str, Any]] = {"payload_bytes": 1}


class ResidentSubset(Fault):
    """The kernel reads what the GPU held before the copies."""

    requirement = "OFF-001"
    killed_by = case("run/base")

    def event(self, plan: Plan, index: int, layer: offload.Layer, one: LayerLedger, times: Times) -> Result:
        return {
            **super().event(plan, index, layer, one, times),
            "support": [list(span) for span in layer.resident],
        }


FAULTS = found(globals())
