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
@click.option("--contract", multiple=True, metavar="NAME", help="Only ops of this contract; may be repeated.")
def command(folder: Path, language: str, contract: tuple[str, ...]) -> int:
    """Write a commented adapter skeleton into DIR; nothing is overwritten.

    Without --contract it has every op of the suite.

    \b
    Examples:
      kvassay init-adapter my_engine_kvassay
      kvassay init-adapter --contract attention --contract identity my_engine_kvassay
      kvassay init-adapter --language javascript my-engine
    """
    if contract and language != LANGUAGES[0]:
        raise click.UsageError(f"--contract chooses ops of a {LANGUAGES[0]} skeleton; the other has a few to imitate")
    console = out()
    for path in init_adapter(folder, language, contract):
        say(console, f"wrote {path}")
    return 0
