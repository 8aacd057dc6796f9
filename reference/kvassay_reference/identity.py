"""Look-up, gather and partial attention over published manifests, each step checked before its result is published."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from .admission import Stage, Violation, current, may_copy, row_sha256, violations
from .attention import Mask, State
from .attention import partial as partial_attention
from .canonical import support_sha256
from .errors import Refusal
from .manifest import Gather, Lookup, Manifest, PartialReceipt, Replica

Array = Any
"""An array of any library that the Array API standard covers."""
Rules = Callable[[Manifest, Stage], Iterable[Violation]]
"""What a manifest violates up to a stage, in the order of precedence."""


def demand(condition: bool, reason: str, pointer: str = "") -> None:
    """Raise :class:`Refusal` unless the condition holds."""
    if not condition:
        raise Refusal(reason, pointer)


@dataclass(frozen=True)
class Published:
    """A manifest and the arrays that it describes, [layers, K/V heads, positions, channels] each."""

    manifest: Manifest
    k: Array
    v: Array
    trace_k: Array
    trace_v: Array
    proxy: Array
    """[layers, K/V heads, positions, proxy channels]."""


@dataclass(frozen=True)
class Rows:
    """Packed rows [n, channels] in the order of the candidates."""

    k: Array
    v: Array
    trace_k: Array
    trace_v: Array


class Retrieval:
    """Published manifests and the steps that read them.

    Each step takes the caller's manifest, of which it believes the reader, the operation and the receipts of earlier
    steps only; what the rows are and where they live stands in what was published.
    """

    def __init__(self, rules: Rules = violations) -> None:
        self.published: list[Published] = []
        self.rules = rules

    def admit(self, m: Manifest, stage: Stage = Stage.OUTPUT) -> None:
        """Raise :class:`Refusal` for the first violation."""
        for violation in self.rules(m, stage):
            raise Refusal(*violation)

    def publish(self, entry: Published) -> None:
        """Make rows readable once the manifest is admitted and the payload is the one that it names."""
        m = entry.manifest
        self.admit(m)
        demand(payload_sha256(entry) == m.packing.payload_sha256, "PAYLOAD_DIGEST_MISMATCH", "/packing/payload_sha256")
        shape = (m.tensor.layers, m.tensor.kv_heads, m.tensor.positions, m.tensor.channels)
        arrays = (entry.k, entry.v, entry.trace_k, entry.trace_v)
        demand(all(tuple(array.shape) == shape for array in arrays), "GATHER_SHAPE_MISMATCH", "/tensor")
        demand(tuple(entry.proxy.shape) == m.proxy.shape, "PROXY_COVERAGE_MISMATCH", "/proxy/shape")
        self.published.append(entry)

    def find(self, caller: Manifest) -> Published:
        """The latest publication bound as the reader is, else the latest of all, whose mismatch names the reason."""
        demand(bool(self.published), "NOTHING_PUBLISHED")
        bound = [entry for entry in self.published if entry.manifest.source == caller.reader]
        return (bound or self.published)[-1]

    def lookup(self, caller: Manifest, query_proxy: Array, count: int) -> Lookup:
        """The ``count`` entries with the highest proxy scores, ties to the lower position, in ascending order."""
        entry = self.find(caller)
        m = replace(entry.manifest, reader=caller.reader, operation=caller.operation)
        self.admit(m, Stage.OPERATION)
        op, first = m.operation, m.proxy.first_position
        head = entry.proxy[op.layer, op.kv_head, :, :]
        xp = array_namespace(head)
        entries = [e for e in m.index.entry_ids if first <= e < first + head.shape[0]]
        scores = xp.sum(head * query_proxy, axis=-1)
        best = sorted(entries, key=lambda e: (-float(scores[e - first]), e))[:count]
        return Lookup(
            *op.heads,
            query_sha256=op.query_sha256,
            index_generation=m.index.index_generation,
            selector_generation=m.proxy.selector_generation,
            source_cache_generation=m.source.cache_generation,
            source_committed_frontier=m.source.committed_frontier,
            candidate_original_positions=tuple(sorted(best)),
            semantics="candidate_ids_only",
        )

    def gather(self, caller: Manifest) -> tuple[Rows, Gather]:
        """The full rows of the candidates, each from a valid replica that may reach the destination."""
        entry = self.find(caller)
        m = replace(entry.manifest, reader=caller.reader, operation=caller.operation, lookup=caller.lookup)
        self.admit(m, Stage.LOOKUP)
        op, positions = m.operation, m.lookup.candidate_original_positions
        target = next(tier for tier in m.tiers if tier.id == op.destination.tier)
        demand(target.kernel_readable, "DESTINATION_NOT_READABLE", "/operation/destination/tier")
        sources = self.sources(m, positions)
        shape = (len(positions), m.tensor.channels)
        receipt = Gather(
            *op.heads,
            original_positions=positions,
            source_kind="replica",
            source_replica_generations=tuple(replica.replica_generation for replica in sources),
            source_lease_generations=tuple(replica.lease.generation for replica in sources),
            row_sha256=tuple(row_sha256(m.source, op.layer, op.kv_head, position) for position in positions),
            k_shape=shape,
            v_shape=shape,
            destination=op.destination,
            visibility=target.visibility,
            visibility_event_generation=caller.steps[6].event_generation,
        )
        return self.rows(entry, op.layer, op.kv_head, positions), receipt

    def sources(self, m: Manifest, positions: Iterable[int]) -> list[Replica]:
        """A replica for each position: on the destination's tier where visible there, else the first that may copy."""
        target = next(tier for tier in m.tiers if tier.id == m.operation.destination.tier)
        tiers = {tier.id: tier for tier in m.tiers}
        usable = [r for r in m.directory.replicas if current(m, r) and may_copy(tiers[r.tier], target)]
        usable.sort(key=lambda replica: replica.tier != target.id)
        chosen = []
        for position in positions:
            demand(bool(usable), "PATH_NOT_LEGAL", "/directory/replicas")
            visible = [replica for replica in usable if position in replica.visible]
            demand(bool(visible), "ROW_NOT_VISIBLE", "/directory/replicas")
            chosen.append(visible[0])
        return chosen

    def rows(self, entry: Published, layer: int, kv_head: int, positions: Iterable[int]) -> Rows:
        """Rows by original position, never by packed rank."""
        first = entry.manifest.tensor.first_position
        index = [position - first for position in positions]
        arrays = (entry.k, entry.v, entry.trace_k, entry.trace_v)
        return Rows(*(_take(array[layer, kv_head, :, :], index) for array in arrays))

    def partial(self, caller: Manifest, q: Array, scale: float) -> tuple[State, PartialReceipt]:
        """The state (m, l, u) of one query head over the gathered rows; it serves this query and this mask alone."""
        entry = self.find(caller)
        m = replace(
            entry.manifest,
            reader=caller.reader,
            operation=caller.operation,
            lookup=caller.lookup,
            gather=caller.gather,
        )
        self.admit(m, Stage.GATHER)
        op, positions = m.operation, m.gather.original_positions
        demand(array_sha256(q) == op.query_sha256, "PARTIAL_OF_OTHER_QUERY", "/operation/query_sha256")
        tier = m.tier(op.destination.tier)
        demand(tier is not None and tier.partial_attention, "TIER_CANNOT_ATTEND", "/operation/destination/tier")
        rows = self.rows(entry, op.layer, op.kv_head, positions)
        receipt = PartialReceipt(
            *op.heads,
            query_sha256=op.query_sha256,
            mask_sha256=op.mask_sha256,
            support=positions,
            support_sha256=support_sha256(positions),
            tier=op.destination.tier,
            input_event_generation=m.gather.visibility_event_generation,
            state_schema="fp32-m-l-u-v1",
            merge_revision=op.merge_revision,
        )
        return reduce(rows, q, positions, scale), receipt


def reduce(rows: Rows, q: Array, positions: tuple[int, ...], scale: float) -> State:
    """The state of one query head q [1, d] over packed rows; every gathered row is legal."""
    xp = array_namespace(q)
    return partial_attention(
        q,
        xp.astype(rows.k, q.dtype)[:, None, :],
        xp.astype(rows.v, q.dtype)[:, None, :],
        scale=scale,
        kv_head_of=[0],
        positions=xp.asarray(positions, dtype=xp.int64),
        q_position=max(positions, default=0),
        mask=Mask(causal=False),
    )


def payload_sha256(entry: Published) -> str:
    """Digest of the keys' bytes followed by the values', little-endian in C order."""
    return hashlib.sha256(_bytes(entry.k) + _bytes(entry.v)).hexdigest()


def array_sha256(array: Array) -> str:
    """Digest of an array's little-endian bytes in C order."""
    return hashlib.sha256(_bytes(array)).hexdigest()


def _take(rows: Array, index: list[int]) -> Array:
    xp = array_namespace(rows)
    return xp.take(rows, xp.asarray(index, dtype=xp.int64), axis=0)


def _bytes(array: Array) -> bytes:
    host = np.asarray(array)
    return host.astype(host.dtype.newbyteorder("<")).tobytes()
