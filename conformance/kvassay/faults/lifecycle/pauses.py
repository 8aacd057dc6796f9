"""Faults of *Who pauses*, and of copies that go on meanwhile (LIF-001 to LIF-006, LIF-009)."""

from __future__ import annotations

from typing import Any

from ...adapters.base import Rejected
from ..base import Fault, found
from .base import Request, Result, cases, truth


class CallMadeUp(Fault):
    """An interruption without a call waits for some call, and a turn's call is forgotten."""

    requirement = "LIF-001"
    killed_by = cases("pause/call-or-turn")

    def lifecycle_pause(self, request: Request) -> Result:
        call = None if request["action"] == "turn" else request.get("call_id", "call-0")
        return self.act(request, "pause", request["action"], call)


class ResultsForTurns(Fault):
    """A result that no call asked for is taken without a word."""

    requirement = "LIF-001"
    killed_by = cases("result/of-a-turn", "paths/turn-after-interruption")

    def lifecycle_result(self, request: Request) -> Result:
        session = self.session(request)
        return session.status("noop") if session.kind == "turn" else super().lifecycle_result(request)


class SuffixOfTheCaller(Fault):
    """Whatever tokens the caller brings are computed, or none."""

    requirement = "LIF-001"
    killed_by = cases("result/suffix-of-its-own", "result/turn-needs-tokens")

    def lifecycle_prefill(self, request: Request) -> Result:
        turn = self.session(request).kind == "turn"
        return self.act(request, "prefill", request.get("tokens", []) if turn else None)


class AnyTransition(Fault):
    """An event in the wrong state is swallowed."""

    requirement = "LIF-002"
    killed_by = cases("illegal/turn-after-begin", "illegal/swap-after-publish", "illegal/discard-after-apply")

    def act(self, request: Request, event: str, *arguments: Any) -> Result:
        try:
            return super().act(request, event, *arguments)
        except Rejected as refusal:
            if refusal.reason != "ILLEGAL_TRANSITION":
                raise
            return self.session(request).status("noop")


class NoQuiescing(Fault):
    """A pause goes to the save at once, with the frontier still open."""

    requirement = "LIF-002"
    killed_by = cases("paths/turn", "paths/preserve", "paths/swap", "paths/discard")

    def lifecycle_pause(self, request: Request) -> Result:
        super().lifecycle_pause(request)
        return self.act(request, "quiesce")


class NameIsEnough(Fault):
    """A session is replaced by another one of its name."""

    requirement = "LIF-003"
    killed_by = cases("pause/names-are-unique")

    def lifecycle_begin(self, request: Request) -> Result:
        self.machine.sessions.pop(request["session"], None)
        return super().lifecycle_begin(request)


class SpeculativeRowsCommitted(Fault):
    """Quiescing commits what the draft had proposed, so that it is in the snapshot."""

    requirement = "LIF-004"
    killed_by = cases("pause/speculative-rows", "pause/speculative-rows-preserved")

    def lifecycle_quiesce(self, request: Request) -> Result:
        session = self.session(request)
        if session.state == "QUIESCING":
            session.tokens += session.device.draft
        return super().lifecycle_quiesce(request)


class SnapshotCut(Fault):
    """A save of more rows than are committed is cut to the frontier and published."""

    requirement = "LIF-004"
    killed_by = cases("pause/speculative-rows")

    def lifecycle_publish(self, request: Request) -> Result:
        session = self.session(request)
        if request["end_position"] > len(session.tokens):
            request = {**request, **truth(session, len(session.tokens)), "end_position": len(session.tokens)}
        return super().lifecycle_publish(request)


class LaterIsNext(Fault):
    """Any epoch that is not smaller than the pause's resumes it."""

    requirement = "LIF-005"
    killed_by = cases("resume/next-epoch", "resume/retry-keeps-epoch")

    def lifecycle_resume(self, request: Request) -> Result:
        session = self.session(request)
        late = request["resume_epoch"] >= session.pause_epoch
        return super().lifecycle_resume({**request, "resume_epoch": session.pause_epoch + 1} if late else request)


class RetryMovesEpoch(Fault):
    """Every attempt takes an epoch of its own."""

    requirement = "LIF-005"
    killed_by = cases("resume/retry-keeps-epoch", "crash/twice", "crash/swap-after-ready")

    def lifecycle_fail(self, request: Request) -> Result:
        session = self.session(request)
        session.pause_epoch += session.device.resuming
        return super().lifecycle_fail(request)

    def lifecycle_crash(self, request: Request) -> Result:
        for session in self.machine.sessions.values():
            session.pause_epoch += session.device.resuming
        return super().lifecycle_crash(request)


class EpochStaysAtResume(Fault):
    """A resume keeps the epoch of its pause."""

    requirement = "LIF-005"
    killed_by = cases("resume/next-epoch", "paths/two-pauses")

    def lifecycle_resume(self, request: Request) -> Result:
        super().lifecycle_resume(request)
        session = self.session(request)
        session.epoch = session.pause_epoch
        return session.status()


class EpochAsGeneration(Fault):
    """The lifecycle epoch passes for the cache generation."""

    requirement = "LIF-005"
    killed_by = cases("save/wrong-epoch-as-generation", "resume/wrong-epoch-as-generation")

    def lifecycle_publish(self, request: Request) -> Result:
        return super().lifecycle_publish({**request, **self.meant(request, request)})

    def lifecycle_ready(self, request: Request) -> Result:
        if "replica" in request:
            request = {**request, "replica": {**request["replica"], **self.meant(request, request["replica"])}}
        return super().lifecycle_ready(request)

    def meant(self, request: Request, copy: Request) -> dict[str, int]:
        session = self.session(request)
        return {"generation": session.cache_generation} if copy["generation"] == session.epoch else {}


class QuiescingEndsCopies(Fault):
    """A pause forgets the copies that are in flight."""

    requirement = "LIF-006"
    killed_by = cases("pause/copy-goes-on", "pause/earlier-copy-is-no-save")

    def lifecycle_quiesce(self, request: Request) -> Result:
        result = super().lifecycle_quiesce(request)
        self.session(request).device.dma.clear()
        return {**result, "copying": []}


class DecodesOn(Fault):
    """The step that was scheduled before the pause commits its tokens after it."""

    requirement = "LIF-006"
    killed_by = cases("pause/no-decode", "illegal/turn-after-quiesce")

    def lifecycle_decode(self, request: Request) -> Result:
        session = self.session(request)
        session.tokens += request["tokens"]
        return session.status()


class CompletionsUncounted(Fault):
    """A completion of a copy or reader that is not there is taken for a repetition."""

    requirement = "LIF-009"
    killed_by = cases("save/lease-per-layer", "pause/copy-goes-on")

    def lifecycle_event(self, request: Request) -> Result:
        try:
            return super().lifecycle_event(request)
        except Rejected:
            return self.session(request).status("noop")


FAULTS = found(globals())
