"""``kvassay init-adapter``: a skeleton to fill in, its methods written from the schemas of the ops."""

from __future__ import annotations

import errno
import json
import textwrap
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from ..corpus import CorpusError, data
from ..corpus.errors import did_you_mean
from ..corpus.members import Member, members
from ..corpus.ops import Op, ops
from ..corpus.registries import Capability, capabilities

SKELETON = Path(__file__).parent / "skeleton"
LANGUAGES = ("python", "javascript")
OPS_MARK = "    # <ops>\n"
CAPABILITIES_MARK = "        # <capabilities>\n"
WIDTH = 100
MANY = 4
"""Members of a nested object beyond which they are written out once, and referred to afterwards."""


SHARED = ("control", "common")
"""Folders of schemas that belong to every contract."""


def init_adapter(folder: Path, language: str = "python", contracts: Collection[str] = ()) -> list[Path]:
    """Write the skeleton into a folder, which may exist; the paths written. Nothing is ever overwritten.

    With ``contracts`` the skeleton of a Python adapter has the ops and capabilities of these alone; raises
    :class:`CorpusError` for one that there is not.
    """
    for name in contracts:
        if name not in data.contracts():
            raise CorpusError(f"no contract {name!r}{did_you_mean(name, data.contracts())}")
    chosen = (*(contracts or data.contracts()), *SHARED)
    if language == "python":
        texts = {path.name: path.read_text(encoding="utf-8") for path in sorted(SKELETON.iterdir()) if path.is_file()}
        texts = {name.removesuffix(".txt"): _filled(text, chosen) for name, text in texts.items()}
    else:
        source = data.root() / "examples" / f"{language}-engine"
        texts = {path.name: path.read_text(encoding="utf-8") for path in sorted(source.iterdir()) if path.is_file()}
    for name in texts:
        if (folder / name).exists():
            raise FileExistsError(errno.EEXIST, "exists already; nothing was written", str(folder / name))
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return [folder / name for name in texts]


def _filled(text: str, chosen: Collection[str]) -> str:
    return text.replace(CAPABILITIES_MARK, _capabilities(chosen)).replace(OPS_MARK, _methods(chosen))


def _capabilities(chosen: Collection[str]) -> str:
    """Every capability of these contracts with its default, in comments; a family of many is introduced once."""
    lines: list[str] = []
    families: dict[str, list[Capability]] = {}
    for one in capabilities(data.root()).values():
        if one.contract in chosen:
            families.setdefault(one.name.rpartition(".")[0], []).append(one)
    for family, found in families.items():
        first = found[0]
        if len(found) > MANY and all((one.values, one.default) == (first.values, first.default) for one in found):
            lines += _comment(f"{family}.*: {_values(first)}; `kvassay explain {first.name}` says what each means.")
            lines += [_entry(one) for one in found]
        else:
            for one in found:
                lines += [*_comment(f"{one.meaning} {_values(one)}."), _entry(one)]
    return textwrap.indent("\n".join(lines), "        ") + "\n"


def _comment(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent="# ", subsequent_indent="# ")


def _values(one: Capability) -> str:
    return " or ".join(map(_python, one.values))


def _entry(one: Capability) -> str:
    return f'# "{one.name}": {_python(one.default)},'


def _python(value: Any) -> str:
    return json.dumps(value) if isinstance(value, str) else repr(value)


def _methods(chosen: Collection[str]) -> str:
    """Every op of these contracts as a method in comments: to claim an op is to uncomment it."""
    lines: list[str] = []
    shown: dict[tuple[Member, ...], str] = {}
    for op in (one for one in ops().values() if one.contract in chosen):
        text = [f"def {op.method}(self, request):", *_docstring(op, shown)]
        text += ['    raise kvassay.Unsupported("not connected yet")']
        lines += [f"# {line}".rstrip() for line in text] + [""]
    return textwrap.indent("\n".join(lines), "    ").rstrip() + "\n"


def _docstring(op: Op, shown: dict[tuple[Member, ...], str]) -> Iterator[str]:
    """The op in words; ``shown`` remembers which method spells out the members of a large object."""
    yield from textwrap.wrap(f'"""{op.schema["description"]}', WIDTH, initial_indent="    ", subsequent_indent="    ")
    for title, part in (("request", "request"), ("returns", "response")):
        yield ""
        found = members(op.schema, part)
        yield f"    {title}:" if found else f"    {title}: nothing"
        for member in found:
            before = shown.get(member.inner) if len(member.inner) > MANY else None
            again = f" Its members: see {before}." if before else ""
            yield from _line(member.name, member.description + again, 8)
            if not before:
                shown[member.inner] = op.method
                for inner in member.inner:
                    yield from _line(inner.name, inner.description, 12)
    yield '    """'


def _line(name: str, description: str, indent: int) -> list[str]:
    pad = " " * indent
    return textwrap.wrap(f"{name}: {description}", WIDTH, initial_indent=pad, subsequent_indent=f"{pad}    ")
