"""``fixtures/<contract>/ids.lock``: which ids were ever given out, and in which edition.

An id that once was committed never means another case: when its case goes, the line stays and says ``retired``. Until
the first commit an id may still be thought better of.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from .errors import CorpusError

RETIRED = "retired "


def read(path: Path) -> dict[str, str]:
    """Id to edition, or to ``retired`` and edition; nothing where the contract was never frozen."""
    return parse(path.read_text(encoding="utf-8")) if path.is_file() else {}


def parse(text: str) -> dict[str, str]:
    """The text of a lock as :func:`read` gives it."""
    return {name: edition for name, _, edition in (line.partition(" ") for line in text.splitlines())}


def given_out(lock: Mapping[str, str], committed: Mapping[str, str] | None, ids: Iterable[str]) -> dict[str, str]:
    """The lock without what a freeze added and no commit has seen.

    The committed line wins. A live id that neither a commit nor a case has is dropped; a retired line stays, for it can
    come from a branch that is being merged. Without a history, ``None``, every line counts.
    """
    if committed is None:
        return dict(lock)
    known, current = {**lock, **committed}, set(ids)
    return {
        one: since for one, since in known.items() if one in committed or one in current or since.startswith(RETIRED)
    }


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
