"""What a tier is worth, in which state each row of a step is, and how two runs compare."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from .errors import Refusal

MIB = 1 << 20


@dataclass(frozen=True)
class Tier:
    """A place for a chunk; times and prices in milliseconds."""

    tier: str
    promote_ms: float
    room_ms_per_mib: float
    write_ms: float
    free_bytes: int


@dataclass(frozen=True)
class Reuse:
    """A chunk and what is expected of it."""

    bytes: int
    reuse_probability: float
    recompute_ms: float


def value_ms(chunk: Reuse, tier: Tier) -> float:
    """V: expected saving, less room and write."""
    saved = chunk.reuse_probability * (chunk.recompute_ms - tier.promote_ms)
    return saved - tier.room_ms_per_mib * chunk.bytes / MIB - tier.write_ms


def choose(chunk: Reuse, tiers: Sequence[Tier], values: Sequence[float]) -> str | None:
    """The first tier of the largest positive value that has room."""
    fit = [(value, -index) for index, value in enumerate(values) if tiers[index].free_bytes >= chunk.bytes]
    best, place = max(fit, default=(0.0, 0))
    return tiers[-place].tier if best > 0 else None


def row_states(
    positions: int,
    visible: Iterable[int],
    recoverable: Iterable[int],
    in_transfer: Iterable[int],
    selected: Iterable[int] | None,
) -> list[str]:
    """State of each committed row; raises :class:`Refusal` for one that is nowhere or not committed."""
    here, there, moving = set(visible), set(recoverable), set(in_transfer)
    wanted = set(range(positions)) if selected is None else set(selected)
    named = here | there | moving | wanted
    if any(position >= positions for position in named):
        raise Refusal("CANDIDATE_OUT_OF_RANGE", str(max(named)))
    states = []
    for position in range(positions):
        if position not in here | there:
            raise Refusal("SUPPORT_NOT_RECOVERABLE", str(position))
        if position not in wanted:
            states.append("absent")
        elif position in here:
            states.append("visible")
        else:
            states.append("not-ready" if position in moving else "preserved")
    return states


def differences(layers: Iterable[tuple[Sequence[float], Sequence[float]]]) -> list[float]:
    """Largest absolute difference of each layer, in float64; raises :class:`Refusal` for unequal lengths."""
    found = []
    for number, (baseline, candidate) in enumerate(layers):
        if len(baseline) != len(candidate):
            raise Refusal("SHAPE_MISMATCH", f"layer {number}")
        gap = np.abs(np.asarray(baseline, np.float64) - np.asarray(candidate, np.float64))
        found.append(float(gap.max(initial=0.0)))
    return found
