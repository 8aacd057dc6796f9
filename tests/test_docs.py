"""The documentation: its extension on a small project, and the promises of README and guides."""

from __future__ import annotations

import io
import json
import re
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

# Sphinx's extensions use calls that Sphinx means to remove; that is their business.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::PendingDeprecationWarning")

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "docs" / "_ext"))

pytest.importorskip("sphinx_needs", reason="the extra docs is not installed")

import kvdocs  # noqa: E402
from docutils.utils.math import MathError  # noqa: E402
from kvdocs import data, engines, markdown, mathml, readme, schema, sections, tables  # noqa: E402
from sphinx.application import Sphinx  # noqa: E402

REQUIREMENT = """```{req} Empty merges to empty
:id: TOY-001
:level: must
:sources: 04W

Two empty states merge to an empty one.

Why: minus infinity less itself is no number.
```
"""
CHAPTER = f"""# Toys

Inline $m + \\log l$, frontier {{kv-base}}`toy/base /frontier`, and

$$ o = \\frac{{u}}{{l}} $$

{REQUIREMENT}
```{{kv-example}} toy/merge/two-empty
```

```{{kv-base}} toy/base /rows/1
```

```{{kv-cases}} toy
```

```{{kv-faults}} toy
```

```{{kv-sections}}
```
"""
CASE: dict[str, Any] = {
    "id": "toy/merge/two-empty",
    "requirements": ["TOY-001"],
    "level": "must",
    "kind": "example",
    "profile": "merge",
    "status": "stable",
    "title": "Two [empty] | states",
    "given": "Given `$a|b` and $cost, when merged, then *nothing*.",
    "why": "It must not be NaN.",
    "steps": [
        {
            "op": "toy.merge",
            "request": {"m": {"dtype": "float32", "shape": [2], "data": [0.5, "-Infinity"]}},
            "expect": {"close": [{"at": "/lse", "value": ["-Infinity"], "bound": {}}]},
        }
    ],
}
REPORT: dict[str, Any] = {
    "engine": {"name": "toy", "version": "3", "notes": "", "ops": [], "states": [], "variants": [], "capabilities": {}},
    "corpus": {"edition": "1", "digest": "0" * 64, "contracts": ["toy"]},
    "environment": {},
    "command": "kvassay run --adapter toy",
    "profiles": {"merge": "claimed"},
    "results": [
        {
            "case": CASE["id"],
            "requirements": CASE["requirements"],
            "profile": "merge",
            "level": "must",
            "title": CASE["title"],
            "verdict": "fail",
            "repeat": "kvassay run --adapter toy --case toy/merge/two-empty",
            "finding": {"step": 0, "message": "NaN where -Infinity is due", "differences": []},
            "exchanges": [{"op": "toy.merge", "request": {"n": 1}, "reply": {}}],
        }
    ],
}


class EmptyIsNaN:
    """Rescales the empty side (sglang#33064)."""

    requirement = "TOY-001"
    killed_by: tuple[str, ...] = ("toy/merge/two-empty",)


class Toy:
    """A repository of one contract, and a build of its documentation with the project's own configuration."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.put("spec/toy.md", CHAPTER)
        self.put("fixtures/toy/cases/merge.json", json.dumps({"cases": [CASE]}))
        self.put("fixtures/toy/base.json", json.dumps({"rows": [3, 17], "frontier": 4711}))
        self.put("schemas/toy.json", json.dumps({"$schema": "", "$id": "urn:kvassay:toy", "description": "A toy."}))
        self.put("docs/engines/toy.json", json.dumps(REPORT))
        self.sections([{"section": "04W", "about": "merge"}])
        self.put("docs/index.md", "# All\n\n```{toctree}\n:glob:\nspec/*\n_generated/*/*\n```\n")

    def put(self, path: str, text: str) -> None:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")

    def sections(self, rows: list[dict[str, Any]]) -> None:
        self.put("docs/article/toy.json", json.dumps({"sections": rows}))

    def build(self) -> tuple[int, str]:
        """Exit status under -W, and the warnings."""
        warnings = io.StringIO()
        app = Sphinx(
            str(self.root / "docs"),
            str(ROOT / "docs"),
            str(self.root / "out"),
            str(self.root / "trees"),
            "html",
            confoverrides={"kv_root": str(self.root), "kv_api": []},
            status=io.StringIO(),
            warning=warnings,
            warningiserror=True,
            freshenv=True,
        )
        app.build()
        return app.statuscode, warnings.getvalue()

    def html(self, page: str) -> str:
        return (self.root / "out" / f"{page}.html").read_text(encoding="utf-8")


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Toy:
    faults = types.ModuleType("kvassay.faults.toy")
    faults.FAULTS = (EmptyIsNaN,)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "kvassay.faults.toy", faults)
    data.groups.cache_clear()
    return Toy(tmp_path)


def test_a_whole_project_builds_without_a_warning_and_is_linked(toy: Toy) -> None:
    status, warnings = toy.build()
    assert (status, warnings) == (0, "")
    chapter = toy.html("spec/toy")
    assert chapter.count("<math ") == 2
    for target in ("cases/toy/merge.html#toy/merge/two-empty", "faults/toy.html#toy/EmptyIsNaN"):
        assert f'href="../_generated/{target}"' in chapter
    assert ">17<" in chapter
    assert ">4711<" in chapter
    assert "1 fail" in toy.html("_generated/traceability/toy"), "the row of traceability names the engine's verdict"
    case = toy.html("_generated/cases/toy/merge")
    assert 'href="../../engines/toy.html#toy/toy/merge/two-empty"' in case, "the case links its verdict"
    assert "Two [empty] | states" in case
    assert "$a|b" in case
    assert "$cost" in case
    assert "NaN where -Infinity is due" in toy.html("_generated/engines/toy")


def test_a_picture_stands_in_its_page(toy: Toy) -> None:
    pytest.importorskip("matplotlib", reason="the extra docs is not installed")
    report = (ROOT / "fixtures" / "offload" / "base.json").read_text(encoding="utf-8")
    toy.put("fixtures/offload/base.json", report)
    toy.put("spec/toy.md", CHAPTER + "\n```{kv-picture} offload/pipeline\n```\n")
    _, warnings = toy.build()
    assert "kv-picture offload" not in warnings
    figure = re.search(r"<figure.*?</figure>", toy.html("spec/toy"), re.DOTALL)
    assert figure is not None
    assert '<svg class="kv-picture" role="img" aria-label="A timeline of 4 layers' in figure[0]
    assert "fixtures/offload/base.json" in figure[0][figure[0].index("<figcaption>") :]


@pytest.mark.parametrize("name", ["offload/nothing", "offload/pipeline"])
def test_a_picture_of_nothing_fails_the_build(toy: Toy, name: str) -> None:
    pytest.importorskip("matplotlib", reason="the extra docs is not installed")
    toy.put("spec/toy.md", CHAPTER + f"\n```{{kv-picture}} {name}\n```\n")
    status, warnings = toy.build()
    assert status != 0
    assert f"kv-picture {name}: " in warnings


def test_no_page_loads_anything_from_the_network(toy: Toy) -> None:
    toy.build()
    pages = [path.read_text(encoding="utf-8") for path in (toy.root / "out").rglob("*.html")]
    loaded = [url for page in pages for url in re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="([^"]+)"', page)]
    assert loaded
    assert [url for url in loaded if "//" in url] == []
    styles = [path.read_text(encoding="utf-8") for path in (toy.root / "out").rglob("*.css")]
    assert [css for css in styles if re.search(r"url\(['\"]?https?:|@import ['\"]?https?:", css)] == []


def test_a_requirement_without_a_case_or_a_fault_fails_the_build(toy: Toy) -> None:
    toy.put("spec/toy.md", CHAPTER + "\n" + REQUIREMENT.replace("001", "002"))
    status, warnings = toy.build()
    assert status != 0
    assert "requirement without a case: failed" in warnings
    assert "requirement without a fault: failed" in warnings
    assert "TOY-002" in warnings
    assert "TOY-001" not in warnings


def test_a_fault_without_a_case_fails_the_build(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EmptyIsNaN, "killed_by", ())
    status, warnings = toy.build()
    assert status != 0
    assert "fault without a case that kills it: failed" in warnings


def test_a_link_to_an_unknown_case_fails_the_build(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EmptyIsNaN, "killed_by", ("toy/merge/none",))
    status, warnings = toy.build()
    assert status != 0
    assert "unknown outgoing link 'toy/merge/none'" in warnings


def test_a_lost_section_and_an_unlisted_source_fail_the_build(toy: Toy) -> None:
    toy.sections([{"section": "05A", "about": "omitted mass"}])
    status, warnings = toy.build()
    assert status != 0
    assert "article section 05A (omitted mass) has neither a requirement nor a place in the prose" in warnings
    assert "TOY-001: source 04W is no section" in warnings


def test_a_lost_item_of_a_section_is_told(tmp_path: Path) -> None:
    toy = Toy(tmp_path)
    held, placed = {"item": "held", "by": ["TOY-001"]}, {"item": "placed", "prose": {"Toy": "spec/toy.md"}}
    toy.sections([{"section": "04W", "about": "merge", "items": [held, placed]}])
    assert list(sections.problems(tmp_path)) == []
    table = sections.items(tmp_path)
    assert "held" in table
    assert "TOY-001" in table
    assert "[Toy](spec/toy.md)" in table
    lost = [{"item": "lost"}, {"item": "emptied", "by": []}, {"item": "elsewhere", "by": ["TOY-001", "TOY-999"]}]
    toy.sections([{"section": "04W", "about": "merge", "items": lost[:2]}, {"section": "05A", "about": "mass",
                 "prose": {"Toy": "spec/toy.md"}, "items": lost[2:]}])  # fmt: skip
    assert list(sections.problems(tmp_path)) == [
        "article section 04W, 'lost' has neither a requirement nor a place in the prose",
        "article section 04W, 'emptied' has neither a requirement nor a place in the prose",
        "article section 05A, 'elsewhere': TOY-001 is no requirement that names the section",
        "article section 05A, 'elsewhere': TOY-999 is no requirement that names the section",
    ]


def test_places_in_the_prose_are_there() -> None:
    rows = sections.listed(ROOT)
    places = [place for row in (*rows, *(one for row in rows for one in row.get("items", ()))) for place in
              row.get("prose", {}).values()]  # fmt: skip
    assert places
    for place in places:
        path, _, anchor = place.partition("#")
        text = (ROOT / path).read_text(encoding="utf-8")
        heads = [re.sub(r"[^\w -]", "", head).strip().lower().replace(" ", "-")
                 for head in re.findall(r"^#+ (.*)$", text, re.MULTILINE)]  # fmt: skip
        assert anchor in heads, place


@pytest.mark.parametrize(("good", "bad"), [("/rows/1", "/rows/2"), ("/frontier", "/fronteer")])
def test_a_directive_or_role_that_names_nothing_fails_the_build(toy: Toy, good: str, bad: str) -> None:
    toy.put("spec/toy.md", CHAPTER.replace(good, bad))
    status, warnings = toy.build()
    assert status != 0
    assert f"base.json has nothing at {bad}" in warnings


def test_a_formula_that_cannot_be_read_fails_the_build(toy: Toy) -> None:
    toy.put("spec/toy.md", CHAPTER.replace("\\frac", "\\fraction"))
    status, warnings = toy.build()
    assert status != 0
    assert "fraction" in warnings


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("a*b_c", r"a\*b\_c"),
        ("see `a*b` [x]", r"see `a*b` \[x\]"),
        ("costs $5 | {x}", r"costs \$5 \| \{x\}"),
        (":class:`Adapter` is", "`Adapter` is"),
        ("as in vllm#12", r"as in [vllm\#12](https://github.com/vllm-project/vllm/issues/12)"),
        ("as in vllm-ascend#12", r"as in [vllm-ascend\#12](https://github.com/vllm-project/vllm-ascend/issues/12)"),
        ("chapter #12", r"chapter \#12"),
    ],
)
def test_prose_is_escaped(text: str, safe: str) -> None:
    assert markdown.prose(text) == safe


def test_formulas_become_mathml() -> None:
    assert "<mfrac>" in mathml.convert(r"\frac{u}{l}", block=True)
    assert "<mtable" in mathml.convert(r"a &= b \\ c &= d", block=True)
    with pytest.raises(MathError):
        mathml.convert(r"\nosuch", block=False)


def test_a_function_name_is_set_apart_only_from_a_bare_argument() -> None:
    assert 'rspace="0.17em">&ApplyFunction;' in mathml.convert(r"\log l", block=False)
    assert 'rspace="0.17em">&ApplyFunction;' not in mathml.convert(r"\log(l)", block=False)


def test_the_bars_of_an_absolute_value_are_tight() -> None:
    assert mathml.convert("|o|", block=False).count('lspace="0" rspace="0">|<') == 2


def _fields(node: Any) -> Iterator[tuple[str, str]]:
    if isinstance(node, dict):
        for name, field in node.get("properties", {}).items():
            yield name, field.get("description", "") if isinstance(field, dict) else ""
        for item in node.values():
            yield from _fields(item)
    elif isinstance(node, list):
        for item in node:
            yield from _fields(item)


SCHEMAS = data.schema_files(ROOT)


@pytest.mark.parametrize("path", SCHEMAS, ids=lambda path: path.relative_to(ROOT / "schemas").as_posix())
def test_a_schema_page_shows_every_field(path: Path) -> None:
    document = json.loads(path.read_text(encoding="utf-8"))
    text = schema.page(document)
    missing = [
        name
        for name, about in _fields(document)
        if not re.search(rf"`([^`]*[.\]])?{re.escape(name)}`", text) or markdown.line(about) not in text
    ]
    assert missing == []


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ({"type": "string", "pattern": "^a$"}, "string, pattern `^a$`"),
        ({"enum": ["a", 2, None]}, '`"a"` or `2` or `null`'),
        ({"type": ["integer", "null"], "minimum": 0}, "integer or null, at least `0`"),
        ({"type": "array", "items": {"$ref": "#/$defs/x"}}, "array of [x](#schema-toy-x)"),
        ({"$ref": "urn:kvassay:tensor#/$defs/state"}, "[state](#schema-tensor-state)"),
        ({"oneOf": [{"type": "string"}, {"const": True}]}, "string or `true`"),
        ({}, "any value"),
    ],
)
def test_types_in_words(kind: Any, words: str) -> None:
    assert schema.kind(kind, "urn:kvassay:toy") == words


def test_tensors_in_a_cell() -> None:
    small = {"dtype": "float32", "shape": [2], "data": [1.0, "NaN"]}
    assert tables.tensor(small) == "`float32[2]` `[1, NaN]`"
    assert tables.tensor({"dtype": "float32", "shape": [65], "data": [0.0] * 65}) == "`float32[65]`"
    recipe = {"dtype": "float16", "shape": [9, 2], "recipe": {"name": "hash32-v1", "seed": 4}}
    assert tables.tensor(recipe) == "`float16[9, 2]`, hash32-v1 seed 4"


def test_the_map_of_the_article_is_whole() -> None:
    assert list(sections.problems(ROOT)) == []


# -- README and guides ---------------------------------------------------------------------------------------------

README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [path for folder in ("", "engines", "kernels") for path in sorted((ROOT / "docs" / folder).glob("*.md"))]
GUIDES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *PAGES]
NAMES = [path.relative_to(ROOT).as_posix() for path in GUIDES]


@pytest.mark.parametrize("path", GUIDES, ids=NAMES)
def test_links_lead_somewhere(path: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)\s]*)?\)", path.read_text(encoding="utf-8"))
    missing = [link for link in links if "://" not in link and not (path.parent / link).exists()]
    assert missing == []


def test_the_site_leads_to_its_own_pages() -> None:
    source = ["[a](../../spec/recipes.md), [b](../schemas/identity/record.json), [c](ci.md#waivers), [d](../README.md)"]
    kvdocs._link_own_pages(types.SimpleNamespace(), "protocol", source)
    assert source == [
        "[a](/spec/recipes.md), [b](/_generated/schemas/identity/record.md), [c](ci.md#waivers), [d](../README.md)"
    ]


def test_a_guide_shows_the_members_of_a_document() -> None:
    text = schema.members(data.load(ROOT / "schemas" / "identity" / "record.json"))
    for name in ("`tenant`", "`cache_salt`", "`multimodal[].sha256`"):
        assert name in text


SOURCES = (
    "fixtures/*/*.py",
    "conformance/kvassay/faults/**/*.py",
    "docs/_ext/kvdocs/pictures/*.py",
    "spec/*.md",
    "tests/toy_contract/**/*.py",
)
EXAMPLES = re.findall(
    r"^( *`{3,})(?:python|markdown)\n(.*?)^\1$", GUIDES[1].read_text(encoding="utf-8"), re.DOTALL | re.M
)


@pytest.mark.parametrize("example", [body for _, body in EXAMPLES], ids=lambda body: body.split()[0])
def test_the_worked_examples_are_the_real_thing(example: str) -> None:
    sources = [path.read_text(encoding="utf-8") for one in SOURCES for path in ROOT.glob(one)]
    wanted = re.sub(r"\s+", " ", example)
    assert any(wanted in re.sub(r"\s+", " ", source) for source in sources)


@pytest.mark.parametrize("path", GUIDES, ids=NAMES)
def test_every_command_in_a_guide_exists(path: Path) -> None:
    from kvassay.cli import root

    context = click.Context(root)
    text = path.read_text(encoding="utf-8")
    noxfile = (ROOT / "noxfile.py").read_text(encoding="utf-8")
    known = set(re.findall(r"^@nox\.session[^\n]*\ndef (\w+)", noxfile, re.MULTILINE))
    known |= set(re.findall(r'^@nox\.session\(name="([\w-]+)"', noxfile, re.MULTILINE))
    known |= {f"engine-{steps.stem}" for steps in (ROOT / "requirements").glob("*.steps")} | {"engine-<name>"}
    assert set(re.findall(r"nox -s ([\w<>-]+)", text)) <= known
    for name, rest in re.findall(r"(?:^ {4,}(?:\$ )?|`)kvassay ([a-z][a-z-]+)([^\n`]*)", text, re.MULTILINE):
        command = root.get_command(context, name)
        assert command, f"kvassay {name}"
        if isinstance(command, click.Group):
            command = command.get_command(context, rest.split()[0])
            assert command, f"kvassay {name}{rest}"
        options = {option for parameter in command.params for option in parameter.opts} | {"--help"}
        assert set(re.findall(r"(?<!\S)(--[a-z-]+)", re.sub(r'"[^"]*"', "", rest))) <= options, f"kvassay {name}{rest}"


def test_the_readme_shows_sessions_as_they_are() -> None:
    assert len(readme.SESSION.findall(README)) == 2
    assert readme.with_sessions(README, readme.session) == README


def test_a_session_that_has_changed_is_written_anew() -> None:
    text = "<!-- session: begin -->\n    $ kvassay x\n    {} in {} s\n\n    end\n<!-- session: end -->\n"
    for printed, kept in (("1 case in 9.9 s\n\nend\n", True), ("2 cases in 9.9 s\n\nend\n", False)):
        new = readme.with_sessions(text.format("1 case", "0.1"), lambda command, told=printed: told)
        assert new == (text.format("1 case", "0.1") if kept else text.format("2 cases", "9.9"))


def test_the_readme_shows_the_reports_that_are_committed() -> None:
    assert readme.with_table(README, engines.readme_table(ROOT)) == README
