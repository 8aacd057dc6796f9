"""The protocol's bytes: one JSON object a line, and the raw frames of its tensors after it.

Both ends use this module. What comes in is untrusted, so everything that can be wrong with it is found here and
raised as :class:`WireError`; ``docs/protocol.md`` says the same to people who write engines in other languages.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from ..core.model import Json
from ..core.tensors import DTYPES, Array, Recipe, dtype_name, from_bytes, from_json, is_tensor, to_bytes, write
from .values import DEPTH, LARGEST_INTEGER, RecipeCache, is_plain, is_text

PROTOCOL = 1
EDITION = "2026.1"
LINE_BYTES = 16 << 20
"""Longest line of a reply."""
FRAME_BYTES = 64 << 20
"""Most tensor bytes of one message, in frames or not."""
FRAMES = 4096
AXES = 8
RECIPES = ("hash32-v1",)


class WireError(ValueError):
    """A message that breaks the protocol; the text says how."""


class TooLarge(ValueError):
    """A request whose tensors exceed :data:`FRAME_BYTES`."""


def encode(body: Mapping[str, Json], *, frames: bool, recipes: RecipeCache | None = None) -> list[bytes]:
    """A message as a line and its frames.

    ``frames`` says whether the other end reads them; without it, tensors go as lists or base64. A recipe goes as a
    recipe, or expanded when ``recipes`` is given because the other end has none.
    """
    if recipes is not None and _expanded_bytes(body) > FRAME_BYTES:
        raise TooLarge(
            f"the request holds more than {FRAME_BYTES >> 20} MiB of tensors and the engine takes no recipes"
        )
    blobs: list[bytes] = []

    def packed(value: Json) -> Json:
        """What JSON has no form for, which is little of a message."""
        if isinstance(value, Recipe):
            if recipes is None:
                return write(value)
            value = recipes.expand(value)
        if isinstance(value, np.ndarray):
            if not frames:
                return write(value)
            blobs.append(to_bytes(value))
            return {"dtype": dtype_name(value), "shape": list(value.shape), "frame": len(blobs) - 1}
        if isinstance(value, Mapping):
            return dict(value)
        raise TypeError(f"a message holds no {type(value).__name__}")

    line = json.dumps(body, separators=(",", ":"), allow_nan=False, default=packed)
    if blobs:
        line = f'{line[:-1]},"frames":{[len(blob) for blob in blobs]}}}'
    return [line.encode() + b"\n", *blobs]


def _expanded_bytes(value: Json) -> int:
    if isinstance(value, np.ndarray):
        return value.nbytes
    if isinstance(value, Recipe):
        return math.prod(value.shape) * DTYPES[value.dtype].itemsize
    if isinstance(value, Mapping):
        return sum(_expanded_bytes(item) for item in value.values())
    if isinstance(value, list | tuple):
        return sum(_expanded_bytes(item) for item in value)
    return 0


def parse_line(line: bytes | bytearray) -> dict[str, Any]:
    """The JSON object of one line."""
    try:
        body = json.loads(line.decode("utf-8"), parse_constant=_no_constant, object_pairs_hook=_no_twins)
    except RecursionError:
        raise WireError("brackets nested too deeply") from None
    except UnicodeDecodeError as error:
        raise WireError(f"not UTF-8 at byte {error.start}") from None
    except WireError:
        raise
    except ValueError as error:
        raise WireError(f"not a JSON line ({error}): {excerpt(line)}") from None
    if not isinstance(body, dict):
        raise WireError(f"a JSON {_KINDS[type(body)]} where an object belongs: {excerpt(line)}")
    return body


_KINDS = {list: "array", str: "string", int: "number", float: "number", bool: "boolean", type(None): "null"}


def excerpt(line: bytes | bytearray, width: int = 80) -> str:
    """The start of a line, printable."""
    text = bytes(line[:width]).decode("utf-8", "backslashreplace").strip()
    return ascii(text + ("..." if len(line) > width else ""))


def _no_constant(name: str) -> NoReturn:
    raise WireError(f'{name} is not JSON; write it as the string "{name}"')


def _no_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise WireError("an object names one member twice")
    return members


def frame_lengths(body: Mapping[str, Any]) -> list[int]:
    """The lengths of the frames after the line, checked before a byte of them is read."""
    lengths = body.get("frames", [])
    if not isinstance(lengths, list) or len(lengths) > FRAMES:
        raise WireError(f"frames is not a list of at most {FRAMES} lengths")
    for length in lengths:
        if isinstance(length, bool) or not isinstance(length, int) or length < 0:
            raise WireError(f"a frame of length {str(length)[:40]}")
    if sum(lengths) > FRAME_BYTES:
        raise WireError(f"frames of more than {FRAME_BYTES >> 20} MiB together")
    return lengths


def unpack(value: Any, frames: Sequence[bytes] = (), *, recipes: bool = False) -> Json:
    """A message's value with its tensors as read-only arrays; recipes are legal in requests only."""
    used: set[int] = set()
    result = _unpacked(value, frames, used, recipes, "", 0)
    if len(used) != len(frames):
        raise WireError(f"{len(frames)} frames came and {len(used)} belong to tensors")
    return result


def _unpacked(value: Any, frames: Sequence[bytes], used: set[int], recipes: bool, at: str, depth: int) -> Json:
    if is_tensor(value) or (isinstance(value, dict) and {"frame", "dtype", "shape"} <= value.keys()):
        try:
            return _tensor(value, frames, used, recipes)
        except (ValueError, KeyError, TypeError) as error:
            raise WireError(f"{at or '/'}: {error}") from None
    if depth >= DEPTH and isinstance(value, dict | list):
        raise WireError(f"nested deeper than {DEPTH}")
    if isinstance(value, dict):
        if not all(map(is_text, value)):
            raise WireError(f"{at or '/'}: a key with half a surrogate pair")
        return {
            key: item if is_plain(item) else _unpacked(item, frames, used, recipes, f"{at}/{key}", depth + 1)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [
            item if is_plain(item) else _unpacked(item, frames, used, recipes, f"{at}/{index}", depth + 1)
            for index, item in enumerate(value)
        ]
    if isinstance(value, str) and not is_text(value):
        raise WireError(f"{at}: a string with half a surrogate pair")
    if isinstance(value, int) and abs(value) > LARGEST_INTEGER:
        raise WireError(f"{at}: an integer beyond 2^53 - 1")
    if isinstance(value, float) and not math.isfinite(value):
        raise WireError(f"{at}: a number beyond float64")
    return value


def _tensor(value: dict[str, Any], frames: Sequence[bytes], used: set[int], recipes: bool) -> Array | Recipe:
    form = value.keys() - {"dtype", "shape"}
    if form not in ({"data"}, {"frame"}, {"recipe"}):
        raise WireError("a tensor has dtype, shape and one of data, frame")
    name, shape = value["dtype"], value["shape"]
    if not isinstance(name, str) or name not in DTYPES:
        raise WireError(f"unknown dtype {str(name)[:40]!r}")
    if not isinstance(shape, list) or len(shape) > AXES or not all(_is_extent(extent) for extent in shape):
        raise WireError(f"a shape is a list of at most {AXES} extents from 0 to 2^30")
    if "recipe" in form:
        if not recipes:
            raise WireError("a recipe; only requests carry recipes")
        return from_json(value)
    if "data" in form:
        tensor = from_json(value)
        assert isinstance(tensor, np.ndarray)
    else:
        index = value["frame"]
        if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < len(frames):
            raise WireError(f"frame {str(index)[:40]} of {len(frames)}")
        if index in used:
            raise WireError(f"two tensors in frame {index}")
        used.add(index)
        tensor = from_bytes(name, tuple(shape), frames[index])
    if name == "bool" and tensor.size and tensor.view(np.uint8).max() > 1:
        raise WireError("a bool that is neither 0 nor 1")
    tensor.flags.writeable = False
    return tensor


def _is_extent(extent: Any) -> bool:
    return isinstance(extent, int) and not isinstance(extent, bool) and 0 <= extent <= 1 << 30
