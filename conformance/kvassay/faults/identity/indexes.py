"""Faults of *Proxies, indexes and look-ups*, as documents tell of them (IDN-001, IDN-019 to IDN-023)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from kvassay_reference.admission import Stage, Violation
from kvassay_reference.manifest import Manifest

from ..base import Fault, found
from .base import Blind


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


FAULTS = found(globals())
