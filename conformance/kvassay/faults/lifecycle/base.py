"""What the faults of the contract lifecycle share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvassay_reference.lifecycle import Session, tokens_sha256

from ..base import ids

Request = Mapping[str, Any]
Result = dict[str, Any]
cases = ids("lifecycle")
"""Ids of this contract's cases."""


def truth(session: Session, end: int) -> dict[str, Any]:
    """What a right copy of the first rows says of itself."""
    return {
        "generation": session.cache_generation,
        "owner": session.owner,
        "first_position": 0,
        "bytes": end * session.token_bytes,
        "tokens_sha256": tokens_sha256(session.tokens[:end]),
    }
