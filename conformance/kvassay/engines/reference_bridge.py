"""The ops of RetrievalAttention: a graph of keys that queries bridge, and searches on it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from kvassay_reference import attention
from kvassay_reference.attention import State
from kvassay_reference.indexes import bridge, rows

from .reference_attention import refusals_named
from .reference_index_store import IndexStoreReference, Request, Result, Supports, row_bytes


class BridgeReference(IndexStoreReference):
    """RetrievalAttention's ops."""

    own_profiles: ClassVar[frozenset[str]] = frozenset({"bridge", "bridge-exact"})
    own_variants: ClassVar[frozenset[str]] = frozenset({"retrievalattention/code"})

    def bridge_exact(self, request: Request) -> Result:
        """Exact neighbours."""
        q, k = self.inward(request["q"]), self.inward(request["k"])
        first, end = request["rows"]
        with refusals_named():
            rows.need(q.shape[1] == k.shape[2], "SHAPE_MISMATCH")
            rows.check_heads(request["kv_head_of"], q.shape[0], k.shape[1])
            rows.need(0 <= first <= end <= k.shape[0], "CANDIDATE_OUT_OF_RANGE")
        found = [
            bridge.exact_neighbours(q[i : i + 1, ...], k[first:end, h, :], request["top_k"])[0]
            for i, h in enumerate(request["kv_head_of"])
        ]
        return {"ids": [[first + i for i in ids] for ids in found]}

    def bridged_project(self, neighbours: Supports) -> list[bridge.Edge]:
        """Edges of the key graph."""
        return bridge.project(neighbours)

    def bridged_neighbours(self, request: Request) -> list[list[int]]:
        """Neighbours of the prefill queries."""
        return bridge.exact_neighbours(
            self.inward(request["queries"]), self.inward(request["keys"]), request["k_build"]
        )

    def bridge_build(self, request: Request) -> Result:
        """The graph of one query head."""
        with refusals_named():
            rows.need(request["keys"].shape[1] == request["queries"].shape[1], "SHAPE_MISMATCH")
            rows.need(request["k_build"] <= request["keys"].shape[0], "NEIGHBOURS_EXCEED_ROWS")
        near = self.bridged_neighbours(request)
        edges = self.bridged_project(near)
        return {
            "neighbours": near,
            "edges": [list(edge) for edge in edges],
            "isolated": bridge.isolated(edges, request["keys"].shape[0]),
        }

    def bridged_graph(self, request: Request) -> bridge.Graph:
        """Keys with edges."""
        return bridge.Graph(self.inward(request["keys"]), request["edges"])

    def bridge_search(self, request: Request) -> Result:
        """Candidates of a search on the graph."""
        with refusals_named():
            rows.need(request["keys"].shape[1:] == request["q"].shape, "SHAPE_MISMATCH")
            graph = self.bridged_graph(request)
            found = graph.search(self.inward(request["q"]), request["entries"], request["width"], request["top_k"])
        return {"ids": found.ids, "visited": found.visited}

    def bridged_persistent(self, request: Request, total: int) -> list[int]:
        """Sink and recent rows."""
        return bridge.persistent_rows(total, request["sink"], request["recent"])

    def bridged_fresh(self, retrieved: Sequence[int], kept: Sequence[int]) -> list[int]:
        """Retrieved rows that are not there already."""
        return bridge.without(retrieved, kept)

    def bridged_attend(self, request: Request, supports: Supports) -> State:
        """Every query head over its rows."""
        return rows.attend_heads(
            self.inward(request["q"]),
            self.inward(request["k"]),
            self.inward(request["v"]),
            supports,
            request["kv_head_of"],
            request["scale"],
            self.index_accumulate,
        )

    def bridged_merge(self, a: State, b: State) -> State:
        """Both states as one."""
        return attention.merge_two(a, b)

    def bridge_step(self, request: Request) -> Result:
        """Two states and their merge."""
        total = request["k"].shape[0]
        with refusals_named():
            rows.check_rows(request["q"], request["k"], request["v"], request["kv_head_of"])
            rows.need(len(request["retrieved"]) == len(request["kv_head_of"]), "SHAPE_MISMATCH")
            for ids in request["retrieved"]:
                rows.check_ids(ids, total)
        kept = self.bridged_persistent(request, total)
        fresh = [self.bridged_fresh(ids, kept) for ids in request["retrieved"]]
        states = self.bridged_attend(request, [kept] * len(fresh)), self.bridged_attend(request, fresh)
        return {
            "union": [sorted([*kept, *ids]) for ids in fresh],
            "dropped": [len(ids) - len(new) for ids, new in zip(request["retrieved"], fresh, strict=True)],
            "persistent": self.write_state(states[0]),
            "retrieved": self.write_state(states[1]),
            "state": self.write_state(self.bridged_merge(*states)),
        }

    def bridge_calibrate(self, request: Request) -> Result:
        """Recall, visits, drift."""
        with refusals_named():
            found = bridge.calibrate(
                request["exact"],
                request["found"],
                request["visited"],
                request["rows"],
                self.inward(request["prefill_queries"]),
                self.inward(request["held_out_queries"]),
            )
        return found._asdict()

    def bridged_drifted(self, request: Request) -> bool:
        """Whether measured recall says nothing of these queries."""
        return bool(request["drift"] > request["drift_limit"])

    def bridge_escalate(self, request: Request) -> Result:
        """A wider search before exact rows."""
        with refusals_named():
            budgets = [bridge.Budget(one["width"], one["recall"]) for one in request["budgets"]]
            action, width = bridge.escalate(
                budgets, request["recall_floor"], self.bridged_drifted(request), request["exact_allowed"]
            )
        return {"action": action, "width": width}

    def bridge_ledger(self, request: Request) -> Result:
        """Indexes and payloads apart."""
        with refusals_named():
            rows.check_heads(request["kv_head_of"], len(request["edges"]), request["kv_heads"])
        row = row_bytes(request)
        shared: list[set[int]] = [set() for _ in range(request["kv_heads"])]
        for one, ids in zip(request["kv_head_of"], request["retrieved"], strict=True):
            shared[one].update(ids)
        return {
            "indexes": len(request["edges"]),
            "payload_copies": request["kv_heads"],
            "index_bytes": sum(request["edges"]) * 2 * request["id_bytes"],
            "payload_bytes": request["kv_heads"] * request["rows"] * row,
            "gather_bytes": sum(map(len, shared)) * row,
        }
