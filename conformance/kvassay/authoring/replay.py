"""One case replayed on its oracle: expected values filled in, everything else confirmed, and judged at the end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..core import tensors
from ..core.judge import Rules, judge
from ..core.model import Repeat, Verdict
from ..core.pointers import resolve
from ..core.states import is_state
from ..core.template import BIND, INDEX, bound_names
from ..corpus.build import build, expand
from ..corpus.data import fixture_module
from ..corpus.errors import CorpusError
from ..corpus.ops import find
from ..corpus.schemas import problem
from .answers import Answers
from .oracle_engine import OracleEngine

Json = dict[str, Any]
LARGE = 1 << 16
"""Elements of a tensor from which a case counts as large: its oracle takes seconds."""


def freeze_case(contract: str, written: Json, base: Path, answers: Answers) -> Json:
    """One frozen case; raises :class:`CorpusError` where author and oracle disagree."""
    frozen = _prepared(contract, written, base)
    capabilities = {name: values[0] for name, values in frozen.get("needs", {}).items()}
    oracle = OracleEngine(contract, base, answers, capabilities)
    bound_values: Json = {}
    replayed: list[tuple[str, Json, Any]] = []
    steps = []
    for index, step in enumerate(frozen["steps"]):
        with _in_step(frozen["id"], index, step["op"]):
            for number in range(_repetitions(step, bound_values)):
                request = _bind(expand(step["request"], base), {**bound_values, INDEX: number})
                _check_request(frozen, step, request)
                reason, result = oracle.answer(step["op"], request)
                replayed.append((step["op"], request, result))
            steps.append({**step, "expect": _fill(oracle, step, request, reason, result)})
            if reason is None:
                bound_values |= {name: resolve(result, at) for name, at in step.get("bind", {}).items()}
    frozen["steps"] = steps
    frozen["relations"] = [
        {**row, "bound": oracle.relation_bound(row, replayed)} if row.get("bound") == "oracle" else row
        for row in frozen.get("relations", ())
    ]
    if not frozen["relations"]:
        del frozen["relations"]
    found = problem(frozen, "urn:kvassay:case#/$defs/case")
    if found is not None:
        raise CorpusError(found[1], file=frozen["id"], pointer=found[0])
    _confirm(frozen, oracle, base)
    return frozen


@contextmanager
def _in_step(case: str, index: int, op: str) -> Iterator[None]:
    """Whatever goes wrong within is told in one line, with the case and the step."""
    try:
        yield
    except Exception as defect:  # a defect of author or oracle
        told = str(defect) if isinstance(defect, CorpusError) else f"{type(defect).__name__}: {defect}"
        raise CorpusError(f"step {index}, {op}: {' '.join(told.split())}", file=case) from None


def _repetitions(step: Json, bound_values: Json) -> int:
    count = Repeat(**step["repeat"]).count(bound_values) if "repeat" in step else 1
    if not count:
        raise CorpusError(f"the step is repeated {count!r} times")
    return count


def _check_request(case: Json, step: Json, request: Json) -> None:
    """The request meets its op's schema, unless a rejection by the schema is what the case shows.

    One with bound values is left alone: the states of an oracle carry more than those of an engine.
    """
    schema = find(step["op"]).request
    found = None if any(bound_names(step["request"])) else problem(request, schema)
    by_schema = case.get("mutation", {}).get("rejected_by") == "schema" and "rejects" in step["expect"]
    if found is not None and not by_schema:
        raise CorpusError(f"the request does not meet its schema: {found[0] or '/'}: {found[1]}")


def adopt(contract: str, written: Json, committed: Json, base: Path) -> Json:
    """The case with the committed values where the oracle's would stand: what its author wrote is current, or not."""
    frozen = _prepared(contract, written, base)
    old_steps, old_relations = committed.get("steps", ()), committed.get("relations", ())
    if len(frozen["steps"]) == len(old_steps):
        frozen["steps"] = [
            {**step, "expect": old["expect"]} if "oracle" in step["expect"] else step
            for step, old in zip(frozen["steps"], old_steps, strict=True)
        ]
    if len(frozen.get("relations", ())) == len(old_relations):
        frozen["relations"] = [
            {**row, "bound": old.get("bound")} if row.get("bound") == "oracle" else row
            for row, old in zip(frozen["relations"], old_relations, strict=True)
        ]
    return {key: value for key, value in frozen.items() if key != "relations" or value}


def is_large(written: Json, base: Path) -> bool:
    """Whether a request of the case holds a large tensor."""
    return any(tensors.largest(expand(step.get("request", {}), base)) >= LARGE for step in written["steps"])


def _prepared(contract: str, written: Json, base: Path) -> Json:
    frozen: Json = {"level": "must", "status": "stable", **written}
    return _expand_mutation(contract, frozen, base) if "mutation" in frozen else frozen


def _expand_mutation(contract: str, case: Json, base: Path) -> Json:
    """Whole base accepted, mutated base rejected, whole base accepted again."""
    mutation, (call,) = case["mutation"], case["steps"]
    name, member, change = mutation["base"], mutation["member"], mutation["change"]
    whole = {member: {"$base": name}}
    mutated = expand({"$base": name, "patch": [change]}, base)
    reseal = getattr(fixture_module(f"{contract}.oracle"), "reseal", _unsealed)
    sealed, pointers = reseal(mutated, change["path"])
    patch = [change, *({"op": "replace", "path": at, "value": resolve(sealed, at)} for at in pointers)]
    fine = {"op": call["op"], "request": whole, "expect": {"accepts": True}}
    broken = {
        "op": call["op"],
        "request": {member: {"$base": name, "patch": patch}},
        "expect": {"rejects": call["reason"]},
    }
    return {**case, "mutation": {**mutation, "resealed": list(pointers)}, "steps": [fine, broken, fine]}


def _unsealed(document: Any, keep: str) -> tuple[Any, list[str]]:
    """The reseal of a contract whose documents hold no digests of themselves."""
    return document, []


def _bind(value: Any, bound_values: Json) -> Any:
    if isinstance(value, dict):
        if value.keys() == {BIND}:
            return bound_values[value[BIND]]
        if value.keys() == {INDEX}:
            return f"{value[INDEX]}{bound_values[INDEX]}"
        return {key: _bind(item, bound_values) for key, item in value.items()}
    return [_bind(item, bound_values) for item in value] if isinstance(value, list) else value


def _fill(oracle: OracleEngine, step: Json, request: Json, reason: str | None, result: Any) -> Json:
    expect: Json = step["expect"]
    if "oracle" not in expect:
        return expect
    if reason is not None:
        raise CorpusError(f"the oracle rejects this: {reason}: {result}")
    asked = expect["oracle"]
    if "supports" in asked:
        return _selects(oracle, step["op"], request, result, expect)
    pointers = asked["at"] or [f"/{name}" for name in result]
    rest = {key: value for key, value in expect.items() if key != "oracle"}
    optional: dict[str, Json] = {at: {"optional": True} for at in asked["optional"]}
    if asked["exact"]:
        rows = [{"at": at, "value": resolve(result, at), **optional.get(at, {})} for at in pointers]
        return {"equals": rows, **rest}
    rows = [_near(oracle, step["op"], request, result, at) | optional.get(at, {}) for at in pointers]
    return {"close": rows, **rest}


def _near(oracle: OracleEngine, op: str, request: Json, result: Any, at: str, of: str = "") -> Json:
    """What stands at a pointer of the result, or at the pointer ``of``, with the bound of the former."""
    shared, value = fixture_module("_oracle"), resolve(result, of or at)
    if is_state(value):
        value = shared.meaning(value)
    elif tensors.is_tensor(value):
        value = shared.expected(shared.rows(value), value["shape"])
    return {"at": at, "value": value, "bound": oracle.bound(op, request, result, of or at)}


def _selects(oracle: OracleEngine, op: str, request: Json, result: Any, expect: Json) -> Json:
    """Supports of the oracle's result with floors: shares of what the rule itself keeps; and numbers beside them."""
    asked = expect["oracle"]
    supports = []
    for at in asked["supports"]:
        support = result["supports"][at]
        lists = [
            {
                **{key: value for key, value in listed.items() if key != "shares"},
                "shares": [
                    {
                        **{name: part for name, part in share.items() if name != "kept"},
                        "floor": min(1.0, asked["floor"] * share["kept"]),
                    }
                    for share in listed["shares"]
                ],
            }
            for listed in support["lists"]
        ]
        supports.append({"at": at, **support, "lists": lists})
    near = [_near(oracle, op, request, result, at) for at in asked["close"]]
    near += [{**_near(oracle, op, request, result, at, of), "side": side} for at, side, of in asked["sides"]]
    rest = {key: value for key, value in expect.items() if key != "oracle"}
    if not supports:
        return {"close": near, **rest}
    return {"selects": {"supports": supports, **({"close": near} if near else {})}, **rest}


def _confirm(frozen: Json, oracle: OracleEngine, base: Path) -> None:
    """The judge, with the oracle as engine, passes the frozen case."""
    case = build(frozen, base)
    oracle.description = replace(
        oracle.description,
        profiles=frozenset({case.profile}),
        variants=frozenset({case.variant} if case.variant else ()),
    )
    result = judge(case, oracle, Rules({case.profile: case.ops}, {}, lambda op, value: None))
    if result.verdict is not Verdict.PASS:
        message = result.finding.message if result.finding else ""
        raise CorpusError(f"the oracle does not pass its own case: {result.verdict}: {message}", file=case.id)
