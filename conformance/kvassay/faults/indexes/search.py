"""Faults of the ops that any index has."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from kvassay_reference.indexes.search import RowIndex

from ..base import Fault
from .base import Request, Result, case


class FoundByDistance(Fault):
    """Rows are ranked by Euclidean distance, the default of most index libraries."""

    requirement = "IDX-014"
    killed_by = case("search/held-out-lengths-exact", "search/held-out-lengths-90")

    def indexes_find(self, request: Request) -> Result:
        index = self.row_index(request)
        if request["queries"].shape[1] != index.keys.shape[1]:
            return super().indexes_find(request)
        legal = index.legal(tuple(request.get("range", (0, len(index.found)))))
        keys = np.asarray(index.keys)[legal]
        order = [np.argsort(((keys - q) ** 2).sum(1), kind="stable") for q in request["queries"]]
        return {"ids": [[legal[i] for i in one[: request["top_k"]]] for one in order]}


class FoundByCosine(Fault):
    """Keys are brought to unit length when the index is built."""

    requirement = "IDX-014"
    killed_by = case("search/held-out-lengths-exact", "search/held-out-lengths-90")

    def indexes_build(self, request: Request) -> Result:
        size = np.linalg.norm(request["keys"], axis=1, keepdims=True)
        unit = (request["keys"] / np.where(size > 0, size, 1)).astype(np.float32)
        return super().indexes_build({**request, "keys": unit})


class HalfIsScanned(Fault):
    """Every second row is never visited, as in a graph in which half of the rows are isolated."""

    requirement = "IDX-032"
    killed_by = case("search/held-out-even-90", "search/held-out-wide-90", "search/held-out-bundles-90")

    def indexes_find(self, request: Request) -> Result:
        found = super().indexes_find({**request, "top_k": 2 * request["top_k"]})["ids"]
        kept = [[i for i in one if i % 2 == 0] if len(one) > 12 else one for one in found]
        return {"ids": [one[: request["top_k"]] for one in kept]}


class SampleAnswers(Fault):
    """A query is answered with what the most similar query of the build sample finds."""

    requirement = "IDX-032"
    killed_by = case("search/held-out-even-50", "search/held-out-wide-50", "search/held-out-even-90")

    def open(self) -> None:
        super().open()
        self.taught = dict[str, np.ndarray]()

    def indexes_build(self, request: Request) -> Result:
        if "sample" in request:
            self.taught[request["index"]] = np.asarray(request["sample"])
        return super().indexes_build(request)

    def indexes_find(self, request: Request) -> Result:
        sample = self.taught.get(request["index"])
        if sample is None:
            return super().indexes_find(request)
        nearest = np.argmax(np.asarray(request["queries"]) @ sample.T, axis=1)
        return super().indexes_find({**request, "queries": sample[nearest]})


class PaddedWithTheBest(Fault):
    """A list that is too short is filled with its first row."""

    requirement = "IDX-005"
    killed_by = case("search/fewer-rows-than-asked-50", "search/one-row-50", "search/narrow-range")

    def indexes_find(self, request: Request) -> Result:
        found = super().indexes_find(request)["ids"]
        return {"ids": [one + one[:1] * (request["top_k"] - len(one)) for one in found]}


class FilteredAfterwards(Fault):
    """A range is applied to what was found without it."""

    requirement = "IDX-014"
    killed_by = case("search/range", "search/narrow-range")

    def indexes_find(self, request: Request) -> Result:
        first, end = request.get("range", (0, len(self.row_index(request).found)))
        whole = {name: value for name, value in request.items() if name != "range"}
        return {"ids": [[i for i in one if first <= i < end] for one in super().indexes_find(whole)["ids"]]}


class RangeHasItsEnd(Fault):
    """The end of a range is taken for its last row."""

    requirement = "IDX-028"
    killed_by = case("search/narrow-range")

    def indexes_find(self, request: Request) -> Result:
        if "range" in request:
            first, end = request["range"]
            request = {**request, "range": [first, min(end + 1, len(self.row_index(request).found))]}
        return super().indexes_find(request)


class FirstQueryForAll(Fault):
    """One list of candidates serves the batch."""

    requirement = "IDX-014"
    killed_by = case("search/each-query-by-itself", "search/held-out-even-50")

    def indexes_find(self, request: Request) -> Result:
        found = super().indexes_find(request)["ids"]
        return {"ids": [found[0]] * len(found)}


class EntryFromLastTime(Fault):
    """The walk begins where the last one ended and finds one row less when that was elsewhere."""

    requirement = "IDX-014"
    killed_by = case("search/same-question-same-answer")

    def open(self) -> None:
        super().open()
        self.ended = -1

    def indexes_find(self, request: Request) -> Result:
        found = super().indexes_find(request)["ids"]
        began, self.ended = self.ended, (found[-1] or [-1])[-1]
        return {"ids": [one if began < 0 or not one else one[:-1] for one in found]}


class OneIndexForAll(Fault):
    """Indexes are kept under one name: the last one that was built answers."""

    requirement = "IDX-007"
    killed_by = case("search/two-indexes", "search/change-one-of-two-indexes")

    def row_index(self, request: Request) -> RowIndex:
        super().row_index(request)
        return list(self.row_indexes.values())[-1]


class QueriesCut(Fault):
    """Queries are cut or filled to the width of the keys."""

    requirement = "IDX-007"
    killed_by = case("search/another-width")

    def indexes_find(self, request: Request) -> Result:
        width, queries = self.row_index(request).keys.shape[1], request["queries"]
        fitted = np.zeros((len(queries), width), np.float32)
        fitted[:, : queries.shape[1]] = queries[:, :width]
        return super().indexes_find({**request, "queries": fitted})


class AtLeastOne(Fault):
    """A count of zero is taken for one."""

    requirement = "IDX-014"
    killed_by = case("search/none-asked")

    def indexes_find(self, request: Request) -> Result:
        return super().indexes_find({**request, "top_k": max(1, request["top_k"])})


class EqualRowsAreOne(Fault):
    """Rows that score the same are taken for one row."""

    requirement = "IDX-005"
    killed_by = case("search/equal-rows")

    def indexes_find(self, request: Request) -> Result:
        keys = np.asarray(self.row_index(request).keys)
        found = super().indexes_find(request)["ids"]
        return {"ids": [list({keys[i].tobytes(): i for i in reversed(one)}.values())[::-1] for one in found]}


class _Changing(RowIndex):
    """What a changing index keeps, to be spoiled."""


class _FoundAfterRebuild(_Changing):
    def extend(self, keys: object) -> list[int]:
        before = len(self.found)
        ids = super().extend(keys)
        self.waiting = range(before, len(self.found))
        return ids

    def legal(self, span: tuple[int, int]) -> list[int]:
        return [i for i in super().legal(span) if i not in getattr(self, "waiting", ())]


class _Sliding(_Changing):
    def drop(self, ids: Sequence[int]) -> None:
        super().drop(ids)
        self.keys = np.delete(np.asarray(self.keys), list(ids), axis=0)
        self.keys = np.concatenate([self.keys, np.full((len(ids), self.keys.shape[1]), -9.0, np.float32)])
        left = sum(self.found)
        self.found = [i < left for i in range(len(self.found))]


class _Undead(_Changing):
    def legal(self, span: tuple[int, int]) -> list[int]:
        super().legal(span)
        return list(range(*span))


class _Reused(_Changing):
    def extend(self, keys: object) -> list[int]:
        free = [i for i, found in enumerate(self.found) if not found]
        if len(free) < len(keys):  # type: ignore[arg-type]
            return super().extend(keys)
        table = np.array(self.keys)
        for place, key in zip(free, keys, strict=False):  # type: ignore[call-overload]
            table[place], self.found[place] = key, True
        self.keys = table
        return free[: len(keys)]  # type: ignore[arg-type]


class _Kept(Fault):
    """The reference with another kind of index."""

    kind: type[RowIndex]

    def indexes_build(self, request: Request) -> Result:
        reply = super().indexes_build(request)
        self.row_indexes[request["index"]] = self.kind(self.row_indexes[request["index"]].keys)
        return reply


class AppendedRowsWait(_Kept):
    """Appended rows are found when the next ones come."""

    requirement = "IDX-001"
    killed_by = case("search/change-appended-rows-are-found", "search/change-grown-90")
    kind = _FoundAfterRebuild


class IdsSlide(_Kept):
    """Ids are places in an array, as in a flat FAISS index: a row that goes moves all behind it."""

    requirement = "IDX-004"
    killed_by = case("search/change-others-keep-their-ids", "search/change-dropped-rows-are-not-found")
    kind = _Sliding


class DroppedRowsAreFound(_Kept):
    """Rows that were taken out are counted out and found all the same."""

    requirement = "IDX-002"
    killed_by = case("search/change-dropped-rows-are-not-found", "search/change-all-rows-dropped")
    kind = _Undead


class IdsAreReused(_Kept):
    """A new row takes the lowest id that is free."""

    requirement = "IDX-004"
    killed_by = case("search/change-ids-are-given-once")
    kind = _Reused
