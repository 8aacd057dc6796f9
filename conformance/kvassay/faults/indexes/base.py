"""What the faults of the contract indexes share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..base import ids

Request = Mapping[str, Any]
Result = dict[str, Any]
case = ids("indexes")
"""Ids of this contract's cases."""
