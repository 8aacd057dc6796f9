"""Requests as the case writes them: base documents by name with what was changed, all else as it was sent."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from .shorten import shorten

DIGEST = re.compile("[0-9a-f]{64}")


def as_written(written: Any, sent: Any) -> Any:
    """What was sent, shortened, but each base document as ``$base``, ``patch`` and number ``resealed``."""
    if isinstance(written, Mapping):
        if "$base" in written:
            return _base(written)
        if isinstance(sent, Mapping) and written.keys() == sent.keys():
            return {key: as_written(written[key], sent[key]) for key in sent}
    if isinstance(written, list) and isinstance(sent, list) and len(written) == len(sent):
        return [as_written(*pair) for pair in zip(written, sent, strict=True)]
    return shorten(sent)


def _base(written: Mapping[str, Any]) -> dict[str, Any]:
    """The base's name and its changes; digests that only follow from a change are counted."""
    patch = list(written.get("patch", ()))
    changes = [one for index, one in enumerate(patch) if index == 0 or not _is_digest(one.get("value"))]
    short: dict[str, Any] = {"$base": written["$base"]}
    if changes:
        short["patch"] = shorten(changes)
    if len(changes) < len(patch):
        short["resealed"] = len(patch) - len(changes)
    return short


def _is_digest(value: Any) -> bool:
    return isinstance(value, str) and DIGEST.fullmatch(value) is not None
