"""How much of a history one block takes: the one place where grids are chosen.

A kernel that reads memory needs enough blocks to keep every multiprocessor reading, and no more partial results than
it must: each split of the rows costs a state that is written and read again. Both follow from the number of blocks
that run side by side.
"""

from __future__ import annotations

import functools

LEAST_ROWS = 256
"""Rows of a split below which its state costs more than its rows."""
ROW_STEP = 64
"""Splits begin at multiples of this many rows: four warps with tiles of sixteen."""
FULL = 0.95
"""Share of the places of all waves with which a grid is good enough; more splits would cost more than they gain."""
MOST_WAVES = 8
"""Waves beyond which splits are not tried."""


def blocks_per_multiprocessor(group: int) -> int:
    """Blocks of the attention kernel that a multiprocessor holds, of four warps with up to 168 or 255 registers."""
    return 2 if group > 4 else 3


@functools.lru_cache(maxsize=4096)
def splits(rows: int, blocks: int, group: int, multiprocessors: int) -> tuple[int, int]:
    """Splits of the rows, and rows of a split, where without splits there are ``blocks`` blocks.

    The fewest splits that fill 95 of 100 places of all waves; where none does, those that fill most. With groups of
    four there are 396 places on 132 multiprocessors: 64 sequences of 8 K/V heads and 8,192 rows are read in 3 splits,
    one sequence of 32,768 rows in 47.
    """
    places, blocks = multiprocessors * blocks_per_multiprocessor(group), max(1, blocks)
    best, filled = (1, _rounded_up(rows, 1)), 0.0
    for wanted in range(1, max(1, min(rows // LEAST_ROWS, MOST_WAVES * places // blocks)) + 1):
        per_split = _rounded_up(rows, wanted)
        count = max(1, -(-rows // per_split))
        found = count * blocks / (-(-count * blocks // places) * places)
        if found > filled:
            best, filled = (count, per_split), found
        if found >= FULL:
            break
    return best


def _rounded_up(rows: int, splits: int) -> int:
    """Rows of each of so many splits, a multiple of the step."""
    return max(1, -(-rows // (splits * ROW_STEP))) * ROW_STEP


def chunks(items: int, per_block: int) -> int:
    """Blocks for items of which each block takes so many; one where there are none."""
    return max(1, -(-items // per_block))


def rows_per_block(rows: int, blocks: int, multiprocessors: int, least: int = 256) -> int:
    """Rows of a block of a kernel that keeps a query or a table in shared memory: long enough that it pays.

    Eight blocks for each multiprocessor where there are so many rows, and ``least`` rows at least; a multiple of 64, so
    that the four warps of a block share them evenly.
    """
    wanted = max(1, 8 * multiprocessors // max(1, blocks))
    found = max(least, -(-rows // wanted))
    return -(-found // 64) * 64


PART = 1 << 15
"""Numbers of a row that one block selects from."""


def parts(size: int, count: int) -> int:
    """Parts of a row of numbers: each holds more than twice what is selected, or the second launch gains nothing."""
    return max(1, size // max(PART, 2 * count))
