"""Quest: the extrema of pages bound every row's score, and pages are read by their bounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from array_api_compat import array_namespace, device

from ..errors import Refusal
from .rows import (
    Array,
    History,
    attend,
    best,
    check_ascending,
    check_map,
    in_query_order,
    integers,
    query_groups,
    take_rows,
    working,
)

PAPER, CODE, KERNEL, HARNESS = "quest/paper", "quest/code", "quest/kernel", "quest/harness"
RULES = (PAPER, CODE, KERNEL, HARNESS)


PAGES_PER_BLOCK = 1 << 10
"""Pages of a block of :class:`PackedExtrema`, of which the half that a query reads fits a core's own cache."""


@dataclass(frozen=True)
class Policy:
    """How pages are chosen; see the chapter for each rule."""

    rule: str
    scope: str
    """``query-head`` or ``kv-head``: whose pages a list holds."""
    last_page: str = "ranked"
    budget_pages: int = 0
    budget_tokens: int = 0
    page_rows: int = 0
    layer: int = 0
    dense_layers: int = 0


class Quest:
    """The steps of Quest (article 05J to 05M)."""

    def metadata(self, k: Array, page_rows: int) -> tuple[Array, Array]:
        """Least and greatest value of each channel in each page, [P, H_kv, d], of keys [T, H_kv, d]."""
        if k.ndim != 3:
            raise Refusal("SHAPE_MISMATCH", f"keys of shape {tuple(k.shape)}")
        xp = array_namespace(k)
        whole = k.shape[0] // page_rows
        pages = xp.reshape(k[: whole * page_rows, ...], (whole, page_rows, *k.shape[1:]))
        # An empty axis has no extremum, not even where there are no pages.
        low = [xp.min(pages, axis=1)] if whole else []
        high = [xp.max(pages, axis=1)] if whole else []
        rest = k[whole * page_rows :, ...]
        if rest.shape[0]:
            low.append(xp.min(rest, axis=0, keepdims=True))
            high.append(xp.max(rest, axis=0, keepdims=True))
        nothing = k[:0, ...]
        return (xp.concat(low), xp.concat(high)) if low else (nothing, nothing)

    def append(self, minimum: Array, maximum: Array, rows: int, page_rows: int, k: Array) -> tuple[Array, Array, int]:
        """Metadata of all pages that hold rows after the keys [n, H_kv, d] are appended; raises :class:`Refusal`."""
        if not minimum.dtype == maximum.dtype == k.dtype:
            raise Refusal("DTYPE_MISMATCH", f"{minimum.dtype}, {maximum.dtype} and {k.dtype}")
        if minimum.shape != maximum.shape or k.ndim != 3 or minimum.shape[1:] != k.shape[1:]:
            raise Refusal("SHAPE_MISMATCH", f"metadata {tuple(minimum.shape)} and keys {tuple(k.shape)}")
        if minimum.shape[0] * page_rows < rows:
            raise Refusal("METADATA_BEHIND_COMMIT", f"{minimum.shape[0]} pages for {rows} rows")
        xp = array_namespace(k)
        used = -(-rows // page_rows)
        low, high = minimum[:used, ...], maximum[:used, ...]
        room = min(used * page_rows - rows, int(k.shape[0]))
        if room:
            first = k[:room, ...]
            low = xp.concat([low[:-1, ...], xp.minimum(low[-1:, ...], xp.min(first, axis=0, keepdims=True))])
            high = xp.concat([high[:-1, ...], xp.maximum(high[-1:, ...], xp.max(first, axis=0, keepdims=True))])
        new_low, new_high = self.metadata(k[room:, ...], page_rows)
        return xp.concat([low, new_low]), xp.concat([high, new_high]), rows + int(k.shape[0])

    def bounds(self, q: Array, minimum: Array, maximum: Array, kv_head_of: Sequence[int], accumulate: str) -> Array:
        """Bound of each page for each query head, unscaled, [H_q, P]; raises :class:`Refusal`.

        max(q m, q M) is q M where q is positive and q m where it is negative, so that the sum over channels is two
        matrix products that read every extremum once.
        """
        if not q.dtype == minimum.dtype == maximum.dtype:
            raise Refusal("DTYPE_MISMATCH", f"{q.dtype}, {minimum.dtype} and {maximum.dtype}")
        if q.ndim != 2 or minimum.ndim != 3 or minimum.shape != maximum.shape or q.shape[1] != minimum.shape[2]:
            raise Refusal("SHAPE_MISMATCH", f"q {tuple(q.shape)} and metadata {tuple(minimum.shape)}")
        check_map(kv_head_of, q.shape[0], minimum.shape[1])
        found, order = [], []
        for head, group in enumerate(query_groups(kv_head_of, int(minimum.shape[1]))):
            if group:
                queries = working(take_rows(q, group), accumulate)
                low, high = (working(side[:, head, :], accumulate) for side in (minimum, maximum))
                found.append(self.group_bounds(queries, low, high))
                order += group
        return in_query_order(found, order)

    def group_bounds(self, queries: Array, low: Array, high: Array) -> Array:
        """Bounds [n, P] of one K/V head's pages [P, d] for the queries [n, d] that read it."""
        xp = array_namespace(queries)
        nothing = xp.zeros_like(queries)
        up, down = xp.maximum(queries, nothing), xp.minimum(queries, nothing)
        return (high @ up.T).T + (low @ down.T).T

    def check_extrema(self, minimum: Array, maximum: Array) -> None:
        """Refuse metadata in which a minimum lies above its maximum."""
        xp = array_namespace(minimum)
        if bool(xp.any(minimum > maximum)):
            raise Refusal("EXTREMA_CROSSED")

    def score(self, q: Array, minimum: Array, maximum: Array, kv_head_of: Sequence[int], accumulate: str) -> Array:
        """Bounds from given metadata; raises :class:`Refusal`."""
        found = self.bounds(q, minimum, maximum, kv_head_of, accumulate)
        self.check_extrema(minimum, maximum)
        return found

    def budget(self, policy: Policy, pages: int) -> int:
        """Pages to read, of all there are."""
        if policy.rule == HARNESS:
            return min(max(3, policy.budget_tokens // policy.page_rows), pages)
        return min(policy.budget_pages, pages)

    def reserves(self, policy: Policy) -> bool:
        """Whether the last page is left out of the ranking and always read."""
        return policy.rule in (CODE, KERNEL) or (policy.rule == PAPER and policy.last_page == "reserved")

    def ranking(self, policy: Policy, bounds: Array) -> Array:
        """What is ranked: the bounds, or what a kernel makes of them."""
        if policy.rule != KERNEL:
            return bounds
        xp = array_namespace(bounds)
        if hasattr(xp, "float16"):
            return xp.astype(xp.astype(bounds, xp.float16), bounds.dtype)
        rounded = np.asarray(bounds).astype(np.float16).astype(np.float64)
        return xp.astype(xp.asarray(rounded, device=device(bounds)), bounds.dtype)

    def of_list(self, bounds: Array, readers: Sequence[int]) -> Array:
        """Bound of each page for a list that several query heads share: the largest of theirs, [P]."""
        return array_namespace(bounds).max(take_rows(bounds, readers), axis=0)

    def choose(self, bounds: Array, count: int, reserve: bool) -> Array:
        """The best pages of a row [P], ascending; the last one among them where it is reserved."""
        xp = array_namespace(bounds)
        last = int(bounds.shape[0]) - 1
        if not reserve:
            return best(bounds, count)
        return xp.concat([best(bounds[:last], count - 1), integers(bounds, [last])])

    def select(self, policy: Policy, bounds: Array, kv_head_of: Sequence[int], heads: int) -> list[Array]:
        """Pages of each list, ascending; raises :class:`Refusal`."""
        check_map(kv_head_of, int(bounds.shape[0]), heads)
        groups, pages = query_groups(kv_head_of, heads), int(bounds.shape[1])
        if policy.rule == KERNEL:
            if any(len(group) > 1 for group in groups):
                raise Refusal("GROUPED_HEADS_UNSUPPORTED", policy.rule)
            if pages < 2:
                raise Refusal("TOO_FEW_PAGES", f"{pages} pages")
        count = self.budget(policy, pages)
        readers = groups if policy.scope == "kv-head" else [[query] for query in range(len(kv_head_of))]
        ranks = self.ranking(policy, bounds)
        found = []
        for members in readers:
            if not members:
                found.append(integers(bounds, []))
            elif count >= pages:
                found.append(integers(bounds, range(pages)))
            else:
                found.append(self.choose(self.of_list(ranks, members), count, self.reserves(policy)))
        return found

    def rows_of(self, pages: Array, page_rows: int, rows: int) -> Array:
        """Positions in these pages, ascending; the last page may not be full."""
        xp = array_namespace(pages)
        within = xp.arange(page_rows, dtype=xp.int64, device=device(pages))
        positions = xp.reshape(pages[:, None] * page_rows + within[None, :], (-1,))
        return positions[: int(xp.sum(xp.astype(positions < rows, xp.int64)))]

    def gather(
        self, history: History, scale: float, page_rows: int, scope: str, pages: Sequence[Array]
    ) -> tuple[Array, Array]:
        """Output and LSE over the rows of the pages of each list."""
        positions = [self.rows_of(found, page_rows, history.rows) for found in pages]
        if scope == "kv-head":
            return attend(history, scale, list(zip(history.groups, range(history.heads), positions, strict=True)))
        supports = [([query], head, positions[query]) for query, head in enumerate(history.kv_head_of)]
        return attend(history, scale, supports)

    def attend(
        self, history: History, scale: float, page_rows: int, scope: str, pages: Sequence[Array]
    ) -> tuple[Array, Array]:
        """The same for given pages; raises :class:`Refusal`."""
        history.checked()
        if len(pages) != (history.heads if scope == "kv-head" else len(history.kv_head_of)):
            raise Refusal("SHAPE_MISMATCH", "one list of pages for each of the scope")
        for found in pages:
            check_ascending(found, -(-history.rows // page_rows), "PAGE_OUT_OF_RANGE")
        return self.gather(history, scale, page_rows, scope, pages)

    def decode(self, policy: Policy, history: History, scale: float) -> tuple[list[Array], Array, Array]:
        """Pages, output and LSE; raises :class:`Refusal`."""
        history.checked()
        low, high = self.metadata(history.k, policy.page_rows)
        bounds = self.bounds(history.q, low, high, history.kv_head_of, history.accumulate)
        if self.is_dense(policy):
            readers = (
                history.groups if policy.scope == "kv-head" else [[query] for query in range(len(history.kv_head_of))]
            )
            pages = [integers(bounds, range(int(bounds.shape[1]) if members else 0)) for members in readers]
        else:
            pages = self.select(policy, bounds, history.kv_head_of, history.heads)
        return pages, *self.gather(history, scale, policy.page_rows, policy.scope, pages)

    def is_dense(self, policy: Policy) -> bool:
        """Whether the layer reads all pages."""
        return policy.layer < policy.dense_layers

    def traffic(self, history_rows: int, width: int, page_rows: int, budget_pages: int) -> dict[str, Any]:
        """Scalars that one head reads."""
        pages = -(-history_rows // page_rows)
        dense, metadata = 2 * history_rows * width, 2 * pages * width
        selected = 2 * min(budget_pages * page_rows, history_rows) * width
        return {
            "dense_scalars": dense,
            "metadata_scalars": metadata,
            "selected_scalars": selected,
            "fraction": (metadata + selected) / dense,
            "largest_budget_pages": max(0, (history_rows - pages - 1) // page_rows),
        }


class PackedExtrema:
    """Extrema of one K/V head's pages by channel, for many queries over the same pages.

    max(q m, q M) is q times one of the two, and the sign of q says which. Where the values of a channel lie side by
    side, a query reads d of the 2 d rows of each block and never touches the other half.
    """

    def __init__(self, low: Array, high: Array) -> None:
        """``low`` and ``high`` [P, d], which are copied."""
        xp = array_namespace(low, high)
        self.pages, self.channels = map(int, low.shape)
        width = min(PAGES_PER_BLOCK, max(1, self.pages))
        empty = xp.zeros((-self.pages % width, self.channels), dtype=low.dtype, device=device(low))
        sides = [xp.reshape(xp.concat([side, empty]), (-1, width, self.channels)) for side in (low, high)]
        # Two axes made one need rows in their new order, so that this is where they are moved.
        moved = [xp.reshape(xp.permute_dims(side, (0, 2, 1)), (-1, self.channels * width)) for side in sides]
        self.blocks = xp.reshape(xp.concat(moved, axis=1), (-1, 2 * self.channels, width))
        """[P / n, 2 d, n] with n pages a block: the least values of all channels, then the greatest."""

    def bounds(self, query: Array) -> Array:
        """Bound of each page [P] for one query head [d], unscaled, as :meth:`Quest.bounds`."""
        xp = array_namespace(query)
        channels = xp.arange(self.channels, dtype=xp.int64, device=device(query))
        read = xp.where(query > 0, channels + self.channels, channels)
        found = [xp.matmul(query, xp.take(self.blocks[i, ...], read, axis=0)) for i in range(self.blocks.shape[0])]
        return xp.concat(found)[: self.pages] if found else query[:0]
