"""PQCache: product-quantised keys as a search structure; attention reads the full rows.

Centroids are [H_kv, m, C, d_m] and codes [H_kv, n, m] of the rows from ``first_row`` on. Sources: 07F to 07F5.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from array_api_compat import array_namespace, device, is_numpy_array

from .rows import (
    Array,
    check_heads,
    groups_of,
    member_means,
    nearest,
    need,
    softmax,
    squared_distances,
    top,
)

PAPER, AUGMENTED = "pqcache/paper", "pqcache/ip"
LIKELY = 64
"""A search looks first at the pairs of codes in this part of all pairs, those with the largest sums."""


class Codebook(NamedTuple):
    """One K/V head's centroids."""

    centroids: Array
    """[m, C, d_m]"""

    @property
    def channels(self) -> int:
        """Channels of a key, those that a rule adds included."""
        return int(self.centroids.shape[0] * self.centroids.shape[2])

    def encode(self, keys: Array) -> Array:
        """Codes [n, m] of keys [n, d]: the nearest centroid of each subspace, in float64."""
        xp = array_namespace(keys, self.centroids)
        parts = split(xp.astype(keys, xp.float64), self.centroids.shape[0])
        centroids = xp.astype(self.centroids, xp.float64)
        columns = [nearest(parts[:, j, :], centroids[j, ...]) for j in range(centroids.shape[0])]
        return xp.stack(columns, axis=1)


def split(rows: Array, parts: int) -> Array:
    """[n, m, d / m] from [n, d]."""
    need(rows.shape[-1] % parts == 0, "PQ_GEOMETRY_INVALID", f"{parts} subspaces of {rows.shape[-1]} channels")
    return array_namespace(rows).reshape(rows, (rows.shape[0], parts, rows.shape[-1] // parts))


def check_index(centroids: Array, codes: Sequence[Sequence[Sequence[int]]], channels: int) -> None:
    """Refuse centroids and codes that do not fit each other or the queries."""
    heads, parts, count, size = centroids.shape
    right = count > 0 and count & (count - 1) == 0 and parts * size == channels
    need(right, "PQ_GEOMETRY_INVALID", f"centroids of shape {tuple(centroids.shape)} for {channels} channels")
    right = len(codes) == heads and all(len(row) == parts for one in codes for row in one)
    need(right and len({len(one) for one in codes}) <= 1, "PQ_GEOMETRY_INVALID", "codes of another shape")
    legal = all(0 <= code < count for one in codes for row in one for code in row)
    need(legal, "CODE_OUT_OF_RANGE", f"codes of {count} centroids")


@dataclass(frozen=True)
class Clustering:
    """What Lloyd's rounds came to."""

    centres: Array
    labels: Array
    rounds: int
    """Rounds that moved centres."""


def cluster(points: Array, first: Sequence[int], cap: int, *, fill: bool = True) -> Clustering:
    """Lloyd's algorithm on [n, d] from the rows ``first``, in float64.

    A round assigns every row to its nearest centre, fills empty clusters, and moves centres to their means. Rounds end
    at the cap, or before one that would assign as the last did. With ``fill`` an empty cluster takes the row that is
    farthest from its own centre among those that do not stand alone; without, it keeps its centre.
    """
    xp = array_namespace(points)
    points = xp.astype(points, xp.float64)
    centres = xp.take(points, xp.asarray(list(first), dtype=xp.int64, device=device(points)), axis=0)
    before: Array | None = None
    rounds = 0
    while rounds < cap:
        labels = assign(points, centres, fill)
        if before is not None and bool(xp.all(labels == before)):
            break
        centres = means(points, labels, centres)
        before = labels
        rounds += 1
    return Clustering(centres, nearest(points, centres), rounds)


def assign(points: Array, centres: Array, fill: bool) -> Array:
    """Nearest centres, with empty clusters filled one after the other in the order of their ids."""
    xp = array_namespace(points)
    far = squared_distances(points, centres)
    labels = xp.argmin(far, axis=1)
    ids = xp.arange(centres.shape[0], dtype=labels.dtype, device=device(labels))
    rows = xp.arange(points.shape[0], device=device(labels))
    for empty in range(centres.shape[0]) if fill else ():
        sizes = xp.sum(xp.astype(labels[None, :] == ids[:, None], xp.int64), axis=1)
        if int(sizes[empty]) == 0:
            crowd = xp.take(sizes, xp.astype(labels, xp.int64)) > 1
            own = xp.sum(xp.where(labels[:, None] == ids[None, :], far, 0.0), axis=1)
            moved = rows == xp.argmax(xp.where(crowd, own, -1.0))
            labels = xp.where(moved, ids[empty], labels)
    return labels


def means(points: Array, labels: Array, centres: Array) -> Array:
    """Mean of each cluster, its centre where it has no row."""
    return member_means(points, labels, centres.shape[0], centres)


def tables(q: Array, centroids: Array) -> Array:
    """Products [m, C] of the parts of one query [d] with one head's centroids [m, C, d_m]."""
    xp = array_namespace(q, centroids)
    parts = xp.reshape(q, (centroids.shape[0], centroids.shape[2], 1))
    return xp.matmul(centroids, parts)[:, :, 0]


def distance_tables(q: Array, centroids: Array) -> Array:
    """Squared distances [m, C] of the query's parts, each with a zero more, from augmented centroids."""
    xp = array_namespace(q, centroids)
    parts = xp.reshape(q, (centroids.shape[0], 1, centroids.shape[2] - 1))
    difference = centroids[:, :, :-1] - parts
    return xp.sum(difference * difference, axis=2) + centroids[:, :, -1] ** 2


def look_up(table: Array, codes: Array) -> Array:
    """Sum [n] of the entries of ``table`` [m, C] that ``codes`` [n, m] point to."""
    xp = array_namespace(table, codes)
    parts, count = table.shape
    flat = xp.reshape(table, (parts * count,))
    found = xp.take(flat, codes[:, 0])
    for j in range(1, parts):
        found = found + xp.take(flat, codes[:, j] + j * count)
    return found


class PackedCodes:
    """Codes of many rows, packed in pairs, so that one look-up serves two subspaces.

    The table of a pair has C^2 entries; it pays for up to 256 centroids and from that many rows on. Rows stand in the
    order of their first pair, so that those of one pair are neighbours.
    """

    def __init__(self, codes: Array, count: int) -> None:
        """``codes`` [n, m] below ``count``."""
        xp = array_namespace(codes)
        codes = xp.astype(codes, xp.int64)
        self.rows, parts = codes.shape
        columns = [codes[:, j] * count + codes[:, j + 1] for j in range(0, parts - 1, 2)]
        columns += [codes[:, -1]] if parts % 2 else []
        self.ids = xp.argsort(columns[0], stable=True)
        """Row of each place."""
        sizes = count if parts == 1 else count * count
        every = xp.arange(sizes + 1, dtype=xp.int64, device=device(codes))
        self.starts = xp.searchsorted(xp.take(columns[0], self.ids), every)
        """First place of each first pair, and the end."""
        # Sixteen bits hold a pair; some libraries look up with 64-bit indices alone.
        narrow = xp.uint16 if count <= 256 and is_numpy_array(codes) else xp.int64
        self.columns = [xp.astype(xp.take(column, self.ids), narrow) for column in columns]
        """The packed codes, a column for each table of :meth:`tables`."""

    def tables(self, table: Array) -> list[Array]:
        """Tables of sums for the pairs of ``table`` [m, C], and of single entries for an odd last subspace."""
        xp = array_namespace(table)
        parts = table.shape[0]
        joined = [xp.reshape(table[j, :, None] + table[j + 1, None, :], (-1,)) for j in range(0, parts - 1, 2)]
        return [*joined, table[-1, :]] if parts % 2 else joined

    def scores(self, table: Array) -> Array:
        """Sums [n] of the look-ups in ``table`` [m, C], row by row."""
        xp = array_namespace(table)
        places = xp.arange(self.rows, dtype=xp.int64, device=device(table))
        return xp.take(self.sums(self.tables(table), places), xp.argsort(self.ids))

    def sums(self, tables: Sequence[Array], places: Array) -> Array:
        """Sums of the look-ups at some places."""
        xp = array_namespace(*tables)
        found = xp.take(tables[0], xp.take(self.columns[0], places))
        for table, column in zip(tables[1:], self.columns[1:], strict=True):
            found = found + xp.take(table, xp.take(column, places))
        return found

    def places(self, chosen: Array) -> Array:
        """Places of the rows whose first pair is among ``chosen``, a boolean for each."""
        xp = array_namespace(chosen)
        pairs = xp.nonzero(chosen)[0]
        first = xp.take(self.starts, pairs)
        sizes = xp.take(self.starts, pairs + 1) - first
        before = xp.cumulative_sum(sizes) - sizes
        return xp.repeat(first - before, sizes) + xp.arange(int(xp.sum(sizes)), dtype=xp.int64, device=device(chosen))


def search(table: Array, codes: PackedCodes, count: int) -> list[int]:
    """Rows with the largest sums of look-ups, best first, ties to the lower row.

    The rows of the best first pairs give a floor, the count-th best of their sums, which all winners reach. A pair
    that does not reach it with the best of all other entries has no winner, and its rows are not looked at. A sum
    is rounded as its bound is, in the same order, so that none exceeds it.
    """
    xp = array_namespace(table)
    count = min(max(count, 0), codes.rows)
    if not count:
        return []
    tables = codes.tables(table)
    bounds = tables[0]
    for other in tables[1:]:
        bounds = bounds + xp.max(other)
    likely = codes.sums(tables, codes.places(bounds >= xp.sort(bounds, stable=False)[-1 - bounds.shape[0] // LIKELY]))
    floor = xp.sort(likely, stable=False)[-count] if likely.shape[0] >= count else -math.inf
    places = codes.places(bounds >= floor)
    scores = codes.sums(tables, places)
    left = xp.nonzero(scores >= floor)[0]
    scores, rows = xp.take(scores, left), xp.take(codes.ids, xp.take(places, left))
    by_row = xp.argsort(rows)
    order = xp.take(by_row, xp.argsort(-xp.take(scores, by_row), stable=True)[:count])
    return [int(i) for i in xp.take(rows, order)]


class Regions(NamedTuple):
    """What is attended anyhow, and what is searched."""

    sink: int
    recent: int
    """Last rows, the current one included."""

    def candidates(self, rows: int) -> tuple[int, int]:
        """Rows behind the sink and before the recent ones: first and end."""
        first = min(self.sink, rows)
        return first, max(first, rows - self.recent)

    def support(self, rows: int, selected: Sequence[int]) -> list[int]:
        """Sink, selected and recent rows, ascending, each once."""
        first, end = self.candidates(rows)
        return sorted({*range(first), *selected, *range(end, rows)})


def select(
    q: Array,
    centroids: Array,
    codes: Array,
    kv_head_of: Sequence[int],
    *,
    scale: float,
    rule: str,
    first_row: int,
    span: tuple[int, int],
    count: int,
) -> list[list[int]]:
    """Positions of each K/V head that the codes rank highest within the span, ascending.

    ``q`` [H_q, d], ``codes`` [H_kv, n, m]. The heads of a group are joined by the sum of softmax weights over the
    candidates, or under ``pqcache/ip`` by the sum of squared distances, of which the smallest win.
    """
    xp = array_namespace(q, centroids, codes)
    check_heads(kv_head_of, q.shape[0], centroids.shape[0])
    first, end = span
    covered = first_row <= first and end <= first_row + codes.shape[1]
    need(covered, "CODES_NOT_COVERING", f"rows {first} to {end}, codes from {first_row} for {codes.shape[1]}")
    found: list[list[int]] = []
    for head, members in enumerate(groups_of(kv_head_of, centroids.shape[0])):
        if not members or first == end:
            found.append([])
            continue
        kept = codes[head, first - first_row : end - first_row, :]
        total = xp.zeros((end - first,), dtype=q.dtype, device=device(q))
        for query in members:
            if rule == AUGMENTED:
                total = total - look_up(distance_tables(q[query, ...], centroids[head, ...]), kept)
            else:
                total = total + softmax(scale * look_up(tables(q[query, ...], centroids[head, ...]), kept))
        found.append(sorted(first + i for i in top(total, count)))
    return found


def augment(x: Array) -> tuple[Array, Array]:
    """Groups of keys [g, n, d] with a channel more that makes norms equal, and the largest squared norms [g]."""
    xp = array_namespace(x)
    squares = xp.sum(x * x, axis=2)
    phi = xp.max(squares, axis=1)
    return xp.concat([x, xp.sqrt(phi[:, None] - squares)[:, :, None]], axis=2), phi


class Ledger(NamedTuple):
    """Bytes and work of one layer."""

    codes_bytes: int
    centroids_bytes: int
    index_bytes: int
    payload_bytes: int
    gather_bytes: int
    build_terms: int
    table_terms: int
    lookup_terms: int
    dense_terms: int


def ledger(
    *,
    rows: int,
    kv_heads: int,
    channels: int,
    value_channels: int,
    m: int,
    bits: int,
    centroid_item_bytes: int,
    k_item_bytes: int,
    v_item_bytes: int,
    top_k: int,
    iterations: int,
) -> Ledger:
    """Search structure, payload and gather of one layer; codes are packed, head by head, to whole bytes."""
    need(channels % m == 0, "PQ_GEOMETRY_INVALID", f"{m} subspaces of {channels} channels")
    count, row = 1 << bits, channels * k_item_bytes + value_channels * v_item_bytes
    codes = kv_heads * -(-rows * m * bits // 8)
    centroids = kv_heads * count * channels * centroid_item_bytes
    return Ledger(
        codes_bytes=codes,
        centroids_bytes=centroids,
        index_bytes=codes + centroids,
        payload_bytes=kv_heads * rows * row,
        gather_bytes=kv_heads * min(top_k, rows) * row,
        build_terms=rows * kv_heads * channels * count * iterations,
        table_terms=count * channels,
        lookup_terms=rows * m,
        dense_terms=rows * channels,
    )


@dataclass(frozen=True)
class Profile:
    """Measured costs of clustering and of a layer, in one unit of time."""

    alpha1: float
    beta1: float
    alpha2: float
    beta2: float
    gamma2: float

    def crossing(self, tokens: int) -> float:
        """Rounds for which clustering takes as long as the layer."""
        layer = self.gamma2 * tokens * tokens + self.beta2 * tokens + self.alpha2
        return (layer - self.alpha1) / (self.beta1 * tokens)


def cap(profile: Profile, tokens: int, least: int, most: int) -> tuple[float, int]:
    """The crossing, and the whole rounds below it within the limits."""
    need(profile.beta1 > 0 and least <= most, "CLUSTER_PROFILE_INVALID")
    crossing = profile.crossing(tokens)
    return crossing, max(least, min(most, math.floor(crossing)))


class BlockCache:
    """Blocks of rows on the GPU; bound to a pool and a row map, which empty it when they change."""

    def __init__(self, capacity: int, policy: str) -> None:
        """``policy`` is ``lru`` or ``lfu``; of blocks used equally often the least recently used one leaves."""
        self.capacity, self.policy = capacity, policy
        self.held: dict[int, tuple[int, int]] = {}
        """Block to how often and when it was used."""
        self.clock, self.bound_to = 0, None

    def read(self, blocks: Sequence[int], bound_to: Any) -> tuple[list[int], list[int]]:
        """Blocks found and blocks fetched; those fetched stay, as far as there is room."""
        if bound_to != self.bound_to:
            self.held, self.bound_to = {}, bound_to
        hits, misses = [], []
        for block in blocks:
            self.clock += 1
            if block in self.held:
                hits.append(block)
            else:
                misses.append(block)
                self.make_room()
            if self.capacity:
                self.held[block] = (self.held.get(block, (0, 0))[0] + 1, self.clock)
        return hits, misses

    def make_room(self) -> None:
        """Drop a block where the cache is full."""
        if self.held and len(self.held) >= self.capacity:
            del self.held[min(self.held, key=self.rank)]

    def rank(self, block: int) -> tuple[int, int]:
        """What leaves first has the least."""
        often, when = self.held[block]
        return (often if self.policy == "lfu" else 0, when)
