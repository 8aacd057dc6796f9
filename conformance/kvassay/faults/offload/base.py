"""What the faults of the contract offload share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kvassay_reference.offload import Plan

from ..base import ids

Request = Mapping[str, Any]
Result = dict[str, Any]
case = ids("offload")
"""Ids of this contract's cases."""


def with_layers(plan: Plan, **changes: Any) -> Plan:
    """The plan with members of every layer replaced, each by a function of the layer or by a value."""
    return replace(
        plan,
        layers=tuple(
            replace(one, **{name: value(one) if callable(value) else value for name, value in changes.items()})
            for one in plan.layers
        ),
    )
