"""The memory ops of the built-in adapter: units, events, clusters, their losses, and the two kinds of pools."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, ClassVar

from kvassay_reference.memory import clusters, events, losses, pool, records, streams, units
from kvassay_reference.memory.clusters import Index
from kvassay_reference.memory.pool import Rule
from kvassay_reference.memory.rows import check_history, listed
from kvassay_reference.memory.session import Session, Settings

from ..adapters.base import Rejected
from .reference_attention import refusals_named
from .reference_part import ReferencePart

Request = Mapping[str, Any]
Result = dict[str, Any]


class MemoryReference(ReferencePart):
    """The memory ops. Faults override one of the small methods, or one of the modules' functions that they hand on."""

    own_profiles: ClassVar[frozenset[str]] = frozenset(
        {
            "memory-units",
            "memory-events",
            "memory-clusters",
            "memory-cluster-build",
            "memory-session",
            "memory-recall",
            "memory-search",
            "memory-pool",
            "memory-stream",
        }
    )
    own_variants: ClassVar[frozenset[str]] = frozenset(
        {"infllm/code", "emllm/code", "emllm/chunk", "clusterkv/code", "clusterkv/pad"}
    )
    mem_session: Session | None = None

    def open(self) -> None:
        """No cache is open."""
        super().open()
        self.mem_session = None

    # InfLLM

    mem_unit_regions = staticmethod(units.regions)
    mem_unit_influence = staticmethod(units.influence)
    mem_unit_representatives = staticmethod(units.representatives)
    mem_unit_support = staticmethod(units.support_of)
    mem_unit_position_scores = staticmethod(units.position_scores)

    def infllm_build(self, request: Request) -> Result:
        """Regions, influence and representatives."""
        with refusals_named():
            built = units.build(
                self.inward(request["q"]),
                self.inward(request["k"]),
                request["kv_head_of"],
                initial_rows=request["initial_rows"],
                local_rows=request["local_rows"],
                unit_rows=request["unit_rows"],
                count=request["representatives"],
                cut=self.mem_unit_regions,
                weigh=self.mem_unit_influence,
                pick=self.mem_unit_representatives,
            )
        found = built.regions
        weights = self.outward(built.influence)
        return {
            "initial": list(found.initial),
            "units": [list(span) for span in found.units],
            "remainder": list(found.remainder),
            "local": list(found.local),
            "influence": weights.transpose(0, 2, 1).tolist(),
            "representatives": self.outward(built.representatives).tolist(),
        }

    def mem_unit_scores(self, request: Request) -> Any:
        """[H_q, units]."""
        q, table = self.inward(request["q"]), self.inward(request["representatives"])
        units.check_lookup(q, table, request["kv_head_of"])
        return self.outward(units.lookup_scores(q, table, request["kv_head_of"]))

    def mem_unit_choice(self, scores: Any, count: int) -> list[list[int]]:
        """The best units of each line."""
        return units.choose_units(scores, count)

    def infllm_lookup(self, request: Request) -> Result:
        """Scores and units."""
        with refusals_named():
            scores = self.mem_unit_scores(request)
        if request.get("rule") == "infllm/code":
            scores = scores / (request["q"].shape[0] * request["representatives"].shape[1])
        if request["sharing"] == "layer":
            scores = scores.sum(axis=0)[None, :]
        return {"scores": scores.tolist(), "units": self.mem_unit_choice(scores, request["top_units"])}

    def infllm_attend(self, request: Request) -> Result:
        """Attention of the last row."""
        with refusals_named():
            k, v = self.inward(request["k"]), self.inward(request["v"])
            check_history(k, v)
            found = self.mem_unit_regions(
                k.shape[0], request["initial_rows"], request["local_rows"], request["unit_rows"]
            )
            recalled = units.attend(
                self.inward(request["q"]),
                k,
                v,
                request["kv_head_of"],
                scale=request["scale"],
                found=found,
                units=request["units"],
                local_rows=request["local_rows"],
                rope_base=request["rope_base"],
                gather=self.mem_unit_support,
                score=self.mem_unit_position_scores,
            )
        return {
            "support": recalled.support,
            "out": self.outward(recalled.out),
            "lse": self.outward(recalled.lse),
        }

    def mem_unit_cache(self, request: Request) -> units.UnitCache:
        """An empty cache."""
        forget = request.get("rule") == "infllm/code"
        return units.UnitCache(request["capacity"], request["policy"], request["decay"], forget=forget)

    def infllm_cache(self, request: Request) -> Result:
        """Steps of a unit cache."""
        cache = self.mem_unit_cache(request)
        with refusals_named():
            steps = [asdict(cache.step(one["units"], one["scores"])) for one in request["steps"]]
        resident = [{"unit": unit, "value": cache.values[unit]} for unit in sorted(cache.values)]
        return {"steps": steps, "resident": resident}

    def mem_stream_geometry(self, request: Request) -> streams.Geometry:
        """What both streams share."""
        return streams.Geometry(
            request["initial_rows"],
            request["local_rows"],
            request["step_rows"],
            request["chunks"],
            request["representatives"],
            request["rope_base"],
            request.get("rule", "").endswith("/code"),
        )

    mem_unit_stream: ClassVar[type[streams.UnitStream]] = streams.UnitStream
    mem_event_stream: ClassVar[type[streams.EventStream]] = streams.EventStream

    def mem_stream_rows(self, request: Request) -> tuple[Any, Any, Any, Sequence[int], streams.Geometry]:
        """Arrays, head map and geometry."""
        q, k, v = (self.inward(request[name]) for name in "qkv")
        return q, k, v, request["kv_head_of"], self.mem_stream_geometry(request)

    def infllm_stream(self, request: Request) -> Result:
        """A whole history."""
        stream = self.mem_unit_stream(
            *self.mem_stream_rows(request),
            unit_rows=request["unit_rows"],
            top_units=request["top_units"],
            cached_units=request["cached_units"],
            shared=request["sharing"] == "layer",
        )
        with refusals_named():
            out = stream.run()
        return {
            "out": self.outward(out),
            "lookups": stream.lookups,
            "representatives": [{"scores": listed(one.scores), "rows": one.representatives} for one in stream.sealed],
            "vectors": self.outward(stream.vectors()),
            "initial_rows": stream.initial,
            "remainder_rows": stream.done - stream.start,
            "cached": [
                [{"unit": unit, "value": cache.values[unit]} for unit in sorted(cache.values)]
                for cache in stream.caches
            ],
        }

    # EM-LLM

    def mem_event_marks(self, request: Request) -> events.Marked:
        """Thresholds and boundaries."""
        past = events.everything if request.get("rule") == "emllm/chunk" else events.trailing
        surprise = self.inward(request["surprise"])
        return events.mark(surprise, request["window"], request["gamma"], request["ddof"], past)

    def emllm_boundaries(self, request: Request) -> Result:
        """Thresholds and candidates."""
        with refusals_named():
            return self.mem_event_marks(request)._asdict()

    def mem_event_graph(self, request: Request) -> Any:
        """[T, T]."""
        k = self.inward(request["k"])
        check_history(k)
        return events.similarity(k, clipped=request["similarity"] == "clipped")

    def emllm_graph(self, request: Request) -> Result:
        """Similarity of rows."""
        with refusals_named():
            return {"adjacency": self.outward(self.mem_event_graph(request))}

    mem_metrics: ClassVar[Mapping[str, events.Metric]] = events.METRICS
    mem_code_metrics: ClassVar[Mapping[str, events.Metric]] = events.CODE

    def emllm_quality(self, request: Request) -> Result:
        """A metric at one cut."""
        table = self.mem_code_metrics if request.get("rule") == "emllm/code" else self.mem_metrics
        with refusals_named():
            graph = self.inward(request["adjacency"])
            return {"value": events.quality(graph, request["cut"], table[request["metric"]])}

    mem_cut_window = staticmethod(events.window_of)
    mem_cut_choice = staticmethod(events.pick)

    def mem_event_refinement(self, request: Request) -> events.Refined:
        """Candidates moved to better cuts."""
        graph, least = self.mem_event_graph(request), request["minimum_rows"]
        if request.get("rule") == "emllm/code":
            return events.refine_as_published(graph, request["candidates"], request["metric"], least=least)
        return events.refine(
            graph,
            request["candidates"],
            request["metric"],
            least=least,
            radius=request["radius"],
            metrics=self.mem_metrics,
            window=self.mem_cut_window,
            choose=self.mem_cut_choice,
        )

    def emllm_refine(self, request: Request) -> Result:
        """Cuts, what each was compared with, and where."""
        with refusals_named():
            return self.mem_event_refinement(request)._asdict()

    def mem_event_seal(self, request: Request) -> events.Sealed:
        """Events of a span."""
        return events.seal(
            request["boundaries"],
            (request["rows"][0], request["rows"][1]),
            least=request["minimum_rows"],
            most=request["maximum_rows"],
            closed=request["tail"] == "closed",
        )

    def emllm_seal(self, request: Request) -> Result:
        """Events and what is open."""
        with refusals_named():
            found = self.mem_event_seal(request)
        return {"events": [list(event) for event in found.events], "open": list(found.open)}

    mem_event_representatives = staticmethod(events.representatives)
    mem_event_summary = staticmethod(events.summary)

    def emllm_summarise(self, request: Request) -> Result:
        """Representatives and summaries."""
        with refusals_named():
            chosen, summaries = events.summarise(
                self.inward(request["k"]),
                events.read_events(request["events"]),
                self.inward(request["influence"]),
                request["representatives"],
                whole=request["summary"] == "all-rows",
                represent=self.mem_event_representatives,
                sum_up=self.mem_event_summary,
            )
        return {"representatives": [listed(one) for one in chosen], "summaries": self.outward(summaries)}

    mem_event_scores = staticmethod(events.scores_of)
    mem_event_fill = staticmethod(events.fill)
    mem_event_neighbours = staticmethod(events.neighbours)

    def emllm_retrieve(self, request: Request) -> Result:
        """Events and rows."""
        with refusals_named():
            found = events.retrieve(
                self.inward(request["q"]),
                self.inward(request["summaries"]),
                request["kv_head_of"],
                events.read_events(request["events"]),
                similarity_tokens=request["similarity_tokens"],
                contiguity_tokens=request["contiguity_tokens"],
                radius=request["radius"],
                side=request["side"],
                crossing=request["crossing"],
                score=self.mem_event_scores,
                take=self.mem_event_fill,
                extend=self.mem_event_neighbours,
            )
        return {**found._asdict(), "tokens": len(found.rows)}

    def emllm_stream(self, request: Request) -> Result:
        """A whole history, as the published code takes it."""
        stream = self.mem_event_stream(
            *self.mem_stream_rows(request),
            surprise=request["surprise"].tolist(),
            gamma=request["gamma"],
            minimum_rows=request["minimum_rows"],
            maximum_rows=request["maximum_rows"],
            memory_rows=request["memory_rows"],
            contiguity=request["contiguity"],
        )
        with refusals_named():
            out = stream.run()
        return {
            "out": self.outward(out),
            "lookups": stream.lookups,
            "sizes": [one.rows[1] - one.rows[0] for one in stream.sealed],
            "vectors": self.outward(stream.vectors()),
            "initial_rows": stream.initial,
            "remainder_rows": stream.done - stream.start,
            "marks": stream.marks[stream.start :],
        }

    # ClusterKV

    mem_cluster_assign = staticmethod(clusters.nearest)
    mem_cluster_update: ClassVar[Any] = None

    def mem_cluster_build(self, request: Request) -> clusters.Clustered:
        """Clusters of a span."""
        return clusters.build(
            self.inward(request["k"]),
            request["initial"],
            request["iterations"],
            raw=request.get("rule") == "clusterkv/code",
            assign=self.mem_cluster_assign,
            update=self.mem_cluster_update,
        )

    def mem_cluster_index(self, found: clusters.Clustered, first: int) -> Index:
        """Sizes, sums and members."""
        return clusters.index_of(found, first)

    def mem_write_index(self, index: Index) -> Result:
        """The members of an index in a reply."""
        return {
            "centroids": self.outward(index.centroids),
            "sizes": listed(index.sizes),
            "prefix_sums": listed(index.prefix_sums),
            "members": listed(index.members),
        }

    def mem_read_index(self, data: Request) -> Index:
        """An index of a request, checked."""
        index = clusters.read_index(data, self.inward(data["centroids"]))
        clusters.check_index(index)
        return index

    def clusterkv_build(self, request: Request) -> Result:
        """Clusters."""
        with refusals_named():
            found = self.mem_cluster_build(request)
            index = self.mem_cluster_index(found, request["first_position"])
        return {**self.mem_write_index(index), "labels": listed(found.labels), "rounds": found.rounds}

    mem_cluster_products = staticmethod(clusters.products)
    mem_cluster_quotas = staticmethod(clusters.quotas)
    mem_cluster_members = staticmethod(clusters.members_within)

    def clusterkv_select(self, request: Request) -> Result:
        """Clusters by rank, rows by budget."""
        rule, budget = request.get("rule"), request["budget"]
        with refusals_named():
            found = clusters.select(
                self.inward(request["q"]),
                self.mem_read_index(request["index"]),
                request["kv_head_of"],
                budget - request["sink_rows"] if rule == "clusterkv/code" else budget,
                by_query_head=request["sharing"] == "query_head",
                score=self.mem_cluster_products,
                share=clusters.unpadded if rule == "clusterkv/pad" else self.mem_cluster_quotas,
                gather=self.mem_cluster_members,
            )
        return {
            "scores": listed(found.scores),
            "order": listed(found.order),
            "ordered_sums": listed(found.ordered_sums),
            "rows": found.rows,
            "trimmed": found.trimmed,
        }

    mem_cluster_append = staticmethod(clusters.appended)

    def mem_check_window(self, index: Index, request: Request) -> None:
        """Refuse a window that is not the sealed next one."""
        shape = request["k"].shape
        if shape[1:] != (index.centroids.shape[0], index.centroids.shape[2]):
            raise Rejected("SHAPE_MISMATCH", "the window's rows are of other heads or channels")
        if shape[0] != request["window_rows"]:
            raise Rejected("WINDOW_NOT_SEALED", f"{shape[0]} of {request['window_rows']} rows")
        ends = [max(line, default=request["first_position"] - 1) + 1 for line in listed(index.members)]
        if set(ends) != {request["first_position"]}:
            raise Rejected("WINDOW_NOT_NEXT", f"clusters end at {ends}")

    def clusterkv_append(self, request: Request) -> Result:
        """The next generation."""
        with refusals_named():
            index = self.mem_read_index(request["index"])
            self.mem_check_window(index, request)
            fresh = self.mem_cluster_index(self.mem_cluster_build(request), request["first_position"])
        grown = self.mem_cluster_append(index, fresh)
        return {"generation": grown.generation, **self.mem_write_index(grown)}

    mem_cluster_plan = staticmethod(clusters.plan)

    def clusterkv_plan(self, request: Request) -> Result:
        """How many clusters, and what is read directly."""
        found = asdict(self.mem_cluster_plan(**request))
        return {**found, "direct": list(found["direct"])}

    mem_session_type: ClassVar[type[Session]] = Session

    def clusterkv_open(self, request: Request) -> Result:
        """A cache with its first generation."""
        names = [name for name in Settings.__dataclass_fields__ if name in request]
        with refusals_named():
            k, v = self.inward(request["k"]), self.inward(request["v"])
            self.mem_session = self.mem_session_type(k, v, Settings(**{name: request[name] for name in names}))
        return self.mem_status()

    def mem_opened(self) -> Session:
        """The cache that is open."""
        if self.mem_session is None:
            raise Rejected("NOTHING_PUBLISHED", "no cache is open")
        return self.mem_session

    def mem_status(self) -> Result:
        """What is published, and what is read directly."""
        one = self.mem_opened()
        index = self.mem_write_index(one.index)
        del index["centroids"]
        return {
            "generation": one.index.generation,
            **index,
            "frontier": one.rows,
            "direct": [one.covered, one.rows],
            "sealed_windows": one.sealed_windows,
            "authority_end": one.authority_end,
            "staged": None if one.staged is None else one.staged.generation,
        }

    def clusterkv_decode(self, request: Request) -> Result:
        """New rows."""
        with refusals_named():
            self.mem_opened().decode(self.inward(request["k"]), self.inward(request["v"]))
        return self.mem_status()

    def clusterkv_stage(self, request: Request) -> Result:
        """Clusters of the oldest sealed window."""
        with refusals_named():
            self.mem_opened().stage()
        return self.mem_status()

    def clusterkv_offload(self, request: Request) -> Result:
        """Rows valid below the GPU."""
        with refusals_named():
            self.mem_opened().offload(request["end"], request["cache_generation"])
        return self.mem_status()

    def clusterkv_publish(self, request: Request) -> Result:
        """The staged generation takes over."""
        with refusals_named():
            self.mem_opened().publish(request["generation"], request["complete"])
        return self.mem_status()

    def clusterkv_discard(self, request: Request) -> Result:
        """The staged generation is given up."""
        with refusals_named():
            self.mem_opened().discard(request["generation"])
        return self.mem_status()

    def clusterkv_status(self, request: Request) -> Result:
        """What is published."""
        return self.mem_status()

    def clusterkv_query(self, request: Request) -> Result:
        """Selection and attention."""
        with refusals_named():
            found = self.mem_opened().query(self.inward(request["q"]), request["generation"], request["budget"])
        return {
            "generation": found.generation,
            "order": listed(found.selected.order),
            "rows": found.selected.rows,
            "support": found.supports,
            "out": self.outward(found.out),
            "lse": self.outward(found.lse),
        }

    # all three

    def mem_attended(self, request: Request, supports: Sequence[Sequence[int]], per: str, **span: int) -> losses.Kept:
        """Attention over a support, and its loss."""
        return losses.attend(
            self.inward(request["q"]),
            self.inward(request["k"]),
            self.inward(request["v"]),
            request["kv_head_of"],
            supports,
            per=per,
            scale=request["scale"],
            first_position=span.get("first_position", 0),
            committed=span.get("committed", request["k"].shape[0]),
        )

    def memory_attend(self, request: Request) -> Result:
        """Attention over selected rows and what it loses."""
        span = {name: request[name] for name in ("first_position", "committed")}
        with refusals_named():
            kept = self.mem_attended(request, request["support"], request["per"], **span)
        return {
            "out": self.outward(kept.out),
            "lse": self.outward(kept.lse),
            "retained_mass": listed(kept.retained_mass),
            "output_error": listed(kept.output_error),
        }

    def mem_recalled_rows(self, request: Request) -> list[list[int]]:
        """Rows by K/V head."""
        return losses.search(
            self.inward(request["q"]),
            self.inward(request["k"]),
            request["kv_head_of"],
            scale=request["scale"],
            initial_rows=request["initial_rows"],
            local_rows=request["local_rows"],
            budget=request["budget"],
        )

    def memory_search(self, request: Request) -> Result:
        """Rows by an index of one's own, and attention over them."""
        with refusals_named():
            check_history(self.inward(request["k"]), self.inward(request["v"]))
            rows = self.mem_recalled_rows(request)
            kept = self.mem_attended(request, rows, "kv_head")
        return {"rows": rows, "out": self.outward(kept.out)}

    def memory_expand(self, request: Request) -> Result:
        """Rows of spans."""
        with refusals_named():
            positions, repeated = losses.expand(request["spans"], request["committed"])
        return {"positions": positions, "count": len(positions), "repeated": repeated}

    def memory_cost(self, request: Request) -> Result:
        """Bytes and time."""
        found = asdict(losses.cost(request))
        return {**found, "decision_ms": math.fsum([found["decision_ms"]])}

    def mem_pool_rules(self, document: Request) -> Iterable[Rule]:
        """The rules of a pool."""
        return pool.rules(document)

    def mem_record_rules(self, document: Request) -> Iterable[Rule]:
        """The rules of a pool written row by row."""
        return records.rules(document)

    def memory_admit(self, request: Request) -> Result:
        """Accept a pool or reject it."""
        with refusals_named():
            pool.accept(self.mem_pool_rules(request["document"]))
        return {}

    def memory_audit(self, request: Request) -> Result:
        """The same, row by row."""
        with refusals_named():
            pool.accept(self.mem_record_rules(request["document"]))
        return {}
