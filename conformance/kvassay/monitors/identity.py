"""The rules of identity over a sequence of puts and gets: whose rows may be served to whom.

Each row has a key over all that the rows before it share, so that a common prefix is found and nothing else is. The
key holds every field which the engine separates by key; fields that cannot differ within it stay out, and so do fenced
ones, whose rows all go when a change is announced. Rows are compared by digest.

What was put stays servable until a fence or a fresh engine: an engine may keep it and need not tell what it drops. So
memory grows with the distinct rows since then.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ..core.engine import Reply, Returned
from ..core.expect import PASS, Outcome
from ..core.model import EngineDescription, Finding, Verdict
from ..core.words import Word

PREFIX = "identity.field."
CONTENT = frozenset({"tokens", "multimodal"})
"""Members of a record that belong to single rows."""


class Rule(Word):
    """What a reply can contradict."""

    WRONG_ROWS = "WRONG_ROWS", "Rows that were put under the record's identity, but are not what was put."
    FOREIGN_ROWS = "FOREIGN_ROWS", "Rows are served, and none were put under this identity since the last fence."
    BEYOND_PREFIX = "BEYOND_PREFIX", "Rows are served beyond the prefix that was put, or beyond the record's own end."


REQUIREMENTS: Mapping[str, tuple[str, ...]] = {
    Rule.WRONG_ROWS: ("IDN-034",),
    Rule.FOREIGN_ROWS: ("IDN-035", "IDN-036", "IDN-037", "IDN-039"),
    Rule.BEYOND_PREFIX: ("IDN-038",),
}
"""Rule to the requirements that it watches."""


class IdentityMonitor:
    """One opening of an engine."""

    def __init__(self, description: EngineDescription) -> None:
        how = {name: value for name, value in description.capabilities.items() if name.startswith(PREFIX)}
        self.left_out = {name.removeprefix(PREFIX) for name, value in how.items() if value != "key"} | CONTENT
        self.fenced = {name.removeprefix(PREFIX) for name, value in how.items() if value == "fenced"}
        self.rows: dict[bytes, set[str]] = {}
        """Key of a row to the digests of what was put there; empty where a put told none."""
        self.whole: dict[bytes, set[str]] = {}
        """Key of the last row of a put to the digests of all its rows."""

    @property
    def held(self) -> Mapping[str, int]:
        """What memory goes to."""
        return {"rows": len(self.rows)}

    def observe(self, op: str, request: Mapping[str, Any], reply: Reply) -> Outcome:
        """Take note of one call. A put that was refused may have left its rows all the same."""
        if op == "identity.put":
            self._put(request["record"], request["data"])
        if not isinstance(reply, Returned):
            return PASS
        if op == "identity.get" and reply.value["outcome"] == "hit":
            return self._hit(request["record"], reply.value)
        if op == "identity.change" and request["field"] in self.fenced:
            self.rows.clear()
            self.whole.clear()
        return PASS

    def keys(self, record: Mapping[str, Any]) -> Iterator[bytes]:
        """The key of each row in turn."""
        scope = {name: value for name, value in record.items() if name not in self.left_out}
        key = hashlib.sha256(json.dumps(scope, sort_keys=True).encode()).digest()
        items = record.get("multimodal", ())
        for row, token in enumerate(record["tokens"]):
            content = [
                (item["sha256"], row - item["position"])
                for item in items
                if 0 <= row - item["position"] < item["length"]
            ]
            key = hashlib.sha256(key + json.dumps([token, content]).encode()).digest()
            yield key

    def _put(self, record: Mapping[str, Any], data: Any) -> None:
        told, whole = digests(data)
        key = b""
        for row, key in enumerate(self.keys(record)):
            legal = self.rows.setdefault(key, set())
            if row < len(told):
                legal.add(told[row])
        if whole and key:
            self.whole.setdefault(key, set()).add(whole)

    def _hit(self, record: Mapping[str, Any], result: Mapping[str, Any]) -> Outcome:
        served = result["rows"]
        told, whole = digests(result["data"]) if "data" in result else ((), "")
        if served > len(record["tokens"]):
            return broken(Rule.BEYOND_PREFIX, "/rows", f"{served} rows for a record of {len(record['tokens'])} tokens")
        key = b""
        for row, key in zip(range(served), self.keys(record), strict=False):
            legal = self.rows.get(key)
            if legal is None and row == 0:
                return broken(Rule.FOREIGN_ROWS, "/rows", "rows are served, and none were put under this identity")
            if legal is None:
                message = f"{served} rows are served, and {row} of them were put under this identity"
                return broken(Rule.BEYOND_PREFIX, "/rows", message)
            if row < len(told) and legal and told[row] not in legal:
                return broken(Rule.WRONG_ROWS, f"/data/{row}", f"row {row} is not what was put under this identity")
        if whole and not told and key in self.whole and whole not in self.whole[key]:
            return broken(Rule.WRONG_ROWS, "/data", "the rows are not what was put under this identity")
        return PASS


def broken(rule: Rule, at: str, message: str) -> Outcome:
    """A reply that contradicts a rule."""
    return Outcome(Verdict.FAIL, Finding(None, at, f"{rule}: {message}"))


def digests(data: Any) -> tuple[tuple[str, ...], str]:
    """SHA-256 of each row and of all; a trace gives them in the rows' place, where it can."""
    if isinstance(data, Mapping):
        return tuple(data.get("rows_sha256", ())), str(data.get("sha256", ""))
    if not isinstance(data, np.ndarray):
        return (), ""
    whole = np.ascontiguousarray(data)
    return tuple(hashlib.sha256(row.tobytes()).hexdigest() for row in whole), hashlib.sha256(
        whole.tobytes()
    ).hexdigest()
