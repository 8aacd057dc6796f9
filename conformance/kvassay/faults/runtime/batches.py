"""Faults of batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from kvassay_reference.runtime_admission import Batch, Buckets, batch_key, batches, doubling

from ..base import Fault, spoiled, title
from .base import Request, case

Made = tuple[list[Batch], list[tuple[str, str]]]


class Batching(Fault):
    """Batches with their decisions taken apart, to be spoiled."""

    def key(self, row: Request, buckets: Buckets) -> dict[str, Any]:
        """What is shared."""
        return batch_key(row, buckets)

    def fits(self, batch: Batch, row: Request, cap_bytes: int) -> bool:
        """Whether one more goes in."""
        return bool(batch.fetch_bytes + row["fetch_bytes"] <= cap_bytes)

    def pick(self, made: Sequence[Batch], key: dict[str, Any], row: Request, cap_bytes: int) -> Batch | None:
        """The batch that takes it."""
        last = next((one for one in reversed(made) if one.key == key), None)
        return last if last is not None and self.fits(last, row, cap_bytes) else None

    def refused(self, row: Request, cap_bytes: int, left: int, batch: Batch | None, whole: int) -> str | None:
        """What there is too little of."""
        if row["fetch_bytes"] > cap_bytes:
            return "LINK_WINDOW"
        return "STAGING" if row["staging_bytes"] > left else None

    def run_batches(self, rows: Sequence[Request], buckets: Buckets, cap_bytes: int, staging_bytes: int) -> Made:
        made: list[Batch] = []
        deferred: list[tuple[str, str]] = []
        left = staging_bytes
        for row in rows:
            key = self.key(row, buckets)
            batch = self.pick(made, key, row, cap_bytes)
            why = self.refused(row, cap_bytes, left, batch, staging_bytes)
            if why is not None:
                deferred.append((row["request"], why))
                continue
            left -= row["staging_bytes"]
            if batch is None:
                batch = Batch(key, [])
                made.append(batch)
            batch.requests.append(row["request"])
            batch.fetch_bytes += row["fetch_bytes"]
            batch.staging_bytes += row["staging_bytes"]
        return made, deferred


PARTS = {
    "contract": "contract",
    "identity": "identity",
    "tier": "tier",
    "numa": "numa",
    "fetch_bucket": "fetch-bytes",
    "candidate_bucket": "candidates",
    "slack_bucket": "slack-ms",
}


def without(part: str, name: str) -> type[Fault]:
    """Batches whose key lacks one part."""

    def pick(self: Batching, made: Sequence[Batch], key: dict[str, Any], row: Request, cap_bytes: int) -> Batch | None:
        rest = {name: value for name, value in key.items() if name != part}
        last = next((one for one in reversed(made) if rest.items() <= one.key.items()), None)
        return last if last is not None and self.fits(last, row, cap_bytes) else None

    text = f"Requests share a batch whatever their {part.replace('_', ' ')}."
    killers = case(f"batches/apart-by-{name}")
    return spoiled(Batching, __name__, "KeyWithout" + title(part), text, "RUN-002", killers, pick=pick)


WITHOUT = tuple(without(part, name) for part, name in PARTS.items())


class BatchesByLength(Fault):
    """Length keeps requests apart."""

    requirement = "RUN-002"
    killed_by = case("batches/lengths-differ")

    def run_batches(self, rows: Sequence[Request], buckets: Buckets, cap_bytes: int, staging_bytes: int) -> Made:
        made: list[Batch] = []
        deferred: list[tuple[str, str]] = []
        for tokens in dict.fromkeys(row["tokens"] for row in rows):
            some = [row for row in rows if row["tokens"] == tokens]
            more, turned = batches(some, buckets, cap_bytes, staging_bytes)
            made, deferred = made + more, deferred + turned
        return made, deferred


class LinearBuckets(Batching):
    """Buckets are all as wide as the first."""

    requirement = "RUN-002"
    killed_by = case("batches/edges-of-buckets")

    def key(self, row: Request, buckets: Buckets) -> dict[str, Any]:
        return {**super().key(row, buckets), "fetch_bucket": -(-row["fetch_bytes"] // buckets.fetch_bytes)}


class EdgesBelongToTheNext(Batching):
    """A count at the end of its bucket lies in the next."""

    requirement = "RUN-002"
    killed_by = case("batches/edges-of-buckets")

    def key(self, row: Request, buckets: Buckets) -> dict[str, Any]:
        count = row["candidates"]
        return {
            **super().key(row, buckets),
            "candidate_bucket": doubling(count + 1, buckets.candidates) if count else 0,
        }


class NothingIsSomething(Batching):
    """A request that fetches nothing lies with those that fetch a little."""

    requirement = "RUN-002"
    killed_by = case("batches/edges-of-buckets")

    def key(self, row: Request, buckets: Buckets) -> dict[str, Any]:
        made = super().key(row, buckets)
        return {**made, "fetch_bucket": max(1, made["fetch_bucket"])}


class SlackBelowItsLimit(Batching):
    """Slack at a limit lies below it."""

    requirement = "RUN-002"
    killed_by = case("batches/edges-of-buckets", "batches/apart-by-slack-ms")

    def key(self, row: Request, buckets: Buckets) -> dict[str, Any]:
        return {**super().key(row, buckets), "slack_bucket": sum(row["slack_ms"] > one for one in buckets.slack_ms)}


class NoCap(Batching):
    """Batches grow without end."""

    requirement = "RUN-003"
    killed_by = case("batches/cap")

    def fits(self, batch: Batch, row: Request, cap_bytes: int) -> bool:
        return True


class CapIsNeverReached(Batching):
    """The last byte of the cap is not used."""

    requirement = "RUN-003"
    killed_by = case("batches/cap")

    def fits(self, batch: Batch, row: Request, cap_bytes: int) -> bool:
        return super().fits(batch, row, cap_bytes - 1)


class WideOnesAreFormed(Batching):
    """A request beyond the cap gets a batch of its own."""

    requirement = "RUN-003"
    killed_by = case("batches/wider-than-the-cap", "batches/both-short")

    def refused(self, row: Request, cap_bytes: int, left: int, batch: Batch | None, whole: int) -> str | None:
        return "STAGING" if row["staging_bytes"] > left else None


class AtTheCapIsBeyond(Batching):
    """A request that fills the cap alone is deferred."""

    requirement = "RUN-003"
    killed_by = case("batches/wider-than-the-cap")

    def refused(self, row: Request, cap_bytes: int, left: int, batch: Batch | None, whole: int) -> str | None:
        return super().refused(row, cap_bytes - 1, left, batch, whole)


class StagingUnlooked(Batching):
    """Nobody counts staging."""

    requirement = "RUN-003"
    killed_by = case("batches/staging")

    def refused(self, row: Request, cap_bytes: int, left: int, batch: Batch | None, whole: int) -> str | None:
        return super().refused(row, cap_bytes, row["staging_bytes"], batch, whole)


class StagingOfEachBatch(Batching):
    """Each batch has the whole staging to itself."""

    requirement = "RUN-003"
    killed_by = case("batches/staging")

    def refused(self, row: Request, cap_bytes: int, left: int, batch: Batch | None, whole: int) -> str | None:
        used = 0 if batch is None else batch.staging_bytes
        return super().refused(row, cap_bytes, whole - used, batch, whole)


class StagingIsAskedFirst(Batching):
    """A request for which both are short is told of staging."""

    requirement = "RUN-003"
    killed_by = case("batches/both-short")

    def refused(self, row: Request, cap_bytes: int, left: int, batch: Batch | None, whole: int) -> str | None:
        return "STAGING" if row["staging_bytes"] > left else super().refused(row, cap_bytes, left, batch, whole)


class DeferredTakeStaging(Fault):
    """A request that waits takes staging from those that go on."""

    requirement = "RUN-003"
    killed_by = case("batches/staging")

    def run_batches(self, rows: Sequence[Request], buckets: Buckets, cap_bytes: int, staging_bytes: int) -> Made:
        left, asked = staging_bytes, []
        for row in rows:
            taken = row["staging_bytes"] if left >= row["staging_bytes"] else staging_bytes + 1
            left -= row["staging_bytes"]
            asked.append({**row, "staging_bytes": taken})
        made, deferred = batches(asked, buckets, cap_bytes, staging_bytes)
        return made, deferred


class GapsAreFilled(Batching):
    """A request goes into an earlier batch that still has room."""

    requirement = "RUN-003"
    killed_by = case("batches/a-later-batch-takes-the-next")

    def pick(self, made: Sequence[Batch], key: dict[str, Any], row: Request, cap_bytes: int) -> Batch | None:
        return next((one for one in made if one.key == key and self.fits(one, row, cap_bytes)), None)


class BatchesByNode(Fault):
    """Batches are sorted."""

    requirement = "RUN-002"
    killed_by = case("batches/order")

    def run_batches(self, rows: Sequence[Request], buckets: Buckets, cap_bytes: int, staging_bytes: int) -> Made:
        made, deferred = super().run_batches(rows, buckets, cap_bytes, staging_bytes)
        return sorted(made, key=lambda one: one.key["numa"]), deferred


class NewestFirst(Fault):
    """Requests of a batch stand in the order of their names."""

    requirement = "RUN-002"
    killed_by = case("batches/order")

    def run_batches(self, rows: Sequence[Request], buckets: Buckets, cap_bytes: int, staging_bytes: int) -> Made:
        made, deferred = super().run_batches(rows, buckets, cap_bytes, staging_bytes)
        return [replace(one, requests=sorted(one.requests)) for one in made], deferred


class BatchOfNobody(Fault):
    """A step without requests runs a batch."""

    requirement = "RUN-003"
    killed_by = case("batches/nobody")

    def run_batches(self, rows: Sequence[Request], buckets: Buckets, cap_bytes: int, staging_bytes: int) -> Made:
        made, deferred = super().run_batches(rows, buckets, cap_bytes, staging_bytes)
        idle = {"contract": "exact", "identity": "none", "tier": "host", "numa": 0}
        counts = {"fetch_bucket": 0, "candidate_bucket": 0, "slack_bucket": 0}
        return made or [Batch({**idle, **counts}, [])], deferred


FAULTS: tuple[type[Fault], ...] = (
    *WITHOUT,
    BatchesByLength,
    LinearBuckets,
    EdgesBelongToTheNext,
    NothingIsSomething,
    SlackBelowItsLimit,
    BatchesByNode,
    NewestFirst,
    NoCap,
    CapIsNeverReached,
    WideOnesAreFormed,
    AtTheCapIsBeyond,
    StagingUnlooked,
    StagingOfEachBatch,
    StagingIsAskedFirst,
    DeferredTakeStaging,
    GapsAreFilled,
    BatchOfNobody,
)
