"""The corpus in memory: requirements, registries and cases, read once and selected by what a user names."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ..core.judge import Rules
from ..core.model import Case, Kind, Level, Reason, Requirement
from . import registries
from .build import build
from .data import read_json, root
from .digest import digest
from .errors import CorpusError, did_you_mean
from .ids import read as read_lock
from .ops import check_result
from .registries import Capability, Profile, Variant
from .schemas import validate

FORMAT = "urn:kvassay:case"
REGISTRY = "urn:kvassay:registry#/$defs"
FAR = 0.5
"""How near a filter's value must be to what it may have meant; ids share much."""
REQUIREMENTS = "spec/*.requirements.json"


@dataclass(frozen=True)
class Corpus:
    """Everything that a run is judged by."""

    edition: str
    spec_version: str
    digest: str
    requirements: Mapping[str, Requirement]
    reasons: Mapping[str, Reason]
    profiles: Mapping[str, Profile]
    capabilities: Mapping[str, Capability]
    cases: tuple[Case, ...]
    raw_cases: Mapping[str, Mapping[str, Any]] = field(repr=False)
    variants: Mapping[str, Variant] = field(default_factory=dict)
    ids: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Every id that was ever given out, and its edition; see :mod:`~kvassay.corpus.ids`."""

    @property
    def contracts(self) -> tuple[str, ...]:
        """Contracts in alphabetical order."""
        return tuple(sorted({case.contract for case in self.cases}))

    def rules(self, deadline_scale: float = 1.0) -> Rules:
        """What the judge needs of the corpus."""
        return Rules(
            profiles={name: profile.ops for name, profile in self.profiles.items()},
            defaults={name: capability.default for name, capability in self.capabilities.items()},
            check_result=check_result,
            deadline_scale=deadline_scale,
        )

    def raw(self, case_id: str) -> Mapping[str, Any]:
        """A case as it stands in its fixture file."""
        return self.raw_cases[case_id]

    def select(
        self,
        *,
        case: Iterable[str] = (),
        contract: Iterable[str] = (),
        profile: Iterable[str] = (),
        requirement: Iterable[str] = (),
        kind: Iterable[str] = (),
        level: Iterable[str] = (),
        variant: Iterable[str] = (),
        keyword: str | None = None,
    ) -> tuple[Case, ...]:
        """Cases that meet every filter; an empty filter admits all. Raises :class:`CorpusError` when none is left.

        ``case`` holds ids or globs over whole ids. A filter value that the corpus does not know is an error, not an
        empty selection.
        """
        filters: dict[str, tuple[set[str], Any]] = {
            "contract": (set(contract), lambda c: {c.contract}),
            "profile": (set(profile), lambda c: {c.profile}),
            "requirement": (set(requirement), lambda c: set(c.requirements)),
            "kind": (set(kind), lambda c: {c.kind.value}),
            "level": (set(level), lambda c: {c.level.value}),
            "variant": (set(variant), lambda c: {c.variant} if c.variant else set()),
        }
        known: dict[str, set[str]] = {
            "contract": set(self.contracts),
            "profile": set(self.profiles),
            "requirement": set(self.requirements),
            "kind": {item.value for item in Kind},
            "level": {item.value for item in Level},
            "variant": set(self.variants),
        }
        for name, (wanted, _) in filters.items():
            for value in sorted(wanted - known.get(name, wanted)):
                raise CorpusError(f"no {name} {value!r}{did_you_mean(value, known[name], FAR)}")
        patterns = tuple(case)
        ids = [item.id for item in self.cases]
        for pattern in patterns:
            if not any(fnmatchcase(one, pattern) for one in ids):
                raise CorpusError(f"no case {pattern!r}{did_you_mean(pattern, ids, FAR)}")
        chosen = tuple(
            item
            for item in self.cases
            if (not patterns or any(fnmatchcase(item.id, pattern) for pattern in patterns))
            and all(not wanted or wanted & own(item) for wanted, own in filters.values())
            and (keyword is None or keyword.lower() in f"{item.id} {item.title} {item.given}".lower())
        )
        if not chosen:
            raise CorpusError("no case meets all of these filters")
        return chosen


@functools.cache
def load() -> Corpus:
    """The corpus that this installation ships."""
    return load_from(root())


def load_from(base: Path) -> Corpus:
    """A corpus below a folder that holds ``spec/``, ``schemas/`` and ``fixtures/``."""
    edition = _whole(base / "fixtures" / "edition.json", f"{REGISTRY}/edition", base)
    chapters = [_whole(path, f"{REGISTRY}/requirements", base) for path in sorted(base.glob(REQUIREMENTS))]
    requirements = [row for chapter in chapters for row in chapter["requirements"]]
    raw: dict[str, Mapping[str, Any]] = {}
    cases: list[Case] = []
    digests: dict[str, str] = {}
    for path in fixture_files(base):
        document = _whole(path, FORMAT, base)
        file = path.relative_to(base).as_posix()
        digests[file] = digest(document["cases"])
        if digests[file] != document["digest"]:
            raise CorpusError("the digest does not belong to the cases", file=file, pointer="/digest")
        raw |= {row["id"]: row for row in document["cases"]}
        cases += [build(row, base) for row in document["cases"]]
    locks = [read_lock(path) for path in sorted(base.glob("fixtures/*/ids.lock"))]
    return Corpus(
        edition=edition["edition"],
        spec_version=edition["spec_version"],
        digest=digest([edition, requirements, _documents(base), digests]),
        requirements=MappingProxyType({row["id"]: _requirement(row) for row in requirements}),
        reasons=registries.reasons(base),
        profiles=registries.profiles(base),
        capabilities=registries.capabilities(base),
        variants=registries.variants(base),
        cases=tuple(cases),
        raw_cases=MappingProxyType(raw),
        ids=MappingProxyType({name: edition for lock in locks for name, edition in lock.items()}),
    )


def fixture_files(base: Path) -> list[Path]:
    """The files that hold cases, in order."""
    return sorted(base.glob("fixtures/*/cases/*.json"))


def _documents(base: Path) -> dict[str, Any]:
    """Base documents, schemas and registries by their paths: what the cases mean hangs on them, too."""
    paths = sorted({*base.glob("fixtures/*/*.json"), *(base / "schemas").rglob("*.json")})
    return {path.relative_to(base).as_posix(): read_json(path) for path in paths}


def _whole(path: Path, schema: str, base: Path) -> Any:
    document = read_json(path)
    validate(document, schema, file=path.relative_to(base).as_posix())
    return document


def _requirement(row: dict[str, Any]) -> Requirement:
    return Requirement(**{**row, "level": Level(row["level"]), "sources": tuple(row["sources"])})
