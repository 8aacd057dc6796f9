"""The ops of MagicPIG: signatures, collisions, inclusion probabilities, and the estimator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from kvassay_reference.indexes import magicpig, rows

from .reference_attention import refusals_named
from .reference_index_store import IndexStoreReference, Request, Result, row_bytes


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
            "payload_bytes": heads * count * row_bytes(request),
            "gather_bytes": 0,
            "outward_bytes": queries * outward,
            "inward_bytes": queries * (request["value_channels"] + 2) * request["state_item_bytes"],
        }
