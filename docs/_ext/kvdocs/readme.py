"""Bring the sample sessions and the table of judged engines in the README up to date.

Run ``python docs/_ext/kvdocs/readme.py``.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve()
BEGIN, END = "<!-- engines: begin -->\n", "<!-- engines: end -->\n"
SESSION = re.compile(r"(<!-- session: begin -->\n)(.*?)(<!-- session: end -->)", re.DOTALL)
PROMPT = "$ "


def with_sessions(text: str, session: Callable[[str], str]) -> str:
    """The README's text with what each command prints now; a session that differs in its times alone stays."""

    def again(match: re.Match[str]) -> str:
        old = textwrap.dedent(match[2])
        command = old.partition("\n")[0]
        new = f"{command}\n{session(command.removeprefix(PROMPT))}"
        kept = old if timeless(old) == timeless(new) else new
        return f"{match[1]}{textwrap.indent(kept, '    ')}{match[3]}"

    return SESSION.sub(again, text)


def timeless(text: str) -> str:
    """A session without the seconds that it took."""
    return re.sub(r"in [0-9.]+ s\b", "in 0.1 s", text)


def session(command: str) -> str:
    """What a command prints; without the digest, which each new case changes."""
    root = HERE.parents[3]
    path = os.pathsep.join(str(root / part) for part in ("conformance", "reference", "kernels"))
    done = subprocess.run(
        [sys.executable, "-m", *command.split()],
        cwd=root,
        env={**os.environ, "PYTHONPATH": path, "COLUMNS": "100", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    printed = "".join(f"{line.rstrip()}\n" for line in done.stdout.strip().split("\n"))
    return re.sub("digest [0-9a-f]{12}$", "digest …", printed, flags=re.MULTILINE)


def with_table(text: str, table: str) -> str:
    """The README's text with this table between its marks."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{table}{END}{after}"


def main() -> None:
    """Write the file."""
    root = HERE.parents[3]
    sys.path[:0] = [str(HERE.parents[1]), str(root / "conformance")]
    from kvdocs import engines

    readme = root / "README.md"
    text = with_sessions(readme.read_text(encoding="utf-8"), session)
    readme.write_text(with_table(text, engines.readme_table(root)), encoding="utf-8")


if __name__ == "__main__":
    main()
