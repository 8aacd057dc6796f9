"""Requests as adapters get them and results as the judge gets them.

The worker and the in-process engine use the same two functions, so that isolation never changes a verdict.
"""

from __future__ import annotations

import math
import reprlib
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..core.model import SCALARS, Json
from ..core.tensors import Array, Recipe, TensorError, dtype_name, expand, from_json, is_tensor

LARGEST_INTEGER = 2**53 - 1
"""Integers beyond it do not survive the JSON of every language."""
DEPTH = 64
"""Nesting that a request or a result may have."""
DETAIL_CHARACTERS = 4000
"""What is kept of a detail."""


class UnfitValue(ValueError):
    """A value that no reply can carry; the message starts with the JSON pointer."""


class RecipeCache:
    """Expanded recipes, the least recently used dropped first: cases share their large inputs."""

    def __init__(self, limit_bytes: int = 768 << 20) -> None:
        self._arrays: OrderedDict[Recipe, Array] = OrderedDict()
        self._limit = limit_bytes
        self._held = 0

    def expand(self, recipe: Recipe) -> Array:
        """The read-only array of a recipe."""
        array = self._arrays.get(recipe)
        if array is not None:
            self._arrays.move_to_end(recipe)
            return array
        array = expand.__wrapped__(recipe)
        self._arrays[recipe] = array
        self._held += array.nbytes
        while self._held > self._limit and len(self._arrays) > 1:
            self._held -= self._arrays.popitem(last=False)[1].nbytes
        return array


def expanded(value: Json, recipes: RecipeCache) -> Json:
    """A copy that the adapter may change, recipes expanded; arrays are shared and read-only."""
    kind = type(value)
    if kind in SCALARS:
        return value
    if kind is dict:
        return {key: item if type(item) in SCALARS else expanded(item, recipes) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [item if type(item) in SCALARS else expanded(item, recipes) for item in value]
    if isinstance(value, Recipe):
        return recipes.expand(value)
    if isinstance(value, Mapping):
        return {key: expanded(item, recipes) for key, item in value.items()}
    if isinstance(value, np.ndarray) and value.flags.writeable:
        value = value.view()
        value.flags.writeable = False
    return value


def normalised(value: Any, at: str = "", depth: int = 0) -> Json:
    """A result as it would come off the wire: plain JSON, tensors as read-only arrays of their own.

    Raises :class:`UnfitValue` for anything that a program in another language could not have sent.
    """
    if isinstance(value, np.ndarray):
        return _own_array(value, at)
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        if not is_text(value):
            raise UnfitValue(f"{at or '/'}: a string with half a surrogate pair")
        return str(value)
    if isinstance(value, int):
        if abs(value) > LARGEST_INTEGER:
            raise UnfitValue(f"{at or '/'}: an integer beyond 2^53 - 1")
        return int(value)
    if isinstance(value, float):
        if math.isfinite(value):
            return float(value)
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if depth >= DEPTH:
        raise UnfitValue(f"{at}: nested deeper than {DEPTH}")
    if isinstance(value, Mapping):
        if is_tensor(value):
            return _literal(value, at)
        for key in value:
            if not isinstance(key, str) or not is_text(key):
                raise UnfitValue(f"{at or '/'}: the key {reprlib.repr(key)} is not a text")
        return {
            str(key): item if is_plain(item) else normalised(item, f"{at}/{key}", depth + 1)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [
            item if is_plain(item) else normalised(item, f"{at}/{index}", depth + 1) for index, item in enumerate(value)
        ]
    kind = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
    raise UnfitValue(f"{at or '/'}: a value of type {kind}; results hold JSON values and NumPy arrays")


def is_plain(value: Any) -> bool:
    """Whether a value can stand in any message as it is, seen by its type first: most of a message can."""
    if type(value) is str:
        return is_text(value)
    if type(value) is int:
        return -LARGEST_INTEGER <= value <= LARGEST_INTEGER
    return value is None or type(value) is bool or (type(value) is float and math.isfinite(value))


def is_text(value: str) -> bool:
    """Whether a string can be written as UTF-8."""
    return value.isascii() or not any("\ud800" <= character <= "\udfff" for character in value)


def shortened(detail: str) -> str:
    """A detail that every report can hold."""
    text = detail if len(detail) <= DETAIL_CHARACTERS else f"{detail[:DETAIL_CHARACTERS]} ..."
    return text if is_text(text) else text.encode("utf-8", "replace").decode()


def _own_array(value: Array, at: str) -> Array:
    try:
        dtype_name(value)
    except TensorError as error:
        raise UnfitValue(f"{at or '/'}: {error}") from None
    array = np.array(value, order="C", subok=False)
    if array.dtype.byteorder == ">":
        array = array.astype(array.dtype.newbyteorder("<"))
    array.flags.writeable = False
    return array


def _literal(value: Mapping[str, Any], at: str) -> Array:
    try:
        tensor = from_json(value)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UnfitValue(f"{at or '/'}: not a tensor: {error}") from None
    if isinstance(tensor, Recipe):
        raise UnfitValue(f"{at or '/'}: a recipe; only requests carry recipes")
    return _own_array(tensor, at)
