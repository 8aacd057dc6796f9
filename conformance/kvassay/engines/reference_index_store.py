"""The index ops that no method owns: the life of an index, the reduction of parts, and records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from kvassay_reference import attention
from kvassay_reference.attention import State
from kvassay_reference.indexes import bridge, record, rows, store

from .reference_attention import refusals_named
from .reference_part import ReferencePart

Request = Mapping[str, Any]
Result = dict[str, Any]
Supports = Sequence[Sequence[int]]


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


def row_bytes(request: Request) -> int:
    """Bytes of one row, K and V together."""
    k = request["channels"] * request["k_item_bytes"]
    return int(k + request["value_channels"] * request["v_item_bytes"])
