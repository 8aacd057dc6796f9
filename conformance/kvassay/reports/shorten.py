"""Values as a report can hold them: bounded, plain JSON, large tensors as shape, first elements and range."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..core.tensors import FLOATS, NAMES, Array, Recipe

WHOLE = 64
"""A tensor of at most this many elements stands in the report whole."""
FIRST = 8
ITEMS = 32
CHARACTERS = 400
DEPTH = 12
NODES = 2000
SETTINGS = 4
FOLDERS = re.compile(
    r'(?<=File ")/[^"\n]*?/(?:site-packages/|lib/python[\d.]+/(?!site-packages)|(?=kvassay(?:_reference)?/))'
)


def shorten(value: Any) -> Any:
    """The value as bounded, plain JSON. Non-finite numbers are the strings of the wire protocol."""
    return _Shortener().visit(value, 0)


def number(value: Any) -> Any:
    """One element of an array as JSON."""
    plain = value.item() if isinstance(value, np.generic) else value
    if not isinstance(plain, bool | int | float):
        plain = float(plain)
    if isinstance(plain, float) and not math.isfinite(plain):
        return "NaN" if math.isnan(plain) else "Infinity" if plain > 0 else "-Infinity"
    return plain


def text(value: str, limit: int = CHARACTERS) -> str:
    """A string from outside without control characters (a terminal obeys some of them) and of bounded length."""
    clean = "".join(char if char.isprintable() or char in "\n\t" else "\ufffd" for char in value[: limit + 1])
    return clean if len(value) <= limit else f"{clean[:limit]}… ({len(value)} characters)"


def trace(value: str) -> str:
    """Paths in tracebacks from the package on: where a machine keeps its packages is nobody's business."""
    return FOLDERS.sub("", value)


class _Shortener:
    def __init__(self) -> None:
        self.nodes = 0

    def visit(self, value: Any, depth: int) -> Any:
        self.nodes += 1
        if isinstance(value, np.ndarray):
            return _tensor(value)
        if isinstance(value, Recipe):
            return _recipe(value)
        if isinstance(value, str):
            return text(value)
        if isinstance(value, bool | int | None):
            return value
        if isinstance(value, float | np.generic):
            return number(value)
        if self.nodes > NODES or depth > DEPTH:
            return "…"
        if isinstance(value, Mapping):
            kept = list(value.items())[:ITEMS]
            short = {text(str(key), 80): self.visit(item, depth + 1) for key, item in kept}
            return short if len(value) <= ITEMS else short | {"…": f"{len(value) - ITEMS} more members"}
        if isinstance(value, list | tuple | set | frozenset):
            items = list(value)
            short_items = [self.visit(item, depth + 1) for item in items[:ITEMS]]
            return short_items if len(items) <= ITEMS else [*short_items, f"… {len(items) - ITEMS} more"]
        if isinstance(value, bytes | bytearray | memoryview):
            return f"{len(value)} bytes"
        return text(repr(value))


def _tensor(array: Array) -> dict[str, Any]:
    head: dict[str, Any] = {"dtype": NAMES.get(array.dtype, str(array.dtype)), "shape": list(array.shape)}
    is_float = head["dtype"] in FLOATS
    if not is_float and array.dtype.kind not in "biuf":
        return {**head, "first": []}
    plain = array.astype(np.float64) if is_float else array
    if array.size <= WHOLE:
        return {**head, "data": _nested(plain.tolist())}
    short = {**head, "first": [number(item) for item in plain.reshape(-1)[:FIRST]]}
    if is_float:
        finite = np.isfinite(plain)
        short["nan"] = int(np.isnan(plain).sum())
        short["infinite"] = int(plain.size - finite.sum()) - short["nan"]
        plain = plain[finite]
    if plain.size:
        short |= {"min": number(plain.min()), "max": number(plain.max())}
    return short


def _nested(value: Any) -> Any:
    return [_nested(item) for item in value] if isinstance(value, list) else number(value)


def _recipe(recipe: Recipe) -> dict[str, Any]:
    inner: dict[str, Any] = {"name": "hash32-v1", "seed": recipe.seed, "start": recipe.start}
    if recipe.settings:
        inner["set"] = [list(entry) for entry in recipe.settings[:SETTINGS]]
        inner["set_count"] = len(recipe.settings)
    return {"dtype": recipe.dtype, "shape": list(recipe.shape), "recipe": inner}
