"""The generated files of the repository: what each must hold, which of them differ, and the writing."""

from __future__ import annotations

import functools
import subprocess
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..corpus import ids, schemas
from ..corpus.data import fixture_module, is_clone, read_json, root
from ..corpus.digest import digest
from ..corpus.errors import CorpusError
from ..corpus.lint import lint, unclaimed
from ..corpus.load import fixture_files, load_from
from ..corpus.ops import families
from ..corpus.requirements import extract_all
from . import sources
from .answers import Answers
from .blame import at_fault
from .printer import dump
from .replay import adopt, freeze_case, is_large

Json = dict[str, Any]
FAMILIES = "conformance/kvassay/adapters/families.json"


@dataclass(frozen=True)
class Plan:
    """How to go about it."""

    only: str = ""
    """Freeze only cases whose id contains this text, and write nothing."""
    check: bool = False
    """Write nothing."""
    fresh: bool = False
    """Derive everything anew."""
    small: bool = False
    """Take the oracle's values of large cases as they are committed."""
    jobs: int = 1
    say: Callable[[str], None] = lambda text: None
    """Hears of each case."""


def authored(base: Path) -> list[str]:
    """Contracts that people write: the folders with an author."""
    return sorted(path.parent.name for path in base.glob("fixtures/*/author.py"))


def freeze(chosen: Sequence[str], plan: Plan) -> list[str]:
    """Bring the files of these contracts up to date; the names of those that differed."""
    if not is_clone():
        raise CorpusError("only a source tree can be frozen")
    base = root()
    for name in chosen:
        if name not in authored(base):
            raise CorpusError(f"no contract {name!r} has an author; {', '.join(authored(base))} have")
    changed: list[str] = []
    wanted: set[Path] = set()

    def put(path: Path, text: str) -> None:
        wanted.add(path)
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            return
        changed.append(path.relative_to(base).as_posix())
        if not (plan.check or plan.only):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")

    for path, text in common_files(base):
        put(path, text)
    for contract in chosen:
        with at_fault(base):
            with sources.guarded(base, frozenset(sources.read(contract, base))):
                fixture_module(f"{contract}.author")  # authors call their oracle, which may keep what it reads
            documents = list(base_files(contract, base))
        for path, text in documents:
            put(path, text)
        for path, text in case_files(contract, base, plan):
            put(path, text)
    if plan.only:
        return changed
    for path in [*base.glob("spec/*.requirements.json"), *(p for p in fixture_files(base) if _of(p) in chosen)]:
        if path not in wanted:
            changed.append(path.relative_to(base).as_posix())
            if not plan.check:
                path.unlink()
    if not (plan.check and changed):
        findings = _findings(base, () if set(chosen) == set(authored(base)) else chosen)
        if findings:
            found = f"{len(findings)} finding{'s' if len(findings) > 1 else ''} of the corpus lint"
            found += "" if plan.check else "; the files are written all the same"
            raise CorpusError(f"{found}:\n  " + "\n  ".join(findings))
    return changed


def _findings(base: Path, chosen: Sequence[str]) -> list[str]:
    """The corpus lint; the built-in reference is asked for nothing but what it claims."""
    from ..engines.reference import Reference

    corpus = load_from(base)
    return [*lint(corpus, chosen), *unclaimed(corpus, Reference.profiles or (), chosen)]


def _of(path: Path) -> str:
    return path.parents[1].name


def common_files(base: Path) -> Iterator[tuple[Path, str]]:
    """Path and text of what is gathered from all contracts: requirements of the chapters, families of ops."""
    for contract, rows in extract_all(base).items():
        path = base / "spec" / f"{contract}.requirements.json"
        document = {"requirements": rows}
        schemas.validate(document, "urn:kvassay:registry#/$defs/requirements", file=path.relative_to(base).as_posix())
        yield path, dump(document)
    yield base / FAMILIES, dump(families())


def base_files(contract: str, base: Path) -> Iterator[tuple[Path, str]]:
    """Path and text of the contract's base documents."""
    author = fixture_module(f"{contract}.author")
    for name, document in getattr(author, "base_documents", dict)().items():
        yield base / "fixtures" / contract / f"{name}.json", dump(document)


def case_files(contract: str, base: Path, plan: Plan) -> Iterator[tuple[Path, str]]:
    """Path and text of the cases and of ``ids.lock``; base documents were written first, since cases patch them."""
    folder = base / "fixtures" / contract
    written = [case for case in fixture_module(f"{contract}.author").book.cases if plan.only in case["id"]]
    groups: dict[str, list[Json]] = {}
    for case in _frozen(contract, written, base, plan):
        groups.setdefault(case["id"].split("/")[1], []).append(case)
    for group, cases in groups.items():
        document = {
            "format": "kvassay-fixture-v1",
            "provenance": {
                "author": f"fixtures/{contract}/author.py",
                "oracle": f"fixtures/{contract}/oracle.py",
                "oracle_sha256": sources.digest(sources.own(contract, base)),
            },
            "cases": cases,
            "digest": digest(cases),
        }
        yield folder / "cases" / f"{group}.json", dump(document)
    if not plan.only:
        edition = read_json(base / "fixtures" / "edition.json")["edition"]
        names, path = [case["id"] for case in written], folder / "ids.lock"
        lock = ids.updated(ids.given_out(ids.read(path), _committed(path, base), names), names, edition)
        yield path, ids.write(lock)


def _committed(path: Path, base: Path) -> dict[str, str] | None:
    """The lock as the last commit has it; ``None`` where the tree has no history of its own."""

    def git(*arguments: str) -> str | None:
        try:
            done = subprocess.run(["git", *arguments], cwd=base, capture_output=True, text=True, check=False)
        except OSError:
            return None
        return done.stdout if done.returncode == 0 else None

    top = git("rev-parse", "--show-toplevel")
    if top is None or Path(top.strip()).resolve() != base.resolve() or git("rev-parse", "--verify", "HEAD") is None:
        return None
    return ids.parse(git("show", f"HEAD:{path.relative_to(base).as_posix()}") or "")


def _frozen(contract: str, written: list[Json], base: Path, plan: Plan) -> list[Json]:
    """The frozen cases in the order of their writing; raises :class:`CorpusError` with all that cannot be."""
    committed: dict[str, Json] = {}
    if plan.small:
        for path in sorted((base / "fixtures" / contract / "cases").glob("*.json")):
            committed |= {case["id"]: case for case in read_json(path)["cases"]}
    work = [(contract, case, base, plan.fresh, committed.get(case["id"])) for case in written]
    frozen, problems = [], []
    with ProcessPoolExecutor(plan.jobs) as pool:
        results = pool.map(_one, work) if plan.jobs > 1 else map(_one, work)
        for number, (name, case, trouble) in enumerate(results, 1):
            plan.say(f"{number}/{len(work)} {name}{'  ' + trouble if trouble else ''}")
            frozen += [case] if case is not None else []
            problems += [trouble] if trouble else []
    if problems:
        raise CorpusError(f"{len(problems)} of {len(work)} cases cannot be frozen:\n  " + "\n  ".join(problems))
    return frozen


def _one(job: tuple[str, Json, Path, bool, Json | None]) -> tuple[str, Json | None, str]:
    """Id, frozen case and trouble; trouble travels as text."""
    contract, case, base, fresh, committed = job
    try:
        if committed is not None and is_large(case, base):
            return case["id"], adopt(contract, case, committed, base), ""
        return case["id"], freeze_case(contract, case, base, _answers(base, fresh)), ""
    except CorpusError as trouble:
        told = str(trouble)
        return case["id"], None, told if told.startswith(case["id"]) else f"{case['id']}: {told}"
    except Exception as defect:  # a defect of author or oracle is told with the case that shows it
        return case["id"], None, f"{case['id']}: {type(defect).__name__}: {defect}"


@functools.cache
def _answers(base: Path, fresh: bool) -> Answers:
    return Answers(base / ".cache" / "oracle", fresh=fresh)
