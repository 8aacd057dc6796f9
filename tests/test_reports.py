"""Reports: one document that is valid, bounded and harmless, and every form that is drawn from it."""

from __future__ import annotations

import io
import json
import re
import shutil
import subprocess
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, ClassVar
from xml.etree import ElementTree

import miniature
import numpy as np
import pytest
from kvassay import EngineAdapter, Rejected
from kvassay.adapters.local import InProcess
from kvassay.core.engine import Returned
from kvassay.core.expect import parse
from kvassay.core.model import Exchange, Finding, Kind, Result, Step, Verdict
from kvassay.core.tensors import DTYPES, Recipe
from kvassay.corpus.schemas import problem
from kvassay.reports import document as documents
from kvassay.reports import html, json_report, junit, terminal
from kvassay.reports.changes import changes
from kvassay.reports.differences import differences
from kvassay.reports.evidence import as_text, changed, evidence, headline, own_title
from kvassay.reports.layout import inline, lines, plain
from kvassay.reports.shorten import shorten
from kvassay.reports.written import as_written, resealed
from kvassay.runner import Session, run
from rich.console import Console

ENGINES = (miniature.Good, miniature.Nan, miniature.Drift, miniature.Shy, miniature.Hostile)


def report(adapter: type[EngineAdapter], *, strict: bool = False) -> documents.Document:
    corpus = miniature.corpus()
    engine = InProcess(adapter)
    outcome = run(Session(engine, corpus, strict=strict), corpus.cases)
    return documents.report(outcome, corpus, "kvassay run --adapter x", "x", {"contract": ("attention",), "case": ()})


def row(document: documents.Document, case: str) -> documents.Document:
    return next(one for one in document["results"] if one["case"] == case)


@pytest.mark.parametrize("adapter", ENGINES)
def test_the_document_meets_its_schema_and_survives_json(adapter: type[EngineAdapter]) -> None:
    document = report(adapter)
    again = json.loads(json_report.render(document))
    assert problem(again, "urn:kvassay:report") is None
    assert again == document


def _without(name: str) -> Any:
    return lambda document: document.pop(name)


def _at(*path: Any, value: Any) -> Any:
    def change(document: Any) -> None:
        for part in path[:-1]:
            document = document[part]
        document[path[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        (_without("engine"), ""),
        (_without("seed"), ""),
        (_at("score", value=0.9), ""),
        (_at("format", value="kvassay-report-v0"), "/format"),
        (_at("corpus", "digest", value="abc"), "/corpus/digest"),
        (_at("exit_code", value=3), "/exit_code"),
        (_at("counts", "fail", value=0), "/counts/fail"),
        (_at("counts", "failed", value=1), "/counts"),
        (_at("profiles", "merge", value="99 %"), "/profiles/merge"),
        (_at("results", 0, "verdict", value="maybe"), "/results/0/verdict"),
        (_at("results", 0, "requirements", value=[]), "/results/0/requirements"),
        (_at("results", 0, "finding", "step", value=-1), "/results/0/finding/step"),
        (_at("results", 0, "exchanges", 0, "reply", value={}), "/results/0/exchanges/0/reply"),
        (_at("environment", "python", value=3), "/environment/python"),
    ],
)
def test_a_document_that_is_not_a_report_is_refused(change: Any, pointer: str) -> None:
    document = report(miniature.Drift)
    change(document)
    found = problem(document, "urn:kvassay:report")
    assert found is not None
    assert found[0] == pointer


def test_the_document_says_what_happened() -> None:
    document = report(miniature.Drift)
    assert document["exit_code"] == 1
    assert document["counts"] == {"pass": 2, "fail": 4, "not-applicable": 1}
    assert document["profiles"] == {"keys": "not claimed", "merge": "claimed"}
    assert document["corpus"]["contracts"] == ["attention", "identity"]
    failed = row(document, "attention/merge/empty-and-full")
    assert failed["repeat"] == "kvassay run --adapter x --case attention/merge/empty-and-full"
    assert failed["finding"]["differences"] == [
        {"path": ["out", 1, 0], "expected": 3.0, "returned": pytest.approx(3.01)}
    ]
    assert failed["finding"]["ratio"] == pytest.approx(1000, rel=0.01)
    assert [one["op"] for one in failed["exchanges"]] == ["attention.merge"]
    assert row(document, "attention/merge/order")["exchanges"] == []


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("adapter", ENGINES)
def test_what_fails_agrees_with_the_exit_status(adapter: type[EngineAdapter], strict: bool) -> None:
    document = report(adapter, strict=strict)
    assert any(one["fails"] for one in document["results"]) is (document["exit_code"] == 1)
    if adapter is miniature.Drift:
        assert row(document, "attention/merge/polite")["fails"] is strict
        assert row(document, "attention/merge/next-year")["fails"] is False


def test_a_relation_shows_both_operands() -> None:
    class Alternating(miniature.Good):
        calls = 0

        def attention_merge(self, request: dict[str, Any]) -> dict[str, Any]:
            reply = super().attention_merge(request)
            Alternating.calls += 1
            reply["state"]["lse"] += Alternating.calls
            return reply

    failed = row(report(Alternating), "attention/merge/order")
    assert failed["finding"]["step"] is None
    assert list(failed["finding"]["returned"]) == ["a", "b"]
    assert {one["path"][0] for one in failed["finding"]["differences"]} == {"lse"}
    assert " against " in as_text(evidence(failed, {}))


def test_evidence_holds_everything_that_a_reader_needs() -> None:
    document = report(miniature.Nan)
    failed = row(document, "attention/merge/two-empty")
    told = as_text(evidence(failed, document["requirements"]))
    labels = [line.split(" ")[0] for line in told.splitlines() if not line.startswith(" ")]
    assert labels == ["finding", "given", "sent", "expected", "returned", "differs", "requires", "why", "repeat"]
    assert "Merging with an empty state changes nothing." in told
    assert "out[0, 0]: expected 0, returned NaN" in told
    assert told.endswith("kvassay run --adapter x --case attention/merge/two-empty")


def test_the_calls_before_the_failing_one_are_told() -> None:
    class Second(miniature.Good):
        calls = 0

        def attention_merge(self, request: dict[str, Any]) -> dict[str, Any]:
            Second.calls += 1
            if Second.calls == 2:
                raise Rejected("SHAPE_MISMATCH")
            return super().attention_merge(request)

    corpus = miniature.corpus(cases=(miniature.CASES[2],))
    outcome = run(Session(InProcess(Second), corpus), corpus.cases)
    (failed,) = documents.report(outcome, corpus, "x", "x", {})["results"]
    told = as_text(evidence(failed, {}))
    assert "finding   step 2, attention.merge: a legal request was rejected: SHAPE_MISMATCH" in told
    assert "before    1. attention.merge:" in told


def failing(expected: Any, returned: Any, message: str = "/outcome differs") -> documents.Document:
    step = miniature.CASES[0].steps[0]
    item = Result(
        miniature.CASES[0],
        Verdict.FAIL,
        Finding(0, "/outcome", message, expected, returned),
        exchanges=(Exchange(step.op, {}, Returned({"outcome": returned}), 0.0),),
    )
    return documents.result(item, miniature.corpus(), "x")


@pytest.mark.parametrize(
    ("expected", "returned", "told"),
    [
        ("miss", "hit", "/outcome: expected miss, returned hit"),
        (0, 16, "/outcome: expected 0, returned 16"),
        ([1], [2], "/outcome differs"),
        ("miss", "hit" * 50, "/outcome differs"),
    ],
)
def test_the_headline_names_short_values(expected: Any, returned: Any, told: str) -> None:
    assert headline(failing(expected, returned)) == f"step 1, attention.merge: {told}"


@pytest.mark.parametrize(
    ("case", "title", "own"),
    [("a/b/one-row", "One row", ""), ("a/b/one-row", "A single row", "A single row"), ("a/b/Q", "q", "")],
)
def test_a_title_that_only_repeats_the_id_is_left_out(case: str, title: str, own: str) -> None:
    assert own_title(case, title) == own


def test_the_document_knows_adapter_and_selection_and_old_ones_are_read_without() -> None:
    document = report(miniature.Drift)
    assert (document["adapter"], document["selection"]) == ("x", {"contract": ["attention"]})
    old = {name: value for name, value in document.items() if name not in ("adapter", "selection")}
    old["results"] = [
        {**one, "exchanges": [{k: v for k, v in call.items() if k != "changes"} for call in one["exchanges"]]}
        for one in old["results"]
    ]
    assert problem(old, "urn:kvassay:report") is None
    assert html.render(old)
    assert junit.render(old)
    out = Console(file=io.StringIO(), width=100)
    terminal.summary(old, out)


def test_an_unexpected_pass_names_the_waiver() -> None:
    result = Result(miniature.CASES[0], Verdict.UNEXPECTED_PASS, waived=Verdict.FAIL)
    shown = documents.result(result, miniature.corpus(), "x")
    assert shown["fails"] is True
    assert headline(shown) == "passes, although a waiver expects fail"


class TestShorten:
    def test_a_large_tensor_is_a_few_numbers(self) -> None:
        array = np.arange(1_000_000, dtype="f4")
        array[5] = np.nan
        array[6] = np.inf
        short = shorten({"k": array})["k"]
        assert short == {
            "dtype": "float32",
            "shape": [1_000_000],
            "first": [0, 1, 2, 3, 4, "NaN", "Infinity", 7],
            "nan": 1,
            "infinite": 1,
            "min": 0.0,
            "max": 999_999.0,
        }

    @pytest.mark.parametrize("name", sorted(DTYPES))
    @pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 4), (5, 40)])
    def test_every_dtype_and_shape(self, name: str, shape: tuple[int, ...]) -> None:
        short = shorten(np.ones(shape, DTYPES[name]))
        assert (short["dtype"], short["shape"]) == (name, list(shape))
        assert lines(json.loads(json.dumps(short)))

    def test_a_recipe_stays_a_recipe(self) -> None:
        recipe = Recipe("bfloat16", (32768, 8, 128), 7, 16, ((1, None, 0, 2.0),) * 9)
        short = shorten(recipe)
        assert short["recipe"]["set_count"] == 9
        assert len(short["recipe"]["set"]) == 4
        assert plain(lines(short)[0]) == "bfloat16[32768, 8, 128] hash32-v1 seed 7 from row 16, 9 elements set"

    def test_everything_else_is_bounded(self) -> None:
        deep: Any = "end"
        for _ in range(100_000):
            deep = [deep]
        wide = {f"m{i}": ["x" * 10_000] * 1000 for i in range(1000)}
        for value in (deep, wide, [wide] * 100, b"\0" * 100_000, object()):
            assert len(json.dumps(shorten(value))) < 1_000_000
            assert len(lines(shorten(value))) <= 40

    def test_control_characters_do_not_get_through(self) -> None:
        assert shorten("\x1b[31mred\x07\u202e\ud800") == "\ufffd[31mred\ufffd\ufffd\ufffd"


class TestWritten:
    DIGEST = "ab" * 32
    WRITTEN: ClassVar[dict[str, Any]] = {
        "document": {
            "$base": "identity/base",
            "patch": [
                {"op": "replace", "path": "/lease/generation", "value": 7},
                {"op": "replace", "path": "/seals/lease_sha256", "value": DIGEST},
                {"op": "remove", "path": "/proxy"},
            ],
        },
        "states": [{"$bind": "a"}],
    }

    def test_base_documents_are_named_and_all_else_is_what_was_sent(self) -> None:
        sent = {"document": {"a": 1}, "states": [miniature.FULL]}
        shown = as_written(self.WRITTEN, sent, resealed({"mutation": {"resealed": ["/seals/lease_sha256"]}}))
        assert shown["document"] == {
            "$base": "identity/base",
            "patch": [self.WRITTEN["document"]["patch"][0], self.WRITTEN["document"]["patch"][2]],
            "resealed": 1,
        }
        assert shown["states"][0]["lse"]["data"] == [0.5, 0.25]
        assert [plain(line) for line in lines(shown)][:4] == [
            "document: identity/base with",
            "    replace /lease/generation: 7",
            "    remove /proxy",
            "    and 1 digest derived anew",
        ]

    def test_a_digest_that_the_author_set_is_shown(self) -> None:
        patch = [
            {"op": "replace", "path": "/tokens", "value": [0, 0]},
            {"op": "replace", "path": "/prompt_embeds_sha256", "value": self.DIGEST},
        ]
        assert as_written({"$base": "b", "patch": patch}, {}) == {"$base": "b", "patch": patch}
        added = {"op": "add", "path": "/seals/lease_sha256", "value": self.DIGEST}
        shown = as_written({"$base": "b", "patch": [added]}, {}, frozenset({added["path"]}))
        assert shown == {"$base": "b", "patch": [added]}, "what was added was not there to be derived anew"

    def test_a_request_of_another_form_is_shown_as_sent(self) -> None:
        assert as_written(None, {"a": 1}) == as_written({"b": 2}, {"a": 1}) == {"a": 1}


class TestInline:
    @pytest.mark.parametrize(
        ("value", "line"),
        [
            ([1, 2, 3], "[1, 2, 3]"),
            (list(range(1, 101)), "[1, 2, 3, 4, 5, …, 100]"),
            ({"a": [], "b": {"c": None}}, "{a: [], b: {c: null}}"),
            ([{"sha256": "a" * 64, "at": 4}] * 2, "[{sha256: %s…, at: 4}, {sha256: %s…, at: 4}]" % (("a" * 19,) * 2)),
            ({"dtype": "uint8", "shape": [3], "data": [1, 2, 3]}, "uint8[3] 1 2 3"),
            ({"dtype": "uint8", "shape": [9, 2], "data": "sgCy" * 7}, "uint8[9, 2] base64 sgCysgCysgCysgCysgCysgC…"),
        ],
    )
    def test_lists_and_members_stand_in_brackets(self, value: Any, line: str) -> None:
        assert inline(value) == line

    @pytest.mark.parametrize("value", ["x" * 5000, [["y" * 90] * 90] * 90, {"k" * 500: 1}])
    def test_no_line_is_longer_than_asked(self, value: Any) -> None:
        assert len(inline(value, 60)) == 60
        assert inline(value, 60).endswith("…")


class TestChanges:
    def test_the_members_that_tell_calls_apart(self) -> None:
        first = {"record": {"tokens": [1, 2], "images": [{"at": 4, "sha": "a"}]}}
        second = {"record": {"tokens": [1, 2], "images": [{"at": 4, "sha": "b"}]}, "data": np.zeros(3)}
        other = {"pages": 7}
        assert changes([first, second, other, first]) == [
            None,
            {
                "from": 0,
                "count": 1,
                "members": [{"path": ["record", "images", 0, "sha"], "before": "a", "now": "b"}],
            },
            None,
            None,
        ]

    def test_tensors_are_not_compared(self) -> None:
        recipe = Recipe("float32", (2,), 7, 0, ())
        for before, now in ((np.zeros(2), np.ones(2)), (np.zeros(2), recipe)):
            assert changes([{"kv": {"k": before}}, {"kv": {"k": now}}]) == [None, None]

    def test_few_are_named_and_all_are_counted(self) -> None:
        _, found = changes([{"a": [0] * 50}, {"a": [1] * 50}])
        assert found is not None
        assert (len(found["members"]), found["count"]) == (4, 50)
        assert changed(found, "against step {}, ")[0] == "against step 1, /a/0: 1, not 0"
        assert changed(found)[-1] == "46 more"

    def test_a_report_tells_them(self) -> None:
        def step(salt: str, name: str) -> Step:
            request = {"record": {"tokens": [1] * 40, "salt": salt}}
            return Step("identity.key", request, parse({"accepts": True}), bind={name: "/keys/0"})

        relation = {"relation": "distinct", "of": ["a", "b"]}
        case = miniature.case(
            "identity/keys/salt",
            step("x", "a"),
            step("y", "b"),
            profile="keys",
            requirements=("IDN-901",),
            relations=(relation,),
            kind=Kind.RELATION,
        )
        item = Result(
            case,
            Verdict.FAIL,
            Finding(None, "distinct(a, b)", "two operands are equal", "distinct(a, b)", {"a": "same", "b": "same"}),
            exchanges=tuple(Exchange(one.op, one.request, Returned({"keys": ["same"]}), 0.0) for one in case.steps),
        )
        shown = documents.result(item, miniature.corpus((case,)), "x")
        assert "between   call 2 against call 1, /record/salt: y, not x" in as_text(evidence(shown, {}))


class TestDifferences:
    def test_the_worst_number_comes_first(self) -> None:
        a = np.zeros((4, 4))
        b = a.copy()
        b[1, 2], b[3, 3], b[0, 0] = 0.5, 7.0, np.nan
        found, count = differences(a, b)
        assert count == 3
        assert [one.path for one in found] == [(0, 0), (3, 3), (1, 2)]

    def test_all_are_counted_and_few_are_shown(self) -> None:
        found, count = differences(np.zeros(1000), np.ones(1000))
        assert (len(found), count) == (6, 1000)

    def test_infinities_of_one_sign_agree(self) -> None:
        inf = np.array([np.inf, -np.inf, np.nan])
        assert differences(inf, inf.copy()) == ((), 0)
        assert differences(inf, -inf)[1] == 2

    def test_json_is_compared_by_place(self) -> None:
        found, count = differences({"a": [1, 2], "b": True}, {"a": [1, 3, 4], "b": 1})
        assert [(one.path, one.expected, one.returned) for one in found] == [
            (("a", 1), 2, 3),
            (("a", 2), "(absent)", 4),
            (("b",), True, 1),
        ]
        assert count == 3

    def test_shapes_are_named(self) -> None:
        found, _ = differences({"x": np.zeros((2, 3), "f4")}, {"x": np.zeros((3, 2), "f4")})
        assert (found[0].expected, found[0].returned) == ("float32[2, 3]", "float32[3, 2]")

    def test_elements_within_the_bound_do_not_differ(self) -> None:
        a = {"out": np.float64([1, 2, 3]), "lse": np.float64([1, -np.inf])}
        b = {"out": np.float64([1.05, 2.2, 3]), "lse": np.float64([1.05, -np.inf])}
        limits = {"out": {"rtol": 0, "atol": 0.1}, "lse": {"rtol": 0.01, "atol": 0}}
        found, count = differences(a, b, limits)
        assert [one.path for one in found] == [("out", 1), ("lse", 0)]
        assert count == 2


class TestSummary:
    def told(self, adapter: type[EngineAdapter]) -> str:
        out = Console(file=io.StringIO(), width=100)
        terminal.summary(report(adapter), out)
        return out.file.getvalue()  # type: ignore[attr-defined, no-any-return]

    def test_failures_are_counted_by_requirement(self) -> None:
        lines = self.told(miniature.Drift).splitlines()
        assert ["ATT-901", "4", "Title", "of", "ATT-901"] in [line.split() for line in lines]
        assert [line for line in lines if line != line.rstrip()] == []

    def test_the_conclusion_adds_up_to_the_table(self) -> None:
        told = self.told(miniature.Drift)
        assert "attention     2     4" in told
        assert "4 cases did not pass: 2 failed, 2 warnings in " in told

    @pytest.mark.parametrize(
        ("verdicts", "last"),
        [
            (("inconclusive",), "1 case inconclusive in 0.0 s"),
            (("inconclusive", "fail", "error"), "3 cases did not pass: 2 failed, 1 inconclusive in 0.0 s"),
            (("wrong-reason", "fail"), "2 cases failed in 0.0 s"),
        ],
    )
    def test_a_case_that_shows_nothing_is_not_called_failed(self, verdicts: tuple[str, ...], last: str) -> None:
        results = [{"verdict": verdict, "fails": True} for verdict in verdicts]
        document = {"results": results, "findings": [], "exit_code": 1, "seconds": 0.0}
        assert terminal.conclusion(document).plain == last

    def test_a_single_failure_needs_no_table(self) -> None:
        assert "requirement" not in self.told(miniature.Nan)


class TestJunit:
    @pytest.mark.parametrize("adapter", ENGINES)
    def test_totals_agree_with_the_cases(self, adapter: type[EngineAdapter]) -> None:
        root = ElementTree.fromstring(junit.render(report(adapter)).encode())
        cases = root.findall(".//testcase")
        assert len(cases) == len(miniature.CASES) == int(root.attrib["tests"])
        for kind, total in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
            assert len(root.findall(f".//{kind}")) == int(root.attrib[total])
        assert sum(int(suite.attrib["tests"]) for suite in root) == len(cases)

    def test_verdicts_become_what_servers_know(self) -> None:
        root = ElementTree.fromstring(junit.render(report(miniature.Drift)).encode())
        kinds = {case.attrib["name"]: [child.tag for child in case] for case in root.iter("testcase")}
        assert kinds["attention/merge/two-empty"] == ["failure"]
        assert kinds["attention/merge/polite"] == ["skipped"]
        assert kinds["attention/merge/next-year"] == ["skipped"]
        assert kinds["identity/keys/none"] == ["skipped"]
        assert kinds["attention/merge/order"] == []
        failure = root.find(".//failure")
        assert failure is not None
        assert failure.attrib["type"] == "fail"
        assert "repeat    kvassay run" in (failure.text or "")

    def test_a_waiver_at_fault_fails(self) -> None:
        document = report(miniature.Good) | {"findings": ["w.toml: waiver 0 (x): expired"]}
        root = ElementTree.fromstring(junit.render(document).encode())
        assert [node.attrib["message"] for node in root.iter("failure")] == ["w.toml: waiver 0 (x): expired"]


class Page(HTMLParser):
    """Tags, ids, and the text outside style and script."""

    VOID = frozenset({"meta", "input", "br"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.ids: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.text: list[str] = []
        self.stack: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        self.ids += [value or "" for name, value in attrs if name == "id"]
        if tag not in self.VOID:
            self.stack.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.stack.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self.stack or self.stack[-1] not in ("style", "script"):
            self.text.append(data)


class TestHtml:
    @pytest.mark.parametrize("adapter", ENGINES)
    def test_the_page_is_well_formed_and_alone(self, adapter: type[EngineAdapter]) -> None:
        text = html.render(report(adapter))
        page = Page(text)
        assert page.stack == []
        assert len(page.ids) == len(set(page.ids))
        assert page.tags["script"] == page.tags["style"] == 1
        assert not {"link", "img", "iframe", "object", "base"} & page.tags.keys()
        assert not [one for one in page.attributes if one[1] == "src" or one[1].startswith("on")]
        assert all(value.startswith("#") for tag, name, value in page.attributes if name == "href")
        assert "url(" not in text
        assert "@import" not in text

    def test_what_an_engine_says_is_text(self) -> None:
        page = Page(html.render(report(miniature.Hostile)))
        assert "<script>alert(1)</script>" in "".join(page.text)
        assert "<script>alert(2)</script>" in "".join(page.text)
        assert "\x1b" not in "".join(page.text)

    def test_every_case_stands_once_and_is_linked_from_its_other_requirements(self) -> None:
        page = Page(html.render(report(miniature.Good)))
        ids = [one for one in page.ids if one.startswith("case-")]
        assert sorted(ids) == sorted(f"case-{case.id}" for case in miniature.CASES)
        links = {value.removeprefix("#") for tag, name, value in page.attributes if tag == "a" and name == "href"}
        assert links == {"cases", "case-attention/merge/order"}
        assert links <= {*page.ids}

    def test_the_page_names_the_adapter_and_repeats_the_whole_run(self) -> None:
        document = report(miniature.Drift) | {
            "selection": {"contract": ["attention"], "keyword": ["a b"]},
            "strict": True,
        }
        page = Page(html.render(document))
        told = "".join(page.text)
        assert "kvassay run --adapter x --contract attention -k 'a b' --strict" in told
        assert "drift 1.0 through x" in told

    def test_code_in_a_sentence_is_set_as_code(self) -> None:
        assert html.prose("`a<b` and ``") == "<code>a&lt;b</code> and ``"

    def test_differing_elements_are_marked(self) -> None:
        text = html.render(report(miniature.Drift))
        assert re.search(r"\[1\] <mark>3</mark> 4", text)
        assert re.search(r"\[1\] <mark>3\.00999\d*</mark> 4", text)

    def test_controls_are_native_and_labelled(self) -> None:
        page = Page(html.render(report(miniature.Drift)))
        assert page.tags["summary"] == page.tags["details"]
        controls = {tag for tag, name, _ in page.attributes if name == "tabindex"}
        assert controls <= {"pre", "div", "h2"}
        assert ("html", "lang", "en") in page.attributes
        assert any(name == "content" and "width=device-width" in value for _, name, value in page.attributes)

    def test_the_policy_admits_the_page_s_own_script_and_style(self) -> None:
        import base64
        import hashlib

        text = html.render(report(miniature.Good))
        for tag in ("style", "script"):
            content = re.search(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
            assert content is not None
            digest = base64.b64encode(hashlib.sha256(content[1].encode()).digest()).decode()
            assert f"'sha256-{digest}'" in text

    @pytest.mark.skipif(shutil.which("chromium") is None, reason="needs chromium")
    def test_a_browser_opens_the_case_and_runs_nothing_else(self, tmp_path: Path) -> None:
        page = tmp_path / "page.html"
        page.write_text(html.render(report(miniature.Hostile)), encoding="utf-8")
        done = subprocess.run(
            [
                *("chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"),
                *("--virtual-time-budget=2000", "--dump-dom", f"{page.as_uri()}#case-attention/merge/order"),
            ],
            capture_output=True,
            text=True,
            timeout=120,
        )
        opened = re.findall(r'<details class="case" id="([^"]+)"[^>]* open=""', done.stdout)
        assert opened == ["case-attention/merge/order"]
        assert '<output for="text" aria-live="polite">7 cases</output>' in done.stdout
        assert "alert(1)</script>" not in re.sub(r"<title>.*?</title>", "", done.stdout)

    def test_a_page_stays_small(self) -> None:
        big = np.ones((512, 512), "f4")
        finding = Finding(0, "/state", "wrong", big, big + 1)
        case = miniature.CASES[0]
        shown = documents.result(Result(case, Verdict.FAIL, finding), miniature.corpus(), "x")
        assert len(json.dumps(shown)) < 5000
