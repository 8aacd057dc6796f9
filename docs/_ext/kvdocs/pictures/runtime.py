"""Pictures of admission."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from .canvas import INK, LINE, PAPER, RED, SERIES, SOFT
from .words import Words, counted, expected, listed, number

Data = dict[str, Any]
RESOURCES = {"pinned_bytes": "pinned", "link_bytes": "link", "staging_bytes": "staging", "queue_slots": "places"}
FATES = {
    "RECOMPUTE_EXACT": "recompute",
    "POSTPONE_FOR_EXACT_RETRY": "postpone",
    "ACCEPT_DECLARED_DEGRADED": "degrade",
    "REJECT_NO_LEGAL_PATH": "reject",
}
"""Short words for what becomes of a request that is turned away."""


def admissions(figure: Figure, *cases: Data) -> Words:
    """The same requests under each policy: in which order they are asked, and what the admitted ones are charged."""
    panels = figure.subplots(len(cases), 2, width_ratios=(1.25, 1))
    names = sorted(expected(cases[0], 0, "/order"))
    colours = {name: SERIES[place % len(SERIES)] for place, name in enumerate(names)}
    told = []
    for (queue, bars), case in zip(panels, cases, strict=True):
        policy = _policy(case)
        _queue(queue, case, colours)
        _bars(bars, case, colours)
        queue.set_title(policy, fontsize=9.5, pad=4)
        admitted = [_short(row["request"]) for row in expected(case, 0, "/admitted")]
        saved = int(expected(case, 0, "/saved_bytes"))
        told.append(f"{policy} admits {listed(admitted)}" + (f" and saves {saved:,} bytes" if saved else ""))
    free = expected(cases[0], 0, "/free")
    caption = (
        f"{counted(len(names), 'request')} for {counted(free['queue_slots'], 'place')}, asked from left to right. "
        "Filled ones are admitted, and a dashed edge marks a read that is bought already: it pays for staging and "
        "place "
        "alone. Hollow ones are turned away to their fallback; red ones would be late. Bars are the shares of what "
        "is free, "
        f"as it is charged. {'; '.join(told)}."
    )
    alt = (
        f"A row for each of {counted(len(cases), 'policy', 'policies')}: its queue of "
        f"{counted(len(names), 'request')} and four "
        f"bars of credits."
    )
    return Words(alt, caption)


def _policy(case: Data) -> str:
    document = case["steps"][0]["request"]["document"]
    changed = [one["value"] for one in document.get("patch", ()) if one["path"] == "/policy"]
    return str(changed[-1] if changed else document.get("policy", "exact_deadline_coalescing"))


def _short(request: str) -> str:
    return request.removeprefix("req-")


def _queue(axes: Axes, case: Data, colours: dict[str, str]) -> None:
    order: list[str] = expected(case, 0, "/order")
    admitted = {row["request"]: row for row in expected(case, 0, "/admitted")}
    fallbacks = {row["request"]: row for row in expected(case, 0, "/fallbacks")}
    for place, name in enumerate(order):
        colour, inside = colours[name], name in admitted
        late = name in fallbacks and fallbacks[name]["reason"] == "DEADLINE"
        joined = inside and admitted[name]["joined"]
        edge = INK if joined else RED if late else colour if inside else SOFT
        axes.add_patch(
            FancyBboxPatch(
                (place + 0.08, 0.3), 0.84, 0.62, boxstyle="round,pad=0,rounding_size=0.1",
                facecolor=colour if inside else PAPER, edgecolor=edge,
                linewidth=1.6 if joined else 1.2, ls=(0, (3, 2)) if joined else "-",
                gid=f"{'in' if inside else 'out'}-{_policy(case)}-{_short(name)}",
            )
        )  # fmt: skip
        axes.annotate(
            _short(name), (place + 0.5, 0.61), ha="center", va="center", fontweight="bold", fontsize=8.5,
            color=PAPER if inside else RED if late else SOFT,
        )  # fmt: skip
        fate = ("joins" if joined else "reads") if inside else FATES[fallbacks[name]["action"]]
        why = "" if inside else " · late" if late else " · no room"
        axes.annotate(
            fate + why, (place + 0.5, 0.1), ha="center", va="center", fontsize=7.5, color=RED if late else SOFT
        )
    axes.set(xlim=(0, len(order) + 0.15), ylim=(-0.1, 1.05))
    axes.axis("off")


def _bars(axes: Axes, case: Data, colours: dict[str, str]) -> None:
    """Each resource as one bar of what is free, filled by the admitted requests in their order."""
    free: dict[str, int] = expected(case, 0, "/free")
    for lane, (resource, word) in enumerate(RESOURCES.items()):
        axes.barh(lane, 1, 0.5, color=PAPER, edgecolor=LINE, lw=0.8)
        used = 0.0
        for row in expected(case, 0, "/admitted"):
            share = row["charged"][resource] / free[resource]
            if share:
                axes.barh(
                    lane, share, 0.5, used, color=colours[row["request"]], edgecolor=PAPER, lw=0.8,
                    gid=f"charge-{_policy(case)}-{resource}-{_short(row['request'])}",
                )  # fmt: skip
            used += share
        axes.annotate(f"{number(100 * used, 0)} %", (1.03, lane), va="center", fontsize=7.5, color=SOFT)
        axes.annotate(word, (-0.03, lane), ha="right", va="center", fontsize=8, color=SOFT)
    axes.set(xlim=(-0.34, 1.2), ylim=(len(RESOURCES) - 0.5, -0.5))
    axes.axis("off")
