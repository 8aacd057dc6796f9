"""The canonical encoding of identities, to the byte.

An identity is a kind and a fixed list of typed fields. Its encoding is a domain tag, the kind, the number of fields,
and then each field as its name and a tagged value; every text and list carries its length, so that no two identities
share an encoding. Integers are big-endian::

    "kvassay/identity/v1" 00 | text(kind) | u32 fields | { text(name) value } ...
    text(s)   u32 bytes, UTF-8 bytes
    value     00                       absent
              01 u64                   integer
              02 text                  text
              03 32 bytes              SHA-256 digest
              04 u32 count, u64 each   list of integers
"""

from __future__ import annotations

import enum
import functools
import hashlib
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

DOMAIN = b"kvassay/identity/v1\x00"


class Form(bytes, enum.Enum):
    """Type of a field: the tag before its bytes."""

    INTEGER = b"\x01"
    TEXT = b"\x02"
    DIGEST = b"\x03"
    INTEGERS = b"\x04"


def _fields(**forms: Form) -> tuple[tuple[str, Form], ...]:
    return tuple(forms.items())


I, T, D, L = Form.INTEGER, Form.TEXT, Form.DIGEST, Form.INTEGERS  # noqa: E741

KINDS: Mapping[str, tuple[tuple[str, Form], ...]] = {
    "row": _fields(
        model_artifact_sha256=D,
        checkpoint_generation=T,
        adapter_set_sha256=D,
        logical_cache_abi_sha256=D,
        layer=I,
        kv_head=I,
        position=I,
        position_contract_sha256=D,
        rope_config_sha256=D,
        cache_generation=I,
        publication_generation=I,
        tenant_namespace=T,
        namespace_generation=I,
    ),
    "upstream": _fields(
        logical_cache_abi_sha256=D,
        cache_layout_manifest_sha256=D,
        visibility_policy_manifest_sha256=D,
        model_artifact_sha256=D,
        checkpoint_generation=T,
        adapter_set_sha256=D,
        position_contract_sha256=D,
        rope_config_sha256=D,
        tenant_namespace=T,
        namespace_generation=I,
        request_generation=I,
    ),
    "tensor": _fields(
        layers=I,
        query_heads=I,
        kv_heads=I,
        first_position=I,
        positions=I,
        channels=I,
        k_dtype=T,
        v_dtype=T,
        kv_head_of=L,
    ),
    "source": _fields(
        upstream_sha256=D,
        tensor_sha256=D,
        cache_generation=I,
        publication_generation=I,
        first_position=I,
        committed_frontier=I,
    ),
    "chunk": _fields(
        source_sha256=D,
        first_layer=I,
        layers=I,
        first_kv_head=I,
        kv_heads=I,
        first_position=I,
        positions=I,
    ),
    "replica": _fields(
        chunk_sha256=D,
        tier=T,
        allocation_generation=I,
        replica_generation=I,
        authority_epoch=I,
        codec=T,
        layout=T,
        payload_sha256=D,
    ),
    "support": _fields(positions=L),
}
"""Fields of each kind of identity, in the order of the encoding."""


def encode(kind: str, fields: Mapping[str, Any]) -> bytes:
    """The encoding of one identity. Members of ``fields`` that the kind does not have are left out.

    Raises ``KeyError`` for a missing field and ``ValueError`` for a value that does not fit its type.
    """
    return encode_fields(kind, ((name, form, fields[name]) for name, form in KINDS[kind]))


def encode_fields(kind: str, fields: Iterable[tuple[str, Form, Any]]) -> bytes:
    """The encoding of a kind whose fields the caller lists itself; ``None`` is absent."""
    parts = [_name(name) + _value(form, value) for name, form, value in fields]
    return DOMAIN + _text(kind) + struct.pack(">I", len(parts)) + b"".join(parts)


def digest(kind: str, fields: Mapping[str, Any]) -> str:
    """SHA-256 of the encoding, in lower-case hexadecimal."""
    return sha256(encode(kind, fields))


def sha256(encoding: bytes) -> str:
    """SHA-256 in lower-case hexadecimal."""
    return hashlib.sha256(encoding).hexdigest()


def support_sha256(positions: Sequence[int]) -> str:
    """Digest of a support: the original positions in order."""
    return digest("support", {"positions": positions})


def _text(value: str) -> bytes:
    raw = value.encode("utf-8")
    return struct.pack(">I", len(raw)) + raw


_name = functools.cache(_text)
"""Names are few and encoded over and over."""


def _value(form: Form, value: Any) -> bytes:
    if value is None:
        return b"\x00"
    if form is Form.TEXT:
        return form + _text(value)
    if form is Form.DIGEST:
        raw = bytes.fromhex(value)
        if len(raw) != 32:
            raise ValueError(f"{value!r} is not a SHA-256 digest")
        return form + raw
    if form is Form.INTEGERS:
        return form + struct.pack(f">I{len(value)}Q", len(value), *value)
    return form + struct.pack(">Q", value)
