"""Every picture by name, what it is drawn from, and how it becomes part of a page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from .. import data
from ..markdown import need
from . import attention, canvas, corpus, indexes, memory, offload, quality, release, residency, runtime, selectors
from .words import Words, listed

Data = dict[str, Any]
Draw = Callable[..., Words]


CORPUS = "corpus"
"""The source of a picture that counts cases, requirements and faults."""


@dataclass(frozen=True)
class Picture:
    """One drawing, not yet drawn."""

    draw: Draw
    """Takes the figure and the sources' documents, and returns the words for it."""
    sources: tuple[str, ...]
    """Ids of cases, or files below ``fixtures/`` by their names with suffix; :data:`CORPUS` for counts of all."""
    width: float
    height: float
    """Inches."""

    def documents(self, root: Path) -> list[Data]:
        """The sources' documents in order; raises :class:`KeyError` or :class:`OSError` where one is not there."""
        return [_document(root, source) for source in self.sources]

    def figure(self, name: str, *documents: Data) -> tuple[Figure, Words]:
        """The figure drawn from given documents, and its words."""
        with canvas.styled(name):
            figure = canvas.blank(self.width, self.height)
            return figure, self.draw(figure, *documents)


@dataclass(frozen=True)
class Drawing:
    """What a page shows."""

    svg: str
    caption: str
    """MyST text on one line."""
    files: tuple[str, ...]
    """Files of the repository that it hangs on."""


PICTURES: dict[str, Picture] = {
    "attention/merge": Picture(attention.merge, ("attention/merge/split-at-4",), 7.4, 2.9),
    "corpus/contracts": Picture(corpus.contracts, (CORPUS,), 7.4, 4.6),
    "indexes/hierarchy": Picture(indexes.hierarchy, ("indexes/base.json", "indexes/adversary.json"), 7.4, 4.2),
    "indexes/sampling": Picture(indexes.sampling, ("indexes/magicpig/biased-at-finite-samples",), 7.4, 3.4),
    "memory/clusters": Picture(memory.clusters, ("memory/base.json",), 7.4, 3.6),
    "memory/recall-units": Picture(memory.recall_units, ("memory/base.json",), 7.4, 3.6),
    "offload/critical-ratio": Picture(
        offload.critical_ratio,
        ("offload/regime/base", "offload/regime/transfer-bound", "offload/regime/overlap"),
        7.4,
        3.1,
    ),
    "offload/pipeline": Picture(offload.pipeline, ("offload/base.json",), 7.4, 3.0),
    "quality/recall-units": Picture(quality.recall_units, ("quality/report.json",), 7.4, 3.7),
    "release/rollout": Picture(
        release.rollout,
        ("release/record-exact.json", "release/record-full.json", "release/record-approximate.json"),
        7.4,
        3.4,
    ),
    "residency/states": Picture(residency.states, (), 7.4, 4.6),
    "runtime/credits": Picture(
        runtime.admissions,
        ("runtime/policies/base-fifo", "runtime/policies/base-earliest-deadline", "runtime/policies/base"),
        7.4,
        4.4,
    ),
    "selectors/quest-boxes": Picture(
        selectors.quest_boxes, ("selectors/quest-pages/one-page-misses-two-find",), 7.4, 3.7
    ),
}


def drawn(root: Path, name: str) -> Drawing:
    """A picture for a page; raises :class:`KeyError` for an unknown name and for data that lack what is drawn."""
    if name not in PICTURES:
        raise KeyError(f"no picture {name}; there are {', '.join(sorted(PICTURES))}")
    picture = PICTURES[name]
    with canvas.styled(name):
        figure, words = picture.figure(name, *picture.documents(root))
        svg = canvas.svg(figure, name, words.alt)
    origin = words.origin or f"Drawn from {listed([_named(source) for source in picture.sources])}."
    files = [file for source in picture.sources for file in _files(root, source)]
    return Drawing(svg, f"{words.caption} {origin}", tuple(files))


def _document(root: Path, source: str) -> Data:
    if source == CORPUS:
        return corpus.census(root)
    if source.endswith(".json"):
        return data.load(root / "fixtures" / source)
    return data.case(root, source)


def _named(source: str) -> str:
    return f"`fixtures/{source}`" if source.endswith(".json") else need(source)


def _files(root: Path, source: str) -> list[str]:
    """Files of the repository that a source stands in."""
    if source == CORPUS:
        return sorted(path.relative_to(root).as_posix() for path in (root / "fixtures").glob("*/cases/*.json"))
    if source.endswith(".json"):
        return [f"fixtures/{source}"]
    contract, group, _ = source.split("/", 2)
    return [f"fixtures/{contract}/cases/{group}.json"]
