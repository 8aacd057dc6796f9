"""The command ``python -m kvassay.authoring``."""

from __future__ import annotations

import sys

import click

from ..corpus.data import root
from ..corpus.errors import CorpusError
from .freeze import Plan, authored, freeze


@click.command()
@click.option(
    "--contract", "chosen", multiple=True, metavar="NAME", help="Freeze these contracts only; may be repeated."
)
@click.option("--only", default="", metavar="TEXT", help="Only cases whose id contains this text, without writing.")
@click.option("--check", is_flag=True, help="Write nothing; fail on any drift.")
@click.option("--fresh", is_flag=True, help="Use no oracle's answer that was kept from an earlier run.")
@click.option("--small", is_flag=True, help="With --check: trust the committed values of large cases.")
@click.option("--jobs", default=2, show_default=True, help="Processes.")
@click.option("--quiet", is_flag=True, help="Say nothing of single cases.")
def main(chosen: tuple[str, ...], only: str, check: bool, fresh: bool, small: bool, jobs: int, quiet: bool) -> None:
    """Turn what people wrote into frozen data, or prove that the frozen data are current.

    Every case is replayed on its contract's oracle, which fills expected values and bounds and confirms the rest; the
    frozen case is then judged with the oracle as the engine. Written are base documents, one file a group of cases,
    ids.lock, the requirements of each chapter, and the families of ops.
    """
    try:
        if small and not check:
            raise CorpusError("--small trusts committed values, so that it goes with --check alone")
        say = (lambda text: None) if quiet else (lambda text: print(text, file=sys.stderr, flush=True))
        plan = Plan(only=only, check=check, fresh=fresh, small=small, jobs=jobs, say=say)
        changed = freeze(chosen or authored(root()), plan)
    except CorpusError as refusal:
        click.echo(f"error: {refusal}", err=True)
        raise SystemExit(2) from None
    if check and changed:
        click.echo("drift: " + ", ".join(changed), err=True)
        raise SystemExit(1)
    click.echo(f"{'would change' if only else 'changed'}: {', '.join(changed) or 'nothing'}")
