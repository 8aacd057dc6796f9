"""Documents that are accepted, with one changed field, and seldom two: what a validator is fuzzed with."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jsonpatch

from ..core.model import Json
from ..corpus.data import read_json, root
from ..corpus.schemas import schemas
from .contract import Draw

Document = dict[str, Any]
Path = tuple[str | int, ...]
WHOLE = 20
"""Percent of changes that are made to a member of a section as a whole, such as a list, and not within it."""
GONE = object()
"""Stands for a member that is taken out."""
UNSEALABLE = (KeyError, TypeError, ValueError, AttributeError, OverflowError)
"""What goes wrong when a document is too broken to have a digest."""


def unsealed(document: Document, keep: str) -> Document:
    """A document without digests of itself."""
    return document


class Documents:
    """Documents of one kind, around a few that are right.

    ``fixture`` is the base document, as a path below the fixtures; ``others`` make further ones from it. ``seal``
    derives the digests of a document anew, except the one at a pointer.
    """

    def __init__(
        self,
        schema: str,
        fixture: str,
        *,
        others: Sequence[Callable[[Document], Document]] = (),
        seal: Callable[[Document, str], Document] = unsealed,
    ) -> None:
        self.schema = schema
        self.fixture = fixture
        self._others = others
        self._seal = seal

    @functools.cached_property
    def bases(self) -> tuple[Document, ...]:
        """Documents that must be accepted."""
        base = read_json(root() / "fixtures" / f"{self.fixture}.json")
        return (base, *(self._seal(make(json.loads(json.dumps(base))), "") for make in self._others))

    @functools.cached_property
    def _texts(self) -> tuple[str, ...]:
        return tuple(map(json.dumps, self.bases))

    @functools.cached_property
    def places(self) -> tuple[tuple[tuple[tuple[Path, ...], ...], ...], ...]:
        """Of each base, the paths below each member of each section, so that a long list is not changed more often."""
        return tuple(tuple(_section(name, section) for name, section in base.items()) for base in self.bases)

    @functools.cached_property
    def words(self) -> Mapping[str, tuple[str, ...]]:
        """Member to the texts that its schema allows, where those are few."""
        found: dict[str, tuple[str, ...]] = {}

        def walk(node: Any) -> None:
            for name, item in node.get("properties", {}).items() if isinstance(node, dict) else ():
                allowed = item.get("enum") or item.get("items", {}).get("enum")
                if allowed:
                    found[name] = tuple(one for one in allowed if isinstance(one, str))
            for item in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
                walk(item)

        walk(schemas()[self.schema])
        return found

    @functools.cached_property
    def numbers(self) -> tuple[int, ...]:
        """Whole numbers of the base, one of which may be taken for another."""
        return tuple(sorted({value for value in _leaves(self.bases[0]) if type(value) is int}))

    @functools.cached_property
    def texts(self) -> tuple[str, ...]:
        """Texts of the base."""
        return tuple(sorted({value for value in _leaves(self.bases[0]) if isinstance(value, str)}))

    def draw(self, draw: Draw) -> Document:
        """One change on a base, seldom two or none, mostly sealed."""
        base = 0 if len(self.bases) == 1 or draw.chance(75) else draw.integer(1, len(self.bases) - 1)
        made: Document = json.loads(self._texts[base])  # the fastest copy
        changed = ""
        for _ in range(0 if draw.chance(2) else 2 if draw.chance(15) else 1):
            member = draw.pick(draw.pick(self.places[base]))
            path = member[0] if draw.chance(WHOLE) else draw.pick(member)
            changed = self._change(draw, made, path) or changed
        if draw.chance(2):
            return made
        try:
            return self._seal(made, changed)
        except UNSEALABLE:
            return made

    def written(self, made: Mapping[str, Any]) -> Mapping[str, Json]:
        """A document as the base and what was changed in it."""
        patch = jsonpatch.make_patch(self.bases[0], made).patch
        return {"$base": self.fixture, **({"patch": patch} if patch else {})}

    def _change(self, draw: Draw, made: Document, path: Path) -> str:
        """Change what stands at a path, if an earlier change left it there; its pointer."""
        node: Any = made
        *outer, last = path
        try:
            for part in outer:
                node = node[part]
            value = self._near(draw, str(outer[-1] if isinstance(last, int) else last), node[last])
        except (KeyError, IndexError, TypeError):
            return ""
        if value is GONE:
            del node[last]
        else:
            node[last] = value
        return "".join(f"/{part}" for part in path)

    def _near(self, draw: Draw, name: str, value: Any) -> Any:
        """Another value that stands near."""
        if draw.chance(4):
            return GONE
        if isinstance(value, bool):
            return not value
        if isinstance(value, int):
            return draw.pick((value + 1, value + 1, max(0, value - 1), max(0, value - 1), 0, value + 10, *self.numbers))
        if isinstance(value, str):
            if len(value) == 64:
                return draw.pick(("5" * 64, "3" * 64, "2" * 64, "1" * 64))
            known = [word for word in self.words.get(name, ()) if word != value]
            return None if draw.chance(6) else draw.pick(known or ("other", value + "x", draw.pick(self.texts)))
        if isinstance(value, list) and value:
            return draw.pick((value[:-1], [*value, value[-1]], value[::-1], [], value[1:], [*value[1:], value[0]]))
        return draw.pick((None, "other", 1, [], {"first_position": 2048, "end_position": 3072}))


def _section(name: str, section: Any) -> tuple[tuple[Path, ...], ...]:
    inner = section.items() if isinstance(section, dict) else enumerate(section) if isinstance(section, list) else ()
    return (((name,),), *(tuple(_paths(item, (name, one))) for one, item in inner))


def _paths(node: Any, path: Path) -> Iterator[Path]:
    yield path
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, item in items:
        yield from _paths(item, (*path, key))


def _leaves(node: Any) -> Iterator[Any]:
    items = node.values() if isinstance(node, dict) else node if isinstance(node, list) else None
    if items is None:
        yield node
        return
    for item in items:
        yield from _leaves(item)
