"""Faults of the contract rows: the reference with one realistic defect each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from kvassay_reference.cache_rows import Cache, Layer, Part, RecordingLayer

from ..engines.reference import Reference
from .base import Fault, found, ids

Request = Mapping[str, Any]
Result = dict[str, Any]


class Recording(Reference):
    """The reference with layers that record their past between crops."""

    own_capabilities: ClassVar[Mapping[str, Any]] = {"rows.crops_windows": True}
    layer_class: ClassVar[type[Layer]] = RecordingLayer


CORRECT = (Reference, Recording)


class RecordingFault(Recording, Fault):
    """The reference that records, to be spoiled."""


cases = ids("rows")
"""Ids of this contract's cases."""


def both(*names: str) -> tuple[str, ...]:
    """A case on each of the two caches without windows."""
    return cases(*(f"{name}-{shape}" for name in names for shape in ("two-layers", "three-layers")))


def windows(*names: str) -> tuple[str, ...]:
    """A case on each of the two caches with windows."""
    return cases(*(f"{name}-{shape}" for name in names for shape in ("hybrid", "sliding")))


# --- rows and positions ----------------------------------------------------------------------------------------------


class NewRowsFirst(Fault):
    """New rows are joined on the wrong side."""

    requirement = "ROW-001"
    killed_by = both("append/prompt-and-steps", "append/in-pieces")

    class _Layer(Layer):
        def appended(self, new: Part) -> tuple[Layer, Part]:
            rows = new if self.rows is None else replace(new.joined(self.rows), end=self.rows.end + new.count)
            return self.stored(rows), rows

    layer_class = _Layer


class FirstLayerForAll(Fault):
    """Every layer stores what the first one computed."""

    requirement = "ROW-001"
    killed_by = both("append/prompt-and-steps", "append/in-pieces")

    class _Cache(Cache):
        def append(self, k: Any, v: Any) -> list[Part]:
            return super().append(np.broadcast_to(k[:1], k.shape), np.broadcast_to(v[:1], v.shape))

    cache_class = _Cache


class Widened(Fault):
    """Rows are stored in float32."""

    requirement = "ROW-001"
    killed_by = cases("append/bfloat16")

    class _Cache(Cache):
        def append(self, k: Any, v: Any) -> list[Part]:
            return super().append(k.astype(np.float32), v.astype(np.float32))

    cache_class = _Cache


class OneSequenceForAll(Fault):
    """Rows of one sequence are broadcast to every sequence."""

    requirement = "ROW-001"
    killed_by = cases("append/other-sequences")

    class _Cache(Cache):
        def append(self, k: Any, v: Any) -> list[Part]:
            shape = (k.shape[0], self.sequences, *k.shape[2:-1])
            if k.shape[1] == 1:
                k, v = np.broadcast_to(k, (*shape, k.shape[-1])), np.broadcast_to(v, (*shape, v.shape[-1]))
            return super().append(k, v)

    cache_class = _Cache


class OneBufferForAll(Fault):
    """A second cache is the first one under another name."""

    requirement = "ROW-001"
    killed_by = cases("append/two-caches")

    def rows_open(self, request: Request) -> Result:
        first = next(iter(self.row_caches.values()), None)
        return super().rows_open(request) if first is None else self.row_named(request["cache"], first)


class NothingIsOne(Fault):
    """A cache without rows says that it has one."""

    requirement = "ROW-001"
    killed_by = cases("append/nothing-yet")

    class _Cache(Cache):
        @property
        def lengths(self) -> list[int]:
            return [max(1, rows) for rows in super().lengths]

    cache_class = _Cache


class StepAtTheLastPosition(Fault):
    """A step of one row gets the position of the last row, as where the length is taken after the append."""

    requirement = "ROW-001"
    killed_by = both("append/prompt-and-steps")

    class _Layer(Layer):
        def appended(self, new: Part) -> tuple[Layer, Part]:
            layer, handed = super().appended(new)
            late = self.rows is not None and new.count == 1
            return layer, replace(handed, end=handed.end - 1) if late else handed

    layer_class = _Layer


# --- windows ---------------------------------------------------------------------------------------------------------


class WindowOneShort(Fault):
    """The window is taken to exclude the new row on both sides."""

    requirement = "ROW-002"
    killed_by = (*windows("window/filled-row-by-row", "window/prompt-beyond"), *cases("window/exactly-full"))

    class _Layer(Layer):
        def stored(self, rows: Part) -> Layer:
            first = 0 if self.window is None else max(0, rows.end - self.window + 2)
            return replace(self, rows=rows.slice(max(rows.first, min(first, rows.end)), rows.end))

    layer_class = _Layer


class DroppedBeforeHandedOver(Fault):
    """What the last new row reaches is handed over, and the first ones of a piece miss what only they reach."""

    requirement = "ROW-002"
    killed_by = (*windows("window/pieces-across"), *cases("window/exactly-full", "window/of-two-rows"))

    class _Layer(Layer):
        def appended(self, new: Part) -> tuple[Layer, Part]:
            layer, handed = super().appended(new)
            first = self.reach(handed.end - 1)
            return layer, handed.slice(max(handed.first, min(first, handed.end - 1)), handed.end)

    layer_class = _Layer


class PositionsOfTheStored(Fault):
    """Positions count the rows that are stored."""

    requirement = "ROW-002"
    killed_by = windows("window/filled-row-by-row", "window/prompt-beyond", "window/pieces-across")

    class _Layer(Layer):
        def stored(self, rows: Part) -> Layer:
            layer = super().stored(rows)
            assert layer.rows is not None
            return replace(layer, rows=replace(layer.rows, end=layer.rows.count))

    layer_class = _Layer


class SliceFromMinusNothing(Fault):
    """The last W - 1 rows are sliced off by a negative number, which for W = 1 is zero and slices nothing off."""

    requirement = "ROW-002"
    killed_by = cases("window/of-one-row")

    class _Layer(Layer):
        def appended(self, new: Part) -> tuple[Layer, Part]:
            layer, handed = super().appended(new)
            if self.window != 1 or self.rows is None:
                return layer, handed
            first = self.length - self.window + 1
            return layer, replace(handed, end=first + self.length + new.count)

    layer_class = _Layer


class FirstRowsKept(Fault):
    """A full window keeps the first rows, as a prompt that is cut on the wrong side."""

    requirement = "ROW-002"
    killed_by = windows("window/prompt-beyond")

    class _Layer(Layer):
        def stored(self, rows: Part) -> Layer:
            layer = super().stored(rows)
            if layer.rows is None or layer.rows.count == rows.count:
                return layer
            count = layer.rows.count
            return replace(layer, rows=Part(rows.k[:, :, :count, :], rows.v[:, :, :count, :], rows.end))

    layer_class = _Layer


# --- crops -----------------------------------------------------------------------------------------------------------


class OneTooMany(Fault):
    """A crop keeps the row at the length that was asked for."""

    requirement = "ROW-003"
    killed_by = (*both("crop/keep-some", "crop/drop-some", "crop/all-of-them"), *cases("crop/accepted-in-part"))

    class _Cache(Cache):
        def end_of(self, keep: int | None, drop: int) -> int:
            return min(super().end_of(keep, drop) + 1, self.layers[0].length)

    cache_class = _Cache


class NothingIsNoLimit(Fault):
    """A length of zero counts as none given, as in ``if length:``."""

    requirement = "ROW-003"
    killed_by = both("crop/all-of-them")

    class _Cache(Cache):
        def end_of(self, keep: int | None, drop: int) -> int:
            return super().end_of(keep or None, drop)

    cache_class = _Cache


class MinusNothing(Fault):
    """Dropping slices up to minus the number, which for zero is the start."""

    requirement = "ROW-003"
    killed_by = both("crop/drop-nothing")

    class _Cache(Cache):
        def end_of(self, keep: int | None, drop: int) -> int:
            return 0 if keep is None and drop == 0 else super().end_of(keep, drop)

    cache_class = _Cache


class KeysAlone(Fault):
    """Keys are cropped at the end and values at the start."""

    requirement = "ROW-003"
    killed_by = both("crop/keep-some", "crop/drop-some")

    class _Layer(Layer):
        def ending(self, end: int) -> Layer:
            layer = super().ending(end)
            if self.rows is None or layer.rows is None or not layer.rows.count:
                return layer
            return replace(layer, rows=replace(layer.rows, v=self.rows.v[:, :, -layer.rows.count :, :]))

    layer_class = _Layer


class FirstLayerCropped(Fault):
    """The first layer alone is rolled back."""

    requirement = "ROW-003"
    killed_by = both("crop/keep-some", "crop/drop-some", "crop/all-of-them", "crop/drop-all")

    class _Cache(Cache):
        def crop(self, keep: int | None, drop: int) -> None:
            rest = self.layers[1:]
            super().crop(keep, drop)
            self.layers[1:] = rest

    cache_class = _Cache


class RoundedToBlocks(Fault):
    """A crop frees whole blocks of two rows and keeps the begun one."""

    requirement = "ROW-003"
    killed_by = (*both("crop/keep-some", "crop/drop-some"), *cases("crop/accepted-in-part"))

    class _Cache(Cache):
        def end_of(self, keep: int | None, drop: int) -> int:
            end = super().end_of(keep, drop)
            return min(end + end % 2, self.layers[0].length)

    cache_class = _Cache


class CroppedWindowForgetsItsPosition(Fault):
    """A layer with a window that was cropped counts twice what is left."""

    requirement = "ROW-003"
    killed_by = cases("crop/below-the-window")

    class _Layer(Layer):
        def ending(self, end: int) -> Layer:
            layer = super().ending(end)
            if self.window is None or layer.rows is None:
                return layer
            return replace(layer, rows=replace(layer.rows, end=layer.rows.end + layer.rows.count))

    layer_class = _Layer


class LengthBelowZero(Fault):
    """Dropping more rows than there are gives a length below zero, which counts from the end: transformers#47433."""

    requirement = "ROW-004"
    killed_by = both("crop/drop-beyond")

    class _Cache(Cache):
        def end_of(self, keep: int | None, drop: int) -> int:
            length = self.layers[0].length
            below = length - drop if keep is None else 0
            return max(0, length + below) if below < 0 else super().end_of(keep, drop)

    cache_class = _Cache


class PaddedToTheLength(Fault):
    """A crop beyond the end makes room for the rows that are not there."""

    requirement = "ROW-004"
    killed_by = both("crop/keep-beyond")

    class _Cache(Cache):
        def crop(self, keep: int | None, drop: int) -> None:
            missing = (keep or 0) - self.layers[0].length
            if missing <= 0:
                super().crop(keep, drop)
            for number, layer in enumerate(self.layers):
                if missing > 0 and layer.rows is not None:
                    k, v = (
                        np.zeros((*side.shape[:2], missing, side.shape[3]), side.dtype)
                        for side in (layer.rows.k, layer.rows.v)
                    )
                    self.layers[number] = replace(layer, rows=layer.rows.joined(Part(k, v, missing)))

    cache_class = _Cache


class _Begun(Layer):
    """A layer that was cropped without a row: its next row gets position 1."""

    def appended(self, new: Part) -> tuple[Layer, Part]:
        rows = replace(new, end=new.end + 1)
        return Layer(self.window, rows), rows


class EmptyCacheBegun(Fault):
    """A crop of a cache without rows leaves it as if it had one."""

    requirement = "ROW-004"
    killed_by = cases("crop/before-any-row", "layers/before-any-row")

    class _Layer(Layer):
        def ending(self, end: int) -> Layer:
            return _Begun(self.window) if self.rows is None else super().ending(end)

    layer_class = _Layer


class CropsAsItGoes(Fault):
    """Layers are cropped in order until one refuses, as in transformers 5.2.0 and 5.24.0."""

    requirement = "ROW-005"
    killed_by = cases("layers/keep-hybrid", "layers/drop-hybrid", "layers/keep-just-full", "layers/drop-just-full")

    class _Cache(Cache):
        def crop(self, keep: int | None, drop: int) -> None:
            end = self.end_of(keep, drop)
            for number, layer in enumerate(self.layers):
                if layer.can_end(end):
                    self.layers[number] = layer.ending(end)
                else:
                    super().crop(keep, drop)

    cache_class = _Cache


class CropsWhatIsThere(Fault):
    """A window's layer is cropped to what it still has, and the next row misses what was dropped."""

    requirement = "ROW-005"
    killed_by = cases("layers/keep-hybrid", "layers/drop-window-first", "layers/keep-sliding")

    class _Layer(Layer):
        def can_end(self, end: int) -> bool:
            return True

    layer_class = _Layer


class RelabelsWhatIsThere(Fault):
    """A window's layer keeps its rows under the positions of those that it has dropped."""

    requirement = "ROW-005"
    killed_by = cases("layers/keep-hybrid", "layers/drop-hybrid", "layers/keep-window-first", "layers/keep-sliding")

    class _Layer(Layer):
        def can_end(self, end: int) -> bool:
            return True

        def ending(self, end: int) -> Layer:
            if self.rows is None or super().can_end(end):
                return super().ending(end)
            return replace(self, rows=replace(self.rows.last(end), end=end))

    layer_class = _Layer


class WindowOffByOneInCrop(Fault):
    """A crop asks for one row less than the next row reaches."""

    requirement = "ROW-005"
    killed_by = cases("layers/keep-one-back", "layers/drop-one-back")

    class _Layer(Layer):
        def can_end(self, end: int) -> bool:
            return super().can_end(end) or (self.rows is not None and self.rows.first <= self.reach(end) + 1)

    layer_class = _Layer


def recorded(*names: str) -> tuple[str, ...]:
    """A case on each of the three caches with windows."""
    return cases(*(f"recorded/{name}-{shape}" for name in names for shape in ("hybrid", "sliding", "window-first")))


class RecordsOneRow(RecordingFault):
    """One row more than the window needs is recorded, whatever the length of a draft."""

    requirement = "ROW-005"
    killed_by = recorded("rounds", "draft-row-by-row")

    class _Layer(RecordingLayer):
        def stored(self, rows: Part) -> Layer:
            return replace(self, rows=rows.slice(max(rows.first, self.reach(rows.end) - 1), rows.end))

    layer_class = _Layer


class RecordedIsHandedOver(RecordingFault):
    """Everything recorded is handed to attention, whose mask is made for the window."""

    requirement = "ROW-002"
    killed_by = recorded("draft-row-by-row")

    class _Layer(RecordingLayer):
        def appended(self, new: Part) -> tuple[Layer, Part]:
            layer, handed = super().appended(new)
            return layer, replace(handed, end=self.reach(self.length) + handed.count)

    layer_class = _Layer


class TrimmedAtTheWrongEnd(RecordingFault):
    """After a crop the recorded rows are trimmed to the window from the start."""

    requirement = "ROW-005"
    killed_by = recorded("rounds", "draft-row-by-row")

    class _Layer(RecordingLayer):
        def ending(self, end: int) -> Layer:
            if self.rows is None:
                return self
            layer = super().ending(end)
            assert layer.rows is not None
            count = layer.rows.count
            return replace(layer, rows=Part(self.rows.k[:, :, :count, :], self.rows.v[:, :, :count, :], end))

    layer_class = _Layer


class FullOnceIsFullForEver(RecordingFault):
    """A window that was full is taken to be full after a crop: positions count from there."""

    requirement = "ROW-003"
    killed_by = recorded("draft-across")

    class _Layer(RecordingLayer):
        def ending(self, end: int) -> Layer:
            layer = super().ending(end)
            if self.window is None or layer.rows is None or self.length < self.window:
                return layer
            return replace(layer, rows=replace(layer.rows, end=max(end, self.window)))

    layer_class = _Layer


class CropOfNothingForgets(RecordingFault):
    """A crop that drops nothing empties what was recorded."""

    requirement = "ROW-003"
    killed_by = cases("recorded/all-accepted")

    class _Cache(Cache):
        def crop(self, keep: int | None, drop: int) -> None:
            length = self.layers[0].length
            super().crop(keep, drop)
            if keep is None and not drop:
                self.layers = [
                    layer
                    if layer.window is None
                    else replace(layer, rows=layer.rows and layer.rows.slice(length, length))
                    for layer in self.layers
                ]

    cache_class = _Cache


class RecordIsNotSaved(RecordingFault):
    """A snapshot holds what the window needs and not what was recorded for a crop."""

    requirement = "ROW-006"
    killed_by = cases("recorded/saved")

    class _Cache(Cache):
        def saved(self) -> Cache:
            cache = super().saved()
            cache.layers = [layer if layer.rows is None else Layer.stored(layer, layer.rows) for layer in cache.layers]
            return cache

    cache_class = _Cache


# --- snapshots -------------------------------------------------------------------------------------------------------


class SnapshotIsTheCache(Fault):
    """What is saved is the cache itself."""

    requirement = "ROW-006"
    killed_by = both("save/the-saved-goes-on")

    def rows_save(self, request: Request) -> Result:
        self.row_snapshots[request["snapshot"]] = cache = self.row_cache(request)
        return {"rows": cache.lengths}


class RestoredIsTheSnapshot(Fault):
    """What is restored is the snapshot itself."""

    requirement = "ROW-006"
    killed_by = (*both("save/restored-twice"), *cases("save/crop-of-the-restored"))

    def rows_restore(self, request: Request) -> Result:
        return self.row_named(request["cache"], self.row_snapshots[request["snapshot"]])


class RestoredFromItsRows(Fault):
    """Layers are filled with the saved rows as with a prompt: a window's positions begin at 0 again."""

    requirement = "ROW-006"
    killed_by = windows("save/and-restore", "save/restored-twice")

    class _Cache(Cache):
        def saved(self) -> Cache:
            cache = super().saved()
            for number, layer in enumerate(cache.layers):
                if layer.rows is not None:
                    cache.layers[number] = replace(layer, rows=replace(layer.rows, end=layer.rows.count))
            return cache

    cache_class = _Cache


class WindowsSavedEmpty(Fault):
    """Layers with windows are not saved, since they fill again."""

    requirement = "ROW-006"
    killed_by = windows("save/and-restore")

    class _Cache(Cache):
        def saved(self) -> Cache:
            cache = super().saved()
            cache.layers = [layer if layer.window is None else replace(layer, rows=None) for layer in cache.layers]
            return cache

    cache_class = _Cache


class OneSnapshot(Fault):
    """A later snapshot replaces every earlier one."""

    requirement = "ROW-006"
    killed_by = cases("save/two-snapshots")

    def rows_save(self, request: Request) -> Result:
        reply = super().rows_save(request)
        latest = self.row_snapshots[request["snapshot"]]
        self.row_snapshots = dict.fromkeys(self.row_snapshots, latest)
        return reply


# --- sequences -------------------------------------------------------------------------------------------------------


def selections(*names: str) -> tuple[str, ...]:
    """A selection on each of the two caches of three sequences."""
    return cases(*(f"select/{name}-{shape}" for name in names for shape in ("two-layers", "hybrid")))


class EmptyIsLeftAlone(Fault):
    """A selection is skipped where there are no rows, and the layer still has all its sequences: as in transformers."""

    requirement = "ROW-007"
    killed_by = cases("select/after-a-crop-to-nothing")

    class _Cache(Cache):
        def select(self, sequences: Sequence[int]) -> None:
            if self.layers[0].length:
                super().select(sequences)

    cache_class = _Cache


class WhereTheyWent(Fault):
    """The selection is read as where each sequence goes, not where it comes from."""

    requirement = "ROW-007"
    killed_by = (*selections("turned"), *cases("select/twice"))

    class _Cache(Cache):
        def select(self, sequences: Sequence[int]) -> None:
            whole = sorted(sequences) == list(range(self.sequences))
            super().select(np.argsort(sequences).tolist() if whole else sequences)

    cache_class = _Cache


class SelectedKeys(Fault):
    """Keys are put in order and values stay."""

    requirement = "ROW-007"
    killed_by = selections("turned")

    class _Layer(Layer):
        def of(self, sequences: Sequence[int]) -> Layer:
            layer = super().of(sequences)
            if self.rows is None or layer.rows is None or len(sequences) != len(self.rows.v):
                return layer
            return replace(layer, rows=replace(layer.rows, v=self.rows.v))

    layer_class = _Layer


class WindowsNotSelected(Fault):
    """Layers with windows are passed over where the number of sequences stays."""

    requirement = "ROW-007"
    killed_by = cases("select/turned-hybrid", "select/one-twice-hybrid")

    class _Layer(Layer):
        def of(self, sequences: Sequence[int]) -> Layer:
            same = self.rows is not None and len(sequences) == len(self.rows.k)
            return self if same and self.window is not None else super().of(sequences)

    layer_class = _Layer


class RepeatedInTurns(Fault):
    """Sequences are repeated one after the other, as ``tile`` does, and not each in place."""

    requirement = "ROW-007"
    killed_by = selections("repeated")

    class _Cache(Cache):
        def select(self, sequences: Sequence[int]) -> None:
            several = len(sequences) > self.sequences
            super().select([n % self.sequences for n in range(len(sequences))] if several else sequences)

    cache_class = _Cache


class Clamped(Fault):
    """A number that no sequence has is taken for the last one."""

    requirement = "ROW-007"
    killed_by = cases("select/no-such-sequence")

    class _Cache(Cache):
        def select(self, sequences: Sequence[int]) -> None:
            super().select([min(one, self.sequences - 1) for one in sequences])

    cache_class = _Cache


# --- resets ----------------------------------------------------------------------------------------------------------


class RowsOfZeros(Fault):
    """A reset overwrites rows with zeros and leaves them there: transformers#48809."""

    requirement = "ROW-008"
    killed_by = (*both("reset/and-on"), *windows("reset/and-on"))

    class _Cache(Cache):
        def reset(self) -> None:
            for number, layer in enumerate(self.layers):
                if layer.rows is not None:
                    k, v = np.zeros_like(layer.rows.k), np.zeros_like(layer.rows.v)
                    self.layers[number] = replace(layer, rows=replace(layer.rows, k=k, v=v))

    cache_class = _Cache


class FullLayersReset(Fault):
    """Layers with windows are passed over."""

    requirement = "ROW-008"
    killed_by = windows("reset/and-on")

    class _Cache(Cache):
        def reset(self) -> None:
            before = list(self.layers)
            super().reset()
            self.layers = [new if old.window is None else old for new, old in zip(self.layers, before, strict=True)]

    cache_class = _Cache


FAULTS = found(globals())
