"""What saving, restoring, swapping and recomputing cost: the plans of the contract lifecycle.

Decimals are taken as they are written (``0.1`` is a tenth), so that a floor falls where a reader of the request expects
it; results are floats. Sizes are bytes, durations milliseconds, bandwidths GiB a second.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from .errors import Refusal

GIB, MIB = 2**30, 2**20
Number = int | float
Exact = Fraction


def exact(number: Number) -> Exact:
    """The number as it is written in decimals."""
    return Fraction(str(number))


@dataclass(frozen=True)
class Link:
    """One direction of a copy path."""

    gib_per_s: Exact
    fixed_ms: Exact

    @staticmethod
    def read(link: Mapping[str, Number]) -> Link:
        """From a request."""
        return Link(exact(link["gib_per_s"]), exact(link["fixed_ms"]))

    @property
    def bytes_per_ms(self) -> Exact:
        """Sustained bandwidth."""
        return self.gib_per_s * GIB / 1000

    def service_ms(self, size: int) -> Exact:
        """Time of one copy: M / BW + tau."""
        return size / self.bytes_per_ms + self.fixed_ms


# --- completed turns -----------------------------------------------------------------------------------------------


def preload(arrivals: Sequence[Exact], computes: Sequence[Exact], slots: int | None) -> tuple[list[Exact], list[Exact]]:
    """When each layer has arrived and when it has been computed, from time 0.

    One copy engine fetches layer by layer; with ``slots`` read buffers it waits until a layer that far back was
    computed. A layer is computed after its rows have arrived and the layer before it is done.
    """
    ready: list[Exact] = []
    done: list[Exact] = []
    copy_free = compute_free = Fraction(0)
    for layer, (arrival, compute) in enumerate(zip(arrivals, computes, strict=True)):
        buffer_free = done[layer - slots] if slots is not None and layer >= slots else Fraction(0)
        copy_free = max(copy_free, buffer_free) + arrival
        compute_free = max(compute_free, copy_free) + compute
        ready.append(copy_free)
        done.append(compute_free)
    return ready, done


def buffer_bytes(link: Link, load_ms: Exact, prefill_ms: Exact) -> Exact:
    """Read buffer that covers the gap where loading outruns the prefill: B max(0, T_load L_hist - T_pref L_new)."""
    return link.bytes_per_ms * max(Fraction(0), load_ms - prefill_ms)


def work(per_token: Exact, tokens: Iterable[int]) -> Exact:
    """Model work of a prefill over these tokens."""
    return per_token * sum(tokens)


def save(costs: Sequence[Exact], closed: Sequence[Exact]) -> list[Exact]:
    """When each layer has been saved: one copy engine, in layer order, each layer after its read leases closed."""
    ends = []
    free = Fraction(0)
    for cost, lease in zip(costs, closed, strict=True):
        free = max(free, lease) + cost
        ends.append(free)
    return ends


def visible_ms(ends: Sequence[Exact], window: Exact, slots: int) -> Exact:
    """How long a request holds its rows beyond the window: until what is unfinished fits the write slots."""
    waited_for = ends[: max(0, len(ends) - slots)]
    return max([Fraction(0), *(end - window for end in waited_for)])


@dataclass(frozen=True)
class Weights:
    """Prices of a unit of visible time, of device time, of a MiB moved, and of a MiB held for a unit of time."""

    time: Exact
    gpu: Exact
    transfer_mib: Exact
    hold_mib: Exact


def persist_cost(
    w: Weights, p: Exact, size: int, idle: Exact, resume: Exact, suffix_gpu: Exact, save_visible: Exact
) -> Exact:
    """J_persist: save and hold now, and with probability p load and prefill the suffix later."""
    mib = Fraction(size, MIB)
    later = w.time * resume + w.gpu * suffix_gpu + w.transfer_mib * mib
    return p * later + w.time * save_visible + w.transfer_mib * mib + w.hold_mib * mib * idle


def discard_cost(w: Weights, p: Exact, full: Exact, full_gpu: Exact) -> Exact:
    """J_discard: with probability p compute everything again."""
    return p * (w.time * full + w.gpu * full_gpu)


def admitted(queue: Iterable[Mapping[str, str | int]], room: int) -> list[str]:
    """The longest prefix of the queue whose bytes fit; nobody overtakes a session that does not."""
    names: list[str] = []
    for job in queue:
        room -= int(job["bytes"])
        if room < 0:
            break
        names.append(str(job["session"]))
    return names


# --- interrupted requests -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Interrupted:
    """One request that waits for a call, with its measured times."""

    id: str
    context: int
    chunks: int
    forward_ms: Exact
    chunk_forward_ms: Exact
    swap_ms: Exact
    """One direction."""
    pause_ms: Exact
    estimated: bool


@dataclass(frozen=True)
class Waste:
    """Byte-milliseconds that the ways of waiting strand for one request among ``other`` running tokens."""

    request: Interrupted
    other: int
    token_bytes: int

    @property
    def discard(self) -> Exact:
        """T_fwd(C) (C + C_other) M."""
        r = self.request
        return r.forward_ms * (r.context + self.other) * self.token_bytes

    @property
    def preserve(self) -> Exact:
        """T_INT C M."""
        return self.request.pause_ms * self.request.context * self.token_bytes

    @property
    def swap(self) -> Exact:
        """2 T_swap(C) C_batch M, with C_batch = C + C_other."""
        r = self.request
        return 2 * r.swap_ms * (r.context + self.other) * self.token_bytes

    @property
    def chunked_discard(self) -> Exact:
        """T_fwd(C) C M / 2 + n T_fwd(C / n) C_other M."""
        r = self.request
        own = r.forward_ms * r.context * self.token_bytes / 2
        return own + r.chunks * r.chunk_forward_ms * self.other * self.token_bytes

    @property
    def crossing_ms(self) -> Exact:
        """The pause beyond which chunked recomputation strands less than preserving."""
        return self.chunked_discard / (self.request.context * self.token_bytes)

    @property
    def potential(self) -> Exact:
        """What is stranded if there is no swap."""
        return min(self.preserve, self.chunked_discard)

    @property
    def fallback(self) -> str:
        """What is done without a swap."""
        return "preserve" if self.preserve <= self.chunked_discard else "discard"

    @property
    def worth_swapping(self) -> bool:
        """Whether the pause outlasts the way out and back."""
        return self.request.pause_ms > 2 * self.request.swap_ms


def by_waste(wastes: Sequence[Waste]) -> list[Waste]:
    """The largest potential waste first, ties in the order of the request."""
    return sorted(wastes, key=lambda waste: waste.potential, reverse=True)


def swaps(ordered: Iterable[Waste], budget: int, host_free: int) -> dict[str, int]:
    """Tokens that this iteration swaps out of each chosen request; a request needs host room for all of its context."""
    chosen: dict[str, int] = {}
    for waste in ordered:
        size = waste.request.context * waste.token_bytes
        if waste.worth_swapping and budget > 0 and size <= host_free:
            chosen[waste.request.id] = tokens = min(budget, waste.request.context)
            budget -= tokens
            host_free -= size
    return chosen


def swap_limit(link: Link, foreground_ms: Exact, token_bytes: int) -> int:
    """N_i: the most tokens whose swap hides under the foreground's forward pass."""
    return int(max(Fraction(0), foreground_ms - link.fixed_ms) * link.bytes_per_ms // token_bytes)


def pieces(context: int, most: int) -> list[int]:
    """A context cut into pieces of at most ``most`` tokens, none where none fits."""
    if most <= 0:
        return []
    whole, rest = divmod(context, most)
    return [most] * whole + [rest] * (rest > 0)


def demand_unique(names: Sequence[str]) -> None:
    """Raise :class:`Refusal` for a name given twice."""
    if len(set(names)) != len(names):
        raise Refusal("REQUEST_TWICE", "an id stands twice")
