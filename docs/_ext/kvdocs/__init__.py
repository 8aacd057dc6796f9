"""What the documentation adds to Sphinx: generated pages, tables of cases and faults, pictures, MathML, and checks.

The types of needs (requirement, case, fault, verdict) and the check for orphans are sphinx-needs' own;
``conf.py`` configures them.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging

from . import data, directives, mathml, pages, pictures, sections

logger = logging.getLogger(__name__)


def _write_pages(app: Sphinx) -> None:
    pages.write(Path(app.config.kv_root), Path(app.srcdir), app.config.kv_api)


REPOSITORY_LINK = re.compile(r"\]\((?:\.\./)+(?:(spec)/([\w-]+)\.md|(schemas)/([\w/.-]+)\.json)\)")


def _link_own_pages(app: Sphinx, docname: str, source: list[str]) -> None:
    """A guide links to files of the repository; the site has a page for each."""
    source[0] = REPOSITORY_LINK.sub(_page_of, source[0])


def _page_of(link: re.Match[str]) -> str:
    spec, chapter, _, schema = link.groups()
    return f"](/spec/{chapter}.md)" if spec else f"](/_generated/schemas/{schema}.md)"


def _check_sections(app: Sphinx, env: BuildEnvironment) -> None:
    for problem in sections.problems(Path(app.config.kv_root)):
        logger.warning(problem, type="kvassay", subtype="sections")


def _write_defaults(*signature: Any) -> tuple[str | None, str | None]:
    """A default that a dataclass makes anew is shown as ``...``: Sphinx cannot read its own ``<factory>``."""
    arguments, result = signature[-2:]
    return arguments and arguments.replace("<factory>", "..."), result


def setup(app: Sphinx) -> dict[str, Any]:
    """Register everything."""
    app.add_config_value("kv_root", str(data.REPOSITORY), "env", types=[str])
    app.add_config_value("kv_api", [], "env", types=[list])
    mathml.setup(app)
    directives.setup(app)
    pictures.setup(app)
    app.connect("builder-inited", _write_pages)
    app.connect("source-read", _link_own_pages)
    app.connect("autodoc-process-signature", _write_defaults)
    app.connect("env-check-consistency", _check_sections)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
