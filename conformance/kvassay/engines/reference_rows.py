"""The ops on rows of a cache of the built-in adapter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from kvassay_reference.cache_rows import Cache, CannotCrop, Layer, Part

from ..adapters.base import Rejected
from .reference_attention import refusals_named
from .reference_part import ReferencePart

Request = Mapping[str, Any]
Result = dict[str, Any]


class RowsReference(ReferencePart):
    """The ops on rows of a cache. Faults override a method of the cache or of its layers."""

    own_profiles: ClassVar[frozenset[str]] = frozenset({"cache-rows", "cache-sequences", "cache-reset"})
    cache_class: ClassVar[type[Cache]] = Cache
    layer_class: ClassVar[type[Layer]] = Layer

    def open(self) -> None:
        """No cache."""
        super().open()
        self.row_caches: dict[str, Cache] = {}
        self.row_snapshots: dict[str, Cache] = {}

    def row_cache(self, request: Request) -> Cache:
        """The cache of a request."""
        if request["cache"] not in self.row_caches:
            raise Rejected(None, f"no cache {request['cache']}")
        return self.row_caches[request["cache"]]

    def row_view(self, parts: Iterable[Part | None], last: Sequence[int], cache: Cache) -> list[Result]:
        """The last rows of each layer."""
        told = []
        for part, count, rows in zip(parts, last, cache.lengths, strict=True):
            shown = None if part is None else part.last(count)
            found = {"k": self.outward(shown.k), "v": self.outward(shown.v)} if shown and shown.count else {}
            told.append({"rows": rows, **found})
        return told

    def row_named(self, name: str, cache: Cache) -> Result:
        """A new cache under its name."""
        if name in self.row_caches:
            raise Rejected(None, f"there is a cache {name}")
        self.row_caches[name] = cache
        return {"rows": cache.lengths}

    def rows_open(self, request: Request) -> Result:
        """An empty cache."""
        layers = [self.layer_class(window) for window in request["windows"]]
        return self.row_named(request["cache"], self.cache_class(layers, request["sequences"]))

    def rows_append(self, request: Request) -> Result:
        """New rows in every layer."""
        cache = self.row_cache(request)
        with refusals_named():
            handed = cache.append(self.inward(request["k"]), self.inward(request["v"]))
        layers = self.row_view(handed, request["last"], cache)
        return {"layers": [{**one, "end_position": part.end} for one, part in zip(layers, handed, strict=True)]}

    def rows_read(self, request: Request) -> Result:
        """What is stored."""
        cache = self.row_cache(request)
        return {"layers": self.row_view(cache.read(), request["last"], cache)}

    def rows_crop(self, request: Request) -> Result:
        """Roll back every layer."""
        cache = self.row_cache(request)
        try:
            cache.crop(request.get("keep"), request.get("drop", 0))
        except CannotCrop as refusal:
            raise Rejected(None, str(refusal)) from None
        return {"rows": cache.lengths}

    def rows_save(self, request: Request) -> Result:
        """A snapshot."""
        self.row_snapshots[request["snapshot"]] = cache = self.row_cache(request).saved()
        return {"rows": cache.lengths}

    def rows_restore(self, request: Request) -> Result:
        """A cache from a snapshot."""
        if request["snapshot"] not in self.row_snapshots:
            raise Rejected(None, f"no snapshot {request['snapshot']}")
        return self.row_named(request["cache"], self.row_snapshots[request["snapshot"]].saved())

    def rows_select(self, request: Request) -> Result:
        """Other sequences."""
        cache = self.row_cache(request)
        with refusals_named():
            cache.select(request["sequences"])
        return {"rows": cache.lengths}

    def rows_reset(self, request: Request) -> Result:
        """Empty again."""
        cache = self.row_cache(request)
        cache.reset()
        return {"rows": cache.lengths}
