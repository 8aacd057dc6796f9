"""Faults of *Replicas*: copies, authority, the floor, leases, allocations (IDN-012 to IDN-018)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from kvassay_reference.admission import Stage, Violation, current
from kvassay_reference.manifest import Manifest, Replica

from ..base import Fault, found
from .base import Blind


class AnyCopyIsACopy(Blind):
    """A replica's chunk, tenant, codec, layout and size are not compared (LMCache#1856, LMCache#4463)."""

    requirement = "IDN-013"
    killed_by = (
        "identity/admit/replica-chunk",
        "identity/admit/replica-tenant",
        "identity/admit/replica-codec",
        "identity/admit/replica-layout",
        "identity/admit/replica-short",
        "identity/admit/replica-payload",
        "identity/session/publish-replica-codec",
        "identity/session/publish-replica-short",
    )
    blind = frozenset(
        {
            "REPLICA_OF_OTHER_CHUNK",
            "REPLICA_TENANT_MISMATCH",
            "CODEC_MISMATCH",
            "LAYOUT_MISMATCH",
            "SHORT_REPLICA",
            "PAYLOAD_DIGEST_MISMATCH",
            "TIER_CODEC_UNSUPPORTED",
            "TIER_LAYOUT_UNSUPPORTED",
            "TIER_OUTSIDE_TRUST",
        }
    )


class AuthorityEpochIgnored(Blind):
    """A copy of an earlier authority is as good as one of the current."""

    requirement = "IDN-014"
    killed_by = (
        "identity/admit/authority-staged",
        "identity/admit/authority-released",
        "identity/admit/gather-source-epoch",
    )
    blind = frozenset({"STALE_AUTHORITY_EPOCH", "AUTHORITY_NOT_VALID"})


class FloorIgnored(Blind):
    """Copies are released down to none."""

    requirement = "IDN-015"
    killed_by = ("identity/admit/floor", "identity/admit/floor-of-two", "identity/session/publish-floor")
    blind = frozenset({"REPLICA_FLOOR_UNMET"})


class StagedCounts(Fault):
    """A copy counts toward the floor as soon as it was started."""

    requirement = "IDN-015"
    killed_by = ("identity/admit/floor-staged",)

    def violations(self, manifest: Manifest, stage: Stage) -> Iterator[Violation]:
        early = replace(manifest.directory, replicas=tuple(map(_as_valid, manifest.directory.replicas)))
        return super().violations(replace(manifest, directory=early), stage)  # type: ignore[return-value]


def _as_valid(replica: Replica) -> Replica:
    return replace(replica, state="valid") if replica.state == "staged" else replica


class FloorFault(Fault):
    """The floor is asked of other copies than those of the current epoch, once each."""

    def surviving(self, manifest: Manifest) -> int:
        """How many copies count."""
        raise NotImplementedError

    def violations(self, manifest: Manifest, stage: Stage) -> Iterator[Violation]:
        enough = self.surviving(manifest) >= manifest.directory.minimum_replicas
        return (v for v in super().violations(manifest, stage) if v.reason != "REPLICA_FLOOR_UNMET" or not enough)


class CountedTwice(FloorFault):
    """A copy that is listed twice counts twice."""

    requirement = "IDN-015"
    killed_by = ("identity/admit/floor-counted-twice",)

    def surviving(self, manifest: Manifest) -> int:
        valid = {replica.id for replica in manifest.directory.replicas if current(manifest, replica)}
        return sum(counted.id in valid for counted in manifest.directory.counted)


class FutureEpoch(FloorFault):
    """A copy of a later authority is at least as good as one of the current."""

    requirement = "IDN-014"
    killed_by = ("identity/admit/floor-of-later-epoch",)

    def surviving(self, manifest: Manifest) -> int:
        directory = manifest.directory
        counted = {one.id for one in directory.counted}
        alive = (r for r in directory.replicas if r.state == "valid" and r.authority_epoch >= directory.authority_epoch)
        return sum(replica.id in counted for replica in alive)


class SubstringTenant(Fault):
    """Tenants are searched for in the text of the list."""

    requirement = "IDN-012"
    killed_by = ("identity/admit/tier-tenant-in-longer-name",)

    def violations(self, manifest: Manifest, stage: Stage) -> Iterator[Violation]:
        own = manifest.source.tenant_namespace
        tiers = (
            replace(tier, tenants=(*tier.tenants, own)) if own in ",".join(tier.tenants) else tier
            for tier in manifest.tiers
        )
        return super().violations(replace(manifest, tiers=tuple(tiers)), stage)  # type: ignore[return-value]


class DerivedCounts(Blind):
    """A proxy or an index counts toward the floor."""

    requirement = "IDN-016"
    killed_by = (
        "identity/admit/proxy-counted",
        "identity/admit/index-counted",
        "identity/session/publish-proxy-counted",
    )
    blind = frozenset({"DERIVED_STATE_COUNTED"})


class LeaseIgnored(Blind):
    """Memory is released while a kernel reads it (vllm#47282, LMCache#4967)."""

    requirement = "IDN-017"
    killed_by = (
        "identity/admit/released-under-lease",
        "identity/admit/released-without-readers",
        "identity/admit/gather-lease",
        "identity/session/publish-released-under-lease",
        "identity/session/partial-stale-lease",
    )
    blind = frozenset({"RELEASED_UNDER_LEASE", "STALE_LEASE_GENERATION"})


class RecycledMemory(Blind):
    """A block is known by its number, whoever has had it since (vllm-ascend#14055)."""

    requirement = "IDN-018"
    killed_by = (
        "identity/admit/replica-allocation-shared",
        "identity/admit/replica-allocation-of-released",
        "identity/admit/gather-allocation",
        "identity/session/operation-recycled-destination",
        "identity/session/partial-stale-allocation",
    )
    blind = frozenset({"RECYCLED_ALLOCATION", "STALE_ALLOCATION_GENERATION"})


FAULTS = found(globals())
