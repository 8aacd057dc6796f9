"""The ops of PQCache: codebooks, codes, scores, searches, and the cache of blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from kvassay_reference import attention
from kvassay_reference.indexes import pq, rows

from .reference_attention import refusals_named
from .reference_index_store import IndexStoreReference, Request, Result, Supports

MOST_PAIRED = 256
"""Centroids up to which two subspaces share a table."""


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
