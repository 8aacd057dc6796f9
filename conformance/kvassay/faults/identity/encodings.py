"""Faults of *What an identity is*: the canonical encoding and its digest (IDN-002 to IDN-006)."""

from __future__ import annotations

import hashlib
import unicodedata

from kvassay_reference import canonical

from ..base import Fault, found
from .base import Record


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


FAULTS = found(globals())
