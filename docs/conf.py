"""How Sphinx builds the site: MyST pages, requirements as needs, generated tables, MathML."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path[:0] = [str(ROOT / "conformance"), str(ROOT / "reference"), str(ROOT / "kernels"), str(HERE / "_ext")]

from kvassay import __version__  # noqa: E402

project = "kvassay"
author = "The kvassay authors"
project_copyright = "The kvassay authors"
release = version = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.githubpages", "sphinx_needs", "kvdocs"]
exclude_patterns = ["_build", "_ext"]
nitpicky = True
nitpick_ignore_regex = [
    # Types of other packages: their inventories are on the network, and a build needs none.
    (r"py:.*", r"(?!kvassay)[\w.]+"),
    (r"py:class", r"kvassay[\w.]*\._[A-Z]\w*"),  # private type variables in signatures
    (r"py:class", r"[\d.]+e-\d+"),  # limits of numbers in signatures
]

kv_api = [
    "kvassay",
    "kvassay.adapters.base",
    "kvassay.core.engine",
    "kvassay.core.judge",
    "kvassay.core.model",
    "kvassay.core.report",
    "kvassay.core.tensors",
    "kvassay.corpus",
    "kvassay_reference.*",
]

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath", "fieldlist"]
myst_heading_anchors = 4

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"show-inheritance": True}
python_maximum_signature_line_length = 90

html_theme = "furo"
html_title = f"kvassay {release}"
html_static_path = ["_static"]
html_css_files = ["kvassay.css"]
html_copy_source = False
html_show_sourcelink = False
html_math_renderer = "mathml"

# -- Needs: requirement <- case <- fault, case <- verdict ---------------------------------------------------------

needs_types = [
    {"directive": "req", "title": "Requirement", "prefix": "", "color": "#ffffff", "style": "node"},
    {"directive": "case", "title": "Case", "prefix": "", "color": "#ffffff", "style": "node"},
    {"directive": "fault", "title": "Fault", "prefix": "", "color": "#ffffff", "style": "node"},
    {"directive": "verdict", "title": "Verdict", "prefix": "", "color": "#ffffff", "style": "node"},
]
needs_id_required = True
needs_id_regex = r"^([A-Z]{3}-[0-9]{3}|[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)+)$"
needs_fields = {
    "level": {"description": "How binding it is.", "schema": {"type": "string", "enum": ["must", "should"]}},
    "sources": {"description": "Sections of the article.", "schema": {"type": "string"}},
    "kind": {
        "description": "How a case shows its requirement.",
        "schema": {"type": "string", "enum": ["example", "mutation", "scenario", "relation"]},
    },
    "profile": {"description": "Profile that an engine claims to be held to the case.", "schema": {"type": "string"}},
    "variant": {"description": "Variant of a method.", "schema": {"type": "string"}},
}
needs_links = {
    "tests": {"outgoing": "tests", "incoming": "cases"},
    "breaks": {"outgoing": "breaks", "incoming": "faults"},
    "killed_by": {"outgoing": "killed by", "incoming": "kills"},
    "judges": {"outgoing": "case", "incoming": "verdicts"},
}
needs_layouts = {
    "card": {
        "grid": "simple_footer",
        "layout": {
            "head": ['<<meta_id()>> **<<meta("title")>>**'],
            "meta": ["<<meta_all(no_links=True)>>"],
            "footer": ["<<meta_links_all()>>"],
        },
    },
}
needs_default_layout = "card"
needs_role_need_template = "{{ id }}"
needs_css = "blank.css"
needs_warnings_always_warn = True
needs_warnings = {
    "requirement without a case": "type == 'req' and not tests_back",
    "requirement without a fault": "type == 'req' and not breaks_back",
    "fault without a case that kills it": "type == 'fault' and not killed_by and status != 'equivalent'",
}
