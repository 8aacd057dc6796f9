"""``kvassay explain``: what an id of the suite stands for, and everything that hangs on it."""

from __future__ import annotations

import difflib
import itertools
import json
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import click
from rich.console import Console
from rich.text import Text

from ..adapters.base import EngineAdapter
from ..core.model import Case, Step
from ..corpus import Corpus, CorpusError, load
from ..corpus.data import is_clone, read_json, root
from ..corpus.members import Member, members
from ..corpus.ops import ops
from ..corpus.schemas import schemas
from ..corpus.words import chapter, words
from ..faults import seeded as seeds
from ..monitors import MONITORS
from ..monitors.requirements import ACCOUNTS
from ..reports.changes import changes
from ..reports.evidence import changed, own_title, told
from ..reports.layout import lines, plain
from ..reports.written import as_written, resealed
from ..traces.rules import Rule as TraceRule
from .console import dump, out, say

Explanation = dict[str, Any]
"""Label to a sentence, a list of lines, or a mapping of id to sentence; ``kind`` and ``id`` come first."""

WIDTH = 100
LABEL = 13
CASE_WIDTH = 118
"""Letters of a case's line."""
LISTED = ("requirement", "profile", "variant")
"""Kinds of id by which ``kvassay list`` selects."""
FOLD = 10
"""Cases that are shown; ``--json`` has the others."""
NEAR = 0.6
"""How alike an id must be to be meant."""


@click.command("explain", short_help="Say what an id stands for, and what hangs on it.")
@click.argument("name", metavar="ID")
@click.option("--json", "as_json", is_flag=True, help="Print the explanation as JSON.")
def command(name: str, as_json: bool) -> int:
    """Explain a requirement, reason, case, op, profile, capability, variant, contract, state schema or fault.

    The words that findings print are explained as well: rules of monitors, and words of results such as fallbacks.

    \b
    Examples:
      kvassay explain ATT-001
      kvassay explain STALE_CACHE_GENERATION
      kvassay explain attention/merge/two-empty-partitions
      kvassay explain attention.merge
      kvassay explain CREDIT_MINTED
    """
    explanation = explain(load(), name)
    if as_json:
        sys.stdout.write(dump(explanation))
    else:
        show(explanation, out())
    return 0


def explain(corpus: Corpus, name: str) -> Explanation:
    """Everything about one id; raises :class:`CorpusError` with the nearest id that exists."""
    faults = seeded()
    for kind, names, describe in (
        ("requirement", corpus.requirements, requirement),
        ("reason", corpus.reasons, reason),
        ("case", {case.id: case for case in corpus.cases}, case),
        ("op", ops(), op),
        ("profile", corpus.profiles, profile),
        ("capability", corpus.capabilities, capability),
        ("variant", corpus.variants, variant),
        ("contract", dict.fromkeys(corpus.contracts), contract),
        ("state schema", states(), state),
        ("fault", faults, fault),
        ("rule", rules(), rule),
        ("word", words(), word),
    ):
        if name in names:
            return {"kind": kind, "id": name, **describe(corpus, name, faults)}
    short = [full for full in faults if full.rpartition("/")[2] == name]
    if len(short) == 1:
        return {"kind": "fault", "id": short[0], **fault(corpus, short[0], faults)}
    everything = [*corpus.requirements, *corpus.reasons, *(one.id for one in corpus.cases), *ops()]
    everything += [*corpus.profiles, *corpus.capabilities, *corpus.variants, *corpus.contracts, *states(), *faults]
    everything += [*rules(), *words()]
    near = nearest(name, everything)
    raise CorpusError(f"nothing is called {name!r}" + (f"; did you mean {near!r}?" if near else ""))


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The id that was meant: alike as a whole and in its last part, since all ids of a contract begin alike."""
    by_case = {one.lower(): one for one in names}
    for near in difflib.get_close_matches(name.lower(), by_case, n=5, cutoff=NEAR):
        asked, end = (re.split("[/.]", one)[-1] for one in (name.lower(), near))
        if difflib.SequenceMatcher(None, asked, end).ratio() >= NEAR:
            return by_case[near]
    return None


Faults = Mapping[str, type[EngineAdapter]]


def seeded() -> Faults:
    """Every seeded fault by ``contract/ClassName``."""
    return {f"{contract}/{fault.__name__}": fault for contract in seeds.modules() for fault in seeds.faults(contract)}


def requirement(corpus: Corpus, name: str, faults: Faults) -> Explanation:
    """The sentence, its reason, and what tests and breaks it."""
    item = corpus.requirements[name]
    cases = [one for one in corpus.cases if name in one.requirements]
    return {
        "title": item.title,
        "level": item.level.value,
        "text": item.text,
        "why": item.why,
        "chapter": f"{item.chapter} (article sections {', '.join(item.sources)})",
        "cases": titles(cases),
        "faults": {key: doc(one) for key, one in faults.items() if getattr(one, "requirement", "") == name},
        "engines": verdicts({one.id for one in cases}),
    }


def reason(corpus: Corpus, name: str, faults: Faults) -> Explanation:
    """What a rejection means, what to do, and which cases ask for it."""
    item = corpus.reasons[name]
    return {
        "plane": item.plane,
        "contract": item.contract,
        "meaning": item.meaning,
        "action": item.action,
        "cases": titles(one for one in corpus.cases if any(step.expect.reason == name for step in one.steps)),
    }


def case(corpus: Corpus, name: str, faults: Faults) -> Explanation:
    """The steps of a case and who fails it."""
    item = next(one for one in corpus.cases if one.id == name)
    written = corpus.raw(name)
    return {
        "title": own_title(name, item.title),
        "level": f"{item.level.value}, {item.status.value}",
        "profile": item.profile,
        **({"variant": item.variant} if item.variant else {}),
        **(
            {"needs": [f"{key}: {' or '.join(map(str, values))}" for key, values in item.needs.items()]}
            if item.needs
            else {}
        ),
        "given": item.given,
        "why": item.why,
        "requirements": {one: corpus.requirements[one].text for one in item.requirements if one in corpus.requirements},
        "steps": list(_steps(item.steps, written)),
        "relations": [f"{one['relation']}({', '.join(one['of'])})" for one in item.relations],
        "faults": {key: doc(one) for key, one in faults.items() if name in getattr(one, "killed_by", ())},
        "engines": verdicts({name}),
        "repeat": f"kvassay run --adapter NAME --case {name}",
    }


def op(corpus: Corpus, name: str, faults: Faults) -> Explanation:
    """What an op does and takes, and who calls it."""
    found = ops()[name]
    return {
        "contract": found.contract,
        "meaning": found.schema["description"],
        "request": described(members(found.schema, "request")),
        "response": described(members(found.schema, "response")),
        "profiles": [one.name for one in corpus.profiles.values() if name in one.ops],
        **of(
            (one for one in corpus.cases if name in one.ops),
            "none of the corpus: a control is there for cases of your own, see kvassay run --case-file"
            if found.contract == "control"
            else "none calls it",
        ),
    }


def described(found: Sequence[Member]) -> dict[str, str]:
    """Members and their descriptions; those of an inner object follow it as ``record.tokens``."""
    rows = {}
    for member in found:
        rows[member.name] = member.description
        mark = f"{member.name}[]" if member.many else member.name
        rows |= {f"{mark}.{inner.name}": inner.description for inner in member.inner}
    return rows


def profile(corpus: Corpus, name: str, faults: Faults) -> Explanation:
    """What an engine claims by a profile."""
    item = corpus.profiles[name]
    cases = titles(one for one in corpus.cases if one.profile == name)
    return {"meaning": item.meaning, "contract": item.contract, "ops": sorted(item.ops), "cases": cases}


def capability(corpus: Corpus, name: str, faults: Faults) -> Explanation:
    """What an engine declares by a capability."""
    item = corpus.capabilities[name]
    return {
        "meaning": item.meaning,
        "values": [str(value) for value in item.values],
        "default": str(item.default),
        **of(
            (one for one in corpus.cases if name in one.needs),
            "none asks for it: reports tell it"
            + (f", and the monitor of {item.contract} may judge calls by it" if item.contract in MONITORS else ""),
        ),
    }


def variant(corpus: Corpus, name: str, faults: Faults) -> Explanation:
    """The rule of a method, and how it is known."""
    item = corpus.variants[name]
    return {
        "method": item.method,
        "contract": item.contract,
        "evidence": item.evidence,
        "meaning": item.meaning,
        "cases": titles(one for one in corpus.cases if one.variant == name),
    }


def contract(corpus: Corpus, name: str, faults: Faults) -> Explanation:
    """The requirements of a contract."""
    return {
        "profiles": [one.name for one in corpus.profiles.values() if one.contract == name],
        "requirements": {one.id: one.title for one in corpus.requirements.values() if one.contract == name},
        "cases": [f"{sum(one.contract == name for one in corpus.cases)} cases; kvassay list --contract {name}"],
    }


def fault(corpus: Corpus, name: str, faults: Faults) -> Explanation:
    """The defect, the requirement that it breaks, and the cases meant for it."""
    item = faults[name]
    broken = getattr(item, "requirement", "")
    text = corpus.requirements[broken].text if broken in corpus.requirements else ""
    meant = getattr(item, "killed_by", ())
    return {
        "defect": " ".join((item.__doc__ or "").split()),
        "requirement": {broken: text},
        "cases": titles(one for one in corpus.cases if one.id in meant),
    }


def states() -> dict[str, Mapping[str, Any]]:
    """The schemas of partial states by name."""
    defined = schemas()["urn:kvassay:tensor"]["$defs"].values()
    named = {node.get("properties", {}).get("schema", {}).get("const"): node for node in defined}
    return {name: node for name, node in named.items() if name}


def state(corpus: Corpus, name: str, faults: Faults) -> Explanation:
    """What a partial state of this schema holds."""
    node = states()[name]
    return {
        "meaning": node.get("description", ""),
        "members": {key: rule.get("description", "") for key, rule in node["properties"].items()},
    }


def rules() -> dict[str, dict[str, str]]:
    """Every rule that a finding may break to its meaning, by contract; those of traces stand apart."""
    told = [(str(one.rule), one.contract, one.rule.meaning) for those in ACCOUNTS.values() for one in those]
    found: dict[str, dict[str, str]] = {}
    for name, whose, meaning in (*told, *((str(one), "traces", one.meaning) for one in TraceRule)):
        found.setdefault(name, {})[whose] = meaning
    return found


def rule(corpus: Corpus, name: str, faults: Faults) -> Explanation:
    """What is wrong where a finding names this rule, and the requirements behind it."""
    behind = [
        one for those in ACCOUNTS.values() for watched in those if watched.rule == name for one in watched.requirements
    ]
    return {
        "meaning": rules()[name],
        "requirements": {one: corpus.requirements[one].text for one in behind if one in corpus.requirements},
    }


def word(corpus: Corpus, name: str, faults: Faults) -> Explanation:
    """Where a word may stand, beside which others, and what the chapters say of it."""
    places = words()[name]
    own = list(dict.fromkeys(place.contract for place in places))
    naming = re.compile(rf"(?<!\w){re.escape(name)}(?!\w)")
    about = [one for one in corpus.requirements.values() if one.contract in own and naming.search(one.text)]
    return {
        "stands in": {place.where: place.description for place in places},
        "one of": list(dict.fromkeys(", ".join(place.choices) for place in places)),
        "chapter": "\n".join(line for contract in own for line in chapter(contract, name)),
        "requirements": {one.id: one.text for one in about},
        "cases": titles(
            one for one in corpus.cases if one.contract in own and f'"{name}"' in json.dumps(corpus.raw(one.id))
        ),
    }


def of(cases: Iterable[Case], none: str) -> Explanation:
    """The cases, and where there are none a word why."""
    found = titles(cases)
    return {"cases": found} if found else {"cases": {}, "no case": none}


def titles(cases: Iterable[Case]) -> dict[str, str]:
    """Case id to what the case shows."""
    return {one.id: told(one.id, one.title, one.given) for one in cases}


def spread(rows: Mapping[str, str], count: int) -> dict[str, str]:
    """So many cases, from as many groups as there are, in their order."""
    groups: dict[str, list[str]] = {}
    for name in rows:
        groups.setdefault(name.rpartition("/")[0], []).append(name)
    turns = [name for turn in itertools.zip_longest(*groups.values()) for name in turn if name]
    taken = set(turns[:count])
    return {name: text for name, text in rows.items() if name in taken}


def doc(fault: type[EngineAdapter]) -> str:
    """First line of a fault's docstring."""
    return (fault.__doc__ or "").strip().partition("\n")[0]


def verdicts(cases: set[str]) -> dict[str, str]:
    """What the stored engine reports say of these cases; nothing outside a clone."""
    found = {}
    for report in stored_reports():
        own = [row for row in report["results"] if row["case"] in cases]
        seen = {verdict: [row["case"] for row in own if row["verdict"] == verdict] for verdict in _kinds(own)}
        words = [f"{len(ids)} {verdict}" if len(cases) > 1 else verdict for verdict, ids in seen.items()]
        if words:
            found[f"{report['engine']['name']} {report['engine']['version']}"] = ", ".join(words)
    return found


def stored_reports() -> Iterator[Mapping[str, Any]]:
    """The reports of real engines that the repository keeps."""
    if is_clone():
        for path in sorted((root() / "docs" / "engines").glob("*.json")):
            document = read_json(path)
            if isinstance(document, dict) and document.get("format") == "kvassay-report-v1":
                yield document


def show(explanation: Explanation, console: Console) -> None:
    """The explanation as labelled paragraphs."""
    say(console, Text.assemble((f"{explanation['kind']} ", "dim"), (explanation["id"], "bold")))
    for label, value in explanation.items():
        if label in ("kind", "id") or not value:
            continue
        rows = _paragraph(value)
        if label == "cases" and isinstance(value, Mapping):
            rows = [_cut(row) for row in _paragraph(spread(value, FOLD))]
            rows += [f"… {len(value) - FOLD} more; {_all(explanation)}"] if len(value) > FOLD else []
        for number, line in enumerate(rows):
            say(console, Text.assemble((f"{label if number == 0 else '':<{LABEL}}", "dim"), line))


def _cut(row: str) -> str:
    """A case's line, cut at a word."""
    return row if len(row) <= CASE_WIDTH else f"{row[: CASE_WIDTH - 1].rpartition(' ')[0].rstrip(' ,:;')} …"


def _all(explanation: Explanation) -> str:
    """The command that names every case."""
    kind, name = explanation["kind"], explanation["id"]
    return f"kvassay list --{kind} {name}" if kind in LISTED else f"kvassay explain {name} --json"


def _paragraph(value: Any) -> list[str]:
    if isinstance(value, Mapping) and value:
        width = min(max(len(key) for key in value), 56)
        return [f"{key:<{width}}  {text}".rstrip() for key, text in value.items()]
    if isinstance(value, list):
        return value
    return [row for line in str(value).split("\n") for row in textwrap.wrap(line, WIDTH) or [""]]


def _steps(steps: Sequence[Step], raw: Mapping[str, Any]) -> Iterator[str]:
    written, derived = raw.get("steps", ()), resealed(raw)
    told = changes([step.request for step in steps])
    for index, (step, change) in enumerate(zip(steps, told, strict=True)):
        head = f"{index + 1}. {step.op}"
        yield f"{head}  ({step.note})" if step.note else head
        request = written[index]["request"] if index < len(written) else None
        for line in lines(as_written(request, step.request, derived), limit=16):
            yield f"     {plain(line)}"
        yield from (f"     {line}" for line in changed(change, "against step {}, "))
        yield f"   {step.expect.describe()}"


def _kinds(rows: list[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(row["verdict"] for row in rows))
