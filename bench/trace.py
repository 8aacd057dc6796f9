"""Checking a trace: events a second on one core, and peak memory at two lengths, which must not differ."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kvassay.traces import FORMAT

from .timing import Line

SLOTS, SLOT_BYTES = 512, 64
SHORT, LONG = 100_000, 1_000_000
EVENTS_PER_S = 100_000.0
RUNS = 3
"""Of which the fastest counts: whatever else the machine does only adds."""

MEASURE = """
import gc, json, resource, sys, time
from pathlib import Path
from kvassay.traces.check import Checker
from kvassay.traces.lines import lines
path = Path(sys.argv[1])
gc.freeze()
gc.set_threshold(100_000)
checker = Checker()
with path.open("rb") as stream:
    cpu = time.process_time()
    found = list(checker.offences(lines(stream)))
    cpu = time.process_time() - cpu
assert not found, found
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
with path.open("rb") as stream:
    started = time.process_time()
    for line in stream:
        json.loads(line)
    parse = time.process_time() - started
print(cpu / checker.counts.events * 1e6, parse / checker.counts.events * 1e6, peak)
"""


def events(count: int) -> Iterator[dict[str, Any]]:
    """A store whose slots are reused: each key is stored, loaded, read, and removed when its slot is needed again."""
    yield {
        "event": "residency.open",
        "request": {"slots": SLOTS, "slot_bytes": SLOT_BYTES},
        "result": {"slots": SLOTS, "slot_bytes": SLOT_BYTES},
    }
    number = 1
    for turn in range(count):
        for event in cycle(turn):
            yield event
            number += 1
            if number >= count:
                return


def cycle(turn: int) -> Iterator[dict[str, Any]]:
    """The life of one key, but that it is removed much later."""
    slot, key, generation = turn % SLOTS, f"key-{turn}", turn // SLOTS
    data = {"dtype": "uint8", "shape": [SLOT_BYTES], "sha256": hashlib.sha256(key.encode()).hexdigest()}
    if turn >= SLOTS:
        gone = {"keys": [f"key-{turn - SLOTS}"]}
        yield {"event": "residency.remove", "request": gone, "result": {"outcomes": ["removed"]}}
    for mode, sent in (("store", {"data": [data]}), ("load", {})):
        txn = f"{mode}-{turn}"
        request = {"mode": mode, "keys": [key], "owner": f"request-{turn}", **sent}
        grant = {"outcome": "granted", "slot": slot if mode == "store" else SLOTS + slot, "generation": generation}
        yield {"event": "residency.reserve", "request": request, "result": {"txn": txn, "grants": [grant]}}
        came = {"data": [data]} if mode == "load" else {}
        copied = {"bytes": SLOT_BYTES, **came}
        yield {"event": "residency.copy", "request": {"txn": txn}, "result": copied}
        yield {"event": "residency.complete", "request": {"txn": txn}, "result": {"outcome": "done"}}
    yield {
        "event": "residency.get",
        "request": {"key": key},
        "result": {"outcome": "hit", "data": data, "tier": "host"},
    }


def write(path: Path, count: int) -> None:
    """A trace of so many events."""
    with path.open("w", encoding="utf-8") as file:
        header = {
            "trace": FORMAT,
            "engine": {"name": "bench", "version": "1"},
            "capabilities": {"residency.leases": True},
        }
        print(json.dumps(header), file=file)
        for seq, event in enumerate(events(count)):
            print(json.dumps({**event, "process": "worker-0", "seq": seq}, separators=(",", ":")), file=file)
        print(json.dumps({"event": "trace.end", "events": count}), file=file)


def measure(count: int) -> tuple[float, float, float]:
    """Microseconds of processor time an event, those of reading its JSON, and peak memory in MiB."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "trace.jsonl")
        write(path, count)
        command = [sys.executable, "-c", MEASURE, str(path)]
        runs = [subprocess.run(command, check=True, capture_output=True, text=True) for _ in range(RUNS)]
    figures = [tuple(map(float, run.stdout.split())) for run in runs]
    return min(one[0] for one in figures), min(one[1] for one in figures), max(one[2] for one in figures)


def lines() -> Iterator[Line]:
    """Microseconds an event, and memory."""
    *_, short_mib = short = measure(SHORT)
    *_, long_mib = long = measure(LONG)
    for what, (event_us, json_us, _) in ((f"{SHORT:,}", short), (f"{LONG:,}", long)):
        budget = f"{EVENTS_PER_S:,.0f} events a second"
        yield Line(f"trace of {what} events, an event", event_us, "us", budget, 1e6 / EVENTS_PER_S, 1.0)
        yield Line(f"trace of {what} events, an event", event_us, "us", "json.loads of its line", json_us, 4.0)
    yield Line(f"peak memory, {LONG:,} events", long_mib, "MiB", f"peak memory, {SHORT:,} events", short_mib, 1.05)
