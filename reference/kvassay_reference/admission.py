"""The rules of a manifest in their order of precedence.

Each function yields what its part of the document violates, first things first: digests, then the five planes
(identity, residency, selection, execution, service). The first violation is the reason of the rejection.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from .canonical import digest, support_sha256
from .manifest import PERSISTENCE, Binding, Manifest, Replica, Tier


class Violation(NamedTuple):
    """A reason and the JSON pointer of what is wrong."""

    reason: str
    pointer: str


class Stage(enum.IntEnum):
    """How much of a retrieval has happened; rules about later sections do not apply yet."""

    OPERATION = 1
    LOOKUP = 2
    GATHER = 3
    OUTPUT = 4


Violations = Iterator[Violation]

BINDING_REASONS = {
    "logical_cache_abi_sha256": "CACHE_ABI_MISMATCH",
    "cache_layout_manifest_sha256": "LAYOUT_MANIFEST_MISMATCH",
    "visibility_policy_manifest_sha256": "VISIBILITY_POLICY_MISMATCH",
    "model_artifact_sha256": "MODEL_MISMATCH",
    "checkpoint_generation": "STALE_CHECKPOINT_GENERATION",
    "adapter_set_sha256": "ADAPTER_MISMATCH",
    "position_contract_sha256": "POSITION_CONTRACT_MISMATCH",
    "rope_config_sha256": "ROPE_MISMATCH",
    "tenant_namespace": "TENANT_MISMATCH",
    "namespace_generation": "STALE_NAMESPACE_GENERATION",
    "request_generation": "STALE_REQUEST_GENERATION",
    "cache_generation": "STALE_CACHE_GENERATION",
    "publication_generation": "STALE_PUBLICATION_GENERATION",
}
STEPS = ("source", "storage", "replicas", "proxy", "index", "lookup", "gather", "partial")
FALLBACKS = ("broaden_search", "exact_promote", "recompute", "reject")
EXACT_LANES = ("exact_move", "exact_near_data")


def violations(m: Manifest, stage: Stage = Stage.OUTPUT) -> Violations:
    """Everything that a manifest violates up to a stage, in the order of precedence."""
    yield from _digests(m, stage)
    yield from _binding(m.source, m.reader)
    yield from _geometry(m)
    yield from _asked(m, stage)
    yield from _replicas(m)
    yield from _authority(m)
    yield from _index(m)
    if stage >= Stage.LOOKUP:
        yield from _lookup(m)
    if stage >= Stage.OUTPUT:
        yield from _order(m)
    if stage >= Stage.GATHER:
        yield from _gather(m, stage)
    if stage >= Stage.OUTPUT:
        yield from _partial(m)
        yield from _claims(m)
    yield from _service(m)
    if stage >= Stage.OUTPUT:
        yield from _fallback(m)


def source_digests(m: Manifest) -> dict[str, str]:
    """I_upstream, I_tensor and I_source, each from the values that stand in the manifest."""
    fields = vars(m.source) | vars(m.seals) | {"first_position": m.tensor.first_position}
    return {
        "upstream_sha256": digest("upstream", fields),
        "tensor_sha256": digest("tensor", vars(m.tensor)),
        "source_sha256": digest("source", fields),
    }


def row_sha256(source: Binding, layer: int, kv_head: int, position: int) -> str:
    """I_row: nothing physical enters, so that moving the row does not change it."""
    return digest("row", vars(source) | {"layer": layer, "kv_head": kv_head, "position": position})


def _digests(m: Manifest, stage: Stage) -> Violations:
    for name, derived in source_digests(m).items():
        if getattr(m.seals, name) != derived:
            yield Violation("SOURCE_DIGEST_MISMATCH", f"/seals/{name}")
    if m.chunk.sha256 != digest("chunk", vars(m.chunk)):
        yield Violation("CHUNK_DIGEST_MISMATCH", "/chunk/sha256")
    for i, replica in enumerate(m.directory.replicas):
        if replica.sha256 != digest("replica", vars(replica)):
            yield Violation("REPLICA_DIGEST_MISMATCH", f"/directory/replicas/{i}/sha256")
    if stage >= Stage.GATHER:
        g = m.gather
        rows = tuple(row_sha256(m.source, g.layer, g.kv_head, position) for position in g.original_positions)
        if g.row_sha256 != rows:
            yield Violation("ROW_DIGEST_MISMATCH", "/gather/row_sha256")
    if stage >= Stage.OUTPUT:
        if m.partial.support_sha256 != support_sha256(m.partial.support):
            yield Violation("SUPPORT_DIGEST_MISMATCH", "/partial/support_sha256")
        if m.output.support_sha256 != support_sha256(m.output.support):
            yield Violation("SUPPORT_DIGEST_MISMATCH", "/output/support_sha256")


def _binding(source: Binding, reader: Binding) -> Violations:
    for name, reason in BINDING_REASONS.items():
        if getattr(source, name) != getattr(reader, name):
            yield Violation(reason, f"/source/{name}")
    if source.committed_frontier > reader.committed_frontier:
        yield Violation("FRONTIER_BEYOND_COMMIT", "/source/committed_frontier")
    if source.committed_frontier < reader.committed_frontier:
        yield Violation("FRONTIER_BEHIND_COMMIT", "/source/committed_frontier")


def _geometry(m: Manifest) -> Violations:
    tensor, chunk = m.tensor, m.chunk
    if len(tensor.kv_head_of) != tensor.query_heads or any(head >= tensor.kv_heads for head in tensor.kv_head_of):
        yield Violation("HEAD_MAP_INVALID", "/tensor/kv_head_of")
    if chunk.source_sha256 != m.seals.source_sha256:
        yield Violation("CHUNK_OF_OTHER_SOURCE", "/chunk/source_sha256")
    if (
        chunk.first_layer + chunk.layers > tensor.layers
        or chunk.first_kv_head + chunk.kv_heads > tensor.kv_heads
        or chunk.first_position < tensor.first_position
    ):
        yield Violation("CHUNK_OUT_OF_RANGE", "/chunk")
    if chunk.first_position + chunk.positions > m.source.committed_frontier:
        yield Violation("CHUNK_BEYOND_COMMIT", "/chunk/positions")
    scalars = chunk.layers * chunk.kv_heads * chunk.positions * tensor.channels
    if m.packing.payload_bytes != scalars * tensor.item_bytes:
        yield Violation("PAYLOAD_BYTES_MISMATCH", "/packing/payload_bytes")


def _asked(m: Manifest, stage: Stage) -> Violations:
    """The operation against the source, and each receipt's heads against the operation's."""
    op, tensor = m.operation, m.tensor
    if op.request_generation != m.source.request_generation:
        yield Violation("STALE_REQUEST_GENERATION", "/operation/request_generation")
    if op.cache_generation != m.source.cache_generation:
        yield Violation("STALE_CACHE_GENERATION", "/operation/cache_generation")
    if op.decode_position != m.source.committed_frontier:
        yield Violation("DECODE_POSITION_MISMATCH", "/operation/decode_position")
    if op.layer >= tensor.layers:
        yield Violation("LAYER_OUT_OF_RANGE", "/operation/layer")
    if op.query_head >= len(tensor.kv_head_of) or tensor.kv_head_of[op.query_head] != op.kv_head:
        yield Violation("WRONG_KV_HEAD", "/operation/kv_head")
    receipts = ((Stage.LOOKUP, "lookup"), (Stage.GATHER, "gather"), (Stage.OUTPUT, "partial"))
    for due, name in receipts:
        if stage >= due and getattr(m, name).heads != op.heads:
            yield Violation("RECEIPT_OF_OTHER_HEAD", f"/{name}")


def _replicas(m: Manifest) -> Violations:
    spaces = {tier.address_space for tier in m.tiers}
    names = {tier.id for tier in m.tiers}
    if len(spaces) != len(m.tiers) or len(names) != len(m.tiers):
        yield Violation("ADDRESS_SPACE_SHARED", "/tiers")
    for i, replica in enumerate(m.directory.replicas):
        at = f"/directory/replicas/{i}"
        tier = m.tier(replica.tier)
        if replica.state == "released":
            if replica.lease.readers:
                yield Violation("RELEASED_UNDER_LEASE", f"{at}/lease/readers")
        elif tier is None:
            yield Violation("UNKNOWN_TIER", f"{at}/tier")
        else:
            yield from _same_chunk(m, replica, at)
            yield from _held_by(tier, replica, at)
    if not _unique([replica.replica_generation for replica in m.directory.replicas]):
        yield Violation("AMBIGUOUS_REPLICA_GENERATION", "/directory/replicas")
    allocations = [replica.allocation_generation for replica in m.directory.replicas]
    if not _unique([*allocations, m.operation.destination.allocation_generation]):
        yield Violation("RECYCLED_ALLOCATION", "/directory/replicas")


def _same_chunk(m: Manifest, replica: Replica, at: str) -> Violations:
    """What makes a copy a copy: chunk, tenant, codec, layout, size and payload."""
    packing = m.packing
    if replica.chunk_sha256 != m.chunk.sha256:
        yield Violation("REPLICA_OF_OTHER_CHUNK", f"{at}/chunk_sha256")
    if replica.tenant_namespace != m.source.tenant_namespace:
        yield Violation("REPLICA_TENANT_MISMATCH", f"{at}/tenant_namespace")
    if replica.codec != packing.codec:
        yield Violation("CODEC_MISMATCH", f"{at}/codec")
    if replica.layout != packing.layout:
        yield Violation("LAYOUT_MISMATCH", f"{at}/layout")
    if replica.payload_bytes != packing.payload_bytes:
        yield Violation("SHORT_REPLICA", f"{at}/payload_bytes")
    if replica.payload_sha256 != packing.payload_sha256:
        yield Violation("PAYLOAD_DIGEST_MISMATCH", f"{at}/payload_sha256")


def _held_by(tier: Tier, replica: Replica, at: str) -> Violations:
    """Whether the tier may hold the replica at all."""
    if replica.codec not in tier.codecs:
        yield Violation("TIER_CODEC_UNSUPPORTED", f"{at}/tier")
    if replica.layout not in tier.layouts:
        yield Violation("TIER_LAYOUT_UNSUPPORTED", f"{at}/tier")
    if replica.tenant_namespace not in tier.tenants:
        yield Violation("TIER_OUTSIDE_TRUST", f"{at}/tier")
    if replica.offset_bytes % tier.alignment_bytes:
        yield Violation("MISALIGNED_REPLICA", f"{at}/offset_bytes")
    if tier.checksum not in ("none", replica.checksum):
        yield Violation("TIER_CHECKSUM_UNMET", f"{at}/checksum")


def _authority(m: Manifest) -> Violations:
    directory = m.directory
    replicas = {replica.id: replica for replica in directory.replicas}
    if any(counted.kind != "replica" for counted in directory.counted):
        yield Violation("DERIVED_STATE_COUNTED", "/directory/counted")
    authority = replicas.get(directory.authoritative_replica)
    if authority is None or authority.state != "valid":
        yield Violation("AUTHORITY_NOT_VALID", "/directory/authoritative_replica")
    else:
        if authority.authority_epoch != directory.authority_epoch:
            yield Violation("STALE_AUTHORITY_EPOCH", "/directory/authority_epoch")
        tier = m.tier(authority.tier)
        needed = PERSISTENCE.index(directory.required_persistence)
        if tier is not None and PERSISTENCE.index(tier.persistence) < needed:
            yield Violation("TIER_NOT_PERSISTENT", "/directory/authoritative_replica")
    counted_ids = {counted.id for counted in directory.counted}
    surviving = sum(current(m, replica) for name, replica in replicas.items() if name in counted_ids)
    if surviving < directory.minimum_replicas:
        yield Violation("REPLICA_FLOOR_UNMET", "/directory/minimum_replicas")
    if m.operation.directory_generation != directory.generation:
        yield Violation("STALE_DIRECTORY_GENERATION", "/operation/directory_generation")
    if m.tier(m.operation.destination.tier) is None:
        yield Violation("UNKNOWN_TIER", "/operation/destination/tier")


def current(m: Manifest, replica: Replica) -> bool:
    """Whether a replica is valid under the current authority epoch."""
    return replica.state == "valid" and replica.authority_epoch == m.directory.authority_epoch


def _index(m: Manifest) -> Violations:
    proxy, index, source = m.proxy, m.index, m.source
    frontier, reached = source.committed_frontier, index.committed_frontier
    if proxy.source_sha256 != m.seals.source_sha256:
        yield Violation("PROXY_OF_OTHER_SOURCE", "/proxy/source_sha256")
    covered = (m.tensor.layers, m.tensor.kv_heads, proxy.end_position - proxy.first_position)
    if len(proxy.shape) != 4 or proxy.shape[:3] != covered or proxy.end_position > frontier:
        yield Violation("PROXY_COVERAGE_MISMATCH", "/proxy")
    if (index.selector_id, index.selector_generation) != (proxy.selector_id, proxy.selector_generation):
        yield Violation("STALE_SELECTOR_GENERATION", "/index")
    if index.source_sha256 != m.seals.source_sha256:
        yield Violation("INDEX_OF_OTHER_SOURCE", "/index/source_sha256")
    if index.cache_generation != source.cache_generation:
        yield Violation("INDEX_OF_OTHER_HISTORY", "/index/cache_generation")
    if index.tenant_namespace != source.tenant_namespace:
        yield Violation("INDEX_TENANT_MISMATCH", "/index/tenant_namespace")
    if index.state != "published":
        yield Violation("INDEX_NOT_PUBLISHED", "/index/state")
    if index.coordinates != "original_position":
        yield Violation("COORDINATE_MISMATCH", "/index/coordinates")
    if reached > frontier:
        yield Violation("INDEX_BEYOND_COMMIT", "/index/committed_frontier")
    if reached < frontier and not _bridged(m):
        yield Violation("INDEX_BEHIND_COMMIT", "/index/committed_frontier")
    if any(not m.tensor.first_position <= entry < reached for entry in index.entry_ids):
        yield Violation("INDEX_ENTRY_OUT_OF_RANGE", "/index/entry_ids")


def _bridged(m: Manifest) -> bool:
    """Whether another exact set covers the committed positions that the index does not."""
    rest = m.index.remainder
    return (
        rest is not None
        and rest.first_position <= m.index.committed_frontier
        and rest.end_position == m.source.committed_frontier
    )


def _lookup(m: Manifest) -> Violations:
    lookup, index = m.lookup, m.index
    candidates = lookup.candidate_original_positions
    if lookup.query_sha256 != m.operation.query_sha256:
        yield Violation("LOOKUP_OF_OTHER_QUERY", "/lookup/query_sha256")
    if lookup.index_generation != index.index_generation:
        yield Violation("STALE_INDEX_GENERATION", "/lookup/index_generation")
    if lookup.selector_generation != m.proxy.selector_generation:
        yield Violation("LOOKUP_OF_OTHER_SELECTOR", "/lookup/selector_generation")
    if lookup.source_cache_generation != m.source.cache_generation:
        yield Violation("LOOKUP_OF_OTHER_HISTORY", "/lookup/source_cache_generation")
    if lookup.source_committed_frontier != m.source.committed_frontier:
        yield Violation("LOOKUP_OF_OTHER_FRONTIER", "/lookup/source_committed_frontier")
    if lookup.semantics != "candidate_ids_only":
        yield Violation("IDS_POSE_AS_ROWS", "/lookup/semantics")
    if any(position not in m.full_support for position in candidates):
        yield Violation("CANDIDATE_OUT_OF_RANGE", "/lookup/candidate_original_positions")
    if any(a >= b for a, b in pairwise(candidates)):
        yield Violation("CANDIDATES_NOT_ASCENDING", "/lookup/candidate_original_positions")
    beyond = index.committed_frontier if _bridged(m) else m.source.committed_frontier
    if any(position not in index.entry_ids and position < beyond for position in candidates):
        yield Violation("CANDIDATE_NOT_INDEXED", "/lookup/candidate_original_positions")


def _order(m: Manifest) -> Violations:
    events = [publication.event_generation for publication in m.steps]
    if tuple(publication.step for publication in m.steps) != STEPS or any(a >= b for a, b in pairwise(events)):
        yield Violation("STEP_OUT_OF_ORDER", "/steps")


def may_copy(source: Tier, target: Tier) -> bool:
    """Whether rows can get from one tier to another: in place, or by a copy that both ends can do."""
    return source.id == target.id or (source.dma_source and target.dma_destination)


def _gather(m: Manifest, stage: Stage) -> Violations:
    g, op = m.gather, m.operation
    at = "/gather/source_replica_generations"
    if g.source_kind != "replica":
        yield Violation("ROWS_NOT_FROM_REPLICA", "/gather/source_kind")
    if g.original_positions != m.lookup.candidate_original_positions:
        yield Violation("GATHER_OF_OTHER_POSITIONS", "/gather/original_positions")
    shape = (len(g.original_positions), m.tensor.channels)
    if g.k_shape != shape or g.v_shape != shape:
        yield Violation("GATHER_SHAPE_MISMATCH", "/gather/k_shape")
    valid = {r.replica_generation: r for r in m.directory.replicas if r.state == "valid"}
    sources = [valid[generation] for generation in g.source_replica_generations if generation in valid]
    if len(sources) != len(g.original_positions) or len(g.source_replica_generations) != len(sources):
        yield Violation("STALE_REPLICA_GENERATION", at)
    if not all(current(m, replica) for replica in sources):
        yield Violation("STALE_AUTHORITY_EPOCH", at)
    if list(g.source_lease_generations) != [replica.lease.generation for replica in sources]:
        yield Violation("STALE_LEASE_GENERATION", "/gather/source_lease_generations")
    if any(position not in r.visible for r, position in zip(sources, g.original_positions, strict=False)):
        yield Violation("ROW_NOT_VISIBLE", at)
    target = m.tier(g.destination.tier)
    if target is None:
        yield Violation("UNKNOWN_TIER", "/gather/destination/tier")
        return
    if not target.kernel_readable:
        yield Violation("DESTINATION_NOT_READABLE", "/gather/destination/tier")
    tiers = [m.tier(replica.tier) for replica in sources]
    if any(tier is None or not may_copy(tier, target) for tier in tiers):
        yield Violation("PATH_NOT_LEGAL", at)
    if g.destination != op.destination:
        yield Violation("STALE_ALLOCATION_GENERATION", "/gather/destination")
    if g.visibility != target.visibility:
        yield Violation("VISIBILITY_UNMET", "/gather/visibility")
    if stage >= Stage.OUTPUT and g.visibility_event_generation != m.steps[6].event_generation:
        yield Violation("VISIBILITY_EVENT_MISMATCH", "/gather/visibility_event_generation")


def _partial(m: Manifest) -> Violations:
    p, op = m.partial, m.operation
    if p.query_sha256 != op.query_sha256:
        yield Violation("PARTIAL_OF_OTHER_QUERY", "/partial/query_sha256")
    if p.mask_sha256 != op.mask_sha256:
        yield Violation("MASK_MISMATCH", "/partial/mask_sha256")
    if p.support != m.gather.original_positions:
        yield Violation("PARTIAL_OF_OTHER_SUPPORT", "/partial/support")
    if p.input_event_generation < m.gather.visibility_event_generation:
        yield Violation("READ_BEFORE_VISIBLE", "/partial/input_event_generation")
    tier = m.tier(p.tier)
    if tier is None:
        yield Violation("UNKNOWN_TIER", "/partial/tier")
    elif not tier.partial_attention:
        yield Violation("TIER_CANNOT_ATTEND", "/partial/tier")
    if p.merge_revision != op.merge_revision:
        yield Violation("MERGE_REVISION_MISMATCH", "/partial/merge_revision")
    if len(p.u) != m.tensor.channels or (p.support and p.l <= 0):
        yield Violation("STATE_WITHOUT_MASS", "/partial/l")


def _claims(m: Manifest) -> Violations:
    if m.output.support == m.full_support:
        return
    if m.output.claim == "full_support":
        yield Violation("SUPPORT_OVERCLAIMED", "/output/claim")
    if m.operation.exactness == "exact" or m.operation.lane in EXACT_LANES:
        yield Violation("EXACTNESS_OVERCLAIMED", "/operation/exactness")


def _service(m: Manifest) -> Violations:
    if not m.operation.deadline.clock_origin:
        yield Violation("DEADLINE_WITHOUT_ORIGIN", "/operation/deadline/clock_origin")
    if m.operation.fallback.action not in FALLBACKS:
        yield Violation("UNKNOWN_FALLBACK", "/operation/fallback/action")


def _fallback(m: Manifest) -> Violations:
    output, candidates = m.output, m.lookup.candidate_original_positions
    used = output.fallback_used
    if used not in (None, m.operation.fallback.action):
        yield Violation("FALLBACK_NOT_DECLARED", "/output/fallback_used")
    if used is None and output.elapsed_us > m.operation.deadline.budget_us:
        yield Violation("DEADLINE_MISSED", "/output/elapsed_us")
    whole = {
        None: output.support == candidates,
        "broaden_search": set(output.support) >= set(candidates),
        "exact_promote": output.support == m.full_support,
        "recompute": output.support == m.full_support,
        "reject": not output.support,
    }
    if not whole.get(used, False):
        yield Violation("SILENT_PARTIAL_SUPPORT", "/output/support")


def _unique(values: Sequence[int]) -> bool:
    return len(set(values)) == len(values)
