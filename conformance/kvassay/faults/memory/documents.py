"""Faults of documents: rules that are not checked, and rules in another order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from kvassay_reference.memory import pool, records
from kvassay_reference.memory.pool import Rule

from ..base import Fault, found, unchecked
from .base import Blind, Request, case

UNCHECKED = {
    "PAYLOAD_DIGEST_MISMATCH": ("MEM-002", "admit/payload-digest"),
    "FRONTIER_BEYOND_COMMIT": (
        "MEM-004",
        "admit/frontier-one-more",
        "admit/frontier-one-less",
        "admit/value-missing",
        "audit/committed-one-more",
    ),
    "INDEX_TENANT_MISMATCH": (
        "MEM-002",
        "admit/units-of-other-tenant",
        "admit/events-of-other-tenant",
        "admit/clusters-of-other-tenant",
    ),
    "INDEX_OF_OTHER_SOURCE": ("MEM-002", "admit/units-of-other-checkpoint", "admit/clusters-of-other-layer"),
    "WRONG_KV_HEAD": ("MEM-002", "admit/events-of-other-head"),
    "POSITION_RULE_MISMATCH": ("MEM-002", "admit/units-after-rotation"),
    "STALE_CACHE_GENERATION": (
        "MEM-002",
        "admit/units-of-old-rows",
        "admit/events-of-old-rows",
        "admit/clusters-of-old-rows",
    ),
    "INDEX_OF_OTHER_ROWS": ("MEM-002", "admit/clusters-of-other-rows"),
    "INDEX_BEYOND_COMMIT": ("MEM-004", "admit/units-beyond-commit"),
    "INDEX_COVERAGE_MISMATCH": (
        "MEM-042",
        "admit/clusters-beyond-coverage",
        "admit/events-short-of-coverage",
        "admit/units-short-of-coverage",
    ),
    "MAP_OF_OTHER_GENERATION": ("MEM-003", "admit/map-of-next-generation", "admit/map-of-old-units"),
    "STALE_INDEX_GENERATION": (
        "MEM-003",
        "admit/lookup-in-old-events",
        "admit/lookup-by-cache-generation",
        "audit/window-of-the-future",
    ),
    "REPRESENTATIVES_IMPOSSIBLE": (
        "MEM-010",
        "admit/no-representative",
        "audit/no-representatives",
        "audit/too-many-representatives",
    ),
    "UNITS_MISMATCH": ("MEM-008", "admit/units-overlap", "admit/unit-of-the-window", "audit/unit-missing"),
    "REPRESENTATIVE_OUTSIDE_UNIT": (
        "MEM-010",
        "admit/representative-of-neighbour",
        "audit/representative-of-other-unit",
    ),
    "REPRESENTATIVES_MISMATCH": (
        "MEM-010",
        "admit/weaker-representative",
        "audit/representative-of-other-head",
        "audit/weaker-event-representative",
    ),
    "SCORES_MISMATCH": ("MEM-011", "admit/score-of-the-mean", "admit/score-of-one-row"),
    "SELECTION_MISMATCH": (
        "MEM-012",
        "admit/second-best-unit",
        "admit/other-similar-event",
        "admit/order-by-size",
        "audit/third-unit-selected",
        "audit/similar-event-missing",
        "audit/clusters-in-order",
    ),
    "RECALLED_ROWS_MISMATCH": (
        "MEM-001",
        "admit/representatives-recalled",
        "admit/neighbours-rows-left-out",
        "admit/last-cluster-dropped",
        "admit/last-members-kept",
        "audit/wrong-side-trimmed",
    ),
    "POSITIONS_COMPACTED": ("MEM-007", "admit/rank-as-position", "audit/position-of-rank", "audit/positions-compacted"),
    "DISTANCE_MISMATCH": ("MEM-014", "admit/true-distance"),
    "RECALLED_SUPPORT_MISMATCH": (
        "MEM-013",
        "admit/window-left-out",
        "admit/initial-row-left-out",
        "admit/events-without-window",
        "admit/open-window-left-out",
        "audit/remainder-left-out",
        "audit/event-rows-left-out",
        "audit/cluster-support-without-window",
    ),
    "SURPRISE_CANDIDATES_MISMATCH": ("MEM-020", "admit/candidate-missed"),
    "BOUNDARIES_NOT_ASCENDING": ("MEM-025", "admit/boundaries-reordered"),
    "BOUNDARIES_MISMATCH": ("MEM-025", "admit/worse-cut", "audit/quiet-row-as-boundary", "audit/surprise-rises"),
    "EVENTS_MISMATCH": (
        "MEM-027",
        "admit/events-below-least",
        "admit/events-by-equal-lengths",
        "admit/event-short",
        "audit/event-overlaps",
        "audit/open-event-sealed",
    ),
    "EVENT_TWICE": ("MEM-031", "admit/neighbour-is-similar", "audit/similar-event-again"),
    "CONTIGUITY_MISMATCH": ("MEM-030", "admit/no-neighbour", "admit/far-neighbour", "audit/neighbour-beyond-budget"),
    "TOKENS_MISMATCH": ("MEM-031", "admit/tokens-of-events"),
    "SINK_IN_CLUSTER": ("MEM-037", "admit/sink-clustered", "audit/sink-in-cluster", "audit/sink-among-members"),
    "WINDOW_NOT_NEXT": ("MEM-004", "admit/window-beyond-commit", "audit/window-after-a-gap"),
    "CENTROIDS_MISMATCH": (
        "MEM-034",
        "admit/raw-centroid",
        "admit/old-clusters-moved",
        "audit/centroid-not-normalised",
    ),
    "SIZES_MISMATCH": ("MEM-038", "admit/sizes-swapped", "admit/next-sizes", "audit/sizes-of-other-head"),
    "PREFIX_SUMS_MISMATCH": ("MEM-038", "admit/exclusive-sums", "admit/next-sums-restart", "audit/sums-of-other-head"),
    "MEMBERS_MISMATCH": (
        "MEM-038",
        "admit/member-of-neighbour",
        "admit/next-members-restart",
        "audit/members-of-prompt-alone",
    ),
    "MEMBERS_NOT_ASCENDING": ("MEM-038", "admit/members-swapped", "audit/members-unsorted"),
    "BUDGET_EXCEEDED": ("MEM-040", "admit/last-cluster-whole", "audit/one-row-too-many"),
    "PARTIAL_PUBLICATION": ("MEM-044", "admit/new-centroids-alone", "admit/old-map", "admit/old-sums"),
    "AUTHORITY_BEHIND": ("MEM-046", "admit/authority-short"),
    "EXACTNESS_OVERCLAIMED": ("MEM-006", "admit/called-dense", "audit/rows-called-dense"),
    "DOCUMENT_RECALL_CLAIMED": ("MEM-005", "admit/called-documents"),
    "RETENTION_MISMATCH": ("MEM-005", "admit/called-permanent"),
    "IDS_POSE_AS_ROWS": ("MEM-001", "admit/representatives-attended", "audit/payload-of-representatives"),
    "ROLES_OVERLAP": ("MEM-008", "audit/two-roles"),
    "ROLE_MISMATCH": ("MEM-008", "audit/no-role", "audit/sink-as-distant"),
    "UNIT_COVERAGE_MISMATCH": ("MEM-008", "audit/row-of-other-unit", "audit/row-of-no-unit", "audit/remainder-in-unit"),
    "EVENT_COVERAGE_MISMATCH": ("MEM-027", "audit/row-of-other-event", "audit/open-row-in-event"),
    "REPRESENTATIVE_OUTSIDE_EVENT": ("MEM-028", "audit/representative-outside-event"),
    "WINDOW_NOT_SEALED": ("MEM-042", "audit/window-cut-short"),
    "APPEND_CLUSTERS_MISMATCH": ("MEM-043", "audit/one-append-cluster", "audit/append-clusters-renumbered"),
    "OPEN_WINDOW_MISMATCH": ("MEM-042", "audit/open-window-short"),
    "OPEN_ROW_IN_CLUSTER": ("MEM-042", "audit/open-row-clustered", "audit/open-row-among-members"),
    "CLUSTER_COVERAGE_MISMATCH": ("MEM-037", "audit/row-without-cluster"),
    "LABELS_MISMATCH": ("MEM-033", "audit/label-of-other-cluster", "audit/label-of-other-head"),
    "STALE_LABELS": ("MEM-003", "audit/labels-of-old-generation", "audit/cached-label-old", "audit/cached-label-wrong"),
    "COMPARISON_INCOMPLETE": ("MEM-050", "audit/method-missing", "audit/method-twice", "audit/column-empty"),
    "COMPARISON_MISMATCH": ("MEM-050", "audit/centroid-retrieval", "audit/units-as-centroids"),
}
"""Reason to the requirement and the cases that miss its rule."""


BLINDS = tuple(unchecked(Blind, __name__, reason, row[0], case(*row[1:])) for reason, row in UNCHECKED.items())


class Mended(Fault):
    """Documents are mended before they are judged."""

    def mend_pool(self, document: Request) -> Request:
        """Another pool."""
        return document

    def mend_rows(self, document: Request) -> Request:
        """Another pool by rows."""
        return document

    def mem_pool_rules(self, document: Request) -> Iterable[Rule]:
        whole = pool.whole(document, pool.MEMBERS)
        return super().mem_pool_rules(self.mend_pool(document) if whole else document)

    def mem_record_rules(self, document: Request) -> Iterable[Rule]:
        whole = pool.whole(document, records.MEMBERS)
        return super().mem_record_rules(self.mend_rows(document) if whole else document)


def settings(document: Request, part: str, **changes: Any) -> Request:
    """The document with settings of one part, or of its own, replaced."""
    if not part:
        return {**document, "settings": {**document["settings"], **changes}}
    inner = document[part]
    return {**document, part: {**inner, "settings": {**inner["settings"], **changes}}}


def fitted(vector: Sequence[float], width: int) -> list[float]:
    """A vector cut or filled to a width."""
    return [*vector, *[0.0] * width][:width]


class ShapesMended(Mended):
    """Keys, values and queries are cut or filled to the declared channels and heads."""

    requirement = "MEM-001"
    killed_by = case(
        "admit/key-too-long", "audit/key-short", "audit/value-short", "audit/head-missing", "audit/query-long"
    )

    def mend_pool(self, document: Request) -> Request:
        rows = document["pool"]
        width = len(rows["query"])
        return {**document, "pool": {**rows, "k": [fitted(row, width) for row in rows["k"]]}}

    def mend_rows(self, document: Request) -> Request:
        identity = document["identity"]
        width, deep, heads = identity["head_dim"], identity["value_dim"], identity["kv_heads"]
        rows = [
            {
                **row,
                "k": [fitted(line, width) for line in [*row["k"], *[[0.0]] * heads][:heads]],
                "v": [fitted(line, deep) for line in row["v"]],
            }
            for row in document["rows"]
        ]
        return {**document, "rows": rows, "query": [fitted(line, width) for line in document["query"]]}


class WindowWidened(Mended):
    """A window without a deviation is widened."""

    requirement = "MEM-019"
    killed_by = case("admit/window-of-one-surprise", "audit/surprise-window-of-one")

    def mend_pool(self, document: Request) -> Request:
        ask = document["emllm"]["settings"]
        return settings(document, "emllm", window=max(ask["window"], 1 + ask["ddof"]))

    def mend_rows(self, document: Request) -> Request:
        ask = document["settings"]
        return settings(document, "", surprise_window=max(ask["surprise_window"], 1 + ask["ddof"]))


class SizesMended(Mended):
    """Impossible sizes of events are brought into order."""

    requirement = "MEM-027"
    killed_by = case("admit/least-above-largest", "audit/no-least-event")

    def mend_pool(self, document: Request) -> Request:
        ask = document["emllm"]["settings"]
        return settings(document, "emllm", minimum_rows=max(1, min(ask["minimum_rows"], ask["maximum_rows"])))

    def mend_rows(self, document: Request) -> Request:
        ask = document["settings"]
        return settings(document, "", minimum_rows=max(1, min(ask["minimum_rows"], ask["maximum_rows"])))


class InitialMended(Mended):
    """Clusters that begin outside their span begin at its nearest row."""

    requirement = "MEM-037"
    killed_by = case("admit/begins-at-sink", "admit/begins-in-window", "audit/prompt-begins-at-sink")

    def mend_pool(self, document: Request) -> Request:
        ask = document["clusterkv"]["settings"]
        first, last = ask["sink_rows"], ask["window"][0] - 1
        return settings(document, "clusterkv", initial=[min(max(p, first), last) for p in ask["initial"]])

    def mend_rows(self, document: Request) -> Request:
        ask = document["settings"]
        first, last = ask["sink_rows"], ask["prompt_rows"] - 1
        return settings(document, "", prompt_initial=[min(max(p, first), last) for p in ask["prompt_initial"]])


class WindowInitialMended(Mended):
    """Clusters of a window that begin outside it begin at its nearest row."""

    requirement = "MEM-043"
    killed_by = case("admit/window-begins-outside", "audit/append-begins-outside")

    def mend_pool(self, document: Request) -> Request:
        ask = document["clusterkv"]["settings"]
        first, end = ask["window"]
        inside = [min(max(p, first), end - 1) for p in ask["window_initial"]]
        return settings(document, "clusterkv", window_initial=inside)

    def mend_rows(self, document: Request) -> Request:
        index = document["clusters"]
        windows = [
            {**one, "initial": [min(max(p, one["rows"][0]), one["rows"][1] - 1) for p in one["initial"]]}
            for one in index["windows"]
        ]
        return {**document, "clusters": {**index, "windows": windows}}


class HeadMapMended(Mended):
    """Query heads without a K/V head read the last one."""

    requirement = "MEM-011"
    killed_by = case("audit/head-map-beyond", "audit/head-map-short")

    def mend_rows(self, document: Request) -> Request:
        identity = document["identity"]
        last = identity["kv_heads"] - 1
        owners = [min(head, last) for head in identity["kv_head_of"]]
        owners += [last] * (len(document["query"]) - len(owners))
        return {**document, "identity": {**identity, "kv_head_of": owners}}


class LastReason(Fault):
    """Rules are checked as it comes, and the last that fails is named."""

    requirement = "MEM-051"
    killed_by = case(
        "precedence/identity-before-units",
        "precedence/later-identity-before-units",
        "precedence/clusters-before-claims",
        "precedence/digest-first",
        "precedence/rows-clusters-before-comparison",
    )

    def mem_pool_rules(self, document: Request) -> Iterable[Rule]:
        return reversed(list(super().mem_pool_rules(document)))

    def mem_record_rules(self, document: Request) -> Iterable[Rule]:
        return reversed(list(super().mem_record_rules(document)))


class ClaimsFirst(Fault):
    """What a document says of itself is judged before what it did."""

    requirement = "MEM-051"
    killed_by = case("precedence/clusters-before-claims", "precedence/digest-first")

    def mem_pool_rules(self, document: Request) -> Iterator[Rule]:
        if "claims" in document:
            yield from pool.claim_rules(document["claims"])
        yield from super().mem_pool_rules(document)


class EventsFirst(Fault):
    """Events are judged before units."""

    requirement = "MEM-051"
    killed_by = case("precedence/units-before-events", "precedence/rows-units-before-events")

    def mem_pool_rules(self, document: Request) -> Iterator[Rule]:
        yield pool.whole(document, pool.MEMBERS), "SCHEMA_VIOLATION"
        identity = document["identity"]
        yield (
            all(len(document["pool"][name]) == identity["committed"] for name in ("k", "v", "surprise")),
            ("FRONTIER_BEYOND_COMMIT"),
        )
        yield len({len(row) for row in document["pool"]["k"]}) == 1, "SHAPE_MISMATCH"
        for method in pool.METHODS:
            yield from pool.binding(identity, document[method])
        yield from pool.event_rules(document)
        yield from super().mem_pool_rules(document)

    def mem_record_rules(self, document: Request) -> Iterator[Rule]:
        made = list(super().mem_record_rules(document)) if _plain(document) else []
        late = [rule for rule in made if rule[1] in ("BOUNDARIES_MISMATCH", "EVENTS_MISMATCH")]
        yield from late
        yield from super().mem_record_rules(document)


def _plain(document: Request) -> bool:
    """Whether every rule can be asked without the ones before it."""
    try:
        list(records.rules(document))
    except (LookupError, ValueError, TypeError):
        return False
    return True


class SetsOfOneIndex(Fault):
    """The first index is checked for its rows and the others are taken to be like it."""

    requirement = "MEM-002"
    killed_by = case(
        "admit/events-of-other-tenant",
        "admit/clusters-of-other-tenant",
        "admit/clusters-of-old-rows",
        "admit/events-of-other-head",
    )

    def mem_pool_rules(self, document: Request) -> Iterator[Rule]:
        if not pool.whole(document, pool.MEMBERS):
            yield False, "SCHEMA_VIOLATION"
        first = document["infllm"]["index"]
        names = ("tenant", "checkpoint", "layer", "kv_head", "position_rule", "cache_generation", "payload_sha256")
        same = {name: first[name] for name in names}
        others = {
            method: {**document[method], "index": {**document[method]["index"], **same}} for method in pool.METHODS[1:]
        }
        yield from super().mem_pool_rules({**document, **others})


class NewerIsFine(Fault):
    """Any generation that is not older is taken."""

    requirement = "MEM-003"
    killed_by = case("admit/lookup-by-cache-generation", "admit/map-of-next-generation")

    def mem_pool_rules(self, document: Request) -> Iterator[Rule]:
        changed = dict(document)
        for method in pool.METHODS:
            part = document.get(method, {})
            index = part.get("index", {})
            if "lookup_generation" not in part or "map_generation" not in index:
                continue
            generation = index["index_generation"]
            fresh = {**index, "map_generation": min(index["map_generation"], generation)}
            changed[method] = {**part, "index": fresh, "lookup_generation": min(part["lookup_generation"], generation)}
        yield from super().mem_pool_rules(changed)


class CommonPool(Fault):
    """A document is held against the figures of the one pool that everybody knows."""

    requirement = "MEM-011"
    killed_by = case("documents/other-rows", "documents/two-representatives")

    def mem_pool_rules(self, document: Request) -> Iterator[Rule]:
        yield from super().mem_pool_rules(document)
        yield pool.near(document["infllm"]["scores"], [0.95, 0.20, -0.80]), "SCORES_MISMATCH"


class DefaultSettings(Fault):
    """Settings that a document states are those that the engine is used to."""

    requirement = "MEM-040"
    killed_by = case("documents/smaller-budget")

    def mem_pool_rules(self, document: Request) -> Iterator[Rule]:
        part = document["clusterkv"]
        if "settings" in part and part["settings"]["budget"] < 5:
            document = {**document, "clusterkv": {**part, "settings": {**part["settings"], "budget": 5}}}
        yield from super().mem_pool_rules(document)


class TwelveRows(Fault):
    """Every pool is taken to have twelve rows."""

    requirement = "MEM-008"
    killed_by = case("documents/longer-pool")

    def mem_pool_rules(self, document: Request) -> Iterator[Rule]:
        yield from super().mem_pool_rules(document)
        yield document["identity"]["committed"] == 12, "UNITS_MISMATCH"


class OneMetric(Fault):
    """Every document is held to modularity and the unbiased deviation."""

    requirement = "MEM-019"
    killed_by = case("documents/other-event-settings")

    def mem_pool_rules(self, document: Request) -> Iterator[Rule]:
        yield from super().mem_pool_rules(document)
        yield document["emllm"]["settings"]["ddof"] == 1, "SURPRISE_CANDIDATES_MISMATCH"


class LenientMembers(Fault):
    """Members that are missing are taken for what they should be."""

    requirement = "MEM-044"
    killed_by = case("admit/part-missing")

    def mem_pool_rules(self, document: Request) -> Iterator[Rule]:
        later = document["clusterkv"]["next"]
        if "map" not in later["generations"]:
            filled = {**later["generations"], "map": later["generations"]["members"]}
            part = {**document["clusterkv"], "next": {**later, "generations": filled}}
            document = {**document, "clusterkv": part}
        yield from super().mem_pool_rules(document)


class LookupUnnamed(Fault):
    """A lookup that names no generation is one in the current."""

    requirement = "MEM-003"
    killed_by = case("admit/no-lookup-generation")

    def mem_pool_rules(self, document: Request) -> Iterator[Rule]:
        part = document["clusterkv"]
        if "lookup_generation" not in part:
            document = {**document, "clusterkv": {**part, "lookup_generation": part["index"]["index_generation"]}}
        yield from super().mem_pool_rules(document)


class PositionByOrder(Fault):
    """A row without a position has the one of its place."""

    requirement = "MEM-007"
    killed_by = case("audit/no-position", "audit/position-of-rank")

    def mem_record_rules(self, document: Request) -> Iterator[Rule]:
        rows = [{**row, "position": place} for place, row in enumerate(document["rows"])]
        yield from super().mem_record_rules({**document, "rows": rows})


FAULTS = (*BLINDS, *found(globals()))
