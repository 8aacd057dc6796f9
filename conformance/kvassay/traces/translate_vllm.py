"""The log of vLLM's offloading managers, as events of residency or as KV Events; :mod:`.record_vllm` writes it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from .errors import TraceError
from .kv_events import Batch
from .record_vllm import FORMAT
from .translate import Event, Store, demand_recorder, header, integer, numbered, records, texts

CAPABILITIES = {"residency.mode": "component", "residency.leases": True, "residency.content_addressed": True}
STATES = {"HIT": "ready", "MISS": "miss"}
"""What else a look-up says is that the block is on its way."""


def trace(stream: Any) -> Iterator[tuple[int, bytes]]:
    """The lines of a trace of residency, made from the calls of a log."""
    return numbered((number, events) for number, events in _translated(stream))


def _translated(stream: Any) -> Iterator[tuple[int, Iterable[Event]]]:
    store = Store()
    for number, record in records(stream):
        if number == 1:
            yield number, _opened(number, record, store)
        else:
            yield number, _call(number, record, store)


def _opened(number: int, record: Event, store: Store) -> Iterator[Event]:
    demand_recorder(record, FORMAT, number)
    yield header("vLLM offloading manager", str(record.get("version", "unknown")), CAPABILITIES)
    yield store.open(integer(record, "chunks", number))


def _call(number: int, record: Event, store: Store) -> Iterator[Event]:
    name, keys = record.get("call"), texts(record, "keys", number)
    if name == "lookup":
        state = STATES.get(str(record.get("result")), "pending")
        yield from (store.look_up(key, state) for key in keys)
    elif name == "prepare_store":
        yield from store.remove(texts(record, "evicted", number))
        for key, chunk in zip(texts(record, "stored", number), _chunks(record, number), strict=False):
            yield store.reserve("store", key, chunk)
    elif name == "complete_store":
        for key in keys:
            yield from store.complete("store", key, copied=record.get("success") is True)
    elif name == "prepare_load":
        yield from (store.reserve("load", key) for key in keys)
    elif name == "complete_load":
        for key in keys:
            yield from store.complete("load", key)
    elif name == "reset_cache":
        yield from store.reset()
    elif "event" not in record:
        raise TraceError(number, "/call", f"no call of an offloading manager: {str(name)[:100]!r}")


def _chunks(record: Event, number: int) -> list[int]:
    value = record.get("chunks", [])
    if not isinstance(value, list) or not all(isinstance(one, int) for one in value):
        raise TraceError(number, "/chunks", "must be a list of integers")
    return value


def kv_batches(stream: Any) -> Iterator[Batch]:
    """The events of a log as batches of KV Events: which hashes came to which medium, and left it."""
    for number, record in records(stream):
        if number == 1:
            demand_recorder(record, FORMAT, number)
        event = record.get("event")
        if event is None:
            continue
        if not isinstance(event, dict):
            raise TraceError(number, "/event", "must be an object")
        keys = texts(event, "keys", number)
        place = {"medium": event.get("medium"), "ownership": event.get("ownership")}
        if event.get("removed"):
            told = {"type": "BlockRemoved", "block_hashes": keys, **place}
        else:
            told = {"type": "BlockStored", "block_hashes": keys, **place}
            told |= {"parent_block_hash": None, "token_ids": [], "block_size": 0}
        yield Batch(number, "", 0, None, [] if event.get("metadata_only") else [told])
