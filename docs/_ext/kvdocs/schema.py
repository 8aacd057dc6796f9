"""JSON Schemas as pages: every field with its type, whether it is required, and its description."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from .markdown import code, line, table

Data = dict[str, Any]


def slug(urn: str) -> str:
    """The anchor of a definition: ``urn:kvassay:tensor#/$defs/state`` is ``schema-tensor-state``."""
    identifier, _, pointer = urn.removeprefix("urn:kvassay:").partition("#")
    parts = [identifier, *(part for part in pointer.split("/") if part not in ("", "$defs", "properties"))]
    return "schema-" + "-".join(parts).replace("/", "-").lower()


def page(schema: Data) -> str:
    """The MyST page of one schema document."""
    urn = schema["$id"]
    blocks = [
        f"({slug(urn)})=\n# {line(schema.get('title', urn))}\n",
        f"{line(schema['description'])}\n",
        f"Identifier: {code(urn)}\n",
    ]
    body = {key: item for key, item in schema.items() if key not in ("$schema", "$id", "title", "description", "$defs")}
    if body:
        blocks += _section(body, urn)
    for name, definition in schema.get("$defs", {}).items():
        here = f"{urn}#/$defs/{name}"
        blocks.append(f"({slug(here)})=\n## {line(name)}\n")
        if "description" in definition:
            blocks.append(f"{line(definition['description'])}\n")
        blocks += _section(definition, urn)
    return "\n".join(blocks)


def _section(schema: Data, urn: str) -> list[str]:
    rows = list(_rows(schema, urn, ""))
    if rows:
        blocks = [table(["Field", "Type", "Required", "Description"], rows, widths="24 26 10 40")]
        choices = [_choice(item) for item in schema.get("oneOf", ()) if set(item) == {"required"}]
        if choices:
            blocks.append(f"Exactly one of {', '.join(choices)} is present.\n")
        return blocks
    return [f"Type: {kind(schema, urn)}\n"]


def _choice(item: Data) -> str:
    return " with ".join(code(name) for name in item["required"])


def _rows(schema: Data, urn: str, prefix: str) -> Iterator[list[str]]:
    """One row per property, nested objects and lists of objects after their parent."""
    required = set(schema.get("required", ()))
    for name, field in schema.get("properties", {}).items():
        path = f"{prefix}{name}"
        yield [code(path), kind(field, urn), "yes" if name in required else "", line(field.get("description", ""))]
        yield from _nested(field, urn, path)


def _nested(field: Data, urn: str, path: str) -> Iterator[list[str]]:
    if "properties" in field:
        yield from _rows(field, urn, f"{path}.")
    items = field.get("items")
    if isinstance(items, dict):
        yield from _nested(items, urn, f"{path}[]")
    extra = field.get("additionalProperties")
    if isinstance(extra, dict):
        yield from _nested(extra, urn, f"{path}.*")


def kind(schema: Any, urn: str) -> str:
    """The type of a schema in a few words, with links to the definitions that it refers to."""
    if not isinstance(schema, dict) or not schema:
        return "any value"
    if "$ref" in schema:
        target = schema["$ref"]
        target = f"{urn}{target}" if target.startswith("#") else target
        name = target.rpartition("/")[2] if "#/" in target else target.removeprefix("urn:kvassay:")
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
