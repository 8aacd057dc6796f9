"""Pictures of partial attention."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .canvas import INK, LINE, PAPER, SERIES, SOFT
from .words import Words, counted, expected, listed, number

Data = dict[str, Any]


def merge(figure: Figure, case: Data) -> Words:
    """Two or more states over parts of one history, each about its own largest score, and their merge."""
    parts = [_scores(step["request"], 0) for step in case["steps"] if step["op"] == "attention.partial"]
    wanted = expected(case, len(case["steps"]) - 1, "/state")
    total = float(wanted["lse"][0])
    top = max(max(scores.values()) for scores in parts)
    panels = figure.subplots(1, len(parts) + 1, sharey=True, width_ratios=[*map(len, parts), sum(map(len, parts))])
    factors = []
    for index, (axes, scores) in enumerate(zip(panels, parts, strict=False)):
        own = max(scores.values())
        _state(axes, scores, own, SERIES[index % len(SERIES)], f"part-{index}")
        axes.set_title(f"State {'ABCDEF'[index]}")
        factors.append(math.exp(own - top))
        mass = sum(math.exp(score - own) for score in scores.values())
        axes.set_xlabel(f"m = {number(own)},  l = {number(mass)}")
    merged = panels[-1]
    for index, (scores, factor) in enumerate(zip(parts, factors, strict=True)):
        colour = SERIES[index % len(SERIES)]
        _state(merged, scores, top, colour, f"merged-{index}", ghost=factor < 1)
    mass = sum(math.exp(score - top) for scores in parts for score in scores.values())
    merged.set_title(f"{' ⊕ '.join('ABCDEF'[: len(parts)])}")
    merged.set_xlabel(f"m = {number(top)},  l = {number(mass)},  m + ln l = {number(top + math.log(mass))}")
    merged.set_xticks(sorted(row for scores in parts for row in scores))
    panels[0].set_ylabel("weight exp(s − m)")
    panels[0].set(ylim=(0, 1.12), yticks=[0, 0.5, 1])
    lowered = [f"{'ABCDEF'[i]} by {number(factor)}" for i, factor in enumerate(factors) if factor < 1]
    caption = (
        f"One query head over {counted(sum(map(len, parts)), 'row')} in {counted(len(parts), 'part')}. Each state "
        "measures its "
        "rows from its own largest score m, where the bar is 1, and l is the sum of its bars. The merge takes the "
        "larger m "
        f"for all, which lowers {listed(lowered) if lowered else 'none'} (outlined: as it was), and adds. The "
        "log-sum-exp is "
        f"{number(total)}, that of the whole."
    )
    alt = (
        f"Bar charts of the weights in {counted(len(parts), 'partial state')} and in their merge, where the bars of "
        f"{len(parts) - 1 or 'no'} of them shrink by one factor."
    )
    return Words(alt, caption)


def _scores(request: Data, head: int) -> dict[int, float]:
    """Scores of one query head by position."""
    q, k = (np.asarray(request[name]["data"]) for name in ("q", "k"))
    scores = request["scale"] * k[:, request["kv_head_of"][head], :] @ q[head]
    return dict(zip(request["k_positions"], map(float, scores), strict=True))


def _state(axes: Axes, scores: dict[int, float], origin: float, colour: str, gid: str, *, ghost: bool = False) -> None:
    """Weights of rows about an origin; with a ghost, as they were about their own largest score."""
    own = max(scores.values())
    for row, score in scores.items():
        weight = math.exp(score - origin)
        axes.bar(row, weight, 0.72, color=colour, edgecolor=PAPER, linewidth=0.8, zorder=2, gid=f"{gid}-{row}")
        axes.annotate(
            number(weight, 2),
            (row, weight),
            (0, -4),
            textcoords="offset points",
            ha="center",
            va="top",
            fontsize=8,
            color=PAPER,
            fontweight="bold",
            zorder=4,
        )
        if ghost:
            axes.bar(
                row, math.exp(score - own), 0.72, fill=False, edgecolor=colour, linewidth=1, ls=(0, (2, 2)), zorder=3
            )
    axes.axhline(1, color=LINE, lw=0.8, ls=(0, (3, 3)), zorder=0)
    axes.set_xticks(sorted(scores))
    axes.set_xlim(min(axes.get_xlim()[0], min(scores) - 0.6), max(scores) + 0.6)
    axes.tick_params(length=0, labelcolor=SOFT)
    axes.xaxis.label.set_color(INK)
    axes.xaxis.label.set_fontsize(8.5)
