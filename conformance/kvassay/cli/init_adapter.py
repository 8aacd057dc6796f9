"""``kvassay init-adapter``: a skeleton to fill in."""

from __future__ import annotations

from pathlib import Path

import click

from ..adapters.init import LANGUAGES, init_adapter
from .console import out, say


@click.command("init-adapter", short_help="Write a commented adapter skeleton.")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False), metavar="DIR")
@click.option(
    "--language", type=click.Choice(LANGUAGES), default=LANGUAGES[0], show_default=True, help="Language of the adapter."
)
def command(folder: Path, language: str) -> int:
    """Write a commented adapter skeleton into DIR; nothing is overwritten.

    \b
    Examples:
      kvassay init-adapter my_engine_kvassay
      kvassay init-adapter --language javascript my-engine
    """
    console = out()
    for path in init_adapter(folder, language):
        say(console, f"wrote {path}")
    return 0
