"""Which requirement a finding is about: what the monitor says of its rule, else what the cases of the op test.

The rules of all monitors are here, too, with what each means.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from ..core.expect import AnyOf, Close, Rejects
from ..core.model import Finding
from ..core.words import Word
from ..corpus import load
from . import identity, keeping, residency, runtime

RULES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "identity": identity.REQUIREMENTS,
    "residency": residency.REQUIREMENTS,
    "runtime": runtime.REQUIREMENTS,
}
"""Contract to its rules, and the requirements that each watches."""
MOST = 3


@dataclass(frozen=True)
class Watched:
    """A rule of one account: what its findings print, and the requirements behind it."""

    contract: str
    rule: Word
    requirements: tuple[str, ...]


ACCOUNTS: Mapping[str, tuple[Watched, ...]] = {
    "identity": tuple(Watched("identity", one, identity.REQUIREMENTS.get(one, ())) for one in identity.Rule),
    "residency": tuple(Watched("residency", one, residency.REQUIREMENTS.get(one, ())) for one in residency.Rule),
    "keeping": tuple(Watched("residency", one, (keeping.REQUIREMENTS[one],)) for one in keeping.Fault),
    "runtime": tuple(Watched("runtime", one, runtime.REQUIREMENTS.get(one, ())) for one in runtime.Rule),
}
"""Module of a monitor to its rules. Monitors may share a word."""


def requirements(contract: str, op: str, rule: str, finding: Finding) -> tuple[str, ...]:
    """Ids of requirements, the likeliest first; empty where none can be told."""
    named = RULES.get(contract, {}).get(rule)
    if named is not None:
        return named
    place = str(finding.expected) if str(finding.expected).startswith("rejected for") else finding.at
    tested = _tested(contract)
    while place:
        found = tested.get((op, place))
        if found:
            most = max(found.values())
            return tuple(name for name, count in found.most_common(MOST) if 2 * count > most)
        place = place.rpartition("/")[0]
    return ()


@functools.cache
def _tested(contract: str) -> Mapping[tuple[str, str], Counter[str]]:
    """Op and place in its result, or its rejection, to the requirements whose cases look there."""
    found: dict[tuple[str, str], Counter[str]] = {}
    for case in load().cases:
        for step in case.steps if case.contract == contract else ():
            expect = step.expect
            places: list[str] = []
            if isinstance(expect, Rejects):
                places = [expect.shown]
            elif isinstance(expect, AnyOf):
                places = [row["at"] for rows in expect.alternatives for row in rows]
            elif isinstance(expect, Close):
                places = [row.at for row in expect.rows]
            for place in places:
                found.setdefault((step.op, place), Counter()).update(case.requirements)
    return found
