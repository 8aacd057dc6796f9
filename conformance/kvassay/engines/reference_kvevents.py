"""The op of KV Events of the built-in adapter: a stream becomes the reference's indexes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from kvassay_reference.errors import Refusal
from kvassay_reference.kvevents import Index, Streams

from .reference_attention import refusals_named
from .reference_part import ReferencePart

__all__ = ["Index", "KvEventsReference", "Refusal", "Streams"]


class KvEventsReference(ReferencePart):
    """The op of KV Events. Faults override a method of the index."""

    own_profiles: ClassVar[frozenset[str]] = frozenset({"kv-events"})
    index_class: ClassVar[type[Index]] = Index
    streams_class: ClassVar[type[Streams]] = Streams

    def kvevents_index(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Read a stream from its beginning."""
        streams = self.streams_class(index_class=self.index_class)
        with refusals_named():
            streams.read(request["batches"])
        return {"resident": streams.resident()}
