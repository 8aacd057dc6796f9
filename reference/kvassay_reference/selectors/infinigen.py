"""InfiniGen: a rotated basis, columns that query and key share, and rows fetched one layer ahead."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

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
    query_groups,
    take_rows,
    top,
    working,
)

PAPER, SPEED, ACCURACY, LLAMA = (
    "infinigen/paper",
    "infinigen/speed",
    "infinigen/accuracy",
    "infinigen/accuracy-llama",
)
RULES = (PAPER, SPEED, ACCURACY, LLAMA)


@dataclass(frozen=True)
class Limits:
    """How rows are chosen by speculated scores."""

    rule: str
    alpha: float
    cap: int


@dataclass(frozen=True)
class Fetch:
    """Rows to fetch, and the counts behind them."""

    counts: list[int]
    """Rows that pass, of each K/V head that is read."""
    uncapped: int
    count: int
    capped: bool
    positions: list[Array]
    """Of each K/V head, ascending."""
    margins: list[Array]
    """Of each K/V head, best first; how far each row lies below its maximum."""


class InfiniGen:
    """The steps of InfiniGen (article 06 to 06D)."""

    # basis

    def basis(self, sample: Array, kv_head_of: Sequence[int], heads: int, accumulate: str) -> tuple[Array, Array]:
        """Right singular vectors as columns [H_kv, d, d] and singular values [H_kv, d] of queries [n, H_q, d]."""
        if sample.ndim != 3:
            raise Refusal("SHAPE_MISMATCH", f"a sample of shape {tuple(sample.shape)}")
        check_map(kv_head_of, int(sample.shape[1]), heads)
        xp = array_namespace(sample)
        bases, values = [], []
        for group in query_groups(kv_head_of, heads):
            stacked = [working(sample[:, query, :], accumulate) for query in group]
            empty = working(sample[:0, 0, :], accumulate)
            columns, found = self.right_vectors(xp.concat(stacked) if stacked else empty)
            bases.append(columns)
            values.append(found)
        return xp.stack(bases), xp.stack(values)

    def right_vectors(self, rows: Array) -> tuple[Array, Array]:
        """A whole orthogonal basis [d, d] for rows [n, d], strongest direction first, and d singular values."""
        xp = array_namespace(rows)
        width = int(rows.shape[1])
        if rows.shape[0] == 0:
            return xp.eye(width, dtype=rows.dtype, device=device(rows)), xp.zeros(
                (width,), dtype=rows.dtype, device=device(rows)
            )
        _, found, vectors = xp.linalg.svd(rows, full_matrices=True)
        missing = width - int(found.shape[0])
        padding = xp.zeros((missing,), dtype=rows.dtype, device=device(rows))
        return vectors.T, xp.concat([found, padding])

    def check_basis(self, basis: Array, shape: tuple[int, int, int], tolerance: float) -> None:
        """Refuse a basis of another shape, or one that is not orthogonal."""
        if tuple(basis.shape) != shape:
            raise Refusal("SHAPE_MISMATCH", f"a basis of shape {tuple(basis.shape)} for {shape}")
        xp = array_namespace(basis)
        eye = xp.eye(shape[2], dtype=basis.dtype, device=device(basis))
        error = xp.max(xp.abs(xp.matmul(xp.permute_dims(basis, (0, 2, 1)), basis) - eye))
        if float(error) > tolerance:
            raise Refusal("BASIS_NOT_ORTHOGONAL", f"off by {float(error):.3g}")

    def check_columns(self, columns: Sequence[Array], heads: int, width: int) -> None:
        """Refuse columns that are not one ascending list of channels a K/V head."""
        if len(columns) != heads:
            raise Refusal("SHAPE_MISMATCH", "one list of columns a K/V head")
        for found in columns:
            try:
                check_ascending(found, width, "CHANNELS_OUT_OF_RANGE")
            except Refusal as refusal:
                code = refusal.reason
                raise Refusal("CHANNELS_NOT_ASCENDING" if code == "CANDIDATES_NOT_ASCENDING" else code) from None

    def rotate(self, rows: Array, basis: Array) -> Array:
        """Rows [n, d] in the basis [d, d]."""
        return rows @ basis

    def score(
        self, history: History, basis: Array, tolerance: float, columns: Sequence[Array] | None
    ) -> tuple[Array, Array]:
        """Unscaled scores over the columns [H_q, T], and what the others can add or take at most."""
        history.checked()
        xp = array_namespace(history.q)
        width = int(history.q.shape[1])
        basis = working(basis, history.accumulate)
        self.check_basis(basis, (history.heads, width, width), tolerance)
        every = xp.arange(width, dtype=xp.int64, device=device(history.q))
        columns = [every] * history.heads if columns is None else columns
        self.check_columns(columns, history.heads, width)
        scores, remainders, order = [], [], []
        for head, group in enumerate(history.groups):
            if not group:
                continue
            q, k = (
                self.rotate(history.query(group), basis[head, ...]),
                self.rotate(history.keys(head), basis[head, ...]),
            )
            scores.append(self.partial(q, k, columns[head]))
            rest = xp.nonzero(xp.all(every[:, None] != columns[head][None, :], axis=1))[0]
            remainders.append(self.remainder(xp.take(q, rest, axis=1), xp.take(k, rest, axis=1)))
            order += group
        return in_query_order(scores, order), in_query_order(remainders, order)

    def partial(self, queries: Array, keys: Array, columns: Array) -> Array:
        """Products over the same columns of queries [n, d] and keys [T, d], [n, T]."""
        xp = array_namespace(queries)
        return (xp.take(keys, columns, axis=1) @ xp.take(queries, columns, axis=1).T).T

    def remainder(self, queries: Array, keys: Array) -> Array:
        """Cauchy and Schwarz over the columns that were left out, [n, T]."""
        xp = array_namespace(queries)
        sizes = [xp.sqrt(xp.sum(side * side, axis=1)) for side in (queries, keys)]
        return sizes[0][:, None] * sizes[1][None, :]

    def fold(
        self,
        w: Array,
        b: Array | None,
        basis: Array,
        basis_of: Sequence[int],
        scale: float,
        tolerance: float,
        rope: str,
    ) -> tuple[Array, Array | None]:
        """Weights [d_in, H, d] and bias [H, d] with basis and scale in them; raises :class:`Refusal`."""
        if rope != "none":
            raise Refusal("BASIS_NOT_FOLDABLE", rope)
        if w.ndim != 3:
            raise Refusal("SHAPE_MISMATCH", f"weights of shape {tuple(w.shape)}")
        width = int(w.shape[2])
        check_map(basis_of, int(w.shape[1]), int(basis.shape[0]))
        self.check_basis(basis, (int(basis.shape[0]), width, width), tolerance)
        if b is not None and b.shape != w.shape[1:]:
            raise Refusal("SHAPE_MISMATCH", f"a bias of shape {tuple(b.shape)}")
        own = take_rows(basis, basis_of)
        xp = array_namespace(w)
        folded = xp.permute_dims(xp.matmul(xp.permute_dims(w, (1, 0, 2)), own), (1, 0, 2)) * scale
        return folded, None if b is None else xp.matmul(b[:, None, :], own)[:, 0, :] * scale

    # columns and rehearsal

    def evidence(self, queries: Array, keys: Array) -> tuple[Array, Array]:
        """Sums of absolute values of each column, of queries [n, d] and of keys [m, d]."""
        xp = array_namespace(queries)
        return xp.sum(xp.abs(queries), axis=0), xp.sum(xp.abs(keys), axis=0)

    def pick(self, rule: str, of_queries: Array, of_keys: Array, count: int) -> tuple[Array, Array]:
        """Columns, ascending, and the evidence that the rule reports."""
        if rule == SPEED:
            return best(of_queries, count), of_queries
        if rule == ACCURACY:
            xp = array_namespace(of_queries)
            return xp.unique_values(xp.concat([top(of_queries, count), top(of_keys, count)])), of_queries + of_keys
        return best(of_queries + of_keys, count), of_queries + of_keys

    def columns(
        self, rule: str, history: History, count: int, basis: Array | None, tolerance: float
    ) -> tuple[list[Array], Array]:
        """Columns of each K/V head and their evidence; here ``history.q`` is [n, H_q, d]."""
        q, k, xp = history.q, history.k, array_namespace(history.q)
        if q.dtype != k.dtype:
            raise Refusal("DTYPE_MISMATCH", f"{q.dtype} and {k.dtype}")
        if q.ndim != 3 or k.ndim != 3 or q.shape[2] != k.shape[2]:
            raise Refusal("SHAPE_MISMATCH", f"q {tuple(q.shape)} and k {tuple(k.shape)}")
        width = int(k.shape[2])
        check_map(history.kv_head_of, int(q.shape[1]), history.heads)
        if not 1 <= count <= width:
            raise Refusal("CHANNELS_OUT_OF_RANGE", f"{count} of {width}")
        if basis is not None:
            basis = working(basis, history.accumulate)
            self.check_basis(basis, (history.heads, width, width), tolerance)
        found, weights = [], []
        for head, group in enumerate(history.groups):
            parts = [working(q[:, query, :], history.accumulate) for query in group]
            queries = xp.concat(parts) if parts else working(q[:0, 0, :], history.accumulate)
            keys = history.keys(head)
            if basis is not None:
                queries, keys = self.rotate(queries, basis[head, ...]), self.rotate(keys, basis[head, ...])
            picked, weight = self.pick(rule, *self.evidence(queries, keys), count)
            found.append(xp.sort(picked))
            weights.append(weight)
        return found, xp.stack(weights)

    def rehearsed_query(self, x: Array, w: Array, b: Array | None) -> Array:
        """The next layer's query [H_q, d] for the input of the layer before."""
        xp = array_namespace(x)
        query = xp.tensordot(x, w, axes=1)
        return query if b is None else query + b

    def rehearse(
        self,
        x: Array,
        w: Array,
        b: Array | None,
        k: Array,
        columns: Sequence[Array],
        kv_head_of: Sequence[int],
        accumulate: str,
    ) -> Array:
        """Speculated scores [H_q, T]; raises :class:`Refusal`."""
        if w.ndim != 3 or k.ndim != 3 or x.shape != w.shape[:1] or w.shape[2] != k.shape[2]:
            raise Refusal("SHAPE_MISMATCH", f"x {tuple(x.shape)}, w {tuple(w.shape)} and k {tuple(k.shape)}")
        check_map(kv_head_of, int(w.shape[1]), int(k.shape[1]))
        self.check_columns(columns, int(k.shape[1]), int(k.shape[2]))
        if b is not None and b.shape != w.shape[1:]:
            raise Refusal("SHAPE_MISMATCH", f"a bias of shape {tuple(b.shape)}")
        bias = None if b is None else working(b, accumulate)
        query = self.rehearsed_query(working(x, accumulate), working(w, accumulate), bias)
        scores, order = [], []
        for head, group in enumerate(query_groups(kv_head_of, int(k.shape[1]))):
            if group:
                scores.append(self.partial(take_rows(query, group), working(k[:, head, :], accumulate), columns[head]))
                order += group
        return in_query_order(scores, order)

    # selection

    def margins(self, scores: Array, tops: Array) -> Array:
        """How far rows lie below the maxima of a group [n, T] at best, [T]."""
        return array_namespace(scores).max(scores - tops[:, None], axis=0)

    def tops(self, scores: Array) -> Array:
        """Maximum of each query head, [n]."""
        return array_namespace(scores).max(scores, axis=1)

    def passing(self, limits: Limits, margins: Array, scores: Array, first: Array) -> int:
        """Rows of one K/V head that pass the threshold; ``first`` is the maximum of query head 0."""
        xp = array_namespace(margins)
        if limits.rule == SPEED:
            passed = margins > -limits.alpha
        elif limits.rule == LLAMA:
            passed = scores[0, :] >= first - limits.alpha
        else:
            passed = margins >= -limits.alpha
        return int(xp.sum(xp.astype(passed, xp.int64)))

    def equalise(self, counts: Sequence[int]) -> int:
        """One count for all heads: their mean, rounded down."""
        return sum(counts) // len(counts)

    def limit(self, limits: Limits, uncapped: int, rows: int, available: int) -> int:
        """Rows of each head under the cap."""
        if limits.rule in (ACCURACY, LLAMA) and rows <= limits.cap:
            return available
        return min(uncapped, limits.cap, available)

    def select(
        self,
        limits: Limits,
        scores: Array,
        kv_head_of: Sequence[int],
        heads: int,
        available: Array | None,
        accumulate: str,
    ) -> Fetch:
        """Rows by speculated scores [H_q, T]; raises :class:`Refusal`."""
        xp = array_namespace(scores)
        check_map(kv_head_of, int(scores.shape[0]), heads)
        groups, rows = query_groups(kv_head_of, heads), int(scores.shape[1])
        if limits.rule != PAPER and any(len(group) > 1 for group in groups):
            raise Refusal("GROUPED_HEADS_UNSUPPORTED", limits.rule)
        among = xp.arange(rows, dtype=xp.int64, device=device(scores)) if available is None else available
        check_ascending(among, rows)
        if among.shape[0] == 0:
            raise Refusal("NO_LEGAL_ROWS", "the pool is empty")
        held = xp.take(working(scores, accumulate), among, axis=1)
        first = self.tops(held[:1, :])[0]
        counts, below = [], []
        for group in groups:
            if group:
                own = take_rows(held, group)
                below.append(self.margins(own, self.tops(own)))
                counts.append(self.passing(limits, below[-1], own, first))
            else:
                below.append(held[0, :0])
        uncapped = self.equalise(counts)
        count = self.limit(limits, uncapped, rows, int(among.shape[0]))
        ranked = [top(found, count) for found in below]
        return Fetch(
            counts,
            uncapped,
            count,
            uncapped > limits.cap,
            [xp.sort(xp.take(among, found, axis=0)) for found in ranked],
            [xp.take(found, order, axis=0) for found, order in zip(below, ranked, strict=True)],
        )

    def gather(self, history: History, scale: float, positions: Sequence[Array]) -> tuple[Array, Array]:
        """Attention with all channels over the rows of each K/V head."""
        return attend(history, scale, list(zip(history.groups, range(history.heads), positions, strict=True)))

    def attend(self, history: History, scale: float, positions: Sequence[Array]) -> tuple[Array, Array]:
        """The same for given positions; raises :class:`Refusal`."""
        history.checked()
        if len(positions) != history.heads:
            raise Refusal("SHAPE_MISMATCH", "one list of positions a K/V head")
        for found in positions:
            check_ascending(found, history.rows)
        return self.gather(history, scale, positions)

    # pool and layers

    def layers(self, layers: int, first_issue: int) -> dict[str, list[int]]:
        """Layers that issue, consume, and attend densely."""
        issue = list(range(first_issue, layers - 1))
        consume = [layer + 1 for layer in issue]
        return {"issue": issue, "consume": consume, "dense": [one for one in range(layers) if one not in consume]}


@dataclass
class Pool:
    """A finite host pool: rows come in order of position, and one goes for each that finds no room."""

    policy: str
    """``counter``, ``fifo`` or ``lru``."""
    capacity: int
    protect_newest: int = 0
    counter_limit: int | None = None
    resident: list[int] = field(default_factory=list)
    evicted: list[int] = field(default_factory=list)
    counters: dict[int, int] = field(default_factory=dict)
    last: dict[int, int] = field(default_factory=dict)
    following: int = 0
    time: int = 0

    def checked(self) -> Pool:
        """The same; raises :class:`Refusal` where no row could ever go."""
        if self.protect_newest >= self.capacity:
            raise Refusal("POOL_PROTECTS_ALL", f"{self.protect_newest} of {self.capacity}")
        return self

    def step(self, use: Sequence[int], append: int) -> None:
        """Fetches, then appends; raises :class:`Refusal` for a fetch of what is not there."""
        for row in use:
            if row not in self.resident:
                raise Refusal("CANDIDATE_NOT_IN_POOL", str(row))
        for row in use:
            self.touch(row)
        if self.counter_limit is not None and max(self.counters.values(), default=0) >= self.counter_limit:
            self.halve()
        for _ in range(append):
            if len(self.resident) == self.capacity:
                self.evict()
            self.insert()
        self.time += 1

    def touch(self, row: int) -> None:
        """Count one fetch."""
        self.counters[row] += 1
        self.last[row] = self.time

    def halve(self) -> None:
        """A counter is full: halve all."""
        self.counters = {row: count // 2 for row, count in self.counters.items()}

    def insert(self) -> None:
        """Append the next position."""
        self.resident.append(self.following)
        self.counters[self.following] = 0
        self.last[self.following] = self.time
        self.following += 1

    def evict(self) -> None:
        """Drop the row that the policy names among those that are not protected."""
        exposed = self.resident[: self.capacity - self.protect_newest]
        victim = min(exposed, key=lambda row: (self.order(row), row))
        self.resident.remove(victim)
        del self.counters[victim], self.last[victim]
        self.evicted.append(victim)

    def order(self, row: int) -> int:
        """What the policy ranks rows by, the least going first."""
        return {"counter": self.counters[row], "fifo": row, "lru": self.last[row]}[self.policy]
