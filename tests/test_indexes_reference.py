"""Oracle and reference of the contract indexes share no code; on what Hypothesis writes they agree."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import judges
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from judges import agree, engine
from kvassay.core.tensors import read
from kvassay.corpus.data import fixture_module
from kvassay.corpus.reconcile import reconciliation
from kvassay.corpus.schemas import problem
from kvassay.engines.reference import Reference, ReferenceStrict, ReferenceTorch
from kvassay_reference.indexes import magicpig, pq, rows

oracle = fixture_module("indexes.oracle")
common = fixture_module("indexes.oracle_common")
shared = fixture_module("_oracle")
author = fixture_module("indexes.author")
Json = dict[str, Any]
ROOT = Path(__file__).resolve().parents[1]

quarters = st.integers(-8, 8).map(lambda x: x / 4)


def tensors(*shape: int) -> st.SearchStrategy[Json]:
    """Float32 tensors of quarters."""
    count = math.prod(shape)
    flat = st.lists(quarters, min_size=count, max_size=count)
    return flat.map(lambda values: {"dtype": "float32", "shape": list(shape), "data": shared.nested(values, shape)})


def asked(judge: Any, op: str, request: Json) -> Any:
    """The result, or the reason of the refusal; a request that rests on a rounding is dropped."""
    try:
        return judges.asked(judge, op, request)
    except common.Ambiguous:
        assume(False)


def both(op: str, request: Json, kind: type[Reference] = Reference) -> None:
    """Ask both, and compare: refusals by reason, integers exactly, numbers within the oracle's bound."""
    judge = oracle.Oracle()
    want = asked(judge, op, request)
    agree(judge, op, request, asked(engine(kind), op, read(request)), want)


@settings(max_examples=60, deadline=None)
@given(keys=tensors(9, 2, 4), m=st.sampled_from([1, 2, 4]), init=st.permutations(range(9)), cap=st.integers(0, 6))
def test_both_build_the_same_codebooks(keys: Json, m: int, init: list[int], cap: int) -> None:
    request = {"keys": keys, "sink": 0, "m": m, "bits": 1, "init_rows": init[:2], "iterations": cap}
    both("pq.build", request)


@settings(max_examples=60, deadline=None)
@given(
    q=tensors(4, 4),
    centroids=tensors(2, 2, 4, 2),
    codes=st.lists(
        st.lists(st.lists(st.integers(0, 3), min_size=2, max_size=2), min_size=7, max_size=7), min_size=2, max_size=2
    ),
    sink=st.integers(0, 3),
    recent=st.integers(0, 5),
    count=st.integers(0, 8),
    data=st.data(),
)
def test_both_score_search_and_step_alike(
    q: Json, centroids: Json, codes: Any, sink: int, recent: int, count: int, data: st.DataObject
) -> None:
    heads = data.draw(st.sampled_from([[0, 0, 1, 1], [1, 0, 1, 0], [0, 0, 0, 0]]))
    index = {"centroids": centroids, "codes": codes, "kv_head_of": heads, "q": q}
    both("pq.score", index)
    regions = {"rule": "pqcache/paper", "first_row": 0, "sink": sink, "recent": recent, "top_k": count, "scale": 0.5}
    both("pq.search", {**index, **regions, "rows": 7})
    both("pq.step", {**index, **regions, "k": data.draw(tensors(7, 2, 4)), "v": data.draw(tensors(7, 2, 3))})


@settings(max_examples=60, deadline=None)
@given(
    selections=st.lists(st.lists(st.integers(0, 15), max_size=6), min_size=1, max_size=9),
    maps=st.lists(st.integers(1, 2), min_size=9, max_size=9),
    policy=st.sampled_from(["lru", "lfu"]),
    capacity=st.integers(0, 3),
)
def test_both_count_the_same_traffic(selections: Any, maps: Any, policy: str, capacity: int) -> None:
    several = [
        {"ids": ids, "generations": {"pool": 1, "row_map": max(maps[:i] or [1])}} for i, ids in enumerate(selections)
    ]
    request = {"block_rows": 4, "capacity_blocks": capacity, "policy": policy, "row_bytes": 16, "selections": several}
    both("pq.traffic", request)


@settings(max_examples=60, deadline=None)
@given(keys=tensors(10, 3), queries=tensors(4, 3), q=tensors(3), build=st.integers(1, 11), width=st.integers(1, 6))
def test_both_build_and_walk_the_same_graph(keys: Json, queries: Json, q: Json, build: int, width: int) -> None:
    request = {"keys": keys, "queries": queries, "k_build": build}
    both("bridge.build", request)
    made = asked(oracle.Oracle(), "bridge.build", request)
    if isinstance(made, dict):
        walk = {"q": q, "keys": keys, "edges": made["edges"], "entries": [0, 7], "width": width, "top_k": 3}
        both("bridge.search", walk)


@settings(max_examples=60, deadline=None)
@given(
    q=tensors(3, 4),
    k=tensors(9, 2, 4),
    v=tensors(9, 2, 2),
    found=st.lists(st.lists(st.integers(0, 9), max_size=6), min_size=3, max_size=3),
    sink=st.integers(0, 4),
    recent=st.integers(0, 4),
)
def test_both_attend_to_one_set(q: Json, k: Json, v: Json, found: Any, sink: int, recent: int) -> None:
    request = {"q": q, "k": k, "v": v, "scale": 0.5, "kv_head_of": [1, 0, 1]}
    both("bridge.step", {**request, "sink": sink, "recent": recent, "retrieved": found})
    both("squeezed.reduce", {**request, "selected": [sorted(set(ids)) for ids in found], "block_rows": 2})


@settings(max_examples=60, deadline=None)
@given(
    q=tensors(2, 3),
    keys=tensors(8, 3),
    labels=st.lists(st.integers(0, 3), min_size=8, max_size=8),
    parents=st.lists(st.integers(0, 1), min_size=4, max_size=4),
    thresholds=st.lists(st.sampled_from([0.0, 0.04, 0.09, 0.13, 0.4]), min_size=2, max_size=2),
    population=st.sampled_from(["all", "survivors"]),
)
def test_both_cluster_and_select_alike(
    q: Json, keys: Json, labels: list[int], parents: list[int], thresholds: list[float], population: str
) -> None:
    request = {"keys": keys, "clusters": 4, "labels": labels, "parents": parents, "groups": 2}
    both("squeezed.build", request)
    made = oracle.Oracle().squeezed_build(request)
    levels = {
        name: {**made[name], "centroids": {**made[name]["centroids"], "dtype": "float32"}}
        for name in ("fine", "coarse")
    }
    choice = {"q": q, "scale": 0.5, **levels, "parents": parents, "labels": labels, "thresholds": thresholds}
    both("squeezed.select", {**choice, "window": 2, "window_rule": "always", "population": population})


@settings(max_examples=60, deadline=None)
@given(x=tensors(5, 4), planes=tensors(3, 2, 4))
def test_both_hash_alike(x: Json, planes: Json) -> None:
    both("magicpig.hash", {"x": x, "projections": planes})


@settings(max_examples=40, deadline=None)
@given(
    cosine=st.floats(-1.0005, 1.0005),
    bits=st.integers(1, 10),
    tables=st.integers(1, 60),
    least=st.sampled_from([1, 2]),
)
def test_both_know_the_probability_over_its_whole_range(cosine: float, bits: int, tables: int, least: int) -> None:
    assume(cosine <= -1 or cosine > -0.9999)
    both("magicpig.probability", {"cosines": [cosine], "bits": bits, "tables": tables, "min_tables": least})


@settings(max_examples=60, deadline=None)
@given(
    q=tensors(2, 3),
    k=tensors(8, 1, 3),
    v=tensors(8, 1, 2),
    rule=st.tuples(st.integers(1, 4), st.integers(1, 12), st.sampled_from([1, 2])),
    epsilon=st.sampled_from([0.0, 1e-4]),
    drawn=st.lists(st.sets(st.integers(2, 7), max_size=4), min_size=2, max_size=2),
)
def test_both_estimate_alike(q: Json, k: Json, v: Json, rule: Any, epsilon: float, drawn: Any) -> None:
    near = [abs(c) for c in _cosines(q, k)]
    assume(all(c < 0.999 for c in near))
    names = dict(zip(("bits", "tables", "min_tables"), rule, strict=True))
    request = {"q": q, "k": k, "v": v, "scale": 0.5, "kv_head_of": [0, 0], "static": [0, 1], "epsilon": epsilon}
    both("magicpig.estimate", {**request, **names, "sampled": [sorted(ids) for ids in drawn]})


def _cosines(q: Json, k: Json) -> list[float]:
    keys = np.asarray(k["data"], np.float64)[:, 0]
    keys = keys - keys[2:].mean(axis=0)
    return [float(c) for row in q["data"] for c in magicpig.cosines_of(np.asarray(row), keys)]


@settings(max_examples=25, deadline=None)
@given(
    q=tensors(2),
    k=tensors(3, 2),
    v=tensors(3, 1),
    rule=st.tuples(st.integers(1, 2), st.integers(1, 3), st.sampled_from([1, 2])),
)
def test_both_enumerate_the_same_samples(q: Json, k: Json, v: Json, rule: Any) -> None:
    names = dict(zip(("bits", "tables", "min_tables"), rule, strict=True))
    request = {"q": q, "k": k, "v": v, "scale": 0.5, **names}
    want = asked(oracle.Oracle(), "magicpig.enumerate", request)
    got = asked(engine(), "magicpig.enumerate", read(request))
    if isinstance(want, str):
        assert got == want
        return
    likely = {tuple(one["ids"]): one["probability"] for one in want["outcomes"] if one["probability"] > 1e-12}
    assert {tuple(one["ids"]) for one in got["outcomes"] if one["probability"] > 1e-12} == set(likely)
    assert sum(likely.values()) == pytest.approx(1.0)
    assert got["expected"] == pytest.approx(want["expected"], abs=1e-9)
    assert got["nonempty"] == pytest.approx(want["nonempty"], abs=1e-12)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["append", "publish", "search", "validate", "gather", "release", "evict", "reclaim", "compact"]
        ),
        st.lists(st.integers(0, 5), max_size=3),
        st.integers(0, 4),
    ),
    min_size=5,
    max_size=40,
)


@settings(max_examples=120, deadline=None)
@given(STEPS)
def test_both_live_the_same_life(script: Any) -> None:
    judge, made = oracle.Oracle(), engine()
    for one in (judge, made):
        one.indexes_open({"pool": "p", "channels": 2, "value_channels": 1})
    stored, last = 0, {"ids": [], "index_generation": 0, "row_map_generation": 1, "lease": 0}
    for name, ids, number in script:
        request: Json = {"pool": "p"}
        if name == "append":
            data = [[float(stored + i), float(number)] for i in range(1 + len(ids))]
            request |= {"k": shared.literal("float32", data), "v": shared.literal("float32", [[x[0]] for x in data])}
            stored += len(data)
        elif name == "search":
            request |= {"q": shared.literal("float32", [1.0, 0.5]), "top_k": number}
        elif name in ("validate", "gather"):
            request |= {**last, "ids": ids or last["ids"]}
            if name == "validate":
                request["persistent"] = ids[:1]
                del request["lease"]
        elif name == "release":
            request["lease"] = last["lease"]
        elif name != "compact":
            request["ids"] = ids
        want = asked(judge, f"indexes.{name}", request)
        got = asked(made, f"indexes.{name}", read(request))
        if isinstance(want, str) or isinstance(got, str):
            assert got == want, (name, request)
            continue
        for member, value in want.items():
            if member in ("k", "v"):
                assert np.array_equal(got[member], read(value))
            elif member != "supports":
                assert got[member] == value, (name, member)
        if name == "search":
            last = {key: want[key] for key in last}


def leaves(node: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths of all that is neither object nor list."""
    if isinstance(node, dict):
        return [found for key, value in node.items() for found in leaves(value, (*path, key))]
    if isinstance(node, list):
        return [found for key, value in enumerate(node) for found in leaves(value, (*path, key))]
    return [path]


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(["base", "adversary"]), st.data())
def test_both_name_the_same_reason_for_a_record(name: str, data: st.DataObject) -> None:
    document = json.loads((ROOT / "fixtures" / "indexes" / f"{name}.json").read_text(encoding="utf-8"))
    every = leaves({key: value for key, value in document.items() if key != "format"})
    for path in data.draw(st.lists(st.sampled_from(every), min_size=1, max_size=2)):
        node = document
        for key in path[:-1]:
            node = node[key]
        value = node[path[-1]]
        if isinstance(value, int):
            node[path[-1]] = data.draw(st.sampled_from([value + 1, max(0, value - 1)]))
        elif isinstance(value, float):
            node[path[-1]] = data.draw(st.sampled_from([value + 1.0, value * 1.001, 0.0]))
        else:
            node[path[-1]] = data.draw(st.sampled_from(["device", "published", "softmax", "x"]))
    assume(problem(document, "urn:kvassay:indexes/record") is None)
    try:
        want = asked(oracle.Oracle(), "indexes.check", {"document": document})
    except (IndexError, ValueError, KeyError, TypeError, ZeroDivisionError, OverflowError):
        assume(False)
    assert asked(engine(), "indexes.check", {"document": document}) == want


def test_the_records_are_legal_and_the_figures_come_out() -> None:
    for document in map(author.base_documents().get, ("base", "adversary")):
        assert oracle.Oracle().indexes_check({"document": document}) == {}
        assert engine().indexes_check({"document": document}) == {}
    figures = reconciliation("indexes")
    assert len(figures) >= 7
    assert all(figure.agrees for figure in figures)


def test_every_selection_of_the_adversary_misses_the_best_row() -> None:
    document = author.base_documents()["adversary"]
    scores = [sum(x * y for x, y in zip(document["query"]["q"], key, strict=True)) for key in document["pool"]["keys"]]
    best = scores.index(max(scores))
    for method in ("pq", "bridge", "squeezed", "magicpig"):
        assert best not in document[method]["gather"]["ids"]
        assert document[method]["errors"]["omitted_mass"] > 0.5


def test_mutations_are_as_many_as_the_golden_figures_ask_for() -> None:
    golden = json.loads((ROOT / "fixtures" / "indexes" / "golden-figures.json").read_text(encoding="utf-8"))
    mutations = [case for case in author.book.cases if case["kind"] == "mutation"]
    assert len(mutations) >= golden["mutations_at_least"]
    assert {case["mutation"]["base"] for case in mutations} == {"indexes/base", "indexes/adversary"}


@pytest.mark.parametrize("count", [0, 1, 7, 128])
@pytest.mark.parametrize("total", [1, 100, 70_000, 200_001])
def test_the_best_of_many_are_the_best(count: int, total: int) -> None:
    scores = np.random.default_rng(total).integers(0, 5000, total).astype(np.float32)
    want = [int(i) for i in np.argsort(-scores, kind="stable")[:count]]
    assert rows.top(scores, count) == want


@pytest.mark.parametrize("parts", [1, 2, 3, 4, 5])
def test_packed_codes_look_up_what_single_ones_do(parts: int) -> None:
    draw = np.random.default_rng(parts)
    table = draw.integers(-64, 64, (parts, 256)).astype(np.float32)
    codes = draw.integers(0, 256, (5000, parts))
    packed = pq.PackedCodes(codes.astype(np.uint8), 256).scores(table)
    assert np.array_equal(packed, pq.look_up(table, codes))


@pytest.mark.parametrize("total", [0, 1, 100, 1024, 40_000, 100_001])
@pytest.mark.parametrize("count", [0, 1, 7, 128, 40_000])
@pytest.mark.parametrize("parts", [1, 2, 3])
def test_a_search_finds_the_largest_sums(total: int, count: int, parts: int) -> None:
    draw = np.random.default_rng(total + parts)
    table = draw.integers(-40, 40, (parts, 256)).astype(np.float32)  # many rows tie
    codes = draw.integers(0, 256, (total, parts))
    want = np.argsort(-pq.look_up(table, codes), kind="stable")[:count]
    assert pq.search(table, pq.PackedCodes(codes, 256), count) == want.tolist()


@pytest.mark.parametrize("library", ["array_api_strict", "torch"])
def test_a_search_finds_the_same_in_other_arrays(library: str) -> None:
    xp = pytest.importorskip(library)
    draw = np.random.default_rng(5)
    table = draw.integers(-40, 40, (4, 256)).astype(np.float32)
    codes = draw.integers(0, 256, (70_000, 4))
    found = pq.search(xp.asarray(table), pq.PackedCodes(xp.asarray(codes), 256), 30)
    assert found == pq.search(table, pq.PackedCodes(codes, 256), 30)


def test_probabilities_do_not_cancel() -> None:
    cosines = np.asarray([-0.5, -0.6, -0.9, -0.99])
    u, log_u = magicpig.inclusion(cosines, magicpig.Tables(10, 150, 2))
    assert np.all(u > 0)
    assert np.allclose(np.log(u), log_u, rtol=1e-12)
    single, _ = magicpig.inclusion(cosines.astype(np.float32), magicpig.Tables(10, 150, 2))
    assert np.allclose(single, u, rtol=1e-3)


@pytest.mark.parametrize("kind", [ReferenceTorch, ReferenceStrict])
@settings(max_examples=10, deadline=None)
@given(q=tensors(2, 4), k=tensors(7, 1, 4), v=tensors(7, 1, 2), x=tensors(4, 4), planes=tensors(2, 3, 4))
def test_other_arrays_give_the_same(kind: Any, q: Json, k: Json, v: Json, x: Json, planes: Json) -> None:
    pytest.importorskip("torch" if kind is ReferenceTorch else "array_api_strict")
    request = {"q": q, "k": k, "v": v, "scale": 0.5, "kv_head_of": [0, 0]}
    both("bridge.step", {**request, "sink": 1, "recent": 1, "retrieved": [[3, 4], [2]]}, kind)
    both("bridge.exact", {"q": q, "k": k, "kv_head_of": [0, 0], "rows": [1, 6], "top_k": 3}, kind)
    both("magicpig.hash", {"x": x, "projections": planes}, kind)
    both("pq.build", {"keys": k, "sink": 0, "m": 2, "bits": 1, "init_rows": [0, 3], "iterations": 5}, kind)
    both("squeezed.build", {"keys": x, "clusters": 2, "labels": [0, 1, 1, 0], "parents": [0, 0], "groups": 1}, kind)
    both("squeezed.score", {"q": q, "centroids": x, "sizes": [1, 2, 0, 4], "scale": 0.5}, kind)
    both("magicpig.probability", {"cosines": [0.5, 0.0, -0.5], "bits": 4, "tables": 9, "min_tables": 2}, kind)
