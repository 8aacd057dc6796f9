"""What the parts of the built-in adapter share: each contract brings its ops, its claims and its state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from kvassay_reference.attention import State

from ..adapters.base import EngineAdapter


class ReferencePart(EngineAdapter):
    """One contract's ops. A class's claims are those of all its parts; what a subclass claims goes first."""

    own_profiles: ClassVar[frozenset[str]] = frozenset()
    own_capabilities: ClassVar[Mapping[str, Any]] = {}
    own_variants: ClassVar[frozenset[str]] = frozenset()

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        parts = [vars(part) for part in reversed(cls.__mro__)]
        claims = {
            "profiles": frozenset().union(*(part.get("own_profiles", ()) for part in parts)),
            "variants": frozenset().union(*(part.get("own_variants", ()) for part in parts)),
            "capabilities": {key: value for part in parts for key, value in part.get("own_capabilities", {}).items()},
        }
        for name, joined in claims.items():
            if name not in vars(cls):  # a class that claims by hand is believed
                setattr(cls, name, joined)

    def open(self) -> None:
        """Forget the case before. A part that keeps state does so too, and calls the next."""
        super().open()

    def inward(self, array: Any) -> Any:
        """A NumPy array as an array of the reference's library."""
        return array

    def outward(self, array: Any) -> Any:
        """An array of the reference's library as a NumPy array."""
        return array

    def write_state(self, state: State) -> dict[str, Any]:
        """A state of a reply, in the preferred schema."""
        raise NotImplementedError("the attention part writes states")
