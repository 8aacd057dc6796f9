"""The manifest of one retrieval as frozen data, and its strict reading from JSON.

The sections follow a row from its source to the output: what it is (``source``, ``tensor``, ``chunk``), where it
lives (``tiers``, ``directory``), how it is found (``proxy``, ``index``), who asks (``reader``, ``operation``), and one
receipt for each thing that was done (``lookup``, ``gather``, ``partial``, ``output``).
"""

from __future__ import annotations

import dataclasses
import functools
import re
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

MAX_INTEGER = 2**53 - 1

Digest = Annotated[str, re.compile("[0-9a-f]{64}")]
"""Lower-case hexadecimal SHA-256."""
Natural = Annotated[int, 0]
"""An integer of at least 0."""
Extent = Annotated[int, 1]
"""An integer of at least 1."""
Positions = tuple[Natural, ...]
Dtype = Literal["float32", "float16", "bfloat16", "float8_e4m3", "float8_e5m2", "int8"]
Checksum = Literal["none", "crc32c", "sha256"]
Persistence = Literal["step", "process", "node", "durable"]
Visibility = Literal["stream_event", "completion", "fsync"]

ITEM_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "float8_e4m3": 1, "float8_e5m2": 1, "int8": 1}
PERSISTENCE = get_args(Persistence)


class NotAManifest(ValueError):
    """A value does not have the form of its schema; ``pointer`` says where."""

    def __init__(self, pointer: str, problem: str) -> None:
        super().__init__(f"{pointer or '/'}: {problem}")
        self.pointer = pointer
        self.problem = problem

    def within(self, pointer: str) -> NotAManifest:
        """The same, seen from the value that holds this one at ``pointer``."""
        return NotAManifest(pointer + self.pointer, self.problem)


@dataclass(frozen=True)
class Binding:
    """The fourteen fields that cached rows are bound to."""

    logical_cache_abi_sha256: Digest
    cache_layout_manifest_sha256: Digest
    visibility_policy_manifest_sha256: Digest
    model_artifact_sha256: Digest
    checkpoint_generation: str
    adapter_set_sha256: Digest
    position_contract_sha256: Digest
    rope_config_sha256: Digest
    tenant_namespace: str
    namespace_generation: Natural
    request_generation: Natural
    cache_generation: Natural
    publication_generation: Natural
    committed_frontier: Natural


@dataclass(frozen=True)
class Tensor:
    """Geometry of the source: K and V are [layers, kv_heads, positions, channels]."""

    layers: Extent
    query_heads: Extent
    kv_heads: Extent
    first_position: Natural
    positions: Extent
    channels: Extent
    k_dtype: Dtype
    v_dtype: Dtype
    kv_head_of: Positions

    @property
    def item_bytes(self) -> int:
        """b_K + b_V: bytes of one scalar of K and one of V."""
        return ITEM_BYTES[self.k_dtype] + ITEM_BYTES[self.v_dtype]


@dataclass(frozen=True)
class Seals:
    """Digests of the source."""

    upstream_sha256: Digest
    tensor_sha256: Digest
    source_sha256: Digest


@dataclass(frozen=True)
class Chunk:
    """The unit that replicas copy."""

    source_sha256: Digest
    first_layer: Natural
    layers: Extent
    first_kv_head: Natural
    kv_heads: Extent
    first_position: Natural
    positions: Extent
    sha256: Digest


@dataclass(frozen=True)
class Packing:
    """How the chunk's payload is packed."""

    codec: str
    layout: str
    payload_bytes: Natural
    payload_sha256: Digest


@dataclass(frozen=True)
class Tier:
    """What may be done in one tier; its name says nothing."""

    id: str
    address_space: str
    kernel_readable: bool
    dma_source: bool
    dma_destination: bool
    codecs: tuple[str, ...]
    layouts: tuple[str, ...]
    partial_attention: bool
    persistence: Persistence
    trust_boundary: str
    tenants: tuple[str, ...]
    alignment_bytes: Extent
    checksum: Checksum
    visibility: Visibility


@dataclass(frozen=True)
class Span:
    """Positions [first_position, end_position)."""

    first_position: Natural
    end_position: Natural

    def __contains__(self, position: int) -> bool:
        return self.first_position <= position < self.end_position


@dataclass(frozen=True)
class Lease:
    """Reclamation fence of a replica."""

    generation: Natural
    readers: Natural


@dataclass(frozen=True)
class Replica:
    """One physical copy of the chunk."""

    id: str
    chunk_sha256: Digest
    tier: str
    allocation_generation: Natural
    replica_generation: Natural
    authority_epoch: Natural
    codec: str
    layout: str
    tenant_namespace: str
    offset_bytes: Natural
    payload_bytes: Natural
    payload_sha256: Digest
    checksum: Checksum
    state: Literal["staged", "valid", "released"]
    visible: Span
    lease: Lease
    sha256: Digest


@dataclass(frozen=True)
class Counted:
    """One object that the directory counts toward R_min."""

    kind: Literal["replica", "proxy", "index"]
    id: str


@dataclass(frozen=True)
class Directory:
    """The replicas and who answers for the chunk's survival."""

    generation: Natural
    authority_epoch: Natural
    authoritative_replica: str
    minimum_replicas: Extent
    required_persistence: Persistence
    counted: tuple[Counted, ...]
    replicas: Annotated[tuple[Replica, ...], 1]


@dataclass(frozen=True)
class Proxy:
    """A derived tensor that scores candidates."""

    selector_id: str
    selector_generation: Natural
    source_sha256: Digest
    first_position: Natural
    end_position: Natural
    basis_sha256: Digest
    dtype: Literal["float32", "float16", "bfloat16"]
    shape: Positions
    derivation: str
    exactness: Literal["approximate_score", "exact_score"]


@dataclass(frozen=True)
class Remainder(Span):
    """What serves the committed positions that an index does not cover."""

    kind: Literal["exact_resident", "exact_fallback"]


@dataclass(frozen=True)
class Index:
    """A search structure over the proxy."""

    index_generation: Natural
    selector_id: str
    selector_generation: Natural
    source_sha256: Digest
    cache_generation: Natural
    committed_frontier: Natural
    coordinates: Literal["original_position", "packed_rank", "page", "cluster"]
    entry_ids: Positions
    tenant_namespace: str
    state: Literal["building", "published", "tombstoned"]
    remainder: Remainder | None


@dataclass(frozen=True)
class Destination:
    """Memory that receives gathered rows."""

    tier: str
    allocation_generation: Natural


@dataclass(frozen=True)
class Deadline:
    """A budget in microseconds from a named event."""

    clock_origin: str | None
    budget_us: Natural


@dataclass(frozen=True)
class Fallback:
    """What happens on a miss."""

    contract: str
    action: str


@dataclass(frozen=True)
class Heads:
    """Both heads and the layer: a head without its kind is ambiguous under grouped queries."""

    layer: Natural
    query_head: Natural
    kv_head: Natural

    @property
    def heads(self) -> tuple[int, int, int]:
        """Layer, query head, K/V head."""
        return self.layer, self.query_head, self.kv_head


@dataclass(frozen=True)
class Operation(Heads):
    """One decode look-up."""

    request_generation: Natural
    cache_generation: Natural
    directory_generation: Natural
    decode_position: Natural
    query_sha256: Digest
    mask_sha256: Digest
    lane: Literal["exact_move", "exact_near_data", "query_selection", "recallable_memory"]
    exactness: Literal["exact", "approximate"]
    destination: Destination
    deadline: Deadline
    fallback: Fallback
    merge_revision: str


@dataclass(frozen=True)
class Publication:
    """One of the eight steps and the event at which it became visible."""

    step: Literal["source", "storage", "replicas", "proxy", "index", "lookup", "gather", "partial"]
    event_generation: Natural


@dataclass(frozen=True)
class Lookup(Heads):
    """Receipt of a look-up: ids, never rows."""

    query_sha256: Digest
    index_generation: Natural
    selector_generation: Natural
    source_cache_generation: Natural
    source_committed_frontier: Natural
    candidate_original_positions: Positions
    semantics: Literal["candidate_ids_only", "kv_rows", "replicas"]


@dataclass(frozen=True)
class Gather(Heads):
    """Receipt of a gather: whose rows lie where, and from when on."""

    original_positions: Positions
    source_kind: Literal["replica", "proxy", "index"]
    source_replica_generations: Positions
    source_lease_generations: Positions
    row_sha256: tuple[Digest, ...]
    k_shape: Positions
    v_shape: Positions
    destination: Destination
    visibility: Visibility
    visibility_event_generation: Natural


@dataclass(frozen=True)
class PartialReceipt(Heads):
    """Receipt of a partial attention, without its state."""

    query_sha256: Digest
    mask_sha256: Digest
    support: Positions
    support_sha256: Digest
    tier: str
    input_event_generation: Natural
    state_schema: Literal["fp32-m-l-u-v1"]
    merge_revision: str


@dataclass(frozen=True)
class Partial(PartialReceipt):
    """Receipt and state."""

    m: float
    l: float  # noqa: E741
    u: tuple[float, ...]


@dataclass(frozen=True)
class Output:
    """What was published."""

    support: Positions
    support_sha256: Digest
    claim: Literal["selected_support", "full_support"]
    fallback_used: str | None
    elapsed_us: Natural


@dataclass(frozen=True)
class Manifest:
    """One retrieval from source to output."""

    format: Literal["kvassay-manifest-v1"]
    source: Binding
    reader: Binding
    tensor: Tensor
    seals: Seals
    chunk: Chunk
    packing: Packing
    tiers: Annotated[tuple[Tier, ...], 1]
    directory: Directory
    proxy: Proxy
    index: Index
    operation: Operation
    steps: Annotated[tuple[Publication, ...], 8, 8]
    lookup: Lookup
    gather: Gather
    partial: Partial
    output: Output

    @property
    def full_support(self) -> tuple[int, ...]:
        """Every committed position of the source."""
        return tuple(range(self.tensor.first_position, self.source.committed_frontier))

    def tier(self, name: str) -> Tier | None:
        """The tier of this name."""
        return next((tier for tier in self.tiers if tier.id == name), None)


_T = TypeVar("_T")
Reader = Callable[[Any], Any]
"""A JSON value to the value as Python holds it."""


def read(kind: type[_T], value: Any, pointer: str = "") -> _T:
    """A dataclass from JSON: no unknown member, none missing, every value of its type. Raises :class:`NotAManifest`."""
    hint: Any = kind
    try:
        instance: _T = _reader(hint)(value)
    except NotAManifest as problem:
        raise problem.within(pointer) from None
    return instance


def write(value: Any) -> Any:
    """The JSON of a dataclass."""
    return _plain(dataclasses.asdict(value))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


@functools.cache
def _reader(hint: Any) -> Reader:
    """What reads a value of one type; made once per type, since manifests are read on the hot path."""
    origin, arguments = get_origin(hint), get_args(hint)
    if dataclasses.is_dataclass(hint):
        return _object_reader(hint)  # type: ignore[arg-type]
    if origin is Annotated:
        return _limited_reader(_reader(arguments[0]), arguments[1:])
    if origin in (Union, types.UnionType):
        inner = _reader(arguments[0])
        return lambda value: None if value is None else inner(value)
    if origin is Literal:
        return _choice_reader(arguments)
    if origin is tuple:
        return _list_reader(_reader(arguments[0]))
    return _plain_reader(hint)


def _object_reader(kind: type) -> Reader:
    hints = get_type_hints(kind, include_extras=True)
    readers = {field.name: _reader(hints[field.name]) for field in dataclasses.fields(kind)}

    def reader(value: Any) -> Any:
        if not isinstance(value, dict):
            raise NotAManifest("", "not an object")
        if value.keys() != readers.keys():
            name = next(iter(value.keys() ^ readers.keys()))
            raise NotAManifest("", f"unknown member {name}" if name in value else f"lacks {name}")
        members = {}
        try:
            for name, each in readers.items():
                members[name] = each(value[name])
        except NotAManifest as problem:
            raise problem.within(f"/{name}") from None
        return kind(**members)

    return reader


def _limited_reader(inner: Reader, limits: tuple[Any, ...]) -> Reader:
    """A text that meets a pattern, or a number or length from ``limits[0]`` to ``limits[1]``."""
    if isinstance(limits[0], re.Pattern):
        return _text_reader(limits[0])
    least, most = limits if len(limits) > 1 else (limits[0], MAX_INTEGER)

    def reader(value: Any) -> Any:
        inside = inner(value)
        if not least <= (len(inside) if isinstance(inside, tuple) else inside) <= most:
            raise NotAManifest("", "out of its range")
        return inside

    return reader


def _text_reader(pattern: re.Pattern[str]) -> Reader:
    def reader(value: Any) -> Any:
        if not isinstance(value, str):
            raise NotAManifest("", "not str")
        if pattern.fullmatch(value) is None:
            raise NotAManifest("", "out of its range")
        return value

    return reader


def _choice_reader(choices: tuple[Any, ...]) -> Reader:
    def reader(value: Any) -> Any:
        if not isinstance(value, str) or value not in choices:
            raise NotAManifest("", f"not one of {', '.join(choices)}")
        return value

    return reader


def _list_reader(each: Reader) -> Reader:
    def reader(value: Any) -> Any:
        if not isinstance(value, list):
            raise NotAManifest("", "not a list")
        items: list[Any] = []
        try:
            for item in value:
                items.append(each(item))
        except NotAManifest as problem:
            raise problem.within(f"/{len(items)}") from None
        return tuple(items)

    return reader


def _plain_reader(hint: type) -> Reader:
    wanted = (int, float) if hint is float else hint

    def reader(value: Any) -> Any:
        if not isinstance(value, wanted) or (isinstance(value, bool) and hint is not bool):
            raise NotAManifest("", f"not {hint.__name__}")
        return value

    return reader
