"""Faults of *Engines with keys of their own*: fields and contents that no key holds (IDN-035, IDN-037)."""

from __future__ import annotations

import hashlib
from typing import ClassVar

from ..base import Fault, found
from .base import Record


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


FAULTS = found(globals())
