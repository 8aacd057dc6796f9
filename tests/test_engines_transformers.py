"""The adapters of transformers' cache say what the cache says: lengths, rows, offsets and errors pass unchanged.

Whether the cache conforms is for the suite to say. What is pinned here is the mapping, beside calls of the library.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

import numpy as np
import pytest
from kvassay.adapters.base import Rejected, Unsupported

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("transformers") is None, reason="transformers is not installed"
)

CLASSES = ("Adapter", "Rebuilt")


def engine(name: str = "Adapter", windows: tuple[int | None, ...] = (None, None), sequences: int = 1) -> Any:
    module = importlib.import_module("kvassay.engines.transformers_cache")
    made = getattr(module, name)()
    made.setup()
    made.open()
    request = {"cache": "c", "sequences": sequences, "windows": list(windows)}
    assert made.rows_open(request) == {"rows": [0] * len(windows)}
    return made


def rows(first: int, count: int, layers: int = 2, sequences: int = 1) -> Any:
    values = np.arange(first, first + count, dtype=np.float32) + 1
    return np.broadcast_to(values[:, None], (layers, sequences, 1, count, 1)).copy()


def append(made: Any, first: int, count: int, *, sequences: int = 1, last: int = 99) -> Any:
    k = rows(first, count, sequences=sequences)
    return made.rows_append({"cache": "c", "k": k, "v": -k, "last": [last, last]})["layers"]


def flat(array: Any) -> list[float]:
    return [float(one) for one in np.asarray(array, np.float32).ravel()]


@pytest.mark.parametrize("name", CLASSES)
def test_rows_are_those_of_the_engine_and_last_counts_from_the_end(name: str) -> None:
    made = engine(name)
    append(made, 0, 3)
    (shown, _) = append(made, 3, 1, last=2)
    assert (flat(shown["k"]), flat(shown["v"])) == ([3, 4], [-3, -4])
    assert (shown["rows"], shown["end_position"]) == (4, 4)
    (stored, _) = made.rows_read({"cache": "c", "last": [99, 1]})["layers"]
    assert flat(stored["k"]) == flat(made.caches["c"].layers[0].keys)


def test_lengths_and_offsets_are_the_engines_word(monkeypatch: pytest.MonkeyPatch) -> None:
    made = engine(windows=(None, 3))
    append(made, 0, 2)
    cache = made.caches["c"]
    monkeypatch.setattr(cache.layers[1], "get_seq_length", lambda: 41)
    monkeypatch.setattr(cache.layers[1], "get_mask_sizes", lambda asked: (0, 7))
    shown = append(made, 2, 1)[1]
    assert shown["rows"] == 41
    assert shown["end_position"] == 7 + 3


def test_nothing_is_remembered_for_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    made = engine()
    append(made, 0, 4)
    monkeypatch.setattr(made.caches["c"], "crop", lambda number: None)
    assert made.rows_crop({"cache": "c", "keep": 1}) == {"rows": [4, 4]}
    monkeypatch.setattr(made.caches["c"], "reset", lambda: None)
    assert made.rows_reset({"cache": "c"}) == {"rows": [4, 4]}


@pytest.mark.parametrize(("how", "left"), [({"keep": 2}, 2), ({"drop": 1}, 3), ({"keep": 4}, 4)])
def test_crops_are_counted_as_the_version_counts(how: dict[str, int], left: int) -> None:
    made = engine()
    append(made, 0, 4)
    assert made.rows_crop({"cache": "c", **how}) == {"rows": [left, left]}


def test_selections_reach_the_call_that_makes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    made = engine(sequences=2)
    append(made, 0, 1, sequences=2)
    cache, called = made.caches["c"], []
    for name in ("reorder_cache", "batch_repeat_interleave", "batch_select_indices"):
        monkeypatch.setattr(cache, name, lambda value, name=name: called.append(name))
    for chosen in ([1, 0], [0, 0, 1, 1], [1], [1, 1, 0]):
        made.rows_select({"cache": "c", "sequences": chosen})
    assert called == ["reorder_cache", "batch_repeat_interleave", "batch_select_indices", "batch_select_indices"]


def test_errors_are_refusals_under_the_reason_that_they_mean() -> None:
    made = engine(sequences=2)
    append(made, 0, 2, sequences=2)
    with pytest.raises(Rejected) as uneven:
        append(made, 2, 1, sequences=1)
    assert uneven.value.reason == "CACHE_ROWS_UNEVEN"
    with pytest.raises(Rejected) as missing:
        made.rows_select({"cache": "c", "sequences": [0, 2]})
    assert missing.value.reason == "NO_SUCH_SEQUENCE"


def test_a_defect_of_the_engine_is_no_refusal() -> None:
    made = engine(windows=(None, 4))
    with pytest.raises(AttributeError):
        made.rows_crop({"cache": "c", "keep": 0})


def test_two_windows_are_unsupported() -> None:
    with pytest.raises(Unsupported):
        engine(windows=(3, 4))
