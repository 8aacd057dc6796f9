"""Tensors in cases and replies: literal values, base64 bytes, and seeded recipes (``hash32-v1``).

In JSON a tensor is ``{"dtype", "shape", "data"}`` with nested lists or base64 little-endian bytes, or
``{"dtype", "shape", "recipe"}``. In memory it is a NumPy array or a :class:`Recipe`. The judge never expands
a recipe; adapters do.
"""

from __future__ import annotations

import base64
import functools
import math
import reprlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from .model import SCALARS

Array = NDArray[Any]

DTYPES: dict[str, np.dtype[Any]] = {
    "float64": np.dtype("<f8"),
    "float32": np.dtype("<f4"),
    "float16": np.dtype("<f2"),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "int64": np.dtype("<i8"),
    "int32": np.dtype("<i4"),
    "uint8": np.dtype("u1"),
    "bool": np.dtype("?"),
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}
FLOATS = ("float64", "float32", "float16", "bfloat16")
UNIT_ROUNDOFF = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
RECIPE_BITS = {"float32": 24, "float16": 11, "bfloat16": 8}
NON_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
BLOCK = 1 << 16


class TensorError(ValueError):
    """A tensor that cannot be read: the message names what is wrong with it."""


@dataclass(frozen=True)
class Recipe:
    """A tensor that both sides compute: ``hash32-v1`` values with single elements or rows set afterwards.

    ``settings`` holds ``(row, head, channel, value)`` where ``None`` selects all; later entries win.
    Axes before the last three count as one axis of rows, so that pages are rows too.
    ``start`` is the row at which this tensor begins in the sequence that the seed names.
    """

    dtype: str
    shape: tuple[int, ...]
    seed: int
    start: int = 0
    settings: tuple[tuple[int | None, int | None, int | None, float], ...] = ()


def dtype_name(array: Array) -> str:
    """The suite's name of an array's dtype; raises :class:`TensorError` for one that has none."""
    try:
        return NAMES[array.dtype.newbyteorder("<") if array.dtype.kind in "fi" else array.dtype]
    except KeyError:
        raise TensorError(f"dtype {array.dtype} has no name in the protocol") from None


def is_tensor(value: Any) -> bool:
    """Whether a JSON value has the form of a tensor; a record that only names a dtype and a shape has not."""
    if not isinstance(value, Mapping) or "dtype" not in value or "shape" not in value:
        return False
    return "data" in value or "recipe" in value


def from_json(value: Mapping[str, Any]) -> Array | Recipe:
    """Read one tensor object of a case, a request or a reply (frames are the wire's business)."""
    name, shape = value["dtype"], tuple(value["shape"])
    if name not in DTYPES:
        raise TensorError(f"unknown dtype {name!r}")
    if "recipe" in value:
        recipe = value["recipe"]
        if recipe["name"] != "hash32-v1":
            raise TensorError(f"unknown recipe {recipe['name']!r}")
        settings = tuple(tuple(entry) for entry in recipe.get("set", ()))
        return Recipe(name, shape, recipe["seed"], recipe.get("start", 0), settings)
    data = value["data"]
    if isinstance(data, str) and not (shape == () and data in NON_FINITE):
        return from_bytes(name, shape, base64.b64decode(data, validate=True))
    return _from_lists(name, shape, data)


def from_bytes(name: str, shape: tuple[int, ...], raw: bytes | memoryview) -> Array:
    """An array over little-endian C-order bytes; raises :class:`TensorError` unless the lengths agree."""
    dtype = DTYPES[name]
    if len(raw) != math.prod(shape) * dtype.itemsize:
        raise TensorError(f"{len(raw)} bytes for {name} of shape {list(shape)}")
    return np.frombuffer(raw, dtype=dtype).reshape(shape)


def _from_lists(name: str, shape: tuple[int, ...], data: Any) -> Array:
    flat: list[Any] = []
    is_number = _number_of(name)

    def walk(node: Any, depth: int) -> None:
        if depth == len(shape):
            number = NON_FINITE.get(node, node) if isinstance(node, str) else node
            if not is_number(number):
                raise TensorError(f"{reprlib.repr(node)} is not a number of {name}")
            flat.append(number)
            return
        if not isinstance(node, list) or len(node) != shape[depth]:
            raise TensorError(f"data do not have the shape {list(shape)}")
        for item in node:
            walk(item, depth + 1)

    walk(data, 0)
    try:
        wide = np.array(flat, dtype=np.float64 if name in FLOATS else DTYPES[name])
    except OverflowError:
        raise TensorError(f"a value does not fit {name}") from None
    with np.errstate(over="ignore"):
        array = wide.astype(DTYPES[name])
    if name in FLOATS and np.count_nonzero(np.isinf(array)) != np.count_nonzero(np.isinf(wide)):
        raise TensorError(f"a value does not fit {name}")
    return array.reshape(shape)


def _number_of(name: str) -> Callable[[Any], bool]:
    if name in FLOATS:
        return lambda x: isinstance(x, int | float) and not isinstance(x, bool)
    if name == "bool":
        return lambda x: isinstance(x, bool)
    limits = np.iinfo(DTYPES[name])
    low, high = int(limits.min), int(limits.max)
    return lambda x: isinstance(x, int) and not isinstance(x, bool) and low <= x <= high


def to_json(array: Array, *, lists_up_to: int = 64) -> dict[str, Any]:
    """One tensor object: nested lists up to ``lists_up_to`` elements, base64 beyond."""
    head: dict[str, Any] = {"dtype": dtype_name(array), "shape": list(array.shape)}
    if array.size > lists_up_to:
        return {**head, "data": base64.b64encode(to_bytes(array)).decode("ascii")}
    plain = array.astype(np.float64) if head["dtype"] in FLOATS else array
    return {**head, "data": _spell(plain.tolist())}


def to_bytes(array: Array) -> bytes:
    """Little-endian C-order bytes of an array."""
    return np.ascontiguousarray(array, dtype=DTYPES[dtype_name(array)]).tobytes()


def _spell(value: Any) -> Any:
    if isinstance(value, list):
        return [_spell(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def largest(value: Any) -> int:
    """Elements of the largest tensor in a value, as an array, a recipe or their JSON."""
    if is_tensor(value):
        return math.prod(value["shape"])
    if isinstance(value, np.ndarray | Recipe):
        return math.prod(value.shape)
    members = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return max(map(largest, members), default=0)


def _mix(x: int) -> int:
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        x = ((x ^ x >> shift) * factor) & 0xFFFFFFFF
    return x ^ x >> 16


@functools.lru_cache(maxsize=16)
def expand(recipe: Recipe) -> Array:
    """The read-only array that a recipe names (``spec/recipes.md`` defines it to the byte)."""
    bits = RECIPE_BITS.get(recipe.dtype)
    if bits is None:
        raise TensorError(f"hash32-v1 has no values in {recipe.dtype}")
    count = math.prod(recipe.shape)
    first = recipe.start * math.prod(recipe.shape[1:][-2:])
    key = np.uint32(_mix(recipe.seed))
    out = np.empty(count, dtype=DTYPES[recipe.dtype])
    width = min(BLOCK, count)
    ramp, block, scratch = np.arange(width, dtype=np.uint32), np.empty(width, np.uint32), np.empty(width, np.uint32)
    for begin in range(0, count, BLOCK):
        end = min(begin + BLOCK, count)
        x, shifted = block[: end - begin], scratch[: end - begin]
        np.add(ramp[: end - begin], np.uint32((first + begin) & 0xFFFFFFFF), out=x)
        np.right_shift(x, 16, out=shifted)
        x ^= shifted
        x *= np.uint32(0x7FEB352D)
        x += key
        np.right_shift(x, 15, out=shifted)
        x ^= shifted
        x *= np.uint32(0x846CA68B)
        np.right_shift(x, 16, out=shifted)
        x ^= shifted
        x >>= np.uint32(32 - bits)
        grid = x.view(np.int32)
        grid *= np.int32(2)
        grid += np.int32(1 - (1 << bits))
        # At most 24 significant bits: exact in float32, and by the choice of bits in the dtype itself.
        np.multiply(grid, np.float32(2.0**-bits), out=out[begin:end], dtype=np.float32, casting="unsafe")
    array = out.reshape(recipe.shape)
    rows = array.reshape(-1, *array.shape[-2:]) if array.ndim > 3 else array
    for *where, number in recipe.settings:
        rows[tuple(slice(None) if part is None else part for part in where[-rows.ndim :])] = number
    array.flags.writeable = False
    return array


def read(value: Any) -> Any:
    """Replace every tensor object in a JSON value by a read-only array or a :class:`Recipe`."""
    if is_tensor(value):
        tensor = from_json(value)
        if isinstance(tensor, np.ndarray):
            tensor.flags.writeable = False
        return tensor
    if isinstance(value, Mapping):
        return {key: item if type(item) in SCALARS else read(item) for key, item in value.items()}
    if isinstance(value, list):
        return [item if type(item) in SCALARS else read(item) for item in value]
    return value


def write(value: Any, *, lists_up_to: int = 64) -> Any:
    """Replace every array and :class:`Recipe` in a value by its JSON form."""
    if isinstance(value, np.ndarray):
        return to_json(value, lists_up_to=lists_up_to)
    if isinstance(value, Recipe):
        recipe: dict[str, Any] = {"name": "hash32-v1", "seed": value.seed, "start": value.start}
        if value.settings:
            recipe["set"] = [list(entry) for entry in value.settings]
        return {"dtype": value.dtype, "shape": list(value.shape), "recipe": recipe}
    if isinstance(value, Mapping):
        return {key: write(item, lists_up_to=lists_up_to) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [write(item, lists_up_to=lists_up_to) for item in value]
    return _spell(value.item() if isinstance(value, np.generic) else value)
