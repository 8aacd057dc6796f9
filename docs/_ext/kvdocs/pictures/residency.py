"""Pictures of residency."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from kvassay_reference.residency import TRANSITIONS, VALID
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch
from matplotlib.path import Path

from .canvas import BLUE, FAINT, GREEN, INK, ORANGE, PAPER, RED, SOFT
from .words import Words, counted

Point = tuple[float, float]

PLACES: dict[str, Point] = {
    "UNUSED": (0.0, 2.5),
    "PROMOTE_RESERVED": (1.62, 3.0),
    "COPY_IN": (3.0, 3.0),
    "GPU_STAGED": (4.38, 3.0),
    "GPU_VISIBLE": (5.95, 3.0),
    "GPU_RELEASED": (7.35, 3.0),
    "DEMOTE_RESERVED": (1.62, 2.0),
    "COPY_OUT": (3.0, 2.0),
    "HOST_VALID": (5.95, 2.0),
    "HOST_RELEASED": (7.35, 2.0),
    "SECONDARY_VALID": (5.95, 0.75),
    "SECONDARY_RELEASED": (7.35, 0.75),
    "QUARANTINED": (1.62, 0.1),
    "ABORTED": (3.0, 0.1),
}
"""Where each state stands; a state of the table that is not here fails the build."""
ROUTES: dict[tuple[str, str], tuple[Sequence[Point], Point]] = {
    ("UNUSED", "PROMOTE_RESERVED"): ([(0.0, 2.68), (0.0, 3.0), (1.14, 3.0)], (0.62, 3.0)),
    ("UNUSED", "DEMOTE_RESERVED"): ([(0.0, 2.32), (0.0, 2.0), (1.14, 2.0)], (0.62, 2.0)),
    ("UNUSED", "GPU_VISIBLE"): ([(-0.22, 2.68), (-0.22, 3.75), (5.95, 3.75), (5.95, 3.18)], (0.62, 3.75)),
    ("UNUSED", "HOST_VALID"): ([(-0.12, 2.32), (-0.12, 1.25), (5.8, 1.25), (5.8, 1.82)], (0.62, 1.25)),
    ("UNUSED", "SECONDARY_VALID"): ([(-0.3, 2.32), (-0.3, 0.75), (5.47, 0.75)], (0.62, 0.75)),
}
"""Corners of the ways that are not straight, and where their events are written."""
WIDTH, HEIGHT = 0.96, 0.36


def states(figure: Figure, transitions: Any = TRANSITIONS) -> Words:
    """States of a replica and the events that lead from one to the next; those of a transaction die alike."""
    axes = figure.subplots()
    events: dict[tuple[str, str], list[str]] = defaultdict(list)
    for row in transitions:
        events[str(row.state), str(row.target)].append(row.event)
    named = sorted({state for pair in events for state in pair})
    mortal = _mortal(axes, events)
    for (source, target), names in events.items():
        if source not in mortal or target not in ("QUARANTINED", "ABORTED"):
            _edge(axes, source, target, names)
    for state in named:
        _box(axes, state)
    axes.set(xlim=(-0.55, 7.9), ylim=(-0.35, 3.95))
    axes.axis("off")
    readable = [state for state in named if state in VALID]
    caption = (
        f"The {counted(len(named), 'state')} of a replica and the {counted(len(transitions), 'transition')} between "
        "them. Only "
        f"the {len(readable)} filled ones may be read. A load goes along the upper row and a store along the one "
        "below, and "
        f"nothing is visible before its `publish`. From each of the {len(mortal)} framed ones `kill` (cancel, expiry, "
        "reset) "
        "leads to QUARANTINED, whose slot is kept until its completion comes, and `abort`, a completion that is not "
        "valid, "
        f"to ABORTED."
    )
    alt = (
        f"A graph of {counted(len(named), 'state')}: from UNUSED through reserved and copying states to the valid "
        "ones and "
        f"on to released; a frame around {counted(len(mortal), 'state')} leads to QUARANTINED and ABORTED."
    )
    return Words(alt, caption, "Drawn from the table `TRANSITIONS` of {py:mod}`kvassay_reference.residency`.")


def _mortal(axes: Axes, events: dict[tuple[str, str], list[str]]) -> set[str]:
    """Frame the states in which a transaction can die, and draw its two ends once; they must be the same states."""
    killed, aborted = (
        {source for (source, target), names in events.items() if target == end and event in names and source != end}
        for event, end in (("kill", "QUARANTINED"), ("abort", "ABORTED"))
    )
    if killed != aborted - {"QUARANTINED"}:
        raise KeyError(f"states that die by kill are {sorted(killed)}, by abort {sorted(aborted)}")
    left, right, low, high = _around(killed)
    axes.add_patch(
        FancyBboxPatch(
            (left, low),
            right - left,
            high - low,
            boxstyle="round,pad=0,rounding_size=0.12",
            facecolor=FAINT,
            edgecolor=RED,
            linewidth=0.9,
            ls=(0, (4, 3)),
            zorder=0,
            gid="transaction",
        )
    )
    for end, event in (("QUARANTINED", "kill"), ("ABORTED", "abort")):
        x, y = PLACES[end]
        _arrow(axes, [(x, low), (x, y + HEIGHT / 2)], RED, f"end-{end}")
        _event(axes, event, (x, 0.5), RED)
    return killed


def _around(members: Iterable[str]) -> tuple[float, float, float, float]:
    """Left, right, bottom and top of a frame around states."""
    xs, ys = zip(*(PLACES[state] for state in members), strict=True)
    return (
        min(xs) - WIDTH / 2 - 0.13,
        max(xs) + WIDTH / 2 + 0.13,
        min(ys) - HEIGHT / 2 - 0.14,
        max(ys) + HEIGHT / 2 + 0.3,
    )


def _colour(state: str) -> str:
    if state in VALID:
        return GREEN
    if state in ("QUARANTINED", "ABORTED"):
        return RED
    if state in ("PROMOTE_RESERVED", "COPY_IN", "GPU_STAGED"):
        return BLUE
    return ORANGE if state in ("DEMOTE_RESERVED", "COPY_OUT") else SOFT


def _box(axes: Axes, state: str) -> None:
    x, y = PLACES[state]
    colour, filled = _colour(state), state in VALID
    axes.add_patch(
        FancyBboxPatch(
            (x - WIDTH / 2, y - HEIGHT / 2),
            WIDTH,
            HEIGHT,
            boxstyle="round,pad=0,rounding_size=0.09",
            facecolor=colour if filled else PAPER,
            edgecolor=colour,
            linewidth=1.3,
            zorder=3,
            gid=f"state-{state}",
        )
    )
    lines = state.split("_")
    for line, text in enumerate(lines):
        axes.annotate(
            text,
            (x, y),
            (0, 4.2 * (len(lines) - 1) - 8.4 * line),
            textcoords="offset points",
            ha="center",
            va="center",
            fontsize=6.8,
            color=PAPER if filled else INK if state == "UNUSED" else colour,
            fontweight="bold",
            zorder=4,
        )


def _edge(axes: Axes, source: str, target: str, names: list[str]) -> None:
    """One way between two states, with all events that go it."""
    (x, y), (u, v) = PLACES[source], PLACES[target]
    gid, text = f"edge-{source}-{target}", ", ".join(names)
    dies = target == "ABORTED"
    if source == target:
        side = -1 if target == "QUARANTINED" else 1
        ends = [(x - 0.2, y + side * HEIGHT / 2), (x + 0.2, y + side * HEIGHT / 2)]
        style = {"connectionstyle": f"arc3,rad={-0.7 * side}", "arrowstyle": "-|>", "mutation_scale": 7}
        axes.add_patch(FancyArrowPatch(*ends, lw=0.9, color=SOFT, zorder=1, gid=gid, shrinkA=0, shrinkB=0, **style))
        _event(axes, text, (x, y + side * (HEIGHT / 2 + 0.17)), SOFT, over=FAINT if side == 1 else PAPER)
        return
    if (source, target) in ROUTES:
        corners, label = ROUTES[source, target]
    elif y == v:
        corners = [(x + WIDTH / 2, y), (u - WIDTH / 2, v)]
        label = (0.45 * x + 0.55 * u if target in VALID else (x + u) / 2, y + 0.1)
    else:
        raise KeyError(f"no way from {source} to {target}")
    _arrow(axes, corners, RED if dies else SOFT, gid)
    _event(axes, text, label, RED if dies else SOFT, over=None if (source, target) not in ROUTES else PAPER)


def _arrow(axes: Axes, corners: Sequence[Point], colour: str, gid: str) -> None:
    way = Path(corners)
    axes.add_patch(
        FancyArrowPatch(
            path=way, arrowstyle="-|>", mutation_scale=8, lw=1.0, color=colour, fill=False, zorder=1, gid=gid
        )
    )


def _event(axes: Axes, text: str, place: Point, colour: str, over: str | None = PAPER) -> None:
    box = {"facecolor": over, "edgecolor": "none", "pad": 1.2} if over else None
    axes.annotate(text, place, ha="center", va="center", fontsize=7, color=colour, zorder=2, bbox=box)
