"""How a picture looks: colours by role, letters, and the SVG that goes into a page.

Colours are roles. Matplotlib draws with those of a light page; in the SVG each becomes a CSS variable of that role with
the light colour for readers without the site's style sheet, so that one drawing serves both themes. Text stays text.
The same documents give the same bytes: ids hang on the picture's name, and no date is written.
"""

from __future__ import annotations

import html
import io
import re
from typing import Any

import matplotlib as mpl
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

INK, SOFT, LINE, FAINT = "#24292e", "#69717a", "#c3cad1", "#eef1f5"
"""Text and what matters; what explains; frames and grids; areas."""
BLUE, ORANGE, GREEN, VIOLET, RED = "#2868b0", "#c2660f", "#2a8550", "#7b4bb3", "#b8333c"
"""Things that are told apart; red is what goes wrong."""
ROLES = {
    "ink": INK,
    "soft": SOFT,
    "line": LINE,
    "faint": FAINT,
    "blue": BLUE,
    "orange": ORANGE,
    "green": GREEN,
    "violet": VIOLET,
    "red": RED,
    "paper": "#fdfefe",
}
PAPER = ROLES["paper"]
SERIES = (BLUE, ORANGE, GREEN, VIOLET)

STYLE: dict[str, Any] = {
    "axes.edgecolor": LINE,
    "axes.grid": False,
    "axes.labelcolor": SOFT,
    "axes.labelsize": 9,
    "axes.linewidth": 0.8,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlecolor": INK,
    "axes.titlelocation": "left",
    "axes.titlepad": 10,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9,
    "hatch.linewidth": 0.8,
    "lines.linewidth": 1.6,
    "path.simplify": False,
    "svg.fonttype": "none",
    "svg.id": None,
    "text.color": INK,
    "text.parse_math": False,
    "xtick.color": LINE,
    "xtick.labelcolor": SOFT,
    "xtick.labelsize": 8,
    "ytick.color": LINE,
    "ytick.labelcolor": SOFT,
    "ytick.labelsize": 8,
}


def blank(width: float, height: float) -> Figure:
    """A figure of so many inches that no state outside it knows of; draw on it within :func:`styled`."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasSVG(figure)
    return figure


def styled(name: str) -> Any:
    """The style and the ids of one picture, as a context."""
    return mpl.rc_context({**STYLE, "svg.hashsalt": name})


def svg(figure: Figure, name: str, alt: str) -> str:
    """The figure as an SVG element for the inside of a page."""
    out = io.BytesIO()
    figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    text = out.getvalue().decode("utf-8")
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r"font-family: [^;\"]*;? ?", "", text)  # the page has letters of its own
    text = _own_ids(text, name.replace("/", "-"))
    for role, colour in ROLES.items():
        text = re.sub(re.escape(colour), f"var(--kv-{role}, {colour})", text, flags=re.IGNORECASE)
    box = re.search(r'viewBox="[^"]*"', text)
    assert box is not None
    head = f'<svg class="kv-picture" role="img" aria-label="{html.escape(alt)}" {box[0]} '
    head += 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
    head += f'style="max-width: {figure.get_figwidth() * 72 * 1.3:.0f}px">'
    return head + re.sub(r"\s*\n\s*", "\n", text[text.index(">") + 1 :]).strip()


def _own_ids(text: str, prefix: str) -> str:
    """Ids that no other picture of the page has."""
    text = re.sub(r'\bid="', f'id="{prefix}--', text)
    text = re.sub(r'xlink:href="#', f'xlink:href="#{prefix}--', text)
    return re.sub(r"url\(#", f"url(#{prefix}--", text)
