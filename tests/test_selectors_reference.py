"""Oracle and reference of the contract selectors share no code; on what Hypothesis writes they agree."""

from __future__ import annotations

import copy
import importlib.util
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from kvassay.adapters.base import Rejected
from kvassay.core import tensors
from kvassay.core.compare import close, numbers, tolerance
from kvassay.core.model import Verdict
from kvassay.corpus import load
from kvassay.corpus.build import expand
from kvassay.corpus.data import fixture_module, root
from kvassay.corpus.ops import find
from kvassay.corpus.reconcile import reconciliation
from kvassay.engines.reference import Reference, ReferenceStrict, ReferenceTorch
from kvassay.library import check
from kvassay_reference.selectors.quest import PackedExtrema

Oracle = fixture_module("selectors.oracle").Oracle
Rejection = fixture_module("_oracle").Rejection
Json = dict[str, Any]
FEW = settings(deadline=None, max_examples=60)
CLEAR = 1e-3
"""A gap at the cut that no rounding closes."""


def tensor(seed: int, *shape: int) -> Json:
    return {"dtype": "float32", "shape": list(shape), "recipe": {"name": "hash32-v1", "seed": seed}}


@st.composite
def histories(draw: st.DrawFn, *, values: bool = True) -> Json:
    """A small history with a head map of any kind."""
    heads, rows, d = draw(st.integers(1, 3)), draw(st.integers(1, 12)), draw(st.integers(1, 6))
    mapped = draw(st.lists(st.integers(0, heads - 1), min_size=1, max_size=5))
    seed = draw(st.integers(0, 2**31))
    request = {
        "q": tensor(seed, len(mapped), d),
        "k": tensor(seed + 1, rows, heads, d),
        "kv_head_of": mapped,
    }
    return {**request, "v": tensor(seed + 2, rows, heads, draw(st.integers(1, 4))), "scale": 0.5} if values else request


def asked(op: str, request: Json, engine: Any) -> Any:
    """The oracle's result and the engine's, or the reasons of both refusals."""
    method = find(op).method
    arrays = {
        name: tensors.expand(part) if isinstance(part, tensors.Recipe) else part
        for name, part in tensors.read(request).items()
    }
    try:
        right = getattr(Oracle(), method)(request)
    except Rejection as refusal:
        right = refusal.reason
    try:
        got = getattr(engine, method)(arrays)
    except Rejected as refusal:
        got = refusal.reason
    return right, got


def agree(op: str, request: Json, *exact: str, near: tuple[str, ...] = (), engine: Any = None) -> None:
    right, got = asked(op, request, engine or Reference())
    if isinstance(right, str) or isinstance(got, str):
        assert right == got
        return
    assume(all(gap > CLEAR for gap in right.get("gaps", ())))
    for name in exact:
        assert got[name] == right[name], name
    for name in near:
        want, found = numbers(tensors.read(right[name])), numbers(got[name])
        limits = tolerance(Oracle().bound(op, request, right, f"/{name}"), found.dtypes)
        difference = close(found.array, want.array, limits, name)
        assert difference.agrees, difference.message


@FEW
@given(histories(), st.data())
def test_sparq(history: Json, data: st.DataObject) -> None:
    rows, d = history["k"]["shape"][0], history["q"]["shape"][1]
    rule = data.draw(st.sampled_from(["sparq/paper", "sparq/code", "sparq/benchmark", "sparq/llama-cpp"]))
    asks = {
        "rule": rule,
        "channels": data.draw(st.integers(0, d + 1)),
        "rows": data.draw(st.integers(0, rows + 2)),
        "local": data.draw(st.integers(0, 3)),
    }
    if rule == "sparq/paper":
        asks["hidden"] = data.draw(st.lists(st.integers(0, rows), max_size=rows - 1, unique=True))
    assume(rule != "sparq/llama-cpp" or (asks["rows"] and asks["channels"]))
    keys = {name: history[name] for name in ("q", "k", "kv_head_of")}
    agree("sparq.select", {**keys, **asks}, "positions", near=("temperature", "proxy", "mass"))
    agree("sparq.decode", {**history, **asks, "correct": data.draw(st.booleans())}, "positions", near=("out", "lse"))


@FEW
@given(histories(), st.data())
def test_quest(history: Json, data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 5))
    keys = {name: history[name] for name in ("q", "k", "kv_head_of")}
    agree("quest.score", {**keys, "page_rows": size}, near=("bounds",))
    asks: Json = {
        "rule": data.draw(st.sampled_from(["quest/paper", "quest/code", "quest/kernel", "quest/harness"])),
        "scope": data.draw(st.sampled_from(["query-head", "kv-head"])),
        "last_page": data.draw(st.sampled_from(["ranked", "reserved"])),
        "budget_pages": data.draw(st.integers(1, 6)),
        "budget_tokens": data.draw(st.integers(0, 20)),
        "page_rows": size,
        "layer": data.draw(st.integers(0, 2)),
        "dense_layers": data.draw(st.integers(0, 1)),
    }
    agree("quest.decode", {**history, **asks}, "pages", near=("out", "lse"))


@FEW
@given(histories(values=False), st.integers(1, 5), st.data())
def test_appends_give_the_metadata_of_all_rows(history: Json, size: int, data: st.DataObject) -> None:
    k = tensors.expand(tensors.read(history)["k"])
    cut = data.draw(st.integers(0, len(k)))
    quest = Reference.selector_quest
    low, high = quest.metadata(k[:cut], size)
    stale = data.draw(st.integers(0, 2))
    spare = np.full((stale, *k.shape[1:]), 9.0, k.dtype)
    low, high, rows = quest.append(np.concatenate([low, -spare]), np.concatenate([high, spare]), cut, size, k[cut:])
    whole = quest.metadata(k, size)
    assert rows == len(k)
    assert np.array_equal(low, whole[0])
    assert np.array_equal(high, whole[1])


@FEW
@given(histories(values=False), st.integers(1, 4))
def test_no_product_lies_above_its_bound(history: Json, size: int) -> None:
    request = {**history, "page_rows": size}
    right, got = asked("quest.score", request, Reference())
    largest = numbers(tensors.read(right["largest"])).array
    assert np.all(got["bounds"] >= largest - 1e-5)


@pytest.mark.parametrize("pages", [0, 1, 1023, 1024, 1025, 2500])
@pytest.mark.parametrize("library", ["numpy", "array_api_strict", "torch"])
def test_packed_extrema_bound_as_given_ones_do(pages: int, library: str) -> None:
    xp = pytest.importorskip(library)
    draw = np.random.default_rng(pages)
    one, two = draw.integers(-9, 9, (2, pages, 3)).astype(np.float32)
    low, high = np.minimum(one, two), np.maximum(one, two)
    packed = PackedExtrema(xp.asarray(low), xp.asarray(high))
    for query in ([1.0, -2.0, 3.0], [-1.0, -1.0, -1.0], [0.0, 2.0, 0.0]):
        q = np.asarray(query, dtype=np.float32)
        found = np.asarray(packed.bounds(xp.asarray(q)))
        assert np.array_equal(found, np.maximum(q * low, q * high).sum(axis=1))  # small integers add exactly


@FEW
@given(histories(), st.data())
def test_infinigen(history: Json, data: st.DataObject) -> None:
    rows, heads, d = history["k"]["shape"]
    width = data.draw(st.integers(1, 4))
    columns = [sorted(data.draw(st.sets(st.integers(0, d - 1)))) for _ in range(heads)]
    rule = data.draw(
        st.sampled_from(["infinigen/paper", "infinigen/speed", "infinigen/accuracy", "infinigen/accuracy-llama"])
    )
    seed = data.draw(st.integers(0, 2**31))
    request = {
        **history,
        "x": tensor(seed, width),
        "w": tensor(seed + 1, width, len(history["kv_head_of"]), d),
        "b": tensor(seed + 2, len(history["kv_head_of"]), d),
        "columns": columns,
        "rule": rule,
        "alpha": data.draw(st.sampled_from([0.0, 0.3, 2.0])),
        "cap": data.draw(st.integers(1, rows + 1)),
    }
    if data.draw(st.booleans()):
        request["available"] = sorted(data.draw(st.sets(st.integers(0, rows - 1), min_size=1)))
    rehearsal = {name: request[name] for name in ("x", "w", "b", "k", "columns", "kv_head_of")}
    agree("infinigen.rehearse", rehearsal, near=("scores",))
    right, _ = asked("infinigen.rehearse", rehearsal, Reference())
    scores = numbers(tensors.read(right["scores"])).array
    edges = np.abs(scores.max(axis=1, keepdims=True) - scores - request["alpha"])
    assume(request["alpha"] == 0.0 or edges.min() > CLEAR)
    assume("available" not in request or request["alpha"] == 0.0)
    agree("infinigen.decode", request, "counts", "uncapped", "count", "capped", "positions", near=("out", "lse"))


@FEW
@given(histories(values=False), st.data())
def test_bases_and_columns(history: Json, data: st.DataObject) -> None:
    heads, d = history["k"]["shape"][1:]
    seed, count = data.draw(st.integers(0, 2**31)), data.draw(st.integers(1, 6))
    sample = tensor(seed, count, len(history["kv_head_of"]), d)
    given_basis = {"q": sample, "kv_head_of": history["kv_head_of"], "kv_heads": heads}
    agree("infinigen.basis", given_basis, near=("singular_values",))
    basis = Oracle().infinigen_basis(given_basis)["basis"]
    basis = {**basis, "dtype": "float32"}
    some = [sorted(data.draw(st.sets(st.integers(0, d - 1)))) for _ in range(heads)]
    agree("infinigen.score", {**history, "basis": basis, "tolerance": 1e-4}, near=("scores", "remainder"))
    agree("infinigen.score", {**history, "basis": basis, "tolerance": 1e-4, "columns": some}, near=("scores",))
    rule = data.draw(st.sampled_from(["infinigen/paper", "infinigen/speed", "infinigen/accuracy"]))
    asks = {"rule": rule, "q": sample, "k": history["k"], "kv_head_of": history["kv_head_of"]}
    agree("infinigen.columns", {**asks, "count": data.draw(st.integers(1, d))}, "columns", near=("evidence",))


POOL = st.fixed_dictionaries(
    {
        "policy": st.sampled_from(["counter", "fifo", "lru"]),
        "capacity": st.integers(1, 4),
        "protect_newest": st.integers(0, 3),
        "steps": st.lists(
            st.fixed_dictionaries(
                {"use": st.lists(st.integers(0, 8), max_size=3, unique=True), "append": st.integers(0, 3)}
            ),
            max_size=8,
        ),
    },
    optional={"counter_limit": st.integers(2, 4)},
)


@settings(deadline=None, max_examples=300)
@given(POOL)
def test_pools(request_: Json) -> None:
    right, got = asked("infinigen.pool", request_, Reference())
    assert right == got


@FEW
@given(st.sampled_from(["sparq", "quest", "infinigen"]), st.data())
def test_receipts(method: str, data: st.DataObject) -> None:
    """One or two numbers of a receipt are changed; both tell the same reason, or none."""
    document = copy.deepcopy(expand({"$base": f"selectors/{method}"}, root()))
    places = list(_numbers(document))
    for _ in range(data.draw(st.integers(0, 2))):
        *path, last = data.draw(st.sampled_from(places))
        node = document
        for part in path:
            node = node[part]
        node[last] = data.draw(st.integers(0, 9))
    right, got = asked(f"{method}.check", {"document": document}, Reference())
    assert right == got


def _numbers(node: Any, path: tuple[Any, ...] = ()) -> Any:
    """Places of whole numbers whose change keeps the document's shape."""
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in items:
        if isinstance(value, int) and not isinstance(value, bool) and key not in ("kv_heads", "page_rows", "rows"):
            yield (*path, key)
        yield from _numbers(value, (*path, key))


def test_every_published_figure_is_derived() -> None:
    figures = reconciliation("selectors")
    assert len(figures) >= 16
    assert [one.name for one in figures if not one.agrees] == []


def test_no_expected_selection_hangs_on_rounding() -> None:
    """At every cut the next score is equal by design, or further away than rounding reaches."""
    corpus = load()
    close_cuts = []
    for case in corpus.select(contract=["selectors"]):
        if case.kind.value == "mutation":
            continue
        for step in corpus.raw(case.id)["steps"]:
            method = find(step["op"]).method
            if "$bind" in str(step["request"]) or "rejects" in step["expect"] or "check" in method:
                continue
            gaps = getattr(Oracle(), method)(expand(step["request"], root())).get("gaps", ())
            close_cuts += [(case.id, gap) for gap in gaps if 1e-12 < abs(gap) < 2e-6]
    assert close_cuts == []


def test_the_corpus_passes_on_arrays_of_the_standard_alone() -> None:
    results = check(ReferenceStrict, contracts=["selectors"]).results
    wrong = [r for r in results if r.verdict not in (Verdict.PASS, Verdict.NOT_APPLICABLE)]
    assert [(r.case.id, r.finding and r.finding.message) for r in wrong] == []
    assert sorted(r.case.id for r in results if r.unsupported) == [
        "selectors/published/quest-t11-h2-d4-ps4-budget2-float16",
        "selectors/quest-metadata/half-precision",
    ]


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_the_corpus_passes_on_torch() -> None:
    report = check(ReferenceTorch, contracts=["selectors"])
    assert report.ok, report


def test_published_results_stand_as_they_were_returned() -> None:
    """The cases hold the published numbers themselves: bounds, outputs and scores are not the oracle's."""
    published = fixture_module("selectors.author").published_cases.METHODS
    corpus = load()
    seen = str([corpus.raw(case.id)["steps"] for case in corpus.select(case=["selectors/published/*"])])
    for method, member in (("sparq", "output"), ("quest", "output"), ("infinigen", "partial_scores")):
        for case in published[method]["cases"]:
            value = case["out"].get(member)
            while isinstance(value, list):
                value = value[0]
            assert value is None or repr(value) in seen, case["name"]
