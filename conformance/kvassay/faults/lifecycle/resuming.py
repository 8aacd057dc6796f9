"""Faults of decisions and of resuming: arrivals, hints, replicas (LIF-014, LIF-021, LIF-022, LIF-027, LIF-028)."""

from __future__ import annotations

from kvassay_reference.lifecycle import tokens_sha256

from ...adapters.base import Rejected
from ..base import Fault, found
from .base import Request, Result, cases, truth


class DecidedOnce(Fault):
    """A paused request keeps its first decision."""

    requirement = "LIF-021"
    killed_by = cases("revise/preserve-to-swap", "revise/preserve-to-discard", "revise/snapshot-to-discard")

    def lifecycle_revise(self, request: Request) -> Result:
        self.session(request)
        raise Rejected("ILLEGAL_TRANSITION", "decided")


class RevisedUnderWay(Fault):
    """Rows are dropped while a resume waits for them."""

    requirement = "LIF-021"
    killed_by = cases("revise/not-under-way")

    def lifecycle_revise(self, request: Request) -> Result:
        self.session(request).device.resuming = False
        return super().lifecycle_revise(request)


class LastDecisionAlone(Fault):
    """A revision overwrites what was decided before."""

    requirement = "LIF-028"
    killed_by = cases("revise/preserve-to-swap", "revise/preserve-to-discard")

    def lifecycle_revise(self, request: Request) -> Result:
        super().lifecycle_revise(request)
        session = self.session(request)
        session.decisions = session.decisions[-1:]
        return session.status()


class ArrivalResetAtResume(Fault):
    """A resumed request is queued as a new one."""

    requirement = "LIF-022"
    killed_by = cases("paths/swap", "paths/preserve", "paths/two-pauses")

    def lifecycle_apply(self, request: Request) -> Result:
        self.session(request).arrival_ms = 9000
        return super().lifecycle_apply(request)


class ArrivalResetByRestart(Fault):
    """After a restart all requests arrive at once."""

    requirement = "LIF-022"
    killed_by = cases("crash/turn-after-publish", "crash/swap-after-apply", "result/restart-before-any-pause")

    def lifecycle_crash(self, request: Request) -> Result:
        for session in self.machine.sessions.values():
            session.arrival_ms = 9000
        return super().lifecycle_crash(request)


class ArrivalOfTheTurn(Fault):
    """A continued conversation is queued under its new turn's arrival."""

    requirement = "LIF-022"
    killed_by = cases("paths/turn")

    def lifecycle_commit(self, request: Request) -> Result:
        session = self.session(request)
        session.arrival_ms += session.kind == "turn"
        return super().lifecycle_commit(request)


class HintIsHit(Fault):
    """Rows that the queue's hint had fetched are used as they are."""

    requirement = "LIF-014"
    killed_by = cases("resume/hint-is-no-hit")

    def lifecycle_ready(self, request: Request) -> Result:
        session = self.session(request)
        if "replica" not in request and session.state == "RESTORING":
            end = len(session.tokens)
            right = {name: value for name, value in truth(session, end).items() if name != "bytes"}
            request = {**request, "replica": {**right, "valid_end": end}}
        return super().lifecycle_ready(request)


class PartialIsWhole(Fault):
    """What is valid of a snapshot is published as the whole."""

    requirement = "LIF-027"
    killed_by = cases("resume/partial-none", "save/prefix")

    def lifecycle_ready(self, request: Request) -> Result:
        if "replica" in request and "recompute_from" not in request:
            request = {**request, "recompute_from": request["replica"]["valid_end"]}
        return super().lifecycle_ready(request)


class SuffixAnywhere(Fault):
    """A declared suffix is not compared with the end of the prefix."""

    requirement = "LIF-027"
    killed_by = cases("resume/partial-gap", "resume/partial-overlap", "resume/whole-and-suffix")

    def lifecycle_ready(self, request: Request) -> Result:
        if "replica" in request and "recompute_from" in request:
            request = {**request, "recompute_from": request["replica"]["valid_end"]}
        return super().lifecycle_ready(request)


class ReplicaCut(Fault):
    """A replica that claims too many rows is cut to the snapshot's."""

    requirement = "LIF-027"
    killed_by = cases("resume/wrong-length", "save/prefix", "pause/speculative-rows-preserved")

    def lifecycle_ready(self, request: Request) -> Result:
        session = self.session(request)
        kept = len(session.tokens) if session.snapshot is None else session.snapshot
        if "replica" in request and request["replica"]["valid_end"] > kept:
            sha = tokens_sha256(session.tokens[:kept])
            request = {**request, "replica": {**request["replica"], "valid_end": kept, "tokens_sha256": sha}}
        return super().lifecycle_ready(request)


class PartialSaveRestored(Fault):
    """A result that comes early restores the save that is not finished."""

    requirement = "LIF-027"
    killed_by = cases("save/partial")

    def lifecycle_resume(self, request: Request) -> Result:
        session = self.session(request)
        if session.state == "SWAPPING_OUT":
            session.state, session.snapshot = "PAUSED_HOST", len(session.tokens)
        return super().lifecycle_resume(request)


FAULTS = found(globals())
