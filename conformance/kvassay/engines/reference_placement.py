"""The ops of placement and of SparF of the built-in adapter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, ClassVar

import numpy as np
from array_api_compat import array_namespace
from kvassay_reference import (
    attention,
    offload,
    placement,
    placement_batch,
    placement_receipts,
    placement_report,
    sparf,
)
from kvassay_reference.attention import Mask, State
from kvassay_reference.errors import Refusal
from kvassay_reference.offload import Rule, Spans
from kvassay_reference.placement import Candidate, Estimate, Geometry, Group, Staged, SubBatch, Traffic, Way
from kvassay_reference.placement_batch import Batch, Profile, Queues
from kvassay_reference.placement_receipts import Asked, Attempt, Producer
from kvassay_reference.sparf import HeadRead, Layout, Selection

from ..adapters.base import Rejected
from .reference_attention import refusals_named
from .reference_part import ReferencePart

Request = Mapping[str, Any]
Result = dict[str, Any]


class PlacementReference(ReferencePart):
    """The placement ops. Faults override one of the small methods."""

    own_profiles: ClassVar[frozenset[str]] = frozenset(
        {
            "placement-plan",
            "placement-batch",
            "placement-heads",
            "placement-reduce",
            "placement-session",
            "placement-report",
            "sparf",
        }
    )
    own_variants: ClassVar[frozenset[str]] = frozenset({*placement.HEADWISE_RULES, *placement.PIPELINE_RULES})

    plc_attempt: Attempt | None
    plc_attempts: int
    plc_publications: int

    def open(self) -> None:
        """Forget the attempt of the case before."""
        super().open()
        self.plc_attempt = None
        self.plc_attempts = self.plc_publications = 0

    # plans

    def plc_geometry(self, shape: Request) -> Geometry:
        """A layer's shape."""
        return Geometry(**shape)

    def plc_bytes(self, shape: Geometry, producers: int, state_item_bytes: int) -> Traffic:
        """Bytes of a layer."""
        return placement.traffic(shape, producers, state_item_bytes)

    def plc_way(self, way: Request) -> Way:
        """One direction."""
        return Way.read(way)

    def plc_transfers(self, made: Traffic, send: Way, back: Way) -> Result:
        """Times of the small tensors."""
        out, home = send.takes_ms(made.send_bytes), back.takes_ms(made.output_bytes)
        parts = send.takes_ms(made.partition_send_bytes) + back.takes_ms(made.state_return_bytes)
        return {"send_ms": out, "return_ms": home, "near_transfer_ms": out + home, "partition_transfer_ms": parts}

    def placement_traffic(self, request: Request) -> Result:
        """Bytes and times of the three schedules."""
        with refusals_named():
            shape = self.plc_geometry(request["geometry"])
            made = self.plc_bytes(shape, request["producers"], request["state_item_bytes"])
        link = request["link"]
        ways = self.plc_way(link["send"]), self.plc_way(link["return"])
        return {**made.to_json(), **self.plc_transfers(made, *ways)}

    def plc_group_size(self, request: Request) -> int:
        """K/V heads of a group, checked."""
        size: int = request["heads_per_group"]
        placement.check_group_size(request["rule"], size, request["geometry"]["kv_heads"])
        return size

    def plc_groups(self, shape: Geometry, kv_head_of: Sequence[int], size: int) -> list[Group]:
        """Groups of a layer."""
        return placement.groups(shape, kv_head_of, size)

    def plc_staged(self, several: Sequence[Group], request: Request) -> list[Staged]:
        """The ping-pong of buffers."""
        fetch = self.plc_way(request["fetch"])
        costs = request["launch_ms"], request["head_compute_ms"]
        return placement.ping_pong(several, request["layers"], request["buffers"], fetch, *costs)

    def plc_staging(self, several: Sequence[Group], shape: Geometry, request: Request) -> Result:
        """Memory and totals of the groups."""
        stage, whole = max(group.bytes for group in several), shape.head_bytes(shape.kv_heads)
        return {
            "group_count": len(several),
            "stage_bytes": stage,
            "staging_bytes": request["buffers"] * stage,
            "layer_bytes": whole,
            "total_bytes": request["layers"] * whole,
            "launches": request["layers"] * len(several),
        }

    def placement_headwise(self, request: Request) -> Result:
        """Head-wise staging."""
        with refusals_named():
            shape = self.plc_geometry(request["geometry"])
            placement.check_map(request["kv_head_of"], shape.query_heads, shape.kv_heads)
            size = self.plc_group_size(request)
        several = self.plc_groups(shape, request["kv_head_of"], size)
        timeline = self.plc_staged(several, request)
        return {
            "groups": [asdict(group) for group in several],
            **self.plc_staging(several, shape, request),
            "timeline": [asdict(one) for one in timeline],
            "end_ms": timeline[-1].compute_end_ms,
            "stall_ms": placement.stall_ms(timeline),
        }

    def plc_check_groups(self, groups: Sequence[Sequence[int]], kv_heads: int) -> None:
        """Refuse groups that are no partition of the K/V heads."""
        if sorted(head for group in groups for head in group) != list(range(kv_heads)):
            raise Refusal("HEAD_GROUPS_INVALID", f"{groups} for {kv_heads} K/V heads")

    def plc_group_output(self, request: Request, heads: Sequence[int], queries: Sequence[int]) -> Any:
        """Output of the query heads that read some K/V heads, [queries, d_v]."""
        q, k, v = (self.inward(request[name]) for name in ("q", "k", "v"))
        xp = array_namespace(q, k, v)
        mine, theirs = xp.asarray(list(queries), dtype=xp.int64), xp.asarray(list(heads), dtype=xp.int64)
        out, _ = attention.dense(
            xp.take(q, mine, axis=0),
            xp.take(k, theirs, axis=1),
            xp.take(v, theirs, axis=1),
            scale=request["scale"],
            kv_head_of=[list(heads).index(request["kv_head_of"][query]) for query in queries],
            positions=xp.arange(k.shape[0], dtype=xp.int64),
            q_position=0,
            mask=Mask(causal=False),
        )
        return self.outward(out)

    def plc_place(self, out: Any, part: Any, queries: Sequence[int]) -> None:
        """Put a group's output where the model expects it."""
        out[list(queries)] = part

    def placement_heads(self, request: Request) -> Result:
        """Attention group by group."""
        q, k, v = (self.inward(request[name]) for name in ("q", "k", "v"))
        with refusals_named():
            rows = np.arange(request["k"].shape[0])
            attention.check_rows(q, k, v, request["kv_head_of"], self.inward(rows), Mask(causal=False), None)
            self.plc_check_groups(request["groups"], request["k"].shape[1])
            if not len(rows):
                raise Refusal("NO_LEGAL_ROWS", "the history holds no row")
            out = np.zeros((request["q"].shape[0], request["v"].shape[2]), np.float32)
            for heads in request["groups"]:
                queries = [query for query, head in enumerate(request["kv_head_of"]) if head in heads]
                if queries:
                    self.plc_place(out, self.plc_group_output(request, heads, queries), queries)
        return {"out": out}

    def plc_pair(self, pipeline: Request) -> tuple[SubBatch, SubBatch]:
        """Both sub-batches, each request in one place."""
        zero, one = map(SubBatch.read, pipeline["sub_batches"])
        placement.check_whole((zero, one))
        return zero, one

    def plc_estimate(self, rule: str, pipeline: Request, pair: Sequence[SubBatch]) -> Estimate:
        """NEO's estimate of an iteration."""
        alone = placement.Alone.read(pipeline["gpu_only"])
        return placement.estimate(rule, pipeline["layers"], pair, alone, pipeline["launch_ms"])

    def plc_mode(self, made: Estimate) -> str:
        """The mode with more requests a unit of time, pipelined only where CPU work is covered."""
        return "pipelined" if made.feasible and made.faster else "gpu_only"

    def plc_works(self, rule: str, made: Estimate, pipeline: Request, pair: Sequence[SubBatch]) -> list[Result]:
        """The timeline."""
        launch = pipeline["launch_ms"] if rule == "neo/code" else 0.0
        return [asdict(one) for one in placement.works(made, pair, launch)]

    def placement_pipeline(self, request: Request) -> Result:
        """NEO's two sub-batches."""
        pipeline = request["pipeline"]
        with refusals_named():
            pair = self.plc_pair(pipeline)
        made = self.plc_estimate(request["rule"], pipeline, pair)
        return {
            "stages": [asdict(one) for one in made.stages],
            "layer_ms": made.layer_ms,
            "pipelined_ms": made.pipelined_ms,
            "serial_ms": made.serial_ms,
            "hidden_ms": made.serial_ms - made.pipelined_ms,
            "slack_ms": made.slack_ms,
            "feasible": made.feasible,
            "gpu_only_ms": made.gpu_only_ms,
            "pipelined_requests": made.requests,
            "gpu_only_requests": made.alone.requests,
            "mode": self.plc_mode(made),
            "timeline": self.plc_works(request["rule"], made, pipeline, pair),
        }

    def plc_form(self, queues: Queues, profile: Profile) -> tuple[Batch, ...]:
        """NEO's batches."""
        return placement_batch.form(queues, profile)

    def placement_batch(self, request: Request) -> Result:
        """NEO's batches from queues."""
        queues, profile = Queues.read(request), Profile(**request["profile"])
        names = [job.id for jobs in queues.jobs.values() for job in jobs]
        if len(set(names)) < len(names):
            raise Rejected("REQUEST_SPLIT", "a request stands twice")
        batches = self.plc_form(queues, profile)
        times = ("linear_ms", "prefill_ms", "gpu_attention_ms", "cpu_attention_ms", "cpu_ms", "gpu_ms")
        return {
            "mode": ("idle", "gpu_only", "pipelined")[len(batches)],
            "batches": [
                {
                    **{part: [job.id for job in jobs] for part, jobs in batch.parts.items()},
                    **{name: getattr(batch, name) for name in times},
                }
                for batch in batches
            ],
            "slack_ms": placement_batch.slack_ms((batches[0], batches[1])) if len(batches) == 2 else [],
        }

    def plc_candidate(self, plan: str, request: Request) -> Candidate:
        """One plan."""
        return placement.candidate(plan, request)

    def plc_cheapest(self, candidates: Sequence[Candidate]) -> Candidate | None:
        """The plan that is taken."""
        return placement.cheapest(candidates)

    def plc_fallback(self, request: Request) -> str:
        """The declared fallback, checked."""
        declared: str = request["request"]["fallback"]
        if declared not in placement.FALLBACKS:
            raise Refusal("UNKNOWN_FALLBACK", declared)
        return declared

    def placement_choose(self, request: Request) -> Result:
        """The cheapest plan in time, or the declared fallback."""
        with refusals_named():
            fallback = self.plc_fallback(request)
        candidates = [self.plc_candidate(plan, request) for plan in placement.PLANS]
        best = self.plc_cheapest(candidates)
        return {
            "candidates": [asdict(one) for one in candidates],
            "outcome": "plan" if best else "fallback",
            "attempted": best.plan if best else None,
            "fallback": None if best else fallback,
            "exactness": placement.exactness(best.plan if best else fallback),
            "manifest_generation": request["manifest"]["generation"],
        }

    def plc_report_rules(self, document: Request) -> Iterable[Rule]:
        """The rules of a report in their order."""
        return placement_report.rules(document)

    def placement_check(self, request: Request) -> Result:
        """Accept a report or reject it."""
        with refusals_named():
            offload.accept(self.plc_report_rules(request["document"]))
        return {}

    # receipts

    def plc_state(self, request: Request, rows: Sequence[int]) -> State:
        """State of every query head over some of the producer's rows."""
        q, k, v = (self.inward(request[name]) for name in ("q", "k", "v"))
        query = request["query"]
        xp = array_namespace(q, k, v)
        return placement_receipts.scan(q, k, v, query["score_scale"], query["kv_head_of"], rows, xp)

    def plc_receipt(
        self, request: Request, head: int, support: Spans, producer: Producer, state: Mapping[str, Any]
    ) -> Result:
        """One receipt."""
        return placement_receipts.receipt(request["query"], head, support, producer, request["completed_ms"], state)

    def plc_held(self, request: Request, support: Spans) -> list[int]:
        """Rows of the producer that hold the support."""
        return placement_receipts.held_rows(request["positions"], placement_receipts.listed(support))

    def placement_scan(self, request: Request) -> Result:
        """A receipt for each query head."""
        support, query = offload.spans(request["support"]), request["query"]
        with refusals_named():
            # An empty scan checks dtypes, shapes and heads before any position is looked at.
            self.plc_state(request, [])
            if len(request["positions"]) != request["k"].shape[0] or request["v"].shape[2] != query["value_channels"]:
                raise Refusal("SHAPE_MISMATCH", "positions, values or their width do not fit")
            offload.accept([(offload.ascending(support), "SPANS_NOT_ASCENDING")])
            state = self.plc_state(request, self.plc_held(request, support))
        parts = [np.asarray(self.outward(part), np.float32) for part in state]
        producer = Producer(**request["producer"])
        receipts = []
        for head in range(len(query["kv_head_of"])):
            own = {name: np.array(part[head]) for name, part in zip(("m", "l", "u"), parts, strict=True)}
            receipts.append(self.plc_receipt(request, head, support, producer, own))
        return {"receipts": receipts}

    def plc_receipt_rules(self, asked: Asked, one: Request) -> Iterable[Rule]:
        """The rules of one receipt in their order."""
        return placement_receipts.receipt_rules(asked, one)

    def plc_overlap_rules(self, asked: Asked, receipts: Sequence[Request]) -> Iterable[Rule]:
        """No position twice."""
        return placement_receipts.overlap_rules(asked, receipts)

    def plc_gap_rules(self, asked: Asked, receipts: Sequence[Request]) -> Iterable[Rule]:
        """No position missing."""
        return placement_receipts.gap_rules(asked, receipts)

    def plc_merge(self, receipts: Sequence[Mapping[str, Any]]) -> State:
        """One head's receipts as one state."""
        inward = [{part: self.inward(one[part]) for part in ("m", "l", "u")} for one in receipts]
        return placement_receipts.merged(inward, array_namespace(inward[0]["u"]))

    def plc_output(self, asked: Asked, receipts: Sequence[Request]) -> Result:
        """Output and LSE of receipts that cover the support, head by head."""
        offload.accept(self.plc_overlap_rules(asked, receipts))
        offload.accept(self.plc_gap_rules(asked, receipts))
        done = [
            attention.finish(self.plc_merge(placement_receipts.of_head(receipts, head))) for head in range(asked.heads)
        ]
        out, lse = (np.concatenate([np.asarray(self.outward(one[part])) for one in done]) for part in (0, 1))
        return {"out": out, "lse": lse}

    def plc_asked(self, document: Request) -> Asked:
        """Query, cover and producers, checked."""
        asked = Asked.read(document)
        offload.accept(placement_receipts.asked_rules(asked))
        return asked

    def placement_reduce(self, request: Request) -> Result:
        """One output of all receipts."""
        document = request["document"]
        receipts = document["receipts"]
        with refusals_named():
            offload.accept([(document["fallback"]["published_ms"] is None, "FALLBACK_PUBLISHED")])
            asked = self.plc_asked(document)
            for one in receipts:
                offload.accept(self.plc_receipt_rules(asked, one))
            found = self.plc_output(asked, receipts)
        return {
            **found,
            "receipts": len(receipts),
            "support_sha256": placement_receipts.digest(asked.cover),
            "state_bytes": sum(one[part].nbytes for one in receipts for part in ("m", "l", "u") if part in one),
        }

    # sessions

    def placement_begin(self, request: Request) -> Result:
        """A new attempt."""
        with refusals_named():
            done = self.plc_attempt is None or self.plc_attempt.published is not None
            offload.accept([(done, "ATTEMPT_PENDING")])
            asked = self.plc_asked(request)
        self.plc_attempts += 1
        self.plc_attempt = Attempt(asked, request["fallback"])
        return {"attempt": self.plc_attempts}

    def plc_current(self) -> Attempt:
        """The present attempt."""
        if self.plc_attempt is None:
            raise Rejected("NO_ATTEMPT", "begin first")
        return self.plc_attempt

    def plc_open_rules(self, attempt: Attempt) -> Iterable[Rule]:
        """Nothing was published yet."""
        return attempt.open_rules()

    def plc_arrival_rules(self, attempt: Attempt, one: Request, at_ms: float) -> Iterable[Rule]:
        """What an arriving receipt has to meet besides its own rules."""
        yield at_ms <= attempt.deadline_ms, "RECEIPT_LATE"
        yield not placement_receipts.is_known(attempt.receipts, one), "RECEIPT_DUPLICATE"
        yield from self.plc_overlap_rules(attempt.asked, [*attempt.receipts, one])

    def plc_counted(self, attempt: Attempt, rules: Iterable[Rule]) -> None:
        """Raise the reason of the first rule that does not hold, and keep it."""
        try:
            offload.accept(rules)
        except Refusal as refusal:
            attempt.count(refusal.reason)
            raise Rejected(refusal.reason, refusal.detail) from None

    def placement_deliver(self, request: Request) -> Result:
        """Take one receipt."""
        attempt, one = self.plc_current(), request["receipt"]
        self.plc_counted(attempt, self.plc_open_rules(attempt))
        self.plc_counted(attempt, self.plc_receipt_rules(attempt.asked, one))
        self.plc_counted(attempt, self.plc_arrival_rules(attempt, one, request["at_ms"]))
        attempt.receipts.append(one)
        several = [placement_receipts.of_head(attempt.receipts, head) for head in range(attempt.asked.heads)]
        cover = attempt.asked.cover
        missing = [placement_receipts.without(cover, placement_receipts.covered(mine)) for mine in several]
        return {"accepted": len(attempt.receipts), "missing": missing}

    def plc_late(self, attempt: Attempt, at_ms: float) -> bool:
        """Whether the deadline has passed."""
        return at_ms > attempt.deadline_ms

    def placement_publish(self, request: Request) -> Result:
        """The output in time, or the fallback."""
        attempt = self.plc_current()
        self.plc_counted(attempt, self.plc_open_rules(attempt))
        output: Result = {}
        if self.plc_late(attempt, request["at_ms"]):
            attempt.deadline_missed = True
            published = attempt.fallback
        else:
            try:
                output = self.plc_output(attempt.asked, attempt.receipts)
            except Refusal as refusal:
                attempt.count(refusal.reason)
                raise Rejected(refusal.reason, refusal.detail) from None
            published = "support_partition"
        attempt.published = published
        self.plc_publications += 1
        return {"published": published, "publication_generation": self.plc_publications, **output}

    def placement_telemetry(self, request: Request) -> Result:
        """The record of the present attempt."""
        attempt = self.plc_current()
        return {
            "attempted": "support_partition",
            "published": attempt.published,
            "accepted": len(attempt.receipts),
            "rejected": [{"reason": reason, "count": count} for reason, count in attempt.rejected.items()],
            "deadline_missed": attempt.deadline_missed,
            "publication_generation": self.plc_publications,
        }

    # SparF

    def flash_channels(self, q: Any, count: int) -> tuple[list[int], float]:
        """Salient channels of one head's query, and their share."""
        return sparf.salient(q, count)

    def flash_scores(self, q: Any, k_channel: Any, channels: Sequence[int]) -> Any:
        """Scores of all rows over these channels."""
        return sparf.scores(q, k_channel, channels)

    def flash_factor(self, scale: float, share: float, width: int) -> float:
        """Factor of the importance."""
        return sparf.temperature(scale, share)

    def flash_rows(self, raw: Any, scale: float, count: int) -> list[int]:
        """Selected rows."""
        return sparf.ranked(raw, scale, count)

    def flash_alpha(self, weights: Any, positions: Sequence[int]) -> float:
        """Mass of the selected rows."""
        xp = array_namespace(weights)
        return float(xp.sum(xp.take(weights, xp.asarray(list(positions)), axis=0)))

    def flash_selection(self, request: Request) -> list[Selection]:
        """Of each query head, what it selects."""
        queries, keys = self.inward(request["q"]), self.inward(request["k_channel"])
        xp = array_namespace(queries, keys)
        queries = xp.astype(queries, xp.float32)
        found = []
        for query, head in enumerate(request["kv_head_of"]):
            q = queries[query, :]
            channels, share = self.flash_channels(q, request["channels"])
            raw = self.flash_scores(q, keys[head, :, :], channels)
            positions = self.flash_rows(raw, request["scale"], request["rows"])
            factor = self.flash_factor(request["scale"], share, request["q"].shape[1])
            alpha = self.flash_alpha(sparf.importance(raw, factor), positions)
            found.append(Selection(channels, share, positions, alpha))
        return found

    def flash_budget(self, request: Request) -> None:
        """Refuse a budget that cannot be met."""
        sparf.check_budget(request["channels"], request["rows"], request["q"].shape[1])

    def sparf_select(self, request: Request) -> Result:
        """Steps 1 to 4."""
        with refusals_named():
            sparf.check_channels(self.inward(request["q"]), self.inward(request["k_channel"]), request["kv_head_of"])
            self.flash_budget(request)
            found = self.flash_selection(request)
        return {
            "channels": [one.channels for one in found],
            "share": np.asarray([one.share for one in found], np.float32),
            "positions": [one.positions for one in found],
            "alpha": np.asarray([one.alpha for one in found], np.float32),
        }

    def flash_layout(self, layout: Request) -> Layout:
        """Pages, checked."""
        made = Layout(**layout)
        offload.accept(made.rules())
        return made

    def flash_reads(
        self,
        layout: Layout,
        rows: int,
        heads: tuple[int, Sequence[int]],
        channels: Sequence[Sequence[int]],
        positions: Sequence[Sequence[int]],
    ) -> list[HeadRead]:
        """Of each K/V head, the pages of all its query heads; ``heads`` is H_kv and the map."""
        kv_heads, kv_head_of = heads
        found = []
        for head in range(kv_heads):
            mine = [query for query, reads in enumerate(kv_head_of) if reads == head]
            of = ([channels[query] for query in mine], [positions[query] for query in mine])
            found.append(sparf.head_read(layout, rows, *of))
        return found

    def flash_ledger(self, layout: Layout, rows: int, reads: Sequence[HeadRead]) -> sparf.Pages:
        """Bytes of these pages."""
        return sparf.ledger(layout, rows, reads)

    def flash_units(self, several: Sequence[Sequence[int]], limit: int) -> Iterable[Rule]:
        """Units exist, each once, ascending."""
        return sparf.units_rules(several, limit)

    def sparf_pages(self, request: Request) -> Result:
        """Steps 2 and 5 as pages."""
        heads = request["kv_heads"], request["kv_head_of"]
        rows = request["rows"]
        with refusals_named():
            placement.check_map(request["kv_head_of"], len(request["kv_head_of"]), request["kv_heads"])
            layout = self.flash_layout(request["layout"])
            for name, limit in (("channels", layout.key_channels), ("positions", rows)):
                offload.accept(self.flash_units(request[name], limit))
                offload.accept([(len(request[name]) == len(request["kv_head_of"]), "SHAPE_MISMATCH")])
        reads = self.flash_reads(layout, rows, heads, request["channels"], request["positions"])
        made = asdict(self.flash_ledger(layout, rows, reads))
        storage = {name: made.pop(name) for name in ("key_token_bytes", "key_channel_bytes", "value_bytes")}
        return {
            "channel_pages": [one.channel_pages for one in reads],
            "token_pages": [one.token_pages for one in reads],
            **made,
            "storage": storage,
        }

    def flash_check_index(self, index: Mapping[str, int], rows: int) -> None:
        """Refuse copies that hold other rows."""
        sparf.check_index(index, rows)

    def flash_mean(self, mean: Any, rows: int, new: Any) -> Any:
        """Mean of V after new rows."""
        return self.outward(sparf.appended_mean(self.inward(mean), rows, self.inward(new)))

    def flash_written(self, layout: Layout, heads: int, first: int, count: int) -> tuple[int, int]:
        """Pages by token and by channel that new rows touch."""
        token = heads * sparf.touched(first, count, layout.page_rows)
        channel = heads * sparf.blocks(layout.key_channels, layout.page_channels)
        return token, channel * sparf.touched(first, count, layout.channel_page_rows)

    def flash_indexed(self, index: Mapping[str, int], count: int) -> dict[str, int]:
        """Rows of each copy after new ones."""
        return {name: rows + count for name, rows in index.items()}

    def sparf_append(self, request: Request) -> Result:
        """New rows into every copy."""
        v, mean, heads, index = request["v"], request["v_mean"], request["kv_heads"], request["index"]
        wide = (heads, request["layout"]["value_channels"])
        with refusals_named():
            if v.dtype != mean.dtype or "float" not in str(v.dtype):
                raise Refusal("DTYPE_MISMATCH", f"v and v_mean are {v.dtype} and {mean.dtype}")
            if v.ndim != 3 or mean.shape != wide or v.shape[1:] != wide:
                raise Refusal("SHAPE_MISMATCH", f"v and v_mean have shapes {v.shape} and {mean.shape}")
            layout = self.flash_layout(request["layout"])
            self.flash_check_index(index, index["token_rows"])
        count = v.shape[0]
        token, channel = self.flash_written(layout, heads, index["token_rows"], count)
        return {
            "index": self.flash_indexed(index, count),
            "token_pages": token,
            "channel_pages": channel,
            "written_bytes": (2 * token + channel) * layout.page_bytes,
            "v_mean": np.asarray(self.flash_mean(mean, index["token_rows"], v)),
        }

    def flash_allowed(self, request: Request) -> None:
        """Refuse a request that did not opt in."""
        if "sparf" not in request["approximations"]:
            raise Refusal("APPROXIMATION_NOT_ALLOWED", "the request did not opt into sparf")

    def flash_exact(self, request: Request, query: int, one: Selection) -> Any:
        """Attention of one query head over its selected rows, [d_v]."""
        q, k, v = (self.inward(request[name]) for name in ("q", "k", "v"))
        head = request["kv_head_of"][query]
        return sparf.attended(q[query : query + 1, :], k, v, head, one.positions, request["scale"])

    def flash_corrected(self, out: Any, alpha: float, mean: Any) -> Any:
        """The mean's correction."""
        return sparf.corrected(out, alpha, mean)

    def sparf_attend(self, request: Request) -> Result:
        """All seven steps."""
        names = ("q", "k", "k_channel", "v", "v_mean")
        q, k, k_channel, v, means = (self.inward(request[name]) for name in names)
        kv_head_of = request["kv_head_of"]
        with refusals_named():
            self.flash_allowed(request)
            rows = self.inward(np.arange(request["k"].shape[0]))
            attention.check_rows(q, k, v, kv_head_of, rows, Mask(causal=False), None)
            sparf.check_copies(request, k, k_channel, v, means)
            self.flash_check_index(request["index"], k.shape[0])
            self.flash_budget(request)
            layout = self.flash_layout(request["layout"])
            found = self.flash_selection(request)
        outs = []
        for query, one in enumerate(found):
            with refusals_named():
                exact = self.flash_exact(request, query, one)
            outs.append(self.outward(self.flash_corrected(exact, one.alpha, means[kv_head_of[query], :])))
        selected = [one.channels for one in found], [one.positions for one in found]
        reads = self.flash_reads(layout, k.shape[0], (k.shape[1], kv_head_of), *selected)
        made = self.flash_ledger(layout, k.shape[0], reads)
        return {
            "exactness": "approximate",
            "channels": selected[0],
            "positions": selected[1],
            "alpha": np.asarray([one.alpha for one in found], np.float32),
            "out": np.stack([np.asarray(out) for out in outs]),
            "physical_bytes": made.physical_bytes,
            "logical_bytes": made.logical_bytes,
        }
