"""``fixtures/<contract>/ids.lock``: which ids were ever given out, and in which edition.

An id that once stood there never means another case: when its case goes, the line stays and says ``retired``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from .errors import CorpusError

RETIRED = "retired "


def read(path: Path) -> dict[str, str]:
    """Id to edition, or to ``retired`` and edition; nothing where the contract was never frozen."""
    if not path.is_file():
        return {}
    rows = [line.partition(" ") for line in path.read_text(encoding="utf-8").splitlines()]
    return {name: edition for name, _, edition in rows}


def updated(known: Mapping[str, str], ids: Iterable[str], edition: str) -> dict[str, str]:
    """The lock with new ids added and lost ones retired; raises :class:`CorpusError` for one that comes back."""
    current = dict.fromkeys(ids, edition)
    for one in current:
        if known.get(one, "").startswith(RETIRED):
            raise CorpusError(f"the id {one} was retired and may not be used again")
    lost = {one: RETIRED + since.removeprefix(RETIRED) for one, since in known.items() if one not in current}
    return current | {one: since for one, since in known.items() if one in current} | lost


def write(lock: Mapping[str, str]) -> str:
    """The file's text: one id a line, in alphabetical order."""
    return "".join(f"{one} {edition}\n" for one, edition in sorted(lock.items()))
