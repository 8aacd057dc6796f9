"""Faults of *Engines with keys of their own*: fields that run together (IDN-036), and one key for all (IDN-035)."""

from __future__ import annotations

import hashlib
import unicodedata
from typing import ClassVar

import numpy as np
from kvassay_reference import canonical, reuse

from ..base import Fault, found
from .base import Record


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


FAULTS = found(globals())
