"""Pages written at the start of a build from the corpus, the schemas, the faults, the reports and the packages.

Each function returns MyST text; :func:`write` puts it below ``docs/_generated``, which no one commits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from . import data, engines, schema, tables
from .markdown import code, fence, need_id, prose

Data = dict[str, Any]


def write(root: Path, folder: Path, packages: Sequence[str]) -> None:
    """Bring the generated folder to what the repository says now; unchanged files keep their time."""
    wanted = {folder / name: text for name, text in every(root, packages)}
    for path, text in wanted.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
    for path in folder.rglob("*.md"):
        if path not in wanted:
            path.unlink()


def every(root: Path, packages: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Every generated page: path below the folder, and text; ``packages`` get pages of their public modules."""
    for contract in data.contracts(root):
        yield f"cases/{contract}.md", cases(root, contract)
        if data.faults(contract):
            yield f"faults/{contract}.md", faults(contract)
    for path in data.schema_files(root):
        yield (
            f"schemas/{path.relative_to(root / 'schemas').as_posix().removesuffix('.json')}.md",
            schema.page(data.load(path)),
        )
    for name, report in data.reports(root).items():
        yield f"engines/{name}.md", engines.page(root, name, report)
    for package in packages:
        for module in modules(root, package):
            yield f"api/{module}.md", api(module)


def cases(root: Path, contract: str) -> str:
    """All cases of a contract, a section per group."""
    blocks = [f"# Cases of {contract}\n"]
    for group, members in data.groups(root, contract).items():
        blocks += [f"## {contract}/{group}\n", *(case(member) for member in members)]
    return "\n".join(blocks)


def case(member: Data) -> str:
    """One case as a need of type ``case``."""
    body = [prose(member["given"]), "", f"Why: {prose(member['why'])}", ""]
    if "mutation" in member:
        body += [tables.mutation(member["mutation"]), ""]
    body += [f"{i}. {tables.step(step)}" for i, step in enumerate(member["steps"], 1)]
    relations = member.get("relations", ())
    if relations:
        body += ["", "Then " + "; ".join(tables.relation(item) for item in relations) + "."]
    options = {
        "id": need_id(member["id"]),
        "tests": ", ".join(member["requirements"]),
        "level": member["level"],
        "kind": member["kind"],
        "profile": member["profile"],
        "status": member["status"],
        "variant": member.get("variant", ""),
    }
    return fence("case", member["title"], "\n".join(body), options, ticks=4)


def faults(contract: str) -> str:
    """All faults of a contract."""
    blocks = [f"# Faults of {contract}\n"]
    for fault in data.faults(contract):
        options = {
            "id": need_id(fault.id),
            "breaks": fault.requirement,
            "killed_by": ", ".join(need_id(name) for name in fault.killed_by),
        }
        proof = f"\n\nEquivalent: no input can show it. {prose(fault.equivalent)}" if fault.equivalent else ""
        options["status"] = "equivalent" if fault.equivalent else ""
        blocks.append(fence("fault", fault.name, prose(fault.text) + proof, options, ticks=4))
    return "\n".join(blocks)


def modules(root: Path, package: str) -> Iterator[str]:
    """Public modules of a package: no part of the path begins with an underscore, faults are on pages of their own."""
    source = root / {"kvassay": "conformance", "kvassay_reference": "reference"}[package]
    for path in sorted((source / package).rglob("*.py")):
        parts = path.relative_to(source).with_suffix("").parts
        parts = parts[:-1] if parts[-1] == "__init__" else parts
        if "faults" in parts or "engines" in parts or any(part.startswith("_") for part in parts):
            continue
        yield ".".join(parts)


def api(module: str) -> str:
    """The reference page of one module."""
    return f"# {code(module)}\n\n" + fence("eval-rst", "", f".. automodule:: {module}\n   :members:")
