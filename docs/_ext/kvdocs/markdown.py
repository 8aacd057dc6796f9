"""Small pieces of MyST text: escaped prose, links to needs, tables, fences."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

REPOSITORIES = {
    "aibrix": "vllm-project/aibrix",
    "dynamo": "ai-dynamo/dynamo",
    "flashinfer": "flashinfer-ai/flashinfer",
    "llama.cpp": "ggml-org/llama.cpp",
    "LMCache": "LMCache/LMCache",
    "lmdeploy": "InternLM/lmdeploy",
    "Mooncake": "kvcache-ai/Mooncake",
    "sglang": "sgl-project/sglang",
    "vllm": "vllm-project/vllm",
    "vllm-ascend": "vllm-project/vllm-ascend",
}
"""Where a mark such as ``vllm#1234`` points to."""

_SPECIAL = re.compile(r"([\\*_{}\[\]<>#|$~^])")
_CODE = re.compile(r"``(.+?)``|`([^`]+)`", re.DOTALL)
_ISSUE = re.compile(rf"\b({'|'.join(re.escape(name) for name in sorted(REPOSITORIES, key=len, reverse=True))})#(\d+)\b")


def prose(text: str) -> str:
    """Text that people wrote, safe inside a MyST paragraph: code spans stay, everything else is escaped."""
    pieces, last = [], 0
    for match in _CODE.finditer(text):
        pieces += [_plain(text[last : match.start()]), f"`{match[1] or match[2]}`"]
        last = match.end()
    return "".join([*pieces, _plain(text[last:])])


def _plain(text: str) -> str:
    text = re.sub(r":\w+:$", "", text)  # a docstring's role in front of a code span
    pieces, last = [], 0
    for match in _ISSUE.finditer(text):
        link = (
            f"[{match[0].replace('#', chr(92) + '#')}](https://github.com/{REPOSITORIES[match[1]]}/issues/{match[2]})"
        )
        pieces += [_SPECIAL.sub(r"\\\1", text[last : match.start()]), link]
        last = match.end()
    return "".join([*pieces, _SPECIAL.sub(r"\\\1", text[last:])])


def line(text: str) -> str:
    """The same on one line, for a cell or a title."""
    return prose(" ".join(text.split()))


def code(text: Any) -> str:
    """A code span of any text on one line."""
    plain = " ".join(str(text).split())
    ticks = "``" if "`" in plain else "`"
    return f"{ticks} {plain} {ticks}" if "`" in plain else f"`{plain}`"


def value(thing: Any, limit: int = 160) -> str:
    """A JSON value as a code span, cut when it is long."""
    text = json.dumps(thing, ensure_ascii=False)
    return code(text if len(text) <= limit else f"{text[: limit - 2]} …")


def need_id(name: str) -> str:
    """The id under which a case or a fault is known to sphinx-needs, which keeps dots for parts of needs."""
    return name.replace(".", "_")


def need(name: str, text: str = "") -> str:
    """A link to a requirement, a case, a fault or a verdict."""
    return f"{{need}}`{text} <{need_id(name)}>`" if text else f"{{need}}`{need_id(name)}`"


def needs(names: Iterable[str]) -> str:
    """Links in a row."""
    return ", ".join(need(name) for name in names)


def fence(name: str, argument: str, body: str, options: Mapping[str, str] | None = None, *, ticks: int = 3) -> str:
    """A directive."""
    head = [f":{key}: {text}" for key, text in (options or {}).items() if text]
    mark = "`" * ticks
    return "\n".join([f"{mark}{{{name}}} {argument}".rstrip(), *head, *([""] if head and body else []), body, mark, ""])


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, widths: str = "") -> str:
    """A list table; every cell is one line of MyST. Without rows, a word that says so."""
    rows = list(rows)
    if not rows:
        return "None.\n"
    lines = []
    for row in [head, *rows]:
        lines += [f"{'* -' if i == 0 else '  -'} {cell}".rstrip() for i, cell in enumerate(row)]
    options = {"header-rows": "1", "class": "wide" if len(head) > 2 else "pairs", "widths": widths}
    return fence("list-table", "", "\n".join(lines), options)
