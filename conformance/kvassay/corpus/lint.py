"""What must hold of the whole corpus, beyond the schema of each file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator

from ..core.expect import Accepts
from ..core.model import Case, Kind, Level
from ..core.relations import RELATIONS
from ..core.template import INDEX, bound_names, substitute
from .ids import RETIRED
from .load import Corpus
from .ops import ops
from .schemas import problem

Own = Callable[[str], bool]
"""Whether a contract is looked at."""


def lint(corpus: Corpus, chosen: Collection[str] = ()) -> list[str]:
    """Every finding as one line that names the case or the id; an empty list is a clean corpus.

    With contracts chosen, only what they wrote is looked at.
    """
    own: Own = (lambda contract: contract in chosen) if chosen else (lambda contract: True)
    cases = [case for case in corpus.cases if own(case.contract)]
    found = [*_ids(corpus, cases, own), *references(corpus, cases), *_registries(corpus, own)]
    return [*found, *_coverage(corpus, own), *requests(cases), *_shape(cases)]


def unclaimed(corpus: Corpus, claimed: Collection[str], chosen: Collection[str] = ()) -> list[str]:
    """Contracts none of whose profiles is among those that the built-in reference claims: nobody runs their cases."""
    profiles: dict[str, set[str]] = {case.contract: set() for case in corpus.cases}
    for profile in corpus.profiles.values():
        profiles.setdefault(profile.contract, set()).add(profile.name)
    tested = {case.contract for case in corpus.cases if not chosen or case.contract in chosen}
    return [
        f"{contract}: the built-in reference claims no profile of it; its part goes into the bases of Reference in "
        "conformance/kvassay/engines/reference.py"
        for contract in sorted(tested)
        if profiles[contract] and not profiles[contract] & set(claimed)
    ]


def _ids(corpus: Corpus, cases: list[Case], own: Own) -> Iterator[str]:
    for name, count in Counter(case.id for case in cases).items():
        if count > 1:
            yield f"{name}: the id stands {count} times"
        since = corpus.ids.get(name)
        if since is None:
            yield f"{name}: the id does not stand in ids.lock of its contract"
        elif since.startswith(RETIRED):
            yield f"{name}: the id was retired and may not be used again"
    ids = {case.id for case in cases}
    for name, since in corpus.ids.items():
        if own(name.partition("/")[0]) and name not in ids and not since.startswith(RETIRED):
            yield f"{name}: the id stands in ids.lock, and no case has it"
    known = {case.contract for case in cases}
    for requirement in corpus.requirements.values():
        if own(requirement.contract) and requirement.contract not in known:
            yield f"{requirement.id}: its chapter {requirement.chapter} has no cases"


def references(corpus: Corpus, cases: list[Case]) -> Iterator[str]:
    """What the cases name and nothing defines."""
    with_profiles = {profile.contract for profile in corpus.profiles.values()}
    for contract in sorted({case.contract for case in cases} - with_profiles):
        yield f"{contract}: schemas/{contract}/profiles.json has no profile, and every case belongs to one"
    for case in cases:
        for one in case.requirements:
            if one not in corpus.requirements:
                yield f"{case.id}: unknown requirement {one}"
        if case.profile not in corpus.profiles:
            yield f"{case.id}: unknown profile {case.profile}"
        if case.variant is not None and case.variant not in corpus.variants:
            yield f"{case.id}: unknown variant {case.variant}"
        for name, values in case.needs.items():
            if name not in corpus.capabilities:
                yield f"{case.id}: unknown capability {name}"
                continue
            for value in values:
                if value not in corpus.capabilities[name].values:
                    yield f"{case.id}: {name} cannot be declared as {value!r}"
        for step in case.steps:
            if step.op not in ops():
                yield f"{case.id}: no schema for the op {step.op}"
            reason = step.expect.reason
            if reason is not None and reason not in corpus.reasons:
                yield f"{case.id}: unknown reason {reason}"


def _registries(corpus: Corpus, own: Own) -> Iterator[str]:
    for profile in corpus.profiles.values():
        for op in sorted(profile.ops - ops().keys() if own(profile.contract) else ()):
            yield f"{profile.name}: the profile names the unknown op {op}"
    used = {step.expect.reason for case in corpus.cases for step in case.steps}
    for code, reason in corpus.reasons.items():
        if own(reason.contract) and code not in used:
            yield f"{code}: no case expects this reason"


def _coverage(corpus: Corpus, own: Own) -> Iterator[str]:
    tested = {one for case in corpus.cases for one in case.requirements}
    musts = {one for case in corpus.cases if case.level is Level.MUST for one in case.requirements}
    for requirement in corpus.requirements.values():
        if not own(requirement.contract):
            continue
        if requirement.id not in tested:
            yield f"{requirement.id}: no case tests this requirement"
        elif requirement.level is Level.MUST and requirement.id not in musts:
            yield f"{requirement.id}: a MUST that only SHOULD cases test"


def requests(cases: list[Case]) -> Iterator[str]:
    """Each request meets its op's schema, except where a rejection by the schema is what the case shows."""
    from ..core.tensors import write

    for case in cases:
        by_schema = case.mutation is not None and case.mutation["rejected_by"] == "schema"
        for index, step in enumerate(case.steps):
            if step.op not in ops() or any(bound_names(step.request)):
                continue
            request = substitute(step.request, {INDEX: 0}, ())
            found = problem(write(request), ops()[step.op].request)
            if found is None and by_schema and step.expect.reason:
                yield f"{case.id}: step {index}: the schema does not reject what it is said to reject"
            if found is not None and not (by_schema and step.expect.reason):
                yield f"{case.id}: step {index}: the request does not meet its schema: {found[0]}: {found[1]}"


def _shape(cases: list[Case]) -> Iterator[str]:
    for case in cases:
        yield from bindings(case)
        if case.kind is Kind.RELATION and not case.relations:
            yield f"{case.id}: a relation case without a relation"
        if (case.kind is Kind.MUTATION) != (case.mutation is not None):
            yield f"{case.id}: kind mutation and the member mutation go together"
        if (
            all(isinstance(step.expect, Accepts) for step in case.steps)
            and not case.relations
            and not any(step.witness for step in case.steps)
        ):
            yield f"{case.id}: vacuous: any engine that answers passes"


def bindings(case: Case) -> Iterator[str]:
    """Names that a case uses before they are bound, and relations with the wrong terms."""
    bound: set[str] = set()
    for index, step in enumerate(case.steps):
        times = [step.repeat.times] if step.repeat is not None and isinstance(step.repeat.times, str) else []
        for name in (*times, *bound_names(step.request)):
            if name not in bound:
                yield f"{case.id}: step {index} uses {name} before it is bound"
        bound |= step.bind.keys()
    for relation in case.relations:
        terms = RELATIONS[relation["relation"]].bound
        if terms == ("none" if "bound" in relation else "required"):
            yield f"{case.id}: the relation {relation['relation']} {'takes no' if terms == 'none' else 'needs a'} bound"
        for operand in relation["of"]:
            if operand.partition("/")[0] not in bound:
                yield f"{case.id}: the relation {relation['relation']} uses {operand}, which no step binds"
