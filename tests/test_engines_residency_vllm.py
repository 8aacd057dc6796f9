"""The adapters of vLLM's offloading map what they are given, forward what is over, and tell what vLLM forces.

Whether vLLM conforms is for the suite to say. What is pinned here is found by fuzzing or in illegal calls, and no case
of the corpus shows it.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from kvassay.adapters.base import EngineAdapter, Rejected
from kvassay.corpus.data import root
from kvassay.engines.dispositions import DISPOSITIONS

pytestmark = pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vllm is not installed")

STORES = {
    "vllm-offload-cpu": ("vllm_offload", "Adapter"),
    "vllm-offload-cpu-arc": ("vllm_offload", "Arc"),
    "vllm-offload-cpu-each": ("vllm_offload", "EachRequest"),
    "vllm-offload-file": ("vllm_offload", "FileTier"),
    "vllm-scheduler": ("vllm_scheduler", "Adapter"),
    "vllm-scheduler-prefix-caching": ("vllm_scheduler", "PrefixCaching"),
}
CONNECTORS = {
    "vllm-offloading-connector": ("vllm_connectors", "Adapter"),
    "vllm-simple-cpu-offload": ("vllm_connectors", "SimpleOffload"),
    "vllm-example-connector": ("vllm_connectors", "Example"),
}
RECORD = json.loads((root() / "fixtures" / "identity" / "record.json").read_text(encoding="utf-8"))
MEMBERS = json.loads((root() / "schemas" / "identity" / "record.json").read_text(encoding="utf-8"))["properties"]
SLOT_BYTES = 4096


@pytest.fixture(params=sorted(STORES | CONNECTORS))
def engine(request: pytest.FixtureRequest) -> Iterator[Any]:
    module, adapter = (STORES | CONNECTORS)[request.param]
    engine: EngineAdapter = getattr(importlib.import_module(f"kvassay.engines.{module}"), adapter)()
    engine.setup()
    engine.open()
    yield engine
    engine.teardown()


def only(*names: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("engine", names, indirect=True)


def rows(value: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.full(SLOT_BYTES, value, np.uint8)


def call(engine: Any, op: str, **request: Any) -> Mapping[str, Any]:
    result: Mapping[str, Any] = getattr(engine, f"residency_{op}")(request)
    return result


def begun(engine: Any, mode: str, owner: str = "r", **data: int) -> str:
    more = {"data": [rows(value) for value in data.values()]} if mode == "store" else {}
    result = call(engine, "reserve", mode=mode, keys=list(data), owner=owner, **more)
    assert [grant["outcome"] for grant in result["grants"]] == ["granted"] * len(data)
    return str(result["txn"])


def told(result: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(one["txn"], one["event"]) for one in result.get("events", ())]


# --- stores ----------------------------------------------------------------------------------------------------------


@only(*STORES)
def test_rows_come_back_as_they_went_in(engine: Any) -> None:
    call(engine, "open", slots=2, slot_bytes=SLOT_BYTES)
    assert call(engine, "put", key="a", data=rows(1))["outcome"] == "stored"
    txn = begun(engine, "store", b=2)
    assert call(engine, "copy", txn=txn)["bytes"] == SLOT_BYTES
    assert call(engine, "complete", txn=txn)["outcome"] == "done"
    for key, value in (("a", 1), ("b", 2)):
        np.testing.assert_array_equal(call(engine, "get", key=key)["data"], rows(value))
    assert call(engine, "get", key="c")["outcome"] == "miss"
    assert call(engine, "put", key="a", data=rows(1))["outcome"] == "resident"


@only(*STORES)
def test_a_load_copies_as_far_as_it_is_asked_to(engine: Any) -> None:
    call(engine, "open", slots=2, slot_bytes=SLOT_BYTES)
    call(engine, "put", key="a", data=rows(1))
    txn = begun(engine, "load", a=0)
    (half,) = call(engine, "copy", txn=txn, bytes=SLOT_BYTES // 2)["data"]
    assert half[: SLOT_BYTES // 2].tolist() == [1] * (SLOT_BYTES // 2)
    assert half[-1] != 1
    np.testing.assert_array_equal(call(engine, "copy", txn=txn)["data"][0], rows(1))
    assert call(engine, "complete", txn=txn)["outcome"] == "done"


@only(*STORES)
def test_a_handle_that_never_was_is_refused(engine: Any) -> None:
    call(engine, "open", slots=2, slot_bytes=SLOT_BYTES)
    with pytest.raises(Rejected) as refusal:
        call(engine, "complete", txn="no-such-transaction")
    assert refusal.value.reason == "UNKNOWN_TRANSACTION"


# --- managers by themselves ------------------------------------------------------------------------------------------


@only("vllm-offload-cpu", "vllm-offload-cpu-arc", "vllm-offload-cpu-each")
def test_a_completion_from_before_a_reset_reaches_the_manager_and_publishes_its_successor(engine: Any) -> None:
    """The manager leaves it to the connector's scheduler that this never happens; nothing in between hides it."""
    call(engine, "open", slots=1, slot_bytes=SLOT_BYTES)
    old = begun(engine, "store", a=1)
    assert told(call(engine, "reset")) == [(old, "copied")]
    new = begun(engine, "store", a=2)
    assert call(engine, "complete", txn=old)["outcome"] == "done"
    assert call(engine, "get", key="a")["data"][0] == 1
    assert call(engine, "complete", txn=new)["outcome"] == "empty"


@only("vllm-offload-cpu", "vllm-offload-cpu-arc", "vllm-offload-cpu-each")
def test_a_second_end_of_a_load_ends_that_of_another(engine: Any) -> None:
    """The manager counts readers and does not know them: the slot of a live load is given away."""
    call(engine, "open", slots=1, slot_bytes=SLOT_BYTES)
    call(engine, "put", key="a", data=rows(1))
    first, second = begun(engine, "load", a=0), begun(engine, "load", a=0)
    call(engine, "complete", txn=first)
    assert call(engine, "put", key="b", data=rows(2))["outcome"] == "refused"
    call(engine, "complete", txn=first)
    assert call(engine, "put", key="b", data=rows(2))["outcome"] == "stored"
    assert call(engine, "copy", txn=second)["data"][0][0] == 2


@only("vllm-offload-file")
def test_files_outlive_a_reset(engine: Any) -> None:
    call(engine, "open", slots=1, slot_bytes=SLOT_BYTES)
    call(engine, "put", key="a", data=rows(1))
    call(engine, "reset")
    assert call(engine, "lookup", keys=["a"])["states"] == ["ready"]


@only("vllm-offload-file")
def test_a_truncated_file_is_a_miss_and_a_changed_byte_is_served(engine: Any) -> None:
    call(engine, "open", slots=1, slot_bytes=SLOT_BYTES)
    for key, value in (("a", 1), ("b", 2), ("c", 3)):
        call(engine, "put", key=key, data=rows(value))
    assert engine.control_inject({"key": "a", "fault": "truncate"}) == {"damaged": True}
    assert call(engine, "get", key="a")["outcome"] == "miss"
    assert engine.control_inject({"key": "b", "fault": "corrupt"}) == {"damaged": True}
    assert call(engine, "get", key="b")["data"][:2].tolist() == [3, 2]


# --- inside the scheduler --------------------------------------------------------------------------------------------


@only("vllm-scheduler")
def test_a_store_whose_block_is_given_away_is_waited_for(engine: Any) -> None:
    call(engine, "open", slots=2, slot_bytes=SLOT_BYTES)
    first = begun(engine, "store", a=1)
    second = call(engine, "reserve", mode="store", keys=["b"], owner="s", data=[rows(2)])
    assert told(second) == [(first, "copied"), (first, "completed")]
    assert call(engine, "get", key="a")["data"][0] == 1


@only("vllm-scheduler", "vllm-scheduler-prefix-caching")
def test_a_completion_from_before_a_reset_publishes_nothing(engine: Any) -> None:
    call(engine, "open", slots=2, slot_bytes=SLOT_BYTES)
    old = begun(engine, "store", a=1)
    call(engine, "reset")
    new = begun(engine, "store", a=2)
    assert call(engine, "complete", txn=old)["outcome"] == "flushed"
    call(engine, "copy", txn=new)
    assert call(engine, "complete", txn=new)["outcome"] == "done"
    assert call(engine, "get", key="a")["data"][0] == 2


@only("vllm-scheduler", "vllm-scheduler-prefix-caching")
def test_a_duplicate_completion_reaches_the_scheduler(engine: Any) -> None:
    call(engine, "open", slots=2, slot_bytes=SLOT_BYTES)
    txn = begun(engine, "store", a=1)
    call(engine, "copy", txn=txn)
    call(engine, "complete", txn=txn)
    with pytest.raises(Rejected, match="the scheduler has no job"):
        call(engine, "complete", txn=txn)
    assert call(engine, "get", key="a")["data"][0] == 1


@only("vllm-scheduler", "vllm-scheduler-prefix-caching")
@pytest.mark.xfail(strict=True, raises=AssertionError, reason="reset_cache asserts that no flush is outstanding")
def test_two_resets_between_two_steps(engine: Any) -> None:
    """Found by fuzzing: the jobs that the first reset flushes wait for the next step."""
    call(engine, "open", slots=1, slot_bytes=SLOT_BYTES)
    begun(engine, "store", a=1)
    call(engine, "reset")
    call(engine, "reset")


# --- connectors under the profile keys -------------------------------------------------------------------------------


@only(*CONNECTORS)
def test_every_member_of_the_record_has_a_disposition(engine: Any) -> None:
    assert set(engine.capabilities) == {f"identity.field.{name}" for name in MEMBERS}
    assert set(engine.capabilities.values()) <= set(DISPOSITIONS)


@only(*CONNECTORS)
def test_rows_of_a_record_come_back(engine: Any) -> None:
    data = np.random.default_rng(1).integers(0, 256, (len(RECORD["tokens"]), 8), dtype=np.uint8)
    assert engine.identity_get({"record": RECORD}) == {"outcome": "miss", "rows": 0}
    assert engine.identity_put({"record": RECORD, "data": data}) == {"outcome": "stored", "rows": 32}
    answer = engine.identity_get({"record": RECORD})
    assert (answer["outcome"], answer["rows"]) == ("hit", 32)
    np.testing.assert_array_equal(answer["data"], data)


@only("vllm-offloading-connector", "vllm-simple-cpu-offload")
def test_asking_for_another_prompt_stores_nothing(engine: Any) -> None:
    data = np.random.default_rng(2).integers(0, 256, (len(RECORD["tokens"]), 8), dtype=np.uint8)
    engine.identity_put({"record": RECORD, "data": data})
    other = {**RECORD, "tokens": [*RECORD["tokens"][:-1], 777]}
    for _ in range(2):
        answer = engine.identity_get({"record": other})
        assert (answer["outcome"], answer["rows"]) == ("hit", 28)
        np.testing.assert_array_equal(answer["data"], data[:28])
