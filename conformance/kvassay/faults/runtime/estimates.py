"""Faults of estimates."""

from __future__ import annotations

from dataclasses import replace

from kvassay_reference.errors import Refusal
from kvassay_reference.runtime_admission import Estimate, Exact, Path

from ..base import Fault
from .base import case


class NoCrossing(Fault):
    """Nodes play no part."""

    requirement = "RUN-013"
    killed_by = case("estimates/crossing-nodes", "policies/crossing-makes-it-late", "policies/finishes")

    def run_estimated(self, path: Path, size: int, worker_numa: int, crossing_ms: Exact) -> Estimate:
        return super().run_estimated(path, size, path.numa, crossing_ms)


class AlwaysCrossing(Fault):
    """The crossing is paid at home, too."""

    requirement = "RUN-013"
    killed_by = case("estimates/base", "policies/finishes")

    def run_estimated(self, path: Path, size: int, worker_numa: int, crossing_ms: Exact) -> Estimate:
        return replace(super().run_estimated(path, size, worker_numa, crossing_ms), numa_ms=crossing_ms)


class NodeZeroIsHome(Fault):
    """A worker on another node than 0 pays, wherever the source stands."""

    requirement = "RUN-013"
    killed_by = case("estimates/base", "estimates/crossing-nodes")

    def run_estimated(self, path: Path, size: int, worker_numa: int, crossing_ms: Exact) -> Estimate:
        made = super().run_estimated(path, size, worker_numa, crossing_ms)
        return replace(made, numa_ms=crossing_ms if worker_numa else Exact(0))


class NoQueueTime(Fault):
    """The queue is left out."""

    requirement = "RUN-013"
    killed_by = case("estimates/base", "estimates/nothing-to-move")

    def run_estimated(self, path: Path, size: int, worker_numa: int, crossing_ms: Exact) -> Estimate:
        return replace(super().run_estimated(path, size, worker_numa, crossing_ms), queue_ms=Exact(0))


class NoSetupTime(Fault):
    """Fixed cost is left out."""

    requirement = "RUN-013"
    killed_by = case("estimates/base", "estimates/nothing-to-move")

    def run_estimated(self, path: Path, size: int, worker_numa: int, crossing_ms: Exact) -> Estimate:
        return replace(super().run_estimated(path, size, worker_numa, crossing_ms), setup_ms=Exact(0))


class CrossingScalesTheRate(Fault):
    """Crossing is taken as a slower rate by a thousandth of its cost: close, and wrong."""

    requirement = "RUN-013"
    killed_by = case("estimates/crossing-nodes")

    def run_estimated(self, path: Path, size: int, worker_numa: int, crossing_ms: Exact) -> Estimate:
        made = super().run_estimated(path, size, worker_numa, crossing_ms)
        return replace(made, transfer_ms=made.transfer_ms * (1 + made.numa_ms / 10**11))


class ThreadsScale(Fault):
    """The rate of one thread is multiplied by the threads."""

    requirement = "RUN-014"
    killed_by = case("estimates/more-threads")

    def run_rate(self, path: Path) -> Exact:
        one = path.rates.get(1)
        return super().run_rate(path) if one is None else one * path.threads


class RateOfTheDataSheet(Fault):
    """The link's own number stands for a measurement."""

    requirement = "RUN-014"
    killed_by = case("estimates/base", "estimates/more-threads", "policies/finishes")

    def run_rate(self, path: Path) -> Exact:
        super().run_rate(path)
        return path.link_bytes_per_ms


class BestMeasurement(Fault):
    """The fastest measurement stands for all."""

    requirement = "RUN-014"
    killed_by = case("estimates/more-threads")

    def run_rate(self, path: Path) -> Exact:
        super().run_rate(path)
        return max(path.rates.values())


class NearestMeasurement(Fault):
    """A number of threads that was not measured borrows from its neighbour."""

    requirement = "RUN-014"
    killed_by = case("estimates/unmeasured-threads", "estimates/more-than-measured")

    def run_rate(self, path: Path) -> Exact:
        if path.threads not in path.rates and path.measured:
            nearest = min(path.rates, key=lambda threads: abs(threads - path.threads))
            return super().run_rate(replace(path, threads=nearest))
        return super().run_rate(path)


class UnmeasuredIsTheLink(Fault):
    """Without a measurement the link's number is taken."""

    requirement = "RUN-014"
    killed_by = case("estimates/unmeasured-threads", "estimates/never-measured")

    def run_rate(self, path: Path) -> Exact:
        return super().run_rate(path) if path.threads in path.rates else path.link_bytes_per_ms


class OnlyTheUsedRateIsChecked(Fault):
    """A measurement above the link passes as long as it is of other threads."""

    requirement = "RUN-014"
    killed_by = case("estimates/above-the-link")

    def run_rate(self, path: Path) -> Exact:
        link = path.link_bytes_per_ms
        seen = tuple((count, rate if count == path.threads else min(rate, link)) for count, rate in path.measured)
        return super().run_rate(replace(path, measured=seen))


class RateCutToTheLink(Fault):
    """A measurement above the link is cut to it in silence."""

    requirement = "RUN-014"
    killed_by = case("estimates/above-the-link")

    def run_rate(self, path: Path) -> Exact:
        cut = tuple((threads, min(rate, path.link_bytes_per_ms)) for threads, rate in path.measured)
        return super().run_rate(replace(path, measured=cut))


class MeasuredBeforeTheLink(Fault):
    """That a rate is missing is found before that another one is above the link."""

    requirement = "RUN-014"
    killed_by = case("estimates/above-the-link-and-unmeasured")

    def run_rate(self, path: Path) -> Exact:
        if path.threads not in path.rates:
            raise Refusal("RATE_NOT_MEASURED", path.name)
        return super().run_rate(path)


class LaterMeasurementCounts(Fault):
    """Measurements are kept by number of threads: a later one takes the place of an earlier one."""

    requirement = "RUN-014"
    killed_by = case("estimates/measured-twice", "estimates/above-the-link-and-unmeasured")

    def run_rate(self, path: Path) -> Exact:
        return super().run_rate(replace(path, measured=tuple(path.rates.items())))


class OnlyItsOwnThreadsTwice(Fault):
    """Two measurements matter where they are of the threads that serve the path."""

    requirement = "RUN-014"
    killed_by = case("estimates/measured-twice")

    def run_rate(self, path: Path) -> Exact:
        own = sum(threads == path.threads for threads, _ in path.measured)
        if own > 1:
            return super().run_rate(path)
        return super().run_rate(replace(path, measured=tuple(path.rates.items())))


class EqualMeasurementsAreOne(Fault):
    """The same rate measured twice is taken."""

    requirement = "RUN-014"
    killed_by = case("estimates/measured-twice")

    def run_rate(self, path: Path) -> Exact:
        return super().run_rate(replace(path, measured=tuple(dict.fromkeys(path.measured))))


class AtTheLinkIsAbove(Fault):
    """A path that carries all that its link does is rejected."""

    requirement = "RUN-014"
    killed_by = case("estimates/rate-of-the-link")

    def run_rate(self, path: Path) -> Exact:
        if path.link_bytes_per_ms in path.rates.values():
            raise Refusal("RATE_ABOVE_LINK", path.name)
        return super().run_rate(path)


class EstimateStrictlyInTime(Fault):
    """At the deadline is too late."""

    requirement = "RUN-020"
    killed_by = case("estimates/deadline")

    def run_in_time(self, finish_ms: Exact, deadline_ms: Exact) -> bool:
        return finish_ms < deadline_ms


class BinaryDecimals(Fault):
    """Times are added in binary."""

    requirement = "RUN-020"
    killed_by = case("estimates/decimals")

    def run_in_time(self, finish_ms: Exact, deadline_ms: Exact) -> bool:
        return 0.1 + 0.2 + float(finish_ms) - 0.3 <= float(deadline_ms)


FAULTS: tuple[type[Fault], ...] = (
    NoCrossing,
    AlwaysCrossing,
    NodeZeroIsHome,
    NoQueueTime,
    NoSetupTime,
    CrossingScalesTheRate,
    ThreadsScale,
    RateOfTheDataSheet,
    BestMeasurement,
    NearestMeasurement,
    UnmeasuredIsTheLink,
    OnlyTheUsedRateIsChecked,
    RateCutToTheLink,
    MeasuredBeforeTheLink,
    LaterMeasurementCounts,
    OnlyItsOwnThreadsTwice,
    EqualMeasurementsAreOne,
    AtTheLinkIsAbove,
    EstimateStrictlyInTime,
    BinaryDecimals,
)
