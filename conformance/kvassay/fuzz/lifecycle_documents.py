"""Pause documents with one changed field, seldom two: of the interrupted request and the completed turn of the base."""

from __future__ import annotations

import copy
import functools
import json
from collections.abc import Iterator
from typing import Any

from ..corpus.data import fixture_module, read_json, root
from ..corpus.schemas import schemas
from .contract import Draw

Document = dict[str, Any]
PAUSE, RESULT = "/pause_sha256", "/result/tokens_sha256"
SCHEMA = "urn:kvassay:lifecycle/pause"
GONE = object()
"""Stands for a member that is taken out."""


@functools.cache
def bases() -> tuple[Document, ...]:
    """Documents that must be accepted: an interruption that was swapped, and a completed turn."""
    swap: Document = read_json(root() / "fixtures" / "lifecycle" / "base.json")
    turn = copy.deepcopy(swap)
    states = [
        "RUNNING",
        "QUIESCING",
        "SAVING",
        "PAUSED_HOST",
        "RESTORING",
        "RESUME_READY",
        "PREFILL_NEW_TURN",
        "RUNNING",
    ]
    turn["pause"] |= {"action": "turn", "call_id": None, "states": states}
    turn["result"] = turn["receipt"] = None
    turn["telemetry"] |= {"attempted_action": "turn", "decisions": ["turn"], "published_action": "turn"}
    return swap, sealed(turn)


def sealed(document: Document, keep: str = "") -> Document:
    """The document itself with its two digests derived anew, but for the one at ``keep``."""
    oracle = fixture_module("lifecycle.oracle")
    if keep != PAUSE:
        document["pause_sha256"] = oracle.pause_digest(document)
    if keep != RESULT and document["result"]:
        document["result"]["tokens_sha256"] = oracle.tokens_sha256(document["result"]["tokens"])
    return document


@functools.cache
def _text(base: int) -> str:
    return json.dumps(bases()[base])


Path = tuple[str | int, ...]


@functools.cache
def places(base: int) -> tuple[tuple[tuple[Path, ...], ...], ...]:
    """Paths below each member of each section of a base document, so that a long list is not changed more often."""
    whole = bases()[base]
    sections = []
    for name, section in whole.items():
        members = section if isinstance(section, dict) else {}
        sections.append((((name,),), *(tuple(_paths(section[one], (name, one))) for one in members)))
    return tuple(sections)


@functools.cache
def words() -> dict[str, tuple[str, ...]]:
    """Member to the texts that its schema allows, where those are few."""
    found: dict[str, tuple[str, ...]] = {}

    def walk(node: Any) -> None:
        for name, item in node.get("properties", {}).items() if isinstance(node, dict) else ():
            if "enum" in item:
                found[name] = tuple(one for one in item["enum"] if isinstance(one, str))
            elif "enum" in item.get("items", {}):
                found[name] = tuple(item["items"]["enum"])
        for item in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
            walk(item)

    walk(schemas()[SCHEMA])
    return found


def _paths(node: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    yield path
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, item in items:
        yield from _paths(item, (*path, key))


def document(draw: Draw) -> Document:
    """One or two changes on a base, mostly sealed, and seldom none."""
    base = 0 if draw.chance(75) else 1
    made: Document = json.loads(_text(base))  # the fastest copy
    changed = ""
    for _ in range(0 if draw.chance(2) else 2 if draw.chance(12) else 1):
        changed = _change(draw, made, draw.pick(draw.pick(draw.pick(places(base))))) or changed
    if draw.chance(2):
        return made
    try:
        return sealed(made, changed)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        return made  # too broken to have a digest


def _change(draw: Draw, made: Document, path: tuple[str | int, ...]) -> str:
    """Change what stands at a path, if an earlier change left it there; its pointer."""
    node: Any = made
    *outer, last = path
    try:
        for part in outer:
            node = node[part]
        node[last]
    except (KeyError, IndexError, TypeError):
        return ""
    value = _near(draw, str(outer[-1] if isinstance(last, int) else last), node[last], made)
    if value is GONE:
        del node[last]
    else:
        node[last] = value
    return "".join(f"/{part}" for part in path)


def _near(draw: Draw, name: str, value: Any, whole: Document) -> Any:
    """Another value that stands near."""
    if draw.chance(4):
        return GONE
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return draw.pick((value + 1, max(0, value - 1), 0, value + 10, *_numbers(whole)))
    if isinstance(value, str):
        if len(value) == 64:
            return draw.pick(("5" * 64, "2" * 64, "1" * 64))
        known = [word for word in words().get(name, ()) if word != value]
        return draw.pick((None, *(known * 2 or ("other", value + "x"))))
    if isinstance(value, list) and value:
        return draw.pick((value[:-1], [*value, value[-1]], value[::-1], [], value[1:]))
    return draw.pick((None, "other", {"first_position": 2048, "end_position": 3072}, 1, []))


def _numbers(whole: Document) -> tuple[int, ...]:
    """Counters of the document that one may be taken for another."""
    cache, pause = whole.get("cache"), whole.get("pause")
    found = [cache.get("cache_generation")] if isinstance(cache, dict) else []
    found += [pause.get("lifecycle_epoch")] if isinstance(pause, dict) else []
    return tuple(number for number in found if isinstance(number, int))
