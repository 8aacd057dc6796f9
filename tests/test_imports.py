"""Imports go one way: the judge knows no data, the data know no engine, the reference knows no suite."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from kvassay.authoring import sources

ROOT = Path(__file__).resolve().parents[1]
SUITE = ROOT / "conformance" / "kvassay"
ALLOWED = {
    "core": {"core"},
    "corpus": {"corpus", "core"},
    "adapters": {"adapters", "corpus", "core"},
    "authoring": {"authoring", "corpus", "core", "engines"},
    "engines": {"engines", "adapters", "corpus", "core"},
    "monitors": {"monitors", "engines", "adapters", "corpus", "core"},
    "faults": {"faults", "engines", "adapters", "corpus", "core", "monitors", "runner"},
    "traces": {"traces", "faults", "monitors", "adapters", "corpus", "core"},
    "fuzz": {"fuzz", "traces", "faults", "monitors", "adapters", "corpus", "core"},
    "reports": {"reports", "adapters", "corpus", "core", "runner", "waivers", "__version__"},
}
"""Part of the suite to the parts that it may import; what is not named here stands above and may import them all."""
ENTRY = {"engines", "faults"}
"""The parts that may import the reference."""


def imports(path: Path, package: str) -> Iterator[str]:
    """Absolute names of all that a module imports, wherever in the module."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield from (f"{module}.{alias.name}" for alias in node.names)


def modules(source: Path) -> list[Path]:
    return sorted(path for path in source.rglob("*.py") if "__pycache__" not in path.parts)


def package(path: Path, source: Path) -> str:
    return ".".join(path.parent.relative_to(source).parts)


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("part", ALLOWED)
def test_a_part_imports_what_lies_below_it(part: str) -> None:
    wrong, seen = [], 0
    for path in modules(SUITE / part):
        for name in imports(path, package(path, SUITE.parent)):
            if name.partition(".")[0] == "kvassay":
                seen += 1
                if name.split(".")[1] not in ALLOWED[part]:
                    wrong.append(f"{named(path)} imports {name}")
    assert seen > 0
    assert wrong == []


def test_engines_and_faults_alone_import_the_reference() -> None:
    users = {
        path.relative_to(SUITE).parts[0].removesuffix(".py")
        for path in modules(SUITE)
        for name in imports(path, package(path, SUITE.parent))
        if name.partition(".")[0] == "kvassay_reference"
    }
    assert users == ENTRY


@pytest.mark.parametrize("source", ["reference", "kernels"])
def test_the_reference_and_the_kernels_know_no_suite(source: str) -> None:
    found = [
        f"{named(path)} imports {name}"
        for path in modules(ROOT / source)
        for name in imports(path, package(path, ROOT / source))
        if name.partition(".")[0] == "kvassay"
    ]
    assert found == []


def test_oracles_stand_on_the_standard_library_alone() -> None:
    fixtures = ROOT / "fixtures"
    shared = [fixtures / "_oracle.py", fixtures / "_selection.py"]
    oracles = [*shared, *sorted(fixtures.glob("*/oracle.py")), *sorted(fixtures.glob("*/oracle_*.py"))]
    assert len(oracles) > 2
    foreign = []
    for path in oracles:
        own = package(path, ROOT)
        legal = ("fixtures._oracle", "fixtures._selection", *([f"{own}.oracle_"] if own != "fixtures" else []))
        foreign += [
            f"{named(path)} imports {name}"
            for name in imports(path, own)
            if name.partition(".")[0] not in sys.stdlib_module_names and not name.startswith(legal)
        ]
    assert foreign == []


def test_what_an_oracle_imports_beside_the_shared_one_stands_in_its_reads() -> None:
    for path in sorted((ROOT / "fixtures").glob("*/oracle.py")):
        contract = path.parent.name
        used = {"_selection.py"} if _imports_selection(path.parent) else set()
        used |= {f"{contract}/{part.name}" for part in path.parent.glob("oracle_*.py")}
        named_in_reads = {
            found.relative_to(ROOT / "fixtures").as_posix()
            for found in sources.read(contract, ROOT)
            if found.suffix == ".py"
        }
        assert used <= named_in_reads, contract


def _imports_selection(folder: Path) -> bool:
    return any(
        name.startswith("fixtures._selection")
        for path in [folder / "oracle.py", *folder.glob("oracle_*.py")]
        for name in imports(path, package(path, ROOT))
    )


def test_a_wrong_import_is_seen(tmp_path: Path) -> None:
    (tmp_path / "kvassay" / "core").mkdir(parents=True)
    path = tmp_path / "kvassay" / "core" / "new.py"
    path.write_text(
        "def late():\n    from ..corpus import load\n    from . import model\n    import kvassay_reference.x\n"
    )
    assert list(imports(path, package(path, tmp_path))) == [
        "kvassay.corpus.load",
        "kvassay.core.model",
        "kvassay_reference.x",
    ]
