"""Faults of SparF's pages, its two layouts of K, its appends and its opt-in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from kvassay_reference import sparf
from kvassay_reference.offload import Rule
from kvassay_reference.sparf import HeadRead, Layout

from ..base import Fault
from .base import Request, Result, case


class Pages(Fault):
    """Other pages."""

    requirement = "PLC-053"

    def spoil(self, one: HeadRead, layout: Layout, rows: int) -> HeadRead:
        """One head's pages, spoiled."""
        raise NotImplementedError

    def flash_reads(
        self,
        layout: Layout,
        rows: int,
        heads: tuple[int, Sequence[int]],
        channels: Sequence[Sequence[int]],
        positions: Sequence[Sequence[int]],
    ) -> list[HeadRead]:
        found = super().flash_reads(layout, rows, heads, channels, positions)
        return [self.spoil(one, layout, rows) for one in found]


class PageOfEachUnit(Pages):
    """A page is read for every unit on it."""

    killed_by = case("pages/units-of-one-page", "pages/shared-head")

    def spoil(self, one: HeadRead, layout: Layout, rows: int) -> HeadRead:
        return replace(one, token_pages=[row // layout.page_rows for row in one.positions])


class PagesByCount(Pages):
    """As many pages as the units would fill are read, from the first on."""

    killed_by = case("pages/units-across-pages", "pages/base")

    def spoil(self, one: HeadRead, layout: Layout, rows: int) -> HeadRead:
        count = sparf.blocks(len(one.positions), layout.page_rows)
        return replace(one, token_pages=one.token_pages[:count])


class FirstPageAlways(Pages):
    """The first page is read, whether or not there is a row on it."""

    killed_by = case("pages/no-rows")

    def spoil(self, one: HeadRead, layout: Layout, rows: int) -> HeadRead:
        return replace(one, token_pages=one.token_pages or [0])


class LastBlockForgotten(Pages):
    """Blocks of rows by channel are rounded down."""

    killed_by = case("pages/one-row-history", "pages/base", "pages/last-pages-partly-filled")

    def spoil(self, one: HeadRead, layout: Layout, rows: int) -> HeadRead:
        whole = rows // layout.channel_page_rows
        return replace(one, channel_pages=[page for page in one.channel_pages if page[1] < whole])


class PagesOfTheLayoutsSwapped(Pages):
    """Rows are looked for in pages as long as those by channel."""

    killed_by = case("pages/base", "pages/units-across-pages")

    def spoil(self, one: HeadRead, layout: Layout, rows: int) -> HeadRead:
        return replace(one, token_pages=sorted({row // layout.channel_page_rows for row in one.positions}))


class HeadsDoNotShare(Fault):
    """Each query head reads its own pages."""

    requirement = "PLC-053"
    killed_by = case("pages/shared-head", "attend/grouped-heads")

    def flash_reads(
        self,
        layout: Layout,
        rows: int,
        heads: tuple[int, Sequence[int]],
        channels: Sequence[Sequence[int]],
        positions: Sequence[Sequence[int]],
    ) -> list[HeadRead]:
        found = []
        for head in range(heads[0]):
            mine = [query for query, reads in enumerate(heads[1]) if reads == head]
            apart = [sparf.head_read(layout, rows, [channels[query]], [positions[query]]) for query in mine]
            parts = ("channels", "positions", "channel_pages", "token_pages")
            joined = {part: [unit for one in apart for unit in getattr(one, part)] for part in parts}
            found.append(HeadRead(**joined))
        return found


class PagesOfAllHeads(Fault):
    """Pages of different heads are taken for the same."""

    requirement = "PLC-053"
    killed_by = case("pages/heads-apart")

    def flash_reads(
        self,
        layout: Layout,
        rows: int,
        heads: tuple[int, Sequence[int]],
        channels: Sequence[Sequence[int]],
        positions: Sequence[Sequence[int]],
    ) -> list[HeadRead]:
        none = HeadRead([], [], [], [])
        whole = sparf.head_read(layout, rows, channels, positions)
        return [whole if head == 0 else none for head in range(heads[0])]


class AnyLayout(Fault):
    """What is put on a page is believed."""

    requirement = "PLC-053"
    killed_by = case("pages/layouts", "attend/shapes-and-dtypes", "append/shapes-and-dtypes")

    def flash_layout(self, layout: Request) -> Layout:
        return Layout(**layout)


class LayoutOfKeys(Fault):
    """Only pages of K by token are checked."""

    requirement = "PLC-053"
    killed_by = case("pages/layouts")

    def flash_layout(self, layout: Request) -> Layout:
        super().flash_layout({**layout, "value_channels": 1, "page_channels": 1, "channel_page_rows": 1})
        return Layout(**layout)


class AnyUnits(Fault):
    """Units are believed to exist."""

    requirement = "PLC-053"
    killed_by = case("pages/units")

    def flash_units(self, several: Sequence[Sequence[int]], limit: int) -> Iterable[Rule]:
        return ()


class UnitsInOrderAlone(Fault):
    """Units are checked for their order and not for their range."""

    requirement = "PLC-053"
    killed_by = case("pages/units")

    def flash_units(self, several: Sequence[Sequence[int]], limit: int) -> Iterable[Rule]:
        return super().flash_units(several, 1 << 40)


class Ledger(Fault):
    """Another ledger."""

    requirement = "PLC-054"

    def spoil(self, made: sparf.Pages, layout: Layout, rows: int, reads: Sequence[HeadRead]) -> sparf.Pages:
        """The ledger, spoiled."""
        raise NotImplementedError

    def flash_ledger(self, layout: Layout, rows: int, reads: Sequence[HeadRead]) -> sparf.Pages:
        return self.spoil(super().flash_ledger(layout, rows, reads), layout, rows, reads)


class SelectedBytesRead(Ledger):
    """What is kept is taken for what is read."""

    killed_by = case("pages/base", "pages/heads-apart", "attend/base")

    def spoil(self, made: sparf.Pages, layout: Layout, rows: int, reads: Sequence[HeadRead]) -> sparf.Pages:
        return replace(made, physical_bytes=made.logical_bytes)


class EmptyPartsFiltered(Ledger):
    """What a page leaves empty is counted among what filters drop."""

    killed_by = case("pages/last-pages-partly-filled", "pages/base")

    def spoil(self, made: sparf.Pages, layout: Layout, rows: int, reads: Sequence[HeadRead]) -> sparf.Pages:
        return replace(made, filtered_bytes=made.physical_bytes - made.logical_bytes)


class KeptByPage(Ledger):
    """What stands on the pages is taken for what is kept."""

    killed_by = case("pages/base", "pages/larger-pages")

    def spoil(self, made: sparf.Pages, layout: Layout, rows: int, reads: Sequence[HeadRead]) -> sparf.Pages:
        return replace(made, logical_bytes=made.logical_bytes + made.filtered_bytes, filtered_bytes=0)


class ValuesForgotten(Ledger):
    """Only pages of K are counted."""

    killed_by = case("pages/base", "pages/units-of-one-page", "attend/base")

    def spoil(self, made: sparf.Pages, layout: Layout, rows: int, reads: Sequence[HeadRead]) -> sparf.Pages:
        pages = sum(len(one.token_pages) for one in reads)
        return replace(made, physical_bytes=made.physical_bytes - pages * layout.page_bytes)


class SelectionForFree(Ledger):
    """Reading channels is left out."""

    killed_by = case("pages/base", "pages/everything-selected", "attend/base")

    def spoil(self, made: sparf.Pages, layout: Layout, rows: int, reads: Sequence[HeadRead]) -> sparf.Pages:
        pages = sum(len(one.channel_pages) for one in reads)
        return replace(made, physical_bytes=made.physical_bytes - pages * layout.page_bytes)


class ItemsOfTwoBytes(Ledger):
    """Scalars are taken to have two bytes."""

    killed_by = case("pages/wide-items", "attend/real-shape")

    def spoil(self, made: sparf.Pages, layout: Layout, rows: int, reads: Sequence[HeadRead]) -> sparf.Pages:
        return replace(
            made,
            logical_bytes=made.logical_bytes * 2 // layout.item_bytes if layout.item_bytes != 2 else made.logical_bytes,
        )


class UnitsOfQueryHeads(Fault):
    """What is kept is counted for each query head."""

    requirement = "PLC-054"
    killed_by = case("pages/shared-head")

    def sparf_pages(self, request: Request) -> Result:
        found = super().sparf_pages(request)
        layout, wide = request["layout"], request["layout"]["key_channels"] + request["layout"]["value_channels"]
        units = sum(len(one) * request["rows"] for one in request["channels"])
        units += sum(len(one) * wide for one in request["positions"])
        return {**found, "logical_bytes": units * layout["item_bytes"]}


class DenseReadsKeysAlone(Ledger):
    """Dense attention is taken to read K alone."""

    killed_by = case("pages/base", "pages/everything-selected")

    def spoil(self, made: sparf.Pages, layout: Layout, rows: int, reads: Sequence[HeadRead]) -> sparf.Pages:
        return replace(made, dense_bytes=made.key_token_bytes)


class OneLayoutStored(Ledger):
    """The second layout is taken to cost nothing."""

    requirement = "PLC-055"
    killed_by = case("pages/base", "pages/everything-selected")

    def spoil(self, made: sparf.Pages, layout: Layout, rows: int, reads: Sequence[HeadRead]) -> sparf.Pages:
        return replace(made, key_channel_bytes=0)


class SecondLayoutAsLarge(Ledger):
    """Both layouts are taken to have the same pages."""

    requirement = "PLC-055"
    killed_by = case("pages/last-pages-partly-filled", "pages/heads-apart")

    def spoil(self, made: sparf.Pages, layout: Layout, rows: int, reads: Sequence[HeadRead]) -> sparf.Pages:
        return replace(made, key_channel_bytes=made.key_token_bytes)


class StoredAsRead(Ledger):
    """Only heads that are read are stored."""

    requirement = "PLC-055"
    killed_by = case("pages/heads-apart")

    def spoil(self, made: sparf.Pages, layout: Layout, rows: int, reads: Sequence[HeadRead]) -> sparf.Pages:
        read = sum(bool(one.token_pages) for one in reads)
        share = {name: getattr(made, name) * read // max(1, len(reads)) for name in ("key_token_bytes", "value_bytes")}
        return replace(made, **share)


class IndexUnchecked(Fault):
    """Copies are believed to hold the same rows."""

    requirement = "PLC-055"
    killed_by = case(
        "attend/diverged-token-rows",
        "attend/diverged-channel-rows",
        "attend/diverged-mean-rows",
        "attend/diverged-channel-rows-ahead",
        "append/diverged",
    )

    def flash_check_index(self, index: Mapping[str, int], rows: int) -> None:
        return


class ChannelCopyAheadIsFine(Fault):
    """A copy has to hold the rows at least."""

    requirement = "PLC-055"
    killed_by = case("attend/diverged-channel-rows-ahead")

    def flash_check_index(self, index: Mapping[str, int], rows: int) -> None:
        super().flash_check_index({name: min(count, rows) for name, count in index.items()}, rows)


class MeanNotChecked(Fault):
    """The mean is left out of the comparison."""

    requirement = "PLC-055"
    killed_by = case("attend/diverged-mean-rows", "append/diverged")

    def flash_check_index(self, index: Mapping[str, int], rows: int) -> None:
        super().flash_check_index({**index, "mean_rows": rows}, rows)


# --- appends -------------------------------------------------------------------------------------------------------


class Appends(Fault):
    """Another append."""

    requirement = "PLC-056"


class ChannelCopyLeftBehind(Appends):
    """K by channel is brought up to date later."""

    killed_by = case("append/one-row", "append/several-rows-across-pages", "append/long-history")

    def flash_indexed(self, index: Mapping[str, int], count: int) -> dict[str, int]:
        return {**super().flash_indexed(index, count), "channel_rows": index["channel_rows"]}


class MeanLeftBehind(Appends):
    """The mean is brought up to date later."""

    killed_by = case("append/one-row", "append/first-row", "append/in-one-go-or-one-by-one")

    def flash_mean(self, mean: Any, rows: int, new: Any) -> Any:
        return np.asarray(mean, np.float32)


class MeanOfMeans(Appends):
    """Old mean and new rows weigh alike."""

    killed_by = case("append/one-row", "append/long-history", "append/several-rows-across-pages")

    def flash_mean(self, mean: Any, rows: int, new: Any) -> Any:
        if not new.shape[0]:
            return super().flash_mean(mean, rows, new)
        return super().flash_mean(mean, new.shape[0] if rows else 0, new)


class OneRowCounted(Appends):
    """Several new rows move the mean like one."""

    killed_by = case("append/several-rows-across-pages", "append/in-one-go-or-one-by-one", "append/half-precision")

    def flash_mean(self, mean: Any, rows: int, new: Any) -> Any:
        return super().flash_mean(mean, rows, new[:1])


class MeanOfNothing(Appends):
    """The mean before the first row counts as a row."""

    killed_by = case("append/first-row", "append/in-one-go-or-one-by-one")

    def flash_mean(self, mean: Any, rows: int, new: Any) -> Any:
        return super().flash_mean(mean, max(1, rows), new)


class HalfMean(Appends):
    """The mean is kept in half precision."""

    killed_by = case("append/several-rows-across-pages", "append/long-history")

    def flash_mean(self, mean: Any, rows: int, new: Any) -> Any:
        return super().flash_mean(mean, rows, new).astype(np.float16).astype(np.float32)


class OneChannelPage(Appends):
    """A row by channel is taken to touch one page."""

    killed_by = case("append/one-row", "append/channels-that-fill-no-page")

    def flash_written(self, layout: Layout, heads: int, first: int, count: int) -> tuple[int, int]:
        token, channel = super().flash_written(layout, heads, first, count)
        return token, channel // sparf.blocks(layout.key_channels, layout.page_channels)


class ChannelsRoundedDown(Appends):
    """Blocks of channels are rounded down."""

    killed_by = case("append/channels-that-fill-no-page")

    def flash_written(self, layout: Layout, heads: int, first: int, count: int) -> tuple[int, int]:
        token, channel = super().flash_written(layout, heads, first, count)
        every = sparf.blocks(layout.key_channels, layout.page_channels)
        return token, channel // every * (layout.key_channels // layout.page_channels)


class WrittenByCount(Appends):
    """Pages are counted as if the new rows began on a boundary."""

    killed_by = case("append/several-rows-across-pages", "append/channels-that-fill-no-page")

    def flash_written(self, layout: Layout, heads: int, first: int, count: int) -> tuple[int, int]:
        return super().flash_written(layout, heads, 0, count)


class OneHeadWritten(Appends):
    """Pages of one head are counted."""

    killed_by = case("append/several-rows-across-pages", "append/half-precision")

    def flash_written(self, layout: Layout, heads: int, first: int, count: int) -> tuple[int, int]:
        return super().flash_written(layout, 1, first, count)


class NoRowTouchesAPage(Appends):
    """An append of no rows touches the page that is open."""

    killed_by = case("append/no-row")

    def flash_written(self, layout: Layout, heads: int, first: int, count: int) -> tuple[int, int]:
        return super().flash_written(layout, heads, first, max(1, count))


class WidthsUnchecked(Appends):
    """Values of another width are cut to the mean's."""

    killed_by = case("append/shapes-and-dtypes")

    def sparf_append(self, request: Request) -> Result:
        return super().sparf_append({**request, "v": request["v"][..., : request["v_mean"].shape[-1]]})


# --- the opt-in ----------------------------------------------------------------------------------------------------


class OptInUnasked(Fault):
    """SparF runs for whoever asks for attention in storage."""

    requirement = "PLC-057"
    killed_by = case("attend/opt-in")

    def flash_allowed(self, request: Request) -> None:
        return


class OptInByPrefix(Fault):
    """A name that begins like SparF's opts in."""

    requirement = "PLC-057"
    killed_by = case("attend/opt-in")

    def flash_allowed(self, request: Request) -> None:
        if not any(name.startswith("sparf") for name in request["approximations"]):
            super().flash_allowed(request)


class WholeSelectionIsExact(Fault):
    """Without an opt-in SparF runs where it would select every row."""

    requirement = "PLC-057"
    killed_by = case("attend/opt-in")

    def flash_allowed(self, request: Request) -> None:
        if request["rows"] < request["k"].shape[0]:
            super().flash_allowed(request)


class CallsItselfExact(Fault):
    """The output is called exact."""

    requirement = "PLC-057"
    killed_by = case("attend/base", "attend/misses-the-best-row")

    def sparf_attend(self, request: Request) -> Result:
        return {**super().sparf_attend(request), "exactness": "exact"}


FAULTS: tuple[type[Fault], ...] = (
    PageOfEachUnit,
    PagesByCount,
    FirstPageAlways,
    LastBlockForgotten,
    PagesOfTheLayoutsSwapped,
    HeadsDoNotShare,
    PagesOfAllHeads,
    AnyLayout,
    LayoutOfKeys,
    AnyUnits,
    UnitsInOrderAlone,
    SelectedBytesRead,
    EmptyPartsFiltered,
    KeptByPage,
    ValuesForgotten,
    SelectionForFree,
    ItemsOfTwoBytes,
    UnitsOfQueryHeads,
    DenseReadsKeysAlone,
    OneLayoutStored,
    SecondLayoutAsLarge,
    StoredAsRead,
    IndexUnchecked,
    ChannelCopyAheadIsFine,
    MeanNotChecked,
    ChannelCopyLeftBehind,
    MeanLeftBehind,
    MeanOfMeans,
    OneRowCounted,
    MeanOfNothing,
    HalfMean,
    OneChannelPage,
    ChannelsRoundedDown,
    WrittenByCount,
    OneHeadWritten,
    NoRowTouchesAPage,
    WidthsUnchecked,
    OptInUnasked,
    OptInByPrefix,
    WholeSelectionIsExact,
    CallsItselfExact,
)
"""In the order of the chapter."""
