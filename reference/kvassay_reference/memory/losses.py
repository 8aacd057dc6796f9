"""What a selection costs, and what it loses against attention over all rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from array_api_compat import array_namespace

from ..attention import Mask, State, log_sum_exp, output, partial
from .rows import Array, check_axes, check_heads, check_history, group_matrix, indices, listed, ranked, require, wide

SEES_ALL = Mask(causal=False)


class Kept(NamedTuple):
    """Attention over a support, beside attention over all committed rows; one entry a query head."""

    out: Array
    lse: Array
    retained_mass: Array
    """Share of the dense softmax that the support holds."""
    output_error: Array
    """Euclidean distance from the dense output."""


def over(q: Array, k: Array, v: Array, kv_head_of: Sequence[int], scale: float, rows: Sequence[int]) -> State:
    """State of some rows of a history."""
    taken = indices(rows, k)
    xp = array_namespace(k)
    wider = "float64" if k.dtype == xp.float64 else "float32"
    return partial(
        q,
        xp.take(k, taken, axis=0),
        xp.take(v, taken, axis=0),
        scale=scale,
        kv_head_of=kv_head_of,
        positions=taken,
        q_position=0,
        mask=SEES_ALL,
        accumulate=wider,
    )


def check_support(support: Sequence[int], first: int, committed: int) -> None:
    """Refuse a support that is empty, names a row twice, or reaches beyond the committed rows."""
    require(len(support) > 0, "EMPTY_SUPPORT", "no row to attend to")
    require(len(set(support)) == len(support), "ROW_TWICE", "a row of a support counts once")
    legal = all(first <= position < committed for position in support)
    require(legal, "SUPPORT_BEYOND_COMMIT", f"rows {first} to {committed} are committed")


def places(per: str, kv_head_of: Sequence[int], kv_heads: int) -> tuple[int, list[int]]:
    """How many supports there are, and which of them each query head reads."""
    if per == "all":
        return 1, [0] * len(kv_head_of)
    if per == "kv_head":
        return kv_heads, list(kv_head_of)
    return len(kv_head_of), list(range(len(kv_head_of)))


def attend(
    q: Array,
    k: Array,
    v: Array,
    kv_head_of: Sequence[int],
    supports: Sequence[Sequence[int]],
    *,
    per: str,
    scale: float,
    first_position: int,
    committed: int,
) -> Kept:
    """Attention over selected rows; row 0 of k and v stands at ``first_position``."""
    check_history(k, v)
    check_axes(q, 2, k, "q")
    check_heads(kv_head_of, q.shape[0], k.shape[1])
    inside = first_position <= committed <= first_position + k.shape[0]
    require(inside, "SUPPORT_BEYOND_COMMIT", "the frontier lies beyond the rows")
    for support in supports:
        check_support(support, first_position, committed)
    wanted, place = places(per, kv_head_of, k.shape[1])
    require(len(supports) == wanted, "SHAPE_MISMATCH", f"{len(supports)} supports, {wanted} lists are read")
    xp = array_namespace(q, k, v)
    dense = over(q, k, v, kv_head_of, scale, range(committed - first_position))
    states = [over(q, k, v, kv_head_of, scale, [p - first_position for p in support]) for support in supports]
    picked = [State(*(part[head : head + 1, ...] for part in states[place[head]])) for head in range(q.shape[0])]
    kept = State(*(xp.concat(parts) for parts in zip(*picked, strict=True)))
    difference = output(kept) - output(dense)
    return Kept(
        output(kept),
        log_sum_exp(kept),
        xp.exp(log_sum_exp(kept) - log_sum_exp(dense)),
        xp.sqrt(xp.sum(difference * difference, axis=-1)),
    )


def search(
    q: Array, k: Array, kv_head_of: Sequence[int], *, scale: float, initial_rows: int, local_rows: int, budget: int
) -> list[list[int]]:
    """By K/V head: initial and local rows, and the rows between that hold most of the group's softmax."""
    check_history(k)
    check_axes(q, 2, k, "q")
    check_heads(kv_head_of, q.shape[0], k.shape[1])
    xp = array_namespace(q, k)
    total, window = k.shape[0], k.shape[0] - local_rows
    require(0 <= initial_rows <= window, "SHAPE_MISMATCH", "initial and local rows overlap")
    keys = xp.take(xp.permute_dims(wide(k), (1, 0, 2)), indices(kv_head_of, k), axis=0)
    scores = scale * xp.matmul(keys, wide(q)[:, :, None])[..., 0]
    weights = xp.exp(scores - xp.max(scores, axis=-1, keepdims=True))
    shares = weights / xp.sum(weights, axis=-1, keepdims=True)
    by_head = xp.matmul(group_matrix(kv_head_of, k.shape[1], shares), shares)[:, initial_rows:window]
    found = []
    for head in range(k.shape[1]):
        picked = listed(xp.sort(ranked(by_head[head, :])[:budget]))
        found.append([*range(initial_rows), *(initial_rows + i for i in picked), *range(window, total)])
    return found


def expand(spans: Sequence[Sequence[int]], committed: int) -> tuple[list[int], int]:
    """Positions of several spans, each once and in order, and how many stood more than once."""
    for first, end in spans:
        require(first < end, "SPANS_NOT_ASCENDING", f"{first} to {end}")
        require(end <= committed, "SUPPORT_BEYOND_COMMIT", f"{end} of {committed} rows")
    named = [position for first, end in spans for position in range(first, end)]
    found = sorted(set(named))
    return found, len(named) - len(found)


@dataclass(frozen=True)
class Cost:
    """Bytes of search and of recall, and the time that is spent before attention."""

    representative_bytes: int
    selected_bytes: int
    stored_bytes: int
    recalled_rows: int
    decision_ms: float


def cost(ask: Mapping[str, Any]) -> Cost:
    """Bytes over all K/V heads of a layer; a decision is boundary work, lookup, expansion and gather."""
    key = ask["kv_heads"] * ask["head_dim"] * ask["key_bytes"]
    row = ask["kv_heads"] * ask["head_dim"] * (ask["key_bytes"] + ask["value_bytes"])
    recalled = min(ask["selected_units"], ask["units"]) * ask["unit_rows"]
    terms = ask["decision_ms"]
    return Cost(
        ask["units"] * ask["representatives"] * key,
        recalled * row,
        ask["units"] * ask["unit_rows"] * row,
        recalled,
        sum(terms[name] for name in ("boundary", "lookup", "expansion", "gather")),
    )
