"""Rules of an evaluation's plan: baselines, sweeps of one control each, a matrix, and results of others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from ..offload import Rule

Json = Mapping[str, Any]
BASELINES = {
    "full_gpu_cache": "exact_quality",
    "exact_offload": "movement_cost",
    "exact_offload_pipelined": "overlap_benefit",
    "static_window_exact_offload": "locality_benefit",
    "retrieval_dense_oracle": "selection_error",
    "retrieval_exact_fallback": "quality_recovery_cost",
    "recompute": "transfer_preference",
}
"""Baseline to what it shows apart from all else."""
CONTROLS = {
    "sparq": {"query_channels", "token_rows", "local_window", "mean_correction", "rule"},
    "quest": {"page_rows", "page_budget", "last_page_policy", "dense_early_layers", "metadata_and_looseness"},
    "infinigen": {
        "calibration_basis",
        "rehearsal_fraction",
        "threshold_and_cap",
        "equalised_count",
        "pool_and_distance",
    },
    "index": {"parameters_and_sample", "persistent_set", "candidates_and_rerank", "rebuild_and_parallelism"},
}
"""Family of selectors to the controls that its work has."""
MEASURES = {"traffic", "selector_latency", "omitted_mass", "output_error", "fallback_frequency"}
METRICS = {
    "ttft",
    "inter_token_latency",
    "inter_token_latency_tail",
    "throughput",
    "goodput",
    "rejection_rate",
    "utilisation",
    "quality",
}
CIRCUMSTANCES = ("version", "model", "hardware", "lengths", "concurrency", "tasks")


def exactly(found: Sequence[Any], wanted: set[Any]) -> bool:
    """Whether a list holds each of some things once, and nothing else."""
    return len(found) == len(wanted) and set(found) == wanted


def rules(document: Json) -> Iterator[Rule]:
    """All rules in their order."""
    yield from baseline_rules(document["baselines"])
    yield from ablation_rules(document["ablations"])
    yield from matrix_rules(document["matrix"])
    yield from source_rules(document["sources"])


def baseline_rules(several: Sequence[Json]) -> Iterator[Rule]:
    """Each of the seven, for what it isolates."""
    yield exactly([one["name"] for one in several], set(BASELINES)), "BASELINES_INCOMPLETE"
    yield all(one["isolates"] == BASELINES[one["name"]] for one in several), "BASELINE_MISMATCH"


def ablation_rules(several: Sequence[Json]) -> Iterator[Rule]:
    """Every control of every family varies in a sweep of its own, with all measures on the same points."""
    yield exactly([one["family"] for one in several], set(CONTROLS)), "ABLATIONS_INCOMPLETE"
    for one in several:
        controls = [sweep["control"] for sweep in one["sweeps"]]
        yield exactly(controls, CONTROLS[one["family"]]), "ABLATIONS_INCOMPLETE"
        for sweep in one["sweeps"]:
            yield sweep["points"] > 1, "SWEEP_TOO_SHORT"
            yield set(sweep["reports"]) == MEASURES, "SWEEP_MEASURES_MISSING"


def matrix_rules(matrix: Json) -> Iterator[Rule]:
    """Axes that vary, every combination once, every metric."""
    axes = [matrix[name] for name in ("contexts", "outputs", "concurrencies")]
    yield all(len(axis) > 1 and len(set(axis)) == len(axis) for axis in axes), "MATRIX_INCOMPLETE"
    yield exactly([tuple(cell) for cell in matrix["cells"]], set(product(*axes))), "MATRIX_INCOMPLETE"
    yield set(matrix["reports"]) == METRICS, "METRICS_MISSING"


def source_rules(several: Sequence[Json]) -> Iterator[Rule]:
    """Results of others keep their circumstances, without a rank, and bind nobody before they are reproduced."""
    for one in several:
        yield all(one[name] for name in CIRCUMSTANCES), "SOURCE_CONTEXT_MISSING"
        yield one["rank"] is None, "SOURCES_RANKED"
        yield one["reproduced"] or one["used_for"] != "objective", "SOURCE_AS_OBJECTIVE"
