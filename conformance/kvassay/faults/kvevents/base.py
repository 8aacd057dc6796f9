"""What the faults of the contract kvevents share."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

from ..base import ids

Block = Hashable
Event = Mapping[str, Any]
case = ids("kvevents")
"""Ids of this contract's cases."""
