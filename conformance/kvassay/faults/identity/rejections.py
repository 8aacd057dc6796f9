"""Faults of *Rejections*: the order of the reasons, and the form of a document (IDN-031, IDN-032)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kvassay_reference.admission import Stage, Violation
from kvassay_reference.manifest import Manifest

from ...adapters.base import Rejected
from ..base import Fault, found
from .base import Request, Result


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


FAULTS = found(globals())
