"""Pictures of exact offload."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .canvas import BLUE, FAINT, GREEN, INK, LINE, ORANGE, PAPER, RED, SERIES, SOFT
from .words import Words, counted, expected, listed, number

Data = dict[str, Any]


def pipeline(figure: Figure, report: Data) -> Words:
    """The schedule of a report: the copy engine, what each slot holds until it may be reused, and compute."""
    events, times = report["events"], report["times"]
    slots = report["plan"]["slots"]
    lanes = ["copy engine", *(f"slot {slot}" for slot in range(slots)), "compute"]
    axes = figure.subplots()
    last = len(lanes) - 1
    before = 0.0
    for event in events:
        colour = SERIES[event["layer"] % len(SERIES)]
        start, end = event["compute_start_ms"], event["compute_end_ms"]
        text = f"layer {event['layer']}" if "slot" in event else f"layer {event['layer']}, resident"
        _bar(axes, last, start, end, colour, text, f"compute-{event['layer']}")
        if start > before:
            _stall(axes, last, before, start)
        before = end
        if "slot" in event:
            ready, lane = event["fetch_end_ms"], 1 + event["slot"]
            _bar(
                axes, 0, event["fetch_start_ms"], ready, colour, f"rows of {event['layer']}", f"fetch-{event['layer']}"
            )
            _held(axes, lane, event["fetch_start_ms"], ready, end, colour, event["layer"])
            axes.plot([ready, ready], [0.3, last - 0.3], color=colour, lw=0.9, ls=(0, (2, 2)), zorder=1)
            axes.plot(
                ready, last - 0.42, "v", ms=5, color=colour, clip_on=False, zorder=4, gid=f"ready-{event['layer']}"
            )
    axes.set(xlim=(0, before * 1.005), ylim=(last + 0.55, -0.55), xlabel="ms")
    axes.set_yticks(range(len(lanes)), lanes)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.set_title("One iteration, two slots" if slots == 2 else f"One iteration, {counted(slots, 'slot')}")
    resident = [event["layer"] for event in events if "slot" not in event]
    caption = (
        "A copy starts when the engine and its slot are free, and compute when the layer before has ended and the rows "
        "are there (triangles). A slot is held from the first byte to the end of its layer. "
        f"{_resident(resident)}The hatched {number(times['stall_ms'])} ms are waiting: the first fetch, which nothing "
        "can "
        f"hide. {number(times['hidden_ms'])} ms of copies are hidden, and the iteration takes "
        f"{number(times['service_ms'])} ms."
    )
    alt = (
        f"A timeline of {counted(len(events), 'layer')} with lanes for the copy engine, "
        f"{counted(slots, 'staging slot')} and "
        f"compute; {number(times['stall_ms'])} ms before the first layer are stall."
    )
    return Words(alt, caption)


def _resident(layers: list[int]) -> str:
    """What is said of layers that copy nothing."""
    if len(layers) < 2:
        return f"Layer {layers[0]} is resident and copies nothing. " if layers else ""
    return f"Layers {listed(layers)} are resident and copy nothing. "


def _bar(axes: Axes, lane: int, start: float, end: float, colour: str, text: str, gid: str) -> None:
    axes.barh(lane, end - start, 0.56, start, color=colour, edgecolor=PAPER, linewidth=0.8, zorder=3, gid=gid)
    axes.annotate(
        text, ((start + end) / 2, lane), ha="center", va="center", fontsize=8, color=PAPER, fontweight="bold", zorder=5
    )


def _held(axes: Axes, lane: int, start: float, ready: float, end: float, colour: str, layer: int) -> None:
    """What a slot does: it is filled, and then read until its layer has ended."""
    axes.barh(lane, end - start, 0.44, start, color=colour, alpha=0.16, zorder=2, gid=f"held-{layer}")
    axes.barh(lane, ready - start, 0.44, start, color=colour, alpha=0.30, zorder=2)
    axes.annotate("filled", ((start + ready) / 2, lane), ha="center", va="center", fontsize=7.5, color=INK, zorder=5)
    axes.annotate("held", ((ready + end) / 2, lane), ha="center", va="center", fontsize=7.5, color=INK, zorder=5)


def _stall(axes: Axes, lane: int, start: float, end: float) -> None:
    axes.barh(lane, end - start, 0.56, start, fill=False, hatch="////", edgecolor=RED, linewidth=0.8, gid="stall")
    axes.annotate(
        "stall",
        ((start + end) / 2, lane),
        ha="center",
        va="center",
        fontsize=8,
        color=RED,
        bbox={"facecolor": PAPER, "edgecolor": "none", "pad": 1.5},
    )


def critical_ratio(figure: Figure, below: Data, above: Data, overlapped: Data) -> Words:
    """Both ideal times over the ratio of cached to new tokens, and what a measured overlap leaves of them."""
    left, right = figure.subplots(1, 2, width_ratios=(1.5, 1))
    critical = float(expected(below, 0, "/kappa_crit"))
    compute = float(expected(below, 0, "/compute_ms"))
    points = [
        (
            case,
            float(expected(case, 0, "/ratio")),
            float(expected(case, 0, "/transfer_ms")),
            expected(case, 1, "/bound"),
        )
        for case in (below, above)
    ]
    reach = max(abs(ratio - critical) for _, ratio, _, _ in points) * 2.2
    low, high = critical - reach, critical + reach
    slope = points[0][2] / points[0][1]
    ratios = np.asarray([low, high])
    left.axvspan(low, critical, color=FAINT, zorder=0, gid="compute-bound")
    left.plot(ratios, ratios * slope, color=BLUE, gid="transfer")
    left.plot(ratios, [compute, compute], color=ORANGE, gid="compute")
    span = (high - low) * slope
    left.axvline(critical, color=SOFT, lw=0.9, ls=(0, (3, 3)))
    left.annotate(
        f"κ = {number(critical)}",
        (critical, low * slope - 0.02 * span),
        (4, 2),
        textcoords="offset points",
        fontsize=8.5,
        color=SOFT,
        va="bottom",
    )
    for _, ratio, transfer, bound in points:
        left.plot(ratio, max(transfer, compute), "o", ms=7, color=INK, mec=PAPER, zorder=5, gid=f"case-{bound}")
        left.annotate(
            f"K/T = {number(ratio)}",
            (ratio, max(transfer, compute)),
            (-6, 9) if ratio < critical else (5, -9),
            textcoords="offset points",
            fontsize=8.5,
            ha="right" if ratio < critical else "left",
            va="bottom" if ratio < critical else "top",
        )
    left.annotate(
        "copy K tokens",
        (high - 0.12 * reach, (high - 0.12 * reach) * slope),
        (-10, 2),
        textcoords="offset points",
        color=BLUE,
        ha="right",
        fontsize=8.5,
    )
    left.annotate(
        "compute T tokens",
        (high, compute),
        (-4, -5),
        textcoords="offset points",
        color=ORANGE,
        ha="right",
        va="top",
        fontsize=8.5,
    )
    left.annotate("bound by compute", (0.02, 0.97), xycoords="axes fraction", va="top", fontsize=8.5, color=SOFT)
    left.annotate(
        "bound by transfer", (0.98, 0.97), xycoords="axes fraction", va="top", ha="right", fontsize=8.5, color=SOFT
    )
    left.set(
        xlim=(low, high),
        ylim=(low * slope - 0.03 * span, high * slope + 0.16 * span),
        xlabel="cached tokens K for each new token T",
        ylabel="ms",
    )
    left.set_title("Which of two times is longer")
    measured = _overlap(right, overlapped)
    request = below["steps"][0]["request"]
    caption = (
        f"Copying {request['kv_bytes_per_token']:,} bytes a cached token at {number(request['bandwidth']['value'])} "
        f"{request['bandwidth']['unit']} and computing {request['new_tokens']} new ones at "
        f"{number(request['flop_per_s'] / 1e12)} TFLOP/s take equally long at κ = {number(critical)}. "
        f"{listed([f'K/T = {number(ratio)} is bound by {bound}' for _, ratio, _, bound in points])}. Right: the share "
        "of the "
        f"shorter time that was measured to overlap takes the whole from the sum to the longer of both: "
        f"{listed([f'{number(total)} ms at η = {number(eta)}' for eta, total in measured])}."
    )
    alt = (
        f"Left: transfer time rises with the ratio of cached to new tokens and crosses the constant compute time at "
        f"{number(critical)}. Right: the time of a step for {counted(len(measured), 'measured overlap')}."
    )
    return Words(alt, caption)


def _overlap(axes: Axes, case: Data) -> list[tuple[float, float]]:
    """Time of a step by overlap, for the steps that share the first one's tokens."""
    first = case["steps"][0]["request"]
    rows = [
        (step["request"]["eta"]["value"], float(expected(case, i, "/overlapped_ms")))
        for i, step in enumerate(case["steps"])
        if step["request"]["cached_tokens"] == first["cached_tokens"]
    ]
    etas, totals = zip(*sorted(rows), strict=True)
    axes.plot(etas, totals, color=GREEN, marker="o", ms=6, mec=PAPER, gid="overlap")
    for eta, total in rows:
        axes.annotate(number(total), (eta, total), (5, 5), textcoords="offset points", fontsize=8.5)
    axes.axhline(min(totals), color=LINE, lw=0.9, ls=(0, (3, 3)), zorder=0)
    axes.set(xlabel="measured overlap η", ylim=(0, max(totals) * 1.12), xlim=(-0.04, 1.2), ylabel="ms")
    axes.set_xticks(etas, [number(eta) for eta in etas])
    axes.set_title("What overlap leaves")
    return sorted(rows)
