"""The report as a JSON file."""

from __future__ import annotations

import json
import textwrap

from .document import Document


def render(document: Document) -> str:
    """JSON text that is small and can be compared: one line per case, more where there are calls to show."""
    head = {name: value for name, value in document.items() if name != "results"}
    rows = ",\n".join(textwrap.indent(_row(result), "  ") for result in document["results"])
    return f'{_dump(head, 1)[:-2]},\n "results": [\n{rows}\n ]\n}}\n'


def _row(result: Document) -> str:
    return _dump(result, 1 if result["exchanges"] else None)


def _dump(value: Document, indent: int | None) -> str:
    return json.dumps(value, indent=indent, ensure_ascii=False, allow_nan=False)
