"""Faults of *Bytes* (OFF-004 to OFF-011)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from kvassay_reference import offload
from kvassay_reference.offload import LayerLedger, Plan, Rule, Traffic

from ..base import Fault, found
from .base import Request, Result, case, with_layers


class DenseRows(Fault):
    """Every row is taken for 8 heads of 128 channels in 16 bits."""

    requirement = "OFF-004"
    killed_by = case("ledger/declared-row", "ledger/quantised-row", "ledger/widths-differ")

    def read_plan(self, plan: Request) -> Plan:
        return with_layers(super().read_plan(plan), row_bytes=4096)


class FirstLayersRows(Fault):
    """The first layer's geometry is taken for all."""

    requirement = "OFF-004"
    killed_by = case("ledger/layers-differ")

    def read_plan(self, plan: Request) -> Plan:
        made = super().read_plan(plan)
        return with_layers(made, row_bytes=made.layers[0].row_bytes) if made.layers else made


class TwiceK(Fault):
    """K and V are taken to be equally wide."""

    requirement = "OFF-004"
    killed_by = case("ledger/widths-differ")

    def read_plan(self, plan: Request) -> Plan:
        made = super().read_plan(plan)
        rows = [layer["row"] for layer in plan["layers"]]
        layers = (
            replace(one, row_bytes=2 * row["kv_heads"] * row["channels"] * row["k_item_bytes"])
            if row["form"] == "dense"
            else one
            for one, row in zip(made.layers, rows, strict=True)
        )
        return replace(made, layers=tuple(layers))


class ResidentIsAPrefix(Fault):
    """Hits are kept as a count of rows from the start."""

    requirement = "OFF-005"
    killed_by = case("ledger/resident-in-the-middle", "ledger/resident-beyond-required")

    def read_plan(self, plan: Request) -> Plan:
        return with_layers(super().read_plan(plan), resident=lambda one: ((0, offload.length(one.resident)),))


class WholeHistory(Fault):
    """Every layer is taken to need the whole history."""

    requirement = "OFF-005"
    killed_by = case("ledger/window-layer", "ledger/two-spans-in-one-block")

    def read_plan(self, plan: Request) -> Plan:
        made = super().read_plan(plan)
        return with_layers(made, required=((0, made.positions),))


class AllRowsCold(Fault):
    """Resident rows are fetched again."""

    requirement = "OFF-005"
    killed_by = case("ledger/base", "ledger/nothing-cold", "ledger/colder")

    def read_plan(self, plan: Request) -> Plan:
        return with_layers(super().read_plan(plan), resident=())


class Ledgers(Fault):
    """Another ledger of a layer."""

    def ledger(self, plan: Plan, layer: offload.Layer, one: LayerLedger) -> LayerLedger:
        """The ledger of one layer."""
        raise NotImplementedError

    def layer_ledgers(self, plan: Plan) -> list[LayerLedger]:
        rows = zip(plan.layers, super().layer_ledgers(plan), strict=True)
        return [self.ledger(plan, layer, one) for layer, one in rows]


class BlocksOfEachSpan(Ledgers):
    """A block that two spans touch is copied twice."""

    requirement = "OFF-006"
    killed_by = case("ledger/two-spans-in-one-block")

    def ledger(self, plan: Plan, layer: offload.Layer, one: LayerLedger) -> LayerLedger:
        blocks = [block for span in layer.cold for block in offload.covering((span,), plan.block_tokens)]
        return replace(one, blocks=blocks, h2d_bytes=len(blocks) * one.block_bytes)


class RowsOverBlockSize(Ledgers):
    """The number of blocks is that of the cold rows over the block size, rounded up."""

    requirement = "OFF-006"
    killed_by = case("ledger/straddling-rows")

    def ledger(self, plan: Plan, layer: offload.Layer, one: LayerLedger) -> LayerLedger:
        count = -(-one.cold_rows // plan.block_tokens)
        blocks = one.blocks[:count]
        return replace(one, blocks=blocks, h2d_bytes=count * one.block_bytes)


class RowsAlone(Ledgers):
    """Only the cold rows are counted, and whole blocks are moved."""

    requirement = "OFF-006"
    killed_by = case("ledger/one-row-of-a-block", "ledger/larger-blocks", "ledger/partial-last-block")

    def ledger(self, plan: Plan, layer: offload.Layer, one: LayerLedger) -> LayerLedger:
        return replace(one, h2d_bytes=one.logical_bytes, read_amplification=1.0)


class LastBlockCut(Ledgers):
    """The last block ends at the frontier."""

    requirement = "OFF-006"
    killed_by = case("ledger/partial-last-block")

    def ledger(self, plan: Plan, layer: offload.Layer, one: LayerLedger) -> LayerLedger:
        beyond = (plan.block_tokens - plan.positions % plan.block_tokens) % plan.block_tokens
        last = bool(one.blocks) and one.blocks[-1] == plan.positions // plan.block_tokens
        return replace(one, h2d_bytes=one.h2d_bytes - beyond * one.row_bytes * last)


class NothingOverNothing(Ledgers):
    """The read amplification of nothing is zero."""

    requirement = "OFF-006"
    killed_by = case("ledger/nothing-cold", "ledger/base")

    def ledger(self, plan: Plan, layer: offload.Layer, one: LayerLedger) -> LayerLedger:
        return one if one.cold_rows else replace(one, read_amplification=0.0)


class DivisorIsMultiple(Fault):
    """Either block may be a multiple of the other."""

    requirement = "OFF-007"
    killed_by = case("ledger/block-smaller")

    def plan_rules(self, plan: Plan) -> Iterator[Rule]:
        either = plan.gpu_block_tokens % plan.block_tokens == 0
        return ((holds or (either and reason == "BLOCK_NOT_MULTIPLE"), reason) for holds, reason in offload.rules(plan))


class DraftsWrittenBack(Fault):
    """All new rows are written back, accepted or not."""

    requirement = "OFF-008"
    killed_by = case("ledger/drafts-rejected", "ledger/nothing-accepted")

    def read_plan(self, plan: Request) -> Plan:
        made = super().read_plan(plan)
        return replace(made, accepted_positions=made.new_positions)


class WrittenByCount(Fault):
    """Written blocks are the rows over the block size, rounded up, wherever they stand."""

    requirement = "OFF-008"
    killed_by = case("ledger/writeback-across-a-boundary", "ledger/partial-last-block")

    def traffic(self, plan: Plan) -> Traffic:
        return offload.traffic(replace(plan, positions=0), self.layer_ledgers(plan))


class DescriptorsAsPayload(Fault):
    """Descriptors ride along in the payload's ledger."""

    requirement = "OFF-009"
    killed_by = case("ledger/base", "ledger/protocol-apart")

    def traffic(self, plan: Plan) -> Traffic:
        one = super().traffic(plan)
        return replace(one, h2d_bytes=one.h2d_bytes + one.descriptor_bytes, descriptor_bytes=0)


class DescriptorsOneWay(Fault):
    """Only promotions have descriptors."""

    requirement = "OFF-009"
    killed_by = case("ledger/base", "ledger/protocol-apart")

    def traffic(self, plan: Plan) -> Traffic:
        one = super().traffic(plan)
        return replace(one, descriptor_bytes=one.h2d_blocks * plan.descriptor_bytes)


class PayloadOnTheWire(Fault):
    """The codec is left out of the wire's ledger and of its time."""

    requirement = "OFF-009"
    killed_by = case("ledger/lossless-codec")

    def read_plan(self, plan: Request) -> Plan:
        made = super().read_plan(plan)
        return with_layers(made, wire_block_bytes=lambda one: one.row_bytes * made.block_tokens)


class OneRequestTimesTheirNumber(Fault):
    """An iteration is its first request, as often as there are requests."""

    requirement = "OFF-010"
    killed_by = case("ledger/unlike-requests")

    def iteration(self, several: Sequence[Traffic]) -> Traffic:
        return super().iteration([*several[:1]] * len(several))


class LargestRequest(Fault):
    """An iteration is its largest request."""

    requirement = "OFF-010"
    killed_by = case("ledger/three-requests", "ledger/unlike-requests")

    def iteration(self, several: Sequence[Traffic]) -> Traffic:
        return super().iteration(sorted(several, key=lambda one: one.h2d_bytes)[-1:])


class IdleIterationMovesABlock(Fault):
    """A ledger begins with a block that is always counted."""

    requirement = "OFF-010"
    killed_by = case("ledger/no-requests", "ledger/zero-layers")

    def iteration(self, several: Sequence[Traffic]) -> Traffic:
        return super().iteration([Traffic(0, 0, 0, 0, 0, 1, 64, 0), *several])


class FirstPlanChecked(Fault):
    """Only the first plan of an iteration is checked."""

    requirement = "OFF-011"
    killed_by = case("ledger/second-request-checked")

    def offload_ledger(self, request: Request) -> Result:
        self.checked = False
        return super().offload_ledger(request)

    def plan_rules(self, plan: Plan) -> Iterable[Rule]:
        if getattr(self, "checked", False):
            return ()
        self.checked = True
        return super().plan_rules(plan)


FAULTS = found(globals())
