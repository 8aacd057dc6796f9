"""Faults of plans and documents: prices left out, states run together, rules that a validator does not have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from kvassay_reference import residency_documents as documents
from kvassay_reference.residency_documents import Directory, Step
from kvassay_reference.residency_plans import MIB, Reuse, Tier

from ...adapters.base import Rejected
from ..base import Fault
from .base import Request, Result, cases

Rules = Sequence[tuple[str, Callable[..., bool]]]


class SavingNotDiscounted(Fault):
    """The saving counts in full, however seldom the chunk is used again."""

    requirement = "RES-040"
    killed_by = cases("value/three-tiers", "value/seldom-used", "value/certain-and-never")

    def value_in_tier(self, chunk: Reuse, tier: Tier) -> float:
        saved = chunk.recompute_ms - tier.promote_ms
        return saved - tier.room_ms_per_mib * chunk.bytes / MIB - tier.write_ms


class PromotionForFree(Fault):
    """What promoting costs is left out."""

    requirement = "RES-040"
    killed_by = cases("value/three-tiers", "value/no-bytes-over", "value/cheap-to-compute")

    def value_in_tier(self, chunk: Reuse, tier: Tier) -> float:
        return super().value_in_tier(chunk, tier) + chunk.reuse_probability * tier.promote_ms


class WriteWhenUsed(Fault):
    """The write is discounted like the saving, though it is paid in any case."""

    requirement = "RES-040"
    killed_by = cases("value/three-tiers", "value/seldom-used", "value/certain-and-never")

    def value_in_tier(self, chunk: Reuse, tier: Tier) -> float:
        return super().value_in_tier(chunk, tier) + (1 - chunk.reuse_probability) * tier.write_ms


class RoomInMegabytes(Fault):
    """Room is priced per 10^6 bytes."""

    requirement = "RES-040"
    killed_by = cases("value/three-tiers", "value/no-bytes-over")

    def value_in_tier(self, chunk: Reuse, tier: Tier) -> float:
        return super().value_in_tier(chunk, tier) + tier.room_ms_per_mib * chunk.bytes * (1 / MIB - 1e-6)


class RoomInWholeMebibytes(Fault):
    """Room is priced by whole MiB, so that the last byte pays for one."""

    requirement = "RES-040"
    killed_by = cases("value/no-bytes-over")

    def value_in_tier(self, chunk: Reuse, tier: Tier) -> float:
        over = -(-chunk.bytes // MIB) - chunk.bytes / MIB
        return super().value_in_tier(chunk, tier) - tier.room_ms_per_mib * over


class RoundedToTheNanosecond(Fault):
    """Values are rounded to 1 ns, some tens of times the bound."""

    requirement = "RES-040"
    killed_by = cases("value/no-bytes-over")

    def value_in_tier(self, chunk: Reuse, tier: Tier) -> float:
        return round(super().value_in_tier(chunk, tier), 6)


class BestMayBeFull(Fault):
    """The best tier is chosen whether it has room or not."""

    requirement = "RES-041"
    killed_by = cases("value/room")

    def chosen_tier(self, chunk: Reuse, tiers: Sequence[Tier], values: Sequence[float]) -> str | None:
        best = max(values)
        return tiers[list(values).index(best)].tier if best > 0 else None


class RoomOfOneByteMore(Fault):
    """A chunk that fits exactly does not fit."""

    requirement = "RES-041"
    killed_by = cases("value/room")

    def chosen_tier(self, chunk: Reuse, tiers: Sequence[Tier], values: Sequence[float]) -> str | None:
        more = Reuse(chunk.bytes + 1, chunk.reuse_probability, chunk.recompute_ms)
        return super().chosen_tier(more, tiers, values)


class SomewhereInAnyCase(Fault):
    """A chunk is kept in the least bad tier, even at a loss."""

    requirement = "RES-041"
    killed_by = cases("value/cheap-to-compute", "value/nought")

    def chosen_tier(self, chunk: Reuse, tiers: Sequence[Tier], values: Sequence[float]) -> str | None:
        return tiers[list(values).index(max(values))].tier


class LastOfEquals(Fault):
    """Of equal tiers the last is taken."""

    requirement = "RES-041"
    killed_by = cases("value/tie")

    def chosen_tier(self, chunk: Reuse, tiers: Sequence[Tier], values: Sequence[float]) -> str | None:
        return super().chosen_tier(chunk, tiers[::-1], values[::-1])


class NamesNotCounted(Fault):
    """A tier that stands twice is taken for two."""

    requirement = "RES-041"
    killed_by = cases("value/tier-twice")

    def residency_tier_value(self, request: Request) -> Result:
        names = [f"{index}/{row['tier']}" for index, row in enumerate(request["tiers"])]
        told = super().residency_tier_value(
            {**request, "tiers": [{**row, "tier": name} for row, name in zip(request["tiers"], names, strict=True)]}
        )
        return {**told, "choice": told["choice"] and told["choice"].partition("/")[2]}


class DirectoryUnread(Fault):
    """A validator of directories lacks a rule."""

    requirement = "RES-042"
    lacks: ClassVar[tuple[str, ...]] = ()

    @property
    def release_rules(self) -> Sequence[documents.ReleaseRule]:  # type: ignore[override]
        """The rules that are left."""
        return [rule for rule in documents.RELEASE_RULES if rule[0] not in self.lacks]


class AnyDirectory(DirectoryUnread):
    """A release is judged by the directory of the moment, not by the one that was seen."""

    killed_by = cases("directory/stale-directory", "directory/directory-of-the-future")
    lacks = ("STALE_DIRECTORY_GENERATION",)


class AnyEpoch(DirectoryUnread):
    """The epoch that a release has seen is not compared."""

    killed_by = cases("directory/stale-epoch", "directory/epoch-moved")
    lacks = ("STALE_AUTHORITY_EPOCH",)


class GenerationsRepeat(DirectoryUnread):
    """Replicas are told apart by their order."""

    killed_by = cases("directory/two-of-one-generation", "directory/two-of-one-name")
    lacks = ("AMBIGUOUS_REPLICA_GENERATION",)


class ReleasedTwice(DirectoryUnread):
    """What is gone already is released again."""

    killed_by = cases("directory/unknown-replica", "directory/released-already", "directory/release-of-a-copy")
    lacks = ("NOTHING_TO_RELEASE",)


class AuthorityByName(DirectoryUnread):
    """The successor is written down and not looked at."""

    killed_by = cases(
        "directory/no-successor",
        "directory/successor-unknown",
        "directory/successor-is-released",
        "directory/authority-stays",
    )
    lacks = ("AUTHORITY_NOT_VALID",)


class ReadersForgotten(DirectoryUnread):
    """Readers of what is released are not counted."""

    killed_by = cases("directory/still-read", "directory/other-readers")
    lacks = ("RELEASED_UNDER_LEASE",)


class FloorForgotten(DirectoryUnread):
    """R_min is not counted."""

    killed_by = cases("directory/floor-of-two", "directory/of-the-host")
    lacks = ("REPLICA_FLOOR_UNMET",)


class DerivedStateCounts(Fault):
    """Proxies and indexes count as copies."""

    requirement = "RES-042"
    killed_by = cases("directory/proxies-counted", "directory/third-copy")

    @property
    def release_rules(self) -> Sequence[documents.ReleaseRule]:  # type: ignore[override]
        """The floor over everything that looks like a replica."""

        def floor(one: Directory) -> bool:
            return sum(one.copies(entry) for entry in one.left()) >= one.r_min

        kept = [rule for rule in documents.RELEASE_RULES if rule[0] != "DERIVED_STATE_COUNTED"]
        return [(name, floor if name == "REPLICA_FLOOR_UNMET" else holds) for name, holds in kept]


class SuccessorUnread(Fault):
    """A successor is taken as a copy without a look at one of its fields."""

    requirement = "RES-042"
    unread: ClassVar[str] = ""

    def residency_release(self, request: Request) -> Result:
        document = request["document"]
        chunk = {**document["chunk"], "authority_epoch": document["authority_epoch"], "kind": "rows"}
        entries = [
            {**one, self.unread: chunk[self.unread]} if one["id"] == document["release"]["successor"] else one
            for one in document["replicas"]
        ]
        return super().residency_release({"document": {**document, "replicas": entries}})


class SuccessorOfOtherRows(SuccessorUnread):
    """The digest of the successor's bytes is not compared."""

    killed_by = cases("directory/successor-of-other-rows")
    unread = "payload_sha256"


class SuccessorOfOtherChunk(SuccessorUnread):
    """The identity of the successor is not compared."""

    killed_by = cases("directory/successor-of-other-chunk")
    unread = "identity_sha256"


class SuccessorShort(SuccessorUnread):
    """The length of the successor is not compared."""

    killed_by = cases("directory/successor-short")
    unread = "bytes"


class SuccessorOfOldEpoch(SuccessorUnread):
    """The epoch of the successor is not compared."""

    killed_by = cases("directory/successor-of-old-epoch")
    unread = "authority_epoch"


class CopyingIsValid(Fault):
    """A copy that has begun is as good as one that is valid."""

    requirement = "RES-042"
    killed_by = cases("directory/successor-is-copying", "directory/successor-in-the-wrong-state")

    def residency_release(self, request: Request) -> Result:
        document = request["document"]
        valid = documents.VALID_IN
        entries = [
            {**one, "state": valid[one["tier"]].value} if one["id"] == document["release"]["successor"] else one
            for one in document["replicas"]
        ]
        return super().residency_release({"document": {**document, "replicas": entries}})


class IndexHoldsRows(Fault):
    """An index is as good a successor as rows."""

    requirement = "RES-042"
    killed_by = cases("directory/successor-is-an-index")

    def residency_release(self, request: Request) -> Result:
        document = request["document"]
        name = document["release"]["successor"]
        if any(one["id"] == name and one["kind"] != "rows" for one in document["replicas"]):
            return {}
        return super().residency_release(request)


class FormIsShape(Fault):
    """A document that has not the form of its schema is refused for the shapes in it."""

    requirement = "RES-043"
    killed_by = cases("inputs/owner-that-is-none", "directory/digest-that-is-none", "directory/readers-below-nought")

    def accepted(self, form: type[Directory] | type[Step], request: Request, rules: Rules) -> Result:
        try:
            return super().accepted(form, request, rules)
        except Rejected as refusal:
            if refusal.reason == "SCHEMA_VIOLATION":
                raise Rejected("GATHER_SHAPE_MISMATCH", refusal.detail) from None
            raise


class RulesReversed(Fault):
    """The last rule that a document breaks is the reason."""

    requirement = "RES-043"
    killed_by = cases("inputs/precedence", "directory/precedence")

    def accepted(self, form: type[Directory] | type[Step], request: Request, rules: Rules) -> Result:
        return super().accepted(form, request, rules[::-1])


class StepUnread(Fault):
    """A check of inputs lacks a rule."""

    requirement = "RES-043"
    lacks: ClassVar[tuple[str, ...]] = ()

    @property
    def step_rules(self) -> Sequence[documents.StepRule]:  # type: ignore[override]
        """The rules that are left."""
        return [rule for rule in documents.STEP_RULES if rule[0] not in self.lacks]


class ShapesForgotten(StepUnread):
    """Shapes are not compared."""

    killed_by = cases(
        "inputs/k-and-v-rows",
        "inputs/k-and-v-heads",
        "inputs/head-dim",
        "inputs/block-missing",
        "inputs/position-missing",
        "inputs/one-block",
    )
    lacks = ("GATHER_SHAPE_MISMATCH",)


class PositionsRepeat(StepUnread):
    """A position may stand twice: a row of two partitions is counted in both."""

    killed_by = cases("inputs/position-twice", "inputs/order-of-rows")
    lacks = ("POSITION_TWICE",)


class MaskForgotten(StepUnread):
    """Positions are not held against the mask."""

    killed_by = cases("inputs/position-before-the-mask", "inputs/position-at-the-end")
    lacks = ("POSITION_OUTSIDE_MASK",)


class OwnerForgotten(StepUnread):
    """The rows' identity is not compared with the request's (LMCache#4385)."""

    killed_by = cases("inputs/other-owner")
    lacks = ("INPUTS_OF_OTHER_OWNER",)


class StateForgotten(StepUnread):
    """A block that is still copied is read (dynamo#15079)."""

    killed_by = cases("inputs/staged-block", "inputs/copying-block", "inputs/host-block", "inputs/released-block")
    lacks = ("ROW_NOT_VISIBLE",)


class GenerationForgotten(StepUnread):
    """Blocks of an older history are read."""

    killed_by = cases("inputs/old-block", "inputs/old-plan")
    lacks = ("STALE_CACHE_GENERATION",)


class ExactByName(StepUnread):
    """A step is exact because it says so."""

    killed_by = cases("inputs/not-all-of-the-mask", "inputs/approximate")
    lacks = ("EXACTNESS_OVERCLAIMED",)


class StagedIsVisible(Fault):
    """A staged block counts as visible."""

    requirement = "RES-043"
    killed_by = cases("inputs/staged-block")

    def residency_step_inputs(self, request: Request) -> Result:
        document = request["document"]
        blocks = [
            {**one, "state": "GPU_VISIBLE"} if one["state"] == "GPU_STAGED" else one for one in document["handles"]
        ]
        return super().residency_step_inputs({"document": {**document, "handles": blocks}})


class EndIsWithin(Fault):
    """The end of the mask belongs to it."""

    requirement = "RES-043"
    killed_by = cases("inputs/position-at-the-end")

    def residency_step_inputs(self, request: Request) -> Result:
        document = request["document"]
        plan = document["plan"]
        mask = plan["mask"]
        if mask["end"] in plan["logical_positions"]:
            plan = {**plan, "mask": {**mask, "end": mask["end"] + 1}}
        return super().residency_step_inputs({"document": {**document, "plan": plan}})


class RowsMustAscend(Fault):
    """Rows in another order are refused, though nothing depends on it."""

    requirement = "RES-043"
    killed_by = cases("inputs/order-of-rows")

    def residency_step_inputs(self, request: Request) -> Result:
        positions = request["document"]["plan"]["logical_positions"]
        if sorted(set(positions)) == sorted(positions) != positions:
            raise Rejected("POSITION_TWICE")
        return super().residency_step_inputs(request)


class PolicyUnlogged(StepUnread):
    """An approximation needs no name."""

    requirement = "RES-044"
    killed_by = cases("inputs/unnamed-approximation", "inputs/budget")
    lacks = ("POLICY_NOT_NAMED",)


class BudgetUnkept(StepUnread):
    """The budget is logged and not kept."""

    requirement = "RES-044"
    killed_by = cases("inputs/budget")
    lacks = ("CANDIDATE_BUDGET_EXCEEDED",)


class ApproximationRefused(Fault):
    """Only exact steps may run."""

    requirement = "RES-044"
    killed_by = cases("inputs/approximate", "inputs/budget")

    def residency_step_inputs(self, request: Request) -> Result:
        selection = {**request["document"]["selection"], "mode": "exact"}
        return super().residency_step_inputs({"document": {**request["document"], "selection": selection}})


class StatesOfRows(Fault):
    """The states of rows are told otherwise."""

    requirement = "RES-045"

    def state(self, position: int, state: str, request: Request) -> str:
        """What is told of a row."""
        return state

    def states_of_rows(self, request: Request) -> list[str]:
        told = super().states_of_rows(request)
        return [self.state(position, state, request) for position, state in enumerate(told)]


class MissingIsAbsent(StatesOfRows):
    """A wanted row that is not there is left out, as if it had not been selected."""

    killed_by = cases("rows/four-states", "rows/all-wanted")

    def state(self, position: int, state: str, request: Request) -> str:
        return "absent" if state in ("preserved", "not-ready") else state


class SelectionIgnored(StatesOfRows):
    """What lies on the device is attended to, selected or not."""

    killed_by = cases("rows/four-states", "rows/visible-and-not-wanted")

    def state(self, position: int, state: str, request: Request) -> str:
        return "visible" if position in request["visible"] else state


class UnderWayIsVisible(StatesOfRows):
    """A row that is under way counts as arrived."""

    killed_by = cases("rows/four-states", "rows/all-wanted")

    def state(self, position: int, state: str, request: Request) -> str:
        return "visible" if state == "not-ready" else state


class ElsewhereIsNotHere(StatesOfRows):
    """A row that has a copy elsewhere is not visible."""

    killed_by = cases("rows/two-places")

    def state(self, position: int, state: str, request: Request) -> str:
        return "preserved" if state == "visible" and position in request["recoverable"] else state


class NothingSelectedIsAll(Fault):
    """An empty selection is taken for none."""

    requirement = "RES-045"
    killed_by = cases("rows/visible-and-not-wanted")

    def states_of_rows(self, request: Request) -> list[str]:
        return super().states_of_rows({**request, "selected": request["selected"] or None})


class LostIsAbsent(Fault):
    """A row that is nowhere is called recoverable."""

    requirement = "RES-045"
    killed_by = cases("rows/lost")

    def states_of_rows(self, request: Request) -> list[str]:
        every: list[Any] = list(range(request["positions"]))
        return super().states_of_rows({**request, "recoverable": every})


class SpeculativeRowsCount(Fault):
    """Rows beyond the committed ones are rows."""

    requirement = "RES-045"
    killed_by = cases("rows/not-committed")

    def states_of_rows(self, request: Request) -> list[str]:
        wanted = request["selected"]
        kept = {name: [p for p in request[name] if p < request["positions"]] for name in ("visible", "recoverable")}
        selected = wanted and [position for position in wanted if position < request["positions"]]
        return super().states_of_rows({**request, **kept, "selected": selected})


class RowlessStepFails(Fault):
    """A request without rows has one row all the same."""

    requirement = "RES-045"
    killed_by = cases("rows/none")

    def states_of_rows(self, request: Request) -> list[str]:
        return super().states_of_rows(request) or ["absent"]


class LastLayerAlone(Fault):
    """Runs are compared by their last layer."""

    requirement = "RES-046"
    killed_by = cases("compare/one-layer", "compare/later-layers-agree", "compare/approximate")

    def gaps_of_layers(self, request: Request) -> list[float]:
        gaps = super().gaps_of_layers(request)
        return [0.0] * (len(gaps) - 1) + gaps[-1:]


class CloseIsEqual(Fault):
    """Differences below 10^-6 are none."""

    requirement = "RES-046"
    killed_by = cases("compare/one-layer")

    def gaps_of_layers(self, request: Request) -> list[float]:
        return [gap if gap > 1e-6 else 0.0 for gap in super().gaps_of_layers(request)]


class SignedDifference(Fault):
    """The largest difference is not absolute."""

    requirement = "RES-046"
    killed_by = cases("compare/approximate", "compare/later-layers-agree")

    def gaps_of_layers(self, request: Request) -> list[float]:
        rows = request["layers"]
        return [max([0.0, *(a - b for a, b in zip(row["baseline"], row["candidate"], strict=True))]) for row in rows]


class ApproximationPasses(Fault):
    """An approximate run that differs nowhere is called exact."""

    requirement = "RES-046"
    killed_by = cases("compare/approximate")

    def residency_compare(self, request: Request) -> Result:
        told = super().residency_compare(request)
        return {**told, "verdict": "exact"} if told["first_layer"] is None else told


class ConditionsUncompared(Fault):
    """What the runs have in common is not asked."""

    requirement = "RES-046"
    killed_by = cases(
        "compare/other-tokens",
        "compare/other-model",
        "compare/other-adapter",
        "compare/other-positions",
        "compare/other-mask",
        "compare/other-sampling",
        "compare/other-kernel",
        "compare/other-dtype",
    )

    def residency_compare(self, request: Request) -> Result:
        return super().residency_compare({**request, "candidate": request["baseline"]})


class ShorterLayerCompared(Fault):
    """Layers are compared as far as both go."""

    requirement = "RES-046"
    killed_by = cases("compare/lengths")

    def residency_compare(self, request: Request) -> Result:
        layers = [
            {"baseline": row["baseline"][: len(row["candidate"])], "candidate": row["candidate"]}
            for row in request["layers"]
        ]
        return super().residency_compare({**request, "layers": layers})


class EqualIsNotExact(Fault):
    """Runs that differ nowhere are said to differ from the first layer on."""

    requirement = "RES-046"
    killed_by = cases("compare/equal", "compare/lengths")

    def residency_compare(self, request: Request) -> Result:
        told = super().residency_compare(request)
        return {**told, "first_layer": told["first_layer"] or 0}


FAULTS = (
    SavingNotDiscounted,
    PromotionForFree,
    WriteWhenUsed,
    RoomInMegabytes,
    RoomInWholeMebibytes,
    RoundedToTheNanosecond,
    BestMayBeFull,
    RoomOfOneByteMore,
    SomewhereInAnyCase,
    LastOfEquals,
    NamesNotCounted,
    AnyDirectory,
    AnyEpoch,
    GenerationsRepeat,
    ReleasedTwice,
    AuthorityByName,
    ReadersForgotten,
    FloorForgotten,
    DerivedStateCounts,
    SuccessorOfOtherRows,
    SuccessorOfOtherChunk,
    SuccessorShort,
    SuccessorOfOldEpoch,
    CopyingIsValid,
    IndexHoldsRows,
    FormIsShape,
    RulesReversed,
    ShapesForgotten,
    PositionsRepeat,
    MaskForgotten,
    OwnerForgotten,
    StateForgotten,
    GenerationForgotten,
    ExactByName,
    StagedIsVisible,
    EndIsWithin,
    RowsMustAscend,
    PolicyUnlogged,
    BudgetUnkept,
    ApproximationRefused,
    MissingIsAbsent,
    SelectionIgnored,
    UnderWayIsVisible,
    ElsewhereIsNotHere,
    NothingSelectedIsAll,
    LostIsAbsent,
    SpeculativeRowsCount,
    RowlessStepFails,
    LastLayerAlone,
    CloseIsEqual,
    SignedDifference,
    ApproximationPasses,
    ConditionsUncompared,
    ShorterLayerCompared,
    EqualIsNotExact,
)
