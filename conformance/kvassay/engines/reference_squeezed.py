"""The ops of SqueezedAttention: clusters in two levels, thresholds, and gathers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from kvassay_reference import attention
from kvassay_reference.indexes import rows, squeezed

from .reference_attention import refusals_named
from .reference_index_store import IndexStoreReference, Request, Result, row_bytes


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
        fine, coarse, row = request["fine"], request["coarse"], row_bytes(request)
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
