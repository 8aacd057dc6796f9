"""Faults of the two documents: rules that are not checked, or checked a little beside."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from kvassay_reference import runtime_documents
from kvassay_reference.errors import Refusal
from kvassay_reference.runtime_admission import Credits, Exact, Path
from kvassay_reference.runtime_documents import ADMISSION_RULES, BOUNDED, CLASS_OF, REPORT_RULES, Admission, Report

from ..base import Fault, title
from .base import FIELDS, Request, Result, case, fault

STEPS = {
    "FREE_NOT_DERIVED": ("RUN-010", "step/free-pinned", "step/free-staging", "step/free-link", "step/free-queue"),
    "PATH_TWICE": ("RUN-016", "step/path-twice"),
    "AUTHORITY_NOT_VALID": ("RUN-016", "step/no-authority"),
    "UNIT_NOT_VALID": ("RUN-016", "step/unverified", "step/corrupt", "step/order-unit-before-request"),
    "UNIT_RANGE_INVALID": ("RUN-016", "step/no-positions"),
    "STAGING_TOO_SMALL": ("RUN-016", "step/staging-too-small"),
    "REQUEST_TWICE": ("RUN-016", "step/request-twice"),
    "ARRIVAL_TWICE": ("RUN-016", "step/arrival-twice"),
    "FRONTIER_BEYOND_COMMIT": ("RUN-001", "step/beyond-commit", "step/order-commit-before-generations"),
    "STALE_POOL_GENERATION": ("RUN-001", "step/stale-pool", "step/pool-ahead"),
    "STALE_INDEX_GENERATION": ("RUN-001", "step/stale-index", "step/index-generation-is-pool"),
    "CANDIDATE_BUDGET_EXCEEDED": ("RUN-001", "step/over-budget"),
    "EXACT_MAY_NOT_DEGRADE": ("RUN-004", "step/exact-degrades", "step/approximate-called-exact"),
    "ENVELOPE_MISMATCH": ("RUN-004", "step/exact-with-envelope", "step/approximate-without-envelope"),
}
REPORTS = {
    "EVIDENCE_CLASS_MISMATCH": (
        "RUN-006",
        "report/promise-from-source",
        "report/behaviour-from-documents",
        "report/latency-from-a-model",
        "report/decision-called-throughput",
        "report/legal-throughput",
    ),
    "EVIDENCE_NOT_PINNED": (
        "RUN-006",
        "report/unpinned-document",
        "report/unpinned-source",
        "report/unpinned-measurement",
        "report/legal-model-without-release",
    ),
    "EVIDENCE_WITHOUT_SOURCE": ("RUN-006", "report/document-without-page", "report/source-without-file"),
    "EVIDENCE_WITHOUT_INPUTS": ("RUN-006", "report/model-without-inputs"),
    "EVIDENCE_NOT_MEASURED": ("RUN-006", "report/measured-nowhere", "report/measured-never", "report/legal-one-sample"),
    "TOO_MANY_SERIES": (
        "RUN-041",
        "report/limit-of-series",
        "report/many-releases",
        "report/legal-series-at-the-limit",
    ),
    "METRIC_TWICE": ("RUN-042", "report/metric-twice"),
    "STAGE_NOT_COUNTED": (
        "RUN-042",
        "report/no-count-of-lookup",
        "report/no-count-of-reservation",
        "report/no-count-of-backend-read",
        "report/no-count-of-staging-copy",
        "report/no-count-of-validation",
        "report/no-count-of-publication",
        "report/no-count-of-deletion",
        "report/failures-of-another-stage",
        "report/legal-more-of-a-stage",
    ),
    "BYTES_COUNTED_EARLY": ("RUN-009", "report/bytes-at-submission", "report/legal-events-at-submission"),
    "RECEIPTS_UNBOUNDED": ("RUN-043", "report/receipts-without-limit", "report/legal-every-receipt"),
    "RECEIPT_FIELD_MISSING": (
        "RUN-043",
        "report/receipt-without-request",
        "report/receipt-without-unit",
        "report/receipt-without-epoch",
        "report/receipt-without-generation",
        "report/receipt-without-credits",
        "report/receipt-without-stage",
        "report/receipt-without-outcome",
        "report/receipt-without-fallback",
    ),
    "EXACT_MAY_NOT_DEGRADE": ("RUN-004", "report/exact-may-degrade"),
    "OBJECTIVES_MIXED": (
        "RUN-004",
        "report/exact-widens",
        "report/approximate-waits",
        "report/exact-for-an-envelope",
        "report/approximate-for-the-full-cache",
        "report/legal-fewer-actions",
    ),
    "NAMESPACE_INCOMPLETE": ("RUN-005", "report/namespace-without-tenant", "report/namespace-without-authorization"),
    "COPIES_UNPROTECTED": ("RUN-005", "report/unprotected-copies", "report/legal-nothing-outlives"),
    "RECLAIMED_READABLE": ("RUN-005", "report/reclaimed-as-it-is", "report/legal-invalidated"),
    "TENANT_OBSERVABLE": ("RUN-005", "report/observable"),
    "AUDIT_INCOMPLETE": (
        "RUN-005",
        "report/audit-without-model",
        "report/audit-without-adapter",
        "report/legal-more-than-needed",
    ),
    "DELETION_BY_EVICTION": ("RUN-005", "report/deleted-by-eviction"),
    "OWNER_MISMATCH": (
        "RUN-007",
        "report/owner-of-lookup-state",
        "report/owner-of-job-ids",
        "report/owner-of-completion-fan-in",
        "report/owner-of-block-protection",
        "report/owner-of-epochs",
        "report/owner-of-page-views",
        "report/owner-of-submission",
        "report/owner-of-byte-receipts",
        "report/owner-of-unit-lifetime",
        "report/owner-of-durability",
        "report/legal-owners",
    ),
}
"""Reason to the requirement and the cases that miss its rule."""


def blind(member: str, rules: Any, reason: str, requirement: str, names: tuple[str, ...], prefix: str) -> type[Fault]:
    """The validator that never rejects for one reason."""
    rest = tuple(row for row in rules if row[0] != reason)
    text = f"Nothing is ever rejected for {reason}."
    return fault(__name__, prefix + title(reason), text, requirement, names, **{member: rest})


BLIND_STEPS = tuple(
    blind("admission_rules", ADMISSION_RULES, reason, row[0], row[1:], "StepWithout") for reason, row in STEPS.items()
)
BLIND_REPORTS = tuple(
    blind("report_rules", REPORT_RULES, reason, row[0], row[1:], "ReportWithout") for reason, row in REPORTS.items()
)


def unexpected(index: int, name: str, rule: Any) -> type[Fault]:
    """The validator that overlooks one field of the expected identity."""
    rest = tuple(row for row in ADMISSION_RULES if row is not rule)
    text = f"A request may expect another {name.replace('_', ' ')} than its unit has."
    names = [f"step/expects-other-{name.replace('_', '-')}"]
    return fault(__name__, "Unexpected" + title(name), text, "RUN-015", names, admission_rules=rest)


EXPECTED = FIELDS[: FIELDS.index("generation") + 1]
"""What a request may expect of its unit."""
_FIRST = [reason for reason, _ in ADMISSION_RULES].index("TENANT_MISMATCH")
UNEXPECTED = tuple(unexpected(index, name, ADMISSION_RULES[_FIRST + index]) for index, name in enumerate(EXPECTED))


class Patched(Fault):
    """A step is read as another one."""

    def patch(self, step: Any) -> None:
        """Make it another one."""

    def runtime_admit(self, request: Request) -> Result:
        step = copy.deepcopy(request["document"])
        self.patch(step)
        return super().runtime_admit({"document": step})


class UnknownUnitIsTheFirst(Patched):
    """A name that is not found stands for the first entry."""

    requirement = "RUN-016"
    killed_by = case("step/unknown-unit")

    def patch(self, step: Any) -> None:
        names = {one["unit"]: one for one in step["units"]}
        for one in step["requests"]:
            if one["unit"] not in names:
                one["unit"], one["identity"] = step["units"][0]["unit"], step["units"][0]["identity"]


class UnknownPathIsTheFirst(Patched):
    """A unit over an unknown path is read over the first one."""

    requirement = "RUN-016"
    killed_by = case("step/unit-over-unknown-path")

    def patch(self, step: Any) -> None:
        names = {one["path"] for one in step["paths"]}
        for one in step["units"]:
            one["path"] = one["path"] if one["path"] in names else step["paths"][0]["path"]


class LastUnitOfItsName(Patched):
    """Of two units with one name the last one counts."""

    requirement = "RUN-016"
    killed_by = case("step/unit-twice")

    def patch(self, step: Any) -> None:
        step["units"] = list({one["unit"]: one for one in step["units"]}.values())
        names = {one["unit"]: one for one in step["units"]}
        for one in step["requests"]:
            if one["unit"] not in names:
                one["unit"] = step["units"][0]["unit"]
            one["identity"] = names.get(one["unit"], step["units"][0])["identity"]


class HeldBeyondCapacityIsNothing(Patched):
    """More held than there is counts as nothing free."""

    requirement = "RUN-010"
    killed_by = case(*(f"step/held-over-capacity-{name}" for name in ("pinned", "staging", "link", "queue")))

    def patch(self, step: Any) -> None:
        for kind, held in step["held"].items():
            if held > step["capacity"][kind]:
                step["held"][kind], step["free"][kind] = step["capacity"][kind], 0


class UntimedRecomputeIsFree(Patched):
    """A recomputation without a time takes none."""

    requirement = "RUN-004"
    killed_by = case("step/recompute-without-time")

    def patch(self, step: Any) -> None:
        for one in step["requests"]:
            if "recompute" in one["fallbacks"] and one["recompute_ms"] is None:
                one["recompute_ms"] = 0


class StepWithoutLinks(Fault):
    """Rates above the link pass."""

    requirement = "RUN-014"
    killed_by = case("step/faster-than-the-link", "step/slower-link")
    admission_rules = tuple(row for row in ADMISSION_RULES if row[0] != "RATE_ABOVE_LINK")

    def run_rate(self, path: Path) -> Exact:
        if path.threads not in path.rates:
            raise Refusal("RATE_NOT_MEASURED", path.name)
        return path.rates[path.threads]


class StepWithoutMeasurements(Fault):
    """A step takes the rate of the link where it has no measurement."""

    requirement = "RUN-014"
    killed_by = case("step/unmeasured-threads", "step/threads-measured-twice")
    admission_rules = tuple(row for row in ADMISSION_RULES if row[0] != "RATE_NOT_MEASURED")

    def run_rate(self, path: Path) -> Exact:
        once = replace(path, measured=tuple(path.rates.items()))
        return super().run_rate(once) if path.threads in path.rates else path.link_bytes_per_ms


def nodes(which: int, text: str, name: str) -> type[Fault]:
    """The validator that overlooks nodes of paths, or of workers."""
    rules = [row for row in ADMISSION_RULES if row[0] == "UNKNOWN_NUMA_NODE"]
    rest = tuple(row for row in ADMISSION_RULES if row is not rules[which])
    return fault(__name__, name, text, "RUN-016", [f"step/{text}-on-unknown-node"], admission_rules=rest)


NODES = (nodes(0, "path", "PathsAnywhere"), nodes(1, "worker", "WorkersAnywhere"))


def replaced(rules: Any, reason: str, holds: Callable[[Any], bool]) -> Any:
    """The rules with another one for a reason."""
    return tuple((name, holds if name == reason else rule) for name, rule in rules)


def admission(name: str, text: str, requirement: str, names: list[str], reason: str, holds: Any) -> type[Fault]:
    """A step judged by another rule."""
    return fault(__name__, name, text, requirement, names, admission_rules=replaced(ADMISSION_RULES, reason, holds))


def report(name: str, text: str, requirement: str, names: list[str], reason: str, holds: Any) -> type[Fault]:
    """A report judged by another rule."""
    return fault(__name__, name, text, requirement, names, report_rules=replaced(REPORT_RULES, reason, holds))


def _commits(step: Admission) -> bool:
    return all(one.identity.end_position < one.committed_length for one in step.requests)


def _budgets(step: Admission) -> bool:
    spans = (one.identity.end_position - one.identity.first_position < one.retrieval_budget for one in step.requests)
    return all(spans)


def _backwards(step: Admission) -> bool:
    return all(one.pool_generation >= step.pool_generation for one in step.requests)


def _staging(step: Admission) -> bool:
    return all(one.staging_bytes == step.unit_of(one).bytes for one in step.requests)


def _free(step: Admission) -> bool:
    """No more is called free than there is."""
    capacity: Credits = step.capacity.credits()
    return (capacity - step.held.credits()).covers(step.free.credits())


def _first_alone(step: Admission) -> bool:
    return all(one.contract == "approximate" or one.fallbacks[:1] != ("degrade",) for one in step.requests)


def _fallback_first(step: Admission) -> bool:
    return all(one.contract == "approximate" or one.fallbacks for one in step.requests)


def _missing_envelope(step: Admission) -> bool:
    return all(one.envelope is not None for one in step.requests if one.contract == "approximate")


def _needless_envelope(step: Admission) -> bool:
    return all(one.envelope is None for one in step.requests if one.contract == "exact")


def _sound(step: Admission) -> bool:
    return all(one.integrity != "corrupt" for one in step.units)


BESIDE_STEPS = (
    admission(
        "CommittedOneMore",
        "A row beyond the last needed one must be committed.",
        "RUN-001",
        ["step/legal-committed-to-the-last-row"],
        "FRONTIER_BEYOND_COMMIT",
        _commits,
    ),
    admission(
        "BudgetOneMore",
        "A budget must be greater than what is retrieved.",
        "RUN-001",
        ["step/legal-budget-to-the-last-row"],
        "CANDIDATE_BUDGET_EXCEEDED",
        _budgets,
    ),
    admission(
        "NewerPoolsPass",
        "A plan on a later pool than the present one passes.",
        "RUN-001",
        ["step/pool-ahead"],
        "STALE_POOL_GENERATION",
        _backwards,
    ),
    admission(
        "StagingOfTheUnit",
        "A destination must be as wide as its unit exactly.",
        "RUN-016",
        ["step/legal-staging-with-room"],
        "STAGING_TOO_SMALL",
        _staging,
    ),
    admission(
        "LessIsFree",
        "Less may be called free than there is.",
        "RUN-010",
        ["step/free-staging"],
        "FREE_NOT_DERIVED",
        _free,
    ),
    admission(
        "DegradesOnlyFirst",
        "Only the first fallback of an exact request is looked at.",
        "RUN-004",
        ["step/exact-degrades"],
        "EXACT_MAY_NOT_DEGRADE",
        _first_alone,
    ),
    admission(
        "ExactNeedsAFallback",
        "An exact request without a fallback is rejected.",
        "RUN-004",
        ["step/legal-no-fallback"],
        "EXACT_MAY_NOT_DEGRADE",
        _fallback_first,
    ),
    admission(
        "EnvelopesOfExact",
        "An exact request may have an envelope.",
        "RUN-004",
        ["step/exact-with-envelope"],
        "ENVELOPE_MISMATCH",
        _missing_envelope,
    ),
    admission(
        "NoEnvelopeNeeded",
        "An approximate request need not say how approximate.",
        "RUN-004",
        ["step/approximate-without-envelope"],
        "ENVELOPE_MISMATCH",
        _needless_envelope,
    ),
    admission(
        "UnverifiedPasses",
        "Only bytes that are known to be wrong are rejected.",
        "RUN-016",
        ["step/unverified"],
        "UNIT_NOT_VALID",
        _sound,
    ),
)


class ChecksInAnotherOrder(Fault):
    """Rules are checked from the last to the first."""

    requirement = "RUN-015"
    killed_by = case("step/order-tenant-before-generation")
    admission_rules = (
        *ADMISSION_RULES[:_FIRST],
        *reversed(ADMISSION_RULES[_FIRST : _FIRST + len(EXPECTED)]),
        *ADMISSION_RULES[_FIRST + len(EXPECTED) :],
    )


# --- reports ---


def _class_of(says: str, evidence: str) -> Callable[[Report], bool]:
    """One pair of statement and class more is legal."""

    def holds(made: Report) -> bool:
        return all(
            one.evidence == CLASS_OF[one.says] or (one.says, one.evidence) == (says, evidence) for one in made.claims
        )

    return holds


CLASSES = tuple(
    report(name, text, "RUN-006", [f"report/{which}"], "EVIDENCE_CLASS_MISMATCH", _class_of(says, evidence))
    for name, text, which, says, evidence in (
        ("SourceIsAPromise", "What a release does is taken for a promise.", "promise-from-source", "promise", "source"),
        ("PageIsBehaviour", "A page is taken for behaviour.", "behaviour-from-documents", "behaviour", "documented"),
        ("ModelIsLatency", "A model's outcome is taken for a measurement.", "latency-from-a-model", "latency", "model"),
        ("ModelIsThroughput", "A decision is taken for a rate.", "decision-called-throughput", "throughput", "model"),
    )
)


def _pinned(classes: tuple[str, ...]) -> Callable[[Report], bool]:
    return lambda made: all(one.release is not None for one in made.claims if one.evidence in classes)


class LabelsUnlimited(Fault):
    """Any label passes, with the values that it is said to have."""

    requirement = "RUN-041"
    killed_by = case("report/request-as-label", "report/key-as-label", "report/tenant-as-label")

    def runtime_report(self, request: Request) -> Result:
        made = copy.deepcopy(request["document"])
        for one in made["metrics"]:
            one["labels"] = [label for label in one["labels"] if label in BOUNDED]
        return super().runtime_report({"document": made})


class UndeclaredLabelsPass(Fault):
    """A label without declared values counts as one series."""

    requirement = "RUN-041"
    killed_by = case("report/label-without-domain", "report/label-without-values")

    def runtime_report(self, request: Request) -> Result:
        made = copy.deepcopy(request["document"])
        known = {one["label"] for one in made["domains"] if one["values"]}
        made["domains"] = [one for one in made["domains"] if one["values"]]
        made["domains"] += [{"label": label, "values": ["any"]} for label in BOUNDED if label not in known]
        return super().runtime_report({"document": made})


def _sum_of_series(made: Report) -> bool:
    sizes = {one.label: len(one.values) for one in made.domains}
    return all(sum(sizes[label] for label in one.labels) <= made.series_limit for one in made.metrics)


def _series_strictly(made: Report) -> bool:
    return all(made.series(one) < made.series_limit for one in made.metrics)


def _every_domain(made: Report) -> bool:
    return all(one.values for one in made.domains)


def _any_metric(made: Report) -> bool:
    return set(runtime_documents.STAGES) <= {one.stage for one in made.metrics}


def _events_late(made: Report) -> bool:
    return all(one.at == "completion" for one in made.metrics if one.counts in ("bytes", "time"))


def _fields_exactly(made: Report) -> bool:
    return set(made.receipts.fields) == set(runtime_documents.RECEIPT_FIELDS)


def _most(made: Report) -> bool:
    return bool(made.receipts.most)


def _environment(made: Report) -> bool:
    return all(one.environment is not None for one in made.claims if one.evidence == "measured")


def _samples(made: Report) -> bool:
    return all(one.samples > 0 for one in made.claims if one.evidence == "measured")


def _targets(made: Report) -> bool:
    return (
        made.objectives.exact.target == "full_cache_output"
        and made.objectives.approximate.target != "full_cache_output"
    )


def _actions(made: Report) -> bool:
    legal = runtime_documents.EXACT_ACTIONS, runtime_documents.APPROXIMATE_ACTIONS
    both = made.objectives.exact, made.objectives.approximate
    return all(set(one.actions) <= those for one, those in zip(both, legal, strict=True))


def _tenant(made: Report) -> bool:
    return "tenant" in made.isolation.namespace


def _protected(made: Report) -> bool:
    return made.isolation.copies_protected


def _zeroed(made: Report) -> bool:
    return made.isolation.reclaimed == "zeroed"


def _audited(made: Report) -> bool:
    return bool({"model", "adapter"} & set(made.isolation.audit_fields))


BESIDE_REPORTS = (
    report(
        "MeasurementsFloat",
        "A measurement needs no release.",
        "RUN-006",
        ["report/unpinned-measurement"],
        "EVIDENCE_NOT_PINNED",
        _pinned(("documented", "source")),
    ),
    report(
        "ModelsArePinned",
        "A model's outcome needs a release.",
        "RUN-006",
        ["report/legal-model-without-release"],
        "EVIDENCE_NOT_PINNED",
        _pinned(("documented", "source", "measured", "model")),
    ),
    report(
        "NoSampleNeeded",
        "A measurement without samples passes.",
        "RUN-006",
        ["report/measured-never"],
        "EVIDENCE_NOT_MEASURED",
        _environment,
    ),
    report(
        "NowhereMeasured",
        "A measurement without its environment passes.",
        "RUN-006",
        ["report/measured-nowhere"],
        "EVIDENCE_NOT_MEASURED",
        _samples,
    ),
    report(
        "SeriesAddUp",
        "Values of labels are added instead of multiplied.",
        "RUN-041",
        ["report/many-releases"],
        "TOO_MANY_SERIES",
        _sum_of_series,
    ),
    report(
        "LimitIsNeverReached",
        "As many series as allowed are too many.",
        "RUN-041",
        ["report/legal-series-at-the-limit"],
        "TOO_MANY_SERIES",
        _series_strictly,
    ),
    report(
        "UnusedDomainsCount",
        "A label that nobody uses must have values.",
        "RUN-041",
        ["report/legal-unused-domain"],
        "LABEL_WITHOUT_VALUES",
        _every_domain,
    ),
    report(
        "AnyMetricCounts",
        "Any metric of a stage stands for its failures.",
        "RUN-042",
        ["report/no-count-of-reservation", "report/no-count-of-backend-read"],
        "STAGE_NOT_COUNTED",
        _any_metric,
    ),
    report(
        "TimesCountLate",
        "Times, too, may be counted at completion only.",
        "RUN-009",
        ["report/legal-events-at-submission"],
        "BYTES_COUNTED_EARLY",
        _events_late,
    ),
    report(
        "NoOtherFields",
        "A receipt may have no other field.",
        "RUN-043",
        ["report/legal-more-than-needed"],
        "RECEIPT_FIELD_MISSING",
        _fields_exactly,
    ),
    report(
        "NoneIsUnbounded",
        "A limit of none is taken for no limit.",
        "RUN-043",
        ["report/legal-every-receipt"],
        "RECEIPTS_UNBOUNDED",
        _most,
    ),
    report(
        "TargetsAlone",
        "Actions of the two objectives may mix.",
        "RUN-004",
        ["report/exact-widens", "report/approximate-waits"],
        "OBJECTIVES_MIXED",
        _targets,
    ),
    report(
        "ActionsAlone",
        "Targets of the two objectives may mix.",
        "RUN-004",
        ["report/exact-for-an-envelope", "report/approximate-for-the-full-cache"],
        "OBJECTIVES_MIXED",
        _actions,
    ),
    report(
        "TenantIsEnough",
        "Keys need not be separated by authorization.",
        "RUN-005",
        ["report/namespace-without-authorization"],
        "NAMESPACE_INCOMPLETE",
        _tenant,
    ),
    report(
        "AlwaysProtected",
        "Copies that go with the process must be protected, too.",
        "RUN-005",
        ["report/legal-nothing-outlives"],
        "COPIES_UNPROTECTED",
        _protected,
    ),
    report(
        "OnlyZeroed",
        "Storage that is invalidated counts as readable.",
        "RUN-005",
        ["report/legal-invalidated"],
        "RECLAIMED_READABLE",
        _zeroed,
    ),
    report(
        "OneAuditFieldIsEnough",
        "Model or adapter is enough in an audit record.",
        "RUN-005",
        ["report/audit-without-model", "report/audit-without-adapter"],
        "AUDIT_INCOMPLETE",
        _audited,
    ),
)


def owned(state: str) -> type[Fault]:
    """The validator that does not know who keeps one state."""

    def holds(made: Report) -> bool:
        return all(
            getattr(made.ownership, name) == owner for name, owner in runtime_documents.OWNERS.items() if name != state
        )

    names = [f"report/owner-of-{state.replace('_', '-')}"]
    text = f"Anybody may keep {state.replace('_', ' ')}."
    return report("NobodyOwns" + title(state), text, "RUN-007", names, "OWNER_MISMATCH", holds)


OWNED = tuple(map(owned, runtime_documents.OWNERS))

FAULTS: tuple[type[Fault], ...] = (
    *BLIND_STEPS,
    *UNEXPECTED,
    UnknownUnitIsTheFirst,
    UnknownPathIsTheFirst,
    LastUnitOfItsName,
    HeldBeyondCapacityIsNothing,
    UntimedRecomputeIsFree,
    StepWithoutLinks,
    StepWithoutMeasurements,
    *NODES,
    *BESIDE_STEPS,
    ChecksInAnotherOrder,
    *BLIND_REPORTS,
    *CLASSES,
    LabelsUnlimited,
    UndeclaredLabelsPass,
    *BESIDE_REPORTS,
    *OWNED,
)
