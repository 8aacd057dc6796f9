"""Oracle and reference of the contract memory share no code; on what Hypothesis writes they agree."""

from __future__ import annotations

import copy
import itertools
import json
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import array_api_strict
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from judges import engine, outcome
from kvassay.core import tensors
from kvassay.core.compare import close, numbers
from kvassay.corpus.data import fixture_module
from kvassay.corpus.reconcile import reconciliation
from kvassay.corpus.schemas import problem
from kvassay.engines.reference import Reference, ReferenceTorch
from kvassay_reference.memory import clusters, events, losses, units

oracle = fixture_module("memory.oracle")
shared = fixture_module("_oracle")
ROOT = Path(__file__).resolve().parents[1]
Json = dict[str, Any]

# Eighths are exact in every dtype, and their products tie often.
coarse = st.integers(-16, 16).map(lambda n: n / 8)
fine = st.floats(-2, 2, width=32, allow_subnormal=False)


def tensor(draw: st.DrawFn, shape: tuple[int, ...], of: st.SearchStrategy[float] = coarse) -> Json:
    count = math.prod(shape)
    values = draw(st.lists(of, min_size=count, max_size=count))
    return {"dtype": "float32", "shape": list(shape), "data": np.reshape(values, shape).tolist() if count else []}


def hashed(seed: int, *shape: int) -> Json:
    """Values without ties, written out."""
    recipe = {"dtype": "float32", "shape": list(shape), "recipe": {"name": "hash32-v1", "seed": seed}}
    return {"dtype": "float32", "shape": list(shape), "data": shared.rows(recipe)}


@st.composite
def head_maps(draw: st.DrawFn) -> tuple[int, list[int]]:
    kv_heads = draw(st.integers(1, 3))
    return kv_heads, draw(st.lists(st.integers(0, kv_heads - 1), min_size=1, max_size=4))


def method(op: str) -> str:
    return op.replace(".", "_")


def agree(op: str, request: Json, got: Any, want: Any, judge: Any) -> None:
    """Refusals for one reason; results with equal integers, and numbers within the oracle's bound."""
    if isinstance(want, str) or isinstance(got, str):
        assert got == want
        return

    def walk(a: Any, b: Any, at: str) -> None:
        if isinstance(b, dict) and "dtype" in b:
            b = shared.rows(b)
        if isinstance(b, dict):
            assert set(a) == set(b)
            for name in b:
                walk(a[name], b[name], f"{at}/{name}")
        elif isinstance(b, list) and b and all(isinstance(x, dict) for x in b):
            assert len(a) == len(b)
            for i, (x, y) in enumerate(zip(a, b, strict=True)):
                walk(x, y, f"{at}/{i}")
        elif _floats(b):
            limits = judge.bound(op, request, want, at)["float64"]
            left, right = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
            assert left.shape == right.shape
            if right.size:
                found = close(numbers(left).array, numbers(right).array, limits)
                assert found.agrees, (at, found.message)
        else:
            plain = a.tolist() if isinstance(a, np.ndarray) else a
            assert json.loads(json.dumps(plain)) == b, at

    walk(got, {name: value for name, value in want.items() if name != "supports"}, "")


def _floats(value: Any) -> bool:
    if isinstance(value, list):
        return any(_floats(item) for item in value)
    return isinstance(value, float)


def both(op: str, request: Json, kind: type[Reference] = Reference) -> Any:
    assert problem(request, f"urn:kvassay:op:{op}#/$defs/request") is None
    judge = oracle.Oracle()
    want = outcome(getattr(judge, method(op)), request)
    got = outcome(getattr(engine(kind), method(op)), tensors.read(request))
    agree(op, request, got, want, judge)
    return want


# --- units ---------------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_both_build_units_alike(data: st.DataObject) -> None:
    kv_heads, heads = data.draw(head_maps())
    rows, width = data.draw(st.integers(1, 14)), data.draw(st.integers(1, 3))
    request = {
        "q": tensor(data.draw, (rows, len(heads), width)),
        "k": tensor(data.draw, (rows, kv_heads, width)),
        "kv_head_of": heads,
        "initial_rows": data.draw(st.integers(0, 3)),
        "local_rows": data.draw(st.integers(1, 4)),
        "unit_rows": data.draw(st.integers(1, 3)),
        "representatives": data.draw(st.integers(0, 3)),
    }
    # A mean over three rows or heads rounds, and what ties exactly may not tie then.
    assume(request["local_rows"] in (1, 2, 4))
    assume(all(heads.count(head) in (0, 1, 2, 4) for head in range(kv_heads)))
    both("infllm.build", request)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_both_look_units_up_alike(data: st.DataObject) -> None:
    kv_heads, heads = data.draw(head_maps())
    width = data.draw(st.integers(1, 3))
    request = {
        "q": tensor(data.draw, (data.draw(st.integers(1, 3)), len(heads), width)),
        "representatives": tensor(
            data.draw, (data.draw(st.integers(1, 6)), data.draw(st.integers(1, 3)), kv_heads, width)
        ),
        "kv_head_of": heads,
        "top_units": data.draw(st.integers(0, 7)),
        "sharing": data.draw(st.sampled_from(["layer", "query_head"])),
    }
    both("infllm.lookup", request)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_both_attend_to_recalled_units_alike(data: st.DataObject) -> None:
    kv_heads, heads = data.draw(head_maps())
    rows = data.draw(st.integers(1, 12))
    request = {
        "q": tensor(data.draw, (len(heads), 4), fine),
        "k": tensor(data.draw, (rows, kv_heads, 4), fine),
        "v": tensor(data.draw, (rows, kv_heads, 2), fine),
        "kv_head_of": heads,
        "scale": 0.5,
        "initial_rows": data.draw(st.integers(0, 3)),
        "local_rows": data.draw(st.integers(1, 4)),
        "unit_rows": data.draw(st.integers(1, 3)),
        "units": [data.draw(st.lists(st.integers(0, 4), max_size=3))],
        "rope_base": data.draw(st.sampled_from([None, 100.0, 10000.0])),
    }
    both("infllm.attend", request)


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_both_keep_the_same_units(data: st.DataObject) -> None:
    scored = data.draw(st.booleans())
    steps = []
    for _ in range(data.draw(st.integers(0, 6))):
        wanted = data.draw(st.lists(st.integers(0, 5), max_size=4))
        scores = [data.draw(st.integers(0, 8)) / 8 for _ in wanted] if scored else []
        steps.append({"units": wanted, "scores": scores})
    request = {
        "policy": "score" if scored else "lru",
        "capacity": data.draw(st.integers(0, 4)),
        "decay": data.draw(st.sampled_from([0.5, 1.0])) if scored else 1.0,
        "steps": steps,
        **({"rule": "infllm/code"} if data.draw(st.booleans()) else {}),
    }
    both("infllm.cache", request)


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_both_stream_alike(data: st.DataObject) -> None:
    kv_heads, heads = data.draw(head_maps())
    chunks = data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=5))
    rows, local = sum(chunks), data.draw(st.integers(2, 5))
    seed = data.draw(st.integers(0, 10**6))
    base: Json = {
        "q": hashed(seed, rows, len(heads), 4),
        "k": hashed(seed + 1, rows, kv_heads, 4),
        "v": hashed(seed + 2, rows, kv_heads, 4),
        "kv_head_of": heads,
        "initial_rows": data.draw(st.integers(0, 3)),
        "local_rows": local,
        "representatives": data.draw(st.integers(1, 2)),
        "step_rows": data.draw(st.integers(1, local)),
        "chunks": chunks,
        "rope_base": data.draw(st.sampled_from([None, 10000.0])),
    }
    of_units = {"unit_rows": 2, "top_units": data.draw(st.integers(0, 2)), "cached_units": 2}
    sharing = {"sharing": data.draw(st.sampled_from(["layer", "query_head"]))}
    rule = {"rule": "infllm/code"} if data.draw(st.booleans()) else {}
    both("infllm.stream", base | of_units | sharing | rule)
    least = data.draw(st.integers(1, 2))
    of_events = {
        "surprise": hashed(seed + 9, rows),
        "gamma": data.draw(st.sampled_from([0.0, 0.5, 1.0])),
        "minimum_rows": least,
        "maximum_rows": least + data.draw(st.integers(0, 2)),
        "memory_rows": data.draw(st.integers(0, 9)),
        "contiguity": data.draw(st.sampled_from([0.25, 0.5, 2.0, 4.0])),
        "rule": "emllm/code",
    }
    both("emllm.stream", base | of_events)


# --- events --------------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_both_mark_the_same_rows(data: st.DataObject) -> None:
    rows = data.draw(st.integers(0, 12))
    request = {
        "surprise": tensor(data.draw, (rows,), st.floats(0, 9, width=32)),
        "window": data.draw(st.integers(1, 5)),
        "gamma": data.draw(st.sampled_from([-0.5, 0.25, 1.0])),
        "ddof": data.draw(st.integers(0, 1)),
        **({"rule": "emllm/chunk"} if data.draw(st.booleans()) else {}),
    }
    want = oracle.Oracle().emllm_boundaries(request) if request["window"] > request["ddof"] else None
    values = shared.flat(request["surprise"])
    if want is not None:  # a constant window has a deviation of a rounding, or none
        near = (abs(v - t) for v, t in zip(values, want["thresholds"], strict=True) if t is not None)
        assume(all(gap > 1e-9 for gap in near))
    both("emllm.boundaries", request)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_both_measure_a_cut_alike(data: st.DataObject) -> None:
    size = data.draw(st.integers(2, 7))
    whole = st.integers(1, 16).map(lambda n: n / 8)
    request = {
        "adjacency": tensor(data.draw, (size, size), whole),
        "cut": data.draw(st.integers(0, size)),
        "metric": data.draw(st.sampled_from(["modularity", "conductance", "ratio"])),
        **({"rule": "emllm/code"} if data.draw(st.booleans()) else {}),
    }
    both("emllm.quality", request)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_both_refine_alike(data: st.DataObject) -> None:
    rows, heads = data.draw(st.integers(2, 14)), data.draw(st.integers(1, 2))
    request = {
        "k": hashed(data.draw(st.integers(0, 10**6)), rows, heads, 3),
        "candidates": sorted(data.draw(st.sets(st.integers(1, rows - 1), max_size=4))),
        "metric": data.draw(st.sampled_from(["modularity", "conductance", "ratio"])),
        "similarity": data.draw(st.sampled_from(["clipped", "raw"])),
        "minimum_rows": data.draw(st.integers(1, 3)),
        "radius": data.draw(st.integers(0, 5)),
        **({"rule": "emllm/code"} if data.draw(st.booleans()) else {}),
    }
    want = oracle.Oracle().emllm_refine(request)
    got = engine().emllm_refine(tensors.read(request))
    assert got["searched"] == want["searched"]
    assert got["boundaries"] == want["boundaries"]


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_both_seal_alike(data: st.DataObject) -> None:
    first = data.draw(st.integers(0, 5))
    end = first + data.draw(st.integers(0, 18))
    request = {
        "boundaries": sorted(data.draw(st.lists(st.integers(first, end), max_size=5))),
        "rows": [first, end],
        "minimum_rows": data.draw(st.integers(0, 4)),
        "maximum_rows": data.draw(st.integers(1, 6)),
        "tail": data.draw(st.sampled_from(["open", "closed"])),
    }
    want = both("emllm.seal", request)
    if not isinstance(want, str):
        edges = [*want["events"], want["open"]]
        assert edges[0][0] == first
        assert edges[-1][1] == end
        assert all(a[1] == b[0] for a, b in pairwise(edges))


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_both_retrieve_alike(data: st.DataObject) -> None:
    kv_heads, heads = data.draw(head_maps())
    sizes = data.draw(st.lists(st.integers(1, 4), max_size=7))
    first = data.draw(st.integers(0, 9))
    ends = [first + sum(sizes[: i + 1]) for i in range(len(sizes))]
    request = {
        "q": tensor(data.draw, (data.draw(st.sampled_from([1, 2, 4])), len(heads), 2)),
        "summaries": {**tensor(data.draw, (len(sizes), kv_heads, 2)), "shape": [len(sizes), kv_heads, 2]},
        "kv_head_of": heads,
        "events": [[end - size, end] for end, size in zip(ends, sizes, strict=True)],
        "similarity_tokens": data.draw(st.integers(0, 10)),
        "contiguity_tokens": data.draw(st.integers(0, 6)),
        "radius": data.draw(st.integers(0, 3)),
        "side": data.draw(st.sampled_from(["after", "before"])),
        "crossing": data.draw(st.sampled_from(["closest", "within"])),
    }
    want = both("emllm.retrieve", request)
    assert len(set(want["events"])) == len(want["events"])
    assert want["tokens"] == sum(sizes[event] for event in want["events"])
    if request["crossing"] == "within":
        assert sum(sizes[event] for event in want["similarity"]) <= request["similarity_tokens"]
    assert sum(sizes[event] for event in want["contiguity"]) <= request["contiguity_tokens"]


# --- clusters ------------------------------------------------------------------------------------------------------


def seeded(data: st.DataObject, *shape: int) -> Json:
    """Values that no other call has: keys that stand twice make centroids that differ by a rounding."""
    turn = vars(data).setdefault("seeded", itertools.count())
    return hashed(100 * data.draw(st.integers(0, 10**7)) + next(turn), *shape)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_both_cluster_append_and_select_alike(data: st.DataObject) -> None:
    kv_heads, heads = data.draw(head_maps())
    rows, window = data.draw(st.integers(1, 16)), data.draw(st.integers(1, 5))
    rule = {"rule": "clusterkv/code"} if data.draw(st.booleans()) else {}
    request = {
        "k": seeded(data, rows, kv_heads, 3),
        "first_position": data.draw(st.integers(0, 4)),
        "initial": data.draw(st.lists(st.integers(0, rows), min_size=1, max_size=4)),
        "iterations": data.draw(st.integers(0, 6)),
        **rule,
    }
    want = both("clusterkv.build", request)
    assume(not isinstance(want, str))
    names = ("centroids", "sizes", "prefix_sums", "members")
    index = {"generation": 3, **{name: want[name] for name in names}}
    asked_next = {
        "index": index,
        "k": seeded(data, window, kv_heads, 3),
        "first_position": request["first_position"] + rows,
        "window_rows": window,
        "initial": [data.draw(st.integers(0, window - 1))],
        "iterations": 5,
        **rule,
    }
    grown = both("clusterkv.append", asked_next)
    for sizes, sums, members in zip(grown["sizes"], grown["prefix_sums"], grown["members"], strict=True):
        assert sums[-1] == len(members) == sum(sizes) == rows + window
        assert sorted(members) == list(range(request["first_position"], request["first_position"] + rows + window))
    selection = {
        "q": seeded(data, len(heads), 3),
        "index": {name: grown[name] for name in names},
        "kv_head_of": heads,
        "budget": data.draw(st.integers(0, rows + window + 2)),
        "sink_rows": data.draw(st.integers(0, 2)),
        "sharing": data.draw(st.sampled_from(["kv_head", "query_head"])),
        **(
            {"rule": data.draw(st.sampled_from(["clusterkv/code", "clusterkv/pad"]))}
            if data.draw(st.booleans())
            else {}
        ),
    }
    found = both("clusterkv.select", selection)
    if "rule" not in selection:
        assert {len(line) for line in found["rows"]} == {min(selection["budget"], rows + window)}


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_both_live_alike(data: st.DataObject) -> None:
    judge, subject = oracle.Oracle(), engine()
    parts = ["centroids", "sizes", "prefix_sums", "members", "authority", "map"]

    def call(op: str, request: Json) -> None:
        want = outcome(getattr(judge, method(op)), request)
        got = outcome(getattr(subject, method(op)), tensors.read(request))
        agree(op, request, got, want, judge)

    rows = data.draw(st.integers(4, 9))
    call(
        "clusterkv.open",
        {
            "k": seeded(data, rows, 2, 3),
            "v": seeded(data, rows, 2, 2),
            "kv_head_of": [1, 0, 1],
            "scale": 1.0,
            "sink_rows": data.draw(st.integers(0, 3)),
            "initial": [rows - 1, 2, 3],
            "iterations": 4,
            "window_rows": 3,
            "window_initial": [0, 2],
            "cache_generation": 5,
        },
    )
    for _ in range(data.draw(st.integers(1, 9))):
        generation = data.draw(st.integers(1, 4))
        step = data.draw(st.sampled_from(["decode", "stage", "offload", "publish", "publish", "discard", "query"]))
        if step == "decode":
            count = data.draw(st.integers(1, 4))
            call("clusterkv.decode", {"k": seeded(data, count, 2, 3), "v": seeded(data, count, 2, 2)})
        elif step == "offload":
            call("clusterkv.offload", {"end": data.draw(st.integers(0, 20)), "cache_generation": 5})
        elif step == "publish":
            complete = parts if data.draw(st.integers(0, 4)) else parts[1:]
            call("clusterkv.publish", {"generation": generation, "complete": complete})
        elif step == "discard":
            call("clusterkv.discard", {"generation": generation})
        elif step == "stage":
            call("clusterkv.stage", {})
        else:
            call("clusterkv.query", {"q": seeded(data, 3, 3), "generation": generation, "budget": 4})
        call("clusterkv.status", {})


# --- losses and documents ------------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_both_lose_alike(data: st.DataObject) -> None:
    kv_heads, heads = data.draw(head_maps())
    rows, first = data.draw(st.integers(1, 8)), data.draw(st.integers(0, 3))
    per = data.draw(st.sampled_from(["all", "kv_head", "query_head"]))
    lists = {"all": 1, "kv_head": kv_heads, "query_head": len(heads)}[per]
    position = st.integers(max(0, first - 1), first + rows)
    request = {
        "q": tensor(data.draw, (len(heads), 3), fine),
        "k": tensor(data.draw, (rows, kv_heads, 3), fine),
        "v": tensor(data.draw, (rows, kv_heads, 2), fine),
        "kv_head_of": heads,
        "scale": 0.75,
        "first_position": first,
        "committed": first + rows,
        "per": per,
        "support": [data.draw(st.lists(position, max_size=4, unique=data.draw(st.booleans()))) for _ in range(lists)],
    }
    want = both("memory.attend", request)
    if not isinstance(want, str):
        values = shared.rows(request["v"])
        largest = max(math.hypot(*line) for row in values for line in row)
        for mass, error in zip(want["retained_mass"], want["output_error"], strict=True):
            assert 0 < mass <= 1 + 1e-12
            assert error <= 2 * (1 - mass) * largest + 1e-9


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_both_name_the_same_reason_for_a_document(data: st.DataObject) -> None:
    op, name = data.draw(st.sampled_from([("memory.admit", "pool_document"), ("memory.audit", "rows_document")]))
    document = copy.deepcopy(getattr(oracle, name)())
    sections = [key for key in document if key not in ("format", "pool")]
    for _ in range(data.draw(st.integers(0, 2))):
        node: Any = document
        key: Any = data.draw(st.sampled_from(sections))
        while isinstance(node[key], dict | list) and node[key]:
            node = node[key]
            key = data.draw(st.sampled_from(sorted(node) if isinstance(node, dict) else range(len(node))))
        node[key] = data.draw(beside(node[key]))
    oracle.reseal(document, "")
    if problem(document, f"urn:kvassay:memory/{'pool' if name.startswith('pool') else 'rows'}") is None:
        want = outcome(getattr(oracle.Oracle(), method(op)), {"document": document})
        assert outcome(getattr(engine(), method(op)), {"document": copy.deepcopy(document)}) == want


def beside(value: Any) -> st.SearchStrategy[Any]:
    """Values that lie close to one."""
    if isinstance(value, bool) or value is None:
        return st.sampled_from([None, 0, 1])
    if isinstance(value, int):
        return st.sampled_from([value - 1, value + 1, 0, value])
    if isinstance(value, float):
        return st.sampled_from([value + 0.5, value - 0.25, value])
    if isinstance(value, str):
        return st.sampled_from([value, "other", "closest", "before", "conductance"])
    return st.just(value)


# --- the rest ------------------------------------------------------------------------------------------------------


def test_every_published_figure_is_derived() -> None:
    figures = reconciliation("memory")
    assert len(figures) > 20
    assert [figure.name for figure in figures if not figure.agrees] == []


def test_there_are_as_many_mutations_as_were_asked_for() -> None:
    wanted = json.loads((ROOT / "fixtures/memory/golden-figures.json").read_text())
    for group, key in (("admit", "mutations_at_least"), ("audit", "mutations_by_rows_at_least")):
        cases = json.loads((ROOT / f"fixtures/memory/cases/{group}.json").read_text())["cases"]
        assert sum(case["kind"] == "mutation" for case in cases) >= wanted[key]


def test_published_vectors_are_all_there() -> None:
    cases = json.loads((ROOT / "fixtures/memory/cases/published.json").read_text())["cases"]
    sources = dict.fromkeys(("InfLLM", "EM-LLM", "ClusterKV"), 0)
    for case in cases:
        sources[next(name for name in sources if name in case["given"])] += 1
    assert sources == {"InfLLM": 4, "EM-LLM": 21, "ClusterKV": 6}


@pytest.mark.parametrize("name", ["build", "lookup", "attend", "select", "build-clusters", "retrieve", "attend-rows"])
def test_torch_arrays_give_the_same(name: str) -> None:
    pytest.importorskip("torch")
    for case in json.loads((ROOT / f"fixtures/memory/cases/{name}.json").read_text())["cases"][:4]:
        for step in case["steps"]:
            if "rejects" not in step["expect"] and "rule" not in step["request"]:
                both(step["op"], step["request"], ReferenceTorch)


def test_the_hot_paths_need_nothing_but_the_standard() -> None:
    xp = array_api_strict
    q, k = xp.asarray(np.random.default_rng(1).normal(size=(3, 4))), xp.asarray(np.ones((6, 2, 4)))
    table = xp.reshape(xp.astype(xp.arange(64), xp.float64), (4, 2, 2, 4))
    scores = units.lookup_scores(q[None, ...], table, [0, 1, 1])
    assert units.choose_units(scores, 2)
    assert float(events.quality(events.similarity(k), 2, events.METRICS["modularity"]) or 0.0) == pytest.approx(0.0)
    found = clusters.build(k, [0, 1], 3)
    index = clusters.index_of(found, 5)
    assert clusters.select(q, index, [0, 1, 1], 3).rows == [[5, 6, 7], [5, 6, 7]]
    assert losses.search(q, k, [0, 1, 1], scale=1.0, initial_rows=1, local_rows=1, budget=2) == [[0, 1, 2, 5]] * 2


def test_large_indexes_are_searched_without_a_loop_over_rows() -> None:
    rng = np.random.default_rng(2)
    table = rng.normal(size=(20_000, 4, 2, 64)).astype(np.float32)
    q = rng.normal(size=(1, 8, 64)).astype(np.float32)
    heads = [0] * 4 + [1] * 4
    chosen = units.choose_units(units.lookup_scores(q, table, heads).sum(axis=0)[None, :], 16)
    direct = np.einsum("hd,mrhd->m", q[0], table[:, :, heads])
    assert chosen[0] == sorted(np.argsort(-direct, kind="stable")[:16].tolist())
    k = rng.normal(size=(20_000, 1, 32)).astype(np.float32)
    index = clusters.index_of(clusters.build(k, list(range(0, 20_000, 500)), 3), 16)
    selected = clusters.select(q[0, :2, :32], index, [0, 0], 1_000)
    assert len(set(selected.rows[0])) == 1_000
    assert int(index.sizes.sum()) == 20_000
