"""The command line: verdicts, forms of output, selection, and one line for whatever goes wrong."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import miniature
import pytest
from kvassay import __version__, cli
from kvassay.cli import cases as list_module
from kvassay.cli import explain as explain_module
from kvassay.cli import oracle as oracle_module
from kvassay.cli import run as run_module
from kvassay.cli import selftest as selftest_module
from kvassay.core.expect import parse
from kvassay.core.model import Step
from kvassay.corpus import load
from kvassay.corpus.data import contracts, root
from kvassay.corpus.ops import ops
from kvassay.corpus.reconcile import Figure
from kvassay.corpus.registries import Capability, capabilities
from kvassay.corpus.schemas import problem
from kvassay.faults.selftest import Matrix, Row
from kvassay.monitors import identity, keeping, residency, runtime
from rich.console import Console

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands see the corpus of seven cases."""
    for module in (run_module, list_module, explain_module):
        monkeypatch.setattr(module, "load", miniature.corpus)


@pytest.fixture
def kvassay(capsys: pytest.CaptureFixture[str], small: None) -> Callable[..., tuple[int, str, str]]:
    def command(*arguments: str | Path) -> tuple[int, str, str]:
        code = cli.status([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return command


Command = Callable[..., tuple[int, str, str]]


def run_it(kvassay: Command, engine: str, *more: str | Path) -> tuple[int, str, str]:
    return kvassay("run", "--adapter", f"miniature:{engine}", "--in-process", *more)


def in_shell(*arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(str(ROOT / part) for part in ("conformance", "reference", "kernels", "tests"))
    env = {**os.environ, "PYTHONPATH": path, "COLUMNS": "200", **more.pop("env", {})}
    command = [sys.executable, "-m", "kvassay", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=env, timeout=60, **more)


class TestRun:
    @pytest.mark.parametrize(
        ("engine", "code", "last"),
        [
            ("Good", 0, "all required cases pass in "),
            ("Nan", 1, "1 case failed in "),
            ("Drift", 1, "4 cases did not pass: 2 failed, 2 warnings in "),
            ("Shy", 1, "1 case failed in "),
        ],
    )
    def test_exit_status_and_conclusion(self, kvassay: Command, engine: str, code: int, last: str) -> None:
        status, out, err = run_it(kvassay, engine)
        assert (status, err) == (code, "")
        assert out.splitlines()[-1].startswith(last)

    def test_engines_side_by_side_say_what_one_says(self, kvassay: Command) -> None:
        one, two = (kvassay("run", "--adapter", "miniature:Drift", "--jobs", jobs) for jobs in ("1", "2"))
        assert one[0] == two[0] == 1
        assert one[1].rpartition(" in ")[0] == two[1].rpartition(" in ")[0]

    def test_a_failing_case_tells_everything(self, kvassay: Command) -> None:
        _, out, _ = run_it(kvassay, "Drift", "--case", "attention/merge/empty-and-full")
        assert "worst 1e+03 times it" in out
        assert "differs   out[1, 0]: expected 3, returned 3.00999999" in out
        assert "requires  ATT-901 (must): Merging with an empty state changes nothing." in out
        repeat = "kvassay run --adapter miniature:Drift --in-process --case attention/merge/empty-and-full"
        assert f"  repeat    {repeat}\n" in out

    def test_the_repeating_line_repeats(self, kvassay: Command) -> None:
        _, out, _ = run_it(kvassay, "Nan")
        (line,) = [line for line in out.splitlines() if line.strip().startswith("repeat")]
        code, again, _ = kvassay(*line.split()[2:])
        assert code == 1
        assert "attention/merge/two-empty" in again

    def test_strict_counts_a_should(self, kvassay: Command) -> None:
        polite = ("--case", "attention/merge/polite")
        assert run_it(kvassay, "Drift", *polite)[0] == 0
        assert run_it(kvassay, "Drift", *polite, "--strict")[0] == 1

    def test_a_provisional_case_never_counts(self, kvassay: Command) -> None:
        code, out, _ = run_it(kvassay, "Drift", "--case", "attention/merge/next-year", "--strict")
        assert code == 0
        assert "provisional: reported, not counted" in out

    def test_verbose_names_every_case(self, kvassay: Command) -> None:
        _, out, _ = run_it(kvassay, "Good", "-v")
        assert all(case.id in out for case in miniature.CASES)
        assert "does not claim the profile keys" in out

    def test_fail_fast_stops(self, kvassay: Command) -> None:
        _, out, _ = run_it(kvassay, "Drift", "--fail-fast", "--json")
        assert len(json.loads(out)["results"]) == 1

    def test_the_report_names_adapter_and_selection(self, kvassay: Command) -> None:
        arguments = ("--contract", "attention", "--case", "attention/*/order", "--case", "*/polite", "-k", "Given")
        _, out, _ = run_it(kvassay, "Drift", *arguments, "--json")
        document = json.loads(out)
        assert document["adapter"] == "miniature:Drift"
        chosen = {"case": ["attention/*/order", "*/polite"], "contract": ["attention"], "keyword": ["Given"]}
        assert document["selection"] == chosen
        assert document["environment"]["kvassay"] == __version__
        assert "adapter   miniature:Drift\n" in run_it(kvassay, "Drift")[1]

    def test_all_reports_are_written(self, kvassay: Command, tmp_path: Path) -> None:
        names = {"--html": "a/page.html", "--json-report": "b/report.json", "--junit": "c/junit.xml"}
        arguments = [part for option, name in names.items() for part in (option, tmp_path / name)]
        assert run_it(kvassay, "Nan", *arguments)[0] == 1
        assert (tmp_path / "a/page.html").read_text().startswith("<!doctype html>")
        assert (tmp_path / "c/junit.xml").read_text().startswith("<?xml")
        document = json.loads((tmp_path / "b/report.json").read_text())
        assert problem(document, "urn:kvassay:report") is None
        assert kvassay("validate", tmp_path / "b/report.json")[:2] == (
            0,
            f"{tmp_path}/b/report.json: a valid document (report)\n",
        )
        code, out, _ = kvassay("report", tmp_path / "b/report.json", "--html", tmp_path / "again.html")
        assert code == 1
        assert "attention/merge/two-empty" in out
        assert (tmp_path / "again.html").read_text() == (tmp_path / "a/page.html").read_text()

    def test_json_is_all_that_is_printed(self, kvassay: Command) -> None:
        code, out, err = run_it(kvassay, "Drift", "--json")
        assert (code, err) == (1, "")
        assert problem(json.loads(out), "urn:kvassay:report") is None

    def test_nothing_that_applies_is_an_error(self, kvassay: Command) -> None:
        code, out, _ = run_it(kvassay, "Good", "--contract", "identity")
        assert code == 2
        assert "nothing was judged" in out

    def test_hostile_text_stays_text(self, kvassay: Command) -> None:
        code, out, _ = run_it(kvassay, "Hostile")
        assert code == 1
        assert "[bold]x[/bold]" in out
        assert "\x1b" not in out
        assert "\x07" not in out

    def test_a_crash_costs_one_verdict_each(self, kvassay: Command) -> None:
        code, out, _ = kvassay("run", "--adapter", "miniature:Crash", "--json")
        assert code == 1
        assert json.loads(out)["counts"] == {"error": 6, "not-applicable": 1}


class TestWaivers:
    WAIVER = """[[waiver]]
case = "attention/merge/two-empty"
category = "bug"
link = "https://example.org/issues/1"
expires = {expires}
verdict = "{verdict}"
reason = "Mended in the next release."
"""

    @pytest.mark.parametrize(
        ("engine", "expires", "verdict", "code", "told"),
        [
            ("Nan", "2999-01-01", "fail", 0, "all required cases pass"),
            ("Nan", "2020-01-01", "fail", 1, "expired on 2020-01-01"),
            ("Nan", "2999-01-01", "error", 1, "1 case failed"),
            ("Good", "2999-01-01", "fail", 1, "passes, although a waiver expects fail"),
        ],
    )
    def test_a_waiver_covers_its_verdict(
        self, kvassay: Command, tmp_path: Path, engine: str, expires: str, verdict: str, code: int, told: str
    ) -> None:
        path = tmp_path / "waivers.toml"
        path.write_text(self.WAIVER.format(expires=expires, verdict=verdict))
        status, out, _ = run_it(kvassay, engine, "--waivers", path)
        assert status == code
        assert told in out
        assert run_it(kvassay, engine, "--waivers", path, "--case", "attention/merge/order")[0] == (
            expires == "2020-01-01"
        )

    def test_a_bad_file_is_one_line(self, kvassay: Command, tmp_path: Path) -> None:
        path = tmp_path / "waivers.toml"
        path.write_text("[[waiver]]\ncase = 3\n")
        code, out, err = run_it(kvassay, "Good", "--waivers", path)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert f"{path}: /waiver/0" in err


class TestList:
    def test_titles(self, kvassay: Command) -> None:
        code, out, _ = kvassay("list", "--contract", "attention")
        assert code == 0
        assert "attention/merge/polite" in out
        assert "(should)" in out
        assert "(provisional)" in out
        assert out.endswith("6 cases\n")

    def test_what_was_asked_for_and_what_each_case_shows(self, kvassay: Command) -> None:
        _, out, _ = kvassay("list", "--requirement", "ATT-901", "--profile", "merge")
        requirement, profile, *cases = out.splitlines()
        assert requirement.startswith("ATT-901  ")
        assert requirement.endswith("Merging with an empty state changes nothing.")
        assert profile == "merge  Merges partial states."
        (shown,) = [line for line in cases if line.startswith("attention/merge/order ")]
        assert shown.endswith("when it is judged, then it passes")
        assert "ATT-901 ATT-902  " in shown

    def test_a_line_of_a_terminal_is_cut_and_others_are_whole(self, monkeypatch: pytest.MonkeyPatch) -> None:
        long = replace(miniature.CASES[0], given="Given " + "rows " * 60)
        monkeypatch.setattr(list_module, "load", lambda: miniature.corpus((long,)))
        told = {}
        for terminal in (True, False):
            stream = io.StringIO()
            console = Console(file=stream, force_terminal=terminal, width=80, no_color=True, color_system=None)
            monkeypatch.setattr(list_module, "out", lambda console=console: console)
            list_module.command.main(["--case", long.id], standalone_mode=False)
            told[terminal] = next(line for line in stream.getvalue().splitlines() if line.startswith(long.id))
        assert len(told[True]) == 80
        assert told[True].endswith("…")
        assert told[False].endswith("rows rows")

    def test_json(self, kvassay: Command) -> None:
        _, out, _ = kvassay("list", "--kind", "relation", "--json")
        (row,) = json.loads(out)
        assert row["id"] == "attention/merge/order"
        assert row["requirements"] == ["ATT-901", "ATT-902"]
        assert row["ops"] == ["attention.merge"]


class TestErrors:
    @pytest.mark.parametrize(
        ("arguments", "code", "told"),
        [
            (["run", "--adapter", "reference", "--case", "no/such"], 2, "no case 'no/such'"),
            (["run", "--adapter", "miniature:Good", "--case", "attention/merge/too-empty"], 2, "did you mean"),
            (["run", "--adapter", "no-such"], 3, "unknown adapter"),
            (["run", "--adapter", "miniature:Unstartable"], 3, "no such device"),
            (["run", "--adapter", "miniature:Missing"], 3, "Missing"),
            (["run", "--adapter", "cmd:/no/such/program"], 3, "/no/such/program"),
            (["run"], 2, "--adapter"),
            (
                ["run", "--adapter", "miniature:Good", "--in-process", "--html", "/proc/no/file.html"],
                2,
                "/proc/no/file.html",
            ),
            (["run", "--adapter", "miniature:Good", "--timeout-scale", "-1"], 2, "-1"),
            (["run", "--adapter", "miniature:Good", "--jobs", "0"], 2, "--jobs"),
            (
                ["run", "--adapter", "miniature:Good", "--jobs", "2", "--in-process"],
                2,
                "--in-process is for one engine",
            ),
            (
                ["run", "--adapter", "miniature:Good", "--jobs", "2", "--trace", "t.jsonl"],
                2,
                "--trace is for one engine",
            ),
            (["list", "--kind", "novel"], 2, "novel"),
            (["list", "-k", "zzz"], 2, "no case"),
            (["explain", "ATT-9001"], 2, "did you mean 'ATT-901'"),
            (["oracle", "no-such"], 2, "no contract 'no-such'"),
            (["report", "/no/such.json"], 2, "/no/such.json"),
            (["nonsense"], 2, "nonsense"),
        ],
    )
    def test_one_line_and_a_status(self, kvassay: Command, arguments: list[str], code: int, told: str) -> None:
        status, out, err = kvassay(*arguments)
        assert (status, out) == (code, "")
        first, *rest = err.splitlines()
        assert first.startswith("kvassay: ")
        assert told in first
        assert all(line.startswith(("try kvassay", "  ")) for line in rest)
        assert "Traceback" not in first


class TestValidate:
    @pytest.mark.parametrize(
        ("name", "content", "told"),
        [
            ("a.json", b"{", "not JSON: "),
            ("a.json", b"\xff\xfe\x00\x01", "not UTF-8"),
            ("a.json", b"[" * 200_000, "nested"),
            ("a.json", b'{"a": 1, "a": 2}', "'a' stands twice"),
            ("a.json", b'{"format": "kvassay-report-v1", "seed": NaN}', "NaN"),
            ("a.json", b'{"format": "kvassay-report-v1"}', "schema report"),
            ("a.json", b'{"colour": "blue"}', "like no document"),
            ("a.json", b"[1, 2]", "like no document"),
            ("a.json", b"", "not JSON"),
            ("a.json", b'"\\ud800"', "like no document"),
            ("a.toml", b"[[waiver]]\ncase = 'a'\n", "/waiver/0"),
            ("a.json", b"\xef\xbb\xbf{}", "begins with a byte order mark; JSON has none"),
            ("a.toml", b"\x00", "not TOML"),
            ("a.toml", b"\xef\xbb\xbfa = 1", "not TOML: begins with a byte order mark"),
        ],
    )
    def test_a_bad_document_is_one_line(
        self, kvassay: Command, tmp_path: Path, name: str, content: bytes, told: str
    ) -> None:
        path = tmp_path / name
        path.write_bytes(content)
        code, out, err = kvassay("validate", path)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert err.startswith(f"kvassay: {path}: ")
        assert told in err

    @pytest.mark.parametrize("path", ["/no/such/file.json", "/", "/proc/self/mem", "/dev/zero"])
    def test_an_unreadable_file_is_one_line(self, kvassay: Command, path: str) -> None:
        code, out, err = kvassay("validate", path)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert err.startswith(f"kvassay: {path}: ")

    def test_the_pointer_names_the_place(self, kvassay: Command, tmp_path: Path) -> None:
        _, out, _ = run_it(kvassay, "Nan", "--json")
        document = json.loads(out)
        document["results"][1]["verdict"] = "perhaps"
        path = tmp_path / "broken.json"
        path.write_text(json.dumps(document))
        code, _, err = kvassay("validate", path)
        assert code == 2
        assert f"{path}: /results/1/verdict: " in err

    def test_good_and_bad_files_together(self, kvassay: Command, tmp_path: Path) -> None:
        good, bad = tmp_path / "good.json", tmp_path / "bad.json"
        good.write_text(run_it(kvassay, "Good", "--json")[1])
        bad.write_text("{}")
        code, out, err = kvassay("validate", good, bad)
        assert (code, out.count("\n"), err.count("\n")) == (2, 1, 1)

    def test_the_kinds_of_document_are_named(self, kvassay: Command, tmp_path: Path) -> None:
        path = tmp_path / "a.json"
        path.write_text('{"colour": "blue"}')
        told = kvassay("validate", path)[2]
        for name in ("identity/manifest", "report", "waivers", "registry/profiles"):
            assert f" {name}," in told
            code, _, err = kvassay("validate", "--schema", name, path)
            assert code == 2
            assert "no schema" not in err

    @pytest.mark.parametrize(
        ("told", "near"), [("kvassay-manifst-v1", "; did you mean 'kvassay-manifest-v1'?"), ("zzz", "")]
    )
    def test_an_unknown_format_names_those_that_are(
        self, kvassay: Command, tmp_path: Path, told: str, near: str
    ) -> None:
        path = tmp_path / "a.json"
        path.write_text(json.dumps({"format": told, "cases": [], "digest": ""}))
        code, _, err = kvassay("validate", path)
        assert (code, err.count("\n")) == (2, 1)
        assert err.startswith(f"kvassay: {path}: /format: no format '{told}'{near} (known: ")
        assert " kvassay-fixture-v1, " in err
        assert "(schema case)" in kvassay("validate", "--schema", "case", path)[2]

    def test_standard_input_is_read(self, kvassay: Command, monkeypatch: pytest.MonkeyPatch) -> None:
        def given(content: bytes) -> tuple[int, str, str]:
            monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
            return kvassay("validate", "-")

        report = run_it(kvassay, "Good", "--json")[1].encode()
        assert given(report) == (0, "-: a valid document (report)\n", "")
        assert given(report[:-3])[2].startswith("kvassay: -: not JSON: ")
        assert given(b"")[2] == "kvassay: -: not JSON: the file is empty\n"
        waiver = {"case": "a/b/c", "category": "bug", "link": "https://example.org/1", "expires": "2099-01-01"}
        waiver |= {"verdict": "fail", "reason": "It is being mended."}
        told = given(json.dumps({"waiver": [waiver]}).encode())
        assert told == (2, "", "kvassay: -: waivers are TOML, which is read from files alone\n")

    def test_a_request_is_checked_against_its_op(self, kvassay: Command, tmp_path: Path) -> None:
        path = tmp_path / "a.json"
        path.write_text('{"colour": "blue"}')
        assert kvassay("validate", "--schema", "op:attention.merge", path)[0] == 2

    def test_the_schema_can_be_named(self, kvassay: Command, tmp_path: Path) -> None:
        path = tmp_path / "a.json"
        path.write_text("{}")
        assert "(schema engine)" in kvassay("validate", "--schema", "engine", path)[2]
        assert kvassay("validate", "--schema", "nonsense", path)[0] == 2
        assert "no schema 'release/regstry'; did you mean 'release/registry'?" in kvassay(
            "validate", "--schema", "release/regstry", path
        )[2]  # fmt: skip

    def test_a_huge_number_does_not_hide_what_is_wrong_with_it(self, kvassay: Command, tmp_path: Path) -> None:
        document = json.loads((ROOT / "examples" / "registry.json").read_text(encoding="utf-8"))
        document["sources"][0]["year"] = 10**400
        path = tmp_path / "a.json"
        path.write_text(json.dumps(document))
        code, _, err = kvassay("validate", path)
        assert code == 2
        assert "is greater than the maximum of" in err

    def test_the_shipped_registries_are_valid(self, kvassay: Command) -> None:
        names = ("reasons", "profiles", "capabilities")
        code, out, _ = kvassay("validate", *(ROOT / "schemas" / "identity" / f"{name}.json" for name in names))
        assert code == 0
        assert [line.rpartition("(")[2] for line in out.splitlines()] == [f"registry/{name})" for name in names]


class TestExplain:
    @pytest.mark.parametrize(
        ("name", "kind", "told"),
        [
            ("o-lse-v1", "state schema", ["Base of the logarithm."]),
            ("ATT-901", "requirement", ["Merging with an empty state changes nothing.", "attention/merge/two-empty"]),
            ("SHAPE_MISMATCH", "reason", ["Extents differ.", "Compare them.", "attention/merge/mixed-shapes"]),
            ("attention/merge/order", "case", ["2. attention.merge", "close(a, b)", "ATT-902"]),
            ("attention.merge", "op", ["states", "attention/merge/polite"]),
            ("merge", "profile", ["Merges partial states."]),
            ("fences", "capability", ["Whether it fences."]),
            ("attention", "contract", ["ATT-903", "6 cases"]),
            ("CREDIT_MINTED", "rule", ["runtime  Credits are free that something still holds."]),
            (
                "ROOM_REFUSED",
                "rule",
                ["runtime    A request was turned", "residency  A slot that nobody holds is not given"],
            ),
            ("TRUNCATED", "rule", ["traces  The end of the trace is missing"]),
            (
                "CREDIT_PRESSURE",
                "word",
                ["runtime.reserve: response.reason", "Why it is turned away.", "DEADLINE, CREDIT"],
            ),
            ("TRANSFER_FAILED", "word", ["runtime.complete: response.fallbacks[].reason"]),
            (
                "POSTPONE_FOR_EXACT_RETRY",
                "word",
                ["quality.fallback: response.action", "the retry ends within the slack"],
            ),
        ],
    )
    def test_every_kind_of_id(self, kvassay: Command, name: str, kind: str, told: list[str]) -> None:
        code, out, _ = kvassay("explain", name)
        assert code == 0
        assert out.startswith(f"{kind} {name}\n")
        assert all(text in out for text in told)
        data = json.loads(kvassay("explain", name, "--json")[1])
        assert (data["kind"], data["id"]) == (kind, name)

    def test_many_cases_are_folded_and_json_has_them_all(
        self, kvassay: Command, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        many = tuple(miniature.case(f"attention/many/case-{index}", *miniature.CASES[0].steps) for index in range(25))
        monkeypatch.setattr(explain_module, "load", lambda: miniature.corpus(many))
        _, out, _ = kvassay("explain", "attention.merge")
        assert out.count("attention/many/case-") == 10
        assert "… 15 more; kvassay explain attention.merge --json" in out
        assert "… 15 more; kvassay list --requirement ATT-901" in kvassay("explain", "ATT-901")[1]
        assert len(json.loads(kvassay("explain", "attention.merge", "--json")[1])["cases"]) == 25

    def test_cases_that_are_shown_come_from_every_group(self) -> None:
        many = {f"attention/{group}/case-{i}": "" for group in "abc" for i in range(9)} | {"attention/d/only": ""}
        shown = list(explain_module.spread(many, 6))
        assert [name.split("/")[1] for name in shown] == ["a", "a", "b", "b", "c", "d"]
        assert shown == [name for name in many if name in shown], "in their own order"
        assert list(explain_module.spread({"attention/a/one": ""}, 6)) == ["attention/a/one"]

    def test_an_op_tells_the_members_of_its_objects(self, kvassay: Command) -> None:
        request = json.loads(kvassay("explain", "identity.put", "--json")[1])["request"]
        assert list(request)[:2] == ["record", "record.model"], "the record is a schema of its own"
        assert request["record.cache_salt"].endswith(" (optional)")
        assert not request["record.tokens"].endswith(" (optional)")
        assert not [name for name in request if name.startswith("data.")], "a tensor is a tensor"
        assert "mask.window" in json.loads(kvassay("explain", "attention.partial", "--json")[1])["request"]
        assert "states[].schema" in json.loads(kvassay("explain", "attention.merge", "--json")[1])["request"]

    @pytest.mark.parametrize(
        ("name", "why"),
        [
            ("control.hold", "none of the corpus: a control is there for cases of your own"),
            ("identity.put", "none calls it"),
            ("merge.rounds", "none asks for it: reports tell it\n"),
            ("runtime.rounds", "none asks for it: reports tell it, and the monitor of runtime may judge calls by it"),
        ],
    )
    def test_what_no_case_names_says_so(
        self, kvassay: Command, monkeypatch: pytest.MonkeyPatch, name: str, why: str
    ) -> None:
        made = {
            f"{contract}.rounds": Capability(f"{contract}.rounds", "It rounds.", (True, False), False, contract)
            for contract in ("merge", "runtime")
        }
        corpus = replace(miniature.corpus(miniature.CASES[:1]), capabilities=made)
        monkeypatch.setattr(explain_module, "load", lambda: corpus)
        assert f"no case      {why}" in kvassay("explain", name)[1]
        assert "no case " not in kvassay("explain", "attention.merge")[1]

    def test_a_title_that_repeats_the_id_is_not_shown(self, kvassay: Command) -> None:
        assert "two empty" not in kvassay("explain", "attention/merge/two-empty")[1].partition("given")[0]
        assert "two empty" not in kvassay("list")[1]

    def test_steps_are_told_apart(self, kvassay: Command, monkeypatch: pytest.MonkeyPatch) -> None:
        steps = [Step("identity.key", {"record": {"salt": salt}}, parse({"accepts": True})) for salt in "ab"]
        case = miniature.case("identity/keys/salt", *steps, requirements=("IDN-901",))
        monkeypatch.setattr(explain_module, "load", lambda: miniature.corpus((case,)))
        assert "against step 1, /record/salt: b, not a\n" in kvassay("explain", case.id)[1]

    def test_every_rule_of_a_monitor_is_explained_with_its_requirements(self) -> None:
        enums = (identity.Rule, residency.Rule, keeping.Fault, runtime.Rule)
        corpus = load()
        for name in (one for enum in enums for one in enum):
            told = explain_module.rule(corpus, name, {})
            assert name.meaning.endswith("."), name
            assert name.meaning in told["meaning"].values(), name
            assert told["requirements"], name
        assert list(explain_module.rule(corpus, "CREDIT_MINTED", {})["requirements"]) == ["RUN-026", "RUN-027"]

    def test_a_mistyped_rule_is_near_to_its_word(self, kvassay: Command) -> None:
        assert kvassay("explain", "CREDIT_MINTD")[2].endswith("did you mean 'CREDIT_MINTED'?\n")

    def test_a_word_tells_requirements_and_cases_that_name_it(self) -> None:
        told = explain_module.word(load(), "TRANSFER_FAILED", {})
        assert list(told["requirements"]) == ["RUN-030"]
        assert told["cases"]
        assert all(name.startswith("runtime/") for name in told["cases"])

    @pytest.mark.parametrize(
        ("name", "near"),
        [("identity.block", None), ("attention.merg", "attention.merge"), ("identity.got", "identity.get")],
    )
    def test_only_what_may_be_meant_is_proposed(self, name: str, near: str | None) -> None:
        names = ["identity.lookup", "identity.field.tokens", "identity.get", "attention.merge"]
        assert explain_module.nearest(name, names) == near


class TestSelftest:
    @staticmethod
    def row(**changes: Any) -> Row:
        fields: dict[str, Any] = {
            "contract": "attention",
            "name": "NanFromNothing",
            "summary": "Divides by the mass of nothing.",
            "requirement": "ATT-901",
            "killed_by": {"attention/merge/two-empty": "fail"},
            "also": (),
            "on_target": True,
            "passed": 5,
            "not_applicable": 0,
            "ratio": None,
            "equivalent": "",
            "seconds": 0.1,
        }
        return Row(**(fields | changes))

    @pytest.mark.parametrize(
        ("changes", "told"),
        [
            ({}, "killed      attention/NanFromNothing  ATT-901"),
            ({"ratio": 12.34}, "12.3 times the bound"),
            ({"killed_by": {"attention/merge/two-empty": "error"}}, "SURVIVES"),
            ({"killed_by": {"attention/merge/two-empty": "pass"}}, "pass            attention/merge/two-empty"),
            ({"equivalent": "proof"}, "equivalent"),
            ({"equivalent": "proof", "also": ("a/b/c",)}, "NOT EQUAL"),
            ({"requirement": "", "killed_by": {}}, "correct"),
            ({"requirement": "", "killed_by": {}, "also": ("a/b/c",)}, "blamed by: a/b/c"),
        ],
    )
    def test_each_row_says_what_became_of_the_engine(self, changes: dict[str, Any], told: str) -> None:
        shown = [line.plain for line in selftest_module.lines(self.row(**changes), verbose=False)]
        assert told in "\n".join(shown)

    @pytest.mark.parametrize(
        ("rows", "without", "code", "told"),
        [
            (
                [{}, {"requirement": "", "killed_by": {}}],
                (),
                0,
                "1 of 1 faults killed, 1 of 1 correct engines blamed for",
            ),
            ([{"killed_by": {"x/y/z": "pass"}}], (), 1, "0 of 1 faults killed"),
            ([{}], ("ATT-902",), 1, "no fault is seeded against ATT-902"),
        ],
    )
    def test_the_matrix_decides_the_status(
        self,
        kvassay: Command,
        monkeypatch: pytest.MonkeyPatch,
        tmp_path: Path,
        rows: list[dict[str, Any]],
        without: tuple[str, ...],
        code: int,
        told: str,
    ) -> None:
        matrix = Matrix(tuple(self.row(**one) for one in rows), without, (), 1.0)
        monkeypatch.setattr(selftest_module, "run_selftest", lambda *_, **__: matrix)
        status, out, _ = kvassay("selftest", "--output", tmp_path / "matrix.json")
        assert status == code
        assert told in out
        assert json.loads((tmp_path / "matrix.json").read_text())["ok"] is (code == 0)
        assert json.loads(kvassay("selftest", "--json")[1])["rows"][0]["name"] == "NanFromNothing"

    def test_an_unknown_contract_is_refused_before_anything_runs(self, kvassay: Command) -> None:
        code, out, err = kvassay("selftest", "--contract", "attentoin")
        assert (code, out, err.count("\n")) == (2, "", 1)


class TestOracle:
    FIGURES = (Figure("rows", 4096, 4096), Figure("wire_ms", 1.465, 1.46484), Figure("blocks", [1, 2], [1, 3]))

    def test_a_figure_that_does_not_come_out_fails(
        self, kvassay: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setattr(oracle_module, "reconciliation", lambda contract: list(self.FIGURES))
        code, out, _ = kvassay("oracle", "identity")
        assert code == 1
        assert [line.split()[-1] for line in out.splitlines()] == ["derived", "ok", "ok", "DIFFERS"]
        assert kvassay("oracle", "identity", "--output", tmp_path / "t.txt")[:2] == (1, "")
        assert (tmp_path / "t.txt").read_text() == out
        assert kvassay("oracle", "identity", "--output", tmp_path / "new" / "t.txt")[:2] == (1, "")
        assert (tmp_path / "new" / "t.txt").read_text() == out, "as with every command, its folder is made"
        assert [row["ok"] for row in json.loads(kvassay("oracle", "identity", "--json")[1])] == [True, True, False]

    def test_several_contracts_or_all_are_told_apart(self, kvassay: Command, monkeypatch: pytest.MonkeyPatch) -> None:
        figures = {name: list(self.FIGURES[:1]) for name in contracts()}
        assert kvassay("oracle", "--all")[0] == 0, "the shipped figures agree"
        monkeypatch.setattr(oracle_module, "reconciliation", lambda contract: figures[contract])
        code, out, _ = kvassay("oracle", *reversed(contracts()))
        assert code == 0
        assert [line for line in out.splitlines() if line in contracts()] == list(reversed(contracts()))
        figures[contracts()[-1]] = list(self.FIGURES)
        assert kvassay("oracle", "--all")[0] == 1
        found = json.loads(kvassay("oracle", "--all", "--json")[1])
        assert {row["contract"] for row in found} == set(contracts())

    def test_no_contract_is_named(self, kvassay: Command) -> None:
        assert kvassay("oracle")[0] == 2
        assert kvassay("oracle", "identity", "--all")[0] == 2


class TestInitAdapter:
    def test_a_skeleton_is_written_once(self, kvassay: Command, tmp_path: Path) -> None:
        code, out, _ = kvassay("init-adapter", tmp_path / "mine")
        assert code == 0
        assert all(Path(line.removeprefix("wrote ")).is_file() for line in out.splitlines())
        code, out, err = kvassay("init-adapter", tmp_path / "mine")
        assert (code, out, err.count("\n")) == (2, "", 1)

    def test_a_skeleton_of_some_contracts_has_no_ops_of_others(self, kvassay: Command, tmp_path: Path) -> None:
        assert kvassay("init-adapter", "--contract", "kvevents", "--contract", "memory", tmp_path / "few")[0] == 0
        assert kvassay("init-adapter", tmp_path / "all")[0] == 0
        few, whole = ((tmp_path / name / "adapter.py").read_text() for name in ("few", "all"))
        for op in ops().values():
            method = f"# def {op.method}(self, request):"
            assert method in whole
            assert (method in few) is (op.contract in ("kvevents", "memory", "control")), op
        for one in capabilities(root()).values():
            assert (f'# "{one.name}": ' in few) is (one.contract in ("kvevents", "memory", "common")), one

    def test_an_unknown_contract_writes_nothing(self, kvassay: Command, tmp_path: Path) -> None:
        code, out, err = kvassay("init-adapter", "--contract", "memroy", tmp_path / "mine")
        assert (code, out, err) == (2, "", "kvassay: no contract 'memroy'; did you mean 'memory'?\n")
        code, _, err = kvassay("init-adapter", "--contract", "memory", "--language", "javascript", tmp_path / "mine")
        assert (code, "--contract" in err) == (2, True)
        assert not (tmp_path / "mine").exists()


class TestShell:
    def test_version_and_help(self) -> None:
        assert in_shell("--version").stdout == f"kvassay {__version__}\n"
        shown = in_shell("--help").stdout
        assert all(name in shown for name in cli.COMMANDS)
        assert "Exit status" in shown

    @pytest.mark.parametrize("name", sorted(cli.COMMANDS))
    def test_every_command_has_help_with_an_example(self, name: str) -> None:
        shown = in_shell(name, "--help")
        assert shown.returncode == 0
        assert f"kvassay {name} " in shown.stdout

    @pytest.mark.parametrize("command", ["list", "list --json", "explain attention"])
    def test_a_closed_pipe_ends_quietly(self, command: str) -> None:
        script = f'"{sys.executable}" -m kvassay {command} | head -c 1 >/dev/null; exit ${{PIPESTATUS[0]}}'
        path = os.pathsep.join(str(ROOT / part) for part in ("conformance", "reference", "kernels"))
        env = {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env=env, timeout=60)
        assert done.stderr == ""
        assert done.returncode in (0, 141)  # 0 where everything was written before the reader left

    @pytest.mark.parametrize(("env", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)])
    def test_a_terminal_gets_a_bar_and_colour(self, env: dict[str, str], coloured: bool) -> None:
        script = (
            "import kvassay.cli, kvassay.cli.run as run, miniature\n"
            "run.load = miniature.corpus\n"
            "kvassay.cli.main(['run', '--adapter', 'miniature:Nan', '--in-process'])"
        )
        path = os.pathsep.join(str(ROOT / part) for part in ("conformance", "reference", "kernels", "tests"))
        inner, outer = os.openpty()
        clean = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "FORCE_COLOR", "COLORTERM")}
        full = {**clean, "PYTHONPATH": path, "TERM": "xterm-256color", "COLUMNS": "100", **env}
        process = subprocess.Popen([sys.executable, "-c", script], env=full, stdout=outer, stderr=outer)
        os.close(outer)
        shown = b""
        with contextlib.suppress(OSError):  # the end of a pseudo-terminal is an error on Linux
            while part := os.read(inner, 4096):
                shown += part
        os.close(inner)
        assert process.wait(timeout=60) == 1
        assert (b"\x1b[1;31mfail" in shown) is coloured
        assert (b"7/7" in shown) is (env != {"TERM": "dumb"})
        assert b"attention/merge/two-empty" in shown

    def test_a_bug_is_one_line(self, monkeypatch: pytest.MonkeyPatch, kvassay: Command) -> None:
        def broken() -> Iterator[None]:
            raise ZeroDivisionError("oops")

        monkeypatch.setattr(list_module, "load", broken)
        code, _, err = kvassay("list")
        assert code == 2
        assert err.startswith("kvassay: internal error: ZeroDivisionError: oops\n")

    def test_an_interrupt_ends_with_130(self) -> None:
        path = os.pathsep.join(str(ROOT / part) for part in ("conformance", "reference", "kernels"))
        script = (
            "import sys, time, kvassay.cli, kvassay.cli.cases as c\n"
            "c.load = lambda: (print('on', flush=True), time.sleep(60))\n"
            "kvassay.cli.main(['list'])"
        )
        env = {**os.environ, "PYTHONPATH": path}
        process = subprocess.Popen([sys.executable, "-c", script], env=env, stdout=-1, stderr=-1, text=True)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=20)
        assert (process.returncode, err.strip()) == (130, "kvassay: interrupted")
