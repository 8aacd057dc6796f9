"""Faults of a retrieval in session: look-ups, gathers, partial states, publications and refusals.

Requirements of *Proxies, indexes and look-ups*, *Gathers, states and outputs* and *Rejections*, with IDN-004, IDN-011,
IDN-041 and IDN-042.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from kvassay_reference.attention import State
from kvassay_reference.identity import Published, Retrieval, Rows, reduce
from kvassay_reference.manifest import Gather, Lookup, Manifest, PartialReceipt

from ...adapters.base import Rejected
from ..base import Fault, found
from .base import Blind, Request, Result


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


FAULTS = found(globals())
