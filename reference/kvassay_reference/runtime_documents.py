"""Documents of the contract runtime: a step that asks for admission, and the report of a deployment.

``ADMISSION_RULES`` and ``REPORT_RULES`` are the order of precedence: the first rule that a document breaks is the
reason. Article 0x08A, 0x08D to 0x08I and 0x08K.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Literal, TypeVar

from .errors import Refusal
from .manifest import Digest, Extent, Natural
from .runtime_admission import Ask, Credits, Exact, Path, Terms, exact

_Document = TypeVar("_Document")
Name = Annotated[str, re.compile(r"(?s).{1,200}")]
Rate = Annotated[float, 0]
"""Also durations and points in time."""
Speed = Annotated[float, math.ulp(0.0)]
"""More than zero: what a transfer's bytes are divided by."""


# --- admission ---


@dataclass(frozen=True)
class Amounts:
    """An amount of each credit."""

    pinned_bytes: Natural
    staging_bytes: Natural
    link_bytes: Natural
    queue_slots: Natural

    def credits(self) -> Credits:
        """To reckon with."""
        return Credits(self.pinned_bytes, self.staging_bytes, self.link_bytes, self.queue_slots)


@dataclass(frozen=True)
class Identity:
    """What the bytes of rows and their meaning depend on."""

    tenant: Name
    model: Name
    revision: Name
    adapter: Name
    layout: Name
    layer_group: Natural
    first_position: Natural
    end_position: Natural
    representation: Name
    dtype: Name
    codec: Name
    generation: Natural


@dataclass(frozen=True)
class BackendUnit:
    """Rows that are read as one piece and never change."""

    unit: Name
    identity: Identity
    path: Name
    authoritative: bool
    integrity: Literal["valid", "unverified", "corrupt"]
    bytes: Extent


@dataclass(frozen=True)
class Measured:
    """One measurement of a path."""

    threads: Extent
    bytes_per_ms: Speed


@dataclass(frozen=True)
class PathDocument:
    """A way from a source to a worker."""

    path: Name
    tier: Literal["host", "file", "remote"]
    numa: Natural
    threads: Extent
    link_bytes_per_ms: Rate
    measured: tuple[Measured, ...]
    queue_ms: Rate
    setup_ms: Rate

    def rated(self) -> Path:
        """To estimate with."""
        return Path(
            self.path,
            self.numa,
            self.threads,
            exact(self.link_bytes_per_ms),
            tuple((row.threads, exact(row.bytes_per_ms)) for row in self.measured),
            exact(self.queue_ms),
            exact(self.setup_ms),
        )


@dataclass(frozen=True)
class Topology:
    """Nodes of memory and what it costs to cross from one to another."""

    nodes: Extent
    crossing_ms: Rate


@dataclass(frozen=True)
class RequestState:
    """One request that decodes and needs rows."""

    request: Name
    arrival: Natural
    unit: Name
    identity: Identity
    committed_length: Natural
    pool_generation: Natural
    index_generation: Natural
    retrieval_budget: Extent
    worker_numa: Natural
    staging_bytes: Natural
    contract: Literal["exact", "approximate"]
    envelope: Name | None
    fallbacks: tuple[Literal["recompute", "postpone", "degrade"], ...]
    recompute_ms: Rate | None
    deadline_ms: Rate

    def terms(self) -> Terms:
        """To fall back by."""
        recompute = None if self.recompute_ms is None else exact(self.recompute_ms)
        return Terms(self.contract, tuple(self.fallbacks), recompute, exact(self.deadline_ms))


@dataclass(frozen=True)
class Admission:
    """What one schedule step knows."""

    policy: Literal["fifo", "earliest_deadline", "exact_deadline_coalescing"]
    now_ms: Rate
    capacity: Amounts
    held: Amounts
    free: Amounts
    pool_generation: Natural
    index_generation: Natural
    topology: Topology
    paths: tuple[PathDocument, ...]
    units: tuple[BackendUnit, ...]
    requests: tuple[RequestState, ...]

    def unit_of(self, request: RequestState) -> BackendUnit:
        """The unit that a request names."""
        return next(one for one in self.units if one.unit == request.unit)

    def path_of(self, unit: BackendUnit) -> PathDocument:
        """The path that a unit names."""
        return next(one for one in self.paths if one.path == unit.path)


Rule = tuple[str, Callable[[_Document], bool]]
AdmissionRule = tuple[str, Callable[[Admission], bool]]


def each_request(holds: Callable[[Admission, RequestState], bool]) -> Callable[[Admission], bool]:
    """A rule for all requests."""
    return lambda step: all(holds(step, one) for one in step.requests)


def expected(name: str) -> Callable[[Admission], bool]:
    """A field of the identity is what the request expects."""
    return each_request(lambda step, one: getattr(one.identity, name) == getattr(step.unit_of(one).identity, name))


def distinct(values: Iterator[str] | Iterator[int]) -> bool:
    """No value stands twice."""
    found = list(values)
    return len(set(found)) == len(found)


def one_threads_a_rate(step: Admission) -> bool:
    """Each number of threads was measured once."""
    return all(distinct(row.threads for row in path.measured) for path in step.paths)


ADMISSION_RULES: tuple[AdmissionRule, ...] = (
    ("HELD_EXCEEDS_CAPACITY", lambda step: step.capacity.credits().covers(step.held.credits())),
    ("FREE_NOT_DERIVED", lambda step: step.free.credits() == step.capacity.credits() - step.held.credits()),
    ("UNKNOWN_NUMA_NODE", lambda step: all(path.numa < step.topology.nodes for path in step.paths)),
    ("PATH_TWICE", lambda step: distinct(path.path for path in step.paths)),
    (
        "RATE_ABOVE_LINK",
        lambda step: all(row.bytes_per_ms <= path.link_bytes_per_ms for path in step.paths for row in path.measured),
    ),
    (
        "RATE_NOT_MEASURED",
        lambda step: (
            one_threads_a_rate(step)
            and all(any(row.threads == path.threads for row in path.measured) for path in step.paths)
        ),
    ),
    ("DUPLICATE_UNIT", lambda step: distinct(one.unit for one in step.units)),
    ("UNKNOWN_PATH", lambda step: {one.path for one in step.units} <= {path.path for path in step.paths}),
    ("AUTHORITY_NOT_VALID", lambda step: all(one.authoritative for one in step.units)),
    ("UNIT_NOT_VALID", lambda step: all(one.integrity == "valid" for one in step.units)),
    (
        "UNIT_RANGE_INVALID",
        lambda step: all(one.identity.first_position < one.identity.end_position for one in step.units),
    ),
    ("REQUEST_TWICE", lambda step: distinct(one.request for one in step.requests)),
    ("ARRIVAL_TWICE", lambda step: distinct(one.arrival for one in step.requests)),
    ("UNKNOWN_UNIT", lambda step: {one.unit for one in step.requests} <= {one.unit for one in step.units}),
    ("TENANT_MISMATCH", expected("tenant")),
    ("MODEL_MISMATCH", expected("model")),
    ("STALE_CHECKPOINT_GENERATION", expected("revision")),
    ("ADAPTER_MISMATCH", expected("adapter")),
    ("LAYOUT_MISMATCH", expected("layout")),
    ("UNIT_RANGE_MISMATCH", expected("layer_group")),
    ("UNIT_RANGE_MISMATCH", expected("first_position")),
    ("UNIT_RANGE_MISMATCH", expected("end_position")),
    ("REPRESENTATION_MISMATCH", expected("representation")),
    ("REPRESENTATION_MISMATCH", expected("dtype")),
    ("CODEC_MISMATCH", expected("codec")),
    ("STALE_CACHE_GENERATION", expected("generation")),
    (
        "FRONTIER_BEYOND_COMMIT",
        each_request(lambda step, one: one.identity.end_position <= one.committed_length),
    ),
    ("STALE_POOL_GENERATION", each_request(lambda step, one: one.pool_generation == step.pool_generation)),
    ("STALE_INDEX_GENERATION", each_request(lambda step, one: one.index_generation == step.index_generation)),
    (
        "CANDIDATE_BUDGET_EXCEEDED",
        each_request(lambda step, one: one.identity.end_position - one.identity.first_position <= one.retrieval_budget),
    ),
    ("UNKNOWN_NUMA_NODE", each_request(lambda step, one: one.worker_numa < step.topology.nodes)),
    ("STAGING_TOO_SMALL", each_request(lambda step, one: one.staging_bytes >= step.unit_of(one).bytes)),
    (
        "EXACT_MAY_NOT_DEGRADE",
        each_request(lambda step, one: one.contract == "approximate" or "degrade" not in one.fallbacks),
    ),
    (
        "ENVELOPE_MISMATCH",
        each_request(lambda step, one: (one.contract == "approximate") == (one.envelope is not None)),
    ),
    (
        "RECOMPUTE_NOT_TIMED",
        each_request(lambda step, one: one.recompute_ms is not None or "recompute" not in one.fallbacks),
    ),
)
"""Reason and rule, in the order of precedence."""


def broken(document: _Document, rules: Sequence[Rule[_Document]]) -> Iterator[str]:
    """Reasons of the rules that a document breaks, lazily, as later rules rest on earlier ones."""
    return (reason for reason, holds in rules if not holds(document))


def asks(step: Admission, worth: Callable[[Path, int, int, Exact], Exact]) -> list[Ask]:
    """The requests of a step with the ends of their transfers.

    ``worth`` gives the time of one, milliseconds, from its path, bytes, the worker's node and the cost of crossing.
    """
    found = []
    for one in step.requests:
        unit = step.unit_of(one)
        path, crossing = step.path_of(unit).rated(), exact(step.topology.crossing_ms)
        total = worth(path, unit.bytes, one.worker_numa, crossing)
        finish = exact(step.now_ms) + total
        found.append(Ask(one.request, one.arrival, one.unit, unit.bytes, one.staging_bytes, one.terms(), finish))
    return found


# --- the report of a deployment ---

STAGES = ("lookup", "reservation", "backend_read", "staging_copy", "validation", "publication", "deletion")
BOUNDED = ("runtime_release", "tier", "direction", "exactness", "fallback_action", "stage")
"""Labels whose values are few and known beforehand."""
RECEIPT_FIELDS = ("request", "unit", "epoch", "generation", "credits", "stage", "outcome", "fallback")
CLASS_OF = {
    "promise": "documented",
    "behaviour": "source",
    "decision": "model",
    "latency": "measured",
    "throughput": "measured",
}
"""What is said to the class of evidence that can show it."""
EXACT_ACTIONS = frozenset({"wait", "promote", "recompute", "reject"})
APPROXIMATE_ACTIONS = frozenset({"increase_budget", "exact_fallback", "degrade"})
OWNERS = {
    "lookup_state": "scheduler",
    "job_ids": "scheduler",
    "completion_fan_in": "scheduler",
    "block_protection": "scheduler",
    "epochs": "scheduler",
    "page_views": "worker",
    "submission": "worker",
    "byte_receipts": "worker",
    "unit_lifetime": "storage",
    "durability": "storage",
}
"""State to who keeps it."""


@dataclass(frozen=True)
class Claim:
    """One statement about a runtime."""

    claim: Name
    says: Literal["promise", "behaviour", "decision", "latency", "throughput"]
    evidence: Literal["documented", "source", "model", "measured"]
    engine: Name
    release: Name | None
    locator: Name | None
    inputs_sha256: Digest | None
    environment: Name | None
    samples: Natural


@dataclass(frozen=True)
class Domain:
    """Values that a label may have."""

    label: Name
    values: tuple[Name, ...]


@dataclass(frozen=True)
class Metric:
    """One time series family."""

    metric: Name
    stage: Literal["lookup", "reservation", "backend_read", "staging_copy", "validation", "publication", "deletion"]
    counts: Literal["events", "failures", "bytes", "time"]
    at: Literal["submission", "completion"]
    labels: tuple[Name, ...]


@dataclass(frozen=True)
class Receipts:
    """Semantic receipts beside the metrics."""

    one_in: Extent
    most: Natural | None
    fields: tuple[Name, ...]


@dataclass(frozen=True)
class Objective:
    """What one contract of requests promises, and what follows a failure."""

    target: Literal["full_cache_output", "quality_envelope"]
    actions: tuple[
        Literal["wait", "promote", "recompute", "reject", "increase_budget", "exact_fallback", "degrade"], ...
    ]


@dataclass(frozen=True)
class Objectives:
    """One for each contract."""

    exact: Objective
    approximate: Objective


@dataclass(frozen=True)
class Isolation:
    """What keeps tenants apart."""

    namespace: tuple[Name, ...]
    outlives_process: bool
    copies_protected: bool
    reclaimed: Literal["zeroed", "invalidated", "left"]
    tenants_observable: bool
    audit_fields: tuple[Name, ...]
    deleted_by: Literal["tombstone", "eviction"]


@dataclass(frozen=True)
class Ownership:
    """Who keeps which state."""

    lookup_state: Name
    job_ids: Name
    completion_fan_in: Name
    block_protection: Name
    epochs: Name
    page_views: Name
    submission: Name
    byte_receipts: Name
    unit_lifetime: Name
    durability: Name


@dataclass(frozen=True)
class Report:
    """What a deployment says of itself."""

    claims: tuple[Claim, ...]
    series_limit: Extent
    domains: tuple[Domain, ...]
    metrics: tuple[Metric, ...]
    receipts: Receipts
    objectives: Objectives
    isolation: Isolation
    ownership: Ownership

    def series(self, metric: Metric) -> int:
        """How many series a metric can come to."""
        sizes = {one.label: len(one.values) for one in self.domains}
        return math.prod(sizes[label] for label in metric.labels)


ReportRule = tuple[str, Callable[[Report], bool]]
PINNED, SHOWN = ("documented", "source"), ("documented", "source", "measured")
REPORT_RULES: tuple[ReportRule, ...] = (
    ("EVIDENCE_CLASS_MISMATCH", lambda report: all(one.evidence == CLASS_OF[one.says] for one in report.claims)),
    (
        "EVIDENCE_NOT_PINNED",
        lambda report: all(one.release is not None for one in report.claims if one.evidence != "model"),
    ),
    (
        "EVIDENCE_WITHOUT_SOURCE",
        lambda report: all(one.locator is not None for one in report.claims if one.evidence in PINNED),
    ),
    (
        "EVIDENCE_WITHOUT_INPUTS",
        lambda report: all(one.inputs_sha256 is not None for one in report.claims if one.evidence == "model"),
    ),
    (
        "EVIDENCE_NOT_MEASURED",
        lambda report: all(
            one.environment is not None and one.samples > 0 for one in report.claims if one.evidence == "measured"
        ),
    ),
    ("METRIC_TWICE", lambda report: distinct(one.metric for one in report.metrics)),
    ("UNBOUNDED_LABEL", lambda report: all(label in BOUNDED for one in report.metrics for label in one.labels)),
    (
        "LABEL_WITHOUT_VALUES",
        lambda report: (
            {label for one in report.metrics for label in one.labels}
            <= {one.label for one in report.domains if one.values}
        ),
    ),
    ("TOO_MANY_SERIES", lambda report: all(report.series(one) <= report.series_limit for one in report.metrics)),
    (
        "BYTES_COUNTED_EARLY",
        lambda report: all(one.at == "completion" for one in report.metrics if one.counts == "bytes"),
    ),
    (
        "STAGE_NOT_COUNTED",
        lambda report: set(STAGES) <= {one.stage for one in report.metrics if one.counts == "failures"},
    ),
    ("RECEIPTS_UNBOUNDED", lambda report: report.receipts.most is not None),
    ("RECEIPT_FIELD_MISSING", lambda report: set(RECEIPT_FIELDS) <= set(report.receipts.fields)),
    ("EXACT_MAY_NOT_DEGRADE", lambda report: "degrade" not in report.objectives.exact.actions),
    (
        "OBJECTIVES_MIXED",
        lambda report: (
            report.objectives.exact.target == "full_cache_output"
            and report.objectives.approximate.target == "quality_envelope"
            and set(report.objectives.exact.actions) <= EXACT_ACTIONS
            and set(report.objectives.approximate.actions) <= APPROXIMATE_ACTIONS
        ),
    ),
    ("NAMESPACE_INCOMPLETE", lambda report: {"tenant", "authorization"} <= set(report.isolation.namespace)),
    (
        "COPIES_UNPROTECTED",
        lambda report: report.isolation.copies_protected or not report.isolation.outlives_process,
    ),
    ("RECLAIMED_READABLE", lambda report: report.isolation.reclaimed != "left"),
    ("TENANT_OBSERVABLE", lambda report: not report.isolation.tenants_observable),
    ("AUDIT_INCOMPLETE", lambda report: {"model", "adapter"} <= set(report.isolation.audit_fields)),
    ("DELETION_BY_EVICTION", lambda report: report.isolation.deleted_by == "tombstone"),
    (
        "OWNER_MISMATCH",
        lambda report: all(getattr(report.ownership, one.name) == OWNERS[one.name] for one in fields(report.ownership)),
    ),
)
"""Reason and rule, in the order of precedence."""


def check(document: _Document, rules: Sequence[Rule[_Document]]) -> None:
    """Refuse a document for the first rule that it breaks."""
    for reason in broken(document, rules):
        raise Refusal(reason)
