"""Faults of *Engines with keys of their own*: what is found and how far it reaches (IDN-034, IDN-038, IDN-040)."""

from __future__ import annotations

import hashlib
from typing import ClassVar

from kvassay_reference import reuse

from ..base import Fault, found
from .base import Record, Request, Result


class FreshKeys(Fault):
    """A key holds the number of the request, so that nothing is ever found again."""

    requirement = "IDN-034"
    killed_by = ("identity/field/same-record", "identity/field/nothing-stored", "identity/keys/same-record")

    def row_keys(self, record: Record) -> list[bytes]:
        self.requests = getattr(self, "requests", 0) + 1
        return [key + self.requests.to_bytes(4, "big") for key in super().row_keys(record)]


class HitOnNothing(Fault):
    """What is not there is served as zeros."""

    requirement = "IDN-034"
    killed_by = ("identity/field/nothing-stored",)

    def identity_get(self, request: Request) -> Result:
        found = super().identity_get(request)
        return found if found["outcome"] == "hit" else {"outcome": "hit", "rows": len(request["record"]["tokens"])}


class TokensWithoutPrefix(Fault):
    """A row's key holds its own token and place, not what came before."""

    requirement = "IDN-038"
    killed_by = ("identity/field/first-token", "identity/field/later-token")

    def row_keys(self, record: Record) -> list[bytes]:
        scope = reuse.scope_encoding(record)
        rows = range(len(record["tokens"]))
        return [hashlib.sha256(scope + bytes([row % 256]) + reuse.row_encoding(record, row)).digest() for row in rows]


class ChainPerSegment(Fault):
    """The chain of hashes begins anew every 64 rows; the number of the segment enters it, what came before does not."""

    requirement = "IDN-038"
    killed_by: ClassVar[tuple[str, ...]] = (
        "identity/field/segment-64",
        "identity/field/segment-256",
        "identity/keys/field-segment-64",
    )
    segment: ClassVar[int] = 64

    def row_keys(self, record: Record) -> list[bytes]:
        start = key = hashlib.sha256(reuse.scope_encoding(record)).digest()
        keys = []
        for row in range(len(record["tokens"])):
            if row % self.segment == 0:
                key = hashlib.sha256(start + row.to_bytes(8, "big")).digest()
            key = hashlib.sha256(key + reuse.row_encoding(record, row)).digest()
            keys.append(key)
        return keys


class ChainPerBlock(ChainPerSegment):
    """The chain of hashes begins anew with each block of 16."""

    killed_by = ("identity/field/segment-16", "identity/keys/field-segment-16")
    segment = 16


class FirstBlockOnly(Fault):
    """Only the first 16 tokens enter the keys (LMCache#2206)."""

    requirement = "IDN-038"
    killed_by = (
        "identity/keys/longer-prompt",
        "identity/field/later-token",
        "identity/field/later-token-in-block",
        "identity/field/last-token",
    )

    def row_keys(self, record: Record) -> list[bytes]:
        tokens = record["tokens"]
        keys = super().row_keys({**record, "tokens": [*tokens[:16], *[0] * (len(tokens) - 16)]})
        return keys if len(keys) < 32 else keys[:32]


class LastBlockWhole(Fault):
    """A block that begins alike is reused as a whole."""

    requirement = "IDN-038"
    killed_by = ("identity/field/later-token-in-block",)

    def row_keys(self, record: Record) -> list[bytes]:
        keys = super().row_keys(record)
        return [keys[row // 16 * 16] + bytes([row % 16]) for row in range(len(keys))]


class EmptyIsAbsent(Fault):
    """``if adapter_name``: an empty name or salt is none."""

    requirement = "IDN-040"
    killed_by = ("identity/optional/empty-adapter", "identity/optional/empty-salt", "identity/keys/optional-empty-salt")

    def row_keys(self, record: Record) -> list[bytes]:
        return super().row_keys({name: value for name, value in record.items() if value != ""})


FAULTS = found(globals())
