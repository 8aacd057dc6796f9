"""What the kernels are compared with: plain formulas in float64, and bounds of float32 arithmetic."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
from kvassay_reference.attention import State

DTYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
FULL = "KVASSAY_KERNELS_FULL" in os.environ
SOME = sorted(DTYPES) if FULL else ["bfloat16", "float32"]
"""Dtypes that tests draw from: each is a library to be built."""
HEADS = [[1, 0, 1], [0] * 9 + [1], *([[0], [0, 0, 0, 0], [1, 1, 0, 0, 0, 0]] if FULL else [])]
"""Maps onto two K/V heads; each size of the largest group is a library, too."""
EPSILON = 2.0**-24
Floats = np.ndarray[Any, np.dtype[np.float64]]


def drawn(rng: np.random.Generator, shape: Sequence[int], dtype: Any) -> Any:
    """Numbers of a normal distribution that are exact in their dtype."""
    return rng.standard_normal(shape).astype(dtype)


def dense_state(q: Any, k: Any, v: Any, kv_head_of: Sequence[int], seen: Any, scale: float) -> State:
    """State over the rows that are seen, head by head."""
    q, k, v = (array.astype(np.float64) for array in (q, k[seen], v[seen]))
    m, l, u = np.full(len(q), -np.inf), np.zeros(len(q)), np.zeros((len(q), v.shape[2]))  # noqa: E741
    for query, head in enumerate(kv_head_of):
        scores = k[:, head] @ q[query] * np.float32(scale)
        if len(scores):
            weights = np.exp(scores - scores.max())
            m[query], l[query], u[query] = scores.max(), weights.sum(), weights @ v[:, head]
    return State(m, l, u)


def assert_state(found: State, right: State) -> None:
    """Empty where the other is, and else the same output and log-sum-exp, to a few roundings of the scores."""
    empty = right.l == 0
    assert (np.isneginf(found.m) == empty).all()
    assert not found.l[empty].any()
    assert not found.u[empty].any()
    some = ~empty
    size = 1 + np.abs(right.m[some])
    lse, best = (one.m[some] + np.log(np.asarray(one.l[some], np.float64)) for one in (found, right))
    assert (np.abs(lse - best) <= 16 * EPSILON * size).all()
    out, goal = (
        np.asarray(one.u[some], np.float64) / np.asarray(one.l[some], np.float64)[:, None] for one in (found, right)
    )
    assert (np.abs(out - goal) <= 32 * EPSILON * size[:, None] * max(1.0, float(np.abs(goal).max(initial=0)))).all()


def assert_sums(found: Any, terms: Any) -> None:
    """Sums over the last axis of ``terms``, to a few roundings of the sum of their sizes."""
    terms = np.asarray(terms, np.float64)
    bound = 4 * EPSILON * (1 + np.sqrt(terms.shape[-1])) * np.abs(terms).sum(-1)
    assert found.shape == terms.shape[:-1]
    assert (np.abs(np.asarray(found, np.float64) - terms.sum(-1)) <= bound).all()
