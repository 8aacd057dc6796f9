"""ClusterKV: cosine clusters of keys, ranking under a budget of rows, and clusters of sealed windows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from array_api_compat import array_namespace, device

from .rows import Array, check_axes, check_heads, check_history, group_matrix, indices, listed, ranked, require, wide


def directions(vectors: Array) -> tuple[Array, Array]:
    """Vectors at length one along the last axis, and their lengths; zero stays zero."""
    xp = array_namespace(vectors)
    length = xp.sqrt(xp.sum(vectors * vectors, axis=-1, keepdims=True))
    return vectors / xp.where(length > 0, length, 1.0), length


class Clustered(NamedTuple):
    """Clusters of one span of rows, by K/V head."""

    centroids: Array
    """[H_kv, clusters, d]."""
    labels: Array
    """[H_kv, rows]."""
    rounds: list[int]
    """Rounds until no label changed, by head."""


def nearest(points: Array, centroids: Array) -> Array:
    """[H_kv, rows]: cluster of the largest cosine, the lower one among equals; points are of length one.

    Cosines are summed in float64 and compared in float32: equal centroids tie, however a product is cut into blocks.
    """
    xp = array_namespace(points)
    facing, _ = directions(centroids)
    exact = xp.matmul(xp.astype(points, xp.float64), xp.matrix_transpose(xp.astype(facing, xp.float64)))
    return xp.argmax(xp.astype(exact, xp.float32), axis=-1)


def one_hot(labels: Array, clusters: int, like: Array) -> Array:
    """[H_kv, clusters, rows]: 1 where a row belongs to a cluster."""
    xp = array_namespace(like)
    names = xp.arange(clusters, dtype=labels.dtype, device=device(like))
    return xp.astype(labels[:, None, :] == names[None, :, None], like.dtype)


def mean_direction(points: Array, keys: Array, labels: Array, old: Array) -> Array:
    """Normalised mean of normalised members; an empty cluster, or one without direction, keeps what it had."""
    xp = array_namespace(points)
    members = one_hot(labels, old.shape[1], points)
    count = xp.sum(members, axis=-1, keepdims=True)
    fresh, length = directions(xp.matmul(members, points) / xp.where(count > 0, count, 1.0))
    return xp.where((count > 0) & (length > 0), fresh, old)


def mean_key(points: Array, keys: Array, labels: Array, old: Array) -> Array:
    """The published code's: mean of the members as they are."""
    xp = array_namespace(points)
    members = one_hot(labels, old.shape[1], keys)
    count = xp.sum(members, axis=-1, keepdims=True)
    return xp.where(count > 0, xp.matmul(members, keys) / xp.where(count > 0, count, 1.0), old)


Update = Callable[[Array, Array, Array, Array], Array]


def build(
    k: Array,
    initial: Sequence[int],
    iterations: int,
    *,
    raw: bool = False,
    assign: Callable[[Array, Array], Array] = nearest,
    update: Update | None = None,
) -> Clustered:
    """Cosine k-means of rows [n, H_kv, d] from the rows ``initial``; at most ``iterations`` rounds.

    ``raw`` is the rule of the published code: means of raw keys, every round, and a last assignment. Raises
    :class:`Refusal` for a key without direction or an initial row that is not there.
    """
    check_history(k)
    require(all(0 <= row < k.shape[0] for row in initial), "INITIAL_ROW_UNKNOWN", str(list(initial)))
    xp = array_namespace(k)
    keys = xp.permute_dims(wide(k), (1, 0, 2))
    points, lengths = directions(keys)
    require(bool(xp.all(lengths > 0)), "ZERO_KEY", "a key of length zero has no direction")
    move = update or (mean_key if raw else mean_direction)
    centroids = xp.take(keys if raw else points, indices(initial, k), axis=1)
    labels = xp.full(keys.shape[:2], -1, dtype=xp.int64, device=device(k))
    rounds = xp.zeros((k.shape[1],), dtype=xp.int64, device=device(k))
    for _ in range(iterations):
        now = xp.astype(assign(points, centroids), xp.int64)
        changed = xp.any(now != labels, axis=1)
        if not raw and not bool(xp.any(changed)):
            break
        rounds = rounds + xp.astype(changed | raw, xp.int64)
        labels = now
        centroids = move(points, keys, labels, centroids)
    if raw or not iterations:
        labels = xp.astype(assign(points, centroids), xp.int64)
    return Clustered(centroids, labels, listed(rounds))


@dataclass(frozen=True)
class Index:
    """What a query needs of clusters: all of one generation."""

    generation: int
    centroids: Array
    """[H_kv, clusters, d]."""
    sizes: Array
    """[H_kv, clusters]."""
    prefix_sums: Array
    """[H_kv, clusters]: rows of a cluster and of all before it."""
    members: Array
    """[H_kv, rows]: positions, cluster by cluster, ascending within each."""


def index_of(found: Clustered, first: int, generation: int = 1) -> Index:
    """Sizes, running sums and members of clusters whose first row stands at position ``first``."""
    xp = array_namespace(found.centroids)
    sizes = xp.astype(xp.sum(one_hot(found.labels, found.centroids.shape[1], found.centroids), axis=-1), xp.int64)
    members = xp.argsort(found.labels, axis=-1, stable=True) + first
    return Index(generation, found.centroids, sizes, xp.cumulative_sum(sizes, axis=-1), members)


def appended(index: Index, fresh: Index) -> Index:
    """The next generation: the same clusters, and those of a sealed window behind them."""
    xp = array_namespace(index.centroids)

    def joined(name: str) -> Array:
        old, new = getattr(index, name), getattr(fresh, name)
        return xp.concat([old, xp.astype(new, old.dtype)], axis=1)

    sizes = joined("sizes")
    sums = xp.cumulative_sum(sizes, axis=-1)
    return Index(index.generation + 1, joined("centroids"), sizes, sums, joined("members"))


def check_index(index: Index) -> None:
    """Refuse sizes, sums and members that do not belong together."""
    xp = array_namespace(index.sizes)
    shape = tuple(index.centroids.shape[:2])
    fits = tuple(index.sizes.shape) == shape == tuple(index.prefix_sums.shape)
    require(fits and index.members.ndim == 2 and index.members.shape[0] == shape[0], "SHAPE_MISMATCH", "cluster index")
    sums = xp.cumulative_sum(index.sizes, axis=-1)
    for head in range(shape[0]):
        require(bool(xp.all(sums[head, :] == index.prefix_sums[head, :])), "PREFIX_SUMS_MISMATCH", f"head {head}")
        members = index.members[head, :]
        rows = int(xp.sum(index.sizes[head, :]))
        whole = rows == members.shape[0] and int(xp.unique_values(members).shape[0]) == rows
        require(whole, "MEMBERS_MISMATCH", f"head {head}")
        rising = members[1:] > members[:-1]
        starts = cluster_of(index, head)
        require(bool(xp.all(rising | (starts[1:] != starts[:-1]))), "MEMBERS_NOT_ASCENDING", f"head {head}")


def cluster_of(index: Index, head: int) -> Array:
    """[rows]: the cluster that each entry of a head's members belongs to."""
    xp = array_namespace(index.members)
    places = xp.arange(index.members.shape[1], dtype=xp.int64, device=device(index.members))
    return xp.searchsorted(index.prefix_sums[head, :], places, side="right")


class Selected(NamedTuple):
    """Clusters by rank and the rows that fit, one list for each K/V head or query head."""

    scores: Array
    order: Array
    ordered_sums: Array
    rows: list[list[int]]
    trimmed: list[int]
    """Rows of the last cluster that were left out."""


def products(q: Array, centroids: Array) -> Array:
    """[lists, clusters]: each query against its centroids; q is [lists, d], centroids [lists, clusters, d].

    Each product is a sum of its own, so that equal centroids tie; a matrix product may add them in other orders.
    """
    return array_namespace(q).vecdot(centroids, q[:, None, :])


def quotas(sizes: Array, sums: Array, budget: int) -> Array:
    """[clusters by rank]: how many members each gives, so that together they are the budget."""
    xp = array_namespace(sizes)
    room = budget - (sums - sizes)
    return xp.where(room < sizes, xp.where(room > 0, room, 0), sizes)


def unpadded(sizes: Array, sums: Array, budget: int) -> Array:
    """The variant that does not trim: every cluster that begins within the budget gives all of its members."""
    xp = array_namespace(sizes)
    return xp.where(budget > sums - sizes, sizes, 0)


def members_within(index: Index, head: int, quota: Array) -> list[int]:
    """The first members of each cluster, as many as ``quota`` [clusters] says, in ascending order."""
    xp = array_namespace(index.members)
    cluster = cluster_of(index, head)
    places = xp.arange(cluster.shape[0], dtype=xp.int64, device=device(cluster))
    starts = index.prefix_sums[head, :] - index.sizes[head, :]
    inside = places - xp.take(starts, cluster, axis=0)
    kept = inside < xp.take(quota, cluster, axis=0)
    return list(listed(xp.sort(index.members[head, :][kept])))


def select(
    q: Array,
    index: Index,
    kv_head_of: Sequence[int],
    budget: int,
    *,
    by_query_head: bool = False,
    score: Callable[[Array, Array], Array] = products,
    share: Callable[[Array, Array, int], Array] = quotas,
    gather: Callable[[Index, int, Array], list[int]] = members_within,
) -> Selected:
    """Clusters by their product with the query as it is, and the first ``budget`` rows in that order.

    By K/V head the queries of its group are added before they are compared; an index is not changed by a query.
    """
    xp = array_namespace(q)
    require(index.centroids.ndim == 3, "SHAPE_MISMATCH", "centroids are [H_kv, clusters, d]")
    check_axes(q, 2, index.centroids, "q")
    check_index(index)
    kv_heads = index.centroids.shape[0]
    check_heads(kv_head_of, q.shape[0], kv_heads)
    centroids = wide(index.centroids)
    asked = wide(q)
    if asked.dtype != centroids.dtype:
        asked, centroids = xp.astype(asked, xp.float64), xp.astype(centroids, xp.float64)
    owners = list(kv_head_of) if by_query_head else list(range(kv_heads))
    if not by_query_head:
        asked = xp.matmul(group_matrix(kv_head_of, kv_heads, asked), asked)
    scores = score(asked, xp.take(centroids, indices(owners, centroids), axis=0))
    order = ranked(scores)
    rows, trimmed, sums = [], [], []
    for line, head in enumerate(owners):
        sizes = xp.take(index.sizes[head, :], order[line, :], axis=0)
        running = xp.cumulative_sum(sizes)
        given = share(sizes, running, budget)
        quota = xp.take(given, xp.argsort(order[line, :]), axis=0)
        rows.append(gather(index, head, quota))
        trimmed.append(int(xp.sum(xp.where(given > 0, sizes - given, 0))))
        sums.append(running)
    return Selected(scores, order, xp.stack(sums), rows, trimmed)


@dataclass(frozen=True)
class Planned:
    """How many clusters a history has, and what is read without them."""

    prefill_clusters: int
    sealed_windows: int
    append_clusters: int
    clusters: int
    direct: tuple[int, int]
    generation: int


def plan(
    prompt_rows: int,
    decoded_rows: int,
    *,
    sink_rows: int,
    count_without_sink: bool,
    rows_per_cluster: int,
    window_rows: int,
    clusters_per_window: int,
) -> Planned:
    """Clusters of the prompt, one for so many rows, and those of each whole window decoded since."""
    counted = max(prompt_rows - sink_rows, 0) if count_without_sink else prompt_rows
    prefill, sealed = counted // rows_per_cluster, decoded_rows // window_rows
    added = sealed * clusters_per_window
    direct = (prompt_rows + sealed * window_rows, prompt_rows + decoded_rows)
    return Planned(prefill, sealed, added, prefill + added, direct, sealed + 1)


def read_index(data: Any, centroids: Array) -> Index:
    """An index from its JSON form; refuses lists of unequal length."""
    xp = array_namespace(centroids)

    def table(name: str, reason: str) -> Array:
        lines = data[name]
        require(len({len(line) for line in lines}) <= 1, reason, name)
        return xp.asarray(lines, dtype=xp.int64, device=device(centroids))

    require(centroids.ndim == 3, "SHAPE_MISMATCH", "centroids are [H_kv, clusters, d]")
    shape = tuple(centroids.shape[:2])
    for name in ("sizes", "prefix_sums"):
        fits = len(data[name]) == shape[0] and all(len(line) == shape[1] for line in data[name])
        require(fits, "SHAPE_MISMATCH", name)
    require(len(data["members"]) == shape[0], "SHAPE_MISMATCH", "members")
    for sizes, sums, line in zip(data["sizes"], data["prefix_sums"], data["members"], strict=True):
        running = [sum(sizes[: i + 1]) for i in range(len(sizes))]
        require(sums == running, "PREFIX_SUMS_MISMATCH", "running sums of the sizes")
        require(len(line) == sum(sizes), "MEMBERS_MISMATCH", "as many members as the sizes say")
    return Index(
        data.get("generation", 1),
        centroids,
        table("sizes", "SHAPE_MISMATCH"),
        table("prefix_sums", "SHAPE_MISMATCH"),
        table("members", "MEMBERS_MISMATCH"),
    )
