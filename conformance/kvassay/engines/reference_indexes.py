"""The index ops of the built-in adapter: the life of an index, records, and four methods."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from kvassay_reference import attention
from kvassay_reference.attention import State
from kvassay_reference.indexes import bridge, magicpig, pq, record, rows, squeezed, store

from .reference_attention import refusals_named
from .reference_part import ReferencePart

Request = Mapping[str, Any]
Result = dict[str, Any]
Supports = Sequence[Sequence[int]]
MOST_PAIRED = 256
"""Centroids up to which two subspaces share a table."""


class IndexStoreReference(ReferencePart):
    """Pools, entries and leases; the reduction of parts; records. Faults override one of the small methods."""

    own_profiles: ClassVar[frozenset[str]] = frozenset({"index-store", "index-reduce", "index-record"})
    index_pools: dict[str, store.Pool]

    def open(self) -> None:
        """Forget every pool."""
        super().open()
        self.index_pools = {}

    def index_pool(self, request: Request) -> store.Pool:
        """The pool that a request names."""
        rows.need(request["pool"] in self.index_pools, "UNKNOWN_POOL", request["pool"])
        return self.index_pools[request["pool"]]

    def index_new_pool(self, request: Request) -> store.Pool:
        """An empty pool."""
        return store.Pool(request["channels"], request["value_channels"])

    def indexes_open(self, request: Request) -> Result:
        """Begin a pool."""
        with refusals_named():
            rows.need(request["pool"] not in self.index_pools, "POOL_EXISTS")
        self.index_pools[request["pool"]] = self.index_new_pool(request)
        return self.index_pools[request["pool"]].view()

    def indexes_append(self, request: Request) -> Result:
        """Store rows."""
        with refusals_named():
            pool = self.index_pool(request)
            ids, positions = pool.append(self.inward(request["k"]), self.inward(request["v"]))
            return {"ids": ids, "positions": positions, **pool.view()}

    def indexes_publish(self, request: Request) -> Result:
        """Make rows searchable."""
        with refusals_named():
            pool = self.index_pool(request)
            pool.publish(request["ids"])
            return pool.view()

    def indexes_search(self, request: Request) -> Result:
        """Candidates under a lease."""
        with refusals_named():
            pool = self.index_pool(request)
            ids, lease = pool.search(self.inward(request["q"]), request["top_k"])
        return {
            "ids": ids,
            "index_generation": pool.index_generation,
            "row_map_generation": pool.row_map_generation,
            "lease": lease,
        }

    def indexes_validate(self, request: Request) -> Result:
        """Candidates that are rows, each once."""
        with refusals_named():
            pool = self.index_pool(request)
            pool.check(request["ids"], request["index_generation"], request["row_map_generation"])
        return {"ids": bridge.without(request["ids"], request["persistent"])}

    def indexes_gather(self, request: Request) -> Result:
        """Full rows."""
        with refusals_named():
            pool = self.index_pool(request)
            found = pool.gather(
                request["ids"], request["index_generation"], request["row_map_generation"], request["lease"]
            )
        return {
            "ids": list(request["ids"]),
            "positions": [slot.position for slot in found],
            "k": self.index_rows([slot.k for slot in found], pool.channels),
            "v": self.index_rows([slot.v for slot in found], pool.value_channels),
            "gather_bytes": pool.gather_bytes(len(found)),
        }

    def index_rows(self, found: Sequence[Any], width: int) -> Any:
        """Rows as one array, [n, width]."""
        return np.stack([self.outward(row) for row in found]) if found else np.zeros((0, width), np.float32)

    def indexes_release(self, request: Request) -> Result:
        """Give a lease back."""
        with refusals_named():
            pool = self.index_pool(request)
            pool.release(request["lease"])
            return pool.view()

    def indexes_evict(self, request: Request) -> Result:
        """Make rows unreachable."""
        with refusals_named():
            pool = self.index_pool(request)
            pool.evict(request["ids"])
            return pool.view()

    def indexes_reclaim(self, request: Request) -> Result:
        """Free slots."""
        with refusals_named():
            pool = self.index_pool(request)
            pool.reclaim(request["ids"])
            return pool.view()

    def indexes_compact(self, request: Request) -> Result:
        """Move rows together."""
        with refusals_named():
            pool = self.index_pool(request)
            moved = pool.compact()
            return {"moved": [list(pair) for pair in moved], **pool.view()}

    # reduction

    def index_check_parts(self, q: Any, parts: Sequence[Request]) -> None:
        """Refuse parts that are no parts of one support."""
        rows.check_once([one for part in parts for one in part["ids"]])
        width = parts[0]["v"].shape[1]
        for part in parts:
            same = part["k"].shape == (len(part["ids"]), q.shape[1]) and part["v"].shape == (len(part["ids"]), width)
            rows.need(same, "SHAPE_MISMATCH")
        for name, reason in record.FRAME[2:]:
            rows.need(len({part[name] for part in parts}) == 1, reason)

    def indexes_reduce(self, request: Request) -> Result:
        """States of the parts, merged."""
        with refusals_named():
            self.index_check_parts(request["q"], request["parts"])
        q = self.inward(request["q"])
        return {
            "state": self.write_state(attention.merge([self.index_part_state(q, part) for part in request["parts"]]))
        }

    def index_part_state(self, q: Any, part: Request) -> State:
        """Every query row over one part."""
        k, v = self.inward(part["k"]), self.inward(part["v"])
        every = range(k.shape[0])
        accumulate = self.index_accumulate
        return rows.stack([rows.attend(q[i, ...], k, v, every, part["scale"], accumulate) for i in range(q.shape[0])])

    @property
    def index_accumulate(self) -> str:
        """Dtype of scores and states."""
        return getattr(self, "accumulate", "float32")

    def index_floats(self, values: Any) -> list[float]:
        """An array [n] as plain numbers."""
        return [float(x) for x in values]

    def indexes_errors(self, request: Request) -> Result:
        """Four stages, each by itself."""
        with refusals_named():
            rows.check_rows(request["q"], request["k"], request["v"], request["kv_head_of"])
            for support in request["support"]:
                rows.check_ids(support, request["k"].shape[0])
                rows.check_once(support)
            rows.check_ids(request["gathered"]["ids"], request["k"].shape[0])
        every = {name: np.asarray(request[name], np.float64) for name in ("q", "k", "v", "proxies", "out")}
        return self.index_stages(every, request)

    def index_fetched(self, data: Mapping[str, Any], gathered: Request) -> tuple[Any, Any]:
        """K and V as the reduction got them: authoritative, with the fetched rows in place."""
        k, v = data["k"].copy(), data["v"].copy()
        k[list(gathered["ids"])], v[list(gathered["ids"])] = gathered["k"], gathered["v"]
        return k, v

    def index_stages(self, data: Mapping[str, Any], request: Request) -> Result:
        """Errors of every query head in float64."""
        scale, heads = request["scale"], request["kv_head_of"]
        scores = np.stack([data["k"][:, one, :] @ data["q"][query] for query, one in enumerate(heads)])
        weights = rows.softmax(scale * scores)
        k, v = self.index_fetched(data, request["gathered"])
        given = attention.output(
            rows.attend_heads(data["q"], k, v, request["support"], heads, scale, accumulate="float64")
        )
        moved = [np.max(np.abs(a - b), initial=0.0) for a, b in ((k, data["k"]), (v, data["v"]))]
        return {
            "representation": [float(x) for x in np.max(np.abs(scores - data["proxies"]), axis=1, initial=0.0)],
            "omitted_mass": [
                float(np.delete(w, list(s)).sum()) for w, s in zip(weights, request["support"], strict=True)
            ],
            "payload": float(max(moved)),
            "reduction": [float(x) for x in np.max(np.abs(data["out"] - given), axis=1)],
        }

    # records

    def index_rules(self, document: Request) -> Iterable[record.Rule]:
        """The rules of a record in their order."""
        return record.rules(document)

    def indexes_check(self, request: Request) -> Result:
        """Accept a record or reject it."""
        with refusals_named():
            for holds, reason in self.index_rules(request["document"]):
                rows.need(holds, reason)
        return {}


class QuantisedReference(IndexStoreReference):
    """PQCache's ops."""

    own_profiles: ClassVar[frozenset[str]] = frozenset({"pqcache", "pq-score"})
    own_variants: ClassVar[frozenset[str]] = frozenset({pq.PAPER, pq.AUGMENTED})

    def quantised_cluster(self, points: Any, first: Sequence[int], cap: int) -> pq.Clustering:
        """Lloyd's rounds on one subspace."""
        return pq.cluster(points, first, cap)

    def quantised_check_build(self, request: Request) -> None:
        """Refuse a build for what the chapter says."""
        total, _, channels = request["keys"].shape
        count, first = 1 << request["bits"], request["sink"]
        rows.need(channels % request["m"] == 0, "PQ_GEOMETRY_INVALID")
        rows.need(total - first > count, "TOO_FEW_ROWS_FOR_INDEX", f"{total - first} rows for {count} centroids")
        init = request["init_rows"]
        right = len(init) == len(set(init)) == count and all(first <= i < total for i in init)
        rows.need(right, "INIT_ROWS_INVALID")

    def pq_build(self, request: Request) -> Result:
        """Codebooks and codes of every K/V head."""
        with refusals_named():
            self.quantised_check_build(request)
        keys = self.inward(request["keys"])
        first = [i - request["sink"] for i in request["init_rows"]]
        centroids, codes, rounds = [], [], []
        for head in range(keys.shape[1]):
            parts = pq.split(keys[request["sink"] :, head, :], request["m"])
            made = [self.quantised_cluster(parts[:, j, :], first, request["iterations"]) for j in range(request["m"])]
            centroids.append(np.stack([self.outward(one.centres) for one in made]))
            codes.append(np.stack([self.outward(one.labels) for one in made], axis=1).tolist())
            rounds.append([one.rounds for one in made])
        return {"centroids": np.stack(centroids), "codes": codes, "rounds": rounds}

    def quantised_codes(self, request: Request) -> Any:
        """Codes [H_kv, n, m]."""
        heads, parts = request["centroids"].shape[:2]
        codes = np.asarray(request["codes"], np.int64).reshape(heads, -1, parts)
        return self.inward(codes)

    def quantised_check(self, request: Request, channels: int) -> None:
        """Refuse centroids and codes that do not fit."""
        pq.check_index(request["centroids"], request["codes"], channels)

    def quantised_channels(self, request: Request) -> int:
        """Channels that centroids have for these queries under this rule."""
        more = request["centroids"].shape[1] if request.get("rule") == pq.AUGMENTED else 0
        return int(request["q"].shape[1]) + more

    def quantised_encode(self, centroids: Any, keys: Any) -> list[list[int]]:
        """Codes of keys [n, d] of one head."""
        codes: list[list[int]] = self.outward(pq.Codebook(centroids).encode(keys)).tolist()
        return codes

    def quantised_leaving(self, window: Any, new: Any) -> Any:
        """Key of the row that leaves the window: the oldest, not the one that enters."""
        return window[0, ...]

    def pq_append(self, request: Request) -> Result:
        """A row enters the window; one may leave it."""
        with refusals_named():
            self.quantised_check(request, request["new_k"].shape[1])
        local = np.concatenate([request["local_k"], request["new_k"][None]])
        codes = [[list(row) for row in one] for one in request["codes"]]
        if local.shape[0] <= request["window"]:
            return {"codes": codes, "local_k": local, "evicted": None}
        key = self.quantised_leaving(local, request["new_k"])
        centroids = self.inward(request["centroids"])
        code = [self.quantised_encode(centroids[h, ...], self.inward(key[h : h + 1]))[0] for h in range(key.shape[0])]
        position = request["first_row"] + len(codes[0])
        return {
            "codes": [[*one, code[h]] for h, one in enumerate(codes)],
            "local_k": local[1:],
            "evicted": {"position": position, "code": code, "key": key},
        }

    def pq_score(self, request: Request) -> Result:
        """Table and scores of every query head."""
        with refusals_named():
            self.quantised_check(request, request["q"].shape[1])
            rows.check_heads(request["kv_head_of"], request["q"].shape[0], request["centroids"].shape[0])
        q, centroids, codes = (
            self.inward(request["q"]),
            self.inward(request["centroids"]),
            self.quantised_codes(request),
        )
        tables = [self.quantised_table(q[i, ...], centroids[h, ...]) for i, h in enumerate(request["kv_head_of"])]
        scores = [self.quantised_look_up(t, codes[h, ...]) for t, h in zip(tables, request["kv_head_of"], strict=True)]
        return {
            "table": np.stack([self.outward(one) for one in tables]),
            "scores": np.stack([self.outward(one) for one in scores]),
        }

    def quantised_table(self, q: Any, centroids: Any) -> Any:
        """Products of one query's parts with centroids."""
        return pq.tables(q, centroids)

    def quantised_look_up(self, table: Any, codes: Any) -> Any:
        """Sums of look-ups, through packed pairs where their tables are small."""
        if table.shape[1] > MOST_PAIRED or not codes.shape[0]:
            return pq.look_up(table, codes)
        return pq.PackedCodes(codes, table.shape[1]).scores(table)

    def quantised_regions(self, request: Request) -> pq.Regions:
        """Sink and recent window."""
        return pq.Regions(request["sink"], request["recent"])

    def quantised_select(self, request: Request, total: int) -> Supports:
        """Positions of each K/V head."""
        self.quantised_check(request, self.quantised_channels(request))
        return pq.select(
            self.inward(request["q"]),
            self.inward(request["centroids"]),
            self.quantised_codes(request),
            request["kv_head_of"],
            scale=request["scale"],
            rule=request["rule"],
            first_row=request["first_row"],
            span=self.quantised_regions(request).candidates(total),
            count=request["top_k"],
        )

    def pq_search(self, request: Request) -> Result:
        """Candidates and selection."""
        with refusals_named():
            selected = self.quantised_select(request, request["rows"])
        first, end = self.quantised_regions(request).candidates(request["rows"])
        return {"first": first, "end": end, "selected": selected}

    def quantised_payload(self, request: Request, support: Supports) -> tuple[Any, Any]:
        """K and V that attention reads: the pool's full rows."""
        return self.inward(request["k"]), self.inward(request["v"])

    def pq_step(self, request: Request) -> Result:
        """Search, gather, attend."""
        q, k, v = request["q"], request["k"], request["v"]
        with refusals_named():
            rows.check_rows(q, k, v, request["kv_head_of"])
            self.quantised_check(request, self.quantised_channels(request))
            rows.need(request["centroids"].shape[0] == k.shape[1], "SHAPE_MISMATCH")
            selected = self.quantised_select(request, k.shape[0])
            support = [self.quantised_regions(request).support(k.shape[0], one) for one in selected]
            rows.need(all(support), "NO_LEGAL_ROWS")
        keys, values = self.quantised_payload(request, support)
        supports = [support[one] for one in request["kv_head_of"]]
        state = rows.attend_heads(
            self.inward(q), keys, values, supports, request["kv_head_of"], request["scale"], self.index_accumulate
        )
        row = k.shape[2] * k.dtype.itemsize + v.shape[2] * v.dtype.itemsize
        return {
            "selected": selected,
            "support": support,
            "out": self.outward(attention.output(state)),
            "lse": self.outward(attention.log_sum_exp(state)),
            "gather_bytes": self.quantised_gather_bytes(selected, row),
        }

    def quantised_gather_bytes(self, selected: Supports, row_bytes: int) -> int:
        """Payload of retrieved rows."""
        return sum(map(len, selected)) * row_bytes

    def pq_augment(self, request: Request) -> Result:
        """Keys of equal norm."""
        augmented, phi = pq.augment(self.inward(request["x"]))
        return {"augmented": self.outward(augmented), "phi": self.index_floats(phi)}

    def pq_ledger(self, request: Request) -> Result:
        """Bytes and work."""
        with refusals_named():
            return pq.ledger(**request)._asdict()

    def pq_cap(self, request: Request) -> Result:
        """Rounds beside a layer."""
        profile = pq.Profile(**{name: request[name] for name in pq.Profile.__dataclass_fields__})
        with refusals_named():
            crossing, iterations = pq.cap(profile, request["tokens"], request["least"], request["most"])
        return {"crossing": crossing, "iterations": iterations}

    def quantised_cache(self, request: Request) -> pq.BlockCache:
        """An empty cache."""
        return pq.BlockCache(request["capacity_blocks"], request["policy"])

    def pq_traffic(self, request: Request) -> Result:
        """Hits, misses and bytes of each selection."""
        cache, size, steps = self.quantised_cache(request), request["block_rows"], []
        for one in request["selections"]:
            hits, misses = cache.read(sorted({i // size for i in one["ids"]}), one["generations"])
            steps.append(
                {
                    "support": sorted(set(one["ids"])),
                    "hits": hits,
                    "misses": misses,
                    "h2d_bytes": len(misses) * size * request["row_bytes"],
                }
            )
        return {"steps": steps}


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
        row = _row_bytes(request)
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


def _row_bytes(request: Request) -> int:
    k = request["channels"] * request["k_item_bytes"]
    return int(k + request["value_channels"] * request["v_item_bytes"])


class SqueezedReference(IndexStoreReference):
    """SqueezedAttention's ops."""

    own_profiles: ClassVar[frozenset[str]] = frozenset({"squeezed", "squeezed-build"})
    own_variants: ClassVar[frozenset[str]] = frozenset({"squeezed/all", "squeezed/code"})

    def clustered_labels(self, request: Request) -> list[int]:
        """Labels, given or found."""
        if "labels" in request:
            rows.need(len(request["labels"]) == request["keys"].shape[0], "CLUSTERS_NOT_COVERING")
            return list(request["labels"])
        init, total = request["init_rows"], request["keys"].shape[0]
        right = len(init) == len(set(init)) == request["clusters"] and all(0 <= i < total for i in init)
        rows.need(right, "INIT_ROWS_INVALID")
        return squeezed.label_rows(self.inward(request["keys"]), init, request["iterations"])

    def clustered_fine(self, keys: Any, labels: Sequence[int], clusters: int) -> squeezed.Level:
        """Means of raw keys."""
        return squeezed.fine_level(keys, labels, clusters)

    def clustered_coarse(self, fine: squeezed.Level, parents: Sequence[int], groups: int) -> squeezed.Level:
        """Means of centroids."""
        return squeezed.coarse_level(fine, parents, groups)

    def squeezed_build(self, request: Request) -> Result:
        """One or two levels."""
        with refusals_named():
            labels = self.clustered_labels(request)
            rows.need(all(0 <= label < request["clusters"] for label in labels), "LABEL_OUT_OF_RANGE")
            if "parents" in request:
                squeezed.check_parents(request["parents"], request["clusters"], request["groups"])
        fine = self.clustered_fine(self.inward(request["keys"]), labels, request["clusters"])
        found: Result = {"labels": labels, "fine": self.clustered_level(fine)}
        if "parents" in request:
            found["coarse"] = self.clustered_level(self.clustered_coarse(fine, request["parents"], request["groups"]))
        return found

    def clustered_level(self, level: squeezed.Level) -> Result:
        """A level as JSON."""
        return {"centroids": self.outward(level.centroids), "sizes": list(level.sizes)}

    def clustered_shares(self, q: Any, level: squeezed.Level, scale: float) -> Any:
        """Share of one row of each cluster."""
        return squeezed.shares(q, level, scale)

    def squeezed_score(self, request: Request) -> Result:
        """Shares of clusters."""
        with refusals_named():
            right = request["centroids"].shape == (len(request["sizes"]), request["q"].shape[1])
            rows.need(right, "SHAPE_MISMATCH")
        level = squeezed.Level(self.inward(request["centroids"]), request["sizes"])
        return {"scores": self.index_floats(self.clustered_shares(self.inward(request["q"]), level, request["scale"]))}

    def squeezed_calibrate(self, request: Request) -> Result:
        """Thresholds over all layers, heads and rows."""
        values: list[float] = []
        for one in request["parts"]:
            level = self.clustered_fine(self.inward(one["keys"]), one["labels"], request["clusters"])
            scores = self.index_floats(self.clustered_shares(self.inward(one["queries"]), level, request["scale"]))
            values += [scores[label] for label in one["labels"]]
        return {"thresholds": [squeezed.quantile(values, share) for share in request["quantiles"]]}

    def clustered_read(self, request: Request, name: str) -> squeezed.Level:
        """A level of a request."""
        level = request[name]
        right = level["centroids"].shape == (len(level["sizes"]), request["q"].shape[1])
        rows.need(right, "SHAPE_MISMATCH")
        return squeezed.Level(self.inward(level["centroids"]), level["sizes"])

    def clustered_descend(
        self, q: Any, request: Request, fine: squeezed.Level, coarse: squeezed.Level | None
    ) -> squeezed.Survivors:
        """Surviving clusters."""
        return squeezed.descend(
            q,
            fine,
            request["thresholds"],
            request["scale"],
            coarse=coarse,
            parents=request.get("parents", ()),
            survivors_only=request["population"] == "survivors",
        )

    def squeezed_select(self, request: Request) -> Result:
        """Clusters and rows above the thresholds."""
        with refusals_named():
            fine = self.clustered_read(request, "fine")
            coarse = self.clustered_read(request, "coarse") if "coarse" in request else None
            squeezed.check_levels(request["labels"], fine, None, ())
            rows.need(len(request["thresholds"]) == (1 if coarse is None else 2), "SHAPE_MISMATCH")
            squeezed.check_levels(request["labels"], fine, coarse, request.get("parents", ()))
        q = self.inward(request["q"])
        left = self.clustered_descend(q, request, fine, coarse)
        chosen = [i for i, label in enumerate(request["labels"]) if label in set(left.fine)]
        if self.clustered_window(q.shape[0], request):
            chosen += range(len(request["labels"]), len(request["labels"]) + request["window"])
        return {**({} if left.coarse is None else {"coarse": left.coarse}), "fine": left.fine, "rows": chosen}

    def clustered_window(self, queries: int, request: Request) -> bool:
        """Whether window rows are kept."""
        return squeezed.window_kept(queries, request["thresholds"][-1], request["window_rule"])

    def squeezed_gather(self, request: Request) -> Result:
        """A union once, or each head's rows."""
        with refusals_named():
            rows.check_heads(request["kv_head_of"], len(request["selected"]), request["kv_heads"])
        lists = [set(ids) for ids in request["selected"]]
        groups = rows.groups_of(request["kv_head_of"], request["kv_heads"])
        unions = [set().union(*(lists[query] for query in members)) for members in groups]
        single, shared = sum(map(len, lists)), sum(map(len, unions))
        return {
            "union": [sorted(one) for one in unions],
            "union_bytes": shared * request["row_bytes"],
            "masked_rows": sum(
                len(unions[one]) - len(ids) for one, ids in zip(request["kv_head_of"], lists, strict=True)
            ),
            "per_head_bytes": single * request["row_bytes"],
            "repeated_rows": single - shared,
        }

    def clustered_blocks(self, ids: Sequence[int], size: int) -> list[list[int]]:
        """A ragged list in blocks; the last may be short."""
        ordered = sorted(ids)
        return [ordered[i : i + size] for i in range(0, len(ordered), size)]

    def squeezed_reduce(self, request: Request) -> Result:
        """Each head over rows of its own, block by block."""
        with refusals_named():
            rows.check_rows(request["q"], request["k"], request["v"], request["kv_head_of"])
            rows.need(len(request["selected"]) == len(request["kv_head_of"]), "SHAPE_MISMATCH")
            for ids in request["selected"]:
                rows.check_ids(ids, request["k"].shape[0])
                rows.check_once(ids)
        q, k, v = (self.inward(request[name]) for name in ("q", "k", "v"))
        blocks = [self.clustered_blocks(ids, request["block_rows"]) for ids in request["selected"]]
        states = []
        for query, one in enumerate(request["kv_head_of"]):
            parts = [
                rows.attend(q[query, ...], k[:, one, :], v[:, one, :], ids, request["scale"], self.index_accumulate)
                for ids in blocks[query] or [[]]
            ]
            states.append(attention.merge(parts))
        return {"state": self.write_state(rows.stack(states)), "blocks": [len(one) for one in blocks]}

    def squeezed_admit(self, request: Request) -> Result:
        """Serve the context that the index was built for."""
        with refusals_named():
            squeezed.admit(request["fixed"], request["context"])
        return {}

    def squeezed_ledger(self, request: Request) -> Result:
        """Bytes of levels, payload and gather."""
        fine, coarse, row = request["fine"], request["coarse"], _row_bytes(request)
        with refusals_named():
            rows.need(request["expanded"] <= fine, "CANDIDATE_OUT_OF_RANGE")
        centroid = request["channels"] * request["centroid_item_bytes"] + request["id_bytes"]
        links = request["rows"] + (fine if coarse else 0)
        return {
            "index_bytes": (fine + coarse) * centroid + links * request["id_bytes"],
            "payload_bytes": request["rows"] * row,
            "gather_bytes": request["selected_rows"] * row,
            "lookup_products": coarse + request["expanded"] if coarse else fine,
        }


class MagicPigReference(IndexStoreReference):
    """MagicPIG's ops."""

    own_profiles: ClassVar[frozenset[str]] = frozenset({"magicpig"})
    own_variants: ClassVar[frozenset[str]] = frozenset({"magicpig/paper", "magicpig/code"})

    def sampled_buckets(self, x: Any, projections: Any) -> list[list[int]]:
        """Bucket of each row in each table."""
        return magicpig.buckets(x, projections)

    def magicpig_hash(self, request: Request) -> Result:
        """Buckets of rows."""
        with refusals_named():
            return {"codes": self.sampled_buckets(self.inward(request["x"]), self.inward(request["projections"]))}

    def sampled_check_codes(self, request: Request) -> None:
        """Refuse buckets that do not fit."""
        codes, own = request["key_codes"], request["query_codes"]
        rows.check_heads(request["kv_head_of"], len(own), len(codes))
        rows.need(len({len(one) for one in [*codes, *own]}) == 1, "LSH_GEOMETRY_INVALID")
        every = [code for one in [*own, *(table for head in codes for table in head)] for code in one]
        rows.need(all(0 <= code < 1 << request["bits"] for code in every), "CODE_OUT_OF_RANGE")

    def sampled_matches(self, keys: Any, query: Any) -> Any:
        """Tables in which each row matches."""
        return magicpig.matches(keys, query)

    def magicpig_search(self, request: Request) -> Result:
        """Rows that match in enough tables."""
        with refusals_named():
            self.sampled_check_codes(request)
        found = []
        for own, one in zip(request["query_codes"], request["kv_head_of"], strict=True):
            keys = self.inward(np.asarray(request["key_codes"][one], np.int64))
            found.append(self.outward(self.sampled_matches(keys, self.inward(np.asarray(own, np.int64)))).tolist())
        least = request["min_tables"]
        return {"ids": [[i for i, n in enumerate(row) if n >= least] for row in found], "matches": found}

    def sampled_rule(self, request: Request) -> magicpig.Tables:
        """The collision rule."""
        return magicpig.Tables(request["bits"], request["tables"], request["min_tables"])

    def sampled_inclusion(self, cosines: Any, rule: magicpig.Tables) -> tuple[Any, Any]:
        """Probability and its logarithm."""
        return magicpig.inclusion(cosines, rule)

    def magicpig_probability(self, request: Request) -> Result:
        """Probabilities of cosines."""
        cosines = self.inward(np.asarray(request["cosines"], np.float64))
        u, log_u = self.sampled_inclusion(cosines, self.sampled_rule(request))
        return {"u": self.outward(u), "log_u": self.outward(log_u)}

    def sampled_mean(self, request: Request, k: Any, one: int) -> Any:
        """Mean that is subtracted from the keys of one K/V head."""
        if "key_mean" in request:
            return self.inward(np.asarray(request["key_mean"], np.float64))[one, ...]
        return magicpig.mean_key(k[:, one, :], magicpig.offloaded(k.shape[0], request["static"]))

    def sampled_head(
        self, q: Any, k: Any, v: Any, static: Sequence[int], sampled: Sequence[int], **more: Any
    ) -> magicpig.Estimate:
        """The estimate of one query head."""
        return magicpig.estimate(q, k, v, static, sampled, **more)

    def sampled_check_sample(self, request: Request) -> None:
        """Refuse rows that are not, or stand twice."""
        total = request["k"].shape[0]
        rows.check_rows(request["q"], request["k"], request["v"], request["kv_head_of"])
        rows.check_ids(request["static"], total)
        rows.check_once(request["static"])
        rows.need(len(request["sampled"]) == len(request["kv_head_of"]), "SHAPE_MISMATCH")
        for ids in request["sampled"]:
            rows.check_ids(ids, total)
            rows.check_once([*request["static"], *ids])

    def magicpig_estimate(self, request: Request) -> Result:
        """The estimator over static and sampled rows."""
        with refusals_named():
            self.sampled_check_sample(request)
            q, k, v = (self.inward(request[name]) for name in ("q", "k", "v"))
            heads = [
                self.sampled_head(
                    q[query, ...],
                    k[:, one, :],
                    v[:, one, :],
                    request["static"],
                    request["sampled"][query],
                    rule=self.sampled_rule(request),
                    middle=self.sampled_mean(request, k, one),
                    scale=request["scale"],
                    epsilon=request["epsilon"],
                    accumulate=self.index_accumulate,
                )
                for query, one in enumerate(request["kv_head_of"])
            ]
        return {
            "state": self.write_state(rows.stack([one.state for one in heads])),
            "u": [u for one in heads for u in one.chances],
        }

    def magicpig_enumerate(self, request: Request) -> Result:
        """Every sample, and the estimator's mean."""
        with refusals_named():
            q, k, v = (np.asarray(request[name], np.float64) for name in ("q", "k", "v"))
            found = magicpig.enumerate_samples(q, k, v, request["scale"], self.sampled_rule(request))
        return {
            "outcomes": [{"ids": list(ids), "probability": p} for ids, p in found.outcomes.items()],
            "nonempty": found.nonempty,
            "expected": found.expected.tolist(),
            "dense": found.dense.tolist(),
            "bias": (found.expected - found.dense).tolist(),
        }

    def magicpig_ledger(self, request: Request) -> Result:
        """Tables, payload, and what crosses."""
        count, tables, bits = request["rows"], request["tables"], request["bits"]
        ranges, entries = tables * (1 << bits) * request["range_bytes"], tables * count * request["id_bytes"]
        heads, queries = request["kv_heads"], request["query_heads"]
        outward = tables * request["code_bytes"] + request["channels"] * request["query_item_bytes"]
        return {
            "bucket_bytes": ranges,
            "entry_bytes": entries,
            "index_bytes": heads * (ranges + entries),
            "projection_bytes": tables * bits * request["channels"] * request["projection_item_bytes"],
            "payload_bytes": heads * count * _row_bytes(request),
            "gather_bytes": 0,
            "outward_bytes": queries * outward,
            "inward_bytes": queries * (request["value_channels"] + 2) * request["state_item_bytes"],
        }


class IndexesReference(QuantisedReference, BridgeReference, SqueezedReference, MagicPigReference):
    """Every op of the contract indexes."""
