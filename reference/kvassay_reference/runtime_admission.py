"""What a runtime admits: free credits, the three policies, typed fallbacks, estimates and batch keys.

Decimals are taken as they are written (``0.1`` is a tenth), so that a deadline that is met to the last digit is met.
Sizes are bytes, durations and points in time milliseconds on the clock that the request names, rates bytes a
millisecond. Article 0x08B to 0x08D, 0x08H, 0x08I and 0x08L.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Any, Literal

from .errors import Refusal

Number = int | float
Exact = Fraction
Request = Mapping[str, Any]
Reason = Literal["DEADLINE", "CREDIT_PRESSURE", "TRANSFER_FAILED"]
Action = Literal["RECOMPUTE_EXACT", "POSTPONE_FOR_EXACT_RETRY", "ACCEPT_DECLARED_DEGRADED", "REJECT_NO_LEGAL_PATH"]
POLICIES = ("fifo", "earliest_deadline", "exact_deadline_coalescing")


def exact(number: Number) -> Exact:
    """The number as it is written in decimals."""
    return Fraction(str(number))


@dataclass(frozen=True)
class Credits:
    """An amount of each of the four resources that a transfer needs."""

    pinned_bytes: int = 0
    """Pinned host memory."""
    staging_bytes: int = 0
    """Memory at the destinations of transfers."""
    link_bytes: int = 0
    """Bytes that the link may have in flight."""
    queue_slots: int = 0
    """Places in the queue of reads."""

    @staticmethod
    def read(made: Mapping[str, int]) -> Credits:
        """From JSON."""
        return Credits(**made)

    def to_json(self) -> dict[str, int]:
        """As JSON."""
        return {one.name: getattr(self, one.name) for one in fields(self)}

    def __add__(self, other: Credits) -> Credits:
        return Credits(*(a + b for a, b in zip(self._parts(), other._parts(), strict=True)))

    def __sub__(self, other: Credits) -> Credits:
        return Credits(*(a - b for a, b in zip(self._parts(), other._parts(), strict=True)))

    def covers(self, other: Credits) -> bool:
        """Whether there is enough of each."""
        return all(a >= b for a, b in zip(self._parts(), other._parts(), strict=True))

    def _parts(self) -> tuple[int, int, int, int]:
        return self.pinned_bytes, self.staging_bytes, self.link_bytes, self.queue_slots


def free_credits(capacity: Credits, held: Credits) -> Credits:
    """What a new step may take: capacity less what is held (article 0x08H)."""
    if not capacity.covers(held):
        raise Refusal("HELD_EXCEEDS_CAPACITY", f"{held} of {capacity}")
    return capacity - held


@dataclass(frozen=True)
class Terms:
    """What a request may fall back to, in the order in which it wants it."""

    contract: Literal["exact", "approximate"]
    fallbacks: tuple[str, ...]
    recompute_ms: Exact | None
    deadline_ms: Exact

    @staticmethod
    def read(request: Request) -> Terms:
        """From a request; an exact one that would degrade is refused."""
        recompute = request["recompute_ms"]
        made = Terms(
            request["contract"],
            tuple(request["fallbacks"]),
            None if recompute is None else exact(recompute),
            exact(request["deadline_ms"]),
        )
        if made.contract == "exact" and "degrade" in made.fallbacks:
            raise Refusal("EXACT_MAY_NOT_DEGRADE", "an exact request lists degrade")
        if made.recompute_ms is None and "recompute" in made.fallbacks:
            raise Refusal("RECOMPUTE_NOT_TIMED", "a request lists recompute and does not say what it takes")
        return made

    def legal(self, name: str, reason: Reason, now_ms: Exact) -> Action | None:
        """What a fallback of this name comes to now; ``None`` where it is of no use."""
        if name == "recompute":
            in_time = self.recompute_ms is not None and now_ms + self.recompute_ms <= self.deadline_ms
            return "RECOMPUTE_EXACT" if in_time else None
        if name == "postpone":
            return "POSTPONE_FOR_EXACT_RETRY" if reason != "DEADLINE" and now_ms < self.deadline_ms else None
        return "ACCEPT_DECLARED_DEGRADED" if self.contract == "approximate" else None

    def fallback(self, reason: Reason, now_ms: Exact) -> Action:
        """The first fallback of the request that is legal (article 0x08D, 0x08L)."""
        found = (self.legal(name, reason, now_ms) for name in self.fallbacks)
        return next((action for action in found if action is not None), "REJECT_NO_LEGAL_PATH")


# --- estimates ---


@dataclass(frozen=True)
class Path:
    """A way from a source to a worker, with rates that were measured."""

    name: str
    numa: int
    threads: int
    link_bytes_per_ms: Exact
    measured: tuple[tuple[int, Exact], ...]
    """Numbers of threads, each with the rate that was measured with it, bytes a millisecond."""
    queue_ms: Exact
    setup_ms: Exact

    @staticmethod
    def read(path: Request) -> Path:
        """From JSON."""
        return Path(
            path["path"],
            path["numa"],
            path["threads"],
            exact(path["link_bytes_per_ms"]),
            tuple((row["threads"], exact(row["bytes_per_ms"])) for row in path["measured"]),
            exact(path["queue_ms"]),
            exact(path["setup_ms"]),
        )

    @property
    def rates(self) -> dict[int, Exact]:
        """Number of threads to its rate; of two measurements the later one."""
        return dict(self.measured)

    @property
    def rate(self) -> Exact:
        """The rate that was measured with as many threads as there are: threads are not bandwidth."""
        for threads, rate in self.measured:
            if rate > self.link_bytes_per_ms:
                raise Refusal("RATE_ABOVE_LINK", f"{self.name}, {threads} threads")
        if len(self.rates) < len(self.measured):
            raise Refusal("RATE_NOT_MEASURED", f"{self.name} has two rates for one number of threads")
        if self.threads not in self.rates:
            raise Refusal("RATE_NOT_MEASURED", f"{self.name} with {self.threads} threads")
        return self.rates[self.threads]


@dataclass(frozen=True)
class Estimate:
    """The terms of a transfer's time, milliseconds."""

    queue_ms: Exact
    setup_ms: Exact
    transfer_ms: Exact
    numa_ms: Exact

    @property
    def total_ms(self) -> Exact:
        """Their sum."""
        return self.queue_ms + self.setup_ms + self.transfer_ms + self.numa_ms


def estimate(path: Path, rate: Exact, size: int, worker_numa: int, crossing_ms: Exact) -> Estimate:
    """T_queue + T_setup + B / BW + [src is another node] T_crossing (article 0x08H)."""
    crossing = crossing_ms if path.numa != worker_numa else Exact(0)
    return Estimate(path.queue_ms, path.setup_ms, size / rate, crossing)


# --- policies ---


@dataclass(frozen=True)
class Ask:
    """One request that competes."""

    name: str
    arrival: int
    unit: str
    """Name of its backend unit."""
    backend_bytes: int
    staging_bytes: int
    terms: Terms
    finish_ms: Exact
    """When its transfer would be over."""


@dataclass(frozen=True)
class Bought:
    """What one request got, and at what price."""

    ask: Ask
    joined: bool
    price: Credits


@dataclass(frozen=True)
class Decision:
    """What a policy made of the requests."""

    order: tuple[str, ...]
    admitted: tuple[Bought, ...]
    turned: tuple[tuple[Ask, Reason, Action], ...]
    left: Credits

    @property
    def saved_bytes(self) -> int:
        """Backend bytes that were not read a second time."""
        return sum(one.ask.backend_bytes for one in self.admitted if one.joined)


def ordered(policy: str, asks: Iterable[Ask]) -> list[Ask]:
    """The order in which a policy looks at requests; ties by arrival."""
    if policy == "fifo":
        return sorted(asks, key=lambda ask: ask.arrival)
    if policy == "earliest_deadline":
        return sorted(asks, key=lambda ask: (ask.terms.deadline_ms, ask.arrival))
    return sorted(asks, key=lambda ask: (ask.terms.contract != "exact", ask.terms.deadline_ms, ask.arrival))


def price(ask: Ask, joined: bool) -> Credits:
    """Backend bytes once a unit, staging and a slot once a request."""
    moved = 0 if joined else ask.backend_bytes
    return Credits(moved, ask.staging_bytes, moved, 1)


def admit(policy: str, order: Sequence[Ask], free: Credits, now_ms: Exact) -> Decision:
    """Buy as many requests as there are credits, in the policy's order (article 0x08I).

    Only ``exact_deadline_coalescing`` lets requests of one unit share its read. Under ``fifo`` a request that does not
    fit holds back those behind it; the others are asked one after another.
    """
    left, admitted, turned = free, list[Bought](), list[tuple[Ask, Reason, Action]]()
    blocked = False
    for ask in order:
        if ask.finish_ms > ask.terms.deadline_ms:
            turned.append((ask, "DEADLINE", ask.terms.fallback("DEADLINE", now_ms)))
            continue
        shared = policy == "exact_deadline_coalescing" and any(one.ask.unit == ask.unit for one in admitted)
        cost = price(ask, shared)
        if blocked or not left.covers(cost):
            blocked = policy == "fifo"
            turned.append((ask, "CREDIT_PRESSURE", ask.terms.fallback("CREDIT_PRESSURE", now_ms)))
            continue
        left -= cost
        admitted.append(Bought(ask, shared, cost))
    return Decision(tuple(ask.name for ask in order), tuple(admitted), tuple(turned), left)


# --- batches ---


@dataclass(frozen=True)
class Buckets:
    """How finely shapes are told apart."""

    fetch_bytes: int
    candidates: int
    slack_ms: tuple[Exact, ...]
    """Limits, ascending."""


def doubling(count: int, unit: int) -> int:
    """0 for nothing, 1 up to one unit, 2 up to two, 3 up to four, and so on."""
    return 0 if count == 0 else (-(-count // unit) - 1).bit_length() + 1


def batch_key(row: Request, buckets: Buckets) -> dict[str, Any]:
    """What the requests of a batch have in common (article 0x08B); their lengths are not part of it."""
    slack = exact(row["slack_ms"])
    return {
        "contract": row["contract"],
        "identity": row["identity"],
        "tier": row["tier"],
        "numa": row["numa"],
        "fetch_bucket": doubling(row["fetch_bytes"], buckets.fetch_bytes),
        "candidate_bucket": doubling(row["candidates"], buckets.candidates),
        "slack_bucket": sum(slack >= limit for limit in buckets.slack_ms),
    }


@dataclass
class Batch:
    """Requests that go through a layer together."""

    key: dict[str, Any]
    requests: list[str]
    fetch_bytes: int = 0
    staging_bytes: int = 0


def batches(
    rows: Sequence[Request], buckets: Buckets, cap_bytes: int, staging_bytes: int
) -> tuple[list[Batch], list[tuple[str, str]]]:
    """Batches in the order of their first request, and what was deferred (article 0x08B, 0x08C).

    A request that alone is over the cap, or for which no staging is left, is deferred with a reason.
    """
    made: list[Batch] = []
    deferred: list[tuple[str, str]] = []
    left = staging_bytes
    for row in rows:
        if row["fetch_bytes"] > cap_bytes:
            deferred.append((row["request"], "LINK_WINDOW"))
            continue
        if row["staging_bytes"] > left:
            deferred.append((row["request"], "STAGING"))
            continue
        left -= row["staging_bytes"]
        key = batch_key(row, buckets)
        batch = next((one for one in reversed(made) if one.key == key), None)
        if batch is None or batch.fetch_bytes + row["fetch_bytes"] > cap_bytes:
            batch = Batch(key, [])
            made.append(batch)
        batch.requests.append(row["request"])
        batch.fetch_bytes += row["fetch_bytes"]
        batch.staging_bytes += row["staging_bytes"]
    return made, deferred
