"""Faults of shared reads: one field too few, or sharing where there is nothing to share."""

from __future__ import annotations

from kvassay_reference.runtime import Read, Runtime, Unit

from ..base import Fault, title
from .base import FIELDS, Seeds, without

seeds = Seeds(__name__)
REPORTS = {"tenant": "vllm#44250", "adapter": "LMCache#1856", "dtype": "LMCache#4086", "revision": "lmdeploy#4917"}


def joins_without(name: str) -> None:
    """Seed the runtime that shares reads whatever one field is."""

    class Joining(Runtime):
        def same(self, one: Unit, other: Unit) -> bool:
            return without(one, name) == without(other, name)

    Joining.__name__ = "JoinsWithout" + title(name)
    where = f" ({REPORTS[name]})" if name in REPORTS else ""
    Joining.__doc__ = f"Reads are shared whatever their {name.replace('_', ' ')}{where}."
    seeds.machine("RUN-023", f"identity/not-shared-{name.replace('_', '-')}")(Joining)


def finds_without(name: str) -> None:
    """Seed the runtime whose index knows one field less."""

    class Finding(Runtime):
        def finds(self, unit: Unit) -> bool:
            return any(without(one, name) == without(unit, name) for one in self.visible)

    Finding.__name__ = "FindsWithout" + title(name)
    Finding.__doc__ = f"A look-up finds entries whatever their {name.replace('_', ' ')}."
    seeds.machine("RUN-040", f"identity/not-found-{name.replace('_', '-')}")(Finding)


for _name in FIELDS:
    joins_without(_name)
for _name in FIELDS:
    finds_without(_name)


@seeds.machine("RUN-023", "identity/not-shared-tenant", "identity/not-shared-generation")
class JoinsByTokens(Runtime):
    """A token hash is taken for the whole identity."""

    def same(self, one: Unit, other: Unit) -> bool:
        return dict(one)["tokens_sha256"] == dict(other)["tokens_sha256"]


@seeds.machine("RUN-023", "identity/shared-by-three", "jobs/full-for-reads-not-for-joins")
class NothingIsShared(Runtime):
    """Each load reads for itself."""

    def joinable(self, unit: Unit) -> Read | None:
        return None


@seeds.machine("RUN-023", "identity/joined-before-and-after-its-start", "jobs/three-workers")
class StartedReadsAreNotJoined(Runtime):
    """Only a read that was not started is shared."""

    def joinable(self, unit: Unit) -> Read | None:
        found = super().joinable(unit)
        return None if found is not None and found.started else found


@seeds.machine("RUN-009", "identity/not-resident-tenant", "identity/not-resident-generation")
class ResidentByTokens(Runtime):
    """Rows of the same tokens count as there."""

    def standing(self, direction: str, unit: Unit) -> str | None:
        tokens = dict(unit)["tokens_sha256"]
        if direction == "load" and any(dict(one)["tokens_sha256"] == tokens for one in self.committed):
            return None
        return super().standing(direction, unit)


@seeds.machine("RUN-009", "identity/not-resident-tokens-sha256")
class ResidentByPosition(Runtime):
    """Rows of other tokens at the same positions count as there."""

    def standing(self, direction: str, unit: Unit) -> str | None:
        there = {without(one, "tokens_sha256") for one in self.committed}
        if direction == "load" and without(unit, "tokens_sha256") in there:
            return None
        return super().standing(direction, unit)


@seeds.machine("RUN-025", "jobs/cancel-the-last-in-flight")
class DeadReadsAreJoined(Runtime):
    """A load joins a read that was called off."""

    def joinable(self, unit: Unit) -> Read | None:
        for read in self.reads.values():
            if read.direction == "load" and not read.over and self.same(read.unit, unit):
                read.dead = False
                return read
        return None


@seeds.machine("RUN-031", "identity/store-is-not-joined")
class StoresAreJoined(Runtime):
    """A load waits for the store of its rows and calls that a read."""

    def standing(self, direction: str, unit: Unit) -> str | None:
        found = super().standing(direction, unit)
        writing = any(job.direction == "store" and job.unit == unit for job in self.jobs.values())
        return None if found == "miss" and writing else found

    def joinable(self, unit: Unit) -> Read | None:
        found = super().joinable(unit)
        return found or next((one for one in self.reads.values() if one.jobs and one.unit == unit), None)


FAULTS: tuple[type[Fault], ...] = tuple(seeds.faults)
