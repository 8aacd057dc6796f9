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
ROWS_PER_BLOCK = 1 << 16
"""Rows whose sums are made at once."""


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

    The table of a pair has C^2 entries; it pays for up to 256 centroids and from that many rows on.
    """

    def __init__(self, codes: Array, count: int) -> None:
        """``codes`` [n, m] below ``count``."""
        xp = array_namespace(codes)
        codes = xp.astype(codes, xp.int64)
        parts = codes.shape[1]
        # Sixteen bits hold a pair; some libraries look up with 64-bit indices alone.
        narrow = xp.uint16 if count <= 256 and is_numpy_array(codes) else xp.int64
        self.rows = codes.shape[0]
        self.pairs = [xp.astype(codes[:, j] * count + codes[:, j + 1], narrow) for j in range(0, parts - 1, 2)]
        self.last = xp.astype(codes[:, -1], narrow) if parts % 2 else None

    def scores(self, table: Array, rows: slice = slice(None)) -> Array:
        """Sums of the look-ups in ``table`` [m, C] for some rows."""
        return sum_of(self.tables(table), [codes[rows] for codes in self.columns()])

    def columns(self) -> list[Array]:
        """The packed codes, a column for each table of :meth:`tables`."""
        return [*self.pairs, *([] if self.last is None else [self.last])]

    def tables(self, table: Array) -> list[Array]:
        """Tables of sums for the pairs, and of single entries for an odd last subspace."""
        xp = array_namespace(table)
        joined = [xp.reshape(table[2 * j, :, None] + table[2 * j + 1, None, :], (-1,)) for j in range(len(self.pairs))]
        return joined if self.last is None else [*joined, table[-1, :]]


def sum_of(tables: Sequence[Array], columns: Sequence[Array]) -> Array:
    """Sum [n] of the entries of each table that its column of codes points to."""
    xp = array_namespace(*tables)
    found = xp.take(tables[0], columns[0])
    for table, column in zip(tables[1:], columns[1:], strict=True):
        found = found + xp.take(table, column)
    return found


def search(table: Array, codes: PackedCodes, count: int) -> list[int]:
    """Rows with the largest sums of look-ups, best first, ties to the lower row.

    Sums are made block by block, so that they stay in cache. A block's sums are kept that reach the floor, the
    count-th best of what was seen when the floor was last raised; all later winners reach it.
    """
    xp = array_namespace(table)
    count = min(max(count, 0), codes.rows)
    if not count:
        return []
    tables, columns = codes.tables(table), codes.columns()
    room = [xp.empty((ROWS_PER_BLOCK,), dtype=table.dtype, device=device(table)) for _ in tables]
    ids, kept, found, floor = [], [], 0, -math.inf
    start, size = 0, 8 * count
    while start < codes.rows:
        scores = block_sum(tables, columns, slice(start, min(start + size, codes.rows)), room)
        passed = xp.nonzero(scores >= floor)[0]
        ids.append(passed + start)
        kept.append(xp.take(scores, passed))
        found += passed.shape[0]
        if found > 2 * count:
            ids, kept = best_of(ids, kept, count)
            found, floor = count, kept[0][-1]
        start, size = start + size, min(2 * size, max(count, ROWS_PER_BLOCK))
    return [int(i) for i in best_of(ids, kept, count)[0][0]]


def best_of(ids: Sequence[Array], scores: Sequence[Array], count: int) -> tuple[list[Array], list[Array]]:
    """The best of several lists in ascending order of ids, as lists of one."""
    xp = array_namespace(*scores)
    every, all_scores = xp.concat(list(ids)), xp.concat(list(scores))
    # Within equal scores the stable sort keeps the order of the lists, best first or ascending: lower ids first.
    order = xp.argsort(-all_scores, stable=True)[:count]
    return [xp.take(every, order)], [xp.take(all_scores, order)]


def block_sum(tables: Sequence[Array], columns: Sequence[Array], rows: slice, room: Sequence[Array]) -> Array:
    """As :func:`sum_of` for a block of rows; NumPy writes into ``room``, which saves it from new memory each time."""
    width = rows.stop - rows.start
    if not is_numpy_array(tables[0]) or width > room[0].shape[0]:
        return sum_of(tables, [column[rows] for column in columns])
    for table, column, into in zip(tables, columns, room, strict=True):
        table.take(column[rows], out=into[:width], mode="clip")  # codes are in range; clip needs no second buffer
    found = room[0][:width]
    for more in room[1:]:
        found += more[:width]
    return found


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
