"""JSON that people can read and compare by line."""

from __future__ import annotations

import json
from typing import Any

WIDTH = 110


def dump(value: Any) -> str:
    """JSON text: an object or list stands on one line where it fits."""
    return _dump(value, 0) + "\n"


def _dump(value: Any, indent: int) -> str:
    flat = json.dumps(value, ensure_ascii=False, allow_nan=False)
    if len(flat) + indent <= WIDTH or not isinstance(value, dict | list) or not value:
        return flat
    pad = " " * (indent + 1)
    if isinstance(value, list):
        return "[\n" + ",\n".join(pad + _dump(item, indent + 1) for item in value) + "\n" + " " * indent + "]"
    rows = (f"{pad}{json.dumps(key)}: {_dump(item, indent + 1)}" for key, item in value.items())
    return "{\n" + ",\n".join(rows) + "\n" + " " * indent + "}"
