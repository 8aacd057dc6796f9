"""``kvassay init-adapter``: a skeleton to fill in, its methods written from the schemas of the ops."""

from __future__ import annotations

import errno
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..corpus import data, schemas
from ..corpus.ops import ops

SKELETON = Path(__file__).parent / "skeleton"
LANGUAGES = ("python", "javascript")
OPS_MARK = "    # <ops>\n"
WIDTH = 100


def init_adapter(folder: Path, language: str = "python") -> list[Path]:
    """Write the skeleton into a folder, which may exist; the paths written. Nothing is ever overwritten."""
    if language == "python":
        texts = {path.name: path.read_text(encoding="utf-8") for path in sorted(SKELETON.iterdir()) if path.is_file()}
        texts = {name.removesuffix(".txt"): text.replace(OPS_MARK, _methods()) for name, text in texts.items()}
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


def _methods() -> str:
    """Every op as a method in comments: to claim an op is to uncomment it."""
    lines: list[str] = []
    for op in ops().values():
        text = [f"def {op.method}(self, request):", *_docstring(op.schema)]
        text += ['    raise kvassay.Unsupported("not connected yet")']
        lines += [f"# {line}".rstrip() for line in text] + [""]
    return textwrap.indent("\n".join(lines), "    ").rstrip() + "\n"


def _docstring(document: Mapping[str, Any]) -> Iterator[str]:
    yield from textwrap.wrap(f'"""{document["description"]}', WIDTH, initial_indent="    ", subsequent_indent="    ")
    for title, part in (("request", "request"), ("returns", "response")):
        yield ""
        members = dict(_members(document, document["$defs"][part]))
        yield f"    {title}:" if members else f"    {title}: nothing"
        for member, description in members.items():
            yield from textwrap.wrap(
                f"{member}: {description}", WIDTH, initial_indent="        ", subsequent_indent="            "
            )
    yield '    """'


def _members(document: Mapping[str, Any], node: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Members of an object with their descriptions; those of each alternative where there are several."""
    document, node = _target(document, node)
    required = node.get("required", ())
    for name, member in node.get("properties", {}).items():
        described = member if "description" in member else _target(document, member)[1]
        description = described.get("description", "")
        yield name, description if name in required or "optional" in description else f"{description} (optional)"
    for alternative in node.get("oneOf", ()):
        if "properties" in alternative or "$ref" in alternative:
            yield from _members(document, alternative)


def _target(document: Mapping[str, Any], node: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """A node behind its reference, with the document that it stands in."""
    while "$ref" in node:
        uri, _, pointer = node["$ref"].partition("#")
        document = schemas.schemas()[uri] if uri else document
        node = document
        for part in pointer.split("/")[1:]:
            node = node[part]
    return document, node
