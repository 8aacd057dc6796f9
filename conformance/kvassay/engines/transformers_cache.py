"""The cache of transformers: rows that are appended, cropped, saved and selected, as ``generate`` does it.

``requirements/transformers.txt`` installs what this module needs. Component mode: a ``DynamicCache`` made from the
configuration of a model with full and sliding layers, and no model. Lengths are what ``get_seq_length`` says, rows what
``update`` returns or a layer's tensors hold, and positions what ``get_mask_sizes`` says, from which models make their
masks.
"""

from __future__ import annotations

import copy
import importlib.metadata
import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import torch
from transformers import DynamicCache, Gemma2Config
from transformers.cache_utils import DynamicLayer

from ..adapters.base import EngineAdapter, EngineInfo, Rejected, Unsupported
from ._torch import array, tensor

ADAPTERS = {
    "transformers-cache": "Adapter",
    "transformers-cache-recording": "Recording",
    "transformers-cache-rebuilt": "Rebuilt",
    "transformers-cache-5-2": "Adapter",
    "transformers-cache-5-2-rebuilt": "Rebuilt",
}
"""Names of the adapters here, and their classes; read without an import."""

Request = Mapping[str, Any]
Result = dict[str, Any]
RELATIVE_ONLY = "tokens_to_remove" in inspect.signature(DynamicLayer.crop).parameters
"""Whether ``crop`` takes rows to remove alone, as since transformers#47720, and no rows to keep."""
MASK_BY_LENGTH = "query_length" in inspect.signature(DynamicLayer.get_mask_sizes).parameters
"""Whether masks are sized from the number of new rows, and not from their positions."""
UNEVEN = "Sizes of tensors must match"
OUT_OF_RANGE = ("out of range", "out of bounds")


def info(notes: str) -> EngineInfo:
    """The cache, with the version that is installed."""
    return EngineInfo(
        "transformers DynamicCache",
        importlib.metadata.version("transformers"),
        "https://github.com/huggingface/transformers",
        "Python",
        f"{notes}; torch {torch.__version__}, CPU, no model",
    )


@contextmanager
def refused() -> Iterator[None]:
    """Errors by which the engine refuses, under the reasons that they mean."""
    try:
        yield
    except (ValueError, RuntimeError, IndexError) as error:
        text = str(error)
        if UNEVEN in text:
            raise Rejected("CACHE_ROWS_UNEVEN", text) from None
        if any(part in text for part in OUT_OF_RANGE):
            raise Rejected("NO_SUCH_SEQUENCE", text) from None
        if isinstance(error, IndexError):
            raise
        raise Rejected(None, text) from None


class Adapter(EngineAdapter):
    """Snapshots are deep copies, as the documentation of the library reuses a prompt."""

    engine = info("snapshots by copy.deepcopy")
    capabilities: ClassVar[Mapping[str, Any]] = {"rows.drops_nothing": RELATIVE_ONLY}
    """Where ``crop`` counts rows to keep, ``crop(0)`` keeps none, and no number drops none."""

    def open(self) -> None:
        """No cache."""
        self.caches: dict[str, Any] = {}
        self.snapshots: dict[str, Any] = {}

    def made(self, config: Any) -> Any:
        """A cache as ``generate`` makes one."""
        return DynamicCache(config=config)

    def saved(self, cache: Any) -> Any:
        """A snapshot."""
        return copy.deepcopy(cache)

    def restored(self, snapshot: Any) -> Any:
        """A cache from a snapshot."""
        return copy.deepcopy(snapshot)

    def rows_open(self, request: Request) -> Result:
        """A cache of full layers and of layers with one window."""
        windows = request["windows"]
        widths = {window for window in windows if window is not None}
        if len(widths) > 1:
            raise Unsupported("a configuration has one window for all its sliding layers")
        config = Gemma2Config(
            num_hidden_layers=len(windows),
            layer_types=["full_attention" if window is None else "sliding_attention" for window in windows],
            sliding_window=next(iter(widths), 4096),
        )
        self.caches[request["cache"]] = cache = self.made(config)
        return _lengths(cache)

    def rows_append(self, request: Request) -> Result:
        """``update`` of every layer; the mask's sizes are taken before, as models take them."""
        cache = self.caches[request["cache"]]
        k, v = tensor(request["k"]), tensor(request["v"])
        count = k.shape[3]
        layers = []
        with refused():
            masks = [_mask_sizes(cache, layer, count) for layer in range(len(k))]
            for layer, (_, offset) in enumerate(masks):
                keys, values = cache.update(k[layer], v[layer], layer)
                shown = _shown(cache, layer, keys, values, request["last"])
                layers.append({**shown, "end_position": int(offset + keys.shape[-2])})
        return {"layers": layers}

    def rows_read(self, request: Request) -> Result:
        """The tensors of the layers."""
        cache = self.caches[request["cache"]]
        each = enumerate(cache.layers)
        return {"layers": [_shown(cache, n, layer.keys, layer.values, request["last"]) for n, layer in each]}

    def rows_crop(self, request: Request) -> Result:
        """``crop``, in whichever way of counting the version has."""
        cache = self.caches[request["cache"]]
        number = -request["drop"] if "drop" in request else request["keep"]
        if "keep" in request and RELATIVE_ONLY:
            number -= cache.get_seq_length()
        with refused():
            cache.crop(number)
        return _lengths(cache)

    def rows_save(self, request: Request) -> Result:
        """A snapshot."""
        cache = self.caches[request["cache"]]
        self.snapshots[request["snapshot"]] = self.saved(cache)
        return _lengths(cache)

    def rows_restore(self, request: Request) -> Result:
        """A cache from a snapshot."""
        self.caches[request["cache"]] = cache = self.restored(self.snapshots[request["snapshot"]])
        return _lengths(cache)

    def rows_select(self, request: Request) -> Result:
        """Beams are reordered; sequences are repeated in blocks, or selected."""
        cache, chosen = self.caches[request["cache"]], request["sequences"]
        batch = {len(layer.keys) for layer in cache.layers if layer.is_initialized}.pop()
        repeats = len(chosen) // batch
        with refused():
            if len(chosen) == batch:
                cache.reorder_cache(torch.tensor(chosen))
            elif repeats and chosen == [one for one in range(batch) for _ in range(repeats)]:
                cache.batch_repeat_interleave(repeats)
            else:
                cache.batch_select_indices(torch.tensor(chosen))
        return _lengths(cache)

    def rows_reset(self, request: Request) -> Result:
        """``reset``."""
        cache = self.caches[request["cache"]]
        cache.reset()
        return _lengths(cache)


class Recording(Adapter):
    """Sliding layers keep what a crop may need, as ``generate`` asks them to before assisted decoding."""

    engine = info("snapshots by copy.deepcopy; activate_past_recording before the first row")
    capabilities: ClassVar[Mapping[str, Any]] = {**Adapter.capabilities, "rows.crops_windows": True}

    def made(self, config: Any) -> Any:
        """A cache that records its past."""
        cache = super().made(config)
        cache.activate_past_recording()
        return cache


class Rebuilt(Adapter):
    """Snapshots are what iterating over a cache yields, as a gather from one replica copies it."""

    engine = info("snapshots are copies of the tensors that iteration yields, restored by DynamicCache(tensors)")

    def saved(self, cache: Any) -> Any:
        """Keys, values and window of each layer."""
        return [tuple(part if part is None else torch.atleast_1d(part).clone() for part in layer) for layer in cache]

    def restored(self, snapshot: Any) -> Any:
        """A cache from them."""
        return DynamicCache(snapshot)


def _lengths(cache: Any) -> Result:
    return {"rows": [int(cache.get_seq_length(layer)) for layer in range(len(cache.layers))]}


def _mask_sizes(cache: Any, layer: int, count: int) -> tuple[int, int]:
    """Rows and first position of what the next rows attend to."""
    first = cache.get_seq_length()
    asked = count if MASK_BY_LENGTH else torch.arange(first, first + count)
    sizes: tuple[int, int] = cache.get_mask_sizes(asked, layer)
    return sizes


def _shown(cache: Any, layer: int, keys: Any, values: Any, last: Sequence[int]) -> Result:
    told: Result = {"rows": int(cache.get_seq_length(layer))}
    if keys is not None and keys.numel():
        told |= {"k": array(keys[..., -last[layer] :, :]), "v": array(values[..., -last[layer] :, :])}
    return told
