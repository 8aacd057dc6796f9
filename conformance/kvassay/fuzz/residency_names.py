"""Keys and tenants of a sequence, in families whose members an engine may take for each other."""

from __future__ import annotations

from dataclasses import dataclass

TENANTS = (("t1", "t2"), ("t", "t-a"))


@dataclass(frozen=True)
class Names:
    """A family: its keys, of which a sequence uses the first few, and tenants where it needs its own."""

    keys: tuple[str, ...]
    tenants: tuple[str, ...] = ()
    weight: int = 1


PLAIN = (
    Names(("a", "b", "c"), weight=4),
    Names(("c", "a", "b"), weight=4),
    Names(("p", "p1", "p12")),
    Names(("007", "7", "07")),
    Names(("a-b", "b", "ab")),
    Names(("a-b", "b", "b-"), ("t", "t-a")),
)
"""Keys that every engine takes: cut, joined, or read as numbers they fall together."""
OPAQUE = (
    Names(("Aa", "aA", "aa")),
    Names(("x/y", "x-y", "x_y")),
    Names(("x y", "x/y", "xy")),
    Names((" a", "a", "a ")),
    Names(("\u00e9", "e\u0301", "e")),
    Names(("a:b", "a", "b")),
    Names(("y/z", "z", "x/y/z"), ("x", "x/y")),
    Names(("y:z", "z", "x:y:z"), ("x", "x:y")),
    Names(("k" * 128, "k" * 128 + "a", "k" * 127 + "b")),
)
"""Keys of engines that take any text: folded, stripped, normalised, cut, or made names of files they fall together."""


def families(*, opaque: bool, tenants: bool) -> list[Names]:
    """Families for an engine, each as often as it weighs."""
    return [
        one for one in (*PLAIN, *(OPAQUE if opaque else ())) if tenants or not one.tenants for _ in range(one.weight)
    ]
