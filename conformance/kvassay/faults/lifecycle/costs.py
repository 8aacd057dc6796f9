"""Faults of *What saving and restoring cost*: plans of completed turns (LIF-009 to LIF-015)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kvassay_reference import pause_plans
from kvassay_reference.pause_plans import Exact, Link, exact

from ..base import Fault, found
from .base import Request, Result, cases


class HistoryCountedAlone(Fault):
    """Recomputing is charged for the history and not for the new tokens, which are computed either way."""

    requirement = "LIF-010"
    killed_by = cases("resume/work-of-turns", "resume/work-of-first-turn")

    def recompute_work(self, per_token: Exact, turns: Sequence[Mapping[str, int]]) -> Exact:
        return pause_plans.work(per_token, (turn["history_tokens"] for turn in turns))


class LastTurnAlone(Fault):
    """The work of the last turn stands for that of the conversation."""

    requirement = "LIF-010"
    killed_by = cases("resume/work-of-turns")

    def restore_work(self, per_token: Exact, turns: Sequence[Mapping[str, int]]) -> Exact:
        return super().restore_work(per_token, turns[-1:])


class BulkRestore(Fault):
    """Every layer has arrived before the first is computed."""

    requirement = "LIF-011"
    killed_by = cases("resume/base", "resume/compute-bound", "resume/uneven-layers")

    def preload(
        self, arrivals: Sequence[Exact], computes: Sequence[Exact], slots: int | None
    ) -> tuple[list[Exact], list[Exact]]:
        ready, _ = super().preload(arrivals, computes, None)
        done = [ready[-1] + sum(computes[: i + 1]) for i in range(len(computes))]
        return ready, done


class LargerSideAlone(Fault):
    """The pipeline is the larger of all loads and all computes."""

    requirement = "LIF-011"
    killed_by = cases("resume/base", "resume/compute-bound", "resume/uneven-layers", "resume/one-layer")

    def preload(
        self, arrivals: Sequence[Exact], computes: Sequence[Exact], slots: int | None
    ) -> tuple[list[Exact], list[Exact]]:
        ready, done = super().preload(arrivals, computes, slots)
        return ready, [*done[:-1], max(sum(arrivals, Exact(0)), sum(computes, Exact(0)))]


class SlotReusedTooSoon(Fault):
    """A read buffer is filled again before its layer was computed."""

    requirement = "LIF-011"
    killed_by = cases("resume/read-slots-1", "resume/read-slots-2")

    def preload(
        self, arrivals: Sequence[Exact], computes: Sequence[Exact], slots: int | None
    ) -> tuple[list[Exact], list[Exact]]:
        return super().preload(arrivals, computes, None)


class LayersNotAddedUp(Fault):
    """A plan over fewer layers than the history has."""

    requirement = "LIF-011"
    killed_by = cases("resume/layers-lack-bytes")

    def lifecycle_resume_plan(self, request: Request) -> Result:
        size = sum(layer["bytes"] for layer in request["layers"])
        return super().lifecycle_resume_plan({**request, "history_tokens": size // request["token_bytes"]})


class BufferForWholeLoad(Fault):
    """The read buffer holds the whole load instead of the gap."""

    requirement = "LIF-012"
    killed_by = cases("resume/buffer", "resume/buffer-not-needed")

    def buffer_bytes(self, link: Link, load_ms: Exact, prefill_ms: Exact) -> Exact:
        return link.bytes_per_ms * load_ms


class NegativeBuffer(Fault):
    """A prefill that outlasts the load asks for less than nothing."""

    requirement = "LIF-012"
    killed_by = cases("resume/buffer-not-needed")

    def buffer_bytes(self, link: Link, load_ms: Exact, prefill_ms: Exact) -> Exact:
        return abs(load_ms - prefill_ms) * link.bytes_per_ms


class EqualOutruns(Fault):
    """A load as long as the prefill is said to outrun it."""

    requirement = "LIF-012"
    killed_by = cases("resume/buffer-just-covered")

    def lifecycle_resume_plan(self, request: Request) -> Result:
        load = exact(request["load_ms_per_token"]) * request["history_tokens"]
        prefill = exact(request["prefill_ms_per_token"]) * request["new_tokens"]
        return {**super().lifecycle_resume_plan(request), "load_outruns": load >= prefill}


class SynchronousSave(Fault):
    """The request waits for the whole save."""

    requirement = "LIF-013"
    killed_by = cases("save/base", "save/visible")

    def visible_ms(self, ends: Sequence[Exact], window: Exact, slots: int) -> Exact:
        return ends[-1]


class WriteSlotsIgnored(Fault):
    """The rows are held until the last copy, although there is a write buffer."""

    requirement = "LIF-013"
    killed_by = cases("save/write-slots-1", "save/write-slots-2", "save/write-slots-4")

    def visible_ms(self, ends: Sequence[Exact], window: Exact, slots: int) -> Exact:
        return super().visible_ms(ends, window, 0)


class WriteSlotsWithoutEnd(Fault):
    """Any write buffer is taken to hold all layers, and rows are freed under their copies."""

    requirement = "LIF-013"
    killed_by = cases("save/write-slots-1", "save/write-slots-2")

    def visible_ms(self, ends: Sequence[Exact], window: Exact, slots: int) -> Exact:
        return super().visible_ms(ends, window, len(ends) if slots else 0)


class HiddenIsFree(Fault):
    """A save that nobody waits for is not counted."""

    requirement = "LIF-013"
    killed_by = cases("save/base")

    def lifecycle_save_plan(self, request: Request) -> Result:
        result = super().lifecycle_save_plan(request)
        return {**result, "save_ms": result["visible_ms"]}


class LeasesNotAwaited(Fault):
    """Layers are copied while they are read."""

    requirement = "LIF-009"
    killed_by = cases("save/late-lease")

    def save_ends(self, costs: Sequence[Exact], closed: Sequence[Exact]) -> list[Exact]:
        return super().save_ends(costs, [Exact(0)] * len(closed))


class OpenLeaseIsNone(Fault):
    """A lease that never closes is read as no lease."""

    requirement = "LIF-009"
    killed_by = cases("save/lease-open")

    def lifecycle_save_plan(self, request: Request) -> Result:
        layers = [{**layer, "lease_closed_ms": layer["lease_closed_ms"] or 0} for layer in request["layers"]]
        return super().lifecycle_save_plan({**request, "layers": layers})


class HoldingIsFree(Fault):
    """Memory over the idle time is not priced."""

    requirement = "LIF-015"
    killed_by = cases("persist/base", "persist/long-idle")

    def costs(self, request: Request) -> tuple[Exact, Exact]:
        return super().costs({**request, "idle": 0})


class SavePaidOnReuse(Fault):
    """The save is paid only if the turn is continued."""

    requirement = "LIF-015"
    killed_by = cases("persist/never-continued", "persist/visible-save")

    def costs(self, request: Request) -> tuple[Exact, Exact]:
        keep, drop = super().costs(request)
        moved = exact(request["weights"]["transfer_mib"]) * Exact(request["history_bytes"], pause_plans.MIB)
        paid = moved + exact(request["weights"]["time"]) * exact(request["save_visible_ms"])
        return keep - paid * (1 - exact(request["reuse_probability"])), drop


class HitsAlwaysKept(Fault):
    """A history that is there is restored, whatever the way to it costs."""

    requirement = "LIF-015"
    killed_by = cases("persist/through-disk", "persist/tie")

    def lifecycle_persist(self, request: Request) -> Result:
        return {**super().lifecycle_persist(request), "action": "persist"}


class SessionsCounted(Fault):
    """Sessions are admitted by number, at their mean size."""

    requirement = "LIF-014"
    killed_by = cases("prefetch/base")

    def admitted(self, queue: Sequence[Mapping[str, Any]], room: int) -> list[str]:
        return [job["session"] for job in queue]


class SmallOnesOvertake(Fault):
    """A session that does not fit is skipped."""

    requirement = "LIF-014"
    killed_by = cases("prefetch/base", "prefetch/first-too-large")

    def admitted(self, queue: Sequence[Mapping[str, Any]], room: int) -> list[str]:
        names = []
        for job in queue:
            if job["bytes"] <= room:
                names.append(job["session"])
                room -= job["bytes"]
        return names


class LastByteUnused(Fault):
    """A session must be smaller than the room."""

    requirement = "LIF-014"
    killed_by = cases("prefetch/exact-fit")

    def admitted(self, queue: Sequence[Mapping[str, Any]], room: int) -> list[str]:
        return super().admitted(queue, room - 1)


class WindowsRoundedUp(Fault):
    """A part of a session counts as one."""

    requirement = "LIF-014"
    killed_by = cases("prefetch/partial-session", "prefetch/base")

    def lifecycle_prefetch(self, request: Request) -> Result:
        mean = request["mean_session_bytes"]
        return {**super().lifecycle_prefetch(request), "prefetch_window": -(-request["host_bytes"] // mean)}


class ReservesClipped(Fault):
    """Reserves beyond the host are cut down without a word."""

    requirement = "LIF-014"
    killed_by = cases("prefetch/reserves-too-large")

    def lifecycle_prefetch(self, request: Request) -> Result:
        total = sum(request["reserved_bytes"].values())
        return super().lifecycle_prefetch({**request, "reserved_bytes": {"all": min(total, request["host_bytes"])}})


FAULTS = found(globals())
