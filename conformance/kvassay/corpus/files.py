"""Cases from files that a user names, in place of those that the corpus ships."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ..core.model import Case
from ..core.tensors import TensorError
from .build import build
from .data import read_json, root
from .digest import digest
from .errors import CorpusError
from .lint import bindings, references, requests
from .load import FORMAT, Corpus
from .schemas import validate


def with_cases(corpus: Corpus, files: Sequence[Path]) -> Corpus:
    """The corpus with the cases of these files for its own; raises :class:`CorpusError` for what cannot be judged.

    The id of a case that the corpus ships stands for that case alone: a report must not show another under it.
    """
    raw: dict[str, Any] = {}
    cases: list[Case] = []
    for path in files:
        document = read_json(path)
        validate(document, FORMAT, file=str(path))
        if digest(document["cases"]) != document["digest"]:
            raise CorpusError("the digest does not belong to the cases", file=str(path), pointer="/digest")
        for index, row in enumerate(document["cases"]):
            at = f"/cases/{index}"
            if row["id"] in raw:
                raise CorpusError(f"the id {row['id']} stands twice", file=str(path), pointer=f"{at}/id")
            if corpus.raw_cases.get(row["id"], row) != row:
                told = f"{row['id']} is a case of the corpus that differs; a case of your own has its own id"
                raise CorpusError(told, file=str(path), pointer=f"{at}/id")
            raw[row["id"]] = row
            cases.append(_case(corpus, row, str(path), at))
    named = digest([corpus.digest, raw])
    return replace(corpus, cases=tuple(cases), raw_cases=MappingProxyType(raw), digest=named)


def _case(corpus: Corpus, row: Any, file: str, at: str) -> Case:
    try:
        case = build(row, root())
        tuple(case.steps)  # reads them, and so shows what is wrong with them
    except CorpusError as problem:
        raise CorpusError(str(problem), file=file, pointer=at) from None
    except (TensorError, ValueError, KeyError, TypeError, AttributeError) as problem:
        raise CorpusError(f"not a case: {problem}", file=file, pointer=at) from None
    for found in (*references(corpus, [case]), *bindings(case), *requests([case])):
        raise CorpusError(found, file=file, pointer=at)
    return case
