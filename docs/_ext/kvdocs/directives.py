"""Directives that chapters and guides use to show what the repository holds.

======================================  ===========================================================
``{kv-cases} attention``                table of the cases of a contract
``{kv-faults} attention``               table of its seeded faults
``{kv-example} attention/merge/one``    a small case with the numbers that are sent and expected
``{kv-base} identity/base /frontier``   what stands at a pointer of a base document
``{kv-reasons} identity``               reasons of one plane
``{kv-rules} runtime``                  rules of a monitor, and the requirements behind them
``{kv-profiles}``                       all profiles
``{kv-capabilities}``                   all capabilities
``{kv-variants}``                       all variants
``{kv-members} identity/record``        the members of a document, from its schema
``{kv-trace} attention``                requirement, cases, faults, verdicts
``{kv-sections}``                       article section to requirements
``{kv-items}``                          items of its sections to requirements
``{kv-engines}``                        the judged engines
``{kv-fuzz} residency``                 what fuzzing finds of the seeded faults
``{kv-picture} offload/pipeline``       a drawing of a case or a document, see :mod:`kvdocs.pictures`
======================================  ===========================================================

``kv-base`` is a role too, for a value inside a sentence.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective, SphinxRole

from . import data, engines, fuzz, schema, sections, tables


def _base(root: Path, argument: str) -> str:
    document, _, pointer = argument.partition(" ")
    return tables.base_value(data.base(root, document, pointer.strip()))


WRITERS: dict[str, Callable[[Path, str], str]] = {
    "kv-base": _base,
    "kv-capabilities": lambda root, _: tables.capabilities(root),
    "kv-cases": tables.cases,
    "kv-engines": lambda root, _: engines.summary(root),
    "kv-example": lambda root, argument: tables.example(data.case(root, argument)),
    "kv-faults": lambda _, argument: tables.faults(argument),
    "kv-fuzz": fuzz.detection,
    "kv-items": lambda root, _: sections.items(root),
    "kv-members": lambda root, name: schema.members(data.load(root / "schemas" / f"{name}.json")),
    "kv-profiles": lambda root, _: tables.profiles(root),
    "kv-reasons": tables.reasons,
    "kv-rules": lambda _, account: tables.rules(account),
    "kv-sections": lambda root, _: sections.table_of(root),
    "kv-trace": tables.trace,
    "kv-variants": lambda root, _: tables.variants(root),
}
"""Directive to the function that writes its MyST text from the repository and the directive's argument."""


class Show(SphinxDirective):
    """Write MyST text from the repository's data and parse it in place."""

    optional_arguments = 1
    final_argument_whitespace = True
    has_content = False

    def run(self) -> list[nodes.Node]:
        """The nodes; data that are not there are an error at the directive's own line."""
        argument = self.arguments[0].strip() if self.arguments else ""
        try:
            text = WRITERS[self.name](Path(self.config.kv_root), argument)
        except (KeyError, OSError) as error:
            raise self.error(f"{self.name} {argument}: {error}") from error
        return self.parse_text_to_nodes(text)


class Value(SphinxRole):
    """The value at a pointer of a base document, inside a sentence."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """A literal; data that are not there are an error at the line of the role."""
        document, _, pointer = self.text.partition(" ")
        try:
            item = data.base(Path(self.config.kv_root), document, pointer.strip())
        except (KeyError, OSError) as error:
            message = self.inliner.reporter.error(f"kv-base {self.text}: {error}", line=self.lineno)
            return [nodes.problematic(self.rawtext, self.rawtext)], [message]
        return [nodes.literal(text=json.dumps(item, ensure_ascii=False))], []


def setup(app: Sphinx) -> None:
    """Register every directive, and the role ``kv-base``."""
    for name in WRITERS:
        app.add_directive(name, Show)
    app.add_role("kv-base", Value())
