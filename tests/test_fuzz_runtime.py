"""What the contract runtime is fuzzed with: documents that break the rules that they are said to, in their order."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from kvassay.adapters.base import Rejected
from kvassay.corpus.ops import find
from kvassay.corpus.schemas import problem
from kvassay.engines.reference import Reference
from kvassay.fuzz.documents import Document, Documents
from kvassay.fuzz.run import RandomDraw
from kvassay.fuzz.runtime_breaks import REPORT_BREAKS, STEP_BREAKS, Break, broken
from kvassay.fuzz.runtime_documents import edged_report, edged_step
from kvassay.fuzz.runtime_plans import REPORT, STEP, estimate, exact, step
from kvassay_reference.runtime_documents import ADMISSION_RULES, REPORT_RULES

DRAWS = 20


@dataclass(frozen=True)
class Kind:
    """Documents of one op."""

    op: str
    documents: Documents
    breaks: Sequence[Break]
    rules: Sequence[Any]
    member: str
    """Of an engine, which holds the rules."""

    def reason(self, document: Document, rules: Sequence[Any]) -> str | None:
        """Why a document is rejected by these rules; the kind of an error where a rule rests on one that is broken."""
        engine = type("Ordered", (Reference,), {self.member: tuple(rules)})()
        try:
            getattr(engine, self.op.replace(".", "_"))({"document": document})
        except Rejected as rejected:
            return rejected.reason
        except (LookupError, RuntimeError, StopIteration) as error:
            return type(error).__name__
        return None

    def drawn(self, *changes: Break) -> Iterator[Document]:
        """Documents in which these changes are made."""
        for example in range(DRAWS):
            draw, made = RandomDraw(11, example), copy.deepcopy(self.documents.bases[0])
            for _, change in changes:
                change(draw, made)
            yield made


KINDS = (
    Kind("runtime.admit", STEP, STEP_BREAKS, ADMISSION_RULES, "admission_rules"),
    Kind("runtime.report", REPORT, REPORT_BREAKS, REPORT_RULES, "report_rules"),
)
PLACES = [
    pytest.param(kind, at, id=f"{kind.op}-{at}-{kind.breaks[at][0]}")
    for kind in KINDS
    for at in range(len(kind.breaks))
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.op)
def test_there_is_a_break_for_each_rule_in_the_order_of_the_reasons(kind: Kind) -> None:
    assert [reason for reason, _ in kind.breaks] == [reason for reason, _ in kind.rules]


@pytest.mark.parametrize(("kind", "at"), PLACES)
def test_a_break_alone_is_rejected_for_its_reason_and_by_its_own_rule(kind: Kind, at: int) -> None:
    for made in kind.drawn(kind.breaks[at]):
        assert problem({"document": made}, find(kind.op).request) is None
        assert kind.reason(made, kind.rules) == kind.reason(made, kind.rules[at : at + 1]) == kind.breaks[at][0]


@pytest.mark.parametrize(("kind", "at"), [place for place in PLACES if place.values[1]])
def test_neighbours_broken_at_once_show_their_order(kind: Kind, at: int) -> None:
    """Rejected for the first by the rules as they are; for the second, mostly, where the two change places."""
    (first, _), (second, _) = kind.breaks[at - 1], kind.breaks[at]
    swapped = [*kind.rules[: at - 1], kind.rules[at], kind.rules[at - 1], *kind.rules[at + 1 :]]
    shown = 0
    for made in [*kind.drawn(*kind.breaks[at - 1 : at + 1]), *kind.drawn(*kind.breaks[at - 1 : at + 1][::-1])]:
        told = kind.reason(made, kind.rules)
        assert told == first
        shown += told != kind.reason(made, swapped)
    assert shown > DRAWS or first == second


@pytest.mark.parametrize(("at", "draw_one"), [(0, edged_step), (1, edged_report)])
def test_drawn_documents_meet_every_reason_and_are_accepted_too(at: int, draw_one: Any) -> None:
    kind = KINDS[at]
    told = {kind.reason(draw_one(RandomDraw(3, example)), kind.rules) for example in range(800)}
    assert {None, *(reason for reason, _ in kind.rules)} <= told


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.op)
def test_a_right_document_stays_as_it_is(kind: Kind) -> None:
    before = copy.deepcopy(kind.documents.bases)
    for example in range(50):
        assert kind.reason(broken(kind.documents.bases[0], kind.breaks, RandomDraw(5, example)), kind.rules) is not None
    assert kind.documents.bases == before
    assert [kind.reason(base, kind.rules) for base in before] == [None] * len(before)


def test_estimates_often_end_at_their_deadline_to_the_last_digit() -> None:
    """The end is the reference's, so that the fuzzer's own sum is held to it."""
    at, before, after = 0, 0, 0
    for example in range(400):
        request = estimate(RandomDraw(2, example))
        try:
            told = Reference().runtime_estimate(request)
        except Rejected:
            continue
        at += exact(told["finish_ms"]) == exact(request["deadline_ms"])
        before += told["finish_ms"] < request["deadline_ms"]
        after += told["finish_ms"] > request["deadline_ms"]
    assert at > 60
    assert min(before, after) > 20


def test_steps_often_end_at_a_deadline_to_the_last_digit() -> None:
    at = 0
    for example in range(400):
        document = step(RandomDraw(2, example))
        told = Reference().runtime_admit({"document": document})
        deadlines = {one["request"]: one["deadline_ms"] for one in document["requests"]}
        ends = zip(told["order"], told["finish_ms"], strict=True)
        at += sum(exact(end) == exact(deadlines[name]) for name, end in ends)
    assert at > 20
