"""The index ops of the built-in adapter: the life of an index, and four methods."""

from __future__ import annotations

from .reference_bridge import BridgeReference
from .reference_magicpig import MagicPigReference
from .reference_pq import QuantisedReference
from .reference_squeezed import SqueezedReference


class IndexesReference(QuantisedReference, BridgeReference, SqueezedReference, MagicPigReference):
    """Every op of the contract indexes."""
