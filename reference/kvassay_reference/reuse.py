"""Rows stored under keys that carry every field of their identity.

The key of a row is the hash of the key before it and of what the row adds, as engines chain the hashes of blocks; the
chain begins with the hash of everything that all rows of the record share. A common prefix therefore has common
keys, and nothing else has.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from .canonical import Form, encode_fields

SCOPE: tuple[tuple[str, Form], ...] = (
    ("model", Form.TEXT),
    ("checkpoint_generation", Form.TEXT),
    ("adapter_name", Form.TEXT),
    ("adapter_id", Form.INTEGER),
    ("adapter_version", Form.TEXT),
    ("tenant", Form.TEXT),
    ("namespace_generation", Form.INTEGER),
    ("cache_salt", Form.TEXT),
    ("cache_abi", Form.TEXT),
    ("visibility_policy", Form.TEXT),
    ("position_contract", Form.TEXT),
    ("rope_config", Form.TEXT),
    ("dtype", Form.TEXT),
    ("codec", Form.TEXT),
    ("layout", Form.TEXT),
    ("layer", Form.INTEGER),
    ("kv_head", Form.INTEGER),
    ("shard_rank", Form.INTEGER),
    ("shard_count", Form.INTEGER),
    ("cache_generation", Form.INTEGER),
    ("publication_generation", Form.INTEGER),
    ("first_position", Form.INTEGER),
    ("prompt_embeds_sha256", Form.DIGEST),
)
"""Members of a record that all of its rows share."""


def scope_encoding(record: Mapping[str, Any]) -> bytes:
    """Canonical encoding of what the rows of a record share; a member that is not there is absent, not empty."""
    return encode_fields("scope", ((name, form, record.get(name)) for name, form in SCOPE))


def row_encoding(record: Mapping[str, Any], row: int) -> bytes:
    """Canonical encoding of what one row adds: its token, and the multimodal content that it stands in for."""
    items = [item for item in record.get("multimodal", ()) if 0 <= row - item["position"] < item["length"]]
    fields: list[tuple[str, Form, Any]] = [("token", Form.INTEGER, record["tokens"][row])]
    for item in items:
        fields += [("content", Form.DIGEST, item["sha256"]), ("offset", Form.INTEGER, row - item["position"])]
    return encode_fields("element", fields)


def row_keys(record: Mapping[str, Any]) -> list[bytes]:
    """One key per row, each over all rows before it."""
    key = hashlib.sha256(scope_encoding(record)).digest()
    keys = []
    for row in range(len(record["tokens"])):
        key = hashlib.sha256(key + row_encoding(record, row)).digest()
        keys.append(key)
    return keys


class RowStore:
    """Rows by key. Rows that are there are kept: their key says that they are the same."""

    def __init__(self) -> None:
        self.rows: dict[bytes, Any] = {}

    def put(self, keys: Sequence[bytes], rows: Sequence[Any]) -> bool:
        """Store what is missing; whether anything was."""
        missing = [(key, row) for key, row in zip(keys, rows, strict=True) if key not in self.rows]
        self.rows.update(missing)
        return bool(missing)

    def get(self, keys: Sequence[bytes]) -> list[Any]:
        """The longest prefix that is stored."""
        found = []
        for key in keys:
            if key not in self.rows:
                break
            found.append(self.rows[key])
        return found

    def clear(self) -> None:
        """Drop everything."""
        self.rows.clear()
