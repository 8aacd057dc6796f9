"""How an engine keeps records apart, field by field: the capabilities ``identity.field.*`` in four short lists."""

from __future__ import annotations

from collections.abc import Mapping

DISPOSITIONS = ("key", "constant", "fenced", "absent")


def dispositions(*, key: str = "", constant: str = "", fenced: str = "", absent: str = "") -> Mapping[str, str]:
    """Capabilities from the names of record members, each list separated by spaces.

    ``key``: another value gives another key. ``constant``: cannot differ within one engine. ``fenced``: the old rows
    are dropped when the change is announced. ``absent``: the engine cannot be given another value.
    """
    declared: dict[str, str] = {}
    for disposition, names in zip(DISPOSITIONS, (key, constant, fenced, absent), strict=True):
        for name in names.split():
            if f"identity.field.{name}" in declared:
                raise ValueError(f"{name} has two dispositions")
            declared[f"identity.field.{name}"] = disposition
    return declared
