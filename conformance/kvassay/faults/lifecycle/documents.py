"""Faults of pause documents: reasons for which none is ever rejected."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from kvassay_reference import pause_document

from ..base import Fault, found, spoiled, title
from .base import Request, Result, cases


class Lenient(Fault):
    """Members that are missing get a default, and any action will do."""

    requirement = "LIF-003"
    killed_by = cases("admit/no-sampler", "admit/no-epoch", "admit/preserve-saves-nothing")

    def lifecycle_admit(self, request: Request) -> Result:
        document = request["document"]
        pause, resume = dict(document["pause"]), dict(document["resume"])
        pause.setdefault("sampler", resume.get("sampler"))
        pause["action"] = "turn" if pause["action"] == "turn" else "swap"
        resume.setdefault("lifecycle_epoch", pause.get("lifecycle_epoch", 0) + 1)
        return super().lifecycle_admit({"document": {**document, "pause": pause, "resume": resume}})


class Blind(Fault):
    """A pause document is not asked for one thing."""

    blind: ClassVar[str]

    @property
    def pause_rules(self) -> Sequence[pause_document.Rule]:  # type: ignore[override]
        """All but one."""
        return [rule for rule in pause_document.RULES if rule.reason != self.blind]


def _blind(reason: str, requirement: str, summary: str, *killers: str) -> type[Blind]:
    return spoiled(Blind, __name__, "Blind" + title(reason), summary, requirement, cases(*killers), blind=reason)


# fmt: off
BLINDED = tuple(_blind(*row) for row in (
    ("PAUSE_DIGEST_MISMATCH", "LIF-003", "The manifest's digest is never derived again.", "admit/pause-digest"),
    ("RESULT_DIGEST_MISMATCH", "LIF-023", "The result's digest is never derived again.", "admit/result-digest"),
    ("PAUSE_OF_OTHER_SOURCE", "LIF-003", "The session's name finds the rows.", "admit/other-source"),
    ("PAUSE_OF_OTHER_TENANT", "LIF-003", "Tenants share sessions of one name.", "admit/other-tenant"),
    ("PAUSE_OF_OTHER_GENERATION", "LIF-005", "A cache that was replaced during the pause is used.",
     "admit/other-generation", "admit/generation-is-epoch"),
    ("REPRESENTATION_MISMATCH", "LIF-016", "Keys from before their rotation are read as keys after it.",
     "admit/pre-position-keys"),
    ("POSITION_RULE_MISMATCH", "LIF-016", "A new rule for positions is applied to old rows.", "admit/position-rule"),
    ("SUPPORT_NOT_FULL", "LIF-003", "Selected rows are restored as all rows.", "admit/selected-support"),
    ("CALL_ID_UNEXPECTED", "LIF-001", "A turn may wait for a call.", "admit/turn-with-call", "variants/completed-turn"),
    ("CALL_ID_MISSING", "LIF-001", "An interruption may wait for anything.", "admit/swap-without-call"),
    ("RECEIPT_MISSING", "LIF-023", "A result is applied without a receipt.", "admit/no-receipt", "admit/no-result"),
    ("UNCOMMITTED_ROWS_IN_SNAPSHOT", "LIF-004", "The snapshot takes what is in the buffer.", "admit/speculative-rows"),
    ("SNAPSHOT_BEYOND_COMMIT", "LIF-004", "The frontier of the buffer is taken for the committed one.",
     "admit/beyond-commit"),
    ("ILLEGAL_TRANSITION", "LIF-002", "Only the last state is looked at.", "admit/states-skip-quiescing",
     "admit/states-of-a-turn", "variants/turn-takes-no-result-path"),
    ("SAVE_GENERATION_MISMATCH", "LIF-007", "A save of replaced rows is published.", "admit/save-generation"),
    ("SAVE_OWNER_MISMATCH", "LIF-007", "A save of another session's rows is published.", "admit/save-owner"),
    ("POSITIONS_SHIFTED", "LIF-016", "Rows are restored wherever they end up.", "admit/save-shifted",
     "admit/restore-shifted"),
    ("SAVE_ROWS_MISMATCH", "LIF-007", "The save's end is not compared with the manifest's.", "admit/save-rows"),
    ("PARTIAL_SAVE", "LIF-007", "A save is published with the layers and rows that it has.", "admit/save-lacks-layer",
     "admit/save-layer-twice", "admit/save-layer-short"),
    ("LAYER_LEASE_OPEN", "LIF-009", "Layers are copied under their readers.", "admit/copied-under-lease"),
    ("COPY_IN_FLIGHT", "LIF-006", "Issuing a copy counts as its completion.", "admit/copy-not-done"),
    ("SAVE_BYTES_MISMATCH", "LIF-007", "A short write is published.", "admit/save-bytes"),
    ("SAVE_CHECKSUM_MISMATCH", "LIF-007", "The saved bytes are not checked.", "admit/save-checksum"),
    ("PUBLISHED_BEFORE_COPIED", "LIF-007", "A snapshot is published when its last copy is issued.",
     "admit/published-early"),
    ("LAST_COPY_RELEASED", "LIF-008", "The device's rows are freed at the pause.", "admit/released-early"),
    ("REPLICA_NOT_VALIDATED", "LIF-014", "A hint counts as a hit.", "admit/hint-is-no-hit"),
    ("STALE_REPLICA", "LIF-005", "Any snapshot of the session is restored.", "admit/stale-replica"),
    ("REPLICA_OF_OTHER_OWNER", "LIF-007", "Any snapshot of these tokens is restored.", "admit/replica-owner"),
    ("REPLICA_BEYOND_SNAPSHOT", "LIF-027", "The replica's claim of valid rows is believed.", "admit/beyond-snapshot"),
    ("REPLICA_CHECKSUM_MISMATCH", "LIF-007", "The loaded bytes are not checked.", "admit/replica-checksum"),
    ("PARTIAL_SNAPSHOT", "LIF-027", "A part of a snapshot is published as the whole.", "admit/partial-as-full",
     "admit/suffix-of-nothing", "variants/prefix-and-suffix", "variants/suffix-too-short",
     "variants/snapshot-behind-commit"),
    ("RESUME_EPOCH_NOT_NEXT", "LIF-005", "Epochs are recorded and not compared.", "admit/epoch-kept",
     "admit/epoch-skipped", "admit/epoch-is-generation"),
    ("RESULT_OF_OTHER_CALL", "LIF-023", "The result of any call is applied.", "admit/result-of-other-call"),
    ("RECEIPT_OF_OTHER_CALL", "LIF-023", "Receipts are looked up by session.", "admit/receipt-of-other-call"),
    ("STALE_PAUSE_EPOCH", "LIF-023", "Receipts are looked up by call alone.", "admit/receipt-of-other-pause"),
    ("COMPETING_RESULT", "LIF-023", "The last result wins.", "admit/competing-id", "admit/competing-tokens"),
    ("RECEIPT_OUT_OF_ORDER", "LIF-025", "The receipt is a flag and not a machine.", "admit/receipt-skips",
     "admit/receipt-born-reserved", "variants/receipt-with-retries"),
    ("RECEIPT_NOT_APPLIED", "LIF-025", "A request runs on with its receipt open.", "admit/receipt-unfinished"),
    ("RESULT_APPLIED_TWICE", "LIF-024", "Appends are not counted.", "admit/applied-twice", "admit/applied-never"),
    ("RESULT_PREFILLED_TWICE", "LIF-026", "A restart may compute the suffix again.", "admit/prefilled-twice"),
    ("APPEND_NOT_ATOMIC", "LIF-026", "Suffix and receipt are written one after the other.", "admit/two-transactions"),
    ("APPEND_OF_OTHER_LENGTH", "LIF-026", "Appended tokens are not compared with the result's.", "admit/append-cut"),
    ("FRONTIER_AFTER_APPEND", "LIF-026", "The frontier moves by itself.", "admit/frontier-behind",
     "variants/longer-result"),
    ("SAMPLER_LOST", "LIF-003", "Sampling starts anew after a pause.", "admit/sampler-restarted"),
    ("ARRIVAL_RESET", "LIF-022", "A resumed request is queued as a new one.", "admit/arrival-reset"),
    ("PUBLISHED_PLAN_MISMATCH", "LIF-028", "The attempted plan is reported as the published one.",
     "admit/published-plan"),
    ("DECISIONS_LOST", "LIF-028", "Revisions overwrite each other.", "admit/decisions-lost",
     "admit/last-decision-lost"),
    ("TELEMETRY_BYTES_MISMATCH", "LIF-028", "What nobody waited for is not counted.", "admit/saved-bytes",
     "admit/loaded-bytes"),
))
# fmt: on


FAULTS = (*found(globals()), *BLINDED)
