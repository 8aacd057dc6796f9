"""Pictures of units, events and clusters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Rectangle, Wedge

from .canvas import INK, LINE, PAPER, SERIES, SOFT
from .words import Words, counted, listed, number

Data = dict[str, Any]


def clusters(figure: Figure, pool: Data) -> Words:
    """ClusterKV in the plane: directions, centroids, the query's ranking and what a budget of rows takes."""
    keys, query = np.asarray(pool["pool"]["k"]), np.asarray(pool["pool"]["query"])
    index = pool["clusterkv"]
    members = members_of(index)
    waiting = [row for row in members_of(index["next"])[len(members)] if row not in index["members"]]
    plane, ranks = figure.subplots(1, 2, width_ratios=(1.1, 1))
    _circle(plane, keys, query, index, members, waiting)
    _ranking(ranks, query, index, members)
    taken = [[row for row in members[cluster] if row in index["recalled"]] for cluster in index["order"]]
    parts = [
        f"{len(rows)} of {len(members[cluster])} from cluster {cluster}"
        for cluster, rows in zip(index["order"], taken, strict=True)
        if rows
    ]
    caption = (
        f"{counted(len(keys), 'key')} of two channels in {counted(len(members), 'cluster')} by angle; a long key and "
        "a short one "
        f"of one direction belong together. Arrows are centroids, of length one. The budget of "
        f"{counted(index['settings']['budget'], 'row')} is filled in the order of the centroids' products with the "
        "query q: "
        f"{listed(parts)}. Rows {listed(waiting)} wait in the open window and are read anyhow; published, they are "
        "cluster "
        f"{len(members)} (dashed)."
    )
    alt = (
        f"Left: {len(keys)} keys around the unit circle in {counted(len(members), 'cluster')} with their centroids "
        "and a query. "
        f"Right: the clusters by rank, and the rows that a budget of {index['settings']['budget']} takes from each."
    )
    return Words(alt, caption)


def members_of(index: Data) -> list[list[int]]:
    """Rows of each cluster from the published lists."""
    ends = index["prefix_sums"]
    return [index["members"][first:end] for first, end in zip([0, *ends], ends, strict=False)]


def _circle(
    axes: Axes, keys: Any, query: Any, index: Data, members: Sequence[Sequence[int]], waiting: Sequence[int]
) -> None:
    angle = np.linspace(0, 2 * np.pi, 181)
    axes.plot(np.cos(angle), np.sin(angle), color=LINE, lw=1, zorder=0)
    groups = [*members, waiting]
    for cluster, rows in enumerate(groups):
        colour = SERIES[cluster % len(SERIES)]
        open_ = cluster == len(members)
        if not open_:
            turns = np.degrees(np.arctan2(*keys[list(rows)].T[::-1]))
            spread = (turns - turns[0] + 180) % 360 - 180
            ends = (turns[0] + spread.min() - 3, turns[0] + spread.max() + 3)
            axes.add_patch(Wedge((0, 0), 1, *ends, facecolor=colour, alpha=0.13, lw=0, gid=f"cluster-{cluster}"))
        centroid = index["next"]["centroids"][cluster]
        axes.annotate(
            "",
            centroid,
            (0, 0),
            arrowprops={
                "arrowstyle": "-|>",
                "color": colour,
                "lw": 1.4,
                "ls": (0, (3, 2)) if open_ else "-",
                "shrinkA": 0,
                "shrinkB": 0,
            },
        )
        _dots(axes, keys, rows, colour, np.asarray(centroid), hollow=open_)
    rest = [row for row in range(len(keys)) if not any(row in rows for rows in groups)]
    _dots(axes, keys, rest, SOFT, query, hollow=True)
    axes.annotate(
        "",
        query * 1.38,
        (0, 0),
        arrowprops={"arrowstyle": "-|>", "color": INK, "lw": 1.8, "shrinkA": 0, "shrinkB": 0},
        zorder=6,
    )
    axes.annotate("q", query * 1.38, (5, -3), textcoords="offset points", fontstyle="italic", fontsize=9)
    axes.set(xlim=(-1.35, 1.6), ylim=(-1.15, 1.55), aspect="equal")
    axes.axis("off")
    axes.set_title("Keys by direction")


def _dots(axes: Axes, keys: Any, rows: Sequence[int], colour: str, axis: Any, *, hollow: bool) -> None:
    """Keys with their rows: numbers outside the circle, or beside the axis for keys within."""
    for row in rows:
        point = keys[row]
        axes.plot(
            *point, "o", ms=6.5, color=PAPER if hollow else colour, mec=colour, mew=1.3, zorder=5, gid=f"row-{row}"
        )
        side = np.sign(axis[0] * point[1] - axis[1] * point[0]) or 1
        outward = point / np.linalg.norm(point)
        beside = outward * 4 + side * np.asarray([-outward[1], outward[0]]) * 9
        away = outward * 10 if np.linalg.norm(point) > 0.9 else beside
        axes.annotate(
            str(row),
            point,
            away,
            textcoords="offset points",
            ha="center",
            va="center",
            fontsize=8,
            color=colour,
            zorder=6,
        )


def _ranking(axes: Axes, query: Any, index: Data, members: Sequence[Sequence[int]]) -> None:
    """Clusters from the best downwards: product with the query, and their rows as far as the budget goes."""
    for rank, cluster in enumerate(index["order"]):
        colour = SERIES[cluster % len(SERIES)]
        axes.annotate(f"cluster {cluster}", (-0.25, rank), ha="right", va="center", color=colour, fontweight="bold")
        product = float(np.dot(query, index["centroids"][cluster]))
        axes.annotate(
            f"q·μ = {number(product)}",
            (-0.25, rank),
            (0, -12),
            textcoords="offset points",
            ha="right",
            va="center",
            fontsize=8,
            color=SOFT,
        )
        for place, row in enumerate(members[cluster]):
            taken = row in index["recalled"]
            axes.add_patch(
                Rectangle(
                    (place + 0.05, rank - 0.3),
                    0.9,
                    0.6,
                    facecolor=colour if taken else PAPER,
                    edgecolor=colour,
                    linewidth=1.2,
                    ls="-" if taken else (0, (2, 2)),
                    gid=f"taken-{row}" if taken else f"left-{row}",
                )
            )
            axes.annotate(
                str(row),
                (place + 0.5, rank),
                ha="center",
                va="center",
                color=PAPER if taken else colour,
                fontweight="bold" if taken else "normal",
            )
    axes.set(xlim=(-1.75, max(map(len, members)) + 0.3), ylim=(len(members) - 0.3, -0.7))
    axes.axis("off")
    axes.set_title(f"A budget of {counted(index['settings']['budget'], 'row')}")


def recall_units(figure: Figure, pool: Data) -> Words:
    """One history under three methods: what each stores together, what it recalls, and what attention reads."""
    axes = figure.subplots()
    total = len(pool["pool"]["k"])
    units, events, index = pool["infllm"], pool["emllm"], pool["clusterkv"]
    clustered = members_of(index)
    events_taken = sorted({*events["similarity"], *events["contiguity"]})
    lanes = [
        ("InfLLM", [list(range(*unit)) for unit in units["units"]], "unit", units, units["selected_units"]),
        ("EM-LLM", [list(range(*event)) for event in events["events"]], "event", events, events_taken),
        (
            "ClusterKV",
            clustered,
            "cluster",
            index,
            sorted({c for c, rows in enumerate(clustered) if set(rows) & set(index["recalled"])}),
        ),
    ]
    for lane, (name, groups, word, part, chosen) in enumerate(lanes):
        _lane(axes, lane, name, groups, part, total)
        axes.annotate(
            f"{len(chosen)} of {counted(len(groups), word)}\n"
            f"{len(part['recalled'])} of {counted(sum(map(len, groups)), 'row')}",
            (total + 0.25, lane),
            va="center",
            fontsize=8.5,
            linespacing=1.35,
        )
        axes.annotate(
            f"{len(part['support'])} of {counted(total, 'row')}",
            (total + 3.0, lane),
            va="center",
            fontsize=8.5,
            color=SOFT,
        )
    axes.set(xlim=(-1.9, total + 4.9), ylim=(len(lanes) - 0.35, -0.95))
    for row in range(total):
        axes.annotate(str(row), (row + 0.5, -0.62), ha="center", va="center", fontsize=8, color=SOFT)
    axes.annotate("recalled", (total + 0.25, -0.62), va="center", fontsize=8, color=SOFT)
    axes.annotate("read", (total + 3.0, -0.62), va="center", fontsize=8, color=SOFT)
    axes.axis("off")
    caption = (
        f"The same {counted(total, 'row')} three times. Groups are what a method stores and finds as one: units of "
        f"{counted(units['settings']['unit_rows'], 'row')}, events of {listed(events['lengths'])} rows, clusters of "
        f"{listed(index['sizes'])} rows. Filled rows are recalled, pale ones are read anyhow, and the rest is left "
        "out. A recall "
        "of units, of events and of clusters counts different things: InfLLM recalls "
        f"{listed(units['selected_units'])} as whole "
        f"units, EM-LLM event {listed(events['similarity'])} by similarity and event {listed(events['contiguity'])} "
        "as its "
        f"neighbour, and ClusterKV cuts its last cluster at {counted(index['settings']['budget'], 'row')}. Only rows "
        "compare."
    )
    alt = (
        f"Three strips of {total} rows, one a method, with the stored groups outlined; InfLLM reads "
        f"{len(units['support'])} rows, "
        f"EM-LLM {len(events['support'])} and ClusterKV {len(index['support'])}."
    )
    return Words(alt, caption)


def _lane(axes: Axes, lane: int, name: str, groups: Sequence[Sequence[int]], part: Data, total: int) -> None:
    """One method: a cell a row, a bracket above each run of rows of a group."""
    axes.annotate(name, (-0.3, lane), ha="right", va="center", fontweight="bold")
    home = {row: group for group, rows in enumerate(groups) for row in rows}
    for row in range(total):
        colour = SERIES[home[row] % len(SERIES)] if row in home else SOFT
        recalled, read = row in part["recalled"], row in part["support"]
        axes.add_patch(
            FancyBboxPatch(
                (row + 0.09, lane - 0.25),
                0.82,
                0.5,
                boxstyle="round,pad=0,rounding_size=0.08",
                facecolor=colour if recalled or read else PAPER,
                alpha=1.0 if recalled or not read else 0.3,
                edgecolor=colour if read else LINE,
                linewidth=1.1,
                gid=f"{'read' if read else 'left'}-{lane}-{row}",
            )
        )
    for group, rows in enumerate(groups):
        colour = SERIES[group % len(SERIES)]
        for run in _runs(rows):
            axes.plot(
                [run[0] + 0.12, run[-1] + 0.88],
                [lane - 0.34] * 2,
                color=colour,
                lw=2,
                solid_capstyle="round",
                gid=f"group-{lane}-{group}",
            )
        axes.annotate(
            str(group),
            ((rows[0] + rows[-1] + 1) / 2, lane - 0.35),
            (0, 4),
            textcoords="offset points",
            ha="center",
            va="bottom",
            fontsize=7.5,
            color=colour,
        )


def _runs(rows: Sequence[int]) -> list[list[int]]:
    """Neighbouring rows together."""
    runs: list[list[int]] = []
    for row in sorted(rows):
        if runs and row == runs[-1][-1] + 1:
            runs[-1].append(row)
        else:
            runs.append([row])
    return runs
