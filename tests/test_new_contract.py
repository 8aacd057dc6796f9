"""A contract is added by adding files, and its part to the bases of the built-in reference: the toy, in a copy."""

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
REFERENCE = "conformance/kvassay/engines/reference.py"
BASES = "class Reference("
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
        text = (root / REFERENCE).read_text()
        assert BASES in text
        part = "from .reference_toy import ToyReference\n\nADAPTERS"
        text = text.replace("\nADAPTERS", part, 1).replace(BASES, f"{BASES}ToyReference, ")
        (root / REFERENCE).write_text(text)

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
    assert changed == {*GENERATED, REFERENCE}
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
    assert "all required cases pass" in tree.kvassay("run", "--adapter", "reference", "--contract", "toy")


def test_its_faults_die(tree: Tree) -> None:
    told = tree.kvassay("selftest", "--contract", "toy", "--jobs", "1")
    assert "2 of 2 faults killed" in told
    assert "1 of 1 correct engines" in told


def test_an_oracle_without_published_figures_has_none(tree: Tree) -> None:
    oracle, figures = tree.root / "fixtures/toy/oracle.py", tree.root / "fixtures/toy/golden-figures.json"
    texts = oracle.read_text(), figures.read_text()
    oracle.write_text(texts[0].partition("def reconciliation")[0])
    figures.unlink()
    try:
        assert "no figures are published for toy" in tree.kvassay("oracle", "toy")
    finally:
        oracle.write_text(texts[0])
        figures.write_text(texts[1])


def test_an_id_that_no_commit_has_is_free_again(tree: Tree, tmp_path: Path) -> None:
    author, lock = tree.root / "fixtures/toy/author.py", tree.root / "fixtures/toy/ids.lock"
    text, kept = author.read_text(), lock.read_text()
    command = ["-m", "kvassay.authoring", "--contract", "toy", "--quiet", "--jobs", "1"]

    def git(*arguments: str) -> None:
        who = ["-c", "user.name=test", "-c", "user.email=test@localhost"]
        subprocess.run(["git", *who, *arguments], cwd=tree.root, check=True, capture_output=True)

    git("init")
    try:
        git("add", "fixtures/toy/ids.lock")
        git("commit", "-m", "The ids that were given out.")
        author.write_text(text.replace('"sum/two-rows"', '"sum/mistaken"'))
        tree.python(*command)
        assert "toy/sum/mistaken 2026.1\n" in lock.read_text()
        assert "toy/sum/two-rows retired 2026.1\n" in lock.read_text()
        author.write_text(text)
        tree.python(*command)
        assert lock.read_text() == kept, "neither the mistake nor the retirement was ever committed"
    finally:
        author.write_text(text)
        shutil.rmtree(tree.root / ".git")
        tree.python(*command)


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
        (
            "fixtures/toy/author.py",
            '{"rows": [40, 2]}',
            '{"row": [40, 2]}',
            "toy/sum/two-rows: step 0, tally.sum: the request does not meet its schema: /: ",
        ),
        (
            "fixtures/toy/author.py",
            'step("tally.sum", {"rows": [1',
            'step("tally.summ", {"rows": [1',
            "toy/sum/two-rows: step 1, tally.summ: no op 'tally.summ'; did you mean 'tally.sum'?",
        ),
        (
            "fixtures/toy/oracle.py",
            'request["rows"]) >= least',
            'request["items"]) >= least',
            "toy/sum/two-rows: step 0, tally.sum: KeyError: 'items'",
        ),
        (
            "fixtures/toy/author.py",
            "equals(sum=42)",
            "equal(sum=42)",
            "fixtures/toy/author.py:19: toy/sum/two-rows: NameError: name 'equal' is not defined",
        ),
        ("fixtures/toy/author.py", "return scenario(", "return scenario((", "fixtures/toy/author.py:"),
        ("fixtures/toy/author.py", "exact=True", "exact=False", "step 1, tally.sum: the oracle has no bound()"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_place(tree: Tree, path: str, old: str, new: str, told: str) -> None:
    """Nothing is written, and each is told in one line."""
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
            said = tree.python("-m", "kvassay.authoring", *command, status=2)
            assert told in said
            assert "Traceback" not in said
    finally:
        file.write_text(text)
        lock.write_text(ids)


@pytest.mark.parametrize(
    ("path", "old", "new", "told"),
    [
        ("fixtures/toy/author.py", '["TOY-002"]', '["TOY-009"]', "toy/sum/negative: unknown requirement TOY-009"),
        ("fixtures/toy/author.py", 'profile="tally"', 'profile="sums"', "toy/sum/two-rows: unknown profile sums"),
        ("schemas/toy/profiles.json", "", "", "toy: schemas/toy/profiles.json has no profile"),
        (REFERENCE, "(ToyReference, ", "(", "toy: the built-in reference claims no profile of it"),
    ],
)
def test_the_chosen_contracts_are_linted(tree: Tree, path: str, old: str, new: str, told: str) -> None:
    file = tree.root / path
    text = file.read_text()
    assert old in text
    if old:
        file.write_text(text.replace(old, new))
    else:
        file.unlink()
    command = ["-m", "kvassay.authoring", "--contract", "toy", "--quiet", "--jobs", "1"]
    try:
        assert told in tree.python(*command, status=2)
    finally:
        file.write_text(text)
        tree.python(*command)
