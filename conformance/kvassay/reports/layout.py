"""Shortened values as lines of text, each a row of pieces of which the differing ones are marked."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

Path = tuple[str | int, ...]
Piece = tuple[str, bool]
Line = list[Piece]

TENSOR = frozenset({"dtype", "shape", "data", "first", "recipe", "nan", "infinite", "min", "max"})
FORMS = frozenset({"data", "first", "recipe"})

LINES = 40
WIDTH = 96


def lines(value: Any, marks: frozenset[Path] = frozenset(), limit: int = LINES) -> list[Line]:
    """A value that :func:`~.shorten.shorten` returned, as lines; ``marks`` are the paths of elements that differ."""
    found = list(_value(value, (), marks, ""))
    if len(found) > limit:
        found = [*found[: limit - 1], [(f"… {len(found) - limit + 1} more lines", False)]]
    return found


def plain(line: Line) -> str:
    """A line without its marks."""
    return "".join(piece for piece, _ in line)


def scalar(value: Any) -> str:
    """One JSON value on one line; text that carries a number or a message stands without quotes."""
    if isinstance(value, str):
        return " ".join(value.split("\n"))
    if isinstance(value, float):
        return f"{value:.9g}"
    return json.dumps(value, ensure_ascii=False)


def is_tensor(value: Any) -> bool:
    """Whether a shortened value stands for a tensor."""
    return isinstance(value, Mapping) and {"dtype", "shape"} < value.keys() <= TENSOR and len(FORMS & value.keys()) == 1


def is_base(value: Any) -> bool:
    """Whether a value stands for a base document and its changes."""
    return isinstance(value, Mapping) and "$base" in value


def _value(value: Any, path: Path, marks: frozenset[Path], indent: str) -> Iterator[Line]:
    if is_tensor(value):
        yield from _tensor(value, path, marks, indent)
    elif is_base(value):
        yield from _base(value, indent)
    elif isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _member(f"{key}:", item, (*path, key), marks, indent)
    elif isinstance(value, list) and value and not _is_flat(value):
        for index, item in enumerate(value):
            yield from _member("-", item, (*path, index), marks, indent)
    else:
        yield [(indent, False), *_inline(value, path, marks)]


def _member(head: str, item: Any, path: Path, marks: frozenset[Path], indent: str) -> Iterator[Line]:
    if is_tensor(item) or is_base(item):
        inner = list(_value(item, path, marks, f"{indent}  "))
        yield [(f"{indent}{head} ", path in marks), *inner[0][1:]]
        yield from inner[1:]
    elif isinstance(item, Mapping) and item:
        if head == "-":
            inner = list(_value(item, path, marks, f"{indent}  "))
            first = plain(inner[0])[len(indent) + 2 :]
            yield [(f"{indent}- {first}", any(mark for _, mark in inner[0]))]
            yield from inner[1:]
        else:
            yield [(f"{indent}{head}", path in marks)]
            yield from _value(item, path, marks, f"{indent}  ")
    elif isinstance(item, list) and item and not _is_flat(item):
        yield [(f"{indent}{head}", path in marks)]
        yield from _value(item, path, marks, f"{indent}  ")
    else:
        yield [(f"{indent}{head} ", False), *_inline(item, path, marks)]


def _base(value: Mapping[str, Any], indent: str) -> Iterator[Line]:
    changes, resealed = value.get("patch", ()), value.get("resealed", 0)
    yield [(indent, False), (f"{value['$base']}{' with' if changes else ''}", False)]
    for one in changes:
        new = f": {inline(one['value'])}" if "value" in one else ""
        yield [(f"{indent}  {one['op']} {one['path']}{new}", False)]
    if resealed:
        yield [(f"{indent}  and {resealed} digest{'s' * (resealed != 1)} derived anew", False)]


def inline(value: Any, width: int = WIDTH) -> str:
    """A value on one line: lists and members bracketed, what does not fit cut in the middle of lists and digests."""
    if not isinstance(value, Mapping | list):
        return _bracketed(value, 0, width)
    for items, characters in ((64, 80), (6, 64), (4, 20), (3, 12)):
        line = _bracketed(value, items, characters)
        if len(line) <= width:
            return line
    return f"{line[: width - 1]}…"


def _bracketed(value: Any, items: int, characters: int) -> str:
    if is_tensor(value):
        return plain(next(_tensor(value, (), frozenset(), ""))).rstrip()
    if isinstance(value, Mapping):
        members = [f"{key}: {_bracketed(item, items, characters)}" for key, item in value.items()]
        return f"{{{', '.join(_cut(members, items * 2))}}}"
    if isinstance(value, list):
        return f"[{', '.join(_cut([_bracketed(item, items, characters) for item in value], items))}]"
    line = scalar(value)
    return line if len(line) <= characters else f"{line[: characters - 1]}…"


def _cut(pieces: list[str], items: int) -> list[str]:
    """The first pieces and the last one."""
    return pieces if len(pieces) <= items else [*pieces[: items - 1], "…", pieces[-1]]


def _is_flat(value: Sequence[Any]) -> bool:
    return (
        all(not isinstance(item, Mapping | list) for item in value) and sum(len(scalar(i)) + 2 for i in value) <= WIDTH
    )


def _inline(value: Any, path: Path, marks: frozenset[Path]) -> Line:
    if isinstance(value, list):
        pieces: Line = [("[", path in marks)]
        for index, item in enumerate(value):
            pieces += [(", ", False)] if index else []
            pieces.append((scalar(item), (*path, index) in marks))
        return [*pieces, ("]", path in marks)]
    return [("{}" if isinstance(value, Mapping) else scalar(value), path in marks)]


def _tensor(tensor: Mapping[str, Any], path: Path, marks: frozenset[Path], indent: str) -> Iterator[Line]:
    shape = tensor["shape"]
    head = f"{tensor['dtype']}{shape}"
    if "recipe" in tensor:
        recipe = tensor["recipe"]
        count = recipe.get("set_count", 0)
        extra = f", {count} element{'s' if count != 1 else ''} set" if count else ""
        yield [
            (indent, False),
            (f"{head} hash32-v1 seed {recipe['seed']} from row {recipe['start']}{extra}", path in marks),
        ]
    elif isinstance(tensor.get("data"), str):
        yield [(indent, False), (f"{head} base64 {_bracketed(tensor['data'], 0, 24)}", path in marks)]
    elif "data" not in tensor:
        yield [(indent, False), (f"{head} {_range(tensor)}", path in marks)]
    elif len(shape) <= 1:
        yield [(indent, False), (f"{head} ", path in marks), *_row(tensor["data"], path, marks)]
    else:
        yield [(indent, False), (head, path in marks)]
        for index in product(*(range(extent) for extent in shape[:-1])):
            row = tensor["data"]
            for part in index:
                row = row[part]
            label = f"{indent}  [{', '.join(map(str, index))}] "
            yield [(label, False), *_row(row, (*path, *index), marks)]


def _row(row: Any, path: Path, marks: frozenset[Path]) -> Line:
    if not isinstance(row, list):
        return [(scalar(row), path in marks)]
    pieces: Line = []
    for index, item in enumerate(row):
        pieces += [(" ", False)] if index else []
        pieces.append((scalar(item), (*path, index) in marks))
    return pieces or [("(empty)", False)]


def _range(tensor: Mapping[str, Any]) -> str:
    parts = [" ".join(scalar(item) for item in tensor["first"]), "…", f"({math.prod(tensor['shape'])} elements"]
    if "min" in tensor:
        parts.append(f"from {scalar(tensor['min'])} to {scalar(tensor['max'])}")
    for name in ("nan", "infinite"):
        if tensor.get(name):
            parts.append(f"{tensor[name]} {'NaN' if name == 'nan' else 'infinite'}")
    return f"{parts[0]} {parts[1]} {', '.join(parts[2:])})"
