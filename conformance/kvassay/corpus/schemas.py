"""Validation: a fast validator answers yes or no, the slow one is asked only to write the error."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import jsonschema_rs
import numpy as np

from ..core.model import SCALARS
from ..core.tensors import dtype_name
from .data import read_json, root
from .errors import CorpusError, did_you_mean

PREFIX = "urn:kvassay:"


@functools.cache
def schemas() -> dict[str, Any]:
    """Every schema by its ``$id``."""
    found: dict[str, Any] = {}
    for path in sorted((root() / "schemas").rglob("*.json")):
        document = read_json(path)
        if isinstance(document, dict) and "$schema" in document:
            found[document["$id"]] = document
    return found


@functools.cache
def _fast_registry() -> Any:
    return jsonschema_rs.Registry(list(schemas().items()))


@functools.cache
def _fast(uri: str) -> Any:
    known(uri)
    return jsonschema_rs.Draft202012Validator({"$ref": uri}, registry=_fast_registry())


@functools.cache
def _slow(uri: str) -> Any:
    import jsonschema
    import referencing
    from referencing.jsonschema import DRAFT202012

    resources = [(key, DRAFT202012.create_resource(value)) for key, value in schemas().items()]
    registry: Any = referencing.Registry().with_resources(resources)
    return jsonschema.Draft202012Validator({"$ref": uri}, registry=registry)


def known(uri: str) -> None:
    """Raise :class:`CorpusError` unless a schema of this URI, less its fragment, exists."""
    if uri.partition("#")[0] not in schemas():
        names = sorted(one.removeprefix(PREFIX) for one in schemas())
        name = uri.partition("#")[0].removeprefix(PREFIX)
        raise CorpusError(f"no schema {name!r}{did_you_mean(name, names)}")


def problem(value: Any, uri: str) -> tuple[str, str] | None:
    """What a schema has against a value: the JSON pointer and the reason; ``None`` when it is valid."""
    if _fast(uri).is_valid(value):
        return None
    errors = list(_slow(uri).iter_errors(value))
    if not errors:  # the validators disagree; the strict one wins and writes the error itself
        error = next(_fast(uri).iter_errors(value))
        return _pointer(error.instance_path), str(error.message)
    deepest = max(map(_deepest, errors), key=lambda error: len(error.absolute_path))
    return _pointer(deepest.absolute_path), _short(deepest.message)


def validate(value: Any, uri: str, *, file: str = "") -> None:
    """Raise :class:`CorpusError` with pointer and reason unless the value meets the schema."""
    found = problem(value, uri)
    if found is not None:
        raise CorpusError(found[1], file=file, pointer=found[0] or "/")


def _deepest(error: Any) -> Any:
    """The most specific error below an ``anyOf`` or ``oneOf``: of the branches whose own constants fit, else of all."""
    while error.context:
        branches: dict[Any, list[Any]] = {}
        for inner in error.context:
            branches.setdefault(inner.relative_schema_path[0], []).append(inner)
        fitting = [rows for rows in branches.values() if not any(map(_foreign, rows))]
        error = max(
            (row for rows in fitting or branches.values() for row in rows),
            key=lambda inner: (len(inner.absolute_path), inner.validator not in ("const", "type")),
        )
    return error


def _foreign(error: Any) -> bool:
    """Whether a member that tells the branches apart has another branch's value."""
    return error.validator == "const" and len(error.relative_path) == 1


def _pointer(path: Any) -> str:
    return "".join(f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in path)


def _short(message: str, limit: int = 240) -> str:
    """A message without the middle of a long value: what is wrong with it stands at the end."""
    half = limit // 2
    return message if len(message) <= limit else f"{message[:half]} ... {message[-half:]}"


def outline(value: Any) -> Any:
    """A reply with each tensor reduced to dtype and shape, which is all that schemas judge."""
    if type(value) in SCALARS:
        return value
    if isinstance(value, np.ndarray):
        return {"dtype": dtype_name(value), "shape": list(value.shape), "data": []}
    if isinstance(value, Mapping):
        return {key: outline(item) for key, item in value.items()}
    if isinstance(value, list):
        return [outline(item) for item in value]
    return value
