"""A ClusterKV cache over its life: prefill, open window, sealed windows, and generations that are published whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from array_api_compat import array_namespace

from ..attention import log_sum_exp, output
from . import losses
from .clusters import Index, Selected, appended, build, index_of, select
from .rows import Array, check_axes, check_heads, check_history, require

PARTS = frozenset({"centroids", "sizes", "prefix_sums", "members", "authority", "map"})
"""What a publication consists of: a query that meets some of it new and some of it old reads the wrong rows."""


@dataclass(frozen=True)
class Settings:
    """What a cache is told when it is opened."""

    kv_head_of: Sequence[int]
    scale: float
    sink_rows: int
    initial: Sequence[int]
    """Positions whose keys begin the clusters of the prompt."""
    iterations: int
    window_rows: int
    window_initial: Sequence[int]
    """Rows of a window, counted from its first, whose keys begin its clusters."""
    cache_generation: int


class Answer(NamedTuple):
    """Rows and attention of one query."""

    generation: int
    selected: Selected
    supports: list[list[int]]
    """By K/V head: sink rows, selected rows, and rows that no published cluster holds."""
    out: Array
    lse: Array


class Session:
    """One cache. Rows are visible when they come; clusters of a window when their generation is published."""

    def __init__(self, k: Array, v: Array, settings: Settings) -> None:
        check_history(k, v)
        rows, sink, window = k.shape[0], settings.sink_rows, settings.window_rows
        require(sink < rows, "SHAPE_MISMATCH", "nothing is left for clusters")
        known = all(sink <= row < rows for row in settings.initial)
        require(known and all(row < window for row in settings.window_initial), "INITIAL_ROW_UNKNOWN")
        self.k, self.v, self.settings = k, v, settings
        self.covered = rows
        """First row that no published cluster holds."""
        self.authority_end = rows
        """First row without a valid full copy below the GPU."""
        self.index = self.clusters(sink, rows, [row - sink for row in settings.initial])
        self.staged: Index | None = None

    def clusters(self, first: int, end: int, initial: Sequence[int]) -> Index:
        """Clusters of a span of rows."""
        return index_of(build(self.k[first:end, ...], initial, self.settings.iterations), first)

    @property
    def rows(self) -> int:
        """Committed rows."""
        return int(self.k.shape[0])

    @property
    def window_end(self) -> int:
        """Where the oldest window that is not published ends."""
        return int(self.covered + self.settings.window_rows)

    @property
    def sealed_windows(self) -> int:
        """Whole windows that are not published."""
        return int((self.rows - self.covered) // self.settings.window_rows)

    def decode(self, k: Array, v: Array) -> None:
        """Append rows, which are read directly from now on."""
        check_history(k, v)
        alike = k.shape[1:] == self.k.shape[1:] and v.shape[1:] == self.v.shape[1:]
        require(alike, "SHAPE_MISMATCH", "rows of other heads or channels")
        xp = array_namespace(self.k)
        self.k = xp.concat([self.k, xp.astype(k, self.k.dtype)])
        self.v = xp.concat([self.v, xp.astype(v, self.v.dtype)])

    def stage(self) -> None:
        """Cluster the oldest sealed window beside what is published."""
        require(self.staged is None, "PUBLICATION_IN_FLIGHT", "one generation is staged already")
        require(self.window_end <= self.rows, "WINDOW_NOT_SEALED", "the window is open")
        fresh = self.clusters(self.covered, self.window_end, self.settings.window_initial)
        self.staged = appended(self.index, fresh)

    def offload(self, end: int, cache_generation: int) -> None:
        """Full rows before ``end`` are valid below the GPU."""
        require(cache_generation == self.settings.cache_generation, "STALE_CACHE_GENERATION")
        require(end <= self.rows, "SUPPORT_BEYOND_COMMIT", f"{end} of {self.rows} rows")
        self.authority_end = max(self.authority_end, end)

    def named(self, generation: int) -> Index:
        """The staged generation, if it has this number."""
        if self.staged is None:
            require(False, "NOTHING_STAGED")
        assert self.staged is not None
        require(generation == self.staged.generation, "STALE_INDEX_GENERATION", f"{self.staged.generation} is staged")
        return self.staged

    def complete(self, parts: Sequence[str]) -> bool:
        """Whether these are all parts of a publication."""
        return frozenset(parts) == PARTS and len(parts) == len(PARTS)

    def publish(self, generation: int, parts: Sequence[str]) -> None:
        """Put the staged generation in the place of the published one, whole or not at all."""
        staged = self.named(generation)
        require(self.complete(parts), "PARTIAL_PUBLICATION", f"{sorted(PARTS - set(parts))} are not built")
        require(self.authority_end >= self.window_end, "AUTHORITY_BEHIND", "full rows are not offloaded yet")
        self.covered = self.window_end
        self.index, self.staged = staged, None

    def discard(self, generation: int) -> None:
        """Give the staged generation up."""
        self.named(generation)
        self.staged = None

    def pick(self, q: Array, budget: int) -> Selected:
        """Rows of the published clusters."""
        return select(q, self.index, self.settings.kv_head_of, budget)

    def direct(self) -> range:
        """Rows that are read without clusters."""
        return range(self.covered, self.rows)

    def query(self, q: Array, generation: int, budget: int) -> Answer:
        """Select and attend in the generation that the caller names, which must be the published one."""
        require(generation == self.index.generation, "STALE_INDEX_GENERATION", f"{self.index.generation} is published")
        check_axes(q, 2, self.k, "q")
        check_heads(self.settings.kv_head_of, q.shape[0], self.k.shape[1])
        selected = self.pick(q, budget)
        supports = [[*range(self.settings.sink_rows), *rows, *self.direct()] for rows in selected.rows]
        xp = array_namespace(q, self.k)
        heads, scale = self.settings.kv_head_of, self.settings.scale
        states = [losses.over(q, self.k, self.v, heads, scale, support) for support in supports]
        outs = [output(states[owner])[head : head + 1, :] for head, owner in enumerate(heads)]
        masses = [log_sum_exp(states[owner])[head : head + 1] for head, owner in enumerate(heads)]
        return Answer(self.index.generation, selected, supports, xp.concat(outs), xp.concat(masses))
