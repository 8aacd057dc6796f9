"""The suite as a library: ``report = kvassay.check(Adapter, profiles={"merge"}); assert report.ok, report``."""

from __future__ import annotations

from collections.abc import Iterable

from .adapters.base import EngineAdapter
from .core.report import Report
from .corpus import load


def check(
    adapter: type[EngineAdapter],
    *,
    profiles: Iterable[str] = (),
    contracts: Iterable[str] = (),
    cases: Iterable[str] = (),
    strict: bool = False,
) -> Report:
    """Judge an adapter class in this process; ``cases`` holds ids or globs.

    Raises :class:`~kvassay.corpus.CorpusError` when nothing is selected, and
    :class:`~kvassay.adapters.errors.AdapterError` when the adapter itself is broken.
    """
    from .adapters.local import InProcess
    from .runner import Session, run

    corpus = load()
    selected = corpus.select(profile=profiles, contract=contracts, case=cases)
    engine = InProcess(adapter)
    try:
        return run(Session(engine, corpus, strict=strict), selected)
    finally:
        engine.close()
