"""Faults of reports."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kvassay_reference.offload import Rule
from kvassay_reference.placement import PLANS

from ..base import Fault
from .base import Request, blind, case

UNCHECKED = {
    "METHOD_MISCLASSIFIED": (
        "PLC-001",
        "report/headinfer-on-the-cpu",
        "report/headinfer-near-data",
        "report/headinfer-splits",
        "report/neo-splits-support",
        "report/neo-as-partition",
        "report/neo-moves-history",
        "report/instinfer-on-the-gpu",
        "report/instinfer-full-support",
        "report/partition-on-one-device",
        "report/partition-without-split",
        "report/method-twice",
        "report/fewer-methods",
    ),
    "EXACTNESS_OVERCLAIMED": (
        "PLC-002",
        "report/sparf-called-exact",
        "report/sparf-by-opt-in",
        "report/exact-called-approximate",
        "report/claim-of-nothing",
        "report/claim-of-delay",
        "report/claim-of-recompute",
        "report/claim-of-reject",
        "report/claim-of-exact-reroute",
    ),
    "MOVE_BYTES_MISMATCH": (
        "PLC-044",
        "report/keys-alone",
        "report/append-forgotten",
        "report/append-of-keys",
    ),
    "NEAR_BYTES_MISMATCH": (
        "PLC-044",
        "report/output-forgotten",
        "report/output-of-one-head",
        "report/query-twice-as-wide",
    ),
    "STATE_BYTES_MISMATCH": (
        "PLC-044",
        "report/one-producer-counted",
        "report/maximum-and-mass-forgotten",
        "report/query-sent-once",
        "report/third-producer",
    ),
    "GROUPS_MISMATCH": ("PLC-044", "report/one-group-too-many", "report/staged-is-one-group", "report/grouped-queries"),
    "STAGING_BYTES_MISMATCH": ("PLC-044", "report/staging-of-the-layer"),
    "TRANSFER_TIME_MISMATCH": ("PLC-044", "report/one-fixed-cost", "report/binary-rate", "report/within-a-nanosecond"),
    "REQUEST_SPLIT": ("PLC-015", "report/request-on-both-devices"),
    "PIPELINE_TIME_MISMATCH": (
        "PLC-044",
        "report/all-stages-added",
        "report/one-layer-for-four",
        "report/within-a-nanosecond",
    ),
    "CANDIDATES_MISMATCH": (
        "PLC-045",
        "report/candidates-out-of-order",
        "report/no-finish",
        "report/no-cost",
        "report/unprofiled-candidate",
    ),
    "APPROXIMATION_NOT_ALLOWED": (
        "PLC-040",
        "report/sparf-open-without-opt-in",
        "report/sparf-late-without-opt-in",
        "report/sparf-published-without-opt-in",
        "report/sparf-by-opt-in",
    ),
    "CHOICE_MISMATCH": (
        "PLC-045",
        "report/late-plan-without-reason",
        "report/deadline-against-a-plan-in-time",
        "report/dearer-plan",
        "report/attempt-lost",
        "report/fallback-after-a-missed-deadline",
    ),
    "PUBLISHED_PLAN_MISMATCH": ("PLC-046", "report/another-plan-published", "report/no-plan"),
    "FALLBACK_NOT_DECLARED": ("PLC-046", "report/undeclared-fallback", "report/fallback-after-a-missed-deadline"),
    "DEADLINE_MISSED": ("PLC-046", "report/published-late", "report/fallback-after-a-missed-deadline"),
    "STALE_MANIFEST_GENERATION": ("PLC-046", "report/stale-manifest", "report/manifest-ahead"),
    "SERVICE_TIME_MISMATCH": (
        "PLC-047",
        "report/stall-left-out",
        "report/reduction-for-free",
        "report/queue-for-free",
        "report/finish-early",
        "report/within-a-nanosecond",
    ),
    "RECEIPT_COUNT_MISMATCH": (
        "PLC-047",
        "report/receipt-uncounted",
        "report/receipt-counted-twice",
        "report/receipts-of-one-producer",
    ),
    "PHYSICAL_READ_SHORT": ("PLC-047", "report/short-read", "report/short-read-by-a-byte"),
    "DTYPE_MISMATCH": ("PLC-047", "report/receipts-in-half"),
    "SPANS_NOT_ASCENDING": ("PLC-047", "report/cover-out-of-order"),
    "SUPPORT_DIGEST_MISMATCH": ("PLC-047", "report/support-digest", "report/support-in-other-spans"),
}
"""Reason to the requirement and the cases that miss its rule."""

BLINDS = tuple(blind(reason, row[0], row[1:], "Unreported") for reason, row in UNCHECKED.items())


class Documents(Fault):
    """The report is read as another one."""

    def read(self, document: Request) -> Request:
        """The report, spoiled."""
        raise NotImplementedError

    def plc_report_rules(self, document: Request) -> Iterable[Rule]:
        return super().plc_report_rules(self.read(document))


class NearDataIsExact(Documents):
    """Whatever runs near the data is called exact."""

    requirement = "PLC-002"
    killed_by = case("report/sparf-called-exact")

    def read(self, document: Request) -> Request:
        return {**document, "methods": [{**one, "exactness": "approximate"} for one in document["methods"]]}


class ExactIsIllegalToUndersell(Fault):
    """A method with full support has to be called exact."""

    requirement = "PLC-001"
    killed_by = case("report/fewer-methods")

    def plc_report_rules(self, document: Request) -> Iterator[Rule]:
        for one in document["methods"]:
            yield (one["support"] == "full") == (one["exactness"] == "exact"), "EXACTNESS_OVERCLAIMED"
        yield from super().plc_report_rules(document)


class FourMethodsAlways(Fault):
    """A report has to name all four methods."""

    requirement = "PLC-001"
    killed_by = case("report/fewer-methods")

    def plc_report_rules(self, document: Request) -> Iterator[Rule]:
        yield len(document["methods"]) == 4, "METHOD_MISCLASSIFIED"
        yield from super().plc_report_rules(document)


class GroupsOfQueries(Documents):
    """Groups are expected to follow the query heads."""

    requirement = "PLC-044"
    killed_by = case("report/grouped-queries")

    def read(self, document: Request) -> Request:
        shape, stated = document["geometry"], document["traffic"]
        more = shape["query_heads"] // shape["kv_heads"]
        return {**document, "traffic": {**stated, "group_count": stated["group_count"] // more}}


class HalfStatesReported(Documents):
    """States of two bytes a scalar are accepted."""

    requirement = "PLC-044"
    killed_by = case("report/states-in-half")

    def read(self, document: Request) -> Request:
        return {**document, "state_item_bytes": max(4, document["state_item_bytes"])}


class NoSlack(Fault):
    """Times are compared to the last bit."""

    requirement = "PLC-044"
    killed_by = case("report/within-a-nanosecond")

    def plc_report_rules(self, document: Request) -> Iterator[Rule]:
        yield from super().plc_report_rules(document)
        times = document["times"]
        layers = document["pipeline"]["layers"]
        yield abs(times["pipeline_layer_ms"] * layers - times["pipeline_ms"]) < 1e-12, "PIPELINE_TIME_MISMATCH"


class CandidatesByCount(Documents):
    """Candidates are counted and not named."""

    requirement = "PLC-045"
    killed_by = case("report/candidates-out-of-order")

    def read(self, document: Request) -> Request:
        made = document["decision"]
        named = [{**one, "plan": plan} for one, plan in zip(made["candidates"], PLANS, strict=False)]
        return {**document, "decision": {**made, "candidates": named}}


class ReasonsBelieved(Fault):
    """A deadline is believed as a reason."""

    requirement = "PLC-045"
    killed_by = case("report/deadline-against-a-plan-in-time")

    def plc_report_rules(self, document: Request) -> Iterable[Rule]:
        made = document["decision"]
        several = [
            {**one, "predicted_finish_ms": made["deadline_ms"] + 1.0} if one["reason"] == "deadline" else one
            for one in made["candidates"]
        ]
        return super().plc_report_rules({**document, "decision": {**made, "candidates": several}})


class AttemptFromPublication(Documents):
    """The attempted plan is read off the published one."""

    requirement = "PLC-045"
    killed_by = case("report/fallback-after-a-missed-deadline", "report/attempt-lost", "report/dearer-plan")

    def read(self, document: Request) -> Request:
        made = document["decision"]
        published = made["published"] if made["published"] in PLANS else None
        return {**document, "decision": {**made, "attempted": published}}


class FallbackNeedsLateness(Fault):
    """A fallback is legal only without an attempt."""

    requirement = "PLC-046"
    killed_by = case("report/fallback-after-a-missed-deadline", "report/claim-of-delay")

    def plc_report_rules(self, document: Request) -> Iterator[Rule]:
        made = document["decision"]
        fallback = made["published"] not in PLANS
        yield not (fallback and made["attempted"] is not None), "PUBLISHED_PLAN_MISMATCH"
        yield from super().plc_report_rules(document)


class OlderManifestsAlone(Documents):
    """A manifest is stale when it is older; a newer one passes."""

    requirement = "PLC-046"
    killed_by = case("report/manifest-ahead")

    def read(self, document: Request) -> Request:
        made = document["decision"]
        least = min(made["manifest_generation"], made["published_generation"])
        return {**document, "decision": {**made, "manifest_generation": least}}


class EndsBeforeTheDeadline(Fault):
    """An attempt has to end before the deadline."""

    requirement = "PLC-046"
    killed_by = case("report/at-the-deadline")

    def plc_report_rules(self, document: Request) -> Iterator[Rule]:
        yield from super().plc_report_rules(document)
        yield document["observed"]["finish_ms"] != document["decision"]["deadline_ms"], "DEADLINE_MISSED"


class GroupsRoundedDown(Documents):
    """Heads that fill no group are forgotten."""

    requirement = "PLC-044"
    killed_by = case("report/groups-of-three")

    def read(self, document: Request) -> Request:
        stated, heads = document["traffic"], document["geometry"]["kv_heads"]
        less = bool(heads % document["heads_per_group"])
        return {**document, "traffic": {**stated, "group_count": stated["group_count"] + less}}


class ReceiptsAlwaysWhole(Fault):
    """Every receipt has to be there, also where the fallback was published."""

    requirement = "PLC-047"
    killed_by = case("report/fallback-after-a-missed-deadline")

    def plc_report_rules(self, document: Request) -> Iterator[Rule]:
        yield from super().plc_report_rules(document)
        yield document["receipts"]["accepted"] == document["receipts"]["expected"], "RECEIPT_COUNT_MISMATCH"


class ApproximateReadsAll(Fault):
    """An approximate plan has to read the whole history."""

    requirement = "PLC-047"
    killed_by = case("report/sparf-by-opt-in")

    def plc_report_rules(self, document: Request) -> Iterator[Rule]:
        yield from super().plc_report_rules(document)
        yield document["physical_read_bytes"] >= document["traffic"]["history_bytes"], "PHYSICAL_READ_SHORT"


class ReceiptsOfKvHeads(Documents):
    """Receipts are expected for K/V heads."""

    requirement = "PLC-047"
    killed_by = case("report/grouped-queries")

    def read(self, document: Request) -> Request:
        shape, counted = document["geometry"], document["receipts"]
        more = shape["query_heads"] // shape["kv_heads"]
        return {**document, "receipts": {**counted, "expected": counted["expected"] * more}}


class CoverAsWritten(Fault):
    """The cover has to be one span."""

    requirement = "PLC-047"
    killed_by = case("report/support-in-other-spans")

    def plc_report_rules(self, document: Request) -> Iterator[Rule]:
        yield from super().plc_report_rules(document)
        yield len(document["receipts"]["cover"]) == 1, "SUPPORT_DIGEST_MISMATCH"


class LastReason(Fault):
    """All rules are checked and the last that fails is named."""

    requirement = "PLC-033"
    killed_by = case(
        "precedence/methods-before-bytes",
        "precedence/moved-before-near",
        "precedence/bytes-before-times",
        "precedence/times-before-decision",
        "precedence/choice-before-claim",
        "precedence/decision-before-attempt",
    )

    def plc_report_rules(self, document: Request) -> Iterable[Rule]:
        return reversed(list(super().plc_report_rules(document)))


FAULTS: tuple[type[Fault], ...] = (
    *BLINDS,
    NearDataIsExact,
    ExactIsIllegalToUndersell,
    FourMethodsAlways,
    GroupsOfQueries,
    HalfStatesReported,
    NoSlack,
    CandidatesByCount,
    ReasonsBelieved,
    AttemptFromPublication,
    FallbackNeedsLateness,
    OlderManifestsAlone,
    EndsBeforeTheDeadline,
    GroupsRoundedDown,
    ReceiptsAlwaysWhole,
    ApproximateReadsAll,
    ReceiptsOfKvHeads,
    CoverAsWritten,
    LastReason,
)
"""In the order of the chapter."""
