"""The identity ops of the built-in adapter: documents become the reference's manifests, records its keys."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import numpy as np
from kvassay_reference import admission, canonical, reuse
from kvassay_reference.admission import Stage, Violation
from kvassay_reference.identity import Published, Retrieval
from kvassay_reference.manifest import Manifest, NotAManifest, read, write

from ..adapters.base import Rejected
from .reference_attention import refusals_named
from .reference_part import ReferencePart

Request = Mapping[str, Any]
Record = Mapping[str, Any]
Result = dict[str, Any]


class IdentityReference(ReferencePart):
    """The identity ops. Faults override one of the small methods; so do other array libraries."""

    own_profiles: ClassVar[frozenset[str]] = frozenset(
        {"digests", "manifest", "retrieval", "keys", "key-strings", "diagnosis"}
    )

    def open(self) -> None:
        """Nothing stored and nothing published."""
        super().open()
        self.store = reuse.RowStore()
        self.retrieval = self.new_retrieval()

    # digests and manifests

    def encode(self, kind: str, fields: Mapping[str, Any]) -> bytes:
        """Canonical encoding of an identity."""
        return canonical.encode(kind, fields)

    def digest(self, encoding: bytes) -> str:
        """Digest of an encoding."""
        return canonical.sha256(encoding)

    def identity_digest(self, request: Request) -> Result:
        """The digest of one identity and its encoding."""
        encoding = self.encode(request["kind"], request)
        return {"sha256": self.digest(encoding), "canonical": encoding.hex()}

    def identity_admit(self, request: Request) -> Result:
        """Accept a manifest or reject it."""
        manifest = self.manifest(request)
        with refusals_named():
            self.retrieval.admit(manifest)
        return {}

    def manifest(self, request: Request) -> Manifest:
        """The request's document as a manifest."""
        try:
            return read(Manifest, request["document"])
        except NotAManifest as problem:
            raise Rejected("SCHEMA_VIOLATION", str(problem)) from None

    def violations(self, manifest: Manifest, stage: Stage) -> Iterable[Violation]:
        """What a manifest violates, in the order of precedence."""
        return admission.violations(manifest, stage)

    # retrieval

    def new_retrieval(self) -> Retrieval:
        """A session without publications, under the engine's own rules."""
        return Retrieval(self.violations)

    def identity_publish(self, request: Request) -> Result:
        """Keep a manifest and its rows."""
        manifest = self.manifest(request)
        arrays = {name: self.inward(request[name]) for name in ("k", "v", "trace_k", "trace_v", "proxy")}
        with refusals_named():
            self.retrieval.publish(Published(manifest, **arrays))
        return {}

    def identity_lookup(self, request: Request) -> Result:
        """Candidates of an operation."""
        manifest, query = self.manifest(request), self.inward(request["query_proxy"])
        with refusals_named():
            return {"outcome": "served", "receipt": write(self.retrieval.lookup(manifest, query, request["count"]))}

    def identity_gather(self, request: Request) -> Result:
        """Rows of the candidates."""
        manifest = self.manifest(request)
        with refusals_named():
            rows, receipt = self.retrieval.gather(manifest)
        arrays = {name: self.outward(array) for name, array in vars(rows).items()}
        return {"outcome": "served", **arrays, "receipt": write(receipt)}

    def identity_partial(self, request: Request) -> Result:
        """State of the gathered rows."""
        manifest, q = self.manifest(request), self.inward(request["q"])
        with refusals_named():
            state, receipt = self.retrieval.partial(manifest, q, request["scale"])
        return {"outcome": "served", "state": self.write_state(state), "receipt": write(receipt)}

    # keys

    def row_keys(self, record: Record) -> list[bytes]:
        """One key per row of a record."""
        return reuse.row_keys(record)

    def identity_key(self, request: Request) -> Result:
        """The key of the last row."""
        return {"key": self.row_keys(request["record"])[-1].hex()}

    def identity_put(self, request: Request) -> Result:
        """Store rows under the record's keys."""
        keys = self.row_keys(request["record"])
        stored = self.store.put(keys, list(request["data"]))
        return {"outcome": "stored" if stored else "resident", "rows": len(keys)}

    def identity_get(self, request: Request) -> Result:
        """Rows of the longest stored prefix."""
        found = self.store.get(self.row_keys(request["record"]))
        if not found:
            return {"outcome": "miss", "rows": 0}
        return {"outcome": "hit", "rows": len(found), "data": np.stack(found)}


class Fenced:
    """Keys of tokens, content, salt and place alone; every other field is fenced by reset when it changes."""

    fields: ClassVar[frozenset[str]] = frozenset(name for name, _ in reuse.SCOPE) - {
        "cache_salt",
        "layer",
        "kv_head",
        "first_position",
        "prompt_embeds_sha256",
    }
    own_profiles: ClassVar[frozenset[str]] = frozenset({"fences"})
    own_capabilities: ClassVar[Mapping[str, Any]] = {f"identity.field.{name}": "fenced" for name in fields}

    store: reuse.RowStore

    def row_keys(self, record: Record) -> list[bytes]:
        """One key per row, without the fenced fields."""
        return reuse.row_keys({name: value for name, value in record.items() if name not in self.fields})

    def identity_change(self, request: Request) -> Result:
        """Drop every row: any of them may belong to the old value."""
        self.store.clear()
        return {}
