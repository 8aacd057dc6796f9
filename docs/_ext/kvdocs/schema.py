"""JSON Schemas as pages: every field with its type, whether it is required, and its description."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from .markdown import code, line, table

Data = dict[str, Any]
HEAD, WIDTHS = ["Field", "Type", "Required", "Description"], "24 26 10 40"


def slug(urn: str) -> str:
    """The anchor of a definition: ``urn:kvassay:tensor#/$defs/state`` is ``schema-tensor-state``."""
    identifier, _, pointer = urn.removeprefix("urn:kvassay:").partition("#")
    parts = [identifier, *(part for part in pointer.split("/") if part not in ("", "$defs", "properties"))]
    return "schema-" + re.sub(r"[^a-z0-9]+", "-", "-".join(parts).lower())


def page(schema: Data) -> str:
    """The MyST page of one schema document."""
    urn: str = schema["$id"]
    whole = {key: item for key, item in schema.items() if key not in ("$schema", "$id", "title", "$defs")}
    blocks = [f"({slug(urn)})=\n# {line(schema.get('title', urn))}\n", f"Identifier: {code(urn)}\n"]
    blocks += _section(whole, schema, urn)
    for name, definition in schema.get("$defs", {}).items():
        blocks.append(f"({slug(f'{urn}#/$defs/{name}')})=\n## {line(name)}\n")
        blocks += _section(definition, schema, urn)
    return "\n".join(blocks)


def members(schema: Data) -> str:
    """The table of a document's members."""
    urn: str = schema["$id"]
    return table(HEAD, list(_members(schema, schema, urn, "")), widths=WIDTHS)


def _section(part: Data, schema: Data, urn: str) -> Iterator[str]:
    """Description, type where it is more than an object with members, and the table of members."""
    if "description" in part:
        yield f"{line(part['description'])}\n"
    rows = list(_members(part, schema, urn, ""))
    shape = kind(part, urn)
    if shape not in ("object", "any value"):
        yield f"Type: {shape}\n"
    if rows:
        yield table(HEAD, rows, widths=WIDTHS)
    choices = [_choice(item) for item in part.get("oneOf", ()) if set(item) == {"required"}]
    if choices:
        yield f"Exactly one of {', '.join(choices)} is present.\n"


def _choice(item: Data) -> str:
    return " with ".join(code(name) for name in item["required"])


def _members(part: Any, schema: Data, urn: str, path: str) -> Iterator[list[str]]:
    """A row for each member inside a schema: its properties, and those of its items, other members, alternatives."""
    if not isinstance(part, dict):
        return
    required = set(part.get("required", ()))
    for name, field in part.get("properties", {}).items():
        here = f"{path}.{name}" if path else name
        yield [code(here), kind(field, urn), "yes" if name in required else "", line(_about(field, schema))]
        yield from _members(field, schema, urn, here)
    yield from _members(part.get("items"), schema, urn, f"{path}[]")
    yield from _members(part.get("additionalProperties"), schema, urn, f"{path}.*" if path else "*")
    for key in ("oneOf", "anyOf", "allOf"):
        for branch in part.get(key, ()):
            yield from _members(branch, schema, urn, path)


def _about(field: Data, schema: Data) -> str:
    """The description of a field, or of the definition in the same document that it refers to."""
    target = field.get("$ref", "").removeprefix("#/$defs/")
    there = schema.get("$defs", {}).get(target, {}).get("description", "")
    return str(field.get("description", there))


def kind(schema: Any, urn: str) -> str:
    """The type of a schema in a few words, with links to the definitions that it refers to."""
    if not isinstance(schema, dict) or not schema:
        return "any value"
    if "$ref" in schema:
        target = schema["$ref"]
        target = f"{urn}{target}" if target.startswith("#") else target
        name = target.rpartition("/")[2] if "#/" in target else target.removeprefix("urn:kvassay:").removeprefix("op:")
        return f"[{line(name)}](#{slug(target)})"
    if "const" in schema:
        return code(json.dumps(schema["const"]))
    if "enum" in schema:
        return " or ".join(code(json.dumps(item)) for item in schema["enum"])
    for key, word in (("oneOf", " or "), ("anyOf", " or "), ("allOf", " and ")):
        branches = [item for item in schema.get(key, ()) if set(item) - {"required"}]
        if branches:
            return word.join(kind(item, urn) for item in branches)
    return _plain_kind(schema, urn)


def _plain_kind(schema: Data, urn: str) -> str:
    names = schema.get("type", "object" if "properties" in schema else "any value")
    text = " or ".join(names) if isinstance(names, list) else names
    if text == "array" and isinstance(schema.get("items"), dict):
        text = f"array of {kind(schema['items'], urn)}"
    extra = schema.get("additionalProperties")
    if text == "object" and "properties" not in schema and isinstance(extra, dict):
        text = f"object of {kind(extra, urn)}"
    limits = [f"{word} {code(schema[key])}" for key, word in LIMITS.items() if key in schema]
    return ", ".join([text, *limits])


LIMITS = {
    "pattern": "pattern",
    "format": "format",
    "minimum": "at least",
    "exclusiveMinimum": "above",
    "maximum": "at most",
    "exclusiveMaximum": "below",
    "minLength": "length at least",
    "maxLength": "length at most",
    "minItems": "items at least",
    "maxItems": "items at most",
    "minProperties": "members at least",
}
"""Keywords shown beside the type, and their words."""
