"""Options that select cases, shared by the commands that take a part of the corpus."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from ..core.model import Case, Kind, Level
from ..corpus import Corpus

F = TypeVar("F", bound=Callable[..., Any])

OPTIONS = (
    click.option("--contract", multiple=True, metavar="NAME", help="Only cases of this contract."),
    click.option("--profile", multiple=True, metavar="NAME", help="Only cases of this profile."),
    click.option("--case", multiple=True, metavar="ID", help="Only this case; * and ? stand for any characters."),
    click.option("--requirement", multiple=True, metavar="ID", help="Only cases that test this requirement."),
    click.option("--kind", multiple=True, type=click.Choice([k.value for k in Kind]), help="Only cases of this kind."),
    click.option(
        "--level", multiple=True, type=click.Choice([x.value for x in Level]), help="Only cases of this level."
    ),
    click.option("--variant", multiple=True, metavar="NAME", help="Only cases of this variant of a method."),
    click.option("-k", "keyword", metavar="TEXT", help="Only cases whose id, title or description contains TEXT."),
)


NAMES = ("case", "contract", "profile", "requirement", "kind", "level", "variant")
"""The options that may be repeated."""


def selectors(command: F) -> F:
    """Give a command the selecting options; each may be repeated, and all must hold together."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command


def select(corpus: Corpus, options: dict[str, Any]) -> tuple[Case, ...]:
    """The cases that a command's options name; raises :class:`CorpusError` when none is left."""
    return corpus.select(**{name: options[name] for name in NAMES}, keyword=options["keyword"])


def selection(options: dict[str, Any]) -> dict[str, tuple[str, ...]]:
    """What a command's options select by, as a report records it."""
    keyword = () if options["keyword"] is None else (options["keyword"],)
    return {**{name: tuple(options[name]) for name in NAMES}, "keyword": keyword}
