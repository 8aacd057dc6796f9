"""What a selection costs: search, metadata, rows, transfers, each in a ledger of its own."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..memory.rows import require
from ..selectors.rows import query_groups
from .runs import Chain, Run, check_rows

Json = Mapping[str, Any]


@dataclass(frozen=True)
class Sizes:
    """Sizes in bytes and channels."""

    candidate_bytes: int
    descriptor_bytes: int
    key_channels: int
    value_channels: int
    key_item_bytes: int
    value_item_bytes: int
    setup_bytes: int
    probe_vectors: int
    probe_channels: int
    probe_item_bytes: int

    @classmethod
    def read(cls, said: Json) -> Sizes:
        """Sizes from their JSON form."""
        probe = {f"probe_{name}": value for name, value in said["probe"].items()}
        return cls(**{name: value for name, value in said.items() if name != "probe"}, **probe)

    @property
    def row_bytes(self) -> int:
        """K and V of one row of one K/V head, each in its own width."""
        return self.key_channels * self.key_item_bytes + self.value_channels * self.value_item_bytes

    @property
    def probe_bytes(self) -> int:
        """What the search of one list reads."""
        return self.probe_vectors * self.probe_channels * self.probe_item_bytes

    @property
    def probe_macs(self) -> int:
        """Multiply-adds of one query head's search."""
        return self.probe_vectors * self.probe_channels


def check_request(
    run: Run, sizes: Sizes, resident: Sequence[Sequence[int]], reference: Sequence[Sequence[int]] | None
) -> None:
    """Refuse sizes and lists that are not of this run."""
    for name, stated in (("k", sizes.key_channels), ("v", sizes.value_channels)):
        fits = name not in run.said or run.said[name].shape[2] == stated
        require(fits, "SHAPE_MISMATCH", f"channels of {name}")
    require(len(resident) == run.said["kv_heads"], "SHAPE_MISMATCH", "one list of resident rows a K/V head")
    require(reference is None or len(reference) == run.lists, "SHAPE_MISMATCH", "one reference a list")
    for positions in reference or ():
        check_rows(run, positions, "SUPPORT_BEYOND_COMMIT")


def ratio(part: float, whole: float) -> float | None:
    """A quotient; nothing over nothing is no number."""
    return part / whole if whole else None


def transfers(positions: Collection[int]) -> int:
    """Runs of neighbouring positions: one transfer each."""
    held = set(positions)
    return sum(position - 1 not in held for position in held)


def list_cost(one: Chain, sizes: Sizes, read: bool) -> dict[str, Any]:
    """Search and metadata of one list; what nobody reads was not searched for."""
    return {
        "candidate_bytes": len(set(one.returned)) * sizes.candidate_bytes,
        "descriptor_bytes": len(one.chosen) * sizes.descriptor_bytes,
        "probe_bytes": sizes.probe_bytes if read else 0,
        "expansion_ratio": ratio(len(one.expanded), len(one.chosen)),
    }


def readers(run: Run) -> list[list[int]]:
    """For each K/V head the lists that its query heads read."""
    groups = query_groups(run.said["kv_head_of"], run.said["kv_heads"])
    return [[run.place[query] for query in members] for members in groups]


def rows_read(lists: Sequence[Collection[int]], which: Sequence[int]) -> set[int]:
    """Rows of one K/V head that several lists name, each once."""
    return {position for one in which for position in lists[one]}


def head_cost(read: set[int], resident: Collection[int], wanted: set[int] | None, sizes: Sizes) -> dict[str, Any]:
    """Rows of one K/V head."""
    moved = read - set(resident)
    return {
        "support_rows": len(read),
        "transfer_rows": len(moved),
        "transfers": transfers(moved),
        "support_bytes": len(read) * sizes.row_bytes,
        "transfer_bytes": len(moved) * sizes.row_bytes,
        "setup_bytes": transfers(moved) * sizes.setup_bytes,
        "false_positive_bytes": None if wanted is None else len(read - wanted) * sizes.row_bytes,
        "false_negative_bytes": None if wanted is None else len(wanted - read) * sizes.row_bytes,
    }


def total(several: Sequence[Json], name: str) -> int | None:
    """A sum; nothing where one part is nothing."""
    values = [one[name] for one in several]
    return None if None in values else sum(values)


def totals(run: Run, lists: Sequence[Chain], by_list: Sequence[Json], by_head: Sequence[Json], sizes: Sizes) -> Json:
    """Each ledger summed on its own."""
    of_lists = ("candidate_bytes", "descriptor_bytes", "probe_bytes")
    of_heads = ("support_bytes", "transfer_bytes", "setup_bytes", "false_positive_bytes", "false_negative_bytes")
    return {
        **{name: total(by_list, name) for name in of_lists},
        "selector_macs": sizes.probe_macs * len(run.place),
        **{name: total(by_head, name) for name in of_heads},
        "expansion_ratio": ratio(sum(len(one.expanded) for one in lists), sum(len(one.chosen) for one in lists)),
    }


def cost(
    run: Run, lists: Sequence[Chain], sizes: Sizes, resident: Sequence[Sequence[int]], reference: Any = None
) -> dict[str, Any]:
    """All ledgers of a run."""
    by_list = [list_cost(one, sizes, which in run.place) for which, one in enumerate(lists)]
    supports = [one.support for one in lists]
    by_head = [
        head_cost(
            rows_read(supports, which),
            resident[head],
            None if reference is None else rows_read(reference, which),
            sizes,
        )
        for head, which in enumerate(readers(run))
    ]
    return {
        "row_bytes": sizes.row_bytes,
        "lists": by_list,
        "kv_heads": by_head,
        "totals": totals(run, lists, by_list, by_head, sizes),
    }
