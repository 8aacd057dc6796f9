"""Rows of a cache: layers of K and V that grow, are rolled back, saved and put in another order, all layers alike.

Arrays are [sequences, kv_heads, rows, width]. A layer with a window stores the rows that the next one reaches and no
others; where its first stored row stands is kept beside it, so that positions survive what was dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from array_api_compat import array_namespace

from .errors import Refusal


class CannotCrop(ValueError):
    """A crop that the contract allows a cache to refuse, for whatever reason; it has changed nothing."""


@dataclass(frozen=True)
class Part:
    """K and V of consecutive rows of one layer, and the position after the last."""

    k: Any
    v: Any
    end: int

    @property
    def count(self) -> int:
        """Rows."""
        return int(self.k.shape[2])

    @property
    def first(self) -> int:
        """Position of the first row."""
        return self.end - self.count

    def slice(self, first: int, end: int) -> Part:
        """The rows of these positions, all of which must be here."""
        rows = slice(first - self.first, end - self.first)
        return Part(self.k[:, :, rows, :], self.v[:, :, rows, :], end)

    def last(self, count: int) -> Part:
        """The last rows, as many as there are."""
        return self.slice(max(self.first, self.end - count), self.end)

    def joined(self, other: Part) -> Part:
        """Rows and those that follow them."""
        xp = array_namespace(self.k)
        return Part(
            xp.concat([self.k, other.k], axis=2),
            xp.concat([self.v, other.v], axis=2),
            self.end + other.count,
        )

    def of(self, sequences: Sequence[int]) -> Part:
        """The rows of these sequences, in this order."""
        xp = array_namespace(self.k)
        index = xp.asarray(list(sequences), dtype=xp.int64)
        return Part(xp.take(self.k, index, axis=0), xp.take(self.v, index, axis=0), self.end)


@dataclass(frozen=True)
class Layer:
    """One layer: a window, and the rows that are stored; ``None`` before the first."""

    window: int | None
    rows: Part | None = None

    @property
    def length(self) -> int:
        """Rows that were seen and not cropped: the position of the next."""
        return 0 if self.rows is None else self.rows.end

    def reach(self, position: int) -> int:
        """The first position that attention of a row reads."""
        return 0 if self.window is None else max(0, position - self.window + 1)

    def appended(self, new: Part) -> tuple[Layer, Part]:
        """The layer with rows behind its own, and what attention of the new rows is handed."""
        rows = new if self.rows is None else self.rows.joined(new)
        return self.stored(rows), rows

    def stored(self, rows: Part) -> Layer:
        """The layer with as many of these rows as the next one reads."""
        return replace(self, rows=rows.slice(max(rows.first, self.reach(rows.end)), rows.end))

    def can_end(self, end: int) -> bool:
        """Whether the rows of the past are here that a row at this position reads; it may read none."""
        first = self.reach(end)
        return self.rows is None or first == end or self.rows.first <= first

    def ending(self, end: int) -> Layer:
        """The layer without the rows from a position on."""
        if self.rows is None:
            return self
        if end > self.rows.first:
            return replace(self, rows=self.rows.slice(self.rows.first, end))
        return replace(self, rows=Part(self.rows.k[:, :, :0, :], self.rows.v[:, :, :0, :], end))

    def of(self, sequences: Sequence[int]) -> Layer:
        """The rows of these sequences."""
        return replace(self, rows=self.rows and self.rows.of(sequences))


@dataclass(frozen=True)
class RecordingLayer(Layer):
    """A layer that drops nothing before the next crop, so that every row since the last one can be rolled back."""

    def stored(self, rows: Part) -> Layer:
        """All of these rows."""
        return replace(self, rows=rows)

    def ending(self, end: int) -> Layer:
        """The layer without the rows from a position on, and without what the next row does not read."""
        layer = super().ending(end)
        return layer if layer.rows is None else super().stored(layer.rows)


@dataclass
class Cache:
    """Layers that always have the same length. Faults override one method."""

    layers: list[Layer]
    sequences: int
    form: tuple[Any, ...] | None = field(default=None)
    """Dtype, heads and widths, which the first append tells."""

    @property
    def lengths(self) -> list[int]:
        """Rows of each layer."""
        return [layer.length for layer in self.layers]

    def append(self, k: Any, v: Any) -> list[Part]:
        """New rows of every layer, [layers, sequences, kv_heads, rows, width]; what attention is handed, by layer."""
        form = (k.dtype, v.dtype, k.shape[2], k.shape[4], v.shape[4])
        even = k.shape[:4] == v.shape[:4] and tuple(k.shape[:2]) == (len(self.layers), self.sequences)
        if not even or k.dtype != v.dtype or self.form not in (None, form):
            raise Refusal("CACHE_ROWS_UNEVEN", f"{tuple(k.shape)} and {tuple(v.shape)}")
        self.form = form
        handed = []
        for number, layer in enumerate(self.layers):
            new = Part(k[number, ...], v[number, ...], int(k.shape[3]))
            self.layers[number], part = layer.appended(new)
            handed.append(part)
        return handed

    def read(self) -> list[Part | None]:
        """What is stored, by layer."""
        return [layer.rows for layer in self.layers]

    def end_of(self, keep: int | None, drop: int) -> int:
        """The length after a crop."""
        length = self.layers[0].length
        end = length - drop if keep is None else keep
        if not 0 <= end <= length:
            raise CannotCrop(f"{end} of {length} rows")
        return end

    def crop(self, keep: int | None, drop: int) -> None:
        """Keep the first rows, or drop the last ones; every layer is asked before any is changed."""
        end = self.end_of(keep, drop)
        for number, layer in enumerate(self.layers):
            if end < layer.length and not layer.can_end(end):
                raise CannotCrop(f"layer {number} has dropped rows that its window reaches from {end}")
        self.layers = [layer.ending(end) for layer in self.layers]

    def saved(self) -> Cache:
        """The cache as it is: its arrays are never written to."""
        return replace(self, layers=list(self.layers))

    def select(self, sequences: Sequence[int]) -> None:
        """Each sequence gets the rows of the one that is named."""
        if not all(0 <= one < self.sequences for one in sequences):
            raise Refusal("NO_SUCH_SEQUENCE", f"{max(sequences)} of {self.sequences}")
        self.layers = [layer.of(sequences) for layer in self.layers]
        self.sequences = len(sequences)

    def reset(self) -> None:
        """No rows, of no form."""
        self.layers = [replace(layer, rows=None) for layer in self.layers]
        self.form = None
