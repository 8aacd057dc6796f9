"""Stand-ins for the packages of real stores: as much of their public surface as the adapters use, in memory.

They show that an adapter maps what it is given and forwards what is over; whether an engine conforms is for the suite
to say, with the package itself.
"""

from __future__ import annotations

import ctypes
import enum
import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

Modules = dict[str, ModuleType]


def module(name: str, **members: Any) -> ModuleType:
    """A module with these members."""
    made = ModuleType(name)
    made.__dict__.update(members)
    return made


class Tensor:
    """Bytes that look like a tensor."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array = array

    def view(self, dtype: str) -> Tensor:
        """Bytes already."""
        return self

    def numpy(self) -> np.ndarray[Any, Any]:
        """The memory itself."""
        return self.array


def torch() -> Modules:
    """PyTorch, as far as memory of bytes goes."""
    return {
        "torch": module(
            "torch",
            uint8="uint8",
            Size=tuple,
            from_numpy=Tensor,
            empty=lambda size, dtype: Tensor(np.empty(size, np.uint8)),
        )
    }


# --- Mooncake --------------------------------------------------------------------------------------------------------

DEAD, ABSENT, LEASED, HALF, THERE = -601, -704, -706, -703, -705


@dataclass
class Master:
    """What all clients of one master see."""

    rows: dict[str, bytes] = field(default_factory=dict)
    writing: dict[str, tuple[Any, bytearray]] = field(default_factory=dict)
    """Key to the client that writes it, and what it has written."""
    reading: set[str] = field(default_factory=set)
    calls: list[str] = field(default_factory=list)
    """Ends of sessions, as they came."""


class Store:
    """A client."""

    master = Master()

    def setup(self, *options: Any) -> int:
        """Connected."""
        return 0

    def close(self) -> None:
        """Gone."""

    def register_buffer(self, address: int, size: int) -> int:
        """Any memory will do."""
        return 0

    def put(self, name: str, rows: bytes) -> int:
        """What is there stays."""
        self.master.rows.setdefault(name, rows)
        return 0

    def upsert(self, name: str, rows: bytes) -> int:
        """What is there is replaced."""
        self.master.rows[name] = rows
        return 0

    def get(self, name: str) -> bytes:
        """No bytes for a miss."""
        return self.master.rows.get(name, b"")

    def is_exist(self, name: str) -> int:
        """1 or 0."""
        return int(name in self.master.rows)

    def batch_is_exist(self, names: Sequence[str]) -> list[int]:
        """One after another."""
        return [self.is_exist(name) for name in names]

    def remove(self, name: str, force: bool) -> int:
        """Not under a lease, except by force."""
        if name not in self.master.rows:
            return ABSENT
        if name in self.master.reading and not force:
            return LEASED
        del self.master.rows[name]
        return 0

    def remove_all(self, force: bool) -> int:
        """Everything."""
        self.master.rows.clear()
        return 0

    def batch_put_session_start(self, names: Sequence[str], sizes: Sequence[int], config: Any) -> list[int]:
        """One writer for each key."""
        codes = []
        for name, size in zip(names, sizes, strict=True):
            taken = name in self.master.rows or name in self.master.writing
            codes.append(THERE if taken else 0)
            if not taken:
                self.master.writing[name] = (self, bytearray(size))
        return codes

    def batch_put_from_multi_buffer_ranges(
        self, names: Sequence[str], addresses: Any, sizes: Any, starts: Any
    ) -> list[int]:
        """From memory into what is being written."""
        (name,), ((address,),), ((size,),), ((start,),) = names, addresses, sizes, starts
        if name not in self.master.writing:
            return [ABSENT]
        self.master.writing[name][1][start : start + size] = ctypes.string_at(address, size)
        return [size]

    def batch_put_session_end(self, names: Sequence[str]) -> list[int]:
        """Published, for its writer alone."""
        return [self._ended(name, publish=True) for name in names]

    def batch_put_session_revoke(self, names: Sequence[str]) -> list[int]:
        """Given up."""
        return [self._ended(name, publish=False) for name in names]

    def _ended(self, name: str, *, publish: bool) -> int:
        self.master.calls.append(f"{'end' if publish else 'revoke'} {name}")
        if name not in self.master.writing:
            return ABSENT
        if self.master.writing[name][0] is not self:
            return DEAD
        rows = bytes(self.master.writing.pop(name)[1])
        if publish:
            self.master.rows[name] = rows
        return 0

    def batch_get_session_start(self, names: Sequence[str]) -> list[int]:
        """A lease on what is there."""
        codes = [0 if name in self.master.rows else HALF if name in self.master.writing else ABSENT for name in names]
        self.master.reading |= {name for name, code in zip(names, codes, strict=True) if code == 0}
        return codes

    def batch_get_into_multi_buffer_ranges(
        self, names: Sequence[str], addresses: Any, sizes: Any, starts: Any
    ) -> list[int]:
        """Into memory."""
        (name,), ((address,),), ((size,),), ((start,),) = names, addresses, sizes, starts
        ctypes.memmove(address, self.master.rows[name][start : start + size], size)
        return [size]

    def batch_get_session_end(self, names: Sequence[str]) -> int:
        """The lease is over."""
        self.master.calls += [f"read {name}" for name in names]
        self.master.reading -= set(names)
        return 0


def mooncake() -> Modules:
    """Mooncake and the runtime that it is linked against."""
    master = Master()
    store = type("MooncakeDistributedStore", (Store,), {"master": master})
    runtime = module("nvidia.cuda_runtime", __path__=["nowhere"])
    return {
        "mooncake": module("mooncake", __file__="mooncake/__init__.py"),
        "mooncake.store": module(
            "mooncake.store", MooncakeDistributedStore=store, ReplicateConfig=SimpleNamespace, master=master
        ),
        "nvidia": module("nvidia", cuda_runtime=runtime),
        "nvidia.cuda_runtime": runtime,
    }


# --- LMCache ---------------------------------------------------------------------------------------------------------


class L1Error(enum.Enum):
    """Results of the L1 manager."""

    SUCCESS = 0
    KEY_NOT_EXIST = 1
    KEY_IN_WRONG_STATE = 2
    KEY_NOT_READABLE = 3
    KEY_NOT_WRITABLE = 4
    KEY_IS_LOCKED = 5
    OUT_OF_MEMORY = 6


@dataclass(frozen=True)
class ObjectKey:
    """Identity of an object."""

    chunk_hash: bytes
    model: str
    rank: int
    cache_salt: str = ""


class Memory:
    """A memory object."""

    def __init__(self, size: int) -> None:
        self.tensor = Tensor(np.zeros(size, np.uint8))


Found = dict[ObjectKey, tuple[L1Error, Any]]


class L1Manager:
    """Objects that are written, or resident, with the number of their readers."""

    def __init__(self, config: Any) -> None:
        self.room = config.memory.size // config.memory.align_bytes
        self.objects: dict[ObjectKey, Memory] = {}
        self.writers: dict[ObjectKey, str] = {}
        self.readers: dict[ObjectKey, int] = {}
        self.closed = False
        self.finished: list[str] = []
        """Tags of finished writes, as they came."""

    def close(self) -> None:
        """Memory is given back."""
        self.closed = True

    def reserve_write(self, keys: Sequence[ObjectKey], shared: Sequence[bool], layout: Any, tag: str) -> Found:
        """Memory for what is not there."""
        return {key: self._reserved(key, layout, tag) for key in keys}

    def _reserved(self, key: ObjectKey, layout: Any, tag: str) -> tuple[L1Error, Memory | None]:
        if key in self.objects:
            return L1Error.KEY_NOT_WRITABLE, None
        if len(self.objects) >= self.room:
            return L1Error.OUT_OF_MEMORY, None
        self.objects[key], self.writers[key] = Memory(layout.shapes[0][0]), tag
        return L1Error.SUCCESS, self.objects[key]

    def finish_write(self, keys: Sequence[ObjectKey], tag: str) -> dict[ObjectKey, L1Error]:
        """Published, under the tag that reserved it."""
        return {key: self._finished(key, tag) for key in keys}

    def finish_write_and_delete(self, keys: Sequence[ObjectKey], tag: str) -> dict[ObjectKey, L1Error]:
        """Given up."""
        errors = self.finish_write(keys, tag)
        for key in keys:
            self.objects.pop(key, None)
        return errors

    def _finished(self, key: ObjectKey, tag: str) -> L1Error:
        self.finished.append(tag)
        if key not in self.objects:
            return L1Error.KEY_NOT_EXIST
        return L1Error.SUCCESS if self.writers.pop(key, None) == tag else L1Error.KEY_IN_WRONG_STATE

    def _readable(self, key: ObjectKey) -> L1Error:
        if key not in self.objects:
            return L1Error.KEY_NOT_EXIST
        return L1Error.KEY_NOT_READABLE if key in self.writers else L1Error.SUCCESS

    def reserve_read(self, keys: Sequence[ObjectKey]) -> Found:
        """A lock on what is there."""
        found: Found = {}
        for key in keys:
            error = self._readable(key)
            found[key] = error, self.objects[key] if error is L1Error.SUCCESS else None
            if error is L1Error.SUCCESS:
                self.readers[key] = self.readers.get(key, 0) + 1
        return found

    def finish_read(self, keys: Sequence[ObjectKey]) -> dict[ObjectKey, L1Error]:
        """One lock less."""
        errors = {}
        for key in keys:
            held = self.readers.get(key, 0)
            self.readers[key] = max(0, held - 1)
            errors[key] = L1Error.SUCCESS if held else L1Error.KEY_IN_WRONG_STATE
        return errors

    def unsafe_read(self, keys: Sequence[ObjectKey]) -> Found:
        """What is resident, and the error of what is not locked."""
        return {key: (self._seen(key), None) for key in keys}

    def _seen(self, key: ObjectKey) -> L1Error:
        found = self._readable(key) is L1Error.SUCCESS
        return (
            (L1Error.SUCCESS if self.readers.get(key) else L1Error.KEY_NOT_READABLE) if found else L1Error.KEY_NOT_EXIST
        )

    def delete(self, keys: Sequence[ObjectKey], force: bool) -> dict[ObjectKey, L1Error]:
        """What nobody locks, or all by force."""
        errors = {}
        for key in keys:
            locked = key in self.writers or bool(self.readers.get(key))
            errors[key] = L1Error.KEY_NOT_EXIST if key not in self.objects else L1Error.SUCCESS
            if key in self.objects and locked and not force:
                errors[key] = L1Error.KEY_IS_LOCKED
            elif key in self.objects:
                del self.objects[key]
        return errors

    def clear(self, force: bool) -> None:
        """Everything."""
        self.objects.clear()
        self.writers.clear()
        self.readers.clear()


class StorageManager:
    """An L1 manager above files, without eviction."""

    def __init__(self, config: Any) -> None:
        self.l1 = L1Manager(config.l1)
        self.root = Path(config.tiers.adapters[0]["inner"]["base_path"])
        self.tier = SimpleNamespace(_gap_indices=frozenset(), delete=self._delete)
        self.tasks: dict[int, list[ObjectKey]] = {}
        self.numbers = itertools.count()

    def _file(self, key: ObjectKey) -> Path:
        return self.root / f"m{key.cache_salt}@{key.chunk_hash.hex()}.data"

    def _delete(self, keys: Sequence[ObjectKey]) -> None:
        for key in keys:
            self._file(key).unlink(missing_ok=True)

    def l2_adapters(self) -> list[tuple[str, Any]]:
        """The file tier."""
        return [("fs", self.tier)]

    def close(self) -> None:
        """No thread runs."""

    def get_l1_usage(self) -> tuple[int, int]:
        """Always room."""
        return 0, 1 << 30

    def reserve_write(self, keys: Sequence[ObjectKey], layout: Any) -> dict[ObjectKey, Memory]:
        """Memory for what is not there."""
        found = self.l1.reserve_write(keys, [False] * len(keys), layout, "")
        return {key: memory for key, (_, memory) in found.items() if memory is not None}

    def finish_write(self, keys: Sequence[ObjectKey]) -> None:
        """Published, and written down at once."""
        self.l1.finish_write(keys, "")
        for key in keys:
            self._file(key).write_bytes(self.l1.objects[key].tensor.array.tobytes())

    def submit_prefetch_task(self, spec: Any) -> int:
        """Bring rows back, and lock them."""
        number = next(self.numbers)
        found: list[ObjectKey] = []
        for key in spec.groups[0].keys:
            if key not in self.l1.objects and self._file(key).exists() and not self.tier._gap_indices:
                data = self._file(key).read_bytes()
                self.l1.objects[key] = Memory(len(data))
                self.l1.objects[key].tensor.array[:] = np.frombuffer(data, np.uint8)
            if self.l1.reserve_read([key])[key][1] is None:
                break
            found.append(key)
        self.tasks[number] = found
        return number

    def wait_prefetch_status(self, task: int, patience_s: float) -> None:
        """It is done."""

    def query_prefetch_status(self, task: int) -> Any:
        """How many were found."""
        return SimpleNamespace(hit_cells=[SimpleNamespace(popcount=lambda: len(self.tasks[task]))])

    def finish_read_prefetched(self, keys: Sequence[ObjectKey]) -> None:
        """Locks are given back."""
        self.l1.finish_read(keys)

    @contextmanager
    def read_prefetched_results(self, keys: Sequence[ObjectKey]) -> Iterator[list[Memory]]:
        """What lies in L1."""
        yield [self.l1.objects[key] for key in keys]

    def unsafe_read(self, keys: Sequence[ObjectKey]) -> tuple[None, list[Memory]]:
        """What lies in L1."""
        return None, [self.l1.objects[key] for key in keys]

    def delete_l1_keys(self, keys: Sequence[ObjectKey], force: bool = False) -> tuple[list[ObjectKey], list[ObjectKey]]:
        """Which were deleted, and which are locked."""
        errors = self.l1.delete(keys, force)
        deleted = [key for key, error in errors.items() if error is L1Error.SUCCESS]
        return deleted, [key for key, error in errors.items() if error is L1Error.KEY_IS_LOCKED]

    def clear(self, force: bool) -> None:
        """L1; the files stay."""
        self.l1.clear(force)


def lmcache() -> Modules:
    """LMCache's managers, and memory for them."""
    base = "lmcache.v1.distributed"

    def memory_config(size: int, *, use_lazy: bool, align_bytes: int, shm_name: str) -> Any:
        return SimpleNamespace(size=size, align_bytes=align_bytes)

    def l1_config(memory: Any, *, write_ttl_seconds: int, read_ttl_seconds: int) -> Any:
        return SimpleNamespace(memory=memory)

    found = {
        "lmcache": module("lmcache"),
        "lmcache.v1": module("lmcache.v1"),
        base: module(base),
        f"{base}.api": module(
            f"{base}.api",
            MemoryLayoutDesc=lambda shapes, dtypes: SimpleNamespace(shapes=shapes),
            ObjectKey=ObjectKey,
            GroupedObjectKeys=lambda keys, group, layout: SimpleNamespace(keys=keys),
            PrefetchTaskSpec=lambda groups: SimpleNamespace(groups=groups),
        ),
        f"{base}.config": module(
            f"{base}.config",
            L1ManagerConfig=l1_config,
            L1MemoryManagerConfig=memory_config,
            EvictionConfig=lambda policy, **options: SimpleNamespace(),
            L2AdaptersConfig=lambda adapters: SimpleNamespace(adapters=adapters),
            StorageManagerConfig=lambda l1, eviction, tiers: SimpleNamespace(l1=l1, tiers=tiers),
        ),
        f"{base}.error": module(f"{base}.error", L1Error=L1Error),
        f"{base}.l1_manager": module(f"{base}.l1_manager", L1Manager=L1Manager),
        f"{base}.storage_manager": module(f"{base}.storage_manager", StorageManager=StorageManager),
        f"{base}.l2_adapters": module(f"{base}.l2_adapters"),
        f"{base}.l2_adapters.config": module(
            f"{base}.l2_adapters.config",
            get_l2_adapter_config_class=lambda name: SimpleNamespace(from_dict=lambda options: options),
        ),
        "lmcache.v1.memory_management": module("lmcache.v1.memory_management", MemoryObj=Memory),
    }
    return {**torch(), **found}


# --- SGLang ----------------------------------------------------------------------------------------------------------


class HiCacheFile:
    """A directory of pages, as large as it may be."""

    def __init__(self, root: str, extra_config: Mapping[str, Any]) -> None:
        self.root, self.most = Path(root), extra_config["max_size"]

    def _get_suffixed_key(self, key: str) -> str:
        return f"{key}_m"

    def _file(self, key: str) -> Path:
        return self.root / f"{self._get_suffixed_key(key)}.bin"

    def set(self, key: str, page: Tensor) -> bool:
        """True also for what is there and stays."""
        used = sum(file.stat().st_size for file in self.root.glob("*.bin"))
        if self._file(key).exists():
            return True
        if used + page.array.nbytes > self.most:
            return False
        self._file(key).write_bytes(page.array.tobytes())
        return True

    def get(self, key: str, page: Tensor) -> Tensor | None:
        """Into the page; a short file is an error of the read."""
        if not self._file(key).exists():
            return None
        rows = self._file(key).read_bytes()
        if len(rows) != page.array.nbytes:
            raise OSError(f"short read: {len(rows)} bytes")
        page.array[:] = np.frombuffer(rows, np.uint8)
        return page

    def exists(self, key: str) -> bool:
        """Whether there is a file."""
        return self._file(key).exists()

    def clear(self) -> None:
        """No file is left."""
        for file in self.root.glob("*.bin"):
            file.unlink()


def sglang() -> Modules:
    """The adapter of SGLang's keys, which makes the storage."""
    name = "kvassay.engines.sglang_keys"
    return {**torch(), name: module(name, HOMEPAGE="https://example.org", storage=HiCacheFile)}
