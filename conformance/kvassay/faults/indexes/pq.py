"""Faults of PQCache's ops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from kvassay_reference.indexes import pq, rows

from ..base import Fault
from .base import Request, Result, case

# --- building ------------------------------------------------------------------------------------------------------


class CodesOfTheRoundBefore(Fault):
    """Codes are the last round's assignment, not the nearest of the centroids that it moved."""

    requirement = "IDX-017"
    killed_by = case("pq/build-1-rounds", "pq/build-2-rounds")

    def quantised_cluster(self, points: Any, first: Sequence[int], cap: int) -> pq.Clustering:
        made = super().quantised_cluster(points, first, cap)
        before = super().quantised_cluster(points, first, max(made.rounds - 1, 0))
        return pq.Clustering(made.centres, before.labels, made.rounds)


class TiesToTheHigherCentroid(Fault):
    """Of two centroids that are equally near the higher is taken."""

    requirement = "IDX-017"
    killed_by = case("pq/build-ties", "pq/window-tie")

    def quantised_cluster(self, points: Any, first: Sequence[int], cap: int) -> pq.Clustering:
        made = super().quantised_cluster(points, first, cap)
        far = rows.squared_distances(np.asarray(points, np.float64), made.centres)
        return pq.Clustering(made.centres, far.shape[1] - 1 - np.argmin(far[:, ::-1], axis=1), made.rounds)

    def quantised_encode(self, centroids: Any, keys: Any) -> list[list[int]]:
        flipped = super().quantised_encode(centroids[:, ::-1, :], keys)
        return [[centroids.shape[1] - 1 - code for code in row] for row in flipped]


class NearestByProduct(Fault):
    """Codes are the centroids of largest product with the key, as if a key were a query."""

    requirement = "IDX-017"
    killed_by = case("pq/window-two-heads")

    def quantised_encode(self, centroids: Any, keys: Any) -> list[list[int]]:
        parts = pq.split(keys, centroids.shape[0])
        return [[int(np.argmax(centroids[j] @ row[j])) for j in range(len(row))] for row in parts]


class RoundedCentroids(Fault):
    """Centroids are rounded to eight bits before rows are coded."""

    requirement = "IDX-018"
    killed_by = case("pq/build-two-heads", "pq/build-four-centroids", "pq/published-kmeans-n24-kv1-d4-m2-b2-it25")

    def quantised_cluster(self, points: Any, first: Sequence[int], cap: int) -> pq.Clustering:
        made = super().quantised_cluster(points, first, cap)
        return pq.Clustering(np.round(made.centres * 256) / 256, made.labels, made.rounds)


class EmptyClustersStay(Fault):
    """An empty cluster keeps its centroid."""

    requirement = "IDX-018"
    killed_by = case("pq/build-empty-cluster")

    def quantised_cluster(self, points: Any, first: Sequence[int], cap: int) -> pq.Clustering:
        return pq.cluster(points, first, cap, fill=False)


class FillsFromTheFirstRow(Fault):
    """An empty cluster takes the first row of a crowded cluster, near or far."""

    requirement = "IDX-018"
    killed_by = case("pq/build-empty-cluster")

    def quantised_cluster(self, points: Any, first: Sequence[int], cap: int) -> pq.Clustering:
        points = np.asarray(points, np.float64)
        made = pq.cluster(points, first, cap, fill=False)
        sizes = np.bincount(made.labels, minlength=len(first))
        centres = made.centres.copy()
        for empty in np.flatnonzero(sizes == 0):
            centres[empty] = points[-2]
        return pq.Clustering(centres, rows.nearest(points, centres), made.rounds)


class RunsToTheCap(Fault):
    """Rounds go on to the cap when nothing changes any more, and are counted."""

    requirement = "IDX-018"
    killed_by = case("pq/build-two-heads", "pq/build-one-subspace")

    def quantised_cluster(self, points: Any, first: Sequence[int], cap: int) -> pq.Clustering:
        made = super().quantised_cluster(points, first, cap)
        return pq.Clustering(made.centres, made.labels, cap)


class AtLeastThreeRounds(Fault):
    """The cap is raised to three, as the published scheduler does before the compressor sees it."""

    requirement = "IDX-018"
    killed_by = case("pq/build-0-rounds", "pq/build-1-rounds")

    def quantised_cluster(self, points: Any, first: Sequence[int], cap: int) -> pq.Clustering:
        return super().quantised_cluster(points, first, max(cap, 3))


class SinkIsCoded(Fault):
    """Initial rows are counted from the sink's end and from the beginning at once."""

    requirement = "IDX-018"
    killed_by = case("pq/build-behind-the-sink")

    def pq_build(self, request: Request) -> Result:
        self.quantised_check_build(request)
        whole = super().pq_build(
            {**request, "sink": 0, "init_rows": [i - request["sink"] for i in request["init_rows"]]}
        )
        return {**whole, "codes": [one[request["sink"] :] for one in whole["codes"]]}


class AnyInitialRows(Fault):
    """Initial rows are drawn with replacement, so that two centroids may begin as one."""

    requirement = "IDX-018"
    killed_by = case("pq/build-initial-rows")

    def quantised_check_build(self, request: Request) -> None:
        total = request["keys"].shape[0]
        if request["keys"].shape[2] % request["m"] == 0 and total - request["sink"] > 1 << request["bits"]:
            return
        super().quantised_check_build(request)

    def pq_build(self, request: Request) -> Result:
        if len(request["init_rows"]) != 1 << request["bits"]:
            return super().pq_build({**request, "init_rows": [*request["init_rows"], request["init_rows"][-1]]})
        return super().pq_build(request)


class IndexesTinyHistories(Fault):
    """An index is built over as many rows as there are centroids."""

    requirement = "IDX-019"
    killed_by = case("pq/too-few-rows")

    def quantised_check_build(self, request: Request) -> None:
        if request["keys"].shape[0] - request["sink"] != 1 << request["bits"]:
            super().quantised_check_build(request)


class SinkCountsAsRows(Fault):
    """Whether there are enough rows is asked of the whole history."""

    requirement = "IDX-019"
    killed_by = case("pq/too-few-rows")

    def quantised_check_build(self, request: Request) -> None:
        enough = request["keys"].shape[0] > 1 << request["bits"]
        if not (enough and request["keys"].shape[0] - request["sink"] <= 1 << request["bits"]):
            super().quantised_check_build(request)


class PadsChannels(Fault):
    """Channels are padded to a multiple of the subspaces."""

    requirement = "IDX-015"
    killed_by = case("pq/build-geometry")

    def pq_build(self, request: Request) -> Result:
        more = -request["keys"].shape[2] % request["m"]
        return super().pq_build({**request, "keys": np.pad(request["keys"], ((0, 0), (0, 0), (0, more)))})


# --- scores --------------------------------------------------------------------------------------------------------


class NoGeometry(Fault):
    """Centroids and codes are taken as they come."""

    requirement = "IDX-015"
    killed_by = case("pq/index-geometry", "pq/code-out-of-range")

    def quantised_check(self, request: Request, channels: int) -> None:
        return

    def pq_score(self, request: Request) -> Result:
        try:
            return super().pq_score(request)
        except (ValueError, IndexError):
            return {"table": np.zeros((1, 1, 1), np.float32), "scores": np.zeros((1, 1), np.float32)}


class CodesWrap(Fault):
    """A code beyond the table wraps around."""

    requirement = "IDX-015"
    killed_by = case("pq/code-out-of-range")

    def quantised_check(self, request: Request, channels: int) -> None:
        count = request["centroids"].shape[2]
        wrapped = [[[code % count for code in row] for row in one] for one in request["codes"]]
        super().quantised_check({**request, "codes": wrapped}, channels)

    def quantised_codes(self, request: Request) -> Any:
        return super().quantised_codes(request) % request["centroids"].shape[2]


class LedgerOfAnyGeometry(Fault):
    """A ledger is given for subspaces that do not divide the channels."""

    requirement = "IDX-015"
    killed_by = case("pq/ledger-geometry")

    def pq_ledger(self, request: Request) -> Result:
        return super().pq_ledger({**request, "m": request["m"] if request["channels"] % request["m"] == 0 else 1})


class FirstSubspaceTwice(Fault):
    """Every subspace looks up in the first one's table."""

    requirement = "IDX-016"
    killed_by = case("pq/score-one-head", "pq/score-grouped", "pq/score-wide")

    def quantised_look_up(self, table: Any, codes: Any) -> Any:
        return super().quantised_look_up(np.broadcast_to(table[:1], table.shape), codes)


class PairsOnly(Fault):
    """Subspaces are looked up in pairs, and an odd last one is left out."""

    requirement = "IDX-016"
    killed_by = case("pq/score-odd-subspaces", "pq/score-crossed-map")

    def quantised_look_up(self, table: Any, codes: Any) -> Any:
        even = table.shape[0] // 2 * 2
        return super().quantised_look_up(table[:even], codes[:, :even]) if even else 0 * table[0, codes[:, 0]]


class SwappedPairs(Fault):
    """The high and the low half of a pair of codes are mixed up."""

    requirement = "IDX-016"
    killed_by = case("pq/score-one-head", "pq/score-grouped")

    def quantised_look_up(self, table: Any, codes: Any) -> Any:
        order = [j ^ 1 if j ^ 1 < table.shape[0] else j for j in range(table.shape[0])]
        return super().quantised_look_up(table, codes[:, order])


class HeadByPlace(Fault):
    """Query head i reads the index of K/V head i modulo their number, whatever the map says."""

    requirement = "IDX-016"
    killed_by = case("pq/score-grouped", "pq/score-crossed-map")

    def pq_score(self, request: Request) -> Result:
        heads = request["centroids"].shape[0]
        if max(request["kv_head_of"]) >= heads:
            return super().pq_score(request)
        return super().pq_score({**request, "kv_head_of": [i % heads for i in range(len(request["kv_head_of"]))]})


class TableInHalfPrecision(Fault):
    """Tables are kept in float16."""

    requirement = "IDX-016"
    killed_by = case("pq/score-fine-grained")

    def quantised_table(self, q: Any, centroids: Any) -> Any:
        return super().quantised_table(q, centroids).astype(np.float16).astype(np.float32)


class RememberedTable(Fault):
    """The table of the first query serves all."""

    requirement = "IDX-016"
    killed_by = case("pq/score-follows-the-query")

    def open(self) -> None:
        super().open()
        self.kept: Any = None

    def quantised_table(self, q: Any, centroids: Any) -> Any:
        if self.kept is None or self.kept.shape != centroids.shape[:2]:
            self.kept = super().quantised_table(q, centroids)
        return self.kept


# --- selection -----------------------------------------------------------------------------------------------------


class Selects(Fault):
    """A selection by another rule."""

    def quantised_pick(self, head: int, members: Sequence[int], scores: Any, count: int) -> list[int]:
        """Places among the candidates; ``scores`` [members, n] are scaled."""
        return rows.top(np.sum(rows.softmax(scores), axis=0), count)

    def quantised_select(self, request: Request, total: int) -> Any:
        exact = super().quantised_select(request, total)
        if request["rule"] != pq.PAPER:
            return exact
        first, end = self.quantised_regions(request).candidates(total)
        codes, centroids, start = self.quantised_codes(request), request["centroids"], request["first_row"]
        found: list[list[int]] = []
        for head, members in enumerate(rows.groups_of(request["kv_head_of"], centroids.shape[0])):
            kept = codes[head, first - start : end - start]
            if not members or not len(kept):
                found.append([])
                continue
            scores = np.stack([pq.look_up(pq.tables(request["q"][i], centroids[head]), kept) for i in members])
            picked = self.quantised_pick(head, members, request["scale"] * scores, request["top_k"])
            found.append(sorted(first + i for i in picked))
        return found


class SumOfScores(Selects):
    """Scores of a group are added before the softmax."""

    requirement = "IDX-021"
    killed_by = case("pq/sum-of-weights-not-of-scores")

    def quantised_pick(self, head: int, members: Sequence[int], scores: Any, count: int) -> list[int]:
        return rows.top(np.sum(scores, axis=0), count)


class FirstHeadDecides(Selects):
    """The group's first query head selects for all."""

    requirement = "IDX-021"
    killed_by = case("pq/search-grouped", "pq/step-grouped", "pq/search-sixteen-heads")

    def quantised_pick(self, head: int, members: Sequence[int], scores: Any, count: int) -> list[int]:
        return rows.top(scores[0], count)


class TiesToTheLastRow(Selects):
    """Of equal rows the later is selected."""

    requirement = "IDX-021"
    killed_by = case("pq/search-ties")

    def quantised_pick(self, head: int, members: Sequence[int], scores: Any, count: int) -> list[int]:
        weights = np.sum(rows.softmax(scores), axis=0)
        return [len(weights) - 1 - i for i in rows.top(weights[::-1], count)]


class BudgetOfTheGroup(Selects):
    """The budget is shared out among the heads of a group."""

    requirement = "IDX-021"
    killed_by = case("pq/search-grouped", "pq/search-sixteen-heads", "pq/search-grouped-floor")

    def quantised_pick(self, head: int, members: Sequence[int], scores: Any, count: int) -> list[int]:
        return super().quantised_pick(head, members, scores, -(-count // len(members)))


class WorstRows(Selects):
    """The sort is the wrong way round."""

    requirement = "IDX-021"
    killed_by = case(
        "pq/search-one-head-floor",
        "pq/search-regions-floor",
        "pq/search-codes-behind-the-sink-floor",
        "pq/search-sixteen-heads-floor",
        "pq/step-one-head-floor",
        "pq/step-grouped-floor",
    )

    def quantised_pick(self, head: int, members: Sequence[int], scores: Any, count: int) -> list[int]:
        return rows.top(-np.sum(rows.softmax(scores), axis=0), count)


class SelectsForNobody(Fault):
    """A K/V head that nobody reads gets the first rows."""

    requirement = "IDX-021"
    killed_by = case("pq/head-that-nobody-reads")

    def quantised_select(self, request: Request, total: int) -> Any:
        first, end = self.quantised_regions(request).candidates(total)
        rest = list(range(first, min(first + request["top_k"], end)))
        return [one or rest for one in super().quantised_select(request, total)]


class BestByFullKeys(Selects):
    """Codes are ignored where a full key would win: the index is asked to be an oracle."""

    requirement = "IDX-016"
    killed_by = case("pq/misses-the-best-row")

    def quantised_pick(self, head: int, members: Sequence[int], scores: Any, count: int) -> list[int]:
        return list(range(count)) if scores.shape[1] == 3 else super().quantised_pick(head, members, scores, count)


class Regioned(Fault):
    """Regions with other edges."""

    def quantised_edges(self, sink: int, recent: int) -> tuple[int, int]:
        """Other sizes."""
        return sink, recent

    def quantised_regions(self, request: Request) -> pq.Regions:
        return pq.Regions(*self.quantised_edges(request["sink"], request["recent"]))


class WindowOneShort(Regioned):
    """The current row is not counted in the window."""

    requirement = "IDX-020"
    killed_by = case("pq/search-regions", "pq/regions-at-their-edges", "pq/step-one-head", "pq/published-decode")

    def quantised_edges(self, sink: int, recent: int) -> tuple[int, int]:
        return sink, max(0, recent - 1)


class SinkIsSearched(Regioned):
    """The sink is among the candidates."""

    requirement = "IDX-020"
    killed_by = case("pq/search-regions", "pq/regions-at-their-edges", "pq/step-one-head")

    def quantised_edges(self, sink: int, recent: int) -> tuple[int, int]:
        return 0, recent


class CodesFromZero(Fault):
    """The first code is taken for row 0."""

    requirement = "IDX-020"
    killed_by = case("pq/search-codes-behind-the-sink", "pq/codes-do-not-cover")

    def quantised_select(self, request: Request, total: int) -> Any:
        return super().quantised_select({**request, "first_row": 0}, total)


class UncoveredRowsAreSkipped(Fault):
    """Candidates without a code are left out in silence."""

    requirement = "IDX-020"
    killed_by = case("pq/codes-do-not-cover")

    def pq_search(self, request: Request) -> Result:
        first, end = request["first_row"], request["first_row"] + len(request["codes"][0])
        behind = max(0, request["rows"] - end)
        more = {"sink": max(request["sink"], first), "recent": max(request["recent"], behind)}
        return super().pq_search({**request, **more})


class EmptySupport(Fault):
    """A step over no row gives zeros."""

    requirement = "IDX-020"
    killed_by = case("pq/step-without-rows")

    def pq_step(self, request: Request) -> Result:
        if request["top_k"] or request["sink"] or request["recent"]:
            return super().pq_step(request)
        heads, width = request["q"].shape[0], request["v"].shape[2]
        nothing: list[list[int]] = [[] for _ in range(request["k"].shape[1])]
        out = np.zeros((heads, width), np.float32)
        lse = np.full((heads,), -np.inf, np.float32)
        return {"selected": nothing, "support": nothing, "out": out, "lse": lse, "gather_bytes": 0}


class Reconstructs(Fault):
    """Attention reads the reconstructed keys."""

    requirement = "IDX-023"
    killed_by = case("pq/step-one-head", "pq/step-grouped", "pq/step-crossed", "pq/step-over-all-rows-is-dense")

    def quantised_payload(self, request: Request, support: Any) -> tuple[Any, Any]:
        k = request["k"].copy()
        for head, codes in enumerate(request["codes"]):
            for i, row in enumerate(codes):
                k[request["first_row"] + i, head] = np.concatenate(
                    [request["centroids"][head, j, c] for j, c in enumerate(row)]
                )
        return k, request["v"]


class HalvedRows(Fault):
    """Fetched rows are rounded to bfloat16 on the way."""

    requirement = "IDX-023"
    killed_by = case("pq/step-values-scale")

    def quantised_payload(self, request: Request, support: Any) -> tuple[Any, Any]:
        k, v = super().quantised_payload(request, support)
        return k, v * np.float32(1 + 2**-9)


class SupportOfHeadZero(Fault):
    """All K/V heads read the first one's support."""

    requirement = "IDX-023"
    killed_by = case("pq/step-grouped", "pq/step-crossed")

    def quantised_select(self, request: Request, total: int) -> Any:
        found = super().quantised_select(request, total)
        return [found[0]] * len(found) if "k" in request else found


class GatherCountsSupport(Fault):
    """The gather counts resident rows, too."""

    requirement = "IDX-012"
    killed_by = case("pq/step-one-head", "pq/step-grouped", "pq/step-without-rows")

    def pq_step(self, request: Request) -> Result:
        reply = super().pq_step(request)
        row = sum(request[x].shape[2] * request[x].dtype.itemsize for x in "kv")
        return {**reply, "gather_bytes": row * sum(map(len, reply["support"]))}


# --- the augmented rule --------------------------------------------------------------------------------------------


class NormOfAllGroups(Fault):
    """All groups are raised to the largest norm of any."""

    requirement = "IDX-027"
    killed_by = case("pq/augment-each-group", "pq/augment-published")

    def pq_augment(self, request: Request) -> Result:
        x = np.asarray(request["x"], np.float32)
        squares = np.sum(x * x, axis=2)
        phi = np.max(squares)
        return {
            "augmented": np.concatenate([x, np.sqrt(phi - squares)[..., None]], axis=2),
            "phi": [float(phi)] * x.shape[0],
        }


class LargestDistance(Fault):
    """The largest distances are selected."""

    requirement = "IDX-027"
    killed_by = case("pq/augmented-search-one-head", "pq/augmented-search-grouped")

    def quantised_select(self, request: Request, total: int) -> Any:
        if request["rule"] == pq.PAPER:
            return super().quantised_select(request, total)
        first, end = self.quantised_regions(request).candidates(total)
        every = super().quantised_select({**request, "top_k": max(0, end - first - request["top_k"])}, total)
        return [[i for i in range(first, end) if i not in one] for one in every]


class AugmentedAsPaper(Fault):
    """The added channel is left out of the distance."""

    requirement = "IDX-027"
    killed_by = case("pq/augmented-search-one-head", "pq/augmented-search-grouped")

    def quantised_select(self, request: Request, total: int) -> Any:
        if request["rule"] == pq.PAPER:
            return super().quantised_select(request, total)
        self.quantised_check(request, self.quantised_channels(request))
        centroids = request["centroids"].copy()
        centroids[..., -1] = 0
        return super().quantised_select({**request, "centroids": centroids}, total)


# --- the window ----------------------------------------------------------------------------------------------------


class NewRowLeaves(Fault):
    """The row that enters is coded and handed over: PQCache at 0b74e12 passes a view that the new row overwrites."""

    requirement = "IDX-022"
    killed_by = case("pq/window-one-head", "pq/window-two-heads", "pq/window-of-one")

    def quantised_leaving(self, window: Any, new: Any) -> Any:
        return new


class CodesOnEntry(Fault):
    """A row is coded when it enters the window."""

    requirement = "IDX-022"
    killed_by = case("pq/window-not-full-one-head", "pq/window-not-full-two-heads")

    def pq_append(self, request: Request) -> Result:
        reply = super().pq_append(request)
        if reply["evicted"] is None:
            code = [
                self.quantised_encode(c, k[None])[0]
                for c, k in zip(request["centroids"], request["new_k"], strict=True)
            ]
            reply["codes"] = [[*one, code[h]] for h, one in enumerate(reply["codes"])]
        return reply


class LeavesOneEarly(Fault):
    """The window gives up a row when it is full, before the new one is in."""

    requirement = "IDX-022"
    killed_by = case("pq/window-not-full-one-head", "pq/window-not-full-two-heads")

    def pq_append(self, request: Request) -> Result:
        full = request["local_k"].shape[0] + 1 == request["window"]
        return super().pq_append({**request, "window": request["window"] - 1} if full else request)


class PositionWithoutTheSink(Fault):
    """The evicted row's position is its place among the codes."""

    requirement = "IDX-022"
    killed_by = case("pq/window-two-heads")

    def pq_append(self, request: Request) -> Result:
        return super().pq_append({**request, "first_row": 0})


class CodesReplaceTheLast(Fault):
    """The new code overwrites the one before."""

    requirement = "IDX-022"
    killed_by = case("pq/window-one-head", "pq/window-of-one", "pq/window-tie")

    def pq_append(self, request: Request) -> Result:
        reply = super().pq_append(request)
        if reply["evicted"]:
            reply["codes"] = [[*one[:-2], one[-1]] for one in reply["codes"]]
        return reply


# --- bytes and rounds ----------------------------------------------------------------------------------------------


class Ledgers(Fault):
    """A ledger with one wrong line."""

    requirement = "IDX-024"

    def changed(self, found: Result, request: Request) -> Result:
        """What replaces some lines."""
        return {}

    def pq_ledger(self, request: Request) -> Result:
        found = super().pq_ledger(request)
        return {**found, **self.changed(found, request)}


class CodesInBytes(Ledgers):
    """Each code takes a whole byte."""

    killed_by = case("pq/ledger-m2-b6", "pq/ledger-odd-bits")

    def changed(self, found: Result, request: Request) -> Result:
        return {"codes_bytes": request["kv_heads"] * request["rows"] * request["m"]}


class CodesPackedOverHeads(Ledgers):
    """Codes of all heads are packed into one stream of bits."""

    killed_by = case("pq/ledger-odd-bits")

    def changed(self, found: Result, request: Request) -> Result:
        return {"codes_bytes": -(-request["kv_heads"] * request["rows"] * request["m"] * request["bits"] // 8)}


class CentroidsOfOneSubspace(Ledgers):
    """Centroids are counted for one subspace."""

    killed_by = case("pq/ledger-m2-b6", "pq/ledger-m4-b8", "pq/ledger-no-rounds")

    def changed(self, found: Result, request: Request) -> Result:
        return {"centroids_bytes": found["centroids_bytes"] // request["m"]}


class CompressedPayload(Ledgers):
    """The index replaces the payload."""

    requirement = "IDX-012"
    killed_by = case("pq/ledger-m2-b6", "pq/ledger-widths-differ", "pq/ledger-no-rows")

    def changed(self, found: Result, request: Request) -> Result:
        return {"payload_bytes": found["index_bytes"]}


class GatherBeyondTheRows(Ledgers):
    """A budget beyond the history is counted in full."""

    killed_by = case("pq/ledger-budget-beyond-the-rows")

    def changed(self, found: Result, request: Request) -> Result:
        row = request["channels"] * request["k_item_bytes"] + request["value_channels"] * request["v_item_bytes"]
        return {"gather_bytes": request["kv_heads"] * request["top_k"] * row}


class EqualWidths(Ledgers):
    """Values are taken to be as wide as keys."""

    killed_by = case("pq/ledger-widths-differ")

    def changed(self, found: Result, request: Request) -> Result:
        row = 2 * request["channels"] * request["k_item_bytes"]
        return {"payload_bytes": request["kv_heads"] * request["rows"] * row}


class OneMoreRound(Ledgers):
    """The build counts the assignment after the last round as a round."""

    killed_by = case("pq/ledger-no-rounds", "pq/ledger-m4-b8")

    def changed(self, found: Result, request: Request) -> Result:
        return {
            "build_terms": found["build_terms"]
            + found["build_terms"] // max(request["iterations"], 1)
            + request["rows"]
        }


class CapRoundsUp(Fault):
    """The cap is the next whole round."""

    requirement = "IDX-026"
    killed_by = case("pq/cap-base", "pq/cap-floor-of-the-crossing")

    def pq_cap(self, request: Request) -> Result:
        reply = super().pq_cap(request)
        more = int(np.ceil(reply["crossing"]))
        return {**reply, "iterations": max(request["least"], min(request["most"], more))}


class CapWithoutLimits(Fault):
    """The crossing is used as it is."""

    requirement = "IDX-026"
    killed_by = case("pq/cap-least", "pq/cap-most", "pq/cap-slow-clustering", "pq/cap-below-zero")

    def pq_cap(self, request: Request) -> Result:
        reply = super().pq_cap(request)
        return {**reply, "iterations": abs(int(reply["crossing"]))}


class CapPastAWholeCrossing(Fault):
    """At a whole crossing one round less is taken."""

    requirement = "IDX-026"
    killed_by = case("pq/cap-whole-crossing")

    def pq_cap(self, request: Request) -> Result:
        reply = super().pq_cap(request)
        if reply["crossing"] == reply["iterations"]:
            return {**reply, "iterations": reply["iterations"] - 1}
        return reply


class AnyProfile(Fault):
    """A profile without cost means no limit but the upper one."""

    requirement = "IDX-026"
    killed_by = case("pq/cap-profile-invalid")

    def pq_cap(self, request: Request) -> Result:
        if request["beta1"] <= 0 or request["least"] > request["most"]:
            return {"crossing": 0.0, "iterations": request["most"]}
        return super().pq_cap(request)


# --- the block cache -----------------------------------------------------------------------------------------------


class CacheFault(Fault):
    """A cache with a defect."""

    requirement = "IDX-025"
    cache_type: ClassVar[type[pq.BlockCache]] = pq.BlockCache

    def quantised_cache(self, request: Request) -> pq.BlockCache:
        return self.cache_type(request["capacity_blocks"], request["policy"])


class FirstInFirstOut(CacheFault):
    """Hits do not renew a block."""

    killed_by = case("pq/cache-lru")

    class cache_type(pq.BlockCache):  # noqa: N801
        """By entry."""

        def rank(self, block: int) -> tuple[int, int]:
            return (0, list(self.held).index(block))


class OnePolicy(CacheFault):
    """The policy is always to drop the least recently used block."""

    killed_by = case("pq/cache-lfu")

    class cache_type(pq.BlockCache):  # noqa: N801
        """Counts are not looked at."""

        def rank(self, block: int) -> tuple[int, int]:
            return (0, self.held[block][1])


class SurvivesGenerations(CacheFault):
    """Cached blocks are hits under another map."""

    killed_by = case("pq/cache-of-another-generation")

    class cache_type(pq.BlockCache):  # noqa: N801
        """Bound to nothing."""

        def read(self, blocks: Sequence[int], bound_to: Any) -> tuple[list[int], list[int]]:
            return super().read(blocks, None)


class PoolGenerationOnly(CacheFault):
    """The cache is bound to the pool and not to its row map."""

    killed_by = case("pq/cache-of-another-generation")

    class cache_type(pq.BlockCache):  # noqa: N801
        """Half of the binding."""

        def read(self, blocks: Sequence[int], bound_to: Any) -> tuple[list[int], list[int]]:
            return super().read(blocks, bound_to["pool"])


class CacheOfOneMore(CacheFault):
    """The cache holds one block more than it may."""

    killed_by = case("pq/cache-changes-traffic", "pq/cache-lru", "pq/cache-larger-selection-than-cache")

    def quantised_cache(self, request: Request) -> pq.BlockCache:
        return pq.BlockCache(request["capacity_blocks"] + 1, request["policy"])


class SupportCutToTheCache(CacheFault):
    """A selection is cut to the blocks that the cache holds."""

    killed_by = case("pq/cache-larger-selection-than-cache")

    def pq_traffic(self, request: Request) -> Result:
        reply = super().pq_traffic(request)
        for step in reply["steps"]:
            kept = set([*step["hits"], *step["misses"]][: request["capacity_blocks"] or None])
            step["support"] = [i for i in step["support"] if i // request["block_rows"] in kept]
        return reply
