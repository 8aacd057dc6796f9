"""Pictures of rollouts."""

from __future__ import annotations

import itertools
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from .canvas import BLUE, FAINT, GREEN, INK, ORANGE, PAPER, RED, SOFT, VIOLET
from .words import Words, counted, listed, number

Data = dict[str, Any]
BACK = "EXACT_BASELINE"
COLOURS = (BLUE, VIOLET, ORANGE, GREEN)
SPANS = {"OFF": (0.0, 0.0), "SHADOW": (1.1, 1.1), "CANARY": (2.2, 2.2), "RAMP": (3.3, 5.1), "FULL": (6.2, 6.2)}
"""Where each state stands; in a span a place is a share of the traffic."""


def rollout(figure: Figure, *records: Data) -> Words:
    """The states of a candidate in their order, and how far each record came before a gate took it back."""
    axes = figure.subplots()
    for state, (left, right) in SPANS.items():
        _station(axes, state, left, right)
    ends = list(SPANS.values())
    for (_, right), (left, _) in itertools.pairwise(ends):
        _arrow(axes, (right + 0.38, 0), (left - 0.38, 0), SOFT)
    floor = len(records) + 1.05
    told = [_record(axes, lane, record, floor) for lane, record in enumerate(records, 1)]
    axes.add_patch(
        FancyBboxPatch(
            (-0.38, floor - 0.2), ends[-1][1] + 0.76, 0.4, boxstyle="round,pad=0,rounding_size=0.1", facecolor=FAINT,
            edgecolor=RED, linewidth=1.1, gid="state-EXACT_BASELINE",
        )
    )  # fmt: skip
    axes.annotate(BACK, (ends[-1][1] / 2, floor), ha="center", va="center", color=RED, fontweight="bold", fontsize=8.5)
    axes.set(xlim=(-1.9, ends[-1][1] + 0.45), ylim=(floor + 0.35, -0.55))
    axes.axis("off")
    caption = (
        "A candidate goes from state to state, each share of its ramp in order, and each step rests on evidence that "
        "was "
        "taken where it stands. Within RAMP a place is a share of the traffic, and hollow ones are declared and not "
        "reached. "
        f"From every state one failed gate leads to the exact baseline. {'. '.join(told)}."
    )
    alt = (
        f"Above, {counted(len(SPANS), 'state')} from OFF to FULL. Below, {counted(len(records), 'record')} as lines "
        f"through the states that they reached, with the failed gates where they fall back."
    )
    return Words(alt, caption)


def _station(axes: Axes, state: str, left: float, right: float) -> None:
    axes.add_patch(
        FancyBboxPatch(
            (left - 0.38, -0.2), right - left + 0.76, 0.4, boxstyle="round,pad=0,rounding_size=0.1", facecolor=PAPER,
            edgecolor=INK, linewidth=1.1, gid=f"state-{state}",
        )
    )  # fmt: skip
    axes.annotate(state, ((left + right) / 2, 0), ha="center", va="center", fontsize=8, fontweight="bold")
    if left < right:
        for x, text in ((left, "0 %"), (right, "100 %")):
            axes.annotate(text, (x, 0), ha="center", va="center", fontsize=7, color=SOFT)


def _place(state: str, share_milli: int) -> float:
    left, right = SPANS[state]
    return left + (right - left) * share_milli / 1000 if left < right else left


def _record(axes: Axes, lane: int, record: Data, floor: float) -> str:
    """One record's way; what is said of it."""
    colour = COLOURS[(lane - 1) % len(COLOURS)]
    candidate = record["candidate"]
    for text, down, ink, weight in ((candidate["name"], 4, colour, "bold"), (candidate["mode"], -7, SOFT, "normal")):
        axes.annotate(
            text, (-0.35, lane), (-8, down), textcoords="offset points", ha="right", va="center", fontsize=8, color=ink,
            fontweight=weight,
        )  # fmt: skip
    at = _place("OFF", 0)
    for share in candidate["ramp_milli"]:
        x = _place("RAMP", share)
        axes.plot(x, lane, "o", ms=5, color=PAPER, mec=colour, mew=1.1, zorder=3, gid=f"declared-{lane}-{share}")
        axes.annotate(
            f"{number(share / 10)} %",
            (x, lane),
            (0, 6),
            textcoords="offset points",
            ha="center",
            fontsize=7,
            color=SOFT,
        )
    axes.plot(at, lane, "o", ms=7, color=colour, mec=PAPER, zorder=4, gid=f"at-{lane}-OFF-0")
    for step in record["transitions"]:
        if step["target"] == BACK:
            _arrow(axes, (at, lane + 0.08), (at, floor - 0.22), RED)
            axes.annotate(
                ", ".join(step["failed"]) or "shift", (at, lane + 0.32), (7, 0), textcoords="offset points",
                va="center", fontsize=7.5, color=RED,
            )  # fmt: skip
            axes.plot(at, lane, "X", ms=9, color=RED, mec=PAPER, zorder=5, gid=f"back-{lane}")
            continue
        following = _place(step["target"], step["fraction_milli"])
        axes.plot([at, following], [lane, lane], color=colour, lw=2.2, zorder=2)
        mark = f"at-{lane}-{step['target']}-{step['fraction_milli']}"
        axes.plot(following, lane, "o", ms=7, color=colour, mec=PAPER, zorder=4, gid=mark)
        at = following
    name, back = f"`{candidate['name']}`", record["rollback"]
    if back is None:
        return f"{name} stands in {record['state']}"
    gates = f" by {listed([f'`{gate}`' for gate in back['gates']])}" if back["gates"] else ""
    fate = {"finish": "may finish"}.get(back["in_flight"], back["in_flight"])
    return f"{name} is taken back from {back['source']}{gates}: {back['kind']}, and requests in flight {fate}"


def _arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], colour: str) -> None:
    style = {"arrowstyle": "-|>", "mutation_scale": 9, "lw": 1.2, "color": colour, "shrinkA": 0, "shrinkB": 0}
    axes.add_patch(FancyArrowPatch(start, end, **style))
