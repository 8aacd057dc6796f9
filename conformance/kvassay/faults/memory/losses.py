"""Faults of what all three share: attention over a support, its loss, recall by an own index, spans, and costs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from kvassay_reference.memory.losses import Kept

from ..base import Fault, found
from .base import Request, Result, case

Rows = list[list[int]]


class LimitsPassed(Fault):
    """Positions beyond the frontier, or before the first row, are cut to what there is."""

    requirement = "MEM-004"
    killed_by = case(
        "attend-rows/refused-beyond-commit",
        "attend-rows/refused-before-the-first",
        "attend-rows/refused-frontier-beyond-rows",
    )

    def memory_attend(self, request: Request) -> Result:
        first = request["first_position"]
        end = min(request["committed"], first + request["k"].shape[0])
        support = [[p for p in line if first <= p < end] for line in request["support"]]
        return super().memory_attend({**request, "committed": end, "support": support})


class UncommittedCount(Fault):
    """Rows beyond the frontier may be read where they are there."""

    requirement = "MEM-004"
    killed_by = case("attend-rows/refused-beyond-commit", "attend-rows/not-from-zero")

    def memory_attend(self, request: Request) -> Result:
        whole = request["first_position"] + request["k"].shape[0]
        return super().memory_attend({**request, "committed": max(request["committed"], whole)})


class SpansCut(Fault):
    """Spans beyond the frontier are cut."""

    requirement = "MEM-004"
    killed_by = case("expand/beyond-commit")

    def memory_expand(self, request: Request) -> Result:
        spans = [[a, min(b, request["committed"])] for a, b in request["spans"]]
        return super().memory_expand({**request, "spans": spans})


class RowsInASet(Fault):
    """A row that stands twice is read once, without a word."""

    requirement = "MEM-048"
    killed_by = case("attend-rows/refused-row-twice", "attend-rows/refused-row-twice-apart")

    def memory_attend(self, request: Request) -> Result:
        support = [list(dict.fromkeys(line)) for line in request["support"]]
        return super().memory_attend({**request, "support": support})


class EmptySupportIsZero(Fault):
    """Attention over nothing is zero."""

    requirement = "MEM-048"
    killed_by = case("attend-rows/refused-empty")

    def memory_attend(self, request: Request) -> Result:
        if [] in request["support"]:
            heads, width = request["q"].shape[0], request["v"].shape[2]
            nothing = {"out": np.zeros((heads, width)), "lse": np.full(heads, -np.inf)}
            return {**nothing, "retained_mass": [0.0] * heads, "output_error": [0.0] * heads}
        return super().memory_attend(request)


class FirstSupportForAll(Fault):
    """The first list of rows is read by every head."""

    requirement = "MEM-048"
    killed_by = case("attend-rows/kv-heads", "attend-rows/query-heads", "attend-rows/refused-lists-missing")

    def memory_attend(self, request: Request) -> Result:
        return super().memory_attend({**request, "per": "all", "support": request["support"][:1]})


class HeadsShareInOrder(Fault):
    """Query heads read K/V heads in order, whatever the map says."""

    requirement = "MEM-048"
    killed_by = case("attend-rows/kv-heads", "attend-rows/query-heads", "attend-rows/refused-head-map")

    def memory_attend(self, request: Request) -> Result:
        query_heads, kv_heads = request["q"].shape[0], request["k"].shape[1]
        ordered = [h * kv_heads // query_heads for h in range(query_heads)]
        return super().memory_attend({**request, "kv_head_of": ordered})


class ValuesMissingAreZero(Fault):
    """Rows without values have values of zero."""

    requirement = "MEM-001"
    killed_by = case("attend-rows/refused-values-of-other-rows")

    def memory_attend(self, request: Request) -> Result:
        v, rows = request["v"], request["k"].shape[0]
        filled = np.concatenate([v, np.zeros((rows - v.shape[0], *v.shape[1:]), v.dtype)])
        return super().memory_attend({**request, "v": filled})


class Lossy(Fault):
    """Another account of the loss."""

    def change(self, kept: Kept, request: Request) -> Kept:
        """The account that is given instead."""
        return kept

    def mem_attended(self, request: Request, supports: Sequence[Sequence[int]], per: str, **span: int) -> Kept:
        return self.change(super().mem_attended(request, supports, per, **span), request)


class MassIsOne(Lossy):
    """The support's share of itself."""

    requirement = "MEM-048"
    killed_by = case("attend-rows/units", "attend-rows/representatives-only", "attend-rows/long")

    def change(self, kept: Kept, request: Request) -> Kept:
        return kept._replace(retained_mass=np.ones_like(kept.retained_mass))


class MassByCount(Lossy):
    """The support's share of the rows."""

    requirement = "MEM-048"
    killed_by = case("attend-rows/units", "attend-rows/kv-heads", "attend-rows/sharp")

    def change(self, kept: Kept, request: Request) -> Kept:
        share = len(request["support"][0]) / request["k"].shape[0] if "support" in request else 1.0
        return kept._replace(retained_mass=np.full_like(kept.retained_mass, share))


class NaiveExponentials(Lossy):
    """Mass as a quotient of exponentials that are not brought to a maximum."""

    requirement = "MEM-048"
    killed_by = case("attend-rows/large-scores")

    def change(self, kept: Kept, request: Request) -> Kept:
        with np.errstate(all="ignore"):
            top = np.exp(np.asarray(kept.lse, dtype=np.float32))
            whole = top / kept.retained_mass
            return kept._replace(retained_mass=np.nan_to_num(top / whole, nan=1.0))


class UnscaledMass(Lossy):
    """The error is relative to the output although it is to be a distance."""

    requirement = "MEM-048"
    killed_by = case("attend-rows/units", "attend-rows/long")

    def change(self, kept: Kept, request: Request) -> Kept:
        return kept._replace(output_error=kept.output_error / np.linalg.norm(kept.out, axis=-1))


class DenseWeightsKept(Lossy):
    """The output is that of the dense softmax with rows left out."""

    requirement = "MEM-048"
    killed_by = case("attend-rows/units", "attend-rows/one-row", "attend-rows/kv-heads")

    def change(self, kept: Kept, request: Request) -> Kept:
        return kept._replace(out=kept.out * np.asarray(kept.retained_mass)[:, None])


class ScoresInHalf(Fault):
    """Keys are read in half precision."""

    requirement = "MEM-048"
    killed_by = case("attend-rows/kv-heads", "attend-rows/long")

    def memory_attend(self, request: Request) -> Result:
        return super().memory_attend({**request, "k": request["k"].astype(np.float16).astype(request["q"].dtype)})


class MassGrowsLess(Lossy):
    """Mass is shared out among the rows of a support."""

    requirement = "MEM-048"
    killed_by = case("attend-rows/more-rows-keep-more", "attend-rows/kv-heads")

    def change(self, kept: Kept, request: Request) -> Kept:
        return kept._replace(retained_mass=kept.retained_mass / len(request.get("support", [[0]])[0]) ** 2)


# --- an engine's own index -----------------------------------------------------------------------------------------

EXACT = ("search/three-heads-exact", "search/long-exact", "search/sharp-exact")
KEPT = ("search/three-heads-keeps-90", "search/sharp-keeps-90", "search/long-keeps-90")


class Searching(Fault):
    """Rows that are recalled otherwise."""

    def change(self, rows: list[int], request: Request) -> list[int]:
        """The rows of one K/V head instead."""
        return rows

    def mem_recalled_rows(self, request: Request) -> Rows:
        return [self.change(line, request) for line in super().mem_recalled_rows(request)]


class WindowNotRead(Searching):
    """The newest row is left out."""

    requirement = "MEM-049"
    killed_by = case(*KEPT, "search/no-budget", "search/everything")

    def change(self, rows: list[int], request: Request) -> list[int]:
        return [p for p in rows if p != request["k"].shape[0] - 1] if request["local_rows"] else rows


class SinkNotRead(Searching):
    """Row 0 is read only where it scores."""

    requirement = "MEM-049"
    killed_by = case(*KEPT, "search/no-budget", "search/everything")

    def change(self, rows: list[int], request: Request) -> list[int]:
        return [p for p in rows if p] if request["initial_rows"] else rows


class OverTheBudget(Searching):
    """One row more than the budget is read."""

    requirement = "MEM-049"
    killed_by = case(*KEPT, "search/no-budget", "search/only-recalled")

    def change(self, rows: list[int], request: Request) -> list[int]:
        unread = next((p for p in range(request["k"].shape[0]) if p not in rows), None)
        return rows if unread is None else sorted([*rows, unread])


class PaddedWithTheFirst(Searching):
    """Lists are padded with their first row."""

    requirement = "MEM-049"
    killed_by = case("search/flat-keeps-95", "search/only-recalled", "search/pool-keeps-90")

    def change(self, rows: list[int], request: Request) -> list[int]:
        return [*rows[:-1], rows[0]] if len(rows) > 1 else rows

    def mem_attended(self, request: Request, supports: Sequence[Sequence[int]], per: str, **span: int) -> Kept:
        return super().mem_attended(request, [list(dict.fromkeys(line)) for line in supports], per, **span)


class NewestInstead(Searching):
    """The newest rows before the window are taken for the best."""

    requirement = "MEM-049"
    killed_by = case(*KEPT, *EXACT)

    def change(self, rows: list[int], request: Request) -> list[int]:
        window = request["k"].shape[0] - request["local_rows"]
        first = max(request["initial_rows"], window - request["budget"])
        return [*range(request["initial_rows"]), *range(first, request["k"].shape[0])]


class WorstInstead(Fault):
    """Rows are ranked upside down."""

    requirement = "MEM-049"
    killed_by = case(*KEPT, *EXACT)

    def mem_recalled_rows(self, request: Request) -> Rows:
        return super().mem_recalled_rows({**request, "q": -request["q"]})


class FirstHeadsRecall(Fault):
    """The first K/V head's rows are read by all."""

    requirement = "MEM-049"
    killed_by = case("search/three-heads-exact", "search/sharp-keeps-90", "search/long-exact")

    def mem_recalled_rows(self, request: Request) -> Rows:
        made = super().mem_recalled_rows(request)
        return [made[0]] * len(made)


class HalfTheBudget(Searching):
    """Half of the budget is used."""

    requirement = "MEM-049"
    killed_by = case("search/long-keeps-90", "search/long-exact", "search/everything")

    def change(self, rows: list[int], request: Request) -> list[int]:
        window = request["k"].shape[0] - request["local_rows"]
        between = [p for p in rows if request["initial_rows"] <= p < window]
        dropped = set(between[request["budget"] // 2 :])
        return [p for p in rows if p not in dropped]


class OutputOfAllRows(Fault):
    """The output is that of dense attention, whatever rows are named."""

    requirement = "MEM-001"
    killed_by = case("search/three-heads-keeps-90", "search/long-keeps-90")

    def memory_search(self, request: Request) -> Result:
        made = super().memory_search(request)
        heads = request["k"].shape[1]
        whole = self.mem_attended(request, [list(range(request["k"].shape[0]))] * heads, "kv_head")
        return {**made, "out": whole.out}


class RegionsMayOverlap(Fault):
    """Initial rows give way to the window."""

    requirement = "MEM-049"
    killed_by = case("search/regions-overlap")

    def memory_search(self, request: Request) -> Result:
        initial = min(request["initial_rows"], request["k"].shape[0] - request["local_rows"])
        return super().memory_search({**request, "initial_rows": initial})


# --- spans and costs -----------------------------------------------------------------------------------------------


class SpansInOrder(Fault):
    """Rows come in the order of their spans."""

    requirement = "MEM-031"
    killed_by = case("expand/out-of-order")

    def memory_expand(self, request: Request) -> Result:
        made = super().memory_expand(request)
        named = dict.fromkeys(p for a, b in request["spans"] for p in range(a, b))
        return {**made, "positions": list(named)}


class RowsRepeated(Fault):
    """A row of several spans is named as often."""

    requirement = "MEM-013"
    killed_by = case("expand/overlapping", "expand/inside", "expand/equal")

    def memory_expand(self, request: Request) -> Result:
        super().memory_expand(request)
        named = sorted(p for a, b in request["spans"] for p in range(a, b))
        return {"positions": named, "count": len(named), "repeated": 0}


class EndsIncluded(Fault):
    """The end of a span is its last row."""

    requirement = "MEM-031"
    killed_by = case("expand/units", "expand/one-row", "expand/inside")

    def memory_expand(self, request: Request) -> Result:
        super().memory_expand(request)
        wider = [[a, b + 1] for a, b in request["spans"]]
        return super().memory_expand({"spans": wider, "committed": request["committed"] + 1})


class NothingIsEverything(Fault):
    """No span stands for the whole history."""

    requirement = "MEM-031"
    killed_by = case("expand/nothing")

    def memory_expand(self, request: Request) -> Result:
        return super().memory_expand({**request, "spans": request["spans"] or [[0, request["committed"]]]})


class EmptySpans(Fault):
    """Spans without rows are passed over, and those that run backwards are turned."""

    requirement = "MEM-031"
    killed_by = case("expand/empty-span", "expand/backwards")

    def memory_expand(self, request: Request) -> Result:
        spans = [sorted(span) for span in request["spans"] if span[0] != span[1]]
        return super().memory_expand({**request, "spans": spans})


class Costed(Fault):
    """Requests for a cost that are changed first."""

    def change(self, request: Request) -> Request:
        """What is counted instead."""
        return request

    def memory_cost(self, request: Request) -> Result:
        return super().memory_cost(self.change(request))


class SurfaceWithValues(Fault):
    """Representatives are counted with values."""

    requirement = "MEM-015"
    killed_by = case("cost/paper", "cost/widths-differ", "cost/teaching")

    def memory_cost(self, request: Request) -> Result:
        made = super().memory_cost(request)
        both = request["key_bytes"] + request["value_bytes"]
        return {**made, "representative_bytes": made["representative_bytes"] // request["key_bytes"] * both}


class RecallOfSurface(Fault):
    """Recall moves representatives and not units."""

    requirement = "MEM-015"
    killed_by = case("cost/paper", "cost/one-representative", "cost/teaching")

    def memory_cost(self, request: Request) -> Result:
        made = super().memory_cost(request)
        return {**made, "selected_bytes": made["selected_bytes"] * request["representatives"] // request["unit_rows"]}


class SurfaceOfChosen(Fault):
    """Only the chosen units' representatives are counted."""

    requirement = "MEM-015"
    killed_by = case("cost/paper", "cost/nothing-recalled")

    def memory_cost(self, request: Request) -> Result:
        made = super().memory_cost(request)
        chosen = min(request["selected_units"], request["units"])
        share = made["representative_bytes"] * chosen // max(1, request["units"])
        return {**made, "representative_bytes": share}


class TwiceKeys(Costed):
    """K and V are taken to be equally wide."""

    requirement = "MEM-015"
    killed_by = case("cost/widths-differ")

    def change(self, request: Request) -> Request:
        return {**request, "value_bytes": request["key_bytes"]}


class MoreThanThereAre(Fault):
    """As many units are moved as were asked for."""

    requirement = "MEM-015"
    killed_by = case("cost/more-than-there-are", "cost/no-units")

    def memory_cost(self, request: Request) -> Result:
        made = super().memory_cost(request)
        more = super().memory_cost({**request, "units": max(request["units"], request["selected_units"])})
        return {**made, "selected_bytes": more["selected_bytes"], "recalled_rows": more["recalled_rows"]}


class OneHead(Costed):
    """One K/V head is counted for the layer."""

    requirement = "MEM-015"
    killed_by = case("cost/paper", "cost/widths-differ")

    def change(self, request: Request) -> Request:
        return {**request, "kv_heads": 1}


class Decided(Costed):
    """A decision lacks one of its parts."""

    left_out: str = ""

    def change(self, request: Request) -> Request:
        return {**request, "decision_ms": {**request["decision_ms"], self.left_out: 0.0}}


class BoundariesAreFree(Decided):
    """Boundary work is no part of the decision."""

    requirement = "MEM-047"
    killed_by = case("cost/paper", "cost/boundaries-dominate")
    left_out = "boundary"


class LookupIsFree(Decided):
    """The lookup is no part of the decision."""

    requirement = "MEM-047"
    killed_by = case("cost/paper", "cost/lookup-alone")
    left_out = "lookup"


class ExpansionIsFree(Decided):
    """Member expansion is no part of the decision."""

    requirement = "MEM-047"
    killed_by = case("cost/paper", "cost/expansion-counts")
    left_out = "expansion"


class GatherIsFree(Decided):
    """The gather is no part of the decision."""

    requirement = "MEM-047"
    killed_by = case("cost/paper", "cost/boundaries-dominate")
    left_out = "gather"


class LongestPart(Fault):
    """A decision takes as long as its longest part."""

    requirement = "MEM-047"
    killed_by = case("cost/paper", "cost/boundaries-dominate", "cost/expansion-counts")

    def memory_cost(self, request: Request) -> Result:
        return {**super().memory_cost(request), "decision_ms": max(request["decision_ms"].values())}


FAULTS = found(globals())
