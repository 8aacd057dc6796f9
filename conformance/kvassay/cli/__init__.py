"""The command line: one module per command, and one place where errors become a line and an exit status."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

import click

from .. import __version__
from ..core.report import EXIT_ADAPTER, EXIT_USAGE

COMMANDS = {
    "run": "run",
    "list": "cases",
    "explain": "explain",
    "validate": "validate",
    "report": "report",
    "trace": "trace",
    "oracle": "oracle",
    "fuzz": "fuzz",
    "selftest": "selftest",
    "init-adapter": "init_adapter",
}
"""Command to the module that holds it, in the order of the help."""

EXIT_INTERRUPTED, EXIT_PIPE = 130, 141


class Commands(click.Group):
    """The commands, each imported when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order of use."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """The command of this name."""
        if name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"{__name__}.{COMMANDS[name]}").command
        return command


@click.command(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit status: 0 all required cases pass, 1 some case failed, 2 the command or a document is at fault, "
    "3 the adapter could not start.",
)
@click.version_option(__version__, "--version", message="kvassay %(version)s")
def root() -> None:
    """Judge engines that retrieve, offload and tier the attention K/V cache.

    An engine is reached through an adapter. Each case of the corpus gives one verdict, with what was sent, expected
    and returned, the requirement behind it, and a line that repeats it.

    \b
    Examples:
      kvassay run --adapter reference
      kvassay run --adapter my_engine.kvassay:Adapter --contract attention
      kvassay explain ATT-001
    """


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a command and exit; whatever goes wrong is one line on stderr and a documented status."""
    sys.exit(status(arguments))


def status(arguments: Sequence[str] | None = None) -> int:
    """Exit status of a command line."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        code = root.main(args=arguments, prog_name="kvassay", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except click.ClickException as problem:
        return _fail(problem.format_message(), EXIT_USAGE, _hint(problem))
    except (click.Abort, KeyboardInterrupt):
        return _fail("interrupted", EXIT_INTERRUPTED)
    except BrokenPipeError:
        # The reader went away; the flush at exit must not complain of it again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_PIPE
    except Exception as problem:
        return _other(problem)


def _other(problem: Exception) -> int:
    from ..adapters.errors import AdapterError
    from ..corpus import CorpusError

    if isinstance(problem, AdapterError):
        tail = [f"  {line}" for line in problem.stderr.strip().splitlines()[-8:]]
        return _fail(problem.message, EXIT_ADAPTER, *tail)
    if isinstance(problem, CorpusError):
        return _fail(str(problem), EXIT_USAGE)
    if isinstance(problem, OSError):
        return _fail(f"{problem.filename or 'error'}: {problem.strerror or problem}", EXIT_USAGE)
    if os.environ.get("KVASSAY_TRACEBACK"):
        raise problem
    hint = "this is a defect of kvassay; KVASSAY_TRACEBACK=1 shows where"
    return _fail(f"internal error: {type(problem).__name__}: {problem}", EXIT_USAGE, hint)


def _hint(problem: click.ClickException) -> str:
    context = getattr(problem, "ctx", None)
    return f"try {context.command_path} --help" if context is not None else ""


def _fail(message: str, code: int, *more: str) -> int:
    from ..reports.shorten import text

    print(f"kvassay: {' '.join(text(message, 1000).split())}", file=sys.stderr)
    for line in filter(None, more):
        print(text(line, 1000), file=sys.stderr)
    return code
