"""SparQ: channels by the query's magnitude, rows by a proxy over them, and a mean value for what is left out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from array_api_compat import array_namespace, device

from ..errors import Refusal
from .rows import Array, History, attend, best, check_ascending, in_query_order, integers, softmax, take_rows, working

PAPER, CODE, BENCHMARK, LLAMA = "sparq/paper", "sparq/code", "sparq/benchmark", "sparq/llama-cpp"
RULES = (PAPER, CODE, BENCHMARK, LLAMA)


@dataclass(frozen=True)
class Budget:
    """What a rule makes of the settings: channels to read, rows to keep, newest rows that are forced."""

    channels: int
    rows: int
    local: int


@dataclass(frozen=True)
class Selection:
    """What was chosen, and by what."""

    channels: list[Array]
    """Of each K/V head, ascending."""
    temperature: Array
    """Divisor of the products, [H_q]."""
    proxy: Array
    """Softmax of the logits, [H_q, T]."""
    positions: list[Array]
    """Of each K/V head, ascending."""
    mass: Array
    """Proxy mass of the selection, [H_q]."""


class Sparq:
    """The steps of SparQ (article 05E to 05I)."""

    def budget(self, rule: str, history: History, channels: int, rows: int, local: int) -> Budget:
        """The settings under a rule; raises :class:`Refusal` where they are not legal."""
        width = int(history.k.shape[2])
        if rule in (BENCHMARK, LLAMA) and any(len(group) > 1 for group in history.groups):
            raise Refusal("GROUPED_HEADS_UNSUPPORTED", rule)
        if rule == LLAMA:
            if channels == rows == 0:
                return Budget(width, history.rows, 0)
            return Budget(min(channels, width), min(rows, history.rows), 0)
        if not 1 <= channels <= width:
            raise Refusal("CHANNELS_OUT_OF_RANGE", f"{channels} of {width}")
        if rows < 1:
            raise Refusal("SELECTION_BUDGET_EMPTY")
        if local > rows:
            raise Refusal("LOCAL_WINDOW_EXCEEDS_BUDGET", f"{local} of {rows}")
        return Budget(channels, rows + 1, local + 1) if rule == CODE else Budget(channels, rows, local)

    def channels(self, queries: Array, count: int) -> Array:
        """Channels of the largest summed magnitude over a group of queries [n, d], ascending."""
        xp = array_namespace(queries)
        return best(xp.sum(xp.abs(queries), axis=0), count)

    def coverage(self, queries: Array, channels: Array) -> Array:
        """Share of each query's L1 norm that the channels hold, [n]; 1 for a query of zeros."""
        xp = array_namespace(queries)
        size = xp.abs(queries)
        whole = xp.sum(size, axis=1)
        chosen = xp.sum(xp.take(size, channels, axis=1), axis=1)
        return xp.where(whole > 0, chosen / xp.where(whole > 0, whole, xp.ones_like(whole)), xp.ones_like(whole))

    def temperature(self, rule: str, queries: Array, channels: Array) -> Array:
        """Divisor of the products, [n]."""
        xp = array_namespace(queries)
        covered = self.coverage(queries, channels)
        return xp.ones_like(covered) if rule == LLAMA else xp.sqrt(queries.shape[1] * covered)

    def logits(self, queries: Array, keys: Array, channels: Array, temperature: Array) -> Array:
        """Products over the channels, divided, [n, T]; 0 where the channels hold nothing of the query."""
        xp = array_namespace(queries)
        part = xp.take(queries, channels, axis=1)
        products = (xp.take(keys, channels, axis=1) @ part.T).T
        some = temperature > 0
        divisor = xp.where(some, temperature, xp.ones_like(temperature))[:, None]
        return xp.where(some[:, None], products / divisor, xp.zeros_like(products))

    def hide(self, logits: Array, legal: Array) -> Array:
        """Logits [n, T] without the rows that the query may not see."""
        xp = array_namespace(logits)
        return xp.where(legal[None, :], logits, xp.full_like(logits, -math.inf))

    def proxy(self, logits: Array) -> Array:
        """Softmax over the legal rows, [n, T]."""
        return softmax(logits)

    def rank(self, rule: str, logits: Array, proxy: Array) -> Array:
        """What the rows of one K/V head are ranked by, from the logits and proxies of its group [n, T]."""
        return array_namespace(proxy).sum(proxy if rule == PAPER else logits, axis=0)

    def window(self, history: History, local: int) -> Array:
        """For each row whether it is forced, [T]: the newest positions, as far as they are legal."""
        xp = array_namespace(history.k)
        positions = xp.arange(history.rows, dtype=xp.int64, device=device(history.k))
        return (positions >= history.rows - local) & history.legal

    def choose(self, scores: Array, legal: Array, forced: Array, count: int) -> Array:
        """Forced rows and then the best legal ones, ``count`` in all, ascending."""
        xp = array_namespace(scores)
        wanted = min(count, int(xp.sum(xp.astype(legal, xp.int64))))
        ranked = xp.where(forced, xp.full_like(scores, math.inf), scores)
        ranked = xp.where(legal, ranked, xp.full_like(scores, -math.inf))
        return best(ranked, max(wanted, int(xp.sum(xp.astype(forced, xp.int64)))))

    def select(self, rule: str, history: History, channels: int, rows: int, local: int) -> Selection:
        """Channels, proxies and rows; raises :class:`Refusal`."""
        history.checked()
        budget = self.budget(rule, history, channels, rows, local)
        legal, forced = history.legal, self.window(history, budget.local)
        chosen, positions, temperatures, proxies, masses, order = [], [], [], [], [], []
        for head, group in enumerate(history.groups):
            if not group:
                chosen.append(integers(history.k, []))
                positions.append(integers(history.k, []))
                continue
            queries = history.query(group)
            picked = self.channels(queries, budget.channels)
            temperature = self.temperature(rule, queries, picked)
            logits = self.logits(queries, history.keys(head), picked, temperature)
            logits = self.hide(logits, legal)
            proxy = self.proxy(logits)
            found = self.choose(self.rank(rule, logits, proxy), legal, forced, budget.rows)
            chosen.append(picked)
            positions.append(found)
            temperatures.append(temperature)
            proxies.append(proxy)
            masses.append(self.mass(proxy, found))
            order += group
        temperature, proxy, mass = (in_query_order(parts, order) for parts in (temperatures, proxies, masses))
        return Selection(chosen, temperature, proxy, positions, mass)

    def mass(self, proxy: Array, positions: Array) -> Array:
        """Share of each proxy [n, T] that the positions hold, [n]; rounding does not take it beyond 1."""
        xp = array_namespace(proxy)
        kept = xp.sum(xp.take(proxy, positions, axis=1), axis=1)
        return xp.where(kept > 1, xp.ones_like(kept), kept)

    def gather(self, history: History, scale: float, positions: Sequence[Array]) -> tuple[Array, Array]:
        """Attention with all channels over the rows of each K/V head."""
        return attend(history, scale, list(zip(history.groups, range(history.heads), positions, strict=True)))

    def check_positions(self, history: History, positions: Sequence[Array]) -> None:
        """Refuse positions that are out of range, out of order or hidden."""
        if len(positions) != history.heads:
            raise Refusal("SHAPE_MISMATCH", "one list of positions a K/V head")
        xp = array_namespace(history.k)
        for found in positions:
            check_ascending(found, history.rows)
            if not bool(xp.all(xp.take(history.legal, found, axis=0))):
                raise Refusal("CANDIDATE_HIDDEN")

    def mix(self, out: Array, mass: Array, mean: Array, kv_head_of: Sequence[int]) -> Array:
        """The sparse output [H_q, d_v] and the mean value of each K/V head, by the mass of the selection."""
        share = mass[:, None]
        return share * out + (1 - share) * take_rows(mean, kv_head_of)

    def attend(
        self, history: History, scale: float, positions: Sequence[Array], mass: Array | None, mean: Array | None
    ) -> tuple[Array, Array]:
        """Output and LSE over given positions, mixed where mass and mean are given; raises :class:`Refusal`."""
        history.checked()
        self.check_positions(history, positions)
        out, lse = self.gather(history, scale, positions)
        if mass is None or mean is None:
            return out, lse
        assert history.v is not None
        if mass.shape != history.q.shape[:1] or mean.shape != history.v.shape[1:]:
            raise Refusal("SHAPE_MISMATCH", f"mass {tuple(mass.shape)} and mean {tuple(mean.shape)}")
        xp = array_namespace(mass)
        if not bool(xp.all((mass >= 0) & (mass <= 1))):
            raise Refusal("MASS_OUT_OF_RANGE")
        mass, mean = working(mass, history.accumulate), working(mean, history.accumulate)
        return self.mix(out, mass, mean, history.kv_head_of), lse

    def mean_value(self, history: History) -> Array:
        """Mean over all legal rows, [H_kv, d_v]."""
        assert history.v is not None
        xp = array_namespace(history.v)
        legal = xp.nonzero(history.legal)[0]
        return xp.mean(xp.take(working(history.v, history.accumulate), legal, axis=0), axis=0)

    def decode(
        self, rule: str, history: History, scale: float, channels: int, rows: int, local: int, correct: bool
    ) -> tuple[Selection, Array, Array]:
        """Selection, output and LSE; raises :class:`Refusal`."""
        found = self.select(rule, history, channels, rows, local)
        out, lse = self.gather(history, scale, found.positions)
        if correct and rule != LLAMA:
            out = self.mix(out, found.mass, self.mean_value(history), history.kv_head_of)
        return found, out, lse

    def running_mean(self, mean: Array, rows: int, values: Array, accumulate: str = "float32") -> tuple[Array, int]:
        """The mean [H_kv, d_v] of ``rows`` rows after the values [n, H_kv, d_v], and how many rows it is over."""
        if values.ndim != 3 or mean.shape != values.shape[1:]:
            raise Refusal("SHAPE_MISMATCH", f"mean {tuple(mean.shape)} and values {tuple(values.shape)}")
        xp = array_namespace(mean, values)
        mean, values = working(mean, accumulate), working(values, accumulate)
        total = rows + int(values.shape[0])
        if total == 0:
            return xp.zeros_like(mean), 0
        before = mean * (rows / total) if rows else xp.zeros_like(mean)
        return before + xp.sum(values, axis=0) / total, total

    def traffic(self, history_rows: int, width: int, channels: int, rows: int, key_layouts: int) -> dict[str, Any]:
        """Scalars of one head; raises :class:`Refusal`."""
        if not 1 <= channels <= width:
            raise Refusal("CHANNELS_OUT_OF_RANGE", f"{channels} of {width}")
        dense = 2 * history_rows * width + 2 * width
        sparse = history_rows * channels + 2 * min(rows, history_rows) * width + 4 * width
        return {
            "dense_scalars": dense,
            "sparq_scalars": sparse,
            "ratio": sparse / dense,
            "break_even_rows": self.break_even(width, channels, rows),
            "storage_scalars": history_rows * width * (1 + key_layouts) + width,
        }

    def break_even(self, width: int, channels: int, rows: int) -> int:
        """Least T with T r + 2 k d + 4 d < 2 T d + 2 d."""
        return (2 * rows * width + 2 * width) // (2 * width - channels) + 1
