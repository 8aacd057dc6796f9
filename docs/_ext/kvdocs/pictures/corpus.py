"""Pictures of the corpus as a whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from .. import data
from .canvas import BLUE, GREEN, INK, ORANGE, RED, SOFT, VIOLET
from .words import Words, counted

Data = dict[str, Any]
KINDS = ("example", "mutation", "scenario", "relation")
COLUMNS = {"requirements": INK, **dict(zip(KINDS, (BLUE, ORANGE, GREEN, VIOLET), strict=True)), "faults": RED}


def census(root: Path) -> Data:
    """Requirements, cases by kind and seeded faults of every contract."""
    required = data.requirements(root)
    rows = {}
    for contract in data.contracts(root):
        cases = data.cases(root, contract)
        rows[contract] = {
            "requirements": sum(row["chapter"] == f"spec/{contract}.md" for row in required),
            **{kind: sum(case["kind"] == kind for case in cases) for kind in KINDS},
            "faults": len(data.faults(contract)),
        }
    return rows


def contracts(figure: Figure, rows: Data) -> Words:
    """A table of counts, each cell as dark as it is large in its column."""
    axes = figure.subplots()
    totals = {column: sum(row[column] for row in rows.values()) for column in COLUMNS}
    for place, column in enumerate(COLUMNS):
        axes.annotate(column, (place + 0.5, -0.42), ha="center", va="center", fontsize=8.5, color=SOFT)
    for lane, (contract, row) in enumerate(rows.items()):
        axes.annotate(contract, (-0.12, lane + 0.5), ha="right", va="center", fontsize=9, fontweight="bold")
        for place, (column, colour) in enumerate(COLUMNS.items()):
            count = row[column]
            share = (count / max(1, *(one[column] for one in rows.values()))) ** 0.5
            axes.add_patch(
                FancyBboxPatch(
                    (place + 0.06, lane + 0.1), 0.88, 0.8, boxstyle="round,pad=0,rounding_size=0.08", facecolor=colour,
                    edgecolor="none", alpha=round(0.04 + 0.4 * share, 3), gid=f"cell-{contract}-{column}",
                )
            )  # fmt: skip
            axes.annotate(
                f"{count:,}" if count else "–", (place + 0.5, lane + 0.5), ha="center", va="center", fontsize=8.5,
                color=INK if count else SOFT,
            )  # fmt: skip
    for place, column in enumerate(COLUMNS):
        axes.annotate(
            f"{totals[column]:,}", (place + 0.5, len(rows) + 0.4), ha="center", va="center", fontweight="bold"
        )
    axes.annotate("all", (-0.12, len(rows) + 0.4), ha="right", va="center", color=SOFT)
    axes.set(xlim=(-1.35, len(COLUMNS)), ylim=(len(rows) + 0.8, -0.8))
    axes.axis("off")
    cases = sum(totals[kind] for kind in KINDS)
    caption = (
        f"{counted(len(rows), 'contract')}: {totals['requirements']:,} requirements, {cases:,} cases by how they show "
        "a "
        f"requirement, and {totals['faults']:,} seeded faults that the cases must find. A cell is as dark as its "
        "count is "
        f"large in its column."
    )
    alt = f"A table of {counted(len(rows), 'contract')} by requirements, four kinds of cases and faults."
    return Words(alt, caption, "Counted when this page was built.")
