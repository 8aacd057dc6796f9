"""The reference's search by product-quantised codes against FAISS on one thread, over the same codes.

Both find the same rows. FAISS sums four entries for each row; the reference keeps rows in the order of their first pair
of codes and leaves out the pairs that cannot reach the best (:func:`kvassay_reference.indexes.pq.search`). Codes drawn
at random, as here, leave it 8 % of the rows and 0.4 to 0.5 of FAISS's time. Where no pair can be ruled out, which takes
a query that its first two subspaces do not distinguish at all, it takes six times as long.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy as np
from kvassay.core.tensors import Recipe, expand
from kvassay_reference.indexes import pq

from .timing import Line

ROWS, CHANNELS, SUBSPACES, BITS, COUNT = 1_000_000, 128, 4, 8, 128


def lines() -> Iterator[Line]:
    """One query over a million rows, m=4, b=8, the 128 best; without FAISS against a look-up a subspace and a sort."""
    centroids = expand(Recipe("float32", (SUBSPACES, 1 << BITS, CHANNELS // SUBSPACES), 1))
    query = expand(Recipe("float32", (CHANNELS,), 2))
    codes = np.random.default_rng(3).integers(0, 1 << BITS, (ROWS, SUBSPACES), dtype=np.uint8)
    packed = pq.PackedCodes(codes, 1 << BITS)

    def ours() -> list[int]:
        return pq.search(pq.tables(query, centroids), packed, COUNT)

    def plain() -> list[int]:
        table = pq.tables(query, centroids)
        scores = sum(table[j][codes[:, j]] for j in range(SUBSPACES))
        return [int(i) for i in np.argsort(-scores, kind="stable")[:COUNT]]

    assert ours() == plain()
    what = f"search by codes, T={ROWS}, m={SUBSPACES}, b={BITS}, top {COUNT}"
    try:
        import faiss
    except ImportError:
        ours_s, plain_s = least_cpu_s(ours, plain)
        yield Line(what, ours_s * 1e3, "ms", "a look-up a subspace and a sort", plain_s * 1e3, 0.1)
        return
    faiss.omp_set_num_threads(1)
    index = faiss.IndexPQ(CHANNELS, SUBSPACES, BITS, faiss.METRIC_INNER_PRODUCT)
    faiss.copy_array_to_vector(centroids.ravel(), index.pq.centroids)
    faiss.copy_array_to_vector(codes.ravel(), index.codes)
    index.ntotal, index.is_trained = ROWS, True

    def theirs() -> object:
        return index.search(query[None], COUNT)

    found = theirs()[1][0]  # type: ignore[index]
    assert len(set(found.tolist()) & set(ours())) >= COUNT - 2  # FAISS breaks ties by chance
    ours_s, theirs_s = least_cpu_s(ours, theirs)
    yield Line(what, ours_s * 1e3, "ms", "FAISS IndexPQ, one thread", theirs_s * 1e3, 1.0)


def least_cpu_s(a: Callable[[], object], b: Callable[[], object], *, repeat: int = 60) -> tuple[float, float]:
    """Least seconds of this thread's processor time of two calls that take turns.

    Both run for a few milliseconds on one thread, so that a busy machine interrupts either in most of its runs; its
    clock stands still meanwhile. What they do to each other's caches is worth a tenth.
    """
    least = [float("inf"), float("inf")]
    for _ in range(repeat):
        for place, call in enumerate((a, b)):
            started = time.thread_time()
            call()
            least[place] = min(least[place], time.thread_time() - started)
    return least[0], least[1]
