"""The report as a JSON file."""

from __future__ import annotations

import json

from .document import Document


def render(document: Document) -> str:
    """JSON text, one line per member of the outer levels so that committed reports can be compared."""
    return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
