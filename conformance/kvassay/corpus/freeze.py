"""Turn what people wrote into frozen data: ``python -m kvassay.corpus.freeze``.

Every case is replayed on its contract's oracle, which fills expected values and bounds and confirms the rest; the
frozen case is then judged with the oracle as the engine. Written are the base documents, one file a group of cases,
the requirements extracted from the chapters, and ``ids.lock``. With ``--check`` nothing is written and any drift fails.
"""

from __future__ import annotations

import functools
import hashlib
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import click

from ..core import tensors
from ..core.compare import is_state
from ..core.engine import Broken, Refused, Reply, Returned
from ..core.judge import Rules, judge
from ..core.model import EngineDescription, Verdict
from ..core.pointers import resolve
from .data import contracts, fixture_module, is_clone, read_json, root
from .errors import CorpusError
from .lint import lint
from .load import build, expand, load_from
from .requirements import extract_all
from .schemas import problem, validate

WIDTH = 110
Json = dict[str, Any]


def dump(value: Any) -> str:
    """JSON that people can read: an object or list stands on one line where it fits."""
    return _dump(value, 0) + "\n"


def _dump(value: Any, indent: int) -> str:
    flat = json.dumps(value, ensure_ascii=False, allow_nan=False)
    if len(flat) + indent <= WIDTH or not isinstance(value, dict | list) or not value:
        return flat
    pad = " " * (indent + 1)
    if isinstance(value, list):
        return "[\n" + ",\n".join(pad + _dump(item, indent + 1) for item in value) + "\n" + " " * indent + "]"
    rows = (f"{pad}{json.dumps(key)}: {_dump(item, indent + 1)}" for key, item in value.items())
    return "{\n" + ",\n".join(rows) + "\n" + " " * indent + "}"


class OracleEngine:
    """An oracle behind the engine's interface, so that the judge can run the corpus against it."""

    def __init__(self, contract: str) -> None:
        self._make = fixture_module(f"{contract}.oracle").Oracle
        self._oracle = self._make()
        ops = {name.replace("_", ".", 1) for name in dir(self._make) if name.startswith(f"{contract}_")}
        self.description = EngineDescription("oracle", "1", frozenset(ops), states=("fp32-m-l-u-v1",))

    def open(self) -> Broken | None:
        """A fresh oracle."""
        self._oracle = self._make()
        return None

    def call(self, op: str, request: Mapping[str, Any], deadline_s: float = 0.0) -> Reply:
        """One op; the request's arrays go to the oracle as JSON."""
        reason, value = self.answer(op, tensors.write(request))
        return Refused(reason, str(value)) if reason is not None else Returned(tensors.read(value))

    def answer(self, op: str, request: Json) -> tuple[str | None, Any]:
        """Reason and detail of a rejection, or ``None`` and the JSON result; remembered for stateless oracles."""
        if not getattr(self._make, "stateless", False):
            return _ask(self._oracle, op, request)
        return _remembered(self._make, op, json.dumps(request))

    def late(self) -> Broken | None:
        """Never."""
        return None

    def close(self) -> None:
        """Nothing to end."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._oracle, name)


def _ask(oracle: Any, op: str, request: Json) -> tuple[str | None, Any]:
    rejection = fixture_module("_oracle").Rejection
    try:
        return None, getattr(oracle, op.replace(".", "_", 1))(request)
    except rejection as refusal:
        return refusal.reason, refusal.detail


@functools.lru_cache(maxsize=256)
def _remembered(make: Any, op: str, request: str) -> tuple[str | None, Any]:
    return _ask(make(), op, json.loads(request))


def freeze_case(contract: str, case: Json, base: Path) -> Json:
    """One frozen case; raises :class:`CorpusError` where author and oracle disagree."""
    oracle = OracleEngine(contract)
    frozen: Json = {"level": "must", "status": "stable", **case}
    frozen = _expand_mutation(contract, frozen, base) if "mutation" in frozen else frozen
    bound_values: Json = {}
    replayed: list[tuple[str, Json, Any]] = []
    steps = []
    for index, step in enumerate(frozen["steps"]):
        request = _bind(expand(step["request"], base), bound_values)
        reason, result = oracle.answer(step["op"], request)
        replayed.append((step["op"], request, result))
        expect = _fill(oracle, case["id"], index, step, request, reason, result)
        steps.append({**step, "expect": expect})
        if reason is None:
            bound_values |= {name: resolve(result, at) for name, at in step.get("bind", {}).items()}
    frozen["steps"] = steps
    frozen["relations"] = [
        {**row, "bound": oracle.relation_bound(row, replayed)} if row.get("bound") == "oracle" else row
        for row in frozen.get("relations", ())
    ]
    if not frozen["relations"]:
        del frozen["relations"]
    found = problem(frozen, "urn:kvassay:case#/$defs/case")
    if found is not None:
        raise CorpusError(found[1], file=case["id"], pointer=found[0])
    _confirm(frozen, oracle, base)
    return frozen


def _confirm(frozen: Json, oracle: OracleEngine, base: Path) -> None:
    """The judge, with the oracle as engine, passes the frozen case."""
    case = build(frozen, base)
    description = EngineDescription(
        **{
            **vars(oracle.description),
            "profiles": frozenset({case.profile}),
            "capabilities": {name: values[0] for name, values in case.needs.items()},
            "variants": frozenset({case.variant} if case.variant else ()),
        }
    )
    engine = OracleEngine(case.contract)
    engine.description = description
    rules = Rules({case.profile: case.ops}, {}, lambda op, value: None)
    result = judge(case, engine, rules)
    if result.verdict is not Verdict.PASS:
        message = result.finding.message if result.finding else ""
        raise CorpusError(f"the oracle does not pass its own case: {result.verdict}: {message}", file=case.id)


def _expand_mutation(contract: str, case: Json, base: Path) -> Json:
    """Whole base accepted, mutated base rejected, whole base accepted again."""
    mutation, (call,) = case["mutation"], case["steps"]
    name, member, change = mutation["base"], mutation["member"], mutation["change"]
    whole = {member: {"$base": name}}
    mutated = expand({"$base": name, "patch": [change]}, base)
    sealed, pointers = fixture_module(f"{contract}.oracle").reseal(mutated, change["path"])
    patch = [change, *({"op": "replace", "path": at, "value": resolve(sealed, at)} for at in pointers)]
    fine = {"op": call["op"], "request": whole, "expect": {"accepts": True}}
    broken = {
        "op": call["op"],
        "request": {member: {"$base": name, "patch": patch}},
        "expect": {"rejects": call["reason"]},
    }
    return {**case, "mutation": {**mutation, "resealed": list(pointers)}, "steps": [fine, broken, fine]}


def _bind(value: Any, bound_values: Json) -> Any:
    if isinstance(value, dict):
        if value.keys() == {"$bind"}:
            return bound_values[value["$bind"]]
        return {key: _bind(item, bound_values) for key, item in value.items()}
    return [_bind(item, bound_values) for item in value] if isinstance(value, list) else value


def _fill(
    oracle: OracleEngine, case: str, index: int, step: Json, request: Json, reason: str | None, result: Any
) -> Json:
    expect: Json = step["expect"]
    if "oracle" not in expect:
        return expect
    if reason is not None:
        raise CorpusError(f"step {index}: the oracle rejects this: {reason}: {result}", file=case)
    asked = expect["oracle"]
    pointers = asked["at"] or [f"/{name}" for name in result]
    rest = {key: value for key, value in expect.items() if key != "oracle"}
    if asked["exact"]:
        return {"equals": [{"at": at, "value": resolve(result, at)} for at in pointers], **rest}
    shared = fixture_module("_oracle")
    rows = []
    for at in pointers:
        value = resolve(result, at)
        if is_state(value):
            value = shared.meaning(value)
        elif tensors.is_tensor(value):
            value = shared.expected(shared.rows(value), value["shape"])
        rows.append({"at": at, "value": value, "bound": oracle.bound(step["op"], request, result, at)})
    return {"close": rows, **rest}


def _sources_digest(contract: str, base: Path) -> str:
    files = [base / "fixtures" / "_oracle.py", base / "fixtures" / contract / "oracle.py"]
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in files)).hexdigest()


def _cached(job: tuple[str, Json, Path, str, bool]) -> tuple[str, Json | None, str]:
    """Freeze one case unless the same case was frozen by the same oracle; the error travels as text."""
    contract, case, base, sources, use_cache = job
    relevant = [sources, case, [read_json(path) for path in sorted((base / "fixtures" / contract).glob("*.json"))]]
    key = hashlib.sha256(json.dumps(relevant, sort_keys=True).encode()).hexdigest()
    path = base / ".cache" / "freeze" / f"{key}.json"
    if use_cache and path.is_file():
        return case["id"], read_json(path), ""
    try:
        frozen = freeze_case(contract, case, base)
    except CorpusError as problem_found:
        return case["id"], None, str(problem_found)
    except Exception as defect:  # a defect of author or oracle is told with the case that shows it
        return case["id"], None, f"{case['id']}: {type(defect).__name__}: {defect}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(dump(frozen), encoding="utf-8")
    return case["id"], frozen, ""


def freeze_contract(
    contract: str, base: Path, *, jobs: int = 1, use_cache: bool = True, only: str = "", say: Any = lambda text: None
) -> Iterator[tuple[Path, str]]:
    """Path and text of every file of one contract; base documents are written first, since cases patch them."""
    author = fixture_module(f"{contract}.author")
    book = author.book
    sources = _sources_digest(contract, base)
    wanted = [case for case in book.cases if only in case["id"]]
    work = [(contract, case, base, sources, use_cache) for case in wanted]
    frozen: dict[str, Json] = {}
    problems = []
    with ProcessPoolExecutor(jobs) as pool:
        results = pool.map(_cached, work) if jobs > 1 else map(_cached, work)
        for number, (name, case, problem_text) in enumerate(results, 1):
            say(f"{number}/{len(work)} {name}{'  ' + problem_text if problem_text else ''}")
            if case is None:
                problems.append(problem_text)
            else:
                frozen[name] = case
    if problems:
        raise CorpusError(f"{len(problems)} of {len(work)} cases cannot be frozen:\n  " + "\n  ".join(problems))
    groups: dict[str, list[Json]] = {}
    for case in wanted:
        groups.setdefault(case["id"].split("/")[1], []).append(frozen[case["id"]])
    for group, cases in groups.items():
        shared = fixture_module("_oracle")
        document = {
            "format": "kvassay-fixture-v1",
            "provenance": {
                "author": f"fixtures/{contract}/author.py",
                "oracle": f"fixtures/{contract}/oracle.py",
                "oracle_sha256": sources,
            },
            "cases": cases,
            "digest": shared.sha256(shared.canonical_json(cases)),
        }
        yield base / "fixtures" / contract / "cases" / f"{group}.json", dump(document)


def base_files(contract: str, base: Path) -> Iterator[tuple[Path, str]]:
    """Path and text of the contract's base documents."""
    author = fixture_module(f"{contract}.author")
    for name, document in getattr(author, "base_documents", dict)().items():
        yield base / "fixtures" / contract / f"{name}.json", dump(document)


def _lock(base: Path, ids: Sequence[str], edition: str) -> str:
    """``ids.lock`` with the new ids added: an id that once stood there never means another case."""
    path = base / "fixtures" / "ids.lock"
    known = dict(line.split(" ", 1) for line in path.read_text().splitlines()) if path.is_file() else {}
    for one in ids:
        if known.get(one, "").startswith("retired"):
            raise CorpusError(f"the id {one} was retired and may not be used again", file="fixtures/ids.lock")
        known.setdefault(one, edition)
    gone = {one: f"retired {when.removeprefix('retired ')}" for one, when in known.items() if one not in ids}
    return "".join(f"{one} {when}\n" for one, when in sorted((known | gone).items()))


@click.command(help=__doc__)
@click.option("--contract", "chosen", multiple=True, help="Freeze these contracts only; may be repeated.")
@click.option("--only", default="", help="Only cases whose id contains this text, without writing.")
@click.option("--check", is_flag=True, help="Write nothing; fail on any drift.")
@click.option("--fresh", is_flag=True, help="Do not use values that were derived before.")
@click.option("--jobs", default=2, show_default=True, help="Processes.")
@click.option("--quiet", is_flag=True, help="Say nothing of single cases.")
def main(chosen: tuple[str, ...], only: str, check: bool, fresh: bool, jobs: int, quiet: bool) -> None:
    """Regenerate the golden data, or prove that it is current."""
    try:
        changed = freeze(chosen or contracts(), only=only, check=check, fresh=fresh, jobs=jobs, quiet=quiet)
    except CorpusError as refusal:
        click.echo(f"error: {refusal}", err=True)
        raise SystemExit(2) from None
    if check and changed:
        click.echo("drift: " + ", ".join(changed), err=True)
        raise SystemExit(1)
    click.echo(f"{'would change' if only else 'changed'}: {', '.join(changed) or 'nothing'}")


def freeze(
    chosen: Sequence[str],
    *,
    only: str = "",
    check: bool = False,
    fresh: bool = False,
    jobs: int = 2,
    quiet: bool = False,
) -> list[str]:
    """Regenerate the files of these contracts; the names of those that changed."""
    if not is_clone():
        raise CorpusError("only a source tree can be frozen")
    base = root()
    changed: list[str] = []

    def put(path: Path, text: str) -> None:
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            return
        changed.append(path.relative_to(base).as_posix())
        if not (check or only):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")

    requirements = extract_all(base)
    validate(requirements, "urn:kvassay:registry#/$defs/requirements", file="spec/requirements.json")
    put(base / "spec" / "requirements.json", dump(requirements))
    for contract in chosen:
        for path, text in base_files(contract, base):
            put(path, text)
        say = (lambda text: None) if quiet else (lambda text: print(text, file=sys.stderr, flush=True))
        written = set()
        for path, text in freeze_contract(contract, base, jobs=jobs, use_cache=not fresh, only=only, say=say):
            put(path, text)
            written.add(path)
        if only:
            continue
        for path in sorted((base / "fixtures" / contract / "cases").glob("*.json")):
            if path not in written:
                changed.append(path.relative_to(base).as_posix())
                if not check:
                    path.unlink()
    if not only and set(chosen) == set(contracts()):
        edition = read_json(base / "fixtures" / "edition.json")["edition"]
        ids = [case["id"] for name in chosen for case in fixture_module(f"{name}.author").book.cases]
        put(base / "fixtures" / "ids.lock", _lock(base, ids, edition))
        findings = lint(load_from(base))
        if findings:
            raise CorpusError(f"{len(findings)} findings of the corpus lint:\n  " + "\n  ".join(findings))
    return changed


if __name__ == "__main__":
    main()
