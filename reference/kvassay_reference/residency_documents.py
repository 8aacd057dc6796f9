"""Residency in documents: a replica directory that is asked to release, and the inputs of an attention step.

``RELEASE_RULES`` and ``STEP_RULES`` are the order of precedence: the first rule that a document breaks is the reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from .manifest import Digest, Extent, Natural
from .residency import State

StateName = Literal[
    "GPU_VISIBLE",
    "DEMOTE_RESERVED",
    "COPY_OUT",
    "HOST_VALID",
    "GPU_RELEASED",
    "HOST_RELEASED",
    "PROMOTE_RESERVED",
    "COPY_IN",
    "GPU_STAGED",
    "SECONDARY_VALID",
    "SECONDARY_RELEASED",
    "QUARANTINED",
    "ABORTED",
]
VALID_IN = {
    "device": State.GPU_VISIBLE,
    "host": State.HOST_VALID,
    "secondary": State.SECONDARY_VALID,
    "remote": State.SECONDARY_VALID,
}
"""Tier to the state of a replica there that may be read."""


@dataclass(frozen=True)
class Chunk:
    """What a full copy holds."""

    identity_sha256: Digest
    bytes: Extent
    payload_sha256: Digest


@dataclass(frozen=True)
class Entry:
    """A replica, or what was derived from one."""

    id: str
    kind: Literal["rows", "proxy", "index"]
    tier: Literal["device", "host", "secondary", "remote"]
    state: StateName
    identity_sha256: Digest
    bytes: Natural
    payload_sha256: Digest
    replica_generation: Natural
    allocation_generation: Natural
    authority_epoch: Natural
    lease_generation: Natural
    readers: Natural

    @property
    def readable(self) -> bool:
        """Whether its state is the valid one of its tier."""
        return self.state == VALID_IN[self.tier]


@dataclass(frozen=True)
class Release:
    """What is to be given up, and what its caller has seen."""

    replica: str
    directory_generation: Natural
    authority_epoch: Natural
    successor: str | None


@dataclass(frozen=True)
class Directory:
    """The replicas of one chunk."""

    chunk: Chunk
    directory_generation: Natural
    authority_epoch: Natural
    authoritative_replica: str
    r_min: Extent
    replicas: tuple[Entry, ...]
    release: Release

    def find(self, name: str) -> Entry | None:
        """A replica by its name."""
        return next((one for one in self.replicas if one.id == name), None)

    def copies(self, one: Entry) -> bool:
        """Whether it is a valid copy of the chunk under the current epoch, of whatever kind."""
        chunk = self.chunk
        same = one.identity_sha256 == chunk.identity_sha256
        return one.readable and same and one.authority_epoch == self.authority_epoch

    def full(self, one: Entry) -> bool:
        """Whether the chunk can be recovered from it."""
        chunk = self.chunk
        whole = (one.bytes, one.payload_sha256) == (chunk.bytes, chunk.payload_sha256)
        return one.kind == "rows" and whole and self.copies(one)

    def left(self) -> list[Entry]:
        """What stays."""
        return [one for one in self.replicas if one.id != self.release.replica]


@dataclass(frozen=True)
class Asker:
    """Who asks for a step."""

    owner_sha256: Digest
    cache_generation: Natural


@dataclass(frozen=True)
class Mask:
    """Positions from ``first`` to before ``end``."""

    first: Natural
    end: Natural


@dataclass(frozen=True)
class StepPlan:
    """What is attended to; shapes are heads, rows, channels."""

    owner_sha256: Digest
    cache_generation: Natural
    head_dim: Extent
    k_shape: Annotated[tuple[Natural, ...], 3, 3]
    v_shape: Annotated[tuple[Natural, ...], 3, 3]
    logical_positions: tuple[Natural, ...]
    mask: Mask


@dataclass(frozen=True)
class Handle:
    """One block of rows."""

    slot: Natural
    state: StateName
    cache_generation: Natural
    rows: Extent


@dataclass(frozen=True)
class Selection:
    """How rows were chosen."""

    mode: Literal["exact", "approximate"]
    policy_version: str | None
    candidate_budget: Extent | None


@dataclass(frozen=True)
class Step:
    """The inputs of one attention step of one layer."""

    request: Asker
    plan: StepPlan
    handles: tuple[Handle, ...]
    selection: Selection


ReleaseRule = tuple[str, Callable[[Directory], bool]]
StepRule = tuple[str, Callable[[Step], bool]]
"""A reason, and what must hold."""


def names_once(directory: Directory) -> bool:
    """No two replicas share a name or a generation."""
    names = Counter(one.id for one in directory.replicas)
    lives = Counter(one.replica_generation for one in directory.replicas)
    return max([*names.values(), *lives.values()], default=1) == 1


def something_goes(directory: Directory) -> bool:
    """What is to be released is there and can be read."""
    one = directory.find(directory.release.replica)
    return one is not None and one.readable


def authority_stays(directory: Directory) -> bool:
    """The authority afterwards is another full copy."""
    release = directory.release
    name = directory.authoritative_replica if release.successor is None else release.successor
    one = directory.find(name)
    return one is not None and one.id != release.replica and directory.full(one)


def nobody_reads(directory: Directory) -> bool:
    """No lease is left on what goes."""
    one = directory.find(directory.release.replica)
    return one is None or one.readers == 0


def no_derived_state_counts(directory: Directory) -> bool:
    """The floor is not met by counting proxies and indexes."""
    full = sum(directory.full(one) for one in directory.left())
    derived = sum(one.kind != "rows" and directory.copies(one) for one in directory.left())
    return full >= directory.r_min or full + derived < directory.r_min


RELEASE_RULES: Sequence[ReleaseRule] = (
    ("STALE_DIRECTORY_GENERATION", lambda one: one.release.directory_generation == one.directory_generation),
    ("STALE_AUTHORITY_EPOCH", lambda one: one.release.authority_epoch == one.authority_epoch),
    ("AMBIGUOUS_REPLICA_GENERATION", names_once),
    ("NOTHING_TO_RELEASE", something_goes),
    ("AUTHORITY_NOT_VALID", authority_stays),
    ("RELEASED_UNDER_LEASE", nobody_reads),
    ("DERIVED_STATE_COUNTED", no_derived_state_counts),
    ("REPLICA_FLOOR_UNMET", lambda one: sum(map(one.full, one.left())) >= one.r_min),
)


def shapes_agree(step: Step) -> bool:
    """K, V, positions and blocks are of the same rows."""
    plan = step.plan
    rows = len(plan.logical_positions)
    blocks = sum(handle.rows for handle in step.handles)
    heads = plan.k_shape[0] == plan.v_shape[0] >= 1
    return heads and plan.k_shape[1:] == plan.v_shape[1:] == (rows, plan.head_dim) and blocks == rows


def generations_agree(step: Step) -> bool:
    """Request, plan and every block are of one history."""
    blocks = (handle.cache_generation for handle in step.handles)
    return {step.request.cache_generation, step.plan.cache_generation, *blocks} == {step.plan.cache_generation}


def policy_named(step: Step) -> bool:
    """An approximation says how it was chosen."""
    selection = step.selection
    named = selection.policy_version is not None and selection.candidate_budget is not None
    return selection.mode == "exact" or named


def covers(step: Step) -> bool:
    """An exact step attends to all that its mask allows."""
    mask = step.plan.mask
    return step.selection.mode == "approximate" or len(step.plan.logical_positions) == max(0, mask.end - mask.first)


def budget_kept(step: Step) -> bool:
    """No more rows than the budget says."""
    budget = step.selection.candidate_budget
    return step.selection.mode == "exact" or budget is None or len(step.plan.logical_positions) <= budget


def within(step: Step) -> bool:
    """Every row is allowed by the mask."""
    mask = step.plan.mask
    return all(mask.first <= position < mask.end for position in step.plan.logical_positions)


STEP_RULES: Sequence[StepRule] = (
    ("GATHER_SHAPE_MISMATCH", shapes_agree),
    ("POSITION_TWICE", lambda one: len(set(one.plan.logical_positions)) == len(one.plan.logical_positions)),
    ("POSITION_OUTSIDE_MASK", within),
    ("INPUTS_OF_OTHER_OWNER", lambda one: one.plan.owner_sha256 == one.request.owner_sha256),
    ("ROW_NOT_VISIBLE", lambda one: all(handle.state == State.GPU_VISIBLE for handle in one.handles)),
    ("STALE_CACHE_GENERATION", generations_agree),
    ("POLICY_NOT_NAMED", policy_named),
    ("CANDIDATE_BUDGET_EXCEEDED", budget_kept),
    ("EXACTNESS_OVERCLAIMED", covers),
)


def broken(document: Directory | Step, rules: Sequence[tuple[str, Callable[..., bool]]]) -> Iterator[str]:
    """Reasons of the rules that a document breaks, in their order."""
    return (reason for reason, holds in rules if not holds(document))
