"""Oracle and reference of the contract offload share no code; on what Hypothesis writes they agree."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from judges import engine, outcome
from kvassay.core.compare import close, numbers
from kvassay.corpus.data import fixture_module
from kvassay.corpus.reconcile import reconciliation
from kvassay.corpus.schemas import problem

oracle = fixture_module("offload.oracle")
Json = dict[str, Any]

POSITIONS = 40
milliseconds = st.sampled_from([0.0, 0.1, 0.3, 1.0, 2.5]) | st.floats(0, 10, allow_subnormal=False)
bandwidths = st.builds(dict, value=st.sampled_from([0.001, 0.5, 3.0, 24.0]), unit=st.sampled_from(["GiB/s", "GB/s"]))


@st.composite
def spans(draw: st.DrawFn) -> list[list[int]]:
    """Ascending spans; sometimes with two ends swapped, so that they are not."""
    ends = sorted(draw(st.sets(st.integers(0, POSITIONS + 1), max_size=6)))
    found = [[a, b] for a, b in zip(ends[::2], ends[1::2], strict=False)]
    return found[::-1] if draw(st.integers(0, 19)) == 0 else found


@st.composite
def layers(draw: st.DrawFn, tokens: int) -> Json:
    """One layer over a short history."""
    layer = copy.deepcopy(oracle.base_plan()["layers"][0])
    widths = draw(st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(1, 2), st.integers(1, 4)))
    names = ("kv_heads", "channels", "k_item_bytes", "v_item_bytes")
    layer["row"] = {"form": "dense", **dict(zip(names, widths, strict=True))}
    if draw(st.booleans()):
        layer["row"] = {"form": "declared", "row_bytes": draw(st.integers(1, 50))}
    layer["wire_block_bytes"] = tokens * oracle.row_bytes(layer["row"]) + (draw(st.integers(0, 19)) == 0)
    layer["required"], layer["resident"] = draw(spans()), draw(spans())
    layer["fixed"] = {name: draw(milliseconds) for name in layer["fixed"]}
    layer["compute_ms"] = draw(milliseconds)
    return dict(layer)


@st.composite
def plans(draw: st.DrawFn) -> Json:
    """A plan of few layers; most are legal."""
    plan = oracle.base_plan()
    tokens, gpu = draw(st.sampled_from([(1, 1), (4, 2), (8, 8), (6, 4), (64, 16)]))
    plan["positions"] = draw(st.integers(POSITIONS - 1, POSITIONS + 1))
    plan["new_positions"] = draw(st.integers(0, 9))
    plan["accepted_positions"] = max(0, plan["new_positions"] - draw(st.integers(-1, 3)))
    plan["block_tokens"], plan["gpu_block_tokens"] = tokens, gpu
    plan["descriptor_bytes"], plan["protocol_bytes"] = draw(st.integers(0, 9)), draw(st.integers(0, 9))
    plan["codec"]["name"] = draw(st.sampled_from(["identity", "entropy"]))
    plan["codec"]["exactness"] = draw(st.sampled_from(["lossless", "lossy"]))
    plan["link"] = {
        "h2d": draw(bandwidths),
        "d2h": draw(bandwidths),
        "duplex": draw(st.sampled_from(["independent", "shared"])),
    }
    plan["slots"], plan["staging"] = draw(st.integers(1, 5)), draw(st.sampled_from(["variable", "fixed"]))
    plan["scheduler_queue_ms"] = draw(milliseconds)
    plan["layers"] = draw(st.lists(layers(tokens), max_size=5))
    return dict(plan)


def agree(op: str, request: Json, got: Any, want: Any) -> None:
    """Refusals for one reason; results with equal integers and text, and floats within the oracle's bound."""
    if isinstance(want, str) or isinstance(got, str):
        assert got == want
        return
    limits = oracle.Oracle().bound(op, request, want, "")["float64"]

    def walk(a: Any, b: Any) -> None:
        if isinstance(b, dict):
            assert a.keys() == b.keys()
            for name in b:
                walk(a[name], b[name])
        elif isinstance(b, list):
            assert len(a) == len(b)
            for x, y in zip(a, b, strict=True):
                walk(x, y)
        elif isinstance(b, float):
            found = close(numbers(a).array, numbers(b).array, limits)
            assert found.agrees, found.message
        else:
            assert a == b
            assert type(a) is type(b)

    walk(got, want)


def both(op: str, request: Json) -> None:
    method = op.replace(".", "_")
    assert problem(request, f"urn:kvassay:op:{op}#/$defs/request") is None
    want = outcome(getattr(oracle.Oracle(), method), request)
    agree(op, request, outcome(getattr(engine(), method), request), want)


@settings(max_examples=50, deadline=None)
@given(st.lists(plans(), max_size=3))
def test_both_count_the_same_bytes(several: list[Json]) -> None:
    both("offload.ledger", {"requests": several})


@settings(max_examples=80, deadline=None)
@given(plans())
def test_both_schedule_and_run_alike(plan: Json) -> None:
    both("offload.schedule", {"plan": plan})
    both("offload.run", {"plan": plan})


@settings(max_examples=80, deadline=None)
@given(plans(), st.data())
def test_both_name_the_same_reason_for_a_report(plan: Json, data: st.DataObject) -> None:
    if isinstance(outcome(oracle.Oracle().offload_schedule, {"plan": plan}), str):
        plan = oracle.base_plan()
    document = oracle.report(plan, requests=2)
    for _ in range(data.draw(st.integers(0, 2))):
        node: Any = document
        key: Any = data.draw(st.sampled_from(["claim", "bandwidth", "events", "events", "ledger", "memory", "times"]))
        while isinstance(node[key], dict | list) and node[key]:
            node = node[key]
            key = data.draw(st.sampled_from(sorted(node) if isinstance(node, dict) else range(len(node))))
        node[key] = data.draw(near(node[key]))
    if problem(document, "urn:kvassay:offload/report") is None:
        both("offload.check", {"document": document})


def near(value: Any) -> st.SearchStrategy[Any]:
    """Values that stand near another one."""
    if isinstance(value, float):
        return st.sampled_from([value + 1.0, value + 1e-8, max(0.0, value - 1e-4), 0.0])
    if isinstance(value, int):
        return st.sampled_from([value + 1, max(0, value - 1), value])
    return st.sampled_from([[], [[0, 1]]] if isinstance(value, list) else ["exact", "approximate", "request-18"])


@settings(max_examples=60, deadline=None)
@given(plans(), st.data())
def test_both_admit_the_same_requests(plan: Json, data: st.DataObject) -> None:
    counts = st.integers(0, 4000)
    names = ("authoritative", "pinned", "read_buffer", "codec_scratch", "writeback", "metadata")
    generous = dict.fromkeys(("gpu_bytes", "host_bytes", "pinned_bytes", "credits"), 2**40)
    rates = {"h2d_bytes_per_s": 1e15, "d2h_bytes_per_s": 1e15}
    short = data.draw(st.sampled_from([None, *generous, *rates]))
    budgets = generous | rates | ({short: data.draw(counts)} if short else {})
    everything = [[[0, POSITIONS + 1]] for _ in plan["layers"]]
    request = {
        "plan": plan,
        "recoverable": data.draw(st.just(everything) | st.lists(spans(), min_size=0, max_size=5)),
        "host": {f"{name}_bytes": data.draw(counts) for name in names},
        "interval_ms": data.draw(st.sampled_from([1.0, 100.0])),
        "budgets": budgets,
    }
    both("offload.admit", request)


@settings(max_examples=50, deadline=None)
@given(
    cached=st.integers(0, 10**6),
    new=st.integers(1, 10**5),
    size=st.integers(1, 10**6),
    bandwidth=bandwidths,
    eta=st.none() | st.tuples(st.floats(-0.1, 1.1), st.sampled_from(["measured", "assumed"])),
)
def test_both_see_the_same_regime(cached: int, new: int, size: int, bandwidth: Json, eta: Any) -> None:
    request = {
        "cached_tokens": cached,
        "new_tokens": new,
        "kv_bytes_per_token": size,
        "flop_per_token": 1.3e10,
        "bandwidth": bandwidth,
        "flop_per_s": 3e14,
        **({"eta": dict(zip(("value", "evidence"), eta, strict=True))} if eta else {}),
    }
    both("offload.regime", request)


@settings(max_examples=50, deadline=None)
@given(
    stages=st.lists(
        st.builds(dict, resource=st.sampled_from("abc"), fixed_ms=milliseconds, bandwidth=bandwidths),
        min_size=1,
        max_size=4,
    ),
    chunks=st.lists(st.sampled_from([1, 4096, 2**20]), min_size=1, max_size=6),
)
def test_both_stage_alike_and_the_formula_is_the_events_where_it_holds(stages: list[Json], chunks: list[int]) -> None:
    request = {"stages": stages, "chunk_bytes": chunks}
    both("offload.stage", request)
    found = oracle.Oracle().offload_stage(request)
    if "formula_ms" in found:
        assert found["formula_ms"] == pytest.approx(found["chunked_ms"], rel=1e-12)


shares = st.sampled_from([(1.0, 0.0, 0.0), (0.2, 0.8, 0.0), (0.0, 0.5, 0.5), (0.25, 0.25, 0.5), (0.5, 0.6, 0.0)])


@settings(max_examples=50, deadline=None)
@given(
    rule=st.sampled_from(["flexgen/paper", "flexgen/code"]),
    policies=st.lists(
        st.builds(oracle.policy, st.sampled_from([48, 96, 100]), st.just(48), shares, shares, shares),
        min_size=1,
        max_size=3,
    ),
    gpu=st.sampled_from([1e9, 2e10, 1e13]),
)
def test_both_cost_policies_alike(rule: str, policies: list[Json], gpu: float) -> None:
    request = oracle.opt_30b(rule, *policies)
    request["budgets"]["gpu_bytes"] = gpu
    both("offload.policy", request)


def test_constant_times_give_the_familiar_formula() -> None:
    for fetch, compute in ((3.0, 2.0), (2.0, 3.0), (2.0, 2.0)):
        plan = oracle.base_plan()
        first = plan["layers"][0]
        first["fixed"] = dict.fromkeys(first["fixed"], 0.0) | {"lookup_ms": fetch}
        first["compute_ms"] = compute
        plan["layers"] = [copy.deepcopy(first) for _ in range(6)]
        plan["slots"] = 6
        found = oracle.Oracle().offload_schedule({"plan": plan})
        service = found["service_ms"][0]
        assert found["pipeline_ms"] == pytest.approx(service + compute + 5 * max(service, compute), rel=1e-12)


def test_the_base_is_legal_and_its_figures_come_out() -> None:
    assert oracle.Oracle().offload_check({"document": oracle.report(oracle.base_plan())}) == {}
    figures = reconciliation("offload")
    assert len(figures) >= 20
    assert all(figure.agrees for figure in figures)
