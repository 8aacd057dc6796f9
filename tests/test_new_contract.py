"""A contract is added by adding files: the toy in ``tests/toy_contract`` to a copy of the tree, and nothing else."""

from __future__ import annotations

import filecmp
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TOY = Path(__file__).parent / "toy_contract"
FOLDERS = ("conformance", "docs", "fixtures", "kernels", "reference", "schemas", "spec")
GENERATED = {"conformance/kvassay/adapters/families.json"}
IGNORED = shutil.ignore_patterns("__pycache__", "_build", "_generated", "*.pyc")


class Tree:
    """A copy of the repository with the toy in it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for folder in FOLDERS:
            shutil.copytree(ROOT / folder, root / folder, ignore=IGNORED)
        for path in TOY.rglob("*"):
            target = root / path.relative_to(TOY)
            assert path.is_dir() or not target.exists(), "the toy only adds files"
        shutil.copytree(TOY, root, dirs_exist_ok=True, ignore=IGNORED)

    def python(self, *arguments: str, status: int = 0) -> str:
        path = os.pathsep.join(str(self.root / folder) for folder in ("conformance", "reference", "kernels"))
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=self.root,
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout + done.stderr

    def kvassay(self, *arguments: str, status: int = 0) -> str:
        return self.python("-m", "kvassay", *arguments, status=status)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    made = Tree(tmp_path_factory.mktemp("tree"))
    made.python("-m", "kvassay.authoring", "--contract", "toy", "--jobs", "1")
    return made


def test_freezing_writes_the_toys_own_files_and_the_families_of_ops(tree: Tree) -> None:
    changed = set()
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*"):
            name = path.relative_to(ROOT).as_posix()
            if path.is_file() and (tree.root / name).is_file() and not filecmp.cmp(path, tree.root / name, False):
                changed.add(name)
    assert changed == GENERATED
    assert "tally" in json.loads((tree.root / GENERATED.copy().pop()).read_text())
    for name in ("fixtures/toy/cases/sum.json", "fixtures/toy/ids.lock", "spec/toy.requirements.json"):
        assert (tree.root / name).is_file()
    assert "changed: nothing" in tree.python("-m", "kvassay.authoring", "--check", "--contract", "toy", "--quiet")


def test_the_lint_finds_nothing(tree: Tree) -> None:
    code = "from kvassay.corpus import load; from kvassay.corpus.lint import lint; print(lint(load()))"
    assert tree.python("-c", code).strip() == "[]"


def test_it_is_listed_explained_reconciled_and_run(tree: Tree) -> None:
    assert "3 cases" in tree.kvassay("list", "--contract", "toy")
    assert "toy/sum/negative" in tree.kvassay("explain", "NEGATIVE_ROW")
    assert "Adds rows up" in tree.kvassay("explain", "tally.sum")
    assert "saturating" in tree.kvassay("explain", "tally/saturating")
    assert "ok" in tree.kvassay("oracle", "toy")
    assert "all required cases pass" in tree.kvassay("run", "--adapter", "toy", "--contract", "toy")


def test_its_faults_die(tree: Tree) -> None:
    told = tree.kvassay("selftest", "--contract", "toy", "--jobs", "1")
    assert "2 of 2 faults killed" in told
    assert "1 of 1 correct engines" in told


def test_drift_is_found(tree: Tree) -> None:
    chapter = tree.root / "spec" / "toy.md"
    text = chapter.read_text()
    chapter.write_text(text.replace("weighs twice", "weighs double"))
    told = tree.python("-m", "kvassay.authoring", "--check", "--contract", "toy", "--quiet", status=1)
    assert "drift: spec/toy.requirements.json" in told
    chapter.write_text(text)


@pytest.mark.parametrize(
    ("path", "old", "new", "told"),
    [
        ("fixtures/toy/author.py", "equals(sum=42)", "equals(sum=43)", "the oracle does not pass its own case"),
        ("fixtures/toy/oracle.py", 'READS = ("fixtures/toy/limits.json",)', "", "which its READS does not name"),
        ("fixtures/toy/author.py", '"sum/negative"', '"sum/less"', "was retired"),
        ("schemas/toy/ops/tally.sum.json", "op:tally.sum", "op:tally.total", "the schema of an op has the $id"),
        ("schemas/toy/reasons.json", "NEGATIVE_ROW", "SHAPE_MISMATCH", "registry of attention already"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_place(tree: Tree, path: str, old: str, new: str, told: str) -> None:
    file, lock = tree.root / path, tree.root / "fixtures" / "toy" / "ids.lock"
    text, ids = file.read_text(), lock.read_text()
    assert old in text
    file.write_text(text.replace(old, new))
    if told == "was retired":
        lock.write_text("toy/sum/less retired 2026.1\n" + ids)
    command = ["--check", "--fresh", "--quiet", "--jobs", "1", "--contract", "toy"]
    try:
        if "registry" in told:
            assert told in tree.kvassay("list", status=2)
        else:
            assert told in tree.python("-m", "kvassay.authoring", *command, status=2)
    finally:
        file.write_text(text)
        lock.write_text(ids)
