"""Pictures of recall and loss."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from .canvas import INK, LINE, PAPER, RED, SERIES, SOFT
from .words import Words, counted, listed, number

Data = dict[str, Any]


def recall_units(figure: Figure, report: Data) -> Words:
    """One query's rows by weight, and what selections by row, page and cluster find, read and keep of them."""
    weights = np.exp(np.asarray(report["logits"]) - max(report["logits"]))
    weights /= weights.sum()
    selections = report["selections"]
    upper, lower = figure.subplots(2, 1, height_ratios=(1, 0.62 * len(selections)))
    _weights(upper, weights, report["reference"])
    for lane, selection in enumerate(selections):
        _lane(lower, lane, selection, report)
    total = len(weights)
    for axes in (upper, lower):
        axes.set_xlim(-1.6, total + 4.9)
    lower.set_ylim(len(selections) - 0.45, -1.15)
    lower.axis("off")
    for place, text in zip(COLUMNS, ("of ids", "of rows", "mass", "moved"), strict=True):
        lower.annotate(text, (total + place, -0.62), ha="right", va="center", fontsize=8, color=SOFT)
    by_name = {selection["name"]: selection for selection in selections}
    lower.annotate("recall", (total + sum(COLUMNS[:2]) / 2, -1.0), ha="right", va="center", fontsize=8, color=SOFT)
    told = [
        f"{name} selects {listed(one['selected'])} and reads {counted(len(one['support']), 'row')} with "
        f"{number(one['measures']['retained_mass'])} of the mass"
        for name, one in by_name.items()
        if len(one["support"]) < total
    ]
    caption = (
        f"Stars mark the {len(report['reference'])} best of {counted(total, 'row')}. A selection picks units, a unit "
        "brings "
        f"all of its rows, and persistent rows ({listed(report['persistent'])}) are read anyhow and counted once: "
        f"{'; '.join(told)}. Recall of ids exists where the ids are rows; recall of rows is that of the support, "
        "filled "
        f"here, and says nothing of the mass: it can be whole while mass is left out."
    )
    alt = (
        f"Above, the weights of {counted(total, 'row')}. Below, a strip for each of "
        f"{counted(len(selections), 'selection')} "
        f"with the rows that it reads, its recalls, its retained mass and the bytes that it moves."
    )
    return Words(alt, caption)


COLUMNS = (0.95, 2.05, 3.25, 4.6)
"""Right edges of the figures beside the strips, behind the last row."""


def _weights(axes: Axes, weights: Any, best: Sequence[int]) -> None:
    for row, weight in enumerate(weights):
        axes.bar(row + 0.5, weight, 0.8, color=INK if row in best else LINE, gid=f"weight-{row}")
        axes.annotate(
            number(weight, 2), (row + 0.5, weight), (0, 3), textcoords="offset points", ha="center", fontsize=7.5
        )
    axes.set(ylim=(0, max(weights) * 1.25), yticks=[])
    axes.set_xticks([])
    for side in ("left", "bottom"):
        axes.spines[side].set_visible(False)
    axes.annotate("softmax", (-0.2, max(weights) / 2), ha="right", va="center", fontsize=8.5, color=SOFT)


def _lane(axes: Axes, lane: int, selection: Data, report: Data) -> None:
    """One selection: its units as brackets, its support filled, the rows of other sets hollow."""
    total, colour = len(report["logits"]), SERIES[lane % len(SERIES)]
    axes.annotate(selection["name"], (-0.2, lane), ha="right", va="center", fontweight="bold", color=colour)
    support, persistent = selection["support"], report["persistent"]
    for row in range(total):
        read, kept = row in support, row in persistent and row not in selection["expanded"]
        axes.add_patch(
            FancyBboxPatch(
                (row + 0.1, lane - 0.25), 0.8, 0.5, boxstyle="round,pad=0,rounding_size=0.08",
                facecolor=colour if read else PAPER, alpha=0.3 if kept else 1.0, edgecolor=colour if read else LINE,
                linewidth=1.1, gid=f"{'read' if read else 'left'}-{lane}-{row}",
            )
        )  # fmt: skip
        if row in report["reference"]:
            axes.plot(row + 0.5, lane, "*", ms=8, color=PAPER if read else RED, zorder=5, gid=f"best-{lane}-{row}")
        elif read:
            axes.annotate(
                str(row), (row + 0.5, lane), ha="center", va="center", fontsize=8, color=INK if kept else PAPER
            )
        else:
            axes.annotate(str(row), (row + 0.5, lane), ha="center", va="center", fontsize=8, color=SOFT)
    for rows in _units(selection, total):
        for row in rows:
            join = row + 1 in rows
            axes.plot(
                [row + 0.12, row + (1.12 if join else 0.88)],
                [lane - 0.36] * 2,
                color=colour,
                lw=2,
                solid_capstyle="butt",
            )
    measures, cost = selection["measures"], selection["cost"]
    recall = measures["candidate_recall"]
    figures = ("–" if recall is None else number(recall, 2), number(measures["support_recall"], 2))
    figures += (number(measures["retained_mass"]), f"{cost['transfer_bytes']} B")
    for place, text in zip(COLUMNS, figures, strict=True):
        axes.annotate(text, (total + place, lane), ha="right", va="center", fontsize=8.5)


def _units(selection: Data, total: int) -> list[list[int]]:
    """Rows of each selected unit that is more than a row."""
    unit = selection["unit"]
    if unit["kind"] == "page":
        size = unit["rows"]
        return [list(range(page * size, min((page + 1) * size, total))) for page in selection["selected"]]
    if unit["kind"] == "cluster":
        members = [rows for level in unit["members"] for rows in level]
        return [members[cluster] for cluster in selection["selected"]]
    return []
