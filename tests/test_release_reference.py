"""Oracle and reference of the contract release share no code; on what Hypothesis writes they agree."""

from __future__ import annotations

import copy
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from judges import engine, outcome
from kvassay.cli import status
from kvassay.corpus.data import fixture_module, read_json, root
from kvassay.corpus.reconcile import reconciliation
from kvassay.corpus.rules import findings
from kvassay.corpus.schemas import problem
from kvassay.engines.reference import ReferenceStrict
from kvassay_reference.manifest import read, write
from kvassay_reference.release import registry, rollout, store
from kvassay_reference.release.record import Record

ROOT = Path(__file__).resolve().parents[1]
author = fixture_module("release.author")
documents = fixture_module("release.documents")
judge = fixture_module("release.oracle")
BASES = author.base_documents()


def both(op: str, request: Any, left: Any = None, right: Any = None) -> tuple[Any, Any]:
    """What oracle and reference answer to a request that meets its schema."""
    assert problem(request, f"urn:kvassay:op:release.{op}#/$defs/request") is None
    left, right = left or judge.Oracle(), right or engine()
    asked = (outcome(getattr(one, f"release_{op}"), copy.deepcopy(request)) for one in (left, right))
    return next(asked), next(asked)


# --- registries ---------------------------------------------------------------------------------------------------

WORDS = {name: field["enum"] for name, field in
         read_json(root() / "schemas/release/registry.json")["properties"]["pipelines"]["items"]["properties"]["fields"]
         ["properties"].items() if "enum" in field}  # fmt: skip
LISTS = {
    "update": ["offline", "prefill", "append", "periodic_decode", "every_query"],
    "fallback": ["wait", "widen", "promote", "recompute", "degrade", "reject"],
    "workload": ["fixed_context", "multi_turn", "interrupted", "long_decode", "offline_batch", "online_serving"],
}
TIERS = ["gpu", "host", "disk", "storage_device", "remote"]
PROXIES = ["none", "query_dimensions", "page_extrema", "partial_columns", "key_vectors", "pq_codes", "centroids",
           "hash_codes", "representative_keys"]  # fmt: skip
TRAFFIC = ["all_rows", "selected_rows", "query_and_output", "query_and_states"]


def some(names: list[str], least: int) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(names), unique=True, min_size=least, max_size=3)


pipelines = st.fixed_dictionaries(
    {
        "name": st.sampled_from("abc"),
        "sources": some(["notes", "tree", "lost"], 1),
        "injection": st.sampled_from(["attention_state"] * 4 + ["prompt"]),
        "fields": st.fixed_dictionaries(
            {
                **{name: st.sampled_from(words) for name, words in WORDS.items()},
                **{name: some(words, name != "update") for name, words in LISTS.items()},
                "representation": st.builds(
                    lambda proxy: {"payload": "native_kv", "proxy": proxy}, st.sampled_from(PROXIES)
                ),
                "tier": st.builds(
                    lambda payload, metadata: {"payload": payload, "metadata": metadata},
                    some(TIERS, 1),
                    st.sampled_from(["none", *TIERS]),
                ),
            }
        ),
        "traffic": st.sampled_from(TRAFFIC),
        "chosen": st.just([]),
    }
)


def repaired(draw: st.DrawFn, row: dict[str, Any]) -> dict[str, Any]:
    """A pipeline whose fields fit each other, but for one that may not."""
    made = copy.deepcopy(row)
    fields = made["fields"]
    exact = fields["support"] == "all_legal"
    proxy = "none" if exact else draw(st.sampled_from(PROXIES[1:]))
    known = read(registry.Registry, {**BASES["registry-small"], "pipelines": [row]}).pipelines[0]
    fields["representation"]["proxy"] = proxy
    fields["index"] = draw(st.sampled_from([index for index, of in registry.PROXY_OF.items() if of == proxy]))
    built = fields["index"] != "none"
    fields["update"] = (fields["update"] or ["append"]) if built else []
    fields["tier"]["metadata"] = "host" if built else "none"
    fields["exactness"] = registry.EXACTNESS[fields["support"]]
    made["traffic"] = registry.traffic(known.fields)
    spoil = draw(st.sampled_from([None, None, *fields, "traffic"]))
    if spoil == "traffic":
        made["traffic"] = row["traffic"]
    elif spoil:
        fields[spoil] = row["fields"][spoil]
    return made


@st.composite
def registries(draw: st.DrawFn) -> dict[str, Any]:
    rows = [repaired(draw, row) for row in draw(st.lists(pipelines, min_size=1, max_size=2))]
    base = copy.deepcopy(BASES["registry-small"])
    return {**base, "pipelines": rows, "evaluations": [], "interfaces": []}


@settings(max_examples=120, deadline=None)
@given(document=registries())
def test_both_judge_registries_alike(document: dict[str, Any]) -> None:
    left, right = both("registry", {"document": document})
    assert left == right


@settings(max_examples=70, deadline=None)
@given(data=st.data())
def test_both_judge_results_and_interfaces_alike(data: st.DataObject) -> None:
    document = copy.deepcopy(BASES["registry-small"])
    for result in document["evaluations"]:
        result["pipeline"] = data.draw(st.sampled_from(["draw", "book", "bench", "near", "recall", "nobody"]))
        result["source"] = data.draw(st.sampled_from(["notes", "tree"]))
        result["evidence"] = data.draw(st.sampled_from(["source_reported", "measured"]))
        result["report_sha256"] = data.draw(st.sampled_from([None, "c" * 64]))
        result["use"] = data.draw(st.sampled_from(["evidence", "reproduction", "planning"]))
        result["claim"]["reading"] = data.draw(st.sampled_from(["as_reported", "exact"]))
        name = data.draw(st.sampled_from(list(result["conditions"])))
        result["conditions"][name] = data.draw(st.sampled_from([None, "stated"]))
    left, right = both("registry", {"document": document})
    assert left == right


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_both_compare_alike(data: st.DataObject) -> None:
    names = st.sampled_from([*(row["name"] for row in BASES["registry"]["pipelines"]), "nobody"])
    rank_by = data.draw(st.sampled_from([None, None, "latency"]))
    request = {
        "document": BASES["registry"],
        "left": data.draw(names),
        "right": data.draw(names),
        "rank_by": rank_by,
    }
    left, right = both("compare", request)
    assert left == right
    if isinstance(right, dict):
        assert sorted([*right["same"], *right["differ"]]) == sorted(registry.FIELDS)


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_both_classify_alike(data: st.DataObject) -> None:
    metrics = [name for one in registry.INTERFACES.values() for name in one.metrics]
    request = {
        "query": data.draw(st.sampled_from(["attention_query", "hidden_state", "text_embedding"])),
        "object": data.draw(st.sampled_from(["cached_rows", "memory_pairs", "next_token_labels", "passages"])),
        "injection": data.draw(st.sampled_from(list(registry.INTERFACES))),
        "metrics": data.draw(some(metrics, 0)),
    }
    left, right = both("classify", request)
    assert left == right


def test_the_published_registry_holds_what_was_asked_for() -> None:
    names = [row["name"] for row in BASES["registry"]["pipelines"]]
    assert len(set(names)) == len(names) >= 20
    for name in ("FlexGen", "vLLM 0.26.0 offloading", "LMCache 0.5.2", "CachedAttention", "InferCept", "HeadInfer",
                 "NEO", "InstInfer", "SparQ", "Quest", "InfiniGen", "RetrievalAttention", "PQCache",
                 "SqueezedAttention", "MagicPIG",
                 "InfLLM", "EM-LLM", "ClusterKV", "ScoutAttention", "IceCache", "KVDrive"):  # fmt: skip
        assert name in names
    assert all(len(row["fields"]) == 10 for row in BASES["registry"]["pipelines"])
    assert {row["family"] for row in engine().release_registry({"document": BASES["registry"]})["pipelines"]} == {
        "exact_movement", "exact_placement", "near_data", "query_fetch", "compact_index", "sampling",
        "recallable_memory",
    }  # fmt: skip


@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_both_judge_statements_alike(data: st.DataObject) -> None:
    document = copy.deepcopy(BASES["statement"])
    rules = read_json(root() / "schemas/release/statement.json")["properties"]
    for name in data.draw(some([name for name in document if name != "format"], 0)):
        parts = rules[name]["properties"]
        document[name] = {part: data.draw(st.sampled_from(parts[part]["enum"])) for part in parts}
    left, right = both("statement", {"document": document})
    assert left == right


# --- plans --------------------------------------------------------------------------------------------------------

shares = st.integers(0, 1000).map(lambda n: n / 1000)
times = st.integers(0, 20000).map(lambda n: n / 1000)
controls = st.fixed_dictionaries(
    {
        "context_tokens": st.integers(1, 1 << 20),
        "concurrency": st.integers(1, 64),
        "output_tokens": st.integers(1, 4096),
        "selected": shares,
        "reuse": shares,
        "coalesced": shares,
        "gib_per_s": st.integers(1, 100000).map(lambda n: n / 1000),
        "queue_ms": times,
        "cpu_bytes": st.integers(0, 1 << 42),
    }
)


@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_both_derive_the_same_ledgers(data: st.DataObject) -> None:
    setting = data.draw(controls)
    sweeps = []
    for name in data.draw(st.lists(st.sampled_from(list(setting)), max_size=3)):
        others = data.draw(st.lists(controls, min_size=1, max_size=3))
        points = [{**setting, name: other[name]} for other in others]
        if data.draw(st.integers(0, 9)) == 0:
            points[-1] = others[-1]
        sweeps.append({"control": name, "points": points})
    extent = st.integers(1, 130)
    request = {
        "geometry": {name: data.draw(extent) for name in ("layers", "kv_heads", "head_dim", "item_bytes")},
        "setup_ms": data.draw(times),
        "controls": setting,
        "reuse_elsewhere": data.draw(shares),
        "quality": data.draw(
            st.none() | st.fixed_dictionaries({"retained_mass": shares, "evidence": st.sampled_from(["measured"])})
        ),
        "sweeps": sweeps,
    }
    left, right = both("sensitivity", request)
    if isinstance(left, str):
        assert left == right
        return
    bound = judge.Oracle().bound("release.sensitivity", request, left, "")["float64"]["rtol"]
    for one, other in zip(
        [left["base"], *(point for sweep in left["sweeps"] for point in sweep["points"])],
        [right["base"], *(point for sweep in right["sweeps"] for point in sweep["points"])],
        strict=True,
    ):
        assert one.keys() == other.keys()
        for name, value in one.items():
            assert value == other[name] or abs(value - other[name]) <= bound * abs(value), name
    assert [sweep["changed"] for sweep in left["sweeps"]] == [sweep["changed"] for sweep in right["sweeps"]]


def test_the_ledger_is_array_code() -> None:
    strict = ReferenceStrict()
    strict.open()
    request = author.sensitivities.swept(BASES["sensitivity"], reuse=(0.25, 0.75), context_tokens=(70, 1 << 20))
    assert strict.release_sensitivity(request) == engine().release_sensitivity(request)


@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_both_decide_alike(data: st.DataObject) -> None:
    few = st.integers(0, 4).map(lambda n: n / 10)
    number = st.integers(0, 2)
    flag = st.booleans()
    request = {
        "capacity": {"resident_bytes": data.draw(number), "gpu_bytes": data.draw(number),
                     "other_constraint": data.draw(flag)},
        "offload": {name: data.draw(few) for name in ("service_ms", "link_budget_ms", "p99_ms", "p99_budget_ms")},
        "sparsity": {
            "evidence": data.draw(st.sampled_from(["measured", "measured", "fraction", "none"])),
            "retained_mass": data.draw(st.none() | few),
            "oracle_recall": data.draw(st.none() | few),
            "mass_floor": data.draw(few),
            "recall_floor": data.draw(few),
        },
        "selection": {name: data.draw(few) for name in ("ready_ms", "overlap_ms", "transfer_ms", "deadline_ms")},
        "approximation": {"allowed": data.draw(flag), "exact_fallback": data.draw(flag)},
        "identities": {
            **{name: data.draw(number) for name in ("cache_generation", "index_generation", "pool_generation")},
            "transactional": data.draw(flag),
        },
    }  # fmt: skip
    left, right = both("decide", request)
    assert left == right


@settings(max_examples=120, deadline=None)
@given(data=st.data())
def test_both_act_alike_on_failures(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(list(author.decisions.EVENTS)))
    facts = {}
    for name, value in author.decisions.EVENTS[kind].items():
        if isinstance(value, bool):
            facts[name] = data.draw(st.booleans())
        elif isinstance(value, int):
            facts[name] = data.draw(st.integers(0, 2))
        elif isinstance(value, list):
            facts[name] = data.draw(some(value, 0))
        else:
            facts[name] = data.draw(st.sampled_from("ab"))
    left, right = both("failure_action", {"event": {"kind": kind, **facts}})
    assert left == right


# --- rollouts and records -----------------------------------------------------------------------------------------

STATES = ["OFF", "SHADOW", "CANARY", "RAMP", "FULL", "EXACT_BASELINE"]


@st.composite
def measurements(draw: st.DrawFn, candidate: dict[str, Any], here: tuple[str, int]) -> dict[str, Any]:
    """Evidence of where the candidate is, mostly good, from few ids so that they meet."""
    made = documents.evidence(candidate, draw(st.sampled_from([f"e{n}" for n in range(12)])), *here)
    change = draw(st.sampled_from([None] * 6 + list(made)))
    if change in ("logit", "quality"):
        made["logit"] = draw(st.sampled_from([None, {"error": 0.5, "controlled": True},
                                              {"error": 0, "controlled": False}]))  # fmt: skip
        made["quality"] = draw(st.sampled_from([None, {"drop": 0.5, "held_out": True},
                                                {"drop": 0, "held_out": False}]))  # fmt: skip
    elif change in ("restarts", "replays"):
        made[change] = draw(st.sampled_from([None, {"run": 0, "failed": 0}, {"run": 2, "failed": 1}]))
    elif change == "stage":
        made[change] = draw(st.sampled_from(STATES))
    elif change == "manifest_sha256":
        made[change] = "f" * 64
    elif change == "fraction_milli":
        made[change] = draw(st.sampled_from([0, 100, 1000]))
    elif change not in (None, "id"):
        made[change] = draw(st.sampled_from([None, 0, 3, 99]))
    return dict(made)


@settings(max_examples=70, deadline=None)
@given(data=st.data())
def test_both_walk_the_same_way(data: st.DataObject) -> None:
    left, right = judge.Oracle(), engine()
    shapes = [documents.EXACT, documents.APPROXIMATE]
    names = [f"c{number}" for number in range(3)]
    proposed: dict[str, Any] = {}
    for _ in range(data.draw(st.integers(1, 24))):
        name = data.draw(st.sampled_from(names))
        known = proposed.get(name)
        where = left.rollouts.all.get(name)
        here = (where["state"], where["fraction_milli"]) if where else ("OFF", 0)
        op = data.draw(st.sampled_from(["advance"] * 6 + ["propose", "observe", "shift", "serve", "inspect"]))
        if known is None or op == "propose":
            shape = data.draw(st.sampled_from(shapes))
            candidate = {**shape, "name": name, "baseline_exact": data.draw(st.integers(0, 9)) > 0,
                         "ramp_milli": data.draw(st.sampled_from([[100], [50, 250], [250, 50]]))}  # fmt: skip
            op, request = "propose", {"candidate": candidate}
            if name not in left.rollouts.all:
                proposed[name] = candidate
        elif op == "advance":
            way = [*rollout_stations(known), ("RAMP", 7), ("CANARY", 50)]
            following = dict(pairwise(way)).get(here, ("FULL", 1000))
            target = data.draw(st.sampled_from([following] * 6 + way[1:]))
            nothing = here == ("OFF", 0)
            seen = data.draw(st.sampled_from([nothing] * 9 + [not nothing]))
            request = {
                "name": name,
                "target": target[0],
                "fraction_milli": target[1],
                "evidence": None if seen else data.draw(measurements(known, here)),
            }
        elif op == "observe":
            request = {"name": name, "evidence": data.draw(measurements(known, here))}
        elif op == "shift":
            changed = {
                **known["manifest"],
                "topology": data.draw(st.sampled_from(["x", known["manifest"]["topology"]])),
            }
            request = {"name": name, "manifest": changed}
        elif op == "serve":
            request = {
                "name": name,
                "tenant": data.draw(st.sampled_from(["tenant-a", "tenant-b", "z"])),
                "request_class": data.draw(st.sampled_from(["chat", "batch"])),
                "bucket": data.draw(st.sampled_from([0, 49, 50, 99, 100, 249, 250, 999])),
                "allows_approximation": data.draw(st.booleans()),
            }
        else:
            request = {"name": name}
        one, other = both(op, request, left, right)
        assert one == other, op


def rollout_stations(candidate: dict[str, Any]) -> list[tuple[str, int]]:
    return [(one.state, one.fraction_milli) for one in read(rollout.Candidate, candidate).stations]


@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_both_judge_records_alike(data: st.DataObject) -> None:
    document = copy.deepcopy(BASES[data.draw(st.sampled_from(["record-exact", "record-approximate", "record-full"]))])
    for _ in range(data.draw(st.integers(1, 2))):
        step = document["transitions"][data.draw(st.integers(0, len(document["transitions"]) - 1))]
        match data.draw(st.integers(0, 6)):
            case 0:
                step["source" if data.draw(st.booleans()) else "target"] = data.draw(st.sampled_from(STATES))
            case 1:
                step["fraction_milli"] = data.draw(st.sampled_from([0, 50, 200, 600, 1000]))
            case 2:
                here = (document["transitions"][0]["target"], 0)
                step["evidence"] = data.draw(st.none() | measurements(document["candidate"], here))
            case 3:
                step["failed"] = data.draw(st.sampled_from([[], ["quality_drop"], ["exposed_stall_ms"]]))
            case 4:
                document["state"] = data.draw(st.sampled_from(STATES))
            case 5:
                document["served"] = {
                    "shadow": data.draw(st.integers(0, 1)),
                    "canary": [{"tenant": data.draw(st.sampled_from(["tenant-a", "z"])), "request_class": "chat",
                                "outputs": 1}],
                }  # fmt: skip
            case _:
                del document["transitions"][-1]
                if not document["transitions"]:
                    return
    left, right = both("admit", {"document": document})
    assert left == right


def test_records_are_read_and_written_as_they_are() -> None:
    for name in ("record-exact", "record-approximate", "record-full"):
        assert write(read(Record, BASES[name])) == BASES[name]
    assert write(read(registry.Registry, BASES["registry"])) == BASES["registry"]


# --- the store ----------------------------------------------------------------------------------------------------

IDENTITIES = [
    {"tenant": tenant, "domain": "eu", "model": model, "adapter": "none", "representation": "kv", "first_position": 0,
     "rows": 2}
    for tenant in "ab"
    for model in ("m", "n")
]  # fmt: skip


@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_both_stores_hold_the_same(data: st.DataObject) -> None:
    left, right = judge.Oracle(), engine()

    def pick(*names: Any) -> Any:
        return data.draw(st.sampled_from(names))

    for _ in range(data.draw(st.integers(1, 40))):
        op = pick("reserve", "write", "write", "commit", "commit", "get", "get", "get", "unlease", "evict", "erase",
                  "tamper", "restart", "census", "audit")  # fmt: skip
        transaction, receipt, lease = pick("t1", "t2", "t3", "t4"), pick("r1", "r2", "r3", "r4"), pick("l1", "l2")
        identity = pick(*IDENTITIES)
        request: dict[str, Any] = {
            "reserve": {"transaction": transaction, "identity": identity},
            "write": {"transaction": transaction, "payload": pick([1, 2], [1, 2], [3, 4], [5])},
            "commit": {"transaction": transaction, "receipt": receipt},
            "get": {"identity": identity, "lease": pick(None, lease)},
            "unlease": {"lease": lease},
            "evict": {"identity": identity, "tier": pick("gpu", "host")},
            "erase": {"identity": identity, "receipt": receipt},
            "tamper": {"identity": identity, "tier": pick("gpu", "host", "durable"), "swap": pick(None, *IDENTITIES)},
            "restart": {},
            "census": {},
            "audit": {"tenant": pick("a", "b"), "domain": "eu"},
        }[op]
        one, other = both(op, request, left, right)
        assert one == other, op


def test_a_tag_knows_whose_rows_they_are() -> None:
    first = store.Identity(**IDENTITIES[0])
    tags = {store.tag(store.Identity(**one), generation, (1, 2)) for one in IDENTITIES for generation in (1, 2)}
    assert len(tags) == 2 * len(IDENTITIES)
    assert store.tag(first, 1, (12, 3)) != store.tag(first, 11, (2, 3))
    assert store.tag(first, 1, (1, 23)) != store.tag(first, 1, (12, 3))


# --- figures, files, and the command ------------------------------------------------------------------------------


def test_the_golden_figures_come_out_of_both() -> None:
    figures = reconciliation("release")
    assert len(figures) == 11
    assert all(figure.agrees for figure in figures)
    base = engine().release_sensitivity(BASES["sensitivity"])["base"]
    assert base["unique_bytes"] == 0.75 * (1 << 30)
    assert base["service_ms"] == pytest.approx(31.48, rel=1e-14)
    assert base["decode_bytes"] == 96 * (1 << 30)


def test_there_are_as_many_mutations_as_promised() -> None:
    rows = [case for case in author.book.cases if case["kind"] == "mutation"]
    assert len(rows) >= read_json(root() / "fixtures" / "release" / "golden-figures.json")["mutations_at_least"]
    assert len({case["steps"][0]["reason"] for case in rows}) >= 35


def test_the_example_is_the_registry() -> None:
    assert read_json(ROOT / "examples" / "registry.json") == BASES["registry"]


def test_validate_gives_each_fault_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert status(["validate", str(ROOT / "examples" / "registry.json")]) == 0
    assert "a valid document (release/registry)" in capsys.readouterr().out
    broken = copy.deepcopy(BASES["registry"])
    broken["pipelines"][0]["fields"]["exactness"] = "estimator"
    broken["pipelines"][3]["traffic"] = "selected_rows"
    broken["evaluations"][-1]["use"] = "planning"
    path = tmp_path / "registry.json"
    path.write_text(json.dumps(broken), encoding="utf-8")
    assert status(["validate", str(path)]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(": ")[2] for line in lines] == [
        "/pipelines/0/fields/exactness",
        "/pipelines/3/traffic",
        f"/evaluations/{len(broken['evaluations']) - 1}/use",
    ]
    assert [line.rpartition("(")[2] for line in lines] == [
        "EXACTNESS_OF_OTHER_SUPPORT)",
        "TRAFFIC_OF_OTHER_SUPPORT)",
        "SOURCE_RESULT_AS_PLAN)",
    ]
    del broken["pipelines"][5]["fields"]["unit"]
    path.write_text(json.dumps(broken), encoding="utf-8")
    assert status(["validate", str(path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "/pipelines/5/fields" in line


@pytest.mark.parametrize("name", ["record-exact", "record-approximate", "record-full"])
def test_validate_replays_records(name: str) -> None:
    assert findings(BASES[name], "urn:kvassay:release/rollout") == []
    lying = {**BASES[name], "fraction_milli": 999}
    (found,) = findings(lying, "urn:kvassay:release/rollout")
    assert found.reason == "ROLLOUT_STATE_MISMATCH"
    assert findings({}, "urn:kvassay:report") == []
