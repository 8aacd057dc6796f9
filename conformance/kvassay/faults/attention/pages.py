"""Faults of *Pages*: the order of the block table, and the rest of the last page (ATT-011, ATT-012, ATT-033)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from kvassay_reference import attention
from kvassay_reference.attention import State

from ...adapters.base import Rejected
from ..base import found
from .base import Arguments, Fault, Request, case, is_sound, kept, unpaged


class PagesInPhysicalOrder(Fault):
    """The block table is ignored: logical page i is physical page i."""

    requirement = "ATT-011"
    killed_by = case(
        "pages/physical-order-differs",
        "pages/pages-of-one-row",
        "real/pages-of-16-bfloat16-t4097",
        "real/pages-of-64-float16-t4097",
        "real/pages-of-256-float32-t4097",
    )

    def spoil(self, a: Arguments) -> Arguments:
        sound = a["pages"] is not None and is_sound(a)
        return {"pages": replace(a["pages"], table=range(len(a["k"])))} if sound else {}


class TablePaddingChecked(Fault):
    """Table entries behind the last row are taken for pages."""

    requirement = "ATT-011"
    killed_by = case("pages/table-longer-than-needed")

    def attention_dense(self, request: Request) -> dict[str, Any]:
        if "pages" in request and not all(0 <= page < request["k"].shape[0] for page in request["pages"]["table"]):
            raise Rejected("PAGE_OUT_OF_RANGE", "a page of the table does not exist")
        return super().attention_dense(request)


class PageEdgeRowDropped(Fault):
    """The last row of every page but the last is skipped."""

    requirement = "ATT-011"
    killed_by = case(
        "pages/window-across-a-page-edge",
        "real/pages-of-16-bfloat16-t4097",
        "real/pages-of-64-float16-t4097",
        "real/pages-of-256-float32-t4097",
    )

    def spoil(self, a: Arguments) -> Arguments:
        if a["pages"] is None or not is_sound(a):
            return {}
        rows, length = np.arange(a["pages"].rows), a["pages"].page_rows
        return kept(a, (rows % length < length - 1) | (rows // length == rows[-1] // length))


class PageLoadedOnce(Fault):
    """A physical page that the table names again is not loaded again."""

    requirement = "ATT-011"
    killed_by = case("pages/page-named-twice")

    def spoil(self, a: Arguments) -> Arguments:
        if a["pages"] is None or not is_sound(a):
            return {}
        table = attention.used_pages(a["pages"])
        first = np.array([page not in table[:i] for i, page in enumerate(table)], bool)
        return kept(a, np.repeat(first, a["pages"].page_rows)[: a["pages"].rows])


class PageIdsIn16Bits(Fault):
    """Page ids are cut to 15 bits."""

    requirement = "ATT-011"
    killed_by = case("pages/beyond-16-bits")
    mask: ClassVar[int] = 0x7FFF

    def spoil(self, a: Arguments) -> Arguments:
        if a["pages"] is None or not is_sound(a):
            return {}
        return {"pages": replace(a["pages"], table=[page & self.mask for page in attention.used_pages(a["pages"])])}


class PageIdsInUint16(PageIdsIn16Bits):
    """Page ids are cut to 16 bits."""

    requirement = "ATT-011"
    killed_by = case("pages/beyond-16-bits")
    mask = 0xFFFF


class GatheredPagesKept(Fault):
    """Gathered rows are kept by table and shape, and answer for whatever the pages hold later."""

    requirement = "ATT-033"
    killed_by = case("pages/same-table-other-rows")

    def open(self) -> None:
        super().open()
        self.gathered: dict[Any, Arguments] = {}

    def spoil(self, a: Arguments) -> Arguments:
        if a["pages"] is None or not is_sound(a):
            return {}
        key = (tuple(a["pages"].table), a["pages"].rows, a["k"].shape, a["v"].shape, a["k"].dtype)
        return self.gathered.setdefault(key, unpaged(a))


class LastPageWhole(Fault):
    """Every slot of the last page is a row."""

    requirement = "ATT-012"
    killed_by = case("pages/rest-of-the-last-page")

    def spoil(self, a: Arguments) -> Arguments:
        if a["pages"] is None or not is_sound(a):
            return {}
        rows = -(-a["pages"].rows // a["pages"].page_rows) * a["pages"].page_rows
        return {"pages": replace(a["pages"], rows=rows), "positions": np.arange(rows) + int(a["positions"][0])}


class LastPageByModulo(Fault):
    """The last page holds rows % page_rows rows, so a full one holds none."""

    requirement = "ATT-012"
    killed_by = case("pages/last-page-full")

    def spoil(self, a: Arguments) -> Arguments:
        full = a["pages"] is not None and is_sound(a) and a["pages"].rows % a["pages"].page_rows == 0
        return kept(a, slice(0, a["pages"].rows - a["pages"].page_rows)) if full else {}


class LastPageWeighed(Fault):
    """Free slots of the last page are multiplied by weight zero, so their NaN comes through."""

    requirement = "ATT-012"
    killed_by = case("pages/rest-of-the-last-page-is-nan")

    def reduce(self, request: Request) -> State:
        state, a = super().reduce(request), self.arguments(request)
        if a["pages"] is None:
            return state
        last = a["v"][attention.used_pages(a["pages"])[-1]].astype(np.float32)
        free = last[a["pages"].rows % a["pages"].page_rows or a["pages"].page_rows :]
        return state._replace(u=state.u + 0 * free.sum((0, 1)))


FAULTS = found(globals())
