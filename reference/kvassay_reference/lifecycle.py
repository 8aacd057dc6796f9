"""Pause and resume as a machine: explicit tables of transitions, and the sessions that move through them.

Both tables are data. ``TRANSITIONS`` moves a session, ``RECEIPTS`` moves the receipt of an external result. What is not
in them is not legal.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from .errors import Refusal


class Transition(NamedTuple):
    """From a state by an event to a state; ``when`` names the action or the kind of pause that it holds for."""

    state: str
    event: str
    target: str
    when: str = ""


TRANSITIONS: tuple[Transition, ...] = (
    Transition("RUNNING", "pause", "QUIESCING"),
    Transition("QUIESCING", "quiesce", "SAVING", "turn"),
    Transition("QUIESCING", "quiesce", "SWAPPING_OUT", "swap"),
    Transition("QUIESCING", "quiesce", "PAUSED_GPU", "preserve"),
    Transition("QUIESCING", "quiesce", "TOKEN_ONLY", "discard"),
    Transition("SAVING", "publish", "PAUSED_HOST"),
    Transition("SWAPPING_OUT", "publish", "PAUSED_HOST"),
    Transition("PAUSED_GPU", "revise", "SWAPPING_OUT", "swap"),
    Transition("PAUSED_GPU", "revise", "TOKEN_ONLY", "discard"),
    Transition("PAUSED_HOST", "revise", "TOKEN_ONLY", "discard"),
    Transition("PAUSED_HOST", "resume", "RESTORING", "turn"),
    Transition("PAUSED_HOST", "resume", "SWAPPING_IN", "interrupted"),
    Transition("PAUSED_GPU", "resume", "PAUSED_GPU", "interrupted"),
    Transition("TOKEN_ONLY", "resume", "RECOMPUTING"),
    Transition("RESTORING", "ready", "RESUME_READY"),
    Transition("SWAPPING_IN", "ready", "RESUME_READY"),
    Transition("PAUSED_GPU", "ready", "RESUME_READY"),
    Transition("RECOMPUTING", "ready", "RESUME_READY"),
    Transition("RESUME_READY", "prefill", "PREFILL_NEW_TURN", "turn"),
    Transition("RESUME_READY", "prefill", "PREFILL_EXTERNAL_RESULT", "interrupted"),
    Transition("PREFILL_NEW_TURN", "commit", "RUNNING"),
    Transition("PREFILL_EXTERNAL_RESULT", "commit", "PREFILL_EXTERNAL_RESULT"),
    Transition("PREFILL_EXTERNAL_RESULT", "apply", "RUNNING"),
)
"""The states of a session. ``fail`` and a restart lead to where the rows still are: :meth:`Session.rest`."""

RECEIPTS: tuple[Transition, ...] = (
    Transition("UNSEEN", "result", "RESERVED"),
    Transition("RESERVED", "ready", "CACHE_READY_AND_VALIDATED"),
    Transition("CACHE_READY_AND_VALIDATED", "commit", "RESULT_APPEND_COMMITTED"),
    Transition("RESULT_APPEND_COMMITTED", "apply", "APPLIED"),
    Transition("RESULT_APPEND_COMMITTED", "result", "APPLIED"),
    Transition("RESERVED", "fail", "RETRYABLE"),
    Transition("CACHE_READY_AND_VALIDATED", "fail", "RETRYABLE"),
    Transition("RETRYABLE", "result", "RESERVED"),
)
"""The states of a receipt. Every other event leaves it as it is."""

RECEIPT_STEPS = frozenset((row.state, row.target) for row in RECEIPTS)
SAVING = frozenset({"SAVING", "SWAPPING_OUT"})
BRINGING_BACK = frozenset({"RESTORING", "SWAPPING_IN", "RECOMPUTING", "PAUSED_GPU"})
PATH = ("pause", "quiesce", "publish", "resume", "ready", "prefill", "commit", "apply")


def target(table: Iterable[Transition], state: str, event: str, facts: Sequence[str] = ()) -> str | None:
    """The next state; ``None`` where the table has none."""
    rows = (row for row in table if (row.state, row.event) == (state, event) and row.when in ("", *facts))
    return next((row.target for row in rows), None)


def path(action: str) -> tuple[str, ...]:
    """The states of an undisturbed pause by an action, from RUNNING to RUNNING."""
    facts = (action, kind(action))
    states = ["RUNNING"]
    for event in PATH:
        found = target(TRANSITIONS, states[-1], event, facts)
        if found is not None and found != states[-1]:
            states.append(found)
    return tuple(states)


def kind(action: str | None) -> str:
    """The two pauses."""
    return "turn" if action == "turn" else "interrupted"


def tokens_sha256(tokens: Iterable[int]) -> str:
    """SHA-256 of token ids, eight big-endian bytes each."""
    return hashlib.sha256(b"".join(token.to_bytes(8, "big") for token in tokens)).hexdigest()


def demand(condition: bool, reason: str, detail: str = "") -> None:
    """Raise :class:`Refusal` unless the condition holds."""
    if not condition:
        raise Refusal(reason, detail)


@dataclass
class Receipt:
    """The one application of an external result; bound to the first result that reserves it."""

    result_id: str
    sha256: str
    tokens: list[int]
    state: str = "RESERVED"

    def on(self, event: str) -> bool:
        """Move by an event; whether it moved."""
        found = target(RECEIPTS, self.state, event)
        self.state = found or self.state
        return found is not None


@dataclass
class Device:
    """What a restart loses."""

    rows: bool = True
    """Whether the committed rows are on the device."""
    draft: list[int] = field(default_factory=list)
    """Speculative tokens."""
    leases: set[int] = field(default_factory=set)
    """Layers that are being read."""
    dma: set[int] = field(default_factory=set)
    """Layers of earlier copies in flight."""
    saving: set[int] = field(default_factory=set)
    copied: set[int] = field(default_factory=set)
    """Layers of the present save, in flight and done."""
    resuming: bool = False
    extension: list[int] | None = None
    """Suffix that was computed and is not published."""


@dataclass
class Session:
    """One request. All but ``device`` is durable."""

    owner: str
    layers: int
    token_bytes: int
    cache_generation: int
    arrival_ms: int
    tokens: list[int]
    pause_epoch: int
    device: Device
    epoch: int = 0
    """Lifecycle epoch: of the pause, then of its resume."""
    state: str = "RUNNING"
    kind: str = "turn"
    decisions: list[str] = field(default_factory=list)
    call_id: str | None = None
    snapshot: int | None = None
    """Rows of the published snapshot."""
    receipts: dict[tuple[str, int], Receipt] = field(default_factory=dict)
    prefills: int = 0
    appends: int = 0
    recomputed: int = 0

    @property
    def action(self) -> str:
        """The latest decision; empty before the first pause."""
        return self.decisions[-1] if self.decisions else ""

    @property
    def receipt(self) -> Receipt | None:
        """Of the present call."""
        return None if self.call_id is None else self.receipts.get((self.call_id, self.pause_epoch))

    @property
    def receipt_state(self) -> str | None:
        """``None`` where no call is waited for."""
        if self.call_id is None:
            return None
        return "UNSEEN" if self.receipt is None else self.receipt.state

    def next(self, event: str, *facts: str) -> str:
        """Where a transition of the table leads; raises :class:`Refusal` where it has none."""
        found = target(TRANSITIONS, self.state, event, (*facts, self.kind))
        if found is None:
            raise Refusal("ILLEGAL_TRANSITION", f"{event} in {self.state}")
        return found

    def move(self, event: str, *facts: str) -> None:
        """Take a transition."""
        self.state = self.next(event, *facts)

    def tell(self, event: str) -> bool:
        """Move the receipt, if there is one."""
        return self.receipt is not None and self.receipt.on(event)

    def rest(self) -> str:
        """Where the rows still are."""
        if self.snapshot is not None:
            return "PAUSED_HOST"
        return "PAUSED_GPU" if self.device.rows and self.action == "preserve" else "TOKEN_ONLY"

    def give_up(self) -> None:
        """End an attempt before its commit: nothing of it is visible, and the result can be reserved again."""
        self.tell("fail")
        self.device.extension, self.device.resuming = None, False
        self.state = self.rest()

    def status(self, outcome: str = "done") -> dict[str, Any]:
        """What every op of the machine answers."""
        return {
            "outcome": outcome,
            "state": self.state,
            "decisions": list(self.decisions),
            "lifecycle_epoch": self.epoch,
            "arrival_ms": self.arrival_ms,
            "tokens": list(self.tokens),
            "snapshot_rows": self.snapshot,
            "on_gpu": self.device.rows,
            "copying": sorted(self.device.dma | self.device.saving),
            "copied": sorted(self.device.copied),
            "receipt": self.receipt_state,
            "prefills": self.prefills,
            "appends": self.appends,
            "recomputed": self.recomputed,
        }


@dataclass(frozen=True)
class Copy:
    """What a save or a restore says of its rows."""

    generation: int
    owner: str
    first_position: int
    end_position: int
    tokens_sha256: str


class Machine:
    """All sessions of an engine. Methods return the session, or an outcome where there are several."""

    def __init__(self) -> None:
        self.sessions: dict[str, Session] = {}

    def begin(self, name: str, session: Session) -> Session:
        """Take a running request."""
        demand(name not in self.sessions, "SESSION_EXISTS", name)
        self.sessions[name] = session
        session.epoch = session.pause_epoch
        return session

    def find(self, name: str) -> Session:
        """A session by name."""
        demand(name in self.sessions, "UNKNOWN_SESSION", name)
        return self.sessions[name]

    def decode(self, session: Session, tokens: Iterable[int]) -> None:
        """Commit tokens of a running request."""
        demand(session.state == "RUNNING", "DECODE_WHILE_PAUSED", session.state)
        session.tokens.extend(tokens)

    # pause

    def pause(self, session: Session, action: str, call_id: str | None) -> None:
        """Close decode work and write the manifest under a new epoch."""
        session.next("pause")
        turn = action == "turn"
        demand(turn or call_id is not None, "CALL_ID_MISSING", "an interrupted request waits for a call")
        demand(not turn or call_id is None, "CALL_ID_UNEXPECTED", "a completed turn waits for no call")
        session.move("pause")
        session.kind, session.decisions, session.call_id = kind(action), [action], call_id
        session.epoch += 1
        session.pause_epoch = session.epoch
        session.snapshot = None
        session.device.copied.clear()

    def finished(self, session: Session, event: str, layer: int) -> None:
        """A reader (``lease_closed``) or a copy (``dma_done``) is done with a layer."""
        device = session.device
        work = device.leases if event == "lease_closed" else device.dma if layer in device.dma else device.saving
        demand(layer in work, "NO_SUCH_WORK", f"layer {layer}")
        work.remove(layer)
        if work is device.saving:
            device.copied.add(layer)

    def quiesce(self, session: Session) -> None:
        """The committed frontier is settled: speculative rows are dropped; copies in flight go on."""
        session.move("quiesce", session.action)
        session.device.draft.clear()

    def revise(self, session: Session, action: str) -> None:
        """Wait in another way."""
        demand(not session.device.resuming, "ILLEGAL_TRANSITION", "a resume is under way")
        session.move("revise", action)
        session.decisions.append(action)
        session.snapshot = None

    def snapshot(self, session: Session, layer: int) -> str:
        """Start to copy a layer to the host."""
        demand(session.state in SAVING, "ILLEGAL_TRANSITION", f"snapshot in {session.state}")
        demand(0 <= layer < session.layers, "NO_SUCH_WORK", f"layer {layer}")
        if layer in session.device.saving or layer in session.device.copied:
            return "noop"
        demand(layer not in session.device.leases, "LAYER_LEASE_OPEN", f"layer {layer}")
        session.device.saving.add(layer)
        return "done"

    def publish(self, session: Session, copy: Copy, size: int) -> None:
        """Validate the save and make it an authority."""
        demand(session.state in SAVING, "ILLEGAL_TRANSITION", f"publish in {session.state}")
        self.validate_save(session, copy, size)
        session.move("publish")
        session.snapshot = copy.end_position

    def validate_save(self, session: Session, copy: Copy, size: int) -> None:
        """Every layer was copied, and the copy is of these rows."""
        end = copy.end_position
        demand(not session.device.saving, "COPY_IN_FLIGHT", "layers are being copied")
        demand(len(session.device.copied) == session.layers, "PARTIAL_SAVE", "layers are missing")
        demand(copy.generation == session.cache_generation, "SAVE_GENERATION_MISMATCH")
        demand(copy.owner == session.owner, "SAVE_OWNER_MISMATCH")
        demand(copy.first_position == 0, "POSITIONS_SHIFTED")
        demand(end <= len(session.tokens), "SNAPSHOT_BEYOND_COMMIT")
        demand(size == end * session.token_bytes, "SAVE_BYTES_MISMATCH")
        demand(copy.tokens_sha256 == tokens_sha256(session.tokens[:end]), "SAVE_CHECKSUM_MISMATCH")

    def release(self, session: Session) -> None:
        """Free the rows on the device, once nobody reads them and something else can bring them back."""
        demand(session.state in ("PAUSED_HOST", "TOKEN_ONLY"), "LAST_COPY_RELEASED", session.state)
        demand(not session.device.dma and not session.device.saving, "COPY_IN_FLIGHT", "rows are being copied")
        demand(not session.device.leases, "LAYER_LEASE_OPEN", "rows are being read")
        session.device.rows = False

    # resume

    def result(self, session: Session, call_id: str, epoch: int, result_id: str, tokens: list[int], sha: str) -> str:
        """Reserve the application of a result; a repetition changes nothing, and a competitor is refused."""
        demand(sha == tokens_sha256(tokens), "RESULT_DIGEST_MISMATCH")
        receipt = session.receipts.get((call_id, epoch))
        if receipt is None:
            calls = {call for call, _ in session.receipts}
            demand(call_id == session.call_id or call_id in calls, "UNKNOWN_CALL", call_id)
            demand((call_id, epoch) == (session.call_id, session.pause_epoch), "STALE_PAUSE_EPOCH", str(epoch))
            session.receipts[call_id, epoch] = Receipt(result_id, sha, list(tokens))
            return "reserved"
        demand(receipt.result_id == result_id and receipt.sha256 == sha, "COMPETING_RESULT", result_id)
        if not receipt.on("result"):
            return "noop"
        if receipt.state == "APPLIED":
            session.move("apply")
            return "finalized"
        return "reserved"

    def resume(self, session: Session, epoch: int) -> str:
        """Begin to bring the rows back under the epoch that follows the pause's."""
        demand(session.state not in SAVING | {"QUIESCING"}, "SAVE_IN_FLIGHT", session.state)
        again = session.device.resuming and session.state in BRINGING_BACK
        if not again:
            session.next("resume")
        demand(epoch == session.pause_epoch + 1, "RESUME_EPOCH_NOT_NEXT", str(epoch))
        if again:
            return "noop"
        if session.kind == "interrupted":
            demand(session.receipt_state == "RESERVED", "RESULT_NOT_RESERVED", str(session.receipt_state))
        session.move("resume")
        session.device.resuming = True
        session.epoch = epoch
        return "done"

    def ready(self, session: Session, replica: Copy | None, recompute_from: int | None) -> None:
        """Validate what was brought back; where it is no exact prefix, the attempt ends and can be repeated."""
        started = session.device.resuming and session.state in BRINGING_BACK
        demand(started, "ILLEGAL_TRANSITION", f"ready in {session.state}")
        missing = len(session.tokens)
        if session.state != "RECOMPUTING":
            try:
                missing -= self.validate_replica(session, replica, recompute_from)
            except Refusal:
                session.give_up()
                raise
        session.move("ready")
        session.tell("ready")
        session.recomputed += missing
        session.device.rows = True

    def validate_replica(self, session: Session, replica: Copy | None, recompute_from: int | None) -> int:
        """Rows of the exact prefix."""
        if replica is None:
            raise Refusal("REPLICA_NOT_VALIDATED", "a hint is no hit")
        whole, end = len(session.tokens), replica.end_position
        demand(replica.generation == session.cache_generation, "STALE_REPLICA")
        demand(replica.owner == session.owner, "REPLICA_OF_OTHER_OWNER")
        demand(replica.first_position == 0, "POSITIONS_SHIFTED")
        demand(end <= (whole if session.snapshot is None else session.snapshot), "REPLICA_BEYOND_SNAPSHOT")
        demand(replica.tokens_sha256 == tokens_sha256(session.tokens[:end]), "REPLICA_CHECKSUM_MISMATCH")
        declared = whole if recompute_from is None else recompute_from
        demand(declared == end, "PARTIAL_SNAPSHOT", f"{end} of {whole} rows are valid")
        return end

    def prefill(self, session: Session, tokens: list[int] | None) -> None:
        """Compute the suffix in a private extension."""
        demand(session.receipt_state != "RESULT_APPEND_COMMITTED", "RESULT_ALREADY_COMMITTED")
        session.next("prefill")
        demand((tokens is not None) == (session.kind == "turn"), "WRONG_SUFFIX")
        session.move("prefill")
        suffix = tokens if session.receipt is None else session.receipt.tokens
        session.device.extension = list(suffix or ())
        session.prefills += 1

    def commit(self, session: Session) -> None:
        """Publish suffix and frontier, and move the receipt, in one transaction."""
        demand(session.receipt_state != "RESULT_APPEND_COMMITTED", "RESULT_ALREADY_COMMITTED")
        extension = session.device.extension
        if extension is None:
            raise Refusal("ILLEGAL_TRANSITION", f"commit in {session.state}")
        session.move("commit")
        session.tell("commit")
        session.tokens.extend(extension)
        session.device.extension, session.device.resuming = None, False
        session.appends += 1

    def apply(self, session: Session) -> str:
        """Acknowledge, and queue the request under its original arrival."""
        if session.receipt_state == "APPLIED":
            return "noop"
        demand(session.receipt_state == "RESULT_APPEND_COMMITTED", "APPEND_NOT_COMMITTED")
        session.move("apply")
        session.tell("apply")
        return "done"

    def fail(self, session: Session) -> str:
        """An attempt failed. After the commit there is nothing left to fail."""
        if session.receipt_state == "RESULT_APPEND_COMMITTED":
            return "noop"
        demand(session.device.resuming, "ILLEGAL_TRANSITION", f"fail in {session.state}")
        session.give_up()
        return "done"

    def crash(self) -> int:
        """Restart: devices lose what they hold; tokens, manifests, receipts and published snapshots stay."""
        for session in self.sessions.values():
            self.restart(session)
        return len(self.sessions)

    def restart(self, session: Session) -> None:
        """One session over a restart."""
        settled = session.state == "RUNNING" or session.receipt_state == "RESULT_APPEND_COMMITTED"
        session.device = Device(rows=session.device.rows and settled)
        if not settled:
            session.give_up()
