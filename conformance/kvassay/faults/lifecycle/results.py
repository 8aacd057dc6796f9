"""Faults of *How a result is applied* (LIF-023 to LIF-026)."""

from __future__ import annotations

from kvassay_reference.lifecycle import tokens_sha256

from ...adapters.base import Rejected
from ..base import Fault, found
from .base import Request, Result, cases


class StaleEpochTaken(Fault):
    """A result is matched by its call, whatever pause it belongs to."""

    requirement = "LIF-023"
    killed_by = cases("result/wrong", "paths/two-pauses")

    def lifecycle_result(self, request: Request) -> Result:
        return super().lifecycle_result({**request, "pause_epoch": self.session(request).pause_epoch})


class AnyCall(Fault):
    """A result is given to whoever waits."""

    requirement = "LIF-023"
    killed_by = cases("result/wrong")

    def lifecycle_result(self, request: Request) -> Result:
        return super().lifecycle_result({**request, "call_id": self.session(request).call_id or request["call_id"]})


class DigestNotDerived(Fault):
    """The caller's digest is believed."""

    requirement = "LIF-023"
    killed_by = cases("result/wrong")

    def lifecycle_result(self, request: Request) -> Result:
        return super().lifecycle_result({**request, "tokens_sha256": tokens_sha256(request["tokens"])})


class CompetitorIgnored(Fault):
    """Any second result counts as a repetition of the first."""

    requirement = "LIF-023"
    killed_by = cases("result/competing-after-failure")

    def lifecycle_result(self, request: Request) -> Result:
        session = self.session(request)
        receipt = session.receipts.get((request["call_id"], request["pause_epoch"]))
        if receipt is not None:
            mine = {"result_id": receipt.result_id, "tokens": receipt.tokens, "tokens_sha256": receipt.sha256}
            request = {**request, **mine}
        return super().lifecycle_result(request)


class NameWithoutDigest(Fault):
    """A result of the same name counts as the same."""

    requirement = "LIF-023"
    killed_by = cases("result/competing-digest")

    def lifecycle_result(self, request: Request) -> Result:
        session = self.session(request)
        receipt = session.receipts.get((request["call_id"], request["pause_epoch"]))
        if receipt is not None and receipt.result_id == request["result_id"]:
            request = {**request, "tokens": receipt.tokens, "tokens_sha256": receipt.sha256}
        return super().lifecycle_result(request)


class EarlyResultRefused(Fault):
    """A result is taken only once its request is at rest."""

    requirement = "LIF-025"
    killed_by = cases("result/early-after-pause", "result/early-after-quiesce", "result/early-after-copy-begun")

    def lifecycle_result(self, request: Request) -> Result:
        if self.session(request).state in ("QUIESCING", "SWAPPING_OUT"):
            raise Rejected("ILLEGAL_TRANSITION", "still pausing")
        return super().lifecycle_result(request)


class ResultInterrupts(Fault):
    """A result that is reserved starts the resume by itself."""

    requirement = "LIF-025"
    killed_by = cases("resume/needs-result", "paths/swap", "result/early-after-publish")

    def lifecycle_result(self, request: Request) -> Result:
        result = super().lifecycle_result(request)
        session = self.session(request)
        if result["outcome"] == "reserved" and session.state == "PAUSED_HOST":
            return self.act(request, "resume", session.pause_epoch + 1)
        return result


class AppliedTwice(Fault):
    """A result that is delivered again is appended again."""

    requirement = "LIF-024"
    killed_by = cases("result/duplicate-after-apply", "result/duplicate-while-running", "crash/swap-after-apply")

    def lifecycle_result(self, request: Request) -> Result:
        super().lifecycle_result(request)
        session = self.session(request)
        receipt = session.receipts[request["call_id"], request["pause_epoch"]]
        if receipt.state == "APPLIED":
            session.tokens += receipt.tokens
            session.appends += 1
        return session.status("noop" if receipt.state == "APPLIED" else "reserved")


class RepetitionRefused(Fault):
    """A repetition is an error, and its caller delivers again and again."""

    requirement = "LIF-024"
    killed_by = cases("result/duplicate-after-result", "result/duplicate-after-resume", "result/duplicate-after-ready")

    def lifecycle_result(self, request: Request) -> Result:
        result = super().lifecycle_result(request)
        if result["outcome"] == "noop":
            raise Rejected("COMPETING_RESULT", "there is one")
        return result


class RepetitionStartsOver(Fault):
    """A repetition during an attempt reserves the result again."""

    requirement = "LIF-024"
    killed_by = cases("result/duplicate-after-ready", "result/duplicate-after-prefill")

    def lifecycle_result(self, request: Request) -> Result:
        result = super().lifecycle_result(request)
        receipt = self.session(request).receipt
        if receipt is not None and receipt.state == "CACHE_READY_AND_VALIDATED":
            receipt.state = "RESERVED"
            return {**result, "receipt": "RESERVED"}
        return result


class FinalizedByAppending(Fault):
    """A repetition after the commit appends the suffix once more before it finalizes."""

    requirement = "LIF-026"
    killed_by = cases("result/duplicate-after-commit", "crash/swap-after-commit", "crash/twice-after-commit")

    def lifecycle_result(self, request: Request) -> Result:
        result = super().lifecycle_result(request)
        session = self.session(request)
        if result["outcome"] != "finalized" or session.receipt is None:
            return result
        session.tokens += session.receipt.tokens
        session.appends += 1
        return session.status("finalized")


class CommitForgotten(Fault):
    """A restart before the acknowledgement repeats the prefill."""

    requirement = "LIF-026"
    killed_by = cases("crash/swap-after-commit", "crash/preserve-after-commit", "crash/discard-after-commit")

    def lifecycle_crash(self, request: Request) -> Result:
        for session in self.machine.sessions.values():
            if session.receipt is not None and session.receipt.state == "RESULT_APPEND_COMMITTED":
                session.receipt.state = "CACHE_READY_AND_VALIDATED"
        return super().lifecycle_crash(request)


class PublishedAtPrefill(Fault):
    """The suffix is visible as soon as it is computed."""

    requirement = "LIF-026"
    killed_by = cases("result/private-until-commit", "result/failure-after-prefill-of-swap")

    def lifecycle_prefill(self, request: Request) -> Result:
        super().lifecycle_prefill(request)
        session = self.session(request)
        session.tokens += session.device.extension or []
        session.device.extension = []
        return session.status()


class ReceiptAfterSuffix(Fault):
    """The suffix is committed first, and the receipt in a transaction of its own."""

    requirement = "LIF-026"
    killed_by = cases("result/private-until-commit", "result/failure-after-commit")

    def lifecycle_commit(self, request: Request) -> Result:
        super().lifecycle_commit(request)
        session = self.session(request)
        if session.receipt is not None:
            session.receipt.state = "CACHE_READY_AND_VALIDATED"
        return session.status()


class AcknowledgedEarly(Fault):
    """A result is acknowledged before it is committed."""

    requirement = "LIF-026"
    killed_by = cases("result/private-until-commit")

    def lifecycle_apply(self, request: Request) -> Result:
        session = self.session(request)
        if session.receipt_state == "CACHE_READY_AND_VALIDATED":
            return session.status()
        return super().lifecycle_apply(request)


class CommittedCanFail(Fault):
    """A failure after the commit takes the suffix back and leaves the receipt."""

    requirement = "LIF-026"
    killed_by = cases("result/failure-after-commit")

    def lifecycle_fail(self, request: Request) -> Result:
        session = self.session(request)
        if session.receipt is not None and session.receipt.state == "RESULT_APPEND_COMMITTED":
            session.tokens = session.tokens[: -len(session.receipt.tokens)]
        return super().lifecycle_fail(request)


class KeyUsedUp(Fault):
    """The receipt is applied as soon as it is reserved, so that a failed attempt loses the result."""

    requirement = "LIF-025"
    killed_by = cases("result/failure-after-resume-of-swap", "resume/wrong-generation", "crash/swap-after-resume")

    def status_of(self, request: Request) -> Result:
        session = self.session(request)
        if session.receipt is not None and session.receipt.state == "RETRYABLE":
            session.receipt.state = "APPLIED"
        return session.status()

    def lifecycle_fail(self, request: Request) -> Result:
        super().lifecycle_fail(request)
        return self.status_of(request)

    def lifecycle_inspect(self, request: Request) -> Result:
        return self.status_of(request)


class ReceiptDropped(Fault):
    """A failed attempt forgets which result it was."""

    requirement = "LIF-025"
    killed_by = cases("result/competing-after-failure", "result/failure-after-prefill-of-discard")

    def lifecycle_fail(self, request: Request) -> Result:
        super().lifecycle_fail(request)
        session = self.session(request)
        session.receipts = {key: one for key, one in session.receipts.items() if one.state != "RETRYABLE"}
        return session.status()


class ResumedWithoutResult(Fault):
    """A resume waits for nothing."""

    requirement = "LIF-025"
    killed_by = cases("resume/needs-result", "result/competing-after-failure")

    def lifecycle_resume(self, request: Request) -> Result:
        try:
            return super().lifecycle_resume(request)
        except Rejected as refusal:
            if refusal.reason != "RESULT_NOT_RESERVED":
                raise
            return self.session(request).status()


FAULTS = found(globals())
