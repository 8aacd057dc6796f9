"""Rules of a report of placed attention: methods, bytes, and what was decided and published."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from . import placement
from .offload import Rule, ascending, spans
from .placement import PLANS, Alone, Candidate, Geometry, SubBatch, Way
from .placement_receipts import digest

Json = Mapping[str, Any]
SLACK_MS = 1e-6
"""Reported times may disagree by a nanosecond."""
CLASSES = {
    "headinfer": ("move_to_compute", "gpu", False, "full"),
    "neo": ("whole_request_near_data", "cpu", False, "full"),
    "instinfer": ("whole_request_near_data", "storage", False, "selected"),
    "support_partition": ("support_partition", "several", True, "full"),
}
"""Method to schedule, device, whether one request's support is split, and the support of the output."""


def rules(document: Json) -> Iterator[Rule]:
    """All rules in their order."""
    yield from method_rules(document["methods"])
    yield from traffic_rules(document)
    yield from group_rules(document)
    yield from time_rules(document)
    yield from candidate_rules(document["decision"])
    yield from publication_rules(document["decision"], document["observed"]["finish_ms"])
    yield from observed_rules(document)
    yield from receipt_rules(document)


def method_rules(methods: Sequence[Json]) -> Iterator[Rule]:
    """Each method once, as what it is; a selected support is no exact one, wherever attention ran."""
    for one in methods:
        stated = one["schedule"], one["attention_device"], one["splits_one_request"], one["support"]
        yield stated == CLASSES[one["method"]], "METHOD_MISCLASSIFIED"
        yield one["support"] == "full" or one["exactness"] == "approximate", "EXACTNESS_OVERCLAIMED"
    yield len({one["method"] for one in methods}) == len(methods), "METHOD_MISCLASSIFIED"


def traffic_rules(document: Json) -> Iterator[Rule]:
    """Bytes follow from the layer and the producers."""
    shape = Geometry(**document["geometry"])
    yield document["state_item_bytes"] >= 4, "DTYPE_MISMATCH"
    derived = placement.traffic(shape, document["producers"], document["state_item_bytes"]).to_json()
    wrong = {name for name, value in derived.items() if document["traffic"][name] != value}
    yield not wrong & {"history_bytes", "append_bytes", "move_bytes"}, "MOVE_BYTES_MISMATCH"
    yield not wrong & {"query_bytes", "output_bytes", "near_bytes"}, "NEAR_BYTES_MISMATCH"
    yield not wrong, "STATE_BYTES_MISMATCH"


def group_rules(document: Json) -> Iterator[Rule]:
    """Head groups follow from the K/V heads; all of them together move what the whole layer does."""
    shape, stated, size = Geometry(**document["geometry"]), document["traffic"], document["heads_per_group"]
    count = -(-shape.kv_heads // size)
    whole = shape.head_bytes(shape.kv_heads)
    yield (stated["group_count"], stated["staged_bytes"]) == (count, whole), "GROUPS_MISMATCH"
    yield stated["stage_bytes"] == shape.head_bytes(min(size, shape.kv_heads)), "STAGING_BYTES_MISMATCH"


def time_rules(document: Json) -> Iterator[Rule]:
    """Times follow from bytes and stages."""
    link, stated = document["link"], document["times"]
    made = placement.traffic(Geometry(**document["geometry"]), 1, 4)
    near = Way.read(link["send"]).takes_ms(made.send_bytes) + Way.read(link["return"]).takes_ms(made.output_bytes)
    yield abs(stated["near_transfer_ms"] - near) <= SLACK_MS, "TRANSFER_TIME_MISMATCH"
    two = document["pipeline"]
    pair = [SubBatch.read(batch) for batch in two["sub_batches"]]
    names = [name for batch in pair for name in batch.requests]
    yield len(set(names)) == len(names), "REQUEST_SPLIT"
    made_of = placement.estimate("neo/paper", two["layers"], pair, Alone.read(two["gpu_only"]), two["launch_ms"])
    right = abs(stated["pipeline_layer_ms"] - made_of.layer_ms) <= SLACK_MS
    yield right and abs(stated["pipeline_ms"] - made_of.pipelined_ms) <= SLACK_MS, "PIPELINE_TIME_MISMATCH"


def candidate_rules(decision: Json) -> Iterator[Rule]:
    """The five plans with a finish or a reason; approximate ones by opt-in; the attempted one is the cheapest."""
    several = [Candidate(**one) for one in decision["candidates"]]
    open_ = [one for one in several if one.reason is None]
    known = all(one.predicted_finish_ms is not None and one.declared_cost is not None for one in open_)
    yield tuple(one.plan for one in several) == PLANS and known, "CANDIDATES_MISMATCH"
    if "sparf" not in decision["approximations"]:
        yield several[-1].reason == "not_allowed", "APPROXIMATION_NOT_ALLOWED"
        taken = (decision["attempted"], decision["published"])
        yield "in_storage_sparf" not in taken, "APPROXIMATION_NOT_ALLOWED"
    for one in several:
        late = one.predicted_finish_ms is not None and one.predicted_finish_ms > decision["deadline_ms"]
        yield one.reason not in (None, "deadline") or late == (one.reason == "deadline"), "CHOICE_MISMATCH"
    best = placement.cheapest(several)
    yield decision["attempted"] == (best.plan if best else None), "CHOICE_MISMATCH"


def publication_rules(decision: Json, finish_ms: float) -> Iterator[Rule]:
    """What was attempted in time, or the declared fallback; under the manifest of the choice; claimed as what it is."""
    published = decision["published"]
    if published in PLANS:
        yield published == decision["attempted"], "PUBLISHED_PLAN_MISMATCH"
        yield finish_ms <= decision["deadline_ms"], "DEADLINE_MISSED"
    else:
        yield published == decision["fallback"], "FALLBACK_NOT_DECLARED"
    yield decision["published_generation"] == decision["manifest_generation"], "STALE_MANIFEST_GENERATION"
    yield decision["exactness"] == placement.exactness(published), "EXACTNESS_OVERCLAIMED"


def observed_rules(document: Json) -> Iterator[Rule]:
    """The attempt ends after all its stages and the stall that none accounts for."""
    observed = document["observed"]
    spent = sum(observed["stages"].values()) + observed["uncovered_stall_ms"]
    yield abs(document["decision"]["start_ms"] + spent - observed["finish_ms"]) <= SLACK_MS, "SERVICE_TIME_MISMATCH"


def receipt_rules(document: Json) -> Iterator[Rule]:
    """One receipt for each producer and query head, in float32, over the cover; an exact plan read all of it."""
    counted, published = document["receipts"], document["decision"]["published"]
    wanted = document["producers"] * document["geometry"]["query_heads"]
    enough = counted["accepted"] == wanted if published == "support_partition" else counted["accepted"] <= wanted
    yield enough and counted["expected"] == wanted, "RECEIPT_COUNT_MISMATCH"
    exact = published in PLANS and placement.exactness(published) == "exact"
    whole = document["physical_read_bytes"] >= document["traffic"]["history_bytes"]
    yield whole or not exact, "PHYSICAL_READ_SHORT"
    yield counted["dtype"] == "float32", "DTYPE_MISMATCH"
    cover = spans(counted["cover"])
    yield ascending(cover), "SPANS_NOT_ASCENDING"
    yield counted["support_sha256"] == digest(cover), "SUPPORT_DIGEST_MISMATCH"
