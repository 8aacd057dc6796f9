"""Pictures of indexes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from kvassay.corpus.data import fixture_module
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .canvas import BLUE, GREEN, INK, LINE, ORANGE, PAPER, RED, SOFT
from .words import Words, counted, expected, listed, number

Data = dict[str, Any]


def hierarchy(figure: Figure, *records: Data) -> Words:
    """SqueezedAttention's two levels: shares of groups and clusters against thresholds, and the rows they lead to."""
    panels = figure.subplots(1, len(records), width_ratios=[max(4, _rows(record)) for record in records])
    told = [
        _tree(axes, record, f"{i}-")
        for i, (axes, record) in enumerate(zip(np.atleast_1d(panels), records, strict=True))
    ]
    parts = []
    for place, (record, (kept, best, share)) in zip(("Left", "Right"), zip(records, told, strict=True), strict=False):
        rows = record["squeezed"]["search"]["candidates"]
        fate = "is among them" if best in rows else "lies under a mean that is too low and is pruned with it"
        parts.append(
            f"{place}: {counted(len(kept), 'cluster')} of {len(record['squeezed']['index']['fine']['sizes'])} "
            f"{'leads' if len(kept) == 1 else 'lead'} to {'row' if len(rows) == 1 else 'rows'} {listed(rows)}; the "
            "best row, "
            f"{best}, with {number(100 * share, 0)} % of the indexed rows' mass, {fate}"
        )
    caption = (
        "Each group and each cluster shows the share of one of its rows by its mean, and the threshold (the tick) "
        "that it must "
        "exceed; a group below it is not expanded. A row is as dark as its true weight, green where it is fetched, "
        "and red where it is "
        "the best and is not. "
        f"{'. '.join(parts)}."
    )
    alt = (
        f"{counted(len(records), 'tree')} from the query through groups and clusters to rows; bars show shares against "
        f"thresholds, and pruned branches are dashed."
    )
    return Words(alt, caption)


def shares(query: Any, level: Data, scale: float, kept: Sequence[int] | None = None) -> Any:
    """exp(z) over the sum of N exp(z) of all means with rows."""
    scores = scale * np.asarray(level["centroids"]) @ query
    weights = np.exp(scores - scores.max())
    return weights / np.sum(np.asarray(level["sizes"]) * weights)


def _rows(record: Data) -> int:
    first, end = record["squeezed"]["index"]["rows"]
    return int(end - first)


def _tree(axes: Axes, record: Data, mark: str) -> tuple[list[int], int, float]:
    """One record's tree; the kept clusters, the best indexed row and its share of the mass of the indexed rows."""
    index, query = record["squeezed"]["index"], np.asarray(record["query"]["q"])
    scale, keys = record["query"]["scale"], np.asarray(record["pool"]["keys"])
    first, end = index["rows"]
    coarse, fine = shares(query, index["coarse"], scale), shares(query, index["fine"], scale)
    upper, lower = index["thresholds"]
    groups = [group for group, share in enumerate(coarse) if share > upper]
    kept = [cluster for cluster, share in enumerate(fine) if index["parents"][cluster] in groups and share > lower]
    scores = scale * keys[first:end] @ query
    true = np.exp(scores - scores.max())
    true /= true.sum()
    order = sorted(
        range(end - first), key=lambda row: (index["parents"][index["labels"][row]], index["labels"][row], row)
    )
    x = {row: place for place, row in enumerate(order)}
    fetched = record["squeezed"]["search"]["candidates"]
    at = {}
    for cluster in range(len(fine)):
        at["fine", cluster] = float(np.mean([x[row] for row in order if index["labels"][row] == cluster]))
    for group in range(len(coarse)):
        at["coarse", group] = float(np.mean([at["fine", c] for c in range(len(fine)) if index["parents"][c] == group]))
    middle = float(np.mean([at["coarse", group] for group in range(len(coarse))]))
    for group, share in enumerate(coarse):
        _branch(axes, (middle, 2.78), (at["coarse", group], 2.32), group in groups)
        _node(axes, (at["coarse", group], 2.0), f"group {group}", share, upper, group in groups, f"group-{mark}{group}")
    for cluster, share in enumerate(fine):
        parent = index["parents"][cluster]
        _branch(axes, (at["coarse", parent], 1.76), (at["fine", cluster], 1.32), cluster in kept)
        _node(
            axes,
            (at["fine", cluster], 1.0),
            f"cluster {cluster}",
            share,
            lower,
            cluster in kept,
            f"cluster-{mark}{cluster}",
        )
    best = int(np.argmax(true))
    for row in order:
        cluster, position = index["labels"][row], first + row
        read = position in fetched
        _branch(axes, (at["fine", cluster], 0.76), (x[row], 0.2), read)
        colour = GREEN if read else RED if row == best else SOFT
        axes.plot(x[row], 0, "o", ms=15, color=PAPER, mec=colour, mew=1.3, zorder=3, gid=f"row-{mark}{position}")
        axes.plot(
            x[row], 0, "o", ms=15, color=colour, mew=0, alpha=float(0.08 + 0.8 * true[row] / true.max()), zorder=4
        )
        axes.annotate(
            str(position),
            (x[row], 0),
            ha="center",
            va="center",
            fontsize=8,
            zorder=5,
            color=PAPER if true[row] / true.max() > 0.5 else INK,
            fontweight="bold" if row == best else "normal",
        )
        axes.annotate(
            number(100 * true[row], 0) + " %", (x[row], -0.33), ha="center", va="center", fontsize=7.5, color=SOFT
        )
    axes.plot(middle, 2.9, "D", ms=7, color=INK, zorder=4)
    axes.annotate("q", (middle, 2.9), (9, 0), textcoords="offset points", va="center", fontstyle="italic")
    axes.set(xlim=(-0.75, end - first - 0.25), ylim=(-0.55, 3.15))
    axes.axis("off")
    axes.set_title(f"{len(coarse)} groups, {len(fine)} clusters, {end - first} rows", pad=4)
    return kept, first + best, float(true[best])


def _branch(axes: Axes, start: tuple[float, float], end: tuple[float, float], kept: bool) -> None:
    way = np.linspace(0, 1, 25)
    bend = 3 * way**2 - 2 * way**3
    axes.plot(
        start[0] + (end[0] - start[0]) * bend,
        start[1] + (end[1] - start[1]) * way,
        color=GREEN if kept else LINE,
        lw=1.6 if kept else 1.1,
        ls="-" if kept else (0, (3, 2)),
        zorder=1,
    )


def _node(
    axes: Axes, place: tuple[float, float], name: str, share: float, threshold: float, kept: bool, gid: str
) -> None:
    """A share as a bar of one unit's width up to half of the mass, with the threshold as a tick."""
    x, y = place
    width, full = 0.92, 0.5
    colour = GREEN if kept else SOFT
    axes.annotate(
        name, (x, y + 0.21), ha="center", va="center", fontsize=8, color=colour, fontweight="bold", bbox=_PLAIN
    )
    axes.barh(y, width, 0.15, x - width / 2, color=PAPER, edgecolor=LINE, lw=0.8, zorder=2)
    axes.barh(y, width * min(share, full) / full, 0.15, x - width / 2, color=colour, zorder=3, gid=gid)
    tick = x - width / 2 + width * min(threshold, full) / full
    axes.plot([tick, tick], [y - 0.12, y + 0.12], color=INK, lw=1.4, zorder=4)
    sign = ">" if share > threshold else "≤"
    axes.annotate(
        f"{number(share)} {sign} {number(threshold)}",
        (x, y - 0.19),
        ha="center",
        va="center",
        fontsize=7.2,
        color=SOFT,
        bbox=_PLAIN,
    )


_PLAIN = {"facecolor": PAPER, "edgecolor": "none", "pad": 0.6}


def sampling(figure: Figure, case: Data) -> Words:
    """MagicPIG's estimate over every sample that can be drawn, and what reading the best rows gives, beside dense."""
    request = case["steps"][0]["request"]
    told = fixture_module("indexes.oracle").Oracle().magicpig_enumerate(request)
    values = np.asarray(request["v"]["data"], dtype=float)[:, 0]
    scores = request["scale"] * np.asarray(request["k"]["data"]) @ np.asarray(request["q"]["data"])
    dense, mean = float(expected(case, 0, "/dense")[0]), float(expected(case, 0, "/expected")[0])
    nonempty = float(expected(case, 0, "/nonempty"))
    chances = fixture_module("indexes.oracle_hashes")
    angles = [chances.cosine(request["q"]["data"], key) for key in request["k"]["data"]]
    settings = (request["bits"], request["tables"], request["min_tables"])
    logs = np.asarray([chances.log_fraction(chances.inclusion(angle, *settings)) for angle in angles])
    drawn = [(row["ids"], row["probability"]) for row in told["outcomes"] if row["ids"] and row["probability"] > 0]
    estimates = [(ids, p / nonempty, _mixed(scores[ids] - logs[ids], values[ids])) for ids, p in drawn]
    order = [int(row) for row in np.argsort(-scores, kind="stable")]
    best = [(order[: k + 1], _mixed(scores[order[: k + 1]], values[order[: k + 1]])) for k in range(len(order))]
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(2.1, 1))
    _samples(upper, estimates, mean, dense)
    _budgets(lower, best, dense)
    one = ", ".join(f"{number(value)} for k = {len(rows)}" for rows, value in best[:-1])
    caption = (
        f"Above: every sample that {counted(request['tables'], 'table')} of {counted(request['bits'], 'bit')} can "
        "draw from "
        f"{counted(len(values), 'row')}, at its estimate and with its probability among samples with rows (it is "
        "empty with "
        f"{number(1 - nonempty)}). Their mean, {number(mean)}, is not dense attention, {number(dense)}: numerator and "
        "denominator "
        f"are unbiased, and their ratio is off by {number(mean - dense)}. Below: reading the k best rows has no "
        "chance in it and "
        f"another error, {one}, which ends where all rows are read."
    )
    alt = (
        f"Above, {counted(len(estimates), 'possible estimate')} as stems of their probabilities, with lines at their "
        "mean and "
        f"at dense attention; below, the output over the best one to {len(best)} rows."
    )
    return Words(alt, caption)


def _mixed(scores: Any, values: Any) -> float:
    """The mean of values under the softmax of scores."""
    weights = np.exp(scores - scores.max())
    return float(weights @ values / weights.sum())


def _samples(axes: Axes, estimates: Sequence[tuple[Sequence[int], float, float]], mean: float, dense: float) -> None:
    stems: dict[float, list[tuple[Sequence[int], float]]] = {}
    for ids, p, value in estimates:
        stems.setdefault(round(value, 9), []).append((ids, p))
    top = max(sum(p for _, p in rows) for rows in stems.values())
    for value, rows in sorted(stems.items()):
        low = 0.0
        for ids, p in rows:
            axes.plot([value, value], [low, low + p], color=BLUE, lw=2.2, solid_capstyle="butt")
            axes.plot(
                value, low + p, "o", ms=7, color=BLUE, mec=PAPER, zorder=4, gid=f"sample-{'-'.join(map(str, ids))}"
            )
            axes.annotate(
                "{" + ", ".join(map(str, ids)) + "}", (value, low + p), (7, 1), textcoords="offset points", fontsize=8.5
            )
            low += p
    for at, colour, text, side in ((mean, ORANGE, "mean", "right"), (dense, GREEN, "dense", "left")):
        axes.axvline(at, color=colour, lw=1.4, zorder=1, gid=text)
        axes.annotate(
            f"{text} {number(at)}",
            (at, top * 1.16),
            (-5 if side == "right" else 5, 0),
            textcoords="offset points",
            ha=side,
            va="center",
            color=colour,
            fontsize=8.5,
            fontweight="bold",
        )
    axes.set(ylim=(0, top * 1.28), ylabel="probability")
    axes.set_title("Sampling: the rows that collide")
    axes.tick_params(axis="x", length=0)


def _budgets(axes: Axes, best: Sequence[tuple[Sequence[int], float]], dense: float) -> None:
    axes.axvline(dense, color=GREEN, lw=1.4, zorder=1)
    for rows, value in best:
        axes.plot([value, dense], [len(rows)] * 2, color=RED, lw=1.2, ls=(0, (2, 2)), zorder=1)
        axes.plot(value, len(rows), "s", ms=7, color=INK, mec=PAPER, zorder=4, gid=f"top-{len(rows)}")
        axes.annotate(
            "{" + ", ".join(map(str, sorted(rows))) + "}",
            (value, len(rows)),
            (-7 if value < dense else 7, 0),
            textcoords="offset points",
            fontsize=8.5,
            va="center",
            ha="right" if value < dense else "left",
        )
    axes.set(ylim=(len(best) + 0.6, 0.4), yticks=range(1, len(best) + 1), ylabel="k", xlabel="output")
    axes.set_title("Top-k: the rows with the best scores")
    axes.tick_params(axis="y", length=0)
