"""What a contract holds documents to beyond their schema, as far as its oracle says so for whole documents."""

from __future__ import annotations

from typing import Any, NamedTuple

from .data import contracts, fixture_module

PREFIX = "urn:kvassay:"


class Finding(NamedTuple):
    """One fault of a document."""

    reason: str
    pointer: str
    text: str


def findings(document: Any, uri: str) -> list[Finding]:
    """Every fault of a document that meets its schema; none where its contract has no rules for whole documents.

    The rules are the ``DOCUMENTS`` of the contract's oracle: the schema's name, and a function that yields reason,
    JSON pointer and text of each fault.
    """
    name = uri.removeprefix(PREFIX)
    contract = name.partition("/")[0]
    if contract not in contracts():
        return []
    rules = getattr(fixture_module(f"{contract}.oracle"), "DOCUMENTS", {}).get(name)
    return [] if rules is None else [Finding(*found) for found in rules(document)]
