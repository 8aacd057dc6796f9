"""Oracle and reference of the contract quality share no code; on what Hypothesis writes they agree."""

from __future__ import annotations

import copy
import json
import math
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from judges import agree, asked, engine
from kvassay.core import tensors
from kvassay.corpus.data import fixture_module
from kvassay.corpus.reconcile import reconciliation
from kvassay.corpus.rules import findings
from kvassay.corpus.schemas import problem
from kvassay.engines.reference import Reference, ReferenceStrict

ROOT = Path(__file__).resolve().parents[1]
oracle = fixture_module("quality.oracle")
bases = fixture_module("quality.oracle_base")
reports = fixture_module("quality.oracle_report")
Json = dict[str, Any]
dyadic = st.integers(-24, 24).map(lambda x: x / 8)
small = st.integers(0, 12)
times = st.integers(0, 64).map(lambda x: x / 8)


def both(op: str, request: Json, kind: type[Reference] = Reference) -> Any:
    """Both judges on one request; the oracle's answer."""
    assert problem(request, f"urn:kvassay:op:{op}#/$defs/request") is None
    judge = oracle.Oracle()
    want = asked(judge, op, copy.deepcopy(request))
    got = asked(engine(kind), op, tensors.read(request))
    if not isinstance(got, str):
        plain = tensors.write(got)
        assert problem(plain, f"urn:kvassay:op:{op}#/$defs/response") is None
    agree(judge, op, request, got, want)
    return want


def tensor(draw: st.DrawFn, *shape: int, dtype: str = "float32") -> Json:
    """Eighths in a shape."""

    def fill(extents: tuple[int, ...]) -> Any:
        return [fill(extents[1:]) for _ in range(extents[0])] if extents else draw(dyadic)

    return {"dtype": dtype, "shape": list(shape), "data": fill(shape)}


@st.composite
def recorded(draw: st.DrawFn) -> Json:
    """A run over few rows; most are legal, and some break one rule."""
    first, rows, heads, queries = draw(st.sampled_from([0, 5])), *(draw(st.integers(1, n)) for n in (7, 3, 4))
    width = draw(st.integers(1, 3))
    made: Json = {
        "format": "kvassay-selector-run-v1",
        "method": "drawn",
        "first_position": first,
        "v": tensor(draw, rows, heads, width, dtype=draw(st.sampled_from(["float32", "float32", "float64"]))),
        "kv_heads": heads,
        "kv_head_of": [draw(st.integers(0, heads - (draw(st.integers(0, 30)) > 0))) for _ in range(queries)],
        "per": draw(st.sampled_from(["all", "kv_head", "query_head"])),
        "persistent": draw(st.lists(st.integers(first, first + rows - (draw(small) > 0)), max_size=3)),
    }
    if draw(st.booleans()):
        made["logits"] = tensor(draw, queries, rows)
    else:
        dtype = made["v"]["dtype"]
        made |= {"q": tensor(draw, queries, 2, dtype=dtype), "k": tensor(draw, rows, heads, 2, dtype=dtype)}
        made["scale"] = draw(dyadic)
    if draw(st.booleans()):
        made["hidden"] = draw(st.lists(st.integers(first, first + rows), max_size=2))
    positions = list(range(first, first + rows))
    count, made["unit"] = draw(units(positions))
    lists = {"all": 1, "kv_head": heads, "query_head": queries}[made["per"]]
    lowest = first if made["unit"]["kind"] == "row" else 0
    ids = st.integers(lowest, lowest + count - (draw(small) > 0))
    made["selected"] = [draw(st.lists(ids, max_size=3, unique=draw(small) > 0)) for _ in range(lists)]
    if draw(st.booleans()):
        made["candidates"] = [[*draw(st.lists(ids, max_size=3)), *one][:: draw(st.sampled_from([1, -1]))]
                              for one in made["selected"]]  # fmt: skip
    return made


@st.composite
def units(draw: st.DrawFn, positions: list[int]) -> tuple[int, Json]:
    """How many units there are, and what they are."""
    kind = draw(st.sampled_from(["row", "page", "span", "cluster"]))
    if kind == "row":
        return len(positions), {"kind": "row"}
    if kind == "page":
        size = draw(st.integers(1, len(positions) + 1))
        return -(-len(positions) // size), {"kind": "page", "rows": size}
    cuts = sorted({positions[0], *draw(st.lists(st.sampled_from(positions), max_size=3)), positions[-1] + 1})
    if kind == "span":
        spans = [[a, b + (draw(st.integers(0, 30)) == 0)] for a, b in pairwise(cuts)]
        return len(spans), {"kind": "span", "spans": draw(st.permutations(spans))}
    mixed = draw(st.permutations(positions))
    offsets = [cut - positions[0] for cut in cuts]
    members = [list(mixed[a:b]) for a, b in pairwise(offsets)]
    return len(members), {"kind": "cluster", "members": [members]}


@settings(max_examples=150, deadline=None)
@given(recorded(), st.integers(1, 8), st.booleans())
def test_both_lead_ids_to_the_same_rows_and_masses(run: Json, top_k: int, candidate_recall: bool) -> None:
    both("quality.support", {"run": run, "top_k": top_k, "candidate_recall": candidate_recall})


@settings(max_examples=120, deadline=None)
@given(recorded(), st.sampled_from([0.0, 0.25, 1.0]), st.data())
def test_both_tell_the_same_errors(run: Json, floor: float, data: st.DataObject) -> None:
    request: Json = {"run": run, "denominator_floor": floor}
    if data.draw(st.booleans()):
        width = run["v"]["shape"][2] + (data.draw(st.integers(0, 9)) == 0)
        request["map"] = {"matrix": data.draw(matrices(width)), "evidence": "synthetic"}
    found = both("quality.error", request)
    if isinstance(found, str):
        return
    for head in found["heads"]:
        assert head["absolute_error"] <= head["triangle_bound"] * (1 + 1e-12) + 1e-15
        assert head["triangle_bound"] <= head["bound"] * (1 + 1e-12) + 1e-15
        assert (head["omitted"] is None) == (head["omitted_mass"] == 0.0)
        mixed = head["retained"] if head["omitted"] is None else [
            (1 - head["omitted_mass"]) * a + head["omitted_mass"] * b
            for a, b in zip(head["retained"], head["omitted"], strict=True)
        ]  # fmt: skip
        assert mixed == pytest.approx(head["dense"], abs=1e-12)


@st.composite
def matrices(draw: st.DrawFn, width: int) -> Json:
    return tensor(draw, draw(st.integers(1, 3)), width, dtype="float64")


@settings(max_examples=100, deadline=None)
@given(recorded(), st.data())
def test_both_count_the_same_costs(run: Json, data: st.DataObject) -> None:
    first, rows = run["first_position"], run["v"]["shape"][0]
    positions = st.lists(st.integers(first, first + rows - 1), max_size=4)
    request: Json = {
        "run": run,
        "sizes": {
            **{name: data.draw(small) for name in ("candidate_bytes", "descriptor_bytes", "setup_bytes")},
            "key_channels": 2,
            "value_channels": run["v"]["shape"][2],
            "key_item_bytes": data.draw(st.integers(1, 4)),
            "value_item_bytes": data.draw(st.integers(1, 4)),
            "probe": {name: data.draw(small) for name in ("vectors", "channels", "item_bytes")},
        },
        "resident": [data.draw(positions) for _ in range(run["kv_heads"])],
    }
    if data.draw(st.booleans()):
        request["reference"] = [data.draw(positions) for _ in run["selected"]]
    both("quality.cost", request)


counted = st.integers(0, 5)
moments = st.fixed_dictionaries(
    {
        name: st.integers(0, 64)
        for name in (
            "gpu_persistent_bytes",
            "gpu_staging_bytes",
            "gpu_workspace_bytes",
            "gpu_duplicate_bytes",
            "gpu_reserved_bytes",
            "cpu_bytes",
            "secondary_bytes",
        )
    }
)


@settings(max_examples=50, deadline=None)
@given(st.lists(moments, min_size=1, max_size=5), st.lists(small, min_size=5, max_size=5))
def test_both_find_the_same_peaks(several: list[Json], sizes: list[int]) -> None:
    names = ("logical_bytes", "index_bytes", "directory_bytes", "descriptor_bytes", "rehearsal_bytes")
    both("quality.capacity", {"moments": several, **dict(zip(names, sizes, strict=True))})


@st.composite
def transfers(draw: st.DrawFn) -> Json:
    begin, wait, lasts = draw(times), draw(times), draw(times)
    late = draw(st.integers(0, 40)) == 0
    return {
        "tier": draw(st.sampled_from(["host", "disk"])),
        "requested_bytes": draw(st.integers(0, 100)),
        "moved_bytes": draw(st.integers(0, 100)),
        "waiters": draw(st.integers(1, 3)),
        "gathering_ms": max(0.0, begin - 0.5),
        "submitted_ms": begin,
        "started_ms": begin + wait,
        "ended_ms": max(0.0, begin + wait + (-0.5 if late else lasts)),
    }


@settings(max_examples=100, deadline=None)
@given(
    st.lists(transfers(), max_size=6),
    st.lists(st.tuples(times, times).map(lambda pair: [pair[0], pair[0] + pair[1]]), max_size=4),
    st.sampled_from(["busy", "sum"]),
)
def test_both_keep_the_same_ledger_of_a_token(several: list[Json], waits: list[list[float]], path: str) -> None:
    hits = [{"tier": "remote", "bytes": 7}] * (len(several) % 2)
    both("quality.transfer", {"transfers": several, "hits": hits, "waits": waits, "critical_path": path})


steps = st.builds(
    lambda a, b, c, d, e, f, lost, mass: {
        "layer": 0,
        "query_head": 0,
        "candidates": a + b + c,
        "distinct_candidates": a + b,
        "stale_entries": a,
        "index_lookups": d + e,
        "index_misses": d,
        "pool_lookups": e + f,
        "pool_misses": f,
        "fell_back": lost,
        "omitted_mass": mass,
    },
    *[counted] * 6,
    st.booleans(),
    st.none() | st.integers(0, 8).map(lambda x: x / 8),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(steps, max_size=6), st.data())
def test_both_pool_the_same_rates(several: list[Json], data: st.DataObject) -> None:
    if several and data.draw(st.integers(0, 5)) == 0:
        several = [{**several[0], "stale_entries": 99}, *several]
    both("quality.rates", {"steps": several})


# ---- fallbacks ---------------------------------------------------------------------------------------------------

shares = st.integers(0, 4).map(lambda x: x / 4)
waits = st.integers(-2, 6).map(lambda x: x / 2)
lasting = st.integers(0, 6).map(lambda x: x / 2)
sources = st.sampled_from(["calibration"] * 6 + ["estimator", "dense_reference"])
estimates = st.fixed_dictionaries(
    {"omitted_mass": shares, "confidence": shares, "source": sources, "generation": st.sampled_from([9] * 6 + [8])}
)
known = {
    "estimate": estimates,
    "widen": st.none() | st.builds(dict, candidates=st.integers(0, 3)),
    "exact_fetch": st.none() | st.builds(dict, ms=lasting, bytes=st.integers(0, 3)),
    "recompute": st.none() | st.builds(dict, ms=lasting),
    "retry": st.none() | st.builds(dict, window_ms=lasting),
}
gates = st.builds(
    dict, max_omitted_mass=shares, min_confidence=shares, source=st.just("calibration"), generation=st.just(9)
)
promises = {"exactness": st.sampled_from(["exact", "approximate"]), "degraded_allowed": st.booleans()}
states = st.fixed_dictionaries(
    {
        **known,
        **promises,
        "phase": st.sampled_from(["initial", "post_widen"]),
        "candidate_budget": st.integers(0, 3),
        "staging_budget_bytes": st.integers(0, 3),
        "slack_ms": waits,
        "gate": gates,
    }
)


@settings(max_examples=300, deadline=None)
@given(states)
def test_both_choose_the_same_action(state: Json) -> None:
    found = both("quality.fallback", state)
    if isinstance(found, str):
        return
    assert not (state["exactness"] == "exact" and found["publishes"] in ("approximate", "degraded"))
    assert not (found["action"] == "WIDEN_SEARCH" and state["phase"] == "post_widen")
    assert found["final"] or found["publishes"] == "nothing"


begins = st.fixed_dictionaries(
    {
        **promises,
        "policy": st.builds(dict, version=st.sampled_from(["p", "p", "p", ""]), candidate_budget=st.integers(0, 3)),
        "gate": gates,
        "staging_budget_bytes": st.integers(0, 3),
        "begun_ms": lasting,
        "deadline_ms": lasting,
    }
)
calls = st.one_of(
    st.tuples(st.just("quality.begin"), begins),
    st.tuples(st.just("quality.advance"), st.fixed_dictionaries({"at_ms": lasting, **known})),
    st.tuples(st.just("quality.advance"), st.fixed_dictionaries({"at_ms": st.just(3.0), **known})),
    st.tuples(st.just("quality.record"), st.just({})),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(calls, max_size=12))
def test_both_walk_the_same_attempts(several: list[tuple[str, Json]]) -> None:
    judge, mine = oracle.Oracle(), engine()
    outputs = 0
    for op, request in several:
        before = copy.deepcopy(request)
        want, got = asked(judge, op, copy.deepcopy(request)), asked(mine, op, request)
        assert got == want
        assert request == before
        if isinstance(got, dict) and "publications" in got:
            assert got["publications"] - outputs in (0, 1)
            outputs = got["publications"]


# ---- documents ---------------------------------------------------------------------------------------------------


def leaves(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths of a document's leaves."""
    if isinstance(value, dict | list):
        parts = value.items() if isinstance(value, dict) else enumerate(value)
        return [path for name, part in parts for path in leaves(part, (*at, name))]
    return [at]


def moved(value: Any, by: int) -> Any:
    """A leaf moved a little."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return max(0, value + by)
    if isinstance(value, float):
        return value + by / 64
    return value


@pytest.mark.parametrize("removed", [False, True])
@pytest.mark.parametrize("name", ["report", "plan"])
def test_both_say_the_same_of_a_document_with_one_leaf_changed(name: str, removed: bool) -> None:
    """Each number moved a little, or each item of a list taken away."""
    base = bases.base_report() if name == "report" else bases.base_plan()
    op = "quality.check" if name == "report" else "quality.plan"
    judge, mine = oracle.Oracle(), engine()
    said = set()
    for number, path in enumerate(leaves(base)):
        document = copy.deepcopy(base)
        *way, last = path
        node: Any = document
        for part in way:
            node = node[part]
        if not removed:
            node[last] = moved(node[last], 1 if number % 2 else -1)
        elif isinstance(node, list):
            del node[last]
        if problem({"document": document}, f"urn:kvassay:op:{op}#/$defs/request") is not None:
            continue
        want = asked(judge, op, {"document": document})
        assert asked(mine, op, {"document": document}) == want, path
        said.add(want if isinstance(want, str) else "accepted")
    assert len(said) >= {("report", False): 24, ("report", True): 8}.get((name, removed), 2)


def test_a_report_with_other_scores_is_derived_alike() -> None:
    document = bases.base_report()
    for shift in range(8):
        made = {**document, "logits": [*document["logits"][shift:], *document["logits"][:shift]]}
        whole = reports.judged_with(made)
        assert asked(engine(), "quality.check", {"document": whole}) == {}


# ---- other arrays, the published figures, the example ------------------------------------------------------------


@pytest.mark.parametrize("name", ["row", "page", "cluster", "dense"])
def test_the_worked_example_on_strict_arrays(name: str) -> None:
    """The standard has no float16, so that values stand in float32 here."""
    run = bases.base_run(name)
    run["v"]["dtype"] = "float32"
    matrix = {"dtype": "float64", "shape": [2, 2], "data": bases.MAP}
    both("quality.support", {"run": run, "top_k": 3, "candidate_recall": name in ("row", "dense")}, ReferenceStrict)
    request = {"run": run, "denominator_floor": 0.0, "map": {"matrix": matrix, "evidence": "synthetic"}}
    both("quality.error", request, ReferenceStrict)
    resident, reference = [bases.RESIDENT], [bases.REFERENCE]
    both(
        "quality.cost",
        {"run": run, "sizes": bases.base_sizes(name), "resident": resident, "reference": reference},
        ReferenceStrict,
    )


def test_every_published_figure_comes_out() -> None:
    found = reconciliation("quality")
    assert {figure.name for figure in found} >= {"row_bytes", "map", "page_expanded_rows", "actions_reached"}
    assert all(figure.agrees for figure in found)


def test_equal_recall_with_more_mass_may_err_more() -> None:
    rows, clusters = (bases.judged(name)["measures"] for name in ("row", "cluster"))
    assert rows["support_recall"] == clusters["support_recall"]
    assert rows["retained_mass"] > clusters["retained_mass"]
    assert rows["absolute_error"] > clusters["absolute_error"]


def test_the_operator_norm_of_many_maps() -> None:
    singular = fixture_module("quality.oracle_run").singular
    random = np.random.default_rng(5)
    for shape in [(1, 1), (2, 2), (3, 2), (2, 5), (6, 6), (4, 1)]:
        table = random.normal(size=shape)
        assert singular(table.tolist()) == pytest.approx(np.linalg.norm(table, 2), rel=1e-12)
    assert singular([[0.0, 0.0]]) == 0.0
    assert math.isclose(singular([[1.2, -0.3], [0.4, 0.9]]), math.sqrt(1.6), rel_tol=1e-14)


def test_the_example_records_what_the_cases_hold(tmp_path: Path) -> None:
    """What the reference's selectors choose today is what `fixtures/quality/recorded` says that they chose."""
    script = ROOT / "examples" / "judge-a-selector" / "judge.py"
    told = tmp_path / "runs.json"
    done = subprocess.run(
        [sys.executable, str(script), "--record", str(told)], capture_output=True, text=True, check=True, timeout=120
    )
    recorded = json.loads((ROOT / "fixtures" / "quality" / "recorded" / "runs.json").read_text(encoding="utf-8"))
    assert json.loads(told.read_text(encoding="utf-8")) == recorded
    assert all(problem(run, "urn:kvassay:quality/run") is None for run in recorded.values())
    lines = done.stdout.splitlines()
    assert [line.rsplit(maxsplit=5)[0] for line in lines[1:]] == list(recorded)


def test_the_example_judges_what_is_recorded(tmp_path: Path) -> None:
    """One run or several by name, whoever selected; one that cannot be judged is told in a line."""
    script = ROOT / "examples" / "judge-a-selector" / "judge.py"
    runs = json.loads((ROOT / "fixtures" / "quality" / "recorded" / "runs.json").read_text(encoding="utf-8"))
    twice = {**runs["search"], "selected": [[*one, one[0]] for one in runs["search"]["selected"]]}
    for name, content in {"several": runs, "scores": a_run(), "twice": twice, "nothing": []}.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")

    def told(name: str) -> subprocess.CompletedProcess[str]:
        line = [sys.executable, str(script), "--judge", str(tmp_path / f"{name}.json")]
        return subprocess.run(line, capture_output=True, text=True, timeout=60)

    assert [line.rsplit(maxsplit=5)[0] for line in told("several").stdout.splitlines()[1:]] == list(runs)
    assert told("scores").stdout.splitlines()[1].startswith("scores ")
    assert told("twice").stderr.startswith("error: quality.support: DUPLICATE_UNIT")
    assert told("nothing").stderr.strip().endswith("neither a run nor runs by name")


def test_the_example_says_in_one_line_what_is_wrong() -> None:
    script = ROOT / "examples" / "judge-a-selector" / "judge.py"
    done = subprocess.run(
        [sys.executable, str(script), "--adapter", "nowhere:Engine"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr


# ---- documents of a user -----------------------------------------------------------------------------------------


def a_run(**changed: Any) -> Json:
    return {**bases.base_run("page"), **changed}


@pytest.mark.parametrize(
    ("document", "reason", "text"),
    [
        (a_run(), "", ""),
        (a_run(selected=[[9]]), "UNKNOWN_UNIT", "list 0 names 9: there are "),
        (a_run(selected=[[1, 1]]), "DUPLICATE_UNIT", "list 0 of selected has 1 twice"),
        (a_run(v={"dtype": "float16", "shape": [8, 1, 2], "data": "!!!"}), "SHAPE_MISMATCH", "no base64"),
        (a_run(v={"dtype": "float16", "shape": [8, 1, 2], "data": "AAAA"}), "SHAPE_MISMATCH", "3 bytes where 32"),
        (a_run(v={"dtype": "float16", "shape": [8, 1, 2], "data": [1.0]}), "SHAPE_MISMATCH", "1 values"),
        (
            a_run(v={"dtype": "float16", "shape": [8, 1, 1 << 24], "recipe": {"name": "hash32-v1", "seed": 1}}),
            "SHAPE_MISMATCH",
            "more than",
        ),
    ],
)
def test_a_recorded_run_of_a_user_is_told_in_one_line(document: Json, reason: str, text: str) -> None:
    assert problem(document, "urn:kvassay:quality/run") is None
    found = [(one.reason, one.text) for one in findings(document, "urn:kvassay:quality/run")]
    assert [one[0] for one in found] == ([reason] if reason else [])
    assert all(text in one[1] for one in found)


def test_every_fault_of_a_report_is_told_with_its_place() -> None:
    document = bases.base_report()
    document["selections"][1]["measures"]["bound"] = 3.0
    document["selections"][2]["identity"] = {**document["identity"], "layer": 9}
    document["decisions"][0] = {**document["decisions"][0], "publishes": "exact"}
    found = [(one.reason, one.pointer) for one in findings(document, "urn:kvassay:quality/report")]
    assert found == [
        ("ERROR_BOUND_MISMATCH", "/selections/1/measures/bound"),
        ("RECEIPT_OF_OTHER_HEAD", "/selections/2/identity/layer"),
        ("FALLBACK_ACTION_MISMATCH", "/decisions/0/publishes"),
    ]


def test_every_fault_of_a_plan_is_told_with_its_place() -> None:
    document = bases.base_plan()
    document["ablations"][1]["sweeps"][0]["points"] = 1
    document["sources"][1]["hardware"] = None
    found = [(one.reason, one.pointer) for one in findings(document, "urn:kvassay:quality/plan")]
    assert found == [
        ("SWEEP_TOO_SHORT", "/ablations/1/sweeps/0/points"),
        ("SOURCE_CONTEXT_MISSING", "/sources/1/hardware"),
    ]
