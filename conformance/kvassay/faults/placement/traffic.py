"""Faults of the bytes of the three schedules."""

from __future__ import annotations

from dataclasses import replace

from kvassay_reference.placement import Geometry, Traffic, Way

from ..base import Fault
from .base import Request, Result, case


class Bytes(Fault):
    """Other bytes of a layer."""

    def spoil(self, made: Traffic, shape: Geometry) -> Traffic:
        """The bytes, spoiled."""
        raise NotImplementedError

    def plc_bytes(self, shape: Geometry, producers: int, state_item_bytes: int) -> Traffic:
        return self.spoil(super().plc_bytes(shape, producers, state_item_bytes), shape)


class KeysAlone(Bytes):
    """The history is counted as K alone, twice."""

    requirement = "PLC-003"
    killed_by = case("traffic/small-layer", "traffic/values-wider")

    def spoil(self, made: Traffic, shape: Geometry) -> Traffic:
        one = 2 * shape.key_channels * shape.key_item_bytes
        return replace(made, history_bytes=shape.batch * shape.history * shape.kv_heads * one)


class HistoryOfQueryHeads(Bytes):
    """The history is counted for every query head, as if there were no grouped queries."""

    requirement = "PLC-003"
    killed_by = case("traffic/grouped-heads", "traffic/small-layer")

    def spoil(self, made: Traffic, shape: Geometry) -> Traffic:
        return replace(made, history_bytes=shape.head_bytes(shape.query_heads))


class HistoryOfOneSequence(Bytes):
    """The batch is left out of the history."""

    requirement = "PLC-003"
    killed_by = case("traffic/small-layer")

    def spoil(self, made: Traffic, shape: Geometry) -> Traffic:
        return replace(made, history_bytes=made.history_bytes // shape.batch)


class CurrentRowInHistory(Bytes):
    """The current row is taken to be among the history's."""

    requirement = "PLC-003"
    killed_by = case("traffic/base", "traffic/one-row-of-history", "traffic/no-history", "traffic/longer-history")

    def spoil(self, made: Traffic, shape: Geometry) -> Traffic:
        return replace(made, history_bytes=made.history_bytes - made.append_bytes)


class AppendOfKeys(Bytes):
    """The current row has a key and no value."""

    requirement = "PLC-004"
    killed_by = case("traffic/base", "traffic/values-wider", "traffic/no-history")

    def spoil(self, made: Traffic, shape: Geometry) -> Traffic:
        return replace(made, append_bytes=shape.batch * shape.kv_heads * shape.key_channels * shape.key_item_bytes)


class QueryOfKvHeads(Bytes):
    """Q and O are counted for K/V heads."""

    requirement = "PLC-004"
    killed_by = case("traffic/grouped-heads", "traffic/small-layer")

    def spoil(self, made: Traffic, shape: Geometry) -> Traffic:
        each = {
            name: getattr(made, name) * shape.kv_heads // shape.query_heads for name in ("query_bytes", "output_bytes")
        }
        return replace(made, **each)


class ActivationsAsStored(Bytes):
    """Activations are counted in the width of stored scalars."""

    requirement = "PLC-004"
    killed_by = case("traffic/small-layer")

    def spoil(self, made: Traffic, shape: Geometry) -> Traffic:
        size = shape.key_item_bytes
        each = {name: getattr(made, name) // shape.activation_bytes * size for name in ("query_bytes", "output_bytes")}
        return replace(made, **each)


class OutputAsWideAsKeys(Bytes):
    """O is as wide as Q."""

    requirement = "PLC-004"
    killed_by = case("traffic/small-layer", "traffic/values-wider")

    def spoil(self, made: Traffic, shape: Geometry) -> Traffic:
        return replace(made, output_bytes=made.query_bytes)


class NearGrowsWithHistory(Bytes):
    """Queries are resent for every page of history."""

    requirement = "PLC-004"
    killed_by = case("traffic/longer-history", "traffic/base")

    def spoil(self, made: Traffic, shape: Geometry) -> Traffic:
        return replace(made, query_bytes=made.query_bytes * max(1, shape.history // 1024))


class OneProducerCounted(Bytes):
    """One producer's state is taken for all."""

    requirement = "PLC-005"
    killed_by = case("traffic/base", "traffic/seven-producers", "traffic/small-layer", "traffic/states-in-float64")

    def spoil(self, made: Traffic, shape: Geometry) -> Traffic:
        return replace(made, producers=1)


class StateIsTheOutput(Bytes):
    """A state is counted as u alone."""

    requirement = "PLC-005"
    killed_by = case("traffic/base", "traffic/one-producer")

    def spoil(self, made: Traffic, shape: Geometry) -> Traffic:
        return replace(made, state_bytes=made.state_bytes * shape.value_channels // (2 + shape.value_channels))


class StateOfKvHeads(Bytes):
    """States are counted for K/V heads."""

    requirement = "PLC-005"
    killed_by = case("traffic/grouped-heads", "traffic/small-layer", "traffic/seven-producers")

    def spoil(self, made: Traffic, shape: Geometry) -> Traffic:
        return replace(made, state_bytes=made.state_bytes * shape.kv_heads // shape.query_heads)


class StateAsWideAsKeys(Bytes):
    """u has the width of keys."""

    requirement = "PLC-005"
    killed_by = case("traffic/values-wider", "traffic/small-layer")

    def spoil(self, made: Traffic, shape: Geometry) -> Traffic:
        return replace(made, state_bytes=made.state_bytes * (2 + shape.key_channels) // (2 + shape.value_channels))


class HalfStates(Fault):
    """States may be as narrow as activations."""

    requirement = "PLC-005"
    killed_by = case("traffic/states-in-half")

    def plc_bytes(self, shape: Geometry, producers: int, state_item_bytes: int) -> Traffic:
        return super().plc_bytes(shape, producers, max(4, state_item_bytes))


class Float32StatesAlone(Fault):
    """A state's scalar has four bytes, whatever is declared."""

    requirement = "PLC-005"
    killed_by = case("traffic/states-in-float64")

    def plc_bytes(self, shape: Geometry, producers: int, state_item_bytes: int) -> Traffic:
        return super().plc_bytes(shape, producers, min(4, state_item_bytes))


class OneFixedCost(Fault):
    """The way back is taken to cost nothing but bytes."""

    requirement = "PLC-006"
    killed_by = case("traffic/base-times", "traffic/unlike-directions", "traffic/swapped-directions")

    def plc_transfers(self, made: Traffic, send: Way, back: Way) -> Result:
        return super().plc_transfers(made, send, replace(back, fixed_ms=0.0))


class OneRate(Fault):
    """Both directions have the rate of the first."""

    requirement = "PLC-006"
    killed_by = case("traffic/unlike-directions", "traffic/swapped-directions", "traffic/binary-units")

    def plc_transfers(self, made: Traffic, send: Way, back: Way) -> Result:
        return super().plc_transfers(made, send, replace(back, bytes_per_s=send.bytes_per_s))


class RoundedRate(Fault):
    """The rate is kept in 40 bits."""

    requirement = "PLC-006"
    killed_by = case("traffic/binary-units", "traffic/unlike-directions")

    def plc_way(self, way: Request) -> Way:
        made = super().plc_way(way)
        return replace(made, bytes_per_s=made.bytes_per_s * (1 + 2.0**-40))


class DecimalUnits(Fault):
    """GiB/s is read as GB/s."""

    requirement = "PLC-006"
    killed_by = case("traffic/binary-units")

    def plc_way(self, way: Request) -> Way:
        return Way(way["fixed_ms"], way["bandwidth"]["value"] * 1e9)


class OutputGoesThere(Fault):
    """The output is counted among what is sent."""

    requirement = "PLC-006"
    killed_by = case("traffic/unlike-directions", "traffic/swapped-directions")

    def plc_transfers(self, made: Traffic, send: Way, back: Way) -> Result:
        found = super().plc_transfers(made, send, back)
        moved = {"send_ms": send.takes_ms(made.near_bytes), "return_ms": back.takes_ms(0)}
        return {**found, **moved, "near_transfer_ms": sum(moved.values())}


FAULTS: tuple[type[Fault], ...] = (
    KeysAlone,
    HistoryOfQueryHeads,
    HistoryOfOneSequence,
    CurrentRowInHistory,
    AppendOfKeys,
    QueryOfKvHeads,
    ActivationsAsStored,
    OutputAsWideAsKeys,
    NearGrowsWithHistory,
    OneProducerCounted,
    StateIsTheOutput,
    StateOfKvHeads,
    StateAsWideAsKeys,
    HalfStates,
    Float32StatesAlone,
    OneFixedCost,
    OneRate,
    RoundedRate,
    DecimalUnits,
    OutputGoesThere,
)
"""In the order of the chapter."""
