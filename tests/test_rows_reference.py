"""Oracle and reference of the contract rows share no code; on caches that Hypothesis drives they agree."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from kvassay.adapters.base import Rejected
from kvassay.core import tensors
from kvassay.corpus.data import fixture_module
from kvassay.engines.reference import Reference
from kvassay_reference.cache_rows import Cache, Layer

oracle = fixture_module("rows.oracle")
author = fixture_module("rows.author")
rejection = fixture_module("_oracle").Rejection

shapes = st.builds(
    author.Shape,
    windows=st.lists(st.none() | st.integers(2, 5), min_size=1, max_size=3).map(tuple),
    sequences=st.integers(1, 3),
    heads=st.integers(1, 2),
    widths=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    dtype=st.sampled_from(["float32", "bfloat16", "float16"]),
)
numbers = st.integers(0, 9)
calls = st.lists(
    st.tuples(st.just("append"), st.integers(1, 4), st.integers(0, 3))
    | st.tuples(st.sampled_from(["keep", "drop"]), numbers)
    | st.tuples(st.just("select"), st.lists(st.integers(0, 3), min_size=1, max_size=4))
    | st.tuples(st.sampled_from(["reset", "save", "restore"])),
    max_size=12,
)


def same(a: Any, b: Any) -> bool:
    """Equality to the byte."""
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    return len(a) == len(b) and all(map(same, a, b)) if isinstance(a, list) else bool(a == b)


class Pair:
    """Both judges of one case."""

    def __init__(self) -> None:
        self.oracle = oracle.Oracle()
        self.reference = Reference()
        self.reference.open()

    def call(self, op: str, request: dict[str, Any]) -> Any:
        """The reference's result, the same as the oracle's; ``None`` where the reference refuses."""
        method = f"rows_{op}"
        try:
            got = getattr(self.reference, method)(tensors.read(request))
        except Rejected as rejected:
            reason = rejected.reason
            assert reason is None or self.refused(method, request) == reason
            return None
        want = tensors.read(getattr(self.oracle, method)(request))
        assert same(got, want), (op, request, got, want)
        return got

    def refused(self, method: str, request: dict[str, Any]) -> str:
        """The oracle's reason."""
        try:
            getattr(self.oracle, method)(request)
        except rejection as refusal:
            return str(refusal.reason)
        return "accepted"


@settings(max_examples=150, deadline=None)
@given(shapes, calls)
def test_oracle_and_reference_agree(shape: Any, steps: list[tuple[Any, ...]]) -> None:
    pair = Pair()
    pair.call("open", {"cache": "c", "sequences": shape.sequences, "windows": list(shape.windows)})
    rows, sequences, saved, cache = 0, shape.sequences, False, "c"
    for number, (what, *arguments) in enumerate(steps):
        if what == "append":
            count, salt = arguments
            new = shape.new(rows, count, salt=salt, sequences=range(sequences))
            assert pair.call("append", {"cache": cache, **new, "last": shape.handed(count)}) is not None
            rows += count
        elif what in ("keep", "drop"):
            done = pair.call("crop", {"cache": cache, what: arguments[0]})
            rows = rows if done is None else done["rows"][0]
        elif what == "select":
            if pair.call("select", {"cache": cache, "sequences": arguments[0]}) is not None:
                sequences = len(arguments[0])
        elif what == "save":
            pair.call("save", {"cache": cache, "snapshot": "s"})
            saved = (rows, sequences)  # type: ignore[assignment]
        elif what == "restore" and saved:
            cache = f"c{number}"
            pair.call("restore", {"cache": cache, "snapshot": "s"})
            rows, sequences = saved  # type: ignore[misc]
        elif what == "reset":
            pair.call("reset", {"cache": cache})
            rows = 0
        pair.call("read", {"cache": cache, "last": shape.past()})


def test_a_crop_is_refused_only_where_rows_are_missing() -> None:
    """Every crop of every small history, against the chapter's condition spelled out row by row."""
    for window in (None, 1, 2, 3, 4):
        for length in range(8):
            for keep in range(length + 1):
                cache = Cache([Layer(window)], 1)
                if length:
                    values = np.arange(length, dtype=np.float32).reshape(1, 1, 1, length, 1)
                    cache.append(values, values)
                held = set(range(length)) if window is None else set(range(max(0, length - window + 1), length))
                read_next = range(keep) if window is None else range(max(0, keep - window + 1), keep)
                possible = set(read_next) <= held
                try:
                    cache.crop(keep, 0)
                except ValueError:
                    assert not possible, (window, length, keep)
                    assert cache.lengths == [length]
                else:
                    assert possible, (window, length, keep)
                    assert cache.lengths == [keep]


def test_snapshots_are_not_written_to() -> None:
    cache = Cache([Layer(None)], 1)
    values = np.ones((1, 1, 1, 2, 1), np.float32)
    cache.append(values, values)
    snapshot = cache.saved()
    cache.append(values, values)
    cache.crop(1, 0)
    assert snapshot.lengths == [2]
    assert cache.lengths == [1]
