"""The adapters of Mooncake, LMCache and SGLang map what they are given, and forward what is over.

With the package installed its own store is driven, without it a stand-in from :mod:`fake_stores`; whether an engine
conforms is for the suite to say.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.metadata
import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace
from typing import Any

import fake_stores
import numpy as np
import pytest
from kvassay.adapters.base import Rejected, Unsupported
from kvassay.engines import wall_clock
from kvassay.engines._replies import told

SLOT_BYTES = 4096
Row = np.ndarray[Any, np.dtype[np.uint8]]


@dataclass(frozen=True)
class Kind:
    """An adapter, the package that it needs, and what stands in for that."""

    module: str
    adapter: str
    package: str
    fake: Callable[[], fake_stores.Modules]


KINDS = {
    "mooncake": Kind("mooncake_store", "Adapter", "mooncake", fake_stores.mooncake),
    "mooncake-upsert": Kind("mooncake_store", "Upsert", "mooncake", fake_stores.mooncake),
    "mooncake-one-client": Kind("mooncake_store", "OneClient", "mooncake", fake_stores.mooncake),
    "lmcache-l1": Kind("lmcache_l1", "Adapter", "lmcache", fake_stores.lmcache),
    "lmcache-l1-tagged": Kind("lmcache_l1", "Tagged", "lmcache", fake_stores.lmcache),
    "lmcache-storage": Kind("lmcache_storage", "Adapter", "lmcache", fake_stores.lmcache),
    "sglang-hicache-store": Kind("sglang_store", "Adapter", "sglang", fake_stores.sglang),
    "sglang-hicache-store-cached": Kind("sglang_store", "MetadataCached", "sglang", fake_stores.sglang),
}
MOONCAKE = tuple(name for name in KINDS if name.startswith("mooncake"))
L1 = ("lmcache-l1", "lmcache-l1-tagged")
TRANSACTIONS = (*MOONCAKE, *L1, "lmcache-storage")


def imported(kind: Kind, patch: pytest.MonkeyPatch) -> ModuleType:
    """The adapter's module; where its package is not installed, over the stand-in, and for this test alone."""
    name = f"kvassay.engines.{kind.module}"
    if importlib.util.find_spec(kind.package) is not None:
        return importlib.import_module(name)
    for other, module in kind.fake().items():
        patch.setitem(sys.modules, other, module)
    for other in {row.module for row in KINDS.values() if row.package == kind.package}:
        patch.setitem(sys.modules, f"kvassay.engines.{other}", ModuleType(other))
        del sys.modules[f"kvassay.engines.{other}"]
    patch.setattr(importlib.metadata, "version", lambda package: "0.0-fake")
    patch.setattr(ctypes, "CDLL", lambda *arguments: None)
    module = importlib.import_module(name)
    if kind.package == "mooncake":
        master = SimpleNamespace(terminate=lambda: None, wait=lambda seconds: None)
        quiet = SimpleNamespace(Popen=lambda *words, **more: master, STDOUT=0, DEVNULL=0)
        patch.setattr(module, "subprocess", quiet)
        patch.setattr(module, "wait_for", lambda port: None)
    return module


@pytest.fixture(params=sorted(KINDS))
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    kind = KINDS[request.param]
    made = getattr(imported(kind, monkeypatch), kind.adapter)()
    made.setup()
    made.open()
    yield made
    made.teardown()


def only(*names: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("engine", names, indirect=True)


def rows(value: int) -> Row:
    return np.full(SLOT_BYTES, value, np.uint8)


def call(engine: Any, op: str, **request: Any) -> Mapping[str, Any]:
    name = op if op.startswith("control_") else f"residency_{op}"
    result: Mapping[str, Any] = getattr(engine, name)(request)
    assert op.startswith("control_") or result["engine_calls"] >= 1
    return result


def opened(engine: Any, slots: int = 4, **more: Any) -> Any:
    call(engine, "open", slots=slots, slot_bytes=SLOT_BYTES, **more)
    return engine


def begun(engine: Any, mode: str, owner: str = "r", **data: int) -> str:
    more = {"data": [rows(value) for value in data.values()]} if mode == "store" else {}
    result = call(engine, "reserve", mode=mode, keys=list(data), owner=owner, **more)
    assert [grant["outcome"] for grant in result["grants"]] == ["granted"] * len(data)
    return str(result["txn"])


def stored(engine: Any, **data: int) -> None:
    txn = begun(engine, "store", **data)
    assert call(engine, "copy", txn=txn)["bytes"] == SLOT_BYTES * len(data)
    assert call(engine, "complete", txn=txn)["outcome"] == "done"


def serves(engine: Any, key: str, value: int | None, **more: Any) -> None:
    result = call(engine, "get", key=key, **more)
    if value is None:
        assert result["outcome"] == "miss"
    else:
        np.testing.assert_array_equal(result["data"], rows(value))


# --- single calls ----------------------------------------------------------------------------------------------------


def test_rows_come_back_as_they_went_in(engine: Any) -> None:
    opened(engine)
    assert call(engine, "put", key="a", data=rows(1))["outcome"] == "stored"
    assert call(engine, "put", key="b", data=rows(2))["outcome"] == "stored"
    serves(engine, "a", 1)
    serves(engine, "b", 2)
    serves(engine, "c", None)
    replaces = not engine.capabilities.get("residency.content_addressed")
    again = call(engine, "put", key="a", data=rows(3 if replaces else 1))["outcome"]
    assert again == ("replaced" if replaces else "resident")
    serves(engine, "a", 3 if replaces else 1)


def test_a_look_up_answers_in_the_order_of_the_keys(engine: Any) -> None:
    opened(engine)
    call(engine, "put", key="b", data=rows(2))
    assert call(engine, "lookup", keys=["a", "b", "c"])["states"] == ["miss", "ready", "miss"]


@only(*(name for name in KINDS if name != "lmcache-storage"))  # whose files stay, which its report tells
def test_a_reset_forgets_everything(engine: Any) -> None:
    opened(engine)
    call(engine, "put", key="a", data=rows(1))
    call(engine, "reset")
    serves(engine, "a", None)
    assert call(engine, "lookup", keys=["a"])["states"] == ["miss"]


def test_a_case_begins_empty(engine: Any) -> None:
    opened(engine)
    call(engine, "put", key="a", data=rows(1))
    engine.open()
    opened(engine)
    serves(engine, "a", None)


@only(*MOONCAKE, *L1, "lmcache-storage")
def test_what_is_removed_is_told_key_by_key(engine: Any) -> None:
    opened(engine)
    call(engine, "put", key="a", data=rows(1))
    call(engine, "put", key="b", data=rows(2))
    force = {"force": True} if engine.capabilities.get("residency.lease_lingers") else {}
    assert call(engine, "remove", keys=["nobody", "a"], **force)["outcomes"] == ["absent", "removed"]
    serves(engine, "a", None)
    serves(engine, "b", 2)


@only(*L1, "sglang-hicache-store", "sglang-hicache-store-cached")
def test_a_store_that_is_full_refuses_or_evicts_and_serves_no_others_rows(engine: Any) -> None:
    opened(engine, slots=1)
    call(engine, "put", key="a", data=rows(1))
    outcome = call(engine, "put", key="b", data=rows(2))["outcome"]
    assert outcome in ("stored", "refused")
    assert call(engine, "get", key="b")["outcome"] == ("hit" if outcome == "stored" else "miss")
    for key, value in (("a", 1), ("b", 2)):
        found = call(engine, "get", key=key)
        assert found["outcome"] == "miss" or found["data"].tolist() == rows(value).tolist()


@only(*L1, "lmcache-storage")
def test_a_tenant_is_part_of_the_key(engine: Any) -> None:
    opened(engine)
    for tenant, value in (("t1", 1), ("t2", 2)):
        assert call(engine, "put", key="a", tenant=tenant, data=rows(value))["outcome"] == "stored"
    serves(engine, "a", 1, tenant="t1")
    serves(engine, "a", 2, tenant="t2")
    serves(engine, "a", None)


# --- transactions ----------------------------------------------------------------------------------------------------


@only(*TRANSACTIONS)
def test_a_store_is_copied_in_pieces_and_read_by_a_load(engine: Any) -> None:
    opened(engine)
    txn = begun(engine, "store", a=1, b=2)
    assert call(engine, "copy", txn=txn, bytes=1000)["bytes"] == 2000
    assert call(engine, "copy", txn=txn)["bytes"] == 2 * (SLOT_BYTES - 1000)
    assert call(engine, "complete", txn=txn)["outcome"] == "done"
    load = begun(engine, "load", b=0, a=0)
    result = call(engine, "copy", txn=load)
    assert result["bytes"] == 2 * SLOT_BYTES
    for data, value in zip(result["data"], (2, 1), strict=True):
        np.testing.assert_array_equal(data, rows(value))
    assert call(engine, "complete", txn=load)["outcome"] == "done"


@only(*TRANSACTIONS)
def test_what_a_load_does_not_find_has_no_transaction(engine: Any) -> None:
    opened(engine)
    result = call(engine, "reserve", mode="load", keys=["a"], owner="r")
    assert (result["txn"], result["grants"]) == (None, [{"outcome": "miss"}])
    stored(engine, a=1)
    result = call(engine, "reserve", mode="load", keys=["nobody", "a"], owner="r")
    assert [grant["outcome"] for grant in result["grants"]] == ["miss", "granted"]
    data = call(engine, "copy", txn=result["txn"])["data"]
    assert data[0] is None
    np.testing.assert_array_equal(data[1], rows(1))
    call(engine, "complete", txn=result["txn"])


@only(*TRANSACTIONS)
def test_a_key_that_is_there_or_is_written_is_not_granted_again(engine: Any) -> None:
    opened(engine)
    stored(engine, a=1)
    result = call(engine, "reserve", mode="store", keys=["a"], owner="r", data=[rows(1)])
    assert (result["txn"], result["grants"][0]["outcome"]) == (None, "resident")
    begun(engine, "store", b=2)
    result = call(engine, "reserve", mode="store", keys=["b"], owner="r", data=[rows(2)])
    assert (result["txn"], result["grants"][0]["outcome"]) == (None, "pending")


@only(*MOONCAKE, *L1)
def test_a_key_whose_copy_failed_is_not_served(engine: Any) -> None:
    opened(engine)
    txn = begun(engine, "store", a=1, b=2)
    call(engine, "copy", txn=txn)
    assert call(engine, "complete", txn=txn, failed=["b"])["outcome"] == "done"
    serves(engine, "a", 1)
    serves(engine, "b", None)


@only(*MOONCAKE, *L1)
def test_a_handle_that_never_was_is_refused(engine: Any) -> None:
    opened(engine)
    for op in ("copy", "complete", *(("cancel",) if hasattr(engine, "residency_cancel") else ())):
        with pytest.raises(Rejected) as refusal:
            call(engine, op, txn="no-such-transaction")
        assert refusal.value.reason == "UNKNOWN_TRANSACTION"


@only(*MOONCAKE, *L1)
def test_a_completion_that_comes_again_reaches_the_store_and_is_its_own_refusal(engine: Any) -> None:
    opened(engine)
    txn = begun(engine, "store", a=1)
    call(engine, "copy", txn=txn)
    call(engine, "complete", txn=txn)
    with pytest.raises(Rejected) as refusal:
        call(engine, "complete", txn=txn)
    assert refusal.value.reason in ("TRANSACTION_DEAD", "UNKNOWN_TRANSACTION")
    serves(engine, "a", 1)


@only(*MOONCAKE)
def test_what_is_cancelled_is_not_published_and_can_be_stored_again(engine: Any) -> None:
    opened(engine)
    txn = begun(engine, "store", a=1)
    call(engine, "copy", txn=txn)
    assert call(engine, "cancel", txn=txn)["outcome"] == "dead"
    serves(engine, "a", None)
    stored(engine, a=2)
    serves(engine, "a", 2)
    load = begun(engine, "load", a=0)
    assert call(engine, "cancel", txn=load)["outcome"] == "dead"


@only(*MOONCAKE, *L1)
def test_what_a_load_reads_is_not_removed(engine: Any) -> None:
    opened(engine)
    stored(engine, a=1)
    load = begun(engine, "load", a=0)
    assert call(engine, "remove", keys=["a"])["outcomes"] == ["leased"]
    np.testing.assert_array_equal(call(engine, "copy", txn=load)["data"][0], rows(1))
    call(engine, "complete", txn=load)


# --- which owner is which writer --------------------------------------------------------------------------------------


@only("lmcache-l1", "lmcache-l1-tagged")
def test_the_tag_of_a_writer_is_shared_or_its_owner(engine: Any) -> None:
    assert (engine.tag("r1") == engine.tag("r2")) is (type(engine).__name__ == "Adapter")
    assert type(engine).__name__ == "Adapter" or engine.tag("r1") == "r1"


@only("mooncake", "mooncake-one-client")
def test_owners_have_clients_of_their_own_or_share_one(engine: Any) -> None:
    opened(engine)
    for owner, key in (("r1", "a"), ("r2", "b"), ("r1", "c")):
        begun(engine, "store", owner=owner, **{key: 1})
    clients = [session.client for session in engine.sessions.values()]
    assert clients == ([0, 0, 0] if engine.clients == 1 else [0, 1, 0])


# --- damage ----------------------------------------------------------------------------------------------------------

DAMAGED = ("sglang-hicache-store", "sglang-hicache-store-cached", "lmcache-storage")


@only(*DAMAGED)
@pytest.mark.parametrize("fault", ["corrupt", "truncate", "drop", "evict"])
def test_damage_is_told_and_can_come_again(engine: Any, fault: str) -> None:
    """Also where there is nothing left to damage: what fuzzing does to a file is the disk's affair, and no crash."""
    opened(engine)
    call(engine, "put", key="a", data=rows(1))
    assert call(engine, "control_inject", key="a", fault=fault)["damaged"] is True
    for again in ("corrupt", "truncate", "drop", "corrupt"):
        there = fault != "evict" or engine.capabilities["residency.mode"] == "composed"  # there the file is left
        assert call(engine, "control_inject", key="a", fault=again)["damaged"] is there


@only("sglang-hicache-store", "sglang-hicache-store-cached")
def test_a_short_file_is_the_stores_own_refusal_and_a_changed_byte_is_its_own_answer(engine: Any) -> None:
    opened(engine)
    call(engine, "put", key="a", data=rows(1))
    call(engine, "control_inject", key="a", fault="corrupt")
    changed = call(engine, "get", key="a")["data"]
    assert (changed[0], changed[1]) == (0, 1)
    call(engine, "control_inject", key="a", fault="drop")
    with pytest.raises(Rejected) as refusal:
        call(engine, "get", key="a")
    assert refusal.value.reason == "SHORT_REPLICA"


# --- what they share -------------------------------------------------------------------------------------------------


def test_a_reply_tells_how_often_the_engine_was_called() -> None:
    assert told(2, outcome="hit") == {"outcome": "hit", "engine_calls": 2}


def test_time_of_a_case_is_stretched_to_the_engines_own(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(wall_clock.time, "sleep", slept.append)
    clock = wall_clock.WallClock(2, {"write_ttl_ms": 100, "read_ttl_ms": 100})
    assert [clock.advance(by_ms) for by_ms in (50, 50, 1)] == [{"now_ms": 50}, {"now_ms": 100}, {"now_ms": 101}]
    assert slept == pytest.approx([1.0, 1.0, 0.02])


def test_without_a_limit_time_is_time(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(wall_clock.time, "sleep", slept.append)
    assert wall_clock.WallClock(2, {}).advance(250) == {"now_ms": 250}
    assert slept == [0.25]


def test_two_limits_that_differ_are_not_supported() -> None:
    wall_clock.WallClock(1, {"write_ttl_ms": 10})
    wall_clock.WallClock(1, {"read_ttl_ms": 10})
    with pytest.raises(Unsupported, match="the same time"):
        wall_clock.WallClock(1, {"write_ttl_ms": 10, "read_ttl_ms": 20})
