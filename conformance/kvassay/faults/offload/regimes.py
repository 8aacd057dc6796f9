"""Faults of *Regime* (OFF-024 to OFF-026)."""

from __future__ import annotations

from dataclasses import replace

from kvassay_reference.offload import Plan
from kvassay_reference.offload_cost import Regime

from ..base import Fault, found
from .base import Request, Result, case, with_layers


class Regimes(Fault):
    """A regime that is derived otherwise."""

    def changed(self, request: Request, found: Regime) -> Regime:
        """The regime."""
        raise NotImplementedError

    def regime(self, request: Request) -> Regime:
        return self.changed(request, super().regime(request))


class TieIsTransfer(Fault):
    """Equal times count as bound by transfer."""

    requirement = "OFF-024"
    killed_by = case("regime/tie")

    def offload_regime(self, request: Request) -> Result:
        found = super().offload_regime(request)
        return {**found, "bound": "transfer" if found["transfer_ms"] >= found["compute_ms"] else "compute"}


class BoundByRatio(Fault):
    """More cached than new tokens are taken to be bound by transfer."""

    requirement = "OFF-024"
    killed_by = case("regime/base", "regime/tie")

    def offload_regime(self, request: Request) -> Result:
        found = super().offload_regime(request)
        return {**found, "bound": "transfer" if found["ratio"] > 1 else "compute"}


class AlwaysComputeBound(Fault):
    """Prefill is taken to be bound by compute."""

    requirement = "OFF-024"
    killed_by = case("regime/transfer-bound", "regime/decimal-bandwidth")

    def offload_regime(self, request: Request) -> Result:
        return {**super().offload_regime(request), "bound": "compute"}


class RatioOfAllTokens(Regimes):
    """The ratio is taken of cached to all tokens."""

    requirement = "OFF-024"
    killed_by = case("regime/base", "regime/cold-equivalent", "regime/cached-tokens-alone")

    def changed(self, request: Request, found: Regime) -> Regime:
        cached, new = request["cached_tokens"], request["new_tokens"]
        return replace(found, ratio=cached / (cached + new), kappa_crit=found.kappa_crit * (1 + cached))


class AtLeastOneToken(Regimes):
    """No cached tokens are taken for one, so that nothing is divided by zero."""

    requirement = "OFF-024"
    killed_by = case("regime/nothing-cached")

    def changed(self, request: Request, found: Regime) -> Regime:
        return found if request["cached_tokens"] else super(Regimes, self).regime({**request, "cached_tokens": 1})


class ShareOfTheLonger(Fault):
    """The overlap is taken of the longer time."""

    requirement = "OFF-025"
    killed_by = case("regime/overlap")

    def overlapped_ms(self, found: Regime, eta: Request) -> float:
        super().overlapped_ms(found, eta)
        longer = max(found.transfer_ms, found.compute_ms)
        return found.transfer_ms + found.compute_ms - float(eta["value"]) * longer


class OverlapClamped(Fault):
    """An overlap out of range is brought back into it."""

    requirement = "OFF-025"
    killed_by = case("regime/overlap-out-of-range")

    def overlapped_ms(self, found: Regime, eta: Request) -> float:
        return super().overlapped_ms(found, {**eta, "value": min(1.0, max(0.0, eta["value"]))})


class OverlapAssumed(Fault):
    """Any overlap will do."""

    requirement = "OFF-025"
    killed_by = case("regime/overlap-assumed")

    def overlapped_ms(self, found: Regime, eta: Request) -> float:
        return super().overlapped_ms(found, {**eta, "evidence": "measured"})


class CriticalRatioOfOneMachine(Regimes):
    """The critical ratio was worked out once and written down."""

    requirement = "OFF-026"
    killed_by = case("regime/bandwidth-alone", "regime/compute-alone")

    def changed(self, request: Request, found: Regime) -> Regime:
        return replace(found, kappa_crit=67.584)


class RowsOfOneModel(Regimes):
    """The bytes of a token are those of the first model that was measured."""

    requirement = "OFF-026"
    killed_by = case("regime/kv-bytes-alone")

    def changed(self, request: Request, found: Regime) -> Regime:
        return super(Regimes, self).regime({**request, "kv_bytes_per_token": 16384})


class LinkOfOneMachine(Fault):
    """The link's rate is that of the first machine that was measured."""

    requirement = "OFF-026"
    killed_by = case("schedule/faster-link")

    def read_plan(self, plan: Request) -> Plan:
        return replace(super().read_plan(plan), h2d_bytes_per_s=24.0 * 2**30)


class HeadsOfOneModel(Fault):
    """Wire bytes are those of eight K/V heads."""

    requirement = "OFF-026"
    killed_by = case("schedule/fewer-kv-heads")

    def read_plan(self, plan: Request) -> Plan:
        return with_layers(super().read_plan(plan), wire_block_bytes=262144)


FAULTS = found(globals())
