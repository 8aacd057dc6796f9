"""The corpus on disk: reading untrusted JSON, selection, lint, the freezer's own rules, and the shipped data."""

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from kvassay.core.model import Kind, Level
from kvassay.corpus import Corpus, CorpusError, load
from kvassay.corpus.data import contracts, fixture_module, read_json, root
from kvassay.corpus.freeze import _lock, dump, freeze
from kvassay.corpus.lint import lint
from kvassay.corpus.load import expand
from kvassay.corpus.reconcile import Figure, reconciliation
from kvassay.corpus.requirements import extract
from kvassay.corpus.schemas import problem, schemas


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "not JSON"),
        ('{"a": 1, "a": 2}', "the member 'a' stands twice"),
        ("[NaN]", "NaN is not JSON"),
        ("[" * 100 + "]" * 100, "nested deeper"),
        ("[" * 200_000 + "]" * 200_000, "nested too deeply"),
        ("\x00", "not JSON"),
    ],
)
def test_json_that_is_no_json_is_refused_with_the_file_and_the_reason(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(CorpusError, match=reason) as caught:
        read_json(path)
    assert str(caught.value).startswith(str(path))


def test_bytes_and_missing_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_bytes(b"\xff\xfe")
    with pytest.raises(CorpusError, match="not UTF-8"):
        read_json(tmp_path / "x.json")
    with pytest.raises(CorpusError, match="No such file"):
        read_json(tmp_path / "none.json")


def test_a_base_document_outside_the_fixtures_is_refused() -> None:
    with pytest.raises(CorpusError, match="outside the fixtures"):
        expand({"$base": "../../etc/passwd"}, root())


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return load()


def test_the_shipped_corpus_is_clean(corpus: Corpus) -> None:
    assert lint(corpus) == []


def test_issue_counts_hold(corpus: Corpus) -> None:
    """The least that the two first contracts promise."""
    assert len([case for case in corpus.cases if case.contract == "attention"]) >= 60
    documents = [case for case in corpus.cases if case.contract == "identity" and case.kind is Kind.MUTATION]
    assert len(documents) >= read_json(root() / "fixtures" / "golden-figures.json")["mutations_at_least"]["identity"]
    reasons = {case.steps[1].expect["rejects"] for case in documents}
    assert len(reasons) >= 20, "each mutation has a reason of its own, save where several fields share one"


def test_every_frozen_case_is_what_the_author_wrote(corpus: Corpus) -> None:
    """Ids, requirements and prose; the values are the freezer's check."""
    for contract in contracts():
        written = {case["id"]: case for case in fixture_module(f"{contract}.author").book.cases}
        frozen = {case.id: case for case in corpus.cases if case.contract == contract}
        assert sorted(written) == sorted(frozen)
        for name, case in written.items():
            assert tuple(case["requirements"]) == frozen[name].requirements
            assert case["given"] == frozen[name].given


@pytest.mark.parametrize("contract", contracts())
def test_small_cases_freeze_to_what_is_committed(contract: str) -> None:
    """The whole regeneration is a session of its own; here the groups that take no time."""
    group = {"attention": "attention/merge/", "identity": "identity/"}.get(contract, f"{contract}/")
    assert [
        name
        for name in freeze([contract], only=group, check=True, fresh=True, jobs=1, quiet=True)
        if "/cases/" in name and group.rstrip("/").endswith(Path(name).stem)
    ] == []


@pytest.mark.parametrize("contract", contracts())
def test_every_golden_figure_is_derived(contract: str) -> None:
    figures = reconciliation(contract)
    assert [figure for figure in figures if not figure.agrees] == []


@pytest.mark.parametrize(
    ("published", "derived", "agrees"),
    [
        (512, 512, True),
        (512, 513, False),
        (0.1567, 0.156699, True),
        (0.1567, 0.1568, False),
        ([1], [1], True),
        ([1], [2], False),
    ],
)
def test_a_figure_agrees_to_its_printed_digits(published: Any, derived: Any, agrees: bool) -> None:
    assert Figure("x", published, derived).agrees is agrees


@pytest.mark.parametrize(
    ("filters", "error"),
    [
        ({"case": ["no/such"]}, "no case 'no/such'"),
        ({"case": ["attention/merge/nothing-*"]}, "no case"),
        ({"contract": ["atention"]}, "did you mean 'attention'"),
        ({"profile": ["merg"]}, "did you mean 'merge'"),
        ({"requirement": ["ATT-999"]}, "no requirement 'ATT-999'"),
        ({"kind": ["mutant"]}, "no kind"),
        ({"keyword": "zebra"}, "no case meets all"),
    ],
)
def test_an_empty_selection_is_an_error_that_says_why(corpus: Corpus, filters: dict[str, Any], error: str) -> None:
    with pytest.raises(CorpusError, match=error):
        corpus.select(**filters)


def test_filters_narrow_and_globs_match_whole_ids(corpus: Corpus) -> None:
    merges = corpus.select(case=["attention/merge/*"])
    assert merges
    assert all(case.id.startswith("attention/merge/") for case in merges)
    musts = corpus.select(contract=["identity"], level=["must"])
    assert {case.level for case in musts} == {Level.MUST}


def change(corpus: Corpus, **fields: Any) -> Corpus:
    """The corpus with its first example case changed."""
    first = next(case for case in corpus.cases if case.kind is Kind.EXAMPLE)
    rest = [case for case in corpus.cases if case is not first]
    return dataclasses.replace(corpus, cases=(dataclasses.replace(first, **fields), *rest))


@pytest.mark.parametrize(
    ("fields", "finding"),
    [
        ({"requirements": ("ATT-999",)}, "unknown requirement ATT-999"),
        ({"profile": "nothing"}, "unknown profile nothing"),
        ({"needs": {"no.such": (True,)}}, "unknown capability no.such"),
        ({"kind": Kind.RELATION, "relations": ()}, "a relation case without a relation"),
        ({"kind": Kind.MUTATION}, "kind mutation and the member mutation go together"),
        ({"relations": ({"relation": "equal", "of": ["nobody", "nobody"]},)}, "which no step binds"),
    ],
)
def test_lint_names_what_is_wrong(corpus: Corpus, fields: dict[str, Any], finding: str) -> None:
    assert any(finding in line for line in lint(change(corpus, **fields)))


def test_lint_sees_a_vacuous_case_a_repeated_id_and_an_untested_requirement(corpus: Corpus) -> None:
    first = next(case for case in corpus.cases if case.kind is Kind.EXAMPLE)
    step = dataclasses.replace(first.steps[0], expect={"accepts": True}, witness=())
    vacuous = dataclasses.replace(first, steps=(step,), relations=())
    assert any("vacuous" in line for line in lint(dataclasses.replace(corpus, cases=(vacuous, *corpus.cases[1:]))))
    assert any("stands 2 times" in line for line in lint(dataclasses.replace(corpus, cases=(*corpus.cases, first))))
    fewer = tuple(case for case in corpus.cases if "ATT-001" not in case.requirements)
    assert any(line.startswith("ATT-001: no case") for line in lint(dataclasses.replace(corpus, cases=fewer)))


def test_a_retired_id_is_never_used_again(tmp_path: Path) -> None:
    folder = tmp_path / "fixtures"
    folder.mkdir()
    (folder / "ids.lock").write_text("x/y/old 2026.1\n")
    lock = _lock(tmp_path, ["x/y/new"], "2026.2")
    assert lock == "x/y/new 2026.2\nx/y/old retired 2026.1\n"
    (folder / "ids.lock").write_text(lock)
    with pytest.raises(CorpusError, match="was retired"):
        _lock(tmp_path, ["x/y/old"], "2026.2")


def test_dumped_json_reads_back_and_keeps_short_lists_on_a_line() -> None:
    value = {"a": [1, 2.5, "é"], "b": {"c": ["x" * 80, "y" * 80]}, "d": []}
    text = dump(value)
    assert json.loads(text) == value
    assert '"a": [1, 2.5, "é"]' in text


GOOD = "```{req} Title\n:id: ATT-001\n:level: must\n:sources: 07A\n\nOne sentence.\n\nWhy: because.\n```\n"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (GOOD.replace(":level: must\n", ""), "options id, level and sources"),
        (GOOD.replace("\n\nWhy: because.", ""), "one sentence"),
        (GOOD.replace("Why:", "Because:"), "one sentence"),
    ],
)
def test_a_requirement_that_is_not_whole_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "attention.md").write_text(text)
    with pytest.raises(CorpusError, match=reason):
        extract(tmp_path / "attention.md", tmp_path)
    (tmp_path / "attention.md").write_text(GOOD)
    assert extract(tmp_path / "attention.md", tmp_path)[0]["text"] == "One sentence."


def test_oracles_import_the_standard_library_and_their_shared_module_alone() -> None:
    import ast

    for path in [*(root() / "fixtures").glob("*/oracle.py"), root() / "fixtures" / "_oracle.py"]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                assert all(alias.name.partition(".")[0] in sys.stdlib_module_names for alias in node.names), path
            if isinstance(node, ast.ImportFrom) and node.level == 0:
                assert (node.module or "").partition(".")[0] in sys.stdlib_module_names, path
            if isinstance(node, ast.ImportFrom) and node.level > 0:
                assert node.module == "_oracle", path


@pytest.mark.parametrize("uri", sorted(schemas()))
def test_every_schema_is_strict_and_explains_itself(uri: str) -> None:
    import jsonschema

    document = schemas()[uri]
    jsonschema.Draft202012Validator.check_schema(document)

    def walk(node: Any, path: str) -> None:
        if isinstance(node, list):
            for index, item in enumerate(node):
                walk(item, f"{path}/{index}")
        if not isinstance(node, dict):
            return
        if "properties" in node and node.get("type") == "object":
            assert node.get("additionalProperties") is False or "unevaluatedProperties" in node, path
            for name, field in node["properties"].items():
                described = "description" in field or "$ref" in field
                assert described, f"{uri}{path}/properties/{name} has no description"
        for key, item in node.items():
            if key not in ("enum", "const", "examples", "default"):
                walk(item, f"{path}/{key}")

    walk(document, "#")


def test_requests_of_the_corpus_with_a_member_more_or_less_are_refused(corpus: Corpus) -> None:
    """Each op's request schema against systematic mutants of the requests that it accepts."""
    from kvassay.core.tensors import write

    seen: set[str] = set()
    for case in corpus.cases:
        step = case.steps[0]
        if step.op in seen or step.is_dynamic or case.kind is Kind.MUTATION:
            continue
        request = write(step.request)
        uri = f"urn:kvassay:{step.op.replace('.', '/')}#/$defs/request"
        if problem(request, uri) is not None:
            continue
        seen.add(step.op)
        assert problem({**request, "surprise": 1}, uri) is not None, step.op
        for name in schemas()[uri.partition("#")[0]]["$defs"]["request"].get("required", ()):
            fewer = {key: value for key, value in request.items() if key != name}
            assert problem(fewer, uri) is not None, f"{step.op} without {name}"
    assert {"attention.dense", "attention.partial", "identity.key", "identity.admit"} <= seen
