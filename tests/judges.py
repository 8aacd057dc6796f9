"""Oracle and reference side by side: a fresh engine, what either says of a request, and whether they agree."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kvassay.adapters.base import Rejected
from kvassay.core.compare import close, numbers, tolerance
from kvassay.core.states import is_state, meaning
from kvassay.core.tensors import is_tensor, read
from kvassay.corpus.data import fixture_module
from kvassay.engines.reference import Reference

Json = dict[str, Any]
REJECTION = fixture_module("_oracle").Rejection
NON_FINITE = ("NaN", "Infinity", "-Infinity")
FOR_THE_JUDGE = {"facts", "supports"}
"""Members that an oracle adds for its own bounds; no engine returns them."""


def engine(kind: type[Reference] = Reference) -> Reference:
    """A new engine, opened."""
    made = kind()
    made.open()
    return made


def outcome(action: Callable[..., Any], *arguments: Any) -> Any:
    """What an action returns, or the reason of the refusal."""
    try:
        return action(*arguments)
    except (Rejected, REJECTION) as refusal:
        return refusal.reason


def asked(judge: Any, op: str, request: Json) -> Any:
    """The result of an op, or the reason of the refusal."""
    return outcome(getattr(judge, op.replace(".", "_", 1)), request)


def agree(judge: Any, op: str, request: Json, got: Any, want: Any) -> None:
    """Refusals for one reason; equal integers, flags and text, numbers within the oracle's bound, states as they mean.

    ``want`` is what the oracle ``judge`` says, ``got`` what is held against it.
    """
    if isinstance(want, str) or isinstance(got, str):
        assert got == want
        return

    def walk(a: Any, b: Any, at: str) -> None:
        if is_state(b):
            limits = judge.bound(op, request, want, at)
            mine, theirs = meaning(a), meaning(read(b))
            for part in ("out", "lse"):
                near(mine[part], theirs[part], tolerance(limits, mine[part].dtypes)[part], f"{at}/{part}")
        elif _are_numbers(b):
            left = numbers(a)
            near(left, numbers(read(b)), tolerance(judge.bound(op, request, want, at), left.dtypes), at)
        elif isinstance(b, dict):
            assert a.keys() == b.keys() - FOR_THE_JUDGE, at
            for name in a:
                walk(a[name], b[name], f"{at}/{name}")
        elif isinstance(b, list):
            assert len(a) == len(b), at
            for index, (x, y) in enumerate(zip(a, b, strict=True)):
                walk(x, y, f"{at}/{index}")
        else:
            assert a == b, at
            assert type(a) is type(b), at

    def near(mine: Any, theirs: Any, limits: Any, at: str) -> None:
        found = close(mine.array, theirs.array, limits)
        assert found.agrees, (at, found.message)

    walk(got, want, "")


def _are_numbers(value: Any) -> bool:
    """Whether an oracle's value is made of floats: a tensor, one of them, or lists of them."""
    if isinstance(value, list):
        return bool(value) and all(map(_are_numbers, value))
    return is_tensor(value) or isinstance(value, float) or value in NON_FINITE
