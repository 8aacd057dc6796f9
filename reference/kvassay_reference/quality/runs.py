"""From recorded unit ids to the rows that attention reads."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from array_api_compat import array_namespace

from ..memory.losses import places
from ..memory.rows import check_heads, indices, require
from ..selectors.rows import working

Array = Any
Json = Mapping[str, Any]


@dataclass(frozen=True)
class Run:
    """A recorded run whose form is legal; row i of the arrays stands at ``legal[i]``."""

    said: Json
    legal: tuple[int, ...]
    """Positions that the query may see, ascending."""
    scores: Array
    """Dense scores of the legal rows, [H_q, n], in float32 at least."""
    values: Array | None
    """Values of the legal rows, [n, H_kv, d_v], in the same dtype."""
    lists: int
    """How many lists of units there are."""
    place: tuple[int, ...]
    """The list that each query head reads."""

    @property
    def first(self) -> int:
        """Position of the first row."""
        return int(self.said["first_position"])

    @property
    def end(self) -> int:
        """First position beyond the rows."""
        return self.first + history_rows(self.said)

    def indices_of(self, positions: Collection[int]) -> list[int]:
        """Places of some positions among the legal rows, ascending."""
        wanted = set(positions)
        return [i for i, position in enumerate(self.legal) if position in wanted]


class Chain(NamedTuple):
    """One list of a run, from ids to rows."""

    returned: tuple[int, ...]
    """Candidate ids as the search returned them."""
    chosen: tuple[int, ...]
    expanded: tuple[int, ...]
    """Legal rows of the chosen units, ascending."""
    repeated: int
    """Expanded rows that are persistent as well."""
    support: tuple[int, ...]
    """Rows to attend to, each once, ascending."""


def history_rows(said: Json) -> int:
    """Rows of the history."""
    return int(said["logits"].shape[1] if "logits" in said else said["k"].shape[0])


def check_arrays(said: Json) -> int:
    """Query heads; raises :class:`Refusal` for arrays that do not fit together."""
    axes = {name: n for name, n in (("logits", 2), ("q", 2), ("k", 3), ("v", 3)) if name in said}
    dtypes = {str(said[name].dtype) for name in axes}
    alike = "logits" in said or len(dtypes) == 1
    require(alike and all("float" in name for name in dtypes), "DTYPE_MISMATCH", ", ".join(sorted(dtypes)))
    require(all(said[name].ndim == n for name, n in axes.items()), "SHAPE_MISMATCH", "axes")
    rows, heads = history_rows(said), said["kv_heads"]
    require("q" not in said or said["q"].shape[1] == said["k"].shape[2], "SHAPE_MISMATCH", "channels of q and k")
    for name in ("k", "v"):
        fits = name not in said or tuple(said[name].shape[:2]) == (rows, heads)
        require(fits, "SHAPE_MISMATCH", f"{name} is not of {rows} rows and {heads} K/V heads")
    queries = int(said["logits" if "logits" in said else "q"].shape[0])
    check_heads(said["kv_head_of"], queries, heads)
    return queries


def dense_scores(said: Json, accumulate: str) -> Array:
    """Scores of all rows, [H_q, T]."""
    if "logits" in said:
        return working(said["logits"], wider(said["logits"], accumulate))
    q, k = (working(said[name], wider(said[name], accumulate)) for name in ("q", "k"))
    xp = array_namespace(q, k)
    keys = xp.take(xp.permute_dims(k, (1, 0, 2)), indices(said["kv_head_of"], k), axis=0)
    return said["scale"] * xp.matmul(keys, q[:, :, None])[..., 0]


def wider(array: Array, accumulate: str) -> str:
    """The dtype of the arithmetic: the wanted one, or float64 where the array is in it."""
    return "float64" if array.dtype == array_namespace(array).float64 else accumulate


def check_lists(said: Json, wanted: int) -> None:
    """Refuse lists of another number than the run's readers."""
    for name in ("candidates", "selected", "attended"):
        require(name not in said or len(said[name]) == wanted, "SHAPE_MISMATCH", f"lists of {name}")
    if said["unit"]["kind"] == "cluster":
        require(len(said["unit"]["members"]) in (1, wanted), "SHAPE_MISMATCH", "sets of clusters")


def read(said: Json, accumulate: str = "float32") -> Run:
    """The run; raises :class:`Refusal` for what is none."""
    queries = check_arrays(said)
    wanted, place = places(said["per"], said["kv_head_of"], said["kv_heads"])
    check_lists(said, wanted)
    hidden, first = set(said.get("hidden", ())), said["first_position"]
    seen = [row for row in range(history_rows(said)) if first + row not in hidden]
    require(bool(seen), "NO_LEGAL_ROWS", "every row is hidden")
    whole = dense_scores(said, accumulate)
    xp = array_namespace(whole)
    scores = xp.take(whole, indices(seen, whole), axis=1)
    require(not queries or bool(xp.all(xp.isfinite(scores))), "LOGITS_NOT_FINITE", "a legal row's score")
    values = None
    if "v" in said:
        v = xp.take(said["v"], indices(seen, said["v"]), axis=0)
        values = xp.astype(v, scores.dtype)
    return Run(said, tuple(first + row for row in seen), scores, values, wanted, tuple(place))


def pages(first: int, end: int, size: int) -> list[range]:
    """Pages of one size from the first row on; the last one ends with the rows."""
    return [range(begin, min(begin + size, end)) for begin in range(first, end, size)]


def units(run: Run, which: int) -> list[Sequence[int]]:
    """Positions of each unit of one list, hidden ones included, by the unit's id; a row is its own unit."""
    unit = run.said["unit"]
    if unit["kind"] == "page":
        return list(pages(run.first, run.end, unit["rows"]))
    if unit["kind"] == "span":
        require(all(begin < end for begin, end in unit["spans"]), "SPANS_NOT_ASCENDING", "an empty span")
        found: list[Sequence[int]] = [range(begin, end) for begin, end in unit["spans"]]
    else:
        sets = unit["members"]
        found = [list(one) for one in sets[which if len(sets) > 1 else 0]]
    named = [position for one in found for position in one]
    require(all(run.first <= one < run.end for one in named), "SUPPORT_BEYOND_COMMIT", "a unit leaves the history")
    require(len(named) == len(set(named)), "UNITS_OVERLAP", "a row stands in two units")
    return found


def check_rows(run: Run, positions: Sequence[int], beyond: str) -> None:
    """Refuse positions outside of the history, and then hidden ones."""
    require(all(run.first <= one < run.end for one in positions), beyond, f"rows are {run.first} to {run.end - 1}")
    require(set(positions) <= set(run.legal), "CANDIDATE_HIDDEN", "the query may not see it")


def expand(run: Run, which: int, returned: Sequence[int], chosen: Sequence[int]) -> list[int]:
    """Legal rows of the chosen units, ascending."""
    if run.said["unit"]["kind"] == "row":
        check_rows(run, [*returned, *chosen], "UNKNOWN_UNIT")
        return sorted(set(chosen))
    known, legal = units(run, which), set(run.legal)
    require(all(0 <= one < len(known) for one in [*returned, *chosen]), "UNKNOWN_UNIT", f"there are {len(known)}")
    return sorted({position for one in chosen for position in known[one] if position in legal})


def union(expanded: Sequence[int], persistent: Sequence[int]) -> tuple[int, ...]:
    """Each row once, ascending: a row that is read twice would weigh twice."""
    return tuple(sorted({*expanded, *persistent}))


def check_attended(read: Sequence[int], support: Sequence[int]) -> None:
    """Refuse an attention that read a row twice, a row that was not chosen, or not all of them."""
    require(len(set(read)) == len(read), "ROW_TWICE", "attention read a row twice")
    require(set(read) <= set(support), "SUPPORT_MISMATCH", "attention read a row outside of the support")
    require(len(read) == len(support), "SILENT_PARTIAL_SUPPORT", "attention went on without all rows")


def chain(run: Run, which: int) -> Chain:
    """One list from ids to rows; raises :class:`Refusal` where a step does not follow from the one before."""
    said = run.said
    chosen = tuple(said["selected"][which])
    returned = tuple(said["candidates"][which]) if "candidates" in said else chosen
    expanded = expand(run, which, returned, chosen)
    require(len(set(chosen)) == len(chosen), "DUPLICATE_UNIT", f"{list(chosen)}")
    require(set(chosen) <= set(returned), "UNIT_NOT_A_CANDIDATE", f"{list(chosen)} of {list(returned)}")
    check_rows(run, said["persistent"], "SUPPORT_BEYOND_COMMIT")
    support = union(expanded, said["persistent"])
    if "attended" in said:
        check_attended(said["attended"][which], support)
    return Chain(returned, chosen, tuple(expanded), len(set(expanded) & set(said["persistent"])), support)


def chains(run: Run) -> list[Chain]:
    """All lists of a run."""
    return [chain(run, which) for which in range(run.lists)]


def dense_top(run: Run, head: int, count: int) -> tuple[int, ...]:
    """Positions of the largest dense scores of a query head, ascending; of equals the lower positions."""
    xp = array_namespace(run.scores)
    order = xp.argsort(-run.scores[head, :], stable=True)
    return tuple(sorted(run.legal[int(i)] for i in order[: min(count, len(run.legal))]))


def recall(found: Collection[int], wanted: Collection[int]) -> float:
    """Share of the wanted rows that were found."""
    return len(set(found) & set(wanted)) / len(wanted)
