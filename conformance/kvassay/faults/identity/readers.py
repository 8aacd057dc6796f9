"""Faults of *What a reader may use*: bindings, counters, frontiers, sizes, heads, tiers (IDN-005 to IDN-012)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from kvassay_reference.admission import BINDING_REASONS, Stage, Violation
from kvassay_reference.manifest import Manifest

from ..base import Fault, found
from .base import Blind, Request, Result


class ChecksumOnly(Blind):
    """A document is accepted when its digests are right, whatever it says."""

    requirement = "IDN-007"
    killed_by = (
        "identity/admit/source-model-artifact",
        "identity/admit/replica-tenant",
        "identity/admit/index-behind-commit",
        "identity/admit/partial-query",
        "identity/admit/fallback-continue",
        "identity/session/reader-model-artifact",
    )

    def violations(self, manifest: Manifest, stage: Stage) -> Iterator[Violation]:
        return (v for v in super().violations(manifest, stage) if v.reason.endswith("DIGEST_MISMATCH"))


class UncheckedDigests(Blind):
    """Digests are carried along and never derived."""

    requirement = "IDN-006"
    killed_by = (
        "identity/admit/seal-upstream",
        "identity/admit/seal-tensor",
        "identity/admit/seal-source",
        "identity/precedence/digests-before-planes",
    )
    blind = frozenset({"SOURCE_DIGEST_MISMATCH"})


class UncheckedCopies(Blind):
    """The digests of chunk, replica, row and support are carried along and never derived."""

    requirement = "IDN-005"
    killed_by = (
        "identity/admit/seal-chunk",
        "identity/admit/seal-replica",
        "identity/admit/seal-row",
        "identity/admit/seal-partial-support",
        "identity/admit/seal-output-support",
    )
    blind = frozenset(f"{kind}_DIGEST_MISMATCH" for kind in ("CHUNK", "REPLICA", "ROW", "SUPPORT"))


class ShapeIsIdentity(Blind):
    """Rows of the right shape are served to every reader (vllm#44250 for adapters)."""

    requirement = "IDN-007"
    killed_by = (
        "identity/admit/source-adapter-set",
        "identity/session/reader-model-artifact",
        "identity/session/reader-adapter-set",
        "identity/session/reader-rope-config",
        "identity/session/reader-tenant-namespace",
    )
    blind = frozenset(BINDING_REASONS.values())


class TenantIgnoredInLookup(Fault):
    """Candidates are given to every tenant; only the gather asks whose they are (LMCache#4385)."""

    requirement = "IDN-007"
    killed_by = ("identity/session/lookup-reader-tenant", "identity/session/lookup-reader-model")

    def identity_lookup(self, request: Request) -> Result:
        document = request["document"]
        source = self.retrieval.published[-1].manifest.source if self.retrieval.published else document["reader"]
        return super().identity_lookup({**request, "document": {**document, "reader": _plain(source)}})


def _plain(value: Any) -> Any:
    return value if isinstance(value, dict) else vars(value)


class AnyCounterWillDo(Fault):
    """A generation passes when it equals any current generation at all."""

    requirement = "IDN-008"
    killed_by = (
        "identity/admit/source-cache-generation",
        "identity/admit/source-publication-generation",
        "identity/admit/operation-request-generation",
        "identity/session/operation-cache-generation",
        "identity/session/lookup-index-generation",
        "identity/session/lookup-selector-generation",
    )

    def violations(self, manifest: Manifest, stage: Stage) -> Iterator[Violation]:
        m = manifest
        counters = {"request": 41, "cache": 23, "publication": 11, "index": 6, "selector": 4}
        stated = {
            "/source/cache_generation": m.source.cache_generation,
            "/source/publication_generation": m.source.publication_generation,
            "/operation/request_generation": m.operation.request_generation,
            "/operation/cache_generation": m.operation.cache_generation,
            "/lookup/index_generation": m.lookup.index_generation,
            "/lookup/selector_generation": m.lookup.selector_generation,
        }
        for violation in super().violations(manifest, stage):
            if stated.get(violation.pointer) not in counters.values():
                yield violation


class StaleDirectory(Blind):
    """The replica directory that the caller has seen is not compared."""

    requirement = "IDN-008"
    killed_by = ("identity/admit/operation-directory-generation", "identity/session/operation-directory-generation")
    blind = frozenset({"STALE_DIRECTORY_GENERATION"})


class FrontierIgnored(Blind):
    """Speculative rows are published before they are committed (vllm#52170)."""

    requirement = "IDN-009"
    killed_by = (
        "identity/admit/source-frontier-beyond-commit",
        "identity/admit/source-frontier-behind-commit",
        "identity/admit/chunk-beyond-commit",
        "identity/session/operation-decode-position",
        "identity/session/lookup-frontier",
    )
    blind = frozenset(
        {
            "FRONTIER_BEYOND_COMMIT",
            "FRONTIER_BEHIND_COMMIT",
            "CHUNK_BEYOND_COMMIT",
            "DECODE_POSITION_MISMATCH",
            "LOOKUP_OF_OTHER_FRONTIER",
        }
    )


class TwiceTheKeyWidth(Fault):
    """The payload is sized as twice the keys."""

    requirement = "IDN-010"
    killed_by = ("identity/admit/widths-differ", "identity/admit/payload-one-width")

    def violations(self, manifest: Manifest, stage: Stage) -> Iterator[Violation]:
        alike = replace(manifest, tensor=replace(manifest.tensor, v_dtype=manifest.tensor.k_dtype))
        wrong = any(v.reason == "PAYLOAD_BYTES_MISMATCH" for v in super().violations(alike, stage))
        for violation in super().violations(manifest, stage):
            if violation.reason != "PAYLOAD_BYTES_MISMATCH":
                yield violation
        if wrong:
            yield Violation("PAYLOAD_BYTES_MISMATCH", "/packing/payload_bytes")


class PayloadUnsized(Blind):
    """The size of the payload is believed."""

    requirement = "IDN-010"
    killed_by = ("identity/admit/payload-keys-only",)
    blind = frozenset({"PAYLOAD_BYTES_MISMATCH"})


class HeadsUnchecked(Blind):
    """A query head's number is accepted as a K/V head, and a receipt of one head for another (vllm#45330)."""

    requirement = "IDN-011"
    killed_by = (
        "identity/admit/operation-kv-head",
        "identity/admit/operation-query-head-as-kv-head",
        "identity/admit/gather-head",
        "identity/session/lookup-kv-head",
        "identity/session/lookup-wrong-head",
    )
    blind = frozenset({"WRONG_KV_HEAD", "RECEIPT_OF_OTHER_HEAD", "HEAD_MAP_INVALID", "ROW_DIGEST_MISMATCH"})


class CapabilitiesIgnored(Blind):
    """Every tier may do everything."""

    requirement = "IDN-012"
    blind = frozenset(
        {
            "ADDRESS_SPACE_SHARED",
            "TIER_CODEC_UNSUPPORTED",
            "TIER_LAYOUT_UNSUPPORTED",
            "TIER_OUTSIDE_TRUST",
            "MISALIGNED_REPLICA",
            "TIER_CHECKSUM_UNMET",
            "TIER_NOT_PERSISTENT",
            "DESTINATION_NOT_READABLE",
            "PATH_NOT_LEGAL",
            "VISIBILITY_UNMET",
            "TIER_CANNOT_ATTEND",
        }
    )
    killed_by = (
        "identity/admit/address-space-shared",
        "identity/admit/tier-codec",
        "identity/admit/tier-layout",
        "identity/admit/tier-tenants",
        "identity/admit/tier-alignment",
        "identity/admit/tier-checksum",
        "identity/admit/tier-persistence",
        "identity/admit/gather-source-tier",
        "identity/admit/gather-destination-tier",
        "identity/admit/gather-destination-readable",
        "identity/admit/gather-visibility-kind",
        "identity/admit/partial-tier",
    )


class TierByName(Fault):
    """Kernels read the tier called gpu and no other."""

    requirement = "IDN-012"
    killed_by = ("identity/admit/tier-by-capability",)

    def violations(self, manifest: Manifest, stage: Stage) -> Iterator[Violation]:
        tiers = tuple(replace(tier, kernel_readable=tier.id == "gpu") for tier in manifest.tiers)
        return super().violations(replace(manifest, tiers=tiers), stage)  # type: ignore[return-value]


FAULTS = found(globals())
