"""Bring the table of judged engines in the README up to date: ``python docs/_ext/kvdocs/readme.py``."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve()
BEGIN, END = "<!-- engines: begin -->\n", "<!-- engines: end -->\n"


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
    readme.write_text(with_table(readme.read_text(encoding="utf-8"), engines.readme_table(root)), encoding="utf-8")


if __name__ == "__main__":
    main()
