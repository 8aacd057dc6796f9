"""Rules of a report of judged selections: whose they are, what they keep and cost, and what a gate decided."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ..errors import Refusal
from ..offload import Rule
from . import costs, fallback, losses, runs

Json = Mapping[str, Any]
SLACK = 1e-6
"""A number may miss its value by a millionth, of the value or of one."""
OWNERS = {
    "tenant": "TENANT_MISMATCH",
    "request": "RECEIPT_OF_OTHER_REQUEST",
    "request_generation": "STALE_REQUEST_GENERATION",
    "checkpoint_generation": "STALE_CHECKPOINT_GENERATION",
    "cache_generation": "STALE_CACHE_GENERATION",
    "index_generation": "STALE_INDEX_GENERATION",
    "layer": "RECEIPT_OF_OTHER_HEAD",
    "query_head": "RECEIPT_OF_OTHER_HEAD",
    "kv_head": "WRONG_KV_HEAD",
    "query_sha256": "LOOKUP_OF_OTHER_QUERY",
}
"""Field of the identity to reason, in the order in which they are compared."""
BYTES = {
    "candidate_bytes": "CANDIDATE_BYTES_MISMATCH",
    "descriptor_bytes": "DESCRIPTOR_BYTES_MISMATCH",
    "probe_bytes": "PROBE_WORK_MISMATCH",
    "selector_macs": "PROBE_WORK_MISMATCH",
    "support_bytes": "SUPPORT_BYTES_MISMATCH",
    "transfer_bytes": "FETCH_BYTES_MISMATCH",
    "setup_bytes": "FETCH_BYTES_MISMATCH",
    "expansion_ratio": "EXPANSION_RATIO_MISMATCH",
    "false_positive_bytes": "FALSE_ROWS_MISMATCH",
    "false_negative_bytes": "FALSE_ROWS_MISMATCH",
}


def agree(stated: float | None, found: float | None) -> bool:
    """Whether two numbers agree within the slack, or both are absent."""
    if stated is None or found is None:
        return stated is None and found is None
    return math.isfinite(stated) and abs(stated - found) <= SLACK * max(1.0, abs(found))


def rules(document: Json) -> Iterator[Rule]:
    """All rules in their order."""
    yield from shape_rules(document)
    for one in document["selections"]:
        yield from identity_rules(document["identity"], one["identity"])
        yield from selection_rules(document, one)
    for one in document["decisions"]:
        yield from decision_rules(fallback.Gate(**document["gate"]), one)
    yield from claim_rules(document)


def shape_rules(document: Json) -> Iterator[Rule]:
    """Scores and values of every row, in an arithmetic that can hold their sums."""
    shape, values = document["shape"], document["values"]
    fits = len(document["logits"]) == shape["rows"] and len(values) == shape["rows"]
    fits = fits and all(len(one) == shape["value_channels"] for one in [*values, *document["map"]])
    yield fits, "SHAPE_MISMATCH"
    yield document["arithmetic"] in ("float32", "float64"), "DTYPE_MISMATCH"
    row = shape["key_channels"] * shape["key_item_bytes"] + shape["value_channels"] * shape["value_item_bytes"]
    yield shape["row_bytes"] == row, "ROW_BYTES_MISMATCH"


def identity_rules(wanted: Json, found: Json) -> Iterator[Rule]:
    """A selection is of the attention step that the report is about."""
    for name, reason in OWNERS.items():
        yield found[name] == wanted[name], reason


def recorded(document: Json, one: Json) -> dict[str, Any]:
    """A selection as a recorded run."""
    return {
        "first_position": document["shape"]["first_position"],
        "logits": np.asarray([document["logits"]], np.float64),
        "v": np.asarray(document["values"], np.float64)[:, None, :],
        "kv_heads": 1,
        "kv_head_of": [0],
        "per": "all",
        "unit": one["unit"],
        "candidates": [one["candidates"]],
        "selected": [one["selected"]],
        "persistent": document["persistent"],
    }


def selection_rules(document: Json, one: Json) -> Iterator[Rule]:
    """Sets, measures and costs follow from ids, dense scores and sizes."""
    try:
        run = runs.read(recorded(document, one), "float64")
        found = runs.chain(run, 0)
    except Refusal as refusal:
        yield False, refusal.reason
        return
    yield tuple(one["expanded"]) == found.expanded, "EXPANSION_MISMATCH"
    yield len(one["support"]) == len(set(one["support"])), "SUPPORT_DUPLICATED"
    yield tuple(one["support"]) == found.support, "SUPPORT_MISMATCH"
    yield len(found.support) > 0, "EMPTY_SUPPORT"
    yield from measure_rules(document, one, run, found)
    yield from cost_rules(document, one, run, found)


def measure_rules(document: Json, one: Json, run: runs.Run, found: runs.Chain) -> Iterator[Rule]:
    """Recalls, masses, errors and bounds."""
    stated, of_rows = one["measures"], one["unit"]["kind"] == "row"
    yield of_rows or stated["candidate_recall"] is None, "IDS_POSE_AS_ROWS"
    best = runs.dense_top(run, 0, document["top_k"])
    right = agree(stated["candidate_recall"], runs.recall(found.returned, best) if of_rows else None)
    yield right and agree(stated["support_recall"], runs.recall(found.support, best)), "RECALL_MISMATCH"
    inside = run.indices_of(found.support)
    mass, made = losses.masses(run, 0, inside), losses.outputs(run, 0, inside)
    right = agree(stated["retained_mass"], mass.retained) and agree(stated["omitted_mass"], mass.omitted)
    yield right, "MASS_MISMATCH"
    lost = losses.errors(made, mass, document["denominator_floor"])
    yield agree(stated["absolute_error"], lost.absolute), "OUTPUT_ERROR_MISMATCH"
    right = agree(stated["denominator"], lost.denominator) and agree(stated["relative_error"], lost.relative)
    yield right, "RELATIVE_ERROR_MISMATCH"
    right = agree(stated["triangle_bound"], lost.triangle) and agree(stated["bound"], lost.bound)
    yield right, "ERROR_BOUND_MISMATCH"
    behind = losses.propagate(np.asarray(document["map"], np.float64), lost)
    right = agree(stated["propagated_error"], behind.error)
    yield right and agree(stated["propagated_bound"], behind.frobenius_bound), "PROPAGATION_MISMATCH"


def cost_rules(document: Json, one: Json, run: runs.Run, found: runs.Chain) -> Iterator[Rule]:
    """Bytes of every ledger."""
    shape = document["shape"]
    said = {
        **{name: value for name, value in shape.items() if name.endswith(("_channels", "_item_bytes"))},
        **document["unit_bytes"],
        "probe": one["probe"],
    }
    sizes = costs.Sizes.read(said)
    reference = None if document["reference"] is None else [document["reference"]]
    try:
        costs.check_request(run, sizes, [document["resident"]], reference)
    except Refusal as refusal:
        yield False, refusal.reason
        return
    spent = costs.cost(run, [found], sizes, [document["resident"]], reference)["totals"]
    for name, reason in BYTES.items():
        stated = one["cost"][name]
        yield agree(stated, spent[name]) if name == "expansion_ratio" else stated == spent[name], reason


def decision_rules(gate: fallback.Gate, one: Json) -> Iterator[Rule]:
    """The action is the first legal one, and publishes what it says."""
    state = fallback.State.read(one["state"])
    try:
        gate.check(state.estimate)
    except Refusal as refusal:
        yield False, refusal.reason
        return
    yield one["action"] != "WIDEN_SEARCH" or state.phase == "initial", "WIDENED_TWICE"
    approximates = fallback.ROWS[one["action"]].publishes in ("approximate", "degraded")
    yield not (state.exact and approximates), "EXACT_REQUEST_APPROXIMATED"
    row = fallback.choose(state, gate)
    yield (one["action"], one["publishes"]) == (row.action, row.publishes), "FALLBACK_ACTION_MISMATCH"


def claim_rules(document: Json) -> Iterator[Rule]:
    """What the report says beyond its numbers."""
    claims = document["claims"]
    yield claims["recall_of"] == "kv_rows", "DOCUMENT_RECALL_CLAIMED"
    yield claims["downstream"] == "synthetic", "LOCAL_BOUND_PROMOTED"
    partial = any(len(one["support"]) < document["shape"]["rows"] for one in document["selections"])
    yield not (partial and claims["exactness"] == "exact"), "EXACTNESS_OVERCLAIMED"
    yield fallback.named(document["policy"]["version"]), "POLICY_NOT_NAMED"
