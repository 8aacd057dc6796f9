"""The pause document: one request from pause to resume, as frozen data, and the rules that it must meet.

``RULES`` is the order of precedence: the first rule that a document breaks names the reason.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Literal

from .lifecycle import RECEIPT_STEPS, path, tokens_sha256
from .manifest import Digest, Extent, Natural, write

Action = Literal["turn", "preserve", "swap", "discard"]


@dataclass(frozen=True)
class Bound:
    """What the rows of a pause are bound to."""

    source_sha256: Digest
    tenant_namespace: str
    cache_generation: Natural
    representation: str
    position_rule: str
    support: str


@dataclass(frozen=True)
class Cache(Bound):
    """The cache as the resuming runtime has it."""

    layers: Extent
    token_bytes: Extent
    committed_frontier: Natural
    payload_sha256: Digest


@dataclass(frozen=True)
class Sampler:
    """State of sampling."""

    seed: Natural
    draws: Natural
    temperature_milli: Natural


@dataclass(frozen=True)
class Pause(Bound):
    """The manifest that was written at the pause."""

    session: str
    action: Literal["turn", "swap"]
    call_id: str | None
    lifecycle_epoch: Natural
    snapshot_frontier: Natural
    contains_uncommitted_rows: bool
    original_arrival_ms: Natural
    sampler: Sampler
    states: Annotated[tuple[str, ...], 1]


@dataclass(frozen=True)
class LayerCopy:
    """One layer of a save; events are numbered in the order in which they happened."""

    layer: Natural
    rows: Natural
    lease_closed_event: Natural
    copy_event: Natural
    done_event: Natural


@dataclass(frozen=True)
class Save:
    """The receipt of the save."""

    owner: str
    cache_generation: Natural
    first_position: Natural
    end_position: Natural
    bytes: Natural
    payload_sha256: Digest
    layers: Annotated[tuple[LayerCopy, ...], 1]
    published_event: Natural
    gpu_released_event: Natural


@dataclass(frozen=True)
class Suffix:
    """Positions that are computed again."""

    first_position: Natural
    end_position: Natural


@dataclass(frozen=True)
class Restore:
    """The receipt of the restore."""

    owner: str
    cache_generation: Natural
    evidence: Literal["validated", "scheduler_hint"]
    first_position: Natural
    valid_end: Natural
    payload_sha256: Digest
    recompute: Suffix | None


@dataclass(frozen=True)
class Result:
    """What the external call returned."""

    id: str
    call_id: str
    tokens: Annotated[tuple[Natural, ...], 1]
    tokens_sha256: Digest


@dataclass(frozen=True)
class Receipt:
    """The application of one result."""

    call_id: str
    lifecycle_epoch: Natural
    result_id: str
    tokens_sha256: Digest
    states: Annotated[tuple[str, ...], 1]
    appends: Natural
    prefills_after_commit: Natural
    append_transaction: Natural
    receipt_transaction: Natural


@dataclass(frozen=True)
class Resume:
    """How the request runs again."""

    lifecycle_epoch: Natural
    appended_tokens: Natural
    committed_frontier: Natural
    queued_arrival_ms: Natural
    sampler: Sampler


@dataclass(frozen=True)
class Telemetry:
    """What was attempted, what was published, and what moved."""

    attempted_action: Action
    decisions: Annotated[tuple[Action, ...], 1]
    published_action: Action
    saved_bytes: Natural
    loaded_bytes: Natural


@dataclass(frozen=True)
class PauseDocument:
    """The whole."""

    cache: Cache
    pause: Pause
    pause_sha256: Digest
    save: Save
    restore: Restore
    result: Result | None
    receipt: Receipt | None
    resume: Resume
    telemetry: Telemetry

    @property
    def turn(self) -> bool:
        """Whether a completed turn was paused, and no interrupted request."""
        return self.pause.action == "turn"

    @property
    def rows(self) -> int:
        """Rows that the snapshot claims."""
        return self.pause.snapshot_frontier


def pause_sha256(pause: Pause) -> str:
    """SHA-256 of the manifest's canonical JSON: sorted keys, no blanks."""
    text = json.dumps(write(pause), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class Rule:
    """A reason, the place that breaks it, and what must hold."""

    reason: str
    pointer: str
    holds: Callable[[PauseDocument], bool]


def _same_binding(name: str) -> Callable[[PauseDocument], bool]:
    return lambda d: bool(getattr(d.pause, name) == getattr(d.cache, name))


def _of_result(holds: Callable[[Result, Receipt, PauseDocument], bool]) -> Callable[[PauseDocument], bool]:
    """A rule on result and receipt, which a completed turn has not."""
    return lambda d: d.result is None or d.receipt is None or holds(d.result, d.receipt, d)


def _every_layer(holds: Callable[[LayerCopy, PauseDocument], bool]) -> Callable[[PauseDocument], bool]:
    return lambda d: all(holds(layer, d) for layer in d.save.layers)


def _recompute(d: PauseDocument) -> bool:
    end, whole = d.restore.valid_end, d.cache.committed_frontier
    return d.restore.recompute == (Suffix(end, whole) if end < whole else None)


def _receipt_order(result: Result, receipt: Receipt, d: PauseDocument) -> bool:
    return receipt.states[0] == "UNSEEN" and all(step in RECEIPT_STEPS for step in pairwise(receipt.states))


BINDING = (
    ("source_sha256", "PAUSE_OF_OTHER_SOURCE"),
    ("tenant_namespace", "PAUSE_OF_OTHER_TENANT"),
    ("cache_generation", "PAUSE_OF_OTHER_GENERATION"),
    ("representation", "REPRESENTATION_MISMATCH"),
    ("position_rule", "POSITION_RULE_MISMATCH"),
    ("support", "SUPPORT_NOT_FULL"),
)

# fmt: off
RULES: tuple[Rule, ...] = (
    Rule("PAUSE_DIGEST_MISMATCH", "/pause_sha256", lambda d: d.pause_sha256 == pause_sha256(d.pause)),
    Rule("RESULT_DIGEST_MISMATCH", "/result/tokens_sha256",
         lambda d: d.result is None or d.result.tokens_sha256 == tokens_sha256(d.result.tokens)),
    *(Rule(reason, f"/pause/{name}", _same_binding(name)) for name, reason in BINDING),
    Rule("CALL_ID_UNEXPECTED", "/pause/call_id",
         lambda d: not d.turn or (d.pause.call_id is None and d.result is None and d.receipt is None)),
    Rule("CALL_ID_MISSING", "/pause/call_id", lambda d: d.turn or d.pause.call_id is not None),
    Rule("RECEIPT_MISSING", "/receipt", lambda d: d.turn or (d.result is not None and d.receipt is not None)),
    Rule("UNCOMMITTED_ROWS_IN_SNAPSHOT", "/pause/contains_uncommitted_rows",
         lambda d: not d.pause.contains_uncommitted_rows),
    Rule("SNAPSHOT_BEYOND_COMMIT", "/pause/snapshot_frontier", lambda d: d.rows <= d.cache.committed_frontier),
    Rule("ILLEGAL_TRANSITION", "/pause/states", lambda d: d.pause.states == path(d.pause.action)),
    Rule("SAVE_GENERATION_MISMATCH", "/save/cache_generation",
         lambda d: d.save.cache_generation == d.cache.cache_generation),
    Rule("SAVE_OWNER_MISMATCH", "/save/owner", lambda d: d.save.owner == d.pause.session),
    Rule("POSITIONS_SHIFTED", "/save/first_position", lambda d: d.save.first_position == 0),
    Rule("SAVE_ROWS_MISMATCH", "/save/end_position", lambda d: d.save.end_position == d.rows),
    Rule("PARTIAL_SAVE", "/save/layers",
         lambda d: [layer.layer for layer in d.save.layers] == list(range(d.cache.layers))),
    Rule("PARTIAL_SAVE", "/save/layers", _every_layer(lambda layer, d: layer.rows == d.rows)),
    Rule("LAYER_LEASE_OPEN", "/save/layers",
         _every_layer(lambda layer, d: layer.lease_closed_event < layer.copy_event)),
    Rule("COPY_IN_FLIGHT", "/save/layers", _every_layer(lambda layer, d: layer.copy_event < layer.done_event)),
    Rule("SAVE_BYTES_MISMATCH", "/save/bytes", lambda d: d.save.bytes == d.rows * d.cache.token_bytes),
    Rule("SAVE_CHECKSUM_MISMATCH", "/save/payload_sha256",
         lambda d: d.save.payload_sha256 == d.cache.payload_sha256),
    Rule("PUBLISHED_BEFORE_COPIED", "/save/published_event",
         _every_layer(lambda layer, d: layer.done_event < d.save.published_event)),
    Rule("LAST_COPY_RELEASED", "/save/gpu_released_event",
         lambda d: d.save.published_event < d.save.gpu_released_event),
    Rule("REPLICA_NOT_VALIDATED", "/restore/evidence", lambda d: d.restore.evidence == "validated"),
    Rule("STALE_REPLICA", "/restore/cache_generation",
         lambda d: d.restore.cache_generation == d.cache.cache_generation),
    Rule("REPLICA_OF_OTHER_OWNER", "/restore/owner", lambda d: d.restore.owner == d.pause.session),
    Rule("POSITIONS_SHIFTED", "/restore/first_position",
         lambda d: d.restore.first_position == d.save.first_position),
    Rule("REPLICA_BEYOND_SNAPSHOT", "/restore/valid_end", lambda d: d.restore.valid_end <= d.rows),
    Rule("REPLICA_CHECKSUM_MISMATCH", "/restore/payload_sha256",
         lambda d: d.restore.payload_sha256 == d.cache.payload_sha256),
    Rule("PARTIAL_SNAPSHOT", "/restore/recompute", _recompute),
    Rule("RESUME_EPOCH_NOT_NEXT", "/resume/lifecycle_epoch",
         lambda d: d.resume.lifecycle_epoch == d.pause.lifecycle_epoch + 1),
    Rule("RESULT_OF_OTHER_CALL", "/result/call_id",
         _of_result(lambda result, receipt, d: result.call_id == d.pause.call_id)),
    Rule("RECEIPT_OF_OTHER_CALL", "/receipt/call_id",
         _of_result(lambda result, receipt, d: receipt.call_id == d.pause.call_id)),
    Rule("STALE_PAUSE_EPOCH", "/receipt/lifecycle_epoch",
         _of_result(lambda result, receipt, d: receipt.lifecycle_epoch == d.pause.lifecycle_epoch)),
    Rule("COMPETING_RESULT", "/receipt/result_id",
         _of_result(lambda result, receipt, d: receipt.result_id == result.id)),
    Rule("COMPETING_RESULT", "/receipt/tokens_sha256",
         _of_result(lambda result, receipt, d: receipt.tokens_sha256 == result.tokens_sha256)),
    Rule("RECEIPT_OUT_OF_ORDER", "/receipt/states", _of_result(_receipt_order)),
    Rule("RECEIPT_NOT_APPLIED", "/receipt/states",
         _of_result(lambda result, receipt, d: receipt.states[-1] == "APPLIED")),
    Rule("RESULT_APPLIED_TWICE", "/receipt/appends", _of_result(lambda result, receipt, d: receipt.appends == 1)),
    Rule("RESULT_PREFILLED_TWICE", "/receipt/prefills_after_commit",
         _of_result(lambda result, receipt, d: receipt.prefills_after_commit == 0)),
    Rule("APPEND_NOT_ATOMIC", "/receipt/receipt_transaction",
         _of_result(lambda result, receipt, d: receipt.append_transaction == receipt.receipt_transaction)),
    Rule("APPEND_OF_OTHER_LENGTH", "/resume/appended_tokens",
         _of_result(lambda result, receipt, d: d.resume.appended_tokens == len(result.tokens))),
    Rule("FRONTIER_AFTER_APPEND", "/resume/committed_frontier",
         lambda d: d.resume.committed_frontier == d.cache.committed_frontier + d.resume.appended_tokens),
    Rule("SAMPLER_LOST", "/resume/sampler", lambda d: d.resume.sampler == d.pause.sampler),
    Rule("ARRIVAL_RESET", "/resume/queued_arrival_ms",
         lambda d: d.resume.queued_arrival_ms == d.pause.original_arrival_ms),
    Rule("PUBLISHED_PLAN_MISMATCH", "/telemetry/published_action",
         lambda d: d.telemetry.published_action == d.pause.action),
    Rule("DECISIONS_LOST", "/telemetry/decisions",
         lambda d: (d.telemetry.decisions[0], d.telemetry.decisions[-1])
         == (d.telemetry.attempted_action, d.telemetry.published_action)),
    Rule("TELEMETRY_BYTES_MISMATCH", "/telemetry/saved_bytes",
         lambda d: d.telemetry.saved_bytes == d.save.bytes),
    Rule("TELEMETRY_BYTES_MISMATCH", "/telemetry/loaded_bytes",
         lambda d: d.telemetry.loaded_bytes == d.restore.valid_end * d.cache.token_bytes),
)
# fmt: on


def violations(d: PauseDocument, rules: Sequence[Rule] = RULES) -> Iterator[tuple[str, str]]:
    """Reason and pointer of every rule that the document breaks, in the order of precedence."""
    return ((rule.reason, rule.pointer) for rule in rules if not rule.holds(d))
