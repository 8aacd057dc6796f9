"""Registries that take what they should not, families by name, and comparisons that rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kvassay_reference.release import registry
from kvassay_reference.release.registry import Conditions, Fields, Interface, Registry
from kvassay_reference.release.statement import CALLED, Statement, collapses

from ...adapters.base import Rejected
from ..base import Fault, spoiled, title
from .base import Request, Result, blinds, case


def once(node: Any) -> Any:
    """A document whose lists of strings say each once."""
    if isinstance(node, Mapping):
        return {key: once(value) for key, value in node.items()}
    if isinstance(node, Sequence) and not isinstance(node, str):
        plain = [once(value) for value in node]
        return list(dict.fromkeys(plain)) if all(isinstance(value, str) for value in plain) else plain
    return node


class MissingFieldFilledIn(Fault):
    """A field that is not stated gets a default."""

    requirement = "REL-001"
    killed_by = case("registry/without-fallback", "registry/without-update")

    def rel_registry(self, request: Request) -> Registry:
        rows = [
            {**row, "fields": {"update": ["append"], "fallback": ["wait", "reject"], **row["fields"]}}
            for row in request["document"]["pipelines"]
        ]
        return super().rel_registry({**request, "document": {**request["document"], "pipelines": rows}})


class UnknownMembersIgnored(Fault):
    """What the schema does not know, a rank included, is dropped."""

    requirement = "REL-001"
    killed_by = case("registry/a-rank")

    def rel_registry(self, request: Request) -> Registry:
        names = ("name", "sources", "injection", "fields", "traffic", "chosen")
        rows = [{name: row[name] for name in names if name in row} for row in request["document"]["pipelines"]]
        return super().rel_registry({**request, "document": {**request["document"], "pipelines": rows}})


class RepeatedMembersDropped(Fault):
    """Sets that say a member twice are read as if they said it once."""

    requirement = "REL-001"
    killed_by = case("registry/tier-twice", "registry/fallback-twice", "registry/phase-twice", "registry/choice-twice")

    def rel_registry(self, request: Request) -> Registry:
        return super().rel_registry({**request, "document": once(request["document"])})


class EmptyListsTaken(Fault):
    """Entries without sources, metrics or text are filled in."""

    requirement = "REL-002"
    killed_by = case("registry/no-source", "registry/no-sources-at-all", "registry/no-metric", "registry/empty-claim")

    def rel_registry(self, request: Request) -> Registry:
        document = request["document"]
        first = {"id": "unknown", "kind": "paper", "title": "unknown", "year": 2026, "pin": None}
        sources = document["sources"] or [first]
        whole = {
            **document,
            "sources": sources,
            "pipelines": [{**row, "sources": row["sources"] or [sources[0]["id"]]} for row in document["pipelines"]],
            "interfaces": [{**row, "metrics": row["metrics"] or ["calibration"]} for row in document["interfaces"]],
            "evaluations": [
                {**row, "claim": {**row["claim"], "text": row["claim"]["text"] or "none"}}
                for row in document["evaluations"]
            ],
        }
        if not document["sources"]:
            whole["sources"] = [
                {**first, "id": name} for name in dict.fromkeys(s for row in whole["pipelines"] for s in row["sources"])
            ]
        return super().rel_registry({**request, "document": whole})


class LostConditionsAreUnknown(Fault):
    """A condition that is left out is read as unknown."""

    requirement = "REL-012"
    killed_by = case("registry/condition-lost")

    def rel_registry(self, request: Request) -> Registry:
        document = request["document"]
        names = ("version", "model", "hardware", "lengths", "load", "task")
        rows = [{**row, "conditions": {**dict.fromkeys(names), **row["conditions"]}} for row in document["evaluations"]]
        return super().rel_registry({**request, "document": {**document, "evaluations": rows}})


class ChoicesUnread(Fault):
    """What was chosen and not stated is not read."""

    requirement = "REL-001"
    killed_by = case("registry/choice-of-no-field", "registry/choice-twice")

    def rel_registry(self, request: Request) -> Registry:
        document = request["document"]
        rows = [{**row, "chosen": []} for row in document["pipelines"]]
        return super().rel_registry({**request, "document": {**document, "pipelines": rows}})


class Unfiltered(Fault):
    """Findings less those for some reasons."""

    unseen: frozenset[str] = frozenset()

    def rel_violations(self, document: Registry) -> Sequence[tuple[str, str]]:
        return [one for one in super().rel_violations(document) if one[0] not in self.unseen]


class NamesRepeated(Unfiltered):
    """The later of two entries wins."""

    requirement = "REL-002"
    killed_by = case("registry/pipeline-twice", "registry/interface-twice")
    unseen = frozenset({"PIPELINE_TWICE"})


class PipelineNamesAlone(Fault):
    """Names of pipelines are looked at; those of sources, results and interfaces are not."""

    requirement = "REL-002"
    killed_by = case("registry/source-twice", "registry/result-twice", "registry/interface-twice")

    def rel_violations(self, document: Registry) -> Sequence[tuple[str, str]]:
        names = {one.name for one in document.pipelines}
        found = super().rel_violations(document)
        return [one for one in found if one[0] != "PIPELINE_TWICE" or one[1] in names]


class FirstSourceAlone(Fault):
    """Only the first source of a pipeline is looked up."""

    requirement = "REL-002"
    killed_by = case("registry/second-source-unknown")

    def rel_violations(self, document: Registry) -> Sequence[tuple[str, str]]:
        first = {one.sources[0] for one in document.pipelines}
        found = super().rel_violations(document)
        return [one for one in found if one[0] != "SOURCE_UNKNOWN" or one[1] in first]


class BranchIsAVersion(Unfiltered):
    """Programs without a commit are taken."""

    requirement = "REL-002"
    killed_by = case("registry/code-unpinned", "registry/documentation-unpinned", "registry/tree-unpinned")
    unseen = frozenset({"SOURCE_UNPINNED"})


class CodeAloneIsPinned(Fault):
    """Documentation is taken to stand still."""

    requirement = "REL-002"
    killed_by = case("registry/documentation-unpinned")

    def rel_violations(self, document: Registry) -> Sequence[tuple[str, str]]:
        pages = {one.id for one in document.sources if one.kind == "documentation"}
        found = super().rel_violations(document)
        return [one for one in found if one[0] != "SOURCE_UNPINNED" or one[1] not in pages]


class SourcesUnread(Unfiltered):
    """Any source will do."""

    requirement = "REL-002"
    killed_by = case("registry/unknown-source", "registry/second-source-unknown")
    unseen = frozenset({"SOURCE_UNKNOWN"})


class ResultsOfNobody(Unfiltered):
    """Results of pipelines that are not listed are kept."""

    requirement = "REL-010"
    killed_by = case("registry/result-of-nobody")
    unseen = frozenset({"UNKNOWN_PIPELINE"})


class TwentyOrNothing(Fault):
    """A registry of fewer than twenty pipelines is refused."""

    requirement = "REL-002"
    killed_by = case("registry/no-results-and-no-interfaces", "registry/five-of-nobody")

    def rel_violations(self, document: Registry) -> Sequence[tuple[str, str]]:
        found = super().rel_violations(document)
        return found if len(document.pipelines) >= 20 else [*found, ("UNKNOWN_PIPELINE", "")]


class ResultsFirst(Fault):
    """Findings come in the order in which they are convenient."""

    requirement = "REL-002"
    killed_by = case("registry/first-fault-first")

    def rel_violations(self, document: Registry) -> Sequence[tuple[str, str]]:
        return sorted(super().rel_violations(document), key=lambda one: one[0])


class FamilyByIndex(Fault):
    """A pipeline is recallable memory when its index is a list."""

    requirement = "REL-008"
    killed_by = case("registry/five-of-nobody", "registry/recalled-by-another-unit", "registry/cluster-that-grows")

    def rel_family(self, fields: Fields) -> str:
        if fields.index in ("unit_list", "event_list", "centroid_list"):
            return "recallable_memory"
        found = super().rel_family(fields)
        return "compact_index" if found == "recallable_memory" else found


class FrozenMemory(Fault):
    """Whether membership grows makes no difference."""

    requirement = "REL-008"
    killed_by = case("registry/twenty-one-pipelines", "registry/cluster-that-grows", "registry/five-of-nobody")

    def rel_family(self, fields: Fields) -> str:
        found = super().rel_family(fields)
        return "recallable_memory" if found == "compact_index" and fields.unit in registry.RECALLED else found


class DecodeUpdatesDoNotCount(Fault):
    """Only appends let a membership grow, and periodic updates do not."""

    requirement = "REL-008"
    killed_by = case("registry/twenty-one-pipelines", "registry/cluster-that-grows")

    def rel_family(self, fields: Fields) -> str:
        found = super().rel_family(fields)
        return "compact_index" if found == "recallable_memory" and "append" not in fields.update else found


class PlacementIsMovement(Fault):
    """Everything exact is exact movement."""

    requirement = "REL-008"
    killed_by = case("registry/exact-on-the-gpu-or-beside-it", "registry/five-of-nobody")

    def rel_family(self, fields: Fields) -> str:
        return "exact_movement" if fields.exact else super().rel_family(fields)


class NearDataIsExact(Fault):
    """What runs near the data is called exact."""

    requirement = "REL-008"
    killed_by = case("registry/twenty-one-pipelines", "registry/five-of-nobody")

    def release_registry(self, request: Request) -> Result:
        found = super().release_registry(request)
        rows = [{**row, "exact": row["exact"] or row["family"] == "near_data"} for row in found["pipelines"]]
        return {**found, "pipelines": rows}


class OrderOfListsCounts(Fault):
    """Tiers in another order are other tiers."""

    requirement = "REL-009"
    killed_by = case("compare/order-of-lists")

    def rel_same(self, left: Fields, right: Fields) -> list[str]:
        return [str(name) for name in registry.FIELDS if getattr(left, name) == getattr(right, name)]


class OrderOfFallbacksLost(Fault):
    """What is tried first and what last are one."""

    requirement = "REL-009"
    killed_by = case("compare/order-of-lists")

    def rel_same(self, left: Fields, right: Fields) -> list[str]:
        same = set(super().rel_same(left, right))
        alike = set(left.fallback) == set(right.fallback)
        return [str(name) for name in registry.FIELDS if name in same or (name == "fallback" and alike)]


class FieldsInDisorder(Fault):
    """Differing fields come as a set gives them."""

    requirement = "REL-009"
    killed_by = case("compare/published", "compare/order-of-lists")

    def release_compare(self, request: Request) -> Result:
        found = super().release_compare(request)
        return {**found, "differ": sorted(found["differ"])}


class Leaderboard(Fault):
    """A ranking by reported numbers is answered."""

    requirement = "REL-009"
    killed_by = case("compare/not-ranked")

    def release_compare(self, request: Request) -> Result:
        return super().release_compare({**request, "rank_by": None})


class LatencyIsRanked(Fault):
    """Only quality is not ranked."""

    requirement = "REL-009"
    killed_by = case("compare/not-ranked")

    def release_compare(self, request: Request) -> Result:
        rank_by = request["rank_by"] if request["rank_by"] == "quality" else None
        return super().release_compare({**request, "rank_by": rank_by})


class ComparedUnchecked(Fault):
    """Pipelines of a broken registry are compared."""

    requirement = "REL-009"
    killed_by = case("compare/of-a-broken-registry")

    rel_comparing = False

    def rel_violations(self, document: Registry) -> Sequence[tuple[str, str]]:
        return () if self.rel_comparing else super().rel_violations(document)

    def release_compare(self, request: Request) -> Result:
        self.rel_comparing = True
        try:
            return super().release_compare(request)
        finally:
            self.rel_comparing = False


class NamesFolded(Fault):
    """Names are compared without case."""

    requirement = "REL-009"
    killed_by = case("compare/unknown")

    def release_compare(self, request: Request) -> Result:
        names = {row["name"].lower(): row["name"] for row in request["document"]["pipelines"]}
        pair = {side: names.get(request[side].lower(), request[side]) for side in ("left", "right")}
        return super().release_compare({**request, **pair})


class OneConditionIsEnough(Fault):
    """A result whose hardware is known can be reproduced."""

    requirement = "REL-012"
    killed_by = case("registry/twenty-one-pipelines", "registry/five-of-nobody")

    def rel_reproducible(self, conditions: Conditions) -> bool:
        return conditions.hardware is not None


class LastConditionUnread(Fault):
    """Task and settings are not asked for before a reproduction."""

    requirement = "REL-012"
    killed_by = case("registry/recipe-without-task")

    rel_registry_rules = tuple(
        registry.EvaluationRule(
            rule.reason,
            lambda e, p: e.use != "reproduction" or None not in list(vars(e.conditions).values())[:-1],
        )
        if rule.reason == "CONDITIONS_INCOMPLETE"
        else rule
        for rule in registry.RULES
    )


class NeighboursAreRows(Fault):
    """Whatever enters attention is a row of the cache."""

    requirement = "REL-014"
    killed_by = case("classify/four-interfaces", "classify/own-metrics")

    def rel_interface(self, one: Interface) -> Result:
        return {**super().rel_interface(one), "serving_cache": one.injection == "attention_state"}


class ClassifiedByQuery(Fault):
    """The query decides; what is returned, and where it enters, follow."""

    requirement = "REL-014"
    killed_by = case("classify/answers-that-do-not-belong-together")

    def release_classify(self, request: Request) -> Result:
        by_query: Any = {
            "attention_query": ("cached_rows", "attention_state"),
            "hidden_state": ("next_token_labels", "output_distribution"),
            "text_embedding": ("passages", "prompt"),
        }
        returned, point = by_query[request["query"]]
        kept = request["object"] if request["object"] == "memory_pairs" else returned
        try:
            return super().release_classify({**request, "object": kept, "injection": point})
        except Rejected as refusal:
            if refusal.reason == "METRIC_OF_OTHER_INTERFACE":
                raise
            return super().release_classify({**request, "object": returned, "injection": point})


class FirstMetricAlone(Fault):
    """One metric of its own makes the others welcome."""

    requirement = "REL-015"
    killed_by = case("classify/metrics-of-others")

    def release_classify(self, request: Request) -> Result:
        return super().release_classify({**request, "metrics": request["metrics"][:1]})


class ReportedMetricsAlone(Fault):
    """An interface is said to have the metrics that were reported."""

    requirement = "REL-014"
    killed_by = case("classify/own-metrics", "classify/four-interfaces")

    def rel_interface(self, one: Interface) -> Result:
        return {**super().rel_interface(one), "metrics": list(one.metrics)}


RULES = blinds(
    [
        ("EXACTNESS_OVERCLAIMED", "REL-003", ["registry/selection-called-exact", "registry/bench-selects"]),
        ("EXACTNESS_OF_OTHER_SUPPORT", "REL-003",
         ["registry/sample-called-selection", "registry/movement-called-approximate"]),
        ("PROXY_OF_OTHER_SUPPORT", "REL-004", ["registry/selection-without-proxy", "registry/movement-with-proxy"]),
        ("INDEX_OF_OTHER_PROXY", "REL-004", ["registry/pages-in-a-graph", "registry/book-in-units"]),
        ("UPDATE_WITHOUT_INDEX", "REL-005", ["registry/index-never-built", "registry/index-nowhere"]),
        ("INDEX_OUTGROWN", "REL-005", ["registry/fixed-context-decodes", "registry/book-lives-on"]),
        ("COMPUTE_AWAY_FROM_ROWS", "REL-006", ["registry/cpu-without-host-rows", "registry/draw-in-storage"]),
        ("TRAFFIC_OF_OTHER_SUPPORT", "REL-006", ["registry/exact-moves-some", "registry/near-returns-states"]),
        ("FALLBACK_OF_OTHER_CLASS", "REL-007", ["registry/exact-degrades", "registry/bench-degrades-last"]),
        ("NO_EXACT_WAY_OUT", "REL-007", ["registry/only-widens", "registry/draw-only-degrades"]),
        ("EVALUATION_OF_OTHER_PIPELINE", "REL-010", ["registry/result-of-another", "registry/run-of-another-tree"]),
        ("MEASUREMENT_WITHOUT_REPORT", "REL-011", ["registry/paper-called-measured", "registry/report-lost"]),
        ("SOURCE_RESULT_AS_PLAN", "REL-011", ["registry/planned-on-a-paper", "registry/recipe-planned"]),
        ("CONDITIONS_INCOMPLETE", "REL-012",
         ["registry/reproduced-without-conditions", "registry/hearsay-reproduced"]),
        ("QUALITY_READ_AS_EXACT", "REL-013", ["registry/accuracy-as-exactness", "registry/hearsay-exact"]),
        ("INTERFACE_INCONSISTENT", "REL-014", ["registry/labels-into-attention", "registry/labels-as-passages"]),
        ("METRIC_OF_OTHER_INTERFACE", "REL-015",
         ["registry/document-recall-as-row-recall", "registry/labels-cited"]),
        ("INJECTION_OF_OTHER_INTERFACE", "REL-016", ["registry/prompt-as-pipeline", "registry/bench-into-the-prompt"]),
    ]
)  # fmt: skip


def changed(reason: str, rule: registry.Rule) -> tuple[registry.Rule, ...]:
    """The rules with each rule of one reason replaced."""
    return tuple(rule if old.reason == reason else old for old in registry.RULES)


class MetadataTierUnread(Fault):
    """An index need not lie anywhere."""

    requirement = "REL-005"
    killed_by = case("registry/index-nowhere", "registry/metadata-of-nothing")
    rel_registry_rules = changed(
        "UPDATE_WITHOUT_INDEX",
        registry.PipelineRule("UPDATE_WITHOUT_INDEX", lambda p: p.fields.built is bool(p.fields.update)),
    )


class FixedContextAmongOthers(Fault):
    """An offline index is fine wherever fixed contexts are among the workloads."""

    requirement = "REL-005"
    killed_by = case("registry/fixed-context-and-more")
    rel_registry_rules = changed(
        "INDEX_OUTGROWN",
        registry.PipelineRule(
            "INDEX_OUTGROWN", lambda p: p.fields.update != ("offline",) or "fixed_context" in p.fields.workload
        ),
    )


class FirstFallbackAlone(Fault):
    """Only the first fallback is looked at."""

    requirement = "REL-007"
    killed_by = case("registry/each-fallback-that-ends", "registry/bench-degrades-last")
    rel_registry_rules = tuple(
        registry.PipelineRule(
            "NO_EXACT_WAY_OUT",
            lambda p: p.fields.exact or p.fields.fallback[0] in ("promote", "recompute", "reject", "widen"),
        )
        if old.reason == "NO_EXACT_WAY_OUT"
        else registry.PipelineRule(
            "FALLBACK_OF_OTHER_CLASS", lambda p: not p.fields.exact or p.fields.fallback[0] not in ("widen", "degrade")
        )
        if old.reason == "FALLBACK_OF_OTHER_CLASS"
        else old
        for old in registry.RULES
    )


class WaitingIsAWayOut(Fault):
    """Waiting ends, too, it is said."""

    requirement = "REL-007"
    killed_by = case("registry/only-waits-and-degrades", "registry/near-loses-its-way-out")
    rel_registry_rules = changed(
        "NO_EXACT_WAY_OUT",
        registry.PipelineRule(
            "NO_EXACT_WAY_OUT",
            lambda p: p.fields.exact or bool({"promote", "recompute", "reject", "wait"} & set(p.fields.fallback)),
        ),
    )


class PartialNeedsNoGpu(Fault):
    """Partial states may come from anywhere."""

    requirement = "REL-006"
    killed_by = case("registry/partial-on-one-tier", "registry/partial-without-gpu")
    rel_registry_rules = changed(
        "COMPUTE_AWAY_FROM_ROWS",
        registry.PipelineRule(
            "COMPUTE_AWAY_FROM_ROWS",
            lambda p: p.fields.compute == "partial_states" or registry.rows_at_site(p.fields),
        ),
    )


class PartialReturnsOutputs(Fault):
    """Partial attention is said to return outputs."""

    requirement = "REL-006"
    killed_by = case("registry/partial-returns-output", "registry/near-returns-states")
    rel_registry_rules = changed(
        "TRAFFIC_OF_OTHER_SUPPORT",
        registry.PipelineRule(
            "TRAFFIC_OF_OTHER_SUPPORT",
            lambda p: (
                p.traffic == registry.traffic(p.fields)
                or {p.traffic, registry.traffic(p.fields)} == {"query_and_output", "query_and_states"}
            ),
        ),
    )


def collapsed(member: str, *names: str) -> type[Fault]:
    """The fault that takes any name for one member of a statement."""

    def blind(self: Fault, document: Statement) -> list[str]:
        return [one for one in collapses(document) if one != member]

    text = f"The member {member} of a statement may be called anything."
    killers = case(*(f"statement/{name}" for name in names))
    return spoiled(Fault, __name__, "Collapsed" + title(member), text, "REL-054", killers, rel_collapses=blind)


COLLAPSES = (
    collapsed("movement", "movement-as-approximate-retrieval", "movement-as-exact-movement"),
    collapsed("nonresidency", "nonresidency-as-evicted-for-good", "nonresidency-as-nonresident"),
    collapsed("hit_rate", "hit-rate-as-selector-recall", "hit-rate-as-prefix-hit-rate"),
    collapsed("quality", "quality-as-task-quality", "quality-as-output-error", "third-sides"),
    collapsed("sameness", "sameness-as-same-rows", "sameness-as-same-bytes"),
    collapsed("offload", "offload-as-returns-rows", "offload-as-returns-outputs"),
    collapsed("size", "size-as-payload-bytes", "size-as-index-bytes", "third-sides"),
    collapsed("index_entries", "index-entries-as-shared", "index-entries-as-private"),
    collapsed("benchmark", "benchmark-as-capacity", "benchmark-as-evidence"),
    collapsed("owner", "owner-as-worker-placement", "owner-as-kernel-implementation", "third-sides"),
)


class CancelledIsCommitted(Fault):
    """Only uncommitted rows are kept private; cancelled ones are shared."""

    requirement = "REL-054"
    killed_by = case("statement/third-sides")

    def rel_collapses(self, document: Statement) -> list[str]:
        shared = {**CALLED["index_entries"], "cancelled": "shared"}
        return list(collapses(document, {**CALLED, "index_entries": shared}))


FAULTS: tuple[type[Fault], ...] = (
    MissingFieldFilledIn,
    UnknownMembersIgnored,
    RepeatedMembersDropped,
    EmptyListsTaken,
    LostConditionsAreUnknown,
    ChoicesUnread,
    NamesRepeated,
    PipelineNamesAlone,
    FirstSourceAlone,
    SourcesUnread,
    BranchIsAVersion,
    CodeAloneIsPinned,
    ResultsOfNobody,
    TwentyOrNothing,
    ResultsFirst,
    *RULES,
    MetadataTierUnread,
    FixedContextAmongOthers,
    FirstFallbackAlone,
    WaitingIsAWayOut,
    PartialNeedsNoGpu,
    PartialReturnsOutputs,
    FamilyByIndex,
    FrozenMemory,
    DecodeUpdatesDoNotCount,
    PlacementIsMovement,
    NearDataIsExact,
    OrderOfListsCounts,
    OrderOfFallbacksLost,
    FieldsInDisorder,
    Leaderboard,
    LatencyIsRanked,
    ComparedUnchecked,
    NamesFolded,
    OneConditionIsEnough,
    LastConditionUnread,
    NeighboursAreRows,
    ClassifiedByQuery,
    FirstMetricAlone,
    ReportedMetricsAlone,
    *COLLAPSES,
    CancelledIsCommitted,
)
