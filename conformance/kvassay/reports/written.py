"""Requests as the case writes them: base documents by name with what was changed, all else as it was sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .shorten import shorten

Pointers = frozenset[str]


def resealed(written: Mapping[str, Any]) -> Pointers:
    """Pointers to the digests that the author's tool derived anew after the change of a mutation."""
    return frozenset(written.get("mutation", {}).get("resealed", ()))


def as_written(written: Any, sent: Any, derived: Pointers = frozenset()) -> Any:
    """What was sent, shortened, but each base document as ``$base``, ``patch`` and number ``resealed``.

    ``derived`` are the pointers of :func:`resealed`: what was written there follows from the change, and is counted.
    """
    if isinstance(written, Mapping):
        if "$base" in written:
            return _base(written, derived)
        if isinstance(sent, Mapping) and written.keys() == sent.keys():
            return {key: as_written(written[key], sent[key], derived) for key in sent}
    if isinstance(written, list) and isinstance(sent, list) and len(written) == len(sent):
        return [as_written(*pair, derived) for pair in zip(written, sent, strict=True)]
    return shorten(sent)


def _base(written: Mapping[str, Any], derived: Pointers) -> dict[str, Any]:
    patch = list(written.get("patch", ()))
    changes = [one for one in patch if one["op"] != "replace" or one["path"] not in derived]
    short: dict[str, Any] = {"$base": written["$base"]}
    if changes:
        short["patch"] = shorten(changes)
    if len(changes) < len(patch):
        short["resealed"] = len(patch) - len(changes)
    return short
