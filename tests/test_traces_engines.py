"""Logs of engines' own recorders: real ones are clean, and what is spoiled in them is found."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kvassay import cli
from kvassay.corpus.data import root
from kvassay.traces import translate_lmcache, translate_vllm
from kvassay.traces.check import Checker, Offence
from kvassay.traces.errors import TraceError
from kvassay.traces.kv_events import KvChecker
from kvassay.traces.record_lmcache import Listener
from kvassay.traces.record_vllm import Recorder

ENGINES = root() / "fixtures" / "traces" / "engines"
Rows = list[dict[str, Any]]


def log(name: str) -> Rows:
    return [json.loads(line) for line in (ENGINES / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]


def check(translate: Callable[[Any], Any], rows: Rows) -> tuple[Checker, list[Offence]]:
    text = "".join(json.dumps(row) + "\n" for row in rows).encode()
    checker = Checker()
    return checker, list(checker.offences(translate(io.BytesIO(text))))


@pytest.mark.parametrize(
    ("form", "name", "events"),
    [
        ("vllm-offload", "vllm-offload", 200),
        ("vllm-offload-events", "vllm-offload", 30),
        ("lmcache-l1", "lmcache-l1", 100),
    ],
)
def test_recorded_logs_are_clean(form: str, name: str, events: int, capsys: Any, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    path = ENGINES / f"{name}.jsonl"
    assert cli.status(["trace", "check", "--format", form, str(path), "--json-report", str(report)]) == 0
    assert json.loads(report.read_text())["events"] > events
    assert "no offence" in capsys.readouterr().out


def test_every_kind_of_vllm_call_was_recorded() -> None:
    rows = log("vllm-offload")
    calls = {row["call"] for row in rows if "call" in row}
    assert calls == {"lookup", "prepare_store", "complete_store", "prepare_load", "complete_load", "reset_cache"}
    assert any(row.get("evicted") for row in rows)
    assert any(row.get("success") is False for row in rows)
    assert {row["result"] for row in rows if row.get("call") == "lookup"} == {"HIT", "MISS", "HIT_PENDING"}


def vllm(*calls: dict[str, Any]) -> list[str]:
    header = {"recorder": "vllm-offloading-manager-v1", "version": "x", "chunks": 4}
    return [offence.rule for offence in check(translate_vllm.trace, [header, *calls])[1]]


def store(key: str, chunk: int, **more: Any) -> dict[str, Any]:
    return {"call": "prepare_store", "keys": [key], "stored": [key], "chunks": [chunk], "evicted": [], **more}


def call(name: str, key: str, **more: Any) -> dict[str, Any]:
    return {"call": name, "keys": [key], **more}


def test_what_a_manager_does_wrong_shows_in_its_calls() -> None:
    done, hit = call("complete_store", "a", success=True), call("lookup", "a", result="HIT")
    assert vllm(store("a", 0), done, hit) == []
    assert vllm(store("a", 0), hit) == ["PUBLISHED_UNVALIDATED"]
    assert vllm(store("a", 0), call("complete_store", "a", success=False), hit) == ["PUBLISHED_UNVALIDATED"]
    assert vllm(store("a", 0), store("b", 0)) == ["SLOT_REUSED"]
    assert vllm(store("a", 0), store("a", 1)) == [], "one content, whoever writes it"
    assert vllm(store("a", 0), done, call("prepare_load", "a"), store("b", 1, evicted=["a"])) == ["LEASE_VIOLATED"]
    read = (call("prepare_load", "a"), call("complete_load", "a"))
    assert vllm(store("a", 0), done, *read, store("b", 1, evicted=["a"])) == []
    assert vllm(store("a", 0), done, call("reset_cache", "a"), hit) == ["PUBLISHED_UNVALIDATED"]
    assert vllm(store("a", 0), {"call": "reset_cache"}, store("b", 0)) == [], "a reset flushes what is under way"
    assert vllm(call("lookup", "a", result="HIT_PENDING")) == ["NEVER_READY"]
    assert vllm(store("a", 0), call("lookup", "a", result="RETRY")) == []


def test_spoiled_logs_of_vllm_are_found() -> None:
    rows = log("vllm-offload")
    found = 0
    for index, row in enumerate(rows):
        if row.get("call") == "lookup" and row["result"] == "HIT_PENDING":
            spoiled = [*rows[:index], {**row, "result": "HIT"}, *rows[index + 1 :]]
            _, offences = check(translate_vllm.trace, spoiled)
            assert (offences[0].rule, offences[0].line) == ("PUBLISHED_UNVALIDATED", index + 1)
            found += 1
    assert found > 2
    first = next(index for index, row in enumerate(rows) if row.get("event", {}).get("removed"))
    text = "".join(json.dumps(row) + "\n" for row in [*rows[: first + 1], rows[first], *rows[first + 1 :]]).encode()
    offences = list(KvChecker().offences(translate_vllm.kv_batches(io.BytesIO(text))))
    assert offences[0].rule == "BLOCK_NOT_STORED"


def lmcache(*events: tuple[str, str, float]) -> list[str]:
    header = {"recorder": "lmcache-l1-listener-v1", "version": "x", "write_ttl_ms": 1000, "read_ttl_ms": 1000}
    rows = [{"event": name, "keys": [key], "time_ms": time_ms} for name, key, time_ms in events]
    return [offence.rule for offence in check(translate_lmcache.trace, [header, *rows])[1]]


def test_what_an_l1_manager_does_wrong_shows_in_its_notifications() -> None:
    written = [("reserved_write", "a", 1.0), ("write_finished", "a", 2.0)]
    assert lmcache(*written, ("reserved_read", "a", 3.0), ("read_finished", "a", 4.0), ("deleted", "a", 5.0)) == []
    assert lmcache(("reserved_write", "a", 1.0), ("reserved_read", "a", 2.0)) == ["PUBLISHED_UNVALIDATED"]
    assert lmcache(*written, ("reserved_read", "a", 3.0), ("deleted", "a", 4.0)) == ["LEASE_VIOLATED"]
    assert lmcache(*written, ("reserved_read", "a", 3.0), ("deleted", "a", 1500.0)) == [], "the lock has expired"
    assert lmcache(("reserved_write", "a", 1.0), ("reserved_write", "a", 900.0)) == [], "one content, whoever writes it"
    assert lmcache(*written, ("deleted", "a", 3.0), ("reserved_read", "a", 4.0)) == ["PUBLISHED_UNVALIDATED"]
    both = [("reserved_write", "a", 1.0), ("write_finished_and_reserved_read", "a", 2.0), ("deleted", "a", 3.0)]
    assert lmcache(*both) == ["LEASE_VIOLATED"]


@pytest.mark.parametrize(
    ("translate", "rows", "at"),
    [
        (translate_vllm.trace, [{"recorder": "other"}], "line 1: /recorder"),
        (translate_vllm.trace, [{"recorder": "vllm-offloading-manager-v1", "chunks": "many"}], "line 1: /chunks"),
        (translate_vllm.trace, [log("vllm-offload")[0], {"call": "evict"}], "line 2: /call"),
        (translate_vllm.trace, [log("vllm-offload")[0], {"call": "lookup", "keys": [3]}], "line 2: /keys"),
        (translate_vllm.trace, [log("vllm-offload")[0], store("a", 0) | {"chunks": ["x"]}], "line 2: /chunks"),
        (translate_lmcache.trace, [{"recorder": "lmcache-l1-listener-v1"}], "line 1: /write_ttl_ms"),
        (translate_lmcache.trace, [log("lmcache-l1")[0], {"event": "moved", "keys": ["a"]}], "line 2: /event"),
    ],
)
def test_a_log_that_is_none_has_number_and_place(translate: Any, rows: Rows, at: str) -> None:
    with pytest.raises(TraceError, match=at):
        check(translate, rows)


def test_an_empty_log_is_a_failure() -> None:
    assert [offence.rule for offence in check(translate_vllm.trace, [])[1]] == ["EMPTY"]


class Manager:
    """The shape of vLLM's manager, and nothing behind it."""

    medium = "CPU"

    def lookup(self, key: bytes, context: Any) -> Any:
        return SimpleNamespace(name="HIT")

    def prepare_store(self, keys: Any, context: Any) -> Any:
        if context is None:
            return None
        return SimpleNamespace(
            keys_to_store=list(keys), store_spec=SimpleNamespace(block_ids=[3]), evicted_keys=[b"\x09"]
        )

    def complete_store(self, keys: Any, context: Any, success: bool = True) -> None:
        return None

    def prepare_load(self, keys: Any, context: Any) -> Any:
        return SimpleNamespace(block_ids=[1])

    def complete_load(self, keys: Any, context: Any) -> None:
        return None

    def reset_cache(self) -> None:
        return None

    def take_events(self) -> Any:
        members = {"keys": [b"\x01"], "removed": False, "ownership": None, "metadata_only": False}
        yield SimpleNamespace(**members, medium=SimpleNamespace(name="CPU"))


def test_a_recorder_is_the_manager_and_writes_each_call() -> None:
    written: list[str] = []
    manager = Recorder(Manager(), chunks=4, version="1", write=written.append)
    assert manager.medium == "CPU"
    assert manager.lookup(b"\x01", None).name == "HIT"
    assert manager.prepare_store([b"\x01"], None) is None
    assert manager.prepare_store([b"\x01"], 1).evicted_keys == [b"\x09"]
    manager.complete_store([b"\x01"], 1, False)
    manager.prepare_load([b"\x01"], 1)
    manager.complete_load([b"\x01"], 1)
    manager.reset_cache()
    assert len(list(manager.take_events())) == 1
    rows = [json.loads(line) for line in written]
    assert [row.get("call") for row in rows[1:-1]] == [
        "lookup",
        "prepare_store",
        "prepare_store",
        "complete_store",
        "prepare_load",
        "complete_load",
        "reset_cache",
    ]
    assert rows[3] == {
        "call": "prepare_store",
        "keys": ["01"],
        "stored": ["01"],
        "chunks": [3],
        "evicted": ["09"],
        "result": "granted",
    }
    assert rows[4]["success"] is False
    assert rows[-1]["event"]["medium"] == "CPU"


def test_a_listener_spells_every_field_of_a_key() -> None:
    written: list[str] = []
    listener = Listener(version="1", write_ttl_ms=5, read_ttl_ms=6, write=written.append)
    key = SimpleNamespace(chunk_hash=b"\x0a", model_name="m", kv_rank=18, object_group_id=2, cache_salt="s")
    for name in ("reserved_write", "write_finished", "reserved_read", "read_finished"):
        getattr(listener, f"on_l1_keys_{name}")([key])
    listener.on_l1_keys_finish_write_and_reserve_read(["k"])
    listener.on_l1_keys_deleted_by_manager(["k"])
    listener.on_l1_keys_deleted_by_manager([])
    listener.on_l1_keys_accessed(["k"])
    rows = [json.loads(line) for line in written]
    assert rows[1]["keys"] == ["0a@m@12@2@s"]
    assert [row["event"] for row in rows[1:]] == [
        "reserved_write",
        "write_finished",
        "reserved_read",
        "read_finished",
        "write_finished_and_reserved_read",
        "deleted",
    ]
