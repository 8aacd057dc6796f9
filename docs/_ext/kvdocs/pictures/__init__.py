"""Pictures of the chapters, drawn from the golden data at the start of each build.

``{kv-picture} offload/pipeline`` stands in a chapter; :data:`registry.PICTURES` has every name. A picture is one
function from documents to a figure, which returns what its caption says in words and figures of these documents.
Nothing is typed by hand: a changed fixture changes picture and caption.

Matplotlib is imported when the first picture is drawn, so that everything else of the site can be used without it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

if TYPE_CHECKING:
    from sphinx.application import Sphinx


class PictureDirective(SphinxDirective):
    """A drawing inside the page, with its caption."""

    required_arguments = 1
    has_content = False

    def run(self) -> list[nodes.Node]:
        """A figure; a name that is not there, or data without what is drawn, is an error at the directive's line."""
        name = self.arguments[0].strip()
        try:
            from .registry import drawn
        except ModuleNotFoundError as error:
            raise self.error(f"kv-picture {name}: {error}; the extra docs has it") from error
        root = Path(self.config.kv_root)
        try:
            drawing = drawn(root, name)
        except (KeyError, IndexError, OSError) as error:
            raise self.error(f"kv-picture {name}: {error}") from error
        for file in drawing.files:
            self.env.note_dependency(str(root / file))
        words, messages = self.parse_inline(drawing.caption)
        caption = nodes.caption("", "", *words)
        figure = nodes.figure("", nodes.raw("", drawing.svg, format="html"), caption, classes=["kv-figure"])
        return [figure, *messages]


def setup(app: Sphinx) -> None:
    """Register the directive."""
    app.add_directive("kv-picture", PictureDirective)
