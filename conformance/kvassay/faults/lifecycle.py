"""Faults of the contract lifecycle: the reference with one realistic defect each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from kvassay_reference import pause_document, pause_plans
from kvassay_reference.lifecycle import Session, tokens_sha256
from kvassay_reference.pause_plans import Exact, Link, Waste, exact

from ..adapters.base import Rejected
from ..engines.reference import Reference
from .base import Fault

Request = Mapping[str, Any]
Result = dict[str, Any]

CORRECT = (Reference,)


def cases(*names: str) -> tuple[str, ...]:
    """Ids of this contract."""
    return tuple(f"lifecycle/{name}" for name in names)


# --- plans of completed turns ------------------------------------------------------------------------------------


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


# --- interrupted requests -----------------------------------------------------------------------------------------


class OwnWasteAlone(Fault):
    """A recomputation is charged for its own rows and not for those that wait for it."""

    requirement = "LIF-017"
    killed_by = cases("policy/base")

    class Own(Waste):
        """The others' rows are forgotten."""

        @property
        def discard(self) -> Exact:
            return replace(self, other=0).discard if self.other else super().discard

    waste_class = Own


class OneWaySwap(Fault):
    """The way back is not counted."""

    requirement = "LIF-017"
    killed_by = cases("policy/base")

    class OneWay(Waste):
        """Half a swap."""

        @property
        def swap(self) -> Exact:
            return super().swap / 2

    waste_class = OneWay


class FullOccupancy(Fault):
    """A recomputation in pieces is charged for all of its rows all the time."""

    requirement = "LIF-017"
    killed_by = cases("policy/base", "policy/one-piece", "policy/alone")

    class Full(Waste):
        """Not halved."""

        @property
        def chunked_discard(self) -> Exact:
            r = self.request
            return super().chunked_discard + r.forward_ms * r.context * self.token_bytes / 2

    waste_class = Full


class OnePieceForAll(Fault):
    """The others are charged for one piece, however many there are."""

    requirement = "LIF-017"
    killed_by = cases("policy/base", "policy/no-budget")

    class Single(Waste):
        """One piece."""

        @property
        def chunked_discard(self) -> Exact:
            if self.request.chunks == 1:
                return super().chunked_discard
            return Single(replace(self.request, chunks=1), self.other, self.token_bytes).chunked_discard

    waste_class = Single


Single = OnePieceForAll.Single


class TieDiscards(Fault):
    """At the crossing, work that is done is thrown away."""

    requirement = "LIF-017"
    killed_by = cases("policy/at-the-crossing")

    class Eager(Waste):
        """Preserves only below."""

        @property
        def fallback(self) -> str:
            return "preserve" if self.preserve < self.chunked_discard else "discard"

    waste_class = Eager


class NeverDiscards(Fault):
    """What cannot be swapped is preserved, however long it takes."""

    requirement = "LIF-017"
    killed_by = cases("policy/no-budget", "policy/just-past-the-crossing")

    class Keeper(Waste):
        """Preserves."""

        @property
        def fallback(self) -> str:
            return "preserve"

    waste_class = Keeper


class SwapsForNothing(Fault):
    """A pause is swapped out although its result is there before the rows are back."""

    requirement = "LIF-020"
    killed_by = cases("policy/round-trip-only", "policy/just-issued")

    class Eager(Waste):
        """Any pause is long enough."""

        @property
        def worth_swapping(self) -> bool:
            return True

    waste_class = Eager


class SwapsPastCrossingAlone(Fault):
    """Only requests that would be discarded compete for the budget."""

    requirement = "LIF-020"
    killed_by = cases("policy/past-the-round-trip")

    class Narrow(Waste):
        """Past the crossing."""

        @property
        def worth_swapping(self) -> bool:
            return super().worth_swapping and self.fallback == "discard"

    waste_class = Narrow


class DecidedOneByOne(Fault):
    """Requests take the budget in the order in which they stand."""

    requirement = "LIF-020"
    killed_by = cases("policy/largest-waste-first", "policy/budget-spent-in-order")

    def ordered(self, wastes: Sequence[Waste]) -> list[Waste]:
        return list(wastes)


class LongestContextFirst(Fault):
    """The order is of size and not of waste."""

    requirement = "LIF-020"
    killed_by = cases("policy/longest-context-is-not-largest-waste")

    def ordered(self, wastes: Sequence[Waste]) -> list[Waste]:
        return sorted(wastes, key=lambda waste: -waste.request.context)


class TiesByName(Fault):
    """Equal wastes are taken in alphabetical order."""

    requirement = "LIF-020"
    killed_by = cases("policy/ties-in-order")

    def ordered(self, wastes: Sequence[Waste]) -> list[Waste]:
        return sorted(wastes, key=lambda waste: (-waste.potential, waste.request.id))


class BudgetForEach(Fault):
    """Every request gets the whole budget of the iteration."""

    requirement = "LIF-020"
    killed_by = cases("policy/largest-waste-first", "policy/budget-spent-in-order")

    def swaps(self, ordered: Sequence[Waste], budget: int, host_free: int) -> dict[str, int]:
        chosen: dict[str, int] = {}
        for waste in ordered:
            chosen |= pause_plans.swaps([waste], budget, host_free)
        return chosen


class HostNeverFull(Fault):
    """Rows are swapped out to where there is no room."""

    requirement = "LIF-020"
    killed_by = cases("policy/host-full", "policy/smaller-fits-behind-larger")

    def swaps(self, ordered: Sequence[Waste], budget: int, host_free: int) -> dict[str, int]:
        return super().swaps(ordered, budget, 1 << 60)


class HostNeverFilled(Fault):
    """A context must be smaller than the room on the host."""

    requirement = "LIF-020"
    killed_by = cases("policy/host-just-fits", "policy/ties-in-order")

    def swaps(self, ordered: Sequence[Waste], budget: int, host_free: int) -> dict[str, int]:
        return super().swaps(ordered, budget, host_free - 1)


class RequestTwiceTaken(Fault):
    """One request is decided twice, and its context is counted twice."""

    requirement = "LIF-020"
    killed_by = cases("policy/request-twice")

    def lifecycle_policy(self, request: Request) -> Result:
        rows = {row["id"]: row for row in request["requests"]}
        return super().lifecycle_policy({**request, "requests": list(rows.values())})


class ElapsedAlways(Fault):
    """What is known of a call's length is not used."""

    requirement = "LIF-021"
    killed_by = cases("policy/duration-known")

    def pause_ms(self, row: Request, now_ms: Exact) -> Exact:
        return now_ms - exact(row["call_ms"])


class FirstEstimateKept(Fault):
    """A pause of unknown length is reckoned as it was when the call was issued."""

    requirement = "LIF-021"
    killed_by = cases("policy/aged-4-ms", "policy/aged-9-ms")

    def pause_ms(self, row: Request, now_ms: Exact) -> Exact:
        return Exact(0) if row["duration_ms"] is None else exact(row["duration_ms"])


class UnknownIsLong(Fault):
    """A call that was just issued is taken for a long one."""

    requirement = "LIF-021"
    killed_by = cases("policy/just-issued")

    def pause_ms(self, row: Request, now_ms: Exact) -> Exact:
        return super().pause_ms(row, now_ms) or Exact(1000)


class ClockOfAnotherMachine(Fault):
    """A call from the future has a pause of the same length."""

    requirement = "LIF-021"
    killed_by = cases("policy/call-in-the-future")

    def pause_ms(self, row: Request, now_ms: Exact) -> Exact:
        return abs(super().pause_ms(row, now_ms))


class LimitRoundedUp(Fault):
    """One token more than hides."""

    requirement = "LIF-018"
    killed_by = cases("budget/base", "budget/fixed-cost")

    def swap_limit(self, link: Link, foreground_ms: Exact, token_bytes: int) -> int:
        limit = super().swap_limit(link, foreground_ms, token_bytes)
        return limit + 1 if limit else 0


class FixedCostIgnored(Fault):
    """The foreground's whole time is given to bytes."""

    requirement = "LIF-018"
    killed_by = cases("budget/fixed-cost", "budget/fixed-cost-eats-all")

    def swap_limit(self, link: Link, foreground_ms: Exact, token_bytes: int) -> int:
        return super().swap_limit(replace(link, fixed_ms=Exact(0)), foreground_ms, token_bytes)


class OverfullChunk(Fault):
    """Every iteration recomputes at least one token."""

    requirement = "LIF-018"
    killed_by = cases("budget/no-room")

    def chunk_tokens(self, saturation: int, running: int) -> int:
        return max(1, super().chunk_tokens(saturation, running))


class SaturationForOneself(Fault):
    """The running group is not counted."""

    requirement = "LIF-018"
    killed_by = cases("budget/base", "budget/no-room")

    def chunk_tokens(self, saturation: int, running: int) -> int:
        return saturation


class LastChunkLost(Fault):
    """The rest is handled after the loop, and a context that leaves no rest loses its last piece (InferCept)."""

    requirement = "LIF-019"
    killed_by = cases("budget/multiple-of-the-chunk", "budget/base")

    def pieces(self, context: int, most: int) -> list[int]:
        found = super().pieces(context, most)
        return found[:-1] if most and context % most == 0 else found


class RestFilledUp(Fault):
    """The last piece is as long as the others."""

    requirement = "LIF-019"
    killed_by = cases("budget/two-chunks-and-a-rest", "budget/smaller-than-a-chunk")

    def pieces(self, context: int, most: int) -> list[int]:
        return [most] * len(super().pieces(context, most))


class EmptyPiece(Fault):
    """A loop that runs at least once."""

    requirement = "LIF-019"
    killed_by = cases("budget/nothing-to-do")

    def pieces(self, context: int, most: int) -> list[int]:
        return super().pieces(context, most) or ([1] if most else [])


# --- pauses -------------------------------------------------------------------------------------------------------


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


# --- saves --------------------------------------------------------------------------------------------------------


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


def truth(session: Session, end: int) -> dict[str, Any]:
    """What a right copy of the first rows says of itself."""
    return {
        "generation": session.cache_generation,
        "owner": session.owner,
        "first_position": 0,
        "bytes": end * session.token_bytes,
        "tokens_sha256": tokens_sha256(session.tokens[:end]),
    }


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


# --- decisions ----------------------------------------------------------------------------------------------------


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


# --- resume -------------------------------------------------------------------------------------------------------


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


# --- results ------------------------------------------------------------------------------------------------------


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


# --- pause documents ----------------------------------------------------------------------------------------------


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
    name = "".join(word.capitalize() for word in reason.split("_"))
    members = {
        "__doc__": summary,
        "__module__": __name__,
        "blind": reason,
        "requirement": requirement,
        "killed_by": cases(*killers),
    }
    return type(f"Blind{name}", (Blind,), members)


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

ABSTRACT = (Fault, Trusting, Blind)


def _all() -> Iterator[type[Fault]]:
    for value in list(globals().values()):
        if isinstance(value, type) and issubclass(value, Fault) and value not in ABSTRACT:
            yield value
    yield from BLINDED


FAULTS = tuple(_all())
