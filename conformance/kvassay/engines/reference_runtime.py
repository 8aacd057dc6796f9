"""The runtime ops of the built-in adapter: requests become calls of the reference's runtime."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from kvassay_reference import runtime_admission, runtime_documents
from kvassay_reference.manifest import NotAManifest, read
from kvassay_reference.runtime import Finished, Runtime, Turned, Unit
from kvassay_reference.runtime_admission import Ask, Batch, Buckets, Credits, Decision, Estimate, Exact, Path, exact
from kvassay_reference.runtime_documents import Admission, AdmissionRule, Report, ReportRule

from ..adapters.base import Rejected
from .reference_attention import refusals_named
from .reference_part import ReferencePart

Request = Mapping[str, Any]
Result = dict[str, Any]


class RuntimeReference(ReferencePart):
    """The runtime ops. Faults override one of the small methods, here or of the machine."""

    own_profiles: ClassVar[frozenset[str]] = frozenset(
        {"runtime-admission", "runtime-report", "runtime-jobs", "runtime-index"}
    )
    own_capabilities: ClassVar[Mapping[str, Any]] = {
        "runtime.exact": True,
        "runtime.returns": True,
        "runtime.joins": True,
        "runtime.stores": True,
        "runtime.cancels": True,
        "runtime.cancels_stores": True,
        "runtime.fails": True,
        "runtime.fan_in": True,
        "runtime.epochs": True,
        "runtime.deadlines": True,
        "runtime.identity": True,
        "runtime.resets_busy": True,
    }
    run_class: ClassVar[type[Runtime]] = Runtime
    admission_rules: ClassVar[Sequence[AdmissionRule]] = runtime_documents.ADMISSION_RULES
    report_rules: ClassVar[Sequence[ReportRule]] = runtime_documents.REPORT_RULES

    # --- plans and documents ------------------------------------------------------------------------------------------

    def run_document(self, form: type[Any], request: Request, rules: Sequence[Any]) -> Any:
        """A document that breaks no rule."""
        try:
            document = read(form, request["document"])
        except NotAManifest as problem:
            raise Rejected("SCHEMA_VIOLATION", str(problem)) from None
        with refusals_named():
            runtime_documents.check(document, rules)
        return document

    def run_worth(self, path: Path, size: int, worker_numa: int, crossing_ms: Exact) -> Exact:
        """Time of one transfer."""
        return self.run_estimated(path, size, worker_numa, crossing_ms).total_ms

    def run_estimated(self, path: Path, size: int, worker_numa: int, crossing_ms: Exact) -> Estimate:
        """Its terms."""
        return runtime_admission.estimate(path, self.run_rate(path), size, worker_numa, crossing_ms)

    def run_rate(self, path: Path) -> Exact:
        """Service rate of a path."""
        return path.rate

    def run_order(self, policy: str, asks: Sequence[Ask]) -> list[Ask]:
        """The order in which a policy looks at requests."""
        return runtime_admission.ordered(policy, asks)

    def run_decide(self, policy: str, asks: Sequence[Ask], free: Credits, now_ms: Exact) -> Decision:
        """The policy at work."""
        return runtime_admission.admit(policy, self.run_order(policy, asks), free, now_ms)

    def runtime_admit(self, request: Request) -> Result:
        """A schedule step."""
        step: Admission = self.run_document(Admission, request, self.admission_rules)
        with refusals_named():
            free = self.run_free(step)
            asks = runtime_documents.asks(step, self.run_worth)
        made = self.run_decide(step.policy, asks, free, exact(step.now_ms))
        return self.run_told(made, free, asks)

    def run_free(self, step: Admission) -> Credits:
        """Credits of the step."""
        return runtime_admission.free_credits(step.capacity.credits(), step.held.credits())

    def run_told(self, made: Decision, free: Credits, asks: Sequence[Ask]) -> Result:
        """A decision as JSON."""
        finish = {ask.name: float(ask.finish_ms) for ask in asks}
        return {
            "free": free.to_json(),
            "order": list(made.order),
            "finish_ms": [finish[name] for name in made.order],
            "admitted": [
                {"request": one.ask.name, "joined": one.joined, "charged": one.price.to_json()} for one in made.admitted
            ],
            "fallbacks": [{"request": ask.name, "reason": why, "action": action} for ask, why, action in made.turned],
            "charged": self.run_charged(made).to_json(),
            "saved_bytes": made.saved_bytes,
            "left": made.left.to_json(),
        }

    def run_charged(self, made: Decision) -> Credits:
        """Sum of the charges."""
        return sum((one.price for one in made.admitted), Credits())

    def runtime_estimate(self, request: Request) -> Result:
        """One transfer."""
        with refusals_named():
            path = Path.read(request["path"])
            rate = self.run_rate(path)
            terms = self.run_estimated(path, request["bytes"], request["worker_numa"], exact(request["crossing_ms"]))
        finish = exact(request["now_ms"]) + terms.total_ms
        return {
            "rate_bytes_per_ms": float(rate),
            "queue_ms": float(terms.queue_ms),
            "setup_ms": float(terms.setup_ms),
            "transfer_ms": float(terms.transfer_ms),
            "numa_ms": float(terms.numa_ms),
            "total_ms": float(terms.total_ms),
            "finish_ms": float(finish),
            "in_time": self.run_in_time(finish, exact(request["deadline_ms"])),
        }

    def run_in_time(self, finish_ms: Exact, deadline_ms: Exact) -> bool:
        """Whether the deadline is met."""
        return finish_ms <= deadline_ms

    def run_batches(
        self, rows: Sequence[Request], buckets: Buckets, cap_bytes: int, staging_bytes: int
    ) -> tuple[list[Batch], list[tuple[str, str]]]:
        """Batches and what is deferred."""
        return runtime_admission.batches(rows, buckets, cap_bytes, staging_bytes)

    def runtime_batch(self, request: Request) -> Result:
        """Requests whose transfers are alike."""
        given = request["buckets"]
        buckets = Buckets(given["fetch_bytes"], given["candidates"], tuple(exact(one) for one in given["slack_ms"]))
        limits = request["cap_bytes"], request["staging_bytes"]
        made, deferred = self.run_batches(request["requests"], buckets, *limits)
        return {
            "batches": [
                {
                    "key": one.key,
                    "requests": one.requests,
                    "fetch_bytes": one.fetch_bytes,
                    "staging_bytes": one.staging_bytes,
                }
                for one in made
            ],
            "deferred": [{"request": name, "reason": reason} for name, reason in deferred],
        }

    def runtime_report(self, request: Request) -> Result:
        """The report of a deployment."""
        self.run_document(Report, request, self.report_rules)
        return {}

    # --- the machine --------------------------------------------------------------------------------------------------

    run_machine: Runtime

    def run_free_told(self, **members: Any) -> Result:
        """A reply with the free credits; the reference is called once for each op."""
        return {**members, "free": self.run_machine.free.to_json(), "engine_calls": 1}

    def runtime_open(self, request: Request) -> Result:
        """A runtime without jobs."""
        amounts = Credits.read(request["capacity"]), Credits.read(request["held"])
        with refusals_named():
            self.run_machine = self.run_class(*amounts, request["workers"])
        return self.run_free_told(epoch=self.run_machine.epoch)

    def runtime_inspect(self, request: Request) -> Result:
        """Epoch and free credits."""
        return self.run_free_told(epoch=self.run_machine.epoch)

    def runtime_commit(self, request: Request) -> Result:
        """Rows are there."""
        with refusals_named():
            outcome = self.run_machine.commit(unit_of(request["unit"]))
        return self.run_free_told(outcome=outcome)

    def runtime_reserve(self, request: Request) -> Result:
        """Credits, or a fallback."""
        with refusals_named():
            made = self.run_machine.reserve(
                request["request"],
                request["direction"],
                unit_of(request["unit"]),
                request["staging_bytes"],
                runtime_admission.Terms.read(request),
                exact(request["now_ms"]),
                exact(request["finish_ms"]),
            )
        if isinstance(made, str):
            return self.run_free_told(outcome=made)
        if isinstance(made, Turned):
            return self.run_free_told(outcome="fallback", reason=made.reason, action=made.action)
        return self.run_free_told(
            outcome="granted",
            read=made.read.name,
            epoch=made.read.epoch,
            joined=made.joined,
            charged=made.charged.to_json(),
        )

    def runtime_submit(self, request: Request) -> Result:
        """The transfer starts."""
        with refusals_named():
            outcome, found = self.run_machine.submit(request["request"])
        return self.run_free_told(outcome=outcome, read=found.name, epoch=found.epoch, started=self.run_machine.started)

    def runtime_complete(self, request: Request) -> Result:
        """A worker's report."""
        with refusals_named():
            made = self.run_machine.complete(
                request["read"],
                request["epoch"],
                request["worker"],
                request["ok"],
                request["bytes"],
                exact(request["now_ms"]),
            )
        return self.run_finished(made)

    def run_finished(self, made: Finished) -> Result:
        """What the report came to."""
        return self.run_free_told(
            outcome=made.outcome,
            ready=list(made.ready),
            fallbacks=[{"request": name, "reason": one.reason, "action": one.action} for name, one in made.turned],
            returned=made.returned.to_json(),
        )

    def runtime_cancel(self, request: Request) -> Result:
        """A request goes."""
        with refusals_named():
            outcome, returned = self.run_machine.cancel(request["request"])
        return self.run_free_told(outcome=outcome, returned=returned.to_json())

    def runtime_reset(self, request: Request) -> Result:
        """A new epoch."""
        returned = self.run_machine.reset()
        return self.run_free_told(epoch=self.run_machine.epoch, returned=returned.to_json())

    def runtime_prepare_index(self, request: Request) -> Result:
        """Entries that nobody sees."""
        return {"generation": self.run_machine.prepare_index(units_of(request["units"])), "engine_calls": 1}

    def runtime_publish_index(self, request: Request) -> Result:
        """Entries become visible."""
        with refusals_named():
            entries = self.run_machine.publish_index(request["generation"])
        return {"generation": request["generation"], "entries": entries, "engine_calls": 1}

    def runtime_look_up(self, request: Request) -> Result:
        """A look-up begins."""
        outcome, name, generation = self.run_machine.look_up(unit_of(request["unit"]))
        return {"outcome": outcome, "lookup": name, "generation": generation, "engine_calls": 1}

    def runtime_end_lookup(self, request: Request) -> Result:
        """It ends."""
        with refusals_named():
            self.run_machine.end_lookup(request["lookup"])
        return {"engine_calls": 1}

    def runtime_tombstone(self, request: Request) -> Result:
        """Rows are deleted for later readers."""
        outcome, generation = self.run_machine.tombstone(unit_of(request["unit"]))
        return {"outcome": outcome, "generation": generation, "engine_calls": 1}

    def runtime_confirm_deletion(self, request: Request) -> Result:
        """The backend's receipt."""
        with refusals_named():
            self.run_machine.confirm_deletion(unit_of(request["unit"]), request["durable"])
        return {"engine_calls": 1}

    def runtime_collect(self, request: Request) -> Result:
        """Memory comes back."""
        with refusals_named():
            self.run_machine.collect(unit_of(request["unit"]))
        return {"engine_calls": 1}


def unit_of(fields: Mapping[str, Any]) -> Unit:
    """Full identity as a value that can be compared."""
    return tuple(sorted(fields.items()))


def units_of(several: Iterable[Mapping[str, Any]]) -> list[Unit]:
    """Of each."""
    return [unit_of(one) for one in several]
