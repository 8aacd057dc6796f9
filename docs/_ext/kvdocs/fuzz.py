"""The table of what fuzzing finds, from the data that ``nox -s fuzz-faults`` writes."""

from __future__ import annotations

from pathlib import Path

from . import data
from .markdown import code, line, need, table


def detection(root: Path, contract: str) -> str:
    """Fault, defect, examples needed, steps after shrinking, and what was found or why nothing can be."""
    document = data.load(root / "docs" / "fuzz" / f"{contract}.json")
    rows = [
        [
            need(f"{contract}/{row['name']}", row["name"]),
            line(row["summary"]),
            str(row["examples"]) if row["found"] else "none",
            str(row["steps"]) if row["found"] else "",
            code(row["reason"]) if row["found"] else line(row["silent"]),
        ]
        for row in document["rows"]
        if row["requirement"]
    ]
    head = f"{document['found']} of {document['faults']} faults with seed {document['seed']}."
    return f"{head}\n\n{table(['Fault', 'Defect', 'Examples', 'Steps', 'Found as'], rows, widths='22 36 8 6 28')}"
