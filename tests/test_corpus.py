"""The corpus on disk: reading untrusted JSON, selection, lint, the freezer's own rules, and the shipped data."""

import dataclasses
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from kvassay.authoring.freeze import Plan, authored, freeze
from kvassay.authoring.printer import dump
from kvassay.core.expect import Accepts
from kvassay.core.model import Kind, Level
from kvassay.corpus import Corpus, CorpusError, load
from kvassay.corpus.build import expand
from kvassay.corpus.data import contracts, fixture_module, read_json, root
from kvassay.corpus.digest import digest
from kvassay.corpus.ids import given_out, updated
from kvassay.corpus.ids import read as read_lock
from kvassay.corpus.ids import write as write_lock
from kvassay.corpus.lint import lint, unclaimed
from kvassay.corpus.load import load_from
from kvassay.corpus.ops import find, ops
from kvassay.corpus.reconcile import Figure, reconciliation
from kvassay.corpus.requirements import extract
from kvassay.corpus.schemas import problem, schemas
from kvassay.engines.reference import Reference


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "not JSON"),
        ('{"a": 1, "a": 2}', "the member 'a' stands twice"),
        ("[NaN]", "NaN is not JSON"),
        ("[" * 100 + "]" * 100, "nested deeper"),
        ("[" * 200_000 + "]" * 200_000, "nested too deeply"),
        (" \n", "the file is empty"),
        ("9" * 5000, "an integer of more than 4300 digits"),
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
    assert unclaimed(corpus, Reference.profiles or ()) == []


def test_lint_of_chosen_contracts_is_silent_on_others(corpus: Corpus) -> None:
    broken = change(corpus, requirements=("ATT-999",), profile="nothing")
    contract = next(case.contract for case in broken.cases if case.profile == "nothing")
    (other,) = set(contracts()[:2]) - {contract}
    assert any("ATT-999" in line for line in lint(broken, [contract]))
    assert lint(broken, [other]) == []


def test_a_contract_that_the_reference_forgot_is_a_finding(corpus: Corpus) -> None:
    claimed = {"digests", "keys", "diagnosis"}
    (line,) = unclaimed(corpus, claimed, ["attention", "identity"])
    assert line.startswith("attention: the built-in reference claims no profile of it")
    assert unclaimed(corpus, claimed, ["identity"]) == []


def test_an_id_is_given_out_by_a_commit() -> None:
    lock = {"x/y/old": "2026.1", "x/y/mistaken": "2026.2", "x/y/written": "2026.2", "x/y/merged": "retired 2026.1"}
    head = {"x/y/old": "2026.1", "x/y/lost": "2026.1"}
    known = given_out(lock, head, ["x/y/written"])
    assert known == {"x/y/lost": "2026.1", "x/y/old": "2026.1", "x/y/written": "2026.2", "x/y/merged": "retired 2026.1"}
    assert given_out({"x/y/old": "retired 2026.1"}, {"x/y/old": "2026.1"}, ["x/y/old"]) == {"x/y/old": "2026.1"}
    assert given_out(lock, None, []) == lock, "without a history every line counts"


def test_issue_counts_hold(corpus: Corpus) -> None:
    """The least that the two first contracts promise."""
    assert len([case for case in corpus.cases if case.contract == "attention"]) >= 60
    documents = [case for case in corpus.cases if case.contract == "identity" and case.kind is Kind.MUTATION]
    assert len(documents) >= read_json(root() / "fixtures" / "identity" / "golden-figures.json")["mutations_at_least"]
    reasons = {case.steps[1].expect.reason for case in documents}
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
def test_what_is_committed_is_what_the_oracle_derives(contract: str) -> None:
    """Of large cases, which take a session of their own, only what the author wrote."""
    assert freeze([contract], Plan(check=True, fresh=True, small=True)) == []


def test_every_contract_has_an_author() -> None:
    assert authored(root()) == list(contracts())


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
        ({"requirement": ["att-001"]}, "did you mean 'ATT-001'"),
        ({"variant": ["quest/papr"]}, "did you mean 'quest/paper'"),
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
    step = dataclasses.replace(first.steps[0], expect=Accepts(), witness=())
    vacuous = dataclasses.replace(first, steps=(step,), relations=())
    assert any("vacuous" in line for line in lint(dataclasses.replace(corpus, cases=(vacuous, *corpus.cases[1:]))))
    assert any("stands 2 times" in line for line in lint(dataclasses.replace(corpus, cases=(*corpus.cases, first))))
    fewer = tuple(case for case in corpus.cases if "ATT-001" not in case.requirements)
    assert any(line.startswith("ATT-001: no case") for line in lint(dataclasses.replace(corpus, cases=fewer)))


def test_a_retired_id_is_never_used_again(tmp_path: Path) -> None:
    lock = updated({"x/y/old": "2026.1"}, ["x/y/new"], "2026.2")
    assert lock == {"x/y/new": "2026.2", "x/y/old": "retired 2026.1"}
    (tmp_path / "ids.lock").write_text(write_lock(lock))
    assert read_lock(tmp_path / "ids.lock") == lock
    assert updated(lock, ["x/y/new"], "2027.1") == lock
    with pytest.raises(CorpusError, match="was retired"):
        updated(lock, ["x/y/old"], "2027.1")


def test_lint_holds_ids_to_their_lock(corpus: Corpus) -> None:
    first = corpus.cases[0].id
    rest = {name: since for name, since in corpus.ids.items() if name != first}
    for lock, finding in (
        (rest, f"{first}: the id does not stand in ids.lock"),
        (rest | {first: "retired 2026.1"}, f"{first}: the id was retired"),
        (rest | {first: "2026.1", "identity/admit/gone": "2026.1"}, "identity/admit/gone: the id stands in ids.lock"),
    ):
        assert [line for line in lint(dataclasses.replace(corpus, ids=lock)) if line.startswith(finding)]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The data, free to be changed."""
    for folder in ("schemas", "spec", "fixtures"):
        shutil.copytree(root() / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def test_cases_that_do_not_meet_their_digest_are_refused(copy: Path) -> None:
    path = copy / "fixtures" / "attention" / "cases" / "merge.json"
    document = json.loads(path.read_text())
    document["cases"][0]["title"] += "!"
    path.write_text(json.dumps(document))
    with pytest.raises(CorpusError, match=r"fixtures/attention/cases/merge.json: /digest: .* does not belong"):
        load_from(copy)
    document["digest"] = digest(document["cases"])
    path.write_text(json.dumps(document))
    assert load_from(copy).digest != load().digest


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("fixtures/identity/base.json", "checkpoint-2", "checkpoint-3"),
        ("schemas/identity/manifest.json", "Version of", "Edition of"),
        ("schemas/attention/reasons.json", "Convert before the call", "Convert first"),
        ("spec/attention.requirements.json", " a ", " the "),
    ],
)
def test_the_digest_of_the_corpus_is_that_of_its_content(copy: Path, name: str, old: str, new: str) -> None:
    path = copy / name
    document = json.loads(path.read_text())
    path.write_text(json.dumps(document, indent=7))
    assert load_from(copy).digest == load().digest, "the form of a file says nothing"
    text = json.dumps(document)
    assert old in text
    path.write_text(text.replace(old, new, 1))
    assert load_from(copy).digest != load().digest


def test_a_name_stands_in_one_registry(copy: Path) -> None:
    (copy / "schemas" / "identity" / "reasons.json").write_text((copy / "schemas/attention/reasons.json").read_text())
    with pytest.raises(CorpusError, match=r"identity/reasons.json: /reasons/0: .* registry of attention already"):
        load_from(copy)


def test_ops_know_their_contract_and_schema() -> None:
    assert find("identity.key").contract == "identity"
    assert find("control.hold").contract == "control"
    assert {op.contract for op in ops().values()} == {*contracts(), "control"}
    assert find("attention.merge").request == "urn:kvassay:op:attention.merge#/$defs/request"
    with pytest.raises(CorpusError, match=r"did you mean 'attention.merge'"):
        find("attention.merges")


def test_the_judge_of_engines_needs_nothing_of_the_authors() -> None:
    code = "import sys, kvassay.runner, kvassay.cli.run; print([name for name in sys.modules if 'authoring' in name])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


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
                # Parts of an oracle and the shared helpers are held to the same by tests/test_imports.py.
                parts = [node.module] if node.module else [alias.name for alias in node.names]
                assert all(part in ("_oracle", "_selection") or part.startswith("oracle_") for part in parts), path


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
        if step.op in seen or step.dynamic or case.kind is Kind.MUTATION:
            continue
        request = write(step.request)
        uri = find(step.op).request
        if problem(request, uri) is not None:
            continue
        seen.add(step.op)
        assert problem({**request, "surprise": 1}, uri) is not None, step.op
        for name in schemas()[uri.partition("#")[0]]["$defs"]["request"].get("required", ()):
            fewer = {key: value for key, value in request.items() if key != name}
            assert problem(fewer, uri) is not None, f"{step.op} without {name}"
    assert {"attention.dense", "attention.partial", "identity.key", "identity.admit"} <= seen
