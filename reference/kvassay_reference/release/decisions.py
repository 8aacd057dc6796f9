"""The six-step decision, and the action for each failure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Facts = Mapping[str, Any]
ANSWERS = {True: "yes", False: "no", None: "unknown"}


@dataclass
class Way:
    """The answers so far."""

    answers: list[str] = field(default_factory=list)
    adds_latency: bool = False


def fits(capacity: Facts) -> bool:
    """Step 1: the full cache fits."""
    return bool(capacity["resident_bytes"] <= capacity["gpu_bytes"])


def in_budget(offload: Facts) -> bool:
    """Step 2: exact offload meets the link and the tail."""
    return bool(offload["service_ms"] <= offload["link_budget_ms"] and offload["p99_ms"] <= offload["p99_budget_ms"])


def sparse(sparsity: Facts) -> bool | None:
    """Step 3: enough mass and recall were measured; ``None`` where they were not."""
    mass, recall = sparsity["retained_mass"], sparsity["oracle_recall"]
    if sparsity["evidence"] != "measured" or mass is None or recall is None:
        return None
    return bool(mass >= sparsity["mass_floor"] and recall >= sparsity["recall_floor"])


def arrival_ms(selection: Facts) -> float:
    """When the selected rows are there."""
    return float(selection["ready_ms"] + selection["transfer_ms"])


def consistent(identities: Facts) -> bool:
    """Step 6: index, pool and cache are of one generation and published as one."""
    generation = identities["cache_generation"]
    same = identities["index_generation"] == generation == identities["pool_generation"]
    return bool(same and identities["transactional"])


def within(left: float, right: float) -> bool:
    """``left <= right`` for sums of decimals: what float64 adds to a sum is no delay."""
    return left <= right + 1e-9 * max(1.0, abs(right))


Step = Callable[[Facts, Way], str | None]


def _capacity(facts: Facts, way: Way) -> str | None:
    yes = fits(facts["capacity"])
    way.answers.append(ANSWERS[yes])
    return "exact_resident" if yes and not facts["capacity"]["other_constraint"] else None


def _offload(facts: Facts, way: Way) -> str | None:
    yes = in_budget(facts["offload"])
    way.answers.append(ANSWERS[yes])
    return "exact_offload" if yes else None


def _sparsity(facts: Facts, way: Way) -> str | None:
    found = sparse(facts["sparsity"])
    way.answers.append(ANSWERS[found])
    return {None: "measure_first", False: "decline", True: None}[found]


def _selection(facts: Facts, way: Way) -> str | None:
    selection = facts["selection"]
    early = within(arrival_ms(selection), selection["overlap_ms"])
    way.answers.append(ANSWERS[early])
    way.adds_latency = not early
    return None if within(arrival_ms(selection), selection["deadline_ms"]) else "decline"


def _approximation(facts: Facts, way: Way) -> str | None:
    allowed = facts["approximation"]["allowed"]
    way.answers.append(ANSWERS[allowed])
    return None if allowed or facts["approximation"]["exact_fallback"] else "decline"


def _identities(facts: Facts, way: Way) -> str | None:
    yes = consistent(facts["identities"])
    way.answers.append(ANSWERS[yes])
    if not yes:
        return "do_not_publish"
    return "retrieval" if facts["approximation"]["allowed"] else "retrieval_with_exact_fallback"


STEPS: tuple[Step, ...] = (_capacity, _offload, _sparsity, _selection, _approximation, _identities)


def decide(facts: Facts, steps: tuple[Step, ...] = STEPS) -> tuple[str, Way]:
    """The design, and the way to it."""
    way = Way()
    for step in steps:
        design = step(facts, way)
        if design is not None:
            return design, way
    raise AssertionError("the last step always decides")


@dataclass(frozen=True)
class Action:
    """What is done about a failure, and what must be seen afterwards."""

    action: str
    served: str
    published: bool = False
    reclaimed: str = "none"
    rollout: str = "keep"
    telemetry: str | None = None


BACK = "exact_baseline"
ACTIONS: Mapping[str, Action] = {
    action.action + ("/" + name if name else ""): action
    for name, action in (
        ("", Action("serve", "object")),
        ("selection", Action("serve", "selection")),
        ("", Action("publish", "object", published=True)),
        ("", Action("apply", "object", published=True)),
        ("", Action("noop", "object", published=True)),
        ("nothing", Action("noop", "nothing")),
        ("tenant", Action("deny", "baseline", rollout=BACK, telemetry="TENANT_MISMATCH")),
        ("identity", Action("deny", "baseline", rollout=BACK, telemetry="IDENTITY_NOT_AUTHENTIC")),
        ("", Action("discard_replica", "baseline", False, "replica", BACK, "PAYLOAD_NOT_AUTHENTIC")),
        ("other", Action("discard_replica", "other_replica", False, "replica", BACK, "PAYLOAD_NOT_AUTHENTIC")),
        ("", Action("tombstone", "nothing", False, "after_last_lease", telemetry="DELETION_PENDING")),
        ("", Action("erase", "nothing", False, "all_copies", telemetry="DELETED")),
        ("", Action("discard_completion", "nothing", False, "reservation", telemetry="STALE_COMPLETION")),
        ("", Action("withdraw_index", "baseline", False, "index", BACK, "INDEX_PAYLOAD_DIVERGENCE")),
        ("exact", Action("withdraw_index", "exact_path", False, "index", BACK, "INDEX_PAYLOAD_DIVERGENCE")),
        ("", Action("drop_reservation", "baseline", False, "reservation", telemetry="UNPUBLISHED_AT_RESTART")),
        ("old", Action("drop_reservation", "old_authority", False, "reservation", telemetry="UNPUBLISHED_AT_RESTART")),
        ("empty", Action("drop_reservation", "baseline", telemetry="UNPUBLISHED_AT_RESTART")),
        ("old-empty", Action("drop_reservation", "old_authority", telemetry="UNPUBLISHED_AT_RESTART")),
        ("", Action("finish_from_receipt", "object", published=True, telemetry="FINISHED_FROM_RECEIPT")),
        ("receipt", Action("reject", "nothing", telemetry="COMPETING_RECEIPT")),
        ("", Action("read_other_replica", "other_replica", False, "reservation", telemetry="SECONDARY_READ_LOST")),
        ("", Action("recompute", "baseline", False, "reservation", telemetry="SECONDARY_READ_LOST")),
        ("read", Action("reject", "nothing", False, "reservation", telemetry="SECONDARY_READ_LOST")),
        ("", Action("serve_and_report", "selection", telemetry="CANDIDATE_CAP_FORCED")),
        ("", Action("exact_fallback", "exact_path", telemetry="CANDIDATE_CAP_FORCED")),
        ("cap", Action("reject", "nothing", telemetry="CANDIDATE_CAP_FORCED")),
    )
}


def _tenant(e: Facts) -> str:
    same = e["reader_tenant"] == e["object_tenant"] and e["reader_domain"] == e["object_domain"]
    return "serve" if same else "deny/tenant"


def _payload(e: Facts) -> str:
    if e["tag_valid"]:
        return "serve" if e["identity_valid"] else "deny/identity"
    return "discard_replica/other" if e["other_valid_replica"] else "discard_replica"


def _deletion(e: Facts) -> str:
    if e["leases"] > 0:
        return "tombstone"
    return "erase" if e["copies"] else "noop/nothing"


def _completion(e: Facts) -> str:
    current = e["completion_generation"] == e["current_generation"]
    return "publish" if current and not e["cancelled"] else "discard_completion"


def _divergence(e: Facts) -> str:
    if e["index_generation"] == e["row_map_generation"]:
        return "serve/selection"
    return "withdraw_index/exact" if e["exact_path"] else "withdraw_index"


def _unpublished(e: Facts) -> str:
    name = "-".join(filter(None, ("old" * e["old_authority"], "empty" * (not e["reserved_bytes"]))))
    return f"drop_reservation/{name}" if name else "drop_reservation"


def _committed(e: Facts) -> str:
    if not e["receipt_durable"]:
        return "drop_reservation"
    if not e["payload_valid"]:
        return "discard_replica"
    return "noop" if e["acknowledged"] else "finish_from_receipt"


def _replay(e: Facts) -> str:
    if not e["known"]:
        return "apply"
    return "noop" if e["same_content"] else "reject/receipt"


def _lost_read(e: Facts) -> str:
    if e["other_valid_replica"]:
        return "read_other_replica"
    return "recompute" if e["recompute_allowed"] else "reject/read"


def _capped(e: Facts) -> str:
    if e["cap_reported"] and not e["exact_required"]:
        return "serve_and_report"
    return "exact_fallback" if e["exact_rows"] else "reject/cap"


FAILURES: Mapping[str, Callable[[Facts], str]] = {
    "tenant_mismatch": _tenant,
    "payload_authentication": _payload,
    "deletion_with_leases": _deletion,
    "stale_completion": _completion,
    "index_payload_divergence": _divergence,
    "crash_before_publish": _unpublished,
    "crash_after_commit": _committed,
    "receipt_replay": _replay,
    "secondary_read_lost": _lost_read,
    "candidate_cap_forced": _capped,
}
"""The ten failures, and which action their facts lead to."""


def failure_action(event: Facts) -> Action:
    """The action for one failure."""
    return ACTIONS[FAILURES[event["kind"]](event)]
