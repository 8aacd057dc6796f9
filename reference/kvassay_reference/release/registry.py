"""Pipelines with ten fields each, results as reported, interfaces of retrieval, and the rules that they must meet.

``RULES`` is the order of precedence within an entry; entries are judged in the order of the registry, and names before
entries.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from ..manifest import Digest, Natural, NotAManifest

Text = Annotated[str, re.compile("(?s).+")]
"""A string that says something."""
FieldName = Literal[
    "support",
    "representation",
    "tier",
    "unit",
    "index",
    "update",
    "compute",
    "exactness",
    "fallback",
    "workload",
]
FIELDS: tuple[FieldName, ...] = (
    "support",
    "representation",
    "tier",
    "unit",
    "index",
    "update",
    "compute",
    "exactness",
    "fallback",
    "workload",
)
Point = Literal["attention_state", "output_distribution", "prompt"]
Tier = Literal["gpu", "host", "disk", "storage_device", "remote"]
Proxy = Literal[
    "none",
    "query_dimensions",
    "page_extrema",
    "partial_columns",
    "key_vectors",
    "pq_codes",
    "centroids",
    "hash_codes",
    "representative_keys",
]
IndexKind = Literal[
    "none",
    "block_table",
    "hash_directory",
    "session_directory",
    "dimension_scan",
    "page_table_scan",
    "column_rehearsal",
    "ann_graph",
    "pq_codebook",
    "centroid_list",
    "centroid_hierarchy",
    "hash_tables",
    "unit_list",
    "event_list",
]
Unit = Literal[
    "row", "page", "block", "tensor_block", "head_group", "request", "segment", "cluster", "event", "history"
]
Phase = Literal["offline", "prefill", "append", "periodic_decode", "every_query"]
Fallback = Literal["wait", "widen", "promote", "recompute", "degrade", "reject"]
Workload = Literal["fixed_context", "multi_turn", "interrupted", "long_decode", "offline_batch", "online_serving"]
Metric = Literal[
    "row_recall",
    "retained_mass",
    "transfer_visibility",
    "exact_fallback_rate",
    "datastore_coverage",
    "neighbour_label_recall",
    "calibration",
    "distribution_quality",
    "document_recall",
    "ranking",
    "citation",
    "prefill_cost",
]
Query = Literal["attention_query", "hidden_state", "text_embedding"]
Object = Literal["cached_rows", "memory_pairs", "next_token_labels", "passages"]
Kind = Literal["latency", "throughput", "capacity", "traffic", "quality"]


def unique(*lists: Sequence[str]) -> None:
    """Raise :class:`NotAManifest` where a list names something twice."""
    for names in lists:
        if len(set(names)) < len(names):
            raise NotAManifest("", f"{', '.join(names)}: the same twice")


@dataclass(frozen=True)
class Source:
    """A paper, a documentation, or code."""

    id: Text
    kind: Literal["paper", "documentation", "code"]
    title: Text
    year: Natural
    pin: Text | None


@dataclass(frozen=True)
class Representation:
    """Rows, and what is searched in their place."""

    payload: Literal["native_kv", "quantised_kv"]
    proxy: Proxy


@dataclass(frozen=True)
class Tiers:
    """Where both lie."""

    payload: Annotated[tuple[Tier, ...], 1]
    metadata: Literal["none", "gpu", "host", "disk", "storage_device", "remote"]

    def __post_init__(self) -> None:
        unique(self.payload)


@dataclass(frozen=True)
class Fields:
    """The ten."""

    support: Literal["all_legal", "selected", "sampled"]
    representation: Representation
    tier: Tiers
    unit: Unit
    index: IndexKind
    update: tuple[Phase, ...]
    compute: Literal["gpu", "cpu", "storage", "partial_states"]
    exactness: Literal["exact", "approximate_support", "estimator"]
    fallback: Annotated[tuple[Fallback, ...], 1]
    workload: Annotated[tuple[Workload, ...], 1]

    def __post_init__(self) -> None:
        unique(self.update, self.fallback, self.workload)

    @property
    def exact(self) -> bool:
        """Whether attention sees all legal rows."""
        return self.support == "all_legal"

    @property
    def built(self) -> bool:
        """Whether there is an index."""
        return self.index != "none"


@dataclass(frozen=True)
class Pipeline:
    """One design."""

    name: Text
    sources: Annotated[tuple[Text, ...], 1]
    injection: Point
    fields: Fields
    traffic: Literal["all_rows", "selected_rows", "query_and_output", "query_and_states"]
    chosen: tuple[FieldName, ...]

    def __post_init__(self) -> None:
        unique(self.sources, self.chosen)


@dataclass(frozen=True)
class Claim:
    """What is reported, and what is made of it."""

    kind: Kind
    text: Text
    reading: Literal["as_reported", "exact"]


@dataclass(frozen=True)
class Conditions:
    """Under which it holds."""

    version: Text | None
    model: Text | None
    hardware: Text | None
    lengths: Text | None
    load: Text | None
    task: Text | None

    @property
    def complete(self) -> bool:
        """Whether all are stated."""
        return None not in vars(self).values()


@dataclass(frozen=True)
class Evaluation:
    """One result."""

    id: Text
    pipeline: Text
    source: Text
    evidence: Literal["source_reported", "measured"]
    report_sha256: Digest | None
    claim: Claim
    conditions: Conditions
    use: Literal["evidence", "reproduction", "planning"]


@dataclass(frozen=True)
class Interface:
    """One kind of retrieval."""

    name: Text
    query: Query
    object: Object
    injection: Point
    metrics: Annotated[tuple[Metric, ...], 1]

    def __post_init__(self) -> None:
        unique(self.metrics)


@dataclass(frozen=True)
class Registry:
    """The whole."""

    format: Literal["kvassay-pipelines-v1"]
    sources: Annotated[tuple[Source, ...], 1]
    pipelines: tuple[Pipeline, ...]
    evaluations: tuple[Evaluation, ...]
    interfaces: tuple[Interface, ...]


@dataclass(frozen=True)
class Expected:
    """What belongs to an injection point."""

    query: Query
    objects: tuple[Object, ...]
    metrics: tuple[Metric, ...]


INTERFACES: Mapping[Point, Expected] = {
    "attention_state": Expected(
        "attention_query",
        ("cached_rows", "memory_pairs"),
        ("row_recall", "retained_mass", "transfer_visibility", "exact_fallback_rate"),
    ),
    "output_distribution": Expected(
        "hidden_state",
        ("next_token_labels",),
        ("datastore_coverage", "neighbour_label_recall", "calibration", "distribution_quality"),
    ),
    "prompt": Expected("text_embedding", ("passages",), ("document_recall", "ranking", "citation", "prefill_cost")),
}
PROXY_OF: Mapping[IndexKind, Proxy] = {
    "none": "none",
    "block_table": "none",
    "hash_directory": "none",
    "session_directory": "none",
    "dimension_scan": "query_dimensions",
    "page_table_scan": "page_extrema",
    "column_rehearsal": "partial_columns",
    "ann_graph": "key_vectors",
    "pq_codebook": "pq_codes",
    "centroid_list": "centroids",
    "centroid_hierarchy": "centroids",
    "hash_tables": "hash_codes",
    "unit_list": "representative_keys",
    "event_list": "representative_keys",
}
EXACTNESS = {"all_legal": "exact", "selected": "approximate_support", "sampled": "estimator"}
FETCHED = ("query_dimensions", "page_extrema", "partial_columns")
RECALLED = ("segment", "cluster", "event")


def traffic(fields: Fields) -> str:
    """What crosses the slowest link."""
    match fields.compute:
        case "gpu":
            return "all_rows" if fields.exact else "selected_rows"
        case "partial_states":
            return "query_and_states"
    return "query_and_output"


def rows_at_site(fields: Fields) -> bool:
    """Whether attention runs where rows lie; to the GPU they are brought."""
    tiers = fields.tier.payload
    match fields.compute:
        case "cpu":
            return "host" in tiers
        case "storage":
            return "storage_device" in tiers
        case "partial_states":
            return "gpu" in tiers and any(tier in tiers for tier in ("host", "storage_device", "remote"))
    return True


def family(fields: Fields) -> str:
    """Which of the seven products a pipeline is."""
    if fields.support == "sampled":
        return "sampling"
    if fields.exact:
        return "exact_movement" if fields.compute == "gpu" else "exact_placement"
    if fields.compute in ("cpu", "storage"):
        return "near_data"
    grows = "append" in fields.update or "periodic_decode" in fields.update
    if fields.unit in RECALLED and grows:
        return "recallable_memory"
    return "query_fetch" if fields.representation.proxy in FETCHED else "compact_index"


@dataclass(frozen=True)
class PipelineRule:
    """A reason and what must hold of a pipeline."""

    reason: str
    holds: Callable[[Pipeline], bool]


@dataclass(frozen=True)
class EvaluationRule:
    """A reason and what must hold of a result beside its pipeline."""

    reason: str
    holds: Callable[[Evaluation, Pipeline], bool]


@dataclass(frozen=True)
class InterfaceRule:
    """A reason and what must hold of an interface."""

    reason: str
    holds: Callable[[Interface, Expected], bool]


Rule = PipelineRule | EvaluationRule | InterfaceRule


def _ends_exactly(p: Pipeline) -> bool:
    return any(way in p.fields.fallback for way in ("promote", "recompute", "reject"))


# fmt: off
RULES: tuple[Rule, ...] = (
    PipelineRule("INJECTION_OF_OTHER_INTERFACE", lambda p: p.injection == "attention_state"),
    PipelineRule("EXACTNESS_OVERCLAIMED", lambda p: p.fields.exactness != "exact" or p.fields.exact),
    PipelineRule("EXACTNESS_OF_OTHER_SUPPORT", lambda p: p.fields.exactness == EXACTNESS[p.fields.support]),
    PipelineRule("PROXY_OF_OTHER_SUPPORT", lambda p: (p.fields.representation.proxy == "none") is p.fields.exact),
    PipelineRule("INDEX_OF_OTHER_PROXY", lambda p: PROXY_OF[p.fields.index] == p.fields.representation.proxy),
    PipelineRule("UPDATE_WITHOUT_INDEX", lambda p: p.fields.built is bool(p.fields.update)),
    PipelineRule("UPDATE_WITHOUT_INDEX", lambda p: p.fields.built is (p.fields.tier.metadata != "none")),
    PipelineRule("INDEX_OUTGROWN",
                 lambda p: p.fields.update != ("offline",) or p.fields.workload == ("fixed_context",)),
    PipelineRule("COMPUTE_AWAY_FROM_ROWS", lambda p: rows_at_site(p.fields)),
    PipelineRule("TRAFFIC_OF_OTHER_SUPPORT", lambda p: p.traffic == traffic(p.fields)),
    PipelineRule("FALLBACK_OF_OTHER_CLASS",
                 lambda p: not p.fields.exact or not {"widen", "degrade"} & set(p.fields.fallback)),
    PipelineRule("NO_EXACT_WAY_OUT", lambda p: p.fields.exact or _ends_exactly(p)),
    EvaluationRule("EVALUATION_OF_OTHER_PIPELINE", lambda e, p: e.source in p.sources),
    EvaluationRule("MEASUREMENT_WITHOUT_REPORT",
                   lambda e, p: (e.evidence == "measured") is (e.report_sha256 is not None)),
    EvaluationRule("SOURCE_RESULT_AS_PLAN", lambda e, p: e.use != "planning" or e.evidence == "measured"),
    EvaluationRule("CONDITIONS_INCOMPLETE", lambda e, p: e.use != "reproduction" or e.conditions.complete),
    EvaluationRule("QUALITY_READ_AS_EXACT", lambda e, p: e.claim.reading != "exact" or p.fields.exact),
    InterfaceRule("INTERFACE_INCONSISTENT", lambda i, x: i.query == x.query and i.object in x.objects),
    InterfaceRule("METRIC_OF_OTHER_INTERFACE", lambda i, x: set(i.metrics) <= set(x.metrics)),
)
# fmt: on


def of_pipeline(one: Pipeline, rules: Sequence[Rule] = RULES) -> Iterator[str]:
    """Reasons against a pipeline."""
    return (rule.reason for rule in rules if isinstance(rule, PipelineRule) and not rule.holds(one))


def of_evaluation(one: Evaluation, owner: Pipeline, rules: Sequence[Rule] = RULES) -> Iterator[str]:
    """Reasons against a result."""
    return (rule.reason for rule in rules if isinstance(rule, EvaluationRule) and not rule.holds(one, owner))


def of_interface(one: Interface, rules: Sequence[Rule] = RULES) -> Iterator[str]:
    """Reasons against an interface."""
    wanted = INTERFACES[one.injection]
    return (rule.reason for rule in rules if isinstance(rule, InterfaceRule) and not rule.holds(one, wanted))


def violations(whole: Registry, rules: Sequence[Rule] = RULES) -> Iterator[tuple[str, str]]:
    """Reason and entry of everything that is wrong, in the order of precedence."""
    named = (
        [one.id for one in whole.sources],
        [one.name for one in whole.pipelines],
        [one.id for one in whole.evaluations],
        [one.name for one in whole.interfaces],
    )
    for names in named:
        yield from (("PIPELINE_TWICE", name) for at, name in enumerate(names) if name in names[:at])
    yield from (("SOURCE_UNPINNED", one.id) for one in whole.sources if one.kind != "paper" and one.pin is None)
    known = {one.id for one in whole.sources}
    for pipeline in whole.pipelines:
        yield from (("SOURCE_UNKNOWN", name) for name in pipeline.sources if name not in known)
        yield from ((reason, pipeline.name) for reason in of_pipeline(pipeline, rules))
    owners = {one.name: one for one in whole.pipelines}
    for result in whole.evaluations:
        owner = owners.get(result.pipeline)
        if owner is None:
            yield "UNKNOWN_PIPELINE", result.pipeline
        else:
            yield from ((reason, result.id) for reason in of_evaluation(result, owner, rules))
    for interface in whole.interfaces:
        yield from ((reason, interface.name) for reason in of_interface(interface, rules))


def comparable(value: object) -> object:
    """A field without the orders that say nothing: those of tiers, phases and workloads."""
    if isinstance(value, Tiers):
        return frozenset(value.payload), value.metadata
    return value


def same_fields(left: Fields, right: Fields) -> list[str]:
    """Names of the fields with one value; the order of fallbacks counts."""
    unordered = ("update", "workload")
    same = []
    for name in FIELDS:
        pair = [comparable(getattr(fields, name)) for fields in (left, right)]
        if name in unordered:
            pair = [frozenset(getattr(fields, name)) for fields in (left, right)]
        if pair[0] == pair[1]:
            same.append(name)
    return [str(name) for name in same]
