"""Faults of pools, entries, leases, and of the reduction of parts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from kvassay_reference import attention
from kvassay_reference.attention import State
from kvassay_reference.indexes import rows, store
from kvassay_reference.indexes.store import Pool, Slot

from ..base import Fault
from .base import Request, Result, case


class PoolFault(Fault):
    """A pool with a defect."""

    pool_type: ClassVar[type[Pool]] = Pool

    def index_new_pool(self, request: Request) -> Pool:
        return self.pool_type(request["channels"], request["value_channels"])


class FindsStoredRows(PoolFault):
    """Rows are found as soon as they are stored."""

    requirement = "IDX-001"
    killed_by = case("store/stored-is-not-found")

    class pool_type(Pool):  # noqa: N801
        """Stored is found."""

        def entries(self) -> list[int]:
            return [i for i, slot in enumerate(self.slots) if slot and slot.until is None]


class PublishesNothing(PoolFault):
    """Entries are published for ids without a row; the row is expected to follow."""

    requirement = "IDX-001"
    killed_by = case("store/entry-before-row", "store/all-entries-or-none")

    class pool_type(Pool):  # noqa: N801
        """Unknown ids are skipped."""

        def publish(self, ids: Sequence[int]) -> None:
            super().publish([i for i in ids if 0 <= i < len(self.slots) and self.slots[i]])


class HalfPublications(PoolFault):
    """Rows are published one after the other, and what was published stays when a later one fails."""

    requirement = "IDX-001"
    killed_by = case("store/all-entries-or-none")

    class pool_type(Pool):  # noqa: N801
        """Row by row."""

        def publish(self, ids: Sequence[int]) -> None:
            self.index_generation += 1
            for one in ids:
                for slot in self.stored([one]):
                    rows.need(slot.since is None, "ENTRY_TWICE")
                    slot.since = self.index_generation


class PublishesAgain(PoolFault):
    """A published row is published again, in a new generation."""

    requirement = "IDX-001"
    killed_by = case("store/entry-twice")

    class pool_type(Pool):  # noqa: N801
        """Nothing is checked."""

        def publish(self, ids: Sequence[int]) -> None:
            slots = self.stored(ids)
            self.index_generation += 1
            for slot in slots:
                slot.since = self.index_generation


class ReplacesPools(PoolFault):
    """Opening a pool again empties it."""

    requirement = "IDX-001"
    killed_by = case("store/two-pools")

    def indexes_open(self, request: Request) -> Result:
        self.index_pools.pop(request["pool"], None)
        return super().indexes_open(request)


class FreesReachableRows(PoolFault):
    """Slots are freed while their entries are still found."""

    requirement = "IDX-002"
    killed_by = case("store/reachable-row-is-not-freed")

    class pool_type(Pool):  # noqa: N801
        """Entries are not asked about."""

        def reclaim(self, ids: Sequence[int]) -> None:
            for slot in self.stored(ids):
                slot.until = slot.until or self.index_generation + 1
            super().reclaim(ids)


class FreesUnderLeases(PoolFault):
    """Slots are freed while look-ups read them."""

    requirement = "IDX-002"
    killed_by = case("store/row-under-lease", "store/lease-covers-what-could-be-found", "store/two-leases")

    class pool_type(Pool):  # noqa: N801
        """Nobody reads."""

        def is_read(self, slot: Slot) -> bool:
            return False


class LeasesCoverReturnedIds(PoolFault):
    """A lease covers the ids that its look-up returned, and not what its generation could find."""

    requirement = "IDX-002"
    killed_by = case("store/lease-covers-what-could-be-found")

    class pool_type(Pool):  # noqa: N801
        """Remembers what was returned."""

        def search(self, q: Any, count: int) -> tuple[list[int], int]:
            ids, lease = super().search(q, count)
            self.returned: dict[int, list[int]] = {**getattr(self, "returned", {}), lease: ids}
            return ids, lease

        def is_read(self, slot: Slot) -> bool:
            place = self.slots.index(slot)
            return any(place in self.returned[lease] for lease in self.leases)


class AnyLeaseHolds(PoolFault):
    """Slots are freed only when no lease at all is open, whatever it could have found."""

    requirement = "IDX-002"
    killed_by = case("store/later-lease-does-not-hold-it", "store/earlier-lease-does-not-hold-a-later-row")

    class pool_type(Pool):  # noqa: N801
        """Somebody always reads."""

        def is_read(self, slot: Slot) -> bool:
            return bool(self.leases)


class UnpublishedRowsWait(PoolFault):
    """A row without an entry waits for leases, too."""

    requirement = "IDX-002"
    killed_by = case("store/unpublished-row-is-freed")

    class pool_type(Pool):  # noqa: N801
        """Entries or not."""

        def is_read(self, slot: Slot) -> bool:
            return super().is_read(slot) or (slot.since is None and bool(self.leases))


class OneLease(PoolFault):
    """Giving one lease back ends all."""

    requirement = "IDX-002"
    killed_by = case("store/two-leases")

    class pool_type(Pool):  # noqa: N801
        """A flag in place of a count."""

        def release(self, lease: int) -> None:
            super().release(lease)
            self.leases.clear()


class EvictedIsFound(PoolFault):
    """An evicted row keeps its entry until it is freed."""

    requirement = "IDX-002"
    killed_by = case("store/evicted-is-not-found", "store/evict-what-is-found")

    class pool_type(Pool):  # noqa: N801
        """Old entries count."""

        def entries(self) -> list[int]:
            return [i for i, slot in enumerate(self.slots) if slot and slot.since is not None]


class EvictedIsLostAtOnce(PoolFault):
    """A row that is evicted is no candidate of earlier look-ups either."""

    requirement = "IDX-002"
    killed_by = case("store/evicted-is-not-found")

    class pool_type(Pool):  # noqa: N801
        """As if it had never been."""

        def evict(self, ids: Sequence[int]) -> None:
            super().evict(ids)
            for slot in self.stored(ids):
                slot.until = slot.since


class MovesUnderLeases(PoolFault):
    """Rows are moved together while look-ups are open."""

    requirement = "IDX-002"
    killed_by = case("store/no-move-under-a-lease")

    class pool_type(Pool):  # noqa: N801
        """Nobody is waited for."""

        def compact(self) -> list[tuple[int, int]]:
            held, self.leases = self.leases, {}
            moved = super().compact()
            self.leases = held
            return moved


class MoveKeepsEvictedRows(PoolFault):
    """A move brings evicted rows back to life."""

    requirement = "IDX-002"
    killed_by = case("store/move-drops-evicted-rows")

    class pool_type(Pool):  # noqa: N801
        """Forgets that they were withdrawn."""

        def compact(self) -> list[tuple[int, int]]:
            for slot in self.slots:
                if slot:
                    slot.until = None
            return super().compact()


class MovePublishes(PoolFault):
    """A move publishes rows that had no entry."""

    requirement = "IDX-001"
    killed_by = case("store/move-drops-evicted-rows")

    def indexes_compact(self, request: Request) -> Result:
        super().indexes_compact(request)
        pool = self.index_pools[request["pool"]]
        for slot in pool.slots:
            if slot:
                slot.since = pool.index_generation
        return {"moved": [], **pool.view()}


class EvictsAnything(PoolFault):
    """Rows without an entry are evicted, and again, each time in a new generation."""

    requirement = "IDX-002"
    killed_by = case("store/evict-what-is-found")

    class pool_type(Pool):  # noqa: N801
        """Not asked whether it is found."""

        def evict(self, ids: Sequence[int]) -> None:
            rows.check_ids(ids, len(self.slots))
            self.index_generation += 1
            for slot in self.stored(ids):
                slot.until = self.index_generation


class IgnoresTheRowMap(PoolFault):
    """Ids are used whatever row map they belong to: a rebuild in place."""

    requirement = "IDX-003"
    killed_by = case("store/row-map-of-another-generation", "store/generation-that-never-was")

    class pool_type(Pool):  # noqa: N801
        """Any map will do."""

        def check(self, ids: Sequence[int], index_generation: int, row_map_generation: int) -> None:
            super().check(ids, index_generation, self.row_map_generation)


class ServesMovedRows(PoolFault):
    """A gather under an old lease and map fetches whatever stands in the slots now."""

    requirement = "IDX-003"
    killed_by = case("store/no-other-tokens-row")

    def indexes_gather(self, request: Request) -> Result:
        pool = self.index_pools[request["pool"]]
        if request["lease"] not in pool.leases and request["row_map_generation"] != pool.row_map_generation:
            pool.leases[request["lease"]] = pool.index_generation
            request = {
                **request,
                "index_generation": pool.index_generation,
                "row_map_generation": pool.row_map_generation,
            }
        return super().indexes_gather(request)


class AnyGeneration(PoolFault):
    """A generation that was never published is as good as any."""

    requirement = "IDX-003"
    killed_by = case("store/generation-that-never-was")

    class pool_type(Pool):  # noqa: N801
        """The newest is taken instead."""

        def check(self, ids: Sequence[int], index_generation: int, row_map_generation: int) -> None:
            known = 1 <= index_generation <= self.index_generation
            super().check(ids, index_generation if known else self.index_generation, row_map_generation)


class NewestGenerationOnly(PoolFault):
    """Every publication makes running look-ups start over."""

    requirement = "IDX-003"
    killed_by = case("store/older-generation-of-the-same-map")

    class pool_type(Pool):  # noqa: N801
        """Older generations are stale."""

        def check(self, ids: Sequence[int], index_generation: int, row_map_generation: int) -> None:
            super().check(ids, index_generation, row_map_generation)
            rows.need(index_generation == self.index_generation, "STALE_INDEX_GENERATION")


class MoveKeepsTheMap(PoolFault):
    """Rows are moved under the same row map generation."""

    requirement = "IDX-003"
    killed_by = case("store/row-map-of-another-generation", "store/no-move-under-a-lease")

    class pool_type(Pool):  # noqa: N801
        """The number stays."""

        def compact(self) -> list[tuple[int, int]]:
            moved = super().compact()
            self.row_map_generation -= 1
            return moved


class MoveInSlotOrder(PoolFault):
    """Rows are moved together in the order of their slots."""

    requirement = "IDX-003"
    killed_by = case("store/no-move-under-a-lease")

    class pool_type(Pool):  # noqa: N801
        """Positions are forgotten."""

        def compact(self) -> list[tuple[int, int]]:
            for place, slot in enumerate(self.slots):
                if slot:
                    slot.position = place
            return super().compact()


class CandidatesOfAnyGeneration(PoolFault):
    """Whatever is stored is a candidate of every generation: a reused slot answers to its old id."""

    requirement = "IDX-004"
    killed_by = case(
        "store/reused-slot", "store/newer-entries-are-not-of-this-look-up", "store/unpublished-row-is-no-candidate"
    )

    class pool_type(Pool):  # noqa: N801
        """Stored is enough."""

        def check(self, ids: Sequence[int], index_generation: int, row_map_generation: int) -> None:
            super().check([], index_generation, row_map_generation)
            rows.check_ids(ids, len(self.slots))
            rows.need(all(self.slots[i] for i in ids), "CANDIDATE_NOT_INDEXED")


class OnePastTheEnd(PoolFault):
    """The id behind the last row is taken for the last row."""

    requirement = "IDX-004"
    killed_by = case("store/out-of-range")

    class pool_type(Pool):  # noqa: N801
        """Clamped."""

        def check(self, ids: Sequence[int], index_generation: int, row_map_generation: int) -> None:
            super().check([min(i, len(self.slots) - 1) for i in ids], index_generation, row_map_generation)

        def stored(self, ids: Sequence[int]) -> list[Slot]:
            return super().stored([min(i, len(self.slots) - 1) if i == len(self.slots) else i for i in ids])


class NewestSlotFirst(PoolFault):
    """Freed slots are reused last in, first out."""

    requirement = "IDX-004"
    killed_by = case("store/lowest-free-slot")

    class pool_type(Pool):  # noqa: N801
        """A stack of slots."""

        def append(self, k: Any, v: Any) -> tuple[list[int], list[int]]:
            ids: list[int] = []
            positions: list[int] = []
            for row in range(k.shape[0]):
                waiting = sorted(self.free)
                self.free = [waiting.pop()] if waiting else []
                one, place = super().append(k[row : row + 1, ...], v[row : row + 1, ...])
                self.free = waiting
                ids += one
                positions += place
            return ids, positions


class PositionsFromSlots(PoolFault):
    """A row's position is its slot."""

    requirement = "IDX-004"
    killed_by = case("store/reused-slot", "store/lowest-free-slot")

    def indexes_append(self, request: Request) -> Result:
        reply = super().indexes_append(request)
        return {**reply, "positions": reply["ids"]}


class ValidationKeepsRepeats(Fault):
    """Candidates are checked and passed on with their repeats."""

    requirement = "IDX-005"
    killed_by = case("store/each-id-once")

    def indexes_validate(self, request: Request) -> Result:
        super().indexes_validate(request)
        return {"ids": sorted(i for i in request["ids"] if i not in request["persistent"])}


class ValidationKeepsPersistentRows(Fault):
    """Rows that attention has already are validated again."""

    requirement = "IDX-005"
    killed_by = case("store/each-id-once")

    def indexes_validate(self, request: Request) -> Result:
        return super().indexes_validate({**request, "persistent": []})


class ValidationInSearchOrder(Fault):
    """Validated ids keep the order of their scores."""

    requirement = "IDX-005"
    killed_by = case("store/one-query", "store/older-generation-of-the-same-map")

    def indexes_validate(self, request: Request) -> Result:
        kept = set(super().indexes_validate(request)["ids"])
        return {"ids": [i for i in dict.fromkeys(request["ids"]) if i in kept]}


class GathersRepeats(Fault):
    """An id that stands twice is fetched twice."""

    requirement = "IDX-005"
    killed_by = case("store/gather-takes-each-row-once")

    def indexes_gather(self, request: Request) -> Result:
        if len(set(request["ids"])) < len(request["ids"]):
            request = {**request, "ids": list(dict.fromkeys(request["ids"]))}
        return super().indexes_gather(request)


class GathersWithoutLease(PoolFault):
    """Rows are fetched whether or not a lease is held."""

    requirement = "IDX-006"
    killed_by = case("store/gather-needs-a-lease", "store/lease-of-another-generation")

    class pool_type(Pool):  # noqa: N801
        """Any ticket."""

        def gather(self, ids: Sequence[int], index_generation: int, row_map_generation: int, lease: int) -> list[Slot]:
            rows.check_once(ids)
            self.check(ids, index_generation, row_map_generation)
            return self.stored(ids)


class LeaseOfAnyGeneration(PoolFault):
    """A lease of one generation is good for the rows of another."""

    requirement = "IDX-006"
    killed_by = case("store/lease-of-another-generation")

    class pool_type(Pool):  # noqa: N801
        """Open is enough."""

        def gather(self, ids: Sequence[int], index_generation: int, row_map_generation: int, lease: int) -> list[Slot]:
            rows.need(lease in self.leases, "LEASE_NOT_HELD")
            rows.check_once(ids)
            self.check(ids, index_generation, row_map_generation)
            return self.stored(ids)


class GathersInSlotOrder(Fault):
    """Rows come in the order of the pool, under the ids as they were asked for."""

    requirement = "IDX-006"
    killed_by = case("store/gather-in-the-order-asked", "store/one-query")

    def indexes_gather(self, request: Request) -> Result:
        reply = super().indexes_gather({**request, "ids": sorted(request["ids"])})
        return {**reply, "ids": list(request["ids"])}


class ValuesInSlotOrder(Fault):
    """Keys come as asked, values in the order of the pool."""

    requirement = "IDX-006"
    killed_by = case("store/gather-in-the-order-asked", "store/one-query")

    def indexes_gather(self, request: Request) -> Result:
        return {
            **super().indexes_gather(request),
            "v": super().indexes_gather({**request, "ids": sorted(request["ids"])})["v"],
        }


class GatherBytesOfKeys(PoolFault):
    """The gather counts keys and not values."""

    requirement = "IDX-012"
    killed_by = case("store/bytes-of-other-shapes")

    class pool_type(Pool):  # noqa: N801
        """Half of it."""

        def gather_bytes(self, rows: int) -> int:
            return rows * self.channels * store.ITEM_BYTES


class StoresAnyWidth(PoolFault):
    """Rows of another width are cut or padded."""

    requirement = "IDX-006"
    killed_by = case("store/rows-of-another-width")

    class pool_type(Pool):  # noqa: N801
        """Made to fit."""

        def append(self, k: Any, v: Any) -> tuple[list[int], list[int]]:
            count = min(k.shape[0], v.shape[0])
            return super().append(
                *(np.resize(x, (count, w)) for x, w in ((k, self.channels), (v, self.value_channels)))
            )


class Searches(PoolFault):
    """A pool that ranks otherwise."""


class CosineSearch(Searches):
    """Rows are ranked by cosine."""

    requirement = "IDX-014"
    killed_by = case("store/inner-product-not-cosine")

    class pool_type(Pool):  # noqa: N801
        """Lengths are divided out."""

        def search(self, q: Any, count: int) -> tuple[list[int], int]:
            ids, lease = super().search(q, len(self.slots))
            size = {i: float(np.linalg.norm(slot.k)) for i, slot in zip(ids, self.stored(ids), strict=True)}
            score = {i: float(slot.k @ q) / size[i] for i, slot in zip(ids, self.stored(ids), strict=True)}
            return sorted(ids, key=lambda i: (-score[i], i))[:count], lease


class NearestSearch(Searches):
    """Rows are ranked by distance, as vector indexes do unless they are told otherwise."""

    requirement = "IDX-014"
    killed_by = case("store/inner-product-not-cosine", "store/eighty-rows-1", "store/eighty-rows-3")

    class pool_type(Pool):  # noqa: N801
        """By L2."""

        def search(self, q: Any, count: int) -> tuple[list[int], int]:
            ids, lease = super().search(q, len(self.slots))
            far = {i: float(np.sum((slot.k - q) ** 2)) for i, slot in zip(ids, self.stored(ids), strict=True)}
            return sorted(ids, key=lambda i: (far[i], i))[:count], lease


class TiesToTheHigherId(Searches):
    """Of equal scores the higher id is found first."""

    requirement = "IDX-014"
    killed_by = case("store/ties-to-the-lower-id")

    class pool_type(Pool):  # noqa: N801
        """Last come, first found."""

        def search(self, q: Any, count: int) -> tuple[list[int], int]:
            ids, lease = super().search(q, len(self.slots))
            score = {i: float(slot.k @ q) for i, slot in zip(ids, self.stored(ids), strict=True)}
            return sorted(ids, key=lambda i: (-score[i], -i))[:count], lease


class GrowsDownwards(Searches):
    """A larger budget searches another part of the index: it returns rows from the sixth on."""

    requirement = "IDX-014"
    killed_by = case("store/more-is-a-superset")

    class pool_type(Pool):  # noqa: N801
        """Begins later."""

        def search(self, q: Any, count: int) -> tuple[list[int], int]:
            ids, lease = super().search(q, 2 * count)
            return (ids[count - 1 :] if count == 6 else ids[:count]), lease


class WholeIndex(Searches):
    """Whatever is published is a candidate, and the caller is left to cut."""

    requirement = "IDX-014"
    killed_by = case("store/one-query")

    class pool_type(Pool):  # noqa: N801
        """No budget."""

        def search(self, q: Any, count: int) -> tuple[list[int], int]:
            return super().search(q, len(self.slots))


class SearchesBeforePublication(PoolFault):
    """A look-up in an index that was never published finds nothing and says so as a result."""

    requirement = "IDX-001"
    killed_by = case("store/stored-is-not-found", "store/two-pools")

    class pool_type(Pool):  # noqa: N801
        """Generation 0 is a generation."""

        def search(self, q: Any, count: int) -> tuple[list[int], int]:
            if self.index_generation:
                return super().search(q, count)
            self.tickets += 1
            self.leases[self.tickets] = 0
            return [], self.tickets


class SharedPool(Fault):
    """All names mean one pool."""

    requirement = "IDX-003"
    killed_by = case("store/two-pools")

    def indexes_open(self, request: Request) -> Result:
        if self.index_pools and request["pool"] not in self.index_pools:
            self.index_pools[request["pool"]] = next(iter(self.index_pools.values()))
            return self.index_pool(request).view()
        return super().indexes_open(request)


# --- reduction -----------------------------------------------------------------------------------------------------


class PartsFromAnyFrame(Fault):
    """Parts are merged whatever positions, mask and scale they had."""

    requirement = "IDX-009"
    killed_by = case("reduce/one-frame-small", "reduce/one-frame-wider")

    def index_check_parts(self, q: Any, parts: Sequence[Request]) -> None:
        super().index_check_parts(q, [{**part, "rope": "", "mask": "", "scale": 1.0} for part in parts])


class FirstPartsScale(Fault):
    """Every part is scaled as the reference's default says."""

    requirement = "IDX-009"
    killed_by = case("reduce/one-frame-small", "reduce/one-frame-wider")

    def index_part_state(self, q: Any, part: Request) -> State:
        return super().index_part_state(q, {**part, "scale": 0.5})


class AnyShapes(Fault):
    """Rows without ids, and ids without rows, are reduced all the same."""

    requirement = "IDX-009"
    killed_by = case("reduce/parts-that-do-not-fit")

    def index_check_parts(self, q: Any, parts: Sequence[Request]) -> None:
        return

    def index_part_state(self, q: Any, part: Request) -> State:
        width = min(q.shape[1], part["k"].shape[1])
        return super().index_part_state(q[:, :width], {**part, "k": part["k"][:, :width], "v": part["v"][:, :2]})


class RowsCountedTwice(Fault):
    """Ids of the parts are not compared: a row in both counts twice."""

    requirement = "IDX-010"
    killed_by = case("reduce/row-twice-small", "reduce/row-twice-wider")

    def index_check_parts(self, q: Any, parts: Sequence[Request]) -> None:
        first = 0
        fresh = []
        for part in parts:
            fresh.append({**part, "ids": list(range(first, first + len(part["ids"])))})
            first += len(part["ids"])
        super().index_check_parts(q, fresh)


class Reduces(Fault):
    """States of parts that are wrong."""

    def spoiled(self, state: State) -> State:
        """The state with its defect."""
        return state

    def index_part_state(self, q: Any, part: Request) -> State:
        return self.spoiled(super().index_part_state(q, part))


class NoMaximum(Reduces):
    """Scores are exponentiated as they are: MInference's retr_attn at fb56c91 overflows float32 near 88."""

    requirement = "IDX-010"
    killed_by = case("reduce/large-logits")

    def spoiled(self, state: State) -> State:
        with np.errstate(over="ignore", invalid="ignore"):
            factor = np.exp(np.where(np.isinf(state.m), 0.0, state.m))
            return State(np.where(np.isinf(state.m), state.m, 0.0), factor * state.l, factor[:, None] * state.u)


class EmptyPartIsNaN(Reduces):
    """The state over no rows is 0/0."""

    requirement = "IDX-010"
    killed_by = case("reduce/nothing-retrieved")

    def spoiled(self, state: State) -> State:
        return State(state.m, state.l, np.where(state.l[:, None] > 0, state.u, np.nan))


class EmptyPartHasMass(Reduces):
    """A part without rows has the mass of a score of zero."""

    requirement = "IDX-010"
    killed_by = case("reduce/nothing-retrieved")

    def spoiled(self, state: State) -> State:
        empty = state.l == 0
        return State(np.where(empty, 0.0, state.m), np.where(empty, 1.0, state.l), state.u)


class ShortExponent(Reduces):
    """exp is a power of two with log2(e) to five digits."""

    requirement = "IDX-010"
    killed_by = case("reduce/union-wider")

    def index_part_state(self, q: Any, part: Request) -> State:
        return super().index_part_state(q, {**part, "scale": part["scale"] * (1.4427 / math.log2(math.e))})


class LastPartWins(Fault):
    """Parts are averaged by their row counts."""

    requirement = "IDX-010"
    killed_by = case("reduce/union-small", "reduce/union-wider")

    def indexes_reduce(self, request: Request) -> Result:
        with_rows = [part for part in request["parts"] if part["ids"]]
        super().indexes_reduce(request)
        q = request["q"]
        if not with_rows:
            return super().indexes_reduce(request)
        states = [self.index_part_state(q, part) for part in with_rows]
        counts = np.asarray([len(part["ids"]) for part in with_rows], np.float32)
        out = sum(c / counts.sum() * attention.output(s) for c, s in zip(counts, states, strict=True))
        return {"state": self.write_state(attention.from_output(out, attention.log_sum_exp(attention.merge(states))))}


# --- errors --------------------------------------------------------------------------------------------------------


class Stages(Fault):
    """Errors of the four stages, one of which is measured wrongly."""

    requirement = "IDX-011"

    def changed(self, found: Result, data: Mapping[str, Any], request: Request) -> Result:
        """What replaces some errors."""
        return {}

    def index_stages(self, data: Mapping[str, Any], request: Request) -> Result:
        found = super().index_stages(data, request)
        return {**found, **self.changed(found, data, request)}


class MeanRepresentation(Stages):
    """The mean error of proxies stands for the largest."""

    killed_by = case("errors/proxies-only")

    def changed(self, found: Result, data: Mapping[str, Any], request: Request) -> Result:
        return {"representation": [x / data["k"].shape[0] for x in found["representation"]]}


class RepresentationOfHeadZero(Stages):
    """One error is told for all heads."""

    killed_by = case("errors/proxies-only")

    def changed(self, found: Result, data: Mapping[str, Any], request: Request) -> Result:
        return {"representation": found["representation"][:1] * len(found["representation"])}


class RowsInPlaceOfMass(Stages):
    """The omitted share is counted in rows."""

    killed_by = case("errors/omitted-rows")

    def changed(self, found: Result, data: Mapping[str, Any], request: Request) -> Result:
        total = data["k"].shape[0]
        return {"omitted_mass": [1 - len(support) / total for support in request["support"]]}


class UnscaledMass(Stages):
    """Mass is measured without the scale."""

    killed_by = case("errors/omitted-rows")

    def changed(self, found: Result, data: Mapping[str, Any], request: Request) -> Result:
        other = super(Stages, self).index_stages(data, {**request, "scale": 1.0})
        return {"omitted_mass": other["omitted_mass"]}


class PayloadOfKeys(Stages):
    """Only keys are compared."""

    killed_by = case("errors/payload-only")

    def changed(self, found: Result, data: Mapping[str, Any], request: Request) -> Result:
        k, _ = self.index_fetched(data, request["gathered"])
        return {"payload": float(np.max(np.abs(k - data["k"])))}


class PayloadAssumedExact(Stages):
    """The method fetches full rows, so its payload error is zero."""

    killed_by = case("errors/payload-only")

    def changed(self, found: Result, data: Mapping[str, Any], request: Request) -> Result:
        return {"payload": 0.0}


class ReductionOverThePool(Stages):
    """The reduction is measured against the pool's rows, so that a payload error counts twice."""

    killed_by = case("errors/reduction-reads-what-it-was-given")

    def index_fetched(self, data: Mapping[str, Any], gathered: Request) -> tuple[Any, Any]:
        return data["k"], data["v"]

    def changed(self, found: Result, data: Mapping[str, Any], request: Request) -> Result:
        k, v = super().index_fetched(data, request["gathered"])
        return {"payload": float(max(np.max(np.abs(k - data["k"])), np.max(np.abs(v - data["v"]))))}


class ReductionAgainstDense(Stages):
    """The output is compared with dense attention, which counts the omitted rows once more."""

    killed_by = case("errors/omitted-rows")

    def changed(self, found: Result, data: Mapping[str, Any], request: Request) -> Result:
        every = [list(range(data["k"].shape[0]))] * len(request["support"])
        return {"reduction": super(Stages, self).index_stages(data, {**request, "support": every})["reduction"]}


class SupportUnchecked(Stages):
    """A row twice in a support, or beyond the pool, is dropped in silence."""

    killed_by = case("errors/support-is-a-set")

    def indexes_errors(self, request: Request) -> Result:
        total = request["k"].shape[0]
        support = [[i for i in dict.fromkeys(ids) if i < total] for ids in request["support"]]
        return super().indexes_errors({**request, "support": support})


class BooksEverythingAsMass(Stages):
    """A record of one error: the other three are said to be zero."""

    killed_by = case("errors/exact-index")

    def changed(self, found: Result, data: Mapping[str, Any], request: Request) -> Result:
        zeros = [0.0] * len(found["reduction"])
        return {"reduction": zeros, "representation": zeros, "payload": 0.0}
