"""The members of an op's request or result, with the words of its schema: what adapters are written from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .schemas import schemas

Node = Mapping[str, Any]
ARRAYS = ("tensor", "literal", "recipe")
"""Definitions that a method meets as arrays, so that their members are of no interest to it."""

CHOICES = 12
"""Words of an enumeration up to which they are told; longer ones are registries, with pages of their own."""


@dataclass(frozen=True)
class Member:
    """A member of an object, and those of the object, or of each object of the list, that it holds."""

    name: str
    description: str
    inner: tuple[Member, ...] = ()
    many: bool = False
    """Whether it is a list of them."""


def members(document: Node, part: str) -> tuple[Member, ...]:
    """Members of ``request`` or ``response`` in an op's schema, one level further where they hold objects."""
    return tuple(_members(document, document["$defs"][part], 1))


def _members(document: Node, node: Node, depth: int) -> Iterator[Member]:
    """Members of an object; where there are several forms, those of each, a name once."""
    document, node = _target(document, node)
    required, seen = node.get("required", ()), set()
    for name, member in node.get("properties", {}).items():
        seen.add(name)
        described = member if "description" in member else _target(document, member)[1]
        description = described.get("description", "")
        description += _choices(document, member, description)
        if name not in required and "optional" not in description:
            description = f"{description} (optional)"
        yield Member(name, description, tuple(_inner(document, member)) if depth else (), "items" in member)
    for form in (*node.get("allOf", ()), *node.get("oneOf", ())):
        if "properties" in form or "$ref" in form:
            for member in _members(document, form, depth):
                if member.name not in seen:
                    seen.add(member.name)
                    yield member


def _choices(document: Node, node: Node, description: str) -> str:
    """The words that a member, or each item of a list, may be, unless its description tells them already."""
    document, node = _target(document, node)
    if "items" in node:
        document, node = _target(document, node["items"])
    words = [word for word in node.get("enum", ()) if isinstance(word, str)]
    if not 1 < len(words) <= CHOICES or all(word in description for word in words):
        return ""
    return f"{' ' if description else ''}One of: {', '.join(words)}."


def _inner(document: Node, node: Node) -> Iterator[Member]:
    if node.get("$ref", "").rpartition("/")[2] in ARRAYS:
        return
    document, node = _target(document, node)
    if "items" in node:
        yield from _inner(document, node["items"])
    else:
        yield from _members(document, node, 0)


def _target(document: Node, node: Node) -> tuple[Node, Node]:
    """A node behind its reference, with the document that it stands in."""
    while "$ref" in node:
        uri, _, pointer = node["$ref"].partition("#")
        document = schemas()[uri] if uri else document
        node = document
        for part in pointer.split("/")[1:]:
            node = node[part]
    return document, node
