"""Comparison: classes before arithmetic, bounds by dtype, states by their meaning."""

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from kvassay.core import states
from kvassay.core.compare import NotComparable, close, numbers, same, tolerance
from kvassay.core.states import from_literal, is_state


def meaning(state: dict[str, Any]) -> dict[str, Any]:
    return {name: part.array for name, part in states.meaning(state).items()}


TIGHT = {"rtol": 0.0, "atol": 1e-6}


@pytest.mark.parametrize(
    ("returned", "expected", "agrees"),
    [
        ([1.0], [1.0], True),
        ([1.0 + 9e-7], [1.0], True),
        ([1.0 + 2e-6], [1.0], False),
        ([math.nan], [math.nan], True),
        ([math.nan], [1.0], False),
        ([5.0], [-math.inf], False),
        ([-math.inf], [-math.inf], True),
        ([math.inf], [-math.inf], False),
        ([-math.inf], [math.nan], False),
        ([1.0, 2.0], [1.0], False),
        ([], [], True),
    ],
)
def test_close_compares_classes_before_arithmetic(returned: list[float], expected: list[float], agrees: bool) -> None:
    assert close(np.array(returned), np.array(expected), TIGHT).agrees is agrees


def test_an_infinite_expectation_does_not_make_every_bound_infinite() -> None:
    assert close(np.array([5.0]), np.array([-math.inf]), {"rtol": 1.0, "atol": 0.0}).ratio == math.inf


def test_the_worst_element_is_named_with_its_ratio() -> None:
    difference = close(np.array([[0.0, 3e-6], [0.0, 1e-5]]), np.zeros((2, 2)), TIGHT)
    assert difference.ratio == pytest.approx(10.0)
    assert "[1, 1]" in difference.message
    assert "2 of 4" in difference.message


def test_states_of_both_schemas_mean_the_same() -> None:
    m, mass, u = np.float32([2.0]), np.float32([4.0]), np.float32([[8.0, -4.0]])
    mlu = meaning({"schema": "fp32-m-l-u-v1", "m": m, "l": mass, "u": u})
    assert mlu["out"].tolist() == [[2.0, -1.0]]
    assert mlu["lse"][0] == pytest.approx(2.0 + math.log(4.0), abs=1e-15)
    natural = {"schema": "o-lse-v1", "base": "e", "o": np.float32([[2.0, -1.0]]), "lse": np.float64([2 + math.log(4)])}
    binary = natural | {"base": 2, "lse": natural["lse"] / math.log(2)}
    for state in (natural, binary):
        assert meaning(state)["lse"][0] == pytest.approx(mlu["lse"][0], abs=1e-15)
        assert meaning(state)["out"].tolist() == mlu["out"].tolist()


def test_an_empty_state_means_zero_and_minus_infinity_and_nan_is_not_hidden() -> None:
    empty = {"schema": "fp32-m-l-u-v1", "m": np.float32([-np.inf]), "l": np.float32([0]), "u": np.float32([[0, 0]])}
    assert meaning(empty)["lse"].tolist() == [-math.inf]
    assert meaning(empty)["out"].tolist() == [[0.0, 0.0]]
    assert math.isnan(meaning(empty | {"m": np.float32([np.nan])})["lse"][0])
    assert math.isnan(meaning(empty | {"u": np.float32([[np.nan, 0]])})["out"][0, 0])


@pytest.mark.parametrize("schema", ["o-lse-v1/e", "o-lse-v1/2"])
def test_a_literal_state_keeps_its_meaning_in_another_schema(schema: str) -> None:
    parts = {"m": np.float32([1, -np.inf]), "l": np.float32([3, 0]), "u": np.float32([[6], [0]])}
    converted = from_literal({"schema": "fp32-m-l-u-v1", **parts}, schema)
    assert meaning(converted)["out"].tolist() == [[2.0], [0.0]]
    assert meaning(converted)["lse"] == pytest.approx([1 + math.log(3), -math.inf], abs=1e-6)


def test_the_coarsest_dtype_of_the_reply_chooses_the_bound_and_others_are_refused() -> None:
    bound = {"float32": {"atol": 1}, "bfloat16": {"atol": 2}}
    assert tolerance(bound, ["float32"]) == {"atol": 1}
    assert tolerance(bound, ["float32", "bfloat16"]) == {"atol": 2}
    with pytest.raises(NotComparable, match="float16 may not be returned"):
        tolerance(bound, ["float16"])


@pytest.mark.parametrize(
    ("a", "b", "equal"),
    [
        (1, 1, True),
        (1, True, False),
        (0, False, False),
        ("a", "a", True),
        ([1, 2], [1, 2], True),
        ([1, 2], [2, 1], False),
        ({"a": None}, {}, False),
        (np.int32([1, 2]), np.int32([1, 2]), True),
        (np.int32([1, 2]), np.int64([1, 2]), False),
        (np.int32([1, 2]), np.int32([[1, 2]]), False),
        (np.int32([1, 2]), [1, 2], False),
        (np.array([1.5], ml_dtypes.bfloat16), np.array([1.5], ml_dtypes.bfloat16), True),
        (np.array([np.nan], ml_dtypes.bfloat16), np.array([np.nan], ml_dtypes.bfloat16), True),
        (np.float32([0.0]), np.float32([-0.0]), False),
        (None, None, True),
        (None, 0, False),
    ],
)
def test_exact_equality(a: object, b: object, equal: bool) -> None:
    assert same(a, b) is equal


@pytest.mark.parametrize("value", [None, True, "1.5", [1, "x"], [[1], [1, 2]], {"a": 1}, np.array([True]), 10**400])
def test_what_is_no_number_cannot_be_compared(value: object) -> None:
    with pytest.raises(NotComparable):
        numbers(value)


def test_numbers_may_be_spelled_and_lists_count_as_float64() -> None:
    found = numbers([1, 2.5, "-Infinity"])
    assert found.array.tolist() == [1.0, 2.5, -math.inf]
    assert found.dtypes == {"float64"}


@pytest.mark.parametrize(
    "value",
    [
        {"schema": "o-lse-v1", "o": 1, "lse": 1},
        {"schema": "other", "m": 1, "l": 1, "u": 1},
        {"schema": ["o-lse-v1"], "base": 2, "o": 1, "lse": 1},
        {"o": 1},
        [],
    ],
)
def test_only_a_whole_state_is_a_state(value: object) -> None:
    assert not is_state(value)


def test_members_of_a_state_that_do_not_belong_together_cannot_be_compared() -> None:
    state = {"schema": "fp32-m-l-u-v1", "m": np.zeros(2), "l": np.zeros(1), "u": np.zeros((2, 3))}
    with pytest.raises(NotComparable, match="mass of shape"):
        states.meaning(state)
    with pytest.raises(NotComparable, match="no base"):
        states.meaning({"schema": "o-lse-v1", "base": 10, "o": np.zeros((1, 1)), "lse": np.zeros(1)})
