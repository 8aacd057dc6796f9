"""Receipts of parts of a support, and their reduction to one exact output.

A producer attends to rows that it owns and returns, for each query head, the state of the contract attention with the
whole identity of the query that it was made for. The coordinator compares every field, since the order of arrival and
the sender prove nothing, and merges what covers the support exactly once. Sections 04W and 04Y of the article.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from . import attention
from .attention import Array, Mask, State
from .canonical import support_sha256
from .errors import Refusal
from .offload import Rule, Spans, ascending, length, spans

Json = Mapping[str, Any]
STATE_SCHEMA = "fp32-m-l-u-v1"
STATE_PARTS = ("m", "l", "u")
SHARED = (
    "tenant",
    "request_id",
    "request_generation",
    "checkpoint_generation",
    "layer",
    "query_to_kv_mapping_id",
    "query_position",
    "mask_id",
    "position_schema_id",
    "score_scale",
    "deadline_ms",
)
"""Members that a receipt repeats from its query."""


@dataclass(frozen=True)
class Producer:
    """A tier that was asked."""

    name: str
    generation: int
    completion_event: str


@dataclass(frozen=True)
class Asked:
    """A query, the positions that its output needs, and who was asked."""

    query: Json
    cover: Spans
    producers: tuple[Producer, ...]

    @classmethod
    def read(cls, document: Json) -> Asked:
        """From a document or the request of a session."""
        return cls(document["query"], spans(document["cover"]), tuple(Producer(**one) for one in document["producers"]))

    @property
    def heads(self) -> int:
        """H_q."""
        return len(self.query["kv_head_of"])

    def producer(self, name: str) -> Producer | None:
        """The tier of this name."""
        return next((one for one in self.producers if one.name == name), None)


# ---- positions ---------------------------------------------------------------------------------------------------


def listed(several: Spans) -> list[int]:
    """Every position of spans."""
    return [position for first, end in several for position in range(first, end)]


def without(several: Spans, taken: Sequence[int]) -> list[list[int]]:
    """What is left of spans, as the fewest spans."""
    gone = set(taken)
    left: list[list[int]] = []
    for position in listed(several):
        if position in gone:
            continue
        if left and left[-1][1] == position:
            left[-1][1] += 1
        else:
            left.append([position, position + 1])
    return left


def digest(support: Spans) -> str:
    """The canonical digest of a support; how it is cut into spans does not matter."""
    return support_sha256(listed(support))


def checksum(receipt: Json) -> str:
    """SHA-256 of the bytes of m, l and u as little-endian float32."""
    raw = b"".join(np.asarray(receipt[part], "<f4").tobytes() for part in STATE_PARTS)
    return hashlib.sha256(raw).hexdigest()


# ---- the producer ------------------------------------------------------------------------------------------------


def held_rows(positions: Sequence[int], wanted: Sequence[int]) -> list[int]:
    """Where the wanted positions stand among those that the producer holds; refuses what is not there once."""
    where = {position: row for row, position in enumerate(positions)}
    if len(where) < len(positions) or not all(position in where for position in wanted):
        raise Refusal("SUPPORT_NOT_HELD", "a position is asked for that is not held, or one is held twice")
    return [where[position] for position in wanted]


def scan(q: Array, k: Array, v: Array, scale: float, kv_head_of: Sequence[int], rows: Sequence[int], xp: Any) -> State:
    """State of every query head over some rows, [H_q]; raises :class:`Refusal` as attention does."""
    every = Mask(causal=False)
    places = xp.arange(k.shape[0], dtype=xp.int64)
    attention.check_rows(q, k, v, kv_head_of, places, every, None)
    picked = xp.asarray(list(rows), dtype=xp.int64)
    k, v = xp.take(k, picked, axis=0), xp.take(v, picked, axis=0)
    return attention.partial(q, k, v, scale=scale, kv_head_of=kv_head_of, positions=picked, q_position=0, mask=every)


def receipt(
    query: Json, head: int, support: Spans, producer: Producer, completed_ms: float, state: Mapping[str, Any]
) -> dict[str, Any]:
    """One query head's state with its identity; ``state`` holds m, l and u of this head in float32."""
    made = {
        **{name: query[name] for name in SHARED},
        "query_head": head,
        "kv_head": query["kv_head_of"][head],
        "support": [list(span) for span in support],
        "support_sha256": digest(support),
        "state_schema": STATE_SCHEMA,
        **state,
        "producer": producer.name,
        "producer_generation": producer.generation,
        "completion_event": producer.completion_event,
        "completed_ms": completed_ms,
    }
    return {**made, "checksum": checksum(made)}


# ---- the coordinator ---------------------------------------------------------------------------------------------


def asked_rules(asked: Asked) -> Iterator[Rule]:
    """Rules of what was asked, before any receipt."""
    yield ascending(asked.cover), "SPANS_NOT_ASCENDING"
    yield len({one.name for one in asked.producers}) == len(asked.producers), "PRODUCER_TWICE"


def receipt_rules(asked: Asked, one: Json) -> Iterator[Rule]:
    """Rules of one receipt in their order; a later rule may rest on the earlier ones."""
    support = spans(one["support"])
    yield ascending(support), "SPANS_NOT_ASCENDING"
    yield from identity_rules(asked.query, one, support)
    yield from state_rules(asked.query, one, bool(support))
    yield from producer_rules(asked, one)
    yield set(listed(support)) <= set(listed(asked.cover)), "SUPPORT_OUTSIDE_COVER"


def identity_rules(query: Json, one: Json, support: Spans) -> Iterator[Rule]:
    """Every field of the identity against the query."""
    same = {name: one[name] == query[name] for name in SHARED}
    heads = query["kv_head_of"]
    yield same["tenant"], "TENANT_MISMATCH"
    yield same["request_id"], "RECEIPT_OF_OTHER_REQUEST"
    yield same["request_generation"], "STALE_REQUEST_GENERATION"
    yield same["checkpoint_generation"], "STALE_CHECKPOINT_GENERATION"
    yield same["layer"] and one["query_head"] < len(heads), "RECEIPT_OF_OTHER_HEAD"
    yield one["kv_head"] == heads[one["query_head"]], "WRONG_KV_HEAD"
    yield same["query_to_kv_mapping_id"], "MAPPING_MISMATCH"
    yield same["query_position"], "PARTIAL_OF_OTHER_QUERY"
    yield one["support_sha256"] == digest(support), "SUPPORT_DIGEST_MISMATCH"
    yield same["mask_id"], "MASK_MISMATCH"
    yield same["position_schema_id"], "POSITION_CONTRACT_MISMATCH"
    yield same["score_scale"], "SCALE_MISMATCH"


def state_rules(query: Json, one: Json, some: bool) -> Iterator[Rule]:
    """Whether the state can be merged: schema, members, dtype, shape, bytes, mass. ``some``: it covers a row."""
    yield one["state_schema"] == STATE_SCHEMA, "STATE_SCHEMA_MISMATCH"
    yield all(part in one for part in STATE_PARTS), "STATE_INCOMPLETE"
    m, l, u = (np.asarray(one[part]) for part in STATE_PARTS)  # noqa: E741
    yield {m.dtype, l.dtype, u.dtype} == {np.dtype("float32")}, "DTYPE_MISMATCH"
    yield (m.shape, l.shape, u.shape) == ((), (), (query["value_channels"],)), "SHAPE_MISMATCH"
    yield one["checksum"] == checksum(one), "STATE_CHECKSUM_MISMATCH"
    if some:
        finite = np.isfinite(m) & np.isfinite(l) & np.isfinite(u).all()
        yield bool(finite and l > 0), "STATE_WITHOUT_MASS"
    else:
        yield bool(m == -math.inf and l == 0 and not u.any()), "STATE_WITHOUT_MASS"


def producer_rules(asked: Asked, one: Json) -> Iterator[Rule]:
    """Who attended, in which life, by which event, and in time."""
    producer = asked.producer(one["producer"])
    yield producer is not None, "UNKNOWN_PRODUCER"
    assert producer is not None
    yield one["producer_generation"] == producer.generation, "STALE_PRODUCER_GENERATION"
    yield one["completion_event"] == producer.completion_event, "COMPLETION_EVENT_MISMATCH"
    yield one["deadline_ms"] == asked.query["deadline_ms"], "DEADLINE_MISMATCH"
    yield one["completed_ms"] <= asked.query["deadline_ms"], "RECEIPT_LATE"


def of_head(receipts: Sequence[Json], head: int) -> list[Json]:
    """Receipts of one query head, in order of arrival."""
    return [one for one in receipts if one["query_head"] == head]


def covered(receipts: Sequence[Json]) -> list[int]:
    """Positions of one head's receipts, one after the other."""
    return [position for one in receipts for position in listed(spans(one["support"]))]


def overlap_rules(asked: Asked, receipts: Sequence[Json]) -> Iterator[Rule]:
    """No position twice, head by head."""
    for head in range(asked.heads):
        several = covered(of_head(receipts, head))
        yield len(set(several)) == len(several), "SUPPORT_OVERLAP"


def gap_rules(asked: Asked, receipts: Sequence[Json]) -> Iterator[Rule]:
    """No position of the cover missing, head by head; and a cover that holds one."""
    for head in range(asked.heads):
        yield not without(asked.cover, covered(of_head(receipts, head))), "SUPPORT_GAP"
    yield length(asked.cover) > 0, "NO_LEGAL_ROWS"


def merged(receipts: Sequence[Mapping[str, Array]], xp: Any) -> State:
    """The states of one head's receipts as one: m and l [1], u [1, d_v]."""
    return attention.merge(
        [State(*(xp.reshape(one[part], (1, *one[part].shape)) for part in STATE_PARTS)) for one in receipts]
    )


def is_known(receipts: Sequence[Json], one: Json) -> bool:
    """Whether the same state of the same part from the same producer was taken before."""
    names = ("query_head", "producer", "support", "checksum")
    return any(all(other[name] == one[name] for name in names) for other in receipts)


@dataclass
class Attempt:
    """What a coordinator keeps between the question and the publication."""

    asked: Asked
    fallback: str
    receipts: list[Json] = field(init=False, default_factory=list)
    rejected: dict[str, int] = field(init=False, default_factory=dict)
    """Rejections by reason, in the order of their first one."""
    published: str | None = field(init=False, default=None)
    deadline_missed: bool = field(init=False, default=False)

    @property
    def deadline_ms(self) -> float:
        """On the coordinator's clock."""
        return float(self.asked.query["deadline_ms"])

    def open_rules(self) -> Iterator[Rule]:
        """Nothing was published yet."""
        yield self.published in (None, "support_partition"), "FALLBACK_PUBLISHED"
        yield self.published is None, "ALREADY_PUBLISHED"

    def count(self, reason: str) -> None:
        """Keep a rejection."""
        self.rejected[reason] = self.rejected.get(reason, 0) + 1
