"""Reports of engines as pages, and the table of judged engines in the README."""

from pathlib import Path
def summary(root: Path) -> str: return ""
def page(name, report): return ""
