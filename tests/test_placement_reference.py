"""Oracle and reference of the contract placement share no code; on what Hypothesis writes they agree."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from judges import agree, asked, engine
from kvassay.core import tensors
from kvassay.corpus.data import fixture_module
from kvassay.corpus.reconcile import reconciliation
from kvassay.corpus.schemas import problem
from kvassay.engines.reference import Reference, ReferenceStrict

oracle = fixture_module("placement.oracle")
bases = fixture_module("placement.oracle_base")
receipts_of = fixture_module("placement.oracle_receipts")
Json = dict[str, Any]

dyadic = st.integers(-16, 16).map(lambda x: x / 8)
milliseconds = st.integers(0, 64).map(lambda x: x / 16)
some_ms = st.integers(1, 64).map(lambda x: x / 16)
ways = st.builds(
    dict,
    fixed_ms=milliseconds,
    bandwidth=st.builds(dict, value=st.sampled_from([0.001, 0.5, 24.0]), unit=st.sampled_from(["GiB/s", "GB/s"])),
)


def both(op: str, request: Json, kind: type[Reference] = Reference) -> None:
    assert problem(request, f"urn:kvassay:op:{op}#/$defs/request") is None
    judge = oracle.Oracle()
    want = asked(judge, op, copy.deepcopy(request))
    agree(judge, op, request, asked(engine(kind), op, tensors.read(request)), want)


# ---- plans -------------------------------------------------------------------------------------------------------

geometries = st.builds(
    dict,
    batch=st.integers(1, 3),
    history=st.integers(0, 5000),
    query_heads=st.integers(1, 12),
    kv_heads=st.integers(1, 8),
    key_channels=st.integers(1, 130),
    value_channels=st.integers(1, 130),
    key_item_bytes=st.integers(1, 4),
    value_item_bytes=st.integers(1, 4),
    activation_bytes=st.integers(1, 4),
)


@settings(max_examples=60, deadline=None)
@given(geometries, ways, ways, st.integers(1, 5), st.sampled_from([2, 4, 8]))
def test_both_count_the_same_bytes(shape: Json, send: Json, back: Json, producers: int, item: int) -> None:
    request = {
        "geometry": shape,
        "link": {"send": send, "return": back},
        "producers": producers,
        "state_item_bytes": item,
    }
    both("placement.traffic", request)


@settings(max_examples=60, deadline=None)
@given(geometries, ways, st.data())
def test_both_stage_the_same_groups(shape: Json, fetch: Json, data: st.DataObject) -> None:
    heads = data.draw(
        st.lists(st.integers(0, shape["kv_heads"] - 1), min_size=shape["query_heads"], max_size=shape["query_heads"])
    )
    request = {
        "rule": data.draw(st.sampled_from(["headinfer/paper", "headinfer/paper", "headinfer/code"])),
        "layers": data.draw(st.integers(1, 3)),
        "geometry": shape,
        "kv_head_of": heads,
        "heads_per_group": data.draw(st.integers(1, 5)),
        "buffers": data.draw(st.integers(1, 4)),
        "fetch": fetch,
        "launch_ms": data.draw(milliseconds),
        "head_compute_ms": data.draw(milliseconds),
    }
    both("placement.headwise", request)


names = st.lists(st.sampled_from([f"r{i}" for i in range(12)]), max_size=3)
sub_batches = st.builds(
    dict,
    linear_ms=some_ms,
    prefill_ms=milliseconds,
    gpu_attention_ms=milliseconds,
    cpu_attention_ms=milliseconds,
    gpu_requests=names,
    cpu_requests=names,
)
pipelines = st.builds(
    dict,
    layers=st.integers(1, 4),
    launch_ms=milliseconds,
    sub_batches=st.lists(sub_batches, min_size=2, max_size=2),
    gpu_only=st.builds(dict, linear_ms=some_ms, prefill_ms=milliseconds, gpu_attention_ms=milliseconds, requests=names),
)


@settings(max_examples=80, deadline=None)
@given(pipelines, st.sampled_from(["neo/paper", "neo/code"]))
def test_both_estimate_the_same_pipeline(pipeline: Json, rule: str) -> None:
    both("placement.pipeline", {"rule": rule, "pipeline": pipeline})


@settings(max_examples=80, deadline=None)
@given(pipelines)
def test_a_timeline_is_drawn_from_the_reply(pipeline: Json) -> None:
    """Lanes are serial, stages do not overlap, and the last stage ends with the iteration."""
    found = asked(engine(), "placement.pipeline", {"rule": "neo/paper", "pipeline": pipeline})
    if isinstance(found, str):
        return
    edges: dict[Any, float] = {}
    for one in found["timeline"]:
        lane = (one["lane"],)
        assert one["start_ms"] >= edges.get(lane, 0.0)
        assert one["end_ms"] > one["start_ms"]
        edges[lane] = one["end_ms"]
        stage = (one["layer"], one["stage"])
        before = (one["layer"], 0) if one["stage"] else (one["layer"] - 1, 1)
        assert one["start_ms"] >= edges.get(before, 0.0)
        edges[stage] = max(edges.get(stage, 0.0), one["end_ms"])
    assert max(edges.values()) == pytest.approx(found["pipelined_ms"], rel=1e-12)


def jobs(initial: str, least: int = 0) -> st.SearchStrategy[list[Json]]:
    sizes = st.lists(st.integers(1, 60), min_size=least, max_size=5)
    return sizes.map(lambda sizes: [{"id": f"{initial}{i}", "tokens": 8 * n} for i, n in enumerate(sizes)])


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_both_form_the_same_batches(data: st.DataObject) -> None:
    costs = st.sampled_from([0.0, 1 / 64, 1 / 16, 1 / 8])
    profile = {
        "linear_base_ms": data.draw(some_ms),
        "linear_token_ms": data.draw(st.sampled_from([0.0, 1 / 256, 1 / 64])),
        "prefill_token_ms": data.draw(costs),
        "gpu_attention_row_ms": data.draw(costs) / 16,
        "cpu_attention_row_ms": data.draw(costs) / 16,
        "cpu_attention_request_ms": data.draw(costs),
        "launch_ms": data.draw(costs),
    }
    request = {
        "rule": "neo/code",
        "profile": profile,
        "linear_threshold_tokens": data.draw(st.sampled_from([0, 40, 200, 1000])),
        "budget": data.draw(st.integers(0, 6)),
        "gpu_prefill": data.draw(jobs("pg")),
        "cpu_prefill": data.draw(jobs("pc")),
        "gpu_decode": data.draw(jobs("g")),
        "cpu_decode": data.draw(jobs("c", 1)),
    }
    both("placement.batch", request)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_both_choose_the_same_plan(data: st.DataObject) -> None:
    request = bases.base_choice()
    request["request"]["approximations"] = data.draw(st.sampled_from([[], ["sparf"], ["quest"]]))
    request["request"]["fallback"] = data.draw(st.sampled_from(["delay", "recompute", "reject", "sparf"]))
    request["manifest"] = {
        name: data.draw(st.sampled_from([True, True, False])) if isinstance(value, bool) else value
        for name, value in request["manifest"].items()
    }
    for plan in list(request["profile"]):
        entry = request["profile"][plan]
        entry["declared_cost"] = data.draw(st.sampled_from([0.0, 1.0, 2.0]))
        entry["stages"] = {name: data.draw(milliseconds) for name in entry["stages"]}
        entry["staging_bytes"] = data.draw(st.integers(0, 3))
        if data.draw(st.integers(0, 5)) == 0:
            del request["profile"][plan]
    request["staging_budget_bytes"] = data.draw(st.integers(1, 3))
    request["start_ms"], request["deadline_ms"] = data.draw(milliseconds), data.draw(milliseconds) * 4
    both("placement.choose", request)


# ---- rows and receipts -------------------------------------------------------------------------------------------


def array(draw: st.DrawFn, *shape: int) -> Any:
    """Nested lists of eighths."""
    if not shape:
        return draw(dyadic)
    return [array(draw, *shape[1:]) for _ in range(shape[0])]


def tensor(values: Any, *shape: int, dtype: str = "float32") -> Json:
    return {"dtype": dtype, "shape": list(shape), "data": values}


@st.composite
def scans(draw: st.DrawFn) -> Json:
    """A producer's request over few rows; most are legal."""
    rows, heads, d, d_v = (draw(st.integers(0, 5)), *(draw(st.integers(1, 3)) for _ in range(3)))
    kv_head_of = draw(st.lists(st.integers(0, heads - (draw(st.integers(0, 9)) > 0)), min_size=1, max_size=4))
    query = {**bases.QUERY, "kv_head_of": kv_head_of, "value_channels": d_v, "score_scale": draw(dyadic)}
    held = draw(st.permutations(range(rows + 2)))[:rows]
    wanted = sorted(draw(st.sets(st.sampled_from(sorted(held) or [0]), max_size=5)))
    return {
        "query": query,
        "producer": bases.PRODUCERS[0],
        "support": [[row, row + 1] for row in wanted],
        "completed_ms": 1.0,
        "q": tensor(array(draw, len(kv_head_of), d), len(kv_head_of), d),
        "k": tensor(array(draw, rows, heads, d), rows, heads, d),
        "v": tensor(array(draw, rows, heads, d_v), rows, heads, d_v),
        "positions": held,
    }


@settings(max_examples=60, deadline=None)
@given(scans())
def test_both_scan_to_the_same_meaning_and_identity(request: Json) -> None:
    judge = oracle.Oracle()
    want, got = (
        asked(judge, "placement.scan", copy.deepcopy(request)),
        asked(engine(), "placement.scan", tensors.read(request)),
    )
    if isinstance(want, str) or isinstance(got, str):
        assert got == want
        return
    for mine, theirs in zip(got["receipts"], want["receipts"], strict=True):
        shared = theirs.keys() - {"m", "l", "u", "checksum", "meaning"}
        assert {name: mine[name] for name in shared} == {name: theirs[name] for name in shared}
        plain = tensors.write(mine)
        assert plain["checksum"] == receipts_of.state_checksum(plain)
        facts = theirs["meaning"]["facts"]
        if facts["rows"]:
            out, lse = mine["u"] / mine["l"], mine["m"] + np.log(mine["l"])
            limit, mass = receipts_of.spread(facts, "float32")
            assert np.allclose(out, theirs["meaning"]["out"], rtol=2**-22, atol=limit)
            assert abs(lse - theirs["meaning"]["lse"]) <= mass + 2**-22 * abs(lse)
        else:
            assert mine["m"] == -np.inf
            assert not mine["l"]
            assert not mine["u"].any()


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_both_name_the_same_reason_for_a_reduction(data: st.DataObject) -> None:
    document = bases.base_reduction()
    for _ in range(data.draw(st.integers(0, 2))):
        node: Any = document
        key: Any = data.draw(st.sampled_from(["receipts"] * 5 + ["cover", "fallback", "producers", "query"]))
        while isinstance(node[key], dict | list) and node[key] and key not in ("m", "l", "u", "support", "cover"):
            node = node[key]
            key = data.draw(st.sampled_from(sorted(node) if isinstance(node, dict) else range(len(node))))
        node[key] = data.draw(near(key, node[key]))
    if data.draw(st.booleans()):
        document = oracle.reseal(document, "")[0]
    if data.draw(st.booleans()):
        document["receipts"] = data.draw(st.permutations(document["receipts"]))
    if data.draw(st.integers(0, 4)) == 0:
        document["receipts"] = document["receipts"][:-1]
    if problem(document, "urn:kvassay:placement/reduction") is None:
        both("placement.reduce", {"document": document})


def near(key: Any, value: Any) -> st.SearchStrategy[Any]:
    """Values that stand near another one."""
    if key in ("support", "cover"):
        return st.sampled_from([[], [[0, 1]], [[0, 4]], [[1, 3]], [[3, 4], [0, 1]], [[0, 2], [2, 4]]])
    if key in ("m", "l"):
        choices = [0.0, -1.0, 1.5, "Infinity", "-Infinity", "NaN"]
        return st.sampled_from([tensor(x) for x in choices] + [tensor(1.5, dtype="float16"), tensor([1.5], 1)])
    if key == "u":
        return st.sampled_from([tensor([1.0, 2.0], 2), tensor([1.0, "NaN"], 2), tensor([1.0], 1)])
    if isinstance(value, float):
        return st.sampled_from([value + 1.0, max(0.0, value - 1e-4), 0.0])
    if isinstance(value, int):
        return st.sampled_from([value + 1, max(0, value - 1), value])
    if value is None:
        return st.sampled_from([None, 0.0, 3.0])
    return st.sampled_from(["host", "gpu", "tenant-b", "5" * 64, "fp32-m-l-u-v1", "delay"])


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_both_live_through_the_same_session(data: st.DataObject) -> None:
    judge, subject = oracle.Oracle(), engine()
    base = bases.base_reduction()
    begin = {**{name: base[name] for name in ("query", "cover", "producers")}, "fallback": "delay"}
    for _ in range(data.draw(st.integers(1, 14))):
        op = data.draw(st.sampled_from(["begin", "deliver", "deliver", "deliver", "deliver", "publish", "telemetry"]))
        at = data.draw(st.sampled_from([1.0, 4.0, 4.5]))
        request: Json = {"begin": begin, "publish": {"at_ms": at}, "telemetry": {}}.get(op, {})
        if op == "deliver":
            receipt = data.draw(st.sampled_from(base["receipts"]))
            if data.draw(st.integers(0, 4)) == 0:
                receipt = {**receipt, "support": [[0, 2]]}
                receipt["support_sha256"] = receipts_of.support_digest(receipt["support"])
            request = {"receipt": receipt, "at_ms": at}
        want = asked(judge, f"placement.{op}", copy.deepcopy(request))
        agree(judge, f"placement.{op}", request, asked(subject, f"placement.{op}", tensors.read(request)), want)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_both_attend_group_by_group(data: st.DataObject) -> None:
    draw = data.draw
    rows, heads, d, d_v = (draw(st.integers(0, 6)), *(draw(st.integers(1, 4)) for _ in range(3)))
    queries = draw(st.integers(1, 5))
    order = draw(st.permutations(range(heads)))
    cut = draw(st.integers(0, heads))
    request = {
        "q": tensor(array(draw, queries, d), queries, d),
        "k": tensor(array(draw, rows, heads, d), rows, heads, d),
        "v": tensor(array(draw, rows, heads, d_v), rows, heads, d_v),
        "scale": draw(dyadic),
        "kv_head_of": draw(st.lists(st.integers(0, heads - 1), min_size=queries, max_size=queries)),
        "groups": [list(order[:cut]), list(order[cut:])],
    }
    both("placement.heads", request)


# ---- reports -----------------------------------------------------------------------------------------------------


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_both_name_the_same_reason_for_a_report(data: st.DataObject) -> None:
    document = bases.base_report()
    for _ in range(data.draw(st.integers(0, 2))):
        node: Any = document
        key: Any = data.draw(st.sampled_from(sorted(set(document) - {"format"})))
        while isinstance(node[key], dict | list) and node[key] and key != "cover":
            node = node[key]
            key = data.draw(st.sampled_from(sorted(node) if isinstance(node, dict) else range(len(node))))
        if isinstance(node[key], str):
            words = [
                "gpu",
                "cpu",
                "exact",
                "approximate",
                "recompute",
                "move_to_gpu",
                "support_partition",
                "full",
                "neo",
            ]
            node[key] = data.draw(st.sampled_from(words))
        else:
            node[key] = data.draw(near(key, node[key]))
    if problem(document, "urn:kvassay:placement/report") is None:
        both("placement.check", {"document": document})


# ---- SparF -------------------------------------------------------------------------------------------------------


@st.composite
def stored(draw: st.DrawFn, least: int = 0) -> Json:
    """A SparF request over few rows in eighths, with copies that need not agree."""
    rows, heads, d, d_v = (draw(st.integers(least, 6)), *(draw(st.integers(1, 4)) for _ in range(3)))
    queries = draw(st.integers(1, 4))
    index = dict.fromkeys(("token_rows", "channel_rows", "mean_rows"), rows)
    if draw(st.integers(0, 9)) == 0:
        index[draw(st.sampled_from(sorted(index)))] += 1
    return {
        "approximations": draw(st.sampled_from([["sparf"], ["sparf"], ["quest", "sparf"], []])),
        "index": index,
        "layout": {
            "page_bytes": draw(st.sampled_from([64, 64, 12])),
            "item_bytes": 2,
            "key_channels": d,
            "value_channels": d_v,
            "page_rows": draw(st.integers(1, 4)),
            "page_channels": draw(st.integers(1, 3)),
            "channel_page_rows": draw(st.integers(1, 4)),
        },
        "q": tensor(array(draw, queries, d), queries, d),
        "k": tensor(array(draw, rows, heads, d), rows, heads, d),
        "k_channel": tensor(array(draw, heads, d, rows), heads, d, rows),
        "v": tensor(array(draw, rows, heads, d_v), rows, heads, d_v),
        "v_mean": tensor(array(draw, heads, d_v), heads, d_v),
        "scale": draw(st.sampled_from([0.5, 0.25, -0.5, 0.0])),
        "kv_head_of": draw(st.lists(st.integers(0, heads - 1), min_size=queries, max_size=queries)),
        "channels": draw(st.integers(0, d + 1)) or draw(st.integers(0, 1)),
        "rows": draw(st.integers(1, 8)),
    }


@settings(max_examples=120, deadline=None)
@given(stored())
def test_both_run_sparf_alike(request: Json) -> None:
    both("sparf.attend", request)
    both(
        "sparf.select",
        {name: request[name] for name in ("q", "k_channel", "scale", "kv_head_of", "channels", "rows")},
    )


@settings(max_examples=20, deadline=None)
@given(stored(least=1))
def test_sparf_needs_no_more_than_the_array_standard(request: Json) -> None:
    both("sparf.attend", request, ReferenceStrict)


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_both_read_and_write_the_same_pages(data: st.DataObject) -> None:
    draw = data.draw
    layout = draw(stored())["layout"]
    rows, heads, queries = draw(st.integers(0, 9)), draw(st.integers(1, 3)), draw(st.integers(0, 4))

    def units(limit: int) -> list[list[int]]:
        one = st.sets(st.integers(0, limit), max_size=4).map(sorted)
        return [draw(one) for _ in range(queries)]

    request = {
        "layout": layout,
        "rows": rows,
        "kv_heads": heads,
        "kv_head_of": draw(st.lists(st.integers(0, heads - 1), min_size=queries, max_size=queries)),
        "channels": units(layout["key_channels"] - 1),
        "positions": units(max(0, rows - (draw(st.integers(0, 5)) > 0))),
    }
    both("sparf.pages", request)
    new, width = draw(st.integers(0, 5)), layout["value_channels"]
    append = {
        "layout": layout,
        "kv_heads": heads,
        "index": dict.fromkeys(("token_rows", "channel_rows", "mean_rows"), rows)
        | {"mean_rows": rows + (draw(st.integers(0, 6)) == 0)},
        "v_mean": tensor(array(draw, heads, width), heads, width),
        "v": tensor(array(draw, new, heads, width), new, heads, width),
    }
    both("sparf.append", append)


# ---- figures -----------------------------------------------------------------------------------------------------


def test_the_bases_are_legal_and_their_figures_come_out() -> None:
    judge = oracle.Oracle()
    assert judge.placement_check({"document": bases.base_report()}) == {}
    assert judge.placement_reduce({"document": bases.base_reduction()})["receipts"] == 6
    figures = reconciliation("placement")
    assert len(figures) >= 20
    assert all(figure.agrees for figure in figures)


def test_the_reduction_of_the_base_is_attention_over_its_rows() -> None:
    found = oracle.Oracle().placement_reduce({"document": bases.base_reduction()})
    got = np.array(found["out"]["data"])
    q, k, v = (np.array(one) for one in (bases.Q, bases.K, bases.V))
    for query, head in enumerate(bases.QUERY["kv_head_of"]):
        scores = np.exp(0.5 * k[:, head] @ q[query])
        assert np.allclose(got[query], scores @ v[:, head] / scores.sum(), rtol=1e-6)
