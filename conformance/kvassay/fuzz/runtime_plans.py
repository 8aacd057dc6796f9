"""Requests for the plans and validators of the contract runtime, of which each has one right reply."""

from __future__ import annotations

import copy
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from .contract import Draw
from .documents import Document, Documents

Request = dict[str, Any]
KINDS = ("pinned_bytes", "staging_bytes", "link_bytes", "queue_slots")
POLICIES = ("fifo", "earliest_deadline", "exact_deadline_coalescing")
FALLBACKS = ("recompute", "postpone", "degrade")


def under(policy: str) -> Callable[[Document], Document]:
    """The base step under another policy."""

    def make(document: Document) -> Document:
        return {**document, "policy": policy}

    return make


STEP = Documents("urn:kvassay:runtime/admission", "runtime/admission", others=[under(one) for one in POLICIES[:2]])
REPORT = Documents("urn:kvassay:runtime/report", "runtime/report")
DOCUMENTS = {"runtime.admit": STEP, "runtime.report": REPORT}
"""Op to the documents that it judges."""


def exact(number: float) -> Fraction:
    """The number as it is written in decimals."""
    return Fraction(str(number))


def took(one: Request, size: int, worker_numa: int, crossing_ms: float) -> Fraction | None:
    """How long a path takes for some bytes, milliseconds; ``None`` where its rate was not measured."""
    rate = next((row["bytes_per_ms"] for row in one["measured"] if row["threads"] == one["threads"]), None)
    if rate is None:
        return None
    crossing = crossing_ms if worker_numa != one["numa"] else 0
    return sum(map(exact, (one["queue_ms"], one["setup_ms"], crossing)), size / exact(rate))


def around(draw: Draw, end: Fraction) -> float:
    """A point in time, mostly the end itself, or a tenth to one of its sides."""
    at = max(Fraction(0), end + Fraction(draw.pick((0, 0, 0, 1, -1)), 10))
    return int(at) if at.denominator == 1 else float(at)


def path(draw: Draw, name: str) -> Request:
    """A path that was measured with some numbers of threads, seldom without those that serve it or twice with some."""
    measured = draw.pick(((1, 2, 4), (1, 4), (2,), (4, 1, 2)) if draw.chance(90) else ((2, 2), (1, 4, 1), (4, 2, 1, 2)))
    rates = [draw.pick((2, 4, 8, 10, 0.5)) for _ in measured]
    return {
        "path": name,
        "tier": "host",
        "numa": draw.pick((0, 1, 1, 3)),
        "threads": draw.pick(measured) if draw.chance(90) else draw.pick((1, 2, 3, 4, 8)),
        "link_bytes_per_ms": draw.pick((10, 10, 20, 16, max(rates))) if draw.chance(90) else 4,
        "measured": [{"threads": threads, "bytes_per_ms": rate} for threads, rate in zip(measured, rates, strict=True)],
        "queue_ms": draw.pick((0, 0.25, 0.1, 1)),
        "setup_ms": draw.pick((0, 0.25, 0.2, 1)),
    }


def estimate(draw: Draw) -> Request:
    """A small transfer, whose deadline is often met or missed by nothing."""
    made: Request = {
        "path": path(draw, "p"),
        "bytes": draw.integer(0, 12),
        "worker_numa": draw.pick((0, 1, 3)),
        "crossing_ms": draw.pick((0, 0.5, 0.3)),
        "now_ms": draw.pick((0, 10, 0.1, 0.7)),
        "deadline_ms": draw.pick((10, 11, 12.5, 10.5, 1, 0)),
    }
    total = took(made["path"], made["bytes"], made["worker_numa"], made["crossing_ms"])
    if total is not None and draw.chance(60):
        made["deadline_ms"] = around(draw, exact(made["now_ms"]) + total)
    return made


def batch(draw: Draw) -> Request:
    """Up to seven requests, most of them alike in all but one part."""
    rows = []
    names = [f"r{index}" for index in range(7)]
    for _ in range(draw.integer(0, 7)):
        row: Request = {
            "request": names.pop(draw.integer(0, len(names) - 1)),
            "tokens": draw.pick((16, 4096)),
            "fetch_bytes": draw.pick((8, 8, 5, 6)),
            "tier": "host",
            "numa": 0,
            "candidates": 4,
            "slack_ms": 5,
            "contract": "exact",
            "identity": "m",
            "staging_bytes": draw.pick((1, 2, 0)),
        }
        if draw.chance(50):
            part = draw.pick(("fetch_bytes", "tier", "numa", "candidates", "slack_ms", "contract", "identity"))
            others = {"tier": "file", "numa": 1, "contract": "approximate", "identity": "n"}
            fractions = (0.5, 0.9, 4.4, 4.5, 3.9) if part == "slack_ms" else ()
            row[part] = others.get(part, draw.pick((0, 1, 3, 4, 5, 8, 9, 16, 17, (1 << 49) + 1, 1 << 49, *fractions)))
        rows.append(row)
    return {
        "cap_bytes": draw.pick((8, 16, 15, 24, 40, 1 << 51)),
        "staging_bytes": draw.pick((0, 1, 3, 5, 100)),
        "buckets": {
            "fetch_bytes": draw.pick((1, 4)),
            "candidates": draw.pick((1, 4)),
            "slack_ms": draw.pick(([1, 4, 5], [0.5, 4.5])),
        },
        "requests": rows,
    }


def step(draw: Draw) -> Document:
    """Up to six requests for up to three units, with credits for about half of them."""
    made: Document = copy.deepcopy(STEP.bases[0])
    names = ("u0", "u1", "u2")
    sizes = [draw.pick((2, 4, 4, 6)) for _ in names]
    template, asked = made["units"][0], made["requests"][0]
    made["paths"] = [
        {**path(draw, "p"), "numa": draw.integer(0, 1), "threads": 1, "link_bytes_per_ms": 99},
        made["paths"][1],
    ]
    made["paths"][0]["measured"] = [{"threads": 1, "bytes_per_ms": draw.pick((2, 4, 8, 10))}]
    made["units"] = [
        {
            **template,
            "unit": name,
            "path": "p",
            "bytes": size,
            "identity": {**template["identity"], "first_position": 8 * index, "end_position": 8 * index + 8},
        }
        for index, (name, size) in enumerate(zip(names, sizes, strict=True))
    ]
    arrivals = [1, 2, 9, 10, 11, 20]
    made["now_ms"] = draw.pick((100, 100, 0.1, 0.7, 1.1))
    made["requests"] = []
    for index in range(draw.integer(0, 6)):
        which = draw.integer(0, 2)
        contract = "exact" if draw.chance(60) else "approximate"
        wanted = [one for one in FALLBACKS if draw.chance(50) and (one != "degrade" or contract == "approximate")]
        worker, recompute = draw.integer(0, 1), draw.pick((0, 1, 2, 3, 0.1, 0.2, 0.7, 1.1))
        total = took(made["paths"][0], sizes[which], worker, made["topology"]["crossing_ms"]) or Fraction(0)
        lasts = draw.pick((total, exact(recompute), *map(exact, (0, 0.1, 0.7, 1, 1.1, 1.5, 2, 3, 3, 10, 900))))
        made["requests"].append(
            {
                **asked,
                "request": f"r{index}",
                "arrival": arrivals.pop(draw.integer(0, len(arrivals) - 1)),
                "unit": names[which],
                "identity": made["units"][which]["identity"],
                "worker_numa": worker,
                "staging_bytes": sizes[which] + draw.pick((0, 0, 1)),
                "contract": contract,
                "envelope": "e" if contract == "approximate" else None,
                "fallbacks": wanted[::-1] if draw.chance(50) else wanted,
                "recompute_ms": recompute,
                "deadline_ms": around(draw, exact(made["now_ms"]) + lasts),
            }
        )
    free = {"pinned_bytes": (4, 8, 12, 99), "staging_bytes": (4, 8, 12, 99), "link_bytes": (4, 8, 12, 99)}
    made["free"] = {**{kind: draw.pick(few) for kind, few in free.items()}, "queue_slots": draw.integer(0, 6)}
    made["held"] = {kind: draw.pick((0, 1, 5)) for kind in KINDS}
    made["capacity"] = {kind: made["free"][kind] + made["held"][kind] for kind in KINDS}
    made["policy"] = draw.pick(POLICIES)
    return made


PLANS: dict[str, Callable[[Draw], Request]] = {"runtime.estimate": estimate, "runtime.batch": batch}
"""Op to a request of it."""
