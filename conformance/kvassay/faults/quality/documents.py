"""Faults of reports and plans."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from kvassay_reference.offload import Rule
from kvassay_reference.quality import report

from ..base import Fault, found
from .base import Request, blind, case

UNCHECKED: dict[str, tuple[str, Sequence[str]]] = {
    "TENANT_MISMATCH": ("QLT-048", ["report/other-tenant"]),
    "RECEIPT_OF_OTHER_REQUEST": ("QLT-048", ["report/other-request"]),
    "STALE_REQUEST_GENERATION": ("QLT-048", ["report/stale-request"]),
    "STALE_CHECKPOINT_GENERATION": ("QLT-048", ["report/stale-weights"]),
    "STALE_CACHE_GENERATION": ("QLT-048", ["report/stale-history", "report/report-of-another-history"]),
    "STALE_INDEX_GENERATION": ("QLT-048", ["report/stale-index"]),
    "RECEIPT_OF_OTHER_HEAD": ("QLT-048", ["report/other-layer", "report/other-query-head"]),
    "WRONG_KV_HEAD": ("QLT-048", ["report/other-kv-head"]),
    "LOOKUP_OF_OTHER_QUERY": ("QLT-048", ["report/other-query"]),
    "DTYPE_MISMATCH": ("QLT-049", ["report/sums-in-half", "report/sums-in-bfloat16"]),
    "ROW_BYTES_MISMATCH": ("QLT-049", ["report/row-of-keys"]),
    "EXPANSION_MISMATCH": ("QLT-050", ["report/a-row-unexpanded", "report/expanded-with-persistent"]),
    "SUPPORT_DUPLICATED": ("QLT-050", ["report/persistent-row-twice"]),
    "SUPPORT_MISMATCH": (
        "QLT-050",
        ["report/persistent-row-left-out", "report/another-persistent-row", "report/support-out-of-order"],
    ),
    "UNITS_OVERLAP": ("QLT-050", ["report/clusters-overlap", "report/other-members"]),
    "UNKNOWN_UNIT": ("QLT-050", ["report/unknown-row", "report/unknown-page", "report/larger-pages"]),
    "DUPLICATE_UNIT": ("QLT-050", ["report/row-selected-twice"]),
    "UNIT_NOT_A_CANDIDATE": ("QLT-050", ["report/page-from-nowhere"]),
    "SUPPORT_BEYOND_COMMIT": (
        "QLT-050",
        ["report/cluster-beyond-the-rows", "report/persistent-row-beyond", "report/reference-beyond-the-rows"],
    ),
    "EMPTY_SUPPORT": ("QLT-050", ["second/no-rows"]),
    "IDS_POSE_AS_ROWS": ("QLT-051", ["report/page-ids-as-rows"]),
    "RECALL_MISMATCH": ("QLT-051", ["report/no-candidate-recall-of-rows", "report/support-recall-of-pages"]),
    "MASS_MISMATCH": ("QLT-051", ["report/mass-of-one", "report/no-omitted-mass", "second/other-rows-and-units"]),
    "OUTPUT_ERROR_MISMATCH": ("QLT-051", ["report/error-without-renormalising", "report/another-value"]),
    "RELATIVE_ERROR_MISMATCH": ("QLT-051", ["report/relative-is-absolute", "report/denominator-of-one"]),
    "ERROR_BOUND_MISMATCH": ("QLT-051", ["report/half-the-bound", "report/no-triangle-bound"]),
    "PROPAGATION_MISMATCH": ("QLT-051", ["report/error-before-the-map", "report/operator-for-frobenius"]),
    "CANDIDATE_BYTES_MISMATCH": ("QLT-052", ["report/candidates-twice", "report/wider-ids"]),
    "DESCRIPTOR_BYTES_MISMATCH": ("QLT-052", ["report/descriptors-of-candidates"]),
    "PROBE_WORK_MISMATCH": ("QLT-052", ["report/probe-for-free", "report/work-for-free"]),
    "SUPPORT_BYTES_MISMATCH": ("QLT-052", ["report/persistent-row-counted-twice", "second/bytes-are-exact"]),
    "FETCH_BYTES_MISMATCH": ("QLT-052", ["report/residents-moved", "report/setup-for-free"]),
    "EXPANSION_RATIO_MISMATCH": ("QLT-052", ["report/expansion-of-the-support"]),
    "FALSE_ROWS_MISMATCH": ("QLT-052", ["report/no-false-positives", "report/false-rows-without-a-reference"]),
    "DENSE_MASS_ONLINE": ("QLT-053", ["report/true-mass-online"]),
    "GATE_EVIDENCE_MISMATCH": ("QLT-053", ["report/another-source"]),
    "STALE_GATE_EVIDENCE": ("QLT-053", ["report/stale-calibration"]),
    "WIDENED_TWICE": ("QLT-053", ["report/widened-twice", "report/widening-for-a-fetch"]),
    "EXACT_REQUEST_APPROXIMATED": ("QLT-053", ["report/exact-degraded", "report/exact-accepted"]),
    "FALLBACK_ACTION_MISMATCH": ("QLT-053", ["report/another-label", "report/fetch-too-late", "report/tighter-gate"]),
    "DOCUMENT_RECALL_CLAIMED": ("QLT-054", ["report/document-recall", "report/label-recall"]),
    "LOCAL_BOUND_PROMOTED": ("QLT-054", ["report/task-quality", "report/later-layers", "report/hardware-latency"]),
    "EXACTNESS_OVERCLAIMED": ("QLT-054", ["report/called-exact"]),
    "POLICY_NOT_NAMED": ("QLT-054", ["report/policy-without-a-name", "report/policy-of-blanks"]),
    "BASELINES_INCOMPLETE": ("QLT-056", ["plan/no-full-cache", "plan/no-recomputation"]),
    "BASELINE_MISMATCH": ("QLT-056", ["plan/overlap-for-movement", "plan/fallback-shows-selection-error"]),
    "ABLATIONS_INCOMPLETE": ("QLT-057", ["plan/no-family", "plan/no-sweep-of-the-window"]),
    "SWEEP_TOO_SHORT": ("QLT-057", ["plan/one-point"]),
    "SWEEP_MEASURES_MISSING": ("QLT-057", ["plan/quality-alone", "plan/no-fallback-frequency"]),
    "MATRIX_INCOMPLETE": ("QLT-058", ["plan/one-request", "plan/a-cell-missing", "plan/a-cell-twice"]),
    "METRICS_MISSING": ("QLT-058", ["plan/no-tail", "plan/no-quality"]),
    "SOURCE_CONTEXT_MISSING": ("QLT-059", ["plan/no-hardware", "plan/no-tasks", "plan/no-concurrency"]),
    "SOURCES_RANKED": ("QLT-059", ["plan/ranked"]),
    "SOURCE_AS_OBJECTIVE": ("QLT-059", ["plan/speed-up-as-objective"]),
}
"""Reason to the requirement and the cases that see it unchecked."""
BLIND = tuple(blind(reason, requirement, names) for reason, (requirement, names) in UNCHECKED.items())


class BlanksNameThePolicy(Fault):
    """A report's policy may be named by a blank."""

    requirement = "QLT-054"
    killed_by = case("report/policy-of-blanks")

    def qlt_report_rules(self, document: Request) -> Iterator[Rule]:
        for holds, reason in super().qlt_report_rules(document):
            yield holds or (reason == "POLICY_NOT_NAMED" and bool(document["policy"]["version"])), reason


class LastRuleWins(Fault):
    """A document is rejected for the last rule that it breaks."""

    requirement = "QLT-055"
    killed_by = case("order/first-broken-rule", "order/first-broken-rule-of-a-plan")

    def qlt_judge(self, rules: Iterable[Rule]) -> dict[str, Any]:
        return super().qlt_judge(reversed(list(rules)))


class CostsBeforeMeasures(Fault):
    """Bytes are checked before masses and errors."""

    requirement = "QLT-055"
    killed_by = case("order/first-broken-rule")

    def qlt_report_rules(self, document: Request) -> Iterator[Rule]:
        late = {"RECALL_MISMATCH", "MASS_MISMATCH", "OUTPUT_ERROR_MISMATCH", "ERROR_BOUND_MISMATCH"}
        several = list(super().qlt_report_rules(document))
        yield from (one for one in several if one[1] not in late)
        yield from several


class ClaimsFirst(Fault):
    """Claims are checked before anything else."""

    requirement = "QLT-055"
    killed_by = case("order/first-broken-rule")

    def qlt_report_rules(self, document: Request) -> Iterator[Rule]:
        yield from report.claim_rules(document)
        yield from super().qlt_report_rules(document)


class FirstSelectionAlone(Fault):
    """Only the first selection is looked at."""

    requirement = "QLT-048"
    killed_by = case("report/other-request", "report/stale-index", "report/other-query")

    def qlt_report_rules(self, document: Request) -> Iterable[Rule]:
        return super().qlt_report_rules({**document, "selections": document["selections"][:1]})


class LastValuesUnchecked(Fault):
    """Values may be fewer than rows: what is missing counts as zero."""

    requirement = "QLT-049"
    killed_by = case("report/a-value-missing", "report/a-channel-missing")

    def qlt_report_rules(self, document: Request) -> Iterable[Rule]:
        shape = document["shape"]
        empty = [0.0] * shape["value_channels"]
        values = [[*one, *empty][: shape["value_channels"]] for one in document["values"]]
        values += [empty] * (shape["rows"] - len(values))
        return super().qlt_report_rules({**document, "values": values})


class ShapesFitted(Fault):
    """The number of rows is that of the scores, missing scores are zero, and the map is cut to the values."""

    requirement = "QLT-049"
    killed_by = case("report/a-row-more", "report/a-score-missing", "report/a-map-of-three-columns")

    def qlt_report_rules(self, document: Request) -> Iterable[Rule]:
        shape, values = document["shape"], document["values"]
        scores = [*document["logits"], *[0.0] * len(values)][: len(values)]
        fitted = {**document, "logits": scores, "shape": {**shape, "rows": len(values)}}
        table = [row[: shape["value_channels"]] for row in document["map"]]
        return super().qlt_report_rules({**fitted, "map": table})


class BytesWithinAMillionth(Fault):
    """Bytes are compared as other numbers are."""

    requirement = "QLT-052"
    killed_by = case("second/bytes-are-exact")

    def qlt_report_rules(self, document: Request) -> Iterator[Rule]:
        for holds, reason in super().qlt_report_rules(document):
            whole = reason.endswith("BYTES_MISMATCH") and reason != "ROW_BYTES_MISMATCH"
            yield holds or (whole and document["shape"]["row_bytes"] > 1_000_000), reason


class SlackOfAPercent(Fault):
    """Numbers pass within a percent."""

    requirement = "QLT-051"
    killed_by = case("second/within-a-millionth", "second/other-rows-and-units")

    def qlt_report_rules(self, document: Request) -> Iterable[Rule]:
        before, report.SLACK = report.SLACK, 1e-2
        try:
            return list(super().qlt_report_rules(document))
        finally:
            report.SLACK = before


class NoSlack(Fault):
    """Numbers have to be those of the engine to the last bit."""

    requirement = "QLT-051"
    killed_by = case("second/within-a-millionth")

    def qlt_report_rules(self, document: Request) -> Iterable[Rule]:
        before, report.SLACK = report.SLACK, 1e-9
        try:
            return list(super().qlt_report_rules(document))
        finally:
            report.SLACK = before


class FloorIgnored(Fault):
    """A relative error is expected, whatever the floor."""

    requirement = "QLT-051"
    killed_by = case("second/no-denominator", "report/relative-below-the-floor")

    def qlt_report_rules(self, document: Request) -> Iterable[Rule]:
        return super().qlt_report_rules({**document, "denominator_floor": 0.0})


class ReferenceFromTheTop(Fault):
    """Without a reference false rows are counted against the dense top rows."""

    requirement = "QLT-052"
    killed_by = case("second/other-rows-and-units", "report/false-rows-without-a-reference")

    def qlt_report_rules(self, document: Request) -> Iterable[Rule]:
        if document["reference"] is not None:
            return super().qlt_report_rules(document)
        scores, first = document["logits"], document["shape"]["first_position"]
        best = sorted(range(len(scores)), key=lambda row: -scores[row])[: document["top_k"]]
        return super().qlt_report_rules({**document, "reference": [first + row for row in best]})


class ExactClaimRejected(Fault):
    """No selection may be called exact, also where it holds every row."""

    requirement = "QLT-054"
    killed_by = case("claims/exact-where-nothing-was-left-out")

    def qlt_report_rules(self, document: Request) -> Iterator[Rule]:
        yield from super().qlt_report_rules(document)
        yield document["claims"]["exactness"] == "approximate", "EXACTNESS_OVERCLAIMED"


class BaselinesInOrder(Fault):
    """Baselines have to stand in the order of the chapter."""

    requirement = "QLT-056"
    killed_by = case("plans/other-order-and-axes")

    def qlt_plan_rules(self, document: Request) -> Iterator[Rule]:
        yield (
            document["baselines"][:1] == [{"name": "full_gpu_cache", "isolates": "exact_quality"}]
            or len(document["baselines"]) < 7,
            "BASELINES_INCOMPLETE",
        )
        yield from super().qlt_plan_rules(document)


class ThreePoints(Fault):
    """A sweep needs three points."""

    requirement = "QLT-057"
    killed_by = case("plans/other-order-and-axes")

    def qlt_plan_rules(self, document: Request) -> Iterator[Rule]:
        yield from super().qlt_plan_rules(document)
        points = [sweep["points"] for one in document["ablations"] for sweep in one["sweeps"]]
        yield min(points, default=3) >= 3, "SWEEP_TOO_SHORT"


class CellsCounted(Fault):
    """Cells are counted and not compared."""

    requirement = "QLT-058"
    killed_by = case("plan/a-cell-twice", "plan/a-cell-off-the-axes")

    def qlt_plan_rules(self, document: Request) -> Iterable[Rule]:
        matrix = document["matrix"]
        cells = [[a, b, c] for a in matrix["contexts"] for b in matrix["outputs"] for c in matrix["concurrencies"]]
        if len(matrix["cells"]) == len(cells):
            document = {**document, "matrix": {**matrix, "cells": cells}}
        return super().qlt_plan_rules(document)


class ReproducedIsNoReason(Fault):
    """A reported result is never an objective, also where its workload was reproduced."""

    requirement = "QLT-059"
    killed_by = case("plans/other-order-and-axes")

    def qlt_plan_rules(self, document: Request) -> Iterator[Rule]:
        yield from super().qlt_plan_rules(document)
        yield all(one["used_for"] == "evidence" for one in document["sources"]), "SOURCE_AS_OBJECTIVE"


FAULTS = (*BLIND, *found(globals()))
