"""The lifecycle ops of the built-in adapter: requests become the reference's plans, documents and sessions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from kvassay_reference import pause_document, pause_plans
from kvassay_reference.lifecycle import Copy, Device, Machine, Session
from kvassay_reference.manifest import NotAManifest, read
from kvassay_reference.pause_document import PauseDocument
from kvassay_reference.pause_plans import Exact, Interrupted, Link, Waste, Weights, exact

from ..adapters.base import Rejected
from .reference_attention import refusals_named
from .reference_part import ReferencePart

Request = Mapping[str, Any]
Result = dict[str, Any]


def plain(value: Any) -> Any:
    """Exact numbers as floats, throughout."""
    if isinstance(value, Exact):
        return float(value)
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list) else value


class LifecycleReference(ReferencePart):
    """The lifecycle ops. Faults override one of the small methods, here or in the machine."""

    own_profiles: ClassVar[frozenset[str]] = frozenset({"lifecycle", "lifecycle-manifest", "lifecycle-plan"})
    machine_class: ClassVar[type[Machine]] = Machine
    pause_rules: ClassVar[Sequence[pause_document.Rule]] = pause_document.RULES

    def open(self) -> None:
        """No session."""
        super().open()
        self.machine = self.machine_class()

    # plans

    def preload(
        self, arrivals: Sequence[Exact], computes: Sequence[Exact], slots: int | None
    ) -> tuple[list[Exact], list[Exact]]:
        """Arrival and completion of each layer."""
        return pause_plans.preload(arrivals, computes, slots)

    def buffer_bytes(self, link: Link, load_ms: Exact, prefill_ms: Exact) -> Exact:
        """Read buffer."""
        return pause_plans.buffer_bytes(link, load_ms, prefill_ms)

    def restore_work(self, per_token: Exact, turns: Sequence[Mapping[str, int]]) -> Exact:
        """Model work with exact histories."""
        return pause_plans.work(per_token, (turn["new_tokens"] for turn in turns))

    def recompute_work(self, per_token: Exact, turns: Sequence[Mapping[str, int]]) -> Exact:
        """Model work without."""
        return pause_plans.work(per_token, (turn["history_tokens"] + turn["new_tokens"] for turn in turns))

    def lifecycle_resume_plan(self, request: Request) -> Result:
        """Layerwise preload of a history."""
        layers, link = request["layers"], Link.read(request["h2d"])
        history = sum(layer["bytes"] for layer in layers)
        if history != request["history_tokens"] * request["token_bytes"]:
            raise Rejected("HISTORY_BYTES_MISMATCH", f"{history} bytes in the layers")
        arrivals = [link.service_ms(layer["bytes"]) for layer in layers]
        computes = [exact(layer["compute_ms"]) for layer in layers]
        ready, done = self.preload(arrivals, computes, request["read_slots"])
        host = done[-1] + exact(request["lookup_ms"]) + exact(request["queue_ms"])
        load_ms = exact(request["load_ms_per_token"]) * request["history_tokens"]
        prefill_ms = exact(request["prefill_ms_per_token"]) * request["new_tokens"]
        per_token, turns = exact(request["work_per_token"]), request["turns"]
        result: Result = plain(
            {
                "history_bytes": history,
                "arrival_ms": arrivals,
                "ready_ms": ready,
                "done_ms": done,
                "pipeline_ms": done[-1],
                "stall_ms": done[-1] - sum(computes),
                "host_resume_ms": host,
                "disk_resume_ms": host + exact(request["disk_ms"]),
                "recompute_work": self.recompute_work(per_token, turns),
                "restore_work": self.restore_work(per_token, turns),
                "load_outruns": load_ms > prefill_ms,
                "buffer_bytes": self.buffer_bytes(link, load_ms, prefill_ms),
            }
        )
        return result

    def save_ends(self, costs: Sequence[Exact], closed: Sequence[Exact]) -> list[Exact]:
        """When each layer has been saved."""
        return pause_plans.save(costs, closed)

    def visible_ms(self, ends: Sequence[Exact], window: Exact, slots: int) -> Exact:
        """Stall that the request sees."""
        return pause_plans.visible_ms(ends, window, slots)

    def lifecycle_save_plan(self, request: Request) -> Result:
        """Asynchronous save."""
        layers, link, window = request["layers"], Link.read(request["d2h"]), exact(request["window_ms"])
        for number, layer in enumerate(layers):
            if layer["lease_closed_ms"] is None:
                raise Rejected("LAYER_LEASE_OPEN", f"/layers/{number}/lease_closed_ms")
        costs = [link.service_ms(layer["bytes"]) for layer in layers]
        ends = self.save_ends(costs, [exact(layer["lease_closed_ms"]) for layer in layers])
        visible = self.visible_ms(ends, window, request["write_slots"])
        late = [layer["bytes"] for layer, end in zip(layers, ends, strict=True) if end > window + visible]
        result: Result = plain(
            {
                "layer_ms": costs,
                "done_ms": ends,
                "save_ms": sum(costs, Exact(0)),
                "finished_ms": ends[-1],
                "visible_ms": visible,
                "hidden_ms": max(Exact(0), sum(costs, Exact(0)) - visible),
                "slots_used": len(late),
                "buffered_bytes": sum(late),
            }
        )
        return result

    def costs(self, request: Request) -> tuple[Exact, Exact]:
        """Expected costs of keeping and of discarding."""
        weights = Weights(**{name: exact(value) for name, value in request["weights"].items()})
        p = exact(request["reuse_probability"])
        times = (exact(request[name]) for name in ("idle", "resume_ms", "suffix_gpu_ms", "save_visible_ms"))
        keep = pause_plans.persist_cost(weights, p, request["history_bytes"], *times)
        return keep, pause_plans.discard_cost(weights, p, exact(request["full_ms"]), exact(request["full_gpu_ms"]))

    def lifecycle_persist(self, request: Request) -> Result:
        """Keep a finished turn, or compute it again."""
        keep, drop = self.costs(request)
        return {
            "persist": float(keep),
            "discard": float(drop),
            "action": "persist" if keep < drop else "discard",
        }

    def admitted(self, queue: Sequence[Mapping[str, Any]], room: int) -> list[str]:
        """Sessions that are fetched ahead."""
        return pause_plans.admitted(queue, room)

    def lifecycle_prefetch(self, request: Request) -> Result:
        """Windows of the queue's hints, and what is admitted by bytes."""
        host, disk, mean = request["host_bytes"], request["disk_bytes"], request["mean_session_bytes"]
        room = host - sum(request["reserved_bytes"].values())
        if room < 0:
            raise Rejected("RESERVES_EXCEED_HOST", f"{-room} bytes too many are reserved")
        names = self.admitted(request["queue"], room)
        return {
            "prefetch_window": host // mean,
            "eviction_window": (host + disk) // mean,
            "admitted": names,
            "admitted_bytes": sum(job["bytes"] for job in request["queue"][: len(names)]),
        }

    waste_class: ClassVar[type[Waste]] = Waste

    def pause_ms(self, row: Request, now_ms: Exact) -> Exact:
        """How long the call takes: as given, or as long as it has taken."""
        return now_ms - exact(row["call_ms"]) if row["duration_ms"] is None else exact(row["duration_ms"])

    def interrupted(self, row: Request, now_ms: Exact) -> Interrupted:
        """One waiting request."""
        pause = self.pause_ms(row, now_ms)
        if pause < 0:
            raise Rejected("CALL_IN_THE_FUTURE", row["id"])
        return Interrupted(
            id=row["id"],
            context=row["context_tokens"],
            chunks=row["chunks"],
            forward_ms=exact(row["forward_ms"]),
            chunk_forward_ms=exact(row["chunk_forward_ms"]),
            swap_ms=exact(row["swap_ms"]),
            pause_ms=pause,
            estimated=row["duration_ms"] is None,
        )

    def ordered(self, wastes: Sequence[Waste]) -> list[Waste]:
        """Who is decided first."""
        return pause_plans.by_waste(wastes)

    def swaps(self, ordered: Sequence[Waste], budget: int, host_free: int) -> dict[str, int]:
        """Who is swapped, and how much of it now."""
        return pause_plans.swaps(ordered, budget, host_free)

    def lifecycle_policy(self, request: Request) -> Result:
        """One decision over all interrupted requests."""
        now = exact(request["now_ms"])
        rows = [self.interrupted(row, now) for row in request["requests"]]
        wastes = [self.waste_class(row, request["other_tokens"], request["token_bytes"]) for row in rows]
        with refusals_named():
            pause_plans.demand_unique([row.id for row in rows])
        ordered = self.ordered(wastes)
        swaps = self.swaps(ordered, request["swap_budget_tokens"], request["host_free_bytes"])
        result: Result = plain(
            {
                "requests": [
                    {
                        "id": waste.request.id,
                        "interruption_ms": waste.request.pause_ms,
                        "estimate": "elapsed" if waste.request.estimated else "given",
                        "discard_byte_ms": waste.discard,
                        "preserve_byte_ms": waste.preserve,
                        "swap_byte_ms": waste.swap,
                        "chunked_discard_byte_ms": waste.chunked_discard,
                        "crossing_ms": waste.crossing_ms,
                        "potential_byte_ms": waste.potential,
                        "action": "swap" if waste.request.id in swaps else waste.fallback,
                        "swap_tokens": swaps.get(waste.request.id, 0),
                    }
                    for waste in wastes
                ],
                "order": [waste.request.id for waste in ordered],
            }
        )
        return result

    def swap_limit(self, link: Link, foreground_ms: Exact, token_bytes: int) -> int:
        """Tokens that one iteration swaps."""
        return pause_plans.swap_limit(link, foreground_ms, token_bytes)

    def chunk_tokens(self, saturation: int, running: int) -> int:
        """Tokens that one iteration recomputes."""
        return max(0, saturation - running)

    def pieces(self, context: int, most: int) -> list[int]:
        """A context in pieces."""
        return pause_plans.pieces(context, most)

    def lifecycle_swap_budget(self, request: Request) -> Result:
        """What one iteration may swap and recompute."""
        link, context = Link.read(request["link"]), request["context_tokens"]
        limit = self.swap_limit(link, exact(request["foreground_ms"]), request["token_bytes"])
        chunk = self.chunk_tokens(request["saturation_tokens"], request["running_tokens"])
        swap, again = self.pieces(context, limit), self.pieces(context, chunk)
        return {
            "limit_tokens": limit,
            "swap_pieces": swap,
            "swap_iterations": len(swap),
            "chunk_tokens": chunk,
            "recompute_pieces": again,
            "recompute_iterations": len(again),
        }

    # documents

    def lifecycle_admit(self, request: Request) -> Result:
        """Accept a pause document or reject it."""
        try:
            document = read(PauseDocument, request["document"])
        except NotAManifest as problem:
            raise Rejected("SCHEMA_VIOLATION", str(problem)) from None
        for reason, pointer in pause_document.violations(document, self.pause_rules):
            raise Rejected(reason, pointer)
        return {}

    # machine

    def lifecycle_begin(self, request: Request) -> Result:
        """A running request."""
        device = Device(True, list(request["speculative"]), set(request["leases"]), set(request["dma"]))
        session = Session(
            owner=request["owner"],
            layers=request["layers"],
            token_bytes=request["token_bytes"],
            cache_generation=request["cache_generation"],
            arrival_ms=request["arrival_ms"],
            tokens=list(request["tokens"]),
            pause_epoch=request["lifecycle_epoch"],
            device=device,
        )
        with refusals_named():
            return self.machine.begin(request["session"], session).status()

    def session(self, request: Request) -> Session:
        """The session of a request."""
        with refusals_named():
            return self.machine.find(request["session"])

    def act(self, request: Request, event: str, *arguments: Any) -> Result:
        """One step of the machine, and where it led."""
        session = self.session(request)
        with refusals_named():
            outcome = getattr(self.machine, event)(session, *arguments)
        return session.status(outcome or "done")

    def lifecycle_inspect(self, request: Request) -> Result:
        """Where a session is."""
        return self.session(request).status()

    def lifecycle_decode(self, request: Request) -> Result:
        """Commit tokens."""
        return self.act(request, "decode", request["tokens"])

    def lifecycle_pause(self, request: Request) -> Result:
        """Begin a pause."""
        return self.act(request, "pause", request["action"], request.get("call_id"))

    def lifecycle_event(self, request: Request) -> Result:
        """A reader or a copy is done with a layer."""
        return self.act(request, "finished", request["event"], request["layer"])

    def lifecycle_quiesce(self, request: Request) -> Result:
        """The frontier is settled."""
        return self.act(request, "quiesce")

    def lifecycle_revise(self, request: Request) -> Result:
        """Another decision."""
        return self.act(request, "revise", request["action"])

    def lifecycle_snapshot(self, request: Request) -> Result:
        """Copy a layer."""
        return self.act(request, "snapshot", request["layer"])

    def lifecycle_publish(self, request: Request) -> Result:
        """Publish a save."""
        return self.act(request, "publish", copy_of(request, "end_position"), request["bytes"])

    def lifecycle_release(self, request: Request) -> Result:
        """Free the device's rows."""
        return self.act(request, "release")

    def lifecycle_result(self, request: Request) -> Result:
        """A result arrives."""
        names = ("call_id", "pause_epoch", "result_id", "tokens", "tokens_sha256")
        return self.act(request, "result", *(request[name] for name in names))

    def lifecycle_resume(self, request: Request) -> Result:
        """Begin to resume."""
        return self.act(request, "resume", request["resume_epoch"])

    def lifecycle_ready(self, request: Request) -> Result:
        """Validate what was brought back."""
        replica = copy_of(request["replica"], "valid_end") if "replica" in request else None
        return self.act(request, "ready", replica, request.get("recompute_from"))

    def lifecycle_prefill(self, request: Request) -> Result:
        """Compute the suffix."""
        return self.act(request, "prefill", request.get("tokens"))

    def lifecycle_commit(self, request: Request) -> Result:
        """Publish the suffix."""
        return self.act(request, "commit")

    def lifecycle_apply(self, request: Request) -> Result:
        """Acknowledge."""
        return self.act(request, "apply")

    def lifecycle_fail(self, request: Request) -> Result:
        """An attempt failed."""
        return self.act(request, "fail")

    def lifecycle_crash(self, request: Request) -> Result:
        """Restart."""
        return {"sessions": self.machine.crash()}


def copy_of(fields: Request, end: str) -> Copy:
    """What a save or a restore says of its rows."""
    names = ("generation", "owner", "first_position", end, "tokens_sha256")
    return Copy(*(fields[name] for name in names))
