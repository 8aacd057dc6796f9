"""The reference of the contract identity as an engine; ``reference.py`` combines it with the other contracts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from kvassay_reference import canonical, reuse
from kvassay_reference.admission import Stage, Violation, violations
from kvassay_reference.identity import NotAdmitted, Published, Retrieval
from kvassay_reference.manifest import Manifest, NotAManifest, read, write

from ..adapters.base import EngineAdapter, EngineInfo, Rejected

Request = Mapping[str, Any]
Result = dict[str, Any]

FENCED = (
    "model",
    "checkpoint_generation",
    "adapter_name",
    "adapter_id",
    "adapter_version",
    "tenant",
    "namespace_generation",
    "cache_abi",
    "visibility_policy",
    "position_contract",
    "rope_config",
    "dtype",
    "codec",
    "layout",
    "shard_rank",
    "shard_count",
    "cache_generation",
    "publication_generation",
)
"""Fields of a record that an engine may keep out of its keys and fence by reset instead."""


class _Checked(Retrieval):
    """A retrieval that asks the engine for its rules, so that an engine can lack some."""

    def __init__(self, engine: IdentityOps) -> None:
        super().__init__()
        self.engine = engine

    def violations(self, m: Manifest, stage: Stage) -> Iterable[Violation]:
        return self.engine.violations(m, stage)


class IdentityOps(EngineAdapter):
    """The ops of the contract identity."""

    retrieval_type: type[_Checked] = _Checked

    def open(self) -> None:
        """An empty store and nothing published."""
        super().open()
        self.store = reuse.RowStore()
        self.retrieval = self.retrieval_type(self)

    # manifests

    def violations(self, m: Manifest, stage: Stage) -> Iterable[Violation]:
        """What a manifest violates, in the order of precedence."""
        return violations(m, stage)

    def identity_digest(self, request: Request) -> Result:
        """The digest of one identity and its encoding."""
        fields = dict(request)
        kind = fields.pop("kind")
        return {"sha256": canonical.digest(kind, fields), "canonical": canonical.encode(kind, fields).hex()}

    def identity_admit(self, request: Request) -> Result:
        """Accept a manifest or reject it."""
        self._do(lambda: self.retrieval.admit(self._manifest(request)))
        return {}

    def identity_publish(self, request: Request) -> Result:
        """Keep a manifest and its rows."""
        arrays = {name: request[name] for name in ("k", "v", "trace_k", "trace_v", "proxy")}
        self._do(lambda: self.retrieval.publish(Published(self._manifest(request), **arrays)))
        return {}

    def identity_lookup(self, request: Request) -> Result:
        """Candidates of an operation."""
        manifest = self._manifest(request)
        receipt = self._do(lambda: self.retrieval.lookup(manifest, request["query_proxy"], request["count"]))
        return {"outcome": "served", "receipt": write(receipt)}

    def identity_gather(self, request: Request) -> Result:
        """Rows of the candidates."""
        rows, receipt = self._do(lambda: self.retrieval.gather(self._manifest(request)))
        return {"outcome": "served", **vars(rows), "receipt": write(receipt)}

    def identity_partial(self, request: Request) -> Result:
        """State of the gathered rows."""
        manifest = self._manifest(request)
        state, receipt = self._do(lambda: self.retrieval.partial(manifest, request["q"], request["scale"]))
        return {"outcome": "served", "state": {"schema": "fp32-m-l-u-v1", **state}, "receipt": write(receipt)}

    def _manifest(self, request: Request) -> Manifest:
        try:
            return read(Manifest, request["document"])
        except NotAManifest as problem:
            raise Rejected("SCHEMA_VIOLATION", str(problem)) from None

    @staticmethod
    def _do(action: Any) -> Any:
        try:
            return action()
        except NotAdmitted as refusal:
            raise Rejected(*refusal.violation) from None

    # keys

    def row_keys(self, record: Mapping[str, Any]) -> list[bytes]:
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


class FencedReference(IdentityOps):
    """An engine whose keys carry tokens, salt, content and place only; everything else it fences by reset."""

    engine = EngineInfo("reference-fenced", "1", notes="Keys without generations; reset on every announced change.")
    profiles = frozenset({"fences", "keys"})
    capabilities = {f"identity.field.{name}": "fenced" for name in FENCED}  # noqa: RUF012 (read only)

    def row_keys(self, record: Mapping[str, Any]) -> list[bytes]:
        """Keys without the fenced fields."""
        return reuse.row_keys({name: value for name, value in record.items() if name not in FENCED})

    def identity_change(self, request: Request) -> Result:
        """Drop every row: any of them may belong to the old value."""
        self.store.clear()
        return {}
