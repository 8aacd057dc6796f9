"""The life of rows and of the index entries that find them: row before entry, entry away before row.

A slot's number is the id that a search returns. The row map says which row an id means; it changes when rows move. An
entry is found by the generations of the index from its publication up to its eviction. Sources: 01H, 07C, 07E, 07G1.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from array_api_compat import array_namespace

from .rows import Array, check_ids, check_once, need, top

ITEM_BYTES = 4


@dataclass
class Slot:
    """One stored row."""

    position: int
    k: Array
    """[d]"""
    v: Array
    """[d_v]"""
    since: int | None = None
    """First generation of the index that finds it."""
    until: int | None = None
    """First generation that no longer does."""

    def found_by(self, generation: int) -> bool:
        """Whether a generation of the index finds this row."""
        return self.since is not None and self.since <= generation and (self.until is None or generation < self.until)


class Pool:
    """Authoritative rows and their index."""

    def __init__(self, channels: int, value_channels: int) -> None:
        """Empty; nothing is published."""
        self.channels, self.value_channels = channels, value_channels
        self.slots: list[Slot | None] = []
        self.free: list[int] = []
        self.next_position = 0
        self.row_map_generation, self.index_generation = 1, 0
        self.leases: dict[int, int] = {}
        """Ticket to the generation that it covers."""
        self.tickets = 0

    def view(self) -> dict[str, Any]:
        """Counts and generations."""
        return {
            "stored": sum(slot is not None for slot in self.slots),
            "searchable": len(self.entries()),
            "index_generation": self.index_generation,
            "row_map_generation": self.row_map_generation,
            "leases": len(self.leases),
        }

    def entries(self) -> list[int]:
        """Ids that the newest generation finds."""
        return [i for i, slot in enumerate(self.slots) if slot and slot.found_by(self.index_generation)]

    def stored(self, ids: Sequence[int]) -> list[Slot]:
        """The rows of these ids; refuses an id without one."""
        found = [self.slots[i] if 0 <= i < len(self.slots) else None for i in ids]
        need(all(slot is not None for slot in found), "ENTRY_WITHOUT_ROW")
        return [slot for slot in found if slot is not None]

    def append(self, k: Array, v: Array) -> tuple[list[int], list[int]]:
        """Store rows, [n, d] and [n, d_v], in the lowest free slots; ids and positions."""
        right = k.shape == (k.shape[0], self.channels) and v.shape == (k.shape[0], self.value_channels)
        need(right, "SHAPE_MISMATCH", f"{tuple(k.shape)} and {tuple(v.shape)}")
        ids, positions = [], []
        for row in range(k.shape[0]):
            if self.free:
                one = heapq.heappop(self.free)
            else:
                one = len(self.slots)
                self.slots.append(None)
            self.slots[one] = Slot(self.next_position, k[row, ...], v[row, ...])
            ids.append(one)
            positions.append(self.next_position)
            self.next_position += 1
        return ids, positions

    def publish(self, ids: Sequence[int]) -> None:
        """A new generation that also finds these rows."""
        slots = self.stored(ids)
        need(len(set(ids)) == len(ids) and all(slot.since is None for slot in slots), "ENTRY_TWICE")
        self.index_generation += 1
        for slot in slots:
            slot.since = self.index_generation

    def search(self, q: Array, count: int) -> tuple[list[int], int]:
        """Entries with the largest inner products, best first, and a lease of the generation that was searched."""
        need(q.shape == (self.channels,), "SHAPE_MISMATCH")
        need(self.index_generation > 0, "INDEX_NOT_PUBLISHED")
        ids = self.entries()
        self.tickets += 1
        self.leases[self.tickets] = self.index_generation
        if not ids:
            return [], self.tickets
        xp = array_namespace(q)
        keys = xp.stack([slot.k for slot in self.stored(ids)])
        return [ids[i] for i in top(keys @ q, count)], self.tickets

    def check(self, ids: Sequence[int], index_generation: int, row_map_generation: int) -> None:
        """Refuse ids of another row map, an unknown generation, or rows that this generation does not find."""
        need(row_map_generation == self.row_map_generation, "ROW_MAP_MISMATCH")
        need(1 <= index_generation <= self.index_generation, "STALE_INDEX_GENERATION")
        check_ids(ids, len(self.slots))
        rows = [self.slots[i] for i in ids]
        need(all(row is not None and row.found_by(index_generation) for row in rows), "CANDIDATE_NOT_INDEXED")

    def gather(self, ids: Sequence[int], index_generation: int, row_map_generation: int, lease: int) -> list[Slot]:
        """Full rows under a lease of the generation that found them."""
        check_once(ids)
        need(self.leases.get(lease) == index_generation, "LEASE_NOT_HELD")
        self.check(ids, index_generation, row_map_generation)
        return self.stored(ids)

    def gather_bytes(self, rows: int) -> int:
        """Payload of so many rows."""
        return rows * (self.channels + self.value_channels) * ITEM_BYTES

    def release(self, lease: int) -> None:
        """Give a lease back."""
        need(lease in self.leases, "LEASE_NOT_HELD")
        del self.leases[lease]

    def evict(self, ids: Sequence[int]) -> None:
        """A new generation that does not find these rows; older look-ups may still read them."""
        check_ids(ids, len(self.slots))
        rows = [self.slots[i] for i in ids]
        need(all(row and row.found_by(self.index_generation) for row in rows), "CANDIDATE_NOT_INDEXED")
        self.index_generation += 1
        for row in rows:
            if row:
                row.until = self.index_generation

    def reclaim(self, ids: Sequence[int]) -> None:
        """Free slots that no generation finds any more and no lease covers."""
        slots = self.stored(ids)
        need(all(slot.since is None or slot.until is not None for slot in slots), "ENTRY_STILL_REACHABLE")
        need(not any(self.is_read(slot) for slot in slots), "ROW_UNDER_LEASE")
        for one in set(ids):
            self.slots[one] = None
            heapq.heappush(self.free, one)

    def is_read(self, slot: Slot) -> bool:
        """Whether a look-up that could find the row is open."""
        return any(slot.found_by(generation) for generation in self.leases.values())

    def compact(self) -> list[tuple[int, int]]:
        """Move live rows together, in the order of their positions; old and new ids."""
        need(not self.leases, "ROW_UNDER_LEASE")
        live = sorted((slot.position, i) for i, slot in enumerate(self.slots) if slot and slot.until is None)
        self.row_map_generation += 1
        self.index_generation += 1
        self.slots = [self.slots[i] for _, i in live]
        self.free = []
        for slot in self.slots:
            if slot and slot.since is not None:
                slot.since = self.index_generation
        return [(old, new) for new, (_, old) in enumerate(live)]
