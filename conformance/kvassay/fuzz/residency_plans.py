"""Requests for the plans and validators of the contract residency, of which each has one right reply."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .contract import Draw
from .documents import Document, Documents
from .lifecycle_plans import MIB, TIMES

Request = dict[str, Any]
DIRECTORY = Documents("urn:kvassay:residency/directory", "residency/directory")


def approximate(document: Document) -> Document:
    """A step over rows that a policy selected, as many as its budget allows."""
    rows = len(document["plan"]["logical_positions"])
    document["selection"] = {"mode": "approximate", "policy_version": "policy-3", "candidate_budget": rows}
    return document


STEP = Documents("urn:kvassay:residency/step", "residency/step", others=[approximate])
DOCUMENTS = {"residency.release": DIRECTORY, "residency.step_inputs": STEP}
"""Op to the documents that it judges."""
TEXTS = ("model", "adapter", "mask", "sampling", "kernel", "dtype")


def tier_value(draw: Draw) -> Request:
    """A chunk in up to four tiers, some of equal value, some just too full, and seldom one named twice."""
    size = draw.integer(0, 6) * MIB // 4 + draw.pick((0, 0, 0, 1, -1, 12345))
    size = max(0, size)
    names = ["host", "device", "remote", "secondary"]
    return {
        "chunk": {
            "bytes": size,
            "reuse_probability": draw.pick((0, 0.25, 0.5, 1, 0.3)),
            "recompute_ms": draw.pick((*TIMES, 8, 16)),
        },
        "tiers": [
            {
                "tier": draw.pick(names) if draw.chance(6) else names[index],
                "promote_ms": draw.pick((0, 1, 2, 0.5)),
                "room_ms_per_mib": draw.pick((0, 0, 0.5, 1)),
                "write_ms": draw.pick((0, 0, 0.5, 1)),
                "free_bytes": max(0, draw.pick((8 * MIB, 8 * MIB, size, size - 1, size + 1, 0))),
            }
            for index in range(draw.integer(1, 4))
        ],
    }


def row_states(draw: Draw) -> Request:
    """Up to seven rows, each in some of the sets, and seldom one that is not committed."""
    positions = draw.integer(0, 7)

    def rows(percent: int) -> list[int]:
        found = [row for row in range(positions) if draw.chance(percent)]
        if draw.chance(4):
            found.append(positions)
        return found[::-1] if draw.chance(20) else found

    return {
        "positions": positions,
        "visible": rows(50),
        "recoverable": rows(50),
        "in_transfer": rows(25),
        "selected": None if draw.chance(40) else rows(50),
    }


def compare(draw: Draw) -> Request:
    """Two runs that agree, or differ in a condition, in one number, by a little, or in shape."""
    conditions: Request = {"tokens_sha256": "1" * 64, "positions_sha256": "2" * 64, **dict.fromkeys(TEXTS, "x")}
    candidate = dict(conditions)
    if draw.chance(25):
        name = draw.pick(list(conditions))
        candidate[name] = "3" * 64 if name.endswith("sha256") else "y"
    layers: list[Request] = []
    for _ in range(draw.integer(1, 4)):
        values = [draw.pick((0, 1, -1, 0.5, 3)) for _ in range(draw.integer(0, 3))]
        layers.append({"baseline": values, "candidate": list(values)})
    for _ in range(draw.integer(0, 2)):
        layer = draw.pick(layers)
        if layer["candidate"]:
            index = draw.integer(0, len(layer["candidate"]) - 1)
            layer["candidate"][index] += draw.pick((1, -1, 2.0**-20, -0.25))
    if draw.chance(8):
        draw.pick(layers)[draw.pick(("baseline", "candidate"))].append(0)
    return {
        "mode": draw.pick(("exact", "approximate")),
        "baseline": conditions,
        "candidate": candidate,
        "layers": layers,
    }


PLANS: dict[str, Callable[[Draw], Request]] = {
    f"residency.{one.__name__}": one for one in (tier_value, row_states, compare)
}
"""Op to a request of it."""
