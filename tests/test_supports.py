"""Selections judged by what they are and by what they keep; numbers that are bounded from one side."""

from typing import Any

import numpy as np
import pytest
from kvassay.core.expect import parse
from kvassay.core.support import read
from kvassay.corpus.build import _listed
from kvassay.corpus.data import fixture_module

oracles = fixture_module("_selection")

WEIGHTS = np.array([0.5, 0.25, 0.125, 0.125])
SHARE = {"of": "mass of query head 0", "weights": WEIGHTS, "floor": 0.75}


def told(found: Any, **row: Any) -> str | None:
    return read({"at": "/rows", "lists": [{"legal": 4, **row}]}).problem(found)


@pytest.mark.parametrize(
    ("found", "row", "words"),
    [
        ([[0, 1]], {}, None),
        ([[1, 0]], {"shares": [SHARE]}, None),
        (np.array([[1, 0]]), {"shares": [SHARE]}, None),
        ([[]], {}, None),
        ([[]], {"least": 1}, "0 of at least 1"),
        ([[0, 1, 2]], {"most": 2}, "3 of at most 2"),
        ([[0, 1]], {"most": 2}, None),
        ([[4]], {}, "4, which is not legal"),
        ([[-1]], {}, "-1, which is not legal"),
        ([[1]], {"legal": [0, 2]}, "1, which is not legal"),
        ([[2, 0]], {"legal": [0, 2]}, None),
        ([[3, 3]], {}, "3 twice"),
        ([[0]], {"forced": [0, 3]}, "lacks 3"),
        ([[0, 2, 3]], {"shares": [SHARE]}, None),
        ([[1, 2, 3]], {"shares": [SHARE]}, "keeps 0.5 of mass of query head 0"),
        ([[True]], {}, "no list of integers"),
        ([[0.0]], {}, "no list of integers"),
        ([["0"]], {}, "no list of integers"),
        ([0], {}, "no list of integers"),
        (3, {}, "not 1 lists"),
        ([[0], [1]], {}, "not 1 lists"),
    ],
)
def test_a_list_is_judged_by_members_and_by_loss(found: Any, row: dict[str, Any], words: str | None) -> None:
    message = told(found, **row)
    assert message is None if words is None else message is not None and words in message


def test_what_lies_beyond_the_weights_weighs_nothing_and_no_weight_at_all_is_kept() -> None:
    assert told([[0, 1, 3]], shares=[{**SHARE, "weights": WEIGHTS[:2]}]) is None
    assert told([[]], shares=[{**SHARE, "weights": WEIGHTS * 0}]) is None


def test_weights_of_one_and_nothing_are_written_as_items() -> None:
    best = oracles.listed([1, 3], 600, {"the rows of an exact search": oracles.recall_weights([3, 1, 500], 600)})
    assert best["shares"] == [{"of": "the rows of an exact search", "items": [1, 3, 500], "kept": 2 / 3}]
    assert "items" not in oracles.listed([0], 2, {"mass": [0.5, 1.0]})["shares"][0]
    (share,) = _listed({"legal": 600, "shares": [{"of": "recall", "items": [1, 3, 500], "floor": 0.6}]})["shares"]
    assert share["weights"].tolist() == oracles.recall_weights([1, 3, 500], 501)
    assert told([[1, 3, 0]], shares=[share]) is None
    assert "keeps 0.333" in (told([[1, 0, 2]], shares=[share]) or "")
    (nothing,) = _listed({"legal": 4, "shares": [{"of": "recall", "items": [], "floor": 1.0}]})["shares"]
    assert told([[]], shares=[nothing]) is None


def test_one_list_stands_alone() -> None:
    support = read({"at": "/rows", "single": True, "lists": [{"legal": 2}]})
    assert support.problem([1, 0]) is None
    assert support.problem([[1, 0]]) == "is no list of integers"
    assert support.problem([2]) == "holds 2, which is not legal here"


def test_a_selection_and_its_numbers_are_judged_together() -> None:
    near = {"at": "/bounds", "value": np.array([1.0, 2.0]), "bound": {"float64": {"rtol": 0, "atol": 0.1}}}
    value = {"supports": [{"at": "/rows", "lists": [{"legal": 4}]}], "close": [near]}
    expect = parse({"selects": value})
    assert expect.returned({"rows": [[1]], "bounds": [1.0, 2.05]}, frozenset()).holds
    assert not expect.returned({"rows": [[1]], "bounds": [1.0, 2.2]}, frozenset()).holds
    assert not expect.returned({"rows": [[7]], "bounds": [1.0, 2.0]}, frozenset()).holds
    assert not expect.returned({"bounds": [1.0, 2.0]}, frozenset()).holds
    assert not expect.returned({"rows": [[1]]}, frozenset()).holds
    assert "floors" in expect.describe()
    assert "/bounds" in expect.describe()


@pytest.mark.parametrize(
    ("side", "found", "holds"),
    [
        ("at-least", [1.0, 2.0], True),
        ("at-least", [9.0, 2.0], True),
        ("at-least", [0.95, 9.0], True),
        ("at-least", [0.8, 9.0], False),
        ("at-most", [0.8, -9.0], True),
        ("at-most", [1.05, 2.0], True),
        ("at-most", [1.2, 2.0], False),
        ("at-least", ["NaN", 2.0], False),
        ("at-least", ["Infinity", 2.0], True),
        ("at-most", ["-Infinity", 2.0], True),
        ("at-most", ["Infinity", 2.0], False),
        ("at-least", [1.0], False),
    ],
)
def test_a_number_may_be_bounded_from_one_side(side: str, found: list[Any], holds: bool) -> None:
    row = {"at": "/n", "value": np.array([1.0, 2.0]), "bound": {"float64": {"rtol": 0, "atol": 0.1}}, "side": side}
    assert parse({"close": [row]}).returned({"n": found}, frozenset()).holds is holds


def test_ranks_and_shares_of_the_oracles() -> None:
    assert oracles.top([1.0, 3.0, 3.0, 2.0], 3) == [1, 2, 3]
    assert oracles.top([1.0, 3.0, 3.0, 2.0], 1, among=[2, 3]) == [2]
    assert oracles.top([1.0], 0) == oracles.top([1.0], -1) == []
    assert oracles.softmax([-np.inf, 0.0]) == [0.0, 1.0]
    assert oracles.softmax([-np.inf]) == [0.0]
    assert oracles.retained([0.5, 0.5], [1]) == 0.5
    assert oracles.retained([0.0], []) == 1.0
    assert oracles.retained(oracles.recall_weights([1, 3], 4), [0, 1]) == 0.5
    out, lse = oracles.attend([0.0, 0.0, 5.0], [[1.0], [3.0], [100.0]], [1, 0])
    assert out == [2.0]
    assert lse == pytest.approx(np.log(2.0))
    assert oracles.error_bound(0.75, [[3.0, 4.0], [1.0, 0.0]]) == 2.5


def test_an_oracles_support_is_what_the_schema_has() -> None:
    one = oracles.listed([0, 1], 4, {"mass of query head 0": list(WEIGHTS)}, forced=[1], most=2)
    assert one["shares"][0]["kept"] == 0.75
    assert oracles.supports(pages=[one], rows=one)["/rows"]["single"] is True
