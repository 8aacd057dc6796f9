"""Faults of *What a save must prove* (LIF-007 to LIF-009, LIF-016)."""

from __future__ import annotations

from typing import ClassVar

from ...adapters.base import Rejected
from ..base import Fault, found
from .base import Request, Result, cases, truth


class EarlierCopyCounts(Fault):
    """A copy that was issued before the pause counts as the layer's save."""

    requirement = "LIF-007"
    killed_by = cases("pause/earlier-copy-is-no-save", "pause/copy-goes-on")

    def lifecycle_event(self, request: Request) -> Result:
        session = self.session(request)
        earlier = request["layer"] in session.device.dma
        super().lifecycle_event(request)
        if earlier:
            session.device.copied.add(request["layer"])
        return session.status()


class PartialSavePublished(Fault):
    """A save is published with the layers that it has."""

    requirement = "LIF-007"
    killed_by = cases("save/partial", "pause/earlier-copy-is-no-save")

    def lifecycle_publish(self, request: Request) -> Result:
        device = self.session(request).device
        if not device.saving:
            device.copied |= set(range(self.session(request).layers))
        return super().lifecycle_publish(request)


class PublishedUnderCopy(Fault):
    """A copy that was issued counts as done."""

    requirement = "LIF-007"
    killed_by = cases("save/partial")

    def lifecycle_publish(self, request: Request) -> Result:
        device = self.session(request).device
        device.copied |= device.saving
        device.saving.clear()
        return super().lifecycle_publish(request)


class PartialSaveAfterRestart(Fault):
    """A restart takes the file of a save that was never published for a snapshot."""

    requirement = "LIF-007"
    killed_by = cases("crash/turn-after-layer-copied", "crash/swap-after-layers-copied")

    def lifecycle_crash(self, request: Request) -> Result:
        found = [s for s in self.machine.sessions.values() if s.device.copied and s.snapshot is None]
        for session in found:
            session.snapshot = len(session.tokens)
        return super().lifecycle_crash(request)


class CopyRestarted(Fault):
    """A retry copies a layer again, under the validation of the first."""

    requirement = "LIF-007"
    killed_by = cases("save/copy-once")

    def lifecycle_snapshot(self, request: Request) -> Result:
        self.session(request).device.copied.discard(request["layer"])
        return super().lifecycle_snapshot(request)


class Trusting(Fault):
    """Saves and replicas are not asked for some of what they say."""

    unasked: ClassVar[str]

    def lifecycle_publish(self, request: Request) -> Result:
        right = truth(self.session(request), request["end_position"])
        return super().lifecycle_publish({**request, self.unasked: right[self.unasked]})

    def lifecycle_ready(self, request: Request) -> Result:
        if "replica" in request and self.unasked in request["replica"]:
            right = truth(self.session(request), request["replica"]["valid_end"])
            request = {**request, "replica": {**request["replica"], self.unasked: right[self.unasked]}}
        return super().lifecycle_ready(request)


class GenerationNotCompared(Trusting):
    """An older snapshot of the session is as good as the last."""

    requirement = "LIF-007"
    killed_by = cases("save/wrong-generation", "resume/wrong-generation", "resume/preserved-rows-are-validated")
    unasked = "generation"


class OwnerNotCompared(Trusting):
    """A buffer that was handed to another session in the meantime is copied or loaded."""

    requirement = "LIF-007"
    killed_by = cases("save/wrong-owner", "resume/wrong-owner", "paths/two-sessions")
    unasked = "owner"


class PositionsNotCompared(Trusting):
    """Rows are sliced and relabelled after a truncation."""

    requirement = "LIF-016"
    killed_by = cases("save/wrong-positions", "resume/truncation-shifts-positions")
    unasked = "first_position"


class LengthNotCompared(Trusting):
    """A short write is published."""

    requirement = "LIF-007"
    killed_by = cases("save/wrong-bytes")
    unasked = "bytes"


class ChecksumNotCompared(Trusting):
    """The right length is enough."""

    requirement = "LIF-007"
    killed_by = cases("save/wrong-checksum", "resume/wrong-checksum")
    unasked = "tokens_sha256"


class LastCopyReleased(Fault):
    """Rows are freed as soon as the request stops."""

    requirement = "LIF-008"
    killed_by = cases("save/last-copy", "save/preserved-rows-are-the-last")

    def lifecycle_release(self, request: Request) -> Result:
        session = self.session(request)
        if session.state in ("PAUSED_HOST", "TOKEN_ONLY"):
            return super().lifecycle_release(request)
        session.device.rows = False
        return session.status()


class FreedUnderCopy(Fault):
    """Rows are freed while a copy reads them."""

    requirement = "LIF-008"
    killed_by = cases("pause/copy-goes-on")

    def lifecycle_release(self, request: Request) -> Result:
        self.session(request).device.dma.clear()
        return super().lifecycle_release(request)


class FreedUnderReader(Fault):
    """Rows are freed while a kernel reads them."""

    requirement = "LIF-008"
    killed_by = cases("save/reader-of-freed-rows")

    def lifecycle_release(self, request: Request) -> Result:
        self.session(request).device.leases.clear()
        return super().lifecycle_release(request)


class CopiedUnderLease(Fault):
    """A layer is copied while it is read."""

    requirement = "LIF-009"
    killed_by = cases("save/lease-per-layer")

    def lifecycle_snapshot(self, request: Request) -> Result:
        self.session(request).device.leases.clear()
        return super().lifecycle_snapshot(request)


class OneLeaseForAll(Fault):
    """A reader of one layer holds up the copy of every other."""

    requirement = "LIF-009"
    killed_by = cases("save/lease-per-layer")

    def lifecycle_snapshot(self, request: Request) -> Result:
        if self.session(request).device.leases:
            raise Rejected("LAYER_LEASE_OPEN")
        return super().lifecycle_snapshot(request)


FAULTS = found(globals())
