"""Documents of the contract runtime with a change at the edge of a rule, or with several rules broken at once: what a
change of any field seldom hits.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

from .contract import Draw
from .documents import Document
from .runtime_breaks import OWNERS, REPORT_BREAKS, STEP_BREAKS, broken
from .runtime_plans import FALLBACKS, KINDS, POLICIES, REPORT, STEP

Change = Callable[[Draw, Document], None]
BROKEN = 45
"""Percent of documents in which rules are broken by their order and not at their edges."""
LABELS = ("runtime_release", "tier", "direction", "exactness", "fallback_action", "stage", "request_id", "tenant")
STAGES = ("lookup", "reservation", "backend_read", "staging_copy", "validation", "publication", "deletion")
SAYS = ("promise", "behaviour", "decision", "latency", "throughput")
CLASSES = ("documented", "source", "model", "measured")
ACTIONS = ("wait", "promote", "recompute", "reject", "increase_budget", "exact_fallback", "degrade")


def edged(base: Document, changes: Sequence[Change], draw: Draw) -> Document:
    """A copy with one change, seldom two."""
    made: Document = copy.deepcopy(base)
    for _ in range(2 if draw.chance(12) else 1):
        draw.pick(changes)(draw, made)
    return made


def edged_step(draw: Draw) -> Document:
    """A step."""
    base = STEP.bases[0]
    made = broken(base, STEP_BREAKS, draw) if draw.chance(BROKEN) else edged(base, STEP_CHANGES, draw)
    return {**made, "policy": draw.pick(POLICIES)}


def edged_report(draw: Draw) -> Document:
    """A report."""
    base = REPORT.bases[0]
    return broken(base, REPORT_BREAKS, draw) if draw.chance(BROKEN) else edged(base, REPORT_CHANGES, draw)


# --- steps ---


def _credits(draw: Draw, made: Document) -> None:
    kind, table = draw.pick(KINDS), draw.pick(("held", "free", "capacity"))
    value = made[table][kind] + draw.pick((1, -1))
    if table == "held" and draw.chance(40):
        value = made["capacity"][kind] + draw.pick((0, 1))
    made[table][kind] = max(0, value)
    if table == "held" and draw.chance(50):
        made["free"][kind] = max(0, made["capacity"][kind] - made["held"][kind])


def _twice(draw: Draw, made: Document) -> None:
    table, member = draw.pick(
        (
            ("paths", "path"),
            ("units", "unit"),
            ("requests", "request"),
            ("requests", "arrival"),
            ("requests", "unit"),
            ("units", "path"),
        )
    )
    one = draw.pick(made[table])
    one[member] = draw.pick(made[table])[member] if draw.chance(70) or member == "arrival" else "none"
    if member == "unit" and table == "requests":
        names = {row["unit"]: row for row in made["units"]}
        if one["unit"] in names and draw.chance(50):
            one["identity"] = copy.deepcopy(names[one["unit"]]["identity"])


def _edges(draw: Draw, made: Document) -> None:
    one = draw.pick(made["requests"])
    span = one["identity"]["end_position"] - one["identity"]["first_position"]
    size = next((row["bytes"] for row in made["units"] if row["unit"] == one["unit"]), 1)
    name, value = draw.pick(
        (
            ("committed_length", one["identity"]["end_position"]),
            ("retrieval_budget", span),
            ("staging_bytes", size),
            ("worker_numa", made["topology"]["nodes"]),
            ("pool_generation", made["pool_generation"]),
            ("index_generation", made["index_generation"]),
        )
    )
    one[name] = max(0, value + draw.pick((0, -1, 1)))


def _expected(draw: Draw, made: Document) -> None:
    one = draw.pick(made["requests"])["identity"]
    name = draw.pick(list(one))
    one[name] = one[name] + draw.pick((1, -1)) if isinstance(one[name], int) else "other"


def _unit(draw: Draw, made: Document) -> None:
    one = draw.pick(made["units"])
    name, value = draw.pick(
        (
            ("integrity", "unverified"),
            ("integrity", "corrupt"),
            ("authoritative", False),
            ("bytes", one["bytes"] + draw.pick((-1, 1))),
        )
    )
    if draw.chance(20):
        one["identity"]["end_position"] = one["identity"]["first_position"] + draw.pick((0, 1))
        for request in made["requests"]:
            if request["unit"] == one["unit"]:
                request["identity"] = copy.deepcopy(one["identity"])
        return
    one[name] = value


def _contract(draw: Draw, made: Document) -> None:
    one = draw.pick(made["requests"])
    name = draw.pick(("contract", "envelope", "fallbacks", "recompute_ms"))
    values: dict[str, Sequence[Any]] = {
        "contract": ("exact", "approximate"),
        "envelope": (None, "recall-0.9"),
        "recompute_ms": (None, 1, 2),
    }
    wanted = [one for one in FALLBACKS if draw.chance(50)]
    one[name] = draw.pick(values[name]) if name in values else (wanted[::-1] if draw.chance(50) else wanted)


def _path(draw: Draw, made: Document) -> None:
    one = draw.pick(made["paths"])
    what = draw.pick(("threads", "link", "measured", "numa", "again"))
    fastest = max(row["bytes_per_ms"] for row in one["measured"])
    if what == "threads":
        one["threads"] = draw.pick((1, 2, 3, 4, 8))
    elif what == "link":
        one["link_bytes_per_ms"] = fastest + draw.pick((0, -1, 1))
    elif what == "measured":
        draw.pick(one["measured"])["bytes_per_ms"] = one["link_bytes_per_ms"] + draw.pick((0, 1, -1))
    elif what == "numa":
        one["numa"] = made["topology"]["nodes"] + draw.pick((0, -1))
    else:
        one["measured"][0]["threads"] = draw.pick((1, 2, one["measured"][1]["threads"]))


STEP_CHANGES: tuple[Change, ...] = (_credits, _twice, _edges, _edges, _expected, _expected, _unit, _contract, _path)


# --- reports ---


def _claim(draw: Draw, made: Document) -> None:
    one = draw.pick(made["claims"])
    name = draw.pick(("says", "evidence", "release", "locator", "inputs_sha256", "environment", "samples"))
    values: dict[str, Sequence[Any]] = {"says": SAYS, "evidence": CLASSES, "samples": (0, 1), "release": (None, "v1")}
    one[name] = draw.pick(values.get(name, (None,)))


def _metric(draw: Draw, made: Document) -> None:
    one = draw.pick(made["metrics"])
    name = draw.pick(("labels", "labels", "counts", "stage", "at", "metric"))
    if name == "labels":
        one["labels"] = [label for label in LABELS if draw.chance(30)]
    else:
        values: dict[str, Sequence[Any]] = {
            "counts": ("events", "failures", "bytes", "time"),
            "stage": STAGES,
            "at": ("submission", "completion"),
            "metric": [row["metric"] for row in made["metrics"]],
        }
        one[name] = draw.pick(values[name])


def _domain(draw: Draw, made: Document) -> None:
    one = draw.pick(made["domains"])
    what = draw.pick(("values", "values", "label", "limit"))
    if what == "values":
        one["values"] = [f"v{number}" for number in range(draw.pick((0, 1, 2, 3, 5, 33)))]
    elif what == "label":
        one["label"] = draw.pick(("region", *LABELS))
    else:
        made["series_limit"] = draw.pick((15, 16, 17, 7, 8, 4))


def _receipts(draw: Draw, made: Document) -> None:
    receipts = made["receipts"]
    if draw.chance(40):
        receipts["most"] = draw.pick((None, 0, 1))
    elif draw.chance(70):
        receipts["fields"].remove(draw.pick(receipts["fields"]))
    else:
        receipts["fields"].append("note")


def _objectives(draw: Draw, made: Document) -> None:
    one = made["objectives"][draw.pick(("exact", "approximate"))]
    if draw.chance(35):
        one["target"] = draw.pick(("full_cache_output", "quality_envelope"))
    else:
        one["actions"] = [action for action in ACTIONS if draw.chance(25)]


def _isolation(draw: Draw, made: Document) -> None:
    isolation = made["isolation"]
    name = draw.pick(list(isolation))
    value = isolation[name]
    if isinstance(value, bool):
        isolation[name] = not value
        if draw.chance(40):
            isolation["outlives_process"] = False
    elif isinstance(value, list):
        value.remove(draw.pick(value))
    else:
        words = {"reclaimed": ("zeroed", "invalidated", "left"), "deleted_by": ("tombstone", "eviction")}
        isolation[name] = draw.pick(words[name])


def _ownership(draw: Draw, made: Document) -> None:
    made["ownership"][draw.pick(list(made["ownership"]))] = draw.pick(OWNERS)


REPORT_CHANGES: tuple[Change, ...] = (
    _claim,
    _claim,
    _metric,
    _metric,
    _domain,
    _receipts,
    _objectives,
    _isolation,
    _ownership,
)
