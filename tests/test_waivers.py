"""Waivers: exactly the verdict that they name, until the day that they name, and never more than one per case."""

from __future__ import annotations

import datetime
from pathlib import Path

import miniature
import pytest
from kvassay.core.model import Result, Verdict
from kvassay.corpus import CorpusError
from kvassay.waivers import Waiver, apply, load

TODAY = datetime.date(2030, 1, 15)


def waiver(case: str = "attention/merge/two-empty", verdict: str = "fail", expires: str = "2030-01-15") -> Waiver:
    return Waiver(
        case,
        "bug",
        "https://e.org/1",
        datetime.date.fromisoformat(expires),
        Verdict(verdict),
        "because",
        "w.toml: waiver 0",
    )


def results(**verdicts: str) -> list[Result]:
    by_name = {case.id.rpartition("/")[2].replace("-", "_"): case for case in miniature.CASES}
    return [Result(by_name[name], Verdict(verdict)) for name, verdict in verdicts.items()]


def text(**changes: str) -> str:
    fields = {
        "case": '"attention/merge/two-empty"',
        "category": '"bug"',
        "link": '"https://example.org/issues/1"',
        "expires": "2031-01-31",
        "verdict": '"fail"',
        "reason": '"Mended in the next release."',
    }
    return "[[waiver]]\n" + "".join(f"{key} = {value}\n" for key, value in (fields | changes).items() if value)


@pytest.mark.parametrize(
    ("verdict", "expected"),
    [
        ("fail", Verdict.WAIVED),
        ("pass", Verdict.UNEXPECTED_PASS),
        ("error", Verdict.ERROR),
        ("wrong-reason", Verdict.WRONG_REASON),
        ("inconclusive", Verdict.INCONCLUSIVE),
        ("not-applicable", Verdict.NOT_APPLICABLE),
    ],
)
def test_only_the_named_verdict_is_waived(verdict: str, expected: Verdict) -> None:
    (result,), _ = apply(results(two_empty=verdict), [waiver()], TODAY)
    assert result.verdict is expected
    assert result.waived is (Verdict.FAIL if expected in (Verdict.WAIVED, Verdict.UNEXPECTED_PASS) else None)


def test_the_last_day_counts_and_the_next_does_not() -> None:
    (result,), findings = apply(results(two_empty="fail"), [waiver()], TODAY)
    assert (result.verdict, findings) == (Verdict.WAIVED, ())
    (result,), findings = apply(results(two_empty="fail"), [waiver()], TODAY + datetime.timedelta(days=1))
    assert result.verdict is Verdict.FAIL
    assert findings == ("w.toml: waiver 0 (attention/merge/two-empty): expired on 2030-01-15",)


def test_a_waiver_for_no_case_is_found() -> None:
    _, findings = apply(results(two_empty="fail"), [waiver("attention/merge/three-empty")], TODAY)
    assert findings == ("w.toml: waiver 0 (attention/merge/three-empty): matches no case",)


def test_a_case_that_was_not_selected_does_not_make_its_waiver_stale() -> None:
    known = [case.id for case in miniature.CASES]
    assert apply(results(order="pass"), [waiver()], TODAY, known)[1] == ()
    assert apply(results(order="pass"), [waiver("no/such/case")], TODAY, known)[1] != ()


def test_a_waiver_of_what_does_not_apply_is_stale() -> None:
    _, findings = apply(results(two_empty="not-applicable"), [waiver()], TODAY)
    assert findings == (
        "w.toml: waiver 0 (attention/merge/two-empty): matches only cases that are not applicable to this engine",
    )


def test_an_exact_id_goes_before_a_glob() -> None:
    both = [waiver("attention/merge/*", "error"), waiver(verdict="fail")]
    after, findings = apply(results(two_empty="fail", order="error"), both, TODAY)
    assert [result.verdict for result in after] == [Verdict.WAIVED, Verdict.WAIVED]
    assert findings == ()


def test_a_glob_that_only_an_exact_id_covers_is_stale() -> None:
    both = [waiver("attention/merge/two-*", "fail"), waiver(verdict="fail")]
    assert len(apply(results(two_empty="fail"), both, TODAY)[1]) == 1


def test_a_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "waivers.toml"
    path.write_text(text() + text(case='"attention/merge/o*"', verdict='"error"', expires='"2031-02-28"'))
    first, second = load(path)
    assert first.verdict is Verdict.FAIL
    assert first.expires == datetime.date(2031, 1, 31)
    assert second.is_wild
    assert second.expires == datetime.date(2031, 2, 28)
    assert second.origin.endswith("waivers.toml: waiver 1")


@pytest.mark.parametrize(
    ("content", "pointer", "reason"),
    [
        (text(verdict='"pass"'), "/waiver/0/verdict", "pass"),
        (text(category='"laziness"'), "/waiver/0/category", "laziness"),
        (text(link='"later"'), "/waiver/0/link", "later"),
        (text(reason='"x"'), "/waiver/0/reason", "x"),
        (text(expires='"2031-02-30"'), "/waiver/0/expires", ""),
        (text(expires="2031-01-31T10:00:00"), "/waiver/0/expires", "2031-01-31T10:00:00"),
        (text(reason=""), "/waiver/0", "reason"),
        (text() + "until = 3\n", "/waiver/0", "until"),
        (text() + text(), "/waiver/1/case", "waived already by waiver 0"),
        (text(case='"attention/*"') + text(case='"*/two-empty"'), "/waiver/1/case", "waiver 0"),
        (text(case='"a*c"') + text(case='"ab?"'), "/waiver/1/case", "waiver 0"),
        ("waiver = []\n", "/waiver", ""),
        ("[[waiver]\n", "", "not TOML"),
        ("a" + ".b" * 3000 + " = 1\n", "", "nested"),
    ],
)
def test_a_bad_file_names_file_waiver_and_reason(tmp_path: Path, content: str, pointer: str, reason: str) -> None:
    path = tmp_path / "waivers.toml"
    path.write_text(content)
    with pytest.raises(CorpusError) as caught:
        load(path)
    assert caught.value.file == str(path)
    assert caught.value.pointer == pointer
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("a", "b"), [("a/*", "b/*"), ("a/?", "a/bc"), ("*/x", "*/y"), ("a/b?", "a/?")])
def test_disjoint_globs_may_stand_together(tmp_path: Path, a: str, b: str) -> None:
    path = tmp_path / "waivers.toml"
    path.write_text(text(case=f'"{a}"') + text(case=f'"{b}"'))
    assert len(load(path)) == 2


def test_binary_junk_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "waivers.toml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(CorpusError, match="not UTF-8"):
        load(path)
