"""The pictures of the chapters: drawn from data, the same each time, in the page's colours."""

from __future__ import annotations

import copy
import re
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "docs" / "_ext"))

pytest.importorskip("sphinx_needs", reason="the extra docs is not installed")
pytest.importorskip("matplotlib", reason="the extra docs is not installed")

from kvassay.corpus import load  # noqa: E402
from kvassay_reference.residency import TRANSITIONS  # noqa: E402
from kvdocs.pictures import canvas, words  # noqa: E402
from kvdocs.pictures.registry import CORPUS, PICTURES, drawn  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402

NAMES = sorted(PICTURES)
PAGES = [*(ROOT / "spec").glob("*.md"), *(ROOT / "docs").glob("*.md")]


def documents(name: str) -> list[Any]:
    """The sources of a picture, free to change."""
    return copy.deepcopy(PICTURES[name].documents(ROOT))


def figure(name: str, *changed: Any) -> tuple[Figure, words.Words]:
    return PICTURES[name].figure(name, *(changed or documents(name)))


def marks(drawing: Figure, prefix: str) -> list[str]:
    """What is drawn and counted: the rest of each mark that begins so."""
    found = [artist.get_gid() for artist in drawing.findobj() if (artist.get_gid() or "").startswith(prefix)]
    return sorted({gid.removeprefix(prefix) for gid in found})


# -- each of them ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_a_picture_is_the_same_each_time(name: str) -> None:
    assert drawn(ROOT, name) == drawn(ROOT, name)


@pytest.mark.parametrize("name", NAMES)
def test_a_picture_is_part_of_its_page(name: str) -> None:
    drawing = drawn(ROOT, name)
    root = ElementTree.fromstring(drawing.svg)
    ids = re.findall(r'\bid="([^"]+)"', drawing.svg)
    assert len(ids) == len(set(ids))
    assert all(one.startswith(name.replace("/", "-") + "--") for one in ids)
    assert set(re.findall(r'(?:url\(|href=")#([^)"]+)', drawing.svg)) <= set(ids)
    assert "font-family" not in drawing.svg
    assert root.attrib["role"] == "img"
    assert len(root.attrib["aria-label"]) > 40
    assert len(drawing.svg) < 100_000


@pytest.mark.parametrize("name", NAMES)
def test_every_colour_follows_the_theme(name: str) -> None:
    svg = drawn(ROOT, name).svg
    style = (ROOT / "docs" / "_static" / "kvassay.css").read_text(encoding="utf-8")
    plain = re.sub(r"var\(--kv-(\w+), #[0-9a-f]{6}\)", r"\1", svg)
    assert re.findall(r"#[0-9a-fA-F]{6}\b", plain) == []
    for role in canvas.ROLES:
        assert style.count(f"--kv-{role}: #") == 3, "light, dark by choice, dark by the system"


@pytest.mark.parametrize("name", NAMES)
def test_a_caption_says_where_it_comes_from(name: str) -> None:
    caption = drawn(ROOT, name).caption
    assert "\n" not in caption
    for source in PICTURES[name].sources:
        assert source in caption or (source == CORPUS and "Counted when this page was built" in caption)


def test_every_picture_stands_in_one_chapter_and_no_chapter_names_another() -> None:
    shown = [name for page in PAGES for name in re.findall(r"^```\{kv-picture\} (.+)$", page.read_text("utf-8"), re.M)]
    assert sorted(shown) == NAMES


def test_an_unknown_picture_and_data_without_what_is_drawn_are_errors() -> None:
    with pytest.raises(KeyError, match="no picture offload/nothing; there are attention/merge"):
        drawn(ROOT, "offload/nothing")
    case = documents("selectors/quest-boxes")[0]
    case["steps"][0]["expect"] = {"accepts": True}
    with pytest.raises(KeyError, match="expects nothing at /bounds of step 0"):
        figure("selectors/quest-boxes", case)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.7190416, "0.719"), (2.0, "2"), (-0.25, "−0.25"), (-0.0001, "0"), (120.0, "120"), (0.1, "0.1")],
)
def test_figures_for_a_reader(value: float, text: str) -> None:
    assert words.number(value) == text


# -- what they show --------------------------------------------------------------------------------------------------


def test_quest_has_a_box_a_page_and_reads_what_the_case_expects() -> None:
    case = documents("selectors/quest-boxes")[0]
    before, said = figure("selectors/quest-boxes")
    assert marks(before, "page-") == marks(before, "bound-") == ["0", "1", "2"]
    assert marks(before, "read-") == ["1-0", "2-0", "2-2"]
    assert (
        "A budget of 1 page reads page 0 and misses row 4; a budget of 2 pages reads pages 0 and 2 and finds"
        in said.caption
    )
    request = case["steps"][0]["request"]
    request["k"]["data"] += [[[7.0, 0.0]], [[0.0, 7.0]]]
    case["steps"][0]["expect"]["close"][0]["value"][0].append(14.0)
    after, said = figure("selectors/quest-boxes", case)
    assert marks(after, "page-") == ["0", "1", "2", "3"]
    assert "page 3 has the largest bound, 14, over a best product of 7" in said.caption


def test_the_pipeline_has_a_copy_for_each_layer_with_cold_rows() -> None:
    report = documents("offload/pipeline")[0]
    before, said = figure("offload/pipeline")
    assert marks(before, "compute-") == ["0", "1", "2", "3"]
    assert marks(before, "fetch-") == marks(before, "held-") == marks(before, "ready-") == ["0", "1", "3"]
    assert "Layer 2 is resident" in said.caption
    ready = next(artist for artist in before.findobj() if artist.get_gid() == "ready-1")
    assert ready.get_xdata() == pytest.approx([report["events"][1]["fetch_end_ms"]])  # type: ignore[attr-defined]
    del report["events"][3]
    after, _ = figure("offload/pipeline", report)
    assert marks(after, "fetch-") == ["0", "1"]


def test_both_regimes_lie_on_their_side_of_the_critical_ratio() -> None:
    drawing, said = figure("offload/critical-ratio")
    critical = 67.584
    below, above = (
        next(artist for artist in drawing.findobj() if artist.get_gid() == f"case-{bound}").get_xdata()[0]  # type: ignore[attr-defined]
        for bound in ("compute", "transfer")
    )
    assert below < critical < above
    cases = documents("offload/critical-ratio")
    cases[0]["steps"][0]["expect"]["close"][0]["value"] = 65.0
    assert "κ = 65." in figure("offload/critical-ratio", *cases)[1].caption
    assert "κ = 67.584" in said.caption


def test_a_merge_holds_every_row_and_comes_to_the_expected_sum() -> None:
    drawing, said = figure("attention/merge")
    assert marks(drawing, "part-0-") == ["0", "1", "2", "3"]
    assert marks(drawing, "part-1-") == ["4", "5"]
    assert len(marks(drawing, "merged-")) == 6
    drawn_sum = drawing.axes[-1].get_xlabel().rpartition("= ")[2]
    assert f"The log-sum-exp is {drawn_sum}," in said.caption
    case = documents("attention/merge")[0]
    case["steps"][1]["request"]["k"]["data"][0][0] = [9.0, 0.0, 9.0, 0.0]
    changed, _ = figure("attention/merge", case)
    assert changed.axes[-1].get_xlabel().rpartition("= ")[2] != drawn_sum


def test_a_tree_keeps_what_its_record_found() -> None:
    base, adversary = documents("indexes/hierarchy")
    drawing, said = figure("indexes/hierarchy")
    assert marks(drawing, "row-") == [*(f"0-{row}" for row in range(1, 10)), *(f"1-{row}" for row in range(5))]
    assert "2 clusters of 4 lead to rows 1, 2, 6 and 9; the best row, 9," in said.caption
    assert "1 cluster of 2 leads to rows 0 and 1; the best row, 2," in said.caption
    base["squeezed"]["index"]["thresholds"][1] = 0.22
    assert "1 cluster of 4 leads to" in figure("indexes/hierarchy", base, adversary)[1].caption


def test_sampling_draws_every_sample_with_rows() -> None:
    drawing, said = figure("indexes/sampling")
    samples = marks(drawing, "sample-")
    assert samples == ["0", "0-1", "0-2", "1"]
    assert marks(drawing, "top-") == ["1", "2", "3"]
    assert "Their mean, 0.936, is not dense attention, 1.164" in said.caption
    points = [artist for artist in drawing.findobj() if (artist.get_gid() or "").startswith("sample-")]
    stems = sum(artist.get_ydata()[0] for artist in points)  # type: ignore[attr-defined]
    assert stems == pytest.approx(1.0), "all samples with rows together"
    mean = sum(artist.get_xdata()[0] * artist.get_ydata()[0] for artist in points)  # type: ignore[attr-defined]
    assert mean == pytest.approx(0.936230054194044)
    case = documents("indexes/sampling")[0]
    for part in ("k", "v"):
        case["steps"][0]["request"][part]["data"].pop()
        case["steps"][0]["request"][part]["shape"][0] = 2
    assert marks(figure("indexes/sampling", case)[0], "sample-") == ["0", "0-1", "1"]


def test_a_budget_of_rows_takes_as_many() -> None:
    pool = documents("memory/clusters")[0]
    drawing, _ = figure("memory/clusters")
    assert marks(drawing, "cluster-") == ["0", "1", "2"]
    assert marks(drawing, "taken-") == ["1", "2", "3", "4", "5"]
    assert marks(drawing, "left-") == ["6", "7", "8"]
    assert len(marks(drawing, "row-")) == 12
    pool["clusterkv"]["recalled"] = [1, 2, 3, 4]
    assert marks(figure("memory/clusters", pool)[0], "left-") == ["5", "6", "7", "8"]


def test_each_method_reads_its_support() -> None:
    pool = documents("memory/recall-units")[0]
    drawing, _ = figure("memory/recall-units")
    for lane, part in enumerate(("infllm", "emllm", "clusterkv")):
        assert sorted(map(int, marks(drawing, f"read-{lane}-"))) == pool[part]["support"]
        assert len(marks(drawing, f"group-{lane}-")) == 3
    pool["infllm"]["support"].remove(11)
    assert "11" in marks(figure("memory/recall-units", pool)[0], "left-0-")


def test_every_state_and_every_way_is_drawn_and_none_is_forgotten() -> None:
    with canvas.styled("residency/states"):
        drawing, _ = figure("residency/states")
    named = {str(state) for row in TRANSITIONS for state in (row.state, row.target)}
    assert set(marks(drawing, "state-")) == named
    ends = {"QUARANTINED", "ABORTED"}
    ways = {f"{row.state}-{row.target}" for row in TRANSITIONS if row.target not in ends or row.state in ends}
    assert set(marks(drawing, "edge-")) == ways
    assert set(marks(drawing, "end-")) == ends
    fewer = [row for row in TRANSITIONS if (row.state, row.event) != ("COPY_OUT", "kill")]
    with pytest.raises(KeyError, match="states that die by kill"):
        PICTURES["residency/states"].draw(Figure(), fewer)


def test_a_recall_unit_brings_all_of_its_rows() -> None:
    report = documents("quality/recall-units")[0]
    drawing, said = figure("quality/recall-units")
    for lane, selection in enumerate(report["selections"]):
        assert sorted(map(int, marks(drawing, f"read-{lane}-"))) == selection["support"]
        assert sorted(map(int, marks(drawing, f"best-{lane}-"))) == report["reference"]
    assert "page selects 1 and 3 and reads 5 rows with 0.879 of the mass" in said.caption
    report["selections"][1]["support"].remove(7)
    report["logits"].append(9.0)
    changed, said = figure("quality/recall-units", report)
    assert marks(changed, "weight-")[-1] == "8"
    assert "7" in marks(changed, "left-1-")
    assert "page selects 1 and 3 and reads 4 rows" in said.caption


def test_admitted_requests_are_charged_what_their_case_says() -> None:
    cases = documents("runtime/credits")
    drawing, said = figure("runtime/credits")
    assert marks(drawing, "in-fifo-") == ["alpha", "gamma"]
    assert marks(drawing, "out-fifo-") == ["beta", "delta"]
    coalescing = "charge-exact_deadline_coalescing-"
    assert marks(drawing, f"{coalescing}link_bytes-") == ["beta"], "the second reader joins"
    assert marks(drawing, f"{coalescing}staging_bytes-") == ["alpha", "beta"]
    assert "exact_deadline_coalescing admits beta and alpha and saves 4,096 bytes" in said.caption
    admitted = words.expected(cases[0], 0, "/admitted")
    admitted[1]["charged"]["link_bytes"] = 0
    assert marks(figure("runtime/credits", *cases)[0], "charge-fifo-link_bytes-") == ["alpha"]


def test_a_record_is_drawn_as_far_as_it_came() -> None:
    records = documents("release/rollout")
    drawing, said = figure("release/rollout")
    assert marks(drawing, "at-1-") == ["CANARY-0", "OFF-0", "SHADOW-0"]
    assert marks(drawing, "at-2-") == ["CANARY-0", "FULL-1000", "OFF-0", "RAMP-200", "RAMP-600", "SHADOW-0"]
    assert marks(drawing, "back-") == ["2", "3"]
    assert "`retrieval-approximate` is taken back from SHADOW by `quality_drop` and `illegal_fallbacks`" in said.caption
    records[1]["transitions"] = records[1]["transitions"][:3]
    records[1].update(rollback=None, state="RAMP")
    after, said = figure("release/rollout", *records)
    assert marks(after, "back-") == ["3"]
    assert "`tiered-exact-2` stands in RAMP" in said.caption


def test_the_matrix_counts_every_contract() -> None:
    rows = documents("corpus/contracts")[0]
    drawing, said = figure("corpus/contracts")
    assert len(marks(drawing, "cell-")) == 6 * len(rows)
    assert sum(row["example"] + row["mutation"] + row["scenario"] + row["relation"] for row in rows.values()) == len(
        load().cases
    )
    rows["another"] = dict.fromkeys(rows["attention"], 1)
    after, changed = figure("corpus/contracts", rows)
    assert len(marks(after, "cell-")) == 6 * len(rows)
    assert changed.caption != said.caption
