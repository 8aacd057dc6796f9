"""Faults of the contract identity: the reference with one realistic defect each.

Public reports are named where a fault models one; ``#`` follows the repository.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from kvassay_reference import canonical, reuse
from kvassay_reference.admission import BINDING_REASONS, Stage, Violation, current
from kvassay_reference.attention import State
from kvassay_reference.identity import Published, Retrieval, Rows, reduce
from kvassay_reference.manifest import Gather, Lookup, Manifest, PartialReceipt, Replica

from ..adapters.base import Rejected
from ..engines.reference import Reference, ReferenceFenced, ReferenceOLse2
from .base import Fault

Record = Mapping[str, Any]
Request = Mapping[str, Any]
Result = dict[str, Any]

CORRECT = (Reference, ReferenceFenced, ReferenceOLse2)


# --- digests -----------------------------------------------------------------------------------------------------


class LittleEndianIntegers(Fault):
    """Integers are encoded in the machine's own byte order."""

    requirement = "IDN-002"
    killed_by = ("identity/digest/chunk", "identity/digest/support-to-the-byte")

    def encode(self, kind: str, fields: Record) -> bytes:
        swapped = {
            name: int.from_bytes(value.to_bytes(8, "little"), "big") if isinstance(value, int) else value
            for name, value in fields.items()
        }
        if kind == "support":
            swapped["positions"] = [int.from_bytes(p.to_bytes(8, "little"), "big") for p in fields["positions"]]
        return super().encode(kind, swapped)


class SixteenBitDigest(Fault):
    """A digest keeps 16 of its bits, as keys of LMCache once did (class 8 of public reports: LMCache#4086)."""

    requirement = "IDN-002"
    killed_by = ("identity/digest/row", "identity/digest/source")

    def digest(self, encoding: bytes) -> str:
        return super().digest(encoding)[:4].ljust(64, "0")


class ConstantDigest(Fault):
    """The digest of the kind alone: the fields were iterated after they had been consumed."""

    requirement = "IDN-002"
    killed_by = tuple(f"identity/digest/{kind}-every-field" for kind in canonical.KINDS)

    def encode(self, kind: str, fields: Record) -> bytes:
        return canonical.encode_fields(kind, ())


class JoinedText(Fault):
    """Values are written as text one after the other and hashed."""

    requirement = "IDN-003"
    killed_by = (
        "identity/digest/digits-across-fields",
        "identity/digest/digits-across-list",
        "identity/digest/letters-across-fields",
        "identity/digest/absent-or-empty-text",
    )

    def encode(self, kind: str, fields: Record) -> bytes:
        values = (fields[name] for name, _ in canonical.KINDS[kind])
        return "".join("".join(map(str, v)) if isinstance(v, list) else str(v or "") for v in values).encode()


class AbsentIsEmpty(Fault):
    """``value or ""``: what is absent is encoded as what is empty."""

    requirement = "IDN-003"
    killed_by = ("identity/digest/absent-or-empty-text", "identity/digest/absent-or-empty-digest")

    def encode(self, kind: str, fields: Record) -> bytes:
        empty = {canonical.Form.TEXT: "", canonical.Form.DIGEST: hashlib.sha256(b"").hexdigest()}
        forms = dict(canonical.KINDS[kind])
        return super().encode(
            kind, {n: empty.get(forms[n]) if v is None else v for n, v in fields.items() if n in forms}
        )


class NormalisedText(Fault):
    """Text is normalised, folded to lower case and stripped before it is hashed."""

    requirement = "IDN-003"
    killed_by = ("identity/digest/composed-or-decomposed", "identity/digest/case")

    def encode(self, kind: str, fields: Record) -> bytes:
        tidy = {
            name: unicodedata.normalize("NFC", value).lower().strip() if isinstance(value, str) else value
            for name, value in fields.items()
        }
        return super().encode(kind, tidy)


class ThirtyTwoBitIntegers(Fault):
    """Integers are cut to 32 bits."""

    requirement = "IDN-003"
    killed_by = ("identity/digest/high-bits", "identity/digest/largest-integers")

    def encode(self, kind: str, fields: Record) -> bytes:
        return super().encode(kind, {n: v & 0xFFFFFFFF if isinstance(v, int) else v for n, v in fields.items()})


class SortedSupport(Fault):
    """A support is digested as a set."""

    requirement = "IDN-003"
    killed_by = ("identity/digest/order-of-support",)

    def encode(self, kind: str, fields: Record) -> bytes:
        fields = {**fields, "positions": sorted(fields["positions"])} if kind == "support" else fields
        return super().encode(kind, fields)


class ZeroTerminated(Fault):
    """Texts end with a zero byte instead of beginning with their length, and a list with nothing in it has a zero."""

    requirement = "IDN-003"
    killed_by = ("identity/digest/separator-inside-text", "identity/digest/no-support-or-zero")

    def encode(self, kind: str, fields: Record) -> bytes:
        texts = [fields[name] for name, form in canonical.KINDS[kind] if form is canonical.Form.TEXT]
        if kind == "support" and not fields["positions"]:
            fields = {**fields, "positions": [0]}
        numbers = {n: v for n, v in fields.items() if not isinstance(v, str) or n.endswith("_sha256")}
        blank = {name: "" for name, form in canonical.KINDS[kind] if form is canonical.Form.TEXT}
        return super().encode(kind, {**blank, **numbers}) + "\0".join(t or "" for t in texts).encode()


class UnnamedValues(Fault):
    """Values are hashed as a sorted list, without their names."""

    requirement = "IDN-003"
    killed_by = ("identity/digest/swapped-values",)

    def encode(self, kind: str, fields: Record) -> bytes:
        values = sorted(repr(fields[name]) for name, _ in canonical.KINDS[kind])
        return repr(values).encode()


class ReplicaWithoutForm(Fault):
    """The identity of a replica lacks its codec and layout."""

    requirement = "IDN-005"
    killed_by = ("identity/digest/replica-every-field",)

    def encode(self, kind: str, fields: Record) -> bytes:
        return super().encode(kind, {**fields, "codec": "", "layout": ""} if kind == "replica" else fields)


class SourceWithoutFrontier(Fault):
    """The identity of a source lacks its range of positions."""

    requirement = "IDN-006"
    killed_by = ("identity/digest/source-every-field",)

    def encode(self, kind: str, fields: Record) -> bytes:
        cut = {"first_position": 0, "committed_frontier": 0} if kind == "source" else {}
        return super().encode(kind, {**fields, **cut})


# --- rules that are not there ----------------------------------------------------------------------------------------


class Blind(Fault):
    """The reference without the rules of some reasons."""

    blind: ClassVar[frozenset[str]] = frozenset()

    def violations(self, manifest: Manifest, stage: Stage) -> Iterator[Violation]:
        return (v for v in super().violations(manifest, stage) if v.reason not in self.blind)


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


class DerivedFromAnything(Blind):
    """Proxy and index keep no trace of what they were built from."""

    requirement = "IDN-019"
    killed_by = (
        "identity/admit/proxy-source",
        "identity/admit/proxy-coverage",
        "identity/admit/selector-generation",
        "identity/admit/index-source",
        "identity/admit/index-cache-generation",
        "identity/session/publish-index-source",
    )
    blind = frozenset(
        {
            "PROXY_OF_OTHER_SOURCE",
            "PROXY_COVERAGE_MISMATCH",
            "STALE_SELECTOR_GENERATION",
            "INDEX_OF_OTHER_SOURCE",
            "INDEX_OF_OTHER_HISTORY",
            "LOOKUP_OF_OTHER_SELECTOR",
        }
    )


class IndexFrontierIgnored(Blind):
    """An index is searched however far it reaches."""

    requirement = "IDN-020"
    killed_by = (
        "identity/admit/index-beyond-commit",
        "identity/admit/index-behind-commit",
        "identity/admit/index-behind-with-remainder",
        "identity/admit/index-remainder-gap",
    )
    blind = frozenset(
        {"INDEX_BEYOND_COMMIT", "INDEX_BEHIND_COMMIT", "INDEX_ENTRY_OUT_OF_RANGE", "CANDIDATE_NOT_INDEXED"}
    )


class RemainderRefused(Fault):
    """An index behind the commit is refused although another exact set covers the rest."""

    requirement = "IDN-020"
    killed_by = ("identity/admit/index-behind-with-remainder",)

    def violations(self, manifest: Manifest, stage: Stage) -> Iterator[Violation]:
        strict = replace(manifest, index=replace(manifest.index, remainder=None))
        return super().violations(strict, stage)  # type: ignore[return-value]


class RemainderBeyond(Fault):
    """A set that covers the rest may reach beyond the frontier."""

    requirement = "IDN-020"
    killed_by = ("identity/admit/index-remainder-beyond",)

    def violations(self, manifest: Manifest, stage: Stage) -> Iterator[Violation]:
        rest, frontier = manifest.index.remainder, manifest.source.committed_frontier
        if rest and rest.end_position > frontier:
            cut = replace(manifest.index, remainder=replace(rest, end_position=frontier))
            manifest = replace(manifest, index=cut)
        return super().violations(manifest, stage)  # type: ignore[return-value]


class UnfinishedIndex(Blind):
    """An index is searched while it is being built, after it was withdrawn, by anybody, in any coordinates."""

    requirement = "IDN-021"
    killed_by = (
        "identity/admit/index-building",
        "identity/admit/index-tombstoned",
        "identity/admit/index-tenant",
        "identity/admit/index-coordinates",
        "identity/session/publish-index-building",
    )
    blind = frozenset(
        {"INDEX_NOT_PUBLISHED", "INDEX_TENANT_MISMATCH", "COORDINATE_MISMATCH", "INDEX_ENTRY_OUT_OF_RANGE"}
    )


class LookupReused(Blind):
    """A look-up receipt is used for another query, index, selector and history."""

    requirement = "IDN-022"
    killed_by = (
        "identity/admit/lookup-query",
        "identity/session/lookup-query",
        "identity/session/lookup-index-generation",
        "identity/session/lookup-cache-generation",
    )
    blind = frozenset(
        {"LOOKUP_OF_OTHER_QUERY", "STALE_INDEX_GENERATION", "LOOKUP_OF_OTHER_SELECTOR", "LOOKUP_OF_OTHER_HISTORY"}
    )


class IdsAreRows(Blind):
    """What an index or a proxy returns is packed as rows."""

    requirement = "IDN-001"
    killed_by = (
        "identity/admit/lookup-ids-as-rows",
        "identity/admit/gather-from-index",
        "identity/admit/gather-from-proxy",
        "identity/session/lookup-ids-as-rows",
        "identity/session/partial-from-proxy",
    )
    blind = frozenset({"IDS_POSE_AS_ROWS", "ROWS_NOT_FROM_REPLICA", "GATHER_SHAPE_MISMATCH"})


class PaddingIsAPosition(Blind):
    """Padding ids and repeated ids are gathered like candidates."""

    requirement = "IDN-023"
    killed_by = (
        "identity/admit/lookup-candidate-out-of-range",
        "identity/admit/lookup-candidate-twice",
        "identity/admit/candidate-not-indexed",
        "identity/session/lookup-candidate-twice",
    )
    blind = frozenset({"CANDIDATE_OUT_OF_RANGE", "CANDIDATES_NOT_ASCENDING", "CANDIDATE_NOT_INDEXED"})


class EventsIgnored(Blind):
    """Rows are read before they have arrived (vllm#52360)."""

    requirement = "IDN-026"
    killed_by = (
        "identity/admit/step-order",
        "identity/admit/step-event",
        "identity/admit/gather-not-visible",
        "identity/admit/gather-event",
        "identity/admit/partial-before-visible",
    )
    blind = frozenset({"STEP_OUT_OF_ORDER", "ROW_NOT_VISIBLE", "VISIBILITY_EVENT_MISMATCH", "READ_BEFORE_VISIBLE"})


class GatherUnchecked(Blind):
    """A gather receipt is believed: positions, shapes, copies."""

    requirement = "IDN-025"
    killed_by = (
        "identity/admit/gather-dense-reindex",
        "identity/admit/gather-shape-of-values",
        "identity/admit/gather-released-replica",
        "identity/admit/gather-allocation-as-replica",
        "identity/session/partial-stale-replica",
        "identity/session/partial-reindexed",
    )
    blind = frozenset(
        {"GATHER_OF_OTHER_POSITIONS", "GATHER_SHAPE_MISMATCH", "STALE_REPLICA_GENERATION", "STALE_LEASE_GENERATION"}
    )


class SelectedIsFull(Blind):
    """A merge over the selected rows is published as attention over all of them."""

    requirement = "IDN-028"
    killed_by = (
        "identity/admit/output-full-claim",
        "identity/admit/output-exact-promise",
        "identity/admit/output-exact-lane",
        "identity/admit/exact-lane-with-every-row",
    )
    blind = frozenset({"SUPPORT_OVERCLAIMED", "EXACTNESS_OVERCLAIMED"})


class ClockWithoutOrigin(Blind):
    """A budget without an event that it counts from is accepted (vllm#49829)."""

    requirement = "IDN-029"
    killed_by = ("identity/admit/deadline-origin", "identity/admit/deadline-missed")
    blind = frozenset({"DEADLINE_WITHOUT_ORIGIN", "DEADLINE_MISSED"})


class ContinuesWithWhatArrived(Blind):
    """At the deadline attention runs over the rows that are there (dynamo#15079)."""

    requirement = "IDN-030"
    killed_by = (
        "identity/admit/fallback-continue",
        "identity/admit/fallback-other",
        "identity/admit/output-what-arrived",
        "identity/admit/fallback-promoted",
        "identity/admit/fallback-broadened",
        "identity/admit/fallback-rejected",
    )
    blind = frozenset({"UNKNOWN_FALLBACK", "FALLBACK_NOT_DECLARED", "SILENT_PARTIAL_SUPPORT"})


class LastReason(Fault):
    """The rules run in another order, so that the last broken one is named."""

    requirement = "IDN-031"
    killed_by = tuple(
        f"identity/precedence/{name}"
        for name in (
            "identity-before-residency",
            "residency-before-selection",
            "selection-before-execution",
            "execution-before-service",
            "binding-in-field-order",
            "digests-before-planes",
        )
    )

    def violations(self, manifest: Manifest, stage: Stage) -> Iterator[Violation]:
        return reversed(list(super().violations(manifest, stage)))


class LenientReading(Fault):
    """Unknown members are dropped, and numbers are read from text and flags."""

    requirement = "IDN-032"
    killed_by = (
        "identity/admit/schema-unknown-member",
        "identity/admit/schema-text-for-generation",
        "identity/admit/schema-flag-for-number",
        "identity/admit/schema-upper-case-digest",
    )

    def manifest(self, request: Request) -> Manifest:
        def tidy(value: Any) -> Any:
            if isinstance(value, dict):
                return {name: tidy(item) for name, item in value.items() if name != "temperature"}
            if isinstance(value, list):
                return [tidy(item) for item in value]
            return int(value) if str(value).isdigit() and len(str(value)) < 16 else value

        document = tidy(request["document"])
        document["chunk"]["sha256"] = document["chunk"]["sha256"].lower()
        for replica in document["directory"]["replicas"]:
            replica["lease"]["readers"] = int(replica["lease"]["readers"])
        try:
            return super().manifest({"document": document})
        except Rejected as refusal:
            if document["chunk"]["sha256"] != "a" * 64:
                raise
            raise Rejected("CHUNK_DIGEST_MISMATCH", refusal.detail) from None


class NoReading(Fault):
    """A document is not looked at when it has no digest to check."""

    requirement = "IDN-032"
    killed_by = tuple(
        f"identity/admit/schema-{name}"
        for name in (
            "no-kv-head",
            "no-fallback",
            "no-clock",
            "negative-generation",
            "short-digest",
            "seven-steps",
            "state-without-mass",
            "version",
        )
    )

    def identity_admit(self, request: Request) -> Result:
        try:
            return super().identity_admit(request)
        except Rejected as refusal:
            if refusal.reason == "SCHEMA_VIOLATION":
                return {}
            raise


# --- retrieval -------------------------------------------------------------------------------------------------------


class PlaceInRowIdentity(Fault):
    """The name of a row holds the copy that it was read from."""

    requirement = "IDN-004"
    killed_by = ("identity/trace/rows-keep-their-identity", "identity/trace/gather")

    class Session(Retrieval):
        """Names rows by copy and row."""

        def gather(self, caller: Manifest) -> tuple[Rows, Gather]:
            rows, receipt = super().gather(caller)
            named = zip(receipt.row_sha256, receipt.source_replica_generations, strict=True)
            digests = tuple(hashlib.sha256(f"{row}{copy}".encode()).hexdigest() for row, copy in named)
            return rows, replace(receipt, row_sha256=digests)

    def new_retrieval(self) -> Retrieval:
        return self.Session(self.violations)


class DenseReindex(Fault):
    """Rows are read by packed rank, not by position."""

    requirement = "IDN-024"
    killed_by = ("identity/trace/gather-packed-row-1", "identity/trace/gather", "identity/trace/partial")

    class Session(Retrieval):
        """Reads row 0, 1, 2."""

        def rows(self, entry: Published, layer: int, kv_head: int, positions: Iterable[int]) -> Rows:
            return super().rows(entry, layer, kv_head, range(len(list(positions))))

    def new_retrieval(self) -> Retrieval:
        return self.Session(self.violations)


class WrongHeadGathered(Fault):
    """Rows of K/V head 0 are read for every head (LMCache#4463)."""

    requirement = "IDN-011"
    killed_by = ("identity/trace/gather-packed-row-1", "identity/trace/gather")

    class Session(Retrieval):
        """Reads one head."""

        def rows(self, entry: Published, layer: int, kv_head: int, positions: Iterable[int]) -> Rows:
            return super().rows(entry, layer, 0, positions)

    def new_retrieval(self) -> Retrieval:
        return self.Session(self.violations)


class LookupOfOneHead(Fault):
    """Candidates are always scored at layer 1, K/V head 1, where the toy was written."""

    requirement = "IDN-011"
    killed_by = ("identity/trace/lookup-other-head",)

    class Session(Retrieval):
        """Scores one head."""

        def lookup(self, caller: Manifest, query_proxy: Any, count: int) -> Lookup:
            wanted = caller.operation
            fixed = replace(caller, operation=replace(wanted, layer=1, query_head=2, kv_head=1))
            found = super().lookup(fixed, query_proxy, count)
            return replace(found, layer=wanted.layer, query_head=wanted.query_head, kv_head=wanted.kv_head)

    def new_retrieval(self) -> Retrieval:
        return self.Session(self.violations)


class SwappedKeysAndValues(Fault):
    """Keys are packed where values belong."""

    requirement = "IDN-024"
    killed_by = ("identity/trace/gather-packed-row-1",)

    class Session(Retrieval):
        """Swaps."""

        def rows(self, entry: Published, layer: int, kv_head: int, positions: Iterable[int]) -> Rows:
            rows = super().rows(entry, layer, kv_head, positions)
            return Rows(rows.v, rows.k, rows.trace_v, rows.trace_k)

    def new_retrieval(self) -> Retrieval:
        return self.Session(self.violations)


class PadsToOneRow(Fault):
    """An empty list of candidates is padded with position 0, which is then read."""

    requirement = "IDN-024"
    killed_by = ("identity/trace/gather-nothing",)

    class Session(Retrieval):
        """Never gathers nothing."""

        def rows(self, entry: Published, layer: int, kv_head: int, positions: Iterable[int]) -> Rows:
            return super().rows(entry, layer, kv_head, list(positions) or [0])

    def new_retrieval(self) -> Retrieval:
        return self.Session(self.violations)


class TiesToTheHigher(Fault):
    """Equal scores go to the later position."""

    requirement = "IDN-023"
    killed_by = ("identity/trace/lookup-ties",)

    class Session(Retrieval):
        """Searches backwards."""

        def lookup(self, caller: Manifest, query_proxy: Any, count: int) -> Lookup:
            found = super().lookup(caller, query_proxy, count)
            if float(query_proxy[0]) or float(query_proxy[1]):
                return found
            last = self.find(caller).manifest.index.entry_ids[-count:]
            return replace(found, candidate_original_positions=last)

    def new_retrieval(self) -> Retrieval:
        return self.Session(self.violations)


class PostFilter(Fault):
    """The best of all positions are taken first, and those without an entry left out afterwards."""

    requirement = "IDN-023"
    killed_by = ("identity/trace/lookup-of-entries-alone",)

    class Session(Retrieval):
        """Filters last."""

        def lookup(self, caller: Manifest, query_proxy: Any, count: int) -> Lookup:
            entry = self.find(caller)
            index = entry.manifest.index
            whole = replace(index, entry_ids=tuple(range(index.committed_frontier)))
            everything = replace(entry, manifest=replace(entry.manifest, index=whole))
            found = self.unfiltered(everything, caller, query_proxy, count).candidate_original_positions
            kept = tuple(position for position in found if position in index.entry_ids)
            return replace(super().lookup(caller, query_proxy, count), candidate_original_positions=kept)

        def unfiltered(self, entry: Published, caller: Manifest, query_proxy: Any, count: int) -> Lookup:
            """The look-up as if every position had an entry."""
            session = Retrieval(self.rules)
            session.published = [entry]
            return session.lookup(caller, query_proxy, count)

    def new_retrieval(self) -> Retrieval:
        return self.Session(self.violations)


class CachedLookup(Fault):
    """Look-ups are remembered by the query's digest, heads and count, whatever was published since."""

    requirement = "IDN-022"
    killed_by = ("identity/session/lookup-of-other-history", "identity/session/lookup-of-latest")

    class Session(Retrieval):
        """Remembers."""

        def lookup(self, caller: Manifest, query_proxy: Any, count: int) -> Lookup:
            found = super().lookup(caller, query_proxy, count)
            memory: dict[Any, tuple[int, ...]] = vars(self).setdefault("memory", {})
            question = (caller.operation.query_sha256, caller.operation.heads, count)
            return replace(
                found,
                candidate_original_positions=memory.setdefault(question, found.candidate_original_positions),
            )

    def new_retrieval(self) -> Retrieval:
        return self.Session(self.violations)


class OneCopyForAll(Fault):
    """The receipt names the authoritative copy for every row, wherever it was read."""

    requirement = "IDN-025"
    killed_by = ("identity/trace/gather",)

    class Session(Retrieval):
        """Names one copy."""

        def gather(self, caller: Manifest) -> tuple[Rows, Gather]:
            rows, receipt = super().gather(caller)
            return rows, replace(receipt, source_replica_generations=(17,) * len(receipt.original_positions))

    def new_retrieval(self) -> Retrieval:
        return self.Session(self.violations)


class UnboundLookup(Fault):
    """A look-up receipt names another query than it was made for: the digest of an empty one."""

    requirement = "IDN-022"
    killed_by = ("identity/trace/lookup",)

    class Session(Retrieval):
        """Forgets the query."""

        def lookup(self, caller: Manifest, query_proxy: Any, count: int) -> Lookup:
            return replace(super().lookup(caller, query_proxy, count), query_sha256=hashlib.sha256(b"").hexdigest())

    def new_retrieval(self) -> Retrieval:
        return self.Session(self.violations)


class PartialReused(Blind):
    """A state that was computed once is handed out for every query over the same rows."""

    requirement = "IDN-027"
    killed_by = (
        "identity/session/partial-of-other-query",
        "identity/admit/partial-query",
        "identity/admit/partial-mask",
        "identity/admit/partial-support",
        "identity/admit/partial-merge-revision",
        "identity/admit/partial-without-mass",
    )
    blind = frozenset(
        {
            "PARTIAL_OF_OTHER_QUERY",
            "MASK_MISMATCH",
            "PARTIAL_OF_OTHER_SUPPORT",
            "MERGE_REVISION_MISMATCH",
            "STATE_WITHOUT_MASS",
        }
    )

    class Session(Retrieval):
        """Does not look at the query's bytes."""

        def partial(self, caller: Manifest, q: Any, scale: float) -> tuple[State, PartialReceipt]:
            own = self.find(caller).manifest.partial
            names = [field for field in vars(own) if field not in ("m", "l", "u")]
            rows, _ = self.gather(caller)
            receipt = PartialReceipt(**{name: getattr(own, name) for name in names})
            return reduce(rows, q, receipt.support, scale), receipt

    def new_retrieval(self) -> Retrieval:
        return self.Session(self.violations)


class PayloadUnchecked(Fault):
    """Bytes are published without a look at their digest (Mooncake#3735, sglang#39229)."""

    requirement = "IDN-042"
    killed_by = ("identity/session/wrong-bytes", "identity/diagnosis/wrong-bytes")

    class Session(Retrieval):
        """Believes the manifest."""

        def publish(self, entry: Published) -> None:
            self.admit(entry.manifest)
            self.published.append(entry)

    def new_retrieval(self) -> Retrieval:
        return self.Session(self.violations)


class PublishedUnread(Fault):
    """A publication is served as it came, without a look at its tiers, authority or proxy."""

    requirement = "IDN-033"
    killed_by = tuple(
        f"identity/session/publish-{name}"
        for name in (
            "tier-renamed-away",
            "authority-staged",
            "authority-epoch",
            "authority-replica-epoch",
            "proxy-heads",
        )
    )

    class Session(Retrieval):
        """Asks for the binding alone."""

        def publish(self, entry: Published) -> None:
            self.published.append(entry)

        def gather(self, caller: Manifest) -> tuple[Rows, Gather]:
            heads = (caller.operation.layer, caller.operation.kv_head)
            positions = caller.lookup.candidate_original_positions
            return self.rows(self.find(caller), *heads, positions), caller.gather

    def new_retrieval(self) -> Retrieval:
        return self.Session(self.violations)


class LatestPublicationWins(Fault):
    """Whatever was published last is served to every reader (LMCache#4385)."""

    requirement = "IDN-033"
    killed_by = (
        "identity/session/twin-model-artifact",
        "identity/session/twin-adapter-set",
        "identity/session/twin-tenant-namespace",
        "identity/session/twin-cache-generation",
    )

    class Session(Retrieval):
        """Keeps one publication and asks no reader who it is."""

        def publish(self, entry: Published) -> None:
            self.published = [entry]

        def gather(self, caller: Manifest) -> tuple[Rows, Gather]:
            own = self.published[-1].manifest
            return super().gather(replace(own, steps=caller.steps))

    def new_retrieval(self) -> Retrieval:
        return self.Session(self.violations)


class RefusalUnpublishes(Fault):
    """A refused read drops what was published: one caller's mistake is every caller's miss."""

    requirement = "IDN-033"
    killed_by = ("identity/session/reader-model-artifact", "identity/session/lookup-index-generation")

    def identity_gather(self, request: Request) -> Result:
        try:
            return super().identity_gather(request)
        except Rejected:
            self.retrieval.published.clear()
            raise


class GenericRefusal(Fault):
    """Every refusal of a read is an invalid argument."""

    requirement = "IDN-041"
    killed_by = (
        "identity/diagnosis/reader-model-artifact",
        "identity/diagnosis/lookup-index-generation",
        "identity/diagnosis/wrong-bytes",
        "identity/diagnosis/nothing-published",
    )

    def identity_gather(self, request: Request) -> Result:
        try:
            return super().identity_gather(request)
        except Rejected as refusal:
            raise Rejected("SCHEMA_VIOLATION", refusal.detail) from None

    def identity_publish(self, request: Request) -> Result:
        try:
            return super().identity_publish(request)
        except Rejected as refusal:
            raise Rejected("SCHEMA_VIOLATION", refusal.detail) from None


# --- keys ------------------------------------------------------------------------------------------------------------


class Lacking(Fault):
    """Keys that lack fields."""

    fields: ClassVar[tuple[str, ...]] = ()

    def row_keys(self, record: Record) -> list[bytes]:
        return super().row_keys({name: value for name, value in record.items() if name not in self.fields})


def _separations(*fields: str) -> tuple[str, ...]:
    names = [field.replace("_", "-") for field in fields]
    return tuple(f"identity/{form}{name}" for name in names for form in ("field/", "keys/field-"))


class NoModelInKey(Lacking):
    """Weights are not part of the key (vllm#57727)."""

    requirement = "IDN-035"
    fields = ("model", "checkpoint_generation")
    killed_by = _separations(*fields)


class NoAdapterInKey(Lacking):
    """The adapter is not part of the key (vllm#44250)."""

    requirement = "IDN-035"
    fields = ("adapter_name", "adapter_id", "adapter_version")
    killed_by = (*_separations(*fields), "identity/optional/no-adapter")


class NoSaltInKey(Lacking):
    """The cache salt is not part of the key."""

    requirement = "IDN-035"
    fields = ("cache_salt",)
    killed_by = (*_separations(*fields), "identity/optional/no-salt")


class NoTenantInKey(Lacking):
    """Tenants share keys (LMCache#4385)."""

    requirement = "IDN-035"
    fields = ("tenant", "namespace_generation")
    killed_by = _separations(*fields)


class NoDtypeInKey(Lacking):
    """The element type and the codec are not part of the key (LMCache#1856)."""

    requirement = "IDN-035"
    fields = ("dtype", "codec")
    killed_by = _separations(*fields)


class NoLayoutInKey(Lacking):
    """Layout and meaning of the rows are not part of the key (LMCache#4463)."""

    requirement = "IDN-035"
    fields = ("layout", "cache_abi", "visibility_policy")
    killed_by = _separations(*fields)


class NoPositionInKey(Lacking):
    """Positions and rotary embedding are not part of the key."""

    requirement = "IDN-035"
    fields = ("position_contract", "rope_config", "first_position")
    killed_by = _separations(*fields)


class NoPlaceInKey(Lacking):
    """Layer, head and shard are not part of the key (LMCache#4463)."""

    requirement = "IDN-035"
    fields = ("layer", "kv_head", "shard_rank", "shard_count")
    killed_by = _separations(*fields)


class NoGenerationInKey(Lacking):
    """Generations are not part of the key, and nothing fences them."""

    requirement = "IDN-035"
    fields = ("cache_generation", "publication_generation")
    killed_by = _separations(*fields)


class AdapterWithoutVersion(Lacking):
    """An adapter is its name and its id; what was loaded under them does not count (vllm#53194)."""

    requirement = "IDN-037"
    fields = ("adapter_version",)
    killed_by = _separations(*fields)


class PlaceholdersAreContent(Lacking):
    """Embeddings and images count as the placeholder tokens that they leave behind."""

    requirement = "IDN-037"
    fields = ("prompt_embeds_sha256", "multimodal")
    killed_by = (
        "identity/content/embeddings-or-tokens",
        "identity/content/embeddings-differ",
        "identity/content/image-differs",
        "identity/content/image-or-none",
        "identity/content/second-image-differs",
    )


class ContentAsASet(Fault):
    """Digests of content enter the key as a sorted set, without their places."""

    requirement = "IDN-037"
    killed_by = ("identity/content/images-swapped", "identity/together/embeddings-or-image")

    def row_keys(self, record: Record) -> list[bytes]:
        extra = {item["sha256"] for item in record.get("multimodal", ())} | {record.get("prompt_embeds_sha256", "")}
        bare = {n: v for n, v in record.items() if n not in ("multimodal", "prompt_embeds_sha256")}
        salt = "".join(sorted(extra)).encode()
        return [hashlib.sha256(salt + key).digest() for key in super().row_keys(bare)]


class ItemWithoutLength(Fault):
    """An item enters the key at its first placeholder, without its length."""

    requirement = "IDN-037"
    killed_by = ("identity/content/image-shorter", "identity/keys/content-image-shorter")

    def row_keys(self, record: Record) -> list[bytes]:
        return super().row_keys({**record, "multimodal": [{**i, "length": 1} for i in record.get("multimodal", ())]})


class ItemWithoutOffset(Fault):
    """Each placeholder stands for the item, not for its own part of it."""

    requirement = "IDN-037"
    killed_by = ("identity/content/image-once-or-twice", "identity/keys/content-image-once-or-twice")

    def row_keys(self, record: Record) -> list[bytes]:
        parts = [
            {**item, "position": item["position"] + i, "length": 1}
            for item in record.get("multimodal", ())
            for i in range(item["length"])
        ]
        return super().row_keys({**record, "multimodal": parts})


class ConstantKey(Fault):
    """A key is the rank of the row alone: the fields were hashed before they were filled in."""

    requirement = "IDN-035"
    killed_by = ("identity/field/model", "identity/keys/same-record", "identity/keys/longer-prompt")

    def row_keys(self, record: Record) -> list[bytes]:
        return [row.to_bytes(4, "big") for row, _ in enumerate(record["tokens"])]


class Joined(Fault):
    """Keys of text that is joined by a separator."""

    separator: ClassVar[str]

    def row_keys(self, record: Record) -> list[bytes]:
        names = [name for name, _ in reuse.SCOPE]
        scope = self.separator.join(str(record[name]) for name in names if name in record)
        bare = {"tokens": record["tokens"], "multimodal": record.get("multimodal", ()), "model": self.spelt(scope)}
        return super().row_keys(bare)

    def spelt(self, text: str) -> str:
        """The text as the key holds it."""
        return text


class UntaggedExtras(Fault):
    """Adapter and salt enter the key as a list of those that are there, without saying which is which (vllm#53194)."""

    requirement = "IDN-036"
    killed_by = ("identity/together/moved-value", "identity/keys/together-moved-value")

    def row_keys(self, record: Record) -> list[bytes]:
        extras = [record[name] for name in ("adapter_name", "cache_salt") if name in record]
        bare = {name: value for name, value in record.items() if name not in ("adapter_name", "cache_salt")}
        return [hashlib.sha256(key + repr(extras).encode()).digest() for key in super().row_keys(bare)]


class JoinedByNothing(Joined):
    """Fields are written one after the other."""

    requirement = "IDN-036"
    separator = ""
    killed_by = (
        "identity/together/layer-head-digits",
        "identity/keys/together-layer-head-digits",
        "identity/together/generation-digits",
    )


class FileNames(Joined):
    """Keys become file names: slashes are replaced, case is folded, spaces go, and 255 letters are kept."""

    requirement = "IDN-036"
    separator = "-"
    killed_by = (
        "identity/together/slash-or-dash",
        "identity/together/case",
        "identity/together/long-tail",
        "identity/keys/together-slash-or-dash",
    )

    def spelt(self, text: str) -> str:
        return text.replace("/", "-").lower()[:255]


class JoinedPair(Fault):
    """Model with adapter, and tenant with salt, are joined by a separator."""

    separator: ClassVar[str]

    def row_keys(self, record: Record) -> list[bytes]:
        pairs = (("model", "adapter_name"), ("tenant", "cache_salt"))
        joined = {first: self.separator.join((record[first], record.get(second, ""))) for first, second in pairs}
        rest = {name: value for name, value in record.items() if name not in ("adapter_name", "cache_salt")}
        return super().row_keys({**rest, **joined})


def _pairs(*separators: str) -> tuple[str, ...]:
    return tuple(
        f"identity/{form}{pair}-{separator}"
        for separator in separators
        for pair in ("model-adapter", "tenant-salt")
        for form in ("together/", "keys/together-")
    )


class PairJoinedByDash(JoinedPair):
    """Model with adapter, and tenant with salt, are joined by a dash."""

    requirement = "IDN-036"
    separator = "-"
    killed_by = _pairs("dash")


class PairJoinedByNothing(JoinedPair):
    """Model with adapter, and tenant with salt, are written one after the other."""

    requirement = "IDN-036"
    separator = ""
    killed_by = _pairs("nothing")


class PairCleaned(JoinedPair):
    """Model with adapter, and tenant with salt, are joined, and what is neither letter nor digit is left out."""

    requirement = "IDN-036"
    separator = ""
    killed_by = _pairs("at", "bar", "dash", "slash", "colon", "underscore", "hash", "comma", "space", "nothing")

    def row_keys(self, record: Record) -> list[bytes]:
        names = {name: record[name] for name in ("model", "adapter_name", "tenant", "cache_salt") if name in record}
        clean = {name: "".join(filter(str.isalnum, value)) for name, value in names.items()}
        return super().row_keys({**record, **clean})


class UnorderedFields(Fault):
    """Hashes of the fields' values are combined by exclusive or, so that two of them may swap."""

    requirement = "IDN-036"
    killed_by = ("identity/together/swapped-values", "identity/together/generations-swapped")

    def row_keys(self, record: Record) -> list[bytes]:
        mixed = 0
        for name, _ in reuse.SCOPE:
            if name in record:
                mixed ^= int.from_bytes(hashlib.sha256(repr(record[name]).encode()).digest(), "big")
        bare = {"tokens": record["tokens"], "multimodal": record.get("multimodal", ()), "model": hex(mixed)}
        return super().row_keys(bare)


class SixteenBitTokens(Fault):
    """Tokens are hashed as 16-bit numbers."""

    requirement = "IDN-036"
    killed_by = ("identity/together/token-high-bits", "identity/keys/together-token-high-bits")

    def row_keys(self, record: Record) -> list[bytes]:
        return super().row_keys({**record, "tokens": [token & 0xFFFF for token in record["tokens"]]})


class EightBitRanks(Fault):
    """Ranks are packed into eight bits each."""

    requirement = "IDN-036"
    killed_by = ("identity/together/rank-high-bits", "identity/keys/together-rank-high-bits")

    def row_keys(self, record: Record) -> list[bytes]:
        return super().row_keys({**record, "shard_rank": record["shard_rank"] & 0xFF})


class NarrowNumbers(Fault):
    """Numbers pass through a type that does not hold them all."""

    numbers = tuple(name for name, form in reuse.SCOPE if form is canonical.Form.INTEGER)

    def narrow(self, number: int) -> int:
        """What is left of a number."""
        raise NotImplementedError

    def row_keys(self, record: Record) -> list[bytes]:
        narrow = {name: self.narrow(record[name]) for name in self.numbers if name in record}
        return super().row_keys({**record, **narrow})


class ThirtyTwoBitNumbers(NarrowNumbers):
    """Adapter ids, generations, layers and ranks are cut to 32 bits."""

    requirement = "IDN-036"
    killed_by = tuple(
        f"identity/{form}wide-{name.replace('_', '-')}"
        for name in NarrowNumbers.numbers
        for form in ("together/", "keys/together-")
    )

    def narrow(self, number: int) -> int:
        return number & 0xFFFFFFFF


class FloatNumbers(NarrowNumbers):
    """Adapter ids, generations, layers and ranks pass through float32."""

    requirement = "IDN-036"
    killed_by = ("identity/together/wide-adapter-id", "identity/keys/together-wide-adapter-id")

    def narrow(self, number: int) -> int:
        return int(np.float32(number))


class NarrowTokens(Fault):
    """Tokens pass through a type that does not hold them all."""

    def narrow(self, token: int) -> int:
        """What is left of a token."""
        raise NotImplementedError

    def row_keys(self, record: Record) -> list[bytes]:
        return super().row_keys({**record, "tokens": [self.narrow(token) for token in record["tokens"]]})


class FloatTokens(NarrowTokens):
    """Tokens pass through a float32 tensor, which rounds from 2^24 on."""

    requirement = "IDN-036"
    killed_by = ("identity/together/token-rounded", "identity/keys/together-token-rounded")

    def narrow(self, token: int) -> int:
        return int(np.float32(token))


class TokensWithoutSign(NarrowTokens):
    """Tokens are hashed without the bit that a signed type has for its sign."""

    requirement = "IDN-036"
    killed_by = ("identity/together/token-sign-bit", "identity/together/token-largest")

    def narrow(self, token: int) -> int:
        return token & 0x7FFFFFFF


class RankTimesCount(Fault):
    """Rank and count are packed into one number, rank times 1024 plus count."""

    requirement = "IDN-036"
    killed_by = ("identity/together/rank-and-count", "identity/keys/together-rank-and-count")

    def row_keys(self, record: Record) -> list[bytes]:
        packed = record["shard_rank"] * 1024 + record["shard_count"]
        return super().row_keys({**record, "shard_rank": packed, "shard_count": 0})


class LatinLetters(Fault):
    """Text is encoded as Latin-1, and a question mark stands for what Latin-1 does not have."""

    requirement = "IDN-036"
    killed_by = tuple(
        f"identity/{form}letters-{name.replace('_', '-')}"
        for name, form_of in reuse.SCOPE
        if form_of is canonical.Form.TEXT and name != "dtype"
        for form in ("together/", "keys/together-")
    )

    def row_keys(self, record: Record) -> list[bytes]:
        latin = {
            name: value.encode("latin-1", "replace").decode("latin-1")
            for name, value in record.items()
            if isinstance(value, str)
        }
        return super().row_keys({**record, **latin})


class SixteenBitLetters(Fault):
    """A letter of the salt is its number's low 16 bits."""

    requirement = "IDN-036"
    killed_by = ("identity/together/letters-cache-salt", "identity/keys/together-letters-cache-salt")

    def row_keys(self, record: Record) -> list[bytes]:
        salt = {name: "".join(chr(ord(x) & 0xFFFF) for x in record[name]) for name in ("cache_salt",) if name in record}
        return super().row_keys({**record, **salt})


class TupleHashes(Fault):
    """Blocks of four tokens are known by CPython's hash of the tuple, which has no key (LMCache's default)."""

    requirement = "IDN-036"
    killed_by = ("identity/together/tuple-hash", "identity/keys/together-tuple-hash")

    def row_keys(self, record: Record) -> list[bytes]:
        tokens = record["tokens"]
        blocks = [tuple(tokens[row // 4 * 4 : row // 4 * 4 + 4]) for row in range(len(tokens))]
        return super().row_keys({**record, "tokens": [hash(block) & 0xFFFFFFFF for block in blocks]})


class TokensAsText(Fault):
    """Tokens are hashed as the text of their digits up to the row, and a text has one sum."""

    requirement = "IDN-036"
    killed_by = ("identity/together/token-digits", "identity/keys/together-token-digits")

    def row_keys(self, record: Record) -> list[bytes]:
        scope, text, keys = reuse.scope_encoding(record), "", []
        for token in record["tokens"]:
            text += str(token)
            keys.append(hashlib.sha256(scope + text.encode()).digest())
        return keys


class SummedTokens(Fault):
    """A row's key is made of the sum of the tokens so far."""

    requirement = "IDN-036"
    killed_by = ("identity/together/token-order", "identity/keys/together-token-order")

    def row_keys(self, record: Record) -> list[bytes]:
        scope, total, keys = reuse.scope_encoding(record), 0, []
        for token in record["tokens"]:
            total += token
            keys.append(hashlib.sha256(scope + total.to_bytes(8, "big")).digest())
        return keys


class SixteenBitKeys(Fault):
    """Keys keep 16 bits of their hash (LMCache#4086)."""

    requirement = "IDN-036"
    killed_by = ("identity/keys/many", "identity/together/many")

    def row_keys(self, record: Record) -> list[bytes]:
        return [key[:2] for key in super().row_keys(record)]


class PathsResolved(Fault):
    """Model names are cleaned up like paths and unescaped like addresses (LMCache#5069)."""

    requirement = "IDN-036"
    killed_by = (
        "identity/together/dot-segment",
        "identity/together/parent-segment",
        "identity/together/escaped",
        "identity/together/slash-or-marker",
        "identity/together/trailing-space",
    )

    def row_keys(self, record: Record) -> list[bytes]:
        name = (
            record["model"].replace("/./", "/").replace("oak/../", "").replace("%2F", "/").replace("-SEP-", "/").strip()
        )
        return super().row_keys({**record, "model": name})


class NamesTidied(Fault):
    """Model names are normalised, and underscores stand for whatever is not a letter."""

    requirement = "IDN-036"
    killed_by = (
        "identity/together/composed",
        "identity/together/slash-or-underscore",
        "identity/together/double-underscore",
    )

    def row_keys(self, record: Record) -> list[bytes]:
        name = unicodedata.normalize("NFC", record["model"]).replace("/", "_").replace("__", "_")
        return super().row_keys({**record, "model": name})


class FreshKeys(Fault):
    """A key holds the number of the request, so that nothing is ever found again."""

    requirement = "IDN-034"
    killed_by = ("identity/field/same-record", "identity/field/nothing-stored", "identity/keys/same-record")

    def row_keys(self, record: Record) -> list[bytes]:
        self.requests = getattr(self, "requests", 0) + 1
        return [key + self.requests.to_bytes(4, "big") for key in super().row_keys(record)]


class HitOnNothing(Fault):
    """What is not there is served as zeros."""

    requirement = "IDN-034"
    killed_by = ("identity/field/nothing-stored",)

    def identity_get(self, request: Request) -> Result:
        found = super().identity_get(request)
        return found if found["outcome"] == "hit" else {"outcome": "hit", "rows": len(request["record"]["tokens"])}


class TokensWithoutPrefix(Fault):
    """A row's key holds its own token and place, not what came before."""

    requirement = "IDN-038"
    killed_by = ("identity/field/first-token", "identity/field/later-token")

    def row_keys(self, record: Record) -> list[bytes]:
        scope = reuse.scope_encoding(record)
        rows = range(len(record["tokens"]))
        return [hashlib.sha256(scope + bytes([row % 256]) + reuse.row_encoding(record, row)).digest() for row in rows]


class ChainPerSegment(Fault):
    """The chain of hashes begins anew every 64 rows; the number of the segment enters it, what came before does not."""

    requirement = "IDN-038"
    killed_by: ClassVar[tuple[str, ...]] = (
        "identity/field/segment-64",
        "identity/field/segment-256",
        "identity/keys/field-segment-64",
    )
    segment: ClassVar[int] = 64

    def row_keys(self, record: Record) -> list[bytes]:
        start = key = hashlib.sha256(reuse.scope_encoding(record)).digest()
        keys = []
        for row in range(len(record["tokens"])):
            if row % self.segment == 0:
                key = hashlib.sha256(start + row.to_bytes(8, "big")).digest()
            key = hashlib.sha256(key + reuse.row_encoding(record, row)).digest()
            keys.append(key)
        return keys


class ChainPerBlock(ChainPerSegment):
    """The chain of hashes begins anew with each block of 16."""

    killed_by = ("identity/field/segment-16", "identity/keys/field-segment-16")
    segment = 16


class FirstBlockOnly(Fault):
    """Only the first 16 tokens enter the keys (LMCache#2206)."""

    requirement = "IDN-038"
    killed_by = (
        "identity/keys/longer-prompt",
        "identity/field/later-token",
        "identity/field/later-token-in-block",
        "identity/field/last-token",
    )

    def row_keys(self, record: Record) -> list[bytes]:
        tokens = record["tokens"]
        keys = super().row_keys({**record, "tokens": [*tokens[:16], *[0] * (len(tokens) - 16)]})
        return keys if len(keys) < 32 else keys[:32]


class LastBlockWhole(Fault):
    """A block that begins alike is reused as a whole."""

    requirement = "IDN-038"
    killed_by = ("identity/field/later-token-in-block",)

    def row_keys(self, record: Record) -> list[bytes]:
        keys = super().row_keys(record)
        return [keys[row // 16 * 16] + bytes([row % 16]) for row in range(len(keys))]


class EmptyIsAbsent(Fault):
    """``if adapter_name``: an empty name or salt is none."""

    requirement = "IDN-040"
    killed_by = ("identity/optional/empty-adapter", "identity/optional/empty-salt", "identity/keys/optional-empty-salt")

    def row_keys(self, record: Record) -> list[bytes]:
        return super().row_keys({name: value for name, value in record.items() if value != ""})


# --- fences -----------------------------------------------------------------------------------------------------------


class FenceFault(ReferenceFenced):
    """The reference that fences by reset, to be spoiled."""

    requirement: ClassVar[str] = "IDN-039"
    killed_by: ClassVar[tuple[str, ...]]


class ChangeIgnored(FenceFault):
    """A weight update leaves the old rows servable (vllm#57727, lmdeploy#4917)."""

    killed_by = tuple(f"identity/fence/{name.replace('_', '-')}" for name in sorted(ReferenceFenced.fields))

    def identity_change(self, request: Request) -> Result:
        return {}


class WeightsAlone(FenceFault):
    """Only an update of the weights resets; an adapter that is replaced in place does not."""

    killed_by = ("identity/fence/adapter-version", "identity/fence/adapter-name")

    def identity_change(self, request: Request) -> Result:
        return super().identity_change(request) if request["field"] in ("model", "checkpoint_generation") else {}


class FalsyFence(FenceFault):
    """``if value``: a change to zero, to an empty text or to nothing resets nothing."""

    killed_by = tuple(
        f"identity/fence/{name}"
        for name in (
            "adapter-name-to-none",
            "adapter-id-to-zero",
            "adapter-version-to-empty",
            "namespace-generation-to-zero",
        )
    )

    def identity_change(self, request: Request) -> Result:
        return super().identity_change(request) if request["value"] else {}


class HiddenNotDropped(FenceFault):
    """Old rows are hidden behind the new name and come back with the old one."""

    killed_by = ("identity/fence/there-and-back",)

    def open(self) -> None:
        super().open()
        self.stores: dict[tuple[str, Any], reuse.RowStore] = {}
        self.first = self.store

    def identity_change(self, request: Request) -> Result:
        named = (request["field"], request["value"])
        returns = named == ("checkpoint_generation", "step-1200")
        self.store = self.first if returns else self.stores.setdefault(named, reuse.RowStore())
        return {}


ABSTRACT = (Fault, Blind, Lacking, FloorFault, Joined, JoinedPair, NarrowNumbers, NarrowTokens, FenceFault)


def _all() -> Iterator[type[Reference]]:
    for value in list(globals().values()):
        if isinstance(value, type) and issubclass(value, Fault | FenceFault) and value not in ABSTRACT:
            yield value


FAULTS = tuple(_all())
