"""JSON pointers (RFC 6901) into results."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from .model import Json


class Missing(KeyError):
    """Nothing stands at the pointer."""


@functools.lru_cache(maxsize=4096)
def parts(pointer: str) -> tuple[str, ...]:
    """The unescaped reference tokens of a pointer."""
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:])


def resolve(value: Json, pointer: str) -> Json:
    """What stands at the pointer; raises :class:`Missing`."""
    for part in parts(pointer):
        if isinstance(value, Mapping) and part in value:
            value = value[part]
        elif isinstance(value, list) and part.isdigit() and int(part) < len(value):
            value = value[int(part)]
        else:
            raise Missing(pointer)
    return value
