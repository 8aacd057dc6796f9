"""Faults of recorded runs: from ids to rows, recall and mass."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import numpy as np
from array_api_compat import array_namespace
from kvassay_reference.quality import runs
from kvassay_reference.quality.losses import Masses
from kvassay_reference.quality.runs import Chain, Run
from kvassay_reference.selectors.rows import softmax

from ..base import Fault, found
from .base import Request, Result, case

# --- recorded runs --------------------------------------------------------------------------------------------------


class ScaleForgotten(Fault):
    """Scores are plain products of query and keys, as in a harness that records them before the scale."""

    requirement = "QLT-001"
    killed_by = case("forms/both", "forms/retained-mass", "forms/omitted-mass", "real/rows")

    def qlt_said(self, said: Request) -> Result:
        made = super().qlt_said(said)
        return {**made, "scale": 1.0} if "scale" in made else made


class LogitsScaledAgain(Fault):
    """Recorded scores are divided by the root of the value's width, although they were scaled."""

    requirement = "QLT-001"
    killed_by = case("forms/both", "forms/retained-mass", "chain/rows", "chain/pages")

    def qlt_said(self, said: Request) -> Result:
        made = super().qlt_said(said)
        return {**made, "logits": made["logits"] * 0.7071} if "logits" in made else made


class CandidatesRequired(Fault):
    """A run without candidates counts as one that found nothing."""

    requirement = "QLT-001"
    killed_by = case("chain/no-candidates-recorded")

    def qlt_counts(self, one: Chain) -> Result:
        made = super().qlt_counts(one)
        return made if set(one.returned) != set(one.chosen) else {**made, "candidates": 0, "distinct_candidates": 0}


class HeadsInBlocks(Fault):
    """The head map is taken to be in blocks, whatever it says."""

    requirement = "QLT-002"
    killed_by = case("arrays/a-query-head-without-a-map", "arrays/a-head-that-is-not-there")

    def qlt_said(self, said: Request) -> Result:
        made = super().qlt_said(said)
        queries = made["logits" if "logits" in made else "q"].shape[0]
        return {**made, "kv_head_of": [query * made["kv_heads"] // queries for query in range(queries)]}


class NegativeHeadsWrap(Fault):
    """A K/V head below zero counts from the end, as an index does."""

    requirement = "QLT-002"
    killed_by = case("arrays/a-head-below-zero")

    def qlt_said(self, said: Request) -> Result:
        made = super().qlt_said(said)
        return {**made, "kv_head_of": [head % made["kv_heads"] if head < 0 else head for head in made["kv_head_of"]]}


class ListsTruncated(Fault):
    """Lists beyond the readers are dropped."""

    requirement = "QLT-002"
    killed_by = case("arrays/one-list-too-many")

    def qlt_said(self, said: Request) -> Result:
        made = super().qlt_said(said)
        wanted = {"all": 1, "kv_head": made["kv_heads"], "query_head": len(made["kv_head_of"])}[made["per"]]
        return {**made, "selected": made["selected"][:wanted]}


class IntegersCast(Fault):
    """Integer tensors are taken as floats."""

    requirement = "QLT-002"
    killed_by = case("arrays/integers-as-scores", "arrays/integers-as-values")

    def qlt_said(self, said: Request) -> Result:
        made = super().qlt_said(said)
        integers = {name: one for name, one in made.items() if isinstance(one, np.ndarray) and one.dtype.kind == "i"}
        return {**made, **{name: one.astype(np.float32) for name, one in integers.items()}}


class RowsCut(Fault):
    """Values of other rows are cut, or repeated, to the rows that have scores."""

    requirement = "QLT-002"
    killed_by = case("arrays/values-of-other-rows")

    def qlt_said(self, said: Request) -> Result:
        made = super().qlt_said(said)
        if "v" in made and "logits" in made and made["v"].ndim == 3:
            rows = made["logits"].shape[1] if made["logits"].ndim == 2 else made["v"].shape[0]
            made["v"] = made["v"][np.arange(rows) % made["v"].shape[0]]
        return made


class HiddenRowsCount(Fault):
    """Padding takes its share of the softmax: its score is set to zero and not left out."""

    requirement = "QLT-003"
    killed_by = case("scores/hidden-rows-are-not-looked-at", "scores/hidden-best-row", "units/hidden-rows-of-a-page")

    def qlt_masses(self, run: Run, head: int, support: Sequence[int]) -> Masses:
        made = super().qlt_masses(run, head, support)
        scores = np.asarray(self.outward(run.scores[head, :]), np.float64)
        padded = len(run.said.get("hidden", ())) * np.exp(-scores.max())
        part = np.exp(scores - scores.max()).sum()
        return Masses(made.retained * part / (part + padded), made.omitted * part / (part + padded))


class HiddenByRow(Fault):
    """Hidden positions are taken for row numbers."""

    requirement = "QLT-003"
    killed_by = case("scores/hidden-rows-are-not-looked-at", "units/hidden-rows-of-a-page")

    def qlt_said(self, said: Request) -> Result:
        made = super().qlt_said(said)
        return {**made, "hidden": [one + made["first_position"] for one in made.get("hidden", ())]}


class InfinityTolerated(Fault):
    """Minus infinity is taken for a mask."""

    requirement = "QLT-003"
    killed_by = case("scores/minus-infinity")

    def qlt_said(self, said: Request) -> Result:
        made = super().qlt_said(said)
        if "logits" in made and made["logits"].dtype.kind == "f":
            made["logits"] = np.where(np.isneginf(made["logits"]), np.float32(-1e30), made["logits"])
        return made


class NaNBecomesZero(Fault):
    """A score that is no number is taken as zero."""

    requirement = "QLT-003"
    killed_by = case("scores/nan", "scores/nan-of-the-last-head")

    def qlt_said(self, said: Request) -> Result:
        made = super().qlt_said(said)
        if "logits" in made and made["logits"].dtype.kind == "f":
            made["logits"] = np.nan_to_num(made["logits"], nan=0.0, posinf=np.inf, neginf=-np.inf)
        return made


class Rewritten(Fault):
    """A run whose units are rewritten before it is judged."""

    def qlt_unit(self, unit: Request, said: Request) -> Request:
        """Other units."""
        return unit

    def qlt_said(self, said: Request) -> Result:
        made = super().qlt_said(said)
        return {**made, "unit": self.qlt_unit(made["unit"], made)}


class Expanding(Fault):
    """The rows of the selected units are others."""

    def qlt_expanded(self, run: Run, made: Chain) -> Collection[int]:
        """Rows of the selected units."""
        return made.expanded

    def qlt_chain(self, run: Run, which: int) -> Chain:
        made = super().qlt_chain(run, which)
        expanded = tuple(sorted(set(self.qlt_expanded(run, made)) & set(run.legal)))
        persistent = run.said["persistent"]
        return made._replace(
            expanded=expanded, repeated=len({*expanded} & {*persistent}), support=runs.union(expanded, persistent)
        )


class PagesFromZero(Expanding):
    """Page 0 begins at position 0, wherever the history begins."""

    requirement = "QLT-004"
    killed_by = case("units/pages-count-from-the-first-row", "units/last-page-ends-with-the-rows")

    def qlt_expanded(self, run: Run, made: Chain) -> Collection[int]:
        size = run.said["unit"].get("rows", 0)
        return [row for row in run.legal if row // size in made.chosen] if size else made.expanded


class LastPageOmitted(Expanding):
    """A page that is not full does not exist, as where pages are counted by division."""

    requirement = "QLT-004"
    killed_by = case(
        "units/last-page-ends-with-the-rows", "units/one-page-holds-everything", "real/pages", "large/pages"
    )

    def qlt_expanded(self, run: Run, made: Chain) -> Collection[int]:
        size = run.said["unit"].get("rows", 1)
        whole = run.first + (run.end - run.first) // size * size
        return [one for one in made.expanded if one < whole]


class SpansIncludeTheirEnd(Expanding):
    """A span's end belongs to it."""

    requirement = "QLT-004"
    killed_by = case("units/spans")

    def qlt_expanded(self, run: Run, made: Chain) -> Collection[int]:
        spans = run.said["unit"].get("spans", ())
        return {*made.expanded, *(spans[one][1] for one in made.chosen if spans)}


class OverlapTolerated(Rewritten):
    """A row in two clusters belongs to the first of them."""

    requirement = "QLT-004"
    killed_by = case("units/overlapping-clusters", "units/a-row-twice-in-a-cluster")

    def qlt_unit(self, unit: Request, said: Request) -> Request:
        if unit["kind"] != "cluster":
            return unit
        sets = []
        for one in unit["members"]:
            before = [{p for other in one[:i] for p in other} for i in range(len(one))]
            sets.append([[p for p in dict.fromkeys(rows) if p not in before[i]] for i, rows in enumerate(one)])
        return {**unit, "members": sets}


class FirstClustersForAll(Rewritten):
    """Every list takes the clusters of the first one."""

    requirement = "QLT-004"
    killed_by = case("units/clusters-of-each-list")

    def qlt_unit(self, unit: Request, said: Request) -> Request:
        return {**unit, "members": unit["members"][:1]} if unit["kind"] == "cluster" else unit


class UnitsBeyondClipped(Rewritten):
    """Rows of a unit that do not exist are dropped silently."""

    requirement = "QLT-004"
    killed_by = case("units/a-cluster-beyond-the-rows", "units/a-cluster-before-the-rows")

    def qlt_unit(self, unit: Request, said: Request) -> Request:
        if unit["kind"] != "cluster":
            return unit
        first, end = said["first_position"], said["first_position"] + runs.history_rows(said)
        kept = [[[p for p in members if first <= p < end] for members in one] for one in unit["members"]]
        return {**unit, "members": kept}


class HiddenRowsExpanded(Fault):
    """Hidden rows of a page are counted as expanded."""

    requirement = "QLT-004"
    killed_by = case("units/hidden-rows-of-a-page")

    def qlt_counts(self, one: Chain) -> Result:
        made = super().qlt_counts(one)
        return {**made, "expanded": made["expanded"] + self.qlt_hidden * (made["selected"] > 0)}

    qlt_hidden = 0

    def qlt_run(self, said: Request) -> Run:
        self.qlt_hidden = len(said.get("hidden", ())) if said["unit"]["kind"] != "row" else 0
        return super().qlt_run(said)


class Lenient(Fault):
    """Ids are cleaned up before the run is judged."""

    def qlt_ids(self, ids: list[int], said: Request, which: int) -> list[int]:
        """The ids that are left."""
        return ids

    def qlt_said(self, said: Request) -> Result:
        made = super().qlt_said(said)
        return {**made, "selected": [self.qlt_ids(list(ids), made, i) for i, ids in enumerate(made["selected"])]}


class DuplicatesDropped(Lenient):
    """A unit that is selected twice is selected once."""

    requirement = "QLT-005"
    killed_by = case("selected/row-selected-twice", "selected/page-selected-twice")

    def qlt_ids(self, ids: list[int], said: Request, which: int) -> list[int]:
        return list(dict.fromkeys(ids))


class StrangersDropped(Lenient):
    """A selected unit that is no candidate is dropped."""

    requirement = "QLT-005"
    killed_by = case("selected/row-that-was-no-candidate", "selected/page-that-was-no-candidate")

    def qlt_ids(self, ids: list[int], said: Request, which: int) -> list[int]:
        listed = said["candidates"][which] if "candidates" in said else ids
        return [one for one in ids if one in listed]


class StrangersBecomeCandidates(Fault):
    """What was selected counts as a candidate, whatever the search returned."""

    requirement = "QLT-005"
    killed_by = case("selected/row-that-was-no-candidate", "selected/page-that-was-no-candidate")

    def qlt_said(self, said: Request) -> Result:
        made = super().qlt_said(said)
        if "candidates" not in made or len(made["candidates"]) != len(made["selected"]):
            return made
        pairs = zip(made["candidates"], made["selected"], strict=True)
        return {**made, "candidates": [[*a, *(one for one in b if one not in a)] for a, b in pairs]}


class IdsClamped(Lenient):
    """An id beyond the last is the last."""

    requirement = "QLT-005"
    killed_by = case("selected/unknown-page")

    def qlt_ids(self, ids: list[int], said: Request, which: int) -> list[int]:
        if said["unit"]["kind"] != "page":
            return ids
        last = -(-runs.history_rows(said) // said["unit"]["rows"]) - 1
        return [min(one, last) for one in ids]

    def qlt_said(self, said: Request) -> Result:
        made = super().qlt_said(said)
        if "candidates" in made and len(made["candidates"]) == len(made["selected"]):
            made["candidates"] = [self.qlt_ids(list(ids), made, i) for i, ids in enumerate(made["candidates"])]
        return made


class HiddenSelected(Fault):
    """Hidden rows may be selected: they are dropped."""

    requirement = "QLT-005"
    killed_by = case("selected/hidden-row", "selected/hidden-candidate")

    def qlt_said(self, said: Request) -> Result:
        made = super().qlt_said(said)
        if made["unit"]["kind"] == "row":
            hidden = set(made.get("hidden", ()))
            for name in ("candidates", "selected"):
                if name in made:
                    made[name] = [[one for one in ids if one not in hidden] for ids in made[name]]
        return made


class PersistentUnchecked(Fault):
    """Persistent rows that cannot be read are dropped."""

    requirement = "QLT-005"
    killed_by = case(
        "selected/hidden-persistent-row",
        "selected/persistent-row-beyond-the-rows",
        "selected/persistent-row-before-the-rows",
    )

    def qlt_run(self, said: Request) -> Run:
        run = super().qlt_run(said)
        kept = [one for one in said["persistent"] if one in set(run.legal)]
        return replace(run, said={**run.said, "persistent": kept})


class CandidatesDeduplicated(Fault):
    """Candidates are counted after duplicates were removed."""

    requirement = "QLT-006"
    killed_by = case("chain/rows", "chain/candidates-beyond-the-selection")

    def qlt_counts(self, one: Chain) -> Result:
        made = super().qlt_counts(one)
        return {**made, "candidates": made["distinct_candidates"]}


class CandidatesNotDeduplicated(Fault):
    """Distinct candidates are all of them."""

    requirement = "QLT-006"
    killed_by = case("chain/rows", "chain/candidates-beyond-the-selection")

    def qlt_counts(self, one: Chain) -> Result:
        made = super().qlt_counts(one)
        return {**made, "distinct_candidates": made["candidates"]}


class PersistentRowTwice(Fault):
    """A row that is selected and persistent stands in the support twice, as two buffers put end to end do."""

    requirement = "QLT-007"
    killed_by = case("chain/clusters-share-a-persistent-row", "order/of-ids")

    def qlt_counts(self, one: Chain) -> Result:
        made = super().qlt_counts(one)
        return {**made, "support": sorted([*one.support, *one.support[:1]]) if one.repeated else made["support"]}


class WithoutPersistentRows(Fault):
    """The support is what was selected."""

    requirement = "QLT-007"
    killed_by = case("chain/rows", "chain/persistent-rows-alone", "chain/pages")

    def qlt_chain(self, run: Run, which: int) -> Chain:
        made = super().qlt_chain(run, which)
        return made._replace(support=made.expanded)


class PersistentRowsExpanded(Fault):
    """Persistent rows count as rows of the selected units."""

    requirement = "QLT-007"
    killed_by = case("chain/rows", "chain/pages", "chain/persistent-rows-alone")

    def qlt_counts(self, one: Chain) -> Result:
        made = super().qlt_counts(one)
        return {**made, "expanded": len(one.support)}


class OverlapNotCounted(Fault):
    """Rows in both sets are not told."""

    requirement = "QLT-007"
    killed_by = case("chain/clusters-share-a-persistent-row")

    def qlt_counts(self, one: Chain) -> Result:
        return {**super().qlt_counts(one), "repeated": 0}


class SupportInOrderOfReading(Fault):
    """Persistent rows stand before the selected ones."""

    requirement = "QLT-007"
    killed_by = case("recall/persistent-rows-count-for-the-support", "order/of-ids")

    def qlt_counts(self, one: Chain) -> Result:
        made = super().qlt_counts(one)
        rest = [row for row in one.support if row not in one.expanded]
        return {**made, "support": [*rest, *one.expanded]}


class ArrivedRowsSuffice(Fault):
    """Attention may go on with the rows that have arrived."""

    requirement = "QLT-008"
    killed_by = case("attended/row-missing", "attended/persistent-row-missing")

    def qlt_said(self, said: Request) -> Result:
        made = super().qlt_said(said)
        return {name: value for name, value in made.items() if name != "attended"}


class ExtraRowsTolerated(Fault):
    """A row that nobody selected may be attended to: a page brings it along."""

    requirement = "QLT-008"
    killed_by = case("attended/row-too-many")

    def qlt_chain(self, run: Run, which: int) -> Chain:
        if "attended" not in run.said:
            return super().qlt_chain(run, which)
        made = runs.chain(replace(run, said={k: v for k, v in run.said.items() if k != "attended"}), which)
        read = [one for one in run.said["attended"][which] if one in made.support]
        runs.check_attended(read, made.support)
        return made


class RereadTolerated(Fault):
    """A row that attention reads twice is as good as one that it reads once."""

    requirement = "QLT-008"
    killed_by = case("attended/row-twice")

    def qlt_said(self, said: Request) -> Result:
        made = super().qlt_said(said)
        if "attended" in made:
            made["attended"] = [list(dict.fromkeys(one)) for one in made["attended"]]
        return made


class ChainKept(Fault):
    """The rows of a list are kept by the selector's name, and not found again for the next run."""

    requirement = "QLT-007"
    killed_by = case("units/pages-count-from-the-first-row", "units/clusters-of-each-list", "heads/one-list-for-all")
    qlt_kept: Mapping[tuple[str, int], Chain] = MappingProxyType({})

    def open(self) -> None:
        super().open()
        self.qlt_kept = {}

    def qlt_chain(self, run: Run, which: int) -> Chain:
        name = (run.said["method"], which)
        self.qlt_kept = {name: super().qlt_chain(run, which), **self.qlt_kept}
        return self.qlt_kept[name]


class SelectionInOrderOfIds(Fault):
    """A search's ids are taken to be in the order of the partition: unit i is the i-th selected."""

    requirement = "QLT-004"
    killed_by = case("units/spans")

    def qlt_said(self, said: Request) -> Result:
        made = super().qlt_said(said)
        if made["unit"]["kind"] == "span":
            made["unit"] = {**made["unit"], "spans": sorted(made["unit"]["spans"])}
        return made


# --- recall and mass ------------------------------------------------------------------------------------------------


class TiesToTheHigher(Fault):
    """Of equal scores the higher positions are in the reference, as after a sort from the back."""

    requirement = "QLT-009"
    killed_by = case("recall/ties-go-to-the-lower-position")

    def qlt_top(self, run: Run, head: int, count: int) -> Sequence[int]:
        scores = np.asarray(self.outward(run.scores[head, :]))[::-1]
        order = np.argsort(-scores, kind="stable")[:count]
        return sorted(run.legal[len(run.legal) - 1 - int(i)] for i in order)


class ReferenceByMagnitude(Fault):
    """The reference is of the largest absolute scores."""

    requirement = "QLT-009"
    killed_by = case("real/rows", "heads/lists-by-kv-head", "heads/one-list-for-all")

    def qlt_top(self, run: Run, head: int, count: int) -> Sequence[int]:
        xp = array_namespace(run.scores)
        return super().qlt_top(replace(run, scores=xp.abs(run.scores)), head, count)


class ReferenceOfTheFirstHead(Fault):
    """One reference serves all query heads."""

    requirement = "QLT-009"
    killed_by = case("heads/lists-by-kv-head", "heads/lists-by-query-head", "heads/one-list-for-all", "real/rows")

    def qlt_top(self, run: Run, head: int, count: int) -> Sequence[int]:
        return super().qlt_top(run, 0, count)


class ReferenceOfRows(Fault):
    """The reference names rows and not positions."""

    requirement = "QLT-009"
    killed_by = case("heads/lists-by-kv-head", "scores/hidden-best-row")

    def qlt_top(self, run: Run, head: int, count: int) -> Sequence[int]:
        legal = tuple(range(len(run.legal)))
        return super().qlt_top(replace(run, legal=legal), head, count)


class ReferenceAmongCandidates(Fault):
    """The reference is taken among the candidates: the selector agrees with itself."""

    requirement = "QLT-010"
    killed_by = case("chain/rows", "recall/persistent-rows-count-for-the-support")

    def qlt_candidate_recall(self, one: Chain, top: Collection[int]) -> float:
        return 1.0 if one.returned else 0.0


class RecallOverCandidates(Fault):
    """Candidate recall is a precision: its denominator is the candidates."""

    requirement = "QLT-010"
    killed_by = case("chain/candidates-beyond-the-selection", "recall/reference-of-one-row")

    def qlt_candidate_recall(self, one: Chain, top: Collection[int]) -> float:
        return len(set(one.returned) & set(top)) / max(1, len(set(one.returned)))


class RecallOfTheSelected(Fault):
    """Candidate recall is that of what was selected."""

    requirement = "QLT-010"
    killed_by = case("chain/candidates-beyond-the-selection", "recall/reference-of-one-row")

    def qlt_candidate_recall(self, one: Chain, top: Collection[int]) -> float:
        return runs.recall(one.chosen, top)


class CandidateRecallCountsDuplicates(Fault):
    """A candidate that stands twice is found twice."""

    requirement = "QLT-010"
    killed_by = case("chain/rows")

    def qlt_candidate_recall(self, one: Chain, top: Collection[int]) -> float:
        return min(1.0, sum(row in top for row in one.returned) / len(top))


class PageIdsAsRows(Fault):
    """Ids of units are intersected with positions."""

    requirement = "QLT-010"
    killed_by = case(
        "recall/candidate-recall-of-pages",
        "recall/candidate-recall-of-clusters",
        "recall/candidate-recall-of-spans",
        "recall/candidate-recall-of-pages-of-one-row",
    )

    def qlt_check_candidate_recall(self, run: Run, asked: bool) -> None:
        return


class PagesOfOneRowAreRows(Fault):
    """Pages of one row have a candidate recall, although their ids begin at 0."""

    requirement = "QLT-010"
    killed_by = case("recall/candidate-recall-of-pages-of-one-row")

    def qlt_check_candidate_recall(self, run: Run, asked: bool) -> None:
        super().qlt_check_candidate_recall(run, asked and run.said["unit"].get("rows") != 1)


class SupportRecallOfUnits(Fault):
    """Support recall leaves persistent rows out."""

    requirement = "QLT-011"
    killed_by = case("recall/persistent-rows-count-for-the-support")

    def qlt_support_recall(self, one: Chain, top: Collection[int]) -> float:
        return runs.recall(one.expanded, top)


class RecallOverTheAskedNumber(Fault):
    """Recall is over the number that was asked for, also where there are fewer rows."""

    requirement = "QLT-011"
    killed_by = case("recall/reference-as-long-as-the-history")

    def qlt_support_of(self, run: Run, head: int, lists: Sequence[Chain], request: Request) -> Result:
        made = super().qlt_support_of(run, head, lists, request)
        return {**made, "support_recall": made["support_recall"] * len(made["top"]) / request["top_k"]}


class RecallIsMass(Fault):
    """Support recall is reported as the retained mass."""

    requirement = "QLT-011"
    killed_by = case("chain/rows", "chain/pages", "chain/clusters-share-a-persistent-row")

    def qlt_support_of(self, run: Run, head: int, lists: Sequence[Chain], request: Request) -> Result:
        made = super().qlt_support_of(run, head, lists, request)
        return {**made, "support_recall": made["retained_mass"]}


class OmittedIsTheComplement(Fault):
    """Omitted mass is one less the retained mass, in float32."""

    requirement = "QLT-012"
    killed_by = case("mass/small-rest")

    def qlt_masses(self, run: Run, head: int, support: Sequence[int]) -> Masses:
        made = super().qlt_masses(run, head, support)
        return Masses(made.retained, float(np.float32(1.0) - np.float32(made.retained)))


class RetainedIsTheComplement(Fault):
    """Retained mass is one less the omitted mass, in float32."""

    requirement = "QLT-012"
    killed_by = case("mass/small-part-kept")

    def qlt_masses(self, run: Run, head: int, support: Sequence[int]) -> Masses:
        made = super().qlt_masses(run, head, support)
        return Masses(float(np.float32(1.0) - np.float32(made.omitted)), made.omitted)


class WeightsInBfloat16(Fault):
    """Softmax weights are rounded to eight bits before they are summed."""

    requirement = "QLT-012"
    killed_by = case("chain/rows", "real/rows", "mass/small-rest")

    def qlt_masses(self, run: Run, head: int, support: Sequence[int]) -> Masses:
        weights = np.asarray(self.outward(softmax(run.scores[head, :])), np.float32)
        bits = weights.view(np.uint32)
        rounded = ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)
        inside = run.indices_of(support)
        return Masses(float(rounded[inside].sum()), float(np.delete(rounded, inside).sum()))


class FastExponential(Fault):
    """Weights come from an approximate exponential with fifteen good bits, whose error changes from row to row."""

    requirement = "QLT-012"
    killed_by = case("chain/rows", "chain/pages")

    def qlt_masses(self, run: Run, head: int, support: Sequence[int]) -> Masses:
        made = super().qlt_masses(run, head, support)
        return Masses(made.retained * (1 + 2.0**-14), made.omitted * (1 - 2.0**-14))


class ExponentialsUnshifted(Fault):
    """Exponentials are taken without the largest score, in float32."""

    requirement = "QLT-020"
    killed_by = case("mass/large-scores", "shift/scores-moved-up", "shift/scores-moved-down")

    def qlt_masses(self, run: Run, head: int, support: Sequence[int]) -> Masses:
        with np.errstate(over="ignore", invalid="ignore"):
            weights = np.exp(np.asarray(self.outward(run.scores[head, :]), np.float32))
            weights = weights / weights.sum()
        inside = run.indices_of(support)
        return Masses(float(weights[inside].sum()), float(np.delete(weights, inside).sum()))


class MassOfTheTop(Fault):
    """Retained mass is of the reference rows in the support."""

    requirement = "QLT-012"
    killed_by = case("chain/rows", "chain/pages", "chain/dense")

    def qlt_support_of(self, run: Run, head: int, lists: Sequence[Chain], request: Request) -> Result:
        made = super().qlt_support_of(run, head, lists, request)
        rows = set(made["top"]) & set(lists[made["list"]].support)
        return {**made, "retained_mass": self.qlt_masses(run, head, sorted(rows)).retained}


class FirstListForAll(Fault):
    """Every query head is judged by the first list."""

    requirement = "QLT-013"
    killed_by = case("heads/lists-by-kv-head", "heads/lists-by-query-head", "real/rows")

    def qlt_place(self, run: Run, head: int) -> int:
        return 0


class ListsInBlocks(Fault):
    """Query heads are taken to read their K/V heads in blocks."""

    requirement = "QLT-013"
    killed_by = case("heads/lists-by-kv-head")

    def qlt_place(self, run: Run, head: int) -> int:
        return head * run.lists // len(run.place)


class MassOfTheGroup(Fault):
    """Masses are means over the query heads of the same list."""

    requirement = "QLT-013"
    killed_by = case("heads/lists-by-kv-head", "heads/one-list-for-all")

    def qlt_masses(self, run: Run, head: int, support: Sequence[int]) -> Masses:
        group = [other for other, which in enumerate(run.place) if which == run.place[head]]
        each = [super(MassOfTheGroup, self).qlt_masses(run, other, support) for other in group]
        return Masses(*(sum(part) / len(group) for part in zip(*each, strict=True)))


FAULTS = found(globals())
