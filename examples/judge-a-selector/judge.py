"""Ask an engine for selections over one history, record them as runs, and judge what they keep, lose and cost.

    python judge.py                                  # the built-in reference
    python judge.py --adapter my_engine:Adapter      # any engine that has one of the ops below
    python judge.py --record runs.json               # also write the runs, by name
    python judge.py --judge run.json                 # what any selector recorded: one run, or runs by name

A run has the form of `schemas/quality/run.json`, and `kvassay validate run.json` says what is wrong with one.

The engine selects; the judge is the built-in reference, which is not told who selected. Ops that the engine lacks are
left out. Bytes are those of two-byte scalars, for a run that tells keys and values. The engine's history is 384 rows of
32 channels, two K/V heads, eight query heads.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from kvassay.adapters.errors import AdapterError
from kvassay.adapters.names import connect
from kvassay.core import tensors
from kvassay.core.engine import Engine, Refused, Returned
from kvassay.corpus.schemas import problem

ROWS, WIDTH, KV_HEADS, QUERIES = 384, 32, 2, 8
PAGE, SINK, WINDOW, BUDGET = 16, 4, 16, 96
RECALL = 32
DEADLINE_S = 30.0
LETTERS = 200
"""Of what is wrong with a run."""


def recipe(seed: int, *shape: int) -> dict[str, Any]:
    """A seeded float32 tensor."""
    return {"dtype": "float32", "shape": list(shape), "recipe": {"name": "hash32-v1", "seed": seed}}


HISTORY = {
    "q": recipe(9001, QUERIES, WIDTH),
    "k": recipe(9002, ROWS, KV_HEADS, WIDTH),
    "v": recipe(9003, ROWS, KV_HEADS, WIDTH),
    "scale": 1.0,
    "kv_head_of": [query * KV_HEADS // QUERIES for query in range(QUERIES)],
}
QUEST = {"page_rows": PAGE, "budget_pages": BUDGET // PAGE, "last_page": "reserved", "rule": "quest/paper"}
SPARQ = {"rule": "sparq/paper", "channels": 8, "rows": BUDGET, "local": WINDOW, "correct": False}
SEARCH = {"initial_rows": SINK, "local_rows": WINDOW, "budget": BUDGET - SINK - WINDOW}
PAGES = {"kind": "page", "rows": PAGE}
ROW = {"kind": "row"}

ASKED: dict[str, tuple[str, dict[str, Any], str, dict[str, Any]]] = {
    "quest": ("quest.decode", {**QUEST, "scope": "kv-head"}, "pages", {"per": "kv_head", "unit": PAGES}),
    "quest by query head": ("quest.decode", {**QUEST, "scope": "query-head"}, "pages",
                            {"per": "query_head", "unit": PAGES}),
    "sparq": ("sparq.decode", SPARQ, "positions", {"per": "kv_head", "unit": ROW}),
    "search": ("memory.search", SEARCH, "rows", {"per": "kv_head", "unit": ROW}),
}  # fmt: skip
"""Name to op, settings, the member of the reply that holds the selection, and what its ids are."""


def record(engine: Engine, name: str) -> dict[str, Any] | None:
    """One selection as a recorded run, or nothing where the engine has no such op."""
    op, settings, member, what = ASKED[name]
    if op not in engine.description.ops:
        return None
    engine.open()
    reply = engine.call(op, tensors.read({**HISTORY, **settings}), DEADLINE_S)
    if not isinstance(reply, Returned):
        print(f"{name}: {op}: {reply}", file=sys.stderr)
        return None
    return {
        "format": "kvassay-selector-run-v1",
        "method": str(settings.get("rule", op)),
        "first_position": 0,
        **HISTORY,
        "kv_heads": KV_HEADS,
        **what,
        "selected": tensors.write(reply.value[member]),
        "persistent": [],
    }


def selected(adapter: str) -> dict[str, Any]:
    """What an engine selects, as runs by name."""
    try:
        engine = connect(adapter)
    except AdapterError as broken:
        raise SystemExit(f"error: {broken}") from None
    try:
        return {name: run for name in ASKED if (run := record(engine, name)) is not None}
    finally:
        engine.close()


def judged(judge: Engine, op: str, request: dict[str, Any]) -> Any:
    """The judge's result."""
    reply = judge.call(op, tensors.read(request), DEADLINE_S)
    if not isinstance(reply, Returned):
        why = f"{reply.reason}: {reply.detail}" if isinstance(reply, Refused) else str(reply)
        raise SystemExit(f"error: {op}: {why[:LETTERS]}")
    return reply.value


def sizes(run: dict[str, Any]) -> dict[str, Any]:
    """Two-byte scalars, and what a selector of pages or rows looks at."""
    rows, _, width = run["k"]["shape"]
    pages = run["unit"]["kind"] == "page"
    probe = (
        {"vectors": 2 * -(-rows // run["unit"]["rows"]), "channels": width}
        if pages
        else {"vectors": rows, "channels": 8}
    )
    return {
        "candidate_bytes": 4,
        "descriptor_bytes": 16,
        "key_channels": width,
        "value_channels": run["v"]["shape"][-1],
        "key_item_bytes": 2,
        "value_item_bytes": 2,
        "probe": {**probe, "item_bytes": 2},
        "setup_bytes": 0,
    }


def line(judge: Engine, name: str, run: dict[str, Any]) -> str:
    """What a run keeps, loses and costs, the worst of its heads."""
    rows = run["unit"]["kind"] == "row"
    kept = judged(judge, "quality.support", {"run": run, "top_k": RECALL, "candidate_recall": rows})["heads"]
    numbers = [min(one["support_recall"] for one in kept), max(one["omitted_mass"] for one in kept)]
    spent = ""
    if "v" in run:
        lost = judged(judge, "quality.error", {"run": run, "denominator_floor": 1e-3})["heads"]
        numbers += [max(one["absolute_error"] for one in lost), max(one["bound"] for one in lost)]
    if "v" in run and "k" in run:
        resident: list[list[int]] = [[] for _ in range(run["kv_heads"])]
        cost = judged(judge, "quality.cost", {"run": run, "sizes": sizes(run), "resident": resident})["totals"]
        spent = f"{cost['transfer_bytes']:>12,}"
    return f"{name:<20}" + "".join(f"{x:>12.4f}" for x in numbers) + spent


def recorded(path: Path) -> dict[str, Any]:
    """Runs by name from a file that holds one run, or several by name."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as broken:
        raise SystemExit(f"error: {path}: {broken}") from None
    if isinstance(found, dict) and "format" in found:
        found = {path.stem: found}
    if not isinstance(found, dict) or not all(isinstance(run, dict) for run in found.values()):
        raise SystemExit(f"error: {path}: neither a run nor runs by name")
    for name, run in found.items():
        wrong = problem(run, "urn:kvassay:quality/run")
        if wrong is not None:
            raise SystemExit(f"error: {path}: {name}: {wrong[0] or '/'}: {wrong[1]}")
    return found


def main() -> None:
    """Parse, ask, judge, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--adapter", default="reference", help="the engine that selects")
    parser.add_argument("--record", type=Path, metavar="FILE", help="write the runs as JSON")
    parser.add_argument("--judge", type=Path, metavar="FILE", help="judge what is recorded there, and ask no engine")
    chosen = parser.parse_args()
    runs = recorded(chosen.judge) if chosen.judge is not None else selected(chosen.adapter)
    judge = connect("reference")
    judge.open()
    print(f"{'worst head':<20}{'recall':>12}{'omitted':>12}{'error':>12}{'bound':>12}{'bytes':>12}")
    for name, run in runs.items():
        print(line(judge, name, run))
    if chosen.record is not None:
        chosen.record.write_text(json.dumps(runs, indent=1) + "\n", encoding="utf-8")
    judge.close()


if __name__ == "__main__":
    main()
