"""The pytest plugin: one item per case from any folder, with -k, --lf, -n and --junitxml, and no cost when unused."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).resolve().parents[1]
PATH = os.pathsep.join(str(ROOT / part) for part in ("conformance", "reference", "kernels", "tests"))
SMALL = """
import kvassay.corpus
import miniature
kvassay.corpus.load = miniature.corpus
"""


@pytest.fixture
def outer(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A folder without tests in which the plugin sees the corpus of seven cases."""
    pytester.makepyfile(small=SMALL)
    monkeypatch.setenv("PYTHONPATH", f"{PATH}{os.pathsep}{pytester.path}")
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    return pytester


def judge(outer: pytest.Pytester, engine: str, *arguments: str) -> pytest.RunResult:
    loaded = [] if _installed() else ["-p", "kvassay.pytest_plugin"]
    adapter = ["--kvassay-adapter", f"miniature:{engine}"]
    return outer.runpytest_subprocess("-p", "small", *loaded, *adapter, "-ra", *arguments)


def _installed() -> bool:
    from importlib.metadata import entry_points

    return any(entry.value == "kvassay.pytest_plugin" for entry in entry_points(group="pytest11"))


def test_every_case_is_an_item(outer: pytest.Pytester) -> None:
    result = judge(outer, "Good", "-v")
    result.assert_outcomes(passed=6, skipped=1)
    result.stdout.fnmatch_lines(
        [
            "kvassay: adapter miniature:Good, 7 cases of corpus edition 2030.1, abababababab",
            "*collected 7 items",
            "kvassay::attention/merge/empty-and-full PASSED*",
            "SKIPPED [[]1[]] kvassay: not applicable: the engine does not claim the profile keys",
        ]
    )
    assert result.ret == 0


def test_a_failure_is_told_as_in_the_terminal(outer: pytest.Pytester) -> None:
    result = judge(outer, "Drift")
    result.assert_outcomes(failed=2, passed=2, skipped=1, xfailed=2)
    result.stdout.fnmatch_lines(
        [
            "fail: attention/merge/empty-and-full",
            "finding   step 1, attention.merge: *",
            "differs   out[[]1, 0]: expected 3, returned 3.00999999",
            "requires  ATT-901 (must): Merging with an empty state changes nothing.",
            "repeat    kvassay run --adapter miniature:Drift --case attention/merge/empty-and-full",
            "XFAIL kvassay::attention/merge/polite - SHOULD, fail: *",
            "XFAIL kvassay::attention/merge/next-year - provisional, fail: *",
            "FAILED kvassay::attention/merge/two-empty*",
        ]
    )
    assert "Traceback" not in result.stdout.str()
    assert result.ret == 1


def test_strict_counts_a_should(outer: pytest.Pytester) -> None:
    judge(outer, "Drift", "--kvassay-strict").assert_outcomes(failed=3, passed=2, skipped=1, xfailed=1)


@pytest.mark.parametrize(
    ("arguments", "passed"),
    [
        (["-k", "empty"], 2),
        (["-k", "ATT-902"], 1),
        (["-k", "attention and not empty"], 4),
        (["--kvassay-case", "attention/merge/o*"], 1),
        (["--kvassay-profile", "merge"], 6),
        (["kvassay::attention/merge/two-empty", "kvassay::attention/merge/order"], 2),
    ],
)
def test_cases_are_selected(outer: pytest.Pytester, arguments: list[str], passed: int) -> None:
    judge(outer, "Good", *arguments).assert_outcomes(passed=passed, deselected=7 - passed if "-k" in arguments else 0)


@pytest.mark.parametrize("workers", ["2"])
def test_cases_are_distributed(outer: pytest.Pytester, workers: str) -> None:
    result = judge(outer, "Drift", "-n", workers)
    result.assert_outcomes(failed=2, passed=2, skipped=1, xfailed=2)
    result.stdout.fnmatch_lines(["repeat    kvassay run --adapter miniature:Drift --case *"])
    picked = judge(outer, "Good", "-n", workers, "kvassay::attention/merge/order")
    picked.assert_outcomes(passed=1)


def test_the_last_failures_run_again(outer: pytest.Pytester) -> None:
    judge(outer, "Nan").assert_outcomes(failed=1, passed=5, skipped=1)
    again = judge(outer, "Nan", "--lf")
    assert again.parseoutcomes()["failed"] == 1
    assert "passed" not in again.parseoutcomes()


def test_junit_is_written(outer: pytest.Pytester) -> None:
    judge(outer, "Nan", "--junitxml", "out.xml")
    root = ElementTree.parse(outer.path / "out.xml").getroot()
    cases = {case.attrib["name"]: case for case in root.iter("testcase")}
    assert len(cases) == 7
    failure = cases["attention/merge/two-empty"].find("failure")
    assert failure is not None
    assert "repeat    kvassay run" in (failure.text or "")


def test_own_tests_run_beside_the_cases_when_named(outer: pytest.Pytester) -> None:
    outer.makepyfile(test_own="def test_own():\n    pass\n")
    judge(outer, "Good").assert_outcomes(passed=6, skipped=1)
    judge(outer, "Good", "test_own.py").assert_outcomes(passed=7, skipped=1)


def test_a_crash_costs_one_item_each(outer: pytest.Pytester) -> None:
    result = judge(outer, "Crash")
    result.assert_outcomes(failed=4, xfailed=2, skipped=1)
    result.stdout.fnmatch_lines(["finding   step 1, attention.merge: crash: *"])


@pytest.mark.parametrize("more", [[], ["-n", "2"]])
def test_an_adapter_that_does_not_start_stops_the_run(outer: pytest.Pytester, more: list[str]) -> None:
    result = judge(outer, "Unstartable", *more)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: kvassay: the adapter could not start: *no such device*"])
    assert "FAILED" not in result.stdout.str()
    assert "Traceback" not in result.stdout.str() + result.stderr.str()


def test_cases_can_be_collected_without_the_engine(outer: pytest.Pytester) -> None:
    result = judge(outer, "Unstartable", "--collect-only", "-q")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["kvassay::attention/merge/two-empty"])


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--kvassay-case", "no/such"], "no case 'no/such'"),
        (["--kvassay-contract", "attentoin"], "did you mean 'attention'"),
        (["--kvassay-waivers", "none.toml"], "none.toml: No such file"),
        (["kvassay::no/such"], "no case 'no/such'"),
    ],
)
def test_a_bad_selection_is_a_usage_error(outer: pytest.Pytester, arguments: list[str], told: str) -> None:
    result = judge(outer, "Good", *arguments)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: kvassay: *{told}*"])


WAIVER = """[[waiver]]
case = "{case}"
category = "bug"
link = "https://example.org/issues/1"
expires = {expires}
verdict = "fail"
reason = "Mended in the next release."
"""


@pytest.mark.parametrize(
    ("engine", "case", "expires", "outcomes"),
    [
        ("Nan", "attention/merge/two-empty", "2999-01-01", {"passed": 6, "skipped": 1, "xfailed": 1}),
        ("Nan", "attention/merge/two-empty", "2020-01-01", {"passed": 5, "skipped": 1, "failed": 2}),
        ("Good", "attention/merge/two-empty", "2999-01-01", {"passed": 6, "skipped": 1, "failed": 1}),
        ("Good", "attention/merge/none", "2999-01-01", {"passed": 6, "skipped": 1, "failed": 1}),
    ],
)
def test_waivers(outer: pytest.Pytester, engine: str, case: str, expires: str, outcomes: dict[str, int]) -> None:
    outer.path.joinpath("w.toml").write_text(WAIVER.format(case=case, expires=expires))
    judge(outer, engine, "--kvassay-waivers", "w.toml").assert_outcomes(**outcomes)


def test_help_has_a_group(outer: pytest.Pytester) -> None:
    result = judge(outer, "Good", "--help")
    result.stdout.fnmatch_lines(["kvassay: conformance of an engine*", "*--kvassay-adapter=NAME*"])


def test_without_an_adapter_nothing_happens(outer: pytest.Pytester) -> None:
    outer.makepyfile(
        test_own="""
        import sys

        def test_own():
            assert "kvassay.pytest_plugin" in sys.modules
            heavy = {"numpy", "jsonschema", "rich", "click", "kvassay.corpus", "kvassay.core.judge"}
            assert not heavy & sys.modules.keys()
        """
    )
    loaded = [] if _installed() else ["-p", "kvassay.pytest_plugin"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *loaded, "-p", "no:xdist", "-p", "no:hypothesispytest", "-q"],
        cwd=outer.path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout
