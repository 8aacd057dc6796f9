"""What breaks each rule of the two documents of the contract runtime, in the order in which reasons are told.

A change of one field breaks one rule and says nothing of the order of two. Here neighbouring rules are broken at once.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

from .contract import Draw
from .documents import Document
from .runtime_plans import KINDS

Row = dict[str, Any]
Values = Callable[[Row, Document], Sequence[Any]]
"""Of a row and its document."""
Fits = Callable[[Row, Document], bool]
Change = Callable[[Draw, Document], None]
Break = tuple[str, Change]
"""A reason, and the change of a right document for which it must be rejected."""
EXPECTED = (
    ("TENANT_MISMATCH", "tenant"),
    ("MODEL_MISMATCH", "model"),
    ("STALE_CHECKPOINT_GENERATION", "revision"),
    ("ADAPTER_MISMATCH", "adapter"),
    ("LAYOUT_MISMATCH", "layout"),
    ("UNIT_RANGE_MISMATCH", "layer_group"),
    ("UNIT_RANGE_MISMATCH", "first_position"),
    ("UNIT_RANGE_MISMATCH", "end_position"),
    ("REPRESENTATION_MISMATCH", "representation"),
    ("REPRESENTATION_MISMATCH", "dtype"),
    ("CODEC_MISMATCH", "codec"),
    ("STALE_CACHE_GENERATION", "generation"),
)
"""Reason to the field of a unit of which a request expects another value."""
SAYS = {
    "documented": ("promise",),
    "source": ("behaviour",),
    "model": ("decision",),
    "measured": ("latency", "throughput"),
}
"""Class of evidence to what may be said with it."""
OWNERS = ("scheduler", "worker", "storage")


def broken(base: Document, breaks: Sequence[Break], draw: Draw) -> Document:
    """A copy in which two neighbouring rules are broken, or more, or one, and seldom any other one."""
    made: Document = copy.deepcopy(base)
    first = draw.integer(0, len(breaks) - 1)
    chosen = list(breaks[first : first + draw.pick((2, 2, 2, 1, 3, 4))])
    if draw.chance(10):
        chosen.append(draw.pick([one for one in breaks if one not in chosen]))
    for _, change in chosen[::-1] if draw.chance(50) else chosen:
        change(draw, made)
    return made


def put(table: str, member: str, values: Values, fits: Fits = lambda row, made: True) -> Change:
    """A member of a table's row, or a member of that, gets one of several values."""

    def change(draw: Draw, made: Document) -> None:
        found = made[table]
        row: Row = draw.pick([one for one in found if fits(one, made)]) if isinstance(found, list) else found
        *outer, last = member.split("/")
        node = row
        for name in outer:
            node = node[name]
        node[last] = draw.pick(values(row, made))

    return change


def same(table: str, member: str) -> Change:
    """Two of a table's rows have one name."""

    def change(draw: Draw, made: Document) -> None:
        rows = made[table]
        one = draw.integer(0, len(rows) - 1)
        rows[one][member] = rows[(one + draw.integer(1, len(rows) - 1)) % len(rows)][member]

    return change


def either(*changes: Change) -> Change:
    """Several ways to break a rule."""

    def change(draw: Draw, made: Document) -> None:
        draw.pick(changes)(draw, made)

    return change


def any_of(*values: Any) -> Values:
    """Values that follow from nothing."""
    return lambda row, made: values


def less(values: Sequence[str], *needed: str) -> list[list[str]]:
    """A list without one of what it must have."""
    return [[value for value in values if value != gone] for gone in needed]


def more(values: Sequence[str], *others: str) -> list[list[str]]:
    """A list with one of several more, at either end."""
    return [made for other in others if other not in values for made in ([*values, other], [other, *values])]


# --- steps ---


def _held(kind: str) -> Change:
    return put("held", kind, lambda row, made: [made["capacity"][kind] + 1])


def _free(kind: str) -> Change:
    return put("free", kind, lambda row, made: [row[kind] - 1, row[kind] + 1])


def _expected(name: str) -> Change:
    def others(row: Row, made: Document) -> list[Any]:
        value = row["identity"][name]
        return [value + 1] if isinstance(value, int) else ["other"]

    return put("requests", f"identity/{name}", others)


def _next(name: str) -> Change:
    """A request was planned on an earlier or a later generation."""
    return put("requests", name, lambda row, made: [made[name] - 1, made[name] + 1])


def _most(path: Row, name: str) -> float:
    """The greatest of a path's measurements."""
    found: float = max(row[name] for row in path["measured"])
    return found


def _small(row: Row, made: Document) -> list[int]:
    """Less than the unit of a request has."""
    return [unit["bytes"] - 1 for unit in made["units"] if unit["unit"] == row["unit"]] or [0]


STEP_BREAKS: tuple[Break, ...] = (
    ("HELD_EXCEEDS_CAPACITY", either(*map(_held, KINDS))),
    ("FREE_NOT_DERIVED", either(*map(_free, KINDS))),
    ("UNKNOWN_NUMA_NODE", put("paths", "numa", lambda row, made: [made["topology"]["nodes"]])),
    ("PATH_TWICE", same("paths", "path")),
    ("RATE_ABOVE_LINK", put("paths", "link_bytes_per_ms", lambda row, made: [_most(row, "bytes_per_ms") - 1])),
    ("RATE_NOT_MEASURED", put("paths", "threads", lambda row, made: [_most(row, "threads") + 1])),
    ("DUPLICATE_UNIT", same("units", "unit")),
    ("UNKNOWN_PATH", put("units", "path", any_of("none"))),
    ("AUTHORITY_NOT_VALID", put("units", "authoritative", any_of(False))),
    ("UNIT_NOT_VALID", put("units", "integrity", any_of("unverified", "corrupt"))),
    (
        "UNIT_RANGE_INVALID",
        put("units", "identity/end_position", lambda row, made: [row["identity"]["first_position"]]),
    ),
    ("REQUEST_TWICE", same("requests", "request")),
    ("ARRIVAL_TWICE", same("requests", "arrival")),
    ("UNKNOWN_UNIT", put("requests", "unit", any_of("none"))),
    *((reason, _expected(name)) for reason, name in EXPECTED),
    ("FRONTIER_BEYOND_COMMIT", put("requests", "committed_length", any_of(0, 1))),
    ("STALE_POOL_GENERATION", _next("pool_generation")),
    ("STALE_INDEX_GENERATION", _next("index_generation")),
    ("CANDIDATE_BUDGET_EXCEEDED", put("requests", "retrieval_budget", any_of(1, 2))),
    ("UNKNOWN_NUMA_NODE", put("requests", "worker_numa", lambda row, made: [made["topology"]["nodes"]])),
    ("STAGING_TOO_SMALL", put("requests", "staging_bytes", _small)),
    (
        "EXACT_MAY_NOT_DEGRADE",
        put(
            "requests",
            "fallbacks",
            lambda row, made: more(row["fallbacks"], "degrade"),
            lambda row, made: row["contract"] == "exact",
        ),
    ),
    (
        "ENVELOPE_MISMATCH",
        put("requests", "envelope", lambda row, made: ["recall-0.9" if row["contract"] == "exact" else None]),
    ),
    (
        "RECOMPUTE_NOT_TIMED",
        put(
            "requests",
            "fallbacks",
            lambda row, made: more(row["fallbacks"], "recompute"),
            lambda row, made: row["recompute_ms"] is None,
        ),
    ),
)
"""Of a step."""


# --- reports ---


def _evidence(*classes: str) -> Fits:
    return lambda row, made: row["evidence"] in classes


def _counts(what: str) -> Fits:
    return lambda row, made: row["counts"] == what


def _not_said(row: Row, made: Document) -> list[str]:
    """What cannot be said with the evidence that there is."""
    return [said for known, says in SAYS.items() if known != row["evidence"] for said in says]


def _used(row: Row, made: Document) -> bool:
    """Whether a metric has the label of a domain."""
    return any(row["label"] in one["labels"] for one in made["metrics"])


def _isolation(member: str, *values: Any) -> Change:
    return put("isolation", member, any_of(*values))


def _limit(draw: Draw, made: Document) -> None:
    made["series_limit"] = draw.pick((1, 7, 15))


def _owner(draw: Draw, made: Document) -> None:
    state = draw.pick(list(made["ownership"]))
    made["ownership"][state] = draw.pick([one for one in OWNERS if one != made["ownership"][state]])


REPORT_BREAKS: tuple[Break, ...] = (
    ("EVIDENCE_CLASS_MISMATCH", put("claims", "says", _not_said)),
    ("EVIDENCE_NOT_PINNED", put("claims", "release", any_of(None), _evidence("documented", "source", "measured"))),
    ("EVIDENCE_WITHOUT_SOURCE", put("claims", "locator", any_of(None), _evidence("documented", "source"))),
    ("EVIDENCE_WITHOUT_INPUTS", put("claims", "inputs_sha256", any_of(None), _evidence("model"))),
    (
        "EVIDENCE_NOT_MEASURED",
        either(
            put("claims", "samples", any_of(0), _evidence("measured")),
            put("claims", "environment", any_of(None), _evidence("measured")),
        ),
    ),
    ("METRIC_TWICE", same("metrics", "metric")),
    ("UNBOUNDED_LABEL", put("metrics", "labels", lambda row, made: more(row["labels"], "request_id", "tenant"))),
    ("LABEL_WITHOUT_VALUES", put("domains", "values", any_of([]), _used)),
    ("TOO_MANY_SERIES", _limit),
    ("BYTES_COUNTED_EARLY", put("metrics", "at", any_of("submission"), _counts("bytes"))),
    ("STAGE_NOT_COUNTED", put("metrics", "counts", any_of("events", "time"), _counts("failures"))),
    ("RECEIPTS_UNBOUNDED", put("receipts", "most", any_of(None))),
    ("RECEIPT_FIELD_MISSING", put("receipts", "fields", lambda row, made: less(row["fields"], *row["fields"]))),
    (
        "EXACT_MAY_NOT_DEGRADE",
        put("objectives", "exact/actions", lambda row, made: more(row["exact"]["actions"], "degrade")),
    ),
    (
        "OBJECTIVES_MIXED",
        either(
            put("objectives", "exact/target", any_of("quality_envelope")),
            put("objectives", "approximate/target", any_of("full_cache_output")),
            put("objectives", "exact/actions", lambda row, made: more(row["exact"]["actions"], "exact_fallback")),
            put("objectives", "approximate/actions", lambda row, made: more(row["approximate"]["actions"], "wait")),
        ),
    ),
    (
        "NAMESPACE_INCOMPLETE",
        put("isolation", "namespace", lambda row, made: less(row["namespace"], "tenant", "authorization")),
    ),
    ("COPIES_UNPROTECTED", _isolation("copies_protected", False)),
    ("RECLAIMED_READABLE", _isolation("reclaimed", "left")),
    ("TENANT_OBSERVABLE", _isolation("tenants_observable", True)),
    (
        "AUDIT_INCOMPLETE",
        put("isolation", "audit_fields", lambda row, made: less(row["audit_fields"], "model", "adapter")),
    ),
    ("DELETION_BY_EVICTION", _isolation("deleted_by", "eviction")),
    ("OWNER_MISMATCH", _owner),
)
"""Of a report."""
