"""Formulas as MathML, converted by docutils at build time: no script, no font, no network.

A command that the converter does not know is a warning, so a formula never reaches a reader half converted.
"""

from __future__ import annotations

import re

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.writers.html5 import HTML5Translator

_APPLY = re.compile(r"<mo>&ApplyFunction;</mo>(\s*<(?!mspace|mo\b|mrow>\s*<mo>\())")
"""A function's name in front of an argument without a parenthesis, which needs a thin space: log x, but log(x)."""
_BAR = '<mo stretchy="false">|</mo>'
"""An absolute value's bar, which browsers take for an operator and set apart."""
_TIGHT_BAR = '<mo stretchy="false" lspace="0" rspace="0">|</mo>'

logger = logging.getLogger(__name__)


def convert(tex: str, *, block: bool) -> str:
    """MathML text of a formula; raises :class:`docutils.utils.math.MathError` for TeX that it cannot read."""
    if block and "\\\\" in tex and "\\begin" not in tex:
        tex = f"\\begin{{aligned}}{tex}\\end{{aligned}}"
    spaced = _APPLY.sub(r'<mo rspace="0.17em">&ApplyFunction;</mo>\1', tex2mathml(tex, as_block=block))
    return spaced.replace(_BAR, _TIGHT_BAR)


def _formula(node: nodes.math | nodes.math_block, *, block: bool) -> str:
    try:
        return convert(node.astext(), block=block)
    except MathError as error:
        logger.warning("formula %r: %s", node.astext(), error, location=node)
        return ""


def visit_inline(self: HTML5Translator, node: nodes.math) -> None:
    """Write a formula into the line."""
    self.body.append(_formula(node, block=False))
    raise nodes.SkipNode


def visit_display(self: HTML5Translator, node: nodes.math_block) -> None:
    """Write a formula on lines of its own, in a box that scrolls when it is too wide."""
    self.body.append(self.starttag(node, "div", CLASS="math-display", tabindex="0"))
    self.body.append(_formula(node, block=True))
    self.body.append("</div>\n")
    raise nodes.SkipNode


def setup(app: Sphinx) -> None:
    """Register the renderer under the name ``mathml``."""
    app.add_html_math_renderer("mathml", inline_renderers=(visit_inline, None), block_renderers=(visit_display, None))
