"""Pages written at the start of a build from the corpus, the schemas, the faults, the reports and the packages.

Each function returns MyST text; :func:`write` puts it below ``docs/_generated``, and a page for each chapter into
``docs/spec``, which no one commits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from . import data, engines, schema, tables
from .markdown import code, fence, need_id, prose

Data = dict[str, Any]


def write(root: Path, docs: Path, public: Sequence[str]) -> None:
    """Bring the generated folder, and the pages of chapters, to what the repository says now.

    Unchanged files keep their time.
    """
    folder = docs / "_generated"
    wanted = {folder / name: text for name, text in every(root, public)}
    wanted |= {docs / "spec" / name: text for name, text in chapters(root)}
    for path, text in wanted.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
    for path in [*folder.rglob("*.md"), *(docs / "spec").glob("*.md")]:
        if path not in wanted and path.name != "index.md":
            path.unlink()


def every(root: Path, public: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Every generated page: path below the folder, and text; ``public`` names the modules of the API."""
    for contract in data.contracts(root):
        yield f"cases/{contract}.md", groups(root, contract)
        for group, members in data.groups(root, contract).items():
            yield f"cases/{contract}/{group}.md", cases(f"{contract}/{group}", members)
        yield f"traceability/{contract}.md", f"# Traceability of {contract}\n\n{tables.trace(root, contract)}"
        if data.faults(contract):
            yield f"faults/{contract}.md", faults(contract)
    for path in data.schema_files(root):
        yield (
            f"schemas/{path.relative_to(root / 'schemas').as_posix().removesuffix('.json')}.md",
            schema.page(data.load(path)),
        )
    for name, report in data.reports(root).items():
        yield f"engines/{name}.md", engines.page(root, name, report)
    for module in modules(root, public):
        yield f"api/{module}.md", api(root, module)


def chapters(root: Path) -> Iterator[tuple[str, str]]:
    """The page of each chapter, which includes it from where it is written."""
    for path in sorted((root / "spec").glob("*.md")):
        yield path.name, f"```{{include}} ../../spec/{path.name}\n```\n"


def groups(root: Path, contract: str) -> str:
    """The groups of a contract's cases."""
    names = "\n".join(f"{contract}/{group}" for group in data.groups(root, contract))
    return f"# Cases of {contract}\n\n" + fence("toctree", "", names, {"maxdepth": "1"})


def cases(name: str, members: Sequence[Data]) -> str:
    """The cases of one group."""
    return "\n".join([f"# {name}\n", *(case(member) for member in members)])


def case(member: Data) -> str:
    """One case as a need of type ``case``."""
    body = [prose(member["given"]), "", f"Why: {prose(member['why'])}", ""]
    if "mutation" in member:
        body += [tables.mutation(member["mutation"]), ""]
    steps = [tables.step(step) for step in member["steps"]]
    if "mutation" in member:
        steps = [f"{what}: {text}" for what, text in zip(tables.MUTATION_STEPS, steps, strict=True)]
    body += [f"{i}. {text}" for i, text in enumerate(steps, 1)]
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


def modules(root: Path, names: Sequence[str]) -> Iterator[str]:
    """The named modules; ``package.*`` stands for a package and its public modules."""
    for name in names:
        package = name.removesuffix(".*")
        yield package
        if name != package:
            yield from (f"{package}.{module}" for module in _inside(root, package))


def _inside(root: Path, package: str) -> list[str]:
    """Names of the public modules in a package's folder."""
    folders = (root / source / package.replace(".", "/") for source in ("conformance", "reference", "kernels"))
    names = {path.stem for folder in folders for path in (*folder.glob("*.py"), *folder.glob("*/__init__.py"))}
    return sorted(name for name in names if not name.startswith("_"))


def api(root: Path, module: str) -> str:
    """The reference page of one module; a name that a package gives to a module too belongs to the module."""
    hidden = ", ".join(_inside(root, module))
    options = ["   :members:", *([f"   :exclude-members: {hidden}"] if hidden else [])]
    return f"# {code(module)}\n\n" + fence("eval-rst", "", "\n".join([f".. automodule:: {module}", *options]))
