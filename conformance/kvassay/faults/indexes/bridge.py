"""Faults of RetrievalAttention's ops."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from kvassay_reference.attention import State
from kvassay_reference.indexes import bridge, rows

from ..base import Fault
from .base import Request, Result, case

# --- neighbours and graphs -----------------------------------------------------------------------------------------


class CosineNeighbours(Fault):
    """Neighbours are ranked by cosine."""

    requirement = "IDX-028"
    killed_by = case("bridge/exact-one-head", "bridge/exact-grouped", "bridge/exact-grouped-floor")

    def bridge_exact(self, request: Request) -> Result:
        k = request["k"]
        size = np.linalg.norm(k, axis=2, keepdims=True) ** 2
        return super().bridge_exact({**request, "k": (k / np.where(size > 0, size, 1)).astype(np.float32)})


class FarthestNeighbours(Fault):
    """Rows are ranked by a distance of which the largest is taken for the best."""

    requirement = "IDX-028"
    killed_by = case("bridge/exact-one-head-floor", "bridge/exact-grouped-floor", "bridge/published-step")

    def bridge_exact(self, request: Request) -> Result:
        return super().bridge_exact({**request, "q": -request["q"]})


class RangeFromZero(Fault):
    """Rows before the range are searched as well."""

    requirement = "IDX-028"
    killed_by = case("bridge/exact-ties-and-edges")

    def bridge_exact(self, request: Request) -> Result:
        first, end = request["rows"]
        return super().bridge_exact({**request, "rows": [0 if first < end else first, end]})


class IdsWithinTheRange(Fault):
    """Ids are counted from the beginning of the range."""

    requirement = "IDX-028"
    killed_by = case(
        "bridge/exact-grouped", "bridge/exact-crossed", "bridge/published-step", "bridge/exact-crossed-floor"
    )

    def bridge_exact(self, request: Request) -> Result:
        reply = super().bridge_exact(request)
        return {"ids": [[i - request["rows"][0] for i in ids] for ids in reply["ids"]]}


class NeighboursAscending(Fault):
    """Neighbours come in the order of their ids."""

    requirement = "IDX-028"
    killed_by = case("bridge/exact-one-head", "bridge/graph-of-15-keys", "bridge/published-step")

    def bridge_exact(self, request: Request) -> Result:
        return {"ids": [sorted(ids) for ids in super().bridge_exact(request)["ids"]]}

    def bridged_neighbours(self, request: Request) -> list[list[int]]:
        return [sorted(ids) for ids in super().bridged_neighbours(request)]


class HeadsByPlace(Fault):
    """Query head i reads K/V head i modulo their number."""

    requirement = "IDX-028"
    killed_by = case("bridge/exact-grouped", "bridge/exact-crossed")

    def bridge_exact(self, request: Request) -> Result:
        heads = request["k"].shape[1]
        if max(request["kv_head_of"]) >= heads:
            return super().bridge_exact(request)
        return super().bridge_exact({**request, "kv_head_of": [i % heads for i in range(len(request["kv_head_of"]))]})


class OutOfRangeIsEmpty(Fault):
    """A range beyond the rows is cut to them, and one that runs backwards is empty."""

    requirement = "IDX-028"
    killed_by = case("bridge/exact-ties-and-edges")

    def bridge_exact(self, request: Request) -> Result:
        first, end = request["rows"]
        end = min(end, request["k"].shape[0])
        return super().bridge_exact({**request, "rows": [min(first, end), end]})


class KeyNeighbours(Fault):
    """Keys are joined with the keys that are nearest to them, as a vector index would."""

    requirement = "IDX-029"
    killed_by = case("bridge/two-queries-two-pairs", "bridge/key-neighbours-are-no-bridge", "bridge/graph-of-24-keys")

    def bridge_build(self, request: Request) -> Result:
        reply = super().bridge_build(request)
        near = bridge.exact_neighbours(request["keys"], request["keys"], min(2, request["keys"].shape[0]))
        edges = sorted({(min(i, j), max(i, j)) for i, row in enumerate(near) for j in row if i != j})
        return {**reply, "edges": [list(e) for e in edges], "isolated": bridge.isolated(edges, len(near))}


class ChainOfNeighbours(Fault):
    """A query joins each neighbour with the next one only."""

    requirement = "IDX-029"
    killed_by = case("bridge/two-queries-two-pairs", "bridge/one-neighbour-joins-nothing", "bridge/graph-of-15-keys")

    def bridged_project(self, neighbours: Any) -> list[bridge.Edge]:
        pairs = {(min(a, b), max(a, b)) for row in neighbours for a, b in pairwise(row)}
        return sorted(pairs)


class EdgesPerQuery(Fault):
    """A pair that two queries share is an edge twice."""

    requirement = "IDX-029"
    killed_by = case("bridge/graph-of-24-keys")

    def bridged_project(self, neighbours: Any) -> list[bridge.Edge]:
        return sorted(pair for row in neighbours for pair in bridge.project([row]))


class LastQueryOnly(Fault):
    """Each query's edges replace those of the one before."""

    requirement = "IDX-029"
    killed_by = case("bridge/two-queries-two-pairs", "bridge/more-queries-more-edges")

    def bridged_project(self, neighbours: Any) -> list[bridge.Edge]:
        return bridge.project(neighbours[-1:])


class FewerNeighbours(Fault):
    """A number of neighbours beyond the rows is cut to them."""

    requirement = "IDX-029"
    killed_by = case("bridge/one-neighbour-joins-nothing")

    def bridge_build(self, request: Request) -> Result:
        return super().bridge_build({**request, "k_build": min(request["k_build"], request["keys"].shape[0])})


# --- search --------------------------------------------------------------------------------------------------------


class Searched(Fault):
    """A search with a defect."""

    requirement = "IDX-030"


class GreedyWalk(Searched):
    """The pool holds one row, whatever the width."""

    killed_by = case("bridge/search-along-a-path")

    def bridge_search(self, request: Request) -> Result:
        count = request["top_k"]
        super().bridge_search(request)
        return super().bridge_search({**request, "width": max(count, 1)})


class VisitsExpanded(Searched):
    """Rows are counted when they are expanded and not when they are scored."""

    killed_by = case("bridge/search-along-a-path", "bridge/search-width-8", "bridge/search-does-not-reach")

    def bridge_search(self, request: Request) -> Result:
        reply = super().bridge_search(request)
        return {**reply, "visited": max(1, reply["visited"] - 1)}


class VisitsEdges(Searched):
    """Every edge that is followed counts as a visit."""

    killed_by = case("bridge/search-along-a-path", "bridge/search-width-16")

    def bridge_search(self, request: Request) -> Result:
        reply = super().bridge_search(request)
        return {**reply, "visited": reply["visited"] + len(request["edges"])}


class OneWayEdges(Searched):
    """Edges are followed from the lower to the higher id only."""

    killed_by = case("bridge/search-width-8")

    def bridged_graph(self, request: Request) -> bridge.Graph:
        graph = super().bridged_graph(request)
        graph.near = [{j for j in near if j > i} for i, near in enumerate(graph.near)]
        return graph


class WholePool(Searched):
    """All that the pool holds is returned."""

    killed_by = case("bridge/search-along-a-path", "bridge/search-width-8-floor", "bridge/search-width-16-floor")

    def bridge_search(self, request: Request) -> Result:
        super().bridge_search(request)
        return super().bridge_search({**request, "top_k": request["width"]})


class ExhaustiveSearch(Searched):
    """Every row is scored, edges or not."""

    killed_by = case("bridge/search-does-not-reach")

    def bridge_search(self, request: Request) -> Result:
        super().bridge_search(request)
        total = request["keys"].shape[0]
        return super().bridge_search({**request, "entries": list(range(total)), "width": total})


class TiesToTheHigherRow(Searched):
    """Of equal rows the higher is kept."""

    killed_by = case("bridge/search-ties")

    def bridge_search(self, request: Request) -> Result:
        total = request["keys"].shape[0]
        flipped = {
            **request,
            "keys": request["keys"][::-1],
            "edges": [[total - 1 - b, total - 1 - a] for a, b in request["edges"]],
            "entries": [total - 1 - i for i in request["entries"]],
        }
        if any(i < 0 or i >= total for e in [request["entries"], *request["edges"]] for i in e):
            return super().bridge_search(request)
        reply = super().bridge_search(flipped)
        return {**reply, "ids": [total - 1 - i for i in reply["ids"]]}


class WorstFirst(Searched):
    """Rows are kept by distance in place of product, so that the far ones stay."""

    killed_by = case("bridge/search-width-4-floor", "bridge/search-width-16-floor")

    def bridge_search(self, request: Request) -> Result:
        super().bridge_search(request)
        return super().bridge_search({**request, "q": -request["q"]})


class UncheckedGraph(Searched):
    """Edges and entries to rows that there are not are skipped, and a search that begins nowhere begins at row 0."""

    killed_by = case("bridge/search-entries")

    def bridge_search(self, request: Request) -> Result:
        total = request["keys"].shape[0]
        entries = [i for i in request["entries"] if 0 <= i < total] or [0]
        edges = [e for e in request["edges"] if all(0 <= i < total for i in e)]
        return super().bridge_search({**request, "entries": entries, "edges": edges})


class WidensInSilence(Searched):
    """A width below the number of candidates is raised to it."""

    killed_by = case("bridge/search-entries")

    def bridge_search(self, request: Request) -> Result:
        return super().bridge_search({**request, "width": max(request["width"], request["top_k"])})


# --- one set -------------------------------------------------------------------------------------------------------


class Steps(Fault):
    """A step with a defect."""

    requirement = "IDX-031"


class KeepsDuplicates(Steps):
    """Retrieved rows that are persistent stay in both parts."""

    killed_by = case(
        "bridge/step-one-head-duplicates", "bridge/step-grouped-duplicates", "bridge/step-crossed-duplicates"
    )

    def bridged_fresh(self, retrieved: Sequence[int], kept: Sequence[int]) -> list[int]:
        return sorted(set(retrieved))


class KeepsRepeats(Steps):
    """A row that an index returns twice counts twice."""

    killed_by = case("bridge/step-one-head-duplicates", "bridge/step-crossed-duplicates")

    def bridged_fresh(self, retrieved: Sequence[int], kept: Sequence[int]) -> list[int]:
        return sorted(i for i in retrieved if i not in kept)


class OneListForAll(Steps):
    """All query heads attend to what the first one retrieved."""

    killed_by = case("bridge/step-grouped", "bridge/step-crossed", "bridge/more-rows-more-mass")

    def bridge_step(self, request: Request) -> Result:
        if len(request["retrieved"]) != len(request["kv_head_of"]):
            return super().bridge_step(request)
        return super().bridge_step({**request, "retrieved": request["retrieved"][:1] * len(request["retrieved"])})


class GroupSharesRows(Steps):
    """Heads of a group attend to the union of what they retrieved."""

    killed_by = case("bridge/step-grouped", "bridge/step-crossed")

    def bridge_step(self, request: Request) -> Result:
        lists, heads = request["retrieved"], request["kv_head_of"]
        if len(lists) != len(heads):
            return super().bridge_step(request)
        joined = [[i for ids, other in zip(lists, heads, strict=True) if other == one for i in ids] for one in heads]
        return super().bridge_step({**request, "retrieved": joined})


class WindowWithoutTheCurrentRow(Steps):
    """The recent window ends before the current row."""

    killed_by = case("bridge/step-one-head", "bridge/step-at-the-edges")

    def bridged_persistent(self, request: Request, total: int) -> list[int]:
        kept = super().bridged_persistent(request, total)
        return [i for i in kept if i != total - 1]


class SinkAndWindowApart(Steps):
    """A row of a short history that is in sink and window is there twice."""

    killed_by = case("bridge/step-at-the-edges")

    def bridged_persistent(self, request: Request, total: int) -> list[int]:
        sink, recent = min(request["sink"], total), min(request["recent"], total)
        return sorted([*range(sink), *range(total - recent, total)])


class AddsStates(Steps):
    """States are added without bringing them to one maximum."""

    killed_by = case("bridge/step-one-head", "bridge/step-grouped", "bridge/published-step")

    def bridged_merge(self, a: State, b: State) -> State:
        return State(np.maximum(a.m, b.m), a.l + b.l, a.u + b.u)


class RetrievedOnly(Steps):
    """The merged state is that of the retrieved rows wherever there are any."""

    killed_by = case("bridge/step-one-head", "bridge/more-rows-more-mass")

    def bridged_merge(self, a: State, b: State) -> State:
        some = b.l > 0
        return State(np.where(some, b.m, a.m), np.where(some, b.l, a.l), np.where(some[:, None], b.u, a.u))


class BaseTwo(Steps):
    """The retrieved state's log-sum-exp is to base two."""

    killed_by = case("bridge/step-order-is-free", "bridge/step-crossed")

    def bridged_attend(self, request: Request, supports: Any) -> State:
        state = super().bridged_attend(request, supports)
        m = np.where(np.isinf(state.m), state.m, state.m * np.float32(1 + 1e-5))
        return State(m, state.l, state.u)


class SkipsUnknownRows(Steps):
    """Ids that are no rows are left out."""

    killed_by = case("bridge/step-rejects")

    def bridge_step(self, request: Request) -> Result:
        total = request["k"].shape[0]
        kept = [[i for i in ids if i < total] for ids in request["retrieved"]]
        return super().bridge_step({**request, "retrieved": (kept * 2)[: len(request["kv_head_of"])]})


# --- calibration ---------------------------------------------------------------------------------------------------


class Calibrates(Fault):
    """A diagnostic with a defect."""

    requirement = "IDX-032"

    def changed(self, found: Result, request: Request) -> Result:
        """What replaces some numbers."""
        return {}

    def bridge_calibrate(self, request: Request) -> Result:
        found = super().bridge_calibrate(request)
        return {**found, **self.changed(found, request)}


class RecallOfReturned(Calibrates):
    """Recall is the share of returned rows that are exact ones."""

    killed_by = case("bridge/calibrate-repeats")

    def changed(self, found: Result, request: Request) -> Result:
        shares = [
            len([i for i in got if i in want]) / max(len(got), 1)
            for want, got in zip(request["exact"], request["found"], strict=True)
        ]
        return {"recall": sum(shares) / len(shares)}


class MeanHidesTheWorst(Calibrates):
    """The worst recall is the mean."""

    killed_by = case("bridge/calibrate")

    def changed(self, found: Result, request: Request) -> Result:
        return {"worst_recall": found["recall"]}


class ScanOfTheMost(Calibrates):
    """The scan ratio is that of the query that visited most."""

    killed_by = case("bridge/calibrate")

    def changed(self, found: Result, request: Request) -> Result:
        return {"scan_ratio": found["most_visited"] / request["rows"]}


class UnbiasedVariance(Calibrates):
    """Drift is told in unbiased variances."""

    killed_by = case("bridge/calibrate", "bridge/drift")

    def changed(self, found: Result, request: Request) -> Result:
        n = request["prefill_queries"].shape[0]
        return {"drift": found["drift"] * (n - 1) / n}


class DriftBySize(Calibrates):
    """Drift is told in the sample's units."""

    killed_by = case("bridge/drift")

    def changed(self, found: Result, request: Request) -> Result:
        shift = np.mean(request["held_out_queries"], axis=0) - np.mean(request["prefill_queries"], axis=0)
        return {"drift": float(np.mean(shift**2))}


class DegenerateSample(Calibrates):
    """A channel without variance has no drift."""

    killed_by = case("bridge/drift")

    def bridge_calibrate(self, request: Request) -> Result:
        flat = np.ptp(request["prefill_queries"], axis=0) == 0
        if flat.any() and not flat.all():
            keep = ~flat
            request = {
                **request,
                "prefill_queries": request["prefill_queries"][:, keep],
                "held_out_queries": request["held_out_queries"][:, keep],
            }
        return super().bridge_calibrate(request)


class NothingIsPerfect(Calibrates):
    """Recall over no held-out query is one."""

    killed_by = case("bridge/nothing-held-out")

    def bridge_calibrate(self, request: Request) -> Result:
        if not request["exact"]:
            zero = {"mean_visited": 0.0, "most_visited": 0, "scan_ratio": 0.0, "drift": 0.0}
            return {"recall": 1.0, "worst_recall": 1.0, **zero}
        return super().bridge_calibrate(request)


class Escalates(Fault):
    """A choice with a defect."""

    requirement = "IDX-033"


class ExactAtOnce(Escalates):
    """Below the floor exact rows are fetched without a wider search."""

    killed_by = case("bridge/widen-before-exact")

    def bridge_escalate(self, request: Request) -> Result:
        return super().bridge_escalate({**request, "budgets": request["budgets"][:1]})


class WidestAtOnce(Escalates):
    """Below the floor the widest budget is taken."""

    killed_by = case("bridge/widen-before-exact", "bridge/budgets-not-ascending")

    def bridge_escalate(self, request: Request) -> Result:
        reply = super().bridge_escalate(request)
        return {**reply, "width": request["budgets"][-1]["width"]} if reply["action"] == "widen" else reply


class FloorExclusive(Escalates):
    """A recall that equals the floor is too low."""

    killed_by = case("bridge/widen-before-exact")

    def bridge_escalate(self, request: Request) -> Result:
        return super().bridge_escalate({**request, "recall_floor": np.nextafter(request["recall_floor"], 2)})


class WidestWithoutExact(Escalates):
    """Where exact rows are not allowed, the widest search has to do."""

    killed_by = case("bridge/no-budget-keeps-the-floor")

    def bridge_escalate(self, request: Request) -> Result:
        reply = super().bridge_escalate({**request, "exact_allowed": True})
        if reply["action"] == "exact" and not request["exact_allowed"]:
            return {"action": "widen", "width": request["budgets"][-1]["width"]}
        return reply


class DriftIgnored(Escalates):
    """Recall counts, whatever the queries have become."""

    killed_by = case("bridge/drifted-queries", "bridge/no-budget-keeps-the-floor")

    def bridged_drifted(self, request: Request) -> bool:
        return False


class DriftAtTheLimit(Escalates):
    """Drift at the limit counts as beyond it."""

    killed_by = case("bridge/drifted-queries")

    def bridged_drifted(self, request: Request) -> bool:
        return bool(request["drift"] >= request["drift_limit"])


class SortsBudgets(Escalates):
    """Budgets are put in order."""

    killed_by = case("bridge/budgets-not-ascending")

    def bridge_escalate(self, request: Request) -> Result:
        several = {one["width"]: one for one in request["budgets"]}
        return super().bridge_escalate({**request, "budgets": [several[w] for w in sorted(several)]})


class PayloadPerIndex(Fault):
    """Every index has a payload of its own."""

    requirement = "IDX-034"
    killed_by = case("bridge/ledger")

    def bridge_ledger(self, request: Request) -> Result:
        reply = super().bridge_ledger(request)
        factor = len(request["edges"]) // request["kv_heads"]
        return {**reply, "payload_bytes": reply["payload_bytes"] * factor, "payload_copies": len(request["edges"])}


class GatherPerHead(Fault):
    """Rows that several heads of a group retrieve are moved for each."""

    requirement = "IDX-034"
    killed_by = case("bridge/ledger")

    def bridge_ledger(self, request: Request) -> Result:
        lists = [set(ids) for ids in request["retrieved"]]
        rows.check_heads(request["kv_head_of"], len(lists), request["kv_heads"])
        reply = super().bridge_ledger(request)
        row = request["channels"] * request["k_item_bytes"] + request["value_channels"] * request["v_item_bytes"]
        return {**reply, "gather_bytes": row * sum(map(len, lists))}
