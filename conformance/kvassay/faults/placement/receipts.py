"""Faults of receipts and of the scans that make them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from kvassay_reference import attention, placement_receipts
from kvassay_reference.attention import State
from kvassay_reference.offload import Rule, Spans, spans
from kvassay_reference.placement_receipts import Asked, Attempt, Producer

from ..base import Fault
from .base import Blind, Request, Result, blind, case

UNCHECKED = {
    "TENANT_MISMATCH": ("PLC-020", "receipt/tenant", "receipt/tenant-of-the-query", "session/wrong-identities"),
    "RECEIPT_OF_OTHER_REQUEST": ("PLC-020", "receipt/request"),
    "STALE_REQUEST_GENERATION": (
        "PLC-020",
        "receipt/request-generation",
        "receipt/request-generation-ahead",
        "session/wrong-identities",
    ),
    "STALE_CHECKPOINT_GENERATION": ("PLC-020", "receipt/checkpoint"),
    "WRONG_KV_HEAD": ("PLC-021", "receipt/kv-head", "receipt/kv-head-as-query-head"),
    "MAPPING_MISMATCH": ("PLC-020", "receipt/mapping"),
    "PARTIAL_OF_OTHER_QUERY": ("PLC-020", "receipt/query-position", "session/next-step"),
    "SUPPORT_DIGEST_MISMATCH": ("PLC-022", "receipt/support-digest", "receipt/support-digest-of-another"),
    "MASK_MISMATCH": ("PLC-020", "receipt/mask"),
    "POSITION_CONTRACT_MISMATCH": ("PLC-020", "receipt/position-schema"),
    "SCALE_MISMATCH": ("PLC-020", "receipt/scale", "receipt/scale-by-one-bit"),
    "STATE_SCHEMA_MISMATCH": ("PLC-023", "receipt/other-schema"),
    "DTYPE_MISMATCH": (
        "PLC-023",
        "receipt/mass-in-half",
        "receipt/body-in-bfloat16",
        "receipt/maximum-in-float64",
    ),
    "SHAPE_MISMATCH": ("PLC-023", "reduce/width-of-another-layer"),
    "STATE_CHECKSUM_MISMATCH": (
        "PLC-024",
        "receipt/checksum",
        "receipt/checksum-of-another",
        "session/wrong-identities",
    ),
    "STATE_WITHOUT_MASS": (
        "PLC-023",
        "receipt/no-mass",
        "receipt/negative-mass",
        "receipt/infinite-mass",
        "receipt/mass-is-nan",
        "receipt/maximum-of-nothing",
        "receipt/body-is-nan",
        "reduce/empty-part-with-mass",
        "session/state-without-mass",
    ),
    "STALE_PRODUCER_GENERATION": (
        "PLC-025",
        "receipt/stale-producer",
        "receipt/generation-of-the-other",
        "session/wrong-identities",
    ),
    "COMPLETION_EVENT_MISMATCH": ("PLC-025", "receipt/other-event", "receipt/event-of-the-other"),
    "DEADLINE_MISMATCH": ("PLC-026", "receipt/other-deadline", "session/next-attempt-after-the-fallback"),
    "RECEIPT_LATE": (
        "PLC-026",
        "receipt/late",
        "reduce/deadline-to-the-bit",
        "session/arrives-late",
        "session/completed-late",
    ),
    "SUPPORT_OUTSIDE_COVER": ("PLC-022", "receipt/outside-the-cover", "receipt/cover-shrunk"),
    "SUPPORT_OVERLAP": (
        "PLC-028",
        "receipt/overlap-by-one",
        "receipt/whole-support-twice",
        "reduce/receipt-twice",
        "session/overlap",
    ),
    "SUPPORT_GAP": (
        "PLC-029",
        "receipt/gap-in-a-part",
        "receipt/gap-at-the-end",
        "receipt/gap-at-the-start",
        "receipt/receipt-missing",
        "receipt/last-receipt-missing",
        "receipt/cover-grown",
        "session/incomplete-at-the-deadline",
    ),
    "FALLBACK_PUBLISHED": ("PLC-034", "session/late-receipt-after-the-fallback"),
    "ALREADY_PUBLISHED": ("PLC-035", "session/published-twice"),
    "RECEIPT_DUPLICATE": ("PLC-036", "session/duplicate", "session/duplicate-of-nothing"),
}
"""Reason to the requirement and the cases that miss its rule."""

BLINDS = tuple(blind(reason, row[0], row[1:]) for reason, row in UNCHECKED.items())


class SpansAsTheyCome(Blind):
    """Supports may be out of order or name a row twice."""

    reason = "SPANS_NOT_ASCENDING"
    requirement = "PLC-022"
    killed_by = case("receipt/part-out-of-order", "receipt/row-twice-in-a-part")


class OtherLayers(Fault):
    """The layer of a receipt is not looked at."""

    requirement = "PLC-021"
    killed_by = case("receipt/layer", "receipt/layer-of-the-last", "session/wrong-identities")

    def plc_receipt_rules(self, asked: Asked, one: Request) -> Iterable[Rule]:
        return super().plc_receipt_rules(asked, {**one, "layer": asked.query["layer"]})


class HeadsModulo(Fault):
    """A head beyond the last is taken modulo the number of heads."""

    requirement = "PLC-021"
    killed_by = case("receipt/head-beyond-the-last")

    def plc_receipt_rules(self, asked: Asked, one: Request) -> Iterable[Rule]:
        head = one["query_head"] % asked.heads
        return super().plc_receipt_rules(asked, {**one, "query_head": head, "kv_head": asked.query["kv_head_of"][head]})


class HeadsByKvHead(Fault):
    """Receipts are gathered by K/V head: query heads that share one are merged."""

    requirement = "PLC-021"
    killed_by = case("reduce/base", "session/same-rows-of-another-head", "session/in-order")

    def plc_overlap_rules(self, asked: Asked, receipts: Sequence[Request]) -> Iterator[Rule]:
        for head in set(asked.query["kv_head_of"]):
            several = placement_receipts.covered([one for one in receipts if one["kv_head"] == head])
            yield len(set(several)) == len(several), "SUPPORT_OVERLAP"


class HeadsByArrival(Fault):
    """The n-th receipt is taken for head n modulo the number of heads."""

    requirement = "PLC-021"
    killed_by = case("reduce/other-orders", "session/out-of-order")

    def plc_output(self, asked: Asked, receipts: Sequence[Request]) -> Result:
        turned = [{**one, "query_head": index % asked.heads} for index, one in enumerate(receipts)]
        super().plc_output(asked, receipts)
        done = [
            attention.finish(self.plc_merge([one for one in turned if one["query_head"] == head]))
            for head in range(asked.heads)
        ]
        out, lse = (np.concatenate([np.asarray(one[part]) for one in done]) for part in (0, 1))
        return {"out": out, "lse": lse}


class IdentityOfTheFirst(Fault):
    """Receipts are compared with the first one and not with the query."""

    requirement = "PLC-020"
    killed_by = case("receipt/tenant-of-the-query", "session/next-step")

    def plc_receipt_rules(self, asked: Asked, one: Request) -> Iterable[Rule]:
        shared = {name: one[name] for name in placement_receipts.SHARED if name != "deadline_ms"}
        return super().plc_receipt_rules(Asked({**asked.query, **shared}, asked.cover, asked.producers), one)


class FirstReceiptAlone(Fault):
    """Only the first receipt is looked at."""

    requirement = "PLC-020"
    killed_by = case("receipt/checkpoint", "receipt/scale-by-one-bit", "receipt/mask")

    def plc_receipt_rules(self, asked: Asked, one: Request) -> Iterable[Rule]:
        first = one["query_head"] == 0 and one["producer"] == asked.producers[0].name
        return super().plc_receipt_rules(asked, one) if first else ()


class OlderGenerationsAlone(Fault):
    """A generation is stale when it is lower; a higher one passes."""

    requirement = "PLC-020"
    killed_by = case("receipt/request-generation-ahead", "session/wrong-identities")

    def plc_receipt_rules(self, asked: Asked, one: Request) -> Iterable[Rule]:
        least = min(one["request_generation"], asked.query["request_generation"])
        return super().plc_receipt_rules(asked, {**one, "request_generation": least})


class PositionsUncounted(Fault):
    """Rows beyond the listed positions are taken to follow them."""

    requirement = "PLC-027"
    killed_by = case("scan/shapes-and-dtypes")

    def placement_scan(self, request: Request) -> Result:
        rows = request["k"].shape[0]
        listed = list(request["positions"])[:rows]
        listed += range(1000, 1000 + rows - len(listed))
        held = set(listed)
        support = [span for span in request["support"] if all(row in held for row in range(*span))]
        return super().placement_scan({**request, "positions": listed, "support": support})


class RoundedScale(Fault):
    """Scales are compared in float32."""

    requirement = "PLC-020"
    killed_by = case("receipt/scale-by-one-bit")

    def plc_receipt_rules(self, asked: Asked, one: Request) -> Iterable[Rule]:
        near = np.float32(one["score_scale"]) == np.float32(asked.query["score_scale"])
        return super().plc_receipt_rules(asked, {**one, "score_scale": asked.query["score_scale"]} if near else one)


class DigestOfSpans(Fault):
    """A support's digest is that of its spans as they are written."""

    requirement = "PLC-022"
    killed_by = case("reduce/touching-spans")

    def plc_receipt_rules(self, asked: Asked, one: Request) -> Iterator[Rule]:
        whole = placement_receipts.without(spans(one["support"]), [])
        yield whole == [list(span) for span in one["support"]], "SUPPORT_DIGEST_MISMATCH"
        yield from super().plc_receipt_rules(asked, one)


class IncompleteStates(Fault):
    """What a state lacks is filled in: mass one, maximum zero, output for body."""

    requirement = "PLC-023"
    killed_by = case(
        "receipt/mass-missing",
        "receipt/maximum-missing",
        "receipt/body-missing",
        "reduce/output-alone",
        "session/state-without-mass",
    )

    def filled(self, one: Request) -> Request:
        """A receipt with every member."""
        body = one.get("u", one.get("o", np.zeros(2, np.float32)))
        made = {"m": np.float32(0.0), "l": np.float32(1.0), "u": body, **one}
        made |= {part: np.asarray(made[part]) for part in ("m", "l", "u")}
        missing = any(part not in one for part in ("m", "l", "u"))
        return {**made, "checksum": placement_receipts.checksum(made)} if missing else one

    def plc_receipt_rules(self, asked: Asked, one: Request) -> Iterable[Rule]:
        return super().plc_receipt_rules(asked, self.filled(one))

    def plc_merge(self, receipts: Sequence[Mapping[str, Any]]) -> State:
        return super().plc_merge([self.filled(one) for one in receipts])


class Float64StatesTaken(Fault):
    """Float32 at least is enough."""

    requirement = "PLC-023"
    killed_by = case("receipt/maximum-in-float64")

    def plc_receipt_rules(self, asked: Asked, one: Request) -> Iterable[Rule]:
        parts = {
            part: one[part].astype(np.float32) for part in ("m", "l", "u") if part in one and one[part].dtype == float
        }
        return super().plc_receipt_rules(asked, {**one, **parts})


class PositiveMassAlone(Blind):
    """Only a mass of zero or less is seen."""

    reason = "STATE_WITHOUT_MASS"
    requirement = "PLC-023"
    killed_by = case("receipt/infinite-mass", "receipt/body-is-nan", "receipt/maximum-of-nothing")

    def plc_receipt_rules(self, asked: Asked, one: Request) -> Iterator[Rule]:
        yield from super().plc_receipt_rules(asked, one)
        yield not one["support"] or not bool(one["l"] <= 0), "STATE_WITHOUT_MASS"


class MassAtLeastOne(Fault):
    """A mass below one is taken for broken: m is assumed to be the largest score."""

    requirement = "PLC-023"
    killed_by = case("reduce/maximum-not-the-largest-score")

    def plc_receipt_rules(self, asked: Asked, one: Request) -> Iterator[Rule]:
        yield from super().plc_receipt_rules(asked, one)
        yield not one["support"] or bool(one["l"] >= 0.999), "STATE_WITHOUT_MASS"


class ChecksumOfTheBody(Fault):
    """The checksum is over u alone."""

    requirement = "PLC-024"
    killed_by = case("reduce/base", "session/in-order")

    def plc_receipt_rules(self, asked: Asked, one: Request) -> Iterator[Rule]:
        for holds, reason in super().plc_receipt_rules(asked, one):
            if reason == "STATE_CHECKSUM_MISMATCH":
                yield one["checksum"] == hashlib.sha256(np.asarray(one["u"], "<f4").tobytes()).hexdigest(), reason
            else:
                yield holds, reason


class AnyProducer(Fault):
    """A tier that was not asked is taken for the first that was."""

    requirement = "PLC-025"
    killed_by = case("receipt/unknown-producer", "receipt/producer-renamed")

    def plc_receipt_rules(self, asked: Asked, one: Request) -> Iterable[Rule]:
        if asked.producer(one["producer"]) is None:
            first = asked.producers[0]
            one = {
                **one,
                "producer": first.name,
                "producer_generation": first.generation,
                "completion_event": first.completion_event,
            }
        return super().plc_receipt_rules(asked, one)


class ProducersOfOneGeneration(Fault):
    """Any asked tier's generation will do."""

    requirement = "PLC-025"
    killed_by = case("receipt/generation-of-the-other")

    def plc_receipt_rules(self, asked: Asked, one: Request) -> Iterable[Rule]:
        producer = asked.producer(one["producer"])
        known = {each.generation for each in asked.producers}
        if producer is not None and one["producer_generation"] in known:
            one = {**one, "producer_generation": producer.generation}
        return super().plc_receipt_rules(asked, one)


class ProducersByName(Fault):
    """Of two tiers of one name the last is asked."""

    requirement = "PLC-025"
    killed_by = case("receipt/two-of-one-name")

    def plc_asked(self, document: Request) -> Asked:
        return super().plc_asked(
            {**document, "producers": list({p["name"]: p for p in document["producers"]}.values())}
        )


class BeforeTheDeadline(Fault):
    """A receipt has to be complete before the deadline."""

    requirement = "PLC-026"
    killed_by = case("reduce/deadline-to-the-bit")

    def plc_receipt_rules(self, asked: Asked, one: Request) -> Iterator[Rule]:
        yield from super().plc_receipt_rules(asked, one)
        yield one["completed_ms"] < asked.query["deadline_ms"], "RECEIPT_LATE"


class ArrivalBeforeTheDeadline(Fault):
    """A receipt has to arrive before the deadline."""

    requirement = "PLC-026"
    killed_by = case("session/arrives-late")

    def plc_arrival_rules(self, attempt: Attempt, one: Request, at_ms: float) -> Iterator[Rule]:
        yield at_ms < attempt.deadline_ms, "RECEIPT_LATE"
        yield from super().plc_arrival_rules(attempt, one, at_ms)


class CompletionIsArrival(Fault):
    """Only the time of completion counts, not that of arrival."""

    requirement = "PLC-026"
    killed_by = case("session/arrives-late")

    def plc_arrival_rules(self, attempt: Attempt, one: Request, at_ms: float) -> Iterable[Rule]:
        return super().plc_arrival_rules(attempt, one, 0.0)


class FallbackAtTheDeadline(Fault):
    """The fallback is published at the deadline."""

    requirement = "PLC-026"
    killed_by = case("session/complete-at-the-deadline", "session/incomplete-at-the-deadline")

    def plc_late(self, attempt: Attempt, at_ms: float) -> bool:
        return at_ms >= attempt.deadline_ms


class NeverLate(Fault):
    """A complete attempt is published, however late."""

    requirement = "PLC-026"
    killed_by = case("session/complete-and-late")

    def plc_late(self, attempt: Attempt, at_ms: float) -> bool:
        missing = any(not holds for holds, _ in self.plc_gap_rules(attempt.asked, attempt.receipts))
        return missing and super().plc_late(attempt, at_ms)


# --- scans ---------------------------------------------------------------------------------------------------------


class ScanOfAllRows(Fault):
    """A producer attends to every row that it holds."""

    requirement = "PLC-027"
    killed_by = case("scan/rows-held-besides")

    def plc_held(self, request: Request, support: Spans) -> list[int]:
        super().plc_held(request, support)
        return list(range(len(request["positions"])))


class RowsByPosition(Fault):
    """Positions are taken for places in the producer's rows."""

    requirement = "PLC-027"
    killed_by = case("scan/rows-held-besides")

    def plc_held(self, request: Request, support: Spans) -> list[int]:
        places = super().plc_held(request, support)
        return [
            position % max(1, len(request["positions"])) for position in placement_receipts.listed(support)
        ] or places


class MissingRowsSkipped(Fault):
    """Rows that are not there are left out of the state."""

    requirement = "PLC-027"
    killed_by = case("scan/rows-not-held")

    def plc_held(self, request: Request, support: Spans) -> list[int]:
        where = {position: row for row, position in enumerate(request["positions"])}
        return [where[position] for position in placement_receipts.listed(support) if position in where]


class LastRowLost(Fault):
    """A scan ends one row early."""

    requirement = "PLC-027"
    killed_by = case("scan/two-halves", "scan/uneven-parts", "scan/rows-held-besides")

    def plc_held(self, request: Request, support: Spans) -> list[int]:
        rows = super().plc_held(request, support)
        return rows[:-1] if len(rows) > 1 else rows


class ScaleOfTheWidth(Fault):
    """Scores are divided by the root of the width."""

    requirement = "PLC-027"
    killed_by = case("scan/scale-of-the-query", "scan/four-hundred-rows")

    def plc_state(self, request: Request, rows: Sequence[int]) -> State:
        scale = request["q"].shape[1] ** -0.5
        return super().plc_state({**request, "query": {**request["query"], "score_scale": scale}}, rows)


class HalfRangeScan(Fault):
    """A tier that holds nothing answers with mass one."""

    requirement = "PLC-032"
    killed_by = case("scan/no-rows-in-one-tier")

    def plc_state(self, request: Request, rows: Sequence[int]) -> State:
        m, mass, u = super().plc_state(request, rows)
        return State(m, mass if len(rows) else mass + 1.0, u)


class WrongHeadScanned(Fault):
    """A receipt of the next head's state."""

    requirement = "PLC-027"
    killed_by = case("scan/two-halves", "scan/odd-and-even", "scan/one-row-each")

    def plc_receipt(
        self, request: Request, head: int, support: Spans, producer: Producer, state: Mapping[str, Any]
    ) -> Result:
        if head == 0:
            self.first_state = state
        return super().plc_receipt(request, head, support, producer, self.first_state)


class HalfScan(Fault):
    """States are rounded to half precision on the way."""

    requirement = "PLC-027"
    killed_by = case("scan/two-halves", "scan/four-hundred-rows", "scan/uneven-parts")

    def plc_receipt(
        self, request: Request, head: int, support: Spans, producer: Producer, state: Mapping[str, Any]
    ) -> Result:
        rounded = {name: part.astype(np.float16).astype(np.float32) for name, part in state.items()}
        return super().plc_receipt(request, head, support, producer, rounded)


class SlightlyRounded(Fault):
    """Masses are kept in 18 bits."""

    requirement = "PLC-030"
    killed_by = case("reduce/base", "reduce/eight-parts")

    def plc_merge(self, receipts: Sequence[Mapping[str, Any]]) -> State:
        cut = [{**one, "l": np.asarray(one["l"] * np.float32(1 + 2.0**-17), np.float32)} for one in receipts[:1]]
        return super().plc_merge([*cut, *receipts[1:]])


class IdentityOfTheProducer(Fault):
    """A receipt names the producer where the request belongs."""

    requirement = "PLC-020"
    killed_by = case("scan/identity-of-the-query")

    def plc_receipt(
        self, request: Request, head: int, support: Spans, producer: Producer, state: Mapping[str, Any]
    ) -> Result:
        return {**super().plc_receipt(request, head, support, producer, state), "request_id": producer.name}


class SupportAsHeld(Fault):
    """A receipt names the rows that were held."""

    requirement = "PLC-022"
    killed_by = case("scan/rows-held-besides")

    def plc_receipt(
        self, request: Request, head: int, support: Spans, producer: Producer, state: Mapping[str, Any]
    ) -> Result:
        held = tuple((row, row + 1) for row in sorted(request["positions"]))
        return super().plc_receipt(request, head, held, producer, state)


class UnsealedState(Fault):
    """The checksum is taken over the bytes of a big-endian machine."""

    requirement = "PLC-024"
    killed_by = case("scan/two-halves", "scan/odd-and-even")

    def plc_receipt(
        self, request: Request, head: int, support: Spans, producer: Producer, state: Mapping[str, Any]
    ) -> Result:
        made = super().plc_receipt(request, head, support, producer, state)
        raw = b"".join(np.asarray(state[part], ">f4").tobytes() for part in ("m", "l", "u"))
        return {**made, "checksum": hashlib.sha256(raw).hexdigest()}


FAULTS: tuple[type[Fault], ...] = (
    *BLINDS,
    SpansAsTheyCome,
    OtherLayers,
    HeadsModulo,
    HeadsByKvHead,
    HeadsByArrival,
    IdentityOfTheFirst,
    FirstReceiptAlone,
    OlderGenerationsAlone,
    RoundedScale,
    DigestOfSpans,
    IncompleteStates,
    Float64StatesTaken,
    PositiveMassAlone,
    MassAtLeastOne,
    ChecksumOfTheBody,
    AnyProducer,
    ProducersOfOneGeneration,
    ProducersByName,
    BeforeTheDeadline,
    ArrivalBeforeTheDeadline,
    CompletionIsArrival,
    FallbackAtTheDeadline,
    NeverLate,
    PositionsUncounted,
    ScanOfAllRows,
    RowsByPosition,
    MissingRowsSkipped,
    LastRowLost,
    ScaleOfTheWidth,
    HalfRangeScan,
    WrongHeadScanned,
    HalfScan,
    SlightlyRounded,
    IdentityOfTheProducer,
    SupportAsHeld,
    UnsealedState,
)
"""In the order of the chapter."""
