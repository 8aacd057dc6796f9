"""SGLang's keys: its radix tree, and the file names of HiCache's file storage.

Both adapters build SGLang's own ``Req``, so that the namespace of a request (extra key, adapter, salt) is what SGLang
makes of it, and play the memory pool: rows lie in an array at the indices that SGLang keeps.

- :class:`Adapter`: HiCache's third tier. Page hashes by ``get_storage_hash_str``, files by ``HiCacheFile`` in a
  directory that several servers share.
- :class:`RadixTree`: one server. ``RadixCache`` over ``RadixKey``.
"""

# ruff: noqa: E402 (the declarations below must come before the import of SGLang)

from __future__ import annotations

import shutil
import tempfile
from array import array
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any, ClassVar

import numpy as np
import torch

for _name in ("nms", "qnms"):
    # torchvision's wheels hold CUDA operators, which do not load beside a CPU build of torch; SGLang imports its image
    # transforms alone, and for those the declarations are enough.
    torch.library.define(f"torchvision::{_name}", "(Tensor dets, Tensor scores, float threshold) -> Tensor")

from sglang.srt.lora.lora_registry import LoRARef
from sglang.srt.managers.schedule_batch import Modality, MultimodalDataItem, Req
from sglang.srt.mem_cache.base_prefix_cache import InsertParams, MatchPrefixParams
from sglang.srt.mem_cache.hicache_storage import HiCacheFile, HiCacheStorageConfig
from sglang.srt.mem_cache.radix_cache import RadixCache, RadixKey
from sglang.srt.mem_cache.utils import get_storage_hash_str
from sglang.srt.sampling.sampling_params import SamplingParams

from ..adapters.base import EngineAdapter, EngineInfo, Rejected, Unsupported
from ..core.tensors import Array
from .dispositions import dispositions

ADAPTERS = {"sglang-hicache-file": "Adapter", "sglang-radix-tree": "RadixTree"}
"""Names of the adapters here, and their classes; read without an import."""

Record = Mapping[str, Any]

PAGE = 4
"""Tokens a page (``--page-size``)."""
NAME_MAX = 255
"""Longest file name of common file systems."""
HOMEPAGE = "https://github.com/sgl-project/sglang"
MISS = {"outcome": "miss", "rows": 0}
REFUSED = {"outcome": "refused", "rows": 0}


def _key(record: Record, adapters: Mapping[str, LoRARef] | None = None) -> RadixKey:
    """The radix key of the request that a client of SGLang would send.

    The tenant goes into ``extra_key``, the field for a namespace of the caller's own. An adapter is one of
    ``--lora-paths``, whose id SGLang derives from name and path, unless ``adapters`` holds one loaded at run time.
    Placeholders of multimodal content are overwritten as SGLang's processors do.
    """
    if "prompt_embeds_sha256" in record:
        raise Rejected(None, "SGLang takes input_embeds only with the radix cache switched off")
    tokens = array("q", record["tokens"])
    for item in record.get("multimodal", ()):
        content = MultimodalDataItem(modality=Modality.IMAGE)
        content.set_identity(bytes.fromhex(item["sha256"]))
        start, length = item["position"], item["length"]
        tokens[start : start + length] = array("q", content.padding_sequence(length))
    request = Req(
        rid="0",
        origin_input_text="",
        origin_input_ids=tokens,
        sampling_params=SamplingParams(max_new_tokens=1),
        lora_id=_lora_id(record, adapters or {}),
        extra_key=record["tenant"],
        cache_salt=record.get("cache_salt"),
    )
    return RadixKey(tokens, request.extra_key, cache_salt=request.cache_salt).page_aligned(PAGE)


def _lora_id(record: Record, adapters: Mapping[str, LoRARef]) -> str | None:
    name = record.get("adapter_name")
    if name is None:
        return None
    if name in adapters:
        return str(adapters[name].lora_id)
    return str(LoRARef.deterministic_id(name, f"/adapters/{name}/{record.get('adapter_id', '')}"))


class Adapter(EngineAdapter):
    """HiCache's file storage over a directory that several servers share, or one server before and after a restart."""

    engine = EngineInfo(
        name="SGLang HiCache files",
        version=version("sglang"),
        homepage=HOMEPAGE,
        notes="Req, get_storage_hash_str and HiCacheFile in component mode; the adapter plays the host pool. "
        "An adapter's new version is written over the old one at the same path.",
    )
    capabilities: ClassVar[Mapping[str, Any]] = dispositions(
        key="model checkpoint_generation adapter_name adapter_id adapter_version tenant cache_salt rope_config dtype "
        "layout shard_rank shard_count tokens multimodal",
        constant="cache_abi visibility_policy position_contract codec layer kv_head first_position",
        absent="namespace_generation cache_generation publication_generation prompt_embeds_sha256",
    )

    def setup(self) -> None:
        """Let SGLang build its hash, which takes longer than a step may."""
        get_storage_hash_str(RadixKey(array("q", range(PAGE))), page_size=PAGE)

    def open(self) -> None:
        """An empty directory."""
        self.teardown()
        self._width = 1
        self._root = tempfile.mkdtemp(prefix="kvassay-sglang-")

    def teardown(self) -> None:
        """Remove the directory."""
        shutil.rmtree(getattr(self, "_root", ""), ignore_errors=True)

    def identity_key(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """The file name of the last page."""
        hashes = _hashes(request["record"])
        if not hashes:
            raise Unsupported(f"no whole page of {PAGE} tokens, so SGLang makes no key")
        return {"key": str(self._storage(request["record"])._get_suffixed_key(hashes[-1]))}

    def identity_put(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Write the whole pages."""
        hashes, data, storage = _hashes(request["record"]), request["data"], self._storage(request["record"])
        self._width = data.shape[1]
        for page, name in enumerate(hashes):
            rows = torch.from_numpy(np.array(data[page * PAGE : (page + 1) * PAGE]))
            if not storage.set(name, rows):
                if len(f"{storage._get_suffixed_key(name)}.bin".encode()) > NAME_MAX:
                    raise Unsupported("SGLang's file name is longer than the file system allows")
                return dict(REFUSED)
        return {"outcome": "stored", "rows": len(hashes) * PAGE}

    def identity_get(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Read the prefix of pages that exist."""
        hashes, storage = _hashes(request["record"]), self._storage(request["record"])
        found = storage.batch_exists(hashes)
        if not found:
            return dict(MISS)
        pages: list[Array] = []
        for name in hashes[:found]:
            page = storage.get(name, torch.empty((PAGE, self._width), dtype=torch.uint8))
            if page is None:
                raise Rejected(None, "the page vanished")
            pages.append(page.numpy())
        data = np.concatenate(pages)
        return {"outcome": "hit", "rows": len(data), "data": data}

    def _storage(self, record: Record) -> HiCacheFile:
        """The storage as the record's server opens it."""
        return storage(
            self._root,
            tp_rank=record["shard_rank"],
            tp_size=record["shard_count"],
            is_page_first_layout=record["layout"] == "position-head-channel",
            model_name=record["model"],
        )


def storage(root: str, **options: Any) -> HiCacheFile:
    """The file backend of one rank over a directory; ``options`` are members of its configuration."""
    plain = {
        "tp_rank": 0,
        "tp_size": 1,
        "pp_rank": 0,
        "pp_size": 1,
        "attn_cp_rank": 0,
        "attn_cp_size": 1,
        "is_mla_model": False,
        "enable_storage_metrics": False,
        "is_page_first_layout": False,
        "model_name": "m",
    }
    return HiCacheFile(HiCacheStorageConfig(**{**plain, **options}), file_path=root)


def _hashes(record: Record) -> list[str]:
    key = _key(record)
    return list(get_storage_hash_str(key, page_size=PAGE)) if len(key) else []


class RadixTree(EngineAdapter):
    """SGLang's radix tree within one server."""

    engine = EngineInfo(
        name="SGLang radix tree",
        version=version("sglang"),
        homepage=HOMEPAGE,
        notes="Req, RadixKey and RadixCache in component mode; the adapter plays the memory pool. "
        "Adapters are loaded at run time: a replacement is unloaded and loaded anew.",
    )
    capabilities: ClassVar[Mapping[str, Any]] = dispositions(
        key="adapter_name tenant cache_salt tokens multimodal",
        fenced="checkpoint_generation adapter_id adapter_version",
        constant="model cache_abi visibility_policy position_contract rope_config dtype codec layout layer kv_head "
        "shard_rank shard_count first_position",
        absent="namespace_generation cache_generation publication_generation prompt_embeds_sha256",
    )

    def open(self) -> None:
        """A fresh server without rows or adapters."""
        self._tree = RadixCache.create_simulated(page_size=PAGE)
        self._adapters: dict[str, LoRARef] = {}
        self._rows: list[Array] = []

    def identity_put(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Prefill: match, compute what is missing into new slots, insert."""
        key, data = self._key(request["record"]), request["data"]
        held = self._match(key)
        new = torch.arange(len(self._rows), len(self._rows) + len(key) - len(held), dtype=torch.int64)
        self._rows += [np.array(row) for row in data[len(held) : len(key)]]
        self._tree.insert(InsertParams(key=key, value=torch.cat([held, new])))
        return {"outcome": "stored", "rows": len(key)} if len(key) else dict(REFUSED)

    def identity_get(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """The rows at the indices that the tree matches."""
        held = self._match(self._key(request["record"])).tolist()
        if not held:
            return dict(MISS)
        return {"outcome": "hit", "rows": len(held), "data": np.stack([self._rows[slot] for slot in held])}

    def identity_change(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """New weights: the tree is reset, as ``flush_cache`` does. A new adapter: loaded anew, under a new id."""
        field = request["field"]
        if field == "checkpoint_generation":
            self._tree.reset()
        elif field in ("adapter_id", "adapter_version"):
            self._adapters.clear()
        return {}

    def _key(self, record: Record) -> RadixKey:
        name = record.get("adapter_name")
        if name is not None and name not in self._adapters:
            self._adapters[name] = LoRARef(lora_name=name, lora_path=f"/adapters/{name}")
        return _key(record, self._adapters)

    def _match(self, key: RadixKey) -> torch.Tensor:
        found = self._tree.match_prefix(MatchPrefixParams(key=key))
        return self._tree.path_device_indices(found.last_device_node)
