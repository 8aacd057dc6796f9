"""The form of each event: compiled validators, one an op, made from the op's own schema.

It differs from what an adapter sends: tensors are digests; the witness ``engine_calls`` may be missing, and so may any
member of a result that the monitor derives itself, for a service shows what it keeps; and a store may be as large as
services have them, not as small as cases do.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jsonschema_rs

from ..corpus.ops import ops
from ..corpus.schemas import schemas
from ..monitors.replay import REPLAYED

TRACE = "urn:kvassay:trace"
HEADER, OPEN, END, EXCHANGE = (f"{TRACE}#/$defs/{name}" for name in ("header", "open", "end", "exchange"))
OUTCOMES = ("result", "rejected", "unsupported", "error")


@dataclass(frozen=True, slots=True)
class Kind:
    """What a line of one event name must look like, and whose rules it falls under."""

    name: str
    contract: str
    """Empty for an event that is no op of the suite."""
    validator: Any
    fits: Callable[[Any], bool]
    """Whether a line is right."""

    def problem(self, value: Mapping[str, Any]) -> tuple[str, str] | None:
        """JSON pointer and reason of what is wrong with a line; ``None`` when it is right."""
        return problem(self.validator, value)


def problem(validator: Any, value: Any) -> tuple[str, str] | None:
    """The deepest thing that a validator has against a value."""
    if validator.is_valid(value):
        return None
    error = max(validator.iter_errors(value), key=lambda one: len(one.instance_path))
    pointer = "".join(f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in error.instance_path)
    return pointer, " ".join(str(error.message).split())[:400]


@functools.cache
def line(uri: str = TRACE) -> Any:
    """The validator of one kind of line that is no exchange."""
    return _compiled({"$ref": uri})


@functools.cache
def kind(name: str) -> Kind:
    """What is known of an event that is an op."""
    known = ops()[name]
    exchange = schemas()[TRACE]["$defs"]["exchange"]
    references = {key: {"$ref": f"{TRACE}#/$defs/exchange/properties/{key}"} for key in exchange["properties"]}
    document = {
        "type": "object",
        "properties": {**references, "request": {"$ref": known.request}, "result": {"$ref": known.response}},
        "required": ["event", "request"],
        "oneOf": [{"required": [outcome]} for outcome in OUTCOMES],
        "additionalProperties": False,
    }
    validator = _compiled(document)
    return Kind(name, known.contract, validator, validator.is_valid)


@functools.cache
def unknown() -> Kind:
    """All that is known of any other event."""
    validator = line(f"{TRACE}#/$defs/foreign")
    return Kind("", "", validator, validator.is_valid)


def known_events() -> frozenset[str]:
    """Every event that some op of the suite stands behind."""
    return frozenset(ops())


def _compiled(document: dict[str, Any]) -> Any:
    return jsonschema_rs.Draft202012Validator(document, registry=_registry())


@functools.cache
def _registry() -> Any:
    return jsonschema_rs.Registry([(uri, _traced(uri, schema)) for uri, schema in schemas().items()])


def _unbounded(node: Any) -> Any:
    """A schema without upper limits."""
    if isinstance(node, dict):
        return {name: _unbounded(item) for name, item in node.items() if name not in ("maximum", "maxItems")}
    return [_unbounded(item) for item in node] if isinstance(node, list) else node


def _traced(uri: str, schema: Any) -> Any:
    """A schema as traces have it."""
    if uri == "urn:kvassay:tensor":
        digest = {"$ref": f"{TRACE}#/$defs/tensor"}
        return {**schema, "$defs": {**schema["$defs"], "tensor": digest, "literal": digest}}
    if uri.split(":")[2].partition("/")[0] in REPLAYED and uri.endswith("/status"):
        return {name: value for name, value in schema.items() if name != "required"}
    if uri.startswith("urn:kvassay:op:residency."):
        schema = _unbounded(schema)
    response = schema.get("$defs", {}).get("response", {})
    needed = [name for name in response.get("required", ()) if name != "engine_calls"]
    if uri.startswith("urn:kvassay:op:") and ops()[uri.removeprefix("urn:kvassay:op:")].contract in REPLAYED:
        needed = []
    return (
        {**schema, "$defs": {**schema["$defs"], "response": {**response, "required": needed}}} if response else schema
    )
