"""Oracle and reference of the contract lifecycle share no code; on what Hypothesis writes they agree."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from judges import engine, outcome
from kvassay.corpus.data import fixture_module, read_json, root
from kvassay.corpus.reconcile import reconciliation
from kvassay.corpus.schemas import problem
from kvassay.engines.reference import Reference
from kvassay_reference import lifecycle
from kvassay_reference.manifest import NotAManifest, read, write
from kvassay_reference.pause_document import PauseDocument

oracle = fixture_module("lifecycle.oracle")
book = fixture_module("lifecycle.book")
ACTIONS = ("turn", "preserve", "swap", "discard")


# --- plans -------------------------------------------------------------------------------------------------------

times = st.integers(0, 5000).map(lambda n: n / 1000)
links = st.builds(lambda b, f: {"gib_per_s": b, "fixed_ms": f}, st.integers(1, 640).map(lambda n: n / 10), times)
sizes = st.integers(0, 64).map(lambda n: n << 20)
counts = st.integers(0, 4096)


@st.composite
def resume_plans(draw: st.DrawFn) -> dict[str, Any]:
    layers = draw(st.lists(st.builds(lambda n, c: {"bytes": n * 16, "compute_ms": c}, counts, times), min_size=1))
    size = sum(layer["bytes"] for layer in layers)
    turn = st.builds(lambda h, n: {"history_tokens": h, "new_tokens": n}, counts, counts)
    return {
        "history_tokens": size // 16 + draw(st.sampled_from([0, 0, 0, 1])),
        "new_tokens": draw(counts),
        "token_bytes": 16,
        "layers": layers,
        "h2d": draw(links),
        "read_slots": draw(st.none() | st.integers(1, 4)),
        **{name: draw(times) for name in ("lookup_ms", "queue_ms", "disk_ms", "work_per_token")},
        **{name: draw(times) for name in ("load_ms_per_token", "prefill_ms_per_token")},
        "turns": draw(st.lists(turn, max_size=4)),
    }


save_plans = st.fixed_dictionaries(
    {
        "layers": st.lists(
            st.fixed_dictionaries({"bytes": sizes, "lease_closed_ms": times | times | st.none()}),
            min_size=1,
            max_size=6,
        ),
        "d2h": links,
        "window_ms": times,
        "write_slots": st.integers(0, 7),
    }
)
persists = st.fixed_dictionaries(
    {
        "reuse_probability": st.integers(0, 100).map(lambda n: n / 100),
        "weights": st.fixed_dictionaries(dict.fromkeys(("time", "gpu", "transfer_mib", "hold_mib"), times)),
        "history_bytes": sizes,
        **dict.fromkeys(("idle", "resume_ms", "suffix_gpu_ms", "save_visible_ms", "full_ms", "full_gpu_ms"), times),
    }
)
prefetches = st.fixed_dictionaries(
    {
        "host_bytes": counts,
        "disk_bytes": counts,
        "mean_session_bytes": st.integers(1, 999),
        "reserved_bytes": st.fixed_dictionaries(dict.fromkeys(("writes", "runtime", "emergency"), st.integers(0, 999))),
        "queue": st.lists(st.fixed_dictionaries({"session": st.text(max_size=2), "bytes": st.integers(0, 999)})),
    }
)
policies = st.fixed_dictionaries(
    {
        "now_ms": times,
        "token_bytes": st.integers(1, 64),
        "other_tokens": counts,
        "swap_budget_tokens": counts,
        "host_free_bytes": st.integers(0, 1 << 18),
        "requests": st.lists(
            st.fixed_dictionaries(
                {
                    "id": st.sampled_from("abcdefgh"),
                    "context_tokens": st.integers(1, 4096),
                    "chunks": st.integers(1, 4),
                    "call_ms": st.integers(0, 500).map(lambda n: n / 1000),
                    "duration_ms": st.none() | times,
                    **dict.fromkeys(("forward_ms", "chunk_forward_ms", "swap_ms"), times),
                }
            ),
            max_size=5,
        ),
    }
)
budgets = st.fixed_dictionaries(
    {
        "context_tokens": counts,
        "token_bytes": st.sampled_from([1024, 16384, 131072]),
        "foreground_ms": times,
        "link": links,
        "saturation_tokens": counts,
        "running_tokens": counts,
    }
)
PLANS = {
    "resume_plan": resume_plans(),
    "save_plan": save_plans,
    "persist": persists,
    "prefetch": prefetches,
    "policy": policies,
    "swap_budget": budgets,
}


@pytest.mark.parametrize("op", list(PLANS))
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_both_plan_the_same(op: str, data: st.DataObject) -> None:
    request = data.draw(PLANS[op])
    assert problem(request, f"urn:kvassay:op:lifecycle.{op}#/$defs/request") is None
    wanted = outcome(getattr(oracle.Oracle(), f"lifecycle_{op}"), request)
    assert outcome(getattr(engine(), f"lifecycle_{op}"), request) == wanted


# --- documents ----------------------------------------------------------------------------------------------------


def leaves(node: Any, pointer: str = "") -> list[str]:
    """Pointers of all members that are no objects."""
    if isinstance(node, dict):
        return [at for name, item in node.items() for at in leaves(item, f"{pointer}/{name}")]
    below = (
        [at for i, item in enumerate(node) for at in leaves(item, f"{pointer}/{i}")] if isinstance(node, list) else []
    )
    return [pointer, *below]


def near(value: Any) -> st.SearchStrategy[Any]:
    """Values that stand near another one."""
    if isinstance(value, bool):
        return st.just(not value)
    if isinstance(value, int):
        return st.sampled_from([max(0, value - 1), value + 1, 0, 4, 5, 23, 2048, 3072, 3075])
    if isinstance(value, list):
        return st.sampled_from([value[:-1], [*value, *value[-1:]], value[::-1], []])
    words = ["session-7", "call-9", "turn", "swap", "preserve", "validated", "scheduler_hint", "APPLIED", "5" * 64]
    return st.sampled_from([*words, None, {"first_position": 2048, "end_position": 3072}])


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    """The base document with one to three near changes, mostly with its digests derived anew."""
    document = copy.deepcopy(oracle.pause_document())
    for _ in range(draw(st.integers(1, 3))):
        pointer = draw(st.sampled_from(leaves(document)))
        *path, last = pointer.split("/")[1:]
        node: Any = document
        for part in path:
            node = node[int(part) if isinstance(node, list) else part]
        key = int(last) if isinstance(node, list) else last
        node[key] = draw(near(node[key]))
    whole = problem(document, "urn:kvassay:lifecycle/pause") is None
    return oracle.reseal(document, "")[0] if whole and draw(st.integers(0, 9)) else document


@settings(max_examples=300, deadline=None)
@given(documents())
def test_both_name_the_same_reason(document: dict[str, Any]) -> None:
    wanted = outcome(oracle.Oracle().lifecycle_admit, {"document": document})
    got = outcome(engine().lifecycle_admit, {"document": document})
    assert got == wanted or problem(document, "urn:kvassay:lifecycle/pause") is not None


@settings(max_examples=150, deadline=None)
@given(documents())
def test_the_reference_reads_exactly_what_the_schema_allows(document: dict[str, Any]) -> None:
    try:
        assert write(read(PauseDocument, document)) == document
        legal = True
    except NotAManifest:
        legal = False
    assert legal is (problem(document, "urn:kvassay:lifecycle/pause") is None)


# --- the machine --------------------------------------------------------------------------------------------------

RESULTS = ([901], [901, 902])
HISTORIES = [[11, 12], [11, 12, 13], [11, 12, 13, 901], [12, 13]]
shas = st.sampled_from([oracle.tokens_sha256(tokens) for tokens in HISTORIES])
layer = st.integers(0, 2)


def copies(end: str) -> dict[str, st.SearchStrategy[Any]]:
    """Claims of a save or replica, mostly right."""
    return {
        "generation": st.sampled_from([23, 23, 23, 23, 22]),
        "owner": st.sampled_from(["me", "me", "me", "me", "you"]),
        "first_position": st.sampled_from([0, 0, 0, 0, 1]),
        end: st.integers(2, 4),
        "tokens_sha256": shas,
    }


MEMBERS: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "inspect": {},
    "decode": {"tokens": st.just([13])},
    "pause": {"action": st.sampled_from(ACTIONS), "call_id": st.sampled_from(["c1", "c1", "c2"])},
    "event": {"event": st.sampled_from(["dma_done", "dma_done", "lease_closed"]), "layer": layer},
    "quiesce": {},
    "revise": {"action": st.sampled_from(ACTIONS)},
    "snapshot": {"layer": layer},
    "publish": {**copies("end_position"), "bytes": st.sampled_from([16, 24, 32])},
    "release": {},
    "result": {
        "call_id": st.sampled_from(["c1", "c1", "c2"]),
        "pause_epoch": st.integers(1, 4),
        "result_id": st.sampled_from(["r1", "r1", "r1", "r2"]),
        "tokens": st.sampled_from(RESULTS),
        "tokens_sha256": st.sampled_from([oracle.tokens_sha256(tokens) for tokens in RESULTS]),
    },
    "resume": {"resume_epoch": st.integers(2, 5)},
    "ready": {"replica": st.fixed_dictionaries(copies("valid_end")), "recompute_from": st.integers(2, 4)},
    "prefill": {"tokens": st.just([501])},
    "commit": {},
    "apply": {},
    "fail": {},
    "crash": {},
}
OPTIONAL = {"call_id", "tokens", "replica", "recompute_from"}


@st.composite
def steps(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """One op with its members; those that may be absent are, half of the time."""
    op = draw(st.sampled_from(list(MEMBERS)))
    optional = OPTIONAL if op in ("pause", "prefill", "ready") else set()
    members = {name: draw(value) for name, value in MEMBERS[op].items() if name not in optional or draw(st.booleans())}
    return op, members if op == "crash" else {"session": "s", **members}


def start() -> tuple[Any, Reference]:
    """Both with a running request of two layers."""
    request = {**book.running(), "owner": "me", "lifecycle_epoch": 0, "tokens": [11, 12], "leases": [0], "dma": [1]}
    judge, reference = oracle.Oracle(), engine()
    assert reference.lifecycle_begin(request) == judge.lifecycle_begin(request)
    return judge, reference


def both(judge: Any, reference: Reference, op: str, request: dict[str, Any]) -> Any:
    """The answer, which is the same, and meets the schema."""
    assert problem(request, f"urn:kvassay:op:lifecycle.{op}#/$defs/request") is None
    wanted = outcome(getattr(judge, f"lifecycle_{op}"), request)
    assert outcome(getattr(reference, f"lifecycle_{op}"), request) == wanted
    if isinstance(wanted, dict):
        assert problem(wanted, f"urn:kvassay:op:lifecycle.{op}#/$defs/response") is None
    now = judge.lifecycle_inspect({"session": "s"})
    assert reference.lifecycle_inspect({"session": "s"}) == now
    return wanted


@settings(max_examples=200, deadline=None)
@given(st.lists(steps(), max_size=40))
def test_both_run_random_scripts_alike(script: list[tuple[str, dict[str, Any]]]) -> None:
    judge, reference = start()
    for op, request in script:
        both(judge, reference, op, request)


def next_step(status: dict[str, Any], epoch: int) -> tuple[str, dict[str, Any]]:
    """What leads on from a state, by the rules."""
    tokens = status["tokens"]
    replica = {"generation": 23, "owner": "me", "first_position": 0, "valid_end": len(tokens)}
    replica["tokens_sha256"] = oracle.tokens_sha256(tokens)
    answer = {"call_id": "c1", "pause_epoch": epoch, "result_id": f"r{epoch}", "tokens": [901]}
    answer["tokens_sha256"] = oracle.tokens_sha256([901])
    state, receipt = status["state"], status["receipt"]
    if state in ("SAVING", "SWAPPING_OUT"):
        if status["copying"]:
            return "event", {"event": "dma_done", "layer": status["copying"][0]}
        missing = [one for one in (0, 1) if one not in status["copied"]]
        if missing:
            return "snapshot", {"layer": missing[0]}
        claims = {**replica, "end_position": replica["valid_end"], "bytes": 8 * len(tokens)}
        del claims["valid_end"]
        return "publish", claims
    if state == "QUIESCING":
        return "quiesce", {}
    if receipt in ("UNSEEN", "RETRYABLE", "RESULT_APPEND_COMMITTED"):
        return "result", answer
    if status["lifecycle_epoch"] == epoch or state in ("PAUSED_HOST", "TOKEN_ONLY"):
        return "resume", {"resume_epoch": epoch + 1}
    if state in ("RESTORING", "SWAPPING_IN"):
        return "ready", {"replica": replica}
    if state == "RECOMPUTING":
        return "ready", {}
    if state == "RESUME_READY":
        return "prefill", {} if receipt else {"tokens": [501]}
    return "commit", {}


@settings(max_examples=120, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(ACTIONS), st.sets(st.integers(0, 18), max_size=3)), min_size=1, max_size=3))
def test_every_pause_ends_with_its_suffix_once(pauses: list[tuple[str, set[int]]]) -> None:
    """Whatever the restarts: a few pauses in a row, each led on by the rules, with restarts after some of the steps."""
    judge, reference = start()
    both(judge, reference, "event", {"session": "s", "event": "lease_closed", "layer": 0})
    both(judge, reference, "event", {"session": "s", "event": "dma_done", "layer": 1})
    tokens = [11, 12]
    for number, (action, crashes) in enumerate(pauses):
        call = {} if action == "turn" else {"call_id": "c1"}
        status = both(judge, reference, "pause", {"session": "s", "action": action, **call})
        epoch, restarts = status["lifecycle_epoch"], len(crashes)
        for step in range(60):
            if step in crashes:
                both(judge, reference, "crash", {})
                status = judge.lifecycle_inspect({"session": "s"})
            if status["state"] == "RUNNING":
                break
            if status["state"] == "PAUSED_GPU" and status["receipt"] == "RESERVED":
                both(judge, reference, "resume", {"session": "s", "resume_epoch": epoch + 1})
                claims = {"generation": 23, "owner": "me", "first_position": 0, "valid_end": len(tokens)}
                claims["tokens_sha256"] = oracle.tokens_sha256(tokens)
                status = both(judge, reference, "ready", {"session": "s", "replica": claims})
                continue
            op, members = next_step(status, epoch)
            status = both(judge, reference, op, {"session": "s", **members})
        tokens += [501] if action == "turn" else [901]
        assert (status["state"], status["tokens"], status["appends"]) == ("RUNNING", tokens, number + 1), restarts
        assert (status["arrival_ms"], status["lifecycle_epoch"]) == (1200, epoch + 1)


# --- tables and figures -------------------------------------------------------------------------------------------


def test_the_tables_are_deterministic_and_lead_back() -> None:
    keys = [(row.state, row.event, row.when) for row in lifecycle.TRANSITIONS]
    assert len(set(keys)) == len(keys)
    for action in ACTIONS:
        states = lifecycle.path(action)
        assert states[0] == states[-1] == "RUNNING"
        assert len(set(states[:-1])) == len(states) - 1
    for action in ("turn", "swap"):
        assert list(lifecycle.path(action)) == oracle.PATHS[action].split()
    assert lifecycle.RECEIPT_STEPS == oracle.RECEIPT_STEPS
    assert {row.state for row in lifecycle.TRANSITIONS} == set(
        read_json(root() / "schemas" / "lifecycle" / "status.json")["properties"]["state"]["enum"]
    )


def test_the_golden_figures_come_out_of_both() -> None:
    figures = reconciliation("lifecycle")
    assert len(figures) == 15
    assert all(figure.agrees for figure in figures)
    plans, reference = oracle.base_plans(), engine()
    for name, request in plans.items():
        op = f"lifecycle_{name.replace('-', '_')}"
        assert getattr(reference, op)(request) == getattr(oracle.Oracle(), op)(request)


def test_there_are_as_many_mutations_as_promised() -> None:
    rows = read_json(root() / "fixtures" / "lifecycle" / "cases" / "admit.json")["cases"]
    assert len(rows) >= read_json(root() / "fixtures" / "lifecycle" / "golden-figures.json")["mutations_at_least"]
