"""Requests as cases write them: bound values, repetition numbers and literal states are put in just before the call."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from .model import SCALARS, Json
from .states import from_literal, is_literal, schema_of

BIND = "$bind"
INDEX = "$index"
"""``{"$index": prefix}`` becomes the prefix and the number of the repetition, counted from 0."""


def bound_names(value: Json) -> Iterator[str]:
    """Names that a request takes from earlier steps."""
    if isinstance(value, Mapping):
        if value.keys() == {BIND}:
            yield value[BIND]
        for item in value.values():
            yield from bound_names(item)
    elif isinstance(value, list):
        for item in value:
            yield from bound_names(item)


def is_dynamic(value: Json) -> bool:
    """Whether a request holds bound values or literal states, which depend on the engine."""
    if isinstance(value, Mapping):
        if value.keys() in ({BIND}, {INDEX}) or is_literal(value):
            return True
        members: Iterable[Json] = value.values()
    else:
        members = value if isinstance(value, list) else ()
    return any(is_dynamic(item) for item in members if type(item) not in SCALARS)


def substitute(value: Json, bound_values: Mapping[str, Json], states: tuple[str, ...]) -> Any:
    """A request with its bound values in place and its literal states in a schema that the engine speaks."""
    if isinstance(value, Mapping):
        if value.keys() == {BIND}:
            return bound_values[value[BIND]]
        if value.keys() == {INDEX}:
            return f"{value[INDEX]}{bound_values[INDEX]}"
        if is_literal(value) and states and schema_of(value) not in states:
            return from_literal(value, states[0])
        return {key: substitute(item, bound_values, states) for key, item in value.items()}
    if isinstance(value, list):
        return [substitute(item, bound_values, states) for item in value]
    return value
