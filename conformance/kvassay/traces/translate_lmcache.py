"""The log of a listener to LMCache's L1 manager, as events of residency; :mod:`.record_lmcache` writes it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from .errors import TraceError
from .record_lmcache import FORMAT
from .translate import Event, Store, demand_recorder, header, integer, numbered, records, texts

CAPABILITIES = {
    "residency.mode": "component",
    "residency.leases": True,
    "residency.expiry_write": True,
    "residency.expiry_read": True,
    "residency.content_addressed": True,
}
SLOTS = 1 << 20
"""The log does not tell how many objects fit."""


def trace(stream: Any) -> Iterator[tuple[int, bytes]]:
    """The lines of a trace of residency."""
    return numbered(_translated(stream))


def _translated(stream: Any) -> Iterator[tuple[int, Iterable[Event]]]:
    store = Store()
    for number, record in records(stream):
        if number == 1:
            yield number, _opened(number, record, store)
        else:
            time_ms = record.get("time_ms")
            stamp = {"time_ms": time_ms} if isinstance(time_ms, int | float) else {}
            yield number, ({**event, **stamp} for event in _notified(number, record, store))


def _opened(number: int, record: Event, store: Store) -> Iterator[Event]:
    demand_recorder(record, FORMAT, number)
    yield header("LMCache L1 manager", str(record.get("version", "unknown")), CAPABILITIES)
    limits = {name: integer(record, name, number) for name in ("write_ttl_ms", "read_ttl_ms")}
    yield {**store.open(SLOTS, **limits), "time_ms": 0}


def _notified(number: int, record: Event, store: Store) -> Iterator[Event]:
    name, keys = record.get("event"), texts(record, "keys", number)
    for key in keys:
        if name == "reserved_write":
            yield store.reserve("store", key)
        elif name == "reserved_read":
            yield store.reserve("load", key)
        elif name == "write_finished":
            yield from store.complete("store", key)
        elif name == "read_finished":
            yield from store.complete("load", key)
        elif name == "write_finished_and_reserved_read":
            yield from store.complete("store", key)
            yield store.reserve("load", key)
        elif name == "deleted":
            yield from store.remove([key])
        else:
            raise TraceError(number, "/event", f"no notification of the L1 manager: {str(name)[:100]!r}")
