"""Pictures of the selectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from .canvas import INK, LINE, PAPER, RED, SERIES, SOFT
from .words import Words, counted, expected, listed, number, sentence

Data = dict[str, Any]


def quest_boxes(figure: Figure, case: Data) -> Words:
    """Quest in the plane: rows, the box of each page, the corner that makes its bound, and what a budget reads."""
    request = case["steps"][0]["request"]
    query = np.asarray(request["q"]["data"])[0]
    keys = np.asarray(request["k"]["data"])[:, 0, :]
    bounds = np.asarray(expected(case, 0, "/bounds"))[0]
    budgets = {
        step["request"]["budget_pages"]: expected(case, i, "/pages")[0]
        for i, step in enumerate(case["steps"])
        if step["op"] == "quest.select"
    }
    size = request["page_rows"]
    pages = [range(first, min(first + size, len(keys))) for first in range(0, len(keys), size)]
    products = keys @ query
    best = int(products.argmax())
    plane, bars = figure.subplots(1, 2, width_ratios=(1.15, 1))
    _plane(plane, query, keys, pages, best)
    _bars(bars, bounds, [max(products[list(rows)]) for rows in pages], budgets, best // size)
    top = int(bounds.argmax())
    reads = [
        f"a budget of {counted(budget, 'page')} reads {'page' if len(found) == 1 else 'pages'} {listed(found)} and "
        f"{'finds' if best // size in found else 'misses'} row {best}"
        for budget, found in sorted(budgets.items())
    ]
    caption = (
        f"Each box spans the {size} rows of a page. The hollow square is the corner that the query would like best, "
        "and the "
        f"page's bound is its product with the query, although no row need stand there: page {top} has the largest "
        "bound, "
        f"{number(bounds[top])}, over a best product of {number(max(products[list(pages[top])]))}. The best row of "
        "all is row "
        f"{best} of page {best // size}, with {number(products[best])}; a star marks its page. "
        f"{sentence('; '.join(reads))}."
    )
    alt = (
        f"Left: {len(keys)} keys in a plane with the bounding boxes of {len(pages)} pages and the query as an arrow. "
        f"Right: for each page its bound beside its best product, and the pages that each budget reads."
    )
    return Words(alt, caption)


def _plane(axes: Axes, query: Any, keys: Any, pages: Sequence[range], best: int) -> None:
    """Rows, boxes, best corners, the query, and the line of the best product."""
    for page, rows in enumerate(pages):
        colour = SERIES[page % len(SERIES)]
        inside = keys[list(rows)]
        low, high = inside.min(axis=0), inside.max(axis=0)
        axes.add_patch(
            Rectangle(low, *(high - low), facecolor=colour, alpha=0.10, linewidth=0, zorder=1, gid=f"area-{page}")
        )
        axes.add_patch(
            Rectangle(low, *(high - low), fill=False, edgecolor=colour, linewidth=1.4, zorder=2, gid=f"page-{page}")
        )
        corner = np.where(query > 0, high, low)
        axes.plot(*corner, "s", ms=8, mfc=PAPER, mec=colour, mew=1.6, zorder=4, gid=f"corner-{page}")
        axes.plot(*inside.T, "o", ms=6, color=colour, mec=PAPER, mew=0.8, zorder=5, gid=f"rows-{page}")
        for row in rows:
            outward = np.where(keys[row] >= inside.mean(axis=0), 1, -1)
            axes.annotate(
                str(row), keys[row], outward * 8, textcoords="offset points", color=colour, ha="center", va="center"
            )
    reach = np.abs(keys).max() * 1.25
    axes.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal")
    axes.axhline(0, color=LINE, lw=0.8, zorder=0)
    axes.axvline(0, color=LINE, lw=0.8, zorder=0)
    level = keys[best] @ query
    along = np.asarray([-query[1], query[0]]) / np.linalg.norm(query)
    ends = np.asarray([query * level / (query @ query) + along * t * 3 * reach for t in (-1, 1)])
    axes.plot(*ends.T, color=RED, lw=1, ls=(0, (4, 3)), zorder=1)
    axes.annotate(
        f"q·k = {number(level)}",
        query * level / (query @ query) + along * reach * 0.66,
        (-7, -3),
        textcoords="offset points",
        color=RED,
        fontsize=8,
        ha="right",
        va="center",
    )
    axes.annotate(
        "", query, (0, 0), arrowprops={"arrowstyle": "-|>", "color": INK, "lw": 1.6, "shrinkA": 0, "shrinkB": 0}
    )
    axes.annotate("q", query / 2, (7, -6), textcoords="offset points", fontsize=9, fontstyle="italic")
    axes.set_title("Rows, pages and their best corners", pad=22)
    axes.tick_params(length=0)
    for side in ("left", "bottom"):
        axes.spines[side].set_visible(False)


def _bars(axes: Axes, bounds: Any, products: Sequence[float], budgets: dict[int, Sequence[int]], home: int) -> None:
    """Bound and best product of each page, and who reads it."""
    for page, (bound, product) in enumerate(zip(bounds, products, strict=True)):
        colour = SERIES[page % len(SERIES)]
        axes.barh(page, bound, 0.52, color=colour, alpha=0.18, gid=f"bound-{page}")
        axes.barh(page, product, 0.22, color=colour, gid=f"product-{page}")
        if product == 0:
            axes.plot([0, 0], [page - 0.11, page + 0.11], color=colour, lw=3)
        axes.annotate(number(bound), (bound, page), (4, 0), textcoords="offset points", va="center", fontsize=8.5)
    far = float(max(bounds)) * 1.2
    for column, (budget, found) in enumerate(sorted(budgets.items())):
        x = far + column * float(max(bounds)) * 0.16
        axes.annotate(
            str(budget), (x, -0.62), ha="center", va="center", fontsize=8.5, color=SOFT, annotation_clip=False
        )
        for page in range(len(bounds)):
            read = page in found
            axes.plot(
                x,
                page,
                "o",
                ms=9,
                color=SERIES[page % len(SERIES)] if read else PAPER,
                mec=SERIES[page % len(SERIES)] if read else LINE,
                mew=1.2,
                clip_on=False,
                gid=f"read-{budget}-{page}" if read else None,
            )
            if page == home:
                axes.plot(x, page, "*", ms=5, color=PAPER if read else RED, clip_on=False, zorder=5)
    axes.annotate(
        "pages read with a budget of",
        (far, -0.62),
        (-10, 0),
        textcoords="offset points",
        fontsize=8,
        color=SOFT,
        ha="right",
        va="center",
        annotation_clip=False,
    )
    axes.set(xlim=(min(0, *products), far + len(budgets) * float(max(bounds)) * 0.16), ylim=(len(bounds) - 0.5, -0.5))
    axes.set_yticks(range(len(bounds)), [f"page {page}" for page in range(len(bounds))])
    axes.set_xticks(MaxNLocator(5, integer=True).tick_values(0, float(max(bounds))))
    axes.set_xlabel("bound (pale) and best product (solid)")
    axes.set_title("What is ranked, and what is there", pad=22)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
