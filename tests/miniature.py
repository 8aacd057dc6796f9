"""A corpus of seven cases and engines of a few lines, for tests of what is built around the judge."""

from __future__ import annotations

import os
from types import MappingProxyType
from typing import Any

import numpy as np
from kvassay import EngineAdapter, EngineInfo, Rejected
from kvassay.core.expect import parse
from kvassay.core.model import Case, Kind, Level, Reason, Requirement, Status, Step
from kvassay.corpus import Capability, Corpus, Profile

MERGE = "attention.merge"


def state(out: list[list[float]], lse: list[float]) -> dict[str, Any]:
    return {"schema": "o-lse-v1", "base": "e", "o": np.float32(out), "lse": np.float32(lse)}


EMPTY = state([[0.0, 0.0], [0.0, 0.0]], [-np.inf, -np.inf])
FULL = state([[1.0, 2.0], [3.0, 4.0]], [0.5, 0.25])
BOUND = {"float32": {"out": {"rtol": 0, "atol": 1e-5}, "lse": {"rtol": 0, "atol": 1e-5}}}


def close(out: Any, lse: Any) -> dict[str, Any]:
    value = {"out": np.float64(out), "lse": np.float64(lse)}
    return {"close": [{"at": "/state", "value": value, "bound": BOUND}]}


def merge(*states: Any, expect: dict[str, Any], **more: Any) -> Step:
    return Step(MERGE, {"states": list(states)}, parse(expect), **more)


def case(name: str, *steps: Step, **more: Any) -> Case:
    fields: dict[str, Any] = {
        "contract": name.partition("/")[0],
        "requirements": ("ATT-901",),
        "level": Level.MUST,
        "profile": "merge",
        "kind": Kind.EXAMPLE,
        "status": Status.STABLE,
        "title": name.rpartition("/")[2].replace("-", " "),
        "given": f"Given {name}, when it is judged, then it passes.",
        "why": "An engine that gets this wrong loses rows.",
    }
    return Case(id=name, steps=steps, **(fields | more))


CASES = (
    case("attention/merge/empty-and-full", merge(EMPTY, FULL, expect=close(FULL["o"], FULL["lse"]))),
    case("attention/merge/two-empty", merge(EMPTY, EMPTY, expect=close(EMPTY["o"], EMPTY["lse"]))),
    case(
        "attention/merge/order",
        merge(EMPTY, FULL, expect={"accepts": True}, bind={"a": "/state"}),
        merge(FULL, EMPTY, expect={"accepts": True}, bind={"b": "/state"}),
        relations=({"relation": "close", "of": ["a", "b"], "bound": BOUND},),
        requirements=("ATT-901", "ATT-902"),
        kind=Kind.RELATION,
    ),
    case(
        "attention/merge/mixed-shapes",
        merge(FULL, state([[1.0]], [0.0]), expect={"rejects": "SHAPE_MISMATCH"}),
        requirements=("ATT-903",),
    ),
    case("attention/merge/polite", merge(FULL, expect=close(FULL["o"], FULL["lse"])), level=Level.SHOULD),
    case("attention/merge/next-year", merge(FULL, expect=close(FULL["o"], FULL["lse"])), status=Status.PROVISIONAL),
    case(
        "identity/keys/none",
        Step("identity.get", {}, parse({"accepts": True})),
        profile="keys",
        requirements=("IDN-901",),
    ),
)
"""Six for the profile merge, one that no engine here can run."""


def _requirement(name: str, text: str) -> Requirement:
    contract = "attention" if name.startswith("ATT") else "identity"
    return Requirement(
        name, contract, Level.MUST, f"Title of {name}", text, "Or rows are lost.", ("04W",), f"spec/{contract}.md"
    )


REQUIREMENTS = {
    name: _requirement(name, text)
    for name, text in {
        "ATT-901": "Merging with an empty state changes nothing.",
        "ATT-902": "The order of a merge does not matter.",
        "ATT-903": "States of different shapes are rejected.",
        "IDN-901": "A miss is not a hit.",
    }.items()
}


def corpus(cases: tuple[Case, ...] = CASES) -> Corpus:
    return Corpus(
        edition="2030.1",
        spec_version="9.9",
        digest="ab" * 32,
        requirements=MappingProxyType(REQUIREMENTS),
        reasons=MappingProxyType(
            {"SHAPE_MISMATCH": Reason("SHAPE_MISMATCH", "attention", "execution", "Extents differ.", "Compare them.")}
        ),
        profiles=MappingProxyType(
            {
                "merge": Profile("merge", "attention", "Merges partial states.", frozenset({MERGE})),
                "keys": Profile("keys", "identity", "Keeps rows apart.", frozenset({"identity.get"})),
            }
        ),
        capabilities=MappingProxyType({"fences": Capability("fences", "Whether it fences.", (True, False), False)}),
        cases=cases,
        raw_cases=MappingProxyType({one.id: {"id": one.id} for one in cases}),
    )


class Good(EngineAdapter):
    """Merges two states in the plainest way."""

    engine = EngineInfo(name="good", version="1.0", notes="For tests.")
    states = ("o-lse-v1/e",)

    def attention_merge(self, request: dict[str, Any]) -> dict[str, Any]:
        states = request["states"]
        if len({one["o"].shape for one in states}) > 1:
            raise Rejected("SHAPE_MISMATCH", "the states differ")
        lse = np.logaddexp.reduce([one["lse"] for one in states])
        total = np.where(np.isneginf(lse), 0, lse)
        out = sum(np.exp(one["lse"] - total)[:, None] * one["o"] for one in states)
        return {"state": state(out, lse)}


class Nan(Good):
    """Divides by the mass of nothing."""

    engine = EngineInfo(name="nan", version="1.0")

    def attention_merge(self, request: dict[str, Any]) -> dict[str, Any]:
        reply = super().attention_merge(request)
        empty = np.isneginf(reply["state"]["lse"])
        return {"state": {**reply["state"], "o": np.where(empty[:, None], np.nan, reply["state"]["o"]).astype("f4")}}


class Drift(Good):
    """Off by a thousand bounds in one element, and right about the rest."""

    engine = EngineInfo(name="drift", version="1.0")

    def attention_merge(self, request: dict[str, Any]) -> dict[str, Any]:
        reply = super().attention_merge(request)
        reply["state"]["o"][1, 0] += 0.01
        return reply


class Shy(Good):
    """Rejects what it does not like, for a reason of its own."""

    engine = EngineInfo(name="shy", version="1.0")

    def attention_merge(self, request: dict[str, Any]) -> dict[str, Any]:
        if len({one["o"].shape for one in request["states"]}) > 1:
            raise Rejected("DTYPE_MISMATCH", "no")
        return super().attention_merge(request)


class Hostile(Good):
    """Puts markup, terminal controls and XML's forbidden characters into everything that it says."""

    engine = EngineInfo(name="<script>alert(1)</script>", version="\x1b[31m1.0\x07", notes="]]>&\x00")

    def attention_merge(self, request: dict[str, Any]) -> dict[str, Any]:
        raise RuntimeError("<script>alert(2)</script> \x1b]0;title\x07 [bold]x[/bold] \ud800 \uffff")


class Crash(Good):
    """Dies in the middle of a call."""

    engine = EngineInfo(name="crash", version="1.0")

    def attention_merge(self, request: dict[str, Any]) -> dict[str, Any]:
        os._exit(7)


class Unstartable(Good):
    """Does not start."""

    def setup(self) -> None:
        raise RuntimeError("no such device")
