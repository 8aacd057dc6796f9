"""The adapters of index libraries, k-means and presses say what they were asked: ids, ranges, heads and scales arrive.

Whether an engine conforms is for the suite to say. Here each gets requests that leave an approximation no room, and
plain float64 arithmetic says what a faithful mapping returns.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

import numpy as np
import pytest
from kvassay.adapters.base import EngineAdapter, Unsupported

INDEXES = {
    "faiss": ("faiss", "faiss_index", "FaissPq"),
    "faiss-ivf": ("faiss", "faiss_index", "FaissIvf"),
    "faiss-lsh": ("faiss", "faiss_index", "FaissLsh"),
    "hnswlib": ("hnswlib", "hnswlib_graph", "Hnswlib"),
}
PRESSES = ("SnapKvUnpooled", "SnapKv", "Tova", "Knorm", "KeyDiff")


def made(package: str, module: str, name: str) -> Any:
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    engine: EngineAdapter = getattr(importlib.import_module(f"kvassay.engines.{module}"), name)()
    engine.setup()
    engine.open()
    return engine


@pytest.fixture(params=sorted(INDEXES))
def index(request: pytest.FixtureRequest) -> Any:
    return made(*INDEXES[request.param])


def drawn(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)


CORNER = np.where(np.arange(16) % 2, 0.9, -0.9).astype(np.float32)[None]
OTHER = np.where(np.arange(16) // 2 % 2, 0.9, -0.9).astype(np.float32)[None]


def best(index: Any, query: Any, name: str = "a", **more: Any) -> int:
    found: int = index.indexes_find({"index": name, "queries": query, "top_k": 1, **more})["ids"][0][0]
    return found


def test_ids_are_row_numbers_and_follow_on(index: Any) -> None:
    rows = np.concatenate([drawn(1, 60, 16), CORNER, drawn(2, 39, 16)])
    assert index.indexes_build({"index": "a", "keys": rows}) == {"rows": 100}
    assert best(index, CORNER) == 60
    assert index.indexes_extend({"index": "a", "keys": OTHER}) == {"ids": [100], "rows": 101}
    assert best(index, OTHER) == 100
    assert index.indexes_drop({"index": "a", "ids": [3]}) == {"rows": 100}
    assert [best(index, CORNER), best(index, OTHER)] == [60, 100]


def test_indexes_do_not_outlive_a_case(index: Any) -> None:
    index.indexes_build({"index": "a", "keys": drawn(1, 60, 16)})
    index.open()
    assert index.indexes_build({"index": "a", "keys": np.concatenate([CORNER, drawn(2, 59, 16)])}) == {"rows": 60}
    assert best(index, CORNER) == 0


@pytest.mark.parametrize("name", ["faiss-ivf", "hnswlib"])
def test_a_range_ends_before_its_end(name: str) -> None:
    index = made(*INDEXES[name])
    index.indexes_build({"index": "a", "keys": np.concatenate([drawn(1, 60, 16), CORNER, 0.9 * CORNER])})
    assert best(index, CORNER, range=[0, 62]) == 60
    assert best(index, CORNER, range=[61, 62]) == 61


@pytest.mark.parametrize("bits", [3, 4, 5])
def test_codes_of_any_width_reach_the_quantiser(bits: int) -> None:
    faiss = made(*INDEXES["faiss"])
    centroids = drawn(3, 2, 4, 2**bits, 2)
    codes = np.random.default_rng(4).integers(0, 2**bits, (2, 9, 4))
    q = drawn(5, 3, 8)
    got = faiss.pq_score({"q": q, "kv_head_of": [1, 0, 1], "centroids": centroids, "codes": codes.tolist()})
    for query, head in enumerate([1, 0, 1]):
        table = np.einsum("md,mcd->mc", q[query].reshape(4, 2).astype(np.float64), centroids[head])
        np.testing.assert_allclose(got["table"][query], table, atol=1e-5)
        scores = [sum(table[m, row[m]] for m in range(4)) for row in codes[head]]
        np.testing.assert_allclose(got["scores"][query], scores, atol=1e-5)


def plain_labels(points: Any, middles: Any, rounds: int) -> Any:
    for _ in range(rounds):
        labels = ((points[:, None] - middles[None]) ** 2).sum(-1).argmin(1)
        middles = np.stack([points[labels == c].mean(0) for c in range(len(middles))])
    return ((points[:, None] - middles[None]) ** 2).sum(-1).argmin(1)


@pytest.mark.parametrize("engine", [("sklearn", "sklearn_clusters", "SklearnKMeans"), INDEXES["faiss"]])
def test_clusters_begin_at_the_given_rows(engine: tuple[str, str, str]) -> None:
    bundles = np.repeat(np.eye(3, 5), 7, axis=0) * np.linspace(0.5, 3, 21)[:, None] + 0.05 * drawn(6, 21, 5)
    keys = bundles.astype(np.float32)
    got = made(*engine).squeezed_build({"keys": keys, "clusters": 3, "init_rows": [15, 1, 8], "iterations": 9})
    unit = keys / np.linalg.norm(keys, axis=1, keepdims=True)
    labels = plain_labels(unit.astype(np.float64), unit[[15, 1, 8]].astype(np.float64), 9)
    assert got["labels"] == labels.tolist() == [1] * 7 + [2] * 7 + [0] * 7
    assert got["fine"]["sizes"] == [7, 7, 7]
    np.testing.assert_allclose(got["fine"]["centroids"][0], keys[14:].mean(0), atol=1e-6)


def searched(press: str, **changes: Any) -> tuple[Any, Any]:
    request = {
        "q": drawn(7, 6, 8),
        "k": drawn(8, 40, 3, 8),
        "v": drawn(9, 40, 3, 8),
        "kv_head_of": [2, 2, 0, 0, 1, 1],
        "scale": 2.0,
        "initial_rows": 0,
        "local_rows": 1,
        "budget": 9,
        **changes,
    }
    return request, made("kvpress", "kvpress_selectors", press).memory_search(request)


@pytest.mark.parametrize("press", PRESSES)
@pytest.mark.parametrize("budget", [1, 9, 38, 39, 60])
def test_a_press_keeps_as_many_rows_as_it_may_and_attends_to_them(press: str, budget: int) -> None:
    request, got = searched(press, budget=budget)
    assert [len(rows) for rows in got["rows"]] == [min(budget + 1, 40)] * 3
    for query, head in enumerate(request["kv_head_of"]):
        rows = got["rows"][head]
        scores = 2.0 * (request["k"][rows, head].astype(np.float64) @ request["q"][query])
        weights = np.exp(scores - scores.max())
        np.testing.assert_allclose(
            got["out"][query], weights @ request["v"][rows, head] / weights.sum(), rtol=0, atol=2e-6
        )


def test_snapkv_reads_the_query_of_its_group() -> None:
    request, got = searched("SnapKvUnpooled")
    for head in range(3):
        scores = 2.0 * (
            request["k"][:, head].astype(np.float64) @ request["q"][np.equal(request["kv_head_of"], head)].T
        )
        weights = np.exp(scores - scores.max(0))
        order = np.argsort(-(weights / weights.sum(0)).mean(1)[:-1], kind="stable")[:9]
        assert got["rows"][head] == sorted([*order.tolist(), 39])


@pytest.mark.parametrize(
    "changes",
    [{"initial_rows": 1}, {"local_rows": 2}, {"v": drawn(9, 40, 3, 4)}, {"kv_head_of": [0, 0, 0, 1, 1, 2]}],
)
def test_what_a_press_cannot_be_asked_is_unsupported(changes: dict[str, Any]) -> None:
    with pytest.raises(Unsupported):
        searched("SnapKv", **changes)
