"""How much of a history one block takes: the one place where grids are chosen.

A kernel that reads memory needs enough blocks to keep every multiprocessor reading, and no more partial results than
it must: each split of the rows costs a state that is written and read again. Both follow from the number of blocks
that run side by side.
"""

from __future__ import annotations

BLOCKS_PER_MULTIPROCESSOR = 2
"""Blocks of the attention kernel that a multiprocessor holds: four warps with up to 255 registers a thread."""
LEAST_ROWS = 256
"""Rows of a split below which its state costs more than its rows."""
ROW_STEP = 128
"""Splits begin at multiples of this many rows: four warps with the largest tile."""
FULL = 0.9
"""Share of the block places that the last wave of a good grid may leave the whole with."""


def splits(rows: int, blocks: int, multiprocessors: int) -> tuple[int, int]:
    """Splits of the rows, and rows of a split, where without splits there are ``blocks`` blocks.

    The fewest splits that fill nine tenths of the places of all waves; where none does, those that fill most. With as
    many places as 264 and 8 blocks, 33 splits fill a wave; with 512 blocks, 8 splits fill 15.5 of 16.
    """
    places = multiprocessors * BLOCKS_PER_MULTIPROCESSOR
    most = max(1, rows // LEAST_ROWS)
    best, filled = 1, 0.0
    for count in range(1, most + 1):
        found = count * blocks / (-(-count * blocks // places) * places)
        if found > filled:
            best, filled = count, found
        if found >= FULL:
            break
    per_split = -(-max(rows, 1) // best)
    per_split = -(-per_split // ROW_STEP) * ROW_STEP
    return max(1, -(-rows // per_split)), per_split


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
